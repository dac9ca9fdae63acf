"""Runs that fail or are killed: their versions stay open, the project is as it was, and the way on needs no refresh.

A walk through what may go wrong before a table is committed. Each time: it fails with one line, the cause is removed,
rows come at a version of the failed run, and the next run gives what the reference gives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sparkless
from deltalake import DeltaTable
from places import local
from seeds import nightly
from trams import Command
from warehouses import last_closed, logs_of

from ddcore import reference
from ddcore.base.errors import DdError, Diverged, ExpressionError, FoldError, ProgramError, StorageError
from ddcore.base.schema import Type
from ddcore.base.tuning import Tuning
from ddcore.io.delta import tables
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.intent import give_up, is_committed
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import FailureRecord, IntentRecord
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_program
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.ingest import IngestReport, ingest
from ddcore.planning.planner import build

PROGRAM = """
from pathlib import Path

import polars as pl
import ddcore as dd


class Odd(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


def deep(n):
    return deep(n + 1)


def fail(where):
    cause = Path(__file__).with_name("cause")
    if cause.exists() and cause.read_text().startswith(where):
        names = {"Odd": Odd, "Mute": Mute, "deep": deep, "Path": Path, "__file__": __file__}
        exec(cause.read_text().partition(":")[2].strip(), names)


def double(frame):
    fail("linear")
    return frame.select("row", m=pl.col("n") * 2)


def largest(frame):
    fail("reduce")
    return frame.group_by("group").agg(pl.col("m").max(), size=pl.col("count").sum())


def program(numbers):
    doubled = numbers.flat_map(double, schema={"m": "int64"})
    parts = doubled.select("m", half="m // 4")
    return {"doubled": doubled, "largest": parts.group_by("half").reduce(largest, {"m": "int64", "size": "int64"})}
"""
OTHER = PROGRAM.replace("* 2)", "* 3)")
ROWS = [(n, version, 1) for version in range(4) for n in range(version, version + 5)]


def bring(project: Project, *rows: tuple[int, int, int]) -> IngestReport:
    """Ingest rows from a file of their own."""
    source = project.root / f"source-{ledger_of(project).next_ingest()}.csv"
    frame_of(list(rows)).write_csv(source)
    return ingest(project, "numbers", [str(source)], engine="inline")


def frame_of(rows: list[tuple[int, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["n", "version", "diff"], orient="row")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Versions 0..3 are ingested, nothing is folded."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n'
        '[inputs.numbers]\nschema = { n = "int64" }\n'
    )
    project = find_project(folder, {})
    bring(project, *ROWS)
    return project


def ledger_of(project: Project) -> Ledger:
    return Ledger.load(Warehouse(project.warehouse), Writer())


def check_law(project: Project, since: int = 0) -> None:
    """Outputs equal the reference's, on all that is in the input's table; as of version ``since`` and from there on."""
    ledger, log = ledger_of(project), Warehouse(project.warehouse).input("numbers")
    state = ledger.input_table("numbers")
    frame = tables.scan(log, tables.live_files(log, state), dict.fromkeys(["n", "version", "diff"], Type("int64")))
    program = load_program(project)
    outputs = build(program, project.inputs, project.dims).outputs
    assert ledger.last_folded() == ledger.latest_ingested()
    expected = reference.replay(program, project.dims, numbers=frame.collect())
    assert {name: advanced(log, since) for name, log in logs_of(project, outputs).items()} == {
        name: advanced(log, since) for name, log in expected.items()
    }


def advanced(log: Mapping[Any, int], since: int) -> Counter[Any]:
    """A log's updates with the versions before ``since`` as one."""
    total: Counter[Any] = Counter()
    for (row, (version,)), diff in log.items():
        total[row, max(version, since)] += diff
    return Counter({update: diff for update, diff in total.items() if diff})


def check_open(project: Project, folded: int | None = None) -> None:
    """No run is in the way, and the versions that are not folded take rows."""
    ledger = ledger_of(project)
    assert ledger.open_intent() is None
    assert last_closed(ledger, "numbers") == time_of(folded)
    assert bring(project, (100 + ledger.next_ingest(), 2, 1)).first == time_of(2)


# --- functions of the user's ------------------------------------------------------------------------------------------

RAISED = {
    "raise ValueError('bad')": "ValueError: bad",
    "raise Mute()": "Mute",
    "raise Odd('odd')": "Odd: odd",
    "raise Odd()": "Odd",
    "raise SystemExit(0)": "SystemExit: 0",
    "import sys; sys.exit('no')": "SystemExit: no",
    "assert False": "AssertionError",
    "raise StopIteration()": "StopIteration",
    "raise OSError(28, 'No space left on device')": "No space left on device",
    "deep(0)": "RecursionError",
    "raise MemoryError('32 GiB')": "32 GiB",
}
ENGINES = {"inline": ("inline", None), "one task": ("spark", 1), "two tasks": ("spark", 2)}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """How to fold; Spark is pretended, see ``sparkless``."""
    name, parallelism = ENGINES[request.param]
    if name == "spark":
        sparkless.install(monkeypatch)
    return {"engine": name, "parallelism": parallelism}


WAYS = [*product(ENGINES, ["linear", "reduce"])]
BY_DAY = [(raised, where, engine) for raised, (engine, where) in zip(RAISED, cycle(WAYS))]
BY_NIGHT = [(raised, where, engine) for raised in RAISED for engine, where in WAYS]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("raised", "point", "engine"),
    nightly(list(dict.fromkeys([*BY_DAY, *BY_NIGHT])), len(BY_DAY)), indirect=["engine"],
)  # fmt: skip
def test_a_function_that_raises(raised: str, point: str, engine: dict[str, Any], project: Project) -> None:
    """Of whatever class: one line that names the file, at the first run and at a later one."""
    cause = project.root / "cause"
    for folded in (None, 1):
        cause.write_text(f"{point}: {raised}")
        with pytest.raises(FoldError) as caught:
            replay.run(project, **engine)
        assert "\n" not in caught.value.message
        assert RAISED[raised] in caught.value.message
        if "MemoryError" not in raised:
            assert isinstance(caught.value, ExpressionError)
            assert "program.py:" in caught.value.message
        assert [failure.error for failure in ledger_of(project).records(FailureRecord)][-1] == caught.value.message
        check_open(project, folded)
        cause.unlink()
        if folded is None:
            replay.run(project, last=time_of(1), **engine)
    replay.run(project, **engine)
    check_law(project)


