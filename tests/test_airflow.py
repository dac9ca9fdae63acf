"""The DAGs of ``examples/airflow`` under a real Airflow: its scheduler runs them, its API says what became of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow_services import TOP, Airflow, until
from standalone import Standalone
from trams import JOURNEYS, journeys

from ddcore.cli.main import run_command

pytestmark = pytest.mark.long

DAGS = TOP / "examples" / "airflow"
ALL = ("ingest_links", "ingest_starts", "fold", "changes", "verify")

# What `ddcore init` makes, with a fold that, as a task of Airflow, takes as long as a file is there.
PROGRAM = '''
"""How long it takes from a start to every stop, by the quickest way there is."""

import os
import time
from pathlib import Path

import polars as pl

import ddcore as dd
from ddcore import col


def wait(frame: pl.DataFrame) -> pl.DataFrame:
    while "AIRFLOW_CTX_TASK_ID" in os.environ and Path("HALT").exists():
        Path("FOLDING").touch()
        time.sleep(0.05)
    return frame


def program(links: dd.Collection, starts: dd.Collection) -> dict[str, dd.Collection]:
    begin = starts.select("stop", total=0)
    known = links.flat_map(wait, schema={"src": "string", "dst": "string", "minutes": "int64"})

    def ride(journeys: dd.Collection) -> dd.Collection:
        onward = journeys.join(known, on={"stop": "src"})
        arrived = onward.select(stop="dst", total=col("total") + col("minutes"))
        return arrived.concat(begin).group_by("stop").agg(total=dd.min("total"))

    return {"journeys": begin.iterate(ride)}
'''


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    with Airflow(tmp_path_factory.mktemp("airflow")).running() as running:
        yield running


class Srv:
    """The folder that the DAGs call ``/srv``: a project with an environment, and folders for files that arrive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trams = folder / "trams"
        assert run_command(["init", str(self.trams), "-q"]) == 0
        (self.trams / "program.py").write_text(
            PROGRAM.lstrip().replace("HALT", str(folder / "halt")).replace("FOLDING", str(folder / "folding"))
        )
        for name in ("links", "starts"):
            (self.trams / name).mkdir()
            (self.trams / "data" / f"{name}.csv").rename(self.trams / name / "1.csv")
        (self.trams / ".venv").symlink_to(sys.prefix)
        (folder / "ddcore").symlink_to(TOP)
        (folder / "cache").mkdir()
        (folder / "cache" / "ddcore").symlink_to(os.environ.get("DDCORE_CACHE", Path.home() / ".cache" / "ddcore"))

    def write_dag(self, name: str, to: Path) -> None:
        """A DAG of the examples with these folders, without its schedule, and with short waits."""
        text = (DAGS / name).read_text()
        for old, new in (("/srv/", f"{self.folder}/"), ("minutes=5", "seconds=1"), ("schedule=", "schedule=None and ")):
            assert old in text
            text = text.replace(old, new)
        to.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(text)

    def arrives(self, name: str, *rows: str) -> Path:
        file = self.trams / "links" / f"{name}.csv"
        file.write_text("version,diff,src,dst,minutes\n" + "\n".join(rows) + "\n")
        return file

    def is_whole(self) -> bool:
        """Whether the outputs are right as far as they are folded, and every file is whole."""
        commands = (["verify", "-q"], ["doctor"])
        ddcore = self.trams / ".venv" / "bin" / "ddcore"
        return all(
            subprocess.run([ddcore, *arguments, "--project", self.trams], capture_output=True, check=False).returncode
            == 0
            for arguments in commands
        )


@pytest.fixture(scope="module")
def srv(airflow: Airflow, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Srv]:
    location = Srv(tmp_path_factory.mktemp("srv"))
    location.write_dag("trams.py", airflow.dags)
    yield location
    (location.folder / "halt").unlink(missing_ok=True)  # or a task that a failed test left would go on for ever


def test_all_that_is_new_is_folded_and_the_xcom_is_the_last_line(airflow: Airflow, srv: Srv) -> None:
    run = airflow.trigger("trams")
    assert airflow.end("trams", run) == "success"
    assert airflow.states("trams", run) == dict.fromkeys(ALL, "success")
    assert journeys(srv.trams) == JOURNEYS
    folded = airflow.xcom("trams", run, "fold")
    assert (folded["command"], folded["run"], folded["first"], folded["last"]) == ("run", 1, 1, 5)
    assert folded["outputs"] == {"journeys": {"plus": 12, "minus": 5}}
    assert "0..5  +7 -0" in airflow.log("trams", run, "changes")
    assert airflow.xcom("trams", run, "verify").startswith("holds    journeys at version 5  7 rows")


