"""Ingest with Spark: the same rows, the same records and the same errors as without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from deltalake import write_deltalake
from ingesting import Desk
from places import local
from real_data import shared_data

from ddcore.base.errors import DataError, DdError, LateUpdate, StorageError, UnknownRetraction, UsageError
from ddcore.cli import main
from ddcore.io.sources.intake import Intake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SCHEMA = {"name": "string", "f": "float64", "at": "timestamp", "price": "decimal(9,2)"}


def both(folder: Path, schema: dict[str, str] | None = None) -> tuple[Desk, Desk]:
    """A project ingested by Spark and one ingested inline."""
    desks = []
    for engine in ("spark", "inline"):
        (folder / engine).mkdir()
        desks.append(Desk(folder / engine, schema or {"src": "int64", "dst": "int64"}, engine))
    return desks[0], desks[1]


def test_sources_of_all_kinds_get_in_as_they_do_inline(tmp_path: Path) -> None:
    by_spark, inline = both(tmp_path, SCHEMA)
    noon = datetime(2026, 1, 31, 12, 0, 0, 5)
    rows: list[tuple[Any, ...]] = [("é", 1.5, noon, "1.50"), (None, float("nan"), None, None), ("", -0.0, noon, "-3")]
    frame = pl.DataFrame(rows, ["name", "f", "at", "price"], orient="row").with_columns(
        pl.col("price").cast(pl.Decimal(9, 2)), version=pl.lit(0, pl.Int32), diff=pl.lit(2.0)
    )
    locations = [str(tmp_path / name) for name in ("wide", "narrow 1%20[0]{x}.parquet", "text.csv")]
    Path(locations[0]).mkdir()
    for part in range(3):  # files of several shapes under one folder
        other = frame.with_columns(version=pl.lit(part), note=pl.lit("x")).select(pl.all().reverse())
        other.write_parquet(f"{locations[0]}/{part}.parquet")
        nanoseconds = other.drop("note").with_columns(pl.col("at").cast(pl.Datetime("ns")), version=pl.lit(part + 3))
        nanoseconds.write_parquet(f"{locations[0]}/{part}-ns.parquet")
    frame.with_columns(pl.col("f").cast(pl.Float32), version=9).write_parquet(locations[1])
    Path(locations[2]).write_text('name,f,at,price,version,diff\n"a ""b""\n,c",inf,2026-01-31T12:00:00Z,7,1,1\n')
    reports = [desk.ingest(*locations) for desk in (by_spark, inline)]
    assert str(by_spark.updates()) == str(inline.updates()) and len(by_spark.updates()) == 3 * 7 + 1
    (one,), (other_one,) = by_spark.records(), inline.records()
    assert {source.name for source in one.sources} == {source.name for source in other_one.sources}
    assert one.counts == other_one.counts
    assert (reports[0].rows, reports[0].plus) == (reports[1].rows, reports[1].plus) == (22, 43)
    # what one engine took in is known to the other
    inline.engine = "spark"
    assert inline.ingest(*locations).nothing_new
    assert by_spark.stray_files() == inline.stray_files() == []


def test_a_delta_table_of_any_feature_gets_in(tmp_path: Path, spark: SparkSession) -> None:
    desk = Desk(tmp_path, engine="spark")
    table = tmp_path / "table"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (src INT, dst BIGINT, version INT, diff INT) USING delta TBLPROPERTIES "
        "('delta.enableDeletionVectors' = true, 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{table}` SELECT id, id, 0, 1 FROM range(10)")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN dst TO target")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE src < 8")
    desk.ingest(str(table), column={"dst": "target"})
    assert desk.updates() == [(8, 8, 0, 1), (9, 9, 0, 1)]
    desk.engine = "inline"
    assert desk.ingest(str(table), column={"dst": "target"}).nothing_new


def test_json_lines_and_fields_by_their_paths_get_in_as_they_do_inline(tmp_path: Path) -> None:
    by_spark, inline = both(tmp_path, {"k": "int64", "day": "date", "a`b.c": "int64"})
    after = [{"id": number, "day": None if number % 3 else datetime(2026, 1, 1 + number).date()} for number in range(9)]
    frame = pl.DataFrame({"after": [None, *after], "version": range(10), "diff": [1] * 10, "a`b.c": range(10)})
    frame.write_ndjson(tmp_path / "a.jsonl")
    frame.with_columns(pl.col("version") + 10).write_parquet(tmp_path / "b.parquet")
    write_deltalake(str(tmp_path / "c"), frame.with_columns(pl.col("version") + 20).to_arrow())
    locations = [str(tmp_path / name) for name in ("a.jsonl", "b.parquet", "c")]
    (tmp_path / "bad.jsonl").write_text(
        '{"after": {"id": 1, "day": "2026-01-32"}, "version": 40, "diff": 1, "a`b.c": 1}\n'
    )
    messages = []
    for desk in (by_spark, inline):
        desk.ingest(*locations, column={"k": "after.id", "day": "after.day"})
        with pytest.raises(DataError, match="'2026-01-32' is not a date") as caught:
            desk.ingest(str(tmp_path / "bad.jsonl"), column={"k": "after.id", "day": "after.day"})
        messages.append(caught.value.message)
    assert by_spark.updates() == inline.updates() and len(inline.updates()) == 30
    assert messages[0] == messages[1]


def test_formats_that_only_spark_reads(tmp_path: Path, spark: SparkSession) -> None:
    """ORC in every form, XML with its options; what Spark cannot read is one line."""
    desk = Desk(tmp_path, engine="spark")
    orc = str(tmp_path / "orc")
    spark.sql("SELECT id AS src, struct(id + 1 AS to) AS edge, 0 AS version, 1 AS diff FROM range(3)").write.orc(orc)
    desk.ingest(orc, format="orc", column={"dst": "edge.to"})
    assert desk.updates() == [(0, 1, 0, 1), (1, 2, 0, 1), (2, 3, 0, 1)]
    assert desk.ingest(orc, format="orc", column={"dst": "edge.to"}).nothing_new
    xml = tmp_path / "rows.xml"
    xml.write_text("<rows><row><src>1</src><dst>2</dst></row><row><src>5</src><dst>6</dst></row></rows>")
    said: dict[str, Any] = {"format": "xml", "option": {"rowTag": "row"}, "form": "snapshot"}
    desk.ingest(str(xml), **said)
    assert desk.updates()[3:] == [(0, 1, 1, -1), (2, 3, 1, -1), (5, 6, 1, 1)]
    assert desk.ingest(str(xml), **said).nothing_new
    for name, words in (("nonsense", "nonsense"), ("orc", "does not read it as orc")):
        with pytest.raises(DdError, match=words) as caught:
            desk.ingest(str(xml), format=name)
        assert "\n" not in caught.value.message
    with pytest.raises(UsageError, match="there is no such file"):
        desk.ingest(str(tmp_path / "none"), format="orc")
    assert len(desk.records()) == 2 and not desk.stray_files()


def test_bad_rows_are_refused_as_they_are_inline(tmp_path: Path) -> None:
    by_spark, inline = both(tmp_path)
    good = by_spark.source("good.parquet", (1, 2, 0, 1), (1, 2, 4, 1))
    for desk in (by_spark, inline):
        desk.ingest(good)
        desk.fold(3)
    cases: list[tuple[type[DdError], dict[str, Any]]] = [
        (DataError, {"diff": [1.5]}), (DataError, {"version": [-1]}), (DataError, {"src": [-(2**63)]}),
        (DataError, {"src": ["x"]}), (LateUpdate, {"version": [2]}), (UnknownRetraction, {"diff": [-1]}),
    ]  # fmt: skip
    for number, (kind, columns) in enumerate(cases):
        bad = by_spark.source(f"bad-{number}.parquet", (7, 7, 5, 1), **columns)
        messages = []
        for desk in (by_spark, inline):
            with pytest.raises(kind) as caught:
                desk.ingest(bad, good)
            assert desk.stray_files() == [] and len(desk.records()) == 1
            messages.append((caught.value.message.removesuffix(" (row 1)"), caught.value.hint))
        assert messages[0] == messages[1]


def test_a_file_that_breaks_in_the_middle_is_named(tmp_path: Path) -> None:
    desk = Desk(tmp_path, engine="spark")
    good = desk.source("good.parquet", (1, 2, 0, 1))
    bad = Path(desk.source("bad one.parquet", *[(number * 7919 % 5000, number, 0, 1) for number in range(5000)]))
    data = bytearray(bad.read_bytes())
    data[4:3000] = b"\x00" * 2996
    bad.write_bytes(data)
    with pytest.raises((DataError, StorageError)) as caught:
        desk.ingest(good, str(bad))
    assert "bad one.parquet: not a readable Parquet file" in caught.value.message
    assert desk.updates() == [] and desk.stray_files() == []


def test_values_that_their_types_do_not_allow_are_refused(tmp_path: Path) -> None:
    """Spark's own reader takes such bytes as they are, and makes nulls of such decimals."""
    by_spark, inline = both(tmp_path, {"s": "string", "n": "decimal(4,2)"})
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
    )
    digits = b"".join(number.to_bytes(16, "little") for number in (1, 12345))
    numbers = pa.Array.from_buffers(pa.decimal128(4, 2), 2, [None, pa.py_buffer(digits)])
    two = pa.array([1, 2], pa.int64())
    good = {"s": pa.array(["a", "b"]), "n": two.cast(pa.decimal128(21, 2)).cast(pa.decimal128(4, 2))}
    good |= {"version": two, "diff": two}
    for number, bad in enumerate([{"s": text}, {"n": numbers}]):
        file = str(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({**good, **bad}), file)
        messages = []
        for desk in (by_spark, inline):
            with pytest.raises(DataError, match=r"column '[sn]': a value that is no .* \(row 2\)") as caught:
                desk.ingest(file)
            messages.append(str(caught.value))
            assert desk.updates() == [] and desk.stray_files() == []
        assert messages[0] == messages[1]


