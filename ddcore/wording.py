"""Words that error messages share: what was probably meant, a list, a place, another error in one line."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path

__all__ = ["described", "line_of", "listed", "meant", "one_line", "shown"]


def meant(name: object, names: Iterable[str]) -> str:
    """``did you mean 'x'?``, or the empty text where nothing is close."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def listed(names: Iterable[str]) -> str:
    """``a, b``, or ``none``."""
    return ", ".join(names) or "none"


def one_line(error: BaseException) -> str:
    """What another's error says, on one line; its type where it says nothing, or fails when it is asked."""
    return _text_of(error) or type(error).__name__


def described(error: BaseException) -> str:
    """The type of another's error and what it says, on one line: ``ValueError: no such day``."""
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


def shown(file: Path) -> str:
    """``file`` as a person in the working folder would write it."""
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)
