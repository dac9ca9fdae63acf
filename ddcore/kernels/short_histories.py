"""Keys with short histories: times, aggregates and differences in one pass over each key.

The same results as :func:`~ddcore.kernels.times.plan_times`, :func:`~ddcore.kernels.aggregating.aggregate` and
:func:`~ddcore.kernels.differences.emit` one after the other, but with fewer pending times: one is left out where, by
all that is known, the output is right already. If an update comes later at an earlier time, its joins with the history
include this time again.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.aggregating import COUNT, MAX, MIN, SUM, extreme_word, presence, sum_of
from ddcore.kernels.compiling import BOOL, IN1, IN2, INT, OUT1, OUT2, inline, kernel, several
from ddcore.kernels.means import DIGITS
from ddcore.kernels.sorting import same
from ddcore.kernels.time_columns import grow
from ddcore.kernels.totals import of_few

KINDS = (COUNT, SUM, MIN, MAX)  # of aggregates that this pass computes
_OUTPUTS = 16  # of a key that is looked at before its history is
_ROUNDS = 16  # of one key, at most
_WORK = 1 << 13  # rows x times of one key, at most
_NULL, _SMALL = np.int64(-(2**63)), np.int64(2**40)


@inline
def _insert(versions, n, version):  # type: ignore[no-untyped-def]
    """Add a version to n ascending ones unless it is there; returns how many there are."""
    at = n
    while at > 0 and versions[at - 1] > version:
        at -= 1
    if at > 0 and versions[at - 1] == version:
        return n
    for i in range(n, at, -1):
        versions[i] = versions[i - 1]
    versions[at] = version
    return n + 1


@inline
def _insert_rounds(rounds, n, times, row):  # type: ignore[no-untyped-def]
    """Add the join of the current rounds, which come first, with a row's to n rounds unless it is there; returns how
    many there are. Where there is no room, the last one is lost.
    """
    n = min(n, rounds.shape[1] - 1)
    for r in range(rounds.shape[0]):
        rounds[r, n] = max(rounds[r, 0], times[1 + r, row])
    for j in range(n):
        if same(rounds, j, n):
            return n
    return n + 1


@inline
def _close_rounds(rounds, n):  # type: ignore[no-untyped-def]
    """Close n rounds under join; returns how many there are. Those of one loop are a chain."""
    at = 1
    while rounds.shape[0] > 1 and at < n < rounds.shape[1]:
        for other in range(1, at):
            if n == rounds.shape[1]:
                break
            for r in range(rounds.shape[0]):
                rounds[r, n] = max(rounds[r, at], rounds[r, other])
            is_new = True
            for j in range(n):
                is_new = is_new and not same(rounds, j, n)
            n += np.int64(is_new)
        at += 1
    return n


@inline
def _is_before(times, row, version, rounds, j):  # type: ignore[no-untyped-def]
    """Whether a row's time is at or before a version at rounds j; without a branch, as no processor can foresee it."""
    before = times[0, row] <= version
    for r in range(rounds.shape[0]):
        before &= times[1 + r, row] <= rounds[r, j]
    return before


@inline
def _number_rows(words, first, last, member, heads):  # type: ignore[no-untyped-def]
    """Number the distinct rows: the number of each to ``member``, the first row of each number to ``heads``; returns
    how many there are.
    """
    m = 0
    for row in range(first, last):
        number = m
        for i in range(m):
            if same(words, heads[i], row):
                number = i
                break
        if number == m:
            heads[m] = row
            m += 1
        member[row - first] = number
    return m


@inline
def _aggregates(kinds, columns, allow, words, heads, m, counts, result):  # type: ignore[no-untyped-def]
    """The aggregates of rows with these counts, to ``result``: 1 if the group is there, 0 if not, -1 if an error is
    possible.
    """
    linear, extreme = False, False
    total, positives, negative = np.int64(0), 0, False
    for i in range(m):
        total += counts[i]
        positives += counts[i] > 0
        negative |= counts[i] < 0
    if negative and not allow:
        return -1
    for kind in kinds:
        picks = kind == MIN or kind == MAX
        linear, extreme = linear or not picks, extreme or picks
    if not presence(total != 0, positives, linear, extreme, len(kinds) == 0, allow):
        return 0
    for a in range(len(kinds)):
        if kinds[a] == MIN or kinds[a] == MAX:
            result[a] = extreme_word(kinds[a], heads, m, words, columns[a], counts)
            continue
        value, is_exact = total, True
        if kinds[a] == SUM:
            value, is_exact = sum_of(heads, m, words, columns[a], counts)
        if not is_exact or value == _NULL:  # the word of null
            return -1
        result[a] = value
    return 1


