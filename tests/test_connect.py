"""Folds and ingests through a Spark Connect server, which these tests start as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from range_tasks import tuned
from stores import store_environment
from test_published_tables import Row, fed, held, make, step, version_of
from test_shared_publication_kills import RUN
from trams import KEPT
from workshop import assert_same, contents

from ddcore.base.errors import UsageError
from ddcore.cli.main import run_command
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.ingest import ingest as ingest_rows
from ddcore.jobs.setup import compile_kernels
from ddcore.jobs.spark import connect

PROGRAM = """
import os
import signal
import time
from pathlib import Path

import ddcore as dd
import polars as pl
from ddcore import col

HERE = Path(__file__).parent


def longer(frame):
    try:
        (HERE / "victim").rename(HERE / "lost")  # by one of several workers
        os.kill(os.getpid(), getattr(signal, (HERE / "lost").read_text()))
    except FileNotFoundError:
        pass
    if (HERE / "stop").exists():
        from pyspark import TaskContext

        (HERE / "begun").write_text(str(TaskContext.get().cpus()))
        while (HERE / "stop").exists():
            time.sleep(0.1)
    return frame.with_columns(n=pl.col("n") + 1).filter(pl.col("n") < 4)


def program(links):
    start = links.select("src", "dst", n=1)
    paths = start.flat_map(longer, schema={"src": "string", "dst": "string", "n": "int64"})
    return {"paths": paths, "degrees": links.group_by("src").agg(degree=dd.count(), last=dd.max("dst"))}
"""
SETTINGS = """
[project]
program = "program.py:program"
[inputs.links]
schema = { src = "string", dst = "string" }
"""
FIRST = ["a,b,0,1", "b,c,0,1", "c,d,0,1", "a,c,1,1", "b,c,2,-1"]
SECOND = ["b,e,3,1", "a,b,4,-1", "a,a,4,2"]
COMMAND = "from ddcore.cli.main import main; main()"


class Server:
    """A Spark Connect server on a port of this machine, with two cores, and its own cache folder for executors."""

    def __init__(self, folder: Path, **settings: str) -> None:
        import pyspark

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        from ddcore.jobs.spark import class_archive, jars

        archive = class_archive.current()
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self.port,
            "spark.driver.extraClassPath": os.pathsep.join(map(str, jars.paths())),
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
            + (f" -XX:SharedArchiveFile={archive}" if archive else ""),
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.local.dir": folder / "blocks",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.task.cpus": "2",
            "spark.ui.enabled": "false",
        } | {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}
        self.cache = folder / "cache"
        self.log = folder / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(Path(pyspark.__file__).parent / "bin/spark-submit"),
                    "--master", "local[2]", "--driver-memory", "1g",
                    "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
                    *(text for name, value in conf.items() for text in ("--conf", f"{name}={value}")),
                    "spark-internal",
                ],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=os.environ | {
                    "DDCORE_CACHE": str(self.cache), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"
                },
            )  # fmt: skip
        until(self.answers)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End the server with its Python workers."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
            self.process.wait()

    def environment(self) -> dict[str, str]:
        """Environment of commands: without settings of the shell, with the server's address as PySpark has it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DDCORE_", "SPARK_"))}
        ours = {name: os.environ[name] for name in KEPT if name in os.environ}
        return kept | {"SPARK_REMOTE": f"sc://127.0.0.1:{self.port}"} | ours

    def command(self, project: Path, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments, "--project", str(project)],
            env=self.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, project: Path, *arguments: str) -> tuple[int, str]:
        """A command to its end: exit code and stderr."""
        process = self.command(project, *arguments)
        _, errors = process.communicate(timeout=600)
        return process.returncode, errors


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    compile_kernels()
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


def new_project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(SETTINGS)
    for name, rows in (("first", FIRST), ("second", SECOND)):
        (folder / f"{name}.csv").write_text("\n".join(["src,dst,version,diff", *rows]) + "\n")
    return folder


