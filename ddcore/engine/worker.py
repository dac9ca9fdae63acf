"""The worker: holds the traces of a plan and does one piece of work after the other, in the order of positions.

All versions of a run go through a block together. The updates that a block sends go to a later block of the same round,
or to a later round: a join of times never makes a coordinate smaller, and an assertion checks this.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from ddcore.base.errors import DiffOverflow, Diverged, ExpressionError
from ddcore.base.lattice import beyond
from ddcore.base.lazy import numpy as np
from ddcore.base.memory import reused_memory
from ddcore.base.threads import each, using
from ddcore.data.encoding import decode_frame
from ddcore.engine.forwarding import Forwarding
from ddcore.engine.large_groups import LargeGroups
from ddcore.engine.meter import Meter
from ddcore.engine.queues import Queued, consolidated, least_times, narrowed, sorted_run
from ddcore.engine.rounds import by_rounds, groups
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Keyed, Step
from ddcore.operators.block import Block, Position, Rounds
from ddcore.operators.delivery import Delivery
from ddcore.operators.priority import round_of
from ddcore.planning.plan import Plan
from ddcore.planning.rebuilding import Rebuilding
from ddcore.traces import ranges, spilling
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.compressed import NarrowBatch
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import SortedBatch
from ddcore.traces.trace import Trace

Frontier = Sequence[tuple[int, ...]]

_NO_BOUND = -(2**63)
_LARGE = 1 << 16  # updates of a fold
_PORTION = 1 << 17  # updates that one thread carries through the linear operators


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


class Worker:
    """Folds updates through a plan. Not thread-safe; it works in ``threads`` threads of its own.

    ``stored``: batches of earlier folds by arrangement index. ``pending``: their pending times by block index;
    ``held``: updates of earlier folds that wait before an arrangement, by its index. Both have times that were not
    complete, and are not processed before they are: a loop with only a part of its input might never reach a fixed
    point.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Mapping[int, Sequence[SortedBatch]] | None = None,
        pending: Mapping[int, SortedBatch] | None = None,
        held: Mapping[int, Batch] | None = None,
        *,
        threads: int = 1,
        groups: LargeGroups | None = None,
    ) -> None:
        self.plan, self.threads, self.groups = plan, threads, groups or LargeGroups()
        self.meter = Meter(plan)
        apart = _apart(plan)
        self.traces = [Trace((stored or {}).get(a.index, ()), apart=a.index in apart) for a in plan.arrangements]
        self.pending: dict[int, SortedBatch] = dict(pending or {})
        self.held: dict[int, Batch] = dict(held or {})
        self.outputs: dict[str, list[Batch]] = {name: [] for name in plan.outputs}
        self.rounds = 0  # greatest number of rounds of an outermost loop, for reports
        self._work: dict[Position, Work] = {}
        self.handled = 0  # updates and pending times that steps have taken
        self._order: list[Position] = []
        # The updates of traces, for an exchange that stores them; None: not recorded.
        self.journal: list[tuple[Arrangement, Rounds, SortedBatch]] | None = None
        self._latest: dict[int, tuple[Rounds, SortedBatch]] = {}
        self._position: Position = (-1,)
        self.upper = np.empty((len(plan.dims), 0), dtype=np.int64)
        self._complete_already: frozenset[int] = frozenset()  # arrangements that take and gain nothing in this fold
        self.forwarding = self._forwarding()
        self._lower = np.full(len(plan.dims), _NO_BOUND)
        self._frontiers: dict[Rounds, np.ndarray] = {}  # of the step
        self._part: Rebuilding | None = None  # of a rebuild
        self._steps: dict[int, Step] = {}
        for block in plan.blocks:
            operator = plan.operator(block)
            if block.ports and isinstance(operator, Keyed):
                self._steps[block.index] = operator.step(plan, block)

    # -- the interface of a fold ---------------------------------------------------------------------------------------

    def begin(self, upper: Frontier | None = None) -> None:
        """Start a fold: times at or beyond ``upper`` will not be complete when it ends.

        Pending times and held updates of earlier folds are queued.
        """
        self._position = (-1,)
        elements = [] if upper is None else list(upper)
        self.upper = np.array(elements, dtype=np.int64).reshape(len(elements), len(self.plan.dims)).T.copy()
        grown = self.groups.grow() if self._part is None else {}
        self.forwarding = self._forwarding()
        self._lower, self._frontiers = np.full(len(self.plan.dims), _NO_BOUND), {}
        pending, self.pending = self.pending, {}
        held, self.held = self.held, {}
        for block in self.plan.blocks:
            if block.spread is not None and (codes := grown.get(self._name(block))) is not None:
                self._grow(block, codes, held.get(block.ports[0]))
        for index, times in pending.items():
            self.postpone(self.plan.blocks[index], times)
        for index, batch in held.items():
            self.deliver(self.forwarding.deliveries(self.plan.arrangements[index], batch))

    def rebuild(self, part: Rebuilding) -> None:
        """Fold only a part of the plan, over whole history: see :mod:`ddcore.planning.rebuilding`. To be called before
        any work is queued, on a worker without stored batches; :meth:`replay` then takes the place of them.
        """
        filled = part.missing | part.again
        kept = {a.index for a in self.plan.arrangements if not a.transient and a.index not in filled}
        kept |= {a.index for a in self.plan.arrangements if a.output and a.output not in part.outputs}
        self._complete_already = frozenset(kept)
        self._part = part
        self.forwarding = self._forwarding()
        self._steps = {index: step for index, step in self._steps.items() if index in part.blocks}

    def _forwarding(self) -> Forwarding:
        large: dict[int | None, np.ndarray] = {
            block.spread: self.groups.codes(name)
            for block in self.plan.blocks
            if block.spread is not None and (name := self._name(block)) in self.groups.grown
        }
        return Forwarding(self.plan, self.upper, self._complete_already, large, self.meter)

    def _name(self, block: Block) -> str:
        """Under which the large groups of a block are known."""
        assert block.output is not None
        return self.plan.arrangements[block.output].fingerprint

    def _grow(self, block: Block, codes: np.ndarray, held: Batch | None) -> None:
        """Send the history of groups that are large from now on to their trees, and what waits to become part of it.

        They are evaluated at all times of their results so far: new updates may cancel rows that a group had, and then
        nothing reaches its tree.
        """
        assert block.spread is not None and block.output is not None
        port, results = self.plan.arrangements[block.ports[0]], self.plan.arrangements[block.output]
        if held is not None:
            self.push(block.spread, self.forwarding.spread(block.spread, held, codes))
        for batch in self._history(port, codes):
            self.push(block.spread, self.forwarding.spread(block.spread, port.batch_of(batch), codes))
        for batch in self._history(results, codes):
            times = SortedBatch(batch.codes, batch.words[: results.key_words], batch.times, batch.diffs)
            self.postpone(block, _once_each([times]))

    def _history(self, arrangement: Arrangement, codes: np.ndarray) -> Iterator[SortedBatch]:
        """The updates that a trace has of keys, in parts where memory is limited."""
        spill = spilling.current()
        for batch in self.traces[arrangement.index].batches:
            lo, hi = batch.locate(codes)
            rows = np.concatenate([np.arange(a, b) for a, b in zip(lo, hi, strict=True)])
            size = max(1, len(rows)) if spill is None else spill.rows
            for start in range(0, len(rows), size):
                yield batch.take(rows[start : start + size])

    def replay(self, arrangement: Arrangement, batch: Batch) -> None:
        """The whole history of an arrangement that the blocks of a rebuild read."""
        spill = spilling.current()
        size = max(1, len(batch)) if spill is None else spill.rows
        for start in range(0, len(batch), size):
            some = batch if size >= len(batch) else batch.take(slice(start, start + size))
            for rounds, part in by_rounds(some, len(self.plan.dims)):
                self.accept(arrangement, rounds, part)

    def feed(self, name: str, batch: Batch) -> None:
        """Updates of an input, before the first step."""
        with using(self.threads):
            self.meter.entered(self.plan.sources[name], 0, len(batch))
            self.push(self.plan.sources[name], batch)

    def feed_constants(self, time: Sequence[int]) -> None:
        """The rows that the program spells out, at its least time: in the fold that completes it, and in a rebuild."""
        with using(self.threads):
            for node, operator in self.plan.constants.items():
                batch = operator.batch(time)
                self.meter.entered(node, 0, len(batch))
                self.push(node, batch)

    def run(self) -> None:
        """Step until no work is queued. No other worker may have work left in this fold."""
        with self.ready():
            while self._order:
                self.step()

    @contextmanager
    def ready(self) -> Iterator[None]:
        """All work of the fold is queued. Steps in here share threads and memory."""
        self._lower, self._frontiers = self._least_versions(), {}
        is_large = spilling.current() is None and self.waiting() >= _LARGE
        with using(self.threads), reused_memory() if is_large else nullcontext():
            yield

    def _least_versions(self) -> np.ndarray:
        """The meet of the versions of all queued work: int64[inputs]. Those of later work are joins of them."""
        inputs = len(self.plan.dims)
        times = [
            least_times(self.plan.arrangements[index], batch, inputs)
            for work in self._work.values()
            for index, batches in work.rows.items()
            for batch in batches
            if len(batch)
        ]
        pending = (batch.times for work in self._work.values() for batch in work.pending if len(batch))
        times += [[int(each[c].min()) for c in range(inputs)] for each in pending]
        least = [min((each[c] for each in times), default=_NO_BOUND) for c in range(inputs)]
        return np.array(least, dtype=np.int64)

    @property
    def is_advanced(self) -> bool:
        """Whether the arrangements of a rebuild may lack times before the last: see :func:`rebuilding.rebuilding`."""
        return self._part is not None and self._part.advanced

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
        return sum(map(_size, self._work.values()))

    def drain(self) -> Iterator[Work]:
        """Remove and yield all queued work, in order, for an exchange to send to other workers."""
        while self._order:
            yield self._work.pop(heapq.heappop(self._order))

    def settle(self) -> None:
        """The updates of this fold count as stored, in memory."""
        for trace in self.traces:
            trace.settle()
        self._latest.clear()

    def harvest(self) -> Iterator[tuple[Arrangement, SortedBatch]]:
        """Each kept arrangement's updates of this fold; afterwards they count as stored."""
        self.meter.measure_memory(self.traces)
        again = frozenset[int]() if self._part is None else self._part.again
        for arrangement in self.plan.arrangements:
            trace = self.traces[arrangement.index]
            kept = arrangement.transient or arrangement.index in self._complete_already or arrangement.index in again
            batch = None if kept else trace.settle()
            if batch is not None:
                yield arrangement, batch
        self._latest.clear()

    # -- one step ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do the work at the least position."""
        self._position = heapq.heappop(self._order)
        work = self._work.pop(self._position)
        self._count(work.rounds)
        self.handled += _size(work)
        begun = self.meter.begin_step()
        self._do(work)
        self.meter.end_step(work.block, begun)

    def _do(self, work: Work) -> None:
        """Update the arrangements of a block, then run its operator."""
        replayed = () if work.block.output is None else (work.block.output,)  # others add to it only in a rebuild
        for index in (*work.block.owned, *replayed):
            if index in work.rows:
                self._update(self.plan.arrangements[index], work)
        step = self._steps.get(work.block.index)
        if step is not None:
            self._note_notified(work)
            step.run(self, work.rounds, ranges.combined(work.pending, joined) if work.pending else None)

    def _note_notified(self, work: Work) -> None:
        for port in (self.plan.arrangements[index] for index in work.block.ports if index not in work.block.owned):
            if new := self.gained(port, work.rounds):
                self.meter.notified(work.block, port, new)

    def _update(self, arrangement: Arrangement, work: Work) -> None:
        """Consolidate the queued updates of an arrangement, add them to the trace and notify its listeners."""
        updates = consolidated(arrangement, work.rows[arrangement.index])
        if len(updates) == 0:
            return
        self._guard(work.block, work.rounds, updates)
        self.meter.took(work.block, arrangement, work.rounds, updates)
        if arrangement.transient and not arrangement.output:
            updates = updates.widen()
            self.push(arrangement.node, Batch(list(updates.words), list(updates.times), updates.diffs, updates.high))
            return
        self.require_int64(arrangement, updates)
        if arrangement.output:
            updates = updates.widen()
            self.outputs[arrangement.output].append(Batch(list(updates.words), list(updates.times), updates.diffs))
        else:
            self._append(arrangement, work.rounds, updates)

    def keyed(self, arrangement: Arrangement, batch: Batch) -> SortedBatch:
        """A batch of the arrangement's collection, sorted by key code. Several threads may call this."""
        return consolidated(replace(arrangement, transient=False) if arrangement.transient else arrangement, [batch])

    def restore(self, arrangement: Arrangement, rounds: Rounds, updates: SortedBatch) -> None:
        """Add updates that a trace received earlier in this fold, here or in another process."""
        self.traces[arrangement.index].append(updates, self.frontier(rounds))
        self._latest[arrangement.index] = (rounds, updates)
        self._count(rounds)

    def _count(self, rounds: Rounds) -> None:
        self.rounds = max(self.rounds, int(round_of(rounds[0])) + 1 if rounds else 0)

    def _append(self, arrangement: Arrangement, rounds: Rounds, updates: SortedBatch) -> None:
        """Add new updates of an arrangement at ``rounds``, and notify the other blocks that read it."""
        self.restore(arrangement, rounds, updates)
        if self.journal is not None:
            self.journal.append((arrangement, rounds, updates))
        for index in arrangement.listeners:
            block = self.plan.blocks[index]
            self._work_at(block, rounds + (0,) * (block.depth - len(rounds))).notified = True

    # -- the interface of a step ---------------------------------------------------------------------------------------

    def trace(self, arrangement: Arrangement) -> Trace:
        """The history of an arrangement."""
        return self.traces[arrangement.index]

    def gained(self, arrangement: Arrangement, rounds: Rounds) -> SortedBatch | None:
        """The new updates of the arrangement at these rounds; an outer one has some only at round 0 of inner loops."""
        at, updates = self._latest.get(arrangement.index, (None, None))
        return updates if at is not None and rounds == at + (0,) * (len(rounds) - len(at)) else None

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

    def keep(self, arrangement: Arrangement, rounds: Rounds, updates: SortedBatch) -> None:
        """Updates of a block's own output, from :meth:`keyed`."""
        self.require_int64(arrangement, updates)
        if len(updates):
            self.meter.kept(self.plan.blocks[arrangement.block], rounds, updates)
            self._append(arrangement, rounds, updates)

    def postpone(self, block: Block, pending: SortedBatch) -> None:
        """Queue pending times by round; those at or beyond the fold's upper stay pending."""
        if len(pending) == 0:
            return
        pending = pending.widen()
        inputs = len(self.plan.dims)
        late = beyond(pending.times[:inputs], self.upper)
        if late.any():
            late_times = pending.take(np.flatnonzero(late))
            earlier = self.pending.get(block.index)
            self.pending[block.index] = late_times if earlier is None else joined([earlier, late_times])
            pending = pending.take(np.flatnonzero(~late))
        for rounds, rows in groups(list(pending.times[inputs:]), len(pending)):
            part = pending if rows is None else pending.take(rows)
            self._work_at(block, rounds).pending.append(ranges.at_rest(part))

    def large(self, block: Block) -> np.ndarray | None:
        """The key codes of the groups of a block that have a tree of partial results: int64[m], ascending."""
        return self.forwarding.large.get(block.spread)

    def note_large(self, block: Block, codes: np.ndarray) -> None:
        """Note groups that are to have a tree in the next fold. Several threads may call this."""
        self.groups.note(self._name(block), codes)

    def require_int64(self, arrangement: Arrangement, updates: SortedBatch) -> None:
        """Raises DiffOverflow, with the row and the time, where a diff is more than int64 holds."""
        if updates.high is None:
            return
        at = int(np.flatnonzero(updates.high != updates.diffs >> 63)[0])
        words = list(updates.words) if arrangement.transient else arrangement.batch_of(updates).words
        row = decode_frame([column[at : at + 1] for column in words], arrangement.collection).row(0)
        diff = (int(updates.high[at]) << 64) + (int(updates.diffs[at]) & (2**64 - 1))
        node = self.plan.nodes[arrangement.node]
        where = f"output {arrangement.output}" if arrangement.output else f"{node.operator.name} ({node.place})"
        time = tuple(int(coordinate) for coordinate in updates.times[:, at])
        raise DiffOverflow(f"{where}: the diffs of {row!r} at time {time} add up to {diff}, which int64 cannot hold")

    def _guard(self, block: Block, rounds: Rounds, updates: SortedBatch) -> None:
        """Raises Diverged for a difference that enters a round past the last allowed one."""
        for scope, current in zip(block.loops, rounds, strict=True):
            loop = self.plan.loops[scope]
            if round_of(current) >= loop.max_rounds:
                first = updates.times[:, np.lexsort(updates.times[::-1])[0]]
                moving = int((updates.times == first[:, None]).all(axis=0).sum())
                time = tuple(int(c) for c in first)
                raise Diverged(loop.name, time, int(round_of(current)), moving, self.plan.dims)

    # -- forwarding updates --------------------------------------------------------------------------------------------

    def push(self, node: int, batch: Batch) -> None:
        """Send updates of a node's collection through linear operators and loop borders to the arrangements that
        read them. Many are divided between threads.
        """
        if len(batch) < 2 * _PORTION:
            self.deliver(self.forwarding.arrivals(node, batch))
            return
        portions = (batch.take(slice(at, at + _PORTION)) for at in range(0, len(batch), _PORTION))
        try:
            arrived = list(each(partial(self.forwarding.arrivals, node), portions))
        except ExpressionError:  # perhaps another portion's updates cancel those on which an operator fails
            arrived = [self.forwarding.arrivals(node, batch)]
        for deliveries in arrived:
            self.deliver(deliveries)

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Queue updates for arrangements; those that this fold does not complete are stored in ``held``."""
        for delivery in deliveries:
            arrangement, updates = delivery.arrangement, delivery.updates
            if delivery.rounds is not None:
                self._queue(arrangement, delivery.rounds, updates)
                continue
            assert isinstance(updates, Batch)
            earlier = self.held.get(arrangement.index)
            self.held[arrangement.index] = updates if earlier is None else concatenate([updates, earlier])

    def accept(self, arrangement: Arrangement, rounds: Rounds, batch: Batch | NarrowBatch) -> None:
        """Updates for an arrangement, all at these rounds, of keys this worker owns."""
        self._queue(arrangement, rounds, narrowed(arrangement, batch) if isinstance(batch, Batch) else batch)

    def _queue(self, arrangement: Arrangement, rounds: Rounds, updates: Batch | NarrowBatch) -> None:
        work = self._work_at(self.plan.blocks[arrangement.block], rounds)
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

    def accept_pending(self, block: Block, rounds: Rounds, pending: SortedBatch | None) -> None:
        """Pending times of keys this worker owns, all at these rounds. None: a notification only."""
        work = self._work_at(block, rounds)
        if pending is None:
            work.notified = True
        else:
            work.pending.append(pending)

    def _work_at(self, block: Block, rounds: Rounds) -> Work:
        position = block.position(rounds)
        assert position > self._position, f"work at {position} while at {self._position}"
        work = self._work.get(position)
        if work is None:
            work = self._work[position] = Work(block, rounds)
            heapq.heappush(self._order, position)
        return work


def _apart(plan: Plan) -> set[int]:
    """The arrangements of which some reader tells new updates from earlier ones."""
    apart: set[int] = set()
    for block in plan.blocks:
        operator = plan.operator(block)
        if isinstance(operator, Keyed) and operator.reads_apart:
            apart.update(block.ports)
    return apart


def _size(work: Work) -> int:
    """The number of updates and pending times of some work."""
    return sum(len(b) for batches in work.rows.values() for b in batches) + sum(map(len, work.pending))


def joined(batches: Sequence[SortedBatch]) -> SortedBatch:
    """Several batches of pending times as one, each (key, time) once."""
    batches = [batch for batch in batches if len(batch)] or batches[:1]
    return batches[0] if len(batches) == 1 else _once_each(batches)


def _once_each(batches: Sequence[SortedBatch]) -> SortedBatch:
    merged = arrange(
        np.concatenate([batch.codes for batch in batches]),
        list(np.concatenate([batch.words for batch in batches], axis=1)),
        list(np.concatenate([batch.times for batch in batches], axis=1)),
        np.ones(sum(len(batch) for batch in batches), dtype=np.int64),
    )
    return SortedBatch(merged.codes, merged.words, merged.times, np.ones(len(merged), dtype=np.int64))
