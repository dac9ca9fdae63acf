"""Every type through the engine, against a few lines of Python each: distinct, join, min, max, sum and count.

test_values.py compares whole histories with the reference evaluator. Here the expectation is Python's own.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest

import ddcore as dd

Rows = dict[tuple[Any, ...], int]

MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "int64": (pl.Int64, [0, 1, -1, 7, 2**63 - 1, -(2**63) + 1, 2**53 + 1, None]),
    "float64": (pl.Float64, [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 0.1, -1e308, 2.0**53, None]),
    "bool": (pl.Boolean, [True, False, None]),
    "string": (
        pl.String,
        ["", " ", "a", "Z", "é", "e\u0301", "\U0001f600", "\uffff", "a\0", "a" * 100, "10", "9", None],
    ),
    "binary": (pl.Binary, [b"", b"\0", b"\x7f", b"\x80", b"\xff\xff", None]),
    "date": (pl.Date, [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31), None]),
    "timestamp": (
        pl.Datetime("us", "UTC"),
        [
            datetime(1, 1, 2, tzinfo=UTC),
            MOMENT,
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 30, tzinfo=UTC),
            None,
        ],
    ),
    "time": (pl.Time, [time(0), time(23, 59, 59, 999999), time(12, 0, 0, 1), None]),
    "decimal(38,3)": (
        pl.Decimal(38, 3),
        [*map(Decimal, ["0", "0.001", "-0.001", "1.001", f"{'9' * 35}.999", f"-{'9' * 35}.999", f"{2**64}.5"]), None],
    ),
    "decimal(12,3)": (
        pl.Decimal(12, 3),
        [*map(Decimal, ["0", "0.001", "-0.001", "999999999.999", "-999999999.999"]), None],
    ),
}
SUMMED: dict[str, list[Any]] = {
    "int64": [0, 1, -1, 2**53 + 1, -(2**60), 10**15, None],
    "float64": [0.1, 0.2, -0.3, 1e16, -1e16, 1e-300, -0.0, None],
    "decimal(12,3)": TYPES["decimal(12,3)"][1],
    "decimal(38,3)": [
        *map(Decimal, ["0", "0.001", "-0.001", f"{'9' * 32}.999", f"-{'9' * 32}.999", f"{2**64}.5", f"-{2**96}"]),
        None,
    ],
}


def history(kind: str, values: list[Any], seed: int) -> tuple[pl.DataFrame, Rows]:
    """Updates of rows (k, v) over four versions, and what is there at the end."""
    rng = random.Random(f"{kind} {seed}")
    updates = [
        (rng.randrange(4), rng.choice(values), version, rng.randint(1, 3)) for version in range(4) for _ in range(8)
    ]
    updates += [(k, v, 3, -diff) for k, v, _, diff in rng.sample(updates[:16], 6)]
    frame = pl.DataFrame(
        updates, {"k": pl.Int64, "v": TYPES[kind][0], "version": pl.Int64, "diff": pl.Int64}, orient="row"
    )
    counts: Counter[tuple[Any, ...]] = Counter()
    for k, v, _, diff in updates:
        counts[k, one(v)] += diff
    return frame, {row: count for row, count in counts.items() if count}


def one(value: Any) -> Any:
    """A value as a dictionary can hold it: one NaN, and bool apart from int."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def at_the_end(log: pl.DataFrame) -> Rows:
    counts: Counter[tuple[Any, ...]] = Counter()
    for *row, _, diff in log.iter_rows():
        counts[tuple(map(one, row))] += diff
    return {row: count for row, count in counts.items() if count}


def folded(program: Any, kind: str, seed: int, values: list[Any] | None = None) -> tuple[Rows, Rows, pl.DataFrame]:
    frame, rows = history(kind, values or TYPES[kind][1], seed)
    log = dd.replay(lambda rows: {"out": program(rows)}, rows=frame)["out"]
    return at_the_end(log), rows, log


