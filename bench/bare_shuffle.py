"""Reads rows, shuffles them into two partitions by a key, and writes them, with Spark and without a fold.

`python -m bench.bare_shuffle ROWS OUT`. Its session is started as `dd` starts its own.
"""

from __future__ import annotations

import sys

from ddcore.jobs.spark import session


def main(rows: str, out: str) -> None:
    """Read Parquet, shuffle by ``src`` into two partitions, write Parquet."""
    with session.spark({}, parallelism=2, bulk=True) as spark:
        spark.read.parquet(rows).repartition(2, "src").write.mode("overwrite").parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
