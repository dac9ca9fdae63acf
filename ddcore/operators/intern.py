"""``intern`` and ``with_row_id``: a small integer for each distinct row, at no version the same for two.

Every row proposes an id: its hash at round 0. Of rows that propose the same one the least wins; the others propose
their hash at the next round, until each has an id of its own. The loop carries only the rows that lost (McSherry's
edits relative to the initial collection), so a round costs what collides. Rows that lost stay in the group of
the id for which they lost: they lose again, and nobody has to take them away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcore.base.digests import digest
from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.base.source_line import caller
from ddcore.data import encoding
from ddcore.operators.base import State, Step
from ddcore.operators.reduction import Evaluations, Reduction, ReductionStep, Targets
from ddcore.operators.row_hash import MOST_BITS, RowHash
from ddcore.text.wording import brief
from ddcore.traces.sorted_batch import SortedBatch
from ddcore.traces.trace import Rows

if TYPE_CHECKING:
    from ddcore.planning.plan import Block, Plan
    from ddcore.program.collection import Collection

__all__ = ["MOST_TRIES", "Contest", "ContestStep", "Numbering", "identified"]

MOST_TRIES = 1_000

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

    def step(self, plan: Plan, block: Block) -> Step:
        """The work of a contest's block."""
        return ContestStep(self, plan, block)


class ContestStep(ReductionStep):
    """The step of a :class:`Contest`."""

    def __init__(self, contest: Contest, plan: Plan, block: Block) -> None:
        super().__init__(contest, plan, block)
        self.once, self.kinds = contest.once, [self.port.schema[name] for name in self.port.values]

    def relevant(self, state: State, new: SortedBatch) -> SortedBatch | None:
        """The updates of ids that are not proposed by one update alone, of one row: nobody loses there."""
        earlier, new = state.trace(self.port).before(new), new.widen()
        alone = new.diffs == 1 if self.once else new.diffs > 0
        differ = new.codes[1:] != new.codes[:-1]
        alone[1:] &= differ
        alone[:-1] &= differ
        for other in (*earlier, *state.trace(self.output).batches):
            least, beyond = other.locate(new.codes)
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


@dataclass(frozen=True)
class Numbering:
    """How rows get ids: the column ``id``, the width ``bits`` of the built-in hash or an expression ``hash`` of the
    columns and ``round``, and the limit of rounds.
    """

    id: str
    bits: int
    hash: Any
    max_rounds: int

    @property
    def round(self) -> str:
        """The column of the round."""
        return "_round" if self.hash is None else "round"

    def check(self, rows: Collection, where: str) -> None:
        """Raises ProgramError for an id, a width or a hash that does not fit the rows."""
        if not isinstance(self.id, str) or not self.id or self.id == self.round:
            raise ProgramError(f"{caller()}: {where}: id is {brief(self.id)}", 'give a name, for example id="row_id"')
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 0 < self.bits <= MOST_BITS:
            raise ProgramError(
                f"{caller()}: {where}: bits is {brief(self.bits)}", f"give a whole number up to {MOST_BITS}"
            )
        for name in (self.id, self.round):
            if name in rows.schema:
                hint = "rename it with rename()" + (f", or give {where}() another id=" if name == self.id else "")
                raise ProgramError(f"{caller()}: {where}: there is a column {name} already", hint)
        nested = [name for name, kind in rows.schema.items() if kind.is_nested and self.hash is None]
        if nested:
            raise ProgramError(
                f"{caller()}: {where}: {nested[0]} is {rows.schema[nested[0]]}, for which there is no specified hash",
                "select() its parts, or give a hash= that does not use it",
            )

    def first(self, rows: Collection) -> Collection:
        """The rows at round 0, with their ids."""
        columns = {name: pl.col(name) for name in rows.schema}
        return self.propose(rows.select(**{self.round: 0}, **columns))

    def next(self, lost: Collection) -> Collection:
        """Rows that lost, at the next round."""
        rounds = pl.col(self.round)
        return self.propose(lost.where(rounds >= 0).drop(self.id).with_columns(**{self.round: rounds + 1}))

    def propose(self, rows: Collection) -> Collection:
        """Rows with a round, and their ids before the other columns. Raises ProgramError for a hash of another type."""
        if self.hash is None:
            schema, text = {self.id: Type("int64")} | rows.schema, digest(self.round, str(self.bits))
            return rows._add(RowHash(schema, text, rows.schema, self.round, self.bits))
        hashed = rows.with_columns(**{self.id: self.hash})
        if hashed.schema[self.id].name != "int64":
            raise ProgramError(
                f"{caller()}: the hash of intern is {hashed.schema[self.id]}, not int64", "cast it to an integer"
            )
        return hashed.select(self.id, *rows.columns)


def identified(rows: Collection, numbering: Numbering, where: str, *, once: bool) -> Collection:
    """The rows and, as their last column, ids: as often as they occur, or ``once``. Raises ProgramError."""
    numbering.check(rows, where)
    start = numbering.first(rows)

    def intern(lost: Collection) -> Collection:
        proposals = start.concat(numbering.next(lost))
        text = digest(proposals.columns, str(once))
        return proposals._add(Contest(proposals.schema, text, (numbering.id,), False, once))

    intern.__name__ = f"{where} with {numbering.bits} bits" if numbering.hash is None else f"{where} with a hash"
    lost = start.where(pl.lit(False)).iterate(intern, max_rounds=numbering.max_rounds)
    settled = start.concat(numbering.next(lost), lost.negate())
    return settled.select(*rows.columns, numbering.id)
