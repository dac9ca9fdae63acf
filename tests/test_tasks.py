"""Tasks of the exchange that lose their memory and run twice, with every parallelism: one log all the same.

No Spark: see ``sparkless``. Each case is folded in several runs, so that later ones are cut where earlier ones found
their quantiles.
"""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import sparkless
from programs import Case, case
from seeds import nightly
from test_exchange import ends_of, expected_of, one_dimensional, outcome
from test_random_programs import compare
from warehouses import project_of

from ddcore.base.errors import StorageError
from ddcore.jobs import engines
from ddcore.jobs.engines import exchange, messages, tasks
from ddcore.jobs.engines.messages import Message
from ddcore.jobs.engines.partitioning import _cuts

SEEDS = nightly(one_dimensional(range(60)), 7)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_parallelism_and_whatever_happens_to_tasks(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallelism = 2 + seed % 2
    tuning = sparkless.tuning_of(seed)
    if seed // 2 % 2:  # groups as small as these get trees of partial results
        tuning = replace(tuning, large_group=2)
    sparkless.install(monkeypatch, seed=seed, unrest=0.3)
    monkeypatch.setattr(messages, "MESSAGE_ROWS", 2)  # every body in several messages
    drawn = case(seed, plain=True)
    outcomes = outcome(
        project_of(tmp_path / "cut", drawn, tuning=tuning), ends_of(drawn, seed), engine="spark",
        parallelism=parallelism,
    )  # fmt: skip
    compare(drawn, f"parallelism {parallelism}", expected_of(drawn), outcomes)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_task_takes_over_at_any_step(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between the step where a trace gains in several ranges, and that of a block which listens to it."""
    drawn, last = case(seed, plain=True), random.Random(seed).randint(1, 12)
    real, steps = exchange._Exchange._superstep, []

    def counted(self: Any, waiting: Any, now: Any) -> Any:
        steps.append(now.number)
        if now.number == last:
            self.narrow_below = 10**9
        return real(self, waiting, now)

    sparkless.install(monkeypatch, seed=seed)
    monkeypatch.setattr(engines, "WIDE_FROM", 1)
    monkeypatch.setattr(exchange, "NARROW_BELOW", 1)
    monkeypatch.setattr(exchange._Exchange, "_superstep", counted)
    outcomes = outcome(project_of(tmp_path / "p", drawn), [None], engine="spark")
    assert steps, "nothing was folded by several"
    assert last >= steps[-1], "and then by one"
    compare(drawn, f"taken over after step {last}", expected_of(drawn), outcomes)


SKEWED = """
import ddcore as dd


def program(items, names):
    joined = items.join(names, on={"k": "id"})
    by_key, whole = joined.group_by("k"), joined.group_by()
    return {"joined": joined, "counts": by_key.agg(n=dd.count()), "all": whole.agg(n=dd.count())}
"""


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


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_staged_files_are_data_and_never_code(tmp_path: Path) -> None:
    """Whoever can write to a shared warehouse may make a run fail, not make it run something."""
    staged, sprung = tmp_path / "000001-0.arrow", tmp_path / "sprung"
    entries = [
        Message(1, "trace", 3, (4, 5), 2, b"\x00body"),
        Message(0, "output", 0, (), 0, b""),
    ]
    messages.write_file(staged, entries)
    assert tasks._read(staged) == entries
    messages.write_file(staged, [])
    assert tasks._read(staged) == []
    staged.write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(StorageError, match="cannot read"):
        tasks._read(staged)
    assert not sprung.exists()


def loads(cuts: list[int], codes: list[int], rows: list[float]) -> list[float]:
    """The rows in each range."""
    bounds = [-(2**63), *cuts, 2**63]
    pairs = list(zip(codes, rows, strict=True))
    return [sum(row for code, row in pairs if a <= code < b) for a, b in pairwise(bounds)]


def test_ranges_are_even_by_rows_and_not_by_codes() -> None:
    codes, rows = list(range(100)), [100.0] * 10 + [1.0] * 90
    assert max(loads(cuts_of(codes, rows, 4), codes, rows)) <= 1.3 * sum(rows) / 4


@pytest.mark.parametrize("place", [0, 30, 99])
def test_a_heavy_key_has_a_range_of_its_own(place: int) -> None:
    codes, rows = list(range(100)), [1.0] * 100
    rows[place] = 300.0
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
    sparkless.install(monkeypatch)
    monkeypatch.setattr(exchange, "SPLIT_ROWS", 1_000)
    totals: list[dict[int, int]] = []
    send = exchange._Exchange._send

    def counted(self: Any, incoming: Any, name: str, step: int, *arguments: Any) -> Any:
        messages, reports = send(self, incoming, name, step, *arguments)
        if name == "feed":
            totals.append({})
        for report in reports:
            totals[-1][report.partition] = totals[-1].get(report.partition, 0) + report.load
        return messages, reports

    monkeypatch.setattr(exchange._Exchange, "_send", counted)
    ends = [*range(10), None]
    outcomes = outcome(project_of(tmp_path / "p", drawn), ends, engine="spark", parallelism=4)
    compare(drawn, "a history that moves", expected_of(drawn), outcomes)
    shares = [totals[-1].get(partition, 0) for partition in range(4)]
    assert max(shares) < 1.5 * sum(shares) / 4, shares
