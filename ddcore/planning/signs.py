"""Signs of counts: which collections of a program cannot have a row with a negative count, whatever the inputs hold.

An operator says what it does to signs. A loop's variable has no negative count if neither what the loop starts with nor
the body's results have one: by induction on the rounds, since round 0 is the source and every other the result before.
``negate`` makes counts negative; what is subtracted is harmless where each row of it is one of the rows that are there,
as in an anti-join: ``rows.concat(rows.join(keys.distinct(), on).negate())``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ddcore.operators.aggregation import Distinct
from ddcore.operators.borders import Input, Variable
from ddcore.operators.concat import Concat, Negate
from ddcore.operators.join import Join
from ddcore.operators.select import Select
from ddcore.operators.where import Where
from ddcore.program.graph import Graph, Node


def nonnegative(graph: Graph, nodes: Iterable[int], *, inputs: bool) -> frozenset[int]:
    """The nodes whose counts are never negative; with ``inputs`` those of the inputs are not. O(nodes x nested loops).

    All are taken for such at first, and those that cannot be are taken out until nothing changes.
    """
    left = {*nodes}
    order = sorted(left)
    before = None
    while before != len(left):
        before = len(left)
        for index in order:
            if index in left and not _keeps(graph, index, left, inputs=inputs):
                left.remove(index)
    return frozenset(left)


def _keeps(graph: Graph, index: int, left: set[int], *, inputs: bool) -> bool:
    """Whether a node's counts are not negative if those of the nodes in ``left`` are not."""
    node = graph.nodes[index]
    if isinstance(node.operator, Input):
        return inputs
    before = [*node.inputs]
    if isinstance(node.operator, Variable):
        before.append(graph.scopes[node.operator.loop].results[node.operator.number])
    if node.operator.signs == "kept":
        return left.issuperset(before) or (isinstance(node.operator, Concat) and _is_covered(graph, node, left))
    return node.operator.signs == "positive"


def _is_covered(graph: Graph, node: Node, left: set[int]) -> bool:
    """Whether all that a concatenation subtracts is in what it adds: of each added input at most one is subtracted."""
    added = [index for index in node.inputs if index in left]
    taken = [graph.nodes[index] for index in node.inputs if index not in left]
    for negation in taken:
        if not isinstance(negation.operator, Negate):
            return False
        whole = next((index for index in added if _is_part(graph, negation.inputs[0], index)), None)
        if whole is None:
            return False
        added.remove(whole)
    return True


def _is_part(graph: Graph, part: int, whole: int) -> bool:
    """Whether each row occurs in ``part`` at most as often as in ``whole``, whose counts are not negative: by the
    operators between them, which filter, find at most one partner, or change columns that ``whole`` does not have.
    """
    columns = graph.nodes[whole].schema
    while part != whole:
        node = graph.nodes[part]
        if isinstance(node.operator, Select):
            carried = node.operator.carried
            passes = all(carried.get(name) == name for name in columns)
        else:
            passes = isinstance(node.operator, Where | Distinct) or _is_semi(graph, node)
        if not passes:
            return False
        part = node.inputs[0]
    return True


def _is_semi(graph: Graph, node: Node) -> bool:
    """Whether a node is a join that finds at most one partner for each row, once."""
    if not isinstance(node.operator, Join):
        return False
    keys = graph.nodes[node.inputs[1]]
    return isinstance(keys.operator, Distinct) and {*node.operator.right} == {*keys.schema}
