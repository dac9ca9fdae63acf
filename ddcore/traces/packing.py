"""Updates as packed integers: all columns of a row in one uint64, so that a sort of integers sorts rows.

Sorted batches stay like this where they have many rows (:mod:`ddcore.traces.packed_batch`). Sorts and copies run in
several threads (:mod:`ddcore.base.threads`), each for a range of the integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.traces import sorts
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns
from ddcore.traces.fields import HALF_BITS, Field, shifts

_PACKED_BITS = 63
NO_FLOOR = -(2**63)  # of columns that are no times
_SAMPLE = 256  # integers per range, from which the bounds of the ranges are taken


class Packed(Columns):
    """Updates as integers: uint64[n], of which ``fields`` hold the columns side by side, the diffs in the lowest bits.

    With ``floors``, one per column, smaller values count as these: for times. ``budget``: of whoever unpacks many.
    """

    __slots__ = ("budget", "fields", "floors", "packed")

    def __init__(
        self, packed: np.ndarray, fields: Sequence[Field], floors: Sequence[int] = (), budget: Budget = ALONE
    ) -> None:
        self.packed, self.fields, self.budget = packed, tuple(fields), budget
        self.count, self.rows = fields[-1].column + 1, len(packed)
        self.floors = floors or [NO_FLOOR] * self.count

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.column, range(self.count))

    def column(self, number: int) -> np.ndarray:
        """One column: O(n)."""
        number %= self.count
        column: np.ndarray = unpacked([self.packed], self.fields, [number], self.budget)[0]
        floor = self.floors[number]
        return column if floor == NO_FLOOR else np.maximum(column, floor)

    def limits(self, number: int) -> tuple[int, int]:
        """Bounds of the values of a column: O(columns)."""
        return self.bounds()[number]

    def bounds(self) -> list[tuple[int, int]]:
        """Bounds of the values of each column: O(columns)."""
        least, most = [0] * self.count, [0] * self.count
        for field in self.fields:
            up = HALF_BITS if field.half == "upper" else 0
            least[field.column] += field.least << up
            most[field.column] += field.most << up
        return [(max(a, floor), max(b, floor)) for a, b, floor in zip(least, most, self.floors, strict=True)]

    def part(self, start: int, stop: int) -> Packed:
        """Updates number ``start`` to ``stop``."""
        return Packed(self.packed[start:stop], self.fields, self.floors, self.budget)

    def memory(self) -> int:
        """The bytes of the integers."""
        return int(self.packed.nbytes)

    def shifts(self) -> list[tuple[Field, int]]:
        """The fields and by how many bits each is shifted up; the lowest first."""
        return shifts(self.fields)

    def halves(self, number: int) -> list[tuple[int, int]]:
        """The limits of the upper and of the lower half of a column: O(columns) where it is packed in halves."""
        halves = [(field.least, field.most) for field in self.fields if field.column == number and field.half]
        return halves if halves and self.floors[number] == NO_FLOOR else super().halves(number)

    def pack(self, into: np.ndarray, fields: Sequence[Field]) -> None:
        """Write the rows with other fields to zeros: uint64[n]. One pass, if no column is in halves in one only."""
        old, new = self.shifts(), shifts(fields)
        alike = [(field.column, field.half) for field, _ in old] == [(field.column, field.half) for field, _ in new]
        if alike and all(not field.half or self.floors[field.column] == NO_FLOOR for field in self.fields):
            kernels.packed.repack(into, self.packed, _moves(old, new, self.floors))
        else:
            super().pack(into, fields)

    def advanced(self, first: int, frontier: np.ndarray) -> Columns:
        """These updates at the representatives of their times; for one element of a frontier by floors."""
        if frontier.shape[1] > 1:
            return super().advanced(first, frontier)
        floors = [*(NO_FLOOR for _ in range(first)), *frontier[:, 0].tolist(), NO_FLOOR]
        return Packed(self.packed, self.fields, floors, self.budget)


def _moves(
    before: Sequence[tuple[Field, int]], after: Sequence[tuple[Field, int]], floors: Sequence[int]
) -> np.ndarray:
    """The table of :func:`ddcore.kernels.packed.repack`: neighbours that move together are one field."""
    moves: list[list[int]] = []
    joins = False  # whether the next field goes with the one below it
    for (old, down), (new, up) in zip(before, after, strict=True):
        floor = floors[old.column]
        if old.least == new.least and floor <= old.least:
            if joins:
                moves[-1][1] += old.bits
            elif old.bits:
                moves.append([down, old.bits, 0, NO_FLOOR, 0, up])
            joins = (joins or old.bits > 0) and old.bits == new.bits
            continue
        joins = False
        moves.append([down, old.bits, old.least, floor, new.least, up])
    return np.array(moves, dtype=np.int64).reshape(len(moves), 6)


def layout(pieces: Sequence[Columns]) -> list[Field] | None:
    """How the columns of the pieces fit into one integer together (the last one is the diffs); None if they do not.

    It is also None if sums of diffs could overflow int64, because packed diffs are summed unchecked. A column that is
    too wide is packed in halves: a loop coordinate with priorities has few different ones in each.
    """
    bounds = _union_of(piece.bounds() for piece in pieces)
    least, most = bounds[-1]
    rows = sum(map(len, pieces))
    if max(-least, most) * rows >= 2**63:
        return None
    fields = [Field(i, *bound) for i, bound in enumerate(bounds)]
    wide = [field.column for field in fields[:-1] if field.bits > HALF_BITS]
    if sum(field.bits for field in fields) > _PACKED_BITS and len(wide) == 1:
        halves = _union_of(piece.halves(wide[0]) for piece in pieces)
        upper, lower = (Field(wide[0], *halve, half) for halve, half in zip(halves, ("upper", "lower"), strict=True))
        fields[wide[0] : wide[0] + 1] = [upper, lower]
    return fields if sum(field.bits for field in fields) <= _PACKED_BITS else None


@dataclass(frozen=True, slots=True)
class Summed:
    """Distinct rows, packed without their diffs, and the sums of these. Rows ascend, also from one part to the next."""

    parts: Sequence[tuple[np.ndarray, np.ndarray]]
    fields: Sequence[Field]
    budget: Budget

    def __len__(self) -> int:
        return sum(len(sums) for _, sums in self.parts)

    def table(self) -> np.ndarray:
        """The columns, the sums last: int64 (columns, n)."""
        columns = range(self.fields[-1].column + 1)
        table = unpacked([rows for rows, _ in self.parts], self.fields[:-1], columns, self.budget)
        np.concatenate([sums for _, sums in self.parts], out=table[-1])
        return table

    def packed(self) -> Packed | None:
        """The rows with their sums; None if these do not fit. Afterwards the parts are of no use."""
        bounds = [bound for bound in self.budget.map(_bounds_of_sums, self.parts) if bound]
        last = Field(self.fields[-1].column, min(low for low, _ in bounds), max(high for _, high in bounds))
        fields = (*self.fields[:-1], last)
        if sum(field.bits for field in fields) > _PACKED_BITS:
            return None
        starts = list(accumulate((len(sums) for _, sums in self.parts), initial=0))
        rows = self.parts[0][0] if len(self.parts) == 1 else np.empty(starts[-1], dtype=np.uint64)
        for _ in self.budget.map(partial(_with_sums, rows, last), zip(starts, self.parts, strict=False)):
            pass
        return Packed(rows, fields, budget=self.budget)


def _bounds_of_sums(part: tuple[np.ndarray, np.ndarray]) -> tuple[int, int] | None:
    _, sums = part
    return (int(sums.min()), int(sums.max())) if len(sums) else None


def _with_sums(into: np.ndarray, field: Field, portion: tuple[int, tuple[np.ndarray, np.ndarray]]) -> None:
    """Write the rows of a part with their sums to their place, where they may be already."""
    start, (rows, sums) = portion
    target = into[start : start + len(rows)]
    if target.ctypes.data != rows.ctypes.data:
        target[:] = rows
    if field.bits:
        kernels.sorting.pack(target, sums, field.least, field.bits)


def consolidated(pieces: Sequence[Columns], fields: Sequence[Field], budget: Budget = ALONE) -> Summed:
    """The rows of all pieces, added up."""
    packed, last = _packed(pieces, fields, budget), fields[-1]
    ranges = _ranges(packed, last.bits, budget)
    parts = list(budget.map(partial(_sorted, bits=last.bits, least=last.least), ranges))
    if len(parts) == 1 and 4 * len(parts[0][0]) < 3 * len(packed):
        parts = [(parts[0][0].copy(), parts[0][1])]  # the rest of its memory may go
    return Summed(parts, fields, budget)


def concatenated(pieces: Sequence[Columns], fields: Sequence[Field], budget: Budget = ALONE) -> Packed:
    """All rows of pieces whose rows ascend from one to the next."""
    return Packed(_packed(pieces, fields, budget), tuple(fields), budget=budget)


def unpacked(
    parts: Sequence[np.ndarray], fields: Sequence[Field], columns: Sequence[int], budget: Budget = ALONE
) -> np.ndarray:
    """Some columns of packed rows, those of one part after those of another: int64 (columns, n). A column without a
    field is not written.
    """
    starts = list(accumulate(map(len, parts), initial=0))
    out, table = np.empty((len(columns), starts[-1]), dtype=np.int64), shifts(fields)
    size = budget.tuning.packing_rows
    portions = (
        (rows[at : at + size], out[:, start + at : start + min(at + size, len(rows))])
        for start, rows in zip(starts, parts, strict=False)
        for at in range(0, len(rows), size)
    )
    for _ in budget.map(partial(_unpack, table, columns), portions):
        pass
    return out


def _packed(pieces: Sequence[Columns], fields: Sequence[Field], budget: Budget) -> np.ndarray:
    starts, size = list(accumulate(map(len, pieces), initial=0)), budget.tuning.packing_rows
    packed = np.zeros(starts[-1], dtype=np.uint64)
    if starts[-1] < size:  # of a few pieces, too: to hand one over costs more than to pack it
        for portion in zip(starts, pieces, strict=False):
            _pack(packed, fields, portion)
        return packed
    for _ in budget.map(partial(_pack, packed, fields), _cut(pieces, starts, size)):
        pass
    return packed


def _union_of(bounds: Iterable[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The least and the greatest value of each column of all pieces."""
    return [(min(low for low, _ in column), max(high for _, high in column)) for column in zip(*bounds, strict=True)]


