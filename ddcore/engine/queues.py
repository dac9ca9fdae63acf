"""Updates that wait before an arrangement at one position, in the order of its columns and in few bytes.

Where memory is limited, many of them are sorted and consolidated while they wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ddcore.base.lazy import numpy as np
from ddcore.operators.arrangement import Arrangement
from ddcore.traces import ranges, spilling
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.columns import Columns, Plain
from ddcore.traces.consolidation import arrange_all, gathered
from ddcore.traces.sorted_batch import SortedBatch

__all__ = ["Queue", "sorted_by_key", "waiting"]

_COMPRESSED_FROM = 1 << 14  # updates of a batch
_COMPRESSED_EARLIER_FROM = 1 << 10  # where memory is limited


def waiting(arrangement: Arrangement, batch: Batch) -> Columns:
    """Updates that wait for their position, in few bytes where there are many."""
    queued = arrangement.queued(batch)
    few = _COMPRESSED_EARLIER_FROM if spilling.current().is_limited else _COMPRESSED_FROM
    return queued if len(batch) < few else queued.compress()


def sorted_by_key(arrangement: Arrangement, batch: Batch) -> SortedBatch:
    """Updates as a sorted batch of an arrangement. Raises DiffOverflow."""
    return ranges.at_rest(arrange_all([arrangement.queued(batch)], arrangement.width, arrangement.hashed))


class Queue:
    """The updates that wait before an arrangement: as they came, and those that were sorted meanwhile."""

    __slots__ = ("_runs", "_unsorted", "arrangement", "arrived")

    def __init__(self, arrangement: Arrangement) -> None:
        self.arrangement, self._unsorted = arrangement, 0
        self.arrived: list[Columns] = []
        self._runs: list[SortedBatch] = []

    def __len__(self) -> int:
        return sum(map(len, self.arrived)) + sum(map(len, self._runs))

    def add(self, updates: Columns) -> None:
        """Add updates from :func:`waiting`; sort those that wait, where they are many for the memory."""
        self.arrived.append(updates)
        self._unsorted += len(updates)
        if self._unsorted >= spilling.current().rows:
            self._sort(spilling.current().rows)

    def least(self, coordinate: int) -> int:
        """The least coordinate of the times of the updates, or less; there are some."""
        number = coordinate - 1 - len(self.arrangement.times)
        return min(piece.least(number) for piece in self._pieces() if len(piece))

    def consolidated(self) -> SortedBatch:
        """The updates as one batch, sorted and consolidated. Raises DiffOverflow."""
        rows, width = spilling.current().rows, self.arrangement.width
        if len(self) > rows and self._sort(rows):
            return ranges.combined([run.columns() for run in self._runs], width, arrange_all)
        return ranges.at_rest(arrange_all(self._pieces(), width, self.arrangement.hashed))

    def batch(self) -> Batch:
        """The updates as they came, not consolidated."""
        return concatenate([self.arrangement.updates(piece) for piece in self._pieces()])

    def pieces(self) -> Sequence[Columns]:
        """The updates with their columns as :meth:`Arrangement.queued` has them, in a few pieces."""
        return gathered(self._pieces())

    def _pieces(self) -> list[Columns]:
        coded = 1 if self.arrangement.hashed else 0
        return [*self.arrived, *(Plain([*run.columns()][coded:], run.high) for run in self._runs)]

    def _sort(self, rows: int) -> bool:
        """Sort and consolidate what has arrived, about so many updates at once. False where the diffs of some need 128
        bits: these stay as they came.
        """
        self._unsorted = 0
        if any(piece.high is not None for piece in self.arrived):
            return False
        ends = np.cumsum([len(piece) for piece in self.arrived])
        cuts = [0, *(np.flatnonzero(np.diff(ends // rows)) + 1).tolist(), len(self.arrived)]
        runs = [
            ranges.at_rest(arrange_all(self.arrived[a:b], self.arrangement.width, self.arrangement.hashed))
            for a, b in pairwise(cuts)
            if a < b
        ]
        if any(run.high is not None for run in runs):
            return False
        self.arrived, self._runs = [], [*self._runs, *runs]
        return True
