"""SIGINT and SIGTERM while a command works: its exit code, one message, no process left, and a warehouse as before.

Inline commands are stopped at every step in test_failpoints.py. Here Spark works in processes of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from places import local
from soak import command_of, descendants
from workshop import assert_same, contents

from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest

PROGRAM = """
import time
from pathlib import Path

import polars as pl


def double(frame):
    if Path(__file__).with_name("slow").exists():
        Path(__file__).with_name("begun").touch()
        time.sleep(120)
    return frame.select("row", m=pl.col("n") * 2)


def program(numbers):
    def fewer(left):
        return left.where("n > 0").select(n="n - 1").concat(numbers).distinct()

    return {"doubled": numbers.flat_map(double, schema={"m": "int64"}), "left": numbers.iterate(fewer)}
"""
PROJECT = """
[project]
program = "program.py:program"
[inputs.numbers]
schema = { n = "int64" }
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Version 0 is folded, version 1 is ingested, and version 2 is in a file."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "dd.toml").write_text(PROJECT)
    project = find_project(tmp_path, {})
    for version in range(3):
        source = tmp_path / f"{version}.csv"
        source.write_text("n,version,diff\n" + "".join(f"{n},{version},1\n" for n in range(version, version + 3)))
        if version < 2:
            ingest(project, "numbers", [str(source)], engine="inline")
        if version == 0:
            replay.run(project, engine="inline")
    return project


def function_works(project: Project, _: int) -> bool:
    """The function of the program sleeps, in a task of Spark."""
    return (project.root / "begun").exists()


def worker_works(_: Project, pid: int) -> bool:
    """Spark has started a Python worker."""
    return any("pyspark.worker" in command_of(descendant) for descendant in descendants(pid))


RUN = (["run", "--engine", "spark", "--parallelism"], function_works)
INGEST = (["ingest", "numbers", "2.csv", "--engine", "spark"], worker_works)
Begun = Callable[[Project, int], bool]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "begun", "number"),
    [
        pytest.param([*RUN[0], "1"], RUN[1], signal.SIGTERM, id="run, 1 worker, SIGTERM"),
        pytest.param([*RUN[0], "1"], RUN[1], signal.SIGINT, id="run, 1 worker, SIGINT", marks=pytest.mark.long),
        pytest.param([*RUN[0], "2"], RUN[1], signal.SIGTERM, id="run, 2 workers, SIGTERM", marks=pytest.mark.long),
        pytest.param([*RUN[0], "2"], RUN[1], signal.SIGINT, id="run, 2 workers, SIGINT", marks=pytest.mark.long),
        pytest.param(*INGEST, signal.SIGTERM, id="ingest, SIGTERM", marks=pytest.mark.long),
        pytest.param(*INGEST, signal.SIGINT, id="ingest, SIGINT", marks=pytest.mark.long),
    ],
)
def test_a_signal_while_spark_works(arguments: list[str], begun: Begun, number: int, project: Project) -> None:
    before = contents(project)
    (project.root / "slow").touch()
    command = [str(Path(sys.executable).with_name("ddcore")), *arguments]
    with subprocess.Popen(
        command, cwd=project.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        deadline = time.monotonic() + 600  # the machine may be busy
        while not begun(project, process.pid):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.05)
        below = [*descendants(process.pid)]
        assert below
        process.send_signal(number)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert out == ""
    word = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupted"}[signal.Signals(number)]
    lines = [line for line in err.splitlines() if not line.startswith("compiling ")]
    hint = "  the warehouse is as the last finished run or ingest left it; the same command goes on"
    assert lines == [f"error: {word}", hint]
    deadline = time.monotonic() + 20
    while left := [pid for pid in below if command_of(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    warehouse = Warehouse(project.warehouse)
    assert warehouse.holder() is None
    assert (local(project.warehouse) / ".lock").read_bytes() == b""
    assert_same(contents(project), before, "after the signal")
    (project.root / "slow").unlink()
    source = str(project.root / "2.csv")
    assert not ingest(project, "numbers", [source], engine="inline").nothing_new
    report = replay.run(project, engine="inline")
    assert (report.last, report.stale_lock) == (time_of(2), None)
    assert len(contents(project)["outputs/doubled"]) == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_functions_work(number: int, project: Project) -> None:
    """Inline, in the middle of a function of the program."""
    before = contents(project)
    (project.root / "slow").touch()
    command = [str(Path(sys.executable).with_name("ddcore")), "run", "--engine", "inline"]
    with subprocess.Popen(command, cwd=project.root, stderr=subprocess.PIPE, text=True) as process:
        while not function_works(project, process.pid):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert "Traceback" not in err and err.count("error: ") == 1
    assert Warehouse(project.warehouse).holder() is None
    assert_same(contents(project), before, "after the signal")
    os.unlink(project.root / "slow")
    replay.run(project, engine="inline")
    assert len(contents(project)["outputs/doubled"]) == 6
