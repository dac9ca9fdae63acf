"""The worker: holds the traces of a plan and does one piece of work after the other, in the order of positions.

All versions of a run go through a block together. What a block sends lands at its own round in a later block, or at a
later round: the product order of times guarantees that nothing reaches back, and an assertion holds it to that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ddcore.batch import Batch, concatenate
from ddcore.encoding import decode_frame, key_codes
from ddcore.errors import DiffOverflow, Diverged
from ddcore.graph import Loop, Node
from ddcore.operators import linear
from ddcore.operators.join import JoinStep
from ddcore.operators.reduce import ReduceStep
from ddcore.plan import Arrangement, Block, Plan, Position
from ddcore.trace import Run, Trace, arrange

Rounds = tuple[int, ...]
Frontier = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class Work:
    """What waits for one block at one setting of the rounds: updates for its arrangements, wake-ups, and ``news``
    where an arrangement that another block brings up to date has gained.
    """

    block: Block
    rounds: Rounds
    rows: dict[int, list[Batch]] = field(default_factory=dict)
    wakes: list[Run] = field(default_factory=list)
    news: bool = False


class Worker:
    """Folds updates through a plan. Not thread-safe; one worker, one process.

    ``stored``: runs of earlier folds by arrangement index. ``owed``: wake-ups of earlier folds by block index;
    ``held``: updates of earlier folds that wait before an arrangement, by its index. Both lie at times that were not
    complete, and nothing is done there before they are: a loop that went round with half of its input might never
    come to rest.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Mapping[int, Sequence[Run]] | None = None,
        owed: Mapping[int, Run] | None = None,
        held: Mapping[int, Batch] | None = None,
    ) -> None:
        self.plan = plan
        self.traces = [Trace((stored or {}).get(a.index, ())) for a in plan.arrangements]
        self.owed: dict[int, Run] = dict(owed or {})
        self.held: dict[int, Batch] = dict(held or {})
        self.outputs: dict[str, list[Batch]] = {name: [] for name in plan.outputs}
        self.rounds = 0  # rounds of the outermost loops gone through, for reports
        self._pending: dict[Position, Work] = {}
        self._order: list[Position] = []
        self.journal: list[tuple[Arrangement, Rounds, Run]] | None = (
            None  # what traces gain, for an exchange that stores it
        )
        self._latest: dict[int, tuple[Rounds, Run]] = {}
        self._position: Position = (-1,)
        self._upper = np.empty((len(plan.dims), 0), dtype=np.int64)
        inputs = len(plan.dims)
        self._joins = {b.index: JoinStep.of(b, inputs) for b in plan.blocks if b.op == "join"}
        self._reduces = {b.index: ReduceStep(b, inputs) for b in plan.blocks if b.op == "reduce"}

    # -- a fold, from outside -----------------------------------------------------------------------------------------

    def begin(self, upper: Frontier | None = None) -> None:
        """Start a fold: times at or beyond ``upper`` will not be complete when it ends.

        Debts of earlier folds come due.
        """
        self._position = (-1,)
        elements = [] if upper is None else list(upper)
        self._upper = np.array(elements, dtype=np.int64).reshape(len(elements), len(self.plan.dims)).T.copy()
        owed, self.owed = self.owed, {}
        held, self.held = self.held, {}
        for index, wakes in owed.items():
            self._wake(self.plan.blocks[index], wakes)
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
        """How many updates and wake-ups wait."""
        rows = (len(b) for work in self._pending.values() for batches in work.rows.values() for b in batches)
        return sum(rows) + sum(len(run) for work in self._pending.values() for run in work.wakes)

    def drain(self) -> Iterator[Work]:
        """Take all waiting work away, in order: what an exchange hands to other workers."""
        while self._order:
            yield self._pending.pop(heapq.heappop(self._order))

    def harvest(self) -> Iterator[tuple[Arrangement, Run]]:
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
        work = self._pending.pop(self._position)
        block = work.block
        self.rounds = max(self.rounds, work.rounds[0] + 1 if work.rounds else 0)
        for arrangement in block.owned:
            if arrangement.index in work.rows:
                self._update(arrangement, work)
        if block.op == "join":
            self._join(block, work.rounds)
        elif block.op == "reduce":
            self._reduce(block, work)

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
        require_int64(arrangement, run)
        if arrangement.output:
            self.outputs[arrangement.output].append(Batch(list(run.words), list(run.times), run.diffs))
        else:
            self._announce(arrangement, work.rounds, run)

    def arranged(self, arrangement: Arrangement, batch: Batch) -> Run:
        """A batch of the arrangement's collection as a run.

        A transient one is not looked up by key and needs no codes.
        """
        if arrangement.transient:
            return arrange(np.zeros(len(batch), np.int64), batch.words, batch.times, batch.diffs, batch.high)
        return self.keyed(arrangement, batch)

    def keyed(self, arrangement: Arrangement, batch: Batch) -> Run:
        """A batch of the arrangement's collection, sorted by key code."""
        schema = arrangement.node.schema
        columns = dict(zip(schema, batch.words, strict=True))
        keys = [columns[name] for name in arrangement.key]
        codes = key_codes(keys, arrangement.key_types, len(batch))
        values = [columns[name] for name in arrangement.values]
        return arrange(codes, values if arrangement.direct else keys + values, batch.times, batch.diffs, batch.high)

    def restore(self, arrangement: Arrangement, rounds: Rounds, run: Run) -> None:
        """Take back what a trace gained earlier in this fold, here or in another process."""
        self.traces[arrangement.index].append(run)
        self._latest[arrangement.index] = (rounds, run)
        self.rounds = max(self.rounds, rounds[0] + 1 if rounds else 0)

    def _announce(self, arrangement: Arrangement, rounds: Rounds, run: Run) -> None:
        self.restore(arrangement, rounds, run)
        if self.journal is not None:
            self.journal.append((arrangement, rounds, run))
        for block in arrangement.listeners:
            self._work(block, rounds + (0,) * (block.depth - len(rounds))).news = True

    def _new(self, arrangement: Arrangement, rounds: Rounds) -> Run | None:
        """What the arrangement gained at these rounds; an outer one gains only at round 0 of the loops inside."""
        at, run = self._latest.get(arrangement.index, (None, None))
        return run if at is not None and rounds == at + (0,) * (len(rounds) - len(at)) else None

    def _join(self, block: Block, rounds: Rounds) -> None:
        left, right = block.ports
        new_left, new_right = self._new(left, rounds), self._new(right, rounds)
        all_right = self.traces[right.index].runs
        old_left = self.traces[left.index].before(new_left)
        for batch in self._joins[block.index].run(new_left, new_right, all_right, old_left):
            self.push(block.node, batch)

    def _reduce(self, block: Block, work: Work) -> None:
        step = self._reduces[block.index]
        new = self._new(step.port, work.rounds)
        wakes = None
        if work.wakes:
            wakes = work.wakes[0] if len(work.wakes) == 1 else joined(work.wakes)
        if new is None and wakes is None:
            return
        source, target = self.traces[step.port.index], self.traces[step.output.index]
        updates, owed = step.run(work.rounds, new, wakes, (source, target), self._upper)
        self._wake(block, owed)
        run = self.arranged(step.output, updates)
        require_int64(step.output, run)
        if len(run):
            self._announce(step.output, work.rounds, run)
            self.push(block.node, updates)

    def _guard(self, block: Block, rounds: Rounds, run: Run) -> None:
        """A difference that enters a round past the last allowed one: the loop has no fixed point in sight."""
        for loop, current in zip(block.loops, rounds, strict=True):
            if current >= loop.max_rounds:
                first = run.times[:, np.lexsort(run.times[::-1])[0]]
                moving = int((run.times == first[:, None]).all(axis=0).sum())
                raise Diverged(loop.name, tuple(int(c) for c in first), current, moving)

    # -- moving updates on --------------------------------------------------------------------------------------------

    def push(self, node: Node, batch: Batch) -> None:
        """Send updates of a node's collection through linear operators and loop borders to the arrangements that wait
        for them. Without recursion: a program may have thousands of operators in a row.
        """
        waiting = [(node, batch)]
        while waiting:
            node, batch = waiting.pop()
            if len(batch):
                waiting += reversed([pair for target in node.targets for pair in self._passed(target, batch)])

    def _passed(self, target: Any, batch: Batch) -> Iterator[tuple[Node, Batch]]:
        """Where a target sends updates on to, and what they are there; none where they have arrived."""
        if target.kind == "arrange":
            self._deliver(target.arrangement, batch)
        elif target.kind == "linear":
            lifted = self._lifted(batch, target.node.scope.depth)
            yield target.node, linear.apply(target.node, lifted)
        elif target.kind == "enter":
            entered = self._lifted(batch, target.loop.scope.depth)
            yield from self._varied(target.loop, entered)
            yield from self._varied(target.loop, _next_round(entered.negated()))
        elif target.kind == "feed":
            yield from self._varied(target.loop, _next_round(self._lifted(batch, target.loop.scope.depth)))
        else:
            yield target.node, self._left(batch, target.node.scope.depth)

    def _varied(self, loop: Loop, batch: Batch) -> Iterator[tuple[Node, Batch]]:
        """Updates of a loop's variable. What still moves past the last round allowed is seen before any operator of the
        body could drop it.
        """
        if loop.consolidates:
            self._deliver(loop.border, batch)
            return
        if len(batch) and batch.times[-1].max() >= loop.max_rounds:
            past = batch.times[-1] >= loop.max_rounds
            self._deliver(loop.border, batch.take(np.flatnonzero(past)))
            batch = batch.take(np.flatnonzero(~past))
        yield loop.variable, batch

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
        if self._upper.shape[1] == 0:
            return batch
        late = beyond(np.stack(batch.times[: len(self.plan.dims)]), self._upper)
        if late.any():
            kept = [batch.take(np.flatnonzero(late))]
            if arrangement.index in self.held:
                kept.append(self.held[arrangement.index])
            self.held[arrangement.index] = concatenate(kept)
        return batch.take(np.flatnonzero(~late))

    def accept(self, arrangement: Arrangement, rounds: Rounds, batch: Batch) -> None:
        """Updates for an arrangement, all at these rounds, of keys this worker owns."""
        self._work(arrangement.block, rounds).rows.setdefault(arrangement.index, []).append(batch)

    def _wake(self, block: Block, wakes: Run) -> None:
        """Queue wake-ups by round; those at or beyond the fold's upper stay owed."""
        if len(wakes) == 0:
            return
        inputs = len(self.plan.dims)
        late = beyond(wakes.times[:inputs], self._upper)
        if late.any():
            kept = _rows(wakes, np.flatnonzero(late))
            known = self.owed.get(block.index)
            self.owed[block.index] = kept if known is None else joined([known, kept])
            wakes = _rows(wakes, np.flatnonzero(~late))
        for rounds, rows in _groups(list(wakes.times[inputs:]), len(wakes)):
            self._work(block, rounds).wakes.append(wakes if len(rows) == len(wakes) else _rows(wakes, rows))

    def accept_wakes(self, block: Block, rounds: Rounds, wakes: Run | None) -> None:
        """Wake-ups of keys this worker owns, all at these rounds.

        None is word that an arrangement has news for the block.
        """
        work = self._work(block, rounds)
        if wakes is None:
            work.news = True
        else:
            work.wakes.append(wakes)

    def _work(self, block: Block, rounds: Rounds) -> Work:
        position = block.position(rounds)
        assert position > self._position, f"work at {position} while at {self._position}"
        work = self._pending.get(position)
        if work is None:
            work = self._pending[position] = Work(block, rounds)
            heapq.heappush(self._order, position)
        return work


