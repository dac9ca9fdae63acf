"""``join_between``: rows and the intervals that a value of theirs lies in; only rows between old and new ends move.

Bilinear, as ``join`` is, so differences suffice: new intervals with the rows that were there, new rows with all
intervals. The changes of intervals at one time add up to a *cover*: segments of values, each with a sum of diffs.
Where an interval is replaced by one that overlaps it, the sum there is 0, and no row is read. The rows of a segment are
found by binary search, because rows are sorted by the value: as the key of their arrangement, or within each key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore import kernels
from ddcore.base.digests import digest
from ddcore.base.distinct import distinct
from ddcore.base.errors import ProgramError
from ddcore.base.lattice import advance
from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.data.encoding import NULL
from ddcore.operators import arguments
from ddcore.operators.base import Keyed, Needs, Port, State, Step
from ddcore.operators.block import Rounds
from ddcore.operators.disjoint import Probes, holding
from ddcore.operators.ends import Ends
from ddcore.operators.join import Pairs, chunks, right_names
from ddcore.operators.nearby import rows_of_keys
from ddcore.traces.budget import Budget
from ddcore.traces.consolidation import arrange
from ddcore.traces.ranges import portions
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import Keys, distinct_keys, gather

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block
    from ddcore.operators.delivery import Delivery

_UNFIT = 2.0**62


@dataclass(frozen=True, eq=False)
class JoinBetween(Keyed):
    """Rows with each interval that holds their value in ``column`` and agrees with them on the keys.

    ``left`` and ``right`` are the key columns, pairwise, of which there may be none; ``right_names`` is what the other
    columns of intervals are called in the result, which leaves out their ends. ``rows``: the columns of rows.
    ``disjoint``: no two intervals of a key hold one value at any time, and each has a lower end.
    """

    name = "join_between"
    signs = "kept"
    column: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    ends: Ends
    rows: tuple[str, ...]
    right_names: Mapping[str, str]
    disjoint: bool = False

    @classmethod
    def of(
        cls, rows: Schema, intervals: Schema, column: str, ends: Ends, *, on: Mapping[str, str], order: Sequence[str],
        disjoint: bool = False,
    ) -> JoinBetween:  # fmt: skip
        """For inputs of these schemas; ``order``: the columns of rows as the result has them. Raises ProgramError."""
        where = "join_between"
        arguments.require(rows, column, where)
        for end in ends.columns:
            arguments.require(intervals, end, where)
            if intervals[end] != rows[column]:
                raise ProgramError(
                    f"{caller()}: {where}: {column} is {rows[column]} and {end} is {intervals[end]}",
                    "cast one side with select()",
                )
        if rows[column].is_pooled:
            raise ProgramError(
                f"{caller()}: {where}: {column} is {rows[column]}, which is not looked up by its order",
                "join on keys, and compare with where()",
            )
        if column in on:
            raise ProgramError(f"{caller()}: {where}: {column} is a key", "compare it with the ends by where()")
        names = right_names(rows, [name for name in intervals if name not in {*on.values(), *ends.columns}], where)
        schema = {name: rows[name] for name in order} | {result: intervals[name] for name, result in names.items()}
        pairs = [[left, right] for left, right in on.items()]
        text = digest(column, pairs, ends.text)
        return cls(schema, text, column, tuple(on), tuple(on.values()), ends, tuple(order), names, disjoint)

    @property
    def spans(self) -> Ends | None:
        """Without keys an interval may hold values of several workers."""
        return None if self.left else self.ends

    @property
    def ports(self) -> Sequence[Port]:
        """Rows, intervals."""
        return (0, self.left or (self.column,)), (1, self.right)

    @property
    def result_key(self) -> tuple[str, ...]:
        """The key columns of rows."""
        return self.left or (self.column,)

    def needs(self, columns: frozenset[str]) -> Needs:
        """The columns of each side that these are, the keys, the value and the ends."""
        right = {name: result for name, result in self.right_names.items() if result in columns}
        left = columns - {*right.values()}
        text = digest(self.text, sorted(left), [[name, right[name]] for name in sorted(right)])
        return text, [left | {*self.left, self.column}, frozenset((*right, *self.right, *self.ends.columns))]

    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of a join_between block."""
        return _JoinBetweenStep(self, plan, block)


