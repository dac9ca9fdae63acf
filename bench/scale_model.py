"""What P machines would take, computed from what was measured here and from the figures of a network.

Measured without Spark: processor time, bytes and supersteps of one worker over two sizes and of four workers. From
these follow the fixed part of a worker, the work for an edge, and what a byte costs that is sent. Two workers, which
are not among them, are computed too and compared with what they take: without Spark their processor time, and on two
executors of one core the seconds by the clock, which say something only where both cores are free.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cluster import folded as by_executors
from bench.measure import Failed, Figures, Result, in_turn, prompt_costs
from bench.parallelism import make_project
from bench.project import REPOSITORY
from bench.superstep import figures_of

EDGES = int(os.environ.get("DDCORE_BENCH_EDGES", "5_000_000"))
FEWER = 4  # so many times
SIZES = (50_000_000, 200_000_000, 1_000_000_000)
MACHINES = (4, 16, 64)
BANDWIDTH = 1e9  # bytes a second, from and to each machine at once
LATENCY = 0.0002  # seconds until a message of nothing is there
MESSAGE = 25e-6  # seconds of processor time of each side of a message: docs/decisions/spark.md
MOST_WRONG = 0.15


@dataclass(frozen=True)
class Model:
    """Seconds of processor time: ``start`` of a process with the engine in it, ``fixed`` of a fold whatever its size,
    ``edge`` and ``byte`` for each; ``bytes`` sent for an edge if all updates left their worker; ``supersteps``.
    """

    start: float
    fixed: float
    edge: float
    byte: float
    bytes: float
    supersteps: float

    def sent(self, edges: int, machines: int) -> float:
        """Bytes from all to all: of evenly divided keys 1/P stay with their worker."""
        return self.bytes * edges * (machines - 1) / machines

    def work(self, edges: int, machines: int) -> float:
        """Seconds of processor time of each worker in its fold, where all have as much to do."""
        messages = 2 * (machines - 1) * self.supersteps * MESSAGE
        return self.fixed + messages + (self.edge * edges + self.byte * self.sent(edges, machines)) / machines

    def seconds(self, edges: int, machines: int) -> float:
        """By the clock, from the start of workers that have a core each; nothing of Spark's own start."""
        waiting = 0.0 if machines == 1 else self.supersteps * LATENCY
        return self.start + self.work(edges, machines) + waiting + self.sent(edges, machines) / machines / BANDWIDTH


def model_of(start: float, few: Figures, one: Figures, four: Figures, edges: int = EDGES) -> Model:
    """The model of one worker over an ``FEWER``-th of the edges and over all, and of four workers. Raises Failed."""
    more = (one["cpu_s"] - few["cpu_s"]) / (edges - edges // FEWER)
    # Where caches hold the few edges, so many more take more than as many times the work.
    fixed = max(0.0, one["cpu_s"] - more * edges)
    edge = (one["cpu_s"] - fixed) / edges
    if more <= 0:
        raise Failed(f"{FEWER} times the edges take {one['cpu_s']:.2f} s, and not more than {few['cpu_s']:.2f} s")
    messages = 4 * 2 * 3 * four["supersteps"] * MESSAGE
    byte = max(0.0, four["cpu_s"] - 4 * fixed - edge * edges - messages) / four["bytes"]
    return Model(start, fixed, edge, byte, four["bytes"] / edges * 4 / 3, four["supersteps"])


def run(rounds: int) -> Iterator[Result]:
    """Measure, compare with two workers, compute."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {EDGES: Path(scratch) / "all", EDGES // FEWER: Path(scratch) / "few"}
        for edges, folder in folders.items():
            folder.mkdir()
            make_project(folder, edges // 5, edges)

        def folded(edges: int, number: int) -> Figures:
            folder = folders[edges]
            shutil.rmtree(folder / "warehouse", ignore_errors=True)
            shutil.copytree(folder / "ingested", folder / "warehouse")
            return figures_of(folder, number, environment={"DDCORE_WORKER_ROWS": "0"})

        start = [sys.executable, "-c", "from ddcore.jobs.engines import workers"]
        sides = {"few": partial(folded, EDGES // FEWER, 1)}
        sides |= {str(number): partial(folded, EDGES, number) for number in (1, 2, 4)}
        sides["start"] = partial(prompt_costs, start, REPOSITORY)
        sides["executors"] = partial(by_executors, folders[EDGES], 2)
        medians = in_turn(sides, rounds)
    model = model_of(medians["start"]["cpu_s"], medians["few"], medians["1"], medians["4"])
    print(model, file=sys.stderr)
    computed, measured = model.work(EDGES, 2), medians["2"]["cpu_s"] / 2
    name = f"search, {EDGES:,} edges, each of 2 workers, computed from 1 and 4"
    yield Result(name, computed, "measured", measured, rounds, unit="s of processor time")
    name, seconds = f"search, {EDGES:,} edges, 2 executors once they run, computed", model.seconds(EDGES, 2)
    yield Result(name, seconds - model.start, "measured", medians["executors"]["fold_s"], rounds)
    if abs(computed / measured - 1) > MOST_WRONG:
        raise Failed(f"{computed:.2f} s were computed for two workers, and {measured:.2f} s measured")
    for edges in SIZES:
        one = model.seconds(edges, 1)
        for machines in MACHINES:
            name = f"computed: search, {edges:,} edges, {machines} machines"
            yield Result(name, model.seconds(edges, machines), "computed: 1 machine", one, rounds)
