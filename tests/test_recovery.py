"""Runs killed with SIGKILL, driver and workers, at random moments: the next run finishes, no row missing or twice.

Seeds and moments are printed; ``DDCORE_KILLS=300`` makes the long form of it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from real_data import REPOSITORY, shared_data
from warehouses import log_of

from ddcore.io.ledger import Ledger
from ddcore.io.program import load_program
from ddcore.io.project import Project, find_project
from ddcore.io.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest
from ddcore.planner import build

COMMAND = [str(Path(sys.executable).with_name("ddcore"))]
KILLS = int(os.environ.get("DDCORE_KILLS", "12"))
LAST = 1493
FAILPOINTS = ["after-intent", "after-file", "after-table", "after-run"]


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package example with its whole history ingested and nothing folded."""
    folder = tmp_path_factory.mktemp("packages") / "project"
    shutil.copytree(REPOSITORY / "examples" / "packages", folder)
    source = str(shared_data("package_sets", "dependencies.parquet"))
    ingest(find_project(folder, {}), "dependencies", [source], engine="inline")
    return folder


@pytest.fixture(scope="module")
def undisturbed(ingested: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """The logs of one run that nobody disturbs."""
    folder = shutil.copytree(ingested, tmp_path_factory.mktemp("undisturbed") / "project")
    project = find_project(folder, {})
    replay.run(project, engine="inline")
    return logs(project)


def logs(project: Project) -> dict[str, pl.DataFrame]:
    """Every output log, unconsolidated: a row that is there twice shows."""
    outputs = build(load_program(project), project.inputs, project.dims).outputs
    actual = {name: log_of(project, name, schema) for name, schema in outputs.items()}
    return {name: log.sort(log.columns) for name, log in actual.items()}


def assert_same(project: Project, expected: dict[str, pl.DataFrame]) -> None:
    actual = logs(project)
    assert actual.keys() == expected.keys()
    for name, log in expected.items():
        assert_frame_equal(actual[name], log)


# Engine, parallelism, kills; the length of a run in seconds: a first guess, replaced by measurements of runs that end.
KILLED = [("inline", 1, KILLS, 3.0), ("spark", 1, KILLS, 6.0), ("spark", 2, KILLS // 3, 10.0)]


@pytest.mark.parametrize("how", KILLED, ids=["inline", "one-worker", "two-workers"])
def test_killed_at_random_moments(
    how: tuple[str, int, int, float], ingested: Path, undisturbed: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    engine, parallelism, kills, length = how
    folder = shutil.copytree(ingested, tmp_path / "project")
    project = find_project(folder, {})
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    killed = 0
    while killed < kills:
        end = rng.randrange(folded(project) + 1, LAST + 1) if folded(project) < LAST - 1 else LAST
        began = time.monotonic()
        run = start(folder, engine, end, parallelism)
        moment = rng.uniform(0.1, length)
        victim = disturb(run, moment, worker=engine == "spark" and rng.random() < 0.4)
        killed += victim != ""
        code = run.wait(120)
        print(f"{engine} x{parallelism} to {end}: killed {victim or 'nothing'} after {moment:.2f} s, exit {code}")
        if code == 0:
            length = 0.5 * length + 0.5 * (time.monotonic() - began)
            if folded(project) == LAST:
                assert_same(project, undisturbed)
                shutil.rmtree(project.warehouse)
                shutil.copytree(ingested / "warehouse", project.warehouse)
    assert start(folder, engine, LAST, parallelism).wait(120) == 0
    assert_same(project, undisturbed)
    assert not Warehouse(project.warehouse).staging.exists()


def folded(project: Project) -> int:
    upper = Ledger.load(Warehouse(project.warehouse)).upper()
    return -1 if upper is None else upper[0][0] - 1


def start(folder: Path, engine: str, end: int, parallelism: int = 1, **environment: str) -> subprocess.Popen[bytes]:
    arguments = ["run", "-q", "--project", str(folder), "--engine", engine, "--parallelism", str(parallelism)]
    arguments += ["--to-version", str(end)]
    if end <= folded(find_project(folder, {})):
        arguments = arguments[:-2]
    return subprocess.Popen([*COMMAND, *arguments], env={**os.environ, **environment}, stdout=subprocess.DEVNULL)


def disturb(run: subprocess.Popen[bytes], moment: float, worker: bool) -> str:
    """SIGKILL the driver, or one of its Spark workers, after so many seconds; says which, or nothing if too late."""
    try:
        run.wait(moment)
        return ""
    except subprocess.TimeoutExpired:
        pass
    if worker:
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline and run.poll() is None:
            for pid in descendants(run.pid):
                if "pyspark.worker" in command_of(pid):
                    os.kill(pid, signal.SIGKILL)
                    return "a worker"
            time.sleep(0.02)
    if run.poll() is not None:
        return ""
    run.send_signal(signal.SIGKILL)
    return "the driver"


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            yield from descendants(child)
            yield child


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.mark.parametrize("place", FAILPOINTS)
def test_T23_killed_between_two_durable_effects(
    place: str, ingested: Path, undisturbed: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    """Two runs die at the same place, once early and once later; the third one finishes."""
    folder = shutil.copytree(ingested, tmp_path / "project")
    project = find_project(folder, {})
    for end, times in ((700, 1), (LAST, 2 if place in ("after-file", "after-table") else 1)):
        dying = start(folder, "inline", end, DDCORE_FAILPOINT=f"{place}:{times}")
        assert dying.wait(120) == -signal.SIGKILL
    assert start(folder, "inline", LAST).wait(120) == 0
    assert_same(project, undisturbed)