def require_int64(arrangement: Arrangement, run: Run) -> None:
    """Raises DiffOverflow, with the row and the time, where the diffs of a run are more than int64 holds."""
    if run.high is None:
        return
    at = int(np.flatnonzero(run.high != run.diffs >> 63)[0])
    batch = arrangement.batch_of(run) if not arrangement.transient else Batch(list(run.words), [], run.diffs)
    row = decode_frame([column[at : at + 1] for column in batch.words], arrangement.node.schema).row(0)
    diff = (int(run.high[at]) << 64) + (int(run.diffs[at]) & (2**64 - 1))
    node = arrangement.node
    where = f"output {arrangement.output}" if arrangement.output else f"{node.kind} ({node.place})"
    time = tuple(int(coordinate) for coordinate in run.times[:, at])
    raise DiffOverflow(f"{where}: the diffs of {row!r} at time {time} add up to {diff}, which int64 cannot hold")


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


def beyond(versions: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Which versions (inputs, n) are at or beyond an element of the frontier (inputs, elements): bool[n]."""
    late = np.zeros(versions.shape[1], dtype=bool)
    for element in upper.T:
        late |= (versions >= element[:, None]).all(axis=0)
    return late


def _rows(run: Run, rows: np.ndarray) -> Run:
    return Run(run.codes[rows], np.take(run.words, rows, axis=1), np.take(run.times, rows, axis=1), run.diffs[rows])


def joined(runs: Sequence[Run]) -> Run:
    """Several runs of wake-ups as one, each (key, time) once."""
    merged = arrange(
        np.concatenate([run.codes for run in runs]),
        list(np.concatenate([run.words for run in runs], axis=1)),
        list(np.concatenate([run.times for run in runs], axis=1)),
        np.ones(sum(len(run) for run in runs), dtype=np.int64),
    )
    return Run(merged.codes, merged.words, merged.times, np.ones(len(merged), dtype=np.int64))
