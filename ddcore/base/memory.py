"""Memory of large folds, whose freed blocks are used again; and of foreign files, which get a limited amount.

A fold allocates and frees columns of the same sizes over and over. By default glibc maps each large one anew, and the
kernel clears its pages again.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8  # parameters of mallopt(3)
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65536, _ARENA_MAX: 0}
_RETURNED = 1024 * 1024  # bytes of a block that goes back as soon as it is freed
_held: list[Any] = []  # one for each context in which freed memory stays


@contextmanager
def reused_memory() -> Iterator[None]:
    """Inside, freed memory stays with this process; after the outermost it goes back. Does nothing without glibc."""
    libc = _glibc()
    if libc is None:
        yield
        return
    _held.append(libc)
    libc.mallopt(_ARENA_MAX, 1)  # what one thread frees, another may use
    libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(_MMAP_MAX, 0)
    try:
        yield
    finally:
        _held.pop()
        if not _held:
            for parameter, value in _DEFAULTS.items():
                libc.mallopt(parameter, value)
            libc.malloc_trim(0)


@contextmanager
def returned_memory() -> Iterator[None]:
    """Inside, large blocks go back to the system as soon as they are freed. Does nothing without glibc, which otherwise
    keeps more and more of them.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_MMAP_THRESHOLD, _RETURNED)
        libc.mallopt(_ARENA_MAX, 2)
        libc.malloc_trim(0)
    try:
        yield
    finally:
        if libc is not None:
            libc.mallopt(_ARENA_MAX, _DEFAULTS[_ARENA_MAX])


@contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """Inside, this process can allocate ``size`` bytes more than it has now, then allocations fail. Linux only.

    For libraries that report a failed allocation as an error, which Arrow does and Rust does not. Other threads are
    under the same limit. Two system calls and a short read.
    """
    held = _data_bytes()
    if held is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min((limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY), default=held + size)
    resource.setrlimit(resource.RLIMIT_DATA, (min(most, held + size), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int | None:
    """The private memory of this process as RLIMIT_DATA counts it; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


@cache
def _glibc() -> Any:
    """The C library if it has mallopt and malloc_trim, else None."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
