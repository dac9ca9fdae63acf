"""Positions: how far sources were taken in, as the ledger keeps it with each of them.

Of sources that are not recognised by their rows, such as snapshots, it is the stamp, which is cheap to compare, and the
fingerprint of the content, for a file that was only copied or touched. Of a file of rows it is the number of the last
row, where rows have no times, and the stamp with the rules by which it was read: such a file need not be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from ddcore.io.ledger.ingest_index import IngestIndex
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.times import Time
from ddcore.io.sources.known import identity, names_at
from ddcore.io.sources.source import Located

__all__ = ["Position", "RowsTaken", "is_followed", "last_positions", "position"]


class Position(NamedTuple):
    """How far a source was taken in: the number of the last ingest from its place, the text that this kept, which may
    be empty, the last version of that ingest, and the number of the one that has replaced some of it since, or 0.
    """

    ingest: int
    text: str
    last: Time
    replaced_by: int = 0


class RowsTaken(NamedTuple):
    """The position of a file of rows: the number of its ``last`` row, where rows have no times; its ``stamp`` when it
    was read, and the digest of the ``rules``, both empty where a later change might leave the stamp as it is.
    """

    last: int | None = None
    stamp: str = ""
    rules: str = ""

    @classmethod
    def of(cls, text: str) -> Self | None:
        """What a position says; None for one of another form."""
        head, _, rest = text.partition(" ")
        word, _, last = head.partition("-")
        stamp, _, rules = rest.partition(" ")
        return cls(int(last) if last else None, stamp, rules) if word == "rows" else None

    @property
    def text(self) -> str:
        """The position for the ledger."""
        if self.last is None and not self.stamp:
            return ""
        head = "rows" if self.last is None else f"rows-{self.last}"
        return f"{head} {self.stamp} {self.rules}" if self.stamp else head


def is_followed(text: str) -> bool:
    """Whether a position is that of a source which is not recognised by its rows, such as a Delta table."""
    return bool(text) and RowsTaken.of(text) is None


def position(source: Located) -> str:
    """The position of a source for the ledger. Reads all bytes of a file."""
    return f"{source.stamp()}/{source.fingerprint()}"


def last_positions(ledger: Ledger, index: IngestIndex, sources: Sequence[Located], root: Path) -> list[Position | None]:
    """For each source its position; None for a place that nothing was taken in from.

    Reads the records of these ingests only.
    """
    names = names_at(index, [identity(source, root) for source in sources], root)
    entries = index.last_named(set().union(*names))
    lasts = [max((entries[name] for name in of if name in entries), default=None) for of in names]
    wanted = sorted({entry for entry in lasts if entry is not None})
    records = zip(wanted, ledger.ingests_at(index, wanted), strict=True)
    kept = {
        (entry, source.name): Position(record.number, source.position, record.last, record.replaced_by)
        for entry, record in records
        for source in record.sources
    }
    return [
        None if entry is None else max(kept[entry, name] for name in of if (entry, name) in kept)
        for entry, of in zip(lasts, names, strict=True)
    ]
