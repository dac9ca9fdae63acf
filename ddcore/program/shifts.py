"""Frames that end before or behind the row, or begin there, as values of a frame that ends or begins at a row nearby.

A sum of all rows up to three before this one is the running sum of the row three before. So it is found in two steps:
what adds up from row to row, and a look at a row so far away. The last value before a row that is not null is the
running last value of the row before, and so on towards the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from ddcore.base.schema import Schema
from ddcore.operators.frame import Frame
from ddcore.operators.window import MOST_VALUES, Window
from ddcore.text.wording import fresh

_ZERO = "count", "count_distinct", "sum"
"""The aggregates that are 0 of no rows."""


@dataclass(frozen=True)
class Shift:
    """A result as one of the results ``inner``, that of a row nearby: ``outer``. ``default``: the column that has what
    it is where there is none.
    """

    inner: Window
    outer: Window
    default: str | None = None

    @classmethod
    def of(cls, window: Window, name: str) -> Shift | None:
        """With ``name`` for the column between, or None."""
        if window.kind in ("lag", "lead"):
            return cls._of_neighbour(window, name)
        frame = window.frame.simplified
        window = replace(window, frame=frame)
        if not window.has_frame or frame.exclude != "nothing" or (frame.start is None) == (frame.end is None):
            return None
        backwards = frame.end is None
        distance = frame.start if backwards else frame.end
        nothing = type(distance)(0)
        inside = distance < nothing if backwards else distance > nothing  # from there to this row is a frame
        if not distance:
            return None
        inner = replace(
            window, name=name, frame=Frame(frame.unit, 0, None) if backwards else Frame(frame.unit, None, 0)
        )
        ends = (min(distance, nothing), max(distance, nothing)) if inside else (distance, distance)
        if frame.unit == "range" and not inside:  # there may be no row near that distance
            ends = (distance, None) if backwards else (None, distance)
        kind = "first_value" if backwards else "last_value"
        outer = Window(window.name, kind, name, None, 1, ignore_nulls=False, frame=Frame(frame.unit, *ends))
        return cls(inner, outer)

    @classmethod
    def _of_neighbour(cls, window: Window, name: str) -> Shift | None:
        if not window.ignore_nulls or not 0 < window.number <= MOST_VALUES:
            return None
        kind, ends = ("last_value", (None, 0)) if window.kind == "lag" else ("first_value", (0, None))
        inner = replace(window, name=name, kind=kind, second=None, frame=Frame("rows", *ends))
        outer = replace(window, argument=name, second=None, number=1, ignore_nulls=False)
        return cls(inner, outer, window.second)

    def result(self, found: pl.Expr, results: Schema) -> pl.Expr:
        """What the outer window has ``found``, or what there is else."""
        if self.default is not None:
            return pl.coalesce(found, pl.col(self.default))
        if self.inner.kind in _ZERO:
            return pl.coalesce(found, pl.lit(0).cast(results[self.inner.name].polars))
        return found


def shifts(windows: Sequence[Window], schema: Schema) -> dict[str, Shift]:
    """Those that there are of windows, by the name of the result. ``schema``: names that are taken."""
    taken = {*schema, *(window.name for window in windows)}
    names = fresh("_there_", taken)
    found = ((window.name, Shift.of(window, next(names))) for window in windows)
    return {name: shift for name, shift in found if shift is not None}
