"""Updates as packed integers: all columns of a row in one uint64, so that a sort of integers sorts rows.

Sorts and copies run in several threads (:mod:`ddcore.threads`), each for a range of the integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ddcore import kernels, threads
from ddcore.libraries import numpy as np
from ddcore.narrow import NarrowBatch

__all__ = ["Field", "Piece", "consolidated", "layout"]

_PACKED_BITS = 63
_HALF_BITS = 32
_LOWER = 2**_HALF_BITS - 1
_LEAST_ROWS = 1 << 16  # of a range that is worth a thread
_SAMPLE = 256  # integers per range, from which the bounds of the ranges are taken

if TYPE_CHECKING:
    # Updates as columns, the last of which holds the diffs.
    Piece = Sequence[np.ndarray] | NarrowBatch


@dataclass(frozen=True, slots=True)
class Field:
    """The place of a column, or of a half of it, in a packed integer."""

    column: int
    least: int
    bits: int
    half: str = ""  # upper or lower; empty: the whole column

    def of(self, column: np.ndarray) -> np.ndarray:
        """What is packed of a column; ``least`` is to be taken away."""
        if not self.half:
            return column
        return column >> _HALF_BITS if self.half == "upper" else column & _LOWER


def layout(pieces: Sequence[Piece]) -> list[Field] | None:
    """How the columns of the pieces fit into one integer together (the last one is the diffs); None if they do not.

    It is also None if sums of diffs could overflow int64, because packed diffs are summed unchecked. A column that is
    too wide is packed in halves: a loop coordinate with priorities has few different ones in each.
    """
    bounds = _union_of(map(_bounds, pieces))
    least, most = bounds[-1]
    rows = sum(map(_rows, pieces))
    if max(-least, most) * rows >= 2**63:
        return None
    fields = [Field(i, least, (most - least).bit_length()) for i, (least, most) in enumerate(bounds)]
    wide = [field.column for field in fields[:-1] if field.bits > _HALF_BITS]
    if sum(field.bits for field in fields) > _PACKED_BITS and len(wide) == 1:
        halves = _union_of(_half_bounds(piece, wide[0]) for piece in pieces)
        upper, lower = (
            Field(wide[0], least, (most - least).bit_length(), half)
            for (least, most), half in zip(halves, ("upper", "lower"), strict=True)
        )
        fields[wide[0] : wide[0] + 1] = [upper, lower]
    return fields if sum(field.bits for field in fields) <= _PACKED_BITS else None


def consolidated(pieces: Sequence[Piece], fields: Sequence[Field]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of all pieces in order, (columns, m) without the diffs, and their summed diffs: int64[m]."""
    starts = list(accumulate(map(_rows, pieces), initial=0))
    packed, last = np.zeros(starts[-1], dtype=np.uint64), fields[-1]
    for _ in threads.each(partial(_pack, packed, fields), _cut(pieces, starts)):
        pass
    parts = list(threads.each(partial(_sorted, bits=last.bits, least=last.least), _ranges(packed, last.bits)))
    starts = list(accumulate((len(sums) for _, sums in parts), initial=0))
    out = np.empty((last.column, starts[-1]), dtype=np.int64)
    diffs = parts[0][1] if len(parts) == 1 else np.concatenate([sums for _, sums in parts])
    if len(parts) == 1 and 2 * len(diffs) < len(packed):
        diffs = diffs.copy()  # it is the beginning of a longer array, which may go
    places = [(rows, out[:, a:b]) for (rows, _), (a, b) in zip(parts, pairwise(starts), strict=True)]
    for _ in threads.each(partial(_unpack, fields), places):
        pass
    return out, diffs


def _rows(piece: Piece) -> int:
    return len(piece) if isinstance(piece, NarrowBatch) else len(piece[0])


def _bounds(piece: Piece) -> list[tuple[int, int]]:
    """The least and the greatest value of each column."""
    return piece.bounds() if isinstance(piece, NarrowBatch) else [(int(c.min()), int(c.max())) for c in piece]


def _half_bounds(piece: Piece, number: int) -> list[tuple[int, int]]:
    column = piece.columns[number].widen() if isinstance(piece, NarrowBatch) else piece[number]
    lower = column & _LOWER
    return [(int(column.min()) >> _HALF_BITS, int(column.max()) >> _HALF_BITS), (int(lower.min()), int(lower.max()))]


def _union_of(bounds: Iterable[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The least and the greatest value of each column of all pieces."""
    return [(min(low for low, _ in each), max(high for _, high in each)) for each in zip(*bounds, strict=True)]


def _cut(pieces: Sequence[Piece], starts: Sequence[int]) -> Iterator[tuple[int, Piece]]:
    """The pieces with their places in the packed column; in portions, where they are few and large."""
    for piece, start in zip(pieces, starts, strict=False):
        rows = _rows(piece)
        if isinstance(piece, NarrowBatch) or rows < 2 * _LEAST_ROWS:
            yield start, piece
            continue
        for at in range(0, rows, _LEAST_ROWS):
            yield start + at, [column[at : at + _LEAST_ROWS] for column in piece]


def _pack(packed: np.ndarray, fields: Sequence[Field], place: tuple[int, Piece]) -> None:
    """Write the rows of a piece, each as one integer, to their place."""
    start, piece = place
    into = packed[start : start + _rows(piece)]
    for number, column in enumerate(piece):
        for field in fields:
            if field.column == number and field.bits:
                kernels.sorting.pack(into, np.ascontiguousarray(field.of(column)), field.least, field.bits)


def _ranges(packed: np.ndarray, diff_bits: int) -> list[np.ndarray]:
    """The integers cut into ranges of similar sizes, one per thread; all updates of a row are in one."""
    number = min(threads.number(), len(packed) // _LEAST_ROWS)
    if number < 2:
        return [packed]
    sample = np.sort(packed[:: max(1, len(packed) // (_SAMPLE * number))])
    bounds = sample[(np.arange(1, number) * len(sample)) // number] >> np.uint64(diff_bits) << np.uint64(diff_bits)
    portions = [packed[at : at + _LEAST_ROWS] for at in range(0, len(packed), _LEAST_ROWS)]
    counts = np.stack(list(threads.each(partial(kernels.sorting.range_sizes, bounds), portions)))
    ends = np.cumsum(counts.sum(axis=0))
    places = np.cumsum(counts, axis=0) - counts + (ends - counts.sum(axis=0))
    divided = np.empty_like(packed)
    moves = zip(portions, places, strict=True)
    for _ in threads.each(lambda move: kernels.sorting.divide(bounds, move[0], divided, move[1]), moves):
        pass
    return np.split(divided, ends[:-1])


def _sorted(packed: np.ndarray, bits: int, least: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of a range, packed without diffs, and the sums of these."""
    packed.sort()
    rows, sums = kernels.sorting.sum_equal(packed, bits, least)
    return rows, sums


def _unpack(fields: Sequence[Field], place: tuple[np.ndarray, np.ndarray]) -> None:
    """Write the columns of packed rows to their place: (columns, m)."""
    rows, out = place
    shift = 0
    lower = np.empty(0, dtype=np.int64)
    for field in reversed(fields[:-1]):
        into = np.empty(len(rows), dtype=np.int64) if field.half == "lower" else out[field.column]
        if field.bits:
            kernels.sorting.unpack(into, rows, shift, field.bits, field.least)
        else:
            into.fill(field.least)
        if field.half == "lower":
            lower = into
        elif field.half == "upper":
            into <<= _HALF_BITS
            into |= lower
        shift += field.bits
