"""The aggregates of a key at each evaluated version, or all of its rows.

Rows are gathered by key: ``offsets[k]:offsets[k + 1]`` are key k's. Where versions form a chain and a group is large,
one pass covers all versions; otherwise each evaluation reads all rows of the key. Sums are exact: an overflow is
reported only if the result itself does not fit.
"""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import BOOL, IN1, IN2, INT, OUT1, OUT2, apart, inline, kernel, several
from ddcore.kernels.floats import LIMBS, NAN, add_float, clear, is_special, read_float, special_sum
from ddcore.kernels.group_rows import (
    FEW_ROWS,
    add_count,
    add_up,
    add_up_exactly,
    are_small,
    by_version,
    distinct_rows,
    note_negative,
    order_rows,
    room,
    sign_of,
)
from ddcore.kernels.means import DIGITS, mean_of_floats, mean_of_integers
from ddcore.kernels.sorting import add, multiply, sort_rows
from ddcore.kernels.time_columns import grow, holds
from ddcore.kernels.wide import add_pair, add_triple, fits, product, triple_fits

_NULL, _MOST = np.int64(-(2**63)), np.int64(2**63 - 1)
_SWEEP_FROM = 2048  # rows x times of a key beyond which sweeping pays for its bookkeeping

COUNT, SUM, MIN, MAX, FLOAT_SUM, MEAN, FLOAT_MEAN, COUNT_DISTINCT = 0, 1, 2, 3, 4, 5, 6, 7
NEGATIVE, OVERFLOW = 1, 2


@inline
def _clamped(high, low):  # type: ignore[no-untyped-def]
    """The int64 next to a pair: the same sign, and 0 only for 0."""
    if fits(high, low):
        return np.int64(low)
    return _NULL if high < 0 else _MOST


@inline
def exact_sum(order, n, words, c, times, diffs, e_times, e):  # type: ignore[no-untyped-def]
    """The sum of value times diff over rows that hold, as a triple."""
    top, high, low = np.int64(0), np.uint64(0), np.uint64(0)
    for i in range(n):
        word = words[c, order[i]]
        if word != _NULL and holds(times, order[i], e_times, e):
            part_high, part_low = product(word, diffs[order[i]])
            top, high, low = add_triple(top, high, low, part_high, part_low)
    return top, high, low


@inline
def sum_of(heads, m, words, c, counts):  # type: ignore[no-untyped-def]
    """The sum of value times count, and whether one word was enough for it all the way."""
    total, enough = np.int64(0), True
    for i in range(m):
        word = words[c, heads[i]]
        if word != _NULL:
            part, bad = multiply(word, counts[i])
            total, worse = add(total, part)
            enough &= not (bad or worse)
    return total, enough


@apart
def add_floats(order, n, words, c, times, diffs, e_times, e, heads, m, counts, small, limbs):  # type: ignore[no-untyped-def]
    """Add value times count to the limbs; returns their range, and the word of a sum that is not finite or 0."""
    positive, negative, undefined = 0, 0, 0
    low, high = len(limbs), 0
    for i in range(m):
        word = words[c, heads[i]]
        if word == _NULL or counts[i] == 0:
            continue
        if is_special(word):
            if word == NAN:
                undefined += 1
            elif (word > 0) == (counts[i] > 0):
                positive += 1
            else:
                negative += 1
        elif small:
            low, high = add_float(limbs, low, high, word, counts[i])
    if not small:
        for i in range(n):
            word = words[c, order[i]]
            if word != _NULL and not is_special(word) and holds(times, order[i], e_times, e):
                low, high = add_float(limbs, low, high, word, diffs[order[i]])
    return low, high, special_sum(positive, negative, undefined)


@inline
def _value_count(heads, m, words, c, counts, highs, small):  # type: ignore[no-untyped-def]
    """The number of values that are not null, each with its count, as a pair."""
    high, low = np.int64(0), np.uint64(0)
    for i in range(m):
        if words[c, heads[i]] != _NULL:
            high, low = add_count(high, low, counts, highs, i, small)
    return high, low


@inline
def _mean(  # type: ignore[no-untyped-def]
    kind, unit, order, n, words, c, times, diffs, e_times, e, heads, m, counts, highs, signs, small, limbs, digits
):
    """The word of the mean of the values that are not null; null without any."""
    count_high, count_low = _value_count(heads, m, words, c, counts, highs, small)
    if count_high == 0 and count_low == 0:
        return _NULL
    if kind == FLOAT_MEAN:
        start, end, special = add_floats(order, n, words, c, times, diffs, e_times, e, heads, m, signs, small, limbs)
        result = mean_of_floats(limbs, start, end, special, count_high, count_low, digits)
        clear(limbs, start, end)
        return result
    total, enough = np.int64(0), False
    if small:
        total, enough = sum_of(heads, m, words, c, counts)
    if enough:
        top = total >> np.int64(63)
        high, low = np.uint64(top), np.uint64(total)
    else:
        top, high, low = exact_sum(order, n, words, c, times, diffs, e_times, e)
    return mean_of_integers(top, high, low, unit, count_high, count_low, digits)


