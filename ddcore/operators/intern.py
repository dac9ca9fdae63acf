"""``intern`` and ``with_row_id``: a small integer for each distinct row, at no version the same for two.

Every row proposes an id: its hash at round 0. Of rows that propose the same one the least wins; the others propose
their hash at the next round, until each has an id of its own. The loop carries only the rows that lost (sources:
McSherry 2018), so a round costs what collides. Rows that lost stay in the group of
the id for which they lost: they lose again, and nobody has to take them away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcore.base.lazy import numpy as np
from ddcore.data import encoding
from ddcore.operators.base import State
from ddcore.operators.evaluations import Evaluations, Targets
from ddcore.operators.reduction import Reduction, ReductionStep
from ddcore.traces.sorted_batch import SortedBatch
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block

__all__ = ["Contest", "ContestStep"]

_COPIES = -1  # the round of copies of a row beyond the first


@dataclass(frozen=True, eq=False)
class Contest(Reduction):
    """The rows of each group but the least one: those that lose the id by which they are grouped.

    Columns: the id, the round, and the others. Rows are ordered by round, then column by column; null is least.
    With ``once`` the copies of the least row lose too: all but one, at the round ``_COPIES``.
    """

    name = "intern"
    signs = "kept"
    once: bool

    def step_at(self, plan: Dataflow, block: Block, port: int) -> ReductionStep:
        """The work of a contest's block."""
        return ContestStep(self, plan, block, port)


class ContestStep(ReductionStep):
    """The step of a :class:`Contest`."""

    def __init__(self, contest: Contest, plan: Dataflow, block: Block, port: int) -> None:
        super().__init__(contest, plan, block, port)
        self.once, self.kinds = contest.once, [self.port.schema[name] for name in self.port.values]

    def relevant(self, state: State, new: SortedBatch) -> SortedBatch | None:
        """The updates of ids that are not proposed by one update alone, of one row: nobody loses there."""
        earlier, new = state.trace(self.port).before(new), new.decompress()
        alone = new.diffs == 1 if self.once else new.diffs > 0
        differ = new.codes[1:] != new.codes[:-1]
        alone[1:] &= differ
        alone[:-1] &= differ
        for other in (*earlier, *state.trace(self.output).batches):
            least, beyond = other.locate(new.codes, state.budget)
            alone &= least == beyond
        rows = np.flatnonzero(~alone)
        return new.take(rows) if len(rows) else None

    def evaluate(self, evaluations: Evaluations, history: Rows, loops: np.ndarray) -> Targets:
        """Sorts only the rows of groups with several rows: hardly any."""
        evals, rows, counts = self.accumulate(evaluations, history, loops)
        lost = self.losers(evals, rows, history)
        chosen, numbers = lost, counts[lost]
        if self.once:
            won = np.ones(len(evals), dtype=bool)
            won[lost] = False
            copies = np.flatnonzero(won & (counts > 1))
            chosen, numbers = np.concatenate([lost, copies]), np.concatenate([numbers, counts[copies] - 1])
        words = np.take(history.words, rows[chosen], axis=1)
        words[0, len(lost) :] = _COPIES
        order = np.argsort(evals[chosen], kind="stable")
        return Targets(evals[chosen[order]], np.take(words, order, axis=1), numbers[order])

    def losers(self, evals: np.ndarray, rows: np.ndarray, history: Rows) -> np.ndarray:
        """The places of rows that are not the least of their evaluation: int64[m]. ``evals`` ascends."""
        several = np.zeros(len(evals), dtype=bool)
        several[1:] = evals[1:] == evals[:-1]
        several[:-1] |= several[1:]
        contested = np.flatnonzero(several)
        if len(contested) == 0:
            return contested
        words = np.take(history.words, rows[contested], axis=1)
        ranks = [encoding.rank_words(column, kind)[0] for column, kind in zip(words, self.kinds, strict=True)]
        sorted_places = contested[np.lexsort([*ranks[::-1], evals[contested]])]
        winners = np.ones(len(sorted_places), dtype=bool)
        winners[1:] = evals[sorted_places[1:]] != evals[sorted_places[:-1]]
        return sorted_places[~winners]
