"""What the shell's completion offers: names of the project at hand, quickly, and nothing where there is no project."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli_main import HEAVY

_CODE = f"""
import atexit, json, sys
atexit.register(lambda: print(json.dumps([name for name in sys.modules if name in {HEAVY!r}]), file=sys.stderr))
from ddcore.cli import main
sys.argv = ["dd"]
main.main()
"""


def complete(words: str, cwd: Path, **environment: str) -> list[str]:
    """What bash is offered for the last of ``words``; nothing heavy is imported, nothing else printed."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DDCORE_")},
        "_DD_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", _CODE], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert json.loads(done.stderr) == []
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offer"),
    [
        ("dd ingest ", ["links", "starts"]),
        ("dd ingest l", ["links"]),
        ("dd ingest x", []),
        ("dd show ", ["journeys"]),
        ("dd diff j", ["journeys"]),
        ("dd diff journeys la", ["latest"]),
        ("dd diff journeys 1 2 --key ", ["stop"]),
        ("dd show journeys --at ", ["latest", "today", "yesterday"]),
        ("dd run --engine ", ["inline", "spark"]),
        ("dd verify ", ["journeys"]),
        ("dd verify --at y", ["yesterday"]),
        ("dd run --to-version l", ["latest"]),
        ("dd verify --by ", ["reference", "scratch"]),
        ("dd ingest --engine i", ["inline"]),
        ("dd sh", ["show"]),
    ],
)
def test_names_of_the_project(words: str, offer: list[str], here: Path) -> None:
    assert complete(words, here) == offer


def test_outputs_that_only_a_run_knows(mine: Path) -> None:
    (mine / "dd.toml").write_text((mine / "dd.toml").read_text().split("[outputs.journeys]")[0])
    assert complete("dd show ", mine) == ["journeys"]
    shutil.move(mine / "warehouse", mine / "elsewhere")
    assert complete("dd show ", mine) == []
    assert complete("dd show --warehouse elsewhere ", mine) == ["journeys"]
    assert complete("dd show ", mine, DDCORE_WAREHOUSE="elsewhere") == ["journeys"]


def test_the_project_that_is_named(here: Path, tmp_path: Path) -> None:
    assert complete(f"dd show --project {here} ", tmp_path) == ["journeys"]
    assert complete("dd show ", tmp_path, DDCORE_PROJECT=str(here)) == ["journeys"]
    (here / "deep").mkdir(exist_ok=True)
    assert complete("dd show ", here / "deep") == ["journeys"]


@pytest.mark.parametrize(
    "text",
    [None, "[inputs", "inputs = 3", "[inputs]\nlinks = 3\n[outputs]\nx = 3", "x = " + "[" * 3000, "x = " + "9" * 5000],
)
def test_silence_where_there_is_no_project_to_read(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "dd.toml").write_text(text)
    offers = (
        complete("dd ingest ", tmp_path) + complete("dd show ", tmp_path) + complete("dd diff x 1 --key ", tmp_path)
    )
    assert set(offers) <= {"links", "x"}


def test_completion_and_help_take_little_time(here: Path) -> None:
    slowness = max(1.0, _processor_time("import json, tomllib, typing") / 0.05)  # of this machine, just now
    before = _used()
    assert complete("dd show ", here) == ["journeys"]
    assert _used() - before < 0.3 * slowness
    for arguments in (["--help"], ["run", "--help"], ["--version"]):
        help_time = _processor_time("import sys; from ddcore.cli.main import main; main()", *arguments)
        assert help_time < 0.3 * slowness, arguments


def _processor_time(code: str, *arguments: str) -> float:
    """Seconds of processor time that a Python process takes for ``code``."""
    before = _used()
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, timeout=60)
    return _used() - before


def _used() -> float:
    """Seconds of processor time that finished child processes have taken so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
