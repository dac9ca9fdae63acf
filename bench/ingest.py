"""`dd ingest` against DuckDB's COPY, from Parquet and from CSV; an upsert against the same file as a snapshot.

In processor time, from prompt to prompt. Not among the default benchmarks: ``python -m bench ingest``.
``DDCORE_BENCH_ROWS`` sets another number of rows than 20M; the upsert has a twentieth of them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.measure import Failed, Figures, Result, Skipped, in_turn, prompt_costs
from bench.project import DDCORE, REPOSITORY

_SHARE, _CHANGED, _NAMES = 20, 100, 50_000
SETTINGS = """[project]
program = "program.py:program"
[inputs.orders]
schema = { id = "int64", name = "string", amount = "float64" }
"""
_COPY = "import sys, duckdb; duckdb.sql(f\"COPY (FROM '{sys.argv[1]}') TO '{sys.argv[2]}' (FORMAT parquet)\")"


def run(rounds: int) -> Iterator[Result]:
    """Each round: both formats by both, then the same second content as a snapshot and by an upsert."""
    if importlib.util.find_spec("duckdb") is None:
        raise Skipped("DuckDB is not installed: pip install 'ddcore[bench]'")
    rows = int(os.environ.get("DDCORE_BENCH_ROWS", "20_000_000"))
    few = max(rows // _SHARE, _CHANGED)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _make(folder, rows, few)
        sides = {}
        for kind in ("parquet", "csv"):
            sides[kind] = partial(_first, folder, folder / f"rows.{kind}", rows)
            sides[f"{kind}, copied"] = partial(_copied, folder, folder / f"rows.{kind}")
        sides |= {form: partial(_second, folder, form) for form in ("snapshot", "upsert")}
        medians = in_turn(sides, rounds)
    for kind, name in (("parquet", "Parquet"), ("csv", "CSV")):
        title, peer = f"dd ingest, {rows:,} rows of {name}, inline, processor time", "DuckDB, COPY"
        yield _result(title, medians[kind], peer, medians[f"{kind}, copied"], rounds)
    title = f"dd ingest --upsert, {_CHANGED} of {few:,} rows differ, inline, processor time"
    yield _result(title, medians["upsert"], "--snapshot", medians["snapshot"], rounds)


def _result(name: str, ours: Figures, peer: str, other: Figures, rounds: int) -> Result:
    return Result(name, ours["cpu_s"], peer, other["cpu_s"], rounds)


def _make(folder: Path, rows: int, few: int) -> None:
    """The sources, and a project that holds the first content."""
    rng = np.random.default_rng(0)
    names = pl.Series("name", [f"name {number}" for number in range(_NAMES)])
    frame = pl.DataFrame(
        {
            "id": np.arange(rows),
            "name": names.gather(rng.integers(0, _NAMES, rows)),
            "amount": np.round(rng.random(rows) * 1000, 2),
        }
    )
    frame.write_parquet(folder / "rows.parquet")
    frame.write_csv(folder / "rows.csv")
    old = frame.head(few)
    differs = pl.col("id") % (few // _CHANGED) == 0
    differs &= pl.col("id") < few // _CHANGED * _CHANGED
    old.write_parquet(folder / "old.parquet")
    old.with_columns(amount=pl.col("amount") + differs.cast(pl.Float64)).write_parquet(folder / "new.parquet")
    _ingest(_project(folder / "held"), folder / "old.parquet", "--snapshot")


def _project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "dd.toml").write_text(SETTINGS)
    (folder / "program.py").write_text("def program(orders):\n    return {'orders_now': orders}\n")
    return folder


def _ingest(project: Path, source: Path, *form: str) -> Figures:
    command = [DDCORE, "ingest", "orders", source, *form, "--engine", "inline", "--project", project]
    return prompt_costs(command, cwd=REPOSITORY)


def _first(folder: Path, source: Path, rows: int) -> Figures:
    """The costs of an ingest into a new warehouse."""
    project = _project(folder / "first")
    figures = _ingest(project, source, "--append")
    _require(_rows(project) == rows, f"{source.name}: not all rows were taken in")
    shutil.rmtree(project)
    return figures


def _second(folder: Path, form: str) -> Figures:
    """The costs of the second content, as a snapshot or by an upsert."""
    project, before = folder / form, _rows(folder / "held")
    shutil.copytree(folder / "held", project)
    figures = _ingest(project, folder / "new.parquet", f"--{form}", *(["--key", "id"] if form == "upsert" else []))
    _require(_rows(project) == before + 2 * _CHANGED, f"--{form}: not the rows that differ were taken in")
    shutil.rmtree(project)
    return figures


def _rows(project: Path) -> int:
    """The rows of the input's log."""
    return int(
        pl.scan_parquet(project / "warehouse" / "inputs" / "orders" / "*.parquet").select(pl.len()).collect().item()
    )


def _copied(folder: Path, source: Path) -> Figures:
    return prompt_costs([sys.executable, "-c", _COPY, source, folder / "copy.parquet"], cwd=REPOSITORY)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(what)
