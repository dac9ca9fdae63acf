"""The image of all kernels in the cache folder: a process that has it loads neither LLVM nor single kernels.

It is linked from the compiled kernels of the package or of the cache, once all of them are there, by the first process
that needs one. What a machine or a system does not allow is left to LLVM: this module never fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from ddcore.base.cache import (
    cache_folder,
    described_processor,
    distrust,
    kernel_folder,
    kernel_names,
    note_use,
    read_sealed,
    write_sealed,
)
from ddcore.compiling import kernel_cache, native
from ddcore.compiling.linking import Image, UnlinkableError, link

_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX", "NUMBA_DISABLE_JIT")
_placing = Lock()


class _Placed(NamedTuple):
    """An image in the memory of this process."""

    image: Image
    base: int


def function(name: str) -> Callable[..., Any] | None:
    """The compiled function of a kernel; None where there is no image, or the kernel is not in it."""
    with _placing:
        placed = _placed()
    if placed is None or name not in placed.image.entries:
        return None
    return native.function_at(name, placed.base, placed.image.entries[name])


@functools.lru_cache(maxsize=1)
def _placed() -> _Placed | None:
    file = image_file()
    if file is None:
        return None
    image = _read(file) or _link(file)
    if image is None:
        return None
    try:
        return _Placed(image, image.load(_addresses(image.symbols)))
    except (OSError, KeyError, AttributeError, ValueError):
        return None


def image_file() -> Path | None:
    """The file of the image for this processor, as the system describes it; None where there can be none."""
    if sys.platform != "linux" or os.uname().machine != "x86_64" or any(map(os.environ.get, _SETTINGS)):
        return None
    if os.path.exists(".numba_config.yaml"):
        return None
    processor = described_processor()
    if not processor:
        return None
    return cache_folder() / "linked" / f"{kernel_folder().name}.{processor}"


def _addresses(names: list[str]) -> dict[str, int]:
    """Where the symbols of an image are. Raises AttributeError for one that this process does not have."""
    known = native.symbols()
    libraries = ctypes.pythonapi, ctypes.CDLL(None)
    for name in names:
        if name not in known:
            of = libraries[0] if hasattr(libraries[0], name) else libraries[1]
            address = ctypes.cast(getattr(of, name), ctypes.c_void_p).value
            known[name] = address or 0
    if not all(known[name] for name in names):
        raise AttributeError("a symbol has no address")
    return known


def _read(file: Path) -> Image | None:
    """The image in a file; None where there is none, or it is damaged, or others may write there."""
    try:
        if not file.exists() or distrust(file.parent):
            return None
        packed = read_sealed(file)
        if packed is None:
            return None
        note_use(file)
        return Image.unpacked(packed)
    except (OSError, ValueError, TypeError):
        return None


def _link(file: Path) -> Image | None:
    """Link all kernels and keep the image; None while some are not compiled, and where only LLVM can link them."""
    codes = {}
    for name in kernel_names():
        code = kernel_cache.load(name)
        if code is None:
            return None
        codes[name] = (code.entry, {symbol: [*types] for symbol, types in code.environments.items()}, code.objects)
    try:
        image = link(codes)
    except UnlinkableError:
        return None
    with contextlib.suppress(OSError):
        write_sealed(file, image.packed())
    return image
