"""OVER with an order in SQL: random windows against DuckDB at every version, literal cases, and refusals."""

from __future__ import annotations

import random

import polars as pl
import pytest
from sql_queries import random_logs
from test_sql import differences, rows_of

import ddcore
from ddcore.base.errors import ProgramError
from ddcore.planning.planner import build
from ddcore.sql import program

COLUMNS = {
    "r": {"a": "int", "b": "int", "s": "text", "m": "decimal"},
    "q": {"a": "int", "c": "int", "u": "text", "d": "date"},
}
DISTANCES = {"int": ("0", "1", "2"), "decimal": ("0.25", "0.5", "1"), "date": ("INTERVAL '1 day'", "INTERVAL '2 days'")}


class RandomWindows:
    """A query with windows. Where ties would leave a result open, as in frames of rows, all columns are in the order.

    Which copy of a row has which of two results is open too, so that queries of several windows are over distinct rows.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.table = rng.choice(tuple(COLUMNS))
        self.columns = COLUMNS[self.table]

    def text(self) -> str:
        named, results = "", [self.result() for _ in range(self.rng.randint(1, 3))]
        if self.rng.random() < 0.3:
            named = f" WINDOW w AS (PARTITION BY {self.column()}), v AS (w ORDER BY {self.order()})"
            results.append("lag(a) OVER v")
            results.append(f"count(*) OVER (v {self.frame('ROWS', ('0', '1'))})")
        where = self.rng.choice(("", f" WHERE {self.column()} IS NOT NULL"))
        columns = [*self.columns, *(f"{text} AS c{number}" for number, text in enumerate(results))]
        distinct = f"(SELECT DISTINCT * FROM {self.table}) AS {self.table}"
        table = distinct if len(results) > 1 else self.table
        return f"SELECT {', '.join(columns)} FROM {table}{where}{named}"

    def column(self, *kinds: str) -> str:
        return self.rng.choice([name for name, kind in self.columns.items() if not kinds or kind in kinds])

    def order(self) -> str:
        """An order that decides between all rows that are not equal."""
        names = self.rng.sample([*self.columns], len(self.columns))
        return ", ".join(name + self.rng.choice(("", " DESC", " NULLS FIRST", " DESC NULLS LAST")) for name in names)

    def frame(self, unit: str, distances: tuple[str, ...]) -> str:
        ends = [
            "UNBOUNDED PRECEDING",
            *(f"{distance} PRECEDING" for distance in reversed(distances)),
            "CURRENT ROW",
            *(f"{distance} FOLLOWING" for distance in distances),
            "UNBOUNDED FOLLOWING",
        ]
        first, last = sorted(self.rng.sample(range(len(ends)), 2))
        exclude = self.rng.choice(
            ("", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS")
        )
        return f"{unit} BETWEEN {ends[first]} AND {ends[last]}{exclude}"

    def result(self) -> str:
        parts = [f"PARTITION BY {self.column()}"] * (self.rng.random() < 0.7)
        name, draw = self.column(), self.rng.random()
        nulls = " IGNORE NULLS" if self.rng.random() < 0.4 else ""
        if draw < 0.2:
            function = f"{self.rng.choice(('lag', 'lead'))}({name}, {self.rng.randrange(1, 3)}, {name}{nulls})"
            return f"{function} OVER ({' '.join([*parts, f'ORDER BY {self.order()}'])})"
        if draw < 0.4:
            function = self.rng.choice(
                (f"first_value({name}{nulls})", f"last_value({name}{nulls})", f"nth_value({name}, 2{nulls})")
            )
            frame = self.frame("ROWS", ("0", "1", "2"))
            return f"{function} OVER ({' '.join([*parts, f'ORDER BY {self.order()}', frame])})"
        if draw < 0.55:
            function = self.rng.choice(("percent_rank()", "cume_dist()", "rank()", "dense_rank()"))
            return f"{function} OVER ({' '.join([*parts, f'ORDER BY {name}'])})"
        if draw < 0.65:
            function = self.rng.choice(("ntile(2)", "ntile(3)", "row_number()"))
            return f"{function} OVER ({' '.join([*parts, f'ORDER BY {self.order()}'])})"
        number, where = self.column("int", "decimal"), self.rng.choice(("", "", f" FILTER (WHERE {name} IS NOT NULL)"))
        function = self.rng.choice(
            ("count(*)", f"count({name})", f"sum({number})", f"min({name})", f"max({name})", f"avg({number})")
        )
        unit = self.rng.choice(("", "ROWS", "GROUPS", "RANGE"))
        if unit == "RANGE":
            name = self.column("int", "decimal", "date")
            frame = self.frame("RANGE", DISTANCES[self.columns[name]])
            order = name + self.rng.choice(("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
        else:
            frame = self.frame(unit, ("0", "1", "2")) if unit else ""
            order = self.order() if unit == "ROWS" else name
        return f"{function}{where} OVER ({' '.join([*parts, f'ORDER BY {order}', frame])})"


def require_equal(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(f"windows {seed}")
        logs, query = random_logs(rng), RandomWindows(rng).text()
        print(f"seed {seed}: {query}")
        assert not (found := differences(query, logs)), f"seed {seed}: {query}: {found}"


def test_random_windows_equal_duckdb_at_every_version() -> None:
    require_equal(range(60))


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
