"""Compiled kernels on the disk: one file per kernel and processor.

A built package has them, for processors of a named level (:func:`ddcore.base.cache.shipped_folder`). Where they do not
fit, and in a checkout, they are compiled once on this machine and kept in :func:`ddcore.base.cache.kernel_folder`.

A file is complete or absent: it is renamed into place, and its digest is checked before it is loaded. numba's own cache
names its folder after the path of the source, so every installation compiles again, and only numba can read it.
"""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from ddcore.base.cache import (
    OWN_FOLDER,
    cache_folder,
    compiling,
    distrust,
    kernel_folder,
    kernel_names,
    level_digest,
    make_private,
    note_use,
    processor_digest,
    read_sealed,
    shipped_folder,
    write_sealed,
)
from ddcore.compiling import compilation
from ddcore.compiling.native import Code

_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")  # that choose a processor
_WITHOUT_AVX = {"corei7-avx", "core-avx-i", "sandybridge", "ivybridge", "nocona"}  # as numba compiles for them
_log = logging.getLogger("ddcore")


def current_kernels() -> list[str]:
    """Names of the kernels that a process started now would load and not compile. Reads all files, some 0.7 MB."""
    return [name for name in kernel_names() if load(name)]


def load(name: str) -> Code | None:
    """A compiled kernel: the one that came with the package, else the one compiled here; None where there is none for
    this processor.
    """
    shipped = [shipped_folder() / f"{name}.{processor}" for processor in (processor(), level_digest()) if processor]
    for file in shipped:
        if code := _code(file):
            return code
    if distrust(kernel_folder()):
        return None
    _note_use()
    return _code(kernel_folder() / f"{name}.{processor()}")


@functools.lru_cache(maxsize=1)
def _note_use() -> None:
    """Once per process: a folder that nobody uses is deleted."""
    note_use(kernel_folder())


def store(name: str, code: Code) -> None:
    """Keep the kernel that was compiled. If the folder cannot be used, warn once and continue."""
    compilation.end()
    try:
        write_sealed(kernel_folder() / f"{name}.{processor()}", code.packed())
    except OSError as error:
        _warn(f"{error.filename}: {error.strerror}" if error.strerror else str(error))


@contextmanager
def claimed(name: str, *, wait: bool = False) -> Iterator[bool]:
    """Whether no other process compiles the kernel, and none begins to inside; with ``wait``, once none does.

    So processes that start at once share the kernels that are missing. A process that ends gives its claims back. Where
    files cannot be locked each process compiles for itself.
    """
    claims, at = _claims(cache_folder()), crc32(f"{kernel_folder().name}/{name}".encode())
    try:
        if claims is not None:
            fcntl.lockf(claims, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, at)
    except BlockingIOError:
        yield False
        return
    except OSError:
        claims = None
    try:
        yield True
    finally:
        if claims is not None:
            fcntl.lockf(claims, fcntl.LOCK_UN, 1, at)


@functools.lru_cache(maxsize=1)
def _claims(folder: Path) -> int | None:
    """A file whose bytes stand for kernels; never closed, for with that a process gives back all its locks of it."""
    with suppress(OSError):
        make_private(folder)
        return os.open(folder / "compiling", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return None


def announce() -> None:
    """A kernel is compiled from now on, until it is kept by :func:`store`. The user is told once per process, because
    it can take a minute; commands also show how far it is, and so does a terminal without one.
    """
    _announce_once()
    compilation.begin()


@functools.lru_cache(maxsize=1)
def _announce_once() -> None:
    missing = len(kernel_names()) - len(current_kernels())
    compilation.expect(missing)
    _tell(logging.INFO, compiling(missing))
    if not _log.hasHandlers() and sys.stderr is not None and sys.stderr.isatty():
        compilation.add(_draw)


def _draw(done: int, total: int, *, going_on: bool) -> None:
    """A line on the terminal while a kernel is compiled, and none after it."""
    line = f"ddcore: compiling kernels {done}/{total}" if going_on else ""
    print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def processor() -> str:
    """A digest of the processor that kernels are compiled for."""
    return processor_digest(*target())


@functools.lru_cache(maxsize=1)
def target() -> tuple[str, str, str]:
    """What numba compiles for, as LLVM names it: the system, the processor, and its features."""
    from llvmlite import binding

    name, wanted, has_avx = binding.get_host_cpu_name(), None, True
    if any(map(os.environ.get, _SETTINGS)) or os.path.exists(".numba_config.yaml") or name in _WITHOUT_AVX:
        import numba

        config: Any = numba.config
        name, wanted, has_avx = config.CPU_NAME or name, config.CPU_FEATURES, config.ENABLE_AVX
    try:
        known = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM knows no features of this processor
        known = binding.FeatureMap()
    if not has_avx:
        known.update({feature: False for feature in known if feature.startswith("avx")})
    return binding.get_process_triple(), name, known.flatten() if wanted is None else wanted


def _code(file: Path) -> Code | None:
    """The code in a file; None where it cannot be read or is damaged."""
    packed = read_sealed(file)
    return None if packed is None else Code.unpacked(packed)


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