@inline
def value_orders(kinds, columns, heads, m, words):  # type: ignore[no-untyped-def]
    """For each aggregate that counts distinct values: a key's rows sorted by the value, and the values by row."""
    turns, values = np.empty((len(kinds), m), dtype=np.int64), np.empty((len(kinds), m), dtype=np.int64)
    for a in range(len(kinds)):
        if kinds[a] != COUNT_DISTINCT:
            continue
        for i in range(m):
            turns[a, i], values[a, i] = i, words[columns[a], heads[i]]
        sort_rows(turns[a], 0, m, values[a : a + 1])
    return turns, values


@inline
def distinct_values(turn, m, values, counts, highs, small):  # type: ignore[no-untyped-def]
    """How many values, not null, have a positive count; ``turn`` has the rows in the order of their values."""
    number, high, low = np.int64(0), np.int64(0), np.uint64(0)
    for position in range(m):
        i = turn[position]
        if position > 0 and values[i] != values[turn[position - 1]]:
            number += high > 0 or (high == 0 and low != 0)
            high, low = np.int64(0), np.uint64(0)
        if values[i] != _NULL:
            high, low = add_count(high, low, counts, highs, i, small)
    return number + np.int64(high > 0 or (high == 0 and low != 0))


@inline
def extreme_word(kind, heads, m, words, c, counts):  # type: ignore[no-untyped-def]
    """The least or greatest word that is not null of the rows with positive counts, or null."""
    best = _NULL
    for i in range(m):
        word = words[c, heads[i]]
        better = word < best if kind == MIN else word > best
        if word != _NULL and counts[i] > 0 and (best == _NULL or better):
            best = word
    return best


@inline
def presence(is_there, positives, linear, extreme, distinct, allow):  # type: ignore[no-untyped-def]
    """Whether a group has a result: by its sum of counts, and its number of rows with a positive one."""
    if distinct or not allow:
        return positives > 0
    return (is_there or not linear) and (positives > 0 or not extreme)


@apart
def _sweep(  # type: ignore[no-untyped-def]
    kind, unit, order, n, member, heads, m, counts, highs, words, times, diffs, e_times, e0, e1, allow, linear,
    limbs, digits, results, present, error,
):  # fmt: skip
    """One pass over the versions of a large group with at most one aggregate: each row is applied once.

    ``kind`` is -1 without aggregates. The aggregate looks at the first value column, by which rows are sorted.
    """
    versions, turn = by_version(order, n, times)
    for i in range(m):
        counts[i], highs[i] = 0, 0
    total_high, total_low = np.int64(0), np.uint64(0)
    values_high, values_low, distinct = np.int64(0), np.uint64(0), np.int64(0)
    top, high, low = np.int64(0), np.uint64(0), np.uint64(0)
    specials = np.zeros(3, dtype=np.int64)  # rows that add infinity, take it away, or are NaN
    positives, negatives = np.int64(0), np.int64(0)
    first, last, at = 0, m - 1, 0
    from_limb, to_limb = len(limbs), 0
    for e in range(e0, e1):
        while at < n and versions[0, turn[at]] <= e_times[0, e]:
            i = turn[at]
            number, diff = member[i], diffs[order[i]]
            at += 1
            before = sign_of(highs, counts, number)
            highs[number], count = add_pair(highs[number], np.uint64(counts[number]), diff)
            counts[number] = np.int64(count)
            now = sign_of(highs, counts, number)
            positives += np.int64(now > 0) - np.int64(before > 0)
            negatives += np.int64(now < 0) - np.int64(before < 0)
            total_high, total_low = add_pair(total_high, total_low, diff)
            first, last = min(first, number), max(last, number)
            if kind < 0 or kind == COUNT or kind == MIN or kind == MAX:
                continue
            word = words[0, heads[number]]
            if word == _NULL:
                continue
            values_high, values_low = add_pair(values_high, values_low, diff)
            distinct += np.int64(now > 0) - np.int64(before > 0)
            if kind == COUNT_DISTINCT:
                continue
            if kind == SUM or kind == MEAN:
                part_high, part_low = product(word, diff)
                top, high, low = add_triple(top, high, low, part_high, part_low)
            elif not is_special(word):
                from_limb, to_limb = add_float(limbs, from_limb, to_limb, word, diff)
            elif word == NAN:
                specials[2] += abs(now) - abs(before)
            else:
                side = np.int64(word < 0)
                specials[side] += np.int64(now > 0) - np.int64(before > 0)
                specials[1 - side] += np.int64(now < 0) - np.int64(before < 0)
        if negatives > 0 and not allow:
            error[0], error[2] = NEGATIVE, e
            note_negative(False, m, counts, highs, error)
            break
        is_there = total_high != 0 or total_low != 0
        present[e] = presence(is_there, positives, linear, not linear, kind < 0, allow)
        if not present[e] or kind < 0:
            continue
        if kind == COUNT or kind == SUM:
            fit = fits(total_high, total_low) if kind == COUNT else triple_fits(top, high, low)
            results[0, e] = np.int64(total_low) if kind == COUNT else np.int64(low)
            if not fit or results[0, e] == _NULL:  # the word of null
                error[0], error[2] = OVERFLOW, e
                break
        elif kind == FLOAT_SUM:
            special = special_sum(specials[0], specials[1], specials[2])
            if special == 0 and to_limb > 0:
                special = read_float(limbs, digits, from_limb, to_limb)
            results[0, e] = special
        elif kind == COUNT_DISTINCT:
            results[0, e] = distinct
        elif (kind == MEAN or kind == FLOAT_MEAN) and values_high == 0 and values_low == 0:
            results[0, e] = _NULL
        elif kind == MEAN:
            results[0, e] = mean_of_integers(top, high, low, unit, values_high, values_low, digits)
        elif kind == FLOAT_MEAN:
            special = special_sum(specials[0], specials[1], specials[2])
            results[0, e] = mean_of_floats(limbs, from_limb, to_limb, special, values_high, values_low, digits)
        elif kind == MIN:
            while first < m and (sign_of(highs, counts, first) <= 0 or words[0, heads[first]] == _NULL):
                first += 1
            results[0, e] = words[0, heads[first]] if first < m else _NULL
        else:
            while last >= 0 and sign_of(highs, counts, last) <= 0:
                last -= 1
            results[0, e] = words[0, heads[last]] if last >= 0 else _NULL
    clear(limbs, from_limb, to_limb)


