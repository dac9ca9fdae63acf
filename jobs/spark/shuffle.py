"""The first half of a shuffle by itself: rows are written for their new partitions, and not read yet.

A job of RDDs has two stages, of which the second reads. Where the next job reads anyway, the second one is left out. To
start the first one alone is private to Spark; ``pyspark`` is pinned to one version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["write_shuffle"]


def write_shuffle(context: SparkContext, divided: RDD[Any]) -> None:
    """Run the stage that writes the partitions of a result of ``RDD.partitionBy``; wait for its end.

    Raises what a job raises. If files are lost later with an executor, Spark writes them again.
    """
    jvm: Any = context._jvm
    shuffled = divided._jrdd.rdd().dependencies().head().rdd()  # beneath the values without their partitions
    written = context._jsc.sc().submitMapStage(shuffled.dependencies().head())
    jvm.scala.concurrent.Await.result(written, jvm.scala.concurrent.duration.Duration.Inf())
