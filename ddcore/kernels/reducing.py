"""The reduce step, per key: which times to evaluate, what holds there, and which differences that makes.

Three kernels over rows that were gathered by key (``offsets[k]:offsets[k + 1]`` are key k's). All times evaluated
in one call share their loop coordinates, ``loops``; what differs is the version, the first ``inputs`` coordinates. Where there
is one such coordinate the versions of a key form a chain and are swept once; else each time looks at all rows.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ddcore.kernels import IN1, IN2, INT, OUT1, OUT2, inline, kernel
from ddcore.kernels.sorting import add, multiply, same, sort_rows

_NULL = np.int64(-(2**63))
_SWEEP_FROM = 2048  # rows x times of a key beyond which sweeping pays for its bookkeeping

COUNT, SUM, MIN, MAX, FLOAT_SUM = 0, 1, 2, 3, 4
NEGATIVE, OVERFLOW = 1, 2


@inline
def _grown(array, used):  # type: ignore[no-untyped-def]
    bigger = np.empty((array.shape[0], 2 * array.shape[1]), dtype=np.int64)
    bigger[:, :used] = array[:, :used]
    return bigger


@inline
def _inside(times, row, loops, inputs):  # type: ignore[no-untyped-def]
    """Whether the loop coordinates of a row are at or before ``loops``."""
    for r in range(len(loops)):
        if times[inputs + r, row] > loops[r]:
            return False
    return True


@inline
def _holds(times, row, evals, e):  # type: ignore[no-untyped-def]
    """Whether the version of a row is at or before that of evaluation e."""
    for c in range(evals.shape[0]):
        if times[c, row] > evals[c, e]:
            return False
    return True


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
    """One version coordinate: add the versions of rows after the first seed to evals, or to later where rounds differ."""
    for row in range(h0, h1):
        version = times[0, row]
        if _inside(times, row, loops, 1):
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
    """Joins with rows of later rounds: per round the versions after the first seed, and every seed after the round's least."""
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
                owed = _grown(owed, n)
            owed[0, n] = version
            for r in range(depth - 1):
                owed[1 + r, n] = turned[r, i]
            n += 1
        i = j
    return owed, n


@inline
def _close(points, n, inputs, loops, times, h0, h1, owed, no):  # type: ignore[no-untyped-def]
    """Several version coordinates: close the points under join with the rows and with each other, to a fixed point.

    ``points`` holds versions only; joins at later rounds go to ``owed`` with all coordinates. Repeats in owed may remain.
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
                    owed = _grown(owed, no)
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
                    points = _grown(points, n)
                for c in range(inputs):
                    points[c, n] = joined[c]
                n += 1
        at += 1
    return points, n, owed, no


@kernel(
    types.Tuple((OUT1, OUT2, OUT1, OUT2)),
    INT, IN1, IN2, IN1, IN2, IN1, IN2, IN1, IN2,
)  # fmt: skip
def plan_times(inputs, loops, upper, s_offsets, s_times, h_offsets, h_times, o_offsets, o_times):  # type: ignore[no-untyped-def]
    """Which times each key must be evaluated at now, and which it owes a wake-up at.

    Seeds (new updates and wake-ups, all at ``loops``) are closed under join with the times of the input and output history. Returns
    eval offsets per key, eval versions (inputs, e) ascending per key, and for wake-ups the key number and the time (depth, w): those at
    later rounds, and those at or beyond ``upper``, which are not complete yet.
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
                    owed = _grown(owed, no)
                for c in range(depth):
                    owed[c, no] = points[c, i] if c < inputs else loops[c - inputs]
                no += 1
                continue
            if ne_all == e_all.shape[1]:
                e_all = _grown(e_all, ne_all)
            for c in range(inputs):
                e_all[c, ne_all] = points[c, i]
            ne_all += 1
        e_offsets[k + 1] = ne_all
        for i in range(no):
            if nw_all == w_all.shape[1]:
                w_all, w_keys = _grown(w_all, nw_all), _grown(w_keys, nw_all)
            w_keys[0, nw_all] = k
            for c in range(depth):
                w_all[c, nw_all] = owed[c, i]
            nw_all += 1
    return e_offsets, e_all[:, :ne_all].copy(), w_keys[0, :nw_all].copy(), w_all[:, :nw_all].copy()


