"""Files of a warehouse: the one place that reads and writes them directly, on a file system or in an object store.

The table libraries read and write the Delta logs by themselves; everything else goes through here. A file system has
folders, renames and syncs; an object store has none of these: an object is there as a whole or not at all, and a folder
is there as long as something is in it. Functions that an object store has no need for do nothing there.

Errors: FileNotFoundError for a missing file; other errors of a file system as OSError, of a store as StorageError.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ddcore.base.errors import StorageError
from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.storage import objects
from ddcore.io.storage.address import Address, Location

if TYPE_CHECKING:
    from ddcore.io.storage.objects import Object, Whole

__all__ = ["Location"]  # passed on


_SMALL = 64 * 1024  # bytes of a file that is read and not mapped
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # all other errors say nothing about what is there
UNREADABLE = {  # what to do about them
    errno.EACCES: "make it readable for this user and run the same command again",
    errno.EPERM: "make it readable for this user and run the same command again",
    errno.EIO: "look what is wrong with the disk or its file system, then run the same command again",
    errno.ESTALE: "look whether the file system is still mounted, then run the same command again",
    errno.ENOTCONN: "look whether the file system is still mounted, then run the same command again",
    errno.ETIMEDOUT: "look whether the file system still answers, then run the same command again",
    errno.EMFILE: "raise the limit on open files (ulimit -n), then run the same command again",
}


class Entry(NamedTuple):
    """A file: its size in bytes, and when it was written, in seconds since 1970."""

    address: Location
    size: int
    modified: float

    def below(self, folder: Location) -> str:
        """The steps from a folder to the file, with slashes."""
        return below(folder, self.address)


Contents: TypeAlias = "_File | Object | Whole"
"""The bytes of an open file."""


class Mapped(Protocol):
    """A file as an array of bytes."""

    address: Location
    data: np.ndarray

    def fetch(self, begins: np.ndarray, ends: np.ndarray) -> None:
        """Have the bytes of some ranges in ``data``; of a file of a file system all are there."""


class _Map:
    """A mapped file of a file system; a small one is read."""

    __slots__ = ("address", "data")

    def __init__(self, path: Path) -> None:
        self.address: Location = path
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            content = (file.read(size) or b"") if size <= _SMALL else _mapped(path, file.fileno())
        self.data = np.frombuffer(content, np.uint8) if size else np.empty(0, np.uint8)

    def fetch(self, begins: np.ndarray, ends: np.ndarray) -> None:
        """Nothing: the system reads what is touched."""


def _mapped(path: Path, descriptor: int) -> Any:
    """The bytes of a file, mapped; no descriptor stays open."""
    if sys.version_info >= (3, 13):
        content = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ, trackfd=False)
        content.madvise(mmap.MADV_RANDOM)
        return content
    with pa.memory_map(str(path)) as source:
        return source.read_buffer()


class _File:
    """An open file of a file system."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, length: int, begin: int) -> bytes:
        return os.pread(self._descriptor, length, begin)


def below(folder: Location, address: Location) -> str:
    """The steps from a folder to something in it, with slashes. ValueError where it is not below."""
    if isinstance(folder, Path) and isinstance(address, Path):
        return address.relative_to(folder).as_posix()
    if isinstance(folder, Address) and isinstance(address, Address):
        return address.relative_to(folder).as_posix()
    raise ValueError(f"{address} is not below {folder}")


# --- reading ----------------------------------------------------------------------------------------------------------


def exists(address: Location) -> bool:
    """Whether there is a file or a folder."""
    if isinstance(address, Path):
        return _status(address) is not None
    return objects.size_of(address) is not None or objects.is_folder(address)


def is_file(address: Location) -> bool:
    """Whether there is a file."""
    if isinstance(address, Path):
        return (status := _status(address)) is not None and stat.S_ISREG(status.st_mode)
    return objects.size_of(address) is not None


def is_folder(address: Location) -> bool:
    """Whether there is a folder; in a store, one that has something in it."""
    if isinstance(address, Path):
        return (status := _status(address)) is not None and stat.S_ISDIR(status.st_mode)
    return objects.is_folder(address)


def _status(path: Path) -> os.stat_result | None:
    """What the file system says about a path; None where nothing is there. StorageError where it does not say."""
    try:
        return path.stat()
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> StorageError:
    reason = error.strerror or str(error)
    return StorageError(f"cannot read {path}: {reason}", UNREADABLE.get(error.errno or 0, ""))


