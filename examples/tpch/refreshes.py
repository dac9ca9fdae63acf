"""Makes change logs of TPC-H's tables: ``python refreshes.py TABLES LOGS``, two folders of Parquet files.

As TPC-H's refresh functions do, each version inserts one order in a thousand, with its items, and deletes as many. The
orders that later versions insert are left out of version 0. Which orders come and go is drawn at random, always in the
same way. The logs have the columns that ``dd.toml`` names.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

import numpy as np
import polars as pl

HERE = Path(__file__).parent
KEYS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
"""The tables that change, and their column with the order's key."""


def main(tables: Path, logs: Path, versions: int = 40, share: int = 1_000, seed: int = 1, project: Path = HERE) -> None:
    """Write a log for each table that the program of ``project`` reads."""
    logs.mkdir(parents=True, exist_ok=True)
    settings = tomllib.loads((project / "dd.toml").read_text(encoding="utf-8"))
    moves = drawn(
        pl.read_parquet(tables / "orders.parquet", columns=["o_orderkey"])["o_orderkey"], versions, share, seed
    )
    for name, table in settings["inputs"].items():
        rows = pl.read_parquet(tables / f"{name}.parquet", columns=list(table["schema"]))
        if name in KEYS:
            log = rows.join(moves, left_on=KEYS[name], right_on="key", maintain_order="left_right")
        else:
            log = rows.with_columns(version=pl.lit(0, pl.Int64), diff=pl.lit(1, pl.Int64))
        log.write_parquet(logs / f"{name}.parquet")


def drawn(keys: pl.Series, versions: int, share: int, seed: int) -> pl.DataFrame:
    """(key, version, diff): when each order comes, and when some of them go."""
    item = max(len(keys) // share, 1)
    chosen = np.random.default_rng(seed).choice(keys.sort().to_numpy(), size=(2, versions, item), replace=False)
    later = pl.DataFrame({"key": chosen[0].ravel(), "version": np.repeat(np.arange(1, versions + 1), item)})
    gone = later.select(key=pl.Series(chosen[1].ravel()), version="version", diff=pl.lit(-1, pl.Int64))
    come = keys.to_frame("key").join(later, on="key", how="left").with_columns(pl.col("version").fill_null(0))
    return pl.concat([come.with_columns(diff=pl.lit(1, pl.Int64)), gone]).sort("version", "diff", "key")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make change logs of TPC-H's tables.")
    parser.add_argument("tables", type=Path)
    parser.add_argument("logs", type=Path)
    parser.add_argument("--versions", type=int, default=40)
    parser.add_argument("--share", type=int, default=1_000, help="a version inserts one order in so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--project", type=Path, default=HERE, help="the folder of the dd.toml that names the tables")
    main(**vars(parser.parse_args()))
