"""The words of window functions over sorted partitions, of all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.operators.partitions import Partitions, Spans, extremes
from ddcore.operators.window import Window


def number(window: Window, rows: Partitions) -> np.ndarray:
    """What depends on the place of a row alone."""
    start, end = rows.whole
    size, position = end - start, rows.positions - start
    result: np.ndarray
    match window.kind:
        case "row_number":
            result = position + 1
        case "rank":
            result = rows.peers[0] - start + 1
        case "dense_rank":
            result = rows.group - rows.group[start] + 1
        case "ntile":
            result = tile(window.number, position, size)
        case _:
            result = share(window, rows, np.zeros(0, np.int64), [])[0]
    return result


def share(
    window: Window, rows: Partitions, positions: np.ndarray, known: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The share of the rows that come before each, or up to its peers, and the number of rows. ``known``: both of rows
    ``positions``, of which the rows before and many behind are missing.
    """
    (start, end), is_rank = rows.whole, window.kind == "percent_rank"
    size, counts = end - start, rows.peers[0] - start if is_rank else rows.peers[1] - start
    if len(positions):
        partition, before = rows.partition[positions], np.zeros((2, int(rows.partition[-1]) + 1), np.int64)
        shares, sizes = encoding.floats_of(known[0]), known[1]
        so_far = np.rint(shares * (sizes - 1 if is_rank else sizes)).astype(np.int64)
        before[:, partition] = so_far - counts[positions], sizes
        counts = counts + before[0, rows.partition]
        size = np.where(before[1, rows.partition] > 0, before[1, rows.partition], size)
    return encoding.words_of_floats(counts / (np.maximum(size - 1, 1) if is_rank else size)), size


def nth_value(
    window: Window, rows: Partitions, values: np.ndarray, ends: np.ndarray,
    known: tuple[np.ndarray, np.ndarray, Sequence[np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """A value of the rows from the first one on up to ``ends``, and how many rows up to it are there.

    ``known``: the rows that stand for all before them, bool[n] which ones are in their frames, and both results there.
    """
    positions, inside, columns = known
    counts = values != encoding.NULL if window.ignore_nulls else np.ones(len(values), np.bool_)
    counts = counts & ~inside
    listed, before = np.flatnonzero(counts), np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    there = np.zeros((2, int(rows.partition[-1]) + 1), np.int64)
    if len(positions):
        there[:, rows.partition[positions]] = np.stack([*columns])
    so_far, number = there[:, rows.partition]
    more, missing = before[ends] - before[rows.whole[0]], window.number - number
    result = np.where(missing > 0, encoding.NULL, so_far)
    found = np.flatnonzero((missing > 0) & (missing <= more))
    result[found] = values[listed[before[rows.whole[0][found]] + missing[found] - 1]]
    return result, np.minimum(number + more, window.number)


def last_values(
    window: Window, rows: Partitions, values: np.ndarray, ends: np.ndarray,
    known: tuple[np.ndarray, np.ndarray, Sequence[np.ndarray]],
) -> list[np.ndarray]:  # fmt: skip
    """The ``window.number`` last values that are not null of the rows from the first one on up to ``ends``, the very
    last one last. ``known`` as for :func:`nth_value`.
    """
    (positions, inside, columns), number = known, window.number
    counts = (values != encoding.NULL) & ~inside
    listed, before = np.flatnonzero(counts), np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    there = np.full((number + 1, int(rows.partition[-1]) + 1), encoding.NULL)
    if len(positions):
        there[1:, rows.partition[positions]] = np.stack([*columns])[::-1]
    more, results = before[ends] - before[rows.whole[0]], list[np.ndarray]()
    for back in range(number, 0, -1):
        result = there[np.clip(back - more, 0, number), rows.partition]
        new = np.flatnonzero(more >= back)
        result[new] = values[listed[before[ends[new]] - back]]
        results.append(result)
    return results


def tile(parts: int, position: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The part, from 1, of rows number ``position``, from 0, of partitions of ``size`` rows: the first ones have one
    row more.
    """
    short, longer = size // parts, size % parts
    before = longer * (short + 1)
    late = longer + (position - before) // np.maximum(short, 1)
    result: np.ndarray = np.where(position < before, position // (short + 1), late) + 1
    return result


def _listed(window: Window, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that count, and for each row, and the end, how many of them come before it."""
    counts = values != encoding.NULL if window.ignore_nulls else np.ones(len(values), np.bool_)
    return np.flatnonzero(counts), np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def neighbour(window: Window, rows: Partitions, values: np.ndarray, default: Any) -> np.ndarray:
    """The values of rows before or after."""
    if window.number == 0:
        return values
    listed, before = _listed(window, values)
    start, end = rows.whole
    wanted = before[:-1] - window.number if window.kind == "lag" else before[1:] + (window.number - 1)
    there = (wanted >= before[start]) & (wanted < before[end])
    positions = listed[np.where(there, wanted, 0)] if len(listed) else rows.positions
    result: np.ndarray = np.where(there, values[positions], default)
    return result


def value(window: Window, values: np.ndarray, spans: Spans) -> np.ndarray:
    """The first, the last or another value of each frame."""
    listed, before = _listed(window, values)
    lows, highs = before[spans[0]], before[spans[1]]
    sizes = highs - lows
    left = sizes.sum(axis=0) - window.number if window.kind == "last_value" else np.full(len(values), window.number - 1)
    result = np.full(len(values), encoding.NULL, dtype=np.int64)
    for low, size in zip(lows, sizes, strict=True):
        there = np.flatnonzero((left >= 0) & (left < size))
        result[there] = values[listed[low[there] + left[there]]]
        left = left - size  # below 0 once it was there
    return result


def extreme(kind: str, values: np.ndarray, dtype: Type, spans: Spans) -> np.ndarray:
    """The least or the greatest value of each frame that is not null."""
    ranks, back = encoding.rank_words(values, dtype)
    nulls = values == encoding.NULL
    best = extremes(np.where(nulls, -(2**63), ranks if kind == "MAX" else ~ranks), spans)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(~nulls)])
    there = (before[spans[1]] - before[spans[0]]).sum(axis=0) > 0
    best = best if kind == "MAX" else ~best
    if back is not None and len(back):
        best = back[np.where(there, best, 0)]
    return np.where(there, best, encoding.NULL)
