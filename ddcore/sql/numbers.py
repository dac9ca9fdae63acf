"""Arithmetic and functions of numbers in SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import MOST_DIGITS, WORD_DIGITS, Type, widest
from ddcore.expressions import polars_json
from ddcore.sql import dates, intervals, zeros
from ddcore.sql.dialects import SPARKS
from ddcore.sql.source import DIALECT, given
from ddcore.sql.types import FLOAT, INT, INTERVAL, TIMESTAMP
from ddcore.sql.values import (
    Interval,
    Named,
    Rule,
    Value,
    Values,
    aligned,
    as_type,
    constant,
    function,
    literal_interval,
    shared,
)


def _arithmetic(name: str, combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        left, right = values.of(node.this), values.of(node.expression)
        for special in (intervals.on_clock, _of_intervals):
            if (result := special(values, node, left, right, name)) is not None:
                return result
        if any(isinstance(side.literal, Interval) or dates.is_day(side) for side in (left, right)):
            return dates.on_days(values, node, left, right, name)
        left, right = values.number(left), values.number(right)
        if FLOAT in (left.type, right.type):
            return Value(combine(*(as_type(values.source, side, FLOAT) for side in (left, right))), FLOAT, node)
        return values.typed(combine, [left, right], node)

    return rule


def _of_intervals(values: Values, node: exp.Binary, left: Value, right: Value, sign: str) -> Value | None:
    """What is computed with intervals as values, in the dialects that have them; None for anything else."""
    if values.source.dialect not in (DIALECT, "duckdb"):
        return None
    if intervals.is_interval(left) and intervals.is_interval(right):
        return intervals.plus(values, node, left, right, sign)
    if sign == "*" and (intervals.is_interval(left) or intervals.is_interval(right)):
        length, number = (left, right) if intervals.is_interval(left) else (right, left)
        return intervals.times(values, node, length, values.number(number))
    if sign == "+" and left.type == INTERVAL:
        left, right = right, left
    is_literal = isinstance(right.literal, Interval)  # which leaves a date one
    if right.type == INTERVAL and not is_literal and dates.is_day(left) and sign in "+-":
        return intervals.moved(values, node, left, right, sign)
    if sign == "-" and left.type == right.type == TIMESTAMP:
        return intervals.between(values, node, left, right)
    return None


def _divided(values: Values, node: exp.Div) -> Value:
    if intervals.is_interval(values.peek(node.this)):
        return intervals.over(values, node, values.of(node.this), values.number(values.of(node.expression)))
    left, right = values.arguments(node, "number", "number")
    if left.type == INT and right.type == INT:
        return Value(left.expr.truncdiv(right.expr), INT, node)
    dividend, divisor = (values.cast(side, FLOAT) for side in (left, right))
    safe = shared([divisor], lambda value: pl.when(value.expr != 0).then(value.expr))
    return Value(dividend.expr / safe, FLOAT, node)


def _negative(values: Values, node: exp.Neg) -> Value:
    value = values.of(node.this)
    if intervals.is_interval(value):
        if isinstance(value.literal, Interval):
            return literal_interval(-value.literal, node)
        return intervals.times(values, node, value, constant(-1, node))
    value = values.number(value)
    if isinstance(value.literal, Decimal):
        return constant(value.literal.copy_negate(), node)  # unlike the sign, this rounds to no context
    if isinstance(value.literal, int | float):
        return constant(-value.literal, node)
    return values.typed(operator.neg, [value], node)


def _to_digits(name: str) -> Rule:
    """Numbers of fewer digits: ``round`` to the nearest, ``trunc`` towards 0."""

    def rule(values: Values, node: exp.Func) -> Value:
        value, places = values.number(values.of(node.this)), node.args.get("decimals")
        given = values.require(values.of(places), "int64") if places is not None else constant(0, node)
        digits = given.literal
        to_tens = value.type == FLOAT and digits and (name == "trunc" or digits < 0)
        if digits is None or (to_tens and values.source.dialect == "duckdb"):
            return _to_digits_of_rows(values, node, value, given, to_nearest=name == "round")
        if isinstance(digits, int) and digits < 0 and value.type != FLOAT:
            return _before_point(values, node, value, -digits, to_nearest=name == "round")
        if not isinstance(digits, int) or digits < 0 or (name == "trunc" and digits and value.type == FLOAT):
            hint = "the digits are a literal, of at least 0 for a double; trunc() of one takes none: cast it first"
            values.source.refuse(node, f"{name}() to this number of digits", hint)
        if value.type == INT:
            return value
        assert value.type is not None
        if value.type == FLOAT and places is not None and values.source.dialect in SPARKS:
            return Value(shared([value], lambda x: as_written(x.expr, digits)), FLOAT, node)
        to_even = value.type == FLOAT and values.source.dialect == DIALECT and places is None
        mode: Any = "half_to_even" if to_even else "half_away_from_zero"
        cut = value.expr.round(digits, mode=mode) if name == "round" else value.expr.truncate(digits)
        kind = value.type
        if kind != FLOAT:
            kind = widest(Type("decimal", WORD_DIGITS, min(digits, kind.scale)), kind)
        return Value(cut if kind == FLOAT else cut.cast(kind.polars), kind, node)

    return rule


def _before_point(values: Values, node: exp.Func, value: Value, digits: int, *, to_nearest: bool) -> Value:
    """A number whose last ``digits`` before the point are 0: the nearest one, of two the one further from 0, or towards
    0. The row fails where that leaves 18 digits.
    """
    kind = value.type
    assert kind is not None
    if kind.is_wide or digits + kind.scale > WORD_DIGITS:
        values.source.refuse(node, "rounding to digits before the point", "cast it to a decimal of 18 digits")
    unit, kept = (pl.lit(10**power, dtype=pl.Int64) for power in (digits + kind.scale, digits))
    result = shared(
        [zeros.unscaled(value, kind.scale)], lambda units: _cut(units.expr, unit, to_nearest=to_nearest) * kept
    )
    return Value(result, INT, node) if kind == INT else zeros.scaled(result, 0, node)


def _cut(units: pl.Expr, unit: pl.Expr, *, to_nearest: bool) -> pl.Expr:
    """How often a unit is in a number, the nearest or that towards 0."""
    return (units.abs() + (unit.truncdiv(2) if to_nearest else 0)).truncdiv(unit) * units.sign()


def _to_digits_of_rows(values: Values, node: exp.Func, value: Value, digits: Value, *, to_nearest: bool) -> Value:
    """Numbers of as many digits behind the point as the row says; the type stays."""
    kind = value.type
    assert kind is not None
    if values.source.dialect in SPARKS or (kind == FLOAT) != (values.source.dialect == "duckdb") or kind.is_wide:
        hint = "CASE WHEN n = 1 THEN round(x, 1) ... END"
        values.source.refuse(node, f"{node.key}() of {kind} to a number of digits that is no literal", hint)
    if kind == FLOAT:
        return Value(
            shared([value, digits], lambda x, n: _to_places(x.expr, n.expr, to_nearest=to_nearest)), FLOAT, node
        )
    powers = list(range(WORD_DIGITS + 1))

    def rounded(units: Value, digits: Value) -> pl.Expr:
        dropped = (kind.scale - digits.expr).clip(0, WORD_DIGITS)
        unit = dropped.replace_strict(powers, [10**power for power in powers], return_dtype=pl.Int64)
        return _cut(units.expr, unit, to_nearest=to_nearest) * unit

    result = shared([zeros.unscaled(value, kind.scale), digits], rounded)
    return Value(result, INT, node) if kind == INT else zeros.scaled(result, kind.scale, node)


def _to_places(number: pl.Expr, digits: pl.Expr, *, to_nearest: bool) -> pl.Expr:
    """A double with so many digits behind the point; where the power of ten leaves its range it stays, or is 0."""
    unit = pl.lit(10.0).pow(digits.abs().cast(pl.Float64))
    cut: Callable[[pl.Expr], pl.Expr] = (
        (lambda x: x.round(0, mode="half_away_from_zero")) if to_nearest else (lambda x: x.truncate(0))
    )
    behind, before = cut(number * unit) / unit, cut(number / unit) * unit
    found = pl.when(digits < 0).then(before).otherwise(behind)
    return pl.when(found.is_finite() | found.is_null()).then(found).when(digits < 0).then(0.0).otherwise(number)


_WHOLE = 2.0**52
"""From here on doubles have no fraction."""


def as_written(number: pl.Expr, digits: int, *, to_even: bool = False) -> pl.Expr:
    """A double with so many digits behind the point. It is what is written for it: 1.005 is not a little less."""
    small = pl.when(number.abs() < _WHOLE).then(number).cast(pl.String).cast(pl.Decimal(MOST_DIGITS, 20))
    cut = small.round(digits, mode="half_to_even" if to_even else "half_away_from_zero")
    return pl.when(number.abs() < _WHOLE).then(cut.cast(pl.String).cast(pl.Float64)).otherwise(number)


def to_even(values: Values, node: exp.Anonymous) -> Value:
    """``bround(x, 2)``: of two nearest numbers the one with an even digit."""
    value = values.number(values.of(node.expressions[0]))
    digits = values.of(node.expressions[1]).literal if node.expressions[1:] else 0
    kind = value.type
    if not isinstance(digits, int) or digits < 0 or kind is None or len(node.expressions) > 2:
        values.source.refuse(node, "bround() to a number of digits that is no literal of at least 0", "bround(x, 2)")
    if kind == FLOAT:
        return Value(shared([value], lambda x: as_written(x.expr, digits, to_even=True)), FLOAT, node)
    return value if kind == INT else rounded_decimal(value, digits, node, "half_to_even")


def rounded_decimal(value: Value, digits: int, node: exp.Expr, mode: Any) -> Value:
    """A decimal of at most so many digits behind the point."""
    assert value.type is not None
    kind = widest(Type("decimal", WORD_DIGITS, min(digits, value.type.scale)), value.type)
    return Value(value.expr.round(digits, mode=mode).cast(kind.polars), kind, node)


def _whole(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        value = values.number(values.of(node.this))
        if value.type == INT:
            return value
        return Value(compute(as_type(values.source, value, FLOAT)), FLOAT, node)

    return rule


def _bucket(values: Values, node: exp.WidthBucket) -> Value:
    """Whole numbers and decimals in PostgreSQL exactly, all else in doubles. The row fails, or is null in Spark, where
    there are no buckets, or they have no width.
    """
    if node.args.get("threshold") is not None:
        return _among(values, node)
    is_exact = values.source.dialect == DIALECT
    parts = [values.number(values.of(node.args[key])) for key in ("this", "min_value", "max_value")]
    count = values.require(values.of(node.args["num_buckets"]), "int64")
    kinds = [part.type for part in parts if part.type is not None]
    if is_exact and FLOAT not in kinds and not any(kind.is_wide for kind in kinds):
        parts = [zeros.unscaled(part, max(kind.scale for kind in kinds)) for part in parts]
        divide = _exact_share
    else:
        parts = [values.cast(part, FLOAT) for part in parts]
        divide = _share if is_exact else _share_of_spark

    def bucket(number: Value, least: Value, most: Value, count: Value) -> pl.Expr:
        x, low, high = number.expr, least.expr, most.expr
        before, behind = (
            pl.when(low < high).then(x < low).otherwise(x > low),
            pl.when(low < high).then(x >= high).otherwise(x <= high),
        )
        width = pl.when(low != high).then((high - low).abs())
        done = pl.when(~before & ~behind).then((x - low).abs())
        inside = divide(done, count.expr, width) + 1
        known = x.is_not_null() & low.is_not_null() & high.is_not_null()
        found = pl.when(before).then(0).when(behind).then(count.expr + 1).otherwise(inside)
        wrong = (count.expr < 1) | (known & (low == high))
        if not is_exact:
            return pl.when(~wrong).then(found)
        return pl.when(known & (zeros.failing_where(wrong, "width_bucket() needs buckets with a width") == 0)).then(
            found
        )

    return Value(shared([*parts, count], bucket), INT, node)


def _exact_share(done: pl.Expr, count: pl.Expr, width: pl.Expr) -> pl.Expr:
    return (done * count).truncdiv(width)


def _share_of_spark(done: pl.Expr, count: pl.Expr, width: pl.Expr) -> pl.Expr:
    return (count * done / width).truncate().cast(pl.Int64)


def _share(done: pl.Expr, count: pl.Expr, width: pl.Expr) -> pl.Expr:
    """As PostgreSQL computes it."""
    return (count * (done / width)).floor().cast(pl.Int64)


def _among(values: Values, node: exp.WidthBucket) -> Value:
    """``width_bucket(x, ARRAY[1, 5])``: how many of the limits, which are written out in order, are not above."""
    limits = node.args["threshold"].unnest()
    if not isinstance(limits, exp.Array) or not limits.expressions:
        values.source.refuse(node, "width_bucket() by limits that are not written out", "ARRAY[1, 5, 10]")
    value = values.number(values.of(node.this))

    def reached(value: Value) -> pl.Expr:
        met = []
        for limit in limits.expressions:
            (own, other), _ = aligned(values.source, [value, values.of(limit)], node)
            met.append((own >= other).cast(pl.Int64))
        return reduce(operator.add, met)

    return Value(shared([value], reached), INT, node)


def log(base: pl.Expr, number: pl.Expr) -> pl.Expr:
    """The logarithm to a base: those to 10 and 2 are exact for powers."""
    return polars_json.called("Log", [number, base])


def _logarithm(values: Values, node: exp.Log) -> Value:
    """To a base, which is 10 where there is none."""
    parts = values.arguments(node, *["float64"] * len(given(node)))
    base = parts[0].expr if parts[1:] else pl.lit(10.0)
    return Value(log(base, parts[-1].expr), FLOAT, node)


def _of_float(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    return function(compute, FLOAT, "float64")


RULES: dict[type[exp.Expr], Rule] = {
    exp.Add: _arithmetic("+", lambda a, b: a + b),
    exp.Sub: _arithmetic("-", lambda a, b: a - b),
    exp.Mul: _arithmetic("*", lambda a, b: a * b),
    exp.Div: _divided,
    exp.Mod: zeros.remainder(fails=False),
    exp.Neg: _negative,
    exp.Abs: lambda values, node: values.typed(pl.Expr.abs, values.arguments(node, "number"), node),
    exp.Sign: _of_float(pl.Expr.sign),
    exp.Round: _to_digits("round"),
    exp.Trunc: _to_digits("trunc"),
    exp.Floor: _whole(pl.Expr.floor),
    exp.Ceil: _whole(pl.Expr.ceil),
    exp.Sqrt: _of_float(pl.Expr.sqrt),
    exp.Cbrt: _of_float(pl.Expr.cbrt),
    exp.Exp: _of_float(pl.Expr.exp),
    exp.Ln: _of_float(pl.Expr.log),
    exp.Pow: function(pl.Expr.pow, FLOAT, "float64", "float64"),
    exp.Sin: _of_float(pl.Expr.sin),
    exp.Cos: _of_float(pl.Expr.cos),
    exp.Tan: _of_float(pl.Expr.tan),
    exp.Asin: _of_float(pl.Expr.arcsin),
    exp.Acos: _of_float(pl.Expr.arccos),
    exp.Atan: _of_float(pl.Expr.arctan),
    exp.Atan2: function(pl.arctan2, FLOAT, "float64", "float64"),
    exp.Sinh: _of_float(pl.Expr.sinh),
    exp.Cosh: _of_float(pl.Expr.cosh),
    exp.Tanh: _of_float(pl.Expr.tanh),
    exp.Cot: _of_float(pl.Expr.cot),
    exp.Asinh: _of_float(pl.Expr.arcsinh),
    exp.Acosh: _of_float(pl.Expr.arccosh),
    exp.Atanh: _of_float(pl.Expr.arctanh),
    exp.Log: _logarithm,
    exp.Degrees: _of_float(pl.Expr.degrees),
    exp.Radians: _of_float(pl.Expr.radians),
    exp.Pi: lambda _, node: constant(math.pi, node),
    exp.WidthBucket: _bucket,
    exp.BitwiseAnd: function(lambda a, b: a & b, INT, "int64", "int64"),
    exp.BitwiseOr: function(lambda a, b: a | b, INT, "int64", "int64"),
    exp.BitwiseXor: function(lambda a, b: a ^ b, INT, "int64", "int64"),
    exp.BitwiseNot: function(lambda x: -1 - x, INT, "int64"),
}


def _digits_behind(values: Values, node: exp.Anonymous) -> Value:
    """``scale(p)``: how many digits the type has behind the point."""
    value = values.number(values.of(node.expressions[0]))
    assert value.type is not None
    if value.type == FLOAT or not isinstance(node.expressions[0], exp.Column):
        values.source.refuse(node, "scale() of what is no column of decimals", "min_scale() is there")
    return Value(pl.when(value.expr.is_not_null()).then(pl.lit(value.type.scale, dtype=pl.Int64)), INT, node)


def _least_scale(values: Values, node: exp.Anonymous) -> Value:
    """``min_scale(p)``: how many digits behind the point are needed."""
    value = values.number(values.of(node.expressions[0]))
    if value.type in (INT, FLOAT, None):
        values.source.refuse(node, f"min_scale() of {value.name}", "cast it to a decimal")
    digits = value.expr.cast(pl.String).str.extract("[.](.*)$").str.strip_chars_end("0")
    there = pl.when(value.expr.is_not_null())
    return Value(there.then(digits.str.len_chars().cast(pl.Int64).fill_null(0)), INT, node)


NAMED: dict[str, Named] = {"scale": (1, _digits_behind), "min_scale": (1, _least_scale)}
