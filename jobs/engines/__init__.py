"""Engines: where a window is folded. All use the same worker and write the same tables with the same rows.

``inline``: in this process. ``spark``: in one task (:mod:`~ddcore.jobs.engines.one_task`) or, for a large window, in
several workers that exchange messages (:mod:`~ddcore.jobs.engines.exchange`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.errors import StorageError
from ddcore.jobs.failures import one_line
from ddcore.jobs.fold import Engine, Fold, Listener

if TYPE_CHECKING:
    from ddcore.io.gains import Gained

__all__ = ["load"]

WIDE_FROM = 20_000_000  # rows in a window from which several workers fold it: docs/performance.md


def load(name: str) -> Engine:
    """The engine ``name``. Raises StorageError if this machine lacks what it needs: Java, jars, kernels."""
    if name != "inline":
        from ddcore.jobs.spark import session

        session.check()
        return _on_spark
    try:
        from ddcore.jobs.engines.inline import fold
    except Exception as error:  # numba raises many kinds if it can neither load nor compile a kernel
        raise StorageError(f"the kernels of the engine do not load: {one_line(error)}", "see: ddcore doctor") from error
    return fold


def _on_spark(fold: Fold, listener: Listener | None) -> tuple[Gained, int]:
    from ddcore.jobs.engines import exchange, one_task
    from ddcore.jobs.spark import session

    parallelism = fold.parallelism or (1 if fold.rows < WIDE_FROM else None)
    with session.spark_context(fold.settings.spark_conf, fold.settings.spark_master, parallelism) as context:
        parallelism = parallelism or context.defaultParallelism
        if parallelism == 1:
            return one_task.fold_with(context, fold)
        return exchange.fold_with(context, fold, parallelism, listener)
