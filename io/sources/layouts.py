"""Layouts: how the columns of a source serve an input.

:func:`fit` matches a source's columns to the input: every column must exist, under its own name or the one that
``--column`` says, and its type must hold no more than the declared one. The first misfit is a :class:`DataError` with
the source, the column and a hint.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from ddcore.base.errors import DataError, DdError
from ddcore.base.schema import INTERVAL_PARTS, Schema, Type, parse_type, type_of
from ddcore.io.logs.updates import DIFF
from ddcore.io.project.stored_columns import common
from ddcore.io.project.times import Time, example
from ddcore.io.sources.paths import fields_below, steps, type_at

_SHOWN_NAMES = 20


@dataclass(frozen=True)
class Rules:
    """The columns of an input, and the options for sources that lack some of them or name them otherwise.

    ``time`` and ``diff`` are values for columns that the sources lack; ``rename`` maps our name to the source's.
    ``before``: the former names of renamed columns, which sources of before have. ``dropped``: columns that the input
    had before; they are read for the digests of sources of then. ``narrower``: the types that columns had before they
    became wider, which sources may still have.
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
    before: Mapping[str, str] = field(default_factory=dict)
    dropped: Schema = field(default_factory=dict)
    narrower: Mapping[str, tuple[Type, ...]] = field(default_factory=dict)
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
        types = {self.rename.get(name, name): self.schema.get(name, whole) for name in self.columns}
        former = {old: self.schema[name] for name, old in self.before.items() if name not in self.rename}
        return {**self.dropped, **former, **types}

    @property
    def wide(self) -> Rules:
        """These rules, for rows with the dropped columns."""
        return replace(self, schema={**self.schema, **self.dropped}) if self.dropped else self

    def name_in(self, name: str, known: Callable[[str], bool]) -> str:
        """What a column of ours is called in a source of which these names are ``known``."""
        source_name = self.rename.get(name, name)
        old = self.before.get(name)
        return old if old and name not in self.rename and known(old) and not known(source_name) else source_name


