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
from ddcore.jobs.engines import peers
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
        (Session(master="local[3]", network_crypto_enabled="true"), "spark.network.crypto.enabled is set, and mess"),
        (Session(master="local[3]", ssl_rpc_enabled="TRUE"), "spark.ssl.rpc.enabled is set, and messages between work"),
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
    monkeypatch.setattr(peers, "MEETING", 0)
    assert warning_of_one_worker(tmp_path / "p", caplog).startswith("one worker folds, and not 3: worker ")


@pytest.mark.spark
def test_more_workers_than_cores(tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    warning = warning_of_one_worker(tmp_path / "p", caplog)
    assert warning == "one worker folds, and not 3: Spark runs 2 tasks at a time"
