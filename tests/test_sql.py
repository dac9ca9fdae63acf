"""Programs of SQL: queries against DuckDB at every version, recursion, mistakes, and a project from end to end."""

from __future__ import annotations

import math
import random
import re
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
from folding import by_reference, whole
from seeds import nightly
from sql_duckdb import bag, database
from sql_queries import RandomQuery
from sql_tables import WIDE, accumulated, random_logs

import ddcore
from ddcore.base.errors import Diverged, ExpressionError, ProgramError
from ddcore.cli.main import run_command
from ddcore.planning.planner import build
from ddcore.sql import load, program


def differences(query: str, logs: dict[str, pl.DataFrame], other: str = "") -> str:
    """How ddcore's result of a query differs from DuckDB's, in ``other`` words, at some version, or nothing."""
    log = ddcore.replay(program(f"CREATE VIEW result AS {query}"), ("version",), **logs)["result"]
    for version in range(3):
        with database(logs, version) as connection:
            others = bag(connection.execute(other or query).fetchall())
        own = bag(accumulated(log, version).rows())
        if own != others:
            return f"version {version}: only here {list(own - others)[:3]}, only in DuckDB {list(others - own)[:3]}"
    return ""


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", range(12))
def test_the_reference_gives_the_same_as_the_engine_for_random_queries(number: int) -> None:
    """On a few rows: the naive evaluator plans each query anew at every time."""
    rng = random.Random(f"reference {number}")
    logs, query = random_logs(rng, rows=3, schemas=WIDE), RandomQuery(rng).texts()[0]
    views = program(f"CREATE VIEW result AS {query}")
    assert whole(views, **logs) == by_reference(views, **logs), query


