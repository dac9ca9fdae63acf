"""The warehouse: the places of its tables, its lock, and the errors of its storage.

All places are built here. One process writes at a time: on a local file system, Delta does not protect processes from
each other, and a blind append over a newer version commits without an error. In an object store the lock can expire:
:mod:`ddcore.io.storage.lease`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.errors import DdError, LockHeld, StorageError, UsageError
from ddcore.io.storage import store
from ddcore.io.storage.address import Address, Place, address_of, is_url
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.holder import Holder, is_alive, this_process
from ddcore.io.storage.store import sync

if TYPE_CHECKING:
    from ddcore.io.storage.lease import Lease

__all__ = ["REFRESH", "Holder", "Lock", "Warehouse", "is_alive", "reporting"]

REFRESH = "rebuild state and outputs from the inputs: ddcore run --full-refresh"

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_LIBRARIES = {"deltalake", "_internal", "pyarrow", "polars", "arro3", "pyo3_runtime"}  # the last: panics of Rust
_HINTS = {
    errno.ENOSPC: "free some space and run the same command again: nothing of this attempt is visible",
    errno.EDQUOT: "free some space and run the same command again: nothing of this attempt is visible",
    errno.EFBIG: "raise the limit on file sizes and run the same command again: nothing of this attempt is visible",
    errno.EACCES: "make it writable for this user and run the same command again",
    errno.EPERM: "make it writable for this user and run the same command again",
    errno.EROFS: "the file system is read-only: use another warehouse folder",
}


@contextmanager
def reporting(path: Place, doing: str, hint: str = "") -> Iterator[None]:
    """Turn errors of the file system and of the table libraries into a StorageError: ``cannot DOING PATH: reason``.

    Our own errors pass unchanged, and so do errors that show a bug in our code.
    """
    try:
        yield
    except DdError:
        raise
    except BaseException as error:  # a panic of Rust is not an Exception
        if not isinstance(error, OSError) and not _is_library_error(error):
            raise
        if isinstance(path, Address) and (stored := _stored_error(path, doing, error)) is not None:
            raise stored from error
        number = getattr(error, "errno", None) or _errno(error)
        hints = {**_HINTS, **store.UNREADABLE} if doing.startswith("read") else {**store.UNREADABLE, **_HINTS}
        known = os.strerror(number) if number in hints else ""
        reason = known or getattr(error, "strerror", None) or _first_line(error)
        raise StorageError(f"cannot {doing} {_culprit(error, path)}: {reason}", hints.get(number, hint)) from error


def _culprit(error: BaseException, path: Place) -> Place:
    """The file or folder that may not be used, where the error names one below ``path``; else ``path``."""
    named = getattr(error, "filename", None)
    is_below = isinstance(path, Path) and isinstance(named, str) and Path(named).is_relative_to(path)
    return Path(named) if is_below and isinstance(named, str) and not Path(named).name.startswith(".") else path


def _is_library_error(error: BaseException) -> bool:
    """Whether an error was raised by a table library; delta-rs's query engine raises bare ``Exception``."""
    return type(error) is Exception or any(
        kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(error).__mro__
    )


def _stored_error(place: Address, doing: str, error: BaseException) -> StorageError | None:
    """The error of an object store that denied a request of a library; None for another error."""
    from ddcore.io.storage import objects

    return objects.refused(place, doing, error) if objects.denial(error) else None


def _errno(error: BaseException) -> int:
    """The operating system's error number in a library's message, or 0."""
    number = _OS_ERROR.search(str(error))
    return int(number[1]) if number else 0


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_LONGEST_NAME = 255  # bytes
_NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: a pipe would wait for its other end
_ABSENT = (
    "check the path and whether its file system is mounted; a new warehouse begins with: ddcore ingest INPUT SOURCE"
)
_ABSENT_URL = "check the URL; a new warehouse begins with: ddcore ingest INPUT SOURCE --new-warehouse"
_UNNAMED = Holder("unknown", 0, "now", "another process")
_ATTEMPTS = 10