@record
class _Segments:
    """Changes of what covers values: after the word ``after`` up to ``to``, so many times more (``diffs``).

    Of each the code and the words of its key, the other words that the result has, and its time: (columns, n).
    """

    codes: np.ndarray
    keys: np.ndarray
    words: np.ndarray
    times: np.ndarray
    after: np.ndarray
    to: np.ndarray
    diffs: np.ndarray

    def __len__(self) -> int:
        return len(self.diffs)

    def take(self, rows: np.ndarray | slice) -> _Segments:
        """Some of them."""
        keys, words, times = (np.ascontiguousarray(array[:, rows]) for array in (self.keys, self.words, self.times))
        return _Segments(self.codes[rows], keys, words, times, self.after[rows], self.to[rows], self.diffs[rows])

    def parts(self, budget: Budget) -> Iterator[_Segments]:
        """All of them, some ten thousand at a time."""
        size = budget.share(len(self), budget.tuning.looked_up_segments)
        for start in range(0, len(self), size):
            yield self if size >= len(self) else self.take(slice(start, start + size))

    def added_up(self, budget: Budget) -> _Segments:
        """These updates with all that change at one time under one key and with the same words in one cover: something
        is left only where the sum is not 0. Sums that might not be an int64 are not computed.
        """
        if len(self) < 2 or 2 * np.abs(self.diffs.astype(np.float64)).sum() >= _UNFIT:
            return self
        keys, words = len(self.keys), len(self.words)
        columns = [np.concatenate([key, key]) for key in (*self.keys, *self.words, *self.times)]
        ends = arrange(
            np.concatenate([self.codes, self.codes]),
            [*columns, np.concatenate([self.after, self.to])],
            [],
            np.concatenate([self.diffs, -self.diffs]),
            budget=budget,
        )
        sums = np.cumsum(ends.diffs)
        covered = np.flatnonzero(sums)  # the next end there is of the same key, words and time
        some = np.take(ends.words, covered, axis=1)
        return _Segments(
            ends.codes[covered], some[:keys], some[keys : keys + words], some[keys + words : -1],
            some[-1], ends.words[-1][covered + 1], sums[covered],
        )  # fmt: skip


@record
class _Reach:
    """The intervals of a batch by ascending beginning, and up to which value any of those so far reaches."""

    batch: SortedBatch
    after: np.ndarray
    to: np.ndarray
    reach: np.ndarray

    @classmethod
    def of(cls, batch: SortedBatch, ends: Ends, columns: Sequence[str]) -> _Reach:
        """Of a batch without keys, whose first column is the first end. O(n)."""
        words = dict(zip(columns, batch.decompress().words, strict=True))
        after, to = ends.bounds({name: words[name] for name in ends.columns}, len(batch))
        return cls(batch, after, to, np.maximum.accumulate(to))

    def holding(self, values: np.ndarray) -> np.ndarray:
        """The rows of intervals that hold one of some values, which ascend. O(log n) for each value, and the intervals
        that begin before it after the first that reaches it; a pass over all where these are more.
        """
        first, last = np.searchsorted(self.reach, values, "left"), np.searchsorted(self.after, values, "left")
        last = np.maximum(first, last)
        if (last - first).sum() < len(self.batch):
            sizes = last - first
            rows = distinct(np.arange(sizes.sum()) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes))
        else:
            rows = np.arange(len(self.batch))
        before, behind = (np.searchsorted(values, bounds[rows], "right") for bounds in (self.after, self.to))
        found: np.ndarray = rows[before < behind]
        return found


