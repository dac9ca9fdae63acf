"""Functions of dates and timestamps of Spark's dialect that count units, or have a time zone."""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from ddcore.sql.types import INT, TEXT, TIMESTAMP
from ddcore.sql.values import Rule, Value, Values, function, shared
from ddcore.sql.zones import from_zone, in_zone, zone_of

_MICROSECONDS = {
    "WEEK": 604_800_000_000, "DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000,
    "MILLISECOND": 1_000, "MICROSECOND": 1,
}  # fmt: skip
_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}


def _unit(values: Values, node: exp.Expr) -> str:
    unit: str = node.args["unit"].name.upper()
    if unit not in _MICROSECONDS | _MONTHS:
        values.source.refuse(node, f"counting in units of {unit.lower()}", "year, quarter, month, week, day, hour ...")
    return unit


def _timestamp(values: Values, node: exp.Expr) -> Value:
    inner = node.this if isinstance(node, exp.TsOrDsToDate) else node
    return values.moment(values.of(inner))


def _moved(values: Values, node: exp.TimestampAdd) -> Value:
    """``dateadd(MONTH, n, ts)``: a timestamp, also of a date."""
    unit, count = _unit(values, node), values.require(values.of(node.expression), "int64").expr
    moment = _timestamp(values, node.this).expr
    if unit in _MONTHS:
        return Value(moment.dt.offset_by((count * _MONTHS[unit]).cast(pl.String) + "mo"), TIMESTAMP, node)
    return Value((moment.dt.epoch("us") + count * _MICROSECONDS[unit]).cast(TIMESTAMP.polars), TIMESTAMP, node)


def whole_months(late: pl.Expr, early: pl.Expr) -> pl.Expr:
    """How many whole months lie between two timestamps, negative where the first one is the earlier one."""
    day = _MICROSECONDS["DAY"]
    (date, clock), (other, other_clock) = ((on.dt.truncate("1d"), on.dt.epoch("us") % day) for on in (late, early))
    less = pl.when((date > other) & (clock < other_clock)).then(-1).when((date < other) & (clock > other_clock)).then(1)
    moved = (late.dt.epoch("us") + less.otherwise(0) * day).cast(TIMESTAMP.polars)  # by what the clocks lack to a day
    numbers = [
        (on.dt.year().cast(pl.Int64) * 12 + on.dt.month().cast(pl.Int64)) * 32 + on.dt.day().cast(pl.Int64)
        for on in (moved, early)
    ]
    return (numbers[0] - numbers[1]).truncdiv(32)


def _between(values: Values, node: exp.Expr) -> Value:
    """``timestampdiff(HOUR, start, end)``: whole units, without what is left."""
    unit = _unit(values, node)
    sides = [_timestamp(values, side) for side in (node.this, node.expression)]

    def count(late: Value, early: Value) -> pl.Expr:
        if unit in _MONTHS:
            return whole_months(late.expr, early.expr).truncdiv(_MONTHS[unit])
        return (late.expr.dt.epoch("us") - early.expr.dt.epoch("us")).truncdiv(_MICROSECONDS[unit])

    return Value(shared(sides, count), INT, node)


def days_or_units(plain: Rule) -> Rule:
    """The rule of ``datediff``: of days between dates, or of other units as ``timestampdiff`` counts them."""
    return lambda values, node: _between(values, node) if node.args.get("unit") else plain(values, node)


def _shown_in_zone(values: Values, node: exp.AtTimeZone) -> Value:
    """``from_utc_timestamp``."""
    zone, value = zone_of(values, node), _timestamp(values, node.this.this)
    return Value(in_zone(value.expr, zone), TIMESTAMP, node)


def _of_zone(values: Values, node: exp.FromTimeZone) -> Value:
    """``to_utc_timestamp``."""
    zone, value = zone_of(values, node), _timestamp(values, node.this.this)
    return Value(shared([value], lambda moment: from_zone(moment.expr, zone)), TIMESTAMP, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.TimestampAdd: _moved,
    exp.TimestampDiff: _between,
    exp.AtTimeZone: _shown_in_zone,
    exp.FromTimeZone: _of_zone,
    exp.Dayname: function(lambda x: x.dt.strftime("%a"), TEXT, "date|timestamp"),
    exp.Monthname: function(lambda x: x.dt.strftime("%b"), TEXT, "date|timestamp"),
}
