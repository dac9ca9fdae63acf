"""Totals of groups, and the aggregates that they give.

A total is an exact number: of an integer quantity in limbs of 36 bits, of a sum of floats in those of
:mod:`ddcore.kernels.floats`. A limb of a total is a *component*; what updates of rows add to it is a diff
(:mod:`ddcore.kernels.contributions`). Quantity q of n has the components q, q + n, q + 2n and so on, the lowest limb
first. Quantity 0 is the number of rows.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.aggregating import COUNT, COUNT_DISTINCT, FLOAT_MEAN, FLOAT_SUM, MEAN, OVERFLOW, SUM
from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, apart, inline, kernel, several
from ddcore.kernels.floats import LIMBS, read_float, special_sum
from ddcore.kernels.means import DIGITS, mean_of_floats, mean_of_integers
from ddcore.kernels.sorting import add, sort_rows
from ddcore.kernels.time_columns import holds, inside
from ddcore.kernels.wide import add_pair, add_triple, minus_pair, triple_fits

FLOATS = 4  # the quantity that is a sum of floats
ANY, ALL = 8, 9  # aggregates, beside those of kernels.aggregating
LIMB = 36
WHOLE = 6  # limbs of a total of 192 bits

_NULL = np.int64(-(2**63))


@inline
def _shifted(top, high, low, bits):  # type: ignore[no-untyped-def]
    """A triple times 2**bits, without what is above 192 bits."""
    up, down = np.uint64(bits), np.uint64(64 - bits)
    return np.int64((np.uint64(top) << up) | (high >> down)), (high << up) | (low >> down), low << up


@inline
def _total(highs, lows, depth, q):  # type: ignore[no-untyped-def]
    """An integer quantity as a triple, from its first ``depth`` limbs, each a pair; the others are 0."""
    top, high, low = np.int64(0), np.uint64(0), np.uint64(0)
    for k in range(depth - 1, -1, -1):
        if top != 0 or high != 0 or low != 0:
            top, high, low = _shifted(top, high, low, LIMB)
        if highs[k, q] != 0 or lows[k, q] != 0:
            top, high, low = add_triple(top, high, low, highs[k, q], lows[k, q])
    return top, high, low


@inline
def _pair(highs, lows, depth, q):  # type: ignore[no-untyped-def]
    _, high, low = _total(highs, lows, depth, q)
    return np.int64(high), low


@inline
def _is_positive(high, low):  # type: ignore[no-untyped-def]
    return high > 0 or (high == 0 and low != 0)


@inline
def _sign(highs, lows, depth, q):  # type: ignore[no-untyped-def]
    """1 for a number that is positive, else 0."""
    high, low = _pair(highs, lows, depth, q)
    return np.int64(_is_positive(high, low))


@inline
def _special(highs, lows, depth, q):  # type: ignore[no-untyped-def]
    """The word of a sum of floats from quantity q on that is not finite, or 0."""
    return special_sum(
        _sign(highs, lows, depth, q + 1), _sign(highs, lows, depth, q + 2), _sign(highs, lows, depth, q + 3)
    )


@inline
def _exact(q, highs, lows, depth):  # type: ignore[no-untyped-def]
    """The word of a sum or a number, and whether int64 holds it."""
    top, high, low = _total(highs, lows, depth, q)
    return np.int64(low), triple_fits(top, high, low) and np.int64(low) != _NULL


@inline
def _of_values(kind, q, nulls, unit, highs, lows, depth, limbs, low_limb, high_limb, digits):  # type: ignore[no-untyped-def]
    """The word of an aggregate that is null where all values are."""
    high, low = _pair(highs, lows, depth, 0)
    high, low = minus_pair(high, low, *_pair(highs, lows, depth, nulls))
    if high == 0 and low == 0:
        return _NULL
    if kind == MEAN:
        top, upper, lower = _total(highs, lows, depth, q)
        return mean_of_integers(top, upper, lower, unit, high, low, digits)
    if kind == FLOAT_MEAN:
        return mean_of_floats(limbs, low_limb, high_limb, _special(highs, lows, depth, q), high, low, digits)
    true_high, true_low = _pair(highs, lows, depth, q)
    if kind == ALL:  # is there no value that is false?
        high, low = minus_pair(high, low, true_high, true_low)
        return np.int64(high == 0 and low == 0)
    return np.int64(true_high != 0 or true_low != 0)


@inline
def _aggregate(kind, q, nulls, unit, highs, lows, depth, limbs, low_limb, high_limb, digits):  # type: ignore[no-untyped-def]
    """The word of an aggregate of totals, and whether int64 holds it."""
    if kind == COUNT or kind == COUNT_DISTINCT or kind == SUM:
        return _exact(q, highs, lows, depth)
    if kind != FLOAT_SUM:
        return _of_values(kind, q, nulls, unit, highs, lows, depth, limbs, low_limb, high_limb, digits), True
    special = _special(highs, lows, depth, q)
    if special == 0 and high_limb > 0:
        special = read_float(limbs, digits, low_limb, high_limb)
    return special, True


@inline
def _take_in(component, diff, quantities, positions, highs, lows, depth, limbs, ranges):  # type: ignore[no-untyped-def]
    """Add an update of a component to a group's totals; returns how many limbs of integers there are."""
    q, k = component, 0
    while q >= len(quantities):
        q -= len(quantities)
        k += 1
    if quantities[q] == FLOATS:
        position = positions[q]
        limbs[position, k] += diff
        ranges[position, 0], ranges[position, 1] = min(ranges[position, 0], k), max(ranges[position, 1], k + 1)
        return depth
    high, low = add_pair(highs[k, q], lows[k, q], diff)
    highs[k, q], lows[k, q] = high, low
    return max(depth, k + 1)


