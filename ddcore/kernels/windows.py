"""Aggregates of frames that move along the rows of sorted partitions: each row enters a frame once, and leaves once."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.aggregating import COUNT, COUNT_DISTINCT, FLOAT_MEAN, FLOAT_SUM, MEAN, SUM
from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, inline, kernel, several
from ddcore.kernels.floats import LIMBS, NAN, add_float, clear, is_special, read_float, special_sum
from ddcore.kernels.means import DIGITS, mean_of_floats, mean_of_integers
from ddcore.kernels.wide import add_triple, product, triple_fits

_NULL = np.int64(-(2**63))
_UNDEFINED, _PLUS, _MINUS, _VALUES, _ROWS, _DISTINCT = 0, 1, 2, 3, 4, 5  # what is counted


@inline
def _move(kind, word, number, sign, counts, seen, sums, limbs, span):  # type: ignore[no-untyped-def]
    """Add a row to what a frame holds, or take it away. ``number``: that of its value, among the distinct ones."""
    counts[_ROWS] += sign
    if word == _NULL:
        return
    counts[_VALUES] += sign
    if kind == COUNT_DISTINCT:
        before = seen[number]
        seen[number] += sign
        counts[_DISTINCT] += np.int64(seen[number] > 0) - np.int64(before > 0)
    elif kind == FLOAT_SUM or kind == FLOAT_MEAN:
        if not is_special(word):
            span[0], span[1] = add_float(limbs, span[0], span[1], word, sign)
        elif word == NAN:
            counts[_UNDEFINED] += sign
        else:
            counts[_PLUS if word > 0 else _MINUS] += sign
    elif kind == SUM or kind == MEAN:
        high, low = product(word, sign)
        top, middle, least = add_triple(sums[0], np.uint64(sums[1]), np.uint64(sums[2]), high, low)
        sums[0], sums[1], sums[2] = top, np.int64(middle), np.int64(least)


@inline
def _read(kind, unit, counts, sums, limbs, span, digits):  # type: ignore[no-untyped-def]
    """The result of what a frame holds, and whether it fits into int64."""
    if kind == COUNT:
        return counts[_ROWS], True
    if kind == COUNT_DISTINCT:
        return counts[_DISTINCT], True
    if kind == SUM:
        return sums[2], triple_fits(sums[0], np.uint64(sums[1]), np.uint64(sums[2])) and sums[2] != _NULL
    if kind == FLOAT_SUM:
        special = special_sum(counts[_PLUS], counts[_MINUS], counts[_UNDEFINED])
        if special == 0 and span[1] > 0:
            special = read_float(limbs, digits, span[0], span[1])
        return special, True
    return _mean(kind, unit, counts, sums, limbs, span, digits), True


@inline
def _mean(kind, unit, counts, sums, limbs, span, digits):  # type: ignore[no-untyped-def]
    """The mean of the values of a frame; null without any."""
    high, low = np.int64(0), np.uint64(counts[_VALUES])
    if low == 0:
        return _NULL
    if kind == MEAN:
        return mean_of_integers(sums[0], np.uint64(sums[1]), np.uint64(sums[2]), unit, high, low, digits)
    special = special_sum(counts[_PLUS], counts[_MINUS], counts[_UNDEFINED])
    return mean_of_floats(limbs, span[0], span[1], special, high, low, digits)


@kernel(several(OUT1, INT), INT, INT, IN1, IN1, INT, IN1, IN2, IN2)
def slide(kind, unit, words, numbers, distinct, starts, lows, highs):  # type: ignore[no-untyped-def]
    """The aggregate of each row's frame, and the number of the first row whose result does not fit, or -1.

    Frames are one to three spans of rows, ``lows[s, i]:highs[s, i]``, of which no end moves back within a partition;
    ``starts``: where the partition of a row begins. ``numbers``: which of ``distinct`` values each row has.
    """
    n, spans = len(words), lows.shape[0]
    results = np.empty(n, dtype=np.int64)
    counts, seen = np.zeros(6, dtype=np.int64), np.zeros(distinct, dtype=np.int64)
    sums, span = np.zeros(3, dtype=np.int64), np.zeros(2, dtype=np.int64)
    limbs, digits = np.zeros(LIMBS, dtype=np.int64), np.zeros(DIGITS, dtype=np.int64)
    low, high = np.zeros(spans, dtype=np.int64), np.zeros(spans, dtype=np.int64)
    span[0] = LIMBS
    for i in range(n):
        if i == 0 or starts[i] != starts[i - 1]:
            for s in range(spans):
                if kind == COUNT_DISTINCT:
                    for row in range(low[s], high[s]):
                        seen[numbers[row]] = 0
                low[s] = high[s] = starts[i]
            counts[:] = 0
            sums[:] = 0
            clear(limbs, span[0], span[1])
            span[0], span[1] = LIMBS, 0
        for s in range(spans):
            while high[s] < highs[s, i]:
                _move(kind, words[high[s]], numbers[high[s]], np.int64(1), counts, seen, sums, limbs, span)
                high[s] += 1
            while low[s] < lows[s, i]:
                _move(kind, words[low[s]], numbers[low[s]], np.int64(-1), counts, seen, sums, limbs, span)
                low[s] += 1
        results[i], fit = _read(kind, unit, counts, sums, limbs, span, digits)
        if not fit:
            return results, i
    return results, -1
