"""Columns that nothing reads are dropped before a join arranges them.

A pass over the graph of a finished program, before it is planned. Which columns of its inputs an operator needs for
some columns of its result, it says itself (:meth:`~ddcore.operators.base.Operator.needs`): from the outputs backwards
this gives the columns of each collection that matter. A ``select`` of these is put before each input of a join that has
others, and what follows the join does without them.

Only operators through which a dropped column passes unread are narrowed. A row's count is then that of all rows that
were equal but for the column, which joins, filters and concatenation cannot tell apart. Everything that looks at whole
rows (``distinct``, ``reduce``, ``top_k``, functions, loops, outputs) needs all columns, so it sees the rows that it saw
before. Errors stay, too: expressions are computed even where nobody reads their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ddcore.base.digests import digest
from ddcore.operators import arguments
from ddcore.operators.base import Keyed, Operator
from ddcore.operators.borders import Input, Leave, Variable
from ddcore.operators.concat import Concat, Negate
from ddcore.operators.join import Join
from ddcore.operators.select import Select
from ddcore.operators.where import Where
from ddcore.program.graph import Graph, Inspection, Node, Scope

_Narrow = Where | Concat | Negate | Select | Join
_Port = tuple[int, tuple[str, ...]]  # a node and the key by which it is arranged


@dataclass(frozen=True)
class Pruned:
    """A graph without the columns that nothing reads, its nodes by those of the graph before, and what is read of each
    input, by its node there.
    """

    graph: Graph
    numbers: Mapping[int, int]
    read: Mapping[int, frozenset[str]]


def pruned(graph: Graph, outputs: Iterable[int]) -> Pruned:
    """What is left of a graph.

    ``outputs``: nodes of which all columns are needed, beside those that are inspected. All loops must be closed.
    """
    roots = [*outputs, *(inspection.node for inspection in graph.inspections)]
    needed, arranged = _needed(graph, roots)
    inputs = [node.index for node in graph.nodes if isinstance(node.operator, Input)]
    read = {index: frozenset(needed[index]) for index in inputs}
    if all(len(columns) == len(graph.nodes[node].schema) for (node, _), columns in arranged.items()):
        return Pruned(graph, {node.index: node.index for node in graph.nodes}, read)
    rebuilding = _Rebuilding(graph, {*graph.upstream(roots), *inputs}, arranged)
    return Pruned(rebuilding.graph, rebuilding.numbers, read)


def _needed(graph: Graph, roots: Iterable[int]) -> tuple[list[set[str]], dict[_Port, set[str]]]:
    """The columns of each node that matter, and those of each arrangement of a join's input: what one of its users
    needs.
    """
    needed: list[set[str]] = [set() for _ in graph.nodes]
    arranged: dict[_Port, set[str]] = {}
    upstream = graph.upstream(roots)
    for scope in graph.scopes:
        roots = [*roots, *scope.results]
    for index in roots:
        needed[index] |= {*graph.nodes[index].schema}
    for index in sorted(upstream, reverse=True):  # users come after what they use
        node = graph.nodes[index]
        needed[index] = needed[index] or {*[*node.schema][:1]}  # a row has a column, if the collection has one
        for number, columns in enumerate(_needs(graph, node, needed[index])):
            needed[node.inputs[number]] |= columns
            if isinstance(node.operator, Keyed):
                for position, key in node.operator.ports:
                    if position == number:
                        arranged.setdefault((node.inputs[number], key), set()).update(columns)
    return needed, arranged


def _needs(graph: Graph, node: Node, columns: set[str]) -> Sequence[frozenset[str]]:
    """The columns of each input that these columns of a node need, for it to be narrowed; else all columns."""
    operator = node.operator
    if isinstance(operator, _Narrow):
        needs = operator.needs(frozenset(columns) | _kept(operator))
        if needs is not None:
            return [*needs[1]] * len(node.inputs) if len(needs[1]) == 1 else needs[1]
    return [frozenset(graph.nodes[input_].schema) for input_ in node.inputs]


def _kept(operator: Operator) -> frozenset[str]:
    """The columns that a result has in any case: those that are computed, for the errors that this may raise."""
    return frozenset(operator.schema) - {*operator.carried} if isinstance(operator, Select) else frozenset()


class _Rebuilding:
    """Nodes of a graph in a new one. ``arranged``: the columns of each arrangement, where it is that of a join."""

    def __init__(self, old: Graph, kept: Iterable[int], arranged: Mapping[_Port, set[str]]) -> None:
        self._old, self._arranged, self.graph = old, arranged, Graph()
        self.numbers: dict[int, int] = {}
        self.graph.scopes = [replace(scope, variables=[], results=[], text="") for scope in old.scopes]
        for index in sorted(kept):
            self.numbers[index] = self._rebuilt(old.nodes[index])
            for source_line in old.again.get(index, ()):
                self.graph.note_line(self.numbers[index], source_line)
        texts = {}
        for scope, before in zip(self.graph.scopes[1:], old.scopes[1:], strict=True):
            if self.numbers.keys() >= {*before.results}:
                self._close(scope)
                texts[before.text] = scope.text
        for scope, before in zip(self.graph.scopes[1:], old.scopes[1:], strict=True):
            scope.text = scope.text or texts.get(before.text, before.text)  # of a loop that equals one which is used
        for inspection in old.inspections:
            self.graph.inspections.append(
                Inspection(inspection.name, self.numbers[inspection.node], inspection.source_line)
            )

    def _rebuilt(self, node: Node) -> int:
        operator, inputs = node.operator, tuple(self.numbers[input_] for input_ in node.inputs)
        if isinstance(operator, Leave):
            scope = self.graph.scopes[operator.loop]
            self._close(scope)
            operator = replace(operator, text=digest(scope.text, str(operator.number)))
        elif isinstance(operator, Join):
            inputs = tuple(
                self._selected(number, self._arranged.get((before, key), {*self._old.nodes[before].schema}), node)
                for number, before, (_, key) in zip(inputs, node.inputs, operator.ports, strict=True)
            )
            operator = operator.narrowed(*(self.graph.nodes[input_].schema for input_ in inputs))
        elif isinstance(operator, Concat):
            common = set.intersection(*({*self.graph.nodes[input_].schema} for input_ in inputs))
            inputs = tuple(self._selected(input_, common, node) for input_ in inputs)
            operator = replace(operator, schema=self.graph.nodes[inputs[0]].schema)
        elif isinstance(operator, Where | Negate):
            operator = replace(operator, schema=self.graph.nodes[inputs[0]].schema)
        elif isinstance(operator, Select):
            operator = operator.narrowed(self.graph.nodes[inputs[0]].schema)
        index = self.graph.append(operator, inputs, node)
        if isinstance(operator, Variable):
            self.graph.scopes[operator.loop].variables.append(index)
        return index

    def _selected(self, number: int, columns: Iterable[str], user: Node) -> int:
        """A node of the new graph with these columns only."""
        schema = self.graph.nodes[number].schema
        kept = [name for name in schema if name in columns]
        if len(kept) == len(schema):
            return number
        select = Select.of(schema, arguments.kept(kept))
        return self.graph.append(select, (number,), replace(user, scope=self.graph.nodes[number].scope))

    def _close(self, scope: Scope) -> None:
        if not scope.text:
            scope.results = [self.numbers[result] for result in self._old.scopes[scope.index].results]
            scope.text = self.graph.loop_text(scope)
