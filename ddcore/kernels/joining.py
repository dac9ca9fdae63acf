"""The join of one sorted batch with another: pairs of rows of equal key, at the join of their times.

Keys with long histories at totally ordered times are swept: an update meets the rows that are there at its time, not
all updates of all times.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import BOOL, IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.look_up import of_key
from ddcore.kernels.sorting import alike, multiply
from ddcore.kernels.wide import product

_NULL = np.int64(-(2**63))
_UNFIT = np.int64(2**62)
_LARGEST = 2.0**62


@inline
def _null_key(codes, words, key_words, row):  # type: ignore[no-untyped-def]
    if key_words == 0:
        return codes[row] == _NULL
    for w in range(key_words):
        if words[w, row] == _NULL:
            return True
    return False


@kernel(OUT1, IN1, IN2, IN1, INT, IN1, IN1, IN2)
def pair_starts(codes, words, starts, key_words, lo, hi, other_words):  # type: ignore[no-untyped-def]
    """Where the pairs of each key of the first batch begin, and one past the end; a null key has none."""
    ends = np.zeros(len(lo) + 1, dtype=np.int64)
    for k in range(len(lo)):
        rows = np.int64(0)
        if hi[k] > lo[k] and not _null_key(codes, words, key_words, starts[k]):
            if key_words == 0:
                rows = hi[k] - lo[k]
            else:
                for j in range(lo[k], hi[k]):
                    rows += alike(words, starts[k], other_words, j, key_words)
        ends[k + 1] = ends[k] + rows * (starts[k + 1] - starts[k])
    return ends


@kernel(
    several(OUT1, OUT1, OUT2, OUT1, BOOL),
    IN1, IN2, IN2, IN1, INT, IN1, IN1, IN1, IN2, IN2, IN1, INT,
)  # fmt: skip
def pairs(starts, words, times, diffs, key_words, ends, lo, hi, other_words, other_times, other_diffs, depth):  # type: ignore[no-untyped-def]
    """Every pair: row numbers on both sides, the join of the times (depth coordinates), the product of the diffs.

    The last result says whether int64 cannot hold some product; then :func:`products` computes all of them.
    """
    n = ends[len(ends) - 1]
    left, right = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    at_times, multiplied = np.empty((depth, n), dtype=np.int64), np.empty(n, dtype=np.int64)
    own, others = times.shape[0], other_times.shape[0]
    overflow = False
    for k in range(len(lo)):
        at = ends[k]
        if ends[k + 1] == at:
            continue
        for j in range(lo[k], hi[k]):
            if not alike(words, starts[k], other_words, j, key_words):
                continue
            for i in range(starts[k], starts[k + 1]):
                left[at], right[at] = i, j
                for t in range(depth):
                    own_time = times[t, i] if t < own else 0
                    other = other_times[t, j] if t < others else 0
                    at_times[t, at] = max(own_time, other)
                multiplied[at], bad = multiply(diffs[i], other_diffs[j])
                overflow |= bad
                at += 1
    return left, right, at_times, multiplied, overflow


@kernel(several(OUT1, OUT1), IN1, IN1)
def products(left, right):  # type: ignore[no-untyped-def]
    """The products of two columns in two words: the lower ones and the upper ones."""
    lows, highs = np.empty(len(left), dtype=np.int64), np.empty(len(left), dtype=np.int64)
    for i in range(len(left)):
        highs[i], low = product(left[i], right[i])
        lows[i] = np.int64(low)
    return lows, highs


@inline
def _runs(words, start, stop):  # type: ignore[no-untyped-def]
    """The number of the distinct row that each update is of, and the first update of each distinct row."""
    numbers, firsts = np.zeros(stop - start, dtype=np.int64), np.zeros(stop - start, dtype=np.int64)
    run = np.int64(-1)
    for i in range(start, stop):
        same = i > start
        for w in range(words.shape[0]):
            same = same and words[w, i] == words[w, i - 1]
        if not same:
            run += 1
            firsts[run] = i
        numbers[i - start] = run
    return numbers, firsts


@inline
def _count(run, diff, counts, present, positions, size):  # type: ignore[no-untyped-def]
    """Add a diff to the count of a row; ``present`` lists the rows with counts other than 0. Its size."""
    before = counts[run]
    after = before + diff
    counts[run] = after
    if before == 0 and after != 0:
        present[size], positions[run] = run, size
        size += 1
    elif before != 0 and after == 0:
        size -= 1
        last, position = present[size], positions[run]
        present[position], positions[last] = last, position
    return size


@kernel(
    several(OUT1, OUT1, OUT1, OUT2, OUT1),
    IN1, IN1, IN2, IN2, IN1, INT, IN1, IN1, IN2, IN2, IN1, IN1,
)  # fmt: skip
def sweep(starts, stops, words, times, diffs, key_words, lo, hi, other_words, other_times, other_diffs, ends):  # type: ignore[no-untyped-def]
    """Each key's updates of both sides by ascending time (one coordinate), each paired with the other's rows present.

    Without ``ends`` only how many pairs each key has; a key with a product that may not be an int64 has 2**62.
    Else as :func:`pairs`: row numbers (of a present row, its first update's), times, products.
    """
    writes = len(ends) > 0
    n = ends[len(ends) - 1] if writes else np.int64(0)
    sizes = np.zeros(len(lo), dtype=np.int64)
    left, right = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    at_times, products = np.empty((1, n), dtype=np.int64), np.empty(n, dtype=np.int64)
    for k in range(len(lo)):
        at = ends[k] if writes else np.int64(0)
        start, stop, first, last = starts[k], stops[k], lo[k], hi[k]
        first, last = of_key(first, last, other_words, words, start, key_words)
        order, other_order = np.argsort(times[0, start:stop]), np.argsort(other_times[0, first:last])
        runs, heads = _runs(words, start, stop)
        other_runs, other_heads = _runs(other_words, first, last)
        counts, present, positions = np.zeros_like(heads), np.zeros_like(heads), np.zeros_like(heads)
        other_counts = np.zeros_like(other_heads)
        other_present, other_positions = np.zeros_like(other_heads), np.zeros_like(other_heads)
        size, other_size, i, j = np.int64(0), np.int64(0), 0, 0
        total, other_total = 0.0, 0.0  # of diffs, so that any part of a key that fits does, too
        while i < len(order) or j < len(other_order):
            if j == len(other_order) or (
                i < len(order) and times[0, start + order[i]] <= other_times[0, first + other_order[j]]
            ):
                row = start + order[i]
                if writes:
                    for p in range(other_size):
                        run = other_present[p]
                        left[at + p], right[at + p], at_times[0, at + p] = row, other_heads[run], times[0, row]
                        products[at + p] = diffs[row] * other_counts[run]
                at += other_size
                run = runs[row - start]
                size = _count(run, diffs[row], counts, present, positions, size)
                total += abs(float(diffs[row]))
                i += 1
            else:
                row = first + other_order[j]
                if writes:
                    for p in range(size):
                        run = present[p]
                        left[at + p], right[at + p], at_times[0, at + p] = heads[run], row, other_times[0, row]
                        products[at + p] = counts[run] * other_diffs[row]
                at += size
                run = other_runs[row - first]
                other_size = _count(run, other_diffs[row], other_counts, other_present, other_positions, other_size)
                other_total += abs(float(other_diffs[row]))
                j += 1
        sizes[k] = _UNFIT if total * other_total >= _LARGEST else at
    return sizes, left, right, at_times, products
