"""``join``: new updates of one side against everything on the other (sources: McSherry 2012, Join).

Bilinear, so differences suffice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ddcore import kernels
from ddcore.base.digests import Digested, digest
from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.base.tuning import Tuning
from ddcore.operators import arguments
from ddcore.operators.base import Keyed, Needs, Port, State, Step
from ddcore.operators.block import Rounds
from ddcore.traces.batch import Batch
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.ranges import portions
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import Keys, distinct_keys, located

if TYPE_CHECKING:
    from ddcore.operators.arrangement import Arrangement
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block
    from ddcore.operators.delivery import Delivery


@dataclass(frozen=True, eq=False)
class Join(Keyed):
    """Pairs of rows with equal keys; a null key matches nothing.

    ``left`` and ``right`` are the key columns, pairwise; ``right_names`` is what right value columns are called in the
    result.
    """

    name = "join"
    signs = "kept"
    left: tuple[str, ...]
    right: tuple[str, ...]
    right_names: Mapping[str, str]

    @classmethod
    def of(cls, left: Schema, right: Schema, on: Mapping[str, str]) -> Join:
        """For inputs of these schemas; ``on`` has the key columns, left to right, each once. Raises ProgramError."""
        names = right_names(left, [name for name in right if name not in on.values()], "join")
        schema = dict(left) | {result: right[name] for name, result in names.items()}
        own, other = tuple(on), tuple(on.values())
        return cls(schema, digest(own, other), own, other, names)

    @property
    def ports(self) -> Sequence[Port]:
        """Left, right."""
        return (0, self.left), (1, self.right)

    @property
    def result_key(self) -> tuple[str, ...]:
        """The key columns, as the left side calls them."""
        return self.left

    def needs(self, columns: frozenset[str]) -> Needs:
        """The columns of each side that these are, and the keys: other columns neither add nor remove pairs."""
        right = {name: result for name, result in self.right_names.items() if result in columns}
        left = columns - {*right.values()}
        text = digest(self.text, map(_name, sorted(left)), [_renamed(name, right[name]) for name in sorted(right)])
        return text, [left | {*self.left}, frozenset((*right, *self.right))]

    def narrowed(self, left: Schema, right: Schema) -> Join:
        """The join for inputs that lack some columns, but no keys; the others keep their names in the result."""
        names = {name: result for name, result in self.right_names.items() if name in right}
        return replace(self, schema={**left, **{names[name]: right[name] for name in names}}, right_names=names)

    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of a join block."""
        return JoinStep.of(self, plan, block)


