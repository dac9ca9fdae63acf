"""What user functions return becomes the declared types where that loses nothing; else an error names the value."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import folding
import polars as pl
import pytest
from test_values import rows_of

import ddcore as dd
from ddcore.base.errors import DataError, DdError, ExpressionError
from ddcore.base.schema import parse_type

LEAST, MOST = -(2**63), 2**63 - 1
NOON = datetime.datetime(2024, 2, 29, 12, 0, 0, 1)
UTC_NOON = NOON.replace(tzinfo=datetime.UTC)
ONCE = rows_of((1, 5, 0, 1))

EXACT: list[tuple[pl.Series, str, Any]] = [
    (pl.Series([7], dtype=pl.Int8), "int64", 7),
    (pl.Series([2**32 - 1], dtype=pl.UInt32), "int64", 2**32 - 1),
    (pl.Series([MOST], dtype=pl.UInt64), "int64", MOST),
    (pl.Series([2**64 - 1], dtype=pl.UInt64), "decimal(20,0)", Decimal(2**64 - 1)),
    (pl.Series([Decimal("1.50")], dtype=pl.Decimal(4, 2)), "decimal(38,36)", Decimal("1.5")),
    (pl.Series([-MOST], dtype=pl.Int128), "int64", -MOST),
    (pl.Series([2.0]), "int64", 2),
    (pl.Series([-(2.0**62)]), "int64", -(2**62)),
    (pl.Series([Decimal("12.00")]), "int64", 12),
    (pl.Series([None]), "int64", None),
    (pl.Series([None], dtype=pl.Float64), "int64", None),
    (pl.Series([1.5], dtype=pl.Float32), "float64", 1.5),
    (pl.Series([2**53]), "float64", 2.0**53),
    (pl.Series([2**62]), "float64", 2.0**62),
    (pl.Series([MOST - 1023]), "float64", float(MOST - 1023)),
    (pl.Series([7]), "decimal(3,2)", Decimal("7.00")),
    (pl.Series([Decimal("-9.90")]), "decimal(2,1)", Decimal("-9.9")),
    (pl.Series([Decimal("1.5")]), "decimal(18,4)", Decimal("1.5000")),
    (pl.Series(["a"], dtype=pl.Categorical), "string", "a"),
    (pl.Series([NOON], dtype=pl.Datetime("ns")), "timestamp", UTC_NOON),
    (pl.Series([NOON], dtype=pl.Datetime("us")), "timestamp", UTC_NOON),
    (pl.Series([UTC_NOON]).dt.convert_time_zone("Asia/Tokyo"), "timestamp", UTC_NOON),
    (pl.Series([True]), "bool", True),
    (pl.Series([b"\0"]), "binary", b"\0"),
]
LOSSY: list[tuple[pl.Series, str, str]] = [
    (pl.Series([1.7]), "int64", "has 1.7, which int64 does not hold exactly"),
    (pl.Series([1.0, 1.5]), "int64", "has 1.5"),
    (pl.Series([2.0**63]), "int64", "has 9.223372036854776e+18"),
    (pl.Series([-(2.0**63)]), "int64", "has -9.223372036854776e+18"),
    (pl.Series([float("nan")]), "int64", "has nan"),
    (pl.Series([float("inf")]), "int64", "has inf"),
    (pl.Series([Decimal("0.5")]), "int64", "has 0.5"),
    (pl.Series([2**63], dtype=pl.UInt64), "int64", "has 9223372036854775808"),
    (pl.Series([2**63], dtype=pl.Int128), "int64", "has 9223372036854775808"),
    (pl.Series([LEAST]), "int64", "has -9223372036854775808"),
    (pl.Series(["5"]), "int64", "is String, not int64"),
    (pl.Series([True]), "int64", "is Boolean, not int64"),
    (pl.Series([datetime.date(2024, 1, 1)]), "int64", "is Date, not int64"),
    (pl.Series([2**53 + 1]), "float64", "has 9007199254740993, which float64"),
    (pl.Series([MOST]), "float64", "has 9223372036854775807"),
    (pl.Series([Decimal("0.1")]), "float64", "is Decimal"),
    (pl.Series(["0.5"]), "float64", "is String"),
    (pl.Series([0.1]), "decimal(3,1)", "is Float64, not decimal(3,1)"),
    (pl.Series([Decimal("0.15")]), "decimal(3,1)", "has 0.15, which decimal(3,1) does not hold exactly"),
    (pl.Series([Decimal("100.0")]), "decimal(3,1)", "has 100.0"),
    (pl.Series([100]), "decimal(3,1)", "has 100"),
    (pl.Series([2**127 - 1], dtype=pl.Int128), "decimal(18,4)", "has 170141183460469231731687303715884105727"),
    (pl.Series([5]), "string", "is Int64, not string"),
    (pl.Series([1]), "bool", "is Int64, not bool"),
    (pl.Series(["a"]), "binary", "is String, not binary"),
    (pl.Series([NOON]), "date", "is Datetime"),
    (pl.Series([datetime.date(2024, 1, 1)]), "timestamp", "is Date, not timestamp"),
    (pl.Series([1_000_001], dtype=pl.Datetime("ns")), "timestamp", "has 1970-01-01"),
    (pl.Series([MOST // 1000 + 1], dtype=pl.Datetime("ms")), "timestamp", "9223372036854776"),
    (pl.Series([LEAST], dtype=pl.Datetime("us")), "timestamp", "which timestamp does not hold exactly"),
    (pl.Series([[1]]), "int64", "is List(Int64), not int64"),
]


def shown(value: Any) -> str:
    return str(value.dtype) if isinstance(value, pl.Series) else str(value)


def returning(column: pl.Series) -> Any:
    """A function of ``flat_map`` or ``reduce`` that returns this column for its first row or group."""

    def constant(frame: pl.DataFrame) -> pl.DataFrame:
        handle = "row" if "row" in frame.columns else "group"
        first = frame.select(handle).head(1)
        return pl.concat([first] * len(column)).with_columns(column.alias("x"))

    return constant


def flat_map(column: pl.Series, kind: str) -> Any:
    return lambda rows: {"out": rows.flat_map(returning(column), schema={"x": kind})}


def reduce(column: pl.Series, kind: str) -> Any:
    return lambda rows: {"out": rows.group_by().reduce(returning(column), {"x": kind})}


@pytest.mark.parametrize("fold", [folding.by_reference, folding.whole])
@pytest.mark.parametrize("operator", [flat_map, reduce])
@pytest.mark.parametrize(("column", "kind", "value"), EXACT, ids=shown)
def test_exact_values_are_cast(operator: Any, fold: Any, column: pl.Series, kind: str, value: Any) -> None:
    assert fold(operator(column, kind), rows=ONCE)["out"] == {((value,), (0,)): 1}


@pytest.mark.parametrize("operator", [flat_map, reduce])
@pytest.mark.parametrize(("column", "kind", "said"), LOSSY, ids=shown)
def test_what_would_be_lost_is_an_error(operator: Any, column: pl.Series, kind: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        folding.whole(operator(column, kind), rows=ONCE)
    assert said in caught.value.message
    assert "test_casts.py:" in caught.value.message
    assert "the function constant returned a column that does not fit: x" in caught.value.message
    assert "\n" not in caught.value.message
    assert "schema=" in caught.value.hint
    with pytest.raises(ExpressionError):
        folding.by_reference(operator(column, kind), rows=ONCE)


@pytest.mark.parametrize("fold", [folding.by_reference, folding.whole])
@pytest.mark.parametrize("count", [1.9, 2.0**63, "1", Decimal("0.5"), True, float("nan")])
def test_counts_are_whole_numbers(fold: Any, count: Any) -> None:
    returned = pl.Series([count])
    with pytest.raises(ExpressionError, match="count"):
        fold(lambda rows: {"out": rows.group_by().reduce(counting(returned), {"x": "int64"})}, rows=ONCE)


def counting(counts: pl.Series) -> Any:
    return lambda groups: groups.select("group").head(1).with_columns(counts.alias("count"), x=pl.lit(1, pl.Int32))


@pytest.mark.parametrize("fold", [folding.by_reference, folding.whole])
@pytest.mark.parametrize("count", [2.0, Decimal("3.0"), -(2**63), 2**63 - 1, 0])
def test_counts_of_any_type_that_are_whole(fold: Any, count: Any) -> None:
    returned = pl.Series([count])
    log = fold(lambda rows: {"out": rows.group_by().reduce(counting(returned), {"x": "int64"})}, rows=ONCE)["out"]
    assert log == ({((1,), (0,)): int(count)} if count else {})


def test_a_row_that_is_no_whole_number() -> None:
    with pytest.raises(ExpressionError, match=r"row has 0.5"):
        dd.replay(
            lambda rows: {"out": rows.flat_map(lambda frame: frame.select(row=0.5, x=1), schema={"x": "int64"})},
            rows=ONCE,
        )


@pytest.mark.parametrize("error", [AssertionError(), ValueError("a\nb"), KeyError("x")])
def test_what_a_function_raises_is_told_in_one_line(error: Exception) -> None:
    def failing(frame: pl.DataFrame) -> pl.DataFrame:
        raise error

    with pytest.raises(ExpressionError, match=f"the function failing failed at .*: {type(error).__name__}") as caught:
        dd.replay(lambda rows: {"out": rows.flat_map(failing, schema={"x": "int64"})}, rows=ONCE)
    assert "\n" not in caught.value.message


def test_a_group_of_all_columns() -> None:
    """No column is left but the group and the count."""

    def counted(groups: pl.DataFrame) -> pl.DataFrame:
        return groups.select("group", n="count")

    rows = rows_of((1, 5, 0, 2), (2, 5, 0, 1))
    program = lambda rows: {"out": rows.group_by("k", "v").reduce(counted, {"n": "int64"})}  # noqa: E731
    assert folding.whole(program, rows=rows) == folding.by_reference(program, rows=rows)


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        (pl.Series([1.5]), "int64", "column x has 1.5, which int64 does not hold exactly"),
        (pl.Series([LEAST], dtype=pl.Datetime("us", "UTC")), "timestamp", "is reserved"),
        (pl.Series([LEAST]), "int64", "is reserved"),
    ],
)
def test_no_value_becomes_another_on_its_way_in(column: pl.Series, kind: str, said: str) -> None:
    from ddcore.data.encoding import encode

    with pytest.raises(DataError, match=said):
        encode(column.alias("x"), parse_type(kind))
    assert issubclass(DataError, DdError)
