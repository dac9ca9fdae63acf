"""Where the user's program is: the line that called into this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_PLANNED: ContextVar[str] = ContextVar("planned", default="")


def caller() -> str:
    """``file.py:line`` of the user's call: the nearest frame outside this package; in SQL, what is planned."""
    planned = _PLANNED.get()
    if planned:
        return planned
    inside = str(Path(__file__).parent.parent) + os.sep
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return f"{_file(frame.f_code.co_filename)}:{frame.f_lineno}"


def _file(name: str) -> str:
    """The file's name; of a cell in a notebook ``In[3]``, where IPython knows the cell."""
    shell = sys.modules["IPython"].get_ipython() if "ipykernel" in name and "IPython" in sys.modules else None
    cell = shell.compile.format_code_name(name) if shell is not None else None
    return Path(name).name if cell is None else str(cell[1])


@contextmanager
def planning(source_line: str) -> Iterator[None]:
    """Operators that are created meanwhile stand at ``source_line``: a program of SQL has no line of Python."""
    token = _PLANNED.set(source_line)
    try:
        yield
    finally:
        _PLANNED.reset(token)
