"""What tasks do for a published table: some read shares of the output's log and send its rows to the ranges of the
table's order; others write a range; and where changes of a key may be in several ranges, others again the change feed.

The driver samples, divides, and commits what the tasks report. A task that is repeated writes files of the same
contents; those that no report names are in no commit.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from ddcore.io.delta.new_files import Unsynced
from ddcore.io.delta.table_files import AddedFile, LiveFile
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.digests import row_hashes
from ddcore.io.project.times import Time
from ddcore.io.publishing.division import Division
from ddcore.io.publishing.ranges import first_from, first_of
from ddcore.io.publishing.table import NewFile, Table, sums

_PIECE = 1 << 20  # bytes of rows that are sent at once, about


class Share(NamedTuple):
    """So many rows of a file of a log, from ``start`` on."""

    file: LiveFile
    start: int
    rows: int


@dataclass(frozen=True)
class Reading:
    """The updates of a log that count at one of two times only, as :meth:`ChangeLog.between`, in ``shares``."""

    log: ChangeLog
    since: Time | None
    at: Time
    shares: tuple[tuple[Share, ...], ...]

    @classmethod
    def of(cls, log: ChangeLog, files: Sequence[LiveFile], since: Time | None, at: Time, number: int) -> Reading:
        """Of some files, in about so many shares."""
        shares, share = list[list[Share]](), max(1, -(-sum(file.rows for file in files) // number))
        taken = 0
        for file in files:
            start = 0
            while start < file.rows:
                if taken % share == 0:
                    shares.append([])
                rows = min(file.rows - start, share - taken % share)
                shares[-1].append(Share(file, start, rows))
                start, taken = start + rows, taken + rows
        return cls(replace(log, writer=None), since, at, tuple(map(tuple, shares or [[]])))

    @property
    def rows(self) -> int:
        """An upper bound of the updates."""
        return sum(share.rows for shares in self.shares for share in shares)

    def updates(self, number: int, columns: Sequence[str] = ()) -> Iterator[pl.DataFrame]:
        """The updates of a share, in frames; or some columns of them. StorageError, DiffOverflow."""
        log = self.log
        for file, start, rows in self.shares[number]:
            part = log.weighed(log.scan_files([file]).slice(start, rows), self.since, self.at)
            part = part.filter(pl.col("diff") != 0)
            for frame in log.batches(part.select(columns) if columns else part, log.tuning.fed_rows):
                yield frame if columns else log.narrowed(frame)

    def sample(self, number: int, columns: Sequence[str], every: int) -> pl.DataFrame:
        """Of so many updates of a share one, in some columns."""
        parts, seen = [pl.DataFrame(schema={name: self.log.schema[name].polars for name in columns})], 0
        for frame in self.updates(number, columns):
            parts.append(frame.gather_every(every, -seen % every))
            seen += len(frame)
        return pl.concat(parts)


class Answer(NamedTuple):
    """What was written, for the table and for its change feed, what goes, and how many rows came and went; by so many
    ``tasks``, 0: by this process.
    """

    added: Sequence[NewFile] = ()
    removed: Sequence[str] = ()
    feed: Sequence[AddedFile] = ()
    plus: int = 0
    minus: int = 0
    tasks: int = 0

    def to_json(self) -> dict[str, Any]:
        """The fields for JSON, as a task sends them to the driver."""
        added = [(*_fields(new.file), first_of(new.first)) for new in self.added]
        feed = [_fields(file) for file in self.feed]
        return {**self._asdict(), "added": added, "removed": [*self.removed], "feed": feed}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Answer:
        """The answer that :meth:`to_json` wrote."""
        added = [NewFile(AddedFile(*fields), first_from(first)) for *fields, first in answer["added"]]
        return cls(**{**answer, "added": added, "feed": [AddedFile(*fields) for fields in answer["feed"]]})


def joined(answers: Sequence[Answer]) -> Answer:
    """What all tasks together have written. A file that was divided between some goes once."""
    return Answer(
        [new for answer in answers for new in answer.added],
        [*dict.fromkeys(path for answer in answers for path in answer.removed)],
        [file for answer in answers for file in answer.feed],
        sum(answer.plus for answer in answers),
        sum(answer.minus for answer in answers),
    )


def _fields(file: AddedFile) -> tuple[Any, ...]:
    return file.path, file.size, file.rows, file.stats, {**file.partition}


Piece = tuple[int, bytes]  # the task that it is for, and rows, or nothing


@dataclass(frozen=True)
class RangeWork:
    """What tasks need to know to write a table. ``is_whole``: what is read is all that the table is to hold, and what
    it holds goes; ``compares``: it is that, and the table gets what differs; else it is what changes.
    """

    table: Table
    reading: Reading
    division: Division
    run: int
    is_whole: bool = False
    compares: bool = False

    @property
    def ranges(self) -> int:
        """How many there are."""
        return len(self.division.groups)

    @property
    def feeds_apart(self) -> bool:
        """Whether the change feed is written by other tasks: rows of a key are in several ranges."""
        return bool(self.table.key) and not self.is_whole

    def read(self, number: int) -> Iterator[Piece]:
        """A share of the log, by range. The first has something for all, so that there is a task for each."""
        if number == 0:
            yield from ((number, b"") for number in range(self.ranges))
        for frame in self.reading.updates(number):
            for index, part in self.table.order.numbered(frame, self.division.cuts):
                yield from ((index, body) for body in _packed(part))

    def write(self, number: int, bodies: Iterable[bytes]) -> tuple[Answer, Iterator[Piece]]:
        """Write a range; its rows come in pieces. Also what tasks get that write the change feed.

        StorageError where the table is not as it was left.
        """
        log, names = self.reading.log, list(self.table.rows)
        frames = [_unpacked(body) for body in bodies if body]
        rows = log.sums(pl.concat(frames).lazy()) if frames else self._nothing()
        with Unsynced() as unsynced:
            table = replace(self.table, unsynced=unsynced)
            if self.is_whole:
                return Answer(table.written(rows), plus=int(rows["diff"].sum())), iter(())
            files, span = self.division.groups[number], self.division.span(number)
            if self.compares:
                rows = sums([rows, table.held(files, span).with_columns(diff=-pl.col("diff"))], names)
            change = table.changed(files, rows, span)
            feed = [] if self.feeds_apart else table.feed(self.run, change.old, change.new)
        sent = self._by_key(change.old, change.new) if self.feeds_apart else iter(())
        return Answer(change.added, change.removed, feed, change.plus, change.minus), sent

    def feed(self, bodies: Iterable[bytes]) -> Answer:
        """Write a part of the change feed, all rows of some keys."""
        frames = [_unpacked(body) for body in bodies if body]
        if not frames:
            return Answer()
        rows = pl.concat(frames)
        old, new = (rows.filter(pl.col(_IS_NEW) == is_new).drop(_IS_NEW) for is_new in (False, True))
        with Unsynced() as unsynced:
            return Answer(feed=replace(self.table, unsynced=unsynced).feed(self.run, old, new))

    def _nothing(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**{n: kind.polars for n, kind in self.table.rows.items()}, "diff": pl.Int64})

    def _by_key(self, old: pl.DataFrame, new: pl.DataFrame) -> Iterator[Piece]:
        """Changed rows, as they were and as they are, to the tasks that have their keys."""
        for rows, is_new in ((old, False), (new, True)):
            if rows.is_empty():
                continue
            plain = [name for name in self.table.key if not self.table.rows[name].stored.is_nested]
            hashes = row_hashes(rows.select(plain), (), bytes(16))[0] if plain else np.zeros(len(rows), np.uint64)
            owner = pl.Series("_owner", hashes) % self.ranges
            marked = rows.with_columns(owner, pl.lit(is_new).alias(_IS_NEW))
            for (number,), part in marked.partition_by("_owner", as_dict=True).items():
                yield from ((int(str(number)), body) for body in _packed(part.drop("_owner")))


_IS_NEW = "_is_new"  # no column of an output begins with _


class Tasks(Protocol):
    """Tasks that run side by side, on other machines maybe."""

    @property
    def slots(self) -> int:
        """How many run at a time."""

    def sampled(self, reading: Reading, columns: Sequence[str], every: int) -> Sequence[pl.DataFrame]:
        """:meth:`Reading.sample` of all shares."""

    def written(self, work: RangeWork) -> Sequence[Answer]:
        """What all tasks have written. Raises the first error."""


def _packed(rows: pl.DataFrame) -> Iterator[bytes]:
    """Rows in pieces."""
    size = max(1, int(len(rows) * _PIECE / max(_PIECE, rows.estimated_size())))
    for part in rows.iter_slices(size):
        buffer = io.BytesIO()
        part.write_ipc(buffer)
        yield buffer.getvalue()


def _unpacked(body: bytes) -> pl.DataFrame:
    return pl.read_ipc(io.BytesIO(body))
