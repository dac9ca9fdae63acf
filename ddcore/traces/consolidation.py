"""Consolidation: updates sorted by key code, words and times, equal ones added up; and sorted batches merged.

Where the columns of all updates fit into one 64-bit integer together, the work is one sort of such integers
(:mod:`ddcore.traces.packing`). Otherwise rows are sorted by code, with small sorts inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcore import kernels
from ddcore.base.errors import DiffOverflow
from ddcore.base.lattice import advance
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data.encoding import key_codes
from ddcore.traces import packed_batch, packing, sorts, spilling
from ddcore.traces.compressed import NarrowBatch
from ddcore.traces.packed_batch import PackedBatch
from ddcore.traces.sorted_batch import SortedBatch

if TYPE_CHECKING:
    from ddcore.traces.packing import Field, Piece, Summed

FEW = packed_batch.LEAST_ROWS
"""Fewer updates than these are consolidated by kernels that are made for few."""

_NO_FLOOR = -(2**63)

__all__ = ["arrange", "arrange_all", "concatenated", "merge", "narrow", "union"]


def arrange(
    codes: np.ndarray,
    words: list[np.ndarray],
    times: list[np.ndarray],
    diffs: np.ndarray,
    high: np.ndarray | None = None,
) -> SortedBatch:
    """Sort and consolidate updates into a batch. ``high`` has the upper words of diffs that int64 does not hold.

    If the ranges of the columns allow it, they are packed into one 64-bit integer, and the cost is one sort of n
    integers; otherwise rows are sorted by code, with small sorts inside. Sums are exact: if int64 does not hold
    all of them, the batch has upper words too. Raises DiffOverflow if 128 bits do not hold a sum.
    """
    if len(diffs) == 0:
        return SortedBatch(codes, _stack(words, 0), _stack(times, 0), diffs)
    if high is None:
        return arrange_all([[codes, *words, *times, diffs]], len(words)).widen()
    return _arrange_wide(codes, words, times, diffs, high)


def arrange_all(pieces: Sequence[Piece], words: int, key: Sequence[Type] | None = None) -> SortedBatch:
    """Consolidate and sort updates that come in one or more pieces, of which none is empty.

    With ``key``, the types of the key columns, which are the first words, the pieces have no codes.
    """
    are_few = sum(map(packing.rows_of, pieces)) < FEW
    few = _few(pieces) if are_few else None
    if few is not None:
        return _coded(few[:-1], few[-1], words, key) if key else _of_columns(few, words)
    fields = None if are_few else packing.layout(pieces)
    if fields is not None:
        summed = packing.consolidated(pieces, fields)
        return _coded(summed.columns(), summed.diffs(), words, key) if key else _batch(summed, words)
    columns = list(pieces[0]) if len(pieces) == 1 else [np.concatenate(each) for each in zip(*pieces, strict=True)]
    diffs = columns.pop()
    codes = key_codes(columns[: len(key)], key, len(diffs)) if key else columns.pop(0)
    return _arrange_wide(codes, columns[:words], columns[words:], diffs)


def merge(a: SortedBatch, b: SortedBatch, frontier: np.ndarray | None = None) -> SortedBatch:
    """One batch with the updates of two. Updates whose diffs add up to more than int64 holds stay apart.

    With a ``frontier`` (coordinates, elements) times become their representatives beyond it. Costs one sort of packed
    integers where columns fit into one, else a pass over both.
    """
    are_few = len(a) + len(b) < FEW
    if are_few:
        columns = _few([_whole(batch) for batch in (a, b) if len(batch)], 1 + a.width, frontier)
        if columns is not None:
            return _of_columns(columns, a.width)
    pieces = [] if are_few else [_columns(batch, frontier) for batch in (a, b) if len(batch)]
    fields = packing.layout(pieces) if pieces else None
    if fields is not None:
        return _batch(packing.consolidated(pieces, fields), a.width)
    merged = _merge_wide(a.widen(), b.widen())
    return merged if frontier is None else _advanced(merged, frontier)


def narrow(batch: SortedBatch) -> SortedBatch | NarrowBatch:
    """The batch in few bytes."""
    return batch if isinstance(batch, PackedBatch) else NarrowBatch.of(_columns(batch), batch.width)


def union(batches: Sequence[SortedBatch | NarrowBatch]) -> SortedBatch:
    """The updates of one or more batches as one."""
    if len(batches) == 1:
        return _restored(batches[0])
    first = batches[0]
    width = first.words if isinstance(first, NarrowBatch) else first.width
    are_few = sum(map(len, batches)) < FEW
    few = _few([_whole(batch) for batch in batches if len(batch)]) if are_few else None
    if few is not None:
        return _of_columns(few, width)
    pieces = [batch if isinstance(batch, NarrowBatch) else _columns(batch) for batch in batches if len(batch)]
    columns = [piece for piece in pieces if isinstance(piece, list)]
    if len(columns) > 1:  # of which there may be many, with few rows each
        together = [np.concatenate(each) for each in zip(*columns, strict=True)]
        pieces = [together, *(piece for piece in pieces if not isinstance(piece, list))]
    fields = packing.layout(pieces) if pieces and not are_few else None
    if fields is not None:
        return _batch(packing.consolidated(pieces, fields), width)
    queue = sorted(batches, key=len, reverse=True)
    while len(queue) > 1:  # the two smallest first
        queue.append(merge(_widened(queue.pop()), _widened(queue.pop())))
        queue.sort(key=len, reverse=True)
    return _widened(queue[0])


def concatenated(batches: Sequence[SortedBatch]) -> SortedBatch:
    """Batches whose keys ascend from one to the next, as one batch."""
    if len(batches) == 1:
        return batches[0]
    rows = sum(map(len, batches))
    if rows >= packed_batch.LEAST_ROWS and all(batch.high is None for batch in batches):
        pieces = [_columns(batch) for batch in batches if len(batch)]
        fields = packing.layout(pieces)
        if fields is not None and _is_kept_packed(rows, fields):
            return PackedBatch(packing.concatenated(pieces, fields), batches[0].width)
    batches, high = [batch.widen() for batch in batches], None
    if any(batch.high is not None for batch in batches):
        high = np.concatenate([batch.diffs >> 63 if batch.high is None else batch.high for batch in batches])
    return SortedBatch(
        np.concatenate([batch.codes for batch in batches]),
        np.concatenate([batch.words for batch in batches], axis=1),
        np.concatenate([batch.times for batch in batches], axis=1),
        np.concatenate([batch.diffs for batch in batches]),
        high,
    )


def _is_kept_packed(rows: int, fields: Sequence[Field] | None) -> bool:
    """Whether a batch of so many rows stays packed: not where memory is limited, as columns go to files, nor where the
    code is packed in halves, which no look-up reads.
    """
    return rows >= packed_batch.LEAST_ROWS and fields is not None and not fields[0].half and spilling.current() is None


def _batch(summed: Summed, words: int) -> SortedBatch:
    """A batch of columns code, words, times."""
    packed = summed.packed() if _is_kept_packed(len(summed), summed.fields) else None
    if packed is not None:
        return PackedBatch(packed, words)
    columns = summed.columns()
    return SortedBatch(columns[0], columns[1 : 1 + words], columns[1 + words :], summed.diffs())


def _few(pieces: Sequence[Piece | np.ndarray], first: int = 0, frontier: np.ndarray | None = None) -> np.ndarray | None:
    """Few updates consolidated: int64 (columns, m), the last of which has the sums; None if integers cannot hold them,
    and no :func:`packing.layout` either.

    Times, which begin with column ``first``, become their representatives beyond a ``frontier``.
    """
    if not pieces:
        return None
    parts = [piece if isinstance(piece, np.ndarray) else np.array(list(piece)) for piece in pieces]
    nothing = np.empty((0, 0), np.int64)
    if len(parts) > 2:
        parts = [np.concatenate(parts, axis=1)]
    columns, others = parts if len(parts) == 2 else (parts[0], nothing)
    summed: np.ndarray
    done, summed, packed, table = kernels.small_batches.consolidate(
        columns, others, first, nothing if frontier is None else frontier
    )
    if done:
        return summed
    if len(packed) == 0:
        return None
    packed, _ = sorts.stable(packed)
    summed = kernels.small_batches.unpack(packed, table)
    return summed


def _of_columns(columns: np.ndarray, words: int) -> SortedBatch:
    """A batch of columns: code, words, times, diffs."""
    batch = SortedBatch(columns[0], columns[1 : 1 + words], columns[1 + words : -1], columns[-1])
    batch.columns = columns
    return batch


def _coded(columns: np.ndarray, diffs: np.ndarray, words: int, key: Sequence[Type]) -> SortedBatch:
    """A batch of columns without codes that are sorted by words and times: each key gets its code, and its place."""
    if len(diffs) == 0:
        return SortedBatch(columns[0], columns[:words], columns[words:], diffs)
    starts = kernels.look_up.group_starts(np.zeros(len(diffs), np.int64), columns, len(key))
    keys = np.take(columns[: len(key)], starts[:-1], axis=1)
    codes = key_codes(list(keys), key, len(starts) - 1)
    order, least, shift = _order(codes)
    kernels.sorting.sort_within(order, np.concatenate([codes.reshape(1, -1), keys]), least, shift)
    rows, row_codes = kernels.look_up.spread(order, starts, codes)
    columns = np.take(columns, rows, axis=1)
    return SortedBatch(row_codes, columns[:words], columns[words:], diffs[rows])


def _arrange_wide(
    codes: np.ndarray,
    words: list[np.ndarray],
    times: list[np.ndarray],
    diffs: np.ndarray,
    high: np.ndarray | None = None,
) -> SortedBatch:
    """Sort by code first, as one integer with the row's number, so that all that follows reads rows in order."""
    order, least, shift = _order(codes)
    columns = np.empty((1 + len(words) + len(times), len(codes)), dtype=np.int64)
    for into, column in zip(columns, (codes, *words, *times), strict=True):
        np.take(column, order, out=into, mode="clip")
    diffs = diffs[order]
    high = None if high is None else high[order]
    turn = np.arange(len(codes))
    kernels.sorting.sort_within(turn, columns, least, shift)
    rows, sums = kernels.sorting.sum_runs(turn, columns, diffs)
    overflow, sums = sums[-1], sums[:-1].copy()
    if overflow or high is not None:
        upper = diffs >> 63 if high is None else high
        rows, sums, high, size = kernels.sorting.sum_runs_exactly(turn, columns, diffs, upper)
        if size > 1:
            raise DiffOverflow("the diffs of a row add up to more than 128 bits hold")
        high = high if size else None
    columns = _distinct(columns, rows)
    return SortedBatch(columns[0], columns[1 : 1 + len(words)], columns[1 + len(words) :], sums, high)


