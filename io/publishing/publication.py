"""The publication of an output: its table gets the contents that the last finished run gave it.

Only files with a changed row are written again. What is published follows from the output's log, so a table that is
lost, damaged or written to by others is made again from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from ddcore.base.errors import StorageError
from ddcore.io.delta.new_files import Unsynced
from ddcore.io.delta.table_files import LiveFile
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import RunRecord
from ddcore.io.project.frontiers import is_open
from ddcore.io.project.output_tables import TableSettings
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, shown
from ddcore.io.publishing.commits import (
    Commit,
    Next,
    Position,
    Snapshot,
    note_of,
    position,
    remove_temporary,
    snapshot,
    upkeep,
)
from ddcore.io.publishing.division import division_of
from ddcore.io.publishing.published import Published
from ddcore.io.publishing.range_work import Answer, RangeWork, Reading, Tasks, joined
from ddcore.io.publishing.ranges import RangeFile
from ddcore.io.publishing.table import NewFile, Table, sums
from ddcore.io.reading.folded import FoldedLog, output_log

if TYPE_CHECKING:
    from ddcore.io.storage.store import Location

_SAMPLE = 100_000  # rows by which ranges for tasks are cut
_SHARES = 2  # of the log for each task that runs at a time


def address_of(ledger: Ledger, output: str, settings: TableSettings) -> Location:
    """The folder of an output's table."""
    return settings.address or ledger.warehouse.published(output)


class _Due(NamedTuple):
    """What a table should hold: the contents that a run of this number gave at a time, which has this label."""

    run: int
    at: Time
    label: str


class Prepared(NamedTuple):
    """A commit to a table that is to be made next, what will have been done then, and the files that are new."""

    next: Next
    done: Published
    ranges: Sequence[RangeFile]


