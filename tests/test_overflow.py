"""Counts, sums and products at the ends of int64: exact on their way, and an error exactly where a result does not fit.

Each program is checked against an evaluator of its own, in Python's integers, over histories of extreme values and
diffs: by the reference, in one replay, cut into runs, fed early, and one version at a time. ``DDCORE_SEEDS=731-732``
runs those seeds.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import folding
import polars as pl
import pytest
import sparkless
from notation import DIMS
from programs import Case
from seeds import seeds
from test_exchange import outcome
from test_values import rows_of
from warehouses import project_of

import ddcore as dd
from ddcore import reference
from ddcore.base.errors import DiffOverflow
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse

Row = tuple[Any, ...]
LEAST, MOST = -(2**63), 2**63 - 1
HUGE = 2**62
WAYS: dict[str, Any] = {
    "reference": lambda program, seed, rows: folding.by_reference(program, rows=rows),
    "whole": lambda program, seed, rows: folding.whole(program, rows=rows),
    "cut": lambda program, seed, rows: folding.randomly_cut(program, seed=seed, rows=rows),
    "fed early": lambda program, seed, rows: folding.fed_early(program, seed=seed, rows=rows),
    "one time each": lambda program, seed, rows: folding.one_time_each(program, rows=rows),
}


@dataclass(frozen=True)
class Evaluation:
    """What a program means, in Python's integers.

    ``kept``: the collection its operator with state keeps, None without one. ``output``: the result on a collection of
    rows (k, v) with counts, and the numbers that have to fit.
    """

    program: Callable[[Any], Any]
    output: Callable[[Counter[Row]], tuple[Counter[Row], list[int]]]
    kept: Callable[[Counter[Row]], Counter[Row]] | None = None


def shown(groups: pl.DataFrame) -> pl.DataFrame:
    return groups.select("group", "v", "count")


def twice(groups: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([groups, groups]).select("group", "v", "count")


def everything(rows: Counter[Row]) -> Counter[Row]:
    return rows


def keys(rows: Counter[Row]) -> Counter[Row]:
    actual: Counter[Row] = Counter()
    for (k, _), count in rows.items():
        actual[k,] += count
    return actual


def groups_of(rows: Counter[Row]) -> dict[Any, list[tuple[Any, int]]]:
    groups: dict[Any, list[tuple[Any, int]]] = {}
    for (k, v), count in rows.items():
        if count:
            groups.setdefault(k, []).append((v, count))
    return groups


def counts(rows: Counter[Row]) -> tuple[Counter[Row], list[int]]:
    totals = {k: sum(count for _, count in members) for k, members in groups_of(rows).items()}
    return Counter({(k, n): 1 for k, n in totals.items() if n}), [n for n in totals.values() if n]


def sums(rows: Counter[Row]) -> tuple[Counter[Row], list[int]]:
    groups = groups_of(rows)
    there = {k for k, members in groups.items() if sum(count for _, count in members)}
    totals = {k: sum(v * count for v, count in groups[k] if v is not None) for k in there}
    return Counter({(k, total): 1 for k, total in totals.items()}), list(totals.values())


def extremes(choose: Callable[..., Any], rows: Counter[Row]) -> tuple[Counter[Row], list[int]]:
    actual: Counter[Row] = Counter()
    for k, members in groups_of(rows).items():
        present = [v for v, count in members if count > 0]
        if present:
            actual[k, choose((v for v in present if v is not None), default=None)] = 1
    return actual, []


def joined(rows: Counter[Row]) -> tuple[Counter[Row], list[int]]:
    """Pairs of equal k, of which k alone is left."""
    actual: Counter[Row] = Counter()
    for (k, _), (other, _) in product(rows, rows):
        if k is not None and k == other:
            actual[k,] += 0
    for k, members in groups_of(rows).items():
        if k is not None:
            actual[k,] += sum(count for _, count in members) ** 2
    return actual, []


EVALUATIONS = {
    "count": Evaluation(lambda rows: rows.group_by("k").agg(n=dd.count(), allow_negative=True), counts, keys),
    "sum": Evaluation(lambda rows: rows.group_by("k").agg(s=dd.sum("v"), allow_negative=True), sums, everything),
    "min": Evaluation(
        lambda rows: rows.group_by("k").agg(m=dd.min("v"), allow_negative=True),
        lambda rows: extremes(min, rows),
        everything,
    ),
    "max": Evaluation(
        lambda rows: rows.group_by("k").agg(m=dd.max("v"), allow_negative=True),
        lambda rows: extremes(max, rows),
        everything,
    ),
    "distinct": Evaluation(
        lambda rows: rows.distinct(allow_negative=True),
        lambda rows: (Counter({row: 1 for row, count in rows.items() if count > 0}), []),
        everything,
    ),
    "reduce": Evaluation(
        lambda rows: rows.group_by("k").reduce(shown, {"v": "int64"}, allow_negative=True),
        lambda rows: (rows, [0 if count == LEAST else count for count in rows.values()]),
        everything,
    ),
    "reduce twice": Evaluation(
        lambda rows: rows.group_by("k").reduce(twice, {"v": "int64"}, allow_negative=True),
        lambda rows: (
            Counter({row: 2 * count for row, count in rows.items()}),
            [0 if count == LEAST else count for count in rows.values()],
        ),
        everything,
    ),
    "join": Evaluation(lambda rows: rows.join(rows, on="k").select("k"), joined, everything),
    "negate": Evaluation(
        lambda rows: rows.negate(), lambda rows: (Counter({row: -count for row, count in rows.items()}), [])
    ),
    "negate and concat": Evaluation(
        lambda rows: rows.negate().concat(rows, rows), lambda rows: (rows, [])
    ),
    "concat": Evaluation(
        lambda rows: rows.concat(rows, rows, rows.negate()),
        lambda rows: (Counter({row: 2 * count for row, count in rows.items()}), []),
    ),
    "select": Evaluation(lambda rows: rows.select("k"), lambda rows: (keys(rows), [])),
}  # fmt: skip


def expected(evaluation: Evaluation, rows: pl.DataFrame, dims: tuple[str, ...]) -> Any:
    """The log, or None where something does not fit."""
    times = reference.grid(rows.select(dims).iter_rows())
    updates = [(row[:2], row[2:-1], row[-1]) for row in rows.iter_rows()]
    collections, outputs, given = {}, {}, []
    for time in times:
        collection: Counter[Row] = Counter()
        for row, when, diff in updates:
            if all(map(operator.le, when, time)):
                collection[row] += diff
        collections[time] = Counter({row: count for row, count in collection.items() if count})
        outputs[time], numbers = evaluation.output(collections[time])
        given += [abs(number) for number in numbers]
    log = changes(outputs)
    stored = changes({time: evaluation.kept(rows) for time, rows in collections.items()}) if evaluation.kept else {}
    fit = all(LEAST <= diff <= MOST for diff in [*log.values(), *stored.values()])
    return log if fit and max(given, default=0) <= MOST else None


def changes(collections: dict[Any, Counter[Row]]) -> dict[tuple[Row, Any], int]:
    """The differences of which the collections are the sums, by inclusion and exclusion over the grid."""
    axes = [sorted(set(axis)) for axis in zip(*collections, strict=True)]
    actual: dict[tuple[Row, Any], int] = {}
    for time in collections:
        locations = [axis.index(at) for axis, at in zip(axes, time, strict=True)]
        for back in product(*([0, 1] if location else [0] for location in locations)):
            before = tuple(axis[p - b] for axis, p, b in zip(axes, locations, back, strict=True))
            for row, count in collections[before].items():
                actual[row, time] = actual.get((row, time), 0) + (-1) ** sum(back) * count
    return {update: diff for update, diff in actual.items() if diff}


def history(rng: random.Random, dims: tuple[str, ...], size: int) -> pl.DataFrame:
    """Updates at the ends of int64, many of them taken back again at the same time or at another."""
    values = [0, 1, -1, None, *rng.sample([HUGE, -HUGE, MOST, -MOST, 2**32, -(2**61), 3], 4)]
    diffs = rng.sample([1, -1, 2, HUGE, -HUGE, MOST, LEAST, 2**61, -(2**31), 2**40], 4)
    side = {1: 5, 2: 3, 3: 2}[len(dims)]
    updates: list[tuple[Any, ...]] = []
    while len(updates) < size:
        row, time = (rng.randrange(2), rng.choice(values)), tuple(rng.randrange(side) for _ in dims)
        diff = rng.choice(diffs)
        updates += [(*row, *time, diff)] * rng.choice([1, 1, 1, 2])
        if rng.random() < 0.7 and diff != LEAST:
            later = time if rng.random() < 0.5 else tuple(rng.randrange(at, side) for at in time)
            updates.append((*row, *later, -diff))
    rng.shuffle(updates)
    return pl.DataFrame(updates, schema=dict.fromkeys(["k", "v", *dims, "diff"], pl.Int64), orient="row")


def found_by(way: str, program: Any, seed: int, rows: pl.DataFrame) -> Any:
    try:
        return WAYS[way](program, seed, rows)["out"]
    except DiffOverflow:
        return None


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", EVALUATIONS)
def test_every_way_gives_what_fits_and_an_error_for_what_does_not(name: str) -> None:
    evaluation = EVALUATIONS[name]
    outcomes: Counter[bool] = Counter()
    for seed in seeds(64)[:60]:
        rng = random.Random(f"{name} {seed}")
        dims = DIMS[rng.choice([1, 1, 2, 3])]
        rows = history(rng, dims, rng.choice([2, 3, 5, 9]))
        log = expected(evaluation, rows, dims)
        outcomes[log is None] += 1
        for way in WAYS:
            actual = found_by(way, lambda rows: {"out": evaluation.program(rows)}, seed, rows)
            assert actual == log, f"{name}, seed {seed}, {way}\n{rows.rows()}"
    print(f"{name}: {outcomes[False]} logs, {outcomes[True]} overflows")
    assert len(seeds(64)) < 60 or min(outcomes[False], outcomes[True]) > 0, outcomes


def halved(rows: Any) -> Any:
    step = 2**20
    return rows.iterate(lambda w: w.select("k", v=pl.col("v") // step).concat(rows).distinct(allow_negative=True))


def paired(rows: Any) -> Any:
    """In the loop a join with products, and what a function counts."""
    return rows.distinct(allow_negative=True).iterate(
        lambda w: w.join(rows, on="k").select("k", "v").distinct(allow_negative=True)
    )


def counted(rows: Any) -> Any:
    """A loop in a loop, and in both of them a function that is given counts."""

    def inner(w: Any) -> Any:
        fewer = w.select("k", v=pl.col("v") // 2**32).distinct(allow_negative=True)
        return (
            fewer.concat(rows).group_by("k", "v").reduce(ones, {"one": "int64"}, allow_negative=True).select("k", "v")
        )

    return rows.iterate(lambda w: w.iterate(inner, max_rounds=50).distinct(allow_negative=True), max_rounds=50)


def ones(groups: pl.DataFrame) -> pl.DataFrame:
    return groups.select("group", one=pl.lit(1, pl.Int64), count="count")


@pytest.mark.sample(1)
@pytest.mark.parametrize("loop", [halved, paired, counted])
def test_loops_end_alike(loop: Any) -> None:
    """The engine overflows at some round where the reference says so, at any cut."""
    outcomes: Counter[bool] = Counter()
    for seed in range(25):
        rng = random.Random(f"{loop.__name__} {seed}")
        dims = DIMS[rng.choice([1, 1, 2])]
        rows = history(rng, dims, rng.choice([1, 2, 4]))
        log = found_by("reference", lambda rows: {"out": loop(rows)}, seed, rows)
        outcomes[log is None] += 1
        for way in ("whole", "cut", "one time each"):
            actual = found_by(way, lambda rows: {"out": loop(rows)}, seed, rows)
            assert actual == log, f"{loop.__name__}, seed {seed}, {way}\n{rows.rows()}"
    print(f"{loop.__name__}: {outcomes[False]} logs, {outcomes[True]} overflows")
    assert min(outcomes[False], outcomes[True]) > 0, outcomes


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["count", "sum", "min", "max", "distinct"])
@pytest.mark.parametrize("dims", [DIMS[1], DIMS[2]], ids=["chain", "grid"])
def test_large_groups_are_as_exact_as_small_ones(name: str, dims: tuple[str, ...]) -> None:
    """Hundreds of rows of one group over many versions: with one coordinate the engine sweeps through them."""
    evaluation = EVALUATIONS[name]
    for seed in range(6):
        rng = random.Random(f"{name} {dims} {seed}")
        small = history(rng, dims, 200).with_columns(pl.col("diff").clip(-5, 5))
        rows = pl.concat([history(rng, dims, 90), small]).with_columns(k=pl.lit(0, pl.Int64))
        side = 20 if len(dims) == 1 else 4
        rows = rows.with_columns(pl.Series(dims[0], [rng.randrange(side) for _ in range(len(rows))]))
        log = expected(evaluation, rows, dims)
        for way in ("reference", "whole", "cut"):
            actual = found_by(way, lambda rows: {"out": evaluation.program(rows)}, seed, rows)
            assert actual == log, f"{name}, seed {seed}, {way}"


def padded(*updates: tuple[int, Any, int, int]) -> pl.DataFrame:
    """The updates in a group of so many rows and versions that it is swept."""
    many = [(1, 1000 + i, i % 40, 1) for i in range(200)] + [(1, 1000 + i, 40, -1) for i in range(200)]
    many = [(k, v, version + 1, diff) for k, v, version, diff in many]
    return rows_of(*many, *updates)


@pytest.mark.parametrize("surround", [rows_of, padded], ids=["small group", "large group"])
@pytest.mark.parametrize("way", WAYS)
def test_a_sum_passes_beyond_int64_and_comes_back(way: str, surround: Any) -> None:
    rows = surround((1, HUGE, 0, 3), (1, -HUGE, 0, 3))
    log = WAYS[way](lambda rows: {"out": rows.group_by("k").agg(s=dd.sum("v"))}, 0, rows)["out"]
    assert log[(1, 0), (0,)] == 1


@pytest.mark.parametrize("surround", [rows_of, padded], ids=["small group", "large group"])
@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_rows_does_not_matter_to_min(way: str, surround: Any) -> None:
    rows = surround((1, 7, 0, MOST), (1, 8, 0, MOST), (1, 7, 1, MOST))
    log = WAYS[way](lambda rows: {"out": rows.group_by("k").agg(m=dd.min("v"))}, 0, rows)["out"]
    assert log == {((1, 7), (0,)): 1}


@pytest.mark.parametrize("surround", [rows_of, padded], ids=["small group", "large group"])
@pytest.mark.parametrize("way", WAYS)
def test_one_version_that_does_not_fit_is_an_error(way: str, surround: Any) -> None:
    rows = surround((1, HUGE, 0, 3), (1, -HUGE, 0, 3), (1, HUGE, 2, 2))
    with pytest.raises(DiffOverflow):
        WAYS[way](lambda rows: {"out": rows.group_by("k").agg(s=dd.sum("v"))}, 0, rows)


def claiming(*counts: int) -> Any:
    """A function that returns the same row several times, as often as each of these counts says."""
    claimed = pl.DataFrame({"r": [1] * len(counts), "count": counts}, schema={"r": pl.Int64, "count": pl.Int64})
    return lambda groups: groups.select("group").unique().join(claimed, how="cross")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("counts", [(HUGE, HUGE), (MOST, 1), (LEAST, -1), (LEAST, LEAST, MOST)])
def test_counts_that_a_function_returns_never_wrap(way: str, counts: tuple[int, ...]) -> None:
    returned = claiming(*counts)
    with pytest.raises(DiffOverflow):
        WAYS[way](lambda rows: {"out": rows.group_by("k").reduce(returned, {"r": "int64"})}, 0, rows_of((1, 0, 0, 1)))


@pytest.mark.parametrize("way", WAYS)
def test_counts_that_a_function_returns_may_cancel(way: str) -> None:
    returned = claiming(MOST, MOST, LEAST, LEAST, 5)
    rows = rows_of((1, 0, 0, 1))
    log = WAYS[way](lambda rows: {"out": rows.group_by("k").reduce(returned, {"r": "int64"})}, 0, rows)["out"]
    assert log == {((1, 1), (0,)): 3}


@pytest.mark.parametrize("way", WAYS)
def test_a_change_of_a_count_that_does_not_fit(way: str) -> None:
    """2**63 - 1 at version 0 and -(2**62) at version 1: either fits, the difference does not."""

    def counted(groups: pl.DataFrame) -> pl.DataFrame:
        rows = groups.group_by("group").agg(n=pl.col("v").max())
        return rows.select("group", r=pl.lit(1, pl.Int64), count=pl.when(pl.col("n") == 0).then(MOST).otherwise(-HUGE))

    with pytest.raises(DiffOverflow):
        rows = rows_of((1, 0, 0, 1), (1, 1, 1, 1))
        WAYS[way](lambda rows: {"out": rows.group_by("k").reduce(counted, {"r": "int64"})}, 0, rows)


@pytest.mark.parametrize("way", WAYS)
def test_negative_counts_are_shown_as_they_are(way: str) -> None:
    seen = lambda groups: groups.select("group", "v", n="count")  # noqa: E731
    program = lambda rows: {  # noqa: E731
        "out": rows.group_by("k").reduce(seen, {"v": "int64", "n": "int64"}, allow_negative=True)
    }
    rows = rows_of((1, 5, 0, -2), (1, 6, 0, 3), (1, 5, 1, 2), (2, 7, 1, -1))
    log = WAYS[way](program, 0, rows)["out"]
    assert log == {
        ((1, 5, -2), (0,)): 1, ((1, 6, 3), (0,)): 1, ((1, 5, -2), (1,)): -1, ((2, 7, -1), (1,)): 1
    }  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_products_of_diffs_may_cancel(way: str) -> None:
    """2**80 pairs of one key less 2**80 pairs of another; and a join inside of a loop."""
    rows = rows_of((1, 5, 0, 2**40), (2, 5, 0, 2**40), (2, 6, 0, 1), (1, 6, 0, 1))

    def program(rows: Any) -> dict[str, Any]:
        pairs = rows.join(rows, on=["k", "v"])
        ones, twos = pairs.where("k = 1").select("v"), pairs.where("k = 2").select("v")
        return {"out": ones.concat(twos.negate(), rows.where("k = 2 and v = 6").select("v"))}

    assert WAYS[way](program, 0, rows)["out"] == {((6,), (0,)): 1}


def test_the_error_names_the_row_and_the_sum() -> None:
    with pytest.raises(
        DiffOverflow, match=r"output out: the diffs of \(1, 5\) at time \(3,\) add up to 9223372036854775808"
    ):
        dd.replay(lambda rows: {"out": rows.negate()}, rows=rows_of((1, 5, 3, LEAST)))


TOGETHER = """
import ddcore as dd


