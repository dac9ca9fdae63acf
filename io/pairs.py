"""Pairs a delete with an insert of the same key, so that a difference reads as a change of cells.

Works on consolidated differences alone: where rows come from plays no part.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ddcore.cells import cell, count

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Change", "cells_of", "changes_of", "paired", "sign"]

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """``times`` rows changed from ``before`` to ``after``; None before is an insert, None after a delete."""

    before: Row | None
    after: Row | None
    times: int = 1


def changes_of(rows: pl.DataFrame, places: list[int]) -> Iterator[Change]:
    """The changes of a frame whose last column is ``diff``; ``places`` are those of the key columns."""
    names = rows.columns[:-1]
    keys = [names[place] for place in places]
    ordered = rows.sort([*keys, *(name for name in names if name not in keys)])
    return paired(((row[:-1], row[-1]) for row in ordered.iter_rows()), places)


def paired(rows: Iterable[tuple[Row, int]], key: Sequence[int]) -> Iterator[Change]:
    """Changes from rows with their diffs; ``key`` holds the places of the key columns.

    Rows come sorted by key. Within a key the first delete is paired with the first insert, and so on; the rest stay
    single. With no key all rows stay single. Linear; holds the rows of one key at a time.
    """
    if not key:
        yield from (Change(None, row, diff) if diff > 0 else Change(row, None, -diff) for row, diff in rows)
        return
    for _, group in groupby(rows, key=lambda item: tuple(_same(item[0][place]) for place in key)):
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
        return [_same(each) for each in (value.values() if isinstance(value, dict) else value)]
    # NaN is equal to NaN here, and -0.0 to 0.0 by Python's own rule.
    return ("NaN",) if isinstance(value, float) and math.isnan(value) else value
