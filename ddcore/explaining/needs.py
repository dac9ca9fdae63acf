"""What an output's rows need of every collection: which of its rows they depend on, whatever the data are.

The operators are followed backwards from the output. If rows of an operator's result are named by the values of
columns, they depend on the rows of its inputs in which the columns that these come from have the same values: the
group's columns of a reduction, the key and the own columns of each side of a join, columns that linear operators
carry along. A loop's variable needs what the body's result needs: collections are gone through until nothing
is added. So an input may be replaced by what is needed of it, and the rows of the output, their counts, and all that
they rest on in every round stay what they are, for negation and functions too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddcore.explaining.restricting import NOTHING, Restriction, Values
from ddcore.graph import Graph
from ddcore.operators.base import Linear, Operator
from ddcore.operators.borders import Input, Leave, Variable
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.join import Join
from ddcore.operators.reduction import Reduction
from ddcore.schema import Schema

__all__ = ["Edge", "More", "Needs", "carried"]

Edge = tuple[int, int]
"""A node and the number of one of its inputs."""
More = Mapping[Edge, tuple[tuple[str, Values], ...]]
"""Columns of inputs of nodes, and the only values of them that matter."""


def carried(operator: Operator, number: int, source: Schema) -> Mapping[str, str]:
    """The columns of the result, by which a row depends only on rows of input ``number`` with the same value in a
    column: the name there by the name here. ``source``: the columns of that input.
    """
    match operator:
        case Linear():
            columns = operator.carried
        case Join() if number == 0:
            columns = {name: name for name in source}
        case Join():
            columns = {here: there for there, here in operator.right_names.items()}
            columns |= dict(zip(operator.left, operator.right, strict=True))
        case DeltaJoin():
            columns = {here: there for there, here in operator.relations[number].items()}
        case Reduction():
            columns = {name: name for name in operator.group}
        case Variable() | Leave():
            columns = {name: name for name in source}
        case _:
            columns = {}
    return {here: there for here, there in columns.items() if there in source}


class Needs:
    """What rows of the node ``end`` need of each node: ``rows``; nothing of those that are not in it.

    ``more``: what else is known of the rows of inputs of joins that matter. Cost: nodes times columns.
    """

    def __init__(self, graph: Graph, end: int, restriction: Restriction, more: More) -> None:
        self.graph, self.end, self.restriction, self.more = graph, end, restriction, more
        self.rows: dict[int, Restriction] = {end: restriction}
        waiting = [end]
        while waiting:
            index = waiting.pop()
            for source, needed in self._sources(index):
                before = self.rows.get(source, NOTHING)
                total = before | needed
                if total != before:
                    self.rows[source] = total
                    waiting.append(source)

    def edge(self, index: int, number: int) -> Restriction:
        """What a node needs of one of its inputs."""
        node = self.graph.nodes[index]
        source = self.graph.nodes[node.inputs[number]].schema
        columns = carried(node.operator, number, source)
        return self.rows.get(index, NOTHING).through(columns).narrowed(self.more.get((index, number), ()))

    @property
    def inputs(self) -> dict[str, Restriction]:
        """What is needed of each input of the program; those of which nothing is needed are left out."""
        operators = ((self.graph.nodes[index].operator, rows) for index, rows in self.rows.items())
        return {operator.text: rows for operator, rows in operators if isinstance(operator, Input)}

    def _sources(self, index: int) -> Iterator[tuple[int, Restriction]]:
        """The nodes that a node reads, and what it needs of each."""
        node = self.graph.nodes[index]
        for number, source in enumerate(node.inputs):
            yield source, self.edge(index, number)
        if isinstance(node.operator, Variable):
            yield self.graph.scopes[node.operator.loop].results[node.operator.number], self.rows[index]
