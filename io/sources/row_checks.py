"""Checks of the rows of sources, before they enter an input's change log.

:func:`fit` matches a source's columns to the input: every column must exist, under its own name or the one that
``--column`` says, and its type must hold no more than the declared one. :func:`normalise` then converts batches: values
to exactly the declared types, times to whole numbers from 0 up, diffs to whole numbers; updates with a diff of 0 are
dropped. The first misfit is a :class:`DataError` with the source, the column, the value and a hint.

Both engines of ``dd ingest`` use these functions, batch by batch, with vector operations only. A batch does not tell
whether a row may be retracted or a version is closed: :mod:`ddcore.jobs.ingest` checks that.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import polars as pl

from ddcore.base.errors import DataError, DdError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type, parse_type, type_of
from ddcore.data import nested
from ddcore.io.logs.floats import one_nan_one_zero
from ddcore.io.logs.updates import DIFF
from ddcore.io.project.times import LARGEST_TIME, Time, example
from ddcore.io.sources.paths import fields_below, steps, type_at
from ddcore.text.wording import shown_value

__all__ = [
    "LARGEST_TIME",
    "Column",
    "Layout",
    "Rules",
    "check_complete",
    "fit",
    "listed_names",
    "normalise",
    "rows_of",
]

_NULL = -(2**63)  # the engine's word for null

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_UNITS: Mapping[Any, tuple[str, int]] = {  # the unit's name in messages, and how many a day has
    "ms": ("milliseconds", 86_400_000),
    "us": ("microseconds", 86_400_000_000),
    "ns": ("nanoseconds", 86_400_000_000_000),
}
_UTC = {"ms": pl.Datetime("ms", "UTC"), "us": pl.Datetime("us", "UTC"), "ns": pl.Datetime("ns", "UTC")}
_SHOWN_NAMES = 20

# Text is checked against these patterns first, because Polars' parsers accept more.
_WHOLE = r"^[+-]?[0-9]+$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?$"
_EXPECTED = {
    "int64": "a whole number",
    "float64": "a number",
    "bool": "true or false",
    "date": "a date such as 2026-01-31",
    "timestamp": "a timestamp such as 2026-01-31T12:00:00Z",
    "binary": "bytes in hexadecimal",
}


@dataclass(frozen=True)
class Rules:
    """The columns of an input, and the options for sources that lack some of them or name them otherwise.

    ``time`` and ``diff`` are values for columns that the sources lack; ``rename`` maps our name to the source's.
    ``added``: the columns that the input got after its first ingest. Sources of before that lack them are recognised.
    ``fallback``: the time of rows in sources without time columns. ``rows_only``: the sources hold rows and no updates:
    they need neither times nor diffs, and those that they have are left out. ``events``: they need times, but no diffs.
    ``appends``: each row is an insertion.
    """

    schema: Schema
    dims: tuple[str, ...] = ("version",)
    time: Time | None = None
    diff: int | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    fallback: Time | None = None
    rows_only: bool = False
    events: bool = False
    appends: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that sources need, in order: those of a change log, which are the row, the time and ``diff``."""
        times = () if self.rows_only else self.dims
        return (*self.schema, *times) if self.rows_only or self.events else (*self.schema, *times, DIFF)

    @property
    def types(self) -> dict[str, Type]:
        """The types of these columns, by their names or paths in the sources."""
        whole = parse_type("int64")
        return {self.rename.get(name, name): self.schema.get(name, whole) for name in self.columns}


@dataclass(frozen=True)
class Layout:
    """How the columns of one source serve an input.

    ``source_columns`` maps our name to the column that is read, or to the path of a field in it; ``folders`` our name
    to a value in a folder's name. With ``text``, text in ``source_columns`` is parsed if the input declares another
    type. ``ignored`` are the source's other columns, ``absent`` added columns that it lacks. ``tallies`` are columns of
    numbers that an intake only adds up. Sources of equal ``shape`` have the same columns of the same types, as far as
    they are read.
    """

    where: str
    source_columns: Mapping[str, str]
    folders: Mapping[str, str | None]
    text: bool
    ignored: tuple[str, ...]
    shape: str = ""
    absent: tuple[str, ...] = ()
    tallies: tuple[str, ...] = ()

    @property
    def read(self) -> tuple[str, ...]:
        """The columns to read from the source, each once. If folders supply all, any one, for the row count."""
        return tuple(dict.fromkeys([*self.source_columns.values(), *self.tallies])) or self.ignored[:1]


