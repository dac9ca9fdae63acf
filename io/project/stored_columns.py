"""How the log of an input stores its columns, where ``dd.toml`` has renamed, widened or dropped some since.

The log is not rewritten. A renamed column keeps its first name in the table. A widened one gets a second column there,
of the wider type, for the rows that come from then on; what was written before stays as it is and is cast when it is
read. A dropped one stays in the table, and new rows have null there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DdError
from ddcore.base.lazy import polars as pl
from ddcore.base.schema import MOST_DIGITS, Schema, Type, parse_type
from ddcore.io.project.column_names import NOT_IN_COLUMNS
from ddcore.io.project.section import Section, quoted
from ddcore.text.wording import meant

if TYPE_CHECKING:
    from polars import Expr

KEYS = ("renamed", "widened", "dropped")
EXACT_FLOAT = 2**53
"""Whole numbers up to this one, and down to its negative, are exact as float64."""
_DIGITS = 19  # of an int64


@dataclass(frozen=True)
class StoredColumns:
    """The columns of an input's table. ``parts``: for each column of the input, in order, its columns there, oldest
    first; a row has its value in one of them at most. ``dropped``: columns of the table that the input no longer has.
    """

    parts: Mapping[str, tuple[tuple[str, Type], ...]]
    dropped: Mapping[str, Type]

    @property
    def schema(self) -> Schema:
        """The columns of the table that have rows' values, with their types; those that are written come as the input's
        order has them.
        """
        return {name: kind for parts in self.parts.values() for name, kind in parts}

    @property
    def names(self) -> dict[str, str]:
        """For each column of the input, in order, the column of the table to which new rows are written."""
        return {column: parts[-1][0] for column, parts in self.parts.items()}

    @property
    def former_names(self) -> dict[str, str]:
        """The first names of renamed columns, by their present ones."""
        return {column: parts[0][0] for column, parts in self.parts.items() if parts[0][0] != column}

    @property
    def narrower(self) -> dict[str, tuple[Type, ...]]:
        """The types that columns had before they became wider, oldest first, by their names."""
        return {column: tuple(kind for _, kind in parts[:-1]) for column, parts in self.parts.items() if len(parts) > 1}

    @property
    def origins(self) -> dict[str, str]:
        """Texts that tell columns which are not simply stored from all others, by name: for fingerprints."""
        plain = {column: len(parts) == 1 and parts[0][0] == column for column, parts in self.parts.items()}
        return {column: repr([(n, str(k)) for n, k in self.parts[column]]) for column in plain if not plain[column]}

    def of(self, columns: Collection[str]) -> StoredColumns:
        """Of some of the input's columns alone."""
        return StoredColumns({name: parts for name, parts in self.parts.items() if name in columns}, self.dropped)

    def columns_of(self, stored: Iterable[str]) -> frozenset[str]:
        """The input's columns that these columns of the table hold values of."""
        names = frozenset(stored)
        return frozenset(column for column, parts in self.parts.items() if names.intersection(n for n, _ in parts))

    def values(self) -> list[Expr]:
        """The input's columns, from those of the table."""
        return [_value(column, parts) for column, parts in self.parts.items()]

    def narrowed(self, stored: Sequence[str], has: Iterable[str]) -> list[Expr]:
        """Columns of the table as rows of before had them, from the input's and from the dropped ones, of which a frame
        ``has`` some. A value that the narrower type does not hold is null.
        """
        holders = {name: (column, kind) for column, parts in self.parts.items() for name, kind in parts}
        holders |= {name: (name, kind) for name, kind in self.dropped.items() if name in frozenset(has)}
        return [
            _narrow(*holders[name], self.parts).alias(name)
            if name in holders
            else pl.lit(None, self.dropped[name].polars).alias(name)
            for name in stored
        ]

    def bounds(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Bounds of the table's columns as those of the input's; none of a column that has several."""
        several = {name for parts in self.parts.values() if len(parts) > 1 for name, _ in parts}
        columns = {parts[0][0]: column for column, parts in self.parts.items() if len(parts) == 1}
        left_out = several | self.dropped.keys()
        return {columns.get(name, name): bound for name, bound in stored.items() if name not in left_out}


def widened(values: pl.Series, narrow: Type, wide: Type) -> pl.Series:
    """Values of a type as those of a wider one."""
    return values.to_frame().select(_cast(values.name, narrow, wide)).to_series()


def widens(narrow: Type, wide: Type) -> bool:
    """Whether the wider type holds every value of the narrower one; float64 those of int64 up to 2^53."""
    if narrow.name == "int64":
        whole = wide.precision - wide.scale
        return wide.name == "float64" or (wide.name == "decimal" and whole >= _DIGITS)
    if narrow.name == "decimal" and wide.name == "decimal" and narrow != wide:
        return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
    return (narrow.name, wide.name) == ("date", "timestamp")


def common(narrow: Type, other: Type) -> Type | None:
    """The type to which one widens that holds the values of the other; None without one."""
    if other.name != "decimal":
        return other if widens(narrow, other) else None
    scale = max(narrow.scale, other.scale)
    wide = Type("decimal", MOST_DIGITS, scale)
    return wide if widens(narrow, wide) and (other == wide or widens(other, wide)) else None


def stored_columns(section: Section, schema: Schema, dims: Sequence[str]) -> StoredColumns | None:
    """What the section of an input says of its past; None where it says nothing. UsageError."""
    if not any(key in section.table for key in KEYS):
        return None
    renamed, widened = _renamed(section, schema), _widened(section, schema)
    parts = {}
    for column, kind in schema.items():
        base, (first, *others) = renamed.get(column, column), (*widened.get(column, ()), kind)
        parts[column] = ((base, first), *((f"{base}_{_suffix(other)}", other) for other in others))
    stored = StoredColumns(parts, _dropped(section, schema))
    _check_once(section, stored, dims)
    return stored


def _renamed(section: Section, schema: Schema) -> dict[str, str]:
    renamed: dict[str, str] = {}
    for column, name in _table(section, "renamed", 'renamed = { NEW = "OLD" }').items():
        key = f"renamed.{column}"
        _check_column(section, key, column, schema)
        if not isinstance(name, str) or not name or NOT_IN_COLUMNS & set(name):
            raise section.wrong(key, f"must be the name that the column had, not {quoted(name)}")
        renamed[column] = name
    return renamed


def _widened(section: Section, schema: Schema) -> dict[str, tuple[Type, ...]]:
    widened: dict[str, tuple[Type, ...]] = {}
    for column, value in _table(section, "widened", 'widened = { COLUMN = "int64" }').items():
        key = f"widened.{column}"
        _check_column(section, key, column, schema)
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise section.wrong(key, f"must be the type that the column had, or a list of them, not {quoted(value)}")
        kinds = tuple(_type(section, key, text) for text in texts)
        for narrow, wide in zip(kinds, (*kinds[1:], schema[column]), strict=True):
            if not widens(narrow, wide):
                raise section.wrong(
                    key,
                    f"{narrow} does not widen to {wide}",
                    "int64 widens to decimals with 19 digits before the point and to float64, a decimal to one with at "
                    "least as many digits before and after it, date to timestamp",
                )
        widened[column] = kinds
    return widened


def _dropped(section: Section, schema: Schema) -> dict[str, Type]:
    dropped = _table(section, "dropped", 'dropped = { COLUMN = "string" }')
    for column in dropped:
        if column in schema:
            raise section.wrong(f"dropped.{column}", "the schema still has this column", "take it out of one of them")
    return {column: _type(section, f"dropped.{column}", text) for column, text in dropped.items()}


def _table(section: Section, key: str, form: str) -> dict[str, Any]:
    value = section.table.get(key, {})
    if not isinstance(value, dict):
        raise section.wrong(key, f"must be a table, not {quoted(value)}", f"say {form}")
    return value


def _check_column(section: Section, key: str, column: str, schema: Schema) -> None:
    if column not in schema:
        hint = meant(column, schema) or "the new name comes first, the present type is in the schema"
        raise section.wrong(key, f"the schema has no column {column!r}", hint)


def _type(section: Section, key: str, text: Any) -> Type:
    try:
        return parse_type(text)
    except (DdError, TypeError, AttributeError) as error:
        hint = error.hint if isinstance(error, DdError) else ""
        raise section.wrong(key, f"must be the name of a type, not {quoted(text)}", hint) from None


def _check_once(section: Section, stored: StoredColumns, dims: Sequence[str]) -> None:
    """Raise UsageError for two columns of one name in the table, where case does not count."""
    holders = {name.casefold(): "the log" for name in (*dims, "diff")}
    taken = [(name, column) for column, parts in stored.parts.items() for name, _ in parts]
    for name, column in [*taken, *((name, f"dropped.{name}") for name in stored.dropped)]:
        if name.casefold() in holders:
            other = holders[name.casefold()]
            pair = {column, other}
            key = next((key for key in ("dropped", "renamed") if _names_any(section, key, pair)), "widened")
            raise section.wrong(
                key,
                f"the log's column {name!r} would be that of {other} and of {column}",
                "a column's first name stays its name in the log: give the other one another name",
            )
        holders[name.casefold()] = column


def _names_any(section: Section, key: str, columns: Collection[str]) -> bool:
    return any({column, f"{key}.{column}"} & {*columns} for column in section.table.get(key, {}))


def _suffix(kind: Type) -> str:
    return re.sub(r"\W+", "_", str(kind)).strip("_")


def _value(column: str, parts: Sequence[tuple[str, Type]]) -> Expr:
    (last, wide), *older = reversed(parts)
    values = [pl.col(last), *(_cast(name, kind, wide) for name, kind in older)]
    return (pl.coalesce(values) if older else values[0]).alias(column)


def _cast(name: str, narrow: Type, wide: Type) -> Expr:
    if narrow.name == "date":
        return _midnight(pl.col(name))
    return pl.col(name).cast(wide.polars)


def _midnight(day: Expr) -> Expr:
    return day.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def _narrow(column: str, kind: Type, parts: Mapping[str, Sequence[tuple[str, Type]]]) -> Expr:
    present = parts[column][-1][1] if column in parts else kind
    if present == kind:
        return pl.col(column)
    narrow = pl.col(column).cast(kind.polars, strict=False)
    back = _midnight(narrow) if kind.name == "date" else narrow.cast(present.polars, strict=False)
    return pl.when(back == pl.col(column)).then(narrow)
