"""Forms of other dialects that become something else while a program is read: joins, stars, aggregates.

They equal DuckDB at every version; what Spark writes in its own way has a second text.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from sql_duckdb import bag
from sql_peers import DuckDb
from sql_tables import accumulated

import ddcore as dd
from ddcore.base.errors import DdError
from ddcore.sql import program

VERSIONS = 3
SPARK_JOINS = [
    ("SELECT id, e FROM t LATERAL VIEW explode(array(x, 1)) q AS e", "SELECT id, unnest([x, 1]) AS e FROM t"),
    ("SELECT id FROM t LATERAL VIEW explode(array(x, 1)) q AS e", "SELECT id FROM t UNION ALL SELECT id FROM t"),
    ("SELECT id, col FROM t LATERAL VIEW explode(array(x)) q", "SELECT id, x AS col FROM t"),
    (
        "SELECT id, q.e FROM t LATERAL VIEW OUTER explode(CASE WHEN x > 1 THEN array(x, 1) END) q AS e WHERE id > 3",
        "SELECT id, e FROM t LEFT JOIN LATERAL (SELECT unnest([x, 1]) AS e WHERE x > 1) ON true WHERE id > 3",
    ),
    (
        "SELECT id, n, e FROM t LATERAL VIEW posexplode(array(x, 7)) q AS n, e",
        "SELECT id, 0 AS n, x AS e FROM t UNION ALL SELECT id, 1, 7 FROM t",
    ),
    (
        "SELECT id, e, f FROM t LATERAL VIEW explode(array(x, 1)) q AS e LATERAL VIEW explode(array(e, 2)) w AS f",
        "SELECT id, e, unnest([e, 2]) AS f FROM (SELECT id, unnest([x, 1]) AS e FROM t)",
    ),
    ("SELECT id, explode(array(x, 1)) AS e FROM t WHERE x > 1", "SELECT id, unnest([x, 1]) AS e FROM t WHERE x > 1"),
    ("SELECT explode(array(x, 1)), id FROM t", "SELECT unnest([x, 1]) AS col, id FROM t"),
    ("SELECT *, explode(array(x, 1)) AS e FROM t", "SELECT *, unnest([x, 1]) AS e FROM t"),
    ("SELECT h, explode(array(x, y)) AS e FROM t, u", "SELECT h, unnest([x, y]) AS e FROM t, u"),
    (
        "SELECT id, explode_outer(CASE WHEN x > 1 THEN array(x, 1) END) AS e FROM t",
        "SELECT id, unnest(CASE WHEN x > 1 THEN [x, 1] ELSE [NULL] END) AS e FROM t",
    ),
    (
        "SELECT posexplode(array(x, 7)) AS (n, e), id FROM t",
        "SELECT 0 AS n, x AS e, id FROM t UNION ALL SELECT 1, 7, id FROM t",
    ),
    ("SELECT id FROM t LEFT SEMI JOIN u USING (id)", "SELECT id FROM t SEMI JOIN u USING (id)"),
    ("SELECT t.id FROM t LEFT SEMI JOIN u ON t.x = u.y", "SELECT t.id FROM t SEMI JOIN u ON t.x = u.y"),
    ("SELECT * EXCEPT (g) FROM t LEFT ANTI JOIN u ON t.x = u.y", "SELECT id, x, b FROM t ANTI JOIN u ON t.x = u.y"),
]
DUCKDB = [
    "SELECT unnest([x, id]) + 1 AS e, g FROM t ORDER BY e, g LIMIT 3",
    "SELECT DISTINCT unnest([x, 1]) AS e FROM t JOIN u ON t.x = u.y",
    "SELECT e, count(*) AS n FROM (SELECT * EXCLUDE (b), unnest([x, id]) AS e FROM t) q GROUP BY e",
    "SELECT unnest([1, 2]) AS e",
    "SELECT * FROM t a SEMI JOIN u USING (id)",
    "SELECT a.g FROM t a ANTI JOIN u b USING (id) WHERE a.x > 0",
    "SELECT t.* EXCLUDE (b), u.h FROM t JOIN u ON t.x = u.y",
    "SELECT id FROM (SELECT * EXCLUDE (x) FROM t) q WHERE EXISTS (SELECT 1 FROM u WHERE u.y = q.id)",
    "SELECT t.id, v.h FROM t SEMI JOIN u ON t.x = u.y LEFT JOIN u v ON v.h = t.g",
    "SELECT * FROM t ANTI JOIN u ON t.x = u.y AND u.id > 3",
]
REGRESSIONS = ("count", "avgx", "avgy", "sxx", "syy", "sxy", "slope", "intercept", "r2")
AGGREGATES = [
    "list(x ORDER BY id)", "array_agg(x ORDER BY id DESC)", "list(x ORDER BY id) FILTER (WHERE b)",
    "string_agg(g, '-' ORDER BY id)", "string_agg(DISTINCT g, ',' ORDER BY g)", "quantile_cont(x, 0.25)",
    "quantile_disc(x, 0.7)", "percentile_cont(0.4) WITHIN GROUP (ORDER BY x DESC)", "min_by(x, id)", "arg_max(g, id)",
    "bit_and(x)", "bit_or(x) FILTER (WHERE b)", "bit_xor(x)", "count_if(x > 1)", "countif(x > 1) FILTER (WHERE b)",
    *(f"regr_{of}(x, id) + 1000.5" for of in REGRESSIONS),
    "regr_slope(id, x) FILTER (WHERE b) + 1000.5", "corr(id, x) + 1000.5",
    "quantile_cont(x, [0.25, 0.5])", "quantile_disc(x, [0.7, 0.0]) FILTER (WHERE b)",
    "first(x ORDER BY id)", "last(x ORDER BY id) FILTER (WHERE b)", "any_value(x ORDER BY id DESC)",
    "any_value(x ORDER BY id) FILTER (WHERE b)", "approx_count_distinct(b)", "group_concat(g ORDER BY id)",
]  # fmt: skip
MOST = "(list(id ORDER BY x DESC, id) FILTER (WHERE x IS NOT NULL))[1]"
OF_SPARK = [
    ("percentile(x, 0.3)", "quantile_cont(x, 0.3)"),
    ("percentile(x, array(0.3, 1.0))", "quantile_cont(x, [0.3, 1.0])"),
    ("percentile_disc(0.3) WITHIN GROUP (ORDER BY x)", "quantile_disc(x, 0.3)"),
    ("count_if(x > 1)", "count(*) FILTER (WHERE x > 1)"), ("bit_or(x)", "bit_or(x)"),
    *((f"{name}(x)", "coalesce(list(x ORDER BY x) FILTER (WHERE x IS NOT NULL), [])")
      for name in ("collect_list", "array_agg")),
    ("collect_list(x) FILTER (WHERE b)", "coalesce(list(x ORDER BY x) FILTER (WHERE b AND x IS NOT NULL), [])"),
    ("collect_set(x)", "coalesce(list(DISTINCT x ORDER BY x) FILTER (WHERE x IS NOT NULL), [])"),
    ("listagg(g)", "string_agg(g, '' ORDER BY g)"), ("string_agg(DISTINCT g, '-')", "string_agg(DISTINCT g, '-')"),
    ("listagg(g, '-') WITHIN GROUP (ORDER BY id DESC)", "string_agg(g, '-' ORDER BY id DESC)"),
    ("max_by(x, id)", "(list(x ORDER BY id DESC))[1]"), ("min_by(x, id)", "(list(x ORDER BY id))[1]"),
    ("min_by(x, id) FILTER (WHERE b)", "(list(x ORDER BY id) FILTER (WHERE b))[1]"), ("max_by(id, x)", MOST),
    ("first(x)", "min(x)"), ("first(x, true) FILTER (WHERE b)", "min(x) FILTER (WHERE b)"), ("last(x)", "max(x)"),
    ("first_value(x)", "min(x)"), ("last_value(x) IGNORE NULLS", "max(x)"),
    ("approx_count_distinct(x)", "count(DISTINCT x)"),
    *((f"regr_{of}(x, id) + 1000.5",) * 2 for of in REGRESSIONS if of != "slope"),
    ("regr_slope(x, id) + 1000.5", "CASE WHEN regr_sxx(x, id) > 0 THEN regr_slope(x, id) + 1000.5 END"),
]  # fmt: skip


def logs(seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    some: list[Any] = [None, 0, 1, 2, 3]
    t = [(n, rng.choice("abc"), rng.choice(some), rng.choice([None, True, False])) for n in range(14)]
    u = [(n, rng.choice("abd"), rng.choice(some)) for n in range(6)]
    names = {"t": ("id", "g", "x", "b"), "u": ("id", "h", "y")}
    kinds = {"id": pl.Int64, "x": pl.Int64, "y": pl.Int64, "g": pl.String, "h": pl.String, "b": pl.Boolean}
    found = {}
    for name, rows in (("t", t), ("u", u)):
        updates = [(*row, rng.randrange(2), 1) for row in rows]
        updates += [(*row[:-2], row[-2] + 1, -1) for row in rng.sample(updates, len(rows) // 3)]
        schema = {column: kinds[column] for column in names[name]} | {"version": pl.Int64, "diff": pl.Int64}
        found[name] = pl.DataFrame(updates, schema=schema, orient="row")
    return found


def check(seed: int, dialect: str, *texts: tuple[str, str]) -> None:
    """Queries and what DuckDB is asked in their place."""
    updates, peer = logs(seed), DuckDb(as_postgres=False)
    peer.load(updates, VERSIONS)
    views = ";".join(f"CREATE VIEW r{number} AS {query}" for number, (query, _) in enumerate(texts))
    results = dd.replay(program(views, dialect=dialect), **updates)
    for number, (query, asked) in enumerate(texts):
        log = results[f"r{number}"]
        schema = {name: kind for name, kind in log.schema.items() if name not in ("version", "diff")}
        for version in range(VERSIONS):
            there = bag(accumulated(log, version).rows())
            assert there == bag(peer.rows(asked, version, schema)), f"{query} at version {version}"


def test_joins_of_spark(seed: int) -> None:
    check(seed, "spark", *SPARK_JOINS)


def test_joins_and_stars_of_duckdb(seed: int) -> None:
    check(seed, "duckdb", *((query, query) for query in DUCKDB))


@pytest.mark.parametrize("by", ["g", "x", None])
def test_aggregates_of_duckdb(seed: int, by: str | None) -> None:
    def query(aggregate: str) -> str:
        return f"SELECT {by} AS k, {aggregate} AS v FROM t GROUP BY {by}" if by else f"SELECT {aggregate} AS v FROM t"

    check(seed, "duckdb", *((query(item), query(item)) for item in AGGREGATES))


def test_aggregates_of_spark(seed: int) -> None:
    pairs = [[f"SELECT g, {text} AS v FROM t GROUP BY g" for text in pair] for pair in OF_SPARK]
    check(seed, "spark", *((ours, asked) for ours, asked in pairs))


def test_rows_are_compared_with_subqueries(seed: int) -> None:
    greatest = "(SELECT max(y), max(id) FROM u WHERE u.h = t.g)"
    one, two = (f"(SELECT max({column}) FROM u WHERE u.h = t.g)" for column in ("y", "id"))
    for sign in ("<", ">=", "="):
        strict = sign.strip("=")
        decided = (
            f"(t.x {strict} {one} OR (t.x = {one} AND t.id {sign} {two}))"
            if strict
            else f"t.x = {one} AND t.id = {two}"
        )
        check(
            seed,
            "postgres",
            (f"SELECT t.id FROM t WHERE (t.x, t.id) {sign} {greatest}", f"SELECT id FROM t WHERE {decided}"),
        )


def listed(values: str, order: str, where: str = "true") -> str:
    """What PostgreSQL's json_agg writes, by other means."""
    return f"'[' || string_agg(coalesce({values}, 'null'), ', ' ORDER BY {order}) FILTER (WHERE {where}) || ']'"


