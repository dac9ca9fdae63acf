"""Local files that others wrote: whether one can be read, before a reader waits for it or reads without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ddcore.base.errors import DataError, UsageError

_KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


def kind_of(path: Path) -> str:
    """What is there in place of a file, as ``a pipe``; the empty text for a file, and where nothing is."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return _link(path, error)
    return "a folder" if stat.S_ISDIR(mode) else _KINDS.get(stat.S_IFMT(mode), "")


def _link(path: Path, error: OSError) -> str:
    """The words for a link that leads to no file; the empty text where an error has another reason."""
    if error.errno == errno.ELOOP:
        return "a link that leads to itself"
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and path.is_symlink():
        return f"a link to {os.readlink(path)}, which is not there"
    return ""


def check_file(path: Path, name: str) -> None:
    """Raise UsageError or DataError for what is there and is no file that can be read; ``name`` is its name.

    Passes for a file, for a folder, and where nothing is.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        _refuse(path, name, error)
        return
    if kind := _KINDS.get(stat.S_IFMT(mode)):
        raise UsageError(
            f"{name}: {kind}, which is not read: a source is a file or a folder, and may be read twice",
            f"write it to a file first: cat {name} > FILE.csv" if kind == "a pipe" else "name a file",
        )
    if stat.S_ISREG(mode):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        except OSError as error:
            _refuse(path, name, error)


def check_folder(folder: Path, shown_as: str) -> None:
    """Check (:func:`check_file`) a folder, all folders in it and each of their files."""

    def refuse(error: OSError) -> None:
        path = Path(error.filename)
        _refuse(path, str(Path(shown_as, path.relative_to(folder))), error)

    for root, _, names in os.walk(folder, onerror=refuse):
        for name in sorted(names):
            path = Path(root, name)
            check_file(path, str(Path(shown_as, path.relative_to(folder))))


def _refuse(path: Path, name: str, error: OSError) -> None:
    """Raise an error for a file that is there, or may be."""
    link = _link(path, error)
    if error.errno == errno.ELOOP:
        raise DataError(f"{name}: {link}", "remove the link, or name the file") from error
    if link:
        raise UsageError(f"{name}: {link}", "restore the file, or name another one") from error
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return
    raise DataError(f"{name}: cannot be read: {error.strerror}", "make it readable for this user") from error
