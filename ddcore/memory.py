"""Memory of large folds: freed blocks are used again instead of returned to the operating system.

A fold allocates and frees columns of the same sizes over and over. By default glibc maps each large one anew, and the
kernel clears its pages again.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt(3)
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65536}


@contextmanager
def reused_memory() -> Iterator[None]:
    """Inside, freed memory stays with this process; afterwards it goes back. Does nothing without glibc."""
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(_MMAP_MAX, 0)
    try:
        yield
    finally:
        for parameter, value in _DEFAULTS.items():
            libc.mallopt(parameter, value)
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    """The C library if it has mallopt and malloc_trim, else None."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
