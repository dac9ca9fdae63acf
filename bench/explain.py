"""`dd explain` of one row: what it reads and folds because of the row's values, against a fold of everything.

Not among the default benchmarks: ``python -m bench explain``. Three programs: sums over joins, of which little is
needed; a loop that follows a chain; and a search that reaches its row from everywhere, of which all is needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.measure import Result, agree, in_turn
from bench.project import engine
from ddcore.io.project.finding import find_project
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest

ORDERS, EMPLOYEES, EDGES = 1_000_000, 200_000, 200_000
SUMS = """
def program(orders, products, customers):
    lines = orders.join(products, on="product").with_columns(total=dd.col("price") * dd.col("amount"))
    spent = lines.group_by("customer").agg(total=dd.sum("total"), n=dd.count())
    return {"spent": customers.join(spent, on="customer")}
"""
CHAIN = """
def program(reports):
    def up(above):
        pairs = above.join(reports, on={"boss": "employee"})
        return pairs.select("employee", boss="boss_right").concat(reports).distinct()

    return {"levels": reports.iterate(up).group_by("employee").agg(n=dd.count())}
"""
SEARCH = """
def program(edges, roots):
    def onward(reached):
        return reached.join(edges, on={"node": "src"}).select(node="dst").concat(roots).distinct()

    return {"reached": roots.iterate(onward)}
"""


@dataclass(frozen=True)
class Case:
    """A program, its inputs at version 0, and the row that is explained."""

    name: str
    program: str
    inputs: dict[str, pl.DataFrame]
    output: str
    key: str


def cases() -> Iterator[Case]:
    """Seeded: the same in each run."""
    rng = np.random.default_rng(20261123)
    customers, products = ORDERS // 20, ORDERS // 200
    orders = {
        "id": np.arange(ORDERS), "customer": rng.integers(0, customers, ORDERS),
        "product": rng.integers(0, products, ORDERS), "amount": rng.integers(1, 9, ORDERS),
    }  # fmt: skip
    inputs = {
        "orders": orders,
        "products": {"product": np.arange(products), "price": rng.integers(1, 100, products)},
        "customers": {"customer": np.arange(customers), "region": rng.integers(0, 20, customers)},
    }
    yield Case(f"a sum over joins, {ORDERS:,} orders", SUMS, _frames(inputs), "spent", f"customer={customers // 2}")
    employees = np.arange(1, EMPLOYEES)
    reports = {"reports": {"employee": employees, "boss": (employees - 1) // 8}}
    yield Case(f"a loop, {EMPLOYEES:,} rows", CHAIN, _frames(reports), "levels", f"employee={EMPLOYEES - 5}")
    nodes = EDGES // 5
    edges = {"src": rng.integers(0, nodes, EDGES), "dst": rng.integers(0, nodes, EDGES)}
    search = _frames({"edges": edges, "roots": {"node": np.arange(1)}})
    node = int(edges["dst"][0])
    yield Case(f"a search, {EDGES:,} edges, all needed", SEARCH, search, "reached", f"node={node}")


def run(rounds: int) -> Iterator[Result]:
    """Each case: the explanation, and the same with whole inputs. Both name the same number of input rows."""
    for case in cases():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            make_project(folder, case)
            side = partial(engine, "explain_engine", folder, case.output, case.key)
            medians = in_turn({"ours": side, "whole": partial(side, "--whole")}, rounds)
        ours, whole = medians["ours"], medians["whole"]
        agree(medians, "rows")
        yield Result(
            f"dd explain: {case.name}", ours["s"], "a fold of whole inputs", whole["s"], rounds,
            ours_cpu_s=ours["cpu_s"], peer_cpu_s=whole["cpu_s"],
            ours_peak_mib=ours["peak_mib"], peer_peak_mib=whole["peak_mib"],
        )  # fmt: skip


def make_project(folder: Path, case: Case) -> None:
    """A project with the case's inputs, ingested and folded."""
    (folder / "program.py").write_text(f"import ddcore as dd\n\n{case.program}")
    tables = ['[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n']
    for name, frame in case.inputs.items():
        schema = ", ".join(f'{column} = "int64"' for column in frame.columns)
        tables.append(f"[inputs.{name}]\nschema = {{ {schema} }}\n")
    (folder / "dd.toml").write_text("".join(tables))
    project = find_project(folder, {})
    for name, frame in case.inputs.items():
        file = folder / f"{name}.parquet"
        frame.with_columns(version=pl.lit(0), diff=pl.lit(1)).write_parquet(file)
        ingest(project, name, [str(file)], engine="inline")
    replay.run(project, engine="inline")


def _frames(inputs: dict[str, dict[str, np.ndarray]]) -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame(columns).unique(maintain_order=True) for name, columns in inputs.items()}
