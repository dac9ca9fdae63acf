"""Snapshots: files, folders and tables that hold the whole content of an input at a version.

An input stores differences, so a series of snapshots is itself a source of updates: what the first changes in what the
input holds, and what each of the others changes in the one before it. Rows are compared as everywhere here: null equals
null, NaN equals NaN. A row that occurs twice has the count 2.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from ddcore.base.errors import DataError
from ddcore.base.lazy import polars as pl
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.logs.updates import DIFF
from ddcore.io.project.times import Time
from ddcore.io.sources.layouts import Layout, Rules
from ddcore.io.sources.pairs import without_pairs
from ddcore.io.sources.paths import named_again, quoted, spark_columns
from ddcore.io.sources.row_checks import rows_of
from ddcore.io.sources.source import Batches, Located, Source
from ddcore.io.sources.spark import ERROR, cores, in_tasks, shares, through

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ddcore.io.delta.table_files import LiveFile, TableState
    from ddcore.io.logs.changelog import ChangeLog

Frames = Iterator["pl.DataFrame"]
How = tuple[Layout, Time, Time | None]


@dataclass(frozen=True)
class Snapshot(Located):
    """One snapshot: a file, a table at one version, or all files of a folder."""

    parts: tuple[Source, ...]

    def stamp(self) -> str:
        """The stamps of all parts, as one."""
        return self._over_parts(lambda part: part.stamp())

    def date(self) -> datetime | None:
        """The date of the newest part."""
        return max((date for part in self.parts if (date := part.date()) is not None), default=None)

    def fingerprint(self) -> str:
        """The fingerprints of all parts, as one."""
        return self._over_parts(lambda part: part.fingerprint())

    def is_at(self, position: str) -> bool:
        """Whether all parts are as at this position."""
        return self.parts[0].is_at(position) if len(self.parts) == 1 else super().is_at(position)

    def _over_parts(self, text: Callable[[Source], str]) -> str:
        if len(self.parts) == 1:
            return text(self.parts[0])
        whole = "\0".join(f"{os.path.relpath(part.path, self.path)}\0{text(part)}" for part in self.parts)
        return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Series(Source):
    """The updates that snapshots make to the change log of an input, each at its time.

    ``snapshots``: the times, which ascend, and the parts, with their layouts for ``rules``. ``log`` at ``state`` is the
    input; what it holds at or before ``until`` is the content before the first snapshot.
    """

    kind = "series of snapshots"
    by_spark = True

    log: ChangeLog
    state: TableState | None
    until: Time
    rules: Rules
    snapshots: tuple[tuple[Time, tuple[tuple[Source, Layout], ...]], ...]

    @property
    def size(self) -> int:
        """The bytes of all files of snapshots."""
        return sum(source.size for _, parts in self.snapshots for source, _ in parts)

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns of the change log."""
        return [(name, kind.arrow) for name, kind in self.log.columns.items()]

    def batches(self, columns: Sequence[str]) -> Batches:
        """The updates as Arrow batches."""
        for _, frame in self.frames(columns):
            yield from frame.to_arrow().to_batches()

    def frames(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """The updates, consolidated; in memory are some 2M rows of snapshots, or two snapshots if they are larger.

        O(rows of all snapshots and of the log).
        """
        before = [frame for file in self._files() for frame in self._held_of(file)]
        window: list[tuple[Time, pl.DataFrame]] = []
        row, many = 1, 0
        for number, (time, parts) in enumerate(self.snapshots):
            window.append((time, self._rows(parts)))
            many += len(window[-1][1])
            is_last = number + 1 == len(self.snapshots)
            if is_last or many >= self.log.tuning.snapshot_rows:
                frame = self._differences(before, window).select(columns)
                yield row, frame
                row += len(frame)
                before = [] if is_last else [_at(window[-1][1], -1, self.rules.dims, self.snapshots[number + 1][0])]
                window, many = [], 0

    def _differences(self, before: Sequence[pl.DataFrame], window: Sequence[tuple[Time, pl.DataFrame]]) -> pl.DataFrame:
        """The updates that some snapshots make; ``before`` takes the content before away at the first of them."""
        rows, dims = list(self.rules.schema), self.rules.dims
        (time, first), gone = window[0], list(before)
        if len(window) == 1 and gone:
            # A row that is inserted is equal to at most one that is taken away: the largest of these files has most.
            largest = max(range(len(gone)), key=lambda number: len(gone[number]))
            once = gone[largest][DIFF] == -1
            if not once.all():
                gone.append(gone[largest].filter(~once))
                gone[largest] = gone[largest].filter(once)
            gone[largest], first = without_pairs(gone[largest], first, rows, self.log.tuning.paired_rows)
        parts = [*gone, _at(first, 1, dims, time)]
        for (_, ours), (after, other) in pairwise(window):
            parts += [_at(ours, -1, dims, after), _at(other, 1, dims, after)]
        sums = pl.concat(parts).lazy().group_by(*rows, *dims).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
        return sums.collect(engine="streaming")

    def spark_frame(self, session: SparkSession) -> DataFrame:
        """The updates by one aggregation, whose tasks read snapshots and log by the readers of this package."""
        from pyspark.sql import functions as F

        there = replace(self, log=replace(self.log, writer=None))  # as tasks have it
        schema = pa.schema(self.fields())
        frames = [in_tasks(session, self._files(), there._held_of, schema)] if self._files() else []
        for source, how in self._work():
            if source.by_spark:
                whole = source.spark_frame(session)
                columns = whole.select(*spark_columns(whole, how[0].read))
                frames.append(through(columns, partial(there._changed, how), schema, source.name))
        if work := shares(self._work(), cores(session)):
            frames.append(in_tasks(session, work, there._updates_of, schema))
        union = frames[0]
        for frame in frames[1:]:
            union = union.unionByName(frame)
        keys = [F.col(quoted(name)) for name in (*self.rules.schema, *self.rules.dims, ERROR)]
        sums = union.groupBy(*keys).agg(F.sum(DIFF).alias(DIFF))
        return sums.where((F.col(DIFF) != 0) | F.col(ERROR).isNotNull())

    # --- what tasks and this process read ---

    def _files(self) -> list[LiveFile]:
        """The files of the log with updates at or before ``until``."""
        return [
            file
            for file in (self.log.files(self.state) if self.state is not None else [])
            if all(file.lower.get(dim, 0) <= last for dim, last in zip(self.rules.dims, self.until, strict=True))
        ]

    def _held_of(self, file: LiveFile) -> Frames:
        """What one file of the log holds, as updates that take it away at the first snapshot."""
        from ddcore.base.lattice import is_before

        dims, time = self.rules.dims, self.snapshots[0][0]
        updates = self.log.collect(self.log.scan_files([file]).filter(is_before(dims, self.until)))
        yield _at(updates, -pl.col(DIFF), dims, time)

    def _rows(self, parts: Sequence[tuple[Source, Layout]]) -> pl.DataFrame:
        """All rows of one snapshot. DataError where there are none."""
        rows = [
            rows_of(frame, layout, self.rules, first_row)
            for source, layout in parts
            for first_row, frame in source.frames(layout.read)
        ]
        if not any(map(len, rows)):
            raise empty(parts[0][0].name)
        return pl.concat(rows)

    def _work(self) -> list[tuple[Source, How]]:
        """Each part with its layout, the time of its snapshot, and that of the next one."""
        nexts = [time for time, _ in self.snapshots[1:]]
        return [
            (source, (layout, time, after))
            for (time, parts), after in zip(self.snapshots, [*nexts, None], strict=True)
            for source, layout in parts
        ]

    def _updates_of(self, share: Sequence[tuple[Source, How]]) -> Frames:
        for source, (layout, time, after) in share:
            for first_row, frame in source.frames(layout.read):
                yield from self._both(rows_of(frame, layout, self.rules, first_row), time, after)

    def _changed(self, how: How, frames: Frames) -> Frames:
        layout, time, after = how
        for frame in frames:
            yield from self._both(rows_of(named_again(frame, layout.read), layout, self.rules), time, after)

    def _both(self, rows: pl.DataFrame, time: Time, after: Time | None) -> Frames:
        """Rows of a snapshot, inserted at its time and taken away at that of the next."""
        for at, diff in ((time, 1), (after, -1)):
            if at is not None:
                yield _at(rows, diff, self.rules.dims, at)


def empty(name: str) -> DataError:
    """The error for a snapshot without rows."""
    return DataError(
        f"{name}: no rows: as a snapshot it would take all rows away",
        "an empty source is refused: usually a mistake upstream; to empty an input, ingest its rows with diff -1",
    )


def _at(rows: pl.DataFrame, diff: int | pl.Expr, dims: Sequence[str], time: Time) -> pl.DataFrame:
    """Rows with the coordinates of a time, and ``diff`` last."""
    times = [pl.lit(coordinate, pl.Int64).alias(dim) for dim, coordinate in zip(dims, time, strict=True)]
    diffs = (pl.lit(diff, pl.Int64) if isinstance(diff, int) else diff).alias(DIFF)
    return rows.select(pl.exclude(*dims, DIFF), *times, diffs)
