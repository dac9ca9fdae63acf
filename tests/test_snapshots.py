"""Snapshots and appended rows: what each changes in the one before it, on both engines, against their own contents."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
from deltalake import write_deltalake
from ingesting import Desk
from places import local
from polars.testing import assert_frame_equal
from real_data import at, shared_data
from trams import Command

from ddcore.base.errors import DataError, DdError, LateUpdate, UsageError
from ddcore.base.tuning import Tuning
from ddcore.io.project.times import time_of
from ddcore.io.sources import pairs

SCHEMA = {"id": "int64", "name": "string", "f": "float64", "tags": "list[string]"}
TYPES: dict[str, Any] = {"id": pl.Int64, "name": pl.String, "f": pl.Float64, "tags": pl.List(pl.String)}
Row = tuple[Any, ...]


def text(row: Row) -> str:
    """A row so that nulls and NaNs compare, and zeros are one."""
    return str(tuple(0.0 if value == 0.0 and isinstance(value, float) else value for value in row))


def random_contents(rng: random.Random, many: int) -> list[list[Row]]:
    """The rows of so many snapshots; rows may repeat, and some snapshots change nothing."""

    def row() -> Row:
        values = (rng.choice([None, 0.0, -0.0, 1.5, float("nan")]), rng.choice([None, [], ["a"], ["a", None]]))
        return (rng.randrange(6), rng.choice([None, "", "é", "x"]), *values)

    contents = [[row() for _ in range(rng.randint(1, 12))]]
    while len(contents) < many:
        now = list(contents[-1])
        for _ in range(rng.choice([0, 1, 1, 3])):
            if len(now) > 1 and rng.random() < 0.5:
                now.pop(rng.randrange(len(now)))
            else:
                now.append(row())
        rng.shuffle(now)
        contents.append(now)
    return contents


def write(folder: Path, name: str, rows: Sequence[Row]) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    pl.DataFrame(rows, TYPES, orient="row").write_parquet(path)
    return str(path)


def held(desk: Desk, version: int) -> Counter[str]:
    """What the input holds at a version, added up here."""
    counts: Counter[str] = Counter()
    for *row, time, diff in desk.updates():
        if time <= version:
            counts[text(tuple(row))] += diff
    return +counts


def assert_holds(desk: Desk, contents: Sequence[Sequence[Row]], where: object = None) -> None:
    for version, rows in enumerate(contents):
        assert held(desk, version) == Counter(map(text, rows)), (where, version)


@pytest.mark.parametrize("engine", ["inline", pytest.param("spark", marks=pytest.mark.spark)])
def test_every_version_holds_its_snapshot(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, seed: int
) -> None:
    """In one command or in several, and read in windows of any size."""
    if engine == "spark":
        request.getfixturevalue("spark")
    seeds = random.Random(seed).sample(range(10**6), 1 if engine == "spark" else 25)
    for seed in seeds:  # noqa: PLR1704 - each has its own
        rng = random.Random(seed)
        contents = random_contents(rng, rng.randint(1, 9))
        folder = tmp_path / str(seed)
        folder.mkdir()
        desk = Desk(folder, SCHEMA, engine, tuning=Tuning(snapshot_rows=rng.choice([1, 10, 1 << 20])))
        files = [write(folder, f"{number:03d}.parquet", rows) for number, rows in enumerate(contents)]
        cuts = sorted({0, len(files), *(rng.randint(0, len(files)) for _ in range(0 if engine == "spark" else 2))})
        for first, last in itertools.pairwise(cuts):
            report = desk.ingest(*files[rng.choice([0, first]) : last], form="snapshot")
            assert (report.first, report.last, report.versions) == (time_of(first), time_of(last - 1), last - first)
        assert_holds(desk, contents, seed)
        assert desk.ingest(*files, form="snapshot").nothing_new
        assert len(desk.records()) == len(cuts) - 1


def test_the_package_set_taken_back_from_its_snapshots(tmp_path: Path) -> None:
    """Snapshots that are made of a real change log give that log again."""
    log = pl.read_parquet(shared_data("package_sets", "dependencies.parquet")).filter(pl.col("version") <= 300)
    desk = Desk(tmp_path, {"package": "string", "dependency": "string"})
    for version in range(301):
        rows = at(log, version)
        item = rows.select(pl.exclude("count").repeat_by("count").explode()) if len(rows) else rows
        item.drop("count", strict=False).write_parquet(tmp_path / f"{version:04d}.parquet")
    report = desk.ingest(f"{tmp_path}/*.parquet", form="snapshot")
    assert report.versions == 301
    keys = ["package", "dependency", "version"]
    expected = log.group_by(keys).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    got = pl.DataFrame(desk.updates(), expected.schema, orient="row")
    assert_frame_equal(got, expected, check_row_order=False)


def test_pairs_of_equal_rows_leave_the_difference_as_it_is(seed: int) -> None:
    """Whatever rows two frames have; where both are in order, all pairs of equal frames are found."""
    rng = random.Random(seed)

    def frame() -> pl.DataFrame:
        ids = sorted(rng.randrange(5) for _ in range(rng.randint(0, 12)))
        if rng.random() < 0.1:
            rng.shuffle(ids)
        others = [(rng.choice([None, "x"]), rng.choice([None, float("nan"), 1.0])) for _ in ids]
        rows = [(number, *values) for number, values in zip(ids, others, strict=True)]
        return pl.DataFrame(rows, {"id": pl.Int64, "name": pl.String, "f": pl.Float64}, orient="row")

    for _ in range(300):
        one, other = frame(), frame()
        if rng.random() < 0.2:
            other = one
        elif rng.random() < 0.3:  # the same ids, with other values
            other = one.with_columns(one["f"].shuffle(rng.randrange(100)))
        left, right = pairs.without_pairs(one, other, one.columns, 0)
        before, after = (Counter(map(text, a.rows())) for a in (one, left))
        before.subtract(map(text, other.rows()))
        after.subtract(map(text, right.rows()))
        assert {row: n for row, n in before.items() if n} == {row: n for row, n in after.items() if n}
        if one is other and one["id"].is_sorted():
            assert left.is_empty() and right.is_empty()


# --- what is known ----------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def csv(folder: Path, name: str, *edges: str) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("src,dst\n" + "".join(f"{edge}\n" for edge in edges))
    return str(path)


def test_a_glob_that_grows_brings_only_the_new_snapshots(desk: Desk, tmp_path: Path) -> None:
    csv(tmp_path, "days/2026-11-01.csv", "1,2")
    locations = f"{tmp_path}/days/*.csv"
    assert desk.ingest(locations, form="snapshot").first == time_of(0)
    csv(tmp_path, "days/2026-11-02.csv", "1,2", "2,3")
    report = desk.ingest(locations, form="snapshot")
    assert (report.first, report.rows, report.plus) == (time_of(1), 1, 1)
    assert report.notes == ("1 snapshot was taken in before and is left out",)
    again = desk.ingest(locations, form="snapshot")
    assert again.nothing_new and again.ingest == 2
    assert desk.updates() == [(1, 2, 0, 1), (2, 3, 1, 1)]


def test_a_snapshot_that_changes_nothing_makes_a_version(desk: Desk, tmp_path: Path) -> None:
    files = [csv(tmp_path, f"{day}.csv", "1,2") for day in range(3)]
    assert desk.ingest(files[0], form="snapshot").last == time_of(0)
    report = desk.ingest(*files, form="snapshot")
    assert (report.first, report.last, report.rows, report.nothing_new) == (time_of(1), time_of(2), 0, False)
    assert desk.ingest(*files, form="snapshot").nothing_new
    assert desk.ledger.latest_ingested(["edges"]) == time_of(2)


def test_one_place_whose_content_comes_back(desk: Desk, tmp_path: Path) -> None:
    """`latest.csv` is overwritten every day; on the third day it is as on the first."""
    for day, edges in enumerate((["1,2"], ["3,4"], ["1,2"])):
        file = csv(tmp_path, "latest.csv", *edges)
        assert desk.ingest(file, form="snapshot").last == time_of(day)
        os.utime(file)
        assert desk.ingest(file, form="snapshot").nothing_new
    assert desk.updates() == [(1, 2, 0, 1), (1, 2, 1, -1), (3, 4, 1, 1), (1, 2, 2, 1), (3, 4, 2, -1)]


def test_snapshots_follow_each_other(desk: Desk, tmp_path: Path) -> None:
    """One that is new or has changed, before one that is known, has no place in the history."""
    csv(tmp_path, "days/1.csv", "1,2")
    csv(tmp_path, "days/3.csv", "1,3")
    locations = f"{tmp_path}/days/*.csv"
    desk.ingest(locations, form="snapshot")
    csv(tmp_path, "days/2.csv", "1,4")
    before = desk.updates()
    with pytest.raises(DataError, match=r"2\.csv: is new, and comes before .*3\.csv, which ingest 1 took in"):
        desk.ingest(locations, form="snapshot")
    (tmp_path / "days/2.csv").unlink()
    csv(tmp_path, "days/1.csv", "9,9")
    with pytest.raises(DataError, match=r"1\.csv: has changed since it was taken in, and comes before") as error:
        desk.ingest(locations, form="snapshot")
    assert "--restate V" in error.value.hint
    assert desk.updates() == before
    report = desk.ingest(locations, form="snapshot", restate="first")
    assert (report.replaces, report.first, report.last) == (time_of(0), time_of(0), time_of(1))
    assert desk.updates() == [(9, 9, 0, 1), (1, 3, 1, 1), (9, 9, 1, -1)]


def test_a_history_is_restated_by_snapshots_from_a_version_on(desk: Desk, tmp_path: Path) -> None:
    files = [csv(tmp_path, f"{day}.csv", *edges) for day, edges in enumerate((["1,2"], ["1,2", "5,5"], ["7,7"]))]
    desk.ingest(*files, form="snapshot")
    desk.fold(2)
    right = csv(tmp_path, "1-again.csv", "1,2", "6,6")
    report = desk.ingest(right, files[2], form="snapshot", restate=1)
    assert (report.first, report.last, report.restates) == (time_of(1), time_of(2), ((1,),))
    assert desk.updates() == [(1, 2, 0, 1), (6, 6, 1, 1), (1, 2, 2, -1), (6, 6, 2, -1), (7, 7, 2, 1)]


def test_an_undone_snapshot_may_come_again(desk: Desk, tmp_path: Path) -> None:
    from ddcore.jobs.undo import undo

    file = csv(tmp_path, "1.csv", "1,2")
    desk.ingest(file, form="snapshot")
    undo(desk.project, 1)
    assert desk.updates() == []
    assert desk.ingest(file, form="snapshot").first == time_of(0)


# --- what a snapshot is -----------------------------------------------------------------------------------------------


def test_a_folder_is_one_snapshot_and_each_match_of_a_pattern_is_one(desk: Desk, tmp_path: Path) -> None:
    for day, edges in enumerate((["1,2"], ["3,4", "1,2"])):
        for part, edge in enumerate(edges):
            csv(tmp_path, f"days/{day}/part-{part}.csv", edge)
    assert desk.ingest(f"{tmp_path}/days/*", form="snapshot").last == time_of(1)
    assert desk.updates() == [(1, 2, 0, 1), (3, 4, 1, 1)]
    assert desk.ingest(f"{tmp_path}/days/1", form="snapshot").nothing_new
    csv(tmp_path, "days/1/part-2.csv", "5,6")
    report = desk.ingest(f"{tmp_path}/days/1", form="snapshot")
    assert (report.first, report.plus, report.minus) == (time_of(2), 1, 0)


def test_versions_of_a_delta_table_are_snapshots(desk: Desk, tmp_path: Path) -> None:
    table, contents = str(tmp_path / "table"), [[(1, 2)], [(1, 2), (3, 4)], [(3, 4)], [(5, 6)]]
    for rows in contents:
        write_deltalake(table, pl.DataFrame(rows, ["src", "dst"], orient="row"), mode="overwrite")
    assert desk.ingest(f"{table}@v0..v2", form="snapshot").last == time_of(2)
    assert desk.ingest(f"{table}@v2", form="snapshot").nothing_new
    report = desk.ingest(f"{table}@v1..", form="snapshot")
    assert (report.first, report.last) == (time_of(3), time_of(3))
    assert desk.ingest(table, form="snapshot").nothing_new
    expected = [(1, 2, 0, 1), (3, 4, 1, 1), (1, 2, 2, -1), (3, 4, 3, -1), (5, 6, 3, 1)]
    assert desk.updates() == expected


def test_T48_a_version_that_is_gone_is_named(desk: Desk, tmp_path: Path) -> None:
    table = tmp_path / "table"
    for number in range(4):
        write_deltalake(table, pl.DataFrame({"src": [number], "dst": [number]}), mode="append")
    with pytest.raises(DataError, match="there is no version 9; the newest is 3"):
        desk.ingest(f"{table}@v2..v9", form="snapshot")
    from deltalake import DeltaTable

    DeltaTable(table).create_checkpoint()
    for number in range(3):
        (table / "_delta_log" / f"{number:020d}.json").unlink()
    with pytest.raises(DataError, match=r"version 1 can no longer be read: .* the log begins at 3"):
        desk.ingest(f"{table}@v1..", form="snapshot")
    assert not local(desk.project.warehouse).exists()
    assert desk.ingest(f"{table}@..", form="snapshot").versions == 1


def test_columns_that_an_input_has_not_are_left_out(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("src,dst,version,diff,note\n1,2,7,-1,x\n")
    report = desk.ingest(str(tmp_path / "a.csv"), form="snapshot")
    assert report.first == time_of(0) and any("columns left out: version, diff, note" in note for note in report.notes)
    assert desk.updates() == [(1, 2, 0, 1)]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_an_empty_snapshot_is_refused(desk: Desk, tmp_path: Path) -> None:
    desk.ingest(csv(tmp_path, "1.csv", "1,2"), form="snapshot")
    write(tmp_path, "empty.parquet", [])
    pl.DataFrame({"src": [], "dst": []}, {"src": pl.Int64, "dst": pl.Int64}).write_parquet(tmp_path / "empty.parquet")
    for name in (csv(tmp_path, "2.csv"), str(tmp_path / "empty.parquet")):
        with pytest.raises(DataError, match="no rows: as a snapshot it would take all rows away"):
            desk.ingest(name, form="snapshot")
    assert desk.updates() == [(1, 2, 0, 1)] and desk.stray_files() == []


@pytest.mark.parametrize(
    ("asked", "kind", "says"),
    [
        ({"version": 0}, UsageError, r"--version 0: the input edges has rows up to version 1"),
        ({"version": 3}, LateUpdate, r"--version 3: version 3 is closed .* the next open one is version 5"),
        ({"diff": 1}, UsageError, "--diff and --snapshot: only one of them"),
        ({"late": "move", "restate": 1}, UsageError, "--late move and --restate"),
    ],
)
def test_what_cannot_be_asked(
    asked: dict[str, Any], kind: type[DdError], says: str, desk: Desk, tmp_path: Path
) -> None:
    desk.ingest(csv(tmp_path, "1.csv", "1,2"), csv(tmp_path, "2.csv", "1,3"), form="snapshot")
    desk.fold(4)
    with pytest.raises(kind, match=says):
        desk.ingest(csv(tmp_path, "3.csv", "1,4"), form="snapshot", **asked)
    assert desk.ingest(csv(tmp_path, "3.csv", "1,4"), form="snapshot").first == time_of(5)


def test_bad_rows_leave_nothing(desk: Desk, tmp_path: Path) -> None:
    desk.ingest(csv(tmp_path, "1.csv", "1,2"), form="snapshot")
    with pytest.raises(DataError, match=r"3\.csv: column 'dst': 'x' is not a whole number \(row 3\)"):
        desk.ingest(csv(tmp_path, "2.csv", "1,2"), csv(tmp_path, "3.csv", "1,2", "1,x"), form="snapshot")
    with pytest.raises(DataError, match="the column 'dst' is missing"):
        (tmp_path / "4.csv").write_text("src\n1\n")
        desk.ingest(str(tmp_path / "4.csv"), form="snapshot")
    assert desk.updates() == [(1, 2, 0, 1)] and desk.stray_files() == []


def test_a_snapshot_that_changes_while_it_is_read_is_refused(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = csv(tmp_path, "1.csv", "1,2")
    from ddcore.io.sources.csvfile import CsvFile

    real = CsvFile.frames

    def slow(self: CsvFile, columns: Sequence[str]) -> Any:
        yield from real(self, columns)
        Path(self.path).write_text("src,dst\n1,2\n3,4\n")

    monkeypatch.setattr(CsvFile, "frames", slow)
    with pytest.raises(DataError, match=r"1\.csv: changed while it was read"):
        desk.ingest(file, form="snapshot")
    assert desk.updates() == []


def test_a_snapshot_that_is_replaced_after_it_was_read_is_new(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its position is that of the rows that were read, so that the other rows come with the next ingest."""
    from ddcore.jobs.ingesting.source_checks import SourceChecks

    real = SourceChecks.run

    def late(self: SourceChecks, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        csv(tmp_path, "1.csv", "1,2", "3,4")

    with monkeypatch.context() as patch:
        patch.setattr(SourceChecks, "run", late)
        assert desk.ingest(csv(tmp_path, "1.csv", "1,2"), form="snapshot").plus == 1
    report = desk.ingest(str(tmp_path / "1.csv"), form="snapshot")
    assert (report.nothing_new, report.plus) == (False, 1)
    assert desk.updates() == [(1, 2, 0, 1), (3, 4, 1, 1)]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_gives_the_same_updates_and_errors(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, pl.DataFrame({"src": [1, 5], "dst": [2, 6]}))
    locations = [csv(tmp_path, "1.csv", "1,2"), csv(tmp_path, "2.csv", "1,2", "3,4"), str(table)]
    desks = []
    for engine in ("spark", "inline"):
        (tmp_path / engine).mkdir()
        desks.append(Desk(tmp_path / engine, engine=engine))
        desks[-1].ingest(locations[0], form="snapshot")
        report = desks[-1].ingest(*locations, form="snapshot")
        assert (report.first, report.last, report.plus, report.minus) == (time_of(1), time_of(2), 2, 1)
        with pytest.raises(DataError, match=r"bad\.csv: column 'dst': 'x' is not a whole number \(row 3\)"):
            desks[-1].ingest(csv(tmp_path, "bad.csv", "1,2", "1,x"), form="snapshot")
        assert desks[-1].ingest(*locations, form="snapshot").nothing_new and desks[-1].stray_files() == []
    assert desks[0].updates() == desks[1].updates() == [(1, 2, 0, 1), (3, 4, 1, 1), (3, 4, 2, -1), (5, 6, 2, 1)]


def test_the_page_shows_what_the_commands_print(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("snapshots.md", tmp_path, dd, monkeypatch, steps=21)


# --- several time dimensions ------------------------------------------------------------------------------------------


def test_with_several_dimensions_the_time_is_named(tmp_path: Path) -> None:
    desk = Desk(tmp_path, dims=("day", "revision"))
    (tmp_path / "dd.toml").write_text((tmp_path / "dd.toml").read_text() + '[time]\ndims = ["day", "revision"]\n')
    with pytest.raises(UsageError, match="one snapshot at a time") as error:
        desk.ingest(csv(tmp_path, "1.csv", "1,2"), form="snapshot")
    assert "--version day=7" in error.value.hint
    assert desk.ingest(csv(tmp_path, "1.csv", "1,2"), form="snapshot", version=(0, 0)).plus == 1
    assert desk.ingest(csv(tmp_path, "2.csv", "1,3"), form="snapshot", version=(1, 0)).minus == 1
    with pytest.raises(UsageError, match="a snapshot comes after all of them"):
        desk.ingest(csv(tmp_path, "3.csv", "1,4"), form="snapshot", version=(0, 1))


# --- appended rows ----------------------------------------------------------------------------------------------------


def test_appended_rows_come_at_the_next_version_and_it_is_said(desk: Desk, tmp_path: Path) -> None:
    assert desk.ingest(csv(tmp_path, "days/1.csv", "1,2"), form="append").first == time_of(0)
    csv(tmp_path, "days/2.csv", "3,4", "5,6")
    desk.fold(6)
    report = desk.ingest(str(tmp_path / "days"), form="append")
    assert (report.first, report.last, report.plus) == (time_of(7), time_of(7), 2)
    assert any(re.search(r"every row counts as inserted", note) for note in report.notes)
    assert desk.ingest(str(tmp_path / "days"), form="append").nothing_new
    assert desk.updates() == [(1, 2, 0, 1), (3, 4, 7, 1), (5, 6, 7, 1)]


def test_appended_rows_may_have_versions_of_their_own_but_no_diff(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("src,dst,version\n1,2,3\n1,3,5\n")
    assert desk.ingest(str(tmp_path / "a.csv"), form="append").last == time_of(5)
    (tmp_path / "b.csv").write_text("src,dst,version,diff\n1,2,6,1\n")
    with pytest.raises(DataError, match="has a column 'diff', but --append inserts every row"):
        desk.ingest(str(tmp_path / "b.csv"), form="append")


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ["inline", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_to_whose_end_rows_are_appended_brings_only_these(
    engine: str, suffix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    desk, edges = Desk(tmp_path, engine=engine), [(1, 2), (1, 2), (3, 4)]
    file = tmp_path / f"events.{suffix}"

    def take(*more: tuple[int, int]) -> Any:
        edges.extend(more)
        frame = pl.DataFrame(edges, ["src", "dst"], orient="row")
        if suffix == "csv":
            frame.write_csv(file)
        else:
            frame.write_parquet(file, row_group_size=2)
        return desk.ingest(str(file), form="append")

    assert take().plus == 3
    report = take((1, 2), (5, 6))
    assert (report.plus, report.first) == (2, time_of(1))
    last = 4 if suffix == "csv" else 3
    assert f"{file}: taken in after row {last}; ingest 1 has the rows up to there" in report.notes
    assert take((7, 8)).plus == 1
    assert desk.ingest(str(file), form="append").nothing_new
    assert desk.updates() == [(1, 2, 0, 2), (3, 4, 0, 1), (1, 2, 1, 1), (5, 6, 1, 1), (7, 8, 2, 1)]
    edges[0] = (9, 9)  # another file: all of its rows are added, and it is said
    report = take((1, 1))
    assert report.plus == 7 and any("took in other rows under that name" in note for note in report.notes)


def test_what_an_appended_file_rests_on_is_not_undone(desk: Desk, tmp_path: Path) -> None:
    from ddcore.jobs.undo import undo

    for edges in (["1,2"], ["1,2", "3,4"]):
        desk.ingest(csv(tmp_path, "events.csv", *edges), form="append")
    with pytest.raises(DataError, match="ingest 2"):
        undo(desk.project, 1)
    undo(desk.project, 2)
    assert desk.ingest(csv(tmp_path, "events.csv", "1,2", "3,4"), form="append").plus == 1
