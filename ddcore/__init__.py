"""Differential dataflow over version histories, on Spark and Delta Lake.

Names are loaded when first used, so that importing the package, as every command does, costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddcore.base.version import __version__ as __version__

if TYPE_CHECKING:
    from polars import col as col

    from ddcore import algorithms as algorithms
    from ddcore.base import errors as errors
    from ddcore.engine.session import Session as Session
    from ddcore.engine.session import replay as replay
    from ddcore.io.reading.opened import open as open
    from ddcore.operators.aggregates import all as all
    from ddcore.operators.aggregates import any as any
    from ddcore.operators.aggregates import count as count
    from ddcore.operators.aggregates import count_distinct as count_distinct
    from ddcore.operators.aggregates import max as max
    from ddcore.operators.aggregates import mean as mean
    from ddcore.operators.aggregates import min as min
    from ddcore.operators.aggregates import sum as sum
    from ddcore.program.collection import Collection as Collection
    from ddcore.program.constants import constant as constant
    from ddcore.program.data_tests import test as test
    from ddcore.program.several import delta_join as delta_join
    from ddcore.program.several import iterate as iterate
    from ddcore.program.several import rows as rows

_HOMES = {
    "Collection": "ddcore.program.collection",
    "Session": "ddcore.engine.session",
    "algorithms": "ddcore.algorithms",
    "all": "ddcore.operators.aggregates",
    "any": "ddcore.operators.aggregates",
    "col": "polars",
    "constant": "ddcore.program.constants",
    "count": "ddcore.operators.aggregates",
    "count_distinct": "ddcore.operators.aggregates",
    "delta_join": "ddcore.program.several",
    "errors": "ddcore.base.errors",
    "iterate": "ddcore.program.several",
    "max": "ddcore.operators.aggregates",
    "mean": "ddcore.operators.aggregates",
    "min": "ddcore.operators.aggregates",
    "open": "ddcore.io.reading.opened",
    "replay": "ddcore.engine.session",
    "rows": "ddcore.program.several",
    "sum": "ddcore.operators.aggregates",
    "test": "ddcore.program.data_tests",
}
# Without the names of Python's own functions: after ``from ddcore import *`` these still are Python's.
__all__ = [
    "Collection",
    "Session",
    "algorithms",
    "col",
    "constant",
    "count",
    "count_distinct",
    "delta_join",
    "errors",
    "iterate",
    "mean",
    "replay",
    "rows",
    "test",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddcore' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return getattr(home, name, home)  # a module is a name itself


def __dir__() -> list[str]:
    """What a program uses: the names above, and neither modules nor imports."""
    return [*_HOMES, "__version__"]
