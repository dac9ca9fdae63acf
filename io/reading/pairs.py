"""Pairs a delete with an insert of the same key, so that a difference reads as a change of cells.

Works on consolidated differences alone: where rows come from plays no part.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from ddcore.base.lazy import polars as pl
from ddcore.base.record import record
from ddcore.text.cells import cell, count

if TYPE_CHECKING:
    from ddcore.io.reading.sorted_rows import SortedRows

Row = tuple[Any, ...]


@record
class Change:
    """``times`` rows changed from ``before`` to ``after``; None before is an insert, None after a delete."""

    before: Row | None
    after: Row | None
    times: int = 1


def changes_of(pieces: Iterable[pl.DataFrame], numbers: Sequence[int]) -> Iterator[Change]:
    """The changes of frames whose last column is ``diff``; ``numbers`` are those of the key columns.

    The frames follow each other sorted by key, and then by all other columns.
    """
    return paired(((row[:-1], row[-1]) for piece in pieces for row in piece.iter_rows()), numbers)


def first_changes(rows: SortedRows, keys: Sequence[str], limit: int) -> Iterator[Change]:
    """The first changes, or all of them for a limit of 0; the rows are sorted by key.

    Of many rows, only the first are found: those of whole keys, of which the first changes are made.
    """
    numbers = [rows.columns.index(name) for name in keys]
    size = 2 * limit + 1  # a change ends one row or two
    while limit and rows.finds(size):
        head = rows.head(size)
        frames = [head] if len(head) < size or not keys else [*_by_key([head], keys)][:-1]
        changes = [*islice(changes_of(frames, numbers), limit)]
        if len(head) < size or len(changes) == limit:
            return iter(changes)
        size *= 8
    return islice(changes_of(rows, numbers), limit or None)


def number_of_changes(pieces: Iterable[pl.DataFrame], keys: Sequence[str], rows: int) -> int:
    """How many changes there are in frames as those of :func:`changes_of`, which have so many rows.

    Lay the deletes of a key one after another, each as long as its count, and the inserts beside them: a change ends
    where a row of either ends.
    """
    if not keys:
        return rows
    number = 0
    for piece in _by_key(pieces, keys):
        ends = pl.col("diff").abs().cast(pl.Int128).cum_sum().over(*keys, pl.col("diff") > 0).alias("diff")
        number += piece.lazy().select(*keys, ends).unique().select(pl.len()).collect().item()
    return number


def _by_key(pieces: Iterable[pl.DataFrame], keys: Sequence[str]) -> Iterator[pl.DataFrame]:
    """These rows in frames of which none ends within a key."""
    left: pl.DataFrame | None = None
    for piece in pieces:
        rows = piece if left is None else left.vstack(piece)
        last = rows.tail(1).select(keys)
        is_last = rows.select(keys).lazy().with_row_index("=").join(last.lazy(), on=list(keys), nulls_equal=True)
        first = is_last.select("=").min().collect().item() if len(rows) else None
        if first:
            yield rows[:first]
        left = rows if first is None else rows[first:]
    if left is not None and len(left):
        yield left


def paired(rows: Iterable[tuple[Row, int]], key: Sequence[int]) -> Iterator[Change]:
    """Changes from rows with their diffs; ``key`` holds the places of the key columns.

    Rows come sorted by key. Within a key the first delete is paired with the first insert, and so on; the rest stay
    single. With no key all rows stay single. Linear; holds the rows of one key at a time.
    """
    if not key:
        yield from (Change(None, row, diff) if diff > 0 else Change(row, None, -diff) for row, diff in rows)
        return
    for _, group in groupby(rows, key=lambda item: tuple(_same(item[0][at]) for at in key)):
        yield from _pairs(list(group))


def sign(change: Change) -> str:
    """``+``, ``-`` or ``~``, and how many rows if there are several."""
    mark = "+" if change.before is None else "-" if change.after is None else "~"
    return mark if change.times == 1 else f"{mark}{count(change.times)}"


def cells_of(change: Change) -> list[str]:
    """The cells of a change as people read them: ``3 -> 2`` where one changed."""
    if change.before is None or change.after is None:
        return [cell(value) for value in change.after or change.before or ()]
    pairs = [(cell(old), cell(new)) for old, new in zip(change.before, change.after, strict=True)]
    return [new if old == new else f"{old} -> {new}" for old, new in pairs]


def _pairs(group: list[tuple[Row, int]]) -> Iterator[Change]:
    deletes = deque((row, -diff) for row, diff in group if diff < 0)
    inserts = deque((row, diff) for row, diff in group if diff > 0)
    while deletes and inserts:
        (before, left), (after, right) = deletes.popleft(), inserts.popleft()
        times = min(left, right)
        yield Change(before, after, times)
        if left > times:
            deletes.appendleft((before, left - times))
        if right > times:
            inserts.appendleft((after, right - times))
    yield from (Change(row, None, times) for row, times in deletes)
    yield from (Change(None, row, times) for row, times in inserts)


def _same(value: Any) -> Any:
    if isinstance(value, list | dict):
        return [_same(item) for item in (value.values() if isinstance(value, dict) else value)]
    # NaN is equal to NaN here, and -0.0 to 0.0 by Python's own rule.
    return ("NaN",) if isinstance(value, float) and math.isnan(value) else value
