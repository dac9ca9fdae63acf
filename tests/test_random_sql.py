"""Random programs of SQL equal DuckDB, PostgreSQL and Spark at every version; `make test-sql` takes more of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
import random_sql
from random_sql import VERSIONS, WINDOWS, Outcome
from seeds import seeds
from sql_peers import DuckDb, Spark
from sql_tables import TARGETS


def outcome_of(name: str, chosen: range) -> Outcome:
    outcome = Outcome()
    for _ in random_sql.run([name], chosen, outcome):
        assert not outcome.wrong, outcome.wrong
    return outcome


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["duckdb", "duckdb words"])
def test_random_queries_equal_duckdb_at_every_version(name: str) -> None:
    outcome = outcome_of(name, range(24))
    assert outcome.equal == 24 and outcome.rows > 12, outcome.refused


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("name", ["duckdb", "duckdb words", WINDOWS])
def test_many_random_queries_equal_duckdb_at_every_version(name: str, block: int) -> None:
    chosen = seeds(320, start=24)
    start, end = (chosen.start + len(chosen) * part // 4 for part in (block, block + 1))
    assert outcome_of(name, range(start, end)).equal >= 0.97 * (end - start)


@pytest.mark.long
def test_random_queries_equal_postgresql_at_every_version() -> None:
    with random_sql.peers(["postgres"]) as found:
        if not found:
            pytest.skip("PostgreSQL is not installed")
    outcome = outcome_of("postgres", seeds(400))
    assert outcome.equal >= 0.97 * outcome.asked


@pytest.mark.long
def test_random_queries_equal_spark_at_every_version(spark: Any) -> None:
    peer, outcome = Spark(spark), Outcome()
    for seed in range(32):
        if seed % random_sql.TOGETHER == 0:
            peer.load(random_sql.tables("spark words", seed), VERSIONS)
        random_sql.check("spark words", peer, seed, outcome)
    assert not outcome.wrong and outcome.equal >= 28


class Liar:
    """An engine that loses a row at the last version."""

    def load(self, logs: Mapping[str, pl.DataFrame], versions: int) -> None:
        self.peer = DuckDb(as_postgres=True)
        self.peer.load(logs, versions)

    def rows(self, query: str, version: int, schema: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self.peer.rows(query, version, schema)[version == VERSIONS - 1 :]


def test_a_row_that_is_missing_is_told_with_its_seed() -> None:
    peer, outcome = Liar(), Outcome()
    peer.load(random_sql.tables("duckdb", 0), VERSIONS)
    for seed in range(random_sql.TOGETHER):
        random_sql.check("duckdb", peer, seed, outcome)
    assert len(outcome.wrong) > random_sql.TOGETHER / 3
    assert outcome.wrong[0].startswith("duckdb ") and "at version 2 only here [(" in outcome.wrong[0]


def test_a_refusal_of_either_engine_is_counted_and_is_no_answer() -> None:
    outcome = Outcome()
    outcome.refuse("ddcore", "program.sql:1:8: the function kurtosis is not supported: kurtosis(a)\n  hint", "seed 1")
    outcome.refuse("ddcore", "program.sql:1:99: the function kurtosis is not supported: kurtosis(b)", "seed 2")
    assert outcome.refused == {"ddcore: the function kurtosis is not supported": 2}
    assert outcome.examples == {"ddcore: the function kurtosis is not supported": "seed 1"}
    assert (outcome.asked, outcome.equal) == (2, 0)


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_gives_the_same_query_and_the_same_tables(name: str) -> None:
    assert random_sql.query(name, 7) == random_sql.query(name, 7) != random_sql.query(name, 8)
    first, again = random_sql.tables(name, 7), random_sql.tables(name, 7)
    assert all(first[table].equals(again[table]) for table in first)
