"""Ranges in SQL: filters that move, bands and validities, against DuckDB at every version; and how little they read."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import polars as pl
import pytest
from folding import by_reference, whole
from sql_duckdb import bag, database
from sql_tables import accumulated, random_logs
from test_join_between import counted

import ddcore
from ddcore.base.errors import ExpressionError
from ddcore.planning.planner import build
from ddcore.sql import program

SCHEMAS: dict[str, dict[str, Any]] = {
    "facts": {"k": pl.Int64, "x": pl.Int64, "ts": pl.Date, "s": pl.String, "m": pl.Decimal(10, 2)},
    "bands": {"k": pl.Int64, "lo": pl.Int64, "hi": pl.Int64, "since": pl.Date, "until": pl.Date, "name": pl.String},
}

USED = {  # queries that find rows by their order, with the number of times
    "SELECT k, ts FROM facts WHERE ts > (SELECT max(ts) FROM facts) - INTERVAL '1 day'": 1,
    "SELECT k, ts FROM facts WHERE (SELECT max(ts) FROM facts) <= ts": 1,
    "SELECT k, x FROM facts WHERE x BETWEEN (SELECT min(lo) FROM bands) AND (SELECT max(hi) - 1 FROM bands)": 1,
    "SELECT k, x FROM facts WHERE x >= (SELECT min(lo) FROM bands) AND 2 * x < (SELECT max(hi) FROM bands)": 2,
    "SELECT k, x FROM facts WHERE x > (SELECT min(lo) FROM bands) AND x <= (SELECT max(hi) FROM bands) AND s = 'x'": 1,
    "SELECT k, x FROM facts WHERE (SELECT avg(lo) FROM bands) < x": 1,
    "SELECT k, x FROM facts WHERE m * 2 >= (SELECT max(lo) FROM bands WHERE name = 'x')": 1,
    "SELECT f.x, d.name FROM facts f JOIN bands d ON f.k = d.k AND f.ts >= d.since AND f.ts < d.until": 1,
    "SELECT f.x, d.name, d.lo FROM facts f JOIN bands d ON f.x BETWEEN d.lo AND d.hi": 1,
    "SELECT f.x, d.name FROM facts f, bands d WHERE d.lo <= f.x AND f.x + 1 > d.hi": 1,
    "SELECT f.x, d.hi FROM facts f JOIN bands d ON f.k = d.k AND f.x < d.hi WHERE d.lo < f.x OR f.s = 'y'": 1,
    "SELECT f.s, d.name FROM facts f LEFT JOIN bands d ON f.k = d.k AND f.ts BETWEEN d.since AND d.until": 1,
    "SELECT f.s, d.hi FROM facts f LEFT JOIN bands d ON f.x BETWEEN d.lo AND d.hi AND d.name = 'x'": 1,
    "SELECT f.s, d.hi FROM facts f LEFT JOIN bands d ON f.x < d.hi AND f.x <> d.lo WHERE d.lo IS NULL OR f.k > 0": 1,
    "SELECT f.s, d.hi FROM facts f FULL JOIN bands d ON f.k = d.k AND f.x >= d.lo AND f.x < d.hi": 1,
    "SELECT d.name, f.s FROM facts f RIGHT JOIN bands d ON f.x >= d.lo": 1,
    "WITH last AS (SELECT max(ts) AS ts, min(k) AS k FROM facts) SELECT f.s, l.k FROM last l, facts f "
    "WHERE f.ts >= l.ts - INTERVAL '2 days'": 1,
    "SELECT f.s FROM (SELECT max(x) AS m FROM facts) l CROSS JOIN facts f WHERE l.m BETWEEN f.x AND f.x + 2": 1,
    "SELECT a.x, b.x AS y FROM facts a JOIN facts b ON a.k = b.k AND a.x < b.x": 1,
    "SELECT x FROM facts f WHERE EXISTS (SELECT 1 FROM bands d WHERE f.x BETWEEN d.lo AND d.hi)": 1,
    "SELECT x FROM facts f WHERE x NOT IN (SELECT lo FROM bands d WHERE d.hi > f.x AND d.k = f.k)": 1,
    "SELECT count(*) AS n, sum(d.lo) AS t FROM facts f JOIN bands d ON (f.x BETWEEN d.lo AND d.hi) AND f.k = d.k": 1,
    "SELECT f.x, d.lo, e.hi FROM facts f JOIN bands d ON f.x >= d.lo JOIN bands e ON e.hi > d.lo AND e.k = f.k": 1,
    "SELECT f.x FROM facts f JOIN bands d ON f.x > (SELECT min(x) FROM facts) AND f.ts > d.since": 2,
    "SELECT f.m, d.name FROM facts f JOIN bands d ON f.m BETWEEN d.lo AND d.hi": 1,
}  # fmt: skip
NOT_USED = [
    "SELECT f.x FROM facts f JOIN bands d ON f.s < d.name",
    "SELECT x FROM facts WHERE s >= (SELECT min(name) FROM bands)",
    "SELECT x FROM facts WHERE x NOT BETWEEN (SELECT min(lo) FROM bands) AND (SELECT max(hi) FROM bands)",
    "SELECT x FROM facts WHERE x > (SELECT min(lo) FROM bands) OR k = 1",
    "SELECT x FROM facts f WHERE x > (SELECT min(lo) FROM bands d WHERE d.k = f.k)",
    "SELECT x, x > (SELECT min(lo) FROM bands) AS above FROM facts",
    "SELECT f.x FROM facts f JOIN bands d ON f.k = d.k AND f.x + d.lo > d.hi",
]


def uses(query: str) -> int:
    plan = build(program(f"CREATE VIEW result AS {query}"), SCHEMAS)
    return sum(node.operator.name == "join_between" for node in plan.nodes)


@pytest.mark.sample(6)
@pytest.mark.parametrize("query", [*USED, *NOT_USED])
def test_ranges_equal_duckdb_at_every_version(query: str) -> None:
    assert uses(query) == USED.get(query, 0)
    views = program(f"CREATE VIEW result AS {query}")
    for seed in range(4):
        logs = random_logs(random.Random(f"{query} {seed}"), versions=4, schemas=SCHEMAS, rows=12)
        log = ddcore.replay(views, ("version",), **logs)["result"]
        for version in range(4):
            with database(logs, version) as connection:
                other = bag(connection.execute(query).fetchall())
            assert bag(accumulated(log, version).rows()) == other, f"seed {seed}, version {version}"


@pytest.mark.parametrize("query", list(USED)[::4])
def test_the_reference_gives_the_same(query: str) -> None:
    views = program(f"CREATE VIEW result AS {query}")
    logs = random_logs(random.Random(query), schemas=SCHEMAS, rows=4)
    assert whole(views, **logs) == by_reference(views, **logs)


def expression(rng: random.Random, side: str, kind: str) -> str:
    numbers = {"f": ["f.k", "f.x"], "d": ["d.k", "d.lo", "d.hi"]}[side]
    if kind == "date":
        return rng.choice({"f": ["f.ts"], "d": ["d.since", "d.until", "d.since + INTERVAL '1 day'"]}[side])
    return rng.choice([*numbers, f"{rng.choice(numbers)} + 1", *(["f.m"] if side == "f" else ["d.lo * 0.5"])])


def comparison(rng: random.Random) -> str:
    kind = rng.choice(["date", "int", "int"])
    value, *ends = (expression(rng, side, kind) for side in ("f", "d", "d"))
    if rng.random() < 0.25:
        high = rng.choice(["hi", "lo"]) if kind == "int" else "until"
        ends[1] = f"(SELECT max({high}) FROM bands)"
    if rng.random() < 0.4:
        return f"{value} BETWEEN {ends[0]} AND {ends[1]}"
    sides = (value, rng.choice(ends))
    return f" {rng.choice(['<', '<=', '>', '>='])} ".join(sides if rng.random() < 0.5 else sides[::-1])


def random_query(rng: random.Random) -> str:
    conditions = [comparison(rng) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.5:
        conditions.insert(rng.randrange(len(conditions) + 1), "f.k = d.k")
    rng.shuffle(conditions)
    join = rng.choice(["JOIN", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    columns = rng.sample(["f.x", "f.s", "d.name", "d.hi", "f.ts", "d.until"], 2)
    results = ", ".join(f"{name} AS c{number}" for number, name in enumerate(columns))
    if join == "JOIN":
        cut = rng.randint(0, len(conditions))
        on, where = conditions[:cut], conditions[cut:]
        filtered = f" WHERE {' AND '.join(where)}" if where else ""
        return f"SELECT {results} FROM facts f JOIN bands d ON {' AND '.join(on) or 'true'}{filtered}"
    if any("SELECT" in condition for condition in conditions) or join == "FULL JOIN":
        conditions = [condition for condition in conditions if "SELECT" not in condition] or ["f.x >= d.lo"]
    if join == "FULL JOIN" and "f.k = d.k" not in conditions:
        conditions.append("f.k = d.k")
    return f"SELECT {results} FROM facts f {join} bands d ON {' AND '.join(conditions)}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("block", range(6))
def test_random_ranges_equal_duckdb_at_every_version(block: int) -> None:
    for seed in range(8 * block, 8 * block + 8):
        rng = random.Random(f"ranges {seed}")
        query, logs = random_query(rng), random_logs(rng, versions=3, schemas=SCHEMAS, rows=10)
        log = ddcore.replay(program(f"CREATE VIEW result AS {query}"), ("version",), **logs)["result"]
        for version in range(3):
            with database(logs, version) as connection:
                other = bag(connection.execute(query).fetchall())
            assert bag(accumulated(log, version).rows()) == other, f"seed {seed}, version {version}: {query}"


def test_several_rows_in_place_of_an_end_are_an_error() -> None:
    logs = random_logs(random.Random(1), schemas=SCHEMAS)
    with pytest.raises(ExpressionError, match=r"this subquery gives \d+ rows, where one value is wanted"):
        ddcore.replay(
            program("CREATE VIEW v AS SELECT x FROM facts WHERE x > (SELECT lo FROM bands)"), ("version",), **logs
        )


# -- how much is read --------------------------------------------------------------------------------------------------

ROWS, DAYS = 60_000, 60
START = datetime(2024, 1, 1, tzinfo=timezone.utc)  # noqa: UP017


def readings(days: int) -> pl.DataFrame:
    """As many readings a day."""
    at = pl.Series("ts", [START + timedelta(days=day) for day in range(days)], dtype=pl.Datetime("us", "UTC"))
    ts = at.gather(np.repeat(np.arange(days), ROWS // DAYS))
    return pl.DataFrame({"ts": ts, "id": np.arange(len(ts)), "version": 0, "diff": 1})


def test_a_filter_of_the_last_days_reads_the_rows_of_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    views = program(
        "CREATE VIEW recent AS SELECT id FROM readings WHERE ts > (SELECT max(ts) FROM readings) - INTERVAL '7 days'"
    )
    session = ddcore.Session(views, {"readings": {"ts": pl.Datetime("us", "UTC"), "id": "int64"}})
    per_day = ROWS // DAYS
    assert len(session.fold({"readings": readings(DAYS)})["recent"]) == 7 * per_day
    numbers = counted(monkeypatch)
    new = pl.DataFrame({"ts": [START + timedelta(days=DAYS)], "id": [-1], "version": [1], "diff": [1]})
    out = session.fold({"readings": new.cast({"ts": pl.Datetime("us", "UTC")})})["recent"]
    assert sorted(out["diff"].to_list()) == [-1] * per_day + [1]
    assert sum(numbers) <= per_day + 9


def test_the_end_of_a_validity_reads_the_rows_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    views = program(
        "CREATE VIEW priced AS SELECT s.id, p.price FROM sales s JOIN prices p ON s.item = p.item "
        "AND s.day >= p.since AND s.day < p.until"
    )
    schemas = {
        "sales": {"item": "string", "day": "date", "id": "int64"},
        "prices": {"item": "string", "since": "date", "until": "date", "price": "int64"},
    }
    session = ddcore.Session(views, schemas)
    days = pl.Series([date(2024, 1, 1) + timedelta(number // 100) for number in range(10_000)])
    sales = pl.DataFrame({"item": "tea", "day": days, "id": np.arange(10_000), "version": 0, "diff": 1})
    ever, cut = date(9999, 12, 31), date(2024, 1, 1) + timedelta(98)
    prices = pl.DataFrame(
        [("tea", date(2024, 1, 1), ever, 3, 0, 1)],
        schema=["item", "since", "until", "price", "version", "diff"], orient="row",
    )  # fmt: skip
    assert len(session.fold({"sales": sales, "prices": prices})["priced"]) == 10_000
    numbers = counted(monkeypatch)
    rows = [(date(2024, 1, 1), ever, 3, 1, -1), (date(2024, 1, 1), cut, 3, 1, 1), (cut, ever, 4, 1, 1)]
    changed = pl.DataFrame([("tea", *row) for row in rows], schema=prices.schema, orient="row")
    out = session.fold({"prices": changed})["priced"]
    assert (len(out), out["diff"].sum(), sum(numbers)) == (400, 0, 400)