# --- columns ----------------------------------------------------------------------------------------------------------


def fit(
    where: str,
    types: Mapping[str, pl.DataType],
    rules: Rules,
    *,
    folders: Iterable[tuple[str, str | None]] = (),
    text: bool = False,
) -> Layout:
    """The layout of a source with columns of these types; with ``text``, its values are text to parse.

    Raises DataError naming the column: missing (with the closest name in the source), of a type that does not fit, or
    present although an option gives its value.
    """
    in_folders = dict(folders)
    source_columns: dict[str, str] = {}
    from_folders: dict[str, str | None] = {}
    absent: list[str] = []
    read: dict[str, pl.DataType] = {}
    for name in rules.columns:
        source_name = rules.rename.get(name, name)
        by_option, actual = _is_given_by_option(name, rules), type_at(types, source_name)
        if actual is not None and not by_option:
            source_columns[name] = source_name
            read[source_name] = actual
            if text and isinstance(actual, pl.String):
                _check_text(where, name, rules.schema.get(name))
            else:
                _check_type(where, name, actual, rules.schema.get(name), text=text)
        elif source_name in in_folders and not by_option:
            from_folders[name] = in_folders[source_name]
            _check_text(where, name, rules.schema.get(name))
        elif name == DIFF and rules.appends and (actual is not None or source_name in in_folders):
            raise DataError(
                f"{where}: has a column {source_name!r}, but --append inserts every row",
                "if it is a change log, leave --append out; else rename the column at the source",
            )
        elif actual is not None or source_name in in_folders:
            raise DataError(
                f"{where}: has a column {source_name!r}, but --{_flag(name)} gives its value for all rows",
                f"leave out --{_flag(name)}, or remove the column from the source",
            )
        elif name in rules.added:
            absent.append(name)
        elif not (by_option or (name in rules.dims and rules.fallback is not None)):
            raise _missing(where, name, source_name, [*fields_below(types, source_name), *in_folders], rules)
    used = {found[0] for path in read if (found := steps(types, path))}
    ignored = tuple(name for name in types if name not in used)
    shape = ", ".join(f"{path} {kind}" for path, kind in sorted(read.items()))
    return Layout(where, source_columns, from_folders, text, ignored, shape, tuple(absent))


def check_complete(layout: Layout) -> None:
    """Raise DataError for a source without a column that the input got later. Nothing is filled in by guess."""
    for name in layout.absent:
        raise DataError(
            f"{layout.where}: the column {name!r} is missing, which was added to the input after its first ingest",
            f"add it at the source, with nulls where it has no value; or say: --column {name}=COLUMN",
        )


def _is_given_by_option(name: str, rules: Rules) -> bool:
    return (name in rules.dims and rules.time is not None) or (name == DIFF and rules.diff is not None)


def _flag(name: str) -> str:
    return "diff" if name == DIFF else "version"


_WHOLE_OR_NEW = (
    "if the source is the whole content at one version, say: --snapshot; if each of its rows is one insertion: --append"
)


def _missing(where: str, name: str, source_name: str, columns: list[str], rules: Rules) -> DataError:
    message = f"{where}: the column {source_name!r} is missing; there are: {listed_names(columns)}"
    spare = [column for column in columns if column not in rules.columns]
    close = next((column for column in spare if column.lower() == source_name.lower()), None)
    close = close or next(iter(difflib.get_close_matches(source_name, spare, n=1)), None)
    if close:
        return DataError(message, f"did you mean {close!r}? then say: --column {shlex.quote(f'{name}={close}')}")
    return DataError(message, _instead(name, columns, rules))


