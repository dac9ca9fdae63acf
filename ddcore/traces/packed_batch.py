"""Sorted batches of many rows as packed integers: eight bytes for an update, and its columns only of rows in use."""

from __future__ import annotations

from collections.abc import Iterator

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.traces import packing
from ddcore.traces.packing import Field, Packed, Summed
from ddcore.traces.sorted_batch import SortedBatch, bucket_starts

__all__ = ["PackedBatch"]

LEAST_ROWS = 1 << 12  # of a batch that is kept like this; the cost of a look-up in a smaller one is that of its start


class PackedBatch(SortedBatch):
    """A sorted batch whose updates are integers. A column is computed each time it is read, O(n).

    ``width``: how many words an update has; :class:`SortedBatch` has the meaning of the columns.
    """

    __slots__ = ("_down", "_table", "_whole_table", "_width", "packed")

    def __init__(self, packed: Packed, width: int) -> None:
        self.packed, self._width, self.high, self.columns = packed, width, None, None
        self._starts, self._least, self._shift = None, 0, 0
        self._down = sum(field.bits for field in packed.fields[1:])  # how far the code is shifted up in an integer
        self._table: tuple[int, np.ndarray] | None = None
        self._whole_table: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.packed)

    @property
    def width(self) -> int:
        """How many words an update has."""
        return self._width

    @property
    def codes(self) -> np.ndarray:
        """The key codes, ascending: int64[n]. O(n)."""
        return self._columns(0, 1).reshape(-1)

    @property
    def words(self) -> np.ndarray:
        """The words: int64 (W, n). O(n)."""
        return self._columns(1, 1 + self._width)

    @property
    def times(self) -> np.ndarray:
        """The times: int64 (D, n). O(n)."""
        return self._columns(1 + self._width, self._diff)

    @property
    def diffs(self) -> np.ndarray:
        """The diffs: int64[n]. O(n)."""
        return self._columns(self._diff, self._diff + 1).reshape(-1)

    @property
    def _diff(self) -> int:
        """The number of the column of diffs."""
        return self.packed.fields[-1].column

    def _columns(self, first: int, last: int) -> np.ndarray:
        return packing.unpacked([self.packed.rows], self.packed.fields, range(first, last))

    def widen(self) -> SortedBatch:
        """These updates as columns: O(n)."""
        return self._of(self.packed.rows)

    def _of(self, rows: np.ndarray) -> SortedBatch:
        columns = packing.unpacked([rows], self.packed.fields, range(self._diff + 1))
        return SortedBatch(columns[0], columns[1 : 1 + self._width], columns[1 + self._width : -1], columns[-1])

    def take(self, rows: np.ndarray) -> SortedBatch:
        """The updates at these positions, which ascend: int64[m]."""
        return self._of(self.packed.rows[rows])

    def part(self, start: int, stop: int) -> SortedBatch:
        """Updates number ``start`` to ``stop``."""
        return self._of(self.packed.rows[start:stop])

    def versions(self) -> np.ndarray:
        """The first coordinates of the times: int64[n]. O(n)."""
        return self._columns(1 + self._width, 2 + self._width).reshape(-1)

    def sample(self, step: int) -> np.ndarray:
        """The code of every ``step``-th update."""
        codes: np.ndarray = (self.packed.rows[::step] >> np.uint64(self._down)).astype(np.int64)
        return codes + self.packed.fields[0].least

    def span(self, code: int) -> tuple[int, int]:
        """The range of updates with a code, by a binary search and without an index."""
        field, rows = self.packed.fields[0], self.packed.rows
        if not field.least <= code <= field.most:
            return (0, 0) if code < field.least else (len(rows), len(rows))
        place = code - field.least
        first, last = np.uint64(place << self._down), np.uint64((place + 1 << self._down) - 1)
        return int(np.searchsorted(rows, first, "left")), int(np.searchsorted(rows, last, "right"))

    def memory(self) -> int:
        """The bytes that its rows take."""
        return self.packed.memory()

    def pieces(self, rows: int) -> Iterator[PackedBatch]:
        """Parts of about so many ``rows``, not copied. All rows with one code are in one part."""
        packed, down, start = self.packed.rows, self._down, 0
        while start < len(packed):
            stop = min(start + rows, len(packed))
            if stop < len(packed):
                last = int(packed[stop - 1]) >> down
                stop += int(np.searchsorted(packed[stop:], np.uint64((last + 1) << down)))
            yield PackedBatch(self.packed.part(start, stop), self._width)
            start = stop

    def ranges(self, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        """All columns of the updates in the ranges lo[k]:hi[k], one range after the other: int64 (columns, m)."""
        if self._whole_table is None:
            table = [_moved(field, shift, field.column) for field, shift in self.packed.places()]
            self._whole_table = np.array(table, dtype=np.int64)
        sizes = hi - lo
        ends = sizes.cumsum()
        columns = np.empty((self._diff + 1, int(ends[-1]) if len(ends) else 0), dtype=np.int64)
        kernels.packed.scatter(ends - sizes, columns, self.packed.rows, lo, hi, self._whole_table)
        return columns

    def located(self, lo: np.ndarray, hi: np.ndarray) -> tuple[SortedBatch, np.ndarray, np.ndarray]:
        """The updates in the ranges lo[k]:hi[k] as columns, and their ranges there."""
        columns, stops = self.ranges(lo, hi), np.cumsum(hi - lo)
        some = SortedBatch(columns[0], columns[1 : 1 + self._width], columns[1 + self._width : -1], columns[-1])
        return some, stops - (hi - lo), stops

    def collapsed(
        self, lo: np.ndarray, hi: np.ndarray, since: np.ndarray
    ) -> tuple[PackedBatch, tuple[np.ndarray, np.ndarray]] | None:
        """The updates in the ranges lo[k]:hi[k] at the joins of their times with ``since`` (coordinates), neighbours
        that are equal then added up, and their ranges; None where no integer holds them. O(rows of the ranges).
        """
        fields, diff, table = list(self.packed.fields), self.packed.fields[-1], []
        if any(field.half for field in fields) or max(-diff.least, diff.most) * len(self) >= 2**63:
            return None
        for number, (field, shift) in zip(reversed(range(len(fields))), self.packed.places(), strict=True):
            coordinate = field.column - 1 - self._width
            if field is diff or coordinate < 0:
                continue
            floor = int(since[coordinate])
            if floor > field.most:  # what is the greatest value here is to be read as the floor
                fields[number] = Field(field.column, field.least + floor - field.most, floor)
            if field.bits and floor > field.least:
                table.append([shift - diff.bits, field.bits, min(floor, field.most) - field.least])
        places = np.array(table, dtype=np.int64).reshape(len(table), 3)
        rows, sums, starts = kernels.packed.collapse(self.packed.rows, lo, hi, diff.bits, diff.least, places)
        packed = Summed([(rows, sums)], fields).packed() if len(rows) else Packed(rows, tuple(fields))
        return None if packed is None else (PackedBatch(packed, self._width), (starts[:-1], starts[1:]))

    def scatter(self, at: np.ndarray, out: np.ndarray, lo: np.ndarray, hi: np.ndarray, depth: int) -> None:
        """Write words, times and diffs of the updates in the ranges lo[k]:hi[k] to ``out`` (columns, m) from ``at[k]``
        on, which advances. Times have ``depth`` coordinates there; those that the batch has not are 0.
        """
        if self._table is None or self._table[0] != depth:
            self._table = depth, self._table_of(depth)
        kernels.packed.scatter(at, out, self.packed.rows, lo, hi, self._table[1])

    def _table_of(self, depth: int) -> np.ndarray:
        """The table of :func:`ddcore.kernels.packed.scatter`."""
        inner = depth - (self._diff - 1 - self._width)
        table = [[0, 0, 0, 0, 0, self._diff - 1 + number] for number in range(inner)]
        for field, shift in self.packed.places():
            if field.column:
                column = field.column - 1 + (inner if field.column == self._diff else 0)
                table.append(_moved(field, shift, column))
        return np.array(table, dtype=np.int64)

    def locate(self, probes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row ranges [lo, hi) of equal code, one per probe (int64[m], ascending): O(1) each if codes are spread
        evenly.
        """
        self.index()
        ranges: tuple[np.ndarray, np.ndarray] = kernels.packed.locate(
            self.packed.rows, self._starts, self._down, self.packed.fields[0].least, self._shift, probes
        )
        return ranges

    def locate_between(self, after: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row ranges [lo, hi) of the codes that are greater than ``after[k]`` and at most ``to[k]``."""
        return self._between(np.zeros_like(after), np.full_like(to, len(self)), 0, after, to)

    def between(
        self, lo: np.ndarray, hi: np.ndarray, word: int, after: np.ndarray, to: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The part of each range [lo, hi) of rows, in which a word ascends, where it is greater than ``after[k]`` and
        at most ``to[k]``.
        """
        return self._between(lo, hi, 1 + word, after, to)

    def _between(
        self, lo: np.ndarray, hi: np.ndarray, column: int, after: np.ndarray, to: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        places = [each for each in self.packed.places() if each[0].column == column]
        table = np.array([[shift, f.bits, f.least, 32 * (f.half == "upper")] for f, shift in places], dtype=np.int64)
        first = kernels.packed.beyond(self.packed.rows, lo, hi, after, table)
        return first, kernels.packed.beyond(self.packed.rows, first, hi, to, table)

    def _bucket_starts(self) -> np.ndarray:
        """Where the buckets of codes begin; the first one begins with the first code."""
        rows, down = self.packed.rows, self._down
        spread = (int(rows[-1]) >> down) - (int(rows[0]) >> down)
        self._shift = max(0, spread.bit_length() - len(rows).bit_length())
        return bucket_starts(rows, down, spread, self._shift)


def _moved(field: Field, shift: int, column: int) -> list[int]:
    """A row of the table of :func:`ddcore.kernels.packed.scatter`: the field's values go to a column."""
    is_upper = field.half == "upper"
    return [shift, field.bits, field.least, 32 * is_upper, is_upper, column]
