"""Several workers of one fold, in processes of their own, with every parallelism: one log all the same.

No Spark: see ``sparkless``. Each case is folded in several runs, so that later ones are cut where earlier ones found
their quantiles.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import sparkless
from programs import Case, case
from seeds import nightly
from test_exchange import ends_of, expected_of, one_dimensional, outcome, reach
from test_random_programs import compare
from test_spilling import in_threads
from warehouses import project_of

from ddcore.base.errors import DdError, FoldError
from ddcore.base.tuning import Tuning
from ddcore.io.project.project import Project
from ddcore.jobs import replay
from ddcore.jobs.engines import exchange, workers
from ddcore.jobs.engines.messages import encoded
from ddcore.jobs.engines.partitioning import _cuts
from ddcore.jobs.engines.peers import Peers
from ddcore.jobs.spark.failures import TaskLost

FIRST = next(one_dimensional(count()))
MORE = range(60, 210)  # by five workers: all operators occur


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(one_dimensional(range(MORE.stop)), 3))
def test_every_parallelism_and_messages_of_few_rows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parallelism = 5 if seed in MORE else 2 + seed % 2
    tuning = sparkless.tuning_of(seed)
    if seed // 2 % 2:  # groups as small as these get trees of partial results
        tuning = replace(tuning, large_group=2)
    tuning = replace(tuning, message_rows=1 + seed % 3, divided_rows=1 + seed % 5)
    sparkless.install(monkeypatch, seed=seed)
    if seed // 2 % 2 == 0:  # all messages are consolidated first
        tuning = replace(tuning, sent_rows=0, sent_share=0.0)
    drawn = case(seed, plain=True)
    outcomes = outcome(
        project_of(tmp_path / "cut", drawn, tuning=tuning), ends_of(drawn, seed), engine="spark",
        parallelism=parallelism,
    )  # fmt: skip
    compare(drawn, f"parallelism {parallelism}", expected_of(drawn), outcomes)


def test_few_rows_of_several_workers_are_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And any number of workers goes on from there."""
    sparkless.install(monkeypatch)
    drawn = reach()
    project = project_of(tmp_path / "p", drawn)
    outcome(project, [0], engine="spark", parallelism=3)
    tables = [[*table.glob("part-*.parquet")] for table in (project.root / "warehouse" / "state").iterdir()]
    assert {len(files) for files in tables} == {1}
    assert len({files[0].name.split("-")[1] for files in tables}) > 1  # workers that wrote them
    outcomes = outcome(project, [None], engine="spark", parallelism=2)
    compare(drawn, "three workers, then two", expected_of(drawn), outcomes)


@pytest.mark.sample(4, of="workers")
@pytest.mark.parametrize("seed", nightly(chain(one_dimensional(range(FIRST + 1, 60)), [FIRST]), 2))  # it takes long
def test_a_fold_begins_again_when_a_worker_is_killed(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGKILL, at any moment of half of the folds."""
    stage = sparkless.install(monkeypatch, seed=seed, unrest=0.5)
    drawn = case(seed, plain=True)
    ends = ends_of(drawn, seed)
    outcomes = outcome(project_of(tmp_path / "cut", drawn), ends, engine="spark", parallelism=3)
    print(f"{stage.attempts} attempts at {len(ends)} folds")
    compare(drawn, "with killed workers", expected_of(drawn), outcomes)


STOPPING = """
import os, signal
from pathlib import Path

import polars as pl

CAUSE = Path({cause!r})


def fewer(frame):
    if CAUSE.exists() and frame["n"].max() == 4:
        CAUSE.rename(CAUSE.with_name("done"))
        if {what!r}.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, {what!r}))
        else:  # when its part of the fold is written
            os.environ["DDCORE_FAILPOINT"] = {what!r}
    return frame.filter(pl.col("n") > 0).select("row", m=pl.col("n") - 1)


def program(numbers):
    def lower(left):
        return left.flat_map(fewer, schema={{"m": "int64"}}).select(n="m").concat(numbers).distinct()

    return {{"left": numbers.iterate(lower)}}
"""


def disturbance(folder: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> tuple[sparkless.Stage, Case, Project]:
    """A program of a loop, in which something will happen to one of its workers, once."""
    stage = sparkless.install(monkeypatch)
    text = STOPPING.format(cause=str(folder / "cause"), what=what)
    space: dict[str, Any] = {}
    exec(text, space)
    frames = {"numbers": pl.DataFrame({"n": [8, 9, 8, 12], "version": [0, 1, 1, 2], "diff": [1, 1, -1, 1]})}
    drawn = Case(0, text, space["program"], frames)
    # A worker that is not stopped tells so, however busy the machine is.
    project = replace(project_of(folder / "p", drawn), tuning=Tuning(silent_seconds=4.0, beat_seconds=0.1))
    (folder / "cause").touch()
    return stage, drawn, project


@pytest.mark.sample(4, of="workers")
@pytest.mark.parametrize("what", nightly(["after-write=halt", "SIGKILL", "SIGSTOP", "after-write=kill"], 2))
def test_a_worker_that_dies_or_hangs(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a loop, or while it writes: the others notice, and the fold begins again."""
    stage, drawn, project = disturbance(tmp_path, monkeypatch, what)
    outcomes = outcome(project, [None], engine="spark", parallelism=3)
    assert (tmp_path / "done").exists()
    assert stage.attempts == 2
    compare(drawn, what, expected_of(drawn), outcomes)


