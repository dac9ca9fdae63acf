"""Narrow batches: updates that nothing looks up for now, in as few bytes as their columns need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddcore.base import threads
from ddcore.base.lazy import numpy as np
from ddcore.traces import spilling

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
                distances = np.subtract(column, least, out=np.empty(len(column), kind), casting="unsafe")
                return cls(least, most, distances, len(column))
        return cls(least, most, column, len(column))

    def part(self, start: int, stop: int) -> NarrowColumn:
        """Values number ``start`` to ``stop``. Not a copy."""
        return NarrowColumn(
            self.least, self.most, None if self.distances is None else self.distances[start:stop], stop - start
        )

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
        each = threads.each(NarrowColumn.of, columns) if len(columns[0]) >= _LONG else map(NarrowColumn.of, columns)
        narrowed = list(each)
        spill = spilling.current()
        if spill is not None:
            long = [column for column in narrowed if column.distances is not None]
            for column, distances in zip(long, spill.rest([column.distances for column in long]), strict=True):  # type: ignore[misc]
                column.distances = distances
        return cls(narrowed, words)

    def __len__(self) -> int:
        return self.columns[0].rows

    def __iter__(self) -> Iterator[np.ndarray]:
        """The columns at full width, one at a time: code, words, times, diff."""
        return (column.widen() for column in self.columns)

    def part(self, start: int, stop: int) -> NarrowBatch:
        """Updates number ``start`` to ``stop``. Not a copy."""
        return NarrowBatch([column.part(start, stop) for column in self.columns], self.words)

    def memory(self) -> int:
        """The bytes that its rows take."""
        return sum(0 if column.distances is None else int(column.distances.nbytes) for column in self.columns)

    def bounds(self) -> list[tuple[int, int]]:
        """The least and the greatest value of each column, or bounds of them: O(columns)."""
        return [(column.least, column.most) for column in self.columns]
