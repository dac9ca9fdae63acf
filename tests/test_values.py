"""Values at the edges of their types, through every operator that looks at values: engine against reference.

Words, hashes and sort orders are where an engine could take two values for one, or put them in the wrong order.
"""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from typing import Any

import folding
import polars as pl
import pytest
from programs import Case
from test_random_programs import compare

import ddcore as dd
from ddcore.base.errors import DiffOverflow

EDGES: dict[str, tuple[Any, list[Any]]] = {
    "int64": (pl.Int64, [0, 1, -1, 2**62, -(2**62), 2**63 - 1, -(2**63) + 1, 2**32, -(2**32), None]),
    "float64": (
        pl.Float64,
        [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 0.1, 1e16, 1.0, -1e16, 1e-300, None],
    ),
    "string": (pl.String, ["", "a", "A", "aa", "ä", "a\u0308", "z", "\U0001f600", "\uffff", "a\0b", "x" * 300, None]),
    "binary": (pl.Binary, [b"", b"\0", b"\0\0", b"\xff", b"a", b"\x80", None]),
    "bool": (pl.Boolean, [True, False, None]),
    "date": (pl.Date, [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31), None]),
    "timestamp": (
        pl.Datetime("us", "UTC"),
        [
            datetime.datetime(1, 1, 2, tzinfo=datetime.UTC),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, datetime.UTC),
            datetime.datetime(9999, 12, 30, tzinfo=datetime.UTC),
            None,
        ],
    ),
    "wide": (
        pl.Decimal(38, 4),
        [
            *map(Decimal, ["0", "0.0001", "-0.0001", f"{'9' * 34}.9999", f"-{'9' * 34}.9999", "1844674407370955.1616"]),
            None,
        ],
    ),
    "time": (pl.Time, [datetime.time(0), datetime.time(23, 59, 59, 999999), datetime.time(12, 0, 0, 1), None]),
    "interval": (
        pl.Struct({"months": pl.Int32, "days": pl.Int32, "microseconds": pl.Int64}),
        [
            *(
                {"months": months, "days": days, "microseconds": microseconds}
                for months, days, microseconds in [
                    (0, 0, 0),
                    (1, 0, 0),
                    (0, 30, 0),
                    (0, 29, 86_400_000_000),
                    (-1, 31, -1),
                    (2**31 - 1, 0, 0),
                    (0, -(2**31) + 1, 0),
                    (0, 0, 2**63 - 1),
                ]
            ),
            None,
        ],
    ),
    "decimal": (pl.Decimal(18, 4), [Decimal("0"), Decimal("0.0001"), Decimal("-99999999999999.9999"), None]),
}


def everywhere(rows: Any) -> dict[str, Any]:
    return {
        "once": rows.select("v").distinct(),
        "pairs": rows.join(rows, on="v").select("v", "k", other="k_right"),
        "both": rows.join(rows, on=["v", "k"]),
        "by value": rows.group_by("v").agg(n=dd.count(), least=dd.min("k")),
        "by key": rows.group_by("k").agg(lo=dd.min("v"), hi=dd.max("v")),
        "of all": rows.group_by().agg(lo=dd.min("v"), hi=dd.max("v"), n=dd.count()),
    }


def sums(rows: Any) -> dict[str, Any]:
    return {"sums": rows.group_by("k").agg(s=dd.sum("v")), "of all": rows.group_by().agg(s=dd.sum("v"))}


