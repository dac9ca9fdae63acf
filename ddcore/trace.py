"""Traces: the history of one arrangement as a few sorted batches, with look-up by key.

A :class:`SortedBatch` is immutable and sorted by key code. A :class:`Trace` keeps few of them: it merges small ones as
it grows. It never merges the newest batch, so a consumer can tell what is new (the last batch) from what was stored
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddcore import kernels
from ddcore.errors import DiffOverflow

_PACKED_BITS = 63


class SortedBatch:
    """Updates sorted by key code: ``codes`` int64[n], ``words`` (W, n), ``times`` (D, n), ``diffs`` int64[n].

    The key of a direct arrangement (one fixed-width column) is its code, and ``words`` holds the values only;
    otherwise the first words are the key's. Batches from this module are also sorted by words and times within a
    code, and consolidated. ``high`` is None unless some sum of diffs in :func:`arrange` exceeds int64; no
    trace keeps such a batch.
    """

    __slots__ = ("_least", "_shift", "_starts", "codes", "diffs", "high", "times", "words")

    def __init__(
        self,
        codes: np.ndarray,
        words: np.ndarray,
        times: np.ndarray,
        diffs: np.ndarray,
        high: np.ndarray | None = None,
    ) -> None:
        self.codes, self.words, self.times, self.diffs, self.high = codes, words, times, diffs, high
        self._starts: np.ndarray | None = None
        self._least = self._shift = 0

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: np.ndarray) -> SortedBatch:
        """The updates at these positions, which ascend."""
        high = None if self.high is None else self.high[rows]
        words, times = np.take(self.words, rows, axis=1), np.take(self.times, rows, axis=1)
        return SortedBatch(self.codes[rows], words, times, self.diffs[rows], high)

    def locate(self, probes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row ranges [lo, hi) of equal code, one per probe (int64[m], ascending): O(1) each if codes are
        spread evenly.
        """
        if self._starts is None:
            self._starts = self._index()
        ranges: tuple[np.ndarray, np.ndarray] = kernels.runs.locate(
            self.codes, self._starts, self._least, self._shift, probes
        )
        return ranges

    def _index(self) -> np.ndarray:
        """Bucket starts over the codes, about one bucket per row; dense integer keys get a bucket each."""
        n = len(self.codes)
        if n == 0:
            return np.zeros(2, dtype=np.int64)
        self._least = int(self.codes[0])
        spread = int(self.codes[-1]) - self._least
        self._shift = max(0, spread.bit_length() - max(6, n.bit_length()))
        buckets = (spread >> self._shift) + 1
        starts: np.ndarray = kernels.runs.bucket_starts(self.codes, self._least, self._shift, buckets)
        return starts


@dataclass(slots=True)
class Keys:
    """Distinct keys by ascending code: ``codes`` int64[m], ``words`` (K, m); K is 0 for direct keys."""

    codes: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(slots=True)
class Rows:
    """The rows of many keys, one after another: key k's are ``offsets[k]:offsets[k + 1]``; words are values only."""

    offsets: np.ndarray
    words: np.ndarray
    times: np.ndarray
    diffs: np.ndarray


class Trace:
    """The sorted batches of one arrangement, oldest first. Append is amortised O(log n) a row."""

    def __init__(self, stored: Sequence[SortedBatch] = ()) -> None:
        self.stored = list(stored)  # of earlier folds; those in files are never merged here
        self.fresh: list[SortedBatch] = []  # of this fold

    @property
    def batches(self) -> list[SortedBatch]:
        """All batches, oldest first."""
        return self.stored + self.fresh

    def append(self, batch: SortedBatch) -> None:
        """Add the newest batch. Before that, merge older ones of similar sizes."""
        while len(self.fresh) > 1 and 2 * len(self.fresh[-1]) >= len(self.fresh[-2]):
            last = self.fresh.pop()
            self.fresh[-1] = merge(self.fresh[-1], last)
        self.fresh.append(batch)

    def settle(self) -> SortedBatch | None:
        """:meth:`harvest`, after which the updates count as stored. Batches of this process are merged as they grow, so
        that a thousand folds do not leave a thousand batches to search.
        """
        batch, self.fresh = self.harvest(), []
        if batch is not None:
            stored, merged = self.stored, batch
            while stored and type(stored[-1]) is SortedBatch and 2 * len(merged) >= len(stored[-1]):
                merged = merge(stored.pop(), merged)
            stored.append(merged)
        return batch

    def before(self, newest: SortedBatch | None) -> list[SortedBatch]:
        """All batches but ``newest``."""
        return [batch for batch in self.batches if batch is not newest]

    def harvest(self) -> SortedBatch | None:
        """The updates of this fold as one batch, or None if there are none."""
        while len(self.fresh) > 1:
            last = self.fresh.pop()
            self.fresh[-1] = merge(self.fresh[-1], last)
        return self.fresh[0] if self.fresh and len(self.fresh[0]) else None


def arrange(
    codes: np.ndarray,
    words: list[np.ndarray],
    times: list[np.ndarray],
    diffs: np.ndarray,
    high: np.ndarray | None = None,
) -> SortedBatch:
    """Sort and consolidate updates into a batch. ``high`` has the upper words of diffs that int64 does not hold.

    If the ranges of the columns allow it, they are packed into one 64-bit integer, and the cost is one radix sort of
    n integers; otherwise it is an O(n) sort by code with small sorts inside. Sums are exact: if int64 does not hold
    all of them, the batch has upper words too. Raises DiffOverflow if 128 bits do not hold a sum.
    """
    if len(diffs) == 0:
        return SortedBatch(codes, _stack(words, 0), _stack(times, 0), diffs)
    columns = [codes, *words, *times]
    layout = _layout([*columns, diffs]) if high is None else None
    if layout is None:
        return _arrange_wide(codes, words, times, diffs, high)
    return _arrange_packed(columns, diffs, layout, len(words))


