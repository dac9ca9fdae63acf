"""The lock of a warehouse in a folder: the operating system's, which ends with the process that holds it.

A killed process leaves its name in the file ``.lock``, which is then the lock's ``dead``. The file itself is never
removed: that would be a race. A lock file that is a link, not a plain file, or has other contents is a StorageError; it
stays as it is. :mod:`ddcore.io.storage.lease` has the same functions for an object store.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from ddcore.base.errors import LockHeld, StorageError
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.holder import Holder, is_alive, this_process
from ddcore.io.storage.reporting import reporting

_NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: a pipe would wait for its other end
_NO_FOLDER = (
    "check the path and whether its file system is mounted; a new warehouse begins with: ddcore ingest INPUT SOURCE"
)
_UNNAMED = Holder("unknown", 0, "now", "another process")
_ATTEMPTS = 10


class Lock:
    """A held lock. ``dead`` is the process that held it before and ended without releasing it; None without one."""

    def __init__(self, descriptor: int, holder: Holder, dead: Holder | None = None) -> None:
        self._descriptor, self.holder, self.dead = descriptor, holder, dead
        self._write()

    def note_run(self, run: int) -> None:
        """Write the run's number into the lock file, for the messages of other commands."""
        self.holder = replace(self.holder, run=run)
        self._write()

    def _write(self) -> None:
        text = json.dumps(asdict(self.holder)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)


@contextmanager
def hold(file: Path, command: str, run: int = 0) -> Iterator[Lock]:
    """Hold the lock whose file is ``file``; its folder must exist. LockHeld names the process that holds it."""
    with _opening(file, "write"):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
    try:
        _check(file, descriptor)
        _wait(file, descriptor)
        dead = _left_holder(file, descriptor)
        try:
            with reporting(file, "write"):
                lock = Lock(descriptor, this_process(command, run), dead)
                failpoint("after-lock")
            yield lock
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(file: Path) -> Holder | None:
    """The process that holds the lock, or None. For readers: tries a shared lock, and releases it at once."""
    try:
        with _opening(file, "read"):
            descriptor = os.open(file, os.O_RDONLY | _NO_LINK)
    except FileNotFoundError:
        return None
    try:
        _check(file, descriptor)
        with reporting(file, "lock"):
            return None if _acquire(descriptor, fcntl.LOCK_SH) else _read_holder(descriptor)
    finally:
        os.close(descriptor)


def dead_holder(file: Path) -> Holder | None:
    """The process that was killed while it held the lock, by the name that it left; None where there is none or the
    lock is held. For readers.
    """
    if holder(file) is not None or not file.exists():
        return None
    with _opening(file, "read"):
        descriptor = os.open(file, os.O_RDONLY | _NO_LINK)
    try:
        dead = _read_holder(descriptor)
    finally:
        os.close(descriptor)
    return None if dead is _UNNAMED else dead


@contextmanager
def _opening(file: Path, doing: str) -> Iterator[None]:
    """Report errors (:func:`reporting`) of opening the lock file; a link in its place has its own message."""
    try:
        yield
    except FileNotFoundError:
        if doing == "read":
            raise
        raise StorageError(f"there is no folder {file.parent} to lock", _NO_FOLDER) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise _foreign(file, "is a link") from error
        if error.errno in (errno.EISDIR, errno.ENXIO):
            raise _foreign(file, "is a folder" if error.errno == errno.EISDIR else "is a socket") from error
        with reporting(file, doing):
            raise


def _check(file: Path, descriptor: int) -> None:
    """Raise StorageError unless it is a plain file."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise _foreign(file, "is a folder" if stat.S_ISDIR(mode) else "is not a plain file")


def _left_holder(file: Path, descriptor: int) -> Holder | None:
    """The process whose name the file has although this one got the lock; None where it has none.

    Raises StorageError where the file has another program's text. A crash may leave zeros, or nothing.
    """
    if not os.pread(descriptor, 4096, 0).strip(b"\0"):
        return None
    dead = _read_holder(descriptor)
    if dead is _UNNAMED:
        raise _foreign(file, "has other contents than the name of its holder")
    return dead


def _foreign(file: Path, what: str) -> StorageError:
    return StorageError(f"the lock file {file} {what}", "ddcore did not create it and has not changed it: move it away")


def _wait(file: Path, descriptor: int) -> None:
    with reporting(file, "lock"):
        acquired = _acquire(descriptor, fcntl.LOCK_EX)
        for _ in range(_ATTEMPTS):
            if acquired or _read_holder(descriptor) is not _UNNAMED:
                break
            time.sleep(0.02)  # a call of holder() writes no name and releases its lock at once
            acquired = _acquire(descriptor, fcntl.LOCK_EX)
    if not acquired:
        raise _held(file, _read_holder(descriptor))


def _held(file: Path, by: Holder) -> LockHeld:
    """The error of a lock that another process holds: the one that the file names, or one that it left behind."""
    message, again = f"warehouse {file.parent} is in use by {by}", "then run the same command again"
    if by is not _UNNAMED and by.host != socket.gethostname():
        return LockHeld(
            f"{message}; this host is {socket.gethostname()}",
            f"wait until it is done, {again}; whether it still works is seen on {by.host} only",
        )
    living = _with_file_open(file)
    if by is _UNNAMED or by.pid in living or is_alive(by.pid):
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
