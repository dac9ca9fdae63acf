"""What dividing a fold costs: the processor time of all of 2, 4 and 16 workers together, over that of one.

The workers are processes without Spark that exchange over sockets, a thread each. Their time is that of their folds:
reading, exchanging, working and writing; what Python and the engine took before is printed on stderr, and so is what
the process took that divides the work. Where the rows are not worth all of them, fewer fold,
as stderr says; with ``DDCORE_WORKER_ROWS=1`` all that would own some, and with ``0`` all own some of every
arrangement, too. The logs of all numbers of workers must be the same.

``DDCORE_BENCH_EDGES`` is the number of edges of the search, ten million unless it says otherwise, and
``DDCORE_BENCH_SCALE`` the scale of TPC-H, 1. Needs Linux and tpchgen-cli, 6 GiB of memory and 10 on the disk.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench import balance, tpch
from bench.measure import Figures, Result, agree, in_turn, prompt_to_prompt
from bench.parallelism import dd, make_project
from bench.shop import BRONZE, EXAMPLE
from bench.superstep import figures_of

EDGES = int(os.environ.get("DDCORE_BENCH_EDGES", "10_000_000"))
SCALE = float(os.environ.get("DDCORE_BENCH_SCALE", "1"))
GRAPH = EDGES // 2  # edges of the graph with components and triangles
ORDERS = 100_000
WORKERS = (2, 4, 16)
SEED = 20261126


def run(rounds: int) -> Iterator[Result]:
    """Each workload by one, two, four and sixteen workers in turn."""
    for name, prepare in WORKLOADS.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            prepare(folder)
            medians = in_turn({str(number): partial(folded, folder, number) for number in (1, *WORKERS)}, rounds)
        agree(medians, "log")
        one = medians["1"]["cpu_s"]
        for number in WORKERS:
            together = medians[str(number)]
            yield Result(
                f"{name}, {number} workers given",
                together["cpu_s"],
                "one worker",
                one,
                rounds,
                unit="s of processor time",
            )


def folded(folder: Path, workers: int) -> Figures:
    """One run over a copy of what is ingested, and a number that stands for the logs of its outputs."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    shutil.copytree(folder / "ingested", folder / "warehouse")
    figures = figures_of(folder, workers)
    print(f"{workers} workers: {figures}", file=sys.stderr, flush=True)
    logs = [pl.read_delta(str(log)) for log in sorted((folder / "warehouse" / "outputs").iterdir())]
    number = sum(
        index * int(log.select(pl.struct(pl.all()).hash(SEED) % 2**30).to_series().sum())
        for index, log in enumerate(logs, 1)
    )
    return {"bytes": 0.0, "supersteps": 0.0, **figures, "log": number}


def search(folder: Path) -> None:
    """Breadth-first search."""
    make_project(folder, EDGES // 5, EDGES)


def graph(algorithm: str, folder: Path) -> None:
    """A random graph, with ten edges of a node."""
    ends = np.random.default_rng(SEED).integers(0, GRAPH // 5, (2, GRAPH))
    program = balance.GRAPH.format(inputs="edges", algorithm=algorithm)
    balance.write_project(folder, program, edges=pl.DataFrame({"src": ends[0], "dst": ends[1]}))
    (folder / "warehouse").rename(folder / "ingested")


def queries(folder: Path) -> None:
    """Six TPC-H queries, their load and 40 refreshes in one run."""
    tpch.ingest(folder, SCALE)
    for path in (folder / "project").iterdir():
        shutil.move(path, folder / path.name)


def shop(folder: Path) -> None:
    """The shop of ``examples/shop``: all of it."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=lambda *_: ["bronze", "warehouse", "__pycache__"])
    prompt_to_prompt([sys.executable, BRONZE, "--orders", ORDERS], folder)
    take_in(folder)
    (folder / "warehouse").rename(folder / "ingested")


def hour(folder: Path) -> None:
    """The same, and an hour after it."""
    shop(folder)
    (folder / "ingested").rename(folder / "warehouse")
    for _ in range(2):  # the first one after a load is not as the others
        dd(folder, "run", "--engine", "inline")
        prompt_to_prompt([sys.executable, BRONZE], folder)
        take_in(folder)
    (folder / "warehouse").rename(folder / "ingested")


def take_in(folder: Path) -> None:
    """Ingest what is new of the shop's sources."""
    for table in sorted((folder / "bronze").iterdir()):
        dd(folder, "ingest", table.name, "--engine", "inline")


WORKLOADS: dict[str, Callable[[Path], None]] = {
    f"search, {EDGES:,} edges": search,
    f"components, {GRAPH:,} edges": partial(graph, "components"),
    f"triangles, {GRAPH:,} edges": partial(graph, "triangles"),
    f"six TPC-H queries at scale {SCALE:g}": queries,
    f"the shop of {ORDERS:,} orders": shop,
    f"an hour of the shop of {ORDERS:,} orders": hour,
}
