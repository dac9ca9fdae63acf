"""The forms in which Polars writes expressions: one line says what a release of Polars changed."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
import samples
from polars import col

import ddcore
from ddcore.expressions import polars_json, syntax, texts
from ddcore.expressions.syntax import Alias, Call, Cast, Choice, Column, Element, Eval, Foreign, Literal, Renamed, Tree

A, ONE = Column("a"), Literal("Int", 1, is_typed=False)
FORMS: dict[str, tuple[pl.Expr, Tree]] = {
    "a column": (col("a"), A),
    "an operator": (col("a") + 1, Call("Plus", (A, ONE))),
    "a float": (pl.lit(0.5), Literal("Float", 0.5, is_typed=False)),
    "an infinity": (-pl.lit(float("inf")), Call("Negate", (Literal("Float64", float("inf")),))),
    "a text": (pl.lit("x"), Literal("String", "x")),
    "bytes": (pl.lit(b"ab"), Literal("Binary", b"ab")),
    "null": (pl.lit(None), Literal("Null", "Null")),
    "a timestamp": (
        pl.lit(0, pl.Int64).cast(pl.Datetime("us", "UTC")),
        Cast(Literal("Int64", 0), pl.Datetime("us", "UTC")),
    ),
    "a type with parts": (
        col("a").cast(pl.List(pl.Struct({"b": pl.Decimal(9, 2)})), strict=False),
        Cast(A, pl.List(pl.Struct({"b": pl.Decimal(9, 2)})), "NonStrict"),
    ),
    "a choice": (
        pl.when(col("a")).then(1).otherwise(None), Choice(A, ONE, Literal("Null", "Null")),
    ),
    "names": (col("a").alias("b"), Alias(A, "b")),
    "a name that is kept": (col("a").name.keep(), Renamed(A, None)),
    "a rule for names": (col("a").name.suffix("x"), Renamed(A, {"Suffix": "x"})),
    "a function without options": (col("a").abs(), Call("Abs", (A,))),
    "a function of a family": (col("a").dt.year(), Call("TemporalExpr.Year", (A,))),
    "a function with an option": (col("a").dt.timestamp("ms"), Call("TemporalExpr.TimeStamp", (A,), "Milliseconds")),
    "an operator of SQL": (pl.sql_expr("a % a"), Call("Sql.Rem", (A, A))),
    "each element": (
        col("a").list.eval(pl.element() + 1), Eval(A, Call("Plus", (Element(), ONE)), "", (), "List"),
    ),
    "a whole list": (
        col("a").list.any(), Eval(A, Element(), "Any", {"Boolean": {"Any": {"ignore_nulls": True}}}, "ListAgg"),
    ),
    "a shared part": (
        polars_json.share([col("a") + 1], lambda x: x), Call("Plus", (A, ONE)),
    ),
    "several columns": (pl.all(), Foreign("Selector", "Wildcard", "cs.all()")),
    "a sum over rows": (col("a").sum(), Foreign("Agg", {"Sum": {"Column": "a"}}, 'col("a").sum()')),
}  # fmt: skip
BY_OPTIONS = {
    "a format": (polars_json.time_format, col("a").str.to_date("%Y"), "%Y"),
    "a format that is guessed": (polars_json.time_format, col("a").str.to_date(), None),
    "a unit": (polars_json.time_unit, pl.duration(days="a", time_unit="ns"), "ns"),
    "the type of times": (polars_json.result_type, col("a").str.to_datetime("%Y", time_unit="ms"), pl.Datetime("ms")),
    "the type of JSON": (polars_json.result_type, col("a").str.json_decode(pl.List(pl.Int8)), pl.List(pl.Int8)),
    "the type of integers": (polars_json.result_type, col("a").str.to_integer(dtype=pl.Int8), pl.Int8),
    "the type of bits": (polars_json.result_type, col("a").bin.reinterpret(dtype=pl.Int32), pl.Int32),
    "the type of ranges": (polars_json.result_type, pl.int_ranges(0, col("a"), dtype=pl.Int16), pl.Int16),
    "no type": (polars_json.result_type, col("a").abs(), None),
}
UPGRADE = f"Polars {pl.__version__} writes {{}} in another way: ddcore/expressions/polars_json.py has to follow"


@pytest.mark.parametrize("title", FORMS)
def test_what_is_read_of_each_form(title: str) -> None:
    expr, tree = FORMS[title]
    assert repr(polars_json.read(expr)) == repr(tree), UPGRADE.format(title)


@pytest.mark.parametrize("title", BY_OPTIONS)
def test_what_is_read_of_options(title: str) -> None:
    what, expr, value = BY_OPTIONS[title]
    call = polars_json.read(expr)
    assert isinstance(call, Call)
    assert what(call) == value, UPGRADE.format(title)


@pytest.mark.parametrize(("title", "expr"), samples.ALL, ids=[title for title, _ in samples.ALL])
def test_what_is_read_is_lowered_to_the_same_expression(title: str, expr: pl.Expr) -> None:
    tree = polars_json.read(expr)
    again = polars_json.build(tree)
    assert texts.text(polars_json.read(again)) == texts.text(tree), UPGRADE.format(title)
    normalized = {"Boolean.IsIn", "Unique"}  # a series becomes a list; unique elements keep their order
    if not any(name in title for name in normalized) and "inf" not in texts.text(tree) and "nan" not in str(expr):
        assert again.meta.eq(expr), UPGRADE.format(title)


def test_a_literal_is_read_as_each_type() -> None:
    for value, dtype in [(True, "Boolean"), ([1, 2], "List"), (pl.Series([1]), "Series")]:
        literal = polars_json.read(pl.lit(value))
        assert isinstance(literal, Literal)
        assert literal.dtype == dtype, UPGRADE.format(f"a literal {dtype}")
    series = polars_json.read(pl.lit(pl.Series([1])))
    assert isinstance(series, Literal)
    assert syntax.values(series).to_list() == [1]


def test_no_other_module_knows_how_polars_writes_an_expression() -> None:
    root = Path(ddcore.__file__).parents[1]
    private = re.compile(r"\.deserialize\(|meta\.serialize\(|\{\"(Function|BinaryExpr|Ternary|Cast|Column|Literal)\":")
    files = [file for room in ("ddcore", "io", "jobs", "cli") for file in (root / room).rglob("*.py")]
    assert {file.name for file in files if private.search(file.read_text())} == {"polars_json.py"}
