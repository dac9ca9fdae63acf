"""Updates that wait before an arrangement at one position, in the order of its columns and in few bytes.

Where memory is limited, many of them are sorted and consolidated while they wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from ddcore.base.lazy import numpy as np
from ddcore.operators.arrangement import Arrangement
from ddcore.traces import ranges
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns, Plain, together
from ddcore.traces.consolidation import arrange_all, gathered
from ddcore.traces.sorted_batch import SortedBatch


def waiting(arrangement: Arrangement, batch: Batch, budget: Budget = ALONE) -> Columns:
    """Updates that wait for their position, in few bytes where there are many."""
    queued = arrangement.queued(batch)
    return queued if len(batch) < _few(budget) else queued.compress(budget)


def _few(budget: Budget) -> int:
    return budget.tuning.waiting_rows_limited if budget.memory.is_limited else budget.tuning.waiting_rows


def sorted_by_key(arrangement: Arrangement, batch: Batch, budget: Budget = ALONE) -> SortedBatch:
    """Updates as a sorted batch of an arrangement. Raises DiffOverflow."""
    run = arrange_all([arrangement.queued(batch)], arrangement.width, arrangement.hashed, budget=budget)
    return ranges.spilled(run, budget)


class Queue:
    """The updates that wait before an arrangement: as they came, and those that were sorted meanwhile."""

    __slots__ = ("_runs", "_small", "_unsorted", "arrangement", "arrived", "budget")

    def __init__(self, arrangement: Arrangement, budget: Budget = ALONE) -> None:
        self.arrangement, self.budget, self._unsorted = arrangement, budget, 0
        self._small = (0, 0)  # pieces of few updates at the end of `arrived`, and their updates
        self.arrived: list[Columns] = []
        self._runs: list[SortedBatch] = []

    def __len__(self) -> int:
        return sum(map(len, self.arrived)) + sum(map(len, self._runs))

    def add(self, updates: Columns) -> None:
        """Add updates from :func:`waiting`; sort those that wait, where they are many for the memory."""
        self.arrived.append(updates)
        self._unsorted += len(updates)
        self._compress(len(updates))
        if self._unsorted >= self.budget.memory.rows:
            self._sort(self.budget.memory.rows)

    def _compress(self, rows: int) -> None:
        """Keep the pieces of few updates that came last in few bytes, as one, once they have many together."""
        few, (pieces, small) = _few(self.budget), self._small
        self._small = (pieces + 1, small + rows) if rows < few else (0, 0)
        if small + rows >= few > rows:
            self.arrived[-pieces - 1 :] = [together(self.arrived[-pieces - 1 :]).compress(self.budget)]
            self._small = (0, 0)

    def least(self, coordinate: int) -> int:
        """The least coordinate of the times of the updates, or less; there are some."""
        number = coordinate - 1 - len(self.arrangement.times)
        return min(piece.limits(number)[0] for piece in self._pieces() if len(piece))

    def consolidated(self) -> SortedBatch:
        """The updates as one batch, sorted and consolidated. Raises DiffOverflow."""
        rows, width = self.budget.memory.rows, self.arrangement.width
        if len(self) > rows and self._sort(rows):
            arranged = partial(arrange_all, budget=self.budget)
            return ranges.combined([run.columns() for run in self._runs], width, arranged, self.budget)
        return self._arranged(self._pieces())

    @property
    def is_whole(self) -> bool:
        """Whether some are sorted, or have diffs of 128 bits: then :meth:`consolidated` is what adds them up."""
        return self.budget.memory.is_limited or any(piece.high is not None for piece in self.arrived)

    def portions(self) -> Iterator[SortedBatch]:
        """The updates as they came in parts of some ten thousand, which caches hold, each sorted by key. Equal ones may
        be apart.
        """
        arrangement = self.arrangement
        for some in self._parts(self.budget.tuning.rule_rows):
            yield arrange_all([some], arrangement.width, arrangement.hashed, budget=self.budget, summed=False)

    def _parts(self, size: int) -> Iterator[Columns]:
        """The updates as they came in parts of so many at most, small pieces together."""
        waiting, rows = list[Columns](), 0
        for piece in self.arrived:
            for start in range(0, len(piece), size):
                some = piece if size >= len(piece) else piece.part(start, min(start + size, len(piece)))
                if waiting and rows + len(some) > size:
                    yield together(waiting)
                    waiting, rows = [], 0
                waiting.append(some)
                rows += len(some)
        if waiting:
            yield together(waiting)

    def batch(self) -> Batch:
        """The updates as they came, not consolidated."""
        return concatenate([self.arrangement.updates(piece) for piece in self._pieces()])

    def pieces(self) -> Sequence[Columns]:
        """The updates with their columns as :meth:`Arrangement.queued` has them, in a few pieces."""
        return gathered(self._pieces(), self.budget.tuning.few_rows)

    def _arranged(self, pieces: Sequence[Columns]) -> SortedBatch:
        arrangement = self.arrangement
        run = arrange_all(pieces, arrangement.width, arrangement.hashed, budget=self.budget)
        return ranges.spilled(run, self.budget)

    def _pieces(self) -> list[Columns]:
        coded = 1 if self.arrangement.hashed else 0
        return [*self.arrived, *(Plain([*run.columns()][coded:], run.high) for run in self._runs)]

    def _sort(self, rows: int) -> bool:
        """Sort and consolidate what has arrived, about so many updates at once. False where the diffs of some need 128
        bits: these stay as they came.
        """
        self._unsorted, self._small = 0, (0, 0)
        if any(piece.high is not None for piece in self.arrived):
            return False
        ends = np.cumsum([len(piece) for piece in self.arrived])
        cuts = [0, *(np.flatnonzero(np.diff(ends // rows)) + 1).tolist(), len(self.arrived)]
        runs = [self._arranged(self.arrived[a:b]) for a, b in pairwise(cuts) if a < b]
        if any(run.high is not None for run in runs):
            return False
        self.arrived, self._runs = [], [*self._runs, *runs]
        return True