def _cut(pieces: Sequence[Columns], starts: Sequence[int], size: int) -> Iterator[tuple[int, Columns]]:
    """The pieces with their places in the packed column; those of many rows in portions."""
    for piece, start in zip(pieces, starts, strict=False):
        for at in range(0, len(piece), size):
            yield start + at, piece.part(at, min(at + size, len(piece)))


def _pack(packed: np.ndarray, fields: Sequence[Field], portion: tuple[int, Columns]) -> None:
    """Write the rows of a piece, each as one integer, to their place."""
    start, piece = portion
    piece.pack(packed[start : start + len(piece)], fields)


def _ranges(packed: np.ndarray, diff_bits: int, budget: Budget) -> list[np.ndarray]:
    """The integers cut into ranges of similar sizes, one per thread; all updates of a row are in one."""
    size = budget.tuning.packing_rows
    number = min(budget.free_threads, len(packed) // size)
    if number < 2:
        return [packed]
    sample = np.sort(packed[:: max(1, len(packed) // (_SAMPLE * number))])
    bounds = sample[(np.arange(1, number) * len(sample)) // number] >> np.uint64(diff_bits) << np.uint64(diff_bits)
    portions = [packed[at : at + size] for at in range(0, len(packed), size)]
    counts = np.stack(list(budget.map(partial(kernels.sorting.range_sizes, bounds), portions)))
    ends = np.cumsum(counts.sum(axis=0))
    positions = np.cumsum(counts, axis=0) - counts + (ends - counts.sum(axis=0))
    divided = np.empty_like(packed)
    moves = zip(portions, positions, strict=True)
    for _ in budget.map(lambda move: kernels.sorting.divide(bounds, move[0], divided, move[1]), moves):
        pass
    return np.split(divided, ends[:-1])


def _sorted(packed: np.ndarray, bits: int, least: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of a range, packed without diffs, and the sums of these."""
    keys, spare = sorts.stable(packed, bits)
    sums = spare.view(np.int64)
    number = kernels.sorting.sum_equal(keys, sums, bits, least)
    return keys[:number], sums[:number]


def _unpack(table: Sequence[tuple[Field, int]], columns: Sequence[int], portion: tuple[np.ndarray, np.ndarray]) -> None:
    """Write some columns of packed rows to their place: (columns, m)."""
    rows, out = portion
    lower = np.empty(0, dtype=np.int64)
    for field, shift in table:
        if field.column not in columns:
            continue
        into = np.empty(len(rows), dtype=np.int64) if field.half == "lower" else out[columns.index(field.column)]
        if field.bits:
            kernels.sorting.unpack(into, rows, shift, field.bits, field.least)
        else:
            into.fill(field.least)
        if field.half == "lower":
            lower = into
        elif field.half == "upper":
            into <<= HALF_BITS
            into |= lower
