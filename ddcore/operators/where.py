"""``where``: the rows that meet a condition (the patent's Where)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddcore.batch import Batch
from ddcore.expressions import Predicate
from ddcore.frames import values_of
from ddcore.operators.base import Linear

__all__ = ["Where"]


@dataclass(frozen=True, eq=False)
class Where(Linear):
    """The rows for which a predicate is true; null is not true."""

    name = "where"
    predicate: Predicate

    def apply(self, batch: Batch, place: str) -> Batch:
        """Raises ExpressionError."""
        mask = self.predicate.evaluate(values_of(batch, self.schema, self.predicate.columns))
        return batch.take(np.flatnonzero(mask))
