"""Undo: takes an ingest back.

One commit removes the ingest's files from the input's table, and adds again what a restatement replaced; one record of
the ledger makes that valid. If it is killed between the two, the next command writes the record. Versions that are
folded already are folded again by the next run. The files stay on the disk until the table is vacuumed. The ledger
keeps both records, and the same sources may be ingested again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from ddcore.base.errors import DataError, LateUpdate, StorageError, UsageError
from ddcore.base.lattice import Frontier
from ddcore.io.delta.table_files import LiveFile
from ddcore.io.ledger import recovery
from ddcore.io.ledger.intent import check_restated, give_up
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord, UndoRecord
from ddcore.io.logs.balance import Balance, repeated_key, repeated_key_error
from ddcore.io.logs.changed_columns import check_columns
from ddcore.io.logs.inputs import input_log
from ddcore.io.logs.restatement import Changes, closed_changes
from ddcore.io.logs.updates import DIFF, RowCount
from ddcore.io.project.frontiers import is_open, shown_frontier
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, named, shown
from ddcore.io.sources.intake import shown as shown_row
from ddcore.io.storage.store import is_file
from ddcore.jobs import predecessor


@dataclass(frozen=True)
class UndoReport:
    """What was taken back: ingest ``ingest`` of ``input``, with its versions, updates and sums of diffs by sign.

    ``stale_lock``: as in :class:`~ddcore.jobs.report.RunReport`.
    """

    input: str
    ingest: int
    sources: tuple[str, ...]
    rows: int
    plus: int
    minus: int
    first: Time
    last: Time
    took: float
    restates: Frontier = ()
    stale_lock: dict[str, Any] | None = None


def undo(project: Project, number: int, input_name: str | None = None, *, restate: bool = False) -> UndoReport:
    """Take ingest ``number`` back; ``input_name``, if given, has to be its input.

    The rows that a restatement replaced are there again. Raises UsageError if there is no such ingest, LateUpdate if a
    version of it is folded, unless ``restate`` or the ingest itself restated closed versions: then the next run folds
    again from there. DataError if a later ingest builds on it, StorageError, LockHeld; the input is then as it was. An
    unfinished run of these versions that committed nothing is given up: its versions are open again. Cost: a scan of
    the input's log if other ingests of it retract rows or if it replaced history, else a few small reads: of the ledger
    the indexes of its files, and the rows from the ingest on.
    """
    start = time.monotonic()
    warehouse = project.tables
    warehouse.check()
    with predecessor.writing(warehouse, "ddcore ingest --undo", project.tuning) as (lock, ledger):
        ledger.check_dims(project.dims)
        intent, finished = ledger.open_intent(), recovery.finish(ledger)
        is_done = any(isinstance(record, UndoRecord) and record.number == number for record in finished)
        record = _ingest(ledger, number, input_name, is_done=is_done)
        project.check_own_input(f"--undo {number}", record.input)
        work = _Undo(project, ledger, record, restate)
        if not is_done:
            work.check()
        stale_lock = predecessor.tell(lock, ledger, predecessor.given_up(intent, ledger), finished)
        if not is_done:
            work.commit()
    return UndoReport(
        input=record.input,
        ingest=number,
        sources=tuple(source.name for source in record.sources),
        rows=record.rows,
        plus=sum(plus for plus, _ in record.all_counts.values()),
        minus=sum(minus for _, minus in record.all_counts.values()),
        first=record.first,
        last=record.last,
        took=round(time.monotonic() - start, 3),
        restates=work.restates,
        stale_lock=stale_lock,
    )


def _ingest(ledger: Ledger, number: int, input_name: str | None, *, is_done: bool) -> IngestRecord:
    """The ingest to take back, or that was just found to be taken back (``is_done``). UsageError."""
    record = ledger.ingest(number)
    if record is None:
        raise _unknown(number, ledger)
    if not is_done and ledger.ingest_index(record.input).entry_of(number) is None:
        raise UsageError(f"--undo {number}: ingest {number} was taken back already", "see: ddcore log")
    if input_name not in (None, record.input):
        raise UsageError(
            f"--undo {number}: ingest {number} is one of {record.input}, not of {input_name}",
            f"leave the input out, or say: ddcore ingest {record.input} --undo {number}",
        )
    return record


def _unknown(number: int, ledger: Ledger) -> UsageError:
    last = next((record.number for record in ledger.newest_first() if isinstance(record, IngestRecord)), None)
    others = "nothing is ingested" if last is None else f"the last is {last}"
    return UsageError(f"--undo {number}: there is no ingest {number}; {others}", "ingests are listed by: ddcore log")


class _Undo:
    """The undo of one ingest, with the warehouse's lock held."""

    def __init__(self, project: Project, ledger: Ledger, record: IngestRecord, restate: bool) -> None:
        self.ledger, self.record = ledger, record
        schema = project.input_schema(record.input)
        self.log = input_log(ledger.warehouse, project, record.input, schema, ledger.writer)
        self.base, self.key = ledger.input_table(record.input), tuple(project.keys.get(record.input, ()))
        self.index = ledger.ingest_index(record.input)
        later = [entry for entry, number in self.index.numbers.items() if number > record.number]
        self.later = ledger.ingests_at(self.index, later)
        # Whoever restated closed times before knows that they are folded again.
        self.restate = restate or bool(record.restates) or record.replaces is not None
        self.restates: Frontier = ()

    def check(self) -> None:
        """Raise the error that forbids the undo, if any; find the closed times that change."""
        record = self.record
        closed, replaces = self._closed(), record.replaces is not None
        if (closed or replaces) and give_up(self.ledger, "it was not finished, and an undo came first"):
            closed = self._closed()
        if closed is not None and not self.restate:
            raise LateUpdate(
                f"ingest {record.number} cannot be taken back: it has rows at {closed}",
                f"ingest rows that retract its rows, at a later {'version' if len(self.log.dims) == 1 else 'time'}; or "
                f"fold again from there: ddcore ingest --undo {record.number} --late restate",
            )
        self._check_others()
        check_columns(self.log, self.base)
        if replaces:
            self._check_before()
        else:
            self._check_files()
            self._check_counts()
        self._check_key()
        if closed or replaces:
            self._find_restated()

    def _check_others(self) -> None:
        """Raise DataError if a later ingest builds on this one, or changed what it holds."""
        record = self.record
        for other in self.later:
            if record.number in other.rests_on:
                raise DataError(
                    f"ingest {record.number} cannot be taken back: ingest {other.number} took in only the rows after "
                    f"it in {', '.join(source.name for source in other.sources)}",
                    f"take that back first: ddcore ingest --undo {other.number}",
                )
        later = [other.number for other in self.later]
        if record.replaces is not None and later:
            raise DataError(
                f"ingest {record.number} cannot be taken back: it replaced history, and ingest {later[-1]} came after",
                f"take that back first: ddcore ingest --undo {later[-1]}; or {self._again()}",
            )
        if record.replaced_by:
            raise DataError(
                f"ingest {record.number} cannot be taken back: ingest {record.replaced_by} replaced rows of it",
                f"take that back first: ddcore ingest --undo {record.replaced_by}",
            )

    def _again(self) -> str:
        record = self.record
        assert record.replaces is not None
        start = shown(record.replaces, self.log.dims)
        return f"restate the history again: ddcore ingest {record.input} SOURCE --restate {start}"

    def _check_files(self) -> None:
        record = self.record
        if len(self.files) < len(record.files) or not record.files:
            raise StorageError(
                f"ingest {record.number} cannot be taken back: its files in {self.log.folder} were merged with others",
                "ingest rows that retract its rows, at a later version",
            )

    def _check_before(self) -> None:
        """Raise the error of a restatement whose replaced rows cannot come back."""
        record = self.record
        undone = [one for one in self.ledger.records(UndoRecord) if one.input == record.input and one.at >= record.at]
        if earlier := [one.number for one in undone if one.number < record.number]:
            raise DataError(
                f"ingest {record.number} cannot be taken back: it replaced history, and the earlier ingest "
                f"{earlier[-1]} was taken back since",
                self._again(),
            )
        missing = [file.path for file in self.before if not is_file(self.log.folder / file.path)]
        if missing:
            raise StorageError(
                f"ingest {record.number} cannot be taken back: {missing[0]}, which it replaced, was deleted from "
                f"{self.log.folder}",
                self._again(),
            )

    def _find_restated(self) -> None:
        """Find the least closed times that change, if a run has folded this ingest. If none has, the log is again what
        was folded.
        """
        folded = self.ledger.is_folded_since(self.record.number)
        if not folded and self.ledger.open_intent() is None:
            return
        changes = Changes(self.log, self.log.scan_files(self.removed), self.log.scan_files(self.added))
        restates = closed_changes(changes, self.ledger.open_from(self.record.input))
        check_restated(self.ledger, restates)
        self.restates = restates if folded else ()

    def _closed(self) -> str | None:
        """The first closed time of the ingest, and why it is closed, for a message; None without one."""
        upper, dims = self.ledger.open_from(self.record.input), self.log.dims
        closed = [] if upper is None else sorted(time for time in self.record.counts if not is_open(time, upper))
        if upper is None or not closed:
            return None
        if len(dims) == 1:
            return f"version {closed[0]}, and version {upper[0][0] - 1} is closed"
        return f"{named(closed[0], dims)}, and only times at or beyond {shown_frontier(upper, dims)} are open"

    @cached_property
    def before(self) -> list[LiveFile]:
        """The files of the input's table before a restatement."""
        try:
            return self.log.files(self.record.before)
        except StorageError as error:
            raise StorageError(
                f"ingest {self.record.number} cannot be taken back: what it replaced cannot be read: {error.message}",
                self._again(),
            ) from error

    @cached_property
    def live(self) -> list[LiveFile]:
        """The files of the input's table."""
        return self.log.files(self.base)

    @cached_property
    def removed(self) -> list[LiveFile]:
        """The files that the undo removes."""
        if self.record.replaces is None:
            return self.files
        then = {file.path for file in self.before}
        return [file for file in self.live if file.path not in then]

    @cached_property
    def added(self) -> list[LiveFile]:
        """The files that a restatement removed, and the undo adds again."""
        now = {file.path for file in self.live}
        return [] if self.record.replaces is None else [file for file in self.before if file.path not in now]

    @cached_property
    def files(self) -> list[LiveFile]:
        """Those files of the table that the ingest wrote."""
        return [file for file in self.live if file.path in self.record.files]

    def _check_counts(self) -> None:
        """Raise DataError if other ingests retract its rows, or if counts fit int64 only with its retractions."""
        rest = [file for file in self.live if file.path not in self.record.files]
        balance = Balance(self.log, rest)
        # The sums of the index are upper bounds: at worst the rows are counted in vain.
        plus, minus = (sum(counts[side] for counts in self.record.counts.values()) for side in (0, 1))
        retracts, large = self.index.minus > minus, self.index.plus - plus >= 2**63
        if retracts:
            balance.watch(self.files, pl.col(DIFF) > 0)
        if large:
            balance.watch_large(sum(file.rows for file in rest))
        if not (retracts or large):
            return
        counts = balance.counts()
        if short := balance.below_zero(counts):
            raise self._needed(short, "retracts it")
        if beyond := balance.beyond_int64(counts):
            raise self._needed(beyond, "inserts it beyond what int64 counts")

    def _check_key(self) -> None:
        """Raise DataError if two rows of the input would have one key without the ingest."""
        if not self.key:
            return
        gone = {file.path for file in self.removed}
        files = [*(file for file in self.live if file.path not in gone), *self.added]
        touched = [self.log.scan_files(self.removed).filter(pl.col(DIFF) < 0)]
        touched += [self.log.scan_files(self.added).filter(pl.col(DIFF) > 0)]
        if rows := repeated_key(self.log, self.key, files, pl.concat(touched)):
            what = f"ingest {self.record.number} cannot be taken back"
            raise repeated_key_error(what, self.record.input, self.key, rows, self.log.dims)

    def _needed(self, row: RowCount, why: str) -> DataError:
        number = self.record.number
        others = [other for other in self.index.numbers.values() if other != number]
        return DataError(
            f"ingest {number} cannot be taken back: without it {shown_row(row.row)} would have the count {row.count} "
            f"as of {named(row.version, self.log.dims)}, as another ingest {why}",
            f"take back that one first, of ingest {', '.join(map(str, others))}",
        )

    def commit(self) -> None:
        """Remove the files from the table, and add those that a restatement replaced; then record it in the ledger."""
        record = self.record
        undone = UndoRecord(
            record.number, record.input, record.first, record.last, recovery.UNKNOWN, restates=self.restates
        )
        carries = recovery.carried(undone)
        files = [self.log.added_again(file) for file in self.added]
        without = [file.path for file in self.removed]
        table = self.log.commit(files, record.number, base=self.base, without=without, carries=carries)
        self.ledger.append(replace(undone, table=table))
