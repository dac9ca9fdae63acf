"""What others read: every table of a warehouse with delta-spark, and the documented SQL against ``dd show``.

Every type goes the whole way from a source through a program to an output, on both engines.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from trams import Command, records

from ddcore.cli.main import run_command
from ddcore.cli.text import plain
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]

TYPES = {
    "s": "string", "n": "int64", "f": "float64", "b": "bool", "d": "date", "t": "timestamp", "m": "decimal(18,4)",
    "y": "binary", "w": "decimal(38,2)",
}  # fmt: skip
MOST = Decimal("9" * 34 + ".99")
NOON = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
ROWS: list[Row] = [
    ("", 2**63 - 1, math.inf, True, date(1, 1, 1), datetime(1, 1, 2, tzinfo=UTC), Decimal("9999999999999.9999"), b"",
     MOST),
    ("é\U0001f600", -(2**63) + 1, -0.0, False, date(9999, 12, 31), NOON, Decimal("-9999999999999.9999"), b"\0\xff",
     MOST.copy_negate()),
    ("it's; \"x\"\n", 0, math.nan, True, date(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
     Decimal("0.0001"), b"a", Decimal("0.01")),
    ("x" * 200, -1, 5e-324, None, None, datetime(9999, 12, 30, tzinfo=UTC), None, None, Decimal(f"{2**64}.00")),
    (None,) * 9,
]  # fmt: skip

PROGRAM = """
import ddcore as dd

def program(rows):
    return {
        "passed": rows.select("s", "n", "f", "b", "d", "t", "m", "y", "w"),
        "some": rows.where("n <= 0"),
        "grouped": rows.group_by("s", "b", "d", "t").agg(
            copies=dd.count(), n=dd.max("n"), f=dd.min("f"), m=dd.sum("m"), w=dd.sum("w"),
        ),
    }
"""


@pytest.fixture(scope="module", params=["inline", pytest.param("spark", marks=pytest.mark.long)])
def typed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a column of every type, nine versions ingested and folded in two runs. Nobody writes to it."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "spark":
        request.getfixturevalue("spark")
    schema = ", ".join(f'{name} = "{kind}"' for name, kind in TYPES.items())
    (folder / "dd.toml").write_text(
        f'[project]\nprogram = "program.py:program"\nwarehouse = "warehouse"\n'
        f'[run]\nengine = "{request.param}"\n[inputs.rows]\nschema = {{ {schema} }}\n'
    )
    (folder / "program.py").write_text(PROGRAM)
    updates = [(*row, version, 1 + index) for version in (0, 3) for index, row in enumerate(ROWS)]
    updates += [(*row, 5, -2 * (1 + index)) for index, row in enumerate(ROWS[:2])]
    updates += [(*ROWS[2], 8, -1)]
    for number, part in enumerate((updates[:5], updates[5:])):
        types: dict[str, Any] = {
            "s": pl.String, "n": pl.Int64, "f": pl.Float64, "b": pl.Boolean, "d": pl.Date,
            "t": pl.Datetime("us", "UTC"), "m": pl.Decimal(18, 4), "y": pl.Binary,
            "w": pl.Decimal(38, 2), "version": pl.Int64, "diff": pl.Int64,
        }  # fmt: skip
        pl.DataFrame(part, types, orient="row").write_parquet(folder / f"{number}.parquet")
        for command in (["ingest", "rows", f"{folder}/{number}.parquet"], ["run"]):
            assert run_command([*command, "--project", str(folder), "-q"]) == 0
    return folder


@pytest.fixture
def at_home(typed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The typed project as the working folder."""
    monkeypatch.chdir(typed)
    return typed


def shown(dd: Command, output: str, at: int) -> Counter[Row]:
    """The rows that ``dd show --json`` prints, and how often each is there."""
    code, out, _ = dd("show", output, "--at", str(at), "--json")
    assert code == 0
    return Counter(
        {tuple(map(repr, record["row"].values())): record["count"] for record in records(out) if "row" in record}
    )


def as_shown(values: Row) -> Row:
    """A row of Spark's as ``dd show --json`` spells it."""
    return tuple(repr(json.loads(json.dumps(plain(one)))) for one in map(canonical, values))


def canonical(value: Any) -> Any:
    """A value as the engine has it: times in UTC, one zero."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, float):
        return value or 0.0
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.spark
def test_the_documented_sql_gives_what_show_shows(at_home: Path, dd: Command, spark: SparkSession) -> None:
    kept = spark.conf.get("spark.sql.session.timeZone")
    assert kept == "UTC"
    for name in ("passed", "some", "grouped"):
        columns = [item for item in spark.read.format("delta").load(f"{at_home}/warehouse/outputs/{name}").columns]
        assert columns[-2:] == ["version", "diff"]
        row = ", ".join(columns[:-2])
        for at in (0, 7):
            found = spark.sql(
                f"SELECT {row}, SUM(diff) FROM delta.`{at_home}/warehouse/outputs/{name}` "
                f"WHERE version <= {at} GROUP BY {row} HAVING SUM(diff) <> 0"
            ).toArrow()
            rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
            counted = Counter({as_shown(item[:-1]): item[-1] for item in rows})
            assert counted == shown(dd, name, at), (name, at)
            assert counted


@pytest.mark.spark
def test_every_type_goes_through_unchanged(at_home: Path, dd: Command, spark: SparkSession) -> None:
    found = spark.read.format("delta").load(f"{at_home}/warehouse/outputs/passed")
    kinds = [kind for _, kind in found.dtypes]
    assert kinds == [
        "string", "bigint", "double", "boolean", "date", "timestamp", "decimal(18,4)", "binary",
        "decimal(38,2)", "bigint", "bigint",
    ]  # fmt: skip
    first = found.where("version = 0").toArrow()
    columns = [first[name].to_pylist() for name in (*TYPES, "diff")]
    seen = Counter({as_shown(row[:-1]): row[-1] for row in zip(*columns, strict=True)})
    assert seen == Counter({as_shown(row): 1 + index for index, row in enumerate(ROWS)})
    assert shown(dd, "passed", 8)[as_shown(ROWS[2])] == 5
    assert as_shown(ROWS[0]) not in shown(dd, "passed", 8)
    # min, max and sum of every type that has them
    third = (*ROWS[2][:1], True, *ROWS[2][4:6], 5, 0, math.nan, Decimal("0.0005"), Decimal("0.05"))
    assert shown(dd, "grouped", 8)[as_shown(third)] == 1
    assert (
        shown(dd, "grouped", 8)[as_shown((None, None, None, None, 10, None, None, Decimal("0.0000"), Decimal("0.00")))]
        == 1
    )


@pytest.mark.spark
def test_inputs_state_and_ledger_are_delta_tables_too(typed: Path, spark: SparkSession) -> None:
    warehouse = Warehouse(typed / "warehouse")
    run = Ledger.load(warehouse).current_run()
    assert run is not None
    names = [name for name in run.tables if name.startswith("state/")]
    assert names
    for name in names:
        table = spark.read.format("delta").load(str(warehouse.table(name)))
        assert {"version", "diff", "_code"} <= set(table.columns)
        assert table.count() == run.tables[name].rows > 0
    inputs = spark.read.format("delta").load(str(warehouse.input("rows")))
    assert inputs.columns == [*TYPES, "version", "diff"]
    assert inputs.count() == 13
    kinds = [row["kind"] for row in spark.read.format("delta").load(str(warehouse.ledger)).orderBy("entry").collect()]
    assert kinds == ["ingest", "intent", "run"] * 2
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{warehouse.output('passed')}`").first()
    assert detail is not None
    assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 4), "4 is the change data feed"
