"""Update batches: the columns of many (row, time, diff) at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddcore.errors import DiffOverflow

_LEAST = -(2**63)


@dataclass(slots=True)
class Batch:
    """Updates of one collection: n rows as words, their times and their diffs.

    ``words`` holds one int64[n] per column of the collection, ``times`` one int64[n] per coordinate, ``diffs`` is
    int64[n]. A batch is not consolidated: the same (row, time) may occur again, and diffs may cancel.
    """

    words: list[np.ndarray]
    times: list[np.ndarray]
    diffs: np.ndarray

    def __len__(self) -> int:
        return len(self.diffs)

    def take(self, rows: np.ndarray) -> Batch:
        """The updates at these positions (or under this mask)."""
        return Batch([w[rows] for w in self.words], [t[rows] for t in self.times], self.diffs[rows])

    def negated(self) -> Batch:
        """The same updates with opposite diffs. Raises DiffOverflow."""
        if len(self.diffs) and self.diffs.min() == _LEAST:
            raise DiffOverflow(f"the diff {_LEAST} cannot be negated within int64")
        return Batch(self.words, self.times, -self.diffs)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """All updates of one or more batches of the same shape."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        [np.concatenate(columns) for columns in zip(*(b.words for b in batches), strict=True)],
        [np.concatenate(columns) for columns in zip(*(b.times for b in batches), strict=True)],
        np.concatenate([b.diffs for b in batches]),
    )
