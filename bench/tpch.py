"""Six TPC-H queries over 40 refreshes at scale 0.05: `dd run` inline, storage included, against DuckDB from scratch.

The program is that of ``examples/tpch``. Before: the logs are ingested, and DuckDB's database holds version 0.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import polars as pl

from bench.measure import Failed, Figures, Result, Skipped, in_turn, prompt_costs, prompt_to_prompt
from bench.peers.tpch_queries import QUERIES
from bench.project import DDCORE, REPOSITORY, accumulated

VERSIONS = 40
GENERATOR = Path(sys.executable).with_name("tpchgen-cli")
EXAMPLE = REPOSITORY / "examples" / "tpch"


def run(rounds: int, scale: float = 0.05) -> Iterator[Result]:
    """Both sides in turn, each from its prepared state; every result of every version is compared."""
    if importlib.util.find_spec("duckdb") is None or not GENERATOR.exists():
        raise Skipped("duckdb or tpchgen-cli is not installed: pip install 'ddcore[bench]'")
    with tempfile.TemporaryDirectory() as scratch:
        folder, number = Path(scratch), count()
        prepare(folder, scale)

        def ours() -> Figures:
            project = folder / "project"
            shutil.rmtree(project / "warehouse", ignore_errors=True)
            shutil.copytree(folder / "ingested", project / "warehouse")
            return prompt_costs([DDCORE, "run", "--engine", "inline"], project)

        def peer() -> Figures:
            results = folder / f"results-{next(number)}"
            results.mkdir()
            database = shutil.copy(folder / "tpch.duckdb", results / "tpch.duckdb")
            figures = prompt_costs([sys.executable, "-m", "bench.peers.tpch_duckdb", database, results], REPOSITORY)
            compare(folder / "project" / "warehouse" / "outputs", results)
            return figures

        ours_, other = in_turn({"ours": ours, "DuckDB": peer}, rounds).values()
    yield Result(
        f"six TPC-H queries, {VERSIONS} refreshes", ours_["s"], "DuckDB, queries and snapshots", other["s"], rounds,
        ours_cpu_s=ours_["cpu_s"], peer_cpu_s=other["cpu_s"],
    )  # fmt: skip


def prepare(folder: Path, scale: float) -> None:
    """In ``folder``: what :func:`ingest` makes, and DuckDB's database."""
    from bench.peers import tpch_duckdb

    ingest(folder, scale)
    tpch_duckdb.prepare(folder / "tpch.duckdb", folder / "logs")


def ingest(folder: Path, scale: float) -> None:
    """In ``folder``: the project, its logs, and its warehouse with them ingested, kept apart as ``ingested``."""
    prompt_to_prompt([GENERATOR, "parquet", "--scale-factor", scale, "--output-dir", folder / "tables"], folder)
    shutil.copytree(EXAMPLE, folder / "project", ignore=shutil.ignore_patterns("warehouse", "__pycache__"))
    command = [sys.executable, EXAMPLE / "refreshes.py", folder / "tables", folder / "logs", "--versions", VERSIONS]
    prompt_to_prompt(command, folder)
    for log in sorted((folder / "logs").glob("*.parquet")):
        prompt_to_prompt([DDCORE, "ingest", log.stem, log, "--engine", "inline"], folder / "project")
    (folder / "project" / "warehouse").rename(folder / "ingested")


def compare(outputs: Path, results: Path) -> None:
    """Raise Failed if an output log accumulates to another result than DuckDB's at some version."""
    for name in QUERIES:
        log = pl.read_delta(outputs / name)
        for version in range(VERSIONS + 1):
            other = pl.read_parquet(results / f"{name}-{version}.parquet")
            if differs := difference(accumulated(log, version), other):
                raise Failed(f"{name} at version {version}: {differs}")


def difference(ours: pl.DataFrame, other: pl.DataFrame) -> str:
    """How two results differ, or nothing. Floats are equal up to their last digits: DuckDB rounds in between."""
    floats = [name for name, dtype in ours.schema.items() if dtype == pl.Float64]
    exact = [name for name in ours.columns if name not in floats]
    frames = []
    for frame in (ours, other.select(ours.columns)):
        decimals = pl.selectors.decimal().cast(pl.Decimal(38, 6))
        frames.append(frame.with_columns(decimals, pl.selectors.integer().cast(pl.Int64)).sort(exact))
    own, others = frames
    if not own.select(exact).equals(others.select(exact)):
        return f"ours {own.rows()[:3]}, DuckDB's {others.rows()[:3]}"
    for name in floats:
        if not own.select(((pl.col(name) - others[name]).abs() <= 1e-9 * pl.col(name).abs()).all()).item():
            return f"{name}: ours {own[name].to_list()[:3]}, DuckDB's {others[name].to_list()[:3]}"
    return ""
