"""Traces: the history of one arrangement as a few sorted batches, with look-up by key.

A :class:`SortedBatch` is immutable and sorted by key code. A :class:`Trace` keeps few of them: it merges small ones as
it grows, with history only as far as it can still be told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ddcore import kernels
from ddcore.errors import DiffOverflow
from ddcore.lattice import advance
from ddcore.libraries import numpy as np
from ddcore.narrow import NarrowBatch

_PACKED_BITS = 63
_HALF_BITS = 32
_LOWER = 2**_HALF_BITS - 1
_LONG = 16  # rows of a key


if TYPE_CHECKING:
    # Updates as columns: code, words, times, diffs.
    Piece = Sequence[np.ndarray] | NarrowBatch


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
        """The updates at these positions, which ascend: int64[m]."""
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


@dataclass(slots=True)
class _Fresh:
    """A batch of the working index, and which original it still is; None: merged from several."""

    batch: SortedBatch
    original: int | None = None


class Trace:
    """The sorted batches of one arrangement, oldest first. Append is amortised O(log n) a row.

    Two things grow with a fold. The *working index* is for look-ups: it is merged as it grows, at times that no work
    left in the fold can tell from the true ones. The *originals* keep their times, narrow, for :meth:`settle`.
    ``apart``: readers tell the newest batch from those before it, which is then not merged yet.
    """

    def __init__(self, stored: Sequence[SortedBatch] = (), *, apart: bool = True) -> None:
        self.stored = list(stored)  # of earlier folds; those in files are never merged here
        self.apart = apart
        self._fresh: list[_Fresh] = []
        self._originals: list[SortedBatch | NarrowBatch] = []

    @property
    def batches(self) -> list[SortedBatch]:
        """All batches, oldest first: those stored and the working index."""
        return self.stored + [fresh.batch for fresh in self._fresh]

    def append(self, batch: SortedBatch, frontier: np.ndarray | None = None) -> None:
        """Add the newest batch, and merge batches of similar sizes.

        All later look-ups in this fold are for times at or beyond ``frontier`` (coordinates, elements).
        """
        newest = _Fresh(batch, len(self._originals))
        self._originals.append(batch)
        if not self.apart:
            self._fresh.append(newest)
        while len(self._fresh) > 1 and 2 * len(self._fresh[-1].batch) >= len(self._fresh[-2].batch):
            last, before = self._fresh.pop(), self._fresh.pop()
            merged = merge(before.batch, last.batch, frontier)
            for each in (last, before):
                if each.original is not None:
                    self._originals[each.original] = narrow(each.batch)
            self._fresh.append(_Fresh(merged))
        if self.apart:
            self._fresh.append(newest)

    def settle(self) -> SortedBatch | None:
        """The updates of this fold at their own times as one batch, or None if there are none; they count as stored
        from now on. Batches of this process are merged, so that a thousand folds do not leave a thousand to search.
        """
        originals, self._fresh, self._originals = self._originals, [], []
        batch = union(originals) if originals else None
        if batch is None or len(batch) == 0:
            return None
        stored, merged = self.stored, batch
        while stored and type(stored[-1]) is SortedBatch and 2 * len(merged) >= len(stored[-1]):
            merged = merge(stored.pop(), merged)
        stored.append(merged)
        return batch

    def before(self, newest: SortedBatch | None) -> list[SortedBatch]:
        """All batches but ``newest``, for readers that tell it ``apart``."""
        return [batch for batch in self.batches if batch is not newest]


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
        return arrange_all([[codes, *words, *times, diffs]], len(words))
    return _arrange_wide(codes, words, times, diffs, high)


def arrange_all(pieces: Sequence[Piece], words: int) -> SortedBatch:
    """The same for updates in one or more pieces, of which none is empty."""
    layout = _layout(pieces)
    if layout is not None:
        return _arrange_packed(pieces, layout, words)
    if len(pieces) == 1:
        codes, *columns, diffs = pieces[0]
    else:
        codes, *columns, diffs = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return _arrange_wide(codes, columns[:words], columns[words:], diffs)


def merge(a: SortedBatch, b: SortedBatch, frontier: np.ndarray | None = None) -> SortedBatch:
    """One batch with the updates of two. Updates whose diffs add up to more than int64 holds stay apart.

    With a ``frontier`` (coordinates, elements) times become their representatives beyond it. Costs one sort of packed
    integers where columns fit into one, else a pass over both.
    """
    pieces = [_columns(batch, frontier) for batch in (a, b) if len(batch)]
    layout = _layout(pieces) if pieces else None
    if layout is not None:
        return _arrange_packed(pieces, layout, len(a.words))
    merged = _merge_wide(a, b)
    return merged if frontier is None else _advanced(merged, frontier)


def narrow(batch: SortedBatch) -> NarrowBatch:
    """The batch in as few bytes as its columns need."""
    return NarrowBatch.of(_columns(batch), len(batch.words))


def union(batches: Sequence[SortedBatch | NarrowBatch]) -> SortedBatch:
    """The updates of one or more batches as one."""
    if len(batches) == 1:
        return _widened(batches[0])
    pieces = [batch if isinstance(batch, NarrowBatch) else _columns(batch) for batch in batches]
    layout, first = _layout(pieces), batches[0]
    if layout is not None:
        return _arrange_packed(pieces, layout, first.words if isinstance(first, NarrowBatch) else len(first.words))
    queue = sorted(batches, key=len, reverse=True)
    while len(queue) > 1:  # the two smallest first
        queue.append(merge(_widened(queue.pop()), _widened(queue.pop())))
        queue.sort(key=len, reverse=True)
    return _widened(queue[0])


def distinct_keys(batch: SortedBatch, key_words: int) -> tuple[Keys, np.ndarray]:
    """The keys of a consolidated batch, and where the rows of each start (int64[m + 1])."""
    starts = kernels.runs.group_starts(batch.codes, batch.words, key_words)
    heads = starts[:-1]
    return Keys(batch.codes[heads], np.ascontiguousarray(batch.words[:key_words, heads])), starts


def gather(
    batches: Sequence[SortedBatch], keys: Keys, values: int, depth: int, frontier: np.ndarray | None = None
) -> Rows:
    """All rows of the keys in all batches: ``values`` words and ``depth`` time coordinates each.

    A batch with fewer coordinates (an arrangement of an outer scope) reads as if at round 0. With a ``frontier``
    (coordinates, elements) long histories in several batches are at the representatives of their times beyond it, and
    added up.
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
    if frontier is None or len(batches) < 2 or not _has_long_histories(counts):
        return rows
    return Rows(*kernels.runs.compact(rows.offsets, rows.words, rows.times, rows.diffs, frontier))


