"""The fold on Spark with one worker: one task folds the whole window, as the inline engine does in its process.

A plain RDD job, on a context without SQL: with one worker there is nothing to partition and nothing to exchange, and
the first SQL job of a JVM costs more than most folds. The driver does not load the engine.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcore.errors import DdError
from ddcore.io.gains import Gained
from ddcore.jobs.fold import Fold
from ddcore.jobs.spark.failures import run_job
from ddcore.jobs.spark.shipping import pickled

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["fold_with"]


def fold_with(context: SparkContext, fold: Fold) -> tuple[Gained, int]:
    """Fold a window in one task of a Spark context; return the files it wrote, and the parallelism 1.

    Errors of the task are raised unchanged.
    """
    job = context.parallelize([0], 1).mapPartitions(functools.partial(_fold, pickled(fold)))
    (result,) = run_job(job.collect)
    if isinstance(result, DdError):
        raise result
    return result


def _fold(fold: bytes, _partition: Iterable[int]) -> Iterator[tuple[Gained, int] | DdError]:
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
