"""``to_char`` of dates and timestamps: PostgreSQL's patterns, of which sqlglot has translated a part for strftime."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.sql import number_patterns
from ddcore.sql.types import TEXT
from ddcore.sql.values import Rule, Value, Values

_JULIAN = 2_440_588
"""The number of 1970-01-01 in days of Julius Scaliger."""
_ROMANS = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]
_PADDED = 9
"""``Day`` and ``Month`` are as wide as the longest name."""


def _roman(on: Any) -> pl.Expr:
    month: pl.Expr = on.month().cast(pl.Int64)
    return month.replace_strict(list(range(1, 13)), _ROMANS, return_dtype=pl.String)


_WORDS: dict[str, Callable[[Any], pl.Expr]] = {
    "FM%uay": lambda on: on.strftime("%A"), "%uay": lambda on: on.strftime("%A").str.pad_end(_PADDED),
    "FM%uAY": lambda on: on.strftime("%A").str.to_uppercase(),
    "%uAY": lambda on: on.strftime("%A").str.to_uppercase().str.pad_end(_PADDED),
    "FM%Aenlower": lambda on: on.strftime("%A").str.to_lowercase(),
    "%Aenlower": lambda on: on.strftime("%A").str.to_lowercase().str.pad_end(_PADDED),
    "%aenlower": lambda on: on.strftime("%a").str.to_lowercase(),
    "%uy": lambda on: on.strftime("%a"), "%uY": lambda on: on.strftime("%a").str.to_uppercase(),
    "F%month": lambda on: on.strftime("%B"), "Month": lambda on: on.strftime("%B").str.pad_end(_PADDED),
    "F%mONTH": lambda on: on.strftime("%B").str.to_uppercase(),
    "MONTH": lambda on: on.strftime("%B").str.to_uppercase().str.pad_end(_PADDED),
    "FMmonth": lambda on: on.strftime("%B").str.to_lowercase(),
    "month": lambda on: on.strftime("%B").str.to_lowercase().str.pad_end(_PADDED),
    "MON": lambda on: on.strftime("%b").str.to_uppercase(), "Mon": lambda on: on.strftime("%b"),
    "mon": lambda on: on.strftime("%b").str.to_lowercase(),
    "MS": lambda on: on.strftime("%3f"), "%f": lambda on: on.strftime("%6f"),
    "Q": lambda on: on.quarter().cast(pl.String), "I%u": lambda on: on.weekday().cast(pl.String),
    "%u": lambda on: (on.weekday().cast(pl.Int64) % 7 + 1).cast(pl.String),
    "%U": lambda on: _sevenths(on.ordinal_day()).str.pad_start(2, "0"), "W": lambda on: _sevenths(on.day()),
    "CC": lambda on: ((on.year().cast(pl.Int64) - 1) // 100 + 1).cast(pl.String).str.pad_start(2, "0"),
    "J": lambda on: (on.epoch("d").cast(pl.Int64) + _JULIAN).cast(pl.String),
    "FMRM": _roman, "RM": lambda on: _roman(on).str.pad_end(4),
    "FMrm": lambda on: _roman(on).str.to_lowercase(), "rm": lambda on: _roman(on).str.to_lowercase().str.pad_end(4),
    "I%j": lambda on: ((on.week().cast(pl.Int64) - 1) * 7 + on.weekday()).cast(pl.String).str.pad_start(3, "0"),
    "HH": lambda on: on.strftime("%I"), "%S%SS": lambda on: _seconds(on).cast(pl.String),
    "AM": lambda on: on.strftime("%p"), "PM": lambda on: on.strftime("%p"),
    "am": lambda on: on.strftime("%P"), "pm": lambda on: on.strftime("%P"),
}  # fmt: skip
"""Words of patterns as sqlglot leaves them: it takes the D of Day for a number, and the MM of FMMonth for a month."""
_TOKEN = re.compile('"[^"]*"|' + "|".join(map(re.escape, _WORDS)) + r"|(?:%-?[YmdHMSyjIGVB])+|[^A-Za-z%\"]+")
_CLOCK = re.compile(r"%-?[HMSIf]|MS|HH|AM|PM|am|pm")


def _sevenths(days: pl.Expr) -> pl.Expr:
    """The number of the week of a day, where the first one begins with the first day."""
    return ((days.cast(pl.Int64) - 1) // 7 + 1).cast(pl.String)


def _seconds(on: Any) -> pl.Expr:
    """Seconds since midnight."""
    seconds: pl.Expr = (on.hour().cast(pl.Int64) * 60 + on.minute().cast(pl.Int64)) * 60 + on.second().cast(pl.Int64)
    return seconds


def _written(values: Values, node: exp.TimeToStr) -> Value:
    given, pattern = values.of(node.this), node.args["format"]
    if given.is_a("int64", "decimal", "float64"):
        return number_patterns.written(values, node, given)
    value = values.require(given, "timestamp", "date")
    text = pattern.name if isinstance(pattern, exp.Literal) else ""
    tokens = _TOKEN.findall(text)
    if not text or "".join(tokens) != text or any("%S%S" in token for token in tokens if token != "%S%SS"):
        hint = (
            "patterns have YYYY, YY, MM, Mon, Month, DD, DDD, D, Dy, Day, HH24, HH12, MI, SS, SSSSS, MS, US, AM, Q, W, "
            "WW, CC, IYYY, IW, ID, IDDD, J, RM"
        )
        values.source.refuse(node, "a pattern of to_char() that is not of these", hint)
    if value.type is not None and value.type.name == "date" and _CLOCK.search(re.sub('"[^"]*"', "", text)):
        value = Value(value.expr.cast(pl.Datetime("us", "UTC")), value.type, value.node)
    if not any(token in _WORDS or token[0] == '"' for token in tokens):
        return Value(value.expr.dt.strftime(text), TEXT, node)
    parts = [_part(value.expr, token) for token in tokens]
    there = pl.when(value.expr.is_not_null())
    return Value(there.then(pl.concat_str(parts)), TEXT, node)


def _part(moment: pl.Expr, token: str) -> pl.Expr:
    if token in _WORDS:
        return _WORDS[token](moment.dt)
    return moment.dt.strftime(token) if token[0] == "%" else pl.lit(token.strip('"'))


RULES: dict[type[exp.Expr], Rule] = {exp.TimeToStr: _written, **number_patterns.RULES}
