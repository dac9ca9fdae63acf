"""Expressions: what is accepted, what its type and text are, and that integers are exact whatever the batch."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars import col
from seeds import nightly

import ddcore
from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.base.schema import parse_schema
from ddcore.expressions.canonical import canonical
from ddcore.expressions.parsing import parse
from ddcore.expressions.projections import ListProjection, Predicate, Projection

MOST = 2**63 - 1
SCHEMA = parse_schema(
    {
        "a": "int64", "b": "int64", "c": "int64", "price": "decimal(10,2)", "day": "date", "at": "timestamp",
        "name": "string", "ratio": "float64", "ok": "bool", "raw": "binary",
    }
)  # fmt: skip


def frame(**columns: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(columns, schema={name: SCHEMA[name].polars for name in columns})


def compute(expr: pl.Expr, **columns: list[Any]) -> list[Any]:
    return Projection({"x": expr}, SCHEMA).computed(frame(**columns))["x"].to_list()


def sql(text: str) -> pl.Expr:
    return parse(text, bare_string="sql")


# -- parse ------------------------------------------------------------------------------------------------------------


def test_a_string_is_a_column_or_sql() -> None:
    assert canonical(parse("a", bare_string="column")) == "a"
    assert canonical(parse("a + 1", bare_string="sql")) == "(+ a 1)"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, "int64"),
        (True, "bool"),
        (0.5, "float64"),
        (float("inf"), "float64"),
        (Decimal("1.20"), "decimal(18,2)"),
        (Decimal("1E+3"), "decimal(18,0)"),
        (date(2026, 1, 2), "date"),
        (datetime(2026, 1, 2, 3), "timestamp"),
        (b"\x00", "binary"),
    ],
)
def test_a_python_value_is_a_literal(value: Any, kind: str) -> None:
    projection = Projection({"x": parse(value, bare_string="sql")}, SCHEMA)
    assert str(projection.schema["x"]) == kind
    actual = projection.computed(frame(a=[1, 2]))["x"].to_list()
    assert actual == 2 * [value.replace(tzinfo=UTC) if isinstance(value, datetime) else value]


@pytest.mark.parametrize("value", [2**63, -(2**63), Decimal("1e38"), Decimal("NaN"), [1], object()])
def test_values_that_no_column_holds_are_refused(value: Any) -> None:
    with pytest.raises(ProgramError):
        parse(value, bare_string="sql")


@pytest.mark.parametrize("text", ["a +", "NOW()", "a > CURRENT_TIMESTAMP", "day = current_date"])
def test_sql_that_cannot_be_read_or_asks_the_clock_is_refused(text: str) -> None:
    with pytest.raises(ProgramError, match="SQL text"):
        sql(text)


def test_a_quoted_word_does_not_ask_the_clock() -> None:
    assert canonical(sql("name = 'now()'")) == '(= name "now()")'


# -- canonical text ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (col("a") + 1, "(+ a 1)"),
        (col("a") + pl.lit(1, pl.Int64), "(+ a 1)"),
        ((col("a") + 1).alias("z"), "(+ a 1)"),
        (col("my col") == col("null"), "(= `my col` `null`)"),
        (col("a") == pl.lit(None), "(= a null)"),
        (col("ratio") < float("inf"), "(< ratio inf)"),
        (pl.when(col("a") > 0).then(float("-inf")).otherwise(float("nan")), "(if (> a 0) -inf nan)"),
        (col("a").is_in([1, 2]), "(is_in{nulls_equal=false} a (list Int64 ['1', '2']))"),
        (col("day").dt.year(), "(dt.year day)"),
        (pl.lit(date(2026, 1, 2)), "(date 2026-01-02)"),
        (col("price") * Decimal("1.5"), "(* price (decimal 1.5))"),
        (col("name").cast(pl.Int64, strict=False), "(try_cast name int64)"),
    ],
)
def test_canonical_text(expr: pl.Expr, text: str) -> None:
    assert canonical(expr) == text


def test_lists_from_python_and_from_polars_have_one_text() -> None:
    assert canonical(col("a").is_in([1, 2])) == canonical(col("a").is_in(pl.Series([1, 2])))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (col("a"), pl.lit("a")),
        (pl.lit(1), pl.lit(1.0)),
        (pl.lit(True), col("true")),
        (col("a").cast(pl.Int64), col("a").cast(pl.Int64, strict=False)),
        (pl.lit(float("inf")), pl.lit(float("nan"))),
        (col("a") - col("b"), col("b") - col("a")),
    ],
)
def test_different_expressions_have_different_texts(one: pl.Expr, other: pl.Expr) -> None:
    assert canonical(one) != canonical(other)


def test_the_text_is_the_same_in_another_process() -> None:
    module = "ddcore.expressions.canonical"
    program = f"import polars as pl; from {module} import canonical; print(canonical(pl.col('a').is_in(['x', 'y'])))"
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert there == canonical(col("a").is_in(["x", "y"]))


def test_a_python_function_has_no_text() -> None:
    with pytest.raises(ProgramError, match="calls a Python function"):
        canonical(col("a").map_elements(abs, return_dtype=pl.Int64))


# -- types ------------------------------------------------------------------------------------------------------------


def output_type(expr: pl.Expr, schema: Any) -> Any:
    return Projection({"result": expr}, schema).schema["result"]


@pytest.mark.parametrize(
    ("expr", "kind"),
    [
        (col("a") + 1, "int64"),
        (col("a") / 2, "float64"),
        (col("a") * 1.5, "float64"),
        (pl.when(col("ok")).then(1).otherwise(2), "int64"),
        (col("day").dt.year(), "int64"),
        (col("name").str.len_chars(), "int64"),
        (col("ok") + col("ok"), "int64"),
        (col("ratio").cast(pl.Float32), "float64"),
        (col("day").cast(pl.Datetime("ns")), "timestamp"),
        (col("price"), "decimal(10,2)"),
        (col("price") * 2, "decimal(18,2)"),
        (col("price") * col("price"), "decimal(18,4)"),
        (col("price") * 1.5, "decimal(18,3)"),
        (sql("price * 1.5"), "decimal(18,3)"),
        (col("price") * col("ratio"), "float64"),
        (col("price").cast(pl.Decimal(12, 4)), "decimal(12,4)"),
        (sql("a * 1.5"), "decimal(18,1)"),
        (col("name").str.split(","), "list[string]"),
        (
            pl.struct(x=col("a").cast(pl.Int8), y=pl.concat_list(col("price") * 1.5)),
            "struct[x: int64, y: list[decimal(18,3)]]",
        ),
    ],
)
def test_output_types(expr: pl.Expr, kind: str) -> None:
    assert str(output_type(expr, SCHEMA)) == kind


def test_an_unknown_column_is_named_with_a_close_match() -> None:
    with pytest.raises(ProgramError) as caught:
        output_type(col("prize") + 1, SCHEMA)
    assert caught.value.message.startswith("there is no column prize: the columns are a, b, c, price")
    assert caught.value.hint == "did you mean 'price'?"


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (col("a") + col("name"), "a + name: arithmetic on dtypes"),
        (pl.lit(None), "null is null and has no type"),
        (pl.concat_list(col("day") - col("day")), "[]: columns of type Duration(time_unit='us') are not supported"),
        (col("day") - col("day"), "columns of type Duration(time_unit='us') are not supported"),
        (col("a") * 2**64, "beyond int64"),
    ],
)
def test_expressions_without_a_type_are_refused(expr: pl.Expr, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        output_type(expr, SCHEMA)
    assert message in caught.value.message


@pytest.mark.parametrize(
    "expr",
    [
        col("a").sum(), col("a") - col("a").mean(), col("a").sum().over("b"), col("a").shift(), col("a").cum_sum(),
        col("a").sort(), col("a").unique(), col("a").filter(col("ok")), col("a").is_duplicated(), col("a").rank(),
        col("a").first(), col("a").head(1), col("a").reverse(), col("a").forward_fill(), col("a").rolling_sum(2),
        col("name").str.join(), col("name").str.to_date(), col("ok").any(), pl.len(), pl.int_range(pl.len()),
        col("a").sample(1), col("a").shuffle(), col("a").hash(), col("a").is_in(col("b")), pl.col("a", "b"), pl.all(),
        col("a") + pl.lit(pl.Series([1, 2])), col("a").replace(col("b"), 1), sql("SUM(a)"),
    ],
)  # fmt: skip
def test_what_needs_more_than_its_own_row_is_refused(expr: pl.Expr) -> None:
    with pytest.raises(ProgramError):
        output_type(expr, SCHEMA)


@pytest.mark.parametrize(
    "expr",
    [
        pl.concat_list("a", "b").list.eval(pl.element() * 2).list.get(0),
        pl.concat_list("a", "b").list.eval(pl.sum_horizontal(pl.element(), pl.element())).list.get(0),
        pl.concat_list("a", "b").list.eval(-pl.element()).list.get(0),
        pl.concat_list("a", "b").list.filter(pl.element() * 2 > 0).list.len(),
        pl.concat_list("day").list.eval(pl.element().dt.offset_by("1d")).list.get(0),
        pl.concat_list("day").list.mean(),
        (pl.concat_list("a", "b") + 1).list.get(0),
        col("a").round_sig_figs(2),
    ],
)
def test_integer_arithmetic_out_of_sight_is_refused(expr: pl.Expr) -> None:
    with pytest.raises(ProgramError, match="overflow cannot be detected"):
        output_type(expr, SCHEMA)


# -- projections ------------------------------------------------------------------------------------------------------


def test_bare_columns_are_renames_and_are_not_computed() -> None:
    projection = Projection({"x": col("a"), "y": col("b").alias("z"), "s": col("a") + col("c")}, SCHEMA)
    assert projection.renames == {"x": "a", "y": "b"}
    assert projection.columns == ["a", "c"]
    assert projection.computed(frame(a=[1], c=[2])).to_dict(as_series=False) == {"s": [3]}
    assert projection.evaluate(frame(a=[1], b=[5], c=[2])).rows() == [(1, 5, 3)]


def test_only_renames_compute_nothing() -> None:
    assert Projection({"x": col("a")}, SCHEMA).columns is None


def test_values_alone_have_a_row_for_each_row() -> None:
    projection = Projection({"x": pl.lit(1), "y": pl.lit("n")}, SCHEMA)
    assert projection.columns == []
    assert projection.computed(pl.DataFrame({"_row": [7, 8]})).rows() == [(1, "n"), (1, "n")]
    assert projection.computed(pl.DataFrame({"_row": []})).rows() == []


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_what_polars_finds_constant_still_has_a_row_for_each_row(rows: int) -> None:
    constant_zero = pl.when(col("a") > col("a")).then(col("a")).otherwise(0)
    assert compute(constant_zero, a=rows * [7]) == rows * [0]
    assert compute(-constant_zero, a=rows * [7]) == rows * [0]
    both = Projection({"x": -constant_zero, "y": col("a") + 1}, SCHEMA).computed(frame(a=rows * [7]))
    assert both.rows() == rows * [(0, 8)]
    assert Predicate([constant_zero < 1], SCHEMA).evaluate(frame(a=rows * [7])).tolist() == rows * [True]


def test_a_projection_survives_pickling() -> None:
    projection = pickle.loads(pickle.dumps(Projection({"x": col("a") + 1}, SCHEMA)))
    assert projection.computed(frame(a=[1])).rows() == [(2,)]


def test_results_have_the_types_of_the_schema() -> None:
    projection = Projection(
        {"y": col("day").dt.year(), "t": col("day").cast(pl.Datetime("ms")), "n": col("price") * 2}, SCHEMA
    )
    made = projection.computed(frame(day=[date(2026, 1, 2)], price=[Decimal("1.25")]))
    assert made.schema == {name: kind.polars for name, kind in projection.schema.items()}
    assert made.rows() == [(2026, datetime(2026, 1, 2, tzinfo=UTC), Decimal("2.50"))]


def test_a_decimal_that_outgrows_18_digits_is_an_error() -> None:
    with pytest.raises(ExpressionError, match="decimal"):
        compute(col("price") * col("a"), price=[Decimal("99999999.99")], a=[MOST])


def test_a_failing_cast_names_the_expression_and_the_value() -> None:
    with pytest.raises(ExpressionError) as caught:
        compute(col("name").cast(pl.Int64), name=["1", "x"])
    assert re.fullmatch(
        r"test_expressions\.py:\d+: cast\(name, int64\): 'x' is no int64, in the row name=.x.",
        caught.value.message,
    )


def test_a_witness_with_a_time_beyond_pythons_years_is_still_shown() -> None:
    rows = pl.DataFrame({"a": [MOST], "at": [2**62]}).with_columns(col("at").cast(pl.Datetime("us", "UTC")))
    with pytest.raises(ExpressionError, match="in the row a=9223372036854775807, at=4611686018427387904"):
        Projection({"x": pl.when(col("at").is_null()).then(0).otherwise(col("a") + 1)}, SCHEMA).computed(rows)


def test_the_failing_one_of_several_is_named() -> None:
    projection = Projection({"x": col("a") + 1, "y": col("name").cast(pl.Int64)}, SCHEMA)
    with pytest.raises(ExpressionError, match=r"cast\(name, int64\)"):
        projection.computed(frame(a=[1], name=["x"]))


# -- exact integers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "a", "expected"),
    [
        ((col("a") * 2) // 4, 2**62, 2**61),
        (col("a") - col("a") * 2 + col("a"), MOST, 0),
        (-(-col("a") * 2) // 2, -MOST, -MOST),
        ((col("a") * 2).cast(pl.Float64), MOST, 2.0**64),
        (col("a") * 3 * 0.5, MOST, 1.5 * 2.0**63),
        (col("a") * 2 / 2, MOST, 2.0**63),
        ((col("a") + col("a")).cast(pl.String), MOST, str(2 * MOST)),
        ((col("a") * 2).cast(pl.Int64, strict=False), MOST, None),
        (col("a") * 10 > 5, MOST, True),
        ((col("a") * 2).is_in([-2, 14]), MOST, False),
        ((col("a") * 2).is_between(0, 1), MOST, False),
        (pl.when(col("a") + 1 > 0).then(1).otherwise(0), MOST, 1),
        (pl.when(col("a") > 9).then(0).otherwise(col("a") * col("a")), MOST, 0),
        (pl.max_horizontal(col("a") * 2, 1) // 2, MOST, MOST),
        (pl.sum_horizontal("a", "a") - col("a"), MOST, MOST),
        ((col("a") * 2).clip(0, 9), MOST, 9),
        ((col("a") + 1).fill_null(0) - 1, MOST, MOST),
        (col("a") ** 2 // col("a"), MOST, MOST),
        ((col("a") * 5) % 7, MOST, MOST * 5 % 7),
        ((col("a") - 1).abs() - 2, -MOST, MOST - 1),
    ],
)
def test_what_leaves_int64_on_the_way_only_is_exact(expr: pl.Expr, a: int, expected: Any) -> None:
    assert compute(expr, a=[a]) == [expected]


@pytest.mark.parametrize(
    ("expr", "a", "value"),
    [
        (col("a") + 1, MOST, 2**63),
        (col("a") - 1, -MOST, -(2**63)),
        (col("a") * col("a"), 2**32, 2**64),
        (col("a") ** 2, 2**32, 2**64),
        (2 ** col("a"), 63, 2**63),
        (pl.sum_horizontal("a", "a"), MOST, 2 * MOST),
        (~col("a"), MOST, -(2**63)),
        (sql("a * 2"), MOST, 2 * MOST),
        (sql("a + 1"), MOST, 2**63),
        (sql("-a - 1"), MOST, -(2**63)),
        (col("name").cast(pl.Int64) + 1, 0, 2**63),
        (col("name").cast(pl.Int64) * -1 - 1, 0, -(2**63)),
    ],
)
def test_a_result_beyond_int64_is_an_error_with_a_witness(expr: pl.Expr, a: int, value: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compute(expr, a=[0, a], name=["0", str(MOST)])
    witness = "name='9223372036854775807'" if "name" in canonical(expr) else f"a={a}"
    assert f"is {value}, which int64 cannot hold, in the row {witness}" in caught.value.message


def test_the_reserved_value_is_refused_where_it_is_only_cast() -> None:
    with pytest.raises(ExpressionError, match="is -9223372036854775808"):
        compute(col("name").cast(pl.Int64), name=[str(-(2**63))])


def test_narrow_integers_are_widened_before_arithmetic() -> None:
    assert compute(col("name").str.len_chars() - 5, name=["abc"]) == [-2]
    assert compute(col("day").dt.year() * 10_000_000, day=[date(2026, 1, 2)]) == [20_260_000_000]
    assert compute(col("a").cast(pl.Int8) * 2, a=[100]) == [200]


def test_lists_are_summed_exactly() -> None:
    with pytest.raises(ExpressionError, match="conversion from `i128` to `i64` failed"):
        compute(pl.concat_list("a", "a").list.sum(), a=[MOST])
    assert compute(pl.concat_list("a", "a").list.sum(), a=[4]) == [8]


@pytest.mark.parametrize(
    ("expr", "a", "b", "expected"),
    [
        (pl.mean_horizontal("a", "b"), 2**62, 2**62, 2.0**62),
        (pl.mean_horizontal("a", "b"), MOST, MOST, float(MOST)),
        (pl.mean_horizontal("a", "b"), -MOST, -MOST, -float(MOST)),
        (pl.mean_horizontal("a", "b"), MOST, None, float(MOST)),
        (pl.mean_horizontal("a", "b"), None, None, None),
        (pl.mean_horizontal("a", "b", ignore_nulls=False), MOST, None, None),
        (pl.mean_horizontal(col("a") * 4, "b"), 2**62, 0, 2.0**63),
        (pl.mean_horizontal("a", "ok"), 4, 0, 4.0),
        (pl.mean_horizontal("a", 0.5), 2**62, 0, 2.0**61),
        (pl.concat_list("a", "b").list.mean(), MOST, MOST, float(MOST)),
        (pl.concat_list("a", "b").list.median(), MOST, MOST, float(MOST)),
        (pl.concat_list("a", "b").list.std(), MOST, MOST, 0.0),
        (pl.concat_list("a", "b").list.var(), MOST, MOST, 0.0),
        (pl.concat_list("a", "b").list.max(), MOST, 1, MOST),
        (pl.concat_list("a", "b").list.sum(), MOST, -MOST, 0),
        (pl.concat_list("a", "b").list.eval(pl.element() % 10).list.sum(), MOST, 1, MOST % 10 + 1),
        (pl.concat_list("a", "b").list.filter(pl.element() > 1).list.sum(), MOST, 1, MOST),
    ],
)
def test_means_and_lists_of_integers_do_not_wrap(expr: pl.Expr, a: Any, b: Any, expected: Any) -> None:
    assert compute(expr, a=[a, 1], b=[b, 1], ok=[None, True])[0] == expected
    assert compute(expr, a=[a], b=[b], ok=[None]) == [expected]


@pytest.mark.parametrize(
    "expr",
    [
        pl.concat_list("a", "b").list.sum(),
        pl.sum_horizontal("a", "b"),
        pl.sum_horizontal("a", "b", ignore_nulls=False),
        pl.concat_list(col("a") + col("b"), "b").list.get(0),
        pl.concat_list("a", "b").list.sum() * 2,
        sql("a + b"),
    ],
)
def test_sums_that_leave_int64_are_errors_with_a_place_and_a_row(expr: pl.Expr) -> None:
    with pytest.raises(ExpressionError, match=r"^test_expressions\.py:\d+: .*, in the row a=9223372036854775807, b=7$"):
        raise_first_line(expr, a=[1, MOST, 2], b=[3, 7, 4])


def raise_first_line(expr: pl.Expr, **columns: list[Any]) -> None:
    try:
        compute(expr, **columns)
    except ExpressionError as error:
        raise ExpressionError(error.message) from None


@pytest.mark.sample(1)
@pytest.mark.parametrize("divisor", nightly([3, 0.1, -3, 7, 10, 49], 3))
def test_a_quotient_is_the_same_in_a_batch_of_one_row(divisor: float) -> None:
    values = [float(value) for value in range(-200, 200)]
    assert compute(col("ratio") / divisor, ratio=values) == [value / divisor for value in values]
    integers = [int(value) for value in values]
    assert compute(col("a") / divisor, a=integers) == [value / divisor for value in integers]
    assert compute(col("a") / divisor, a=integers[:1]) == [integers[0] / divisor]
    chosen = pl.when(col("ok")).then(divisor).otherwise(1.5)
    assert compute(col("ratio") / chosen, ratio=values, ok=[True] * 400) == [value / divisor for value in values]
    for expr in (col("ratio") % divisor, col("ratio") // divisor, col("ratio").truncdiv(divisor)):
        whole = compute(expr, ratio=values)
        assert [compute(expr, ratio=[value])[0] for value in values] == whole


def test_division_is_that_of_polars() -> None:
    assert compute(col("a") / col("b"), a=[1, 1, 0], b=[2, 0, 5]) == [0.5, float("inf"), 0.0]
    assert compute(col("a") // col("b"), a=[-7, 7], b=[2, 0]) == [-4, None]
    assert compute(sql("a // b"), a=[-7, 7], b=[2, 0]) == [-3, None]
    for expr in (col("a") // 0, col("a") % 0, col("a").truncdiv(0), sql("a // 0"), sql("a % 0"), sql("a % b")):
        assert compute(expr, a=[-7, MOST], b=[0, 0]) == [None, None]


# -- decimals ---------------------------------------------------------------------------------------------------------


def decimal_frame(pairs: list[tuple[str | None, str | None]]) -> pl.DataFrame:
    kinds = {"p": pl.Decimal(15, 2), "q": pl.Decimal(12, 4)}
    columns = zip(*pairs, strict=True)
    return pl.DataFrame(
        {
            name: [None if value is None else Decimal(value) for value in values]
            for name, values in zip(kinds, columns, strict=True)
        },
        schema=kinds,
    )


PRICES = decimal_frame(
    [
        ("901.15", "0.07"),
        ("-0.01", "0.0001"),
        ("1234567.89", "12345.6789"),
        (None, "1.5"),
        ("2.50", None),
        ("0", "0"),
    ]
)
WITH_DECIMALS = SCHEMA | parse_schema({"p": "decimal(15,2)", "q": "decimal(12,4)"})


@pytest.mark.parametrize(
    ("spellings", "value"),
    [
        (["p * q", col("p") * col("q")], lambda p, q: p * q),
        (["p + q", col("p") + col("q")], lambda p, q: p + q),
        (["p - q", col("p") - col("q")], lambda p, q: p - q),
        (["p * 1.055", col("p") * 1.055, col("p") * Decimal("1.055")], lambda p, _: p * Decimal("1.055")),
        (["p * 3", col("p") * 3, 3 * col("p")], lambda p, _: p * 3),
        (["p * (1 - q)", col("p") * (1 - col("q"))], lambda p, q: p * (1 - q)),
        (["p * p * 2", col("p") * col("p") * 2], lambda p, _: p * p * 2),
        (["q > 0.07", col("q") > 0.07, col("q") > Decimal("0.0700")], lambda _, q: q > Decimal("0.07")),
        (["p = 2.5", col("p") == 2.5, col("p").is_in([Decimal("2.500")])], lambda p, _: p == Decimal("2.5")),
        ([col("p").is_in([Decimal("901.145"), Decimal("901.154")])], lambda p, _: False if p is not None else None),
        ([col("p").clip(Decimal("0.005"), 10**9)], lambda p, _: min(max(p, Decimal("0.005")), Decimal(10**9))),
        ([col("p").replace(Decimal("901.145"), Decimal("1.00"))], lambda p, _: p),
        ([pl.sum_horizontal("p", "q", ignore_nulls=False)], lambda p, q: p + q),
        ([pl.concat_list("p", "q").list.sum() + col("p") * 0 + col("q") * 0], lambda p, q: p + q),
        ([(col("p") * col("q")).round(2)], lambda p, q: round(p * q, 2)),
    ],
)
def test_decimals_are_pythons_in_both_spellings(spellings: list[Any], value: Callable[[Any, Any], Any]) -> None:
    for spelling in spellings:
        expr = sql(spelling) if isinstance(spelling, str) else spelling
        read = set(expr.meta.root_names())
        nulls = [{name for name, part in zip("pq", pair, strict=True) if part is None} for pair in PRICES.rows()]
        expected = [None if read & none else value(*pair) for pair, none in zip(PRICES.rows(), nulls, strict=True)]
        actual = Projection({"x": expr}, WITH_DECIMALS).computed(PRICES)["x"].to_list()
        assert actual == expected, spelling


def test_a_product_of_a_pair_that_was_rounded() -> None:
    for spelling in ("p * q", col("p") * col("q")):
        expr = parse(spelling, bare_string="sql")
        assert Projection({"x": expr}, WITH_DECIMALS).computed(PRICES[:1])["x"].to_list() == [Decimal("63.080500")]


@pytest.mark.parametrize(
    "text",
    ["p / q", "p / 2", "p % 2", "p // 2", "2 / p", "p % q"],
)
def test_quotients_of_decimals_are_refused(text: str) -> None:
    exprs = {"/": lambda x, y: x / y, "%": lambda x, y: x % y, "//": lambda x, y: x // y}
    left, sign, right = text.split()
    parts = [col(part) if part.isalpha() else pl.lit(int(part)) for part in (left, right)]
    for expr in (sql(text), exprs[sign](*parts)):
        with pytest.raises(ProgramError, match="would lose digits"):
            Projection({"x": expr}, WITH_DECIMALS)


@pytest.mark.parametrize(
    "expr",
    [
        pl.sum_horizontal("p", "p"), col("p") + col("p"), col("p") * 11, pl.concat_list("p", "p").list.sum(),
        col("p") * col("p") * col("p") * col("p"), sql("p * p * p"),
    ],
)  # fmt: skip
def test_decimals_that_outgrow_18_digits_are_errors_of_their_row(expr: pl.Expr) -> None:
    rows = pl.DataFrame({"p": [Decimal("1.00"), Decimal(10**15 - 1) * 10]}, schema={"p": pl.Decimal(18, 2)})
    schema = parse_schema({"p": "decimal(18,2)"})
    with pytest.raises(ExpressionError, match=r"^test_expressions\.py:\d+: .*, in the row p=Decimal\('9999"):
        Projection({"x": expr}, schema).computed(rows)


def test_a_product_with_too_many_digits_after_the_point_is_refused() -> None:
    schema = parse_schema({"p": "decimal(18,10)"})
    assert str(Projection({"x": col("p") * col("p")}, schema).schema["x"]) == "decimal(38,20)"
    with pytest.raises(ProgramError, match="40 digits after the point"):
        Projection({"x": col("p") * col("p") * col("p") * col("p")}, schema)
    rounded = Projection({"x": (col("p") * col("p")).cast(pl.Decimal(18, 2))}, schema)
    assert str(rounded.schema["x"]) == "decimal(18,2)"


# -- dates and times --------------------------------------------------------------------------------------------------

FIRST, LAST = -(2**63) + 1, 2**63 - 1
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def times(ticks: list[int], days: list[int]) -> pl.DataFrame:
    """Timestamps and dates from their numbers, far beyond the years that Python has."""
    return pl.DataFrame({"at": ticks, "day": days, "a": ticks}).with_columns(
        col("at").cast(pl.Datetime("us", "UTC")), col("day").cast(pl.Int32).cast(pl.Date)
    )


COMPUTING = [
    col("at") + DAY, col("at") - DAY, col("at").dt.offset_by("1d"), col("at").dt.truncate("1d"),
    col("at").dt.round("1h"), col("at").dt.truncate("1mo"), col("at").dt.month_start(), col("at").dt.month_end(),
    col("at").dt.year(),
    col("at").dt.date(), col("at").cast(pl.Date), col("at").dt.timestamp("ns"), col("at").dt.epoch("s"),
    col("at").cast(pl.Datetime("ns")), col("at").dt.cast_time_unit("ns"), col("at").dt.strftime("%Y"),
    col("at").cast(pl.String), col("at").dt.replace(day=1), (col("at") - EPOCH).dt.total_days(),
    col("at").dt.replace_time_zone("Asia/Tokyo"), col("at").dt.convert_time_zone("Asia/Tokyo").dt.hour(),
    col("day") + DAY, col("day") - DAY, col("day").dt.offset_by("1d"), col("day").cast(pl.Datetime("us", "UTC")),
    col("day").dt.year(), col("day").dt.month_end(), col("day").dt.round("1w"), col("day").dt.epoch("us"),
    col("day").dt.to_string(), col("day") > col("at"), pl.coalesce("day", "at"), pl.max_horizontal("day", "at"),
    (col("day") - date(1, 1, 1)).dt.total_days(), pl.format("{}", "day"), pl.concat_str("at", "day"),
    col("a").cast(pl.Datetime("us", "UTC")), col("a").cast(pl.Date), pl.from_epoch("a"),
    EPOCH + pl.duration(days="a"), pl.lit(EPOCH) + pl.duration(days=1) * col("a"), pl.datetime("a", 1, 1),
    pl.date("a", 1, 1), pl.date(2026, col("a"), 1),
]  # fmt: skip


@pytest.mark.sample(60)
@pytest.mark.parametrize("expr", COMPUTING)
@pytest.mark.parametrize(("tick", "day"), [(LAST, 2**31 - 1), (FIRST, -(2**31)), (2**62, 2**30), (-(2**62), -(2**30))])
def test_computing_with_a_time_beyond_the_limits_is_an_error_of_its_row(expr: pl.Expr, tick: int, day: int) -> None:
    fine = times([2**30], [20_000])
    try:
        Projection({"x": expr}, SCHEMA).computed(fine)
    except ExpressionError:
        assert "a" in Projection({"x": expr}, SCHEMA).columns  # type: ignore[operator]
    with pytest.raises(ExpressionError, match=r"^test_expressions\.py:\d+: .*, in the row "):
        Projection({"x": expr}, SCHEMA).computed(pl.concat([fine, times([tick], [day])]))


@pytest.mark.parametrize(
    ("expr", "numbers"),
    [
        (col("at"), [FIRST, LAST]),
        (pl.max_horizontal("at", "at"), [FIRST, LAST]),
        (pl.when(col("at") > EPOCH).then("at").otherwise(None), [None, LAST]),
        (col("at").to_physical(), [FIRST, LAST]),
        (col("at").cast(pl.Int64), [FIRST, LAST]),
        (col("day"), [-(2**31), 2**31 - 1]),
        (col("day") < date(2000, 1, 1), [True, False]),
        (col("at").is_between(EPOCH, EPOCH + DAY), [False, False]),
        (pl.when(col("at") > EPOCH).then(1).otherwise(2), [2, 1]),
        (pl.when(col("a") == 7).then(col("at").dt.year()).otherwise(0), [0, 0]),
    ],
)
def test_any_time_may_be_compared_and_passed_on(expr: pl.Expr, numbers: list[Any]) -> None:
    rows = times([FIRST, LAST], [-(2**31), 2**31 - 1])
    actual = Projection({"x": expr}, SCHEMA).evaluate(rows)["x"]
    assert actual.to_physical().to_list() == numbers


@pytest.mark.parametrize("number", [-98_000, -10_000, -1, 0, 9_999, 99_999])
def test_times_within_the_limits_are_exact(number: int) -> None:
    """Years are counted by Python's own rule: 400 years have 146,097 days."""
    days = (number - 1970) // 400 * 146_097 + (date((number - 1970) % 400 + 1970, 1, 1) - date(1970, 1, 1)).days
    rows = times([days * 86_400_000_000], [days])
    exprs = [
        (col("day").dt.year(), number), (col("at").dt.year(), number), (col("day") + DAY, days + 1),
        (col("at") + DAY, (days + 1) * 86_400_000_000), (col("at").cast(pl.Date), days),
        (col("day").cast(pl.Datetime("us", "UTC")), days * 86_400_000_000),
        (col("at").dt.truncate("1d"), days * 86_400_000_000),
    ]  # fmt: skip
    for expr, expected in exprs:
        assert Projection({"x": expr}, SCHEMA).evaluate(rows)["x"].to_physical().to_list() == [expected]


