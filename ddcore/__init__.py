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
    from ddcore.operators.gathering import array_agg as array_agg
    from ddcore.operators.gathering import bit_and as bit_and
    from ddcore.operators.gathering import bit_or as bit_or
    from ddcore.operators.gathering import bit_xor as bit_xor
    from ddcore.operators.gathering import corr as corr
    from ddcore.operators.gathering import covariance as covariance
    from ddcore.operators.gathering import max_by as max_by
    from ddcore.operators.gathering import median as median
    from ddcore.operators.gathering import min_by as min_by
    from ddcore.operators.gathering import mode as mode
    from ddcore.operators.gathering import quantile as quantile
    from ddcore.operators.gathering import regression as regression
    from ddcore.operators.gathering import stddev as stddev
    from ddcore.operators.gathering import string_agg as string_agg
    from ddcore.operators.gathering import variance as variance
    from ddcore.operators.window_functions import cume_dist as cume_dist
    from ddcore.operators.window_functions import dense_rank as dense_rank
    from ddcore.operators.window_functions import first_value as first_value
    from ddcore.operators.window_functions import lag as lag
    from ddcore.operators.window_functions import last_value as last_value
    from ddcore.operators.window_functions import lead as lead
    from ddcore.operators.window_functions import nth_value as nth_value
    from ddcore.operators.window_functions import ntile as ntile
    from ddcore.operators.window_functions import percent_rank as percent_rank
    from ddcore.operators.window_functions import rank as rank
    from ddcore.operators.window_functions import row_number as row_number
    from ddcore.program.collection import Collection as Collection
    from ddcore.program.constants import constant as constant
    from ddcore.program.constants import now as now
    from ddcore.program.data_tests import test as test
    from ddcore.program.several import delta_join as delta_join
    from ddcore.program.several import iterate as iterate
    from ddcore.program.several import rows as rows

_NAMES = {
    "ddcore.algorithms": "algorithms",
    "ddcore.base.errors": "errors",
    "ddcore.engine.session": "Session replay",
    "ddcore.io.reading.opened": "open",
    "ddcore.operators.aggregates": "all any count count_distinct max mean min sum",
    "ddcore.operators.gathering": (
        "array_agg bit_and bit_or bit_xor corr covariance max_by median min_by mode quantile regression "
        "stddev string_agg variance"
    ),
    "ddcore.operators.window_functions": (
        "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"
    ),
    "ddcore.program.collection": "Collection",
    "ddcore.program.constants": "constant now",
    "ddcore.program.data_tests": "test",
    "ddcore.program.several": "delta_join iterate rows",
    "polars": "col",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
# Without the names of Python's own functions: after ``from ddcore import *`` these still are Python's.
__all__ = [
    "Collection",
    "Session",
    "algorithms",
    "array_agg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "col",
    "constant",
    "corr",
    "count",
    "count_distinct",
    "covariance",
    "cume_dist",
    "delta_join",
    "dense_rank",
    "errors",
    "first_value",
    "iterate",
    "lag",
    "last_value",
    "lead",
    "max_by",
    "mean",
    "median",
    "min_by",
    "mode",
    "now",
    "nth_value",
    "ntile",
    "percent_rank",
    "quantile",
    "rank",
    "regression",
    "replay",
    "row_number",
    "rows",
    "stddev",
    "string_agg",
    "test",
    "variance",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddcore' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return getattr(home, name, home)  # a module is a name itself


def __dir__() -> list[str]:
    """What a program uses: the names above, and neither modules nor imports."""
    return [*_HOMES, "__version__"]
