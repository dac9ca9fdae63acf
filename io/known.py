"""What an input's log holds already: sources recognised by their content, so that the same rows never count twice.

Recognised is a source whose rows were ingested before, under whatever name; and, where a file or table has grown
since it was ingested under its own name, the part of it that was there then. Content is compared by the digests in
the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddcore.io.ledger import IngestRecord
from ddcore.io.updates import Digest

__all__ = ["Known", "Seen", "is_other_now", "recognise"]


@dataclass(frozen=True)
class Seen:
    """A source that was just read: how messages call it, by what name the ledger does, and its digest at each version.

    A ``member`` is a file that nobody named, but a folder it is in.
    """

    name: str
    identity: str
    member: bool
    digests: dict[int, Digest]

    @property
    def whole(self) -> Digest:
        """The digest of all its rows."""
        return sum(self.digests.values(), Digest())


@dataclass(frozen=True)
class Known:
    """Ingest ``number`` took in the rows of a source up to version ``upto``, or all of them where that is None."""

    number: int
    upto: int | None = None


def recognise(records: Iterable[IngestRecord], sources: Sequence[Seen], number: int) -> dict[str, Known]:
    """What of these sources, by name, is in the log already. ``number`` is that of the ingest they are read for.

    All of them together are known where one earlier ingest brought the same; a source by itself where its rows were a
    source before. Of named files with the same rows the first counts; equal files in one folder all count, as the
    parts of a table that another program wrote may well be equal. Nothing is known by a digest of nothing.
    """
    taken: dict[Digest, int] = {}
    grown: dict[tuple[str, Digest], int] = {}
    for record in records:
        digests = [Digest.parse(source.digest) for source in record.sources]
        for one in (*digests, sum(digests, Digest())):
            taken.setdefault(one, record.number)
        for before, one in zip(record.sources, digests, strict=True):
            grown[before.name, one] = record.number
    together = sum((source.whole for source in sources), Digest())
    if together and together in taken:
        return {source.name: Known(taken[together]) for source in sources}
    known = {}
    for source in sources:
        if source.whole and source.whole in taken:
            known[source.name] = Known(taken[source.whole])
        elif part := _part_known(source, grown):
            known[source.name] = part
        elif not source.member:
            taken.setdefault(source.whole, number)
    return known


def _part_known(source: Seen, grown: dict[tuple[str, Digest], int]) -> Known | None:
    """The longest beginning of a source that was ingested under its name, if any."""
    found, running = None, Digest()
    for version in sorted(source.digests):
        running += source.digests[version]
        if running and (source.identity, running) in grown:
            found = Known(grown[source.identity, running], version)
    return found


def is_other_now(records: Iterable[IngestRecord], source: Seen) -> int | None:
    """The last ingest that took in other rows under the name of ``source``; None if there was none."""
    numbers = [
        record.number
        for record in records
        for before in record.sources
        if before.name == source.identity and Digest.parse(before.digest) != source.whole
    ]
    return max(numbers, default=None)
