"""The differences between the right output and the output so far, per key and version.

Counts are added up as pairs of words: they may pass beyond int64 as long as each difference fits.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.sorting import alike, sort_rows
from ddcore.kernels.time_columns import grow, holds, inside
from ddcore.kernels.wide import add_pair, fits, minus_pair

_SMALL = np.int64(2**40)


@inline
def _first_at_or_after(e_times, e0, e1, version):  # type: ignore[no-untyped-def]
    lo, hi = e0, e1
    while lo < hi:
        middle = (lo + hi) >> 1
        if e_times[0, middle] < version:
            lo = middle + 1
        else:
            hi = middle
    return lo


@inline
def _spread(events, n, is_target, values, w_from, w_to, d_words, d_evals, d_counts, last):  # type: ignore[no-untyped-def]
    """Add two events per target row: it holds at its evaluation, and no longer at the next one (unless it is a target
    there too), if that is below ``last``.
    """
    width = d_words.shape[0]
    for d in range(w_from, w_to):
        for w in range(width):
            events[w, n] = d_words[w, d]
        events[width, n], is_target[n], values[n] = d_evals[d], True, d_counts[d]
        n += 1
        if d_evals[d] + 1 < last:
            for w in range(width):
                events[w, n] = d_words[w, d]
            events[width, n], is_target[n], values[n] = d_evals[d] + 1, True, 0
            n += 1
    return n


@inline
def _is_small(count):  # type: ignore[no-untyped-def]
    """Whether the difference of two such counts fits into int64."""
    return -_SMALL <= count <= _SMALL


@inline
def _put(out, used, events, width, row, e, diff):  # type: ignore[no-untyped-def]
    if diff == 0:
        return out, used
    if used == out.shape[1]:
        out = grow(out, used)
    for w in range(width):
        out[w, used] = events[w, row]
    out[width, used], out[width + 1, used] = e, diff
    return out, used + 1


@inline
def _walk_chain(out, used, events, is_target, values, order, i, j, width):  # type: ignore[no-untyped-def]
    """One row's events by ascending eval number: emit where the current count differs from the target.

    Stops at a difference that int64 cannot hold and returns its eval number, else -1.
    """
    high, low = np.int64(0), np.uint64(0)
    while i < j:
        e, target_high, target_low = events[width, order[i]], np.int64(0), np.uint64(0)
        while i < j and events[width, order[i]] == e:
            value = values[order[i]]
            if is_target[order[i]]:
                target_high, target_low = add_pair(target_high, target_low, value)
            else:
                high, low = add_pair(high, low, value)
            i += 1
        if target_high != high or target_low != low:
            diff_high, diff = minus_pair(target_high, target_low, high, low)
            if not fits(diff_high, diff):
                return out, used, e
            out, used = _put(out, used, events, width, order[i - 1], e, np.int64(diff))
            high, low = target_high, target_low
    return out, used, np.int64(-1)


@inline
def _walk_grid(out, used, events, is_target, values, order, i, j, width, e0, e1, e_times, o_times):  # type: ignore[no-untyped-def]
    """One row at partially ordered versions: at each, the target count minus all counts that hold there already.

    Stops at a difference that int64 cannot hold and returns its eval number, else -1.
    """
    own = used
    for e in range(e0, e1):
        high, low = np.int64(0), np.uint64(0)
        current_high, current_low = np.int64(0), np.uint64(0)
        for x in range(i, j):
            row = order[x]
            if is_target[row]:
                if events[width, row] == e:
                    high, low = add_pair(high, low, values[row])
            elif holds(o_times, events[width, row], e_times, e):
                current_high, current_low = add_pair(current_high, current_low, values[row])
        for u in range(own, used):
            if holds(e_times, out[width, u], e_times, e):
                current_high, current_low = add_pair(current_high, current_low, out[width + 1, u])
        if high != current_high or low != current_low:
            diff_high, diff = minus_pair(high, low, current_high, current_low)
            if not fits(diff_high, diff):
                return out, used, np.int64(e)
            out, used = _put(out, used, events, width, order[i], e, np.int64(diff))
    return out, used, np.int64(-1)


@kernel(
    several(OUT1, OUT2, OUT1, OUT1),
    INT, IN1, IN1, IN2, IN1, IN2, IN1, IN1, IN2, IN2, IN1,
)  # fmt: skip
def emit(inputs, loops, e_offsets, e_times, d_evals, d_words, d_counts, o_offsets, o_words, o_times, o_diffs):  # type: ignore[no-untyped-def]
    """The differences that turn the output so far into the target, at every evaluated version.

    Target rows come by ascending eval number with their counts. Returns eval number, words (columns, n) and diff
    of each difference, and the (key, eval) where int64 cannot hold one, empty if there is none.
    """
    beyond = np.empty(0, dtype=np.int64)
    keys, width = len(e_offsets) - 1, d_words.shape[0]
    out = np.empty((width + 2, max(64, len(d_evals))), dtype=np.int64)
    used, capacity, d = 0, 64, 0
    events = np.empty((width + 1, capacity), dtype=np.int64)
    is_target, values = np.empty(capacity, dtype=np.bool_), np.empty(capacity, dtype=np.int64)
    order = np.empty(capacity, dtype=np.int64)
    for k in range(keys):
        e0, e1, d0 = e_offsets[k], e_offsets[k + 1], d
        while d < len(d_evals) and d_evals[d] < e1:
            d += 1
        most = 2 * (d - d0) + o_offsets[k + 1] - o_offsets[k]
        if e0 == e1 or most == 0:
            continue
        if most > capacity:
            capacity = 2 * most
            events = np.empty((width + 1, capacity), dtype=np.int64)
            is_target, values = np.empty(capacity, dtype=np.bool_), np.empty(capacity, dtype=np.int64)
            order = np.empty(capacity, dtype=np.int64)
        if inputs == 1 and e1 - e0 == 1 and d - d0 == 1 and _is_small(d_counts[d0]):
            held, row = o_offsets[k + 1] - o_offsets[k], o_offsets[k]
            if held == 0:
                out, used = _put(out, used, d_words, width, d0, e0, d_counts[d0])
                continue
            if (
                held == 1
                and _is_small(o_diffs[row])
                and inside(o_times, row, loops, 1)
                and holds(o_times, row, e_times, e0)
            ):
                if not alike(d_words, d0, o_words, row, width):
                    out, used = _put(out, used, o_words, width, row, e0, -o_diffs[row])
                    out, used = _put(out, used, d_words, width, d0, e0, d_counts[d0])
                elif d_counts[d0] != o_diffs[row]:
                    out, used = _put(out, used, d_words, width, d0, e0, d_counts[d0] - o_diffs[row])
                continue
        n = 0
        for row in range(o_offsets[k], o_offsets[k + 1]):
            if not inside(o_times, row, loops, inputs):
                continue
            at = _first_at_or_after(e_times, e0, e1, o_times[0, row]) if inputs == 1 else row
            if inputs == 1 and at == e1:
                continue
            for w in range(width):
                events[w, n] = o_words[w, row]
            events[width, n], is_target[n], values[n] = at, False, o_diffs[row]
            n += 1
        last = e1 if inputs == 1 else np.int64(0)  # at partially ordered versions it holds at none but its own
        n = _spread(events, n, is_target, values, d0, d, d_words, d_evals, d_counts, last)
        for i in range(n):
            order[i] = i
        sort_rows(order, 0, n, events)
        i = 0
        while i < n:
            j = i + 1
            while j < n and alike(events, order[i], events, order[j], width):
                j += 1
            if inputs == 1:
                out, used, at = _walk_chain(out, used, events, is_target, values, order, i, j, width)
            else:
                out, used, at = _walk_grid(
                    out, used, events, is_target, values, order, i, j, width, e0, e1, e_times, o_times
                )
            if at >= 0:
                beyond = np.array([np.int64(k), np.int64(at)])
                return out[width, :used].copy(), out[:width, :used].copy(), out[width + 1, :used].copy(), beyond
            i = j
    return out[width, :used].copy(), out[:width, :used].copy(), out[width + 1, :used].copy(), beyond
