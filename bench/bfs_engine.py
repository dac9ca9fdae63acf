"""Breadth-first search in the engine: ``python -m bench.bfs_engine EDGES CHANGES`` prints one JSON object.

A separate process, so that its peak memory is that of the load and the replay. The times are as for the peer: from
building the dataflow until all differences of version 0 exist, then the fold of all later versions, or with ``--each``
one fold a version. Reading the files and importing libraries is not timed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl

import ddcore as dd
from bench.measure import peak_mib
from bench.project import example_function
from ddcore.jobs.setup import compile_kernels

SCHEMAS = {"edges": {"src": "int64", "dst": "int64"}, "roots": {"node": "int64"}}


def main(edges_file: Path, changes_file: Path, *, threads: int = 1, each: bool = False) -> None:
    """Load version 0, replay the others, print the times."""
    edges, changes = read_edges(edges_file), read_changes(changes_file)
    roots = pl.DataFrame({"node": [0], "version": [0], "diff": [1]})
    bfs = example_function("graphs", "bfs")
    measure(bfs, SCHEMAS, {"edges": edges, "roots": roots}, changes, checksum, threads=threads, each=each)


def measure(
    program: Callable[..., dict[str, dd.Collection]],
    schemas: Mapping[str, Mapping[str, str]],
    inputs: Mapping[str, pl.DataFrame],
    changes: pl.DataFrame,
    checksum: Callable[[pl.DataFrame], int],
    *,
    threads: int = 1,
    each: bool = False,
) -> None:
    """Fold ``inputs``, then the changes of ``edges``, at once or ``each`` version by itself.

    Prints times, peak memory and a checksum of the one output.
    """
    make_session = dd.Session
    compile_kernels()  # they are loaded when first used, which is no part of a fold

    clock = Clock()
    session = make_session(program, schemas=schemas, dims=("version",), threads=threads)
    (first,) = session.fold(inputs).values()
    load = clock.figures("load")

    portions = changes.partition_by("version", maintain_order=True) if each else [changes]
    clock = Clock()
    later = [frame for portion in portions for frame in session.fold({"edges": portion}).values()]
    replay = clock.figures("replay")

    memory = {"peak_mib": peak_mib()}
    outcome = {"changes": sum(map(len, later)), "checksum": sum(map(checksum, [first, *later]))}
    print(json.dumps({**load, **replay, **memory, **outcome}))


class Clock:
    """A clock that starts when it is created."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def figures(self, what: str) -> dict[str, float]:
        """Seconds since the start: wall-clock time and processor time."""
        return {f"{what}_s": time.perf_counter() - self._wall, f"{what}_cpu_s": time.process_time() - self._cpu}


def read_edges(file: Path) -> pl.DataFrame:
    """All edges, at version 0."""
    pairs = np.fromfile(file, dtype="<i8").reshape(-1, 2)
    frame = pl.DataFrame({"src": pairs[:, 0].copy(), "dst": pairs[:, 1].copy()})
    return frame.with_columns(version=pl.lit(0, pl.Int64), diff=pl.lit(1, pl.Int64))


def read_changes(file: Path) -> pl.DataFrame:
    """The edges inserted and deleted at versions 1 and up."""
    rows = np.fromfile(file, dtype="<i8").reshape(-1, 4)
    return pl.DataFrame({name: rows[:, i].copy() for i, name in enumerate(("version", "src", "dst", "diff"))})


def checksum(log: pl.DataFrame) -> int:
    """The sum of node x dist x diff, as the peer computes it."""
    return int(log.select((pl.col("node") * pl.col("dist") * pl.col("diff")).sum()).item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.bfs_engine")
    parser.add_argument("edges_file", type=Path)
    parser.add_argument("changes_file", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="one fold a version")
    main(**vars(parser.parse_args()))