class Lock:
    """A held lock. ``dead`` is the process that held it before and ended without releasing it; None without one."""

    def __init__(self, descriptor: int, holder: Holder, dead: Holder | None = None) -> None:
        self._descriptor, self.holder, self.dead = descriptor, holder, dead
        self._write()

    def check(self) -> None:
        """Nothing: the operating system takes the lock from no living process. See
        :class:`~ddcore.io.storage.lease.Lease`.
        """

    def note_run(self, run: int) -> None:
        """Write the run's number into the lock file, for the messages of other commands."""
        self.holder = Holder(self.holder.host, self.holder.pid, self.holder.since, self.holder.command, run)
        self._write()

    def _write(self) -> None:
        text = json.dumps(asdict(self.holder)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)


class Warehouse:
    """A folder of Delta tables: ``inputs/NAME``, ``outputs/NAME``, ``state/FINGERPRINT`` and ``ledger``.

    The folder is one of the file system, also as a ``file://`` URL, or an ``s3://`` URL of an object store; other URLs
    are a UsageError. Creating the object touches nothing.
    """

    def __init__(self, root: str | os.PathLike[str] | Address) -> None:
        self.root: Place
        if isinstance(root, Address):
            self.root = root
            return
        text = os.fspath(root)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        self.root = address_of(text, "warehouse") if is_url(text) else Path(text).absolute()

    def __repr__(self) -> str:
        return f"Warehouse({str(self.root)!r})"

    @property
    def ledger(self) -> Place:
        """The ledger's table."""
        return self.root / "ledger"

    def input(self, name: str) -> Place:
        """The table of an input's change log."""
        return self.table(f"inputs/{name}")

    def output(self, name: str) -> Place:
        """The table of an output's change log."""
        return self.table(f"outputs/{name}")

    def state(self, fingerprint: str) -> Place:
        """The table of an arrangement."""
        return self.table(f"state/{fingerprint}")

    def published(self, name: str) -> Place:
        """The table with the present contents of an output, unless the project names another place for it."""
        return self.root / "tables" / self.output(name).name

    def table(self, relative: str) -> Place:
        """The folder of a table, by its name in the ledger: ``inputs/edges``. UsageError for a name that is not inside
        the warehouse or that no file system allows.
        """
        part, _, name = relative.partition("/")
        if part not in ("inputs", "outputs", "state") or not name or "/" in name or "\0" in name or name[0] in "._":
            raise UsageError(f"{relative!r} names no table of a warehouse", "use letters, digits and _ in names")
        if len(os.fsencode(name)) > _LONGEST_NAME:
            raise UsageError(
                f"the name {name[:40]!r}... of {part} has {len(name)} characters, too many for the name of a folder",
                f"use at most {_LONGEST_NAME}",
            )
        return self.root / relative

    def relative(self, folder: Place) -> str:
        """The name of a table's folder in the ledger: ``inputs/edges``."""
        return store.below(self.root, folder)

    def tables(self, parts: Sequence[str] = ("inputs", "outputs", "state")) -> Iterator[tuple[str, Place]]:
        """All tables on the disk, in the ledger or not: name as in :meth:`relative`, and folder."""
        for part in parts:
            for name in store.names(above := self.root / part):
                if name[0] not in "._" and store.is_folder((folder := above / name) / "_delta_log"):
                    yield f"{part}/{name}", folder

    def check(self) -> None:
        """Raise StorageError where there is no warehouse, naming the first missing folder of its path.

        A missing or empty folder is usually a misspelt path, or a file system that is not mounted. So commands that
        read or fold call this and create nothing; only ``ingest`` creates a warehouse, with :meth:`begin`. Tables
        without a ledger pass: loading the ledger reports that it was lost.
        """
        if not isinstance(self.root, Path):
            if not store.is_folder(self.ledger) and not any(self.tables()):
                raise StorageError(f"there is no warehouse in {self.root}: nothing is stored there", _ABSENT_URL)
            return
        with reporting(self.root, "read"):
            missing = [folder for folder in (*reversed(self.root.parents), self.root) if not folder.is_dir()]
        if missing and os.path.lexists(missing[0]):
            what = f"{missing[0]} is {'a link that leads nowhere' if missing[0].is_symlink() else 'not a folder'}"
        elif missing:
            what = f"the folder {missing[0]} is missing"
        elif not store.is_folder(self.ledger) and not any(self.tables()):
            what = "the folder has no ledger"
        else:
            return
        raise StorageError(f"there is no warehouse in {self.root}: {what}", _ABSENT)

    def begin(self, project: Path, *, new: bool = False) -> None:
        """Create the folder for a first ingest; does nothing if it has a ledger, or tables whose ledger was lost.

        Outside of the folder ``project`` a missing or empty folder may be a file system that is not mounted, and in an
        object store a misspelt URL. It is a StorageError there unless ``new``.
        """
        if store.is_folder(self.ledger) or any(self.tables()):
            return
        if not isinstance(self.root, Path):
            if not new:
                raise StorageError(
                    f"there is no warehouse in {self.root}: nothing is stored there",
                    "check the URL; to create a new warehouse there: ddcore ingest --new-warehouse",
                )
            self.create()
            return
        if not new and not self.root.resolve().is_relative_to(project.resolve()):
            state = "has no ledger" if self.root.is_dir() else "is missing"
            raise StorageError(
                f"there is no warehouse in {self.root}: the folder {state}",
                "check the path and whether its file system is mounted; to create a new warehouse there: "
                "ddcore ingest --new-warehouse",
            )
        self.create()

    def create(self) -> None:
        """Create the folder if it does not exist; of an object store, check that it can hold a warehouse."""
        if not isinstance(self.root, Path):
            self._check_store(self.root)
            failpoint("after-warehouse")
            return
        with reporting(self.root, "create the warehouse", "name another folder: --warehouse DIR, or dd.toml's"):
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in self.root.parents:
                with suppress(OSError):  # folders above the warehouse may be unreadable, or cannot be synced
                    sync(folder)
            failpoint("after-warehouse")

    def _check_store(self, root: Address) -> None:
        """Raise StorageError for a store that takes every put, also one that must fail because the object is there."""
        from ddcore.io.storage import objects

        probe = root / ".lock" / f"probe-{uuid.uuid4().hex}"
        try:
            if not objects.create(probe, b"") or objects.create(probe, b""):
                raise StorageError(
                    f"{root} cannot hold a warehouse: its store overwrites an object when it must not",
                    "use a store with conditional puts (If-None-Match), as Amazon S3 and most others have them",
                )
        finally:
            objects.delete([probe])

    @contextmanager
    def lock(self, command: str, run: int = 0) -> Iterator[Lock | Lease]:
        """Hold the lock for writing; the warehouse's folder must exist. LockHeld names the holder.

        In an object store it is a :class:`~ddcore.io.storage.lease.Lease`, which expires. What follows is about a
        folder.

        The lock is the operating system's (``flock``) and ends with the process that holds it, however that ends; a
        killed process leaves its name in the file, which is then the lock's ``dead``. The file itself is never
        removed: that would be a race. A lock file that is a link, not a plain file, or has other contents is a
        StorageError; it stays as it is.
        """
        if not isinstance(self.root, Path):
            from ddcore.io.storage import lease

            with lease.hold(self.root / ".lock", command, run) as held:
                yield held
            return
        with self._lock_file_errors("write"):
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
        try:
            self._check_lock_file(descriptor)
            self._wait_for_lock(descriptor)
            dead = self._dead_holder(descriptor)
            try:
                with reporting(self._lock_file, "write"):
                    lock = Lock(descriptor, this_process(command, run), dead)
                    failpoint("after-lock")
                yield lock
            finally:
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def holder(self) -> Holder | None:
        """The holder of the lock, or None. For readers: tries a shared lock, and releases it at once."""
        if not isinstance(self.root, Path):
            from ddcore.io.storage import lease

            return lease.holder(self.root / ".lock")
        try:
            with self._lock_file_errors("read"):
                descriptor = os.open(self._lock_file, os.O_RDONLY | _NO_LINK)
        except FileNotFoundError:
            return None
        try:
            self._check_lock_file(descriptor)
            with reporting(self._lock_file, "lock"):
                return None if _acquire(descriptor, fcntl.LOCK_SH) else _read_holder(descriptor)
        finally:
            os.close(descriptor)

    def dead_holder(self) -> Holder | None:
        """The process that was killed while it held the lock, by the name that it left; None where there is none or the
        lock is held. For readers.
        """
        if not isinstance(self.root, Path):
            from ddcore.io.storage import lease

            return lease.dead_holder(self.root / ".lock")
        if self.holder() is not None or not self._lock_file.exists():
            return None
        with self._lock_file_errors("read"):
            descriptor = os.open(self._lock_file, os.O_RDONLY | _NO_LINK)
        try:
            dead = _read_holder(descriptor)
        finally:
            os.close(descriptor)
        return None if dead is _UNNAMED else dead

    @property
    def _lock_file(self) -> Path:
        assert isinstance(self.root, Path), "an object store has a lease"
        return self.root / ".lock"

    @contextmanager
    def _lock_file_errors(self, doing: str) -> Iterator[None]:
        """Report errors (:func:`reporting`) of opening the lock file; a link in its place has its own message."""
        try:
            yield
        except FileNotFoundError:
            if doing == "read":
                raise
            raise StorageError(f"there is no folder {self.root} to lock", _ABSENT) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise self._foreign_file("is a link") from error
            if error.errno in (errno.EISDIR, errno.ENXIO):
                raise self._foreign_file("is a folder" if error.errno == errno.EISDIR else "is a socket") from error
            with reporting(self._lock_file, doing):
                raise

    def _check_lock_file(self, descriptor: int) -> None:
        """Raise StorageError unless it is a plain file."""
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise self._foreign_file("is a folder" if stat.S_ISDIR(mode) else "is not a plain file")

    def _dead_holder(self, descriptor: int) -> Holder | None:
        """The process whose name the file has although this one got the lock; None where it has none.

        Raises StorageError where the file has another program's text. A crash may leave zeros, or nothing.
        """
        if not os.pread(descriptor, 4096, 0).strip(b"\0"):
            return None
        dead = _read_holder(descriptor)
        if dead is _UNNAMED:
            raise self._foreign_file("has other contents than the name of its holder")
        return dead

    def _foreign_file(self, what: str) -> StorageError:
        return StorageError(
            f"the lock file {self._lock_file} {what}", "ddcore did not create it and has not changed it: move it away"
        )

    def _wait_for_lock(self, descriptor: int) -> None:
        with reporting(self._lock_file, "lock"):
            acquired = _acquire(descriptor, fcntl.LOCK_EX)
            for _ in range(_ATTEMPTS):
                if acquired or _read_holder(descriptor) is not _UNNAMED:
                    break
                time.sleep(0.02)  # a call of holder() writes no name and releases its lock at once
                acquired = _acquire(descriptor, fcntl.LOCK_EX)
        if not acquired:
            raise self._held(_read_holder(descriptor))

    def _held(self, holder: Holder) -> LockHeld:
        """The error of a lock that another process holds: the one that the file names, or one that it left behind."""
        message, again = f"warehouse {self.root} is in use by {holder}", "then run the same command again"
        if holder is not _UNNAMED and holder.host != socket.gethostname():
            return LockHeld(
                f"{message}; this host is {socket.gethostname()}",
                f"wait until it is done, {again}; whether it still works is seen on {holder.host} only",
            )
        living = _with_file_open(self._lock_file)
        if holder is _UNNAMED or holder.pid in living or is_alive(holder.pid):
            return LockHeld(message, f"wait until it is done, {again}")
        left = f"process {living[0]}" if living else "a process"
        return LockHeld(
            f"{message}; that process has ended, and {left}, which it started, still holds the lock",
            f"wait until that one has ended, or end it, {again}",
        )


def _acquire(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _with_file_open(path: Path) -> list[int]:
    """The other processes that have a file open, as far as the system tells us: none without ``/proc``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.path.samefile(link, path) for link in (folder / "fd").iterdir() if os.path.exists(link)):
                found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid()]


def _read_holder(descriptor: int) -> Holder:
    """The holder in the lock file; ``_UNNAMED`` where it has not written its name yet."""
    try:
        return Holder(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return _UNNAMED
