"""Terms: the nodes of an expression with their types and bounds, from which exact arithmetic is made."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from ddcore.expressions.syntax import Tree

Interval = tuple[int, int]
"""The least and the greatest value of an integer."""


@dataclass(slots=True)
class Term:
    """A node with its type. ``op`` is what it does to integers, or empty where it does no integer arithmetic.

    ``interval`` bounds the values of an integer that is not computed by ``op``; a column's comes with the batch.
    """

    tree: Tree
    dtype: pl.DataType
    op: str = ""
    parts: list[Term] = field(default_factory=list)
    interval: Interval | None = None
    computes: bool = False

    @property
    def is_int(self) -> bool:
        """Whether the values are integers (a bare null counts as one)."""
        return self.dtype.is_integer() or self.dtype == pl.Null()
