"""As-of joins: each row with the partner nearest to it in an order. They are programs of :func:`join_between`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import polars as pl

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.operators import arguments, window_functions
from ddcore.operators.ends import Closed, Ends
from ddcore.operators.join import key_pairs
from ddcore.program.joins import join_between, padded
from ddcore.program.linear import C, beside

Direction = Literal["backward", "forward"]
Outer = Literal["inner", "left"]


@dataclass(frozen=True)
class Nearest:
    """Which partner ``join_asof`` takes: that of the greatest value not above a row's (``backward``), or of the least
    not below it; ``exact``: one with the same value, too.
    """

    direction: str
    exact: bool

    @classmethod
    def of(cls, direction: Direction, exact: bool) -> Nearest:
        """What ``join_asof`` is given. Raises ProgramError."""
        kind = arguments.choice(direction, get_args(Direction), "join_asof: direction")
        return cls(kind, arguments.flag(exact, "join_asof: exact"))

    @property
    def closed(self) -> Closed:
        """Which end belongs to the interval between a partner's value and that of the next one."""
        return "left" if (self.direction == "backward") == self.exact else "right"


def join_asof(
    rows: C,
    other: Any,
    columns: tuple[str, str | None],
    on: str | Sequence[str] | Mapping[str, str],
    nearest: Nearest,
    *,
    how: Outer,
    allow_negative: bool,
) -> C:
    """``Collection.join_asof``. Raises ProgramError.

    The values of partners are the ends of intervals, and each row lies in one.
    """
    where = "join_asof"
    partners = beside(other, rows, where)
    (column,) = arguments.names_of([columns[0]], where)
    (time,) = arguments.names_of([columns[0] if columns[1] is None else columns[1]], where)
    pairs = key_pairs(rows.schema, partners.schema, on, where)
    _require_nearest(rows.schema, partners.schema, column, time, pairs)
    keys = list(dict.fromkeys(pairs.values()))
    equal_ones, start, end = _unused(partners.schema, "equal", "start", "end")
    known: Any = partners.where(*(pl.col(name).is_not_null() for name in (*keys, time)))
    known = known.with_columns(**{equal_ones: pl.lit(0, dtype=pl.Int64)})
    first = known.group_by(*keys, time).top_k(1, equal_ones, allow_negative=allow_negative)
    is_backward = nearest.direction == "backward"
    beyond = window_functions.lead(time) if is_backward else window_functions.lag(time)
    bounded = (
        first.group_by(*keys)
        .over(time, **{end: beyond})
        .select(*partners.columns, **{start: pl.col(time), end: pl.col(end)})
    )
    lower, upper = (start, end) if is_backward else (end, start)
    joined: C = join_between(
        rows, bounded, column, Ends.of(lower, upper, nearest.closed, True), pairs, disjoint=is_backward
    )
    if arguments.choice(how, get_args(Outer), "join_asof: how") == "inner":
        return joined
    return joined.concat(padded(rows.concat(joined.select(*rows.columns).negate()), joined))


def _require_nearest(rows: Schema, partners: Schema, column: str, time: str, pairs: Mapping[str, str]) -> None:
    """Raise ProgramError where rows cannot be looked up by their order."""
    arguments.require(rows, column, "join_asof")
    arguments.require(partners, time, "join_asof")
    at = f"{caller()}: join_asof: "
    if rows[column] != partners[time]:
        what = f"{column} is {rows[column]} and {time} is {partners[time]}"
        raise ProgramError(f"{at}{what}", "cast one side with select()")
    if rows[column].is_pooled:
        raise ProgramError(
            f"{at}{column} is {rows[column]}, which is not looked up by its order",
            "compare numbers, dates, timestamps or booleans",
        )
    if column in pairs or time in pairs.values():
        raise ProgramError(f"{at}{column if column in pairs else time} is a key", "leave it out of on")


def _unused(schema: Schema, *names: str) -> list[str]:
    """These names, or longer ones, that no column has."""
    longest = max(map(len, schema), default=0)
    return [name if name not in schema else name.ljust(longest + 1, "_") for name in names]
