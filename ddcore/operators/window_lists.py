"""Lists and joined texts of the rows in frames: a frame costs its rows, and equal frames beside each other are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.operators.nearby import rows_between
from ddcore.operators.partitions import Spans
from ddcore.operators.window import Window

Sortable = tuple[np.ndarray, np.ndarray]
"""Two columns of integers by which rows are sorted."""


@dataclass(frozen=True)
class OwnOrder:
    """The order of a list that is not that of the rows: the place of each row in it. Of distinct values also the number
    of each row's value, and its place where of several rows with a value the first one stays.
    """

    positions: np.ndarray
    distinct: tuple[np.ndarray, np.ndarray] | None

    @classmethod
    def of(cls, window: Window, sortable: Callable[[str, bool, bool], Sortable], values: np.ndarray) -> OwnOrder | None:
        """That of a list that has one. ``sortable``: of a column, and whether it descends and has its nulls first, what
        sorts rows; ``values``: the words of the argument.
        """
        if not window.is_sorted:
            return None
        argument, (order, distinct, *_) = str(window.argument), window.options
        sorts = [sortable(name, *flags) for name, flags in zip(window.by, order, strict=True)]
        positions = _positions([*sorts, sortable(argument, False, False)])
        firsts = [sortable(name, False, True) for name in (argument, *window.by)]
        return cls(positions, (values, _positions(firsts)) if distinct else None)

    def sorted(self, rows: np.ndarray, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of frames, which ascend, in this order."""
        if self.distinct is not None:
            values, positions = self.distinct
            order = np.lexsort((positions[rows], frames))
            rows, frames = rows[order], frames[order]
            same = (values[rows[1:]] == values[rows[:-1]]) & (frames[1:] == frames[:-1])
            new = np.concatenate([np.ones(1, np.bool_), ~same])[: len(rows)]
            rows, frames = rows[new], frames[new]
        order = np.lexsort((self.positions[rows], frames))
        return rows[order], frames[order]


def _positions(sorts: Sequence[Sortable]) -> np.ndarray:
    order = np.lexsort([column for pair in sorts[::-1] for column in pair[::-1]])
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return positions


def lists(
    window: Window, values: pl.Series, counts: np.ndarray, spans: Spans, known: tuple[np.ndarray, pl.Series], *,
    own: OwnOrder | None,
) -> pl.Series:  # fmt: skip
    """The list, or the text, of each frame, null of no rows.

    ``counts``: bool[n], which rows are listed. ``known``: rows that stand for all before them, and the results there.
    ``own``: another order than that of the rows.
    """
    starts, sizes, (positions, results) = np.arange(len(values)), counts.astype(np.int64), known
    if len(positions):
        lengths = results.list.len() if window.kind == "array_agg" else results.is_not_null()
        more = lengths.fill_null(0).cast(pl.Int64).to_numpy()
        starts[positions], sizes[positions] = len(values) + np.cumsum(more) - more, more
        there = results.drop_nulls()
        if window.kind == "array_agg":
            there = (there.list.reverse() if window.backwards else there).explode()
        values = pl.concat([values, there])
    elements, _ = rows_between(starts, starts + sizes)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    ends = np.stack([before[spans[0]], before[spans[1]]])
    is_new = np.concatenate([np.ones(1, np.bool_), (ends[:, :, 1:] != ends[:, :, :-1]).any(axis=(0, 1))])
    lows, highs = (side.T.ravel() for side in ends[:, :, is_new])
    at, which = rows_between(lows, highs)
    if window.backwards:
        at = lows[which] + highs[which] - 1 - at
    rows, of_frame = elements[at], which // len(spans[0])
    if own is not None:
        rows, of_frame = own.sorted(rows, of_frame)
    frames = pl.DataFrame({"frame": of_frame, "value": _taken(values, rows)})
    value = pl.col("value").str.join(window.options[2]) if window.kind == "string_agg" else pl.col("value")
    frames = frames.group_by("frame", maintain_order=True).agg(value)
    found = np.full(int(is_new.sum()), len(frames))
    found[frames["frame"].to_numpy()] = np.arange(len(frames))
    return _taken(frames["value"].extend_constant(None, 1), found[np.cumsum(is_new) - 1])


def _taken(values: pl.Series, rows: np.ndarray) -> pl.Series:
    return values[pl.Series(rows, dtype=pl.UInt32)]
