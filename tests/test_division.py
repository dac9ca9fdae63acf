"""How even the ranges of many workers are: what each owns of the updates of a fold, by the keys of each arrangement.

The reading of inputs and state and the cutting are real; nobody folds by these ranges here. ``python -m bench balance``
measures folds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import sparkless
from programs import Case
from warehouses import project_of

import ddcore as dd
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.project.times import time_of
from ddcore.jobs import replay
from ddcore.jobs.engines import exchange, one_task, sampling
from ddcore.jobs.engines.protocol import SharedFold
from ddcore.jobs.engines.worker_count import WORKER_ROWS

WORKERS = 16
EVEN = 1.25  # greatest load over the mean that is asked


def divided(
    folder: Path,
    program: Any,
    patch: pytest.MonkeyPatch,
    ends: list[int],
    tuning: Tuning = DEFAULT,
    **frames: pl.DataFrame,
) -> list[SharedFold]:
    """How the folds of runs up to these versions would be divided between sixteen workers."""
    found: list[SharedFold] = []

    def fold_with(spark: Any, fold: Any, parallelism: int) -> Any:
        found.append(exchange.shared(fold, parallelism))
        return one_task.fold_with(spark, fold)

    sparkless.install(patch)
    patch.setattr(exchange, "fold_with", fold_with)
    source = f"from {__name__} import {program.__name__} as program"
    project = project_of(folder / "p", Case(0, source, program, frames), tuning=tuning)
    for end in ends:
        replay.run(project, last=time_of(end), engine="spark", parallelism=WORKERS)
    return found


def unevenness(work: SharedFold, keys: pl.Series) -> float:
    """The greatest share of the keys that a worker owns over the mean, where rows are grouped for their greatest."""
    plan = work.fold.plan
    (block,) = [block for block in plan.blocks if block.op == "top_k" and not plan.operator(block).inner]
    owners = np.searchsorted(work.division.boundaries[block.ports[0]], keys.to_numpy(), side="right")
    return float(np.bincount(owners, minlength=WORKERS).max() * WORKERS / len(keys))


def counted(rows: dd.Collection) -> dict[str, dd.Collection]:
    return {"largest": rows.group_by("id").top_k(1, "amount")}


def test_columns_that_are_no_keys_take_no_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Amounts and instants are integers far from the keys, and would get two of three ranges."""
    ids = pl.Series("id", np.random.default_rng(1).permutation(20_000), dtype=pl.Int64)
    rows = pl.DataFrame({"id": ids, "amount": ids % 97, "at": 1_700_000_000_000_000 + ids * 1_000_000})
    (work,) = divided(tmp_path, counted, monkeypatch, [0], rows=rows.with_columns(version=pl.lit(0), diff=pl.lit(1)))
    assert unevenness(work, ids) <= EVEN