def pairs_of(between: str, order: str, where: str = "true") -> str:
    """The pairs of an object of JSON, by other means."""
    text = f"'\"' || g || id || '\"{between}' || coalesce(x::text, 'null')"
    return f"string_agg({text}, ', ' ORDER BY {order}) FILTER (WHERE {where})"


OF_POSTGRES = [
    ("json_agg(x ORDER BY id)", listed("x::text", "id")),
    ("jsonb_agg(x)", listed("x::text", "x")),
    ("json_agg(g ORDER BY id DESC) FILTER (WHERE b)", listed("'\"' || g || '\"'", "id DESC", "b")),
    (
        "json_build_object('a', coalesce(json_agg(x ORDER BY id) FILTER (WHERE b), '[]'))",
        f"'{{\"a\" : ' || coalesce({listed('x::text', 'id', 'b')}, '[]') || '}}'",
    ),
    ("percentile_cont(ARRAY[0.25, 0.5]) WITHIN GROUP (ORDER BY x)", "quantile_cont(x, [0.25, 0.5])"),
    ("json_object_agg(g || id, x ORDER BY id DESC)", f"'{{ ' || {pairs_of(' : ', 'id DESC')} || ' }}'"),
    (
        "jsonb_object_agg(g || id, x) FILTER (WHERE b)",
        f"'{{' || {pairs_of(': ', 'length(g || id), g || id', 'b')} || '}}'",
    ),
    (
        "jsonb_agg(jsonb_build_object('bb', x, 'a', id) ORDER BY id)",
        listed("'{\"a\": ' || id || ', \"bb\": ' || coalesce(x::text, 'null') || '}'", "id"),
    ),
]


