"""Decimals of 19 to 38 digits in expressions, aggregates and SQL: literal cases, and values that do not fit.

What every type does, such as keys and pass-through, is in test_types.py, test_values.py and test_interoperation.py.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import polars as pl
import pytest

import ddcore as dd
from ddcore import col, reference
from ddcore.base.errors import DdError, DiffOverflow, ExpressionError, ProgramError
from ddcore.sql import program

MOST = Decimal("9" * 36 + ".99")
LARGE = Decimal("123456789012345678901234567890.25")
WIDE, MONEY = pl.Decimal(38, 2), pl.Decimal(10, 2)


def rows(*values: Any, diffs: tuple[int, ...] = (), dtype: pl.DataType = WIDE) -> pl.DataFrame:
    """Values of a column w beside a column m of few digits, all of one group k, one version each."""
    return pl.DataFrame(
        {
            "k": ["a"] * len(values), "w": values, "m": [Decimal("1.50")] * len(values),
            "version": range(len(values)), "diff": diffs or [1] * len(values),
        },
        schema={"k": pl.String, "w": dtype, "m": MONEY, "version": pl.Int64, "diff": pl.Int64},
    )  # fmt: skip


def at_the_end(views: Any, frame: pl.DataFrame) -> tuple[list[Any], pl.Schema]:
    """The rows of the output ``o`` that are there at last, and the columns of its log."""
    log = dd.replay(views, rows=frame)["o"]
    columns = log.columns[:-2]
    there = log.group_by(columns, maintain_order=True).agg(pl.col("diff").sum()).filter(pl.col("diff") > 0)
    return there.select(columns).rows(), log.schema


@pytest.mark.parametrize(
    ("expression", "value", "dtype"),
    [
        (col("w") + 1, Decimal("123456789012345678901234567891.25"), WIDE),
        (col("w") - col("m"), Decimal("123456789012345678901234567888.75"), WIDE),
        (col("w") * 2, Decimal("246913578024691357802469135780.50"), WIDE),
        (col("w") * Decimal("0.5"), Decimal("61728394506172839450617283945.125"), pl.Decimal(38, 3)),
        (-col("w"), Decimal("-123456789012345678901234567890.25"), WIDE),
        ("w * 1.5 - w", Decimal("61728394506172839450617283945.125"), pl.Decimal(38, 3)),
        (col("w") > col("m"), True, pl.Boolean()),
        (col("w") == Decimal("123456789012345678901234567890.25"), True, pl.Boolean()),
        (col("w").is_between(LARGE, LARGE), True, pl.Boolean()),
        (col("w").cast(pl.String), "123456789012345678901234567890.25", pl.String()),
        (col("w").cast(pl.Float64), float(LARGE), pl.Float64()),
        (col("m") * 2, Decimal("3.00"), pl.Decimal(18, 2)),
        (col("m").cast(WIDE) * 2, Decimal("3.00"), WIDE),
        (col("m") * Decimal("0.1234567890123456789"), Decimal("0.185185183518518518350"), pl.Decimal(38, 21)),
        (col("w").cast(pl.Decimal(38, 2)) * 0 + col("m"), Decimal("1.50"), WIDE),
        (pl.when(col("w") > 5).then(col("m")).otherwise(col("w")), Decimal("1.50"), WIDE),
        (pl.when(col("w") > 5).then(col("m") + 1).otherwise(col("m")), Decimal("2.50"), pl.Decimal(18, 2)),
    ],
)
def test_no_digit_is_lost(expression: Any, value: Any, dtype: pl.DataType) -> None:
    """A result has 38 digits where something that it is computed from has more than 18, or its scale needs them."""
    found, schema = at_the_end(lambda rows: {"o": rows.select(x=expression)}, rows(LARGE))
    assert found == [(value,)]
    assert schema["x"] == dtype


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col("w") * 10, r"w \* 10.*in the row w=Decimal\('9+\.99'\)"),
        (col("w") + Decimal("0.01"), r"in the row w=Decimal\('9+\.99'\)"),
        (col("w").cast(pl.Decimal(18, 2)), r"in the row w=Decimal\('9+\.99'\)"),
        (col("w").cast(pl.Int64), r"in the row w=Decimal\('9+\.99'\)"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_row(expression: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        dd.replay(lambda rows: {"o": rows.select(x=expression)}, rows=rows(Decimal(0), MOST))


@pytest.mark.parametrize(
    ("values", "diffs", "total"),
    [
        ([MOST, MOST.copy_negate()], (1, 1), Decimal("0.00")),
        ([MOST, MOST, MOST.copy_negate()], (10**9, 1, 10**9), MOST),
        ([Decimal("-0.01")], (10**9,), Decimal("-10000000.00")),
        ([LARGE, LARGE, None], (3, -1, 5), Decimal("246913578024691357802469135780.50")),
        ([Decimal(f"{2**64}.00"), Decimal(f"-{2**96}.00")], (1, 1), Decimal(f"{2**64 - 2**96}.00")),
        ([None], (1,), Decimal("0.00")),
    ],
)
def test_sums_are_exact_and_retractions_take_away(values: list[Any], diffs: tuple[int, ...], total: Any) -> None:
    """One version has all rows: the sum passes what no decimal holds on its way."""
    frame = rows(*values, diffs=diffs).with_columns(version=0)
    found, schema = at_the_end(lambda rows: {"o": rows.group_by("k").agg(s=dd.sum("w"))}, frame)
    assert found == [("a", total)]
    assert schema["s"] == WIDE


def test_aggregates_and_windows_beside_a_sum() -> None:
    frame = rows(LARGE, MOST, Decimal("-0.01"), None, MOST, diffs=(2, 1, 1, 1, -1)).with_columns(version=0)

    def views(rows: Any) -> Any:
        grouped = rows.group_by("k").agg(
            n=dd.count(), s=dd.sum("w"), mean=dd.mean("w"), few=dd.sum("m"), lo=dd.min("w"), d=dd.count_distinct("w"),
            some=dd.sum("w", where="w > 0"),
        )  # fmt: skip
        return {"o": grouped}

    twice = Decimal("246913578024691357802469135780.50")
    mean = 246913578024691357802469135780.49 / 3
    found, _ = at_the_end(views, frame)
    total = Decimal("246913578024691357802469135780.49")
    assert found == [("a", 4, total, mean, Decimal("6.00"), Decimal("-0.01"), 2, twice)]

    over, schema = at_the_end(
        lambda rows: {"o": rows.group_by("k").over("w", t=dd.sum("w")).where("w is not null").select("w", "t")}, frame
    )
    assert sorted(over) == [(Decimal("-0.01"), Decimal("-0.01")), (LARGE, Decimal("246913578024691357802469135780.49"))]
    assert schema["t"] == WIDE


def test_statistics_are_those_of_all_digits() -> None:
    frame = rows(LARGE, MOST, Decimal("-0.01"), None, MOST.copy_negate(), diffs=(2, 1, 1, 1, 1)).with_columns(version=0)
    gone = frame[1:2].with_columns(version=pl.lit(1, dtype=frame.schema["version"]), diff=pl.lit(-1, dtype=pl.Int64))

    def views(rows: Any) -> Any:
        return {
            "o": rows.group_by("k").agg(
                v=dd.variance("w"), s=dd.stddev("w", population=True), c=dd.corr("w", "m"), y=dd.covariance("m", "w")
            )
        }

    log = pl.concat([frame, gone.select(frame.columns)])
    found = reference.log_of(dd.replay(views, rows=log)["o"], ("version",))
    assert found == reference.replay(views, rows=log)["o"]
    values = [Fraction(value) for value in (LARGE, LARGE, MOST, Decimal("-0.01"), -MOST)]
    mean = sum(values) / len(values)
    first = next(row for (row, time), diff in found.items() if time == (0,) and diff == 1)
    assert first[1] == float(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


@pytest.mark.parametrize(
    ("values", "diffs"), [([MOST, Decimal("0.01")], (1, 1)), ([MOST.copy_negate()], (2,)), ([LARGE], (2**40,))]
)
def test_a_sum_of_more_than_38_digits_names_the_group(values: list[Any], diffs: tuple[int, ...]) -> None:
    frame = rows(*values, diffs=diffs)
    with pytest.raises(DiffOverflow, match=r"k=a: total has too many digits for decimal\(38,2\)|a sum or a count"):
        dd.replay(lambda rows: {"o": rows.group_by("k").agg(total=dd.sum("w"))}, rows=frame)


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: rows.group_by("k").agg(x=dd.median("w")),
        lambda rows: rows.group_by("k").over("w", x=dd.sum("m").range_between(-1, 0)),
        lambda rows: rows.select(x=col("w") / 2),
        lambda rows: rows.select(x=Decimal("1" * 39)),
    ],
)
def test_what_is_not_offered_is_refused(call: Any) -> None:
    with pytest.raises(ProgramError) as error:
        dd.replay(lambda rows: {"o": call(rows)}, rows=rows(LARGE))
    assert "\n" not in error.value.message and error.value.hint


def test_state_over_several_folds_and_ids() -> None:
    session = dd.Session(
        lambda rows: {"o": rows.group_by("k").agg(s=dd.sum("w")), "ids": rows.select("w").with_row_id()},
        {"rows": {"k": "string", "w": "decimal(38,2)", "m": "decimal(10,2)"}},
    )
    one = session.fold({"rows": rows(LARGE)}, upper=[(1,)])
    two = session.fold({"rows": rows(LARGE, LARGE, diffs=(1, -1)).filter(pl.col("version") == 1)})
    assert one["o"].rows() == [("a", LARGE, 0, 1)]
    assert two["o"].rows() == [("a", LARGE, 1, -1)]
    ids = dd.replay(lambda rows: {"o": rows.select("w").with_row_id()}, rows=rows(LARGE, LARGE, MOST, None))["o"]
    assert ids["row_id"].n_unique() == 3


SQL = [
    "SELECT k, sum(w) AS s, min(w) AS lo, max(w) AS hi, count(DISTINCT w) AS n FROM rows GROUP BY k",
    "SELECT w + 1 AS a, w - m AS b, w * 2 AS c, -w AS d FROM rows WHERE w < 10000000000000000000000000000000.5",
    "SELECT CAST(m AS decimal(38,4)) AS a, CAST(w AS decimal(38,0)) AS b FROM rows",
    "SELECT a.w AS w, count(*) AS n FROM rows a JOIN rows b ON a.w = b.w GROUP BY a.w HAVING a.w > 0",
    "SELECT w, sum(w) OVER (ORDER BY w) AS t, lag(w) OVER (ORDER BY w) AS l FROM rows WHERE w < 0.75",
    "SELECT coalesce(w, 12345678901234567890.5) AS a, CASE WHEN w > m THEN w ELSE m END AS b FROM rows WHERE w < 1",
    "SELECT CAST('12345678901234567890.125' AS decimal(38,2)) AS a, round(w, 1) AS b FROM rows",
    "SELECT CAST(s AS decimal(38,2)) AS a FROM (SELECT CAST(w AS text) AS s FROM rows) x",
    "SELECT sum(DISTINCT w) AS s FROM rows",
]  # fmt: skip


@pytest.mark.parametrize("query", SQL)
def test_sql_gives_what_duckdb_gives(query: str) -> None:
    values = [Decimal("0.50"), Decimal("-0.50"), LARGE, LARGE, Decimal(f"-{2**64}.25"), None]
    frame = rows(*values).with_columns(version=0)
    found, _ = at_the_end(program(f"CREATE VIEW o AS {query}"), frame)
    counted = dd.replay(program(f"CREATE VIEW o AS {query}"), rows=frame)["o"]
    found = [tuple(row[:-2]) for row in counted.rows() for _ in range(row[-1])]
    database = duckdb.connect()
    database.register("rows", frame.drop("version", "diff").to_arrow())
    expected = database.execute(query).fetchall()
    assert sorted(found, key=repr_of) == sorted(expected, key=repr_of)


def repr_of(row: tuple[Any, ...]) -> str:
    return repr([None if value is None else f"{value:.4f}" if isinstance(value, Decimal) else value for value in row])


def test_sql_refuses_what_has_more_digits() -> None:
    with pytest.raises(ProgramError, match="has more than 38 digits"):
        dd.replay(program(f"CREATE VIEW o AS SELECT {'1' * 39} AS x FROM rows"), rows=rows(LARGE))
    with pytest.raises(DdError, match="in the row"):
        dd.replay(program("CREATE VIEW o AS SELECT w * 1000000 AS x FROM rows"), rows=rows(LARGE, MOST))
