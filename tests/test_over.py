"""Windows over an order: literal cases, random partitions against the reference, and mistakes."""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import folding
import polars as pl
import pytest
from folding import Fold
from notation import frame, log
from test_semantics import same

import ddcore as dd
from ddcore import col
from ddcore.base.errors import DiffOverflow, NegativeMultiplicity, ProgramError
from ddcore.base.tuning import Tuning
from ddcore.operators.over import _OverStep
from ddcore.planning.planner import build


def over(*by: str, **functions: Any) -> Any:
    return lambda t: {"out": t.group_by("k").over(list(by), **functions)}


def test_a_row_between_two_others_changes_its_neighbours(fold: Fold) -> None:
    actual = fold(over("n", before=dd.lag("n"), after=dd.lead("n")), t=frame("k n", "(a,1),(a,9):+1@0 (a,5):+1@1"))
    expected = "(a,1,null,9),(a,9,1,null):+1@0 (a,1,null,9),(a,9,1,null):-1,(a,1,null,5),(a,5,1,9),(a,9,5,null):+1@1"
    same(actual["out"], log(expected))


def test_a_running_total_changes_after_the_row(fold: Fold) -> None:
    program = over("n", total=dd.sum("n").rows_between(None, 0))
    actual = fold(program, t=frame("k n", "(a,1),(a,2),(a,4):+1@0 (a,3):+1@1 (a,4):-1@2"))
    same(actual["out"], log("(a,1,1),(a,2,3),(a,4,7):+1@0 (a,3,6),(a,4,10):+1,(a,4,7):-1@1 (a,4,10):-1@2"))


def test_each_copy_of_a_row_has_its_own_place(fold: Fold) -> None:
    actual = fold(over("n", number=dd.row_number(), rank=dd.rank()), t=frame("k n", "(a,1):+2,(a,7):+1@0 (a,1):-1@1"))
    same(actual["out"], log("(a,1,1,1),(a,1,2,1),(a,7,3,3):+1@0 (a,1,2,1),(a,7,3,3):-1,(a,7,2,2):+1@1"))


def distinct(aggregate: Any) -> Any:
    """Of the distinct values of a frame, as SQL writes it."""
    return replace(aggregate, distinct=True)


def at_zero(program: Any, t: pl.DataFrame) -> list[tuple[Any, ...]]:
    """The results in the order of the first column after the key, without the key."""
    whole = folding.whole(program, t=t)
    assert whole == folding.by_reference(program, t=t)
    return sorted((row[1:] for row, _ in whole["out"]), key=lambda row: row[0])


