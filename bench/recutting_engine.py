"""What would be gained if the ranges of workers were cut again between supersteps.

``python -m bench.recutting_engine PROJECT WORKERS`` folds a project with the ranges of so many workers, each cut into
eight, and has the load of all of them in each superstep. From these it computes, and prints as one JSON object, the sum
of the greatest loads of the workers over that of the means:

- ``kept``: each worker keeps its eight;
- ``once``: contiguous ranges as even as all that they will do, cut once;
- ``before``: before each superstep they are divided again, into contiguous ranges as even as in the superstep before;
- ``known``: as even as in the superstep itself, which nobody knows before;
- ``paid``: the same, but only where less state moves than the busiest worker is relieved of, and that is counted too. A
  row of state counts as one update, once, for the worker that gives or takes most of them. So it is a lower bound.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from bench import balance_engine
from ddcore.jobs.engines import partitioning

RANGES = 8
_HALVINGS = 40
Cuts = Callable[[np.ndarray, np.ndarray, int], list[int]]


def finer(cuts: Cuts, workers: int) -> Cuts:
    """Cuts of ranges for workers, of which each is cut again."""

    def cut(codes: np.ndarray, rows: np.ndarray, parallelism: int) -> list[int]:
        ends, found = [-(2**63), *cuts(codes, rows, workers), 2**63 - 1], list[int]()
        for lo, hi in pairwise(ends):
            inside = (codes >= lo) & (codes < hi)
            several = cuts(codes[inside], rows[inside], RANGES) if inside.any() else [hi] * (RANGES - 1)
            found += [*(min(code, hi) for code in several), hi]
        return found[: parallelism - 1]

    return cut


def evenly(loads: np.ndarray, workers: int) -> np.ndarray:
    """The worker of each range, where all have contiguous ones and the greatest load is least: int64[ranges]."""
    least, most = max(loads.max(), loads.sum() / workers), loads.sum()
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        if _filled(loads, middle)[-1] < workers:
            most = middle
        else:
            least = middle
    owners: np.ndarray = np.minimum(_filled(loads, most), workers - 1)
    return owners


def _filled(loads: np.ndarray, most: float) -> np.ndarray:
    owners, worker, filled = [], 0, 0.0
    for load in loads.tolist():
        if filled + load > most:
            worker, filled = worker + 1, 0.0
        filled += load
        owners.append(worker)
    return np.array(owners)


def policies(loads: np.ndarray, workers: int) -> dict[str, float]:
    """The figures of some loads, (ranges, supersteps); those of the first superstep stand for the rows of state."""
    own = owners = np.repeat(np.arange(workers), len(loads) // workers)
    state, before, even = loads[:, 0], loads[:, 0], evenly(loads.sum(axis=1), workers)
    total = dict.fromkeys(("kept", "once", "before", "known", "paid"), 0.0)

    def most(weights: np.ndarray, by: np.ndarray) -> float:
        return float(np.bincount(by, weights, workers).max())

    for now in loads.T:
        best = evenly(now, workers)
        moving = np.where(best == owners, 0.0, state)
        stays = most(now, owners)
        goes = most(now, best) + max(most(moving, owners), most(moving, best))
        owners = best if goes < stays else owners
        costs = (
            most(now, own), most(now, even), most(now, evenly(before, workers)), most(now, best), min(stays, goes)
        )  # fmt: skip
        total = {name: total[name] + cost for name, cost in zip(total, costs, strict=True)}
        before = now
    return {name: cost * workers / float(loads.sum()) for name, cost in total.items()}


def main() -> None:
    """Read the command line and fold."""
    parser = argparse.ArgumentParser(description="Compute what cutting ranges again between supersteps would give.")
    parser.add_argument("project", help="a project's folder")
    parser.add_argument("workers", type=int)
    options = parser.parse_args()
    nothing: Callable[..., Any] = lambda *_, **__: {}  # noqa: E731  (no heavy keys: ranges alone)
    for name, value in (("_cuts", finer(partitioning._cuts, options.workers)), ("shares_of", nothing)):
        setattr(partitioning, name, value)
    _, loads = balance_engine.fold(options.project, options.workers * RANGES)
    print(json.dumps(policies(np.array(loads, dtype=float), options.workers)))


if __name__ == "__main__":
    main()
