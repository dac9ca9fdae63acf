"""How even the work of sixteen workers is, where keys are not even: of each of these workloads two figures.

The busiest worker's load over the mean; and the sum of the greatest loads of all supersteps over that of the means:
in each superstep all wait for the one that has most to do. See :mod:`bench.balance_engine` for what a load is. Nothing
here depends on how fast the machine is, so one round is enough.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.measure import Result, prompt_to_prompt
from bench.parallelism import dd
from bench.project import REPOSITORY

WORKERS = 16
ASKED = 1.25
SEED = 20261126
NODES, ROWS, DAYS = 50_000, 1_000_000, 30
SIDE, HUB_EDGES = 100, 200_000

GRAPH = """
import ddcore as dd
from ddcore import algorithms


def program({inputs}):
    return {{"out": algorithms.{algorithm}({inputs})}}
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
PRICED = """
import ddcore as dd


def program(orders, prices):
    return {"priced": orders.join_between(prices, "at", "since", "until").select("id", "price")}
"""
APPENDED = """
import ddcore as dd


def program(orders):
    return {"largest": orders.group_by("id").top_k(1, "amount")}
"""


def run(rounds: int) -> Iterator[Result]:
    """Each workload once."""
    for name, write in WORKLOADS.items():
        with tempfile.TemporaryDirectory() as scratch:
            write(Path(scratch))
            command = [sys.executable, "-m", "bench.balance_engine", scratch, WORKERS]
            figures = json.loads(prompt_to_prompt(command, cwd=REPOSITORY)[1].splitlines()[-1])
        peer, unit = f"asked: {ASKED} times the mean", "times the mean"
        yield Result(f"busiest of {WORKERS} workers, {name}", figures["balance"], peer, ASKED, 1, unit=unit)
        waits = f"slowest of {WORKERS} workers in each of {figures['supersteps']} supersteps, {name}"
        yield Result(waits, figures["waits"], peer, ASKED, 1, unit=unit)


def power_law() -> pl.DataFrame:
    """A graph whose degrees d are as frequent as 1/d**2, with random ends."""
    rng = np.random.default_rng(SEED)
    degrees = np.minimum(1 / rng.random(NODES), NODES / 2).astype(np.int64)
    ends = np.repeat(rng.permutation(NODES), degrees)
    return pl.DataFrame({"src": rng.permutation(ends), "dst": rng.permutation(ends)}).unique(maintain_order=True)


def hub() -> pl.DataFrame:
    """A graph in which one node is an end of three of ten edges."""
    rng, few = np.random.default_rng(SEED), HUB_EDGES * 3 // 10
    src = np.where(np.arange(HUB_EDGES) < few, 0, rng.integers(0, few, HUB_EDGES))
    dst = np.concatenate([rng.permutation(few), rng.integers(0, few, HUB_EDGES - few)])
    return pl.DataFrame({"src": src, "dst": dst}).unique(maintain_order=True)


def grid() -> pl.DataFrame:
    """A square of nodes, each with edges from and to its neighbours, as roads are; sorted, four times over."""
    node = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    pairs = [(node[:, :-1], node[:, 1:]), (node[:-1], node[1:])]
    ends = [(one.ravel(), other.ravel()) for pair in pairs for one, other in (pair, pair[::-1])]
    src, dst = (np.concatenate(side) for side in zip(*ends, strict=True))
    return pl.DataFrame({"src": src, "dst": dst})


def votes() -> pl.DataFrame:
    """Who voted on whom in Wikipedia: a real graph."""
    return pl.read_parquet(REPOSITORY / "sample_data" / "wiki_vote" / "edges.parquet").cast(pl.Int64)


def graph(edges: Callable[[], pl.DataFrame], algorithm: str) -> Callable[[Path], None]:
    """Writes the project of an algorithm over a graph; a search begins at the node with the most edges."""

    def write(folder: Path) -> None:
        inputs = {"edges": edges()}
        if algorithm == "bfs":
            inputs["roots"] = inputs["edges"].select(node=pl.col("src").mode().min())
        write_project(folder, GRAPH.format(inputs=", ".join(inputs), algorithm=algorithm), **inputs)

    return write


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


def between(folder: Path, share: float = 0.0) -> None:
    """Each order with the price at its moment: most are early, where prices follow each other fast, and a ``share`` is
    at one moment.
    """
    rng = np.random.default_rng(SEED)
    moments = (np.minimum(1 / rng.random(ROWS), ROWS) * 1_000).astype(np.int64)
    moments[rng.random(ROWS) < share] = 7_777_777
    since = np.unique(moments[: ROWS // 20])
    until = np.append(since[1:], np.int64(2) * ROWS * 1_000) - 1
    prices = pl.DataFrame({"since": since, "until": until, "price": rng.integers(1, 9, len(since))})
    write_project(folder, PRICED, orders=pl.DataFrame({"id": np.arange(ROWS), "at": moments}), prices=prices)


def daily(folder: Path) -> None:
    """A day of new orders, where those of the days before are folded already."""
    rng = np.random.default_rng(SEED)
    orders = pl.DataFrame({"id": np.arange(3 * ROWS), "amount": rng.integers(1, 100, 3 * ROWS)})
    orders = orders.with_columns(version=pl.col("id") * DAYS // len(orders))
    write_project(folder, APPENDED, orders=orders.filter(pl.col("version") < DAYS - 1))
    dd(folder, "run", "--engine", "inline")
    _ingest(folder, "orders", orders.filter(pl.col("version") == DAYS - 1))


WORKLOADS: dict[str, Callable[[Path], None]] = {
    "components of a power-law graph": graph(power_law, "components"),
    "search in a power-law graph": graph(power_law, "bfs"),
    "components, 30 % of the edges at one node": graph(hub, "components"),
    "search in a grid": graph(grid, "bfs"),
    "components of votes": graph(votes, "components"),
    "search in votes": graph(votes, "bfs"),
    "triangles of votes": graph(votes, "triangles"),
    "totals, 30 % of the rows of one key": heavy_group,
    "join, 30 % of the rows of one key": heavy_join,
    "rows between two values, without keys": between,
    "rows between two values, 30 % at one value": partial(between, share=0.3),
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
