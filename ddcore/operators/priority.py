"""Priorities of a loop: which rows of its source enter first (sources: McSherry 2012, Prioritize).

A loop with priorities has times of (priority, round) in lexicographic order. Both are packed into the loop's one
coordinate, the priority above the round, so that the order of the integers is the order of the pairs: kernels and
lattice need no special case. What enters the loop without a priority is at coordinate 0, before every priority.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.data.encoding import NULL
from ddcore.expressions.canonical import canonical
from ddcore.expressions.projections import Projection
from ddcore.traces.batch import Batch
from ddcore.traces.frames import values_of

_ROUND_BITS = 32
_HALF = 2**29  # priorities are from -_HALF up to, but not including, _HALF


@dataclass(frozen=True, eq=False)
class Priority:
    """An integer of each row; rows with the least enter first. ``text`` names it, for fingerprints."""

    source: Schema
    projection: Projection
    text: str

    @classmethod
    def of(cls, expr: pl.Expr, source: Schema) -> Priority:
        """Raises ProgramError for an expression that is no int64 of the row."""
        projection = Projection({"priority": expr}, source)
        if str(projection.schema["priority"]) != "int64":
            raise ProgramError(
                f"priority is {projection.schema['priority']}, not int64", "give an integer, lower ones first"
            )
        return cls(source, projection, canonical(expr))

    def coordinates(self, batch: Batch, source_line: str) -> np.ndarray:
        """The loop coordinate at which each row enters: int64[n]; nulls enter first. Raises ExpressionError."""
        columns = [*self.projection.renames.values(), *(self.projection.columns or ())]
        values = self.projection.evaluate(values_of(batch, self.source, columns))["priority"]
        beyond = values.filter((values < -_HALF) | (values >= _HALF))
        if len(beyond):
            raise ExpressionError(
                f"{source_line}: the priority {beyond[0]} is not between {-_HALF} and {_HALF - 1}", "scale it down"
            )
        numbers = (values + (_HALF + 1)).fill_null(0).to_numpy()
        coordinates: np.ndarray = numbers.astype(np.int64) << _ROUND_BITS
        return coordinates


def round_of(coordinates: Any) -> Any:
    """The rounds of loop coordinates (an int or int64[n]), without priorities."""
    return coordinates & (2**_ROUND_BITS - 1)


def priority_of(coordinates: np.ndarray) -> np.ndarray:
    """The words of the priorities of loop coordinates, int64[n]; null for what entered without a priority."""
    numbers = coordinates >> _ROUND_BITS
    return np.where(numbers == 0, NULL, numbers - (_HALF + 1))
