"""How kernels are compiled, and where the compiled code is kept.

Every kernel has one explicit signature, so it is compiled once at set-up, cached in a folder of the user's and
loaded in milliseconds by every later process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.caching import CacheImpl, UserProvidedCacheLocator

from ddcore.cache import kernel_folder

_SOURCES = Path(__file__).parent
_CACHE = kernel_folder()


class _KernelLocator(UserProvidedCacheLocator):
    """Where numba keeps these kernels: a folder named after their sources, wherever those are installed.

    numba's own locators name the folder after the path, so that every checkout and every executor compiled again.
    """

    def get_cache_path(self) -> str:
        return str(_CACHE)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _KernelLocator | None:
        """The locator of a kernel; None for other functions and where the folder cannot be written."""
        if Path(py_file).parent != _SOURCES:
            return None
        locator = cls(py_func, py_file)
        try:
            locator.ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:
            return None
        return locator


CacheImpl._locator_classes.insert(0, _KernelLocator)

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
