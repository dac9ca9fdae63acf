"""What rows add to the totals of their groups: diffs of components, by group.

Rows of one group are added up first, exactly: in one word where that is enough, in three words or in limbs else.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import IN1, IN2, OUT1, OUT2, apart, inline, kernel, several
from ddcore.kernels.floats import INFINITY, NAN, is_special, limbs_of
from ddcore.kernels.sorting import add, multiply, same
from ddcore.kernels.time_columns import grow
from ddcore.kernels.totals import FLOATS, LIMB, WHOLE
from ddcore.kernels.wide import add_triple, product

ROWS, VALUES, NULLS, TRUES, INFINITE, BELOW_ALL, UNDEFINED, NOTHING = 0, 1, 2, 3, 5, 6, 7, 8
"""Quantities: the number of rows; of a column the sum, the numbers of nulls and of trues; of one of floats (``FLOATS``)
the sum of the finite ones, and the numbers of those that are infinite, of either sign, and of NaN; none that these rows
add to.
"""

_NULL = np.int64(-(2**63))
_LOW = np.uint64(2**LIMB - 1)
_WINDOW = 8  # limbs of a group's sum of floats: a float with its count has five
_FLOAT_LIMB = 32
_MOST = 16  # limbs of a window, with its carries


@inline
def _hash(columns, row):  # type: ignore[no-untyped-def]
    number = np.uint64(0x9E3779B97F4A7C15)
    for c in range(columns.shape[0]):
        number = (number ^ np.uint64(columns[c, row])) * np.uint64(0xFF51AFD7ED558CCD)
        number ^= number >> np.uint64(32)
    return number


@kernel(several(OUT1, OUT1), IN2)
def group_rows(columns):  # type: ignore[no-untyped-def]
    """The group of each row, rows with equal columns having one number, and the first row of each group."""
    n, size = columns.shape[1], 16
    while size < 2 * n:
        size *= 2
    table, mask = np.full(size, -1, dtype=np.int32), np.uint64(size - 1)
    numbers, heads, m, group = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), 0, np.int64(0)
    for row in range(n):
        if row == 0 or not same(columns, heads[group], row):  # most rows of some inputs come by group
            slot = _hash(columns, row) & mask
            while table[slot] >= 0 and not same(columns, heads[table[slot]], row):
                slot = (slot + np.uint64(1)) & mask
            if table[slot] < 0:
                table[slot] = m
                heads[m] = row
                m += 1
            group = np.int64(table[slot])
        numbers[row] = group
    return numbers, heads[:m].copy()


@inline
def _marked(kind):  # type: ignore[no-untyped-def]
    """The word whose occurrences a quantity counts."""
    if kind == NULLS:
        return _NULL
    if kind == TRUES:
        return np.int64(1)
    if kind == INFINITE:
        return INFINITY
    return ~INFINITY if kind == BELOW_ALL else NAN


@inline
def _factor(kind, marked, word):  # type: ignore[no-untyped-def]
    """What a row with a word adds to an integer quantity, as often as it occurs."""
    if kind == ROWS:
        return np.int64(1)
    if kind == VALUES:
        return word if word != _NULL else np.int64(0)
    return np.int64(word == marked)


@inline
def _add_up(kind, numbers, words, diffs, sums):  # type: ignore[no-untyped-def]
    """Add up an integer quantity by group in one word; returns whether that is enough."""
    enough, marked = True, _marked(kind)
    for row in range(len(numbers)):
        factor = _factor(kind, marked, words[row])
        if factor != 0:
            part, bad = multiply(factor, diffs[row])
            total, worse = add(sums[numbers[row]], part)
            enough &= not (bad or worse)
            sums[numbers[row]] = total
    return enough


@inline
def _add_up_exactly(kind, numbers, words, diffs, highs, tops, uppers, lowers):  # type: ignore[no-untyped-def]
    """The same in three words, for diffs of two words; ``highs`` is empty where one holds each."""
    marked = _marked(kind)
    for row in range(len(numbers)):
        factor, g = _factor(kind, marked, words[row]), numbers[row]
        if factor == 0:
            continue
        high, low = product(factor, diffs[row])
        top, upper, lower = add_triple(tops[g], uppers[g], lowers[g], high, low)
        if len(highs) > 0:  # the lower word was taken with its sign
            rest = highs[row] - (diffs[row] >> np.int64(63))
            high, low = product(factor, rest)
            total = upper + low
            top += high + np.int64(total < upper)
            upper = total
        tops[g], uppers[g], lowers[g] = top, upper, lower


@inline
def _put_number(out, used, head, q, n, top, high, low):  # type: ignore[no-untyped-def]
    """The limbs of a number of three words that are not 0, all with its sign; returns where they end."""
    negative, a, b, c = top < 0, low, high, np.uint64(top)
    if negative:
        a, b, c = ~low, ~high, ~np.uint64(top)
        a += np.uint64(1)
        b += np.uint64(a == 0)
        c += np.uint64(a == 0 and b == 0)
    component, up, down = q, np.uint64(64 - LIMB), np.uint64(LIMB)
    while a != 0 or b != 0 or c != 0:
        limb = np.int64(a & _LOW)
        a, b, c = (a >> down) | (b << up), (b >> down) | (c << up), c >> down
        if limb != 0:
            out[0, used], out[1, used], out[2, used] = head, component, -limb if negative else limb
            used += 1
        component += n
    return used


@inline
def _put_window(out, used, head, q, n, windows, g, first):  # type: ignore[no-untyped-def]
    """The limbs of a group's sum of floats that are not 0, each of 32 bits with a sign; they become 0."""
    carry, k = np.int64(0), 0
    while k < _WINDOW or carry != 0:
        value = carry
        if k < _WINDOW:
            value += windows[g, k]
            windows[g, k] = 0
        carry = value >> np.int64(_FLOAT_LIMB) if value >= 0 else -(-value >> np.int64(_FLOAT_LIMB))
        value -= carry << np.int64(_FLOAT_LIMB)
        if value != 0:
            out[0, used], out[1, used], out[2, used] = head, q + (first + k) * n, value
            used += 1
        k += 1
    return used


