"""Aggregates: the table and what must go with each row of it, literal cases, exact means, conditions, bad arguments.

Means are checked against Python's fractions. ``DDCORE_SEEDS=731-732`` runs those seeds.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import folding
import numpy as np
import polars as pl
import programs
import pytest
import registry
from choices import Choices
from notation import frame, log
from seeds import seeds
from test_floats import COUNTS, GREATEST, LEAST, draw, merged, same

import ddcore as dd
from ddcore import reference
from ddcore.base.errors import NegativeMultiplicity, ProgramError
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.kernels import means
from ddcore.operators.aggregates import AGGREGATES
from ddcore.operators.gathering import GATHERED
from ddcore.reference.gathered import DEFINITIONS

col = pl.col
FOLDS = [folding.by_reference, folding.whole, folding.one_time_each]
Part = tuple[Any, int]


# The table


def test_each_aggregate_has_a_meaning_a_generator_and_a_name() -> None:
    assert reference.MEANINGS.keys() == AGGREGATES.keys() and DEFINITIONS.keys() == GATHERED.keys()
    assert programs.AGGREGATES.keys() == AGGREGATES.keys() | GATHERED.keys()
    assert all(name in dir(dd) and getattr(dd, name).__doc__ for name in (*AGGREGATES, *GATHERED))


def test_the_table_is_the_registry() -> None:
    """Whose tests require each aggregate in random programs and in the documentation."""
    assert {*registry.aggregates()} == {f"dd.{name}" for name in (*AGGREGATES, *GATHERED)}


def test_random_programs_have_conditions_of_each_aggregate() -> None:
    missing = {*AGGREGATES, *GATHERED}
    for seed in range(4_000):
        source = programs.Writer(Choices.of_seed(seed)).program(programs.INPUTS)
        missing.difference_update(re.findall(r"=dd\.(\w+)\((?:(?!=dd\.).)*?where=", source))
        if not missing:
            return
    assert not missing


# Literal cases: updates and the log of the aggregate of v by k, in one, two and three coordinates

CASES: dict[str, tuple[Any, dict[int, tuple[str, str]]]] = {
    "mean": (
        lambda: dd.mean("v"),
        {
            1: (
                "(k,1):+1@0 (k,2),(k,null):+1@1 (k,1):-1@2 (k,2):-1@3 (k,null):-1@4",
                "(k,1.0):+1@0 (k,1.0):-1,(k,1.5):+1@1 (k,1.5):-1,(k,2.0):+1@2 (k,2.0):-1,(k,null):+1@3 (k,null):-1@4",
            ),
            2: (
                "(k,1):+1@(0,1) (k,4):+1@(1,0)",
                "(k,1.0):+1@(0,1) (k,4.0):+1@(1,0) (k,1.0),(k,4.0):-1,(k,2.5):+1@(1,1)",
            ),
            3: (
                "(k,0):+1@(1,0,0) (k,3):+1@(0,1,0) (k,9):+1@(0,0,1)",
                "(k,0.0):+1@(1,0,0) (k,3.0):+1@(0,1,0) (k,9.0):+1@(0,0,1)"
                "(k,0.0),(k,3.0):-1,(k,1.5):+1@(1,1,0) (k,0.0),(k,9.0):-1,(k,4.5):+1@(1,0,1)"
                "(k,3.0),(k,9.0):-1,(k,6.0):+1@(0,1,1)"
                "(k,0.0),(k,3.0),(k,9.0):+1,(k,1.5),(k,4.5),(k,6.0):-1,(k,4.0):+1@(1,1,1)",
            ),
        },
    ),
    "count_distinct": (
        lambda: dd.count_distinct("v"),
        {
            1: (
                "(k,a):+2@0 (k,b),(k,null):+1@1 (k,a):-1@2 (k,a):-1@3 (k,b):-1@4 (k,null):-1@5",
                "(k,1):+1@0 (k,1):-1,(k,2):+1@1 (k,2):-1,(k,1):+1@3 (k,1):-1,(k,0):+1@4 (k,0):-1@5",
            ),
            2: ("(k,a):+1@(0,1) (k,a):+1@(1,0)", "(k,1):+1@(0,1) (k,1):+1@(1,0) (k,1):-1@(1,1)"),
            3: (
                "(k,a):+1@(1,0,0) (k,b):+1@(0,1,0) (k,a):+1@(0,0,1)",
                "(k,1):+1@(1,0,0) (k,1):+1@(0,1,0) (k,1):+1@(0,0,1) (k,1):-2,(k,2):+1@(1,1,0) (k,1):-1@(1,0,1)"
                "(k,1):-2,(k,2):+1@(0,1,1) (k,1):+2,(k,2):-1@(1,1,1)",
            ),
        },
    ),
    "any": (
        lambda: dd.any(col("v") > 2),
        {
            1: (
                "(k,1),(j,null):+1@0 (k,3):+1@1 (k,3):-1@2 (k,1):-1@3",
                "(k,0),(j,null):+1@0 (k,0):-1,(k,1):+1@1 (k,1):-1,(k,0):+1@2 (k,0):-1@3",
            ),
            2: ("(k,1):+1@(0,1) (k,3):+1@(1,0)", "(k,0):+1@(0,1) (k,1):+1@(1,0) (k,0):-1@(1,1)"),
            3: (
                "(k,1):+1@(1,0,0) (k,3):+1@(0,1,0) (k,null):+1@(0,0,1)",
                "(k,0):+1@(1,0,0) (k,1):+1@(0,1,0) (k,null):+1@(0,0,1) (k,0):-1@(1,1,0) (k,null):-1@(1,0,1)"
                "(k,null):-1@(0,1,1) (k,null):+1@(1,1,1)",
            ),
        },
    ),
    "all": (
        lambda: dd.all(col("v") > 2),
        {
            1: (
                "(k,3),(j,null):+1@0 (k,1):+1@1 (k,1):-1@2 (k,3):-1@3",
                "(k,1),(j,null):+1@0 (k,1):-1,(k,0):+1@1 (k,0):-1,(k,1):+1@2 (k,1):-1@3",
            ),
            2: ("(k,1):+1@(0,1) (k,3):+1@(1,0)", "(k,0):+1@(0,1) (k,1):+1@(1,0) (k,1):-1@(1,1)"),
            3: (
                "(k,1):+1@(1,0,0) (k,3):+1@(0,1,0) (k,null):+1@(0,0,1)",
                "(k,0):+1@(1,0,0) (k,1):+1@(0,1,0) (k,null):+1@(0,0,1) (k,1):-1@(1,1,0) (k,null):-1@(1,0,1)"
                "(k,null):-1@(0,1,1) (k,null):+1@(1,1,1)",
            ),
        },
    ),
    "count where": (
        lambda: dd.count(where="v > 2"),
        {
            1: (
                "(k,1),(k,null):+1@0 (k,3):+2@1 (k,1),(k,null):-1@2 (k,3):-2@3",
                "(k,0):+1@0 (k,0):-1,(k,2):+1@1 (k,2):-1@3",
            ),
            2: ("(k,1):+1@(0,1) (k,3):+1@(1,0)", "(k,0):+1@(0,1) (k,1):+1@(1,0) (k,0):-1@(1,1)"),
            3: (
                "(k,3):+1@(1,0,0) (k,1):+1@(0,1,0) (k,4):+1@(0,0,1)",
                "(k,1):+1@(1,0,0) (k,0):+1@(0,1,0) (k,1):+1@(0,0,1) (k,0):-1@(1,1,0) (k,1):-2,(k,2):+1@(1,0,1)"
                "(k,0):-1@(0,1,1) (k,0):+1@(1,1,1)",
            ),
        },
    ),
    "bit_or": (
        lambda: dd.bit_or("v"),
        {
            1: (
                "(k,1):+1@0 (k,6),(k,null):+1@1 (k,1):-1@2 (k,6):-1@3",
                "(k,1):+1@0 (k,1):-1,(k,7):+1@1 (k,7):-1,(k,6):+1@2 (k,6):-1,(k,null):+1@3",
            ),
            2: (
                "(k,1):+1@(0,1) (k,6):+1@(1,0)",
                "(k,1):+1@(0,1) (k,6):+1@(1,0) (k,1),(k,6):-1,(k,7):+1@(1,1)",
            ),
            3: (
                "(k,1):+1@(1,0,0) (k,2):+1@(0,1,0) (k,4):+1@(0,0,1)",
                "(k,1):+1@(1,0,0) (k,2):+1@(0,1,0) (k,4):+1@(0,0,1)"
                "(k,1),(k,2):-1,(k,3):+1@(1,1,0) (k,1),(k,4):-1,(k,5):+1@(1,0,1)"
                "(k,2),(k,4):-1,(k,6):+1@(0,1,1)"
                "(k,1),(k,2),(k,4):+1,(k,3),(k,5),(k,6):-1,(k,7):+1@(1,1,1)",
            ),
        },
    ),
    "variance": (
        lambda: dd.variance("v", population=True),
        {
            1: (
                "(k,1):+1@0 (k,3):+1@1 (k,null):+1@2 (k,1):-1@3",
                "(k,0.0):+1@0 (k,0.0):-1,(k,1.0):+1@1 (k,1.0):-1,(k,0.0):+1@3",
            ),
            2: (
                "(k,1):+1@(0,1) (k,5):+1@(1,0)",
                "(k,0.0):+1@(0,1) (k,0.0):+1@(1,0) (k,0.0):-2,(k,4.0):+1@(1,1)",
            ),
            3: (
                "(k,0):+1@(1,0,0) (k,6):+1@(0,1,0) (k,3):+1@(0,0,1)",
                "(k,0.0):+1@(1,0,0) (k,0.0):+1@(0,1,0) (k,0.0):+1@(0,0,1) (k,0.0):-2,(k,9.0):+1@(1,1,0)"
                "(k,0.0):-2,(k,2.25):+1@(1,0,1) (k,0.0):-2,(k,2.25):+1@(0,1,1)"
                "(k,0.0):+3,(k,9.0):-1,(k,2.25):-2,(k,6.0):+1@(1,1,1)",
            ),
        },
    ),
    "median": (
        lambda: dd.median("v"),
        {
            1: (
                "(k,1),(k,4):+1@0 (k,7):+2@1 (k,1):-1@2",
                "(k,2.5):+1@0 (k,2.5):-1,(k,5.5):+1@1 (k,5.5):-1,(k,7.0):+1@2",
            ),
            2: (
                "(k,1):+1@(0,1) (k,4):+1@(1,0)",
                "(k,1.0):+1@(0,1) (k,4.0):+1@(1,0) (k,1.0),(k,4.0):-1,(k,2.5):+1@(1,1)",
            ),
            3: (
                "(k,1):+1@(1,0,0) (k,2):+1@(0,1,0) (k,6):+1@(0,0,1)",
                "(k,1.0):+1@(1,0,0) (k,2.0):+1@(0,1,0) (k,6.0):+1@(0,0,1)"
                "(k,1.0),(k,2.0):-1,(k,1.5):+1@(1,1,0) (k,1.0),(k,6.0):-1,(k,3.5):+1@(1,0,1)"
                "(k,2.0),(k,6.0):-1,(k,4.0):+1@(0,1,1)"
                "(k,1.0),(k,2.0),(k,6.0):+1,(k,1.5),(k,3.5),(k,4.0):-1,(k,2.0):+1@(1,1,1)",
            ),
        },
    ),
    "string_agg": (
        lambda: dd.string_agg("v", ""),
        {
            1: (
                "(k,b):+2@0 (k,a):+1@1 (k,b):-1,(k,null):+1@2 (k,a),(k,b):-1@3",
                "(k,bb):+1@0 (k,bb):-1,(k,abb):+1@1 (k,abb):-1,(k,ab):+1@2 (k,ab):-1,(k,null):+1@3",
            ),
            2: (
                "(k,a):+1@(0,1) (k,b):+1@(1,0)",
                "(k,a):+1@(0,1) (k,b):+1@(1,0) (k,a),(k,b):-1,(k,ab):+1@(1,1)",
            ),
            3: (
                "(k,a):+1@(1,0,0) (k,b):+1@(0,1,0) (k,c):+1@(0,0,1)",
                "(k,a):+1@(1,0,0) (k,b):+1@(0,1,0) (k,c):+1@(0,0,1)"
                "(k,a),(k,b):-1,(k,ab):+1@(1,1,0) (k,a),(k,c):-1,(k,ac):+1@(1,0,1)"
                "(k,b),(k,c):-1,(k,bc):+1@(0,1,1)"
                "(k,a),(k,b),(k,c):+1,(k,ab),(k,ac),(k,bc):-1,(k,abc):+1@(1,1,1)",
            ),
        },
    ),
}


@pytest.mark.parametrize("fold", FOLDS, ids=lambda fold: fold.__name__)
@pytest.mark.parametrize("coordinates", [1, 2, 3])
@pytest.mark.parametrize("name", CASES)
def test_literal_cases(name: str, coordinates: int, fold: folding.Fold) -> None:
    aggregate, cases = CASES[name]
    updates, expected = cases[coordinates]

    def program(rows: Any) -> dict[str, Any]:
        out = rows.group_by("k").agg(x=aggregate())
        return {"out": out.with_columns(x=col("x").cast(pl.Int64)) if name in ("any", "all") else out}

    assert fold(program, rows=frame("k v", updates))["out"] == log(expected)


# Statistics and orders: one table, and what each gives of its groups

GATHERED_CASES: dict[str, tuple[Any, ...]] = {
    'dd.variance("n")': (7 / 3, None),
    'dd.stddev("m", population=True)': (math.sqrt(1.5), 0.0),
    'dd.variance("huge", population=True)': ((2**62 - 1) ** 2 / 4, 0.0),
    'dd.variance("x")': (math.nan, None),
    'dd.variance("x", where="n < 3")': (0.125, None),
    'dd.covariance("n", "m")': (0.75, None),
    'dd.corr("n", "m")': (1.0, None),
    'dd.corr("n", "n")': (1.0, None),
    'dd.regression("m", "n")': (1.5, None),
    'dd.regression("m", "n", "intercept")': (-1.0, None),
    'dd.regression("m", "n", "r2")': (1.0, None),
    'dd.regression("m", "n", "sxy")': (0.75, 0.0),
    'dd.median("n")': (2.0, 9.0),
    'dd.quantile("s", 0.6)': ("b", None),
    'dd.quantile("n", 0.75, between=True)': (3.0, 9.0),
    'dd.mode("s")': ("b", None),
    'dd.mode("n")': (1, 9),
    'dd.min_by("s", "n")': ("b", None),
    'dd.max_by("n", "s")': (4, None),
    'dd.bit_and("n")': (0, 9),
    'dd.bit_xor("n")': (7, 9),
    'dd.string_agg("s", "+", order_by="n", descending=True)': ("c+b+b", None),
    'dd.string_agg("s", "+", distinct=True)': ("b+c", None),
    'dd.array_agg("n", order_by=["s", "n"], descending=[False, True], nulls_first=True)': ((None, 2, 1, 4), (9,)),
    'dd.array_agg("s", distinct=True)': (("b", "c", None), (None,)),
    'dd.array_agg("n", where="n > 3")': ((4,), (9,)),
}
"""By its call, the result for the group a and for the group null."""


@pytest.mark.parametrize("fold", FOLDS[:2], ids=lambda fold: fold.__name__)
def test_statistics_and_orders(fold: folding.Fold) -> None:
    """All of them at once, beside a plain one; the two groups meet by a key that is null."""
    rows = pl.DataFrame(
        [
            ("a", 1, Decimal("0.50"), 0.5, "b", 1), ("a", 2, Decimal("2.00"), 1.0, "b", 2**62),
            ("a", 4, None, math.inf, "c", None), ("a", None, Decimal("3.50"), None, None, None),
            (None, 9, Decimal("1.00"), 2.0, None, 3),
        ],
        schema={
            "k": pl.String, "n": pl.Int64, "m": pl.Decimal(10, 2), "x": pl.Float64, "s": pl.String, "huge": pl.Int64,
        },
        orient="row",
    ).with_columns(version=pl.lit(0, dtype=pl.Int64), diff=pl.lit(1, dtype=pl.Int64))  # fmt: skip
    calls = {f"r{number}": eval(call) for number, call in enumerate(GATHERED_CASES)}
    log = fold(lambda rows: {"out": rows.group_by("k").agg(rows=dd.count(), **calls)}, rows=rows)["out"]
    found = {row[0]: row[1:] for row, _ in log}
    assert found["a"][0] == 4 and found[None][0] == 1
    for index, (call, (one, other)) in enumerate(GATHERED_CASES.items(), 1):
        for key, wanted in (("a", one), (None, other)):
            actual = found[key][index]
            close = pytest.approx(wanted, rel=1e-15, nan_ok=True) if isinstance(wanted, float) else wanted
            assert actual == close, f"{call} of {key}: {actual}, not {wanted}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('dd.variance("s")', "there is no variance of string, only of int64, float64, decimal"),
        ('dd.corr("n", "s")', "there is no corr of string, only of int64, float64, decimal"),
        ('dd.bit_or(col("n") * 0.5)', "there is no bit_or of float64, only of int64"),
        ('dd.string_agg("n", ",")', "there is no string_agg of int64, only of string"),
        ('dd.quantile("n", 2)', "quantile: the fraction is 2"),
        ('dd.string_agg("s", 1)', "string_agg: the separator is 1"),
        ('dd.array_agg("s", order_by="n", descending=[True, False])', "array_agg: 1 columns, and descending has 2"),
        ('dd.regression("n", "n", "slop")', "regression: of"),
        ('dd.median("n", where="n + 1")', "agg(x=...), where=: the condition n + 1"),
        ('dd.median("n", population=True)', "unexpected keyword"),
    ],
)
def test_mistakes_of_statistics_and_orders(call: str, message: str) -> None:
    rows = pl.DataFrame({"s": ["a"], "n": [1], "version": 0, "diff": 1})
    with pytest.raises((ProgramError, TypeError), match=re.escape(message)):
        dd.replay(lambda rows: {"out": rows.group_by().agg(x=eval(call))}, rows=rows)
    with pytest.raises(ProgramError, match="there is no median with allow_negative"):
        dd.replay(lambda rows: {"out": rows.group_by().agg(x=dd.median("n"), allow_negative=True)}, rows=rows)


NAN = float("nan")


@pytest.mark.parametrize("fold", FOLDS[:2], ids=lambda fold: fold.__name__)
def test_floats_that_are_one_value(fold: folding.Fold) -> None:
    """NaN is one value, 0.0 and -0.0 are one; beside another aggregate, whose values sort the rows first."""
    rows = pl.DataFrame(
        {"w": [3, 1, 2, 2, 1, 3], "v": [NAN, -0.0, NAN, 0.0, None, -NAN], "version": 0, "diff": 1}, strict=False
    )

    def program(rows: Any) -> dict[str, Any]:
        groups = rows.group_by()
        return {
            "alone": groups.agg(n=dd.count_distinct("v")),
            "two": groups.agg(w=dd.max("w"), n=dd.count_distinct("v")),
        }

    actual = fold(program, rows=rows)
    assert actual == {"alone": {((2,), (0,)): 1}, "two": {((3, 2), (0,)): 1}}


@pytest.mark.parametrize("fold", FOLDS[:2], ids=lambda fold: fold.__name__)
def test_distinct_values_with_negative_counts(fold: folding.Fold) -> None:
    """A value counts by the sum over its rows; the group is there while one of its rows is."""
    rows = frame("v w", "(1,1):+1@0 (1,2):-1@0 (2,1):+3@0 (2,2):-2@0 (3,1):-4@0")

    def program(rows: Any) -> dict[str, Any]:
        groups = rows.group_by()
        return {"out": groups.agg(n=dd.count_distinct("v"), m=dd.count_distinct("w"), allow_negative=True)}

    assert fold(program, rows=rows)["out"] == {((1, 0), (0,)): 1}
    with pytest.raises(NegativeMultiplicity):
        fold(lambda rows: {"out": rows.group_by().agg(n=dd.count_distinct("v"))}, rows=rows)


@pytest.mark.parametrize("name", ["mean", "count_distinct", "any", "all"])
@pytest.mark.parametrize("fold", FOLDS[:2], ids=lambda fold: fold.__name__)
def test_negative_counts_are_refused(fold: folding.Fold, name: str) -> None:
    """Also of rows that the condition leaves out."""
    rows = pl.DataFrame({"k": [1, 1], "v": [True, False], "version": 0, "diff": [1, -1]})
    argument = col("v").cast(pl.Int64) if name == "mean" else "v"
    with pytest.raises(NegativeMultiplicity, match="agg"):
        fold(lambda rows: {"out": rows.group_by("k").agg(x=getattr(dd, name)(argument, where="v"))}, rows=rows)


# Exact means


def exact_mean(parts: Iterable[Part]) -> float:
    """The sum of value times count, by the number of values; by its definition."""
    present = [(value, count) for value, count in parts if count]
    number = sum(count for _, count in present)
    special = [value * math.copysign(1, count) for value, count in present if not math.isfinite(value)]
    if special:
        return float(sum(special) * math.copysign(1, number))
    mean = sum((Fraction(value) * count for value, count in present), Fraction(0)) / number
    try:
        return float(mean) + 0.0
    except OverflowError:
        return math.inf if mean > 0 else -math.inf


def integer(rng: random.Random) -> int:
    return rng.choice([rng.randint(-9, 9), rng.randint(-(2**63) + 1, 2**63 - 1), 2**63 - 1, -(2**63) + 1, 2**53 + 1])


def decimal(rng: random.Random, scale: int) -> Decimal:
    return Decimal(rng.choice([rng.randint(-9, 9), rng.randint(-(10**18) + 1, 10**18 - 1), 10**18 - 1])).scaleb(-scale)


DRAWN: dict[str, tuple[Any, Callable[[random.Random], Any]]] = {
    "int64": (pl.Int64(), integer),
    "float64": (pl.Float64(), draw),
    "decimal(18,2)": (pl.Decimal(18, 2), lambda rng: decimal(rng, 2)),
    "decimal(18,12)": (pl.Decimal(18, 12), lambda rng: decimal(rng, 12)),
    "decimal(18,18)": (pl.Decimal(18, 18), lambda rng: decimal(rng, 18)),
}


def alone(rows: Any) -> dict[str, Any]:
    return {"out": rows.group_by("k").agg(s=dd.mean("v"), allow_negative=True)}


def beside(rows: Any) -> dict[str, Any]:
    groups = rows.group_by("k").agg(n=dd.mean("k"), s=dd.mean("v"), allow_negative=True)
    return {"out": groups.select("k", "s")}


def frame_of(dtype: Any, updates: Iterable[tuple[int, Any, int, int]]) -> pl.DataFrame:
    schema = {"k": pl.Int64(), "v": dtype, "version": pl.Int64(), "diff": pl.Int64()}
    return pl.DataFrame(list(updates), schema=schema, orient="row")


def at(log: dict[Any, int], version: int = 0) -> dict[int, float]:
    """What holds at a version, by group."""
    total = {row: 0 for row, _ in log}
    for (row, (when,)), diff in log.items():
        total[row] += diff if when <= version else 0
    return {row[0]: row[1] for row, diff in total.items() if diff}


def counted(parts: Iterable[Part]) -> list[Part]:
    """Counts of equal values added up."""
    parts = list(parts)
    if any(isinstance(value, float) for value, _ in parts):
        return [*merged(parts)]
    counts: dict[Any, int] = {}
    for value, count in parts:
        counts[value] = counts.get(value, 0) + count
    return [*counts.items()]


@pytest.mark.parametrize("program", [alone, beside])
@pytest.mark.parametrize("kind", DRAWN)
def test_means_are_those_of_fractions(kind: str, program: Any) -> None:
    dtype, value = DRAWN[kind]
    groups: dict[int, list[Part]] = {}
    for seed in (10 * seed + more for seed in seeds(64) for more in range(10)):
        rng = random.Random(f"{kind} {seed}")
        parts = [(value(rng), rng.choice([*COUNTS, 3, 7, 10**6])) for _ in range(rng.randint(1, 6))]
        counts = [count for _, count in counted(parts)]
        if sum(counts) != 0 and all(-(2**63) <= count < 2**63 for count in counts):
            groups[seed] = parts
    rows = frame_of(dtype, ((seed, value, 0, count) for seed, parts in groups.items() for value, count in parts))
    actual = at(folding.whole(program, rows=rows)["out"])
    assert len(actual) == len(groups) > 5 * len(seeds(64))
    wrong = [seed for seed, parts in groups.items() if not same(actual[seed], exact_mean(counted(parts)))]
    assert not wrong, (
        f"seeds {wrong[:5]}: {[(groups[s], actual[s], exact_mean(counted(groups[s]))) for s in wrong[:3]]}"
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("seed", range(3))
def test_means_of_large_groups(kind: str, seed: int) -> None:
    """Swept over many versions: what comes and goes leaves no trace in later means."""
    rng = random.Random(f"{kind} {seed}")
    dtype, value = DRAWN[kind]
    updates = [(0, value(rng), 0, 2**62)]
    for _ in range(120):
        item, come, count = value(rng), rng.randrange(30), rng.choice([1, 1, 2, -1, 2**50])
        if kind == "float64" and rng.random() < 0.1:
            item = rng.choice([math.inf, -math.inf, math.nan])
        updates.append((0, item, come, count))
        if rng.random() < 0.9:
            updates.append((0, item, rng.randint(come, 30), -count))
    rows = frame_of(dtype, updates)
    expected = folding.by_reference(alone, rows=rows)
    assert folding.whole(alone, rows=rows) == expected, f"seed {seed}"
    assert folding.randomly_cut(alone, rows=rows, seed=seed) == expected, f"seed {seed}"
    for version in sorted({version for _, _, version, _ in updates}):
        parts = counted((value, count) for _, value, when, count in updates if when <= version)
        assert same(at(expected["out"], version)[0], exact_mean(parts)), f"seed {seed}, version {version}"


@pytest.mark.parametrize(
    ("parts", "mean"),
    [
        ([(2**63 - 1, 3)], float(2**63)),  # the sum is more than int64 holds
        ([(2**62, 1), (-(2**62), 1), (1, 1)], 1 / 3),
        ([(2**53 + 1, 1)], float(2**53)),  # a tie, to even
        ([(2**53 + 1, 2), (2**53 + 2, 1)], 2.0**53 + 2),  # a sum rounded before the division gives 2**53
        ([(1, 2**62), (0, 2**63 - 1)], 1 / 3),
        ([(5, -(2**63)), (1, 1)], 5.0),
        ([(1, 1), (2, -3)], 2.5),
        ([(GREATEST, 2), (GREATEST / 2, 2)], GREATEST * 0.75),  # the sum is more than any float
        ([(GREATEST, 3)], GREATEST),
        ([(GREATEST, -1), (0.0, 2)], -GREATEST),
        ([(GREATEST, 2), (0.0, -1)], math.inf),
        ([(LEAST, 1), (0.0, 1)], 0.0),  # a tie, to even
        ([(LEAST, 3), (0.0, 1)], LEAST),
        ([(-LEAST, 1), (0.0, 5)], 0.0),  # never -0.0
        ([(0.1, 3)], 0.1),
        ([(0.1, 1), (0.2, 1), (0.3, 1)], 0.2),
        ([(math.inf, 2), (1.0, 1)], math.inf),
        ([(math.inf, -2), (1.0, 1)], math.inf),  # less infinity, by a count below 0
        ([(math.inf, 1), (-math.inf, 1), (1.0, 1)], math.nan),
        ([(math.nan, 1), (1.0, 1)], math.nan),
        ([(Decimal("0.01"), 1), (Decimal("0.02"), 2)], 0.05 / 3),
        ([(Decimal("999999999999999.99"), 7)], 999999999999999.99),
    ],
)
@pytest.mark.parametrize("program", [alone, beside])
def test_one_mean(program: Any, parts: list[Part], mean: float) -> None:
    """By the reference, in a small group, and in one that is swept."""
    assert same(exact_mean(counted(parts)), mean)
    dtype = {int: pl.Int64(), float: pl.Float64(), Decimal: pl.Decimal(18, 2)}[type(parts[0][0])]
    rows = frame_of(dtype, [(0, value, 0, count) for value, count in parts])
    padding = [(0, parts[0][0], version, 1 if version % 2 else -1) for version in range(1, 61)]
    swept = pl.concat([frame_of(dtype, padding), rows.with_columns(version=pl.lit(61, pl.Int64))])
    for fold, history, version in [
        (folding.by_reference, rows, 0), (folding.whole, rows, 0), (folding.whole, swept, 61),
    ]:  # fmt: skip
        assert same(at(fold(program, rows=history)["out"], version)[0], mean), fold


def test_a_remainder_beyond_all_digits() -> None:
    """A quotient above the middle of two floats by less than the digits show: the remainder decides."""
    middle = 17943724029060225  # 54 bits, odd, divides 2**180 - 1
    number = (2**180 - 1) // middle  # so 1 / number is middle * 2**-180 and a little more
    digits = np.zeros(means.DIGITS, dtype=np.int64)
    one = np.int64(0), np.uint64(0), np.uint64(1)
    mean = means.mean_of_integers.dispatcher  # compiled: unsigned words wrap around
    for factor, expected in ((1, 1 / number), (-1, -1 / number)):
        high, low = np.int64(factor * number >> 64), np.uint64(factor * number & (2**64 - 1))
        word = mean(*one, np.int64(1), high, low, digits)
        assert encoding.decode(np.array([word]), Type("float64"))[0] == expected == float(Fraction(factor, number))
    assert 1 / number == (middle + 1) // 2 * 2.0**-179


# Conditions


@pytest.mark.parametrize("fold", FOLDS, ids=lambda fold: fold.__name__)
def test_a_group_whose_rows_are_all_left_out(fold: folding.Fold) -> None:
    rows = frame("k v", "(1,1),(1,null):+1@0 (1,5):+1@1 (1,1),(1,null),(1,5):-1@2")

    def program(rows: Any) -> dict[str, Any]:
        if_large = {"where": col("v") > 2}
        aggregates = {
            name: getattr(dd, name)("v", **if_large) for name in ("sum", "mean", "min", "max", "count_distinct")
        }
        truths = {name: getattr(dd, name)(col("v") > 4, **if_large) for name in ("any", "all")}
        return {"out": rows.group_by("k").agg(n=dd.count(), m=dd.count(**if_large), **aggregates, **truths)}

    empty, full = (1, 2, 0, 0, None, None, None, 0, None, None), (1, 3, 1, 5, 5.0, 5, 5, 1, True, True)
    assert fold(program, rows=rows)["out"] == {
        (empty, (0,)): 1, (empty, (1,)): -1, (full, (1,)): 1, (full, (2,)): -1,
    }  # fmt: skip


@pytest.mark.parametrize("fold", FOLDS[:2], ids=lambda fold: fold.__name__)
def test_conditions_of_several_aggregates(fold: folding.Fold) -> None:
    """Each has its own, text is SQL, and a condition keeps bad values away from what would fail on them."""
    rows = pl.DataFrame(
        {
            "w": ["a", "b", "c", None],
            "m": [Decimal("1.50"), Decimal("2.25"), None, Decimal(4)],
            "version": 0,
            "diff": 1,
        },
        schema_overrides={"m": pl.Decimal(10, 2)},
    )

    def program(rows: Any) -> dict[str, Any]:
        return {
            "out": rows.group_by().agg(
                a=dd.min("m", where="w <> 'a'"), b=dd.sum("m", where=col("w").is_null()), c=dd.max("w", where="m > 2"),
                d=dd.count(where=True), e=dd.sum(col("m").cast(pl.Int64) * 2**62, where="m < 2"),
            )
        }  # fmt: skip

    assert fold(program, rows=rows)["out"] == {((Decimal("2.25"), Decimal(4), "b", 4, 2**62), (0,)): 1}


def test_a_condition_keeps_the_type_of_the_argument() -> None:
    inputs = {"rows": {"k": "int64", "m": "decimal(10,2)", "f": "float64", "w": "string", "b": "bool", "d": "date"}}
    types: dict[str, Any] = {}

    def program(rows: Any) -> dict[str, Any]:
        for name, rule in AGGREGATES.items():
            for column, kind in rows.schema.items():
                if kind.name in rule.takes:
                    plain, filtered = (getattr(dd, name)(column, where=where) for where in (None, "k > 1"))
                    types[f"{name} {column}"] = rows.group_by().agg(x=plain, y=filtered).schema
        return {"rows": rows}

    dd.Session(program, inputs)
    assert len(types) == 3 * 6 + 2 * 3 + 2
    assert [name for name, schema in types.items() if schema["x"] != schema["y"]] == []
    assert {str(types[f"mean {column}"]["x"]) for column in "kmf"} == {"float64"}


def test_one_arrangement_for_equal_arguments() -> None:
    """A plain column keeps its name; equal expressions, also under equal conditions, are one column."""

    def program(rows: Any) -> dict[str, Any]:
        groups = rows.group_by("k")
        return {
            "one": groups.agg(x=dd.sum("v"), y=dd.mean("v"), z=dd.count_distinct("v")),
            "two": groups.agg(x=dd.max("v"), n=dd.count()),
            "three": groups.agg(x=dd.max("v", where="v > 2"), y=dd.sum("v", where=col("v") > 2)),
        }

    plan = dd.Session(program, {"rows": {"k": "int64", "v": "int64"}}).plan
    ports = {block.ports[0] for block in plan.blocks if block.op == "agg"}  # the others are of large groups
    assert len(ports) == 2
    assert {tuple(plan.arrangements[port].values) for port in ports} == {("v",), ("_argument_0",)}


# Bad arguments: each is an error of the line, when the program is built

WRONG: dict[str, tuple[Any, str, str]] = {
    "no name": (lambda g: g.agg(dd.count()), "agg: the aggregate count has no name", "agg(n=dd.count())"),
    "no name, no aggregate": (lambda g: g.agg(col("v").sum()), "agg: Expr has no name", "agg(n=dd.count())"),
    "an expression": (lambda g: g.agg(x=col("v").sum()), "agg(x=...) is Expr, not an aggregate", "dd.sum("),
    "nothing": (lambda g: g.agg(), "agg() names no aggregate", "agg(n=dd.count())"),
    "count of a column": (lambda g: g.agg(x=dd.count("v")), "count() takes no column", "is_not_null()"),
    "a key": (lambda g: g.agg(k=dd.count()), "k is a key already", "another name"),
    "sum of text": (lambda g: g.agg(x=dd.sum("w")), "agg(x=...): there is no sum of string", "cast"),
    "sum of bool": (lambda g: g.agg(x=dd.sum(col("v") > 1)), "there is no sum of bool", "cast"),
    "mean of text": (lambda g: g.agg(x=dd.mean("w")), "agg(x=...): there is no mean of string", "cast"),
    "mean of dates": (lambda g: g.agg(x=dd.mean("d")), "there is no mean of date", "cast"),
    "any of numbers": (lambda g: g.agg(x=dd.any("v")), "agg(x=...): there is no any of int64", "compare"),
    "all of text": (lambda g: g.agg(x=dd.all("w")), "there is no all of string", "compare"),
    "condition": (lambda g: g.agg(x=dd.sum("v", where="v + 1")), "x=...), where=: the condition v + 1 is", "compare"),
    "condition of count": (lambda g: g.agg(x=dd.count(where=3)), "agg(x=...), where=: the condition 3 is", "compare"),
    "no such column": (lambda g: g.agg(x=dd.mean("vv")), "agg(x=...): there is no column vv", "did you mean 'v'?"),
    "no such column in a condition": (
        lambda g: g.agg(x=dd.count(where=col("ww") > 1)), "agg(x=...), where=: there is no column ww", "mean 'w'?",
    ),
    "text that is no SQL": (lambda g: g.agg(x=dd.count(where="((")), "cannot read the SQL text", "SQL"),
    "several columns": (lambda g: g.agg(x=dd.mean(pl.all())), "agg(x=...): one expression is wanted", "by itself"),
    "several conditions": (
        lambda g: g.agg(x=dd.count(where=pl.col("v", "k") > 1)), "where=: one expression is wanted", "all_horizontal",
    ),
    "no map of rows": (lambda g: g.agg(x=dd.count(where=col("v").sum() > 1)), "where=: ", "reduce"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bad_arguments(case: str) -> None:
    aggregate, message, hint = WRONG[case]
    schema = {"k": "int64", "v": "int64", "w": "string", "d": "date"}
    with pytest.raises(ProgramError) as caught:
        dd.Session(lambda rows: {"out": aggregate(rows.group_by("k"))}, {"rows": schema})
    line = WRONG[case][0].__code__.co_firstlineno
    assert re.match(rf"test_aggregates\.py:({line}|{line + 1}): ", caught.value.message), caught.value.message
    assert message in caught.value.message and "\n" not in caught.value.message
    assert hint in caught.value.hint
