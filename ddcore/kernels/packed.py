"""Rows of sorted batches as packed integers: look-up by code, and columns of some rows.

A row is one uint64. Its fields lie side by side, the code in the upper bits, the diff in the lowest. A table has a row
of numbers for each field; see the kernels.
"""

from __future__ import annotations

import numpy as np

from ddcore.compiling.native import Array
from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, VOID, inline, kernel, several

UIN1, UOUT1 = Array("uint64", 1), Array("uint64", 1, writes=True)
_BLOCK = 2048  # rows whose fields are handled one after the other: they stay in the cache


@inline
def _mask(bits):  # type: ignore[no-untyped-def]
    return (np.uint64(1) << np.uint64(bits)) - np.uint64(1)


@kernel(VOID, UOUT1, UIN1, IN2)
def repack(into, rows, table):  # type: ignore[no-untyped-def]
    """Write rows with other places for their fields into ``into``, which holds zeros.

    Of each field the shift, the bits, the least value, a value that replaces smaller ones, and then the new least value
    and the new shift.
    """
    for start in range(0, len(rows), _BLOCK):
        stop = min(start + _BLOCK, len(rows))
        for f in range(table.shape[0]):
            down, mask, up = np.uint64(table[f, 0]), _mask(table[f, 1]), np.uint64(table[f, 5])
            least, floor, base = table[f, 2], table[f, 3], table[f, 4]
            for i in range(start, stop):
                value = max(np.int64((rows[i] >> down) & mask) + least, floor)
                into[i] |= np.uint64(value - base) << up


@inline
def _bucket(row, down, least, fewer):  # type: ignore[no-untyped-def]
    return np.int64(((row >> down) - least) >> fewer)


@kernel(VOID, OUT1, UIN1, INT, INT, INT, INT)
def bucket_starts(starts, rows, code_shift, shift, first, last):  # type: ignore[no-untyped-def]
    """Write the first row of each bucket ``(code - least code) >> shift`` that begins in the rows ``first`` to
    ``last``; empty buckets begin with the next one. Two passes without branches, which no processor could foresee.
    """
    down, fewer, least, before = np.uint64(code_shift), np.uint64(shift), rows[0] >> np.uint64(code_shift), np.int64(-1)
    if first > 0:
        before = _bucket(rows[first - 1], down, least, fewer)
    while first < last and _bucket(rows[first], down, least, fewer) == before:
        first += 1
    if first == last:
        return
    final = _bucket(rows[last - 1], down, least, fewer)
    starts[before + 1 : final + 1] = -1
    for row in range(last - 1, first - 1, -1):
        starts[_bucket(rows[row], down, least, fewer)] = row
    start = np.int64(last)
    for bucket in range(final, before, -1):
        own = starts[bucket]
        start = own if own >= 0 else start
        starts[bucket] = start


@inline
def _bound(rows, down, lo, hi, code):  # type: ignore[no-untyped-def]
    """First row in [lo, hi) whose code is at least ``code``."""
    while lo < hi:
        middle = (lo + hi) >> 1
        if rows[middle] >> down < code:
            lo = middle + 1
        else:
            hi = middle
    return lo


@kernel(several(OUT1, OUT1), UIN1, IN1, INT, INT, INT, IN1)
def locate(rows, starts, code_shift, least, shift, probes):  # type: ignore[no-untyped-def]
    """Row ranges [lo, hi) of equal code for each probe, through the buckets; ``least`` is that of the code's field."""
    lo, hi = np.zeros(len(probes), dtype=np.int64), np.zeros(len(probes), dtype=np.int64)
    n, down = len(rows), np.uint64(code_shift)
    first, last = rows[0] >> down, rows[n - 1] >> down
    most = np.int64(last) + least
    for i in range(len(probes)):
        if probes[i] < least or probes[i] > most:
            continue
        code = np.uint64(probes[i] - least)
        if code < first:
            continue
        bucket = np.int64((code - first) >> np.uint64(shift))
        a, b = starts[bucket], starts[bucket + 1]
        if shift > 0:
            a = _bound(rows, down, a, b, code)
            b = _bound(rows, down, a, b, code + np.uint64(1))
        lo[i], hi[i] = a, b
    return lo, hi