SEVEN = frame("k n x", "(a,1,5),(a,2,null),(a,2,3),(a,4,8),(a,7,null),(a,8,2),(a,8,1):+1@0")
"""In order: the ties of 2 as 3, null, those of 8 as 1, 2."""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (dd.lag("x", 2, default=0), [0, 0, 5, 3, None, 8, None]),
        (dd.lag("x", ignore_nulls=True), [None, 5, 3, 3, 8, 8, 1]),
        (dd.lead("x", 0), [5, 3, None, 8, None, 1, 2]),
        (dd.lead("x", ignore_nulls=True), [3, 8, 8, 1, 1, 2, None]),
        (dd.first_value("x").rows_between(1, 2), [3, None, 8, None, 1, 2, None]),
        (dd.last_value("x"), [5, None, None, 8, None, 2, 2]),
        (dd.last_value("x", ignore_nulls=True), [5, 3, 3, 8, 8, 2, 2]),
        (dd.nth_value("x", 2).groups_between(-1, 1), [3, 3, 3, None, None, 1, 1]),
        (dd.sum("x").rows_between(-1, 1, exclude="row"), [3, 5, 11, 0, 9, 2, 1]),
        (dd.sum("x").groups_between(0, 0, exclude="ties"), [5, 3, 0, 8, 0, 1, 2]),
        (dd.sum("x").range_between(None, None, exclude="peers"), [14, 16, 16, 11, 19, 16, 16]),
        (dd.sum("x"), [5, 8, 8, 16, 16, 19, 19]),
        (dd.count(where="x > 2").range_between(-2, 0), [1, 2, 2, 2, 0, 0, 0]),
        (dd.max("x").range_between(-1, 4), [8, 8, 8, 8, 2, 2, 2]),
        (dd.min("x").rows_between(2, 1), [None] * 7),
        (dd.mean("x").rows_between(-1, 0), [5.0, 4.0, 3.0, 8.0, 8.0, 1.0, 1.5]),
        (dd.count_distinct("x").rows_between(0, None), [5, 4, 3, 3, 2, 2, 1]),
        (dd.variance("x").rows_between(-1, 0), [None, 2.0, None, None, None, None, 0.5]),
        (dd.stddev("x", population=True).groups_between(-1, 1), [1.0, 2.0548, 2.0548, 2.5, 3.0912, 0.5, 0.5]),
        (dd.regression("x", "n"), [None, -2.0, -2.0, 1.2143, 1.2143, -0.4722, -0.4722]),
        (dd.array_agg("x").rows_between(-1, 0, exclude="row"), [None, [5], [3], [None], [8], [None], [1]]),
        (
            dd.array_agg("x", where="n > 2").rows_between(-1, 1),
            [None, None, [8], [8, None], [8, None, 1], [None, 1, 2], [1, 2]],
        ),
        (
            dd.string_agg(col("x").cast(pl.String), "-").groups_between(-1, 0),
            ["5", "5-3", "5-3", "3-8", "8", "1-2", "1-2"],
        ),
        (dd.median("x").rows_between(-1, 1), [4.0, 4.0, 5.5, 8.0, 4.5, 1.5, 1.5]),
        (dd.quantile("x", 0.5), [5, 3, 3, 5, 5, 3, 3]),
        (dd.mode(col("x") % 3).rows_between(-2, 0, exclude="row"), [None, 2, 0, 0, 2, 2, 1]),
        (dd.max_by("n", "x").range_between(-3, 3), [4, 4, 4, 4, 4, 8, 8]),
        (dd.min_by("x", col("n") * -1).rows_between(None, None, exclude="peers"), [1, 1, 1, 1, 1, 8, 8]),
        (dd.bit_and("x"), [5, 1, 1, 0, 0, 0, 0]),
        (dd.bit_or("x").groups_between(-1, 0), [5, 7, 7, 11, 8, 3, 3]),
        (dd.bit_xor("x").rows_between(-2, 0, exclude="row"), [None, 5, 6, 3, 8, 8, 1]),
        (distinct(dd.sum(col("x") % 3)), [2, 2, 2, 2, 2, 3, 3]),
        (distinct(dd.mean(col("x") % 3)).rows_between(-1, 1, exclude="ties"), [1.0, 1.0, 2.0, 2.0, 1.5, 1.0, 2.0]),
        (distinct(dd.median(col("x") % 3)), [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (
            dd.array_agg("x", order_by="x", descending=True).rows_between(-2, 0),
            [[5], [5, 3], [5, 3, None], [8, 3, None], [8, None, None], [8, 1, None], [2, 1, None]],
        ),
        (
            dd.array_agg(col("x") % 3, distinct=True).rows_between(-2, 1),
            [[0, 2], [0, 2, None], [0, 2, None], [0, 2, None], [1, 2, None], [1, 2, None], [1, 2, None]],
        ),
        (
            dd.string_agg(col("x").cast(pl.String), "-", order_by="n", descending=True),
            ["5", "3-5", "3-5", "8-3-5", "8-3-5", "1-2-8-3-5", "1-2-8-3-5"],
        ),
        (dd.ntile(3), [1, 1, 1, 2, 2, 3, 3]),
        (dd.ntile(9), [1, 2, 3, 4, 5, 6, 7]),
        (dd.percent_rank(), [0, 1 / 6, 1 / 6, 3 / 6, 4 / 6, 5 / 6, 5 / 6]),
        (dd.cume_dist(), [1 / 7, 3 / 7, 3 / 7, 4 / 7, 5 / 7, 1.0, 1.0]),
        (dd.dense_rank(), [1, 2, 2, 3, 4, 5, 5]),
    ],
)
def test_functions_by_their_place(function: Any, expected: list[Any]) -> None:
    whole = at_zero(over("n", place=dd.row_number(), it=function), SEVEN)
    results = {row[2]: row[3] for row in whole}
    rounded = [round(it, 4) if isinstance(it := results[location], float) else it for location in range(1, 8)]
    assert [[*it] if isinstance(it, tuple) else it for it in rounded] == [
        round(it, 4) if isinstance(it, float) else it for it in expected
    ]


def test_distances_of_dates() -> None:
    days = pl.DataFrame({"k": "a", "d": [datetime.date(2024, 2, day) for day in (1, 2, 5)], "version": 0, "diff": 1})
    week = dd.count().range_between(datetime.timedelta(days=-3), datetime.timedelta(0))
    assert [row[1] for row in at_zero(over("d", n=week), days)] == [1, 2, 2]