def _has_long_histories(counts: np.ndarray) -> bool:
    """Whether adding rows up pays: a quarter of all rows belongs to keys with many. Of few rows hardly any meet."""
    return 4 * int(counts[counts >= _LONG].sum()) > int(counts.sum())


@dataclass(frozen=True, slots=True)
class _Field:
    """The place of a column, or of a half of it, in a packed integer."""

    column: int
    least: int
    bits: int
    half: str = ""  # upper or lower; empty: the whole column

    def of(self, column: np.ndarray) -> np.ndarray:
        """What is packed of a column; ``least`` is to be taken away."""
        if not self.half:
            return column
        return column >> _HALF_BITS if self.half == "upper" else column & _LOWER


def _layout(pieces: Sequence[Piece]) -> list[_Field] | None:
    """How the columns of the pieces fit into one integer together (the last one is the diffs); None if they do not.

    It is also None if sums of diffs could overflow int64, because packed diffs are summed unchecked. A column that is
    too wide is packed in halves: a loop coordinate with priorities has few different ones in each.
    """
    bounds = _union_of([(int(c.min()), int(c.max())) for c in piece] for piece in pieces)
    least, most = bounds[-1]
    rows = sum(map(_rows_of, pieces))
    if max(-least, most) * rows >= 2**63:
        return None
    fields = [_Field(i, least, (most - least).bit_length()) for i, (least, most) in enumerate(bounds)]
    wide = [field.column for field in fields[:-1] if field.bits > _HALF_BITS]
    if sum(field.bits for field in fields) > _PACKED_BITS and len(wide) == 1:
        halves = _union_of(_half_bounds(piece, wide[0]) for piece in pieces)
        upper, lower = (
            _Field(wide[0], least, (most - least).bit_length(), half)
            for (least, most), half in zip(halves, ("upper", "lower"), strict=True)
        )
        fields[wide[0] : wide[0] + 1] = [upper, lower]
    return fields if sum(field.bits for field in fields) <= _PACKED_BITS else None


def _half_bounds(piece: Piece, number: int) -> list[tuple[int, int]]:
    column = next(islice(piece, number, None))
    lower = column & _LOWER
    return [(int(column.min()) >> _HALF_BITS, int(column.max()) >> _HALF_BITS), (int(lower.min()), int(lower.max()))]


