"""The stages of a delta join as operators of their own, so that several workers divide it.

The new updates of one relation become *prefixes*, rows of which some attributes are bound. A :class:`HalfJoin` binds
more: it looks prefixes up in a relation that is arranged by attributes they have. Prefixes are not stored, and each
goes to the owner of the key that it is looked up by. Where one of several relations can bind the next attribute, a
:class:`Count` of each notes the one with the fewest candidates, and :class:`Chosen` sends prefixes there; the others
filter, by half joins that bind nothing (source: Ammar 2018).

A prefix stays at the time of its update: at that position the relations are read with or without their own new updates.
Where the join of times may be at another position, or beyond what the fold completes, it stands in columns of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.schema import Schema, Type
from ddcore.operators.base import Keeping, Keyed, Port, State, Step
from ddcore.operators.block import Rounds
from ddcore.operators.join import JoinStep, Pairs
from ddcore.traces.batch import Batch
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import distinct_keys

if TYPE_CHECKING:
    from ddcore.operators.arrangement import Arrangement
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block
    from ddcore.traces.budget import Budget

Column = tuple[int, str]
"""An input of a stage, and a column of it."""
LEAST, CHOICE = "(least)", "(choice)"
NUMBERS: Schema = {LEAST: Type("int64"), CHOICE: Type("int64")}
"""What counts add to prefixes: the number of candidates, and of the relation that has so few."""


def times_of(coordinates: int) -> Schema:
    """The columns in which prefixes have times."""
    return {f"(time {number})": Type("int64") for number in range(coordinates)}


@dataclass(frozen=True, eq=False)
class Stage(Keyed):
    """A step of a delta join: prefixes, and the relation that they are looked up in, if there is one.

    ``left`` and ``right`` are the key columns of both, pairwise, ``key`` their names in the result. ``columns``: of
    the attributes in the result, the input that has them and their name there. ``is_late``: the relation is read with
    its new updates. ``times``: how many columns of times prefixes have before (0 or all) and afterwards.
    """

    name = "delta_join"
    inner = True
    signs = "kept"
    left: tuple[str, ...]
    right: tuple[str, ...]
    key: tuple[str, ...]
    columns: Mapping[str, Column]
    is_late: bool
    times: tuple[int, int]

    @property
    def ports(self) -> Sequence[Port]:
        """Prefixes, relation."""
        return (0, self.left), (1, self.right)

    @property
    def result_key(self) -> tuple[str, ...]:
        """The attributes by which prefixes were looked up."""
        return self.key


@dataclass(frozen=True, eq=False)
class HalfJoin(Stage):
    """Prefixes with the rows of a relation that have their key. ``is_last``: its result is that of the delta join."""

    is_last: bool = False

    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of its block."""
        return HalfJoinStep.for_stage(self, plan, block)


@dataclass(frozen=True, eq=False)
class Count(Stage):
    """Prefixes for which a relation has candidates, with the least number of any relation so far. ``number``: of this
    one among them. The last one sends on only those for others: with its own it does the work of a half join,
    ``own``, whose node is ``sender``.
    """

    number: int = 0
    own: HalfJoin | None = None
    sender: int = -1

    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of its block."""
        return _CountStep(self, plan, block)


@dataclass(frozen=True, eq=False)
class Start(Stage):
    """The new updates of a relation that is not arranged by the key of the first stage, as prefixes."""

    @property
    def ports(self) -> Sequence[Port]:
        """The relation, by any key."""
        return ((0, self.left),)

    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of its block."""
        return _StartStep(self, plan, block)