@pytest.mark.sample(1)
@pytest.mark.parametrize("quantifier", ["ANY", "ALL", pytest.param("SOME", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "inner", nightly(["SELECT c FROM q WHERE q.a = r.a", "SELECT c FROM q", "SELECT c FROM q WHERE a > 9"], 2)
)
def test_comparisons_with_any_and_all_equal_duckdb(inner: str, quantifier: str) -> None:
    truths = [f"b {sign} {quantifier} ({inner}) AS t{n}" for n, sign in enumerate(("=", "<>", "<", ">=", "<=", ">"))]
    for seed in range(3):
        logs = random_logs(random.Random(f"quantified {seed}"))
        assert not differences(f"SELECT a, b, {', '.join(truths)} FROM r", logs), seed
        for truth in truths:
            assert not differences(f"SELECT a, b FROM r WHERE {truth.partition(' AS ')[0]}", logs), (seed, truth)


# -- single queries ---------------------------------------------------------------------------------------------------

ORDERS = pl.DataFrame(
    [
        (1, "ann", 5, 0, 1), (2, "ann", 7, 0, 1), (2, "ann", 7, 0, 1), (3, "bob", None, 0, 1), (4, None, 9, 0, 1),
        (2, "ann", 7, 1, -1), (5, "bob", 2, 1, 1),
    ],
    schema=["id", "who", "sum", "version", "diff"], orient="row",
)  # fmt: skip
PEOPLE = pl.DataFrame(
    [("ann", "Ulm", 0, 1), ("cid", None, 0, 1)], schema=["who", "town", "version", "diff"], orient="row"
)


def rows_of(query: str, version: int = 1, **logs: pl.DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a query over ORDERS and PEOPLE, or over other tables, at a version, sorted."""
    logs = logs or {"orders": ORDERS, "people": PEOPLE}
    log = ddcore.replay(program(f"CREATE VIEW result AS {query}"), ("version",), **logs)["result"]
    return sorted(accumulated(log, version).rows(), key=lambda row: [(value is None, value) for value in row])


CASES = {
    "SELECT id FROM orders WHERE who <> 'ann'": [(3,), (5,)],
    "SELECT id FROM orders WHERE who NOT IN (SELECT who FROM people)": [(3,), (5,)],
    "SELECT who FROM people WHERE who NOT IN (SELECT who FROM orders)": [],
    "SELECT who FROM people p WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.who = p.who)": [("cid",)],
    "SELECT who, count(*) AS n, count(sum) AS c, sum(sum) AS s FROM orders GROUP BY who": [
        ("ann", 2, 2, 12),
        ("bob", 2, 1, 2),
        (None, 1, 1, 9),
    ],
    "SELECT count(*) AS n, sum(sum) AS s, min(id) AS m FROM orders WHERE id > 9": [(0, None, None)],
    "SELECT o.id, p.town FROM orders o LEFT JOIN people p USING (who) WHERE o.id < 4": [
        (1, "Ulm"),
        (2, "Ulm"),
        (3, None),
    ],
    "SELECT who, o.id FROM orders o NATURAL FULL JOIN people": [
        ("ann", 1),
        ("ann", 2),
        ("bob", 3),
        ("bob", 5),
        ("cid", None),
        (None, 4),
    ],
    "SELECT p.who, x.id FROM people p LEFT JOIN LATERAL (SELECT id FROM orders o WHERE o.who = p.who"
    " ORDER BY id DESC LIMIT 1) x ON true": [("ann", 2), ("cid", None)],
    "SELECT id FROM orders ORDER BY sum DESC LIMIT 2": [(3,), (4,)],
    "SELECT id FROM orders ORDER BY sum DESC NULLS LAST FETCH FIRST 2 ROWS WITH TIES": [(2,), (4,)],
    "SELECT id, (SELECT town FROM people p WHERE p.who = o.who) AS town FROM orders o WHERE id < 4": [
        (1, "Ulm"),
        (2, "Ulm"),
        (3, None),
    ],
    "SELECT id FROM orders WHERE (who, id) IN (SELECT who, 1 FROM people)": [(1,)],
    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY who ORDER BY sum) AS n FROM orders) AS o WHERE n = 1": [
        (1,),
        (4,),
        (5,),
    ],
    "SELECT id, rank() OVER (ORDER BY sum DESC) AS r FROM orders QUALIFY r <= 2": [(3, 1), (4, 2)],
    "SELECT id, n FROM (SELECT id, dense_rank() OVER (ORDER BY who NULLS FIRST) AS n FROM orders) o WHERE n < 3": [
        (1, 2),
        (2, 2),
        (4, 1),
    ],
    "SELECT id, sum(sum) OVER (PARTITION BY who) - sum AS rest FROM orders WHERE who IS NOT NULL": [
        (1, 7),
        (2, 5),
        (3, None),
        (5, 0),
    ],
    "SELECT who, sum(sum) AS s, sum(sum(sum)) OVER () AS t FROM orders GROUP BY who HAVING sum(sum) > 2": [
        ("ann", 12, 21),
        (None, 9, 21),
    ],
    "SELECT sum(sum) FILTER (WHERE EXISTS (SELECT 1 FROM people p WHERE p.who = orders.who)) AS s FROM orders": [(12,)],
    "SELECT who IN (SELECT who FROM people) AS known, count(*) AS n FROM orders GROUP BY known": [
        (False, 2),
        (True, 2),
        (None, 1),
    ],
    "SELECT id FROM orders WHERE id > 3 UNION SELECT NULL": [(4,), (5,), (None,)],
    "SELECT id FROM orders ORDER BY id OFFSET 3": [(4,), (5,)],
    "SELECT 1 AS one FROM orders HAVING true": [(1,)],
    "SELECT who, grouping(who) AS level, sum(sum) AS s FROM orders GROUP BY ROLLUP (who)"
    " ORDER BY level DESC, CASE WHEN level = 0 THEN -s END LIMIT 2": [("ann", 0, 12), (None, 1, 23)],
    "SELECT DISTINCT date '2024-2-01' AS d FROM orders": [(date(2024, 2, 1),)],
    "SELECT a, rn FROM (SELECT id, row_number() OVER (ORDER BY id DESC) AS a FROM orders) AS o (rn, a) WHERE rn <= 2": [
        (4, 2),
        (5, 1),
    ],
    "SELECT -7 / 2 AS a, -7 % 2 AS b, 7 / 0 AS c, 1.50 * 2 AS d FROM people WHERE who = 'ann'": [(-3, -1, None, 3)],
    "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v (n, t)": [(1, "a"), (2, None)],
    "SELECT sum(sum) FILTER (WHERE who = 'ann') AS s FROM orders HAVING count(*) > 3": [(12,)],
    "SELECT who, count(*) AS n, sum(sum) AS s, grouping(who) AS g FROM orders GROUP BY ROLLUP (who)": [
        ("ann", 2, 12, 0),
        ("bob", 2, 2, 0),
        (None, 1, 9, 0),
        (None, 5, 23, 1),
    ],
    "SELECT who, id > 2 AS late, grouping(who, id > 2) AS g, count(*) AS n FROM orders WHERE sum > 2"
    " GROUP BY GROUPING SETS ((who, id > 2), (id > 2), ()) HAVING count(*) > 1": [
        ("ann", False, 0, 2),
        (None, False, 2, 2),
        (None, None, 3, 3),
    ],
    "SELECT who, count(*) AS n FROM orders WHERE id > 9 GROUP BY GROUPING SETS (who, (), ())": [(None, 0), (None, 0)],
    "SELECT who, sum > 5 AS large, count(*) AS n FROM orders WHERE who = 'ann' GROUP BY ALL": [
        ("ann", False, 1),
        ("ann", True, 1),
    ],
    "SELECT who, id, count(*) AS n FROM orders WHERE id < 3 GROUP BY (who, id)": [("ann", 1, 1), ("ann", 2, 1)],
    "SELECT DISTINCT ON (who) who, id FROM orders ORDER BY who, sum DESC NULLS LAST": [
        ("ann", 2),
        ("bob", 5),
        (None, 4),
    ],
    "SELECT DISTINCT ON (id % 2) id FROM orders ORDER BY id % 2, id DESC LIMIT 1": [(4,)],
    "SELECT sum(DISTINCT sum % 2) AS s, avg(DISTINCT id % 4) AS a, count(DISTINCT (who, sum > 6)) AS n FROM orders": [
        (1, 1.5, 5)
    ],
    "SELECT who, variance(sum) AS v, stddev_pop(id) AS s, median(sum) AS m, mode() WITHIN GROUP (ORDER BY sum) AS f"
    " FROM orders GROUP BY who": [
        ("ann", 2.0, 0.5, 6.0, 5),
        ("bob", None, 1.0, 2.0, 2),
        (None, None, 0.0, 9.0, 9),
    ],
    "SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY sum) AS a,"
    " percentile_cont(0.25) WITHIN GROUP (ORDER BY sum DESC) AS b,"
    " percentile_disc(0.5) WITHIN GROUP (ORDER BY who) AS c,"
    " percentile_disc(0.5) WITHIN GROUP (ORDER BY sum DESC) AS d FROM orders": [(4.25, 7.5, "ann", 7)],
    "SELECT string_agg(who, ',' ORDER BY id DESC) AS a, string_agg(DISTINCT who, '') AS b, min_by(who, sum) AS c,"
    " max_by(id, sum) AS d, bit_or(id) AS e, every(id > 1) AS f FROM orders": [
        ("bob,bob,ann,ann", "annbob", "bob", 4, 7, False)
    ],
    "SELECT who, cardinality(array_agg(sum)) AS n,"
    " array_to_string(array_agg(CAST(id AS text) ORDER BY sum NULLS FIRST), '') AS l FROM orders GROUP BY who": [
        ("ann", 2, "12"),
        ("bob", 2, "35"),
        (None, 1, "4"),
    ],
    "SELECT round(corr(id, sum) * 1000) AS c, regr_count(id, sum) AS n, round(regr_slope(sum, id) * 1000) AS s,"
    " regr_avgy(sum, id) AS a FROM orders WHERE id < 3 OR id > 3": [(-245, 4, -400, 5.75)],
    "SELECT stddev(DISTINCT sum % 2) AS s, count(*) AS n FROM orders": [(math.sqrt(0.5), 5)],
    "SELECT median(sum) AS m, string_agg(who, ',') AS t, stddev(id) AS s FROM orders WHERE id > 9": [
        (None, None, None)
    ],
    "SELECT id, median(sum) OVER (PARTITION BY who) AS m FROM orders WHERE who = 'ann'": [(1, 6.0), (2, 6.0)],
    "SELECT upper(who) || '!' AS w, position('n' IN who) AS p FROM people": [("ANN!", 2), ("CID!", 0)],
    "SELECT DISTINCT extract(year FROM date '2024-02-29' + interval '1 year') AS y FROM people": [(2025,)],
    "SELECT date '2024-01-31' + interval '1' month AS d, date '2024-03-01' - date '2024-02-01' AS n FROM people"
    " WHERE town IS NULL": [(date(2024, 2, 29), 29)],
}


@pytest.mark.parametrize("query", CASES, ids=range(len(CASES)))
def test_single_queries(query: str) -> None:
    assert rows_of(query) == CASES[query]


def test_single_queries_by_the_reference() -> None:
    for query in CASES:
        views = program(f"CREATE VIEW result AS {query}")
        logs = {"orders": ORDERS, "people": PEOPLE}
        assert whole(views, **logs) == by_reference(views, **logs), query


def test_a_subquery_with_several_rows_where_one_value_is_wanted_ends_the_run() -> None:
    with pytest.raises(ExpressionError, match=r"^program\.sql:1:\d+: this subquery gives 2 rows for p\.who='ann'"):
        rows_of("SELECT (SELECT id FROM orders o WHERE o.who = p.who) AS id FROM people p")


def test_views_name_earlier_views_and_temporary_ones_are_no_outputs() -> None:
    views = program(
        "CREATE TEMPORARY VIEW totals (name, total) AS SELECT who, sum(sum) FROM orders GROUP BY who;"
        'CREATE VIEW "Large" AS SELECT name, total FROM totals WHERE total > 5;'
    )
    logs = ddcore.replay(views, orders=ORDERS, people=PEOPLE)
    assert list(logs) == ["Large"]
    assert logs["Large"].rows() == [(None, 9, 0, 1), ("ann", 19, 0, 1), ("ann", 12, 1, 1), ("ann", 19, 1, -1)]


def test_the_text_s_layout_is_no_part_of_the_program_and_its_meaning_is() -> None:
    schemas = {"orders": {"id": "int64", "who": "string", "sum": "int64"}}
    texts = [
        "CREATE VIEW v AS SELECT id FROM orders WHERE sum > 3",
        "-- more\ncreate view v as\nselect ID\nfrom Orders where SUM>3;",
    ]
    one, two, other = (build(program(text), schemas).fingerprint for text in [*texts, texts[0].replace("3", "4")])
    assert one == two != other


# -- recursion --------------------------------------------------------------------------------------------------------

EDGES = pl.DataFrame(
    [("a", "b", 0, 1), ("b", "c", 0, 1), ("c", "a", 0, 1), ("c", "d", 0, 1), ("d", "e", 1, 1), ("c", "a", 2, -1)],
    schema=["src", "dst", "version", "diff"], orient="row",
)  # fmt: skip
CLOSURE = """
    WITH MUTUALLY RECURSIVE reach (src text, dst text) AS (
        SELECT src, dst FROM edges UNION SELECT reach.src, edges.dst FROM reach JOIN edges ON reach.dst = edges.src
    ) SELECT src, dst FROM reach"""


def pairs(text: str) -> list[tuple[str, ...]]:
    return sorted(tuple(pair) for pair in text.split())


@pytest.mark.parametrize("version", range(3))
def test_transitive_closure(version: int) -> None:
    cycle = "aa ab ac ba bb bc ca cb cc"
    expected = [f"{cycle} ad bd cd", f"{cycle} ad bd cd de ae be ce", "ab ac ad ae bc bd be cd ce de"][version]
    assert rows_of(CLOSURE, version, edges=EDGES) == pairs(expected)
    standard = "WITH RECURSIVE reach AS (SELECT src, dst FROM edges UNION SELECT reach.src, edges.dst FROM reach, edges"
    standard += " WHERE reach.dst = edges.src) SELECT src, dst FROM reach"
    assert rows_of(standard, version, edges=EDGES) == pairs(expected)


@pytest.mark.parametrize(("version", "expected"), [(0, "aa ba ca dd"), (1, "aa ba ca dd ee"), (2, "aa bb cc dd ee")])
def test_strongly_connected_components(version: int, expected: str) -> None:
    """Nodes that reach each other are one component, named after its least node."""
    query = """
        WITH MUTUALLY RECURSIVE reach (src text, dst text) AS (
            SELECT src, dst FROM edges UNION SELECT reach.src, edges.dst FROM reach JOIN edges ON reach.dst = edges.src
        ),
        nodes (node text) AS (SELECT src FROM edges UNION SELECT dst FROM edges)
        SELECT node, min(label) AS label FROM (
            SELECT node, node AS label FROM nodes
            UNION ALL SELECT r.src, r.dst FROM reach r JOIN reach back ON r.src = back.dst AND r.dst = back.src) x
        GROUP BY node"""
    assert rows_of(query, version, edges=EDGES) == pairs(expected)


def test_connected_components_by_the_least_label() -> None:
    query = """
        WITH MUTUALLY RECURSIVE
            both (x text, y text) AS (SELECT src, dst FROM edges UNION SELECT dst, src FROM edges),
            label (node text, least text) AS (
                SELECT node, min(least) FROM (
                    SELECT x AS node, x AS least FROM both
                    UNION ALL SELECT both.y, label.least FROM label JOIN both ON label.node = both.x) AS moves
                GROUP BY node)
        SELECT node, least FROM label"""
    assert rows_of(query, 2, edges=EDGES) == pairs("aa ba ca da ea")
    apart = pl.concat([EDGES, pl.DataFrame([("b", "c", 2, -1)], schema=EDGES.schema, orient="row")])
    assert rows_of(query, 2, edges=apart) == pairs("aa ba cc dc ec")


def test_a_bill_of_materials_counts_parts_along_all_ways() -> None:
    parts = pl.DataFrame(
        [("bike", "wheel", 2, 0, 1), ("wheel", "spoke", 32, 0, 1), ("bike", "bell", 1, 0, 1),
         ("bell", "screw", 3, 0, 1), ("wheel", "screw", 4, 1, 1), ("wheel", "spoke", 32, 2, -1),
         ("wheel", "spoke", 36, 2, 1)],
        schema=["whole", "part", "n", "version", "diff"], orient="row",
    )  # fmt: skip
    query = """
        WITH RECURSIVE needs (part, n) AS (
            SELECT part, n FROM parts WHERE whole = 'bike'
            UNION ALL
            SELECT parts.part, needs.n * parts.n FROM needs JOIN parts ON parts.whole = needs.part
        ) SELECT part, sum(n) AS n FROM needs GROUP BY part"""
    expected = {"bell": 1, "screw": 3, "spoke": 64, "wheel": 2}
    assert dict(rows_of(query, 0, parts=parts)) == expected
    assert dict(rows_of(query, 1, parts=parts)) == expected | {"screw": 11}
    assert dict(rows_of(query, 2, parts=parts)) == expected | {"screw": 11, "spoke": 72}


RECURSIONS = [
    "WITH RECURSIVE t (x, y) AS (SELECT a, b FROM r UNION SELECT t.x, r.b FROM t JOIN r ON r.a = t.y) SELECT * FROM t",
    """WITH RECURSIVE t AS (
        SELECT a, 0 AS n FROM q WHERE f UNION ALL SELECT r.b, n + 1 FROM t, r WHERE r.a = t.a AND n < 3
    ) SELECT a, n, count(*) AS ways FROM t GROUP BY a, n""",
    """WITH RECURSIVE t (x, s) AS (
        SELECT a, s FROM r WHERE b IS NULL
        UNION SELECT q.c, coalesce(u, s) FROM t LEFT JOIN q ON q.a = t.x WHERE q.c IS NOT NULL
    ) SELECT DISTINCT x, s FROM t WHERE x NOT IN (SELECT c FROM q WHERE d IS NOT NULL)""",
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("query", RECURSIONS, ids=range(len(RECURSIONS)))
def test_recursion_over_random_tables_equals_duckdb_at_every_version(query: str) -> None:
    for seed in range(12):
        logs = random_logs(random.Random(f"recursion {seed}"))
        print(f"seed {seed}")
        assert not differences(query, logs), f"seed {seed}"


def test_bindings_of_mutual_recursion_use_the_newest_of_those_before_them() -> None:
    """Even and odd numbers of steps from a start, and a limit at which the loop returns."""
    query = """
        WITH MUTUALLY RECURSIVE{limit}
            even (node text) AS (SELECT 'a' UNION SELECT dst FROM odd, edges WHERE node = src),
            odd (node text) AS (SELECT dst FROM even, edges WHERE node = src)
        SELECT 'even' AS steps, node FROM even UNION ALL SELECT 'odd', node FROM odd"""
    line = EDGES.filter(~((pl.col("src") == "c") & (pl.col("dst") == "a")))
    expected = [("even", "a"), ("even", "c"), ("even", "e"), ("odd", "b"), ("odd", "d")]
    assert rows_of(query.format(limit=""), 1, edges=line) == expected
    once = rows_of(query.format(limit=" (RETURN AT RECURSION LIMIT 1)"), 1, edges=line)
    assert once == [("even", "a"), ("odd", "b")], "in one round, odd follows the even of the same round"


def test_a_loop_beyond_its_limit_ends_the_run_with_its_place() -> None:
    query = "WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 5) n (i bigint) AS (SELECT 1 UNION SELECT i + 1 FROM n)"
    query += " SELECT i FROM n"
    with pytest.raises(Diverged, match=r"loop n \(program\.sql:1:\d+\)"):
        rows_of(query)


# -- errors -----------------------------------------------------------------------------------------------------------

MISTAKES = {
    "SELECT idd FROM orders": (
        "program.sql:2:8: there is no column idd; there are: id, who, sum",
        "did you mean 'id'?",
    ),
    "SELECT o.id FROM orders": ("program.sql:2:8: there is no table o for o.id; there are: orders", ""),
    "SELECT id FROM order_": (
        "program.sql:2:16: there is no table order_; there are: orders, people",
        "did you mean 'orders'?",
    ),
    "SELECT who FROM orders, people": (
        "program.sql:2:8: the column who could be orders.who or people.who",
        "name its table",
    ),
    "SELECT id + who AS x FROM orders": ("program.sql:2:13: who is string, not int64 or decimal or float64", "cast it"),
    "SELECT id FROM orders WHERE sum": ("program.sql:2:29: this condition: sum is int64, not a condition", "compare"),
    "SELECT id FROM orders WHERE id = who": (
        "program.sql:2:34: id = who: the types int64 and string do not meet: who",
        "cast",
    ),
    "SELECT id, sum(sum) AS s FROM orders": (
        "program.sql:2:8: id is neither a key of GROUP BY nor in an aggregate",
        "GROUP BY",
    ),
    "SELECT id + 1 FROM orders": ("program.sql:1:13: column 1 of the view result has no name", "AS name"),
    "SELECT id, id FROM orders": ("program.sql:1:13: two columns of the view result are called id", "rename"),
    "SELECT current_timestamp(3) AS t FROM orders": (
        "program.sql:2:8: this form of the clock is not supported: CURRENT_TIMESTAMP",
        "now()",
    ),
    "SELECT kurtosis(sum) AS t FROM orders": (
        "program.sql:2:8: the aggregate kurtosis is not supported: KURTOSIS(sum)",
        "docs/sql.md",
    ),
    "SELECT string_agg(who, id) AS t FROM orders": (
        "program.sql:2:19: a separator that is no literal is not supported",
        "string_agg(x, ', ')",
    ),
    "SELECT string_agg(id, ',') AS t FROM orders": ("program.sql:2:19: id is int64, not string", "cast"),
    "SELECT string_agg(DISTINCT who, ',' ORDER BY id) AS t FROM orders": (
        "program.sql:2:46: string_agg(DISTINCT ...) is ordered by another value: id",
        "own value",
    ),
    "SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY id) AS t FROM orders": (
        "program.sql:2:8: this fraction is not supported: PERCENTILE_CONT(1.5)",
        "from 0 to 1",
    ),
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY who) AS t FROM orders": (
        "program.sql:2:52: who is string, not int64",
        "cast",
    ),
    "SELECT rank(3) WITHIN GROUP (ORDER BY id) AS t FROM orders": (
        "program.sql:2:8: this aggregate WITHIN GROUP is not supported",
        "percentile_cont",
    ),
    "SELECT stddev(who) AS t FROM orders": ("program.sql:2:15: who is string, not int64", "cast"),
    "SELECT corr(id, who) AS t FROM orders": ("program.sql:2:17: who is string, not int64", "cast"),
    "SELECT stddev(sum(id)) AS t FROM orders": ("program.sql:2:8: an aggregate of an aggregate", "inner one"),
    "SELECT id FROM orders TABLESAMPLE SYSTEM (5)": (
        "program.sql:2:16: a sample is not",
        "",
    ),
    "SELECT id FROM orders UNION SELECT who FROM people": (
        "program.sql:2:8: UNION, column id: the types int64 and string",
        "cast",
    ),
    "SELECT id, grouping(sum) AS g FROM orders GROUP BY ROLLUP (id)": (
        "program.sql:2:21: sum is no key of GROUP BY",
        "takes keys",
    ),
    "SELECT sum FROM orders GROUP BY ROLLUP (id)": ("program.sql:2:8: sum is neither a key of GROUP BY nor in", "add"),
    "SELECT id FROM orders GROUP BY CUBE (id, who, sum, 1+id, 2+id, 3+id, 4+id, 5+id, 6+id, 7+id, 8+id, 9+id, 0+id)": (
        "program.sql:2:38: more than 4096 sets of groups is not supported",
        "fewer",
    ),
    "SELECT count(DISTINCT id, who) AS n FROM orders": (
        "program.sql:2:8: count of several distinct columns is not supported",
        "write count(DISTINCT (id, who))",
    ),
    "SELECT id, who FROM": ("program.sql:2:16: a table is missing behind FROM", "complete"),
    "SELECT count() AS n FROM orders": ("program.sql:2:8: COUNT() lacks an argument", "docs/sql.md"),
    "SELECT id, floor() AS n FROM orders": ("program.sql:2:23: FLOOR() lacks an argument", "docs/sql.md"),
    "SELECT id FROM orders WHERE substring(who) = 'a'": ("program.sql:2:39: SUBSTRING(who) lacks", "docs/sql.md"),
    "SELECT a FROM orders AS x (a b)": ("program.sql:2:28: a b is no name of a column", "commas between"),
    "WITH x (a b) AS (SELECT 1) SELECT a FROM x": ("program.sql:2:9: a b is no name of a column", "commas between"),
    "SELECT id FROM orders WHERE id IN 'a'": ("program.sql:2:29: this form is not supported: id IN 'a'", ""),
    "SELECT CAST(id AS money) AS m FROM orders": ("program.sql:2:13: the type MONEY is not supported", ""),
    "SELECT id FROM orders WHERE id = ANY(who)": ("program.sql:2:38: who is string, not a list", "ARRAY[...]"),
    "SELECT * FROM (SELECT 1) AS t": ("program.sql:1:13: column 1 of the view result has no name", "AS name"),
    "SELECT date '2024-02-30' AS d FROM orders": ("program.sql:2:13: '2024-02-30' is no date", "a literal"),
    "SELECT id FROM orders WHERE who LIKE town": ("program.sql:2:38: there is no column town", ""),
    "SELECT id FROM orders WHERE sum(sum) > 3": (
        "program.sql:2:29: an aggregate where single rows are meant: SUM(sum)",
        "HAVING",
    ),
    'SELECT id FROM orders WHERE who = "Ada Byron"': (
        'program.sql:2:35: there is no column "Ada Byron"',
        "'Ada Byron'",
    ),
    "SELECT id FROM orders WHERE who = \u2018Ada\u2019": (
        "program.sql:2:35: there is no column \u2018Ada\u2019",
        "text has straight single quotes: 'Ada'",
    ),
    "SELECT id FROM orders LIMIT who": ("program.sql:2:29: a limit that is no whole number is not supported", ""),
    "SELECT DISTINCT ON (who) who, id FROM orders ORDER BY id, who": (
        "program.sql:2:55: ORDER BY does not begin with what is behind DISTINCT ON",
        "order by these first",
    ),
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION SELECT max(i) FROM n) SELECT i FROM n": (
        "program.sql:2:49: WITH RECURSIVE n: groups or DISTINCT over itself",
        "WITH MUTUALLY RECURSIVE",
    ),
    "WITH MUTUALLY RECURSIVE n AS (SELECT 1 AS i) SELECT i FROM n": (
        "program.sql:2:25: n has no columns",
        "column type",
    ),
    "WITH MUTUALLY RECURSIVE n (i text) AS (SELECT id FROM orders) SELECT i FROM n": (
        "program.sql:2:25: column i is string as declared and int64 in the query",
        "cast",
    ),
}


@pytest.mark.parametrize("query", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_name_their_place_and_a_way_on(query: str) -> None:
    message, hint = MISTAKES[query]
    with pytest.raises(ProgramError) as caught:
        ddcore.replay(program(f"CREATE VIEW result AS\n{query}"), orders=ORDERS, people=PEOPLE)
    assert caught.value.message.startswith(message), caught.value.message
    assert hint in caught.value.hint and caught.value.hint, caught.value.hint
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1", "program.sql:1:1: a query without a view"),
        ("CREATE INDEX t", "program.sql:1:8: CREATE makes views and declares tables, not INDEX"),
        ("CREATE TABLE t (a int)", "program.sql:1:1: there is no view"),
        ("CREATE TABLE t (a int); CREATE VIEW v AS SELECT 1 AS a", "program.sql:1:14: there is no input t; there are"),
        (
            "CREATE TABLE orders (a int); CREATE VIEW v AS SELECT 1 AS a",
            "program.sql:1:22: the input orders has no column a",
        ),
        (
            "CREATE TABLE orders (id text); CREATE VIEW v AS SELECT 1 AS a",
            "program.sql:1:22: column id is string here and",
        ),
        (
            "CREATE TABLE orders (LIKE customers); CREATE VIEW v AS SELECT 1 AS a",
            "program.sql:1:27: this part of a table",
        ),
        ("CREATE TABLE orders; CREATE VIEW v AS SELECT 1 AS a", "program.sql:1:14: the table orders has no columns"),
        ("CREATE RECURSIVE VIEW v AS SELECT 1 AS a", "program.sql:1:23: the recursive view v names no columns"),
        (
            "CREATE VIEW v AS SELECT * FROM w; CREATE VIEW w AS SELECT * FROM v",
            "program.sql:1:13: the columns of v depend on themselves",
        ),
        ("CREATE VIEW v AS SELECT * FROM v", "program.sql:1:13: the columns of v depend on themselves"),
        (
            "CREATE VIEW v AS SELECT id FROM orders UNION SELECT 'x' FROM v",
            "program.sql:1:25: UNION, column id: the types int64 and string",
        ),
        (
            "CREATE VIEW v AS SELECT id FROM orders UNION SELECT id, id FROM v",
            "program.sql:1:25: UNION: 1 columns on the left, 2 on the right",
        ),
        ("DROP VIEW v", "program.sql:1:1: a statement begins with CREATE VIEW, not with DROP"),
        (
            "CREATE TEMP VIEW v AS SELECT 1 AS a",
            "program.sql:1:18: all views are temporary, so the program has no output",
        ),
        ("CREATE VIEW orders AS SELECT 1 AS a", "program.sql:1:13: there is a table or view orders already"),
        ("CREATE VIEW v (a, b) AS SELECT 1 AS a", "program.sql:1:13: 2 columns are named, and the query has 1"),
    ],
)
def test_programs_are_views(text: str, message: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ProgramError) as caught:
        ddcore.replay(program(text), orders=ORDERS)
    assert caught.value.message.startswith(message), caught.value.message
    assert not caplog.records, "a warning of sqlglot beside our error"
    assert caught.value.hint


@pytest.mark.parametrize(
    "head",
    [
        "CREATE OR REPLACE VIEW", "CREATE VIEW IF NOT EXISTS", "CREATE MATERIALIZED VIEW", "CREATE TABLE",
        "CREATE TABLE IF NOT EXISTS", "create or replace view", "CREATE OR REFRESH MATERIALIZED VIEW",
        "CREATE OR REFRESH STREAMING TABLE", "CREATE LIVE VIEW",
    ],
)  # fmt: skip
def test_views_are_read_as_people_write_them(head: str) -> None:
    rows = ddcore.replay(program(f"{head} v (n) AS SELECT count(*) FROM orders"), orders=ORDERS)["v"]
    assert rows.equals(ddcore.replay(program("CREATE VIEW v (n) AS SELECT count(*) FROM orders"), orders=ORDERS)["v"])


@pytest.mark.parametrize("kind", ["LOCAL TEMPORARY VIEW", "LOCAL VIEW", "TEMP TABLE"])
def test_views_may_name_those_behind_them_and_outputs_are_in_the_order_of_the_text(kind: str) -> None:
    text = f"""
        CREATE TABLE orders (id bigint, who text);
        CREATE VIEW b AS SELECT n + 1 AS m FROM a;
        CREATE VIEW a AS WITH a AS (SELECT * FROM c) SELECT count(*) AS n FROM a;
        CREATE {kind} c AS SELECT id FROM orders;
    """
    found = ddcore.replay(program(text), orders=ORDERS)
    assert list(found) == ["b", "a"]
    latest = {name: log.group_by(log.columns[0]).agg(pl.col("diff").sum()) for name, log in found.items()}
    assert latest["b"].filter(pl.col("diff") != 0)["m"].to_list() == [
        n + 1 for n in latest["a"].filter(pl.col("diff") != 0)["n"].to_list()
    ]


def test_a_recursive_view_is_its_query_with_recursive() -> None:
    query = "SELECT id, who FROM orders UNION SELECT id + 1, who FROM v WHERE id < 5"
    one = program(f"CREATE RECURSIVE VIEW v (id, who) AS {query}")
    other = program(f"CREATE VIEW v AS WITH RECURSIVE v (id, who) AS ({query}) SELECT id, who FROM v")
    undeclared = program(f"CREATE VIEW v AS {query}")
    logs = [ddcore.replay(item, orders=ORDERS)["v"] for item in (one, other, undeclared)]
    assert len(logs[0]) > len(ORDERS) and all(logs[0].equals(log) for log in logs)


MUTUAL = """
    CREATE VIEW last AS SELECT node, weight FROM even UNION ALL SELECT node, -weight FROM odd;
    CREATE TEMP VIEW odd (node, weight) AS
        SELECT dst, weight * 2 FROM even JOIN edges ON node = src ORDER BY 1;
    CREATE VIEW even AS
        WITH steps AS (SELECT dst AS node, weight + 0.5 AS weight FROM odd JOIN edges ON node = src WHERE weight < 9)
        SELECT 'a' AS node, 1 AS weight UNION SELECT node, weight FROM steps;
"""


def test_views_that_name_each_other_are_one_loop() -> None:
    """In any order, with types that are widened on the way round; as the same text with a declaration."""
    declared = """CREATE VIEW last AS WITH MUTUALLY RECURSIVE
        odd (node text, weight decimal(18,1)) AS (SELECT dst, weight * 2 FROM even JOIN edges ON node = src),
        even (node text, weight decimal(18,1)) AS (
            SELECT 'a' AS node, 1.0 AS weight
            UNION SELECT dst, weight + 0.5 FROM odd JOIN edges ON node = src WHERE weight < 9)
        SELECT node, weight FROM even UNION ALL SELECT node, -weight FROM odd"""
    logs = [ddcore.replay(program(text), edges=EDGES) for text in (MUTUAL, declared)]
    assert list(logs[0]) == ["last", "even"] and logs[0]["last"].equals(logs[1]["last"])
    assert len(logs[0]["even"]) == 5
    assert whole(program(MUTUAL), edges=EDGES) == by_reference(program(MUTUAL), edges=EDGES)


def test_the_columns_of_views_that_name_each_other_are_found_from_the_first_that_says_them() -> None:
    text = """
        CREATE VIEW third AS SELECT DISTINCT second.x AS z, NULL AS n FROM second UNION SELECT z, n + 1 FROM first;
        CREATE VIEW second AS SELECT z AS x FROM first WHERE z IS NOT NULL;
        CREATE VIEW first AS (SELECT src AS z, 2 AS n FROM edges) UNION (SELECT z, n FROM third WHERE n < 4);
    """
    found = ddcore.replay(program(text), edges=EDGES)
    assert found["third"].schema["n"] == pl.Int64 and found["first"].schema == found["first"].schema
    assert {row[1] for row in found["third"].rows()} == {None, 3, 4}
    assert whole(program(text), edges=EDGES) == by_reference(program(text), edges=EDGES)


def test_an_order_that_says_nothing_is_left_out_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ddcore")
    views = program("CREATE VIEW v AS SELECT id FROM (SELECT id FROM orders ORDER BY sum) AS o ORDER BY id DESC")
    logs = ddcore.replay(views, orders=ORDERS)
    ddcore.replay(views, orders=ORDERS)
    assert logs["v"].equals(ddcore.replay(program("CREATE VIEW v AS SELECT id FROM orders"), orders=ORDERS)["v"])
    what = "ORDER BY without LIMIT is left out: the rows of a view have no order"
    assert views.notes == [f"program.sql:1:65: {what}", f"program.sql:1:84: {what}"]  # type: ignore[attr-defined]
    assert [record.getMessage() for record in caplog.records] == [f"note: {note}" for note in views.notes]  # type: ignore[attr-defined]


def test_files_are_one_program_and_errors_name_the_file(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("gold.sql", "silver.sql", "broken.sql"))
    one.write_text("-- Who buys.\nCREATE VIEW gold AS SELECT who, count(*) AS n FROM silver GROUP BY who")
    two.write_text("CREATE TEMP VIEW silver AS SELECT * FROM orders WHERE id > 1;\n-- the end")
    views = load(one, str(two))
    assert views.comments == {"gold": "Who buys."}  # type: ignore[attr-defined]
    together = program(f"{two.read_text()}\n;{one.read_text()}")
    assert ddcore.replay(views, orders=ORDERS)["gold"].equals(ddcore.replay(together, orders=ORDERS)["gold"])
    mistakes = {
        "\nCREATE VIEW x AS SELECT idd FROM silver": "broken.sql:2:25: there is no column idd",
        "\n\n CREATE VIEW x AS SELECT 'a FROM silver": "broken.sql:3:26: this text is not closed: 'a FROM silver",
        "CREATE VIEW x AS SELECT id FORM silver": "broken.sql:1:28: FORM is no word of SQL here",
    }
    for text, message in mistakes.items():
        three.write_text(text)
        for files in ((three, one, two), (one, three, two), (one, two, three)):
            with pytest.raises(ProgramError) as caught:
                ddcore.replay(load(*files), orders=ORDERS)
            assert caught.value.message.startswith(message), (caught.value.message, files)
    three.write_text("CREATE VIEW gold AS SELECT 1 AS x")
    with pytest.raises(ProgramError, match=r"^broken\.sql:1:13: there is a table or view gold already"):
        ddcore.replay(load(one, two, three), orders=ORDERS)


def test_without_sqlglot_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("sqlglot", "ddcore.sql."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(ProgramError) as caught:
        program("CREATE VIEW v AS SELECT 1 AS a")
    assert "sqlglot" in caught.value.message and caught.value.hint == "pip install 'ddcore[sql]'"


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_the_commands_print(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("sql.md", tmp_path, dd, monkeypatch, steps=15)


def test_the_page_s_recursion_finds_components() -> None:
    page = (pages.DOCS / "sql.md").read_text("utf-8")
    declared, views = re.findall(r"^```sql\n(CREATE.*?)^```$", page, re.DOTALL | re.MULTILINE)
    flights = EDGES.rename({"src": "origin", "dst": "target"})
    log = ddcore.replay(program(declared), flights=flights)["components"]
    assert sorted(accumulated(log, 0).rows()) == pairs("aa ba ca da")
    assert ddcore.replay(program(views), flights=flights)["components"].equals(log)


# -- a project --------------------------------------------------------------------------------------------------------

JOURNEYS = """\
-- How long it takes from where trams start.
CREATE VIEW journeys AS
WITH MUTUALLY RECURSIVE reached (stop text, total bigint) AS (
    SELECT stop, min(total)
    FROM (
        SELECT stop, 0 AS total FROM starts
        UNION ALL
        SELECT links.dst, reached.total + links.minutes FROM reached JOIN links ON links.src = reached.stop
    ) AS ways
    GROUP BY stop
)
SELECT stop, total FROM reached;
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The project of `dd init` with its program in SQL, ingested; calls `dd` and gives what it prints."""

    def dd_(*arguments: str, code: int = 0) -> str:
        ended = run_command(arguments)
        said = capsys.readouterr()
        assert ended == code, said
        return said.out + said.err

    monkeypatch.chdir(tmp_path)
    dd_("init", "trams")
    monkeypatch.chdir(tmp_path / "trams")
    file = Path("dd.toml")
    file.write_text(file.read_text().replace("program.py:program", "program.sql"))
    Path("program.py").unlink()
    Path("program.sql").write_text(JOURNEYS)
    dd_("ingest", "links", "data/links.csv")
    dd_("ingest", "starts", "data/starts.csv")
    return dd_


def test_a_project_of_sql_from_ingest_to_a_changed_program(project: Any) -> None:
    project("run")
    assert "-  Harbour        12" in project("diff", "journeys", "3", "4")
    plan = project("plan")
    assert "loop reached" in plan and "program.sql:3:25" in plan and "program.sql:8:" in plan
    assert ".py:" not in plan, "every operator has its place in the SQL"
    assert "holds" in project("verify") and "holds" in project("verify", "--by", "scratch")
    before = project("show", "journeys")
    Path("program.sql").write_text(JOURNEYS.replace("-- How long", "-- The minutes that"))
    assert project("show", "journeys") == before and "nothing" in project("run").lower()
    Path("program.sql").write_text(JOURNEYS.replace("FROM reached;", "FROM reached WHERE total < 10;"))
    Path("more.csv").write_text("version,diff,src,dst,minutes\n6,1,Central,Quay,1\n")
    project("ingest", "links", "more.csv")
    project("run")
    after = project("show", "journeys")
    assert "Quay" in after and "Zoo" in before and "Zoo" not in after
    assert "holds" in project("verify")


def test_a_project_of_several_files_that_declare_their_inputs(project: Any) -> None:
    """Without [inputs] the same as with them; one that is in both must agree."""
    project("run")
    before = project("show", "journeys")
    file, views = Path("dd.toml"), Path("views")
    text = file.read_text().replace("program.sql", "views/*.sql")
    for name in ("links", "starts"):
        text = re.sub(rf"\[inputs\.{name}\].*\n(?:(?!\[).*\n)*", "", text)
    assert "[inputs" not in text
    file.write_text(text)
    views.mkdir()
    Path("program.sql").rename(views / "journeys.sql")
    (views / "tables.sql").write_text(
        "CREATE TABLE links (src text, dst text, minutes bigint);\nCREATE TABLE starts (stop text);\n"
    )
    assert project("show", "journeys") == before and "nothing" in project("run").lower()
    plan = project("plan")
    assert "How long it takes from where trams start." in plan and "journeys.sql:3:25" in plan
    (views / "more.sql").write_text("CREATE VIEW stops AS SELECT stop FROM starts ORDER BY stop")
    assert "note: more.sql:1:" in project("run"), "a new file is a part of the program"
    assert "note: more.sql:1:" in project("plan") and "Central" in project("show", "stops")
    file.write_text(text + '[inputs.starts]\nschema = { stop = "int64" }\n')
    assert "tables.sql:2:22: column stop is string here and int64 in dd.toml" in project("run", code=1)


def test_a_mistake_in_the_file_is_one_line_of_the_command(project: Any) -> None:
    Path("program.sql").write_text(JOURNEYS.replace("links.minutes", "links.minute"))
    text = project("run", code=1)
    assert "program.sql:8:43: there is no column links.minute; there are: src, dst, minutes" in text
    assert "did you mean 'minutes'?" in text
    Path("program.sql").unlink()
    assert "there is no file program.sql" in project("run", code=2)
