"""Where the user's program is: the line that called into this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

__all__ = ["caller", "planning"]

_PLANNED: ContextVar[str] = ContextVar("planned", default="")


def caller() -> str:
    """``file.py:line`` of the user's call: the nearest frame outside this package; in SQL, what is planned."""
    planned = _PLANNED.get()
    if planned:
        return planned
    inside = str(Path(__file__).parent) + os.sep
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


@contextmanager
def planning(place: str) -> Iterator[None]:
    """Operators that are created meanwhile stand at ``place``: a program of SQL has no line of Python."""
    token = _PLANNED.set(place)
    try:
        yield
    finally:
        _PLANNED.reset(token)
