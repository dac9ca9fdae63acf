"""Python workers and executors of Spark that die in the middle of a loop: the run goes on, and its logs are right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import local
from workshop import assert_same, contents

from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest
from ddcore.jobs.setup import compile_kernels

PROGRAM = """
import os, signal, time
from pathlib import Path

import polars as pl

HERE = Path(__file__).parent


def processes():
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def victim(what):
    if what == "worker":
        return os.getpid()
    return next(
        pid for pid in processes() if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def fewer(frame):
    cause = HERE / "cause"
    if cause.exists() and frame["n"].max() == 4:
        what = cause.read_text()
        cause.rename(HERE / "killed")
        os.kill(victim(what), signal.SIGKILL)
        time.sleep(60)
    return frame.filter(pl.col("n") > 0).select("row", m=pl.col("n") - 1)


def program(numbers):
    def lower(left):
        return left.flat_map(fewer, schema={"m": "int64"}).select(n="m").concat(numbers).distinct()

    return {"left": numbers.iterate(lower)}
"""
PROJECT = """
[project]
program = "program.py:program"
[inputs.numbers]
schema = { n = "int64" }
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A loop of several rounds, with nothing folded."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(PROJECT)
    (folder / "numbers.csv").write_text("n,version,diff\n8,0,1\n9,1,1\n8,1,-1\n12,2,1\n")
    project = find_project(folder, {})
    ingest(project, "numbers", [str(folder / "numbers.csv")], engine="inline")
    return project


def undisturbed(project: Project) -> dict[str, Any]:
    """The rows of all tables after a run that nobody disturbs; the warehouse is then as before."""
    kept = Path(shutil.copytree(local(project.warehouse), project.root / "kept"))
    replay.run(project, engine="inline")
    rows = contents(project)
    shutil.rmtree(local(project.warehouse))
    kept.rename(local(project.warehouse))
    return rows


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("parallelism", ["1", "2"])
@pytest.mark.parametrize(
    ("victim", "master"),
    [("worker", "local[2,4]"), ("worker", "local-cluster[2,1,1024]"), ("executor", "local-cluster[2,1,1024]")],
)
def test_a_run_survives_the_death_of_a_process(victim: str, master: str, parallelism: str, project: Project) -> None:
    expected = undisturbed(project)
    (project.root / "cause").write_text(victim)
    command = [str(Path(sys.executable).with_name("ddcore")), "run", "--engine", "spark", "--master", master]
    done = subprocess.run(
        [*command, "--parallelism", parallelism, "--project", project.root],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (project.root / "killed").exists()
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["run"] == 1
    assert_same(contents(project), expected, victim)


@pytest.mark.long
@pytest.mark.spark
def test_an_executor_with_an_empty_cache_compiles_no_kernel(project: Project, tmp_path: Path) -> None:
    """They come with the package, which it unpacks into that cache."""
    compile_kernels()
    (tmp_path / "executor").mkdir(mode=0o700)
    conf = f'[spark]\nconf = {{ "spark.executorEnv.DDCORE_CACHE" = "{tmp_path / "executor"}" }}\n'
    (project.root / "dd.toml").write_text(PROJECT + conf)
    expected = undisturbed(project)
    command = [str(Path(sys.executable).with_name("ddcore")), "run", "--master", "local-cluster[1,1,1024]"]
    done = subprocess.run(
        [*command, "--project", project.root],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert_same(contents(project), expected, "a cluster")
    assert [folder.name for folder in (tmp_path / "executor").iterdir()] == ["code"]
