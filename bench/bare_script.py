"""The least a PySpark job on Delta can be: start, read a small table with a filter, append to another, stop.

`python -m bench.bare_script TABLES`. It starts its session as `dd` does, with the same settings, jars and class
archive, so that the two differ in their work only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from ddcore.jobs.spark import session


def make_tables(folder: Path, log: Path) -> None:
    """The two tables, outside of the measurement: `small` holds a change log, `other` has the same columns."""
    rows = pl.read_parquet(log)
    rows.write_delta(folder / "small")
    rows.head(1).write_delta(folder / "other")


def main(folder: Path) -> None:
    """Append the rows of the last ten versions of `small` to `other`."""
    with session.spark({}) as spark:
        rows = spark.read.format("delta").load(str(folder / "small")).where("version > 1483")
        rows.write.format("delta").mode("append").save(str(folder / "other"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
