"""Parts that error messages share: a probable name, a list, a file's place, another error in one line, advice."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from pathlib import Path

__all__ = ["advice", "listed", "meant", "one_line", "shown"]


def meant(name: object, names: Iterable[str]) -> str:
    """``did you mean 'x'?``, or the empty text where nothing is close."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def listed(names: Iterable[str]) -> str:
    """``a, b``, or ``none``."""
    return ", ".join(names) or "none"


def one_line(error: BaseException) -> str:
    """Another library's message on one line; the error's type where the message is empty or cannot be had."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return " ".join(text.split()) or type(error).__name__


def advice(error: OSError) -> str:
    """What to do about an error of the operating system; empty where nothing is known."""
    if error.errno == errno.ENOENT and not error.filename:
        return "the working folder is gone: change to one that exists"
    return _ADVICE.get(error.errno or 0, "")


_ADVICE = {
    errno.EACCES: "give this user access to it and run the same command again",
    errno.EPERM: "give this user access to it and run the same command again",
    errno.EROFS: "name a folder on a file system that is not read-only",
    errno.ENOSPC: "free some space and run the same command again",
    errno.EMFILE: "raise the limit of open files (ulimit -n) and run the same command again",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
}


def shown(file: Path) -> str:
    """``file`` relative to the working folder where it lies below it."""
    here = Path.cwd()
    return str(file.relative_to(here)) if here != Path(here.anchor) and file.is_relative_to(here) else str(file)
