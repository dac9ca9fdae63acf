"""Results that depend on all rows before theirs: from a change on they are computed anew, those before it stay.

What the rows before add up to is in the results so far, of a row before the changes: its *anchor*. Evaluation begins at
the anchor, whose results stand for all rows before it. So a running total costs the rows behind a change, and a row at
the end of an order costs itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddcore.base.lazy import numpy as np
from ddcore.data.encoding import NULL
from ddcore.operators.nearby import MOST, Near, gathered_between, searchable, spans_of
from ddcore.traces.budget import Budget
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import SortedBatch, Spans
from ddcore.traces.trace import Keys, Rows

_FIRST = 64  # rows before the changes that are read first


@dataclass
class Onwards(Near):
    """As :class:`Near`, of keys whose results may change from a value of the order on.

    ``anchors``: by the number of the key its results so far at the value at which evaluation begins: of each row there
    its words and then its results, (columns, rows).
    """

    anchors: Mapping[int, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Sources:
    """Where rows and results so far are read: the batches of both, and how many columns they have behind the key."""

    rows: Sequence[SortedBatch]
    results: Sequence[SortedBatch]
    columns: int
    result_columns: int


def found_onwards(
    sources: Sources, keys: Keys, *, reach: int, down: bool, around: np.ndarray, since: np.ndarray, budget: Budget
) -> tuple[Rows, Rows, Onwards]:
    """The rows from an anchor on, and the results so far that may change.

    ``around``: the least and the greatest value of the order that changes, (2, keys); ``since``: the first time at
    which it does. ``reach``: how many rows before its own a result needs beside all of them. ``down``: the order
    descends.
    """
    everything = [spans_of(batch, keys, budget) for batch in sources.rows]
    some = searchable(sources.rows, everything, around, word=len(keys.words))
    anchor, low = np.full(len(keys), NULL), np.full(len(keys), NULL)
    nearest = np.where(down, around[1], around[0])
    left, width = np.flatnonzero(some), _FIRST + reach
    while len(left):
        within = _before(sources.rows, everything, left, nearest, word=len(keys.words), width=width, down=down)
        rows = gathered_between(sources.rows, keys, sources.columns, within, budget)
        for k in left:
            span = slice(int(rows.offsets[k]), int(rows.offsets[k + 1]))
            part = rows.words[:, span], rows.times[0, span], rows.diffs[span]
            places = _anchor(*part, int(since[k]), reach=reach, down=down)
            is_whole = (within.high[k] == MOST) if down else (within.low[k] == NULL)
            if places is not None:
                anchor[k], low[k] = places
            elif is_whole:
                some[k] = False
        left = left[some[left] & (anchor[left] == NULL)]
        width *= 8
    needed, near = (_onwards(some, bound, down=down) for bound in (anchor, low))
    history = _added_up(gathered_between(sources.rows, keys, sources.columns, needed, budget), since, budget)
    before = _added_up(gathered_between(sources.results, keys, sources.result_columns, near, budget), since, budget)
    near.anchors = _results(sources, keys, some, anchor, since=since, budget=budget)
    return history, before, near


def _added_up(rows: Rows, since: np.ndarray, budget: Budget) -> Rows:
    """The updates of each key as all times from its first one on see them: most of a long history cancels."""
    numbers = np.repeat(np.arange(len(since)), np.diff(rows.offsets))
    times = np.maximum(rows.times[0], since[numbers])
    batch = arrange(numbers, list(rows.words), [times], rows.diffs, budget=budget)
    offsets = np.searchsorted(batch.codes, np.arange(len(since) + 1))
    return Rows(offsets, np.stack(list(batch.words)), np.stack(list(batch.times)), batch.diffs)


def _onwards(some: np.ndarray, bound: np.ndarray, *, down: bool) -> Onwards:
    """From a value on to the end of the order."""
    everything = np.full(len(some), NULL), np.full(len(some), MOST)
    if down:
        return Onwards(some, everything[0], np.where(some, bound, MOST))
    return Onwards(some, np.where(some, bound, NULL), everything[1])


def _before(
    batches: Sequence[SortedBatch], everything: Sequence[Spans], left: np.ndarray, nearest: np.ndarray, *, word: int,
    width: int, down: bool,
) -> Near:  # fmt: skip
    """The values before the changes of which each batch has at most ``width`` rows; of other keys none."""
    low, high = np.full(len(nearest), MOST), np.full(len(nearest), MOST)
    if down:
        low[left] = nearest[left] + 1
    else:
        low[left], high[left] = NULL, nearest[left] - 1
    for batch, spans in zip(batches, everything, strict=True):
        lo, hi = (span[left] for span in spans)
        first = batch.between(lo, hi, word, nearest[left] - 1, nearest[left])
        place = first[1] + width if down else first[0] - width - 1
        inside = np.flatnonzero((place < hi) if down else (place >= lo))
        if len(inside) == 0:
            continue
        rows, back = np.unique(place[inside], return_inverse=True)
        values, at = batch.take(rows).words[word][back], left[inside]
        if down:
            high[at] = np.minimum(high[at], values - 1)
        else:
            low[at] = np.maximum(low[at], values + 1)
    return Near(np.ones(len(nearest), np.bool_), low, high)


def _anchor(
    words: np.ndarray, times: np.ndarray, diffs: np.ndarray, since: int, *, reach: int, down: bool
) -> tuple[int, int] | None:
    """The value at which evaluation can begin, of rows before the changes, and that from which on results may change;
    None where there is none among these rows.

    At the value nothing changes from ``since`` on and each row is there once; behind it, up to the results that may
    change, there are ``reach`` rows that stay.
    """
    order = np.lexsort(words[::-1])
    words, times, diffs = words[:, order], times[order], diffs[order]
    if len(order) == 0:
        return None
    rows = np.flatnonzero(np.concatenate([np.ones(1, bool), (words[:, 1:] != words[:, :-1]).any(axis=0)]))
    counts, latest, values = np.add.reduceat(diffs, rows), np.maximum.reduceat(times, rows), words[0, rows]
    groups = np.flatnonzero(np.concatenate([np.ones(1, bool), values[1:] != values[:-1]]))
    stays = (latest <= since) & (counts > 0)
    is_quiet = np.maximum.reduceat(latest, groups) <= since
    is_single = (np.maximum.reduceat(counts, groups) == 1) & (np.minimum.reduceat(counts, groups) >= 0)
    steady = np.add.reduceat(stays.astype(np.int64), groups)
    heads = values[groups]
    if not down:  # nearest to the changes first
        is_quiet, is_single, steady, heads = (column[::-1] for column in (is_quiet, is_single, steady, heads))
    behind = np.cumsum(steady)
    bound = int(np.searchsorted(behind, reach, "left")) if reach else -1  # up to which results may change
    if bound >= len(behind):
        return None
    enough = (behind - (behind[bound] if reach else 0) >= reach) & (np.arange(len(behind)) > bound)
    fits = np.flatnonzero(is_quiet & is_single & (steady > 0) & enough)
    if len(fits) == 0:
        return None
    anchor = int(heads[fits[0]])
    return anchor, int(heads[bound]) if reach else anchor + (-1 if down else 1)


def _results(
    sources: Sources, keys: Keys, some: np.ndarray, anchor: np.ndarray, *, since: np.ndarray, budget: Budget
) -> dict[int, np.ndarray]:
    """The results so far at the anchors."""
    nothing = np.full(len(some), MOST)
    at = Near(np.ones(len(some), np.bool_), np.where(some, anchor, nothing), np.where(some, anchor, nothing))
    rows = gathered_between(sources.results, keys, sources.result_columns, at, budget)
    results = {}
    for k in np.flatnonzero(some):
        span = slice(int(rows.offsets[k]), int(rows.offsets[k + 1]))
        words, times, diffs = rows.words[:, span], rows.times[0, span], rows.diffs[span]
        then = times <= since[k]
        words, diffs = words[:, then], diffs[then]
        order = np.lexsort(words[::-1])
        words, diffs = words[:, order], diffs[order]
        heads = np.flatnonzero(np.concatenate([np.ones(1, bool), (words[:, 1:] != words[:, :-1]).any(axis=0)]))
        results[int(k)] = words[:, heads[np.add.reduceat(diffs, heads) > 0]]
    return results
