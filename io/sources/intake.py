"""Intake: checks rows and writes them to data files of an input's change log, which no reader sees before the commit.

One :class:`Intake` holds the settings of a whole ingest. Each of its writers (the process of ``inline``, or each task
of a Spark job) passes its batches to :meth:`Intake.take` and gets a :class:`Part`: the files it wrote, and what the
driver needs to accept or refuse them. :func:`merge` adds up the parts of one ingest, in any order.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import polars as pl

from ddcore.base import as_json
from ddcore.base.as_json import Form, Forms, each_of, mapped
from ddcore.base.errors import DataError, LateUpdate
from ddcore.base.lattice import Frontier, is_beyond
from ddcore.base.lazy import numpy as np
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.ledger.records import COUNTS, FILES
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.digests import Digest, digests, row_hashes
from ddcore.io.logs.updates import DIFF, Counts, merge_counts
from ddcore.io.project.frontiers import shown_frontier
from ddcore.io.project.times import LARGEST_TIME, Time, parse_key
from ddcore.io.sources.known import Part as KnownPart
from ddcore.io.sources.known import without
from ddcore.io.sources.layouts import Layout, Rules, fit
from ddcore.io.sources.row_checks import normalise
from ddcore.io.sources.source import Source
from ddcore.io.sources.written_files import Batch, Files
from ddcore.io.storage.store import Location, names
from ddcore.text.wording import shown_value

Digests = dict[Time, Digest]
Key = TypeVar("Key")
Frames = Iterable[
    tuple[Layout, int | None, pl.DataFrame]
]  # the layout, the number of the first row, the source's columns

_NAME = re.compile(r"[.]?ingest-([0-9]{8,})-")


@dataclass
class Part:
    """The result of one writer.

    ``digests``: for each source, by name, the digest of its rows at each time, as they are in the source; rows that
    the log holds already are included. ``beginnings``: of sources that may have grown, the digest of the rows up to
    :attr:`Intake.grown`. ``former``, ``former_beginnings``: the same over each list of columns that the input had
    before. ``ends``: of rows without times, the number of the last one in each source.
    ``counts``: insertions and retractions at each time, after late rows were
    moved. ``late`` counts updates at closed times; ``first_late`` is the first of them. ``retracts``: whether any
    diff is negative. ``most`` is the largest diff. Both are of consolidated updates. ``distinct``: no (row, time) was
    seen in two of the files; of many rows a sample was looked at. ``tallies``: the sums of the layout's.
    """

    files: list[AddedFile] = field(default_factory=list)
    rows: int = 0
    digests: dict[str, Digests] = field(default_factory=dict)
    former: list[dict[str, Digests]] = field(default_factory=list)
    counts: Counts = field(default_factory=dict)
    beginnings: dict[str, Digest] = field(default_factory=dict)
    former_beginnings: list[dict[str, Digest]] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    late: int = 0
    first_late: tuple[Time, str, str] | None = None  # time, source, row
    retracts: bool = False
    most: int = 0
    distinct: bool = False
    tallies: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """This part as text, to be sent between processes."""
        return json.dumps(as_json.written(self, _FORMS))

    @classmethod
    def from_json(cls, text: str) -> Part:
        """The part that :meth:`to_json` wrote."""
        return as_json.read(cls, json.loads(text), _FORMS)


_BY_NAME: Form = mapped((str, Digest.parse))
_BY_TIME: Form = (
    lambda digests: {str(at): str(one) for at, one in digests.items()},
    lambda texts: {parse_key(at): Digest.parse(one) for at, one in texts.items()},
)
_FORMS: Forms = {
    "files": FILES,
    "digests": mapped(_BY_TIME),
    "former": each_of(mapped(_BY_TIME)),
    "counts": COUNTS,
    "beginnings": _BY_NAME,
    "former_beginnings": each_of(_BY_NAME),
    "first_late": (tuple, lambda late: (Time(late[0]), *late[1:])),
}


def merge(parts: Sequence[Part]) -> Part:
    """All parts of an ingest as one; the files in the order of their names."""
    late = [part.first_late for part in parts if part.first_late]
    return Part(
        files=sorted((file for part in parts for file in part.files), key=lambda file: file.path),
        rows=sum(part.rows for part in parts),
        digests=_merge_digests([part.digests for part in parts]),
        former=[_merge_digests(some) for some in zip(*(part.former for part in parts), strict=True)],
        counts=merge_counts(part.counts for part in parts),
        beginnings=_sums(part.beginnings for part in parts),
        former_beginnings=[_sums(some) for some in zip(*(part.former_beginnings for part in parts), strict=True)],
        ends={
            name: max(part.ends.get(name, 0) for part in parts)
            for name in {name for part in parts for name in part.ends}
        },
        late=sum(part.late for part in parts),
        first_late=min(late) if late else None,
        retracts=any(part.retracts for part in parts),
        most=max((part.most for part in parts), default=0),
        distinct=len(parts) == 1 and parts[0].distinct,
        tallies=dict(sum((Counter(part.tallies) for part in parts), Counter())),
    )


def _sums(parts: Iterable[Mapping[Key, Digest]]) -> dict[Key, Digest]:
    sums: dict[Key, Digest] = {}
    for part in parts:
        for key, one in part.items():
            sums[key] = sums.get(key, Digest()) + one
    return sums


def _merge_digests(parts: Sequence[Mapping[str, Digests]]) -> dict[str, Digests]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _sums(part.get(name, {}) for part in parts) for name in names}


@dataclass(frozen=True)
class Intake:
    """How the rows of one ingest are checked and written.

    ``log`` is the input's change log, ``number`` the ingest's number. Times at or beyond ``upper`` are open, without it
    all; with ``move``, updates at other times are moved: see :meth:`_move_late`. ``known`` maps sources to the times at
    which the log holds their rows already; these are left out. ``key`` is the key of the digests,
    ``former`` has the columns of rows that earlier ingests had, if they were others. ``grown``: sources of rows without
    times that may have grown, and the number of the last row that the last ingest from their places had.
    """

    log: ChangeLog
    number: int
    rules: Rules
    key: bytes = bytes(16)
    upper: Frontier | None = None
    move: bool = False
    known: Mapping[str, KnownPart] = field(default_factory=dict)
    former: tuple[tuple[str, ...], ...] = ()
    grown: Mapping[str, int] = field(default_factory=dict)

    @property
    def dims(self) -> tuple[str, ...]:
        """The time dimensions."""
        return self.rules.dims

    @property
    def closed(self) -> str:
        """Which times are closed, for a message: a clause."""
        assert self.upper is not None
        if len(self.dims) == 1:
            return f"version {self.upper[0][0] - 1} is closed"
        return f"only times at or beyond {shown_frontier(self.upper, self.dims)} are open"

    def strays(self) -> list[Location]:
        """Files of unfinished ingests in the table's folder: of this number or a later one, complete or not."""
        files = [(file, _NAME.match(file)) for file in names(self.log.folder)]
        return [self.log.folder / file for file, name in files if name and int(name[1]) >= self.number]

    def take(self, writer: str, frames: Frames) -> Part:
        """Check, consolidate, sort by time and write these rows. ``writer`` must differ between the writers of an
        ingest.

        The same frames give the same files, byte for byte. A file is written while the rows of the next one are read,
        so some 4M updates are in memory at a time. Raises DataError, LateUpdate and StorageError; files written before
        that stay, invisible, until the next ingest deletes them.
        """
        part = Part(former=[{} for _ in self.former], former_beginnings=[{} for _ in self.former])
        with Files(self.log, f"ingest-{self.number:08d}-{writer}") as files:
            for layout, first_row, frame in frames:
                files.add(self._batch(part, layout, first_row, frame))
        return replace(
            part,
            files=files.written,
            counts=files.counts,
            retracts=files.retracts,
            most=files.most,
            distinct=files.distinct,
        )

    def _batch(self, part: Part, layout: Layout, first_row: int | None, frame: pl.DataFrame) -> Batch:
        """A batch of a source as updates that go into the log; ``part`` notes what it has."""
        whole = self._whole(frame, layout, first_row)
        updates = whole.select(self.rules.columns) if self.rules.dropped else whole
        part.rows += len(frame)
        for name in layout.tallies:
            part.tallies[name] = part.tallies.get(name, 0) + int(frame[name].sum())
        # Rows without a time of their own are the same rows at whatever version they come in.
        has_times = self.rules.fallback is None or not {*layout.source_columns, *layout.folders}.isdisjoint(self.dims)
        zeros = [] if has_times else [pl.lit(0).alias(dim) for dim in self.dims]
        own = updates.with_columns(zeros)
        hashes = row_hashes(own, self.dims, self.key)
        if not has_times and first_row is not None:
            part.ends[layout.where] = max(part.ends.get(layout.where, 0), first_row + len(own) - 1)
            self._note_begun(part.beginnings, layout.where, own, hashes, first_row)
        part.digests[layout.where] = _sums([part.digests.get(layout.where, {}), digests(own, self.dims, hashes)])
        for columns, of, begun in zip(self.former, part.former, part.former_beginnings, strict=True):
            rows = whole.with_columns(zeros)
            narrow = rows.select(*self.log.as_before(columns, rows.columns), *self.dims, DIFF)
            hashes_then = row_hashes(narrow, self.dims, self.key)
            of[layout.where] = _sums([of.get(layout.where, {}), digests(narrow, self.dims, hashes_then)])
            if not has_times and first_row is not None:
                self._note_begun(begun, layout.where, narrow, hashes_then, first_row)
        fresh = self._without_known(layout.where, updates, first_row)
        self._note_late(part, fresh, layout.where)
        moved = self._move_late(fresh)
        return Batch(moved, hashes[0].copy() if moved is updates else None)

    def _whole(self, frame: pl.DataFrame, layout: Layout, first_row: int | None) -> pl.DataFrame:
        """A batch of a source as updates, with the columns that the input had before, as far as they can be read."""
        if self.rules.dropped:
            with suppress(DataError):  # nobody needs a dropped column but to recognise the source
                return normalise(frame, layout, self.rules.wide, first_row)
        return normalise(frame, layout, self.rules, first_row)

    def _note_begun(
        self, begun: dict[str, Digest], where: str, rows: pl.DataFrame, hashes: np.ndarray, first_row: int
    ) -> None:
        """Note the digest of those rows of a batch that may have been taken in before."""
        if where in self.grown:
            before = rows.head(max(0, self.grown[where] + 1 - first_row))
            digest = sum(digests(before, self.dims, hashes[:, : len(before)]).values(), Digest())
            begun[where] = begun.get(where, Digest()) + digest

    def _note_late(self, part: Part, updates: pl.DataFrame, where: str) -> None:
        if self.upper is None:
            return
        late = updates.filter(~is_beyond(self.dims, self.upper))
        if len(late):
            part.late += len(late)
            first = late.sort(*self.dims, *self.rules.schema).row(0, named=True)
            row = shown({name: first[name] for name in self.rules.schema})
            described = (Time(first[dim] for dim in self.dims), where, row)
            part.first_late = min(part.first_late or described, described)

    def landed(self, layout: Layout, frame: pl.DataFrame) -> pl.DataFrame:
        """The updates in a batch of a source that go into the log, at the times they get there."""
        return self._move_late(self._without_known(layout.where, normalise(frame, layout, self.rules)))

    def _without_known(self, where: str, updates: pl.DataFrame, first_row: int | None = None) -> pl.DataFrame:
        return without(updates, self.known[where], self.dims, first_row) if where in self.known else updates

    def _move_late(self, updates: pl.DataFrame) -> pl.DataFrame:
        """The updates with late ones at the least open time at or after theirs.

        With several dimensions there may be several such times, one for each element of ``upper``. The least in
        lexicographic order is chosen, so that the first dimensions stay as they are where possible.
        """
        if not self.move or self.upper is None or updates.select(is_beyond(self.dims, self.upper)).to_series().all():
            return updates
        columns = [updates[dim].to_numpy() for dim in self.dims]
        first, *others = ([np.maximum(*pair) for pair in zip(columns, one, strict=True)] for one in self.upper)
        for joined in others:
            less, equal = np.zeros(len(updates), dtype=bool), np.ones(len(updates), dtype=bool)
            for left, right in zip(joined, first, strict=True):
                less, equal = less | (equal & (left < right)), equal & (left == right)
            first = [np.where(less, *pair) for pair in zip(joined, first, strict=True)]
        if any((column > LARGEST_TIME).any() for column in first):
            versions = "versions" if len(self.dims) == 1 else "times"
            raise LateUpdate(
                f"rows at closed {versions} cannot move: {self.closed}, and no {versions[:-1]} is larger",
                "leave them out, or ingest into a new warehouse",
            )
        return updates.with_columns(pl.Series(dim, column) for dim, column in zip(self.dims, first, strict=True))


def shown(row: Mapping[str, Any]) -> str:
    """A row for a message: ``src=1, dst='x', day=2026-01-31, note=null``."""
    return ", ".join(f"{name}={shown_value(value)}" for name, value in row.items())


def fitted(sources: Sequence[Source], rules: Rules) -> list[tuple[Source, Layout]]:
    """Each source with its layout; DataError for the first that does not fit. Reads footers and headers only."""
    declared = [source.as_declared(rules.types) for source in sources]
    return [
        (source, fit(source.name, source.columns(), rules, folders=source.folders, text=source.is_text))
        for source in declared
    ]


def frames_of(sources: Iterable[tuple[Source, Layout]]) -> Iterator[tuple[Layout, int | None, pl.DataFrame]]:
    """The batches of these sources, read in this process."""
    for source, layout in sources:
        for first_row, frame in source.frames(layout.read):
            yield layout, None if source.cancels else first_row, frame
