"""Sorted batches: look-up by key code, and gathering the rows of many keys."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, VOID, apart, inline, kernel, several
from ddcore.kernels.sorting import add, alike, same, sort_rows, sum_sorted
from ddcore.kernels.time_columns import representative

_PAIR = several(OUT1, OUT1)


@inline
def _bound(codes, lo, hi, code, after):  # type: ignore[no-untyped-def]
    """First row in [lo, hi) whose code is at least ``code``, or beyond it when ``after``."""
    while lo < hi:
        middle = (lo + hi) >> 1
        if codes[middle] < code or (after and codes[middle] == code):
            lo = middle + 1
        else:
            hi = middle
    return lo


@inline
def _of_code(codes, starts, least, shift, code):  # type: ignore[no-untyped-def]
    """The rows with a code, through the buckets."""
    if len(codes) == 0 or code < least or code > codes[len(codes) - 1]:
        return np.int64(0), np.int64(0)
    bucket = np.int64((np.uint64(code) - np.uint64(least)) >> np.uint64(shift))
    first, last = starts[bucket], starts[bucket + 1]
    if shift > 0:
        first = _bound(codes, first, last, code, False)
        last = _bound(codes, first, last, code, True)
    return first, last


@inline
def of_key(first, last, words, keys, k, width):  # type: ignore[no-untyped-def]
    """The rows of key k among those of one code, which are neighbours: the others are of keys with the same code."""
    while first < last and not alike(words, first, keys, k, width):
        first += 1
    while first < last and not alike(words, last - 1, keys, k, width):
        last -= 1
    return first, last


@kernel(_PAIR, IN1, IN1, INT, INT, IN1)
def locate(codes, starts, least, shift, probes):  # type: ignore[no-untyped-def]
    """Row ranges [lo, hi) of equal code for each probe, through the buckets: O(1) each where codes are spread
    evenly.
    """
    lo, hi = np.empty(len(probes), dtype=np.int64), np.empty(len(probes), dtype=np.int64)
    for i in range(len(probes)):
        lo[i], hi[i] = _of_code(codes, starts, least, shift, probes[i])
    return lo, hi


@kernel(_PAIR, IN1, IN1, IN1, IN1)
def search(codes, probes, first, last):  # type: ignore[no-untyped-def]
    """Row ranges of equal code for each probe by binary search inside [first[i], last[i])."""
    lo, hi = np.empty(len(probes), dtype=np.int64), np.empty(len(probes), dtype=np.int64)
    for i in range(len(probes)):
        lo[i] = _bound(codes, first[i], last[i], probes[i], False)
        hi[i] = _bound(codes, lo[i], last[i], probes[i], True)
    return lo, hi


@kernel(OUT1, IN1, IN1, IN1, IN1)
def beyond(values, lo, hi, bounds):  # type: ignore[no-untyped-def]
    """For each k the first row in [lo[k], hi[k]), where values ascend, whose value is greater than ``bounds[k]``."""
    rows = np.empty(len(bounds), dtype=np.int64)
    for k in range(len(bounds)):
        rows[k] = _bound(values, lo[k], hi[k], bounds[k], True)
    return rows


@kernel(_PAIR, IN2, IN1, IN1, IN2)
def of_keys(keys, lo, hi, words):  # type: ignore[no-untyped-def]
    """The rows of each key (K, m) in [lo[k], hi[k]), which are neighbours: the others there have the same code only."""
    first, last = lo.copy(), hi.copy()
    for k in range(len(lo)):
        first[k], last[k] = of_key(first[k], last[k], words, keys, k, keys.shape[0])
    return first, last


@kernel(OUT1, IN1, IN2, INT)
def group_starts(codes, words, key_words):  # type: ignore[no-untyped-def]
    """First row of each distinct key (code and first ``key_words`` words) of a sorted batch, and one past the end."""
    n, m = len(codes), 0
    starts = np.empty(n + 1, dtype=np.int64)
    for i in range(n):
        fresh = i == 0 or codes[i] != codes[i - 1]
        for k in range(key_words):
            fresh = fresh or words[k, i] != words[k, i - 1]
        if fresh:
            starts[m] = i
            m += 1
    starts[m] = n
    return starts[: m + 1].copy()


@kernel(_PAIR, IN1, IN1, IN1)
def spread(order, starts, codes):  # type: ignore[no-untyped-def]
    """The rows of the groups ``starts[g]:starts[g + 1]``, one group after the other in this order, and their codes."""
    n = starts[len(starts) - 1]
    rows, row_codes = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    m = 0
    for i in range(len(order)):
        group = order[i]
        for row in range(starts[group], starts[group + 1]):
            rows[m], row_codes[m] = row, codes[group]
            m += 1
    return rows, row_codes


@apart
def _find(spans, counts, row, table, starts, buckets, codes, keys):  # type: ignore[no-untyped-def]
    """Write the rows of each key in one batch, from the first to one past the last, to rows of ``spans``, and add their
    numbers to ``counts``; whether there is any row.
    """
    own, words, least, shift, some = table[0], table[1:], buckets[row, 0], buckets[row, 1], False
    for k in range(len(codes)):
        first, last = _of_code(own, starts, least, shift, codes[k])
        first, last = of_key(first, last, words, keys, k, keys.shape[0])
        spans[2 * row, k], spans[2 * row + 1, k] = first, last
        counts[k] += last - first
        some |= first < last
    return np.int64(some)


@apart
def _copy(at, out, spans, row, table, skip):  # type: ignore[no-untyped-def]
    """Copy each key's rows in its span of one batch to its place ``at``, which advances."""
    last = table.shape[0] - 1
    for k in range(len(at) if table.shape[1] else 0):
        position = at[k]
        for i in range(spans[2 * row, k], spans[2 * row + 1, k]):
            for c in range(1 + skip, last):
                out[c - 1 - skip, position] = table[c, i]
            for c in range(last - 1 - skip, out.shape[0] - 1):
                out[c, position] = 0
            out[out.shape[0] - 1, position] = table[last, i]
            position += 1
        at[k] = position


