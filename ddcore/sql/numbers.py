"""Arithmetic and functions of numbers in SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.expressions import polars_json
from ddcore.sql import dates
from ddcore.sql.values import FLOAT, INT, Rule, Value, Values, as_type, constant, null, shared

__all__ = ["ARGUMENTS", "NEEDED", "RULES"]


def _arithmetic(name: str, combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        left, right = values.of(node.this), values.of(node.expression)
        if any(isinstance(each.literal, dates.Interval) or dates.is_day(each) for each in (left, right)):
            return dates.on_days(values, node, left, right, name)
        left, right = values.number(left), values.number(right)
        if FLOAT in (left.type, right.type):
            return Value(
                combine(as_type(values.source, left, FLOAT), as_type(values.source, right, FLOAT)), FLOAT, node
            )
        return values.typed(combine, [left, right], node)

    return rule


def _divided(values: Values, node: exp.Div) -> Value:
    left, right = values.number(values.of(node.this)), values.number(values.of(node.expression))
    if left.type == INT and right.type == INT:
        return Value(left.expr.truncdiv(right.expr), INT, node)
    mine, theirs = (as_type(values.source, each, FLOAT) for each in (left, right))
    divisor = replace(right, expr=theirs, type=FLOAT)
    return Value(mine / shared([divisor], _null_for_zero), FLOAT, node)


def _null_for_zero(value: Value) -> pl.Expr:
    return pl.when(value.expr != 0).then(value.expr).otherwise(null(FLOAT))


def _remainder(values: Values, node: exp.Mod) -> Value:
    left, right = (values.require(values.of(each), "int64") for each in (node.this, node.expression))
    return Value(polars_json.called("Sql.Rem", [left.expr, right.expr]), INT, node)


def _negative(values: Values, node: exp.Neg) -> Value:
    value = values.number(values.of(node.this))
    if isinstance(value.literal, int | float | Decimal):
        return constant(-value.literal, node)
    return values.typed(operator.neg, [value], node)


def _absolute(values: Values, node: exp.Abs) -> Value:
    return values.typed(pl.Expr.abs, [values.number(values.of(node.this))], node)


def _rounded(values: Values, node: exp.Round) -> Value:
    value = values.number(values.of(node.this))
    places = node.args.get("decimals")
    digits = values.of(places).literal if places is not None else 0
    if not isinstance(digits, int) or digits < 0:
        values.source.refuse(node, "round() to a number of digits that is no literal of at least 0")
    if value.type == INT:
        return value
    rounded = value.expr.round(digits, mode="half_away_from_zero")
    assert value.type is not None
    if value.type.name == "decimal":
        kind = Type("decimal", 18, min(digits, value.type.scale))
        return Value(rounded.cast(kind.polars), kind, node)
    return Value(rounded, value.type, node)


def _of_float(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        return Value(compute(as_type(values.source, values.number(values.of(node.this)), FLOAT)), FLOAT, node)

    return rule


def _whole(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        value = values.number(values.of(node.this))
        if value.type == INT:
            return value
        return Value(compute(as_type(values.source, value, FLOAT)), FLOAT, node)

    return rule


def _power(values: Values, node: exp.Pow) -> Value:
    base, exponent = (
        as_type(values.source, values.number(values.of(each)), FLOAT) for each in (node.this, node.expression)
    )
    return Value(base.pow(exponent), FLOAT, node)


def _truncated(values: Values, node: exp.Trunc) -> Value:
    value, places = values.number(values.of(node.this)), node.args.get("decimals")
    digits = values.of(places).literal if places is not None else 0
    if not isinstance(digits, int) or digits < 0 or (digits and value.type == FLOAT):
        hint = "cast a double precision to a decimal first; the digits are a literal of at least 0"
        values.source.refuse(node, "trunc() to this number of digits", hint)
    if value.type == INT:
        return value
    assert value.type is not None
    if value.type == FLOAT:
        return Value(value.expr.truncate(0), FLOAT, node)
    kind = Type("decimal", 18, min(digits, value.type.scale))
    return Value(value.expr.truncate(digits).cast(kind.polars), kind, node)


def _sign(values: Values, node: exp.Sign) -> Value:
    value = values.number(values.of(node.this))
    return Value(as_type(values.source, value, FLOAT).sign(), FLOAT, node)


def _of_floats(compute: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        first, second = (
            as_type(values.source, values.number(values.of(each)), FLOAT) for each in (node.this, node.expression)
        )
        return Value(compute(first, second), FLOAT, node)

    return rule


def _pi(values: Values, node: exp.Pi) -> Value:
    return constant(math.pi, node)


def _bits(combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Binary) -> Value:
        left, right = (values.require(values.of(each), "int64").expr for each in (node.this, node.expression))
        return Value(combine(left, right), INT, node)

    return rule


def _other_bits(values: Values, node: exp.BitwiseNot) -> Value:
    return Value(-1 - values.require(values.of(node.this), "int64").expr, INT, node)


def _shifted_right(values: Values, node: exp.BitwiseRightShift) -> Value:
    number, by = values.require(values.of(node.this), "int64"), values.of(node.expression).literal
    if not isinstance(by, int) or not 0 <= by < 63:
        values.source.refuse(node, ">> by what is no literal from 0 to 62")
    return Value(number.expr // 2**by, INT, node)


def _bucket(values: Values, node: exp.WidthBucket) -> Value:
    number, least, most = (
        as_type(values.source, values.number(values.of(node.args[key])), FLOAT)
        for key in ("this", "min_value", "max_value")
    )
    count = values.of(node.args["num_buckets"]).literal
    if not isinstance(count, int) or count < 1:
        values.source.refuse(node, "width_bucket() of a number of buckets that is no literal of at least 1")
    limits = [values.of(node.args[key]).literal for key in ("min_value", "max_value")]
    if not all(isinstance(each, int | float | Decimal) for each in limits) or limits[0] >= limits[1]:
        values.source.refuse(node, "width_bucket() with bounds that are no literals, least first")
    bucket = ((number - least) * float(count) / (most - least)).floor().clip(-1.0, float(count)) + 1.0
    return Value(bucket.cast(pl.Int64), INT, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.Add: _arithmetic("+", lambda a, b: a + b),
    exp.Sub: _arithmetic("-", lambda a, b: a - b),
    exp.Mul: _arithmetic("*", lambda a, b: a * b),
    exp.Div: _divided,
    exp.Mod: _remainder,
    exp.Neg: _negative,
    exp.Abs: _absolute,
    exp.Sign: _sign,
    exp.Round: _rounded,
    exp.Trunc: _truncated,
    exp.Floor: _whole(lambda x: x.floor()),
    exp.Ceil: _whole(lambda x: x.ceil()),
    exp.Sqrt: _of_float(lambda x: x.sqrt()),
    exp.Cbrt: _of_float(lambda x: x.cbrt()),
    exp.Exp: _of_float(lambda x: x.exp()),
    exp.Ln: _of_float(lambda x: x.log()),
    exp.Pow: _power,
    exp.Sin: _of_float(lambda x: x.sin()),
    exp.Cos: _of_float(lambda x: x.cos()),
    exp.Tan: _of_float(lambda x: x.tan()),
    exp.Asin: _of_float(lambda x: x.arcsin()),
    exp.Acos: _of_float(lambda x: x.arccos()),
    exp.Atan: _of_float(lambda x: x.arctan()),
    exp.Atan2: _of_floats(pl.arctan2),
    exp.Degrees: _of_float(lambda x: x.degrees()),
    exp.Radians: _of_float(lambda x: x.radians()),
    exp.Pi: _pi,
    exp.WidthBucket: _bucket,
    exp.BitwiseAnd: _bits(lambda a, b: a & b),
    exp.BitwiseOr: _bits(lambda a, b: a | b),
    exp.BitwiseXor: _bits(lambda a, b: a ^ b),
    exp.BitwiseNot: _other_bits,
    exp.BitwiseRightShift: _shifted_right,
}

ARGUMENTS: dict[type[exp.Expr], set[str]] = {
    exp.Round: {"decimals"}, exp.Trunc: {"decimals"}, exp.Div: {"typed", "safe"},
    exp.WidthBucket: {"min_value", "max_value", "num_buckets"},
}  # fmt: skip

NEEDED: dict[type[exp.Expr], tuple[str, ...]] = {exp.Floor: ("this",), exp.Ceil: ("this",)}