def test_lists_of_json_in_postgres(seed: int) -> None:
    pairs = [[f"SELECT g, {text} AS v FROM t GROUP BY g" for text in pair] for pair in OF_POSTGRES]
    check(seed, "postgres", *((ours, asked) for ours, asked in pairs))


@pytest.mark.parametrize(
    ("expression", "text"),  # PostgreSQL 15
    [
        ("json_agg(ARRAY[x, id] ORDER BY id)", "[[1,1], \n [null,3]]"),
        ("jsonb_agg(ARRAY[x, id] ORDER BY id)", "[[1, 1], [null, 3]]"),
        ("to_json(json_agg(DATE '2020-01-01'))", '["2020-01-01", "2020-01-01"]'),
        ("jsonb_build_object('a', jsonb_agg(x ORDER BY id))", '{"a": [1, null]}'),
        ("CASE WHEN count(*) > 1 THEN json_agg(x ORDER BY id DESC) END", "[null, 1]"),
        ("jsonb_agg(id) FILTER (WHERE id > 99)", None),
        ("json_object_agg('k', x ORDER BY id)", '{ "k" : 1, "k" : null }'),
        ("json_object_agg('k' || id, ARRAY[x, id])", '{ "k1" : [1,1], "k3" : [null,3] }'),
        ("jsonb_object_agg('k' || id, jsonb_build_array(x))", '{"k1": [1], "k3": [null]}'),
        ("json_build_object('a', json_object_agg('k', x) FILTER (WHERE id > 1))", '{"a" : { "k" : null }}'),
        ("jsonb_object_agg('k', x) FILTER (WHERE id > 99)", None),
    ],
)
def test_json_of_groups_is_the_text_of_postgres(expression: str, text: str | None) -> None:
    t = pl.DataFrame({"id": [1, 3], "x": [1, None], "version": [0, 0], "diff": [1, 1]})
    assert dd.replay(program(f"CREATE VIEW r AS SELECT {expression} AS v FROM t"), t=t)["r"]["v"].to_list() == [text]


