"""Updates as int64 columns, the last of which has the diffs. How these columns lie in memory is an encoding.

There are three: arrays (:class:`Plain`), few bytes for each value (:class:`Compressed`), and one integer for all
columns of a row (:class:`ddcore.traces.packing.Packed`). Consolidation, queues and traces use :class:`Columns` only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddcore import kernels
from ddcore.base import threads
from ddcore.base.lattice import advance
from ddcore.base.lazy import numpy as np
from ddcore.traces import spilling
from ddcore.traces.fields import HALF_BITS, Field, lower_half

__all__ = ["Columns", "Compressed", "CompressedColumn", "Plain"]

_LONG = 1 << 15  # values of a column that is worth a thread
_KINDS = ("uint8", "uint16", "uint32")


class Columns(ABC):
    """Updates as columns. ``high`` has the upper words of diffs that int64 does not hold; None where it holds all."""

    __slots__ = ()
    high: np.ndarray | None = None

    @abstractmethod
    def __len__(self) -> int:
        """How many updates these are."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many columns these are."""

    @abstractmethod
    def __iter__(self) -> Iterator[np.ndarray]:
        """The columns at full width, one at a time: int64[n]."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Columns:
        """Updates number ``start`` to ``stop``. Not a copy."""

    @abstractmethod
    def bounds(self) -> list[tuple[int, int]]:
        """The least and the greatest value of each column, or bounds of them."""

    @abstractmethod
    def memory(self) -> int:
        """The bytes that the updates take."""

    @abstractmethod
    def compress(self) -> Columns:
        """These updates in few bytes, as nothing looks them up for now; in a file where memory is nearly used up."""

    @abstractmethod
    def column(self, number: int) -> np.ndarray:
        """One column at full width; the diffs have the number -1."""

    def compressed(self, number: int) -> CompressedColumn:
        """One column in few bytes."""
        return CompressedColumn.of(self.column(number))

    def least(self, number: int) -> int:
        """The least value of a column, or less."""
        return int(self.column(number).min())

    def most(self, number: int) -> int:
        """The greatest value of a column, or more."""
        return int(self.column(number).max())

    def table(self) -> np.ndarray:
        """All columns: int64 (columns, n)."""
        return np.array(list(self))

    def upper(self) -> np.ndarray:
        """The upper words of the diffs: int64[n]."""
        return self.column(-1) >> 63 if self.high is None else self.high

    def advanced(self, first: int, frontier: np.ndarray) -> Columns:
        """These updates with their times, which begin with column ``first``, at their representatives beyond a frontier
        (coordinates, elements).
        """
        *columns, diffs = self
        times = columns[first:]
        if frontier.shape[1] > 1:
            times = list(advance(np.stack(times), frontier))
        else:
            times = [*map(_at_least, times, frontier[:, 0])]
        return Plain([*columns[:first], *times, diffs], self.high)

    def halves(self, number: int) -> list[tuple[int, int]]:
        """The bounds of the upper and of the lower half of a column."""
        column = self.column(number)
        lower = lower_half(column)
        upper = int(column.min()) >> HALF_BITS, int(column.max()) >> HALF_BITS
        return [upper, (int(lower.min()), int(lower.max()))]

    def pack(self, into: np.ndarray, fields: Sequence[Field]) -> None:
        """Write the rows, each as one integer with these fields, to zeros: uint64[n]."""
        for number, column in enumerate(self):
            for field in fields:
                if field.column == number and field.bits:
                    kernels.sorting.pack(into, np.ascontiguousarray(field.of(column)), field.least, field.bits)

    def searchable(self) -> Columns:
        """These updates in an encoding that has :meth:`value` and :meth:`bound`."""
        return Plain(list(self))

    def value(self, number: int, row: int) -> int:
        """A value of a column."""
        raise NotImplementedError

    def bound(self, number: int, value: int, lo: int, hi: int, side: str) -> int:
        """Where a value belongs among the rows ``lo`` to ``hi`` of a column, which ascend there."""
        raise NotImplementedError


class Plain(Columns):
    """Columns that are arrays: a list of int64[n], or one array (columns, n)."""

    __slots__ = ("arrays", "high")

    def __init__(self, arrays: Sequence[np.ndarray] | np.ndarray, high: np.ndarray | None = None) -> None:
        self.arrays, self.high = arrays, high

    def __len__(self) -> int:
        return len(self.arrays[-1])

    @property
    def count(self) -> int:
        """How many columns these are."""
        return len(self.arrays)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.arrays)

    def part(self, start: int, stop: int) -> Plain:
        """Updates number ``start`` to ``stop``."""
        high = None if self.high is None else self.high[start:stop]
        return Plain([column[start:stop] for column in self.arrays], high)

    def bounds(self) -> list[tuple[int, int]]:
        """The least and the greatest value of each column: O(n)."""
        return [(int(column.min()), int(column.max())) for column in self.arrays]

    def memory(self) -> int:
        """The bytes of the arrays."""
        return sum(int(column.nbytes) for column in self.arrays)

    def compress(self) -> Columns:
        """A copy; long columns are divided between threads. Columns that need 8 bytes are not copied."""
        if self.high is not None:
            return self
        work = threads.each if len(self) >= _LONG else map
        compressed = list(work(CompressedColumn.of, self.arrays))
        long = [column for column in compressed if column.distances is not None]
        resting = spilling.current().rest([column.distances for column in long])  # type: ignore[misc]
        for column, distances in zip(long, resting, strict=True):
            column.distances = distances
        return Compressed(compressed)

    def column(self, number: int) -> np.ndarray:
        """One column."""
        column: np.ndarray = self.arrays[number]
        return column

    def table(self) -> np.ndarray:
        """All columns; not a copy, if they lie in one array."""
        return np.asarray(self.arrays)

    def searchable(self) -> Plain:
        """These."""
        return self

    def value(self, number: int, row: int) -> int:
        """A value of a column."""
        return int(self.arrays[number][row])

    def bound(self, number: int, value: int, lo: int, hi: int, side: str) -> int:
        """Where a value belongs among the rows ``lo`` to ``hi`` of a column."""
        return lo + int(np.searchsorted(self.arrays[number][lo:hi], value, side=side))  # type: ignore[call-overload]


@dataclass(slots=True)
class CompressedColumn:
    """int64[n] as its least value and the distances from it, of 0, 1, 2, 4 or 8 bytes each."""

    least: int
    most: int
    distances: np.ndarray | None  # None: all values are the least; of int64: the values themselves
    rows: int

    @classmethod
    def of(cls, column: np.ndarray) -> CompressedColumn:
        """A copy; columns that need 8 bytes are not copied."""
        least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        if least == most:
            return cls(least, most, None, len(column))
        for kind in _KINDS:
            if most - least <= np.iinfo(kind).max:
                distances = np.subtract(column, least, out=np.empty(len(column), kind), casting="unsafe")
                return cls(least, most, distances, len(column))
        return cls(least, most, column, len(column))

    @property
    def base(self) -> int:
        """What is to be added to the distances."""
        return 0 if self.is_wide else self.least

    @property
    def is_wide(self) -> bool:
        """Whether the distances are the values."""
        return self.distances is not None and self.distances.dtype == np.int64

    def part(self, start: int, stop: int) -> CompressedColumn:
        """Values number ``start`` to ``stop``. Not a copy."""
        distances = None if self.distances is None else self.distances[start:stop]
        return CompressedColumn(self.least, self.most, distances, stop - start)

    def decompress(self) -> np.ndarray:
        """The values: int64[n]."""
        if self.distances is None:
            return np.full(self.rows, self.least, dtype=np.int64)
        return self.distances if self.is_wide else np.add(self.distances, self.least, dtype=np.int64)

    def bound(self, value: int, lo: int, hi: int, side: str) -> int:
        """Where a value belongs among the rows ``lo`` to ``hi``."""
        if self.distances is None or value < self.least or value > self.most:
            return hi if value > self.least or (side == "right" and value == self.least) else lo
        # Of the array's own type: numpy would convert the array to another one.
        distance = self.distances.dtype.type(value - self.base)
        return lo + int(np.searchsorted(self.distances[lo:hi], distance, side=side))  # type: ignore[call-overload]


class Compressed(Columns):
    """Columns of which each has few bytes for a value."""

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[CompressedColumn]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return self.columns[-1].rows

    @property
    def count(self) -> int:
        """How many columns these are."""
        return len(self.columns)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (column.decompress() for column in self.columns)

    def part(self, start: int, stop: int) -> Compressed:
        """Updates number ``start`` to ``stop``."""
        return Compressed([column.part(start, stop) for column in self.columns])

    def bounds(self) -> list[tuple[int, int]]:
        """Bounds of the values of each column: O(columns)."""
        return [(column.least, column.most) for column in self.columns]

    def memory(self) -> int:
        """The bytes of the distances."""
        return sum(0 if column.distances is None else int(column.distances.nbytes) for column in self.columns)

    def compress(self) -> Compressed:
        """These."""
        return self

    def column(self, number: int) -> np.ndarray:
        """One column at full width."""
        return self.columns[number].decompress()

    def compressed(self, number: int) -> CompressedColumn:
        """One column."""
        return self.columns[number]

    def least(self, number: int) -> int:
        """The least value of a column, or less: O(1)."""
        return self.columns[number].least

    def most(self, number: int) -> int:
        """The greatest value of a column: O(1)."""
        return self.columns[number].most

    def searchable(self) -> Compressed:
        """These."""
        return self

    def value(self, number: int, row: int) -> int:
        """A value of a column."""
        column = self.columns[number]
        return column.base if column.distances is None else int(column.distances[row]) + column.base

    def bound(self, number: int, value: int, lo: int, hi: int, side: str) -> int:
        """Where a value belongs among the rows ``lo`` to ``hi`` of a column."""
        return self.columns[number].bound(value, lo, hi, side)


def _at_least(column: np.ndarray, least: np.int64) -> np.ndarray:
    """The column, with ``least`` in the place of what is less; without a copy where all of it is more or less."""
    if column.max() <= least:
        return np.broadcast_to(least, column.shape)
    return column if column.min() >= least else np.maximum(column, least)