def test_a_grown_file_under_another_spelling_brings_only_its_new_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, engine="spark")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    for name in ("a.parquet", "_b.parquet"):
        desk.source(f"data/{name}", (1, len(name), 0, 1))
    desk.ingest(str(tmp_path / "data" / "a.parquet"), str(tmp_path / "data" / "_b.parquet"))
    for name in ("a.parquet", "_b.parquet"):
        desk.source(f"data/{name}", (1, len(name), 0, 1), (2, len(name), 1, 1))
    report = desk.ingest("../data/a.parquet", "./../data/_b.parquet")
    assert desk.updates() == [(1, 9, 0, 1), (1, 10, 0, 1), (2, 9, 1, 1), (2, 10, 1, 1)]
    assert len([note for note in report.notes if "taken in after version 0" in note]) == 2


def test_real_data_gets_in_whatever_the_engine(tmp_path: Path) -> None:
    by_spark, inline = both(tmp_path, {"package": "string", "dependency": "string"})
    source = str(shared_data("package_sets", "dependencies.parquet"))
    for desk in (by_spark, inline):
        assert desk.ingest(source).versions == 937
    assert by_spark.updates() == inline.updates()
    by_spark.engine = "inline"
    assert by_spark.ingest(source).nothing_new


def test_a_worker_that_dies_leaves_nothing_and_the_next_ingest_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, engine="spark")
    source = desk.source("a.parquet", (1, 2, 0, 1))
    with monkeypatch.context() as patched:
        patched.setattr("ddcore.jobs.spark.intake._task", _die)
        with pytest.raises(DdError, match="the Spark job failed: ") as caught:
            desk.ingest(source)
    assert "\n" not in caught.value.message
    assert desk.updates() == [] and desk.stray_files() == []
    assert desk.ingest(source).ingest == 1


