"""Taking an ingest back: its rows go, its sources may come again, and what builds on it keeps it there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from ingesting import Desk, settings_of
from places import local
from warehouses import last_closed, logs_of

from ddcore import reference
from ddcore.base.errors import DataError, DdError, LateUpdate, StorageError, UsageError
from ddcore.cli.main import run_command
from ddcore.io.delta import commits, new_files, table_files, tables
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.records import FailureRecord, IntentRecord, UndoRecord
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.program import load_program
from ddcore.io.project.times import time_of
from ddcore.jobs.ingest import IngestReport, ingest
from ddcore.jobs.replay import run
from ddcore.jobs.undo import UndoReport, undo
from ddcore.planning.planner import build


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.csv", (1, 2, 0, 1), (2, 3, 0, 1)))
    return desk


def take_back(desk: Desk, number: int) -> UndoReport:
    return undo(desk.project, number)


def refused(desk: Desk, kind: type[DdError], number: int, name: str | None = None) -> DdError:
    """The error of an undo, which has left everything as it was."""
    before = desk.updates(), len(desk.records()), desk.ledger.input_table("edges")
    with pytest.raises(kind) as caught:
        undo(desk.project, number, name)
    assert (desk.updates(), len(desk.records()), desk.ledger.input_table("edges")) == before
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


def test_an_ingest_is_taken_back_and_its_source_comes_again(desk: Desk) -> None:
    source = desk.source("b.csv", (1, 2, 1, 1), (1, 2, 2, -1), (9, 9, 3, 1))
    desk.ingest(source)
    report = take_back(desk, 2)
    assert (report.input, report.ingest, report.sources) == ("edges", 2, ("b.csv",))
    assert (report.rows, report.plus, report.minus, report.first, report.last) == (3, 2, 1, time_of(1), time_of(3))
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 0, 1)]
    ledger = desk.ledger
    assert [record.number for record in ledger.ingests()] == [1] and [
        item.number for item in ledger.records(UndoRecord)
    ] == [2]
    assert (ledger.latest_ingested(), ledger.next_run(), ledger.next_ingest()) == (time_of(0), 1, 3)
    assert DeltaTable(str(desk.log.folder)).to_pyarrow_table().num_rows == 2
    assert desk.ingest(source).ingest == 3
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 0, 1), (1, 2, 1, 1), (1, 2, 2, -1), (9, 9, 3, 1)]


def test_the_first_ingest_may_go_and_so_may_one_between(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (4, 4, 1, 1)))
    desk.ingest(desk.source("c.csv", (5, 5, 2, 1)))
    take_back(desk, 2)
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 0, 1), (5, 5, 2, 1)]
    take_back(desk, 1)
    take_back(desk, 3)
    assert desk.updates() == [] and desk.ledger.latest_ingested() is None
    desk.ingest(desk.source("a.csv", (1, 2, 0, 1)))
    assert desk.updates() == [(1, 2, 0, 1)]


def test_what_a_later_ingest_retracts_stays(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (2, 3, 5, -1)))
    error = refused(desk, DataError, 1)
    assert "without it src=2, dst=3 would have the count -1 as of version 5" in error.message
    take_back(desk, 2)
    take_back(desk, 1)
    assert desk.updates() == []


def test_what_was_retracted_by_it_may_come_back(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (2, 3, 5, -1)))
    desk.ingest(desk.source("c.csv", (2, 3, 6, 1)))
    desk.ingest(desk.source("d.csv", (2, 3, 7, -1)))
    refused(desk, DataError, 3)
    take_back(desk, 2)
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 0, 1), (2, 3, 6, 1), (2, 3, 7, -1)]


def test_an_ingest_that_a_grown_source_rests_on_stays(desk: Desk) -> None:
    grown = desk.source("a.csv", (1, 2, 0, 1), (2, 3, 0, 1), (7, 7, 4, 1))
    desk.ingest(grown)
    error = refused(desk, DataError, 1)
    assert "ingest 2 took in only the rows after it in a.csv" in error.message and "--undo 2" in error.hint
    take_back(desk, 2)
    assert "taken in after version 0" in desk.ingest(grown).notes[0]
    take_back(desk, 3)
    take_back(desk, 1)
    desk.ingest(grown)
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 0, 1), (7, 7, 4, 1)]


def test_folded_versions_stay(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (4, 4, 0, 1), (4, 4, 6, 1)))
    desk.fold(3)
    assert "it has rows at version 0, and version 3 is closed" in refused(desk, LateUpdate, 2).message
    desk.ingest(desk.source("c.csv", (4, 4, 7, 1)))
    desk.ledger.append(IntentRecord(2, "ab12", time_of(4), time_of(7), parallelism=1, engine="inline"))
    output = local(desk.project.warehouse) / "outputs" / "out"
    tables.create(Writer(), output, {"n": "int64"})
    committed = commits.commit(Writer(), output, [number_file(output, 1)], 2, base=None)
    assert "version 7 is closed" in refused(desk, LateUpdate, 3).message, "run 2 has to be finished"
    assert committed.rows == 1 and desk.ledger.open_intent() is not None


def number_file(folder: Path, number: int) -> table_files.AddedFile:
    return new_files.write_file(folder, "part", pa.table({"n": pa.array([number], pa.int64())}), bounded=["n"])


def test_a_run_that_committed_nothing_is_given_up_for_an_undo(desk: Desk) -> None:
    """What made a run get killed may well be what has to be taken back."""
    desk.fold(0)
    desk.ingest(desk.source("b.csv", (4, 4, 1, 1)))
    desk.ledger.append(IntentRecord(2, "ab12", time_of(1), time_of(1), parallelism=1, engine="inline"))
    take_back(desk, 2)
    assert [failure.run for failure in desk.ledger.records(FailureRecord)] == [2]
    assert (last_closed(desk.ledger, "edges"), desk.updates()) == (time_of(0), [(1, 2, 0, 1), (2, 3, 0, 1)])


def test_the_last_ingest_of_an_input_goes_and_a_new_one_comes(desk: Desk) -> None:
    take_back(desk, 1)
    ledger = desk.ledger
    assert (ledger.first_ingested(), ledger.latest_ingested(), ledger.waiting()) == (None, None, [])
    state = ledger.input_table("edges")
    assert state is not None and (state.files, state.rows) == (0, 0)
    desk.ingest(desk.source("b.csv", (4, 4, 3, 1)))
    ledger = desk.ledger
    assert (ledger.first_ingested(), ledger.latest_ingested(), len(ledger.waiting())) == (time_of(3), time_of(3), 1)
    assert desk.updates() == [(4, 4, 3, 1)]
    assert desk.ingest(desk.source("a.csv", (1, 2, 0, 1), (2, 3, 0, 1))).ingest == 3, "it is not known any more"


def test_an_ingest_that_is_not_there_is_refused(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert "there is no ingest 7; the last is 1" in refused(desk, UsageError, 7).message
    assert "ingest 1 is one of edges, not of roots" in refused(desk, UsageError, 1, "roots").message
    take_back(desk, 1)
    assert "ingest 1 was taken back already" in refused(desk, UsageError, 1).message
    assert "there is no ingest 7; nothing is ingested" in refused(desk, UsageError, 7).message
    empty = Desk(tmp_path_factory.mktemp("empty"))
    with pytest.raises(StorageError, match="there is no warehouse"):
        undo(empty.project, 1)
    assert not local(empty.project.warehouse).exists()


def test_files_that_were_merged_with_others_stay(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (4, 4, 1, 1)))
    DeltaTable(str(desk.log.folder)).optimize.compact()
    assert "its files" in refused(desk, StorageError, 2).message


@pytest.mark.parametrize("point", ["after-table", "after-undo"])
def test_killed_anywhere_it_was_taken_back_or_not(desk: Desk, point: str) -> None:
    source = desk.source("b.csv", (4, 4, 1, 1))
    desk.ingest(source)
    command = [sys.executable, "-m", "ddcore.cli.main", "ingest", "--undo", "2", "--project", str(desk.folder)]
    killed = subprocess.run(command, env={**os.environ, "DDCORE_FAILPOINT": point}, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert len(desk.updates()) == (2 if point == "after-undo" else 3)
    notes = desk.ingest(desk.source("c.csv", (5, 5, 2, 1))).notes
    said = "the undo of ingest 2 was killed, or failed, after its commit to edges: it is finished now"
    assert (said in notes) is (point == "after-table")
    assert len(desk.updates()) == 3
    seen_by_others = pl.from_arrow(DeltaTable(str(desk.log.folder)).to_pyarrow_table())
    assert isinstance(seen_by_others, pl.DataFrame) and len(seen_by_others) == len(desk.updates())
    desk.ingest(source)
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 0, 1), (4, 4, 1, 1), (5, 5, 2, 1)]


def test_an_undo_that_was_killed_is_done_by_the_same_command(desk: Desk) -> None:
    desk.ingest(desk.source("b.csv", (4, 4, 1, 1)))
    killed(desk, 2)
    before = DeltaTable(str(desk.log.folder)).version()
    take_back(desk, 2)
    assert DeltaTable(str(desk.log.folder)).version() == before, "the table had it already"
    assert [record.number for record in desk.ledger.records(UndoRecord)] == [2]
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 0, 1)]


def killed(desk: Desk, number: int) -> None:
    """An undo that ends by SIGKILL after its commit, and before its record."""
    command = [sys.executable, "-m", "ddcore.cli.main", "ingest", "--undo", str(number), "--project", str(desk.folder)]
    done = subprocess.run(command, env={**os.environ, "DDCORE_FAILPOINT": "after-table"}, check=False)
    assert done.returncode == -9


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["done", "killed", "killed, then an ingest"])
def test_a_run_after_an_undo_keeps_the_law(desk: Desk, how: str) -> None:
    """Also with versions that are folded before, and with ingests after it."""
    (desk.folder / "program.py").write_text(
        "def program(edges):\n    return {'twos': edges.select('dst').distinct(), 'all': edges}\n"
    )
    run(desk.project, engine="inline")
    desk.ingest(desk.source("b.csv", (1, 2, 1, 1), (1, 2, 2, -1), (9, 9, 3, 1)))
    desk.ingest(desk.source("c.csv", (5, 5, 2, 1)))
    if how == "done":
        take_back(desk, 2)
    else:
        killed(desk, 2)
    if how == "killed, then an ingest":
        desk.ingest(desk.source("d.csv", (6, 6, 3, 1)))
    for updates in ([], [(7, 7, 4, 1), (5, 5, 4, -1)]):
        if updates:
            desk.ingest(desk.source("e.csv", *updates))
        run(desk.project, engine="inline")
        program = load_program(desk.project)
        outputs = build(program, desk.project.inputs, desk.project.dims).outputs
        frame = desk.log.collect(desk.log.scan(desk.ledger.input_table("edges")))
        assert logs_of(desk.project, outputs) == reference.replay(program, ("version",), edges=frame)
    rows = {row[:2] for row in desk.updates()}
    assert (9, 9) not in rows


def test_undo_from_the_command_line(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.ingest(desk.source("b.csv", (4, 4, 1, 1)))
    there = ["--project", str(desk.folder)]
    assert run_command(["ingest", "edges", "--undo", "2", "--json", *there]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out.splitlines()[-1])
    assert (report["command"], report["ingest"], report["plus"]) == ("undo", 2, 1)
    assert "undone: ingest=2 input=edges versions=1 out=+1/-0" in err
    assert run_command(["log", *there]) == 0
    assert "undo 2" in capsys.readouterr().out
    assert run_command(["ingest", "edges", "a.csv", "--undo", "1", *there]) == 2
    assert run_command(["ingest", "--undo", "5", *there]) == 2
    assert run_command(["ingest", "edges", *there]) == 2
    assert "missing argument 'SOURCE'" in capsys.readouterr().err
    assert run_command(["ingest", "--undo", "1", *there]) == 0
    assert desk.updates() == []


# --- inputs that the runs before did not read -------------------------------------------------------------------------


def fold(desk: Desk, *names: str, program: str, **how: Any) -> None:
    """Run a program of these inputs; its outputs are then what the reference makes of the inputs' logs."""
    (desk.folder / "program.py").write_text(program)
    project = replace(desk.project, inputs={name: desk.project.inputs[name] for name in names})
    run(project, engine="inline", corrections="rewrite", **how)
    logs = {name: ChangeLog(project.warehouse / "inputs" / name, schema) for name, schema in project.inputs.items()}
    frames = {name: log.collect(log.scan(desk.ledger.input_table(name))) for name, log in logs.items()}
    outputs = build(load_program(project), project.inputs, project.dims).outputs
    assert logs_of(project, outputs) == reference.replay(load_program(project), ("version",), **frames)


