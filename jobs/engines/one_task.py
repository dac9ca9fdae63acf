"""The fold on Spark with one worker: one task folds the whole window, as the inline engine does in its process.

A plain RDD job, on a context without SQL: with one worker there is nothing to partition and nothing to exchange, and
the first SQL job of a JVM costs more than most folds. The driver does not load the engine. Spark Connect has no RDDs:
there the same task is a function over the only row of a DataFrame.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcore.base.errors import DdError
from ddcore.io.state.fold_result import FoldResult
from ddcore.jobs.fold import Fold
from ddcore.jobs.spark.failures import run_job
from ddcore.jobs.spark.shipping import pickled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["fold_in_session", "fold_with"]

_PIECE = 1 << 20  # bytes of the result in one row


def fold_with(context: SparkContext, fold: Fold) -> tuple[FoldResult, int]:
    """Fold a window in one task of a Spark context; return the files it wrote, and the parallelism 1.

    Errors of the task are raised unchanged.
    """
    job = context.parallelize([0], 1).mapPartitions(functools.partial(_fold, pickled(fold)))
    (result,) = run_job(job.collect)
    return _gained(result)


def fold_in_session(session: SparkSession, fold: Fold) -> tuple[FoldResult, int]:
    """Fold in one task of a session, which may be one of Spark Connect."""
    job = session.range(0, 1, 1, 1).mapInArrow(functools.partial(_fold_rows, pickled(fold)), "piece binary")
    pieces = run_job(job.toArrow)["piece"].to_pylist()
    return _gained(pickle.loads(b"".join(pieces)))


def _gained(result: tuple[FoldResult, int] | DdError) -> tuple[FoldResult, int]:
    if isinstance(result, DdError):
        raise result
    return result


def _fold_rows(fold: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task, with its pickled result in pieces: the client refuses rows of more than 128 MiB."""
    import pyarrow as pa

    for _ in batches:
        pass
    (result,) = _fold(fold, ())
    body = pickle.dumps(result)
    for start in range(0, len(body), _PIECE):
        yield pa.record_batch({"piece": pa.array([body[start : start + _PIECE]], pa.binary())})


def _fold(fold: bytes, _partition: Iterable[int]) -> Iterator[tuple[FoldResult, int] | DdError]:
    """The task. A DdError is returned as its result, so that the driver can raise it unchanged."""
    from pyspark import TaskContext

    from ddcore.jobs.engines import inline

    task = TaskContext.get()
    processors = task.cpus() if task is not None else 1  # spark.task.cpus
    try:
        gained, _ = inline.fold(replace(pickle.loads(fold), parallelism=processors))
        yield gained, 1
    except DdError as error:
        yield error
