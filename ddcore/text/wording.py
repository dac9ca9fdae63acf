"""Parts that error messages share: a probable name, a list, a file's place, another error in one line, advice; and
names that are free.
"""

from __future__ import annotations

import difflib
import errno
import traceback
from collections.abc import Container, Iterable, Iterator
from itertools import count
from pathlib import Path, PurePath


def meant(name: object, names: Iterable[str]) -> str:
    """``did you mean 'x'?``, or the empty text where nothing is close."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def fresh(stem: str, taken: Container[str]) -> Iterator[str]:
    """Names that are not taken: the stem with a number behind it, from 0 on."""
    return (name for number in count() if (name := f"{stem}{number}") not in taken)


def listed(names: Iterable[str]) -> str:
    """``a, b``, or ``none``."""
    return ", ".join(names) or "none"


def counted(many: int, noun: str) -> str:
    """``1 change``, ``1,200 changes``."""
    return f"{many:,} {noun}{'s' * (many != 1)}"


def brief(value: object) -> str:
    """A value as Python writes it, on one line of at most 60 characters; its type if that fails."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # the value is of the user's own class
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def kind_of(value: object) -> str:
    """What kind of value was given, in words: ``None``, ``the type DataFrame``, ``str 'data.parquet'``, ``DataFrame``.

    Frames and other values of libraries are named by their type: they would fill the screen.
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the type {value.__name__}"
    kind = type(value).__name__
    return f"{kind} {str(value)!r:.60}" if isinstance(value, str | PurePath) else kind


def one_line(error: BaseException) -> str:
    """The text of any error, on one line; its type if the text is empty or cannot be computed."""
    return _text_of(error) or type(error).__name__


def described(error: BaseException) -> str:
    """The type and text of any error, on one line: ``ValueError: no such day``."""
    text = _text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line_of(error: BaseException) -> str:
    """``file.py:line`` of an error in a function that the caller called: the last line in that function's file."""
    frames = traceback.extract_tb(error.__traceback__)
    called = frames[1] if len(frames) > 1 else frames[0]
    last = [frame for frame in frames if frame.filename == called.filename][-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _text_of(error: BaseException) -> str:
    try:
        return " ".join(str(error).split())
    except Exception:  # the error is of the user's own class
        return ""


def advice(error: OSError) -> str:
    """What to do about an error of the operating system; empty if there is none."""
    if error.errno == errno.ENOENT and not error.filename:
        return "the working folder is gone: change to one that exists"
    return _ADVICE.get(error.errno or 0, "")


_LONGEST = 200  # characters of a value of the data
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


def shown_value(value: object) -> str:
    """A value for a message, in one line of bounded length: text and bytes quoted, ``null`` for None."""
    text = "null" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
