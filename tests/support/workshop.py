"""Small projects in many states, and commands for them that tests disturb at the places of
``ddcore.io.storage.failpoint``.

Every command is run undisturbed once, which says the places it reaches and what all tables hold afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl
from deltalake import write_deltalake
from forks import Ended, Forks
from places import local

from ddcore.base.errors import StorageError
from ddcore.io.delta import tables
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger import records, recovery
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.publishing.commits import position
from ddcore.io.publishing.publication import Publication
from ddcore.io.storage import store
from ddcore.io.storage.address import Location
from ddcore.io.storage.warehouse import Warehouse

PROGRAM = """
import ddcore as dd


def program(roads, depots):
    def drive(reached):
        onward = reached.join(roads, on={"town": "src"}).select(town="dst", km="km + km_right")
        return onward.concat(start).group_by("town").agg(km=dd.min("km"))

    start = depots.select("town", km=0)
    return {
        "distances": start.iterate(drive),
        "degrees": roads.group_by("src").agg(n=dd.count()),
        "towns": roads.select(town="src").concat(roads.select(town="dst")).distinct(),
    }
"""
OTHER_PROGRAM = PROGRAM.replace("km=0", "km=1").replace('"degrees"', '"exits"')
PROJECT = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[inputs.roads]
schema = { src = "string", dst = "string", km = "int64" }
source = { path = ["roads.csv", "more.csv", "most.csv"] }
[inputs.depots]
schema = { town = "string" }
source = { path = "depots.csv" }
[outputs.towns]
table = true
"""
SOURCES = {
    "roads": "A,B,4,0,1 B,C,5,0,1 C,D,3,0,1 D,E,1,0,1 A,C,7,1,1 B,C,5,2,-1 C,D,3,2,-1",
    "more": "C,D,2,3,1 A,C,7,4,-1",
    "most": "E,A,1,5,1 A,B,4,6,-1 A,B,6,6,1",
    "last": "D,A,2,7,1",
    "fixed": "B,C,5,2,-1 C,D,2,3,1 A,D,9,3,1 A,C,7,4,-1",
    "late": "E,F,2,1,1",
}
SNAPSHOTS = {"monday": "A,B,4 B,C,5", "tuesday": "A,B,4 C,D,1 C,D,1"}
TIMES_PROJECT = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[time]
dims = ["day", "revision"]
[inputs.words]
schema = { word = "string", n = "int64" }
"""
TIMES_PROGRAM = """
import ddcore as dd


def program(words):
    def fewer(left):
        return left.where("n > 0").select("word", n="n - 1").concat(words).distinct()

    pairs = words.join(words.select("word", other="n"), on="word").select("word", total="n + other")
    return {"words": words.select("word").distinct(), "left": words.iterate(fewer), "pairs": pairs.distinct()}
