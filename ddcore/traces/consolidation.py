"""Consolidation: updates sorted by key code, words and times, equal ones added up; and sorted batches merged.

Where the columns of all updates fit into one 64-bit integer together, the work is one sort of such integers
(:mod:`ddcore.traces.packing`). Otherwise rows are sorted by code, with small sorts inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ddcore import kernels
from ddcore.base.errors import DiffOverflow
from ddcore.base.lattice import advance
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data.encoding import key_codes
from ddcore.traces import packed_batch, packing, ranges, sorts, spilling
from ddcore.traces.columns import Columns, Plain
from ddcore.traces.fields import Field
from ddcore.traces.packed_batch import PackedBatch
from ddcore.traces.packing import Summed
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch

FEW = packed_batch.LEAST_ROWS
"""Fewer updates than these are consolidated by kernels that are made for few."""

__all__ = ["arrange", "arrange_all", "concatenated", "gathered", "merge", "union"]


def arrange(
    codes: np.ndarray,
    words: Sequence[np.ndarray],
    times: Sequence[np.ndarray],
    diffs: np.ndarray,
    high: np.ndarray | None = None,
) -> ColumnBatch:
    """Sort and consolidate updates into a batch of columns: :func:`arrange_all`."""
    return arrange_all([Plain([codes, *words, *times, diffs], high)], len(words)).widen()


def arrange_all(pieces: Sequence[Columns], width: int, key: Sequence[Type] | None = None) -> SortedBatch:
    """Consolidate and sort updates that come in one or more pieces: code, ``width`` words, times and diffs.

    With ``key``, the types of the key columns, which are the first words, the pieces have no codes. If the ranges of
    the columns allow it, they are packed into one 64-bit integer, and the cost is one sort of n integers; otherwise
    rows are sorted by code, with small sorts inside. Sums are exact: if int64 does not hold all of them, the batch has
    upper words too. Raises DiffOverflow if 128 bits do not hold a sum.
    """
    pieces = [piece for piece in pieces if len(piece)] or pieces[:1]
    rows, fits = sum(map(len, pieces)), all(piece.high is None for piece in pieces)
    if rows == 0:
        return _nothing(pieces[0].count + (1 if key else 0), width)
    if rows < FEW and fits:
        few = _few(pieces)
        if few is not None:
            return _coded(few, width, key) if key else ColumnBatch.of(few, width)
    pieces = gathered(pieces)
    fields = packing.layout(pieces) if rows >= FEW and fits else None
    if fields is not None:
        summed = packing.consolidated(pieces, fields)
        return _coded(summed.table(), width, key) if key else _batch(summed, width)
    piece = _one(pieces)
    *columns, diffs = piece
    codes = key_codes(columns[: len(key)], key, rows) if key else columns.pop(0)
    return _arrange_wide(codes, columns[:width], columns[width:], diffs, piece.high)


def merge(a: SortedBatch, b: SortedBatch, frontier: np.ndarray | None = None) -> SortedBatch:
    """One batch with the updates of two. Updates whose diffs add up to more than int64 holds stay apart.

    With a ``frontier`` (coordinates, elements) times become their representatives beyond it. Costs one sort of packed
    integers where columns fit into one, else a pass over both.
    """
    return ranges.combined([a.columns(), b.columns()], a.width, partial(_united, frontier=frontier))


def union(pieces: Sequence[Columns], width: int) -> SortedBatch:
    """The updates of one or more pieces, each sorted and consolidated, as one batch; as :func:`merge` does it."""
    return ranges.combined(pieces, width, _united)


def concatenated(batches: Sequence[SortedBatch]) -> SortedBatch:
    """Batches whose keys ascend from one to the next, as one batch; in a file where they are many for the memory."""
    if len(batches) == 1:
        return batches[0]
    pieces, width, rows = [batch.columns() for batch in batches], batches[0].width, sum(map(len, batches))
    if rows > spilling.current().rows:
        batch = ranges.one_after_another(iter(batches), pieces[0].count, rows)
        if batch is not None:
            return batch
    some = [piece for piece in pieces if len(piece)]
    if rows >= packed_batch.LEAST_ROWS and all(piece.high is None for piece in some):
        return _sorted(some, packing.layout(some), width)
    return _batch_of(_one(pieces), width)


def _sorted(pieces: Sequence[Columns], fields: Sequence[Field] | None, width: int) -> SortedBatch:
    """Pieces whose rows ascend from one to the next as one batch, packed if that is how it is kept."""
    if fields is None or not _is_kept_packed(sum(map(len, pieces)), fields):
        return _batch_of(_one(pieces), width)
    return PackedBatch(packing.concatenated(pieces, fields), width)


def _united(pieces: Sequence[Columns], width: int, frontier: np.ndarray | None = None) -> SortedBatch:
    """As :func:`union`, at the representatives of times beyond a frontier."""
    some = [piece for piece in pieces if len(piece)]
    if not some:
        return _nothing(pieces[0].count, width)
    if sum(map(len, some)) < FEW:
        few = _few(some, 1 + width, frontier)
        if few is not None:
            return ColumnBatch.of(few, width)
    else:
        advanced = gathered(some if frontier is None else [piece.advanced(1 + width, frontier) for piece in some])
        fields = packing.layout(advanced)
        if len(some) == 1 and frontier is None:
            return _sorted(some, fields, width)
        if fields is not None:
            return _batch(packing.consolidated(advanced, fields), width)
    queue = sorted((_batch_of(piece, width) for piece in some), key=len, reverse=True)
    while len(queue) > 1:  # the two smallest first
        queue.append(_merged(queue.pop(), queue.pop()))
        queue.sort(key=len, reverse=True)
    return queue[0] if frontier is None else _advanced(queue[0], frontier)


def gathered(pieces: Sequence[Columns]) -> Sequence[Columns]:
    """The pieces, those with few rows as one: there may be many."""
    small = [piece for piece in pieces if len(piece) < FEW and piece.high is None]
    if len(small) < 2:
        return pieces
    together = Plain(np.concatenate([piece.table() for piece in small], axis=1))
    return [together, *(piece for piece in pieces if len(piece) >= FEW or piece.high is not None)]


def _one(pieces: Sequence[Columns]) -> Columns:
    """One or more pieces as one."""
    if len(pieces) == 1:
        return pieces[0]
    high = None if all(piece.high is None for piece in pieces) else np.concatenate([piece.upper() for piece in pieces])
    return Plain(np.concatenate([piece.table() for piece in pieces], axis=1), high)


def _nothing(columns: int, width: int) -> ColumnBatch:
    """A batch without updates."""
    return ColumnBatch.of(np.empty((columns, 0), dtype=np.int64), width)


def _batch_of(piece: Columns, width: int) -> ColumnBatch:
    """A batch of sorted updates."""
    return ColumnBatch.of(piece.table(), width, piece.high)


def _is_kept_packed(rows: int, fields: Sequence[Field]) -> bool:
    """Whether a batch of so many rows stays packed: not where memory is limited, as columns go to files, nor where the
    code is packed in halves, which no look-up reads.
    """
    return rows >= packed_batch.LEAST_ROWS and not fields[0].half and not spilling.current().is_limited


def _batch(summed: Summed, width: int) -> SortedBatch:
    """A batch of columns code, words, times."""
    packed = summed.packed() if _is_kept_packed(len(summed), summed.fields) else None
    return ColumnBatch.of(summed.table(), width) if packed is None else PackedBatch(packed, width)


def _few(pieces: Sequence[Columns], first: int = 0, frontier: np.ndarray | None = None) -> np.ndarray | None:
    """Few updates consolidated: int64 (columns, m), the last of which has the sums; None if integers cannot hold them,
    and no :func:`packing.layout` either.

    Times, which begin with column ``first``, become their representatives beyond a ``frontier``.
    """
    tables, nothing = [piece.table() for piece in pieces], np.empty((0, 0), np.int64)
    if len(tables) > 2:
        tables = [np.concatenate(tables, axis=1)]
    columns, others = tables if len(tables) == 2 else (tables[0], nothing)
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


def _coded(table: np.ndarray, width: int, key: Sequence[Type]) -> ColumnBatch:
    """A batch of columns without codes that are sorted by words and times: each key gets its code, and its place."""
    rows = table.shape[1]
    if rows == 0:
        return _nothing(len(table) + 1, width)
    out = np.empty((len(table) + 1, rows), dtype=np.int64)
    starts = kernels.look_up.group_starts(np.zeros(rows, np.int64), table, len(key))
    keys = np.take(table[: len(key)], starts[:-1], axis=1)
    codes = key_codes(list(keys), key, len(starts) - 1)
    order, least, shift = _order(codes)
    kernels.sorting.sort_within(order, np.concatenate([codes.reshape(1, -1), keys]), least, shift)
    places, out[0] = kernels.look_up.spread(order, starts, codes)
    np.take(table, places, axis=1, out=out[1:], mode="clip")
    return ColumnBatch.of(out, width)


def _arrange_wide(
    codes: np.ndarray,
    words: Sequence[np.ndarray],
    times: Sequence[np.ndarray],
    diffs: np.ndarray,
    high: np.ndarray | None = None,
) -> ColumnBatch:
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
    overflow, sums = sums[-1], sums[:-1]
    if overflow or high is not None:
        upper = diffs >> 63 if high is None else high
        rows, sums, high, size = kernels.sorting.sum_runs_exactly(turn, columns, diffs, upper)
        if size > 1:
            raise DiffOverflow("the diffs of a row add up to more than 128 bits hold")
        high = high if size else None
    return _with_sums(columns, rows, sums, len(words), high)


def _with_sums(
    columns: np.ndarray, rows: np.ndarray, sums: np.ndarray, width: int, high: np.ndarray | None = None
) -> ColumnBatch:
    """A batch of some rows of columns, with their sums."""
    table = np.empty((len(columns) + 1, len(rows)), dtype=np.int64)
    np.take(columns, rows, axis=1, out=table[:-1], mode="clip")
    table[-1] = sums
    return ColumnBatch.of(table, width, high)


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


def _merged(a: ColumnBatch, b: ColumnBatch) -> ColumnBatch:
    """Two batches as one, by a pass over both."""
    rows, diffs = kernels.look_up.merge(a.codes, a.words, a.times, a.diffs, b.codes, b.words, b.times, b.diffs)
    table = np.empty((2 + len(a.words) + len(a.times), len(rows)), dtype=np.int64)
    kernels.look_up.take_rows(table[:-1], rows, a.table[:-1], b.table[:-1])
    table[-1] = diffs
    return ColumnBatch.of(table, a.width)


def _advanced(batch: ColumnBatch, frontier: np.ndarray) -> ColumnBatch:
    """A batch at the representatives of its times; unchanged if int64 cannot hold a sum."""
    columns = np.concatenate([batch.codes.reshape(1, -1), batch.words, advance(batch.times, frontier)])
    order = np.arange(len(batch))
    kernels.sorting.sort_within(order, columns, 0, 0)
    rows, sums = kernels.sorting.sum_runs(order, columns, batch.diffs)
    return batch if sums[-1] else _with_sums(columns, rows, sums[:-1], batch.width)
