"""Reductions: any function of the rows of a key, evaluated again where its input changed (sources: McSherry 2015).

One step handles all versions of a run at one position. Times of interest are those of new updates and pending times,
closed under join with the earlier times of the key; those at later rounds, or not complete yet, stay pending.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ddcore import kernels
from ddcore.base.errors import DiffOverflow, ExpressionError, NegativeMultiplicity
from ddcore.base.lazy import numpy as np
from ddcore.data import encoding
from ddcore.operators.base import Keyed, Port, State, Step
from ddcore.operators.block import Rounds
from ddcore.operators.evaluations import Changes, Evaluations, Portion, Targets
from ddcore.traces.batch import Batch
from ddcore.traces.budget import Budget
from ddcore.traces.consolidation import arrange, arrange_all, concatenated
from ddcore.traces.ranges import combined, portions, spilled
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import Keys, Rows, distinct_keys, gather

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.operators.arrangement import Arrangement
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block
    from ddcore.operators.delivery import Delivery
    from ddcore.operators.tree import Tree

_Some = tuple[SortedBatch | None, SortedBatch | None]
"""New updates and pending times of some keys."""


@dataclass(slots=True)
class _Result:
    """What a part gives: pending times, updates of the block's output, and what arrives where, if that is known."""

    late: SortedBatch | None
    kept: SortedBatch
    deliveries: list[Delivery] | None