FUNCTIONS: list[Any] = [
    dd.lag("x"), dd.lead("x", 2, ignore_nulls=True), dd.first_value("x", ignore_nulls=True), dd.last_value("x"),
    dd.nth_value("x", 2), dd.sum("x"), dd.count(), dd.mean("f"), dd.sum("f"), dd.min("f"), dd.max("w"),
    dd.count_distinct("w"), dd.any(col("x") > 2), dd.sum("x", where="f > 0"), dd.variance("f"), dd.stddev("x"),
    dd.corr("x", "f"), dd.regression("f", "x", "r2"), dd.array_agg("x"), dd.array_agg("w", where="x > 1"),
    dd.string_agg("w", "-"), dd.covariance("x", "x", population=True, where="f > 0"), dd.median("f"),
    dd.quantile("w", 0.4), dd.quantile("f", 0.6, between=True), dd.mode("w", where="f > 0"), dd.mode("f"),
    dd.min_by("w", "f"), dd.max_by("f", "x", where="w = 'x'"), dd.bit_and("x"), dd.bit_xor("x"),
    dd.bit_or("x", where="f > 0"), distinct(dd.sum("x")), distinct(dd.sum("f", where="x > 1")),
    distinct(dd.mean("f")), distinct(dd.mean("x")), distinct(dd.median("x")), dd.array_agg("f", distinct=True),
    dd.array_agg("w", order_by=["x", "f"], descending=[True, False], nulls_first=[True, False]),
    dd.string_agg("w", "-", order_by="f", distinct=True, where="x > 1"),
]  # fmt: skip


@pytest.mark.sample(14)
@pytest.mark.parametrize("seed", range(40))
def test_random_partitions(seed: int) -> None:
    """Larger partitions than random programs have, with many ties, at partially ordered times."""
    rng = random.Random(seed)
    pools: dict[str, list[Any]] = {
        "k": [1, 2],
        "n": [1, 2, 4, 5, None],
        "f": [0.5, -1e300, float("nan"), float("inf"), None, 1e300],
        "w": ["x", "y", None],
        "x": [1, 2**58, -5, None],
    }
    rows: list[tuple[Any, ...]] = [tuple(rng.choice(pool) for pool in pools.values()) for _ in range(12)]
    updates = [(*row, *time, 1) for row in rows for time in [(rng.randint(0, 1), rng.randint(0, 1))]]
    updates += [(*row[:-3], row[-3] + 1, row[-2], -1) for row in rng.sample(updates, 4)]
    types = {"k": pl.Int64, "n": pl.Int64, "f": pl.Float64, "w": pl.String, "x": pl.Int64}
    t = pl.DataFrame(updates, {**types, "day": pl.Int64, "revision": pl.Int64, "diff": pl.Int64}, orient="row")
    functions: dict[str, Any] = {}
    for number, function in enumerate(rng.sample(FUNCTIONS, 4)):
        if function.kind not in ("lag", "lead"):
            unit = rng.choice(["rows", "groups", "range"])
            ends = [rng.choice([None, -2, -1, 0, 1, 2]) for _ in range(2)]
            exclude: Any = rng.choice(["nothing", "row", "peers", "ties"])
            if seed % 2:  # what goes on from row to row
                ends, exclude = rng.choice([[None, 0], [0, None]]), "nothing"
            function = getattr(function, f"{unit}_between")(*ends, exclude=exclude)  # noqa: PLW2901
        functions[f"r{number}"] = function
    by, flags = rng.choice(["n", "f"]), {"descending": rng.random() < 0.5, "nulls_first": rng.random() < 0.5}

    def program(t: Any) -> Any:
        return {"out": t.group_by("k").over(by, **flags, **functions)}

    assert folding.whole(program, t=t) == folding.by_reference(program, t=t)


VALUES: list[Any] = [1, 2, None]
NEAR: list[Any] = [
    dd.lag("x"), dd.lead("w", 3), dd.lag("x", 0), dd.sum("x").rows_between(-2, 0), dd.max("w").rows_between(-1, 2),
    dd.last_value("x", ignore_nulls=True).rows_between(-3, -1), dd.count().rows_between(0, 0),
    dd.variance("f").rows_between(-2, 0), dd.corr("x", "m").rows_between(-3, 1, exclude="row"),
    dd.array_agg("w").rows_between(-1, 1), dd.string_agg("w", "").rows_between(-2, 0),
    dd.median("m").rows_between(-2, 1), dd.mode("w").rows_between(-1, 0), dd.max_by("w", "x").rows_between(0, 2),
    distinct(dd.sum("m")).rows_between(-1, 1), dd.array_agg("x", distinct=True).rows_between(-1, 0),
]  # fmt: skip
AWAY: list[Any] = [
    dd.sum("x").groups_between(-1, 0), dd.max("w").groups_between(-2, 1, exclude="ties"),
    dd.count().groups_between(0, 0), dd.sum("x").range_between(-3, 2), dd.count().range_between(1, 4),
    dd.mean("x").range_between(0, 0),
    dd.first_value("w").range_between(-5, 0, exclude="peers"), dd.count_distinct("w").range_between(-1, 1),
    dd.stddev("m").range_between(-2, 1), dd.array_agg("x", where="w = 'x'").groups_between(-1, 1, exclude="ties"),
]  # fmt: skip