ONE = "def program(edges):\n    return {'twos': edges.select('dst').distinct()}\n"
BOTH = """
def program(edges, roots):
    return {'twos': edges.select('dst').distinct(), 'both': roots.join(edges.select('src', to='dst'), on='src')}
"""


@pytest.fixture
def two(desk: Desk) -> Desk:
    """A desk with a second input, which the program does not read; everything up to version 5 is folded."""
    desk.project = replace(desk.project, inputs={**desk.project.inputs, "roots": desk.schema})
    desk.ingest(desk.source("b.csv", (1, 2, 5, -1)))
    fold(desk, "edges", program=ONE)
    assert (last_closed(desk.ledger, "edges"), last_closed(desk.ledger, "roots")) == (time_of(5), None)
    return desk


def roots(desk: Desk, name: str, *updates: tuple[int, int, int, int], **how: Any) -> IngestReport:
    return ingest(desk.project, "roots", [desk.source(name, *updates)], settings_of(**how), engine="inline")


def test_an_input_that_no_run_has_read_is_open_at_every_version(two: Desk) -> None:
    """Also to an undo; and a program that reads it then folds its whole history."""
    assert roots(two, "r.csv", (1, 1, 0, 1), (2, 2, 3, 1)).restates == ()
    roots(two, "s.csv", (1, 1, 2, 1), (1, 1, 4, -1), (9, 9, 8, 1))
    undone = take_back(two, 4)
    assert (undone.input, undone.restates) == ("roots", ())
    assert roots(two, "t.csv", (2, 2, 1, 1)).restates == ()
    assert roots(two, "u.csv", (2, 2, 2, 1), restate=2).restates == ()
    assert take_back(two, 6).restates == ()
    fold(two, "edges", program=ONE)
    assert roots(two, "v.csv", (7, 7, 1, 1), (2, 2, 4, -1)).restates == ()
    fold(two, "edges", "roots", program=BOTH)
    with pytest.raises(LateUpdate, match="version 5 is closed"):
        roots(two, "w.csv", (3, 3, 4, 1))


