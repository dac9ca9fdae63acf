"""The closure of the package set in the engine: ``python -m bench.closure_engine LOG`` prints one JSON object.

A separate process, so that its peak memory is that of one fold. Timed is :func:`ddcore.replay`: from building the
dataflow until all differences of all versions are there. Importing, loading kernels and reading the log is not timed.
"""

from __future__ import annotations

import sys

import polars as pl

import ddcore as dd
from bench.bfs_engine import Clock
from bench.peers import closures
from bench.project import example_function
from ddcore.jobs.setup import compile_kernels


def main(log_file: str) -> None:
    """Fold once, print the figures."""
    example, log = example_function("packages", "program"), pl.read_parquet(log_file)
    compile_kernels()

    def program(dependencies: dd.Collection) -> dict[str, dd.Collection]:
        return {"depends": example(dependencies)["depends"]}

    clock = Clock()
    depends = dd.replay(program, dependencies=log)["depends"]
    seconds, cpu_seconds = clock.figures("fold").values()
    closures.report(depends.iter_rows(), seconds, cpu_seconds)


if __name__ == "__main__":
    main(sys.argv[1])