@inline
def _order_rows(k, offsets, words, times, loops, inputs, order):  # type: ignore[no-untyped-def]
    """Row numbers of key k at or before ``loops``, sorted by value; returns how many."""
    n = 0
    for row in range(offsets[k], offsets[k + 1]):
        if _inside(times, row, loops, inputs):
            order[n] = row
            n += 1
    sort_rows(order, 0, n, words)
    return n


@inline
def _exact_add(parts, n, value):  # type: ignore[no-untyped-def]
    """Add a float to a sum held as non-overlapping parts (Shewchuk 1997): nothing is rounded."""
    i = 0
    for j in range(n):
        other = parts[j]
        if abs(value) < abs(other):
            value, other = other, value
        high = value + other
        low = other - (high - value)
        if low != 0.0:
            parts[i] = low
            i += 1
        value = high
    parts[i] = value
    return i + 1


@inline
def _rounded(parts, n):  # type: ignore[no-untyped-def]
    """The parts' exact sum, rounded once, ties to even."""
    if n == 0:
        return 0.0
    n -= 1
    high = parts[n]
    low = 0.0
    while n > 0:
        value = high
        n -= 1
        high = value + parts[n]
        low = parts[n] - (high - value)
        if low != 0.0:
            break
    if n > 0 and ((low < 0.0 and parts[n - 1] < 0.0) or (low > 0.0 and parts[n - 1] > 0.0)):
        twice = low * 2.0
        value = high + twice
        if twice == value - high:
            high = value
    return high


@inline
def _float_of(word):  # type: ignore[no-untyped-def]
    bits = np.empty(1, dtype=np.int64)
    bits[0] = word if word >= 0 else word ^ np.int64(0x7FFFFFFFFFFFFFFF)
    return bits.view(np.float64)[0]


@inline
def _word_of(value):  # type: ignore[no-untyped-def]
    if np.isnan(value):
        return np.int64(0x7FF8000000000000)
    floats = np.empty(1, dtype=np.float64)
    floats[0] = value + 0.0
    bits = floats.view(np.int64)[0]
    return bits if bits >= 0 else bits ^ np.int64(0x7FFFFFFFFFFFFFFF)


@inline
def _add_scaled(parts, n, value, count):  # type: ignore[no-untyped-def]
    """Add count * value exactly, by the binary expansion of the count: value * 2**i is exact."""
    negative = count < 0
    left = -count if negative else count
    power = -value if negative else value
    while left != 0:
        if left & 1:
            n = _exact_add(parts, n, power)
        power = power * 2.0
        left >>= 1
    return n


@inline
def _float_sum(order, counts, n, words, column):  # type: ignore[no-untyped-def]
    """The correctly rounded sum of count * value over distinct rows; infinities and NaN as IEEE has them."""
    parts = np.empty(2200, dtype=np.float64)
    used, special = 0, 0.0
    for i in range(n):
        word = words[column, order[i]]
        if word == _NULL or counts[i] == 0:
            continue
        value = _float_of(word)
        if np.isinf(value) or np.isnan(value):
            special += value * counts[i]
        else:
            used = _add_scaled(parts, used, value, counts[i])
    total = _rounded(parts, used)
    return _word_of(special if special != 0.0 else total)


@inline
def _summarise(kinds, columns, order, counts, n, words, results, e):  # type: ignore[no-untyped-def]
    """All aggregates of one group at one time: distinct rows ``order[:n]`` with their counts. Returns whether a sum overflowed."""
    overflow = False
    for a in range(len(kinds)):
        kind, c = kinds[a], columns[a]
        if kind == FLOAT_SUM:
            results[a, e] = _float_sum(order, counts, n, words, c)
            continue
        total, best = np.int64(0), _NULL
        for i in range(n):
            if kind == COUNT:
                total, bad = add(total, counts[i])
                overflow |= bad
                continue
            word = words[c, order[i]]
            if word == _NULL:
                continue
            if kind == SUM:
                part, bad = multiply(word, counts[i])
                total, worse = add(total, part)
                overflow |= bad or worse
            elif counts[i] > 0 and (best == _NULL or (word < best if kind == MIN else word > best)):
                best = word
        results[a, e] = total if kind == COUNT or kind == SUM else best
        overflow |= kind == SUM and total == _NULL
    return overflow


@inline
def _distinct_rows(order, n, words, heads, member):  # type: ignore[no-untyped-def]
    """Number the distinct rows among ``order[:n]``: their first rows to heads, each row's number to member."""
    m = 0
    for i in range(n):
        if i == 0 or not same(words, order[i], order[i - 1]):
            heads[m] = order[i]
            m += 1
        member[i] = m - 1
    return m


