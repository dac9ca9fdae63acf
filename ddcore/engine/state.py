"""The state of a fold: traces, outputs, what waits for later folds, and the way of updates to the agenda."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ddcore.base.errors import DiffOverflow, ExpressionError
from ddcore.base.lattice import beyond
from ddcore.base.lazy import numpy as np
from ddcore.data.encoding import decode_frame
from ddcore.engine.agenda import NO_BOUND, Agenda
from ddcore.engine.forwarding import Forwarding
from ddcore.engine.large_groups import LargeGroups
from ddcore.engine.meter import Meter
from ddcore.engine.pending import joined
from ddcore.engine.queues import Queue, sorted_by_key
from ddcore.engine.rounds import groups
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Keyed
from ddcore.operators.block import Block, Position, Rounds
from ddcore.operators.delivery import Delivery
from ddcore.operators.priority import round_of
from ddcore.planning.plan import Plan
from ddcore.traces import ranges
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.sorted_batch import SortedBatch
from ddcore.traces.trace import Stored, Trace

Frontier = Sequence[tuple[int, ...]]


class FoldState:
    """What steps see of a worker (:class:`ddcore.operators.base.State`), and what leaves for other workers.

    ``stored``: batches of earlier folds by arrangement index, or what opens them. ``pending``: their pending times by
    block index; ``held``: updates of earlier folds that wait before an arrangement, by its index. Both have times that
    were not complete, and are not processed before they are: a loop with only a part of its input might never reach a
    fixed point.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Mapping[int, Stored],
        pending: Mapping[int, SortedBatch],
        held: Mapping[int, Batch],
        large: LargeGroups,
        *,
        budget: Budget = ALONE,
    ) -> None:
        self.plan, self.groups, self.budget = plan, large, budget
        self.meter, self.agenda = Meter(plan), Agenda(plan, budget)
        apart = _apart(plan)
        self.traces = [Trace(stored.get(a.index, ()), budget, apart=a.index in apart) for a in plan.arrangements]
        self.pending, self.held = dict(pending), dict(held)
        self.outputs: dict[str, list[Batch]] = {name: [] for name in plan.outputs}
        self.rounds = 0  # greatest number of rounds of an outermost loop, for reports
        self.divide(frozenset(), ())
        self.leaving: list[Delivery] = []  # for whoever owns their keys
        self.copied: Collection[int] = ()  # arrangements of results, outside of loops, of which others get copies
        self._latest: dict[int, tuple[Rounds, SortedBatch]] = {}
        self._passing: dict[int, Queue] = {}
        self.complete: frozenset[int] = frozenset()  # arrangements that take and gain nothing in this fold
        self.start(None)

    def start(self, upper: Frontier | None) -> None:
        """A fold begins: times at or beyond ``upper`` will not be complete when it ends."""
        elements = [] if upper is None else list(upper)
        self.upper = np.array(elements, dtype=np.int64).reshape(len(elements), len(self.plan.dims)).T.copy()
        self.agenda.restart()
        self.open_ways()
        self._lower, self._frontiers = np.full(len(self.plan.dims), NO_BOUND), dict[Rounds, np.ndarray]()

    def open_ways(self) -> None:
        """Forward updates by the upper, the complete arrangements and the large groups of now."""
        large: dict[int | None, np.ndarray] = {
            block.spread: self.groups.codes(name)
            for block in self.plan.blocks
            if block.spread is not None and (name := self.name_of(block)) in self.groups.grown
        }
        self.forwarding = Forwarding(self.plan, self.upper, self.complete, large, self.meter, budget=self.budget)

    def name_of(self, block: Block) -> str:
        """Under which the large groups of a block are known."""
        assert block.output is not None
        return self.plan.arrangements[block.output].fingerprint

    def queued(self, least: np.ndarray | None = None) -> None:
        """All work of the fold is queued: no later time is less than those of this work, or than ``least``, those of
        the work of all workers.
        """
        self._lower, self._frontiers = self.agenda.least_versions() if least is None else least, {}

    def divide(self, arrangements: frozenset[int], horizon: Position) -> None:
        """From here on updates for these arrangements, at ``horizon`` or later, may belong to other workers."""
        self._divided, self._horizon = arrangements, horizon

    def settle(self, arrangement: Arrangement) -> SortedBatch | None:
        """The updates of an arrangement in this fold, which count as stored from now on."""
        self._latest.pop(arrangement.index, None)
        return self.traces[arrangement.index].settle()

    def append(self, arrangement: Arrangement, rounds: Rounds, updates: SortedBatch) -> None:
        """Add new updates of an arrangement at ``rounds``, and notify the other blocks that read it."""
        self.traces[arrangement.index].append(updates, self.frontier(rounds))
        self._latest[arrangement.index] = (rounds, updates)
        for index in arrangement.listeners:
            block = self.plan.blocks[index]
            self.agenda.notify(block, rounds + (0,) * (block.depth - len(rounds)))

    def show(self, arrangement: Arrangement, queue: Queue) -> None:
        """Updates of a passing arrangement, for :meth:`arrived`."""
        self._passing[arrangement.index] = queue

    def count(self, rounds: Rounds) -> None:
        """Note that a loop has these rounds."""
        self.rounds = max(self.rounds, int(round_of(rounds[0])) + 1 if rounds else 0)

    # -- the interface of a step ---------------------------------------------------------------------------------------

    def trace(self, arrangement: Arrangement) -> Trace:
        """The history of an arrangement."""
        return self.traces[arrangement.index]

    def delta_at(self, arrangement: Arrangement, rounds: Rounds) -> SortedBatch | None:
        """The new updates of the arrangement at these rounds; an outer one has some only at round 0 of inner loops."""
        at, updates = self._latest.get(arrangement.index, (None, None))
        return updates if at is not None and rounds == at + (0,) * (len(rounds) - len(at)) else None

    def arrived(self, arrangement: Arrangement, rounds: Rounds) -> Iterator[SortedBatch]:
        """The new updates of an arrangement at these rounds in portions: as :meth:`delta_at`, or what passes."""
        if arrangement.passing:
            queue = self._passing.pop(arrangement.index, None)
            if queue is None:
                return
            if not queue.is_whole:
                yield from queue.portions()
                return
            new: SortedBatch | None = queue.consolidated()
            if new is not None:
                self.require_int64(arrangement, new)
        else:
            new = self.delta_at(arrangement, rounds)
        for (some,) in ranges.portions([new], arrangement.key_words, self.budget):
            if some is not None and len(some):
                yield some

    def frontier(self, rounds: Rounds) -> np.ndarray:
        """The least times of work that may be left after a position with these rounds: (coordinates, elements).

        Work goes on in the order of positions. So it is at these rounds or at lexicographically greater ones: those
        whose first difference is one round more, with all rounds inside of that from 0 on.
        """
        known = self._frontiers.get(rounds)
        if known is not None:
            return known
        if len(rounds) < 2:  # the only element, in fewer calls
            frontier = np.array([*self._lower.tolist(), *rounds], dtype=np.int64).reshape(-1, 1)
            self._frontiers = {rounds: frontier}
            return frontier
        elements = [
            rounds,
            *((*rounds[:at], rounds[at] + 1, *(0 for _ in rounds[at + 1 :])) for at in range(len(rounds) - 1)),
        ]
        inputs = len(self._lower)
        frontier = np.empty((inputs + len(rounds), len(elements)), dtype=np.int64)
        frontier[:inputs] = self._lower[:, None]
        frontier[inputs:] = np.array(elements, dtype=np.int64).T
        self._frontiers = {rounds: frontier}
        return frontier

    def emit(self, block: Block, batch: Batch) -> None:
        """Updates of the collection of a block's operator."""
        self.push(block.node, batch)
        self.meter.sent(block, len(batch))

    def forward(self, block: Block, batch: Batch) -> list[Delivery]:
        """What a batch becomes where it arrives, for :meth:`deliver`: no effect yet. Several threads may call this."""
        arrived = self.forwarding.arrivals(block.node, batch)
        self.meter.sent(block, len(batch))
        return arrived

    def keyed(self, arrangement: Arrangement, batch: Batch) -> SortedBatch:
        """A batch of the arrangement's collection, sorted by key code. Several threads may call this."""
        return sorted_by_key(arrangement.keyed, batch, self.budget)

    def keep(self, arrangement: Arrangement, rounds: Rounds, updates: SortedBatch) -> None:
        """Updates of a block's own output, from :meth:`keyed`."""
        self.require_int64(arrangement, updates)
        if len(updates):
            self.meter.kept(self.plan.blocks[arrangement.block], rounds, updates)
            if arrangement.index in self.copied:  # its readers get these with the copies, as one batch
                self.leaving.append(Delivery(arrangement, rounds, arrangement.queued(arrangement.batch_of(updates))))
            else:
                self.append(arrangement, rounds, updates)

    def postpone(self, block: Block, pending: SortedBatch) -> None:
        """Queue pending times by round; those at or beyond the fold's upper stay pending."""
        if len(pending) == 0:
            return
        pending = pending.decompress()
        inputs = len(self.plan.dims)
        late = beyond(pending.times[:inputs], self.upper)
        if late.any():
            late_times = pending.take(np.flatnonzero(late))
            earlier = self.pending.get(block.index)
            self.pending[block.index] = late_times if earlier is None else joined([earlier, late_times], self.budget)
            pending = pending.take(np.flatnonzero(~late))
        for rounds, rows in groups(list(pending.times[inputs:]), len(pending)):
            part = pending if rows is None else pending.take(rows)
            self.agenda.at(block, rounds).pending.append(ranges.spilled(part, self.budget))

    def large(self, block: Block) -> np.ndarray | None:
        """The key codes of the groups of a block that have a tree of partial results: int64[m], ascending."""
        return self.forwarding.large.get(block.spread)

    def note_large(self, block: Block, codes: np.ndarray) -> None:
        """Note groups that are to have a tree in the next fold. Several threads may call this."""
        self.groups.note(self.name_of(block), codes)

    # -- forwarding updates --------------------------------------------------------------------------------------------

    def push(self, node: int, batch: Batch) -> None:
        """Send updates of a node's collection through linear operators and loop borders to the arrangements that
        read them. Many are divided between threads.
        """
        size = self.budget.tuning.forwarded_rows
        if len(batch) < 2 * size:
            self.deliver(self.forwarding.arrivals(node, batch))
            return
        portions = (batch.take(slice(at, at + size)) for at in range(0, len(batch), size))
        try:
            arrived = list(self.budget.map(partial(self.forwarding.arrivals, node), portions))
        except ExpressionError:  # perhaps another portion's updates cancel those on which an operator fails
            arrived = [self.forwarding.arrivals(node, batch)]
        for deliveries in arrived:
            self.deliver(deliveries)

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Queue updates for arrangements; those that this fold does not complete are stored in ``held``, those that may
        belong to other workers are noted in ``leaving``.
        """
        for delivery in deliveries:
            arrangement, rounds, updates = delivery.arrangement, delivery.rounds, delivery.updates
            if rounds is not None:
                if arrangement.index in self._divided and self._position(arrangement, rounds) >= self._horizon:
                    self.leaving.append(delivery)
                else:
                    self.agenda.queue(arrangement, rounds, updates)
                continue
            late, earlier = arrangement.updates(updates), self.held.get(arrangement.index)
            self.held[arrangement.index] = late if earlier is None else concatenate([late, earlier])

    def _position(self, arrangement: Arrangement, rounds: Rounds) -> Position:
        return self.plan.blocks[arrangement.block].position(rounds)

    def require_int64(self, arrangement: Arrangement, updates: SortedBatch) -> None:
        """Raises DiffOverflow, with the row and the time, where a diff is more than int64 holds."""
        if updates.high is None:
            return
        at = int(np.flatnonzero(updates.high != updates.decompress().diffs >> 63)[0])
        batch = arrangement.batch_of(updates).take(slice(at, at + 1))
        row = decode_frame(batch.words, arrangement.collection).row(0)
        diff = (int(updates.high[at]) << 64) + (int(batch.diffs[0]) & (2**64 - 1))
        node = self.plan.nodes[arrangement.node]
        where = f"output {arrangement.output}" if arrangement.output else f"{node.operator.name} ({node.source_line})"
        time = tuple(int(coordinate[0]) for coordinate in batch.times)
        raise DiffOverflow(f"{where}: the diffs of {row!r} at time {time} add up to {diff}, which int64 cannot hold")


def _apart(plan: Plan) -> set[int]:
    """The arrangements of which some reader tells new updates from earlier ones."""
    apart: set[int] = set()
    for block in plan.blocks:
        operator = plan.operator(block)
        if isinstance(operator, Keyed) and operator.needs_delta:
            apart.update(block.ports)
    return apart
