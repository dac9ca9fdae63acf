"""`dd run` over ten changed rows, on Spark and inline, against a bare PySpark script that reads and appends."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import bare_script
from bench.measure import Figures, Result, in_turn, prompt_to_prompt
from bench.project import REPOSITORY, Project, package_set

INLINE_LIMIT_S = 2.0


def run(rounds: int) -> Iterator[Result]:
    """Each round: ten rows folded on Spark, the bare script, ten more rows folded inline."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Project(Path(scratch) / "project")
        project.dd("run", "--engine", "inline")
        tables = Path(scratch) / "tables"
        bare_script.make_tables(tables, package_set())

        def ours(*engine: str) -> Figures:
            project.change_ten_rows()
            return {"s": project.dd("run", *engine)}

        def script() -> Figures:
            command = [sys.executable, "-m", "bench.bare_script", tables]
            return {"s": prompt_to_prompt(command, cwd=REPOSITORY)[0]}

        sides = {"spark": ours, "script": script, "inline": lambda: ours("--engine", "inline")}
        medians = {name: figures["s"] for name, figures in in_turn(sides, rounds).items()}
    name = "dd run, 10 changed rows"
    yield Result(name, medians["spark"], "bare PySpark script", medians["script"], rounds, limit=1.0)
    yield Result(f"{name}, inline", medians["inline"], "2 s, as promised", INLINE_LIMIT_S, rounds, limit=1.0)
