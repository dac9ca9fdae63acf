"""From a program to what a worker does: blocks in order, arrangements shared, and where every collection's updates go.

A *block* is one operator with state, together with the arrangements that are brought up to date just before it.
Linear operators have no block: they are applied on the way from one block to the next. Blocks are ranked within their
loop, loops within the loop around; ranks and rounds, interleaved, are the *position* of a piece of work, and work is
done in the order of positions.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddcore.batch import Batch
from ddcore.collection import Collection, JoinKeys
from ddcore.digests import digest
from ddcore.errors import ProgramError
from ddcore.graph import LINEAR, Graph, Loop, Node, Scope, shape
from ddcore.schema import Schema, Type, check_names, is_direct, parse_schema

if TYPE_CHECKING:
    from ddcore.trace import Run

_NOT_IN_FOLDERS = set('/\\%:?*"<>|')  # what some file system, or the address of a table, gives another meaning
_LONGEST_NAME = 200  # bytes; file systems allow 255

Position = tuple[int, ...]
Program = Callable[..., Mapping[str, Collection]]


@dataclass(eq=False)
class Arrangement:
    """An index of one collection by key columns, kept for as long as the program is.

    ``schema`` has the key columns, then the value columns; ``times`` names the coordinates; ``fingerprint`` names its
    table. ``block`` brings it up to date,
    ``listeners`` are the other blocks that must hear of its new updates.
    """

    index: int
    node: Node
    key: tuple[str, ...]
    times: tuple[str, ...]
    fingerprint: str
    block: Block
    listeners: list[Block] = field(default_factory=list)
    transient: bool = False  # consolidates and routes, but nothing is kept
    output: str = ""  # of a transient one: the output log its updates go to

    @property
    def schema(self) -> Schema:
        """Key columns, then value columns."""
        columns = self.node.schema
        return {name: columns[name] for name in self.key} | {n: t for n, t in columns.items() if n not in self.key}

    @property
    def key_types(self) -> list[Type]:
        """Types of the key columns."""
        return [self.node.schema[name] for name in self.key]

    @property
    def direct(self) -> bool:
        """Whether the key is its own code and not stored among the words."""
        return is_direct(self.key_types)

    @property
    def key_words(self) -> int:
        """How many words of a run are the key's."""
        return 0 if self.direct else len(self.key)

    def batch_of(self, run: Run) -> Batch:
        """The updates of a run as a batch of the arranged collection."""
        columns = ([run.codes] if self.direct else []) + list(run.words)
        words = dict(zip(self.schema, columns, strict=True))
        return Batch([words[name] for name in self.node.schema], list(run.times), run.diffs, run.high)

    @property
    def values(self) -> list[str]:
        """Names of the value columns."""
        return [name for name in self.node.schema if name not in self.key]


@dataclass(eq=False)
class Block:
    """One step of a worker: bring ``owned`` arrangements up to date, then run the operator of ``node``.

    ``op`` is arrange (no operator), join, reduce, variable (consolidate what goes round a loop that has no other
    state, or round any loop once too often) or output.
    """

    index: int
    op: str
    node: Node
    path: tuple[int, ...]
    loops: tuple[Loop, ...]
    owned: list[Arrangement] = field(default_factory=list)
    ports: list[Arrangement] = field(default_factory=list)
    output: Arrangement | None = None

    @property
    def depth(self) -> int:
        """How many loops are around."""
        return len(self.loops)

    def position(self, rounds: tuple[int, ...]) -> Position:
        """Ranks and rounds interleaved; compares lexicographically."""
        position = [self.path[0]]
        for current, rank in zip(rounds, self.path[1:], strict=True):
            position += (current, rank)
        return tuple(position)


@dataclass(frozen=True)
class Target:
    """Where the updates of a node go on to: ``kind`` is linear, arrange, enter, feed or leave."""

    kind: str
    node: Node | None = None
    arrangement: Arrangement | None = None
    loop: Loop | None = None


@dataclass
class Plan:
    """A program, ready for workers. Holds no data."""

    dims: tuple[str, ...]
    inputs: dict[str, Schema]
    outputs: dict[str, Schema]
    sources: dict[str, Node]
    blocks: list[Block]
    arrangements: list[Arrangement]
    fingerprint: str