@inline
def _find_in_six(a, b, c, d, e, f, starts, buckets, codes, keys):  # type: ignore[no-untyped-def]
    spans, counts = np.zeros((12, len(codes)), dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    some = _find(spans, counts, 0, a, starts[0], buckets, codes, keys)
    some |= _find(spans, counts, 1, b, starts[1], buckets, codes, keys) << 1
    some |= _find(spans, counts, 2, c, starts[2], buckets, codes, keys) << 2
    some |= _find(spans, counts, 3, d, starts[3], buckets, codes, keys) << 3
    some |= _find(spans, counts, 4, e, starts[4], buckets, codes, keys) << 4
    some |= _find(spans, counts, 5, f, starts[5], buckets, codes, keys) << 5
    return spans, counts, some


@inline
def _copy_from_six(at, out, spans, a, b, c, d, e, f, skip):  # type: ignore[no-untyped-def]
    _copy(at, out, spans, 0, a, skip)
    _copy(at, out, spans, 1, b, skip)
    _copy(at, out, spans, 2, c, skip)
    _copy(at, out, spans, 3, d, skip)
    _copy(at, out, spans, 4, e, skip)
    _copy(at, out, spans, 5, f, skip)


@kernel(several(OUT2, OUT1, INT), IN2, IN2, IN2, IN2, IN2, IN2, IN1, IN1, IN1, IN1, IN1, IN1, IN2, IN1, IN2)
def find_in_six(a, b, c, d, e, f, a_starts, b_starts, c_starts, d_starts, e_starts, f_starts, buckets, codes, keys):  # type: ignore[no-untyped-def]
    """The rows of keys in up to six batches, one after another in memory: for each batch two rows of spans, how many
    rows each key has in all, and a bit for each batch that has a row. ``buckets``: the least code of each batch, and
    the shift to its bucket. A batch without rows stands for none.
    """
    starts = a_starts, b_starts, c_starts, d_starts, e_starts, f_starts
    return _find_in_six(a, b, c, d, e, f, starts, buckets, codes, keys)


@kernel(VOID, OUT1, OUT2, IN2, IN2, IN2, IN2, IN2, IN2, IN2, INT)
def copy_from_six(at, out, spans, a, b, c, d, e, f, skip):  # type: ignore[no-untyped-def]
    """Copy the rows that :func:`find_in_six` says, without the first ``skip`` words, to the places of their keys,
    which advance; missing loop coordinates become 0.
    """
    _copy_from_six(at, out, spans, a, b, c, d, e, f, skip)


@kernel(several(OUT1, OUT2, INT, INT), IN2, IN2, IN2, IN2, IN2, IN2, IN1, IN1, IN1, IN1, IN1, IN1, IN2, IN1, IN2, INT)
def rows_in_six(  # type: ignore[no-untyped-def]
    a, b, c, d, e, f, a_starts, b_starts, c_starts, d_starts, e_starts, f_starts, buckets, codes, keys, columns
):
    """Both at once, where no other batch has rows: where the rows of each key begin, one after another, and one past
    the end; these rows in so many columns; the bits of the batches; and the greatest number of rows of a key.
    """
    starts = a_starts, b_starts, c_starts, d_starts, e_starts, f_starts
    spans, counts, some = _find_in_six(a, b, c, d, e, f, starts, buckets, codes, keys)
    offsets, most = np.zeros(len(codes) + 1, dtype=np.int64), np.int64(0)
    for k in range(len(codes)):
        offsets[k + 1] = offsets[k] + counts[k]
        most = max(most, counts[k])
    out = np.empty((columns, offsets[len(codes)]), dtype=np.int64)
    _copy_from_six(offsets[:-1].copy(), out, spans, a, b, c, d, e, f, keys.shape[0])
    return offsets, out, some, most


@kernel(VOID, OUT1, IN2, IN1, IN1, IN2)
def count_matches(counts, keys, lo, hi, words):  # type: ignore[no-untyped-def]
    """Add to each key's count its rows in [lo, hi); rows of another key under the same code do not match."""
    if keys.shape[0] == 0:
        for k in range(len(lo)):
            counts[k] += hi[k] - lo[k]
        return
    for k in range(len(lo)):
        for row in range(lo[k], hi[k]):
            if alike(words, row, keys, k, keys.shape[0]):
                counts[k] += 1


@kernel(VOID, OUT1, OUT2, OUT2, OUT1, IN2, IN1, IN1, IN2, IN2, IN1)
def copy_matches(at, out_words, out_times, out_diffs, keys, lo, hi, words, times, diffs):  # type: ignore[no-untyped-def]
    """Copy each key's rows in [lo, hi) to its place ``at``, which advances; missing loop coordinates become 0."""
    skip = keys.shape[0]
    for k in range(len(lo)):
        position = at[k]
        for row in range(lo[k], hi[k]):
            if not alike(words, row, keys, k, keys.shape[0]):
                continue
            for w in range(out_words.shape[0]):
                out_words[w, position] = words[skip + w, row]
            for t in range(times.shape[0]):
                out_times[t, position] = times[t, row]
            for t in range(times.shape[0], out_times.shape[0]):
                out_times[t, position] = 0
            out_diffs[position] = diffs[row]
            position += 1
        at[k] = position


@inline
def _add_neighbours(columns, sums, n, words, times, diffs, first, last, frontier):  # type: ignore[no-untyped-def]
    """Write rows at the representatives of their times, from number n on, and add up neighbours that are equal there;
    returns where they end. Batches have a row's times one after another: most of a long history goes here.
    """
    start, width = n, words.shape[0]
    for row in range(first, last):
        for w in range(width):
            columns[w, n] = words[w, row]
        for c in range(times.shape[0]):
            columns[width + c, n] = representative(times[c, row], frontier, c)
        if n > start and same(columns, n, n - 1):
            together, bad = add(sums[n - 1], diffs[row])
            if not bad:
                sums[n - 1] = together
                continue
        elif n > start and sums[n - 1] == 0:
            n -= 1
            for c in range(columns.shape[0]):
                columns[c, n] = columns[c, n + 1]
        sums[n] = diffs[row]
        n += 1
    return n - 1 if n > start and sums[n - 1] == 0 else n


@kernel(several(OUT1, OUT2, OUT2, OUT1), IN1, IN2, IN2, IN1, IN2)
def compact(offsets, words, times, diffs, frontier):  # type: ignore[no-untyped-def]
    """The rows of each key at the representatives of their times beyond the frontier (coordinates, elements), sorted by
    words and times, and added up: offsets, words, times, diffs. Sums that int64 cannot hold stay apart.
    """
    keys, width, depth = len(offsets) - 1, words.shape[0], times.shape[0]
    heads, totals = np.empty(len(diffs), dtype=np.int64), np.empty(len(diffs), dtype=np.int64)
    columns, sums = np.empty((width + depth, len(diffs)), dtype=np.int64), np.empty(len(diffs), dtype=np.int64)
    starts = np.zeros(keys + 1, dtype=np.int64)
    order, m, stop = np.arange(len(diffs)), 0, 0
    for k in range(keys):
        i = stop
        stop = _add_neighbours(columns, sums, i, words, times, diffs, offsets[k], offsets[k + 1], frontier)
        sort_rows(order, i, stop, columns)
        m, _ = sum_sorted(order, i, stop, columns, sums, heads, totals, m)
        starts[k + 1] = m
    out_words, out_times = np.empty((width, m), dtype=np.int64), np.empty((depth, m), dtype=np.int64)
    for w in range(width):
        for i in range(m):
            out_words[w, i] = columns[w, heads[i]]
    for c in range(depth):
        for i in range(m):
            out_times[c, i] = columns[width + c, heads[i]]
    return starts, out_words, out_times, totals[:m].copy()
