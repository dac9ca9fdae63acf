"""What operators and functions mean in DuckDB's dialect."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from sqlglot import exp

from ddcore.sql import (
    arrays,
    conditions,
    dates,
    intervals,
    json_paths,
    list_functions,
    numbers,
    regexes,
    spark,
    texts,
    zeros,
)
from ddcore.sql.regexes import RE2
from ddcore.sql.types import BOOL, DATE, FLOAT, INT, TEXT, TIMESTAMP
from ddcore.sql.values import Named, Rule, Value, Values, as_type, function


def _substring(values: Values, node: exp.Substring) -> Value:
    """A start before 1 uses up the length, a negative one counts from the end."""
    length = node.args.get("length")
    count = values.peek(length).literal if length is not None else None
    if isinstance(count, int) and count < 0:
        values.source.refuse(node, "substring() of a negative length")
    return _SUBSTRING(values, node)


_SUBSTRING = texts.substring_from(lambda start, size: pl.when(start < 0).then(size + start).otherwise(start - 1))


def _upper(text: pl.Expr) -> pl.Expr:
    """A letter stays one letter."""
    return text.str.replace_all("ß", "ẞ", literal=True).str.to_uppercase()


def _log(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    """A logarithm, which fails for numbers that have none."""
    return function(lambda x: compute(x) + zeros.failing_where(x <= 0, "no logarithm"), FLOAT, "float64")


def _logarithm(values: Values, node: exp.Log) -> Value:
    """To 10, or to the base in front."""
    if node.expression is None:
        return _log(lambda x: numbers.log(pl.lit(10.0), x))(values, node)
    base = values.of(node.this).literal
    if not isinstance(base, int) or base <= 1:
        values.source.refuse(node, "log() to a base that is no literal of at least 2")
    return _log(lambda x: numbers.log(pl.lit(float(base)), x))(values, exp.Ln(this=node.expression))


def _replaced(values: Values, node: exp.RegexpReplace) -> Value:
    """The first match, with ``g`` every one."""
    flags = str(values.of(node.args["modifiers"]).literal) if node.args.get("modifiers") else ""
    if set(flags) - set("gi"):
        values.source.refuse(node, "flags of a regular expression that are not of these: g, i")
    every, rest = "g" in flags, flags.replace("g", "")
    return Value(regexes.replaced(values, node, RE2, every=every, flags=rest), TEXT, node)


def _split(values: Values, node: exp.Split) -> Value:
    text, separator = values.require(values.of(node.this), "string").expr, values.of(node.expression).literal
    if not isinstance(separator, str) or not separator:
        values.source.refuse(node, "string_split() at what is no literal of at least one letter")
    return Value(text.str.split(separator), arrays.list_of(TEXT), node)


def _contains(some: pl.Expr, wanted: pl.Expr) -> pl.Expr:
    """False where no element is equal, nulls or not."""
    there = some.list.contains(wanted, nulls_equal=False)
    return pl.when(some.is_not_null() & wanted.is_not_null()).then(there)


def _joined(values: Values, node: exp.ArrayToString) -> Value:
    """Null where all elements are null."""
    some, _element = arrays.list_and_element(values, node.this)
    text = arrays.RULES[exp.ArrayToString](values, node)
    nothing = (some.expr.list.len() > 0) & (some.expr.list.drop_nulls().list.len() == 0)
    return Value(pl.when(nothing.not_()).then(text.expr), TEXT, node)


_CENTURIES = ("EPOCH", "CENTURY", "MILLENNIUM", "DECADE")
_FIELDS = dates.Fields(
    {unit: compute for unit, compute in dates.FIELDS.items() if unit not in _CENTURIES},
    {"HOUR": lambda on: on.hour(), "MINUTE": lambda on: on.minute(), "SECOND": lambda on: on.second()},
)


def _extracted(values: Values, node: exp.Extract) -> Value:
    """Of an interval or a time of day whole numbers, also of seconds, but of the epoch."""
    value = values.peek(node.expression)
    if intervals.is_interval(value):
        found = intervals.field(values, node, value)
    elif value.type is not None and value.type.name == "time":
        found = dates.clock_field(values, node, value)
    else:
        return _FIELDS.extract(values, node)
    if node.this.name.upper() == "EPOCH":
        return Value(found.expr.cast(pl.Float64), FLOAT, node)
    return Value(found.expr.cast(pl.Int64), INT, node)


def _between(values: Values, node: exp.DateDiff) -> Value:
    """How many borders of units lie between two moments."""
    unit = node.args["unit"].name.upper() if node.args.get("unit") else "DAY"
    sides = [values.require(values.of(side), "timestamp", "date") for side in (node.this, node.expression)]
    if unit in ("YEAR", "MONTH", "QUARTER"):
        months = [side.expr.dt.year().cast(pl.Int64) * 12 + side.expr.dt.month() - 1 for side in sides]
        size = {"YEAR": 12, "MONTH": 1, "QUARTER": 3}[unit]
        return Value(months[0] // size - months[1] // size, INT, node)
    size = {"DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}.get(unit, 0)
    if not size:
        values.source.refuse(node, f"date_diff('{unit.lower()}')")
    seconds = [as_type(values.source, side, TIMESTAMP).dt.epoch("s") for side in sides]
    return Value(seconds[0] // size - seconds[1] // size, INT, node)


SHARED: tuple[type[exp.Expr], ...] = (
    *spark.SHARED, exp.Concat, exp.Left, exp.Right, exp.Trunc, exp.LastDay, exp.TimestampTrunc, exp.Cast, exp.Ceil,
    exp.Floor, exp.JSONExtract, exp.Chr, exp.Factorial, exp.ArrayAppend, exp.ArrayPrepend, exp.TimeFromParts,
    exp.AtTimeZone,
)  # fmt: skip
"""What means the same as in the default dialect, where there is no rule below."""

RULES: dict[type[exp.Expr], Rule] = {
    exp.Div: zeros.floats(fails=False),
    exp.IntDiv: zeros.whole,
    exp.Mod: zeros.remainder(fails=True),
    exp.Sign: function(lambda x: x.sign().cast(pl.Int64), INT, "float64"),
    exp.Length: list_functions.for_lists(
        arrays.COUNT, function(lambda x: x.str.len_chars().cast(pl.Int64), INT, "string")
    ),
    exp.Upper: function(_upper, TEXT, "string"),
    exp.Ln: _log(lambda x: x.log()),
    exp.Log: _logarithm,
    **dict.fromkeys((exp.Like, exp.ILike), conditions.like("")),  # nothing escapes, unless ESCAPE says so
    exp.Substring: _substring,
    exp.RegexpLike: regexes.match(RE2),
    **dict.fromkeys((exp.RegexpFullMatch, exp.SimilarTo), regexes.match(RE2, whole=True)),
    exp.RegexpExtract: regexes.extraction(RE2, 0),
    exp.RegexpReplace: _replaced,
    exp.SplitPart: texts.field(whole=None, zero_fails=False),
    exp.Split: _split,
    exp.JSONExtractScalar: json_paths.scalar(fails=True),
    exp.Extract: _extracted,
    **{kind: _FIELDS.rule(kind.__name__.upper()) for kind in (exp.Year, exp.Quarter, exp.Month, exp.Day)},
    exp.Hour: _FIELDS.rule("HOUR"),
    exp.Minute: _FIELDS.rule("MINUTE"),
    exp.Second: _FIELDS.rule("SECOND"),
    exp.DayOfMonth: _FIELDS.rule("DAY"),
    exp.DayOfWeek: _FIELDS.rule("DOW"),
    exp.DayOfWeekIso: _FIELDS.rule("ISODOW"),
    exp.DayOfYear: _FIELDS.rule("DOY"),
    exp.WeekOfYear: _FIELDS.rule("WEEK"),
    exp.DateDiff: _between,
    exp.TimeToUnix: function(lambda x: x.dt.epoch("us").cast(pl.Float64) / 1e6, FLOAT, "moment"),
    exp.TimeToStr: dates.by_pattern(lambda x, form: x.dt.strftime(form), TEXT, "timestamp", "date"),
    exp.DateFromParts: function(pl.date, DATE, "int64", "int64", "int64", keys=("year", "month", "day")),
    exp.Dayname: function(lambda x: x.dt.strftime("%A"), TEXT, "date"),
    exp.Monthname: function(lambda x: x.dt.strftime("%B"), TEXT, "date"),
    exp.Bracket: arrays.element_or_null,
    exp.ArraySize: arrays.COUNT,
    exp.ArrayContains: function(_contains, BOOL, "list", "element"),
    exp.ArrayToString: _joined,
    exp.IsNan: function(lambda x: x.is_nan(), BOOL, "float64"),
}

NAMED: dict[str, Named] = {
    "date_part": (2, dates.date_part),
    "prefix": (2, function(lambda x, part: x.str.starts_with(part), BOOL, "string", "string")),
    "suffix": (2, function(lambda x, part: x.str.ends_with(part), BOOL, "string", "string")),
    "fdiv": (2, function(lambda a, b: (a / b).floor(), FLOAT, "float64", "float64")),
    "strlen": (1, texts.NAMED["octet_length"][1]),
}