def build(program: Program, schemas: Mapping[str, Mapping[str, Any]], dims: tuple[str, ...] = ("version",)) -> Plan:
    """Call the program once with symbolic collections and plan what it returns.

    Raises ProgramError: parameters that are no inputs, anything the operators refuse, a result that is no dict of
    collections.
    """
    graph = Graph()
    inputs = {name: parse_schema(schema) for name, schema in schemas.items()}
    for schema in inputs.values():
        check_names(schema, dims)
    sources = {name: graph.add("input", (), schema, name) for name, schema in inputs.items()}
    _check_parameters(program, inputs)
    returned = program(**{name: Collection(graph, node) for name, node in sources.items()})
    outputs = _check_outputs(returned, graph.root, dims)
    graph.share_limits()
    compiler = _Compiler(dims, graph.root)
    for name, node in outputs.items():
        compiler.output(name, node)
    ends = [[name, node.fingerprint] for name, node in sorted(outputs.items())]
    starts = [[name, shape(schema)] for name, schema in sorted(inputs.items())]
    return Plan(
        dims, inputs, {name: dict(node.schema) for name, node in outputs.items()}, sources, compiler.blocks,
        compiler.arrangements, digest(dims, starts, ends)[:32],
    )  # fmt: skip


class _Compiler:
    """Visits nodes depth first, inputs before users, and gives ranks in that order."""

    def __init__(self, dims: tuple[str, ...], root: Scope) -> None:
        self.dims = dims
        self.blocks: list[Block] = []
        self.arrangements: list[Arrangement] = []
        self._known: dict[tuple[int, tuple[str, ...]], Arrangement] = {}
        self._seen: set[int] = set()
        self._ranks: dict[int, int] = {}
        self._paths: dict[int, tuple[int, ...]] = {id(root): ()}

    def visit(self, node: Node) -> None:
        """Everything before a node, then the node; without recursion, for programs are as deep as they are long."""
        waiting = [node]
        while waiting:
            node = waiting[-1]
            before = [] if node.kind == "variable" else [each for each in node.inputs if id(each) not in self._seen]
            if before and id(node) not in self._seen:
                waiting += reversed(before)
                continue
            waiting.pop()
            if id(node) not in self._seen:
                self._seen.add(id(node))
                self._add(node)

    def _add(self, node: Node) -> None:
        """The node's blocks, and the targets of its inputs. A variable has none: its loop sees to it."""
        if node.kind in LINEAR:
            for before in node.inputs:  # once per use: x.concat(x) counts everything twice
                before.targets.append(Target("linear", node))
        elif node.kind == "join":
            self._join(node)
        elif node.kind == "reduce":
            self._reduce(node)
        elif node.kind == "leave":
            self._loop(node)

    def output(self, name: str, node: Node) -> None:
        """Everything an output needs, and the block that consolidates its log."""
        self.visit(node)
        block = self._block("output", node)
        log = self._transient(node, block, name)
        log.output = name
        node.targets.append(Target("arrange", arrangement=log))

    def _join(self, node: Node) -> None:
        keys: JoinKeys = node.settings
        block = self._block("join", node)
        block.ports = [
            self._arrange(node.inputs[0], keys.left, block),
            self._arrange(node.inputs[1], keys.right, block),
        ]

    def _reduce(self, node: Node) -> None:
        keys = node.settings.keys
        block = self._block("reduce", node)
        block.ports = [self._arrange(node.inputs[0], keys, block)]
        block.output = self._arrangement(node, keys, block, "output")

    def _loop(self, leave: Node) -> None:
        loop: Loop = leave.settings
        # Everything of outer scopes that the body uses comes before the loop, its arrangements included.
        for outer, keys in _outer_uses(loop):
            self.visit(outer)
            if keys is not None and (id(outer), keys) not in self._known:
                self._arrange(outer, keys, self._block("arrange", outer))
        scope = loop.scope
        assert scope.parent is not None
        self._paths[id(scope)] = (*self._paths[id(scope.parent)], self._rank(scope.parent))
        loop.border = self._transient(loop.variable, self._block("variable", loop.variable), "variable")
        loop.consolidates = _linear_round(loop)
        loop.source.targets.append(Target("enter", loop.variable, loop=loop))
        self.visit(loop.body)
        loop.body.targets.append(Target("feed", loop.variable, loop=loop))
        loop.body.targets.append(Target("leave", leave, loop=loop))

    def _rank(self, scope: Scope) -> int:
        rank = self._ranks.get(id(scope), 0)
        self._ranks[id(scope)] = rank + 1
        return rank

    def _block(self, op: str, node: Node) -> Block:
        loops, walk = [], node.scope
        while walk.loop is not None and walk.parent is not None:
            loops.append(walk.loop)
            walk = walk.parent
        path = (*self._paths[id(node.scope)], self._rank(node.scope))
        block = Block(len(self.blocks), op, node, path, tuple(reversed(loops)))
        self.blocks.append(block)
        return block

    def _arrange(self, node: Node, key: tuple[str, ...], user: Block) -> Arrangement:
        """The arrangement of a node by a key, shared; the first user in its scope brings it up to date."""
        known = self._known.get((id(node), key))
        if known is None:
            known = self._arrangement(node, key, user, "")
            user.owned.append(known)
            node.targets.append(Target("arrange", arrangement=known))
        elif known.block is not user and user not in known.listeners:
            known.listeners.append(user)
        return known

    def _transient(self, node: Node, block: Block, role: str) -> Arrangement:
        """What brings updates of equal rows together, and keeps nothing."""
        times = (*self.dims, *(f"_round_{i + 1}" for i in range(node.scope.depth)))
        made = Arrangement(
            len(self.arrangements),
            node,
            tuple(node.schema),
            times,
            digest("transient", node.fingerprint, role)[:32],
            block,
        )
        made.transient = True
        self.arrangements.append(made)
        block.owned.append(made)
        return made

    def _arrangement(self, node: Node, key: tuple[str, ...], block: Block, role: str) -> Arrangement:
        times = (*self.dims, *(f"_round_{i + 1}" for i in range(node.scope.depth)))
        name = digest("kept", node.fingerprint, role, key)[:32]
        made = Arrangement(len(self.arrangements), node, key, times, name, block)
        self.arrangements.append(made)
        self._known[id(node), key] = made
        return made