@pytest.mark.sample(4, of="workers")
def test_a_worker_with_a_full_disk_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its error, and once: it would be full again. Nothing is committed, and the next run folds all."""
    stage, drawn, project = disturbance(tmp_path, monkeypatch, "after-write=full")
    with pytest.raises(DdError, match="No space left on device"):
        replay.run(project, engine="spark", parallelism=3)
    assert (tmp_path / "done").exists()
    assert stage.attempts == 1
    sparkless._end()  # the disk of that process stays full
    compare(drawn, "afterwards", expected_of(drawn), outcome(project, [None], engine="spark", parallelism=3))


@pytest.mark.sample(4, of="workers")
@pytest.mark.parametrize("calls", [1, 2, 5])
def test_memory_that_ends_in_an_exchange_ends_all_workers_with_one_error(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that cannot encode what it sends; the others do not take it for lost. Nobody leaves with an exchange
    in which it sent parts: who closes a connection may take their last bytes along.
    """
    drawn = case(FIRST, plain=True)
    project = replace(project_of(tmp_path / "p", drawn), tuning=Tuning(message_rows=1, divided_rows=3))
    done, last, talk = count(), dict[int, Any](), Peers.exchange

    def exchanged(self: Peers, note: Any, parts: Any = None, *more: Any, **named: Any) -> Any:
        last[self.rank] = parts
        return talk(self, note, parts, *more, **named)

    def out(messages: Any) -> Any:
        if next(done) == calls:
            raise MemoryError("of the test")
        return encoded(messages)

    with monkeypatch.context() as patch:
        sparkless.install(patch)
        patch.setattr(exchange, "in_tasks", in_threads)
        patch.setattr(workers, "encoded", out)
        patch.setattr(Peers, "exchange", exchanged)
        with pytest.raises(FoldError, match="the fold ran out of memory: MemoryError: of the test"):
            replay.run(project, engine="spark", parallelism=3)
    assert last == {0: None, 1: None, 2: None}
    compare(drawn, "afterwards", expected_of(drawn), outcome(project, [None], engine="inline"))


def test_memory_that_ends_while_a_message_arrives_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of(tmp_path / "p", case(FIRST, plain=True))
    stage = sparkless.install(monkeypatch)

    def lost(shared: bytes, number: int) -> Any:
        raise sparkless.Lost("Traceback ...\nMemoryError")

    monkeypatch.setattr(stage, "attempt", lost)
    with pytest.raises(FoldError, match="the fold ran out of memory"):
        replay.run(project, engine="spark", parallelism=2)
    assert stage.attempts == 1


@pytest.mark.sample(4, of="workers")
def test_workers_that_encrypt_give_the_same_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sparkless.install(monkeypatch, encrypted=True)
    drawn = reach()
    outcomes = outcome(project_of(tmp_path / "p", drawn), [0, None], engine="spark", parallelism=3)
    compare(drawn, "encrypted", expected_of(drawn), outcomes)


def test_one_worker_folds_where_nothing_can_encrypt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = sparkless.install(monkeypatch, encrypted=True)
    monkeypatch.setattr(exchange, "can_encrypt", lambda: False)
    drawn = reach()
    with caplog.at_level(logging.WARNING, "ddcore"):
        outcomes = outcome(project_of(tmp_path / "p", drawn), [None], engine="spark", parallelism=3)
    compare(drawn, "one worker", expected_of(drawn), outcomes)
    assert stage.attempts == 0
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "one worker folds, and not 3: spark.network.crypto.enabled is set, and to enc"
    )


@pytest.mark.sample(4, of="workers")
def test_a_fold_whose_workers_are_lost_each_time_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After four attempts. Nothing is committed, and the next run folds all."""
    drawn = case(FIRST, plain=True)
    project = project_of(tmp_path / "p", drawn)
    with monkeypatch.context() as patch:
        stage = sparkless.install(patch)

        def lost(shared: bytes, number: int) -> Any:
            raise sparkless.Lost("of the test")

        patch.setattr(stage, "attempt", lost)
        with pytest.raises(TaskLost, match="of the test"):
            replay.run(project, engine="spark", parallelism=2)
        assert stage.attempts == 4
    compare(drawn, "afterwards", expected_of(drawn), outcome(project, [None], engine="inline"))


SKEWED = """
import ddcore as dd


def program(items, names):
    joined = items.join(names, on={"k": "id"})
    by_key, whole = joined.group_by("k"), joined.group_by()
    return {"joined": joined, "counts": by_key.agg(n=dd.count()), "all": whole.agg(n=dd.count())}
