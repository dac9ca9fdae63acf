"""The parent of Spark's Python workers on this machine: imports once what every worker needs, then forks them.

Spark starts it (``spark.python.daemon.module``) with the first Python job of a session. It only imports: a thread
pool that has run before the fork would hang in the child, so nothing here may compute.
"""

from __future__ import annotations

import contextlib
import importlib

__all__ = ["preload"]

# In the order of use. The last ones are ours and bring numba with the compiled kernels, which is most of the time.
_MODULES = (
    "numpy",
    "pyarrow",
    "pandas",
    "polars",
    "polars_hash",
    "pyspark.worker",
    "ddcore.worker",
    "ddcore.io.arrangements",
)


def preload() -> None:
    """Import what workers use. What cannot be imported is left for the task to fail on, where the user sees it."""
    for module in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
