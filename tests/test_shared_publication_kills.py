"""Published tables whose tasks, executors or command are killed, stopped, begun twice or slow.

The next run finishes what was left; a table never shows a part of a run, and gets one commit for each.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from range_tasks import tuned
from standalone import Standalone
from stores import store_environment
from test_executors import descendants, is_running
from test_published_tables import Row, check_feed, drawn, fed, held, make, project_of, step, version_of
from workshop import check_published

from ddcore.io.delta.open_tables import location, options_of
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.ingest import IngestSettings, ingest

RUN = Path(__file__).parent / "support" / "range_tasks.py"
TABLE = '{ partition_by = ["town"], cluster_by = ["price"] }'
KEY = 'key = ["id"]'


@dataclass(frozen=True)
class Behind:
    """A project whose table is a run behind its output, or not there. ``before``, ``after``: the rows of the table."""

    folder: Path
    before: Counter[Row]
    after: Counter[Row]

    @property
    def table(self) -> Path:
        return self.folder / "warehouse" / "tables" / "rows"

    def copied(self, folder: Path) -> Behind:
        shutil.copytree(self.folder, folder)
        return Behind(folder, self.before, self.after)

    def check_between(self) -> None:
        """Readers see one or the other."""
        if not (self.table / "_delta_log").exists():
            assert not self.before
        else:
            assert held(self.table) in (self.before, self.after)

    def check_after(self) -> None:
        assert held(self.table) == self.after
        log = DeltaTable(str(self.table))
        assert log.version() == (1 if self.before else 0)
        runs = [entry["ddcore.run"] for entry in log.history()]
        assert len(runs) == len({*runs})
        if self.before:
            check_feed(fed(self.table, 1, 1), self.before, self.after, "")
        check_published(find_project(self.folder, {}), is_current=True)
        left = [file.parent.name for file in self.table.rglob(".*.tmp")]
        assert left in ([], ["_delta_log"])  # killed with its commit made: the next one deletes it


@pytest.fixture(params=["new", "changed"])
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Behind:
    """Folded, and not published: the run before it was without the table."""
    project = tuned(project_of(make(tmp_path / "p", TABLE, KEY)))
    rng, serial = random.Random(3), iter(range(10**6))
    rows = [drawn(rng, serial, unique=True) for _ in range(60)]
    step(project, 0, Counter(rows))
    changes: Counter[Row] = Counter({row: -1 for row in rows[::6]})
    changes.update((number, town, day, "7.25", None) for number, town, day, *_ in rows[::12])
    after = Counter(rows)
    after.update(changes)
    toml = project.root / "dd.toml"
    text = toml.read_text()
    toml.write_text(text.replace(f"table = {TABLE}", ""))
    step(tuned(project_of(project.root)), 1, changes)
    toml.write_text(text)
    found = Behind(project.root, Counter(rows) if request.param == "changed" else Counter(), +after)
    if request.param == "new":
        shutil.rmtree(found.table)
    return found


def run(folder: Path, master: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUN), str(folder), master],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        text=True, capture_output=True, timeout=600, check=False,
    )  # fmt: skip


def points_of(behind: Behind, folder: Path, master: str) -> list[str]:
    """The places that a run reaches, each time that a process of it gets there."""
    whole, log = behind.copied(folder), folder.with_suffix(".log")
    done = run(whole.folder, master, DDCORE_FAILPOINT_LOG=str(log))
    assert done.returncode == 0, done.stderr[-3000:]
    (published,) = json.loads(done.stdout.splitlines()[-1])
    assert published["tasks"] > 3 and bool(published["made"]) == (not behind.before)
    whole.check_after()
    reached = Counter[tuple[str, str]](tuple(line.split()) for line in log.read_text().splitlines())  # type: ignore[misc]
    most = Counter[str]()
    for (_, point), times in reached.items():
        most[point] = max(most[point], times)
    return [f"{point}:{number}" for point, times in most.items() for number in range(1, times + 1)]


@pytest.mark.parametrize("sample", [1, pytest.param(None, marks=pytest.mark.long)], ids=["some", "all"])
def test_a_command_that_is_killed_anywhere_is_finished_by_the_next(
    sample: int | None, behind: Behind, tmp_path: Path, seed: int
) -> None:
    """Its tasks are in its own process, so they are killed with it."""
    points = points_of(behind, tmp_path / "whole", "here")
    assert {"after-write", "after-file", "after-published"} <= {point.partition(":")[0] for point in points}
    assert len(points) > 30
    for point in random.Random(seed).sample(points, sample or len(points)):
        print(point)
        killed = behind.copied(tmp_path / "killed")
        assert run(killed.folder, "here", DDCORE_FAILPOINT=point).returncode == -signal.SIGKILL, point
        killed.check_between()
        again = run(killed.folder, "here")
        assert again.returncode == 0, again.stderr[-3000:]
        killed.check_after()
        shutil.rmtree(killed.folder)


CLUSTER = "local-cluster[2,1,1024]"


@pytest.mark.long
@pytest.mark.spark
def test_tasks_of_spark_that_are_killed_at_every_step(behind: Behind, tmp_path: Path) -> None:
    """Again and again, until Spark gives the job up; in the command's own process, that one is killed. What the next
    run finishes does not depend on who writes then: tasks here, which start in a tenth of the time.
    """
    points = points_of(behind, tmp_path / "whole", "local[2]")
    assert len(points) > 5
    for point in points:
        print(point)
        killed = behind.copied(tmp_path / "killed")
        ended = run(killed.folder, "local[2]", DDCORE_FAILPOINT=point)
        assert ended.returncode in (-signal.SIGKILL, 1) or point.startswith(("after-write", "after-file")), ended
        assert ended.returncode != 1 or len(ended.stderr.splitlines()) <= 2, ended.stderr[-3000:]
        killed.check_between()
        again = run(killed.folder, "here")
        assert again.returncode == 0, again.stderr[-3000:]
        killed.check_after()
        shutil.rmtree(killed.folder)


@pytest.mark.long
@pytest.mark.spark
def test_a_command_that_is_killed_while_tasks_write(behind: Behind, tmp_path: Path) -> None:
    """A task stops after its second file, and the command is killed; what is written then is in no commit."""
    log = tmp_path / "log"
    variables = {"DDCORE_FAILPOINT": "after-file:2=halt", "DDCORE_FAILPOINT_LOG": str(log)}
    with subprocess.Popen(
        [sys.executable, str(RUN), str(behind.folder), CLUSTER],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **variables}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as command:  # fmt: skip
        end = time.monotonic() + 300
        while not any(n > 1 for n in files_by_process(log).values()) and time.monotonic() < end:
            time.sleep(0.05)
        family = descendants(command.pid)
        command.kill()
    stopped = [pid for pid, number in files_by_process(log).items() if number > 1]
    assert stopped and {*stopped} <= {*family}
    for pid in stopped:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 60
    while any(map(is_running, family)) and time.monotonic() < end:
        time.sleep(0.1)
    assert [*behind.table.rglob("*.parquet")]
    behind.check_between()
    again = run(behind.folder, CLUSTER)
    assert again.returncode == 0, again.stderr[-3000:]
    behind.check_after()


def files_by_process(log: Path) -> Counter[int]:
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter(int(line.split()[0]) for line in lines if line.endswith(" after-file"))


# One task of all: the first that gives a file of the table its name, then or before that.
VICTIM = """
import os, pathlib, signal, time