def _outer_uses(loop: Loop) -> Iterator[tuple[Node, tuple[str, ...] | None]]:
    """Nodes outside the loop that its body, nested loops included, reads.

    With the key where they are read through an arrangement.
    """
    seen: set[int] = set()
    waiting = [loop.body]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if not loop.scope.encloses(node.scope):
            yield node, None
            continue
        befores = list(node.inputs) if node is not loop.variable else []
        if node.kind == "leave":
            befores.append(node.settings.body)
        waiting += befores
        if node.kind == "join":
            for before, key in zip(node.inputs, (node.settings.left, node.settings.right), strict=True):
                if not loop.scope.encloses(before.scope):
                    yield before, key


def _linear_round(loop: Loop) -> bool:
    """Whether an update can go once round the loop without meeting a block: then the variable must be one, to
    consolidate.
    """
    waiting, seen = [loop.body], set()
    while waiting:
        node = waiting.pop()
        if node is loop.variable:
            return True
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.kind in LINEAR:
            waiting += node.inputs
        elif node.kind == "leave":
            waiting.append(node.settings.body)
        elif node.kind == "variable":
            waiting.append(node.inputs[0])
    return False


def _check_parameters(program: Program, inputs: Mapping[str, Schema]) -> None:
    parameters = inspect.signature(program).parameters
    missing = [name for name in parameters if name not in inputs]
    extra = [name for name in inputs if name not in parameters]
    if missing or extra:
        raise ProgramError(
            f"the program takes ({', '.join(parameters)}) but the inputs are ({', '.join(inputs)})",
            "name the function's parameters after the inputs, one each",
        )


def _check_outputs(returned: Any, root: Scope, dims: tuple[str, ...]) -> dict[str, Node]:
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
        if node.scope is not root:
            raise ProgramError(f"output {name} belongs to a loop", "return it from the loop's body instead")
        check_names(node.schema, dims)
        outputs[name] = node
    return outputs


def _check_output_name(name: str, others: dict[str, str]) -> None:
    """Raises ProgramError for a name that no folder of its own can have; ``others`` are the names before it."""
    hint = "name outputs with letters, digits and _"
    start = "an output's name is also its folder's name: "
    if not name or name.startswith(".") or not name.isprintable() or set(name) & _NOT_IN_FOLDERS:
        raise ProgramError(f"{start}{ascii(name)[:60]} is no such name", hint)
    if len(name.encode()) > _LONGEST_NAME:
        raise ProgramError(f"{start}{name[:40]}... has more than {_LONGEST_NAME} bytes", hint)
    known = others.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
    if known != name:
        raise ProgramError(f"{start}{known} and {name} are the same folder on some machines", "rename one of them")