@inline
def _presence(total, positives, linear, distinct, allow):  # type: ignore[no-untyped-def]
    if distinct or not allow:
        return total > 0
    return total != 0 if linear else positives > 0


@inline
def _sweep(kinds, columns, order, n, member, heads, m, counts, words, times, diffs, e_times, e0, e1, allow,
           linear, results, present, wrong):  # type: ignore[no-untyped-def]  # fmt: skip
    """One pass over the versions of a large group with at most one aggregate: each row is applied once."""
    by_version = np.empty((1, n), dtype=np.int64)
    turn = np.empty(n, dtype=np.int64)
    for i in range(n):
        by_version[0, i], turn[i] = times[0, order[i]], i
    sort_rows(turn, 0, n, by_version)
    for i in range(m):
        counts[i] = 0
    kind = kinds[0] if len(kinds) == 1 else COUNT
    column = columns[0] if len(kinds) == 1 else 0
    total, running, positives, negatives = np.int64(0), np.int64(0), 0, 0
    low, high, at = 0, m - 1, 0
    ordered = column == 0  # rows are sorted by their first value column
    for e in range(e0, e1):
        while at < n and by_version[0, turn[at]] <= e_times[0, e]:
            i = turn[at]
            number, diff = member[i], diffs[order[i]]
            at += 1
            positives -= counts[number] > 0
            negatives -= counts[number] < 0
            counts[number], bad = add(counts[number], diff)
            positives += counts[number] > 0
            negatives += counts[number] < 0
            total, worse = add(total, diff)
            if kind == SUM and words[column, heads[number]] != _NULL:
                part, over = multiply(words[column, heads[number]], diff)
                running, more = add(running, part)
                bad = bad or over or more
            if bad or worse:
                wrong[0], wrong[2] = OVERFLOW, e
                return
            low, high = min(low, number), max(high, number)
        if negatives > 0 and not allow:
            wrong[0], wrong[2] = NEGATIVE, e
            for i in range(m):
                if counts[i] < 0:
                    wrong[3] = counts[i]
            return
        present[e] = _presence(total, positives, linear, len(kinds) == 0, allow)
        if not present[e] or len(kinds) == 0:
            continue
        if kind == COUNT:
            results[0, e] = total
        elif kind == SUM:
            results[0, e] = running
            if running == _NULL:
                wrong[0], wrong[2] = OVERFLOW, e
                return
        elif ordered and kind == MIN:
            while low < m and (counts[low] <= 0 or words[0, heads[low]] == _NULL):
                low += 1
            results[0, e] = words[0, heads[low]] if low < m else _NULL
        elif ordered and kind == MAX:
            while high >= 0 and counts[high] <= 0:
                high -= 1
            results[0, e] = words[0, heads[high]] if high >= 0 else _NULL
        else:
            _summarise(kinds, columns, heads, counts, m, words, results, e)