@inline
def _add_up(times, diffs, first, last, member, m, version, rounds, j, counts):  # type: ignore[no-untyped-def]
    """The counts of the distinct rows at a time."""
    for i in range(m):
        counts[i] = 0
    for row in range(first, last):
        counts[member[row - first]] += diffs[row] * np.int64(_is_before(times, row, version, rounds, j))


@inline
def _are_small(diffs, first, last):  # type: ignore[no-untyped-def]
    """Whether no sum of these diffs leaves int64."""
    small = True
    for row in range(first, last):
        small &= (diffs[row] <= _SMALL) & (diffs[row] >= -_SMALL)
    return small


@inline
def _are_before(times, first, last, version, rounds):  # type: ignore[no-untyped-def]
    """Whether all rows are at or before a version at the current rounds."""
    before = True
    for row in range(first, last):
        before &= _is_before(times, row, version, rounds, 0)
    return before


@inline
def _plan(times, first, last, seed, versions, n, checked, c, rounds, r):  # type: ignore[no-untyped-def]
    """Add the versions after the first seed's to those to evaluate, or to check at later rounds, and these rounds."""
    for row in range(first, last):
        version, is_now = times[0, row], True
        for i in range(rounds.shape[0]):
            is_now = is_now and times[1 + i, row] <= rounds[i, 0]
        if version > seed:
            c = _insert(checked, c, version)
            if is_now:
                n = _insert(versions, n, version)
        if not is_now:
            r = _insert_rounds(rounds, r, times, row)
    return n, c, r


@inline
def _times(versions, checked, rounds, s_times, s0, s1, h_times, h0, h1, o_times, o0, o1):  # type: ignore[no-untyped-def]
    """The versions to evaluate, those to check at later rounds, and these rounds: how many there are of each."""
    n, c, r = 0, 0, 1
    for s in range(s0, s1):
        n = _insert(versions, n, s_times[0, s])
    seed = versions[0]
    if not _are_before(h_times, h0, h1, seed, rounds):
        n, c, r = _plan(h_times, h0, h1, seed, versions, n, checked, c, rounds, r)
    if not _are_before(o_times, o0, o1, seed, rounds):
        n, c, r = _plan(o_times, o0, o1, seed, versions, n, checked, c, rounds, r)
    if r > 1:
        r = _close_rounds(rounds, r)
        for i in range(n):
            c = _insert(checked, c, versions[i])
    return n, c, r


@inline
def _row_of(words, m, result):  # type: ignore[no-untyped-def]
    """The number of the row with the words of ``result`` among the first m, or m if there is none."""
    for i in range(m):
        is_same = True
        for w in range(words.shape[0]):
            is_same = is_same and words[w, i] == result[w]
        if is_same:
            return i
    return m


@inline
def _differ(held, m, target):  # type: ignore[no-untyped-def]
    """Whether the output's rows are others than one of row ``target``, which is -1 for no row."""
    differs = target == m
    for i in range(m):
        differs |= held[i] != (i == target)
    return differs


@inline
def _has_one_time(s_times, s0, s1, h_times, h_diffs, h0, h1, rounds, least, most):  # type: ignore[no-untyped-def]
    """Whether all rows of a key without output are there, with diffs from ``least`` up, at the one version that causes
    it.
    """
    version, one = s_times[0, s0], h1 - h0 <= most
    for s in range(s0 + 1, s1):
        one &= s_times[0, s] == version
    for row in range(h0, h1 if one else h0):
        one &= (h_diffs[row] >= least) & (h_diffs[row] <= _SMALL) & _is_before(h_times, row, version, rounds, 0)
    return one