@pytest.mark.parametrize(
    "step", ["3000000h", "200000000000d", "9999999999999999999d", "20000000000000000ms", "1h1d", "", "x"]
)
def test_a_step_that_polars_would_wrap_is_refused(step: str) -> None:
    with pytest.raises(ProgramError, match="has the step"):
        Projection({"x": col("at").dt.offset_by(step)}, SCHEMA)
    by_column = Projection({"x": col("at").dt.offset_by(col("name"))}, SCHEMA)
    rows = frame(at=[EPOCH, EPOCH], name=["1d", step])
    with pytest.raises(ExpressionError, match=r"in the row at=.*, name="):
        by_column.computed(rows)


@pytest.mark.parametrize("month", [0, 13, 257, 2**32 + 1, -1])
def test_a_date_that_does_not_exist_is_an_error_and_not_null(month: int) -> None:
    with pytest.raises(
        ExpressionError, match=r"(there is no such date or time|Invalid date components .*), in the row a="
    ):
        compute(pl.date(2026, col("a"), 1), a=[1, month])


@pytest.mark.parametrize(
    "expr",
    [(col("at") - EPOCH) / 3, (col("at") - EPOCH) * 0.5, (col("at") - EPOCH) // 2],
)
def test_parts_of_durations_are_refused(expr: pl.Expr) -> None:
    with pytest.raises(ProgramError):
        Projection({"x": EPOCH + expr}, SCHEMA)


# -- places and rows --------------------------------------------------------------------------------------------------


def test_the_failing_row_is_found_among_many() -> None:
    names = ["1"] * 1000 + ["x"] + ["2"] * 500
    with pytest.raises(ExpressionError, match="in the row name='x'"):
        compute(col("name").cast(pl.Int64), name=names)
    with pytest.raises(ExpressionError, match="in the row name='x'"):
        Predicate([sql("cast(name as bigint) > 0")], SCHEMA).evaluate(frame(name=names))
    with pytest.raises(ExpressionError, match="in the row name='x'"):
        ListProjection({"n": pl.int_ranges(0, col("name").cast(pl.Int64))}, SCHEMA).explode(frame(name=names))


def test_errors_of_a_program_have_its_line() -> None:
    rows = pl.DataFrame({"n": [1, 2**62], "s": ["1", "x"], "version": [0, 1], "diff": [1, 1]})
    failing: list[Callable[[Any], Any]] = [
        lambda rows: rows.select(x="n * 4"),
        lambda rows: rows.where(col("s").cast(pl.Int64) > 0),
        lambda rows: rows.flat_map(x=pl.concat_list("n", "n").list.sum().repeat_by(1)),
        lambda rows: rows.group_by().agg(x=ddcore.sum(col("n") * 4)),
        lambda rows: rows.select(x=pl.date(2026, "n", 1)),
    ]
    line = failing[0].__code__.co_firstlineno
    for number, operator in enumerate(failing):
        with pytest.raises(ExpressionError, match=rf"^test_expressions\.py:{line + number}: .*, in the row "):
            ddcore.replay(lambda rows: {"out": operator(rows)}, rows=rows)  # noqa: B023  (called at once)


def test_more_than_126_bits_on_the_way_is_an_error_of_its_row() -> None:
    cube = col("a") * col("b") * col("c") - col("a") * col("b") * col("c")
    with pytest.raises(ExpressionError, match=r"more than 126 bits, in the row a=9223372036854775807"):
        compute(cube, a=[1, MOST], b=[1, MOST], c=[1, MOST])
    assert compute(cube, a=[MOST, 1, 1], b=[1, MOST, 1], c=[1, 1, MOST]) == [0, 0, 0]


@dataclass(frozen=True)
class Formula:
    """An expression, and what it means for Python's integers (None for null)."""

    expr: pl.Expr
    value: Callable[[dict[str, int | None]], int | None]
    text: str

    def __repr__(self) -> str:
        return self.text


def variable(name: str) -> Formula:
    return Formula(col(name), lambda row: row[name], name)


def constant(value: int) -> Formula:
    return Formula(parse(value, bare_string="sql"), lambda _: value, str(value))


def binary(op: str) -> Callable[[Formula, Formula], Formula]:
    def made(left: Formula, right: Formula) -> Formula:
        def value(row: dict[str, int | None]) -> int | None:
            x, y = left.value(row), right.value(row)
            if x is None or y is None or (op in ("//", "%") and y == 0):
                return None
            return note(row, {"+": x + y, "-": x - y, "*": x * y, "//": x // (y or 1), "%": x % (y or 1)}[op])

        exprs = {
            "+": left.expr + right.expr, "-": left.expr - right.expr, "*": left.expr * right.expr,
            "//": left.expr // right.expr, "%": left.expr % right.expr,
        }  # fmt: skip
        return Formula(exprs[op], value, f"({left} {op} {right})")

    return made


def note(row: dict[str, int | None], value: int) -> int:
    """Remember the largest intermediate value of a row."""
    row["largest"] = max(row.get("largest") or 0, abs(value))
    return value


def negated(part: Formula) -> Formula:
    def value(row: dict[str, int | None]) -> int | None:
        x = part.value(row)
        return None if x is None else -x

    return Formula(-part.expr, value, f"-{part}")


def chosen(one: Formula, other: Formula, yes: Formula, no: Formula) -> Formula:
    def value(row: dict[str, int | None]) -> int | None:
        x, y, first, second = one.value(row), other.value(row), yes.value(row), no.value(row)
        return first if x is not None and y is not None and x > y else second

    expr = pl.when(one.expr > other.expr).then(yes.expr).otherwise(no.expr)
    return Formula(expr, value, f"({yes} if {one} > {other} else {no})")


INTS = st.one_of(
    st.integers(-9, 9),
    st.sampled_from([MOST, -MOST, MOST - 1, 2**31, 2**32, 3037000499, 3037000500, 2**62]),
    st.integers(-MOST, MOST),
)
FORMULAS = st.recursive(
    st.one_of(st.sampled_from("abc").map(variable), INTS.map(constant)),
    lambda part: st.one_of(
        st.sampled_from(["+", "-", "*", "//", "%"]).flatmap(lambda op: st.builds(binary(op), part, part)),
        part.map(negated),
        st.builds(chosen, part, part, part, part),
    ),
    max_leaves=6,
)
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | INTS for name in "abc"}), min_size=1, max_size=4)
EXAMPLES = settings(max_examples=300, derandomize=True, deadline=None)


