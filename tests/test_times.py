"""Times of several coordinates: as text, as frontiers, and through ingest, state, runs and commands."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import folding
import pages
import polars as pl
import pytest
import sparkless
from ingesting import Desk
from notation import dims_of, frame, log
from programs import Case, case
from seeds import nightly
from test_exchange import REACH, expected_of, outcome
from test_random_programs import compare
from trams import Said, records
from warehouses import logs_of, project_of, take_in

from ddcore import reference
from ddcore.base.errors import UsageError
from ddcore.base.lattice import Frontier
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.cli.main import run_command
from ddcore.cli.samples import SAMPLES
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.readable import Readable
from ddcore.io.ledger.records import IngestRecord, RunRecord
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.updates import running_counts
from ddcore.io.project import frontiers, times
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_program
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.sources.intake import Intake
from ddcore.io.sources.layouts import Rules
from ddcore.io.storage.warehouse import Warehouse
from ddcore.planning.planner import build

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
def test_a_time_is_read_and_shown(text: str, dims: tuple[str, ...], time: Any) -> None:
    time = times.time_of(time)
    assert times.parse(text, dims, "--to") == time
    assert times.parse(times.shown(time, dims), dims, "--to") == time
    assert times.parse_key(str(time)) == time


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


@pytest.mark.sample(60)
@pytest.mark.parametrize("seed", range(200))
def test_frontiers_say_which_times_are_complete(seed: int) -> None:
    """Boxes are closed one after the other; each frontier is compared with the set of times itself."""
    rng = random.Random(seed)
    count, side = rng.choice([(1, 9), (2, 5), (3, 4)])
    space: list[Time] = list(product(range(side + 2), repeat=count))
    names = [f"t{i}" for i in range(count)]
    nothing = frontiers.nothing_closed(names)
    upper, closed, corner = nothing, set[Time](), (0,) * count
    for _ in range(rng.randint(1, 5)):
        corner = tuple(rng.randrange(side) for _ in range(count))
        closed |= {time for time in space if reference.precedes(time, corner)}
        before, upper = upper, frontiers.close(upper, times.time_of(corner))
        assert {time for time in space if not frontiers.is_open(times.time_of(time), upper)} == closed
        open_ = set(space) - closed
        assert set(upper) == {t for t in open_ if not any(s != t and reference.precedes(s, t) for s in open_)}
        tops = [t for t in closed if not any(s != t and reference.precedes(t, s) for s in closed)]
        assert frontiers.corners(upper) == sorted(map(times.time_of, tops))
        window = frontiers.Window(before, upper)
        inside = [t for t in space if frontiers.is_open(t, before) and not frontiers.is_open(t, upper)]
        assert [time for time in space if times.time_of(time) in window] == inside
        frame = pl.DataFrame(space, schema=names, orient="row")
        assert frame.filter(window.condition(names)).rows() == inside
        for low, high in (rng.choices(space, k=2) for _ in range(20)):
            least, most = (dict(zip(names, end, strict=True)) for end in (low, high))
            box = [t for t in inside if reference.precedes(low, t) and reference.precedes(t, high)]
            assert window.may_meet(least, most, names) or not box
    assert frontiers.up_to(times.time_of(corner)) == frontiers.close(nothing, times.time_of(corner))


def test_a_frontier_without_a_greatest_time() -> None:
    assert frontiers.corners(((1, 1),)) == [(0, 2**63 - 1), (2**63 - 1, 0)]
    assert frontiers.corners(((0, 0),)) == []


# --- the law, through the warehouse -----------------------------------------------------------------------------------


def several(seeds: Any, most: int) -> list[Any]:
    """The seeds of cases with two or three time dimensions; those after the first ``most`` are for `make test-all`."""
    found = [seed for seed in seeds if len(dims_of(case(seed, plain=True).frames)) > 1]
    return nightly(found, most)


def ends_of(drawn: Case, seed: int) -> list[Time | None]:
    """Times to run to, and at last everything. Most boxes are long along one dimension and short along the others: only
    boxes that stick out of each other leave something pending.
    """
    rng = random.Random(f"ends {seed}")
    axes = [sorted(set(axis)) for axis in zip(*folding.grid(drawn.frames), strict=True)]
    ends: list[Time | None] = []
    for _ in range(rng.randint(2, 4)):
        long = rng.randrange(len(axes))
        halves = [axis[len(axis) // 2 :] if i == long else axis[: -(-len(axis) // 2)] for i, axis in enumerate(axes)]
        ends.append(tuple(map(rng.choice, halves if rng.random() < 0.8 else axes)))
    return [*ends, None]


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", several(range(36), 6))
def test_the_law_holds_however_runs_cut_the_history(seed: int, tmp_path: Path) -> None:
    tuning = Tuning(small_file_rows=0) if seed % 2 else DEFAULT
    drawn = case(seed, plain=True)
    expected = expected_of(drawn)
    compare(drawn, "whole", expected, outcome(project_of(tmp_path / "whole", drawn), [None], engine="inline"))
    cut = outcome(project_of(tmp_path / "cut", drawn, tuning=tuning), ends_of(drawn, seed), engine="inline")
    compare(drawn, "in runs", expected, cut)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", several(range(90, 114), 4))
def test_the_law_holds_when_rows_arrive_between_runs(seed: int, tmp_path: Path) -> None:
    """Before each run the rows arrive that it completes, and some of the others."""
    drawn, rng, results = case(seed, plain=True), random.Random(seed), None
    empty = Case(drawn.seed, drawn.source, drawn.program, {name: frame[:0] for name, frame in drawn.frames.items()})
    project = project_of(tmp_path / "p", empty, ingested=False)
    left = dict(drawn.frames)
    for end in ends_of(drawn, seed):
        for name, updates in left.items():
            dims = list(project.dims)
            rows = updates.select(dims).iter_rows()
            due = [end is None or reference.precedes(time, end) or rng.random() < 0.3 for time in rows]
            left[name] = updates.filter([not one for one in due])
            if any(due):
                take_in(project, name, updates.filter(due))
        latest = Ledger.load(Warehouse(project.warehouse)).latest_ingested()
        if latest is not None:
            last = None if end is None else times.least([end, latest])
            results = outcome(project, [last], engine="inline")
        if isinstance(results, Exception):
            break
    compare(drawn, "with rows in between", expected_of(drawn), results)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", several(range(24), 4))
def test_several_workers_and_whatever_happens_to_tasks(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallelism = 2 + seed % 2
    sparkless.install(monkeypatch, seed=seed)
    tuning = Tuning(message_rows=1 + seed % 3, divided_rows=1 + seed % 5)
    drawn = case(seed, plain=True)
    ends: Any = ends_of(drawn, seed)
    project = project_of(tmp_path / "cut", drawn, tuning=tuning)
    outcomes = outcome(project, ends, engine="spark", parallelism=parallelism)
    compare(drawn, f"parallelism {parallelism}", expected_of(drawn), outcomes)


WAITING = """
import ddcore as dd


