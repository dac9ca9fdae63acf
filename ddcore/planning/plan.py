"""The plan of a program for its workers: ordered blocks, shared arrangements, and the targets of all updates.

A *block* is one operator with state, together with the arrangements that are updated just before it.
Linear operators have no block: they are applied between blocks. Blocks are ranked within their
loop, loops within the loop around; ranks and rounds, interleaved, are the *position* of a piece of work, and work is
done in the order of positions.

A plan is flat: lists of nodes, loops, blocks and arrangements that refer to each other by index. It does not change
once it is built, so it can be pickled and shared between threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore.base.schema import Schema, Type, is_direct
from ddcore.operators.base import Operator
from ddcore.operators.constant import Constant
from ddcore.program.graph import Node
from ddcore.traces.batch import Batch

if TYPE_CHECKING:
    from ddcore.traces.sorted_batch import SortedBatch

__all__ = ["Arrangement", "Block", "Loop", "Plan", "Position", "Target"]

Position = tuple[int, ...]


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Arrangement:
    """An index of one collection by key columns, stored for as long as the program exists.

    ``collection``: the columns as the collection has them; ``times`` names the coordinates; ``fingerprint`` names its
    table. Block ``block`` updates it; ``listeners`` are the other blocks that read it and are notified.
    A ``transient`` one consolidates and forwards updates and stores nothing; ``output`` is then its output log, if any.
    """

    index: int
    node: int
    collection: Schema
    key: tuple[str, ...]
    times: tuple[str, ...]
    fingerprint: str
    block: int
    listeners: tuple[int, ...] = ()
    transient: bool = False
    output: str = ""

    @cached_property
    def schema(self) -> Schema:
        """Key columns, then value columns."""
        columns = self.collection
        return {name: columns[name] for name in self.key} | {n: t for n, t in columns.items() if n not in self.key}

    @cached_property
    def key_types(self) -> list[Type]:
        """Types of the key columns."""
        return [self.collection[name] for name in self.key]

    @cached_property
    def direct(self) -> bool:
        """Whether the key is its own code and not stored among the words."""
        return is_direct(self.key_types)

    @cached_property
    def key_words(self) -> int:
        """How many words of a sorted batch are the key's."""
        return 0 if self.direct else len(self.key)

    @cached_property
    def values(self) -> list[str]:
        """Names of the value columns."""
        return [name for name in self.collection if name not in self.key]

    @cached_property
    def stored_order(self) -> list[int]:
        """For each column of the schema, its number in the collection."""
        columns = list(self.collection)
        return [columns.index(name) for name in self.schema]

    @cached_property
    def collection_order(self) -> list[int]:
        """For each column of the collection, its number in the schema."""
        columns = list(self.schema)
        return [columns.index(name) for name in self.collection]

    def batch_of(self, batch: SortedBatch) -> Batch:
        """The updates of a sorted batch as a batch of the arranged collection."""
        batch = batch.widen()
        columns = [batch.codes, *batch.words] if self.direct else list(batch.words)
        return Batch([columns[number] for number in self.collection_order], list(batch.times), batch.diffs, batch.high)


@dataclass(frozen=True)
class Block:
    """One step of a worker: update the ``owned`` arrangements, then run the operator, if it has a step.

    ``op`` is the operator's name, or arrange (no operator), variable (consolidate the updates of a loop that has no
    other state, and the updates of any loop past its last round) or output. ``ports`` are the arrangements of the
    operator's inputs, ``output`` that of its result, if it is stored. ``loops`` are scopes, outermost first. ``spread``
    is the node from which the rows of large groups reach their tree of partial results, whose root is the last port.
    """

    index: int
    op: str
    node: int
    place: str
    path: tuple[int, ...]
    loops: tuple[int, ...]
    owned: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    output: int | None = None
    spread: int | None = None

    @property
    def depth(self) -> int:
        """The number of enclosing loops."""
        return len(self.loops)

    def position(self, rounds: tuple[int, ...]) -> Position:
        """Ranks and rounds interleaved; compares lexicographically."""
        position = [self.path[0]]
        for current, rank in zip(rounds, self.path[1:], strict=True):
            position += (current, rank)
        return tuple(position)


@dataclass(frozen=True)
class Target:
    """Where the updates of a node go: ``kind`` is linear, arrange, spread, enter, feed or leave.

    ``index`` is a node (linear, spread, leave), an arrangement (arrange) or the scope of a loop, with the number of its
    ``variable`` (enter, feed).
    """

    kind: str
    index: int
    variable: int = 0


@dataclass(frozen=True)
class Plan:
    """A program ready to run.

    ``inputs`` and ``outputs`` are schemas by name, ``sources`` the nodes of the inputs. ``targets`` has one list for
    each node, ``depths`` the number of enclosing loops; ``loops`` are keyed by scope. ``fingerprint`` is the same for
    the same program in every process and release. ``read``: the columns of each input that something reads; the others
    may be null.
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

    def _repr_html_(self) -> str:
        from ddcore.drawing.pieces import plan_piece

        return plan_piece(self)

    def operator(self, block: Block) -> Operator:
        """The operator of a block."""
        return self.nodes[block.node].operator

    def is_inner(self, arrangement: Arrangement) -> bool:
        """Whether an arrangement belongs to the tree of partial results of another operator. Totals do not."""
        return self.nodes[arrangement.node].operator.in_tree
