"""The publication of an output: its table gets the contents that the last finished run gave it.

Only files with a changed row are written again. What is published follows from the output's log, so a table that is
lost, damaged or written to by others is made again from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcore.base.errors import StorageError, UsageError
from ddcore.base.schema import Schema, Type
from ddcore.io.delta.column_types import delta_type
from ddcore.io.delta.new_files import Unsynced, arrow_table, stored_columns, write_file
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.delta.tables import values_of
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import RunRecord
from ddcore.io.parquet import datafile
from ddcore.io.project.frontiers import is_open
from ddcore.io.project.output_tables import TableSettings
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, shown
from ddcore.io.publishing.commits import (
    CHANGES,
    HINT,
    Commit,
    Next,
    Position,
    Snapshot,
    escaped,
    note_of,
    position,
    remove_temporary,
    snapshot,
    upkeep,
)
from ddcore.io.publishing.published import Published
from ddcore.io.publishing.ranges import FIRST, Order, RangeFile, first_of
from ddcore.io.reading.folded import FoldedLog, output_log
from ddcore.io.storage.reporting import reporting

if TYPE_CHECKING:
    from ddcore.io.storage.store import Place

_KIND = "_change_type"  # Delta's name for the column that says what a row of the change feed is
_INT64 = Type("int64")


def place_of(project: Project, ledger: Ledger, output: str, settings: TableSettings) -> Place:
    """The folder of an output's table."""
    return settings.place or ledger.warehouse.published(output)


class _Differs(Exception):
    """The table does not hold what a commit of ours left: a row that goes is not there."""


class _Due(NamedTuple):
    """What a table should hold: the contents that a run of this number gave at a time, which has this label."""

    run: int
    at: Time
    label: str


class _Files(NamedTuple):
    """What a commit adds and removes, and what it puts into the change feed."""

    added: Sequence[AddedFile]
    removed: Sequence[str]
    feed: Sequence[AddedFile] = ()


class Prepared(NamedTuple):
    """A commit to a table that is to be made next, and what will have been done then."""

    next: Next
    done: Published


