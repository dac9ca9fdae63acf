"""How kernels are compiled.

Every kernel has one explicit signature, so it is compiled once at set-up, kept in the user's cache folder and loaded
in milliseconds by every later process: see :mod:`ddcore.kernel_cache`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core import typeinfer

from ddcore.kernel_cache import KernelCache

INT = types.int64
# Inputs are read-only so that read-only Arrow buffers can be passed.
IN1 = types.Array(types.int64, 1, "C", readonly=True)
IN2 = types.Array(types.int64, 2, "C", readonly=True)
OUT1 = types.int64[::1]
OUT2 = types.int64[:, ::1]


def kernel(returns: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for exactly these types, or load it from the cache; it runs without the GIL."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher: Any = inline(function)
        if dispatcher is function:  # NUMBA_DISABLE_JIT
            return function
        dispatcher._cache = KernelCache(function)
        with typeinfer.register_dispatcher(dispatcher):
            dispatcher.compile(returns(*arguments))
        dispatcher.disable_compile()
        return dispatcher

    return decorate


def several(*kinds: Any) -> Any:
    """The type of a kernel that returns several values."""
    return types.Tuple(kinds)  # type: ignore[no-untyped-call]


# Small helpers of kernels, compiled into each of them; never called from Python.
inline = numba.njit(nogil=True, error_model="numpy", inline="never")
