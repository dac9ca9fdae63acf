"""The warehouse: where its tables lie, who may write to it now, and how its failures are told.

Paths are put together here and nowhere else. One process writes at a time: a local file system gives Delta no
protection between processes, and a blind append over a newer version commits without complaint.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from ddcore.errors import DdError, LockHeld, StorageError, UsageError

__all__ = ["REFRESH", "Holder", "Lock", "Warehouse", "reporting"]

REFRESH = "rebuild state and outputs from the inputs: ddcore run --full-refresh"

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_LIBRARIES = {"deltalake", "_internal", "pyarrow", "polars", "arro3"}
_HINTS = {
    errno.ENOSPC: "free some space and run the same command again: nothing of this attempt is visible",
    errno.EDQUOT: "free some space and run the same command again: nothing of this attempt is visible",
    errno.EFBIG: "raise the limit on file sizes and run the same command again: nothing of this attempt is visible",
    errno.EACCES: "make it writable for this user and run the same command again",
    errno.EPERM: "make it writable for this user and run the same command again",
    errno.EROFS: "the file system is read-only: use another warehouse folder",
}


@contextmanager
def reporting(path: Path, doing: str, hint: str = "") -> Iterator[None]:
    """Turn failures of the file system and of the table libraries into a StorageError: ``cannot DOING PATH: reason``.

    Errors of ours pass; errors that tell of a mistake in our own code pass too.
    """
    try:
        yield
    except DdError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and not _of_a_library(error):
            raise
        number = getattr(error, "errno", None) or _errno(error)
        known = os.strerror(number) if number in _HINTS else ""
        reason = known or getattr(error, "strerror", None) or _first_line(error)
        raise StorageError(f"cannot {doing} {path}: {reason}", _HINTS.get(number, hint)) from error


def _of_a_library(error: Exception) -> bool:
    """Whether an error was raised by a table library; delta-rs's query engine raises bare ``Exception``."""
    return type(error) is Exception or any(
        kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(error).__mro__
    )


def _errno(error: Exception) -> int:
    """The operating system's number for what a library reports in words of its own, or 0."""
    number = _OS_ERROR.search(str(error))
    return int(number[1]) if number else 0


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, as written into the lock file. ``run`` is 0 until the holder has numbered its run."""

    host: str
    pid: int
    since: str
    command: str
    run: int = 0

    def __str__(self) -> str:
        run = f", run {self.run}" if self.run else ""
        return f"{self.command} (host {self.host}, pid {self.pid}, since {self.since}{run})"


_UNNAMED = Holder("unknown", 0, "now", "another process")
_PATIENCE = 10


class Lock:
    """The lock, while it is held."""

    def __init__(self, descriptor: int, holder: Holder) -> None:
        self._descriptor, self.holder = descriptor, holder
        self._write()

    def note_run(self, run: int) -> None:
        """Let whoever finds the lock taken see which run it is."""
        self.holder = Holder(self.holder.host, self.holder.pid, self.holder.since, self.holder.command, run)
        self._write()

    def _write(self) -> None:
        text = json.dumps(asdict(self.holder)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)


class Warehouse:
    """A folder of Delta tables: ``inputs/NAME``, ``outputs/NAME``, ``state/FINGERPRINT`` and ``ledger``.

    Making the object touches nothing. Object-store URLs are refused with a UsageError; a ``file://`` URL is a folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        text = os.fspath(root)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        elif url := _URL.match(text):
            raise UsageError(
                f"warehouse {text}: {url[1]}:// is not supported yet, only a folder is",
                'name a folder, for example: warehouse = "warehouse"',
            )
        self.root = Path(text).absolute()

    def __repr__(self) -> str:
        return f"Warehouse({str(self.root)!r})"

    @property
    def ledger(self) -> Path:
        """The ledger's table."""
        return self.root / "ledger"

    def input(self, name: str) -> Path:
        """The table of an input's change log."""
        return self.table(f"inputs/{name}")

    def output(self, name: str) -> Path:
        """The table of an output's change log."""
        return self.table(f"outputs/{name}")

    def state(self, fingerprint: str) -> Path:
        """The table of an arrangement."""
        return self.table(f"state/{fingerprint}")

    @property
    def staging(self) -> Path:
        """Where several workers on Spark leave what they gained for each other, until the run ends."""
        return self.root / "state" / "_staging"

    def table(self, relative: str) -> Path:
        """The folder of a table named as in the ledger: ``inputs/edges``. UsageError for what leads elsewhere."""
        room, _, name = relative.partition("/")
        if room not in ("inputs", "outputs", "state") or not name or "/" in name or name[0] in "._":
            raise UsageError(f"{relative!r} names no table of a warehouse", "use letters, digits and _ in names")
        return self.root / room / name

    def relative(self, folder: Path) -> str:
        """The name the ledger gives to a table's folder: ``inputs/edges``."""
        return folder.relative_to(self.root).as_posix()

    def tables(self) -> Iterator[tuple[str, Path]]:
        """The tables that are on the disk, known to the ledger or not: name as in :meth:`relative`, and folder."""
        for room in ("inputs", "outputs", "state"):
            try:
                names = sorted(os.listdir(self.root / room))
            except OSError:
                continue
            for name in names:
                if name[0] not in "._" and (self.root / room / name / "_delta_log").is_dir():
                    yield f"{room}/{name}", self.root / room / name

    def exists(self) -> bool:
        """Whether there is a warehouse at all."""
        return self.root.is_dir()

    def create(self) -> None:
        """Make the folder if there is none."""
        with reporting(self.root, "create the warehouse", "name another folder: --warehouse DIR, or dd.toml's"):
            self.root.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self, command: str, run: int = 0) -> Iterator[Lock]:
        """Hold the warehouse for writing; creates it if need be. LockHeld names who has it.

        The lock is the operating system's (``flock``): it ends with the process that holds it, however that ends, so
        a text left behind by a killed process means nothing. The file itself stays: removing it would race.
        """
        self.create()
        with reporting(self._lock_file, "write"):
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._take(descriptor)
            with reporting(self._lock_file, "write"):
                lock = Lock(descriptor, _me(command, run))
            try:
                yield lock
            finally:
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def holder(self) -> Holder | None:
        """Who holds the lock now, or None. A reader's question: takes no lock that anyone would notice for long."""
        try:
            descriptor = os.open(self._lock_file, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {self._lock_file}: {error.strerror}") from error
        try:
            with reporting(self._lock_file, "lock"):
                return None if _acquire(descriptor, fcntl.LOCK_SH) else _read_holder(descriptor)
        finally:
            os.close(descriptor)

    @property
    def _lock_file(self) -> Path:
        return self.root / ".lock"

    def _take(self, descriptor: int) -> None:
        with reporting(self._lock_file, "lock"):
            taken = _acquire(descriptor, fcntl.LOCK_EX)
            for _ in range(_PATIENCE):
                if taken or _read_holder(descriptor) is not _UNNAMED:
                    break
                time.sleep(0.02)  # whoever only looks (holder()) is gone in no time, and writes no name
                taken = _acquire(descriptor, fcntl.LOCK_EX)
        if not taken:
            raise LockHeld(
                f"warehouse {self.root} is in use by {_read_holder(descriptor)}",
                "wait until it is done, then run the same command again",
            )


def _me(command: str, run: int) -> Holder:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(socket.gethostname(), os.getpid(), since, command, run)


def _acquire(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(descriptor: int) -> Holder:
    """The holder's own words; ``_UNNAMED`` where it has not written them yet."""
    try:
        return Holder(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return _UNNAMED