def _order(codes: np.ndarray) -> tuple[np.ndarray, int, int]:
    """An order of the rows by ``(code - least) >> shift``, and these two: shift is 0 if a code and a row's number fit
    into one integer.
    """
    n, least = len(codes), int(codes.min())
    digits = (n - 1).bit_length()
    shift = max(0, (int(codes.max()) - least).bit_length() + digits - 64)
    packed = codes.view(np.uint64) - np.uint64(least & (2**64 - 1))
    packed >>= np.uint64(shift)
    packed <<= np.uint64(digits)
    packed |= np.arange(n, dtype=np.uint64)
    packed, _ = sorts.stable(packed, digits)
    packed &= np.uint64((1 << digits) - 1)
    return packed.view(np.int64), least, shift


def _distinct(columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of the columns; all of them in their order are not copied."""
    if len(rows) == columns.shape[1] and bool((rows[1:] > rows[:-1]).all()):
        return columns
    return np.take(columns, rows, axis=1)  # stays contiguous by column


def _merge_wide(a: SortedBatch, b: SortedBatch) -> SortedBatch:
    take, diffs = kernels.look_up.merge(a.codes, a.words, a.times, a.diffs, b.codes, b.words, b.times, b.diffs)
    n = len(take)
    codes, words, times = (
        np.empty((1, n), np.int64), np.empty((len(a.words), n), np.int64), np.empty((len(a.times), n), np.int64)
    )  # fmt: skip
    kernels.look_up.take_rows(codes, take, a.codes.reshape(1, -1), b.codes.reshape(1, -1))
    kernels.look_up.take_rows(words, take, a.words, b.words)
    kernels.look_up.take_rows(times, take, a.times, b.times)
    return SortedBatch(codes[0], words, times, diffs)


def _advanced(batch: SortedBatch, frontier: np.ndarray) -> SortedBatch:
    """A batch at the representatives of its times; unchanged if int64 cannot hold a sum."""
    words = batch.width
    columns = np.concatenate([batch.codes.reshape(1, -1), batch.words, advance(batch.times, frontier)])
    order = np.arange(len(batch))
    kernels.sorting.sort_within(order, columns, 0, 0)
    rows, sums = kernels.sorting.sum_runs(order, columns, batch.diffs)
    if sums[-1]:
        return batch
    columns = _distinct(columns, rows)
    return SortedBatch(columns[0], columns[1 : 1 + words], columns[1 + words :], sums[:-1].copy())


def _columns(batch: SortedBatch, frontier: np.ndarray | None = None) -> Piece:
    """The columns of a batch, with its times or their representatives beyond the frontier."""
    if isinstance(batch, PackedBatch):
        if frontier is None:
            return batch.packed
        if frontier.shape[1] == 1:
            floors = (*(_NO_FLOOR for _ in range(1 + batch.width)), *frontier[:, 0].tolist(), _NO_FLOOR)
            return replace(batch.packed, floors=floors)
    times = batch.times
    if frontier is None or len(batch) == 0:
        return [batch.codes, *batch.words, *times, batch.diffs]
    if frontier.shape[1] > 1:
        return [batch.codes, *batch.words, *advance(times, frontier), batch.diffs]
    return [batch.codes, *batch.words, *map(_at_least, times, frontier[:, 0]), batch.diffs]


def _whole(batch: SortedBatch | NarrowBatch) -> Piece | np.ndarray:
    """The columns of a batch of few updates, as one array where they lie in one."""
    if isinstance(batch, NarrowBatch):
        return batch
    return _columns(batch) if batch.columns is None else batch.columns


def _at_least(column: np.ndarray, least: np.int64) -> np.ndarray:
    """The column, with ``least`` in the place of what is less; without a copy where all of it is more or less."""
    if column.max() <= least:
        return np.broadcast_to(least, column.shape)
    return column if column.min() >= least else np.maximum(column, least)


def _restored(batch: SortedBatch | NarrowBatch) -> SortedBatch:
    """A sorted batch from what :func:`narrow` returned."""
    if not isinstance(batch, NarrowBatch):
        return batch
    fields = packing.layout([batch])
    if fields is None or not _is_kept_packed(len(batch), fields):
        return _widened(batch)
    return PackedBatch(packing.concatenated([batch], fields), batch.words)


def _widened(batch: SortedBatch | NarrowBatch) -> SortedBatch:
    if not isinstance(batch, NarrowBatch):
        return batch.widen()
    codes, *columns, diffs = batch
    both = np.stack(columns) if columns else np.empty((0, len(codes)), dtype=np.int64)
    return SortedBatch(codes, both[: batch.words], both[batch.words :], diffs)


def _stack(columns: list[np.ndarray], n: int) -> np.ndarray:
    return np.stack(columns) if columns else np.empty((0, n), dtype=np.int64)
