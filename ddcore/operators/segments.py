"""Where ``ntile`` cuts a large partition: its results change where rows change, and at the cuts.

A part begins at a row whose number in the order follows from the number of rows. Results so far tell, by their parts,
where a partition is cut: a search in them finds each cut, in steps that divide what is left of the order by
eight. A row that comes or goes moves no cut by more than one row. So the results of *segments* are computed anew: a few
rows around each cut, each change and the first row. The number of rows of the partition is in a column beside the
result of its first row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddcore.base.lazy import numpy as np
from ddcore.data.encoding import NULL
from ddcore.operators.evaluations import Evaluations, Portion
from ddcore.operators.nearby import MOST, Near, gathered_between, rows_within, searchable, spans_of
from ddcore.operators.onwards import Sources, added_up
from ddcore.operators.window_values import tile
from ddcore.traces.budget import Budget
from ddcore.traces.sorted_batch import Spans
from ddcore.traces.trace import Keys, Rows, chosen

_SPARE = 16  # with so many rows that are needed one more is read at first, as some are gone
_POINTS = 8  # into so many pieces a search divides


@dataclass
class Segments(Near):
    """As :class:`Near`, of segments of keys: their numbers in ``keys``, ascending. All three more are int64[segments].

    ``before``: how many rows came before those of a segment so far; ``size``: how many rows its key had; ``part``: the
    part of all of its rows, or 0 where ``before`` tells it.
    """

    keys: np.ndarray
    before: np.ndarray
    size: np.ndarray
    part: np.ndarray
    down: bool

    def at(self, evaluations: Evaluations, portion: Portion) -> Counted:
        """What comes before the rows of each evaluation, of segments as the keys of a portion."""
        assert portion.changed is not None
        of_update = np.repeat(np.arange(len(self.keys)), np.diff(portion.offsets))
        values, diffs = portion.changed
        is_before = values > self.high[of_update] if self.down else values < self.low[of_update]
        of_evaluation = evaluations.key_of()
        kinds = np.repeat([0, 1], [len(of_update), len(of_evaluation)])
        order = np.lexsort(
            [kinds, np.concatenate([portion.times[0], evaluations.versions[0]]),
             np.concatenate([of_update, of_evaluation])]
        )  # fmt: skip
        counts = np.zeros((2, len(order)), np.int64)
        counts[:, : len(diffs)] = diffs * is_before, diffs
        whole = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(counts[:, : len(diffs)], axis=1)], axis=1)
        running = np.empty_like(counts)
        running[:, order] = np.cumsum(counts[:, order], axis=1)
        more = running[:, len(diffs) :] - whole[:, portion.offsets[of_evaluation]]
        before, size = self.before[of_evaluation] + more[0], self.size[of_evaluation] + more[1]
        return Counted(self.some[of_evaluation], before, size, self.part[of_evaluation])


@dataclass(frozen=True)
class Counted:
    """Of each evaluation whether it is one of a segment; if so, how many rows come before its own, how many rows its
    partition has, and the part of all of its rows, or 0.
    """

    some: np.ndarray
    before: np.ndarray
    size: np.ndarray
    part: np.ndarray

    @classmethod
    def not_at_all(cls, evaluations: int) -> Counted:
        """Evaluations of whole partitions."""
        nothing = np.zeros(evaluations, np.int64)
        return cls(nothing > 0, nothing, nothing, nothing)

    def tiles(self, parts: int, evals: np.ndarray, position: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
        """The parts of rows of evaluations ``evals``, of which each knows its place and the size among these rows, and
        the sizes of partitions beside their first rows.
        """
        position = np.where(self.some[evals], position + self.before[evals], position)
        size = np.where(self.some[evals], self.size[evals], size)
        same = self.part[evals]
        result = np.where(same > 0, same, tile(parts, position, size))
        return [result, np.where((same == 0) & (position == 0), size, 0)]


def found_segments(
    sources: Sources, portion: Portion, parts: int, *, down: bool, budget: Budget
) -> tuple[Rows, Rows, Segments]:
    """The rows of the segments of keys, the results so far there, and the segments; of a key that is not searched one
    with all. ``sources.flags``: the columns of the result, and of the number of rows.
    """
    keys, since = portion.keys, portion.since
    spans = [spans_of(batch, keys, budget) for batch in sources.rows]
    tuning = budget.tuning
    some = searchable(sources.rows, spans, portion.around, word=len(keys.words), least=tuning.searched_rows)
    search = _Search.of(sources, keys, since, down=down, budget=budget)
    assert portion.changed is not None
    moved = 2 * np.add.reduceat(np.abs(portion.changed[1]), portion.offsets[:-1]) + 1
    found, size = search.firsts(np.flatnonzero(some), moved)
    some &= (size >= parts) & (size // parts >= tuning.cut_ratio * (moved + tuning.near_rows))
    pieces = [found.of(some[found.keys])]
    which = np.flatnonzero(some)
    cuts, before = np.repeat(which, parts - 1), np.tile(np.arange(1, parts), len(which))
    pieces.append(search.beside(cuts, search.cuts(cuts, before), moved[cuts] + tuning.near_rows))
    of_update, rows = chosen(portion.offsets, which)
    changes = np.unique(
        np.stack([np.repeat(which, np.diff(of_update)), portion.changed[0, rows]]), axis=1
    )  # both ascend
    pieces.append(search.beside(changes[0], changes[1], np.ones(changes.shape[1], np.int64)))
    segments = _merged([*pieces, _Pieces.whole(np.flatnonzero(~some))])
    at = Near(some[segments.keys], segments.low, segments.high)
    ours, since = _of(keys, segments.keys), since[segments.keys]
    history = added_up(gathered_between(sources.rows, ours, sources.columns, at, budget), since, budget)
    results = added_up(gathered_between(sources.results, ours, sources.result_columns, at, budget), since, budget)
    begins = (segments.high == MOST) if down else (segments.low == NULL)
    known = _known(results, sources.flags[0], parts, size[segments.keys], begins=begins)
    return (
        history,
        results,
        Segments(at.some, at.low, at.high, segments.keys, known[0], size[segments.keys], known[1], down),
    )


def _known(
    results: Rows, column: int, parts: int, size: np.ndarray, *, begins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of each segment how many rows came before it, and if it was not cut, the part of its rows, else 0. ``begins``:
    whether it has the first row.
    """
    numbers, tiles = _numbers(results), results.words[column]
    least, most = np.full(len(size), MOST), np.zeros(len(size), np.int64)
    np.minimum.at(least, numbers, tiles)
    np.maximum.at(most, numbers, tiles)
    of_first, inside = np.flatnonzero(tiles == least[numbers]), np.zeros(len(size), np.int64)
    np.add.at(inside, numbers[of_first], results.diffs[of_first])
    before = np.where(begins, 0, least * (size // parts) + np.minimum(least, size % parts) - inside)
    return before, np.where((least == most) & ~begins, least, 0)


@dataclass(frozen=True)
class _Pieces:
    """Values of the order from ``low`` to ``high``, of keys by number; int64[n] each."""

    keys: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def whole(cls, keys: np.ndarray) -> _Pieces:
        """All values."""
        return cls(keys, np.full(len(keys), NULL), np.full(len(keys), MOST))

    def of(self, wanted: np.ndarray) -> _Pieces:
        """Some."""
        return _Pieces(self.keys[wanted], self.low[wanted], self.high[wanted])


def _merged(pieces: Sequence[_Pieces]) -> _Pieces:
    """Those with values in common as one, by key and value."""
    keys, low, high = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("keys", "low", "high"))
    order = np.lexsort((low, keys))
    keys, low, high = keys[order], low[order], high[order]
    ends = np.append(np.flatnonzero(np.diff(keys, prepend=-1)), len(keys))
    for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        high[start:stop] = np.maximum.accumulate(high[start:stop])
    heads = np.ones(len(keys), np.bool_)
    heads[1:] = (keys[1:] != keys[:-1]) | (low[1:] > high[:-1])
    lasts = np.append(heads[1:], np.ones(min(len(keys), 1), np.bool_))
    return _Pieces(keys[heads], low[heads], high[lasts])


@dataclass(frozen=True)
class _Search:
    """The results so far of keys, looked up by values of the order."""

    sources: Sources
    keys: Keys
    since: np.ndarray
    spans: Sequence[Spans]
    down: bool
    budget: Budget

    @classmethod
    def of(cls, sources: Sources, keys: Keys, since: np.ndarray, *, down: bool, budget: Budget) -> _Search:
        """With the rows of all keys in the results' batches."""
        spans = [spans_of(batch, keys, budget) for batch in sources.results]
        return cls(sources, keys, since, spans, down, budget)

    def rows(self, pieces: _Pieces) -> Rows:
        """The rows of pieces, each with its count."""
        at = Near(np.ones(len(pieces.keys), np.bool_), pieces.low, pieces.high)
        ours = _of(self.keys, pieces.keys)
        found = gathered_between(self.sources.results, ours, self.sources.result_columns, at, self.budget)
        return added_up(found, self.since[pieces.keys], self.budget)

    def firsts(self, keys: np.ndarray, need: np.ndarray) -> tuple[_Pieces, np.ndarray]:
        """Pieces with ``need[k]`` rows of keys with which the order begins, and the number of rows of each key."""
        start, size = np.full(len(keys), MOST if self.down else NULL + 1), np.zeros(len(need), np.int64)
        found = self.beside(keys, start, need[keys])
        rows = self.rows(found)
        np.maximum.at(size, found.keys[_numbers(rows)], rows.words[self.sources.flags[1]])
        return found, size

    def beside(self, keys: np.ndarray, values: np.ndarray, need: np.ndarray) -> _Pieces:
        """Pieces with ``need`` rows or more on either side of values of keys, or all that there are."""
        found, left, width = _Pieces.whole(keys), np.arange(len(keys)), need + 1 + need // _SPARE
        while len(left):
            which, at, every = keys[left], values[left], np.ones(len(left), np.bool_)
            spans = [(lo[which], hi[which]) for lo, hi in self.spans]
            near = rows_within(
                self.sources.results,
                spans,
                every,
                word=len(self.keys.words),
                around=np.stack([at, at]),
                width=width[left],
            )
            found.low[left], found.high[left] = near.low, near.high
            rows = self.rows(_Pieces(which, near.low, near.high))
            numbers = _numbers(rows)
            below = np.bincount(numbers[rows.words[0] < at[numbers]], minlength=len(left)) >= need[left]
            above = np.bincount(numbers[rows.words[0] > at[numbers]], minlength=len(left)) >= need[left]
            left = left[~((below | (near.low == NULL)) & (above | (near.high == MOST)))]
            width *= 8
        return found

    def cuts(self, keys: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """The values behind the cuts of keys after their parts number ``parts``; ``near_rows`` rows may lie between.

        In the order of the words, in which with ``down`` a partition ends with its first part.
        """
        low, high = np.full(len(keys), NULL), np.full(len(keys), MOST)
        left = np.arange(len(keys))
        while len(left):
            of_point, points = self._points(keys[left], low[left], high[left])
            of_point = left[of_point]
            rows = self.rows(self.beside(keys[of_point], points, np.ones(len(points), np.int64)))
            cut = of_point[_numbers(rows)]
            behind = (rows.words[self.sources.flags[0]] > parts[cut]) != self.down
            before = low.copy(), high.copy()
            np.maximum.at(low, cut[~behind], rows.words[0, ~behind])
            np.minimum.at(high, cut[behind], rows.words[0, behind])
            left = np.flatnonzero(((low > before[0]) | (high < before[1])) & (low < high))
        return high

    def _points(self, keys: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values that divide what lies between two values of a key, in the batch that has most of it, and the number of
        the key for each, ascending; none where all batches have few rows there.
        """
        batches, word = self.sources.results, len(self.keys.words)
        firsts, sizes = np.zeros((len(batches), len(keys)), np.int64), np.zeros((len(batches), len(keys)), np.int64)
        for number, (batch, spans) in enumerate(zip(batches, self.spans, strict=True)):
            lo, hi = (side[keys] for side in spans)
            firsts[number], ends = batch.between(lo, hi, word, low, np.maximum(low, high - 1))
            sizes[number] = ends - firsts[number]
        largest, owners, values = sizes.argmax(axis=0), [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number, batch in enumerate(batches):
            some = np.flatnonzero((largest == number) & (sizes.sum(axis=0) > self.budget.tuning.near_rows))
            steps = sizes[number, some, np.newaxis] * np.arange(1, _POINTS) // _POINTS
            rows, back = np.unique(firsts[number, some, np.newaxis] + steps, return_inverse=True)
            if len(rows):
                owners.append(np.repeat(some, _POINTS - 1))
                values.append(batch.take(rows).words[word][back.ravel()])
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        return owner[order], np.concatenate(values)[order]


def _of(keys: Keys, numbers: np.ndarray) -> Keys:
    """Keys by number, one as often as it is there."""
    return Keys(keys.codes[numbers], np.take(keys.words, numbers, axis=1))


def _numbers(rows: Rows) -> np.ndarray:
    """The number of the key of each row."""
    return np.repeat(np.arange(len(rows.offsets) - 1), np.diff(rows.offsets))
