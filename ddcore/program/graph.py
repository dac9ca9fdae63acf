"""The dataflow of a program while it is built: a list of nodes, and the scopes of its loops.

Nodes are interned: two equal calls on the same collections give one node. So equal parts of a
program, and later their arrangements, are shared without the user naming them. A node's inputs come before it in the
list, except that a loop's variable also reads the loop's result, which its scope names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ddcore.base.digests import Part, digest
from ddcore.base.errors import ProgramError
from ddcore.base.schema import Schema, Type, shape
from ddcore.base.source_line import caller
from ddcore.base.statistics import Statistics
from ddcore.operators.base import Keyed, Needs, Operator
from ddcore.operators.borders import Input, Inspect, Leave, Variable
from ddcore.operators.priority import Priority

_Part = tuple[int, frozenset[str] | None]  # some columns of a node's collection; None: the collection


@dataclass(frozen=True, slots=True)
class Node:
    """One operator and the collection it produces.

    ``inputs`` and ``scope`` are indices into the graph's lists. ``source_line`` is ``file.py:line`` of the user's call.
    ``digest`` covers the operator, its schema and what it needs of its inputs, so it is the same with other columns
    there that nothing reads; inside a loop it does not cover what the loop feeds back (see :meth:`Graph.fingerprint`).
    """

    index: int
    operator: Operator
    inputs: tuple[int, ...]
    scope: int
    source_line: str
    digest: str

    @property
    def schema(self) -> Schema:
        """Columns of the collection."""
        return self.operator.schema


@dataclass(eq=False)
class Scope:
    """The inside of one loop; scope 0 is the program itself.

    ``depth`` counts the enclosing loops; ``variables`` and ``results`` are nodes, pairwise: W and R of each variable.
    After ``max_rounds`` the loop fails, or with ``returns`` returns its current R.
    ``text`` identifies the finished loop: the contents of its inner collections depend on all of it.
    """

    index: int
    parent: int
    depth: int
    name: str = ""
    max_rounds: int = 0
    returns: bool = False
    variables: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    closed: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """A call of ``inspect``: the name of the log, the node of the collection, and the user's place."""

    name: str
    node: int
    source_line: str


