"""The agenda of a worker: queued work, in the order of positions."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from ddcore.base.lazy import numpy as np
from ddcore.engine.queues import Queued, least_times, sorted_run
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.block import Block, Position, Rounds
from ddcore.planning.plan import Plan
from ddcore.traces import spilling
from ddcore.traces.batch import Batch
from ddcore.traces.compressed import NarrowBatch
from ddcore.traces.sorted_batch import SortedBatch

__all__ = ["NO_BOUND", "Agenda", "Work"]

NO_BOUND = -(2**63)


@dataclass(slots=True)
class Work:
    """The work of one block at one setting of the rounds: updates for its arrangements, pending times, and a
    notification if an arrangement that another block updates has new rows.
    """

    block: Block
    rounds: Rounds
    rows: dict[int, list[Queued]] = field(default_factory=dict)
    pending: list[SortedBatch] = field(default_factory=list)
    notified: bool = False
    unsorted: dict[int, int] = field(default_factory=dict)  # of these rows, where memory is limited

    @property
    def size(self) -> int:
        """The number of updates and pending times."""
        return sum(len(b) for batches in self.rows.values() for b in batches) + sum(map(len, self.pending))


class Agenda:
    """The work that waits for the blocks of a plan, and the position that steps have reached."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._work: dict[Position, Work] = {}
        self._order: list[Position] = []
        self._position: Position = (-1,)

    def restart(self) -> None:
        """Work may be queued at any position again: a fold begins."""
        self._position = (-1,)

    @property
    def next_position(self) -> Position | None:
        """The least position with work, or None."""
        return self._order[0] if self._order else None

    @property
    def next_block(self) -> Block | None:
        """The block of the next step; None where no work is queued."""
        return self._work[self._order[0]].block if self._order else None

    def waiting(self) -> int:
        """The number of queued updates and pending times."""
        return sum(work.size for work in self._work.values())

    def take(self) -> Work:
        """Remove the work at the least position, which is the position of a step from now on."""
        self._position = heapq.heappop(self._order)
        return self._work.pop(self._position)

    def least_versions(self) -> np.ndarray:
        """The meet of the versions of all queued work: int64[inputs]. Those of later work are joins of them."""
        inputs = len(self._plan.dims)
        times = [
            least_times(self._plan.arrangements[index], batch, inputs)
            for work in self._work.values()
            for index, batches in work.rows.items()
            for batch in batches
            if len(batch)
        ]
        pending = (batch.times for work in self._work.values() for batch in work.pending if len(batch))
        times += [[int(each[c].min()) for c in range(inputs)] for each in pending]
        least = [min((each[c] for each in times), default=NO_BOUND) for c in range(inputs)]
        return np.array(least, dtype=np.int64)

    def at(self, block: Block, rounds: Rounds) -> Work:
        """The work of a block at these rounds, to be added to."""
        position = block.position(rounds)
        assert position > self._position, f"work at {position} while at {self._position}"
        work = self._work.get(position)
        if work is None:
            work = self._work[position] = Work(block, rounds)
            heapq.heappush(self._order, position)
        return work

    def queue(self, arrangement: Arrangement, rounds: Rounds, updates: Batch | NarrowBatch) -> None:
        """Updates for an arrangement, all at these rounds, of keys this worker owns."""
        work = self.at(self._plan.blocks[arrangement.block], rounds)
        queued = work.rows.setdefault(arrangement.index, [])
        queued.append(updates)
        spill = spilling.current()
        if spill is not None:
            self._sort_queued(arrangement, work, len(updates), spill.rows)

    def _sort_queued(self, arrangement: Arrangement, work: Work, added: int, most: int) -> None:
        """Sort and consolidate what waits before an arrangement, where it is more than ``most`` unsorted updates."""
        work.unsorted[arrangement.index] = work.unsorted.get(arrangement.index, 0) + added
        if work.unsorted[arrangement.index] < most:
            return
        work.unsorted[arrangement.index] = 0
        queued = work.rows[arrangement.index]
        runs = [each for each in queued if isinstance(each, SortedBatch)]
        run = sorted_run(arrangement, [each for each in queued if not isinstance(each, SortedBatch)])
        if run is not None:
            work.rows[arrangement.index] = [*runs, run]
