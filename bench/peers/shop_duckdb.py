"""The shop's views by DuckDB: ``python -m bench.peers.shop_duckdb PROJECT RESULTS`` computes all of them from scratch.

It reads the Bronze tables of a copy of ``examples/shop`` and runs the same SQL. Each view that is a published table is
written as a file of Parquet.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import duckdb
from deltalake import DeltaTable


def main(project: Path, results: Path) -> None:
    """Compute all views and write them."""
    con = duckdb.connect()
    settings = tomllib.loads((project / "dd.toml").read_text(encoding="utf-8"))
    for name in settings["inputs"]:
        files = [str(file) for file in DeltaTable(str(project / "bronze" / name)).file_uris()]
        con.from_parquet(files).create_view(name)
    for file in ("silver", "gold"):
        con.execute((project / "views" / f"{file}.sql").read_text(encoding="utf-8"))
    results.mkdir(exist_ok=True)
    for name in settings["outputs"]:
        con.table(name).write_parquet(str(results / f"{name}.parquet"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
