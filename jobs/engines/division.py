"""Who owns which updates: each worker a range of key codes, and of the heavy keys of joins a part.

A join is linear in each of its sides. So a key with too many rows for one worker is divided over all of them as a grid:
the rows of one side go, by their values, to the rows of the grid, those of the other side to its columns, and each
worker joins what it has of both. With one column, one side is divided and the other copied to all workers.

Rows that are looked up by their order are divided by their values, and an interval goes to all owners of values in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcore.base.lazy import numpy as np
from ddcore.operators.arrangement import Arrangement

if TYPE_CHECKING:
    from ddcore.traces.sorted_batch import SortedBatch

LAST = 2**63 - 1  # where the empty ranges of workers begin that own nothing: no code comes after it
_MIX, _UPPER = 0x9E3779B97F4A7C15, 32  # spreads codes that are values over the upper bits


@dataclass(frozen=True)
class Shares:
    """How the rows of the heavy keys of an arrangement are divided.

    ``codes`` ascend; the rows of each are in as many ``parts``, and each part is at as many workers: those of a row of
    the grid (``by_rows``), or of a column. ``result``: the owner of a key computes its rows, and copies them to the
    others.
    """

    workers: int
    codes: tuple[int, ...]
    parts: tuple[int, ...]
    by_rows: bool
    result: bool = False

    def part_of(self, worker: int, parts: int) -> int:
        """Which of so many parts a worker has."""
        return worker // (self.workers // parts) if self.by_rows else worker % parts

    def first(self, worker: int, parts: int) -> bool:
        """Whether a worker is the first that has its part: this one stores what is new there."""
        return worker % (self.workers // parts) == 0 if self.by_rows else worker < parts

    def numbers(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of these codes, int64[n], are heavy, and the number of each: int64[m] both."""
        known = np.array(self.codes, dtype=np.int64)
        numbers = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        heavy = np.flatnonzero(known[numbers] == codes)
        return heavy, numbers[heavy]

    def cells(self, numbers: np.ndarray, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The workers of rows of heavy keys, by the numbers of these and by hashes of the rows: int64[m] each.

        Returns rows and workers, a pair for each copy: int64[copies] each.
        """
        parts = np.array(self.parts, dtype=np.int64)[numbers]
        copies = self.workers // parts
        mixed = (hashes.view(np.uint64) * np.uint64(_MIX)) >> np.uint64(_UPPER)
        part = (mixed % parts.astype(np.uint64)).astype(np.int64)
        rows = np.repeat(np.arange(len(numbers)), copies)
        copy = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
        workers = part * copies if self.by_rows else part
        step = np.ones_like(parts) if self.by_rows else parts
        return rows, workers[rows] + step[rows] * copy


@dataclass(frozen=True)
class Division:
    """Who owns which updates.

    ``boundaries``: by arrangement index the parallelism - 1 key codes at which the next worker begins. ``keys``: the
    columns whose code counts for an output's updates. ``shares``: of the arrangements with heavy keys. ``everywhere``:
    the values of which all workers have rows, by the arrangement of intervals; they ascend.
    """

    boundaries: Mapping[int, Sequence[int]]
    keys: Mapping[int, tuple[str, ...]]
    shares: Mapping[int, Shares] = field(default_factory=dict)
    everywhere: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def owners(self) -> int:
        """How many workers own some of an arrangement: the first ones. All, where a key has several owners."""
        if self.shares:
            return 1 + len(next(iter(self.boundaries.values())))
        return max((self._owners(index) for index in self.boundaries), default=1)

    def _owners(self, index: int) -> int:
        return 1 + bisect_left(self.boundaries[index], LAST)

    def writer(self, index: int) -> int:
        """The worker that stores few rows of an arrangement for all: one of those that own some of it."""
        return index % self._owners(index)

    def stored_parts(self, worker: int) -> dict[int, list[tuple[int, int, int]]]:
        """What a worker reads of what is stored of heavy keys, by arrangement index: code, part, number of parts."""
        return {
            index: [
                (code, shares.part_of(worker, parts), parts)
                for code, parts in zip(shares.codes, shares.parts, strict=True)
            ]
            for index, shares in self.shares.items()
        }

    def holders(
        self, intervals: Arrangement, words: Mapping[str, np.ndarray], rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last worker that has each of some intervals: int64[rows] both."""
        assert intervals.ends is not None
        boundaries, codes = self.boundaries[intervals.index], self.everywhere.get(intervals.index, ())
        first, last = intervals.ends.owners(words, rows, boundaries)
        if codes:
            before, behind = (np.searchsorted(codes, bound, "right") for bound in intervals.ends.bounds(words, rows))
            first[before < behind], last[before < behind] = 0, len(boundaries)
        return first, last

    @property
    def copied(self) -> frozenset[int]:
        """The arrangements of results of which owners copy the rows of heavy keys to all others."""
        return frozenset(index for index, shares in self.shares.items() if shares.result)

    def own(self, worker: int, arrangement: Arrangement, updates: SortedBatch) -> SortedBatch:
        """The new updates that a worker has of an arrangement without copies, which others store: of an interval the
        first owner stores it.
        """
        shares = self.shares.get(arrangement.index)
        if shares is not None:
            codes = np.array([*self._copies(arrangement.index, shares, worker)], dtype=np.int64)
            return updates.without(codes)
        if arrangement.ends is None:
            return updates
        words = dict(zip(arrangement.schema, updates.decompress().words, strict=True))
        first, _ = arrangement.ends.owners(words, len(updates), self.boundaries[arrangement.index])
        return updates.take(np.flatnonzero(first == worker))

    def _copies(self, index: int, shares: Shares, worker: int) -> Iterator[int]:
        owners = np.searchsorted(np.array(self.boundaries[index], np.int64), shares.codes, side="right")
        for code, parts, owner in zip(shares.codes, shares.parts, owners.tolist(), strict=True):
            if worker != owner if shares.result else not shares.first(worker, parts):
                yield code