ONWARDS: list[Any] = [
    dd.row_number(), dd.rank(), dd.dense_rank(), dd.sum("x"), dd.sum("x").rows_between(None, 0), dd.min("w"),
    dd.max("x").groups_between(None, 0), dd.count(), dd.count().rows_between(None, 0), dd.first_value("w"),
    dd.first_value("x", ignore_nulls=True).rows_between(None, 0), dd.all(col("x") > 1), dd.count(where="x > 1"),
    dd.mean("x"), dd.mean("x").rows_between(None, 0), dd.mean("m", where="w = 'x'"), dd.mean("f"), dd.sum("f"),
    dd.sum("f").rows_between(None, 0), dd.mean("f", where="w = 'x'").groups_between(None, 0), dd.count_distinct("x"),
    dd.count_distinct("w").rows_between(None, 0), dd.count_distinct("f").groups_between(None, 0),
    dd.variance("x"), dd.stddev("f").rows_between(None, 0), dd.corr("x", "m"), dd.covariance("f", "x", where="w = 'x'"),
    dd.array_agg("x"), dd.array_agg("w", where="x > 1").rows_between(None, 0), dd.string_agg("w", "-"),
    dd.last_value("x"), dd.last_value("x", ignore_nulls=True), dd.last_value("w").rows_between(None, 0),
    dd.last_value("m", ignore_nulls=True).rows_between(None, 0), dd.last_value("f").groups_between(None, 0),
    dd.percent_rank(), dd.cume_dist(), dd.nth_value("x", 2), dd.nth_value("w", 4, ignore_nulls=True),
    dd.nth_value("m", 3).rows_between(None, 0), dd.nth_value("x", 2, ignore_nulls=True).groups_between(None, 0),
    dd.bit_or("x"), dd.bit_xor("x").rows_between(None, 0), dd.bit_and("x", where="w = 'x'").groups_between(None, 0),
]  # fmt: skip


BACKWARDS: list[Any] = [
    dd.sum("x").range_between(0, None), dd.count().groups_between(0, None), dd.max("w").range_between(0, None),
    dd.last_value("w").range_between(0, None), dd.all(col("x") > 1).groups_between(0, None),
    dd.last_value("x", ignore_nulls=True).groups_between(0, None), dd.sum("x").rows_between(0, None),
    dd.count().rows_between(0, None), dd.last_value("x").rows_between(0, None), dd.mean("x").rows_between(0, None),
    dd.mean("m").range_between(0, None), dd.sum("f").groups_between(0, None),
    dd.count_distinct("w").range_between(0, None), dd.count_distinct("x").rows_between(0, None),
    dd.variance("m").range_between(0, None), dd.regression("x", "m", "intercept").rows_between(0, None),
    dd.string_agg("w", "-").rows_between(0, None), dd.first_value("x", ignore_nulls=True).rows_between(0, None),
]  # fmt: skip
"""Frames without end: those of values and peers, and of rows."""
FAR: list[Any] = [
    dd.ntile(3), dd.ntile(7), dd.lag("x", ignore_nulls=True), dd.lead("w", default=col("w"), ignore_nulls=True),
    dd.lag("m", default=1, ignore_nulls=True), dd.sum("x").rows_between(None, -1), dd.count().rows_between(None, -2),
    dd.sum("f").groups_between(None, 1), dd.mean("m").rows_between(None, 3), dd.max("w").groups_between(None, -1),
    dd.sum("m").rows_between(2, None), dd.sum("x").range_between(-2, None), dd.count().range_between(None, 3),
    dd.array_agg("w").rows_between(-1, None), dd.string_agg("w", "-").groups_between(1, None),
    dd.first_value("x").rows_between(-2, None), dd.nth_value("x", 2).rows_between(-1, None),
    dd.nth_value("w", 3).range_between(0, None), dd.last_value("x").rows_between(None, 2),
    dd.first_value("w", ignore_nulls=True).rows_between(1, None), dd.last_value("m").groups_between(None, -1),
    dd.count_distinct("x").rows_between(None, -1), dd.count_distinct("w").groups_between(-1, None),
    dd.variance("x").rows_between(None, -1), dd.all(col("x") > 1).groups_between(1, None),
    dd.array_agg("x", where="w = 'x'").range_between(0, None), dd.array_agg("f").groups_between(0, None),
    dd.first_value("f").range_between(-3, None), dd.last_value("x", ignore_nulls=True).rows_between(-1, None),
    dd.sum("x", where="w = 'x'").rows_between(None, 1), dd.nth_value("x", 3).rows_between(None, -1),
    dd.lag("x", 2, ignore_nulls=True), dd.lead("w", 3, default=col("w"), ignore_nulls=True),
    dd.lag("w", 4, ignore_nulls=True), dd.nth_value("x", 2, ignore_nulls=True).rows_between(0, None),
    dd.nth_value("w", 3, ignore_nulls=True).groups_between(1, None),
    dd.sum("x").range_between(None, -2), dd.max("w").range_between(3, None), dd.count().range_between(None, -1),
    dd.first_value("x").range_between(2, None), dd.count_distinct("x").range_between(None, -3),
    dd.last_value("w").range_between(None, -1), dd.mean("m").range_between(1, None),
    dd.sum("x").rows_between(None, 0, exclude="row"), dd.count().groups_between(None, 0, exclude="peers"),
    dd.mean("m").rows_between(0, None, exclude="peers"), dd.array_agg("w").range_between(0, None, exclude="peers"),
    dd.min("w").rows_between(0, None, exclude="row"), dd.sum("f").range_between(None, 0, exclude="peers"),
    dd.percent_rank(), dd.cume_dist(), dd.bit_xor("x").rows_between(None, -1), dd.bit_or("x").range_between(-2, None),
    dd.max_by("x", "w"), dd.median("x").rows_between(1, None), distinct(dd.mean("f")).groups_between(0, None),
]  # fmt: skip
"""What is found at rows nearby, or at the cuts of the partition."""
MONEY = [Decimal("0.01"), Decimal("-99999999999999.99"), None]
FLOATS: list[list[Any]] = [
    [0.1, -3.7, 1e16, None], [5e-324, -1e308, 1e308, 1.5], [0.1, 1e-200, float("nan"), float("inf"), float("-inf")],
]  # fmt: skip
"""Of one size; so small and so large that a state cannot hold their sum, or it is infinite; and not finite."""