@dataclass(frozen=True, eq=False)
class Reduction(Keyed):
    """An operator that computes rows for each group of rows with equal ``group`` columns.

    A negative count is a NegativeMultiplicity error unless ``allow_negative``.
    """

    needs_delta = False
    group: tuple[str, ...]
    allow_negative: bool

    @property
    def ports(self) -> Sequence[Port]:
        """The input by its group columns."""
        return ((0, self.group),)

    @property
    def output_key(self) -> tuple[str, ...]:
        """The group columns."""
        return self.group

    @property
    def result_key(self) -> tuple[str, ...]:
        """The group columns."""
        return self.group

    @property
    def label(self) -> str:
        """The operator's name in messages."""
        return self.name

    @abstractmethod
    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work over the rows of one of a block's arrangements."""

    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of a block: from rows, and of large groups from their partial results, if it has a tree."""
        step = self.step_at(plan, block, 0)
        if len(block.ports) > 1:
            tree = self.tree(plan.arrangements[block.ports[0]].collection)
            assert tree is not None and isinstance(tree.root, Reduction)
            step.of_large = tree.root.step_at(plan, block, 1)
        return step

    def tree(self, source: Schema) -> Tree | None:
        """The levels of partial results for large groups of an input of the schema ``source``, or None without any."""
        return None


class ReductionStep(Step):
    """The work of a reduction at one position; subclasses compute the result of a group."""

    quantity = "a count"  # the value that may overflow int64 when a group is evaluated
    in_parts = True  # whether a part of the keys may be evaluated in one thread and another part in another

    def __init__(self, reduction: Reduction, plan: Dataflow, block: Block, port: int) -> None:
        assert block.output is not None
        self.block, self.inputs, self.in_tree = block, len(plan.dims), reduction.in_tree
        self.allow_negative, self.label = reduction.allow_negative, f"{reduction.label} ({block.source_line})"
        self.port, self.output = plan.arrangements[block.ports[port]], plan.arrangements[block.output]
        self.of_large: ReductionStep | None = None  # evaluates large groups, over their partial results

    @abstractmethod
    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """The rows that should hold at each evaluation."""

    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        """Evaluate the keys that changed or are pending; emit the differences from the output so far.

        Raises NegativeMultiplicity, DiffOverflow, ExpressionError.
        """
        new = state.delta_at(self.port, rounds)
        new = None if new is None else self.relevant(state, new)
        large = None if self.of_large is None else state.large(self.block)
        if self.of_large is None or large is None:
            sets = [self._results(state, rounds, new, pending)]
        else:
            waiting = [None, None] if pending is None else _divided(pending, large, state.budget)
            small = None if new is None else _divided(new, large, state.budget)[0]
            parts = self.of_large.port
            sets = [
                self._results(state, rounds, small, waiting[0]),
                self.of_large._results(state, rounds, state.delta_at(parts, rounds), waiting[1]),
            ]
        results = [result for part in sets for result in part]
        if not results:
            return
        kept = _together([[result.kept for result in part] for part in sets if part], state.budget)
        late = [[result.late for result in part if result.late is not None] for part in sets]
        if any(late):
            state.postpone(self.block, _together([group for group in late if group], state.budget))
        state.keep(self.output, rounds, kept)
        if any(result.deliveries is None for result in results):
            state.emit(self.block, self.output.batch_of(kept))
            return
        for result in results:
            state.deliver(result.deliveries or ())

    def _results(
        self, state: State, rounds: Rounds, new: SortedBatch | None, pending: SortedBatch | None
    ) -> list[_Result]:
        """The differences of the results of all keys that changed or are pending; none without such keys."""
        if new is None and pending is None:
            return []
        budget = state.budget
        rows = sum(len(batch) for batch in (new, pending) if batch is not None)
        if rows < budget.tuning.part_rows and not budget.memory.is_limited:  # one part, in fewer calls
            part = self._seeds(state, rounds, new, pending)
            return [self._evaluated(state, rounds, part)] if len(part.keys) else []
        if budget.free_threads > 1:
            for batch in (*state.trace(self.port).batches, *state.trace(self.output).batches):
                batch.index(budget)
        evaluated, parts = partial(self._evaluated, state, rounds), self._parts(state, rounds, new, pending)
        return list(budget.map(evaluated, parts) if self.in_parts else map(evaluated, parts))

    def _parts(
        self, state: State, rounds: Rounds, new: SortedBatch | None, pending: SortedBatch | None
    ) -> Iterator[Portion | _Some]:
        """The keys to evaluate in parts, each for one thread."""
        if new is not None and new.is_encoded and (pending is None or not state.budget.memory.is_limited):
            yield from _side_by_side(new, pending, self._size(state.budget, len(new)))
            return
        for some in portions([new, pending], self.port.key_words, state.budget):
            part = self._seeds(state, rounds, *some)
            for a, b in self._ranges(state, part.keys):
                yield part.between(a, b)

    def _size(self, budget: Budget, keys: int) -> int:
        """How many of the keys one part has."""
        return budget.share(keys, budget.tuning.reduced_keys) if self.in_parts else max(1, keys)

    def _ranges(self, state: State, keys: Keys) -> Iterable[tuple[int, int]]:
        """Ranges of the keys to evaluate, each in one thread; where memory is limited with bounded histories."""
        size, memory = self._size(state.budget, len(keys)), state.budget.memory
        if len(keys) <= size and not memory.is_limited:
            return ((0, len(keys)),) if len(keys) else ()
        cuts = {*range(0, len(keys), size), len(keys)}
        if memory.is_limited:
            rows = np.zeros(len(keys), dtype=np.int64)
            for batch in (*state.trace(self.port).batches, *state.trace(self.output).batches):
                lo, hi = batch.locate(keys.codes, state.budget)
                rows += hi - lo
            cuts |= {*(np.flatnonzero(np.diff(np.cumsum(rows) // memory.rows)) + 1).tolist()}
        return pairwise(sorted(cuts))

    def _evaluated(self, state: State, rounds: Rounds, part: Portion | _Some) -> _Result:
        """The differences of some keys' results."""
        if not isinstance(part, Portion):
            part = self._seeds(state, rounds, *part)
        loops, budget = np.array(rounds, dtype=np.int64), state.budget
        history, before = self.histories(state, rounds, part)
        keys = part.keys
        changes = self.changes(part, history, before, state, loops)
        updates = self._updates(keys, rounds, changes)
        try:
            deliveries: list[Delivery] | None = state.forward(self.block, updates)
        except ExpressionError:
            deliveries = None  # perhaps the updates of another part cancel those on which an operator fails
        kept = spilled(state.keyed(self.output, updates), budget)
        return _Result(_late(keys, changes, budget), kept, deliveries)

    def changes(self, part: Portion, history: Rows, before: Rows, state: State, loops: np.ndarray) -> Changes:
        """What the keys of a part, with their history and their output so far, give at ``loops``.

        Raises NegativeMultiplicity, DiffOverflow.
        """
        offsets, versions, late_keys, late_times = kernels.times.plan_times(
            self.inputs, loops, state.upper, part.offsets, np.ascontiguousarray(part.times),
            history.offsets, history.times, before.offsets, before.times,
        )  # fmt: skip
        evaluations = Evaluations(part.keys, offsets, versions)
        target = self.targets(part, evaluations, history, loops)
        evals, words, diffs, beyond = kernels.differences.emit(
            self.inputs, loops, offsets, versions, target.evals, target.words, target.counts,
            before.offsets, before.words, before.times, before.diffs,
        )  # fmt: skip
        if len(beyond):
            raise DiffOverflow(
                f"{self._where(beyond, evaluations, loops)}: a row's count changes by more than int64 holds"
            )
        return Changes(evaluations.key_of()[evals], versions[:, evals], words, diffs, late_keys, late_times)

    def targets(self, part: Portion, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """The rows that should hold at each evaluation of a part."""
        return self.evaluate(evaluations, history, loops)

    def histories(self, state: State, rounds: Rounds, part: Portion) -> tuple[Rows, Rows]:
        """The rows of the keys of a part, and their output so far."""
        keys, depth = part.keys, self.inputs + len(rounds)
        frontier, budget = state.frontier(rounds), state.budget
        history = gather(state.trace(self.port).batches, keys, len(self.port.values), depth, frontier, budget=budget)
        if self.of_large is not None:
            self._note_large(state, keys, history)
        before = part.before
        if before is None:
            batches = state.trace(self.output).batches
            before = gather(batches, keys, len(self.output.values), depth, frontier, budget=budget)
        return history, before

    def _note_large(self, state: State, keys: Keys, history: Rows) -> None:
        """Note the keys with many distinct rows. O(n log n) for long histories, which may be of few rows."""
        least = state.budget.tuning.large_group
        if history.offsets[-1] < least:
            return
        large = [
            k
            for k in np.flatnonzero(np.diff(history.offsets) >= least)
            if _distinct(history, int(k), state.budget) >= least
        ]
        if large:
            state.note_large(self.block, keys.codes[large])

    def relevant(self, state: State, new: SortedBatch) -> SortedBatch | None:
        """The new updates of keys that have to be evaluated, at least of those whose result may not be empty."""
        return new

    def contested(self, state: State, rounds: Rounds, part: Portion, new: ColumnBatch) -> Portion:
        """The keys whose new updates may change their result, judged by the output so far."""
        return part

    def _seeds(self, state: State, rounds: Rounds, new: SortedBatch | None, pending: SortedBatch | None) -> Portion:
        """The keys to evaluate, and per key the times that cause it."""
        width, parts = self.port.key_words, list[Portion]()
        for batch in (packed.decompress() for packed in (new, pending) if packed is not None):
            part = Portion(*distinct_keys(batch, width), batch.times)
            parts.append(self.contested(state, rounds, part, batch) if not parts and new is not None else part)
        if len(parts) == 1:
            return parts[0]
        repeats = [part.offsets[1:] - part.offsets[:-1] for part in parts]
        words = [np.repeat(part.keys.words, sizes, axis=1) for part, sizes in zip(parts, repeats, strict=True)]
        seeds = arrange(
            np.concatenate([np.repeat(part.keys.codes, sizes) for part, sizes in zip(parts, repeats, strict=True)]),
            list(np.concatenate(words, axis=1)),
            list(np.concatenate([part.times for part in parts], axis=1)),
            np.ones(sum(part.times.shape[1] for part in parts), dtype=np.int64),
            budget=state.budget,
        )
        return Portion(*distinct_keys(seeds, width), seeds.times)

    def _updates(self, keys: Keys, rounds: Rounds, changes: Changes) -> Batch:
        codes = keys.codes[changes.keys]
        key_words = [codes] if self.output.direct else [column[changes.keys] for column in keys.words]
        coordinates = list(changes.versions)
        coordinates += [np.full(len(codes), current, dtype=np.int64) for current in rounds]
        return Batch([*key_words, *changes.words], coordinates, changes.diffs)

    def accumulate(
        self, evaluations: Evaluations, history: Rows, loops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The distinct rows of each group at each evaluation: evaluation, row of ``history``, count; int64[n] each.

        Raises NegativeMultiplicity, DiffOverflow.
        """
        evals, rows, counts, error = kernels.aggregating.accumulate(
            self.inputs, loops, history.offsets, history.words, history.times, history.diffs,
            evaluations.offsets, evaluations.versions, self.allow_negative,
        )  # fmt: skip
        self.raise_if(error, evaluations, loops)
        return evals, rows, counts

    def raise_if(self, error: np.ndarray, at: Evaluations, loops: np.ndarray) -> None:
        """Raise the error that a kernel reports: (code, key, evaluation, lower and upper word of a count)."""
        if error[0] == 0:
            return
        if error[0] == kernels.aggregating.OVERFLOW:
            raise DiffOverflow(f"{self._where(error[1:3], at, loops)}: {self.quantity} is more than int64 holds")
        key, time = self._key_and_time(error[1:3], at, loops)
        count = (int(error[4]) << 64) | (int(error[3]) & (2**64 - 1))
        raise NegativeMultiplicity(self.label, key, time, count)

    def _where(self, position: np.ndarray, at: Evaluations, loops: np.ndarray) -> str:
        key, time = self._key_and_time(position, at, loops)
        return f"{self.label}: key {key!r} at time {time}"

    def _key_and_time(self, position: np.ndarray, at: Evaluations, loops: np.ndarray) -> tuple[Any, tuple[int, ...]]:
        """The key and the time of (key number, evaluation number)."""
        time = (*(int(v) for v in at.versions[:, position[1]]), *(int(r) for r in loops))
        key = decode_key(self.port, at.keys, int(position[0]))
        return key[:-1] if self.in_tree else key, time  # without the bucket


def _late(keys: Keys, changes: Changes, budget: Budget) -> SortedBatch | None:
    """The pending times of some keys."""
    if len(changes.late_keys) == 0:
        return None
    words, once = np.take(keys.words, changes.late_keys, axis=1), np.ones(len(changes.late_keys), dtype=np.int64)
    codes, times = keys.codes[changes.late_keys], list(changes.late_times)
    return spilled(arrange(codes, list(words), times, once, budget=budget), budget)


def _side_by_side(new: SortedBatch, pending: SortedBatch | None, rows: int) -> Iterator[_Some]:
    """Both in parts of about so many new rows, with all rows of a key in one."""
    if pending is None:
        yield from ((piece, None) for piece in new.pieces(rows))
        return
    pending, start, done = pending.decompress(), 0, 0
    for piece in new.pieces(rows):
        done += len(piece)
        stop = len(pending)
        if done < len(new):
            stop = pending.span(piece.code(len(piece) - 1))[1]
        yield piece, pending.part(start, stop) if stop > start else None
        start = stop


def _divided(batch: SortedBatch, large: np.ndarray, budget: Budget) -> list[SortedBatch | None]:
    """The updates of other keys, and those of keys with these codes; None for no updates."""
    sides: list[list[SortedBatch]] = [[], []]
    for (some,) in portions([batch], 0, budget):
        assert some is not None
        wide = some.decompress()
        position = np.minimum(np.searchsorted(large, wide.codes), len(large) - 1)
        is_large = large[position] == wide.codes
        for side, rows in zip(sides, (np.flatnonzero(~is_large), np.flatnonzero(is_large)), strict=True):
            if len(rows):
                side.append(spilled(wide.take(rows), budget))
    return [concatenated(side, budget) if side else None for side in sides]


def _together(sets: Sequence[Sequence[SortedBatch]], budget: Budget) -> SortedBatch:
    """One or two sets of batches as one batch: in each set keys ascend from one batch to the next."""
    batches = [concatenated(ordered, budget) for ordered in sets]
    if len(batches) == 1:
        return batches[0]
    arranged = partial(arrange_all, budget=budget)
    return combined([batch.columns() for batch in batches], batches[0].width, arranged, budget)


def _distinct(history: Rows, k: int, budget: Budget) -> int:
    """How many distinct rows of key k are left if all of its updates are added up."""
    rows = slice(int(history.offsets[k]), int(history.offsets[k + 1]))
    words, diffs = list(np.ascontiguousarray(history.words[:, rows])), history.diffs[rows]
    return len(arrange(np.zeros(len(diffs), np.int64), words, [], diffs, budget=budget))


def decode_key(arrangement: Arrangement, keys: Keys, k: int) -> tuple[Any, ...]:
    """The values of one key."""
    words = [keys.codes[k : k + 1]] if arrangement.direct else [column[k : k + 1] for column in keys.words]
    schema = {name: arrangement.schema[name] for name in arrangement.key}
    return encoding.decode_frame(words, schema).row(0) if schema else ()