def folded_inline(folder: Path, *files: str) -> Path:
    """A project with these files, each ingested and folded in this process."""
    project = new_project(folder)
    for file in files:
        for arguments in (["ingest", "links", str(project / file)], ["run"]):
            assert run_command([*arguments, "--engine", "inline", "--quiet", "--project", str(project)]) == 0
    return project


def ingest(project: Path, file: str, *more: str) -> None:
    arguments = ["ingest", "links", str(project / file), "--engine", "inline", "--quiet", "--project", str(project)]
    assert run_command([*arguments, *more]) == 0


def rows_of(folder: Path) -> Any:
    return contents(find_project(folder, {}))


def ledger_of(folder: Path) -> Ledger:
    return Ledger.load(Warehouse(find_project(folder, {}).warehouse))


@pytest.mark.spark
@pytest.mark.slow
def test_folds_on_a_server_leave_what_inline_folds_leave(server: Server, tmp_path: Path) -> None:
    """From the state of an inline run; ``test_ingests_on_a_server_leave_what_inline_ingests_leave`` has both on it."""
    project = folded_inline(tmp_path / "remote", "first.csv")
    ingest(project, "second.csv")
    assert server.run(project, "run", "--engine", "spark", "--quiet") == (0, "")
    assert_same(rows_of(project), rows_of(folded_inline(tmp_path / "inline", "first.csv", "second.csv")), "remote")
    runs = [ledger_of(project).current_run()]
    assert [(run.run, run.first, run.last, run.engine, run.parallelism) for run in runs if run] == [
        (2, time_of(3), time_of(4), "spark", 1)  # only the new versions, from stored state
    ]
    unpacked = list((server.cache / "code").glob("*/ddcore/engine/worker.py"))
    assert len(unpacked) == 1, "the server's workers did not import the package that was sent to them"


@pytest.mark.long
@pytest.mark.spark
def test_tasks_on_a_server_write_a_published_table(server: Server, tmp_path: Path) -> None:
    """Made anew, and then changed."""
    folders = {name: make(tmp_path / name, '{ cluster_by = ["price"] }', 'key = ["id"]') for name in ("here", "there")}
    rows: list[Row] = [(number, "Ayr", None, f"{number % 9}.00", None) for number in range(60)]
    changes: Counter[Row] = Counter({row: -1 for row in rows[::3]})
    changes.update((number, "Ayr", None, f"{number % 7}.50", None) for number, *_ in rows[::6])
    address = f"sc://127.0.0.1:{server.port}"
    for version, batch in enumerate((Counter(rows), changes)):
        step(tuned(find_project(folders["here"], {})), version, batch)
        source = version_of(folders["there"], version, batch)
        ingest_rows(tuned(find_project(folders["there"], {})), "rows", [source], engine="inline")
        command = [sys.executable, str(RUN), str(folders["there"]), address]
        done = subprocess.run(
            command, env=server.environment(), text=True, capture_output=True, timeout=600, check=True
        )
        (published,) = json.loads(done.stdout.splitlines()[-1])
        assert published["tasks"] > 3 and bool(published["made"]) == (version == 0)
        here, there = (folder / "warehouse" / "tables" / "rows" for folder in folders.values())
        assert held(there) == held(here)
    assert Counter(fed(there, 1, 1)) == Counter(fed(here, 1, 1))


@pytest.mark.spark
@pytest.mark.long
def test_two_workers_on_a_server_leave_what_an_inline_fold_leaves(tmp_path: Path) -> None:
    """The server has two cores, of which each worker takes one; the other server runs one task at a time."""
    folder = tmp_path / "server"
    folder.mkdir()
    project = new_project(tmp_path / "remote")
    server = Server(folder, task_cpus="1")
    try:
        for file in ("first.csv", "second.csv"):
            ingest(project, file)
            assert server.run(project, "run", "--engine", "spark", "--parallelism", "2", "--quiet") == (0, "")
    finally:
        server.stop()
    assert_same(rows_of(project), rows_of(folded_inline(tmp_path / "inline", "first.csv", "second.csv")), "remote")
    run = ledger_of(project).current_run()
    assert run is not None
    assert (run.run, run.parallelism) == (2, 2)


