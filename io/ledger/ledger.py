"""The ledger: a small Delta table with the records of all ingests and runs of a warehouse.

Delta has no commit across tables. So tables are committed first and the ledger last, and our readers ignore data that
no record names. A run first writes its intent. An intent without a run record is an unfinished run, and the next run
finishes it; after a failure record it does not, because the run would fail again.

Every row has a summary of all rows before it, so a command reads only the last few rows, however long the ledger is.
Every row also has a digest of itself and of the row before, and the state of each table that it names: data that was
lost or changed on the disk is an error, never another result.

Each record is written as one row in its own file. Sixteen files are merged into one, sixteen of those into one, and so
on. So there are few files at any time, and a row is rewritten once each time the ledger gets sixteen times longer.

Every command reads the ledger first, so this module imports nothing heavy and parses records only when they are needed.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import StorageError, UsageError
from ddcore.base.lattice import frontier
from ddcore.base.version import __version__
from ddcore.io.delta import commits, heads, new_files, open_tables, syncs, tables
from ddcore.io.delta.deltalog import (
    added_files,
    checkpoint_file,
    commit_file,
    commit_info,
    has_commits,
    is_maintenance,
    last_transaction,
    versions_of,
)
from ddcore.io.delta.heads import Head
from ddcore.io.delta.table_files import AddedFile, TableState
from ddcore.io.ledger.ingest_index import FOOTER, IngestIndex, index_of
from ddcore.io.ledger.labels import FOOTER as LABELS
from ddcore.io.ledger.labels import labels_of
from ddcore.io.ledger.records import (
    CompactRecord,
    FailureRecord,
    IngestRecord,
    IntentRecord,
    Record,
    RunRecord,
    UndoRecord,
    from_json,
    row_of,
    to_json,
    without_replaced,
)
from ddcore.io.ledger.run_index import FOOTER as RUNS
from ddcore.io.ledger.run_index import runs_of
from ddcore.io.ledger.summary import Input, Summary
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.parquet import datafile
from ddcore.io.project import times
from ddcore.io.project.times import Frontier, Time
from ddcore.io.storage import store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.store import Place
from ddcore.io.storage.warehouse import REFRESH, Warehouse, reporting

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ddcore.io.delta.writer import Writer

__all__ = ["FORMAT", "Ledger"]

FORMAT = 1  # of the whole warehouse: docs/storage.md says when it rises

_COLUMNS = ("entry", "kind", "number", "name", "first", "last", "at", "body", "summary", "before", "digest")
_NUMBERS = ("entry", "number", "first", "last")
_LARGEST = 16**3  # rows of a file: reading one of them checks the bytes of the whole file
_ROW_GROUP = 64  # rows that are decoded together
_PORTION = 512  # rows read at once, backwards; the first portions are smaller
_FEW = 64  # rows of open ingests that the summary names
_FIRST_READ = 4  # rows: those of one ingest and one run; the newest has the summary
_NAME = re.compile(r"entries-([0-9]{8,})-([0-9]{8,})-")
_SETTINGS = {
    # Older versions may be deleted soon: no reader opens them.
    "delta.checkpointInterval": "32",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 10 seconds",
}
_KEPT_LEAST = 20  # seconds that a file is kept after its merge where there are more than so many files:
_KEPT_FILES = 64
_NOTES = (FOOTER, LABELS, RUNS)
_ROW = "ddcore.row"  # in commitInfo: the row that the commit adds, as JSON
_DESCRIPTION = "ledger of ddcore, format "
_FORMAT_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(slots=True)
class _Entry:
    """One row of the table. ``body``: the record as JSON, parsed at most once. ``before``: the previous digest.

    ``first`` and ``last`` are versions; with several time dimensions, the first coordinates of the record's times.
    """

    entry: int
    kind: str
    number: int
    name: str
    first: int
    last: int
    at: str
    body: str
    summary: str
    before: str
    digest: str = ""
    parsed: Record | None = None

    @property
    def record(self) -> Any:
        if self.parsed is None:
            self.parsed = from_json(self.kind, json.loads(self.body))
        return self.parsed

    def own_digest(self) -> str:
        """The digest that this row should have."""
        text = json.dumps([getattr(self, name) for name in _COLUMNS[:-1]])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Ledger:
    """The records of a warehouse, as of the load or the last append. Rows are read when they are needed. ``writer``:
    of a command that holds the lock; without it, nothing can be appended.
    """

    def __init__(
        self, warehouse: Warehouse, table: DeltaTable | None = None, head: Head | None = None,
        writer: Writer | None = None,
    ) -> None:  # fmt: skip
        self.warehouse, self.writer = warehouse, writer
        self._table, self._head = table, head  # neither where there is no table; where there is a head, it is enough
        self._files: list[str] = []
        self._rows: dict[int, _Entry] = {}
        self._footers: dict[str, dict[str, str]] = {}  # the notes of files
        self._last: int | None = None  # the newest row
        self._summary = Summary()
        self._rewrites = False  # whether the next record comes with all rows, in one file that has their index
        self._followed = False  # whether the rows are read from files that newer ones may be in
        self._unrecorded = 0  # the greatest number of a run of which tables hold a commit, and that has no record
        if head is not None or table is not None:
            _check_format(warehouse.ledger, _description(table) if head is None else head.description)

    @classmethod
    def load(cls, warehouse: Warehouse, writer: Writer | None = None, *, refresh: bool = False) -> Ledger:
        """Read the ledger; an empty one where the table does not exist. Takes no lock. Reads a few rows, however many
        there are. ``writer``: of a command that holds the lock. ``refresh``: for a command that replaces state and
        outputs, whatever they hold now.

        Raises StorageError where it cannot be read, where it has another format, and where tables hold runs or
        ingests without a record: then the ledger or its end was lost, or replaced by an older one, and the next command
        would remove their data as the leftovers of a crash.
        """
        ledger = cls._read(warehouse, writer)
        if next(ledger._unknown(), None) is not None:
            # A concurrent run writes the ledger before its tables, so a second read has its record.
            ledger = cls._read(warehouse, writer)
        unknown = [*ledger._unknown()]
        if refresh and ledger._exists:
            ledger._unrecorded = max((number for _, what, number in unknown if what == "run"), default=0)
            unknown = [each for each in unknown if each[1] != "run"]
        if unknown:
            raise ledger._lost(*unknown[0])
        return ledger

    def _lost(self, place: str, what: str, number: int) -> StorageError:
        """The error of a table that is newer than the ledger."""
        folder = self.warehouse.ledger
        if not self._exists:
            return StorageError(
                f"{folder} is missing, but {place} holds {what} {number}: the ledger was lost",
                "restore the ledger and the inputs from their newest backup; nothing was changed",
            )
        known = self._summary.ingests if what == "ingest" else self._summary.runs
        message = f"{folder} ends with {what} {known}, but {place} holds {what} {number}: "
        if what == "ingest":
            return StorageError(
                f"{message}the ledger, or a part of it, was lost, or it is from an older backup",
                "restore the ledger and the inputs from their newest backup; nothing was changed",
            )
        return StorageError(
            f"{message}the ledger, or a part of it, was lost, or it is from an older backup",
            f"if there is a newer backup of the ledger and the inputs, restore it; if not, {REFRESH}",
        )

    @classmethod
    def _read(cls, warehouse: Warehouse, writer: Writer | None) -> Ledger:
        folder = warehouse.ledger
        if not has_commits(folder):
            return cls(warehouse, writer=writer)
        with reporting(folder, "read the ledger", open_tables.mend_hint(folder)):
            if head := heads.newest(folder):
                ledger = cls(warehouse, head=head, writer=writer)
            else:
                table = open_tables.open_table(folder, writer=writer)
                ledger = cls(warehouse, table, writer=writer)
                _keep_out(writer, table)
            ledger._open()
            if writer is not None:
                # The process that wrote the last record may have been killed before it synced it.
                syncs.settle(folder, max(0, ledger._version - 1), ledger._version)
            return ledger

    @property
    def _exists(self) -> bool:
        return self._head is not None or self._table is not None

    @property
    def _version(self) -> int:
        """The version of the table that is known."""
        if self._head is not None:
            return self._head.version
        assert self._table is not None
        return self._table.version()

    def _opened(self) -> DeltaTable:
        """The table as the Delta library has it."""
        if self._table is None:
            self._table = open_tables.open_table(self.warehouse.ledger, writer=self.writer)
        return self._table

    @property
    def owner(self) -> Writer:
        """The writer, where the caller holds the warehouse's lock."""
        assert self.writer is not None, "who appends to the ledger holds the lock, and loaded it with its writer"
        return self.writer

    def begin(self) -> None:
        """Create the ledger's table if it does not exist. It is created before all other tables, so tables without a
        ledger show that it was lost. The caller holds the warehouse's lock.
        """
        if self._exists:
            return
        from ddcore.base.schema import Type  # imports Polars, which readers do not need

        folder = self.warehouse.ledger
        schema = {name: Type("int64" if name in _NUMBERS else "string") for name in _COLUMNS}
        tables.create(self.owner, folder, schema, description=f"{_DESCRIPTION}{FORMAT}", configuration=_SETTINGS)
        with reporting(folder, "read the ledger", open_tables.mend_hint(folder)):
            self._table = open_tables.open_table(folder, writer=self.writer)
            _keep_out(self.writer, self._table)

    def append(self, record: Record) -> None:
        """Write a record: every reader sees its effects from now on. The caller holds the warehouse's lock.

        Raises StorageError for a record whose number is not greater than all of its kind.
        """
        kind, number, _ = row_of(record)
        newest = {"ingest": self._summary.ingests, "intent": self._summary.runs}
        exists = kind != "compact" and number <= newest.get(kind, self._summary.ended)
        if isinstance(record, UndoRecord):
            exists = self.ingest_index(record.input).entry_of(number) is None
        if exists:
            raise StorageError(f"the ledger already has {kind} {number}", "this is a bug: please report it")
        self.begin()
        with reporting(self.warehouse.ledger, "write the ledger", open_tables.mend_hint(self.warehouse.ledger)):
            merged = self._write(self._entry(record))
            failpoint(f"after-{kind}")
            if merged:
                self._sweep()

    # --- ingests and runs ---

    def ingests(
        self, input: str | None = None, *, since: Frontier | None = None, until: Time | None = None
    ) -> Iterator[IngestRecord]:
        """Ingests that were not undone, oldest first: all, or those of one input, or with times at or beyond the
        frontier ``since``. Those whose times are all after ``until`` may be left out. Their ``counts`` have no rows
        that a restatement replaced.

        Reads all rows, unless no time at or beyond ``since`` is folded.
        """
        end = None if until is None else until[0]
        folded = self.upper()
        new = since is not None and folded is not None and all(times.is_open(time, folded) for time in since)
        return (
            e.record
            for e in (self._open_ingests() if new else self._ingests(0))
            if input in (None, e.name) and (end is None or e.first <= end) and (since is None or _reaches(e, since))
        )

    def ingest_index(self, input: str) -> IngestIndex:
        """The index of an input's ingests. Reads a footer of each file, and all rows of files that have no index: those
        of another program. The next record replaces them.
        """
        notes = self._notes()
        return IngestIndex.of([index_of(self._range(0))] if notes is None else [note[0] for note in notes], input)

    def version_names(self, dims: Sequence[str]) -> VersionNames:
        """The names of versions. They are read when they are needed: a footer of each file, and no file where no ingest
        ever gave a label; all rows of files that have no index.
        """
        return VersionNames(dims, self.labels)

    def labels(self) -> list[str]:
        """The labels of all ingests, as :func:`ddcore.io.ledger.labels.merged` reads them."""
        if not self._summary.labels:
            return []
        notes = self._notes()
        return [labels_of(self._range(0))] if notes is None else [note[1] for note in notes]

    def _notes(self) -> list[tuple[str, str]] | None:
        """For each file, in the order of their rows, its index of ingests and its labels. None where a file of
        another program has none, and where files were deleted since the ledger was read.
        """
        folder, paths = self.warehouse.ledger, sorted(self._files)
        for path in paths:
            if path not in self._footers and not self._followed:
                try:
                    self._footers[path] = datafile.notes(folder / path, open_tables.mend_hint(folder), _NOTES)
                except StorageError:
                    if not self._follow():
                        raise
        if self._followed:
            return None
        notes = [self._footers[path] for path in paths]
        spans = [span for path in paths if (span := _span(path)) is not None]
        if not all(FOOTER in note for note in notes) or len(spans) < len(paths):
            self._rewrites = True
            return None
        end = 0 if self._last is None else self._last + 1
        if [*(first for first, _ in spans), end] != [0, *(last + 1 for _, last in spans)]:
            raise _damaged(folder, f"some of the entries 0..{end - 1} are missing or occur twice")
        return [(note[FOOTER], note.get(LABELS, "")) for note in notes]

    def check(self) -> None:
        """Raise StorageError for a changed row, and for a file whose index is not that of its rows. Reads all rows."""
        folder = self.warehouse.ledger
        rows = list(self._range(0))
        for path in () if self._followed else self._files:
            notes, span = datafile.notes(folder / path, open_tables.mend_hint(folder), _NOTES), _span(path)
            right = _notes_of(rows[span[0] : span[1] + 1]) if span is not None else notes
            if FOOTER in notes and notes != right:
                raise _damaged(folder, f"the index of ingests in {path} is not that of its rows")

    def ingests_at(self, index: IngestIndex, entries: Iterable[int]) -> list[IngestRecord]:
        """The records of some ingests of an index, oldest first. Reads their rows, and those of later restatements."""
        wanted = sorted(entries)
        later = [entry for entry in index.restatements if wanted and entry > wanted[0]]
        missing = sorted({*wanted, *later} - self._rows.keys())
        if missing:
            self._load_each(missing)
        restatements = [self._rows[entry] for entry in later]
        return [_without_replaced(self._rows[entry], restatements).record for entry in wanted]

    def ingest(self, number: int) -> IngestRecord | None:
        """Ingest ``number``, also if it was undone; None if there is none. Reads the rows from it on."""
        undone, restatements = set[int](), deque[_Entry]()
        for row in self._backwards():
            if row.kind == "undo":
                undone.add(row.number)
            elif row.kind == "ingest" and row.number == number:
                record: IngestRecord = _without_replaced(row, restatements).record
                return record
            elif row.kind == "ingest" and row.number < number:
                return None
            elif row.kind == "ingest" and row.number not in undone and '"replaces":' in row.body:
                restatements.appendleft(row)
        return None

    def undos(self) -> Iterator[UndoRecord]:
        """Undone ingests, in the order of their undoing. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "undo")

    def is_folded_since(self, ingest: int) -> bool:
        """Whether a run finished after this ingest was recorded. Reads the rows after the last run."""
        run = self._summary.run
        return run is not None and all(row.kind != "ingest" or row.number != ingest for row in self._range(run + 1))

    def runs(self) -> Iterator[RunRecord]:
        """Finished runs, oldest first. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "run")

    def runs_backwards(self, last: int) -> Iterator[RunRecord]:
        """Finished runs up to number ``last``, newest first. Reads rows as they are asked for."""
        return (e.record for e in self._backwards() if e.kind == "run" and e.number <= last)

    def compactions(self) -> Iterator[CompactRecord]:
        """Compactions, oldest first. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "compact")

    def run(self, number: int) -> RunRecord | None:
        """Finished run ``number``; None if there is none. Reads the rows from it on."""
        return next((e.record for e in self._backwards() if e.kind == "run" and e.number == number), None)

    def rows_before(self, run: RunRecord) -> dict[str, int]:
        """The rows of each output where a run went on: after the finished run before it; of outputs that it folded
        again, after its base. Reads the rows from there on.
        """
        before: dict[str, int] | None = None
        for row in () if run.refresh else self._backwards():
            if row.kind == "run" and row.number < run.run:
                rows = Summary.from_json(row.summary).rows
                before = dict(rows) if before is None else before
                if not run.folds_again:
                    return before
                if row.number == run.base:
                    return {**before, **{name: rows.get(name, 0) for name in run.outputs}}
        return before or {}

    def lineage(self) -> Iterator[RunRecord]:
        """The last finished run, the run whose tables that one continued, and so on: from each of them, what was folded
        after it can be folded again. Reads the rows that it gets to.

        Ends where the program changed, because inputs that another program did not read took rows meanwhile, and where
        the logs no longer tell what came after a run: see :meth:`since`.
        """
        last = self.current_run()
        number = 0 if last is None else last.run
        for entry in self._backwards():
            if last is not None and entry.kind == "run" and entry.number == number:
                run: RunRecord = entry.record
                lost = any(times.is_open(element, run.complete) for element in self.since())
                if run.fingerprint != last.fingerprint or (lost and run is not last):
                    return
                yield run
                number = run.base

    def failures(self) -> Iterator[FailureRecord]:
        """Runs that failed or were given up, oldest first. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "failure")

    def newest_first(self) -> Iterator[Record]:
        """What holds now, newest first: runs, failures, compactions, undos, the ingests that were not undone, and the
        intent of an unfinished run. Ingests are without the rows that later restatements replaced.

        Reads rows as they are asked for, and keeps none of them.
        """
        undone, restatements = set[int](), deque[_Entry]()
        for row in self._backwards():
            if row.kind == "undo":
                undone.add(row.number)
            if row.kind == "ingest" and row.number not in undone:
                yield _without_replaced(row, restatements).record
                if '"replaces":' in row.body:
                    small = replace(row.record, counts={}, replaced={}, sources=())
                    restatements.appendleft(replace(row, body="", summary="", parsed=small))
            elif row.kind != "ingest" and (row.kind != "intent" or row.entry == self._summary.intent):
                yield row.record

    def current_run(self) -> RunRecord | None:
        """The last finished run: readers see the outputs and state that its record names."""
        entry = self._summary.run
        return None if entry is None else self._row(entry).record

    @property
    def last_entry(self) -> int | None:
        """The number of the newest row; None in an empty ledger."""
        return self._last

    def newest(self) -> Record | None:
        """The last record, None in an empty ledger."""
        if self._last is None:
            return None
        record: Record = self._row(self._last).record
        return record

    def open_intent(self) -> IntentRecord | None:
        """The intent of the last run, if that is unfinished: neither finished nor given up."""
        entry = self._summary.intent
        return None if entry is None else self._row(entry).record

    # --- versions ---

    def last_folded(self) -> Time | None:
        """The last version for which the outputs are complete; with several dimensions, the last run's ``last``."""
        return self._summary.folded

    def upper(self) -> Frontier | None:
        """The frontier after the last finished run: the outputs are complete at all times that are not at or beyond it.
        None where nothing is folded.
        """
        now = self._summary
        return now.upper or (None if now.folded is None else times.up_to(now.folded))

    def since(self) -> Frontier:
        """The logs of inputs and outputs are exact at times at or beyond this frontier; empty: at all times."""
        return self._summary.since

    def restated(self) -> Frontier:
        """The least closed times at which ingests changed an input that was folded already; empty without any."""
        return self._summary.restated

    def first_ingested(self, inputs: Iterable[str] | None = None) -> Time | None:
        """The first version at which any input (or any of ``inputs``) has rows; with several time dimensions, the least
        coordinates.
        """
        known = self._summary.inputs
        names = known if inputs is None else [name for name in inputs if name in known]
        firsts = [first for name in names if (first := known[name].first) is not None]
        return times.least(firsts) if firsts else None

    def latest_ingested(self, inputs: Iterable[str] | None = None) -> Time | None:
        """The last version at which any input (or any of ``inputs``) has rows; with several time dimensions, the
        greatest coordinates.
        """
        known = self._summary.inputs
        names = known if inputs is None else [name for name in inputs if name in known]
        lasts = [last for name in names if (last := known[name].last) is not None]
        return times.greatest(lasts) if lasts else None

    def closed(self, input: str | None = None) -> Time | None:
        """The last version that accepts no more rows (of ``input``): folded, or in an unfinished run.

        With several time dimensions, the greatest coordinates of such times, which itself may be open: see
        :meth:`open_from`. An input that is not in the program of these runs is open at every version: they have not
        read it.
        """
        reading = self._reading(input)
        return times.greatest(run.last for run in reading) if reading else None

    def open_from(self, input: str | None = None) -> Frontier | None:
        """The frontier of the times that accept rows (of ``input``); None where all do. See :meth:`closed`."""
        uppers = [run.complete for run in self._reading(input)]
        return None if not uppers else uppers[0] if len(uppers) == 1 else times.close_both(*uppers)

    def _reading(self, input: str | None) -> list[IntentRecord | RunRecord]:
        """The unfinished and the last finished run, where their programs read an input."""
        runs = [run for run in (self.open_intent(), self.current_run()) if run is not None]
        return [run for run in runs if input is None or not run.program_inputs or input in run.program_inputs]

    def waiting(self) -> list[IngestRecord]:
        """Ingests with versions that no run has folded."""
        return list(self.ingests(since=self.upper()))

    def check_dims(self, dims: Sequence[str]) -> None:
        """Raise UsageError where the warehouse's times have other dimensions than ``dims``.

        The name of a single dimension is not in the ledger: the tables' columns are compared with it elsewhere.
        """
        known = self._summary.dims
        if self._last is not None and known != (tuple(dims) if len(dims) > 1 else ()):
            before = f"the dimensions {', '.join(known)}" if known else "one dimension"
            raise UsageError(
                f"dd.toml: [time] dims = {list(dims)}, but the times in {self.warehouse.root} have {before}",
                "restore dims, or ingest the sources into a new warehouse: --warehouse DIR",
            )

    # --- tables ---

    def inputs(self, *, with_rows: bool = False) -> list[str]:
        """The inputs that were ingested, sorted; also those of which every ingest was undone, unless ``with_rows``."""
        return sorted(name for name, one in self._summary.inputs.items() if not with_rows or one.first is not None)

    def without_rows(self, names: Iterable[str]) -> list[str]:
        """Those of the inputs that have had no rows yet."""
        known = self.inputs(with_rows=True)
        return [name for name in names if name not in known]

    def input_table(self, input: str) -> TableState | None:
        """The state of an input's table as its last ingest or undo left it, None before its first ingest."""
        one = self._summary.inputs.get(input)
        return None if one is None else one.table

    def tables(self) -> dict[str, TableState]:
        """The live tables of state and outputs, by name, as the last run or compaction left them."""
        run, entry = self.current_run(), self._summary.compact
        changed = {} if entry is None else self._row(entry).record.tables
        live = {} if run is None else dict(run.tables)
        return live | {name: state for name, state in changed.items() if name in live}

    def compacted(self) -> dict[str, TableState]:
        """The tables of state and outputs that were compacted after the last run; the record of a further compaction
        names them as well.
        """
        entry = self._summary.compact
        tables = {} if entry is None else self._row(entry).record.tables
        return {name: state for name, state in tables.items() if not name.startswith("inputs/")}

    def states(self) -> dict[str, TableState]:
        """All live tables: those of state and outputs, and the inputs."""
        inputs = {f"inputs/{name}": one.table for name, one in sorted(self._summary.inputs.items())}
        return {**self.tables(), **inputs}

    def table(self, relative: str) -> TableState | None:
        """The state of a table of state or outputs (``outputs/dists``); None if no run names it."""
        return self.tables().get(relative)

    # --- numbers ---

    def next_run(self) -> int:
        """A number that no run or intent has. An unfinished run keeps its own."""
        return 1 + max(self._summary.runs, self._unrecorded)

    def next_ingest(self) -> int:
        """A number that no recorded ingest has."""
        return 1 + self._summary.ingests

    # --- rows ---

    def _open(self) -> None:
        """Read and check the newest rows and the summary in the last of them; older rows are checked when read."""
        folder, last = self.warehouse.ledger, None if self._head is None else self._head.txn
        if self._head is not None:
            self._files = [file.path for file in self._head.files]
        else:
            table = self._opened()
            self._files = tables.values(table.get_add_actions().column("path"))
            last = table.transaction_version(tables.APP)
        version = self._version
        if last is None:
            if self._files or not all(is_maintenance(folder, number) for number in range(1, version + 1)):
                raise _damaged(folder, "no commit of it has a number")
            return
        self._last = last
        self._load(max(0, last - _FIRST_READ + 1), last)
        self._summary = Summary.from_json(self._row(last).summary)
        self._tell_lease()
        head = self._summary.head
        newer = [v for v in range(head + 1, version + 1) if store.is_file(commit_file(folder, v))]
        if version < head or not all(is_maintenance(folder, version) for version in newer):
            raise _damaged(folder, "another program changed it")

    def _row(self, entry: int) -> _Entry:
        if entry not in self._rows:
            self._load(entry, entry)
        return self._rows[entry]

    def _backwards(self) -> Iterator[_Entry]:
        """The rows, newest first. They are read in portions, each is checked to be what the next one followed, and
        none is kept.
        """
        end, size, later = -1 if self._last is None else self._last, _FIRST_READ, None
        while end >= 0:
            first = max(0, end - size + 1)
            missing = [entry for entry in range(first, end + 1) if entry not in self._rows]
            rows = self._checked(range(missing[0], missing[-1] + 1)) if missing else []
            by_entry = {row.entry: row for row in rows}
            for entry in range(end, first - 1, -1):
                row = self._rows.get(entry) or by_entry[entry]
                if later is not None and later.before != row.digest:
                    raise _damaged(self.warehouse.ledger, f"entry {entry} has changed since it was written")
                yield row
                later = row
            end, size = first - 1, min(4 * size, _PORTION)

    def _ingests(self, first: int, without: int = 0) -> Iterator[_Entry]:
        """The rows, from ``first`` on, of ingests that were not undone, other than ``without``. An undo comes after its
        ingest. The records are without what later restatements replaced.
        """
        rows = [row for row in self._range(first) if row.kind in ("ingest", "undo")]
        undone = {without, *(row.number for row in rows if row.kind == "undo")}
        rows = [row for row in rows if row.kind == "ingest" and row.number not in undone]
        restatements = [row for row in rows if '"replaces":' in row.body]
        return (_without_replaced(row, restatements) for row in rows)

    def _open_ingests(self) -> Iterator[_Entry]:
        """The rows of ingests that may have a version that is not folded, oldest first."""
        now = self._summary
        if missing := sorted({*now.open} - self._rows.keys()):
            self._load_each(missing)
        rows = [*(self._rows[entry] for entry in now.open), *self._range(now.waiting)]
        undone = {row.number for row in rows if row.kind == "undo"}
        rows = [row for row in rows if row.kind == "ingest" and row.number not in undone]
        restatements = [row for row in rows if '"replaces":' in row.body]
        return (_without_replaced(row, restatements) for row in rows)

    def _range(self, first: int, last: int | None = None) -> Iterator[_Entry]:
        """The rows from ``first`` to ``last``, by default the newest; oldest first."""
        last = self._last if last is None else last
        if last is None:
            return
        missing = [entry for entry in range(first, last + 1) if entry not in self._rows]
        if missing:
            self._load(missing[0], missing[-1])
        yield from (self._rows[entry] for entry in range(first, last + 1))

    def _load(self, first: int, last: int) -> None:
        """Read rows ``first``..``last``. Check that each occurs once, is unchanged and follows the one before it."""
        self._load_each(range(first, last + 1))

    def _load_each(self, entries: Sequence[int]) -> None:
        """Load the rows of these numbers, which ascend."""
        for row in self._checked(entries):
            self._rows.setdefault(row.entry, row)

    def _checked(self, entries: Sequence[int]) -> list[_Entry]:
        """The rows of these numbers, which ascend, as they were written."""
        while True:
            try:
                return self._from_files(entries)
            except StorageError:
                if not self._follow():
                    raise

    def _follow(self) -> bool:
        """If files are gone, read from those of the newest version: a writer has merged them since, and has deleted
        them because this process is slow. False where this is not so: files are missing.
        """
        folder, before = self.warehouse.ledger, set(self._files)
        if all(store.is_file(folder / path) for path in before):
            return False
        table = open_tables.open_table(folder, writer=self.writer)
        files = tables.values(table.get_add_actions().column("path"))
        if set(files) == before:
            return False
        self._table, self._head, self._files, self._followed = table, None, files, True
        return True

    def _from_files(self, entries: Sequence[int]) -> list[_Entry]:
        folder, first, last = self.warehouse.ledger, entries[0], entries[-1]
        with reporting(folder, "read the ledger", open_tables.mend_hint(folder)):
            for path in self._files:
                span = _span(path)
                if span is None or bisect_left(entries, span[0]) < bisect_right(entries, span[1]):
                    datafile.verify(folder / path, open_tables.mend_hint(folder))
            rows = self._in_commits(entries) or self._in_files(entries)
        if [row.entry for row in rows] != list(entries):
            raise _damaged(folder, f"some of the entries {first}..{last} are missing or occur twice")
        by_entry = {row.entry: row for row in rows}
        for row in rows:
            before = self._rows.get(row.entry - 1) or by_entry.get(row.entry - 1)
            if row.digest != row.own_digest() or (before is not None and row.before != before.digest):
                raise _damaged(folder, f"entry {row.entry} has changed since it was written")
        return rows

    def _in_commits(self, entries: Sequence[int]) -> list[_Entry]:
        """The newest rows, from the commits that added them: quicker than from files. None if one is not there so."""
        if self._head is None or self._last is None or len(entries) > _FIRST_READ:
            return []
        rows = []
        for entry in entries:
            info = commit_info(self.warehouse.ledger, self._head.version - self._last + entry)
            row = _Entry(*json.loads(info[_ROW])) if _ROW in info else None
            if row is None or row.entry != entry or row.digest != row.own_digest():
                return []
            rows.append(row)
        return rows

    def _in_files(self, entries: Sequence[int]) -> list[_Entry]:
        from deltalake import QueryBuilder

        query = QueryBuilder().register("ledger", self._opened())
        where = f"entry >= {entries[0]} and entry <= {entries[-1]}"
        if len(entries) <= entries[-1] - entries[0]:
            where += f" and entry in ({', '.join(map(str, entries))})"
        result = query.execute(f"select {', '.join(_COLUMNS)} from ledger where {where} order by entry").read_all()
        columns = [tables.values(result.column(name)) for name in _COLUMNS]
        return [_Entry(*row) for row in zip(*columns, strict=True)]

    def _entry(self, record: Record) -> _Entry:
        """The row of a new record."""
        kind, number, name = row_of(record)
        last, at = self._last, record.at.astimezone(UTC).isoformat(timespec="milliseconds")
        body = json.dumps(to_json(record), separators=(",", ":"))
        row = _Entry(
            0 if last is None else last + 1, kind, number, name, record.first[0], record.last[0], at, body, "",
            "" if last is None else self._row(last).digest, parsed=record,
        )  # fmt: skip
        row.summary = replace(self._add_to_summary(row), head=self._version + 1).to_json()
        row.digest = row.own_digest()
        return row

    def _add_to_summary(self, row: _Entry) -> Summary:
        """The summary with one more row."""
        now, record = self._summary, row.record
        if isinstance(record, IngestRecord):
            return self._with_ingest(record)
        if isinstance(record, UndoRecord):
            return self._without_ingest(record)
        if isinstance(record, CompactRecord):
            return self._with_compaction(record, row.entry)
        now = replace(now, runs=max(now.runs, record.run))
        if isinstance(record, IntentRecord):
            return replace(now, intent=row.entry)
        intent = self.open_intent()
        now = replace(now, ended=record.run, intent=None if intent is None or record.run >= intent.run else now.intent)
        if isinstance(record, RunRecord):
            waiting, still_open = self._waiting_after(record.complete, row.entry)
            lower = record.lower or (record.first,)
            restated = tuple(time for time in now.restated if not times.is_open(time, lower))
            now = replace(now, run=row.entry, folded=record.last, upper=record.upper, waiting=waiting, open=still_open)
            now = replace(now, rows=self._rows_after(record))
            now = replace(now, compact=None, restated=restated)
        return now

    def _rows_after(self, run: RunRecord) -> dict[str, int]:
        """The rows of each output after a run that is about to be recorded."""
        goes_on = not (run.refresh or run.folds_again)
        rows = dict(self._summary.rows) if goes_on else self.rows_before(run)
        for name, counts in run.outputs.items():
            rows[name] = rows.get(name, 0) + sum(plus - minus for plus, minus in counts.values())
        return rows

    def _with_compaction(self, record: CompactRecord, entry: int) -> Summary:
        """The summary after a compaction. A second one after the same run names the tables of the first as well."""
        inputs = dict(self._summary.inputs)
        for name, state in record.tables.items():
            folder, _, input = name.partition("/")
            if folder == "inputs":
                inputs[input] = replace(inputs[input], table=state)
        return replace(self._summary, compact=entry, since=record.since, inputs=inputs)

    def _with_ingest(self, record: IngestRecord) -> Summary:
        now = self._summary
        one = Input(record.first, record.last, record.table)
        old = now.inputs.get(record.input)
        if record.replaces is not None:
            earlier = [without_replaced(other, record) for other in self.ingests(record.input)]
            one = _extent([*earlier, record], record.table)
        elif old is not None:
            spans = [record.first, record.last, *(v for v in (old.first, old.last) if v is not None)]
            one = replace(one, first=times.least(spans), last=times.greatest(spans))
        inputs = {**now.inputs, record.input: one}
        restated = frontier((*now.restated, *record.restates))
        now = replace(now, dims=record.dims, restated=restated, labels=now.labels or bool(record.labels))
        return replace(now, ingests=max(now.ingests, record.number), inputs=inputs)

    def _without_ingest(self, record: UndoRecord) -> Summary:
        """The summary after an undo. The remaining ingests say which versions the input has: their index does, where
        there is one time dimension and no history was replaced; else their records, or all of the input's rows.
        """
        index = self.ingest_index(record.input)
        entry, own = index.entry_of(record.number), Input(None, None, record.table)
        if len(self._summary.dims) > 1 or index.restatements:
            remaining = [e.record for e in self._ingests(0, without=record.number) if e.name == record.input]
            own = _extent(remaining, record.table)
        elif spans := index.spans(record.number):
            first, last = min(span[0] for span in spans), max(span[1] for span in spans)
            own = Input(Time([first]), Time([last]), record.table)
        inputs = {**self._summary.inputs, record.input: own}
        restated = frontier((*self._restated_without(record.number), *record.restates))
        summary = replace(self._summary, inputs=inputs, restated=restated)
        if entry is None or entry in index.restatements:
            # What a restatement had replaced, in any earlier row, may be waiting again: all rows are looked at.
            summary = replace(summary, waiting=0, open=())
        return summary

    def _restated_without(self, number: int) -> Frontier:
        """What has to be folded again apart from ingest ``number``, if no run has folded that. Reads the rows after the
        last run.
        """
        run = self._summary.run
        before = () if run is None else Summary.from_json(self._row(run).summary).restated
        first = 0 if run is None else run + 1
        undone = {number, *(row.number for row in self._range(first) if row.kind == "undo")}
        rows = [row for row in self._range(first) if '"restates":' in row.body]
        later = [row.record for row in rows if row.kind == "undo" or row.number not in undone]
        return frontier((*before, *(time for record in later for time in record.restates)))

    def _waiting_after(self, upper: Frontier, end: int) -> tuple[int, tuple[int, ...]]:
        """``waiting`` and ``open`` of the summary when times before ``upper`` are folded; ``end``: the row of that run.

        A few rows are named one by one, so that a long history that is folded in many runs is not searched each time.
        """
        before = self.upper()
        # A full refresh up to an earlier version opens times again.
        back = before is not None and not all(times.is_open(element, before) for element in upper)
        rows = [row.entry for row in (self._ingests(0) if back else self._open_ingests()) if _reaches(row, upper)]
        return (rows[_FEW], tuple(rows[:_FEW])) if len(rows) > _FEW else (end, tuple(rows))

    def _write(self, row: _Entry) -> bool:
        """Commit the row in its own file, or in one file with the rows of earlier files; return whether in one."""
        import polars as pl

        from ddcore.base.schema import Type

        folder = self.warehouse.ledger
        spans = [_span(path) for path in self._files]
        width = (
            row.entry + 1 if self._rewrites or None in spans else _width(row.entry + 1, self.owner.tuning.ledger_files)
        )
        first = row.entry + 1 - width
        # A file of all rows, for the reasons above, may end anywhere.
        first = min([first, *(span[0] for span in spans if span is not None and span[1] >= first)])
        rows = [*self._range(first), row]
        schema = {name: Type("int64" if name in _NUMBERS else "string") for name in _COLUMNS}
        # Through Polars: given Python's values, PyArrow imports pandas.
        columns = {
            name: pl.Series([getattr(each, name) for each in rows], dtype=kind.polars).to_arrow()
            for name, kind in schema.items()
        }
        stem = f"entries-{first:08d}-{row.entry:08d}"
        file = new_files.write_file(
            folder, stem, new_files.arrow_table(columns, schema), bounded=["entry"], row_group=_ROW_GROUP,
            notes=_notes_of(rows),
        )  # fmt: skip
        merged = [path for path in self._files if (_span(path) or (first, 0))[0] >= first]
        self._change(file, [path for path in merged if path != file.path], row)
        self._files = [path for path in self._files if path not in merged] + [file.path]
        self._rows[row.entry], self._last, self._summary = row, row.entry, Summary.from_json(row.summary)
        self._rewrites = False
        self._tell_lease()
        return len(rows) > 1

    def _change(self, file: AddedFile, removed: Sequence[str], row: _Entry) -> None:
        """Commit a file of the ledger, and sync it. Raises LockHeld where another process took the lock over."""
        folder, carries = self.warehouse.ledger, {_ROW: json.dumps([getattr(row, name) for name in _COLUMNS])}
        if self._head is not None:
            change = heads.Change([file], removed, row.entry, carries)
            if head := commits.change_from(self.owner, folder, self._head, change):
                self._table, self._head = None, head
                return
        table = self._opened()
        try:
            commits.change(self.owner, table, [file], removed, row.entry, carries=carries, fenced=True)
        except commits.Overtaken:
            # If the store's answer was lost, the library asked again, and the commit that is there may be this one.
            ours = file.path in added_files(folder, table.version() + 1)
            if not ours and self.owner.lease is not None:
                raise self.owner.lease.lost() from None
            table.update_incremental()
        if self.owner.lease is not None:
            self.owner.lease.note_recorded()
        syncs.settle(folder, table.version(), table.version())
        self._head = heads.newest(folder)

    def _tell_lease(self) -> None:
        if self.writer is not None and self.writer.lease is not None:
            self.writer.lease.entry = self._last

    def _sweep(self) -> None:
        """Delete files that were merged into others, and entries of the Delta log before a checkpoint: an hour later,
        or 20 seconds later where there are many, so that their number does not grow with that of the runs. A reader
        that is slower looks for the rows in newer files.
        """
        folder, live = self.warehouse.ledger, set(self._files)
        present = [name for name in store.names(folder) if name.startswith("entries-") and name.endswith(".parquet")]
        commits, checkpoints = versions_of(folder)
        base = checkpoints[-2] if len(checkpoints) > 1 else 0
        old = [commit_file(folder, version) for version in commits if version < base]
        old += [checkpoint_file(folder, version) for version in checkpoints if version < base]
        self.owner.require_lock()
        written = {name: store.modified(folder / name) for name in present if store.is_file(folder / name)}
        replaced = [(_replaced(name, written), folder / name) for name in written if name not in live]
        for ages in (replaced, [(store.modified(path), path) for path in old if store.is_file(path)]):
            for number, (at, path) in enumerate(sorted(ages, reverse=True)):
                if time.time() - at > (self.owner.tuning.ledger_seconds if number < _KEPT_FILES else _KEPT_LEAST):
                    store.delete(path)
                    failpoint("after-sweep")

    # --- the tables' own transactions ---

    def _unknown(self) -> Iterator[tuple[str, str, int]]:
        """The tables with a run or an ingest that has no record: the table, ``run`` or ``ingest``, and the number.

        What a crash may leave behind is allowed: tables of a run whose intent is recorded, and the next ingest of an
        input. Opens at most one commit of a table in most cases, and none if there is no commit after the recorded one.
        """
        begun = self._exists
        for place, folder in self.warehouse.tables():
            part = place.partition("/")[0]
            state = self.input_table(folder.name) if part == "inputs" else self.table(place)
            if state is not None and not store.is_file(commit_file(folder, state.version + 1)):
                continue
            known = self._summary.runs if part != "inputs" else self._summary.ingests + begun
            number = last_transaction(folder, tables.APP)
            if number is not None and number > known:
                yield place, "ingest" if part == "inputs" else "run", number


