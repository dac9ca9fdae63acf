"""Exact sums of floats: a fixed-point number that holds every float times every count, rounded once at the end.

The number is an array of limbs of 32 bits each; the first bit is 2**-1074, the least float. A limb is an int64 and
takes more than its 32 bits while rows are added up; carries are propagated only at the end. No intermediate value is
rounded or overflows, also when values cancel.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import apart, inline
from ddcore.kernels.wide import product_unsigned

LIMBS = 72  # 2,046 bits of exponents, 53 of a float, 64 of a count, 64 for the number of rows: 2,227 of 2,304
INFINITY = np.int64(0x7FF0000000000000)
NAN = np.int64(0x7FF8000000000000)
_HIDDEN = np.uint64(1 << 52)
_FRACTION = np.uint64((1 << 52) - 1)
_LOW = np.uint64(0xFFFFFFFF)
_MOST_DROPPED = 2045  # position of the lowest mantissa bit of the greatest float
_MASK = np.int64(0xFFFFFFFF)


@inline
def is_special(word):  # type: ignore[no-untyped-def]
    """Whether the word of a float is infinite or NaN."""
    return word >= INFINITY or word <= ~INFINITY


@inline
def special_sum(positive, negative, undefined):  # type: ignore[no-untyped-def]
    """The word of a sum with these numbers of infinite values of either sign and of NaN; 0 where there are none."""
    if undefined > 0 or (positive > 0 and negative > 0):
        return NAN
    if positive > 0:
        return INFINITY
    return ~INFINITY if negative > 0 else np.int64(0)


@apart
def limbs_of(word, count):  # type: ignore[no-untyped-def]
    """``count`` times the finite float of a word: the first of five limbs, and what they hold."""
    bits = np.uint64(word if word >= 0 else ~word)
    exponent = np.int64(bits >> np.uint64(52))
    mantissa = bits & _FRACTION
    if exponent > 0:
        mantissa |= _HIDDEN
        exponent -= 1
    upper, lower = np.uint64(0), mantissa
    if count != 1 and count != -1:
        times = np.uint64(count) if count > 0 else np.uint64(0) - np.uint64(count)
        upper, lower = product_unsigned(mantissa, times)
    at, shift = exponent >> 5, np.uint64(exponent & 31)
    back = np.uint64(63) - shift  # two shifts, because one by 64 bits is not defined
    first = lower << shift
    second = (upper << shift) | ((lower >> np.uint64(1)) >> back)
    third = (upper >> np.uint64(1)) >> back
    a, b = np.int64(first & _LOW), np.int64(first >> np.uint64(32))
    c, d, e = np.int64(second & _LOW), np.int64(second >> np.uint64(32)), np.int64(third)
    if (word < 0) != (count < 0):
        return at, -a, -b, -c, -d, -e
    return at, a, b, c, d, e


@inline
def add_float(limbs, low, high, word, count):  # type: ignore[no-untyped-def]
    """Add ``count`` times the finite float of a word. Limbs outside [low, high) are 0; returns the new range."""
    at, a, b, c, d, e = limbs_of(word, count)
    limbs[at] += a
    limbs[at + 1] += b
    limbs[at + 2] += c
    limbs[at + 3] += d
    limbs[at + 4] += e
    return min(low, at), max(high, at + 5)


@inline
def _propagate(limbs, digits, low, high, sign, shift):  # type: ignore[no-untyped-def]
    """The digits of ``sign`` times the sum, carries propagated, limb k at k + shift; returns their end and the carry.

    The carry is -1 if the number is negative.
    """
    carry, k = np.int64(0), low
    while k < high or (carry != 0 and carry != -1):
        value = (sign * limbs[k] if k < high else np.int64(0)) + carry
        digits[k + shift] = value & _MASK
        carry = value >> np.int64(32)
        k += 1
    return k + shift, carry


@inline
def magnitude(limbs, digits, low, high, shift):  # type: ignore[no-untyped-def]
    """Write the digits of the sum without its sign, limb k at k + shift; returns their end and if it is negative."""
    end, carry = _propagate(limbs, digits, low, high, np.int64(1), shift)
    negative = carry < 0
    if negative:
        end, carry = _propagate(limbs, digits, low, high, np.int64(-1), shift)
    return end, negative


@inline
def read_float(limbs, digits, low, high):  # type: ignore[no-untyped-def]
    """The word of the float next to the sum, ties to even; past the greatest float it is infinite."""
    end, negative = magnitude(limbs, digits, low, high, 0)
    return rounded(digits, low, end, 0, negative)


@inline
def cut(limbs, digits, low, high, parts):  # type: ignore[no-untyped-def]
    """Cut a sum of floats into floats whose exact sum it is; returns their number, -1 if it is past the greatest."""
    number = 0
    while number < len(parts):
        word = read_float(limbs, digits, low, high)
        if word == 0:
            return number
        if is_special(word):
            return -1
        parts[number] = word
        number += 1
        low, high = add_float(limbs, low, high, word, np.int64(-1))
    return -1


@apart
def rounded(digits, low, end, unit, negative):  # type: ignore[no-untyped-def]
    """The word of the float next to a number, ties to even: its ``digits[low:end]``, of which bit ``unit`` is 2**-1074.

    ``unit`` may be negative if the number has more than 53 bits.
    """
    top = end - 1
    while top >= low and digits[top] == 0:
        top -= 1
    if top < low:
        return np.int64(0)
    length = 32 * top
    while digits[top] >> (length - 32 * top) != 0:
        length += 1
    drop = max(length - 53, unit)  # bits below the mantissa
    at, shift = drop >> 5, np.uint64(drop & 31)
    bits = np.uint64(0)
    for k in range(max(at, low), min(at + 3, top + 1)):
        digit, position = np.uint64(digits[k]), np.uint64(32 * (k - at))
        if position >= shift:
            bits |= digit << (position - shift)
        else:
            bits |= digit >> (shift - position)
    if drop > 0 and _rounds_up(digits, low, drop - 1, (bits & np.uint64(1)) != 0):
        bits += np.uint64(1)
    exponent = drop - unit
    word = INFINITY
    if exponent <= _MOST_DROPPED:
        word = min(np.int64(bits) + (np.int64(exponent) << np.int64(52)), INFINITY)
    return ~word if negative and word != 0 else word  # no -0.0


@inline
def _rounds_up(digits, low, last, odd):  # type: ignore[no-untyped-def]
    """Whether the bits from ``last`` down are more than half of the next bit, or half where that bit is odd."""
    at, bit = last >> 5, np.int64(last & 31)
    if at < low or (digits[at] >> bit) & 1 == 0:
        return False
    if odd or digits[at] & ((np.int64(1) << bit) - 1) != 0:
        return True
    for k in range(low, at):
        if digits[k] != 0:
            return True
    return False


@inline
def clear(limbs, low, high):  # type: ignore[no-untyped-def]
    """Set the limbs of a range to 0 again."""
    for k in range(low, high):
        limbs[k] = 0
