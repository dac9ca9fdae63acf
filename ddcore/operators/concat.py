"""``concat`` and ``negate``: multiplicities added, and turned to their opposites (the patent's Concat)."""

from __future__ import annotations

from dataclasses import dataclass

from ddcore.batch import Batch
from ddcore.operators.base import Linear

__all__ = ["Concat", "Negate"]


@dataclass(frozen=True, eq=False)
class Concat(Linear):
    """All rows of all inputs, whose columns have the same names, types and order; counts add up."""

    name = "concat"

    def apply(self, batch: Batch, place: str) -> Batch:
        """The batch as it is."""
        return batch


@dataclass(frozen=True, eq=False)
class Negate(Linear):
    """The same rows with negated counts."""

    name = "negate"

    def apply(self, batch: Batch, place: str) -> Batch:
        """The batch with negated diffs."""
        return batch.negated()
