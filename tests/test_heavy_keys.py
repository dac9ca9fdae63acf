"""Heavy keys of joins, of which several workers have a part: the same log and the same state as of one worker.

Nearly all rows have one of few keys, and a key is divided however few rows it has. Runs of one project are by different
numbers of workers, so each reads what others have stored.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import sparkless
from programs import HEADER, Case
from seeds import nightly
from test_exchange import expected_of
from test_random_programs import compare
from warehouses import log_of, logs_of, project_of

import ddcore as dd
from ddcore import algorithms
from ddcore.base.tuning import DEFAULT
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.jobs import compact, replay
from ddcore.jobs.engines import exchange
from ddcore.jobs.engines.heavy_keys import divisible
from ddcore.jobs.engines.routes import routing_of
from ddcore.planning.planner import build

WORKERS = (1, 2, 3, 5)
PROGRAMS = {
    "inner": 'pairs = left.join(right, on="k")',
    "projected": 'pairs = left.join(right, on="k").select("a", c=col("b") + 1)',
    "left": 'pairs = left.join(right, on="k", how="left")',
    "full": 'pairs = left.join(right, on="k", how="full")',
    "semi": 'pairs = left.join(right, on="k", how="semi")',
    "anti": 'pairs = left.join(right, on="k", how="anti")',
    "text": 'pairs = left.join(right, on="s")',
    "two columns": 'pairs = left.join(right, on=["k", "s"])',
    "both": 'pairs = left.join(right, on="k").concat(left.select("k", "s", "a", s_right="s", b="a"))',
    "star": 'pairs = left.join(right, on="k").concat(left.join(third, on="k"))',
    "chain": 'pairs = left.join(right, on="k").join(third.select("k", c="b"), on="k")',
    "grouped": 'pairs = left.join(right, on="k").group_by("k").agg(n=dd.count(), m=dd.max("a"))',
    "totals": 'pairs = left.join(right.group_by("k").agg(n=dd.count()), on="k").distinct()',
    "narrowed": 'pairs = left.join(left.select("k", c="a"), on="k")',
    "itself": 'pairs = left.join(left, on="k")',
    "labels": 'pairs = left.group_by("k").agg(a=dd.min("a")).iterate(lambda l: labels(l, left, right))',
    "paths": 'pairs = left.select(x="k", y="a").distinct().iterate(lambda p: paths(p, right))',
}
LOOPS = """
def paths(p, edges):
    steps = edges.select(y=col("k"), z=col("b"))
    return p.concat(p.join(steps, on="y").select("x", y="z")).distinct()


def labels(l, rows, edges):
    onward = l.join(edges, on="k").select(k="b", a="a").concat(rows.select("k", "a"))
    return onward.group_by("k").agg(a=dd.min("a"))
