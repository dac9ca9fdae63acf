"""Joins of SQL beyond those of two tables by ON: against DuckDB at every version, and their mistakes."""

from __future__ import annotations

import random
import re

import polars as pl
import pytest
from folding import by_reference, whole
from sql_duckdb import bag, database
from sql_tables import accumulated, random_logs
from test_sql import differences

import ddcore
from ddcore.base.errors import ProgramError
from ddcore.sql import program

BRACKETS = [
    "SELECT r.a, q.c, r2.b FROM r LEFT JOIN (q JOIN r AS r2 ON q.c = r2.b) ON r.a = q.a",
    "SELECT r.a, q.c, r2.b FROM (r JOIN r AS r2 ON r.a = r2.b) FULL JOIN q ON r.a = q.a WHERE q.c IS NULL OR q.c < 3",
    "SELECT r.a, q.c, r2.b FROM q RIGHT JOIN (r LEFT JOIN r AS r2 USING (a)) ON r.b = q.a",
    "SELECT z.b, q.u FROM (r AS r1 JOIN (SELECT a AS k FROM q) AS x ON r1.a = x.k) AS z LEFT JOIN q ON z.k = q.c",
    "SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM (q JOIN r AS x ON q.a = x.a) WHERE q.c = r.b)",
    "SELECT a, (SELECT count(*) FROM (q LEFT JOIN r AS x ON q.a = x.a) WHERE q.c = r.b) AS n FROM r",
    "SELECT r.a, q.c FROM (r), ((q)) WHERE r.a = q.a",
]
ASKING = [
    "SELECT r.a, q.c FROM r LEFT JOIN q ON r.a = q.a AND EXISTS (SELECT 1 FROM r AS x WHERE x.b = q.c AND x.a = r.b)",
    "SELECT r.a, q.c FROM r FULL JOIN q ON r.a = q.a AND q.c IN (SELECT b FROM r AS x)",
    "SELECT r.a, q.c FROM r LEFT JOIN q ON r.a = q.a AND r.b NOT IN (SELECT b FROM r AS x WHERE x.a = q.c)",
    "SELECT r.a, q.c FROM r RIGHT JOIN q ON r.a = q.a AND r.b > (SELECT min(b) FROM r AS x)",
    "SELECT r.a, q.c FROM r LEFT JOIN q ON r.a IN (SELECT b FROM r AS x WHERE x.a = q.a)",
]
SEVERAL = [
    "SELECT a, b FROM r WHERE (a, b) NOT IN (SELECT a, c FROM q)",
    "SELECT a, b, (a, b) IN (SELECT a, c FROM q) AS t FROM r",
    "SELECT a, b FROM r WHERE (a, b, s) NOT IN (SELECT a, c, u FROM q) OR a = 2",
]
BINDINGS = [
    "SELECT a, (WITH x AS (SELECT c FROM q WHERE q.a = r.a) SELECT count(*) FROM x) AS n FROM r",
    "SELECT a FROM r WHERE b IN (WITH x AS (SELECT c FROM q WHERE q.a = r.a), y AS (SELECT max(c) AS m FROM x)"
    " SELECT m FROM y)",
    "SELECT a FROM r WHERE EXISTS (WITH x AS (SELECT c FROM q), y (k) AS (SELECT c + r.a FROM x)"
    " SELECT 1 FROM y JOIN x ON y.k = x.c WHERE k > r.b)",
]
ASOF = [
    "SELECT r.a, r.b, q.c FROM r ASOF JOIN (SELECT DISTINCT a, c FROM q) AS q ON r.a = q.a AND r.b >= q.c",
    "SELECT r.a, r.b, q.c FROM r ASOF LEFT JOIN (SELECT DISTINCT a, c FROM q) AS q ON r.a = q.a AND r.b > q.c",
    "SELECT r.a, r.b, q.c FROM r ASOF JOIN (SELECT DISTINCT a, c FROM q) AS q ON q.c >= r.b AND r.a = q.a WHERE "
    "r.a > 0",
    "SELECT r.a, r.b, q.c, x.b AS z FROM r ASOF LEFT JOIN (SELECT DISTINCT a, c FROM q) AS q ON q.c > r.b + 1 AND"
    " r.a = q.a JOIN r AS x ON x.a = q.c",
    "SELECT r.b, q.c FROM r ASOF JOIN (SELECT DISTINCT c FROM q) AS q ON r.b < q.c",
    "SELECT a, r.b, q.z FROM r ASOF JOIN (SELECT DISTINCT a, c AS b, c AS z FROM q) AS q USING (a, b)",
    "SELECT r.a, r.m, q.k FROM r ASOF JOIN (SELECT DISTINCT a, c * 0.5 AS k FROM q) AS q ON r.a = q.a AND r.m <= q.k",
    "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM r AS x ASOF JOIN (SELECT DISTINCT a, c FROM q) AS q ON x.a = q.a"
    " AND x.b >= q.c WHERE q.c = r.b)",
]
FUNCTIONS = [
    "SELECT g.i FROM generate_series(1, 4) AS g(i)",
    "SELECT g.i, h.j FROM generate_series(4, 1, -2) AS g(i), range(3) AS h(j)",
    "SELECT r.a, g.i FROM r, generate_series(r.a, r.b) AS g(i) WHERE g.i > 1",
    "SELECT r.a, g.i FROM r CROSS JOIN LATERAL generate_series(0, r.a + 1) AS g(i) JOIN q ON q.a = g.i",
    "SELECT r.a, g.i FROM r LEFT JOIN LATERAL generate_series(1, r.a) AS g(i) ON true",
    "SELECT r.a, u.x FROM r, unnest(ARRAY[r.a, r.b]) AS u(x)",
    "SELECT r.a, u.x, u.n FROM r, unnest(ARRAY[r.s, 'k']) WITH ORDINALITY AS u(x, n)",
    "SELECT r.a FROM r WHERE r.b IN (SELECT g.i FROM generate_series(0, r.a) AS g(i))",
    "SELECT r.a, (SELECT sum(g.i) FROM range(r.a) AS g(i)) AS s FROM r",
    "SELECT extract(hour FROM g.t) AS h FROM generate_series(timestamp '2024-01-01', timestamp '2024-01-02', "
    "interval '6 hours') AS g(t)",
    "SELECT q.a, CAST(g.d AS date) AS d FROM q, generate_series(q.d, date '2024-02-02', interval '1 day') AS g(d)",
    "SELECT q.a, count(*) AS n FROM q JOIN generate_series(0, 3) AS g(i) ON q.a >= g.i GROUP BY q.a",
    "SELECT r.a, v.x FROM r JOIN (VALUES (1, 'x'), (2, NULL), (2, 'z')) AS v (k, x) ON r.a = v.k",
    "WITH v (k, x) AS (VALUES (1, 'x'), (2, 'y')) SELECT r.a, v.x FROM r LEFT JOIN v ON r.a = v.k",
    "VALUES (1, 'a'), (2, NULL)",
    "SELECT r.a, q.c FROM r JOIN q ON r.a = ANY (ARRAY[q.a, q.c])",
    "SELECT r.a, q.c FROM r LEFT JOIN q ON r.b = q.c AND r.a = ALL (ARRAY[q.a, q.a])",
    "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM q WHERE r.a = ALL (ARRAY[q.a, q.a]) AND q.c > 0)",
    "SELECT a FROM r WHERE NOT EXISTS (SELECT 1 FROM q WHERE r.a = ANY (ARRAY[q.a, q.c]))",
]
PIVOTS = [
    "SELECT * FROM (SELECT a, b, s FROM r) AS t PIVOT (sum(b) FOR s IN ('x' AS one, 'y' AS two))",
    "SELECT p.a, p.one_n, p.xy_m FROM (SELECT a, b, s FROM r) AS t PIVOT (count(*) AS n, max(b) AS m FOR s IN "
    "('x' AS one, 'xy')) AS p WHERE p.one_n > 0",
    "SELECT p.k FROM q JOIN (SELECT a, b, s FROM r) PIVOT (min(b) FOR s IN ('x' AS k, 'y')) AS p ON p.a = q.c",
    "SELECT * FROM (SELECT b, s FROM r) PIVOT (count(b) FOR s IN ('x', 'y'))",
    "SELECT * FROM (SELECT a, b, m FROM r) UNPIVOT (v FOR n IN (a, b))",
    "SELECT u.n, u.v, u.s FROM (SELECT a, b, s FROM r) UNPIVOT INCLUDE NULLS (v FOR n IN (a AS first, b)) AS u",
    "SELECT u.n, count(*) AS c FROM r UNPIVOT (v FOR n IN (a, b)) AS u GROUP BY u.n",
    "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM (SELECT a AS i, c AS j FROM q) UNPIVOT (v FOR n IN (i, j)) AS u "
    "WHERE u.v = r.b)",
]
QUERIES = [*PIVOTS, *FUNCTIONS, *ASOF, *BRACKETS, *ASKING, *SEVERAL, *BINDINGS]


