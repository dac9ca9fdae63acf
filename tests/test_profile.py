"""The profile of a run: counts per operator that add up; warnings; what ``log --operators`` shows."""

from __future__ import annotations

import json
import random
import re
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pages
import polars as pl
import pytest
import sparkless
from notation import frame
from programs import Case, case
from test_exchange import one_dimensional, outcome
from warehouses import project_of, take_in

from ddcore.base.errors import FoldError
from ddcore.base.schema import Type
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.cli.main import run_command
from ddcore.engine.profile import OUTSIDE, Cost, Heat, Profile
from ddcore.engine.queues import sorted_by_key
from ddcore.engine.worker import Worker
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.profiles import OperatorRecord, ProfileRecord
from ddcore.io.ledger.records import from_json, to_json
from ddcore.io.project.project import Project
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.running import profiles
from ddcore.operators.arrangement import Arrangement
from ddcore.planning.planner import build
from ddcore.traces.batch import Batch
from ddcore.traces.frames import batch_of
from ddcore.traces.packed_batch import PackedBatch

INT64 = Type("int64")
SALES = """
import polars as pl
import ddcore as dd

def program(sales, shops):
    priced = sales.where(pl.col("price") > 0)
    named = priced.join(shops, on="shop")
    totals = named.group_by("town").agg(total=dd.sum("price"))
    return {"totals": totals}
"""
SALES_ROWS = frame("shop price", "(1,5),(1,7),(2,9),(3,0):+1@0 (1,5):-1@1 (2,4):+1@1")
SHOP_ROWS = frame("shop town", "(1,10),(2,10),(3,20):+1@0")
REACH = """
def program(edges):
    def longer(paths):
        return paths.join(edges, on={"b": "a"}).select("a", b="b_right").concat(edges).distinct()

    return {"paths": edges.iterate(longer)}
"""


def drawn(source: str, **frames: pl.DataFrame) -> Case:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return Case(0, source, scope["program"], frames)


def profile_of(project: Project) -> ProfileRecord:
    run = Ledger.load(Warehouse(project.warehouse)).current_run()
    assert run is not None
    return run.profile


def by_title(profile: ProfileRecord) -> dict[str, OperatorRecord]:
    named = {item.title: item for item in profile.operators}
    assert len(named) == len(profile.operators)
    return named


def test_progress_says_which_operator_and_how_much_is_done(tmp_path: Path) -> None:
    """In words: a line of the program, a round of the loop, and a share of what is known to be done."""
    edges = frame("a b", "(1,2),(2,3),(3,4):+1@0 (2,3):-1@1")
    project = project_of(tmp_path / "project", drawn(REACH, edges=edges), tuning=Tuning(report_seconds=0))
    calls: list[tuple[Any, ...]] = []
    replay.run(project, engine="inline", listener=lambda *call: calls.append(call))
    assert ("read", 4, 4, "updates of inputs; now edges") in calls
    steps = [call for call in calls if call[0] == "fold" and call[1]]
    notes = [note for *_, note in steps]
    assert any(
        re.fullmatch(r"updates known so far; now (join|delta_join) \(.*:4\), round [1-9]", note) for note in notes
    ), notes
    assert [done for _, done, *_ in steps] == sorted(done for _, done, *_ in steps)
    assert all(0 < done <= total for _, done, total, _ in steps) and steps[-1][1] <= steps[-1][2]
    assert any("output paths" in note for note in notes) or any("distinct" in note for note in notes)


ENGINES: list[tuple[str, int]] = [("inline", 1), ("inline", 2), ("spark", 2), ("spark", 3)]


