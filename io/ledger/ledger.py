"""The ledger: a small Delta table with the records of all ingests and runs of a warehouse.

Delta has no commit across tables. So tables are committed first and the ledger last, and our readers ignore data that
no record names. A run first writes its intent. An intent without a run record is an unfinished run, and the next run
finishes it; after a failure record it does not, because the run would fail again.

Every row has a summary of all rows before it, so a command reads only the last few rows, however long the ledger is.
Every row also has a digest of itself and of the row before, and the state of each table that it names: data that was
lost or changed on the disk is an error, never another result.

Every command reads the ledger first, so this module imports nothing heavy and parses records only when they are needed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from ddcore.base.errors import StorageError, UsageError
from ddcore.base.lattice import Frontier
from ddcore.io.delta import open_tables
from ddcore.io.delta.table_files import TableState
from ddcore.io.ledger.entries import Entries
from ddcore.io.ledger.entry import Entry, standing
from ddcore.io.ledger.ingest_index import IngestIndex
from ddcore.io.ledger.labels import labels_of
from ddcore.io.ledger.next_summary import rows_before, summary_with
from ddcore.io.ledger.records import (
    IngestRecord,
    IntentRecord,
    PartRecord,
    Record,
    RunRecord,
    UndoRecord,
    kind_of,
    row_of,
    to_json,
)
from ddcore.io.ledger.summary import Input
from ddcore.io.ledger.unrecorded import unrecorded
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project import frontiers, times
from ddcore.io.project.times import Time
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.warehouse import Warehouse

if TYPE_CHECKING:
    from ddcore.io.delta.writer import Writer

R = TypeVar("R", bound=Record)


class Ledger:
    """The records of a warehouse, as of the load or the last append. Rows are read when they are needed. ``writer``:
    of a command that holds the lock; without it, nothing can be appended.
    """

    def __init__(self, warehouse: Warehouse, writer: Writer | None = None) -> None:
        self.warehouse, self.writer = warehouse, writer
        self.entries = Entries(warehouse.ledger, writer)
        self._names: tuple[object, VersionNames] | None = None  # those that were asked for last
        self.is_recovered = False  # whether nothing that was killed is without its record, as far as is known
        self._unrecorded = 0  # the greatest number of a run of which tables hold a commit, and that has no record

    @classmethod
    def load(cls, warehouse: Warehouse, writer: Writer | None = None, *, refresh: bool = False) -> Ledger:
        """Read the ledger; an empty one where the table does not exist. Takes no lock. Reads a few rows, however many
        there are. ``writer``: of a command that holds the lock. ``refresh``: for a command that replaces state and
        outputs, whatever they hold now.

        Raises StorageError where it cannot be read, where it has another format, and where tables hold runs or
        ingests without a record: then the ledger or its end was lost, or replaced by an older one, and the next command
        would remove their data as the leftovers of a crash.
        """
        ledger = cls(warehouse, writer)
        if found := unrecorded(warehouse, ledger.entries, ledger.states()):
            # A concurrent run writes the ledger before its tables, so a second read has its record.
            ledger = cls(warehouse, writer)
            found = unrecorded(warehouse, ledger.entries, ledger.states())
        if refresh and ledger.entries.exists:
            ledger._unrecorded = max((one.number for one in found if one.what == "run"), default=0)
            found = [one for one in found if one.what != "run"]
        if found:
            raise found[0].error(warehouse, ledger.entries)
        return ledger

    @property
    def owner(self) -> Writer:
        """The writer, where the caller holds the warehouse's lock."""
        return self.entries.owner

    def begin(self) -> None:
        """Create the ledger's table if it does not exist. It is created before all other tables, so tables without a
        ledger show that it was lost. The caller holds the warehouse's lock.
        """
        if not self.entries.exists:
            self.entries.create()

    def append(self, record: Record) -> None:
        """Write a record: every reader sees its effects from now on. The caller holds the warehouse's lock.

        Raises StorageError for a record whose number is not greater than all of its kind.
        """
        kind, number, name = row_of(record)
        now, entries = self.entries.summary, self.entries
        exists = kind != "compact" and number <= {"ingest": now.ingests, "intent": now.runs}.get(kind, now.ended)
        if isinstance(record, UndoRecord):
            exists = self.ingest_index(record.input).entry_of(number) is None
        if exists:
            raise StorageError(f"the ledger already has {kind} {number}", "this is a bug: please report it")
        self.begin()
        with reporting(self.warehouse.ledger, "write the ledger", open_tables.mend_hint(self.warehouse.ledger)):
            at, body = record.at.astimezone(UTC), json.dumps(to_json(record), separators=(",", ":"))
            entry, before = (0, "") if entries.last is None else (entries.last + 1, entries[entries.last].digest)
            row = Entry(
                entry, kind, number, name, record.first[0], record.last[0], at.isoformat(timespec="milliseconds"), body,
                "", before, parsed=record,
            )  # fmt: skip
            row.summary = replace(summary_with(entries, row), head=entries.version + 1).to_json()
            row.digest = row.own_digest()
            merged = entries.append(row)
            failpoint(f"after-{kind}")
            if merged:
                entries.sweep()

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
        new = since is not None and folded is not None and all(frontiers.is_open(time, folded) for time in since)
        return (
            e.record
            for e in (self.entries.open_ingests() if new else standing(self.entries.onwards()))
            if input in (None, e.name) and (end is None or e.first <= end) and (since is None or e.reaches(since))
        )

    def ingest_index(self, input: str) -> IngestIndex:
        """The index of an input's ingests: see :meth:`Entries.ingest_index`."""
        return self.entries.ingest_index(input)

    def version_names(self, dims: Sequence[str], inputs: Collection[str] | None = None) -> VersionNames:
        """The names of versions, that all ingests gave or those of some inputs. They are read when they are needed: a
        footer of each file, and no file where no ingest ever gave a label; all rows of files that have no index.
        """
        key = self.entries.last, tuple(dims), None if inputs is None else frozenset(inputs)
        if self._names is None or self._names[0] != key:
            self._names = key, VersionNames(dims, self.labels, inputs)
        return self._names[1]

    def labels(self) -> list[str]:
        """The labels of all ingests, as :func:`ddcore.io.ledger.labels.merged` reads them."""
        if not self.entries.summary.labels:
            return []
        notes = self.entries.notes()
        return [labels_of(self.entries.onwards())] if notes is None else [note[1] for note in notes]

    def ingests_at(self, index: IngestIndex, wanted: Iterable[int]) -> list[IngestRecord]:
        """The records of some ingests of an index, oldest first. Reads their rows, and those of later restatements."""
        rows = self.entries.at(sorted(wanted))
        later = [entry for entry in index.restatements if rows and entry > rows[0].entry]
        restatements = self.entries.at(later)
        return [row.without_replaced(restatements).record for row in rows]

    def ingest(self, number: int) -> IngestRecord | None:
        """Ingest ``number``, also if it was undone; None if there is none. Reads the rows from it on."""
        undone, restatements = set[int](), deque[Entry]()
        for row in self.entries.backwards():
            if row.kind == "undo":
                undone.add(row.number)
            elif row.kind == "ingest" and row.number == number:
                record: IngestRecord = row.without_replaced(restatements).record
                return record
            elif row.kind == "ingest" and row.number < number:
                return None
            elif row.kind == "ingest" and row.number not in undone and '"replaces":' in row.body:
                restatements.appendleft(row)
        return None

    def records(self, kind: type[R]) -> Iterator[R]:
        """The records of one kind, oldest first; ingests also where they were undone. Reads all rows."""
        name = kind_of(kind)
        return (e.record for e in self.entries.onwards() if e.kind == name)

    def is_folded_since(self, ingest: int) -> bool:
        """Whether a run finished after this ingest was recorded. Reads the rows after the last run."""
        run = self.entries.summary.run
        return run is not None and all(
            row.kind != "ingest" or row.number != ingest for row in self.entries.onwards(run + 1)
        )

    def run(self, number: int) -> RunRecord | None:
        """Finished run ``number``; None if there is none. Reads the rows from it on."""
        return next((e.record for e in self.entries.backwards() if e.kind == "run" and e.number == number), None)

    def runs_backwards(self, last: int) -> Iterator[RunRecord]:
        """Finished runs up to number ``last``, newest first. Reads rows as they are asked for."""
        return (e.record for e in self.entries.backwards() if e.kind == "run" and e.number <= last)

    def rows_before(self, run: RunRecord) -> dict[str, int]:
        """The rows of each output where a finished run went on. Reads the rows from there on."""
        return rows_before(self.entries, run)

    def lineage(self) -> Iterator[RunRecord]:
        """The last finished run, the run whose tables that one continued, and so on: from each of them, what was folded
        after it can be folded again. Reads the rows that it gets to.

        Ends where the program changed, because inputs that another program did not read took rows meanwhile, and where
        the logs no longer tell what came after a run: see :meth:`since`.
        """
        last = self.current_run()
        number = 0 if last is None else last.run
        for entry in self.entries.backwards():
            if last is not None and entry.kind == "run" and entry.number == number:
                run: RunRecord = entry.record
                lost = any(frontiers.is_open(element, run.complete) for element in self.since())
                if run.fingerprint != last.fingerprint or (lost and run is not last):
                    return
                yield run
                number = run.base

    def newest_first(self) -> Iterator[Record]:
        """What holds now, newest first: runs, failures, compactions, undos, the ingests that were not undone, and the
        intent of an unfinished run. Ingests are without the rows that later restatements replaced.

        Reads rows as they are asked for, and keeps none of them.
        """
        undone, restatements = set[int](), deque[Entry]()
        for row in self.entries.backwards():
            if row.kind == "undo":
                undone.add(row.number)
            if row.kind == "ingest" and row.number not in undone:
                yield row.without_replaced(restatements).record
                if '"replaces":' in row.body:
                    small = replace(row.record, counts={}, replaced={}, sources=())
                    restatements.appendleft(replace(row, body="", summary="", parsed=small))
            elif row.kind != "ingest" and (row.kind != "intent" or row.entry == self.entries.summary.intent):
                yield row.record

    def current_run(self) -> RunRecord | None:
        """The last finished run: readers see the outputs and state that its record names."""
        entry = self.entries.summary.run
        return None if entry is None else self.entries[entry].record

    def ahead(self) -> PartRecord | None:
        """The outputs that are ahead of the last finished run, by runs of some outputs alone; None without any."""
        entry = self.entries.summary.part
        return None if entry is None else self.entries[entry].record

    def is_ahead_of_changes(self) -> bool:
        """Whether no input has changed since the last run of some outputs alone. Reads the rows after it."""
        entry = self.entries.summary.part
        return entry is not None and all(row.kind not in ("ingest", "undo") for row in self.entries.onwards(entry + 1))

    def newest(self) -> Record | None:
        """The last record, None in an empty ledger."""
        if self.entries.last is None:
            return None
        record: Record = self.entries[self.entries.last].record
        return record

    def open_intent(self) -> IntentRecord | None:
        """The intent of the last run, if that is unfinished: neither finished nor given up."""
        entry = self.entries.summary.intent
        return None if entry is None else self.entries[entry].record

    # --- versions ---

    def last_folded(self) -> Time | None:
        """The last version for which the outputs are complete; with several dimensions, the last run's ``last``."""
        return self.entries.summary.folded

    def upper(self) -> Frontier | None:
        """The frontier after the last finished run: the outputs are complete at all times that are not at or beyond it.
        None where nothing is folded.
        """
        return self.entries.summary.complete

    def upper_of(self, output: str) -> Frontier | None:
        """The frontier to which an output is complete: :meth:`upper`, or one beyond it where the output is ahead."""
        ahead = self.ahead()
        return self.upper() if ahead is None else ahead.uppers.get(output, self.upper())

    def since(self) -> Frontier:
        """The logs of inputs and outputs are exact at times at or beyond this frontier; empty: at all times."""
        return self.entries.summary.since

    def restated(self) -> Frontier:
        """The least closed times at which ingests changed an input that was folded already; empty without any."""
        return self.entries.summary.restated

    def first_ingested(self, inputs: Iterable[str] | None = None) -> Time | None:
        """The first version at which any input (or any of ``inputs``) has rows; with several time dimensions, the least
        coordinates.
        """
        firsts = [one.first for one in self._known(inputs) if one.first is not None]
        return times.least(firsts) if firsts else None

    def latest_ingested(self, inputs: Iterable[str] | None = None) -> Time | None:
        """The last version at which any input (or any of ``inputs``) has rows; with several time dimensions, the
        greatest coordinates.
        """
        lasts = [one.last for one in self._known(inputs) if one.last is not None]
        return times.greatest(lasts) if lasts else None

    def _known(self, inputs: Iterable[str] | None) -> list[Input]:
        known = self.entries.summary.inputs
        return [known[name] for name in (known if inputs is None else inputs) if name in known]

    def open_from(self, input: str | None = None) -> Frontier | None:
        """The frontier of the times that accept rows (of ``input``); None where all do.

        Other times are folded, or in an unfinished run. An input that is not in the program of these runs is open at
        every time: they have not read it.
        """
        uppers = [run.complete for run in self._reading(input)]
        if uppers and (ahead := self.ahead()) is not None:
            uppers += ahead.uppers.values()
        return reduce(frontiers.close_both, uppers) if uppers else None

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
        known = self.entries.summary.dims
        if self.entries.last is not None and known != (tuple(dims) if len(dims) > 1 else ()):
            before = f"the dimensions {', '.join(known)}" if known else "one dimension"
            raise UsageError(
                f"dd.toml: [time] dims = {list(dims)}, but the times in {self.warehouse.root} have {before}",
                "restore dims, or ingest the sources into a new warehouse: --warehouse DIR",
            )

    # --- tables ---

    def inputs(self, *, with_rows: bool = False) -> list[str]:
        """The inputs that were ingested, sorted; also those of which every ingest was undone, unless ``with_rows``."""
        return sorted(
            name for name, one in self.entries.summary.inputs.items() if not with_rows or one.first is not None
        )

    def without_rows(self, names: Iterable[str]) -> list[str]:
        """Those of the inputs that have had no rows yet."""
        known = self.inputs(with_rows=True)
        return [name for name in names if name not in known]

    def input_table(self, input: str) -> TableState | None:
        """The state of an input's table as its last ingest or undo left it, None before its first ingest."""
        one = self.entries.summary.inputs.get(input)
        return None if one is None else one.table

    def tables(self) -> dict[str, TableState]:
        """The live tables of state and outputs, by name, as the last run or compaction left them."""
        run, entry = self.current_run(), self.entries.summary.compact
        changed = {} if entry is None else self.entries[entry].record.tables
        live = {} if run is None else dict(run.tables)
        return live | {name: state for name, state in changed.items() if name in live}

    def compacted(self) -> dict[str, TableState]:
        """The tables of state and outputs that were compacted after the last run; the record of a further compaction
        names them as well.
        """
        entry = self.entries.summary.compact
        tables = {} if entry is None else self.entries[entry].record.tables
        return {name: state for name, state in tables.items() if not name.startswith("inputs/")}

    def states(self) -> dict[str, TableState]:
        """All live tables: those of state and outputs, and the inputs."""
        inputs = {f"inputs/{name}": one.table for name, one in sorted(self.entries.summary.inputs.items())}
        return {**self.tables(), **inputs}

    def output_table(self, output: str) -> TableState | None:
        """The state of an output's table, also where it is ahead; None if no run names it."""
        name = f"outputs/{output}"
        return self.tables_ahead().get(name) or self.table(name)

    def tables_ahead(self) -> dict[str, TableState]:
        """The tables of outputs that are ahead, by name as in :meth:`tables`."""
        ahead = self.ahead()
        return {} if ahead is None else {f"outputs/{output}": state for output, state in ahead.tables.items()}

    def run_of(self, output: str) -> int | None:
        """The number of the run that completed an output as far as it is; None where nothing is folded."""
        ahead, run = self.ahead(), self.current_run()
        if ahead is not None and output in ahead.tables:
            return ahead.run
        return None if run is None else run.run

    def table(self, relative: str) -> TableState | None:
        """The state of a table of state or outputs (``outputs/dists``); None if no run names it."""
        return self.tables().get(relative)

    # --- numbers ---

    def next_run(self) -> int:
        """A number that no run or intent has. An unfinished run keeps its own."""
        return 1 + max(self.entries.summary.runs, self._unrecorded)

    def next_ingest(self) -> int:
        """A number that no recorded ingest has."""
        return 1 + self.entries.summary.ingests