@pytest.mark.parametrize("raised", ["raise SystemExit(0)", "raise Mute()", "raise Odd('odd')", "assert False"])
def test_the_command_line_says_it_in_one_line(
    raised: str, project: Project, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    Path("cause").write_text(f"linear: {raised}")
    code, out, err = dd("run")
    assert (code, out, len(err)) == (1, [], 2)
    assert err[0].startswith("error: ")
    Path("cause").unlink()
    assert dd("run", "-q") == (0, [], [])
    check_law(project)


def test_an_interrupt_leaves_the_versions_open(project: Project) -> None:
    (project.root / "cause").write_text("reduce: import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    with pytest.raises(KeyboardInterrupt):
        replay.run(project)
    (failure,) = ledger_of(project).records(FailureRecord)
    assert failure.error == "interrupted"
    check_open(project)
    (project.root / "cause").unlink()
    replay.run(project)
    check_law(project)


@pytest.mark.sample(2)
def test_after_a_failure_the_program_may_be_corrected(engine: dict[str, Any], project: Project) -> None:
    (project.root / "cause").write_text("reduce: raise SystemExit")
    with pytest.raises(ExpressionError):
        replay.run(project, **engine)
    (project.root / "program.py").write_text(OTHER.replace('fail("reduce")', "pass"))
    check_open(project)
    replay.run(project, **engine)
    check_law(project)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_function_that_cannot_be_sent(parallelism: int, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sparkless.install(monkeypatch)
    held = "import threading\nLOCK = threading.Lock()\n" + PROGRAM.replace('fail("reduce")', "LOCK.locked()")
    (project.root / "program.py").write_text(held)
    with pytest.raises(DdError, match="sent to Spark"):
        replay.run(project, engine="spark", parallelism=parallelism)
    check_open(project)
    (project.root / "program.py").write_text(PROGRAM)
    replay.run(project, engine="spark", parallelism=parallelism)
    check_law(project)


# --- data -------------------------------------------------------------------------------------------------------------


SWING = """
def program(numbers):
    def flip(w):
        return w.select(n="CASE WHEN n >= 1000 THEN 2001 - n ELSE n END")

    return {"still": numbers.iterate(flip, max_rounds=20)}
"""


@pytest.mark.sample(2)
def test_data_that_the_program_does_not_take(engine: dict[str, Any], project: Project) -> None:
    """A row for which a loop never ends is taken back at its own version."""
    (project.root / "program.py").write_text(SWING)
    bring(project, (1000, 2, 1))
    with pytest.raises(Diverged):
        replay.run(project, **engine)
    check_open(project)
    bring(project, (1000, 2, -1))
    replay.run(project, **engine)
    check_law(project)


@pytest.mark.parametrize("part", ["inputs", "state"])
def test_a_damaged_file_that_is_restored(part: str, project: Project) -> None:
    replay.run(project, last=time_of(1))
    kept = {file: file.read_bytes() for file in (local(project.warehouse) / part).rglob("*.parquet")}
    assert kept
    for file in kept:
        file.write_bytes(b"not this")
    with pytest.raises(StorageError):
        replay.run(project)
    for file, content in kept.items():
        file.write_bytes(content)
    check_open(project, 1)
    replay.run(project)
    check_law(project)


# --- the machine ------------------------------------------------------------------------------------------------------


def without_java(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.delenv("JAVA_HOME", raising=False)
    patch.setenv("PATH", str(folder))


def with_wrong_java_home(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setenv("JAVA_HOME", str(folder))


def without_jars(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr("ddcore.jobs.spark.session.java_path", lambda: "java")
    patch.setenv("DDCORE_CACHE", str(folder))


def without_kernels(patch: pytest.MonkeyPatch, _: Path) -> None:
    patch.setitem(sys.modules, "ddcore.jobs.engines.inline", None)


LACKING = [(without_java, "Java 17"), (with_wrong_java_home, "bin/java"), (without_jars, "jars are not in"),
           (without_kernels, "kernels")]  # fmt: skip


@pytest.mark.parametrize(("lack", "says"), LACKING)
def test_what_the_machine_lacks_is_said_before_the_intent(
    lack: Callable[..., None], says: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ddcore.jobs.spark.session._is_callers", lambda: False)  # other tests may have started a session
        lack(patch, tmp_path)
        with pytest.raises(StorageError, match=says):
            replay.run(project, engine="inline" if lack is without_kernels else "spark")
    assert ledger_of(project).next_run() == 1, "nothing was written"
    check_open(project)
    replay.run(project)
    check_law(project)


class JavaError(Exception):
    """As py4j raises them."""

    __module__ = "py4j.protocol"


@pytest.mark.parametrize("error", [JavaError("call o5.\n: java.io.IOException: full"), ConnectionRefusedError(111, "")])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_errors_of_spark(parallelism: int, error: Exception, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        sparkless.install(patch)
        patch.setattr(sparkless.Stage, "run", failing)
        with pytest.raises((DdError, OSError)):
            replay.run(project, engine="spark", parallelism=parallelism)
    check_open(project)
    replay.run(project)
    check_law(project)


@pytest.mark.sample(4, of="given up")
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
def test_a_disk_that_is_full_from_some_moment_on(
    step: int, project: Project, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """From the first write of a run to its last, by day at some of them. Where even the failure cannot be recorded, the
    next run decides.
    """
    replay.run(project, last=time_of(0))
    before = {file: file.read_bytes() for file in local(project.warehouse).rglob("*") if file.is_file()}
    real, calls = os.fsync, 0
    for limit in range(seed % step, 100, step):
        calls = 0

        def full(descriptor: int, limit: int = limit) -> None:
            nonlocal calls
            calls += 1
            if calls > limit:
                raise OSError(28, "No space left on device")
            real(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            try:
                replay.run(project)
            except StorageError as error:
                assert "No space left on device" in error.message
            else:
                break
        if give_up(ledger_of(project), "as the next ingest does") and ledger_of(project).last_folded() == time_of(0):
            check_open(project, 0)
        replay.run(project)
        check_law(project)
        for file in [file for file in local(project.warehouse).rglob("*") if file.is_file() and file not in before]:
            file.unlink()
        for file, content in before.items():
            file.write_bytes(content)
    assert 5 < calls < 100


# --- the order of things ----------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["a/b", "", "x" * 300, ".hidden"])
def test_names_that_no_table_can_have_are_refused_before_the_intent(name: str, project: Project) -> None:
    (project.root / "program.py").write_text(PROGRAM.replace('"doubled": doubled', f"{name!r}: doubled"))
    with pytest.raises(DdError):
        replay.run(project)
    assert ledger_of(project).next_run() == 1
    assert not (local(project.warehouse) / "outputs").exists()
    (project.root / "program.py").write_text(PROGRAM)
    check_open(project)
    replay.run(project)
    check_law(project)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "returned",
    [
        "{'out': numbers.select('n', N='n + 1')}",
        "{'out': numbers.select(Version='n')}",
        "{'out': numbers.select(Diff='n')}",
    ],
)
def test_columns_that_differ_by_case_are_refused_before_the_intent(returned: str, project: Project) -> None:
    (project.root / "program.py").write_text(f"import ddcore as dd\n\n\ndef program(numbers):\n    return {returned}\n")
    with pytest.raises(ProgramError, match=r"differ only by upper|for the same column"):
        replay.run(project)
    assert ledger_of(project).next_run() == 1
    (project.root / "program.py").write_text(PROGRAM)
    replay.run(project)
    check_law(project)


def test_a_full_refresh_begins_where_history_does(project: Project, dd: Command, monkeypatch: Any) -> None:
    monkeypatch.chdir(project.root)
    for first in ("0", "1", "latest"):
        code, _, err = dd("run", "--full-refresh", "--from-version", first)
        assert code == 2
        assert err[0] == f"error: --from-version {first}: --full-refresh folds all versions anew"
    assert ledger_of(project).next_run() == 1


def test_a_left_over_table_with_other_columns_is_no_obstacle(project: Project) -> None:
    """A run that was killed after it had made its tables, and before it committed to one of them."""
    warehouse = Warehouse(project.warehouse)
    tables.create(Writer(), warehouse.output("doubled"), {"other": Type("string")})
    ledger_of(project).append(IntentRecord(1, "ab12", time_of(0), time_of(3), 1, "inline"))
    replay.run(project)
    check_law(project)


# --- killed -----------------------------------------------------------------------------------------------------------


def killed(project: Project, point: str, *arguments: str) -> None:
    """A run that ends by SIGKILL at a failpoint."""
    done = subprocess.run(
        [Path(sys.executable).with_name("ddcore"), "run", "-q", "--project", project.root, *arguments],
        env={**os.environ, "DDCORE_FAILPOINT": point}, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL


@pytest.mark.sample(2)
@pytest.mark.parametrize("point", ["after-intent", "after-file", "after-file:3"])
@pytest.mark.parametrize("first", ["an ingest", "a run"])
def test_killed_before_a_commit_the_program_may_change(first: str, point: str, project: Project) -> None:
    """Whoever comes next gives the run up: no table holds anything of it."""
    killed(project, point)
    assert ledger_of(project).open_intent() is not None
    (project.root / "program.py").write_text(OTHER)
    if first == "an ingest":
        assert bring(project, (7, 2, 1)).moved == 0
    assert replay.run(project, dry_run=True).first == time_of(0)
    assert replay.run(project).run == 2
    assert [failure.run for failure in ledger_of(project).records(FailureRecord)] == [1]
    check_law(project)


@pytest.mark.sample(2)
@pytest.mark.parametrize("point", ["after-intent", "after-file", "after-table", "after-table:3"])
def test_killed_anywhere_the_same_program_goes_on(point: str, project: Project) -> None:
    killed(project, point)
    assert replay.run(project).run == 1
    assert not list(ledger_of(project).records(FailureRecord))
    check_law(project)


@pytest.mark.sample(1)
@pytest.mark.parametrize("then", [PROGRAM, OTHER], ids=["the same program", "another program"])
@pytest.mark.parametrize("point", ["after-table", "after-table:3", "after-table:4"])
def test_killed_after_a_commit_any_program_goes_on(point: str, then: str, project: Project) -> None:
    """What the killed run committed to outputs stays: whoever follows them never sees a row taken back."""
    replay.run(project, last=time_of(1))
    killed(project, point)
    assert is_committed(ledger_of(project), 2)
    with pytest.raises(DdError, match="version 3 is closed"):
        bring(project, (7, 2, 1))
    seen = files_of(project)
    (project.root / "program.py").write_text(then)
    replay.run(project)
    assert seen <= files_of(project)
    check_law(project, since=2)


def files_of(project: Project) -> set[str]:
    """The data files that the newest versions of the output tables have."""
    folders = [folder for name, folder in Warehouse(project.warehouse).tables() if name.startswith("outputs/")]
    return {uri for folder in folders for uri in DeltaTable(str(folder)).file_uris()}


@pytest.mark.sample(4, of="given up")
def test_a_failure_after_an_earlier_attempt_has_committed_stays_to_be_finished(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(project, "after-table")
    (project.root / "cause").write_text("linear: raise SystemExit")
    with pytest.raises(ExpressionError):
        replay.run(project)
    assert ledger_of(project).open_intent() is not None
    (project.root / "cause").unlink()
    replay.run(project)
    check_law(project)


@pytest.mark.sample(4, of="given up")
@pytest.mark.parametrize("point", ["after-intent", "after-file"])
def test_a_killed_refresh_of_a_changed_program_can_be_taken_back(point: str, project: Project) -> None:
    replay.run(project)
    (project.root / "program.py").write_text(OTHER)
    killed(project, point, "--full-refresh")
    (project.root / "program.py").write_text(PROGRAM)
    bring(project, (9, 4, 1))
    assert replay.run(project).run == 3
    check_law(project)


@pytest.mark.sample(4, of="given up")
def test_a_killed_run_over_stored_state_of_another_program(project: Project) -> None:
    """Changing the program back and forth loses nothing."""
    replay.run(project, last=time_of(1))
    killed(project, "after-intent")
    (project.root / "program.py").write_text(OTHER)
    assert replay.run(project).run == 4
    assert [failure.run for failure in ledger_of(project).records(FailureRecord)] == [2]
    check_law(project, since=2)
    (project.root / "program.py").write_text(PROGRAM)
    assert replay.run(project).corrections > 0
    bring(project, (7, 4, 1))
    replay.run(project)
    check_law(project, since=4)


# --- an input more ----------------------------------------------------------------------------------------------------


@pytest.mark.sample(4, of="given up")
def test_an_input_that_is_added_brings_its_history(project: Project, dd: Command, monkeypatch: Any) -> None:
    """From the command line: ingest at folded versions, a full refresh, and then its versions are closed, too."""
    monkeypatch.chdir(project.root)
    assert dd("run", "-q")[0] == 0
    with Path("dd.toml").open("a") as file:
        file.write('[inputs.factors]\nschema = { f = "int64" }\n')
    Path("program.py").write_text(
        "def program(numbers, factors):\n    return {'both': numbers.join(factors, on={'n': 'f'})}\n"
    )
    Path("factors.csv").write_text("f,version,diff\n1,0,1\n2,1,1\n3,3,1\n")
    assert dd("ingest", "factors", "factors.csv", "-q") == (0, [], [])
    Path("late.csv").write_text("n,version,diff\n1,3,1\n")
    assert "version 3 is closed" in dd("ingest", "numbers", "late.csv")[2][0], "the other one was folded"
    code, _, err = dd("run")
    assert (code, err[1]) == (0, "both is new, with all rows at every version")
    late = find_project(project.root, {})
    program = load_program(late)
    factors = pl.read_csv("factors.csv")
    expected = reference.replay(program, ("version",), numbers=frame_of(ROWS), factors=factors)
    outputs = build(program, late.inputs, late.dims).outputs
    assert logs_of(late, outputs) == expected
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert logs_of(late, outputs) == expected
    Path("late.csv").write_text("f,version,diff\n4,3,1\n")
    assert "version 3 is closed" in dd("ingest", "factors", "late.csv")[2][0]


def test_an_input_without_rows_is_read_all_the_same(project: Project, dd: Command, monkeypatch: Any) -> None:
    monkeypatch.chdir(project.root)
    with Path("dd.toml").open("a") as file:
        file.write('[inputs.factors]\nschema = { f = "int64" }\n')
    Path("program.py").write_text(
        "def program(numbers, factors):\n    return {'both': numbers.join(factors, on={'n': 'f'})}\n"
    )
    assert dd("run", "-q")[0] == 0
    Path("late.csv").write_text("f,version,diff\n4,3,1\n")
    assert "version 3 is closed" in dd("ingest", "factors", "late.csv")[2][0]


# --- parallelism and reports ------------------------------------------------------------------------------------------


@pytest.mark.sample(4, of="given up")
def test_parallelism_goes_by_rows_and_not_by_what_they_count(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sparkless.install(monkeypatch)
    replay.run(project, engine="inline")
    bring(project, (1, 4, 20_000_000))
    assert replay.run(project, engine="spark").parallelism == 1
    bring(project, *[(n, 5, 1) for n in range(5)])
    large = replace(project, tuning=Tuning(parallel_rows=2))  # of the window, for each worker
    assert replay.run(large, engine="spark").parallelism == 3
    check_law(project)


def test_the_first_version_is_that_of_the_log(project: Project, dd: Command, monkeypatch: Any) -> None:
    monkeypatch.chdir(project.root)
    bring(project, (1, 9, 1))
    for arguments in (["--to-version", "2"], ["--to-version", "3"], ["--to-version", "7"], []):
        report = json.loads(dd("run", *arguments)[1][-1])
        entry = json.loads(dd("log", "--json")[1][0])
        assert (report["first"], report["last"]) == (entry["first"], entry["last"])


# --- Spark itself -----------------------------------------------------------------------------------------------------


def jvms(pid: int) -> Iterator[int]:
    children = (
        int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
    )
    return (child for child in children if "java" in os.readlink(f"/proc/{child}/exe"))


@pytest.mark.spark
@pytest.mark.parametrize("parallelism", nightly(["2", "1"], 1))
def test_a_killed_jvm_is_said_to_be_one(parallelism: str, project: Project) -> None:
    """The fold has begun, which a function of the program says by a file; it waits until the JVM is gone."""
    (project.root / "cause").write_text(
        "linear: import time; Path(__file__).with_name('begun').touch(); time.sleep(60)"
    )
    command = [str(Path(sys.executable).with_name("ddcore")), "run", "--engine", "spark", "--parallelism", parallelism]
    with subprocess.Popen(command, cwd=project.root, stderr=subprocess.PIPE, text=True) as run:
        begun = project.root / "begun"
        while run.poll() is None and not begun.exists():
            time.sleep(0.01)
        (java,) = jvms(run.pid)
        os.kill(java, signal.SIGKILL)
        _, err = run.communicate(timeout=600)
    assert run.returncode == 1
    lines = err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: Spark's Java process died: killed by SIGKILL")
    check_open(project)
    (project.root / "cause").unlink()
    replay.run(project)
    check_law(project)
