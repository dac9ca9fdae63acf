"""What the workers of earlier runs took, by which the next run chooses how many it has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_MOST = 8
_RUNS = 100  # after which what was measured is too old


@dataclass(frozen=True, slots=True)
class Workload:
    """What the ``workers`` of run ``run`` took on Spark.

    ``rows``: at most so many were in the window, and ``stored`` in the state that it began with. ``seconds``: by the
    clock, from when all workers were there. ``worked``: of all workers together, outside of exchanges. ``start``: what
    came before, until the last worker was there, and after. ``sent``: bytes between them.
    """

    run: int
    workers: int
    rows: int
    stored: int
    seconds: float
    worked: float
    start: float
    sent: int = 0


def kept(earlier: Iterable[Workload], new: Workload) -> tuple[Workload, ...]:
    """The newest of each number of workers and order of magnitude of the window, newest last; few of them."""
    newest: dict[tuple[int, int], Workload] = {}
    for load in (*earlier, new):
        if new.run - load.run < _RUNS:
            kind = load.workers, load.rows.bit_length()
            newest.pop(kind, None)
            newest[kind] = load
    return tuple(newest.values())[-_MOST:]
