"""Positions: how far sources were taken in, as the ledger keeps it with each of them.

Of sources that are not recognised by their rows, such as snapshots, it is the stamp, which is cheap to compare, and the
fingerprint of the content, for a file that was only copied or touched; of files of rows it is what
:mod:`ddcore.io.sources.rows_taken` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ddcore.io.ledger.ingest_index import IngestIndex
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.times import Time
from ddcore.io.sources.known import identity, names_at
from ddcore.io.sources.source import Located


class Position(NamedTuple):
    """How far a source was taken in: the number of the last ingest from its place, the text that this kept, which may
    be empty, the last version of that ingest, and the number of the one that has replaced some of it since, or 0.
    """

    ingest: int
    text: str
    last: Time
    replaced_by: int = 0


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
