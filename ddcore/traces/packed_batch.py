"""Sorted batches of many rows as packed integers: eight bytes for an update, and its columns only of rows in use."""

from __future__ import annotations

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.traces import packing
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.fields import Field
from ddcore.traces.packing import Packed, Summed
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch, Spans, bucket_starts


class PackedBatch(SortedBatch):
    """A sorted batch whose updates are integers, with ``width`` words. Columns are computed each time they are read."""

    __slots__ = ("_down", "_least", "_shift", "_starts", "_table", "_whole_table", "_width", "packed")
    is_encoded = True

    def __init__(self, packed: Packed, width: int) -> None:
        self.packed, self._width = packed, width
        self._starts: np.ndarray | None = None
        self._shift = 0
        self._down = sum(field.bits for field in packed.fields[1:])  # how far the code is shifted up in an integer
        self._least = packed.fields[0].least
        self._table: tuple[int, np.ndarray] | None = None
        self._whole_table: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.packed)

    @property
    def width(self) -> int:
        """How many words an update has."""
        return self._width

    @property
    def _diff(self) -> int:
        """The number of the column of diffs."""
        return self.packed.fields[-1].column

    def columns(self) -> Packed:
        """The integers."""
        return self.packed

    def decompress(self) -> ColumnBatch:
        """These updates as columns: O(n)."""
        return self._of(self.packed.packed)

    def _of(self, rows: np.ndarray) -> ColumnBatch:
        return ColumnBatch.of(
            packing.unpacked([rows], self.packed.fields, range(self._diff + 1), self.packed.budget), self._width
        )

    def take(self, rows: np.ndarray) -> ColumnBatch:
        """The updates at these positions."""
        return self._of(self.packed.packed[rows])

    def part(self, start: int, stop: int) -> PackedBatch:
        """Updates number ``start`` to ``stop``. Not a copy."""
        return PackedBatch(self.packed.part(start, stop), self._width)

    def versions(self) -> np.ndarray:
        """The first coordinates of the times: O(n)."""
        return self.packed.column(1 + self._width)

    def code(self, row: int) -> int:
        """The code of a row."""
        return (int(self.packed.packed[row]) >> self._down) + self._least

    def sample(self, step: int) -> np.ndarray:
        """The code of every ``step``-th update."""
        codes: np.ndarray = (self.packed.packed[::step] >> np.uint64(self._down)).astype(np.int64)
        return codes + self._least

    def span(self, code: int) -> tuple[int, int]:
        """The rows with a code."""
        field, rows = self.packed.fields[0], self.packed.packed
        if not field.least <= code <= field.most:
            return (0, 0) if code < field.least else (len(rows), len(rows))
        position = code - field.least
        first, last = np.uint64(position << self._down), np.uint64((position + 1 << self._down) - 1)
        return int(np.searchsorted(rows, first, "left")), int(np.searchsorted(rows, last, "right"))

    def memory(self) -> int:
        """The bytes of the integers."""
        return self.packed.memory()

    def find(self, codes: np.ndarray, keys: np.ndarray, budget: Budget = ALONE) -> tuple[SortedBatch, Spans] | None:
        """This batch, for direct keys. Of hashed ones words are compared, so those of their rows are unpacked."""
        if len(keys):
            return super().find(codes, keys, budget)
        lo, hi = self.locate(codes, budget)
        return (self, (lo, hi)) if np.count_nonzero(hi > lo) else None

    def located(self, lo: np.ndarray, hi: np.ndarray) -> tuple[ColumnBatch, np.ndarray, np.ndarray]:
        """The updates in the spans as columns, one span after the other, and their spans there."""
        if self._whole_table is None:
            table = [_moved(field, shift, field.column) for field, shift in self.packed.shifts()]
            self._whole_table = np.array(table, dtype=np.int64)
        stops = np.cumsum(hi - lo)
        starts = stops - (hi - lo)
        columns = np.empty((self._diff + 1, int(stops[-1]) if len(stops) else 0), dtype=np.int64)
        kernels.packed.scatter(starts.copy(), columns, self.packed.packed, lo, hi, self._whole_table)
        return ColumnBatch.of(columns, self._width), starts, stops

    def collapsed(self, spans: Spans, since: np.ndarray) -> tuple[PackedBatch, Spans] | None:
        """The updates in the spans at later times, and their spans; None where no integer holds them."""
        fields, diff, table = list(self.packed.fields), self.packed.fields[-1], []
        if any(field.half for field in fields) or max(-diff.least, diff.most) * len(self) >= 2**63:
            return None
        for number, (field, shift) in zip(reversed(range(len(fields))), self.packed.shifts(), strict=True):
            coordinate = field.column - 1 - self._width
            if field is diff or coordinate < 0:
                continue
            floor = int(since[coordinate])
            if floor > field.most:  # what is the greatest value here is to be read as the floor
                fields[number] = Field(field.column, field.least + floor - field.most, floor)
            if field.bits and floor > field.least:
                table.append([shift - diff.bits, field.bits, min(floor, field.most) - field.least])
        positions = np.array(table, dtype=np.int64).reshape(len(table), 3)
        rows, sums, starts = kernels.packed.collapse(self.packed.packed, *spans, diff.bits, diff.least, positions)
        packed = (
            Summed([(rows, sums)], fields, self.packed.budget).packed() if len(rows) else Packed(rows, tuple(fields))
        )
        return None if packed is None else (PackedBatch(packed, self._width), (starts[:-1], starts[1:]))

    def scatter(self, at: np.ndarray, out: np.ndarray, values: int, keys: np.ndarray, spans: Spans) -> None:
        """Write the rows of each key, which is direct."""
        depth = len(out) - values - 1
        if self._table is None or self._table[0] != depth:
            self._table = depth, self._table_of(depth)
        kernels.packed.scatter(at, out, self.packed.packed, *spans, self._table[1])

    def _table_of(self, depth: int) -> np.ndarray:
        """The table of :func:`ddcore.kernels.packed.scatter`."""
        inner = depth - (self._diff - 1 - self._width)
        table = [[0, 0, 0, 0, 0, self._diff - 1 + number] for number in range(inner)]
        for field, shift in self.packed.shifts():
            if field.column:
                column = field.column - 1 + (inner if field.column == self._diff else 0)
                table.append(_moved(field, shift, column))
        return np.array(table, dtype=np.int64)

    def locate(self, probes: np.ndarray, budget: Budget = ALONE) -> Spans:
        """The rows of each code, through buckets."""
        self.index(budget)
        spans: Spans = kernels.packed.locate(
            self.packed.packed, self._starts, self._down, self._least, self._shift, probes
        )
        return spans

    def locate_between(self, after: np.ndarray, to: np.ndarray) -> Spans:
        """The rows of the codes between two."""
        return self._between(np.zeros_like(after), np.full_like(to, len(self)), 0, after, to)

    def between(self, lo: np.ndarray, hi: np.ndarray, word: int, after: np.ndarray, to: np.ndarray) -> Spans:
        """The rows of each span whose word is between two."""
        return self._between(lo, hi, 1 + word, after, to)

    def _between(self, lo: np.ndarray, hi: np.ndarray, column: int, after: np.ndarray, to: np.ndarray) -> Spans:
        halves = [one for one in self.packed.shifts() if one[0].column == column]
        table = np.array([[shift, f.bits, f.least, 32 * (f.half == "upper")] for f, shift in halves], dtype=np.int64)
        first = kernels.packed.beyond(self.packed.packed, lo, hi, after, table)
        return first, kernels.packed.beyond(self.packed.packed, first, hi, to, table)

    def index(self, budget: Budget = ALONE) -> None:
        """Find the buckets of codes; the first one begins with the first code."""
        if self._starts is None:
            rows, down = self.packed.packed, self._down
            spread = (int(rows[-1]) >> down) - (int(rows[0]) >> down)
            self._shift = max(0, spread.bit_length() - len(rows).bit_length())
            self._starts = bucket_starts(rows, down, spread, self._shift, budget)


def _moved(field: Field, shift: int, column: int) -> list[int]:
    """A row of the table of :func:`ddcore.kernels.packed.scatter`: the field's values go to a column."""
    is_upper = field.half == "upper"
    return [shift, field.bits, field.least, 32 * is_upper, is_upper, column]
