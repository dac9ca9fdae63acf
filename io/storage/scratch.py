"""Temporary files: copies of objects to read, files on their way into an object store, what Spark's workers spill.

Each process has a folder of its own in the temporary directory, and holds the operating system's lock (``flock``) on a
file in it as long as it lives. It removes the folder when it ends. A killed process leaves it, and the next command
that writes, or needs such a folder, removes all that nobody holds: process numbers, which containers give out by
themselves, do not matter.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    from ddcore.traces.budget import Budget

_PREFIX, _LOCK = "dd-scratch-", ".lock"
_SHORT = "/tmp"  # where the system's own temporary directory has a long path
_BEGINNING = 3600.0  # seconds after which a folder without a lock file is no new one
_ATTEMPTS = 10


def folder(*, short: bool = False) -> Path:
    """This process's folder, created when it is first needed; ``short``: one whose path is short. OSError."""
    return _folder(os.getpid(), _SHORT if short else tempfile.gettempdir())


def budget(memory: int | None, threads: int = 1, tuning: Tuning = DEFAULT) -> Budget:
    """The budget of a fold that spills to this process's folder, so that the process stays below so many bytes; None:
    no limit.
    """
    from ddcore.traces.budget import Budget
    from ddcore.traces.spilling import UNLIMITED, Spilling

    return Budget(UNLIMITED if memory is None else Spilling(memory, folder(), tuning), threads, tuning)


def remove_left() -> None:
    """Remove the folders of processes that have ended, as far as this user may. Lists the temporary directory."""
    for parent in {tempfile.gettempdir(), _SHORT}:
        with suppress(OSError), os.scandir(parent) as found:
            for entry in found:
                if entry.name.startswith(_PREFIX):
                    _remove_if_left(entry)


@cache
def _folder(process: int, parent: str) -> Path:
    remove_left()
    for _ in range(_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{process}-", dir=parent))
        if _is_held(path):
            atexit.register(_remove, path, process)
            return path
    raise OSError(f"cannot keep a folder in {parent}: other processes remove it")


def _is_held(path: Path) -> bool:
    """Take the lock of a new folder; False where another process has removed the folder as one without a holder.

    The lock's file stays open until the process ends.
    """
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path / _LOCK)):
            return True
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return False


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # a process that was forked ends its parent's exit functions, too
        shutil.rmtree(path, ignore_errors=True)


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    with suppress(OSError):
        status = entry.stat(follow_symlinks=False)
        if status.st_uid != os.getuid() or not entry.is_dir(follow_symlinks=False):
            return
        try:
            descriptor = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if time.time() - status.st_mtime > _BEGINNING:
                shutil.rmtree(entry.path, ignore_errors=True)
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
        finally:
            os.close(descriptor)
