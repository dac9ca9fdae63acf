"""SipHash-1-3 with 128 bits of output, of many messages side by side: a word of each message at a time.

A message is a sequence of words of 64 bits. The state of message ``i`` is column ``i`` of an array of five rows: the
four words of the definition, and how many words have come from texts.
"""

from __future__ import annotations

import numpy as np

from ddcore.compiling.native import Array
from ddcore.kernels.blocks import turned
from ddcore.kernels.compiling import IN1, INT, OUT2, VOID, inline, kernel

_BYTES, _WORDS = Array("uint8", 1), Array("uint64", 1)
_VIEWS = Array("uint64", 2)
_STATE, _SUMS = Array("uint64", 2, writes=True), OUT2
_HASHES, _FLAGS = Array("uint64", 2), Array("uint8", 1, writes=True)
_SPREAD, _ORDER = Array("uint64", 1, writes=True), Array("int32", 1, writes=True)
_LOW = np.uint64(0xFFFF_FFFF)


@inline
def _round(a, b, c, d):  # type: ignore[no-untyped-def]
    a += b
    c += d
    b = turned(b, 13) ^ a
    d = turned(d, 16) ^ c
    a = turned(a, 32)
    a += d
    c += b
    d = turned(d, 21) ^ a
    b = turned(b, 17) ^ c
    c = turned(c, 32)
    return a, b, c, d


@kernel(VOID, _STATE, _WORDS)
def absorb(state, words):  # type: ignore[no-untyped-def]
    """Add a word to each message."""
    for i in range(len(words)):
        a, b, c, d = _round(state[0, i], state[1, i], state[2, i], state[3, i] ^ words[i])
        state[0, i], state[1, i], state[2, i], state[3, i] = a ^ words[i], b, c, d


@inline
def _absorb_bytes(a, b, c, d, data, at, end):  # type: ignore[no-untyped-def]
    """Add bytes to a message, the last word filled up with zeros."""
    while at < end:
        word = np.uint64(0)
        for position in range(min(np.int64(8), end - at)):
            word |= np.uint64(data[at + position]) << np.uint64(8 * position)
        a, b, c, d = _round(a, b, c, d ^ word)
        a ^= word
        at += 8
    return a, b, c, d


@kernel(VOID, _STATE, _VIEWS, _WORDS, _BYTES)
def absorb_texts(state, views, starts, data):  # type: ignore[no-untyped-def]
    """Add a text to each message: its length in bytes, then its bytes, the last word filled up with zeros. So no text
    followed by others is the same words as another text followed by others.

    Texts are Arrow's views: a length, and the text and zeros in twelve bytes; or of a longer one its first four bytes,
    the number of its buffer and where it begins there. ``starts``: where each buffer begins in ``data``.
    """
    half = np.uint64(32)
    for i in range(len(views)):
        size = views[i, 0] & _LOW
        a, b, c, d = state[0, i], state[1, i], state[2, i], state[3, i]
        a, b, c, d = _round(a, b, c, d ^ size)
        a ^= size
        if 0 < size <= 12:
            word = (views[i, 0] >> half) | (views[i, 1] << half)
            a, b, c, d = _round(a, b, c, d ^ word)
            a ^= word
            if size > 8:
                word = views[i, 1] >> half
                a, b, c, d = _round(a, b, c, d ^ word)
                a ^= word
        elif size > 12:
            at = np.int64(starts[views[i, 1] & _LOW] + (views[i, 1] >> half))
            a, b, c, d = _absorb_bytes(a, b, c, d, data, at, at + np.int64(size))
        state[0, i], state[1, i], state[2, i], state[3, i] = a, b, c, d
        state[4, i] += np.uint64(1) + ((size + np.uint64(7)) >> np.uint64(3))


@kernel(VOID, _STATE, INT, _STATE, INT)
def finish(state, words, hashes, first):  # type: ignore[no-untyped-def]
    """Write the two words of each hash, from column ``first`` on. Each message had ``words`` words beside its texts."""
    for i in range(state.shape[1]):
        length = ((state[4, i] + np.uint64(words)) & np.uint64(31)) << np.uint64(59)
        a, b, c, d = _round(state[0, i], state[1, i], state[2, i], state[3, i] ^ length)
        a ^= length
        c ^= np.uint64(0xEE)
        for _ in range(3):
            a, b, c, d = _round(a, b, c, d)
        hashes[0, first + i] = a ^ b ^ c ^ d
        b ^= np.uint64(0xDD)
        for _ in range(3):
            a, b, c, d = _round(a, b, c, d)
        hashes[1, first + i] = a ^ b ^ c ^ d


@kernel(VOID, _SUMS, _HASHES, IN1, IN1)
def weighted_sums(sums, hashes, weights, starts):  # type: ignore[no-untyped-def]
    """Add the hashes of each group of rows, times their weights, to the groups' sums: of the hash's four halves of
    words, the lowest first. Group ``g`` begins at ``starts[g]``.
    """
    for g in range(len(starts)):
        stop = starts[g + 1] if g + 1 < len(starts) else len(weights)
        a, b, c, d = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for i in range(starts[g], stop):
            weight, low, high = weights[i], hashes[0, i], hashes[1, i]
            a += np.int64(low & _LOW) * weight
            b += np.int64(low >> np.uint64(32)) * weight
            c += np.int64(high & _LOW) * weight
            d += np.int64(high >> np.uint64(32)) * weight
        sums[0, g] += a
        sums[1, g] += b
        sums[2, g] += c
        sums[3, g] += d


@kernel(INT, _FLAGS, _WORDS, _SPREAD, _ORDER)
def flag_repeats(flags, hashes, spread, order):  # type: ignore[no-untyped-def]
    """Set the flags of all hashes that occur more than once, and return how many these are. O(n): the hashes are
    spread by their upper bits over parts, each of which has a table that fits into a core's cache. ``spread`` and
    ``order`` are room for as many.
    """
    count = len(hashes)
    bits = 0
    while bits < 12 and count >> bits > 4096:
        bits += 1
    ends = np.zeros(1 << bits, dtype=np.int64)
    # Shifts by 64 have no meaning, so in two steps.
    down = np.uint64(63 - bits)
    for i in range(count):
        ends[np.int64((hashes[i] >> down) >> np.uint64(1))] += 1
    total = most = np.int64(0)
    for part in range(len(ends)):
        most = max(most, ends[part])
        total += ends[part]
        ends[part] = total - ends[part]
    for i in range(count):
        position = np.int64((hashes[i] >> down) >> np.uint64(1))
        spread[ends[position]], order[ends[position]] = hashes[i], i
        ends[position] += 1
    size = 8
    while size < 2 * most:
        size *= 2
    mask = np.uint64(size - 1)
    slots = np.empty(size, dtype=np.int32)  # places in ``spread``, from 1 on
    repeats = begin = 0
    for part in range(len(ends)):
        slots[:] = 0
        for at in range(begin, ends[part]):
            slot = np.int64(spread[at] & mask)
            while slots[slot] > 0 and spread[slots[slot] - 1] != spread[at]:
                slot = (slot + 1) & (size - 1)
            if slots[slot] == 0:
                slots[slot] = at + 1
                continue
            for i in (order[slots[slot] - 1], order[at]):
                repeats += 1 - flags[i]
                flags[i] = 1
        begin = ends[part]
    return repeats
