"""The dataflow of a program while it is built: a list of nodes, and the scopes of its loops.

Nodes are interned: two equal calls on the same collections give one node. So equal parts of a
program, and later their arrangements, are shared without the user naming them. A node's inputs come before it in the
list, except that a loop's variable also reads the loop's result, which its scope names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddcore.digests import Part, digest
from ddcore.errors import ProgramError
from ddcore.operators.base import Operator
from ddcore.operators.borders import Leave, Variable
from ddcore.operators.priority import Priority
from ddcore.place import caller
from ddcore.schema import Schema

__all__ = ["Graph", "Node", "Scope", "shape"]


@dataclass(frozen=True, slots=True)
class Node:
    """One operator and the collection it produces.

    ``inputs`` and ``scope`` are indices into the graph's lists. ``place`` is ``file.py:line`` of the user's call.
    ``digest`` covers the operator, its schema and its inputs; inside a loop it does not cover what the loop feeds back
    (see :meth:`Graph.fingerprint`).
    """

    index: int
    operator: Operator
    inputs: tuple[int, ...]
    scope: int
    place: str
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


@dataclass
class Graph:
    """The nodes of a program under construction."""

    nodes: list[Node] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=lambda: [Scope(0, -1, 0)])
    open: list[int] = field(default_factory=lambda: [0])
    _known: dict[tuple[int, str], int] = field(default_factory=dict)

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

    def _require_open(self, number: int, where: str) -> None:
        """Raises ProgramError for a collection of a loop whose body has ended."""
        node = self.nodes[number]
        if self.scopes[node.scope].closed:
            raise ProgramError(
                f"{caller()}: {where} uses a collection of loop {self.scopes[node.scope].name} outside of it"
                f" (created at {node.place})",
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
        limit = [str(scope.max_rounds)] if scope.returns else []  # otherwise reaching it is an error: no result changes
        ends = [[self.nodes[node].digest for node in side] for side in (scope.variables, results)]
        scope.text = digest(ends, limit)
        leaves = []
        for number, result in enumerate(results):
            leave = Leave(self.nodes[result].schema, digest(scope.text, str(number)), scope.index, number)
            leaves.append(self._intern(leave, (result,), scope.parent))
        return leaves

    def encloses(self, outer: int, inner: int) -> bool:
        """Whether scope ``inner`` is ``outer`` or lies inside it."""
        return outer == inner or outer in self.around(inner)

    def around(self, scope: int) -> Iterator[int]:
        """The enclosing scopes, innermost first; the program itself is the last."""
        while (scope := self.scopes[scope].parent) >= 0:
            yield scope

    def fingerprint(self, node: int, *more: Part) -> str:
        """A name for the contents of a node's collection, the same in every program; it covers the enclosing loops.

        ``more`` identifies something derived from it.
        """
        scope = self.nodes[node].scope
        loops = [self.scopes[each].text for each in (scope, *self.around(scope)) if each]
        return digest(self.nodes[node].digest, loops, more)[:32]

    def max_rounds(self, scope: int) -> int:
        """The greatest limit of the loops that are equal to this one: the limit of a loop is no part of its digest."""
        return max(each.max_rounds for each in self.scopes if self._name(each) == self._name(self.scopes[scope]))

    def _name(self, scope: Scope) -> list[str]:
        return [self.scopes[each].text for each in (scope.index, *self.around(scope.index)) if each]

    def _intern(self, operator: Operator, inputs: tuple[int, ...], scope: int) -> int:
        """The existing equal node in the same scope, or a new one."""
        depth = str(self.scopes[scope].depth)
        before = [] if isinstance(operator, Leave) else [self.nodes[number].digest for number in inputs]
        name = digest(operator.name, operator.text, shape(operator.schema), depth, before)
        index = self._known.get((scope, name))
        if index is None:
            index = self._known[scope, name] = len(self.nodes)
            self.nodes.append(Node(index, operator, inputs, scope, caller(), name))
        return index


def shape(schema: Schema) -> Part:
    """A schema as parts of a digest: names and types, in order."""
    return [[name, str(kind)] for name, kind in schema.items()]