@pytest.mark.parametrize("refresh", [False, True])
def test_an_input_is_open_again_where_the_program_no_longer_reads_it(two: Desk, refresh: bool) -> None:
    """What it got meanwhile counts when it is read again, also by a program that has run before."""
    roots(two, "r.csv", (1, 1, 0, 1), (2, 2, 5, 1))
    fold(two, "edges", "roots", program=BOTH)
    fold(two, "edges", program=ONE, full_refresh=refresh)
    assert last_closed(two.ledger, "roots") is None
    roots(two, "s.csv", (2, 2, 1, 1), (2, 2, 2, -1))
    take_back(two, 3)
    two.ingest(two.source("c.csv", (1, 7, 6, 1)))
    roots(two, "t.csv", (1, 1, 0, 1), (2, 2, 2, 1))
    fold(two, "edges", "roots", program=BOTH)


def test_an_input_of_the_program_without_rows_is_closed_as_all_are(two: Desk) -> None:
    """That it was empty is folded: its first rows at those versions are a restatement."""
    (two.folder / "program.py").write_text(BOTH)
    run(two.project, engine="inline", corrections="rewrite")
    with pytest.raises(LateUpdate, match="version 5 is closed"):
        roots(two, "r.csv", (2, 2, 3, 1))
    assert roots(two, "r.csv", (2, 2, 3, 1), late="restate").restates == ((3,),)
    fold(two, "edges", "roots", program=BOTH)
    undo(two.project, 3, restate=True)
    fold(two, "edges", "roots", program=BOTH)
