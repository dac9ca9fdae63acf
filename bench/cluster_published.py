"""Published tables by tasks of Spark against the command alone: a first publication, and changes all over the table.

By two executors of one core, by one, and by the command, at three sizes; the greatest has ``DDCORE_BENCH_ROWS``
rows, twenty million unless it says otherwise, and each other a quarter of the next; one row in a thousand changes. What
is measured is the publication alone, in a session that a fold would have begun (:mod:`bench.published_engine`): by the
clock, and the processor time of all processes. Where tasks save time is where they should write: ``shared_rows`` in
``docs/tuning.md``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from deltalake import DeltaTable

from bench.measure import Failed, Figures, Result, agree, in_turn, prompt_to_prompt
from bench.parallelism import dd
from bench.project import REPOSITORY
from bench.published import PROGRAM, SETTINGS, drawn

ROWS = int(os.environ.get("DDCORE_BENCH_ROWS", "20_000_000"))
SMALLER = (16, 4, 1)
MEMORY = 1024  # MiB of an executor's JVM
WAYS = ("first", "changed")
SIDES = {"command": "command", **{str(number): f"local-cluster[{number},1,{MEMORY}]" for number in (1, 2)}}


def run(rounds: int) -> Iterator[Result]:
    """Each size for itself, each round: both publications by the command, by one executor, and by two."""
    for smaller in SMALLER:
        rows = ROWS // smaller
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            for way in WAYS:
                fold(folder / way, rows, changed=way == "changed")
            sides = {name: partial(published, folder, by) for name, by in SIDES.items()}
            medians = in_turn(sides, rounds)
        agree(medians, "rows", "sum")
        for way in WAYS:
            for side, peer in (("2", "1"), ("2", "command"), ("1", "command")):
                ours, other = medians[side], medians[peer]
                yield Result(
                    f"published table of {rows:,} rows, {way}, {named(side)}", ours[f"{way}_s"],
                    named(peer), other[f"{way}_s"], rounds,
                    ours_cpu_s=ours[f"{way}_cpu_s"], peer_cpu_s=other[f"{way}_cpu_s"],
                    ours_peak_mib=ours[f"{way}_mib"], peer_peak_mib=other[f"{way}_mib"],
                )  # fmt: skip


def named(side: str) -> str:
    """A side in words."""
    return {"1": "1 executor of one core", "2": "2 executors of one core", "command": "the command alone"}[side]


def fold(project: Path, rows: int, *, changed: bool) -> None:
    """A project with a log; of the changes the table knows nothing yet."""
    project.mkdir()
    (project / "program.py").write_text(PROGRAM)
    (project / "dd.toml").write_text(SETTINGS.format(table="true" if changed else "false"))
    orders = drawn(np.arange(rows)).with_columns(version=pl.lit(0), diff=pl.lit(1))
    _run(project, orders, 0)
    if changed:
        (project / "dd.toml").write_text(SETTINGS.format(table="false"))
        old = orders.gather_every(1000).with_columns(version=pl.lit(1), diff=pl.lit(-1))
        _run(project, pl.concat([old, old.with_columns(pl.col("price") + 1, diff=pl.lit(1))]), 1)
    (project / "dd.toml").write_text(SETTINGS.format(table="true"))


def _run(project: Path, updates: pl.DataFrame, version: int) -> None:
    file = project / f"{version}.parquet"
    updates.write_parquet(file)
    dd(project, "ingest", "orders", file, "-q")
    dd(project, "run", "-q")
    file.unlink()


def published(folder: Path, by: str) -> Figures:
    """Seconds of either publication, the peak of the command's memory, and what the tables hold then."""
    figures: Figures = {}
    for way in WAYS:
        table, kept = folder / way / "warehouse" / "tables" / "orders", folder / "kept"
        if way == "changed":
            shutil.copytree(table, kept)
        command = [sys.executable, "-m", "bench.published_engine", folder / way, by]
        costs = json.loads(prompt_to_prompt(command, REPOSITORY)[1].splitlines()[-1])
        print(f"{way}, {by}: {costs}", file=sys.stderr, flush=True)
        for name in ("s", "cpu_s", "mib"):
            figures[f"{way}_{name}"] = costs["peak_mib" if name == "mib" else name]
        held = pl.scan_delta(str(table)).select(rows=pl.len(), sum=pl.col("price").cast(pl.Float64).sum()).collect()
        if DeltaTable(str(table)).version() != (way == "changed"):
            raise Failed(f"{way}, {by}: the table was made again")
        figures["rows"] = figures.get("rows", 0) + held["rows"].item()
        figures["sum"] = round(figures.get("sum", 0) + held["sum"].item())
        shutil.rmtree(table)
        if way == "changed":
            kept.rename(table)
    return figures
