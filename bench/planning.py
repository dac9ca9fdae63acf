"""What planning of expressions costs: milliseconds of processor time for the samples of ``tests/support/samples.py``,
checked, typed and lowered; and for their canonical text alone.

``python -m bench.planning``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from bench.project import REPOSITORY
from ddcore.expressions.canonical import canonical

sys.path.insert(0, str(REPOSITORY / "tests" / "support"))
from samples import ALL, evaluator

TRIES = 5


def main() -> None:
    """Print a line for each of the two."""
    print(f"{len(ALL)} expressions")
    print(f"checked, typed and lowered: {least(_plan):.0f} ms")
    print(f"canonical text: {least(_write):.0f} ms")


def _plan() -> None:
    for _, expr in ALL:
        evaluator(expr)


def _write() -> None:
    for _, expr in ALL:
        canonical(expr)


def least(work: Callable[[], None]) -> float:
    """Milliseconds of this process: the least of a few tries."""
    times = []
    for _ in range(TRIES):
        start = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - start)
    return min(times) / 1e6


if __name__ == "__main__":
    main()
