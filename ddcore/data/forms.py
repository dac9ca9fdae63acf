"""Times of day, UUIDs, intervals and maps: what they are in Polars, as words of the engine, and in Delta tables.

In Polars a time of day is nanoseconds, a UUID a text, an interval a struct of narrow numbers, and a map a map.
:attr:`Type.base` is the plain type whose words stand for them, and :attr:`Type.stored` that of a column of a table.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from ddcore.base.schema import INTERVAL_PARTS, Type, mark
from ddcore.data import nested

_Change = Callable[[pl.Series, Type], pl.Series]
_DAY = pl.lit(86_400_000_000, dtype=pl.Int128)
_MICROSECOND = 1000  # nanoseconds
_UUID = "^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$"
_TEXT = (
    r"^(?:(?P<years>[+-]?\d+) years?)? ?(?:(?P<months>[+-]?\d+) mons?)? ?(?:(?P<days>[+-]?\d+) days?)? ?"
    r"(?:(?P<sign>[+-]?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?$"
)
_ISO = (
    r"^P(?:(?P<years>[+-]?\d+)Y)?(?:(?P<months>[+-]?\d+)M)?(?:(?P<weeks>[+-]?\d+)W)?(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?"
    r"(?:(?P<sign>[+-]?)(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,6}))?S)?)?$"
)
_CANONICAL = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


def to_base(series: pl.Series, kind: Type) -> pl.Series:
    """The values as ``kind.base``. Entries of maps get the order of their keys."""
    if kind.base is kind or kind.base == kind:
        return series
    if kind.name == "map":
        listed = nested.entries(series)
        # Sorted lists that are all null have the type of values in maps inside of them mixed up in Polars.
        return to_base(listed if series.null_count() == len(series) else listed.list.sort(), _entries_of(kind))
    return _changed(series, kind, to_base)


def from_base(series: pl.Series, kind: Type) -> pl.Series:
    """The values of which :func:`to_base` made these."""
    if kind.base is kind or kind.base == kind:
        return series
    if kind.name == "map":
        return from_base(series, _entries_of(kind)).cast(kind.polars)
    if kind.name in ("time", "interval"):
        return _of_numbers(series, kind)
    return series if not kind.is_nested else nested.together(series, kind, _inside(series, kind, from_base))


def to_stored(series: pl.Series, kind: Type) -> pl.Series:
    """The values as ``kind.stored``."""
    return series if kind.stored == kind else _changed(series, kind, to_stored)


def from_stored(series: pl.Series, kind: Type) -> pl.Series:
    """The values of which :func:`to_stored` made these."""
    if kind.stored == kind:
        return series
    if kind.name in ("time", "interval"):
        return _of_numbers(series, kind)
    return series if not kind.is_nested else nested.together(series, kind, _inside(series, kind, from_stored))


def _changed(series: pl.Series, kind: Type, change: _Change) -> pl.Series:
    if kind.name == "time":
        return series.to_physical() // _MICROSECOND
    if kind.name == "interval":
        return series.cast(kind.base.polars)
    return series if not kind.is_nested else nested.together(series, kind, _inside(series, kind, change))


def _of_numbers(series: pl.Series, kind: Type) -> pl.Series:
    return (series * _MICROSECOND).cast(pl.Time) if kind.name == "time" else series.cast(kind.polars)


def _inside(series: pl.Series, kind: Type, change: _Change) -> list[pl.Series]:
    return [change(part, inner) for part, inner in nested.parts(series, kind)]


def _entries_of(kind: Type) -> Type:
    return Type("list", element=Type("struct", fields=kind.fields))


def canonical_uuids(texts: pl.Series) -> pl.Series:
    """UUIDs in their usual form: see :func:`uuid_of`."""
    if not texts.null_count() and texts.str.contains(_CANONICAL).all():
        return texts
    return texts.alias("x").to_frame().select(uuid_of(pl.col("x")))["x"].alias(texts.name)


def uuid_of(text: pl.Expr) -> pl.Expr:
    """UUIDs in their usual form, small letters with hyphens; null where a text is none. PostgreSQL's other forms are
    read, too: capitals, braces, and hyphens behind any four digits or none.
    """
    digits = text.str.to_lowercase().str.replace("^[{](.*)[}]$", "${1}")
    plain = digits.str.replace_all("-", "", literal=True).str.replace(_UUID, "${1}-${2}-${3}-${4}-${5}")
    return pl.when(digits.str.contains("^[0-9a-f]{4}(-?[0-9a-f]{4}){7}$")).then(plain)


def ordered(intervals: pl.Series) -> pl.Series:
    """What has the order of intervals, PostgreSQL's: first the length, in which a month has 30 days and a day 24 hours;
    of equal lengths the one of fewer months, then days.
    """
    months, days, microseconds = (pl.col("x").struct.field(name).cast(pl.Int128) for name in INTERVAL_PARTS)
    length = (months * 30 + days) * _DAY + microseconds
    return intervals.alias("x").to_frame().select(x=pl.struct(length=length, months=months, days=days))["x"]


def intervals_of(texts: pl.Series) -> pl.Series:
    """The intervals that texts spell: see :func:`interval_of`."""
    return texts.alias("x").to_frame().select(x=interval_of(pl.col("x")))["x"].alias(texts.name)


def interval_of(text: pl.Expr) -> pl.Expr:
    """An interval as PostgreSQL writes it, ``1 year 2 mons 3 days 04:05:06.7``, or in the form of ISO 8601,
    ``P1Y2M3DT4H``; null where a text is neither, or has no part.
    """
    is_given = text.str.contains("[0-9]") & (text.str.contains(_ISO) | text.str.contains(_TEXT))
    iso = _parts(text.str.extract_groups(_ISO), is_signed_clock=False)
    other = _parts(text.str.extract_groups(_TEXT), is_signed_clock=True)
    return pl.when(is_given & text.str.starts_with("P")).then(iso).when(is_given).then(other)


def _parts(groups: pl.Expr, *, is_signed_clock: bool) -> pl.Expr:
    """The interval of the numbers in a text. The sign of a clock, ``-01:30:00``, is that of all of it; in ISO's form
    each number has its own.
    """

    def number(name: str) -> pl.Expr:
        return groups.struct.field(name).cast(pl.Int64, strict=False).fill_null(0)

    sign = pl.when(groups.struct.field("sign") == "-").then(-1).otherwise(1)
    fraction = groups.struct.field("fraction").str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)
    seconds = number("seconds") * 1_000_000 + fraction
    above = (number("hours") * 60 + number("minutes")) * 60_000_000
    days = number("days") if is_signed_clock else number("days") + 7 * number("weeks")
    months = (number("years") * 12 + number("months")).cast(pl.Int32, strict=False)
    days = days.cast(pl.Int32, strict=False)
    microseconds = sign * (above + seconds) if is_signed_clock else above + sign * seconds
    fits = months.is_not_null() & days.is_not_null()
    return pl.when(fits).then(pl.struct(months=months, days=days, microseconds=microseconds))


def marked(expr: pl.Expr, kind: Type) -> pl.Expr:
    """An expression of a type that nothing else tells: a text that is a UUID, a struct that is an interval."""
    return expr.ext.to(mark(kind)) if kind.name in ("uuid", "interval") and not expr.meta.is_column() else expr


def interval_text(interval: pl.Expr) -> pl.Expr:
    """An interval as PostgreSQL writes it: ``1 year 2 mons -3 days +04:05:06``; ``00:00:00`` is nothing."""
    months, days, clock = (interval.struct.field(name).cast(pl.Int64) for name in INTERVAL_PARTS)
    years, rest = months.abs() // 12 * months.sign(), months.abs() % 12 * months.sign()
    words, is_behind_minus = list[pl.Expr](), pl.lit(False)
    for number, unit in ((years, "year"), (rest, "mon"), (days, "day")):
        plus = pl.when(is_behind_minus & (number > 0)).then(pl.lit("+")).otherwise(pl.lit(""))
        end = pl.when(number == 1).then(pl.lit(f" {unit}")).otherwise(pl.lit(f" {unit}s"))
        words.append(pl.when(number != 0).then(pl.concat_str(plus, number.cast(pl.String), end)))
        is_behind_minus = pl.when(number == 0).then(is_behind_minus).otherwise(number < 0)
    sign = pl.when(clock < 0).then(pl.lit("-")).when(is_behind_minus).then(pl.lit("+")).otherwise(pl.lit(""))
    is_shown = (clock != 0) | ((months == 0) & (days == 0))
    words.append(pl.when(is_shown).then(pl.concat_str(sign, _clock_text(clock.abs()))))
    return pl.when(interval.is_not_null()).then(pl.concat_str(*words, separator=" ", ignore_nulls=True))


def _clock_text(microseconds: pl.Expr) -> pl.Expr:
    """A length of time as hours, minutes, seconds, and as many digits of the second as it has."""
    minutes = microseconds // 60_000_000
    rest = microseconds % 60_000_000
    fraction = pl.concat_str(pl.lit("."), (rest % 1_000_000).cast(pl.String).str.zfill(6))
    two = [part.cast(pl.String).str.zfill(2) for part in (minutes // 60, minutes % 60, rest // 1_000_000)]
    return pl.concat_str(
        two[0], pl.lit(":"), two[1], pl.lit(":"), two[2], fraction.str.strip_chars_end("0").str.strip_chars_end(".")
    )