@pytest.mark.parametrize(
    ("dialect", "query", "message"),
    [
        ("spark", "SELECT a FROM t LATERAL VIEW inline(x) q AS a, b", "program.sql:1:47: LATERAL VIEW of inline()"),
        ("spark", "SELECT a FROM t LATERAL VIEW explode(array(x)) q AS a, b", "takes one name, for the elements"),
        ("spark", "SELECT id FROM t LEFT SEMI JOIN t USING (id)", "this SEMI JOIN without ON is not supported"),
        ("duckdb", "SELECT unnest([x]) AS a, unnest([x]) AS b FROM t", "unnest() beside another, groups or windows"),
        ("duckdb", "SELECT g, unnest(list(x)) AS e FROM t GROUP BY g", "unnest() beside another, groups or windows"),
        ("duckdb", "SELECT unnest([x]) FROM t", "UNNEST([x]) needs 1 name behind AS"),
        ("spark", "SELECT posexplode(array(x)) AS e FROM t", "needs 2 names behind AS"),
        (
            "spark",
            "SELECT t.id FROM t LEFT ANTI JOIN u ON t.x = u.y FULL JOIN u v ON v.y = t.x",
            "behind a SEMI or an ANTI",
        ),
        (
            "spark",
            "SELECT * EXCEPT (idd) FROM t",
            "program.sql:1:25: * EXCEPT (idd): there is no column idd; there are",
        ),
        ("duckdb", "SELECT * EXCLUDE (id, g, x, b) FROM t", "leaves no column"),
        ("duckdb", "SELECT * REPLACE (1 AS id) FROM t", "REPLACE or RENAME of a star is not supported"),
        ("duckdb", "SELECT median(CAST(x AS decimal(9,2))) AS v FROM t", "a quantile of decimals, which DuckDB rounds"),
        ("spark", "SELECT kurtosis(x) AS v FROM t", "the aggregate kurtosis in the dialect 'spark' is not supported"),
        ("postgres", "SELECT json_agg(DISTINCT x) AS v FROM t", "JSON of distinct values is not supported"),
        ("postgres", "SELECT jsonb_object_agg(g, x) AS v FROM t", "a key of JSONB comes twice"),
        ("postgres", "SELECT json_object_agg(nullif(g, 'a'), x) AS v FROM t", "a key of JSON is null"),
        ("postgres", "SELECT json_object_agg(x, g) AS v FROM t", "x is int64, not string"),
        ("postgres", "SELECT id FROM t WHERE (x, id) > (SELECT x, id FROM u LIMIT 1)", "without LIMIT, is"),
        ("postgres", "SELECT id FROM t WHERE (x, id) > (SELECT x FROM u)", "a SELECT of as many columns"),
        ("duckdb", "SELECT arg_max(g, x, 2) AS v FROM t", "arg_max of several rows is not supported"),
    ],
)
def test_other_forms_are_refused_with_their_place(dialect: str, query: str, message: str) -> None:
    with pytest.raises(DdError) as caught:
        dd.replay(program(f"CREATE VIEW r AS {query}", dialect=dialect), **logs(1))
    assert str(caught.value).startswith("program.sql:1:")
    assert message in str(caught.value)
    assert caught.value.hint


