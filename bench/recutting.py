"""Whether it would pay to cut the ranges of workers again between supersteps, computed from the loads of folds.

See :mod:`bench.recutting_engine` for what is compared, and :mod:`bench.balance` for the graphs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.balance import WORKERS, WORKLOADS
from bench.measure import Result, prompt_to_prompt
from bench.project import REPOSITORY

WAYS = {
    "once": "once, by all that will be done, if that were known",
    "before": "by the superstep before",
    "known": "by what the superstep will do, if that were known",
    "paid": "the same, and moving state counts",
}


def run(rounds: int) -> Iterator[Result]:
    """Each search and each of the components once."""
    for name, write in WORKLOADS.items():
        if not name.startswith(("components", "search")):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            write(Path(scratch))
            command = [sys.executable, "-m", "bench.recutting_engine", scratch, WORKERS]
            figures = json.loads(prompt_to_prompt(command, cwd=REPOSITORY)[1].splitlines()[-1])
        for way, how in WAYS.items():
            what = f"slowest of {WORKERS} workers in each superstep, {name}, ranges cut again {how}"
            yield Result(what, figures[way], "ranges as they are", figures["kept"], 1, unit="times the mean")
