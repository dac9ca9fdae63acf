"""Lists and joined texts of the rows in frames: a frame costs its rows, and equal frames beside each other are one."""

from __future__ import annotations

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.operators.nearby import rows_between
from ddcore.operators.partitions import Spans
from ddcore.operators.window import Window


def lists(window: Window, values: pl.Series, counts: np.ndarray, spans: Spans, known: tuple[np.ndarray, pl.Series]
) -> pl.Series:  # fmt: skip
    """The list, or the text, of each frame, null of no rows.

    ``counts``: bool[n], which rows are listed. ``known``: rows that stand for all before them, and the results there.
    """
    starts, sizes, (places, results) = np.arange(len(values)), counts.astype(np.int64), known
    if len(places):
        lengths = results.list.len() if window.kind == "array_agg" else results.is_not_null()
        more = lengths.fill_null(0).cast(pl.Int64).to_numpy()
        starts[places], sizes[places] = len(values) + np.cumsum(more) - more, more
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
    frames = pl.DataFrame({"frame": which // len(spans[0]), "value": _taken(values, elements[at])})
    value = pl.col("value").str.join(window.options[2]) if window.kind == "string_agg" else pl.col("value")
    frames = frames.group_by("frame", maintain_order=True).agg(value)
    found = np.full(int(is_new.sum()), len(frames))
    found[frames["frame"].to_numpy()] = np.arange(len(frames))
    return _taken(frames["value"].extend_constant(None, 1), found[np.cumsum(is_new) - 1])


def _taken(values: pl.Series, rows: np.ndarray) -> pl.Series:
    return values[pl.Series(rows, dtype=pl.UInt32)]
