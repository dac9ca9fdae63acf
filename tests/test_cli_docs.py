"""The pages about the command line say what the command line does."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from ddcore.cli.main import run_command
from ddcore.cli.reference import FILE, reference
from ddcore.cli.samples import SAMPLES
from ddcore.io.project import project
from ddcore.io.project.finding import find_project

DOCS = Path(__file__).resolve().parent.parent / "docs"
ROOMS = [DOCS.parent / name for name in ("ddcore", "io", "jobs", "cli")]


def test_reference_is_what_the_commands_say() -> None:
    assert FILE.read_text(encoding="utf-8") == reference(), "python -m ddcore.cli.reference"


def test_reference_is_what_a_shell_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The page takes each command's help by itself, and the command line has settings of its own."""
    sections = re.split(r"^## ", reference(), flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, page = section.partition("\n")
        assert run_command([*title.split()[1:], "--help"], "dd") == 0
        assert "".join(capsys.readouterr().out.split()) == "".join(page.split())
    assert "Default: 20 on a terminal" in next(item for item in sections if item.startswith("dd log"))


def test_every_command_and_option_has_help() -> None:
    commands = re.split(r"^## ", reference(), flags=re.MULTILINE)[1:]
    assert len(commands) == 17
    for command in commands:
        for line, below in pairwise([*command.splitlines(), ""]):
            option = re.fullmatch(r" +(-\S+(, --\S+)?)( [A-Z=|a-z]+)? *", line)
            assert option is None or below.startswith(" " * 30), f"no help: {line}"  # of a long one it is below


def test_environment_variables_are_documented() -> None:
    page = (DOCS / "environment.md").read_text()
    used = {
        name
        for room in ROOMS
        for file in room.rglob("*.py")
        for name in re.findall(r"\bDDCORE_[A-Z]+\b", file.read_text())
    }
    documented = set(re.findall(r"\bDDCORE_[A-Z]+\b", page))
    assert used - documented == set()
    assert documented - used == set()


def test_exit_codes_are_documented() -> None:
    from ddcore.base import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DdError)]
    codes = {str(kind.exit_code) for kind in kinds} | {"0", "130", "143", "N"}
    documented = set(re.findall(r"^\| (\w+) \|", (DOCS / "exit-codes.md").read_text(), flags=re.MULTILINE))
    assert documented - {"code"} == codes


def test_the_page_on_schedulers_shows_the_files_of_the_examples() -> None:
    """`make test-airflow` runs them."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "schedulers.md").read_text(), flags=re.DOTALL)
    files = sorted((DOCS.parent / "examples" / "airflow").glob("*.py"))
    assert blocks == [file.read_text() for file in files]


def test_what_init_writes_names_settings_that_exist(tmp_path: Path) -> None:
    """Its comments hold settings too: uncommented, the file is still a project's."""
    text = (
        SAMPLES["trams"]
        .files["dd.toml"]
        .replace("# [spark]", "[spark]")
        .replace("# master", "master")
        .replace("# conf", "conf")
    )
    assert "spark" in tomllib.loads(text)
    (tmp_path / project.FILE_NAME).write_text(text)
    assert find_project(tmp_path).spark_conf == {"spark.driver.memory": "4g"}