def value_columns(rng: random.Random, floats: list[Any]) -> tuple[Any, ...]:
    """What functions take: a word, a number, a float and a decimal."""
    return rng.choice("xy"), rng.choice(VALUES), rng.choice(floats), rng.choice(MONEY)


def history(updates: list[tuple[Any, ...]], *keys: str) -> pl.DataFrame:
    types: dict[str, Any] = {"n": pl.Int64, "w": pl.String, "x": pl.Int64, "f": pl.Float64, "m": pl.Decimal(18, 2)}
    names = [*keys, *types, "version", "diff"]
    return pl.DataFrame(updates, names, orient="row", infer_schema_length=None, schema_overrides=types)


@pytest.mark.sample(12)
@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.parametrize("seed", range(32))
def test_functions_in_operators_of_their_own(seed: int, first: int) -> None:
    """What would cost the partition beside others: in one fold and in one for each version, with copies of rows."""
    tuning = Tuning(searched_rows=1, near_rows=first, later_rows=first, later_ratio=3, cut_ratio=0)
    rng = random.Random(f"apart {seed}")
    floats = rng.choice(FLOATS)
    there: list[tuple[Any, ...]] = []
    updates = []
    for version in range(4):
        for _ in range(rng.choice([2, 20 if version == 0 else 3])):
            if there and rng.random() < 0.4:
                updates.append((*there.pop(rng.randrange(len(there))), version, -1))
                continue
            row = rng.choice(there) if there and rng.random() < 0.2 else ()
            there.append(row or ("a", rng.randrange(12), *value_columns(rng, floats)))
            updates.append((*there[-1], version, 1))
    t = history(updates, "k")
    pools = [ONWARDS, AWAY, BACKWARDS, NEAR, FAR]
    chosen = [function for pool in rng.sample(pools, rng.randint(1, 3)) for function in rng.sample(pool, 1)]
    chosen += rng.sample(rng.choice([BACKWARDS, FAR]), rng.randint(1, 2))
    functions = {f"r{number}": function for number, function in enumerate(chosen)}
    down, nulls = rng.random() < 0.5, rng.random() < 0.5

    def program(t: Any) -> Any:
        return {"out": t.group_by("k").over("n", descending=down, nulls_first=nulls, **functions)}

    expected = folding.by_reference(program, t=t)
    print([(function.kind, function.frame) for function in chosen])
    assert folding.whole(program, tuning=tuning, t=t) == expected
    assert folding.one_time_each(program, tuning=tuning, t=t) == expected
    assert folding.compacted(program, tuning=tuning, t=t) == expected


