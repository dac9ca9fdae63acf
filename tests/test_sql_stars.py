"""Stars, groups, joins and commas in SQL: against DuckDB at every version, in the order of columns of PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import duckdb
import polars as pl
import pytest
import sql_stars
from seeds import seeds
from sql_duckdb import bag, database
from sql_stars import StarQuery
from sql_tables import accumulated, random_logs

import ddcore
from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.sql import program


def require_equal(chosen: Iterable[int]) -> None:
    """That ddcore's rows are DuckDB's, column by column, at every version, and that it refuses each fifth query."""
    for seed in chosen:
        rng = random.Random(f"stars {seed}")
        logs = random_logs(rng, rows=4, schemas=sql_stars.SCHEMAS)
        query = StarQuery(rng, wrong=seed % 5 == 0)
        print(f"seed {seed}: {query.view}\n  in DuckDB: {query.duckdb}")
        if query.mistake:
            require_refused(query, logs, f"seed {seed}")
            continue
        log = ddcore.replay(program(query.view), ("version",), **logs)["result"]
        for version in range(3):
            with database(logs, version) as connection:
                other = bag(connection.execute(query.duckdb).fetchall())
            own = bag(accumulated(log, version).rows())
            assert own == other, (
                f"seed {seed}, version {version}: only here {list(own - other)[:3]}, only in DuckDB"
                f" {list(other - own)[:3]}: {query.view}"
            )


def require_refused(query: StarQuery, logs: dict[str, pl.DataFrame], seed: str) -> None:
    with pytest.raises(ProgramError) as caught:
        ddcore.replay(program(query.view), ("version",), **logs)
    assert query.mistake in caught.value.message and caught.value.hint, f"{seed}: {caught.value.message}"
    assert caught.value.message.startswith("program.sql:1:"), f"{seed}: {caught.value.message}"
    if "GROUP BY" in query.mistake:  # DuckDB takes an ON that names a table before a comma
        with database(logs, 0) as connection, pytest.raises(duckdb.Error):
            connection.execute(query.duckdb)


@pytest.mark.sample(1)
@pytest.mark.parametrize("block", range(4))
def test_random_stars_equal_duckdb_at_every_version(block: int) -> None:
    require_equal(range(40)[block::4])


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_many_random_stars_equal_duckdb_at_every_version(block: int) -> None:
    require_equal(seeds(360, start=40)[block::4])


# -- single queries ---------------------------------------------------------------------------------------------------


def table(columns: str, *rows: tuple[Any, ...]) -> pl.DataFrame:
    """Rows that are there from version 0 on."""
    return pl.DataFrame([(*row, 0, 1) for row in rows], schema=[*columns, "version", "diff"], orient="row")


LOGS = {
    "t": table("abc", (1, 2, 3), (1, 2, 4), (5, 6, 7)),
    "u": table("bd", (2, 8), (6, 9)),
    "w": table("ce", (3, 10), (7, 11), (0, 12)),
    "v": table("ae", (1, 10), (4, 12)),
    "one": table("a", (1,), (2,)),
    "two": table("b", (1,)),
    "three": table("c", (7,)),
}


def result(query: str, columns: str = "") -> pl.DataFrame:
    """The rows of a query over LOGS; ``columns`` names those of the view."""
    head = f"CREATE VIEW result ({', '.join(columns)})" if columns else "CREATE VIEW result"
    return accumulated(ddcore.replay(program(f"{head} AS\n{query}"), ("version",), **LOGS)["result"], 0)


def rows(query: str, columns: str = "") -> list[tuple[Any, ...]]:
    return sorted(result(query, columns).rows(), key=lambda row: [(value is None, value) for value in row])


# What PostgreSQL 15 answers.
ORDERS = {
    "SELECT * FROM t JOIN u USING (b) JOIN w USING (c)": "c b a d e",
    "SELECT * FROM t JOIN u USING (b) JOIN v USING (a)": "a b c d e",
    "SELECT * FROM t NATURAL JOIN u NATURAL JOIN w": "c b a d e",
    "SELECT * FROM t LEFT JOIN u USING (b) RIGHT JOIN w USING (c)": "c b a d e",
    "SELECT * FROM t NATURAL FULL JOIN u NATURAL FULL JOIN w": "c b a d e",
    "SELECT * FROM t JOIN v USING (a) NATURAL JOIN w": "c e a b",
    "SELECT * FROM w AS x (p, q), t JOIN u USING (b)": "p q b a c d",
    "SELECT * FROM u NATURAL JOIN t, w AS x (p, q) NATURAL JOIN w AS y (r, q)": "b d a c q p r",
    "SELECT t.*, x.q FROM t JOIN u USING (b) JOIN w AS x (c, q) USING (c)": "a b c q",
    "SELECT u.*, d AS more FROM t JOIN u USING (b)": "b d more",
    "SELECT * FROM (SELECT * FROM t JOIN u USING (b) JOIN w USING (c)) AS x (p, q)": "p q a d e",
    "SELECT * FROM t GROUP BY c, b, a": "a b c",
    "SELECT * FROM t JOIN u USING (b) GROUP BY d, a, b, c": "b a c d",
    "SELECT u.*, count(*) AS n FROM t JOIN u USING (b) GROUP BY d, u.b": "b d n",
    "SELECT *, count(*) AS n FROM u GROUP BY 2, 1": "b d n",
    "WITH x AS (SELECT * FROM t GROUP BY c, a, b) SELECT * FROM x NATURAL JOIN u": "b a c d",
}


@pytest.mark.parametrize("query", ORDERS, ids=range(len(ORDERS)))
def test_a_star_has_postgresql_s_order_of_columns(query: str) -> None:
    assert result(query).columns == ORDERS[query].split()


CASES: dict[str, list[tuple[Any, ...]]] = {
    # a star over groups, by position
    "SELECT * FROM t GROUP BY c, b, a UNION ALL SELECT * FROM t": [
        (1, 2, 3), (1, 2, 3), (1, 2, 4), (1, 2, 4), (5, 6, 7), (5, 6, 7),
    ],
    "SELECT * FROM t WHERE (a, b) IN (SELECT * FROM (SELECT a, b FROM t) x GROUP BY b, a)": [
        (1, 2, 3), (1, 2, 4), (5, 6, 7),
    ],
    "SELECT * FROM t x WHERE (b, 8) IN (SELECT * FROM u WHERE u.b = x.b)": [(1, 2, 3), (1, 2, 4)],
    "SELECT DISTINCT * FROM t JOIN u USING (b) GROUP BY c, a, b, d HAVING count(*) = 1 AND a < 5": [
        (2, 1, 3, 8), (2, 1, 4, 8),
    ],
    "SELECT *, NULL AS n FROM u UNION SELECT 1, 2, 3": [(1, 2, 3), (2, 8, None), (6, 9, None)],
    "SELECT NULL AS n, * FROM two UNION ALL SELECT * FROM u": [(2, 8), (6, 9), (None, 1)],
    "SELECT x.*, 0 AS z FROM (SELECT t.a, t.b, u.b FROM t, u WHERE t.c = 3) AS x": [(1, 2, 2, 0), (1, 2, 6, 0)],
    # a comma before every kind of join
    "SELECT * FROM one, two RIGHT JOIN three ON b = c": [(1, None, 7), (2, None, 7)],
    "SELECT * FROM one, two FULL JOIN three ON b = c": [(1, 1, None), (1, None, 7), (2, 1, None), (2, None, 7)],
    "SELECT * FROM one, two LEFT JOIN three ON b = c": [(1, 1, None), (2, 1, None)],
    "SELECT * FROM one, two NATURAL JOIN one AS x": [(1, 1, 1), (1, 1, 2), (2, 1, 1), (2, 1, 2)],
    "SELECT * FROM one, three NATURAL RIGHT JOIN w WHERE e < 12": [(1, 3, 10), (1, 7, 11), (2, 3, 10), (2, 7, 11)],
    "SELECT * FROM one, u JOIN t USING (b) WHERE c = 7": [(1, 6, 9, 5, 7), (2, 6, 9, 5, 7)],
    "SELECT * FROM t, v JOIN one USING (a) WHERE c = 7": [(5, 6, 7, 1, 10)],
    "SELECT * FROM two CROSS JOIN one RIGHT JOIN three ON a = c": [(None, None, 7)],
    "SELECT * FROM one FULL JOIN v USING (a), two FULL JOIN t USING (b) WHERE b < 2": [
        (1, 10, 1, None, None), (2, None, 1, None, None), (4, 12, 1, None, None),
    ],
    # a name in ON means a table that stands before it
    "SELECT t.a, e FROM t JOIN u ON d = a + 7 JOIN w ON w.c = t.c JOIN v AS x (a, d) ON x.a = t.a": [(1, 10)],
    "SELECT one.a FROM one JOIN two ON 1 = 0 FULL JOIN three ON b = c": [(None,)],
    "SELECT a FROM one WHERE EXISTS (SELECT 1 FROM u LEFT JOIN w ON d = a + 7 AND e < 11 WHERE c = a + 2)": [(1,)],
    "SELECT t.a, x.d FROM t JOIN LATERAL (SELECT * FROM u WHERE u.b >= t.b) AS x USING (b)": [(1, 8), (1, 8), (5, 9)],
    "SELECT a / 2 AS half FROM one JOIN (VALUES (1.0)) AS x (a) USING (a)": [(0.5,)],
    "WITH x AS (SELECT * FROM one) (SELECT * FROM x) EXCEPT SELECT 1": [(2,)],
}  # fmt: skip


@pytest.mark.parametrize("query", CASES, ids=range(len(CASES)))
def test_single_queries(query: str) -> None:
    width = len(CASES[query][0])
    assert rows(query, "pqrstuvwx"[:width]) == CASES[query]


def test_a_program_that_begins_with_from_means_the_same_each_time_it_is_planned() -> None:
    views = program("CREATE VIEW result AS FROM one JOIN v USING (a)")
    for _ in range(2):
        assert ddcore.replay(views, ("version",), **LOGS)["result"].select("a", "e").rows() == [(1, 10)]


MISTAKES = {
    "SELECT * FROM t GROUP BY a": (
        "program.sql:2:8: * stands for t.b too, which is neither a key of GROUP BY nor in an aggregate",
        "add it to GROUP BY, or name columns in place of *",
    ),
    "SELECT x.*, count(*) AS n FROM t x GROUP BY a, b": (
        "program.sql:2:8: x.* stands for x.c too, which is neither a key of GROUP BY nor in an aggregate",
        "add it to GROUP BY, or name columns in place of x.*",
    ),
    "SELECT a FROM t WHERE (a, b) IN (SELECT * FROM u GROUP BY b)": (
        "program.sql:2:41: * stands for u.d too, which is neither a key of GROUP BY nor in an aggregate",
        "add it to GROUP BY, or name columns in place of *",
    ),
    "SELECT * FROM t HAVING count(*) > 1": (
        "program.sql:2:8: * stands for t.a too, which is neither a key of GROUP BY nor in an aggregate",
        "add it to GROUP BY, or name columns in place of *",
    ),
    "SELECT b, *\nFROM t JOIN u USING (b)\nGROUP BY b, a, c": (
        "program.sql:2:11: * stands for u.d too, which is neither a key of GROUP BY nor in an aggregate",
        "add it to GROUP BY, or name columns in place of *",
    ),
    "SELECT * FROM t GROUP BY 1, 2, 3, 4": (
        "program.sql:2:35: GROUP BY 4: the SELECT has 3 columns",
        "give one of their numbers",
    ),
    "SELECT e FROM t, u RIGHT JOIN w ON t.c = w.c": (
        "program.sql:2:36: ON names t.c, which a comma separates from this JOIN: JOIN binds tighter",
        "write CROSS JOIN in place of the comma, or move the condition to WHERE",
    ),
    "SELECT e FROM t, u JOIN w ON EXISTS (SELECT 1 FROM two WHERE two.b = t.b)": (
        "program.sql:2:70: ON names t.b, which a comma separates from this JOIN: JOIN binds tighter",
        "write CROSS JOIN in place of the comma, or move the condition to WHERE",
    ),
    "SELECT * FROM t, u JOIN w USING (c)": (
        "program.sql:2:25: USING (c): 0 columns on the left, 1 on the right",
        "JOIN binds tighter than a comma: write CROSS JOIN in place of the comma",
    ),
    "SELECT * FROM t JOIN v USING (b)": (
        "program.sql:2:22: USING (b): 1 columns on the left, 0 on the right",
        "name a column that both sides have once",
    ),
    "SELECT * FROM t JOIN u USING (b, b)": ("program.sql:2:22: USING names b twice", "name it once"),
    "SELECT t.a FROM t JOIN u": (
        "program.sql:2:19: this JOIN has neither ON nor USING",
        "add ON condition or USING (column), or write CROSS JOIN for each row with each",
    ),
    "SELECT t.a FROM t LEFT JOIN u, w JOIN v ON w.e = v.e": (
        "program.sql:2:24: this JOIN has neither ON nor USING",
        "add ON condition or USING (column), or write CROSS JOIN for each row with each",
    ),
    "SELECT t.a FROM t CROSS JOIN u ON t.b = u.b": (
        "program.sql:2:32: there is no JOIN for this ON",
        "CROSS JOIN and NATURAL JOIN take none; other conditions belong into WHERE",
    ),
    "SELECT d FROM t, LATERAL (SELECT * FROM u WHERE u.b = t.b) x RIGHT JOIN w ON d = e": (
        "program.sql:2:73: a RIGHT JOIN behind a comma and LATERAL is not supported: RIGHT JOIN w ON d = e",
        "compute the join in a subquery",
    ),
    "WITH RECURSIVE r AS (SELECT a, b FROM t UNION SELECT r.a, e FROM u JOIN r USING (b) RIGHT JOIN w ON c = r.b)"
    " SELECT * FROM r": (
        "program.sql:2:73: WITH RECURSIVE r: an outer join with itself",
        "write WITH MUTUALLY RECURSIVE name (column type, ...) AS (...), which allows it",
    ),
}


@pytest.mark.parametrize("query", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_name_their_place_and_a_way_on(query: str) -> None:
    with pytest.raises(ProgramError) as caught:
        result(query)
    assert (caught.value.message, caught.value.hint) == MISTAKES[query]


# -- subqueries as values ---------------------------------------------------------------------------------------------

SEVERAL = {
    "SELECT (SELECT e FROM w) AS x FROM one": "program.sql:2:16: this subquery gives 3 rows, where one value is"
    " wanted: SELECT e FROM w",
    "SELECT a, (SELECT c FROM t WHERE t.a = one.a) AS x\nFROM one": "program.sql:2:19: this subquery gives 2 rows for"
    " one.a=1, where one value is wanted: SELECT c FROM t WHERE t.a = one.a",
    "SELECT a FROM one AS x\nWHERE a < (SELECT e FROM w WHERE e > x.a + 9 AND c <> x.a)": "program.sql:3:19: this "
    "subquery gives 2 rows for x.a=1, where one value is wanted: SELECT e FROM w WHERE e > x.a + 9 AND c <> x.a",
}


@pytest.mark.parametrize("query", SEVERAL, ids=range(len(SEVERAL)))
def test_the_error_of_a_subquery_with_several_rows_shows_what_was_written(query: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        result(query)
    assert caught.value.message == SEVERAL[query]
    assert "max(...)" in caught.value.hint


def test_several_rows_of_a_subquery_matter_only_where_there_is_a_row_around() -> None:
    assert rows("SELECT a, (SELECT c FROM t WHERE t.a = one.a) AS x FROM one WHERE a = 2") == [(2, None)]
    assert rows("SELECT a, (SELECT e FROM w) AS x FROM one WHERE a = 3") == []


def test_the_place_of_a_subquery_is_no_part_of_the_program() -> None:
    from ddcore.planning.planner import build

    text = "CREATE VIEW v AS SELECT a, (SELECT c FROM t WHERE t.a = one.a) AS x FROM one"
    schemas = {"one": {"a": "int64"}, "t": {"a": "int64", "c": "int64"}}
    one, other = (build(program(item), schemas).fingerprint for item in (text, f"-- what it means\n{text}"))
    assert one == other
