"""Sorted batches: immutable updates sorted by key code, with look-up by key.

:class:`SortedBatch` is what operators and traces use, whatever the encoding: arrays (:class:`ColumnBatch`), packed
integers (:class:`ddcore.traces.packed_batch.PackedBatch`) or a file (``io/state``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns, Plain

_INDEXED = 16  # a batch with fewer rows for each code that was looked up in it gets an index
_HALF = 2**63  # of all codes
_FEWER = 4  # bits of a bucket's number that are left out where memory is limited

Spans = tuple["np.ndarray", "np.ndarray"]
"""Ranges of rows, one per probe: the first row of each, and the first after it. int64[m] each."""


class SortedBatch(ABC):
    """Updates sorted by key code, then by words and times, and consolidated.

    The key of a direct arrangement (one fixed-width column) is its code, and the words are the values only; otherwise
    the first words are the key's, and rows of another key may have the same code. Rows are found by *spans* (ranges of
    row numbers): :meth:`locate` and its kin find these; :meth:`count`, :meth:`scatter`, :meth:`located`, :meth:`take`
    and :meth:`part` read what is there. Whoever needs all columns as arrays calls :meth:`decompress`.

    ``high`` has the upper words of sums of diffs that int64 does not hold, else None; no trace keeps such a batch.
    ``is_encoded``: columns are computed when they are read, so that steps divide such a batch between threads by rows
    that each of them reads, and leave out what they do not need. ``is_stored``: its rows are in files, which a fold
    adds to and never rewrites.
    """

    __slots__ = ()
    high: np.ndarray | None = None
    is_encoded = False
    is_stored = False

    @abstractmethod
    def __len__(self) -> int:
        """How many updates it has."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many words an update has."""

    @abstractmethod
    def columns(self) -> Columns:
        """The updates in their encoding: code, words, times, diffs."""

    @abstractmethod
    def decompress(self) -> ColumnBatch:
        """These updates with columns that are arrays. O(n) where they are not."""

    # -- finding rows --------------------------------------------------------------------------------------------------

    @abstractmethod
    def locate(self, probes: np.ndarray, budget: Budget = ALONE) -> Spans:
        """The rows of each code (int64[m], ascending): O(1) each if codes are spread evenly."""

    @abstractmethod
    def locate_between(self, after: np.ndarray, to: np.ndarray) -> Spans:
        """The rows of the codes that are greater than ``after[k]`` and at most ``to[k]``: int64[m] each, with
        ``after[k] <= to[k]``. By binary searches, without an index.
        """

    @abstractmethod
    def between(self, lo: np.ndarray, hi: np.ndarray, word: int, after: np.ndarray, to: np.ndarray) -> Spans:
        """The part of each span, in which a word ascends, where it is greater than ``after[k]`` and at most ``to[k]``.
        By binary searches.
        """

    @abstractmethod
    def index(self, budget: Budget = ALONE) -> None:
        """Make look-ups ready, once: O(n). The first does so itself; but a step that divides its keys between threads
        calls this before, so that they divide this work too.
        """

    def find(self, codes: np.ndarray, keys: np.ndarray, budget: Budget = ALONE) -> tuple[SortedBatch, Spans] | None:
        """A batch that has at least the rows of these keys (codes ascending, words (K, m), K is 0 for direct keys), in
        memory, for :meth:`count` and :meth:`scatter`; and their spans there. None where there is no row.
        """
        lo, hi = self.locate(codes, budget)
        if not np.count_nonzero(hi > lo):
            return None
        some, lo, hi = self.located(lo, hi)
        return some, (lo, hi)

    def searched(self, probes: int, budget: Budget) -> Searched:
        """What kernels need that search several batches at once for so many codes."""
        return self.decompress().searched(probes, budget)

    # -- reading rows --------------------------------------------------------------------------------------------------

    def count(self, counts: np.ndarray, keys: np.ndarray, spans: Spans) -> None:
        """Add to ``counts`` how many rows each key has in its span; if it is direct, these are all."""
        if len(keys):
            kernels.look_up.count_matches(counts, keys, *spans, self.decompress().words)
        else:
            counts += spans[1] - spans[0]

    def scatter(self, at: np.ndarray, out: np.ndarray, values: int, keys: np.ndarray, spans: Spans) -> None:
        """Write the ``values`` words, times and diffs of each key's rows in its span to ``out`` (columns, n) from
        ``at[k]`` on, which advances. Coordinates that the batch has not are 0 there.
        """
        self.decompress().scatter(at, out, values, keys, spans)

    @abstractmethod
    def located(self, lo: np.ndarray, hi: np.ndarray) -> tuple[ColumnBatch, np.ndarray, np.ndarray]:
        """The updates in the spans, at least, with columns that are arrays, and their spans there. Codes need not
        ascend in it.
        """

    def collapsed(self, spans: Spans, since: np.ndarray) -> tuple[SortedBatch, Spans] | None:
        """The updates in the spans at the joins of their times with ``since`` (coordinates), neighbours that are equal
        then added up, and their spans: O(rows of the spans). None where that takes a sort.
        """
        return None

    @abstractmethod
    def take(self, rows: np.ndarray) -> ColumnBatch:
        """The updates at these positions, which ascend: int64[m]."""

    def part(self, start: int, stop: int) -> SortedBatch:
        """Updates number ``start`` to ``stop``."""
        return self.decompress().part(start, stop)

    def without(self, codes: np.ndarray) -> SortedBatch:
        """The updates but those of some codes (int64[m], ascending): O(n)."""
        lo, hi = self.locate(codes)
        if not np.count_nonzero(hi > lo):
            return self
        kept = np.ones(len(self), dtype=bool)
        for start, stop in zip(lo.tolist(), hi.tolist(), strict=True):
            kept[start:stop] = False
        return self.take(np.flatnonzero(kept))

    def pieces(self, rows: int) -> Iterator[SortedBatch]:
        """Parts of about so many ``rows``. All rows with one code are in one part."""
        start, n = 0, len(self)
        while start < n:
            stop = min(start + rows, n)
            if stop < n:
                stop = self.span(self.code(stop - 1))[1]
            yield self.part(start, stop)
            start = stop

    # -- what is known of it -------------------------------------------------------------------------------------------

    def code(self, row: int) -> int:
        """The code of a row."""
        return self.decompress().code(row)

    @abstractmethod
    def span(self, code: int) -> tuple[int, int]:
        """The rows with a code, by a binary search and without an index."""

    def sample(self, step: int) -> np.ndarray:
        """The code of every ``step``-th update."""
        return self.decompress().sample(step)

    def versions(self) -> np.ndarray:
        """The first coordinates of the times: int64[n]."""
        return self.decompress().versions()

    @abstractmethod
    def memory(self) -> int:
        """The bytes that its rows take."""

    def take_reads(self) -> tuple[int, int]:
        """The rows and bytes that were read from a file since the last call."""
        return 0, 0

    def loaded(self) -> SortedBatch | None:
        """The same updates as a batch that is not ``is_stored``, if all of them are in memory."""
        return None if self.is_stored else self


