"""`dd show --where` and the first rows of a large output, against DuckDB on the same Parquet files.

What is compared is processor time beyond the start: of either side, that of the same command on an output of ten rows
is subtracted. One row by the log's order costs less than starts differ by: it is measured in one process, too.
``DDCORE_BENCH_ROWS`` sets another number of rows than 4,000,000.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.measure import Failed, Figures, Result, Side, Skipped, in_turn, polars_alone, prompt_costs, prompt_to_prompt
from bench.project import DDCORE, REPOSITORY

ROWS = int(os.environ.get("DDCORE_BENCH_ROWS", "4_000_000"))
QUESTIONS = 40  # in one process
SETTINGS = """\
[project]
program   = "program.py:program"
warehouse = "warehouse"

[run]
engine = "inline"

[inputs.trips]
schema = { trip = "int64", town = "string", distance = "int64", fare = "float64" }
"""
PROGRAM = """\
def program(trips):
    return {"all_trips": trips.select("trip", "town", "distance", "fare"), "ten_trips": trips.where("trip < 10")}
"""


def run(rounds: int) -> Iterator[Result]:
    """Each round: all commands and DuckDB's queries, and both on ten rows."""
    if importlib.util.find_spec("duckdb") is None:
        raise Skipped("duckdb is not installed: pip install 'ddcore[bench]'")
    rows = ROWS
    questions = {
        "one row by a column in the log's order": (f"trip = {rows // 3}", 0),
        "one row in 5,000 by another column": ("town = 'town-77'", 0),
        "one row in 50,000 by an expression": ("town = 'town-77' AND distance % 10 = 7", 0),
        "the first ten rows": ("", 10),
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        load(folder, rows)
        sides: dict[str, Side] = {"Polars": lambda: polars_alone(folder), "diff": partial(first_changes, folder)}
        for name, (condition, limit) in questions.items():
            for table in ("all_trips", "ten_trips"):
                sides[f"{name}: {table}"] = partial(shown, folder, table, condition, limit)
                sides[f"{name}: DuckDB: {table}"] = partial(peer, folder, table, condition, limit)
        for condition, limit in questions.values():
            agree(folder, condition, limit)
        for side in ("ours", "duckdb"):
            sides[f"in one process: {side}"] = partial(in_one_process, folder, side, rows)
        runs = in_turn(sides, rounds)
        one, other = (runs[f"in one process: {side}"]["rows"] for side in ("ours", "duckdb"))
        if one != other:
            raise Failed(f"in one process: {one} rows, DuckDB has {other}")
        figures = {name: item["cpu_s"] for name, item in runs.items()}
    for name in questions:
        ours, others = (
            figures[f"{name}: {who}all_trips"] - figures[f"{name}: {who}ten_trips"] for who in ("", "DuckDB: ")
        )
        what = f"dd show of {rows:,} rows, {name}, processor time beyond the start"
        yield Result(what, max(ours, 0.001), "DuckDB", max(others, 0.001), rounds)
    ours, others = (figures[f"in one process: {side}"] for side in ("ours", "duckdb"))
    what = f"at(where=) of {rows:,} rows in one process, one row by a column in the log's order, processor time"
    yield Result(what, ours, "DuckDB", others, rounds)
    start = figures["one row by a column in the log's order: ten_trips"]
    yield Result(
        "dd show --where of ten rows, processor time", start, "Python importing Polars", figures["Polars"], rounds
    )
    name = f"dd diff ..0 --limit 10 of {rows:,} rows, processor time"
    yield Result(name, figures["diff"], "Python importing Polars", figures["Polars"], rounds)


def load(folder: Path, rows: int) -> None:
    """A project with two outputs, at two versions."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(SETTINGS)
    rng = np.random.default_rng(7)
    trips = pl.DataFrame(
        {
            "trip": rng.permutation(rows),
            "town": pl.Series("town", rng.integers(0, 5_000, rows)).cast(pl.String),
            "distance": rng.integers(0, 1_000, rows),
            "fare": rng.integers(0, 100_000, rows) / 100,
        }
    ).with_columns(pl.format("town-{}", "town").alias("town"))
    old = trips.head(1_000)
    changes = [old.with_columns(diff=pl.lit(-1)), old.with_columns(pl.col("distance") + 1, diff=pl.lit(1))]
    for version, frame in enumerate((trips.with_columns(diff=pl.lit(1)), pl.concat(changes))):
        file = folder / f"{version}.parquet"
        frame.with_columns(version=pl.lit(version)).write_parquet(file)
        prompt_to_prompt([DDCORE, "ingest", "trips", file, "-q"], folder)
        prompt_to_prompt([DDCORE, "run", "-q"], folder)


def shown(folder: Path, output: str, condition: str, limit: int) -> Figures:
    """The cost of a command."""
    return prompt_costs(_command(output, condition, limit), folder)


def peer(folder: Path, output: str, condition: str, limit: int) -> Figures:
    """The cost of DuckDB's answer."""
    return prompt_costs(_query(folder, output, condition, limit), REPOSITORY)


def in_one_process(folder: Path, side: str, rows: int) -> Figures:
    """The cost of one row, of many that one process asks for: no start is in it."""
    words = [sys.executable, "-m", "bench.where_engine", side, folder, rows, QUESTIONS]
    figures: Figures = json.loads(prompt_to_prompt(words, REPOSITORY)[1])
    return figures


def first_changes(folder: Path) -> Figures:
    """The cost of the first ten of all changes."""
    return prompt_costs([DDCORE, "diff", "all_trips", "..0", "--limit", "10"], folder)


def agree(folder: Path, condition: str, limit: int) -> None:
    """Raise Failed where the two do not show as many rows."""
    lines = prompt_to_prompt(_command("all_trips", condition, limit), folder)[1].splitlines()
    other = int(prompt_to_prompt(_query(folder, "all_trips", condition, limit), REPOSITORY)[1])
    if len(lines) - 4 != other:
        raise Failed(f"where {condition}: {len(lines) - 4} rows, DuckDB has {other}")


def _command(output: str, condition: str, limit: int) -> list[object]:
    return [DDCORE, "show", output, "--limit", limit, *(["--where", condition] if condition else [])]


def _query(folder: Path, output: str, condition: str, limit: int) -> list[object]:
    table = folder / "warehouse" / "outputs" / output
    return [sys.executable, "-m", "bench.peers.where_duckdb", table, condition, limit]
