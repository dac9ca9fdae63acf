"""Bytes of a file that are checked where they are used: the file is mapped, and a block is verified when it is first
touched.

A file has digests of its blocks (2 KiB each), and digests of units of these (128 each): its footer, of which the file's
name ends in the digest, holds the latter. So a look-up checks as much as it reads, and nothing twice in a process.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from ddcore.base.errors import StorageError
from ddcore.base.lazy import numpy as np
from ddcore.io.storage import store
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from ddcore.io.parquet.pages import Output

BLOCK = 2048  # bytes
_UNIT = 128  # digests of blocks of which one digest is in the footer
_BITS = BLOCK.bit_length() - 1


def write_digests(out: Output, content: np.ndarray) -> np.ndarray:
    """Append the digests of the blocks of what was written, ``content`` (uint8[n], n a multiple of 8); return those of
    their units: int64[m].
    """
    from ddcore.kernels.blocks import digests

    words = content.view(np.int64)
    blocks: np.ndarray = digests(words, np.arange(-(-len(content) // BLOCK)), BLOCK // 8, 0, len(words))
    out.write(blocks)
    units: np.ndarray = digests(blocks, np.arange(-(-len(blocks) // _UNIT)), _UNIT, 0, len(blocks))
    return units


class Checked:
    """The first ``end`` bytes of a file, which have digests; ``units`` are those in its footer: int64[m].

    ``data`` is all of the file, and ``words`` the same in words of 8 bytes. Only bytes that were asked for with
    :meth:`need` may be used: of an object in a store others are not there. Raises StorageError where they are damaged.
    """

    __slots__ = (
        "_blocks", "_known", "_lock", "_source", "_units", "_units_known", "_whole", "data", "end",
        "hint", "read", "words",
    )  # fmt: skip

    def __init__(self, source: store.Mapped, end: int, units: np.ndarray, hint: str) -> None:
        self._source, self.end, self._units, self.hint = source, end, units, hint
        self.data = source.data
        blocks = -(-end // BLOCK)
        if len(self.data) < end + 8 * blocks or len(units) != -(-blocks // _UNIT):
            raise damaged(source.address, hint)
        self.words = self.data[: len(self.data) // 8 * 8].view(np.int64)
        self._blocks = self.words[end // 8 : end // 8 + blocks]
        self._known, self._units_known = np.zeros(blocks, dtype=bool), np.zeros(len(units), dtype=bool)
        self._whole = blocks == 0  # whether all are known
        self.read = 0  # bytes that were read, with those of digests
        self._lock = Lock()

    def need(self, begins: np.ndarray, ends: np.ndarray) -> None:
        """Have the bytes of some ranges, of which none is empty: int64[m] each."""
        if self._whole or not len(begins):
            return
        first, last = begins >> _BITS, (ends - 1) >> _BITS
        blocks = first
        if (first != last).any():
            sizes = last - first + 1
            offsets = np.cumsum(sizes)
            blocks = np.arange(offsets[-1]) + np.repeat(first - offsets + sizes, sizes)
        with self._lock:
            missing = blocks[~self._known[blocks]]
            if len(missing):
                self._have(_distinct(missing))

    def need_range(self, begin: int, end: int) -> None:
        """Have the bytes of one range."""
        if end > begin and not self._whole:
            first, last = begin >> _BITS, (end - 1) >> _BITS
            with self._lock:
                missing = first + np.flatnonzero(~self._known[first : last + 1])
                if len(missing):
                    self._have(missing)

    def _have(self, blocks: np.ndarray) -> None:
        """Fetch and verify blocks, and the units of their digests."""
        from ddcore.kernels.blocks import digests

        units = _distinct(blocks // _UNIT)
        units = units[~self._units_known[units]]
        first, size = self.end // 8, 8 * len(self._blocks)
        unit = 8 * _UNIT
        begins = np.concatenate([blocks * BLOCK, self.end + units * unit])
        ends_of_units = self.end + np.minimum((units + 1) * unit, size)
        ends = np.concatenate([np.minimum((blocks + 1) * BLOCK, self.end), ends_of_units])
        self._source.fetch(begins, ends)
        if len(units):
            of_units = digests(self.words, units, _UNIT, first, first + len(self._blocks))
            if (of_units != self._units[units]).any():
                raise damaged(self._source.address, self.hint)
            self._units_known[units] = True
        if (digests(self.words, blocks, BLOCK // 8, 0, first) != self._blocks[blocks]).any():
            raise damaged(self._source.address, self.hint)
        self._known[blocks] = True
        self._whole = bool(self._known.all())
        self.read += int((ends - begins).sum())


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Some numbers, ascending, each once. Without what numpy's ``unique`` does beside that: there are few."""
    if len(numbers) < 2:
        return numbers
    numbers = np.sort(numbers)
    is_first = np.empty(len(numbers), dtype=bool)
    is_first[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    return numbers[is_first]


def damaged(path: Location, hint: str) -> StorageError:
    """The error of a file whose bytes have changed."""
    return StorageError(f"{path} is damaged: its bytes have changed since it was written", hint)
