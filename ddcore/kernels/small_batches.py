"""Consolidation of few updates, for which each call from Python costs more than its work: columns to packed integers,
these sorted, and the sorted integers to columns with sums. What is sorted already, as two sorted batches one after the
other, is merged; numpy sorts the rest, unless it is a handful.
"""

from __future__ import annotations

import numpy as np

from ddcore.compiling.native import Array
from ddcore.kernels.compiling import BOOL, IN2, OUT2, inline, kernel, several

UIN1, UOUT1 = Array("uint64", 1), Array("uint64", 1, writes=True)
_WHOLE, _UPPER, _LOWER = 0, 1, 2  # which part of a column a field has
_BITS = 63
_HANDFUL = 64  # updates that are sorted here
_LARGEST = 2.0**62


@inline
def _width(least, most):  # type: ignore[no-untyped-def]
    span, bits = np.uint64(most) - np.uint64(least), np.int64(0)
    while span:
        span >>= np.uint64(1)
        bits += 1
    return bits


@inline
def _part(value, part):  # type: ignore[no-untyped-def]
    if part == _UPPER:
        return value >> 32
    return value & np.int64(0xFFFFFFFF) if part == _LOWER else value


@inline
def _bounds(column, part):  # type: ignore[no-untyped-def]
    least = most = _part(column[0], part)
    for value in column:
        least, most = min(least, _part(value, part)), max(most, _part(value, part))
    return least, most


@inline
def _layout(columns):  # type: ignore[no-untyped-def]
    """A table with a row for each field, the uppermost first: column, part, least value, bits; and the sum of bits."""
    count = columns.shape[0]
    table, fields, total = np.zeros((count + 1, 4), dtype=np.int64), count, np.int64(0)
    wide, wides = 0, 0
    for c in range(count):
        least, most = _bounds(columns[c], _WHOLE)
        table[c, 0], table[c, 2], table[c, 3] = c, least, _width(least, most)
        total += table[c, 3]
        if c < count - 1 and table[c, 3] > 32:
            wide, wides = c, wides + 1
    if total > _BITS and wides == 1:
        total -= table[wide, 3]
        for f in range(count, wide + 1, -1):
            table[f] = table[f - 1]
        for part in (_UPPER, _LOWER):
            least, most = _bounds(columns[wide], part)
            at = wide + part - 1
            table[at, 0], table[at, 1], table[at, 2], table[at, 3] = wide, part, least, _width(least, most)
            total += table[at, 3]
        fields += 1
    return table[:fields].copy(), total


@inline
def _packed(columns):  # type: ignore[no-untyped-def]
    """The columns as an integer for each row, of which there are none where :func:`consolidate` says so, and the table
    of their fields.
    """
    n, last = columns.shape[1], columns.shape[0] - 1
    table, total = _layout(columns)
    least, most = _bounds(columns[last], _WHOLE)
    if total > _BITS or max(abs(float(least)), abs(float(most))) * n >= _LARGEST:
        return np.empty(0, dtype=np.uint64), table
    packed = np.zeros(n, dtype=np.uint64)
    for f in range(table.shape[0]):
        column, part, base, shift = columns[table[f, 0]], table[f, 1], table[f, 2], np.uint64(table[f, 3])
        for i in range(n):
            packed[i] = (packed[i] << shift) | np.uint64(_part(column[i], part) - base)
    return packed, table


@inline
def _unpacked(packed, table):  # type: ignore[no-untyped-def]
    """As :func:`unpack`."""
    last = table.shape[0] - 1
    count, least, shift = table[last, 0] + 1, table[last, 2], np.uint64(table[last, 3])
    mask = (np.uint64(1) << shift) - np.uint64(1)
    n, m, i = len(packed), 0, 0
    sums = np.empty(n, dtype=np.int64)
    while i < n:
        row, total = packed[i] >> shift, np.int64(0)
        while i < n and packed[i] >> shift == row:
            total += np.int64(packed[i] & mask) + least
            i += 1
        if total != 0:
            packed[m], sums[m] = row, total
            m += 1
    columns = np.empty((count, m), dtype=np.int64)
    columns[count - 1] = sums[:m]
    shift = np.uint64(0)
    for f in range(last - 1, -1, -1):
        column, part, least, bits = columns[table[f, 0]], table[f, 1], table[f, 2], np.uint64(table[f, 3])
        mask = (np.uint64(1) << bits) - np.uint64(1)
        for j in range(m):
            value = np.int64((packed[j] >> shift) & mask) + least
            column[j] = column[j] | (value << 32) if part == _UPPER else value
        shift += bits
    return columns


@inline
def _sort(packed):  # type: ignore[no-untyped-def]
    """Sort a handful of integers."""
    for i in range(1, len(packed)):
        row, at = packed[i], i
        while at > 0 and packed[at - 1] > row:
            packed[at] = packed[at - 1]
            at -= 1
        packed[at] = row


@inline
def _falls(packed, start):  # type: ignore[no-untyped-def]
    """The first place after ``start`` at which the integers do not ascend, or their number."""
    at = start + 1
    while at < len(packed) and packed[at - 1] <= packed[at]:
        at += 1
    return at


@inline
def _merged(packed, middle):  # type: ignore[no-untyped-def]
    """Two ascending parts as one."""
    n = len(packed)
    merged = np.empty(n, dtype=np.uint64)
    a, b = np.int64(0), np.int64(middle)
    for i in range(n):  # without branches, as no processor can foresee which is less
        first, second = packed[min(a, middle - 1)], packed[min(b, n - 1)]
        takes = (b == n) | ((a < middle) & (first <= second))
        merged[i] = first if takes else second
        a += np.int64(takes)
        b += np.int64(not takes)
    return merged


@inline
def _together(a, b):  # type: ignore[no-untyped-def]
    """The columns of two batches, of which the second may have no row and then no column."""
    columns, n = np.empty((a.shape[0], a.shape[1] + b.shape[1]), dtype=np.int64), a.shape[1]
    columns[:, :n] = a
    for c in range(a.shape[0] if b.shape[1] else 0):
        columns[c, n:] = b[c]
    return columns


@kernel(OUT2, UOUT1, OUT2)
def unpack(packed, table):  # type: ignore[no-untyped-def]
    """The columns of sorted integers: each distinct row once, with the sum of its diffs, without sums of zero.

    Overwrites ``packed``.
    """
    return _unpacked(packed, table)


@kernel(several(BOOL, OUT2, UOUT1, OUT2), IN2, IN2)
def consolidate(a, b):  # type: ignore[no-untyped-def]
    """The updates of two batches as one: whether that is done, and the columns, of which the last has the sums.

    Where it is not, the updates are returned as integers, for :func:`unpack` once they are sorted, with the table of
    their fields: there are none if 63 bits are too few, or if the diffs could add up to more than int64 holds.
    """
    packed, table = _packed(_together(a, b))
    n = len(packed)
    if n == 0:
        return False, np.empty((0, 0), dtype=np.int64), packed, table
    middle = _falls(packed, 0)
    if middle < n and _falls(packed, middle) == n:
        packed = _merged(packed, middle)
    elif middle < n <= _HANDFUL:
        _sort(packed)
    elif middle < n:
        return False, np.empty((0, 0), dtype=np.int64), packed, table
    return True, _unpacked(packed, table), packed, table