class ColumnBatch(SortedBatch):
    """A sorted batch of arrays: ``codes`` int64[n], ``words`` (W, n), ``times`` (D, n), ``diffs`` int64[n]."""

    __slots__ = (
        "_least",
        "_probes",
        "_shift",
        "_starts",
        "_table",
        "_whole",
        "codes",
        "diffs",
        "high",
        "times",
        "words",
    )

    def __init__(
        self,
        codes: np.ndarray,
        words: np.ndarray,
        times: np.ndarray,
        diffs: np.ndarray,
        high: np.ndarray | None = None,
    ) -> None:
        self.codes, self.words, self.times, self.diffs, self.high = codes, words, times, diffs, high
        self._table: np.ndarray | None = None  # in which they all lie
        self._starts: np.ndarray | None = None
        self._least = self._shift = self._probes = 0
        self._whole: tuple[np.ndarray, tuple[int, int]] | None = None  # without an index

    @classmethod
    def of(cls, table: np.ndarray, width: int, high: np.ndarray | None = None) -> ColumnBatch:
        """A batch of columns that lie in one array, of which ``width`` are words: int64 (columns, n)."""
        batch = cls(table[0], table[1 : 1 + width], table[1 + width : -1], table[-1], high)
        batch._table = table
        return batch

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def width(self) -> int:
        """How many words an update has."""
        return len(self.words)

    @property
    def table(self) -> np.ndarray:
        """All columns in one array: int64 (columns, n). O(n) if they are not yet."""
        if self._table is None:
            table = self._table = np.concatenate([self.codes[None], self.words, self.times, self.diffs[None]])
            width = self.width
            self.codes, self.words, self.times, self.diffs = (
                table[0],
                table[1 : 1 + width],
                table[1 + width : -1],
                table[-1],
            )
        return self._table

    def columns(self) -> Plain:
        """The arrays."""
        table = self._table
        return Plain([self.codes, *self.words, *self.times, self.diffs] if table is None else table, self.high)

    def decompress(self) -> ColumnBatch:
        """These."""
        return self

    def locate(self, probes: np.ndarray, budget: Budget = ALONE) -> Spans:
        """The rows of each code, through buckets."""
        starts, (least, shift) = self._buckets(len(probes), budget)
        spans: Spans = kernels.look_up.locate(self.codes, starts, least, shift, probes)
        return spans

    def locate_between(self, after: np.ndarray, to: np.ndarray) -> Spans:
        """The rows of the codes between two."""
        return np.searchsorted(self.codes, after, "right"), np.searchsorted(self.codes, to, "right")

    def between(self, lo: np.ndarray, hi: np.ndarray, word: int, after: np.ndarray, to: np.ndarray) -> Spans:
        """The rows of each span whose word is between two."""
        values = self.words[word]
        first = kernels.look_up.beyond(values, lo, hi, after)
        return first, kernels.look_up.beyond(values, first, hi, to)

    def index(self, budget: Budget = ALONE) -> None:
        """Find the buckets of codes."""
        if self._starts is None and len(self) > budget.tuning.unindexed_rows:
            self._starts = self._bucket_starts(budget)

    def searched(self, probes: int, budget: Budget) -> Searched:
        """The arrays."""
        return Searched(self, self.table if self._table is None else self._table, *self._buckets(probes, budget))

    def scatter(self, at: np.ndarray, out: np.ndarray, values: int, keys: np.ndarray, spans: Spans) -> None:
        """Copy the rows of each key."""
        kernels.look_up.copy_matches(
            at, out[:values], out[values:-1], out[-1], keys, *spans, self.words, self.times, self.diffs
        )

    def located(self, lo: np.ndarray, hi: np.ndarray) -> tuple[ColumnBatch, np.ndarray, np.ndarray]:
        """All of it."""
        return self, lo, hi

    def take(self, rows: np.ndarray) -> ColumnBatch:
        """The updates at these positions."""
        high = None if self.high is None else self.high[rows]
        return ColumnBatch.of(np.take(self.table, rows, axis=1), self.width, high)

    def part(self, start: int, stop: int) -> ColumnBatch:
        """Updates number ``start`` to ``stop``. A copy."""
        high = None if self.high is None else self.high[start:stop]
        return ColumnBatch.of(np.ascontiguousarray(self.table[:, start:stop]), self.width, high)

    def code(self, row: int) -> int:
        """The code of a row."""
        return int(self.codes[row])

    def span(self, code: int) -> tuple[int, int]:
        """The rows with a code."""
        return int(np.searchsorted(self.codes, code, "left")), int(np.searchsorted(self.codes, code, "right"))

    def sample(self, step: int) -> np.ndarray:
        """The code of every ``step``-th update."""
        return self.codes[::step]

    def versions(self) -> np.ndarray:
        """The first coordinates of the times."""
        versions: np.ndarray = self.times[0]
        return versions

    def memory(self) -> int:
        """The bytes that its rows take."""
        return int(self.codes.nbytes + self.words.nbytes + self.times.nbytes + self.diffs.nbytes)

    def _buckets(self, probes: int, budget: Budget) -> tuple[np.ndarray, tuple[int, int]]:
        """Where each bucket starts, and the least code and the shift that tell the bucket of a code. There is an index
        once many codes were looked up, compared to the rows that it would take to make it.
        """
        self._probes += probes
        if self._starts is None and _INDEXED * self._probes > len(self):
            self.index(budget)
        if self._starts is not None:
            return self._starts, (self._least, self._shift)
        if self._whole is None:
            self._whole = _whole(self.codes)
        return self._whole

    def _bucket_starts(self, budget: Budget) -> np.ndarray:
        """The first row of each bucket, and one past the end: about one bucket per row; dense integer keys get a bucket
        each. Where memory is limited, there is one for some ten rows.
        """
        n = len(self.codes)
        if n == 0:
            return np.zeros(2, dtype=np.int64)
        self._least = int(self.codes[0])
        spread = int(self.codes[-1]) - self._least
        fewer = _FEWER if budget.memory.is_limited else 0
        self._shift = max(0, spread.bit_length() - max(6, n.bit_length() - fewer))
        return bucket_starts(self.codes.view(np.uint64), 0, spread, self._shift, budget)


