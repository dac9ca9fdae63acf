"""The sorts of the engine: nanoseconds of numpy's and of the radix sort per key, by number of keys and of bits.

``python -m bench.sorts``. Which one a process takes is measured and kept by ``ddcore/traces/sorts.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ddcore import kernels

SIZES, BITS, TRIES = (1_024, 65_536, 1_048_576), (24, 40, 63), 5


def main() -> None:
    """Print a line for each number of keys and of bits."""
    print(f"{'keys':>10}{'bits':>6}{'numpy, ns':>12}{'radix, ns':>12}")
    for size in SIZES:
        for bits in BITS:
            keys = np.random.default_rng(0).integers(0, 1 << bits, size, dtype=np.uint64)
            print(f"{size:>10,}{bits:>6}{least(np.ndarray.sort, keys):>12.1f}{least(radix, keys):>12.1f}")


def radix(keys: np.ndarray) -> None:
    """The radix sort, all bits."""
    kernels.sorting.radix(keys, np.empty_like(keys), 0)


def least(sort: Callable[[np.ndarray], None], keys: np.ndarray) -> float:
    """Nanoseconds of this thread per key: the least of a few tries."""
    times = []
    for _ in range(TRIES):
        unsorted = keys.copy()
        start = time.thread_time_ns()
        sort(unsorted)
        times.append(time.thread_time_ns() - start)
    return min(times) / len(keys)


if __name__ == "__main__":
    main()
