"""What supersteps cost, of workers in processes without Spark: those without work, and a loop of two thousand rounds.

The loop is that of :mod:`bench.chain_engine`: longest paths in a chain, whose nodes have their numbers in any order, so
that every other node is another worker's and a round crosses. By the clock, workers side by side, from the first
worker's beginning to the last one's end.
"""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.balance import write_project
from bench.chain_engine import longest_paths
from bench.measure import Failed, Figures, Result, in_turn, prompt_to_prompt
from bench.project import REPOSITORY

ASKED = 0.003  # seconds of a superstep without work, of four workers
NODES = 2_000
PROGRAM = f"""
from __future__ import annotations

import ddcore as dd
from ddcore import col


{inspect.getsource(longest_paths).replace("longest_paths", "program")}"""


def run(rounds: int) -> Iterator[Result]:
    """A thousand exchanges in which nobody sends an update; the chain by one worker and by two in turn."""
    idle = in_turn({"4": partial(figures_of, 4)}, rounds)["4"]["s"]
    yield Result("1,000 supersteps without work, 4 workers", idle, "3 ms for each", 1000 * ASKED, rounds)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        chain(folder)
        one, two = in_turn({str(number): partial(folded, folder, number) for number in (1, 2)}, rounds).values()
    yield Result(
        f"longest paths, a chain of {NODES:,} rounds, 2 workers", two["s"], "1 worker", one["s"], rounds,
        ours_cpu_s=two["cpu_s"], peer_cpu_s=one["cpu_s"],
    )  # fmt: skip


def figures_of(*arguments: object, environment: Mapping[str, str] | None = None) -> Figures:
    """What ``bench.superstep_engine`` prints."""
    command = [sys.executable, "-m", "bench.superstep_engine", *map(str, arguments)]
    figures: Figures = json.loads(prompt_to_prompt(command, REPOSITORY, environment)[1].splitlines()[-1])
    return figures


def chain(folder: Path) -> None:
    """A project whose warehouse, kept as ``ingested``, holds the chain."""
    order = np.random.default_rng(NODES).permutation(NODES)
    edges = pl.DataFrame({"src": order[:-1], "dst": order[1:]})
    write_project(folder, PROGRAM, nodes=pl.DataFrame({"node": order}), edges=edges)
    (folder / "warehouse").rename(folder / "ingested")


def folded(folder: Path, workers: int) -> Figures:
    """One fold of the chain by so many workers. Raises Failed where a path has another length."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    shutil.copytree(folder / "ingested", folder / "warehouse")
    figures = figures_of(folder, workers, environment={"DDCORE_WORKER_ROWS": "0"})
    lengths = pl.read_delta(str(folder / "warehouse" / "outputs" / "lengths")).sort("length")
    order = np.random.default_rng(NODES).permutation(NODES)
    if lengths["node"].to_list() != order.tolist() or lengths["length"].to_list() != [*range(NODES)]:
        raise Failed(f"a chain of {NODES} nodes by {workers} workers: {lengths.head(3)}")
    return {"supersteps": 0.0, "bytes": 0.0, **figures}
