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
import stat
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


_LONGEST_NAME = 255  # bytes
_NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # nor wait for the other end of a pipe
_ABSENT = (
    "check the path and whether its file system is mounted; a new warehouse begins with: ddcore ingest INPUT SOURCE"
)
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
        """The folder of a table named as in the ledger: ``inputs/edges``. UsageError for what leads elsewhere, and for
        what no file system takes.
        """
        part, _, name = relative.partition("/")
        if part not in ("inputs", "outputs", "state") or not name or "/" in name or "\0" in name or name[0] in "._":
            raise UsageError(f"{relative!r} names no table of a warehouse", "use letters, digits and _ in names")
        if len(os.fsencode(name)) > _LONGEST_NAME:
            raise UsageError(
                f"the name {name[:40]!r}... of {part} has {len(name)} characters, too many for the name of a folder",
                f"use at most {_LONGEST_NAME}",
            )
        return self.root / part / name

    def relative(self, folder: Path) -> str:
        """The name the ledger gives to a table's folder: ``inputs/edges``."""
        return folder.relative_to(self.root).as_posix()

    def tables(self) -> Iterator[tuple[str, Path]]:
        """The tables that are on the disk, known to the ledger or not: name as in :meth:`relative`, and folder."""
        for part in ("inputs", "outputs", "state"):
            try:
                names = sorted(os.listdir(self.root / part))
            except OSError:
                continue
            for name in names:
                if name[0] not in "._" and (self.root / part / name / "_delta_log").is_dir():
                    yield f"{part}/{name}", self.root / part / name

    def check(self) -> None:
        """Raise StorageError where there is no warehouse, naming the first folder on the way that is missing.

        A missing or an empty folder is mostly a misspelt path, or a file system that is not mounted. So whatever only
        reads or folds calls this and creates nothing; only ``ingest`` begins a warehouse, by :meth:`begin`. Tables
        without a ledger pass: loading the ledger says that it was lost.
        """
        with reporting(self.root, "read"):
            missing = [folder for folder in (*reversed(self.root.parents), self.root) if not folder.is_dir()]
        if missing and os.path.lexists(missing[0]):
            what = f"{missing[0]} is {'a link that leads nowhere' if missing[0].is_symlink() else 'not a folder'}"
        elif missing:
            what = f"the folder {missing[0]} is missing"
        elif not self.ledger.is_dir() and not any(self.tables()):
            what = "the folder has no ledger"
        else:
            return
        raise StorageError(f"there is no warehouse in {self.root}: {what}", _ABSENT)

    def begin(self, project: Path, *, new: bool = False) -> None:
        """Make the folder for a first ingest; does nothing where there is a ledger, or tables that lost theirs.

        In the folder ``project`` without a question. Elsewhere only with ``new``: a folder that is missing or empty
        there may be a file system that is not mounted. StorageError else.
        """
        if self.ledger.is_dir() or any(self.tables()):
            return
        if not new and not self.root.resolve().is_relative_to(project.resolve()):
            state = "is there and has no ledger" if self.root.is_dir() else "is missing"
            raise StorageError(
                f"there is no warehouse in {self.root}: the folder {state}",
                "check the path and whether its file system is mounted; to begin a new warehouse there: "
                "ddcore ingest --new-warehouse",
            )
        self.create()

    def create(self) -> None:
        """Make the folder if there is none."""
        with reporting(self.root, "create the warehouse", "name another folder: --warehouse DIR, or dd.toml's"):
            self.root.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self, command: str, run: int = 0) -> Iterator[Lock]:
        """Hold the warehouse, whose folder exists, for writing. LockHeld names who has it.

        The lock is the operating system's (``flock``): it ends with the process that holds it, however that ends, so
        a text left behind by a killed process means nothing. The file itself stays: removing it would race. A lock
        file that is a link, no plain file, or holds something else is a StorageError, and is left as it is.
        """
        with self._lock_file_errors("write"):
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
        try:
            self._check_lock_file(descriptor)
            self._take(descriptor)
            self._check_lock_text(descriptor)
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

    @property
    def _lock_file(self) -> Path:
        return self.root / ".lock"

    @contextmanager
    def _lock_file_errors(self, doing: str) -> Iterator[None]:
        """As :func:`reporting`, for opening the lock file: a link in its place is told as one."""
        try:
            yield
        except FileNotFoundError:
            if doing == "read":
                raise
            raise StorageError(f"there is no folder {self.root} to lock", _ABSENT) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise self._foreign("is a link") from error
            with reporting(self._lock_file, doing):
                raise

    def _check_lock_file(self, descriptor: int) -> None:
        """Raise StorageError for what is no plain file."""
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise self._foreign("is no plain file")

    def _check_lock_text(self, descriptor: int) -> None:
        """Raise StorageError where somebody else's text is in the file. A crash may leave zeros, or nothing."""
        text = os.pread(descriptor, 4096, 0)
        if text.strip(b"\0") and _read_holder(descriptor) is _UNNAMED:
            raise self._foreign("holds something else than the name of its holder")

    def _foreign(self, what: str) -> StorageError:
        return StorageError(
            f"the lock file {self._lock_file} {what}", "it is not ddcore's and was left as it is: move it away"
        )

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
