"""`dd run` over ten changed rows, on Spark and inline.

The peer on Spark is a bare PySpark script that reads and appends; inline it is Python that starts, imports Polars and
does nothing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import bare_script, promises
from bench.measure import Figures, Result, in_turn, polars_alone, prompt_costs
from bench.project import REPOSITORY, Project, package_set


def run(rounds: int) -> Iterator[Result]:
    """Each round: ten rows folded on Spark, the bare script, ten more rows folded inline."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Project(Path(scratch) / "project")
        project.dd("run", "--engine", "inline")
        tables = Path(scratch) / "tables"
        bare_script.make_tables(tables, package_set())

        def ours(*engine: str) -> Figures:
            project.change_ten_rows()
            return project.costs("run", *engine)

        def script() -> Figures:
            command = [sys.executable, "-m", "bench.bare_script", tables]
            return prompt_costs(command, cwd=REPOSITORY)

        def inline() -> Figures:
            return ours("--engine", "inline")

        sides = {
            "spark": ours, "script": script, "inline": inline, "polars": lambda: polars_alone(REPOSITORY),
        }  # fmt: skip
        medians = in_turn(sides, rounds)
    name, seconds = "dd run, 10 changed rows", {side: figures["s"] for side, figures in medians.items()}
    most = promises.amount("ten rows inline, seconds")
    yield Result(name, seconds["spark"], "bare PySpark script", seconds["script"], rounds)
    yield Result(f"{name}, inline", seconds["inline"], f"{most:g} s, as promised", most, rounds)
    costs = {side: figures["cpu_s"] for side, figures in medians.items()}
    yield Result(
        f"{name}, inline, processor time", costs["inline"], "Python importing Polars", costs["polars"], rounds,
    )  # fmt: skip
