"""The worker: holds the traces of a plan and does one piece of work after the other, in the order of positions.

All versions of a run go through a block together. What a block sends lands at its own round in a later block, or at a
later round: the product order of times guarantees that nothing reaches back, and an assertion holds it to that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ddcore.batch import Batch, concatenate
from ddcore.encoding import decode_frame, key_codes
from ddcore.errors import DiffOverflow, Diverged
from ddcore.lattice import beyond
from ddcore.operators.base import Keyed, Linear, Step
from ddcore.operators.borders import Variable
from ddcore.operators.priority import round_of
from ddcore.plan import Arrangement, Block, Loop, Plan, Position, Target
from ddcore.trace import SortedBatch, Trace, arrange

Rounds = tuple[int, ...]
Frontier = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class Work:
    """What waits for one block at one setting of the rounds: updates for its arrangements, pending times, and a
    notification where an arrangement that another block brings up to date has gained.
    """

    block: Block
    rounds: Rounds
    rows: dict[int, list[Batch]] = field(default_factory=dict)
    pending: list[SortedBatch] = field(default_factory=list)
    notified: bool = False


class Worker:
    """Folds updates through a plan. Not thread-safe; one worker, one process.

    ``stored``: runs of earlier folds by arrangement index. ``pending``: pending times of earlier folds by block index;
    ``held``: updates of earlier folds that wait before an arrangement, by its index. Both lie at times that were not
    complete, and nothing is done there before they are: a loop that went round with half of its input might never
    reach a fixed point.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Mapping[int, Sequence[SortedBatch]] | None = None,
        pending: Mapping[int, SortedBatch] | None = None,
        held: Mapping[int, Batch] | None = None,
    ) -> None:
        self.plan = plan
        self.traces = [Trace((stored or {}).get(a.index, ())) for a in plan.arrangements]
        self.pending: dict[int, SortedBatch] = dict(pending or {})
        self.held: dict[int, Batch] = dict(held or {})
        self.outputs: dict[str, list[Batch]] = {name: [] for name in plan.outputs}
        self.rounds = 0  # rounds of the outermost loops gone through, for reports
        self._work: dict[Position, Work] = {}
        self._order: list[Position] = []
        self.journal: list[tuple[Arrangement, Rounds, SortedBatch]] | None = (
            None  # what traces gain, for an exchange that stores it
        )
        self._latest: dict[int, tuple[Rounds, SortedBatch]] = {}
        self._position: Position = (-1,)
        self.upper = np.empty((len(plan.dims), 0), dtype=np.int64)
        self._steps: dict[int, Step] = {}
        for block in plan.blocks:
            operator = plan.operator(block)
            if block.ports and isinstance(operator, Keyed):
                self._steps[block.index] = operator.step(plan, block)

    # -- a fold, from outside -----------------------------------------------------------------------------------------

    def begin(self, upper: Frontier | None = None) -> None:
        """Start a fold: times at or beyond ``upper`` will not be complete when it ends.

        What earlier folds left pending or held back is taken up.
        """
        self._position = (-1,)
        elements = [] if upper is None else list(upper)
        self.upper = np.array(elements, dtype=np.int64).reshape(len(elements), len(self.plan.dims)).T.copy()
        pending, self.pending = self.pending, {}
        held, self.held = self.held, {}
        for index, times in pending.items():
            self.postpone(self.plan.blocks[index], times)
        for index, batch in held.items():
            self._deliver(self.plan.arrangements[index], batch)

    def feed(self, name: str, batch: Batch) -> None:
        """Updates of an input, before the first step."""
        self.push(self.plan.sources[name], batch)

    def run(self) -> None:
        """Step until nothing waits."""
        while self._order:
            self.step()

    @property
    def next_position(self) -> Position | None:
        """Where the least work waits, or None."""
        return self._order[0] if self._order else None

    def waiting(self) -> int:
        """How many updates and pending times wait."""
        rows = (len(b) for work in self._work.values() for batches in work.rows.values() for b in batches)
        return sum(rows) + sum(len(run) for work in self._work.values() for run in work.pending)

    def drain(self) -> Iterator[Work]:
        """Take all waiting work away, in order: what an exchange hands to other workers."""
        while self._order:
            yield self._work.pop(heapq.heappop(self._order))

    def harvest(self) -> Iterator[tuple[Arrangement, SortedBatch]]:
        """Each kept arrangement's updates of this fold; afterwards they count as stored."""
        for arrangement in self.plan.arrangements:
            trace = self.traces[arrangement.index]
            run = None if arrangement.transient else trace.settle()
            if run is not None:
                yield arrangement, run
        self._latest.clear()

    # -- one step -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do the least piece of work there is."""
        self._position = heapq.heappop(self._order)
        work = self._work.pop(self._position)
        self._count(work.rounds)
        for index in work.block.owned:
            if index in work.rows:
                self._update(self.plan.arrangements[index], work)
        step = self._steps.get(work.block.index)
        if step is not None:
            step.run(self, work.rounds, joined(work.pending) if work.pending else None)

    def _update(self, arrangement: Arrangement, work: Work) -> None:
        """Consolidate what waits for an arrangement, add it to the trace and tell whoever listens."""
        batch = concatenate(work.rows[arrangement.index])
        run = self.arranged(arrangement, batch)
        if len(run) == 0:
            return
        self._guard(work.block, work.rounds, run)
        if arrangement.transient and not arrangement.output:
            self.push(arrangement.node, Batch(list(run.words), list(run.times), run.diffs, run.high))
            return
        self.require_int64(arrangement, run)
        if arrangement.output:
            self.outputs[arrangement.output].append(Batch(list(run.words), list(run.times), run.diffs))
        else:
            self._append(arrangement, work.rounds, run)

    def arranged(self, arrangement: Arrangement, batch: Batch) -> SortedBatch:
        """A batch of the arrangement's collection as a run.

        A transient one is not looked up by key and needs no codes.
        """
        if arrangement.transient:
            return arrange(np.zeros(len(batch), np.int64), batch.words, batch.times, batch.diffs, batch.high)
        return self.keyed(arrangement, batch)

    def keyed(self, arrangement: Arrangement, batch: Batch) -> SortedBatch:
        """A batch of the arrangement's collection, sorted by key code."""
        columns = dict(zip(arrangement.collection, batch.words, strict=True))
        keys = [columns[name] for name in arrangement.key]
        codes = key_codes(keys, arrangement.key_types, len(batch))
        values = [columns[name] for name in arrangement.values]
        return arrange(codes, values if arrangement.direct else keys + values, batch.times, batch.diffs, batch.high)

    def restore(self, arrangement: Arrangement, rounds: Rounds, run: SortedBatch) -> None:
        """Take back what a trace gained earlier in this fold, here or in another process."""
        self.traces[arrangement.index].append(run)
        self._latest[arrangement.index] = (rounds, run)
        self._count(rounds)

    def _count(self, rounds: Rounds) -> None:
        self.rounds = max(self.rounds, int(round_of(rounds[0])) + 1 if rounds else 0)

    def _append(self, arrangement: Arrangement, rounds: Rounds, run: SortedBatch) -> None:
        """Add what an arrangement gains at ``rounds``, and notify the other blocks that read it."""
        self.restore(arrangement, rounds, run)
        if self.journal is not None:
            self.journal.append((arrangement, rounds, run))
        for index in arrangement.listeners:
            block = self.plan.blocks[index]
            self._work_at(block, rounds + (0,) * (block.depth - len(rounds))).notified = True

    # -- what steps see of the worker ---------------------------------------------------------------------------------

    def trace(self, arrangement: Arrangement) -> Trace:
        """The history of an arrangement."""
        return self.traces[arrangement.index]

    def gained(self, arrangement: Arrangement, rounds: Rounds) -> SortedBatch | None:
        """What the arrangement gained at these rounds; an outer one gains only at round 0 of the loops inside."""
        at, run = self._latest.get(arrangement.index, (None, None))
        return run if at is not None and rounds == at + (0,) * (len(rounds) - len(at)) else None

    def emit(self, block: Block, batch: Batch) -> None:
        """Updates of the collection of a block's operator."""
        self.push(block.node, batch)

    def keep(self, arrangement: Arrangement, rounds: Rounds, batch: Batch) -> None:
        """Updates of a block's own output."""
        run = self.keyed(arrangement, batch)
        self.require_int64(arrangement, run)
        if len(run):
            self._append(arrangement, rounds, run)

    def postpone(self, block: Block, pending: SortedBatch) -> None:
        """Queue pending times by round; those at or beyond the fold's upper stay pending."""
        if len(pending) == 0:
            return
        inputs = len(self.plan.dims)
        late = beyond(pending.times[:inputs], self.upper)
        if late.any():
            kept = _rows(pending, np.flatnonzero(late))
            known = self.pending.get(block.index)
            self.pending[block.index] = kept if known is None else joined([known, kept])
            pending = _rows(pending, np.flatnonzero(~late))
        for rounds, rows in _groups(list(pending.times[inputs:]), len(pending)):
            part = pending if len(rows) == len(pending) else _rows(pending, rows)
            self._work_at(block, rounds).pending.append(part)

    def require_int64(self, arrangement: Arrangement, run: SortedBatch) -> None:
        """Raises DiffOverflow, with the row and the time, where a diff is more than int64 holds."""
        if run.high is None:
            return
        at = int(np.flatnonzero(run.high != run.diffs >> 63)[0])
        batch = Batch(list(run.words), [], run.diffs) if arrangement.transient else arrangement.batch_of(run)
        row = decode_frame([column[at : at + 1] for column in batch.words], arrangement.collection).row(0)
        diff = (int(run.high[at]) << 64) + (int(run.diffs[at]) & (2**64 - 1))
        node = self.plan.nodes[arrangement.node]
        where = f"output {arrangement.output}" if arrangement.output else f"{node.operator.name} ({node.place})"
        time = tuple(int(coordinate) for coordinate in run.times[:, at])
        raise DiffOverflow(f"{where}: the diffs of {row!r} at time {time} add up to {diff}, which int64 cannot hold")

    def _guard(self, block: Block, rounds: Rounds, run: SortedBatch) -> None:
        """A difference that enters a round past the last allowed one: the loop has no fixed point in sight."""
        for scope, current in zip(block.loops, rounds, strict=True):
            loop = self.plan.loops[scope]
            if round_of(current) >= loop.max_rounds:
                first = run.times[:, np.lexsort(run.times[::-1])[0]]
                moving = int((run.times == first[:, None]).all(axis=0).sum())
                raise Diverged(loop.name, tuple(int(c) for c in first), int(round_of(current)), moving)

    # -- moving updates on --------------------------------------------------------------------------------------------

    def push(self, node: int, batch: Batch) -> None:
        """Send updates of a node's collection through linear operators and loop borders to the arrangements that wait
        for them. Without recursion: a program may have thousands of operators in a row.
        """
        waiting = [(node, batch)]
        while waiting:
            node, batch = waiting.pop()
            if len(batch):
                targets = self.plan.targets[node]
                waiting += reversed([pair for target in targets for pair in self._passed(target, batch)])

    def _passed(self, target: Target, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """Where a target sends updates on to, and what they are there; none where they have arrived."""
        plan = self.plan
        if target.kind == "arrange":
            self._deliver(plan.arrangements[target.index], batch)
        elif target.kind == "linear":
            user = plan.nodes[target.index]
            assert isinstance(user.operator, Linear)
            lifted = self._lifted(batch, plan.depths[target.index])
            yield target.index, user.operator.apply(lifted, user.place)
        elif target.kind == "leave":
            yield target.index, self._left(batch, plan.depths[target.index])
        else:
            loop = plan.loops[target.index]
            entered = self._lifted(batch, loop.depth)
            if target.kind == "enter":
                entered = self._prioritized(loop, target.variable, entered)
                yield from self._varied(loop, target.variable, entered)
                entered = entered.negated()
            yield from self._varied(loop, target.variable, _next_round(entered))

    def _prioritized(self, loop: Loop, variable: int, batch: Batch) -> Batch:
        """Updates of a loop's source at the coordinates at which they enter."""
        node = self.plan.nodes[loop.variables[variable]]
        assert isinstance(node.operator, Variable)
        if node.operator.priority is None:
            return batch
        coordinates = node.operator.priority.coordinates(batch, node.place)
        return batch.at([*batch.times[:-1], coordinates])

    def _varied(self, loop: Loop, variable: int, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """Updates of a loop's variable, for the body unless they are consolidated first.

        What still moves past the last round allowed is seen before any operator of the body could drop it; a loop that
        returns what it has at its limit drops it here.
        """
        border, past = self.plan.arrangements[loop.borders[variable]], round_of(batch.times[-1]) >= loop.max_rounds
        if loop.returns and past.any():
            batch = batch.take(np.flatnonzero(~past))
            past = np.zeros(len(batch), dtype=bool)
        if loop.consolidates[variable]:
            self._deliver(border, batch)
            return
        if past.any():
            self._deliver(border, batch.take(np.flatnonzero(past)))
            batch = batch.take(np.flatnonzero(~past))
        yield loop.variables[variable], batch

    def _lifted(self, batch: Batch, depth: int) -> Batch:
        """Enter: loop coordinates a scope adds start at 0."""
        missing = len(self.plan.dims) + depth - len(batch.times)
        if missing <= 0:
            return batch
        zeros = np.zeros(len(batch), dtype=np.int64)
        return batch.at(batch.times + [zeros] * missing)

    def _left(self, batch: Batch, depth: int) -> Batch:
        """Leave: the loop's coordinate goes, and differences at all its rounds add up to the last round's
        collection.
        """
        lifted = self._lifted(batch, depth)
        return lifted.at(lifted.times[: len(self.plan.dims) + depth])

    def _deliver(self, arrangement: Arrangement, batch: Batch) -> None:
        batch = self._complete(arrangement, batch)
        for rounds, part in _by_rounds(batch, len(self.plan.dims)):
            self.accept(arrangement, rounds, part)

    def _complete(self, arrangement: Arrangement, batch: Batch) -> Batch:
        """The updates at times this fold completes; the others are held back."""
        if self.upper.shape[1] == 0:
            return batch
        late = beyond(np.stack(batch.times[: len(self.plan.dims)]), self.upper)
        if late.any():
            kept = [batch.take(np.flatnonzero(late))]
            if arrangement.index in self.held:
                kept.append(self.held[arrangement.index])
            self.held[arrangement.index] = concatenate(kept)
        return batch.take(np.flatnonzero(~late))

    def accept(self, arrangement: Arrangement, rounds: Rounds, batch: Batch) -> None:
        """Updates for an arrangement, all at these rounds, of keys this worker owns."""
        block = self.plan.blocks[arrangement.block]
        self._work_at(block, rounds).rows.setdefault(arrangement.index, []).append(batch)

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


def _next_round(batch: Batch) -> Batch:
    return batch.at([*batch.times[:-1], batch.times[-1] + 1])


def _by_rounds(batch: Batch, inputs: int) -> Iterator[tuple[Rounds, Batch]]:
    """The batch cut by loop coordinates."""
    for rounds, rows in _groups(batch.times[inputs:], len(batch)):
        yield rounds, batch if len(rows) == len(batch) else batch.take(rows)


def _groups(columns: Sequence[np.ndarray], n: int) -> Iterator[tuple[Rounds, np.ndarray]]:
    """Distinct settings of the columns, with the row numbers of each: O(n) where all are alike, else a sort."""
    if n == 0:
        return
    if all(column[0] == column[-1] and column.min() == column.max() for column in columns):
        yield tuple(int(column[0]) for column in columns), np.arange(n)
        return
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    changes = np.zeros(n - 1, dtype=bool)
    for column in ordered:
        changes |= column[1:] != column[:-1]
    for rows in np.split(order, np.flatnonzero(changes) + 1):
        yield tuple(int(column[rows[0]]) for column in columns), np.sort(rows)


def _rows(run: SortedBatch, rows: np.ndarray) -> SortedBatch:
    return SortedBatch(
        run.codes[rows], np.take(run.words, rows, axis=1), np.take(run.times, rows, axis=1), run.diffs[rows]
    )


def joined(runs: Sequence[SortedBatch]) -> SortedBatch:
    """Several runs of pending times as one, each (key, time) once."""
    if len(runs) == 1:
        return runs[0]
    merged = arrange(
        np.concatenate([run.codes for run in runs]),
        list(np.concatenate([run.words for run in runs], axis=1)),
        list(np.concatenate([run.times for run in runs], axis=1)),
        np.ones(sum(len(run) for run in runs), dtype=np.int64),
    )
    return SortedBatch(merged.codes, merged.words, merged.times, np.ones(len(merged), dtype=np.int64))
