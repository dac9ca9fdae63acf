"""Rows of a change log by DuckDB: ``python -m bench.peers.where_duckdb TABLE CONDITION LIMIT``.

The collection after all versions, of the table's Parquet files: the rows that meet the condition (the empty text: all),
sorted, at most LIMIT of them (0: all). Prints how many there are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb


def main(table: Path, condition: str, limit: int) -> None:
    """Print the number of rows, as they are fetched."""
    connection = duckdb.connect()
    print(len(connection.execute(question(connection, table, condition, limit)).fetchall()))


def question(connection: duckdb.DuckDBPyConnection, table: Path, condition: str, limit: int) -> str:
    """The query for these rows."""
    names = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM '{table}/*.parquet'").fetchall()]
    columns = ", ".join(name for name in names if name not in ("version", "diff"))
    query = f"SELECT {columns}, sum(diff) FROM '{table}/*.parquet' WHERE {condition or 'true'} GROUP BY ALL"
    return query + " HAVING sum(diff) <> 0 ORDER BY ALL" + (f" LIMIT {limit}" if limit else "")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