@kernel(OUT1, UIN1, IN1, IN1, IN1, IN2)
def beyond(rows, lo, hi, bounds, table):  # type: ignore[no-untyped-def]
    """For each k the first row in [lo[k], hi[k]), where a column ascends, whose value there is greater than
    ``bounds[k]``. Of each field of the column the shift, the bits, the least value, how far its value is shifted up.
    """
    found = np.empty(len(bounds), dtype=np.int64)
    for k in range(len(bounds)):
        first, last, bound = lo[k], hi[k], bounds[k]
        while first < last:
            middle, value = (first + last) >> 1, np.int64(0)
            for f in range(table.shape[0]):
                part = np.int64((rows[middle] >> np.uint64(table[f, 0])) & _mask(table[f, 1])) + table[f, 2]
                value += part << table[f, 3]
            if value <= bound:
                first = middle + 1
            else:
                last = middle
        found[k] = first
    return found


@kernel(several(UOUT1, OUT1, OUT1), UIN1, IN1, IN1, INT, INT, IN2)
def collapse(rows, lo, hi, diff_bits, least, table):  # type: ignore[no-untyped-def]
    """The rows of each range with no field below its floor, and neighbours that are equal then added up: the rows
    without their diffs, the sums, and where each range's begin and end.

    Of each field that has a floor the shift without the diff's bits, the bits, and the floor, as a number in the field.
    """
    size = np.int64(0)
    for k in range(len(lo)):
        size += hi[k] - lo[k]
    out, sums, starts = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.int64), np.zeros(len(lo) + 1, np.int64)
    shift, mask, n = np.uint64(diff_bits), _mask(diff_bits), np.int64(0)
    for k in range(len(lo)):
        row, total = np.uint64(0), np.int64(0)
        for at in range(lo[k], hi[k]):  # without branches: how many are equal cannot be predicted
            before, row, diff = row, rows[at] >> shift, np.int64(rows[at] & mask) + least
            for f in range(table.shape[0]):
                down, floor = np.uint64(table[f, 0]), np.uint64(table[f, 2])
                value = (row >> down) & _mask(table[f, 1])
                row += (max(value, floor) - value) << down
            fresh = row != before
            n += np.int64(fresh & (total != 0))
            total = diff if fresh else total + diff
            out[n], sums[n] = row, total
        n += np.int64(total != 0)
        starts[k + 1] = n
    return out[:n], sums[:n], starts


@kernel(VOID, OUT1, OUT2, UIN1, IN1, IN1, IN2)
def scatter(at, out, rows, lo, hi, table):  # type: ignore[no-untyped-def]
    """Write columns of each range's rows from its place ``at`` on, which advances.

    Of each field the shift, the bits, the least value, how far its value is shifted up, whether it is added to what is
    in its column, and the number of the column.
    """
    chosen, positions = np.empty(_BLOCK, dtype=np.uint64), np.empty(_BLOCK, dtype=np.int64)
    n, k, row = 0, 0, np.int64(0)
    if len(lo):
        row = lo[0]
    while k < len(lo):
        n = 0
        while k < len(lo) and n < _BLOCK:
            if row >= hi[k]:
                k += 1
                if k < len(lo):
                    row = lo[k]
                continue
            chosen[n], positions[n] = rows[row], at[k]
            at[k] += 1
            n += 1
            row += 1
        for f in range(table.shape[0]):
            down, mask, least, up = np.uint64(table[f, 0]), _mask(table[f, 1]), table[f, 2], np.uint64(table[f, 3])
            column = table[f, 5]
            if table[f, 4]:
                for i in range(n):
                    out[column, positions[i]] += (np.int64((chosen[i] >> down) & mask) + least) << up
            else:
                for i in range(n):
                    out[column, positions[i]] = (np.int64((chosen[i] >> down) & mask) + least) << up
