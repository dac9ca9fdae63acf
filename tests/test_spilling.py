"""Folds with little memory: everything goes to files, and the logs are the same."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import folding
import numpy as np
import polars as pl
import pytest
import sparkless
from notation import dims_of
from programs import Case, case
from seeds import nightly
from test_random_programs import compare, outcome
from tuned import tune_runs
from warehouses import logs_of, project_of

import ddcore as dd
from ddcore import reference
from ddcore.base import threads
from ddcore.base.errors import FoldError
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.cli.main import run_command
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_program
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.engines import barrier_task, exchange
from ddcore.operators import join
from ddcore.planning.planner import build
from ddcore.traces import consolidation, ranges, spilling
from ddcore.traces.budget import Budget
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import SortedBatch

LITTLE = "1MiB"


def many(rows: int) -> Tuning:
    """So many rows are many, and memory is always short."""
    return Tuning(
        least_rows=rows, row_bytes=2**60, spilled_bytes=1, resting_share=0, waiting_rows_limited=2,
        joined_pairs=rows - 1, table_bytes=1,
    )  # fmt: skip


TINY, SMALL = many(3), many(200)


# --- files ------------------------------------------------------------------------------------------------------------


def test_arrays_that_come_to_rest_are_as_they_were(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spill = spilling.Spilling(2**30, tmp_path, TINY)
    sizes = [int(size) for size in rng.integers(0, 2000, 300)] + [3 * 10**6]
    kinds = ["int64", "uint8", "uint16", "uint32"]
    arrays = [[rng.integers(0, 200, size).astype(kinds[size % 4]) for _ in range(3)] for size in sizes]

    def same(several: list[np.ndarray]) -> bool:
        resting = spill.rest(several)
        return all(
            a.dtype == b.dtype and a.shape == b.shape and (a == b).all() and (not b.nbytes or not b.flags.writeable)
            for a, b in zip(several, resting, strict=True)
        )

    assert all(threads.parallel_map(same, arrays, 3))
    assert spill.spilled == sum(array.nbytes for several in arrays for array in several if several[0].nbytes)


def test_what_is_in_a_file_is_not_written_again(tmp_path: Path) -> None:
    spill = spilling.Spilling(2**30, tmp_path, TINY)
    first = spill.rest([np.arange(10), np.arange(20).reshape(2, 10)])
    assert spill.rest([first[0], first[1][1:]])[0] is first[0]
    assert spill.spilled == 8 * 30


def test_files_have_no_name_and_their_space_is_free_when_the_last_array_is_gone(tmp_path: Path) -> None:
    assert held_files(tmp_path) == 0
    spill = spilling.Spilling(2**30, tmp_path, TINY)
    (resting,) = spill.rest([np.arange(5 * 10**6)])
    assert list(tmp_path.iterdir()) == []
    assert held_files(tmp_path) == 1
    part = resting[7:9]
    del resting
    assert part.tolist() == [7, 8]
    del part
    assert held_files(tmp_path) == 0


def held_files(folder: Path) -> int:
    """How many files there this process has open or mapped: since Python 3.13 a mapped one need not be open, too."""
    links = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name.isdigit() and
             os.path.lexists(f"/proc/self/fd/{name}")]  # fmt: skip
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return len({name for name in (*links, *mapped) if name.startswith(str(folder))})


@pytest.mark.parametrize("rows", [0, 1, 999, 1000])
def test_columns_of_fewer_rows_than_there_is_room_for(rows: int, tmp_path: Path) -> None:
    tuning = Tuning(copied_bytes=64, table_bytes=0)
    columns = spilling.Spilling(2**30, tmp_path, tuning).table(3, 1000)
    values = np.arange(3000).reshape(3, 1000)
    for start in range(0, rows, 70):
        for number in range(3):
            columns.write(number, start, values[number, start : min(start + 70, rows)])
    first = columns.first(rows)
    assert first.flags.c_contiguous
    assert first.tolist() == values[:, :rows].tolist()


def test_without_a_limit_nothing_goes_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a file")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    edges = pl.DataFrame({"a": range(100_000), "version": 0, "diff": 1})
    assert len(dd.replay(lambda edges: {"n": edges.distinct()}, edges=edges)["n"]) == 100_000
    with pytest.raises(AssertionError, match="a file"):
        limited("1MiB", lambda edges: {"n": edges.distinct()}, edges=edges)


# --- sorted batches in ranges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(20))
def test_batches_are_put_together_in_ranges_as_they_are_at_once(number: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spread = int(rng.choice([3, 50, 2**40]))
    batches = [random_batch(rng, int(rng.integers(0, 60)), spread) for _ in range(int(rng.integers(1, 6)))]
    columns = [batch.columns() for batch in batches]
    columns = [column.compress() if rng.random() < 0.4 else column for column in columns]
    expected = consolidation.union(columns, 2)
    budget = Budget(spilling.Spilling(2**20, tuning=TINY), tuning=TINY)
    same_rows(consolidation.union(columns, 2, budget), expected)
    parts = [part.decompress() for (part,) in ranges.portions([expected], 1, budget) if part is not None]
    merged = consolidation.merge(batches[0], batches[-1], budget=budget)
    same_rows(consolidation.concatenated(parts, budget), expected) if parts else None
    same_rows(merged, consolidation.merge(batches[0], batches[-1]))
    keys = [set(zip(part.codes.tolist(), part.words[0].tolist(), strict=True)) for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys)), "a key is in two portions"


def random_batch(rng: np.random.Generator, rows: int, spread: int) -> SortedBatch:
    codes, *others = (rng.integers(-spread, spread, rows) for _ in range(4))
    return arrange(codes, others[:2], [others[2] % 3], rng.choice([-1, 1, 2], rows))


def same_rows(a: SortedBatch, b: SortedBatch) -> None:
    assert [column.tolist() for column in a.columns()] == [column.tolist() for column in b.columns()]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 19])
def test_the_pairs_of_one_heavy_key_come_in_blocks(chunk: int, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    sizes: list[int] = []
    matches = join.matches

    def counted(*arguments: Any) -> Any:
        for pairs in matches(*arguments):
            sizes.append(len(pairs.left))
            yield pairs

    monkeypatch.setattr(join, "matches", counted)
    rows = [(rng.choice(["x", "x", "x", "y", None]), n, rng.randrange(3), 1) for n in range(120)]
    words = pl.DataFrame(rows, schema=["k", "v", "version", "diff"], orient="row")

    def program(words: Any) -> dict[str, Any]:
        return {"pairs": words.join(words, on="k")}

    assert folding.whole(program, words=words, tuning=Tuning(joined_pairs=chunk)) == folding.by_reference(
        program, words=words
    )
    assert chunk > 7 or max(sizes) <= 2 * chunk


# --- folds ------------------------------------------------------------------------------------------------------------


def limited(
    memory: str, program: Any, threads: int = 1, tuning: Tuning = DEFAULT, **frames: pl.DataFrame
) -> folding.Logs:
    dims = dims_of(frames)
    session = dd.Session(program, folding._schemas(frames), dims, threads=threads, memory=memory, tuning=tuning)
    return {
        name: reference.log_of(log, dims)
        for name, log in session.fold(frames, instants=folding.instants_of(frames)).items()
    }


def spilled(program: Any, threads: int = 1, **frames: pl.DataFrame) -> folding.Logs:
    return limited(LITTLE, program, threads, TINY, **frames)


def check(seed: int) -> None:
    drawn = case(seed)
    expected = outcome(folding.by_reference, drawn)
    compare(drawn, "spilled", expected, outcome(spilled, drawn))
    compare(drawn, "spilled, in threads", expected, outcome(spilled, drawn, threads=3))


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", nightly(range(10), 6))
def test_random_programs_with_little_memory(number: int, seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("number", range(400))
def test_many_random_programs_with_little_memory(number: int, seed: int) -> None:
    check(seed)


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", nightly(range(5), 3))
def test_a_session_of_many_folds_with_little_memory(number: int, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    session = dd.Session
    monkeypatch.setattr(
        dd, "Session", lambda *given, **named: session(*given, **{**named, "memory": LITTLE, "tuning": TINY})
    )
    drawn = case(seed)
    expected = outcome(folding.by_reference, drawn)
    compare(drawn, "one by one", expected, outcome(folding.one_time_each, drawn))
    compare(drawn, "fed early", expected, outcome(folding.fed_early, drawn, seed=seed))


def test_diffs_that_need_128_bits_on_their_way() -> None:
    """Products of diffs beyond int64 that cancel, in more updates than are sorted at once."""
    most = 2**62
    rows = [("x", n % 5, n // 5, diff) for n, diff in enumerate([most, 3, -most, 2, 5, most - 1, 1, 4, 1, 1])]
    words = pl.DataFrame(rows, schema=["k", "v", "version", "diff"], orient="row")

    def program(words: Any) -> dict[str, Any]:
        pairs = words.join(words.select("k", w="v"), on="k")
        return {"none": pairs.concat(pairs.negate()).concat(words.select("k", "v", w="v"))}

    expected = folding.by_reference(program, words=words)
    assert spilled(program, words=words) == expected
    with pytest.raises(dd.errors.DiffOverflow):
        spilled(lambda words: {"pairs": words.join(words.select("k", w="v"), on="k")}, words=words)


# --- runs -------------------------------------------------------------------------------------------------------------


def folded(project: Project) -> tuple[folding.Logs, int]:
    """The logs of a project, and by how many runs."""
    outputs = build(load_program(project), project.inputs, project.dims).outputs
    return logs_of(project, outputs), Ledger.load(Warehouse(project.warehouse)).next_run() - 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", nightly(range(6), 3))
def test_runs_with_little_memory(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each window is cut to one version, or one first coordinate, and goes on over stored state. Small groups have
    trees. In two of six, several workers exchange messages, without Spark.
    """
    how: dict[str, Any] = {"engine": "inline"}
    if number % 3 == 2:
        sparkless.install(monkeypatch, seed=seed)
        how = {"engine": "spark", "parallelism": 3}
    large = 2 if number % 2 else DEFAULT.large_group
    drawn = case(seed, plain=True)
    project_of(tmp_path / "project", drawn)
    project = find_project(tmp_path / "project", {"DDCORE_MEMORY": LITTLE})
    tuning = replace(TINY, value_bytes=2**20, run_group_rows=2, small_file_rows=0, large_group=large)
    project = replace(project, tuning=tuning)

    def runs(program: Any, **frames: Any) -> folding.Logs:
        replay.run(project, **how)
        return folded(project)[0]

    expected = outcome(folding.by_reference, drawn)
    compare(drawn, "runs with little memory", expected, outcome(runs, drawn))
    if not isinstance(expected, Exception):
        replay.run(project, full_refresh=True, **how)
        compare(drawn, "all again with little memory", expected, folded(project)[0])