@inline
def _fits_window(at, first):  # type: ignore[no-untyped-def]
    """Whether the five limbs from ``at`` on are in the window from ``first`` on."""
    return 0 <= first <= at and at + 5 <= first + _WINDOW


@inline
def _add_to_window(windows, g, at, limbs):  # type: ignore[no-untyped-def]
    for k in range(5):
        windows[g, at + k] += limbs[k]


@apart
def _put_floats(out, used, heads, q, n, numbers, words, diffs, highs):  # type: ignore[no-untyped-def]
    """What a column of floats adds to the sum of each group: few limbs at a time, as most have close exponents."""
    windows, firsts = np.zeros((len(heads), _WINDOW), dtype=np.int64), np.full(len(heads), -1, dtype=np.int64)
    parts = 1 if len(highs) == 0 else 2
    for row in range(len(numbers)):
        word, g = words[row], numbers[row]
        if word == _NULL or word == 0 or is_special(word):
            continue
        for part in range(parts):
            count = diffs[row] if part == 0 else highs[row] - (diffs[row] >> np.int64(63))  # the second: two limbs up
            if count == 0:
                continue
            at, a, b, c, d, e = limbs_of(word, count)
            at += 2 * part
            first = firsts[g]
            if not _fits_window(at, first):
                if first >= 0:
                    if used + _MOST > out.shape[1]:
                        out = grow(out, used)
                    used = _put_window(out, used, heads[g], q, n, windows, g, first)
                first = firsts[g] = max(0, at - 1)
            _add_to_window(windows, g, at - first, (a, b, c, d, e))
    for g in range(len(heads)):
        if firsts[g] >= 0:
            if used + _MOST > out.shape[1]:
                out = grow(out, used)
            used = _put_window(out, used, heads[g], q, n, windows, g, firsts[g])
    return out, used


@kernel(OUT2, IN1, IN1, IN2, IN1, IN1, IN1, IN1)
def of_groups(numbers, heads, words, diffs, highs, kinds, columns):  # type: ignore[no-untyped-def]
    """What the rows of each group add to its totals: the group's first row, component and diff, in columns.

    ``numbers``, ``heads``: the groups, from :func:`group_rows`. ``highs``: the upper words of diffs that int64 does not
    hold, or nothing. ``kinds``, ``columns``: the quantities, each of a column of ``words``.
    """
    n, groups = len(kinds), len(heads)
    out, used = np.empty((3, _MOST + (n + 1) * groups), dtype=np.int64), 0
    sums = np.empty(groups, dtype=np.int64)
    for q in range(n):
        kind = kinds[q]
        if kind == NOTHING:
            continue
        column = words[columns[q]] if kind != ROWS else diffs
        if kind == FLOATS:
            out, used = _put_floats(out, used, heads, q, n, numbers, column, diffs, highs)
            continue
        while used + WHOLE * groups > out.shape[1]:
            out = grow(out, used)
        sums[:] = 0
        if len(highs) == 0 and _add_up(kind, numbers, column, diffs, sums):
            for g in range(groups):
                sign = sums[g] >> np.int64(63)
                used = _put_number(out, used, heads[g], q, n, sign, np.uint64(sign), np.uint64(sums[g]))
            continue
        tops, uppers = np.zeros(groups, dtype=np.int64), np.zeros(groups, dtype=np.uint64)
        lowers = np.zeros(groups, dtype=np.uint64)
        _add_up_exactly(kind, numbers, column, diffs, highs, tops, uppers, lowers)
        for g in range(groups):
            used = _put_number(out, used, heads[g], q, n, tops[g], uppers[g], lowers[g])
    return out[:, :used].copy()