def names(folder: Location) -> list[str]:
    """The sorted names of what a folder has in it; none for a missing one. StorageError where it cannot be listed."""
    if isinstance(folder, Path):
        try:
            return sorted(os.listdir(folder))
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise _unreadable(folder, error) from error
    return objects.names(folder)


def entries(folder: Location, *, hidden: bool = True) -> Iterator[Entry]:
    """All files below a folder, or the file itself; without ``hidden``, not in folders that begin with ``.`` or ``_``.

    Files that vanish meanwhile are left out.
    """
    if not isinstance(folder, Path):
        for address, size, written in objects.entries(folder):
            if hidden or not _is_hidden(address.relative_to(folder).parent.parts):
                yield Entry(address, size, written)
        return
    if is_file(folder):
        yield _entry(folder)
    for top, folders, found in os.walk(folder, onerror=_refuse):
        if not hidden:
            folders[:] = [name for name in folders if not _is_hidden((name,))]
        for name in found:
            with suppress(FileNotFoundError):
                yield _entry(Path(top) / name)


def _refuse(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed; nothing for one that vanished meanwhile."""
    if error.errno not in _ABSENT:
        raise _unreadable(Path(error.filename), error) from error


def _entry(path: Path) -> Entry:
    status = path.lstat()
    return Entry(path, status.st_size, status.st_mtime)


def _is_hidden(steps: tuple[str, ...]) -> bool:
    return any(step[0] in "._" for step in steps)


def size_of(address: Location) -> int:
    """The size of a file in bytes. FileNotFoundError."""
    return address.stat().st_size if isinstance(address, Path) else objects.head(address)[0]


def modified(address: Location) -> float:
    """When a file was written, in seconds since 1970. FileNotFoundError."""
    return address.stat().st_mtime if isinstance(address, Path) else objects.head(address)[1]


def read(address: Location) -> bytes:
    """All bytes of a file. FileNotFoundError."""
    return address.read_bytes() if isinstance(address, Path) else objects.read(address)


@contextmanager
def opened(address: Location, *, whole: bool = False) -> Iterator[Contents]:
    """A file whose bytes are read here and there; ``whole``: all of them. FileNotFoundError."""
    if isinstance(address, Path):
        with address.open("rb") as file:
            yield _File(file.fileno())
        return
    yield objects.Whole(address) if whole else objects.Object(address)


def mapped(address: Location) -> Mapped:
    """A file as an array of bytes. FileNotFoundError."""
    return _Map(address) if isinstance(address, Path) else objects.Parts(address)


@contextmanager
def source_of(address: Location) -> Iterator[pa.NativeFile]:
    """A file for Arrow; of an object all bytes are read."""
    with pa.memory_map(str(address)) if isinstance(address, Path) else pa.BufferReader(read(address)) as source:
        yield source


# --- writing ----------------------------------------------------------------------------------------------------------


def create_folder(folder: Location) -> None:
    """Create a folder, and those above it, if it does not exist."""
    if isinstance(folder, Path) and not folder.is_dir():  # as it nearly always is
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def new_file(folder: Location, stem: str) -> Iterator[NewFile]:
    """A new file in a folder, which is there as a whole or not at all; its name begins with ``stem``."""
    if isinstance(folder, Path):
        create_folder(folder)
        temporary = folder / f".{stem}-{os.getpid()}-{time.monotonic_ns()}.tmp"
        try:
            yield NewFile(temporary, stem)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return
    import tempfile

    from ddcore.io.storage import scratch

    # No two writes share a name: what an old holder of the lock still deletes is never what another one wrote.
    with tempfile.TemporaryDirectory(dir=scratch.folder()) as directory:
        yield NewFile(Path(directory) / "new", f"{stem}-{uuid.uuid4().hex[:16]}")


class NewFile(NamedTuple):
    """A file that is being written: where, and how its final name is to begin."""

    temporary: Path
    name: str

    def finish(self, address: Location) -> None:
        """Give the file its final name."""
        if isinstance(address, Path):
            self.temporary.replace(address)
        else:
            objects.put(address, self.temporary)


def delete(address: Location) -> None:
    """Delete a file if it is there."""
    if isinstance(address, Path):
        address.unlink(missing_ok=True)
    else:
        objects.delete([address])


def remove_folder(folder: Location) -> None:
    """Delete a folder with all that is in it, as far as possible."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        objects.delete(entry[0] for entry in objects.entries(folder))


def sync(address: Location) -> None:
    """Sync a file's contents, or a folder's names, to the disk."""
    if not isinstance(address, Path):
        return
    descriptor = os.open(address, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
