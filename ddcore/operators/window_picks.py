"""Aggregates of frames that pick a value: by its place among them, by how often it is there, by another one; and bits.

Values are numbered in their order. A tree of these numbers, with what is in the frame, moves along the rows with it:
it has the value of a place, and the most frequent one. Ends are maxima of numbers of rows in the order of ``by``.
"""

from __future__ import annotations

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.operators.partitions import Spans, extremes
from ddcore.operators.window import Window

PICKED = ("median", "quantile", "mode")
"""The aggregates of values in their order."""
ENDS = ("min_by", "max_by")
BITS = ("bit_and", "bit_or", "bit_xor")


def picked(window: Window, values: np.ndarray, dtype: Type, starts: np.ndarray, spans: Spans) -> np.ndarray:
    """The words of a quantile or of the most frequent value of each frame; ``starts``: where partitions begin."""
    there = values != encoding.NULL
    distinct, at, back = np.unique(encoding.rank_words(values, dtype)[0][there], return_index=True, return_inverse=True)
    numbers = np.full(len(values), -1, np.int64)
    numbers[there] = back
    spans = np.ascontiguousarray(spans[0]), np.ascontiguousarray(spans[1])
    if window.distinct:
        count = kernels.aggregating.COUNT_DISTINCT
        size, _ = kernels.windows.slide(count, 1, values, np.maximum(numbers, 0), len(distinct), starts, *spans)
    else:
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(there)])
        size = (before[spans[1]] - before[spans[0]]).sum(axis=0)
    positions, share = _positions(window, size)
    found = kernels.windows.pick(window.kind == "mode", window.distinct, len(distinct), numbers, *spans, positions)
    words: np.ndarray = np.append(values[there][at], encoding.NULL)[found]
    first: np.ndarray = words[0]
    if window.kind != "median":
        return first
    least, most = (encoding.floats_of(side) for side in words)
    with np.errstate(invalid="ignore", over="ignore"):
        between = np.where(share == 0, least, least + (most - least) * share)
    return np.where(size > 0, encoding.words_of_floats(between), encoding.NULL)


def _positions(window: Window, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions of values, from 0, of which a result is made, (1 or 2, n); and its share of the way to the last."""
    if window.kind == "mode":
        return np.zeros((1, len(size)), np.int64), size
    if window.kind == "quantile":
        return (np.maximum(np.ceil(size * window.options[0]), 1) - 1).astype(np.int64)[np.newaxis], size
    position = np.maximum(size - 1, 0) * window.options[0]
    return np.stack([np.floor(position), np.ceil(position)]).astype(np.int64), position - np.floor(position)


def at_end(
    kind: str, sides: tuple[np.ndarray, np.ndarray], dtypes: tuple[Type, Type], spans: Spans
) -> tuple[np.ndarray, np.ndarray]:
    """The words of the value in the row of each frame with the least or the greatest ``by``, of several the least; and
    of that ``by``. ``sides``: the words of both.
    """
    values, by = (encoding.rank_words(words, dtype)[0] for words, dtype in zip(sides, dtypes, strict=True))
    there = (sides[0] != encoding.NULL) & (sides[1] != encoding.NULL)
    order = np.lexsort((values, by if kind == "min_by" else ~by))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    rows = np.append(order, len(order))[~extremes(np.where(there, ~position, ~len(order)), spans, nothing=~len(order))]
    found = [np.append(words, encoding.NULL)[rows] for words in sides]
    return found[0], found[1]


def bits(kind: str, values: np.ndarray, spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    """The bits that are set in all, in any or in an odd number of the values of each frame, and whether it has any."""
    there = values != encoding.NULL
    combine, nothing = {"bit_and": (np.bitwise_and, -1), "bit_or": (np.bitwise_or, 0)}.get(kind, (np.bitwise_xor, 0))
    words = np.where(there, values, nothing)
    if kind == "bit_xor":
        before = np.concatenate([np.zeros(1, np.int64), np.bitwise_xor.accumulate(words)])
        results = np.bitwise_xor.reduce(before[spans[0]] ^ before[spans[1]], axis=0)
    else:
        results = extremes(words, spans, combine, nothing)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(there)])
    is_there = (before[spans[1]] - before[spans[0]]).sum(axis=0) > 0
    return np.where(is_there, results, encoding.NULL), is_there
