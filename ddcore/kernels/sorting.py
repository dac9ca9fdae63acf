"""Sorting by packed integers: the columns of an update in as few bits as they need, in one uint64."""

from __future__ import annotations

import numpy as np

from ddcore.compiling.native import Array
from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, VOID, apart, inline, kernel, several
from ddcore.kernels.wide import add_triple, triple_fits, triple_is_pair

_SMALL = 24
_LEAST, _MOST = np.int64(-(2**63)), np.int64(2**63 - 1)
UIN1, UOUT1 = Array("uint64", 1), Array("uint64", 1, writes=True)


@kernel(VOID, UOUT1, IN1, INT, INT)
def pack(packed, column, least, bits):  # type: ignore[no-untyped-def]
    """Append ``column - least`` as the lowest bits of each packed integer, in place."""
    shift, base = np.uint64(bits), np.uint64(least)
    for i in range(len(packed)):
        packed[i] = (packed[i] << shift) | (np.uint64(column[i]) - base)


@kernel(VOID, OUT1, UIN1, INT, INT, INT)
def unpack(column, packed, shift, bits, least):  # type: ignore[no-untyped-def]
    """Extract one column from packed integers."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1) if bits < 64 else ~np.uint64(0)
    down, base = np.uint64(shift), np.uint64(least)
    for i in range(len(packed)):
        column[i] = np.int64(((packed[i] >> down) & mask) + base)


@inline
def _range_of(bounds, key):  # type: ignore[no-untyped-def]
    """The number of bounds at or below a key: few, so that counting them is faster than a search."""
    number = np.int64(0)
    for bound in bounds:
        number += np.int64(key >= bound)
    return number


@kernel(OUT1, UIN1, UIN1)
def range_sizes(bounds, keys):  # type: ignore[no-untyped-def]
    """How many keys are below the first bound, between the first and the second, and so on: int64[bounds + 1]. Bounds
    ascend.
    """
    sizes = np.zeros(len(bounds) + 1, dtype=np.int64)
    sizes[0] = len(keys)
    for b in range(len(bounds)):
        bound, above = bounds[b], np.int64(0)
        for i in range(len(keys)):
            above += np.int64(keys[i] >= bound)
        sizes[b] -= above
        sizes[b + 1] = above
    return sizes


@kernel(VOID, UIN1, UIN1, UOUT1, IN1)
def divide(bounds, keys, target, positions):  # type: ignore[no-untyped-def]
    """Copy keys to the places of their ranges in the target."""
    at = positions.copy()
    for i in range(len(keys)):
        number = _range_of(bounds, keys[i])
        target[at[number]] = keys[i]
        at[number] += 1


@inline
def _pass(source, target, shift, mask, positions):  # type: ignore[no-untyped-def]
    """Copy keys to the places of one of their digits."""
    for i in range(len(source)):
        digit = (source[i] >> shift) & mask
        target[positions[digit]] = source[i]
        positions[digit] += 1


@kernel(INT, UOUT1, UOUT1, INT)
def radix(keys, spare, low):  # type: ignore[no-untyped-def]
    """Sort keys by their bits from ``low`` upwards; equal ones keep their order. 1 if ``spare``, of their length, has
    the result, else 0: ``keys`` has it.

    The lowest digits first; digits in which no two keys differ take no pass. A digit has so few values that a place
    for each stays in the first cache and its pages in the processor's table of pages.
    """
    n = len(keys)
    some, every, falls = np.uint64(0), ~np.uint64(0), False
    before = np.uint64(0)
    for i in range(n):
        some |= keys[i]
        every &= keys[i]
        falls |= (keys[i] >> np.uint64(low)) < before
        before = keys[i] >> np.uint64(low)
    if not falls:
        return 0
    differing = (some & ~every) >> np.uint64(low)
    bits = 0
    while differing != 0:
        differing >>= np.uint64(1)
        bits += 1
    most = 10 if n >= 4096 else 8
    passes = (bits + most - 1) // most
    width = (bits + passes - 1) // passes
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    positions = np.zeros((passes, 1 << width), dtype=np.int64)
    for i in range(n):
        for p in range(passes):
            positions[p, (keys[i] >> np.uint64(low + p * width)) & mask] += 1
    turned = 0
    for p in range(passes):
        shift = np.uint64(low + p * width)
        if positions[p, (keys[0] >> shift) & mask] == n:
            continue
        at = np.int64(0)
        for digit in range(1 << width):
            size = positions[p, digit]
            positions[p, digit] = at
            at += size
        if turned:
            _pass(spare, keys, shift, mask, positions[p])
        else:
            _pass(keys, spare, shift, mask, positions[p])
        turned = 1 - turned
    return turned


@kernel(INT, UOUT1, OUT1, INT, INT)
def sum_equal(keys, sums, diff_bits, least):  # type: ignore[no-untyped-def]
    """Of keys that carry ``diff - least`` in their low bits and are sorted by the others: how many distinct rows there
    are; these are the beginning of ``keys`` then, and the sums of their diffs that of ``sums``.

    Sums of zero are left out. Cannot overflow while ``diff_bits`` is small, which the caller ensures.
    """
    n, shift = len(keys), np.uint64(diff_bits)
    mask = (np.uint64(1) << shift) - np.uint64(1)
    m, row, total = np.int64(0), np.uint64(0), np.int64(0)
    for i in range(n):  # without branches: how many rows are equal cannot be predicted
        before, row, diff = row, keys[i] >> shift, np.int64(keys[i] & mask) + least
        fresh = row != before
        m += np.int64(fresh & (total != 0))
        total = diff if fresh else total + diff
        keys[m], sums[m] = row, total
    return m + np.int64(total != 0)


@inline
def less(columns, i, j):  # type: ignore[no-untyped-def]
    """Whether row i comes before row j, column by column."""
    for c in range(columns.shape[0]):
        if columns[c, i] != columns[c, j]:
            return columns[c, i] < columns[c, j]
    return False


@inline
def alike(columns, i, others, j, width):  # type: ignore[no-untyped-def]
    """Whether row i and row j of others are equal in the first ``width`` columns."""
    for c in range(width):
        if columns[c, i] != others[c, j]:
            return False
    return True


@inline
def same(columns, i, j):  # type: ignore[no-untyped-def]
    """Whether rows i and j are equal in every column."""
    for c in range(columns.shape[0]):
        if columns[c, i] != columns[c, j]:
            return False
    return True


@inline
def _sift(order, start, root, n, columns):  # type: ignore[no-untyped-def]
    while 2 * root + 1 < n:
        child = 2 * root + 1
        if child + 1 < n and less(columns, order[start + child], order[start + child + 1]):
            child += 1
        if not less(columns, order[start + root], order[start + child]):
            return
        order[start + root], order[start + child] = order[start + child], order[start + root]
        root = child


@apart
def sort_rows(order, start, stop, columns):  # type: ignore[no-untyped-def]
    """Sort ``order[start:stop]``, row numbers, by the columns: insertion for few or nearly sorted rows, else
    heapsort.
    """
    n = stop - start
    ascending = True
    for i in range(start + 1, stop):
        if less(columns, order[i], order[i - 1]):
            ascending = False
            break
    if ascending:
        return
    if n <= _SMALL:
        for i in range(start + 1, stop):
            row, j = order[i], i
            while j > start and less(columns, row, order[j - 1]):
                order[j] = order[j - 1]
                j -= 1
            order[j] = row
        return
    for root in range(n // 2 - 1, -1, -1):
        _sift(order, start, root, n, columns)
    for last in range(n - 1, 0, -1):
        order[start], order[start + last] = order[start + last], order[start]
        _sift(order, start, 0, last, columns)


@kernel(VOID, OUT1, IN2, INT, INT)
def sort_within(order, columns, least, shift):  # type: ignore[no-untyped-def]
    """Sort rows by the columns, in place; ``order`` sorts them by ``(columns[0] - least) >> shift`` already."""
    n, start = len(order), 0
    base, down = np.uint64(least), np.uint64(shift)
    while start < n:
        group = (np.uint64(columns[0, order[start]]) - base) >> down
        stop = start + 1
        while stop < n and (np.uint64(columns[0, order[stop]]) - base) >> down == group:
            stop += 1
        if stop - start > 1:
            sort_rows(order, start, stop, columns)
        start = stop


@inline
def add(a, b):  # type: ignore[no-untyped-def]
    """a + b and whether it overflows int64."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