@pytest.mark.spark
@pytest.mark.long
def test_two_workers_with_an_object_store_between_of_which_one_is_lost(tmp_path: Path) -> None:
    """The first of two runs loses a worker that hangs, the second one that is killed."""
    folder = tmp_path / "server"
    folder.mkdir()
    project = new_project(tmp_path / "remote")
    settings = SETTINGS.replace("[inputs.links]", 'warehouse = "s3://box/connect"\n[inputs.links]')
    (project / "dd.toml").write_text(settings)
    with store_environment():
        server = Server(folder, task_cpus="1")
        try:
            for file, victim in (("first.csv", "SIGSTOP"), ("second.csv", "SIGKILL")):
                ingest(project, file, *(["--new-warehouse"] if file == "first.csv" else []))
                (project / "victim").write_text(victim)
                assert server.run(project, "run", "--engine", "spark", "--parallelism", "2", "--quiet") == (0, "")
                assert (project / "lost").read_text() == victim
        finally:
            server.stop()
        rows, run = rows_of(project), ledger_of(project).current_run()
        assert run_command(["verify", "--at", "0..4", "--engine", "inline", "-q", "--project", str(project)]) == 0
    assert_same(rows, rows_of(folded_inline(tmp_path / "inline", "first.csv", "second.csv")), "an object store")
    assert run is not None
    assert (run.run, run.parallelism) == (2, 2)


@pytest.mark.spark
@pytest.mark.long
def test_a_server_without_room_for_two_tasks_folds_in_one(server: Server, tmp_path: Path) -> None:
    project = new_project(tmp_path / "remote")
    ingest(project, "first.csv")
    code, errors = server.run(project, "run", "--engine", "spark", "--parallelism", "2", "--quiet")
    assert code == 0, errors
    assert "one worker folds, and not 2: Spark runs 1 task at a time" in errors, errors
    run = ledger_of(project).current_run()
    assert run is not None
    assert run.parallelism == 1


@pytest.mark.spark
@pytest.mark.long
def test_ingests_on_a_server_leave_what_inline_ingests_leave(server: Server, tmp_path: Path) -> None:
    project = new_project(tmp_path / "remote")
    for file in ("first.csv", "second.csv"):
        assert server.run(project, "ingest", "links", str(project / file), "--engine", "spark", "--quiet") == (0, "")
        assert server.run(project, "run", "--engine", "spark", "--quiet") == (0, "")
    assert_same(rows_of(project), rows_of(folded_inline(tmp_path / "inline", "first.csv", "second.csv")), "remote")
    (project / "bad.csv").write_text("src,dst,version,diff\nq,q,9,-1\n")
    code, errors = server.run(project, "ingest", "links", str(project / "bad.csv"), "--engine", "spark")
    assert code == 1 and "bad.csv" in errors and len(errors.splitlines()) <= 2, errors
    code, errors = server.run(project, "verify", "--engine", "spark", "--scratch-folder", str(tmp_path), "--quiet")
    assert code == 0, errors