PROGRAM = """
import ddcore as dd

def program(calls):
    pairs = calls.join(calls.select("caller", other="called"), on="caller")
    return {"pairs": pairs, "counts": calls.group_by("caller").agg(n=dd.count())}
"""


@pytest.fixture
def calls(tmp_path: Path) -> Project:
    """A project with 40 versions of 60 updates each, ingested and not folded."""
    rng = random.Random(7)
    rows = [(rng.randrange(300), rng.randrange(50), n // 60, 1) for n in range(2400)]
    frame = pl.DataFrame(rows, schema=["caller", "called", "version", "diff"], orient="row")
    frame = frame.unique(["caller", "called", "version"], maintain_order=True)
    scope: dict[str, Any] = {}
    exec(PROGRAM, scope)
    return project_of(tmp_path / "calls", Case(7, PROGRAM, scope["program"], {"calls": frame}))


def test_a_window_that_is_too_large_is_cut_by_one_command(
    calls: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2,400 updates of two columns are some 480 KB, by the estimate; one version alone is folded whatever its size."""
    words = ["run", "--engine", "inline", "--project", str(calls.root)]
    assert run_command([*words, "--dry-run", "--memory", LITTLE, "--json"]) == 0
    (*_, said) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (said["versions"], said["dry_run"]) == (40, True)
    limited = replace(calls, memory=1 << 20, tuning=Tuning(value_bytes=500))
    report = replay.run(limited, engine="inline")
    assert report.notes == ["folded in 5 runs, for 1MiB of memory each"]
    assert (report.run, report.first, report.last, len(report.versions)) == (5, time_of(0), time_of(39), 40)
    logs, runs = folded(calls)
    assert runs == 5
    ledger = Ledger.load(Warehouse(calls.warehouse))
    spans = [(run.first, run.last) for run in reversed([*ledger.lineage()])]
    assert [first for first, _ in spans] == [time_of(0), *(time_of(last.version + 1) for _, last in spans[:-1])]
    assert spans[-1][1] == time_of(39)
    assert run_command(["run", "--full-refresh", "--engine", "inline", "--project", str(calls.root), "-q"]) == 0
    whole, after = folded(calls)
    assert (whole, after) == (logs, 6)


def in_threads(_spark: Any, task: Any, number: int) -> list[Any]:
    """The workers of a stage as threads of this process, which sees what files they make."""
    words, all_said = [""] * number, threading.Barrier(number, timeout=600)

    def fold(rank: int) -> Any:
        def gather(word: str) -> list[str]:
            words[rank] = word
            all_said.wait()
            return [*words]

        return barrier_task.fold_part(pickle.loads(task.args[0]), rank, "127.0.0.1", gather)

    with ThreadPoolExecutor(number) as pool:
        return [*pool.map(fold, range(number))]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_limit_reaches_the_tasks_of_spark(
    parallelism: int, calls: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparkless.install(monkeypatch)
    monkeypatch.setattr(exchange, "in_tasks", in_threads)
    files: list[int] = []
    make = spilling._File.__init__

    def made(file: Any, spilling: spilling.Spilling, size: int) -> None:
        files.append(spilling.memory)
        make(file, spilling, size)

    monkeypatch.setattr(spilling._File, "__init__", made)
    replay.run(calls, last=time_of(2), engine="spark", parallelism=parallelism)
    assert files == []
    project = replace(find_project(calls.root, {"DDCORE_MEMORY": LITTLE}), tuning=SMALL)
    replay.run(project, last=time_of(4), engine="spark", parallelism=parallelism)
    assert {*files} == {2**20}


def test_from_version_and_a_window_that_is_cut(calls: Project) -> None:
    replay.run(calls, last=time_of(9), engine="inline")
    limited_project = find_project(calls.root, {"DDCORE_MEMORY": LITTLE})
    limited_project = replace(limited_project, tuning=Tuning(value_bytes=2**20))
    report = replay.run(limited_project, first=time_of(10), last=time_of(14), engine="inline")
    assert [(first, last) for _, first, last in report.windows] == [
        (time_of(number), time_of(number)) for number in range(10, 15)
    ]


@pytest.mark.sample(1, of="room")
def test_a_full_disk_is_one_line_and_the_next_run_is_right(
    calls: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tune_runs(monkeypatch, SMALL)
    words = ["run", "--engine", "inline", "--project", str(calls.root), "--memory", LITTLE, "-q"]
    write, written = spilling._File._write, 0

    def full(file: Any, at: int, data: Any) -> None:
        nonlocal written
        written += 1
        if written > limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, at, data)

    limit = 10**9
    with monkeypatch.context() as patch:
        patch.setattr(spilling._File, "_write", full)
        for some in (0, 1, 50, 200):
            written, limit = 0, some
            assert run_command(words) == 1
            first, second = capsys.readouterr().err.splitlines()
            assert first.startswith("error: cannot write temporary files to ")
            assert first.endswith(": No space left on device")
            assert "TMPDIR" in second
            assert Ledger.load(Warehouse(calls.warehouse)).last_folded() is None
    assert run_command(words) == 0
    spilled_logs, _ = folded(calls)
    assert run_command(["run", "--full-refresh", "--engine", "inline", "--project", str(calls.root), "-q"]) == 0
    assert folded(calls)[0] == spilled_logs


def test_a_folder_that_is_missing_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(FoldError, match=r"cannot write temporary files to .*gone: No such file or directory"):
        spilling.Spilling(2**30, tmp_path / "gone", TINY).rest([np.arange(9)])


KILLED = """
import os, signal, sys
from dataclasses import replace
from ddcore.base.tuning import Tuning
from ddcore.cli.main import run_command
from ddcore.jobs import replay
from ddcore.traces import spilling

tuning, run = Tuning(least_rows=200, row_bytes=2**60, spilled_bytes=1, resting_share=0), replay.run
replay.run = lambda project, **how: run(replace(project, tuning=tuning), **how)
write, left = spilling._File._write, int(sys.argv[1])

def killing(*given):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(*given)

spilling._File._write = killing
sys.exit(run_command(sys.argv[2:]))
"""


@pytest.mark.sample(1, of="room")
def test_a_run_that_is_killed_leaves_no_file_of_its_own_and_the_next_one_is_right(
    calls: Project, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    words = ["run", "--engine", "inline", "--project", str(calls.root), "--memory", LITTLE, "-q"]

    def run(writes: int) -> int:
        command = [sys.executable, "-c", KILLED, str(writes), *words]
        return subprocess.run(command, env=environment, check=False).returncode

    for writes in (1, 200):
        assert run(writes) == -signal.SIGKILL
        left = [file for file in scratch.rglob("*") if file.is_file()]
        assert [(file.name, file.stat().st_size) for file in left] == [(".lock", 0)]
    assert run(10**9) == 0
    assert [*scratch.iterdir()] == []
    logs, _ = folded(calls)
    assert run_command(["run", "--full-refresh", "--engine", "inline", "--project", str(calls.root), "-q"]) == 0
    assert folded(calls)[0] == logs


# --- a process whose memory the system limits -------------------------------------------------------------------------

MEASURED = """
import hashlib, resource, sys
import numpy as np
import polars as pl
import ddcore as dd

rows, memory, most = int(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3])

def program(calls):
    first = calls.group_by("caller").agg(least=dd.min("called"), n=dd.count())
    return {"n": calls.join(first, on="caller").where("called == least").group_by("n").agg(calls=dd.count())}

def frames():
    rng = np.random.default_rng(3)
    size = 1 << 17
    for start in range(0, rows, size):
        some = min(size, rows - start)
        called = rng.integers(0, 10**6, some)
        columns = {"caller": rng.integers(0, rows // 3, some), "called": called}
        yield pl.DataFrame(columns).with_columns(version=pl.lit(start // size, pl.Int64), diff=pl.lit(1, pl.Int64))

schemas = {"calls": {"caller": "int64", "called": "int64"}}
warm = dd.Session(program, schemas, threads=2, memory="1GiB")
warm.fold({"calls": next(frames()).head(1000)})
from ddcore.base.memory import _data_bytes
if most:
    held = _data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (held + most, held + most))
import ddcore.engine.worker
session = dd.Session(program, schemas, threads=2, memory=memory)
from ddcore.traces.frames import batch_of, output_frame
from ddcore.jobs.failures import fold_errors
worker = session._worker
with session.budget.held(), fold_errors():
    worker.begin()
    for frame in frames():
        worker.feed("calls", batch_of(frame, worker.plan.inputs["calls"], ("version",), "calls"))
    worker.run()
    for _ in worker.new_updates():
        pass
log = output_frame(worker.state.outputs["n"], worker.plan.outputs["n"], ("version",))
digest = hashlib.sha256(log.to_numpy().tobytes()).hexdigest()
print(len(log), digest, getattr(session.budget.memory, "spilled", 0))
"""


def measured(rows: int, memory: str, most: int) -> subprocess.CompletedProcess[str]:
    """A fold of so many updates in a process that may take ``most`` bytes more than it has at its start; 0: any."""
    command = [sys.executable, "-c", MEASURED, str(rows), memory, str(most)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


only_on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux limits the private memory of a process"
)
ROOM = 200 * 2**20


@pytest.mark.sample(1, of="room")
@only_on_linux
def test_a_fold_that_finds_no_room_does_with_a_limit_that_it_knows() -> None:
    failed = measured(3_000_000, "", ROOM)
    assert (failed.returncode, "ran out of memory" in failed.stderr) == (1, True)
    within = measured(1_500_000, "256MiB", ROOM)
    assert within.returncode == 0, within.stderr[-2000:]
    assert int(within.stdout.split()[2]) > 0


@pytest.mark.long
@only_on_linux
def test_ten_times_as_much_history_in_the_same_memory() -> None:
    """What a tenth of the history needs is too little for all of it, but with a limit that the fold knows."""
    few, all_of_it = 400_000, 4_000_000
    alone = measured(few, "", ROOM)
    assert alone.returncode == 0, alone.stderr
    failed = measured(all_of_it, "", ROOM)
    assert (failed.returncode, "ran out of memory" in failed.stderr) == (1, True)
    within = measured(all_of_it, "256MiB", ROOM)
    assert within.returncode == 0, within.stderr[-2000:]
    free = measured(all_of_it, "", 0)
    assert within.stdout.split()[:2] == free.stdout.split()[:2]
    assert int(within.stdout.split()[2]) > 0