@EXAMPLES
@given(FORMULAS, ROWS)
def test_integers_are_pythons_or_an_error(formula: Formula, rows: list[dict[str, int | None]]) -> None:
    expected = [formula.value(row) for row in rows]
    columns = {name: [row[name] for row in rows] for name in "abc"}
    fits = all(value is None or abs(value) <= MOST for value in expected)
    try:
        actual = Projection({"x": formula.expr}, SCHEMA).evaluate(frame(**columns))["x"].to_list()
    except ExpressionError:
        assert not fits or max(row.get("largest") or 0 for row in rows) >= 2**125
    else:
        assert actual == expected


@EXAMPLES
@given(FORMULAS, FORMULAS, st.sampled_from(["<", "<=", "=", ">", ">=", "!="]), ROWS)
def test_comparisons_are_those_of_pythons_integers(
    left: Formula, right: Formula, sign: str, rows: list[dict[str, int | None]]
) -> None:
    def holds(row: dict[str, int | None]) -> bool:
        x, y = left.value(row), right.value(row)
        if x is None or y is None:
            return False
        return {"<": x < y, "<=": x <= y, "=": x == y, ">": x > y, ">=": x >= y, "!=": x != y}[sign]

    a, b = left.expr, right.expr
    expr = {"<": a < b, "<=": a <= b, "=": a == b, ">": a > b, ">=": a >= b, "!=": a != b}[sign]
    expected = [holds(row) for row in rows]
    columns = {name: [row[name] for row in rows] for name in "abc"}
    try:
        actual = Predicate([expr], SCHEMA).evaluate(frame(**columns)).tolist()
    except ExpressionError:
        assert max(row.get("largest") or 0 for row in rows) >= 2**125
    else:
        assert actual == expected


