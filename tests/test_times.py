"""Times of several coordinates: as text, as frontiers, and through ingest, state, runs and commands."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import folding
import polars as pl
import pytest
import sparkless
from notation import dims_of
from programs import Case, case
from test_exchange import expected_of, outcome
from test_random_programs import compare
from warehouses import project_of, take_in

from ddcore import reference
from ddcore.errors import UsageError
from ddcore.io import arrangements, times
from ddcore.io.ledger import Ledger
from ddcore.io.program import load_program
from ddcore.io.project import Project
from ddcore.io.warehouse import Warehouse
from ddcore.jobs import exchange, messages, replay
from ddcore.planner import build

DIMS = ("day", "revision")
Time = tuple[int, ...]


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dims", "time"),
    [
        ("day=7,revision=1", DIMS, (7, 1)),
        (" revision = 1 , day = 7 ", DIMS, (7, 1)),
        ("day=007,revision=+0", DIMS, (7, 0)),
        (f"day={2**63 - 2},revision=0", DIMS, (2**63 - 2, 0)),
        ("7", ("version",), 7),
        ("version=7", ("version",), 7),
    ],
)
def test_a_time_is_read_and_shown(text: str, dims: tuple[str, ...], time: times.Time) -> None:
    assert times.parse(text, dims, "--to") == time
    assert times.parse(times.shown(time, dims), dims, "--to") == time
    assert times.parse_key(times.key(time)) == time


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("7", "'7' is not a time of day, revision", "for example: day=7,revision=1"),
        ("", "'' is not a time of day, revision", "name every dimension once"),
        ("day=7", "'day=7' has no revision", "for example: day=7,revision=1"),
        ("day=7,revisoin=1", "there is no time dimension 'revisoin'; there are: day, revision", "'revision'?"),
        ("day=7,revision=1,day=8", "day occurs twice", "name every dimension once"),
        ("day=-7,revision=1", "day is -7, which is negative", "times start at 0"),
        ("day=7.5,revision=1", "day is '7.5', not a whole number", "whole numbers from 0 up"),
        ("day=x,revision=1", "day is 'x', not a whole number", "whole numbers"),
        ("day=٣,revision=1", "not a whole number", "whole numbers"),
        ("day=,revision=1", "day is '', not a whole number", "whole numbers"),
        ("day=7,revision=1,", "'' is not NAME=NUMBER", "name every dimension once"),
        ("=7,revision=1", "'=7' is not NAME=NUMBER", "name every dimension once"),
        (f"day={2**63 - 1},revision=1", "which is too large", f"times end at {2**63 - 2}"),
        (f"day={'9' * 5000},revision=1", "which is too large", f"times end at {2**63 - 2}"),
    ],
)
def test_a_time_that_cannot_be_read(text: str, says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        times.parse(text, DIMS, "--to")
    assert caught.value.message.startswith("--to: ") and says in caught.value.message
    assert hint in caught.value.hint
    assert len(caught.value.message) < 6000


# --- frontiers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_frontiers_say_which_times_are_complete(seed: int) -> None:
    """Boxes are closed one after the other; each frontier is compared with the set of times itself."""
    rng = random.Random(seed)
    count, side = rng.choice([(1, 9), (2, 5), (3, 4)])
    space = [()]
    for _ in range(count):
        space = [(*time, c) for time in space for c in range(side + 2)]
    upper, closed = times.nothing_closed(range(count)), set[Time]()  # type: ignore[arg-type]
    for _ in range(rng.randint(1, 5)):
        corner = tuple(rng.randrange(side) for _ in range(count))
        closed |= {time for time in space if reference.precedes(time, corner)}
        before, upper = upper, times.close(upper, times.time_of(corner))
        assert {time for time in space if not times.is_open(times.time_of(time), upper)} == closed
        open_ = set(space) - closed
        assert set(upper) == {t for t in open_ if not any(s != t and reference.precedes(s, t) for s in open_)}
        tops = [t for t in closed if not any(s != t and reference.precedes(t, s) for s in closed)]
        assert times.corners(upper) == sorted(map(times.time_of, tops))  # type: ignore[type-var]
        window = times.Window(before, upper)
        inside = [t for t in space if times.is_open(times.time_of(t), before) and not times.is_open(times.time_of(t), upper)]
        assert [time for time in space if times.time_of(time) in window] == inside
        names = [f"t{i}" for i in range(count)]
        frame = pl.DataFrame(space, schema=names, orient="row")
        assert frame.filter(window.condition(names)).rows() == inside
        for low, high in (rng.choices(space, k=2) for _ in range(20)):
            bounds = [dict(zip(names, side, strict=True)) for side in (low, high)]
            box = [t for t in inside if reference.precedes(low, t) and reference.precedes(t, high)]
            assert window.may_meet(*bounds, names) or not box
    assert times.up_to(times.time_of(corner)) == times.close(times.nothing_closed(range(count)), times.time_of(corner))  # type: ignore[arg-type]


def test_a_frontier_without_a_greatest_time() -> None:
    assert times.corners(((1, 1),)) == [(0, 2**63 - 1), (2**63 - 1, 0)]
    assert times.corners(((0, 0),)) == []


# --- the law, through the warehouse -----------------------------------------------------------------------------------


def several(seeds: Any) -> list[int]:
    """The seeds of cases with two or three time dimensions."""
    return [seed for seed in seeds if len(dims_of(case(seed, plain=True).frames)) > 1]


def ends_of(drawn: Case, seed: int) -> list[Time | None]:
    """Times to run to, in any order, and at last everything: later boxes may lie beside or inside of earlier ones."""
    rng, every = random.Random(f"ends {seed}"), folding.grid(drawn.frames)
    return [*(rng.choice(every) for _ in range(rng.randint(1, 4))), None]


@pytest.mark.parametrize("seed", several(range(36)))
def test_the_law_holds_however_runs_cut_the_history(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(arrangements, "SMALL", 0)
    drawn = case(seed, plain=True)
    expected = expected_of(drawn)
    compare(drawn, "whole", expected, outcome(project_of(tmp_path / "whole", drawn), [None], engine="inline"))
    cut = outcome(project_of(tmp_path / "cut", drawn), ends_of(drawn, seed), engine="inline")  # type: ignore[arg-type]
    compare(drawn, "in runs", expected, cut)


@pytest.mark.parametrize("seed", several(range(90, 114)))
def test_the_law_holds_when_rows_arrive_between_runs(seed: int, tmp_path: Path) -> None:
    """Before each run the rows arrive that it completes, and some of the others."""
    drawn, rng, results = case(seed, plain=True), random.Random(seed), None
    empty = Case(drawn.seed, drawn.source, drawn.program, {name: frame[:0] for name, frame in drawn.frames.items()})
    project = project_of(tmp_path / "p", empty, ingested=False)
    left = dict(drawn.frames)
    for end in ends_of(drawn, seed):
        for name, frame in left.items():
            dims = list(project.dims)
            due = [end is None or reference.precedes(time, end) or rng.random() < 0.3 for time in frame.select(dims).rows()]
            left[name] = frame.filter([not one for one in due])
            if any(due):
                take_in(project, name, frame.filter(due))
        latest = Ledger.load(Warehouse(project.warehouse)).latest_ingested()
        if latest is not None:
            last = None if end is None else tuple(map(min, end, times.coordinates(latest)))
            results = outcome(project, [last], engine="inline")  # type: ignore[list-item]
        if isinstance(results, Exception):
            break
    compare(drawn, "with rows in between", expected_of(drawn), results)


@pytest.mark.parametrize("seed", several(range(24)))
def test_several_workers_and_whatever_happens_to_tasks(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallelism = 2 + seed % 2
    sparkless.install(monkeypatch, seed=seed, unrest=0.3)
    monkeypatch.setattr(messages, "MESSAGE_ROWS", 2)
    drawn = case(seed, plain=True)
    ends: Any = ends_of(drawn, seed)
    outcomes = outcome(project_of(tmp_path / "cut", drawn), ends, engine="spark", parallelism=parallelism)
    compare(drawn, f"parallelism {parallelism}", expected_of(drawn), outcomes)


@pytest.mark.parametrize("seed", several(range(16)))
def test_one_task_takes_over(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, last = case(seed, plain=True), random.Random(seed).randint(1, 9)
    real = exchange._Exchange._superstep

    def counted(self: Any, waiting: Any, now: Any) -> Any:
        if now.number == last:
            self.narrow_below = 10**9
        return real(self, waiting, now)

    sparkless.install(monkeypatch, seed=seed)
    monkeypatch.setattr(replay, "WIDE_FROM", 1)
    monkeypatch.setattr(exchange, "NARROW_BELOW", 1)
    monkeypatch.setattr(exchange._Exchange, "_superstep", counted)
    ends: Any = ends_of(drawn, seed)
    outcomes = outcome(project_of(tmp_path / "p", drawn), ends, engine="spark")
    compare(drawn, f"taken over after step {last}", expected_of(drawn), outcomes)