@kernel(
    several(OUT1, OUT2, OUT2),
    INT, IN1, IN1, IN1, IN1, IN1, INT, BOOL, IN1, IN2, IN1, IN2, IN2, IN1, IN1, IN2, IN2, IN1,
)  # fmt: skip
def reduce(  # type: ignore[no-untyped-def]
    most, loops, kinds, columns, nulls, units, totals, allow, s_offsets, s_times, h_offsets, h_words, h_times, h_diffs,
    o_offsets, o_words, o_times, o_diffs,
):  # fmt: skip
    """The differences and the pending times of the keys with short histories: at most so many seeds, rows and rows of
    output; one version coordinate, aggregates of ``KINDS``. Where rows are components of so many ``totals``,
    ``columns`` are the first of each aggregate, with ``nulls`` and ``units`` as in
    :func:`ddcore.kernels.totals.aggregate`.

    Returns the numbers of the other keys, and of those in which an error is possible; the differences as columns (key
    number, version, diff, words...); and the pending times as columns (key number, version, rounds...).
    """
    # Longer than a screen: with the output's part in functions of its own the pass took a tenth longer.
    width, depth = len(kinds), len(loops)
    rest = np.empty(len(s_offsets) - 1, dtype=np.int64)
    updates = np.empty((3 + width, max(64, len(s_offsets))), dtype=np.int64)
    pending = np.empty((2 + depth, 64), dtype=np.int64)
    left, used, late = 0, 0, 0
    rounds = np.empty((depth, _ROUNDS), dtype=np.int64)
    rounds[:, 0] = loops
    versions, checked = np.empty(3 * most, dtype=np.int64), np.empty(3 * most, dtype=np.int64)
    member, heads, counts = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    result, room = np.empty(width, dtype=np.int64), 3 * most  # for the key's output so far, and what is added to it
    words, times = np.empty((width, room), dtype=np.int64), np.empty((1 + depth, room), dtype=np.int64)
    diffs, number = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    held = np.empty(room, dtype=np.int64)
    sums, digits, least = np.empty(totals, dtype=np.int64), np.zeros(DIGITS, dtype=np.int64), np.int64(1)
    if totals > 0:
        least = -_SMALL
    for k in range(len(rest)):
        s0, s1, h0, h1 = s_offsets[k], s_offsets[k + 1], h_offsets[k], h_offsets[k + 1]
        o0, o1 = o_offsets[k], o_offsets[k + 1]
        n, c, r, first_used, first_late = 0, 0, 1, used, late
        if o0 == o1 and _has_one_time(s_times, s0, s1, h_times, h_diffs, h0, h1, rounds, least, most):
            for i in range(h1 - h0):
                heads[i], counts[i] = h0 + i, h_diffs[h0 + i]
            if totals > 0:
                state = of_few(
                    totals, kinds, columns, nulls, units, h_words, heads, h1 - h0, counts, sums, digits, result
                )
            else:
                state = _aggregates(kinds, columns, allow, h_words, heads, h1 - h0, counts, result)
            if state < 0:
                rest[left] = k
                left += 1
            elif state > 0:
                if used == updates.shape[1]:
                    updates = grow(updates, used)
                updates[0, used], updates[1, used], updates[2, used] = k, s_times[0, s0], 1
                for w in range(width):
                    updates[3 + w, used] = result[w]
                used += 1
            continue
        is_short = s1 - s0 <= most and h1 - h0 <= most and o1 - o0 <= most
        is_short = is_short and _are_small(h_diffs, h0, h1) and _are_small(o_diffs, o0, o1)
        if is_short:
            n, c, r = _times(versions, checked, rounds, s_times, s0, s1, h_times, h0, h1, o_times, o0, o1)
            is_short = r < _ROUNDS and (n + c * (r - 1)) * (h1 - h0 + o1 - o0 + n) <= _WORK
        if not is_short:
            rest[left] = k
            left += 1
            continue
        rows, own = o1 - o0, _number_rows(o_words, o0, o1, number, heads)
        for i in range(rows):
            diffs[i] = o_diffs[o0 + i]
            for d in range(1 + depth):
                times[d, i] = o_times[d, o0 + i]
        for i in range(own):
            for w in range(width):
                words[w, i] = o_words[w, heads[i]]
        m = _number_rows(h_words, h0, h1, member, heads)
        for at in range(n + c * (r - 1)):
            j, version = 0, versions[min(at, n - 1)]
            if at >= n:
                j, version = 1 + (at - n) // c, checked[(at - n) % c]
            _add_up(h_times, h_diffs, h0, h1, member, m, version, rounds, j, counts)
            if totals > 0:
                state = of_few(totals, kinds, columns, nulls, units, h_words, heads, m, counts, sums, digits, result)
            else:
                state = _aggregates(kinds, columns, allow, h_words, heads, m, counts, result)
            if (state < 0 and j == 0) or rows + own + 1 > room:
                is_short = False
                break
            _add_up(times, diffs, 0, rows, number, own, version, rounds, j, held)
            target = _row_of(words, own, result) if state > 0 else -1
            if j > 0:
                if state < 0 or _differ(held, own, target):
                    if late == pending.shape[1]:
                        pending = grow(pending, late)
                    pending[0, late], pending[1, late] = k, version
                    for d in range(depth):
                        pending[2 + d, late] = rounds[d, j]
                    late += 1
                continue
            if target == own:
                held[own] = 0
                for w in range(width):
                    words[w, own] = result[w]
                own += 1
            for i in range(own):
                diff = np.int64(i == target) - held[i]
                if diff == 0:
                    continue
                if used == updates.shape[1]:
                    updates = grow(updates, used)
                updates[0, used], updates[1, used], updates[2, used] = k, version, diff
                for w in range(width):
                    updates[3 + w, used] = words[w, i]
                times[0, rows], number[rows], diffs[rows] = version, i, diff
                for d in range(depth):
                    times[1 + d, rows] = loops[d]
                used += 1
                rows += 1
        if not is_short:
            used, late = first_used, first_late
            rest[left] = k
            left += 1
    return rest[:left].copy(), updates[:, :used].copy(), pending[:, :late].copy()


