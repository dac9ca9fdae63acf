"""One result of ``over``: a function of the rows around a row, with its frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ddcore.base.digests import Part
from ddcore.operators.frame import Frame

LISTS = ("array_agg", "string_agg")
"""The aggregates that are not the same in the reversed order."""
_MIRRORED = {"first_value": "last_value", "last_value": "first_value"}
SHARES = ("percent_rank", "cume_dist")
"""The functions of which each result has the number of rows."""
_OF_PLACE = "lag", "lead", "row_number", "rank", "dense_rank", "ntile", *SHARES
_SAME_OF_COPIES = "first_value", "last_value", "min", "max", "any", "all"  # of all rows on one side


@dataclass(frozen=True)
class Window:
    """One result: the function, the columns of its argument and of a second one or its default, its number, its frame,
    and the options of an aggregate. ``backwards``: a list begins with the last row of the frame.
    """

    name: str
    kind: str
    argument: str | None
    second: str | None
    number: int
    ignore_nulls: bool
    frame: Frame
    options: tuple[Any, ...] = ()
    backwards: bool = False

    @property
    def text(self) -> Part:
        """What identifies it."""
        frame = self.frame
        ends = [f"{type(end).__name__} {end!r}" for end in (frame.start, frame.end)]
        rest = [str(self.number), str(self.ignore_nulls), frame.unit, *ends, frame.exclude]
        options = [[type(option).__name__, str(option)] for option in self.options]
        ways = ["backwards"] if self.backwards else []
        return [self.name, self.kind, self.argument or [], self.second or [], *rest, *options, *ways]

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
        is_same = self.kind in _SAME_OF_COPIES and frame.exclude == "nothing"
        return frame.unit == "rows" and not (is_same and {frame.start, frame.end} == {None, 0})

    @property
    def mirrored(self) -> Window | None:
        """The same of rows in the reversed order, where its frame begins at the row and has no end; else None."""
        frame = self.frame
        if not self.has_frame or self.kind == "nth_value" or frame.start != 0 or frame.end is not None:
            return None
        kind, frame = _MIRRORED.get(self.kind, self.kind), Frame(frame.unit, None, 0, frame.exclude)
        return replace(self, kind=kind, frame=frame, backwards=self.kind in LISTS)