@inline
def _forget(highs, lows, depth, limbs, ranges):  # type: ignore[no-untyped-def]
    """Set all totals to 0."""
    for k in range(depth):
        for q in range(highs.shape[1]):
            highs[k, q], lows[k, q] = 0, 0
    for position in range(len(limbs)):
        for k in range(ranges[position, 0], ranges[position, 1]):
            limbs[position, k] = 0
        ranges[position, 0], ranges[position, 1] = limbs.shape[1], 0


@kernel(
    several(OUT2, OUT1, OUT1),
    INT, IN1, IN1, IN1, IN1, IN1, IN1, IN1, IN1, IN2, IN1, IN1, IN2,
)  # fmt: skip
def aggregate(  # type: ignore[no-untyped-def]
    inputs, loops, quantities, kinds, firsts, nulls, units, offsets, components, times, diffs, e_offsets, e_times
):  # fmt: skip
    """Aggregates of every key at every evaluated version, from the components of its totals.

    ``quantities``: their kinds. Of each aggregate its kind, its first quantity, that of its nulls, and the word of 1 in
    its column. Returns what :func:`ddcore.kernels.aggregating.aggregate` does. Versions of one coordinate are a chain:
    each component is added once.
    """
    evals = e_times.shape[1]
    results, present = np.empty((len(kinds), evals), dtype=np.int64), np.zeros(evals, dtype=np.int64)
    error, digits = np.zeros(5, dtype=np.int64), np.zeros(DIGITS, dtype=np.int64)
    positions, floats = np.zeros(len(quantities), dtype=np.int64), 0
    for q in range(len(quantities)):
        if quantities[q] == FLOATS:
            positions[q] = floats
            floats += 1
    highs, lows = np.zeros((WHOLE, len(quantities)), np.int64), np.zeros((WHOLE, len(quantities)), np.uint64)
    depth = 0
    limbs, ranges = np.zeros((floats + 1, LIMBS), dtype=np.int64), np.zeros((floats + 1, 2), dtype=np.int64)
    ranges[:, 0] = LIMBS
    order, versions = np.empty(0, dtype=np.int64), np.empty((1, 0), dtype=np.int64)
    for k in range(len(offsets) - 1):
        e0, e1, n = e_offsets[k], e_offsets[k + 1], 0
        if e0 == e1:
            continue
        rows = offsets[k + 1] - offsets[k]
        if rows > len(order):
            order, versions = np.empty(2 * rows, dtype=np.int64), np.empty((1, 2 * rows), dtype=np.int64)
        for row in range(offsets[k], offsets[k + 1]):
            if components[row] >= 0 and inside(times, row, loops, inputs):  # others: results of other aggregates
                order[n], versions[0, row - offsets[k]] = row - offsets[k], times[0, row]
                n += 1
        if inputs == 1:
            sort_rows(order, 0, n, versions)
        _forget(highs, lows, depth, limbs, ranges)
        at, depth = 0, 0
        for e in range(e0, e1):
            if inputs == 1:
                while at < n and versions[0, order[at]] <= e_times[0, e]:
                    row = offsets[k] + order[at]
                    depth = _take_in(
                        components[row], diffs[row], quantities, positions, highs, lows, depth, limbs, ranges
                    )
                    at += 1
            else:
                _forget(highs, lows, depth, limbs, ranges)
                depth = 0
                for i in range(n):
                    row = offsets[k] + order[i]
                    if holds(times, row, e_times, e):
                        depth = _take_in(
                            components[row], diffs[row], quantities, positions, highs, lows, depth, limbs, ranges
                        )
            top, high, low = _total(highs, lows, depth, 0)
            present[e] = np.int64(top != 0 or high != 0 or low != 0)
            if present[e] == 0:
                continue
            for a in range(len(kinds)):
                q = firsts[a]
                position = positions[q] if quantities[q] == FLOATS else floats
                results[a, e], fit = _aggregate(
                    kinds[a], q, nulls[a], units[a], highs, lows, depth, limbs[position], ranges[position, 0],
                    ranges[position, 1], digits,
                )  # fmt: skip
                if not fit:
                    error[0], error[1], error[2] = OVERFLOW, k, e
                    return results, present, error
    return results, present, error


@apart
def of_few(quantities, kinds, firsts, nulls, units, words, heads, m, counts, totals, digits, result):  # type: ignore[no-untyped-def]
    """The aggregates of a group with few components, of integer quantities, to ``result``: 1 if the group is there, 0
    if not, -1 if a word may be too small for a total.
    """
    for q in range(quantities):
        totals[q] = 0
    for i in range(m):
        component, count = words[0, heads[i]], counts[i]
        if component < 0:  # results of other aggregates
            continue
        if component >= quantities:
            if component >= 2 * quantities or count >= 2**26 or count <= -(2**26):
                return -1
            component -= quantities
            count <<= np.int64(LIMB)
        total, bad = add(totals[component], count)
        if bad or total == _NULL:
            return -1
        totals[component] = total
    if totals[0] == 0:
        return 0
    for a in range(len(kinds)):
        total = totals[firsts[a]]
        number = totals[0] - totals[nulls[a]] if nulls[a] >= 0 else totals[0]
        if kinds[a] == MEAN and number != 0:
            top = total >> np.int64(63)
            sign = number >> np.int64(63)
            total = mean_of_integers(top, np.uint64(top), np.uint64(total), units[a], sign, np.uint64(number), digits)
        elif kinds[a] == ANY and number != 0:
            total = np.int64(total > 0)
        elif kinds[a] == ALL and number != 0:
            total = np.int64(number - total <= 0)
        elif kinds[a] != COUNT and kinds[a] != SUM and kinds[a] != COUNT_DISTINCT:
            total = _NULL
        result[a] = total
    return 1
