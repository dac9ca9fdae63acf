"""Hash tables over pooled strings, and the stable mixing of key columns into one code."""

from __future__ import annotations

import numpy as np

from ddcore.kernels.compiling import IN1, OUT1, VOID, inline, kernel

_NULL = np.int64(-(2**63))
_NULL_HASH = np.uint64(0x9AE16A3B2F90404F)


@inline
def _scramble(word):  # type: ignore[no-untyped-def]
    """A bijection of 64 bits in which every input bit moves about half of the output bits."""
    x = np.uint64(word)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


@kernel(OUT1, IN1, IN1, IN1)
def probe(hashes, slots, id_hashes):  # type: ignore[no-untyped-def]
    """Ids whose hash is ``hashes[i]``, or -1; ``slots`` is an open-addressing table of ids,
    ``id_hashes`` their hashes.
    """
    mask = len(slots) - 1
    ids = np.empty(len(hashes), dtype=np.int64)
    for i in range(len(hashes)):
        slot = np.int64(_scramble(hashes[i])) & mask
        while slots[slot] >= 0 and id_hashes[slots[slot]] != hashes[i]:
            slot = (slot + 1) & mask
        ids[i] = slots[slot]
    return ids


@kernel(VOID, IN1, OUT1, IN1)
def insert(ids, slots, id_hashes):  # type: ignore[no-untyped-def]
    """Put ids with distinct hashes into the table."""
    mask = len(slots) - 1
    for i in range(len(ids)):
        slot = np.int64(_scramble(id_hashes[ids[i]])) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = ids[i]


@kernel(OUT1, IN1, IN1)
def firsts(hashes, rows):  # type: ignore[no-untyped-def]
    """Of some rows, which ascend, those whose hash no row before them has."""
    size = 2
    while size < 2 * len(rows):
        size *= 2
    slots, chosen, m = np.full(size, -1, dtype=np.int64), np.empty(len(rows), dtype=np.int64), 0
    for row in rows:
        slot = np.int64(_scramble(hashes[row])) & (size - 1)
        while slots[slot] >= 0 and hashes[slots[slot]] != hashes[row]:
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = chosen[m] = row
            m += 1
    return chosen[:m].copy()


@kernel(VOID, OUT1, IN1)
def mix(codes, words):  # type: ignore[no-untyped-def]
    """Fold one fixed-width column into the codes, in place."""
    for i in range(len(codes)):
        codes[i] = np.int64(_scramble(np.uint64(codes[i]) * np.uint64(0x9E3779B97F4A7C15) + _scramble(words[i])))


@kernel(VOID, OUT1, IN1, IN1)
def mix_pooled(codes, ids, hashes):  # type: ignore[no-untyped-def]
    """Fold one pooled column into the codes by the stable hash of its strings, in place."""
    for i in range(len(codes)):
        own = _NULL_HASH if ids[i] == _NULL else np.uint64(hashes[ids[i]])
        codes[i] = np.int64(_scramble(np.uint64(codes[i]) * np.uint64(0x9E3779B97F4A7C15) + own))
