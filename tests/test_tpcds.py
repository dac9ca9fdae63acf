"""``make test-tpcds``: TPC-DS's queries equal DuckDB at every version. pip fetches the texts once."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import polars as pl
import pytest
import sqlglot
from tpcds import VERSIONS, check, literals, logs, suite

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
    made = logs(random.Random(1), tree, SCHEMAS)
    assert set(made) == set(SCHEMAS)
    for log in made.values():
        assert log["version"].max() == VERSIONS - 1
        assert (log["diff"] < 0).any()


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
        different, _ = check(number, query, schemas, 0)
        assert not different, f"query {number}: {different}"
