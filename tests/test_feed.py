"""Delta tables that an ingest follows: their change data feed, and rows appended to them, on both engines."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from ingesting import Desk

from ddcore.base.errors import DataError, LateUpdate, UsageError
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.sources.deltafeed import DeltaFeed
from ddcore.jobs.ingest import IngestReport, IngestSettings, ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES: dict[str, Any] = {"k": pl.Int64, "v": pl.String}
Row = tuple[Any, ...]
ENGINES_BY_NAME = ("spark", "inline")
ENGINES = ["inline", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The engine of a test; starts Spark only for those that use it."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


class Table:
    """A Delta table of keys and values, with its own idea of what it holds at each commit."""

    def __init__(self, folder: Path, *rows: Row, feed: bool = True, **settings: str) -> None:
        self.path = str(folder)
        configuration = {"delta.enableChangeDataFeed": str(feed).lower(), **settings}
        write_deltalake(self.path, frame(*rows).to_arrow(), configuration=configuration)

    def append(self, *rows: Row) -> Table:
        write_deltalake(self.path, frame(*rows).to_arrow(), mode="append")
        return self

    def overwrite(self, *rows: Row) -> Table:
        write_deltalake(self.path, frame(*rows).to_arrow(), mode="overwrite")
        return self

    def delete(self, predicate: str) -> Table:
        DeltaTable(self.path).delete(predicate)
        return self

    def update(self, value: str, predicate: str) -> Table:
        DeltaTable(self.path).update(updates={"v": f"'{value}'"}, predicate=predicate)
        return self

    def merge(self, *rows: Row) -> Table:
        on = DeltaTable(self.path).merge(frame(*rows).to_arrow(), "s.k = t.k", source_alias="s", target_alias="t")
        on.when_matched_update_all().when_not_matched_insert_all().execute()
        return self

    def optimize(self) -> Table:
        DeltaTable(self.path).optimize.compact()
        return self

    @property
    def version(self) -> int:
        return DeltaTable(self.path).version()

    def rows(self, version: int | None = None) -> Counter[Row]:
        return Counter(pl.read_delta(self.path, version=version).select("k", "v").rows())

    def commit_path(self, version: int) -> Path:
        return Path(self.path, "_delta_log", f"{version:020d}.json")


def frame(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(list(rows), TYPES, orient="row")


def desk(folder: Path, engine: str = "inline", **settings: Any) -> Desk:
    return Desk(folder, {"k": "int64", "v": "string"}, engine, **settings)


def feed(it: Desk, table: Table, **said: Any) -> IngestReport:
    return it.ingest(table.path, form="feed", **said)


def held(it: Desk, version: int) -> Counter[Row]:
    counts: Counter[Row] = Counter()
    for *row, time, diff in it.updates():
        if time <= version:
            counts[tuple(row)] += diff
    assert min(counts.values(), default=0) >= 0
    return +counts


# --- the numbered cases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_t46_the_change_data_feed(tmp_path: Path, engine: str) -> None:
    it = desk(tmp_path, engine)
    table = Table(tmp_path / "t", (1, "a"), (2, "b"), (2, "b"))  # 0: duplicates keep their count
    table.update("z", "k = 1")  # 1: a preimage and a postimage
    table.append((4, "d")).optimize()  # 2, 3: rewritten files, no change
    table.overwrite((2, "b"), (1, "z"), (4, "d"), (2, "b"))  # 4: every row deleted and inserted again
    table.delete("k = 2")  # 5
    report = feed(it, table)
    assert it.updates() == [
        (1, "a", 0, 1), (2, "b", 0, 2), (1, "a", 1, -1), (1, "z", 1, 1), (4, "d", 2, 1), (2, "b", 5, -2),
    ]  # fmt: skip
    assert (report.plus, report.minus, report.first, report.last) == (5, 3, time_of(0), time_of(5))
    assert feed(it, table).nothing_new
    table.optimize().merge((1, "z"), (3, "c"))
    before = it.updates()
    feed(it, table)
    assert it.updates() == [*before, (3, "c", table.version, 1)]


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_t46_only_rewritten_files_change_nothing(tmp_path: Path, engine: str) -> None:
    it = desk(tmp_path, engine)
    table = Table(tmp_path / "t", (1, "a")).append((2, "b"))
    feed(it, table)
    before, table = it.updates(), table.optimize()
    report = feed(it, table)
    assert (report.plus, report.minus, report.nothing_new) == (0, 0, False)
    assert it.updates() == before and feed(it, table).nothing_new


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
@pytest.mark.parametrize("version", [None, "next"])
def test_only_columns_of_the_table_are_told_as_left_out(tmp_path: Path, engine: str, version: str | None) -> None:
    it = desk(tmp_path, engine)
    table = Table(tmp_path / "t", (1, "a")).update("b", "k = 1")
    report = feed(it, table, version=version)
    assert (report.left_out, [note for note in report.notes if "left out" in note]) == ((), [])
    wide = frame((2, "c")).with_columns(region=pl.lit("north"))
    write_deltalake(table.path, wide.to_arrow(), mode="append", schema_mode="merge")
    report = feed(it, table, version=version)
    assert report.left_out == ("region",) and any(note.endswith("left out: region") for note in report.notes)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_t48_a_missing_commit_is_an_error_with_its_number_and_a_way_on(tmp_path: Path, engine: str) -> None:
    it = desk(tmp_path, engine)
    table = Table(tmp_path / "t", (1, "a"))
    feed(it, table)
    table.append((2, "b")).append((3, "c")).delete("k = 1")
    DeltaTable(table.path).create_checkpoint()
    for version in range(3):
        table.commit_path(version).unlink()
    before = it.updates()
    with pytest.raises(DataError, match="the changes of version 1 cannot be read: commit 1 is not in") as caught:
        feed(it, table)
    assert "--snapshot" in caught.value.hint and it.updates() == before and not it.stray_files()
    it.ingest(table.path, form="snapshot")
    assert it.updates() == [(1, "a", 0, 1), (1, "a", 1, -1), (2, "b", 1, 1), (3, "c", 1, 1)]
    assert feed(it, table).nothing_new
    table.append((4, "d"))
    feed(it, table)
    assert it.updates()[-1] == (4, "d", 4, 1)


def test_t48_a_deleted_change_file_is_an_error(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"), (2, "b"))
    feed(it, table)
    table.append((3, "c")).delete("k = 1")
    shutil.rmtree(tmp_path / "t/_change_data")
    with pytest.raises(DataError, match=r"the changes of version 2 cannot be read: the file _change_data/\S+ was"):
        feed(it, table)
    assert it.updates() == [(1, "a", 0, 1), (2, "b", 0, 1)]


# --- random histories -------------------------------------------------------------------------------------------------


def random_step(rng: random.Random, table: Table) -> None:
    def rows(least: int = 1) -> list[Row]:
        return [(rng.randrange(5), rng.choice([None, "", "a", "b"])) for _ in range(rng.randint(least, 4))]

    steps: list[Callable[[], object]] = [
        lambda: table.append(*rows()),
        lambda: table.update(rng.choice("xyz"), f"k = {rng.randrange(5)}"),
        lambda: table.delete(f"k = {rng.randrange(5)}"),
        lambda: table.merge(*{key: (key, value) for key, value in rows()}.values()),
        lambda: table.overwrite(*rows()),
        table.optimize,
    ]
    rng.choice(steps)()


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_random_histories_hold_what_the_table_holds_at_every_commit(tmp_path: Path, engine: str, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(4 if engine == "inline" else 1):
        (tmp_path / str(number)).mkdir()
        it = desk(tmp_path / str(number), engine)
        table = Table(tmp_path / str(number) / "t", (0, "a"), (1, "b"), (1, "b"))
        for _ in range(rng.randint(5, 12)):
            random_step(rng, table)
            if rng.random() < 0.2:
                feed(it, table)
            if rng.random() < 0.1:
                DeltaTable(table.path).create_checkpoint()
        feed(it, table)
        for version in range(table.version + 1):
            assert held(it, version) == table.rows(version), f"seed {seed}, history {number}, version {version}"
        assert feed(it, table).nothing_new


@pytest.mark.spark
def test_spark_histories_with_deletion_vectors_on_both_engines(tmp_path: Path, spark: SparkSession) -> None:
    """What Spark wrote is the same by both engines, or inline says that it cannot read it."""
    path = tmp_path / "t"
    name = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {name} (k BIGINT, v STRING) USING delta TBLPROPERTIES "
              "('delta.enableChangeDataFeed' = true, 'delta.enableDeletionVectors' = true)")  # fmt: skip
    desks = []
    for engine in ("spark", "inline"):
        (tmp_path / engine).mkdir()
        desks.append(desk(tmp_path / engine, engine))
    by_spark, inline = desks
    spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 'a' FROM range(10)")
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (w INT)")
    for one in desks:
        one.ingest(str(path), form="feed")
    assert by_spark.updates() == inline.updates() and len(inline.updates()) == 10
    spark.sql(f"DELETE FROM {name} WHERE k < 3")
    spark.sql(f"UPDATE {name} SET v = 'z' WHERE k = 5")
    by_spark.ingest(str(path), form="feed")
    for version in range(5):
        assert held(by_spark, version) == Table.rows(_at(path), version), version
    with pytest.raises(DataError, match="deletion vectors") as caught:
        inline.ingest(str(path), form="feed")
    assert "--engine spark" in caught.value.hint and not inline.stray_files()
    inline.engine = "spark"
    inline.ingest(str(path), form="feed")
    assert by_spark.updates() == inline.updates()
    assert [one.counts for one in by_spark.records()] == [one.counts for one in inline.records()]


@pytest.mark.long
@pytest.mark.spark
def test_a_feed_with_column_mapping_is_taken_in_by_spark(tmp_path: Path, spark: SparkSession) -> None:
    """With deletion vectors, and with a column of another name since."""
    path = tmp_path / "t"
    name = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {name} (k BIGINT, v STRING) USING delta TBLPROPERTIES "
              "('delta.enableChangeDataFeed' = true, 'delta.columnMapping.mode' = 'name')")  # fmt: skip
    (tmp_path / "desk").mkdir()
    it = desk(tmp_path / "desk")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"DELETE FROM {name} WHERE k = 1")
    with pytest.raises(DataError, match=r"has (column mapping|deletion vectors)") as caught:
        it.ingest(str(path), form="feed")
    assert "--engine spark" in f"{caught.value.message} {caught.value.hint}" and not it.stray_files()
    it.engine = "spark"
    it.ingest(str(path), form="feed")
    assert it.updates() == [(1, "a", 1, 1), (2, "b", 1, 1), (1, "a", 2, -1)]
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN v TO w")
    spark.sql(f"INSERT INTO {name} VALUES (3, 'c')")
    with pytest.raises(DataError) as caught:
        it.ingest(str(path), form="feed")
    assert "'v' is missing" in caught.value.message and len(it.records()) == 1
    it.ingest(str(path), form="feed", column={"v": "w"})
    assert it.updates()[3:] == [(3, "c", 4, 1)]
    assert it.ingest(str(path), form="feed", column={"v": "w"}).nothing_new


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_partitions_whose_values_are_escaped_are_read_by_spark_only(tmp_path: Path, engine: str) -> None:
    """delta-rs looks for the files of a change data feed under names that are escaped once too often."""
    it, path = desk(tmp_path, engine), str(tmp_path / "t")
    rows = [(1, "a b"), (2, "100%"), (3, "ü"), (4, "plain")]
    configuration = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, frame(*rows).to_arrow(), partition_by=["v"], configuration=configuration)
    if engine == "spark":
        it.ingest(path, form="feed")
        assert it.updates() == [(*row, 0, 1) for row in rows]
        return
    with pytest.raises(DataError, match="escaped in the names of their folders") as caught:
        it.ingest(path, form="feed")
    assert "--engine spark" in caught.value.hint and not it.stray_files()


@pytest.mark.spark
@pytest.mark.long  # with deletion vectors, above, is for every change
def test_what_spark_wrote_is_the_same_on_both_engines(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    """Spark and delta-rs write one table in turns, without deletion vectors."""
    rng = random.Random(seed)
    path = tmp_path / "t"
    name = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {name} (k BIGINT, v STRING) USING delta TBLPROPERTIES "
              "('delta.enableChangeDataFeed' = true, 'delta.enableDeletionVectors' = false)")  # fmt: skip
    statements = [
        f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (2, 'b'), (3, NULL)",
        f"UPDATE {name} SET v = concat(v, 'x') WHERE k = 2",
        f"DELETE FROM {name} WHERE k = 3",
        f"MERGE INTO {name} t USING (SELECT 1 AS k, 'm' AS v UNION SELECT 7, 'n') s ON s.k = t.k "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        f"OPTIMIZE {name}",
        f"INSERT OVERWRITE {name} SELECT * FROM {name}",
    ]
    rng.shuffle(statements)
    desks = []
    for engine in ENGINES_BY_NAME:
        (tmp_path / engine).mkdir()
        desks.append(desk(tmp_path / engine, engine))
    for number, statement in enumerate(statements):
        spark.sql(statement)
        random_step(rng, _at(path))
        if number == 2:
            for one in desks:
                one.ingest(str(path), form="feed")
    for one in desks:
        one.ingest(str(path), form="feed")
        for version in range(_at(path).version + 1):
            assert held(one, version) == _at(path).rows(version), f"seed {seed}, {one.engine}, version {version}"
    by_spark, inline = desks
    assert [one.counts for one in by_spark.records()] == [one.counts for one in inline.records()], f"seed {seed}"


def _at(path: Path) -> Table:
    table = Table.__new__(Table)
    table.path = str(path)
    return table


# --- where a feed begins and goes on ----------------------------------------------------------------------------------


def test_a_feed_that_does_not_begin_at_version_0_begins_with_the_content(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"), feed=False).append((2, "b"))
    with pytest.raises(DataError, match="has no change data feed") as caught:
        feed(it, table)
    assert "delta.enableChangeDataFeed" in caught.value.hint
    DeltaTable(table.path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    report = feed(it, table.append((3, "c")))
    assert any("was off at version 0; so all of its rows count as inserted" in note for note in report.notes)
    assert it.updates() == [(1, "a", 3, 1), (2, "b", 3, 1), (3, "c", 3, 1)]
    feed(it, table.delete("k = 1"))
    assert it.updates()[-1] == (1, "a", 4, -1)


def test_a_feed_that_was_off_for_a_while_is_refused(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"))
    feed(it, table)
    for state in ("false", "true"):
        DeltaTable(table.path).alter.set_table_properties({"delta.enableChangeDataFeed": state})
        table.append((2, "b"))
    with pytest.raises(DataError, match="the changes of version 1 cannot be read: its change data feed was off"):
        feed(it, table)


def test_another_table_at_the_place_is_refused(tmp_path: Path) -> None:
    it = desk(tmp_path)
    feed(it, Table(tmp_path / "t", (1, "a")))
    shutil.rmtree(tmp_path / "t")
    table = Table(tmp_path / "t", (2, "b"))
    with pytest.raises(DataError, match="is not the table that ingest 1 took in from this place") as caught:
        feed(it, table)
    assert "--snapshot" in caught.value.hint
    it.ingest(table.path, form="snapshot")
    feed(it, table.append((3, "c")), version="next")
    assert it.updates() == [(1, "a", 0, 1), (1, "a", 1, -1), (2, "b", 1, 1), (3, "c", 2, 1)]


def test_a_table_that_was_set_back_is_refused(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"))
    shutil.copytree(tmp_path / "t", tmp_path / "backup")
    feed(it, table.append((2, "b")))
    shutil.rmtree(tmp_path / "t")
    (tmp_path / "backup").rename(tmp_path / "t")
    with pytest.raises(DataError, match="took it in up to version 1: its log was set back"):
        feed(it, table)


def test_a_table_taken_in_as_a_change_log_is_refused(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"))
    it.ingest(table.path, version=0, diff=1)
    for form in ("feed", "append"):
        with pytest.raises(DataError, match="ingest 1 took it in as a change log"):
            it.ingest(table.path, form=form)


def test_versions_of_a_feed(tmp_path: Path) -> None:
    """Commit numbers, one version for all, the next one; and never commits before what came before them."""
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a")).append((2, "b"))
    feed(it, table, version=7)
    assert it.updates() == [(1, "a", 7, 1), (2, "b", 7, 1)]
    table.delete("k = 1")
    with pytest.raises(UsageError, match="commit 2 would be at version 2, but ingest 1 took the commits before it"):
        feed(it, table)
    feed(it, table, version="next")
    assert it.updates()[-1] == (1, "a", 8, -1)
    with pytest.raises(UsageError, match="--version next"):
        it.ingest(table.path, version="next", diff=1)
    it.ingest(Table(tmp_path / "s", (5, "e")).path, form="append", version="next")
    assert it.updates()[-1] == (5, "e", 9, 1)


def test_commits_at_closed_versions_are_late(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"))
    feed(it, table)
    it.fold(5)
    table.append((2, "b"))
    with pytest.raises(LateUpdate):
        feed(it, table)
    feed(it, table, late="move")
    assert it.updates()[-1] == (2, "b", 6, 1)


def test_times_of_commits_can_be_columns(tmp_path: Path) -> None:
    it = Desk(tmp_path, {"k": "int64", "commit": "int64", "at": "timestamp"})
    table = Table(tmp_path / "t", (1, "a")).append((2, "b"))
    it.ingest(table.path, form="feed", column={"commit": "_commit_version", "at": "_commit_timestamp"}, version=0)
    times = {entry["version"]: entry["timestamp"] for entry in DeltaTable(table.path).history()}
    assert [(k, commit, at.timestamp() * 1000, diff) for k, commit, at, _, diff in it.updates()] == [
        (1, 0, times[0], 1), (2, 1, times[1], 1),
    ]  # fmt: skip


def test_a_column_that_is_added_in_between_is_null_before(tmp_path: Path) -> None:
    it = Desk(tmp_path, {"k": "int64", "w": "int64"})
    table = Table(tmp_path / "t", (1, "a"))
    more = frame((2, "b")).with_columns(w=pl.lit(7, pl.Int64))
    write_deltalake(table.path, more.to_arrow(), mode="append", schema_mode="merge")
    feed(it, table)
    assert it.updates() == [(1, None, 0, 1), (2, 7, 1, 1)]


def test_a_column_of_another_type_ends_the_feed(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"))
    feed(it, table)
    other = pl.DataFrame({"k": [1], "v": [5]})
    write_deltalake(table.path, other.to_arrow(), mode="overwrite", schema_mode="overwrite")
    write_deltalake(table.path, frame((1, "5")).to_arrow(), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(DataError, match="the type of the column 'v' is another one now"):
        feed(it, table)


def test_several_dimensions_need_a_column_for_each(tmp_path: Path) -> None:
    project = Project(
        root=tmp_path, program="p.py:p", warehouse=tmp_path / "warehouse", dims=("day", "revision"),
        inputs={"edges": desk(tmp_path).schema},
    )  # fmt: skip
    table = Table(tmp_path / "t", (1, "a")).append((2, "b"))
    feed = IngestSettings(form="feed", column={"revision": "_commit_version"})
    with pytest.raises(DataError, match="the column 'day' is missing"):
        ingest(project, "edges", [table.path], feed, engine="inline")
    feed = IngestSettings(form="feed", column={"revision": "_commit_version", "day": "k"})
    report = ingest(project, "edges", [table.path], feed, engine="inline")
    assert (report.first, report.last, report.plus) == ((1, 0), (2, 1), 2)
    assert ingest(project, "edges", [table.path], feed, engine="inline").nothing_new


def test_bad_rows_and_files_are_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    it = desk(tmp_path)
    with pytest.raises(UsageError, match="has no change data feed"):
        it.ingest(it.source("a.csv"), form="feed")
    table = Table(tmp_path / "t", (1, "a"))
    feed(it, table)
    table.append((-(2**63), "b"))
    with pytest.raises(DataError, match="is reserved"):
        feed(it, table)
    assert it.updates() == [(1, "a", 0, 1)] and not it.stray_files()
    with pytest.raises(UsageError, match="--restate with --feed"):
        feed(it, table, restate=0)


def test_rows_that_the_input_lacks_are_not_retracted(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"))
    feed(it, table)
    it.ingest(it.source("minus.csv", (1, "a", 0, -1)))
    with pytest.raises(DataError, match="the row does not exist") as caught:
        feed(it, table.delete("k = 1"))
    assert "--snapshot" in caught.value.hint


def test_two_tables_in_one_command(tmp_path: Path) -> None:
    it = desk(tmp_path)
    one, other = Table(tmp_path / "one", (1, "a")), Table(tmp_path / "other", (2, "b"))
    it.ingest(one.path, other.path, form="feed")
    one.append((3, "c"))
    it.ingest(one.path, other.path, form="feed")
    assert it.updates() == [(1, "a", 0, 1), (2, "b", 0, 1), (3, "c", 1, 1)]
    assert it.ingest(other.path, form="feed").nothing_new


def test_an_undone_ingest_of_a_feed_comes_again(tmp_path: Path) -> None:
    from ddcore.base.errors import DdError
    from ddcore.jobs.undo import undo

    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"))
    feed(it, table)
    feed(it, table.append((2, "b")))
    with pytest.raises(DdError, match="2"):
        undo(it.project, 1)
    undo(it.project, 2)
    feed(it, table)
    assert it.updates() == [(1, "a", 0, 1), (2, "b", 1, 1)]


def test_a_feed_knows_the_times_of_its_commits(tmp_path: Path) -> None:
    from ddcore.io.sources.deltatable import delta_table
    from ddcore.io.sources.layouts import Rules
    from ddcore.jobs.ingesting.delta_tables import TableReader

    table, it = Table(tmp_path / "t", (1, "a")).append((2, "b")), desk(tmp_path)
    reader = TableReader(
        project=it.project, name="edges", settings=IngestSettings(form="feed"), paths=(table.path,),
        rules=Rules(it.schema, rename={"version": "_commit_version"}), tables=[delta_table(table.path, "t")],
    )  # fmt: skip
    reader.look(lambda: it.ledger)
    source = reader.layouts[0][0]
    assert isinstance(source, DeltaFeed)
    history = {entry["version"]: entry["timestamp"] for entry in DeltaTable(table.path).history()}
    assert source.commit_times() == history


# --- appended rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_append_takes_the_rows_that_were_added_since(tmp_path: Path, engine: str) -> None:
    it = desk(tmp_path, engine)
    table = Table(tmp_path / "t", (1, "a"), (2, "b"), feed=False)
    report = it.ingest(table.path, form="append")
    assert any("every row counts as inserted" in note for note in report.notes)
    assert it.ingest(table.path, form="append").nothing_new
    table.append((1, "a")).append((1, "a")).optimize()
    it.ingest(table.path, form="append")
    assert it.updates() == [(1, "a", 0, 1), (2, "b", 0, 1), (1, "a", 1, 2)]
    table.append((1, "a"))
    it.ingest(table.path, form="append")  # the same rows once more are rows of another commit
    assert it.updates()[-1] == (1, "a", 2, 1)
    before = it.updates()
    with pytest.raises(DataError, match=rf"commit {table.version + 1} removed rows, and --append only") as caught:
        it.ingest(table.delete("k = 2").path, form="append")
    assert "--snapshot" in caught.value.hint and it.updates() == before
    it.ingest(table.path, form="snapshot")
    it.ingest(table.append((9, "z")).path, form="append")
    assert it.updates()[-2:] == [(2, "b", 3, -1), (9, "z", 4, 1)]


def test_append_of_a_partitioned_table_with_a_new_column(tmp_path: Path) -> None:
    it = Desk(tmp_path, {"k": "int64", "v": "string", "day": "date", "w": "int64"})
    path = str(tmp_path / "t")
    rows = frame((1, "a%b"), (2, None)).with_columns(day=pl.date(2026, 1, 31), w=pl.lit(None, pl.Int64))
    write_deltalake(path, rows.to_arrow(), partition_by=["v", "day"])
    it.ingest(path, form="append")
    write_deltalake(path, rows.drop("w").to_arrow(), mode="append", schema_mode="merge")
    it.ingest(path, form="append")
    day = rows["day"][0]
    assert it.updates() == [(k, v, day, None, n, 1) for n in (0, 1) for k, v in ((1, "a%b"), (2, None))]


def test_append_names_a_commit_that_is_gone(tmp_path: Path) -> None:
    it = desk(tmp_path)
    table = Table(tmp_path / "t", (1, "a"))
    it.ingest(table.path, form="append")
    table.append((2, "b")).append((3, "c"))
    DeltaTable(table.path).create_checkpoint()
    table.commit_path(0).unlink()
    table.commit_path(1).unlink()
    with pytest.raises(DataError, match=r"commit 1 is not in the table's log any more; ingest 1 took .* version 0"):
        it.ingest(table.path, form="append")
    other = Table(tmp_path / "o", (1, "a"))
    it.ingest(other.path, form="append")
    other.append((2, "b"))
    for file in DeltaTable(other.path).file_uris():
        os.remove(file)
    with pytest.raises(DataError, match="the rows of version 1 are lost"):
        it.ingest(other.path, form="append")


def test_files_and_tables_are_not_appended_together(tmp_path: Path) -> None:
    it = desk(tmp_path)
    frame((1, "a")).write_csv(tmp_path / "a.csv")
    with pytest.raises(UsageError, match="beside a Delta table"):
        it.ingest(str(tmp_path / "a.csv"), Table(tmp_path / "t", (1, "a")).path, form="append")


def test_a_folder_to_which_files_are_added_brings_only_the_new_ones(tmp_path: Path) -> None:
    it = desk(tmp_path)
    (tmp_path / "in").mkdir()
    frame((1, "a")).write_csv(tmp_path / "in/a.csv")
    it.ingest(str(tmp_path / "in"), form="append")
    frame((2, "b")).write_ndjson(tmp_path / "in/b.jsonl")
    frame((3, "c")).write_parquet(tmp_path / "in/c.parquet")
    report = it.ingest(str(tmp_path / "in"), form="append")
    assert any("every row counts as inserted" in note for note in report.notes)
    assert it.updates() == [(1, "a", 0, 1), (2, "b", 1, 1), (3, "c", 1, 1)]
    assert it.ingest(str(tmp_path / "in"), form="append").nothing_new
