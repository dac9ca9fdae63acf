"""Exact sums of floats: kept as parts that do not overlap, rounded once at the end (Shewchuk 1997)."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import inline

_NULL = np.int64(-(2**63))
_PARTS = 64  # parts that do not overlap: 2,098 bits from the least float to the greatest, 53 bits a part
_LARGE, _SCALE = 2.0**900, 2.0**200
_TINY = 5e-324


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
    """The correctly rounded sum of count * value over distinct rows; infinities and NaN as IEEE has them.

    Large values are added up apart and scaled down, so that no partial sum is more than a float holds.
    """
    parts, large = np.empty(_PARTS, dtype=np.float64), np.empty(_PARTS, dtype=np.float64)
    used, used_large, special = 0, 0, 0.0
    for i in range(n):
        word = words[column, order[i]]
        if word == _NULL or counts[i] == 0:
            continue
        value = _float_of(word)
        if np.isinf(value) or np.isnan(value):
            special += value * counts[i]
        elif abs(value) < _LARGE:
            used = _add_scaled(parts, used, value, counts[i])
        else:
            used_large = _add_scaled(large, used_large, value / _SCALE, counts[i])
    if special != 0.0:
        return _word_of(special)
    if used_large > 0 and abs(large[used_large - 1]) >= _LARGE / _SCALE:
        decides = 0.0  # what is too small to be scaled down can still decide between two floats
        for i in range(used):
            scaled = parts[i] / _SCALE
            if scaled * _SCALE == parts[i]:
                used_large = _exact_add(large, used_large, scaled)
            else:
                decides = _TINY if parts[i] > 0.0 else -_TINY
        return _word_of(_rounded(large, _exact_add(large, used_large, decides)) * _SCALE)
    for i in range(used_large):
        used = _exact_add(parts, used, large[i] * _SCALE)
    return _word_of(_rounded(parts, used))
