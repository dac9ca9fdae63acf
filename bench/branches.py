"""Branches: what it costs to make one of a warehouse with 1,000,000 rows, beside copying its folder; and to compare an
output in both after a thousand rows have changed on the branch, beside Polars, which reads both logs.

``DDCORE_BENCH_ROWS`` sets another number of rows.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from bench.measure import Failed, Figures, Result, in_turn, prompt_costs, prompt_to_prompt
from bench.project import DDCORE, REPOSITORY
from bench.published import CHANGED, PROGRAM, ROWS, SETTINGS, drawn

COMPARE = """
import sys
import polars as pl
one, other = (pl.scan_delta(place).drop("version") for place in sys.argv[1:])
both = pl.concat([one.with_columns(-pl.col("diff")), other])
rows = [name for name in both.collect_schema() if name != "diff"]
found = both.group_by(rows).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0).collect(engine="streaming")
print(len(found))
"""


class Branched:
    """A project with so many rows, and its branch ``try``, on which a thousand have changed."""

    def __init__(self, folder: Path) -> None:
        import numpy as np

        self.folder = folder / "orders"
        self.folder.mkdir()
        (self.folder / "program.py").write_text(PROGRAM)
        (self.folder / "dd.toml").write_text(SETTINGS.format(table="true"))
        rows = drawn(np.arange(ROWS))
        self._fold(rows.with_columns(diff=pl.lit(1), version=pl.lit(0)), "main")
        prompt_to_prompt([DDCORE, "branch", "try", "-q"], self.folder)
        old = rows[:CHANGED]
        new = old.with_columns(pl.col("price") + 1)
        changes = [old.with_columns(diff=pl.lit(-1)), new.with_columns(diff=pl.lit(1))]
        self._fold(pl.concat(changes).with_columns(version=pl.lit(1)), "try")
        own = rows[:1].with_columns(id=pl.lit(ROWS, pl.Int64), diff=pl.lit(1), version=pl.lit(1))
        self._fold(own, "main")

    def _fold(self, updates: pl.DataFrame, branch: str) -> None:
        file = self.folder / f"{branch}.parquet"
        updates.write_parquet(file)
        prompt_to_prompt([DDCORE, "ingest", "orders", file, "-q", "--branch", branch], self.folder)
        prompt_to_prompt([DDCORE, "run", "-q", "--branch", branch], self.folder)

    def make(self) -> Figures:
        """Make a branch; it is deleted again."""
        before = _used(self.folder)
        figures = prompt_costs([DDCORE, "branch", "new", "-q"], self.folder)
        figures["bytes"] = _used(self.folder) - before
        prompt_to_prompt([DDCORE, "branch", "new", "--delete", "-q"], self.folder)
        return figures

    def copy(self) -> Figures:
        """Copy the folder, without its branches."""
        warehouse, copy = self.folder / "warehouse", self.folder / "copy"
        copy.mkdir()
        parts = [part for part in warehouse.iterdir() if part.name not in (".lock", "branches")]
        figures = prompt_costs(["cp", "-r", *parts, copy], self.folder)
        figures["bytes"] = _used(copy)
        shutil.rmtree(copy)
        return figures

    def compare(self) -> Figures:
        """Compare the output in both."""
        costs = prompt_costs([DDCORE, "diff", "orders", "--against", "try", "--json"], self.folder)
        _, out = prompt_to_prompt([DDCORE, "diff", "orders", "--against", "try", "--json"], self.folder)
        return {**costs, "rows": len(out.splitlines()) - 2}

    def compare_with_polars(self) -> Figures:
        """Read both logs and add up."""
        warehouse = self.folder / "warehouse"
        logs = [warehouse / "outputs" / "orders", warehouse / "branches" / "try" / "outputs" / "orders"]
        costs = prompt_costs([sys.executable, "-c", COMPARE, *logs], REPOSITORY)
        _, out = prompt_to_prompt([sys.executable, "-c", COMPARE, *logs], REPOSITORY)
        return {**costs, "rows": int(out)}


def _used(folder: Path) -> int:
    """The bytes of the files in a folder, each once however many names it has."""
    files = (os.stat(Path(top) / name) for top, _, names in os.walk(folder) for name in names)
    return sum({file.st_ino: file.st_size for file in files}.values())


def run(rounds: int) -> Iterator[Result]:
    """Each round makes a branch and copies the folder, and compares the output in both ways."""
    with tempfile.TemporaryDirectory() as scratch:
        branched = Branched(Path(scratch))
        runs = in_turn(
            {"make": branched.make, "copy": branched.copy, "compare": branched.compare,
             "polars": branched.compare_with_polars},
            rounds,
        )  # fmt: skip
    if runs["compare"]["rows"] != runs["polars"]["rows"] or runs["compare"]["rows"] != 2 * CHANGED + 1:
        raise Failed(f"the sides disagree: {runs}")
    what = f"a branch of a warehouse with {ROWS:,} rows"
    yield Result(what, runs["make"]["s"], "cp -r", runs["copy"]["s"], rounds)
    yield Result(
        f"{what}, MB on the disk", runs["make"]["bytes"] / 1e6, "cp -r", runs["copy"]["bytes"] / 1e6, rounds, unit="MB"
    )
    what = f"an output of {ROWS:,} rows in two branches, {CHANGED:,} changed, processor time"
    yield Result(what, runs["compare"]["cpu_s"], "Polars adds up both logs", runs["polars"]["cpu_s"], rounds)