"""


@pytest.mark.sample(4, of="workers")
def test_sides_of_a_join_are_cut_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of one side far from those of the other, one key in most rows (equal quantiles), and null keys."""
    items = [(7, i, 0, 1) for i in range(40)] + [(None, 1, 0, 1), (-(2**63) + 1, 2, 0, 1), (90, 1, 1, 1), (90, 2, 2, 1)]
    names = [(i, i % 3, 0, 1) for i in range(100)] + [(None, 1, 0, 1), (1000, 1, 1, 1)]
    frames = {
        "items": pl.DataFrame(items, schema=["k", "v", "version", "diff"], orient="row"),
        "names": pl.DataFrame(names, schema=["id", "w", "version", "diff"], orient="row"),
    }
    space: dict[str, Any] = {}
    exec(SKEWED, space)
    drawn = Case(0, SKEWED, space["program"], frames)
    sparkless.install(monkeypatch)
    outcomes = outcome(project_of(tmp_path / "p", drawn), [0, 1, None], engine="spark", parallelism=3)
    compare(drawn, "skewed", expected_of(drawn), outcomes)


SWING = """
from polars import col


def program(x):
    def flip(w):
        return w.select(x=1 - col("x"))

    return {"out": x.iterate(flip, max_rounds=20)}
"""


@pytest.mark.sample(4, of="workers")
def test_a_loop_diverges_alike_with_every_parallelism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = {"x": pl.DataFrame({"x": [0, -4], "version": [3, 5], "diff": [1, 1]})}
    space: dict[str, Any] = {}
    exec(SWING, space)
    drawn = Case(0, SWING, space["program"], frames)
    sparkless.install(monkeypatch)
    errors = [
        outcome(project_of(tmp_path / f"{parallelism}", drawn), [None], engine="spark", parallelism=parallelism)
        for parallelism in (1, 2, 3)
    ]
    assert {(error.time, error.round, error.moving) for error in errors} == {((3, 20), 20, 2)}


def loads(cuts: list[int], codes: list[int], rows: list[float]) -> list[float]:
    """The rows in each range."""
    bounds = [-(2**63), *cuts, 2**63]
    pairs = list(zip(codes, rows, strict=True))
    return [sum(row for code, row in pairs if a <= code < b) for a, b in pairwise(bounds)]


def test_ranges_are_even_by_rows_and_not_by_codes() -> None:
    codes, rows = list(range(100)), [100.0] * 10 + [1.0] * 90
    assert max(loads(cuts_of(codes, rows, 4), codes, rows)) <= 1.3 * sum(rows) / 4


@pytest.mark.parametrize("location", [0, 30, 99])
def test_a_heavy_key_has_a_range_of_its_own(location: int) -> None:
    codes, rows = list(range(100)), [1.0] * 100
    rows[location] = 300.0
    for parallelism in (2, 3, 4):
        shares = loads(cuts_of(codes, rows, parallelism), codes, rows)
        others = [share for share in shares if share < 300]
        assert len(others) == parallelism - 1
        if parallelism > 2:
            assert max(shares) <= 300 + 99 / (parallelism - 1)


def test_too_few_codes_leave_ranges_empty() -> None:
    assert loads(cuts_of([5, 5, 5], [1.0] * 3, 3), [5], [3.0]) == [3.0, 0, 0]


def test_many_codes_are_looked_at_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, rows = list(range(0, 100_000, 2)), [1.0] * 50_000
    shares = loads(cuts_of(codes, rows, 5), codes, rows)
    assert max(shares) - min(shares) < 0.01 * 50_000


def cuts_of(codes: list[int], rows: list[float], parallelism: int) -> list[int]:
    cuts = _cuts(np.array(codes), np.array(rows), parallelism)
    assert len(cuts) == parallelism - 1
    assert cuts == sorted(cuts)
    return cuts


GROWING = """
import ddcore as dd


def program(rows):
    return {"counts": rows.group_by("k").agg(n=dd.count())}
"""


@pytest.mark.sample(4, of="workers")
@pytest.mark.parametrize("kind", ["values", "hashes"])
def test_ranges_follow_a_history_that_moves(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version's keys are beyond those before; ten runs later the ranges are still even. Hashes are even anyway."""
    text = kind == "hashes"
    updates = [
        (f"key {k}" if text else k, version, 1)
        for version in range(10)
        for k in range(version * 500, version * 500 + 500)
    ]
    updates += [(f"key {k}" if text else k, 10, 1) for k in range(0, 5_000, 5)]
    frames = {"rows": pl.DataFrame(updates, schema=["k", "version", "diff"], orient="row")}
    space: dict[str, Any] = {}
    exec(GROWING, space)
    drawn = Case(0, GROWING, space["program"], frames)
    stage = sparkless.install(monkeypatch)
    ends = [*range(10), None]
    project = project_of(tmp_path / "p", drawn)
    project = replace(project, tuning=Tuning(fed_rows=1_000))
    outcomes = outcome(project, ends, engine="spark", parallelism=4)
    compare(drawn, "a history that moves", expected_of(drawn), outcomes)
    shares = [report.handled for report in stage.reports]
    assert max(shares) < 1.5 * sum(shares) / 4, shares
