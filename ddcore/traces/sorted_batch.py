"""Sorted batches: immutable updates sorted by key code, with look-up by key."""

from __future__ import annotations

from ddcore import kernels
from ddcore.base import threads
from ddcore.base.lazy import numpy as np
from ddcore.traces import spilling

__all__ = ["SortedBatch", "bucket_starts"]

_PORTION = 1 << 18  # rows of which one thread finds the buckets
_ONE_BUCKET = 1 << 8  # rows that are searched without an index
_FEWER = 4  # bits of a bucket's number that are left out where memory is limited


class SortedBatch:
    """Updates sorted by key code: ``codes`` int64[n], ``words`` (W, n), ``times`` (D, n), ``diffs`` int64[n].

    The key of a direct arrangement (one fixed-width column) is its code, and ``words`` holds the values only;
    otherwise the first words are the key's. Batches from this module are also sorted by words and times within a
    code, and consolidated. ``high`` is None unless some sum of diffs in :func:`arrange` exceeds int64; no
    trace keeps such a batch. ``columns`` is None, or one array in which codes, words, times and diffs lie.
    """

    __slots__ = ("_codes", "_diffs", "_least", "_shift", "_starts", "_times", "_words", "columns", "high")

    def __init__(
        self,
        codes: np.ndarray,
        words: np.ndarray,
        times: np.ndarray,
        diffs: np.ndarray,
        high: np.ndarray | None = None,
    ) -> None:
        self._codes, self._words, self._times, self._diffs, self.high = codes, words, times, diffs, high
        self.columns: np.ndarray | None = None
        self._starts: np.ndarray | None = None
        self._least = self._shift = 0

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def codes(self) -> np.ndarray:
        """The key codes, ascending: int64[n]."""
        return self._codes

    @property
    def words(self) -> np.ndarray:
        """The words: int64 (W, n)."""
        return self._words

    @property
    def times(self) -> np.ndarray:
        """The times: int64 (D, n)."""
        return self._times

    @property
    def diffs(self) -> np.ndarray:
        """The diffs: int64[n]; the lower words where there is ``high``."""
        return self._diffs

    @property
    def width(self) -> int:
        """How many words an update has."""
        return len(self._words)

    def widen(self) -> SortedBatch:
        """These updates with columns that are arrays: all rows of a batch in a file."""
        return self

    def take(self, rows: np.ndarray) -> SortedBatch:
        """The updates at these positions, which ascend: int64[m]."""
        high = None if self.high is None else self.high[rows]
        words, times = np.take(self.words, rows, axis=1), np.take(self.times, rows, axis=1)
        return SortedBatch(self.codes[rows], words, times, self.diffs[rows], high)

    def part(self, start: int, stop: int) -> SortedBatch:
        """Updates number ``start`` to ``stop``. Words and times are copied."""
        words, times = np.ascontiguousarray(self.words[:, start:stop]), np.ascontiguousarray(self.times[:, start:stop])
        high = None if self.high is None else self.high[start:stop]
        return SortedBatch(self.codes[start:stop], words, times, self.diffs[start:stop], high)

    def locate(self, probes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row ranges [lo, hi) of equal code, one per probe (int64[m], ascending): O(1) each if codes are
        spread evenly.
        """
        self.index()
        ranges: tuple[np.ndarray, np.ndarray] = kernels.look_up.locate(
            self.codes, self._starts, self._least, self._shift, probes
        )
        return ranges

    def located(self, lo: np.ndarray, hi: np.ndarray) -> tuple[SortedBatch, np.ndarray, np.ndarray]:
        """The updates in the ranges lo[k]:hi[k], at least, in a batch whose columns are arrays, and their ranges there.

        For batches whose rows lie elsewhere: packed, or in a file. Codes need not ascend in it.
        """
        return self, lo, hi

    def locate_between(self, after: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row ranges [lo, hi) of the codes that are greater than ``after[k]`` and at most ``to[k]``: int64[m] each,
        with ``after[k] <= to[k]``. By binary searches, without an index.
        """
        return np.searchsorted(self.codes, after, "right"), np.searchsorted(self.codes, to, "right")

    def between(
        self, lo: np.ndarray, hi: np.ndarray, word: int, after: np.ndarray, to: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The part of each range [lo, hi) of rows, in which a word ascends, where it is greater than ``after[k]`` and
        at most ``to[k]``. By binary searches.
        """
        values = self.words[word]
        first = kernels.look_up.beyond(values, lo, hi, after)
        return first, kernels.look_up.beyond(values, first, hi, to)

    def index(self) -> None:
        """Make look-ups ready, once: O(n). The first does so itself; but a step that divides its keys between threads
        calls this before, so that they divide this work too.
        """
        if self._starts is None:
            self._starts = self._bucket_starts()

    def load_all(self) -> None:
        """Have all rows in memory, where some are in a file."""

    def take_reads(self) -> tuple[int, int]:
        """The rows and bytes that were read from a file since the last call."""
        return 0, 0

    def versions(self) -> np.ndarray:
        """The first coordinates of the times: int64[n]."""
        versions: np.ndarray = self.times[0]
        return versions

    def sample(self, step: int) -> np.ndarray:
        """The code of every ``step``-th update."""
        return self.codes[::step]

    def span(self, code: int) -> tuple[int, int]:
        """The range of updates with a code, by a binary search and without an index."""
        return int(np.searchsorted(self.codes, code, "left")), int(np.searchsorted(self.codes, code, "right"))

    def memory(self) -> int:
        """The bytes that its rows take."""
        return int(self.codes.nbytes + self.words.nbytes + self.times.nbytes + self.diffs.nbytes)

    def _bucket_starts(self) -> np.ndarray:
        """The first row of each bucket, and one past the end: about one bucket per row; dense integer keys get a bucket
        each. Where memory is limited, there is one for some ten rows.
        """
        n = len(self.codes)
        if n == 0:
            return np.zeros(2, dtype=np.int64)
        self._least = int(self.codes[0])
        spread = int(self.codes[-1]) - self._least
        if n <= _ONE_BUCKET and spread < 2**63:
            self._shift = spread.bit_length()
            return np.array([0, n])
        fewer = 0 if spilling.current() is None else _FEWER
        self._shift = max(0, spread.bit_length() - max(6, n.bit_length() - fewer))
        return bucket_starts(self.codes.view(np.uint64), 0, spread, self._shift)


def bucket_starts(rows: np.ndarray, down: int, spread: int, shift: int) -> np.ndarray:
    """The first row of each bucket of ``2**shift`` codes, and one past the end: int64[buckets + 1].

    ``rows`` ascend: uint64[n], each with its code in the bits from ``down`` on. The greatest code is the least plus
    ``spread``. Many rows are divided between threads. O(n + buckets).
    """
    starts = np.empty((spread >> shift) + 2, dtype=np.int64)

    def fill(first: int) -> None:
        kernels.packed.bucket_starts(starts, rows, down, shift, first, min(first + _PORTION, len(rows)))

    for _ in threads.each(fill, range(0, len(rows), _PORTION)):
        pass
    starts[-1] = len(rows)
    return starts
