"""Quotients and means of decimals that are decimals, by Spark's rules."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
from sqlglot import exp

from ddcore.base.schema import MOST_DIGITS, WORD_DIGITS, Type
from ddcore.sql import zeros
from ddcore.sql.types import FLOAT, INT, declared_type
from ddcore.sql.values import Value, Values, shared

_FEWEST_PLACES = 6  # that a quotient has at least
_WHOLE = {exp.DType.TINYINT: 3, exp.DType.SMALLINT: 5, exp.DType.INT: 10}
_LONG = 20  # digits of a bigint beside a decimal


def divided(values: Values, node: exp.Div, left: Value, right: Value) -> Value:
    """The quotient of two numbers of which one is a decimal. The row fails where the divisor is 0."""
    (digits, places), (other_digits, other_places) = (_digits(values, side) for side in (left, right))
    scale = max(_FEWEST_PLACES, places + other_digits + 1)
    kind = _bounded(digits - places + other_places + scale, scale)

    def quotient(a: Value, b: Value) -> pl.Expr:
        found = _unless_zero(a.expr, places, b.expr, other_places, kind.scale)
        return (found + _failing(b, other_places)).cast(kind.polars)

    return Value(shared([left, right], quotient), kind, node)


def digits_around(node: exp.Expr) -> exp.DataType | None:
    """The decimal type of the cast around an aggregate, with its FILTER and OVER."""
    while isinstance(node.parent, exp.Paren | exp.Filter | exp.Window) and node.arg_key == "this":
        node = node.parent
    cast = node.parent
    is_cast = type(cast) is exp.Cast and node.arg_key == "this" and cast.to.this == exp.DType.DECIMAL
    return cast.to if is_cast and isinstance(cast, exp.Cast) else None


def cast(values: Values, node: exp.Cast, wanted: Type) -> Value | None:
    """``CAST(a / b AS decimal(p, s))`` of decimals with every digit, null where ``b`` is 0; None where the quotient is
    a float. A row whose quotient needs more than 38 digits on the way fails. Raises ProgramError where all would.
    """
    inner = node.this.unnest()
    if wanted.name != "decimal" or not isinstance(inner, exp.Div):
        return None
    left, right = values.arguments(inner, "number", "number")
    kinds = [side.type for side in (left, right) if side.type is not None]
    if len(kinds) < 2 or FLOAT in kinds or all(kind == INT for kind in kinds):
        return None
    places, other = (0 if kind == INT else kind.scale for kind in kinds)
    _require_digits(values, node, places, other, wanted.scale)

    def quotient(a: Value, b: Value) -> pl.Expr:
        return _unless_zero(a.expr, places, b.expr, other, wanted.scale).cast(wanted.polars)

    return Value(shared([left, right], quotient), wanted, node)


def mean_type(values: Values, value: Value) -> Type:
    """The type of the mean of a decimal. Raises ProgramError where Spark's digits of the values are not known."""
    digits, places = _digits(values, value)
    return Type("decimal", min(digits + 4, MOST_DIGITS), min(places + 4, MOST_DIGITS))


def mean(total: pl.Expr, number: pl.Expr, places: int, kind: Type) -> pl.Expr:
    """A sum over so many values, null over none."""
    some = pl.when(number > 0).then(number).cast(_wide(0))
    return _quotient(_decimal(total, places), places, some, 0, kind.scale).cast(kind.polars)


def mean_type_in_cast(values: Values, value: Value, node: exp.Expr) -> Type | None:
    """The type of a mean with a cast to a decimal around it. Raises ProgramError where 38 digits are too few."""
    kind = digits_around(node)
    if kind is None:
        return None
    wanted = declared_type(values.source, kind)
    _require_digits(values, node, 0 if value.type is None else value.type.scale, 0, wanted.scale)
    return wanted


def _require_digits(values: Values, node: exp.Expr, places: int, other: int, scale: int) -> None:
    if max(places, other) + _zeros(places, other, scale) >= MOST_DIGITS:
        hint = "cast what is divided to decimals with fewer digits behind the point, or to double precision"
        values.source.refuse(node, "a quotient that needs more than 38 digits", hint)


def _zeros(places: int, other_places: int, scale: int) -> int:
    """How often both sides of a quotient are multiplied by ten."""
    return max(other_places + 1, places - scale)


def _unless_zero(dividend: pl.Expr, places: int, divisor: pl.Expr, other_places: int, scale: int) -> pl.Expr:
    """The quotient of two numbers, null where the divisor is 0."""
    divisor = _decimal(divisor, other_places)
    safe = pl.when(divisor != 0).then(divisor).cast(_wide(other_places))
    return _quotient(_decimal(dividend, places), places, safe, other_places, scale)


def _quotient(dividend: pl.Expr, places: int, divisor: pl.Expr, other_places: int, scale: int) -> pl.Expr:
    """The quotient at a scale, the nearest one, and of two that are as near the one further from 0.

    Polars gives the nearest, and the even one of two. So both sides are multiplied by a power of ten, such that one
    unit of the scale, added to the dividend, leads away from a tie and across no other.
    """
    factor = pl.lit(Decimal(10) ** _zeros(places, other_places, scale), dtype=_wide(0))
    unit = Decimal(1).scaleb(-scale)
    away = pl.when(dividend < 0).then(pl.lit(-unit, dtype=_wide(scale))).otherwise(pl.lit(unit, dtype=_wide(scale)))
    return (dividend * factor + away).cast(_wide(scale)) / (divisor * factor).cast(_wide(0))


def _bounded(digits: int, scale: int) -> Type:
    """Spark's type for so many digits: where they are more than 38, fewer behind the point, but six if there are."""
    if digits <= MOST_DIGITS:
        return Type("decimal", digits, scale)
    return Type("decimal", MOST_DIGITS, max(MOST_DIGITS - (digits - scale), min(scale, _FEWEST_PLACES)))


def _digits(values: Values, value: Value) -> tuple[int, int]:
    """The digits that Spark counts for a number, and how many are behind the point. Raises ProgramError."""
    if isinstance(value.literal, Decimal | int):
        number = Decimal(value.literal).as_tuple()
        places = max(-int(number.exponent), 0)
        return max(len(number.digits), places), places
    if value.type == INT:
        kind = value.node.to.this if isinstance(value.node, exp.Cast) else None
        return _WHOLE.get(kind, _LONG) if isinstance(kind, exp.DType) else _LONG, 0
    assert value.type is not None
    if value.type.precision in (WORD_DIGITS, MOST_DIGITS) and not isinstance(value.node, exp.Cast):
        # What is computed has these digits here, whatever Spark counts.
        hint = f"say them: CAST(x AS decimal(p, {value.type.scale})); or cast a side to double"
        values.source.refuse(value.node, "division of a decimal whose digits Spark may count otherwise", hint)
    return value.type.precision, value.type.scale


def _decimal(number: pl.Expr, places: int) -> pl.Expr:
    return number.cast(_wide(places))


def _failing(divisor: Value, places: int) -> pl.Expr:
    if divisor.literal:
        return pl.lit(Decimal(0), dtype=_wide(0))
    return zeros.failing(_decimal(divisor.expr, places)).cast(_wide(0))


def _wide(places: int) -> pl.DataType:
    return pl.Decimal(MOST_DIGITS, places)
