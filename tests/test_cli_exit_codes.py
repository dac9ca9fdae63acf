"""Every exit code that is documented, and errors that a new user meets first: one line, one hint, nothing lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddcore.io.storage.warehouse import Warehouse

PAGE = Path(__file__).resolve().parent.parent / "docs" / "exit-codes.md"
SCENARIOS: dict[str, Callable[[Path, Any], int]] = {}


def code(name: str) -> Callable[[Callable[[Path, Any], int]], None]:
    """Register what ends with the documented code ``name``."""

    def register(scenario: Callable[[Path, Any], int]) -> None:
        SCENARIOS[name] = scenario

    return register


@code("0")
def _done(project: Path, dd: Any) -> int:
    assert dd("diff", "journeys", "1..latest")[0] == 0
    return int(dd("run")[0])


@code("1")
def _failed(project: Path, dd: Any) -> int:
    (project / "program.py").write_text("raise ValueError('no')\n")
    return int(dd("run", "--full-refresh")[0])


@code("2")
def _misused(project: Path, dd: Any) -> int:
    return int(dd("run", "--no-such-option")[0])


@code("3")
def _different(project: Path, dd: Any) -> int:
    assert dd("diff", "journeys", "5..5", "--exit-code")[0] == 0
    return int(dd("diff", "journeys", "1..latest", "--exit-code")[0])


@code("4")
def _test_broken(project: Path, dd: Any) -> int:
    with (project / "dd.toml").open("a") as file:
        file.write('[tests.none]\nempty = "journeys"\n')
    return int(dd("run")[0])


@code("5")
def _late(project: Path, dd: Any) -> int:
    text = (project / "dd.toml").read_text()
    source = 'source = { path = "data/links.csv", expect = "0.001 seconds" }'
    (project / "dd.toml").write_text(text.replace("[inputs.links]", f"[inputs.links]\n{source}"))
    return int(dd("sync")[0])


@code("75")
def _locked(project: Path, dd: Any) -> int:
    with Warehouse(project / "warehouse").lock("ddcore run"):
        got, out, err = dd("run", "--full-refresh")
    assert out == []
    assert f"pid {os.getpid()}" in err[0]
    return int(got)


@code("N")
def _skipped(project: Path, dd: Any) -> int:
    return {99: -1}[dd("run", "--skip-code", "99")[0]]


@code("130")
def _interrupted(project: Path, dd: Any) -> int:
    return _signalled(project, signal.SIGINT)


@code("143")
def _terminated(project: Path, dd: Any) -> int:
    return _signalled(project, signal.SIGTERM)


def _signalled(project: Path, number: int) -> int:
    """The exit code of a run that is stopped half-way; the same command then goes on."""
    text = (project / "program.py").read_text()
    (project / "program.py").write_text(
        "import sys, time\nprint('asleep', file=sys.stderr, flush=True)\ntime.sleep(60)\n" + text
    )
    command = "import sys; from ddcore.cli import main; sys.argv[0] = 'ddcore'; main.main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "run", "--full-refresh"], cwd=project, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        while child.stderr.readline() != "asleep\n":
            assert child.poll() is None
        time.sleep(0.1)
        child.send_signal(number)
        _, err = child.communicate(timeout=600)
    assert "Traceback" not in err
    (project / "program.py").write_text(text)
    subprocess.run([sys.executable, "-c", command, "run", "-q"], cwd=project, check=True, timeout=600)
    return child.returncode


@pytest.mark.parametrize("name", re.findall(r"^\| (\d+|N) \|", PAGE.read_text(), flags=re.MULTILINE))
def test_each_documented_code(name: str, copied: Path, dd: Any) -> None:
    got = SCENARIOS[name](copied, dd)
    assert got == (-1 if name == "N" else int(name))


# --- names and versions that are not there ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        (["show", "jurneys"], "no output 'jurneys'; there are: journeys", "did you mean 'journeys'?"),
        (["diff", "jurneys", "1..2"], "no output 'jurneys'; there are: journeys", "did you mean 'journeys'?"),
        (["show", "links"], "no output 'links'; there are: journeys", "links is an input; only outputs can be shown"),
        (["show", ""], "invalid value for 'OUTPUT': the value is empty", "see: ddcore show --help"),
        (["ingest", "journeys", "data/links.csv"], "no input 'journeys' in dd.toml", "[inputs.journeys]"),
        (["ingest", "lniks", "data/links.csv"], "no input 'lniks' in dd.toml", "did you mean 'links'?"),
        (["show", "journeys", "--at", "6"], "version 6 is not yet complete", "ddcore status"),
        (["diff", "journeys", "1", "6"], "version 6 is not yet complete", "ddcore status"),
        (["diff", "journeys", "0", "1"], "0..1", ""),
        (["show", "journeys", "--at", "0"], "version 0 is before the first one, 1", "1..5"),
        (["run", "--to-version", "6"], "version 6 was not ingested", "--to-version latest"),
        (["run", "--from-version", "7"], "--from-version 7", ""),
    ],
)
def test_unknown_names_and_versions_are_errors(arguments: list[str], says: str, hint: str, here: Path, dd: Any) -> None:
    got, out, err = dd(*arguments)
    if arguments[:4] == ["diff", "journeys", "0", "1"]:  # the time before the first version is empty, and known
        assert (got, out[1]) == (0, "0..1  +6 -0")
        return
    assert (got, out) == (2, [])
    assert says in err[0]
    assert hint in (err[1] if len(err) > 1 else "")


# --- a new user -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["status"], ["log"], ["show", "journeys"], ["diff", "journeys", "1..2"], ["run"]])
def test_a_file_in_place_of_the_warehouse(command: list[str], copied: Path, dd: Any) -> None:
    got, out, err = dd(*command, "--warehouse", "program.py")
    assert (got, out) == (2, [])
    assert err == [
        f"error: the warehouse {copied / 'program.py'} is not a folder",
        "  name another one: --warehouse DIR",
    ]


@pytest.mark.parametrize("option", ["--warehouse", "--project"])
def test_an_empty_path_is_refused(option: str, copied: Path, dd: Any) -> None:
    got, out, err = dd("status", option, "")
    assert (got, out) == (2, [])
    assert "the value is empty" in err[0]


@pytest.mark.parametrize("command", [["status"], ["run"], ["show", "x"], ["init", "x"]], ids=str)
def test_a_working_folder_that_is_gone(command: list[str], tmp_path: Path, monkeypatch: Any, dd: Any) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    got, out, err = dd(*command)
    monkeypatch.chdir(tmp_path)
    assert got in (1, 2)
    assert (out, len(err)) == ([], 2)
    assert "No such file or directory" in err[0]


_UNREADABLE = """
import os, sys
from ddcore.cli.main import run_command
command = ["show", "journeys", "--limit", "1", "--project", sys.argv[1]]
assert run_command(command) == 0  # imports everything while this user may
os.chmod(sys.argv[2], 0)
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
sys.exit(run_command(command))
"""


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("location", ["", "dd.toml", "warehouse", "warehouse/outputs/journeys"])
def test_a_project_that_this_user_may_not_read(location: str, folded: Path) -> None:
    # Not below pytest's folders: only their owner may enter them.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as parent:
        project = Path(parent) / "project"
        shutil.copytree(folded, project)
        Path(parent).chmod(0o755)
        subprocess.run(["chmod", "-R", "a+rX", str(project)], check=True)
        done = subprocess.run(
            [sys.executable, "-c", _UNREADABLE, str(project), str(project / location)],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        (project / location).chmod(0o755)
    lines = done.stderr.splitlines()[1:]  # the first says that --limit left out rows
    assert done.returncode in (1, 2)
    assert len(done.stdout.splitlines()) == 5
    assert str(project / location) in lines[0]
    assert "ermission denied" in lines[0]
    assert len(lines) <= 2
    assert "--debug" not in lines[-1]


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "line", "hint"),
    [
        (_Mute(), "error: _Mute", "this should not happen: see --debug"),
        (RecursionError("maximum recursion depth exceeded"), "error: too deeply nested: maximum", "nests very deeply"),
        (ValueError("x" * 100_000), "error: ValueError: xxx", "this should not happen"),
        (ValueError("\x1b[31mred"), "error: ValueError: \\x1b[31mred", "this should not happen"),
        (OSError(28, "No space left on device", "/w/f"), "error: /w/f: No space left on device", "free some space"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_last_resort(error: BaseException, line: str, hint: str, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("ddcore.cli.init._refuse_to_overwrite", fail)
    got, out, err = dd("init")
    assert (got, out, len(err)) == (1, [], 2)
    assert err[0].startswith(line)
    assert len(err[0]) < 2_100
    assert hint in err[1]