def _replaced(name: str, written: Mapping[str, float]) -> float:
    """When a file was merged into another one, in seconds since the epoch: when the first with its rows was written.

    Its own time, where none is there any more. ``written`` has those of all files.
    """
    span, own = _span(name), written[name]
    if span is None:
        return own
    others = ((_span(other), at) for other, at in written.items() if other != name and at >= own)
    return min((at for other, at in others if other and other[0] <= span[0] and span[1] <= other[1]), default=own)


def _notes_of(rows: Sequence[_Entry]) -> dict[str, str]:
    """The notes in the footer of a file with these rows."""
    labels = labels_of(rows)
    runs = runs_of(rows)
    return {FOOTER: index_of(rows), **({LABELS: labels} if labels else {}), **({RUNS: runs} if runs else {})}


def _width(rows: int, merged: int) -> int:
    """How many of the newest rows one file gets when there are ``rows``: the greatest power of ``merged`` that divides
    it, up to ``_LARGEST``.
    """
    width = 1
    while width < _LARGEST and rows % (width * merged) == 0:
        width *= merged
    return width


def _span(path: str) -> tuple[int, int] | None:
    """The first and last entry in a file of ours; None for one that another program wrote (OPTIMIZE)."""
    name = _NAME.match(path)
    return (int(name[1]), int(name[2])) if name else None


