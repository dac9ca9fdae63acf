"""Delta joins by several workers, each stage by the owners of its keys: the same log and the same state as of one.

Runs of one project are by different numbers of workers, so each reads what others have stored.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import sparkless
from programs import HEADER, Case
from random_relations import case_of, random_relations
from seeds import nightly
from test_exchange import expected_of
from test_heavy_keys import check_through_workers, unevenness
from test_random_programs import compare
from warehouses import logs_of, project_of

import ddcore as dd
from ddcore import algorithms
from ddcore.base.tuning import Tuning
from ddcore.io.project.times import time_of
from ddcore.jobs import replay
from ddcore.jobs.engines.worker_count import WORKER_ROWS
from ddcore.operators.delta_join import DeltaJoin
from ddcore.planning.planner import build
from ddcore.planning.staging import staged

AB = "select('a', 'b')"
PROGRAMS = {
    "triangles": "out = triangles(r)",
    "three": "out = dd.delta_join((r, ['x', 'y', 'u']), (s, ['y', 'z', 'v']), (t, ['x', 'z', 'w']))",
    "path": "out = dd.delta_join((r, ['x', 'y', 'u']), (s, ['y', 'z', 'v']), (t, ['z', 'q', 'w']))",
    "two": "out = dd.delta_join((r, ['x', 'y', 'u']), (s, ['y', 'z', 'u']))",
    "texts": "out = dd.delta_join((r, ['x', 'y', 'u']), (s, ['z', 'y', 'u']), (t, ['z', 'x', 'u']))",
    "square": f"out = dd.delta_join(*((r.{AB}, [*names]) for names in ('xy', 'yz', 'zq', 'qx')))",
    "clique": f"out = dd.delta_join(*((r.{AB}, [*names]) for names in ('xy', 'xz', 'xq', 'yz', 'yq', 'zq')))",
    "wide": f"out = dd.delta_join((r.{AB}, ['x', 'y']), (s.{AB}, ['y', 'z']), (r, ['x', 'z', 's']))",
    "counted": "out = triangles(r).group_by('a').agg(n=dd.count())",
    "twice": "out = triangles(r).join(triangles(s), on='a')",
    "truss": "out = upward(r).iterate(trim)",
    "nested": "out = upward(r).iterate(lambda kept: kept.iterate(trim).concat(upward(s)).distinct().where('a < 3'))",
    "outer": "out = upward(r).iterate(lambda kept: reached(kept, upward(s), upward(t)))",
}
PARTS = """
def upward(rows):
    return rows.where('a < b').select('a', 'b').distinct()


def triangles(rows):
    return algorithms.triangles(rows, src='a', dst='b')


def trim(kept):
    abc = triangles(kept)
    sides = abc.select('a', 'b').concat(abc.select(a='b', b='c'), abc.select(a='a', b='c'))
    return sides.distinct()


def reached(kept, some, others):
    found = dd.delta_join((kept, ['x', 'y']), (some, ['y', 'z']), (others, ['x', 'z'])).select(a='y', b='z')
    return found.concat(kept).distinct()
"""


def drawn(seed: int, name: str, dims: int = 1) -> Case:
    """A program over random histories, with several equal rows and nulls."""
    dice = random.Random(f"{name}, {seed}")
    frames = random_relations(dice, dict.fromkeys("rst", "abs"), dims=dims, rows=range(4, 16), values=5, nulls=0.05)
    body = f"\n\ndef program(r, s, t):\n    {PROGRAMS[name]}\n    return {{'out': out}}\n"
    return case_of(seed, f"{HEADER}from ddcore import algorithms\n{PARTS}{body}", frames)


QUICK = ["triangles", "three"]
LATER = (52, "truss")  # a prefix meets what is stored of an earlier version in a later round
CASES = [LATER, *((0, name) for name in QUICK)] + [
    (seed, name) for seed in range(8) for name in PROGRAMS if seed or name not in QUICK
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("seed", "name"), nightly(CASES, 1 + len(QUICK)))
def test_delta_joins_through_any_number_of_workers(
    seed: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, case = random.Random(seed), drawn(seed, name)
    tuning = replace(
        sparkless.tuning_of(seed), message_rows=1 + seed % 3, divided_rows=1 + seed % 4, rule_rows=1 + seed % 7,
        few_rows=[0, 1 << 10][seed % 2],
    )  # fmt: skip
    project = project_of(tmp_path / "p", case, tuning=tuning)
    if seed % 4 == 3:
        project = replace(project, memory=1 << 20)
    check_through_workers(case, project, dice, seed, monkeypatch)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("seed", "name"), nightly([(seed, name) for seed in range(4) for name in PROGRAMS], 1))
def test_a_changed_program_is_rebuilt_by_several(
    seed: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From arrangements that others have stored, some or all, or from the inputs."""
    dice, case = random.Random(seed), drawn(seed, name)
    before = dice.choice([name, dice.choice([*PROGRAMS])])  # some arrangements of it are those of the other
    first = replace(case, source=case.source.replace(PROGRAMS[name], PROGRAMS[before]))
    later = case_of(seed, case.source.replace("{'out': out}", "{'new': out.concat(out)}"), case.frames)
    project = project_of(tmp_path / "p", first, tuning=replace(sparkless.tuning_of(seed), message_rows=1 + seed % 3))
    check_through_workers(first, project, dice, seed, monkeypatch, later=later)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("seed", "name"), nightly([(seed, name) for seed in range(3) for name in PROGRAMS], 1))
