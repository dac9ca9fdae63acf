"""10, 100 and 1,000 changed rows of four million, by `dd run` inline: a look-up costs what it finds.

The program takes the least value of each of a million groups, so that a run looks up the rows and the result of each
group that changed. Beside the time: the bytes of state that a run of ten rows reads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench import promises
from bench.measure import Failed, Figures, Result, in_turn, prompt_costs, prompt_to_prompt
from bench.project import DDCORE, accumulated
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.storage.warehouse import Warehouse

ROWS, GROUPS = 4_000_000, 1_000_000
CHANGES = (10, 100, 1_000)
PROGRAM = """\
import ddcore as dd


def program(rows):
    return {"least": rows.group_by("kind").agg(value=dd.min("value"))}
"""
SETTINGS = """\
[project]
program   = "program.py:program"
warehouse = "warehouse"

[run]
engine = "inline"

[inputs.rows]
schema = { kind = "int64", value = "int64" }
"""


def run(rounds: int, rows: int = ROWS, groups: int = GROUPS) -> Iterator[Result]:
    """The sizes in turn, on one project; at its end the result is compared with the rows."""
    with tempfile.TemporaryDirectory() as scratch:
        table = Table(Path(scratch), rows, groups)
        table.change(CHANGES[0])  # the first run after a load is not as the others
        sides = in_turn({str(size): partial(table.change, size) for size in CHANGES}, max(rounds, 5))
        table.check()
    few, most = sides[str(CHANGES[0])], promises.amount("look-ups, state read")
    for size in CHANGES[1:]:
        yield Result(
            f"dd run, {size:,} changed rows of {rows:,}, processor time", sides[str(size)]["cpu_s"],
            f"ours, {CHANGES[0]} changed rows", few["cpu_s"], rounds,
        )  # fmt: skip
    yield Result(
        f"state read for {CHANGES[0]} changed rows of {rows:,}, per arrangement", few["read"] / 1024,
        f"{most:g} KiB, as promised", most, rounds, unit="KiB",
    )  # fmt: skip


class Table:
    """A project whose state holds many rows. ``log``: all changes so far."""

    def __init__(self, folder: Path, rows: int, groups: int) -> None:
        self.folder, self._rng, self._groups, self.logs = folder, np.random.default_rng(0), groups, list[pl.DataFrame]()
        (folder / "program.py").write_text(PROGRAM)
        (folder / "dd.toml").write_text(SETTINGS)
        self._ingest(self._rows(rows))
        prompt_to_prompt([DDCORE, "run"], folder)

    def change(self, size: int) -> Figures:
        """Ingest new rows and fold them: the costs of the run alone, and the bytes that it read per arrangement."""
        self._ingest(self._rows(size))
        costs = prompt_costs([DDCORE, "run"], self.folder)
        last = Ledger.load(Warehouse(find_project(self.folder).warehouse)).current_run()
        if last is None:
            raise Failed("the ledger has no run")
        reads = [operator.bytes_read for operator in last.profile.operators if operator.keyed]
        return {**costs, "read": max(reads) / 2}  # of an aggregation's two arrangements: its input and its result

    def check(self) -> None:
        """Raises Failed if the result is not that of the rows."""
        wanted = pl.concat(self.logs).group_by("kind").agg(pl.col("value").min()).sort("kind")
        table = pl.read_delta(self.folder / "warehouse" / "outputs" / "least")
        if not accumulated(table, len(self.logs)).select(wanted.columns).sort("kind").equals(wanted):
            raise Failed("the result is not that of the rows")

    def _rows(self, size: int) -> pl.DataFrame:
        kinds, values = self._rng.integers(0, self._groups, size), self._rng.integers(-(10**9), 10**9, size)
        return pl.DataFrame({"kind": kinds * 1_009, "value": values})

    def _ingest(self, rows: pl.DataFrame) -> None:
        file = self.folder / "rows.parquet"
        rows.with_columns(version=len(self.logs), diff=1).write_parquet(file)
        self.logs.append(rows)
        prompt_to_prompt([DDCORE, "ingest", "rows", file], self.folder)