def program(rows):
    one = rows.where("k = 1").select(g="0", v="v")
    two = rows.where("k = 2").negate().select(g="0", v="v")
    pairs = rows.join(rows, on=["k", "v"]).where("k = 1").select(g="v")
    less = rows.join(rows, on=["k", "v"]).where("k = 2").negate().select(g="v")
    return {
        "sum": one.concat(two).group_by("g").agg(s=dd.sum("v"), allow_negative=True),
        "pairs": pairs.concat(less),
    }
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_parallelism_agrees(parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one worker sends may be beyond int64 as long as all send together what fits."""
    rows = [(k, v, 0, HUGE) for k in (1, 2) for v in range(8)] + [(k, v, 1, 1) for k in (1, 2) for v in range(3)]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(["k", "v", "version", "diff"], pl.Int64), orient="row")
    space: dict[str, Any] = {}
    exec(TOGETHER, space)
    drawn = Case(0, TOGETHER, space["program"], {"rows": frame})
    sparkless.install(monkeypatch)
    actual = outcome(project_of(tmp_path / "p", drawn), [0, None], engine="spark", parallelism=parallelism)
    assert actual == folding.by_reference(drawn.program, rows=frame)


def test_the_ledger_counts_diffs_exactly(tmp_path: Path) -> None:
    """Per version the sums of the positive and of the negative diffs of an output."""
    rows = [(1, v, 0, diff) for v, diff in enumerate([MOST, MOST, LEAST, LEAST])]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(["k", "v", "version", "diff"], pl.Int64), orient="row")
    source = "def program(rows):\n    return {'out': rows.select('v')}\n"
    space: dict[str, Any] = {}
    exec(source, space)
    project = project_of(tmp_path / "p", Case(0, source, space["program"], {"rows": frame}))
    actual = outcome(project, [None])
    assert actual == folding.by_reference(space["program"], rows=frame)
    run = Ledger.load(Warehouse(project.warehouse)).current_run()
    assert run is not None
    assert run.outputs == {"out": {time_of(0): (2 * MOST, -2 * LEAST)}}


@pytest.mark.parametrize("size", [2**32, 2**40])
@pytest.mark.parametrize("small", ["r", "s", "t"])
def test_a_delta_join_multiplies_more_than_two_diffs(size: int, small: str) -> None:
    """The product of two large ones, whose lower 64 bits are 0, is not cut off."""

    def triangles(r: dd.Collection, s: dd.Collection, t: dd.Collection) -> dict[str, dd.Collection]:
        return {"out": dd.delta_join((r, ["x", "y"]), (s, ["y", "z"]), (t, ["x", "z"]))}

    logs = {
        name: pl.DataFrame({"a": [1], "b": [1], "version": [0], "diff": [3 if name == small else size]})
        for name in ("r", "s", "t")
    }
    with pytest.raises(DiffOverflow, match=f" {size**2},| {3 * size**2},"):
        dd.replay(triangles, ("version",), **logs)
