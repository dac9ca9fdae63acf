"""Traces: the history of one arrangement as a few sorted batches, with look-up by key.

A :class:`Trace` keeps few batches: it merges small ones as it grows, with history only as far as it can still be told
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TypeAlias

from ddcore import kernels
from ddcore.base.lazy import numpy as np
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns
from ddcore.traces.consolidation import merge, union
from ddcore.traces.sorted_batch import ColumnBatch, Searched, SortedBatch, Spans

_SIX = 6  # batches that are searched together, at most
_WORTH = 3  # and at least, beside others
_SEVERAL = 2  # batches with rows of some keys, of which rows of one may cancel rows of another

Stored: TypeAlias = Sequence[SortedBatch] | Callable[[], Sequence[SortedBatch]]
"""The batches of earlier folds, or what opens them."""


@dataclass(slots=True)
class Keys:
    """Distinct keys by ascending code: ``codes`` int64[m], ``words`` (K, m); K is 0 for direct keys."""

    codes: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def part(self, start: int, stop: int) -> Keys:
        """Keys number ``start`` to ``stop``."""
        return Keys(self.codes[start:stop], np.ascontiguousarray(self.words[:, start:stop]))


@dataclass(slots=True)
class Rows:
    """The rows of many keys, one after another: key k's are ``offsets[k]:offsets[k + 1]``; words are values only."""

    offsets: np.ndarray
    words: np.ndarray
    times: np.ndarray
    diffs: np.ndarray

    def of(self, keys: np.ndarray) -> Rows:
        """The rows of some keys, by number."""
        offsets, rows = chosen(self.offsets, keys)
        return Rows(offsets, *(np.take(columns, rows, axis=-1) for columns in (self.words, self.times, self.diffs)))


