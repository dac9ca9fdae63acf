"""How even the work of sixteen workers is: the busiest one's load over the mean, where keys are not even.

A load is the updates and pending times that a worker handled and the updates that its operators sent. The workers are
processes without Spark; only what they did counts, not how long it took.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.measure import Figures, Result, in_turn
from bench.parallelism import dd
from bench.superstep import figures_of

WORKERS = 16
ASKED = 1.25
SEED = 20261126
NODES, ROWS, DAYS = 50_000, 1_000_000, 30

COMPONENTS = """
import ddcore as dd
from ddcore import algorithms


def program(edges):
    return {"components": algorithms.components(edges)}
"""
GROUPED = """
import ddcore as dd


def program(orders):
    by_key = orders.group_by("customer")
    return {"totals": by_key.agg(n=dd.count(), total=dd.sum("amount"))}
"""
JOINED = """
import ddcore as dd


def program(orders, customers):
    return {"priced": orders.join(customers, on="customer").select("id", cost="amount * price")}
"""
APPENDED = """
import ddcore as dd


def program(orders):
    return {"largest": orders.group_by("id").top_k(1, "amount")}
"""


def run(rounds: int) -> Iterator[Result]:
    """A power-law graph, one key with three of ten rows (grouped, and joined), and a day beyond a history of days."""
    for name, write in WORKLOADS.items():
        with tempfile.TemporaryDirectory() as scratch:
            busiest = in_turn({"": partial(_busiest, Path(scratch), write)}, 1)[""]["balance"]
        what = f"busiest of {WORKERS} workers, {name}"
        yield Result(what, busiest, f"asked: {ASKED} times the mean", ASKED, 1, unit="times the mean")


def _busiest(folder: Path, write: Callable[[Path], None]) -> Figures:
    write(folder)
    return figures_of(folder, WORKERS)


def power_law(folder: Path) -> None:
    """A graph whose degrees d are as frequent as 1/d**2, with random ends."""
    rng = np.random.default_rng(SEED)
    degrees = np.minimum(1 / rng.random(NODES), NODES / 2).astype(np.int64)
    ends = np.repeat(rng.permutation(NODES), degrees)
    edges = pl.DataFrame({"src": rng.permutation(ends), "dst": rng.permutation(ends)}).unique(maintain_order=True)
    write_project(folder, COMPONENTS, edges=edges)


def _orders(rng: np.random.Generator) -> pl.DataFrame:
    """Orders, three of ten of one customer, the others of many."""
    heavy, others = rng.random(ROWS) < 0.3, rng.integers(0, ROWS // 20, ROWS)
    return pl.DataFrame(
        {"id": np.arange(ROWS), "customer": np.where(heavy, 777, others), "amount": rng.integers(1, 100, ROWS)}
    )


def heavy_group(folder: Path) -> None:
    """Totals by customer."""
    write_project(folder, GROUPED, orders=_orders(np.random.default_rng(SEED)))


def heavy_join(folder: Path) -> None:
    """Each order with what its customer pays."""
    rng = np.random.default_rng(SEED)
    customers = pl.DataFrame({"customer": np.arange(ROWS // 20), "price": rng.integers(1, 9, ROWS // 20)})
    write_project(folder, JOINED, orders=_orders(rng), customers=customers)


def daily(folder: Path) -> None:
    """A day of new orders, where those of the days before are folded already."""
    rng = np.random.default_rng(SEED)
    orders = pl.DataFrame({"id": np.arange(3 * ROWS), "amount": rng.integers(1, 100, 3 * ROWS)})
    orders = orders.with_columns(version=pl.col("id") * DAYS // len(orders))
    write_project(folder, APPENDED, orders=orders.filter(pl.col("version") < DAYS - 1))
    dd(folder, "run", "--engine", "inline")
    _ingest(folder, "orders", orders.filter(pl.col("version") == DAYS - 1))


WORKLOADS: dict[str, Callable[[Path], None]] = {
    "components of a power-law graph": power_law,
    "totals, 30 % of the rows of one key": heavy_group,
    "join, 30 % of the rows of one key": heavy_join,
    "a day appended to thirty": daily,
}


def write_project(folder: Path, program: str, **inputs: pl.DataFrame) -> None:
    """A project with this program, and these rows ingested at version 0 or their own."""
    lines = ["[project]", 'program = "program.py:program"', 'warehouse = "warehouse"']
    for name, rows in inputs.items():
        columns = ", ".join(f'{column} = "int64"' for column in rows.columns if column != "version")
        lines += [f"[inputs.{name}]", f"schema = {{ {columns} }}"]
    (folder / "dd.toml").write_text("\n".join(lines) + "\n")
    (folder / "program.py").write_text(program)
    for name, rows in inputs.items():
        _ingest(folder, name, rows)


def _ingest(folder: Path, name: str, rows: pl.DataFrame) -> None:
    version = pl.col("version") if "version" in rows.columns else pl.lit(0)
    file = folder / f"{name}-{len(rows)}.parquet"
    rows.with_columns(version=version, diff=pl.lit(1)).write_parquet(file)
    dd(folder, "ingest", name, file, "--engine", "inline")
