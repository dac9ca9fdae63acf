"""Interesting times: the versions at which a key must be evaluated now, and the times at which it stays pending.

All times evaluated in one call share their loop coordinates, ``loops``; they differ in the version, the first
``inputs`` coordinates. If there is one such coordinate, the versions of a key form a chain; otherwise they are closed
under join.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.sorting import same, sort_rows
from ddcore.kernels.time_columns import grow, holds, inside

_FEW = 24  # versions of a key that are sorted in place


@inline
def _beyond(upper, points, i):  # type: ignore[no-untyped-def]
    """Whether version i of ``points`` is at or beyond an element of the frontier ``upper`` (inputs, elements)."""
    for element in range(upper.shape[1]):
        if holds(upper, element, points, i):
            return True
    return False


@inline
def _distinct(points, n, order):  # type: ignore[no-untyped-def]
    """Sort the first n columns of ``points`` and drop repeats, in place; returns the number that remain."""
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
def _distinct_versions(versions, n):  # type: ignore[no-untyped-def]
    """Sort the first n versions and drop repeats, in place; returns how many remain. Few need no other memory."""
    if n <= _FEW:
        for i in range(1, n):
            version, j = versions[i], i
            while j > 0 and versions[j - 1] > version:
                versions[j] = versions[j - 1]
                j -= 1
            versions[j] = version
    else:
        versions[:n] = np.sort(versions[:n])
    m = min(n, 1)
    for i in range(1, n):
        if versions[i] != versions[m - 1]:
            versions[m] = versions[i]
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
            later[r, nl] = max(loops[r], times[1 + r, row])
        later[len(loops), nl] = version
        nl += 1
    return ne, nl


@inline
def _chain_pending(first, evals, ne, later, nl, order, pending):  # type: ignore[no-untyped-def]
    """Joins with rows of later rounds: per round the versions after the first seed, and every seed after the round's
    least. ``later`` has the version as its last coordinate.
    """
    depth = later.shape[0]
    for i in range(nl):
        order[i] = i
    sort_rows(order, 0, nl, later)
    n, i = 0, 0
    while i < nl:
        j = i
        while j < nl:
            together = True
            for r in range(depth - 1):
                together = together and later[r, order[j]] == later[r, order[i]]
            if not together:
                break
            j += 1
        least = later[depth - 1, order[i]]
        a, b = i, 0
        while a < j or b < ne:  # merge the two ascending lists of versions without repeats
            if b == ne or (a < j and later[depth - 1, order[a]] <= evals[0, b]):
                version = later[depth - 1, order[a]]
                repeats = b < ne and evals[0, b] == version
                repeats = repeats or (a > i and later[depth - 1, order[a - 1]] == version)
                a += 1
                if version <= first or repeats:
                    continue
            else:
                version = evals[0, b]
                b += 1
                if version < least:
                    continue
            if n == pending.shape[1]:
                pending = grow(pending, n)
            pending[0, n] = version
            for r in range(depth - 1):
                pending[1 + r, n] = later[r, order[i]]
            n += 1
        i = j
    return pending, n


@inline
def _are_before(times, row0, row1, version, loops):  # type: ignore[no-untyped-def]
    """Whether all rows are at or before a version at ``loops``: joins with them are there again."""
    for row in range(row0, row1):
        if times[0, row] > version or not inside(times, row, loops, 1):
            return False
    return True


@inline
def _are_equal(times, row0, row1):  # type: ignore[no-untyped-def]
    """Whether all rows have one version."""
    for row in range(row0 + 1, row1):
        if times[0, row] != times[0, row0]:
            return False
    return True


@inline
def _close(points, n, inputs, loops, times, h0, h1, pending, n_pending):  # type: ignore[no-untyped-def]
    """Several version coordinates: close the points under join with the rows and with each other, to a fixed point.

    ``points`` holds versions only; joins at later rounds go to ``pending`` with all coordinates, perhaps repeatedly.
    """
    depth = inputs + len(loops)
    point = np.empty(depth, dtype=np.int64)
    at = 0
    while at < n:
        for other in range(h0, h1 + at):
            now = True
            for c in range(depth):
                if other < h1:
                    other_time = times[c, other]
                else:
                    other_time = points[c, other - h1] if c < inputs else loops[c - inputs]
                own_time = points[c, at] if c < inputs else loops[c - inputs]
                point[c] = max(own_time, other_time)
                if c >= inputs and point[c] != own_time:
                    now = False
            if not now:
                if n_pending == pending.shape[1]:
                    pending = grow(pending, n_pending)
                pending[:, n_pending] = point
                n_pending += 1
                continue
            present = False
            for p in range(n):
                equal = True
                for c in range(inputs):
                    if points[c, p] != point[c]:
                        equal = False
                        break
                if equal:
                    present = True
                    break
            if not present:
                if n == points.shape[1]:
                    points = grow(points, n)
                for c in range(inputs):
                    points[c, n] = point[c]
                n += 1
        at += 1
    return points, n, pending, n_pending


@kernel(
    several(OUT1, OUT2, OUT1, OUT2),
    INT, IN1, IN2, IN1, IN2, IN1, IN2, IN1, IN2,
)  # fmt: skip
def plan_times(inputs, loops, upper, s_offsets, s_times, h_offsets, h_times, o_offsets, o_times):  # type: ignore[no-untyped-def]
    """The times at which each key must be evaluated now, and its pending times.

    Seeds (new updates and pending times, all at ``loops``) are closed under join with the times of the input and output
    history. Returns eval offsets per key, eval versions (inputs, e) ascending per key, and for each pending time the
    key number and the time (depth, p): those at later rounds, and those at or beyond ``upper``, not complete yet.
    """
    keys, depth = len(s_offsets) - 1, inputs + len(loops)
    e_offsets = np.zeros(keys + 1, dtype=np.int64)
    e_times = np.empty((inputs, max(16, s_times.shape[1])), dtype=np.int64)
    p_keys = np.empty((1, 16), dtype=np.int64)
    p_times = np.empty((depth, 16), dtype=np.int64)
    n_evals, n_all = 0, 0
    later = np.empty((depth, 16), dtype=np.int64)
    points = np.empty((inputs, 16), dtype=np.int64)
    pending = np.empty((depth, 16), dtype=np.int64)
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
        n, n_pending = 0, 0
        is_single = inputs == 1 and _are_equal(s_times, s0, s1)
        if is_single:
            first = s_times[0, s0]
            is_single = _are_before(h_times, h0, h1, first, loops) and _are_before(o_times, o0, o1, first, loops)
        for s in range(s0, s0 + 1 if is_single else s1):
            for c in range(inputs):
                points[c, n] = s_times[c, s]
            n += 1
        if is_single:
            pass  # most keys of a load: one evaluation, and none is pending
        elif inputs == 1:
            first = points[0, 0]
            for i in range(1, n):
                first = min(first, points[0, i])
            nl = 0
            n, nl = _chain_times(first, s_times, s0, s1, h_times, h0, h1, loops, points, n, later, nl)
            n, nl = _chain_times(first, s_times, s0, s1, o_times, o0, o1, loops, points, n, later, nl)
            n = _distinct_versions(points[0], n)
            if nl > 0:
                pending, n_pending = _chain_pending(first, points, n, later, nl, order, pending)
        else:
            n = _distinct(points, n, order)
            before = -1
            while before != n:
                before = n
                points, n, pending, n_pending = _close(points, n, inputs, loops, h_times, h0, h1, pending, n_pending)
                points, n, pending, n_pending = _close(points, n, inputs, loops, o_times, o0, o1, pending, n_pending)
            if points.shape[1] > len(order):
                order = np.empty(points.shape[1], dtype=np.int64)
            n = _distinct(points, n, order)
            if n_pending > len(order):
                order = np.empty(2 * n_pending, dtype=np.int64)
            n_pending = _distinct(pending, n_pending, order)
        for i in range(n):
            if upper.shape[1] > 0 and _beyond(upper, points, i):
                if n_pending == pending.shape[1]:
                    pending = grow(pending, n_pending)
                for c in range(depth):
                    pending[c, n_pending] = points[c, i] if c < inputs else loops[c - inputs]
                n_pending += 1
                continue
            if n_evals == e_times.shape[1]:
                e_times = grow(e_times, n_evals)
            for c in range(inputs):
                e_times[c, n_evals] = points[c, i]
            n_evals += 1
        e_offsets[k + 1] = n_evals
        for i in range(n_pending):
            if n_all == p_times.shape[1]:
                p_times, p_keys = grow(p_times, n_all), grow(p_keys, n_all)
            p_keys[0, n_all] = k
            for c in range(depth):
                p_times[c, n_all] = pending[c, i]
            n_all += 1
    return e_offsets, e_times[:, :n_evals].copy(), p_keys[0, :n_all].copy(), p_times[:, :n_all].copy()