def history(seed: int, kind: str, values: list[Any]) -> Case:
    """Rows (k, v) inserted and partly retracted again, over six versions."""
    rng = random.Random(f"{kind} {seed}")
    updates = []
    for _ in range(30):
        row, version = (rng.randrange(3), rng.choice(values)), rng.randrange(6)
        updates.append((*row, version, 2))
        if version < 5 and rng.random() < 0.7:
            updates.append((*row, rng.randrange(version + 1, 6), rng.choice([-1, -2])))
    schema = {"k": pl.Int64, "v": EDGES[kind][0], "version": pl.Int64, "diff": pl.Int64}
    return Case(seed, f"# {kind}", everywhere, {"rows": pl.DataFrame(updates, schema=schema, orient="row")})


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", EDGES)
def test_edges_everywhere(kind: str, seed: int) -> None:
    drawn = history(seed, kind, EDGES[kind][1])
    expected = folding.by_reference(everywhere, **drawn.frames)
    compare(drawn, "whole", expected, folding.whole(everywhere, **drawn.frames))
    compare(drawn, "cut", expected, folding.randomly_cut(everywhere, seed=seed, **drawn.frames))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("float64", [0.1, 0.2, 0.3, 1e16, -1e16, 1.0, -0.0, 3e-320, None]),
        ("float64", [1e308, -1e308, 9e307, -9e307, 1.0, None]),
        ("float64", [math.inf, -math.inf, math.nan, 1.0, 1e308]),
        ("decimal", [Decimal("0.0001"), Decimal("-12345678.9"), Decimal("99999999.9999"), None]),
        ("int64", [2**53 + 1, -(2**53), 3, None, 2**55]),
    ],
    ids=["rounding", "near the largest", "infinite", "decimal", "int64"],
)
def test_sums_are_exact(kind: str, values: list[Any], seed: int) -> None:
    drawn = history(seed, kind, values)
    expected = folding.by_reference(sums, **drawn.frames)
    compare(drawn, "whole", expected, folding.whole(sums, **drawn.frames))
    compare(drawn, "cut", expected, folding.randomly_cut(sums, seed=seed, **drawn.frames))


def rows_of(*updates: tuple[int, int, int, int]) -> pl.DataFrame:
    schema = dict.fromkeys(["k", "v", "version", "diff"], pl.Int64)
    return pl.DataFrame(updates, schema=schema, orient="row")


HUGE = 2**62
OVERFLOWING: dict[str, tuple[Any, pl.DataFrame]] = {
    "sum of values": (sums, rows_of((1, HUGE, 0, 1), (1, HUGE + 1, 1, 1))),
    "sum of counted values": (sums, rows_of((1, HUGE, 0, 4))),
    "count": (lambda rows: {"out": rows.group_by("k").agg(n=dd.count())}, rows_of((1, 1, 0, HUGE), (1, 2, 0, HUGE))),
    "count over versions": (
        lambda rows: {"out": rows.group_by("k").agg(n=dd.count())},
        rows_of((1, 1, 0, HUGE), (1, 1, 1, HUGE)),
    ),
    "count within a version": (lambda rows: {"out": rows.distinct()}, rows_of((1, 1, 0, HUGE), (1, 1, 0, HUGE))),
    "reduce": (
        lambda rows: {"out": rows.group_by("k").reduce(lambda g: g.select("group", n="count"), {"n": "int64"})},
        rows_of((1, 1, 0, HUGE), (1, 1, 1, HUGE)),
    ),
    "join": (lambda rows: {"out": rows.join(rows, on="k")}, rows_of((1, 1, 0, HUGE))),
    "join of odd counts": (lambda rows: {"out": rows.join(rows, on="k")}, rows_of((1, 1, 0, 2**32 + 1))),
    "concat": (lambda rows: {"out": rows.concat(rows)}, rows_of((1, 1, 0, HUGE))),
    "negate": (lambda rows: {"out": rows.negate()}, rows_of((1, 1, 0, -(2**63)))),
    "loop": (
        lambda rows: {"out": rows.iterate(lambda w: w.concat(w).where("v > 3").concat(rows))},
        rows_of((1, 5, 0, 1)),
    ),
}


@pytest.mark.parametrize("fold", [folding.by_reference, folding.whole, folding.one_time_each])
@pytest.mark.parametrize("where", OVERFLOWING)
def test_overflow_is_loud(fold: folding.Fold, where: str) -> None:
    program, rows = OVERFLOWING[where]
    with pytest.raises(DiffOverflow):
        fold(program, rows=rows)
