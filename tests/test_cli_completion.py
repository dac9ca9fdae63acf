"""What the shell's completion offers: names of the project at hand, quickly, and nothing where there is no project."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cli_main import HEAVY
from trams import Command

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
        [sys.executable, "-c", _CODE], cwd=cwd, env=environment, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0
    assert json.loads(done.stderr) == []
    return done.stdout.split()


@pytest.mark.sample(7)
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
        ("dd explain ", ["journeys"]),
        ("dd compact --since l", ["latest"]),
        ("dd report ", ["1"]),
        ("dd report 1 ", ["1"]),
        ("dd report 2", []),
        ("dd sh", ["show"]),
    ],
)
def test_names_of_the_project(words: str, offer: list[str], here: Path) -> None:
    assert complete(words, here) == offer


@pytest.mark.sample(1, of="runs")
def test_runs_are_offered_newest_first_and_only_finished_ones(fresh: Path, dd: Command) -> None:
    assert complete("dd report ", fresh) == []
    for name in ("links", "starts"):
        assert dd("ingest", name, f"data/{name}.csv", "-q")[0] == 0
    for version in range(1, 4):
        assert dd("run", "--to-version", str(version), "-q")[0] == 0
    assert complete("dd report ", fresh) == ["3", "2", "1"]
    assert complete("dd report 2 ", fresh) == ["3", "2"]
    program = (fresh / "program.py").read_text()
    (fresh / "program.py").write_text(program.replace("(ride)", "(ride, max_rounds=1)"))  # run 4 fails
    assert dd("run", "--full-refresh", "-q")[0] == 1
    (fresh / "program.py").write_text(program)
    for version in range(4, 6):
        assert dd("run", "--to-version", str(version), "-q")[0] == 0
    runs = complete("dd report ", fresh)
    assert runs == ["6", "5", "3", "2", "1"]
    for run in runs:
        assert dd("report", run, "-o", "page.html")[0] == 0
    assert dd("report", "4", "-o", "page.html")[0] == 2


@pytest.mark.sample(1, of="runs")
def test_runs_of_a_ledger_whose_files_are_merged(copied: Path, dd: Command) -> None:
    """Sixteen records become one file, with the runs of all of them; the check of the ledger agrees."""
    for version in range(6, 14):
        file = copied / f"{version}.csv"
        file.write_text(f"version,diff,src,dst,minutes\n{version},1,Zoo,Stop {version},1\n")
        assert dd("ingest", "links", str(file), "-q")[0] == 0
        assert dd("run", "-q")[0] == 0
    for old in (copied / "warehouse" / "ledger").glob("entries-0000000[0-9]-0000000[0-9]-*.parquet"):
        old.unlink()  # merged before: kept for readers only
    assert complete("dd report ", copied) == [str(run) for run in range(9, 0, -1)]
    assert dd("verify", "-q")[0] == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_script_of_a_real_shell_offers_names(shell: str, here: Path) -> None:
    """The script that --show-completion prints is sourced by the shell, and its function is called."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    scripts = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DDCORE_")}
    environment |= {"PATH": f"{scripts}:{os.environ['PATH']}", "HOME": str(here)}

    def said(*command: str) -> str:
        variables = environment | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
        done = subprocess.run(
            command, cwd=here, env=variables, capture_output=True, text=True, check=False, timeout=600
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    script = said(str(scripts / "ddcore"), "--show-completion", shell)
    for words, offer in {
        ("ingest", ""): {"links", "starts"},
        ("show", "j"): {"journeys"},
        ("run", "--engine", ""): {"inline", "spark"},
        ("diff", "journeys", "la"): {"latest"},
        ("report", ""): {"1"},
    }.items():
        line = ["ddcore", *words]
        offered = said(program, *_PLAIN[shell], f"{_BEFORE[shell]}{script}\n{_CALLS[shell](line)}")
        assert set(re.findall(r"[\w-]+", offered)) == offer, words


_PLAIN = {"bash": ("--norc", "-c"), "fish": ("--no-config", "-c"), "zsh": ("-f", "-c")}
_BEFORE = {"bash": "", "fish": "", "zsh": "compdef() { }\n"}  # what the interactive shell has
_CALLS: dict[str, Callable[[list[str]], str]] = {
    "bash": lambda line: (
        f"COMP_WORDS=({shlex.join(line)}); COMP_CWORD={len(line) - 1}; _ddcore_completion ddcore; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    ),
    "fish": lambda line: f"complete --do-complete {shlex.quote(' '.join(line))}",
    # _arguments is of the interactive shell, too: this one prints what it would offer
    "zsh": lambda line: (
        f"words=({shlex.join(line)}); CURRENT={len(line)}; "
        """_arguments() { print -r -- "${1#'*: :'}" }; _ddcore_completion"""
    ),
}


@pytest.mark.sample(1, of="runs")
def test_outputs_that_only_a_run_knows(copied: Path) -> None:
    (copied / "dd.toml").write_text((copied / "dd.toml").read_text().split("[outputs.journeys]")[0])
    assert complete("dd show ", copied) == ["journeys"]
    shutil.move(copied / "warehouse", copied / "elsewhere")
    assert complete("dd show ", copied) == []
    assert complete("dd show --warehouse elsewhere ", copied) == ["journeys"]
    assert complete("dd show ", copied, DDCORE_WAREHOUSE="elsewhere") == ["journeys"]


def test_the_project_that_is_named(here: Path, tmp_path: Path) -> None:
    assert complete(f"dd show --project {here} ", tmp_path) == ["journeys"]
    assert complete("dd show ", tmp_path, DDCORE_PROJECT=str(here)) == ["journeys"]
    (here / "deep").mkdir(exist_ok=True)
    assert complete("dd show ", here / "deep") == ["journeys"]


@pytest.mark.sample(2)
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


@pytest.mark.usefixtures("unmeasured")
def test_completion_and_help_load_few_modules(here: Path) -> None:
    """Their time is that of their imports; what no module of the standard library loads is a handful."""
    completion = {"_DD_COMPLETE": "complete_bash", "COMP_WORDS": "dd show ", "COMP_CWORD": "2"}
    assert len(_modules(here, **completion)) < 400
    for arguments in (["--help"], ["run", "--help"], ["--version"]):
        assert len(_modules(here, *arguments)) < 400, arguments


def _modules(cwd: Path, *arguments: str, **environment: str) -> list[str]:
    """The modules that a command has loaded at its end, those of a bare interpreter (some 70) among them."""
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); sys.argv[0] = 'dd'; "
        "from ddcore.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd, env={**os.environ, **environment}, check=True, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    return done.stderr.splitlines()[-1].split()
