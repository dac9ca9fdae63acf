"""Words that error messages share: what was probably meant, a list, a place, another error in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["listed", "meant", "one_line", "shown"]


def meant(name: object, names: Iterable[str]) -> str:
    """``did you mean 'x'?``, or the empty text where nothing is close."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def listed(names: Iterable[str]) -> str:
    """``a, b``, or ``none``."""
    return ", ".join(names) or "none"


def one_line(error: BaseException) -> str:
    """What another library's error says, on one line; its type where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def shown(file: Path) -> str:
    """``file`` as a person in the working folder would write it."""
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)