cause = pathlib.Path({cause!r})
finish = pathlib.Path.replace


def executor():
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in pathlib.Path(f"/proc/{{pid}}/cmdline").read_bytes():
        pid = int(pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def replace(self, target):
    if cause.exists() and "/tables/rows" in str(target):
        try:
            finish(cause, cause.with_name("happened"))
        except FileNotFoundError:
            return finish(self, target)
        what = cause.with_name("happened").read_text()
        finish(self, target)
        if what == "slow":
            time.sleep(20)
        else:
            os.kill(executor() if what == "executor" else os.getpid(), signal.SIGKILL)
            time.sleep(60)
        return target
    return finish(self, target)


pathlib.Path.replace = replace
"""
SPECULATION = {
    "spark.speculation": "true", "spark.speculation.interval": "200ms", "spark.speculation.quantile": "0.2",
    "spark.speculation.multiplier": "1.1", "spark.speculation.minTaskRuntime": "500ms",
}  # fmt: skip


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("cause", ["worker", "executor", "slow"])
def test_tasks_that_are_lost_or_begun_twice_are_committed_once(cause: str, behind: Behind, tmp_path: Path) -> None:
    """A task's process or its executor is killed once, or the task is slow and Spark begins it again beside it."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(VICTIM.format(cause=str(tmp_path / "cause")))
    (tmp_path / "cause").write_text(cause)
    conf = {"spark.executorEnv.PYTHONPATH": str(tmp_path / "python"), **(SPECULATION if cause == "slow" else {})}
    lines = ", ".join(f'"{name}" = "{value}"' for name, value in conf.items())
    toml = behind.folder / "dd.toml"
    toml.write_text(f"{toml.read_text()}\n[spark]\nconf = {{ {lines} }}\n")
    start = time.monotonic()
    done = run(behind.folder, CLUSTER)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "happened").exists()
    behind.check_after()
    print(cause, time.monotonic() - start)


