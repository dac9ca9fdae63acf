"""OVER with an order in SQL: random windows against DuckDB at every version, literal cases, and refusals."""

from __future__ import annotations

import random
from decimal import Decimal

import polars as pl
import pytest
from sql_tables import random_logs
from sql_windows import RandomWindows, in_duckdb
from test_sql import differences, rows_of

import ddcore
from ddcore.base.errors import ProgramError
from ddcore.planning.planner import build
from ddcore.sql import program


def require_equal(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(f"windows {seed}")
        logs, query = random_logs(rng), RandomWindows(rng).text()
        print(f"seed {seed}: {query}")
        assert not (found := differences(query, logs, in_duckdb(query))), f"seed {seed}: {query}: {found}"


@pytest.mark.sample(1)
@pytest.mark.parametrize("block", range(3))
def test_random_windows_equal_duckdb_at_every_version(block: int) -> None:
    require_equal(range(60)[block::3])


@pytest.mark.long
def test_many_random_windows_equal_duckdb_at_every_version() -> None:
    require_equal(range(60, 1000))


CASES = {
    "SELECT id, lag(id) OVER (ORDER BY id, sum) AS b FROM orders WHERE who = 'ann'": [(1, None), (2, 1)],
    "SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM orders WHERE id > 2": [
        (3, 3), (4, 7), (5, 9),
    ],
    "SELECT id, sum(sum) FILTER (WHERE id > 9) OVER (ORDER BY id) AS s FROM orders WHERE id > 3": [
        (4, None), (5, None),
    ],
    "SELECT who, count(*) AS n, lag(count(*)) OVER (ORDER BY who) AS b FROM orders GROUP BY who": [
        ("ann", 2, None), ("bob", 2, 2), (None, 1, 2),
    ],
    "SELECT id FROM orders WINDOW w AS (ORDER BY id) QUALIFY row_number() OVER w <= 2": [(1,), (2,)],
    "SELECT id, lead(sum, 1, 0.5) OVER (ORDER BY id) AS x FROM orders WHERE id > 3": [(4, 2), (5, 0.5)],
    "SELECT id FROM (SELECT id, rank() OVER (PARTITION BY who ORDER BY id) AS n FROM orders) AS o WHERE n = 1": [
        (1,), (3,), (4,),
    ],
    "SELECT id, array_agg(id) OVER (ORDER BY id ROWS 1 PRECEDING) AS l FROM orders WHERE id > 3": [
        (4, [4]), (5, [4, 5]),
    ],
    "SELECT id, string_agg(who, '+') OVER (ORDER BY id, sum) AS l FROM orders WHERE id > 2": [
        (3, "bob"), (4, "bob"), (5, "bob+bob"),
    ],
    "SELECT id, var_pop(id) OVER (ORDER BY id) AS v, regr_count(id, sum) OVER (ORDER BY id) AS n FROM orders"
    " WHERE id > 2": [(3, 0.0, 0), (4, 0.25, 1), (5, 2 / 3, 2)],
    "SELECT id, mode() WITHIN GROUP (ORDER BY who) OVER (ORDER BY id ROWS 1 PRECEDING) AS m FROM orders WHERE id > 2": [
        (3, "bob"), (4, "bob"), (5, "bob"),
    ],
    "SELECT id, json_agg(sum) FILTER (WHERE id > 3) OVER (ORDER BY id DESC) AS j FROM orders WHERE id > 2": [
        (3, "[2, 9]"), (4, "[2, 9]"), (5, "[2]"),
    ],
    "SELECT id, CAST(avg(DISTINCT sum) OVER (ORDER BY id) AS decimal(10, 2)) AS a FROM orders": [
        (1, Decimal("5.00")), (2, Decimal("6.00")), (3, Decimal("6.00")), (4, Decimal("7.00")), (5, Decimal("5.75")),
    ],
    "SELECT DISTINCT who, mode() WITHIN GROUP (ORDER BY id) OVER (PARTITION BY who) AS m FROM orders": [
        ("ann", 1), ("bob", 3), (None, 4),
    ],
}  # fmt: skip


@pytest.mark.parametrize("query", CASES)
def test_windows(query: str) -> None:
    assert rows_of(query) == CASES[query]


REFUSED = {
    "lag(a) OVER (PARTITION BY b)": "lag without ORDER BY",
    "sum(a) OVER (ROWS 1 PRECEDING)": "sum without ORDER BY",
    "sum(a) OVER v": "there is no window v; there are: w",
    "sum(a) OVER (w ORDER BY b)": "changes what the window w says",
    "sum(a) OVER (ORDER BY b RANGE BETWEEN INTERVAL '1 month' PRECEDING AND CURRENT ROW)": "a frame of months",
    "sum(a) OVER (ORDER BY b ROWS BETWEEN 1.5 PRECEDING AND CURRENT ROW)": "a frame of rows by what is no whole number",
    "sum(a) OVER (ORDER BY b ROWS BETWEEN CURRENT ROW AND 1 PRECEDING)": "ends before it begins",
    "sum(a) OVER (ORDER BY b, s RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)": "an order by one column",
    "sum(a) OVER (ORDER BY s RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)": "1 is no distance of string",
    "lag(a, b) OVER (ORDER BY b)": "write a whole number",
    "lag(a) FILTER (WHERE b > 0) OVER (ORDER BY b)": "FILTER of a function that is no aggregate",
    "row_number() IGNORE NULLS OVER (ORDER BY b)": "row_number with IGNORE NULLS",
    "lag(a, 1, 'x') OVER (ORDER BY b)": "'x' is no int64",
    "stddev(DISTINCT a) OVER (ORDER BY b)": "stddev(DISTINCT ...) with ORDER BY in OVER",
    "sum(DISTINCT a::decimal(38, 2)) OVER (ORDER BY b)": "no sum of distinct values of decimal(38,2)",
    "median(s) OVER (ORDER BY b)": "s is string, not int64 or decimal or float64",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(text: str) -> None:
    log = pl.DataFrame({"a": [1], "b": [1], "s": ["x"], "version": [0], "diff": [1]})
    with pytest.raises(ProgramError, match=r"program\.sql:1:\d+") as error:
        ddcore.replay(program(f"CREATE VIEW v AS SELECT {text} AS x FROM r WINDOW w AS (ORDER BY a)"), r=log)
    assert REFUSED[text] in error.value.message + error.value.hint


def test_functions_over_one_window_are_one_operator() -> None:
    text = """CREATE VIEW o AS SELECT lag(x) OVER w AS b, sum(x) OVER w AS t,
        rank() OVER (PARTITION BY k ORDER BY n) AS r,
        row_number() OVER (PARTITION BY k ORDER BY n DESC) AS d, count(*) OVER (PARTITION BY k) AS c FROM t
        WINDOW w AS (PARTITION BY k ORDER BY n)"""
    plan = build(program(text), {"t": {"k": "int64", "n": "int64", "x": "int64"}})
    assert sum(node.operator.name == "over" for node in plan.nodes) == 2
