"""``dd verify`` and ``dd run --verify-every``: outputs that are right hold, and a single wrong row is found."""

from __future__ import annotations

import functools
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
import sparkless
from notation import dims_of
from places import local
from programs import case
from real_data import example, shared_data
from trams import records
from warehouses import project_of, take_in

from ddcore.base import deep_stack
from ddcore.base.errors import Diverged, FoldError, Mismatch
from ddcore.cli.main import run_command
from ddcore.io.delta import commits, tables
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.finding import find_project
from ddcore.io.project.frontiers import is_open
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, time_of
from ddcore.io.state import arrangements
from ddcore.io.storage.warehouse import Warehouse
from ddcore.io.upkeep import compaction
from ddcore.jobs import engines, replay, verify
from ddcore.jobs.verify import ACTUAL, EXPECTED, WAYS, Selection, Verdict, Verification, mismatch


def verdicts_of(project: Project, *times: int | Time, **how: Any) -> list[Verdict]:
    verification = Verification(project, **how)
    outputs, selection = verification.outputs(), Selection([time_of(time) for time in times])
    return list(verification.verdicts(verification.times(selection, outputs), outputs))


def put(project: Project, name: str, added: Callable[[Path], list[AddedFile]], without: Sequence[str] = ()) -> None:
    """Add files to a table and leave some out, and let the ledger name the result, as if a run had left it."""
    ledger = Ledger.load(Warehouse(project.warehouse), Writer())
    run, folder = ledger.current_run(), local(ledger.warehouse.table(name))
    assert run is not None
    number = ledger.next_run()
    state = commits.commit(Writer(), folder, added(folder), number, base=run.tables[name], without=without)
    ledger.append(replace(run, run=number, base=run.run, tables={**run.tables, name: state}))


def add_row(project: Project, output: str, schema: Any, row: dict[str, Any]) -> None:
    """One more update in an output's log, which the ledger accepts."""
    log = ChangeLog(Warehouse(project.warehouse).output(output), schema, project.dims)
    frame = pl.DataFrame([row], schema={column: kind.polars for column, kind in log.columns.items()})
    put(project, f"outputs/{output}", lambda _: [log.write("wrong", frame)])


def lose_harbour(project: Project) -> None:
    """Take the stop Harbour from all state, in a way that no check of files and logs can see."""
    ledger = Ledger.load(Warehouse(project.warehouse))
    for name in [name for name in ledger.tables() if name.startswith("state/")]:
        folder = local(ledger.warehouse.table(name))
        kept = {}
        for file in tables.live_files(folder, ledger.table(name)):
            rows = pl.read_parquet(folder / file.path, hive_partitioning=False)
            if "stop" in rows.columns and (rows["stop"] == "Harbour").any():
                kept[file.path] = rows.filter(pl.col("stop") != "Harbour")
        if kept:
            put(project, name, functools.partial(_write_runs, list(kept.values())), without=list(kept))


def _write_runs(runs: list[pl.DataFrame], folder: Path) -> list[AddedFile]:
    layout = compaction.layout_of(tables.schema_of(folder))
    return [
        arrangements.write_run(folder, 98, part, compaction.run_of(rows, layout), layout)
        for part, rows in enumerate(runs)
    ]


# --- from the command line --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", WAYS)
def test_every_version_of_the_trams_holds(by: str, here: Path, dd: Any) -> None:
    code, out, err = dd("verify", "--at", "1..latest", "--by", by)
    assert (code, err) == (0, [])
    assert [re.sub(r"in \S+s$", "", line) for line in out] == [
        f"holds    journeys at version {version}  {rows} rows  by {by} "
        for version, rows in zip(range(1, 6), (6, 7, 7, 5, 7), strict=True)
    ]


def test_without_options_it_is_the_last_version_and_the_reference(here: Path, dd: Any) -> None:
    code, out, err = dd("verify", "--json")
    assert (code, err) == (0, [])
    (record,) = records(out)
    assert record.pop("took") < 600
    assert datetime.now(UTC) - datetime.fromisoformat(record.pop("instant")) < timedelta(days=1), "the file's date"
    assert record == {
        "schema_version": 1, "output": "journeys", "version": 5, "label": None, "by": "reference", "holds": True,
        "rows": 7, "differing": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "versions"),
    [
        (["--at", "2", "--at", "latest", "--at", "-1"], [2, 4, 5]),
        (["--at", "-2..-1", "--at", "4"], [3, 4]),
        (["--at", "..2"], [1, 2]),
        (["--at", "4.."], [4, 5]),
        (["--last", "2"], [4, 5]),
        (["--last", "99"], [1, 2, 3, 4, 5]),
        (["--every", "2"], [2, 4]),
        (["--every", "3", "--at", "1"], [1, 3]),
        (["--every", "6"], []),
    ],
)
def test_the_versions_that_options_name(options: list[str], versions: list[int], here: Path, dd: Any) -> None:
    code, out, err = dd("verify", *options, "--json")
    assert (code, [record["version"] for record in records(out)]) == (0, versions)
    assert err == ([] if versions else ["nothing to verify: no such version has changed anything"])


