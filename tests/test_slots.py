"""Where several workers cannot be, one folds, and a line says why."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sparkless
from notation import frame
from test_exchange import expected_of, outcome, reach
from test_random_programs import compare
from warehouses import project_of, take_in

from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.cli.main import run_command
from ddcore.io.ledger import records
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import RunRecord
from ddcore.io.storage.warehouse import Warehouse
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
    assert time.monotonic() - start < slots.PATIENCE, "nothing is waited for"


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


def test_executors_of_a_cluster_have_some_time_to_come() -> None:
    late: Any = Cluster(3)
    assert obstacle(late, 3) == ""
    assert late.asked == 3
    slow: Any = Cluster(9)  # after each the wait begins anew
    assert obstacle(slow, 9, patience=0.5) == ""
    few: Any = Cluster(2)
    assert obstacle(few, 3, patience=0.2) == "Spark runs 2 tasks at a time"


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


@pytest.mark.sample(2)
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


def test_an_executor_is_waited_for_and_its_absence_told() -> None:
    nobody: Any = Executors(0, 1)
    assert (slots.workers_of(nobody, patience=0.2), slots.threads_of(nobody, 2)) == (1, 1)
    assert obstacle(nobody, 2, patience=0.2) == "no executor has come within 0 s"


@pytest.mark.spark
def test_a_context_tells_its_cores(spark: Any) -> None:
    context = spark.sparkContext if hasattr(spark, "sparkContext") else spark
    cores = context.defaultParallelism
    assert slots.workers_of(context) == 1
    assert [slots.threads_of(context, workers) for workers in (1, cores)] == [cores, 1]


def last_run(project: Any) -> RunRecord:
    run = Ledger.load(Warehouse(project.warehouse)).current_run()
    assert run is not None
    return run


def warning_of_one_worker(folder: Path, caplog: pytest.LogCaptureFixture, tuning: Tuning = DEFAULT) -> str:
    """Fold with three workers asked for; one folds all the same, and says why."""
    drawn = reach()
    project = replace(project_of(folder, drawn), tuning=tuning)
    with caplog.at_level(logging.WARNING, "ddcore"):
        outcomes = outcome(project, [None], engine="spark", parallelism=3)
    compare(drawn, "one worker", expected_of(drawn), outcomes)
    (record,) = caplog.records
    message = record.getMessage()
    assert (last_run(project).parallelism, last_run(project).sent) == (1, 0)
    assert message == f"one worker folds, and {last_run(project).why}"
    return message


ASKED = "as --parallelism, DDCORE_PARALLELISM or dd.toml says"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("parallelism", "limit", "told"),
    [
        (2, 20_000_000, (2, ASKED)),
        (1, 20_000_000, (1, ASKED)),
        (None, 20_000_000, (1, "5 rows of the window, fewer than 20,000,000")),
        (None, 5, (3, "as many as Spark runs at a time, for 5 rows are not fewer than 5")),
    ],
)
def test_the_record_and_dd_status_say_why_so_many_workers(
    parallelism: int | None, limit: int, told: tuple[int, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    monkeypatch, capsys = request.getfixturevalue("monkeypatch"), request.getfixturevalue("capsys")
    number, why = told
    sparkless.install(monkeypatch)
    monkeypatch.setattr(slots, "workers_of", lambda spark: 3)
    project = project_of(tmp_path / "p", reach(), tuning=Tuning(parallel_rows=limit))
    assert not isinstance(outcome(project, [None], engine="spark", parallelism=parallelism), Exception)
    run = last_run(project)
    assert (run.parallelism, run.why, run.sent > 0) == (number, why, number > 1)
    assert records.from_json("run", json.loads(json.dumps(records.to_json(run)))) == run
    command = ["status", "--project", str(project.root)]
    assert run_command(command) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("workers")]
    assert line.split(maxsplit=1)[1].startswith(f"{number}: {why}")
    assert (" between them" in line) == (number > 1)
    assert run_command([*command, "--json"]) == 0
    workers = json.loads(capsys.readouterr().out)["last_run"]["workers"]
    assert workers == {"number": number, "why": why, "sent": run.sent}


def test_of_the_workers_that_are_given_few_rows_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDCORE_WORKER_ROWS")
    sparkless.install(monkeypatch)
    project = project_of(tmp_path / "p", reach(), tuning=Tuning(worker_rows=3))
    compare(reach(), "one", expected_of(reach()), outcome(project, [None], engine="spark", parallelism=3))
    run = last_run(project)
    assert (run.parallelism, run.why, run.sent) == (1, "not 3: 5 rows of the window, and 3 are worth a worker", 0)


def test_what_a_run_took_chooses_the_number_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sparkless.install(monkeypatch)
    project = project_of(tmp_path / "p", reach(), tuning=Tuning(worker_start_seconds=1000.0))
    assert not isinstance(outcome(project, [None], engine="spark"), Exception)
    (load,) = last_run(project).loads
    assert (load.run, load.workers, load.rows, load.stored, load.sent) == (1, 1, 5, 0, 0)
    assert 0 < load.worked == load.seconds
    history = "(0,1),(1,2),(2,3),(3,4):+1@0 (1,2):-1@1"
    for number, seconds, rows in ((1, 1000.0, "(4,5),(5,6),(1,6):+1@2"), (3, 0.0, "(6,7),(7,8),(3,8):+1@3")):
        history += f" {rows}"
        take_in(project, "edges", frame("a b", rows))
        project = replace(project, tuning=replace(project.tuning, worker_start_seconds=seconds))
        outcomes = outcome(project, [None], engine="spark")
        compare(
            reach(),
            "by what was measured",
            expected_of(replace(reach(), frames={"edges": frame("a b", history)})),
            outcomes,
        )
        assert last_run(project).parallelism == number
        assert last_run(project).why.startswith("by run ")
    run = last_run(project)
    assert (run.parallelism, [load.workers for load in run.loads]) == (3, [1, 1, 3])
    assert run.why.endswith("; Spark has room for 3")
    assert run.loads[-1].seconds > 0
    assert run.loads[-1].sent == run.sent > 0
    stored: Any = records.from_json("run", json.loads(json.dumps(records.to_json(run))))
    fields: tuple[str, ...] = ("seconds", "worked", "start")
    rounded = [replace(load, **{name: round(getattr(load, name), 3) for name in fields}) for load in run.loads]
    assert [*stored.loads] == rounded
    assert run_command(["status", "--project", str(project.root)]) == 0
    assert f"3: {run.why}" in capsys.readouterr().out


def test_workers_that_do_not_reach_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sparkless.install(monkeypatch)
    warning = warning_of_one_worker(tmp_path / "p", caplog, Tuning(meeting_seconds=0))
    assert warning.startswith("one worker folds, and not 3: worker ")


@pytest.mark.spark
def test_more_workers_than_cores(tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    warning = warning_of_one_worker(tmp_path / "p", caplog)
    assert warning == "one worker folds, and not 3: Spark runs 2 tasks at a time"
