"""Casts of SQL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.data import forms
from ddcore.expressions.failures import Written
from ddcore.sql import dates, quotients, zeros
from ddcore.sql.dialects import SPARKS
from ddcore.sql.list_texts import list_text
from ddcore.sql.source import DIALECT, shown
from ddcore.sql.types import INT, declared_type
from ddcore.sql.values import Value, Values, as_type, null, shared


def _cast(values: Values, node: exp.Cast) -> Value:
    kind = node.to
    if isinstance(node.this, exp.Array) and not node.this.expressions:
        wanted = declared_type(values.source, kind)
        if wanted.element is not None:
            return Value(pl.concat_list([null(wanted.element)]).list.head(0), wanted, node)
    if values.source.dialect == DIALECT and isinstance(node.this.unnest(), exp.Div):
        exact = quotients.cast(values, node, declared_type(values.source, kind))
        if exact is not None:
            return exact
    value = values.of(node.this)
    if kind.this == exp.DType.INTERVAL and isinstance(value.literal, str):
        return dates.interval(values, exp.Interval(this=node.this))
    result = told(values, value, cast(values, value, declared_type(values.source, kind), node))
    if kind.this == exp.DType.VARCHAR and kind.expressions and values.source.dialect == DIALECT:
        return Value(result.expr.str.head(int(kind.expressions[0].name)), result.type, node)  # elsewhere it is not cut
    return result


def told(values: Values, value: Value, result: Value) -> Value:
    """A cast, of which a row that fails tells in the words of SQL."""
    if value.type != result.type and value.expr.meta.root_names():
        where, text = values.source.where(result.node), shown(result.node)
        values.source.casts[f"{where}: {text}"] = Written(where, text, str(result.type), value.expr, result.expr)
    return result


def cast(  # noqa: PLR0911, PLR0912  (one case, one return)
    values: Values, value: Value, wanted: Type, node: exp.Expr
) -> Value:
    """The value as another type, as CAST makes it. Raises ProgramError where there is no such cast."""
    if value.type is None:
        return Value(null(wanted), wanted, node)
    if value.type == wanted:
        return Value(value.expr, wanted, node, value.literal)
    if isinstance(value.literal, str):
        return Value(as_type(values.source, value, wanted), wanted, node)
    if value.type.name == "interval" and wanted.name == "string" and values.source.dialect == "duckdb":
        text = shared([value], lambda length: forms.interval_text(length.expr))
        return Value(_as_duckdb(text), wanted, node)
    if (value.type.name, wanted.name) == ("float64", "string") and values.source.dialect in _FLOAT_TEXTS:
        as_text = _FLOAT_TEXTS[values.source.dialect]
        return Value(shared([value], lambda number: as_text(number.expr.cast(pl.String))), wanted, node)
    if value.type.element is not None and wanted.name == "string":
        made = list_text(values.source.dialect, value.type.element)
        if made is not None:
            return Value(shared([value], lambda some: made(some.expr)), wanted, node)
    if (value.type.name, wanted.name) in _FORMS:
        form = _FORMS[value.type.name, wanted.name]
        return Value(shared([value], lambda one: form(one.expr)), wanted, node)
    pair = (value.type.name, wanted.name)
    if pair == ("float64", "int64"):
        return Value(value.expr.round(0, mode="half_to_even").cast(wanted.polars), wanted, node)
    if pair in (("decimal", "int64"), ("decimal", "decimal")):
        places = 0 if wanted == INT else wanted.scale
        rounded = half_away(value.expr, places) if value.type.scale > places else value.expr
        return Value(rounded.cast(wanted.polars), wanted, node)
    if pair in (("float64", "decimal"), ("string", "decimal")):  # a float as it is written, not as it is stored
        text = value.expr.cast(pl.String)
        if wanted.is_wide:
            return Value(_read(text, wanted), wanted, node)
        written = text.cast(_MOST_DIGITS)
        return Value(half_away(written, wanted.scale).cast(wanted.polars), wanted, node)
    if pair == ("string", "bool"):
        truths = partial(_truth, dialect=values.source.dialect)
        return Value(shared([value], lambda text: truths(text.expr)), wanted, node)
    if pair == ("string", "date"):
        return Value(value.expr.str.to_date("%Y-%m-%d"), wanted, node)
    if pair == ("timestamp", "date"):
        return Value(value.expr.dt.date(), wanted, node)
    if pair == ("timestamp", "string"):
        return Value(_written(value.expr), wanted, node)
    allowed = {
        ("int64", "float64"), ("int64", "decimal"), ("int64", "string"), ("int64", "bool"), ("bool", "int64"),
        ("bool", "string"), ("decimal", "float64"), ("decimal", "string"), ("string", "int64"), ("string", "float64"),
        ("date", "timestamp"), ("date", "string"),
    }  # fmt: skip
    if pair not in allowed:
        values.source.refuse(node, f"a cast from {value.name} to {wanted}")
    return Value(value.expr.cast(wanted.polars), wanted, node)


def _written(moment: pl.Expr) -> pl.Expr:
    """A timestamp as text, with as many digits of the second as it has."""
    fraction = moment.dt.strftime("%.6f").str.strip_chars_end("0").str.strip_chars_end(".")
    return moment.dt.strftime("%Y-%m-%d %H:%M:%S") + fraction


_MOST_DIGITS = pl.Decimal(38, 20)


def _read(text: pl.Expr, wanted: Type) -> pl.Expr:
    """Text as a decimal of up to 38 digits, for which no type has spare ones. Polars rounds halves to even: with one
    more digit behind them they are none, and go away from zero.
    """
    more = text + pl.lit("0" * wanted.scale + "1")
    is_fraction = text.str.contains("[.]") & ~text.str.contains("[eE]")
    return pl.when(is_fraction).then(more).otherwise(text).cast(wanted.polars)


_BLANKS = " \t\n\r\x0b\x0c"
_TRUE = {DIALECT: "true tru tr t yes ye y on 1", "duckdb": "true t yes y 1 on", "spark": "true t yes y 1"}
_FALSE = {DIALECT: "false fals fal fa f no n off of 0", "duckdb": "false f no n 0 off", "spark": "false f no n 0"}


def truth_or_null(text: pl.Expr, dialect: str) -> pl.Expr:
    """What text means as a truth, in small letters or not: null where it means none."""
    small, dialect = text.str.strip_chars(_BLANKS).str.to_lowercase(), "spark" if dialect in SPARKS else dialect
    yes, no = (small.is_in(words[dialect].split()) for words in (_TRUE, _FALSE))
    return pl.when(yes).then(True).when(no).then(False)


def _truth(text: pl.Expr, dialect: str) -> pl.Expr:
    truth = truth_or_null(text, dialect)
    wrong = zeros.failing_where(truth.is_null() & text.is_not_null(), "is no truth")
    return pl.when(wrong == 0).then(truth)


MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}(?::[0-5][0-9](?:[.][0-9]{1,6})?)?)?Z?$"
"""Text that is a timestamp: with a time or without, in UTC."""


def moment(text: pl.Expr, *, strict: bool = True) -> pl.Expr:
    """Text as a timestamp; what is none fails, or is null where not ``strict``. ``text`` is named several times."""
    plain = text.str.strip_suffix("Z").str.replace("T", " ", literal=True)
    size = plain.str.len_chars()
    day, minute = plain + pl.lit(" 00:00:00"), plain + pl.lit(":00")
    whole = pl.when(size == len("2024-02-29")).then(day).when(size == len("2024-02-29 12:30")).then(minute)
    usual = pl.when(~text.str.contains(MOMENT)).then(pl.lit("no timestamp")).otherwise(whole.otherwise(plain))
    return usual.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", time_zone="UTC", strict=strict)


def _uuid(text: pl.Expr) -> pl.Expr:
    usual = forms.uuid_of(text)
    wrong = zeros.failing_where(usual.is_null() & text.is_not_null(), "is no UUID")
    return usual + wrong.cast(pl.String).str.head(0)


def _binary(text: pl.Expr) -> pl.Expr:
    """``\\xff00`` are digits of bytes, any other text its own bytes; a backslash in that is none of ours."""
    is_digits = text.str.starts_with("\\x")
    wrong = zeros.failing_where(~is_digits & text.str.contains("\\", literal=True), "has a backslash: write \\xff00")
    plain = pl.when(~is_digits).then(text).otherwise(pl.lit("")) + wrong.cast(pl.String).str.head(0)
    digits = pl.when(is_digits).then(text.str.slice(2)).otherwise(pl.lit(""))
    whole = pl.when(is_digits).then(digits.str.decode("hex")).otherwise(plain.cast(pl.Binary))
    return pl.when(text.is_not_null()).then(whole)


def _interval(text: pl.Expr) -> pl.Expr:
    found = forms.interval_of(text)
    wrong = zeros.failing_where(found.is_null() & text.is_not_null(), "is no interval")
    months, days, microseconds = (found.struct.field(name) for name in ("months", "days", "microseconds"))
    whole = pl.struct(months=months, days=days, microseconds=microseconds + wrong)
    return pl.when(found.is_not_null() & (wrong == 0)).then(whole)


def _short_exponent(text: pl.Expr) -> pl.Expr:
    """The fewest digits of a float, as Polars writes them, with an exponent from 0.00001 on and of two digits."""
    small = text.str.replace(r"^(-?)0[.]0000([1-9])([0-9]*)$", "${1}${2}.${3}e-05").str.replace(".e", "e", literal=True)
    return small.str.replace(r"e(-?)([0-9])$", "e${1}0${2}")


def _float_text(text: pl.Expr) -> pl.Expr:
    """As PostgreSQL: no point without digits behind it, 15 digits before one, and an exponent with its sign."""
    long = text.str.replace(r"^(-?[1-9])([0-9]{15})[.]([0-9]+)$", "${1}.${2}${3}e15").str.replace("[.]?0*e15$", "e15")
    text = _short_exponent(long).str.replace("[.]0$", "").str.replace(r"e([0-9])", "e+${1}")
    return text.str.replace("inf", "Infinity", literal=True)


def _as_duckdb(text: pl.Expr) -> pl.Expr:
    """An interval as DuckDB writes it: with whole words, and without signs of what is more than nothing."""
    words = text.str.replace_all(" mon", " month", literal=True).str.replace_all("+", "", literal=True)
    return words.str.replace_all(r"(^|[^0-9])-1 (year|month|day)s", "${1}-1 ${2}")


def _time(text: pl.Expr) -> pl.Expr:
    """``12:30`` and ``12:30:00.5``."""
    whole = pl.when(text.str.len_chars() == len("12:30")).then(text + ":00").otherwise(text)
    return whole.str.to_time("%H:%M:%S%.f")


def _time_text(time: pl.Expr) -> pl.Expr:
    fraction = time.dt.strftime("%.6f").str.strip_chars_end("0").str.strip_chars_end(".")
    return time.dt.strftime("%H:%M:%S") + fraction


_FLOAT_TEXTS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    DIALECT: _float_text,
    "duckdb": lambda text: (
        _short_exponent(text).str.replace(r"e([0-9])", "e+${1}").str.replace("NaN", "nan", literal=True)
    ),
}
_FORMS: dict[tuple[str, str], Callable[[pl.Expr], pl.Expr]] = {
    ("string", "binary"): _binary, ("binary", "string"): lambda x: "\\x" + x.bin.encode("hex"),
    ("string", "uuid"): _uuid, ("uuid", "string"): lambda x: x + "", ("string", "time"): _time,
    ("string", "timestamp"): lambda x: moment(x.str.strip_chars(_BLANKS)),
    ("time", "string"): _time_text, ("timestamp", "time"): lambda x: x.dt.time(), ("string", "interval"): _interval,
    ("interval", "string"): forms.interval_text,
}  # fmt: skip


def half_away(number: pl.Expr, places: int) -> pl.Expr:
    """A number of fewer digits behind the point, the nearest; of two the one further from 0."""
    return number.round(places, mode="half_away_from_zero")


RULES = {exp.Cast: _cast}