@dataclass(frozen=True)
class Layout:
    """How the columns of one source serve an input.

    ``source_columns`` maps our name to the column that is read, or to the path of a field in it; ``folders`` our name
    to a value in a folder's name. With ``text``, text in ``source_columns`` is parsed if the input declares another
    type. ``ignored`` are the source's other columns, ``absent`` added columns that it lacks. ``tallies`` are columns of
    numbers that an intake only adds up. ``narrow``: the types as which columns are read that the input has of wider
    ones.
    """

    where: str
    source_columns: Mapping[str, str]
    folders: Mapping[str, str | None]
    text: bool
    ignored: tuple[str, ...]
    absent: tuple[str, ...] = ()
    tallies: tuple[str, ...] = ()
    narrow: Mapping[str, Type] = field(default_factory=dict)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns to read from the source, each once. If folders supply all, any one, for the row count."""
        return tuple(dict.fromkeys([*self.source_columns.values(), *self.tallies])) or self.ignored[:1]


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
    narrow: dict[str, Type] = {}
    for name in rules.columns:
        source_name = rules.name_in(name, lambda one: one in in_folders or type_at(types, one) is not None)
        by_option = rules.time is not None if name in rules.dims else name == DIFF and rules.diff is not None
        actual = type_at(types, source_name)
        if actual is not None and not by_option:
            source_columns[name] = source_name
            if text and isinstance(actual, pl.String):
                _check_text(where, name, rules.schema.get(name))
            elif (older := _older(actual, name, rules, text=text)) is not None:
                narrow[name] = older
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
    for name, kind in rules.dropped.items():
        if name in types and not _misfit(types[name], kind, name, text=text):
            source_columns[name] = name
    used = {found[0] for path in source_columns.values() if (found := steps(types, path))}
    ignored = tuple(name for name in types if name not in used)
    return Layout(where, source_columns, from_folders, text, ignored, tuple(absent), narrow=narrow)


def check_complete(layout: Layout) -> None:
    """Raise DataError for a source without a column that the input got later. Nothing is filled in by guess."""
    for name in layout.absent:
        raise DataError(
            f"{layout.where}: the column {name!r} is missing, which was added to the input after its first ingest",
            f"add it at the source, with nulls where it has no value; or say: --column {name}=COLUMN",
        )


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
    if len(columns) == 1 and (hint := without_comma(columns[0])):
        return hint
    if name == DIFF:
        return f"{_WHOLE_OR_NEW}, or --diff 1 with versions of its own"
    if name in rules.dims:
        option = (
            "N gives all rows the version N" if len(rules.dims) == 1 else f"{example(rules.dims)} gives all rows a time"
        )
        versions = f"--version {option}; --column {name}=COLUMN names the column that holds it"
        has_diffs = rules.diff is not None or rules.rename.get(DIFF, DIFF) in columns
        return versions if has_diffs or rules.events or rules.appends else f"{_WHOLE_OR_NEW}; else {versions}"
    return (
        f"if it has another name in the source, say: --column {name}=COLUMN, or in dd.toml's source: "
        f'column = {{ {name} = "COLUMN" }}; if the input is to call it so too, write '
        f'the new name into the schema of dd.toml, and below it: renamed = {{ NEW = "{name}" }}'
    )


def without_comma(column: str) -> str:
    """What to do about a source whose only column has this name, where other marks separate values; else nothing."""
    mark = next((mark for mark in ";\t|" if mark in column), "")
    return f"the header has no comma but {mark!r}: write the values with commas between them" if mark else ""


def has_time(layout: Layout, rules: Rules) -> bool:
    """Whether a source says the times of its rows, in columns or in the names of its folders."""
    return any(dim in layout.source_columns or dim in layout.folders for dim in rules.dims)


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
        if kind and (wide := common(declared, kind)) is not None:
            other = (
                f', or write {name} = "{wide}" into the schema of dd.toml, and widened = {{ {name} = "{declared}" }}'
            )
        raise DataError(f"{where}: the column {path!r} {what}", f"cast it at the source{other}")


def _older(actual: pl.DataType, name: str, rules: Rules, *, text: bool) -> Type | None:
    """The type that a column had before it became wider, if the source's does not fit the present one but that."""
    older = rules.narrower.get(name, ())
    if not older or not _misfit(actual, rules.schema[name], name, text=text):
        return None
    return next((kind for kind in reversed(older) if not _misfit(actual, kind, name, text=text)), None)


def _misfit(actual: pl.DataType, declared: Type, path: str, *, text: bool) -> tuple[str, str] | None:
    """The first part of a column that the declared type does not hold, and what is wrong there; None: it fits.

    With ``text``, text fits every type that is not nested.
    """
    if isinstance(actual, pl.Map) and declared.name == "map":
        inside = [(_instance(actual.key), declared.fields[0][1]), (_instance(actual.value), declared.fields[1][1])]
    elif isinstance(actual, pl.Struct) and declared.name == "struct":
        other = {part.name: _instance(part.dtype) for part in actual.fields}
        ours = dict(declared.fields)
        lacking, more = ([name for name in a if name not in b] for a, b in ((ours, other), (other, ours)))
        if lacking:
            return path, f"lacks the field {lacking[0]!r}"
        if more:
            return path, f"has the field {more[0]!r}, which the input does not declare"
        inside = [(other[name], inner) for name, inner in declared.fields]
    elif isinstance(actual, pl.List | pl.Array) and declared.element is not None:
        inside = [(_instance(actual.inner), declared.element)]
    else:
        is_read = text or declared.name in ("time", "uuid", "interval")
        fits = (is_read and isinstance(actual, pl.String) and not declared.is_nested) or _fits(actual, declared)
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
    if declared.name == "time" and actual.is_integer():
        return True
    if declared.name == "uuid" and isinstance(actual, pl.Binary):
        return True
    if declared.name == "interval" and isinstance(actual, pl.Struct):
        names = {part.name: _instance(part.dtype) for part in actual.fields}
        return {*names} == {*INTERVAL_PARTS} and all(kind.is_integer() for kind in names.values())
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
        return "of a type that no input can have"
    return str(actual)
