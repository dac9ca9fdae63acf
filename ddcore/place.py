"""Where the user's program is: the line that called into this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["caller"]


def caller() -> str:
    """``file.py:line`` of the user's call: the nearest frame outside this package."""
    inside = str(Path(__file__).parent) + os.sep
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
