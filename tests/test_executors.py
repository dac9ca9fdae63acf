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
import sparkless
from places import local
from workshop import assert_same, contents

from ddcore.base.errors import DdError
from ddcore.io.project.project import Project, find_project
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.engines import exchange
from ddcore.jobs.ingest import ingest
from ddcore.jobs.setup import compile_kernels
from ddcore.jobs.spark.failures import ExecutorLost, run_job

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
    assert not local(Warehouse(project.warehouse).staging).exists()


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


class Lossy:
    """Runs jobs as Spark does, but some of them find that the messages of the job before are gone."""

    def __init__(self, lost: set[int]) -> None:
        self.lost, self.jobs = lost, 0

    def __call__(self, job: Any) -> Any:
        self.jobs += 1
        if self.jobs in self.lost:
            raise ExecutorLost("the Spark job failed: Checkpoint block rdd_9_0 not found!", "run it again")
        return job()


@pytest.mark.parametrize("lost", [{1}, {3}, {3, 8}, {2, 4}])
def test_a_fold_begins_again_when_its_messages_are_lost(
    lost: set[int], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(project)
    sparkless.install(monkeypatch, unrest=0)
    lossy = Lossy(lost)
    monkeypatch.setattr(exchange, "run_job", lossy)
    assert replay.run(project, engine="spark", parallelism=2).run == 1
    assert lossy.jobs > max(lost), "it went on after the last loss"
    assert_same(contents(project), expected, lost)
    assert not local(Warehouse(project.warehouse).staging).exists()


def test_a_fold_that_loses_its_messages_each_time_fails(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = undisturbed(project)
    sparkless.install(monkeypatch, unrest=0)
    with monkeypatch.context() as patch:
        patch.setattr(exchange, "run_job", Lossy({2, 4, 6}))
        with pytest.raises(DdError, match="Checkpoint block rdd_9_0 not found"):
            replay.run(project, engine="spark", parallelism=2)
    assert replay.run(project, engine="spark", parallelism=2).run == 2
    assert_same(contents(project), expected, "after the failure")


def test_lost_messages_are_told_from_other_failures() -> None:
    def failing(text: str) -> Any:
        def job() -> Any:
            raise type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})(text)

        return job

    with pytest.raises(ExecutorLost):
        run_job(failing("org.apache.spark.SparkException: Checkpoint block rdd_14_1 not found! Either the executor"))
    with pytest.raises(DdError) as caught:
        run_job(failing("org.apache.spark.SparkException: Job aborted"))
    assert not isinstance(caught.value, ExecutorLost)