@inline
def multiply(a, b):  # type: ignore[no-untyped-def]
    """a * b and whether it overflows int64."""
    if -2147483648 <= a <= 2147483647 and -2147483648 <= b <= 2147483647:
        return a * b, False
    if a == _LEAST or b == _LEAST:
        return a * b, a != 1 and b != 1 and a != 0 and b != 0
    # Checked before multiplying: the compiler may assume that a signed product never wraps around.
    return a * b, b != 0 and abs(a) > _MOST // abs(b)


@inline
def sum_sorted(order, first, stop, columns, diffs, rows, sums, m):  # type: ignore[no-untyped-def]
    """Write the rows of ``order[first:stop]``, sorted by the columns, each once with the sum of its diffs, from number
    m on; zeros are left out. Returns where they end, and whether int64 could not hold a sum: such rows stay apart.
    """
    i, overflow = first, False
    while i < stop:
        row, total = order[i], diffs[order[i]]
        i += 1
        while i < stop and same(columns, order[i], row):
            together, bad = add(total, diffs[order[i]])
            if bad:
                overflow = True
                rows[m], sums[m] = row, total
                m += 1
                together = diffs[order[i]]
            total = together
            i += 1
        if total != 0:
            rows[m], sums[m] = row, total
            m += 1
    return m, overflow


