"""docs/reading.md: its code gives what the commands show. And real Spark streams, while runs die and are finished."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable
from tailing import in_order
from test_tailing import Interrupted, assert_equal_logs, history, interrupt_after, parts, project_in
from trams import Command, records

from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reading.md"
TABLE = "warehouse/outputs/journeys"


def blocks(language: str) -> list[str]:
    """The page's blocks of code, also those in lists."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", PAGE.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


def shown(dd: Command, at: int) -> set[tuple[Any, ...]]:
    code, out, _ = dd("show", "journeys", "--at", str(at), "--json")
    assert code == 0
    return {(*line["row"].values(), line["count"]) for line in records(out)[2:]}


def execute(block: str, **names: Any) -> dict[str, Any]:
    exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.fixture
def query() -> str:
    return blocks("sql")[0]


def rows_of(table: Any) -> set[tuple[Any, ...]]:
    return set(pl.DataFrame(table).rows())


def test_the_page_reads_what_show_shows(here: Path, dd: Command, query: str) -> None:
    with_sql, in_polars, whole_runs = [block for block in blocks("python") if "spark" not in block][:3]
    expected = shown(dd, 3)
    assert len(expected) == 7
    assert rows_of(execute(with_sql, query=query)["rows"]) == expected
    assert rows_of(execute(in_polars)["rows"]) == expected
    names = execute(whole_runs, pl=pl)
    assert names["last"] == 5
    assert len(names["journeys"]) == 17


def test_the_page_tails_by_the_change_feed(copied: Path, dd: Command) -> None:
    tail, signed = [block for block in blocks("python") if "spark" not in block][3:5]
    names = execute(tail, pl=pl, DeltaTable=DeltaTable)
    log = pl.read_delta(TABLE)
    news, changes, seen = names["news"], names["changes"], names["seen"]
    assert Counter(changes.select(log.columns).rows()) == Counter(log.rows())
    assert news(TABLE, seen) == (None, seen)
    (copied / "more.csv").write_text("src,dst,minutes,version,diff\nZoo,Moon,9,6,1\n")
    assert dd("ingest", "links", "more.csv")[0] == dd("run")[0] == 0
    more, seen = news(TABLE, seen)
    assert [row[:4] for row in more.rows()] == [("Moon", 23, 6, 1)]
    assert set(changes["_change_type"]) | set(more["_change_type"]) == {"insert"}
    (copied / "program.py").write_text(
        (copied / "program.py").read_text().replace("def program", "N = 1\n\n\ndef program")
    )
    assert dd("run", "--full-refresh")[0] == 0
    rewritten, _ = news(TABLE, seen)
    assert "delete" in set(rewritten["_change_type"]), "a log that is rewritten shows"
    every = pl.concat([changes, more, rewritten])
    copy = execute(signed, pl=pl, changes=every)["signed"]
    sums = copy.group_by("stop", "total", "version").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    assert Counter(sums.rows()) == Counter(pl.read_delta(TABLE).select(sums.columns).rows())


def test_a_table_of_an_earlier_release_gets_the_feed(copied: Path, dd: Command) -> None:
    """As the page says, with delta-rs; the commands go on as if nothing had happened."""
    kept = pl.read_delta(TABLE)
    plain = DeltaTable.create("plain", DeltaTable(TABLE).schema(), configuration={"delta.checkpointInterval": "25"})
    assert plain.protocol().min_writer_version == 2
    with pytest.raises(Exception, match="does not have change data enabled"):
        plain.load_cdf(starting_version=0)
    table = DeltaTable(TABLE)
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert dd("show", "journeys")[0] == dd("status")[0] == 0
    (copied / "more.csv").write_text("src,dst,minutes,version,diff\nZoo,Moon,9,6,1\n")
    assert dd("ingest", "links", "more.csv")[0] == dd("run")[0] == 0
    feed = pl.DataFrame(DeltaTable(TABLE).load_cdf(starting_version=table.version() + 1).read_all())
    assert [row[:4] for row in feed.rows()] == [("Moon", 23, 6, 1)]
    assert len(pl.read_delta(TABLE)) == len(kept) + 1


# -- Spark -------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_the_page_reads_and_streams_with_spark(copied: Path, dd: Command, query: str, spark: SparkSession) -> None:
    with_spark = [
        block.replace('"warehouse/', f'"{copied}/warehouse/')
        .replace("`warehouse/", f"`{copied}/warehouse/")
        .replace('"copy', f'"{copied}/copy')
        .replace('"feed', f'"{copied}/feed')
        for block in blocks("python")
        if "spark" in block
    ]
    read, stream, feed = with_spark
    names = execute(read, spark=spark, query=query)
    assert {tuple(row) for row in names["rows"].collect()} == shown(dd, 3)
    execute(stream, spark=spark)
    execute(feed, spark=spark)
    log = Counter(pl.read_delta(TABLE).rows())
    assert Counter(pl.read_delta("copy").rows()) == log
    assert Counter(pl.read_delta("feed").select(pl.exclude("^_.*$")).rows()) == log
    assert dd("run")[0] == dd("show", "journeys")[0] == 0


@pytest.mark.spark
@pytest.mark.long
def test_T23_spark_streams_see_each_difference_once(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    """A stream of the table and one of its feed, each with a checkpoint, go on after every death and every run."""
    edges, project = history(seed), project_in(tmp_path / "p")
    table = str(project.warehouse / "outputs" / "reach")
    for source in parts(project, edges, [6, 11]):
        ingest(project, "edges", [source], engine="inline")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
            interrupt_after(patch, 1)
            replay.run(project, engine="inline")
        follow(spark, table, tmp_path)
        replay.run(project, engine="spark", parallelism=2)
        follow(spark, table, tmp_path)
    for name in ("plain", "feed"):
        copy = pl.read_delta(str(tmp_path / name))
        assert_equal_logs({"reach": in_order(copy)}, edges)
    assert set(pl.read_delta(str(tmp_path / "feed"))["_change_type"]) == {"insert"}
    # what rewrites the log cannot be missed
    replay.run(project, engine="inline", full_refresh=True)
    with pytest.raises(Exception, match=r"[Dd]etected (a data update|deleted data)"):
        follow(spark, table, tmp_path, "plain")
    follow(spark, table, tmp_path, "feed")
    copy = pl.read_delta(str(tmp_path / "feed"))
    assert set(copy["_change_type"]) == {"insert", "delete"}


def follow(spark: SparkSession, table: str, folder: Path, *names: str) -> None:
    """Let streams read what is new."""
    for name in names or ("plain", "feed"):
        reader = spark.readStream.format("delta").option("readChangeFeed", str(name == "feed").lower())
        writer = reader.load(table).writeStream.format("delta").option("checkpointLocation", str(folder / f"{name}-at"))
        writer.trigger(availableNow=True).start(str(folder / name)).awaitTermination()
