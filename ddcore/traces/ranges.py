"""Sorted batches in ranges of their rows, so that only some rows are worked on at once where memory is limited.

What is put together from many ranges is written to a file range by range (:mod:`ddcore.traces.spilling`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from ddcore.base.lazy import numpy as np
from ddcore.traces import consolidation, spilling
from ddcore.traces.compressed import NarrowBatch, NarrowColumn
from ddcore.traces.sorted_batch import SortedBatch
from ddcore.traces.spilling import Columns, Spilling

__all__ = ["at_rest", "combined", "concatenated", "merge", "narrow", "portions", "union"]

_PICKS = 4  # keys for each range, among which its ends are chosen

Combine = Callable[[Sequence[SortedBatch]], SortedBatch]


def at_rest(batch: SortedBatch) -> SortedBatch:
    """The batch, which nothing changes any more: in a file if it is large and memory is nearly used up."""
    spill = spilling.current()
    if spill is None or batch.high is not None:
        return batch
    batch = batch.widen()
    return SortedBatch(*spill.rest([batch.codes, batch.words, batch.times, batch.diffs]))


def merge(a: SortedBatch, b: SortedBatch, frontier: np.ndarray | None = None) -> SortedBatch:
    """Two batches merged (:func:`ddcore.traces.consolidation.merge`), in ranges of keys where memory is limited."""
    if spilling.current() is None:
        return consolidation.merge(a, b, frontier)
    return combined([a, b], lambda parts: consolidation.merge(parts[0], parts[1], frontier))


def union(batches: Sequence[SortedBatch | NarrowBatch]) -> SortedBatch:
    """Batches united (:func:`ddcore.traces.consolidation.union`), in ranges of keys where memory is limited."""
    if spilling.current() is None:
        return consolidation.union(batches)
    if len(batches) == 1 and isinstance(batches[0], SortedBatch):
        return batches[0]
    return combined(batches, lambda parts: consolidation.union([part for part in parts if len(part)] or parts[:1]))


def narrow(batch: SortedBatch) -> SortedBatch | NarrowBatch:
    """A batch narrowed (:func:`ddcore.traces.consolidation.narrow`); many rows, those in a file, stay as they are."""
    spill = spilling.current()
    return consolidation.narrow(batch) if spill is None or len(batch) <= spill.rows else batch


def combined(batches: Sequence[SortedBatch | NarrowBatch], combine: Combine) -> SortedBatch:
    """What ``combine`` makes of batches. Where memory is limited it gets many rows in parts: of each batch the rows of
    one range. Equal codes and words are in one range, and its results are sorted by these.
    """
    spill = spilling.current()
    if spill is None or sum(map(len, batches)) <= spill.rows:
        result = combine([batch if isinstance(batch, SortedBatch) else _widened(batch) for batch in batches])
        return result if spill is None else at_rest(result)
    width = batches[0].words if isinstance(batches[0], NarrowBatch) else len(batches[0].words)
    depth = len(_columns(batches[0])) - width - 2
    into, written = _Rows(spill, width, depth, sum(map(len, batches))), 0
    for ends in _ranges(batches, spill.rows, width):
        part = combine([_widened(batch.part(*between)) for batch, between in zip(batches, ends, strict=True)])
        if part.high is not None:  # no file has these: rare, and soon an error where there is a trace
            return combine([_widened(batch) for batch in batches])
        written += into.write(written, part)
    return into.first(written)


def concatenated(batches: Sequence[SortedBatch]) -> SortedBatch:
    """Batches put together (:func:`ddcore.traces.consolidation.concatenated`), in a file where memory is limited."""
    if len(batches) == 1:
        return batches[0]
    spill, total = spilling.current(), sum(map(len, batches))
    if spill is None or total <= spill.rows or any(batch.high is not None for batch in batches):
        return consolidation.concatenated(batches)
    into, written = _Rows(spill, len(batches[0].words), len(batches[0].times), total), 0
    for batch in batches:
        written += into.write(written, batch)
    return into.first(written)


def portions(batches: Sequence[SortedBatch | None], key_words: int) -> Iterator[list[SortedBatch | None]]:
    """The batches; where memory is limited in parts, with all rows of a key in one."""
    spill = spilling.current()
    some = [batch for batch in batches if batch is not None]
    if spill is None or sum(map(len, some)) <= spill.rows:
        yield list(batches)
        return
    for ends in _ranges(some, spill.rows, key_words):
        parts = iter([batch.part(*between) for batch, between in zip(some, ends, strict=True)])
        result = [None if batch is None else next(parts) for batch in batches]
        yield [None if part is None or len(part) == 0 else part for part in result]


class _Rows:
    """A sorted batch that is written to a file, some rows after the other."""

    def __init__(self, spill: Spilling, words: int, times: int, rows: int) -> None:
        self.words, self._columns = words, Columns(spill, words + times + 2, rows)

    def write(self, start: int, batch: SortedBatch) -> int:
        """Write a batch from row ``start`` on; return its number of rows."""
        for number, column in enumerate([batch.codes, *batch.words, *batch.times, batch.diffs]):
            self._columns.write(number, start, column)
        return len(batch)

    def first(self, rows: int) -> SortedBatch:
        columns = self._columns.first(rows)
        return SortedBatch(columns[0], columns[1 : 1 + self.words], columns[1 + self.words : -1], columns[-1])


def _widened(batch: SortedBatch | NarrowBatch) -> SortedBatch:
    if isinstance(batch, SortedBatch):
        return batch.widen()
    codes, *columns, diffs = batch
    words, times = columns[: batch.words], columns[batch.words :]
    return SortedBatch(codes, _stacked(words, len(batch)), _stacked(times, len(batch)), diffs)


def _stacked(columns: list[np.ndarray], rows: int) -> np.ndarray:
    return np.stack(columns) if columns else np.empty((0, rows), dtype=np.int64)


def _columns(batch: SortedBatch | NarrowBatch) -> list[np.ndarray] | list[NarrowColumn]:
    """The columns of a batch: code, words, times, diff."""
    if isinstance(batch, NarrowBatch):
        return list(batch.columns)
    batch = batch.widen()
    return [batch.codes, *batch.words, *batch.times, batch.diffs]


def _ranges(batches: Sequence[SortedBatch | NarrowBatch], rows: int, width: int) -> Iterator[list[tuple[int, int]]]:
    """Ranges of some ``rows`` rows in all batches together, as the first and the last row in each. Rows with the same
    code and the same first ``width`` words are in one range, whatever their number.
    """
    columns = [_columns(batch)[: 1 + width] for batch in batches]
    stride = max(1, rows // _PICKS)
    keys = {
        tuple(int(_value(column, at)) for column in of)
        for number, (batch, of) in enumerate(zip(batches, columns, strict=True))
        for at in range(stride * (number + 1) // len(batches), len(batch), stride)
    }
    chosen = [[0] * len(batches)]
    before, total = chosen[0], 0
    for key in sorted(keys):
        starts = [_lower_bound(of, key, len(batch)) for of, batch in zip(columns, batches, strict=True)]
        total = sum(starts) - sum(chosen[-1])
        if total > rows and before is not chosen[-1]:
            chosen.append(before)
        before = starts
    chosen += [before, [len(batch) for batch in batches]]
    for a, b in pairwise(chosen):
        if sum(b) > sum(a):
            yield list(zip(a, b, strict=True))


def _value(column: np.ndarray | NarrowColumn, at: int) -> int:
    if not isinstance(column, NarrowColumn):
        return int(column[at])
    if column.distances is None:
        return column.least
    wide = column.distances.dtype == np.int64
    return int(column.distances[at]) + (0 if wide else column.least)


def _lower_bound(columns: Sequence[np.ndarray | NarrowColumn], key: Sequence[int], rows: int) -> int:
    """The first row that is not before the key, column by column: O(columns log rows)."""
    lo, hi = 0, rows
    for column, value in zip(columns, key, strict=True):
        lo, hi = _bound(column, value, lo, hi, "left"), _bound(column, value, lo, hi, "right")
        if lo == hi:
            break
    return lo


def _bound(column: np.ndarray | NarrowColumn, value: int, lo: int, hi: int, side: str) -> int:
    """Where a value belongs among the sorted rows ``lo`` to ``hi`` of a column."""
    if isinstance(column, NarrowColumn):
        if column.distances is None or value < column.least or value > column.most:
            after = value > column.least or (side == "right" and value == column.least)
            return hi if after else lo
        if column.distances.dtype != np.int64:
            value -= column.least
        column = column.distances
    # Of the array's own type: numpy would convert the array to another one.
    return lo + int(np.searchsorted(column[lo:hi], column.dtype.type(value), side=side))  # type: ignore[call-overload]
