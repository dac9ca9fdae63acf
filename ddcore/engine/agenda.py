"""The agenda of a worker: queued work, in the order of positions."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from ddcore.base.lazy import numpy as np
from ddcore.engine.queues import Queue
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.block import Block, Position, Rounds
from ddcore.planning.plan import Plan
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns
from ddcore.traces.sorted_batch import SortedBatch

NO_BOUND = -(2**63)


@dataclass(slots=True)
class Work:
    """The work of one block at one setting of the rounds: updates for its arrangements, pending times, and a
    notification if an arrangement that another block updates has new rows.
    """

    block: Block
    rounds: Rounds
    queues: dict[int, Queue] = field(default_factory=dict)
    pending: list[SortedBatch] = field(default_factory=list)
    notified: bool = False

    @property
    def size(self) -> int:
        """The number of updates and pending times."""
        return sum(map(len, self.queues.values())) + sum(map(len, self.pending))


class Agenda:
    """The work that waits for the blocks of a plan, and the position that steps have reached."""

    def __init__(self, plan: Plan, budget: Budget = ALONE) -> None:
        self._plan, self._budget = plan, budget
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
        works = self._work.values()
        queues = [queue for work in works for queue in work.queues.values() if len(queue)]
        pending = [batch for work in works for batch in work.pending if len(batch)]
        least = np.full(len(self._plan.dims), NO_BOUND)
        for c in range(len(least) if queues or pending else 0):
            coordinates = [queue.least(c) for queue in queues]
            least[c] = min([*coordinates, *(batch.columns().limits(1 + batch.width + c)[0] for batch in pending)])
        return least

    def at(self, block: Block, rounds: Rounds) -> Work:
        """The work of a block at these rounds, to be added to."""
        position = block.position(rounds)
        assert position > self._position, f"work at {position} while at {self._position}"
        work = self._work.get(position)
        if work is None:
            work = self._work[position] = Work(block, rounds)
            heapq.heappush(self._order, position)
        return work

    def notify(self, block: Block, rounds: Rounds) -> None:
        """Queue a block that reads new rows of an arrangement, unless this step is its own."""
        if block.position(rounds) != self._position:
            self.at(block, rounds).notified = True

    def queue(self, arrangement: Arrangement, rounds: Rounds, updates: Columns, block: Block | None = None) -> None:
        """Updates for an arrangement, all at these rounds, of keys this worker owns; or copies of its rows, for the
        first ``block`` that reads it, at the rounds of that.
        """
        queues = self.at(block or self._plan.blocks[arrangement.block], rounds).queues
        queue = queues.get(arrangement.index)
        if queue is None:
            queue = queues[arrangement.index] = Queue(arrangement, self._budget)
        queue.add(updates)
