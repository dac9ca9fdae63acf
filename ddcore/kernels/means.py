"""Exact means: a sum divided by a count, rounded once.

The sum is a number in digits of 32 bits, with ``POINT`` more digits below: after the division these hold the fraction.
They are enough for the least sum by the greatest count; a remainder sets the last bit, so that rounding notices it.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import apart, inline
from ddcore.kernels.floats import NAN, magnitude, rounded

POINT = 8  # 256 bits: a quotient by a count of up to 127 bits and by 10**18 keeps 69, and a float has 53
DIGITS = 96  # as many as a sum of floats has, and those below
_WHOLE = 6  # digits of a triple
_UNIT = 32 * POINT - 1074  # the place of 2**-1074 if the first bit above ``POINT`` digits is 1
_LOW = np.uint64(0xFFFFFFFF)
_BILLION = np.int64(10**9)


@inline
def magnitude_of_pair(high, low):  # type: ignore[no-untyped-def]
    """A pair without its sign, in two uint64; and whether it is negative."""
    if high >= 0:
        return np.uint64(high), low, False
    least = np.uint64(0) - low
    return ~np.uint64(high) + (np.uint64(1) if least == 0 else np.uint64(0)), least, True


@inline
def _write_triple(top, high, low, digits):  # type: ignore[no-untyped-def]
    """Write a triple without its sign, above ``POINT`` digits of 0; returns whether it is negative."""
    negative = top < 0
    words, carry = (low, high, np.uint64(top)), np.uint64(1)
    for k in range(POINT):
        digits[k] = 0
    for k in range(3):
        word = words[k]
        if negative:
            word = ~word + carry
            carry = np.uint64(1) if carry != 0 and word == 0 else np.uint64(0)
        digits[POINT + 2 * k] = np.int64(word & _LOW)
        digits[POINT + 2 * k + 1] = np.int64(word >> np.uint64(32))
    return negative


@apart
def _divide(digits, low, end, high, count):  # type: ignore[no-untyped-def]
    """Divide ``digits[low:end]`` by the number of two words, not 0, in place; returns whether there is a remainder."""
    rest_high, rest = np.uint64(0), np.uint64(0)
    if high == 0 and count <= _LOW:
        for k in range(end - 1, low - 1, -1):
            part = (rest << np.uint64(32)) | np.uint64(digits[k])
            digits[k] = np.int64(part // count)
            rest = part % count
        return rest != 0
    for k in range(end - 1, low - 1, -1):
        part, digit = np.uint64(digits[k]), np.int64(0)
        for bit in range(31, -1, -1):
            rest_high = (rest_high << np.uint64(1)) | (rest >> np.uint64(63))
            rest = (rest << np.uint64(1)) | ((part >> np.uint64(bit)) & np.uint64(1))
            digit <<= np.int64(1)
            if rest_high > high or (rest_high == high and rest >= count):
                rest_high -= high + (np.uint64(1) if rest < count else np.uint64(0))
                rest -= count
                digit |= np.int64(1)
        digits[k] = digit
    return rest != 0 or rest_high != 0


@apart
def mean_of_integers(top, high, low, unit, count_high, count_low, digits):  # type: ignore[no-untyped-def]
    """The word of the float next to a triple divided by ``unit`` and by a pair that is not 0, ties to even."""
    negative, end = _write_triple(top, high, low, digits), POINT + _WHOLE
    most, least, minus = magnitude_of_pair(count_high, count_low)
    rest = _divide(digits, 0, end, most, least)
    while unit > 1:
        part = min(unit, _BILLION)
        rest |= _divide(digits, 0, end, np.uint64(0), np.uint64(part))
        unit //= part
    digits[0] |= np.int64(rest)
    return rounded(digits, 0, end, _UNIT, negative != minus)


@apart
def mean_of_floats(limbs, low, high, special, count_high, count_low, digits):  # type: ignore[no-untyped-def]
    """The word of the float next to a sum of floats divided by a pair that is not 0, ties to even.

    ``special``: the word of a sum that is not finite, or 0.
    """
    most, least, minus = magnitude_of_pair(count_high, count_low)
    if special != 0:
        return ~special if minus and special != NAN else special
    if high == 0:
        return np.int64(0)
    for k in range(low, low + POINT):
        digits[k] = 0
    end, negative = magnitude(limbs, digits, low, high, POINT)
    digits[low] |= np.int64(_divide(digits, low, end, most, least))
    return rounded(digits, low, end, 32 * POINT, negative != minus)