def _union_of(bounds: Iterable[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The least and the greatest value of each column of all pieces."""
    return [(min(low for low, _ in each), max(high for _, high in each)) for each in zip(*bounds, strict=True)]


def _arrange_packed(pieces: Sequence[Piece], layout: list[_Field], words: int) -> SortedBatch:
    packed = np.zeros(sum(map(_rows_of, pieces)), dtype=np.uint64)
    start = 0
    for piece in pieces:
        stop = start + _rows_of(piece)
        _pack(packed[start:stop], piece, layout)
        start = stop
    packed.sort()
    last = layout[-1]
    rows, sums = kernels.sorting.sum_equal(packed, last.bits, last.least)
    if 2 * len(sums) < len(packed):
        sums = sums.copy()  # it is the beginning of a longer array, which may go
    out = np.empty((last.column, len(rows)), dtype=np.int64)
    shift = 0
    for field in reversed(layout[:-1]):
        into = np.empty(len(rows), dtype=np.int64) if field.half == "lower" else out[field.column]
        if field.bits:
            kernels.sorting.unpack(into, rows, shift, field.bits, field.least)
        else:
            into.fill(field.least)
        if field.half == "lower":
            lower = into
        elif field.half == "upper":
            into <<= _HALF_BITS
            into |= lower
        shift += field.bits
    return SortedBatch(out[0], out[1 : 1 + words], out[1 + words :], sums)


def _pack(packed: np.ndarray, piece: Piece, layout: list[_Field]) -> None:
    """The rows of a piece, each as one integer."""
    for number, column in enumerate(piece):
        for field in layout:
            if field.column == number and field.bits:
                kernels.sorting.pack(packed, np.ascontiguousarray(field.of(column)), field.least, field.bits)


def _rows_of(piece: Piece) -> int:
    return len(piece) if isinstance(piece, NarrowBatch) else len(piece[0])


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
    packed.sort()
    packed &= np.uint64((1 << digits) - 1)
    return packed.view(np.int64), least, shift


def _distinct(columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of the columns; all of them in their order are not copied."""
    if len(rows) == columns.shape[1] and bool((rows[1:] > rows[:-1]).all()):
        return columns
    return np.take(columns, rows, axis=1)  # stays contiguous by column


def _merge_wide(a: SortedBatch, b: SortedBatch) -> SortedBatch:
    take, diffs = kernels.runs.merge(a.codes, a.words, a.times, a.diffs, b.codes, b.words, b.times, b.diffs)
    n = len(take)
    codes, words, times = (
        np.empty((1, n), np.int64), np.empty((len(a.words), n), np.int64), np.empty((len(a.times), n), np.int64)
    )  # fmt: skip
    kernels.runs.take_rows(codes, take, a.codes.reshape(1, -1), b.codes.reshape(1, -1))
    kernels.runs.take_rows(words, take, a.words, b.words)
    kernels.runs.take_rows(times, take, a.times, b.times)
    return SortedBatch(codes[0], words, times, diffs)


def _advanced(batch: SortedBatch, frontier: np.ndarray) -> SortedBatch:
    """A batch at the representatives of its times; unchanged if int64 cannot hold a sum."""
    words = len(batch.words)
    columns = np.concatenate([batch.codes.reshape(1, -1), batch.words, advance(batch.times, frontier)])
    order = np.arange(len(batch))
    kernels.sorting.sort_within(order, columns, 0, 0)
    rows, sums = kernels.sorting.sum_runs(order, columns, batch.diffs)
    if sums[-1]:
        return batch
    columns = _distinct(columns, rows)
    return SortedBatch(columns[0], columns[1 : 1 + words], columns[1 + words :], sums[:-1].copy())


def _columns(batch: SortedBatch, frontier: np.ndarray | None = None) -> list[np.ndarray]:
    """The columns of a batch, with its times or their representatives beyond the frontier."""
    times = batch.times
    if frontier is None or len(batch) == 0:
        return [batch.codes, *batch.words, *times, batch.diffs]
    if frontier.shape[1] > 1:
        return [batch.codes, *batch.words, *advance(times, frontier), batch.diffs]
    return [batch.codes, *batch.words, *map(_at_least, times, frontier[:, 0]), batch.diffs]


def _at_least(column: np.ndarray, least: np.int64) -> np.ndarray:
    """The column, with ``least`` in the place of what is less; without a copy where all of it is more or less."""
    if column.max() <= least:
        return np.broadcast_to(least, column.shape)
    return column if column.min() >= least else np.maximum(column, least)


def _widened(batch: SortedBatch | NarrowBatch) -> SortedBatch:
    if not isinstance(batch, NarrowBatch):
        return batch
    codes, *columns, diffs = batch
    both = np.stack(columns) if columns else np.empty((0, len(codes)), dtype=np.int64)
    return SortedBatch(codes, both[: batch.words], both[batch.words :], diffs)


def _stack(columns: list[np.ndarray], n: int) -> np.ndarray:
    return np.stack(columns) if columns else np.empty((0, n), dtype=np.int64)