class Publication:
    """The table of one output, and what it should hold. ``known``: tables as commits of this process left them; this
    one is noted there. ``tasks``: what begins tasks that can write it. ``unsynced``: those that its files are synced to
    the disk with.
    """

    def __init__(
        self, project: Project, ledger: Ledger, output: str, settings: TableSettings, *,
        known: dict[Location, Snapshot] | None = None, tasks: Callable[[], AbstractContextManager[Tasks]] | None = None,
    ) -> None:  # fmt: skip
        self.project, self.ledger, self.output, self.settings = project, ledger, output, settings
        self.folder = address_of(ledger, output, settings)
        self.known = {} if known is None else known
        self._tasks = tasks
        self.there: Position | None = None
        self.goes_on = False
        self.unsynced: Unsynced | None = None

    @cached_property
    def log(self) -> FoldedLog:
        """The output's log."""
        return output_log(self.project, self.output, self.ledger)

    @cached_property
    def table(self) -> Table:
        """How the table has the output's rows."""
        key, size = self.project.outputs[self.output].key, self.project.tuning.published_rows
        return Table(self.output, self.folder, self.log.schema, self.settings, key, size)

    @property
    def may_be_shared(self) -> bool:
        """Whether tasks may write it: there are such, and many rows."""
        return self._is_for_tasks(0 if self.log.table is None else self.log.table.rows)

    def _is_for_tasks(self, rows: int) -> bool:
        """Whether tasks write it, where so many rows are read and written."""
        return self._tasks is not None and bool(self.table.order.columns) and rows >= self.project.tuning.shared_rows

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
        self.table.unsynced = self.unsynced
        try:
            return self._brought_up(self.due, self.there)
        except StorageError as error:
            if self.there is None:
                raise
            return self.again(str(error).splitlines()[0])

    def again(self, why: str) -> Prepared:
        """What :meth:`prepared` gives, by writing all rows."""
        self.table.unsynced = self.unsynced
        return self._made_again(self.due, why, None)

    def end(self, prepared: Prepared) -> None:
        """The commit was made: note what the table holds, and tidy up."""
        change, whole = prepared.next.change, Snapshot(prepared.next.version, (), (), {}, ())
        before = whole if prepared.done.made or prepared.next.before is None else prepared.next.before
        self.known[self.folder] = before.followed_by(prepared.next.version, change, prepared.ranges)
        tuning, days = self.project.tuning, self.project.retention.days
        upkeep(self.folder, prepared.next.version, days, tuning.checkpoint_commits)

    def _brought_up(self, due: _Due, there: Position | None) -> Prepared:
        if there is None:
            return self._made_again(due, "it is new", None)
        before = self.known.pop(self.folder, None)
        if before is None or not before.is_of(there):
            before = snapshot(self.folder)
        wanted = tuple((name, str(kind)) for name, kind in self.table.schema.items())
        if before.columns != wanted or before.partition_by != self.settings.partition_by:
            return self._made_again(due, "its columns or partitions are others", before)
        if not there.is_newest or before.files is None:
            return self._made_again(due, "another program has written to it", before)
        if any(tuple(file.first.columns) != self.table.order.columns for file in before.files):
            return self._made_again(due, "its order is another", before)
        return self._changed(due, Time(there.at), before, self._change(due, Time(there.at), before.files))

    def _change(self, due: _Due, since: Time, files: Sequence[RangeFile]) -> Answer:
        """What brings the table from its contents at ``since`` to what is due. Many rows are read and written by tasks;
        of few changes this process knows how many rows of files they concern.
        """
        table, held = self.table, sum(file.rows for file in files)
        if not self.goes_on:
            if self._is_for_tasks(held + _rows(self._read(None, due.at))):
                return self._by_tasks(due, None, files, compares=True)
            rows = [self.log.accumulate(due.at), table.held(files).with_columns(diff=-pl.col("diff"))]
            return self._here(due, files, sums(rows, list(table.rows)))
        if self._is_for_tasks(_rows(self._read(since, due.at))):
            return self._by_tasks(due, since, files)
        changes = self.log.between(since, due.at)
        if self._is_for_tasks(held):
            concerned = [
                0 if number is None else files[number].rows for number, _ in table.order.divided(changes, files)
            ]
            if self._is_for_tasks(sum(concerned)):
                return self._by_tasks(due, since, files)
        return self._here(due, files, changes)

    def _here(self, due: _Due, files: Sequence[RangeFile], changes: pl.DataFrame) -> Answer:
        """Files with changed rows, written by this process."""
        change = self.table.changed(files, changes)
        feed = self.table.feed(due.run, change.old, change.new)
        return Answer(change.added, change.removed, feed, change.plus, change.minus)

    def _read(self, since: Time | None, at: Time) -> list[LiveFile]:
        """The files of the log that have what differs between two times."""
        return self.log.log.files_between(since, at, self.log.table)

    def _by_tasks(
        self, due: _Due, since: Time | None, files: Sequence[RangeFile], *, is_whole: bool = False,
        compares: bool = False,
    ) -> Answer:  # fmt: skip
        """The same written by tasks, a range of the table's order each: see :class:`RangeWork`."""
        assert self._tasks is not None
        table, tuning = replace(self.table, unsynced=None), self.project.tuning
        with self._tasks() as tasks:
            reading = Reading.of(self.log.log, self._read(since, due.at), since, due.at, _SHARES * tasks.slots)
            every = max(1, reading.rows // _SAMPLE)
            sample = pl.concat(tasks.sampled(reading, table.order.columns, every))
            total = sum(file.rows for file in files) + every * len(sample)
            memory = self.project.memory
            most = tuning.task_rows if memory is None else min(tuning.task_rows, memory // tuning.row_bytes)
            size = max(1, min(most, -(-total // tasks.slots)))
            division = division_of(table.order, files, sample, every, size)
            work = RangeWork(table, reading, division, due.run, is_whole=is_whole, compares=compares)
            return joined(tasks.written(work))._replace(tasks=work.ranges)

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

    # --- the next commit ----------------------------------------------------------------------------------------------

    def _changed(self, due: _Due, since: Time, before: Snapshot, answer: Answer) -> Prepared:
        """The commit after one of ours."""
        same = {new.file.path for new in answer.added} & {*answer.removed}  # what equals a file that goes has its name
        added = [new for new in answer.added if new.file.path not in same]
        removed = [path for path in answer.removed if path not in same]
        total = len(before.files or ()) - len(removed) + len(added)
        return self._prepared(due, since, before, answer._replace(added=added, removed=removed), total)

    def _made_again(self, due: _Due, why: str, before: Snapshot | None) -> Prepared:
        """Write all rows, in place of what the table holds."""
        if before is None and position(self.folder) is not None:
            before = snapshot(self.folder, footers=False)  # they may be damaged
        if self._is_for_tasks(_rows(self._read(None, due.at))):
            answer = self._by_tasks(due, None, (), is_whole=True)
        else:
            parts, rows = list[NewFile](), 0
            for part in self._in_order(due.at):
                rows += int(part["diff"].sum())
                parts.append(self.table.file(part))
            answer = Answer(parts, plus=rows)
        paths = {new.file.path for new in answer.added}
        answer = answer._replace(removed=[path for path in (before.paths if before else ()) if path not in paths])
        return self._prepared(due, None, before, answer, len(answer.added), why=why)

    def _in_order(self, at: Time) -> Iterator[pl.DataFrame]:
        """All rows at a time, in order, in parts that become files. Memory: that of two files."""
        size = self.project.tuning.published_rows
        rest: pl.DataFrame | None = None
        for piece in self.log.rows(None, at, by=self.table.order.columns):
            rows = piece.select(*self.log.schema, pl.col("diff").cast(pl.Int64))
            rest = rows if rest is None else pl.concat([rest, rows])
            if len(rest) > 2 * size:
                *whole, rest = self.table.order.cut(rest, size)
                yield from whole
        if rest is not None:
            yield from self.table.order.cut(rest, size)

    def _prepared(
        self, due: _Due, since: Time | None, before: Snapshot | None, answer: Answer, total: int, *, why: str = ""
    ) -> Prepared:
        """The commit of what was written to a table that has so many files then; ``why`` all of it was."""
        dims, path = self.project.dims, str(self.folder)
        versions = shown(due.at, dims) if since is None else f"{shown(since, dims)}..{shown(due.at, dims)}"
        note = note_of(self.output, due.run, due.at, due.label, versions)
        every, files = self.project.tuning.checkpoint_commits, [new.file for new in answer.added]
        change = Commit(self.table.schema, self.settings.partition_by, every, files, answer.removed, answer.feed, note)
        ranges = [RangeFile(f.path, f.size, f.rows, f.partition, first) for f, first in answer.added]
        done = Published(self.output, path, due.run, answer.plus, answer.minus, len(files), total, why, answer.tasks)
        return Prepared(Next(self.folder, before, change), done, ranges)

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
        held, due = self.table.held(now.files), self.log.accumulate(Time(there.at))
        return sums([held, due.with_columns(diff=-pl.col("diff"))], list(self.log.schema))


def _is_after(record: RunRecord, since: Time) -> bool:
    """Whether a run left everything at and before a time as it was."""
    return not is_open(since, record.lower) if record.lower else record.first[0] > since[0]


def _rows(files: Sequence[LiveFile]) -> int:
    return sum(file.rows for file in files)