class Trace:
    """The sorted batches of one arrangement, oldest first. Append is amortised O(log n) a row.

    Two things grow with a fold. The *working index* is for look-ups: it is merged as it grows, at times that no work
    left in the fold can tell from the true ones. The *originals* keep their times, for :meth:`settle`: batches that
    the index has as they are, those that it has merged, in few bytes, and recent ones of few rows, of which many become
    one.
    ``apart``: readers tell the newest batch from those before it, which is then not merged yet.
    ``stored``: the batches of earlier folds. They are opened when something is looked up: of the arrangements that a
    small fold changes half are not, because nothing arrives at the other side of a join.
    """

    def __init__(self, stored: Stored = (), budget: Budget = ALONE, *, apart: bool = True) -> None:
        self._budget = budget
        self._opens = stored if callable(stored) else None
        self._opening = Lock()
        self._opened = [] if callable(stored) else list(stored)  # those in files are never merged here
        self.was_read = False  # since it was made
        self._settled: list[SortedBatch] = []  # by this process, after those
        self.apart = apart
        self._index: list[SortedBatch] = []
        self._indexed: dict[int, SortedBatch] = {}  # by identity
        self._merged: list[Columns] = []
        self._recent: list[SortedBatch] = []
        self._recent_rows = 0

    @property
    def opened(self) -> Sequence[SortedBatch]:
        """The batches of earlier folds that were opened."""
        return self._opened

    def recall(self, opened: Sequence[SortedBatch], settled: Sequence[SortedBatch]) -> None:
        """Take what :meth:`known` gave in the fold before for what is stored. Nothing was looked up yet."""
        self._opens, self._opened, self._settled = None, [*opened], [*settled]

    def known(self) -> tuple[list[SortedBatch], list[SortedBatch]] | None:
        """All batches of earlier folds: those of which rows lie in files, and those in memory. None where some were not
        opened. To be called between two folds.
        """
        if self._opens is not None:
            return None
        opened, settled = list[SortedBatch](), list[SortedBatch]()
        for batch in self._opened:
            loaded = batch.loaded()
            if loaded is None:
                opened.append(batch)
            else:
                settled.append(loaded)
        return opened, [*settled, *self._settled]

    @property
    def stored(self) -> list[SortedBatch]:
        """All batches of earlier folds, oldest first. Several threads may ask."""
        self.was_read = True
        if self._opens is not None:
            with self._opening:
                if self._opens is not None:
                    self._opened = list(self._opens())
                    self._opens = None
        return self._opened + self._settled

    @property
    def batches(self) -> list[SortedBatch]:
        """All batches, oldest first: those stored and the working index."""
        if self._opens is not None:
            return self.stored + self._index
        self.was_read = True
        return [*self._opened, *self._settled, *self._index]

    @property
    def has_new(self) -> bool:
        """Whether there are updates of this fold."""
        return bool(self._index)

    def append(self, batch: SortedBatch, frontier: np.ndarray | None = None) -> None:
        """Add the newest batch, and merge batches of similar sizes.

        All later look-ups in this fold are for times at or beyond ``frontier`` (coordinates, elements).
        """
        self._keep(batch)
        if not self.apart:
            self._index.append(batch)
        while len(self._index) > 1 and self._are_alike(self._index[-2], self._index[-1]):
            last, before = self._index.pop(), self._index.pop()
            self._index.append(merge(before, last, frontier, self._budget))
            for original in (last, before):
                if self._indexed.pop(id(original), None) is not None:
                    self._merged.append(self._compressed(original))
        if self.apart:
            self._index.append(batch)

    def _keep(self, batch: SortedBatch) -> None:
        """Add an original."""
        if len(batch) >= self._budget.tuning.original_rows:
            self._indexed[id(batch)] = batch
            return
        self._recent.append(batch)
        self._recent_rows += len(batch)
        if self._recent_rows >= self._budget.tuning.recent_rows:
            recent = union([run.columns() for run in self._recent], batch.width, self._budget)
            self._merged.append(self._compressed(recent))
            self._recent, self._recent_rows = [], 0

    def settle(self) -> SortedBatch | None:
        """The updates of this fold at their own times as one batch, or None if there are none; they count as stored
        from now on. Batches of this process are merged, so that a thousand folds do not leave a thousand to search.
        """
        if not self._index:
            return None
        whole = [*self._indexed.values(), *self._recent]
        if len(whole) == 1 and not self._merged:
            gained = whole[0]
        else:
            pieces = [*self._merged, *(batch.columns() for batch in whole)]
            gained = union(pieces, self._index[0].width, self._budget)
        self._index, self._merged, self._recent, self._recent_rows = [], [], [], 0
        self._indexed.clear()
        if len(gained) == 0:
            return None
        settled, merged = self._settled, gained
        while settled and self._are_alike(settled[-1], merged):
            merged = merge(settled.pop(), merged, None, self._budget)
        settled.append(merged)
        return gained

    def memory(self) -> int:
        """The bytes that its batches take, with what was read of stored ones. O(batches)."""
        whole = [*self._opened, *self._settled, *self._index, *self._recent, *self._indexed.values()]
        batches = {id(batch): batch for batch in whole}
        return sum(batch.memory() for batch in batches.values()) + sum(columns.memory() for columns in self._merged)

    def before(self, newest: SortedBatch | None) -> list[SortedBatch]:
        """All batches but ``newest``, for readers that tell it ``apart``."""
        return [batch for batch in self.batches if batch is not newest]

    def _are_alike(self, older: SortedBatch, newer: SortedBatch) -> bool:
        """Whether two batches are merged: of similar sizes, or both of so few rows that one search costs more."""
        return 2 * len(newer) >= len(older) or len(older) + len(newer) <= self._budget.tuning.merged_rows

    def _compressed(self, batch: SortedBatch) -> Columns:
        """The columns of a batch in few bytes; those of many rows, where memory is limited, are in a file already."""
        columns = batch.columns()
        return columns if len(batch) > self._budget.memory.rows else columns.compress(self._budget)


