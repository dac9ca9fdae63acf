"""Aggregates of frames that move along the rows of sorted partitions: each row enters a frame once, and leaves once."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.aggregating import COUNT, COUNT_DISTINCT, FLOAT_MEAN, FLOAT_SUM, MEAN, SUM
from ddcore.kernels.compiling import BOOL, IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.floats import LIMBS, NAN, add_float, clear, cut, is_special, read_float, special_sum
from ddcore.kernels.means import DIGITS, mean_of_floats, mean_of_integers
from ddcore.kernels.wide import add_triple, product, triple_fits

_NULL = np.int64(-(2**63))
_STATE, _PARTS, _UNKNOWN = 4, 3, np.int64(8)  # words of a state, floats that it has room for, and that these did not do
_SHIFT, _LOW = np.int64(48), np.int64(2**48 - 1)  # sums of integers in two words
_UNDEFINED, _PLUS, _MINUS, _VALUES, _ROWS = 0, 1, 2, 3, 4  # what is counted


@inline
def _move(kind, word, number, sign, counts, seen, sums, limbs, span):  # type: ignore[no-untyped-def]
    """Add a row to what a frame holds, or take it away. ``number``: that of its value, among the distinct ones."""
    counts[_ROWS] += sign
    if word == _NULL:
        return
    if len(seen) > 0:  # which values are there counts
        before = seen[number]
        seen[number] += sign
        if (seen[number] > 0) == (before > 0):
            return
    counts[_VALUES] += sign
    if kind == FLOAT_SUM or kind == FLOAT_MEAN:
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
        return counts[_VALUES], True
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
    ``starts``: where the partition of a row begins. ``numbers``: which of ``distinct`` values each row has; where there
    are some, each value of a frame counts once.
    """
    n, spans = len(words), lows.shape[0]
    results = np.empty(n, dtype=np.int64)
    counts, seen = np.zeros(5, dtype=np.int64), np.zeros(distinct, dtype=np.int64)
    sums, span = np.zeros(3, dtype=np.int64), np.zeros(2, dtype=np.int64)
    limbs, digits = np.zeros(LIMBS, dtype=np.int64), np.zeros(DIGITS, dtype=np.int64)
    low, high = np.zeros(spans, dtype=np.int64), np.zeros(spans, dtype=np.int64)
    span[0] = LIMBS
    for i in range(n):
        if i == 0 or starts[i] != starts[i - 1]:
            for s in range(spans):
                if distinct > 0:
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


@inline
def _go_on(kind, known, k, counts, sums, limbs, span):  # type: ignore[no-untyped-def]
    """Begin with the state in column ``k`` of ``known``."""
    if kind == MEAN:
        counts[_VALUES] = known[0, k]
        high, low = product(known[1, k], np.int64(1) << _SHIFT)
        top, middle, least = add_triple(np.int64(0), np.uint64(0), np.uint64(0), high, low)
        sums[0], sums[1], sums[2] = top, np.int64(middle), np.int64(least) | known[2, k]
        return
    flags = known[0, k]
    counts[_UNDEFINED], counts[_PLUS], counts[_MINUS] = flags & 1, (flags >> 1) & 1, (flags >> 2) & 1
    counts[_VALUES] = flags >> 4
    for part in range(1, _STATE):
        if known[part, k] != 0:
            span[0], span[1] = add_float(limbs, span[0], span[1], known[part, k], np.int64(1))


@inline
def _note(kind, states, i, counts, sums, limbs, span, digits, parts):  # type: ignore[no-untyped-def]
    """Write the state of what a frame holds into column ``i``."""
    if kind == MEAN:
        states[0, i] = counts[_VALUES]
        states[1, i] = (sums[1] << (np.int64(64) - _SHIFT)) | ((sums[2] >> _SHIFT) & (np.int64(2**16 - 1)))
        states[2, i] = sums[2] & _LOW
        return
    special = (counts[_UNDEFINED] > 0, counts[_PLUS] > 0, counts[_MINUS] > 0)
    flags = np.int64(special[0]) | (np.int64(special[1]) << 1) | (np.int64(special[2]) << 2)
    parts[:] = 0
    if span[1] > 0 and cut(limbs, digits, span[0], span[1], parts) < 0:
        flags |= _UNKNOWN
    for part in range(len(parts)):
        if parts[part] != 0:  # which cutting has taken away
            add_float(limbs, span[0], span[1], parts[part], np.int64(1))
    states[0, i] = flags if kind == FLOAT_SUM else flags | (counts[_VALUES] << 4)
    for part in range(_PARTS):
        states[1 + part, i] = parts[part]


