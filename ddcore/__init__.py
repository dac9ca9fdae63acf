"""Differential dataflow over version histories, on Spark and Delta Lake.

Names are loaded when first used, so that importing the package, as every command does, costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polars import col as col

    from ddcore import algorithms as algorithms
    from ddcore.aggregates import all as all
    from ddcore.aggregates import any as any
    from ddcore.aggregates import count as count
    from ddcore.aggregates import count_distinct as count_distinct
    from ddcore.aggregates import max as max
    from ddcore.aggregates import mean as mean
    from ddcore.aggregates import min as min
    from ddcore.aggregates import sum as sum
    from ddcore.collection import Collection as Collection
    from ddcore.constants import constant as constant
    from ddcore.data_tests import test as test
    from ddcore.io.opened import open as open
    from ddcore.operators.delta_join import delta_join as delta_join
    from ddcore.operators.iterate import iterate as iterate
    from ddcore.operators.rows import rows as rows
    from ddcore.session import Session as Session
    from ddcore.session import replay as replay

__version__ = "0.1.0"

_HOMES = {
    "Collection": "ddcore.collection",
    "Session": "ddcore.session",
    "algorithms": "ddcore.algorithms",
    "all": "ddcore.aggregates",
    "any": "ddcore.aggregates",
    "col": "polars",
    "constant": "ddcore.constants",
    "count": "ddcore.aggregates",
    "count_distinct": "ddcore.aggregates",
    "delta_join": "ddcore.operators.delta_join",
    "iterate": "ddcore.operators.iterate",
    "max": "ddcore.aggregates",
    "mean": "ddcore.aggregates",
    "min": "ddcore.aggregates",
    "open": "ddcore.io.opened",
    "replay": "ddcore.session",
    "rows": "ddcore.operators.rows",
    "sum": "ddcore.aggregates",
    "test": "ddcore.data_tests",
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
    return home if _HOMES[name] == f"ddcore.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    """What a program uses: the names above, and neither modules nor imports."""
    return [*_HOMES, "__version__"]