@record
class JoinStep(Step):
    """The sources of the result's columns, computed once per block."""

    block: Block
    left: Arrangement
    right: Arrangement
    coordinates: int  # of the times of the result
    columns: tuple[tuple[str, int], ...]  # (key | left | right, place among the key or value columns)

    @classmethod
    def of(cls, join: Join, plan: Dataflow, block: Block) -> JoinStep:
        """Of a join's block."""
        left, right = (plan.arrangements[port] for port in block.ports)
        columns: list[tuple[str, int]] = []
        for name in left.collection:
            columns.append(("key", left.key.index(name)) if name in left.key else ("left", left.values.index(name)))
        for name in right.collection:
            if name in join.right_names:
                columns.append(("right", right.values.index(name)))
        return cls(block, left, right, len(plan.dims) + block.depth, tuple(columns))

    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        """dL x R and L' x dR, where R includes its new updates and L' does not: every pair exactly once.

        The time of a pair is the join of its times, which may be a later round.
        """
        new_left, new_right = state.delta_at(self.left, rounds), state.delta_at(self.right, rounds)
        if new_left is not None:
            for (some,) in portions([new_left], self.left.key_words, state.budget):
                self.match(state, some, state.trace(self.right).batches, self.left, swapped=False)
        if new_right is not None:
            for (some,) in portions([new_right], self.right.key_words, state.budget):
                self.match(state, some, state.trace(self.left).before(new_left), self.right, swapped=True)

    def match(
        self, state: State, new: SortedBatch | None, others: Sequence[SortedBatch], side: Arrangement, *, swapped: bool
    ) -> None:
        """Send the pairs of the new updates with the others. Keys are divided between threads."""
        if new is None:
            return
        budget = state.budget

        def arrivals(part: tuple[SortedBatch, Heads | None]) -> list[Delivery]:
            piece, heads = part[0].decompress(), part[1]
            heads = heads or Heads.of(piece, side.key_words)
            return [
                batch
                for pairs in matches(piece, heads, others, self.coordinates, budget)
                for batch in state.forward(self.block, self.updates(piece, pairs, side, swapped=swapped))
            ]

        if len(new) < budget.tuning.part_rows and not new.is_encoded:  # one part, in fewer calls
            state.deliver(arrivals((new, None)))
            return
        for batch in others if budget.free_threads > 1 else ():
            batch.index(budget)
        for arrived in budget.map(arrivals, _parts(_partners(new, others, budget), side.key_words, budget)):
            state.deliver(arrived)

    def updates(self, new: ColumnBatch, pairs: Pairs, side: Arrangement, *, swapped: bool) -> Batch:
        """The pairs as updates of the result."""
        return pairs.of(self.words(new, pairs, side, swapped=swapped))

    def words(self, new: ColumnBatch, pairs: Pairs, side: Arrangement, *, swapped: bool) -> list[np.ndarray]:
        """The columns of the result."""
        words = []
        for source, position in self.columns:
            if source == "key":
                words.append(new.codes[pairs.left] if side.direct else new.words[position][pairs.left])
            elif (source == "left") != swapped:
                words.append(new.words[side.key_words + position][pairs.left])
            else:
                words.append(pairs.other.words[side.key_words + position][pairs.right])
        return words


def _partners(new: SortedBatch, others: Sequence[SortedBatch], budget: Budget) -> SortedBatch:
    """The updates of a batch, at least those with keys of the others. All, unless the others are much shorter."""
    if not new.is_encoded or budget.tuning.partner_ratio * sum(map(len, others)) > len(new):
        return new
    codes = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *(other.decompress().codes for other in others)]))
    codes = codes[np.diff(codes, prepend=codes[:1] - 1) != 0]  # np.unique would import masked arrays
    some, _, _ = new.located(*new.locate(codes, budget))
    return some


def _parts(new: SortedBatch, key_words: int, budget: Budget) -> Iterator[tuple[SortedBatch, Heads | None]]:
    """The batch in parts, each for one thread: keys, or where its columns are not arrays rows."""
    if new.is_encoded:
        yield from ((piece, None) for piece in new.pieces(budget.share(len(new), budget.tuning.joined_rows)))
    else:
        yield from ((new, part) for part in Heads.of(new, key_words).parts(budget))


@dataclass(slots=True)
class Pairs:
    """Rows of equal key in two sorted batches: row numbers, the join of their times, the product of their diffs."""

    other: ColumnBatch
    left: np.ndarray
    right: np.ndarray
    times: list[np.ndarray]
    diffs: np.ndarray
    high: np.ndarray | None

    def of(self, words: list[np.ndarray]) -> Batch:
        """The pairs as updates of these rows."""
        return Batch(words, self.times, self.diffs, self.high)


@dataclass(slots=True)
class Heads:
    """Keys of a sorted batch and where the rows of each start: int64[keys + 1]."""

    keys: Keys
    starts: np.ndarray

    @classmethod
    def of(cls, batch: SortedBatch, key_words: int) -> Heads:
        """All keys."""
        return cls(*distinct_keys(batch, key_words))

    def parts(self, budget: Budget) -> Iterator[Heads]:
        """These keys in ranges of some ten thousand."""
        size = budget.share(len(self.keys), budget.tuning.joined_keys)
        for start in range(0, len(self.keys), size):
            stop = min(start + size, len(self.keys))
            yield Heads(self.keys.part(start, stop), self.starts[start : stop + 1])


