"""Bounded growth: the usual job, an ingest of one small file and then a run, many times in one process.

Each file has one row at the next version, and a name of its own.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from bench.growth import PROGRAM, SETTINGS
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.jobs import ingest, replay

_MEAN_OF = 50  # pairs before each line of the table
_NODES = 500
_PARTS = ("inputs", "ledger", "outputs", "state")


def main(pairs: int) -> None:
    """Measure, and print a line at about ten places: seconds of the processor, and files in each part."""
    step = max(_MEAN_OF, pairs // 10)
    print(*(name.rjust(9) for name in ("pairs", "ingest", "run", *_PARTS)))
    took = list[tuple[float, float]]()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "dd.toml").write_text(SETTINGS)
        project = find_project(folder, {})
        for version in range(pairs):
            took.append(_pair(project, version))
            if len(took) % step == 0:
                means = (f"{statistics.mean(column):.3f}" for column in zip(*took[-_MEAN_OF:], strict=True))
                counts = (
                    sum(path.is_file() for path in Path(str(project.warehouse), part).rglob("*")) for part in _PARTS
                )
                print(*(cell.rjust(9) for cell in (f"{len(took):,}", *means, *map(str, counts))), flush=True)


def _pair(project: Project, version: int) -> tuple[float, float]:
    """Seconds of the processor for an ingest of one row at a version, and for the run after it."""
    source = project.root / f"edges-{version}.parquet"
    row = (version % _NODES, version * 7 % _NODES, version, 1)
    pl.DataFrame([row], schema=["src", "dst", "version", "diff"], orient="row").write_parquet(source)

    def seconds(job: Callable[[], object]) -> float:
        start = time.process_time()
        job()
        return time.process_time() - start

    return (
        seconds(lambda: ingest.ingest(project, "edges", [str(source)], engine="inline")),
        seconds(lambda: replay.run(project)),
    )
