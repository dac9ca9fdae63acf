"""One function in a task of Spark, or in several that run side by side: on a context, or on Spark Connect.

A context needs no SQL, whose first job in a JVM costs more than most folds. Spark Connect has no RDDs: there a task is
a function over the only row of its part of a DataFrame.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ddcore.jobs.spark.failures import run_job

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_PIECE = 1 << 20  # bytes of a result in one row


def in_tasks(spark: SparkContext | SparkSession, task: Callable[[], Any], number: int = 1) -> list[Any]:
    """What a function returns in each of so many tasks; raises what a job raises.

    Several are a barrier stage: all start together, and if one fails, all end, with TaskLost.
    """
    context: Any = spark
    if hasattr(context, "parallelize"):
        rows = context.parallelize(range(number), number)
        job = (rows.barrier() if number > 1 else rows).mapPartitions(partial(_result, task))
        return list(run_job(job.collect))
    session: Any = spark
    rows = session.range(0, number, 1, number)
    job = rows.mapInArrow(partial(_pieces, task), "task long, piece binary", barrier=number > 1)
    bodies: dict[int, bytearray] = {}
    for row in run_job(job.toArrow).to_pylist():
        bodies.setdefault(row["task"], bytearray()).extend(row["piece"])
    return [pickle.loads(body) for body in bodies.values()]


def _result(task: Callable[[], Any], _rows: Iterable[Any]) -> Iterator[Any]:
    yield task()


def _pieces(task: Callable[[], Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pickled result in pieces: the client refuses rows of more than 128 MiB."""
    import pyarrow as pa

    (number,) = [number for batch in batches for number in batch.column(0).to_pylist()]
    body = pickle.dumps(task())
    for start in range(0, len(body), _PIECE):
        piece = pa.array([body[start : start + _PIECE]], pa.binary())
        yield pa.record_batch({"task": pa.array([number], pa.int64()), "piece": piece})
