"""Narrow batches: updates that nothing looks up for now, in as few bytes as their columns need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddcore import threads
from ddcore.libraries import numpy as np

_LONG = 1 << 15  # values of a column that is worth a thread
_KINDS = ("uint8", "uint16", "uint32")


@dataclass(slots=True)
class NarrowColumn:
    """int64[n] as its least value and the distances from it, of 0, 1, 2, 4 or 8 bytes each."""

    least: int
    most: int
    distances: np.ndarray | None  # None: all values are the least
    rows: int

    @classmethod
    def of(cls, column: np.ndarray) -> NarrowColumn:
        """A copy; columns that need 8 bytes are not copied."""
        least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        if least == most:
            return cls(least, most, None, len(column))
        for kind in _KINDS:
            if most - least <= np.iinfo(kind).max:
                return cls(least, most, np.subtract(column, least, dtype=np.int64).astype(kind), len(column))
        return cls(least, most, column, len(column))

    def widen(self) -> np.ndarray:
        """The values: int64[n]."""
        if self.distances is None:
            return np.full(self.rows, self.least, dtype=np.int64)
        return (
            self.distances if self.distances.dtype == np.int64 else np.add(self.distances, self.least, dtype=np.int64)
        )


@dataclass(slots=True)
class NarrowBatch:
    """Updates: code, ``words`` columns, times and diff."""

    columns: Sequence[NarrowColumn]
    words: int

    @classmethod
    def of(cls, columns: Iterable[np.ndarray], words: int) -> NarrowBatch:
        """A copy of these columns, in this order. Long ones are divided between threads."""
        columns = list(columns)
        narrowed = threads.each(NarrowColumn.of, columns) if len(columns[0]) >= _LONG else map(NarrowColumn.of, columns)
        return cls(list(narrowed), words)

    def __len__(self) -> int:
        return self.columns[0].rows

    def __iter__(self) -> Iterator[np.ndarray]:
        """The columns at full width, one at a time: code, words, times, diff."""
        return (column.widen() for column in self.columns)

    def bounds(self) -> list[tuple[int, int]]:
        """The least and the greatest value of each column: O(columns)."""
        return [(column.least, column.most) for column in self.columns]
