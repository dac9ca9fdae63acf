"""Ids of rows: a loop in which rows whose hashes collide get another hash at the next round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from ddcore.base.digests import digest
from ddcore.base.errors import ProgramError
from ddcore.base.schema import Type
from ddcore.base.source_line import caller
from ddcore.operators.intern import Contest
from ddcore.operators.row_hash import MOST_BITS, RowHash
from ddcore.program.linear import C
from ddcore.program.loops import fixed_point
from ddcore.text.wording import brief

MOST_TRIES = 1_000


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

    def check(self, rows: C, where: str) -> None:
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

    def first(self, rows: C) -> C:
        """The rows at round 0, with their ids."""
        columns = {name: pl.col(name) for name in rows.schema}
        return self.propose(rows.select(**{self.round: 0}, **columns))

    def next(self, lost: C) -> C:
        """Rows that lost, at the next round."""
        rounds = pl.col(self.round)
        return self.propose(lost.where(rounds >= 0).drop(self.id).with_columns(**{self.round: rounds + 1}))

    def propose(self, rows: C) -> C:
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


def identified(rows: C, numbering: Numbering, where: str, *, once: bool) -> C:
    """The rows and, as their last column, ids: as often as they occur, or ``once``. Raises ProgramError."""
    numbering.check(rows, where)
    start = numbering.first(rows)

    def intern(lost: C) -> C:
        proposals = start.concat(numbering.next(lost))
        text = digest(proposals.columns, str(once))
        return proposals._add(Contest(proposals.schema, text, (numbering.id,), False, once))

    intern.__name__ = f"{where} with {numbering.bits} bits" if numbering.hash is None else f"{where} with a hash"
    lost = fixed_point(start.where(pl.lit(False)), intern, None, numbering.max_rounds, "fail")
    settled = start.concat(numbering.next(lost), lost.negate())
    return settled.select(*rows.columns, numbering.id)