def by(location: int, rows: Rows) -> dict[Any, list[tuple[Any, int]]]:
    groups = defaultdict(list)
    for row, count in rows.items():
        groups[row[location]].append((row[1 - location], count))
    return groups


def order(value: Any) -> Any:
    """Where a value stands: NaN above all numbers, strings and binaries by their bytes."""
    if value == "nan":
        return math.inf, 1
    if isinstance(value, float):
        return value, 0
    return value.encode() if isinstance(value, str) else value


def best(pick: Callable[..., Any], values: Iterable[tuple[Any, int]], kind: str) -> Any:
    present = [value for value, _ in values if value is not None]
    key = order if kind != "string" else str.encode
    return pick(present, key=key) if present else None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", TYPES)
class TestEveryType:
    def test_comes_back_as_it_was(self, kind: str, seed: int) -> None:
        actual, rows, log = folded(lambda rows: rows, kind, seed)
        assert actual == rows
        assert log.schema["v"] == TYPES[kind][0]

    def test_distinct(self, kind: str, seed: int) -> None:
        actual, rows, _ = folded(lambda rows: rows.select("v").distinct(), kind, seed)
        assert actual == {(v,): 1 for _, v in rows}

    def test_join(self, kind: str, seed: int) -> None:
        actual, rows, log = folded(lambda rows: rows.join(rows, on="v"), kind, seed)
        expected: Counter[tuple[Any, ...]] = Counter()
        for v, group in by(1, rows).items():
            for left, m in group:
                for right, n in group if v is not None else []:
                    expected[left, v, right] += m * n
        assert actual == expected
        assert log.columns[:3] == ["k", "v", "k_right"]

    def test_as_a_key(self, kind: str, seed: int) -> None:
        actual, rows, _ = folded(lambda rows: rows.group_by("v").agg(n=dd.count(), least=dd.min("k")), kind, seed)
        expected = {(v, sum(n for _, n in group), min(k for k, _ in group)) for v, group in by(1, rows).items()}
        assert actual == dict.fromkeys(expected, 1)

    def test_min_and_max(self, kind: str, seed: int) -> None:
        actual, rows, log = folded(lambda rows: rows.group_by("k").agg(lo=dd.min("v"), hi=dd.max("v")), kind, seed)
        expected = {(k, best(min, group, kind), best(max, group, kind)) for k, group in by(0, rows).items()}
        assert actual == dict.fromkeys(expected, 1)
        assert log.schema["lo"] == log.schema["hi"] == TYPES[kind][0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", SUMMED)
def test_sums_are_pythons(kind: str, seed: int) -> None:
    actual, rows, log = folded(lambda rows: rows.group_by("k").agg(s=dd.sum("v")), kind, seed, SUMMED[kind])
    expected = {}
    for k, group in by(0, rows).items():
        exact = sum((Fraction(value) * count for value, count in group if value is not None), Fraction(0))
        shown = {"int64": int, "float64": float}.get(kind, lambda number: Decimal(f"{int(number * 1000)}e-3"))
        expected[k, shown(exact)] = 1
    assert actual == expected
    assert str(log.schema["s"]) == {
        "int64": "Int64", "float64": "Float64", "decimal(12,3)": "Decimal(precision=18, scale=3)",
        "decimal(38,3)": "Decimal(precision=38, scale=3)",
    }[kind]  # fmt: skip


def test_of_one_type_nothing_equals_anything_of_another_look() -> None:
    """Strings that look alike, empty and null, are different rows and different keys."""
    values = ["", " ", "null", "None", "\0", "0", "00", "é", "e\u0301", None]
    frame = pl.DataFrame({"v": values, "version": 0, "diff": 1}, schema_overrides={"v": pl.String})
    log = dd.replay(lambda rows: {"out": rows.group_by("v").agg(n=dd.count())}, rows=frame)["out"]
    assert sorted(log["v"].fill_null("<null>")) == sorted("<null>" if v is None else v for v in values)
    assert set(log["n"]) == {1}
