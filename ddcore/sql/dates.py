"""Dates, timestamps and intervals of SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.data.forms import intervals_of
from ddcore.sql import macros, zeros
from ddcore.sql.dialects import SPARKS
from ddcore.sql.source import given, shown
from ddcore.sql.tokens import NOTHING
from ddcore.sql.types import BOOL, DATE, FLOAT, INT, TIMESTAMP
from ddcore.sql.values import (
    Interval,
    Named,
    Rule,
    Value,
    Values,
    as_type,
    constant,
    function,
    literal_interval,
)
from ddcore.text.wording import listed, meant

_MONTHS = {"YEAR": 12, "MONTH": 1, "QUARTER": 3, "DECADE": 120, "CENTURY": 1200}
_DAYS = {"DAY": 1, "WEEK": 7}
_MICROSECONDS = {
    "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1,
}  # fmt: skip
_SHORT = {"MIN": "MINUTE", "SEC": "SECOND", "HR": "HOUR", "MON": "MONTH", "CENTURIE": "CENTURY"}
_PART = re.compile(r"\s*([+-]?\d+)\s*([A-Za-z]+)")


def interval(values: Values, node: exp.Interval) -> Value:
    """A literal interval: its length is the literal of the value."""
    amount = node.this
    text = amount.name if isinstance(amount, exp.Literal) else shown(amount).strip("'() ")
    unit = node.args.get("unit")
    is_iso = unit is None and text.startswith("P")
    parts = [(text.strip(), unit.name)] if unit is not None else [] if is_iso else _PART.findall(text)
    total = Interval(0, 0, 0)
    rest = "" if unit is not None else text if is_iso else _PART.sub("", text).strip()
    for number, unit_name in parts:
        name = unit_name.upper().removesuffix("S")
        name = _SHORT.get(name, name)
        if not re.fullmatch(r"[+-]?\d+", number) or name not in _MONTHS | _DAYS | _MICROSECONDS:
            values.source.refuse(node, "this interval", "write whole units: interval '1 year 3 days'")
        total.months += int(number) * _MONTHS.get(name, 0)
        total.days += int(number) * _DAYS.get(name, 0)
        total.microseconds += int(number) * _MICROSECONDS.get(name, 0)
    clock = _clock(rest) if rest else None
    if (rest and clock is None) or not (parts or rest):
        hint = "write whole units: interval '1 year 3 days 04:05:06'"
        raise values.source.error(node, f"the interval {text.removeprefix(NOTHING)!r} is not supported", hint)
    if clock is not None:
        total = Interval(total.months + clock.months, total.days + clock.days, total.microseconds + clock.microseconds)
    return literal_interval(total, node)


def _clock(text: str) -> Interval | None:
    """What stands behind the units of an interval, ``02:30:00``, or all of one in the form of ISO 8601."""
    whole = f"{text}:00" if re.fullmatch(r"[+-]?\d+:\d\d", text) else text
    parts = intervals_of(pl.Series([whole]))[0] if ":" in text or text.startswith("P") else None
    return parts and Interval(parts["months"], parts["days"], parts["microseconds"])


def is_day(value: Value) -> bool:
    """Whether it is a date or a timestamp."""
    return value.type in (DATE, TIMESTAMP)


def on_days(values: Values, node: exp.Binary, left: Value, right: Value, sign: str) -> Value:
    """Dates and timestamps plus and minus lengths, and the days between dates."""
    if sign == "+" and not is_day(left):
        left, right = right, left
    if isinstance(left.literal, str) and isinstance(right.literal, Interval):
        left = Value(as_type(values.source, left, TIMESTAMP), TIMESTAMP, left.node)
    if isinstance(right.literal, Interval) and is_day(left) and sign in "+-":
        return _moved(values, left, right.literal if sign == "+" else -right.literal, node)
    if left.type == DATE and right.type is not None and right.type.name == "time" and sign == "+":
        clock = right.expr.cast(pl.Int64) // 1_000
        return Value((left.expr.dt.epoch("us") + clock).cast(TIMESTAMP.polars), TIMESTAMP, node)
    if left.type == DATE and right.type == INT and sign in "+-":
        if isinstance(left.literal, date) and isinstance(right.literal, int):
            return constant(left.literal + timedelta(right.literal if sign == "+" else -right.literal), node)
        days = right.expr if sign == "+" else 0 - right.expr
        return Value(left.expr.dt.offset_by(days.cast(pl.String) + "d"), DATE, node)
    is_spark = values.source.dialect in SPARKS  # where it is an interval
    if left.type == DATE and sign == "-" and not is_spark and (right.type == DATE or isinstance(right.literal, str)):
        return Value((left.expr - as_type(values.source, right, DATE)).dt.total_days(), INT, node)
    hint = "datediff(a, b) is the days between dates" if is_spark else "docs/sql.md lists what is supported"
    values.source.refuse(node, f"{left.name} {sign} {right.name}", hint)


def _moved(values: Values, moment: Value, by: Interval, node: exp.Expr) -> Value:
    """A date moved by whole days, months and years is a date, as comparisons want it; else a timestamp."""
    stays = moment.type == DATE and not by.microseconds and values.source.dialect != "duckdb"
    kind = DATE if stays else TIMESTAMP
    if isinstance(moment.literal, date) and not isinstance(moment.literal, datetime) and kind == DATE:
        try:
            return constant(_in_months(moment.literal, by.months) + timedelta(by.days), node)
        except (ValueError, OverflowError):
            raise values.source.error(node, f"{shown(node)} is no date", "stay within the years 1 to 9999") from None
    expr = moment.expr if moment.type == kind else moment.expr.cast(kind.polars)
    for amount, unit in ((by.months, "mo"), (by.days, "d"), (by.microseconds, "us")):
        if amount:
            expr = expr.dt.offset_by(f"{amount}{unit}")
    return Value(expr, kind, node)


def _in_months(day: date, months: int) -> date:
    number = day.year * 12 + day.month - 1 + months
    year, month = divmod(number, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


Compute = Callable[[Any], pl.Expr]


@dataclass(frozen=True)
class Fields:
    """What a dialect calls the fields of dates and timestamps, of what Polars has as ``dt``; ``clocks`` are those of
    timestamps only. ``fractions``: the types of those that are no whole numbers.
    """

    days: Mapping[str, Compute]
    clocks: Mapping[str, Compute]
    fractions: Mapping[str, Type] = field(default_factory=dict)

    def of(self, values: Values, node: exp.Expr, unit: str, moment: Value) -> Value:
        """A field of a moment. Raises ProgramError where it has none of this name."""
        every, unit = {**self.days, **self.clocks}, unit.upper()
        is_day = moment.type != TIMESTAMP
        compute = (self.days if is_day else every).get(unit)
        if compute is None:
            values.source.refuse(node, f"extract({unit.lower()}) of {moment.name}", no_field(unit, every))
        kind = INT if is_day else self.fractions.get(unit, INT)
        return Value(compute(moment.expr.dt).cast(kind.polars), kind, node)

    def extract(self, values: Values, node: exp.Extract) -> Value:
        """The rule of ``extract(year FROM ts)``."""
        return self.of(values, node, node.this.name, values.require(values.of(node.expression), "date", "timestamp"))

    def rule(self, unit: str, *types: str) -> Rule:
        """The rule of a function that gives a field, such as ``year(ts)``."""
        types = types or ("timestamp", "date")
        return lambda values, node: self.of(values, node, unit, values.require(values.of(given(node)[0]), *types))


def date_part(values: Values, node: exp.Anonymous) -> Value:
    """``date_part('year', ts)``."""
    unit, moment = str(values.of(node.expressions[0]).literal), node.expressions[1]
    return values.of(exp.Extract(this=exp.var(unit), expression=moment))


def no_field(unit: str, fields: Iterable[str]) -> str:
    """The hint for a field that there is not."""
    names = [name.lower() for name in fields]
    return meant(unit.lower(), names) or f"the fields are {listed(names)}"


def clock_field(values: Values, node: exp.Extract, time: Value) -> Value:
    """A field of a time of day."""
    unit = node.this.name.upper()
    if unit not in _CLOCK_FIELDS:
        values.source.refuse(node, f"extract({unit.lower()}) of {time.name}", no_field(unit, _CLOCK_FIELDS))
    kind = _FRACTIONS.get(unit, INT)
    if unit == "EPOCH":
        return Value(in_places(time.expr.cast(pl.Int64) // 1_000, 6), kind, node)
    return Value(_CLOCK_FIELDS[unit](time.expr.dt).cast(kind.polars), kind, node)


def _seconds(on: Any) -> pl.Expr:
    """The microseconds of the minute."""
    seconds: pl.Expr = on.second().cast(pl.Int64)
    microseconds: pl.Expr = on.microsecond().cast(pl.Int64)
    return seconds * 1_000_000 + microseconds


def in_places(microseconds: pl.Expr, places: int) -> pl.Expr:
    """Whole microseconds as a decimal of so many places."""
    return microseconds.cast(pl.Decimal(18, 0)) * pl.lit(Decimal(1).scaleb(-places), dtype=pl.Decimal(18, places))


FIELDS: dict[str, Compute] = {
    "YEAR": lambda on: on.year(),
    "MONTH": lambda on: on.month(),
    "DAY": lambda on: on.day(),
    "QUARTER": lambda on: on.quarter(),
    "WEEK": lambda on: on.week(),
    "DOY": lambda on: on.ordinal_day(),
    "DOW": lambda on: on.weekday().cast(pl.Int64) % 7,
    "ISODOW": lambda on: on.weekday(),
    "ISOYEAR": lambda on: on.iso_year(),
    "DECADE": lambda on: on.year().cast(pl.Int64) // 10,
    "CENTURY": lambda on: on.century(),
    "MILLENNIUM": lambda on: on.millennium(),
    "EPOCH": lambda on: on.epoch("s"),
    "JULIAN": lambda on: on.epoch("d") + 2_440_588,
}
_CLOCK_FIELDS: dict[str, Compute] = {
    "HOUR": lambda on: on.hour(),
    "MINUTE": lambda on: on.minute(),
    "SECOND": lambda on: in_places(_seconds(on), 6),
    "MILLISECOND": lambda on: in_places(_seconds(on), 3),
    "MILLISECONDS": lambda on: in_places(_seconds(on), 3),
    "MICROSECOND": _seconds,
    "MICROSECONDS": _seconds,
    "EPOCH": lambda on: in_places(on.epoch("us"), 6),
}
_FRACTIONS = {
    "SECOND": Type("decimal", 18, 6), "EPOCH": Type("decimal", 18, 6), "MILLISECOND": Type("decimal", 18, 3),
    "MILLISECONDS": Type("decimal", 18, 3),
}  # fmt: skip
OF_MOMENTS = Fields(FIELDS, _CLOCK_FIELDS, _FRACTIONS)


def _truncated(values: Values, node: exp.Func) -> Value:
    units = {"YEAR": "1y", "QUARTER": "1q", "MONTH": "1mo", "WEEK": "1w", "DAY": "1d", "HOUR": "1h", "MINUTE": "1m",
             "SECOND": "1s", "MILLISECOND": "1ms", "MILLISECONDS": "1ms", "MICROSECOND": "1us",
             "MICROSECONDS": "1us"}  # fmt: skip
    unit = node.args["unit"].name.upper()
    if unit not in units and isinstance(node.this, exp.Column) and node.this.name.upper() in units:
        raise values.source.error(node, "the unit comes first", f"write date_trunc('{node.this.name.lower()}', ...)")
    whole = values.moment(values.of(node.this)).expr
    if unit not in units | _YEARS:
        values.source.refuse(node, f"date_trunc('{unit.lower()}')")
    if unit in units:
        return Value(whole.dt.truncate(units[unit]), TIMESTAMP, node)
    count, first = _YEARS[unit]
    year = whole.dt.year().cast(pl.Int64)
    begin = pl.date((year - first) // count * count + first, 1, 1)
    return Value(pl.when(whole.is_not_null()).then(begin).cast(TIMESTAMP.polars), TIMESTAMP, node)


_YEARS = {"DECADE": (10, 0), "CENTURY": (100, 1), "MILLENNIUM": (1000, 1)}
"""How many years there are, and the first year of one of them."""


# Of strftime; what is here means the same in PostgreSQL's patterns, from which sqlglot translates.
_DIRECTIVES = re.compile(r"%[YmdHMSyjI]")
_NO_LETTERS = re.compile(r"[^A-Za-z%\"]*")


def pattern_of(values: Values, node: exp.Func) -> str:
    """The pattern of a function of text and times, as strftime has it."""
    pattern = node.args["format"]
    text = pattern.name.replace("strict", "") if isinstance(pattern, exp.Literal) else ""  # of two digits, in Spark
    if not text or not _NO_LETTERS.fullmatch(_DIRECTIVES.sub("", text)):
        hint = "patterns have YYYY, YY, MM, DD, DDD, HH24, HH12, MI, SS and what is no letter between them"
        values.source.refuse(node, f"a pattern of {node.sql_name().lower()} that is not of these", hint)
    return text


def by_pattern(compute: Callable[[pl.Expr, str], pl.Expr], kind: Type, *types: str) -> Rule:
    """The rule of a function of a value and a pattern of times."""

    def rule(values: Values, node: exp.Func) -> Value:
        return Value(compute(values.require(values.of(node.this), *types).expr, pattern_of(values, node)), kind, node)

    return rule


def _of_epoch(values: Values, node: exp.UnixToTime) -> Value:
    seconds = values.number(values.of(node.this))
    if seconds.type == INT:
        microseconds = seconds.expr * 1_000_000
    else:
        microseconds = (as_type(values.source, seconds, FLOAT) * 1e6).round(0, mode="half_to_even").cast(pl.Int64)
    return Value(microseconds.cast(TIMESTAMP.polars), TIMESTAMP, node)


def _timestamp_of(*parts: pl.Expr) -> pl.Expr:
    *whole, seconds = parts
    moment = pl.datetime(*whole, time_unit="us", time_zone="UTC")
    rest = (seconds * 1e6).round(0, mode="half_to_even").cast(pl.Int64)
    return (moment.dt.epoch("us") + rest).cast(TIMESTAMP.polars)


def _binned(values: Values, node: exp.DateBin) -> Value:
    """The start of the stretch of time that a timestamp is in; one of the stretches starts at the origin."""
    stride = values.of(node.this)
    length = stride.literal
    if isinstance(length, str):
        length = interval(values, exp.Interval(this=node.this)).literal
    if not isinstance(length, Interval) or length.months:
        values.source.refuse(node, "date_bin() by what is no literal interval of days and less", "such as '15 minutes'")
    step = length.days * 86_400_000_000 + length.microseconds
    if step <= 0:
        raise values.source.error(node, f"{shown(node)}: the interval is not positive", "give one of at least 1 us")
    moment, origin = (values.moment(values.of(side)).expr.dt.epoch("us") for side in (node.expression, _origin(node)))
    return Value((moment - (moment - origin) % step).cast(TIMESTAMP.polars), TIMESTAMP, node)


def _origin(node: exp.DateBin) -> exp.Expr:
    """The third argument, which sqlglot takes for a unit where it is a name."""
    origin: exp.Expr = node.args.get("unit") or node.args.get("origin") or node.args["zone"]
    return exp.column(origin.name.lower()) if isinstance(origin, exp.Var) else origin


def _time_of(hour: pl.Expr, minute: pl.Expr, second: pl.Expr) -> pl.Expr:
    """``make_time(12, 30, 15.5)``; the row fails where there is no such time."""
    microseconds = (second * 1e6).round(0, mode="half_to_even").cast(pl.Int64)
    fits = hour.is_between(0, 23) & minute.is_between(0, 59) & microseconds.is_between(0, 59_999_999)
    wrong = zeros.failing_where(~fits, "there is no such time of day")
    total = (hour * 60 + minute) * 60_000_000 + microseconds + wrong
    return (total * 1_000).cast(pl.Time)


_PARTS = ("year", "month", "day", "hour", "min", "sec")
RULES: dict[type[exp.Expr], Rule] = {
    exp.Interval: interval,
    exp.Extract: OF_MOMENTS.extract,
    **{
        kind: OF_MOMENTS.rule(kind.__name__.upper(), "date", "timestamp")
        for kind in (exp.Year, exp.Month, exp.Day, exp.Quarter)
    },
    exp.TimestampTrunc: _truncated,
    exp.DateTrunc: _truncated,
    exp.DateBin: _binned,
    exp.StrToDate: by_pattern(lambda x, form: x.str.to_date(form), DATE, "string"),
    exp.StrToTime: by_pattern(
        lambda x, form: x.str.to_datetime(form, time_unit="us", time_zone="UTC"), TIMESTAMP, "string"
    ),
    exp.UnixToTime: _of_epoch,
    exp.TimestampFromParts: function(_timestamp_of, TIMESTAMP, *["int64"] * 5, "float64", keys=_PARTS),
    exp.LastDay: function(lambda x: x.cast(pl.Date).dt.month_end(), DATE, "date|timestamp"),
    exp.Date: lambda values, node: values.of(exp.Cast(this=node.this, to=exp.DataType.build("date"))),
    exp.TimeFromParts: function(
        _time_of, Type("time"), "int64", "int64", "float64", keys=("hour", "min", "sec"), repeats=True
    ),
}


NAMED: dict[str, Named] = {
    "make_timestamptz": (6, macros.node_of(exp.TimestampFromParts, *_PARTS)),  # of a time in UTC
    # There are no infinite dates and timestamps here.
    "isfinite": (1, function(lambda x: pl.when(x.is_not_null()).then(pl.lit(True)), BOOL, "date|timestamp")),
    "make_date": (3, function(pl.date, DATE, "int64", "int64", "int64")),
}
