"""Compiled kernels on the disk: one file per kernel and processor, in the folder of :func:`ddcore.cache.kernel_folder`.

numba's own cache names its folder after the path of the source, so that every installation compiles again, and keeps an
index per function that two processes may overwrite for each other. Here a file is complete or absent: it is put in
place whole, and its digest is checked before it is loaded.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import pickle
import sys
import tempfile
from typing import Any

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from ddcore.cache import kernel_folder, make_private, missing_kernels

__all__ = ["KernelCache", "machine"]

_DIGEST = 32  # bytes at the head of a file
_log = logging.getLogger("ddcore")


@functools.lru_cache(maxsize=1)
def machine() -> str:
    """A digest of the processor that numba compiles for: its name and features."""
    kind = cpu_target.target_context.codegen().magic_tuple()
    return hashlib.blake2b(repr(kind).encode(), digest_size=8).hexdigest()


class KernelCache(_Cache):  # type: ignore[misc]
    """What numba asks for the compiled form of one kernel, which has one signature."""

    def __init__(self, function: Any) -> None:
        module = function.__module__.rsplit(".", 1)[-1]
        self._file = kernel_folder() / f"{module}.{function.__qualname__}.{machine()}"

    @property
    def cache_path(self) -> str:
        """The folder, as numba has it."""
        return str(self._file.parent)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel; None where it has to be compiled, which is announced once per process."""
        target_context.refresh()
        try:
            make_private(self._file.parent)
            content = self._file.read_bytes()
        except OSError:
            content = b""
        payload = content[_DIGEST:]
        if not payload or hashlib.blake2b(payload, digest_size=_DIGEST).digest() != content[:_DIGEST]:
            _announce()
            return None
        return CompileResult._rebuild(target_context, *pickle.loads(payload))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled. Where the folder cannot be used, say so once and go on without."""
        payload = dumps(data._reduce())
        content = hashlib.blake2b(payload, digest_size=_DIGEST).digest() + payload
        try:
            make_private(self._file.parent)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, delete=False) as fresh:
                fresh.write(content)
            os.replace(fresh.name, self._file)
        except OSError as error:
            _warn(str(error))

    def enable(self) -> None:
        """Numba's switch: this cache is always on."""

    def disable(self) -> None:
        """Numba's switch: this cache is always on."""

    def flush(self) -> None:
        """Forget the kernel."""
        self._file.unlink(missing_ok=True)


@functools.lru_cache(maxsize=1)
def _announce() -> None:
    """Say that kernels are being compiled: the caller would else wait for a minute without knowing why."""
    count = len(missing_kernels(machine())) or 1
    _tell(logging.INFO, f"compiling {count} kernel{'s' * (count != 1)}, once on this machine: about a minute")


@functools.lru_cache(maxsize=1)
def _warn(reason: str) -> None:
    _tell(
        logging.WARNING,
        f"compiled kernels cannot be kept, so every process compiles them again: {reason}; "
        "set DDCORE_CACHE to a folder of yours",
    )


def _tell(level: int, text: str) -> None:
    """A record of the logger ``ddcore``; a line on stderr where the application has set up no logging."""
    if _log.hasHandlers():
        _log.log(level, text)
    elif sys.stderr is not None:
        print(f"ddcore: {text}", file=sys.stderr, flush=True)
