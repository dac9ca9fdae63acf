"""One result of ``over``: a function of the rows around a row, with its frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ddcore.base.digests import Part
from ddcore.operators.frame import Frame

LISTS = ("array_agg", "string_agg")
"""The aggregates that are not the same in the reversed order."""
_MIRRORED = {"first_value": "last_value", "last_value": "first_value", "nth_value": "last_value"}
MOST_VALUES = 16
"""How many values that are not null a state may have."""
SHARES = ("percent_rank", "cume_dist")
"""The functions of which each result has the number of rows."""
_OF_PLACE = "lag", "lead", "row_number", "rank", "dense_rank", "ntile", *SHARES
_SAME_OF_COPIES = (  # of all rows on one side
    "first_value", "last_value", "min", "max", "any", "all", "bit_and", "bit_or", "min_by", "max_by",
)  # fmt: skip


@dataclass(frozen=True)
class Window:
    """One result: the function, the columns of its argument and of a second one or its default, its number, its frame,
    and the options of an aggregate. The number of a ``last_value`` counts from the last one. ``distinct``: each value
    of the frame counts once. ``by``: the columns of a list's own order. ``backwards``: a list begins with the last row
    of the frame.
    """

    name: str
    kind: str
    argument: str | None
    second: str | None
    number: int
    ignore_nulls: bool
    frame: Frame
    options: tuple[Any, ...] = ()
    distinct: bool = False
    by: tuple[str, ...] = ()
    backwards: bool = False

    @property
    def text(self) -> Part:
        """What identifies it."""
        frame = self.frame
        ends = [f"{type(end).__name__} {end!r}" for end in (frame.start, frame.end)]
        rest = [str(self.number), str(self.ignore_nulls), frame.unit, *ends, frame.exclude]
        options = [[type(option).__name__, str(option)] for option in self.options]
        ways = [["by", *self.by] if self.by else [], *(["distinct"] if self.distinct else [])]
        ways = [*filter(None, ways), *(["backwards"] if self.backwards else [])]
        return [self.name, self.kind, self.argument or [], self.second or [], *rest, *options, *ways]

    @property
    def columns(self) -> list[str]:
        """What it is computed from."""
        return [name for name in (self.argument, self.second, *self.by) if name is not None]

    @property
    def is_sorted(self) -> bool:
        """Whether it is a list that has an order or distinct values of its own."""
        return self.kind in LISTS and bool(self.options) and bool(self.by or self.options[1])

    @property
    def has_frame(self) -> bool:
        """Whether its result is one of the rows in its frame."""
        return self.kind not in _OF_PLACE

    @property
    def tells_copies(self) -> bool:
        """Whether copies of a row may have different results."""
        frame = self.frame
        if not self.has_frame:
            return self.kind in ("lag", "lead", "row_number", "ntile")
        is_same = self.kind in _SAME_OF_COPIES and self.number == 1 and frame.exclude == "nothing"
        return frame.unit == "rows" and not (is_same and {frame.start, frame.end} == {None, 0})

    @property
    def mirrored(self) -> Window | None:
        """The same of rows in the reversed order, where its frame begins at the row and has no end; else None."""
        frame = self.frame
        if not self.has_frame or frame.start != 0 or frame.end is not None:
            return None
        if self.kind == "nth_value" and (not self.ignore_nulls or self.number > MOST_VALUES):
            return None
        kind, frame = _MIRRORED.get(self.kind, self.kind), Frame(frame.unit, None, 0, frame.exclude)
        return replace(self, kind=kind, frame=frame, backwards=self.kind in LISTS)
