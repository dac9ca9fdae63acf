"""Small projects in many states, and commands for them that tests disturb at the places of
``ddcore.io.storage.failpoint``.

Every command is run undisturbed once, which says the places it reaches and what all tables hold afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl
from bases import BASES, write_new, write_times
from forks import Ended, Forks
from places import local

from ddcore.base.errors import StorageError
from ddcore.io.delta import tables
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger import recovery
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.publishing.commits import position
from ddcore.io.publishing.publication import Publication
from ddcore.io.storage import store
from ddcore.io.storage.address import Location
from ddcore.io.storage.warehouse import Warehouse


@dataclass(frozen=True)
class Scenario:
    """A project in the folder ``base`` and a command for it; ``places`` are those that the command reaches, and how
    often; ``later`` are the points after the record of its last run, where it compacts. ``before`` and ``after`` are
    the rows of all tables without and with the command; ``between`` those after each of its parts, where it has
    several: runs, a compaction, or an ingest that it finishes first.
    """

    base: Path
    arguments: tuple[str, ...]
    places: dict[str, int]
    later: frozenset[tuple[str, int]]
    before: dict[str, pl.DataFrame]
    after: dict[str, pl.DataFrame]
    between: tuple[dict[str, pl.DataFrame], ...]

    @property
    def points(self) -> list[tuple[str, int]]:
        """Each place, each time that it is reached."""
        return [(point, n) for point, times in self.places.items() for n in range(1, times + 1)]


def contents(project: Project) -> dict[str, pl.DataFrame]:
    """The rows, unconsolidated and sorted, of every table that the ledger names: inputs, outputs and state."""
    warehouse = project.tables
    ledger = Ledger.load(warehouse)
    states = {f"inputs/{name}": ledger.input_table(name) for name in project.inputs}
    states |= ledger.tables()
    rows = {}
    for name, state in states.items():
        try:
            files = tables.live_files(warehouse.table(name), state)
        except StorageError:
            rows[name] = pl.DataFrame({"unreadable": []})
            continue
        # Their bytes, not their paths: of a file that is not cached Polars 2.1 refuses columns that share bytes.
        contents = (store.read(warehouse.table(name) / file.path) for file in files)
        frames = [pl.read_parquet(content, hive_partitioning=False) for content in contents]
        if frames:
            rows[name] = pl.concat(frames, how="diagonal").sort(frames[0].columns)
    return rows


def check_published(project: Project, *, is_current: bool) -> None:
    """Every published table holds what its output's log holds at the table's time; that of the last run."""
    ledger = Ledger.load(Warehouse(project.warehouse))
    run = ledger.current_run()
    for name, settings in project.outputs.items():
        if settings.table is None or run is None:
            continue
        publication = Publication(project, ledger, name, settings.table)
        there = position(publication.folder)
        if is_current:
            due = ledger.run_of(name)  # also one of some outputs
            assert there is not None and there.run == due, (there, due)
        if there is not None:
            assert publication.differences().is_empty()


def is_same(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> bool:
    return one.keys() == other.keys() and all(frame.equals(other[name]) for name, frame in one.items())


def assert_same(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame], where: object) -> None:
    assert one.keys() == other.keys(), where
    for name, frame in one.items():
        assert frame.equals(other[name]), f"{where}: {name} has the rows {frame}, not {other[name]}"


class Workshop:
    """Builds the scenarios, each when it is first needed, and runs their commands in forked processes."""

    def __init__(self, folder: Path, processes: Forks) -> None:
        self.folder, self.processes = folder, processes
        self.count = 0

    def command(self, project: Path, *arguments: str, **environment: str) -> Ended:
        return self.processes.run(*arguments, "--project", project, **self.environment(project), **environment)

    def environment(self, folder: Path) -> dict[str, str]:
        """What commands on the project in a folder have in their environment."""
        return {}

    def project(self, folder: Path) -> Project:
        return find_project(folder, self.environment(folder))

    def warehouse(self, folder: Path) -> Warehouse:
        return Warehouse(self.project(folder).warehouse)

    def copy(self, base: Path) -> Path:
        self.count += 1
        folder = self.folder / f"copy-{self.count}"
        self.duplicate(base, folder)
        return folder

    def duplicate(self, base: Path, folder: Path) -> None:
        shutil.copytree(base, folder)

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder)

    def write(self, location: Location, content: bytes) -> None:
        """Write a file of a warehouse, as no command does."""
        local(location).parent.mkdir(parents=True, exist_ok=True)
        local(location).write_bytes(content)

    def forget_holder(self, folder: Path) -> None:
        """Let the lock be free, as after a power cut."""
        os.truncate(folder / "warehouse" / ".lock", 0)

    @cache  # noqa: B019 - as long as the tests of this module
    def base(self, name: str) -> Path:
        """A project folder in a certain state."""
        folder = self.folder / name
        if name == "new":
            write_new(folder)
        elif name == "times":
            write_times(folder)
            self.done(folder, "ingest", "words", "words.csv")
        else:
            self.duplicate(self.base(BASES[name][0]), folder)
            BASES[name][1](self, folder)
        return folder

    def done(self, project: Path, *arguments: str) -> None:
        arguments = tuple(
            str(project / argument) if argument.endswith((".csv", ".delta")) else argument for argument in arguments
        )
        ended = self.command(project, *arguments, "-q")
        assert ended.code == 0, ended

    @cache  # noqa: B019
    def scenario(self, name: str) -> Scenario:
        """The command of this name, undisturbed."""
        start, *arguments = (COMMANDS | ON_SPARK)[name]
        base = self.base(start)
        project, log = self.copy(base), self.folder / f"{name}.log"
        before = contents(self.project(project))
        recovery.finish(Ledger.load(self.warehouse(self.copy(base)), Writer()))
        ended = self.command(project, *self.placed(project, arguments), DDCORE_FAILPOINT_LOG=str(log))
        assert ended.code == 0, ended
        points, later = Counter[str](), set[tuple[str, int]]()
        for point in (line.split()[1] for line in log.read_text().splitlines()):
            points[point] += 1
            if point in ("after-intent", "after-run", "after-published"):
                later.clear()
            elif points["after-run"]:
                later.add((point, points[point]))
        after = contents(self.project(project))
        ends = [(point, n) for point in ENDS for n in range(1, points[point] + 1)]
        between = tuple(self._after(base, arguments, *end) for end in (ends if len(ends) > 1 else []))
        return Scenario(base, tuple(arguments), dict(points), frozenset(later), before, after, between)

    def _after(self, base: Path, arguments: Sequence[str], point: str, n: int) -> dict[str, pl.DataFrame]:
        """The rows of all tables when a command has finished one of its parts."""
        project = self.copy(base)
        ended = self.command(project, *self.placed(project, arguments), DDCORE_FAILPOINT=f"{point}:{n}")
        assert ended.code == CODES["kill"], ended
        return contents(self.project(project))

    @staticmethod
    def placed(project: Path, arguments: Sequence[str]) -> list[str]:
        return [
            str(project / argument) if argument.endswith((".csv", ".delta")) else argument for argument in arguments
        ]

    def temporary(self, folder: Path) -> set[str]:
        """The temporary files in a project's warehouse."""
        files = store.entries(self.warehouse(folder).root)
        return {str(file.address) for file in files if file.address.name.endswith(".tmp")}

    def disturb(self, name: str, point: str, n: int, action: str) -> None:
        """Disturb a command at one place and run it again; check what is seen in between and afterwards."""
        scenario, where = self.scenario(name), f"{name}: {point}:{n}={action}"
        folder = self.copy(scenario.base)
        project, arguments = self.project(folder), self.placed(folder, scenario.arguments)
        left = self.temporary(folder)  # by the killed commands that made the scenario
        ended = self.command(folder, *arguments, DDCORE_FAILPOINT=f"{point}:{n}={action}")
        is_finished = action.startswith("full") and (point, n) in scenario.later  # what fails is only its compaction
        # A run of some outputs deletes the state that it wrote, as far as it can: retention removes the rest.
        is_passed_over = action == "full-once" and "--select" in arguments and point == "after-delete"
        codes = {0 if is_finished or is_passed_over else CODES[action]}
        if name in ON_SPARK and point in IN_TASKS:
            codes.add(1)  # it was a task that was killed
        assert ended.code in codes, (where, ended)
        if action != "kill":
            said = [line for line in ended.err if line.startswith(("error: ", "warning: "))]
            assert len(said) == 1 - is_passed_over and all(WORDS[action] in line for line in said), (where, ended)
            assert not any("Traceback" in line for line in ended.err), (where, ended)
        between = contents(project)
        whole = (scenario.before, scenario.after, *scenario.between)
        assert any(is_same(between, item) for item in whole), f"{where}: half of it is visible"
        is_known = is_same(between, scenario.after) and not is_same(scenario.before, scenario.after)
        again = self.command(folder, *arguments)
        assert again.code == (2 if is_known and "--undo" in arguments else 0), (where, again)
        notes = [line for line in again.err if "ended without releasing the lock" in line]
        is_said = ended.code == CODES["kill"] and point != "after-warehouse"
        assert len(notes) == is_said, (where, again)
        assert_same(contents(project), scenario.after, where)
        check_published(project, is_current=arguments[0] in ("run", "sync"))
        warehouse = self.warehouse(folder)
        assert Ledger.load(warehouse).open_intent() is None, where
        assert self.temporary(folder) <= left or action == "kill", where
        self.remove(folder)


