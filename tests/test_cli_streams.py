"""Standard streams that are closed, full, or read by nobody: the work is done, and the exit code says how it went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from seeds import nightly

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse

CODE = "import sys; from ddcore.cli import main; sys.argv[0] = 'ddcore'; main.main()"
CLOSED = [">&-", "2>&-", "<&-", ">&- 2>&-", ">&- 2>&- <&-"]


def shell(redirection: str, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    """A command with redirected streams: exit code, stdout, stderr."""
    command = ["bash", "-c", f'exec "$@" {redirection}', "bash", sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout, done.stderr


def unread(streams: Sequence[int], *arguments: str, cwd: Path) -> tuple[int, str]:
    """A command whose streams (1, 2) are pipes without a reader: exit code, and what the other stream holds."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", CODE, *arguments],
            cwd=cwd,
            stdout=writer if 1 in streams else subprocess.PIPE,
            stderr=writer if 2 in streams else subprocess.PIPE,
            text=True,
            check=False,
            timeout=600,
        )
    finally:
        os.close(writer)
    return done.returncode, (done.stdout or "") + (done.stderr or "")


def folded(project: Path) -> int:
    """The last folded version, with no run left unfinished."""
    ledger = Ledger.load(Warehouse(project / "warehouse"))
    assert ledger.open_intent() is None
    last = ledger.last_folded()
    assert last is not None
    return last.version


@pytest.fixture
def pending(copied: Path, dd: Any) -> Path:
    """A folded project with one more version to fold."""
    (copied / "six.csv").write_text("diff,src,dst,minutes\n1,Zoo,Airport,20\n")
    assert dd("ingest", "links", "six.csv", "--version", "6")[0] == 0
    # What a program prints while it is folded goes to stderr, which may be gone.
    program = copied / "program.py"
    program.write_text(program.read_text() + "\nprint('x' * 100_000, flush=True)\n")
    return copied


@pytest.mark.sample(1)
@pytest.mark.parametrize("redirection", CLOSED)
def test_a_run_with_closed_streams_folds(redirection: str, pending: Path) -> None:
    code, out, err = shell(redirection, "run", cwd=pending)
    assert code == 0
    assert "Error" not in out + err
    assert folded(pending) == 6
    assert shell(redirection, "run", "--skip-code", "99", cwd=pending)[0] == 99
    if "2>&-" not in redirection:
        assert "version=6 in=+1/-0" in err
    if not redirection.startswith(">&-"):
        assert json.loads(out)["last"] == 6


@pytest.mark.sample(1)
@pytest.mark.parametrize("streams", [(1,), (2,), (1, 2)])
def test_a_run_that_nobody_reads_folds(streams: tuple[int, ...], pending: Path) -> None:
    code, rest = unread(streams, "run", cwd=pending)
    assert (code, folded(pending)) == (0, 6)
    assert "Error" not in rest
    if streams == (2,):
        assert json.loads(rest)["last"] == 6
    assert unread(streams, "run", "--skip-code", "99", cwd=pending)[0] == 99


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "code"),
    nightly(
        [
            (["--help"], 0),
            (["no-such-command"], 2),
            (["show", "journeys"], 0),
            (["diff", "journeys", "1..latest", "--exit-code"], 3),
            (["--version"], 0),
            ([], 2),
            (["show", "no_such_output"], 2),
            (["log"], 0),
            (["status"], 0),
        ],
        4,
    ),
)
def test_the_exit_code_does_not_depend_on_the_streams(arguments: list[str], code: int, here: Path) -> None:
    for redirection in (">&-", ">&- 2>&- <&-"):
        got, out, err = shell(redirection, *arguments, cwd=here)
        assert got == code, redirection
        assert "AttributeError" not in out + err
        assert "Traceback" not in out + err
        if code == 2 and redirection == ">&-":
            assert "error: " in err or "Usage: " in err
    for streams in ((1,), (2,)):
        got, rest = unread(streams, *arguments, cwd=here)
        assert got == code, streams
        assert "Traceback" not in rest
        assert "Exception ignored" not in rest


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_under_stdout_is_an_error_and_the_run_is_kept(pending: Path) -> None:
    code, _, err = shell(">/dev/full", "run", cwd=pending)
    assert code == 1
    assert err.endswith("error: stdout: No space left on device\n  free some space and run the same command again\n")
    assert folded(pending) == 6
    code, _, err = shell(">/dev/full", "show", "journeys", cwd=pending)
    assert (code, err) == (
        1,
        "error: stdout: No space left on device\n  free some space and run the same command again\n",
    )
    assert shell("2>/dev/full", "run", "--full-refresh", cwd=pending)[0] == 0


def test_what_an_encoding_lacks_is_escaped(pending: Path, dd: Any) -> None:
    (pending / "seven.csv").write_text("diff,src,dst,minutes\n1,Airport,日本é,20\n")
    assert dd("ingest", "links", "seven.csv", "--version", "7")[0] == 0
    assert dd("run")[0] == 0
    done = subprocess.run(
        [sys.executable, "-c", CODE, "show", "journeys"],
        cwd=pending,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u65e5\\u672c\xe9" in done.stdout
    done = subprocess.run(
        [sys.executable, "-c", CODE, "show", "journeys", "--json"],
        cwd=pending,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        timeout=600,
    )
    stops = [json.loads(line).get("row", {}).get("stop") for line in done.stdout.splitlines()]
    assert "日本é" in stops
