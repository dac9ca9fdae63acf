"""Results that depend on all rows before theirs: from a change on they are computed anew, those before it stay.

What the rows before add up to is in the results so far, of a row before the changes: its *anchor*. Evaluation begins at
the anchor, whose results stand for all rows before it. So a running total costs the rows behind a change, and a row at
the end of an order costs itself. Behind the changes it ends with the first value at which results are what they were:
a row that is no new maximum costs the rows near it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ddcore.base.lazy import numpy as np
from ddcore.data.encoding import NULL
from ddcore.operators.nearby import (
    MOST,
    Near,
    distinct_rows,
    firsts,
    gathered_between,
    rows_within,
    searchable,
    spans_of,
)
from ddcore.operators.running import is_unknown
from ddcore.traces.budget import Budget
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import SortedBatch, Spans
from ddcore.traces.trace import Keys, Rows


@dataclass
class Onwards(Near):
    """As :class:`Near`, of keys whose results may change from a value of the order on.

    ``anchors``: by the number of the key its results so far at the value at which evaluation begins: of each row there
    its words and then its results, (columns, rows). ``ends``: the same at the value with which it ends; where results
    there stay as they are, so do all behind. ``open``: by the number of the key whether they did not.
    """

    anchors: Mapping[int, np.ndarray] = field(default_factory=dict)
    ends: Mapping[int, np.ndarray] = field(default_factory=dict)
    open: np.ndarray = field(default_factory=lambda: np.zeros(0, np.bool_))

    def compare(self, keys: np.ndarray, evals: np.ndarray, words: np.ndarray) -> None:
        """Take note of the keys whose results (columns, n) at their ends are others than so far: those of evaluations
        ``evals``, ascending, of ``keys``.
        """
        self.open = np.zeros(len(self.some), np.bool_)
        for k, columns in self.ends.items():
            start, stop = (int(position) for position in np.searchsorted(keys, [k, k + 1]))
            rows = start + np.flatnonzero(words[0, start:stop] == columns[0, 0])
            number = columns.shape[1]
            cuts = np.flatnonzero(np.diff(evals[rows], prepend=-1))
            is_there = len(rows) > 0 and (np.diff(np.append(cuts, len(rows))) == number).all()
            is_there = is_there and len(cuts) == len(np.unique(evals[start:stop]))
            self.open[k] = not is_there or (_sorted(words[:, rows], number) != np.tile(columns, len(cuts))).any()


@dataclass(frozen=True)
class Sources:
    """Where rows and results so far are read: the batches of both, and how many columns they have behind the key.
    ``flags``: the columns of results that say whether a state is known.
    """

    rows: Sequence[SortedBatch]
    results: Sequence[SortedBatch]
    columns: int
    result_columns: int
    flags: Sequence[int]


@dataclass(frozen=True)
class Begun:
    """Where evaluation begins: of the keys ``some`` the values of the anchors and of the first results that may
    change, and the results so far at the anchors.
    """

    some: np.ndarray
    anchor: np.ndarray
    low: np.ndarray
    anchors: Mapping[int, np.ndarray]
    spans: Sequence[Spans]


def begun(
    sources: Sources, keys: Keys, *, reach: int, down: bool, around: np.ndarray, since: np.ndarray, budget: Budget,
    stays: np.ndarray | None = None,
) -> Begun:  # fmt: skip
    """An anchor of each key that has one.

    ``around``: the least and the greatest value of the order that changes, (2, keys); ``since``: the first time at
    which it does. ``reach``: how many rows before its own a result needs beside all of them. ``down``: the order
    descends. ``stays``: which keys may be evaluated from somewhere on, where not all.
    """
    everything = [spans_of(batch, keys, budget) for batch in sources.rows]
    some = searchable(sources.rows, everything, around, word=len(keys.words), least=budget.tuning.searched_rows)
    some &= True if stays is None else stays
    anchor, low = np.full(len(keys), NULL), np.full(len(keys), NULL)
    nearest = np.where(down, around[1], around[0])
    left, width = np.flatnonzero(some), budget.tuning.near_rows + reach
    while len(left):
        within = _beside(sources.rows, everything, left, nearest, word=len(keys.words), width=width, down=down)
        for k, values, is_whole in _values(sources, keys, left, within, since=since, down=down, budget=budget):
            positions = values.anchor(reach)
            if positions is not None:
                anchor[k], low[k] = positions
            elif is_whole:
                some[k] = False
        left = left[some[left] & (anchor[left] == NULL)]
        width *= 8
    anchors = _results(sources, keys, some, anchor, since=since, budget=budget)
    for k in [k for k, columns in anchors.items() if is_unknown(columns[[*sources.flags]])]:
        some[k] = False
        del anchors[k]
    return Begun(some, anchor, low, anchors, everything)


def found_onwards(
    sources: Sources, keys: Keys, start: Begun, *, reach: int, down: bool, around: np.ndarray, since: np.ndarray,
    tries: np.ndarray, budget: Budget,
) -> tuple[Rows, Rows, Onwards]:  # fmt: skip
    """The rows from an anchor on, and the results so far that may change. ``tries``: how often that was tried before
    for each key, each time with more rows behind the changes: up to the next value, at last with all.
    """
    some, lost = start.some, np.full(len(keys), NULL if down else MOST)
    last, high = lost.copy(), lost.copy()
    farthest = np.where(down, around[0], around[1])
    tuning = budget.tuning
    few, many = tuning.later_rows, tuning.later_rows * tuning.later_ratio
    for number, (width, farthest_end) in enumerate(((few, False), (few, True), (many, True))):
        left = np.flatnonzero(some & (tries == number))
        if len(left) == 0:
            continue
        within = _beside(
            sources.rows, start.spans, left, farthest, word=len(keys.words), width=width + 2 * reach, down=not down
        )
        for k, values, is_whole in _values(sources, keys, left, within, since=since, down=not down, budget=budget):
            positions = None if is_whole else values.end(reach, farthest=farthest_end)
            if positions is not None:
                high[k], last[k] = positions
    ends = _results(sources, keys, some & (high != lost), high, since=since, budget=budget)
    for k in [k for k, columns in ends.items() if is_unknown(columns[[*sources.flags]]) or columns.shape[1] == 0]:
        last[k] = high[k] = lost[k]
        del ends[k]
    needed, near = (_between(some, *bounds, down=down) for bounds in ((start.anchor, last), (start.low, high)))
    history = added_up(gathered_between(sources.rows, keys, sources.columns, needed, budget), since, budget)
    before = added_up(gathered_between(sources.results, keys, sources.result_columns, near, budget), since, budget)
    near.anchors, near.ends = start.anchors, ends
    return history, before, near


def added_up(rows: Rows, since: np.ndarray, budget: Budget) -> Rows:
    """The updates of each key as all times from its first one on see them: most of a long history cancels."""
    numbers = np.repeat(np.arange(len(since)), np.diff(rows.offsets))
    times = np.maximum(rows.times[0], since[numbers])
    batch = arrange(numbers, list(rows.words), [times], rows.diffs, budget=budget)
    offsets = np.searchsorted(batch.codes, np.arange(len(since) + 1))
    return Rows(offsets, np.stack(list(batch.words)), np.stack(list(batch.times)), batch.diffs)


def _between(some: np.ndarray, first: np.ndarray, last: np.ndarray, *, down: bool) -> Onwards:
    """From one value of the order to another; of other keys all."""
    low, high = (last, first) if down else (first, last)
    return Onwards(some, np.where(some, low, NULL), np.where(some, high, MOST))


def _beside(
    batches: Sequence[SortedBatch], everything: Sequence[Spans], left: np.ndarray, nearest: np.ndarray, *, word: int,
    width: int, down: bool,
) -> Near:  # fmt: skip
    """The values below ``nearest``, or with ``down`` those above it, of which each batch has at most ``width`` rows; of
    other keys none.
    """
    some = np.zeros(len(nearest), np.bool_)
    some[left] = True
    near = rows_within(batches, everything, some, word=word, around=np.stack([nearest, nearest]), width=width)
    low, high = (nearest + 1, near.high) if down else (near.low, nearest - 1)
    return Near(np.ones(len(nearest), np.bool_), np.where(some, low, MOST), np.where(some, high, MOST))


def _values(
    sources: Sources, keys: Keys, left: np.ndarray, within: Near, *, since: np.ndarray, down: bool, budget: Budget
) -> Iterator[tuple[int, _Values, bool]]:
    """Of the keys ``left`` the values beside their changes, and whether these are all on that side."""
    rows = gathered_between(sources.rows, keys, sources.columns, within, budget)
    for k in left.tolist():
        span = slice(int(rows.offsets[k]), int(rows.offsets[k + 1]))
        values = _Values.of(rows.words[:, span], rows.times[0, span], rows.diffs[span], int(since[k]), down=down)
        yield k, values, bool((within.high[k] == MOST) if down else (within.low[k] == NULL))


@dataclass(frozen=True)
class _Values:
    """Values of the order beside the changes, the nearest first: ``heads``; of each whether nothing changes there from
    a time on and each row is there once, and how many rows stay at it.

    ``step``: where the values are, seen from the changes.
    """

    heads: np.ndarray
    fits: np.ndarray
    steady: np.ndarray
    step: int

    @classmethod
    def of(cls, words: np.ndarray, times: np.ndarray, diffs: np.ndarray, since: int, *, down: bool) -> _Values:
        """Of updates on one side of the changes: below them, with ``down`` above them."""
        (rows, latest, counts), step = distinct_rows(words, times, diffs), 1 if down else -1
        groups = np.flatnonzero(firsts(rows[:1]))
        stays = (latest <= since) & (counts > 0)
        is_quiet = np.maximum.reduceat(latest, groups) <= since
        is_single = (np.maximum.reduceat(counts, groups) == 1) & (np.minimum.reduceat(counts, groups) >= 0)
        steady = np.add.reduceat(stays.astype(np.int64), groups)
        fits = is_quiet & is_single & (steady > 0)
        return cls(rows[0, groups][::step], fits[::step], steady[::step], step)

    def anchor(self, reach: int) -> tuple[int, int] | None:
        """The value at which evaluation can begin, and that from which on results may change; None where there is none
        among these. Behind it, up to the results that may change, there are ``reach`` rows that stay.
        """
        behind, bound = self._counted(reach)
        if bound >= len(behind):
            return None
        enough = behind - (behind[bound] if reach else 0) >= reach
        positions = np.flatnonzero(self.fits & enough & (np.arange(len(behind)) > bound))
        if len(positions) == 0:
            return None
        anchor = int(self.heads[positions[0]])
        return anchor, int(self.heads[bound]) if reach else anchor - self.step

    def end(self, reach: int, *, farthest: bool) -> tuple[int, int] | None:
        """A value with which results may end to change, the nearest or the farthest, and the value up to which rows are
        needed for it; None where there is none among these.
        """
        behind, bound = self._counted(reach)
        enough = behind + reach <= (behind[-1] if len(behind) else 0)
        positions = np.flatnonzero(self.fits & enough & (np.arange(len(behind)) > bound))
        if len(positions) == 0:
            return None
        position = positions[-1] if farthest else positions[0]
        last = int(np.searchsorted(behind, behind[position] + reach, "left"))
        return int(self.heads[position]), int(self.heads[last])

    def _counted(self, reach: int) -> tuple[np.ndarray, int]:
        """How many rows stay up to each value, and the number of the value up to which results may change by rows at a
        distance of ``reach``.
        """
        behind = np.cumsum(self.steady)
        return behind, int(np.searchsorted(behind, reach, "left")) if reach else -1


def _results(
    sources: Sources, keys: Keys, some: np.ndarray, anchor: np.ndarray, *, since: np.ndarray, budget: Budget
) -> dict[int, np.ndarray]:
    """The results so far at the values ``anchor`` of the keys ``some``."""
    nothing = np.full(len(some), MOST)
    at = Near(np.ones(len(some), np.bool_), np.where(some, anchor, nothing), np.where(some, anchor, nothing))
    rows = added_up(gathered_between(sources.results, keys, sources.result_columns, at, budget), since, budget)
    results = {}
    for k in np.flatnonzero(some).tolist():
        span = slice(int(rows.offsets[k]), int(rows.offsets[k + 1]))
        results[k] = rows.words[:, span][:, (rows.times[0, span] <= since[k]) & (rows.diffs[span] > 0)]
    return results


def _sorted(words: np.ndarray, number: int) -> np.ndarray:
    """Rows sorted by all columns, ``number`` at a time."""
    which = np.arange(words.shape[1]) // number
    return words[:, np.lexsort([*words[::-1], which])]