@pytest.mark.parametrize(
    ("functions", "operators"),
    [
        ((dd.sum("x"), dd.lag("x")), 1),
        ((dd.lag("x"), dd.sum("x").range_between(-3, 0)), 1),
        ((dd.sum("x"), dd.sum("x").range_between(-3, 0)), 2),
        ((dd.rank(), dd.count().groups_between(-1, 1), dd.sum("x").range_between(0, None)), 3),
        ((dd.sum("x").rows_between(0, None),), 1),
        ((dd.sum("x").rows_between(0, None), dd.rank()), 2),
        ((dd.sum("x").rows_between(0, None), dd.lag("x")), 3),  # both tell copies apart, so one numbers these
        ((dd.last_value("x").range_between(0, None), dd.rank()), 2),
        ((dd.sum("x"), dd.sum("x").range_between(-3, 0), dd.ntile(4)), 3),
        ((dd.ntile(4), dd.ntile(3)), 3),  # with one for copies
        ((dd.sum("x"), dd.sum("x").range_between(-3, 0), dd.count().rows_between(None, None)), 1),
        ((dd.lag("x", ignore_nulls=True), dd.lead("x", ignore_nulls=True)), 3),  # a value of the row before, or behind
        ((dd.sum("x").rows_between(None, -1),), 3),
        ((dd.sum("x").range_between(None, -1),), 2),
        ((dd.first_value("x").range_between(3, None), dd.lag("x")), 1),
        ((dd.sum("x").groups_between(None, 0, exclude="peers"),), 2),
        ((dd.sum("x").groups_between(None, 0, exclude="ties"),), 1),
        ((dd.first_value("x").rows_between(-2, None), dd.nth_value("x", 3).range_between(0, None)), 1),
        ((dd.array_agg("x").rows_between(0, None), dd.array_agg("x").range_between(0, None), dd.max("x")), 2),
        ((dd.mean("x"), dd.sum(col("x") / 8), dd.lag("x")), 1),
        ((dd.mean("x").range_between(0, None), dd.mean("x")), 2),
        ((dd.count_distinct("x"), dd.count_distinct("x").rows_between(None, 0), dd.rank()), 2),  # one marks values
        ((dd.count_distinct("x"), dd.count_distinct("k"), dd.count_distinct("x").range_between(0, None)), 5),
        ((dd.count_distinct("x"), dd.ntile(4)), 3),
        ((dd.count_distinct("x"), dd.count().rows_between(None, None)), 1),
    ],
)
def test_which_functions_are_computed_together(functions: tuple[Any, ...], operators: int) -> None:
    named = {f"r{number}": function for number, function in enumerate(functions)}
    plan = build(
        lambda t: {"out": t.group_by("k").over("n", **named)}, {"t": {"k": "string", "n": "int64", "x": "int64"}}
    )
    assert sum(node.operator.name == "over" for node in plan.nodes) == operators
    assert list(plan.outputs["out"]) == ["k", "n", "x", *named]


@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.parametrize("onwards", [False, True])
@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(30))
def test_large_groups_are_searched_around_the_changes(seed: int, onwards: bool, first: int) -> None:
    """With groups that count as large from the first row on, in one fold and in one for each version. ``onwards``: with
    functions that depend on all rows before.
    """
    tuning = Tuning(searched_rows=1, near_rows=first, later_rows=first, later_ratio=3)
    rng = random.Random(f"near {seed}")
    numbers: list[Any] = [*range(rng.choice([6, 60]))] + [None] * (seed % 4 == 0)
    keys: list[Any] = rng.choice([["a"], ["a", "b"], [1, 2]])
    floats = rng.choice(FLOATS)
    there: list[tuple[Any, ...]] = []
    updates = []
    for version in range(5):
        for _ in range(rng.choice([1, 2, 40 if version == 0 else 3])):
            if there and rng.random() < 0.4:
                updates.append((*there.pop(rng.randrange(len(there))), version, -1))
                continue
            row: tuple[Any, ...] = (
                rng.choice(keys),
                rng.choice([7, 8]),
                rng.choice(numbers),
                *value_columns(rng, floats),
            )
            there.append(row)
            updates.append((*row, version, 1))
    t = history(updates, "k", "g")
    near = [*NEAR, *AWAY] if seed % 3 == 0 else NEAR  # the others look so many rows away
    chosen = rng.sample(near, rng.randint(0 if onwards else 1, 2 if onwards else 3))
    chosen += rng.sample(ONWARDS, rng.randint(1, 3)) if onwards else []
    functions = {f"r{number}": function for number, function in enumerate(chosen)}
    groups, down = rng.choice([("k",), ("k", "g")]), rng.random() < 0.5

    def program(t: Any) -> Any:
        return {"out": t.group_by(*groups).over("n", descending=down, **functions)}

    expected = folding.by_reference(program, t=t)
    assert folding.whole(program, tuning=tuning, t=t) == expected
    assert folding.one_time_each(program, tuning=tuning, t=t) == expected
    assert folding.compacted(program, tuning=tuning, t=t) == expected
    assert folding.fed_early(program, seed=seed, tuning=tuning, t=t) == expected


