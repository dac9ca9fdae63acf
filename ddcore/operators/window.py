"""One result of ``over``: a function of the rows around a row, with its frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ddcore.base.digests import Part
from ddcore.operators.frame import Frame

LISTS = ("array_agg", "string_agg")
"""The aggregates that are not the same in the reversed order."""
_MIRRORED = {"first_value": "last_value", "last_value": "first_value"}


@dataclass(frozen=True)
class Window:
    """One result: the function, the columns of its argument and of a second one or its default, its number, its frame,
    and the options of an aggregate.
    """

    name: str
    kind: str
    argument: str | None
    second: str | None
    number: int
    ignore_nulls: bool
    frame: Frame
    options: tuple[Any, ...] = ()

    @property
    def text(self) -> Part:
        """What identifies it."""
        frame = self.frame
        ends = [f"{type(end).__name__} {end!r}" for end in (frame.start, frame.end)]
        rest = [str(self.number), str(self.ignore_nulls), frame.unit, *ends, frame.exclude]
        options = [[type(option).__name__, str(option)] for option in self.options]
        return [self.name, self.kind, self.argument or [], self.second or [], *rest, *options]

    @property
    def is_of_places(self) -> bool:
        """Whether two rows that are equal in the order may have different results."""
        of_rows = self.kind in ("lag", "lead", "row_number", "ntile")
        is_framed = self.kind not in ("rank", "dense_rank", "percent_rank", "cume_dist")
        return of_rows or (is_framed and self.frame.unit == "rows")

    @property
    def mirrored(self) -> Window | None:
        """The same of rows in the reversed order, where its frame begins at the row and has no end; else None.

        The first of several rows that are equal in the order is not the last one of these from the end.
        """
        frame = self.frame
        if self.kind in ("lag", "lead", "nth_value", *LISTS) or frame.start != 0 or frame.end is not None:
            return None
        if self.kind in _MIRRORED and frame.unit != "rows":
            return None
        return replace(self, kind=_MIRRORED.get(self.kind, self.kind), frame=Frame(frame.unit, None, 0, frame.exclude))
