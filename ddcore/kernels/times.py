"""Interesting times: at which versions a key must be evaluated now, and where it owes a wake-up.

All times evaluated in one call share their loop coordinates, ``loops``; what differs is the version, the first
``inputs`` coordinates. Where there is one such coordinate the versions of a key form a chain; else they are closed
under join.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.points import grown, inside
from ddcore.kernels.sorting import same, sort_rows


@inline
def _beyond(upper, point):  # type: ignore[no-untyped-def]
    """Whether the version in ``point`` is at or beyond an element of the frontier ``upper`` (inputs, elements)."""
    for u in range(upper.shape[1]):
        at_or_past = True
        for c in range(upper.shape[0]):
            if point[c] < upper[c, u]:
                at_or_past = False
                break
        if at_or_past:
            return True
    return False


@inline
def _distinct(points, n, order):  # type: ignore[no-untyped-def]
    """Sort the first n columns of ``points`` and drop repeats, in place; returns how many are left."""
    if n < 2:
        return n
    for i in range(n):
        order[i] = i
    sort_rows(order, 0, n, points)
    copy = points[:, :n].copy()
    m = 0
    for i in range(n):
        if i > 0 and same(copy, order[i], order[i - 1]):
            continue
        for c in range(points.shape[0]):
            points[c, m] = copy[c, order[i]]
        m += 1
    return m


@inline
def _chain_times(first, seeds, s0, s1, times, h0, h1, loops, evals, ne, later, nl):  # type: ignore[no-untyped-def]
    """One version coordinate: add the versions of rows after the first seed to evals, or to later where rounds
    differ.
    """
    for row in range(h0, h1):
        version = times[0, row]
        if inside(times, row, loops, 1):
            if version > first:
                evals[0, ne] = version
                ne += 1
            continue
        for r in range(len(loops)):
            later[1 + r, nl] = max(loops[r], times[1 + r, row])
        later[0, nl] = version
        nl += 1
    return ne, nl


@inline
def _owed_by_chain(first, evals, ne, later, nl, order, owed):  # type: ignore[no-untyped-def]
    """Joins with rows of later rounds: per round the versions after the first seed, and every seed after the round's
    least.
    """
    # Sorted by round and then version: rotate the version coordinate to the end for the order.
    depth = later.shape[0]
    turned = np.empty((depth, max(nl, 1)), dtype=np.int64)
    for i in range(nl):
        for r in range(depth - 1):
            turned[r, i] = later[1 + r, i]
        turned[depth - 1, i] = later[0, i]
    nl = _distinct(turned, nl, order)
    n, i = 0, 0
    while i < nl:
        j = i
        while j < nl:
            together = True
            for r in range(depth - 1):
                together = together and turned[r, j] == turned[r, i]
            if not together:
                break
            j += 1
        least = turned[depth - 1, i]
        a, b = i, 0
        while a < j or b < ne:  # merge the two ascending lists of versions without repeats
            if b == ne or (a < j and turned[depth - 1, a] <= evals[0, b]):
                version = turned[depth - 1, a]
                repeats = b < ne and evals[0, b] == version
                a += 1
                if version <= first or repeats:
                    continue
            else:
                version = evals[0, b]
                b += 1
                if version < least:
                    continue
            if n == owed.shape[1]:
                owed = grown(owed, n)
            owed[0, n] = version
            for r in range(depth - 1):
                owed[1 + r, n] = turned[r, i]
            n += 1
        i = j
    return owed, n


@inline
def _close(points, n, inputs, loops, times, h0, h1, owed, no):  # type: ignore[no-untyped-def]
    """Several version coordinates: close the points under join with the rows and with each other, to a fixed point.

    ``points`` holds versions only; joins at later rounds go to ``owed`` with all coordinates. Repeats in owed may
    remain.
    """
    depth = inputs + len(loops)
    joined = np.empty(depth, dtype=np.int64)
    at = 0
    while at < n:
        for other in range(h0, h1 + at):
            now = True
            for c in range(depth):
                if other < h1:
                    theirs = times[c, other]
                else:
                    theirs = points[c, other - h1] if c < inputs else loops[c - inputs]
                mine = points[c, at] if c < inputs else loops[c - inputs]
                joined[c] = max(mine, theirs)
                if c >= inputs and joined[c] != mine:
                    now = False
            if not now:
                if no == owed.shape[1]:
                    owed = grown(owed, no)
                owed[:, no] = joined
                no += 1
                continue
            known = False
            for p in range(n):
                equal = True
                for c in range(inputs):
                    if points[c, p] != joined[c]:
                        equal = False
                        break
                if equal:
                    known = True
                    break
            if not known:
                if n == points.shape[1]:
                    points = grown(points, n)
                for c in range(inputs):
                    points[c, n] = joined[c]
                n += 1
        at += 1
    return points, n, owed, no


@kernel(
    several(OUT1, OUT2, OUT1, OUT2),
    INT, IN1, IN2, IN1, IN2, IN1, IN2, IN1, IN2,
)  # fmt: skip
def plan_times(inputs, loops, upper, s_offsets, s_times, h_offsets, h_times, o_offsets, o_times):  # type: ignore[no-untyped-def]
    """Which times each key must be evaluated at now, and which it owes a wake-up at.

    Seeds (new updates and wake-ups, all at ``loops``) are closed under join with the times of the input and output
    history. Returns eval offsets per key, eval versions (inputs, e) ascending per key, and for wake-ups the key
    number and the time (depth, w): those at later rounds, and those at or beyond ``upper``, which are not complete yet.
    """
    keys, depth = len(s_offsets) - 1, inputs + len(loops)
    e_offsets = np.zeros(keys + 1, dtype=np.int64)
    e_all = np.empty((inputs, max(16, s_times.shape[1])), dtype=np.int64)
    w_keys = np.empty((1, 16), dtype=np.int64)
    w_all = np.empty((depth, 16), dtype=np.int64)
    ne_all, nw_all = 0, 0
    later = np.empty((depth, 16), dtype=np.int64)
    points = np.empty((inputs, 16), dtype=np.int64)
    owed = np.empty((depth, 16), dtype=np.int64)
    order = np.empty(16, dtype=np.int64)
    for k in range(keys):
        s0, s1, h0, h1 = s_offsets[k], s_offsets[k + 1], h_offsets[k], h_offsets[k + 1]
        o0, o1 = o_offsets[k], o_offsets[k + 1]
        most = (s1 - s0) + (h1 - h0) + (o1 - o0)
        if most > points.shape[1]:
            points = np.empty((inputs, 2 * most), dtype=np.int64)
            later = np.empty((depth, 2 * most), dtype=np.int64)
        if most > len(order):
            order = np.empty(2 * most, dtype=np.int64)
        n, no = 0, 0
        for s in range(s0, s1):
            for c in range(inputs):
                points[c, n] = s_times[c, s]
            n += 1
        if inputs == 1:
            first = points[0, 0]
            for i in range(1, n):
                first = min(first, points[0, i])
            nl = 0
            n, nl = _chain_times(first, s_times, s0, s1, h_times, h0, h1, loops, points, n, later, nl)
            n, nl = _chain_times(first, s_times, s0, s1, o_times, o0, o1, loops, points, n, later, nl)
            n = _distinct(points, n, order)
            if nl > 0:
                owed, no = _owed_by_chain(first, points, n, later, nl, order, owed)
        else:
            n = _distinct(points, n, order)
            before = -1
            while before != n:
                before = n
                points, n, owed, no = _close(points, n, inputs, loops, h_times, h0, h1, owed, no)
                points, n, owed, no = _close(points, n, inputs, loops, o_times, o0, o1, owed, no)
            if points.shape[1] > len(order):
                order = np.empty(points.shape[1], dtype=np.int64)
            n = _distinct(points, n, order)
            if no > len(order):
                order = np.empty(2 * no, dtype=np.int64)
            no = _distinct(owed, no, order)
        for i in range(n):
            if upper.shape[1] > 0 and _beyond(upper, points[:, i]):
                if no == owed.shape[1]:
                    owed = grown(owed, no)
                for c in range(depth):
                    owed[c, no] = points[c, i] if c < inputs else loops[c - inputs]
                no += 1
                continue
            if ne_all == e_all.shape[1]:
                e_all = grown(e_all, ne_all)
            for c in range(inputs):
                e_all[c, ne_all] = points[c, i]
            ne_all += 1
        e_offsets[k + 1] = ne_all
        for i in range(no):
            if nw_all == w_all.shape[1]:
                w_all, w_keys = grown(w_all, nw_all), grown(w_keys, nw_all)
            w_keys[0, nw_all] = k
            for c in range(depth):
                w_all[c, nw_all] = owed[c, i]
            nw_all += 1
    return e_offsets, e_all[:, :ne_all].copy(), w_keys[0, :nw_all].copy(), w_all[:, :nw_all].copy()
