"""Planning: a program is called once, and its result becomes a plan.

Nodes are visited in the order in which the program created them, inputs before users, and blocks are ranked in that
order. A loop is ranked in the enclosing scope at the node that leaves it: all nodes of outer scopes that its body uses,
and their arrangements, come before.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Collection as Group
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

from ddcore.base.digests import digest
from ddcore.base.errors import ProgramError
from ddcore.base.instants import NOW
from ddcore.base.schema import Schema, check_names, parse_schema
from ddcore.base.statistics import Statistics
from ddcore.operators import aggregates
from ddcore.operators.agg import Agg
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Keyed, Linear, Operator
from ddcore.operators.block import Block
from ddcore.operators.borders import Input, Leave, Variable
from ddcore.operators.clock import Clock
from ddcore.operators.constant import Constant
from ddcore.operators.ends import Ends
from ddcore.operators.reduction import Reduction
from ddcore.operators.tree import Tree
from ddcore.planning import signs
from ddcore.planning.plan import Loop, Plan, Target
from ddcore.planning.pruning import pruned
from ddcore.program.collection import Collection
from ddcore.program.constants import making
from ddcore.program.graph import Graph, Node
from ddcore.text.wording import kind_of

Program = Callable[..., Mapping[str, Collection]]

_NOT_IN_FOLDERS = set('/\\%:?*"<>|')  # characters with a special meaning in some file systems or in table addresses
_TO_NODES = ("linear", "spread", "leave")
_LONGEST_NAME = 200  # bytes; file systems allow 255


def build(
    program: Program,
    schemas: Mapping[str, Mapping[str, Any]],
    dims: tuple[str, ...] = ("version",),
    *,
    nonnegative: bool = False,
    origins: Mapping[str, Mapping[str, str]] | None = None,
    only: Group[str] | None = None,
    statistics: Mapping[str, Statistics] | None = None,
) -> Plan:
    """Call the program once with symbolic collections and plan what it returns.

    ``nonnegative``: at no time has a row of an input a negative count. ``origins``: by input, what tells columns from
    those of the same name and type that held other values before. ``only``: the plan of these outputs alone, with the
    arrangements that it has in the plan of all of them. ``statistics``: of inputs, by name; joins of SQL are ordered by
    them.

    Raises ProgramError: parameters that are no inputs, anything the operators refuse, a result that is no dict of
    collections.
    """
    graph = Graph(statistics=statistics or {})
    inputs = {name: parse_schema(schema) for name, schema in schemas.items()}
    for schema in inputs.values():
        check_names(schema, dims)
    past = origins or {}
    sources = {name: graph.add(Input(schema, name, past.get(name, {}))) for name, schema in inputs.items()}
    _check_parameters(program, inputs)

    def now() -> Collection:
        instants = Collection(graph, graph.add(Clock.of()))
        return instants if len(dims) == 1 else instants.group_by().agg(now=aggregates.max(NOW))

    with making(lambda rows: Collection(graph, graph.add(Constant.of(rows))), now):
        returned = program(**{name: Collection(graph, node) for name, node in sources.items()})
    outputs = _check_outputs(returned, graph, dims)
    left = pruned(graph, outputs.values())
    read = {name: left.read[node] for name, node in sources.items()}
    outputs, sources = ({name: left.numbers[node] for name, node in nodes.items()} for nodes in (outputs, sources))
    outputs |= _inspections(left.graph, dims, outputs)
    if only is not None:
        outputs = {name: node for name, node in outputs.items() if name in only}
    return replace(_Planner(left.graph, dims, inputs, sources, outputs, nonnegative=nonnegative).plan(), read=read)


@dataclass
class _Draft:
    """A block under construction; its place is final when all blocks of its scope are ranked."""

    index: int
    op: str
    node: int
    scope: int
    rank: int
    owned: list[int] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    output: int | None = None
    spread: int | None = None


class _Planner:
    def __init__(
        self,
        graph: Graph,
        dims: tuple[str, ...],
        inputs: Mapping[str, Schema],
        sources: Mapping[str, int],
        outputs: Mapping[str, int],
        *,
        nonnegative: bool,
    ) -> None:
        self.graph, self.dims, self.inputs, self.sources, self.outputs = graph, dims, inputs, sources, outputs
        self.needed = sorted({*graph.upstream(outputs.values()), *sources.values()})
        self.nonnegative = signs.nonnegative(graph, self.needed, inputs=nonnegative)
        self.targets: dict[int, list[Target]] = {node: [] for node in self.needed}
        self.drafts: list[_Draft] = []
        self.arrangements: list[Arrangement] = []
        self.listeners: list[list[int]] = []  # by arrangement
        self._indices: dict[tuple[int, str, tuple[str, ...], Ends | None], int] = {}  # by scope, contents, key and ends
        self._ranks: dict[int, int] = {}  # the next rank, by scope
        self._loop_ranks: dict[int, int] = {}  # of a loop in the scope around it, by its scope
        self._borders: dict[int, list[int]] = {}  # by scope

    def plan(self) -> Plan:
        for node in tuple(self.needed):
            self._visit(node)
        for scope in sorted(self._borders.keys() - self._loop_ranks.keys()):  # loops that are only inspected
            self._loop_ranks[scope] = self._rank(self.graph.scopes[scope].parent)
        for name, node in self.outputs.items():
            self._output(name, node)
        graph, number = self.graph, {node: index for index, node in enumerate(self.needed)}
        nodes = [self._renumber(graph.nodes[node], number) for node in self.needed]
        ends = [[name, graph.fingerprint(node)] for name, node in sorted(self.outputs.items())]
        stored = sorted(arrangement.fingerprint for arrangement in self.arrangements if not arrangement.transient)
        return Plan(
            self.dims,
            dict(self.inputs),
            {name: dict(graph.nodes[node].schema) for name, node in self.outputs.items()},
            {name: number[node] for name, node in self.sources.items()},
            tuple(nodes),
            tuple(graph.scopes[node.scope].depth for node in nodes),
            tuple(tuple(self._target(target, number) for target in self.targets[node]) for node in self.needed),
            {scope: self._loop(scope, number) for scope in self._borders},
            tuple(self._block(draft, number) for draft in self.drafts),
            tuple(
                replace(arrangement, node=number[arrangement.node], listeners=tuple(self.listeners[arrangement.index]))
                for arrangement in self.arrangements
            ),
            digest(self.dims, sorted(self.inputs), ends, stored)[:32],
            again={number[node]: tuple(lines) for node, lines in graph.again.items() if node in number},
        )

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _visit(self, index: int) -> None:
        node = self.graph.nodes[index]
        operator = node.operator
        if isinstance(operator, Linear):
            for before in node.inputs:  # once per use: x.concat(x) counts everything twice
                self.targets[before].append(Target("linear", index))
        elif isinstance(operator, Keyed):
            self._keyed(index, node, operator)
        elif isinstance(operator, Variable):
            self._variable(index, node, operator)
        elif isinstance(operator, Leave):
            if operator.loop not in self._loop_ranks:
                self._loop_ranks[operator.loop] = self._rank(node.scope)
            self.targets[node.inputs[0]].append(Target("leave", index))

    def _keyed(self, index: int, node: Node, operator: Keyed) -> None:
        tree, inputs = None, self._totals(node, operator)
        if isinstance(operator, Reduction) and not operator.in_tree and inputs == node.inputs:
            tree = operator.tree(self.graph.nodes[node.inputs[0]].schema)
        levels = [] if tree is None else self._levels(node, tree)
        block = self._draft(operator.name, index)
        for number, key in operator.ports:
            block.ports.append(self._arrange(inputs[number], key, block, None if key else operator.spans))
        if tree is not None:
            block.spread = levels[0]
            block.ports.append(self._arrange(levels[-1], tree.keys, block))
        if operator.output_key is not None:
            block.output = self._store(index, operator.output_key, block, "output")

    def _totals(self, node: Node, operator: Keyed) -> tuple[int, ...]:
        """The nodes that a block arranges: those of its inputs, or that of totals (:mod:`ddcore.operators.totals`)."""
        if not isinstance(operator, Agg) or operator.inner:
            return node.inputs
        (rows,) = node.inputs
        totals = operator.totals(self.graph.nodes[rows].schema, nonnegative=rows in self.nonnegative)
        if totals is None:
            return node.inputs
        ends = []
        for chain in totals.chains:
            before = rows
            for step in chain:
                before = self._part(step, (before,), node)
            ends.append(before)
        return (self._part(totals.sums, tuple(ends), node),)

    def _part(self, operator: Operator, before: tuple[int, ...], owner: Node) -> int:
        """The node of a part of another operator; others may have the same."""
        index = self.graph.append(operator, before, owner)
        if index not in self.targets:
            self.targets[index] = []
            self.needed.append(index)
            self._visit(index)
        return index

    def _levels(self, node: Node, tree: Tree) -> list[int]:
        """The nodes and blocks of a tree of partial results, before the block of the operator itself."""
        levels, before = list[int](), node.inputs[0]
        for operator in tree.levels:
            index = self.graph.append(operator, (before,), node)
            self.targets[index] = []
            self.needed.append(index)
            if isinstance(operator, Keyed):
                self._keyed(index, self.graph.nodes[index], operator)
            else:
                self.targets[before].append(Target("linear" if levels else "spread", index))
            levels.append(index)
            before = index
        return levels

    def _variable(self, index: int, node: Node, operator: Variable) -> None:
        scope = self.graph.scopes[operator.loop]
        border = self._transient(index, self._draft("variable", index), "variable")
        self._borders.setdefault(operator.loop, []).append(border)
        self.targets[node.inputs[0]].append(Target("enter", operator.loop, operator.number))
        self.targets[scope.results[operator.number]].append(Target("feed", operator.loop, operator.number))

    def _output(self, name: str, node: int) -> None:
        """The block that consolidates an output's log."""
        log = self._transient(node, self._draft("output", node), name, output=name)
        self.targets[node].append(Target("arrange", log))

    # -- blocks and arrangements --------------------------------------------------------------------------------------

    def _rank(self, scope: int) -> int:
        rank = self._ranks.get(scope, 0)
        self._ranks[scope] = rank + 1
        return rank

    def _draft(self, op: str, node: int) -> _Draft:
        scope = self.graph.nodes[node].scope
        draft = _Draft(len(self.drafts), op, node, scope, self._rank(scope))
        self.drafts.append(draft)
        return draft

    def _arrange(self, node: int, key: tuple[str, ...], user: _Draft, ends: Ends | None = None) -> int:
        """The arrangement of a node by a key, shared; the first user in its scope updates it. One of intervals is
        shared by those alone that look at the same ends of them.
        """
        index = self._indices.get((*self._contents(node, key), ends))
        if index is None:
            owner = user if self.graph.nodes[node].scope == user.scope else self._draft("arrange", node)
            index = self._store(node, key, owner, "" if ends is None else ends.text, ends)
            owner.owned.append(index)
            self.targets[node].append(Target("arrange", index))
        listeners = self.listeners[index]
        if self.arrangements[index].block != user.index and user.index not in listeners:
            listeners.append(user.index)
        return index

    def _store(self, node: int, key: tuple[str, ...], block: _Draft, role: str, ends: Ends | None = None) -> int:
        index = self._arrangement(node, key, block, self.graph.fingerprint(node, "kept", role, key), ends=ends)
        self._indices[*self._contents(node, key), ends] = index
        return index

    def _contents(self, node: int, key: tuple[str, ...]) -> tuple[int, str, tuple[str, ...]]:
        """What an arrangement holds: nodes with equal contents share it."""
        return self.graph.nodes[node].scope, self.graph.nodes[node].digest, key

    def _transient(self, node: int, block: _Draft, role: str, output: str = "") -> int:
        """An arrangement that consolidates updates and stores nothing."""
        key, name = tuple(self.graph.nodes[node].schema), self.graph.fingerprint(node, "transient", role)
        index = self._arrangement(node, key, block, name, transient=True, output=output)
        block.owned.append(index)
        return index

    def _arrangement(self, node: int, key: tuple[str, ...], block: _Draft, name: str, **more: Any) -> int:
        index, depth = len(self.arrangements), self.graph.scopes[self.graph.nodes[node].scope].depth
        times = (*self.dims, *(f"_round_{i + 1}" for i in range(depth)))
        schema = self.graph.nodes[node].schema
        self.arrangements.append(Arrangement(index, node, schema, key, times, name, block.index, **more))
        self.listeners.append([])
        return index

    # -- the finished plan --------------------------------------------------------------------------------------------

    def _block(self, draft: _Draft, number: Mapping[int, int]) -> Block:
        loops = [scope for scope in (draft.scope, *self.graph.around(draft.scope)) if scope][::-1]
        path = (*(self._loop_ranks[scope] for scope in loops), draft.rank)
        return Block(
            draft.index, draft.op, number[draft.node], self.graph.nodes[draft.node].source_line, path, tuple(loops),
            tuple(draft.owned), tuple(draft.ports), draft.output,
            None if draft.spread is None else number[draft.spread],
        )  # fmt: skip

    def _loop(self, index: int, number: Mapping[int, int]) -> Loop:
        scope = self.graph.scopes[index]
        return Loop(
            index,
            scope.name,
            scope.depth,
            self.graph.max_rounds(index),
            scope.returns,
            tuple(number[node] for node in scope.variables),
            tuple(number[node] for node in scope.results),
            tuple(self._borders[index]),
            tuple(_linear_round(self.graph, result, scope.variables) for result in scope.results),
        )

    def _renumber(self, node: Node, number: Mapping[int, int]) -> Node:
        return replace(node, index=number[node.index], inputs=tuple(number[input_] for input_ in node.inputs))

    def _target(self, target: Target, number: Mapping[int, int]) -> Target:
        return replace(target, index=number[target.index]) if target.kind in _TO_NODES else target