def program(words, names):
    joined = words.join(names, on="k")
    def shrink(w):
        return w.select("k", x="x // 2").concat(words).distinct()
    return {
        "counts": joined.group_by("k").agg(n=dd.count()),
        "once": words.select("k").distinct(),
        "halves": words.iterate(shrink).group_by("k").agg(s=dd.sum("x")),
    }
"""


def waiting() -> Case:
    """At (1,1) and (2,2) the outputs change, and no row is there."""
    words = ",".join(f"({k},5)" for k in "abcdefgh")
    names = ",".join(f"({k},{n})" for k in "abcdefgh" for n in (1, 2))
    scope: dict[str, Any] = {}
    exec(WAITING, scope)
    frames = {
        "words": frame("k x", f"{words}:+1@(1,0) {words}:+1@(0,1) (a,9):+1@(2,0) (b,9):+1@(0,2)"),
        "names": frame("k n", f"{names}:+1@(0,1) (a,1):-1@(0,2) {names}:+1@(2,0)"),
    }
    return Case(0, WAITING, scope["program"], frames)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(range(6), 2))
def test_what_waits_beyond_the_upper_is_resumed_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several workers, as many as are told or as there are cores."""
    drawn, ends = waiting(), [(1, 0), (0, 1), (2, 0), (0, 2), (1, 1), None]
    sparkless.install(monkeypatch, seed=seed)
    tuning = Tuning(message_rows=1 + seed % 3, divided_rows=1 + seed % 5)
    forced: dict[str, Any] = {"parallelism": 2 + seed % 2}
    if seed >= 4:
        forced, tuning = {}, replace(tuning, parallel_rows=1)
    project = project_of(tmp_path / "p", drawn, tuning=tuning)
    outcomes = outcome(project, ends, engine="spark", **forced)
    compare(drawn, "resumed", expected_of(drawn), outcomes)
    waits = [
        {
            kind
            for name, state in run.tables.items()
            if state.rows
            for kind in ("_held", "_pending")
            if name.endswith(kind)
        }
        for run in Ledger.load(Warehouse(project.warehouse)).records(RunRecord)
    ]
    assert {"_held", "_pending"} in waits and waits[-1] == set()


