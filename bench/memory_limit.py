"""`dd run --memory` against no limit: breadth-first search loads a large graph, in one process.

Not among the default benchmarks: ``python -m bench memory_limit --rounds 1``. Needs Linux, some minutes, 10 GiB on the
disk, and 8 GiB of memory for the side without a limit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from bench.measure import Failed, Figures, Result, in_turn
from bench.parallelism import SETTINGS, dd
from bench.peers import generate
from bench.project import DDCORE, REPOSITORY
from ddcore.text.sizes import memory_size

EDGES = 50_000_000
NODES = EDGES // 5
MEMORY = "2GiB"
FILES = 8  # in which the edges are ingested
_EVERY = 0.02  # seconds


def run(rounds: int) -> Iterator[Result]:
    """A load with and without a limit, which must give the same log."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_project(folder)
        sides = {"limited": partial(folded, folder, "--memory", MEMORY), "unlimited": partial(folded, folder)}
        medians = in_turn(sides, rounds)
    limited, unlimited = medians["limited"], medians["unlimited"]
    if limited["log"] != unlimited["log"]:
        raise Failed(f"the logs with and without a limit differ: {medians}")
    if limited["private_mib"] * 2**20 > memory_size(MEMORY):
        raise Failed(f"the process had {limited['private_mib']:.0f} MiB, with {MEMORY} of memory")
    yield Result(
        name=f"dd run, {EDGES // 1_000_000}M edges, --memory {MEMORY}",
        ours=limited["s"],
        peer="without a limit",
        other=unlimited["s"],
        runs=rounds,
        ours_cpu_s=limited["cpu_s"],
        peer_cpu_s=unlimited["cpu_s"],
        ours_peak_mib=limited["private_mib"],
        peer_peak_mib=unlimited["private_mib"],
    )


def make_project(folder: Path, nodes: int | None = None, edges: int | None = None) -> None:
    """A project whose warehouse, kept as ``ingested``, holds a random graph."""
    nodes, edges = nodes or NODES, edges or EDGES
    shutil.copy(REPOSITORY / "examples" / "graphs" / "program.py", folder)
    (folder / "dd.toml").write_text(SETTINGS)
    pairs, _ = generate.history(nodes=nodes, edges=edges, versions=1, delta=0, seed=1)
    size = -(-edges // FILES)
    for number in range(FILES):
        part = pairs[number * size : (number + 1) * size]
        frame = pl.DataFrame({"src": part[:, 0].copy(), "dst": part[:, 1].copy()})
        frame.with_columns(version=pl.lit(0, pl.Int64), diff=pl.lit(1, pl.Int64)).write_parquet(
            folder / "edges.parquet"
        )
        dd(folder, "ingest", "edges", folder / "edges.parquet", "--engine", "inline")
    pl.DataFrame({"node": [0], "version": [0], "diff": [1]}).write_parquet(folder / "roots.parquet")
    dd(folder, "ingest", "roots", folder / "roots.parquet", "--engine", "inline")
    (folder / "warehouse").rename(folder / "ingested")


def folded(folder: Path, *options: str) -> Figures:
    """One run over a copy of the warehouse: seconds, processor time, and the most private memory that it had."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    shutil.copytree(folder / "ingested", folder / "warehouse")
    command = [str(DDCORE), "run", "--engine", "inline", *options]
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        most = 0
        while (status := _ended(process)) is None:
            most = max(most, _private(process.pid))
            time.sleep(_EVERY)
        usage = status
    if process.returncode:
        raise Failed(f"{' '.join(command)}: exit {process.returncode}")
    seconds = time.perf_counter() - start
    return {"s": seconds, "cpu_s": usage, "private_mib": most / 2**20, "log": log_of(folder)}


def log_of(folder: Path) -> int:
    """A number that stands for the rows of the output's log."""
    hops = pl.read_delta(folder / "warehouse" / "outputs" / "hops").sort("node", "dist", "version")
    digest = hashlib.sha256(hops.select("node", "dist", "version", "diff").to_numpy().tobytes()).hexdigest()
    return int(digest[:12], 16)


def _ended(process: subprocess.Popen[bytes]) -> float | None:
    """The processor time of a process that has ended, else None."""
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid == 0:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def _private(pid: int) -> int:
    """The bytes of memory that a process has and no file does."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