def distinct_keys(batch: SortedBatch, key_words: int) -> tuple[Keys, np.ndarray]:
    """The keys of a consolidated batch, and where the rows of each start (int64[m + 1])."""
    batch = batch.decompress()
    starts = kernels.look_up.group_starts(batch.codes, batch.words, key_words)
    heads = starts[:-1]
    return Keys(batch.codes[heads], np.ascontiguousarray(batch.words[:key_words, heads])), starts


def chosen(offsets: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of some of the groups ``offsets[g]:offsets[g + 1]``, put one after another: their offsets, and their rows."""
    sizes = (offsets[1:] - offsets[:-1])[groups]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return starts, np.arange(starts[-1]) + np.repeat(offsets[groups] - starts[:-1], sizes)


def gather(
    batches: Sequence[SortedBatch], keys: Keys, values: int, depth: int, frontier: np.ndarray | None = None,
    *, budget: Budget = ALONE,
) -> Rows:  # fmt: skip
    """All rows of the keys in all batches: ``values`` words and ``depth`` time coordinates each.

    A batch with fewer coordinates (an arrangement of an outer scope) reads as if at round 0. With a ``frontier``
    (coordinates, elements) long histories in several batches are at the representatives of their times beyond it, and
    added up.
    """
    others, six = _divided(batches, len(keys), budget)
    found: list[tuple[_Source, Spans]] = [
        some for batch in others if (some := batch.find(keys.codes, keys.words, budget)) is not None
    ]
    long = budget.tuning.long_history
    if not found and six is not None:
        rows, sources, most = six.rows(keys, values, depth)
        if (
            frontier is None
            or sources < _SEVERAL
            or most < long
            or not _has_long_histories(np.diff(rows.offsets), long)
        ):
            return rows
        return _compact(rows, frontier)
    sources = len(found)
    if six is not None:
        spans, bits = six.find(keys)
        sources += bits.bit_count()
        if bits:
            found.append((six, spans))
    counts = _counts(found, keys)
    if frontier is not None and not _has_long_histories(counts, long):
        frontier = None
    if frontier is not None and frontier.shape[1] == 1:
        found, whole = _collapsed(found, frontier[:, 0])
        counts = _counts(found, keys)
        frontier = None if whole else frontier  # hardly any row of one batch cancels one of another
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    at, table = offsets[:-1].copy(), np.empty((values + depth + 1, int(offsets[-1])), dtype=np.int64)
    for source, spans in found:
        source.scatter(at, table, values, keys.words, spans)
    rows = Rows(offsets, table[:values], table[values:-1], table[-1])
    if frontier is None or sources < _SEVERAL or not _has_long_histories(counts, long):
        return rows
    return _compact(rows, frontier)


def _compact(rows: Rows, frontier: np.ndarray) -> Rows:
    """Long histories at the representatives of their times, added up."""
    return Rows(*kernels.look_up.compact(rows.offsets, rows.words, rows.times, rows.diffs, frontier))


def located(
    batches: Sequence[SortedBatch], keys: Keys, budget: Budget = ALONE
) -> Iterator[tuple[ColumnBatch, np.ndarray, np.ndarray]]:
    """Of each batch that has rows with the codes of the keys: at least these, as columns, and their spans there."""
    others, six = _divided(batches, len(keys), budget)
    for batch in others:
        lo, hi = batch.locate(keys.codes, budget)
        if np.count_nonzero(hi > lo):
            yield batch.located(lo, hi)
    if six is not None:
        yield from six.located(keys)


def _divided(batches: Sequence[SortedBatch], keys: int, budget: Budget) -> tuple[Sequence[SortedBatch], _Six | None]:
    """The batches that are searched one by one, for so many keys, and those that are searched together: all that lie
    in arrays, unless they are so few beside others that this takes no fewer calls.
    """
    arrays = [batch for batch in batches if not batch.is_encoded and not batch.is_stored]
    if not arrays or (len(arrays) < min(len(batches), _WORTH)):
        return batches, None
    others = [batch for batch in batches if batch.is_encoded or batch.is_stored] if len(arrays) < len(batches) else []
    return [*others, *arrays[_SIX:]], _Six([batch.searched(keys, budget) for batch in arrays[:_SIX]])


_Source: TypeAlias = "SortedBatch | _Six"
"""What has rows of keys: a batch, or several that are searched together."""


class _Six:
    """Up to six batches of arrays that are searched together, in one call for all of them."""

    __slots__ = ("_batches", "_counts", "_positions", "_starts", "_tables")

    def __init__(self, batches: Sequence[Searched]) -> None:
        self._batches, filled = batches, [*batches, *[_nothing()] * (_SIX - len(batches))]
        self._tables, self._starts = [index.table for index in filled], [index.starts for index in filled]
        self._positions = np.array([index.position for index in filled], dtype=np.int64)

    def rows(self, keys: Keys, values: int, depth: int) -> tuple[Rows, int, int]:
        """The rows of the keys, how many of the batches have some, and how many rows a key has at most."""
        offsets, table, bits, most = kernels.look_up.rows_in_six(
            *self._tables, *self._starts, self._positions, keys.codes, keys.words, values + depth + 1
        )
        return Rows(offsets, table[:values], table[values:-1], table[-1]), bits.bit_count(), most

    def find(self, keys: Keys) -> tuple[Spans, int]:
        """The spans of the keys, for the other methods, and a bit for each batch that has rows of them."""
        spans, self._counts, bits = kernels.look_up.find_in_six(
            *self._tables, *self._starts, self._positions, keys.codes, keys.words
        )
        return (spans, spans), bits

    def located(self, keys: Keys) -> Iterator[tuple[ColumnBatch, np.ndarray, np.ndarray]]:
        """Of each batch that has rows of the keys the spans of these."""
        (spans, _), bits = self.find(keys)
        for number, batch in enumerate(self._batches):
            if bits >> number & 1:
                yield batch.batch, spans[2 * number], spans[2 * number + 1]

    def count(self, counts: np.ndarray, keys: np.ndarray, spans: Spans) -> None:
        """Add to ``counts`` how many rows each key has."""
        counts += self._counts

    def scatter(self, at: np.ndarray, out: np.ndarray, values: int, keys: np.ndarray, spans: Spans) -> None:
        """Copy the rows of each key."""
        kernels.look_up.copy_from_six(at, out, spans[0], *self._tables, len(keys))

    def collapsed(self, spans: Spans, since: np.ndarray) -> None:
        """None: it takes a sort."""


@cache
def _nothing() -> Searched:
    """In the place of a batch."""
    batch = ColumnBatch.of(np.empty((2, 0), dtype=np.int64), 0)
    return Searched(batch, batch.table, np.zeros(2, dtype=np.int64), (0, 0))


def _counts(found: Sequence[tuple[_Source, Spans]], keys: Keys) -> np.ndarray:
    """How many rows each key has in all batches."""
    counts = np.zeros(len(keys), dtype=np.int64)
    for batch, spans in found:
        batch.count(counts, keys.words, spans)
    return counts


def _collapsed(found: Sequence[tuple[_Source, Spans]], since: np.ndarray) -> tuple[list[tuple[_Source, Spans]], bool]:
    """The rows of batches at the joins of their times with ``since``, added up as far as they are neighbours; and
    whether all batches can do this.
    """
    collapsed = [batch.collapsed(spans, since) for batch, spans in found]
    some: list[tuple[_Source, Spans]] = [
        before if after is None else after for before, after in zip(found, collapsed, strict=True)
    ]
    return some, all(run is not None for run in collapsed)


def _has_long_histories(counts: np.ndarray, long: int) -> bool:
    """Whether adding rows up pays: a quarter of all rows belongs to keys with many. Of few rows hardly any meet."""
    if len(counts) == 0 or counts.max() < long:
        return False
    return 4 * int(counts[counts >= long].sum()) > int(counts.sum())