@dataclass(frozen=True, eq=False)
class Chosen(Keeping):
    """The prefixes that go on with relation ``number``, without what counts have added."""

    name = "delta_join"
    inner = True
    signs = "kept"
    number: int

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Those whose choice it is."""
        kept = batch.words[-1] == self.number
        some = batch.of(batch.words[: -len(NUMBERS)])
        return some if kept.all() else some.take(np.flatnonzero(kept))


@record
class HalfJoinStep(JoinStep):
    """As the step of a join, of new updates on the left only; ``is_late`` and ``times`` are those of the stage."""

    is_late: bool
    times: tuple[int, int]

    @classmethod
    def for_stage(cls, stage: Stage, plan: Dataflow, block: Block) -> HalfJoinStep:
        """Of a block of this stage."""
        left, right = (plan.arrangements[port] for port in block.ports)
        columns: list[tuple[str, int]] = []
        for number, name in stage.columns.values():
            if number:
                columns.append(("right", right.values.index(name)))
            else:
                is_key = name in left.key
                columns.append(("key", left.key.index(name)) if is_key else ("left", left.values.index(name)))
        coordinates = len(plan.dims) + block.depth
        return cls(block, left, right, coordinates, tuple(columns), stage.is_late, stage.times)

    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        """The pairs of the prefixes that came with the relation. Raises DiffOverflow."""
        for some in state.arrived(self.left, rounds):
            self.join(state, some, relation_at(state, self.right, rounds, is_late=self.is_late))

    def join(self, state: State, prefixes: SortedBatch, others: Sequence[SortedBatch]) -> None:
        """Send the pairs of prefixes with updates of the relation."""
        self.match(state, self._at_joins(prefixes), others, self.left, swapped=False)

    def _at_joins(self, new: SortedBatch) -> SortedBatch:
        """The prefixes at the times that stand in columns of theirs, with their own times in these."""
        count = self.times[0]
        if not count:
            return new
        batch = new.decompress()
        words = np.concatenate([batch.words[:-count], batch.times])
        return ColumnBatch(batch.codes, words, np.ascontiguousarray(batch.words[-count:]), batch.diffs, batch.high)

    def updates(self, new: ColumnBatch, pairs: Pairs, side: Arrangement, *, swapped: bool) -> Batch:
        """The pairs as prefixes, or as rows of the result."""
        pair = pairs.of(self.words(new, pairs, side, swapped=swapped))
        before, after = self.times
        if not after:
            return pair
        own = [time[pairs.left] for time in (new.words[-before:] if before else new.times)]
        return Batch([*pair.words, *pair.times], extended(own, after), pair.diffs, pair.high)


class _CountStep(Step):
    def __init__(self, stage: Count, plan: Dataflow, block: Block) -> None:
        self.stage, self.block, self.coordinates = stage, block, len(plan.dims) + block.depth
        self.left, self.right = (plan.arrangements[port] for port in block.ports)
        self.own: HalfJoinStep | None = None
        if stage.own is not None:
            self.own = HalfJoinStep.for_stage(stage.own, plan, replace(block, node=stage.sender))

    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        """Send on the prefixes that came and have candidates."""
        for some in state.arrived(self.left, rounds):
            others = relation_at(state, self.right, rounds, is_late=self.stage.is_late)
            if not others:
                return
            for part in _parts(some, state.budget):
                self._send(state, part.decompress(), others)

    def _send(self, state: State, new: ColumnBatch, others: Sequence[SortedBatch]) -> None:
        least = self._candidates(new, others, state.budget)
        choice = np.full(len(new), self.stage.number, dtype=np.int64)
        if self.stage.number:
            before, chosen = new.words[-len(NUMBERS) :]
            choice = np.where(least < before, choice, chosen)
            least = np.minimum(least, before)
        is_some = least > 0
        if self.own is not None:
            is_own = choice == self.stage.number
            rows = new.take(np.flatnonzero(is_some & is_own))
            rows = ColumnBatch(rows.codes, rows.words[: -len(NUMBERS)], rows.times, rows.diffs, rows.high)
            self.own.join(state, rows, others)
            is_some &= ~is_own
        batch = self.left.batch_of(new)
        words = [*prefixes(self.stage, self.left, batch, self.coordinates), least, choice]
        batch = Batch(words, extended(batch.times, self.coordinates), batch.diffs, batch.high)
        state.emit(self.block, batch if is_some.all() else batch.take(np.flatnonzero(is_some)))

    def _candidates(self, new: ColumnBatch, others: Sequence[SortedBatch], budget: Budget) -> np.ndarray:
        """How many updates of a relation have the key of each prefix, an upper bound of the rows: int64[n]."""
        keys, starts = distinct_keys(new, self.left.key_words)
        counts = np.zeros(len(keys), dtype=np.int64)
        for other in others:
            lo, hi = other.locate(keys.codes, budget)
            found, lo, hi = other.located(lo, hi) if len(keys.words) else (other, lo, hi)
            found.count(counts, keys.words, (lo, hi))
        return np.repeat(counts, np.diff(starts))


class _StartStep(Step):
    def __init__(self, stage: Start, plan: Dataflow, block: Block) -> None:
        self.stage, self.block, self.coordinates = stage, block, len(plan.dims) + block.depth
        self.relation = plan.arrangements[block.ports[0]]

    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        """Send the new updates."""
        for some in state.arrived(self.relation, rounds):
            for part in _parts(some, state.budget):
                batch = self.relation.batch_of(part)
                words = prefixes(self.stage, self.relation, batch, self.coordinates)
                state.emit(self.block, Batch(words, extended(batch.times, self.coordinates), batch.diffs, batch.high))


def _parts(new: SortedBatch, budget: Budget) -> Iterable[SortedBatch]:
    """New updates in parts that caches hold."""
    size = budget.tuning.rule_rows
    return [new] if len(new) <= size else new.pieces(size)


def relation_at(state: State, relation: Arrangement, rounds: Rounds, *, is_late: bool) -> Sequence[SortedBatch]:
    """The updates of a relation at a position, with its new ones or without."""
    trace = state.trace(relation)
    return trace.batches if is_late else trace.before(state.delta_at(relation, rounds))


def prefixes(stage: Stage, left: Arrangement, batch: Batch, coordinates: int) -> list[np.ndarray]:
    """The words of prefixes: attributes, and times if they have columns of them."""
    words = dict(zip(left.collection, batch.words, strict=True))
    before, after = stage.times
    return [*(words[name] for _, name in stage.columns.values()), *_times(words, before, after, batch, coordinates)]


def _times(
    words: Mapping[str, np.ndarray], before: int, after: int, batch: Batch, coordinates: int
) -> Iterator[np.ndarray]:
    if after:
        yield from (words[name] for name in times_of(before)) if before else extended(batch.times, coordinates)


def extended(times: Sequence[np.ndarray], coordinates: int) -> list[np.ndarray]:
    """Times inside of loops: the coordinates that are missing are 0."""
    missing = coordinates - len(times)
    return [*times, *([np.zeros(len(times[0]), dtype=np.int64)] * missing if missing else ())]