def test_joins_of_times_that_are_complete_later(
    seed: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two dimensions the join of two complete times may not be complete: what it gives is held back and stored."""
    case = drawn(seed, name, dims=2)
    project = project_of(tmp_path / "p", case, tuning=replace(sparkless.tuning_of(seed), message_rows=2))
    sparkless.install(monkeypatch, seed=seed)
    for last, workers in (((0, 1), 3), ((1, 0), 2), ((1, 1), 1 + 2 * (seed % 2))):
        replay.run(project, last=time_of(last), engine="spark", parallelism=workers)
    plan = build(case.program, project.inputs, project.dims)
    compare(case, f"seed {seed}", expected_of(case), logs_of(project, plan.outputs))


def test_fewer_workers_than_were_given_have_the_same_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen are given, and three own some: a plan whose stages were divided in stages again gave other logs."""
    rng = np.random.default_rng(5)
    edges = pl.DataFrame({"a": rng.integers(0, 30, 300), "b": rng.integers(0, 30, 300)}).unique(maintain_order=True)
    edges = edges.with_columns(version=pl.lit(0), diff=pl.lit(1)).cast(pl.Int64)
    case = Case(0, f"from {__name__} import triangles as program\n", triangles, {"r": edges})
    stage = sparkless.install(monkeypatch)
    monkeypatch.setenv(WORKER_ROWS, "1")
    project = project_of(tmp_path / "p", case, tuning=Tuning(owner_rows=1 + len(edges) // 3))
    replay.run(project, engine="spark", parallelism=16)
    assert len(stage.reports) == 3
    compare(
        case,
        "by three of sixteen",
        expected_of(case),
        logs_of(project, build(triangles, project.inputs, project.dims).outputs),
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_stage_is_the_work_of_one(name: str) -> None:
    """Nor does a stage do away with what is stored: these arrangements are the same, with the same numbers."""
    rows = {"a": "int64", "b": "int64", "s": "string"}
    plan = build(drawn(0, name).program, dict.fromkeys("rst", rows), ("version",))
    stages = staged(plan)
    operators = [stages.operator(block) for block in stages.blocks]
    assert all(operator.staged for operator in operators if isinstance(operator, DeltaJoin))
    assert len(stages.stages) >= 2
    own = stages.arrangements[: len(plan.arrangements)]
    assert [arrangement.fingerprint for arrangement in own] == [a.fingerprint for a in plan.arrangements]
    assert all(arrangement.passing for arrangement in stages.arrangements[len(own) :])
    positions = [block.position((0,) * block.depth) for block in stages.blocks]
    assert len({*positions}) == len(positions)
    order = sorted(plan.blocks, key=lambda block: block.position((0,) * block.depth))
    kept = sorted(stages.blocks[: len(plan.blocks)], key=lambda block: block.position((0,) * block.depth))
    assert [block.index for block in kept] == [block.index for block in order]


def test_the_work_for_triangles_is_even(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a graph with hubs, whose degrees d are as frequent as 1/d**2."""
    rng = np.random.default_rng(6)
    ends = np.repeat(np.arange(2_000), np.minimum(1 / rng.random(2_000), 400).astype(np.int64))
    edges = pl.DataFrame({"a": rng.permutation(ends), "b": rng.permutation(ends)}).unique(maintain_order=True)
    edges = edges.with_columns(version=pl.lit(0), diff=pl.lit(1)).cast(pl.Int64)
    case = Case(0, f"from {__name__} import triangles as program\n", triangles, {"r": edges})
    stage, project = sparkless.install(monkeypatch), project_of(tmp_path / "p", case)
    replay.run(project, engine="spark", parallelism=5)
    assert unevenness(stage.reports) < 1.25
    first = stage.reports
    (project.root / "program.py").write_text(f"from {__name__} import pairs as program\n")
    replay.run(project, engine="spark", parallelism=5)  # from what is stored
    assert stage.reports is not first and unevenness(stage.reports) < 1.25


def triangles(r: dd.Collection) -> dict[str, dd.Collection]:
    return {"out": algorithms.triangles(r, src="a", dst="b")}


def pairs(r: dd.Collection) -> dict[str, dd.Collection]:
    return {"new": algorithms.triangles(r, src="a", dst="b").select("a", "b")}
