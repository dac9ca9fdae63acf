"""Division in dialects in which it fails, or is infinite, where the divisor is 0."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import polars as pl
from sqlglot import exp

from ddcore.base.schema import MOST_DIGITS, WORD_DIGITS, Type
from ddcore.expressions import polars_json
from ddcore.sql.types import FLOAT, INT
from ddcore.sql.values import Rule, Value, Values, constant, shared

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


def remainder(*, fails: bool) -> Rule:
    """The rule of what is left of a division; it has the sign of the left side.

    Where the divisor is 0 the row fails, or the result is null. Decimals are divided as whole numbers of their last
    digit. PostgreSQL has no remainder of doubles; in DuckDB that by 0 is no number.
    """

    def rule(values: Values, node: exp.Binary) -> Value:
        left, right = values.arguments(node, "number", "number")
        kinds = [side.type for side in (left, right) if side.type is not None]
        if FLOAT in kinds:
            if values.source.dialect == "postgres":
                values.source.refuse(node, "a remainder of doubles", "cast both to decimal(38, n), or to bigint")
            sides = [values.cast(side, FLOAT) for side in (left, right)]
            may_fail = values.source.dialect != "duckdb"
            rest = _checked(sides[0], sides[1], _rest) if may_fail else _rest(*(side.expr for side in sides))
            return Value(rest, FLOAT, node)
        scale = max(kind.scale for kind in kinds)
        if any(kind.is_wide for kind in kinds):
            return _of_long_decimals(values, node, [left, right], scale, fails=fails)
        left, right = (unscaled(side, scale) for side in (left, right))
        rest = _checked(left, right, _rest) if fails else _rest(left.expr, right.expr)
        return scaled(rest, scale, node) if scale else Value(rest, INT, node)

    return rule


def _of_long_decimals(values: Values, node: exp.Binary, sides: list[Value], scale: int, *, fails: bool) -> Value:
    """The remainder of decimals of up to 38 digits."""
    kind = Type("decimal", MOST_DIGITS, scale)

    def rest(a: Value, b: Value) -> pl.Expr:
        divisor = pl.when(b.expr != 0).then(b.expr).cast(kind.polars)
        found = _rest(a.expr.cast(kind.polars), divisor)
        return found + failing(b.expr).cast(kind.polars) if fails else found

    return Value(shared([values.cast(side, kind) for side in sides], rest).cast(kind.polars), kind, node)


def _rest(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    return polars_json.called("Sql.Rem", [a, b])


def unscaled(number: Value, scale: int) -> Value:
    """A whole number or a decimal of at most 18 digits in units of the last of ``scale`` digits behind the point."""
    kind = number.type
    assert kind is not None
    if isinstance(number.literal, Decimal):
        return constant(int(number.literal.scaleb(scale)), number.node)
    if not scale and kind == INT:
        return number
    factor = pl.lit(Decimal(10) ** scale, dtype=pl.Decimal(MOST_DIGITS, 0))
    return Value((number.expr.cast(pl.Decimal(MOST_DIGITS, kind.scale)) * factor).cast(pl.Int64), INT, number.node)


def scaled(units: pl.Expr, scale: int, node: exp.Expr) -> Value:
    """The decimal of so many units of its last digit."""
    kind = Type("decimal", WORD_DIGITS, scale)
    unit = pl.lit(Decimal(1).scaleb(-scale), dtype=kind.polars)
    return Value((units.cast(pl.Decimal(MOST_DIGITS, 0)) * unit).cast(kind.polars), kind, node)


def floats(*, fails: bool, decimals: Decimals | None = None) -> Rule:
    """The rule of the quotient of all numbers as floats. ``decimals``: the rule of those of decimals, if another."""

    def rule(values: Values, node: exp.Div) -> Value:
        left, right = values.arguments(node, "number", "number")
        if decimals and FLOAT not in (left.type, right.type) and not left.type == right.type == INT:
            return decimals(values, node, left, right)
        sides = [values.cast(side, FLOAT) for side in (left, right)]
        if not fails:
            return Value(sides[0].expr / sides[1].expr, FLOAT, node)
        return Value(_checked(sides[0], sides[1], lambda a, b: a / b), FLOAT, node)

    return rule
