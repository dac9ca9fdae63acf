"""Known sources: recognised by their content, so that the same rows never count twice.

A source is known if its rows were ingested before, under whatever name. If a file or table has grown since it was
ingested from the same place, its earlier part is known. Contents are compared by the digests in the ledger, which are
sums of hashes under a random key; the ledger keeps the key with them. Places are compared as they are now: with ``.``,
``..`` and symbolic links resolved, and relative to the project if they are inside it, so that a project may be moved.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ddcore.io.ledger.ingest_index import IngestIndex, mark
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord
from ddcore.io.logs.digests import Digest
from ddcore.io.project.times import Time
from ddcore.io.sources.source import Located

_KEY_BYTES = 16


class Rows(NamedTuple):
    """The rows of a source up to the one of this number, of a file to whose end others are appended."""

    last: int


# The part of a source whose rows the log holds: with one dimension all versions up to one, with several a set of times.
Part = Time | frozenset[Time] | Rows


@dataclass(frozen=True)
class SourceIdentity:
    """A source that was just read: its name in messages, its name in the ledger, and its digest at each time.

    ``member``: the file was found in a folder that the user named. ``beginning``: of rows without times, those that the
    last ingest from this place had, if they are still its first ones, and their digest.
    """

    name: str
    identity: str
    member: bool
    digests: dict[Time, Digest]
    beginning: tuple[Rows, Digest] | None = None

    @property
    def whole(self) -> Digest:
        """The digest of all its rows."""
        return sum(self.digests.values(), Digest())

    @property
    def is_in_order(self) -> bool:
        """Whether its rows have versions, so that it grows at its end."""
        return any(len(time) == 1 for time in self.digests)


@dataclass(frozen=True)
class AlreadyIngested:
    """Ingest ``number`` took in the rows of a source in ``part``; all of them for None.

    ``replaced_by``: the restatement that has replaced some of these rows since, 0 for none.
    """

    number: int
    part: Part | None = None
    replaced_by: int = 0


def without(updates: pl.DataFrame, part: Part, dims: Sequence[str], first_row: int | None = None) -> pl.DataFrame:
    """The updates that are not in a part, in their order; ``first_row`` is the number of the first of them."""
    if isinstance(part, Rows):
        return updates.slice(max(0, part.last + 1 - (first_row or 0)))
    if isinstance(part, Time):
        return updates.filter(pl.col(dims[0]) > part.version)
    times = pl.DataFrame(sorted(part), schema=dict.fromkeys(dims, pl.Int64), orient="row")
    return updates.join(times, on=list(dims), how="anti", maintain_order="left")


# --- names and digests in the ledger ----------------------------------------------------------------------------------


def identity(source: Located, root: Path) -> str:
    """The name of a source in the ledger: a path, relative to the project in ``root`` if it is inside it."""
    for path in (Path(source.path), Path(source.real)):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return source.path


def digest_key(records: Iterable[IngestRecord]) -> bytes:
    """The key of the digests of these ingests, or a new random one."""
    for record in records:
        for source in record.sources:
            return _parse(source.digest)[0]
    return secrets.token_bytes(_KEY_BYTES)


def stored(digest: Digest, key: bytes) -> str:
    """The text of a digest in the ledger."""
    return f"{key.hex()}:{digest}"


def _parse(text: str) -> tuple[bytes, Digest]:
    """The key and the digest in a text of the ledger."""
    key, _, digest = text.partition(":")
    return bytes.fromhex(key), Digest.parse(digest)


# --- finding the ingests to compare with ------------------------------------------------------------------------------


def find_earlier(
    ledger: Ledger, index: IngestIndex, sources: Sequence[SourceIdentity], root: Path, columns: tuple[str, ...]
) -> IngestHistory:
    """The earlier ingests of an input that matter for these sources, whose digests are over ``columns``.

    Those with the rows of a source, of its beginning, or of all sources together; and for each source the last with
    other rows from its place. With several dimensions: all that may have rows at times of the sources, so also those
    that one of them rests on. Looks once at each name in the index, which may be a link now.
    """
    return IngestHistory(ledger.ingests_at(index, _candidates(index, sources, root, columns)), root, columns)


def _candidates(
    index: IngestIndex, sources: Sequence[SourceIdentity], root: Path, columns: tuple[str, ...]
) -> set[int]:
    wholes = [source.whole for source in sources]
    marks, entries = {mark(one.total) for one in (*wholes, sum(wholes, Digest()))}, set[int]()
    for source in sources:
        if source.is_in_order:
            marks.update(mark(part.total) for part in _beginnings(source))
            marks.update([mark(source.beginning[1].total)] if source.beginning else [])
        elif source.digests:
            firsts = [time[0] for time in source.digests]
            entries |= index.between(min(firsts), max(firsts))
    entries |= index.with_marks(marks - {mark(0)})
    names = names_at(index, [source.identity for source in sources], root)
    named = index.named({name for of in names for name in of}, columns)
    for whole, of in zip(wholes, names, strict=True):
        others = [entry for name in of for entry, one in named[name] if one != mark(whole.total)]
        entries.update([max(others)] if others else ())
    return entries


def names_at(index: IngestIndex, identities: Sequence[str], root: Path) -> list[set[str]]:
    """For each source, by its name for the ledger, the names in the ledger that now lead to its place."""
    places = Locations(root)
    here = [places.of(one) for one in identities]
    names: dict[str, set[str]] = {identity_at: set() for places in here for identity_at in places}
    lasts = {".", "..", *(os.path.basename(identity_at) for identity_at in names)}
    for name in index.names():
        path = places.path(name)
        # Without links at its end, a name leads to a place that ends as it does.
        if path.rpartition("/")[2] in lasts or os.path.islink(path):
            for identity_at in places.of(name):
                if identity_at in names:
                    names[identity_at].add(name)
    return [set().union(*(names[identity_at] for identity_at in places)) for places in here]


def _beginnings(source: SourceIdentity) -> Iterator[Digest]:
    """The digests of all beginnings of a source, by versions."""
    running = Digest()
    for version in sorted(source.digests):
        running += source.digests[version]
        yield running


class Locations:
    """Where names in the ledger lead now, relative to ``root``."""

    def __init__(self, root: Path) -> None:
        self._root, self._known = str(root).rstrip("/"), dict[str, tuple[str, str]]()

    def path(self, name: str) -> str:
        """A name as an absolute path, not normalised."""
        return name if name.startswith("/") else f"{self._root}/{name}"

    def of(self, name: str) -> tuple[str, str]:
        """A name as an absolute path, with and without symbolic links."""
        if name not in self._known:
            path = self.path(name)
            self._known[name] = os.path.abspath(path), os.path.realpath(path)
        return self._known[name]


# --- recognising sources ----------------------------------------------------------------------------------------------


class IngestHistory:
    """The earlier ingests of one input. Names in the ledger are relative to ``root``, the project's folder.

    Recognises sources by digests over ``columns``, that is, only those whose ingests had these columns.
    """

    def __init__(self, records: Iterable[IngestRecord], root: Path, columns: tuple[str, ...] = ()) -> None:
        self._ingest_of: dict[Digest, int] = {}
        self._by_name: dict[str, list[tuple[Digest, int]]] = {}  # by name
        self._locations = Locations(root)
        self._times: dict[int, frozenset[Time]] = {}  # of an ingest and of those it rests on
        self._replaced_by: dict[int, int] = {}
        for record in records:
            rests = (self._times.get(number, frozenset()) for number in record.rests_on)
            self._times[record.number] = frozenset(record.all_counts).union(*rests)
            self._replaced_by[record.number] = record.replaced_by
            if columns and record.columns != columns:
                continue
            digests = [_parse(source.digest)[1] for source in record.sources]
            for one in (*digests, sum(digests, Digest())):
                self._ingest_of.setdefault(one, record.number)
            for before, one in zip(record.sources, digests, strict=True):
                self._by_name.setdefault(before.name, []).append((one, record.number))

    def recognise(self, sources: Sequence[SourceIdentity], number: int) -> dict[str, AlreadyIngested]:
        """The sources, or parts of them, that the log holds already, by name. ``number`` is the new ingest's number.

        All sources together are known if one earlier ingest had the same rows. One source is known if its rows were a
        source before. Of several named files with the same rows only the first counts. Equal files in one folder all
        count: another program may write a table's parts with equal contents. An empty source is never known. A source
        whose rows a restatement replaced since is known too, or the replaced rows would come back.
        """
        known = self._recognise(sources, number)
        return {name: replace(one, replaced_by=self._replaced_by.get(one.number, 0)) for name, one in known.items()}

    def _recognise(self, sources: Sequence[SourceIdentity], number: int) -> dict[str, AlreadyIngested]:
        ingest_of = dict(self._ingest_of)
        together = sum((source.whole for source in sources), Digest())
        if together and together in ingest_of:
            return {source.name: AlreadyIngested(ingest_of[together]) for source in sources}
        known = {}
        for source in sources:
            if source.whole and source.whole in ingest_of:
                known[source.name] = AlreadyIngested(ingest_of[source.whole])
            elif part := self._part_known(source):
                known[source.name] = part
            elif not source.member:
                ingest_of.setdefault(source.whole, number)
        return known

    def _part_known(self, source: SourceIdentity) -> AlreadyIngested | None:
        """The largest part of a source that was ingested from the same place, if any."""
        here = {(number, one.total) for name in self._names_of(source) for one, number in self._by_name[name]}
        if source.beginning is not None:
            part, digest = source.beginning
            numbers = [number for number, total in here if total == digest.total]
            return AlreadyIngested(max(numbers), part) if numbers else None
        return self._largest_part(source, {Digest(total): number for number, total in sorted(here)})

    def _largest_part(self, source: SourceIdentity, ingest_of: Mapping[Digest, int]) -> AlreadyIngested | None:
        """The largest part of a source that is one of these ingested contents, if any.

        A file grows by versions at its end. With several dimensions there is no end: it may have grown at any times
        that the earlier ingest did not have.
        """
        known = None
        if source.is_in_order:
            for version, running in zip(sorted(source.digests), _beginnings(source), strict=True):
                if running and running in ingest_of:
                    known = AlreadyIngested(ingest_of[running], version)
            return known
        largest = 0
        for one, number in ingest_of.items():
            times = self._times[number] & source.digests.keys()
            if one and len(times) > largest and sum((source.digests[time] for time in times), Digest()) == one:
                known, largest = AlreadyIngested(number, times), len(times)
        return known

    def other_rows(self, source: SourceIdentity) -> int | None:
        """The last ingest of other rows from the place of ``source``; None without one."""
        numbers = [
            number for name in self._names_of(source) for one, number in self._by_name[name] if one != source.whole
        ]
        return max(numbers, default=None)

    def beginning(self, source: SourceIdentity) -> AlreadyIngested | None:
        """The largest part of a source that was ingested from any place: the file may have been moved."""
        return self._largest_part(source, self._ingest_of)

    def _names_of(self, source: SourceIdentity) -> list[str]:
        """The names in the ledger that now lead to the place of ``source``."""
        here = frozenset(self._locations.of(source.identity))
        return [name for name in self._by_name if not here.isdisjoint(self._locations.of(name))]
