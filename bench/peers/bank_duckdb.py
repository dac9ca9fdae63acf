"""The bank's day by DuckDB: ``python -m bench.peers.bank_duckdb TABLES RESULTS`` solves every question from scratch.

``TABLES`` has a file of Parquet for each table as it is now; each result is written as a file of Parquet.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

TABLES = ("customers", "accounts", "transfers")
VIEWS = {
    "held": "select distinct account, customer from accounts",
    "spent": """
        select customer, sum(cents)::bigint cents, count(*) n
        from transfers join held using (account) group by customer
    """,
    "below": """
        with recursive pairs as (
            select distinct customer, customer as owner from customers
            union all
            select pairs.customer, above.parent
            from pairs join customers above on above.customer = pairs.owner where above.parent is not null
        ) select * from pairs
    """,
    "priced": """
        select customer, tier, day, cents, cents // (100 * tier + 100) as fee
        from transfers join accounts using (account) where since <= day and day < until
    """,
    "members": """
        with recursive edges as (
            select customer as a, guarantor as b from customers where guarantor is not null
            union select guarantor, customer from customers where guarantor is not null
        ), reached as (
            select a, a as b from edges
            union select reached.a, edges.b from reached join edges on reached.b = edges.a
        ) select a as node, min(b) as component from reached group by a
    """,
}
QUERIES = {
    "exposures": """
        select owner, sum(cents)::bigint cents, count(*) customers from below join spent using (customer) group by owner
    """,
    "fees": "select customer, sum(fee)::bigint fee from priced group by customer",
    "tiers": """
        select tier, day, sum(cents)::bigint cents, count(*) n, max(cents) largest from priced group by tier, day
    """,
    "first_of_country": """
        select country, customer, cents from spent join customers using (customer)
        qualify row_number() over (partition by country order by cents desc, customer) <= 10
    """,
    "payees": "select account, count(distinct payee) payees from transfers group by account",
    "rings": "select node, component from members",
    "ring_spending": """
        select component, sum(cents)::bigint cents, max(cents) most
        from members join spent on node = customer group by component
    """,
    "orphans": "select transfer, account from transfers anti join held using (account)",
}


def main(tables: Path, results: Path) -> None:
    """Read the tables, compute what several questions share once, and write each answer."""
    with duckdb.connect() as connection:
        for name in TABLES:
            connection.execute(f"create table {name} as select * from '{tables / name}.parquet'")
        for name, query in VIEWS.items():
            connection.execute(f"create table {name} as {query}")
        for name, query in QUERIES.items():
            connection.execute(f"copy ({query}) to '{results / name}.parquet' (format parquet)")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
