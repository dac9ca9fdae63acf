"""How many workers fold a window: what earlier runs took decides, and nothing that was never seen is guessed high."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from ddcore.base.errors import UsageError
from ddcore.base.tuning import Tuning
from ddcore.io.ledger.workloads import Workload, kept
from ddcore.jobs.engines.worker_count import GIVEN, WORKER_ROWS, WorkerCount

TUNING = Tuning(parallel_rows=1_000_000, worker_start_seconds=4.0)


def load(run: int, workers: int, rows: int, seconds: float, **more: float) -> Workload:
    given = {"worked": seconds * workers, "start": 1.0, **more}
    return Workload(run, workers, rows, 0, seconds, given["worked"], given["start"])


@pytest.mark.parametrize(
    ("rows", "loads", "room", "number", "why"),
    [
        (1, [], 8, 1, "1 row of the window, fewer than 1,000,000"),
        (1_000_000, [], 8, 8, "as many as Spark runs at a time, for 1,000,000 rows are not fewer than 1,000,000"),
        (900, [load(3, 1, 900, 2.0)], 4, 1,
         "by run 3, 1 worker takes 2.0 s and 2 workers take 5.1 s, 4.0 s of it to start; Spark has room for 4"),
        (900, [load(3, 1, 900, 40.0)], 4, 4,
         "by run 3, 1 worker takes 40.0 s and 4 workers take 16.4 s, 4.0 s of it to start; Spark has room for 4"),
        (900, [load(3, 1, 900, 40.0)], 2, 2,
         "by run 3, 1 worker takes 40.0 s and 2 workers take 26.4 s, 4.0 s of it to start; Spark has room for 2"),
        (1800, [load(3, 1, 900, 20.0)], 2, 2,
         "by run 3, 1 worker takes 40.0 s and 2 workers take 26.4 s, 4.0 s of it to start; Spark has room for 2"),
        (900, [load(3, 1, 900, 40.0), load(4, 4, 900, 50.0, worked=44.0, start=9.0)], 4, 1,
         "by run 4, 1 worker takes 40.0 s and 2 workers take 69.0 s, 8.0 s of it to start; Spark has room for 4"),
        (900, [load(3, 1, 900, 600.0), load(4, 2, 900, 6.0, worked=10.0, start=5.0)], 2, 1,
         "by run 4, 1 worker takes 10.0 s and 2 workers take 10.0 s, 4.0 s of it to start; Spark has room for 2"),
        (900, [load(3, 1, 1, 40.0)], 4, 1, "900 rows of the window, fewer than 1,000,000"),
        (3_000_000, [load(3, 1, 3_000_000, 2.0)], 8, 3,
         "by run 3, 1 worker takes 2.0 s and 3 workers take 4.8 s, 4.0 s of it to start; "
         "no more than 1,000,000 rows for each; Spark has room for 8"),
        (3_000_000, [load(3, 1, 3_000_000, 2.0)], 2, 2,
         "by run 3, 1 worker takes 2.0 s and 2 workers take 5.1 s, 4.0 s of it to start; "
         "no more than 1,000,000 rows for each; Spark has room for 2"),
    ],
)  # fmt: skip
def test_the_number_and_its_reason(rows: int, loads: list[Workload], room: int, number: int, why: str) -> None:
    count = WorkerCount(rows, 0, loads, TUNING)
    assert count.chosen(room) == (number, why)
    assert count.may_be_several or number == 1
    if not count.may_be_several:
        assert count.chosen() == (number, why.split("; Spark has room", maxsplit=1)[0])


FEW = "not {}: {} rows of the window, and 100 are worth a worker"


@pytest.mark.parametrize(
    ("rows", "loads", "most", "chosen"),
    [
        (1_600, [], 16, (16, GIVEN)),
        (1_599, [], 16, (15, FEW.format(16, "1,599"))),
        (99, [], 2, (1, FEW.format(2, 99))),
        (0, [], 2, (1, FEW.format(2, 0))),
        (0, [], 1, (1, GIVEN)),
        (200, [load(3, 1, 100, 8.0)], 16, (16, GIVEN)),  # 16 s of work, one for each
        (200, [load(3, 1, 100, 7.0)], 16, (14, FEW.format(16, 200))),
        (200, [load(3, 1, 100, 8.0), load(4, 4, 200, 0.2)], 16, (2, FEW.format(16, 200))),
        (200, [load(3, 1, 1, 8.0)], 3, (2, FEW.format(3, 200))),  # of a run that was not like this one
    ],
)
def test_as_many_as_are_given_where_there_is_enough_for_all(
    rows: int, loads: list[Workload], most: int, chosen: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WORKER_ROWS)
    tuning = replace(TUNING, worker_rows=100, worker_seconds=1.0)
    assert WorkerCount(rows, 0, loads, tuning).given(most) == chosen


def test_the_rows_for_a_worker_are_a_setting_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    count = WorkerCount(100, 0, [], TUNING)
    for rows, number in (("0", 8), ("10", 8), ("13", 7), ("50", 2), ("101", 1), ("", 1)):
        monkeypatch.setenv(WORKER_ROWS, rows)
        assert count.given(8)[0] == number
    for rows in ("-1", "many", "1.5", "9" * 5000):
        monkeypatch.setenv(WORKER_ROWS, rows)
        with pytest.raises(UsageError, match="not a number of rows"):
            count.given(8)


def test_rows_that_took_long_are_worth_more_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = replace(TUNING, worker_rows=100, worker_seconds=1.0, owner_rows=50)
    monkeypatch.delenv(WORKER_ROWS)
    for loads, rows in (
        ([], 50),
        ([load(3, 1, 200, 2.0)], 50),
        ([load(3, 1, 200, 8.0)], 12),
        ([load(3, 1, 1, 8.0)], 50),
    ):
        assert WorkerCount(200, 0, loads, tuning).owner_rows() == rows
    assert WorkerCount(0, 0, [load(3, 1, 0, 1e9)], tuning).owner_rows() == 1
    monkeypatch.setenv(WORKER_ROWS, "0")
    assert WorkerCount(200, 0, [], tuning).owner_rows() == 0


def test_each_worker_that_spills_may_have_more() -> None:
    count = WorkerCount(3_000_000, 0, [load(3, 1, 3_000_000, 2.0)], TUNING, memory_set=True)
    assert count.chosen(8)[0] == 1
    assert replace(count, memory_set=False).chosen(8)[0] == 3


def test_a_load_into_nothing_says_nothing_of_changes_beside_much() -> None:
    first = load(1, 4, 1_000_000, 30.0)
    assert WorkerCount(900_000, 2_000_000, [first], TUNING).chosen(4)[0] == 1
    assert WorkerCount(900_000, 0, [first], TUNING).chosen(4)[0] == 4


@dataclass
class Cluster:
    """Seconds that workers really take."""

    row: float
    exchange: float  # of a row, beside, with several workers
    start: float  # of further workers
    room: int

    def seconds(self, workers: int, rows: int) -> float:
        several = workers > 1
        return rows * (self.row / workers + self.exchange * several) + self.start * several

    def folded(self, run: int, workers: int, rows: int) -> Workload:
        several = workers > 1
        seconds = self.seconds(workers, rows) - self.start * several
        return Workload(run, workers, rows, 10, seconds, rows * self.row, 1.0 + self.start * several)


@pytest.mark.parametrize("number", range(300))
def test_after_some_runs_more_workers_never_cost_time(number: int) -> None:
    rng = random.Random(number)
    cluster = Cluster(
        row=10 ** rng.uniform(-6, -1), exchange=10 ** rng.uniform(-7, -1), start=rng.uniform(0, 60),
        room=rng.randint(1, 64),
    )  # fmt: skip
    rows, loads = rng.randint(1, 3_000_000), tuple[Workload, ...]()
    spills = rng.random() < 0.5
    for run in range(1, 21):
        count = WorkerCount(rows, 10, loads, TUNING, memory_set=spills)
        workers, why = count.chosen(cluster.room)
        assert 1 <= workers <= cluster.room
        if not spills and loads and workers < cluster.room:
            assert rows <= workers * TUNING.parallel_rows, why
        if run > 10:
            least = 1 if spills else min(cluster.room, -(-rows // TUNING.parallel_rows))
            taken, fewest = cluster.seconds(workers, rows), cluster.seconds(least, rows)
            assert taken <= fewest * (1 + 1e-9), (run, workers, why, cluster)
        loads = kept(loads, cluster.folded(run, workers, rows))
    assert WorkerCount(rows, 10, loads, TUNING, memory_set=spills)._like()


def test_few_are_kept_and_the_old_forgotten() -> None:
    loads = tuple[Workload, ...]()
    for run in range(1, 300):
        loads = kept(loads, load(run, run % 3 + 1, 2 ** (run % 20), 1.0))
    assert [one.run for one in loads] == [292, 293, 294, 295, 296, 297, 298, 299]
    loads = kept([load(1, 2, 5, 1.0), load(2, 1, 5, 1.0)], load(101, 1, 5, 2.0))
    assert [(one.run, one.workers) for one in loads] == [(101, 1)]
