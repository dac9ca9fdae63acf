"""TPC-H by DuckDB: ``python -m bench.peers.tpch_duckdb DATABASE RESULTS`` solves every query at every version.

The database, which :func:`prepare` writes, holds the tables at version 0 and the changes after it. For each version its
changes are applied, the queries run from scratch, and each result is written as a file of Parquet.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

from bench.peers.tpch_queries import QUERIES

KEYS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
"""The tables that change, and their column with the order's key."""


def prepare(database: Path, logs: Path) -> None:
    """Write the database from a folder of change logs."""
    with duckdb.connect(str(database)) as connection:
        for file in sorted(logs.glob("*.parquet")):
            name = file.stem
            rows = "select * exclude (version, diff)"
            connection.execute(f"create table {name} as {rows} from '{file}' where version = 0")
            connection.execute(f"create table {name}_changes as select * from '{file}' where version > 0")


def main(database: Path, results: Path) -> None:
    """Solve all queries at version 0, then at each later one."""
    with duckdb.connect(str(database)) as connection:
        solve(connection, results, 0)
        (last,) = connection.execute("select max(version) from orders_changes").fetchall()[0]
        for version in range(1, last + 1):
            for table, key in KEYS.items():
                changes = f"from {table}_changes where version = {version}"
                connection.execute(f"delete from {table} where {key} in (select {key} {changes} and diff < 0)")
                rows = "select * exclude (version, diff)"
                connection.execute(f"insert into {table} {rows} {changes} and diff > 0")
            solve(connection, results, version)


def solve(connection: duckdb.DuckDBPyConnection, results: Path, version: int) -> None:
    """Write the result of each query."""
    for name, query in QUERIES.items():
        connection.execute(f"copy ({query}) to '{results / f'{name}-{version}.parquet'}' (format parquet)")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
