"""Sorted partitions, one after another in columns: where each row's partition, peers and frame begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ddcore.base.distinct import distinct
from ddcore.base.lazy import numpy as np
from ddcore.data import encoding
from ddcore.operators.frame import Frame

Spans = tuple[np.ndarray, np.ndarray]
"""The frame of each row as spans of rows ``low:high``, ascending: int64[spans, n] each. No end moves back."""


@dataclass
class Partitions:
    """Rows sorted by partition and order.

    ``partition``: the number of the partition, ascending; ``order``: the order's columns, each whether it is null and
    an integer that ascends, the former turned around where
    nulls come first; ``firsts``: of each, whether nulls come first; ``downs``: whether it descends.
    """

    partition: np.ndarray
    order: Sequence[tuple[np.ndarray, np.ndarray]]
    firsts: Sequence[bool]
    downs: Sequence[bool]

    @cached_property
    def positions(self) -> np.ndarray:
        """The number of each row."""
        return np.arange(len(self.partition))

    @cached_property
    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the partition of each row begins and ends."""
        return self._ends(self._heads)

    @cached_property
    def peers(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows begin and end that are equal to each in the order."""
        return self._ends(self._leaders)

    @cached_property
    def group(self) -> np.ndarray:
        """The number of each row's peers, over all partitions."""
        return np.cumsum(self._leaders) - 1

    @cached_property
    def _heads(self) -> np.ndarray:
        """Whether each row is the first of its partition."""
        return np.concatenate([np.ones(1, np.bool_), self.partition[1:] != self.partition[:-1]])[: len(self.positions)]

    @cached_property
    def _leaders(self) -> np.ndarray:
        """Whether each row is the first of its peers."""
        leaders = self._heads.copy()
        for column in (column for pair in self.order for column in pair):
            leaders[1:] |= column[1:] != column[:-1]
        return leaders

    def _ends(self, firsts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts = np.flatnonzero(firsts)
        sizes = np.diff(np.append(starts, len(firsts)))
        return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)

    def spans(self, frame: Frame, distances: tuple[Any, Any], *, of_floats: bool) -> Spans:
        """The frames of all rows. ``distances``: the ends of a range in words."""
        low, high = self._bounds(frame, distances, of_floats=of_floats)
        high = np.maximum(low, high)
        if frame.exclude == "nothing":
            return low[np.newaxis], high[np.newaxis]
        first, end = (self.positions, self.positions + 1) if frame.exclude == "row" else self.peers
        cuts = [np.clip(cut, low, high) for cut in (first, self.positions, self.positions + 1, end)]
        if frame.exclude == "ties":  # the row itself stays
            return np.stack([low, cuts[1], cuts[3]]), np.stack([cuts[0], cuts[2], high])
        return np.stack([low, cuts[3]]), np.stack([cuts[0], high])

    def _bounds(self, frame: Frame, distances: tuple[Any, Any], *, of_floats: bool) -> tuple[np.ndarray, np.ndarray]:
        if frame.unit == "rows":
            return self._by_rows(frame)
        if frame.unit == "groups":
            return self._by_groups(frame)
        start, end = self.whole
        first, last = self.peers
        low = start if frame.start is None else first
        high = end if frame.end is None else last
        if frame.has_distance:
            values = self._Values.of(self)
            low = values.found(distances[0], low, 0, of_floats=of_floats) if frame.start else low
            high = values.found(distances[1], high, 1, of_floats=of_floats) if frame.end else high
        return low, high

    def _by_rows(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        start, end = self.whole
        low = start if frame.start is None else np.clip(self.positions + frame.start, start, end)
        high = end if frame.end is None else np.clip(self.positions + (frame.end + 1), start, end)
        return low, high

    def _by_groups(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        start, end = self.whole
        starts = np.append(np.flatnonzero(self._leaders), len(self.positions))
        first, last = self.group[start], self.group[end - 1] + 1
        low = start if frame.start is None else starts[np.clip(self.group + frame.start, first, last)]
        high = end if frame.end is None else starts[np.clip(self.group + (frame.end + 1), first, last)]
        return low, high

    @dataclass
    class _Values:
        """The values of an order of one column, to find where those at a distance begin or end.

        ``ranks``: the number of a value among all distinct ones, which come after 0; nulls have the least or the
        greatest.
        """

        partition: np.ndarray
        words: np.ndarray
        nulls: np.ndarray
        distinct: np.ndarray
        positions: np.ndarray
        down: bool

        @classmethod
        def of(cls, rows: Partitions) -> Partitions._Values:
            (last, words), partition = rows.order[0], np.cumsum(rows._heads) - 1
            nulls = last != rows.firsts[0]
            known = distinct(words[~nulls])
            ranks = np.searchsorted(known, words) + 1
            ranks[nulls] = 0 if rows.firsts[0] else len(known) + 1
            return cls(partition, words, nulls, known, partition * (len(known) + 2) + ranks, rows.downs[0])

        def found(self, distance: Any, of_nulls: np.ndarray, side: int, *, of_floats: bool) -> np.ndarray:
            """Where the values begin, or with ``side`` 1 end, that are so far on in the order; for a null its peers."""
            which: Literal["left", "right"] = "right" if side else "left"
            if of_floats:
                ranks = np.searchsorted(self.distinct, self._floats(distance), side=which) + 1
            else:
                with np.errstate(over="ignore"):
                    targets = self.words + np.int64(distance)
                ranks = np.searchsorted(self.distinct, targets, side=which) + 1
                beyond = targets < self.words if distance > 0 else targets > self.words
                ranks[beyond] = len(self.distinct) + 1 if distance > 0 else 1  # past int64 there is none
            positions = np.searchsorted(self.positions, self.partition * (len(self.distinct) + 2) + ranks)
            return np.where(self.nulls, of_nulls, positions)

        def _floats(self, distance: float) -> np.ndarray:
            """The words of the values at a distance."""
            values = encoding.floats_of(~self.words if self.down else self.words)
            with np.errstate(invalid="ignore", over="ignore"):
                targets = encoding.words_of_floats(values - distance if self.down else values + distance)
            return ~targets if self.down else targets


def extremes(words: np.ndarray, spans: Spans, combine: np.ufunc | None = None, nothing: int = -(2**63)) -> np.ndarray:
    """The greatest word of each frame, ``nothing`` for an empty one, or what another function combines of which words
    may come twice. O(n log n), by maxima of 1, 2, 4, ... rows.
    """
    combine = combine or np.maximum
    result = np.full(len(words), nothing, dtype=np.int64)
    sizes = [high - low for low, high in zip(*spans, strict=True)]
    length, table = 1, words
    while length <= max((int(size.max()) for size in sizes if len(size)), default=0):
        for low, high, size in zip(*spans, sizes, strict=True):
            rows = np.flatnonzero((size >= length) & (size < 2 * length))
            both = combine(table[low[rows]], table[high[rows] - length])
            result[rows] = combine(result[rows], both)
        table = combine(table[:-length], table[length:]) if len(table) > length else table
        length *= 2
    return result