@inline
def _is_lasting(times, diffs, first, last, since):  # type: ignore[no-untyped-def]
    """Whether a key has one output row at every time at or beyond ``since``."""
    count = np.int64(0)
    for row in range(first, last):
        is_later, balance = False, np.int64(0)
        for c in range(len(since)):
            is_later |= times[c, row] > since[c]
        if not is_later:
            count += diffs[row]
            continue
        for other in range(first, last):
            balance += diffs[other] if same(times, row, other) else 0
        if balance != 0:
            return False
    return count == 1


@kernel(OUT1, BOOL, IN1, IN1, IN2, IN1, IN1, IN1, IN2, IN1)
def contested(least, starts, words, times, diffs, o_offsets, o_words, o_times, o_diffs):  # type: ignore[no-untyped-def]
    """The numbers of the updates that may change a minimum or a maximum: all but those of keys that get nothing but
    rows which are no better than any result of the key, at times at which it keeps having one. ``words``: the
    argument.
    """
    chosen, m = np.empty(len(words), dtype=np.int64), 0
    since = np.empty(times.shape[0], dtype=np.int64)
    for k in range(len(starts) - 1):
        i, end, o0, o1 = starts[k], starts[k + 1], o_offsets[k], o_offsets[k + 1]
        lost = 0 < o1 - o0 <= _OUTPUTS
        for c in range(len(since) if lost else 0):
            since[c] = times[c, i]
            for row in range(i + 1, end):
                since[c] = min(since[c], times[c, row])
        for row in range(i, end if lost else i):
            lost &= diffs[row] > 0
            for o in range(o0, o1):
                no_better = words[row] >= o_words[o] if least else words[row] <= o_words[o]
                lost &= o_words[o] != _NULL and (words[row] == _NULL or no_better)
        if lost and _is_lasting(o_times, o_diffs, o0, o1, since):
            continue
        for row in range(i, end):
            chosen[m] = row
            m += 1
    return chosen[:m].copy()
