"""The diagram of a plan: boxes, the edges between them, loops around them, and the arrangements that they read.

Borders are no boxes of their own: an edge that leaves a loop begins at the box inside. Linear operators in a row are
one box. A diagram only reads the plan, and is linear in its size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TypeVar

from ddcore.base.record import record
from ddcore.base.schema import Schema
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Keyed, Linear
from ddcore.operators.borders import Input, Inspect, Leave, Variable
from ddcore.operators.clock import Clock
from ddcore.operators.constant import Constant
from ddcore.planning.plan import Plan
from ddcore.program.graph import Node
from ddcore.text.cells import printable

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
_CHAINED = 4  # operators of a chain that its name lists


@dataclass(eq=False)
class Box:
    """One or more operators. ``kind`` is input, output, variable, linear or keyed.

    ``number`` counts the boxes from 1, inputs before readers and the boxes of a loop next to each other. ``title`` is
    what it does, ``source_lines`` are the lines of the program, ``columns`` those of its collection with types;
    ``loop`` is the scope of the innermost loop, 0 outside.
    """

    kind: str
    title: str
    source_lines: list[str]
    columns: tuple[str, ...]
    loop: int
    number: int = 0

    @property
    def source_line(self) -> str:
        """``file.py:8``, or ``file.py:8-12`` for operators of several lines of a file."""
        lines: dict[str, list[int]] = {}
        for source_line in self.source_lines:
            file, _, line = source_line.rpartition(":")
            lines.setdefault(file, []).append(int(line))
        spans = ((file, min(numbers), max(numbers)) for file, numbers in lines.items())
        return ", ".join(f"{file}:{low}" if low == high else f"{file}:{low}-{high}" for file, low, high in spans)


@record
class Edge:
    """Updates from one box to another: ``feedback`` is that of a loop, ``index`` the arrangement they are read from."""

    source: Box
    target: Box
    feedback: bool = False
    index: Index | None = None


@record
class Frame:
    """A loop: its scope, that of the loop around it (0: none), its name, and what happens at the limit of rounds."""

    scope: int
    parent: int
    name: str
    max_rounds: int
    returns: bool
    prioritized: bool

    @property
    def limit(self) -> str:
        """The limit of rounds in words."""
        limit = f"{'stops after' if self.returns else 'at most'} {self.max_rounds:,} rounds"
        return f"{limit}{', with priorities' if self.prioritized else ''}"

    @property
    def title(self) -> str:
        """Its name and its limit."""
        return f"loop {self.name}, {self.limit}"


@dataclass(frozen=True, eq=False)
class Index:
    """A stored arrangement of the collection of ``box``, ``number`` from 1; ``own``: kept by the operator itself.

    ``table`` is where a warehouse has it.
    """

    number: int
    box: Box
    key: tuple[str, ...]
    columns: tuple[str, ...]
    table: str
    readers: tuple[Box, ...]
    own: bool

    @property
    def label(self) -> str:
        """Its short name: ``A3``."""
        return f"A{self.number}"

    @property
    def key_text(self) -> str:
        """The key: ``by src, dst``."""
        return _by(self.key)

    @property
    def brief(self) -> str:
        """Its key, and what it is for if that is not one reader."""
        if self.own:
            return f"{self.key_text}, own result"
        return self.key_text + (f", shared by {len(self.readers)}" if len(self.readers) > 1 else "")


@record
class Diagram:
    """The drawing of a plan, before it has a form. ``by_node`` has the box of each operator, ``by_output`` those of
    outputs.
    """

    boxes: Sequence[Box]
    edges: Sequence[Edge]
    frames: Sequence[Frame]
    indexes: Sequence[Index] = ()
    by_node: Mapping[int, Box] = field(default_factory=dict)
    by_output: Mapping[str, Box] = field(default_factory=dict)

    def inside(self, scope: int) -> Sequence[Box]:
        """The boxes in a loop, without those of inner loops; of the program where the scope is 0."""
        return self._by_scope.get(scope, [])

    def kept(self, box: Box) -> Sequence[Index]:
        """The stored arrangements of a box's collection."""
        return self._by_box.get(box, [])

    def reads(self, box: Box) -> Sequence[Edge]:
        """The edges that end at a box."""
        return self._by_target.get(box, [])

    def shown(self, box: Box) -> str:
        """All there is to say about a box, in lines."""
        indexes = (f"{arrangement.label} {arrangement.brief}: {arrangement.table}" for arrangement in self.kept(box))
        source_lines = [box.source_line] if box.source_lines else []
        return "\n".join([box.title, *source_lines, ", ".join(box.columns), *indexes])

    @cached_property
    def _by_scope(self) -> dict[int, list[Box]]:
        return _grouped(self.boxes, lambda box: box.loop)

    @cached_property
    def _by_box(self) -> dict[Box, list[Index]]:
        return _grouped(self.indexes, lambda index: index.box)

    @cached_property
    def _by_target(self) -> dict[Box, list[Edge]]:
        return _grouped(self.edges, lambda edge: edge.target)