def _without_replaced(row: _Entry, restatements: Iterable[_Entry]) -> _Entry:
    """The row of an ingest, its record without what later restatements of its input replaced."""
    for later in restatements:
        if later.entry > row.entry and later.name == row.name:
            record = without_replaced(row.record, later.record)
            if record is not row.record:
                last = max((time[0] for time in record.counts), default=-1)
                row = replace(row, parsed=record, last=last)
    return row


def _extent(records: Iterable[IngestRecord], table: TableState) -> Input:
    """An input that holds the rows of these ingests."""
    spans = [
        time for record in records for time in (record.counts if record.replaced_by else (record.first, record.last))
    ]
    return Input(times.least(spans), times.greatest(spans), table) if spans else Input(None, None, table)


def _reaches(row: _Entry, lower: Frontier) -> bool:
    """Whether an ingest has a time at or beyond a frontier. Parses its record with several dimensions only."""
    if len(lower[0]) == 1:
        return row.last >= lower[0][0]
    return any(times.is_open(time, lower) for time in row.record.counts)


def _keep_out(writer: Writer | None, table: DeltaTable) -> None:
    """In an object store: keep out the processes that held the lock before, if one of them may still be working.

    Commits are numbered and none replaces another, and each of ours is the next after the version that its process has
    open, which has its token as the greatest (docs/storage.md). So once the ledger has a greater one, no process with a
    smaller token can commit to it any more. Raises LockHeld if this process is one of those.
    """
    while writer is not None and (lease := writer.lease) is not None:
        known = commits.token_of(table)
        if known > lease.token or (known == lease.token and not lease.is_recorded):
            lease.outbid(known)
        if known == lease.token or not lease.takes_over:
            return
        try:
            commits.fence(writer, table, lease.token)
            lease.note_recorded()
            return
        except commits.Overtaken:
            table.update_incremental()


def _description(table: DeltaTable | None) -> str:
    return "" if table is None else table.metadata().description or ""


def _check_format(folder: Place, description: str) -> None:
    """Raise StorageError for a warehouse of another format."""
    text = description.removeprefix(_DESCRIPTION)
    if text != str(FORMAT):
        number = text if _FORMAT_NUMBER.fullmatch(text) else "without a number"
        raise StorageError(
            f"{folder.parent} has the warehouse format {number}; this ddcore, {__version__}, reads format {FORMAT}",
            "use the ddcore that wrote it, or ingest the sources into a new warehouse; nothing was changed",
        )


def _damaged(folder: Place, why: str) -> StorageError:
    return StorageError(f"the ledger {folder} is damaged: {why}", open_tables.mend_hint(folder))
