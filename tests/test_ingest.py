"""Ingest without Spark: what gets in, what is known already, what is refused, and that a refusal leaves nothing."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from ingesting import EDGES, Desk
from places import local
from real_data import shared_data
from warehouses import last_closed

from ddcore.base.errors import DataError, DdError, LateUpdate, LockHeld, StorageError, UnknownRetraction, UsageError
from ddcore.base.schema import Type
from ddcore.base.tuning import Tuning
from ddcore.cli.main import run_command
from ddcore.io.delta.deltalog import commit_file
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.records import FailureRecord, IntentRecord, RunRecord
from ddcore.io.logs.balance import Balance
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def refused(desk: Desk, kind: type[DdError], *sources: str, **asked: Any) -> DdError:
    """The error of an ingest, which has left everything as it was."""
    before = str(desk.updates()), len(desk.records())
    with pytest.raises(kind) as caught:
        desk.ingest(*sources, **asked)
    assert type(caught.value) is kind
    assert (str(desk.updates()), len(desk.records())) == before
    assert desk.stray_files() == []
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


# --- what gets in -----------------------------------------------------------------------------------------------------


def test_the_first_ingest_makes_the_input(desk: Desk) -> None:
    report = desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), (2, 3, 0, 1), (1, 2, 3, -1)))
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 0, 1), (1, 2, 3, -1)]
    assert (report.ingest, report.rows, report.plus, report.minus) == (1, 3, 2, 1)
    assert (report.first, report.last, report.versions, report.nothing_new) == (time_of(0), time_of(3), 2, False)
    (record,) = desk.records()
    assert record.counts == {time_of(0): (2, 0), time_of(3): (0, 1)} and record.rows == 3
    assert DeltaTable(str(desk.log.folder)).protocol().min_reader_version == 1


def test_later_ingests_append(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    report = desk.ingest(desk.source("b.csv", (1, 2, 5, -1), (2, 3, 4, 1)))
    assert report.ingest == 2
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 4, 1), (1, 2, 5, -1)]


def test_versions_may_come_in_any_order_while_they_are_open(desk: Desk) -> None:
    desk.ingest(desk.source("late.parquet", (1, 2, 7, 1)))
    desk.ingest(desk.source("early.parquet", (1, 2, 2, 1), (1, 2, 6, -1)))
    assert desk.updates() == [(1, 2, 2, 1), (1, 2, 6, -1), (1, 2, 7, 1)]


def test_files_folders_globs_and_delta_tables_at_once(desk: Desk) -> None:
    file = desk.source("a.parquet", (1, 1, 0, 1))
    desk.source("folder/version=3/x.parquet", (2, 2, 0, 1))
    pl.read_parquet(f"{desk.folder}/folder/version=3/x.parquet").drop("version").write_parquet(
        f"{desk.folder}/folder/version=3/x.parquet"
    )
    desk.source("glob-1.csv", (3, 3, 1, 1))
    table = pl.DataFrame({"src": [4], "dst": [4], "version": [2], "diff": [2]})
    write_deltalake(str(desk.folder / "delta"), table.to_arrow())
    report = desk.ingest(file, f"{desk.folder}/folder", f"{desk.folder}/glob-*", f"{desk.folder}/delta")
    assert desk.updates() == [(1, 1, 0, 1), (3, 3, 1, 1), (4, 4, 2, 2), (2, 2, 3, 1)]
    assert report.rows == 4


def test_sources_without_version_and_diff(desk: Desk) -> None:
    file = str(desk.folder / "edges.csv")
    Path(file).write_text("from,dst\n1,2\n1,2\n")
    desk.ingest(file, version=9, diff=1, column={"src": "from"})
    assert desk.updates() == [(1, 2, 9, 2)]


def test_columns_left_out_are_noted(desk: Desk) -> None:
    report = desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), note=["x"], who=["y"]))
    assert report.notes == (f"{desk.folder}/a.parquet: columns left out: note, who",)


def test_T46_multiplicities_are_kept_and_cancel_within_a_version(desk: Desk) -> None:
    updates = [(1, 2, 0, 1), (1, 2, 0, 1), (1, 2, 1, -2), (5, 5, 1, -1), (5, 5, 1, 1), (6, 6, 2, 2), (6, 6, 2, -1)]
    desk.ingest(desk.source("a.parquet", *updates))
    assert desk.updates() == [(1, 2, 0, 2), (1, 2, 1, -2), (6, 6, 2, 1)]


def test_large_sources_are_written_in_several_files_by_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path, tuning=Tuning(file_rows=1_000))
    rng = random.Random(5)
    updates = [(rng.randrange(50), rng.randrange(50), rng.randrange(9), 1) for _ in range(3_000)]
    names = [desk.source(f"{part}.parquet", *updates[part * 500 : part * 500 + 500]) for part in range(6)]
    desk.ingest(*names)
    files = desk.log.files(desk.ledger.input_table("edges"))
    assert len(files) == 3
    for file in files:
        rows = pl.read_parquet(local(desk.log.folder) / file.path).select("version", "src", "dst").rows()
        assert [row[0] for row in rows] == sorted(row[0] for row in rows) and len(rows) == len(set(rows))
    assert sum(diff for *_, diff in desk.updates()) == 3_000


# --- what is known already --------------------------------------------------------------------------------------------


def test_the_same_content_again_is_a_no_op_that_says_so(desk: Desk) -> None:
    updates = [(1, 2, 0, 2), (2, 3, 0, 1), (1, 2, 3, -1)]
    desk.ingest(desk.source("a.parquet", *updates))
    desk.fold(3)
    for name in ("a.parquet", "other.parquet", "text.csv"):
        report = desk.ingest(desk.source(name, *reversed(updates)))
        assert report.nothing_new and report.ingest == 1
    split = [(1, 2, 0, 1), (1, 2, 0, 1), (1, 2, 0, 0), *updates[1:]]
    assert desk.ingest(desk.source("split.parquet", *split)).nothing_new
    assert len(desk.records()) == 1 and desk.stray_files() == []


def test_one_value_more_or_less_is_other_content(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    for number, update in enumerate([(1, 2, 0, 2), (1, 2, 1, 1), (2, 1, 0, 1), (1, 3, 0, 1)]):
        assert not desk.ingest(desk.source(f"{number}.parquet", update)).nothing_new


def test_a_glob_that_grows_brings_only_what_is_new(desk: Desk) -> None:
    for day in range(3):
        desk.source(f"days/{day}.parquet", (day, day, day, 1), (9, 9, day, 1))
        locations = [f"{desk.folder}/days/*.parquet", f"{desk.folder}/days"]
        report = desk.ingest(locations[day % 2])
        assert report.ingest == day + 1
        desk.fold(day)
    assert desk.updates() == sorted(
        [(day, day, day, 1) for day in range(3)] + [(9, 9, day, 1) for day in range(3)], key=lambda row: row[2]
    )
    assert "0.parquet, " in report.notes[0] and "ingested before" in report.notes[0]
    assert desk.ingest(*locations).nothing_new
    assert desk.stray_files() == []


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "folder/part.parquet"])
def test_a_change_log_that_grows_brings_only_its_new_versions(desk: Desk, name: str) -> None:
    updates = [(1, 2, 0, 1), (2, 3, 1, 1), (1, 2, 1, -1), (3, 4, 2, 1), (2, 3, 5, -1), (9, 9, 7, 1)]
    location = str(Path(desk.source(name, *updates[:3])).parent) if "/" in name else desk.source(name, *updates[:3])
    desk.ingest(location)
    for upto in (4, 5, 6):
        desk.fold(max(version for *_, version, _ in desk.updates()))
        desk.source(name, *updates[:upto])
        report = desk.ingest(location)
        assert report.plus + report.minus == 1 and "taken in after version" in report.notes[0]
        assert desk.ingest(location).nothing_new
    assert desk.updates() == sorted(updates, key=lambda row: (row[2], row[0]))


def test_a_delta_table_that_grows_brings_only_its_new_versions(desk: Desk) -> None:
    for version in range(3):
        rows = pl.DataFrame({"src": [version], "dst": [0], "version": [version], "diff": [1]})
        write_deltalake(str(desk.folder / "delta"), rows.to_arrow(), mode="append")
        report = desk.ingest(f"{desk.folder}/delta")
        assert (report.first, report.last, report.plus) == (time_of(version), time_of(version), 1)
        desk.fold(version)
    assert desk.updates() == [(0, 0, 0, 1), (1, 0, 1, 1), (2, 0, 2, 1)]


def test_a_file_with_other_rows_under_an_old_name_is_new_and_noted(desk: Desk) -> None:
    desk.ingest(desk.source("export.parquet", (1, 2, 0, 1)))
    report = desk.ingest(desk.source("export.parquet", (1, 2, 1, 1)))
    assert "export.parquet: ingest 1 took in other rows" in report.notes[0]
    assert desk.updates() == [(1, 2, 0, 1), (1, 2, 1, 1)]
    # another file may begin with the same rows: that is its own affair
    desk.ingest(desk.source("other.parquet", (1, 2, 0, 1), (1, 2, 2, 1)))
    assert desk.updates() == [(1, 2, 0, 2), (1, 2, 1, 1), (1, 2, 2, 1)]


def test_a_retraction_in_the_new_part_of_a_grown_source_is_judged(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    error = refused(desk, UnknownRetraction, desk.source("a.parquet", (1, 2, 0, 1), (1, 2, 1, -2)))
    assert "retracts src=1, dst=2 at version 1" in error.message
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), (1, 2, 1, -1)))
    assert desk.updates() == [(1, 2, 0, 1), (1, 2, 1, -1)]


def test_one_file_with_all_that_came_in_several_is_known(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)), desk.source("b.parquet", (1, 2, 1, -1)))
    assert desk.ingest(desk.source("both.parquet", (1, 2, 0, 1), (1, 2, 1, -1))).nothing_new


def test_a_copy_counts_once_and_equal_files_of_a_folder_each(desk: Desk) -> None:
    a, copy = desk.source("a.parquet", (1, 2, 0, 1)), desk.source("copy.parquet", (1, 2, 0, 1))
    report = desk.ingest(a, copy)
    assert "copy.parquet: left out" in report.notes[0]
    assert desk.updates() == [(1, 2, 0, 1)]
    for part in ("part-0", "part-1"):
        desk.source(f"folder/{part}.parquet", (7, 7, 0, 1))
    desk.ingest(f"{desk.folder}/folder")
    assert desk.updates() == [(1, 2, 0, 1), (7, 7, 0, 2)]


def test_updates_that_cancel_out_are_nothing_new(desk: Desk) -> None:
    report = desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), (1, 2, 0, -1)))
    assert report.nothing_new and report.ingest == 0 and report.notes
    assert desk.records() == [] and desk.updates() == []


# --- the same rows by another path ------------------------------------------------------------------------------------


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "spelling",
    ["../data/a.csv", "./../sub/../data/a.csv", "../link.csv", "../folder/a.csv", "url", "../data", "../data/*.csv"],
)
@pytest.mark.parametrize("first", ["absolute", "link"])
def test_a_grown_file_under_another_spelling_brings_only_its_new_rows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, spelling: str, first: str
) -> None:
    file = Path(desk.source("data/a.csv", (1, 2, 0, 1)))
    (desk.folder / "sub").mkdir()
    (desk.folder / "link.csv").symlink_to(file)
    (desk.folder / "folder").symlink_to(file.parent)
    monkeypatch.chdir(desk.folder / "sub")
    desk.ingest("../link.csv" if first == "link" else str(file))
    desk.fold(0)
    desk.source("data/a.csv", (1, 2, 0, 1), (2, 3, 1, 1))
    report = desk.ingest(file.as_uri() if spelling == "url" else spelling)
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 1, 1)]
    assert "taken in after version 0; ingest 1 has the rows up to there" in report.notes[0]
    assert desk.ingest(str(file)).nothing_new


def test_a_moved_project_knows_its_sources(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    desk.ingest(desk.source("data/a.csv", (1, 2, 0, 1)))
    moved = tmp_path_factory.mktemp("moved") / "project"
    desk.folder.rename(moved)
    there = Desk(moved)
    there.ingest(there.source("data/a.csv", (1, 2, 0, 1), (2, 3, 1, 1)))
    assert there.updates() == [(1, 2, 0, 1), (2, 3, 1, 1)]
    assert [source.name for record in there.records() for source in record.sources] == ["data/a.csv"] * 2


def test_a_link_to_a_newer_file_is_the_same_source(desk: Desk) -> None:
    desk.source("1.csv", (1, 2, 0, 1))
    desk.source("2.csv", (1, 2, 0, 1), (2, 3, 1, 1))
    link = desk.folder / "latest.csv"
    link.symlink_to("1.csv")
    desk.ingest(str(link))
    link.unlink()
    link.symlink_to("2.csv")
    assert "taken in after version 0" in desk.ingest(str(link)).notes[0]
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 1, 1)]


def test_two_files_that_begin_alike_both_count_and_a_note_says_so(desk: Desk) -> None:
    desk.ingest(desk.source("a.csv", (1, 2, 0, 1), (5, 5, 1, 1)))
    report = desk.ingest(desk.source("b.csv", (1, 2, 0, 1), (5, 5, 1, 1), (6, 6, 2, 1)))
    assert desk.updates() == [(1, 2, 0, 2), (5, 5, 1, 2), (6, 6, 2, 1)]
    assert "begins with the rows that ingest 1 took in from another place, up to version 1" in report.notes[0]
    assert "--undo 2" in report.notes[0]


def test_digests_are_keyed_by_a_key_of_the_ledger(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Desk(tmp_path_factory.mktemp("other"))
    for one in (desk, other):
        one.ingest(one.source("a.csv", (1, 2, 0, 1)))
        one.ingest(one.source("b.csv", (1, 2, 1, 1)))
    texts = [[record.sources[0].digest for record in one.records()] for one in (desk, other)]
    keys = [{text.partition(":")[0] for text in one} for one in texts]
    assert [len(one) for one in keys] == [1, 1] and keys[0] != keys[1]
    assert not set(texts[0]) & set(texts[1])


# --- counts that exceed one -------------------------------------------------------------------------------------------


def test_rows_that_count_more_than_once_for_the_first_time_are_noted(desk: Desk) -> None:
    snapshot = [(number, number, 0, 1) for number in range(5)]
    report = desk.ingest(desk.source("a.csv", *snapshot))
    assert (report.repeated, report.repeated_first, report.notes) == (0, None, ())
    again = [(number, number, 1, 1) for number in range(3, 9)]
    report = desk.ingest(desk.source("b.csv", *again))
    assert (report.repeated, report.repeated_first) == (2, "src=3, dst=3 has the count 2 as of version 1")
    assert report.notes == (
        "2 rows count more than once from now on, and none did before: src=3, dst=3 has the count 2 as of version 1. "
        "Was it ingested before, in another form? Take it back with: ddcore ingest --undo 2",
    )
    report = desk.ingest(desk.source("c.csv", (8, 8, 2, 1)))  # some did before
    assert (report.repeated, report.notes) == (0, ())


@pytest.mark.parametrize(
    ("updates", "repeated"),
    [
        ([(1, 1, 0, 1), (1, 1, 0, 1)], 1),
        ([(1, 1, 0, 1), (1, 1, 3, 1)], 1),
        ([(1, 1, 0, 1), (1, 1, 3, 1), (1, 1, 2, -1)], 0),
        ([(1, 1, 0, 1), (1, 1, 3, 1), (1, 1, 4, -1)], 1),
        ([(1, 1, 0, 2), (2, 2, 0, 5), (3, 3, 0, 1)], 2),
        ([(1, 1, 0, 2), (1, 1, 0, -1)], 0),
    ],
)
def test_a_count_is_judged_at_every_version(desk: Desk, updates: Any, repeated: int) -> None:
    assert desk.ingest(desk.source("a.csv", *updates)).repeated == repeated
    assert desk.records()[0].repeats == (repeated > 0)


def test_the_log_is_not_scanned_where_nothing_can_repeat(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def scanned(*_: Any) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr(Balance, "counts", scanned)
    desk.ingest(desk.source("a.csv", (1, 1, 0, 1), (2, 2, 0, 1)))  # consolidated at one version
    with pytest.raises(AssertionError):
        desk.ingest(desk.source("b.csv", (3, 3, 1, 1)))
    desk.project = replace(desk.project, tuning=Tuning(repeating_rows=1, repeating_ratio=1))
    desk.ingest(desk.source("b.csv", (3, 3, 1, 1)))  # a log much larger than the source


def test_a_snapshot_ingested_twice_is_seen_in_a_sample(desk: Desk) -> None:
    desk.project = replace(desk.project, tuning=Tuning(repeating_sample=100))
    desk.ingest(desk.source("a.csv", *[(number, 7, 0, 1) for number in range(5000)]))
    report = desk.ingest(desk.source("b.csv", *[(number, 7, 1, 1) for number in range(5000)]))
    assert 20 < report.repeated < 500


def test_counts_that_leave_int64_are_refused(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 2**62), (5, 5, 0, 2**62)))
    desk.ingest(desk.source("b.parquet", (1, 2, 3, 2**62 - 1), (5, 5, 9, -1)))
    error = refused(desk, DataError, desk.source("c.parquet", (7, 7, 1, 1), (1, 2, 2, 1)))
    assert "src=1, dst=2 would have the count 9223372036854775808 as of version 3, beyond int64" in error.message
    desk.ingest(desk.source("d.parquet", (7, 7, 1, 1), (5, 5, 1, 2**62 - 1)))


# --- versions far beyond all others -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "versions", "gap"),
    [
        ([], [20261122, 20261123], None),
        ([0], [20261122], None),
        ([20261122], [20270101], None),
        ([12], [13, 900_000], None),
        ([12], [20261122], (12, 20261122)),
        ([], [0, 1, 12, 2**62], (12, 2**62)),
        ([20261122], [2**62], (20261122, 2**62)),
        ([1_763_000_000], [1_763_000_000_000], (1_763_000_000, 1_763_000_000_000)),
        ([20261122], [3], None),
    ],
)
def test_a_version_far_beyond_all_others_needs_consent(
    desk: Desk, before: list[int], versions: list[int], gap: tuple[int, int] | None
) -> None:
    if before:
        desk.ingest(desk.source("a.csv", *[(1, 2, version, 1) for version in before]))
    good, source = desk.source("good.csv", (9, 9, 1, 1)), desk.source("b.csv", *[(3, v, v, 1) for v in versions])
    if gap:
        error = refused(desk, DataError, good, source)
        assert error.message == f"{source}: version {gap[1]} is far beyond the version before it, {gap[0]}"
        assert "--allow-gap" in error.hint
    desk.ingest(source, allow_gap=gap is not None)
    assert len(desk.updates()) == len(before) + len(versions)


def test_late_rows_do_not_move_past_the_last_version(desk: Desk) -> None:
    desk.ingest(desk.source("a.csv", (1, 2, 2**63 - 2, 1)))
    desk.fold(2**63 - 2)
    late = desk.source("late.csv", (1, 2, 5, 1))
    assert "no version is larger" in refused(desk, LateUpdate, late, late="move").message


# --- late rows --------------------------------------------------------------------------------------------------------


def test_late_rows_are_refused_with_their_count_and_the_first(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), (1, 2, 4, 1)))
    desk.fold(4)
    late = desk.source("late.parquet", (7, 8, 9, 1), (5, 6, 4, 1), (3, 4, 2, 1), (2, 9, 2, 1))
    error = refused(desk, LateUpdate, late)
    assert error.message == (
        f"3 of 4 rows are late: version 4 is closed; the first is src=2, dst=9 at version 2 in {late}"
    )
    assert "--late move" in error.hint


def test_late_rows_may_move_to_the_next_open_version(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), (1, 2, 4, 1)))
    desk.fold(4)
    late = desk.source("late.parquet", (7, 8, 9, 1), (1, 2, 4, -1), (3, 4, 2, 1), (3, 4, 3, -1))
    report = desk.ingest(late, late="move")
    assert (report.moved, report.first, report.last) == (3, time_of(5), time_of(9))
    assert desk.updates() == [(1, 2, 0, 1), (1, 2, 4, 1), (1, 2, 5, -1), (7, 8, 9, 1)]
    assert desk.ingest(late, late="move").nothing_new and desk.ingest(late).nothing_new


def test_versions_of_a_run_that_is_to_be_finished_are_closed(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), (1, 2, 4, 1)))
    desk.ledger.append(IntentRecord(1, "ab12", time_of(0), time_of(4), parallelism=1, engine="inline"))
    output = ChangeLog(Warehouse(desk.project.warehouse).output("dists"), {"node": Type("int64")}, writer=Writer())
    output.append(pl.DataFrame({"node": [1], "version": [0], "diff": [1]}), 1, base=None)
    assert "version 4 is closed" in refused(desk, LateUpdate, desk.source("b.parquet", (9, 9, 3, 1))).message


def test_versions_of_a_run_that_was_killed_before_it_committed_are_open(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1), (1, 2, 4, 1)))
    desk.ledger.append(IntentRecord(1, "ab12", time_of(0), time_of(4), parallelism=1, engine="inline"))
    assert desk.ingest(desk.source("b.parquet", (9, 9, 3, 1))).last == time_of(3)
    (failure,) = desk.ledger.records(FailureRecord)
    assert (failure.run, failure.error) == (1, "given up: it was not finished, and an ingest came first")
    assert desk.ledger.open_intent() is None


def test_lateness_is_judged_by_what_the_runs_of_the_state_read(desk: Desk) -> None:
    """An input that their program does not have is open at every version; a record without names closes all."""
    nothing: dict[str, Any] = {"inputs": {}, "outputs": {}, "tables": {}}
    for number, names, closed in ((1, (), 4), (2, ("other",), None), (3, ("other", "edges"), 4)):
        desk.ledger.append(
            RunRecord(
                number, "ab12", time_of(0), time_of(4), "inline", 1, rounds=1, took=0.1, program_inputs=names, **nothing
            )
        )
        assert last_closed(desk.ledger, "edges") == time_of(closed)
        source = desk.source(f"{number}.parquet", (number, 9, 3, 1))
        if closed is None:
            assert desk.ingest(source).last == time_of(3)
        else:
            assert "version 4 is closed" in refused(desk, LateUpdate, source).message


# --- retractions ------------------------------------------------------------------------------------------------------


def test_T45_a_retraction_of_a_row_that_never_was_names_row_version_and_source(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    good = desk.source("good.parquet", (5, 6, 2, 1))
    bad = desk.source("bad.csv", (5, 6, 3, -1), (9, 9, 3, -1), (8, 8, 4, -1))
    error = refused(desk, UnknownRetraction, good, bad)
    assert error.message == (
        f"{bad}: retracts src=9, dst=9 at version 3, and the row does not exist: its count would be -1"
    )


@pytest.mark.parametrize(
    ("updates", "says"),
    [
        ([(1, 2, 3, -2)], "at version 3, and the row does not exist: its count would be -1"),
        ([(4, 4, 3, -1), (4, 4, 5, 1)], "retracts src=4, dst=4 at version 3"),
        ([(1, 2, 2, -1)], "at version 2, and the row does not exist: its count would be -1 as of version 7"),
        ([(4, 4, 3, 1), (4, 4, 3, -1), (4, 4, 4, -1)], "retracts src=4, dst=4 at version 4"),
    ],
)
def test_T45_at_no_version_may_a_row_be_there_less_than_never(desk: Desk, updates: Any, says: str) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    desk.ingest(
        desk.source("b.parquet", (1, 2, 7, -1)), *([] if "version 7" in says else [desk.source("c.csv", (1, 2, 6, 1))])
    )
    assert says in refused(desk, UnknownRetraction, desk.source("bad.parquet", *updates)).message


def test_rows_with_nulls_and_nans_are_found_to_be_retracted(tmp_path: Path) -> None:
    schema = {
        "f": "float64",
        "s": "string",
        "b": "bool",
        "d": "date",
        "t": "timestamp",
        "n": "decimal(9,2)",
        "x": "binary",
    }
    desk = Desk(tmp_path, schema)
    nothing = (None,) * 7
    odd = (float("nan"), "é", None, None, None, None, b"\x00")
    full = (1.5, "", True, date(2026, 1, 31), datetime(2026, 1, 31, 12, tzinfo=UTC), Decimal("1.50"), b"")
    zero, minus = (0.0, *(None,) * 6), (-0.0, *(None,) * 6)
    desk.ingest(desk.source("a.parquet", (*nothing, 0, 1), (*odd, 0, 2), (*minus, 0, 1), (*full, 0, 1)))
    desk.ingest(desk.source("b.parquet", (*nothing, 1, -1), (*odd, 1, -2), (*zero, 1, -1), (*full, 1, -1)))
    assert len(desk.updates()) == 8
    error = refused(desk, UnknownRetraction, desk.source("c.parquet", (*odd, 2, -1)))
    assert "c.parquet: retracts f=nan, s='é', b=null, d=null" in error.message
    error = refused(desk, UnknownRetraction, desk.source("d.parquet", (*full, 2, -1)))
    assert "d=2026-01-31, t=2026-01-31 12:00:00+00:00, n=1.50, x=b'' at version 2" in error.message


def test_a_moved_retraction_is_judged_where_it_lands(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 3, 1)))
    desk.fold(3)
    report = desk.ingest(desk.source("b.parquet", (1, 2, 1, -1)), late="move")
    assert report.moved == 1 and desk.updates() == [(1, 2, 3, 1), (1, 2, 4, -1)]
    error = refused(desk, UnknownRetraction, desk.source("c.parquet", (1, 2, 0, -1)), late="move")
    assert "c.parquet: retracts src=1, dst=2 at version 4" in error.message


# --- what is refused --------------------------------------------------------------------------------------------------


def test_an_empty_source_is_refused(desk: Desk) -> None:
    for name in ("a.parquet", "a.csv"):
        assert "no rows" in refused(desk, DataError, desk.source(name)).message


def test_bad_rows_leave_nothing(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    good = desk.source("good.parquet", (7, 7, 1, 1))
    bad = desk.source("bad.parquet", (7, 7, 1, 1), diff=[0.5])
    assert "bad.parquet: column 'diff': 0.5 is not a whole number" in refused(desk, DataError, good, bad).message
    Path(bad).write_bytes(Path(bad).read_bytes()[:-9])
    assert "bad.parquet: not a readable Parquet file" in refused(desk, DataError, good, bad).message


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"late": "drop"}, "--late: 'drop' is none of"),
        ({"diff": 0}, "--diff 0"),
        ({"column": {"source": "src"}}, "has no column 'source'"),
    ],
)
def test_what_cannot_be_asked(desk: Desk, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)), **asked)
    assert says in caught.value.message and caught.value.hint
    assert not local(desk.project.warehouse).exists()


def test_a_second_writer_is_refused_and_told_who_holds_the_lock(desk: Desk) -> None:
    source = desk.source("a.parquet", (1, 2, 0, 1))
    local(desk.project.warehouse).mkdir()
    with Warehouse(desk.project.warehouse).lock("ddcore run"), pytest.raises(LockHeld) as caught:
        desk.ingest(source)
    assert "ddcore run" in caught.value.message and str(os.getpid()) in caught.value.message
    assert not desk.ingest(source).nothing_new


def test_a_changed_input_schema_is_refused(desk: Desk, tmp_path: Path) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    other = Desk(tmp_path, {"src": "int64", "dst": "string"})
    with pytest.raises(StorageError, match="dst"):
        other.ingest(other.source("b.parquet", (1, "2", 1, 1)))
    assert len(Desk(tmp_path).records()) == 1


# --- killed, interrupted, out of space --------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["reading rows", "checking counts", "committing"])
def test_an_interrupt_leaves_nothing_visible(desk: Desk, stage: str) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))

    def listener(said: str, *_: object) -> None:
        if said == stage:
            raise KeyboardInterrupt

    source = desk.source("b.parquet", (1, 2, 1, -1))
    with pytest.raises(KeyboardInterrupt):
        desk.ingest(source, listener=listener)
    assert desk.updates() == [(1, 2, 0, 1)]
    assert desk.stray_files() == []
    assert desk.ingest(source).ingest == 2


def submit(
    desk: Desk, *arguments: str, limit: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the job's entry file in a process of its own; ``limit`` is the size at which the disk is full."""

    def narrow() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "ddcore.cli.main", "ingest", "edges", *arguments, "--engine", "inline"]
    return subprocess.run(
        [*command, "--project", str(desk.folder)], env={**os.environ, **environment}, preexec_fn=narrow,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["after-file", "after-table", "after-ingest"])
