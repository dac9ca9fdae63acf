"""One real session: what it is told, what it says, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from seeds import nightly

from ddcore.jobs.spark import session
from ddcore.jobs.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def python(script: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """A process of its own that runs ``script``: what a session prints at its end is seen only from outside."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process


def children(pid: int) -> set[int]:
    """Every process below ``pid``."""
    below = {pid}
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [(int(child), int(parent)) for child, parent in (line.split() for line in listed.splitlines())]
    while more := {child for child, parent in pairs if parent in below} - below:
        below |= more
    return below - {pid}


def test_settings_reach_spark(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.master == "local[2]"


def test_python_jobs_run_on_this_interpreter_with_the_package(spark: SparkSession) -> None:
    def whereabouts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import ddcore

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "package": [str(ddcore.__file__)]})

    frame = spark.range(0, 1, 1, 1).mapInArrow(whereabouts, "python string, package string")
    (row,) = frame.toArrow().to_pylist()
    assert row["python"] == sys.executable
    assert row["package"].endswith("ddcore/__init__.py")


def test_delta_tables_are_written_and_read_without_stray_files(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 3
    assert not list((tmp_path / "table").rglob("*.crc")) or not list((tmp_path / "table").glob(".*.crc"))


def test_a_callers_session_is_left_as_it_is(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        ours = spark_session({"spark.sql.shuffle.partitions": "9"}, master="local[1]")
        assert ours.sparkContext is spark.sparkContext
        assert ours.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        ours.sparkContext.setJobDescription("still alive")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("widths", nightly(["2,", "1, 2"], 1))
def test_a_session_says_nothing_and_leaves_nothing(widths: str, tmp_path: Path) -> None:
    process = python(
        f"""
        from ddcore.jobs.spark.session import spark

        for parallelism in ({widths}):
            with spark({{}}, "local[2]", parallelism) as session:
                assert session.range(10).mapInArrow(lambda batches: batches, "id long").count() == 10
                assert session.conf.get("spark.sql.shuffle.partitions") == str(parallelism)
        """,
        tmp_path,
        TMPDIR=str(tmp_path),
    )
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (0, "", "")
    assert os.listdir(tmp_path) == [], "no spark-warehouse, no sockets, no block folders"


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ('spark({}, "nonsense")', "Master must either be"),
        (
            'spark_context({"spark.network.timeout": "20s"}, "local[1]")',
            "spark.network.timeoutInterval should be less than or equal to spark.network.timeout",
        ),
    ],
)
def test_what_keeps_spark_from_starting_is_said(start: str, reason: str, tmp_path: Path) -> None:
    process = python(
        f"""
        from ddcore.base.errors import DdError
        from ddcore.jobs.spark.session import spark, spark_context

        try:
            with {start}:
                pass
        except DdError as error:
            print(error)
        """,
        tmp_path,
    )
    out, err = process.communicate(timeout=600)
    assert "did not start" in out and reason in out
    assert "ddcore doctor" in out
    assert err == ""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.long)]
)
def test_a_signal_ends_a_running_job_and_all_processes(tmp_path: Path, number: int, code: int) -> None:
    process = python(
        """
        import sys, time
        from ddcore.jobs.spark.session import spark

        def slow(batches):
            for batch in batches:
                print("working", file=open("started", "w"))
                time.sleep(600)
                yield batch

        try:
            with spark({}, "local[1]") as session:
                session.range(1).mapInArrow(slow, "id long").collect()
        except KeyboardInterrupt:
            sys.exit(130)
        """,
        tmp_path,
    )
    deadline = time.monotonic() + 600
    while not (tmp_path / "started").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    below = children(process.pid)
    assert below, "a JVM and a worker are running"
    process.send_signal(number)
    out, err = process.communicate(timeout=300)  # its task would take 600
    assert (process.returncode, out, err) == (code, "", "")
    deadline = time.monotonic() + 120
    while (left := {pid for pid in below if _runs(pid)}) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def _runs(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.slow
@pytest.mark.long
def test_a_cluster_of_two_processes_runs_the_shipped_package(tmp_path: Path) -> None:
    process = python(
        """
        import pyarrow as pa
        from ddcore.jobs.spark.session import spark

        def whereabouts(batches):
            import ddcore.io.storage.warehouse

            for batch in batches:
                yield pa.RecordBatch.from_pydict({"file": [ddcore.io.storage.warehouse.__file__] * batch.num_rows})

        with spark({}, "local-cluster[2,1,1024]") as session:
            files = session.range(0, 2, 1, 2).mapInArrow(whereabouts, "file string").toArrow()["file"]
            print(*set(files.to_pylist()))
            session.range(3).write.format("delta").save("table")
            print(session.read.format("delta").load("table").count())
        """,
        tmp_path,
    )
    out, err = process.communicate(timeout=600)
    assert err == ""
    file, count = out.split()
    assert re.search(r"/code/ddcore-[0-9a-f]{16}/ddcore/io/storage/warehouse\.py$", file)
    assert count == "3"


def test_a_session_that_is_kept_ends_with_the_last_that_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync and the follower around it start one session for all that they do."""
    started, ended = list[str](), list[object]()

    def start(*_: object, **__: object) -> str:
        monkeypatch.setattr(session, "_own", session)
        started.append("one")
        return "session"

    def stop(spark: object, patience: float = 10.0) -> None:
        monkeypatch.setattr(session, "_own", None)
        ended.append(spark)

    monkeypatch.setattr(session, "spark_session", start)
    monkeypatch.setattr(session, "stop", stop)
    monkeypatch.setattr(session, "_own", None)
    with session.kept():
        with session.kept():
            with session.spark({}), session.spark({}):
                pass
            with session.spark({}):
                pass
        assert len(started) == 3 and not ended
    assert len(ended) == 1
    with session.kept():
        pass
    assert len(ended) == 1, "none was started"
    with session.spark({}):
        with session.kept(), session.spark({}):
            pass
        assert len(ended) == 1, "it is that of who started it"
    assert len(ended) == 2


@pytest.mark.slow
@pytest.mark.long
def test_under_spark_submit_the_context_is_the_submitters(tmp_path: Path) -> None:
    import pyspark

    (tmp_path / "job.py").write_text(
        textwrap.dedent(
            """
            from ddcore.jobs.spark.session import spark

            with spark({"spark.app.name": "not this"}, "local[7]", 3) as session:
                context = session.sparkContext
                print("RESULT", context.master, context.appName, session.conf.get("spark.sql.shuffle.partitions"),
                      session.conf.get("spark.sql.session.timeZone"), session.range(4).count())
            """
        )
    )
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [submit, "--master", "local[2]", "--name", "submitted", "--conf", "spark.ui.enabled=false", "job.py"],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "RESULT local[2] submitted 3 UTC 4" in done.stdout, done.stderr


def test_a_session_that_was_there_before_goes_on(spark: SparkSession) -> None:
    from ddcore.jobs.spark import session

    with session.spark({}, "local[2]") as found:
        assert found.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3
    with pytest.raises(ValueError, match="mine"), session.spark({}, "local[2]"):
        raise ValueError("mine")
    assert spark.range(3).count() == 3
