"""What holds for a key at each version that is evaluated: its aggregates, or all of its rows.

Rows are gathered by key: ``offsets[k]:offsets[k + 1]`` are key k's. Where versions form a chain and a group is large
it is swept once; else each evaluation looks at all rows of the key.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.floats import float_sum
from ddcore.kernels.points import grown, holds, inside
from ddcore.kernels.sorting import add, multiply, same, sort_rows

_NULL = np.int64(-(2**63))
_SWEEP_FROM = 2048  # rows x times of a key beyond which sweeping pays for its bookkeeping

COUNT, SUM, MIN, MAX, FLOAT_SUM = 0, 1, 2, 3, 4
NEGATIVE, OVERFLOW = 1, 2


@inline
def _order_rows(k, offsets, words, times, loops, inputs, order):  # type: ignore[no-untyped-def]
    """Row numbers of key k at or before ``loops``, sorted by value; returns how many."""
    n = 0
    for row in range(offsets[k], offsets[k + 1]):
        if inside(times, row, loops, inputs):
            order[n] = row
            n += 1
    sort_rows(order, 0, n, words)
    return n


@inline
def _summarise(kinds, columns, order, counts, n, words, results, e):  # type: ignore[no-untyped-def]
    """All aggregates of one group at one time: distinct rows ``order[:n]`` with their counts.

    Returns whether a sum overflowed.
    """
    overflow = False
    for a in range(len(kinds)):
        kind, c = kinds[a], columns[a]
        if kind == FLOAT_SUM:
            results[a, e] = float_sum(order, counts, n, words, c)
            continue
        total, best = np.int64(0), _NULL
        for i in range(n):
            if kind == COUNT:
                total, bad = add(total, counts[i])
                overflow |= bad
                continue
            word = words[c, order[i]]
            if word == _NULL:
                continue
            if kind == SUM:
                part, bad = multiply(word, counts[i])
                total, worse = add(total, part)
                overflow |= bad or worse
            elif counts[i] > 0 and (best == _NULL or (word < best if kind == MIN else word > best)):
                best = word
        results[a, e] = total if kind == COUNT or kind == SUM else best
        overflow |= (kind == COUNT or kind == SUM) and total == _NULL  # the word of null
    return overflow


@inline
def _distinct_rows(order, n, words, heads, member):  # type: ignore[no-untyped-def]
    """Number the distinct rows among ``order[:n]``: their first rows to heads, each row's number to member."""
    m = 0
    for i in range(n):
        if i == 0 or not same(words, order[i], order[i - 1]):
            heads[m] = order[i]
            m += 1
        member[i] = m - 1
    return m


@inline
def _presence(total, positives, linear, extreme, distinct, allow):  # type: ignore[no-untyped-def]
    if distinct or not allow:
        return positives > 0
    return (total != 0 or not linear) and (positives > 0 or not extreme)


@inline
def _sweep(  # type: ignore[no-untyped-def]
    kinds, columns, order, n, member, heads, m, counts, words, times, diffs, e_times, e0, e1, allow, linear, results,
    present, wrong,
):  # fmt: skip
    """One pass over the versions of a large group with at most one aggregate: each row is applied once."""
    by_version = np.empty((1, n), dtype=np.int64)
    turn = np.empty(n, dtype=np.int64)
    for i in range(n):
        by_version[0, i], turn[i] = times[0, order[i]], i
    sort_rows(turn, 0, n, by_version)
    for i in range(m):
        counts[i] = 0
    kind = kinds[0] if len(kinds) == 1 else COUNT
    column = columns[0] if len(kinds) == 1 else 0
    total, running, positives, negatives = np.int64(0), np.int64(0), 0, 0
    low, high, at = 0, m - 1, 0
    ordered = column == 0  # rows are sorted by their first value column
    for e in range(e0, e1):
        while at < n and by_version[0, turn[at]] <= e_times[0, e]:
            i = turn[at]
            number, diff = member[i], diffs[order[i]]
            at += 1
            positives -= counts[number] > 0
            negatives -= counts[number] < 0
            counts[number], bad = add(counts[number], diff)
            positives += counts[number] > 0
            negatives += counts[number] < 0
            total, worse = add(total, diff)
            if kind == SUM and words[column, heads[number]] != _NULL:
                part, over = multiply(words[column, heads[number]], diff)
                running, more = add(running, part)
                bad = bad or over or more
            if bad or worse:
                wrong[0], wrong[2] = OVERFLOW, e
                return
            low, high = min(low, number), max(high, number)
        if negatives > 0 and not allow:
            wrong[0], wrong[2] = NEGATIVE, e
            for i in range(m):
                if counts[i] < 0:
                    wrong[3] = counts[i]
            return
        present[e] = _presence(total, positives, linear, not linear, len(kinds) == 0, allow)
        if not present[e] or len(kinds) == 0:
            continue
        if kind == COUNT or kind == SUM:
            results[0, e] = total if kind == COUNT else running
            if results[0, e] == _NULL:
                wrong[0], wrong[2] = OVERFLOW, e
                return
        elif ordered and kind == MIN:
            while low < m and (counts[low] <= 0 or words[0, heads[low]] == _NULL):
                low += 1
            results[0, e] = words[0, heads[low]] if low < m else _NULL
        elif ordered and kind == MAX:
            while high >= 0 and counts[high] <= 0:
                high -= 1
            results[0, e] = words[0, heads[high]] if high >= 0 else _NULL
        else:
            _summarise(kinds, columns, heads, counts, m, words, results, e)


