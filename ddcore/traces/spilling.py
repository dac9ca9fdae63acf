"""Spilling: arrays that come to rest go to files when the memory that is set is nearly used up.

Files are mapped, so that kernels read them like any array, and the operating system decides which pages are in memory.
Their contents are written before they are mapped: a full disk is an error here and not a signal later. A file has no
name from the beginning, so its space is free again when the last array of it is gone, also after the process is killed.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from ddcore.base.errors import FoldError
from ddcore.base.lazy import numpy as np
from ddcore.base.tuning import DEFAULT, Tuning

_PER_FILE = 64  # files of many small arrays are this part of the memory
_LEAST_FILE, _MOST_FILE = 1 << 22, 1 << 28


class Memory:
    """Where arrays that come to rest lie: memory without a limit. Several threads may use one.

    ``rows``: how many are worked on at once.
    """

    is_limited = False
    rows: int = 2**62

    def rest(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """These arrays, which are not written to again."""
        return list(arrays)

    def part(self, share: float, otherwise: int) -> int:
        """A share of the bytes that are set; where none are, ``otherwise``."""
        return otherwise

    def is_short(self) -> bool:
        """Whether what is set is nearly used up."""
        return False

    def table(self, columns: int, rows: int) -> Table:
        """Room for so many rows of int64 columns."""
        return Table(columns, rows)


class Spilling(Memory):
    """The bytes of ``memory`` below which a process should stay, and the ``folder`` for its files.

    Methods raise FoldError where the folder cannot be written to.
    """

    is_limited = True

    def __init__(self, memory: int, folder: str | os.PathLike[str] | None = None, tuning: Tuning = DEFAULT) -> None:
        self.memory, self.folder, self.tuning = memory, os.fspath(folder or tempfile.gettempdir()), tuning
        self.rows = rows_within(memory, tuning)
        self.spilled = 0  # bytes that went to files
        self._lock = Lock()
        self._shared: _File | None = None  # takes small arrays, one after the other
        self._used = 0

    def rest(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """These arrays, in a file if they are large and memory is nearly used up. They are not written to again."""
        size = sum(_padded(array.nbytes) for array in arrays)
        if size < self.tuning.spilled_bytes or all(map(_is_mapped, arrays)) or not self.is_short():
            return list(arrays)
        capacity = min(max(_LEAST_FILE, self.memory // _PER_FILE), _MOST_FILE)
        if 4 * size > capacity:
            return _File(self, size).put(0, arrays)
        with self._lock:
            if self._shared is None or self._used + size > self._shared.size:
                self._shared, self._used = _File(self, capacity), 0
            file, at = self._shared, self._used
            self._used += size
        return file.put(at, arrays)

    def table(self, columns: int, rows: int) -> Table:
        """Room for so many rows of int64 columns, in a file if it is large."""
        is_large = rows > self.rows or 8 * columns * rows >= self.tuning.table_bytes
        return _FileTable(self, columns, rows) if is_large else Table(columns, rows)

    def part(self, share: float, otherwise: int) -> int:
        """A share of the memory."""
        return int(self.memory * share)

    def is_short(self) -> bool:
        """Whether memory is nearly used up; always where the system does not say."""
        try:
            with open("/proc/self/statm", "rb", buffering=0) as file:
                _, resident, shared, *_ = file.read().split()
        except OSError:
            return True
        return (int(resident) - int(shared)) * mmap.PAGESIZE > self.memory * self.tuning.resting_share


class _File:
    """A file without a name, mapped for reading. It ends with the last array of it."""

    def __init__(self, spilling: Spilling, size: int) -> None:
        self.spilling, self.size = spilling, size
        self._map: mmap.mmap | None = None
        with self._reporting(), tempfile.TemporaryFile(dir=spilling.folder, buffering=0) as file:
            self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
            os.ftruncate(self._descriptor, max(1, size))

    def put(self, at: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Write arrays from byte ``at`` on; they are returned as mapped."""
        placed = []
        for array in arrays:
            self.write(at, array)
            placed.append(self.array(at, array.shape, array.dtype))
            at += _padded(array.nbytes)
        return placed

    def write(self, at: int, array: np.ndarray) -> None:
        """Write an array from byte ``at`` on."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self.spilling.spilled += len(data)
        with self._reporting():
            self._write(at, data)

    def move(self, source: int, target: int, size: int) -> None:
        """Copy bytes to an earlier place in the file."""
        copied = self.spilling.tuning.copied_bytes
        with self._reporting():
            for at in range(0, size, copied):
                data = os.pread(self._descriptor, min(copied, size - at), source + at)
                self._write(target + at, memoryview(data))

    def cut(self, size: int) -> None:
        """Make the file smaller, before it is mapped."""
        with self._reporting():
            os.ftruncate(self._descriptor, max(1, size))

    def array(self, at: int, shape: tuple[int, ...], dtype: Any = "int64") -> np.ndarray:
        """The array from byte ``at`` on, mapped."""
        if self._map is None:
            with self._reporting():
                settings: Any = {"trackfd": False} if sys.version_info >= (3, 13) else {}
                self._map = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ, **settings)
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._map, dtype, count, at).reshape(shape)

    def _write(self, at: int, data: memoryview) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, at)
            data, at = data[written:], at + written

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FoldError(
                f"cannot write temporary files to {self.spilling.folder}: {error.strerror}",
                "free some space there, name a folder with more in TMPDIR, or fold with more memory",
            ) from error


class Table:
    """Room for ``rows`` rows of ``count`` int64 columns, which are written some after the other."""

    def __init__(self, count: int, rows: int) -> None:
        self.count, self.rows = count, rows
        self._array: np.ndarray = np.empty((count, rows), dtype=np.int64)

    def write(self, column: int, start: int, values: np.ndarray) -> None:
        """Write the values of a column from row ``start`` on."""
        self._array[column, start : start + len(values)] = values

    def first(self, rows: int) -> np.ndarray:
        """The first rows of all columns: (count, rows). Nothing is written afterwards."""
        return np.ascontiguousarray(self._array[:, :rows])


class _FileTable(Table):
    """Such room in a file, which is mapped when all is written."""

    def __init__(self, spilling: Spilling, count: int, rows: int) -> None:
        self.count, self.rows = count, rows
        self._file = _File(spilling, 8 * count * rows)

    def write(self, column: int, start: int, values: np.ndarray) -> None:
        """Write the values of a column from row ``start`` on."""
        self._file.write(8 * (column * self.rows + start), values)

    def first(self, rows: int) -> np.ndarray:
        """The first rows of all columns: (count, rows), mapped."""
        if rows < self.rows:
            for column in range(1, self.count):
                self._file.move(8 * column * self.rows, 8 * column * rows, 8 * rows)
            self._file.cut(8 * self.count * rows)
            self.rows = rows
        return self._file.array(0, (self.count, rows))


def rows_within(memory: int, tuning: Tuning = DEFAULT) -> int:
    """The number of rows that are worked on at once in so many bytes."""
    return max(tuning.least_rows, memory // tuning.row_bytes)


def _is_mapped(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return isinstance(base, mmap.mmap)


def _padded(size: int) -> int:
    """A number of bytes, rounded up so that what follows is aligned."""
    return (size + 7) // 8 * 8


UNLIMITED = Memory()
