"""Functions of whole numbers in SQL: quotients, bits, factorials."""

from __future__ import annotations

import math

import polars as pl
from sqlglot import exp

from ddcore.expressions import polars_json
from ddcore.sql import zeros
from ddcore.sql.values import INT, Named, Rule, Value, Values, shared

_MOST_FACTORIAL = 20


def factorial(values: Values, node: exp.Factorial, number: Value | None = None) -> Value:
    """The product of the numbers up to this one, 20 at most; the row fails for others."""
    number = number or values.require(values.of(node.this), "int64")
    names = list(range(_MOST_FACTORIAL + 1))

    def product(number: Value) -> pl.Expr:
        wrong = zeros.failing_where(
            ~number.expr.is_between(0, _MOST_FACTORIAL), "has no factorial that fits into int64"
        )
        products = [math.factorial(name) for name in names]
        return number.expr.replace_strict(names, products, default=None, return_dtype=pl.Int64) + wrong

    return Value(shared([number], product), INT, node)


def _shifted_left(values: Values, node: exp.BitwiseLeftShift) -> Value:
    """A row fails where the result leaves int64, in which other engines lose bits."""
    number, by = values.require(values.of(node.this), "int64"), values.of(node.expression).literal
    if not isinstance(by, int) or not 0 <= by < 63:
        values.source.refuse(node, "<< by what is no literal from 0 to 62", "multiply by power(2, n)")
    return Value(number.expr * 2**by, INT, node)


def count_of_ones(number: pl.Expr) -> pl.Expr:
    """How many bits of a whole number are 1."""
    return number.cast(pl.Int64).bitwise_count_ones().cast(pl.Int64)  # of 64 bits, however wide it is computed


def _quotient(values: Values, node: exp.IntDiv) -> Value:
    """``div(a, b)``."""
    left, right = values.arguments(node, "int64", "int64")
    return Value(left.expr.truncdiv(right.expr), INT, node)


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


def greatest_divisor(values: Values, node: exp.Anonymous) -> Value:
    """``gcd(a, b)``: 0 of two zeros."""
    sides = values.arguments(node, "int64", "int64")

    def divisor(one: Value, other: Value) -> pl.Expr:
        known = one.expr.is_not_null() & other.expr.is_not_null()
        return pl.when(known).then(_common_divisor(one.expr.abs(), other.expr.abs()))

    return Value(shared(sides, divisor), INT, node)


def least_multiple(values: Values, node: exp.Anonymous) -> Value:
    """``lcm(a, b)``: 0 where one is 0."""
    sides = values.arguments(node, "int64", "int64")
    divisor = greatest_divisor(values, node)

    def multiple(one: Value, other: Value, divisor: Value) -> pl.Expr:
        whole = (one.expr.truncdiv(pl.when(divisor.expr != 0).then(divisor.expr)) * other.expr).abs()
        return pl.when(divisor.expr == 0).then(0).otherwise(whole)

    return Value(shared([*sides, divisor], multiple), INT, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.IntDiv: _quotient,
    exp.Factorial: factorial,
    exp.BitwiseLeftShift: _shifted_left,
}
NAMED: dict[str, Named] = {"gcd": (2, greatest_divisor), "lcm": (2, least_multiple)}
