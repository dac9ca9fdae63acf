"""Planning takes time that grows with the text, counted in calls of functions, which no other process disturbs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from ddcore.planning.planner import build
from ddcore.sql import program

COLUMNS = {"k": "int64", "j": "int64", "v": "int64"}


def joins(size: int) -> str:
    """A chain of joins of which one column is left: each passes on what later ones need."""
    chain = " ".join(f"JOIN t{number} ON t{number - 1}.k = t{number}.j" for number in range(1, size))
    return f"CREATE VIEW r AS SELECT t0.v FROM t0 {chain}"


def commas(size: int) -> str:
    """The same by WHERE, which has all conditions to look through."""
    tables = ", ".join(f"t{number}" for number in range(size))
    met = " AND ".join(f"t{number - 1}.k = t{number}.j" for number in range(1, size))
    return f"CREATE VIEW r AS SELECT t0.v FROM {tables} WHERE {met}"


def outer_joins(size: int) -> str:
    """A chain of LEFT JOINs."""
    return joins(size).replace(" JOIN ", " LEFT JOIN ")


def views(size: int) -> str:
    """A chain of views."""
    rest = (
        f"CREATE VIEW v{n} AS SELECT a.k, sum(a.v + b.v) AS v FROM v{n - 1} a JOIN t0 b ON a.k = b.k"
        f" WHERE a.v > {n} GROUP BY a.k;"
        for n in range(1, size)
    )
    return f"CREATE VIEW v0 AS SELECT k, v FROM t0;{''.join(rest)}"


def terms(size: int) -> str:
    """The terms of a condition."""
    return f"CREATE VIEW r AS SELECT k FROM t0 WHERE {' OR '.join(f'(k = {n} AND v > {n})' for n in range(size))}"


def conditions(size: int) -> str:
    """The conditions of a WHERE."""
    return f"CREATE VIEW r AS SELECT k FROM t0 WHERE {' AND '.join(f'k + v <> {n}' for n in range(size))}"


def sums(size: int) -> str:
    """The aggregates of a GROUP BY."""
    return f"CREATE VIEW r AS SELECT k, {', '.join(f'sum(v + {n}) AS s{n}' for n in range(size))} FROM t0 GROUP BY k"


def columns(size: int) -> str:
    """The columns of a SELECT, through a view and a subquery."""
    named = ", ".join(f"v + {n} AS c{n}" for n in range(size))
    passed = ", ".join(f"c{n}" for n in range(size))
    return f"CREATE VIEW a AS SELECT k, {named} FROM t0; CREATE VIEW r AS SELECT {passed} FROM (SELECT * FROM a) AS b"


def unions(size: int) -> str:
    """The sides of a UNION ALL."""
    return f"CREATE VIEW r AS {' UNION ALL '.join(f'SELECT k FROM t{n} WHERE v > {n}' for n in range(size))}"


def bindings(size: int) -> str:
    """The bindings of a WITH."""
    rest = ", ".join(f"b{n} AS (SELECT k, v + {n} AS v FROM b{n - 1} WHERE v > {n})" for n in range(1, size))
    return f"CREATE VIEW r AS WITH b0 AS (SELECT k, v FROM t0), {rest} SELECT * FROM b{size - 1}"


def calls(work: Callable[[], Any]) -> int:
    """How many functions are called, those of C among them."""
    count = 0

    def counted(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def planned(text: str) -> int:
    """The calls of planning a text."""
    schemas = {f"t{number}": COLUMNS for number in range(64)}
    return calls(lambda: build(program(text), schemas))


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("text", "size", "most"),
    [
        # a join passes on the columns that later ones need: some work for each table is for all tables before it
        (joins, 16, 2.2), (commas, 16, 2.4), (outer_joins, 16, 2.45),
        (views, 12, 2.2), (terms, 60, 2.2), (conditions, 40, 2.2), (sums, 25, 2.2), (columns, 50, 2.2),
        (unions, 16, 2.2), (bindings, 16, 2.2),
    ],
)  # fmt: skip
def test_twice_the_text_is_about_twice_the_work(text: Callable[[int], str], size: int, most: float) -> None:
    planned(text(3))  # which fills the caches
    once, twice = planned(text(size)), planned(text(2 * size))
    assert twice < most * once, f"{once:,} calls for {size}, {twice:,} for {2 * size}: {twice / once:.2f} x"
