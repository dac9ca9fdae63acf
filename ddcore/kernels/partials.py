"""Partial results: few rows that stand for all rows of a group in an aggregate of several groups together.

The rows that stand for a group have one column for each aggregate, its number of rows and its numbers of values that
are not null; of a sum the first ones hold the sum, of a least value the first one holds it, and so on.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.aggregating import (
    COUNT_DISTINCT,
    FLOAT_MEAN,
    FLOAT_SUM,
    MAX,
    MIN,
    NEGATIVE,
    OVERFLOW,
    add_floats,
    distinct_values,
    exact_sum,
    extreme_word,
    value_orders,
)
from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.floats import LIMBS, clear, cut
from ddcore.kernels.group_rows import add_up_exactly, distinct_rows, note_negative, order_rows, room
from ddcore.kernels.means import DIGITS
from ddcore.kernels.time_columns import grow
from ddcore.kernels.wide import fits, triple_fits

_NULL = np.int64(-(2**63))
_PARTS = 48  # floats that a sum of floats is cut into: each has 53 of its 2,227 bits


@inline
def _sum_of(order, n, words, c, times, diffs, e_times, e, most, parts):  # type: ignore[no-untyped-def]
    """A sum of integers as the one value in ``parts``: 1, or -1 if a value of the column cannot hold it."""
    top, high, low = exact_sum(order, n, words, c, times, diffs, e_times, e)
    if not triple_fits(top, high, low):
        return -1
    total = np.int64(low)
    if total > most or total < -most:
        return -1
    parts[0] = total
    return 1


@inline
def _rows_of_all(kinds, columns, heads, m, words, counts, distinct, out, used, e):  # type: ignore[no-untyped-def]
    """The rows of a group as they are. Numbers of distinct values are in the first."""
    width, first = len(kinds), True
    for i in range(m):
        if counts[i] == 0:
            continue
        for copy in range(2 if first else 1):
            rest = np.int64(1) if first and copy == 0 else counts[i] - np.int64(first)
            if rest == 0:
                continue
            out[0, used], out[1, used] = e, rest
            for a in range(width):
                out[2 + a, used] = words[columns[a], heads[i]]
                if kinds[a] == COUNT_DISTINCT:
                    out[2 + a, used] = distinct[a] if first and copy == 0 else _NULL
            used += 1
        first = False
    return used


@inline
def _rows_in_place(parts, numbers, valued, total, out, used, e):  # type: ignore[no-untyped-def]
    """The rows that stand for a group: the first hold the parts, those after them 0 as long as there are values."""
    width, most = len(numbers), np.int64(0)
    for a in range(width):
        most = max(most, numbers[a])
    position = np.int64(0)
    while position < total:
        end = position + 1 if position < most else total
        for a in range(width):
            if position >= most and position < valued[a]:
                end = min(end, valued[a])
            out[2 + a, used] = np.int64(0) if position < valued[a] else _NULL
            if position < numbers[a]:
                out[2 + a, used] = parts[a, position]
        out[0, used], out[1, used] = e, end - position
        used += 1
        position = end
    return used


@kernel(
    several(OUT1, OUT1, OUT2, OUT1),
    INT, IN1, IN1, IN1, IN1, IN1, IN2, IN2, IN1, IN1, IN2,
)  # fmt: skip
def summarise(inputs, loops, kinds, columns, most, offsets, words, times, diffs, e_offsets, e_times):  # type: ignore[no-untyped-def]
    """The rows that stand for every key's rows at every evaluated version: eval number, count, words; and an error.

    ``kinds``: one aggregate for each column of the result, none that counts rows; ``columns``: their value columns;
    ``most``: the greatest number in a column. Counts below zero are an error.
    """
    keys, width = len(offsets) - 1, len(kinds)
    out = np.empty((2 + width, 64), dtype=np.int64)
    used = 0
    error = np.zeros(5, dtype=np.int64)
    limbs, digits = np.zeros(LIMBS, dtype=np.int64), np.zeros(DIGITS, dtype=np.int64)
    parts, numbers = np.empty((width, _PARTS), dtype=np.int64), np.empty(width, dtype=np.int64)
    valued, distinct = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    order, heads, member, counts, highs = room(offsets)
    for k in range(keys):
        if e_offsets[k] == e_offsets[k + 1]:
            continue
        n = order_rows(k, offsets, words, times, loops, inputs, order)
        m = distinct_rows(order, n, words, heads, member)
        turns, values = value_orders(kinds, columns, heads, m, words)
        for e in range(e_offsets[k], e_offsets[k + 1]):
            high, low, negative = add_up_exactly(order, n, member, m, times, diffs, e_times, e, counts, highs)
            if negative or not fits(high, low):
                error[0], error[1], error[2] = NEGATIVE if negative else OVERFLOW, k, e
                note_negative(False, m, counts, highs, error)
                return out[0, :used].copy(), out[1, :used].copy(), out[2:, :used].copy(), error
            total, possible = np.int64(low), True
            if total == 0:
                continue
            for a in range(width):
                kind, c = kinds[a], columns[a]
                valued[a] = 0
                for i in range(m):
                    if words[c, heads[i]] != _NULL:
                        valued[a] += counts[i]
                numbers[a] = min(valued[a], 1)
                if kind == COUNT_DISTINCT:
                    distinct[a] = distinct_values(turns[a], m, values[a], counts, highs, False)
                    parts[a, 0], valued[a] = distinct[a], numbers[a]
                elif kind == MIN or kind == MAX:
                    parts[a, 0], valued[a] = extreme_word(kind, heads, m, words, c, counts), numbers[a]
                elif kind == FLOAT_SUM or kind == FLOAT_MEAN:
                    start, end, special = add_floats(
                        order, n, words, c, times, diffs, e_times, e, heads, m, counts, False, limbs
                    )
                    parts[a, 0] = special
                    if special == 0 and end > 0:
                        numbers[a] = cut(limbs, digits, start, end, parts[a])
                    clear(limbs, 0, len(limbs))
                elif valued[a] > 0:
                    numbers[a] = _sum_of(order, n, words, c, times, diffs, e_times, e, most[a], parts[a])
                possible &= numbers[a] >= 0 and numbers[a] <= valued[a]
            while used + m + 1 + (2 + width) * _PARTS > out.shape[1]:
                out = grow(out, used)
            if possible:
                used = _rows_in_place(parts, numbers, valued, total, out, used, e)
            else:
                used = _rows_of_all(kinds, columns, heads, m, words, counts, distinct, out, used, e)
    return out[0, :used].copy(), out[1, :used].copy(), out[2:, :used].copy(), error