@pytest.mark.spark
def test_spark_folds_two_coordinates_in_runs(tmp_path: Path, spark: Any) -> None:
    """A loop over two coordinates: pending times and held updates of the first runs are resumed by other processes."""
    edges = frame("a b", "(0,1),(1,2),(2,3):+1@(0,1) (3,4):+1@(1,0) (1,2):-1@(1,1) (1,3):+1@(0,2) (0,4):+1@(2,0)")
    scope: dict[str, Any] = {}
    exec(REACH, scope)
    drawn, ends = Case(0, REACH, scope["program"], {"edges": edges}), [(1, 0), (0, 1), (0, 2), None]
    for parallelism in (1, 2):
        project = project_of(tmp_path / str(parallelism), drawn)
        outcomes = outcome(project, ends, engine="spark", parallelism=parallelism)
        compare(drawn, f"parallelism {parallelism}", expected_of(drawn), outcomes)


# --- the commands -----------------------------------------------------------------------------------------------------

TOML = """
[project]
program = "program.py:program"
[time]
dims = ["day", "revision"]
[run]
engine = "inline"
[inputs.words]
schema = { k = "string", x = "int64" }
"""
HEADER = "day,revision,diff,k,x\n"
PROGRAM = """
import ddcore as dd


def program(words):
    by_key = words.group_by("k")
    twice = by_key.agg(n=dd.count()).where("n >= 2").select("k")
    return {"counts": by_key.agg(n=dd.count()), "twice": twice, "keys": words.select("k").distinct()}
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project of two dimensions, as the working folder."""
    (tmp_path / "dd.toml").write_text(TOML)
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def take(words: Path, dd: Any) -> Callable[..., Said]:
    """Ingests lines ``day,revision,diff,k,x`` as a file."""
    count = iter(range(100))

    def call(*lines: str, options: Sequence[str] = (), name: str = "") -> Said:
        file = words / (name or f"{next(count)}.csv")
        file.write_text(HEADER + "\n".join(lines) + "\n")
        said: Said = dd("ingest", "words", str(file), *options)
        return said

    return call


def log_of_output(folder: Path, name: str) -> dict[Any, int]:
    project = find_project(folder)
    schema = build(load_program(project), project.inputs, project.dims).outputs
    return logs_of(project, {name: schema[name]})[name]


def test_T03_silent_constituents_through_the_command_line(words: Path, dd: Any, take: Any) -> None:
    assert take("1,0,1,k,1", "0,1,1,k,2")[0] == 0
    assert dd("run", "--to", "day=1,revision=0", "-q")[0] == 0
    assert dd("run", "--to", "revision=1,day=0", "-q")[0] == 0
    assert log_of_output(words, "twice") == {}
    code, out, err = dd("run")  # no input row is at (1,1)
    assert (code, err[0].split(" rounds")[0]) == (0, "day=1,revision=1 in=+0/-0 out=+2/-3")
    assert records(out)[-1]["upper"] == [{"day": 0, "revision": 2}, {"day": 2, "revision": 0}]
    assert log_of_output(words, "twice") == {(("k",), (1, 1)): 1}


