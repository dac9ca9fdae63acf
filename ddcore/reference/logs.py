"""Logs: times, what a log adds up to at each of them, and the one log that adds up to given collections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product

import polars as pl

from ddcore.reference.rows import Row, Rows, canonical, nonzero, rows_of

Time = tuple[int, ...]


Log = dict[tuple[Row, Time], int]
"""A consolidated log: for each row and time its diff, never 0."""


def precedes(a: Time, b: Time) -> bool:
    """Whether ``a <= b`` in the product order: in every coordinate."""
    return all(x <= y for x, y in zip(a, b, strict=True))


def grid(times: Iterable[Time]) -> list[Time]:
    """Every combination of the coordinates that occur in ``times``, earlier ones before later ones.

    A collection can change only where some of its updates' times join, and the grid holds all joins of ``times``.
    Lexicographic order is one of the orders in which no time comes before one that precedes it.
    """
    coordinates = [sorted(set(axis)) for axis in zip(*times, strict=True)]
    return list(product(*coordinates)) if coordinates else []


def accumulate(frame: pl.DataFrame, time: Time, dims: Sequence[str]) -> Rows:
    """The collection at ``time``: of each row the sum of its diffs at times <= ``time``. Rows with sum 0 are absent."""
    columns = [name for name in frame.columns if name not in (*dims, "diff")]
    rows: Rows = Counter()
    for (row, when), diff in _updates(frame, columns, dims):
        if precedes(when, time):
            rows[row] += diff
    return nonzero(rows.items())


def differences(collection_at: Callable[[Time], Rows], times: Sequence[Time]) -> Log:
    """The one log whose accumulation at each of ``times`` is ``collection_at(time)`` (Moebius inversion).

    At each time: the collection there, minus the sum of the differences at earlier times.
    ``times`` holds the join of any two of its members, and no time before one that precedes it: see :func:`grid`.
    """
    log: Log = {}
    for time in times:
        change = Counter(collection_at(time))
        for (row, earlier), diff in log.items():
            if precedes(earlier, time):
                change[row] -= diff
        log |= {(row, time): diff for row, diff in change.items() if diff}
    return log


def log_of(frame: pl.DataFrame, dims: Sequence[str] = ("version",)) -> Log:
    """The log that a frame of updates (row columns, ``dims``, ``diff``) spells, consolidated."""
    columns = [name for name in frame.columns if name not in (*dims, "diff")]
    log: Counter[tuple[Row, Time]] = Counter()
    for update, diff in _updates(frame, columns, dims):
        log[update] += diff
    return {update: diff for update, diff in log.items() if diff}


def _updates(
    frame: pl.DataFrame, columns: Sequence[str], dims: Sequence[str]
) -> Iterable[tuple[tuple[Row, Time], int]]:
    for values in rows_of(frame.select(*columns, *dims, "diff")):
        row, time = values[: len(columns)], values[len(columns) : -1]
        yield (canonical(row), time), values[-1]
