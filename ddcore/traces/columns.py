"""Updates as int64 columns, the last of which has the diffs. How these columns lie in memory is an encoding.

There are three: arrays (:class:`Plain`), few bytes for each value (:class:`Compressed`), and one integer for all
columns of a row (:class:`ddcore.traces.packing.Packed`). Consolidation, queues and traces use :class:`Columns` only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ddcore import kernels
from ddcore.base.lattice import advance
from ddcore.base.lazy import numpy as np
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.fields import HALF_BITS, Field, lower_half

_KINDS = {"uint8": 2**8, "uint16": 2**16, "uint32": 2**32}


class Columns(ABC):
    """Updates as ``count`` columns of ``rows`` rows. ``high`` has the upper words of diffs that int64 does not hold;
    None where it holds all. The columns have numbers from 0 on, the diffs also -1.
    """

    __slots__ = ("count", "rows")
    is_compressed: ClassVar[bool] = False
    count: int
    rows: int
    high: np.ndarray | None = None

    def __len__(self) -> int:
        return self.rows

    @abstractmethod
    def __iter__(self) -> Iterator[np.ndarray]:
        """The columns at full width, one at a time: int64[n]."""

    @abstractmethod
    def column(self, number: int) -> np.ndarray:
        """One column at full width: int64[n]."""

    @abstractmethod
    def limits(self, number: int) -> tuple[int, int]:
        """The least and the greatest value of a column, or bounds of them."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Columns:
        """Updates number ``start`` to ``stop``. Not a copy."""

    @abstractmethod
    def memory(self) -> int:
        """The bytes that the updates take."""

    def compress(self, budget: Budget = ALONE) -> Columns:
        """These updates in few bytes, as nothing looks them up for now; in a file where memory is nearly used up."""
        return self

    def compressed(self, number: int) -> CompressedColumn:
        """One column in few bytes."""
        return CompressedColumn.of(self.column(number))

    def values(self, number: int) -> tuple[np.ndarray, int]:
        """The values of a column without a number that is to be added to each: of any type of integers."""
        return self.column(number), 0

    def table(self) -> np.ndarray:
        """All columns: int64 (columns, n)."""
        return np.array(list(self))

    def upper(self) -> np.ndarray:
        """The upper words of the diffs: int64[n]."""
        return self.column(-1) >> 63 if self.high is None else self.high

    def bounds(self) -> list[tuple[int, int]]:
        """The limits of all columns."""
        return [self.limits(number) for number in range(self.count)]

    def halves(self, number: int) -> list[tuple[int, int]]:
        """The limits of the upper and of the lower half of a column."""
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


