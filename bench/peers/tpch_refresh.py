"""One version of TPC-H by DuckDB: ``python -m bench.peers.tpch_refresh DATABASE LOGS RESULTS VERSION``.

Version 0 writes the database from a folder of Parquet files; a later version applies the changes in its folder.
Then the queries run from scratch, and each result is written as a file of Parquet.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

from bench.peers.tpch_duckdb import KEYS, solve


def main(database: Path, logs: Path, results: Path, version: int) -> None:
    """Bring the tables to the version, and solve all queries."""
    with duckdb.connect(str(database)) as connection:
        for file in sorted(logs.glob("*.parquet")):
            rows = f"select * exclude (version, diff) from '{file}'"
            if version == 0:
                connection.execute(f"create table {file.stem} as {rows}")
                continue
            key = KEYS[file.stem]
            gone = f"select {key} from '{file}' where diff < 0"
            connection.execute(f"delete from {file.stem} where {key} in ({gone})")
            connection.execute(f"insert into {file.stem} {rows} where diff > 0")
        solve(connection, results, version)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
