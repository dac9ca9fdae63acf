"""Intervals as values in SQL: months, days and microseconds, which PostgreSQL keeps apart, too."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql import dates
from ddcore.sql.types import FLOAT, INT, INTERVAL, TIMESTAMP
from ddcore.sql.values import (
    Interval,
    Named,
    Rule,
    Value,
    Values,
    as_type,
    function,
    interval_of_parts,
    settled,
    shared,
)

_DAY = 86_400_000_000
Parts = tuple[pl.Expr, pl.Expr, pl.Expr]
"""Months, days and microseconds, as int64."""


def is_interval(value: Value) -> bool:
    """Whether it is an interval, also a literal one."""
    return value.type == INTERVAL or isinstance(value.literal, Interval)


def _parts(value: pl.Expr) -> Parts:
    months, days, microseconds = (
        value.struct.field(name).cast(pl.Int64) for name in ("months", "days", "microseconds")
    )
    return months, days, microseconds


def compared(compare: Callable[[pl.Expr, pl.Expr], pl.Expr], left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Two intervals compared by their lengths, in which a month has 30 days and a day 24 hours."""

    def whole(value: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
        months, days, microseconds = _parts(value)
        return months * 30 + days + microseconds // _DAY, microseconds % _DAY

    (days, rest), (other_days, other_rest) = whole(left), whole(right)
    if compare in (pl.Expr.eq, pl.Expr.ne):
        equal = (days == other_days) & (rest == other_rest)
        return equal if compare is pl.Expr.eq else ~equal
    strict = pl.Expr.lt if compare in (pl.Expr.lt, pl.Expr.le) else pl.Expr.gt
    return strict(days, other_days) | ((days == other_days) & compare(rest, other_rest))


def plus(values: Values, node: exp.Expr, left: Value, right: Value, sign: str) -> Value:
    """The sum or the difference of two intervals."""
    if sign not in "+-":
        values.source.refuse(node, f"interval {sign} interval")
    sides = [settled(left), settled(right)]

    def total(one: Value, other: Value) -> pl.Expr:
        pairs = zip(_parts(one.expr), _parts(other.expr), strict=True)
        return interval_of_parts(*(a + b if sign == "+" else a - b for a, b in pairs))

    return Value(shared(sides, total), INTERVAL, node)


def moved(values: Values, node: exp.Expr, moment: Value, length: Value, sign: str) -> Value:
    """A date or a timestamp, later or earlier by an interval: first months, then days, then the rest."""

    def later(moment: Value, length: Value) -> pl.Expr:
        expr = moment.expr
        for part, unit in zip(_parts(length.expr), ("mo", "d", "us"), strict=True):
            expr = expr.dt.offset_by((part if sign == "+" else 0 - part).cast(pl.String) + unit)
        return expr

    return Value(shared([values.moment(moment), length], later), TIMESTAMP, node)


def on_clock(values: Values, node: exp.Binary, left: Value, right: Value, sign: str) -> Value | None:
    """A time of day moved by the hours of an interval, past midnight too, or the time between two; None for others."""
    if sign == "+" and is_interval(left):
        left, right = right, left
    if left.type is None or left.type.name != "time" or sign not in "+-":
        return None
    start = left.expr.cast(pl.Int64) // 1_000
    if sign == "-" and (right.type == left.type or isinstance(right.literal, str)):
        length = Value(start - as_type(values.source, right, left.type).cast(pl.Int64) // 1_000, INT, node)
        return Value(shared([length], lambda x: interval_of_parts(x.expr * 0, x.expr * 0, x.expr)), INTERVAL, node)
    if not is_interval(right):
        return None
    clock = _parts(settled(right).expr)[2]
    return Value((((start + clock) if sign == "+" else (start - clock)) % _DAY * 1_000).cast(pl.Time), left.type, node)


def between(values: Values, node: exp.Expr, late: Value, early: Value) -> Value:
    """From one timestamp to another: days of 24 hours, and the rest."""
    sides = [values.moment(side).expr.dt.epoch("us") for side in (late, early)]
    length = Value(sides[0] - sides[1], INT, node)
    return Value(
        shared([length], lambda x: interval_of_parts(x.expr * 0, _whole(x.expr, _DAY), _rest(x.expr, _DAY))),
        INTERVAL,
        node,
    )


def times(values: Values, node: exp.Expr, length: Value, number: Value) -> Value:
    """An interval so many times."""
    if number.type != INT:
        return _scaled(values, node, length, number, operator.mul)
    many = Value(number.expr, INT, node)

    def product(length: Value, many: Value) -> pl.Expr:
        return interval_of_parts(*(part * many.expr for part in _parts(length.expr)))

    return Value(shared([settled(length), many], product), INTERVAL, node)


def over(values: Values, node: exp.Expr, length: Value, number: Value) -> Value:
    """An interval divided by a number: null where that is 0."""
    safe = shared([values.cast(number, FLOAT)], lambda x: pl.when(x.expr != 0).then(x.expr))
    return _scaled(values, node, length, Value(safe, FLOAT, node), operator.truediv)


def _scaled(
    values: Values, node: exp.Expr, length: Value, number: Value, by: Callable[[pl.Expr, pl.Expr], pl.Expr]
) -> Value:
    """An interval times or over a number: what is no whole month becomes days, of which 30 are one, and what is no
    whole day becomes a part of its 24 hours. In floats, as PostgreSQL computes them, so their last digits are its.
    """

    def product(length: Value, number: Value) -> pl.Expr:
        months, days, clock = (by(part.cast(pl.Float64), number.expr) for part in _parts(length.expr))
        rest = _to_microsecond((months - months.truncate()) * 30.0)
        seconds = _to_microsecond((days - days.truncate() + rest - rest.truncate()) * 86_400.0)
        more = (seconds / 86_400.0).truncate()
        total = [months, days.truncate() + rest.truncate() + more, _nearest(clock + (seconds - more * 86_400.0) * 1e6)]
        return interval_of_parts(*(part.truncate().cast(pl.Int64) for part in total))

    return Value(shared([settled(length), values.cast(number, FLOAT)], product), INTERVAL, node)


def _nearest(number: pl.Expr) -> pl.Expr:
    return number.round(0, mode="half_to_even")


def _to_microsecond(number: pl.Expr) -> pl.Expr:
    return _nearest(number * 1e6) / 1e6


def _whole(number: pl.Expr, by: int) -> pl.Expr:
    return number.truncdiv(by)


def _rest(number: pl.Expr, by: int) -> pl.Expr:
    return number - number.truncdiv(by) * by


def _age(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Years, months, days and the rest from one time to another, as calendars count."""
    is_early = one < other
    late = pl.when(is_early).then(other).otherwise(one).dt
    early = pl.when(is_early).then(one).otherwise(other).dt
    clock = late.epoch("us") % _DAY - early.epoch("us") % _DAY
    days = late.day().cast(pl.Int64) - early.day() - (clock < 0).cast(pl.Int64)
    months = (late.year().cast(pl.Int64) - early.year()) * 12 + late.month().cast(pl.Int64) - early.month()
    length = early.month_end().dt.day().cast(pl.Int64)
    borrowed = days < 0
    sign = pl.when(is_early).then(-1).otherwise(1)
    return interval_of_parts(
        sign * (months - borrowed.cast(pl.Int64)),
        sign * pl.when(borrowed).then(days + length).otherwise(days),
        sign * pl.when(clock < 0).then(clock + _DAY).otherwise(clock),
    )


def _evened(large: pl.Expr, small: pl.Expr, per: int, below: pl.Expr | None = None) -> tuple[pl.Expr, pl.Expr]:
    """Two numbers, of which one of the first is so many of the second, with one sign. ``below``: what decides the sign
    of the second where that is 0.
    """
    is_less, is_more = small < 0, small > 0
    if below is not None:
        is_less, is_more = is_less | ((small == 0) & (below < 0)), is_more | ((small == 0) & (below > 0))
    step = pl.when((large > 0) & is_less).then(1).when((large < 0) & is_more).then(-1).otherwise(0)
    return large - step, small + step * per


def _justified(*, days: bool, hours: bool) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        value = values.require(settled(values.of(node.this)), "interval")

        def even(value: Value) -> pl.Expr:
            months, number, clock = _parts(value.expr)
            if hours:
                number, clock = number + _whole(clock, _DAY), _rest(clock, _DAY)
            if days:
                months, number = _evened(months + _whole(number, 30), _rest(number, 30), 30, clock if hours else None)
            if hours:
                number, clock = _evened(number, clock, _DAY)
            return interval_of_parts(months, number, clock)

        return Value(shared([value], even), INTERVAL, node)

    return rule


_UNITS = {"year": 12, "month": 1, "week": 7, "day": 1, "hour": 3_600_000_000, "minute": 60_000_000}
_OTHER_NAMES = {"years": "year", "months": "month", "weeks": "week", "days": "day", "hours": "hour", "mins": "minute",
                "secs": "second"}  # fmt: skip


def _made(values: Values, node: exp.MakeInterval) -> Value:
    """``make_interval(days => 3)``, or its numbers in order: years, months, weeks, days, hours, minutes, seconds."""
    given: dict[str, pl.Expr] = {}
    for key, part in node.args.items():
        name = _OTHER_NAMES.get(part.this.name, part.this.name) if isinstance(part, exp.Kwarg) else key
        value = values.number(values.of(part.expression if isinstance(part, exp.Kwarg) else part))
        if name == "second":
            seconds = value.expr.cast(pl.Float64) * 1e6
            given[name] = seconds.round(0, mode="half_to_even").cast(pl.Int64)
        else:
            given[name] = values.require(value, "int64").expr
    zero = pl.lit(0, dtype=pl.Int64)

    def total(*names: str) -> pl.Expr:
        parts: Any = [given[name] * _UNITS.get(name, 1) for name in names if name in given]
        return sum(parts, zero)

    return Value(
        interval_of_parts(total("year", "month"), total("week", "day"), total("hour", "minute", "second")),
        INTERVAL,
        node,
    )


_MILLISECONDS, _MICROSECONDS = ("MILLISECOND", "MILLISECONDS"), ("MICROSECOND", "MICROSECONDS")
_FIELDS: dict[str, Callable[[pl.Expr, pl.Expr, pl.Expr], pl.Expr]] = {
    "YEAR": lambda months, _days, _clock: _whole(months, 12),
    "MONTH": lambda months, _days, _clock: _rest(months, 12),
    "DAY": lambda _months, days, _clock: days,
    "HOUR": lambda _months, _days, clock: _whole(clock, 3_600_000_000),
    "MINUTE": lambda _months, _days, clock: _rest(_whole(clock, 60_000_000), 60),
    "SECOND": lambda _months, _days, clock: _rest(clock, 60_000_000),
    **dict.fromkeys(_MILLISECONDS, lambda _months, _days, clock: _rest(clock, 60_000_000)),
    **dict.fromkeys(_MICROSECONDS, lambda _months, _days, clock: _rest(clock, 60_000_000)),
    "QUARTER": lambda months, _days, _clock: _whole(_rest(months, 12), 3) + 1,
    "DECADE": lambda months, _days, _clock: _whole(months, 120),
    "CENTURY": lambda months, _days, _clock: _whole(months, 1_200),
    "MILLENNIUM": lambda months, _days, _clock: _whole(months, 12_000),
    "EPOCH": lambda months, days, clock: (
        (_whole(months, 12) * 31_557_600 + (_rest(months, 12) * 30 + days) * 86_400) * 1_000_000 + clock
    ),
}


def field(values: Values, node: exp.Extract, value: Value) -> Value:
    """A field of an interval: ``extract(day FROM i)``. Seconds and the epoch have six digits behind the point."""
    unit = node.this.name.upper()
    if unit not in _FIELDS:
        values.source.refuse(node, f"extract({unit.lower()}) of an interval", dates.no_field(unit, _FIELDS))
    number = _FIELDS[unit](*_parts(settled(value).expr))
    if unit not in ("SECOND", "EPOCH", *_MILLISECONDS):
        return Value(number, INT, node)
    places = 3 if unit in _MILLISECONDS else 6
    return Value(dates.in_places(number, places), Type("decimal", 18, places), node)


def _extract(values: Values, node: exp.Extract) -> Value:
    """A field of an interval, of a time of day, of a date or of a timestamp."""
    value = values.of(node.expression)
    if is_interval(value):
        return field(values, node, value)
    if value.type is not None and value.type.name == "time":
        return dates.clock_field(values, node, value)
    return dates.OF_MOMENTS.extract(values, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.Extract: _extract,
    exp.JustifyDays: _justified(days=True, hours=False),
    exp.JustifyHours: _justified(days=False, hours=True),
    exp.JustifyInterval: _justified(days=True, hours=True),
    exp.MakeInterval: _made,
}
NAMED: dict[str, Named] = {"age": (2, function(_age, INTERVAL, "moment", "moment", repeats=True))}