def _instead(name: str, columns: list[str], rules: Rules) -> str:
    """What to do about a source that lacks a column of ours, and has these."""
    if {"op", "before", "after"} <= {*columns} and not rules.events:
        return "these are columns of Debezium's events; if the source holds such events, say: --debezium"
    if len(columns) == 1 and (mark := next((mark for mark in ";\t|" if mark in columns[0]), "")):
        return f"the header has no comma but {mark!r}: write the values with commas between them"
    if name == DIFF:
        return f"{_WHOLE_OR_NEW}, or --diff 1 with versions of its own"
    if name in rules.dims:
        option = (
            "N gives all rows the version N" if len(rules.dims) == 1 else f"{example(rules.dims)} gives all rows a time"
        )
        versions = f"--version {option}; --column {name}=COLUMN names the column that holds it"
        has_diffs = rules.diff is not None or rules.rename.get(DIFF, DIFF) in columns
        return versions if has_diffs or rules.events or rules.appends else f"{_WHOLE_OR_NEW}; else {versions}"
    return f"if it has another name in the source, say: --column {name}=COLUMN"


def listed_names(names: Sequence[str]) -> str:
    """Names of columns for a message: the first 20, and how many more."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f", and {more} more" if more > 0 else "") or "none"


def _check_text(where: str, name: str, declared: Type | None) -> None:
    """Raise DataError for a type that has no form as text, in CSV or in the name of a folder."""
    if declared is not None and declared.is_nested:
        raise DataError(
            f"{where}: the column {name!r} is declared as {declared}, which is not read from text",
            "write the source as Parquet, or declare the column as string",
        )


def _check_type(where: str, name: str, actual: pl.DataType, declared: Type | None, *, text: bool) -> None:
    if declared is None:
        if not (actual.is_integer() or actual.is_float() or actual.is_decimal()):
            raise DataError(
                f"{where}: the column {name!r} holds {_type_name(actual)}, not whole numbers",
                "cast it to int64 at the source",
            )
    elif misfit := _misfit(actual, declared, name, text=text):
        path, what = misfit
        kind = _type_or_none(actual)
        other = f", or write {name} = {str(kind)!r} in dd.toml" if kind else f" to {declared}, or leave it out"
        raise DataError(f"{where}: the column {path!r} {what}", f"cast it at the source{other}")


def _misfit(actual: pl.DataType, declared: Type, path: str, *, text: bool) -> tuple[str, str] | None:
    """The first part of a column that the declared type does not hold, and what is wrong there; None: it fits.

    With ``text``, text fits every type that is not nested.
    """
    if isinstance(actual, pl.Struct) and declared.fields:
        theirs = {each.name: _instance(each.dtype) for each in actual.fields}
        ours = dict(declared.fields)
        lacking, more = ([name for name in a if name not in b] for a, b in ((ours, theirs), (theirs, ours)))
        if lacking:
            return path, f"lacks the field {lacking[0]!r}"
        if more:
            return path, f"has the field {more[0]!r}, which the input does not declare"
        inside = [(theirs[name], inner) for name, inner in declared.fields]
    elif isinstance(actual, pl.List | pl.Array) and declared.element is not None:
        inside = [(_instance(actual.inner), declared.element)]
    else:
        fits = (text and isinstance(actual, pl.String) and not declared.is_nested) or _fits(actual, declared)
        return None if fits else (path, f"is {_type_name(actual)}, but the input declares {declared}")
    parts = zip(inside, declared.inner, strict=True)
    found = (_misfit(kind, inner, path + suffix, text=text) for (kind, inner), (suffix, _) in parts)
    return next(filter(None, found), None)


def _instance(dtype: Any) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype  # type: ignore[no-any-return]


def _fits(actual: pl.DataType, declared: Type) -> bool:
    if isinstance(actual, pl.Decimal) and isinstance(declared.polars, pl.Decimal):
        scale, own = actual.scale, declared.polars.scale
        return scale <= own and (actual.precision or 38) - scale <= (declared.polars.precision or 38) - own
    return _type_or_none(actual) == declared


def _type_or_none(actual: pl.DataType) -> Type | None:
    if isinstance(actual, pl.Categorical | pl.Enum):
        actual = pl.String()
    try:
        return type_of(actual)
    except (DdError, TypeError, ValueError):
        return None


def _type_name(actual: pl.DataType) -> str:
    if isinstance(actual, pl.Object):
        return "of a type that no input can have (a map, a time of day, ...)"
    return str(actual)


# --- rows -------------------------------------------------------------------------------------------------------------


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
        if name in rules.schema:
            columns.append(_convert_nested(column, rules.schema[name], text))
        else:
            columns.append(_time_or_diff(column, text))
    return pl.DataFrame(columns)


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
        place = bad.arg_max() if bad.any() else None
        if place is not None:
            number = place if self.rows is None else int(self.rows[place])
            row = "" if self.first_row is None else f" (row {self.first_row + number})"
            raise DataError(f"{self.where}: column {self.name!r}: {shown_value(self.values[place])} {what}{row}", hint)


_FIX_ROW = "fix the row at the source"


def _convert_nested(column: Column, kind: Type, text: bool) -> pl.Series:
    """:func:`_convert` for each column inside lists and structs, whose fields get the order of ``kind``.

    With ``text``, :func:`_parse` for text.
    """
    values = column.values
    if not kind.is_nested:
        return _parse(column, kind) if text and values.dtype == pl.String else _convert(column, kind)
    if isinstance(values.dtype, pl.Array):
        values = values.arr.to_list()
    valid = values.is_not_null().to_numpy() if values.null_count() else None
    rows = column.rows
    if kind.element is not None:
        rows = np.repeat(np.arange(len(values)) if rows is None else rows, nested.lengths(values))
    inside = [
        _convert_nested(replace(column, name=part.name, values=part, rows=rows), inner, text)
        for part, inner in nested.parts(values, kind)
    ]
    if kind.element is not None:
        return nested.lists(inside[0], nested.lengths(values), valid).alias(values.name)
    return nested.structs(dict(zip(dict(kind.fields), inside, strict=True)), valid).alias(values.name)


def _convert(column: Column, kind: Type) -> pl.Series:
    """Typed values as the declared type, after :func:`fit` has checked that the type fits."""
    values = column.values
    if kind.name == "int64":
        values = values.cast(pl.Int64)
        column.refuse(values == _NULL, "is reserved", "int64 starts at -9223372036854775807 here")
        return values
    if kind.name == "float64":
        return one_nan_one_zero(values.cast(pl.Float64))
    if kind.name == "timestamp":
        return _timestamps(column, kind)
    if kind.name == "date":
        return _dates(column)
    return values.cast(kind.polars)


def _dates(column: Column) -> pl.Series:
    """Dates from the year 1 to 9999: Python and SQL cannot show others."""
    days = column.values.to_physical()
    beyond = (days < _FIRST_DAY) | (days > _LAST_DAY)
    numbers = replace(column, values=days)  # Python cannot show the value itself
    numbers.refuse(beyond, "days from 1970-01-01 is not a date of the years 1 to 9999", _FIX_ROW)
    return column.values.cast(pl.Date)


def _timestamps(column: Column, kind: Type) -> pl.Series:
    """Microseconds in UTC of the years 1 to 9999; a timestamp without a zone counts as UTC."""
    values = column.values
    unit = "ns" if values.dtype == pl.Int64 else getattr(values.dtype, "time_unit", "us")  # nanoseconds on Spark
    ticks, (name, each) = values.to_physical(), _UNITS[unit]
    # Checked first, as numbers: Polars panics on timestamps that it cannot show.
    beyond = (ticks < _FIRST_DAY * each) | (ticks >= (_LAST_DAY + 1) * each) if unit != "ns" else ticks == _NULL
    numbers = replace(column, values=ticks)
    numbers.refuse(beyond, f"{name} from 1970-01-01 is not a timestamp of the years 1 to 9999", _FIX_ROW)
    values = ticks.cast(_UTC[unit])  # the ticks of a timestamp with a zone are in UTC too
    if unit == "ns":
        replace(column, values=values).refuse(
            ticks % 1000 != 0, "has nanoseconds", "round it to microseconds at the source"
        )
    return values.cast(kind.polars)


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
}


def _only(text: pl.Series, form: str) -> pl.Series:
    return text.zip_with(text.str.contains(form).fill_null(False), _nulls(text, pl.String()))


def _nulls(like: pl.Series, kind: pl.DataType) -> pl.Series:
    return pl.Series(like.name, [None], dtype=kind).new_from_index(0, len(like))
