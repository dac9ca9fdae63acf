"""``TRY_CAST`` of text in the dialects that have it: null where the text is no such value.

What an engine reads beyond the usual forms, such as ``0x1F`` or ``1_000``, is an error of its row, never another value.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql import casts, zeros
from ddcore.sql.types import BOOL, DATE, FLOAT, INT, TEXT, TIMESTAMP, declared_type
from ddcore.sql.values import Rule, Value, Values, shared

_BITS = {exp.DType.TINYINT: 8, exp.DType.SMALLINT: 16, exp.DType.INT: 32}
_NOTHING = r"[^\s\S]"
_WHOLE, _NUMBER = r"^[+-]?[0-9]+$", r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)$"
_OTHER_NUMBERS = (
    r"(?i)^[+-]?(0x[0-9a-f]+|0b[01]+|inf|infinity|nan|[0-9]+[.]?[0-9]*[df]"
    r"|[0-9][0-9_]*[.]?[0-9_]*(e[+-]?[0-9]+)?|[.][0-9]+(e[+-]?[0-9]+)?)$"
)
_DAY, _OTHER_DAYS = (
    r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}$",
    r"(?i)^([+-]?[0-9]+([-/\\ ][0-9]+){0,2}([ T(].*)?|epoch|-?infinity)$",
)
_MOST = str(2**63 - 1)


def rule(dialect: str, plain: Rule) -> Rule:
    """The rule of TRY_CAST. ``plain``: that of CAST, which sqlglot does not keep apart in Spark's dialect."""

    def cast(values: Values, node: exp.TryCast) -> Value:
        if not node.args.get("safe"):
            return plain(values, node)
        wanted, value = declared_type(values.source, node.to), values.of(node.this)
        if value.type is not None and value.type != TEXT:
            values.source.refuse(node, f"TRY_CAST of {value.name}", "CAST is an error of the row that does not fit")
        text = Value(values.require(value, "string").expr.str.strip_chars(" \t\n\r\x0b\x0c"), TEXT, node)
        readers: dict[Type, Callable[[pl.Expr], pl.Expr]] = {
            INT: lambda one: _whole(one, dialect, node), FLOAT: lambda one: _numeric(one).cast(pl.Float64),
            DATE: _day, TIMESTAMP: _moment, BOOL: lambda one: casts.truth_or_null(one, dialect),
        }  # fmt: skip
        if wanted.name == "decimal" and not wanted.is_wide:
            readers[wanted] = lambda one: _decimal(one, wanted)
        if wanted in readers:
            return Value(shared([text], lambda one: readers[wanted](one.expr)), wanted, node)
        values.source.refuse(node, f"TRY_CAST to {wanted}", "to bigint, double, decimal, date, timestamp and boolean")

    return cast


def _usual(text: pl.Expr, usual: str, other: str) -> pl.Expr:
    """The text in its usual form, null where it is none; the row fails for another form."""
    wrong = zeros.failing_where(~text.str.contains(usual) & text.str.contains(other), "TRY_CAST of text in this form")
    return pl.when(text.str.contains(usual) & (wrong == 0)).then(text)


def _numeric(text: pl.Expr) -> pl.Expr:
    return _usual(text, _NUMBER, _OTHER_NUMBERS)


def _whole(text: pl.Expr, dialect: str, node: exp.TryCast) -> pl.Expr:
    """In DuckDB a fraction is rounded, half away from zero; in Spark there is none."""
    usual = _numeric(text) if dialect == "duckdb" else _usual(text, _WHOLE, _NOTHING)
    digits = usual.str.extract("^[+-]?0*([0-9]*)", 1)
    more = usual.str.contains("[.][5-9]")
    fits = (digits.str.len_chars() < len(_MOST)) | (
        (digits.str.len_chars() == len(_MOST)) & (pl.when(more).then(digits < _MOST).otherwise(digits <= _MOST))
    )
    number = pl.when(fits).then(digits.str.zfill(1)).cast(pl.Int64) + more.cast(pl.Int64)
    total = pl.when(usual.str.starts_with("-")).then(-1).otherwise(1) * number
    bits = _BITS.get(node.to.this)
    return pl.when(total.is_between(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)).then(total) if bits else total


def _decimal(text: pl.Expr, wanted: Type) -> pl.Expr:
    most = 10 ** (wanted.precision - wanted.scale)
    number = casts.half_away(_numeric(text).cast(pl.Decimal(38, 18), strict=False), wanted.scale)
    return pl.when((number < most) & (number > -most)).then(number).cast(wanted.polars)


def _day(text: pl.Expr) -> pl.Expr:
    return _usual(text, _DAY, _OTHER_DAYS).str.to_date("%Y-%m-%d", strict=False)


def _moment(text: pl.Expr) -> pl.Expr:
    return casts.moment(_usual(text, casts.MOMENT, _OTHER_DAYS), strict=False)