class Plain(Columns):
    """Columns that are arrays: a list of int64[n], or one array (columns, n)."""

    __slots__ = ("arrays", "high")

    def __init__(self, arrays: Sequence[np.ndarray] | np.ndarray, high: np.ndarray | None = None) -> None:
        self.arrays, self.high = arrays, high
        self.count, self.rows = len(arrays), len(arrays[-1])

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.arrays)

    def column(self, number: int) -> np.ndarray:
        """One array."""
        column: np.ndarray = self.arrays[number]
        return column

    def limits(self, number: int) -> tuple[int, int]:
        """The least and the greatest value of a column: O(n)."""
        column = self.arrays[number]
        return int(column.min()), int(column.max())

    def part(self, start: int, stop: int) -> Plain:
        """Updates number ``start`` to ``stop``."""
        high = None if self.high is None else self.high[start:stop]
        return Plain([column[start:stop] for column in self.arrays], high)

    def memory(self) -> int:
        """The bytes of the arrays."""
        return 8 * self.count * self.rows

    def compress(self, budget: Budget = ALONE) -> Columns:
        """A copy; long columns are divided between threads. Columns that need 8 bytes are not copied."""
        if self.high is not None:
            return self
        work = budget.map if self.rows >= budget.tuning.column_rows else map
        compressed = list(work(CompressedColumn.of, self.arrays))
        long = [column for column in compressed if column.distances is not None]
        resting = budget.memory.rest([column.distances for column in long])  # type: ignore[misc]
        for column, distances in zip(long, resting, strict=True):
            column.distances = distances
        return Compressed(compressed)

    def table(self) -> np.ndarray:
        """All columns; not a copy, if they lie in one array."""
        return np.asarray(self.arrays)


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
        for kind, values in _KINDS.items():
            if most - least < values:
                distances = np.subtract(column, least, out=np.empty(len(column), kind), casting="unsafe")
                return cls(least, most, distances, len(column))
        return cls(least, most, column, len(column))

    @classmethod
    def joined(cls, pieces: Sequence[CompressedColumn]) -> CompressedColumn:
        """Columns one after another."""
        least, most = min(piece.least for piece in pieces), max(piece.most for piece in pieces)
        rows = sum(piece.rows for piece in pieces)
        if least == most:
            return cls(least, most, None, rows)
        kind = next((kind for kind, values in _KINDS.items() if most - least < values), None)
        if kind is None:
            return cls(least, most, np.concatenate([piece.decompress() for piece in pieces]), rows)
        distances, start = np.empty(rows, kind), 0
        for piece in pieces:
            into, further = distances[start : start + piece.rows], np.array(piece.least - least, kind)
            if piece.distances is None:
                into[:] = further
            else:
                np.add(piece.distances, further, out=into)
            start += piece.rows
        return cls(least, most, distances, rows)

    def part(self, start: int, stop: int) -> CompressedColumn:
        """Values number ``start`` to ``stop``. Not a copy."""
        distances = None if self.distances is None else self.distances[start:stop]
        return CompressedColumn(self.least, self.most, distances, stop - start)

    def values(self) -> tuple[np.ndarray, int]:
        """The values without a number that is to be added to each."""
        if self.distances is None:
            return np.broadcast_to(np.uint8(0), self.rows), self.least
        return self.distances, 0 if self.distances.dtype == np.int64 else self.least

    def decompress(self) -> np.ndarray:
        """The values: int64[n]."""
        if self.distances is None:
            return np.full(self.rows, self.least, dtype=np.int64)
        distances, least = self.values()
        return distances if distances.dtype == np.int64 else np.add(distances, least, dtype=np.int64)


class Compressed(Columns):
    """Columns of which each has few bytes for a value."""

    __slots__ = ("columns",)
    is_compressed = True

    def __init__(self, columns: Sequence[CompressedColumn]) -> None:
        self.columns = columns
        self.count, self.rows = len(columns), columns[-1].rows

    def __iter__(self) -> Iterator[np.ndarray]:
        return (column.decompress() for column in self.columns)

    def column(self, number: int) -> np.ndarray:
        """One column at full width."""
        return self.columns[number].decompress()

    def limits(self, number: int) -> tuple[int, int]:
        """Bounds of the values of a column: O(1)."""
        return self.columns[number].least, self.columns[number].most

    def part(self, start: int, stop: int) -> Compressed:
        """Updates number ``start`` to ``stop``."""
        return Compressed([column.part(start, stop) for column in self.columns])

    def memory(self) -> int:
        """The bytes of the distances."""
        return sum(0 if column.distances is None else int(column.distances.nbytes) for column in self.columns)

    def compressed(self, number: int) -> CompressedColumn:
        """One column."""
        return self.columns[number]

    def values(self, number: int) -> tuple[np.ndarray, int]:
        """The distances of a column, and its least value."""
        return self.columns[number].values()


def together(pieces: Sequence[Columns]) -> Columns:
    """Pieces with the same columns, one after another; in few bytes where all are."""
    if len(pieces) == 1:
        return pieces[0]
    if all(piece.is_compressed for piece in pieces):
        numbers = range(pieces[0].count)
        return Compressed([CompressedColumn.joined([piece.compressed(n) for piece in pieces]) for n in numbers])
    is_wide = any(piece.high is not None for piece in pieces)
    high = np.concatenate([piece.upper() for piece in pieces]) if is_wide else None
    return Plain([np.concatenate(columns) for columns in zip(*pieces, strict=True)], high)


def _at_least(column: np.ndarray, least: np.int64) -> np.ndarray:
    """The column, with ``least`` in the place of what is less; without a copy where all of it is more or less."""
    if column.max() <= least:
        return np.broadcast_to(least, column.shape)
    return column if column.min() >= least else np.maximum(column, least)
