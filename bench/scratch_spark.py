"""The package example without differential dataflow: every 100th version computed from scratch by Spark DataFrames.

``python -m bench.scratch_spark LOG OUTPUTS [--together]`` writes the three outputs of ``examples/packages`` as Delta
tables with a ``version`` column. It is written for speed: semi-naive, so that a round joins only the new pairs of
the round before; plans are cut with ``localCheckpoint`` at every round; nothing is computed twice;
the session has the settings that ``dd`` gives its own. ``--together`` computes all versions in one loop.
"""

from __future__ import annotations

import argparse
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ddcore.jobs.spark import session

VERSIONS = range(100, 1494, 100)
PAIR = ["version", "package", "dependency"]


def collection_at(log: DataFrame, versions: list[int]) -> DataFrame:
    """The direct dependencies at each of ``versions``: (version, package, dependency), each once."""
    at = F.explode(F.array(*map(F.lit, versions)))
    updates = log.withColumnRenamed("version", "changed").withColumn("version", at).where("changed <= version")
    return updates.groupBy(PAIR).agg(F.sum("diff").alias("n")).where("n > 0").select(PAIR)


def closure(direct: DataFrame) -> DataFrame:
    """All transitive pairs. Each round extends the pairs that are new by one dependency in front."""
    front = direct.select("version", "package", F.col("dependency").alias("through"))
    pairs = fresh = direct
    while not fresh.isEmpty():
        onward = fresh.withColumnRenamed("package", "through")
        candidates = front.join(onward, ["version", "through"]).select(PAIR).distinct()
        fresh = candidates.join(pairs, PAIR, "left_anti").localCheckpoint()
        pairs = pairs.union(fresh)
    return pairs


def outputs(depends: DataFrame) -> dict[str, DataFrame]:
    """The three outputs of the example."""
    needed_by = depends.groupBy("version", F.col("dependency").alias("package"))
    return {
        "depends": depends,
        "dependents": needed_by.agg(F.count("*").alias("n")),
        "cyclic": depends.where("package = dependency").select("version", "package"),
    }


def main(log_file: str, folder: str, together: bool) -> None:
    """Compute and write all outputs at all versions."""
    batches = [list(VERSIONS)] if together else [[version] for version in VERSIONS]
    with session.spark({}) as spark:
        log = spark.read.parquet(log_file).localCheckpoint()
        pairs = [closure(collection_at(log, batch).localCheckpoint()) for batch in batches]
        depends = reduce(DataFrame.union, pairs).coalesce(spark.sparkContext.defaultParallelism).localCheckpoint()
        for name, rows in outputs(depends).items():
            rows.write.format("delta").mode("overwrite").save(f"{folder}/{name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("outputs")
    parser.add_argument("--together", action="store_true")
    options = parser.parse_args()
    main(options.log, options.outputs, options.together)