def _linear_round(graph: Graph, result: int, variables: Iterable[int]) -> bool:
    """Whether an update can go once round the loop without passing a block: then the variable must be one, to
    consolidate.
    """
    waiting, visited, ends = [result], set[int](), set(variables)
    while waiting:
        index = waiting.pop()
        if index in ends:
            return True
        if index in visited:
            continue
        visited.add(index)
        node = graph.nodes[index]
        if isinstance(node.operator, Linear | Leave | Variable):
            waiting += node.inputs
    return False


def _check_parameters(program: Program, inputs: Mapping[str, Schema]) -> None:
    if not callable(program):
        hint = "dd.replay(program, edges=frame): first the function, then each input by name"
        if isinstance(program, str | PathLike):
            hint = "import its function first: from program import program; or fold the file in a project: ddcore run"
        raise ProgramError(f"a program is a function, not {kind_of(program)}", hint)
    parameters = inspect.signature(program).parameters
    if any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    ):  # a program of SQL: it has all tables
        return
    missing = [name for name in parameters if name not in inputs]
    extra = [name for name in inputs if name not in parameters]
    if missing or extra:
        raise ProgramError(
            f"the program takes ({', '.join(parameters)}) but the inputs are ({', '.join(inputs)})",
            "name the function's parameters after the inputs, one each",
        )


