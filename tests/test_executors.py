"""Processes of Spark that are lost in the middle of a loop, real ones: runs go on or fail, and their logs are right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import local
from standalone import Standalone
from stores import store_environment
from workshop import assert_same, contents

from ddcore.cli.main import run_command
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


def executor():
    return next(
        pid for pid in processes() if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def disturb(what):
    if what == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "executor":
        os.kill(executor(), signal.SIGKILL)
    elif what == "hung worker":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "hung executor":
        os.kill(executor(), signal.SIGSTOP)
        return
    elif what == "full disk":
        os.environ["DDCORE_FAILPOINT"] = "after-write=full"
        return
    elif what == "memory":
        (HERE / "little memory").touch()
        return
    time.sleep(60)  # what kills the driver is elsewhere


def fewer(frame):
    cause, again = HERE / "cause", HERE / "again"
    if cause.exists() and frame["n"].max() == 4:
        what = cause.read_text()
        cause.rename(HERE / "disturbed")
        (HERE / "process").write_text(str(os.getpid()))
        disturb(what)
    if (HERE / "little memory").exists() and (HERE / "process").read_text() == str(os.getpid()):
        raise MemoryError("of the test")
    if (HERE / "process").exists() and frame["n"].max() == 8 and not again.exists():
        again.touch()  # as only the first round of a fold has it
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


def begun(project: Project, master: str, parallelism: int, *arguments: str) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("ddcore")), "run", "--engine", "spark", "--master", master]
    return subprocess.Popen(
        [*command, "--parallelism", str(parallelism), "--project", project.root, *arguments],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output and errors."""
    try:
        out, errors = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            process.kill()
    return process.returncode, out, errors


def check_law(project: Project) -> None:
    """At every version, by the naive evaluator."""
    assert run_command(["verify", "--at", "0..2", "--engine", "inline", "--quiet", "--project", str(project.root)]) == 0


CLUSTER = "local-cluster[2,1,1024]"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    ("victim", "master", "parallelism"),
    [
        ("worker", "local[2,4]", 1),
        ("worker", "local[2,4]", 2),
        ("worker", "local[4]", 4),
        ("worker", CLUSTER, 1),
        ("worker", CLUSTER, 2),
        ("executor", CLUSTER, 1),
        ("executor", CLUSTER, 2),
        ("hung worker", "local[2]", 2),
        ("hung worker", CLUSTER, 2),
    ],
)
def test_a_run_survives_the_loss_of_a_process(victim: str, master: str, parallelism: int, project: Project) -> None:
    expected = undisturbed(project)
    (project.root / "cause").write_text(victim)
    code, out, errors = ended(begun(project, master, parallelism))
    assert (project.root / "disturbed").exists()
    assert code == 0, errors[-2000:]
    report = json.loads(out.splitlines()[-1])
    assert (report["run"], report["parallelism"]) == (1, parallelism)
    assert_same(contents(project), expected, victim)
    check_law(project)
    if parallelism > 1:  # all tasks have ended, and others have begun
        lost = (project.root / "again").stat().st_mtime - (project.root / "process").stat().st_mtime
        print(f"the fold began again after {lost:.1f} s")
        assert lost < (90 if victim == "hung worker" else 60), f"the fold began again after {lost:.0f} s"
    assert not is_running(int((project.root / "process").read_text()))


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    ("victim", "line"), [("full disk", "No space left on device"), ("memory", "MemoryError: of the test")]
)
def test_an_error_of_one_worker_ends_all_and_the_next_run_folds(victim: str, line: str, project: Project) -> None:
    expected = undisturbed(project)
    before = contents(project)
    (project.root / "cause").write_text(victim)
    code, _, errors = ended(begun(project, "local[2]", 2))
    assert code == 1 and line in errors and len(errors.splitlines()) <= 2, errors
    assert (project.root / "disturbed").exists()
    took = time.time() - (project.root / "process").stat().st_mtime
    assert took < 60, f"all had ended after {took:.0f} s"
    assert not is_running(int((project.root / "process").read_text()))
    assert_same(contents(project), before, victim)
    (project.root / "little memory").unlink(missing_ok=True)
    code, _, errors = ended(begun(project, "local[2]", 2))
    assert code == 0, errors
    assert_same(contents(project), expected, victim)
    check_law(project)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("master", ["local[2]", CLUSTER])
