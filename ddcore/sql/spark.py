"""What operators and functions mean in Spark's dialect, with ANSI mode on, as in Spark 4 and Databricks."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal

import polars as pl
from sqlglot import exp

from ddcore.expressions import polars_json
from ddcore.sql import (
    arrays,
    casts,
    dates,
    json_paths,
    list_functions,
    macros,
    maps,
    numbers,
    quotients,
    regexes,
    texts,
    zeros,
)
from ddcore.sql.regexes import JAVA
from ddcore.sql.source import given
from ddcore.sql.types import BOOL, DATE, FLOAT, INT, TEXT, TIMESTAMP, declared_type
from ddcore.sql.values import Named, Rule, Value, Values, aligned, as_type, constant, function, same, shared

# -- text -------------------------------------------------------------------------------------------------------------


def _concat(values: Values, node: exp.Concat) -> Value:
    """Null where a part is null."""
    parts = [texts.text_of(values, values.of(expression)) for expression in node.expressions]
    return Value(pl.concat_str(parts), TEXT, node)


def _begin(start: pl.Expr, size: pl.Expr) -> pl.Expr:
    """0 is the begin, as 1 is, and a negative start counts from the end, where it may lie before the begin."""
    return pl.when(start > 0).then(start - 1).when(start < 0).then(size + start).otherwise(0)


def _initcap(text: pl.Expr) -> pl.Expr:
    """Words are what is between spaces."""
    word = pl.element()
    capital = word.str.head(1).str.to_uppercase() + word.str.slice(1)
    return text.str.to_lowercase().str.split(" ").list.eval(capital).list.join(" ")


def _until(values: Values, node: exp.SubstringIndex) -> Value:
    """The text before the n-th separator, or behind the n-th from the end."""
    text, separator = values.arguments(node, "string", "string", keys=("this", "delimiter"))
    count = values.of(node.args["count"]).literal
    if not isinstance(count, int) or not separator.literal:
        values.source.refuse(node, "substring_index() with a separator or a number that is no literal")
    fields = text.expr.str.split(separator.expr)
    return Value(
        (fields.list.head(count) if count >= 0 else fields.list.tail(-count)).list.join(separator.literal), TEXT, node
    )


def _split(values: Values, node: exp.RegexpSplit) -> Value:
    text, pattern = values.require(values.of(node.this), "string").expr, values.of(node.expression).literal
    if not isinstance(pattern, str) or not re.fullmatch(r"(?:[^\\.^$|?*+()\[\]{}]|\\[^\w])+|\[.\]", pattern):
        hint = r"such as ',', '\\|' or '[.]'"
        values.source.refuse(node, "split() at what is no literal text", hint)
    plain = pattern[1] if pattern[0] == "[" and len(pattern) == 3 else re.sub(r"\\(.)", r"\1", pattern)
    return Value(text.str.split(plain), arrays.list_of(TEXT), node)


# -- numbers ----------------------------------------------------------------------------------------------------------


def _cast(values: Values, node: exp.Cast) -> Value:
    """Numbers become whole by leaving their fraction out."""
    value = values.of(node.this)
    kind = node.to
    is_known = kind.this == exp.DType.INTERVAL or value.literal is not None
    if is_known and not isinstance(value.literal, float | Decimal):
        return casts.RULES[exp.Cast](values, node)
    wanted = declared_type(values.source, kind)
    if wanted == INT and value.type is not None and value.type.name in ("float64", "decimal"):
        return casts.told(values, value, Value(value.expr.truncate().cast(pl.Int64), INT, node))
    return casts.told(values, value, casts.cast(values, value, wanted, node))


def _whole(compute: Callable[[pl.Expr], pl.Expr]) -> Rule:
    def rule(values: Values, node: exp.Func) -> Value:
        value = values.number(values.of(node.this))
        if value.type == INT:
            return value
        return Value(compute(value.expr).cast(pl.Int64), INT, node)

    return rule


def _modulus(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    rest = polars_json.called("Sql.Rem", [a, b])
    return pl.when(rest < 0).then(polars_json.called("Sql.Rem", [rest + b, b])).otherwise(rest) + zeros.failing(b)


# -- dates ------------------------------------------------------------------------------------------------------------


def _day(values: Values, node: Any) -> Value:
    """A date: of a timestamp, of text, of text in a pattern."""
    value, pattern = values.of(node.this), node.args.get("format")
    if value.type in (DATE, None):
        return Value(as_type(values.source, value, DATE), DATE, node, value.literal)
    if pattern is not None:
        form = dates.pattern_of(values, node)
        return Value(values.require(value, "string").expr.str.to_date(form), DATE, node)
    return casts.cast(values, value, DATE, node)


def _moment(values: Values, node: Any) -> Value:
    value = values.of(node.this)
    if value.type == TEXT and value.literal is None:
        return casts.cast(values, value, TIMESTAMP, node)
    return values.moment(value)


_DAY_FIELDS: dict[str, dates.Compute] = {
    "YEAR": lambda on: on.year(), "QUARTER": lambda on: on.quarter(), "MONTH": lambda on: on.month(),
    "WEEK": lambda on: on.week(), "DAY": lambda on: on.day(), "DOY": lambda on: on.ordinal_day(),
    "DAYOFWEEK": lambda on: on.weekday().cast(pl.Int64) % 7 + 1, "DOW": lambda on: on.weekday().cast(pl.Int64) % 7 + 1,
    "DOW_ISO": lambda on: on.weekday(), "DAYOFWEEK_ISO": lambda on: on.weekday(),
    "YEAROFWEEK": lambda on: on.iso_year(),
}  # fmt: skip
_FIELDS = dates.Fields(_DAY_FIELDS, {"HOUR": lambda on: on.hour(), "MINUTE": lambda on: on.minute()})


def _of_clock(values: Values, node: exp.Hour | exp.Minute | exp.Second) -> Value:
    """Also of text."""
    found: pl.Expr = getattr(_moment(values, node).expr.dt, node.key)()
    return Value(found.cast(pl.Int64), INT, node)


def _days_later(values: Values, node: exp.TsOrDsAdd) -> Value:
    if node.args.get("unit") and node.args["unit"].name.upper() != "DAY":
        values.source.refuse(node, "adding other units than days in this way", "write d + INTERVAL 1 MONTH")
    day, count = _day(values, node), values.require(values.of(node.expression), "int64")
    return Value(day.expr.dt.offset_by(count.expr.cast(pl.String) + "d"), DATE, node)


def _days_between(values: Values, node: exp.DateDiff) -> Value:
    if node.args.get("unit") and node.args["unit"].name.upper() != "DAY":
        values.source.refuse(node, "datediff() in other units than days")
    end, start = (values.require(values.of(side), "date") for side in (node.this, node.expression))
    return Value((end.expr - start.expr).dt.total_days(), INT, node)


def _months_later(values: Values, node: exp.AddMonths) -> Value:
    day, count = _day(values, node), values.require(values.of(node.expression), "int64")
    return Value(day.expr.dt.offset_by(count.expr.cast(pl.String) + "mo"), DATE, node)


def _months_between(end: pl.Expr, start: pl.Expr) -> pl.Expr:
    """Whole months between equal days, and between last days; else 31 days make a month, rounded to 8 digits."""
    late, early = end.dt, start.dt
    whole = (late.year().cast(pl.Int64) - early.year()) * 12 + (late.month().cast(pl.Int64) - early.month())
    both_last = (late.month_end().dt.day() == late.day()) & (early.month_end().dt.day() == early.day())
    at = [on.day().cast(pl.Int64) * 86_400 + on.epoch("s") % 86_400 for on in (late, early)]
    rest = (at[0] - at[1]).cast(pl.Float64) / 2_678_400.0
    is_whole = both_last | (late.day() == early.day())
    return pl.when(is_whole).then(whole.cast(pl.Float64)).otherwise((whole.cast(pl.Float64) + rest).round(8))


_DAYS = {"MO": 1, "TU": 2, "WE": 3, "TH": 4, "FR": 5, "SA": 6, "SU": 7}


def _next_day(values: Values, node: exp.NextDay) -> Value:
    day, name = _day(values, node), values.of(node.expression).literal
    number = _DAYS.get(str(name)[:2].upper())
    if number is None:
        values.source.refuse(node, "next_day() of a day that is no literal", "such as 'MON'")
    ahead = (number - 1 - day.expr.dt.weekday().cast(pl.Int64)) % 7 + 1
    return Value(day.expr.dt.offset_by(ahead.cast(pl.String) + "d"), DATE, node)


_STEPS = {
    "YEAR": "1y", "YYYY": "1y", "YY": "1y", "QUARTER": "1q", "MONTH": "1mo", "MM": "1mo", "MON": "1mo", "WEEK": "1w",
    "DAY": "1d", "DD": "1d", "HOUR": "1h", "MINUTE": "1m", "SECOND": "1s",
}  # fmt: skip


def _truncated(values: Values, node: Any) -> Value:
    """``trunc(date, unit)`` is a date, ``date_trunc(unit, timestamp)`` a timestamp."""
    unit = node.args["unit"].name.upper()
    is_day = isinstance(node, exp.DateTrunc)
    if unit not in _STEPS or (is_day and _STEPS[unit][-1] in "dhms"):
        values.source.refuse(node, f"truncating to {unit.lower()}")
    moment = _day(values, node) if is_day else _moment(values, node)
    return Value(moment.expr.dt.truncate(_STEPS[unit]), DATE if is_day else TIMESTAMP, node)


def _epoch(values: Values, node: exp.StrToUnix) -> Value:
    value = values.of(node.this)
    if value.type == TEXT:
        form = dates.pattern_of(values, node)
        value = Value(value.expr.str.to_datetime(form, time_unit="us", time_zone="UTC"), TIMESTAMP, node)
    return Value(values.moment(value).expr.dt.epoch("s"), INT, node)


def _of_epoch(seconds: pl.Expr, form: str) -> pl.Expr:
    return (seconds * 1_000_000).cast(TIMESTAMP.polars).dt.strftime(form)


def _in_units(unit: Literal["s", "ms", "us"]) -> Rule:
    return lambda values, node: Value(_moment(values, node).expr.dt.epoch(unit), INT, node)


def _from_units(scale: int) -> Rule:
    return function(lambda number: (number * scale).cast(TIMESTAMP.polars), TIMESTAMP, "int64")


# -- choices ----------------------------------------------------------------------------------------------------------


def _nvl2(values: Values, node: exp.Nvl2) -> Value:
    exprs, kind = aligned(values.source, [values.of(node.args["true"]), values.of(node.args["false"])], node)
    return Value(pl.when(values.of(node.this).expr.is_not_null()).then(exprs[0]).otherwise(exprs[1]), kind, node)


def _decoded(values: Values, node: exp.DecodeCase) -> Value:
    """The result behind the first equal value; null equals null."""
    subject, *rest = (values.of(expression) for expression in node.expressions)
    pairs = list(zip(rest[::2], rest[1::2], strict=False))
    default = [rest[-1]] if len(rest) % 2 else [Value(pl.lit(None), None, node)]
    exprs, kind = aligned(values.source, [*(result for _, result in pairs), *default], node)

    def choice(subject: Value) -> pl.Expr:
        chosen = exprs[-1]
        for (wanted, _), result in reversed(list(zip(pairs, exprs[:-1], strict=True))):
            sides, _kind = aligned(values.source, [subject, wanted], node)
            chosen = pl.when(sides[0].eq_missing(sides[1])).then(result).otherwise(chosen)
        return chosen

    return Value(shared([subject], choice), kind, node)


# -- lists and maps ---------------------------------------------------------------------------------------------------


def _element(values: Values, node: exp.Bracket) -> Value:
    """The element of a list by its number, or the value of a map by its key, null where there is none."""
    if values.peek(node.this).is_a("map"):
        return maps.element(values, node.this, node.expressions[0])
    return arrays.element_or_fail(values, node)


def _size(values: Values, node: exp.Expr) -> Value:
    return (maps.SIZE if values.peek(given(node)[0]).is_a("map") else arrays.COUNT)(values, node)


SHARED: tuple[type[exp.Expr], ...] = (
    # operators
    exp.Literal, exp.Boolean, exp.Null, exp.Column, exp.Paren, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT,
    exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Between, exp.In, exp.Like, exp.ILike,
    exp.Escape, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Add, exp.Sub, exp.Mul, exp.Neg,
    exp.DPipe, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.Interval, exp.Anonymous, exp.TryCast,
    exp.Any, exp.All, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp, exp.Rand,
    # numbers
    exp.Abs, exp.Sqrt, exp.Cbrt, exp.Exp, exp.Pow, exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Atan2,
    exp.Sinh, exp.Cosh, exp.Tanh, exp.Cot, exp.Asinh, exp.Acosh, exp.Atanh, exp.Degrees, exp.Radians, exp.Pi, exp.Round,
    exp.Sign, exp.BitwiseLeftShift, exp.BitwiseRightShift,
    # text
    exp.ConcatWs, exp.Upper, exp.Lower, exp.Length, exp.BitLength, exp.Reverse, exp.Trim, exp.Pad, exp.Repeat,
    exp.StrPosition, exp.Replace, exp.Translate, exp.StartsWith, exp.EndsWith, exp.Contains, exp.Overlay,
    exp.MD5, exp.SHA2, exp.SHA, exp.Collate, exp.Ascii,
    # dates
    exp.TimestampFromParts, exp.StrToTime,
    # lists and structs
    exp.Array, exp.ArrayToString, exp.Dot, exp.Tuple,
)  # fmt: skip
"""What means the same as in the default dialect."""

RULES: dict[type[exp.Expr], Rule] = {
    exp.Cast: _cast,
    exp.Div: zeros.floats(fails=True, decimals=quotients.divided),
    exp.IntDiv: zeros.whole,
    exp.Mod: zeros.remainder(fails=True),
    exp.Ceil: _whole(pl.Expr.ceil),
    exp.Floor: _whole(pl.Expr.floor),
    exp.Ln: function(lambda x: pl.when(x > 0).then(x.log()), FLOAT, "float64"),
    exp.Log: function(
        lambda base, x: pl.when((x > 0) & (base > 0)).then(numbers.log(base, x)), FLOAT, "float64", "float64"
    ),
    exp.IsNan: function(lambda x: x.is_nan().fill_null(False), BOOL, "float64"),
    exp.Concat: _concat,
    exp.Substring: texts.substring_from(_begin),
    exp.Initcap: lambda values, node: Value(_initcap(values.arguments(node, "string")[0].expr), TEXT, node),
    exp.SplitPart: texts.field(whole=texts.whole_at_ends, zero_fails=True),
    exp.SubstringIndex: _until,
    exp.RegexpSplit: _split,
    exp.RegexpLike: regexes.match(JAVA),
    exp.RegexpExtract: regexes.extraction(JAVA, 1),
    exp.RegexpReplace: lambda values, node: Value(regexes.replaced(values, node, JAVA, every=True), TEXT, node),
    exp.Space: function(lambda n: texts.repeated(pl.lit(" "), n), TEXT, "int64"),
    exp.Left: function(lambda x, n: x.str.head(n.clip(lower_bound=0)), TEXT, "string", "int64"),
    exp.Right: function(lambda x, n: x.str.tail(n.clip(lower_bound=0)), TEXT, "string", "int64"),
    exp.JSONExtractScalar: json_paths.scalar(fails=False),
    exp.Nvl2: _nvl2,
    exp.DecodeCase: _decoded,
    exp.TsOrDsToDate: _day,
    exp.TimeStrToTime: _moment,
    exp.TimeToStr: dates.by_pattern(lambda x, form: x.dt.strftime(form), TEXT, "timestamp", "date"),
    exp.StrToUnix: _epoch,
    exp.UnixToStr: dates.by_pattern(_of_epoch, TEXT, "int64"),
    exp.Extract: _FIELDS.extract,
    **{kind: _FIELDS.rule(kind.__name__.upper()) for kind in (exp.Year, exp.Quarter, exp.Month, exp.Day)},
    exp.DayOfMonth: _FIELDS.rule("DAY"),
    exp.DayOfYear: _FIELDS.rule("DOY"),
    exp.DayOfWeek: _FIELDS.rule("DOW"),
    exp.WeekOfYear: _FIELDS.rule("WEEK"),
    **dict.fromkeys((exp.Hour, exp.Minute, exp.Second), _of_clock),
    exp.TsOrDsAdd: _days_later,
    exp.DateDiff: _days_between,
    exp.AddMonths: _months_later,
    exp.MonthsBetween: function(_months_between, FLOAT, "moment", "moment", repeats=True),
    exp.NextDay: _next_day,
    exp.LastDay: lambda values, node: Value(_day(values, node).expr.dt.month_end(), DATE, node),
    exp.DateTrunc: _truncated,
    exp.TimestampTrunc: _truncated,
    exp.UnixDate: lambda values, node: Value(_day(values, node).expr.cast(pl.Int32).cast(pl.Int64), INT, node),
    exp.DateFromUnixDate: function(lambda n: n.cast(pl.Int32).cast(pl.Date), DATE, "int64"),
    exp.UnixSeconds: _in_units("s"),
    exp.UnixMillis: _in_units("ms"),
    exp.UnixMicros: _in_units("us"),
    exp.Bracket: _element,
    exp.ArraySize: _size,
    exp.ArrayContains: lambda values, node: arrays.any_of(values, values.of(node.expression), node.this),
    **maps.RULES,
    exp.ArrayDistinct: function(lambda some: some.list.unique(maintain_order=True), same, "list"),
    exp.ArrayMax: list_functions.extreme(greatest=True),
    exp.ArrayMin: list_functions.extreme(greatest=False),
}

NAMED: dict[str, Named] = {
    "pmod": (2, function(_modulus, INT, "int64", "int64")),
    "make_date": dates.NAMED["make_date"],
    "octet_length": texts.NAMED["octet_length"],
    "date_part": (2, dates.date_part),
    "weekday": (1, function(lambda x: x.dt.weekday().cast(pl.Int64) - 1, INT, "date|timestamp")),  # Monday is 0
    "timestamp_seconds": (1, _from_units(1_000_000)),
    "timestamp_millis": (1, _from_units(1_000)),
    "timestamp_micros": (1, _from_units(1)),
    "btrim": (-1, macros.node_of(exp.Trim, "this", "expression")),
    "e": (0, lambda values, node: constant(2.718281828459045, node)),
    "cardinality": (1, _size),
    **maps.NAMED,
}
