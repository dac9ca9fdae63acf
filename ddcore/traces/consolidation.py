"""Consolidation: updates sorted by key code, words and times, equal ones added up; and sorted batches merged.

Where the columns of all updates fit into one 64-bit integer together, the work is one sort of such integers
(:mod:`ddcore.traces.packing`). Otherwise rows are sorted by code, with small sorts inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from ddcore import kernels
from ddcore.base.errors import DiffOverflow
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data.encoding import key_codes
from ddcore.traces import packing, ranges, sorts
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns, Plain, together
from ddcore.traces.fields import Field
from ddcore.traces.packed_batch import PackedBatch
from ddcore.traces.packing import Summed
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch

_PAIR = 2
_SEVERAL = 4  # pieces of few rows that are copied together before they are packed
_COMPARED = 256  # updates of hashed keys that are sorted by comparing rows: more are packed and sorted as integers


def arrange(
    codes: np.ndarray,
    words: Sequence[np.ndarray],
    times: Sequence[np.ndarray],
    diffs: np.ndarray,
    high: np.ndarray | None = None,
    *,
    budget: Budget = ALONE,
    summed: bool = True,
) -> ColumnBatch:
    """Sort and consolidate updates into a batch of columns: :func:`arrange_all`."""
    pieces = [Plain([codes, *words, *times, diffs], high)]
    return arrange_all(pieces, len(words), budget=budget, summed=summed).decompress()


def arrange_all(
    pieces: Sequence[Columns], width: int, key: Sequence[Type] | None = None, *, budget: Budget = ALONE,
    summed: bool = True,
) -> SortedBatch:  # fmt: skip
    """Consolidate and sort updates that come in one or more pieces: code, ``width`` words, times and diffs.

    With ``key``, the types of the key columns, which are the first words, the pieces have no codes. If the ranges of
    the columns allow it, they are packed into one 64-bit integer, and the cost is one sort of n integers; otherwise
    rows are sorted by code, with small sorts inside. Sums are exact: if int64 does not hold all of them, the batch has
    upper words too. Raises DiffOverflow if 128 bits do not hold a sum.

    Not ``summed``: equal updates may stay apart and in any order within their key, where to add them up costs more.
    """
    pieces, few_rows = [piece for piece in pieces if piece.rows] or pieces[:1], budget.tuning.few_rows
    rows, fits = sum([piece.rows for piece in pieces]), all([piece.high is None for piece in pieces])
    if rows == 0:
        return _nothing(pieces[0].count + (1 if key else 0), width)
    if key and rows <= min(_COMPARED, few_rows) and fits:
        table = _one(pieces).table()
        done, few = kernels.merging.arranged(key_codes(list(table[: len(key)]), key, rows), table)
        if done:
            return ColumnBatch.of(few, width)
    if rows < few_rows and fits:
        few = _few(pieces)
        if few is not None:
            return _coded(few, width, key) if key else ColumnBatch.of(few, width)
    pieces = gathered(pieces, few_rows)
    fields = packing.layout(pieces) if rows >= few_rows and fits and (summed or not key) else None
    if fields is not None:
        sums = packing.consolidated(pieces, fields, budget)
        return _coded(sums.table(), width, key) if key else _batch(sums, width, budget)
    piece = _one(pieces)
    if not summed and fits:
        return _by_code(piece, width, key or ())
    *columns, diffs = piece
    codes = key_codes(columns[: len(key)], key, rows) if key else columns.pop(0)
    return _arrange_wide(codes, columns[:width], columns[width:], diffs, piece.high)


def merge(a: SortedBatch, b: SortedBatch, frontier: np.ndarray | None = None, budget: Budget = ALONE) -> SortedBatch:
    """One batch with the updates of two. Updates whose diffs add up to more than int64 holds stay apart.

    With a ``frontier`` (coordinates, elements) times become their representatives beyond it. Costs one sort of packed
    integers where columns fit into one, else a pass over both.
    """
    return ranges.combined(
        [a.columns(), b.columns()], a.width, partial(_united, frontier=frontier, budget=budget), budget
    )


def union(pieces: Sequence[Columns], width: int, budget: Budget = ALONE) -> SortedBatch:
    """The updates of one or more pieces, each sorted and consolidated, as one batch; as :func:`merge` does it."""
    return ranges.combined(pieces, width, partial(_united, budget=budget), budget)


def concatenated(batches: Sequence[SortedBatch], budget: Budget = ALONE) -> SortedBatch:
    """Batches whose keys ascend from one to the next, as one batch; in a file where they are many for the memory."""
    if len(batches) == 1:
        return batches[0]
    pieces, width, rows = [batch.columns() for batch in batches], batches[0].width, sum(map(len, batches))
    if rows > budget.memory.rows:
        batch = ranges.one_after_another(iter(batches), pieces[0].count, rows, budget)
        if batch is not None:
            return batch
    some = [piece for piece in pieces if len(piece)]
    if rows >= budget.tuning.packed_rows and all(piece.high is None for piece in some):
        return _sorted(some, packing.layout(some), width, budget)
    return _batch_of(_one(pieces), width)


def _sorted(pieces: Sequence[Columns], fields: Sequence[Field] | None, width: int, budget: Budget) -> SortedBatch:
    """Pieces whose rows ascend from one to the next as one batch, packed if that is how it is kept."""
    if fields is None or not _is_kept_packed(sum(map(len, pieces)), fields, budget):
        return _batch_of(_one(pieces), width)
    return PackedBatch(packing.concatenated(pieces, fields, budget), width)


def _united(
    pieces: Sequence[Columns], width: int, frontier: np.ndarray | None = None, *, budget: Budget
) -> SortedBatch:
    """As :func:`union`, at the representatives of times beyond a frontier."""
    some = [piece for piece in pieces if piece.rows]
    if not some:
        return _nothing(pieces[0].count, width)
    few_rows = budget.tuning.few_rows
    if sum([piece.rows for piece in some]) >= few_rows:
        advanced = gathered(
            some if frontier is None else [piece.advanced(1 + width, frontier) for piece in some], few_rows
        )
        fields = packing.layout(advanced)
        if len(some) == 1 and frontier is None:
            return _sorted(some, fields, width, budget)
        if fields is not None:
            return _batch(packing.consolidated(advanced, fields, budget), width, budget)
    elif len(some) > _PAIR and frontier is None and (few := _few(some)) is not None:
        return ColumnBatch.of(few, width)
    if len(some) == 1 and frontier is None:
        return _batch_of(some[0], width)
    tables = sorted([piece.table() for piece in some], key=_rows, reverse=True)
    while len(tables) > _PAIR:  # the two smallest first
        tables.append(kernels.merging.united(tables.pop(), tables.pop(), 0, _none()))
        tables.sort(key=_rows, reverse=True)
    other, limit = tables[1] if len(tables) == _PAIR else _none(), _none() if frontier is None else frontier
    return ColumnBatch.of(kernels.merging.united(tables[0], other, 1 + width, limit), width)


def gathered(pieces: Sequence[Columns], few: int) -> Sequence[Columns]:
    """The pieces, those with fewer rows than these as one, if they are several."""
    small = [piece for piece in pieces if piece.rows < few and piece.high is None]
    if len(small) < _SEVERAL:
        return pieces
    return [together(small), *(piece for piece in pieces if piece.rows >= few or piece.high is not None)]


def _one(pieces: Sequence[Columns]) -> Columns:
    """One or more pieces as one."""
    if len(pieces) == 1:
        return pieces[0]
    high = None if all(piece.high is None for piece in pieces) else np.concatenate([piece.upper() for piece in pieces])
    return Plain(np.concatenate([piece.table() for piece in pieces], axis=1), high)


@cache
def _none() -> np.ndarray:
    """The table of no updates, and a frontier without elements: int64 (0, 0)."""
    return np.empty((0, 0), dtype=np.int64)


def _rows(table: np.ndarray) -> int:
    return len(table[-1])


def _nothing(columns: int, width: int) -> ColumnBatch:
    """A batch without updates."""
    return ColumnBatch.of(np.empty((columns, 0), dtype=np.int64), width)


def _batch_of(piece: Columns, width: int) -> ColumnBatch:
    """A batch of sorted updates."""
    return ColumnBatch.of(piece.table(), width, piece.high)


def _is_kept_packed(rows: int, fields: Sequence[Field], budget: Budget) -> bool:
    """Whether a batch of so many rows stays packed: not where memory is limited, as columns go to files, nor where the
    code is packed in halves, which no look-up reads.
    """
    return rows >= budget.tuning.packed_rows and not fields[0].half and not budget.memory.is_limited


def _batch(summed: Summed, width: int, budget: Budget) -> SortedBatch:
    """A batch of columns code, words, times."""
    packed = summed.packed() if _is_kept_packed(len(summed), summed.fields, budget) else None
    return ColumnBatch.of(summed.table(), width) if packed is None else PackedBatch(packed, width)


def _few(pieces: Sequence[Columns]) -> np.ndarray | None:
    """Few updates consolidated: int64 (columns, m), the last of which has the sums; None if integers cannot hold them,
    and no :func:`packing.layout` either.
    """
    tables = [piece.table() for piece in pieces]
    if len(tables) > 2:
        tables = [np.concatenate(tables, axis=1)]
    columns, others = tables if len(tables) == _PAIR else (tables[0], _none())
    summed: np.ndarray
    done, summed, packed, table = kernels.small_batches.consolidate(columns, others)
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
    positions, out[0] = kernels.look_up.spread(order, starts, codes)
    np.take(table, positions, axis=1, out=out[1:], mode="clip")
    return ColumnBatch.of(out, width)


def _by_code(piece: Columns, width: int, key: Sequence[Type]) -> ColumnBatch:
    """Sort by code, and by the first words where codes differ in their last bits only."""
    keys = [piece.column(number) for number in range(len(key))]
    codes, first = (key_codes(keys, key, len(piece)), 0) if key else (piece.column(0), 1)
    order, least, shift = _order(codes)
    if shift:
        kernels.sorting.sort_within(order, np.stack([codes, *keys]), least, shift)
    table = np.empty((1 + piece.count - first, len(piece)), dtype=np.int64)
    np.take(codes, order, out=table[0], mode="clip")
    for into, number in zip(table[1:], range(first, piece.count), strict=True):
        values, least = piece.values(number)  # few bytes for each stay in a cache
        if values.dtype == np.int64:
            np.take(values, order, out=into, mode="clip")
        elif values.strides[0]:
            np.add(np.take(values, order, mode="clip"), least, out=into, dtype=np.int64)
        else:
            into.fill(least)
    return ColumnBatch.of(table, width)


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