@kernel(
    several(OUT2, OUT1, OUT1),
    INT, IN1, IN1, IN1, IN1, IN1, IN2, IN2, IN1, IN1, IN2, BOOL,
)  # fmt: skip
def aggregate(inputs, loops, kinds, columns, units, offsets, words, times, diffs, e_offsets, e_times, allow):  # type: ignore[no-untyped-def]
    """Aggregates of every key at every evaluated version: their kinds, value columns and, for means, the word of 1 in
    that column.

    Returns results (aggregates, evals), 1 where the group is present, and an error: (code, key, eval, lower and
    upper word of a count), code 0 if none. Without aggregates it is `distinct`: presence is a positive count.
    """
    keys, evals = len(offsets) - 1, e_times.shape[1]
    results = np.empty((len(kinds), evals), dtype=np.int64)
    present = np.zeros(evals, dtype=np.int64)
    error = np.zeros(5, dtype=np.int64)
    all_small = are_small(diffs)
    limbs, digits = np.zeros(LIMBS, dtype=np.int64), np.zeros(DIGITS, dtype=np.int64)
    linear, extreme, counts_distinct = False, False, False
    turns, values = np.empty((0, 0), dtype=np.int64), np.empty((0, 0), dtype=np.int64)
    for a in range(len(kinds)):
        counts_distinct = counts_distinct or kinds[a] == COUNT_DISTINCT
        picks = kinds[a] == MIN or kinds[a] == MAX or kinds[a] == COUNT_DISTINCT
        linear, extreme = linear or not picks, extreme or picks
    swept = inputs == 1 and (len(kinds) == 0 or (len(kinds) == 1 and columns[0] == 0))
    order, heads, member, counts, highs = room(offsets)
    clamped = np.empty_like(counts)
    for k in range(keys):
        rows = offsets[k + 1] - offsets[k]
        e0, e1 = e_offsets[k], e_offsets[k + 1]
        if e0 == e1:
            continue
        n = order_rows(k, offsets, words, times, loops, inputs, order)
        m = distinct_rows(order, n, words, heads, member)
        if swept and n * (e1 - e0) > _SWEEP_FROM:
            kind = kinds[0] if len(kinds) == 1 else np.int64(-1)
            unit = units[0] if len(kinds) == 1 else np.int64(1)
            _sweep(kind, unit, order, n, member, heads, m, counts, highs, words, times, diffs, e_times, e0, e1,
                   allow, linear, limbs, digits, results, present, error)  # fmt: skip
            if error[0] != 0:
                error[1] = k
                return results, present, error
            continue
        small = all_small and rows <= FEW_ROWS
        signs = counts if small else clamped
        if counts_distinct:
            turns, values = value_orders(kinds, columns, heads, m, words)
        for e in range(e0, e1):
            if small:
                total, least = add_up(order, n, member, m, times, diffs, e_times, e, counts)
                high, low, negative = total >> np.int64(63), np.uint64(total), least < 0
            else:
                high, low, negative = add_up_exactly(order, n, member, m, times, diffs, e_times, e, counts, highs)
            if negative and not allow:
                error[0], error[1], error[2] = NEGATIVE, k, e
                note_negative(small, m, counts, highs, error)
                return results, present, error
            positives = 0
            for i in range(m):
                if not small:
                    clamped[i] = _clamped(highs[i], np.uint64(counts[i]))
                positives += signs[i] > 0
            present[e] = presence(high != 0 or low != 0, positives, linear, extreme, len(kinds) == 0, allow)
            if not present[e]:
                continue
            for a in range(len(kinds)):
                kind, c, fit = kinds[a], columns[a], True
                if kind == COUNT:
                    result, fit = np.int64(low), fits(high, low)
                elif kind == SUM:
                    result, fit = np.int64(0), False
                    if small:
                        result, fit = sum_of(heads, m, words, c, counts)
                    if not fit:
                        top, upper, lower = exact_sum(order, n, words, c, times, diffs, e_times, e)
                        result, fit = np.int64(lower), triple_fits(top, upper, lower)
                elif kind == FLOAT_SUM:
                    start, end, result = add_floats(
                        order, n, words, c, times, diffs, e_times, e, heads, m, signs, small, limbs
                    )
                    if result == 0 and end > 0:
                        result = read_float(limbs, digits, start, end)
                    clear(limbs, start, end)
                elif kind == COUNT_DISTINCT:
                    result = distinct_values(turns[a], m, values[a], counts, highs, small)
                elif kind == MIN or kind == MAX:
                    result = extreme_word(kind, heads, m, words, c, signs)
                else:
                    result = _mean(kind, units[a], order, n, words, c, times, diffs, e_times, e, heads, m,
                                        counts, highs, signs, small, limbs, digits)  # fmt: skip
                results[a, e] = result
                if not fit or ((kind == COUNT or kind == SUM) and result == _NULL):  # the word of null
                    error[0], error[1], error[2] = OVERFLOW, k, e
                    return results, present, error
    return results, present, error