def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many updates each evaluation of windows from now on has read."""
    read, evaluate = list[int](), _OverStep.evaluate

    def noted(step: Any, evaluations: Any, history: Any, *rest: Any) -> Any:
        read.append(len(history.diffs))
        return evaluate(step, evaluations, history, *rest)

    monkeypatch.setattr(_OverStep, "evaluate", noted)
    return read


@pytest.mark.sample(28)
@pytest.mark.parametrize(
    ("function", "change"),
    [
        (dd.mean("x"), "(a,301,5):+1"),
        (dd.mean("x").range_between(0, None), "(a,-1,5):+1"),
        (dd.sum(col("x") / 8).rows_between(None, 0), "(a,301,5):+1"),
        (dd.mean(col("x") / 7), "(a,290,0):-1"),
        (dd.count_distinct("x"), "(a,101,4):+1"),  # there before and behind
        (dd.max("x"), "(a,101,4):+1"),
        (dd.variance("x"), "(a,301,5):+1"),
        (dd.corr(col("x") / 7, "x").rows_between(None, 0), "(a,301,5):+1"),
        (dd.covariance("x", "n").range_between(0, None), "(a,-1,5):+1"),
        (dd.stddev("x").rows_between(-3, 3), "(a,101,4):+1"),
        (dd.array_agg("x"), "(a,301,5):+1"),
        (dd.last_value("x", ignore_nulls=True), "(a,101,4):+1"),
        (dd.string_agg(col("x").cast(pl.String), " ").rows_between(None, 0), "(a,290,0):-1"),
        (dd.array_agg("x").range_between(-5, 5, exclude="row"), "(a,101,4):+1"),
        (dd.first_value("x").groups_between(-2, 1, exclude="ties"), "(a,101,4):+1"),
        (dd.row_number(), "(a,100,0):-1,(a,100,5):+1"),  # one row goes, and one comes
        (dd.mean("x"), "(a,100,0):-1,(a,100,5):+1,(a,102,2):-1,(a,102,-3):+1"),  # the sum stays
        (dd.percent_rank(), "(a,100,0):-1,(a,100,5):+1"),  # as does the number of rows
        (dd.cume_dist(), "(a,100,0):-1,(a,111,5):+1"),
        (dd.nth_value("x", 3), "(a,101,4):+1"),
        (dd.nth_value("x", 3, ignore_nulls=True).rows_between(None, 0), "(a,101,4):+1"),
        (dd.nth_value("x", 3).rows_between(0, None), "(a,101,4):+1"),
        (dd.first_value("x").range_between(-5, None), "(a,101,4):+1"),
        (dd.lag("x", ignore_nulls=True), "(a,101,4):+1"),
        (dd.lag("x", 3, ignore_nulls=True), "(a,101,4):+1"),
        (dd.lead(col("x").cast(pl.String), 2, ignore_nulls=True), "(a,100,0):-1"),
        (dd.nth_value("x", 3, ignore_nulls=True).rows_between(1, None), "(a,101,4):+1"),
        (dd.lead(pl.when(pl.col("n") < 20).then(col("x")), ignore_nulls=True), "(a,201,null):+1"),  # none behind
        (dd.sum("x").rows_between(None, -1), "(a,301,5):+1"),
        (dd.sum("x").groups_between(-2, None), "(a,-1,5):+1"),
        (dd.max("x").rows_between(None, 2), "(a,101,4):+1"),
        (dd.sum("x").range_between(None, -5), "(a,301,5):+1"),
        (dd.max("x").range_between(None, -5), "(a,101,4):+1"),
        (dd.mean("x").range_between(7, None), "(a,-1,5):+1"),
        (dd.first_value("x").range_between(7, None), "(a,101,4):+1"),
        (dd.last_value("x").range_between(None, -7), "(a,101,4):+1"),
        (dd.sum("x").rows_between(None, 0, exclude="row"), "(a,301,5):+1"),
        (dd.count().groups_between(0, None, exclude="peers"), "(a,-1,5):+1"),
        (dd.max("x").rows_between(None, 0, exclude="peers"), "(a,101,4):+1"),
        (dd.array_agg("x").rows_between(0, None), "(a,-1,5):+1"),
        (dd.string_agg(col("x").cast(pl.String), " ").groups_between(2, None), "(a,8,8):-1"),
    ],
)
def test_what_is_read_of_a_large_group(function: Any, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change costs the rows whose results change, and some around them."""
    tuning = Tuning(searched_rows=1, near_rows=4, later_rows=8, later_ratio=2)
    rows = pl.DataFrame({"k": "a", "n": range(0, 300, 2), "version": 0, "diff": 1})
    first = rows.with_columns(x=pl.col("n") % 10).select("k", "n", "x", "version", "diff")
    t = pl.concat([first, frame("k n x", f"{change}@1")], how="vertical_relaxed")
    read = rows_read(monkeypatch)
    program = over("n", it=function)
    actual = folding.one_time_each(program, tuning=tuning, t=t)
    assert actual == folding.by_reference(program, t=t)
    assert max(read) == 150
    assert 0 < sum(count for count in read if count != 150) < 75


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(16))
def test_running_functions_in_loops(seed: int) -> None:
    """Rows leave round by round, for what the rows before them or behind them add up to."""
    rng = random.Random(f"loops {seed}")
    floats = rng.choice(FLOATS)
    updates = [
        (rng.choice("ab"), rng.randrange(9), *value_columns(rng, floats), rng.choice([0, 0, 0, 1, 2]), 1)
        for _ in range(24)
    ]
    updates += [(*row[:-2], rng.choice([2, 3]), -1) for row in rng.sample(updates, 5)]
    t = history(updates, "k")
    running: Any = rng.choice([dd.mean("x"), dd.count_distinct("x"), dd.mean("f"), dd.sum("f"), dd.count_distinct("f"),
                               dd.variance("x"), dd.stddev("f")])  # fmt: skip
    unit, ends = rng.choice(["rows", "groups", "range"]), rng.choice([(None, 0), (0, None)])
    it, most = getattr(running, f"{unit}_between")(*ends), rng.choice([1, 1.5, 2])

    def program(t: Any) -> Any:
        def kept(rows: Any) -> Any:
            return rows.group_by("k").over("n", it=it, before=dd.lag("x")).where(col("it") <= most).drop("it", "before")

        return {"out": t.iterate(kept)}

    expected = folding.by_reference(program, t=t)
    assert folding.whole(program, t=t) == expected
    assert folding.one_time_each(program, t=t) == expected


