"""Restatement: the history of an input is replaced from a version on, or rows come late at their own versions."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
from deltalake import DeltaTable
from ingesting import Desk, settings_of
from trams import Command
from warehouses import logs_of

from ddcore import reference
from ddcore.base.errors import DataError, DdError, LateUpdate, StorageError, UnknownRetraction, UsageError
from ddcore.base.lattice import frontier, le
from ddcore.base.schema import parse_schema
from ddcore.base.tuning import Tuning
from ddcore.cli.main import run_command
from ddcore.io.delta import commits, new_files, tables
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IntentRecord, RunRecord
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.program import load_program
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.ingest import IngestReport, ingest
from ddcore.jobs.replay import run
from ddcore.jobs.undo import undo
from ddcore.planning.planner import build

HISTORY = [(1, 1, 0, 1), (2, 2, 2, 1), (1, 1, 3, -1), (3, 3, 4, 1), (4, 4, 6, 1)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.csv", *HISTORY))
    return desk


def refused(desk: Desk, kind: type[DdError], *sources: str, **asked: Any) -> DdError:
    """The error of an ingest, which has left everything as it was."""
    before = desk.updates(), len(desk.records()), desk.ledger.restated(), desk.ledger.input_table("edges")
    with pytest.raises(kind) as caught:
        desk.ingest(*sources, **asked)
    assert (desk.updates(), len(desk.records()), desk.ledger.restated(), desk.ledger.input_table("edges")) == before
    assert desk.stray_files() == []
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


# --- replacing history ------------------------------------------------------------------------------------------------


def test_the_history_from_a_version_on_is_replaced(desk: Desk) -> None:
    report = desk.ingest(desk.source("b.csv", (2, 2, 3, -1), (5, 5, 5, 1)), restate=3)
    assert desk.updates() == [(1, 1, 0, 1), (2, 2, 2, 1), (2, 2, 3, -1), (5, 5, 5, 1)]
    assert (report.ingest, report.replaces, report.removed, report.rows, report.restates) == (2, time_of(3), 3, 2, ())
    ledger = desk.ledger
    assert (ledger.first_ingested(), ledger.latest_ingested(), ledger.restated()) == (time_of(0), time_of(5), ())
    assert {time: sides for item in ledger.ingests() for time, sides in item.counts.items()} == {
        time_of(0): (1, 0), time_of(2): (1, 0), time_of(3): (0, 1), time_of(5): (1, 0),
    }  # fmt: skip
    others = DeltaTable(str(desk.log.folder)).to_pyarrow_table()
    assert others.num_rows == 4, "one commit: other readers see the same"


def test_only_files_across_the_version_are_rewritten(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (7, 7, 1, 1)))
    desk.ingest(desk.source("c.csv", (8, 8, 7, 1)))
    before = desk.log.version()
    desk.ingest(desk.source("d.csv", (9, 9, 5, 1)), restate=5)
    assert desk.updates() == [(1, 1, 0, 1), (7, 7, 1, 1), (2, 2, 2, 1), (1, 1, 3, -1), (3, 3, 4, 1), (9, 9, 5, 1)]
    assert desk.log.version() == before + 1
    names = [file.path[:22] for file in desk.log.files(desk.ledger.input_table("edges"))]
    assert names == ["ingest-00000002-000-00", "ingest-00000004-000-00", "ingest-00000004-rest-0"]


def test_the_least_folded_version_that_changed_is_named(desk: Desk) -> None:
    desk.fold(4)
    corrected = [(1, 1, 0, 1), (2, 2, 2, 1), (1, 1, 3, -1), (3, 9, 4, 1), (4, 4, 6, 1)]
    report = desk.ingest(desk.source("b.csv", *corrected), restate="first")
    assert (report.replaces, report.removed, report.restates) == (time_of(0), 5, ((4,),))
    assert desk.ledger.restated() == ((4,),)
    assert desk.updates() == corrected


def test_nothing_closed_changes_where_only_open_versions_differ(desk: Desk) -> None:
    desk.fold(4)
    report = desk.ingest(desk.source("b.csv", (3, 3, 4, 1), (4, 5, 6, 1)), restate=4)
    assert report.restates == () and desk.ledger.restated() == ()
    assert desk.updates()[-2:] == [(3, 3, 4, 1), (4, 5, 6, 1)]


def test_the_same_correction_twice_is_nothing_new(desk: Desk) -> None:
    desk.fold(6)
    corrected = desk.source("b.csv", (3, 9, 4, 1), (4, 4, 6, 1))
    assert desk.ingest(corrected, restate=4).restates == ((4,),)
    state = desk.ledger.input_table("edges")
    for again in ({"restate": 4}, {"restate": "first"}, {}):
        report = desk.ingest(corrected, **again)
        assert report.nothing_new and report.restates == ()
    assert desk.ledger.input_table("edges") == state and desk.stray_files() == []
    assert desk.ingest(desk.source("c.csv", *desk.updates()), restate="first").nothing_new


def test_a_source_whose_rows_were_replaced_does_not_bring_them_back(desk: Desk) -> None:
    """A scheduler ingests the same folder every night."""
    desk.ingest(desk.source("b.csv", (3, 9, 4, 1)), restate=4)
    report = desk.ingest(str(desk.folder / "a.csv"))
    assert report.nothing_new and "ingest 2 has replaced rows of it since" in report.notes[0]
    grown = desk.source("a.csv", *HISTORY, (8, 8, 8, 1))
    report = desk.ingest(grown)
    assert (report.rows, report.first) == (6, time_of(8)) and "ingest 2 has replaced rows of it since" in report.notes[
        -1
    ]
    assert desk.updates()[-2:] == [(3, 9, 4, 1), (8, 8, 8, 1)]


def test_a_source_may_grow_after_it_restated(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (3, 9, 4, 1)), restate=4)
    report = desk.ingest(desk.source("b.csv", (3, 9, 4, 1), (8, 8, 8, 1)))
    assert "taken in after version 4" in report.notes[0]
    assert desk.updates()[-2:] == [(3, 9, 4, 1), (8, 8, 8, 1)]


def test_counts_are_checked_at_every_version(desk: Desk) -> None:
    error = refused(desk, UnknownRetraction, desk.source("b.csv", (3, 3, 5, -1)), restate=4)
    assert "retracts src=3, dst=3 at version 5" in error.message
    desk.ingest(desk.source("c.csv", (2, 2, 5, -1)), restate=4)
    error = refused(desk, UnknownRetraction, desk.source("d.csv", (2, 2, 3, -2)), restate=3)
    assert "its count would be -1" in error.message
    refused(desk, DataError, desk.source("e.csv", (2, 2, 3, 2**62), (2, 2, 4, 2**62)), restate=3)


def test_what_cannot_be_restated_is_refused(desk: Desk, tmp_path: Path) -> None:
    source = desk.source("b.csv", (5, 5, 3, 1), (5, 5, 9, 1))
    assert "has rows at version 3, but --restate 4 replaces" in refused(desk, DataError, source, restate=4).message
    assert "--restate 3" in refused(desk, DataError, source, restate=4).hint
    late = desk.source("late.csv", (5, 5, 9, 1))
    error = refused(desk, UsageError, late, restate=8)
    assert "the input edges has no rows from there on; it has rows up to version 6" in error.message
    assert "restatement takes its rows in" in refused(desk, UsageError, source, restate=3, late="move").message
    assert desk.ingest(desk.source("zero.csv", (5, 5, 3, 0)), restate=3).nothing_new
    (tmp_path / "empty").mkdir()
    empty = Desk(tmp_path / "empty")
    with pytest.raises(UsageError, match="the input edges holds no rows"):
        empty.ingest(empty.source("a.csv", (1, 1, 0, 1)), restate=0)
    assert empty.ingest(str(empty.folder / "a.csv")).ingest == 1


@pytest.mark.sample(4, of="undone")
def test_after_history_was_given_up_only_all_of_it_or_later_versions_are_replaced(copied: Path, dd: Command) -> None:
    dd("compact", "--since", "4")
    Path("later.csv").write_text("version,diff,src,dst,minutes\n4,-1,Bridge,Harbour,6\n5,1,Market,Harbour,7\n")
    for start in ("3", "4"):  # the rows of versions 1 to 3 are at version 4 now, and would go
        code, _, said = dd("ingest", "links", "later.csv", "--restate", start)
        assert code == 2 and "rows of earlier versions lie at version 4" in said[0] and "from version 1 on" in said[1]
    whole = Path("data/links.csv").read_text()
    Path("whole.csv").write_text(whole.replace("1,1,Central,Park,5", "1,1,Central,Park,4"))
    assert dd("ingest", "links", "whole.csv", "--restate", "first")[0] == 0
    assert dd("run")[0] == 0 and dd("verify", "--at", "4..5")[0] == 0
    Path("last.csv").write_text("version,diff,src,dst,minutes\n5,1,Market,Harbour,7\n")
    assert dd("ingest", "links", "last.csv", "--restate", "5")[0] == 0
    assert dd("run")[0] == 0
    _, shown, _ = dd("show", "journeys", "--json")
    rows = [json.loads(line)["row"] for line in shown if '"row"' in line]
    totals = {row["stop"]: row["total"] for row in rows}
    assert (totals["Park"], totals["Harbour"]) == (4, 10) and dd("verify")[0] == 0


def test_a_history_may_end_earlier_than_before(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (5, 5, 3, 1), (5, 5, 3, -1)), restate=3)
    assert desk.updates() == [(1, 1, 0, 1), (2, 2, 2, 1)]
    assert desk.ledger.latest_ingested() == time_of(3)
    assert desk.ledger.waiting()[0].counts == {time_of(0): (1, 0), time_of(2): (1, 0)}


def test_an_unfinished_run_is_finished_before_what_it_read_changes(desk: Desk) -> None:
    desk.ledger.append(IntentRecord(1, "ab12", time_of(0), time_of(4), parallelism=1, engine="inline"))
    output = desk.project.warehouse / "outputs" / "out"
    tables.create(Writer(), output, {"n": "int64"})
    pa_table = pl.DataFrame({"n": [1]}).to_arrow()
    commits.commit(Writer(), output, [new_files.write_file(output, "part", pa_table, bounded=["n"])], 1, base=None)
    assert "run 1 is not finished" in refused(desk, LateUpdate, desk.source("b.csv", (5, 5, 4, 1)), restate=4).message
    refused(desk, LateUpdate, desk.source("b.csv", (5, 5, 4, 1)), late="restate")
    assert desk.ingest(desk.source("c.csv", (5, 5, 5, 1)), restate=5).restates == (), "it has not read version 5"


# --- late rows --------------------------------------------------------------------------------------------------------


def test_late_rows_get_in_at_their_own_versions(desk: Desk) -> None:
    desk.fold(4)
    source = desk.source("b.csv", (7, 7, 3, 1), (2, 2, 4, -1), (8, 8, 1, 1), (8, 8, 1, -1), (9, 9, 9, 1))
    assert "--late restate" in refused(desk, LateUpdate, source).hint
    report = desk.ingest(source, late="restate")
    assert (report.restated, report.moved, report.restates, report.first) == (4, 0, ((3,),), time_of(1))
    assert desk.ledger.restated() == ((3,),)
    assert (7, 7, 3, 1) in desk.updates() and (2, 2, 4, -1) in desk.updates()
    assert desk.ingest(source, late="restate").nothing_new


def test_a_late_retraction_is_checked_at_all_later_versions(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (2, 2, 6, -1)))
    desk.fold(6)
    error = refused(desk, UnknownRetraction, desk.source("c.csv", (2, 2, 4, -1)), late="restate")
    assert "its count would be -1 as of version 6" in error.message


def test_rows_that_are_not_late_restate_nothing(desk: Desk) -> None:
    desk.fold(4)
    report = desk.ingest(desk.source("b.csv", (7, 7, 5, 1)), late="restate")
    assert (report.restated, report.restates, desk.ledger.restated()) == (0, (), ())


# --- undo -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folded", [False, True], ids=["not folded", "folded"])
@pytest.mark.parametrize("how", ["replaced", "late"])
def test_a_restatement_is_taken_back(desk: Desk, how: str, folded: bool) -> None:
    desk.fold(6)
    before = desk.updates()
    if how == "replaced":
        desk.ingest(desk.source("b.csv", (3, 9, 4, 1), (4, 4, 6, 1)), restate=4)
    else:
        desk.ingest(desk.source("b.csv", (3, 9, 4, 1)), late="restate")
    if folded:
        desk.refold(0, 6)
        assert desk.ledger.restated() == ()
    report = undo(desk.project, 2)
    assert desk.updates() == before
    assert report.restates == desk.ledger.restated() == (((4,),) if folded else ())
    ledger = desk.ledger
    assert (ledger.first_ingested(), ledger.latest_ingested()) == (time_of(0), time_of(6))
    counts = {0: (1, 0), 2: (1, 0), 3: (0, 1), 4: (1, 0), 6: (1, 0)}
    assert [record.counts for record in ledger.ingests()] == [{time_of(v): sides for v, sides in counts.items()}]
    assert desk.ingest(str(desk.folder / "a.csv")).nothing_new
    again = desk.ingest(str(desk.folder / "b.csv"), **({"restate": 4} if how == "replaced" else {"late": "restate"}))
    assert again.ingest == 3 and again.restates == ((4,),)


@pytest.mark.sample(4, of="undone")
def test_replaced_versions_wait_again_after_an_undo(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (3, 9, 4, 1)), restate=4)
    desk.fold(4)
    assert desk.ledger.waiting() == []
    undo(desk.project, 2)
    assert [list(record.counts) for record in desk.ledger.waiting()] == [
        [time_of(0), time_of(2), time_of(3), time_of(4), time_of(6)]
    ]
    assert desk.ledger.restated() == ((4,),)


@pytest.mark.sample(4, of="undone")
def test_an_undo_forgets_only_what_its_own_ingest_restated(desk: Desk) -> None:
    desk.fold(6)
    for version in (3, 5, 2):
        desk.ingest(desk.source(f"{version}.csv", (7, version, version, 1)), late="restate")
    undo(desk.project, 4)
    assert desk.ledger.restated() == ((3,),)
    undo(desk.project, 2)
    assert desk.ledger.restated() == ((5,),)
    undo(desk.project, 3)
    assert desk.ledger.restated() == ()


def test_a_folded_ingest_is_taken_back_by_folding_again(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (5, 5, 5, 1)))
    desk.fold(6)
    with pytest.raises(LateUpdate) as caught:
        undo(desk.project, 2)
    assert "--undo 2 --late restate" in caught.value.hint
    assert undo(desk.project, 2, restate=True).restates == ((5,),)
    assert desk.updates() == HISTORY and desk.ledger.restated() == ((5,),)


@pytest.mark.sample(4, of="undone")
def test_a_restatement_that_others_rest_on_stays(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (3, 9, 4, 1)), restate=4)
    desk.ingest(desk.source("c.csv", (6, 6, 8, 1)))
    for number, what in ((2, "ingest 3 came after"), (1, "ingest 2 replaced rows of it")):
        with pytest.raises(DataError) as caught:
            undo(desk.project, number)
        assert what in caught.value.message and "--undo" in caught.value.hint
    undo(desk.project, 3)
    undo(desk.project, 2)
    assert desk.updates() == HISTORY


@pytest.mark.sample(4, of="undone")
def test_a_restatement_stays_where_an_earlier_ingest_was_taken_back(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.csv", (1, 1, 0, 1)))
    desk.ingest(desk.source("b.csv", (2, 2, 5, 1)))
    desk.ingest(desk.source("c.csv", (2, 3, 5, 1)), restate=5)
    undo(desk.project, 1)
    with pytest.raises(DataError, match="the earlier ingest 1 was taken back since"):
        undo(desk.project, 3)
    assert desk.updates() == [(2, 3, 5, 1)]


@pytest.mark.sample(4, of="undone")
def test_a_restatement_whose_replaced_files_are_gone_stays(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (3, 9, 4, 1)), restate=4)
    DeltaTable(str(desk.log.folder)).vacuum(0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(StorageError) as caught:
        undo(desk.project, 2)
    assert "was deleted from" in caught.value.message and "--restate 4" in caught.value.hint


# --- runs -------------------------------------------------------------------------------------------------------------


def holds_the_law(desk: Desk) -> None:
    program = load_program(desk.project)
    outputs = build(program, desk.project.inputs, desk.project.dims).outputs
    frame = desk.log.collect(desk.log.scan(desk.ledger.input_table("edges")))
    assert logs_of(desk.project, outputs) == reference.replay(program, ("version",), edges=frame)


def test_runs_over_restated_history_keep_the_law(desk: Desk) -> None:
    (desk.folder / "program.py").write_text(
        "def program(edges):\n    return {'twos': edges.select('dst').distinct(), 'all': edges}\n"
    )
    run(desk.project, engine="inline", last=time_of(3))
    run(desk.project, engine="inline")
    desk.ingest(desk.source("b.csv", (3, 9, 4, 1), (4, 4, 6, 1)), restate=4)
    run(desk.project, engine="inline")
    holds_the_law(desk)
    desk.ingest(desk.source("c.csv", (2, 9, 1, 1), (2, 9, 8, 1)), late="restate")
    run(desk.project, engine="inline")
    holds_the_law(desk)
    undo(desk.project, 3)
    undo(desk.project, 2)
    run(desk.project, engine="inline")
    holds_the_law(desk)
    assert desk.updates() == HISTORY
    assert run(desk.project, engine="inline").nothing_new


# --- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("point", ["after-file", "after-file:2", "after-table", "after-ingest"])
def test_killed_anywhere_history_was_replaced_or_not(desk: Desk, point: str) -> None:
    desk.fold(6)
    source, before = desk.source("b.csv", (3, 9, 4, 1)), desk.updates()
    command = [
        sys.executable,
        "-m",
        "ddcore.cli.main",
        "ingest",
        "edges",
        source,
        "--restate",
        "4",
        "--engine",
        "inline",
    ]
    environment = {**os.environ, "DDCORE_FAILPOINT": point}
    killed = subprocess.run(
        [*command, "--project", str(desk.folder)], env=environment, capture_output=True, check=False
    )
    assert killed.returncode == -9, killed.stderr
    recorded = point == "after-ingest"
    assert (desk.updates() == before) is not recorded
    assert desk.ledger.restated() == (((4,),) if recorded else ())
    report = desk.ingest(source, restate=4)
    assert report.nothing_new is (point in ("after-table", "after-ingest"))
    assert any("it is finished now" in note for note in report.notes) is (point == "after-table")
    assert desk.ledger.restated() == ((4,),)
    assert desk.updates() == [*HISTORY[:3], (3, 9, 4, 1)] and desk.stray_files() == []


@pytest.mark.parametrize("point", ["after-table", "after-undo"])
def test_a_killed_undo_of_a_restatement_happened_or_not(desk: Desk, point: str) -> None:
    desk.ingest(desk.source("b.csv", (3, 9, 4, 1)), restate=4)
    command = [sys.executable, "-m", "ddcore.cli.main", "ingest", "--undo", "2", "--project", str(desk.folder)]
    killed = subprocess.run(command, env={**os.environ, "DDCORE_FAILPOINT": point}, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    done = point == "after-undo"
    assert (desk.updates() == HISTORY) is done
    if not done:
        undo(desk.project, 2)
    assert desk.updates() == HISTORY
    others = pl.from_arrow(DeltaTable(str(desk.log.folder)).to_pyarrow_table())
    assert isinstance(others, pl.DataFrame) and len(others) == len(HISTORY)
    desk.ingest(desk.source("c.csv", (5, 5, 9, 1)))
    assert desk.updates() == [*HISTORY, (5, 5, 9, 1)]


# --- random histories -------------------------------------------------------------------------------------------------


History = Counter[tuple[int, ...]]  # (src, time) -> diff


def without_zeros(history: History) -> History:
    return Counter({row: diff for row, diff in history.items() if diff})


class Inputs:
    """An input with random histories, and what a naive evaluator says that it holds."""

    def __init__(self, folder: Path, rng: random.Random, dims: tuple[str, ...], engine: str = "inline") -> None:
        self.folder, self.rng, self.dims, self.engine = folder, rng, dims, engine
        self.project = Project(
            root=folder, program="program.py:program", warehouse=folder / "warehouse",
            inputs={"edges": parse_schema({"src": "int64"})}, dims=dims,
            tuning=Tuning(restated_rows=3),
        )  # fmt: skip
        self.log = ChangeLog(Warehouse(self.project.warehouse).input("edges"), self.project.inputs["edges"], dims)
        self.held: History = Counter()
        self.sources = 0
        self.undoable: list[tuple[int, History, bool]] = []  # number, history before, whether folded since
        self.did = Counter[str]()

    @property
    def ledger(self) -> Ledger:
        return Ledger.load(Warehouse(self.project.warehouse), Writer())

    def draw(self, start: tuple[int, ...]) -> History:
        """Updates at or beyond a time: insertions, and retractions that are right if their rows are still there."""
        updates: History = Counter()
        before = [row for row, diff in self.held.items() if diff > 0 and not le(start, row[1:])]
        for _ in range(self.rng.randint(1, 8)):
            time = tuple(self.rng.randint(least, 5) for least in start)
            if before and self.rng.random() < 0.3:
                src, *at = self.rng.choice(before)
                updates[(src, *map(max, time, at))] -= 1
            else:
                updates[(self.rng.randint(0, 3), *time)] += self.rng.randint(1, 2)
        return without_zeros(updates)

    def ingest(self, updates: History, **asked: Any) -> IngestReport:
        self.sources += 1
        path = self.folder / f"{self.sources}.parquet"
        rows = [(*row, diff) for row, diff in updates.items()]
        pl.DataFrame(rows, schema=["src", *self.dims, "diff"], orient="row").write_parquet(path)
        return ingest(self.project, "edges", [str(path)], settings_of(**asked), engine=self.engine)

    def fold(self, last: Time) -> None:
        """Let the ledger say that a run has folded from the beginning up to ``last``."""
        upper = tuple(
            tuple(c + 1 if index == at else 0 for at in range(len(self.dims))) for index, c in enumerate(last)
        )
        several: dict[str, Any] = {"lower": ((0,) * len(self.dims),), "upper": upper} if len(self.dims) > 1 else {}
        nothing: dict[str, Any] = {"inputs": {}, "outputs": {}, "tables": {}, **several}
        first = (0,) * len(self.dims)
        ledger = self.ledger
        run = RunRecord(ledger.next_run(), "ab12", time_of(first), last, "inline", 1, rounds=1, took=0.1, **nothing)
        ledger.append(run)

    def closed(self, time: tuple[int, ...]) -> bool:
        upper = self.ledger.open_from("edges")
        return upper is not None and not any(le(element, time) for element in upper)

    def is_valid(self, held: History) -> bool:
        """Whether no row has a negative count at any time: by trying all of them."""
        rows = {row[0] for row in held}
        spans = [range(7)] * len(self.dims)
        times: list[tuple[int, ...]] = [()]
        for span in spans:
            times = [(*time, c) for time in times for c in span]
        return all(
            sum(diff for (src, *at), diff in held.items() if src == row and le(tuple(at), time)) >= 0
            for row in rows for time in times
        )  # fmt: skip

    def differing(self, after: History) -> tuple[tuple[int, ...], ...]:
        """The least closed times at which two histories differ."""
        times = {row[1:] for row in {*self.held, *after} if self.held[row] != after[row]}
        return frontier(time for time in times if self.closed(time))

    def check(self) -> None:
        frame = self.log.collect(self.log.scan(self.ledger.input_table("edges")))
        summed = frame.group_by("src", *self.dims).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
        assert {tuple(row[:-1]): row[-1] for row in summed.rows()} == self.held
        counted: Counter[Time] = Counter()
        for record in self.ledger.ingests("edges"):
            for time, (plus, minus) in record.counts.items():
                counted[time] += plus - minus
        expected: Counter[Time] = Counter()
        for (_, *at), diff in self.held.items():
            expected[Time(at)] += diff
        assert {t: n for t, n in counted.items() if n} == {t: n for t, n in expected.items() if n}

    def step(self) -> None:
        """An ingest, a restatement, late rows, a fold or an undo, checked."""
        kind = self.rng.choice(["ingest", "restate", "restate", "restate", "late", "late", "fold", "undo"])
        if kind == "fold" and self.held:
            last = tuple(self.rng.randint(0, 5) for _ in self.dims)
            self.fold(time_of(last[0] if len(last) == 1 else last))
            self.did[kind] += 1
            self.undoable = [(number, before, True) for number, before, _ in self.undoable]
        elif kind == "undo" and self.undoable:
            self.undo_last()
        elif kind in ("ingest", "restate", "late"):
            self.try_ingest(kind)
        if self.ledger.input_table("edges") is not None:
            self.check()

    def undo_last(self) -> None:
        number, before, folded = self.undoable.pop()
        expected, pending = self.differing(before) if folded else (), self.ledger.restated()
        report = undo(self.project, number, restate=True)
        assert report.restates == expected
        assert not folded or self.ledger.restated() == frontier((*pending, *expected))
        self.held = before
        self.did["undo"] += 1

    def try_ingest(self, kind: str) -> None:
        start = tuple(self.rng.randint(0, 4) for _ in self.dims)
        new, after = self.draw(start if kind == "restate" else (0,) * len(self.dims)), self.held.copy()
        asked: dict[str, Any] = {"late": "restate"} if kind == "late" else {}
        bad = kind == "ingest" and any(self.closed(row[1:]) for row in new)
        if kind == "restate":
            asked = {"restate": start[0] if len(start) == 1 else start}
            after = Counter({row: diff for row, diff in self.held.items() if not le(start, row[1:])})
            bad = len(after) == len(self.held)
        after = without_zeros(Counter({row: after[row] + new[row] for row in {*after, *new}}))
        if not new:
            return
        if bad or not self.is_valid(after):
            with pytest.raises((DataError, UsageError)):
                self.ingest(new, **asked)
            self.did["refused"] += 1
            return
        expected = self.differing(after)
        report = self.ingest(new, **asked)
        if report.nothing_new:
            assert kind != "restate" or after == self.held
            return
        assert report.restates == (() if kind == "ingest" else expected)
        self.undoable.append((report.ingest, self.held, False))
        self.held = after
        self.did[kind] += 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("dims", [("version",), ("day", "revision")], ids=["one", "two"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 4, 5))])
def test_random_restatements_hold_what_the_naive_evaluator_holds(
    tmp_path: Path, seed: int, dims: tuple[str, ...]
) -> None:
    print(f"seed {seed}")
    inputs = Inputs(tmp_path, random.Random(seed), dims)
    inputs.try_ingest("ingest")
    for _ in range(20):
        inputs.step()
    print(inputs.did)
    while inputs.undoable:
        inputs.undo_last()
        inputs.check()
    assert not inputs.held
    assert inputs.did["restate"] > 1 and inputs.did["late"] and inputs.did["undo"] > 3


# --- from the command line --------------------------------------------------------------------------------------------


def test_restating_from_the_command_line(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    there = ["--project", str(desk.folder), "--engine", "inline"]
    reads = ["--project", str(desk.folder)]
    desk.fold(6)
    source = desk.source("b.csv", (3, 9, 4, 1), (4, 4, 6, 1))
    assert run_command(["ingest", "edges", source, "--restate", "4", "--json", *there]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out.splitlines()[-1])
    assert (report["replaces"], report["removed"], report["rows"], report["restates"]) == (4, 2, 2, [4])
    assert "from version 4 on, 2 rows were replaced by these" in err
    assert "the next run folds again from version 4 on" in err
    assert run_command(["ingest", "edges", source, "--restate", "4", *there]) == 0
    assert "nothing new: the history from version 4 on is the same already" in capsys.readouterr().err
    assert run_command(["status", *reads]) == 0
    assert "what was folded from version 4 on is folded again" in capsys.readouterr().out
    assert run_command(["status", "--json", *reads]) == 0
    assert json.loads(capsys.readouterr().out)["restated"] == [4]
    assert run_command(["log", *reads]) == 0
    log = capsys.readouterr().out
    assert "replaced 2 rows from version 4 on; changed folded versions from 4 on" in log
    assert "replaced in part by ingest 2" in log
    assert run_command(["ingest", "--undo", "2", *reads]) == 0
    assert desk.updates() == HISTORY


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--restate", "9"], 2, "--restate 9: the input edges has no rows from there on; it has rows up to version 6"),
        (["--restate", "5"], 1, "b.csv: has rows at version 4, but --restate 5 replaces the history from version 5 on"),
        (["--restate", "x"], 2, "--restate: 'x' is not a version"),
        (["--restate", "-1"], 2, "--restate: version is -1, which is negative"),
        (["--restate", "day=1"], 2, "--restate: there is no time dimension 'day'"),
        (["--restate", "4", "--late", "move"], 2, "--late move and --restate"),
        (["--restate", "4", "--undo", "1"], 2, "--undo and --restate: only one of them"),
        (["--late", "restated"], 2, "--late: 'restated' is none of refuse, move, restate"),
    ],
)
def test_what_a_restatement_refuses_on_the_command_line(
    desk: Desk, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    late = [(9, 9, 9, 1)] if "9" in arguments else [(3, 9, 4, 1)]
    source = desk.source("b.csv", *late)
    there = ["--project", str(desk.folder), *(["--engine", "inline"] if "--undo" not in arguments else [])]
    assert run_command(["ingest", "edges", source, *arguments, *there]) == code
    err = capsys.readouterr().err
    assert says in err and len(err.strip().splitlines()) == 2
    assert desk.updates() == HISTORY and desk.stray_files() == []


def test_restating_under_spark_submit(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    there = ["--project", str(desk.folder), "--engine", "inline"]
    assert run_command(["ingest", "edges", desk.source("b.csv", (3, 9, 4, 1)), "--restate", "4", *there]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["replaces"] == 4
    desk.fold(4)
    assert run_command(["ingest", "edges", desk.source("c.csv", (7, 7, 2, 1)), "--late", "restate", *there]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["restates"] == [2]
    assert run_command(["ingest", "--undo", "3", *there]) == 0
    assert run_command(["ingest", "--undo", "1", "--late", "restate", *there]) == 1
    assert "ingest 2 replaced rows of it" in capsys.readouterr().err


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_happens(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("corrections.md", tmp_path, dd, monkeypatch, steps=20)
