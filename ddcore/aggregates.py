"""The aggregates of ``group_by(keys).agg(...)``.

An :class:`Aggregate` only names the aggregate and its expression; ``reference.py`` defines the meaning and the worker
computes it. Nulls are skipped by ``sum``, ``min`` and ``max``; a group without rows is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from ddcore.expressions import parse

__all__ = ["Aggregate", "count", "max", "min", "sum"]


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One aggregate: ``kind`` is count, sum, min or max; ``expr`` is its argument (None for count)."""

    kind: str
    expr: pl.Expr | None = None


def count() -> Aggregate:
    """The number of rows of the group, each as often as it occurs (int64). Never 0: an empty group is absent."""
    return Aggregate("count")


def sum(expr: Any) -> Aggregate:
    """The exact sum of ``expr``, 0 where all are null.

    int64 stays int64, decimal(p, s) becomes decimal(18, s), and a sum that those cannot hold is an error; float64 is
    the exact sum rounded once, whatever the order of the rows. A bare string is a column.
    """
    return Aggregate("sum", parse(expr, bare_string="column"))


def min(expr: Any) -> Aggregate:
    """The least value of ``expr``, null where all are null. NaN is greater than every number.

    A bare string is a column.
    """
    return Aggregate("min", parse(expr, bare_string="column"))


def max(expr: Any) -> Aggregate:
    """The greatest value of ``expr``, null where all are null. NaN is greater than every number.

    A bare string is a column.
    """
    return Aggregate("max", parse(expr, bare_string="column"))
