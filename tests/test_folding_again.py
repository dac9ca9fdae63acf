"""Folding again: updates come at times that are folded, and the next run goes back to before them.

Random programs and histories. With ``rewrite`` the logs are those of a warehouse that had all updates from the
beginning; with ``append`` what was published stays, and the next version has the difference.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from folding import Logs, grid
from notation import dims_of
from programs import Case, case
from seeds import seeds
from warehouses import logs_of, project_of, take_in

from ddcore import reference
from ddcore.base.errors import DdError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.program import load_plan
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay

SEEDS = seeds(4, share=25)
Frames = dict[str, pl.DataFrame]


def drawn(seed: int, *, dims: int | None = None) -> tuple[Case, Frames, Frames]:
    """A case, those of its updates that come in time, and those that come late."""
    for number in range(200_000 + 100 * seed, 200_100 + 100 * seed):
        rng, one = random.Random(number), case(number, plain=True)
        axes = dims_of(one.frames)
        if dims not in (None, len(axes)) or not any(len(frame) for frame in one.frames.values()):
            continue
        picks = {
            name: pl.Series([rng.random() < 0.3 for _ in range(len(frame))], dtype=pl.Boolean)
            for name, frame in one.frames.items()
        }
        late = {name: frame.filter(picks[name]) for name, frame in one.frames.items()}
        early = {name: frame.filter(~picks[name]) for name, frame in one.frames.items()}
        if not (any(map(len, late.values())) and any(map(len, early.values()))):
            continue
        if any(counts_below_zero(frame, axes) for frame in (*early.values(), *one.frames.values())):
            continue  # ingest refuses such a history
        try:
            reference.replay(one.program, axes, **early)
            reference.replay(one.program, axes, **one.frames)
        except DdError:
            continue
        return one, early, late
    raise AssertionError(f"no usable case for seed {seed}")


def counts_below_zero(frame: pl.DataFrame, dims: Sequence[str]) -> bool:
    """Whether a row of an input has a negative count at some time."""
    log = reference.log_of(frame, dims)
    rows, times = {row for row, _ in log}, grid({"input": frame})
    return any(
        sum(diff for (one, at), diff in log.items() if one == row and reference.precedes(at, time)) < 0
        for row in rows
        for time in times
    )


def begun(folder: Path, one: Case, early: Frames, rng: random.Random) -> Project:
    """A project with the early updates, folded in several runs."""
    project = project_of(folder, one, ingested=False)
    for name, frame in early.items():
        if len(frame):
            take_in(project, name, frame)
    dims = dims_of(one.frames)
    times = sorted({time for frame in early.values() for time in frame.select(dims).iter_rows()})
    for time in sorted(rng.sample(times, min(2, len(times)))):
        replay.run(project, last=time_of(time), engine="inline")
    replay.run(project, engine="inline")
    return project


def actual(project: Project) -> Logs:
    return logs_of(project, load_plan(project).outputs)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_late_updates_change_history(seed: int, tmp_path: Path) -> None:
    one, early, late = drawn(seed)
    dims = dims_of(one.frames)
    print(one)
    project = begun(tmp_path / "project", one, early, random.Random(seed))
    assert actual(project) == reference.replay(one.program, dims, **early)
    for name, frame in late.items():
        if len(frame):
            take_in(project, name, frame)
    replay.run(project, engine="inline")
    assert Ledger.load(Warehouse(project.warehouse)).restated() == ()
    assert actual(project) == reference.replay(one.program, dims, **one.frames)
    assert replay.run(project, engine="inline").nothing_new


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_late_updates_are_published_at_the_next_version(seed: int, tmp_path: Path) -> None:
    one, early, late = drawn(seed, dims=1)
    print(one)
    project = begun(tmp_path / "project", one, early, random.Random(seed))
    before = actual(project)
    folded = Ledger.load(Warehouse(project.warehouse)).last_folded()
    assert folded is not None
    closed = folded.version
    for name, frame in late.items():
        if len(frame):
            take_in(project, name, frame)
    if replay.run(project, corrections="append", engine="inline").corrections:
        replay.run(project, last=time_of(closed + 1), engine="inline")
    after, expected = actual(project), reference.replay(one.program, ("version",), **one.frames)
    for name, log in after.items():
        published = {update: diff for update, diff in log.items() if update[1][0] <= closed}
        assert published == before[name], "nothing is taken back"
        assert advanced(log, closed + 1) == advanced(expected[name], closed + 1)


def advanced(log: Mapping[tuple[Any, tuple[int, ...]], int], since: int) -> dict[tuple[Any, int], int]:
    """A log's updates with the versions before ``since`` as one."""
    total: dict[tuple[Any, int], int] = {}
    for (row, (version, *_)), diff in log.items():
        location = row, max(version, since)
        total[location] = total.get(location, 0) + diff
    return {location: diff for location, diff in total.items() if diff}
