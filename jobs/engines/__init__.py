"""Engines: where a window is folded. All use the same worker and write the same tables with the same rows.

``inline``: in this process. ``spark``: in one task (:mod:`~ddcore.jobs.engines.one_task`) or, for a large window, in
several workers that exchange messages (:mod:`~ddcore.jobs.engines.exchange`).
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import StorageError
from ddcore.jobs.failures import one_line
from ddcore.jobs.fold import Engine, Fold, Listener

if TYPE_CHECKING:
    from ddcore.io.project.project import Project
    from ddcore.io.state.fold_result import FoldResult
    from ddcore.jobs.warm import Warm


def kept(name: str) -> AbstractContextManager[None]:
    """What keeps a session of Spark, once it is started, for all commands inside of a ``with``."""
    if name == "inline":
        return nullcontext()
    from ddcore.jobs.spark import session

    return session.kept()


def load(name: str, project: Project, parallelism: int | None = None, warm: Warm | None = None) -> Engine:
    """The engine ``name``; ``warm``: what folds in this process leave in memory for the next.

    Raises StorageError if this machine lacks what it needs: Java, jars, kernels; UsageError for libraries that are not
    installed, and for more workers than there can be.
    """
    if name != "inline":
        from ddcore.jobs.spark import connect, session

        if connect.is_used(project.spark_master):
            connect.check()
            return _on_spark_connect
        session.check()
        return _on_spark
    try:
        from ddcore.jobs.engines.inline import fold
    except Exception as error:  # numba raises many kinds if it can neither load nor compile a kernel
        raise StorageError(f"the kernels of the engine do not load: {one_line(error)}", "see: ddcore doctor") from error
    return fold if warm is None else partial(fold, hot=warm.arrangements())


def hold(project: Project) -> AbstractContextManager[Any]:
    """Keep what folds on Spark start, for all of them that begin inside a ``with``."""
    from ddcore.jobs.spark import connect, session

    settings = project.spark_conf, project.spark_master, project.parallelism
    return connect.connected(*settings) if connect.is_used(project.spark_master) else session.spark_context(*settings)


def _on_spark_connect(fold: Fold, listener: Listener | None) -> tuple[FoldResult, int]:
    from ddcore.jobs.spark import connect

    with connect.connected(fold.settings.spark_conf, fold.settings.spark_master) as session:
        return _with(session, fold)


def _on_spark(fold: Fold, listener: Listener | None) -> tuple[FoldResult, int]:
    from ddcore.jobs.engines.worker_count import WorkerCount
    from ddcore.jobs.spark import session

    parallelism = fold.parallelism or (None if WorkerCount.of(fold).may_be_several else 1)
    with session.spark_context(fold.settings.spark_conf, fold.settings.spark_master, parallelism) as context:
        return _with(context, fold)


def _with(spark: Any, fold: Fold) -> tuple[FoldResult, int]:
    """Fold in one task, or in several if that pays or their number is given."""
    from ddcore.jobs.engines import exchange, one_task
    from ddcore.jobs.engines.worker_count import GIVEN, WorkerCount
    from ddcore.jobs.spark import slots

    count, begun = WorkerCount.of(fold), time.perf_counter()
    if fold.parallelism:
        # Of a rebuild nobody knows how many stored rows it reads.
        is_known = fold.rebuilding is None
        parallelism, why = count.given(fold.parallelism) if is_known else (fold.parallelism, GIVEN)
    else:
        parallelism, why = count.chosen(slots.workers_of(spark) if count.may_be_several else None)
    if parallelism == 1:
        result, folded = one_task.fold_with(spark, fold)
    else:
        waited = time.perf_counter() - begun  # for executors
        result, folded = exchange.fold_with(spark, fold, parallelism)
        if result.load is not None and folded > 1:
            result.load = replace(result.load, start=result.load.start + waited)
    if fold.rebuilding is not None:
        result.load = None  # what it read of stored inputs is not in the rows of its window
    result.why = result.why or why
    return result, folded
