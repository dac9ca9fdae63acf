"""Frames: which rows around a row an aggregate or a window function of ``over`` looks at."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, Self, get_args

from ddcore.base.errors import ProgramError
from ddcore.base.record import record
from ddcore.base.schema import Type
from ddcore.base.source_line import caller
from ddcore.operators import arguments
from ddcore.text.wording import brief

Exclude = Literal["nothing", "row", "peers", "ties"]
_FARTHEST = 2**40  # rows or peer groups: more than there are
_MICROSECOND, _DAY = timedelta(microseconds=1), timedelta(days=1)


@record
class Frame:
    """The rows from ``start`` to ``end`` of the current one, negative before it; None: to the partition's end.

    ``unit``: what is counted: "rows", "groups" of rows that are equal in the order, or for "range" the order's value.
    ``exclude``: what is left out again: the current row, with its peers, or only these.
    """

    unit: str
    start: Any
    end: Any
    exclude: str = "nothing"

    @property
    def has_distance(self) -> bool:
        """Whether it compares values of the order with a distance: a distance of 0 is the peers, whatever the types."""
        return self.unit == "range" and bool(self.start or self.end)

    @property
    def simplified(self) -> Frame:
        """The same rows without ``exclude``, where another frame has them: those before the row, or before its peers;
        or behind.
        """
        ends = {self.start, self.end}
        if self.exclude == "row" and self.unit == "rows" and 0 in ends:
            start, end = (1 if self.start == 0 else self.start), (-1 if self.end == 0 else self.end)
            return Frame("rows", start, end) if (self.start or 0) <= 0 <= (self.end or 0) else self
        if self.exclude == "peers" and ends == {None, 0}:
            return Frame("groups", None, -1) if self.start is None else Frame("groups", 1, None)
        return self

    def words(self, kind: Type) -> tuple[Any, Any]:
        """Both ends of a range as what is added to the words of an order of this type; for floats, to the floats."""
        return _distance(kind, self.start), _distance(kind, self.end)


WHOLE, TO_PEERS = Frame("range", None, None), Frame("range", None, 0)
"""The frames of what has none: the whole partition without an order, else up to the current row and its peers."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Framed:
    """What may have a frame."""

    frame: Frame | None = None

    def rows_between(self, start: int | None, end: int | None, *, exclude: Exclude = "nothing") -> Self:
        """Of the rows from ``start`` to ``end``, counted from the current one: -2 is two rows before it.

        None: to the partition's first or last row. ``exclude``: without the current "row", without its "peers" (rows
        that are equal in the order, itself among them), or without its "ties" (its peers but itself).
        """
        return self._framed("rows", start, end, exclude)

    def groups_between(self, start: int | None, end: int | None, *, exclude: Exclude = "nothing") -> Self:
        """Like :meth:`rows_between`, counted in groups of rows that are equal in the order."""
        return self._framed("groups", start, end, exclude)

    def range_between(self, start: Any, end: Any, *, exclude: Exclude = "nothing") -> Self:
        """Of the rows whose value of the order is from ``start`` to ``end`` away: a number, or a timedelta for a date
        or a timestamp. The order is then one column. 0 means the peers of the row.
        """
        for value in (start, end):
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal | timedelta | None):
                raise ProgramError(
                    f"{caller()}: range_between: {brief(value)} is no distance", "give a number, a timedelta or None"
                )
            if isinstance(value, float | Decimal) and math.isnan(value):
                raise ProgramError(f"{caller()}: range_between: NaN is no distance", "give a number")
        arguments.choice(exclude, get_args(Exclude), "range_between: exclude")
        return replace(self, frame=Frame("range", start, end, exclude))

    def _framed(self, unit: str, start: Any, end: Any, exclude: str) -> Self:
        where = f"{unit}_between"
        for value in (start, end):
            if isinstance(value, bool) or not isinstance(value, int | None):
                raise ProgramError(
                    f"{caller()}: {where}: {brief(value)} is no number of {unit}", "give a whole number or None"
                )
        arguments.choice(exclude, get_args(Exclude), f"{where}: exclude")
        first, last = (None if end is None else max(-_FARTHEST, min(end, _FARTHEST)) for end in (start, end))
        return replace(self, frame=Frame(unit, first, last, exclude))


def _distance(kind: Type, value: Any) -> Any:
    """Raises ProgramError for a distance that values of this type do not have."""
    if value is None:
        return None
    unit = {"date": _DAY, "timestamp": _MICROSECOND}.get(kind.name)
    if unit is not None and (isinstance(value, timedelta) or value == 0):
        days = timedelta() if value == 0 else value
        if days % unit == timedelta():
            return days // unit
        raise ProgramError(f"{caller()}: over: {value} is no whole number of days", "give whole days for a date")
    if unit is None and not isinstance(value, timedelta):
        if kind.name == "float64":
            return float(value)
        scaled = Decimal(value) * 10 ** (kind.scale if kind.name == "decimal" else 0)
        if kind.name in ("int64", "decimal") and not kind.is_wide and scaled == int(scaled):
            return max(-(2**63), min(int(scaled), 2**63 - 1))
    hint = {"date": "a timedelta of days", "timestamp": "a timedelta", "int64": "a whole number"}.get(kind.name)
    raise ProgramError(
        f"{caller()}: over: range_between: {brief(value)} is no distance of {kind}",
        f"give {hint or 'a number with no more digits'}, or order by one number, date or timestamp",
    )