def merge(a: SortedBatch, b: SortedBatch) -> SortedBatch:
    """One batch with the updates of two: O(n). Updates whose diffs add up to more than int64 holds stay apart."""
    take, diffs = kernels.runs.merge(a.codes, a.words, a.times, a.diffs, b.codes, b.words, b.times, b.diffs)
    n = len(take)
    codes, words, times = (
        np.empty((1, n), np.int64), np.empty((len(a.words), n), np.int64), np.empty((len(a.times), n), np.int64)
    )  # fmt: skip
    kernels.runs.take_rows(codes, take, a.codes.reshape(1, -1), b.codes.reshape(1, -1))
    kernels.runs.take_rows(words, take, a.words, b.words)
    kernels.runs.take_rows(times, take, a.times, b.times)
    return SortedBatch(codes[0], words, times, diffs)


def distinct_keys(batch: SortedBatch, key_words: int) -> tuple[Keys, np.ndarray]:
    """The keys of a consolidated batch, and where the rows of each start (int64[m + 1])."""
    starts = kernels.runs.group_starts(batch.codes, batch.words, key_words)
    heads = starts[:-1]
    return Keys(batch.codes[heads], np.ascontiguousarray(batch.words[:key_words, heads])), starts


def gather(batches: Sequence[SortedBatch], keys: Keys, values: int, depth: int) -> Rows:
    """All rows of the keys in all batches: ``values`` words and ``depth`` time coordinates each.

    A batch with fewer coordinates (an arrangement of an outer scope) reads as if at round 0.
    """
    spans = [batch.locate(keys.codes) for batch in batches]
    counts = np.zeros(len(keys), dtype=np.int64)
    for batch, (lo, hi) in zip(batches, spans, strict=True):
        kernels.runs.count_matches(counts, keys.words, lo, hi, batch.words)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    total, at = int(offsets[-1]), offsets[:-1].copy()
    rows = Rows(
        offsets, np.empty((values, total), np.int64), np.empty((depth, total), np.int64), np.empty(total, np.int64)
    )
    for batch, (lo, hi) in zip(batches, spans, strict=True):
        kernels.runs.copy_matches(
            at, rows.words, rows.times, rows.diffs, keys.words, lo, hi, batch.words, batch.times, batch.diffs
        )
    return rows


@dataclass(slots=True)
class _Field:
    least: int
    bits: int


def _layout(columns: list[np.ndarray]) -> list[_Field] | None:
    """How many bits each column needs (the last one is the diffs), or None if they do not fit into one integer
    together. It is also None if sums of diffs could overflow int64, because packed diffs are summed unchecked.
    """
    fields, total = [], 0
    for column in columns:
        least = int(column.min())
        bits = (int(column.max()) - least).bit_length()
        fields.append(_Field(least, bits))
        total += bits
        if total > _PACKED_BITS:
            return None
    diffs = columns[-1]
    return fields if max(-int(diffs.min()), int(diffs.max())) * len(diffs) < 2**63 else None


def _arrange_packed(columns: list[np.ndarray], diffs: np.ndarray, layout: list[_Field], words: int) -> SortedBatch:
    packed = np.zeros(len(diffs), dtype=np.uint64)
    for column, field in zip([*columns, diffs], layout, strict=True):
        if field.bits:
            kernels.sorting.pack(packed, column, field.least, field.bits)
    last = layout[-1]
    packed = kernels.sorting.radix_sort(packed, sum(field.bits for field in layout))
    rows, sums = kernels.sorting.sum_equal(packed, last.bits, last.least)
    out = np.empty((len(columns), len(rows)), dtype=np.int64)
    shift = 0
    for place in range(len(columns) - 1, -1, -1):
        field = layout[place]
        if field.bits:
            kernels.sorting.unpack(out[place], rows, shift, field.bits, field.least)
        else:
            out[place] = field.least
        shift += field.bits
    return SortedBatch(out[0], out[1 : 1 + words], out[1 + words :], sums)


def _arrange_wide(
    codes: np.ndarray,
    words: list[np.ndarray],
    times: list[np.ndarray],
    diffs: np.ndarray,
    high: np.ndarray | None = None,
) -> SortedBatch:
    order = kernels.sorting.radix_argsort(codes)
    columns = _stack([*words, *times], len(diffs))
    kernels.sorting.sort_within(order, codes, columns)
    rows, sums = kernels.sorting.sum_runs(order, codes, columns, diffs)
    overflow, sums = sums[-1], sums[:-1].copy()
    if overflow or high is not None:
        upper = diffs >> 63 if high is None else high
        rows, sums, high, size = kernels.sorting.sum_runs_exactly(order, codes, columns, diffs, upper)
        if size > 1:
            raise DiffOverflow("the diffs of a row add up to more than 128 bits hold")
        high = high if size else None
    distinct = np.take(columns, rows, axis=1)  # stays contiguous by column
    return SortedBatch(codes[rows], distinct[: len(words)], distinct[len(words) :], sums, high)


def _stack(columns: list[np.ndarray], n: int) -> np.ndarray:
    return np.stack(columns) if columns else np.empty((0, n), dtype=np.int64)