# What PostgreSQL 15, DuckDB and Spark say, of four rows: true, false or null.
ROWS = [
    ("(x, id) > (2, 2)", "fft-", "fftt", "fftf"),
    ("(x, id) <= (2, 2)", "ttf-", "ttff", "ttft"),
    ("(id, x) < (4, 1)", "ttt-", "tttf", "tttt"),
    ("(id, x) >= (3, 2)", "fftt", "fftt", "fftt"),
    ("NOT (id, x) < (4, 1)", "fff-", "ffft", "ffff"),
    ("(x, id) = (2, 2)", "ftff", "ftff", "ftff"),
    ("(x, id) = (x, id)", "ttt-", "tttt", "tttt"),
    ("(x, id) <> (2, 2)", "tftt", "tftt", "tftt"),
    ("(x, id) BETWEEN (1, 1) AND (2, 2)", "ttf-", "ttff", "ttff"),
    ("(x, id) IN ((2, 2), (1, 1))", "ttff", "ttff", "ttff"),
    ("ROW(x, id) > ROW(2, 2)", "fft-", "fftt", ""),
    ("struct(x, id) > struct(2, 2)", "", "", "fftf"),
]


@pytest.mark.parametrize(("location", "dialect"), [(1, "postgres"), (2, "duckdb"), (3, "spark")])
def test_rows_are_compared_as_the_dialect_does(location: int, dialect: str) -> None:
    asked = [row for row in ROWS if row[location]]
    columns = ", ".join(f"{row[0]} AS c{number}" for number, row in enumerate(asked))
    t = pl.DataFrame({"x": [1, 2, 2, None], "id": [1, 2, 3, 4], "version": 0, "diff": 1})
    log = dd.replay(program(f"CREATE VIEW r AS SELECT id, {columns} FROM t", dialect=dialect), t=t)["r"].sort("id")
    letters = {True: "t", False: "f", None: "-"}
    for number, row in enumerate(asked):
        assert "".join(letters[value] for value in log[f"c{number}"]) == row[location], row[0]


