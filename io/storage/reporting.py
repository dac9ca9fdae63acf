"""The errors of storage: what the operating system and the libraries of tables raise, as one line each."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddcore.base.errors import DdError, StorageError
from ddcore.io.storage import objects, store
from ddcore.io.storage.address import Address, Location

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
def reporting(path: Location, doing: str, hint: str = "") -> Iterator[None]:
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
        if isinstance(path, Address) and objects.denial(error):
            raise objects.refused(path, doing, error) from error
        number = getattr(error, "errno", None) or _errno(error)
        hints = {**_HINTS, **store.UNREADABLE} if doing.startswith("read") else {**store.UNREADABLE, **_HINTS}
        known = os.strerror(number) if number in hints else ""
        reason = known or getattr(error, "strerror", None) or _first_line(error)
        raise StorageError(f"cannot {doing} {_culprit(error, path)}: {reason}", hints.get(number, hint)) from error


def _culprit(error: BaseException, path: Location) -> Location:
    """The file or folder that may not be used, where the error names one below ``path``; else ``path``."""
    named = getattr(error, "filename", None)
    is_below = isinstance(path, Path) and isinstance(named, str) and Path(named).is_relative_to(path)
    return Path(named) if is_below and isinstance(named, str) and not Path(named).name.startswith(".") else path


def _is_library_error(error: BaseException) -> bool:
    """Whether an error was raised by a table library; delta-rs's query engine raises bare ``Exception``."""
    return type(error) is Exception or any(
        kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(error).__mro__
    )


def _errno(error: BaseException) -> int:
    """The operating system's error number in a library's message, or 0."""
    number = _OS_ERROR.search(str(error))
    return int(number[1]) if number else 0


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
