"""`dd run` over five million rows on Spark, with one worker and with two."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from bench import rust_peer
from bench.bfs_engine import read_edges
from bench.measure import Failed, Figures, Result, in_turn, prompt_to_prompt
from bench.project import REPOSITORY

SETTINGS = """\
[project]
program   = "program.py:bfs"
warehouse = "warehouse"

[inputs.edges]
schema = { src = "int64", dst = "int64" }

[inputs.roots]
schema = { node = "int64" }
"""


def run(rounds: int) -> Iterator[Result]:
    """Breadth-first search over version 0 of the graph by one and by two workers; and a shuffle of its rows."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_project(folder)

        def folded(parallelism: int) -> Figures:
            shutil.rmtree(folder / "warehouse", ignore_errors=True)
            shutil.copytree(folder / "ingested", folder / "warehouse")
            seconds = dd(folder, "run", "--parallelism", parallelism)
            hops = pl.read_delta(folder / "warehouse" / "outputs" / "hops")
            return {"s": seconds, "rows": len(hops), "sum": int((hops["node"] * hops["dist"]).sum())}

        def shuffled() -> Figures:
            command = [sys.executable, "-m", "bench.bare_shuffle", folder / "edges.parquet", folder / "shuffled"]
            return {"s": prompt_to_prompt(command, cwd=REPOSITORY)[0]}

        medians = in_turn({"one": partial(folded, 1), "two": partial(folded, 2), "shuffle": shuffled}, rounds)
    one, two = medians["one"], medians["two"]
    if (one["rows"], one["sum"]) != (two["rows"], two["sum"]):
        raise Failed(f"one worker and two disagree: {one} {two}")
    yield Result("dd run, 5M edges, 2 workers", two["s"], "dd run, 1 worker", one["s"], rounds)
    yield Result(
        "dd run, 5M edges, 1 worker", one["s"], "Spark reads, shuffles and writes them", medians["shuffle"]["s"], rounds
    )


def make_project(folder: Path, nodes: int = 1_000_000, edges: int = 5_000_000) -> None:
    """A project whose warehouse, kept as ``ingested``, holds version 0 of a graph."""
    shutil.copy(REPOSITORY / "examples" / "graphs" / "program.py", folder)
    (folder / "dd.toml").write_text(SETTINGS)
    graph = rust_peer.graph(nodes=nodes, edges=edges, versions=1_000, changes=100)
    read_edges(graph.edges).write_parquet(folder / "edges.parquet")
    pl.DataFrame({"node": [0], "version": [0], "diff": [1]}).write_parquet(folder / "roots.parquet")
    for name in ("edges", "roots"):
        dd(folder, "ingest", name, folder / f"{name}.parquet", "--engine", "inline")
    (folder / "warehouse").rename(folder / "ingested")


def dd(folder: Path, *arguments: object) -> float:
    """Seconds that ``dd ARGUMENTS`` takes in a project."""
    return prompt_to_prompt([Path(sys.executable).with_name("ddcore"), *arguments], folder)[0]