"""
TIMES_SOURCE = "cat,2,0,3,1 cat,2,1,2,1 dog,1,0,4,1 cat,3,2,1,1 dog,1,3,4,-1 emu,2,1,4,1"


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
        return [(place, n) for place, times in self.places.items() for n in range(1, times + 1)]


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

    def write(self, place: Location, content: bytes) -> None:
        """Write a file of a warehouse, as no command does."""
        local(place).parent.mkdir(parents=True, exist_ok=True)
        local(place).write_bytes(content)

    def forget_holder(self, folder: Path) -> None:
        """Let the lock be free, as after a power cut."""
        os.truncate(folder / "warehouse" / ".lock", 0)

    @cache  # noqa: B019 - as long as the tests of this module
    def base(self, name: str) -> Path:
        """A project folder in a certain state."""
        folder = self.folder / name
        if name == "new":
            folder.mkdir()
            (folder / "program.py").write_text(PROGRAM)
            (folder / "dd.toml").write_text(PROJECT)
            for source, rows in SOURCES.items():
                (folder / f"{source}.csv").write_text("src,dst,km,version,diff\n" + rows.replace(" ", "\n") + "\n")
            for source, rows in SNAPSHOTS.items():
                (folder / f"{source}.csv").write_text("src,dst,km\n" + rows.replace(" ", "\n") + "\n")
            (folder / "depots.csv").write_text("town,version,diff\nA,0,1\n")
            _write_history(folder / "history.delta")
            (folder / "events.csv").write_text("op,src,dst,km\nu,A,B,6\nd,D,E,\nc,E,A,1\n")
        elif name == "times":
            folder.mkdir()
            (folder / "program.py").write_text(TIMES_PROGRAM)
            (folder / "dd.toml").write_text(TIMES_PROJECT)
            (folder / "words.csv").write_text("word,n,day,revision,diff\n" + TIMES_SOURCE.replace(" ", "\n") + "\n")
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
        places, later = Counter[str](), set[tuple[str, int]]()
        for place in (line.split()[1] for line in log.read_text().splitlines()):
            places[place] += 1
            if place in ("after-intent", "after-run", "after-published"):
                later.clear()
            elif places["after-run"]:
                later.add((place, places[place]))
        after = contents(self.project(project))
        ends = [(place, n) for place in ENDS for n in range(1, places[place] + 1)]
        between = tuple(self._after(base, arguments, *end) for end in (ends if len(ends) > 1 else []))
        return Scenario(base, tuple(arguments), dict(places), frozenset(later), before, after, between)

    def _after(self, base: Path, arguments: Sequence[str], place: str, n: int) -> dict[str, pl.DataFrame]:
        """The rows of all tables when a command has finished one of its parts."""
        project = self.copy(base)
        ended = self.command(project, *self.placed(project, arguments), DDCORE_FAILPOINT=f"{place}:{n}")
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

    def disturb(self, name: str, place: str, n: int, action: str) -> None:
        """Disturb a command at one place and run it again; check what is seen in between and afterwards."""
        scenario, where = self.scenario(name), f"{name}: {place}:{n}={action}"
        folder = self.copy(scenario.base)
        project, arguments = self.project(folder), self.placed(folder, scenario.arguments)
        left = self.temporary(folder)  # by the killed commands that made the scenario
        ended = self.command(folder, *arguments, DDCORE_FAILPOINT=f"{place}:{n}={action}")
        is_finished = action.startswith("full") and (place, n) in scenario.later  # what fails is only its compaction
        # A run of some outputs deletes the state that it wrote, as far as it can: retention removes the rest.
        is_passed_over = action == "full-once" and "--select" in arguments and place == "after-delete"
        codes = {0 if is_finished or is_passed_over else CODES[action]}
        if name in ON_SPARK and place in IN_TASKS:
            codes.add(1)  # it was a task that was killed
        assert ended.code in codes, (where, ended)
        if action != "kill":
            said = [line for line in ended.err if line.startswith(("error: ", "warning: "))]
            assert len(said) == 1 - is_passed_over and all(WORDS[action] in line for line in said), (where, ended)
            assert not any("Traceback" in line for line in ended.err), (where, ended)
        between = contents(project)
        whole = (scenario.before, scenario.after, *scenario.between)
        assert any(is_same(between, each) for each in whole), f"{where}: half of it is visible"
        is_known = is_same(between, scenario.after) and not is_same(scenario.before, scenario.after)
        again = self.command(folder, *arguments)
        assert again.code == (2 if is_known and "--undo" in arguments else 0), (where, again)
        notes = [line for line in again.err if "ended without releasing the lock" in line]
        is_said = ended.code == CODES["kill"] and place != "after-warehouse"
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


Build = Callable[[Workshop, Path], None]


def _ingested(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "ingest", "roads", "roads.csv")
    shop.done(folder, "ingest", "depots", "depots.csv")


def _folded(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "run")
    shop.done(folder, "ingest", "roads", "more.csv")


def _changed(_: Workshop, folder: Path) -> None:
    (folder / "program.py").write_text(OTHER_PROGRAM)


def _ahead(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "run", "--select", "t*", "--to-version", "3")


def _evolved(_: Workshop, folder: Path) -> None:
    """The schema has another name and a wider type for a column, and the program reads it so."""
    evolved = 'length = "float64" }\nrenamed = { length = "km" }\nwidened = { length = "int64" }'
    (folder / "dd.toml").write_text(PROJECT.replace('km = "int64" }', evolved))
    (folder / "program.py").write_text(PROGRAM.replace("km_right", "length").replace("km=0", "km=0.0"))
    (folder / "wider.csv").write_text("src,dst,length,version,diff\nC,D,2,5,-1\nD,A,2.5,5,1\n")


def _killed(place: str, *arguments: str) -> Build:
    def build(shop: Workshop, folder: Path) -> None:
        ended = shop.command(folder, *shop.placed(folder, arguments), DDCORE_FAILPOINT=place)
        assert ended.code == -signal.SIGKILL
        shop.forget_holder(folder)  # the note is on the next one killed

    return build


def _refreshed(shop: Workshop, folder: Path) -> None:
    """A refresh of another program was killed when it had replaced most tables of state; the program is put back."""
    _killed("after-table:7", "run", "--full-refresh")(shop, folder)
    (folder / "program.py").write_text(PROGRAM)


def _damaged(shop: Workshop, folder: Path) -> None:
    """A table whose log cannot be read."""
    warehouse = shop.warehouse(folder)
    table = min(place for name, place in warehouse.tables() if name.startswith("state/"))
    for commit in list(store.entries(table / "_delta_log")):
        shop.write(commit.address, b"garbage")


def _before_a_merge(shop: Workshop, folder: Path) -> None:
    """The next record is the thirty-second, and all files are old: those of the first fifteen were merged long ago."""
    ledger = Ledger.load(shop.warehouse(folder), Writer())
    newest = ledger.newest()
    assert newest is not None
    for number in range(ledger.next_run(), ledger.next_run() + 13):
        ledger.append(records.IntentRecord(number, "ab12", time_of(3), time_of(4), 1, "inline"))
        ledger.append(records.FailureRecord(number, "ab12", time_of(3), time_of(4), "inline", "none"))
    files = [*(folder / "warehouse" / "ledger").glob("entries-*.parquet")]
    assert len(files) == 31
    for file in files:
        os.utime(file, (time.time() - 7200,) * 2)


def _half_folded(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "run", "--to", "day=0,revision=4")
    shop.done(folder, "run", "--to", "day=1,revision=2")
    run = Ledger.load(shop.warehouse(folder)).current_run()
    assert run is not None
    rows = {name.rpartition("_")[2]: state.rows for name, state in run.tables.items() if state.rows}
    assert {"held", "pending"} <= rows.keys(), "updates and pending times are stored"


def _several_runs(shop: Workshop, folder: Path) -> None:
    """With files to merge, files that an earlier compaction replaced, and state of an earlier program."""
    (folder / "dd.toml").write_text(PROJECT + "[compaction]\nauto = false\n[retention]\nversions = 0\ndays = 0\n")
    shop.done(folder, "run")
    _changed(shop, folder)
    shop.done(folder, "run", "--full-refresh", "--to-version", "2")
    shop.done(folder, "run")
    shop.done(folder, "ingest", "roads", "most.csv")
    shop.done(folder, "run", "--to-version", "5")
    shop.done(folder, "run")


def _many_runs(shop: Workshop, folder: Path) -> None:
    """The next run gives many tables their sixteenth file, and merges them."""
    rows = "".join(f"A,{town},1,{version},1\n" for version, town in enumerate("LMNOPQRSTUVWXYZ", 2))
    (folder / "many.csv").write_text("src,dst,km,version,diff\n" + rows)
    (folder / "dd.toml").write_text(PROJECT + "[retention]\nversions = 2\ndays = 0\n")
    shop.done(folder, "ingest", "roads", "many.csv")
    for version in range(1, 16):  # version 1 adds no town
        shop.done(folder, "run", "--to-version", str(version))


def _compacted(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "compact")
    shop.done(folder, "ingest", "roads", "last.csv")
    shop.done(folder, "run")


def _restated(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "run")
    shop.done(folder, "ingest", "roads", "fixed.csv", "--restate", "2")


BASES: dict[str, tuple[str, Build]] = {
    "ingested": ("new", _ingested),
    "folded": ("ingested", _folded),
    "ahead": ("folded", _ahead),
    "changed": ("folded", _changed),
    "evolved": ("folded", _evolved),
    "half written": ("folded", _killed("after-file", "ingest", "roads", "most.csv")),
    "half ingested": ("folded", _killed("after-table", "ingest", "roads", "most.csv")),
    "half refreshed": ("changed", _refreshed),
    "half undone": ("folded", _killed("after-table", "ingest", "--undo", "3")),
    "damaged": ("folded", _damaged),
    "restated": ("folded", _restated),
    "half changed": ("folded", _killed("after-table:5", "run")),
    "changed while a run was unfinished": ("half changed", _changed),
    "unmerged": ("folded", _before_a_merge),
    "half folded": ("times", _half_folded),
    "several runs": ("folded", _several_runs),
    "compacted": ("several runs", _compacted),
    "many runs": ("ingested", _many_runs),
}


def _write_history(table: Path) -> None:
    """A Delta table with a change data feed: rows, of which some are taken away and come again."""
    for rows in ("A,X,4 X,Y,5", "A,X,4 Y,Z,1 Y,Z,1"):
        source = pl.DataFrame([row.split(",") for row in rows.split()], ["src", "dst", "km"], orient="row")
        arrow = source.with_columns(pl.col("km").cast(pl.Int64)).to_arrow()
        write_deltalake(str(table), arrow, mode="overwrite", configuration={"delta.enableChangeDataFeed": "true"})


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