# -- predicates and lists ---------------------------------------------------------------------------------------------


def test_every_condition_must_hold_and_null_does_not() -> None:
    predicate = Predicate([col("a") > 1, sql("b < 5")], SCHEMA)
    assert predicate.columns == ["a", "b"]
    assert predicate.evaluate(frame(a=[2, 2, None, 0], b=[1, None, 1, 1])).tolist() == [True, False, False, False]


def test_no_condition_and_conditions_without_columns() -> None:
    assert Predicate([], SCHEMA).evaluate(pl.DataFrame({"_row": [1, 2]})).tolist() == [True, True]
    assert Predicate([pl.lit(False)], SCHEMA).evaluate(pl.DataFrame({"_row": [1, 2]})).tolist() == [False, False]


def test_a_condition_must_be_bool() -> None:
    with pytest.raises(ProgramError, match="the condition a is Int64, not bool"):
        Predicate([col("a")], SCHEMA)


def test_lists_become_rows() -> None:
    projection = ListProjection({"tag": col("name").str.split(",")}, SCHEMA)
    assert str(projection.schema["tag"]) == "string" and projection.columns == ["name"]
    elements, rows = projection.explode(frame(name=["x,y", None, "z"]))
    assert elements.to_dict(as_series=False) == {"tag": ["x", "y", "z"]}
    assert rows.tolist() == [0, 0, 2]


