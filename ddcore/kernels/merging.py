"""Sorted batches as one, and few updates sorted, by comparing rows: for columns that no integer holds together."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import BOOL, IN1, IN2, INT, OUT2, inline, kernel, several
from ddcore.kernels.sorting import add, same, sort_rows, sum_sorted
from ddcore.kernels.time_columns import representative


@inline
def _order(a, i, b, j):  # type: ignore[no-untyped-def]
    """Negative, 0 or positive: row i of a table comes before row j of another, is equal to it, or comes after it; by
    all columns but the last.
    """
    for c in range(a.shape[0] - 1):
        if a[c, i] != b[c, j]:
            return -1 if a[c, i] < b[c, j] else 1
    return 0


@inline
def _copy(target, at, source, first, last):  # type: ignore[no-untyped-def]
    for c in range(target.shape[0]):
        for i in range(last - first):
            target[c, at + i] = source[c, first + i]
    return at + last - first


@inline
def _not_before(a, i, b, j):  # type: ignore[no-untyped-def]
    """The first row of a sorted table, from row i on, that does not come before row j of another: in a time that grows
    with the logarithm of the rows between.
    """
    n, step = a.shape[1], 1
    while i + step <= n and _order(a, i + step - 1, b, j) < 0:
        i += step
        step *= 2
    last = min(i + step - 1, n)
    while i < last:
        middle = (i + last) >> 1
        if _order(a, middle, b, j) < 0:
            i = middle + 1
        else:
            last = middle
    return i


@inline
def _merged(a, b, adds):  # type: ignore[no-untyped-def]
    """The rows of two sorted tables, sorted; equal ones are added up if ``adds``, where int64 holds the sum."""
    na, last = a.shape[1], a.shape[0] - 1
    rows = np.empty((a.shape[0], na + b.shape[1]), dtype=np.int64)
    i, m = 0, 0
    for j in range(b.shape[1]):
        stop = _not_before(a, i, b, j)
        m = _copy(rows, m, a, i, stop)
        i = stop
        if adds and i < na and _order(a, i, b, j) == 0:
            total, bad = add(a[last, i], b[last, j])
            if not bad:
                if total != 0:
                    m = _copy(rows, m, a, i, i + 1)
                    rows[last, m - 1] = total
                i += 1
                continue
        m = _copy(rows, m, b, j, j + 1)
    m = _copy(rows, m, a, i, na)
    return rows if m == rows.shape[1] else rows[:, :m].copy()


@inline
def _advance(rows, first, frontier):  # type: ignore[no-untyped-def]
    """Times, from column ``first`` on, become their representatives beyond the frontier (coordinates, elements)."""
    for c in range(frontier.shape[0]):
        for i in range(rows.shape[1]):
            rows[first + c, i] = representative(rows[first + c, i], frontier, c)


@inline
def _summed(rows, order):  # type: ignore[no-untyped-def]
    """The rows in an order in which they are sorted, equal ones added up, without sums of zero; and whether int64 could
    not hold a sum. Such rows stay apart.
    """
    n, last = len(order), rows.shape[0] - 1
    kept, sums = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    m, overflow = sum_sorted(order, 0, n, rows[:last], rows[last], kept, sums, 0)
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
    if a.shape[1] < b.shape[1]:
        a, b = b, a
    rows = _merged(a, b, frontier.shape[1] == 0)
    if frontier.shape[1] == 0:
        return rows
    n, start = rows.shape[1], 0
    order, columns = np.arange(n), rows[: rows.shape[0] - 1]
    _advance(rows, first, frontier)
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
