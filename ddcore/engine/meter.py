"""The meter of a worker: counts what each operator does, once per step and batch and never per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from ddcore.base.lazy import numpy as np
from ddcore.base.threads import beside
from ddcore.compiling import compilation
from ddcore.compiling.compilation import clock
from ddcore.data.encoding import decode_frame
from ddcore.engine.profile import OUTSIDE, Cost, Name, Profile
from ddcore.operators.block import Rounds
from ddcore.operators.half_join import HalfJoin
from ddcore.operators.priority import round_of

if TYPE_CHECKING:
    from ddcore.operators.arrangement import Arrangement
    from ddcore.operators.base import Operator
    from ddcore.operators.block import Block
    from ddcore.planning.plan import Plan
    from ddcore.traces.sorted_batch import SortedBatch
    from ddcore.traces.trace import Trace

_SAMPLES = 64  # keys of a batch that are looked at
_MANY = 4096  # updates of a batch in which a heavy key is looked for
_LONGEST = 60  # characters of a key

T = TypeVar("T")


class Meter:
    """Counts what one worker does. Linear operators may run in several threads, all else runs in one.

    The time of an operator with state is that of its steps without the linear operators that its results pass through.
    What those take where threads work side by side is divided by their number, so that the times add up to about the
    wall-clock time. No operator's time has the compilation of kernels.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.profile = plan, Profile()
        self._nodes, self._parts, self._ways_in = _owners(plan)
        self._blocks = [self._name(block) for block in plan.blocks]
        self._lock = Lock()
        self._carried = 0  # nanoseconds of linear operators

    def begin_step(self) -> int:
        """A step begins now; returns what :meth:`end_step` needs."""
        return clock() - self._carried

    def end_step(self, block: Block, begun: int) -> None:
        """The step of a block that began then ends now."""
        spent = clock() - self._carried - begun
        self.profile.of(self._blocks[block.index]).nanoseconds += max(0, spent)

    def linear(self, node: int, taken: int, sent: int, nanoseconds: int) -> None:
        """One batch passed a linear operator. Several threads may call this."""
        with self._lock:
            nanoseconds //= beside()
            self._carried += nanoseconds
            cost = self.profile.of(self._nodes[node])
            cost.nanoseconds += nanoseconds
            if node not in self._parts:
                cost.sent += sent
            if node not in self._parts or node in self._ways_in:
                cost.taken += taken

    def entered(self, node: int, taken: int, sent: int) -> None:
        """Updates reached a loop's variable, or came from an input. Several threads may call this."""
        with self._lock:
            cost = self.profile.of(node)
            cost.taken += taken
            cost.sent += sent

    def took(self, block: Block, arrangement: Arrangement, rounds: Rounds, updates: SortedBatch) -> None:
        """A block's arrangement has consolidated new updates."""
        self._warm(rounds, updates)
        if block.op == "variable":
            self.profile.of(self._blocks[block.index]).sent += len(updates)
        elif block.op == "output" or self._is_input(block, arrangement):
            cost = self.profile.of(self._blocks[block.index])
            cost.taken += len(updates)
            if not arrangement.transient:
                self._note_key(cost, arrangement, updates)

    def notified(self, block: Block, arrangement: Arrangement, updates: SortedBatch) -> None:
        """A block reads new updates of an arrangement that another block has consolidated."""
        if self._is_input(block, arrangement):
            self.profile.of(self._blocks[block.index]).taken += len(updates)

    def sent(self, block: Block, updates: int) -> None:
        """Results of a block that does not keep them. Several threads may call this."""
        if block.output is None and (block.node not in self._parts or _is_last(self.plan.operator(block))):
            with self._lock:
                self.profile.of(self._blocks[block.index]).sent += updates

    def kept(self, block: Block, rounds: Rounds, updates: SortedBatch) -> None:
        """Results of a block that keeps them."""
        self._warm(rounds, updates)
        if block.node not in self._parts:
            self.profile.of(self._blocks[block.index]).sent += len(updates)

    def reading(self, updates: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
        """The updates of inputs; the time that reading them takes is that of the inputs."""
        source = iter(updates)
        while True:
            start = clock()
            item = next(source, None)
            if item is None:
                return
            self.profile.of(self.plan.sources[item[0]]).nanoseconds += max(0, clock() - start)
            yield item

    def owner(self, arrangement: Arrangement) -> Cost:
        """The cost of the operator that an arrangement belongs to: the first that reads it."""
        return self.profile.of(self._blocks[arrangement.block])

    def measure_memory(self, traces: Sequence[Trace]) -> None:
        """Note how many bytes the traces hold. O(batches)."""
        for arrangement in self.plan.arrangements:
            held = traces[arrangement.index].memory()
            if held:
                self.owner(arrangement).memory += held

    def take(self, traces: Sequence[Trace]) -> Profile:
        """What was done since the last call."""
        for arrangement in self.plan.arrangements:
            for batch in traces[arrangement.index].opened:
                rows, size = batch.take_reads()
                if rows or size:
                    cost = self.owner(arrangement)
                    cost.rows_read += rows
                    cost.bytes_read += size
        profile, self.profile = self.profile, Profile()
        profile.compiling = compilation.take()
        return profile

    def _is_input(self, block: Block, arrangement: Arrangement) -> bool:
        """Whether an operator reads the arrangement, and neither of them is a part of another operator."""
        is_part = block.node in self._parts or arrangement.node in self._parts
        return not is_part and arrangement.index in block.ports

    def _warm(self, rounds: Rounds, updates: SortedBatch) -> None:
        if len(updates):
            self.profile.heat.count(int(round_of(rounds[0])) if rounds else OUTSIDE, updates.versions())

    def _note_key(self, cost: Cost, arrangement: Arrangement, updates: SortedBatch) -> None:
        """Note a key that has at least an eighth of a large batch. O(1): codes are sorted, and few are looked at."""
        rows = len(updates)
        if rows < _MANY or not arrangement.key:
            return
        samples = updates.sample(rows // _SAMPLES)
        codes, counts = np.unique(samples, return_counts=True)
        heaviest = int(counts.argmax())
        if 8 * int(counts[heaviest]) < len(samples):
            return
        first, end = updates.span(int(codes[heaviest]))
        cost.note(self._key(arrangement, updates, first), end - first)

    def _key(self, arrangement: Arrangement, updates: SortedBatch, row: int) -> str:
        words = arrangement.batch_of(updates.part(row, row + 1)).words
        frame = decode_frame(words, arrangement.collection).select(arrangement.key)
        text = ", ".join(f"{name}={value!r}" for name, value in frame.row(0, named=True).items())
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

    def _name(self, block: Block) -> Name:
        """The operator or output that a block works for."""
        if block.op == "output":
            return self.plan.arrangements[block.owned[0]].output
        if block.op == "arrange":
            readers = [listener for index in block.owned for listener in self.plan.arrangements[index].listeners]
            return self._nodes[self.plan.blocks[readers[0]].node] if readers else self._nodes[block.node]
        return self._nodes[block.node]


def _is_last(operator: Operator) -> bool:
    """Whether the result of a part is that of its owner."""
    return isinstance(operator, HalfJoin) and operator.is_last


def _owners(plan: Plan) -> tuple[list[int], set[int], set[int]]:
    """For each node the operator that it is a part of, itself or one with totals or a tree of partial results; the
    parts; and those through which rows reach totals.
    """
    owners, parts, ways_in = list(range(len(plan.nodes))), set[int](), set[int]()
    inner = {block.node: block for block in plan.blocks if plan.operator(block).inner}
    for block in plan.blocks:
        waiting = [] if block.node in inner else [plan.arrangements[port].node for port in block.ports]
        while waiting:
            node = plan.nodes[waiting.pop()]
            if not node.operator.inner or node.index in parts:
                continue
            parts.add(node.index)
            owners[node.index] = block.node
            waiting += node.inputs
            if node.index in inner:
                waiting += [plan.arrangements[port].node for port in inner[node.index].ports]
            if node.operator.name == "contributions" and not plan.nodes[node.inputs[0]].operator.inner:
                ways_in.add(node.index)
    for stage, owner in plan.stages.items():
        owners[stage] = owner
        parts.add(stage)
    return owners, parts, ways_in
