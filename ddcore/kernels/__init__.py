"""Compiled inner loops over int64 columns.

Every kernel has one explicit signature, so it is compiled once at set-up, cached in a folder of the user's and
loaded in milliseconds by every later process. Kernels know nothing of types, schemas or programs: they see codes,
words, times and diffs (see :mod:`ddcore.encoding`), two-dimensional arrays having one column per line, ``(columns,
rows)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ddcore.cache import kernel_folder

os.environ.setdefault("NUMBA_CACHE_DIR", str(kernel_folder()))

import numba
from numba import types

INT = types.int64
# Inputs are read-only so that arrays borrowed from Arrow buffers are welcome.
IN1 = types.Array(types.int64, 1, "C", readonly=True)
IN2 = types.Array(types.int64, 2, "C", readonly=True)
OUT1 = types.int64[::1]
OUT2 = types.int64[:, ::1]


def kernel(returns: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for exactly these types, with the on-disk cache and without the GIL."""
    compiled: Callable[[Callable[..., Any]], Any] = numba.njit(
        returns(*arguments), cache=True, nogil=True, error_model="numpy"
    )
    return compiled


def several(*kinds: Any) -> Any:
    """The type of a kernel that returns more than one thing."""
    return types.Tuple(kinds)  # type: ignore[no-untyped-call]


# Small helpers that kernels inline; never called from Python.
inline = numba.njit(cache=True, nogil=True, error_model="numpy", inline="never")