@kernel(
    several(OUT2, OUT1, OUT1),
    INT, IN1, IN1, IN1, IN1, IN2, IN2, IN1, IN1, IN2, types.boolean,
)  # fmt: skip
def aggregate(inputs, loops, kinds, columns, offsets, words, times, diffs, e_offsets, e_times, allow):  # type: ignore[no-untyped-def]
    """Aggregates of every key at every evaluated version.

    Returns results (aggregates, evals), 1 where the group is present, and what went wrong: (code, key, eval, count),
    code 0 if nothing. Without aggregates it is `distinct`: presence is a positive count.
    """
    keys, evals = len(offsets) - 1, e_times.shape[1]
    results = np.empty((len(kinds), evals), dtype=np.int64)
    present = np.zeros(evals, dtype=np.int64)
    wrong = np.zeros(4, dtype=np.int64)
    linear, extreme = False, False
    for a in range(len(kinds)):
        linear = linear or kinds[a] == COUNT or kinds[a] == SUM or kinds[a] == FLOAT_SUM
        extreme = extreme or kinds[a] == MIN or kinds[a] == MAX
    capacity = 64
    order, heads = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    member, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    for k in range(keys):
        rows = offsets[k + 1] - offsets[k]
        if rows > capacity:
            capacity = 2 * rows
            order, heads = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
            member, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        e0, e1 = e_offsets[k], e_offsets[k + 1]
        if e0 == e1:
            continue
        n = _order_rows(k, offsets, words, times, loops, inputs, order)
        m = _distinct_rows(order, n, words, heads, member)
        if inputs == 1 and len(kinds) <= 1 and n * (e1 - e0) > _SWEEP_FROM:
            _sweep(kinds, columns, order, n, member, heads, m, counts, words, times, diffs, e_times, e0, e1, allow,
                   linear, results, present, wrong)  # fmt: skip
            if wrong[0] != 0:
                wrong[1] = k
                return results, present, wrong
            continue
        for e in range(e0, e1):
            for i in range(m):
                counts[i] = 0
            for i in range(n):
                if holds(times, order[i], e_times, e):
                    counts[member[i]], bad = add(counts[member[i]], diffs[order[i]])
                    if bad:
                        wrong[0], wrong[1], wrong[2] = OVERFLOW, k, e
                        return results, present, wrong
            total, positives = np.int64(0), 0
            for i in range(m):
                total, bad = add(total, counts[i])
                if bad and linear:
                    wrong[0], wrong[1], wrong[2] = OVERFLOW, k, e
                    return results, present, wrong
                positives += counts[i] > 0
                if counts[i] < 0 and not allow:
                    wrong[0], wrong[1], wrong[2], wrong[3] = NEGATIVE, k, e, counts[i]
                    return results, present, wrong
            present[e] = _presence(total, positives, linear, extreme, len(kinds) == 0, allow)
            if present[e] and _summarise(kinds, columns, heads, counts, m, words, results, e):
                wrong[0], wrong[1], wrong[2] = OVERFLOW, k, e
                return results, present, wrong
    return results, present, wrong


@kernel(
    several(OUT1, OUT1, OUT1, OUT1),
    INT, IN1, IN1, IN2, IN2, IN1, IN1, IN2, types.boolean,
)  # fmt: skip
def accumulate(inputs, loops, offsets, words, times, diffs, e_offsets, e_times, allow):  # type: ignore[no-untyped-def]
    """The rows with positive counts of every key at every evaluated version: eval number, row number, count.

    And what went wrong.
    """
    keys = len(offsets) - 1
    out = np.empty((3, 64), dtype=np.int64)
    used, capacity = 0, 64
    wrong = np.zeros(4, dtype=np.int64)
    order, heads = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    member, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    for k in range(keys):
        rows = offsets[k + 1] - offsets[k]
        if rows > capacity:
            capacity = 2 * rows
            order, heads = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
            member, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        if e_offsets[k] == e_offsets[k + 1]:
            continue
        n = _order_rows(k, offsets, words, times, loops, inputs, order)
        m = _distinct_rows(order, n, words, heads, member)
        for e in range(e_offsets[k], e_offsets[k + 1]):
            for i in range(m):
                counts[i] = 0
            for i in range(n):
                if holds(times, order[i], e_times, e):
                    counts[member[i]], bad = add(counts[member[i]], diffs[order[i]])
                    if bad:
                        wrong[0], wrong[1], wrong[2] = OVERFLOW, k, e
                        return out[0, :used].copy(), out[1, :used].copy(), out[2, :used].copy(), wrong
            for i in range(m):
                if counts[i] == 0 or (counts[i] < 0 and allow):
                    continue
                if counts[i] < 0:
                    wrong[0], wrong[1], wrong[2], wrong[3] = NEGATIVE, k, e, counts[i]
                    return out[0, :used].copy(), out[1, :used].copy(), out[2, :used].copy(), wrong
                if used == out.shape[1]:
                    out = grown(out, used)
                out[0, used], out[1, used], out[2, used] = e, heads[i], counts[i]
                used += 1
    return out[0, :used].copy(), out[1, :used].copy(), out[2, :used].copy(), wrong