def test_a_killed_driver_takes_all_with_it(master: str, project: Project) -> None:
    """Its JVM, executors and workers are gone within seconds, and the next run folds all."""
    expected = undisturbed(project)
    before = contents(project)
    (project.root / "cause").write_text("driver")
    process = begun(project, master, 2)
    end = time.monotonic() + 300
    while not (project.root / "process").exists() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(0.5)
    worker = int((project.root / "process").read_text())
    family = descendants(process.pid)
    assert worker in family
    process.kill()
    ended(process)
    end = time.monotonic() + 30
    while any(map(is_running, family)) and time.monotonic() < end:
        time.sleep(0.1)
    assert [pid for pid in family if is_running(pid)] == []
    assert_same(contents(project), before, "driver")
    code, _, errors = ended(begun(project, master, 2))
    assert code == 0, errors
    assert_same(contents(project), expected, "driver")
    check_law(project)


def descendants(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for number in map(int, child.read_text().split()):
            found += [number, *descendants(number)]
    return found


ENCRYPTION = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "of-this-test",
    "spark.network.crypto.enabled": "true",
}


NOTING = """
import os, pathlib, ssl

wrap = ssl.SSLContext.wrap_socket


def wrap_socket(self, *arguments, **options):
    connection = wrap(self, *arguments, **options)
    handshake = connection.do_handshake

    def do_handshake(*arguments):
        handshake(*arguments)
        pathlib.Path({folder!r}, f"{{os.getpid()}} {{connection.server_side}}").write_text(connection.version())

    if connection.server_side:
        connection.do_handshake = do_handshake
    else:  # it has shaken hands
        handshake = lambda: None
        do_handshake()
    return connection


ssl.SSLContext.wrap_socket = wrap_socket
"""


def configured(project: Project, conf: dict[str, str], warehouse: str = "warehouse") -> None:
    lines = ", ".join(f'"{name}" = "{value}"' for name, value in conf.items())
    text = PROJECT.replace("[inputs", f'warehouse = "{warehouse}"\n[inputs')
    (project.root / "dd.toml").write_text(f"{text}\n[spark]\nconf = {{ {lines} }}\n")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(("conf", "versions"), [(ENCRYPTION, ["TLSv1.3"] * 2), ({}, [])], ids=["encrypted", "plain"])
def test_workers_encrypt_where_spark_does(
    conf: dict[str, str], versions: list[str], project: Project, tmp_path: Path
) -> None:
    """Executors note the version of TLS at each end of a connection that their Python encrypts."""
    expected = undisturbed(project)
    for name in ("noting", "noted"):
        (tmp_path / name).mkdir()
    (tmp_path / "noting" / "sitecustomize.py").write_text(NOTING.format(folder=str(tmp_path / "noted")))
    configured(project, conf | {"spark.executorEnv.PYTHONPATH": str(tmp_path / "noting")})
    code, out, errors = ended(begun(project, CLUSTER, 2))
    assert code == 0, errors
    assert json.loads(out.splitlines()[-1])["parallelism"] == 2
    assert_same(contents(project), expected, "encrypted")
    noted = [*(tmp_path / "noted").iterdir()]
    assert [file.read_text() for file in noted] == versions
    assert len({file.name.split()[0] for file in noted}) == len(versions), "each is of a process of its own"


@pytest.mark.long
@pytest.mark.spark
def test_an_executor_that_hangs_is_given_up_when_spark_does(project: Project) -> None:
    """The JVM is stopped, and its Python worker is not."""
    expected = undisturbed(project)
    (project.root / "cause").write_text("hung executor")
    configured(project, HASTY)
    code, out, errors = ended(begun(project, CLUSTER, 2))
    assert (project.root / "disturbed").exists()
    assert code == 0, errors
    assert json.loads(out.splitlines()[-1])["parallelism"] == 2
    assert_same(contents(project), expected, "hung executor")
    check_law(project)


@pytest.mark.long
@pytest.mark.spark
def test_a_standalone_cluster_with_an_object_store_between(project: Project, tmp_path: Path) -> None:
    """Two executors of one core, of which one is killed; the warehouse is at a URL."""
    expected = undisturbed(project)
    (project.root / "cause").write_text("executor")
    with store_environment(), Standalone(tmp_path / "cluster") as cluster:
        configured(project, {"spark.executor.cores": "1", "spark.executor.memory": "512m"}, "s3://box/standalone")
        stored = find_project(project.root, {})
        take_in = [
            "ingest",
            "numbers",
            str(project.root / "numbers.csv"),
            "--new-warehouse",
            "--engine",
            "inline",
            "-q",
        ]
        assert run_command([*take_in, "--project", str(project.root)]) == 0
        code, out, errors = ended(begun(project, cluster.master, 2))
        assert (project.root / "disturbed").exists()
        assert code == 0, errors
        assert json.loads(out.splitlines()[-1])["parallelism"] == 2
        assert_same(contents(stored), expected, "an object store")
        check_law(project)


DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
}


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    ("master", "conf", "reason"),
    [
        (CLUSTER, DYNAMIC,
         "spark.dynamicAllocation.enabled is set, and with it Spark does not start several tasks together"),
        ("local-cluster[1,1,1024]", {}, "Spark runs 1 task at a time"),
    ],
)  # fmt: skip
def test_one_worker_folds_where_spark_starts_no_two_together(
    master: str, conf: dict[str, str], reason: str, project: Project
) -> None:
    expected = undisturbed(project)
    configured(project, conf)
    code, out, errors = ended(begun(project, master, 2))
    assert code == 0, errors
    assert f"one worker folds, and not 2: {reason}" in errors, errors
    assert json.loads(out.splitlines()[-1])["parallelism"] == 1
    assert_same(contents(project), expected, reason)


SCALING = """
import sys, time
from dataclasses import replace
from pathlib import Path

from ddcore.base.tuning import Tuning
from ddcore.io.project.finding import find_project
from ddcore.jobs import engines, replay
from ddcore.jobs.spark import session, slots

project = find_project(Path(sys.argv[1]), {"DDCORE_MASTER": sys.argv[2]})
project = replace(project, tuning=Tuning(parallel_rows=1, fed_rows=1))
with engines.kept("spark"), session.spark_context(project.spark_conf, project.spark_master) as context:
    for line in sys.stdin:
        until = time.monotonic() + 300
        while slots._executors(context) != int(line):
            assert time.monotonic() < until, slots._executors(context)
            time.sleep(0.1)
        print(replay.run(project, engine="spark").parallelism, flush=True)
"""


@pytest.mark.long
@pytest.mark.spark
def test_a_cluster_that_grows_and_shrinks(project: Project, tmp_path: Path) -> None:
    """Runs of one session: each has as many workers as there are executors when it begins."""
    with Standalone(tmp_path / "cluster", cores=1) as cluster:
        configured(project, {"spark.executor.cores": "1", "spark.executor.memory": "512m"})
        script = subprocess.Popen(
            [sys.executable, "-c", SCALING, str(project.root), cluster.master],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert script.stdin is not None
        assert script.stdout is not None
        with script:
            for version, (executors, change) in enumerate([(1, None), (2, cluster.grow), (1, cluster.shrink)], 3):
                if change is not None:
                    change()
                file = project.root / f"more-{version}.csv"
                file.write_text(f"n,version,diff\n3,{version},1\n4,{version},1\n5,{version},1\n")
                ingest(project, "numbers", [str(file)], engine="inline")
                print(executors, file=script.stdin, flush=True)
                assert script.stdout.readline() == f"{executors}\n"
        assert script.returncode == 0
    assert run_command(["verify", "--at", "0..5", "--engine", "inline", "--quiet", "--project", str(project.root)]) == 0


HASTY = {
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "4s",
}

WALL = """
import errno, pathlib, socket, time


def create_connection(address, timeout):
    called = pathlib.Path(__file__).with_name("called")
    if not called.exists():
        called.touch()
    if {silent}:
        time.sleep(timeout)
        raise TimeoutError("timed out")
    raise OSError(errno.EHOSTUNREACH, "No route to host")


socket.create_connection = create_connection
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("silent", [False, True])
def test_one_worker_folds_where_executors_do_not_reach_each_other(
    silent: bool, project: Project, tmp_path: Path
) -> None:
    """Their Python opens no connection to others: it is told so, or told nothing."""
    expected = undisturbed(project)
    (tmp_path / "wall").mkdir()
    (tmp_path / "wall" / "sitecustomize.py").write_text(WALL.format(silent=silent))
    configured(project, {"spark.executorEnv.PYTHONPATH": str(tmp_path / "wall")})
    code, out, errors = ended(begun(project, CLUSTER, 2))
    assert code == 0, errors
    seconds = time.time() - (tmp_path / "wall" / "called").stat().st_mtime
    assert "one worker folds, and not 2: worker 1 cannot reach worker 0 at " in errors, errors
    assert json.loads(out.splitlines()[-1])["parallelism"] == 1
    assert_same(contents(project), expected, "a wall")
    assert seconds < 240, "with another fold"


@pytest.mark.long
@pytest.mark.spark
def test_an_executor_with_an_empty_cache_compiles_no_kernel(project: Project, tmp_path: Path) -> None:
    """They come with the package, which it unpacks into that cache, and are linked there at most."""
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
    assert {folder.name for folder in (tmp_path / "executor").iterdir()} <= {"code", "linked"}
