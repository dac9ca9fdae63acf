"""Known sources: recognised by their content, so that the same rows never count twice.

A source is known if its rows were ingested before, under whatever name. If a file or table has grown since it was
ingested from the same place, its earlier part is known. Contents are compared by the digests in the ledger, which are
sums of hashes under a random key; the ledger keeps the key with them. Places are compared as they are now: with ``.``,
``..`` and symbolic links resolved, and relative to the project if they are inside it, so that a project may be moved.
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
    """A source that was just read: its name in messages, its name in the ledger, and its digest at each version.

    ``member``: the file was found in a folder that the user named.
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
    """Ingest ``number`` holds the rows of a source up to version ``upto``; all of them for None."""

    number: int
    upto: int | None = None


# --- names and digests in the ledger ----------------------------------------------------------------------------------


def identity(source: Source, root: Path) -> str:
    """The name of a source in the ledger: a path, relative to the project in ``root`` if it is inside it."""
    for path in (Path(source.path), Path(source.real)):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return source.path


def digest_key(records: Sequence[IngestRecord]) -> bytes:
    """The key of the digests of these ingests, or a new random one."""
    for record in reversed(records):
        for source in record.sources:
            if parsed := _parse(source.digest):
                return parsed[0]
    return secrets.token_bytes(_KEY_BYTES)


def stored(digest: Digest, key: bytes) -> str:
    """The text of a digest in the ledger."""
    return f"{key.hex()}:{digest}"


def _parse(text: str) -> tuple[bytes, Digest] | None:
    """The key and the digest in a text of the ledger; None for an older form, which cannot be compared."""
    key, colon, digest = text.partition(":")
    if not colon or len(key) != 2 * _KEY_BYTES:
        return None
    try:
        return bytes.fromhex(key), Digest.parse(digest)
    except ValueError:
        return None


# --- recognising sources ----------------------------------------------------------------------------------------------


class Earlier:
    """The earlier ingests of one input. Names in the ledger are relative to ``root``, the project's folder."""

    def __init__(self, records: Iterable[IngestRecord], root: Path) -> None:
        self._root = root
        self._ingest_of: dict[Digest, int] = {}
        self._by_name: dict[str, list[tuple[Digest, int]]] = {}  # by name
        self._places: dict[str, frozenset[str]] = {}
        self.unknown: list[int] = []  # ingests with digests of an older form, whose sources cannot be recognised
        for record in records:
            texts = [_parse(source.digest) for source in record.sources]
            if None in texts:
                self.unknown.append(record.number)
            digests = [Digest() if parsed is None else parsed[1] for parsed in texts]
            for one in (*digests, sum(digests, Digest())):
                self._ingest_of.setdefault(one, record.number)
            for before, one in zip(record.sources, digests, strict=True):
                self._by_name.setdefault(before.name, []).append((one, record.number))

    def recognise(self, sources: Sequence[Seen], number: int) -> dict[str, Known]:
        """The sources, or parts of them, that the log holds already, by name. ``number`` is the new ingest's number.

        All sources together are known if one earlier ingest had the same rows. One source is known if its rows were a
        source before. Of several named files with the same rows only the first counts. Equal files in one folder all
        count: another program may write a table's parts with equal contents. An empty source is never known.
        """
        ingest_of = dict(self._ingest_of)
        together = sum((source.whole for source in sources), Digest())
        if together and together in ingest_of:
            return {source.name: Known(ingest_of[together]) for source in sources}
        known = {}
        for source in sources:
            if source.whole and source.whole in ingest_of:
                known[source.name] = Known(ingest_of[source.whole])
            elif part := self._part_known(source):
                known[source.name] = part
            elif not source.member:
                ingest_of.setdefault(source.whole, number)
        return known

    def _part_known(self, source: Seen) -> Known | None:
        """The longest beginning of a source that was ingested from the same place, if any."""
        here = {one: number for name in self._names_of(source) for one, number in self._by_name[name]}
        known, running = None, Digest()
        for version in sorted(source.digests):
            running += source.digests[version]
            if running and running in here:
                known = Known(here[running], version)
        return known

    def other_rows(self, source: Seen) -> int | None:
        """The last ingest of other rows from the place of ``source``; None without one."""
        numbers = [
            number for name in self._names_of(source) for one, number in self._by_name[name] if one != source.whole
        ]
        return max(numbers, default=None)

    def beginning(self, source: Seen) -> Known | None:
        """The longest beginning of a source that was ingested from any place: the file may have been moved."""
        known, running = None, Digest()
        for version in sorted(source.digests):
            running += source.digests[version]
            if running and running in self._ingest_of:
                known = Known(self._ingest_of[running], version)
        return known

    def _names_of(self, source: Seen) -> list[str]:
        """The names in the ledger that now lead to the place of ``source``."""
        here = self._spellings(source.identity)
        return [name for name in self._by_name if name == source.identity or here & self._spellings(name)]

    def _spellings(self, name: str) -> frozenset[str]:
        """A name as an absolute path, with and without symbolic links."""
        if name not in self._places:
            path = os.path.join(self._root, name)
            self._places[name] = frozenset((os.path.abspath(path), os.path.realpath(path)))
        return self._places[name]
