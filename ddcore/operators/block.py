"""Blocks: the steps of a worker, and their positions in the order of its work."""

from __future__ import annotations

from ddcore.base.record import record

Position = tuple[int, ...]
Rounds = tuple[int, ...]  # of the loops around, outermost first


@record
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
    source_line: str
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
