"""How many rows collections have, estimated from the statistics of inputs, by the operators between them.

The rules are those of System R (sources: Selinger 1979): values are spread evenly, conditions do not depend on each
other, and of two sets of keys the smaller is a part of the larger. Estimates order joins and decide nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ddcore.operators.aggregation import Aggregation, Distinct
from ddcore.operators.base import Operator
from ddcore.operators.borders import Input
from ddcore.operators.clock import Clock
from ddcore.operators.concat import Concat, Negate
from ddcore.operators.constant import Constant
from ddcore.operators.flat_map import Explode
from ddcore.operators.join import Join
from ddcore.operators.reduction import Reduction
from ddcore.operators.select import Select
from ddcore.operators.where import Where
from ddcore.program.graph import Graph, Node
from ddcore.program.linear import LinearCollection

__all__ = ["FILTERED", "Estimate", "estimate_of"]

FILTERED = 1 / 3
"""The part of the rows that meets a condition of which nothing is known."""


@dataclass(frozen=True)
class Estimate:
    """The rows of a collection, at least one, and by column the distinct values, where they are known."""

    rows: float
    distinct: Mapping[str, float] = field(default_factory=dict)

    def values(self, columns: Iterable[str]) -> float:
        """The distinct values of some columns together: every row has its own where nothing else is known."""
        return min(self.rows, prod(self.distinct.get(column, self.rows) for column in columns))

    def filtered(self, part: float = FILTERED) -> Estimate:
        """The rows of which a condition keeps a part."""
        return Estimate(max(1.0, self.rows * part), self.distinct)

    def joined(self, other: Estimate, left: Collection[str], right: Collection[str]) -> Estimate:
        """Both, joined where these columns are equal; without any, all pairs. Their columns have different names.

        Of several columns the values together are known from above only, as columns of one row go together: so the
        smaller number is taken, and too many rows are expected rather than too few.
        """
        values = self.values(left), other.values(right)
        pairs = (max(values) if len(left) == 1 else min(values)) if left else 1.0
        return Estimate(max(1.0, self.rows * other.rows / pairs), {**self.distinct, **other.distinct})


def estimate_of(rows: Any) -> Estimate | None:
    """The estimate of a collection; None where statistics are missing, and of one that is no node of a dataflow."""
    if not isinstance(rows, LinearCollection) or not rows._graph.statistics:
        return None
    return _estimated(rows._graph, rows._index)


def _estimated(graph: Graph, index: int) -> Estimate | None:
    """The estimate of a node's collection; None where the statistics of an input are missing. O(nodes), once."""
    known = graph.estimates
    waiting = [index]
    while waiting:
        node = graph.nodes[waiting[-1]]
        missing = [number for number in node.inputs if number not in known]
        if missing and node.index not in known:
            waiting += missing
            continue
        waiting.pop()
        if node.index not in known:
            inputs = [known[number] for number in node.inputs]
            known[node.index] = _of(graph, node, [estimate for estimate in inputs if estimate is not None], len(inputs))
    found: Estimate | None = known[index]
    return found


def _of(graph: Graph, node: Node, inputs: list[Estimate], number: int) -> Estimate | None:
    """Of a node by those of its inputs that are known, of ``number``."""
    operator = node.operator
    if isinstance(operator, Input):
        known = graph.statistics.get(operator.text)
        return Estimate(max(1.0, known.rows), known.distinct) if known is not None else None
    if isinstance(operator, Constant | Clock):
        return Estimate(max(1.0, len(operator.rows)) if isinstance(operator, Constant) else 1.0)
    return _computed(operator, inputs) if inputs and len(inputs) == number else None


def _computed(operator: Operator, inputs: list[Estimate]) -> Estimate:
    result = inputs[0]
    match operator:
        case Where():
            result = result.filtered()
        case Select():
            carried = operator.carried.items()
            result = Estimate(
                result.rows, {new: result.distinct[old] for new, old in carried if old in result.distinct}
            )
        case Join():
            result = _joined(operator, *inputs)
        case Concat():
            result = Estimate(sum(estimate.rows for estimate in inputs), result.distinct)
        case Distinct():
            result = Estimate(result.values(operator.schema), result.distinct)
        case Aggregation():
            result = Estimate(result.values(operator.group) if operator.group else 1.0, result.distinct)
        case Negate() | Explode() | Reduction():
            pass
        case _:
            result = max(inputs, key=lambda estimate: estimate.rows)
    return result


def _joined(join: Join, left: Estimate, right: Estimate) -> Estimate:
    distinct = {result: right.distinct[name] for name, result in join.right_names.items() if name in right.distinct}
    return Estimate(left.joined(right, join.left, join.right).rows, {**left.distinct, **distinct})
