"""The shop of ``examples/shop``: from the sources' commits of an hour to the published tables, at two sizes.

An hour changes about a thousand rows of seven Delta tables. It is taken in by ``dd sync`` inline, on Spark, and by a
follower, and so is a single commit of a thousand rows. Beside it DuckDB and Spark compute all views from scratch. The
tables are compared with DuckDB's after each hour. ``DDCORE_BENCH_ORDERS`` sets another number than 1,000,000 for the
larger shop; the smaller has a tenth of it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import polars as pl
from deltalake import write_deltalake

from bench import promises
from bench.measure import Failed, Figures, Result, Skipped, in_turn, prompt_costs, prompt_to_prompt
from bench.project import DDCORE, REPOSITORY

ORDERS = int(os.environ.get("DDCORE_BENCH_ORDERS", "1_000_000"))
EXAMPLE = REPOSITORY / "examples" / "shop"
BRONZE = EXAMPLE / "bronze.py"
PATIENCE = 120.0  # seconds that a follower may take for an hour
ITEMS = 1_000  # that are added in a commit of their own


def run(rounds: int) -> Iterator[Result]:
    """All ways in turn, an hour each; then the costs of the two sizes."""
    if importlib.util.find_spec("duckdb") is None:
        raise Skipped("duckdb is not installed: pip install 'ddcore[bench]'")
    with tempfile.TemporaryDirectory() as scratch:
        small, large = (Shop(Path(scratch) / f"shop-{orders}", orders) for orders in (ORDERS // 10, ORDERS))
        sides = in_turn({"small": small.hour, "large": large.hour}, rounds)
        for shop, ours in zip((small, large), sides.values(), strict=True):
            name = f"the shop of {shop.orders:,} orders, an hour"
            peer = in_turn({"DuckDB": shop.by_duckdb}, rounds)["DuckDB"]
            yield Result(f"{name}: dd sync", ours["s"], "DuckDB, from scratch", peer["s"], rounds)
            yield Result(
                f"{name}: dd sync, processor time", ours["cpu_s"], "DuckDB, from scratch", peer["cpu_s"], rounds
            )
            with shop.follower() as follower:
                follows = in_turn({"hour": follower.hour, "commit": follower.commit}, 2 * rounds)
            shop.check()
            seconds = follows["hour"]["s"]
            yield Result(f"{name}: dd sync --follow", seconds, "DuckDB, from scratch", peer["s"], 2 * rounds)
            name, seconds = f"the shop of {shop.orders:,} orders, a commit of {ITEMS:,} rows", follows["commit"]["s"]
            most = promises.amount("shop, a commit of 1,000 rows")
            yield Result(f"{name}: dd sync --follow", seconds, f"{most:g} s, as promised", most, 2 * rounds)
        name = f"the shop, an hour: dd sync, {large.orders:,} orders"
        before = f"{small.orders:,} orders"
        yield Result(name, sides["large"]["s"], before, sides["small"]["s"], rounds)
        spark, seconds = large.by_spark(), large.hour("--engine", "spark")["s"]
        name = f"the shop of {large.orders:,} orders, an hour"
        yield Result(f"{name}: dd sync on Spark", seconds, "Spark, from scratch", spark["s"], 1)
        yield Result(f"{name}: dd sync", sides["large"]["s"], "Spark, from scratch", spark["s"], 1)


class Shop:
    """A copy of the example with so many orders, folded and published; hours come one after the other."""

    def __init__(self, folder: Path, orders: int) -> None:
        self.folder, self.orders, self._commits = folder, orders, 0
        copytree(EXAMPLE, folder, ignore=lambda *_: ["bronze", "warehouse", "__pycache__"])
        prompt_to_prompt([sys.executable, BRONZE, "--orders", orders], folder)
        prompt_to_prompt([DDCORE, "sync"], folder)
        self.hour()  # the first one after a load is not as the others

    def next_hour(self) -> None:
        """Commit what an hour brings to the sources."""
        prompt_to_prompt([sys.executable, BRONZE], self.folder)

    def add_items(self) -> None:
        """Commit further items of orders, drawn from all of them."""
        table = str(self.folder / "bronze" / "items")
        rng = np.random.default_rng(self._commits)
        self._commits += 1
        rows = pl.DataFrame(
            {
                "order_id": rng.integers(0, self.orders, ITEMS),
                "line": ITEMS * self._commits + np.arange(ITEMS),
                "product_id": rng.integers(0, 2_000, ITEMS),
                "quantity": rng.integers(1, 6, ITEMS),
                "unit_price": pl.Series(rng.integers(100, 50_000, ITEMS)).cast(pl.Decimal(12, 2)) / 100,
            }
        )
        write_deltalake(table, rows.cast(pl.scan_delta(table).collect_schema()).to_arrow(), mode="append")

    def hour(self, *options: str) -> Figures:
        """The costs of ``dd sync`` of one more hour."""
        self.next_hour()
        figures = prompt_costs([DDCORE, "sync", *options], self.folder)
        self.check()
        return figures

    def by_duckdb(self) -> Figures:
        """The costs of computing all views from scratch."""
        return prompt_costs([sys.executable, "-m", "bench.peers.shop_duckdb", self.folder, self._results], REPOSITORY)

    def by_spark(self) -> Figures:
        """The same by Spark, which writes Delta tables."""
        results = self._results.with_name("spark")
        return prompt_costs([sys.executable, "-m", "bench.peers.shop_spark", self.folder, results], REPOSITORY)

    def check(self) -> None:
        """Raise Failed for a published table that is not what DuckDB computes."""
        self.by_duckdb()
        for file in self._results.iterdir():
            ours = pl.read_delta(str(self.folder / "warehouse" / "tables" / file.stem))
            other = pl.read_parquet(file).cast(ours.schema).select(ours.columns)
            if not ours.sort(pl.all()).equals(other.sort(pl.all())):
                raise Failed(f"{file.stem} has {len(ours)} rows, DuckDB's {len(other)}, or other ones")

    @contextmanager
    def follower(self) -> Iterator[Follower]:
        """``dd sync --follow``, as long as the context is open."""
        command = [str(DDCORE), "sync", "--follow", "--every", "0.1", "--json"]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            follower = Follower(self, process)
            follower.hour()  # until it has started, and is as warm as it gets
            yield follower
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()

    @property
    def _results(self) -> Path:
        return self.folder / "duckdb"


class Follower:
    """A process that follows the sources of a shop and tells each sync by a line."""

    def __init__(self, shop: Shop, process: subprocess.Popen[bytes]) -> None:
        self.shop, self.process = shop, process

    def hour(self) -> Figures:
        """Seconds from the last commit of an hour to the tables that hold it."""
        self.shop.next_hour()
        return self._until_published("customers")  # theirs is an hour's last commit

    def commit(self) -> Figures:
        """Seconds from one commit, of new items of old orders, to the tables that hold it."""
        self.shop.add_items()
        return self._until_published("items")

    def _until_published(self, name: str) -> Figures:
        committed = time.perf_counter()
        while not _has(self._line(), name):
            if time.perf_counter() > committed + PATIENCE:
                raise Failed("the follower takes too long")
        return {"s": time.perf_counter() - committed}

    def _line(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed("the follower ended")
        return json.loads(line)


def _has(sync: Any, name: str) -> bool:
    """Whether a sync has taken in rows of an input."""
    return any(ingest["input"] == name and ingest["rows"] for ingest in sync.get("ingests", ()))
