"""Consolidation of few updates, for which each call from Python costs more than its work: columns to packed integers,
which numpy sorts unless they are a handful, and the sorted integers to columns with sums.
"""

from __future__ import annotations

import numpy as np

from ddcore.compiling.native import Array
from ddcore.kernels.compiling import BOOL, IN2, INT, OUT2, inline, kernel, several

UIN1, UOUT1 = Array("uint64", 1), Array("uint64", 1, writes=True)
_WHOLE, _UPPER, _LOWER = 0, 1, 2  # which part of a column a field has
_BITS = 63
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
def _advance(columns, first, frontier):  # type: ignore[no-untyped-def]
    """Times, from column ``first`` on, become their representatives beyond the frontier (coordinates, elements)."""
    for c in range(frontier.shape[0] if frontier.shape[1] else 0):
        for i in range(columns.shape[1]):
            value = columns[first + c, i]
            least = max(value, frontier[c, 0])
            for element in range(1, frontier.shape[1]):
                least = min(least, max(value, frontier[c, element]))
            columns[first + c, i] = least


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
def _packed(columns, first, frontier):  # type: ignore[no-untyped-def]
    """As :func:`pack`."""
    _advance(columns, first, frontier)
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


@kernel(several(UOUT1, OUT2), OUT2, INT, IN2)
def pack(columns, first, frontier):  # type: ignore[no-untyped-def]
    """The columns, of which the last has the diffs, as an integer for each row, and the table of their fields.

    Times are advanced to the frontier in place before. There are no integers if 63 bits are too few, or if the diffs
    could add up to more than int64 holds.
    """
    return _packed(columns, first, frontier)


@kernel(OUT2, UOUT1, OUT2)
def unpack(packed, table):  # type: ignore[no-untyped-def]
    """The columns of sorted integers: each distinct row once, with the sum of its diffs, without sums of zero.

    Overwrites ``packed``.
    """
    return _unpacked(packed, table)


@kernel(several(BOOL, OUT2), OUT2, INT, IN2)
def consolidate(columns, first, frontier):  # type: ignore[no-untyped-def]
    """Both in one, with an insertion sort between: for a handful of rows. False where there are no integers."""
    packed, table = _packed(columns, first, frontier)
    if len(packed) == 0:
        return False, np.empty((0, 0), dtype=np.int64)
    _sort(packed)
    return True, _unpacked(packed, table)
