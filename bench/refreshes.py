"""Refreshes of TPC-H by `dd run` inline, storage included: 1,500 orders come and 1,500 go, at scale 0.1 and at scale 1.

DuckDB, from a database file that holds the version before, applies the same changes and solves the six queries of
``examples/tpch`` from scratch. The twenty-two queries of ``examples/tpch_sql`` are compared with their own load.
``DDCORE_BENCH_SCALE`` sets another scale than 1; the smaller one is a tenth of it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from bench.measure import Failed, Figures, Result, Skipped, polars_alone, prompt_costs, prompt_to_prompt, summary
from bench.peers.tpch_queries import QUERIES
from bench.project import DDCORE, REPOSITORY, accumulated
from bench.tpch import EXAMPLE, GENERATOR, difference

ORDERS = 1_500_000  # at scale 1
CHANGED = 1_500  # orders that come, and as many that go
QUERIES_IN_SQL = REPOSITORY / "examples" / "tpch_sql"


def run(rounds: int) -> Iterator[Result]:
    """Both scales in turn; each round is one more version. Every result of the six queries is compared."""
    if importlib.util.find_spec("duckdb") is None or not GENERATOR.exists():
        raise Skipped("duckdb or tpchgen-cli is not installed: pip install 'ddcore[bench]'")
    scale = float(os.environ.get("DDCORE_BENCH_SCALE", "1"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        start = statistics.median(polars_alone(REPOSITORY)["cpu_s"] for _ in range(3))
        small = Refreshed(folder / "small", scale / 10, max(1, int(CHANGED * scale)), rounds)
        large = Refreshed(folder / "large", scale, max(1, int(CHANGED * scale)), rounds)
        small.refresh()  # the first refresh after a load is not as the others
        first = large.refresh()
        costs = summary([_named(small.refresh(), large.refresh()) for _ in range(rounds)])
        yield from _loads(scale, large.load, first)
        yield from _refreshes(scale, rounds, start, costs)
        shutil.rmtree(folder / "large")
        yield from _in_sql(folder / "sql", scale / 10, rounds)


def _loads(scale: float, load: tuple[Figures, Figures], first: tuple[Figures, Figures]) -> Iterator[Result]:
    for name, what, peer in (
        ("load", load, "DuckDB, its tables and the queries"),
        ("first refresh", first, "DuckDB, changes and queries from scratch"),
    ):
        yield Result(
            f"TPC-H at scale {scale:g}, six queries: {name}, processor time",
            what[0]["cpu_s"],
            peer,
            what[1]["cpu_s"],
            1,
            ours_peak_mib=what[0]["peak_mib"],
            peer_peak_mib=what[1]["peak_mib"],
        )


def _refreshes(scale: float, rounds: int, start: float, costs: Figures) -> Iterator[Result]:
    name = f"TPC-H at scale {scale:g}, six queries: refresh"
    yield Result(
        f"{name} without the start, processor time",
        max(costs["large_cpu_s"] - 2 * start, 0.001),
        "DuckDB, changes and queries from scratch",
        costs["peer_cpu_s"],
        rounds,
        ours_peak_mib=costs["large_peak_mib"],
        peer_peak_mib=costs["peer_peak_mib"],
    )
    yield Result(
        f"{name}, processor time",
        costs["large_cpu_s"],
        f"the same refresh at scale {scale / 10:g}",
        costs["small_cpu_s"],
        rounds,
    )


def _in_sql(folder: Path, scale: float, rounds: int) -> Iterator[Result]:
    """The twenty-two queries: a refresh against their load."""
    project = Project(folder, QUERIES_IN_SQL, scale, max(1, int(ORDERS * scale) // 1000), rounds + 2)
    load = project.fold(0)
    project.fold(1)
    refresh = summary([project.fold(2 + number) for number in range(rounds)])
    name = f"TPC-H at scale {scale:g}, 22 queries in SQL: refresh of 0.1 %, processor time"
    yield Result(name, refresh["cpu_s"], "their load", load["cpu_s"], rounds)


class Project:
    """A project of TPC-H with the logs of some refreshes, a file for each version."""

    def __init__(self, folder: Path, example: Path, scale: float, changed: int, versions: int) -> None:
        self.folder = folder / "project"
        tables, logs = folder / "tables", folder / "logs"
        prompt_to_prompt([GENERATOR, "parquet", "--scale-factor", f"{scale:g}", "--output-dir", tables], REPOSITORY)
        shutil.copytree(example, self.folder, ignore=shutil.ignore_patterns("warehouse", "__pycache__"))
        share = max(1, int(ORDERS * scale) // changed)
        refreshes = [sys.executable, EXAMPLE / "refreshes.py", tables, logs, "--project", example]
        prompt_to_prompt([*refreshes, "--versions", versions, "--share", share], REPOSITORY)
        shutil.rmtree(tables)
        self.logs = folder / "versions"
        for log in sorted(logs.glob("*.parquet")):
            for version in range(versions + 1):
                rows = pl.scan_parquet(log).filter(pl.col("version") == version).collect()
                if len(rows):
                    (self.logs / str(version)).mkdir(parents=True, exist_ok=True)
                    rows.write_parquet(self.logs / str(version) / log.name)
        shutil.rmtree(logs)

    def fold(self, version: int) -> Figures:
        """Ingest the logs of a version, and fold it: the costs of the run."""
        for log in sorted((self.logs / str(version)).glob("*.parquet")):
            prompt_to_prompt([DDCORE, "ingest", log.stem, log, "--engine", "inline"], self.folder)
        return prompt_costs([DDCORE, "run", "--engine", "inline"], self.folder)


class Refreshed:
    """The project of the six queries and DuckDB's database, both loaded, and kept at one version."""

    def __init__(self, folder: Path, scale: float, changed: int, rounds: int) -> None:
        self.version, self.results = 0, folder / "results"
        self.project = Project(folder, EXAMPLE, scale, changed, rounds + 1)
        self.database = folder / "tpch.duckdb"
        self.load = self.project.fold(0), self._by_duckdb()
        self._compare()

    def refresh(self) -> tuple[Figures, Figures]:
        """One more version by both sides: the costs of each."""
        self.version += 1
        costs = self.project.fold(self.version), self._by_duckdb()
        self._compare()
        return costs

    def _by_duckdb(self) -> Figures:
        shutil.rmtree(self.results, ignore_errors=True)
        self.results.mkdir()
        logs = self.project.logs / str(self.version)
        command = [sys.executable, "-m", "bench.peers.tpch_refresh", self.database, logs, self.results, self.version]
        return prompt_costs(command, REPOSITORY)

    def _compare(self) -> None:
        for name in QUERIES:
            log = pl.read_delta(str(self.project.folder / "warehouse" / "outputs" / name))
            other = pl.read_parquet(self.results / f"{name}-{self.version}.parquet")
            if differs := difference(accumulated(log, self.version), other):
                raise Failed(f"{name} at version {self.version}: {differs}")


def _named(small: tuple[Figures, Figures], large: tuple[Figures, Figures]) -> Figures:
    sides = {"small": small[0], "large": large[0], "peer": large[1]}
    return {f"{side}_{name}": value for side, figures in sides.items() for name, value in figures.items()}
