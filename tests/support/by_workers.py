"""One more way to fold a history, beside those of :mod:`folding`: by several workers in processes of their own, through
the tables of a warehouse, without Spark (see :mod:`sparkless`).
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sparkless
from folding import Logs
from programs import Case
from warehouses import logs_of, project_of

from ddcore.base.tuning import Tuning
from ddcore.jobs import replay
from ddcore.jobs.engines.worker_count import WORKER_ROWS
from ddcore.planning import planner

WORKERS = (1, 2, 3, 5)
folded: list[Any] = []
"""The program of the case at hand: what a project's file gives, which cannot have a function of a test in it."""


def by_workers(program: Any, **frames: pl.DataFrame) -> Logs:
    """The log that each number of workers gives, with messages of one to three updates: fails where they differ."""
    drawn = Case(0, "from by_workers import folded\n\nprogram = folded[-1]\n", program, dict(frames))
    logs = dict[int, Logs]()
    for number in WORKERS:
        tuning = Tuning(message_rows=1 + number % 3, divided_rows=1 + number % 4, heavy_load=0, owner_rows=number)
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            sparkless.install(patch, seed=number)
            patch.setenv(WORKER_ROWS, str(number % 2))  # 1: what few rows reach has few owners
            patch.setattr(planner, "build", partial(_signed, planner.build))
            folded.append(program)
            project = project_of(Path(folder) / "p", drawn, tuning=tuning)
            replay.run(project, engine="spark", parallelism=number)
            logs[number] = logs_of(project, planner.build(program, project.inputs, project.dims).outputs)
            folded.clear()
    assert all(log == logs[1] for log in logs.values()), logs
    return logs[1]


def _signed(build: Any, *arguments: Any, nonnegative: bool = False, **options: Any) -> Any:
    """A plan for counts that may be negative, which an ingest would have refused."""
    return build(*arguments, nonnegative=False, **options)
