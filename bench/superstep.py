"""What an exchange between workers costs: processor time of all workers together, and supersteps without work."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.measure import Figures, Result, in_turn, prompt_to_prompt
from bench.parallelism import make_project
from bench.project import REPOSITORY

WORKERS = (2, 4, 16)
ASKED = 0.003  # seconds of a superstep without work, of four workers


def run(rounds: int) -> Iterator[Result]:
    """Breadth-first search over version 0 of the graph by one, two, four and sixteen workers in processes, no Spark."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_project(folder)

        def folded(number: int) -> Figures:
            shutil.rmtree(folder / "warehouse", ignore_errors=True)
            shutil.copytree(folder / "ingested", folder / "warehouse")
            return figures_of(folder, number)

        medians = in_turn({str(number): partial(folded, number) for number in (1, *WORKERS)}, rounds)
    one = medians["1"]["cpu_s"]
    for number in WORKERS:
        two = medians[str(number)]
        what = f"search, 5M edges, {number} workers: {two['bytes'] / 2**20:.0f} MiB, {two['supersteps']:.0f} supersteps"
        yield Result(what, two["cpu_s"], "one worker", one, rounds, unit="s of processor time")
    idle = in_turn({"4": partial(figures_of, 4)}, rounds)["4"]["s"]
    yield Result("1,000 supersteps without work, 4 workers", idle, "3 ms for each", 1000 * ASKED, rounds)


def figures_of(*arguments: object) -> Figures:
    """What ``bench.superstep_engine`` prints."""
    command = [sys.executable, "-m", "bench.superstep_engine", *map(str, arguments)]
    figures: Figures = json.loads(prompt_to_prompt(command, cwd=REPOSITORY)[1].splitlines()[-1])
    return figures
