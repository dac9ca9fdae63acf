"""Updates in groups of equal rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddcore.base.lazy import numpy as np
from ddcore.operators.block import Rounds
from ddcore.traces.batch import Batch


def by_rounds(batch: Batch, inputs: int) -> Iterator[tuple[Rounds, Batch]]:
    """The batch cut by loop coordinates."""
    for rounds, rows in groups(batch.times[inputs:], len(batch)):
        yield rounds, batch if rows is None else batch.take(rows)


def groups(columns: Sequence[np.ndarray], n: int) -> Iterator[tuple[Rounds, np.ndarray | None]]:
    """Distinct settings of the columns, with the row numbers of each, None for all: O(n) where all are alike, else a
    sort.
    """
    if n == 0:
        return
    if not columns:
        yield (), None
        return
    if len(columns) == 1 and not np.count_nonzero(columns[0] != columns[0][0]):
        yield (int(columns[0][0]),), None
        return
    if n == 1 or all(column[0] == column[-1] and not np.count_nonzero(column != column[0]) for column in columns):
        yield tuple(int(column[0]) for column in columns), None
        return
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    changes = np.zeros(n - 1, dtype=bool)
    for column in ordered:
        changes |= column[1:] != column[:-1]
    for rows in np.split(order, np.flatnonzero(changes) + 1):
        yield tuple(int(column[rows[0]]) for column in columns), np.sort(rows)
