"""What an input's log holds already: sources recognised by their content, so that the same rows never count twice.

Recognised is a source whose rows were ingested before, under whatever name; and, where a file or table has grown
since it was ingested from the same place, the part of it that was there then. Content is compared by the digests in
the ledger, which are sums of keyed hashes; the key is a random one, and stands in the ledger with them. Places are
compared as they are now: with ``.``, ``..`` and symbolic links resolved, and relative to the project where they lie in
it, so that a project may be moved.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddcore.io.ledger import IngestRecord
from ddcore.io.sources import Source
from ddcore.io.updates import Digest

__all__ = ["Earlier", "Known", "Seen", "digest_key", "identity", "stored"]

_KEY_BYTES = 16


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


# --- what the ledger keeps --------------------------------------------------------------------------------------------


def identity(source: Source, root: Path) -> str:
    """The name that the ledger keeps of a source: relative to the project in ``root`` where it lies in it."""
    for path in (Path(source.path), Path(source.real)):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return source.path


def digest_key(records: Sequence[IngestRecord]) -> bytes:
    """The key under which the digests of these ingests were made, or a new one, which nobody can guess."""
    for record in reversed(records):
        for source in record.sources:
            if parsed := _parsed(source.digest):
                return parsed[0]
    return secrets.token_bytes(_KEY_BYTES)


def stored(digest: Digest, key: bytes) -> str:
    """The text that the ledger keeps of a digest."""
    return f"{key.hex()}:{digest}"


def _parsed(text: str) -> tuple[bytes, Digest] | None:
    """The key and the digest in a text of the ledger; None for one of an older form, which nothing is compared with."""
    key, colon, digest = text.partition(":")
    if not colon or len(key) != 2 * _KEY_BYTES:
        return None
    try:
        return bytes.fromhex(key), Digest.parse(digest)
    except ValueError:
        return None


# --- what is known ----------------------------------------------------------------------------------------------------


class Earlier:
    """The earlier ingests of one input. ``root`` is the project's folder, to which names in the ledger are relative."""

    def __init__(self, records: Iterable[IngestRecord], root: Path) -> None:
        self._root = root
        self._taken: dict[Digest, int] = {}
        self._named: dict[str, list[tuple[Digest, int]]] = {}  # by name
        self._places: dict[str, frozenset[str]] = {}
        self.unknown: list[int] = []  # ingests with digests of an older form: nothing of theirs is recognised
        for record in records:
            texts = [_parsed(source.digest) for source in record.sources]
            if None in texts:
                self.unknown.append(record.number)
            digests = [Digest() if parsed is None else parsed[1] for parsed in texts]
            for one in (*digests, sum(digests, Digest())):
                self._taken.setdefault(one, record.number)
            for before, one in zip(record.sources, digests, strict=True):
                self._named.setdefault(before.name, []).append((one, record.number))

    def recognise(self, sources: Sequence[Seen], number: int) -> dict[str, Known]:
        """What of these sources, by name, is in the log already. ``number`` is that of the ingest they are read for.

        All of them together are known where one earlier ingest brought the same; a source by itself where its rows
        were a source before. Of named files with the same rows the first counts; equal files in one folder all count,
        as the parts of a table that another program wrote may well be equal. Nothing is known by a digest of nothing.
        """
        taken = dict(self._taken)
        together = sum((source.whole for source in sources), Digest())
        if together and together in taken:
            return {source.name: Known(taken[together]) for source in sources}
        known = {}
        for source in sources:
            if source.whole and source.whole in taken:
                known[source.name] = Known(taken[source.whole])
            elif part := self._part_known(source):
                known[source.name] = part
            elif not source.member:
                taken.setdefault(source.whole, number)
        return known

    def _part_known(self, source: Seen) -> Known | None:
        """The longest beginning of a source that was ingested from the same place, if any."""
        here = {one: number for name in self._names_of(source) for one, number in self._named[name]}
        found, running = None, Digest()
        for version in sorted(source.digests):
            running += source.digests[version]
            if running and running in here:
                found = Known(here[running], version)
        return found

    def other_rows(self, source: Seen) -> int | None:
        """The last ingest that took in other rows from the place of ``source``; None if there was none."""
        numbers = [
            number for name in self._names_of(source) for one, number in self._named[name] if one != source.whole
        ]
        return max(numbers, default=None)

    def beginning(self, source: Seen) -> Known | None:
        """The longest beginning of a source that was ingested from another place: perhaps the same file, moved."""
        found, running = None, Digest()
        for version in sorted(source.digests):
            running += source.digests[version]
            if running and running in self._taken:
                found = Known(self._taken[running], version)
        return found

    def _names_of(self, source: Seen) -> list[str]:
        """The names in the ledger that lead to the place of ``source`` now."""
        here = self._spellings(source.identity)
        return [name for name in self._named if name == source.identity or here & self._spellings(name)]

    def _spellings(self, name: str) -> frozenset[str]:
        """A name as an absolute path, with and without symbolic links."""
        if name not in self._places:
            path = os.path.join(self._root, name)
            self._places[name] = frozenset((os.path.abspath(path), os.path.realpath(path)))
        return self._places[name]