def _whole(codes: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """The codes as one bucket, or two where they are far apart, for binary searches."""
    if len(codes) == 0:
        return np.zeros(2, dtype=np.int64), (0, 0)
    least, most, n = int(codes[0]), int(codes[-1]), len(codes)
    if most - least < _HALF:
        return np.array([0, n]), (least, (most - least).bit_length())
    return np.array([0, int(np.searchsorted(codes, least + _HALF)), n]), (least, 63)


def bucket_starts(rows: np.ndarray, down: int, spread: int, shift: int, budget: Budget) -> np.ndarray:
    """The first row of each bucket of ``2**shift`` codes, and one past the end: int64[buckets + 1].

    ``rows`` ascend: uint64[n], each with its code in the bits from ``down`` on. The greatest code is the least plus
    ``spread``. Many rows are divided between threads. O(n + buckets).
    """
    starts, portion = np.empty((spread >> shift) + 2, dtype=np.int64), budget.tuning.indexed_rows

    def fill(first: int) -> None:
        kernels.packed.bucket_starts(starts, rows, down, shift, first, min(first + portion, len(rows)))

    for _ in budget.map(fill, range(0, len(rows), portion)):
        pass
    starts[-1] = len(rows)
    return starts


class Searched(NamedTuple):
    """A batch as kernels search it: its columns in one array, where each bucket of codes starts, and its place: the
    least code and the shift that tell the bucket of a code.
    """

    batch: ColumnBatch
    table: np.ndarray
    starts: np.ndarray
    position: tuple[int, int]
