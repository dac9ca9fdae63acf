"""Views as data engineers write them, in three dialects, equal the engine of each at every version of tables that
retract. All of a dialect are one program, as they are in a project.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pytest
from seeds import seeds
from sql_duckdb import bag
from sql_peers import DuckDb, Peer, Spark
from sql_tables import accumulated

import ddcore as dd
from ddcore.base.errors import DdError, ProgramError
from ddcore.sql import program

TIME = pl.Datetime("us")
SCHEMAS: dict[str, dict[str, Any]] = {
    "orders": {"id": pl.Int64, "customer": pl.Int64, "status": pl.String, "amount": pl.Decimal(12, 2), "ts": TIME},
    "items": {"order_id": pl.Int64, "sku": pl.String, "quantity": pl.Int64, "price": pl.Decimal(10, 2)},
    "customers": {"id": pl.Int64, "name": pl.String, "email": pl.String, "country": pl.String, "valid_from": TIME},
    "events": {"id": pl.Int64, "customer": pl.Int64, "kind": pl.String, "payload": pl.String, "ts": TIME},
}
START = datetime(2025, 1, 30, 9)
VERSIONS = 3

# A view in all dialects, or one text for each: postgres, duckdb, spark.
VIEWS: dict[str, str | tuple[str, str, str]] = {
    "chain of bindings": """WITH src AS (SELECT * FROM orders), renamed AS (
          SELECT id AS order_id, customer AS customer_id, lower(trim(status)) AS status, amount, ts AS ordered_at
            FROM src),
        final AS (SELECT *, CASE WHEN amount >= 50 THEN 'large' WHEN amount >= 20 THEN 'medium' ELSE 'small' END AS
            size
          FROM renamed WHERE status <> 'void')
        SELECT * FROM final""",
    "latest row of each key": (
        """SELECT * FROM customers QUALIFY row_number() OVER (PARTITION BY id ORDER BY valid_from DESC, name,
            email, country) = 1""",
    )
    * 3,
    "latest row by a subquery": """SELECT id, name, country FROM (SELECT *, row_number() OVER (
          PARTITION BY id ORDER BY valid_from DESC, name, email, country) AS rn FROM customers) AS ranked WHERE rn
            = 1""",
    "surrogate key": (
        """SELECT md5(concat_ws('||', coalesce(cast(id AS text), ''), coalesce(cast(customer AS text), ''))) AS sk,
            status FROM orders""",
        """SELECT md5(concat_ws('||', coalesce(cast(id AS varchar), ''), coalesce(cast(customer AS varchar), '')))
            AS sk, status FROM orders""",
        """SELECT md5(concat_ws('||', coalesce(cast(id AS string), ''), coalesce(cast(customer AS string), ''))) AS
            sk, status FROM orders""",
    ),
    "incremental filter": "SELECT * FROM orders WHERE ts > (SELECT max(ts) FROM orders) - INTERVAL '2' DAY",
    "slowly changing dimension": """SELECT id, name, country, valid_from,
          lead(valid_from) OVER (PARTITION BY id ORDER BY valid_from, name, email, country) AS valid_to,
          lead(valid_from) OVER (PARTITION BY id ORDER BY valid_from, name, email, country) IS NULL AS is_current
        FROM customers""",
    "as it was then": """WITH dim AS (SELECT id, country, valid_from,
          coalesce(lead(valid_from) OVER (PARTITION BY id ORDER BY valid_from, name, email, country), TIMESTAMP
            '9999-12-31 00:00:00') AS valid_to
          FROM customers)
        SELECT o.id, o.amount, d.country FROM orders o LEFT JOIN dim d
          ON o.customer = d.id AND o.ts >= d.valid_from AND o.ts < d.valid_to""",
    "changed rows only": """SELECT id, country, valid_from FROM (SELECT id, country, valid_from,
          lag(country) OVER (PARTITION BY id ORDER BY valid_from, name, email, country) AS before FROM customers) AS c
        WHERE before IS NULL OR before <> country""",
    "pivot by CASE": """SELECT customer, sum(CASE WHEN status = 'paid' THEN amount ELSE 0 END) AS paid,
          sum(CASE WHEN status = 'open' THEN amount ELSE 0 END) AS still_open,
          count(DISTINCT CASE WHEN status = 'paid' THEN id END) AS paid_orders FROM orders GROUP BY customer""",
    "pivot by FILTER": """SELECT customer, count(*) FILTER (WHERE status = 'paid') AS paid,
          sum(amount) FILTER (WHERE status <> 'void') AS kept FROM orders GROUP BY 1""",
    "date spine": (
        """SELECT d.day, count(o.id) AS orders, coalesce(sum(o.amount), 0) AS amount FROM (
             SELECT cast(g AS date) AS day FROM generate_series(DATE '2025-01-29', DATE '2025-02-05', INTERVAL
            '1 day') AS s(g)) AS d
           LEFT JOIN orders o ON cast(o.ts AS date) = d.day GROUP BY d.day""",
        """SELECT d.day, count(o.id) AS orders, coalesce(sum(o.amount), 0) AS amount FROM (
             SELECT cast(g AS date) AS day FROM generate_series(DATE '2025-01-29', DATE '2025-02-05', INTERVAL
            '1 day') AS s(g)) AS d
           LEFT JOIN orders o ON cast(o.ts AS date) = d.day GROUP BY d.day""",
        """SELECT d.day, count(o.id) AS orders, coalesce(sum(o.amount), 0) AS amount FROM (
             SELECT explode(sequence(DATE '2025-01-29', DATE '2025-02-05', INTERVAL 1 DAY)) AS day) AS d
           LEFT JOIN orders o ON cast(o.ts AS date) = d.day GROUP BY d.day""",
    ),
    "JSON": (
        """SELECT id, payload ->> 'page' AS page, (payload ->> 'n')::bigint AS n,
             coalesce(payload -> 'utm' ->> 'source', 'direct') AS source FROM events WHERE payload IS NOT NULL""",
        """SELECT id, payload ->> '$.page' AS page, (payload ->> '$.n')::bigint AS n,
             coalesce(json_extract_string(payload, '$.utm.source'), 'direct') AS source FROM events WHERE payload
            IS NOT NULL""",
        """SELECT id, get_json_object(payload, '$.page') AS page, cast(get_json_object(payload, '$.n') AS bigint)
            AS n,
             coalesce(get_json_object(payload, '$.utm.source'), 'direct') AS source FROM events WHERE payload IS
            NOT NULL""",
    ),
    "sessions": (
        """WITH gaps AS (SELECT customer, ts, id, CASE WHEN ts - lag(ts) OVER (PARTITION BY customer ORDER BY ts, id)
               <= INTERVAL '30 minutes' THEN 0 ELSE 1 END AS is_new FROM events),
             numbered AS (SELECT *, sum(is_new) OVER (PARTITION BY customer ORDER BY ts, id) AS session FROM gaps)
           SELECT customer, session, min(ts) AS began, max(ts) AS ended, count(*) AS events FROM numbered GROUP BY
            customer, session""",
        """WITH gaps AS (SELECT customer, ts, id, CASE WHEN ts - lag(ts) OVER (PARTITION BY customer ORDER BY ts, id)
               <= INTERVAL '30 minutes' THEN 0 ELSE 1 END AS is_new FROM events),
             numbered AS (SELECT *, sum(is_new) OVER (PARTITION BY customer ORDER BY ts, id) AS session FROM gaps)
           SELECT customer, session, min(ts) AS began, max(ts) AS ended, count(*) AS events FROM numbered GROUP BY
            customer, session""",
        """WITH gaps AS (SELECT customer, ts, id, CASE WHEN unix_timestamp(ts) - unix_timestamp(lag(ts) OVER
            (PARTITION BY customer ORDER BY ts, id))
               <= 1800 THEN 0 ELSE 1 END AS is_new FROM events),
             numbered AS (SELECT *, sum(is_new) OVER (PARTITION BY customer ORDER BY ts, id) AS session FROM gaps)
           SELECT customer, session, min(ts) AS began, max(ts) AS ended, count(*) AS events FROM numbered GROUP BY
            customer, session""",
    ),
    "funnel": """WITH steps AS (SELECT customer, min(CASE WHEN kind = 'view' THEN ts END) AS viewed,
          min(CASE WHEN kind = 'cart' THEN ts END) AS carted, min(CASE WHEN kind = 'buy' THEN ts END) AS bought
          FROM events GROUP BY customer)
        SELECT count(viewed) AS viewed, count(CASE WHEN carted > viewed THEN 1 END) AS carted,
          count(CASE WHEN carted > viewed AND bought > carted THEN 1 END) AS bought FROM steps""",
    "cohorts": (
        """WITH firsts AS (SELECT customer, date_trunc('month', min(ts)) AS cohort FROM orders GROUP BY customer)
           SELECT f.cohort, (extract(year FROM o.ts) - extract(year FROM f.cohort)) * 12 + extract(month FROM o.ts)
            - extract(month FROM f.cohort) AS months,
             count(DISTINCT o.customer) AS customers FROM orders o JOIN firsts f ON o.customer = f.customer GROUP
            BY 1, 2""",
        """WITH firsts AS (SELECT customer, date_trunc('month', min(ts)) AS cohort FROM orders GROUP BY customer)
           SELECT f.cohort, date_diff('month', f.cohort, o.ts) AS months,
             count(DISTINCT o.customer) AS customers FROM orders o JOIN firsts f ON o.customer = f.customer GROUP
            BY ALL""",
        """WITH firsts AS (SELECT customer, date_trunc('MONTH', min(ts)) AS cohort FROM orders GROUP BY customer)
           SELECT f.cohort, cast(floor(months_between(o.ts, f.cohort)) AS int) AS months,
             count(DISTINCT o.customer) AS customers FROM orders o JOIN firsts f ON o.customer = f.customer GROUP
            BY 1, 2""",
    ),
    "period over period": """WITH days AS (SELECT cast(ts AS date) AS day, sum(amount) AS amount FROM orders GROUP
            BY cast(ts AS date))
        SELECT day, amount, lag(amount) OVER (ORDER BY day) AS before, amount - lag(amount) OVER (ORDER BY day) AS
            change,
          round(100 * cast(amount AS double precision) / nullif(lag(cast(amount AS double precision)) OVER (ORDER
            BY day), 0), 4) AS percent
        FROM days""",
    "top rows of each group": """SELECT status, id, amount FROM (SELECT status, id, amount,
          dense_rank() OVER (PARTITION BY status ORDER BY amount DESC) AS place FROM orders) AS r WHERE place <= 2""",
    "gaps and islands": (
        """SELECT customer, min(day) AS begins, max(day) AS ends, count(*) AS days FROM (SELECT customer, day,
             day - cast(row_number() OVER (PARTITION BY customer ORDER BY day) AS int) AS island
             FROM (SELECT DISTINCT customer, cast(ts AS date) AS day FROM orders) AS d) AS g GROUP BY customer,
            island""",
        """SELECT customer, min(day) AS begins, max(day) AS ends, count(*) AS days FROM (SELECT customer, day,
             day - cast(row_number() OVER (PARTITION BY customer ORDER BY day) AS int) AS island
             FROM (SELECT DISTINCT customer, cast(ts AS date) AS day FROM orders) AS d) AS g GROUP BY customer,
            island""",
        """SELECT customer, min(day) AS begins, max(day) AS ends, count(*) AS days FROM (SELECT customer, day,
             date_sub(day, cast(row_number() OVER (PARTITION BY customer ORDER BY day) AS int)) AS island
             FROM (SELECT DISTINCT customer, cast(ts AS date) AS day FROM orders) AS d) AS g GROUP BY customer,
            island""",
    ),
    "running balance": """SELECT customer, id, ts, sum(CASE WHEN status = 'void' THEN -amount ELSE amount END) OVER (
          PARTITION BY customer ORDER BY ts, id, amount, status ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
            AS balance FROM orders""",
    "moving average": """SELECT id, ts, avg(cast(amount AS double precision)) OVER (PARTITION BY customer ORDER BY
            ts, id, amount, status
          ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS mean, count(*) OVER (PARTITION BY customer ORDER BY ts
          RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW) AS last_day FROM orders""",
    "share of the whole": """SELECT status, sum(amount) AS amount,
          round(cast(sum(amount) AS double precision) / sum(sum(cast(amount AS double precision))) OVER (), 4) AS
            share FROM orders GROUP BY status""",
    "ABC analysis": """WITH skus AS (SELECT sku, sum(quantity * price) AS revenue FROM items WHERE sku IS NOT NULL
            GROUP BY sku),
          ordered AS (SELECT sku, revenue, sum(revenue) OVER (ORDER BY revenue DESC, sku) AS running, sum(revenue)
            OVER () AS total FROM skus)
        SELECT sku, CASE WHEN running <= 0.8 * total THEN 'A' WHEN running <= 0.95 * total THEN 'B' ELSE 'C' END AS
            class FROM ordered""",
    "RFM scores": """WITH base AS (SELECT customer, max(ts) AS last_order, count(*) AS orders, sum(amount) AS amount
          FROM orders WHERE customer IS NOT NULL GROUP BY customer)
        SELECT customer, ntile(3) OVER (ORDER BY last_order, customer) AS r, ntile(3) OVER (ORDER BY orders,
            customer) AS f,
          ntile(3) OVER (ORDER BY amount, customer) AS m FROM base""",
    "percentiles": """SELECT status, percentile_cont(0.5) WITHIN GROUP (ORDER BY cast(amount AS double precision))
            AS median,
          percentile_cont(0.95) WITHIN GROUP (ORDER BY cast(amount AS double precision)) AS p95 FROM orders GROUP
            BY status""",
    "pairs in a basket": """SELECT a.sku AS one, b.sku AS other, count(DISTINCT a.order_id) AS orders FROM items a
          JOIN items b ON a.order_id = b.order_id AND a.sku < b.sku GROUP BY a.sku, b.sku HAVING count(DISTINCT
            a.order_id) >= 1""",
    "service level": (
        """SELECT e.id, extract(epoch FROM (min(f.ts) - e.ts)) / 60 AS minutes, min(f.ts) - e.ts <= INTERVAL
            '2 hours' AS met
           FROM events e JOIN events f ON e.customer = f.customer AND f.ts > e.ts AND f.kind = 'buy' WHERE e.kind =
            'view' GROUP BY e.id, e.ts""",
        """SELECT e.id, date_diff('minute', e.ts, min(f.ts)) AS minutes, min(f.ts) - e.ts <= INTERVAL '2 hours' AS met
           FROM events e JOIN events f ON e.customer = f.customer AND f.ts > e.ts AND f.kind = 'buy' WHERE e.kind =
            'view' GROUP BY e.id, e.ts""",
        """SELECT e.id, timestampdiff(MINUTE, e.ts, min(f.ts)) AS minutes, timestampdiff(MINUTE, e.ts, min(f.ts))
            <= 120 AS met
           FROM events e JOIN events f ON e.customer = f.customer AND f.ts > e.ts AND f.kind = 'buy' WHERE e.kind =
            'view' GROUP BY e.id, e.ts""",
    ),
    "without a match": """SELECT c.id, c.name FROM customers c LEFT JOIN orders o ON o.customer = c.id WHERE o.id
            IS NULL""",
    "without a match, by NOT EXISTS": """SELECT DISTINCT id FROM customers c WHERE NOT EXISTS (
          SELECT 1 FROM orders o WHERE o.customer = c.id AND o.status <> 'void')""",
    "everything beside": """SELECT coalesce(o.customer, e.customer) AS customer, o.orders, e.events FROM (
          SELECT customer, count(*) AS orders FROM orders GROUP BY customer) AS o FULL OUTER JOIN (
          SELECT customer, count(*) AS events FROM events GROUP BY customer) AS e ON o.customer = e.customer""",
    "union of sources": """SELECT 'order' AS source, id, customer, ts FROM orders UNION ALL
        SELECT 'event' AS source, id, customer, ts FROM events WHERE kind = 'buy'""",
    "totals and subtotals": """SELECT coalesce(status, 'all') AS status, grouping(status) AS is_total, count(*) AS
            orders, sum(amount) AS amount
        FROM orders WHERE status IS NOT NULL GROUP BY ROLLUP (status)""",
    "text together": (
        """SELECT order_id, string_agg(DISTINCT sku, ', ' ORDER BY sku) AS skus, count(*) AS n FROM items GROUP BY
            order_id""",
        """SELECT order_id, string_agg(DISTINCT sku, ', ' ORDER BY sku) AS skus, count(*) AS n FROM items GROUP BY
            order_id""",
        """SELECT order_id, array_join(array_sort(collect_set(sku)), ', ') AS skus, count(*) AS n FROM items GROUP
            BY order_id""",
    ),
    "cleaned text": (
        r"""SELECT id, lower(split_part(email, '@', 2)) AS domain, upper(trim(name)) AS name,
              regexp_replace(name, '[^a-zA-Z]', '', 'g') AS letters, nullif(trim(country), '') AS country FROM
            customers""",
        r"""SELECT id, lower(split_part(email, '@', 2)) AS domain, upper(trim(name)) AS name,
              regexp_replace(name, '[^a-zA-Z]', '', 'g') AS letters, nullif(trim(country), '') AS country FROM
            customers""",
        r"""SELECT id, lower(split_part(email, '@', 2)) AS domain, initcap(trim(name)) AS name,
              regexp_replace(name, '[^a-zA-Z]', '') AS letters, nullif(trim(country), '') AS country FROM
            customers""",
    ),
    "buckets of time": (
        """SELECT date_trunc('hour', ts) AS hour, extract(dow FROM ts) AS weekday, to_char(ts, 'YYYY-MM') AS month,
            count(*) AS n FROM events GROUP BY 1, 2, 3""",
        """SELECT date_trunc('hour', ts) AS hour, dayofweek(ts) AS weekday, strftime(ts, '%Y-%m') AS month,
            count(*) AS n FROM events GROUP BY 1, 2, 3""",
        """SELECT date_trunc('HOUR', ts) AS hour, dayofweek(ts) AS weekday, date_format(ts, 'yyyy-MM') AS month,
            count(*) AS n FROM events GROUP BY 1, 2, 3""",
    ),
    "greatest of the group": (
        """SELECT DISTINCT ON (customer) customer, id, amount FROM orders ORDER BY customer, amount DESC, id,
            status, ts""",
        """SELECT customer, arg_max(id, ts) AS id, max(ts) AS ts FROM (SELECT customer, id, max(ts) AS ts FROM
            orders WHERE id IS NOT NULL AND ts IS NOT NULL GROUP BY 1, 2) GROUP BY customer HAVING count(*) = 1""",
        """SELECT customer, max_by(id, ts) AS id, max(ts) AS ts FROM (SELECT customer, id, max(ts) AS ts FROM
            orders WHERE id IS NOT NULL AND ts IS NOT NULL GROUP BY 1, 2) GROUP BY customer HAVING count(*) = 1""",
    ),
    "last known value": (
        """SELECT id, ts, max(id) FILTER (WHERE kind = 'view') OVER (PARTITION BY customer ORDER BY ts, id, kind)
            AS last_view FROM events""",
        """SELECT id, ts, last_value(CASE WHEN kind = 'view' THEN id END IGNORE NULLS) OVER (PARTITION BY customer
          ORDER BY ts, id, kind ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS last_view FROM events""",
        """SELECT id, ts, last_value(CASE WHEN kind = 'view' THEN id END) IGNORE NULLS OVER (PARTITION BY customer
          ORDER BY ts, id, kind ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS last_view FROM events""",
    ),
    "weekly active": (
        """SELECT cast(date_trunc('week', ts) AS date) AS week, count(DISTINCT customer) AS active, count(*) * 1.0
            / nullif(count(DISTINCT customer), 0) AS each FROM events GROUP BY 1""",
        """SELECT cast(date_trunc('week', ts) AS date) AS week, count(DISTINCT customer) AS active, count(*) /
            nullif(count(DISTINCT customer), 0) AS each FROM events GROUP BY 1""",
        """SELECT cast(date_trunc('WEEK', ts) AS date) AS week, count(DISTINCT customer) AS active, count(*) /
            nullif(count(DISTINCT customer), 0) AS each FROM events GROUP BY 1""",
    ),
    "correlated value": """SELECT c.id, c.name, (SELECT max(o.ts) FROM orders o WHERE o.customer = c.id AND o.ts <
            c.valid_from) AS last_before FROM customers c""",
    "quality flags": """SELECT 'orders' AS dataset, count(*) AS n, sum(CASE WHEN customer IS NULL THEN 1 ELSE 0
            END) AS without_customer,
          sum(CASE WHEN amount < 0 THEN 1 ELSE 0 END) AS negative, count(*) - count(DISTINCT id) AS repeated,
            min(ts) AS first_ts FROM orders""",
}
DIALECTS = ("postgres", "duckdb", "spark")


def streams(rng: random.Random, rows: int) -> dict[str, pl.DataFrame]:
    """Change logs whose rows come and go."""
    logs = {}
    for name, schema in SCHEMAS.items():
        there: Counter[tuple[Any, ...]] = Counter()
        updates: list[tuple[Any, ...]] = []
        for version in range(VERSIONS):
            gone = [row for row in there.elements() if rng.random() < 0.3]
            new = [
                tuple(_value(rng, column, rows) for column in schema) for _ in range(rows if not version else rows // 3)
            ]
            for row, diff in [*((row, -1) for row in gone), *((row, 1) for row in new)]:
                there[row] += diff
                updates.append((*row, version, diff))
        logs[name] = pl.DataFrame(updates, {**schema, "version": pl.Int64, "diff": pl.Int64}, orient="row")
    return logs


def _value(rng: random.Random, column: str, rows: int) -> Any:
    if column not in ("id", "ts", "valid_from") and rng.random() < 0.1:
        return None
    texts = {
        "status": ["paid", "open", " Void", "void"], "sku": ["tea", "jam", "oat"], "kind": ["view", "cart", "buy"],
        "name": ["Ann Li", " bo", "C. D3"], "email": ["a@X.org", "b@y.io", "none"], "country": ["NO", "dk", ""],
        "payload": ['{"page": "/a", "n": 1}', '{"page": "/b", "n": 22, "utm": {"source": "mail"}}', "{}"],
    }  # fmt: skip
    if column in texts:
        return rng.choice(texts[column])
    if column in ("ts", "valid_from"):
        return START + timedelta(days=rng.randrange(5), minutes=10 * rng.randrange(40))
    if column in ("amount", "price"):
        return Decimal(rng.randrange(-500, 9000)) / 100
    return rng.randrange(1, max(3, rows // 2))


PEERS = {  # what DuckDB has not, and PostgreSQL has
    ("postgres", "buckets of time"): VIEWS["buckets of time"][1],
}


def texts_of(dialect: str) -> dict[str, str]:
    """The views of a dialect by name."""
    location = DIALECTS.index(dialect)
    texts = {name: text if isinstance(text, str) else text[location] for name, text in VIEWS.items()}
    return {name: text.replace("double precision", "double") for name, text in texts.items()}


def require_equal(dialect: str, peer: Peer, seed: int, rows: int) -> None:
    texts = texts_of(dialect)
    names = {name: f"v{number}" for number, name in enumerate(texts)}
    whole = ";\n".join(f"CREATE VIEW {names[name]} AS {text}" for name, text in texts.items())
    logs = streams(random.Random(seed), rows)
    results = dd.replay(program(whole, dialect=dialect), ("version",), **logs)
    peer.load(logs, VERSIONS)
    for name, text in texts.items():
        log = results[names[name]]
        for version in range(VERSIONS):
            found = accumulated(log, version)
            assert bag(found.rows()) == bag(peer.rows(PEERS.get((dialect, name), text), version, found.schema)), (
                f"{name}, version {version}"
            )


@pytest.mark.sample(1)
@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_everyday_views_equal_duckdb_at_every_version(dialect: str) -> None:
    require_equal(dialect, DuckDb(as_postgres=dialect == "postgres"), seed=1, rows=16)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(10, start=2))
@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_everyday_views_over_more_rows(dialect: str, seed: int) -> None:
    require_equal(dialect, DuckDb(as_postgres=dialect == "postgres"), seed, rows=60)


@pytest.mark.long
def test_everyday_views_equal_spark_at_every_version(spark: Any) -> None:
    require_equal("spark", Spark(spark), seed=1, rows=24)


# -- what streaming engines have beside -------------------------------------------------------------------------------

STREAMED = """
CREATE TABLE sale (shop bigint NOT NULL, lateness bigint, at timestamp NOT NULL LATENESS INTERVAL '1' HOUR) WITH (
  'append_only' = 'true', 'connectors' = '[{"name": "s", "rate": 10}]');
CREATE TABLE rate (shop bigint, since timestamp LATENESS INTERVAL 2 DAYS NOT NULL, percent bigint LATENESS 5)
  WITH ('x' = 'y');
DECLARE RECURSIVE VIEW counted (n bigint NOT NULL);
CREATE VIEW counted AS SELECT 1 AS n UNION ALL SELECT n + 1 FROM counted WHERE n < 3;
CREATE VIEW rated WITH ('materialized' = 'true') AS SELECT sale.shop, at, percent FROM sale LEFT ASOF JOIN rate
  MATCH_CONDITION (sale.at >= rate.since) ON sale.shop = rate.shop;
CREATE VIEW hours AS SELECT window_start, count(*) AS n FROM TABLE(TUMBLE(
  "DATA" => TABLE sale, "TIMECOL" => DESCRIPTOR(at), "SIZE" => INTERVAL 1 HOUR)) GROUP BY window_start;
CREATE VIEW hops AS SELECT window_end, count(*) AS n FROM TABLE(HOP(DATA => TABLE sale, TIMECOL => DESCRIPTOR(at),
  SLIDE => INTERVAL 1 HOUR, SIZE => INTERVAL 2 HOURS)) GROUP BY window_end;
"""


def moment(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute, tzinfo=UTC)


def test_words_of_streaming_engines_are_read_or_left_out_with_a_note() -> None:
    made = program(STREAMED)
    sale = pl.DataFrame({"shop": [1, 2], "lateness": [None, 0], "at": [moment(9, 30), moment(10)]}).with_columns(
        version=0, diff=1
    )
    rate = pl.DataFrame({"shop": [1, 1], "since": [moment(8), moment(9)], "percent": [5, 6]}).with_columns(
        version=0, diff=1
    )
    views = dd.replay(made, sale=sale, rate=rate)
    found = {name: sorted(row[:-2] for row in log.rows()) for name, log in views.items()}
    assert found == {
        "counted": [(1,), (2,), (3,)],
        "rated": [(1, moment(9, 30), 6), (2, moment(10), None)],
        "hours": [(moment(9), 1), (moment(10), 1)],
        "hops": [(moment(10), 1), (moment(11), 2), (moment(12), 1)],
    }
    notes = [note.partition(": ")[::2] for note in made.notes]  # type: ignore[attr-defined]
    left_out = [(location, text.partition(" is left out")[0]) for location, text in notes if "NOT NULL" not in text]
    assert [what for _, what in left_out] == [
        "LATENESS", "WITH (...)", "LATENESS", "LATENESS", "WITH (...)", "DECLARE", "WITH (...)"
    ]  # fmt: skip
    assert left_out[0][0] == "program.sql:2:81" and left_out[5][0] == "program.sql:6:1"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("CREATE VIEW v WITH ('emit_final' = 'd') AS SELECT 1 AS d", "1:15: emit_final is not supported", "each"),
        ("SET x = 1; CREATE VIEW v AS SELECT 1 AS d", "1:1: a statement begins with CREATE VIEW, not with", "leave"),
        ("CREATE VIEW v AS SELECT date_trunc(at, DAY) AS d FROM t", "the unit comes first", "date_trunc('day', ...)"),
        ("CREATE VIEW v AS SELECT n FROM TUMBLE(SIZE => INTERVAL 1 DAY, DATA => TABLE t, TIMECOL => DESCRIPTOR(at))",
         "1:", ""),
    ],
)  # fmt: skip
def test_a_form_that_would_mean_something_else_is_refused(text: str, message: str, hint: str) -> None:
    t = pl.DataFrame({"at": [moment(9)], "version": 0, "diff": 1})
    with pytest.raises(ProgramError) as error:
        dd.replay(program(text), t=t)
    assert message in error.value.message and hint in (error.value.hint or "")


def test_a_key_of_json_in_the_arguments_of_a_function_is_no_function_of_elements() -> None:
    t = pl.DataFrame({"j": ['{"a": {"b": "x"}}', "{}"], "version": 0, "diff": 1})
    view = program("CREATE VIEW v AS SELECT coalesce(j -> 'a' ->> 'b', upper('none')) AS b FROM t")
    assert sorted(dd.replay(view, t=t)["v"]["b"]) == ["NONE", "x"]


def test_series_in_from_of_duckdb() -> None:
    text = """CREATE VIEW v AS SELECT a.generate_series AS x, b.range AS y, c.z FROM generate_series(1, 5, 2) a,
      range(2) b, range(DATE '2026-03-01', DATE '2026-03-03', INTERVAL 1 DAY) c(z)"""
    found = dd.replay(program(text, dialect="duckdb"), t=pl.DataFrame({"k": [1], "version": 0, "diff": 1}))["v"]
    with duckdb.connect() as connection:
        assert bag([row[:-2] for row in found.rows()]) == bag(connection.execute(text.partition(" AS ")[2]).fetchall())


def test_days_of_spark_end_with_an_error_where_they_begin_after_their_end() -> None:
    view = program("CREATE VIEW v AS SELECT size(sequence(a, b, INTERVAL 2 DAYS)) AS n FROM t", dialect="spark")
    t = pl.DataFrame({"a": [moment(9).date()], "b": [moment(9).date() + timedelta(5)], "version": 0, "diff": 1})
    assert dd.replay(view, t=t)["v"]["n"].to_list() == [3]
    with pytest.raises(DdError, match="begins after its end"):
        dd.replay(view, t=t.rename({"a": "b", "b": "a"}))
