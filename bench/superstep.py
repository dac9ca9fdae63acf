"""The supersteps of a fold on Spark against bare Spark jobs that shuffle the same number of rows."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figures, Result, in_turn, prompt_to_prompt
from bench.parallelism import make_project
from bench.project import REPOSITORY


def run(rounds: int) -> Iterator[Result]:
    """Breadth-first search over version 0 of the graph by two workers: the supersteps that move rows."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_project(folder)

        def once() -> Figures:
            shutil.rmtree(folder / "warehouse", ignore_errors=True)
            shutil.copytree(folder / "ingested", folder / "warehouse")
            command = [sys.executable, "-m", "bench.superstep_engine", folder]
            figures: Figures = json.loads(prompt_to_prompt(command, cwd=REPOSITORY)[1].splitlines()[-1])
            return figures

        figures = in_turn({"both": once}, rounds)["both"]
    number, rows = int(figures["supersteps"]), int(figures["rows"])
    peer = "bare Spark jobs that shuffle as many rows"
    yield Result(f"{number} supersteps of a search, {rows:,} rows moved", figures["s"], peer, figures["bare_s"], rounds)
    yield Result("those of fewer than 10,000 rows", figures["small_s"], peer, figures["small_bare_s"], rounds)