def diagram(plan: Plan) -> Diagram:
    """The diagram of a plan. O(nodes + edges)."""
    return _Reader(plan).read()


def _grouped(values: Sequence[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    groups: dict[_K, list[_T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


class _Reader:
    """Reads one plan. Boxes are kept by node: the operators of a chain share theirs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes = [node for node in plan.nodes if not node.operator.inner]
        self.blocks = {b.node: b for b in plan.blocks if b.ports and not plan.operator(b).inner}
        self.outputs = [(block, plan.arrangements[block.owned[0]]) for block in plan.blocks if block.op == "output"]
        borders = {scope: plan.arrangements[loop.borders[0]].block for scope, loop in plan.loops.items()}
        paths = {scope: plan.blocks[block].loops for scope, block in borders.items()}  # of the loops around
        self.parents = {scope: path[-2] if len(path) > 1 else 0 for scope, path in paths.items()}
        self.readers = Counter(number for node in self.nodes for number in node.inputs)
        self.readers.update(arrangement.node for _, arrangement in self.outputs)
        self.readers.update(result for loop in plan.loops.values() for result in loop.results)
        self.boxes: dict[int, Box] = {}
        self.chains: dict[Box, list[str]] = {}  # the operators of linear boxes
        self.ends: list[tuple[int, Box]] = []  # the nodes of outputs, and their boxes

    def read(self) -> Diagram:
        for node in self.nodes:
            self._add(node)
        for _, arrangement in self.outputs:
            self._add_output(arrangement)
        for box, names in self.chains.items():
            box.title = _chained(names)
        boxes = self._ordered([*dict.fromkeys(self.boxes.values()), *(box for _, box in self.ends)])
        for number, box in enumerate(boxes, 1):
            box.number = number
        indexes = list(self._indexes())
        frames = [self._frame(scope) for scope in self.plan.loops]
        edges = list(dict.fromkeys(self._edges(indexes)))
        outputs = {arrangement.output: box for (_, arrangement), (_, box) in zip(self.outputs, self.ends, strict=True)}
        return Diagram(boxes, edges, frames, indexes, self.boxes, outputs)

    # -- boxes --------------------------------------------------------------------------------------------------------

    def _add(self, node: Node) -> None:
        operator = node.operator
        if isinstance(operator, Leave | Inspect):
            return
        if isinstance(operator, Linear):
            before = self.boxes.get(node.inputs[0]) if len(node.inputs) == 1 else None
            if before in self.chains and before.loop == node.scope and self.readers[node.inputs[0]] == 1:
                self.chains[before].append(operator.name)
                before.source_lines.append(node.source_line)
                before.columns = _columns(node.schema)
                self.boxes[node.index] = before
                return
        box = Box(_kind(operator), self._title(node), [node.source_line], _columns(node.schema), node.scope)
        if isinstance(operator, Input):
            box.source_lines = []
        elif isinstance(operator, Linear):
            self.chains[box] = [operator.name]
        self.boxes[node.index] = box

    def _add_output(self, arrangement: Arrangement) -> None:
        node = self.plan.nodes[arrangement.node]
        source_lines = [node.source_line] if isinstance(node.operator, Inspect) else []
        title = f"{'inspect' if source_lines else 'output'} {printable(arrangement.output)}"
        self.ends.append((arrangement.node, Box("output", title, source_lines, _columns(node.schema), 0)))

    def _title(self, node: Node) -> str:
        operator = node.operator
        if isinstance(operator, Input):
            return f"input {printable(operator.text)}"
        if isinstance(operator, Variable):
            several = len(self.plan.loops[operator.loop].variables) > 1
            return f"variable {operator.number + 1}" if several else "variable"
        name = str(getattr(operator, "label", operator.name))
        if not isinstance(operator, Keyed):
            return name
        keys = [key for _, key in operator.ports]
        if len(keys) == 2 and len(node.inputs) == 2:
            return f"{name} on {_pairs(*keys)}" if all(keys) else f"{name} {_by(keys[0])}"
        if len(keys) > 1:
            return f"{name} of {len(node.inputs)} collections"
        whole = len(keys[0]) == len(self.plan.nodes[node.inputs[0]].schema) == len(node.schema)
        return name if whole else f"{name} {_by(keys[0])}"

    def _ordered(self, boxes: list[Box]) -> list[Box]:
        """Readers after what they read, except by feedback, and the boxes of each loop together."""
        inside: dict[int, list[Box | int]] = {}
        last = {box: number for number, box in enumerate(boxes)}
        ends: dict[int, int] = {}
        for box in boxes:
            inside.setdefault(box.loop, []).append(box)
            scope = box.loop
            while scope:
                ends[scope] = max(ends.get(scope, 0), last[box])
                scope = self.parents[scope]
        for scope in ends:
            inside.setdefault(self.parents[scope], []).append(scope)

        def listed(scope: int) -> Iterator[Box]:
            parts = inside.get(scope, [])
            for part in sorted(parts, key=lambda part: ends[part] if isinstance(part, int) else last[part]):
                if isinstance(part, int):
                    yield from listed(part)
                else:
                    yield part

        return list(listed(0))

    # -- edges, arrangements and loops --------------------------------------------------------------------------------

    def _source(self, number: int) -> Box:
        """The box whose collection a node's is, or from which another operator's parts compute it."""
        node = self.plan.nodes[number]
        while node.operator.inner or isinstance(node.operator, Leave | Inspect):
            node = self.plan.nodes[node.inputs[0]]
        return self.boxes[node.index]

    def _edges(self, indexes: Sequence[Index]) -> Iterator[Edge]:
        by_place = {self.positions[index]: index for index in indexes}
        for node in self.nodes:
            box = self.boxes.get(node.index)
            if box is None:
                continue
            if node.index in self.blocks:
                for port in self._ports(node.index):
                    yield Edge(self._source(self.plan.arrangements[port].node), box, index=by_place[port])
                continue
            for number in node.inputs:
                source = self._source(number)
                if source is not box:
                    yield Edge(source, box)
            if isinstance(node.operator, Variable):
                result = self.plan.loops[node.operator.loop].results[node.operator.number]
                yield Edge(self._source(result), box, feedback=True)
        for number, box in self.ends:
            yield Edge(self._source(number), box)

    def _indexes(self) -> Iterator[Index]:
        self.positions: dict[Index, int] = {}
        users: dict[int, dict[Box, None]] = {}
        own = {block.output for block in self.blocks.values()}
        for block in self.blocks.values():
            for port in self._ports(block.node):
                users.setdefault(port, {})[self.boxes[block.node]] = None
        stored = [
            arrangement
            for arrangement in self.plan.arrangements
            if not (arrangement.transient or self.plan.is_inner(arrangement))
        ]
        stored.sort(key=lambda arrangement: (self._source(arrangement.node).number, arrangement.index))
        for number, one in enumerate(stored, 1):
            index = Index(
                number, self._source(one.node), one.key, tuple(one.collection), f"state/{one.fingerprint}",
                tuple(sorted(users.get(one.index, {}), key=lambda box: box.number)), one.index in own,
            )  # fmt: skip
            self.positions[index] = one.index
            yield index

    def _ports(self, node: int) -> list[int]:
        """The arrangements that an operator reads, without the trees of partial results of its large groups."""
        return [port for port in self.blocks[node].ports if not self.plan.is_inner(self.plan.arrangements[port])]

    def _frame(self, scope: int) -> Frame:
        loop = self.plan.loops[scope]
        operators = [self.plan.nodes[variable].operator for variable in loop.variables]
        prioritized = any(isinstance(operator, Variable) and operator.priority is not None for operator in operators)
        return Frame(scope, self.parents[scope], printable(loop.name), loop.max_rounds, loop.returns, prioritized)


def _kind(operator: object) -> str:
    if isinstance(operator, Clock | Constant):
        return "input"
    if isinstance(operator, Input | Variable):
        return operator.name
    return "linear" if isinstance(operator, Linear) else "keyed"


def _chained(names: Sequence[str]) -> str:
    """``where, select x3``: the operators of a chain, equal neighbours once."""
    groups = [(name, len(list(group))) for name, group in groupby(names)]
    parts = [f"{name} x{number:,}" if number > 1 else name for name, number in groups[:_CHAINED]]
    more = f", ... ({len(names):,} operators)" if len(groups) > _CHAINED else ""
    return ", ".join(parts) + more


def _columns(schema: Schema) -> tuple[str, ...]:
    return tuple(printable(f"{name} {kind}") for name, kind in schema.items())


def _by(key: Sequence[str]) -> str:
    return f"by {', '.join(map(printable, key))}" if key else "of all rows"


def _pairs(left: Sequence[str], right: Sequence[str]) -> str:
    pairs = zip(map(printable, left), map(printable, right), strict=True)
    return ", ".join(own if own == other else f"{own} = {other}" for own, other in pairs)