@pytest.mark.spark
@pytest.mark.long
def test_delta_tables_and_snapshots_are_read_by_a_server(server: Server, tmp_path: Path) -> None:
    import polars as pl

    logs = []
    for name, engine in (("remote", "spark"), ("inline", "inline")):
        project = new_project(tmp_path / name)
        first = pl.DataFrame({"src": ["a", "b"], "dst": ["b", "c"]})
        first.write_delta(str(project / "table"))
        arguments = [
            "ingest",
            "links",
            str(project / "table"),
            "--engine",
            engine,
            "--quiet",
            "--snapshot",
            "--version",
        ]
        assert server.run(project, *arguments, "0") == (0, "")
        first.with_columns(dst=pl.lit("z")).write_delta(str(project / "table"), mode="overwrite")
        assert server.run(project, *arguments, "1") == (0, "")
        assert server.run(project, "run", "--engine", engine, "--quiet") == (0, "")
        rows = rows_of(project)
        logs.append({name: rows[name] for name in ("inputs/links", "outputs/paths", "outputs/degrees")})
    assert_same(logs[0], logs[1], "remote")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_killed_run_is_finished_by_the_next_one(server: Server, tmp_path: Path, number: int, code: int) -> None:
    project = new_project(tmp_path / "remote")
    ingest(project, "first.csv")
    assert server.run(project, "run", "--engine", "spark", "--quiet")[0] == 0
    before = rows_of(project)
    ingest(project, "second.csv")
    (project / "stop").touch()
    process = server.command(project, "run", "--engine", "spark", "--quiet")
    until((project / "begun").exists)
    assert (project / "begun").read_text() == "2", "the task does not see spark.task.cpus"
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == code and "Traceback" not in errors, errors
    after = rows_of(project)
    assert_same({name: after[name] for name in before if name != "inputs/links"},
                {name: before[name] for name in before if name != "inputs/links"}, "killed")  # fmt: skip
    (project / "stop").unlink()  # after SIGKILL the task still runs on the server, and goes on beside the next run
    assert server.run(project, "run", "--engine", "spark", "--quiet")[0] == 0
    assert_same(rows_of(project), rows_of(folded_inline(tmp_path / "inline", "first.csv", "second.csv")), number)


@pytest.mark.spark
@pytest.mark.long
def test_a_server_that_dies_fails_the_run_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    mortal = Server(folder)
    try:
        project = new_project(tmp_path / "remote")
        ingest(project, "first.csv")
        (project / "stop").touch()
        process = mortal.command(project, "run", "--engine", "spark", "--quiet")
        until((project / "begun").exists)
        mortal.stop()
        _, errors = process.communicate(timeout=600)
    finally:
        mortal.stop()
    assert process.returncode == 1 and len(errors.splitlines()) == 2, errors
    assert errors.startswith("error: the Spark job failed: UNAVAILABLE: ") and str(mortal.port) in errors, errors
    (project / "stop").unlink()
    assert run_command(["run", "--engine", "inline", "--quiet", "--project", str(project)]) == 0
    assert_same(rows_of(project), rows_of(folded_inline(tmp_path / "inline", "first.csv")), "afterwards")


@pytest.mark.spark
@pytest.mark.long
def test_a_failing_function_and_refused_settings_are_one_line(server: Server, tmp_path: Path) -> None:
    project = new_project(tmp_path / "remote")
    ingest(project, "first.csv")
    (project / "program.py").write_text(PROGRAM.replace('(HERE / "stop").exists()', "1 / 0"))
    code, errors = server.run(project, "run", "--engine", "spark", "--quiet")
    assert code == 1 and "the function longer failed at program.py:20: ZeroDivisionError" in errors, errors
    (project / "program.py").write_text(PROGRAM)
    for setting in ('"spark.driver.memory" = "4g"', '"spark.sql.shuffle.partitions" = "x"'):
        (project / "dd.toml").write_text(f"{SETTINGS}[spark]\nconf = {{ {setting} }}\n")
        code, errors = server.run(project, "run", "--engine", "spark", "--quiet")
        assert code == 2 and setting.split('"')[1] in errors and len(errors.splitlines()) == 2, errors
    (project / "dd.toml").write_text(SETTINGS)
    assert server.run(project, "run", "--engine", "spark", "--quiet") == (0, "")


