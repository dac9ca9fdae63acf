"""Rows near those that changed in an order: what a function needs that looks a few rows to either side.

A group of many rows is searched by the first column of the order, in which its rows ascend in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.data.encoding import NULL
from ddcore.traces.budget import Budget
from ddcore.traces.sorted_batch import SortedBatch, Spans
from ddcore.traces.trace import Keys, Rows

MOST = 2**63 - 1


@dataclass(frozen=True)
class Reach:
    """How far a function looks to either side of a row: so many rows, so many groups of rows that are equal in the
    order, and so much less or more in the words of the order. ``beyond``: at the distance it looks for the next row,
    however far away that is.
    """

    rows: int = 0
    groups: int = 0
    distance: int = 0
    beyond: bool = False


@dataclass
class Near:
    """The values of the order, of each key, between which results may change, and those between which rows are needed.

    ``some``: the keys for which this is not the whole group. All bounds are inclusive: int64[keys].
    """

    some: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def holds(self, keys: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Whether a result of a key, at a value of the order, may change."""
        result: np.ndarray = ~self.some[keys] | ((words >= self.low[keys]) & (words <= self.high[keys]))
        return result


def rows_of_keys(batch: SortedBatch, keys: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of each key (K, m) among those of its code, from lo[k] up to hi[k]. Mostly these are the same, as the
    first and the last of them tell: a row of another key has the same code by chance.
    """
    some = np.flatnonzero(lo < hi)
    if len(some) == 0:
        return lo, hi
    rows, positions = np.unique(np.concatenate([lo[some], hi[some] - 1]), return_inverse=True)
    words = np.take(batch.take(rows).words[: len(keys)], positions, axis=1)
    wanted = np.take(keys, some, axis=1)
    if (words == np.concatenate([wanted, wanted], axis=1)).all():
        return lo, hi
    narrowed: tuple[np.ndarray, np.ndarray] = kernels.look_up.of_keys(keys, lo, hi, batch.decompress().words)
    return narrowed


def spans_of(batch: SortedBatch, keys: Keys, budget: Budget) -> Spans:
    """The rows of each key."""
    lo, hi = batch.locate(keys.codes, budget)
    return rows_of_keys(batch, keys.words, lo, hi) if len(keys.words) else (lo, hi)


def rows_between(lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows from ``lo[k]`` up to ``hi[k]``, for one k after the other, and the k of each."""
    sizes = hi - lo
    which = np.repeat(np.arange(len(lo)), sizes)
    return np.arange(len(which)) + (lo - (np.cumsum(sizes) - sizes))[which], which


def gathered_between(batches: Sequence[SortedBatch], keys: Keys, values: int, near: Near, budget: Budget) -> Rows:
    """The rows of keys, of those that ``near`` bounds the rows between their bounds. Times have one coordinate."""
    found, counts, word = [], np.zeros(len(keys), np.int64), len(keys.words)
    for batch in batches:
        lo, hi = spans_of(batch, keys, budget)
        if near.some.any():
            after = np.where(near.low[near.some] > NULL, near.low[near.some] - 1, NULL)
            lo[near.some], hi[near.some] = batch.between(
                lo[near.some], hi[near.some], word, after, near.high[near.some]
            )
        some, lo, hi = batch.located(lo, hi)
        some.count(counts, keys.words, (lo, hi))
        found.append((some, (lo, hi)))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    at, columns = offsets[:-1].copy(), np.empty((values + 2, int(offsets[-1])), dtype=np.int64)
    for some, spans in found:
        some.scatter(at, columns, values, keys.words, spans)
    return Rows(offsets, columns[:values], columns[values:-1], columns[-1])


def searchable(
    batches: Sequence[SortedBatch], everything: Sequence[Spans], around: np.ndarray, *, word: int, least: int
) -> np.ndarray:
    """Which keys have ``least`` rows, so that a search pays, and no null in the order. ``everything``: their rows."""
    sizes = sum((hi - lo for lo, hi in everything), np.zeros(around.shape[1], np.int64))
    some: np.ndarray = (sizes >= least) & (around[0] > NULL)
    for batch, (lo, hi) in zip(batches, everything, strict=True):  # nulls come first in a batch, not in the order
        there = np.flatnonzero(some & (hi > lo))
        if len(there):
            first, position = np.unique(lo[there], return_inverse=True)
            some[there[batch.take(first).words[word][position] == NULL]] = False
    return some


def firsts(columns: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Which rows differ from the row before them in one of the columns, the first row included: bool[n]."""
    result = np.ones(len(columns[0]), np.bool_)
    result[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return result


def found_near(
    batches: Sequence[SortedBatch], keys: Keys, values: int, *, reach: Reach, around: np.ndarray, since: np.ndarray,
    budget: Budget,
) -> tuple[Rows, Near]:  # fmt: skip
    """The rows that decide results which changes between two values of the order (``around``, (2, keys)) may change.

    Such a result is that of a row that is no farther than ``reach`` from a change. Only rows
    that are there at all times from ``since[k]`` on are counted, so that it holds at each of them.
    """
    everything = [spans_of(batch, keys, budget) for batch in batches]
    some = searchable(batches, everything, around, word=len(keys.words), least=budget.tuning.searched_rows)
    width = budget.tuning.near_rows + max(reach.rows, reach.groups)
    while True:
        within = rows_within(batches, everything, some, word=len(keys.words), around=around, width=width)
        history = gathered_between(batches, keys, values, within, budget)
        near = _affected(history, within, reach, around, since)
        if near is not None:
            return history, near
        width *= 8


def rows_within(
    batches: Sequence[SortedBatch], everything: Sequence[Spans], some: np.ndarray, *, word: int, around: np.ndarray,
    width: Any,
) -> Near:  # fmt: skip
    """The values between which each batch has at most ``width`` rows on either side of the changes: one number, or
    int64[keys]. Of keys that are not among ``some`` all values.
    """
    near = Near(some, np.full(len(some), NULL), np.full(len(some), MOST))
    which = np.flatnonzero(some)
    width = np.broadcast_to(width, len(some))[which]
    for batch, spans in zip(batches, everything, strict=True):
        lo, hi = (span[which] for span in spans)
        first, last = batch.between(lo, hi, word, around[0, which] - 1, around[1, which])
        for side, position in ((0, first - width - 1), (1, last + width)):
            inside = np.flatnonzero((position >= lo) & (position < hi))
            if len(inside) == 0:
                continue
            rows, back = np.unique(position[inside], return_inverse=True)
            values, at = batch.take(rows).words[word][back], which[inside]
            if side == 0:
                near.low[at] = np.maximum(near.low[at], values + 1)
            else:
                near.high[at] = np.minimum(near.high[at], values - 1)
    return near


def _affected(rows: Rows, within: Near, reach: Reach, around: np.ndarray, since: np.ndarray) -> Near | None:
    """The values between which results may change; None where the rows do not suffice to tell, or to compute them."""
    near = Near(within.some, np.full(len(since), NULL), np.full(len(since), MOST))
    for k in np.flatnonzero(within.some):
        span = slice(int(rows.offsets[k]), int(rows.offsets[k + 1]))
        steady = _steady(rows.words[:, span], rows.times[0, span], rows.diffs[span], int(since[k]))
        below, above = steady[steady < around[0, k]], steady[steady > around[1, k]]
        ends = -int(within.low[k]) - 1, int(within.high[k])
        low = _bound(-below[::-1] - 1, reach, ends[0], -int(around[0, k]) - 1)
        high = _bound(above, reach, ends[1], int(around[1, k]))
        if low is None or high is None:
            return None
        near.low[k], near.high[k] = -low - 1, high
    return near


def _bound(values: np.ndarray, reach: Reach, end: int, nearest: int) -> int | None:
    """The value up to which results may change, of the values behind the changes, which ascend; None: too few.

    ``end``: up to which value there are no others; MOST: there are none at all behind them.
    """
    groups, bounds = np.unique(values), [nearest + reach.distance]
    for known, number in ((values, reach.rows), (groups, reach.groups), (groups, int(reach.beyond))):
        if number > len(known):
            return MOST if end == MOST else None
        bounds += [int(known[number - 1])] if number else []
    if reach.beyond:  # a row that far behind the next one finds that one
        bounds.append(bounds[-1] + reach.distance)
    bound = max(bounds)
    behind = (
        len(values) - np.searchsorted(values, bound, "right"),
        len(groups) - np.searchsorted(groups, bound, "right"),
    )
    farthest = bound + reach.distance
    is_found = not reach.beyond or (len(groups) > 0 and int(groups[-1]) >= farthest)
    if behind[0] >= reach.rows and behind[1] >= reach.groups and farthest <= end and is_found:
        return bound
    return MOST if end == MOST else None


def _steady(words: np.ndarray, times: np.ndarray, diffs: np.ndarray, since: int) -> np.ndarray:
    """The first words, ascending, of rows that are there at ``since`` and do not change after it."""
    rows, latest, counts = distinct_rows(words, times, diffs)
    result: np.ndarray = rows[0, (latest <= since) & (counts > 0)]
    return result


def distinct_rows(words: np.ndarray, times: np.ndarray, diffs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct rows of some updates, sorted by their words (columns, n); of each the last time at which it changes,
    and how often it is there then.
    """
    order = np.lexsort(words[::-1])
    words, times, diffs = words[:, order], times[order], diffs[order]
    heads = np.flatnonzero(firsts(words))
    return words[:, heads], np.maximum.reduceat(times, heads), np.add.reduceat(diffs, heads)