def test_with_nothing_new_every_task_is_skipped(airflow: Airflow, srv: Srv) -> None:
    run = airflow.trigger("trams")
    assert airflow.end("trams", run) == "success"
    assert airflow.states("trams", run) == dict.fromkeys(ALL, "skipped")
    assert journeys(srv.trams) == JOURNEYS


def test_a_file_with_an_error_fails_the_run_and_nothing_of_it_is_taken_in(airflow: Airflow, srv: Srv) -> None:
    file = srv.arrives("wrong", "6,1,Zoo,Lake,soon")
    run = airflow.trigger("trams")
    assert airflow.end("trams", run) == "failed"
    later = dict.fromkeys(ALL[1:], "upstream_failed")
    assert airflow.states("trams", run) == {"ingest_links": "failed"} | later
    assert airflow.task("trams", run, "ingest_links")["try_number"] == 4
    log = airflow.log("trams", run, "ingest_links", 4)
    assert "soon" in log and "return code 1" in log
    assert srv.is_whole() and journeys(srv.trams) == JOURNEYS
    file.unlink()


def test_a_worker_that_is_stopped_retries_and_goes_on(airflow: Airflow, srv: Srv) -> None:
    """SIGTERM to the task, as when the worker's machine is taken down: on_kill, exit code 143, the next try."""
    srv.arrives("2", "6,1,Zoo,Lake,2")
    (srv.folder / "halt").touch()
    run = airflow.trigger("trams")
    until((srv.folder / "folding").exists, 90)
    os.kill(airflow.task("trams", run, "fold")["pid"], signal.SIGTERM)
    until(lambda: "return code 143" in airflow.log("trams", run, "fold"), 60)
    assert srv.is_whole() and journeys(srv.trams) == JOURNEYS
    (srv.folder / "halt").unlink()
    assert airflow.end("trams", run) == "success"
    assert airflow.states("trams", run) == dict.fromkeys(ALL, "success") | {"ingest_starts": "skipped"}
    assert airflow.task("trams", run, "fold")["try_number"] == 2
    assert airflow.xcom("trams", run, "fold")["run"] == 3  # 2 was given up
    assert journeys(srv.trams) == JOURNEYS | {"Lake": 16}


def test_a_task_that_is_marked_as_failed_ends_and_is_cleared(airflow: Airflow, srv: Srv) -> None:
    srv.arrives("3", "7,1,Lake,Mill,1")
    (srv.folder / "folding").unlink(missing_ok=True)
    (srv.folder / "halt").touch()
    run = airflow.trigger("trams")
    until((srv.folder / "folding").exists, 90)
    airflow.call("PATCH", f"dags/trams/dagRuns/{run}/taskInstances/fold", {"new_state": "failed"})
    assert airflow.end("trams", run) == "failed"
    until(lambda: _holder(srv) is None, 60)
    assert srv.is_whole() and journeys(srv.trams) == JOURNEYS | {"Lake": 16}
    (srv.folder / "halt").unlink()
    body = {"dag_run_id": run, "task_ids": ["fold"], "include_downstream": True, "dry_run": False}
    airflow.call("POST", "dags/trams/clearTaskInstances", body | {"only_failed": True})
    until(lambda: airflow.states("trams", run)["verify"] == "success", 90)
    assert airflow.end("trams", run) == "success"
    assert journeys(srv.trams) == JOURNEYS | {"Lake": 16, "Mill": 17}


@pytest.mark.spark
def test_spark_submit_on_a_standalone_cluster(airflow: Airflow, tmp_path: Path) -> None:
    """The operator builds the command and runs it; the connection names a master with one worker."""
    srv = Srv(tmp_path)
    srv.write_dag("trams_spark.py", airflow.dags)
    with Standalone(tmp_path / "cluster") as cluster:
        host, _, port = cluster.master.rpartition(":")
        connection = {"connection_id": "spark", "conn_type": "spark", "host": host, "port": int(port)}
        airflow.call("POST", "connections", connection)
        run = airflow.trigger("trams_spark")
        assert airflow.end("trams_spark", run, 400) == "success"
        log = airflow.log("trams_spark", run, "fold")
        assert f"spark-submit --master {cluster.master}" in log
        assert r"\"engine\": \"spark\"" in log or '"engine": "spark"' in log
        assert len(cluster.applications()) == 3
        assert journeys(srv.trams) == JOURNEYS


def _holder(srv: Srv) -> Any:
    """The command that holds the warehouse; None if there is none."""
    ddcore = srv.trams / ".venv" / "bin" / "ddcore"
    told = subprocess.run([ddcore, "status", "--json", "--project", srv.trams], capture_output=True, check=True)
    return json.loads(told.stdout)["holder"]
