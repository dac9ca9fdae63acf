"""A command that is killed, stopped or runs out of disk at any step: nothing is lost, and the same command finishes it.

Every command is run undisturbed once, which says the places it reaches. Then, for each of them, it is disturbed there,
in a real process over a copy of the same warehouse, and run again. All tables must hold the rows that they hold after
the undisturbed command. ``make test`` draws some places, ``make test-all`` goes through all.
"""

from __future__ import annotations

import ast
import random
import re
import time
import typing
from pathlib import Path

import pytest
from forks import forks
from workshop import CODES, COMMANDS, ON_SPARK, Workshop

from ddcore.base.errors import UsageError
from ddcore.io.ledger import records
from ddcore.io.storage import failpoint as failpoints
from ddcore.io.storage.failpoint import PLACES, failpoint

TOP = Path(__file__).resolve().parent.parent
SAMPLE = 3  # places for `make test`
# --- the table of places ----------------------------------------------------------------------------------------------


def called() -> set[str]:
    """Every place that the code calls. ``after-{kind}`` stands for the kinds of records that the ledger can have."""
    kinds = {get_arg.__name__.removesuffix("Record").lower() for get_arg in typing.get_args(records.Record)}
    found: set[str] = set()
    for file in (file for folder in ("io", "jobs", "cli") for file in (TOP / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "failpoint":
                (argument,) = node.args
                if isinstance(argument, ast.JoinedStr):
                    assert ast.unparse(argument) == "f'after-{kind}'", f"{file}: {ast.unparse(argument)}"
                    found |= {f"after-{kind}" for kind in kinds}
                else:
                    found |= {str(path.value) for path in ast.walk(argument) if isinstance(path, ast.Constant)}
    return found


def test_every_place_that_is_called_is_in_the_table_and_the_other_way_round() -> None:
    assert called() == set(PLACES)


def test_the_documented_places_are_those_of_the_table() -> None:
    page = (TOP / "docs" / "storage.md").read_text("utf-8")
    rows = re.findall(r"^\| `(after-[a-z-]+)` \| (.+) \|$", page, flags=re.MULTILINE)
    assert dict(rows) == PLACES
    assert len(rows) == len(PLACES)


def test_a_place_that_is_not_in_the_table_is_an_error() -> None:
    with pytest.raises(AssertionError, match="after-nothing is not in the table"):
        failpoint("after-nothing")


@pytest.mark.parametrize("setting", ["after-nothing", "after-run:0", "after-run:x", "after-run=stop", ":"])
def test_a_setting_that_says_nothing_is_an_error(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, setting)
    with pytest.raises(UsageError, match="no such place or action"):
        failpoint("after-file")


def test_a_command_that_ends_before_its_number_is_read_is_seen_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of the server's lines are in the pipe then. It hung."""
    with forks(tmp_path) as processes:
        answer = processes._answer

        def late() -> int:
            time.sleep(1)
            return answer()

        monkeypatch.setattr(processes, "_answer", late)
        processes.start("--version")
        ended = processes.wait(600)
        assert ended is not None and ended.code == 0


# --- the commands -----------------------------------------------------------------------------------------------------


def test_a_sample_of_all_places(workshop: Workshop, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(SAMPLE):
        name, action = rng.choice(list(COMMANDS)), rng.choice(list(CODES))
        point, n = rng.choice(workshop.scenario(name).points)
        print(f"{name}: {point}:{n}={action}")
        workshop.disturb(name, point, n, action)


@pytest.mark.long
@pytest.mark.parametrize("action", CODES)
@pytest.mark.parametrize("name", COMMANDS)
def test_T23_every_place_of_a_command(name: str, action: str, workshop: Workshop) -> None:
    for point, n in workshop.scenario(name).points:
        workshop.disturb(name, point, n, action)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_T23_every_place_of_a_command_on_spark(name: str, workshop: Workshop) -> None:
    """The first time that a process of it gets there; what comes later is the same code as inline."""
    for point in workshop.scenario(name).places:
        workshop.disturb(name, point, 1, "kill")


@pytest.mark.long
def test_the_commands_reach_every_place(workshop: Workshop) -> None:
    """So no place of the table is left out of the enumeration, but for those of commands that have tests elsewhere."""
    reached = {point for name in COMMANDS for point in workshop.scenario(name).places}
    elsewhere = {"after-trim", "after-properties", "after-shared", "after-branch", "after-unbranch", "after-statistics"}
    elsewhere |= {"after-reader", "after-hold"}
    assert set(PLACES) - reached == elsewhere
