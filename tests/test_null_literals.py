"""Null as a literal is what it is in a column, for every function of expressions; in SQL nearly all make null of it."""

from __future__ import annotations

import functools

import polars as pl
import pytest
import samples

import ddcore as dd
from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.expressions import polars_json, syntax
from ddcore.expressions.projections import Projection
from ddcore.sql import program

# Polars wants a column where another argument is one, in place of any literal.
OF_ONE_LENGTH = {"ReplaceStrict 0", "StringExpr.CountMatches 1", "StringExpr.ExtractAll 1"}


def values(expr: pl.Expr, frame: pl.DataFrame) -> list[object] | str:
    try:
        return Projection({"x": expr}, samples.SCHEMA).evaluate(frame)["x"].to_list()
    except (ExpressionError, ProgramError):
        return "an error of a row"


def replaced(node: syntax.Tree, name: str, null: syntax.Tree) -> syntax.Tree:
    return null if isinstance(node, syntax.Column) and node.name == name else node


@pytest.mark.sample(150)
@pytest.mark.parametrize(("title", "expr"), samples.ALL, ids=[title for title, _ in samples.ALL])
def test_a_null_literal_is_like_a_null_in_a_column(title: str, expr: pl.Expr) -> None:
    tree = polars_json.read(expr)
    for name in syntax.columns(tree):
        dtype = samples.SCHEMA[name].polars
        null = polars_json.read(pl.lit(None, dtype=dtype).alias(name))
        literal = syntax.rewrite(tree, functools.partial(replaced, name=name, null=null))
        frame = samples.rows(4, 1).with_columns(pl.lit(None, dtype=dtype).alias(name))
        try:
            Projection({"x": polars_json.build(literal)}, samples.SCHEMA)
        except ProgramError:  # refused when the program is built
            continue
        actual = values(polars_json.build(literal), frame)
        if title in OF_ONE_LENGTH and name == "name":
            assert actual == "an error of a row"
            continue
        expected = values(expr, frame)
        if (title, name) == (
            "ListExpr.GatherEvery 1",
            "k",
        ):  # Polars loses the type of a list where the column is null in all rows
            expected = [None] * 4
        assert actual == expected or str(actual) == str(expected), (name, actual, expected)  # NaN


NUMBERS = ["bigint", "double precision", "decimal(10,2)"]
ON_NUMBERS = (
    "{} + 1|{} - 1|2 * {}|{} / 2|1 / {}|-{}|abs({})|round({})|floor({})|ceil({})|sqrt({})|exp({})|ln({})|power({}, 2)"
)
ON_TEXT = (
    "upper({})|lower({})|length({})|substring({} FROM 2)|substring({} FROM 2 FOR 3)|trim({})|position('x' IN {})"
    "|replace({}, 'a', 'b')|left({}, 2)|right({}, 2)|reverse({})|starts_with({}, 'x')|starts_with('x', {})|{} || 'x'"
    "|{} LIKE 'x%'|{} ILIKE 'x%'|CAST({} AS bigint)|CAST({} AS decimal(10,2))|CAST({} AS date)"
)
ON_DAYS = (
    "extract(year FROM {})|extract(month FROM {})|extract(day FROM {})|extract(quarter FROM {})|extract(week FROM {})"
    "|extract(doy FROM {})|extract(isodow FROM {})|extract(dow FROM {})|extract(isoyear FROM {})|date_trunc('year', {})"
    "|date_trunc('week', {})|date_trunc('hour', {})|{} + INTERVAL '1 month'|{} - INTERVAL '1 day'"
    "|{} + INTERVAL '1 hour'"
)
ON_DATES = "{} + 1|{} - 1|{} - date '2020-01-01'|date '2020-01-01' - {}|CAST({} AS text)|CAST({} AS timestamp)"
ON_ALL = (
    "{} = {}|{} <> {}|{} < {}|{} BETWEEN {} AND {}|{} IN ({})|{} IN ({}, {})|NULLIF({}, {})|COALESCE({}, {})"
    "|CASE WHEN {} IS NULL THEN {} END|CASE {} WHEN {} THEN 1 END|NOT ({} = {})"
)
OTHERS = (
    "substring('abc' FROM CAST(NULL AS bigint))|substring('abc' FROM 1 FOR CAST(NULL AS bigint))|{} AND NULL|{} OR NULL"
    "|date '2020-01-01' + CAST(NULL AS bigint)|GREATEST(CAST(NULL AS bigint), NULL)"
    "|CAST(CAST(NULL AS timestamp) AS date)|power(2, CAST(NULL AS bigint))|CAST(NULL AS bigint) % 2|CAST({} AS text)"
)


@pytest.mark.parametrize(
    ("kind", "patterns"),
    [
        *((kind, f"{ON_NUMBERS}|{ON_ALL}|GREATEST({{}}, {{}})|LEAST({{}}, {{}})") for kind in NUMBERS),
        ("text", f"{ON_TEXT}|{ON_ALL}"),
        ("date", f"{ON_DAYS}|{ON_DATES}|{ON_ALL}|GREATEST({{}}, {{}})"),
        ("timestamp", f"{ON_DAYS}|{ON_ALL}|extract(hour FROM {{}})|extract(minute FROM {{}})|CAST({{}} AS date)"),
        ("boolean", f"{OTHERS}|{ON_ALL}"),
    ],
)
def test_functions_of_null_in_sql(kind: str, patterns: str) -> None:
    texts = [text for text in patterns.replace("||", "\0").split("|") if text]
    texts = [text.replace("\0", "||").replace("{}", f"CAST(NULL AS {kind})") for text in texts]
    named = ", ".join(f"{text} AS c{number}" for number, text in enumerate(texts))
    table = pl.DataFrame({"a": [1], "version": 0, "diff": 1})
    (row,) = dd.replay(program(f"CREATE VIEW v AS SELECT {named} FROM t"), t=table)["v"].rows()
    assert {text: value for text, value in zip(texts, row, strict=False) if value is not None} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CAST(2.5 AS decimal(10,0))", "3"),
        ("CAST(f AS decimal(10,0))", "3"),
        ("CAST(-f AS decimal(10,0))", "-3"),
        ("CAST('2.5' AS decimal(10,0))", "3"),
        ("CAST(2.5e0 AS decimal(10,0))", "3"),
        ("CAST(f - 1.495e0 AS decimal(10,2))", "1.01"),
        ("CAST(1.005e0 AS decimal(10,2))", "1.01"),
        ("CAST(0.285e0 AS decimal(10,2))", "0.29"),
        ("CAST(1e-7 AS decimal(18,8))", "1.0E-7"),
        ("CAST(1e16 AS decimal(18,0))", "10000000000000000"),
        ("CAST(f AS bigint)", "2"),
        ("CAST(f + 1 AS bigint)", "4"),
        ("CAST(2.5 AS bigint)", "3"),
    ],
)
def test_casts_to_fewer_digits(text: str, expected: str) -> None:
    table = pl.DataFrame({"f": [2.5], "version": 0, "diff": 1})
    (row,) = dd.replay(program(f"CREATE VIEW v AS SELECT {text} AS x FROM t"), t=table)["v"].rows()
    assert str(row[0]) == expected