@dataclass
class Graph:
    """The nodes of a program under construction."""

    nodes: list[Node] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=lambda: [Scope(0, -1, 0)])
    open: list[int] = field(default_factory=lambda: [0])
    inspections: list[Inspection] = field(default_factory=list)
    again: dict[int, list[str]] = field(default_factory=dict)
    """Other places of the program at which an equal operator with state stands, by the node."""
    statistics: Mapping[str, Statistics] = field(default_factory=dict)
    """What is known of the inputs' rows, by name."""
    estimates: dict[int, Any] = field(default_factory=dict)
    """What :mod:`ddcore.program.estimates` knows of nodes so far."""
    _known: dict[tuple[int, str], int] = field(default_factory=dict)
    _digests: dict[_Part, str] = field(default_factory=dict)  # of some columns of a node
    _known_needs: dict[tuple[int, frozenset[str] | None], tuple[Operator, Needs | None]] = field(default_factory=dict)

    def add(self, operator: Operator, *inputs: int) -> int:
        """The node for this operator, new or existing. It lives in the innermost scope of its inputs.

        Raises ProgramError if an input belongs to a closed loop, and for a column without a name, because Polars would
        give it one in a frame.
        """
        if "" in operator.schema:
            raise ProgramError(
                f"{caller()}: {operator.name}: a column has no name", 'name it, for example with rename({"": "x"})'
            )
        scope = 0
        for number in inputs:
            self._require_open(number, operator.name)
            inner = self.nodes[number].scope
            scope = inner if self.encloses(scope, inner) else scope
        return self._intern(operator, inputs, scope)

    def append(self, operator: Operator, inputs: tuple[int, ...], owner: Node) -> int:
        """The node for a part of another node's operator, in the scope of that and with its place in the program; the
        other may be of another graph with the same scopes.
        """
        return self._intern(operator, inputs, owner.scope, owner.source_line)

    def inspect(self, name: str, node: int) -> None:
        """Record that the differences of a node's collection become a log. Raises ProgramError, as :meth:`add`, and if
        the collection has a column that the log needs for a loop coordinate.
        """
        self._require_open(node, "inspect")
        schema = self.nodes[node].schema
        for column in self._coordinates(node):
            if column in schema:
                raise ProgramError(
                    f"{caller()}: inspect: the collection has a column {column}, and its log has one for the loop",
                    f'rename it before, for example with rename({{"{column}": "{column}_"}})',
                )
        self.inspections.append(Inspection(name, node, caller()))

    def inspected(self, inspection: Inspection) -> int:
        """The node of an inspection's log. All loops must be closed.

        A collection outside of loops is its own log. Of equal collections the first is read: loops that are equal are
        computed once.
        """
        if self.nodes[inspection.node].scope == 0:
            return inspection.node
        contents = self.fingerprint(inspection.node)
        node = self._first[contents]
        schema = self.nodes[node].schema | dict.fromkeys(self._coordinates(node), Type("int64"))
        return self._intern(Inspect(schema, contents, self._priorities(node)), (node,), 0, inspection.source_line)

    @cached_property
    def _first(self) -> dict[str, int]:
        """The first of the nodes with equal contents, by fingerprint, once the program is complete."""
        return {self.fingerprint(node.index): node.index for node in reversed(self.nodes) if node.scope}

    def _coordinates(self, node: int) -> list[str]:
        """The columns for the coordinates of the loops around a node, outermost first: round, round_2, and so on."""
        names: list[str] = []
        for number, prioritized in enumerate(self._priorities(node), 1):
            suffix = f"_{number}" if number > 1 else ""
            names += [f"priority{suffix}"] if prioritized else []
            names.append(f"round{suffix}")
        return names

    def _priorities(self, node: int) -> tuple[bool, ...]:
        """Whether the loops around a node have priorities, outermost first."""
        loops = [self.scopes[loop].variables for loop in self.loops(self.nodes[node].scope)]
        operators = [[self.nodes[variable].operator for variable in variables] for variables in reversed(loops)]
        return tuple(
            any(isinstance(operator, Variable) and operator.priority for operator in group) for group in operators
        )

    def _require_open(self, number: int, where: str) -> None:
        """Raises ProgramError for a collection of a loop whose body has ended."""
        node = self.nodes[number]
        if self.scopes[node.scope].closed:
            raise ProgramError(
                f"{caller()}: {where} uses a collection of loop {self.scopes[node.scope].name} outside of it"
                f" (created at {node.source_line})",
                "return it from the loop's body: only the result of iterate leaves a loop",
            )

    def enter_loop(self, name: str, limit: tuple[int, bool], sources: Sequence[tuple[int, Priority | None]]) -> Scope:
        """Open the scope of a loop over these collections; its variables exist, its results do not yet.

        ``limit``: the greatest number of rounds, and whether the loop then returns its current result. Raises
        ProgramError if a source belongs to a closed loop.
        """
        for source, _ in sources:
            self._require_open(source, "iterate")
        parent = self.open[-1]
        scope = Scope(len(self.scopes), parent, self.scopes[parent].depth + 1, name, *limit)
        self.scopes.append(scope)
        for number, (source, priority) in enumerate(sources):
            text = digest(str(number), priority.text) if priority else str(number)
            variable = Variable(self.nodes[source].schema, text, scope.index, number, priority)
            scope.variables.append(self._intern(variable, (source,), scope.index))
        self.open.append(scope.index)
        return scope

    def leave_loop(self, scope: Scope, *results: int) -> list[int]:
        """Close a loop: ``results`` are the body's, one per variable. Returns the loop's results outside of it.

        Raises ProgramError if a result belongs to a closed loop.
        """
        for result in results:
            self._require_open(result, "the body of iterate")
        scope.results, scope.closed = list(results), True
        scope.text = self.loop_text(scope)
        leaves = []
        for number, result in enumerate(results):
            leave = Leave(self.nodes[result].schema, digest(scope.text, str(number)), scope.index, number)
            leaves.append(self._intern(leave, (result,), scope.parent))
        return leaves

    def loop_text(self, scope: Scope) -> str:
        """What identifies a loop whose variables and results are known."""
        limit = [str(scope.max_rounds)] if scope.returns else []  # otherwise reaching it is an error: no result changes
        return digest([[self.nodes[node].digest for node in side] for side in (scope.variables, scope.results)], limit)

    def encloses(self, outer: int, inner: int) -> bool:
        """Whether scope ``inner`` is ``outer`` or lies inside it."""
        return outer == inner or outer in self.around(inner)

    def around(self, scope: int) -> Iterator[int]:
        """The enclosing scopes, innermost first; the program itself is the last."""
        while (scope := self.scopes[scope].parent) >= 0:
            yield scope

    def loops(self, scope: int) -> list[int]:
        """The scopes of the loops around what is in a scope, innermost first."""
        return [number for number in (scope, *self.around(scope)) if number]

    def upstream(self, nodes: Iterable[int]) -> set[int]:
        """The nodes that some depend on, and they themselves; a collection inside of loops depends on all that these
        feed back.
        """
        visited, entered = set[int](), set[int]()
        waiting = list(nodes)
        while waiting:
            index = waiting.pop()
            if index in visited:
                continue
            visited.add(index)
            node = self.nodes[index]
            waiting += node.inputs
            loops = {*self.loops(node.scope)}  # an inspected loop may lie in others that nothing else needs
            if isinstance(node.operator, Variable | Leave):
                loops.add(node.operator.loop)
            for loop in loops - entered:
                entered.add(loop)
                waiting += [*self.scopes[loop].variables, *self.scopes[loop].results]
        return visited

    def fingerprint(self, node: int, *more: Part) -> str:
        """A name for the contents of a node's collection, the same in every program; it covers the enclosing loops.

        ``more`` identifies something derived from it.
        """
        loops = [self.scopes[loop].text for loop in self.loops(self.nodes[node].scope)]
        return digest(self.nodes[node].digest, loops, more)[:32]

    def max_rounds(self, scope: int) -> int:
        """The greatest limit of the loops that are equal to this one: the limit of a loop is no part of its digest."""
        return max(other.max_rounds for other in self.scopes if self._name(other) == self._name(self.scopes[scope]))

    def _name(self, scope: Scope) -> list[str]:
        return [self.scopes[loop].text for loop in self.loops(scope.index)]

    def _intern(self, operator: Operator, inputs: tuple[int, ...], scope: int, source_line: str = "") -> int:
        """The existing equal node in the same scope, or a new one."""
        self._find_digests(self._before(operator, inputs, None))
        name = self._digest(operator, inputs, scope, None)
        known = name
        if (needs := self._needs(operator, None)) is not None and not needs[0]:
            known = digest(
                name, operator.name, list(map(str, inputs))
            )  # a step of the program, though its input is equal
        index = self._known.get((scope, known))
        if index is None:
            index = self._known[scope, known] = len(self.nodes)
            self.nodes.append(Node(index, operator, inputs, scope, source_line or caller(), name))
            self._digests[index, None] = name
        elif isinstance(operator, Keyed):
            self.note_line(index, source_line or caller())
        return index

    def note_line(self, index: int, source_line: str) -> None:
        """Keep one more place of a node."""
        source_lines = self.again.get(index, [])
        if source_line != self.nodes[index].source_line and source_line not in source_lines:
            self.again[index] = [*source_lines, source_line]

    def _needs(self, operator: Operator, columns: frozenset[str] | None) -> Needs | None:
        """What of its inputs an operator's result depends on; None: on all of them."""
        if isinstance(operator, Input):
            return operator.text_of(operator.schema if columns is None else columns), []
        known = id(operator), columns
        if known not in self._known_needs:
            needs = operator.needs(frozenset(operator.schema) if columns is None else columns)
            self._known_needs[known] = operator, needs  # which keeps the operator, and so its identity
        return self._known_needs[known][1]

    def _before(self, operator: Operator, inputs: tuple[int, ...], columns: frozenset[str] | None) -> list[_Part]:
        """The parts of inputs of which these columns of an operator's result are computed."""
        if isinstance(operator, Input | Leave):
            return []
        needs = self._needs(operator, columns)
        if needs is None:
            return [(number, None) for number in inputs]
        columns_needed = [*needs[1]] * len(inputs) if len(needs[1]) == 1 else needs[1]
        return list(zip(inputs, columns_needed, strict=True))

    def _digest(self, operator: Operator, inputs: tuple[int, ...], scope: int, columns: frozenset[str] | None) -> str:
        """The digest of some columns of an operator's result, in no order; None: of the result.

        It covers the types of columns. So it does not cover those that it does not depend on, wherever they are.
        """
        before = [self._digests[part] for part in self._before(operator, inputs, columns)]
        needs, depth, schema = self._needs(operator, columns), str(self.scopes[scope].depth), operator.schema
        if needs is None:
            return digest(operator.name, operator.text, shape(schema), depth, before)
        names = sorted(schema if columns is None else columns)
        whole = digest(operator.name, needs[0], shape({name: schema[name] for name in names}), depth, before)
        if not needs[0]:
            (whole,) = before
        return whole if columns is not None else digest("in order", shape(schema), whole)

    def _find_digests(self, parts: Iterable[_Part]) -> None:
        """Compute the digests of parts, and of all that these depend on."""
        waiting = list(parts)
        while waiting:
            part = waiting[-1]
            index, columns = part
            node = self.nodes[index]
            if part in self._digests:
                waiting.pop()
            elif columns is not None and self._needs(node.operator, columns) is None:
                self._digests[part] = node.digest
            elif missing := [p for p in self._before(node.operator, node.inputs, columns) if p not in self._digests]:
                waiting += missing
            else:
                self._digests[part] = self._digest(node.operator, node.inputs, node.scope, columns)