@kernel(
    several(OUT1, OUT1, OUT1, OUT1),
    INT, IN1, IN1, IN2, IN2, IN1, IN1, IN2, BOOL,
)  # fmt: skip
def accumulate(inputs, loops, offsets, words, times, diffs, e_offsets, e_times, allow):  # type: ignore[no-untyped-def]
    """The rows of every key at every evaluated version: eval number, row number, count; and an error.

    Counts below zero are an error unless they are allowed; then they are returned as they are.
    """
    keys = len(offsets) - 1
    out = np.empty((3, 64), dtype=np.int64)
    used = 0
    error = np.zeros(5, dtype=np.int64)
    all_small = are_small(diffs)
    order, heads, member, counts, highs = room(offsets)
    for k in range(keys):
        rows = offsets[k + 1] - offsets[k]
        if e_offsets[k] == e_offsets[k + 1]:
            continue
        n = order_rows(k, offsets, words, times, loops, inputs, order)
        m = distinct_rows(order, n, words, heads, member)
        small = all_small and rows <= FEW_ROWS
        for e in range(e_offsets[k], e_offsets[k + 1]):
            if small:
                _, least = add_up(order, n, member, m, times, diffs, e_times, e, counts)
                negative = least < 0
            else:
                _, _, negative = add_up_exactly(order, n, member, m, times, diffs, e_times, e, counts, highs)
            if negative and not allow:
                error[0], error[1], error[2] = NEGATIVE, k, e
                note_negative(small, m, counts, highs, error)
                return out[0, :used].copy(), out[1, :used].copy(), out[2, :used].copy(), error
            for i in range(m):
                if not small and not fits(highs[i], np.uint64(counts[i])):
                    error[0], error[1], error[2] = OVERFLOW, k, e
                    return out[0, :used].copy(), out[1, :used].copy(), out[2, :used].copy(), error
                if counts[i] == 0:
                    continue
                if used == out.shape[1]:
                    out = grow(out, used)
                out[0, used], out[1, used], out[2, used] = e, heads[i], counts[i]
                used += 1
    return out[0, :used].copy(), out[1, :used].copy(), out[2, :used].copy(), error
