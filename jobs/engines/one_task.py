"""The fold on Spark with one worker: one task folds the whole window, as the inline engine does in its process.

The driver does not load the engine.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ddcore.base.errors import DdError
from ddcore.io.state.fold_result import FoldResult
from ddcore.jobs.engines.worker_count import workload
from ddcore.jobs.fold import Fold
from ddcore.jobs.spark import slots
from ddcore.jobs.spark.shipping import pickled
from ddcore.jobs.spark.stage import in_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["fold_with"]


def fold_with(spark: SparkContext | SparkSession, fold: Fold) -> tuple[FoldResult, int]:
    """Fold a window in one task; return the files it wrote, and the parallelism 1.

    Errors of the task are raised unchanged.
    """
    start = time.perf_counter()
    (result,) = in_tasks(spark, partial(_fold, pickled(fold), slots.threads_of(spark, 1)))
    if isinstance(result, DdError):
        raise result
    result.load = workload(fold, result, 1, time.perf_counter() - start)
    return result, 1


def _fold(fold: bytes, threads: int) -> FoldResult | DdError:
    """The task. A DdError is returned as its result, so that the driver can raise it unchanged."""
    from ddcore.jobs.engines import inline

    start = time.perf_counter()
    try:
        result = inline.fold(replace(pickle.loads(fold), parallelism=threads))[0]
    except DdError as error:
        return error
    result.took = result.worked = time.perf_counter() - start
    return result