def matches(
    new: ColumnBatch, heads: Heads, others: Sequence[SortedBatch], coordinates: int, budget: Budget = ALONE
) -> Iterator[Pairs]:
    """All pairs of keys of a sorted batch with others, some at a time; a null key matches nothing.

    ``coordinates`` is how many the times of the result have.
    """
    keys, starts = heads.keys, heads.starts
    key_words, most = len(keys.words), budget.tuning.joined_pairs
    for other, lo, hi in located(others, keys, budget):
        ends = kernels.joining.pair_starts(new.codes, new.words, starts, key_words, lo, hi, other.words)
        if coordinates == len(new.times) == len(other.times) == 1 and len(ends) > 1:
            sweep, ends = _Sweep.of(new, other, heads, ends, (lo, hi), tuning=budget.tuning)
            yield from sweep.pairs()
        for first, last in chunks(ends, most):
            rows, counts = starts[first : last + 1], ends[first : last + 1] - ends[first]
            for of, known, a, b in _blocks(rows, counts, lo[first:last], hi[first:last], most):
                which = known
                if which is None:
                    which = kernels.joining.pair_starts(new.codes, new.words, of, key_words, a, b, other.words)
                left, right, times, diffs, overflow = kernels.joining.pairs(
                    of, new.words, new.times, new.diffs, key_words, which, a, b,
                    other.words, other.times, other.diffs, coordinates,
                )  # fmt: skip
                high = None
                if overflow:
                    diffs, high = kernels.joining.products(new.diffs[left], other.diffs[right])
                yield Pairs(other, left, right, list(times), diffs, high)


