"""The rows of a key: in order, numbered where they are distinct, and added up at an evaluation."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import inline
from ddcore.kernels.sorting import same, sort_rows
from ddcore.kernels.time_columns import holds, inside
from ddcore.kernels.wide import add_pair

FEW_ROWS = 2**22
_SMALL_DIFF = np.int64(2**40)  # with at most FEW_ROWS of them, no sum of diffs leaves int64


@inline
def room(offsets):  # type: ignore[no-untyped-def]
    """Arrays for the key with the most rows: their order, the first of each distinct row, the number of each, and the
    two words of counts.
    """
    most = np.int64(0)
    for k in range(len(offsets) - 1):
        most = max(most, offsets[k + 1] - offsets[k])
    order, heads, member = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    return order, heads, member, np.empty(most, np.int64), np.empty(most, np.int64)


@inline
def order_rows(k, offsets, words, times, loops, inputs, order):  # type: ignore[no-untyped-def]
    """Row numbers of key k at or before ``loops``, sorted by value; returns their number."""
    n = 0
    for row in range(offsets[k], offsets[k + 1]):
        if inside(times, row, loops, inputs):
            order[n] = row
            n += 1
    sort_rows(order, 0, n, words)
    return n


@inline
def are_small(diffs):  # type: ignore[no-untyped-def]
    """Whether no sum of ``FEW_ROWS`` of these diffs can overflow int64."""
    least, most = np.int64(0), np.int64(0)
    for i in range(len(diffs)):
        least, most = min(least, diffs[i]), max(most, diffs[i])
    return most <= _SMALL_DIFF and least >= -_SMALL_DIFF


@inline
def add_up(order, n, member, m, times, diffs, e_times, e, counts):  # type: ignore[no-untyped-def]
    """The counts of a key's distinct rows at one evaluation, their total and the least; diffs are small."""
    for i in range(m):
        counts[i] = 0
    total, least = np.int64(0), np.int64(0)
    for i in range(n):
        if holds(times, order[i], e_times, e):
            counts[member[i]] += diffs[order[i]]
            total += diffs[order[i]]
    for i in range(m):
        least = min(least, counts[i])
    return total, least


@inline
def add_up_exactly(order, n, member, m, times, diffs, e_times, e, counts, highs):  # type: ignore[no-untyped-def]
    """The same in two words: counts and ``highs``, the total as a pair, and whether a count is below zero."""
    for i in range(m):
        counts[i], highs[i] = 0, 0
    high, low = np.int64(0), np.uint64(0)
    for i in range(n):
        if holds(times, order[i], e_times, e):
            at = member[i]
            highs[at], count = add_pair(highs[at], np.uint64(counts[at]), diffs[order[i]])
            counts[at] = np.int64(count)
            high, low = add_pair(high, low, diffs[order[i]])
    negative = False
    for i in range(m):
        negative |= highs[i] < 0
    return high, low, negative


@inline
def note_negative(small, m, counts, highs, error):  # type: ignore[no-untyped-def]
    """The first count below zero, for the message."""
    for i in range(m):
        if (counts[i] < 0) if small else (highs[i] < 0):
            error[3], error[4] = counts[i], np.int64(-1) if small else highs[i]
            return


@inline
def add_count(high, low, counts, highs, i, small):  # type: ignore[no-untyped-def]
    """A pair plus count ``i``, which is one word where counts are small, else two."""
    if small:
        return add_pair(high, low, counts[i])
    total = low + np.uint64(counts[i])
    return high + highs[i] + np.int64(total < low), total


@inline
def distinct_rows(order, n, words, heads, member):  # type: ignore[no-untyped-def]
    """Number the distinct rows among ``order[:n]``: their first rows to heads, each row's number to member."""
    m = 0
    for i in range(n):
        if i == 0 or not same(words, order[i], order[i - 1]):
            heads[m] = order[i]
            m += 1
        member[i] = m - 1
    return m


@inline
def by_version(order, n, times):  # type: ignore[no-untyped-def]
    """The places in ``order`` sorted by version, and the versions."""
    versions = np.empty((1, n), dtype=np.int64)
    turn = np.empty(n, dtype=np.int64)
    for i in range(n):
        versions[0, i], turn[i] = times[0, order[i]], i
    sort_rows(turn, 0, n, versions)
    return versions, turn


@inline
def sign_of(highs, counts, i):  # type: ignore[no-untyped-def]
    """The sign of a count of two words: -1, 0 or 1."""
    if highs[i] != 0:
        return np.int64(-1) if highs[i] < 0 else np.int64(1)
    return np.int64(counts[i] != 0)
