"""Functions of whole numbers in SQL: quotients, bits, factorials."""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl
from sqlglot import exp

from ddcore.expressions import polars_json
from ddcore.sql import zeros
from ddcore.sql.source import given
from ddcore.sql.types import INT
from ddcore.sql.values import Named, Rule, Value, Values, function

_MOST_FACTORIAL = 20


def factorial(number: pl.Expr) -> pl.Expr:
    """The product of the numbers up to this one, 20 at most; the row fails for others. It is named several times."""
    names = list(range(_MOST_FACTORIAL + 1))
    wrong = zeros.failing_where(~number.is_between(0, _MOST_FACTORIAL), "has no factorial that fits into int64")
    products = [math.factorial(name) for name in names]
    return number.replace_strict(names, products, default=None, return_dtype=pl.Int64) + wrong


def shift(
    name: str, shifted: Callable[[pl.Expr, int], pl.Expr], hint: str = "docs/sql.md lists what is supported"
) -> Rule:
    """The rule of a whole number whose bits are moved by so many places."""

    def rule(values: Values, node: exp.Expr) -> Value:
        first, second = given(node)
        number, by = values.require(values.of(first), "int64"), values.of(second).literal
        if not isinstance(by, int) or not 0 <= by < 63:
            values.source.refuse(node, f"{name} by what is no literal from 0 to 62", hint)
        return Value(shifted(number.expr, by), INT, node)

    return rule


def count_of_ones(number: pl.Expr) -> pl.Expr:
    """How many bits of a whole number are 1."""
    return number.cast(pl.Int64).bitwise_count_ones().cast(pl.Int64)  # of 64 bits, however wide it is computed


_MOST_STEPS = 50
"""Of Euclid's algorithm on int64, where the remainder is the one nearest to 0."""


def _common_divisor(one: pl.Expr, other: pl.Expr, steps: int = _MOST_STEPS) -> pl.Expr:
    if not steps:
        return one

    def step(one: pl.Expr, other: pl.Expr) -> pl.Expr:
        rest = polars_json.called("Sql.Rem", [one, pl.when(other != 0).then(other)])
        nearest = pl.when(rest.is_null()).then(0).when(rest > other - rest).then(other - rest).otherwise(rest)
        return _common_divisor(pl.when(other != 0).then(other).otherwise(one), nearest, steps - 1)

    return polars_json.share([one, other], step)


def _divisor(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """``gcd(a, b)``: 0 of two zeros."""
    return pl.when(one.is_not_null() & other.is_not_null()).then(_common_divisor(one.abs(), other.abs()))


def _multiple(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """``lcm(a, b)``: 0 where one is 0."""

    def multiple(divisor: pl.Expr) -> pl.Expr:
        whole = (one.truncdiv(pl.when(divisor != 0).then(divisor)) * other).abs()
        return pl.when(divisor == 0).then(0).otherwise(whole)

    return polars_json.share([_divisor(one, other)], multiple)


RULES: dict[type[exp.Expr], Rule] = {
    exp.IntDiv: function(pl.Expr.truncdiv, INT, "int64", "int64"),
    exp.Factorial: function(factorial, INT, "int64", repeats=True),
    # A row fails where the result leaves int64, in which other engines lose bits.
    exp.BitwiseLeftShift: shift("<<", lambda number, by: number * 2**by, "multiply by power(2, n)"),
    exp.BitwiseRightShift: shift(">>", lambda number, by: number // 2**by),
}
NAMED: dict[str, Named] = {
    "gcd": (2, function(_divisor, INT, "int64", "int64", repeats=True)),
    "lcm": (2, function(_multiple, INT, "int64", "int64", repeats=True)),
}