@record
class _Sweep:
    """Keys of two batches whose updates, at totally ordered times, are paired with the rows present at their times.

    So a row that is there for some versions only is not paired with all that ever was. Key k has the rows
    ``starts[k]:stops[k]`` of one batch, and of the other those of its key among ``lo[k]:hi[k]``.
    """

    new: ColumnBatch
    other: ColumnBatch
    key_words: int
    starts: np.ndarray
    stops: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    most: int  # pairs at a time, about

    @classmethod
    def of(
        cls, new: ColumnBatch, other: ColumnBatch, heads: Heads, ends: np.ndarray, spans: tuple[np.ndarray, np.ndarray],
        *, tuning: Tuning,
    ) -> tuple[_Sweep, np.ndarray]:  # fmt: skip
        """The sweep of the keys for which it gives at most half of the pairs, and where the pairs of the rest begin.

        Keys with few updates on a side are not considered. Costs two sorts of their updates for the others.
        """
        starts, stops, numbers = heads.starts[:-1], heads.starts[1:], np.diff(ends)
        rows = stops - starts
        long = tuning.swept_updates
        keys = np.flatnonzero((numbers >= long * rows) & (rows >= long) & (numbers > 0))
        sweep = cls(new, other, len(heads.keys.words), starts, stops, *spans, tuning.joined_pairs).part(keys)
        if len(keys) == 0:
            return sweep, ends
        pays = sweep.sizes() <= numbers[keys] // 2
        numbers[keys[pays]] = 0
        return sweep.part(np.flatnonzero(pays)), np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers)])

    def part(self, keys: np.ndarray) -> _Sweep:
        """Some of the keys, which may occur several times."""
        return replace(self, starts=self.starts[keys], stops=self.stops[keys], lo=self.lo[keys], hi=self.hi[keys])

    def sizes(self) -> np.ndarray:
        """How many pairs each key has; 2**62 if a product may not be an int64."""
        sizes: np.ndarray = self._run(np.empty(0, dtype=np.int64))[0]
        return sizes

    def pairs(self) -> Iterator[Pairs]:
        """The pairs, some at a time."""
        if len(self.starts) == 0:
            return
        cut = self._cut(self.sizes())
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(cut.sizes())])
        for first, last in chunks(ends, self.most):
            _, left, right, times, diffs = cut.part(np.arange(first, last))._run(ends[first : last + 1] - ends[first])
            yield Pairs(self.other, left, right, list(times), diffs, None)

    def _cut(self, sizes: np.ndarray) -> _Sweep:
        """These keys with the updates of those with too many pairs in several parts, one side only."""
        pieces = np.maximum(np.minimum(sizes // self.most, self.stops - self.starts), 1)
        keys = np.repeat(np.arange(len(sizes)), pieces)
        cut, rows, number = self.part(keys), (self.stops - self.starts)[keys], pieces[keys]
        at = np.arange(len(keys)) - (np.cumsum(pieces) - pieces)[keys]
        starts, stops = cut.starts + rows * at // number, cut.starts + rows * (at + 1) // number
        return replace(cut, starts=starts, stops=stops)

    def _run(self, ends: np.ndarray) -> Any:
        new, other = self.new, self.other
        return kernels.joining.sweep(
            self.starts, self.stops, new.words, new.times, new.diffs, self.key_words, self.lo, self.hi,
            other.words, other.times, other.diffs, ends,
        )  # fmt: skip


_Block = tuple["np.ndarray", "np.ndarray | None", "np.ndarray", "np.ndarray"]


def _blocks(starts: np.ndarray, ends: np.ndarray, lo: np.ndarray, hi: np.ndarray, most: int) -> Iterator[_Block]:
    """What the pairs of some keys are computed from: rows, numbers of pairs, and where the others begin and end.

    One key with far too many pairs is cut into blocks of rows on both sides, whose numbers of pairs are not known;
    ``most``: pairs.
    """
    if len(lo) > 1 or ends[-1] <= 2 * most:
        yield starts, ends, lo, hi
        return
    width = min(int(hi[0] - lo[0]), most)
    height = max(1, most // width)
    for a in range(int(starts[0]), int(starts[1]), height):
        of = np.array([a, min(a + height, int(starts[1]))], dtype=np.int64)
        for b in range(int(lo[0]), int(hi[0]), width):
            yield of, None, np.array([b]), np.array([min(b + width, int(hi[0]))])


def chunks(ends: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of keys with about so many pairs each, and at least one key."""
    first, keys = 0, len(ends) - 1
    if ends[-1] == 0:
        return
    while first < keys:
        last = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
        last = min(max(last, first + 1), keys)
        if ends[last] > ends[first]:
            yield first, last
        first = last


@lru_cache(maxsize=65_536)
def _name(name: str) -> Digested:
    return Digested.of_text(name)


@lru_cache(maxsize=65_536)
def _renamed(name: str, result: str) -> Digested:
    return Digested.of(name, result)


def right_names(left: Schema, right: Sequence[str], where: str) -> dict[str, str]:
    """What columns of the right side are called beside those of the left. Raises ProgramError."""
    names: dict[str, str] = {}
    for name in right:
        names[name] = f"{name}_right" if name in left else name
        if names[name] in left or list(names.values()).count(names[name]) > 1:
            raise ProgramError(
                f"{caller()}: {where}: two columns would be called {names[name]}", "rename one with select()"
            )
    return names


def key_pairs(left: Schema, right: Schema, on: str | Sequence[str] | Mapping[str, str], where: str) -> dict[str, str]:
    """The key columns, left to right. Raises ProgramError."""
    names = arguments.names_of(on, where)
    others = arguments.names_of(list(on.values()), where) if isinstance(on, Mapping) else names
    pairs = dict(zip(names, others, strict=True))
    for ours, other in pairs.items():
        arguments.require(left, ours, where)
        arguments.require(right, other, where)
        if left[ours] != right[other]:
            raise ProgramError(
                f"{caller()}: {where}: {ours} is {left[ours]} and {other} is {right[other]}",
                "cast one side with select()",
            )
    return pairs
