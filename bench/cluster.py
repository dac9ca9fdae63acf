"""The load of a large graph on a standalone cluster: two executors with one core each against one such executor.

Master, workers and executors are processes of their own on this machine, as `local-cluster` starts them. The graph has
``DDCORE_BENCH_EDGES`` edges, 50 million unless it says otherwise, and a tenth as many nodes. ``DDCORE_BENCH_MEMORY`` is
the ``--memory`` of each worker; without it there is no limit. Beside the seconds of the whole command stand those
from when all workers were there, as the run's record has them: what a session takes whose executors run already.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from bench.measure import Failed, Figures, Result, in_turn
from bench.parallelism import dd, make_project
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse

EDGES = int(os.environ.get("DDCORE_BENCH_EDGES", "50_000_000"))
JVM_MIB = 4096  # of an executor; its Python process is beside it
MEMORY = os.environ.get("DDCORE_BENCH_MEMORY", "")


def run(rounds: int) -> Iterator[Result]:
    """Breadth-first search over version 0 of the graph; its supersteps are counted as part of the load."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_project(folder, EDGES // 10, EDGES)
        sides = {str(executors): partial(folded, folder, executors) for executors in (1, 2)}
        medians = in_turn(sides, rounds)
    one, two = medians["1"], medians["2"]
    if (one["rows"], one["sum"]) != (two["rows"], two["sum"]):
        raise Failed(f"one executor and two disagree: {one} {two}")
    name = f"load of {EDGES:,} edges, 2 executors of one core"
    yield Result(name, two["s"], "1 executor of one core", one["s"], rounds)
    yield Result(f"{name}, once they run", two["fold_s"], "1 executor of one core", one["fold_s"], rounds)


def folded(folder: Path, executors: int) -> Figures:
    """The seconds of a run by so many executors, and of its fold once all workers are there; rows of its output."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    shutil.copytree(folder / "ingested", folder / "warehouse")
    master = f"local-cluster[{executors},1,{JVM_MIB}]"
    memory = ["--memory", MEMORY] if MEMORY else []
    seconds = dd(folder, "run", "--master", master, "--parallelism", executors, *memory)
    hops = pl.read_delta(folder / "warehouse" / "outputs" / "hops")
    load = next(Ledger.load(Warehouse(folder / "warehouse")).runs_backwards(sys.maxsize)).loads[-1]
    total = int((hops["node"] * hops["dist"]).sum())
    return {"s": seconds, "fold_s": load.seconds, "rows": len(hops), "sum": total}
