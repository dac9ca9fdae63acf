"""The differences that lead from the output so far to the output that is wanted, per key and version."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.points import grown, holds, inside
from ddcore.kernels.sorting import sort_rows


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
def _spread(events, n, wants, values, w_from, w_to, d_words, d_evals, d_counts, last):  # type: ignore[no-untyped-def]
    """Add two events per wanted row: it holds at its evaluation, and no longer at the next one (unless wanted there
    too).
    """
    width = d_words.shape[0]
    for d in range(w_from, w_to):
        for w in range(width):
            events[w, n] = d_words[w, d]
        events[width, n], wants[n], values[n] = d_evals[d], True, d_counts[d]
        n += 1
        if d_evals[d] + 1 < last:
            for w in range(width):
                events[w, n] = d_words[w, d]
            events[width, n], wants[n], values[n] = d_evals[d] + 1, True, 0
            n += 1
    return n


@inline
def _same_row(events, width, a, b):  # type: ignore[no-untyped-def]
    for w in range(width):
        if events[w, a] != events[w, b]:
            return False
    return True


@inline
def _put(out, used, events, width, row, e, diff):  # type: ignore[no-untyped-def]
    if used == out.shape[1]:
        out = grown(out, used)
    for w in range(width):
        out[w, used] = events[w, row]
    out[width, used], out[width + 1, used] = e, diff
    return out, used + 1


@inline
def _walk_chain(out, used, events, wants, values, order, i, j, width):  # type: ignore[no-untyped-def]
    """One row's events by ascending eval number: emit wherever what is there differs from what is wanted."""
    running = np.int64(0)
    while i < j:
        e, wanted = events[width, order[i]], np.int64(0)
        while i < j and events[width, order[i]] == e:
            if wants[order[i]]:
                wanted += values[order[i]]
            else:
                running += values[order[i]]
            i += 1
        if wanted != running:
            out, used = _put(out, used, events, width, order[i - 1], e, wanted - running)
            running = wanted
    return out, used


@inline
def _walk_grid(out, used, events, wants, values, order, i, j, width, e0, e1, e_times, o_times):  # type: ignore[no-untyped-def]
    """One row at partially ordered versions: at each, what is wanted less all that holds there already."""
    own = used
    for e in range(e0, e1):
        missing = np.int64(0)
        for x in range(i, j):
            row = order[x]
            if wants[row]:
                missing += values[row] if events[width, row] == e else 0
            elif holds(o_times, events[width, row], e_times, e):
                missing -= values[row]
        for u in range(own, used):
            earlier = True
            for c in range(e_times.shape[0]):
                earlier = earlier and e_times[c, out[width, u]] <= e_times[c, e]
            if earlier:
                missing -= out[width + 1, u]
        if missing != 0:
            out, used = _put(out, used, events, width, order[i], e, missing)
    return out, used


@kernel(
    several(OUT1, OUT2, OUT1),
    INT, IN1, IN1, IN2, IN1, IN2, IN1, IN1, IN2, IN2, IN1,
)  # fmt: skip
def emit(inputs, loops, e_offsets, e_times, d_evals, d_words, d_counts, o_offsets, o_words, o_times, o_diffs):  # type: ignore[no-untyped-def]
    """The differences that turn the output so far into what is wanted, at every evaluated version.

    Wanted rows are given by ascending eval number with their counts. Returns eval number, words (columns, n) and diff
    of each difference.
    """
    keys, width = len(e_offsets) - 1, d_words.shape[0]
    out = np.empty((width + 2, max(64, len(d_evals))), dtype=np.int64)
    used, capacity, d = 0, 64, 0
    events = np.empty((width + 1, capacity), dtype=np.int64)
    wants, values = np.empty(capacity, dtype=np.bool_), np.empty(capacity, dtype=np.int64)
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
            wants, values = np.empty(capacity, dtype=np.bool_), np.empty(capacity, dtype=np.int64)
            order = np.empty(capacity, dtype=np.int64)
        n = 0
        for row in range(o_offsets[k], o_offsets[k + 1]):
            if not inside(o_times, row, loops, inputs):
                continue
            at = _first_at_or_after(e_times, e0, e1, o_times[0, row]) if inputs == 1 else row
            if inputs == 1 and at == e1:
                continue
            for w in range(width):
                events[w, n] = o_words[w, row]
            events[width, n], wants[n], values[n] = at, False, o_diffs[row]
            n += 1
        if inputs == 1:
            n = _spread(events, n, wants, values, d0, d, d_words, d_evals, d_counts, e1)
        else:
            for i in range(d0, d):
                for w in range(width):
                    events[w, n] = d_words[w, i]
                events[width, n], wants[n], values[n] = d_evals[i], True, d_counts[i]
                n += 1
        for i in range(n):
            order[i] = i
        sort_rows(order, 0, n, events)
        i = 0
        while i < n:
            j = i + 1
            while j < n and _same_row(events, width, order[i], order[j]):
                j += 1
            if inputs == 1:
                out, used = _walk_chain(out, used, events, wants, values, order, i, j, width)
            else:
                out, used = _walk_grid(out, used, events, wants, values, order, i, j, width, e0, e1, e_times, o_times)
            i = j
    return out[width, :used].copy(), out[:width, :used].copy(), out[width + 1, :used].copy()