def test_an_argument_that_is_the_key() -> None:
    assert [row[1] for row in at_zero(over("n", it=dd.sum(col("k") * 2)), frame("k n", "(3,1),(3,2):+1@0"))] == [6, 12]


def test_negative_counts() -> None:
    t = frame("k n", "(a,1):+1,(a,2):-1@0")
    with pytest.raises(NegativeMultiplicity):
        folding.whole(over("n", number=dd.row_number()), t=t)
    assert at_zero(over("n", number=dd.row_number(), allow_negative=True), t) == [(1, 1)]


def test_sums_that_do_not_fit() -> None:
    with pytest.raises(DiffOverflow, match=r"over .*: key \('a',\) at time \(0,\): it: a sum is more than int64"):
        folding.whole(over("n", it=dd.sum("n")), t=frame("k n", f"(a,{2**62}),(a,{2**62 + 1}):+1@0"))


def test_bits_that_do_not_fit() -> None:
    with pytest.raises(DiffOverflow, match=r"it: a result is more than int64 holds"):
        folding.whole(over("n", it=dd.bit_and("n")), t=frame("k n", f"(a,{-(2**63) + 1}),(a,{-(2**63) + 2}):+1@0"))


def test_a_row_that_occurs_too_often() -> None:
    with pytest.raises(DiffOverflow, match="a row occurs 100000000 times"):
        folding.whole(over("n", it=dd.row_number()), t=frame("k n", "(a,1):+100000000@0"))


HALF: Any = 0.5
ALL: Any = "all"
MISTAKES: list[Any] = [
    (lambda t: t.group_by("k").over("n"), "names no function"),
    (lambda t: t.group_by("k").over("n", n=dd.row_number()), "n is a column already"),
    (lambda t: t.group_by("k").over("k", r=dd.row_number()), "k is a key"),
    (lambda t: t.group_by("k").over("l", r=dd.row_number()), "lists and structs have no order"),
    (lambda t: t.group_by("k").over("n", r=col("n")), "not a function of rows in an order"),
    (lambda t: t.group_by("k").over("n", r=dd.lag("n", default="'x'")), "the default is string"),
    (lambda t: t.group_by("k").over("n", r=dd.lag("n", -1)), "-1 is no number of rows"),
    (lambda t: t.group_by("k").over("n", r=dd.ntile(0)), "0 is no number of parts"),
    (lambda t: t.group_by("k").over("n", r=dd.sum("n").range_between(-1.5, 0)), "-1.5 is no distance of int64"),
    (lambda t: t.group_by("k").over("d", r=dd.count().range_between(-1, 0)), "-1 is no distance of date"),
    (lambda t: t.group_by("k").over(r=dd.count().range_between(-1, 0)), "an order by one column"),
    (lambda t: t.group_by("k").over("n", r=dd.sum("n").rows_between(HALF, 1)), "0.5 is no number of rows"),
    (lambda t: t.group_by("k").over("n", r=dd.sum("n").rows_between(0, 1, exclude=ALL)), "exclude is 'all'"),
    (lambda t: t.group_by("k").over(["n"], descending=[True, False], r=dd.rank()), "1 columns, and descending has 2"),
    (lambda t: t.group_by("k").agg(r=dd.sum("n").rows_between(0, 1)), "frames are of rows in an order"),
    (lambda t: t.group_by("k").agg(r=dd.variance("n").rows_between(0, 1)), "frames are of rows in an order"),
    (lambda t: t.group_by("k").over("n", r=dd.median("d")), "there is no median of date"),
    (lambda t: t.group_by("k").over("n", r=distinct(dd.min("d"))), "there is no min of distinct values of a frame"),
    (lambda t: t.group_by("k").agg(r=distinct(dd.sum("n"))), "frames are of rows in an order"),
    (lambda t: t.group_by("k").over("n", r=dd.variance("d")), "there is no variance of date"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes(mistake: Any, message: str) -> None:
    schema = {"k": pl.String(), "n": pl.Int64(), "d": pl.Date(), "l": pl.List(pl.Int64)}
    with pytest.raises(ProgramError, match=r"test_over\.py") as error:
        build(lambda t: {"out": mistake(t)}, {"t": schema})
    assert message in error.value.message
    assert error.value.hint
