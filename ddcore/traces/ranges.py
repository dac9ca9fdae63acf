"""Updates in ranges of their rows, so that only some rows are worked on at once where memory is limited.

What is put together from many ranges is written to a file range by range (:mod:`ddcore.traces.spilling`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from ddcore.base.lazy import numpy as np
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch

_PICKS = 4  # keys for each range, among which its ends are chosen

Combine = Callable[[Sequence[Columns], int], SortedBatch]
"""What makes one batch of sorted updates: code, words, times and diffs, and how many of these columns are words."""


def spilled(batch: SortedBatch, budget: Budget = ALONE) -> SortedBatch:
    """The batch, which nothing changes any more: in a file if it is large and memory is nearly used up."""
    memory = budget.memory
    if not memory.is_limited or batch.high is not None:
        return batch
    return ColumnBatch.of(memory.rest([batch.decompress().table])[0], batch.width)


def combined(pieces: Sequence[Columns], width: int, combine: Combine, budget: Budget = ALONE) -> SortedBatch:
    """What ``combine`` makes of pieces that are sorted each. Where memory is limited it gets many rows in parts: of
    each piece the rows of one range. Equal codes and words are in one range, and its results are sorted by these.
    """
    memory = budget.memory
    if not memory.is_limited:
        return combine(pieces, width)
    total = sum(map(len, pieces))
    if total <= memory.rows:
        return spilled(combine(pieces, width), budget)
    parts = (
        combine([piece.part(*span) for piece, span in zip(pieces, spans, strict=True)], width)
        for spans in _ranges(pieces, memory.rows, width)
    )
    batch = one_after_another(parts, pieces[0].count, total, budget)
    return combine(pieces, width) if batch is None else batch


def one_after_another(
    batches: Iterator[SortedBatch], columns: int, rows: int, budget: Budget = ALONE
) -> SortedBatch | None:
    """Batches whose rows ascend from one to the next as one, of at most so many rows. None where int64 does not hold a
    diff: no file has such; it is rare, and soon an error where there is a trace.
    """
    table, written, width = budget.memory.table(columns, rows), 0, 0
    for batch in batches:
        if batch.high is not None:
            return None
        for number, column in enumerate(batch.columns()):
            table.write(number, written, column)
        written, width = written + len(batch), batch.width
    return ColumnBatch.of(table.first(written), width)


def portions(
    batches: Sequence[SortedBatch | None], key_words: int, budget: Budget = ALONE
) -> Iterator[list[SortedBatch | None]]:
    """The batches; where memory is limited in parts, with all rows of a key in one."""
    rows = budget.memory.rows
    some = [batch for batch in batches if batch is not None]
    if sum(map(len, some)) <= rows:
        yield list(batches)
        return
    for spans in _ranges([batch.columns() for batch in some], rows, key_words):
        parts = iter([batch.part(*span) for batch, span in zip(some, spans, strict=True)])
        result = [None if batch is None else next(parts) for batch in batches]
        yield [None if part is None or len(part) == 0 else part for part in result]


def _ranges(pieces: Sequence[Columns], rows: int, width: int) -> Iterator[list[tuple[int, int]]]:
    """Ranges of some ``rows`` rows in all pieces together, as the first and the last row in each. Rows with the same
    code and the same first ``width`` words are in one range, whatever their number.
    """
    stride = max(1, rows // _PICKS)
    columns = [[piece.values(number) for number in range(1 + width)] for piece in pieces]
    keys = {
        tuple(int(values[at]) + least for values, least in columns[number])
        for number, piece in enumerate(pieces)
        for at in range(stride * (number + 1) // len(pieces), len(piece), stride)
    }
    chosen = [[0] * len(pieces)]
    before, total = chosen[0], 0
    for key in sorted(keys):
        starts = [_lower_bound(some, key, len(piece)) for some, piece in zip(columns, pieces, strict=True)]
        total = sum(starts) - sum(chosen[-1])
        if total > rows and before is not chosen[-1]:
            chosen.append(before)
        before = starts
    chosen += [before, [len(piece) for piece in pieces]]
    for a, b in pairwise(chosen):
        if sum(b) > sum(a):
            yield list(zip(a, b, strict=True))


def _lower_bound(columns: Sequence[tuple[np.ndarray, int]], key: Sequence[int], rows: int) -> int:
    """The first row that is not before the key, column by column: O(columns log rows)."""
    lo, hi = 0, rows
    for (values, least), word in zip(columns, key, strict=True):
        distance, bounds = word - least, np.iinfo(values.dtype)
        if distance < bounds.min or lo == hi:
            return lo
        if distance > bounds.max:
            return hi
        wanted = values.dtype.type(distance)  # of the array's own type: numpy would convert the array to another one
        lo, hi = (lo + int(np.searchsorted(values[lo:hi], wanted, side=side)) for side in ("left", "right"))
    return lo
