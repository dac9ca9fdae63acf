"""Quotients and means of decimals as Spark has them: types, digits, ties, and what is an error."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from folding import by_reference, randomly_cut, whole
from polars import col

import ddcore as dd
from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.sql import program

A, B, E = pl.Decimal(12, 2), pl.Decimal(10, 0), pl.Decimal(3, 0)
SUMMED = ["1.00", "2.00", "2.00", "0.01", "0.02", "-0.05", "-0.06", None]
ROWS = pl.DataFrame(
    {"g": [1, 1, 1, 2, 2, 3, 3, 4], "a": [value and Decimal(value) for value in SUMMED]}, {"g": pl.Int64, "a": A}
).with_columns(version=0, diff=1)


def view(select: str, rows: pl.DataFrame = ROWS) -> pl.DataFrame:
    return dd.replay(program(f"CREATE VIEW o AS SELECT {select}", dialect="spark"), t=rows)["o"].drop("version", "diff")


def one(expression: str, **values: Any) -> Decimal:
    """What Spark's dialect gives for one row of columns a, b, e."""
    row = pl.DataFrame({name: [Decimal(value)] for name, value in values.items()}, {"a": A, "b": B, "e": E})
    (result,) = view(f"{expression} AS v FROM t", row.with_columns(version=0, diff=1))["v"]
    return Decimal(result)


# Spark 4.2.0 gives these types and means
MEANS = {1: "1.666667", 2: "0.015000", 3: "-0.055000", 4: None}


def test_means_are_decimals_of_four_more_digits() -> None:
    rows = view("g, avg(a) AS v FROM t GROUP BY g")
    assert rows.schema["v"] == pl.Decimal(16, 6)
    assert dict(rows.rows()) == {g: mean and Decimal(mean) for g, mean in MEANS.items()}
    assert view("g, avg(a) FILTER (WHERE a > 1) AS v FROM t GROUP BY g")["v"].to_list() == [
        Decimal(2),
        None,
        None,
        None,
    ]


MEANS_OF_DISTINCT = {1: "1.500000", 2: "0.015000", 3: "-0.055000", 4: None}


def test_means_of_distinct_values_are_decimals_too() -> None:
    rows = view("g, avg(DISTINCT a) AS v FROM t GROUP BY g")
    assert rows.schema["v"] == pl.Decimal(16, 6)
    assert dict(rows.rows()) == {g: mean and Decimal(mean) for g, mean in MEANS_OF_DISTINCT.items()}


TIES = {
    ("e / 128", "1"): "0.007813",  # 0.0078125: away from zero, which is not the even one
    ("e / 128", "-1"): "-0.007813",
    ("-e / -128", "1"): "0.007813",
    ("e / 128", "3"): "0.023438",
    ("e / 64", "1"): "0.015625",
    ("e / 3", "1"): "0.333333",
    ("e / 3", "2"): "0.666667",
    ("1 / e", "7"): "0.142857",
    ("0 / e", "7"): "0.000000",
}


@pytest.mark.parametrize(("expression", "value"), TIES)
def test_of_two_that_are_as_near_it_is_the_one_away_from_zero(expression: str, value: str) -> None:
    assert one(expression, a="0", b="0", e=value) == Decimal(TIES[expression, value])


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("a / b", (23, 13)), ("a / e", (16, 6)), ("b / a", (25, 13)), ("e / e", (9, 6)), ("a / 0.3", (17, 6)),
        ("CAST(a * b AS decimal(30, 10)) / CAST(e AS decimal(30, 10))", (38, 8)),
    ],
)  # fmt: skip
def test_types_of_quotients_are_sparks(expression: str, kind: tuple[int, int]) -> None:
    row = pl.DataFrame({"a": [Decimal(1)], "b": [Decimal(1)], "e": [Decimal(1)]}, {"a": A, "b": B, "e": E})
    assert view(f"{expression} AS v FROM t", row.with_columns(version=0, diff=1)).schema["v"] == pl.Decimal(*kind)


def test_a_divisor_of_0_is_an_error_of_the_row_but_not_behind_a_condition() -> None:
    with pytest.raises(ExpressionError, match="division by zero"):
        one("a / b", a="1", b="0", e="0")
    assert one("CASE WHEN b <> 0 THEN a / b ELSE 7 END", a="1", b="0", e="0") == 7


def test_digits_that_spark_may_count_otherwise_are_refused_with_the_way_on() -> None:
    for expression in ("(a + 1) / 2", "2 / (a * a)"):
        with pytest.raises(ProgramError, match="whose digits Spark may count otherwise") as caught:
            view(f"{expression} AS v FROM t")
        assert "CAST(x AS decimal(p, " in caught.value.hint
    assert view(
        "g, sum(a) AS s, CAST(sum(a) AS decimal(22, 2)) / CAST(count(*) AS bigint) AS v FROM t GROUP BY g"
    ).schema["v"] == pl.Decimal(38, 18)


def divided(rows: dd.Collection) -> dict[str, dd.Collection]:
    both = col("a").cast(pl.Decimal(38, 6)) / col("b").cast(pl.Decimal(38, 2))
    return {"out": rows.where("b <> 0").select("g", q=both)}


