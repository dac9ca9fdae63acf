"""``join_between`` without keys by several workers, each with the intervals that may hold values of its own: the same
log and the same state as of one.

Runs of one project are by different numbers of workers, so each reads what others have stored.
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
from random_relations import case_of, random_relations
from seeds import nightly
from test_exchange import expected_of
from test_heavy_keys import check_through_workers, unevenness
from test_random_programs import compare
from warehouses import logs_of, project_of

from ddcore.base.tuning import Tuning
from ddcore.io.project.times import time_of
from ddcore.jobs import replay
from ddcore.jobs.engines.heavy_keys import divisible
from ddcore.jobs.engines.routes import routing_of
from ddcore.operators.ends import Ends
from ddcore.planning.planner import build

PROGRAMS = {
    "bands": "out = rows.join_between(ends, 'n', 'a', 'b')",
    "above": "out = rows.join_between(ends.select('a', 's'), 'n', lower='a', closed='none')",
    "below": "out = rows.join_between(ends.select('s', 'b'), 'n', upper='b', closed='left')",
    "open": "out = rows.join_between(ends, 'n', 'a', 'b', open_nulls=True)",
    "moving": "out = rows.join_between(rows.group_by().agg(a=dd.max('n')).select(a='a - 2'), 'n', lower='a')",
    "least": "out = rows.join_between(ends.group_by().agg(a=dd.min('a')), 'n', lower='a')",
    "counted": "out = rows.join_between(ends, 'n', 'a', 'b').group_by('n').agg(c=dd.count())",
    "joined": "out = rows.join_between(ends, 'n', 'a', 'b').select('n', w='s_right').join(rows, on='n')",
    "two columns": "out = rows.join_between(ends, 'n', 'a', 'b').concat(rows.join_between(ends, 'm', 'a', 'b'))",
    "two ends": "out = rows.join_between(ends, 'n', 'a').concat(rows.join_between(ends, 'n', 'a', closed='none'))",
    "itself": "out = rows.join_between(rows.select(a='n', b='m'), 'n', 'a', 'b')",
    "read": "out = rows.join_between(ends, 'n', 'a', 'b').select('n', 'm').concat(first(ends))",
    "dates": "out = dated(rows, 'n').join_between(dated(dated(ends, 'a'), 'b'), 'n', 'a', 'b')",
    "asof": "out = rows.join_asof(ends.select('a', w='s'), 'n', 'a', how='left')",
    "sessions": "out = rows.sessions('n', 1)",
    "loop": "out = rows.select('n').distinct().iterate(lambda w: held(w, ends))",
    "intervals of a loop": "out = ends.select('a', 'b').distinct().iterate(lambda w: grown(w, rows))",
}
PARTS = """

def first(ends):
    return ends.group_by().top_k(2, ['a', 'b', 's']).select(n='a', m='b')


def dated(rows, name):
    day = pl.col(name).cast(pl.Int32).cast(pl.Date)
    return rows.select(*(day.alias(name) if column == name else column for column in rows.columns))


def held(w, ends):
    onward = w.join_between(ends.select('a', 'b', to='b'), 'n', 'a', 'b').select(n=(col('to') + 1) % 12)
    return onward.concat(w).distinct()


def grown(w, rows):
    met = rows.join_between(w.select('a', 'b', c='a'), 'n', 'a', 'b')
    return met.select(a='c', b='m').where('b > a').concat(w).distinct()
"""


def drawn(seed: int, name: str, dims: int = 1) -> Case:
    """A program over random histories, with nulls, equal rows and intervals that hold nothing."""
    columns, dice = {"rows": "nms", "ends": "abs"}, random.Random(f"{name}, {seed}")
    frames = random_relations(dice, columns, dims=dims, rows=range(2, 12), values=12, nulls=0.1)
    return case_over(seed, PROGRAMS[name], frames)


def case_over(seed: int, text: str, frames: dict[str, pl.DataFrame], output: str = "out") -> Case:
    body = f"\n\ndef program(rows, ends):\n    {text}\n    return {{{output!r}: out}}\n"
    return case_of(seed, f"{HEADER}{PARTS}{body}", frames)


CASES = [(seed, name) for seed in range(8) for name in PROGRAMS]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("seed", "name"), nightly(CASES, len(PROGRAMS)))
def test_intervals_through_any_number_of_workers(
    seed: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of which are killed. From the third run on some programs are others, which are rebuilt."""
    dice, case = random.Random(seed), drawn(seed, name)
    tuning = replace(
        sparkless.tuning_of(seed), message_rows=1 + seed % 3, divided_rows=1 + seed % 4, near_ratio=seed % 2,
    )  # fmt: skip
    project = project_of(tmp_path / "p", case, tuning=tuning)
    if seed % 4 == 3:
        project = replace(project, memory=1 << 20)
    other = PROGRAMS[dice.choice([name, dice.choice([*PROGRAMS])])]
    later = case_over(seed, f"{other}\n    out = out.concat(out)", case.frames, "new") if seed % 2 else None
    check_through_workers(case, project, dice, seed, monkeypatch, unrest=(seed % 3) / 4, later=later)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("seed", "name"), nightly(CASES[: 4 * len(PROGRAMS)], len(PROGRAMS)))