@pytest.mark.sample(1)
@pytest.mark.parametrize("sample", [100_000, 6_400])
def test_appends_beyond_all_that_is_stored_are_divided(
    sample: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day is a thirtieth of the history, and all of the work; it is in a file with all days before."""
    days = 30
    rows = pl.DataFrame({"id": pl.int_range(days * 1_000, eager=True)}).with_columns(
        amount=pl.col("id") % 97, at=pl.col("id") * 7, version=pl.col("id") // 1_000, diff=pl.lit(1)
    )
    found = divided(tmp_path, counted, monkeypatch, [days - 2, days - 1], Tuning(sampled_rows=sample), rows=rows)
    for work, first in zip(found, (0, (days - 1) * 1_000), strict=True):
        keys = rows.filter(pl.col("version").is_between(first // 1_000, work.fold.window.upper[0][0] - 1))["id"]
        assert unevenness(work, keys) <= EVEN


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rows", "owners"), [(400, 1), (501, 2), (2_600, 6), (20_000, WORKERS)])
def test_what_few_rows_reach_has_few_owners(
    rows: int, owners: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = pl.Series("id", np.random.default_rng(3).permutation(rows), dtype=pl.Int64)
    frame = pl.DataFrame({"id": ids, "amount": ids % 97, "at": ids, "version": ids * 0, "diff": ids * 0 + 1})
    scanned: list[Any] = []
    read = sampling._Inputs._read

    def read_once(inputs: Any, *columns: Any) -> Any:
        scanned.append(columns)
        return read(inputs, *columns)

    monkeypatch.setattr(sampling._Inputs, "_read", read_once)
    monkeypatch.setenv(WORKER_ROWS, "1")
    (work,) = divided(tmp_path, counted, monkeypatch, [0], Tuning(owner_rows=500), rows=frame)
    assert all(sum(cut < 2**63 - 1 for cut in cuts) == owners - 1 for cuts in work.division.boundaries.values())
    assert unevenness(work, ids) <= EVEN * WORKERS / owners
    assert work.parallelism == owners  # further ones would read and own nothing
    assert scanned == [("rows", ("id",))], "once, for all numbers of workers"
    monkeypatch.setenv(WORKER_ROWS, "0")
    assert exchange.shared(work.fold, WORKERS).parallelism == WORKERS


def neighbours(edges: dd.Collection) -> dict[str, dd.Collection]:
    return {"first": edges.group_by("src").top_k(1, "dst")}


def test_a_power_law_graph_is_divided_by_degree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Degrees d in proportion to 1/d**2: the hub has nearly a worker's share."""
    rng = np.random.default_rng(2)
    degrees = np.minimum(1 / rng.random(8_000), 4_000).astype(np.int64)
    ends = np.repeat(rng.permutation(8_000), degrees)
    edges = pl.DataFrame({"src": rng.permutation(ends), "dst": rng.permutation(ends)}).unique(maintain_order=True)
    (work,) = divided(
        tmp_path, neighbours, monkeypatch, [0], edges=edges.with_columns(version=pl.lit(0), diff=pl.lit(1))
    )
    assert unevenness(work, edges["src"]) <= EVEN


def test_a_file_that_is_sorted_several_times_over_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices at distances that fit into the pieces would meet the same keys in each."""
    src = pl.Series("src", np.tile(np.arange(16_000), 4))
    edges = pl.DataFrame({"src": src, "dst": src + pl.Series(np.repeat([1, -1, 400, -400], 16_000))})
    (work,) = divided(
        tmp_path,
        neighbours,
        monkeypatch,
        [0],
        Tuning(sampled_rows=6_400),
        edges=edges.with_columns(version=pl.lit(0), diff=pl.lit(1)),
    )
    assert unevenness(work, edges["src"]) <= EVEN


def largest(rows: dd.Collection) -> dict[str, dd.Collection]:
    return {"largest": rows.group_by("key").top_k(1, "amount")}


def following(rows: dd.Collection) -> dict[str, dd.Collection]:
    return largest(rows.select(key=pl.col("id") + 1, amount="amount"))


def days(rows: dd.Collection) -> dict[str, dd.Collection]:
    return largest(rows.where(pl.col("amount") != 5).select(key=pl.col("at").dt.date(), amount="amount"))


def hours_of_those_known(rows: dd.Collection) -> dict[str, dd.Collection]:
    """Computed from what was computed, before a join and behind it."""
    hours = rows.select(hour=pl.col("at").dt.truncate("1h"), amount="amount")
    known = hours.join(rows.select("amount").distinct(), on="amount").group_by("hour").agg(amount=dd.max("amount"))
    return largest(known.select(key=pl.col("hour").dt.offset_by("1d"), amount="amount"))


def firsts(rows: dd.Collection) -> dict[str, dd.Collection]:
    """What no row of an input says: other instants are looked at."""
    return largest(rows.group_by("id").agg(key=dd.min("at"), amount=dd.min("amount")))


def quotients(rows: dd.Collection) -> dict[str, dd.Collection]:
    """In a sample some have no value; then all integers are looked at, and half of the ranges are those of amounts."""
    return largest(rows.where(pl.col("amount") > 0).select(key=pl.col("id") + 97 % pl.col("amount"), amount="amount"))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("program", "key", "most"),
    [
        (following, pl.col("id") + 1, EVEN),
        (days, pl.col("at").dt.date(), EVEN),
        (hours_of_those_known, pl.col("at").dt.truncate("1h").dt.offset_by("1d"), EVEN),
        (firsts, pl.col("at"), EVEN),
        (quotients, pl.col("id"), 2.2),
    ],
)
def test_keys_that_are_computed_are_divided(
    program: Any, key: pl.Expr, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the rows of a sample would have there: amounts say nothing of days, and instants nothing of dates."""
    start = pl.datetime(2026, 1, 1, time_zone="UTC")
    rows = pl.DataFrame({"id": pl.int_range(12_000, eager=True)}).with_columns(
        amount=pl.col("id") % 97, at=start + pl.duration(hours="id"), version=pl.lit(0), diff=pl.lit(1)
    )
    (work,) = divided(tmp_path, program, monkeypatch, [0], rows=rows)
    assert unevenness(work, rows.select(key.to_physical().cast(pl.Int64)).to_series()) <= most


@pytest.mark.parametrize(("rows", "readers"), [(10, 1), (40_000, 10), (600_000, WORKERS), (9_000_000, WORKERS)])
def test_all_workers_read_as_many_rows(
    rows: int, readers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they are not few: then less than all of them read."""
    frame = pl.DataFrame({"id": [1], "amount": [2], "version": [0], "diff": [1]})
    (work,) = divided(tmp_path, counted, monkeypatch, [0], rows=frame)
    file = replace(work.splits[0][0].file, rows=rows)
    monkeypatch.setattr(exchange, "input_log", lambda *_: SimpleNamespace(files=lambda state: [file]))
    tuned = replace(work.fold, settings=replace(work.fold.settings, tuning=DEFAULT))
    by_worker = exchange._splits(tuned, WORKERS)
    splits = [split for some in by_worker for split in some]
    assert [0, *(split.start + split.rows for split in splits)] == [*(split.start for split in splits), rows]
    assert max(split.rows for split in splits) <= DEFAULT.fed_rows
    read = [sum(split.rows for split in some) for some in by_worker]
    assert sum(map(bool, read)) == readers
    if readers == WORKERS:
        assert max(read) <= EVEN * rows / WORKERS