@kernel(
    types.Tuple((OUT2, OUT1, OUT1)),
    INT, IN1, IN1, IN1, IN1, IN2, IN2, IN1, IN1, IN2, types.boolean,
)  # fmt: skip
def aggregate(inputs, loops, kinds, columns, offsets, words, times, diffs, e_offsets, e_times, allow):  # type: ignore[no-untyped-def]
    """Aggregates of every key at every evaluated version.

    Returns results (aggregates, evals), 1 where the group is present, and what went wrong: (code, key, eval, count), code 0 if nothing.
    Without aggregates it is `distinct`: presence is a positive count.
    """
    keys, evals = len(offsets) - 1, e_times.shape[1]
    results = np.empty((len(kinds), evals), dtype=np.int64)
    present = np.zeros(evals, dtype=np.int64)
    wrong = np.zeros(4, dtype=np.int64)
    linear = False
    for a in range(len(kinds)):
        linear = linear or kinds[a] == COUNT or kinds[a] == SUM or kinds[a] == FLOAT_SUM
    capacity = 64
    order, heads = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    member, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    for k in range(keys):
        rows = offsets[k + 1] - offsets[k]
        if rows > capacity:
            capacity = 2 * rows
            order, heads = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
            member, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        e0, e1 = e_offsets[k], e_offsets[k + 1]
        if e0 == e1:
            continue
        n = _order_rows(k, offsets, words, times, loops, inputs, order)
        m = _distinct_rows(order, n, words, heads, member)
        if inputs == 1 and len(kinds) <= 1 and n * (e1 - e0) > _SWEEP_FROM:
            _sweep(kinds, columns, order, n, member, heads, m, counts, words, times, diffs, e_times, e0, e1, allow,
                   linear, results, present, wrong)  # fmt: skip
            if wrong[0] != 0:
                wrong[1] = k
                return results, present, wrong
            continue
        for e in range(e0, e1):
            for i in range(m):
                counts[i] = 0
            for i in range(n):
                if _holds(times, order[i], e_times, e):
                    counts[member[i]], bad = add(counts[member[i]], diffs[order[i]])
                    if bad:
                        wrong[0], wrong[1], wrong[2] = OVERFLOW, k, e
                        return results, present, wrong
            total, positives = np.int64(0), 0
            for i in range(m):
                total += counts[i]
                positives += counts[i] > 0
                if counts[i] < 0 and not allow:
                    wrong[0], wrong[1], wrong[2], wrong[3] = NEGATIVE, k, e, counts[i]
                    return results, present, wrong
            present[e] = _presence(total, positives, linear, len(kinds) == 0, allow)
            if present[e] and _summarise(kinds, columns, heads, counts, m, words, results, e):
                wrong[0], wrong[1], wrong[2] = OVERFLOW, k, e
                return results, present, wrong
    return results, present, wrong


@kernel(
    types.Tuple((OUT1, OUT1, OUT1, OUT1)),
    INT, IN1, IN1, IN2, IN2, IN1, IN1, IN2, types.boolean,
)  # fmt: skip
def accumulate(inputs, loops, offsets, words, times, diffs, e_offsets, e_times, allow):  # type: ignore[no-untyped-def]
    """The rows with positive counts of every key at every evaluated version: eval number, row number, count; and what went wrong."""
    keys = len(offsets) - 1
    out = np.empty((3, 64), dtype=np.int64)
    used, capacity = 0, 64
    wrong = np.zeros(4, dtype=np.int64)
    order, heads = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    member, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    for k in range(keys):
        rows = offsets[k + 1] - offsets[k]
        if rows > capacity:
            capacity = 2 * rows
            order, heads = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
            member, counts = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        if e_offsets[k] == e_offsets[k + 1]:
            continue
        n = _order_rows(k, offsets, words, times, loops, inputs, order)
        m = _distinct_rows(order, n, words, heads, member)
        for e in range(e_offsets[k], e_offsets[k + 1]):
            for i in range(m):
                counts[i] = 0
            for i in range(n):
                if _holds(times, order[i], e_times, e):
                    counts[member[i]] += diffs[order[i]]
            for i in range(m):
                if counts[i] == 0 or (counts[i] < 0 and allow):
                    continue
                if counts[i] < 0:
                    wrong[0], wrong[1], wrong[2], wrong[3] = NEGATIVE, k, e, counts[i]
                    return out[0, :used].copy(), out[1, :used].copy(), out[2, :used].copy(), wrong
                if used == out.shape[1]:
                    out = _grown(out, used)
                out[0, used], out[1, used], out[2, used] = e, heads[i], counts[i]
                used += 1
    return out[0, :used].copy(), out[1, :used].copy(), out[2, :used].copy(), wrong


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
    """Add two events per wanted row: it holds at its evaluation, and no longer at the next one (unless wanted there too)."""
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
        out = _grown(out, used)
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
            elif _holds(o_times, events[width, row], e_times, e):
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
    types.Tuple((OUT1, OUT2, OUT1)),
    INT, IN1, IN1, IN2, IN1, IN2, IN1, IN1, IN2, IN2, IN1,
)  # fmt: skip
def emit(inputs, loops, e_offsets, e_times, d_evals, d_words, d_counts, o_offsets, o_words, o_times, o_diffs):  # type: ignore[no-untyped-def]
    """The differences that turn the output so far into what is wanted, at every evaluated version.

    Wanted rows are given by ascending eval number with their counts. Returns eval number, words (columns, n) and diff of each difference.
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
            if not _inside(o_times, row, loops, inputs):
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
                out, used = _walk_grid(
                    out, used, events, wants, values, order, i, j, width, e0, e1, e_times, o_times
                )
            i = j
    return out[width, :used].copy(), out[:width, :used].copy(), out[width + 1, :used].copy()