class _JoinBetweenStep(Step):
    def __init__(self, join: JoinBetween, plan: Dataflow, block: Block) -> None:
        self.join, self.block = join, block
        self.rows, self.intervals = (plan.arrangements[port] for port in block.ports)
        self.coordinates = len(plan.dims) + block.depth
        self.is_keyed = bool(join.left)
        self._reaches: dict[int, _Reach] = {}  # of the batches of intervals that were searched last
        assert not self.is_keyed or self.rows.values[0] == join.column
        self.is_searched = join.disjoint and self.coordinates == 1
        assert (self.is_keyed and not join.disjoint) or self.intervals.values[0] == join.ends.columns[0]

    @cached_property
    def columns(self) -> list[tuple[bool, int]]:
        """For each column of the result whether it is one of rows, and its place there: -1 is the code."""
        direct = [self.rows.key[0]] if self.rows.direct else []
        positions = {name: number - len(direct) for number, name in enumerate(self.rows.schema)}
        other = {result: number for number, result in enumerate(self.join.right_names.values())}
        return [(name in positions, positions[name] if name in positions else other[name]) for name in self.join.schema]

    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        """dR x I and R' x dI, where I includes its new updates and R' does not: every pair exactly once.

        The time of a pair is the join of its times, which may be a later round.
        """
        new_rows, new_intervals = state.delta_at(self.rows, rounds), state.delta_at(self.intervals, rounds)
        if new_rows is not None:
            batches, frontier = state.trace(self.intervals).batches, state.frontier(rounds)
            for (some,) in portions([new_rows], self.rows.key_words, state.budget):
                if some is not None:
                    self._send(state, self._around(state.budget, some, batches, frontier), [some])
        if new_intervals is not None:
            others = state.trace(self.rows).before(new_rows)
            for (some,) in portions([new_intervals], self.intervals.key_words, state.budget):
                if some is not None:
                    self._send(state, self._changed(state.budget, some.decompress()), others)

    def _changed(self, budget: Budget, new: ColumnBatch) -> _Segments:
        """What new updates of intervals cover more, or less."""
        words = dict(zip(self.intervals.schema, self._columns(new), strict=True))
        return self._segments(new.codes, words, new.times, new.diffs, budget)

    def _around(
        self, budget: Budget, new: SortedBatch, batches: Sequence[SortedBatch], frontier: np.ndarray
    ) -> _Segments:
        """What all intervals that new rows may lie in cover, at the representatives of their times."""
        if self.is_searched and (near := self._searched(new.decompress(), batches, budget)) is not None:
            codes, diffs = (np.concatenate(arrays) for arrays in zip(*((b.codes, b.diffs) for b in near), strict=True))
            columns = [np.concatenate(arrays) for arrays in zip(*(self._columns(batch) for batch in near), strict=True)]
            times = np.concatenate([np.stack(list(batch.times)) for batch in near], axis=1)
            words = dict(zip(self.intervals.schema, columns, strict=True))
            return self._segments(codes, words, advance(times, frontier), diffs, budget)
        between = None
        if self.is_keyed:
            keys, _ = distinct_keys(new, self.rows.key_words)
        else:
            between = new.code(0), new.code(len(new) - 1)
            keys = Keys(np.zeros(1, dtype=np.int64), np.empty((0, 1), dtype=np.int64))
            if sum(map(len, batches)) > budget.tuning.near_ratio * len(new):
                batches = self._near(new.decompress().codes, batches, is_kept=not budget.memory.is_limited)
        found = gather(batches, keys, len(self.intervals.values), self.coordinates, frontier, budget=budget)
        of = np.repeat(np.arange(len(keys)), np.diff(found.offsets))
        codes = keys.codes[of]
        columns = [codes] if self.intervals.direct else list(np.take(keys.words, of, axis=1))
        words = dict(zip(self.intervals.schema, [*columns, *found.words], strict=True))
        return self._segments(codes, words, advance(found.times, frontier), found.diffs, budget, between=between)

    def _columns(self, intervals: ColumnBatch) -> list[np.ndarray]:
        """The columns of some intervals, as their schema has them."""
        return ([intervals.codes] if self.intervals.direct else []) + list(intervals.words)

    def _searched(
        self, new: ColumnBatch, batches: Sequence[SortedBatch], budget: Budget
    ) -> Sequence[ColumnBatch] | None:
        """Of intervals that do not overlap, those that may hold a value; None where whole keys are no more work."""
        ends, schema = self.join.ends, self.intervals.schema

        def is_some(some: ColumnBatch) -> np.ndarray:
            words = dict(zip(schema, self._columns(some), strict=True))
            after, to = ends.bounds(words, len(some))
            return after < to

        back = ends.closed in ("both", "left")
        probes = Probes.of(new, self.rows.key_words if self.is_keyed else None, back)
        return holding(batches, probes, is_some, budget)

    def _near(self, values: np.ndarray, batches: Sequence[SortedBatch], *, is_kept: bool) -> list[SortedBatch]:
        """The intervals that hold one of some values, which ascend. The first time in a batch is a pass over it;
        ``is_kept``: what it found is, for the next.
        """
        known = self._reaches
        reaches = [known.get(id(batch)) or _Reach.of(batch, self.join.ends, self.intervals.values) for batch in batches]
        self._reaches = {id(reach.batch): reach for reach in reaches} if is_kept else {}
        return [reach.batch.take(reach.holding(values)) for reach in reaches]

    def _segments(
        self, codes: np.ndarray, words: Mapping[str, np.ndarray], times: np.ndarray, diffs: np.ndarray, budget: Budget,
        *, between: tuple[int, int] | None = None,
    ) -> _Segments:  # fmt: skip
        """The covers of intervals. Those that are empty, and those with a null key, hold nothing. ``between``: the
        first and the last value that is looked up.
        """
        after, to = self.join.ends.bounds(words, len(diffs))
        holding = after < to
        if between is not None:
            holding &= (after < between[1]) & (to >= between[0])
        for name in self.join.right:
            holding &= words[name] != NULL
        names = () if self.intervals.direct else self.intervals.key
        keys, others = (
            _stacked([words[name] for name in columns], len(diffs)) for columns in (names, self.join.right_names)
        )
        return _Segments(codes, keys, others, times, after, to, diffs).take(holding).added_up(budget)

    def _send(self, state: State, segments: _Segments, others: Sequence[SortedBatch]) -> None:
        """Send the pairs of segments and the rows in them. Segments are divided between threads."""
        if len(segments) == 0:
            return
        budget = state.budget

        def arrivals(part: _Segments) -> list[Delivery]:
            return [
                delivery
                for batch in others
                for pairs in self._pairs(part, batch, budget)
                for delivery in state.forward(self.block, pairs.of(self._words(part, pairs)))
            ]

        for batch in others if self.is_keyed else ():
            batch.index(budget)
        for arrived in budget.map(arrivals, segments.parts(budget)):
            state.deliver(arrived)

    def _pairs(self, segments: _Segments, batch: SortedBatch, budget: Budget) -> Iterator[Pairs]:
        """All pairs of segments and the rows of a batch in them, some at a time."""
        most = budget.tuning.joined_pairs
        which, lo, hi = _cut(*self._located(segments, batch, budget), most)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(hi - lo)])
        for first, last in chunks(ends, most):
            of = which[first:last]
            other, a, b = batch.located(lo[first:last], hi[first:last])
            times, diffs = np.take(segments.times, of, axis=1), segments.diffs[of]
            left, right, at, products, overflow = kernels.joining.pairs(
                np.arange(len(of) + 1), segments.keys, times, diffs, 0, ends[first : last + 1] - ends[first], a, b,
                other.words, other.times, other.diffs, self.coordinates,
            )  # fmt: skip
            high = None
            if overflow:
                products, high = kernels.joining.products(diffs[left], other.diffs[right])
            yield Pairs(other, of[left], right, list(at), products, high)

    def _located(self, segments: _Segments, batch: SortedBatch, budget: Budget) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a batch in each segment: from one, up to another."""
        if not self.is_keyed:
            return batch.locate_between(segments.after, segments.to)
        lo, hi = batch.locate(segments.codes, budget)
        if self.rows.key_words:
            lo, hi = rows_of_keys(batch, segments.keys, lo, hi)
        return batch.between(lo, hi, self.rows.key_words, segments.after, segments.to)

    def _words(self, segments: _Segments, pairs: Pairs) -> list[np.ndarray]:
        rows = pairs.other
        return [
            (rows.codes if position < 0 else rows.words[position])[pairs.right]
            if is_row
            else segments.words[position][pairs.left]
            for is_row, position in self.columns
        ]


def _stacked(columns: list[np.ndarray], rows: int) -> np.ndarray:
    return np.stack(columns) if columns else np.empty((0, rows), dtype=np.int64)


def _cut(lo: np.ndarray, hi: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ranges of rows that are not empty, long ones in several: the number of each, and where it begins and ends."""
    pieces = -(-(hi - lo) // most)
    which = np.repeat(np.arange(len(lo)), pieces)
    starts = lo[which] + most * (np.arange(len(which)) - (np.cumsum(pieces) - pieces)[which])
    return which, starts, np.minimum(starts + most, hi[which])