def _check_outputs(returned: Any, graph: Graph, dims: tuple[str, ...]) -> dict[str, int]:
    example = 'return {"name": collection}'
    folded: dict[str, str] = {}
    if not isinstance(returned, Mapping):
        kind = "None" if returned is None else type(returned).__name__
        raise ProgramError(f"the program returned {kind}, not a dict of collections", example)
    if not returned:
        raise ProgramError("the program returned an empty dict: it has no outputs", example)
    outputs = {}
    for name, collection in returned.items():
        if not isinstance(name, str) or not isinstance(collection, Collection):
            kind = type(collection).__name__
            raise ProgramError(f"the program's output {name!r} is {kind}, not a Collection", example)
        _check_output_name(name, folded)
        node = collection._node
        if collection._graph is not graph:
            raise ProgramError(
                f"the program's output {name} is a collection of another program (created at {node.source_line})",
                "return collections made of the ones that the program is called with",
            )
        if node.scope:
            loop = graph.scopes[node.scope].name
            raise ProgramError(
                f"{node.source_line}: output {name} is a collection of loop {loop}, used outside of it",
                "return it from the loop's body: only the result of iterate leaves a loop",
            )
        check_names(collection.schema, dims)
        outputs[name] = collection._index
    return outputs


def _inspections(graph: Graph, dims: tuple[str, ...], outputs: Mapping[str, int]) -> dict[str, int]:
    """The nodes of the logs that the program's calls of ``inspect`` name.

    Raises ProgramError for a name that is an output's, names two collections or cannot be an output's name, and for
    columns with names of time columns.
    """
    logs: dict[str, int] = {}
    source_lines: dict[str, str] = {}
    folded = {unicodedata.normalize("NFC", name).casefold(): name for name in outputs}
    for inspection in graph.inspections:
        if not isinstance(inspection.name, str):
            kind = type(inspection.name).__name__
            raise ProgramError(
                f"{inspection.source_line}: inspect: the name of the log is {kind}, not text", 'inspect("name")'
            )
        if inspection.name in outputs:
            raise ProgramError(
                f"{inspection.source_line}: inspect: there is an output {inspection.name}", "choose another name"
            )
        try:
            _check_output_name(inspection.name, folded)
            node = graph.inspected(inspection)
            check_names(graph.nodes[node].schema, dims)
        except ProgramError as error:
            raise ProgramError(f"{inspection.source_line}: inspect: {error.message}", error.hint) from None
        if logs.setdefault(inspection.name, node) != node:
            raise ProgramError(
                f"{inspection.source_line}: inspect: {inspection.name} is the log of another collection, named at "
                f"{source_lines[inspection.name]}",
                "give each its own name; a function that is called twice can take the name as a parameter",
            )
        source_lines.setdefault(inspection.name, inspection.source_line)
    return logs


def _check_output_name(name: str, others: dict[str, str]) -> None:
    """Raises ProgramError for a name that no folder of its own can have; ``others`` are the names before it."""
    hint = "name outputs with letters, digits and _"
    start = "an output's name is also its folder's name: "
    if not name.strip() or name.startswith(".") or not name.isprintable() or set(name) & _NOT_IN_FOLDERS:
        raise ProgramError(f"{start}{ascii(name)[:60]} cannot be one", hint)
    if len(name.encode()) > _LONGEST_NAME:
        raise ProgramError(f"{start}{name[:40]}... has more than {_LONGEST_NAME} bytes", hint)
    earlier = others.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
    if earlier != name:
        raise ProgramError(f"{start}{earlier} and {name} are the same folder on some machines", "rename one of them")