def test_times_that_are_complete_later(seed: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two dimensions the join of two complete times may not be complete: what it gives is held back and stored."""
    case = drawn(seed, name, dims=2)
    project = project_of(tmp_path / "p", case, tuning=replace(sparkless.tuning_of(seed), message_rows=2))
    sparkless.install(monkeypatch, seed=seed)
    for last, workers in (((0, 1), 3), ((1, 0), 2), ((1, 1), 1 + 2 * (seed % 2))):
        replay.run(project, last=time_of(last), engine="spark", parallelism=workers)
    plan = build(case.program, project.inputs, project.dims)
    compare(case, f"seed {seed}", expected_of(case), logs_of(project, plan.outputs))


@pytest.mark.parametrize("limited", [False, True])
def test_copies_count_where_updates_are_divided(limited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these intervals goes to all workers, and where memory is limited rows of a heavy key, too. That no more
    is divided at once than may be, with all copies, is checked by :func:`sparkless.watch`.
    """
    numbers = np.arange(200) % 12
    zeros = {"version": numbers * 0, "diff": numbers * 0 + 1}
    rows = pl.DataFrame({"n": numbers, "m": numbers * 0, "s": ["x"] * 200} | zeros)
    ends = pl.DataFrame({"a": numbers * 0, "b": numbers * 0 + 11, "s": [f"{row}" for row in range(200)]} | zeros)
    text = "out = rows.join_between(ends, 'n', 'a', 'b').group_by('n').agg(c=dd.count())"
    if limited:
        text = "out = rows.join(ends, on={'m': 'a'}).group_by('n').agg(c=dd.count())"
    case = case_over(0, text, {"rows": rows, "ends": ends})
    tuning = Tuning(divided_rows=8, message_rows=4, heavy_load=0)
    project = project_of(tmp_path / "p", case, tuning=tuning)
    stage = sparkless.install(monkeypatch, seed=0)
    replay.run(replace(project, memory=1 << 20) if limited else project, engine="spark", parallelism=3)
    assert len(stage.reports) == 3
    plan = build(case.program, project.inputs, project.dims)
    compare(case, "by three", expected_of(case), logs_of(project, plan.outputs))


@pytest.mark.parametrize("closed", ["both", "left", "right", "none"])
@pytest.mark.parametrize("open_nulls", [False, True])
def test_an_interval_goes_to_the_owners_of_its_values_alone(closed: Any, open_nulls: bool) -> None:
    rng = np.random.default_rng(3)
    cuts = [-(2**63), -5, -1, 3, 2**63 - 1]
    edges = np.array([-(2**63), -(2**63) + 1, -6, -5, -4, -1, 0, 2, 3, 4, 2**63 - 2, 2**63 - 1])
    words = {"a": rng.choice(edges, 400), "b": rng.choice(edges, 400)}
    ends = Ends("a", "b", closed, open_nulls)
    first, last = ends.owners(words, 400, cuts)
    after, to = ends.bounds(words, 400)
    owners = np.searchsorted(cuts, edges, side="right")
    inside = (edges > after[:, None]) & (edges <= to[:, None])
    assert ((first[:, None] <= owners) & (owners <= last[:, None]))[inside].all(), "every value finds it"
    holding = np.flatnonzero(after < to)
    least, most = (np.searchsorted(cuts, bound[holding], side="right") for bound in (after + 1, to))
    assert (first[holding] == least).all() and (last[holding] == most).all(), "and no other worker has it"
    assert (first <= last).all() and (last < len(cuts) + 1).all()
    assert (first == last)[after >= to].all(), "what holds nothing is stored by one"


EVEN = [
    ("rows.join_between(ends, 'n', 'a', 'b')", 0.3),
    ("rows.join_between(ends, 'n', 'a', 'b')", 0.0),
    ("rows.join_between(ends.group_by().agg(a=dd.min('a')), 'n', lower='a')", 0.3),
    ("rows.join_between(ends.group_by().agg(a=dd.min('a')), 'n', lower='a')", 0.0),
]


@pytest.mark.parametrize(("text", "share"), nightly(EVEN, 1))
def test_the_work_is_even(text: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of values that are dense in some places, a ``share`` of them one value, and half as many intervals."""
    rng = np.random.default_rng(6)
    values = (np.minimum(1 / rng.random(6_000), 1_000) * 100).astype(np.int64)
    rows = pl.DataFrame({"n": np.where(rng.random(6_000) < share, 7_777, values), "m": np.arange(6_000)})
    ends = pl.DataFrame({"a": rng.permutation(values)[:3_000]}).select("a", b=pl.col("a") + 40)
    frames = {name: some.with_columns(version=pl.lit(0), diff=pl.lit(1)).cast(pl.Int64)
              for name, some in (("rows", rows), ("ends", ends.unique(maintain_order=True)))}  # fmt: skip
    case = case_over(0, f"out = {text}", frames)
    stage = sparkless.install(monkeypatch)
    replay.run(project_of(tmp_path / "p", case, tuning=Tuning(heavy_load=1_000)), engine="spark", parallelism=5)
    assert unevenness(stage.reports) < 1.25


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_with_many_rows_are_divided_where_nothing_else_reads_them(name: str) -> None:
    schemas = {"rows": {"n": "int64", "m": "int64", "s": "string"}, "ends": {"a": "int64", "b": "int64", "s": "string"}}
    plan = build(drawn(0, name).program, schemas, ("version",))
    found = sum(not joins.pairs for joins in divisible(routing_of(plan)))
    assert found == {"two columns": 2, "joined": 0}.get(name, 1)
