"""Update batches: the columns of many (row, time, diff) at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddcore.base.lazy import numpy as np

_LEAST = -(2**63)


@dataclass(slots=True)
class Batch:
    """Updates of one collection: n rows as words, their times and their diffs.

    ``words`` holds one int64[n] per column of the collection, ``times`` one int64[n] per coordinate, ``diffs`` is
    int64[n]. A batch is not consolidated: the same (row, time) may occur again, and diffs may cancel.

    Until they are added up, diffs may need 128 bits (a product of two, -2**63 negated). ``high`` then
    has the upper words, int64[n], and ``diffs`` the lower ones; it is None where int64 holds every diff.
    """

    words: list[np.ndarray]
    times: list[np.ndarray]
    diffs: np.ndarray
    high: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.diffs)

    def take(self, rows: np.ndarray | slice) -> Batch:
        """The updates at these positions (or under this mask)."""
        high = None if self.high is None else self.high[rows]
        return Batch([w[rows] for w in self.words], [t[rows] for t in self.times], self.diffs[rows], high)

    def of(self, words: list[np.ndarray]) -> Batch:
        """These updates with other rows: times and diffs stay."""
        return Batch(words, self.times, self.diffs, self.high)

    def at(self, times: list[np.ndarray]) -> Batch:
        """These updates at other times."""
        return Batch(self.words, times, self.diffs, self.high)

    def negated(self) -> Batch:
        """These updates with opposite diffs."""
        if self.high is None and not (len(self.diffs) and self.diffs.min() == _LEAST):
            return Batch(self.words, self.times, -self.diffs)
        low = np.negative(self.diffs)  # numpy wraps around silently, which is right for the lower words
        return Batch(self.words, self.times, low, ~self.upper() + (low == 0))

    def upper(self) -> np.ndarray:
        """The upper words of the diffs, int64[n]."""
        return self.diffs >> 63 if self.high is None else self.high


def concatenate(batches: Sequence[Batch]) -> Batch:
    """All updates of one or more batches of the same shape."""
    if len(batches) == 1:
        return batches[0]
    wide = any(b.high is not None for b in batches)
    return Batch(
        [np.concatenate(columns) for columns in zip(*(b.words for b in batches), strict=True)],
        [np.concatenate(columns) for columns in zip(*(b.times for b in batches), strict=True)],
        np.concatenate([b.diffs for b in batches]),
        np.concatenate([b.upper() for b in batches]) if wide else None,
    )
