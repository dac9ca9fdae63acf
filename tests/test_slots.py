"""Where several workers cannot be, one folds, and a line says why."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import sparkless
from test_exchange import expected_of, outcome, reach
from test_random_programs import compare
from warehouses import project_of

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.engines import meeting
from ddcore.jobs.spark import slots
from ddcore.jobs.spark.slots import obstacle


class Conf(dict[str, str]):
    """Settings as a session of Spark Connect has them."""


class Session:
    def __init__(self, **settings: str) -> None:
        self.conf = Conf({f"spark.{name.replace('_', '.')}": value for name, value in settings.items()})


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        (Session(master="local[3]"), ""),
        (Session(executor_instances="3"), ""),
        (Session(executor_instances="3", executor_cores="4", task_cpus="4"), ""),
        (Session(default_parallelism="3", master="yarn"), ""),
        (Session(master="local[2]"), "Spark runs 2 tasks at a time"),
        (Session(master="local[4]", task_cpus="4"), "Spark runs 1 task at a time"),
        (Session(master="k8s://host"), "nothing says how many tasks Spark runs at a time: spark.executor.instances is"),
        (Session(master="local[3]", dynamicAllocation_enabled="true"), "spark.dynamicAllocation.enabled is set, and "),
    ],
)
def test_what_several_tasks_need(session: Any, reason: str) -> None:
    start = time.monotonic()
    assert obstacle(session, 3).startswith(reason)
    assert bool(obstacle(session, 3)) == bool(reason)
    assert time.monotonic() - start < slots._PATIENCE, "nothing is waited for"


class Cluster:
    """A Spark context whose executors come one after the other."""

    master = "spark://host:7077"

    def __init__(self, most: int) -> None:
        self.asked, self.most = 0, most

    def parallelize(self) -> None: ...

    def getConf(self) -> dict[str, str]:
        return {}

    @property
    def _jsc(self) -> Any:
        return self

    def sc(self) -> Any:
        return self

    def resourceProfileManager(self) -> Any:
        return self

    def defaultResourceProfile(self) -> None: ...

    def maxNumConcurrentTasks(self, profile: None) -> int:
        self.asked += 1
        return min(self.most, self.asked)


def test_executors_of_a_cluster_have_some_time_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    late: Any = Cluster(3)
    assert obstacle(late, 3) == ""
    assert late.asked == 3
    monkeypatch.setattr(slots, "_PATIENCE", 0.2)
    few: Any = Cluster(2)
    assert obstacle(few, 3) == "Spark runs 2 tasks at a time"


class Executors(Cluster):
    """A Spark context with so many executors, each of so many cores, all of which are there."""

    def __init__(self, executors: int, cores: int, cpus: int = 1) -> None:
        super().__init__(executors * cores // cpus)
        self.asked, self.executors, self.cpus = 1000, executors, cpus

    def getConf(self) -> dict[str, str]:
        return {"spark.task.cpus": str(self.cpus)}

    def statusTracker(self) -> Any:
        return self

    def getExecutorInfos(self) -> list[None]:
        return [None] * (self.executors + 1)


class Local(Executors):
    master = "local[4]"


@pytest.mark.parametrize(
    ("spark", "workers", "threads"),
    [
        (Executors(3, 4), 3, {1: 4, 2: 4, 3: 4, 6: 2, 12: 1}),
        (Executors(3, 4, cpus=2), 6, {1: 4, 3: 4, 6: 2}),
        (Executors(3, 1), 3, {1: 1, 3: 1}),
        (Local(0, 4), 1, {1: 4, 2: 2, 3: 1, 4: 1}),
        (Session(executor_instances="3", executor_cores="4", task_cpus="4"), 3, {1: 4, 3: 4}),
        (Session(executor_instances="3", executor_cores="4"), 12, {1: 1, 12: 1}),
        (Session(master="k8s://host"), 1, {1: 1}),
    ],
)
def test_an_executor_with_several_cores_has_one_worker_with_as_many_threads(
    spark: Any, workers: int, threads: dict[int, int]
) -> None:
    if isinstance(spark, Local):
        spark.most = 4
    assert slots.workers_of(spark) == workers
    assert {number: slots.threads_of(spark, number) for number in threads} == threads


def test_an_executor_is_waited_for_and_its_absence_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_PATIENCE", 0.2)
    nobody: Any = Executors(0, 1)
    assert (slots.workers_of(nobody), slots.threads_of(nobody, 2)) == (1, 1)
    assert obstacle(nobody, 2) == "no executor has come within 0 s"


@pytest.mark.spark
def test_a_context_tells_its_cores(spark: Any) -> None:
    context = spark.sparkContext if hasattr(spark, "sparkContext") else spark
    cores = context.defaultParallelism
    assert slots.workers_of(context) == 1
    assert [slots.threads_of(context, workers) for workers in (1, cores)] == [cores, 1]


def parallelism_of(project: Any) -> int:
    run = Ledger.load(Warehouse(project.warehouse)).current_run()
    assert run is not None
    return run.parallelism


def warning_of_one_worker(folder: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Fold with three workers asked for; one folds all the same, and says why."""
    drawn = reach()
    project = project_of(folder, drawn)
    with caplog.at_level(logging.WARNING, "ddcore"):
        outcomes = outcome(project, [None], engine="spark", parallelism=3)
    compare(drawn, "one worker", expected_of(drawn), outcomes)
    assert parallelism_of(project) == 1
    (record,) = caplog.records
    return record.getMessage()


def test_workers_that_do_not_reach_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sparkless.install(monkeypatch)
    monkeypatch.setattr(meeting, "MEETING", 0)
    assert warning_of_one_worker(tmp_path / "p", caplog).startswith("one worker folds, and not 3: worker ")


@pytest.mark.spark
def test_more_workers_than_cores(tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    warning = warning_of_one_worker(tmp_path / "p", caplog)
    assert warning == "one worker folds, and not 3: Spark runs 2 tasks at a time"