@pytest.mark.sample(8)
@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_queries_equal_duckdb_at_every_version(query: str) -> None:
    for seed in range(4):
        assert not differences(query, random_logs(random.Random(f"joins {seed}"))), seed


def test_the_reference_gives_the_same() -> None:
    for query in QUERIES[::3]:
        views = program(f"CREATE VIEW result AS {query}")
        logs = random_logs(random.Random("joins"), rows=4)
        assert whole(views, **logs) == by_reference(views, **logs), query


MAYBE = """
    CASE WHEN EXISTS (SELECT 1 FROM q WHERE {on} AND q.a = r.a AND q.u = r.s) THEN false
    WHEN EXISTS (
        SELECT 1 FROM q WHERE {on} AND (q.a = r.a OR q.a IS NULL OR r.a IS NULL)
        AND (q.u = r.s OR q.u IS NULL OR r.s IS NULL)
    ) THEN NULL ELSE true END"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("on", ["q.c = r.b", "q.c <= r.b", "coalesce(q.c, 0) = coalesce(r.b, 0)"])
def test_not_in_of_several_columns_that_names_the_query_around(on: str) -> None:
    """DuckDB has it for one column only, so it gets the definition."""
    query = f"SELECT a, b, (a, s) NOT IN (SELECT a, u FROM q WHERE {on}) AS t FROM r"
    for seed in range(4):
        logs = random_logs(random.Random(f"several {seed}"))
        log = ddcore.replay(program(f"CREATE VIEW result AS {query}"), ("version",), **logs)["result"]
        for version in range(3):
            with database(logs, version) as connection:
                other = bag(connection.execute(f"SELECT a, b, {MAYBE.format(on=on)} AS t FROM r").fetchall())
            assert bag(accumulated(log, version).rows()) == other, (seed, version)


LISTS = {
    "ANY": "b {0} a OR b {0} 2 OR b {0} NULL",
    "ALL": "b {0} a AND b {0} 2 AND b {0} 1",
}


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "=", "<>"])
@pytest.mark.parametrize("quantifier", LISTS)
def test_any_and_all_of_a_list_are_the_comparisons_one_by_one(quantifier: str, sign: str) -> None:
    items = "a, 2, NULL" if quantifier == "ANY" else "a, 2, 1"
    query = f"SELECT a, b, b {sign} {quantifier} (ARRAY[{items}]) AS t FROM r"
    logs = random_logs(random.Random("lists"), rows=12)
    log = ddcore.replay(program(f"CREATE VIEW result AS {query}"), ("version",), **logs)["result"]
    for version in range(3):
        with database(logs, version) as connection:
            wanted = connection.execute(f"SELECT a, b, {LISTS[quantifier].format(sign)} AS t FROM r").fetchall()
        assert bag(accumulated(log, version).rows()) == bag(wanted), version


MISTAKES = {
    "SELECT a FROM r WHERE m < ALL (ARRAY[a, 2])": "program.sql:2:23: m < ALL(ARRAY[a, 2]): the elements are int64",
    "SELECT * FROM (SELECT a, b FROM r) PIVOT (sum(b) FOR a IN (1, 1))": (
        "program.sql:2:43: two columns of this pivot have one name, or one has none"
    ),
    "SELECT * FROM (SELECT a, b FROM r) PIVOT (sum(c) FOR a IN (1))": "program.sql:2:47: there is no column c",
    "SELECT * FROM (SELECT a, s FROM r) UNPIVOT (v FOR n IN (a, s))": (
        "program.sql:2:57: UNION, column v: the types int64 and string do not meet"
    ),
    "WITH RECURSIVE t (a, b) AS (SELECT a, b FROM r UNION SELECT v, v FROM t UNPIVOT (v FOR n IN (a, b)))"
    " SELECT * FROM t": "program.sql:2:71: WITH RECURSIVE t: PIVOT or UNPIVOT with itself",
    "SELECT u.x FROM r, unnest(ARRAY[r.a], ARRAY[r.b]) AS u(x)": (
        "program.sql:2:33: unnest() of several lists without names is not supported"
    ),
    "SELECT u.x FROM r, unnest(r.a) AS u(x)": "program.sql:2:27: r.a is int64, not a list",
    "SELECT 1 AS x FROM generate_series(1, 2, 0) AS g": (
        "program.sql:2:20: a series whose step is no number other than 0 is not supported"
    ),
    "SELECT 1 AS x FROM r RIGHT JOIN generate_series(1, r.a) AS g ON true": (
        "program.sql:2:33: this join with a function is not supported"
    ),
    "SELECT r.a FROM r ASOF JOIN q ON r.a = q.a": (
        "program.sql:2:29: this condition of an ASOF JOIN is not supported: ASOF JOIN q ON r.a = q.a"
    ),
    "SELECT r.a FROM r ASOF JOIN q ON r.a = q.a AND r.b >= q.c AND q.f": (
        "program.sql:2:63: this condition of an ASOF JOIN is not supported: q.f"
    ),
    "SELECT r.a FROM r ASOF JOIN q ON r.s >= q.u": "program.sql:2:34: an ASOF JOIN by string is not supported",
    "SELECT r.a FROM r ASOF RIGHT JOIN q ON r.a >= q.c": "program.sql:2:35: an ASOF RIGHT JOIN is not supported",
    "WITH RECURSIVE t AS (SELECT a FROM r UNION SELECT q.c FROM q ASOF JOIN t ON q.c >= t.a) SELECT a FROM t": (
        "program.sql:2:72: WITH RECURSIVE t: ASOF JOIN with itself"
    ),
    "WITH RECURSIVE t AS (SELECT a FROM r UNION SELECT q.c FROM (t RIGHT JOIN q ON q.c = t.a)) SELECT a FROM t": (
        "program.sql:2:61: WITH RECURSIVE t: an outer join in parentheses with itself"
    ),
    "SELECT 1 AS x FROM r JOIN (q JOIN r ON q.a = r.a) ON true": "program.sql:2:28: two tables are called r",
    "SELECT 1 AS x FROM r JOIN (q JOIN r AS z ON q.a = r.a) ON true": "program.sql:2:51: there is no table r for r.a",
    "SELECT r.a FROM (r JOIN q ON r.a = q.a) AS z": "program.sql:2:8: there is no table r for r.a; there are: z",
    "SELECT a FROM r WHERE (a, b, a, b, a) NOT IN (SELECT a, a, a, a, a FROM q)": (
        "program.sql:2:24: IN of more than 4 columns in an OR, a NOT or a value is not supported"
    ),
}


@pytest.mark.parametrize("query", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_name_their_place(query: str) -> None:
    with pytest.raises(ProgramError) as caught:
        ddcore.replay(program(f"CREATE VIEW v AS\n{query}"), ("version",), **random_logs(random.Random(0)))
    assert str(caught.value).startswith(MISTAKES[query]), caught.value
    assert caught.value.hint


BEFORE = {
    "SELECT r.a, q.c FROM r LEFT JOIN q ON r.a = q.a WHERE r.b > 1 AND q.c = 2": ["r.b > 1 on r"],
    "SELECT r.a, q.c FROM r LEFT JOIN q ON r.a = q.a WHERE b > 1": [],
    "SELECT r.a, q.c FROM r LEFT JOIN q ON r.a = q.a RIGHT JOIN q AS p ON p.c = q.c WHERE r.b > 1": [],
    "SELECT r.a, q.c FROM r FULL JOIN q ON r.a = q.a WHERE r.b > 1": [],
    "SELECT r.a, q.c FROM r, q WHERE r.a = q.a AND b > 1 AND c < 2 AND r.b < q.c": ["b > 1 on r", "c < 2 on q"],
    "SELECT p.a FROM q AS p CROSS JOIN (r LEFT JOIN q ON r.a = q.a) WHERE r.b > 1": [],
    "SELECT r.a FROM r WHERE EXISTS (SELECT 1 FROM q LEFT JOIN q AS p ON p.a = q.a WHERE q.c > 1 AND p.c = r.b)": [
        "q.c > 1 on q",
    ],
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("query", BEFORE)
def test_conditions_on_a_table_are_met_before_it_is_joined_where_that_changes_nothing(query: str) -> None:
    views = program(f"CREATE VIEW v AS {query}")
    logs = random_logs(random.Random("before"))
    ddcore.replay(views, ("version",), **logs)
    decisions = views.decisions  # type: ignore[attr-defined]
    assert [decision.text for decision in decisions if decision.what == "before the joins"] == BEFORE[query]
    for seed in range(3):
        assert not differences(query, random_logs(random.Random(f"before {seed}"))), seed


ORDERS_OF_JOINS = {
    "SELECT x.a FROM r AS x, q AS y, r AS z WHERE x.a = z.b AND z.a = y.c": (
        "x JOIN z ON x.a = z.b JOIN y ON z.a = y.c"
    ),
    "SELECT x.a FROM r AS x JOIN q AS y USING (a) LEFT JOIN (r AS z JOIN q AS w ON z.a = w.c) ON z.b < x.b": (
        "y JOIN (x LEFT JOIN (z JOIN w ON z.a = w.c) ON z.b < x.b) ON x.a = y.a"
    ),
    "SELECT x.a, y.c FROM r AS x, q AS y": "x CROSS JOIN y",
}  # fmt: skip


@pytest.mark.parametrize("query", ORDERS_OF_JOINS)
def test_the_order_of_joins_is_told(query: str) -> None:
    views = program(f"CREATE VIEW v AS {query}")
    ddcore.replay(views, ("version",), **random_logs(random.Random("told")))
    told = [decision.text for decision in views.decisions if decision.what == "joined"]  # type: ignore[attr-defined]
    assert told == [ORDERS_OF_JOINS[query]]


STATEMENTS = {
    "PIVOT r ON a IN (1, 2) USING sum(b) GROUP BY s": ["s", "1", "2"],
    "PIVOT (SELECT s, a, m FROM r WHERE b > 0) ON a IN (0, 1, NULL) USING max(m) AS most": [
        "s", "0_most", "1_most", "NULL_most",
    ],
    "PIVOT q ON f IN (true, false), c IN (1, 2) USING count(*) AS n, min(d) AS first GROUP BY u": [
        "u", "true_1_n", "true_1_first", "true_2_n", "true_2_first", "false_1_n", "false_1_first", "false_2_n",
        "false_2_first",
    ],
    "PIVOT (SELECT s, a FROM r) ON a IN (1, 2)": ["s", "1", "2"],
    'SELECT p.s, p."1_n" FROM (PIVOT r ON a IN (1) USING count(b) AS n GROUP BY s) AS p JOIN q ON q.u = p.s': [
        "s", "1_n",
    ],
    "UNPIVOT (SELECT s, a, b FROM r) ON a, b INTO NAME n VALUE v": ["s", "n", "v"],
    "UNPIVOT (SELECT u, a, c FROM q) ON a, c": ["u", "name", "value"],
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("query", STATEMENTS)
def test_statements_of_pivots_equal_duckdb(query: str) -> None:
    for seed in range(3):
        logs = random_logs(random.Random(f"pivots {seed}"))
        assert not differences(query, logs), seed
    log = ddcore.replay(program(f"CREATE VIEW v AS {query}"), ("version",), **logs)["v"]
    assert [name for name in log.columns if name not in ("version", "diff")] == STATEMENTS[query]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("PIVOT r ON a USING sum(b)", "PIVOT by whatever values there are is not supported: a"),
        ("PIVOT r ON a IN (1) USING sum(b), max(b)", "this aggregate of several has no name"),
        ("PIVOT r ON a IN (1) USING sum(b) GROUP BY z", 'there is no column "z"'),
        ("UNPIVOT r ON COLUMNS(* EXCLUDE s)", "this part of an UNPIVOT is not supported"),
        ("SELECT a FROM r, unnest(ARRAY[1], ARRAY[2])", "unnest() of several lists without names is not supported"),
    ],
)
def test_what_a_pivot_cannot_be_is_refused_with_its_place(query: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        ddcore.replay(program(f"CREATE VIEW v AS {query}"), ("version",), **random_logs(random.Random(0)))
    assert re.fullmatch(rf"program\.sql:1:\d+: {re.escape(message)}.*", caught.value.message) and caught.value.hint


TABLE_OF_LISTS = pl.DataFrame(
    [(1, [1, 2], ["x"], 0, 1), (2, [3], ["y", None, "z"], 0, 1), (3, None, ["w"], 0, 1), (4, [], None, 0, 1),
     (2, [3], ["y", None, "z"], 1, -1), (5, [None], ["v", "v"], 1, 1)],
    {"k": pl.Int64, "l": pl.List(pl.Int64), "m": pl.List(pl.String), "version": pl.Int64, "diff": pl.Int64},
    orient="row",
)  # fmt: skip
SIDE_BY_SIDE = {
    "SELECT k, x, y FROM lists, unnest(l, m) AS u(x, y)": [
        (1, 1, "x"), (1, 2, None), (3, None, "w"), (5, None, "v"), (5, None, "v"),
    ],
    "SELECT k, n, y FROM lists LEFT JOIN LATERAL unnest(l, m) WITH ORDINALITY AS u(x, y, n) ON true": [
        (1, 1, "x"), (1, 2, None), (3, 1, "w"), (4, None, None), (5, 1, "v"), (5, 2, "v"),
    ],
    "SELECT 0 AS k, x, y FROM unnest(ARRAY[1, 2], ARRAY['a']) AS u(x, y)": [(0, 1, "a"), (0, 2, None)],
}  # fmt: skip


@pytest.mark.parametrize("query", SIDE_BY_SIDE)
def test_lists_side_by_side_as_postgresql_has_them(query: str) -> None:
    views = program(f"CREATE VIEW v AS {query}")
    log = ddcore.replay(views, ("version",), lists=TABLE_OF_LISTS)["v"]
    rows = sorted(accumulated(log, 1).rows(), key=lambda row: [(value is None, value) for value in row])
    assert rows == SIDE_BY_SIDE[query]
    assert whole(views, lists=TABLE_OF_LISTS) == by_reference(views, lists=TABLE_OF_LISTS)