@pytest.mark.parametrize("fold", [whole, randomly_cut])
def test_a_quotient_of_two_casts_keeps_the_digits_of_the_first(fold: Any) -> None:
    pairs = [("1.00", "3.00"), ("2.00", "3.00"), ("-1.00", "8.00"), (None, "1.00"), ("1.00", None), ("5.00", "0.00")]
    rows = pl.DataFrame(
        [(n, *(side and Decimal(side) for side in pair), n % 3, 1) for n, pair in enumerate(pairs)],
        {"g": pl.Int64, "a": A, "b": A, "version": pl.Int64, "diff": pl.Int64},
        orient="row",
    )
    found = fold(divided, rows=rows)
    assert found == by_reference(divided, rows=rows)
    quotients = dict(dd.replay(divided, rows=rows)["out"].select("g", "q").rows())
    assert quotients == {0: Decimal("0.333333"), 1: Decimal("0.666667"), 2: Decimal("-0.125"), 3: None}


CASTS: dict[str, Any] = {
    "CAST(d / 3 AS decimal(38,5))": lambda d, n: exact(Fraction(d) / 3, 5),
    "(d / 3.70)::decimal(38,12)": lambda d, n: exact(Fraction(d) / Fraction("3.7"), 12),
    "CAST(7 / CAST(n + 1 AS decimal(38,2)) AS decimal(38,10))": lambda d, n: exact(Fraction(7, n + 1), 10),
}
MEANS_CAST: dict[str, Any] = {
    "CAST(avg(d) AS decimal(38,5))": (lambda rows: rows, 5),
    "avg(DISTINCT d)::decimal(38,12)": (set, 12),
    "(avg(d) FILTER (WHERE d > 1))::numeric(30,2)": (lambda rows: [d for d in rows if d > 1], 2),
    "CAST(sum(d) / count(d) AS decimal(38,5))": (lambda rows: rows, 5),
    "CAST(avg(n) AS decimal(38,3))": (lambda rows: rows, 3),
    "CAST((avg(d) OVER (PARTITION BY g)) AS decimal(38,5))": (lambda rows: rows, 5),
}


def exact(number: Fraction, locations: int) -> Decimal:
    """The nearest one, and of two that are as near the one away from 0."""
    units = int(abs(number) * 10**locations + Fraction(1, 2))
    return Decimal(units if number >= 0 else -units).scaleb(-locations, Context(prec=60))


def accumulated(log: pl.DataFrame, version: int) -> list[Any]:
    """The rows that are there: keys and values, each as often as its diff says."""
    there = Counter[Any]()
    for *row, at, diff in log.select(pl.exclude("version", "diff"), "version", "diff").rows():
        there[tuple(row)] += diff * (at <= version)
    return sorted(there.elements())


def test_quotients_and_means_under_a_cast_keep_every_digit_in_postgres(seed: int) -> None:
    rng = random.Random(seed)
    # Their sums, times 10**8 for the digits of a mean, have at most 38 digits.
    drawn = [Decimal(rng.randrange(-(10**n), 10**n)).scaleb(-10) for n in range(1, 30) for _ in range(2)]
    added = [(rng.randrange(4), d, int(d) % 10**15, rng.randrange(2), 1) for d in drawn]
    log = added + [(*row[:3], 2, -1) for row in rng.sample(added, 20)]
    schema: dict[str, Any] = {
        "g": pl.Int64,
        "d": pl.Decimal(38, 10),
        "n": pl.Int64,
        "version": pl.Int64,
        "diff": pl.Int64,
    }
    t = pl.DataFrame(log, schema, orient="row")
    rows, groups = [*CASTS], [*MEANS_CAST]
    text = "".join(f"CREATE VIEW r{i} AS SELECT d, {one} AS v FROM t;" for i, one in enumerate(rows))
    for i, one in enumerate(groups):
        by = "" if " OVER " in one else "GROUP BY g"
        text += f"CREATE VIEW m{i} AS SELECT DISTINCT * FROM (SELECT g, {one} AS v FROM t {by}) q;"
    found = dd.replay(program(text), t=t)
    for version in range(3):
        there = accumulated(t, version)
        for i, one in enumerate(rows):
            expected = sorted((d, CASTS[one](d, n)) for _, d, n in there)
            assert accumulated(found[f"r{i}"], version) == expected, one
        for i, one in enumerate(groups):
            choose, locations = MEANS_CAST[one]
            values = {
                g: choose([Fraction(n if "(n)" in one else d) for h, d, n in there if h == g]) for g, _, _ in there
            }
            means = {
                g: exact(sum(some) / Fraction(len(some)), locations) if some else None for g, some in values.items()
            }
            assert dict(accumulated(found[f"m{i}"], version)) == means, one


def test_quotients_that_38_digits_are_too_few_for_are_refused_or_fail_in_their_row() -> None:
    row = pl.DataFrame({"d": [Decimal(10) ** 27]}, {"d": pl.Decimal(38, 10)}).with_columns(version=0, diff=1)
    with pytest.raises(ExpressionError, match=r"program.sql:1:30: .*overflow.* in the row"):
        dd.replay(program("CREATE VIEW o AS SELECT CAST(d / 3 AS decimal(38,12)) AS v FROM t"), t=row)
    for text in ("d / CAST(d AS decimal(38,20))", "CAST(d AS decimal(38,30)) / 3", "avg(CAST(d AS decimal(38,30)))"):
        with pytest.raises(ProgramError, match="a quotient that needs more than 38 digits") as caught:
            dd.replay(program(f"CREATE VIEW o AS SELECT CAST({text} AS decimal(38,12)) AS v FROM t"), t=row)
        assert "fewer digits behind the point" in caught.value.hint