class Publication:
    """The table of one output, and what it should hold. ``known``: tables as commits of this process left them; this
    one is noted there. ``unsynced``: those that its files are synced to the disk with.
    """

    def __init__(
        self, project: Project, ledger: Ledger, output: str, settings: TableSettings,
        known: dict[Place, Snapshot] | None = None,
    ) -> None:  # fmt: skip
        self.project, self.ledger, self.output, self.settings = project, ledger, output, settings
        self.folder = place_of(project, ledger, output, settings)
        self.known = {} if known is None else known
        self._firsts: dict[str, pl.DataFrame] = {}  # of files that were written
        self.there: Position | None = None
        self.goes_on = False
        self.unsynced: Unsynced | None = None

    @cached_property
    def log(self) -> FoldedLog:
        """The output's log."""
        return output_log(self.project, self.output, self.ledger)

    @cached_property
    def order(self) -> Order:
        """The order of the table's rows."""
        return Order.of(self.log.schema, self.settings, self.project.outputs[self.output].key)

    @property
    def schema(self) -> Schema:
        """The columns of the table."""
        count = self.settings.count
        return {**self.log.schema, **({count: _INT64} if count else {})}

    def is_due(self) -> bool:
        """Whether the table lacks contents that the last finished run gave it. Reads the ledger. UsageError,
        StorageError.
        """
        number = self.ledger.run_of(self.output)
        if number is None:
            return False
        self.there = there = position(self.folder)
        if there is not None and there.is_newest and there.run == number:
            return False
        tops = self.log.readable.tops
        if len(tops) != 1:
            return False  # no time is after all others: there are no present contents
        label = self.log.names.fields(tops[0]).get("label")
        self.due = _Due(number, tops[0], label if isinstance(label, str) else "")
        self.goes_on = there is not None and self._goes_on(there, Time(there.at))
        return True

    def prepared(self) -> Prepared:
        """The commit that gives a table that is due its contents, with its files, which are not synced. Several threads
        may prepare tables side by side: none reads the ledger. UsageError, StorageError.

        Cost: that of the files with a changed row; of all rows where the table is made again.
        """
        remove_temporary(self.folder)
        try:
            return self._brought_up(self.due, self.there)
        except (_Differs, StorageError) as error:
            if self.there is None:
                raise
            return self.again(str(error).splitlines()[0])

    def again(self, why: str) -> Prepared:
        """The same by writing all rows."""
        return self._made_again(self.due, why, None)

    def end(self, prepared: Prepared) -> None:
        """The commit was made: note what the table holds, and tidy up."""
        change, whole = prepared.next.change, Snapshot(prepared.next.version, (), (), {}, ())
        before = whole if prepared.done.made or prepared.next.before is None else prepared.next.before
        ranges = [RangeFile(f.path, f.size, f.rows, f.partition, self._firsts[f.path]) for f in change.added]
        self.known[self.folder] = before.followed_by(prepared.next.version, change, ranges)
        tuning, days = self.project.tuning, self.project.retention.days
        upkeep(self.folder, prepared.next.version, days, tuning.checkpoint_commits)

    def _brought_up(self, due: _Due, there: Position | None) -> Prepared:
        if there is None:
            return self._made_again(due, "it is new", None)
        before = self.known.pop(self.folder, None)
        if before is None or not before.is_of(there):
            before = snapshot(self.folder)
        wanted = tuple((name, delta_type(kind)) for name, kind in self.schema.items())
        if before.columns != wanted or before.partition_by != self.settings.partition_by:
            return self._made_again(due, "its columns or partitions are others", before)
        if not there.is_newest or before.files is None:
            return self._made_again(due, "another program has written to it", before)
        if any(tuple(file.first.columns) != self.order.columns for file in before.files):
            return self._made_again(due, "its order is another", before)
        since = Time(there.at)
        if not self.goes_on:
            held = self._rows(before.files)
            now = self.log.accumulate(due.at)
            changes = _sums([now, held.with_columns(diff=-pl.col("diff"))], list(self.log.schema))
        else:
            changes = self.log.between(since, due.at)
        return self._changed(due, since, before, changes)

    def _goes_on(self, there: Position, since: Time) -> bool:
        """Whether the log still holds at the time of the table what it held when that was published."""
        if len(since) != len(self.project.dims) or not is_open(since, self.ledger.since() or (since,)):
            return False
        for record in self.ledger.newest_first():
            if not isinstance(record, RunRecord):
                continue
            if record.run <= there.run:
                return record.run == there.run
            if record.published_from is None and (record.refresh or not _is_after(record, since)):
                return False
        return False

    # --- files with changes -------------------------------------------------------------------------------------------

    def _changed(self, due: _Due, since: Time, before: Snapshot, changes: pl.DataFrame) -> Prepared:
        """Write the files with changed rows again."""
        files = before.files or ()
        added, removed = list[AddedFile](), list[str]()
        olds, news = list[pl.DataFrame](), list[pl.DataFrame]()
        names = list(self.log.schema)
        for place, part in self.order.divided(changes, files) if len(changes) else ():
            old, rest = (part.clear(), None) if place is None else self._touched(files[place], part)
            new = _sums([old, part.select(*names, "diff")], names)
            if (new["diff"] < 0).any():
                raise _Differs(f"{self.folder} is not as it was left: rows that go are not there")
            if place is not None:
                removed.append(files[place].path)
            added += self._written(new if rest is None else pl.concat([rest, new]))
            olds.append(old)
            news.append(new)
        feed = self._feed(due.run, olds, news)
        same = {file.path for file in added} & {*removed}  # what equals a file that goes has its name
        added, removed = [f for f in added if f.path not in same], [path for path in removed if path not in same]
        plus, minus = (int(changes.filter(pl.col("diff") * sign > 0)["diff"].sum()) * sign for sign in (1, -1))
        total = len(files) - len(removed) + len(added)
        done = Published(self.output, str(self.folder), due.run, plus, minus, len(added), total)
        return Prepared(self._next(due, since, before, _Files(added, removed, feed)), done)

    def _written(self, rows: pl.DataFrame) -> list[AddedFile]:
        """New files of some rows and their counts, each of one range."""
        return [
            self._file(part) for part in self.order.cut(self.order.sorted(rows), self.project.tuning.published_rows)
        ]

    def _file(self, part: pl.DataFrame) -> AddedFile:
        first = self.order.first(part)
        rows = self._as_stored(part)
        partition = {name: _partition_value(first[name][0], name, self.output) for name in self.order.partition}
        schema = {name: kind for name, kind in self.schema.items() if name not in partition}
        table = arrow_table(stored_columns(rows, schema), schema)
        bounded = [name for name, kind in schema.items() if not kind.stored.is_nested]
        steps = {name: escaped(value) for name, value in partition.items()}
        file = write_file(
            self.folder, f"{self.output}-{_stem(first)}", table, bounded=bounded, notes={FIRST: first_of(first)},
            partition=steps, unsynced=self.unsynced,
        )  # fmt: skip
        self._firsts[file.path] = first
        return AddedFile(file.path, file.size, file.rows, file.stats, partition)  # type: ignore[arg-type]

    def _as_stored(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows and their counts as the table has them: with the count, or each as often as it occurs."""
        if self.settings.count:
            return rows.rename({"diff": self.settings.count})
        if (rows["diff"] == 1).all():
            return rows.drop("diff")
        return rows.drop("diff")[np.repeat(np.arange(len(rows)), rows["diff"].to_numpy())]

    def _touched(self, file: RangeFile, part: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Of the rows of a file those that are among the changed ones, with their counts; and the others, in order: in
        few files many rows change.
        """
        names = list(self.log.schema)
        rows, touched = self._stored([file]), part.select(names)
        old = rows.join(touched, on=names, how="semi", nulls_equal=True)
        rest = rows.join(touched, on=names, how="anti", nulls_equal=True, maintain_order="left") if len(old) else rows
        return _sums([old], names), rest

    def _rows(self, files: Sequence[RangeFile]) -> pl.DataFrame:
        """The distinct rows of some files of the table, and their counts as ``diff``. Checks the digests."""
        return _sums([self._stored(files)], list(self.log.schema))

    def _stored(self, files: Sequence[RangeFile]) -> pl.DataFrame:
        """The rows of some files as they are there, in their order, with ``diff``. Checks the digests."""
        frames = []
        for file in files:
            path = self.folder / file.path
            with reporting(path, "read", HINT):
                frame = pl.read_parquet(datafile.content(path, HINT), use_statistics=False)
                values = [
                    pl.lit(file.first[name][0], file.first[name].dtype).alias(name) for name in self.order.partition
                ]
                frame = frame.with_columns(values)
                stored = frame.lazy().select([pl.col(n).cast(kind.stored.polars) for n, kind in self.schema.items()])
                frames.append(values_of(stored, self.schema).collect())
        names, count = list(self.log.schema), self.settings.count
        diff = pl.col(count).alias("diff") if count else pl.lit(1, pl.Int64).alias("diff")
        if not frames:
            return pl.DataFrame(schema={**{n: k.polars for n, k in self.log.schema.items()}, "diff": pl.Int64})
        return pl.concat(frames).select(*names, diff)

    def _feed(self, run: int, olds: Sequence[pl.DataFrame], news: Sequence[pl.DataFrame]) -> list[AddedFile]:
        """The files of the change feed of a run: what became of changed rows, given as they were and as they are."""
        if not olds:
            return []
        names, key = list(self.log.schema), self.project.outputs[self.output].key
        old, new = pl.concat(olds), pl.concat(news)
        if self.settings.count:  # the count is a column of the row
            key, old, new = key or tuple(names), self._as_stored(old), self._as_stored(new)
            names = list(self.schema)
        else:
            both = _sums([new, old.with_columns(diff=-pl.col("diff"))], names)
            new = both.filter(pl.col("diff") > 0)
            old = both.filter(pl.col("diff") < 0).with_columns(diff=-pl.col("diff"))
            old, new = self._as_stored(old), self._as_stored(new)
        kinds = []
        for side, other, alone, paired in (
            (old, new, "delete", "update_preimage"), (new, old, "insert", "update_postimage"),
        ):  # fmt: skip
            is_paired = _is_paired(side, other, key)
            kinds.append(
                side.with_columns(pl.when(is_paired).then(pl.lit(paired)).otherwise(pl.lit(alone)).alias(_KIND))
            )
        rows = pl.concat(kinds)
        if self.order.partition:
            parts = [part for part in rows.partition_by(self.order.partition, maintain_order=True)]
        else:
            parts = [rows] if len(rows) else []
        return [self._feed_file(run, part) for part in parts]

    def _feed_file(self, run: int, rows: pl.DataFrame) -> AddedFile:
        """A file of the change feed, which goes with its commit; so no two runs have one of the same name."""
        partition = {name: _partition_value(rows[name][0], name, self.output) for name in self.order.partition}
        schema = {**{name: kind for name, kind in self.schema.items() if name not in partition}, _KIND: Type("string")}
        table = arrow_table(stored_columns(rows, schema), schema)
        file = write_file(self.folder / CHANGES, f"cdc-{run:08x}", table, unsynced=self.unsynced)
        return AddedFile(file.path, file.size, file.rows, file.stats, partition)  # type: ignore[arg-type]

    # --- the whole table ----------------------------------------------------------------------------------------------

    def _made_again(self, due: _Due, why: str, before: Snapshot | None) -> Prepared:
        """Write all rows, in place of what the table holds."""
        if before is None and position(self.folder) is not None:
            before = snapshot(self.folder)
        added, rows = list[AddedFile](), 0
        for part in self._in_order(due.at):
            rows += int(part["diff"].sum())
            added.append(self._file(part))
        removed = [] if before is None else [path for path in before.paths if path not in {file.path for file in added}]
        done = Published(self.output, str(self.folder), due.run, rows, 0, len(added), len(added), why)
        return Prepared(self._next(due, None, before, _Files(added, removed)), done)

    def _in_order(self, at: Time) -> Iterator[pl.DataFrame]:
        """All rows at a time, in order, in parts that become files. Memory: that of two files."""
        size = self.project.tuning.published_rows
        rest: pl.DataFrame | None = None
        for piece in self.log.rows(None, at, by=self.order.columns):
            rows = piece.select(*self.log.schema, pl.col("diff").cast(pl.Int64))
            rest = rows if rest is None else pl.concat([rest, rows])
            if len(rest) > 2 * size:
                *whole, rest = self.order.cut(rest, size)
                yield from whole
        if rest is not None:
            yield from self.order.cut(rest, size)

    def _next(self, due: _Due, since: Time | None, before: Snapshot | None, files: _Files) -> Next:
        dims = self.project.dims
        versions = shown(due.at, dims) if since is None else f"{shown(since, dims)}..{shown(due.at, dims)}"
        note = note_of(self.output, due.run, due.at, due.label, versions)
        every = self.project.tuning.checkpoint_commits
        change = Commit(self.schema, self.settings.partition_by, every, files.added, files.removed, files.feed, note)
        return Next(self.folder, before, change)

    # --- whether it is right ------------------------------------------------------------------------------------------

    def differences(self) -> pl.DataFrame:
        """What the table has beyond the output's contents, ``diff`` above 0, and what it lacks, below. Reads all of it.

        StorageError where a file is damaged or lost.
        """
        there = position(self.folder)
        if there is None:
            raise StorageError(f"there is no table in {self.folder}", "the next ddcore run makes it")
        now = snapshot(self.folder)
        if now.files is None:
            raise StorageError(f"another program has written to {self.folder}", "the next ddcore run makes it again")
        held, due = self._rows(now.files), self.log.accumulate(Time(there.at))
        return _sums([held, due.with_columns(diff=-pl.col("diff"))], list(self.log.schema))


def _is_after(record: RunRecord, since: Time) -> bool:
    """Whether a run left everything at and before a time as it was."""
    return not is_open(since, record.lower) if record.lower else record.first[0] > since[0]


def _sums(parts: Sequence[pl.DataFrame], names: list[str]) -> pl.DataFrame:
    """Distinct rows and their counts, without those of 0."""
    rows = pl.concat([part.select(*names, pl.col("diff").cast(pl.Int64)) for part in parts])
    return rows.group_by(names).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)


def _is_paired(side: pl.DataFrame, other: pl.DataFrame, key: Sequence[str]) -> pl.Series:
    """Whether each row is the only one of its key, and the other side has one of it too."""
    if not key:
        return pl.Series([False]).new_from_index(0, len(side))
    once = other.filter(pl.struct(key).is_unique()).select(key).with_columns(_there=pl.lit(True))
    found = side.select(key).join(once, on=list(key), how="left", nulls_equal=True, maintain_order="left")
    return found["_there"].fill_null(False) & side.select(pl.struct(key).is_unique()).to_series()


def _partition_value(value: Any, name: str, output: str) -> str | None:
    """A value of a partition as Delta's log has it."""
    if value is None:
        return None
    if value == "":
        raise UsageError(
            f"output {output}: the column {name!r} has an empty text, which Delta takes for null in a partition",
            "partition by another column, or give the rows another value",
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def _stem(first: pl.DataFrame) -> str:
    """A word for a file's name, by its first row: files of equal rows in different partitions have different names."""
    return datafile.digest_of(first_of(first).encode())[:8]
