"""The hook: a command of the project gets the JSON object of each run, and cannot harm it."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trams import Command, journeys

from ddcore.base.errors import UsageError
from ddcore.base.tuning import Tuning
from ddcore.cli.hook import tell_hook
from ddcore.cli.output import Output
from ddcore.io.project.finding import find_project

KEEP = '#!/bin/sh\necho "$DDCORE_COMMAND $# $1" >> calls\ncat >> told\necho noise\n'


@pytest.fixture
def trams(folded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a hook that keeps what it is told, from another working folder."""
    home = tmp_path / "trams"
    shutil.copytree(folded, home)
    _script(home, KEEP)
    monkeypatch.chdir(tmp_path)
    _set(home, '["./keep.sh", "word with blanks"]')
    return home


def _script(home: Path, text: str) -> None:
    (home / "keep.sh").write_text(text)
    (home / "keep.sh").chmod(0o755)


def _set(home: Path, value: str) -> None:
    lines = (home / "dd.toml").read_text().splitlines()
    lines = [line for line in lines if not line.startswith("hook")]
    lines.insert(lines.index("[run]") + 1, f"hook = {value}")
    (home / "dd.toml").write_text("\n".join(lines))


def _told(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "told").read_text().splitlines()] if (home / "told").exists() else []


def _ingest(home: Path, dd: Command, *rows: str) -> None:
    (home / "more.csv").write_text("\n".join(["version,diff,src,dst,minutes", *rows, ""]))
    assert dd("ingest", "links", str(home / "more.csv"), "--project", str(home))[0] == 0


def test_it_gets_what_the_command_prints(trams: Path, dd: Command) -> None:
    assert dd("run", "--project", str(trams))[0] == 0
    assert not _told(trams), "nothing was new"
    _ingest(trams, dd, "6,1,Zoo,Mill,2")
    assert dd("run", "--project", str(trams), "--dry-run")[0] == 0
    assert not _told(trams), "nothing was done"
    code, out, _ = dd("run", "--project", str(trams))
    assert code == 0
    assert _told(trams) == [json.loads(out[-1])]
    assert (trams / "calls").read_text() == "run 1 word with blanks\n"


def test_it_gets_the_error_of_a_run(trams: Path, dd: Command) -> None:
    _ingest(trams, dd, "6,1,Zoo,Mill,2")
    program = next(trams.glob("*.py"))
    program.write_text(program.read_text().replace("return {", "raise ValueError('on purpose')\n    return {"))
    code, _, err = dd("run", "--project", str(trams))
    (told,) = _told(trams)
    assert code == told["error"]["exit_code"] != 0
    assert "on purpose" in told["error"]["message"] and f"error: {told['error']['message']}" in err
    assert told["command"] == "run"


@pytest.mark.parametrize(
    "text, says",
    [
        ("#!/bin/sh\nexit 7\n", "the hook ./keep.sh ended with exit code 7"),
        ("#!/no/such/program\n", "the hook ./keep.sh cannot be called: No such file or directory"),
        ("", "the hook ./keep.sh cannot be called: Exec format error"),
    ],
)
def test_a_hook_that_fails_is_a_warning(text: str, says: str, trams: Path, dd: Command) -> None:
    _ingest(trams, dd, "6,1,Zoo,Mill,2")
    _script(trams, text)
    code, _, err = dd("run", "--project", str(trams))
    assert code == 0 and f"warning: {says}" in err
    assert journeys(trams)["Mill"] > 0


def test_a_hook_that_takes_too_long_is_ended(trams: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _script(trams, "#!/bin/sh\nsleep 30\n")
    start = time.monotonic()
    tell_hook(Output(), replace(find_project(trams), tuning=Tuning(hook_seconds=0.2)), "run", {})
    assert time.monotonic() - start < 20
    assert "warning: the hook ./keep.sh was ended: it took more than 0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize("value", ['"./keep.sh"', "[1]", '[""]', '["a\\u0000b"]', "true"])
def test_a_hook_is_a_list_of_words(value: str, trams: Path) -> None:
    _set(trams, value)
    with pytest.raises(UsageError, match=r"\[run\] hook: must be a command as a list of words"):
        find_project(trams)