def test_T04_pending_survives_cancellation_through_the_command_line(words: Path, dd: Any, take: Any) -> None:
    assert take("0,0,1,k,1", "0,0,1,k,2", "1,0,1,k,3", "0,1,-1,k,1")[0] == 0
    for to in ("day=0,revision=1", "day=1,revision=0", "latest"):
        assert dd("run", "--to", to, "-q")[0] == 0
    assert log_of_output(words, "counts") == log(
        "(k,2):+1@(0,0) (k,2):-1,(k,3):+1@(1,0) (k,2):-1,(k,1):+1@(0,1) (k,2):+2,(k,3):-1,(k,1):-1@(1,1)"
    )


def test_boxes_add_up_and_a_run_that_closes_nothing_says_so(words: Path, dd: Any, take: Any) -> None:
    take("7,1,1,a,1", "9,3,1,b,1")
    assert records(dd("run", "--to", "day=7,revision=1")[1])[-1]["upper"] == [
        {"day": 0, "revision": 2}, {"day": 8, "revision": 0},
    ]  # fmt: skip
    assert records(dd("run", "--to", "day=9,revision=0")[1])[-1]["upper"] == [
        {"day": 0, "revision": 2}, {"day": 8, "revision": 1}, {"day": 10, "revision": 0},
    ]  # fmt: skip
    code, out, err = dd("run", "--to", "day=7,revision=0", "--skip-code", "99")
    assert (code, err) == (99, ["nothing new: day=7,revision=1 and day=9,revision=0 are folded"])
    assert records(out)[-1]["nothing_new"]
    status = records(dd("status", "--json")[1])[0]
    assert status["folded"] == [{"day": 7, "revision": 1}, {"day": 9, "revision": 0}]
    assert status["since"] == [{"day": 0, "revision": 0}] and status["waiting"] == [{"day": 9, "revision": 3}]
    assert "through day=7,revision=1 and day=9,revision=0" in dd("status")[1][2]
    said = dd("show", "counts")
    assert said[0] == 2 and "there is no latest time: day=7,revision=1 and day=9,revision=0 are complete" in said[2][0]
    assert dd("show", "counts", "--at", "day=9,revision=0")[1][1] == "at day=9,revision=0  0 rows"
    assert dd("diff", "counts", "day=9,revision=0", "day=7,revision=1")[1][1:] == [
        "day=9,revision=0..day=7,revision=1  +1 -0", "", "   k  n", "+  a  1",
    ]  # fmt: skip
    code, out, err = dd("run", "--dry-run", "--json")
    assert records(out)[0] == {
        "time": {"day": 9, "revision": 3},
        "label": {},
        "instant": {},
        "inputs": {"words": {"plus": 1, "minus": 0}},
        "outputs": {},
    }
    assert err == ["would fold 1 time, to day=9,revision=3, in=+1/-0; nothing was written"]


