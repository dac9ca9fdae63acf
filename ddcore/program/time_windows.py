"""Windows of time: stretches of a fixed length, which may overlap, and sessions, which end where nothing comes.

Tumbling and hopping windows are expressions of each row. Sessions are a program of other operators: ``over`` finds the
first and the last moment of each, beside their neighbours, and ``join_between`` the rows of a session. So a change
looks at the moments beside it, and moves the rows of the sessions that it makes, merges, splits or moves an end of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema, Type
from ddcore.base.source_line import caller
from ddcore.operators import arguments
from ddcore.operators.ends import Ends
from ddcore.operators.window_functions import lag, lead
from ddcore.program.joins import join_between
from ddcore.text.wording import brief, fresh

Collection = Any  # the one of ddcore.program.collection, which imports this module

_MOST_WINDOWS = 1000  # that a row is in
_UNITS = {"timestamp": timedelta(microseconds=1), "date": timedelta(days=1)}
_FILLINGS: Mapping[str, Any] = {
    "int64": 0, "string": "", "bool": False, "date": date(1970, 1, 1), "decimal": Decimal(0),
    "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
}  # fmt: skip
"""What stands for null in a key beside a column that says so, by type."""


@dataclass(frozen=True)
class _Moments:
    """The column of moments as whole numbers of its unit, and the columns of the windows' ends."""

    where: str
    column: str
    kind: Type
    start: str
    end: str

    @classmethod
    def of(cls, schema: Schema, where: str, column: Any, start: Any, end: Any) -> _Moments:
        """Raises ProgramError."""
        name, start, end = (arguments.names_of([column_name], where)[0] for column_name in (column, start, end))
        arguments.require(schema, name, where)
        for result in (start, end):
            if result in schema or start == end:
                raise ProgramError(f"{caller()}: {where}: {result} is a column already", "choose another name")
        if schema[name].name not in (*_UNITS, "int64"):
            raise ProgramError(
                f"{caller()}: {where}: {name} is {schema[name]}", "give a column of timestamps, dates or whole numbers"
            )
        return cls(where, name, schema[name], start, end)

    @property
    def number(self) -> pl.Expr:
        """The moment as a whole number."""
        column = pl.col(self.column)
        if self.kind.name == "timestamp":
            return column.dt.epoch("us")
        return column.dt.epoch("d").cast(pl.Int64) if self.kind.name == "date" else column

    def moment(self, number: pl.Expr) -> pl.Expr:
        """A whole number as a moment."""
        if self.kind.name == "date":
            return number.cast(pl.Int32).cast(pl.Date)
        return number.cast(self.kind.polars) if self.kind.name == "timestamp" else number

    def length(self, value: Any, what: str, *, least: int | None) -> int:
        """A length of time in units. Raises ProgramError."""
        unit = _UNITS.get(self.kind.name)
        wanted = {None: "a whole number", "date": "a timedelta of whole days"}.get(
            self.kind.name if unit else None, "a timedelta"
        )
        fits = isinstance(value, int) and not isinstance(value, bool) if unit is None else isinstance(value, timedelta)
        if not fits or (unit is not None and value % unit):
            raise ProgramError(f"{caller()}: {self.where}: {what} is {brief(value)}", f"give {wanted}")
        length = int(value) if unit is None else value // unit
        if abs(length) >= 2**62 or (least is not None and length < least):
            raise ProgramError(
                f"{caller()}: {self.where}: {what} is {value}",
                f"give {wanted} that is {'positive' if least else '0 or more'}",
            )
        return length


def hopping(
    rows: Collection, where: str, column: Any, every: Any, length: Any, *, offset: Any, start: Any, end: Any
) -> Collection:
    """The rows with each window that they are in; windows begin at ``offset`` and multiples of ``every`` from there."""
    moments = _Moments.of(rows.schema, where, column, start, end)
    step = moments.length(every, "every", least=1)
    size = step if length is None else moments.length(length, "length", least=1)
    shift = 0 if offset is None else moments.length(offset, "offset", least=None)
    number = -(-size // step)
    if number > _MOST_WINDOWS:
        raise ProgramError(
            f"{caller()}: {where}: each row is in {number} windows, {_MOST_WINDOWS} at most",
            "let every be longer, or length shorter",
        )
    there = rows.where(pl.col(moments.column).is_not_null())
    latest = moments.number - (moments.number - shift) % step
    if number == 1 and size == step:
        return there.with_columns(**{moments.start: moments.moment(latest), moments.end: moments.moment(latest + size)})
    begun = there.flat_map(**{moments.start: pl.concat_list([latest - step * back for back in range(number)])})
    begin = pl.col(moments.start)
    inside = begun.where(begin + size > moments.number) if size % step else begun
    return inside.with_columns(**{moments.start: moments.moment(begin), moments.end: moments.moment(begin + size)})


def sessions(rows: Collection, column: Any, gap: Any, by: Any, *, start: Any, end: Any) -> Collection:
    """The rows with their sessions."""
    where = "sessions"
    moments = _Moments.of(rows.schema, where, column, start, end)
    length = moments.length(gap, "gap", least=0)
    keys = arguments.names_of(by, where) if by else []
    for key in keys:
        arguments.require(rows.schema, key, where)
        if key == moments.column:
            raise ProgramError(f"{caller()}: {where}: {key} is a key", "name other columns in by")
    taken = {*rows.schema, moments.start, moments.end}
    names = fresh("key ", taken)
    parts = {next(names): expr for key in keys for expr in _never_null(key, rows.schema[key])}
    at, first, last = (next(fresh(stem, taken)) for stem in ("at ", "first ", "last "))
    there = rows.where(pl.col(moments.column).is_not_null()).with_columns(**parts, **{at: moments.number})
    found = _bounds(there.select(*parts, at).distinct(), [*parts], at, first, last, gap=length)
    windows = {moments.start: moments.moment(pl.col(first)), moments.end: moments.moment(pl.col(last) + length)}
    ends = Ends.of(first, last, "both", False)
    pairs = join_between(there, found.with_columns(**windows), at, ends, [*parts], disjoint=True)
    return pairs.select(*rows.schema, moments.start, moments.end)


def _bounds(times: Collection, keys: Sequence[str], at: str, first: str, last: str, *, gap: int) -> Collection:
    """The first and the last moment of each session, of the distinct moments of each key."""
    before, after = (next(fresh(stem, {*keys, at, first, last})) for stem in ("before ", "after "))
    beside = times.group_by(*keys).over(at, **{before: lag(at), after: lead(at)})
    begins = (pl.col(at) - pl.col(before) > gap).fill_null(True)
    ends = (pl.col(after) - pl.col(at) > gap).fill_null(True)
    edges = beside.where(begins | ends).select(*keys, **{first: pl.col(at), before: begins, after: ends})
    following = edges.group_by(*keys).over(first, **{last: lead(first)})
    # The edge after one that begins a session is its end, if it does not end it itself.
    whole = pl.when(pl.col(after)).then(pl.col(first)).otherwise(pl.col(last))
    return following.where(pl.col(before)).select(*keys, first, **{last: whole})


def _never_null(key: str, kind: Type) -> list[pl.Expr]:
    """A key as columns without nulls, which a join would not pair."""
    column = pl.col(key)
    if kind.name in _FILLINGS:
        return [column.fill_null(pl.lit(_FILLINGS[kind.name], dtype=kind.polars)), column.is_null()]
    return [pl.struct(column)]