@kernel(several(OUT1, OUT2), INT, INT, IN1, IN1, IN1, IN1, IN2)
def run(kind, unit, words, starts, ends, positions, known):  # type: ignore[no-untyped-def]
    """A mean, or a sum of floats, of all rows of each row's partition before ``ends[i]``; and its state (4, n), with
    which it can be gone on with: of integers the number of values and their sum, of floats flags and floats whose exact
    sum it is.

    ``positions``: the first rows of the partitions of which rows before are missing; ``known``: the states there.
    """
    n, following, high = len(words), 0, 0
    results, states = np.empty(n, dtype=np.int64), np.zeros((_STATE, n), dtype=np.int64)
    counts, seen = np.zeros(5, dtype=np.int64), np.zeros(0, dtype=np.int64)
    sums, span = np.zeros(3, dtype=np.int64), np.zeros(2, dtype=np.int64)
    limbs, digits = np.zeros(LIMBS, dtype=np.int64), np.zeros(DIGITS, dtype=np.int64)
    parts = np.zeros(_PARTS + 1, dtype=np.int64)
    span[0] = LIMBS
    for i in range(n):
        first = i == 0 or starts[i] != starts[i - 1]
        if first:
            high = starts[i]
            counts[:] = 0
            sums[:] = 0
            clear(limbs, span[0], span[1])
            span[0], span[1] = LIMBS, 0
            if following < len(positions) and positions[following] == i:
                _go_on(kind, known, following, counts, sums, limbs, span)
                following += 1
        if not first and high >= ends[i]:  # a peer
            results[i] = results[i - 1]
            states[:, i] = states[:, i - 1]
            continue
        while high < ends[i]:
            _move(kind, words[high], np.int64(0), np.int64(1), counts, seen, sums, limbs, span)
            high += 1
        results[i], _ = _read(kind, unit, counts, sums, limbs, span, digits)
        _note(kind, states, i, counts, sums, limbs, span, digits, parts)
    return results, states


@inline
def _weigh(tree, leaf, change, of_most):  # type: ignore[no-untyped-def]
    """Change the weight of a leaf, and what is above it: the greatest weight, or the sum of all."""
    node = leaf
    tree[node] += change
    while node > 1:
        node >>= 1
        left, right = tree[2 * node], tree[2 * node + 1]
        tree[node] = max(left, right) if of_most else left + right


@inline
def _picked(tree, size, position, of_most):  # type: ignore[no-untyped-def]
    """The first value with the greatest weight, or that of a place among all."""
    node = np.int64(1)
    while node < size:
        node *= 2
        if of_most:
            node += np.int64(tree[node] < tree[node + 1])
        elif position >= tree[node]:
            position -= tree[node]
            node += 1
    return node - size


@kernel(OUT2, BOOL, BOOL, INT, IN1, IN2, IN2, IN2)
def pick(of_most, distinct, values, numbers, lows, highs, positions):  # type: ignore[no-untyped-def]
    """Of each frame the most frequent value, the least of several, or those of places among its values, from 0 on:
    (places, n), -1 of none. O(log values) for each row that enters or leaves a frame.

    Frames as for :func:`slide`; ``numbers``: which of ``values`` values each row has, in their order, or -1.
    ``distinct``: each value of a frame counts once.
    """
    n, spans, size = len(numbers), lows.shape[0], np.int64(1)
    while size < values:
        size *= 2
    results = np.full(positions.shape, -1, dtype=np.int64)
    tree, seen = np.zeros(2 * size, dtype=np.int64), np.zeros(values, dtype=np.int64)
    low, high = np.zeros(spans, dtype=np.int64), np.zeros(spans, dtype=np.int64)
    for i in range(n):
        for s in range(spans):
            for leaves in range(2):
                end, row = (lows[s, i], low[s]) if leaves == 1 else (highs[s, i], high[s])
                change = np.int64(-1) if leaves == 1 else np.int64(1)
                while row < end:
                    number = numbers[row]
                    row += 1
                    if number < 0:
                        continue
                    before = seen[number]
                    seen[number] += change
                    if not distinct or (before > 0) != (seen[number] > 0):
                        _weigh(tree, size + number, change, of_most)
                if leaves == 1:
                    low[s] = row
                else:
                    high[s] = row
        if tree[1] > 0:
            for position in range(len(positions)):
                results[position, i] = _picked(tree, size, positions[position, i], of_most)
    return results
