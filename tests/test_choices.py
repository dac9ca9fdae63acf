"""Branches of choices: a row that takes one does not fail by another, whatever that makes of nulls.

Polars takes the columns of a branch for null in the rows that do not take it; random expressions are compared with an
evaluator of single rows that computes the branch that a row takes and no other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl
import pytest
from polars import col
from seeds import seeds

import ddcore as dd
from ddcore.base.errors import ExpressionError
from ddcore.base.schema import parse_schema
from ddcore.expressions.projections import Projection
from ddcore.sql import program

SCHEMA = parse_schema({"size": "int64", "count": "int64", "name": "string"})
VALUES: dict[str, list[Any]] = {"size": [None, 0, 1, 5], "count": [None, 0, 2, 9], "name": [None, "8", "x"]}
Row = dict[str, Any]
Part = tuple[pl.Expr, Callable[[Row], Any]]
"""An expression, and what it gives for a row; that raises ValueError where the expression fails."""


def column(rng: random.Random, kind: str) -> Part:
    name = "name" if kind == "text" else rng.choice(["size", "count"])
    return col(name), lambda row: row[name]


def filled(rng: random.Random, kind: str, depth: int) -> Part:
    (expr, value), literal = part(rng, kind, depth), rng.choice(["none", "7"]) if kind == "text" else rng.choice([0, 7])

    def of(row: Row) -> Any:
        found = value(row)
        return literal if found is None else found

    return expr.fill_null(literal), of


def joined(rng: random.Random, depth: int) -> Part:
    one, other = part(rng, "text", depth), part(rng, "text", depth)

    def of(row: Row) -> str:
        return "".join(text for text in (one[1](row), other[1](row)) if text is not None)

    return pl.concat_str([one[0], other[0]], ignore_nulls=True), of


def parsed(rng: random.Random, depth: int) -> Part:
    expr, value = part(rng, "text", depth)

    def of(row: Row) -> int | None:
        text = value(row)
        return None if text is None else int(text)

    return expr.cast(pl.Int64), of


def quotient(rng: random.Random, depth: int) -> Part:
    """An integer divided by another, which fails by a reason where that is 0."""
    one, other = part(rng, "number", depth), part(rng, "number", depth)
    reason = pl.when(other[0] == 0).then(pl.lit("division by zero")).otherwise(pl.lit("0")).cast(pl.Int64)

    def of(row: Row) -> int | None:
        above, below = one[1](row), other[1](row)
        if below == 0:
            raise ValueError("division by zero")
        return None if above is None or below is None else above // below

    return one[0] // other[0] + reason, of


def required(rng: random.Random, depth: int) -> Part:
    """A number that must not be null."""
    expr, value = part(rng, "number", depth)
    reason = pl.when(expr.is_null()).then(pl.lit("is null")).otherwise(pl.lit("0")).cast(pl.Int64)

    def of(row: Row) -> int:
        found = value(row)
        if found is None:
            raise ValueError("is null")
        return int(found)

    return expr + reason, of


def condition(rng: random.Random, depth: int) -> Part:
    expr, value = part(rng, "number", depth)  # Polars computes no text to see whether it is null
    if rng.random() < 0.5:
        return expr.is_null(), lambda row: value(row) is None
    other, second = part(rng, "number", 0)
    return other > 3, lambda row: (found := second(row)) is not None and found > 3


def choice(rng: random.Random, kind: str, depth: int) -> Part:
    when, then, otherwise = condition(rng, depth), part(rng, kind, depth), part(rng, kind, depth)
    if str(then[0]) == str(otherwise[0]):
        return then  # Polars does not compute the condition then
    return pl.when(when[0]).then(then[0]).otherwise(
        otherwise[0]
    ), lambda row: then[1](row) if when[1](row) else otherwise[1](row)


def part(rng: random.Random, kind: str, depth: int) -> Part:
    if not depth or rng.random() < 0.1:
        return column(rng, kind)
    depth -= 1
    forms: list[Callable[[], Part]] = [lambda: filled(rng, kind, depth), lambda: choice(rng, kind, depth)]
    if kind == "text":
        forms.append(lambda: joined(rng, depth))
    else:
        forms += [partial(made, rng, depth) for made in (parsed, quotient, required)]
    return rng.choice(forms)()


def value_or_failure(value: Callable[[Row], Any], row: Row) -> tuple[bool, Any]:
    try:
        return False, value(row)
    except ValueError:
        return True, None


@pytest.mark.sample(26)
@pytest.mark.parametrize("seed", seeds(40))
def test_a_row_fails_by_what_it_takes_only(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(6):
        expr, value = choice(rng, "number", 3)
        rows = [{name: rng.choice(values) for name, values in VALUES.items()} for _ in range(12)]
        projection = Projection({"found": expr}, SCHEMA)
        frame = pl.DataFrame(rows, schema={name: kind.polars for name, kind in SCHEMA.items()})
        results = [value_or_failure(value, row) for row in rows]
        fine = frame.filter(pl.Series([not failed for failed, _ in results], dtype=pl.Boolean))
        found = projection.evaluate(fine).get_column("found").to_list()
        assert found == [result for failed, result in results if not failed], expr
        for number, (failed, _) in enumerate(results):
            if failed:
                with pytest.raises(ExpressionError):
                    projection.evaluate(frame[number : number + 1])


@pytest.mark.parametrize(
    "branch",
    [
        col("name").fill_null("none").cast(pl.Int64),
        pl.concat_str([col("name"), pl.lit("")], ignore_nulls=True).cast(pl.Int64),
        pl.when(col("size") > 0).then(pl.lit("1")).otherwise(pl.lit("none")).cast(pl.Int64),
        pl.date(2024, col("size").fill_null(13), 1).dt.day().cast(pl.Int64),
        col("count").fill_null(100_000).cast(pl.Decimal(3, 1)).cast(pl.Int64),
    ],
    ids=["text", "texts", "choice", "date", "decimal"],
)
def test_what_fails_for_null_does_not_fail_in_rows_of_the_other_branch(branch: pl.Expr) -> None:
    projection = Projection({"found": pl.when(col("count") == 1).then(branch).otherwise(0)}, SCHEMA)
    rows = {"size": [1, 1], "count": [1, 2], "name": ["1", "1"]}
    frame = pl.DataFrame(rows, schema={name: kind.polars for name, kind in SCHEMA.items()})
    assert projection.evaluate(frame).get_column("found").to_list() == [1, 0]


def test_maps_of_branches() -> None:
    """No entry of a map is null, also not in rows of another branch."""
    text = "CASE WHEN size = 1 THEN map {'x': 3, 'y': 0} ELSE map {'x': count, 'z': size} END"
    log = pl.DataFrame({"size": [0, 1, 2], "count": [5, 6, None], "version": 0, "diff": 1})
    view = program(
        f"CREATE TABLE t (size bigint, count bigint); CREATE VIEW v AS SELECT {text} AS m FROM t", dialect="duckdb"
    )
    found = dd.replay(view, ("version",), t=log)["v"].get_column("m").to_list()
    assert sorted(found, key=str) == [{"x": 3, "y": 0}, {"x": 5, "z": 0}, {"x": None, "z": 2}]


@pytest.mark.parametrize(
    ("elements", "results"),
    [
        (pl.when(pl.element() == "1").then(pl.element().cast(pl.Int64)), [1, None, None]),
        (pl.when(pl.element() == "1").then(pl.element().fill_null("none").cast(pl.Int64)), [1, None, None]),
        (
            pl.when(pl.element() != "x")
            .then(pl.when(pl.element().is_not_null()).then(pl.element().cast(pl.Int64)).otherwise(7))
            .otherwise(8),
            [1, 8, 8],
        ),
    ],
)
def test_an_element_of_a_list_does_not_fail_by_what_it_does_not_take(elements: pl.Expr, results: list[Any]) -> None:
    projection = Projection({"found": col("names").list.eval(elements)}, parse_schema({"names": "list[string]"}))
    frame = pl.DataFrame({"names": [["1", "x", None], None]})
    assert projection.evaluate(frame).get_column("found").to_list() == [results, None]