"""


def drawn(seed: int, name: str) -> Case:
    """A program over random histories: a row is deleted only while it is there."""
    dice, frames = random.Random(seed), {}
    for number, other in (("left", "a"), ("right", "b"), ("third", "b")):
        present, updates = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for version in range(4):
            for _ in range(dice.randrange(3 if number == "third" else 12)):
                if present and dice.random() < 0.3:
                    row, diff = present.pop(dice.randrange(len(present))), -1
                else:
                    key = 7 if dice.random() < 0.6 else dice.choice([None, 0, 1, 2])
                    row, diff = (key, dice.choice(["x", "x", "y", None]), dice.randrange(4)), 1
                    present.append(row)
                updates.append((*row, version, diff))
        schema = {"k": pl.Int64, "s": pl.String, other: pl.Int64, "version": pl.Int64, "diff": pl.Int64}
        frames[number] = pl.DataFrame(updates, schema, orient="row").group_by(*schema, maintain_order=True).len()
        frames[number] = frames[number].with_columns(diff=pl.col("diff") * pl.col("len")).drop("len")
    source = (
        f"{HEADER}{LOOPS}\n\ndef program(left, right, third):\n    {PROGRAMS[name]}\n    return {{'pairs': pairs}}\n"
    )
    scope: dict[str, Any] = {}
    exec(source, scope)
    return Case(seed, source, scope["program"], frames)


QUICK = ["inner", "left", "text", "star", "totals", "paths", "labels"]
CASES = [(0, name) for name in QUICK] + [
    (seed, name) for seed in range(6) for name in PROGRAMS if seed or name not in QUICK
]


def check_through_workers(
    case: Case, project: Project, dice: random.Random, seed: int, monkeypatch: pytest.MonkeyPatch,
    *, unrest: float = 0.0, later: Case | None = None,
) -> None:  # fmt: skip
    """The law where each of four runs has another number of workers, and updates of one row and time are one.

    ``unrest``: how often one of them is killed; ``later``: what the program is from the third run on.
    """
    sparkless.install(monkeypatch, seed=seed, unrest=unrest)
    numbers = [dice.choice(WORKERS) for _ in range(4)]
    print(f"seed {seed}, workers {numbers}")
    for version, workers in enumerate(numbers):
        if later is not None and version == 2:
            case = later
            (project.root / "program.py").write_text(later.source)
        replay.run(project, last=time_of(version), engine="spark", parallelism=workers)
        if dice.random() < 0.2:
            compact.compact(project)
    plan = build(case.program, project.inputs, project.dims)
    compare(case, f"by {numbers}", expected_of(case), logs_of(project, plan.outputs))
    for output, schema in plan.outputs.items():
        log = log_of(project, output, schema)
        assert not log.select(*schema, "version").is_duplicated().any(), "updates of one row and time are one"


@pytest.mark.sample(2)
@pytest.mark.parametrize(("seed", "name"), nightly(CASES, len(QUICK)))
def test_heavy_keys_through_any_number_of_workers(
    seed: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, case = random.Random(seed), drawn(seed, name)
    tuning = replace(sparkless.tuning_of(seed), heavy_load=0, message_rows=1 + seed % 3, divided_rows=1 + seed % 4)
    project = project_of(tmp_path / "p", case, tuning=tuning)
    check_through_workers(case, project, dice, seed, monkeypatch)


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_joins_are_divided(name: str) -> None:
    """All whose arrangements no other operator reads; a join of a collection with itself cannot be."""
    schemas = {
        "left": {"k": "int64", "s": "string", "a": "int64"},
        "right": {"k": "int64", "s": "string", "b": "int64"},
    }
    plan = build(drawn(0, name).program, {**schemas, "third": schemas["right"]}, ("version",))
    found = [len(joins.pairs) for joins in divisible(routing_of(plan))]
    expected = {"itself": [], "left": [2], "full": [], "star": [2], "chain": [1, 1]}
    assert found == expected.get(name, [1])


@pytest.mark.parametrize(
    ("name", "repeated"), [("paths", False), ("labels", True), ("inner", False), ("grouped", False)]
)
def test_in_a_loop_more_is_asked_of_a_key_if_each_round_would_have_one_exchange_more(name: str, repeated: bool) -> None:
    """The least of a group goes on to the join of the next round by the same key; the end of a path, by another."""
    schemas = {
        "left": {"k": "int64", "s": "string", "a": "int64"},
        "right": {"k": "int64", "s": "string", "b": "int64"},
    }
    plan = build(drawn(0, name).program, {**schemas, "third": schemas["right"]}, ("version",))
    (joins,) = divisible(routing_of(plan))
    assert joins.repeated is repeated
    shares = {workers: joins.least(workers) for workers in (2, 3, 16)}
    assert shares == ({2: 1, 3: 1.5, 16: 2} if repeated else dict.fromkeys(shares, 0.5))


@pytest.mark.parametrize(("part", "divided"), [(0.1, False), (0.5, True)])
def test_a_hub_is_divided_where_it_has_the_load_of_two_workers(
    part: float, divided: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The labels that a loop goes on with are one for each node, however many edges it has."""
    rng, few = np.random.default_rng(5), int(4_000 * part)
    ends = pl.DataFrame({"src": np.where(np.arange(4_000) < few, 7, rng.integers(0, 4_000, 4_000))})
    edges = ends.with_columns(dst=pl.Series(rng.permutation(4_000)), version=pl.lit(0), diff=pl.lit(1)).unique()
    case = Case(0, f"from {__name__} import spread as program", spread, {"edges": edges.cast(pl.Int64)})
    sparkless.install(monkeypatch)
    found: list[Any] = []
    monkeypatch.setattr(
        exchange, "fold_with", lambda spark, fold, workers: found.append(exchange.shared(fold, workers))
    )
    project = replace(project_of(tmp_path / "p", case), tuning=replace(DEFAULT, heavy_load=0))
    with pytest.raises(TypeError):  # there is no result
        replay.run(project, engine="spark", parallelism=16)
    codes = {code for shares in found[0].division.shares.values() for code in shares.codes}
    assert codes == ({7} if divided else set())


def spread(edges: dd.Collection) -> dict[str, dd.Collection]:
    return {"components": algorithms.components(edges)}


def unevenness(reports: list[Any]) -> float:
    """The greatest load of a worker over the mean: updates that it handled, and results of its operators."""
    loads = [report.handled + sum(cost.sent for cost in report.gained.profile.costs.values()) for report in reports]
    return float(max(loads) * len(loads) / sum(loads))


EVEN = [
    ('left.join(right, on="k").select("a", "b")', 20_000, 1),
    ('left.join(right, on="k", how="semi")', 20_000, 1),
    ('left.join(right, on="k")', 20_000, 1),
    ('left.join(right, on="s")', 20_000, 1),
    ('left.join(right, on="k")', 500_000, 2),
]


@pytest.mark.parametrize(("program", "rows", "runs"), nightly(EVEN, 1))
def test_the_work_for_a_heavy_key_is_even(
    program: str, rows: int, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first of many new rows of one side, three of ten of one key; then of one of the other side, which meets all of
    them as they are stored: how many these are is known of large files.
    """
    rng = np.random.default_rng(4)
    keys = np.where(rng.random(rows) < 0.3, 77, rng.integers(0, rows, rows))
    left = pl.DataFrame({"k": keys}).select("k", s=pl.format("key {}", "k"), a=pl.int_range(rows), version=0, diff=1)
    ends = np.arange(0, rows, 77)
    right = pl.DataFrame({"k": ends}).select("k", s=pl.format("key {}", "k"), b="k", version=0, diff=1)
    if runs == 1:
        right = pl.concat([right, right.head(1).with_columns(k=pl.lit(77, pl.Int64), s=pl.lit("key 77"))])
    else:
        late = right.filter(pl.col("k") == 77).with_columns(version=1)
        right = pl.concat([right.filter(pl.col("k") != 77), late.cast(right.schema)])
    kinds: dict[Any, Any] = {"version": pl.Int64, "diff": pl.Int64}
    source = f"def program(left, right):\n    return {{'pairs': {program}}}\n"
    scope: dict[str, Any] = {}
    exec(source, scope)
    case = Case(0, source, scope["program"], {"left": left.cast(kinds), "right": right.cast(kinds)})
    stage = sparkless.install(monkeypatch)
    tuning = replace(DEFAULT, heavy_load=1_000)
    project = replace(project_of(tmp_path / "p", case), tuning=tuning)  # workers read more rows than few at once
    for version in range(runs):
        replay.run(project, last=time_of(version), engine="spark", parallelism=5)
        assert unevenness(stage.reports) <= 1.25
