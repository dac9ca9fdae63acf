"""Division in dialects in which it fails, or is infinite, where the divisor is 0."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from sqlglot import exp

from ddcore.expressions import polars_json
from ddcore.sql.values import FLOAT, INT, Rule, Value, Values, as_type, shared

Decimals = Callable[[Values, exp.Div, Value, Value], Value]


def failing(divisor: pl.Expr) -> pl.Expr:
    """0, as a whole number; the row fails where the divisor is 0."""
    return failing_where(divisor == 0, "division by zero")


def failing_where(condition: pl.Expr, reason: str) -> pl.Expr:
    """0, as a whole number; the row fails where the condition is true."""
    return pl.when(condition).then(pl.lit(reason)).otherwise(pl.lit("0")).cast(pl.Int64)


def _checked(left: Value, right: Value, divide: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> pl.Expr:
    if right.literal:
        return divide(left.expr, right.expr)
    return shared([left, right], lambda a, b: divide(a.expr, b.expr) + failing(b.expr))


def whole(values: Values, node: exp.Binary) -> Value:
    """The quotient of whole numbers, without its fraction."""
    left, right = values.arguments(node, "int64", "int64")
    return Value(_checked(left, right, pl.Expr.truncdiv), INT, node)


def remainder(values: Values, node: exp.Binary) -> Value:
    """What is left of a division of whole numbers; it has the sign of the left side."""
    left, right = values.arguments(node, "int64", "int64")
    return Value(_checked(left, right, lambda a, b: polars_json.called("Sql.Rem", [a, b])), INT, node)


def floats(*, fails: bool, decimals: Decimals | None = None) -> Rule:
    """The rule of the quotient of all numbers as floats. ``decimals``: the rule of those of decimals, if another."""

    def rule(values: Values, node: exp.Div) -> Value:
        left, right = values.arguments(node, "number", "number")
        if decimals and FLOAT not in (left.type, right.type) and not left.type == right.type == INT:
            return decimals(values, node, left, right)
        sides = [Value(as_type(values.source, side, FLOAT), FLOAT, side.node, side.literal) for side in (left, right)]
        if not fails:
            return Value(sides[0].expr / sides[1].expr, FLOAT, node)
        return Value(_checked(sides[0], sides[1], lambda a, b: a / b), FLOAT, node)

    return rule
