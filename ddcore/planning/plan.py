"""The plan of a program for its workers: ordered blocks, shared arrangements, and the targets of all updates.

A *block* is one operator with state, together with the arrangements that are updated just before it.
Linear operators have no block: they are applied between blocks. Blocks are ranked within their
loop, loops within the loop around; ranks and rounds, interleaved, are the *position* of a piece of work, and work is
done in the order of positions.

A plan is flat: lists of nodes, loops, blocks and arrangements that refer to each other by index. It does not change
once it is built, so it can be pickled and shared between threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from ddcore.base.record import record
from ddcore.base.schema import Schema
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Operator
from ddcore.operators.block import Block
from ddcore.operators.borders import Variable
from ddcore.operators.clock import Clock
from ddcore.operators.constant import Constant
from ddcore.program.graph import Node
from ddcore.text.notebook import drawn


@record
class Loop:
    """One loop: W_0 = source, R_i = body(W_i), W_{i+1} = R_i; the result is R at the fixed point.

    After ``max_rounds`` it fails, or with ``returns`` returns its current R.

    ``scope`` is the index of its inside, ``depth`` counts the loops there. Per variable: the nodes of W and of R, the
    arrangement at the border (``borders``), and whether W is consolidated there at every round or only past the last
    round allowed (``consolidates``).
    """

    scope: int
    name: str
    depth: int
    max_rounds: int
    returns: bool
    variables: tuple[int, ...]
    results: tuple[int, ...]
    borders: tuple[int, ...]
    consolidates: tuple[bool, ...]


@record
class Target:
    """Where the updates of a node go: ``kind`` is linear, arrange, spread, enter, feed or leave.

    ``index`` is a node (linear, spread, leave), an arrangement (arrange) or the scope of a loop, with the number of its
    ``variable`` (enter, feed).
    """

    kind: str
    index: int
    variable: int = 0


@record
class Plan:
    """A program ready to run.

    ``inputs`` and ``outputs`` are schemas by name, ``sources`` the nodes of the inputs. ``targets`` has one list for
    each node, ``depths`` the number of enclosing loops; ``loops`` are keyed by scope. ``fingerprint`` is the same for
    the same program in every process and release. ``read``: the columns of each input that something reads; the others
    may be null. ``again``: the other places in the program of a node that is computed once for several of them.
    ``stages``: for several workers, the node of the delta join of each stage (:mod:`ddcore.planning.staging`).
    """

    dims: tuple[str, ...]
    inputs: Mapping[str, Schema]
    outputs: Mapping[str, Schema]
    sources: Mapping[str, int]
    nodes: Sequence[Node]
    depths: Sequence[int]
    targets: Sequence[Sequence[Target]]
    loops: Mapping[int, Loop]
    blocks: Sequence[Block]
    arrangements: Sequence[Arrangement]
    fingerprint: str
    read: Mapping[str, frozenset[str]] = field(default_factory=dict)
    again: Mapping[int, Sequence[str]] = field(default_factory=dict)
    stages: Mapping[int, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Plan({', '.join(self.inputs)} -> {', '.join(self.outputs)}: {len(self.operators)} operators)"

    @property
    def operators(self) -> list[Node]:
        """The nodes that ``dd plan`` counts: without those of totals and of the trees of partial results."""
        return [node for node in self.nodes if not node.operator.inner]

    @cached_property
    def constants(self) -> Mapping[int, Constant]:
        """The collections that the program spells out, by node."""
        return {node.index: node.operator for node in self.nodes if isinstance(node.operator, Constant)}

    @cached_property
    def clock(self) -> int | None:
        """The node of the instants of versions; None where the program does not use ``dd.now``."""
        return next((node.index for node in self.nodes if isinstance(node.operator, Clock)), None)

    @property
    def uses_now(self) -> bool:
        """Whether the program uses ``dd.now``."""
        return self.clock is not None

    def _repr_html_(self) -> str:
        return drawn("plan", self)

    def operator(self, block: Block) -> Operator:
        """The operator of a block."""
        return self.nodes[block.node].operator

    @property
    def ends(self) -> Mapping[str, int]:
        """The node of each output."""
        return {log.output: log.node for log in self.arrangements if log.output in self.outputs}

    def upstream(self, ends: Iterable[int]) -> Mapping[int, tuple[int, ...]]:
        """The nodes that some depend on, and they themselves, in order, each with those that it reads: its inputs, and
        of a loop's variable also the loop's result.
        """
        reads, waiting = dict[int, tuple[int, ...]](), list(ends)
        while waiting:
            index = waiting.pop()
            if index in reads:
                continue
            node = self.nodes[index]
            reads[index] = node.inputs
            if isinstance(node.operator, Variable):
                reads[index] = (*node.inputs, self.loops[node.operator.loop].results[node.operator.number])
            waiting += reads[index]
        return {index: reads[index] for index in sorted(reads)}

    def is_inner(self, arrangement: Arrangement) -> bool:
        """Whether an arrangement belongs to the tree of partial results of another operator. Totals do not."""
        return self.nodes[arrangement.node].operator.in_tree