def test_rows_of_two_tables_are_compared(seed: int) -> None:
    queries = [
        "SELECT t.id, u.id AS other FROM t JOIN u ON (t.x, t.id) > (u.y, u.id)",
        "SELECT t.id FROM t LEFT JOIN u ON t.g = u.h AND (t.x, t.id) <= (u.y, 7)",
        "SELECT t.id FROM t JOIN u ON (t.x, t.g) = (u.y, u.h)",
    ]
    check(seed, "duckdb", *((query, query) for query in queries))


@pytest.mark.parametrize("query", ["SELECT (x, id) > (1, 2, 3) AS b FROM t", "SELECT (x, id) AS b FROM t"])
def test_rows_that_no_row_stands_beside(query: str) -> None:
    with pytest.raises(DdError) as caught:
        dd.replay(program(f"CREATE VIEW r AS {query}"), **logs(1))
    assert "(x, " in caught.value.hint


def test_tables_and_views_are_declared_as_databricks_does() -> None:
    text = """
        CREATE TABLE t (id bigint NOT NULL COMMENT 'a', x bigint DEFAULT 1, PRIMARY KEY (id)) USING delta
        COMMENT 'rows' PARTITIONED BY (id) TBLPROPERTIES ('a' = 'b');
        CREATE OR REFRESH MATERIALIZED VIEW v (id COMMENT 'b', n) COMMENT 'c' TBLPROPERTIES ('d' = 'e')
        AS SELECT id, x FROM LIVE.t;
    """
    t = pl.DataFrame({"id": [1, None], "x": [1, 2], "version": 0, "diff": 1})
    views = program(text, dialect="databricks")
    assert bag(dd.replay(views, t=t)["v"].rows()) == bag([(1, 1, 0, 1), (None, 2, 0, 1)])
    left_out = "is left out: rows of t are taken as they come, and data tests check them"
    locations = [("2:25", "NOT NULL"), ("2:74", "DEFAULT 1"), ("2:90", "PRIMARY KEY (id)")]
    notes = [f"program.sql:{location}: {what} {left_out}" for location, what in locations]
    assert views.notes == notes  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id FROM t ORDER BY zz", "program.sql:1:44: there is no column zz"),
        ("SELECT id FROM t ORDER BY id, t.zz + 1", "program.sql:1:48: there is no column t.zz"),
        ("SELECT id FROM t ORDER BY (id, zz)", "program.sql:1:49: there is no column zz"),
        ("SELECT id FROM t ORDER BY 2", "ORDER BY 2: the SELECT has 1 columns"),
        ("SELECT id FROM t UNION SELECT id FROM u ORDER BY zz", "program.sql:1:67: ORDER BY zz is no column"),
        ("SELECT DISTINCT id FROM t ORDER BY x", "ORDER BY x is no column of SELECT DISTINCT"),
    ],
)
def test_an_order_that_is_left_out_names_columns_all_the_same(query: str, message: str) -> None:
    with pytest.raises(DdError) as caught:
        dd.replay(program(f"CREATE VIEW r AS {query}"), **logs(1))
    assert message in str(caught.value)
    good = "SELECT g, sum(x) AS s FROM t GROUP BY g ORDER BY count(*), s, (g, max(id) + 1)"
    dd.replay(program(f"CREATE VIEW r AS {good}"), **logs(1))