@pytest.mark.spark
@pytest.mark.long
def test_the_callers_session_is_used_and_left_as_it_was(server: Server, tmp_path: Path) -> None:
    project = new_project(tmp_path / "remote")
    ingest(project, "first.csv")
    notebook = """
import sys
from pyspark.sql import SparkSession, functions
from ddcore.io.project.finding import find_project
from ddcore.jobs import replay

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
for refresh in (False, True):
    report = replay.run(find_project(sys.argv[2], {}), full_refresh=refresh, engine="spark")
assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
assert spark.range(3).agg(functions.sum("id")).collect()[0][0] == 3 and not spark.getTags()
print(report.parallelism)
"""
    address = f"sc://127.0.0.1:{server.port}"
    environment = {name: value for name, value in server.environment().items() if name != "SPARK_REMOTE"}
    done = subprocess.run(
        [sys.executable, "-c", notebook, address, str(project)],
        env=environment, text=True, capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.stdout == "1\n", done.stderr
    inline = rows_of(folded_inline(tmp_path / "inline", "first.csv"))
    assert_same({name: rows_of(project)[name] for name in inline}, inline, "notebook")


def refused(project: Path, address: str, *arguments: str) -> tuple[int, str]:
    """A run on a server that is not there, in a process that waits less than usual."""
    code = f"from ddcore.jobs.spark import connect; connect._UNTIL_REACHED = 1.0; {COMMAND}"
    environment = {name: value for name, value in os.environ.items() if name[:7] != "DDCORE_" or name == "DDCORE_CACHE"}
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--engine", "spark", "--project", str(project), *arguments],
        env=environment | {"SPARK_REMOTE": address}, text=True, capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_a_server_that_is_not_there_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    project = new_project(tmp_path / "remote")
    ingest(project, "first.csv")
    code, errors = refused(project, "sc://127.0.0.1:1/;token=PlantedSecret123")
    assert code == 1 and errors.splitlines() == [
        "error: no Spark Connect server answers at sc://127.0.0.1:1 within 1 s",
        "  is it running, and is the address right? without Spark: --engine inline",
    ]
    for part in project.rglob("*"):
        assert not part.is_file() or b"PlantedSecret123" not in part.read_bytes(), part
    assert run_command(["run", "--engine", "inline", "--quiet", "--project", str(project)]) == 0
    assert_same(rows_of(project), rows_of(folded_inline(tmp_path / "inline", "first.csv")), "afterwards")


@pytest.mark.parametrize(
    ("address", "arguments", "line"),
    [
        ("sc://127.0.0.1:port", (), "error: master sc://127.0.0.1:port: not an address of Spark Connect: "),
        ("sc://127.0.0.1/a", (), "error: master sc://127.0.0.1/a: not an address of Spark Connect: "),
    ],
)
def test_what_cannot_be_is_refused(address: str, arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    project = new_project(tmp_path / "remote")
    ingest(project, "first.csv")
    code, errors = refused(project, address, *arguments)
    assert code == 2 and errors.startswith(line) and len(errors.splitlines()) == 2, errors


@pytest.mark.spark
@pytest.mark.long
def test_with_another_master_the_variable_is_not_used(tmp_path: Path) -> None:
    project = new_project(tmp_path / "local")
    ingest(project, "first.csv")
    assert refused(project, "sc://127.0.0.1:1", "--master", "local[1]", "--quiet") == (0, "")
    assert_same(rows_of(project), rows_of(folded_inline(tmp_path / "inline", "first.csv")), "local")


def test_a_library_that_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match=r"^Spark Connect needs nowhere: not installed") as refusal:
        connect.check({"grpc": "grpcio", "nowhere.at_all": "nowhere"})
    assert "ddcore[connect]" in str(refusal.value.hint)


def test_the_address_is_a_master_that_others_win_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_has_context", lambda: False)  # other tests of this process leave one
    project = new_project(tmp_path / "project")
    remote = {"SPARK_REMOTE": "sc://one:1"}
    assert find_project(project, remote).spark_master == "sc://one:1"
    assert find_project(project, {**remote, "DDCORE_MASTER": "sc://two:2"}).spark_master == "sc://two:2"
    assert find_project(project, remote, {"spark_master": "local[3]"}).spark_master == "local[3]"
    (project / "dd.toml").write_text(f'{SETTINGS}[spark]\nmaster = "local[1]"\n')
    assert find_project(project, remote).spark_master == "local[1]"
    assert connect.is_used("sc://one:1") and not connect.is_used("local[1]")
