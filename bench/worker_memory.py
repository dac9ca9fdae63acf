"""`--memory` in each of sixteen workers: they fold data that are larger than all their memories together.

Without Spark, each in a process of its own. Their log must be that of one worker, and none may have more private
memory than was set. The graph has ``DDCORE_BENCH_EDGES`` edges, ten million unless it says otherwise, and a fifth as
many nodes. Needs Linux, and 6 GiB of memory; fifty million edges some GiB on the disk and many minutes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.measure import Failed, Figures, Result, in_turn
from bench.memory_limit import log_of, make_project
from bench.superstep import figures_of
from ddcore.text.sizes import memory_size

EDGES = int(os.environ.get("DDCORE_BENCH_EDGES", "10_000_000"))
WORKERS = 16
MEMORY = "256MiB"  # of each
OF_ONE = "2GiB"
SECONDS = 4 * 3600.0


def run(rounds: int) -> Iterator[Result]:
    """The load by sixteen workers and by one."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_project(folder, EDGES // 5, EDGES)
        settings = (folder / "dd.toml").read_text()
        sides = {
            "all": partial(folded, folder, settings, WORKERS, MEMORY),
            "one": partial(folded, folder, settings, 1, OF_ONE),
        }
        medians = in_turn(sides, rounds)
    all_of_them, one = medians["all"], medians["one"]
    if all_of_them["log"] != one["log"]:
        raise Failed(f"the logs of {WORKERS} workers and of one differ: {medians}")
    if all_of_them["private_mib"] * 2**20 > memory_size(MEMORY):
        raise Failed(f"a worker had {all_of_them['private_mib']:.0f} MiB, with {MEMORY} of memory")
    yield Result(
        name=f"load of {EDGES:,} edges, {WORKERS} workers with {MEMORY} each",
        ours=all_of_them["cpu_s"],
        peer=f"one worker with {OF_ONE}",
        other=one["cpu_s"],
        runs=rounds,
        unit="s of processor time",
        ours_peak_mib=all_of_them["private_mib"],
        peer_peak_mib=one["private_mib"],
    )


def folded(folder: Path, settings: str, workers: int, memory: str) -> Figures:
    """One run over a copy of the warehouse: processor time of all workers, and the most memory that one had."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    shutil.copytree(folder / "ingested", folder / "warehouse")
    (folder / "dd.toml").write_text(f'{settings}\n[run]\nmemory = "{memory}"\n')
    start = time.perf_counter()
    figures = figures_of(folder, workers, "--seconds", SECONDS, environment={"DDCORE_WORKER_ROWS": "0"})
    seconds = time.perf_counter() - start
    return {"s": seconds, "log": log_of(folder), **figures}