def test_windows_of_spark_in_select() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    t = pl.DataFrame({"ts": [start + timedelta(minutes=minute) for minute in (17, 2)], "version": 0, "diff": 1})

    def rows(query: str) -> list[tuple[Any, ...]]:
        log = dd.replay(program(f"CREATE VIEW r AS {query}", dialect="spark"), t=t)["r"]
        minutes = [[item - start if isinstance(item, datetime) else item for item in row[:-2]] for row in log.rows()]
        return sorted(tuple(item // timedelta(minutes=1) for item in row) for row in minutes)

    call = "window(ts, '10 minutes', '5 minutes')"
    windows = [(-5, 5), (0, 10), (10, 20), (15, 25)]
    assert rows(f"SELECT {call}.start AS a, {call}.end AS b FROM t") == windows
    assert rows(f"SELECT {call}.start AS a, {call}.end AS b FROM t GROUP BY {call}") == windows
    assert rows("SELECT *, window(ts, '10 minutes').start AS a FROM t") == [(2, 0), (17, 10)]


HINTS = {
    "SELECT id FROM t LIMIT x": "QUALIFY row_number() OVER (ORDER BY y) <= x",
    "SELECT CAST(x AS foo) AS y FROM t": "the types are bigint, double",
    "SELECT CAST(x AS timestmp) AS y FROM t": "did you mean 'timestamp'?",
    "SELECT extract(foo FROM now()) AS y FROM t": "the fields are year, ",
    "SELECT extract(hours FROM now()) AS y FROM t": "did you mean 'hour'?",
    "SELECT id FROM t ORDER BY id FETCH FIRST 10 PERCENT ROWS ONLY": "<= ceil(0.10 * count(*) OVER ())",
    "SELECT id FROM t FOR UPDATE": "leave it out",
    "SELECT id FROM t TABLESAMPLE (10 PERCENT)": "id % 10 = 0",
    'SELECT g COLLATE "de_DE" AS g FROM t': "lower(x) leaves capitals out",
    "SELECT rank() AS y FROM t": "rank() OVER (ORDER BY x)",
    "SELECT row_number() AS y FROM t": "row_number() OVER (ORDER BY x)",
    "SELECT lag(x) AS y FROM t": "lag() OVER (ORDER BY x)",
    "SELECT to_char(now(), 'QQQQ') AS y FROM t": "date_format(ts, 'yyyy-MM-dd') in spark",
}
TAKEN_BY_POSTGRES = {"SELECT to_char(now(), 'QQQQ') AS y FROM t"}
REFUSED_BY_SPARKS_GRAMMAR = {query for query in HINTS if "CAST" in query}


@pytest.mark.parametrize("dialect", ["postgres", "duckdb", "spark"])
def test_a_refusal_says_what_to_write(dialect: str, caplog: pytest.LogCaptureFixture) -> None:
    left_out = {"postgres": TAKEN_BY_POSTGRES, "spark": REFUSED_BY_SPARKS_GRAMMAR}.get(dialect, set())
    for query in (query for query in HINTS if query not in left_out):
        with pytest.raises(DdError) as caught:
            dd.replay(program(f"CREATE VIEW r AS {query}", dialect=dialect), **logs(1))
        assert HINTS[query] in caught.value.hint, (query, caught.value.hint)
        assert str(caught.value).startswith("program.sql:1:"), query
    assert not caplog.records, "a warning of sqlglot beside our error"


def test_what_the_hints_say_is_taken(seed: int) -> None:
    part = "SELECT id FROM t QUALIFY row_number() OVER (ORDER BY id, g, x, b) <= ceil(0.40 * count(*) OVER ())"
    most = "SELECT id FROM t QUALIFY row_number() OVER (ORDER BY id, g, x, b) <= x"
    check(seed, "duckdb", (part, part), (most, most), *[('SELECT g COLLATE "C" AS g FROM t', "SELECT g FROM t")])


def test_an_aggregate_without_an_alias_is_called_as_its_function() -> None:
    names = ["bool_and", "every", "string_agg", "json_agg", "jsonb_agg", "array_agg", "stddev_pop", "count"]
    arguments = {"string_agg": "(g, ',')", "bool_and": "(b)", "every": "(b)"}
    columns = ", ".join(f"{name}{arguments.get(name, '(x)')}" for name in names)
    rows = dd.replay(program(f"CREATE VIEW r AS SELECT {columns}, every(b) FILTER (WHERE b) AS last FROM t"), **logs(1))
    assert rows["r"].columns[: len(names)] == names
