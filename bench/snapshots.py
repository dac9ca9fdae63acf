"""`dd ingest --snapshot`: 1M rows of which 100 differ, against a script that reads and joins both, on both engines; and
15,000 snapshots of some 300 rows in one command.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from bench import promises
from bench.measure import Failed, Figures, Result, in_turn, prompt_to_prompt
from bench.project import REPOSITORY

_ROWS, _CHANGED = 1_000_000, 100
_SNAPSHOTS, _SMALL = 15_000, 300
TOML = """[project]
program = "program.py:program"
[inputs.orders]
schema = { id = "int64", name = "string", amount = "float64", day = "int64" }
"""


def run(rounds: int) -> Iterator[Result]:
    """Each round: the second of two large snapshots by each engine, and the scripts; then the many small ones, once."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        large = _large(np.random.default_rng(0))
        large.write_parquet(folder / "old.parquet")
        projects = {engine: _project(folder / engine) for engine in ("inline", "spark")}
        for engine, project in projects.items():
            _ingest(project, engine, folder / "old.parquet")
        count = 0

        def ours(engine: str) -> Figures:
            nonlocal count, large
            count += 1
            _other(large, count).write_parquet(folder / f"{count}.parquet")
            return {"s": _ingest(projects[engine], engine, folder / f"{count}.parquet")}

        def script(engine: str) -> Figures:
            command = [sys.executable, "-m", "bench.bare_join", engine, folder / "old.parquet", folder / "1.parquet"]
            seconds, out = prompt_to_prompt(command, cwd=REPOSITORY)
            if int(out.split()[-1]) != _CHANGED:
                raise Failed(f"the script found {out.strip()} rows that differ, not {_CHANGED}")
            return {"s": seconds}

        sides = {
            "inline": lambda: ours("inline"), "polars": lambda: script("polars"),
            "spark": lambda: ours("spark"), "spark script": lambda: script("spark"),
        }  # fmt: skip
        medians = {name: figures["s"] for name, figures in in_turn(sides, rounds).items()}
        small = _ingest(_project(folder / "small"), "inline", *_series(folder / "series"))
    name = "dd ingest --snapshot, 100 of 1M rows"
    yield Result(f"{name}, inline", medians["inline"], "Polars, both joined", medians["polars"], rounds)
    yield Result(name, medians["spark"], "Spark, both joined", medians["spark script"], rounds)
    most = promises.amount("15,000 snapshots")
    yield Result("15,000 snapshots of 300 rows, inline", small, f"{most:g} s, as promised", most, 1)


def _large(rng: np.random.Generator) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": np.arange(_ROWS),
            "name": [f"name {number}" for number in rng.integers(0, 50_000, _ROWS)],
            "amount": rng.random(_ROWS),
            "day": rng.integers(0, 10_000, _ROWS),
        }
    )


def _other(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    """These rows but for 100, which differ for each ``number``."""
    differs = pl.col("id") % (_ROWS // _CHANGED) == number
    return rows.with_columns(amount=pl.when(differs).then(1.0 + number).otherwise(pl.col("amount")))


def _series(folder: Path) -> list[Path]:
    """Small snapshots, of which each differs from the one before in some three rows."""
    folder.mkdir()
    rng = random.Random(0)
    rows = {number: rng.random() for number in range(_SMALL)}
    files = []
    for snapshot in range(_SNAPSHOTS):
        for _ in range(3):
            rows.pop(rng.choice(list(rows)), None)
            rows[_SMALL + rng.randrange(10_000)] = rng.random()
        ids = pl.Series("id", list(rows))
        frame = pl.DataFrame({"id": ids, "name": ids.cast(pl.String), "amount": list(rows.values()), "day": ids % 7})
        files.append(folder / f"{snapshot:05d}.parquet")
        frame.write_parquet(files[-1])
    return files


def _project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "dd.toml").write_text(TOML)
    (folder / "program.py").write_text("def program(orders):\n    return {'orders_now': orders}\n")
    return folder


def _ingest(project: Path, engine: str, *snapshots: Path) -> float:
    locations = snapshots if len(snapshots) == 1 else [snapshots[0].parent / "*.parquet"]
    command = [
        sys.executable,
        "-m",
        "ddcore.cli.main",
        "ingest",
        "orders",
        *locations,
        "--snapshot",
        "--engine",
        engine,
    ]
    seconds, out = prompt_to_prompt([*command, "--project", project], cwd=REPOSITORY)
    report = json.loads(out.splitlines()[-1])
    if report["nothing_new"] or report["versions"] != len(snapshots):
        raise Failed(f"{engine}: not every snapshot was taken in: {report}")
    return seconds
