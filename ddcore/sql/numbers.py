"""Arithmetic and functions of numbers in SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import WORD_DIGITS, Type, widest
from ddcore.expressions import polars_json
from ddcore.sql import dates, intervals, zeros
from ddcore.sql.source import DIALECT
from ddcore.sql.values import (
    FLOAT,
    INT,
    INTERVAL,
    TIMESTAMP,
    Rule,
    Value,
    Values,
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
        if any(isinstance(each.literal, dates.Interval) or dates.is_day(each) for each in (left, right)):
            return dates.on_days(values, node, left, right, name)
        left, right = values.number(left), values.number(right)
        if FLOAT in (left.type, right.type):
            return Value(combine(*(as_type(values.source, each, FLOAT) for each in (left, right))), FLOAT, node)
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
    is_literal = isinstance(right.literal, dates.Interval)  # which leaves a date one
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
    mine, theirs = (as_type(values.source, each, FLOAT) for each in (left, right))
    divisor = replace(right, expr=theirs, type=FLOAT)
    return Value(mine / shared([divisor], lambda value: pl.when(value.expr != 0).then(value.expr)), FLOAT, node)


def _negative(values: Values, node: exp.Neg) -> Value:
    value = values.of(node.this)
    if intervals.is_interval(value):
        if isinstance(value.literal, dates.Interval):
            return literal_interval(-value.literal, node)
        return intervals.negative(values, node, value)
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
    if values.source.dialect == "spark" or (kind == FLOAT) != (values.source.dialect == "duckdb") or kind.is_wide:
        hint = "CASE WHEN n = 1 THEN round(x, 1) ... END"
        values.source.refuse(node, f"{node.key}() of {kind} to a number of digits that is no literal", hint)
    if kind == FLOAT:
        return Value(shared([value, digits], lambda x, n: _to_places(x.expr, n.expr, to_nearest=to_nearest)), FLOAT, node)
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
    return pl.when(found.is_finite() | digits.is_null()).then(found).when(digits < 0).then(0.0).otherwise(number)


def _whole(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        value = values.number(values.of(node.this))
        if value.type == INT:
            return value
        return Value(compute(as_type(values.source, value, FLOAT)), FLOAT, node)

    return rule


def _shifted_right(values: Values, node: exp.BitwiseRightShift) -> Value:
    number, by = values.require(values.of(node.this), "int64"), values.of(node.expression).literal
    if not isinstance(by, int) or not 0 <= by < 63:
        values.source.refuse(node, ">> by what is no literal from 0 to 62")
    return Value(number.expr // 2**by, INT, node)


def _bucket(values: Values, node: exp.WidthBucket) -> Value:
    bounds = values.arguments(node, "float64", "float64", "float64", keys=("this", "min_value", "max_value"))
    number, least, most = (bound.expr for bound in bounds)
    count = values.of(node.args["num_buckets"]).literal
    if not isinstance(count, int) or count < 1:
        values.source.refuse(node, "width_bucket() of a number of buckets that is no literal of at least 1")
    limits = [bound.literal for bound in bounds[1:]]
    if not all(isinstance(limit, int | float | Decimal) for limit in limits) or limits[0] >= limits[1]:
        values.source.refuse(node, "width_bucket() with bounds that are no literals, least first")
    bucket = ((number - least) * float(count) / (most - least)).floor().clip(-1.0, float(count)) + 1.0
    return Value(bucket.cast(pl.Int64), INT, node)


def log(base: pl.Expr, number: pl.Expr) -> pl.Expr:
    """The logarithm to a base: those to 10 and 2 are exact for powers."""
    return polars_json.called("Log", [number, base])


def _logarithm(values: Values, node: exp.Log) -> Value:
    """To a base, which is 10 where there is none."""
    parts = [values.of(each) for each in (node.this, node.expression) if each is not None]
    parts = [
        Value(as_type(values.source, values.number(each), FLOAT), FLOAT, each.node, each.literal) for each in parts
    ]
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
    exp.BitwiseRightShift: _shifted_right,
}
