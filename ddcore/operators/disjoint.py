"""Intervals that never overlap within a key: those that may hold a value are found from the value on, backwards.

An interval that is there at all times from some time on ends the search: one that begins before it cannot reach beyond
its beginning then. So of a key with a million sessions a new row reads a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ddcore.base.distinct import distinct
from ddcore.base.lazy import numpy as np
from ddcore.data.encoding import NULL
from ddcore.operators.nearby import distinct_rows, firsts, rows_between, rows_within, spans_of
from ddcore.traces.budget import Budget
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import Keys

IsSome = Callable[[ColumnBatch], np.ndarray]
"""Which intervals hold any value at all."""


@dataclass(frozen=True)
class Probes:
    """Values that are looked up, by ascending key and value: an interval that holds one begins at ``limits`` or before,
    and what is there at times before ``since`` only does not matter: int64[n] each. Times have one coordinate.
    """

    keys: Keys
    limits: np.ndarray
    since: np.ndarray

    @classmethod
    def of(cls, new: ColumnBatch, key_words: int | None, back: bool) -> Probes:
        """The values of new rows, in the first column behind the key; None: they are the key, and all intervals have
        one. ``back``: an interval holds its beginning.
        """
        columns = [new.codes] if key_words is None else [new.codes, *new.words[: key_words + 1]]
        positions = np.flatnonzero(firsts(columns))
        codes = np.zeros(len(positions), np.int64) if key_words is None else new.codes[positions]
        words = np.ascontiguousarray(np.take(np.stack([*new.words[:key_words]]), positions, axis=1)
                                     if key_words else np.empty((0, len(positions)), np.int64))  # fmt: skip
        limits = columns[-1][positions] + (back - 1)
        return cls(Keys(codes, words), limits, np.minimum.reduceat(new.times[0], positions))

    def __len__(self) -> int:
        return len(self.limits)


def holding(
    batches: Sequence[SortedBatch], probes: Probes, is_some: IsSome, budget: Budget
) -> list[ColumnBatch] | None:
    """All updates of the intervals that may hold one of the values, each once; None where reading whole keys is no more
    work: these have few rows for each value (``Tuning.near_ratio``).
    """
    word, large = len(probes.keys.words), budget.tuning.searched_rows
    spans = [spans_of(batch, probes.keys, budget) for batch in batches]
    sizes = sum((hi - lo for lo, hi in spans), np.zeros(len(probes), np.int64))
    if sizes.max(initial=0) < large or _keys_rows(probes, sizes) < budget.tuning.near_ratio * len(probes):
        return None
    ends = [batch.between(lo, hi, word, probes.limits, probes.limits)[0]
            for batch, (lo, hi) in zip(batches, spans, strict=True)]  # fmt: skip
    starts, around = [lo.copy() for lo, _ in spans], np.stack([probes.limits + 1, probes.limits])
    some, width = sizes >= large, budget.tuning.near_intervals
    while some.any():
        left = np.flatnonzero(some)
        low = rows_within(batches, spans, some, word=word, around=around, width=width).low[left]
        for batch, (lo, _), start, end in zip(batches, spans, starts, ends, strict=True):
            after = np.where(low > NULL, low - 1, NULL)
            start[left] = batch.between(lo[left], end[left], word, after, probes.limits[left])[0]
        steady = _has_steady(batches, [(s[left], e[left]) for s, e in zip(starts, ends, strict=True)],
                             probes.since[left], is_some)  # fmt: skip
        some[left] = ~steady & (low > NULL)
        width *= 8
    pairs = zip(batches, starts, ends, strict=True)
    return [batch.take(distinct(rows_between(start, end)[0])) for batch, start, end in pairs]


def _keys_rows(probes: Probes, sizes: np.ndarray) -> int:
    """How many rows the keys have, each counted once."""
    return int(sizes[firsts([probes.keys.codes, *probes.keys.words])].sum())


def _has_steady(
    batches: Sequence[SortedBatch], spans: Sequence[tuple[np.ndarray, np.ndarray]], since: np.ndarray, is_some: IsSome
) -> np.ndarray:
    """For which values there is an interval among the rows that is there at ``since`` and does not change after it."""
    columns = []
    for batch, (lo, hi) in zip(batches, spans, strict=True):
        rows, which = rows_between(lo, hi)
        positions, back = np.unique(rows, return_inverse=True)
        if len(positions):
            some = batch.take(positions)
            kept = is_some(some)[back]
            parts = [which, *(word[back] for word in some.words), some.times[0][back], some.diffs[back]]
            columns.append(np.stack(parts)[:, kept])
    steady = np.zeros(len(since), np.bool_)
    all_of_them = np.concatenate(columns, axis=1) if columns else np.zeros((3, 0), np.int64)
    rows, latest, counts = distinct_rows(all_of_them[:-2], all_of_them[-2], all_of_them[-1])
    steady[rows[0, (latest <= since[rows[0]]) & (counts > 0)]] = True
    return steady
