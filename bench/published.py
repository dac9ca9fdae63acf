"""Published tables: what it costs to bring one up to a run, of 100,000 and of 1,000,000 rows, beside writing it whole.

A thousand rows change at each version, neighbours in the table's order or spread over it. What is compared is processor
time beyond that of the same run of a project without the table; the peer is a script with Polars that adds up the log
and writes the table anew. ``DDCORE_BENCH_ROWS`` sets another number of rows than 1,000,000.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from bench.measure import Failed, Figures, Result, Side, in_turn, prompt_costs, prompt_to_prompt
from bench.project import DDCORE, REPOSITORY

ROWS = int(os.environ.get("DDCORE_BENCH_ROWS", "1_000_000"))
CHANGED = 1_000
SETTINGS = """\
[project]
program = "program.py:program"

[run]
engine = "inline"

[inputs.orders]
schema = {{ id = "int64", town = "string", day = "date", price = "decimal(12,2)", note = "string" }}

[outputs.orders]
key = ["id"]
table = {table}
"""
PROGRAM = 'def program(orders):\n    return {"orders": orders}\n'
WHOLE = """
import sys
import polars as pl
log = pl.scan_delta(sys.argv[1])
rows = [name for name in log.collect_schema() if name not in ("version", "diff")]
present = log.group_by(rows).agg(pl.col("diff").sum()).filter(pl.col("diff") > 0).drop("diff")
present.sort("id").collect(engine="streaming").write_delta(sys.argv[2], mode="overwrite")
"""


class Orders:
    """A project with so many rows, and its twin without a table; versions come one after the other."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folders = {"with": folder / f"with-{rows}", "without": folder / f"without-{rows}"}
        self.rng, self.rows, self.version = np.random.default_rng(3), drawn(np.arange(rows)), 0
        for name, location in self.folders.items():
            location.mkdir(parents=True)
            (location / "program.py").write_text(PROGRAM)
            (location / "dd.toml").write_text(SETTINGS.format(table="true" if name == "with" else "false"))
        self._step(self.rows.with_columns(diff=pl.lit(1)))

    def change(self, *, spread: bool) -> Figures:
        """The processor time of a run of a thousand changed rows with the table, without it, and of writing all."""
        number = len(self.rows)
        begin = int(self.rng.integers(0, number - CHANGED))
        locations = self.rng.choice(number, CHANGED, replace=False) if spread else np.arange(begin, begin + CHANGED)
        old = self.rows[np.sort(locations)]
        new = old.with_columns(pl.col("price") + 1)
        self.rows = self.rows.join(old.select("id"), on="id", how="anti").vstack(new).sort("id")
        figures = self._step(pl.concat([old.with_columns(diff=pl.lit(-1)), new.with_columns(diff=pl.lit(1))]))
        location = self.folders["with"] / "warehouse"
        script = [sys.executable, "-c", WHOLE, location / "outputs" / "orders", location.parent / "whole"]
        whole = prompt_costs(script, REPOSITORY)["cpu_s"]
        if not pl.read_delta(str(location / "tables" / "orders")).sort("id").equals(self.rows):
            raise Failed("the table does not hold the rows")
        return {"table": max(figures["with"] - figures["without"], 0.001), "whole": whole, "run": figures["with"]}

    def _step(self, updates: pl.DataFrame) -> Figures:
        figures = {}
        for name, location in self.folders.items():
            file = location / f"{self.version}.parquet"
            updates.with_columns(version=pl.lit(self.version)).write_parquet(file)
            prompt_to_prompt([DDCORE, "ingest", "orders", file, "-q"], location)
            figures[name] = prompt_costs([DDCORE, "run", "-q"], location)["cpu_s"]
        self.version += 1
        return figures


def drawn(ids: np.ndarray) -> pl.DataFrame:
    """Orders with these ids."""
    rng = np.random.default_rng(11)
    return pl.DataFrame(
        {
            "id": ids,
            "town": pl.Series(rng.integers(0, 500, len(ids))).cast(pl.String),
            "day": pl.Series(20_000 + ids // 2_000).cast(pl.Int32).cast(pl.Date),
            "price": pl.Series(rng.integers(0, 10**6, len(ids))).cast(pl.Decimal(12, 2)),
            "note": pl.Series(rng.integers(0, 10**9, len(ids))).cast(pl.String),
        }
    )


def run(rounds: int) -> Iterator[Result]:
    """Each round: a version of neighbours and one of spread changes, of either size."""
    with tempfile.TemporaryDirectory() as scratch:
        sizes = {rows: Orders(Path(scratch), rows) for rows in (ROWS // 10, ROWS)}
        sides: dict[str, Side] = {}
        for rows, orders in sizes.items():
            for kind in ("neighbours", "spread"):
                sides[f"{kind}, {rows}"] = lambda orders=orders, kind=kind: orders.change(spread=kind == "spread")  # type: ignore[misc]
        runs = in_turn(sides, rounds)
    what = f"a published table of {ROWS:,} rows, {CHANGED:,} changed neighbours, processor time"
    one, ten = (runs[f"neighbours, {rows}"] for rows in sizes)
    yield Result(what, ten["table"], f"ours, of {ROWS // 10:,} rows", one["table"], rounds)
    yield Result(what, ten["table"], "Polars adds up the log and writes all", ten["whole"], rounds)
    spread = runs[f"spread, {ROWS}"]
    what = f"a published table of {ROWS:,} rows, {CHANGED:,} changes all over it, processor time"
    yield Result(what, spread["table"], "Polars adds up the log and writes all", spread["whole"], rounds)
