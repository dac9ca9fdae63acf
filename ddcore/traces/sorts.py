"""The sort of packed updates, and which one this machine has: numpy's, or the radix sort of the kernels.

numpy chooses by what a processor has and not by how fast it is: its sort by AVX-512 is several times slower on AMD's
Zen 4 than its sort by AVX2, and faster than a radix sort on others. So the two are measured, once, in some 10 ms of
processor time, and the result is kept in the cache folder for the processor and the state of numpy.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ddcore import kernels
from ddcore.base.cache import cache_folder, described_processor, distrust, write_private
from ddcore.base.lazy import numpy as np
from ddcore.compiling.kernel_cache import processor

FEW = 1024  # updates: numpy sorts so few as fast, whatever the processor
_MEASURED = 1 << 16  # updates: more than the first cache holds, so few that it takes milliseconds
_BITS = 40  # of them, as the rows of an everyday arrangement have
_TRIES = 3
_FEATURES = ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")  # numpy reads them when it is imported
Choice = Literal["numpy", "radix"]


@dataclass(frozen=True, slots=True)
class Speeds:
    """Nanoseconds of processor time per update that each sort takes on this machine."""

    numpy: float
    radix: float

    @property
    def faster(self) -> Choice:
        """The sort that takes less time."""
        return "radix" if self.radix < self.numpy else "numpy"


def stable(keys: np.ndarray, low: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Keys, uint64[n], sorted by their bits from ``low`` upwards, and an array of their length whose content is of no
    use. Equal keys keep their order, or ascend: callers number what has to stay in order in the bits below ``low``.

    One of the two arrays is ``keys``: its content is overwritten. Costs one pass per ten bits that differ.
    """
    if len(keys) < FEW or choice() == "numpy":
        keys.sort()
        return keys, np.empty_like(keys)
    spare = np.empty_like(keys)
    return (spare, keys) if kernels.sorting.radix(keys, spare, low) else (keys, spare)


@functools.lru_cache(maxsize=1)
def choice() -> Choice:
    """The sort in use: ``DDCORE_SORT`` if that names one, else the faster one."""
    asked = os.environ.get("DDCORE_SORT")
    return asked if asked in ("numpy", "radix") else speeds().faster  # type: ignore[return-value]


def speeds() -> Speeds:
    """What was measured on this machine; measured now if nothing is kept, or nothing that can be read."""
    file = kept()
    if not distrust(file.parent):
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Speeds(**json.loads(file.read_text()))
    measured = Speeds(_least_time(np.ndarray.sort), _least_time(_radix))
    with contextlib.suppress(OSError):  # measured again by the next process
        write_private(file, json.dumps(asdict(measured)).encode())
    return measured


def kept() -> Path:
    """The file of what was measured. Another numpy, or one that may use less of the processor, has another one."""
    state = [np.__version__, *(os.environ.get(name, "") for name in _FEATURES)]
    digest = hashlib.blake2b(repr(state).encode(), digest_size=4).hexdigest()
    return cache_folder() / "sorts" / f"{described_processor() or processor()}-{digest}"


def _radix(keys: np.ndarray) -> None:
    kernels.sorting.radix(keys, np.empty_like(keys), 0)


def _least_time(sort) -> float:  # type: ignore[no-untyped-def]
    """Nanoseconds per update: the least of a few tries, so that other processes matter little."""
    keys = np.random.default_rng(0).integers(0, 1 << _BITS, _MEASURED, dtype=np.uint64)
    times = []
    for _ in range(_TRIES):
        unsorted = keys.copy()
        start = time.thread_time_ns()
        sort(unsorted)
        times.append(time.thread_time_ns() - start)
    return round(min(times) / _MEASURED, 1)
