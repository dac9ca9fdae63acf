"""Expressions on words give what Polars gives, or leave it to Polars: nulls, overflow and what has no exact form."""

from __future__ import annotations

import pickle
import random
from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest

from ddcore import col
from ddcore.base.schema import Schema, Type
from ddcore.data import encoding
from ddcore.expressions.projections import Predicate, Projection

SCHEMA: Schema = {
    "a": Type("int64"), "b": Type("int64"), "t": Type("bool"), "d": Type("date"), "e": Type("date"),
    "s": Type("string"), "x": Type("float64"),
}  # fmt: skip
FRAME = pl.DataFrame(
    {
        "a": [3, -7, 0, 7], "b": [3, 5, -1, -8], "t": [True, False, True, False],
        "d": [date(2026, 1, day) for day in (1, 2, 3, 4)], "e": [date(2026, 1, 2)] * 4,
        "s": ["", "é", "null", "z"], "x": [0.5, -1.0, 2.0, 4.0],
    }
)  # fmt: skip


def words_of(frame: pl.DataFrame) -> dict[str, Any]:
    return dict(zip(SCHEMA, encoding.encode_frame(frame, SCHEMA), strict=True))


def on_words(expr: pl.Expr, frame: pl.DataFrame = FRAME) -> list[int] | None:
    projection: Projection = pickle.loads(pickle.dumps(Projection({"r": expr}, SCHEMA)))
    results = projection.on_words(words_of(frame), len(frame))
    return None if results is None else results["r"].tolist()


def by_polars(expr: pl.Expr, frame: pl.DataFrame = FRAME) -> list[int]:
    projection = Projection({"r": expr}, SCHEMA)
    words: list[int] = encoding.encode(projection.computed(frame)["r"], projection.schema["r"]).tolist()
    return words


def number(rng: random.Random, depth: int) -> pl.Expr:
    if depth == 0:
        return rng.choice([col("a"), col("b"), pl.lit(rng.randint(-9, 9))])
    one, other = number(rng, depth - 1), number(rng, depth - 1)
    return rng.choice([
        one + other, one - other, one * other, -one, one.fill_null(other),
        pl.when(truth(rng, depth - 1)).then(one).otherwise(other),
    ])  # fmt: skip


def truth(rng: random.Random, depth: int) -> pl.Expr:
    if depth == 0:
        name = rng.choice([*SCHEMA])
        return rng.choice([col("t"), col(name).is_null(), col(name).is_not_null(), pl.lit(rng.random() < 0.5)])
    one, other = number(rng, depth - 1), number(rng, depth - 1)
    some, more = truth(rng, depth - 1), truth(rng, depth - 1)
    return rng.choice([
        one == other, one != other, one < other, one <= other, one > other, one >= other, some & more, some | more,
        ~some, some == more, col("d") < col("e"), col("e") >= col("d"), col("d") == col("e"),
    ])  # fmt: skip


@pytest.mark.sample(70)
@pytest.mark.parametrize("seed", range(200))
def test_the_words_are_those_of_polars(seed: int) -> None:
    rng = random.Random(seed)
    expr = rng.choice([number, truth])(rng, rng.randint(1, 3))
    for frame in (FRAME, FRAME[:1], FRAME[:0]):
        computed = on_words(expr, frame)
        assert computed is not None
        assert computed == by_polars(expr, frame)


@pytest.mark.parametrize("seed", range(60))
def test_nulls_are_left_to_polars_where_their_columns_are_computed_with(seed: int) -> None:
    rng = random.Random(seed)
    expr = rng.choice([number, truth])(rng, rng.randint(1, 3))
    nulls = [pl.when(pl.int_range(pl.len()) != rng.randrange(4)).then(col(name)).alias(name) for name in SCHEMA]
    frame = FRAME.with_columns(nulls)
    computed = on_words(expr, frame)
    assert computed is None or computed == by_polars(expr, frame)


def test_tests_for_null_are_computed_of_any_type() -> None:
    frame = FRAME.with_columns(s=pl.Series(["", None, "null", None]))
    assert on_words(col("s").is_null() & col("x").is_not_null(), frame) == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "expr",
    [
        col("a") // 2, col("a") % 2, col("a") / 2, col("x") + 1, col("a") + col("x"), col("s") + "x", col("s") == "z",
        col("a").cast(pl.Float64), col("a") == col("x"), col("d") > date(2026, 1, 2), col("a").abs(),
    ],
    ids=str,
)  # fmt: skip
def test_what_else_there_is_has_no_form_on_words(expr: pl.Expr) -> None:
    assert on_words(expr) is None


def test_integers_that_may_overflow_are_left_to_polars() -> None:
    near = FRAME.with_columns(a=pl.Series([2**62, 1, 2, 3]))
    assert on_words(col("a") + col("a"), near) is None
    assert on_words(col("a") > col("b"), near) == [1, 0, 1, 1]
    assert on_words(col("a") + 1, FRAME.with_columns(a=pl.Series([-(2**63) + 1, 0, 0, 0]))) is None
    assert on_words(pl.lit(2**62) + pl.lit(2**62), FRAME) is None


def test_conditions_are_computed_on_words() -> None:
    predicate = Predicate([col("a") > 0, col("t")], SCHEMA)
    mask = predicate.on_words(words_of(FRAME), len(FRAME))
    assert mask is not None and mask.dtype == np.bool_
    assert mask.tolist() == predicate.evaluate(FRAME).tolist() == [True, False, False, False]