@kernel(several(OUT1, OUT1), IN1, IN2, IN1)
def sum_runs(order, columns, diffs):  # type: ignore[no-untyped-def]
    """Of rows sorted by the columns: one row number per distinct row, and its summed diff; zeros left out.

    The second array has one more element: 1 if int64 could not hold a sum on its way, else 0. Then
    :func:`sum_runs_exactly` has the sums.
    """
    n = len(order)
    rows, sums = np.empty(n, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    m, overflow = sum_sorted(order, 0, n, columns, diffs, rows, sums, 0)
    sums[m] = overflow
    return rows[:m].copy(), sums[: m + 1].copy()


@kernel(several(OUT1, OUT1, OUT1, INT), IN1, IN2, IN1, IN1)
def sum_runs_exactly(order, columns, lows, highs):  # type: ignore[no-untyped-def]
    """Of rows sorted by the columns, with diffs of two words: row numbers, and sums in two words.

    The last result is 0 where int64 holds every sum, 1 where some need both words, 2 where those are too few.
    """
    n = len(order)
    rows, sums, uppers = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    m, i, size = 0, 0, np.int64(0)
    while i < n:
        row = order[i]
        top, high, low = np.int64(0), np.uint64(0), np.uint64(0)
        while i < n and same(columns, order[i], row):
            top, high, low = add_triple(top, high, low, highs[order[i]], np.uint64(lows[order[i]]))
            i += 1
        if top == 0 and high == 0 and low == 0:
            continue
        rows[m], sums[m], uppers[m] = row, np.int64(low), np.int64(high)
        if not triple_fits(top, high, low):
            size = max(size, np.int64(1 if triple_is_pair(top, high) else 2))
        m += 1
    return rows[:m].copy(), sums[:m].copy(), uppers[:m].copy(), size
