"""Integers of more than one word, for sums and products whose intermediate values exceed int64.

A *pair* is (high, low), a signed number of 128 bits; a *triple* is (top, high, low), one of 192 bits. The first word is
an int64, the others are uint64. A product of two int64 is a pair, and a triple holds the sum of 2**64 such products,
so no order of addition can overflow.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import inline

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_LEAST = np.int64(-(2**63))


@inline
def add_pair(high, low, value):  # type: ignore[no-untyped-def]
    """A pair plus an int64."""
    total = low + np.uint64(value)
    carry = np.int64(1) if total < low else np.int64(0)
    return high + (value >> np.int64(63)) + carry, total


@inline
def minus_pair(high, low, other_high, other_low):  # type: ignore[no-untyped-def]
    """A pair less a pair."""
    borrow = np.int64(1) if low < other_low else np.int64(0)
    return high - other_high - borrow, low - other_low


@inline
def fits(high, low):  # type: ignore[no-untyped-def]
    """Whether a pair is an int64; then the int64 is ``np.int64(low)``."""
    return high == np.int64(low) >> np.int64(63)


@inline
def product(a, b):  # type: ignore[no-untyped-def]
    """a * b as a pair, exactly."""
    ua, ub = np.uint64(a), np.uint64(b)
    high, low = product_unsigned(ua, ub)
    if a < 0:
        high -= ub
    if b < 0:
        high -= ua
    return np.int64(high), low


@inline
def product_unsigned(a, b):  # type: ignore[no-untyped-def]
    """The upper and the lower word of a product of two uint64."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    least = a0 * b0
    middle = a1 * b0 + (least >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF), (other << _HALF) | (least & _LOW)


@inline
def add_triple(top, high, low, other_high, other_low):  # type: ignore[no-untyped-def]
    """A triple plus a pair."""
    total = low + other_low
    first = high + np.uint64(other_high)
    second = first + (np.uint64(1) if total < low else np.uint64(0))
    carry = (np.int64(1) if first < high else np.int64(0)) + (np.int64(1) if second < first else np.int64(0))
    return top + (np.int64(other_high) >> np.int64(63)) + carry, second, total


@inline
def triple_fits(top, high, low):  # type: ignore[no-untyped-def]
    """Whether a triple is an int64; then the int64 is ``np.int64(low)``."""
    sign = np.int64(low) >> np.int64(63)
    return top == sign and np.int64(high) == sign


@inline
def triple_is_pair(top, high):  # type: ignore[no-untyped-def]
    """Whether a triple is a pair that can be negated."""
    return top == np.int64(high) >> np.int64(63) and np.int64(high) != _LEAST
