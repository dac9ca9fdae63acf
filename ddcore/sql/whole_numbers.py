"""Functions of whole numbers in SQL: quotients, bits, factorials."""

from __future__ import annotations

import math

import polars as pl
from sqlglot import exp

from ddcore.sql import zeros
from ddcore.sql.values import INT, Rule, Value, Values, shared

__all__ = ["RULES", "count_of_ones", "factorial"]

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


RULES: dict[type[exp.Expr], Rule] = {
    exp.IntDiv: _quotient,
    exp.Factorial: factorial,
    exp.BitwiseLeftShift: _shifted_left,
}