@pytest.mark.sample(1, of="large")
def test_versions_at_which_nothing_changed_are_verified_once(tmp_path: Path, dd: Any) -> None:
    """Versions may be far apart, as dates are: those between them hold what the one before holds."""
    drawn = case(next(seed for seed in range(99) if len(dims_of(case(seed, plain=True).frames)) == 1), plain=True)
    project = replace(project_of(tmp_path / "p", drawn, ingested=False), engine="inline")
    for name, frame in drawn.frames.items():
        late = pl.Series([20260000 + 100 * location for location in range(len(frame))])
        take_in(project, name, frame.head(1).with_columns(late[:1].alias(project.dims[0])))
    replay.run(project, engine="inline")
    verification = Verification(project)
    outputs = verification.outputs()
    assert verification.times(Selection(every=7), outputs) == []
    assert verification.times(Selection(every=1), outputs) == [time_of(20260000)]
    assert verification.times(Selection(ranges=[(time_of(20260000), time_of(20260000))]), outputs) == [
        time_of(20260000)
    ]


@pytest.mark.parametrize(
    ("options", "says", "hint"),
    [
        (["jurneys"], "no output 'jurneys'; there are: journeys", "did you mean 'journeys'?"),
        (["links"], "no output 'links'; there are: journeys", "links is an input; only outputs can be shown"),
        (["--at", "6"], "--at: version 6 is not yet complete: the last folded version is 5", "ddcore status"),
        (["--at", "3..6"], "--at: version 6 is not yet complete: the last folded version is 5", "ddcore status"),
        (["--at", "0"], "--at: version 0 is before the first one, 1", "ddcore log --versions"),
        (["--at", "0..2"], "--at: version 0 is before the first one, 1", "ddcore log --versions"),
        (["--at", "4..2"], "--at 4..2: the first version is after the last", "both ends are inclusive"),
        (["--at", "soon"], "--at: 'soon' is not a version", "say a number, a label, or a date such as 2026-11-19"),
        (["--at", ""], "--at: '' is not a version", "say a number, a label, or a date such as 2026-11-19"),
        (["--by", "refrence"], "--by: there is no 'refrence'", "did you mean 'reference'?"),
        (["--by", ""], "invalid value for '--by': the value is empty", "see: ddcore verify --help"),
        (["--last", "0"], "invalid value for '--last': '0' is not a whole number from 1 up", "see: ddcore verify"),
        (["--every", "x"], "invalid value for '--every': 'x' is not a whole number from 1 up", "see: ddcore verify"),
        (["--scratch-folder", "nowhere"], "--scratch-folder: nowhere is not a folder", "name one that exists"),
        (["--engine", "sprak"], "--engine: unknown engine 'sprak'", "did you mean 'spark'?"),
    ],
)
def test_what_cannot_be_verified(options: list[str], says: str, hint: str, here: Path, dd: Any) -> None:
    code, out, err = dd("verify", *options)
    assert (code, out, len(err)) == (2, [], 2)
    assert says in err[0]
    assert hint in err[1]


def test_before_anything_is_folded(fresh: Path, dd: Any) -> None:
    assert dd("verify")[0] == 1, "there is no warehouse"
    dd("ingest", "links", "data/links.csv")
    code, _, err = dd("verify")
    assert code == 2
    assert "nothing is folded yet" in err[0]
    assert err[1].strip() == "fold the waiting versions with: ddcore run"


def test_another_program_than_the_folded_one(copied: Path, dd: Any) -> None:
    text = (copied / "program.py").read_text()
    (copied / "program.py").write_text(text.replace("dd.min", "dd.max"))
    code, out, err = dd("verify")
    assert (code, out) == (1, [])
    assert "error: the program changed: the outputs were made by program" in err[0]
    assert "put the program back to verify what it made" in err[1]
    assert err[1].endswith(": ddcore run"), "it needs no --full-refresh"


