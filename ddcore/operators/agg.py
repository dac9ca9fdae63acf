"""``agg``: built-in aggregates of groups, from totals where these suffice, and from partial results of large groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcore.base.schema import Schema
from ddcore.operators import partial, totals
from ddcore.operators.aggregation import Aggregation, AggregationStep
from ddcore.operators.base import Step
from ddcore.operators.reduction import Tree

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block

__all__ = ["Agg"]


@dataclass(frozen=True, eq=False)
class Agg(Aggregation):
    """The aggregation that programs name."""

    name = "agg"

    def tree(self, source: Schema) -> Tree | None:
        """Partial aggregates."""
        return partial.tree(self, source)

    def totals(self, source: Schema, *, nonnegative: bool) -> totals.Totals | None:
        """The operators through which rows become totals; None where rows are needed."""
        return totals.totals_of(self, source, nonnegative=nonnegative)

    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of an agg block."""
        arranged = plan.nodes[plan.arrangements[block.ports[0]].node].operator
        if arranged.name == "totals":
            return totals.TotalsStep(self, plan, block)
        step = AggregationStep(self, plan, block)
        if len(block.ports) > 1:
            step.of_large = AggregationStep(self._root(plan, block), plan, block, 1)
        return step

    def _root(self, plan: Dataflow, block: Block) -> Aggregation:
        """The aggregation of the partial results of large groups."""
        tree = self.tree(plan.arrangements[block.ports[0]].collection)
        assert tree is not None and isinstance(tree.root, Aggregation)
        return tree.root
