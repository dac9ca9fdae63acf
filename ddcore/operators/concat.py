"""``concat`` and ``negate``: multiplicities added, and turned to their opposites (sources: McSherry 2012, Concat)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ddcore.base.schema import Schema
from ddcore.operators.base import Keeping, Needs
from ddcore.traces.batch import Batch


class _Whole(Keeping):
    """Rows keep their columns, and all inputs need those that the result needs."""

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """For inputs of this schema."""
        return cls(schema, "")

    def needs(self, columns: frozenset[str]) -> Needs:
        """All inputs need the columns that the result needs."""
        return self.name, [columns]


@dataclass(frozen=True, eq=False)
class Concat(_Whole):
    """All rows of all inputs, whose columns have the same names, types and order; counts add up."""

    name = "concat"
    signs = "kept"

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """The batch as it is."""
        return batch


@dataclass(frozen=True, eq=False)
class Negate(_Whole):
    """Every row with its count negated."""

    name = "negate"

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """The batch with negated diffs."""
        return batch.negated()