@pytest.mark.parametrize(("engine", "parallelism"), ENGINES)
def test_counts_are_exact(engine: str, parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by hand: 6 updates of sales, of which one has no price; 3 shops, and 5 pairs."""
    if engine == "spark":
        sparkless.install(monkeypatch, seed=parallelism)
    project = project_of(tmp_path / "p", drawn(SALES, sales=SALES_ROWS, shops=SHOP_ROWS))
    replay.run(project, engine=engine, parallelism=parallelism)
    ends = by_title(profile_of(project))
    counts = {title: (end.taken, end.sent) for title, end in ends.items()}
    assert counts == {
        "input sales": (0, 6),
        "input shops": (0, 3),
        "where": (6, 5),
        "join on shop": (8, 5),
        "select": (5, 5),
        "agg by town": (5, 3),  # one town: its total, and at version 1 another in its place
        "output totals": (3, 0),
    }
    join, agg, output = ends["join on shop"], ends["agg by town"], ends["output totals"]
    # Of the two totals, the number of rows and the sum, three differences; and of the results three.
    assert join.rows_written == 8 and agg.rows_written == 3 + 3 and output.rows_written == 3
    assert min(join.bytes_written, agg.bytes_written, output.bytes_written, join.memory, agg.memory) > 0
    assert join.source_line == "program.py:7" and agg.source_line == "program.py:8" and join.seconds > 0
    assert [ends[title].reads for title in ("where", "join on shop")] == [(1,), (2, 3)]


@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [1, 2])
def test_spark_counts_as_one_process_does(parallelism: int, tmp_path: Path, spark: Any) -> None:
    counts = []
    for engine, workers in (("inline", 1), ("spark", parallelism)):
        project = project_of(tmp_path / engine, drawn(SALES, sales=SALES_ROWS, shops=SHOP_ROWS))
        replay.run(project, engine=engine, parallelism=workers)
        profile = profile_of(project)
        counts.append(
            ([(item.title, item.taken, item.sent, item.rows_written) for item in profile.operators], profile.heat)
        )
    assert counts[0] == counts[1]


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", range(8))
def test_counts_add_up(number: int, tmp_path: Path) -> None:
    """What linear operators take in is what the operators before them sent; outputs hold what they were sent."""
    seed = next(islice(one_dimensional(count()), number, None))
    tuning = Tuning(large_group=2) if seed % 2 else DEFAULT
    random_case = case(seed, plain=True)
    project = project_of(tmp_path / "p", random_case, tuning=tuning)
    if isinstance(outcome(project, [None], engine="inline"), FoldError):
        return
    profile = profile_of(project)
    numbered = {item.number: item for item in profile.operators}
    for item in profile.operators:
        sent = sum(numbered[number].sent for number in item.reads)
        if item.kind == "linear" and not item.title.startswith("concat"):  # of what it gets twice, reads names one
            assert item.taken == sent, (seed, item)
        if item.kind == "output":
            assert item.rows_written == item.taken <= sent, (seed, item)
        assert item.seconds >= 0 and item.sent >= 0, (seed, item)
    assert {item.title for item in profile.operators}.isdisjoint({"spread", "partial"}), seed


def test_a_second_run_reads_state(tmp_path: Path) -> None:
    project = project_of(tmp_path / "p", drawn(SALES, sales=SALES_ROWS, shops=SHOP_ROWS))
    replay.run(project, engine="inline")
    written = by_title(profile_of(project))["join on shop"].rows_written
    take_in(project, "sales", frame("shop price", "(2,6):+1@2"))
    replay.run(project, engine="inline")
    ends = by_title(profile_of(project))
    assert (ends["join on shop"].taken, ends["join on shop"].sent) == (1, 1)
    assert 0 < ends["join on shop"].rows_read <= written and ends["join on shop"].bytes_read > 0
    assert ends["agg by town"].rows_read > 0 and ends["input shops"].sent == 0


def test_the_tree_of_a_large_group_belongs_to_its_operator(tmp_path: Path) -> None:
    source = 'import ddcore as dd\ndef program(x):\n    return {"y": x.group_by("k").agg(n=dd.max("v"))}\n'
    rows = pl.DataFrame({"k": [1] * 50, "v": range(50), "version": [0] * 50, "diff": [1] * 50})
    project = project_of(tmp_path / "p", drawn(source, x=rows), tuning=Tuning(large_group=4))
    replay.run(project, engine="inline")
    take_in(project, "x", pl.DataFrame({"k": [1] * 3, "v": [60, 61, 62], "version": [1] * 3, "diff": [1] * 3}))
    replay.run(project, engine="inline")
    ends = by_title(profile_of(project))
    assert list(ends) == ["input x", "select", "agg by k", "output y"]
    assert (ends["agg by k"].taken, ends["agg by k"].sent) == (3, 2)
    assert ends["agg by k"].rows_written > 3 + 2  # those of the tree


# --- differences by version and round ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_heat_adds_up_in_few_cells(seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    heats, counted = [Heat(), Heat(), Heat()], list[tuple[int, int]]()
    for _ in range(60):
        current = rng.choice([OUTSIDE, rng.randrange(3), rng.randrange(2000)])
        first = rng.randrange(10 ** rng.randrange(1, 12))
        versions = [first + rng.randrange(1 + rng.choice([0, 5, 5000])) for _ in range(rng.randrange(1, 40))]
        rng.choice(heats).count(current, np.array(versions, dtype=np.int64))
        counted += [(version, current) for version in versions]
    whole = Heat()
    for heat in heats:
        whole.add(heat)
    expected: dict[tuple[int, int], int] = {}
    for version, current in counted:
        location = version >> whole.versions, current if current < 0 else current >> whole.rounds
        expected[location] = expected.get(location, 0) + 1
    assert whole.cells == expected
    assert len({version for version, _ in whole.cells}) <= 64 and len({current for _, current in whole.cells}) <= 33


def test_heat_of_a_run(tmp_path: Path) -> None:
    """A chain of 5 edges: paths of each length appear in a round of their own, and go when the chain breaks."""
    edges = frame("a b", "(0,1),(1,2),(2,3),(3,4):+1@0 (1,2):-1@1")
    project = project_of(tmp_path / "p", drawn(REACH, edges=edges))
    replay.run(project, engine="inline")
    heat = profile_of(project).heat
    assert (heat.versions, heat.rounds) == (1, 1)
    rounds = {version: {r for v, r, _ in heat.cells if v == version} for version in (0, 1)}
    assert rounds[0] >= {-1, 0, 1, 2, 3} and rounds[1] >= {-1, 0, 1, 2}
    outside = {version: number for version, current, number in heat.cells if current < 0}
    assert outside[0] >= 10 + 4 and outside[1] >= 6 + 1  # the output's paths and the loop's source


# --- keys and operators that dominate ---------------------------------------------------------------------------------


def test_a_heavy_key_is_found() -> None:
    scope: dict[str, Any] = {}
    exec(SALES, scope)
    plan = build(
        scope["program"],
        {"sales": {"shop": "int64", "price": "int64"}, "shops": {"shop": "int64", "town": "int64"}},
    )
    worker = Worker(plan)
    worker.begin()
    shops = [7] * 6000 + list(range(100, 4100))
    rows = pl.DataFrame({"shop": shops, "price": range(1, 10_001), "version": [0] * 10_000, "diff": [1] * 10_000})
    worker.feed("sales", batch_of(rows, plan.inputs["sales"], plan.dims, "sales"))
    worker.run()
    (record,) = [
        item for item in profiles.profile_record(plan, worker.meter.take(worker.state.traces)).operators if item.key
    ]
    assert (record.title, record.key, record.key_rows, record.taken) == ("join on shop", "shop=7", 6000, 10_000)


def test_evenly_spread_keys_are_not_heavy() -> None:
    scope: dict[str, Any] = {}
    exec(SALES, scope)
    plan = build(
        scope["program"],
        {"sales": {"shop": "int64", "price": "int64"}, "shops": {"shop": "int64", "town": "int64"}},
    )
    worker = Worker(plan)
    worker.begin()
    rows = pl.DataFrame({"shop": range(10_000), "price": [1] * 10_000, "version": [0] * 10_000, "diff": [1] * 10_000})
    worker.feed("sales", batch_of(rows, plan.inputs["sales"], plan.dims, "sales"))
    worker.run()
    assert not any(cost.keys for cost in worker.meter.take(worker.state.traces).costs.values())


def test_packed_batches_answer_as_wide_ones() -> None:
    rng = np.random.default_rng(7)
    n = 20_000
    columns = [rng.integers(-50, 50, n), rng.integers(0, 9, n), rng.integers(0, 1 << 20, n)]
    arrangement = Arrangement(0, 0, {"k": INT64, "v": INT64}, ("k",), ("version",), "f", 0)
    updates = Batch([columns[0], columns[2]], [columns[1]], np.ones(n, dtype=np.int64))
    packed = sorted_by_key(arrangement, updates)
    assert isinstance(packed, PackedBatch)
    wide = packed.decompress()
    assert np.array_equal(packed.versions(), wide.versions()) and np.array_equal(packed.sample(31), wide.sample(31))
    for code in [*range(-52, 53)]:
        assert packed.span(code) == wide.span(code)
    assert 0 < packed.memory() < wide.memory()


def operator(number: int, **how: Any) -> OperatorRecord:
    return OperatorRecord(number, "keyed", "join on shop", "program.py:7", **how)


@pytest.mark.parametrize(
    ("operators", "said"),
    [
        (
            [operator(1, taken=200_000, key="shop=7", key_rows=100_000)],
            "one key has 50% of the updates of join on shop (prog",
        ),
        ([operator(1, taken=200_001, key="shop=7", key_rows=100_000)], ""),  # less than half
        ([operator(1, taken=100_000, key="shop=7", key_rows=99_999)], ""),  # few
        ([operator(1, seconds=10.0), operator(2, seconds=2.0)], "join on shop (program.py:7) took 10s of 12s"),
        ([operator(1, seconds=10.0), operator(2, seconds=3.0)], ""),  # less than four fifths
        ([operator(1, seconds=9.9)], ""),  # a small run
        ([], ""),
    ],
)
def test_warnings(operators: list[OperatorRecord], said: str) -> None:
    warnings = list(profiles.warnings(ProfileRecord(tuple(operators))))
    assert len(warnings) == bool(said)
    assert said in "".join(warnings)


def test_a_run_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = profiles.DOMINANT_UPDATES
    sales = pl.DataFrame({"shop": [1] * n, "price": range(1, n + 1), "version": [0] * n, "diff": [1] * n})
    project = project_of(tmp_path / "p", drawn(SALES, sales=sales, shops=SHOP_ROWS))
    assert run_command(["run", "--project", str(tmp_path / "p"), "--engine", "inline", "--json"]) == 0
    said = capsys.readouterr()
    assert (
        "warning: one key has 99% of the updates of join on shop (program.py:7): shop=1, 100,000 of 100,003" in said.err
    )
    warnings = json.loads(said.out.splitlines()[-1])["warnings"]
    assert len(warnings) == 1  # not of the agg, whose one large group has totals
    assert by_title(profile_of(project))["join on shop"].key == "shop=1"


# --- records and the command ------------------------------------------------------------------------------------------


def test_profiles_of_workers_add_up() -> None:
    one, other = Profile(), Profile()
    one.of(3).add(Cost(1, 2, 3, 4, 5, 6, 7, 8, {"a=1": 5}))
    other.of(3).add(Cost(10, 20, 30, 40, 50, 60, 70, 80, {"a=1": 7, "a=2": 1}))
    other.of("paths").taken = 9
    one.absorb(other)
    assert one.of(3) == Cost(11, 22, 33, 44, 55, 66, 77, 88, {"a=1": 12, "a=2": 1})
    assert one.of("paths").taken == 9
    assert other.of(3).keys == {"a=1": 7, "a=2": 1}


def test_only_the_heaviest_keys_are_kept() -> None:
    cost = Cost()
    for number in range(100):
        cost.note(f"a={number}", number)
    assert len(cost.keys) == 8 and min(cost.keys.values()) == 92


def test_records_keep_profiles(tmp_path: Path) -> None:
    project = project_of(tmp_path / "p", drawn(SALES, sales=SALES_ROWS, shops=SHOP_ROWS))
    replay.run(project, engine="inline")
    run = Ledger.load(Warehouse(project.warehouse)).current_run()
    assert run is not None and len(run.profile.operators) == 7
    body = json.loads(json.dumps(to_json(run)))
    assert from_json("run", json.loads(json.dumps(body))) == run


def test_log_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = project_of(tmp_path / "p", drawn(REACH, edges=frame("a b", "(0,1),(1,2):+1@0")))
    where = ["--project", str(project.root)]
    assert run_command(["log", "--operators", *where]) == 0
    assert "no run yet" in capsys.readouterr().err
    replay.run(project, engine="inline")
    take_in(project, "edges", frame("a b", "(2,3):+1@1"))
    replay.run(project, engine="inline")
    assert run_command(["log", "--operators", *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("run 2  1, ") and not any(line.startswith("run 1") for line in lines)
    assert lines[1].split() == ["operator", "from", "in", "out", "time", "memory", "state", "read", "written"]
    assert any("│ join on b = a" in line and "program.py:4" in line for line in lines)
    assert run_command(["log", "--operators", "--limit", "0", "--json", *where]) == 0
    runs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [run["run"] for run in runs] == [2, 1]
    (join,) = [item for item in runs[1]["operators"] if item["title"] == "join on b = a"]
    assert (
        join["source_line"] == "program.py:4"
        and join["updates_in"] > 0
        and join["loop"] == runs[1]["loops"][0]["number"]
    )
    cells = runs[1]["differences"]["cells"]
    assert {"version", "round", "differences"} == set(cells[0]) and None in {cell["round"] for cell in cells}
    assert run_command(["log", "--operators", "--versions", *where]) == 2
    assert "--operators" in capsys.readouterr().err


# --- docs/report.md ---------------------------------------------------------------------------------------------------


def test_the_page_shows_what_the_command_prints(here: Path, dd: Any) -> None:
    """All but seconds, bytes and the columns' widths."""

    def stable(lines: list[str]) -> list[str]:
        masked = (re.sub(r"<?[\d.,]+ ?(ms|s|B|kB)\b", "0", line) for line in lines)
        return [re.sub(r"(program) [0-9a-f]{8}", r"\1 0", " ".join(line.split())) for line in masked]

    (block,) = pages.blocks_of("report.md")
    command, *expected = block.splitlines()
    code, out, _ = dd(*command.removeprefix("$ ddcore ").split())
    assert code == 0
    assert stable(out) == stable(expected)
    text = (pages.DOCS / "report.md").read_text("utf-8")
    assert f"at least {profiles.DOMINANT_UPDATES:,} of them" in text
    assert (
        f"at least {100 * profiles.DOMINANT_SHARE:.0f} %" in text and f"{profiles.DOMINANT_SECONDS:.0f} seconds" in text
    )
