"""Compiled inner loops over int64 columns.

Kernels know nothing of types, schemas or programs: they see codes, words, times and diffs (see
:mod:`ddcore.data.encoding`), two-dimensional arrays are ``(columns, rows)``, one column per line. Compilation and the
cache of compiled code: :mod:`ddcore.kernels.compiling`.

Modules are loaded when first used: importing this package, as building a plan does, does not load numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