def test_commands_take_times(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (words / "bare.csv").write_text("diff,k,x\n1,a,1\n")
    assert run_command(["ingest", "words", "bare.csv", "--version", "day=3,revision=1"]) == 0
    assert records([capsys.readouterr().out])[0]["first"] == {"day": 3, "revision": 1}
    assert run_command(["run", "--to", "day=2,revision=1"]) == 0
    report = records([capsys.readouterr().out])[0]
    assert (report["last"], report["nothing_new"]) == ({"day": 2, "revision": 1}, False)
    assert report["upper"] == [{"day": 0, "revision": 2}, {"day": 3, "revision": 0}]
    for wrong in (["--to-version", "2"], ["--to", "day=2"], ["--to", "day=3,revision=2"]):
        assert run_command(["run", *wrong]) == 2
        assert capsys.readouterr().err.startswith(f"error: {wrong[0]}")


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        (["run", "--to", "day=1"], "--to: 'day=1' has no revision", "day=7,revision=1"),
        (["run", "--to", "day=1,revision=0,hour=2"], "there is no time dimension 'hour'; there are: day", "name every"),
        (["run", "--to", "day=-1,revision=0"], "--to: day is -1, which is negative", "times start at 0"),
        (["run", "--to", "day=one,revision=0"], "--to: 'one' is not a day", "say a number"),
        (["run", "--to", "3"], "--to: '3' is not a time of day, revision", "day=7,revision=1"),
        (["run", "--to", "day=1,revision=9"], "day=1,revision=9 was not ingested: the greatest", "latest"),
        (["run", "--to-version", "3"], "--to-version 3: dd.toml has the time dimensions day, revision", "--to day=7"),
        (["run", "--from-version", "3"], "--from-version: '3' is not a time of day, revision", "day=7,revision=1"),
        (["run", "--to", "day=1,revision=0", "--to-version", "1"], "say the same", "leave one"),
        (["show", "counts", "--at", "day=1"], "--at: 'day=1' has no revision", "name every"),
        (["show", "counts", "--at", "-1"], "'-1' is not a time of day, revision", "name every"),
        (["show", "counts", "--at", "day=2,revision=0"], ": since is {day=0,revision=0}, upper is {", "status"),
        (["diff", "counts", "day=0,revision=0"], "diff needs two versions", "day=7,revision=1 latest"),
        (["diff", "counts", "day=0,revision=0..day=9,revision=0"], "B: day=9,revision=0 is not yet complete", "status"),
        (["diff", "counts", "5", "latest"], "A: '5' is not a time of day, revision", "name every"),
        (["ingest", "words", "a.csv", "--version", "3"], "--version: '3' is not a time of day, revision", "name every"),
        (["ingest", "words", "a.csv", "--version", "day=3"], "--version: 'day=3' has no revision", "name every"),
        (["ingest", "words", "a.csv", "--version", "-3"], "'-3' is not a time of day, revision", "name every"),
    ],
)  # fmt: skip
def test_times_that_commands_refuse(arguments: list[str], says: str, hint: str, refusing: Path, dd: Any) -> None:
    code, out, err = dd(*arguments, "--project", str(refusing))
    assert (code, out) == (2, [])
    assert says in err[0] and hint in err[1] and len(err) == 2


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folded project. Nobody writes to it."""
    folder = tmp_path_factory.mktemp("times")
    (folder / "dd.toml").write_text(TOML)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "a.csv").write_text(HEADER + "1,1,1,a,1\n")
    for arguments in (["ingest", "words", str(folder / "a.csv")], ["run"]):
        assert run_command([*arguments, "-q", "--project", str(folder)]) == 0
    return folder


def test_T20_reads_between_since_and_upper() -> None:
    readable = Readable(DIMS, ((2, 0), (0, 2)), ((5, 0), (0, 5)), VersionNames(DIMS))
    assert readable.time("day=2,revision=1", "--at") == (2, 1)
    for text, why in (("day=1,revision=1", "can no longer be read"), ("day=5,revision=0", "is not yet complete")):
        with pytest.raises(UsageError) as caught:
            readable.time(text, "--at")
        frontiers = "since is {day=2,revision=0; day=0,revision=2}, upper is {day=5,revision=0; day=0,revision=5}"
        assert caught.value.message == f"--at: {text} {why}: {frontiers}"


# --- ingest -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "late"), [("2,0", True), ("0,2", True), ("1,1", False), ("1,2", False), ("3,1", False)]
)
def test_T21_late_at_two_coordinates(time: str, late: bool, words: Path, take: Any) -> None:
    closed_up_to(words, ((1, 1),))
    code, _, err = take(f"{time},1,a,1", "4,4,1,b,2")
    assert code == (1 if late else 0)
    if late:
        day, revision = time.split(",")
        assert err == [
            "error: 1 of 2 rows are late: only times at or beyond {day=1,revision=1} are open; the first is "
            f"k='a', x=1 at day={day},revision={revision} in {words / '0.csv'}",
            "  leave them out, take them in at the next open time with: --late move; or at their own, and fold again "
            "from there, with: --late restate",
        ]


def closed_up_to(folder: Path, upper: Frontier) -> None:
    """Let the ledger say that a run left this frontier."""
    warehouse = Warehouse(folder / "warehouse")
    warehouse.create()
    nothing: dict[str, Any] = {"inputs": {}, "outputs": {}, "tables": {}}
    ledger = Ledger.load(warehouse, Writer())
    ledger.append(ingest_of_two_dims())
    run = RunRecord(
        ledger.next_run(), "ab12", time_of((0, 0)), time_of((0, 0)), "inline", 1, rounds=1, took=0.1, **nothing
    )
    ledger.append(replace(run, lower=((0, 0),), upper=upper))


def ingest_of_two_dims() -> IngestRecord:
    state = TableState(0, 0, 0, "ab")
    return IngestRecord(
        1, "other", (), time_of((0, 0)), time_of((0, 0)), 0, {time_of((0, 0)): (1, 0)}, (), state, dims=DIMS
    )


def test_late_rows_move_to_the_lexicographically_least_open_time(words: Path, dd: Any, take: Any) -> None:
    take("7,0,1,a,1")
    assert dd("run", "-q")[0] == 0
    code, out, err = take("5,0,1,b,1", "6,3,1,c,1", "8,0,1,d,1", options=["--late", "move"])
    assert (code, records(out)[-1]["moved"], err[-1]) == (0, 1, "1 late row was moved to the next open times")
    project = find_project(words)
    assert updates_of(project) == [("a", 1, 7, 0, 1), ("b", 1, 5, 1, 1), ("c", 1, 6, 3, 1), ("d", 1, 8, 0, 1)]


def updates_of(project: Project) -> list[Any]:
    warehouse = Warehouse(project.warehouse)
    change_log = ChangeLog(warehouse.input("words"), project.input_schema("words"), project.dims)
    rows = change_log.collect(change_log.scan(Ledger.load(warehouse).input_table("words")))
    return sorted(rows.group_by(pl.all().exclude("diff")).agg(pl.col("diff").sum()).rows())


@pytest.mark.parametrize("seed", range(20))
def test_moved_rows_are_at_the_least_join(seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "b", "c"][: rng.randint(2, 3)]
    upper = frontiers.nothing_closed(names)
    for _ in range(rng.randint(1, 4)):
        upper = frontiers.close(upper, tuple(rng.randrange(6) for _ in names))
    space = list(product(range(8), repeat=len(names)))
    updates = pl.DataFrame(space, schema=names, orient="row").with_columns(diff=1)
    unused = ChangeLog(Path("unused"), {}, tuple(names))
    moved = Intake(unused, 1, Rules({}, tuple(names)), upper=upper, move=True)._move_late(updates).select(names).rows()
    assert moved == [min(tuple(map(max, time, element)) for element in upper) for time in space]
    assert all(frontiers.is_open(time, upper) for time in moved)


def test_a_source_gives_each_dimension_or_the_option_gives_all(words: Path, dd: Any) -> None:
    (words / "bare.csv").write_text("diff,k,x\n1,a,1\n")
    code, _, err = dd("ingest", "words", "bare.csv")
    assert (code, "the column 'day' is missing" in err[0]) == (1, True)
    assert "--version day=7,revision=1 gives all rows a time; --column day=COLUMN names" in err[1]
    assert dd("ingest", "words", "bare.csv", "--version", "revision=2,day=3", "-q")[0] == 0
    assert updates_of(find_project(words)) == [("a", 1, 3, 2, 1)]
    (words / "half.csv").write_text("day,diff,k,x\n1,1,b,1\n")
    code, _, err = dd("ingest", "words", "half.csv")
    assert (code, "the column 'revision' is missing" in err[0]) == (1, True)
    code, _, err = dd("ingest", "words", "half.csv", "--version", "day=3,revision=2")
    assert (code, "has a column 'day', but --version gives its value" in err[0]) == (1, True)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["0,1,1,a,1", "1,0,-1,a,1"], "the row does not exist: its count would be -1"),
        (["0,0,1,a,1", "1,0,-1,a,1", "0,1,-1,a,1"], "its count would be -1 as of day=1,revision=1"),
        (["0,0,1,a,1", "1,0,-1,a,1", "0,1,-1,a,1", "1,1,1,a,1"], ""),
        (["0,1,1,a,1", "1,1,-1,a,1"], ""),
    ],
)  # fmt: skip
def test_no_count_is_negative_at_any_time_of_the_grid(lines: list[str], says: str, take: Any) -> None:
    code, _, err = take(*lines)
    assert code == (1 if says else 0)
    assert says in err[0] and (not says or "retracts k='a', x=1 at day=1,revision=0, and" in err[0])


@pytest.mark.parametrize("seed", nightly(range(60), 5))
def test_running_counts_on_the_grid_are_the_sums(seed: int) -> None:
    rng = random.Random(seed)
    most_cells = rng.choice([1, 7, 100])
    names = ["day", "revision", "region"][: rng.randint(2, 3)]
    history: list[Any] = [
        (rng.choice(["a", "b", None]), *(rng.choice([0, 2, 5]) for _ in names), rng.choice([1, -1, 2]))
        for _ in range(rng.randint(0, 12))
    ]
    schema = {"x": pl.String, **dict.fromkeys([*names, "diff"], pl.Int64)}
    counted = running_counts(pl.DataFrame(history, schema=schema, orient="row"), names, most_cells)
    expected = {
        (row, *time, sum(u[-1] for u in history if u[0] == row and reference.precedes(u[1:-1], time)))
        for row in {update[0] for update in history}
        for time in product(*({u[1 + location] for u in history if u[0] == row} for location in range(len(names))))
    }
    assert set(counted.rows()) == expected and len(counted) == len(expected)
    assert counted.select(names).rows() == sorted(counted.select(names).rows())


def test_a_file_that_has_grown_at_old_days_and_new_ones(words: Path, dd: Any, take: Any) -> None:
    first = ["1,0,1,a,1", "2,0,1,b,1"]
    take(*first, name="log.csv")
    code, out, err = take(*first, "3,0,1,c,1", "1,1,-1,a,1", "1,1,1,a,2", name="log.csv")
    assert (code, records(out)[-1]["plus"], records(out)[-1]["minus"]) == (0, 2, 1)
    assert f"{words / 'log.csv'}: taken in at its other times; ingest 1 has the rows at 2 of its times" in err[0]
    again = take(*first, "3,0,1,c,1", "1,1,-1,a,1", "1,1,1,a,2", "2,1,-1,b,1", name="log.csv")
    assert (records(again[1])[-1]["plus"], records(again[1])[-1]["minus"]) == (0, 1)
    assert dd("ingest", "words", "log.csv")[2][-1] == "nothing new: ingest 3 took in the same rows"


def test_an_undo_is_refused_where_a_time_is_closed(words: Path, dd: Any, take: Any) -> None:
    take("1,0,1,a,1", "0,2,1,b,1")
    assert dd("run", "--to", "day=1,revision=0", "-q")[0] == 0
    take("0,1,1,c,1", "3,3,1,d,1")
    code, _, err = dd("ingest", "--undo", "1")
    assert (
        code == 1 and "it has rows at day=1,revision=0, and only times at or beyond {day=0,revision=1; day=2," in err[0]
    )
    assert dd("ingest", "--undo", "2")[2][0].startswith("undone: ingest=2 input=words times: day=0..3,revision=1..3 ")
    assert dd("run", "-q")[0] == 0
    assert records(dd("status", "--json")[1])[0]["folded"] == [{"day": 1, "revision": 2}]


def test_a_coordinate_far_beyond_all_others(take: Any) -> None:
    code, _, err = take("1,0,1,a,1", "20240101,0,1,a,1")
    assert code == 1 and "day 20240101 is far beyond the day before it, 1" in err[0] and "--allow-gap" in err[1]


def test_log_lists_times(words: Path, dd: Any, take: Any) -> None:
    take("1,0,1,a,1", "3,1,1,b,1")
    assert dd("run", "-q")[0] == 0
    lines = dd("log")[1]
    assert "times" in lines[0] and all("day=1..3,revision=0..1" in line for line in lines[1:])
    run, ingest = records(dd("log", "--json")[1])
    assert (run["first"], run["last"]) == ({"day": 1, "revision": 0}, {"day": 3, "revision": 1})
    assert run["upper"] == [{"day": 0, "revision": 2}, {"day": 4, "revision": 0}]
    assert (ingest["first"], ingest["last"]) == ({"day": 1, "revision": 0}, {"day": 3, "revision": 1})
    assert [record["time"] for record in records(dd("log", "--versions", "--json")[1])] == [
        {"day": 3, "revision": 1}, {"day": 1, "revision": 0},
    ]  # fmt: skip
    assert [record["time"] for record in records(dd("diff", "keys", "..", "--stat", "--json")[1])[2:]] == [
        {"day": 1, "revision": 0}, {"day": 3, "revision": 1},
    ]  # fmt: skip


# --- crashes, and one dimension ---------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["after-intent", "after-file:3", "after-table", "after-table:4"])
def test_a_killed_run_is_finished_over_the_same_window(point: str, words: Path, dd: Any, take: Any) -> None:
    take("1,0,1,k,1", "0,1,1,k,2", "1,1,-1,k,1")
    assert dd("run", "--to", "day=1,revision=0", "-q")[0] == 0
    command = [
        sys.executable,
        "-c",
        "from ddcore.cli.main import main; main()",
        "run",
        "--to",
        "day=0,revision=1",
        "-q",
    ]
    killed = subprocess.run(command, env={**os.environ, "DDCORE_FAILPOINT": point}, check=False)
    assert killed.returncode == -9
    unfinished = records(dd("status", "--json")[1])[0]["unfinished"]
    assert unfinished == {"run": 2, "first": {"day": 0, "revision": 0}, "last": {"day": 0, "revision": 1}}
    assert "run 2, times to day=0,revision=1; the next run resumes it" in "\n".join(dd("status")[1])
    assert dd("run", "-q")[0] == 0
    assert [record["run"] for record in records(dd("log", "--json")[1]) if record["kind"] == "run"] == [3, 2, 1]
    assert log_of_output(words, "counts") == log("(k,1):+1@(1,0) (k,1):+1@(0,1) (k,1):-1@(1,1)")


def test_records_of_one_dimension_have_plain_numbers(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest(desk.source("a.csv", (1, 2, 4, 1)))
    desk.fold(4)
    rows = list(desk.ledger.entries.onwards())
    for row in rows:
        body, summary = json.loads(row.body), json.loads(row.summary)
        assert not {"dims", "lower", "upper"} & {*body, *summary}
        assert isinstance(body["first"], int) and isinstance(body["last"], int)
    assert json.loads(rows[0].body)["counts"] == {"4": [1, 0]}
    assert (json.loads(rows[-1].summary)["folded"], json.loads(rows[0].summary)["inputs"]["edges"]["last"]) == (4, 4)


def test_one_dimension_takes_the_new_spelling(copied: Path, dd: Any) -> None:
    assert dd("show", "journeys", "--at", "version=3")[1] == dd("show", "journeys", "--at", "3")[1]
    assert dd("diff", "journeys", "version=3..version=4")[1] == dd("diff", "journeys", "3", "4")[1]
    (copied / "more.csv").write_text("diff,src,dst,minutes\n1,Zoo,Cove,4\n")
    assert dd("ingest", "links", "more.csv", "--version", "version=7", "-q")[0] == 0
    code, _, err = dd("run", "--to", "version=8")
    assert (code, err[0]) == (2, "error: --to: version 8 was not ingested: the last one is 7")
    assert dd("run", "--to", "version=7")[2][0].startswith("version=7 in=+1/-0 out=+1/-0 ")


# --- the page and the example -----------------------------------------------------------------------------------------


def test_the_page_shows_what_the_commands_print(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("times.md", tmp_path, dd, monkeypatch, steps=15)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_first_commands_of_every_example_work(
    name: str, tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dd("init", str(tmp_path / "it"), "--example", name, "-q")[0] == 0
    monkeypatch.chdir(tmp_path / "it")
    for command in SAMPLES[name].commands:
        assert dd(*command.split()[1:])[0] == 0, command
    shown = re.findall(r"^    ddcore ([^#\n]+)", SAMPLES[name].files["README.md"], flags=re.MULTILINE)
    for command in shown:
        assert dd(*command.split())[0] == 0, command


def test_an_example_that_does_not_exist(dd: Any) -> None:
    code, _, err = dd("init", "nowhere", "--example", "bitemporl")
    assert (code, err[0]) == (2, "error: --example: there is no 'bitemporl'; there are: trams, bitemporal")
    assert err[1].strip() == "did you mean 'bitemporal'?"
