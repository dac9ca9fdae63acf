"""Local files of sources: whether one can be read, before a reader waits for it or reads without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ddcore.errors import DataError, UsageError

__all__ = ["check_file"]

_KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


def check_file(path: Path, place: str) -> None:
    """Raise UsageError or DataError for what is there and is no file that can be read; ``place`` is its name.

    Passes for a file, for a folder, and where nothing is.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        _refuse(path, place, error)
        return
    if kind := _KINDS.get(stat.S_IFMT(mode)):
        raise UsageError(
            f"{place}: {kind}, which is not read: a source is a file or a folder, and may be read twice",
            f"write it to a file first: cat {place} > FILE.csv" if kind == "a pipe" else "name a file",
        )
    if stat.S_ISREG(mode):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        except OSError as error:
            _refuse(path, place, error)


def _refuse(path: Path, place: str, error: OSError) -> None:
    """Raise an error for a file that is there, or may be."""
    if error.errno == errno.ELOOP:
        raise DataError(f"{place}: a link that leads to itself", "remove the link, or name the file") from error
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if path.is_symlink():
            raise UsageError(
                f"{place}: a link to {os.readlink(path)}, which is not there", "restore the file, or name another one"
            ) from error
        return
    raise DataError(f"{place}: cannot be read: {error.strerror}", "make it readable for this user") from error
