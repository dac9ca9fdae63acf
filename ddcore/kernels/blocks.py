"""Blocks of bytes: their digests, XXH64 of whole 64-bit words; and texts that are copied from one to another."""

from __future__ import annotations

import numpy as np

from ddcore.compiling.native import Array
from ddcore.kernels.compiling import IN1, INT, OUT1, VOID, apart, inline, kernel

_P1 = np.uint64(11400714785074694791)
_P2 = np.uint64(14029467366897019727)
_P3 = np.uint64(1609587929392839161)
_P4 = np.uint64(9650029242287828579)
_P5 = np.uint64(2870177450012600261)
_ZERO = np.uint64(0)
BYTES, WRITTEN = Array("uint8", 1), Array("uint8", 1, writes=True)


@inline
def turned(word, bits):  # type: ignore[no-untyped-def]
    """A word with its bits turned upwards: those that leave it come back below."""
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inline
def _round(lane, word):  # type: ignore[no-untyped-def]
    return turned(lane + np.uint64(word) * _P2, 31) * _P1


@inline
def _merged(digest, lane):  # type: ignore[no-untyped-def]
    return (digest ^ _round(_ZERO, lane)) * _P1 + _P4


@apart
def _digest(words, start, stop):  # type: ignore[no-untyped-def]
    i, digest = start, _P5
    if stop - start >= 4:
        a, b, c, d = _P1 + _P2, _P2, _ZERO, _ZERO - _P1
        while i + 4 <= stop:
            a, b = _round(a, words[i]), _round(b, words[i + 1])
            c, d = _round(c, words[i + 2]), _round(d, words[i + 3])
            i += 4
        digest = turned(a, 1) + turned(b, 7) + turned(c, 12) + turned(d, 18)
        digest = _merged(_merged(_merged(_merged(digest, a), b), c), d)
    digest += np.uint64(8) * np.uint64(stop - start)
    while i < stop:
        digest = turned(digest ^ _round(_ZERO, words[i]), 27) * _P1 + _P4
        i += 1
    digest ^= digest >> np.uint64(33)
    digest *= _P2
    digest ^= digest >> np.uint64(29)
    digest *= _P3
    return digest ^ (digest >> np.uint64(32))


@kernel(OUT1, IN1, IN1, INT, INT, INT)
def digests(words, blocks, size, first, end):  # type: ignore[no-untyped-def]
    """The digests of some blocks of ``size`` words, by number: int64[m]. Block 0 begins at word ``first``; the last
    block ends at word ``end``.
    """
    out = np.empty(len(blocks), dtype=np.int64)
    for k in range(len(blocks)):
        start = first + blocks[k] * size
        out[k] = np.int64(_digest(words, start, min(start + size, end)))
    return out


@kernel(VOID, BYTES, IN1, IN1, WRITTEN, IN1)
def copy_texts(source, starts, lengths, target, positions):  # type: ignore[no-untyped-def]
    """Copy ``lengths[k]`` bytes from ``starts[k]`` on to ``places[k]``."""
    for k in range(len(starts)):
        start, position = starts[k], positions[k]
        for i in range(lengths[k]):
            target[position + i] = source[start + i]
