"""The closure of the package set in the engine: ``python -m bench.closure_engine LOG`` prints one JSON object.

A separate process, so that its peak memory is that of one fold. Timed is :func:`ddcore.replay`, or with ``--each`` one
fold a version in a Session: from building the dataflow until all differences of all versions are there. Importing,
loading kernels and reading the log is not timed.
"""

from __future__ import annotations

import argparse

import polars as pl

import ddcore as dd
from bench.bfs_engine import Clock
from bench.peers import closures
from bench.project import example_function
from ddcore.jobs.setup import compile_kernels

SCHEMA = {"dependencies": {"package": "string", "dependency": "string"}}


def main(log_file: str, *, each: bool) -> None:
    """Fold once, or each version by itself; print the figures."""
    example, log = example_function("packages", "program"), pl.read_parquet(log_file)
    compile_kernels()

    def program(dependencies: dd.Collection) -> dict[str, dd.Collection]:
        return {"depends": example(dependencies)["depends"]}

    versions = log.sort("version").partition_by("version", maintain_order=True)
    clock = Clock()
    if each:
        session = dd.Session(program, SCHEMA, ("version",), threads=1)
        depends = pl.concat([session.fold({"dependencies": version})["depends"] for version in versions])
    else:
        depends = dd.replay(program, dependencies=log)["depends"]
    seconds, cpu_seconds = clock.figures("fold").values()
    closures.report(depends.iter_rows(), seconds, cpu_seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.closure_engine")
    parser.add_argument("log_file")
    parser.add_argument("--each", action="store_true", help="one fold a version")
    main(**vars(parser.parse_args()))