def _die(intake: Intake, *_: Any) -> None:
    (local(intake.log.folder) / f"ingest-{intake.number:08d}-000-00000-0000-half.parquet").write_bytes(b"PAR1")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_spark_submit_runs_the_entry_file(tmp_path: Path) -> None:
    """A sync: an ingest on Spark's context, and a run."""
    desk = Desk(tmp_path)
    desk.source("a.parquet", (1, 2, 0, 1))
    (tmp_path / "program.py").write_text('def program(edges):\n    return {"ends": edges.select("dst").distinct()}\n')
    with (tmp_path / "dd.toml").open("a") as file:
        file.write('source = { path = "a.parquet" }\n')
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [submit, "--master", "local[1]", "--driver-java-options", "-XX:TieredStopAtLevel=1", main.__file__, "sync",
         "--project", tmp_path],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    (ingest,), run = report["ingests"], report["run"]
    assert (ingest["ingest"], ingest["rows"], ingest["engine"]) == (1, 1, "spark")
    assert (run["last"], run["engine"], run["outputs"]["ends"]["plus"]) == (0, "spark", 1)
    assert desk.updates() == [(1, 2, 0, 1)]


def test_history_is_restated_as_it_is_inline(tmp_path: Path) -> None:
    desks = both(tmp_path)
    for desk in desks:
        desk.ingest(desk.source("a.parquet", (1, 1, 0, 1), (2, 2, 2, 1), (3, 3, 4, 1)))
        desk.fold(4)
        restated = desk.source("b.parquet", (3, 9, 4, 1), (4, 4, 5, 1))
        assert desk.ingest(restated, restate=4).restates == ((4,),)
        assert desk.ingest(restated, restate=4).nothing_new
        assert desk.ingest(desk.source("c.parquet", (7, 7, 1, 1)), late="restate").restates == ((1,),)
        wide = Desk(desk.folder, {"src": "int64", "note": "string", "dst": "int64"}, desk.engine)
        assert wide.ingest(restated).nothing_new, "it lacks the new column, and is known from before"
        wide.ingest(wide.source("d.parquet", (8, "x", 8, 9, 1)))
        assert wide.updates()[-1] == (8, "x", 8, 9, 1) and desk.stray_files() == []
    by_spark, inline = (Desk(desk.folder, {"src": "int64", "note": "string", "dst": "int64"}) for desk in desks)
    assert by_spark.updates() == inline.updates()
    assert [record.restates for record in by_spark.records()] == [record.restates for record in inline.records()]
