"""Compiled kernels on the disk: one file per kernel and processor.

A built package has them, for processors of a named level (:func:`ddcore.cache.shipped_folder`). Where they do not fit,
and in a checkout, they are compiled once on this machine and kept in :func:`ddcore.cache.kernel_folder`.

numba's own cache names its folder after the path of the source, so every installation compiles again, and keeps an
index per function that two processes may overwrite for each other. Here a file is complete or absent: it is renamed
into place, and its digest is checked before it is loaded.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from ddcore.cache import (
    OWN_FOLDER,
    compiling,
    distrust,
    kernel_folder,
    kernel_names,
    level_digest,
    make_private,
    note_use,
    processor_digest,
    shipped_folder,
)

__all__ = ["KernelCache", "current_kernels"]

_DIGEST = 32  # bytes at the head of a file
_log = logging.getLogger("ddcore")


def current_kernels() -> list[str]:
    """Names of the kernels that a process started now would load and not compile. Reads all files, some 2 MB."""
    return [name for name in kernel_names() if _stored(name)]


def _stored(name: str) -> bytes:
    """The content of a kernel's file: of the one that came with the package, else of the one compiled here; empty where
    there is none for this processor.
    """
    shipped = [shipped_folder() / f"{name}.{processor}" for processor in (_processor(), level_digest()) if processor]
    for file in shipped:
        if payload := _payload(file):
            return payload
    if distrust(kernel_folder()):
        return b""
    _note_use()
    return _payload(_file(name))


@functools.lru_cache(maxsize=1)
def _note_use() -> None:
    """Once per process: a folder that nobody uses is deleted."""
    note_use(kernel_folder())


def _file(name: str) -> Path:
    return kernel_folder() / f"{name}.{_processor()}"


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    """A digest of the processor that numba compiles for: its name and features."""
    return processor_digest(*cpu_target.target_context.codegen().magic_tuple())


def _payload(file: Path) -> bytes:
    """The content of a file without its digest; empty where it cannot be read or is damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return b""
    digest, payload = content[:_DIGEST], content[_DIGEST:]
    return payload if hashlib.blake2b(payload, digest_size=_DIGEST).digest() == digest else b""


class KernelCache(_Cache):
    """The cache, in numba's interface, of one kernel, which has one signature."""

    def __init__(self, function: Any) -> None:
        self._name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__qualname__}"
        self._file = _file(self._name)

    @property
    def cache_path(self) -> str:
        """The folder, in numba's interface."""
        return str(self._file.parent)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel; None where it has to be compiled, which is announced once per process."""
        target_context.refresh()
        payload = _stored(self._name)
        if not payload:
            _announce()
            return None
        return CompileResult._rebuild(target_context, *pickle.loads(payload))  # type: ignore[no-untyped-call]

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled kernel. If the folder cannot be used, warn once and continue."""
        payload: bytes = dumps(data._reduce())  # type: ignore[no-untyped-call]
        content = hashlib.blake2b(payload, digest_size=_DIGEST).digest() + payload
        try:
            make_private(self._file.parent)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, delete=False) as fresh:
                fresh.write(content)
            os.replace(fresh.name, self._file)
        except OSError as error:
            _warn(f"{error.filename}: {error.strerror}" if error.strerror else str(error))

    def enable(self) -> None:
        """Numba's switch: this cache is always on."""

    def disable(self) -> None:
        """Numba's switch: this cache is always on."""

    def flush(self) -> None:
        """Delete the stored kernel."""
        self._file.unlink(missing_ok=True)


@functools.lru_cache(maxsize=1)
def _announce() -> None:
    """Tell the user that kernels are being compiled, because this can take a minute."""
    _tell(logging.INFO, compiling(len(kernel_names()) - len(current_kernels())))


@functools.lru_cache(maxsize=1)
def _warn(reason: str) -> None:
    _tell(
        logging.WARNING,
        f"compiled kernels cannot be kept, so every process compiles them again: {reason}; {OWN_FOLDER}",
    )


def _tell(level: int, text: str) -> None:
    """A record of the logger ``ddcore``; a line on stderr where the application has set up no logging."""
    if _log.hasHandlers():
        _log.log(level, text)
    elif sys.stderr is not None:
        print(f"ddcore: {text}", file=sys.stderr, flush=True)
