"""Texts as Arrow's views, uint64[n, 2]: a length, and the text and zeros in twelve bytes; or of a longer one its first
four bytes, the number of its buffer, of which there is one, and where it begins there.
"""

from __future__ import annotations

import numpy as np

from ddcore.compiling.native import Array
from ddcore.kernels.compiling import INT, inline, kernel, several

_VIEWS, _BYTES = Array("uint64", 2), Array("uint8", 1)
_SHORT = 12  # bytes of a text that is in its view
_LOW = np.uint64(0xFFFF_FFFF)


@inline
def _turned(word):  # type: ignore[no-untyped-def]
    """Eight bytes as a number that is ordered as they are."""
    bytes_, pairs = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
    word = ((word & bytes_) << np.uint64(8)) | ((word >> np.uint64(8)) & bytes_)
    word = ((word & pairs) << np.uint64(16)) | ((word >> np.uint64(16)) & pairs)
    return (word << np.uint64(32)) | (word >> np.uint64(32))


@inline
def _second(size, word, data):  # type: ignore[no-untyped-def]
    """The fifth to the twelfth byte, filled up with zeros, as a number that is ordered as they are."""
    if size > _SHORT:
        at, word = np.int64(word >> np.uint64(32)) + 4, np.uint64(0)
        for place in range(8):
            word |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return _turned(word)


@inline
def _is_less_behind(views, data, i, j):  # type: ignore[no-untyped-def]
    """Whether text ``i`` is less than text ``j``, of which the first twelve bytes are the same."""
    size, other = np.int64(views[i, 0] & _LOW), np.int64(views[j, 0] & _LOW)
    if size > _SHORT and other > _SHORT:
        at, beside = np.int64(views[i, 1] >> np.uint64(32)), np.int64(views[j, 1] >> np.uint64(32))
        for place in range(_SHORT, min(size, other)):
            if data[at + place] != data[beside + place]:
                return data[at + place] < data[beside + place]
    return size < other


@kernel(several(INT, INT), _VIEWS, _BYTES)
def ends(views, data):  # type: ignore[no-untyped-def]
    """The rows of the least and of the greatest of some texts, by their bytes. O(n)."""
    least = greatest = 0
    low = high = _turned(views[0, 0]) & _LOW
    low_second = high_second = _second(np.int64(views[0, 0] & _LOW), views[0, 1], data)
    for i in range(1, len(views)):
        first = _turned(views[i, 0]) & _LOW
        if low < first < high:
            continue
        second = _second(np.int64(views[i, 0] & _LOW), views[i, 1], data)
        if first < low or (first == low and second < low_second) or (
            first == low and second == low_second and _is_less_behind(views, data, i, least)
        ):  # fmt: skip
            least, low, low_second = i, first, second
        if first > high or (first == high and second > high_second) or (
            first == high and second == high_second and _is_less_behind(views, data, greatest, i)
        ):  # fmt: skip
            greatest, high, high_second = i, first, second
    return least, greatest
