"""Sorted batches as one, and few updates sorted, by comparing rows: for columns that no integer holds together."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import BOOL, IN1, IN2, INT, OUT2, inline, kernel, several
from ddcore.kernels.sorting import add, same, sort_rows


@inline
def _comes_first(a, i, b, j):  # type: ignore[no-untyped-def]
    """Whether row i of a table comes before row j of another or is equal to it, column by column but the last."""
    for c in range(a.shape[0] - 1):
        if a[c, i] != b[c, j]:
            return a[c, i] < b[c, j]
    return True


@inline
def _merged(a, b):  # type: ignore[no-untyped-def]
    """The rows of two sorted tables, sorted; none are added up."""
    na, nb = a.shape[1], b.shape[1]
    rows = np.empty((a.shape[0], na + nb), dtype=np.int64)
    i, j = 0, 0
    for at in range(na + nb):
        if j == nb or (i < na and _comes_first(a, i, b, j)):
            for c in range(rows.shape[0]):
                rows[c, at] = a[c, i]
            i += 1
        else:
            for c in range(rows.shape[0]):
                rows[c, at] = b[c, j]
            j += 1
    return rows


@inline
def _advance(rows, first, frontier):  # type: ignore[no-untyped-def]
    """Times, from column ``first`` on, become their representatives beyond the frontier (coordinates, elements)."""
    for c in range(frontier.shape[0]):
        for i in range(rows.shape[1]):
            value = rows[first + c, i]
            least = max(value, frontier[c, 0])
            for element in range(1, frontier.shape[1]):
                least = min(least, max(value, frontier[c, element]))
            rows[first + c, i] = least


@inline
def _summed(rows, order):  # type: ignore[no-untyped-def]
    """The rows in an order in which they are sorted, equal ones added up, without sums of zero; and whether int64 could
    not hold a sum. Such rows stay apart.
    """
    n, last, m, i, overflow = len(order), rows.shape[0] - 1, 0, 0, False
    kept, sums = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    columns = rows[:last]
    while i < n:
        row, total = order[i], rows[last, order[i]]
        i += 1
        while i < n and same(columns, order[i], row):
            together, bad = add(total, rows[last, order[i]])
            if bad:
                overflow = True
                kept[m], sums[m] = row, total
                m += 1
                together = rows[last, order[i]]
            total = together
            i += 1
        if total != 0:
            kept[m], sums[m] = row, total
            m += 1
    out = np.empty((rows.shape[0], m), dtype=np.int64)
    for c in range(last):
        for i in range(m):
            out[c, i] = rows[c, kept[i]]
    out[last] = sums[:m]
    return out, overflow


@kernel(OUT2, IN2, IN2, INT, IN2)
def united(a, b, first, frontier):  # type: ignore[no-untyped-def]
    """Two sorted batches as one: int64 (columns, m), of which the last has the diffs. Equal updates are added up; where
    int64 cannot hold a sum, they stay apart. Times, from column ``first`` on, become their representatives beyond the
    frontier (coordinates, elements), if it has elements.
    """
    rows = _merged(a, b)
    n = rows.shape[1]
    order = np.arange(n)
    if frontier.shape[1]:
        _advance(rows, first, frontier)
        columns, start = rows[: rows.shape[0] - 1], 0
        for i in range(1, n + 1):  # only times have moved: rows of other words keep their order
            if i == n or not same(rows[:first], i, start):
                if i - start > 1:
                    sort_rows(order, start, i, columns)
                start = i
    return _summed(rows, order)[0]


@kernel(several(BOOL, OUT2), IN1, IN2)
def arranged(codes, updates):  # type: ignore[no-untyped-def]
    """Few updates sorted by their codes and columns, and added up: (1 + columns, m), with the codes in the first; and
    whether int64 holds all sums.
    """
    n = len(codes)
    rows = np.empty((1 + updates.shape[0], n), dtype=np.int64)
    rows[0] = codes
    rows[1:] = updates
    order = np.arange(n)
    sort_rows(order, 0, n, rows[: updates.shape[0]])
    out, overflow = _summed(rows, order)
    return not overflow, out
