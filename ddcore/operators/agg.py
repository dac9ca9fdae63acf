"""``agg``: built-in aggregates of groups, from totals where these suffice, and from partial results of large groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcore.base.schema import Schema
from ddcore.operators import totals
from ddcore.operators.partial import TreeAggregation
from ddcore.operators.reduction import ReductionStep

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block


@dataclass(frozen=True, eq=False)
class Agg(TreeAggregation):
    """The aggregation that programs name."""

    name = "agg"

    def totals(self, source: Schema, *, nonnegative: bool) -> totals.Totals | None:
        """The operators through which rows become totals; None where rows are needed."""
        return totals.totals_of(self, source, nonnegative=nonnegative)

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of an agg block."""
        arranged = plan.nodes[plan.arrangements[block.ports[port]].node].operator
        if arranged.name == "totals":
            return totals.TotalsStep(self, plan, block, port)
        return super().step_at(plan, block, port)