ENDS = ("after-run", "after-ingest", "after-undo", "after-compact")  # readers see more after these
CODES = {"kill": -signal.SIGKILL, "term": 143, "int": 130, "full": 1, "full-once": 1}
WORDS = {"term": "terminated", "int": "interrupted", "full": "No space left", "full-once": "No space left"}


COMMANDS = {  # the project's state, and the command
    "first ingest": ("new", "ingest", "roads", "roads.csv"),
    "later ingest": ("folded", "ingest", "roads", "most.csv"),
    "ingest after one killed at its file": ("half written", "ingest", "roads", "last.csv"),
    "ingest after one killed at its table": ("half ingested", "ingest", "roads", "last.csv"),
    "ingest after an undo killed at its table": ("half undone", "ingest", "roads", "most.csv"),
    "run after an ingest killed at its table": ("half ingested", "run"),
    "events": ("folded", "ingest", "roads", "events.csv", "--op", "op", "--key", "src,dst"),
    "events that replace a history": (
        "folded",
        "ingest",
        "roads",
        "events.csv",
        "--op",
        "op",
        "--key",
        "src,dst",
        "--restate",
        "2",
    ),
    "snapshots": ("folded", "ingest", "roads", "monday.csv", "tuesday.csv", "--snapshot"),
    "change data feed": ("folded", "ingest", "roads", "history.delta", "--feed", "--version", "next"),
    "appended rows of a table": ("folded", "ingest", "roads", "history.delta", "--append"),
    "snapshots that replace a history": (
        "folded",
        "ingest",
        "roads",
        "monday.csv",
        "tuesday.csv",
        "--snapshot",
        "--restate",
        "2",
    ),
    "ingest after columns evolved": ("evolved", "ingest", "roads", "wider.csv"),
    "run after columns evolved": ("evolved", "run"),
    "sync after columns evolved": ("evolved", "sync"),
    "undo": ("folded", "ingest", "--undo", "3"),
    "first run": ("ingested", "run"),
    "later run": ("folded", "run"),
    "run of some outputs": ("folded", "run", "--select", "t*"),
    "run of some outputs again": ("ahead", "run", "--select", "degrees"),
    "run of all outputs after one of some": ("ahead", "run"),
    "run from an earlier version": ("folded", "run", "--from-version", "1"),
    "run that appends corrections": ("folded", "run", "--from-version", "1", "--corrections", "append"),
    "run of a changed program": ("changed", "run"),
    "full refresh of a changed program": ("changed", "run", "--full-refresh"),
    "full refresh of a damaged table": ("damaged", "run", "--full-refresh"),
    "run after a refresh that was given up": ("half refreshed", "run"),
    "run that merges the ledger": ("unmerged", "run"),
    "run that compacts": ("many runs", "run"),
    "run to a border": ("times", "run", "--to", "day=1,revision=2"),
    "run from a border": ("half folded", "run"),
    "run of a changed program after one that committed": ("changed while a run was unfinished", "run"),
    "restatement": ("folded", "ingest", "roads", "fixed.csv", "--restate", "2"),
    "restatement by late rows": ("folded", "ingest", "roads", "late.csv", "--late", "restate"),
    "undo of a restatement": ("restated", "ingest", "--undo", "4"),
    "run after a restatement": ("restated", "run"),
    "run that appends corrections of a restatement": ("restated", "run", "--corrections", "append"),
    "full refresh that appends": ("restated", "run", "--full-refresh", "--corrections", "append"),
    "first sync": ("new", "sync"),
    "later sync": ("folded", "sync"),
    "compaction": ("several runs", "compact"),
    "compaction after an ingest killed at its table": ("half ingested", "compact"),
    "compaction after another": ("compacted", "compact"),
    "compaction to a version": ("compacted", "compact", "--since", "6"),
}
ON_SPARK = {
    "first ingest on Spark": ("new", "ingest", "roads", "roads.csv", "--engine", "spark"),
    "snapshots on Spark": ("folded", "ingest", "roads", "monday.csv", "tuesday.csv", "--snapshot", "--engine", "spark"),
    "first run on Spark": ("ingested", "run", "--engine", "spark"),
    "run on two workers": ("folded", "run", "--engine", "spark", "--parallelism", "2"),
}
IN_TASKS = ("after-write", "after-file")  # places that tasks of Spark reach as well