def test_killed_anywhere_the_next_ingest_finds_its_way(desk: Desk, point: str) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    killed = desk.source("killed.parquet", (3, 3, 1, 1), (1, 2, 1, -1))
    assert submit(desk, killed, DDCORE_FAILPOINT=point).returncode == -9
    assert len(desk.updates()) == (3 if point == "after-ingest" else 1)
    # another source first: it finishes the killed one if that is committed, and removes its leftovers if not
    done = point != "after-file"
    notes = desk.ingest(desk.source("other.parquet", (8, 8, 2, 1))).notes
    finished = "ingest 2 was killed, or failed, after its commit to edges: it is finished now"
    assert (finished in notes) is (point == "after-table")
    assert len(desk.updates()) == (4 if done else 2)
    assert desk.stray_files() == []
    assert desk.ingest(killed).nothing_new == done
    assert desk.updates() == [(1, 2, 0, 1), (1, 2, 1, -1), (3, 3, 1, 1), (8, 8, 2, 1)]
    seen_by_others = pl.from_arrow(DeltaTable(str(desk.log.folder)).to_pyarrow_table())
    assert isinstance(seen_by_others, pl.DataFrame) and len(seen_by_others) == 4


def test_a_refused_ingest_after_a_kill_finishes_the_killed_one(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    assert submit(desk, desk.source("b.parquet", (3, 3, 1, 1)), DDCORE_FAILPOINT="after-table").returncode == -9
    with pytest.raises(UnknownRetraction):
        desk.ingest(desk.source("c.parquet", (4, 4, 1, -1)))
    assert DeltaTable(str(desk.log.folder)).to_pyarrow_table().num_rows == len(desk.updates()) == 2
    last = desk.records()[-1]
    assert set(last.files) < {file.path for file in desk.log.files(last.table)}


def changes(desk: Desk) -> pl.DataFrame:
    """All rows of the input's change feed; the feed has them in no particular order."""
    feed = pl.DataFrame(DeltaTable(str(desk.log.folder)).load_cdf(starting_version=1).read_all())
    return feed.sort(feed.columns)


def test_a_killed_ingest_without_its_record_is_taken_back(desk: Desk) -> None:
    """As with a commit of another program after it."""
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    b = desk.source("b.parquet", (3, 3, 1, 1))
    assert submit(desk, b, DDCORE_FAILPOINT="after-table").returncode == -9
    commit = local(commit_file(desk.log.folder, DeltaTable(str(desk.log.folder)).version()))
    commit.write_text(commit.read_text().replace('"ddcore":"{', '"other":"{'))
    notes = desk.ingest(desk.source("c.parquet", (4, 4, 1, 1))).notes
    assert any("ingest 2 was started and never finished" in note for note in notes)
    assert desk.updates() == [(1, 2, 0, 1), (4, 4, 1, 1)]
    assert desk.ingest(b).ingest == 3


def test_a_run_finishes_a_killed_ingest(desk: Desk) -> None:
    desk.ingest(desk.source("a.parquet", (1, 2, 0, 1)))
    killed = desk.source("b.parquet", (1, 2, 1, -1), (3, 3, 1, 1))
    assert submit(desk, killed, DDCORE_FAILPOINT="after-table").returncode == -9
    feed = changes(desk)
    (desk.folder / "program.py").write_text("def program(edges):\n    return {'all': edges}\n")
    assert replay.run(desk.project, engine="inline").last == time_of(1)
    assert desk.updates() == [(1, 2, 0, 1), (1, 2, 1, -1), (3, 3, 1, 1)]
    assert changes(desk).equals(feed), "nothing else is seen"
    assert desk.ingest(killed).nothing_new


def test_a_full_disk_leaves_nothing_visible(desk: Desk) -> None:
    rng = random.Random(1)
    updates = [(rng.randrange(2**60), rng.randrange(2**60), 0, 1) for _ in range(20_000)]
    source = desk.source("a.parquet", *updates)
    done = submit(desk, source, limit=100_000)
    assert done.returncode == 1
    assert "cannot write" in done.stderr and "File too large" in done.stderr
    assert desk.updates() == [] and desk.stray_files() == []
    assert desk.ingest(source).ingest == 1


# --- the entry file ---------------------------------------------------------------------------------------------------


def test_the_entry_file_ends_with_the_report_as_json(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["edges", desk.source("a.parquet", (1, 2, 0, 1), note=["x"]), "--engine", "inline"]
    assert run_command(["ingest", *arguments, "--project", str(desk.folder)]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out.splitlines()[-1])
    assert (report["input"], report["ingest"], report["plus"], report["nothing_new"]) == ("edges", 1, 1, False)
    assert "columns left out: note" in err


def test_the_entry_file_gives_the_exit_code_of_its_error(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    project = ["--project", str(desk.folder), "--engine", "inline"]
    assert run_command(["ingest", "edges", str(desk.folder / "none.parquet"), *project]) == 2
    assert run_command(["ingest", "edges", desk.source("a.parquet", (1, 2, 0, -1)), *project]) == 1
    assert "error: " in capsys.readouterr().err
    with Warehouse(desk.project.warehouse).lock("ddcore run"):
        assert run_command(["ingest", "edges", desk.source("a.parquet", (1, 2, 0, 1)), *project]) == 75


# --- real data --------------------------------------------------------------------------------------------------------


def test_the_package_sets_get_in(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"package": "string", "dependency": "string"})
    source = shared_data("package_sets", "dependencies.parquet")
    report = desk.ingest(str(source))
    assert (report.rows, report.first, report.last, report.versions) == (31_116, time_of(0), time_of(1493), 937)
    wanted = pl.read_parquet(source).sort("version", "package", "dependency").rows()
    assert desk.updates() == wanted
    assert desk.ingest(str(source)).nothing_new


def test_the_package_sets_get_in_by_pieces(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"package": "string", "tag": "string"})
    whole = pl.read_parquet(shared_data("package_sets", "releases.parquet"))
    for number, upto in enumerate([100, 700, 1494]):
        piece = whole.filter(pl.col("version") < upto, pl.col("version") >= [0, 100, 700][number])
        desk.ingest(desk.source(f"{number}.csv", *piece.select("package", "tag", "version", "diff").rows()))
        desk.fold(upto - 1)
    assert desk.updates() == whole.sort("version", "package", "tag").rows()


def test_a_static_graph_gets_in_as_one_version(tmp_path: Path) -> None:
    desk = Desk(tmp_path, EDGES)
    report = desk.ingest(str(shared_data("wiki_vote", "edges.parquet")), version=0, diff=1)
    assert (report.rows, report.plus, report.versions) == (103_689, 103_689, 1)
    assert len(desk.updates()) == 103_689


def test_a_format_of_spark_needs_spark(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for said, words in (
        ({"format": "orc"}, "only Spark reads it"),
        ({"option": {"a": "b"}}, "--option: only with --format"),
        ({"format": "delta", "form": "feed", "engine": "spark"}, "only one of them"),
    ):
        with pytest.raises(UsageError, match=words):
            desk.ingest(desk.source("a.csv"), **said)
