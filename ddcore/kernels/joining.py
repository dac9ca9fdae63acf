"""The join of one sorted batch with another: pairs of rows of equal key, at the join of their times."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import BOOL, IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.sorting import multiply
from ddcore.kernels.wide import product

_NULL = np.int64(-(2**63))


@inline
def _null_key(codes, words, key_words, row):  # type: ignore[no-untyped-def]
    if key_words == 0:
        return codes[row] == _NULL
    for w in range(key_words):
        if words[w, row] == _NULL:
            return True
    return False


@inline
def _equal_keys(a_words, i, b_words, j, key_words):  # type: ignore[no-untyped-def]
    for w in range(key_words):
        if a_words[w, i] != b_words[w, j]:
            return False
    return True


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
                    rows += _equal_keys(words, starts[k], other_words, j, key_words)
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
    own, theirs = times.shape[0], other_times.shape[0]
    overflow = False
    for k in range(len(lo)):
        at = ends[k]
        if ends[k + 1] == at:
            continue
        for j in range(lo[k], hi[k]):
            if not _equal_keys(words, starts[k], other_words, j, key_words):
                continue
            for i in range(starts[k], starts[k + 1]):
                left[at], right[at] = i, j
                for t in range(depth):
                    mine = times[t, i] if t < own else 0
                    other = other_times[t, j] if t < theirs else 0
                    at_times[t, at] = max(mine, other)
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