@pytest.mark.long
@pytest.mark.spark
def test_a_standalone_cluster_writes_a_table_of_an_object_store(tmp_path: Path) -> None:
    """Its contents, and those of its change feed, are those of the inline project."""
    rng, serial = random.Random(8), iter(range(10**6))
    rows = [drawn(rng, serial, unique=True) for _ in range(60)]
    changes: Counter[Row] = Counter({row: -1 for row in rows[::5]})
    changes.update((number, town, day, "7.25", None) for number, town, day, *_ in rows[::10])
    sides = []
    with store_environment(), Standalone(tmp_path / "cluster") as cluster:
        for name, master in (("inline", ""), ("shared", cluster.master)):
            folder = make(tmp_path / name, TABLE, KEY)
            text = (folder / "dd.toml").read_text().replace("[run]", f'warehouse = "s3://box/{name}"\n[run]')
            conf = '{ "spark.executor.cores" = "1", "spark.executor.memory" = "512m" }'
            (folder / "dd.toml").write_text(f"{text}\n[spark]\nconf = {conf}\n")
            project = tuned(find_project(folder, {}))
            for version, batch in enumerate((Counter(rows), changes)):
                toml = project.root / "dd.toml"
                if master:  # folded here, published there
                    whole = toml.read_text()
                    toml.write_text(whole.replace(f"table = {TABLE}", ""))
                    step_new(tuned(find_project(folder, {})), version, batch)
                    toml.write_text(whole)
                    done = run(folder, master)
                    assert done.returncode == 0, done.stderr[-3000:]
                    (published,) = json.loads(done.stdout.splitlines()[-1])
                    assert published["tasks"] > 3
                else:
                    step_new(project, version, batch)
            check_published(project, is_current=True)
            position = Warehouse(project.warehouse).published("rows")
            table = DeltaTable(location(position), storage_options=options_of(position))
            feed = table.load_cdf(1, 1).read_all()
            kinds = Counter(zip(feed["_change_type"].to_pylist(), feed["id"].to_pylist(), strict=True))
            contents = sorted(map(repr, table.to_pyarrow_table().to_pylist()))
            sides.append((contents, kinds, table.version()))
    assert sides[0] == sides[1] and len(sides[0][0]) == 54


def step_new(project: Project, version: int, changes: Counter[Row]) -> replay.RunReport:
    source = version_of(project.root, version, changes)
    ingest(project, "rows", [source], IngestSettings(new_warehouse=version == 0), engine="inline")
    return replay.run(project, engine="inline")
