"""Rebuilding: which part of a changed program has to be folded anew, if some of its arrangements are stored already.

An arrangement that is stored is complete: nothing has to be delivered to it. One that is missing needs the history of
its collection. That comes from the nearest blocks and inputs before it. Such a block runs again over the history of its
own arrangements: the stored ones are replayed, the missing ones are filled first, and so on backwards. A loop that is
stored, for example, is not iterated again: only the last of its blocks before the exit are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ddcore.base.record import record
from ddcore.operators.base import Keyed
from ddcore.operators.block import Block
from ddcore.planning.plan import Plan


@record
class Rebuilding:
    """The part of a plan to fold anew: the ``missing`` arrangements, which gain; the stored ones whose history is
    ``replayed``; the ``blocks`` that run; the ``inputs`` that are read; the ``outputs`` whose logs are computed.

    ``again``: stored arrangements that are filled from the inputs as the missing ones are, for this fold only, because
    what is stored of them no longer has every update at its own time. ``treeless``: blocks that evaluate their large
    groups without trees of partial results, for the same reason. ``advanced``: some that is replayed is stored so, and
    what is built from it is so as well.
    """

    missing: frozenset[int]
    replayed: frozenset[int]
    blocks: frozenset[int]
    inputs: frozenset[str]
    outputs: frozenset[str]
    again: frozenset[int] = frozenset()
    treeless: frozenset[int] = frozenset()
    advanced: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to fold."""
        return bool(self.missing or self.outputs)


def definitions(plan: Plan) -> dict[str, str]:
    """The fingerprint of each output: equal as long as the output is computed in the same way."""
    return {arrangement.output: arrangement.fingerprint for arrangement in plan.arrangements if arrangement.output}


def rebuilding(
    plan: Plan,
    stored: Collection[str],
    outputs: Collection[str],
    *,
    exact: Collection[str] = (),
    advanced: Collection[str] = (),
) -> Rebuilding:
    """What to fold anew of a plan if the arrangements with the fingerprints ``stored`` are kept. O(plan).

    ``outputs``: the names of those outputs whose logs are needed, over the whole history; those of ``exact`` at every
    version. ``advanced``: the stored arrangements whose times a compaction has advanced; what is computed from them
    is right at the last version, and need not be at earlier ones.
    """
    # A tree of partial results that is not stored is empty: it is grown by the fold that first finds a group large.
    kept = [a for a in plan.arrangements if not (a.transient or plan.is_inner(a))]
    missing = frozenset(a.index for a in kept if a.fingerprint not in stored)
    late = frozenset(a.index for a in plan.arrangements if a.fingerprint in advanced)
    before = _Search(plan, missing | late).before(exact)
    again = frozenset(port for block in before for port in plan.blocks[block].ports if port in late)
    inner = frozenset(port for port in again if plan.is_inner(plan.arrangements[port]))
    treeless = frozenset(block for block in before if inner.intersection(plan.blocks[block].ports))
    found = _Search(plan, missing | (again - inner)).result(frozenset(outputs))
    replayed = found.replayed - inner
    return replace(
        found,
        missing=missing,
        replayed=replayed,
        again=again - inner,
        treeless=treeless,
        advanced=bool(replayed & late),
    )


class _Search:
    """The search, from what is needed backwards to what is stored."""

    def __init__(self, plan: Plan, missing: frozenset[int]) -> None:
        self.plan, self.missing = plan, missing
        self.block_of: dict[int, Block] = {}  # by the node of its result
        for block in plan.blocks:
            if block.ports and isinstance(plan.operator(block), Keyed):
                self.block_of[block.node] = block
        self.input_of = {node: name for name, node in plan.sources.items()}
        self.senders: dict[int, list[int]] = {}  # the nodes whose updates reach a node without a block between them
        for sender, targets in enumerate(plan.targets):
            for target in targets:
                if target.kind != "arrange":
                    loop = target.kind in ("enter", "feed")
                    reached = plan.loops[target.index].variables[target.variable] if loop else target.index
                    self.senders.setdefault(reached, []).append(sender)
        self.replayed: set[int] = set()
        self.blocks: set[int] = set()
        self.inputs: set[str] = set()

    def before(self, outputs: Collection[str]) -> set[int]:
        """The blocks that run for the logs of these outputs alone."""
        self._walk([arrangement.node for arrangement in self.plan.arrangements if arrangement.output in outputs])
        return self.blocks

    def result(self, outputs: frozenset[str]) -> Rebuilding:
        own = {block.output: block.node for block in self.block_of.values() if block.output is not None}
        arrangements = self.plan.arrangements
        waiting = [own.get(index, arrangements[index].node) for index in self.missing]
        waiting += [arrangement.node for arrangement in arrangements if arrangement.output in outputs]
        self._walk(waiting)
        computed = {self.plan.blocks[index].output for index in self.blocks}  # again, by the blocks that run
        return Rebuilding(
            self.missing, frozenset(self.replayed - computed), frozenset(self.blocks), frozenset(self.inputs), outputs
        )

    def _walk(self, waiting: list[int]) -> None:
        """Find all that is needed for these nodes."""
        done: set[int] = set()
        while waiting:
            node = waiting.pop()
            if node not in done:
                done.add(node)
                waiting += self._before(node)

    def _before(self, node: int) -> list[int]:
        """The nodes whose history is needed for the history of ``node``."""
        if node in self.input_of:
            self.inputs.add(self.input_of[node])
            return []
        block = self.block_of.get(node)
        if block is None:
            return self.senders.get(node, [])
        self.blocks.add(block.index)
        self.replayed.update(port for port in block.ports if port not in self.missing)
        return [self.plan.arrangements[port].node for port in block.ports if port in self.missing]
