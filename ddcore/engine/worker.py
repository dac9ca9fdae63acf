"""The worker: holds the traces of a plan and does one piece of work after the other, in the order of positions.

All versions of a run go through a block together. The updates that a block sends go to a later block of the same round,
or to a later round: a join of times never makes a coordinate smaller, and an assertion checks this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from ddcore.base.errors import Diverged
from ddcore.base.instants import Moved
from ddcore.base.lazy import numpy as np
from ddcore.base.memory import reused_memory
from ddcore.engine.agenda import Work
from ddcore.engine.large_groups import LargeGroups
from ddcore.engine.pending import joined, once_each
from ddcore.engine.queues import waiting
from ddcore.engine.rounds import by_rounds
from ddcore.engine.state import FoldState, Frontier
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Keyed, Step
from ddcore.operators.block import Block, Rounds
from ddcore.operators.clock import Clock
from ddcore.operators.delivery import Delivery
from ddcore.operators.priority import round_of
from ddcore.planning.plan import Plan
from ddcore.planning.rebuilding import Rebuilding
from ddcore.traces.batch import Batch
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Plain
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import Stored


class Worker:
    """Folds updates through a plan. Not thread-safe; it works in ``threads`` threads of its own.

    ``state`` is what its steps see, made of what earlier folds ``stored``, left ``pending`` and ``held`` (see there);
    ``agenda`` the work that waits, ``meter`` what was done.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Mapping[int, Stored] | None = None,
        pending: Mapping[int, SortedBatch] | None = None,
        held: Mapping[int, Batch] | None = None,
        *,
        budget: Budget = ALONE,
        groups: LargeGroups | None = None,
    ) -> None:
        self.plan, self.budget = plan, budget
        self.state = FoldState(plan, stored or {}, pending or {}, held or {}, groups or LargeGroups(), budget=budget)
        self.meter, self.agenda = self.state.meter, self.state.agenda
        self.handled = 0  # updates and pending times that steps have taken
        self._part: Rebuilding | None = None  # of a rebuild
        self._steps: dict[int, Step] = {}
        for block in plan.blocks:
            operator = plan.operator(block)
            if block.ports and isinstance(operator, Keyed):
                self._steps[block.index] = operator.step(plan, block)

    def begin(self, upper: Frontier | None = None) -> None:
        """Start a fold: times at or beyond ``upper`` will not be complete when it ends.

        Pending times and held updates of earlier folds are queued.
        """
        state = self.state
        grown = state.groups.grow() if self._part is None else {}
        state.start(upper)
        pending, state.pending = state.pending, {}
        held, state.held = state.held, {}
        for block in self.plan.blocks:
            if block.spread is not None and (codes := grown.get(state.name_of(block))) is not None:
                self._grow(block, codes, held.get(block.ports[0]))
        for index, times in pending.items():
            state.postpone(self.plan.blocks[index], times)
        for index, batch in held.items():
            state.deliver(state.forwarding.deliveries(self.plan.arrangements[index], batch))

    def rebuild(self, part: Rebuilding) -> None:
        """Fold only a part of the plan, over whole history: see :mod:`ddcore.planning.rebuilding`. To be called before
        any work is queued, on a worker without stored batches; :meth:`replay` then takes the place of them.
        """
        filled = part.missing | part.again
        kept = {a.index for a in self.plan.arrangements if not (a.transient or a.passing) and a.index not in filled}
        kept |= {a.index for a in self.plan.arrangements if a.output and a.output not in part.outputs}
        self.state.complete, self._part = frozenset(kept), part
        self.state.open_ways()
        nodes = {self.plan.blocks[index].node for index in part.blocks}  # those of stages are parts of others
        stages = {block.index for block in self.plan.blocks if self.plan.stages.get(block.node) in nodes}
        self._steps = {index: step for index, step in self._steps.items() if index in part.blocks | stages}

    def _grow(self, block: Block, codes: np.ndarray, held: Batch | None) -> None:
        """Send the history of groups that are large from now on to their trees, and what waits to become part of it.

        They are evaluated at all times of their results so far: new updates may cancel rows that a group had, and then
        nothing reaches its tree.
        """
        assert block.spread is not None and block.output is not None
        port, results = self.plan.arrangements[block.ports[0]], self.plan.arrangements[block.output]
        if held is not None:
            self.state.push(block.spread, self.state.forwarding.spread(block.spread, held, codes))
        for batch in self._history(port, codes):
            self.state.push(block.spread, self.state.forwarding.spread(block.spread, port.batch_of(batch), codes))
        for batch in self._history(results, codes):
            keys = Plain([batch.codes, *batch.words[: results.key_words], *batch.times, batch.diffs])
            self.state.postpone(block, once_each([keys], results.key_words, self.budget))

    def _history(self, arrangement: Arrangement, codes: np.ndarray) -> Iterator[ColumnBatch]:
        """The updates that a trace has of keys, in parts where memory is limited."""
        for batch in self.state.traces[arrangement.index].batches:
            lo, hi = batch.locate(codes, self.budget)
            rows = np.concatenate([np.arange(a, b) for a, b in zip(lo, hi, strict=True)])
            size = self.budget.memory.rows
            for start in range(0, len(rows), size):
                yield batch.take(rows[start : start + size])

    def replay(self, arrangement: Arrangement, batch: Batch) -> None:
        """The whole history of an arrangement that the blocks of a rebuild read."""
        size = self.budget.memory.rows
        for start in range(0, len(batch), size):
            some = batch if size >= len(batch) else batch.take(slice(start, start + size))
            for rounds, part in by_rounds(some, len(self.plan.dims)):
                queued = waiting(arrangement, part, self.budget)
                if arrangement.ends is None:
                    self.agenda.queue(arrangement, rounds, queued)
                else:  # other workers may need some
                    self.state.deliver([Delivery(arrangement, rounds, queued)])

    def feed(self, name: str, batch: Batch) -> None:
        """Updates of an input, before the first step."""
        self.meter.entered(self.plan.sources[name], 0, len(batch))
        self.state.push(self.plan.sources[name], batch)

    def feed_constants(self, time: Sequence[int]) -> None:
        """The rows that the program spells out, at its least time: in the fold that completes it, and in a rebuild."""
        for node, operator in self.plan.constants.items():
            batch = operator.batch(time)
            self.meter.entered(node, 0, len(batch))
            self.state.push(node, batch)

    def feed_instants(self, updates: Sequence[Moved]) -> None:
        """Updates of the instants of versions, for a program that uses ``dd.now``."""
        if self.plan.clock is not None and updates:
            batch = Clock.batch(updates, len(self.plan.dims))
            self.meter.entered(self.plan.clock, 0, len(batch))
            self.state.push(self.plan.clock, batch)

    def run(self) -> None:
        """Step until no work is queued. This is the only worker of its fold."""
        with self.ready():
            while self.agenda.next_position is not None:
                self.step()

    @contextmanager
    def ready(self, least: np.ndarray | None = None) -> Iterator[None]:
        """All work of the fold is queued; ``least``: the least versions of that of all workers. Steps in here keep
        memory that they free, if there are many updates.
        """
        self.state.queued(least)
        budget = self.budget
        is_large = not budget.memory.is_limited and self.agenda.waiting() >= budget.tuning.large_fold
        with reused_memory() if is_large else nullcontext():
            yield

    @property
    def is_advanced(self) -> bool:
        """Whether the arrangements of a rebuild may lack times before the last: see :func:`rebuilding.rebuilding`."""
        return self._part is not None and self._part.advanced

    def settle(self) -> None:
        """The updates of this fold count as stored, in memory."""
        for arrangement in self.plan.arrangements:
            if self.state.traces[arrangement.index].has_new:
                self.state.settle(arrangement)

    def new_updates(self) -> Iterator[tuple[Arrangement, SortedBatch]]:
        """Each kept arrangement's updates of this fold; afterwards they count as stored."""
        self.meter.measure_memory(self.state.traces)
        again = frozenset[int]() if self._part is None else self._part.again
        for arrangement in self.plan.arrangements:
            kept = arrangement.transient or arrangement.index in self.state.complete or arrangement.index in again
            batch = None if kept else self.state.settle(arrangement)
            if batch is not None:
                yield arrangement, batch

    # -- one step ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do the work at the least position."""
        work = self.agenda.take()
        self.state.count(work.rounds)
        self.handled += work.size
        begun = self.meter.begin_step()
        self._do(work)
        self.meter.end_step(work.block, begun)

    def _do(self, work: Work) -> None:
        """Update the arrangements of a block, then run its operator."""
        for index in dict.fromkeys(
            (*work.block.owned, *work.queues)
        ):  # then a result that a rebuild replays, or copies
            if index in work.queues:
                self._update(self.plan.arrangements[index], work)
        step = self._steps.get(work.block.index)
        if step is not None:
            self._note_notified(work)
            step.run(self.state, work.rounds, joined(work.pending, self.budget) if work.pending else None)

    def _note_notified(self, work: Work) -> None:
        for port in (self.plan.arrangements[index] for index in work.block.ports if index not in work.block.owned):
            if new := self.state.delta_at(port, work.rounds):
                self.meter.notified(work.block, port, new)

    def _update(self, arrangement: Arrangement, work: Work) -> None:
        """Consolidate the queued updates of an arrangement, add them to the trace and notify its listeners."""
        state, queue = self.state, work.queues[arrangement.index]
        if arrangement.passing:
            state.show(arrangement, queue)
            return
        updates = queue.consolidated()
        if len(updates) == 0:
            return
        self._guard(work.block, work.rounds, updates)
        self.meter.took(work.block, arrangement, work.rounds, updates)
        if arrangement.transient and not arrangement.output:
            state.push(arrangement.node, arrangement.batch_of(updates))
            return
        state.require_int64(arrangement, updates)
        if arrangement.output:
            state.outputs[arrangement.output].append(arrangement.batch_of(updates))
        else:
            state.append(arrangement, work.rounds[: self.plan.blocks[arrangement.block].depth], updates)

    def _guard(self, block: Block, rounds: Rounds, updates: SortedBatch) -> None:
        """Raises Diverged for a difference that enters a round past the last allowed one."""
        for scope, current in zip(block.loops, rounds, strict=True):
            loop = self.plan.loops[scope]
            if round_of(current) >= loop.max_rounds:
                times = updates.decompress().times
                first = times[:, np.lexsort(times[::-1])[0]]
                moving = int((times == first[:, None]).all(axis=0).sum())
                time = tuple(int(c) for c in first)
                raise Diverged(loop.name, time, int(round_of(current)), moving, self.plan.dims)
