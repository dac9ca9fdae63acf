"""The peer of an ingest of a snapshot: reads two snapshots, joins them by their key, and prints how many rows differ.

``python -m bench.bare_join polars|spark OLD NEW``: a script as one writes it by hand, with nothing of ddcore.
"""

from __future__ import annotations

import sys


def by_polars(old: str, new: str) -> int:
    """Rows that differ, by Polars."""
    import polars as pl

    before, after = pl.scan_parquet(old), pl.scan_parquet(new)
    values = [name for name in before.collect_schema().names() if name != "id"]
    both = before.join(after, on="id", how="full", suffix="_new", nulls_equal=True)
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"{name}_new")) for name in values)
    return both.filter(~same).collect().height


def by_spark(old: str, new: str) -> int:
    """Rows that differ, by Spark on all cores."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    session = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    before, after = session.read.parquet(old), session.read.parquet(new)
    values = [name for name in before.columns if name != "id"]
    renamed = after.select("id", *(F.col(name).alias(f"{name}_new") for name in values))
    same = F.lit(True)
    for name in values:
        same &= F.col(name).eqNullSafe(F.col(f"{name}_new"))
    return before.join(renamed, on="id", how="full").where(~same).count()


if __name__ == "__main__":
    engine, *files = sys.argv[1:]
    print((by_polars if engine == "polars" else by_spark)(*files))
