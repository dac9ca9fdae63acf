"""``make test-tpcds``: TPC-DS's queries equal DuckDB at every version. pip fetches the texts once."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import polars as pl
import pytest
import sqlglot
from tpcds import SIZES, VERSIONS, check, literals, logs, suite, tables_for

SCHEMAS: dict[str, dict[str, Any]] = {
    "store_sales": {"ss_item_sk": pl.Int64, "ss_quantity": pl.Int64},
    "item": {"i_item_sk": pl.Int64, "i_color": pl.String},
}
QUERY = """
    SELECT i_color, sum(ss_quantity) AS n FROM store_sales, item
    WHERE ss_item_sk = i_item_sk AND i_color IN ('red', 'blue') GROUP BY i_color ORDER BY i_color LIMIT 100"""


def test_values_are_those_that_the_query_asks_for_and_later_versions_retract() -> None:
    tree = sqlglot.parse_one(QUERY.replace("GROUP", "AND d = '2000-1-05' GROUP"), dialect="postgres")
    assert literals(tree)["i_color"] == ["red", "blue"]
    assert literals(tree)["d"] == [date(2000, 1, 5)]
    made = logs(random.Random(1), tree, SCHEMAS, SIZES[0])
    assert set(made) == set(SCHEMAS)
    for log in made.values():
        assert log["version"].max() == VERSIONS - 1
        assert (log["diff"] < 0).any()


def test_numbers_beside_those_of_a_comparison_and_columns_that_are_compared() -> None:
    condition = "a.x > 3 AND a.y = -5 AND b.z IS NULL AND a.y = b.w AND 7 < (SELECT sum(b.v) FROM b)"
    known = literals(sqlglot.parse_one(f"SELECT 1 FROM a, b WHERE {condition}", dialect="postgres"))
    assert known == {"x": [3, 5, 7], "y": [-5], "w": [-5], "z": [None]}


def test_a_query_that_asks_for_much_gets_larger_tables() -> None:
    query = f"{QUERY.partition(' ORDER')[0]} HAVING count(*) > 400"
    tables = tables_for(1, query, SCHEMAS, 0)
    assert len(tables["store_sales"]) > 1000


def test_a_query_is_compared_and_a_refusal_is_told() -> None:
    different, compared = check(1, QUERY, SCHEMAS, 0)
    assert (different, compared > 0) == ("", True)
    different, _ = check(1, QUERY.replace("sum(", "kurtosis("), SCHEMAS, 0)
    assert different.startswith("refused: program.sql:")


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_the_queries_of_tpcds_equal_duckdb(block: int) -> None:
    queries, schemas = suite()
    assert len(queries) == 99
    for number, query in list(enumerate(queries, 1))[block::4]:
        different, compared = check(number, query, schemas, 0)
        assert not different, f"query {number}: {different}"
        assert compared, f"query {number}: there was no row to compare"
