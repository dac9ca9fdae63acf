"""Published tables by all executors: a first publication, and changes all over the table, on two executors of one core
against one, and against the command alone.

There are ``DDCORE_BENCH_ROWS`` rows, twenty million unless it says otherwise; one in a thousand changes. The runs are
folded before, so that what is measured is the publication, and a session of Spark where there is one.
"""

from __future__ import annotations

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

from bench.measure import Failed, Figures, Result, agree, in_turn, prompt_costs, prompt_to_prompt
from bench.published import PROGRAM, SETTINGS, drawn

ROWS = int(os.environ.get("DDCORE_BENCH_ROWS", "20_000_000"))
MEMORY = 1024  # MiB of an executor's JVM
DDCORE = Path(sys.executable).with_name("ddcore")
WAYS = ("first", "changed")


def run(rounds: int) -> Iterator[Result]:
    """Each round: both publications by this process, by one executor, and by two."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in WAYS:
            _fold(folder / name, changed=name == "changed")
        sides = {name: partial(_published, folder, name) for name in ("command", "1", "2")}
        medians = in_turn(sides, rounds)
    agree(medians, "rows", "sum")
    two = medians["2"]
    for way in WAYS:
        name = f"published table of {ROWS:,} rows, {way}, 2 executors of one core"
        for peer, side in (("1 executor of one core", "1"), ("the command alone", "command")):
            other = medians[side]
            yield Result(
                name, two[f"{way}_s"], peer, other[f"{way}_s"], rounds,
                ours_peak_mib=two[f"{way}_mib"], peer_peak_mib=other[f"{way}_mib"],
            )  # fmt: skip


def _fold(project: Path, *, changed: bool) -> None:
    """A project with a log; of the changes the table knows nothing yet."""
    project.mkdir()
    (project / "program.py").write_text(PROGRAM)
    (project / "dd.toml").write_text(SETTINGS.format(table="true" if changed else "false"))
    rows = drawn(np.arange(ROWS)).with_columns(version=pl.lit(0), diff=pl.lit(1))
    _run(project, rows, 0)
    if changed:
        (project / "dd.toml").write_text(SETTINGS.format(table="false"))
        old = rows.gather_every(1000).with_columns(version=pl.lit(1))
        new = old.with_columns(pl.col("price") + 1)
        _run(project, pl.concat([old.with_columns(diff=pl.lit(-1)), new]), 1)
    (project / "dd.toml").write_text(SETTINGS.format(table="true"))


def _run(project: Path, updates: pl.DataFrame, version: int) -> None:
    file = project / f"{version}.parquet"
    updates.write_parquet(file)
    prompt_to_prompt([DDCORE, "ingest", "orders", file, "-q"], project)
    prompt_to_prompt([DDCORE, "run", "-q"], project)
    file.unlink()


def _published(folder: Path, by: str) -> Figures:
    """Seconds of either publication, the peak of the command's memory, and what the tables hold then."""
    figures: Figures = {}
    for way in WAYS:
        table, kept = folder / way / "warehouse" / "tables" / "orders", folder / "kept"
        if way == "changed":
            shutil.copytree(table, kept)
        where = (
            ["--engine", "inline"]
            if by == "command"
            else ["--engine", "spark", "--master", f"local-cluster[{by},1,{MEMORY}]"]
        )
        costs = prompt_costs([DDCORE, "run", "-q", *where], folder / way)
        figures[f"{way}_s"], figures[f"{way}_mib"] = costs["s"], costs["peak_mib"]
        held = pl.scan_delta(str(table)).select(rows=pl.len(), sum=pl.col("price").cast(pl.Float64).sum()).collect()
        if DeltaTable(str(table)).version() != (way == "changed"):
            raise Failed(f"{way}, {by}: the table was made again")
        figures["rows"] = figures.get("rows", 0) + held["rows"].item()
        figures["sum"] = round(figures.get("sum", 0) + held["sum"].item())
        shutil.rmtree(table)
        if way == "changed":
            kept.rename(table)
    return figures