def test_a_cluster_needs_a_folder_that_its_machines_share(here: Path, dd: Any) -> None:
    code, _, err = dd("verify", "--by", "scratch", "--engine", "spark", "--master", "spark://nowhere:7077")
    assert code == 2
    assert "the master spark://nowhere:7077 is a cluster's" in err[0]
    assert "--scratch-folder DIR" in err[1]


def test_help_names_the_size_up_to_which_the_reference_is_used(dd: Any) -> None:
    code, out, _ = dd("verify", "--help")
    assert code == 0
    assert f"{verify.SMALL:,} rows" in " ".join(" ".join(out).split())
    assert f"{verify.SMALL:,} rows" in " ".join((pages.DOCS / "verification.md").read_text().split())


def test_it_takes_no_lock_and_writes_nothing(
    copied: Path, dd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    before = {path: path.read_bytes() for path in (copied / "warehouse").rglob("*") if path.is_file()}
    with Warehouse(copied / "warehouse").lock("ddcore run", 7):
        (copied / "warehouse" / ".lock").write_bytes(before.get(copied / "warehouse" / ".lock", b""))
        for by in WAYS:
            options = ["--scratch-folder", str(tmp_path / "scratch")] if by == "scratch" else []
            assert dd("verify", "--by", by, "--at", "1..", *options)[0] == 0
        assert list((tmp_path / "scratch").iterdir()) == []
        assert before == {path: path.read_bytes() for path in (copied / "warehouse").rglob("*") if path.is_file()}


def test_the_temporary_tables_go_away_after_an_error_too(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def failing(*_: Any) -> Any:
        found.extend(tmp_path.glob("ddcore-verify-*/inputs/*"))
        raise FoldError("it fails")

    monkeypatch.setattr(engines, "load", failing)
    with pytest.raises(FoldError, match="on the inputs at version 5, by scratch: it fails"):
        verdicts_of(find_project(here, {}), by="scratch", scratch=tmp_path)
    assert len(found) == 2
    assert list(tmp_path.iterdir()) == []


# --- wrong outputs ----------------------------------------------------------------------------------------------------


def trams_with_a_wrong_row(project: Project) -> None:
    """From version 3 on the Harbour is reached a second time, in 99 minutes."""
    outputs = Verification(project).plan.outputs
    add_row(project, "journeys", outputs["journeys"], {"stop": "Harbour", "total": 99, "version": 3, "diff": 2})


@pytest.mark.parametrize("by", WAYS)
def test_a_wrong_row_is_found(by: str, copied: Path, dd: Any) -> None:
    trams_with_a_wrong_row(find_project(copied, {}))
    assert dd("verify", "--at", "1..2", "--by", by)[0] == 0
    code, out, err = dd("verify", "--at", "2", "--at", "4", "--by", by)
    assert code == 3
    assert out[0].startswith("holds    journeys at version 2  7 rows  by")
    assert re.sub(r" in \S+s$", "", out[1]) == f"differs  journeys at version 4  1 differ, 5 rows expected  by {by}"
    assert [line.split() for line in out[2:]] == [
        ["stop", "total", "expected", "count", "actual", "count"], ["Harbour", "99", "0", "2"]
    ]  # fmt: skip
    assert err[0] == (
        "error: journeys at version 4 is not what the program gives for its inputs: 1 row differs, the first is "
        "stop='Harbour', total=99: 0 expected, 2 in the log"
    )
    assert "ddcore run --full-refresh" in err[1]
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert dd("verify", "--at", "4", "--by", by)[0] == 0


def test_differing_rows_as_json_and_limited(copied: Path, dd: Any) -> None:
    project = find_project(copied, {})
    trams_with_a_wrong_row(project)
    outputs = Verification(project).plan.outputs
    add_row(project, "journeys", outputs["journeys"], {"stop": "Abbey", "total": None, "version": 1, "diff": 1})
    code, out, err = dd("verify", "--json")
    assert (code, len(err)) == (3, 2)
    head, *rows = records(out)
    assert (head["holds"], head["differing"], head["rows"]) == (False, 2, 7)
    location = {"output": "journeys", "version": 5}
    assert rows == [
        {**location, "row": {"stop": "Abbey", "total": None}, "expected": 0, "actual": 1},
        {**location, "row": {"stop": "Harbour", "total": 99}, "expected": 0, "actual": 2},
    ]
    code, out, err = dd("verify", "--limit", "1")
    assert (code, len(out)) == (3, 3)
    assert err[0] == "... and 1 more; all of them with --limit 0"
    code, out, _ = dd("verify", "-q", "--at", "1..")
    assert code == 3
    assert not [line for line in out if line.startswith("holds")]
    assert len([line for line in out if line.startswith("differs")]) == 5


@pytest.mark.sample(1)
@pytest.mark.parametrize("by", WAYS)
def test_state_that_lost_rows_gives_a_wrong_run_and_verify_finds_it(by: str, copied: Path, dd: Any) -> None:
    project = find_project(copied, {})
    lose_harbour(project)
    assert dd("verify", "--at", "1..")[0] == 0, "the outputs are as they were"
    (copied / "more.csv").write_text("version,diff,src,dst,minutes\n6,1,Harbour,Nowhere,1\n7,-1,Harbour,Nowhere,1\n")
    assert dd("ingest", "links", "more.csv", "-q")[0] == 0
    code, _, err = dd("run", "-q")
    assert code == 0, err
    verdicts = verdicts_of(project, 5, 6, 7, by=by)
    assert [verdict.holds for verdict in verdicts] == [True, False, True], "the stop Nowhere is missing"
    assert verdicts[1].differing["stop"].to_list() == ["Nowhere"]
    error = mismatch(verdicts, project.dims)
    assert isinstance(error, Mismatch)
    assert error.exit_code == 3
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert all(verdict.holds for verdict in verdicts_of(project, 5, 6, 7, by=by))


def test_while_corrections_wait_every_command_says_how_to_publish_them(copied: Path, dd: Any) -> None:
    (copied / "program.py").write_text((copied / "program.py").read_text().replace("total=0", "total=1"))
    assert dd("run", "-q") == (0, [], [])
    code, out, err = dd("verify")
    assert (code, out) == (2, [])
    held = "journeys at version 5 holds what was published before run 2, whose corrections follow version 5"
    assert err == [
        f"error: verify: {held}",
        "  publish them with: ddcore run --to-version 6",
    ]
    assert dd("verify", "--at", "3")[2][0].startswith("error: --at: journeys at version 3 holds")
    assert dd("explain", "journeys", "stop=Zoo")[2][0] == f"error: explain: {held}"
    assert dd("run")[2] == [
        "nothing new: version 5 is folded",
        "journeys changes at version 6; to fold it now, without rows: ddcore run --to-version 6",
    ]
    assert dd("run", "-q") == (0, [], [])
    assert dd("run", "--to-version", "6", "-q")[0] == dd("verify", "-q")[0] == 0
    assert dd("run")[2] == ["nothing new: version 6 is folded"]
    assert dd("verify", "--at", "5")[2][1] == "  name a time after version 5"


def test_an_error_of_the_program_names_the_version(copied: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ddcore import reference

    def failing(*_: Any) -> Any:
        raise Diverged("loop", (0, 9), 9, 3)

    monkeypatch.setattr(reference, "outputs_of", failing)
    code, _, err = dd("verify", "--at", "3")
    assert code == 1
    assert err[0].startswith("error: on the inputs at version 3, by reference: loop loop did not reach a fixed point")


# --- where the law is not claimed -------------------------------------------------------------------------------------


@pytest.mark.sample(8, of="windows")
@pytest.mark.parametrize("minutes", ['2 * col("minutes")', 'col("minutes") + 0'], ids=["changed", "same contents"])
def test_versions_before_appended_corrections_are_refused(minutes: str, copied: Path, dd: Any) -> None:
    """They hold what the program before published. What comes after is verified, by the program that made it."""
    (copied / "program.py").write_text((copied / "program.py").read_text().replace('col("minutes")', minutes))
    assert dd("run", "--corrections", "append", "-q")[0] == 0
    code, out, err = dd("verify", "--at", "3")
    assert (code, out) == (2, [])
    assert "version 3 holds what was published before run 2, whose corrections follow version 5" in err[0]
    is_same = minutes.endswith("+ 0")
    assert dd("verify")[0] == (0 if is_same else 2), "version 5 does too, unless there was nothing to correct"
    (copied / "more.csv").write_text("version,diff,src,dst,minutes\n7,1,Castle,Harbour,1\n8,1,A,B,1\n")
    assert dd("ingest", "links", "more.csv", "-q")[0] == 0
    for _ in range(2):
        assert dd("run", "-q", "--verify-every", "1", "--to-version", "7")[0] == 0
    assert dd("run", "-q", "--verify-every", "1")[0] == 0
    code, out, _ = dd("verify", "--every", "1", "--json")
    assert code == 0
    versions = [record["version"] for record in records(out)]
    assert versions[-2:] == [7, 8]
    assert min(versions) == (5 if is_same else 6)
    assert dd("verify", "--at", "5")[0] == (0 if is_same else 2)
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert dd("verify", "--at", "1..")[0] == 0, "all versions are of one program again"


@pytest.mark.sample(8, of="windows")
def test_corrections_of_one_output_leave_the_others_verifiable(copied: Path, dd: Any) -> None:
    text = (copied / "program.py").read_text()
    two = 'journeys = begin.iterate(ride)\n    return {"journeys": journeys, "far": journeys.where("total > 10")}'
    text = text.replace('return {"journeys": begin.iterate(ride)}', two)
    (copied / "program.py").write_text(text)
    assert dd("run", "--full-refresh", "-q")[0] == 0
    (copied / "program.py").write_text(text.replace("> 10", "> 12"))
    assert dd("run", "-q")[0] == 0
    code, out, err = dd("verify", "--at", "2..3")
    assert code == 0
    assert [line.split()[:5] for line in out] == [["holds", "journeys", "at", "version", at] for at in ("2", "3")]
    assert err == [
        "left out: far at version 3 holds what was published before run 3, whose corrections follow version 5; also at "
        "1 of the times before"
    ]
    assert dd("verify", "journeys", "--every", "1", "-q") == (0, [], [])
    for named in (["far"], ["journeys", "far"]):
        code, out, err = dd("verify", *named, "--at", "3")
        assert (code, out) == (2, [])
        assert err[0].startswith("error: --at: far at version 3 holds what was published")
    assert dd("run", "--to-version", "6", "-q")[0] == 0
    verified = records(dd("verify", "--at", "6", "--json")[1])
    assert [(record["output"], record["holds"]) for record in verified] == [("far", True), ("journeys", True)]


@pytest.mark.sample(8, of="windows")
def test_appending_nothing_leaves_all_versions_verifiable(copied: Path, dd: Any) -> None:
    """Unless the log held something else in between, which adds up to the same in the end."""
    assert dd("run", "--full-refresh", "--corrections", "append", "-q")[0] == 0
    assert dd("verify", "--at", "1..")[0] == 0
    project = find_project(copied, {})
    trams_with_a_wrong_row(project)
    row = {"stop": "Harbour", "total": 99, "version": 5, "diff": -2}
    add_row(project, "journeys", Verification(project).plan.outputs["journeys"], row)
    assert dd("verify", "--at", "4")[0] == 3
    assert dd("run", "--full-refresh", "--corrections", "append", "-q")[0] == 0
    code, _, err = dd("verify", "--at", "4")
    assert code == 2
    assert "journeys at version 4 holds what was published before run 5" in err[0]
    assert dd("verify")[0] == 0, "at version 5 there was nothing to correct"


def test_a_range_without_a_beginning_starts_at_the_first_version_that_can_be_read(copied: Path, dd: Any) -> None:
    def verified() -> list[int]:
        return [record["version"] for record in records(dd("verify", "--at", "..latest", "--json")[1])]

    assert verified() == [1, 2, 3, 4, 5]
    assert dd("compact", "--since", "3", "-q")[0] == 0
    assert verified() == [3, 4, 5]


def test_inputs_that_were_restated_are_folded_first(copied: Path, dd: Any) -> None:
    """Until the next run the outputs are those of the inputs before."""
    ledger = Ledger.load(Warehouse(copied / "warehouse"), Writer())
    record = list(ledger.ingests("links"))[-1]
    ledger.append(replace(record, number=ledger.next_ingest(), restates=((4,),)))
    assert dd("verify", "--at", "3")[0] == 0
    code, _, err = dd("verify", "--at", "4")
    assert code == 2
    assert "version 4: the inputs have changed from version 4 on since they were folded" in err[0]
    assert err[1].strip() == "first: ddcore run"


# --- several dimensions -----------------------------------------------------------------------------------------------


@pytest.fixture
def figures(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bitemporal example, folded to two corners."""
    dd("init", str(tmp_path / "figures"), "--example", "bitemporal", "-q")
    monkeypatch.chdir(tmp_path / "figures")
    for source in ("data/report.csv", "data/restated.csv"):
        assert dd("ingest", "sales", source, "-q")[0] == 0
    assert dd("run", "--to", "day=5,revision=2", "-q")[0] == 0
    assert dd("run", "--to", "day=7,revision=1", "-q")[0] == 0
    return tmp_path / "figures"


@pytest.mark.sample(8, of="windows")
def test_times_of_several_dimensions(figures: Path, dd: Any) -> None:
    """Without --at: every greatest complete time. Any complete time may be named, also one without updates."""
    code, out, _ = dd("verify", "leader", "--json")
    assert code == 0
    assert [record["time"] for record in records(out)] == [{"day": 5, "revision": 2}, {"day": 7, "revision": 1}]
    for by in WAYS:
        code, out, _ = dd("verify", "--by", by, "--at", "day=6,revision=1", "--at", "revision=0,day=2")
        assert code == 0
        assert len(out) == 4
    for options, says in (
        (["--at", "day=6,revision=2"], "--at: day=6,revision=2 is not yet complete: since is"),
        (["--at", "3"], "--at: '3' is not a time of day, revision"),
        (["--last", "2"], "--last 2: dd.toml has the time dimensions day, revision"),
        (["--every", "2"], "--every 2: dd.toml has the time dimensions day, revision"),
    ):
        code, _, err = dd("verify", *options)
        assert code == 2
        assert says in err[0]


def test_a_wrong_row_at_a_time_of_two_dimensions(figures: Path, dd: Any) -> None:
    project = find_project(figures, {})
    schema = Verification(project).plan.outputs["leader"]
    add_row(project, "leader", schema, {"shop": "Quay", "total": 1, "day": 6, "revision": 1, "diff": 1})
    code, out, err = dd("verify", "--json")
    assert code == 3
    held = {(record["output"], *record["time"].values()): record["holds"] for record in records(out) if "by" in record}
    assert held == {("leader", 5, 2): True, ("totals", 5, 2): True, ("leader", 7, 1): False, ("totals", 7, 1): True}
    assert "leader at day=7,revision=1 is not what the program gives" in err[0]


# --- after a run ------------------------------------------------------------------------------------------------------


@pytest.mark.sample(8, of="windows")
@pytest.mark.parametrize(("every", "versions"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4]), (5, [5]), (6, []), (0, [])])
def test_a_run_verifies_the_versions_that_are_due(every: int, versions: list[int], copied: Path, dd: Any) -> None:
    code, out, _ = dd("run", "--full-refresh", "--verify-every", str(every), "--json")
    assert code == 0
    *lines, last = records(out)
    assert [record["version"] for record in lines if "by" in record] == versions
    assert last["command"] == "run"
    assert last["verified"] == [
        {name: value for name, value in record.items() if name != "schema_version"}
        for record in lines
        if "by" in record
    ]
    assert [(item["version"], item["holds"], item["differing"]) for item in last["verified"]] == [
        (version, True, 0) for version in versions
    ]
    assert not [record for record in records(dd("run", "--verify-every", "1", "--json")[1]) if "by" in record]


@pytest.mark.sample(8, of="windows")
def test_only_versions_of_the_window_are_verified(fresh: Path, dd: Any) -> None:
    for name in ("links", "starts"):
        dd("ingest", name, f"data/{name}.csv", "-q")
    for end, versions in (("1", []), ("3", [2]), ("5", [4])):
        code, out, _ = dd("run", "--to-version", end, "--verify-every", "2", "--json")
        assert (code, [record["version"] for record in records(out) if "by" in record]) == (0, versions)


def test_a_run_that_finds_a_mismatch_stays_recorded(copied: Path, dd: Any) -> None:
    project = find_project(copied, {})
    trams_with_a_wrong_row(project)
    (copied / "more.csv").write_text("version,diff,src,dst,minutes\n6,1,Castle,Harbour,1\n")
    assert dd("ingest", "links", "more.csv", "-q")[0] == 0
    code, out, err = dd("run", "--verify-every", "3")
    assert code == 3
    assert [record["command"] for record in records(out)] == ["run"], "stdout is for programs"
    (verified,) = records(out)[0]["verified"]
    assert (verified["output"], verified["version"], verified["holds"]) == ("journeys", 6, False)
    assert (verified["by"], verified["rows"], verified["differing"]) == ("reference", 7, 1)
    assert any(line.startswith("differs  journeys at version 6") for line in err)
    assert err[-2].startswith("error: journeys at version 6 is not what the program gives")
    assert "the runs stay recorded" in err[-1]
    assert "ddcore run --full-refresh" in err[-1]
    run = Ledger.load(Warehouse(project.warehouse)).current_run()
    assert run is not None
    assert run.last == time_of(6)
    assert dd("run", "--verify-every", "3")[0] == 0, "there is nothing new"


def test_the_setting_in_the_file_and_in_the_environment(
    copied: Path, dd: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trams_with_a_wrong_row(find_project(copied, {}))
    file = copied / "dd.toml"
    text = file.read_text()
    (copied / "more.csv").write_text(
        "version,diff,src,dst,minutes\n" + "".join(f"{version},1,A,B,{version}\n" for version in range(6, 10))
    )
    assert dd("ingest", "links", "more.csv", "-q")[0] == 0
    file.write_text(text.replace("[run]", "[run]\nverify_every = 2"))
    assert dd("run", "--to-version", "6", "-q")[0] == 3
    assert dd("run", "--to-version", "7", "-q", "--verify-every", "0")[0] == 0
    monkeypatch.setenv("DDCORE_VERIFY_EVERY", "9")
    assert dd("run", "--to-version", "8", "-q")[0] == 0
    assert run_command(["run", "--project", str(copied)]) == 3
    said = capsys.readouterr()
    assert records(said.out.splitlines())[-1]["last"] == 9
    assert [record["holds"] for record in records(said.out.splitlines())[-1]["verified"]] == [False]
    assert "error: journeys at version 9 is not what the program gives" in said.err
    for value in ("-1", "x"):
        monkeypatch.setenv("DDCORE_VERIFY_EVERY", value)
        assert dd("run")[0] == 2
    monkeypatch.delenv("DDCORE_VERIFY_EVERY")
    for wrong in ("-1", '"2.5"', "true", "1.5"):
        file.write_text(text.replace("[run]", f"[run]\nverify_every = {wrong}"))
        code, _, err = dd("run")
        assert code == 2
        assert "verify_every: must be a whole number from 0 up" in err[0]


@pytest.mark.sample(8, of="windows")
def test_with_several_dimensions_every_second_run_is_verified(tmp_path: Path, dd: Any, monkeypatch: Any) -> None:
    dd("init", str(tmp_path / "figures"), "--example", "bitemporal", "-q")
    monkeypatch.chdir(tmp_path / "figures")
    dd("ingest", "sales", "data/report.csv", "-q")
    verified = []
    for day in range(1, 5):
        code, out, _ = dd("run", "--to", f"day={day},revision=0", "--verify-every", "2", "--json")
        assert code == 0
        verified.append([(record["output"], record["time"]["day"]) for record in records(out) if "by" in record])
    assert verified == [[], [("leader", 2), ("totals", 2)], [], [("leader", 4), ("totals", 4)]]


# --- random programs, real data, Spark --------------------------------------------------------------------------------


SEEDS = range(3)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_hold_at_every_time_both_ways(seed: int, tmp_path: Path) -> None:
    check_random(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(len(SEEDS), 200))
def test_more_random_programs_hold_at_every_time_both_ways(seed: int, tmp_path: Path) -> None:
    check_random(seed, tmp_path)


def check_random(seed: int, folder: Path) -> None:
    """Folded in two runs; at each time that is complete after the first and after the second. One update more or less
    in an output is then found, at all times at or after its own.
    """
    drawn, rng = case(seed, plain=True), random.Random(seed)
    project = replace(project_of(folder / "p", drawn), engine="inline")
    times = sorted({Time(time) for frame in drawn.frames.values() for time in frame.select(project.dims).iter_rows()})
    tops = [times[len(times) // 2], None]
    for last in tops:
        try:
            replay.run(project, last=last, engine="inline")
        except FoldError:
            return  # a loop that diverges, a count that does not fit: nothing more is folded
        claims = Verification(project).claims
        complete = [time for time in times if not is_open(time, claims.upper)]
        for by in WAYS:
            for verdict in verdicts_of(project, *rng.sample(complete, min(2, len(complete))), by=by):
                assert verdict.holds, f"{verdict}\n{drawn}"
    output = rng.choice(Verification(project).outputs())
    schema = Verification(project).plan.outputs[output]
    time = rng.choice(times)
    row = dict.fromkeys(schema) | dict(zip(project.dims, time, strict=True))
    add_row(project, output, schema, row | {"diff": rng.choice([-1, 1])})
    for by in WAYS:
        failed = [verdict for verdict in verdicts_of(project, time, by=by) if not verdict.holds]
        assert [(verdict.output, verdict.time, len(verdict.differing)) for verdict in failed] == [(output, time, 1)]
        assert failed[0].differing.drop(EXPECTED, ACTUAL).row(0) == (None,) * len(schema)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The package set, its first 300 versions folded in three runs."""
    folder = tmp_path_factory.mktemp("packages") / "p"
    folder.mkdir()
    source = Path(str(example("packages").__code__.co_filename))
    (folder / "program.py").write_text(source.read_text())
    (folder / "dd.toml").write_text((source.parent / "dd.toml").read_text())
    project = replace(find_project(folder, {}), engine="inline")
    take_in(project, "dependencies", pl.read_parquet(shared_data("package_sets", "dependencies.parquet")))
    for last in (100, 200, 300):
        replay.run(project, last=time_of(last), engine="inline")
    return project


@pytest.mark.sample(1, of="large")
def test_the_package_set_holds_both_ways(packages: Project) -> None:
    by_size = verdicts_of(packages, 0, 300)
    assert [verdict.by for verdict in by_size] == [*["reference"] * 3, *["scratch"] * 3], "by the rows of the input"
    both = [*by_size, *verdicts_of(packages, 300, by="reference")]
    assert all(verdict.holds for verdict in both)
    assert [verdict.rows > 1000 for verdict in both if verdict.output == "depends"] == [False, True, True]


@pytest.mark.sample(8, of="windows")
def test_scratch_by_several_workers(packages: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sparkless.install(monkeypatch)
    on_spark = replace(packages, engine="spark", parallelism=3)
    assert all(verdict.holds for verdict in verdicts_of(on_spark, 3, by="scratch", scratch=tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_scratch_on_spark(here: Path, spark: Any, tmp_path: Path) -> None:
    on_spark = replace(find_project(here, {}), engine="spark", parallelism=2)
    assert [verdict.rows for verdict in verdicts_of(on_spark, 4, 5, by="scratch", scratch=tmp_path)] == [5, 7]
    assert all(verdict.holds for verdict in verdicts_of(on_spark, 4, by="scratch", scratch=tmp_path))
    assert list(tmp_path.iterdir()) == []


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_the_commands_print(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the second block the output is made wrong."""

    def spoil(block: int) -> None:
        if block == 1:
            trams_with_a_wrong_row(find_project(Path.cwd(), {}))

    pages.follow("verification.md", tmp_path, dd, monkeypatch, steps=16, before=spoil)


@pytest.mark.sample(1, of="large")
def test_a_thousand_nested_choices_need_no_more_stack_than_there_is(tmp_path: Path) -> None:
    """As many by a stack of 8 MiB; here an eighth of both. Polars descends an expression by recursion."""
    terms = ", ".join(f"NULLIF(a, {number})" for number in range(120))
    (tmp_path / "deep.sql").write_text(f"CREATE VIEW found AS SELECT COALESCE({terms}) AS v FROM t;\n")
    (tmp_path / "dd.toml").write_text(
        '[project]\nprogram = "deep.sql"\n[run]\nengine = "inline"\n[inputs.t]\nschema = { a = "int64" }\n'
    )
    (tmp_path / "t.csv").write_text("version,diff,a\n0,1,1\n0,1,500\n")

    def little_stack() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))

    for words in (["ingest", "t", "t.csv"], ["run"], ["verify", "--by", "reference"]):
        command = [sys.executable, "-m", "ddcore.cli.main", *words]
        limit = little_stack if "verify" in words else None
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=limit)
        assert ended.returncode == 0, (words, ended)
    assert ended.stdout.startswith("holds    found at version 0  2 rows  by reference")


def test_a_call_with_a_deep_stack_returns_and_raises_as_any() -> None:
    assert deep_stack.call(lambda: threading.current_thread().name) == "deep stack"
    before = threading.stack_size()
    with pytest.raises(Mismatch, match="as any"):
        deep_stack.call(failing)
    assert threading.stack_size() == before


def failing() -> None:
    raise Mismatch("as any")


def test_without_memory_for_a_stack_the_call_has_the_one_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert deep_stack.call(lambda: threading.current_thread().name) == "MainThread"
