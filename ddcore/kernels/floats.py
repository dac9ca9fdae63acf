"""Exact sums of floats: kept as parts that do not overlap, rounded once at the end (Shewchuk 1997)."""

from __future__ import annotations

import numpy as np

from ddcore.kernels import inline

_NULL = np.int64(-(2**63))


@inline
def _exact_add(parts, n, value):  # type: ignore[no-untyped-def]
    """Add a float to a sum held as non-overlapping parts (Shewchuk 1997): nothing is rounded."""
    i = 0
    for j in range(n):
        other = parts[j]
        if abs(value) < abs(other):
            value, other = other, value
        high = value + other
        low = other - (high - value)
        if low != 0.0:
            parts[i] = low
            i += 1
        value = high
    parts[i] = value
    return i + 1


@inline
def _rounded(parts, n):  # type: ignore[no-untyped-def]
    """The parts' exact sum, rounded once, ties to even."""
    if n == 0:
        return 0.0
    n -= 1
    high = parts[n]
    low = 0.0
    while n > 0:
        value = high
        n -= 1
        high = value + parts[n]
        low = parts[n] - (high - value)
        if low != 0.0:
            break
    if n > 0 and ((low < 0.0 and parts[n - 1] < 0.0) or (low > 0.0 and parts[n - 1] > 0.0)):
        twice = low * 2.0
        value = high + twice
        if twice == value - high:
            high = value
    return high


@inline
def _float_of(word):  # type: ignore[no-untyped-def]
    bits = np.empty(1, dtype=np.int64)
    bits[0] = word if word >= 0 else word ^ np.int64(0x7FFFFFFFFFFFFFFF)
    return bits.view(np.float64)[0]


@inline
def _word_of(value):  # type: ignore[no-untyped-def]
    if np.isnan(value):
        return np.int64(0x7FF8000000000000)
    floats = np.empty(1, dtype=np.float64)
    floats[0] = value + 0.0
    bits = floats.view(np.int64)[0]
    return bits if bits >= 0 else bits ^ np.int64(0x7FFFFFFFFFFFFFFF)


@inline
def _add_scaled(parts, n, value, count):  # type: ignore[no-untyped-def]
    """Add count * value exactly, by the binary expansion of the count: value * 2**i is exact."""
    negative = count < 0
    left = -count if negative else count
    power = -value if negative else value
    while left != 0:
        if left & 1:
            n = _exact_add(parts, n, power)
        power = power * 2.0
        left >>= 1
    return n


@inline
def float_sum(order, counts, n, words, column):  # type: ignore[no-untyped-def]
    """The correctly rounded sum of count * value over distinct rows; infinities and NaN as IEEE has them."""
    parts = np.empty(2200, dtype=np.float64)
    used, special = 0, 0.0
    for i in range(n):
        word = words[column, order[i]]
        if word == _NULL or counts[i] == 0:
            continue
        value = _float_of(word)
        if np.isinf(value) or np.isnan(value):
            special += value * counts[i]
        else:
            used = _add_scaled(parts, used, value, counts[i])
    total = _rounded(parts, used)
    return _word_of(special if special != 0.0 else total)
