"""Compiled inner loops over int64 columns.

Every kernel has one explicit signature, so it is compiled once at set-up, cached in a folder of the user's and
loaded in milliseconds by every later process. Kernels know nothing of types, schemas or programs: they see codes, words,
times and diffs (see :mod:`ddcore.encoding`), two-dimensional arrays having one column per line, ``(columns, rows)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """Where compiled kernels and other derived files of this user live: ``DDCORE_CACHE`` or ``~/.cache/ddcore``."""
    return Path(os.environ.get("DDCORE_CACHE") or Path.home() / ".cache" / "ddcore")


os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))

import numba  # noqa: E402  (the cache folder must be known before numba is imported)
from numba import types  # noqa: E402

INT = types.int64
# Inputs are read-only so that arrays borrowed from Arrow buffers are welcome.
IN1 = types.Array(types.int64, 1, "C", readonly=True)
IN2 = types.Array(types.int64, 2, "C", readonly=True)
OUT1 = types.int64[::1]
OUT2 = types.int64[:, ::1]


def kernel(returns: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for exactly these types, with the on-disk cache and without the GIL."""
    return numba.njit(returns(*arguments), cache=True, nogil=True, error_model="numpy")


# Small helpers that kernels inline; never called from Python.
inline = numba.njit(cache=True, nogil=True, error_model="numpy", inline="never")