def test_a_list_of_nothing_gives_nothing_and_a_null_element_stays() -> None:
    projection = ListProjection({"n": pl.int_ranges(0, col("a")), "m": pl.int_ranges(0, col("a"))}, SCHEMA)
    elements, rows = projection.explode(frame(a=[0, 2]))
    assert elements.rows() == [(0, 0), (1, 1)] and rows.tolist() == [1, 1]
    nulls, _ = ListProjection({"n": pl.concat_list("a", "b")}, SCHEMA).explode(frame(a=[None], b=[1]))
    assert nulls.rows() == [(None,), (1,)]


def test_lists_of_different_lengths_do_not_go_side_by_side() -> None:
    projection = ListProjection({"n": pl.int_ranges(0, col("a")), "m": pl.int_ranges(0, col("b"))}, SCHEMA)
    with pytest.raises(ExpressionError, match="n has 1 elements where m has 2, in the row a=1, b=2"):
        projection.explode(frame(a=[1], b=[2]))


def test_a_list_replaces_the_column_of_its_name() -> None:
    schema = parse_schema({"name": "string", "a": "int64"})
    assert list(ListProjection({"name": col("name").str.split(",")}, schema).schema) == ["a", "name"]


def test_flat_map_wants_a_list() -> None:
    with pytest.raises(ProgramError, match="not a list"):
        ListProjection({"n": col("a")}, SCHEMA)
