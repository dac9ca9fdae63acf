"""Rows of sources, before they enter an input's change log: values become exactly what the input declares.

:func:`normalise` converts batches of a :class:`~ddcore.io.sources.layouts.Layout`: values to the declared types, times
to whole numbers from 0 up, diffs to whole numbers; updates with a diff of 0 are dropped. The first misfit is a
:class:`DataError` with the source, the column, the value and a hint.

Both engines of ``dd ingest`` use these functions, batch by batch, with vector operations only. A batch does not tell
whether a row may be retracted or a version is closed: :mod:`ddcore.jobs.ingest` checks that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import polars as pl

from ddcore.base.errors import DataError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data import nested
from ddcore.data.casts import InexactCast, exact_cast
from ddcore.data.forms import canonical_uuids, from_base, intervals_of, to_base
from ddcore.io.logs.updates import DIFF, one_nan_one_zero
from ddcore.io.project.stored_columns import EXACT_FLOAT, widened
from ddcore.io.project.times import LARGEST_TIME
from ddcore.io.sources.layouts import Layout, Rules
from ddcore.text.wording import shown_value

_NULL = -(2**63)  # the engine's word for null

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_UNITS: Mapping[Any, tuple[str, int]] = {  # the unit's name in messages, and how many a day has
    "ms": ("milliseconds", 86_400_000),
    "us": ("microseconds", 86_400_000_000),
    "ns": ("nanoseconds", 86_400_000_000_000),
}
_UTC = {"ms": pl.Datetime("ms", "UTC"), "us": pl.Datetime("us", "UTC"), "ns": pl.Datetime("ns", "UTC")}

# Text is checked against these patterns first, because Polars' parsers accept more.
_WHOLE = r"^[+-]?[0-9]+$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?$"
_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
_EXPECTED = {
    "int64": "a whole number",
    "float64": "a number",
    "bool": "true or false",
    "date": "a date such as 2026-01-31",
    "timestamp": "a timestamp such as 2026-01-31T12:00:00Z",
    "binary": "bytes in hexadecimal",
    "time": "a time of day such as 12:30:00",
    "uuid": "a UUID such as a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "interval": "an interval such as 1 mon 2 days 03:04:05, or P1M2DT3H4M5S",
}


def normalise(frame: pl.DataFrame, layout: Layout, rules: Rules, first_row: int | None = None) -> pl.DataFrame:
    """The updates in a batch of a source, as :func:`rows_of` returns them, without those with a diff of 0."""
    rows = rows_of(frame, layout, rules, first_row)
    return rows if rows[DIFF].to_numpy().all() else rows.filter(pl.col(DIFF) != 0)


def rows_of(frame: pl.DataFrame, layout: Layout, rules: Rules, first_row: int | None = None) -> pl.DataFrame:
    """The rows in a batch of a source: the columns of ``rules``, in their order, of exactly the declared types.

    ``frame`` holds the columns of ``layout.source_columns`` under the source's names. ``first_row`` is the number of
    its first row in the source, for messages; None if unknown. Keeps the order. One pass over each column.
    """
    columns = []
    for name in rules.columns:
        if name not in rules.schema and name not in layout.source_columns and name not in layout.folders:
            columns.append(_given(name, layout, rules, len(frame)))
            continue
        series, text = _source_values(frame, name, layout, rules)
        column = Column(layout.where, name, series.alias(name), first_row)
        if name in layout.narrow:
            columns.append(_widened(column, layout.narrow[name], rules.schema[name], text=text))
        elif name in rules.schema:
            if text and "date" in [kind.name for kind in rules.narrower.get(name, ())]:
                column = replace(column, values=_with_midnight(column.values))
            columns.append(_convert_nested(column, rules.schema[name], text))
        else:
            columns.append(_time_or_diff(column, text))
    return pl.DataFrame(columns)


def _widened(column: Column, narrow: Type, wide: Type, *, text: bool) -> pl.Series:
    """Values of the type that a column had before it became wider, as those of the present one."""
    values = _convert_nested(column, narrow, text)
    if wide.name == "float64":
        beyond = values.abs() > EXACT_FLOAT
        column.refuse(beyond.fill_null(False), "is not exact as float64", "declare the column as decimal(38,2)")
    return widened(values, narrow, wide)


def _with_midnight(texts: pl.Series) -> pl.Series:
    """Texts of timestamps, where a date alone is its midnight."""
    if texts.dtype != pl.String:
        return texts
    is_date = texts.str.contains(_DATE).fill_null(False)
    return (texts + "T00:00:00Z").zip_with(is_date, texts) if is_date.any() else texts


def _source_values(frame: pl.DataFrame, name: str, layout: Layout, rules: Rules) -> tuple[pl.Series, bool]:
    """The values of one of our columns as the source has them, and whether text in them is parsed."""
    if name in layout.source_columns:
        return frame[layout.source_columns[name]], layout.text
    if name in layout.folders:
        return _constant(layout.folders[name], pl.String(), len(frame)), True
    return _constant(None, rules.schema[name].polars, len(frame)), False


def _given(name: str, layout: Layout, rules: Rules, count: int) -> pl.Series:
    """A time or diff column that the source lacks: so many of the value that all rows have, checked once."""
    time = rules.time or rules.fallback or ()
    value = rules.diff if name == DIFF else time[rules.dims.index(name)]
    _time_or_diff(Column(layout.where, name, _constant(value, pl.Int64(), 1), None), text=False)
    return _constant(value, pl.Int64(), count).alias(name)


@lru_cache(maxsize=4)
def _constant(value: Any, kind: pl.DataType, count: int) -> pl.Series:
    """So many of a value. Batches of one size share them."""
    return pl.Series([value], dtype=kind).new_from_index(0, count)


@dataclass(frozen=True)
class Column:
    """A column of a batch, with its source and first row for messages.

    ``rows``: the row of each value in the batch, for elements of lists; None where each row has one value.
    """

    where: str
    name: str
    values: pl.Series
    first_row: int | None
    rows: np.ndarray | None = None

    def refuse(self, bad: pl.Series, what: str, hint: str) -> None:
        """Raise DataError for the first value where the mask ``bad`` is true, if any; a null there is false."""
        first = bad.arg_max() if bad.any() else None
        if first is not None:
            number = first if self.rows is None else int(self.rows[first])
            row = "" if self.first_row is None else f" (row {self.first_row + number})"
            raise DataError(f"{self.where}: column {self.name!r}: {shown_value(self.values[first])} {what}{row}", hint)


_FIX_ROW = "fix the row at the source"


def _convert_nested(column: Column, kind: Type, text: bool) -> pl.Series:
    """:func:`_convert` for each column inside lists, maps and structs, whose fields get the order of ``kind``.

    With ``text``, :func:`_parse` for text.
    """
    values = column.values
    if not kind.is_nested:
        is_text = values.dtype == pl.String and (text or kind.name in ("time", "uuid", "interval"))
        return _parse(column, kind) if is_text else _convert(column, kind)
    if isinstance(values.dtype, pl.Array):
        values = values.arr.to_list()
    if kind.name == "map" and isinstance(values.dtype, pl.List):  # Spark's tasks carry entries
        values = values.cast(pl.Map(*(field.dtype for field in values.dtype.inner.fields)))  # type: ignore[union-attr]
    rows = column.rows
    if kind.element is not None or kind.name == "map":
        rows = np.repeat(np.arange(len(values)) if rows is None else rows, nested.lengths(values))
    inside = [
        _convert_nested(replace(column, name=part.name, values=part, rows=rows), inner, text)
        for part, inner in nested.parts(values, kind)
    ]
    whole = nested.together(values, kind, inside)
    return (
        whole if kind.name != "map" else from_base(to_base(whole, kind), kind).alias(values.name)
    )  # in the order of keys


def _convert(column: Column, kind: Type) -> pl.Series:
    """Typed values as the declared type, after :func:`fit` has checked that the type fits."""
    values = column.values
    if kind.name == "int64":
        values = values.cast(pl.Int64)
        column.refuse(values == _NULL, "is reserved", "int64 starts at -9223372036854775807 here")
        return values
    if kind.name == "float64":
        return one_nan_one_zero(values.cast(pl.Float64))
    if kind.name in _CLOCKS:
        return _CLOCKS[kind.name](column, kind)
    if kind.name in ("uuid", "interval"):
        return _exactly(column, kind)
    return values.cast(kind.polars)


def _times(column: Column, kind: Type) -> pl.Series:
    """Times of day; whole numbers are microseconds since midnight, as our own tables have them."""
    values = column.values
    if values.dtype.is_integer():
        outside = (values < 0) | (values >= _UNITS["us"][1])
        column.refuse(outside, "microseconds are no time of day", _FIX_ROW)
        return (values.cast(pl.Int64) * 1000).cast(kind.polars)
    column.refuse(values.to_physical() % 1000 != 0, "has nanoseconds", "round it to microseconds at the source")
    return values


def _exactly(column: Column, kind: Type) -> pl.Series:
    """UUIDs from their bytes, and intervals from their parts."""
    try:
        return exact_cast(column.values, kind)
    except InexactCast as error:
        raise DataError(f"{column.where}: column {column.name!r} {error}", _FIX_ROW) from None


def _dates(column: Column, kind: Type) -> pl.Series:
    """Dates from the year 1 to 9999: Python and SQL cannot show others."""
    days = column.values.to_physical()
    beyond = (days < _FIRST_DAY) | (days > _LAST_DAY)
    numbers = replace(column, values=days)  # Python cannot show the value itself
    numbers.refuse(beyond, "days from 1970-01-01 is not a date of the years 1 to 9999", _FIX_ROW)
    return column.values.cast(kind.polars)


def _timestamps(column: Column, kind: Type) -> pl.Series:
    """Microseconds in UTC of the years 1 to 9999; a timestamp without a zone counts as UTC."""
    values = column.values
    unit = "ns" if values.dtype == pl.Int64 else getattr(values.dtype, "time_unit", "us")  # nanoseconds on Spark
    ticks, (name, per_day) = values.to_physical(), _UNITS[unit]
    # Checked first, as numbers: Polars panics on timestamps that it cannot show.
    beyond = (ticks < _FIRST_DAY * per_day) | (ticks >= (_LAST_DAY + 1) * per_day) if unit != "ns" else ticks == _NULL
    numbers = replace(column, values=ticks)
    numbers.refuse(beyond, f"{name} from 1970-01-01 is not a timestamp of the years 1 to 9999", _FIX_ROW)
    values = ticks.cast(_UTC[unit])  # the ticks of a timestamp with a zone are in UTC too
    if unit == "ns":
        replace(column, values=values).refuse(
            ticks % 1000 != 0, "has nanoseconds", "round it to microseconds at the source"
        )
    return values.cast(kind.polars)


_CLOCKS: Mapping[str, Callable[[Column, Type], pl.Series]] = {
    "date": _dates, "time": _times, "timestamp": _timestamps,
}  # fmt: skip


def _time_or_diff(column: Column, text: bool) -> pl.Series:
    """A time or diff column as int64, without nulls."""
    values = column.values
    if text and values.dtype == pl.String:
        is_time = column.name != DIFF
        hint = "versions are whole numbers; a date can be the name of one: --version N --label DATE" if is_time else ""
        column.refuse(~values.str.contains(_WHOLE), "is not a whole number", hint or _FIX_ROW)
    elif values.dtype.is_float():
        column.refuse(~(values == values.floor()) | values.is_nan(), "is not a whole number", _FIX_ROW)
    elif values.dtype.is_decimal():
        column.refuse(values != values.round(0), "is not a whole number", _FIX_ROW)
    whole = _whole_or_null(values)
    column.refuse(values.is_null(), "is not allowed here", f"every row needs a {column.name}")
    column.refuse(whole.is_null() | (whole == _NULL), "does not fit into int64", _FIX_ROW)
    if column.name != DIFF:
        column.refuse(whole < 0, "is negative", "times start at 0")
        column.refuse(whole > LARGEST_TIME, "is too large", f"times end at {LARGEST_TIME}")
    return whole


def _whole_or_null(values: pl.Series) -> pl.Series:
    if values.dtype.is_float():
        # The cast would saturate, so compare first, with 2.0**63: no float is 2**63 - 1.
        inside = (values < 2.0**63) & (values >= -(2.0**63))
        values = values.zip_with(inside, pl.Series([None], dtype=values.dtype).new_from_index(0, len(values)))
    return values.cast(pl.Int64, strict=False)


def _parse(column: Column, kind: Type) -> pl.Series:
    """Text as the declared type. Strict: no surrounding blanks, no other notation."""
    text = column.values
    if kind.name == "string":
        return text
    parsed = _parse_or_null(text, kind)
    expected = _EXPECTED.get(kind.name) or f"a {kind}"
    is_none = parsed.is_null() & text.is_not_null() if parsed.null_count() > text.null_count() else None
    if kind.name == "int64":
        if is_none is not None:  # what Polars takes for a whole number is one
            column.refuse(~text.str.contains(_WHOLE), f"is not {expected}", _FIX_ROW)
            column.refuse(is_none, "does not fit into int64", _FIX_ROW)
        column.refuse(parsed == _NULL, "does not fit into int64", _FIX_ROW)
    if is_none is not None:
        column.refuse(is_none, f"is not {expected}", _FIX_ROW)
    if kind.name in ("date", "timestamp"):  # the year 0000, and times that an offset moves out
        outside = (parsed.dt.year() < 1) | (parsed.dt.year() > 9999)
        column.refuse(outside, "is not of the years 1 to 9999", _FIX_ROW)
    if kind.name == "float64":
        infinite = parsed.is_infinite()
        if infinite.any():
            named = text.str.to_lowercase().str.contains("inf")
            column.refuse(infinite & ~named, "does not fit into float64", _FIX_ROW)
    return parsed


def _parse_or_null(text: pl.Series, kind: Type) -> pl.Series:
    """The values of ``text``; null where it cannot be parsed."""
    if isinstance(kind.polars, pl.Decimal):
        # Polars would round text with more digits than the type has.
        digits = f"[.][0-9]{{0,{kind.polars.scale}}}" if kind.polars.scale else "[.]"
        text = _only(text, f"^[+-]?[0-9]+({digits})?$")
    parser = _PARSERS.get(kind.name)
    return parser(text) if parser else text.cast(kind.polars, strict=False)


def _parse_bools(text: pl.Series) -> pl.Series:
    low = text.str.to_lowercase()
    return (low == "true").zip_with(low.is_in(["true", "false"]).fill_null(False), _nulls(text, pl.Boolean()))


def _parse_timestamps(text: pl.Series) -> pl.Series:
    iso = _only(text, _TIMESTAMP).str.replace(" ", "T", literal=True)
    iso = iso.str.replace("Z$", "+00:00").str.replace("(T[0-9:.]+)$", "${1}+00:00")
    return iso.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False).cast(pl.Datetime("us", "UTC"))


_PARSERS: Mapping[str, Callable[[pl.Series], pl.Series]] = {
    "float64": lambda text: one_nan_one_zero(text.cast(pl.Float64, strict=False)),
    "bool": _parse_bools,
    "date": lambda text: _only(text, _DATE).str.to_date("%Y-%m-%d", strict=False),
    "timestamp": _parse_timestamps,
    "binary": lambda text: text.str.decode("hex", strict=False),
    "time": lambda text: _only(text, _TIME).str.to_time("%H:%M:%S%.f", strict=False),
    "uuid": canonical_uuids,
    "interval": intervals_of,
}


def _only(text: pl.Series, form: str) -> pl.Series:
    return text.zip_with(text.str.contains(form).fill_null(False), _nulls(text, pl.String()))


def _nulls(like: pl.Series, kind: pl.DataType) -> pl.Series:
    return pl.Series(like.name, [None], dtype=kind).new_from_index(0, len(like))
