"""One of four workers is killed in the middle of a join whose heavy key all of them share: nothing is lost or twice."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sparkless
from places import local
from test_executors import begun, ended
from workshop import assert_same, contents

from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.cli.main import run_command
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest

WORKERS, HEAVY = 4, 7
PROGRAM = """
import os, signal
from contextlib import suppress
from pathlib import Path

import polars as pl
import ddcore as dd

HERE = Path(__file__).parent


def noted(frame):
    if (frame["k"] == 7).any() and (HERE / "seen").exists():
        (HERE / "seen" / str(os.getpid())).touch()
        with suppress(FileNotFoundError):
            (HERE / "cause").rename(HERE / "killed")  # the first that comes here
            (HERE / "killed").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
    return frame.select("row", "k", "a", "b")


def program(left, right):
    pairs = left.join(right, on="k").flat_map(noted, schema=dict.fromkeys("kab", "int64"))
    sums = pairs.group_by("k", "a").agg(n=dd.count(), b=dd.sum("b"))
    return {"sums": sums, "ends": pairs.select("k", "b").distinct()}
"""
PROJECT = """
[project]
program = "program.py:program"
[inputs.left]
schema = { k = "int64", a = "int64" }
[inputs.right]
schema = { k = "int64", b = "int64" }
"""


def made(folder: Path, rows: int, tuning: Tuning = DEFAULT) -> Project:
    """Three versions of rows of which eight in ten have the heavy key; some are gone again in the next."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(PROJECT)
    project = replace(find_project(folder, {}), tuning=tuning)
    dice = random.Random(rows)
    for name, number, value in (("left", rows, "a"), ("right", 60, "b")):
        updates = [
            (HEAVY if dice.random() < 0.8 else dice.randrange(20), row, version, 1)
            for version in range(3)
            for row in range(version * number, (version + 1) * number)
        ]
        updates += [(key, row, version + 1, -1) for key, row, version, _ in updates if version < 2 and row % 5 == 0]
        file = folder / f"{name}.parquet"
        pl.DataFrame(updates, schema=["k", value, "version", "diff"], orient="row").write_parquet(file)
        ingest(project, name, [str(file)], engine="inline")
    return project


def arranged(project: Project) -> dict[str, pl.DataFrame]:
    """The rows of all tables; those of state without the order of files that several workers wrote."""
    return {name: rows.sort(rows.columns) for name, rows in contents(project).items()}


def undisturbed(project: Project, versions: Sequence[int]) -> list[dict[str, pl.DataFrame]]:
    """The rows of all tables after runs up to these versions by one worker; the warehouse is then as before."""
    kept, found = Path(shutil.copytree(local(project.warehouse), project.root / "kept")), []
    for version in versions:
        replay.run(project, last=time_of(version), engine="inline")
        found.append(arranged(project))
    shutil.rmtree(local(project.warehouse))
    kept.rename(local(project.warehouse))
    (project.root / "seen").mkdir()
    return found


def killed(project: Project) -> int:
    """How many processes had a part of the heavy key's pairs, after one of them was killed."""
    assert (project.root / "killed").exists() and not (project.root / "cause").exists()
    (project.root / "killed").unlink()
    seen = [*(project.root / "seen").iterdir()]
    for file in seen:
        file.unlink()
    return len(seen)


@pytest.mark.long
def test_a_worker_is_killed_in_a_join_over_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the load, and in a run that reads what the workers have stored of the key. Processes without Spark."""
    tuning = replace(DEFAULT, heavy_load=0, joined_rows=50)
    project = made(tmp_path / "project", 300, tuning)
    stage, versions = sparkless.install(monkeypatch), range(3)
    for version, expected in zip(versions, undisturbed(project, versions), strict=True):
        (project.root / "cause").touch()
        stage.attempts = 0
        replay.run(project, last=time_of(version), engine="spark", parallelism=WORKERS)
        assert stage.attempts == 2
        assert killed(project) > 2, "without a division it would be one at each attempt"
        assert_same(arranged(project), expected, f"version {version}")


@pytest.mark.long
@pytest.mark.spark
def test_a_worker_of_spark_is_killed_in_a_join_over_the_grid(tmp_path: Path) -> None:
    project = made(tmp_path / "project", 6_000)
    versions = (0, 2)
    for version, expected in zip(versions, undisturbed(project, versions), strict=True):
        (project.root / "cause").touch()
        code, out, errors = ended(begun(project, "local[4]", WORKERS, "--to-version", str(version)))
        assert code == 0, errors[-2000:]
        assert json.loads(out.splitlines()[-1])["parallelism"] == WORKERS
        assert killed(project) > 2, "without a division it would be one at each attempt"
        assert_same(arranged(project), expected, f"version {version}")
    arguments: list[Any] = ["verify", "--at", "0..2", "--engine", "inline", "--quiet", "--project", str(project.root)]
    assert run_command(arguments) == 0
