"""Ingest by all executors: sixteen files of rows, the same as a snapshot, and as upserts, on two executors against one.

Each executor has one core and is a process of its own, as `local-cluster` starts them. There are ``DDCORE_BENCH_ROWS``
rows, eight million unless it says otherwise. A tenth of them is other in the snapshot, and again in the upserts.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from bench.measure import Failed, Figures, Result, agree, in_turn, prompt_to_prompt
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse

ROWS = int(os.environ.get("DDCORE_BENCH_ROWS", "8_000_000"))
FILES = 16
WAYS = ("append", "snapshot", "upsert")
MEMORY = 1024  # MiB of an executor's JVM
TOML = """[project]
program = "program.py:program"
[inputs.orders]
schema = { id = "int64", customer = "int64", amount = "int64" }
key = ["id"]
"""


def run(rounds: int) -> Iterator[Result]:
    """Each round: three ingests by one executor, and by two."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for generation, way in enumerate(WAYS):
            _write(folder / way, generation, rows=ROWS // 10 if way == "upsert" else ROWS)
        sides = {str(executors): partial(_ingested, folder, executors) for executors in (1, 2)}
        medians = in_turn(sides, rounds)
    agree(medians, "rows", "sum")
    for way in WAYS:
        one, two = medians["1"][way], medians["2"][way]
        name = f"dd ingest --{way}, {ROWS:,} rows in {FILES} files, 2 executors of one core"
        yield Result(name, two, "1 executor of one core", one, rounds)


def _write(folder: Path, generation: int, rows: int) -> None:
    folder.mkdir()
    share = -(-rows // FILES)
    for number in range(FILES):
        ids = pl.int_range(number * share, min(rows, (number + 1) * share), eager=True)
        frame = pl.DataFrame({"id": ids, "customer": (ids * 7919) % 100_003, "amount": ids % 1000})
        other = pl.when(pl.col("id") % 10 == 0).then(pl.col("amount") + generation).otherwise(pl.col("amount"))
        frame.with_columns(amount=other).write_parquet(folder / f"{number:02d}.parquet")


def _ingested(folder: Path, executors: int) -> Figures:
    """Seconds of each of the three; and what the input's log holds then."""
    with tempfile.TemporaryDirectory(dir=folder) as location:
        project = Path(location)
        (project / "dd.toml").write_text(TOML)
        (project / "program.py").write_text("def program(orders):\n    return {'orders': orders}\n")
        master = f"local-cluster[{executors},1,{MEMORY}]"
        figures: Figures = {}
        for way in WAYS:
            command = [Path(sys.executable).with_name("ddcore"), "ingest", "orders", folder / way, f"--{way}"]
            figures[way], out = prompt_to_prompt([*command, "--engine", "spark", "--master", master, "--json"], project)
            if not json.loads(out.splitlines()[-1])["rows"]:
                raise Failed(f"{way}: nothing was taken in")
        log = pl.read_delta(project / "warehouse" / "inputs" / "orders")
        _require_shares(project, executors)
        return {**figures, "rows": int(log["diff"].sum()), "sum": int((log["amount"] * log["diff"]).sum())}


def _require_shares(project: Path, executors: int) -> None:
    """Raise Failed where an ingest was written by fewer tasks than there are executors."""
    for record in Ledger.load(Warehouse(project / "warehouse")).ingests():
        if len(record.files) < executors:
            raise Failed(f"ingest {record.number} was written by {len(record.files)} task: {record.files}")
