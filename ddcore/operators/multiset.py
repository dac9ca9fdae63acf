"""``union``, ``intersect`` and ``except_``: the greater, the lesser and the difference of two counts, row by row.

Both inputs go into one arrangement by the whole row, with their side as the only value (sources: McSherry 2012,
Union, Intersect and Except, on multisets).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcore.base.digests import digest
from ddcore.base.errors import DiffOverflow
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.operators import arguments
from ddcore.operators.evaluations import Evaluations, Targets
from ddcore.operators.reduction import Reduction, ReductionStep
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block

SIDE = "_side"
"""The column that distinguishes the inputs: 0 and 1."""

_COUNTS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "union": lambda left, right: np.where(left > right, left, right),
    "intersect": lambda left, right: np.where(left < right, left, right),
    "except_": lambda left, right: np.where(left > right, left - right, 0),
}


@dataclass(frozen=True, eq=False)
class Multiset(Reduction):
    """Rows with a count computed from their counts on both sides; ``operation`` is union, intersect or except_."""

    name = "multiset"
    signs = "kept"
    operation: str

    @classmethod
    def of(cls, schema: Schema, operation: str, allow_negative: bool) -> Multiset:
        """For two inputs of this schema, concatenated with the column ``_side``."""
        negative = arguments.flag(allow_negative, f"{operation}: allow_negative")
        return cls(schema, digest(operation, str(negative)), tuple(schema), negative, operation)

    @property
    def label(self) -> str:
        """The operation."""
        return self.operation

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of a multiset block."""
        return _MultisetStep(self, plan, block, port)


class _MultisetStep(ReductionStep):
    def __init__(self, multiset: Multiset, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(multiset, plan, block, port)
        self.operation, self.counts = multiset.operation, _COUNTS[multiset.operation]

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """No words: the row is the key. Each evaluation has one row of a side at most."""
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        distinct, positions = np.unique(evals, return_inverse=True)
        sides = np.zeros((2, len(distinct)), dtype=np.int64)
        sides[history.words[0, rows], positions] = counts
        results = self.counts(sides[0], sides[1])
        wrapped = np.flatnonzero(results < 0)
        if self.operation == "except_" and len(
            wrapped
        ):  # the difference of counts of which one is negative may leave int64
            number = int(distinct[wrapped[0]])
            where = self._where(np.array([evaluations.key_of()[number], number]), evaluations, loops)
            raise DiffOverflow(f"{where}: {self.quantity} is more than int64 holds")
        present = np.flatnonzero(results)
        return Targets(distinct[present], np.empty((0, len(present)), dtype=np.int64), results[present])
