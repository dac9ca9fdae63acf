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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.errors import StorageError, UsageError
from ddcore.io import datafile, tables, times
from ddcore.io.deltalog import commit_file, is_maintenance, last_transaction
from ddcore.io.failpoint import failpoint
from ddcore.io.tables import TableState
from ddcore.io.times import Frontier, Time
from ddcore.io.warehouse import Warehouse, reporting

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = [
    "FORMAT",
    "Counts",
    "FailureRecord",
    "IngestRecord",
    "IntentRecord",
    "Ledger",
    "Record",
    "RunRecord",
    "Source",
    "TableState",
    "UndoRecord",
]

FORMAT = 1  # of the whole warehouse; warehouses of other formats are refused
Counts = Mapping[Time, tuple[int, int]]  # by time: (insertions, retractions)

_COLUMNS = ("entry", "kind", "number", "name", "first", "last", "at", "body", "summary", "before", "digest")
_NUMBERS = ("entry", "number", "first", "last")
_MERGED = 16  # files merged into one
_FIRST_READ = 4  # rows: those of one ingest and one run; the newest has the summary
_NAME = re.compile(r"entries-([0-9]{8,})-([0-9]{8,})-")
_SETTINGS = {
    # Older versions may be deleted soon: no reader opens them.
    "delta.checkpointInterval": "32",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
_KEPT = 3600  # seconds that a file is kept after its merge, for readers that have just opened the table
_DESCRIPTION = "ledger of ddcore, format "


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Source:
    """A source of an ingest: its name, and the digest of its rows, which does not depend on their order."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class IngestRecord:
    """Versions ``first``..``last`` of ``input`` were ingested from ``sources``; ``table`` is its state after that.

    ``repeats``: a check found a row of the input with a count above 1. ``rests_on``: earlier ingests that hold the
    beginnings of some sources; of these, only the remaining rows were ingested. With several time dimensions, whose
    names are in ``dims``, ``first`` and ``last`` are the least and the greatest coordinates of the times in ``counts``.
    """

    number: int
    input: str
    sources: tuple[Source, ...]
    first: Time
    last: Time
    rows: int
    counts: Counts
    files: tuple[str, ...]
    table: TableState
    repeats: bool = False
    rests_on: tuple[int, ...] = ()
    at: datetime = field(default_factory=_now)
    dims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """Ingest ``number`` of ``input`` was undone: its rows were removed; ``table`` is the input's state after that.

    ``first``..``last`` are the versions of the ingest.
    """

    number: int
    input: str
    first: Time
    last: Time
    table: TableState
    at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class IntentRecord:
    """Run ``run`` is about to fold versions ``first``..``last``; with ``refresh``, it starts without stored state.

    ``program_inputs``, ``lower`` and ``upper``: as in :class:`RunRecord`.
    """

    run: int
    fingerprint: str
    first: Time
    last: Time
    parallelism: int
    engine: str
    refresh: bool = False
    at: datetime = field(default_factory=_now)
    program_inputs: tuple[str, ...] = ()
    lower: Frontier = ()
    upper: Frontier = ()


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """Run ``run`` was given up: it ended with ``error`` before any table was committed.

    Its versions are open again, so that rows at them can be corrected.
    """

    run: int
    fingerprint: str
    first: Time
    last: Time
    engine: str
    error: str
    at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Run ``run`` folded versions ``first``..``last``: what it read and wrote, and all tables that are live after it.

    ``tables`` has all live tables, also those that this run did not change, by name as in ``Warehouse.relative``.
    ``inputs`` and ``outputs`` count rows per version, ``quantiles`` divide each arrangement's key codes into even
    ranges, ``took`` is in seconds. ``program_inputs`` are all inputs of the program, also those without rows.

    With several time dimensions ``lower`` and ``upper`` are the frontiers before and after the run; every time at or
    before ``last`` is complete, and ``first`` has the least coordinates of ``lower``. With one both are empty.
    """

    run: int
    fingerprint: str
    first: Time
    last: Time
    engine: str
    parallelism: int
    rounds: int
    took: float
    inputs: Mapping[str, Counts]
    outputs: Mapping[str, Counts]
    tables: Mapping[str, TableState]
    quantiles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    refresh: bool = False
    at: datetime = field(default_factory=_now)
    program_inputs: tuple[str, ...] = ()
    lower: Frontier = ()
    upper: Frontier = ()


Record = IngestRecord | UndoRecord | IntentRecord | FailureRecord | RunRecord


@dataclass(frozen=True, slots=True)
class _Input:
    """An input after all ingests: its least and greatest version (None if all were undone) and its table.

    With several time dimensions: the least and the greatest coordinates of its times.
    """

    first: Time | None
    last: Time | None
    table: TableState


@dataclass(frozen=True, slots=True)
class _Summary:
    """A summary of all rows up to one. Its size does not grow with the ledger. Rows are referred to by their ``entry``.

    ``head``: the Delta version of the ledger that added the row. ``runs``, ``ingests``: the greatest numbers so far;
    ``ended``: that of finished and given-up runs. ``run``: the row of the last finished run; ``folded``: its last
    version. ``intent``: the row of the unfinished run. ``waiting``: no ingest before this row has a version that is not
    folded, unless it was undone. ``dims`` and ``upper``: with several time dimensions, their names, and the frontier
    after the last finished run; without them no row has these two.
    """

    head: int = 0
    runs: int = 0
    ended: int = 0
    ingests: int = 0
    run: int | None = None
    folded: Time | None = None
    intent: int | None = None
    waiting: int = 0
    inputs: Mapping[str, _Input] = field(default_factory=dict)
    dims: tuple[str, ...] = ()
    upper: Frontier = ()

    def to_json(self) -> str:
        return json.dumps(_without_empty(asdict(self), "dims", "upper"), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> _Summary:
        values = json.loads(text)
        values["inputs"] = {
            name: _Input(_time(one["first"]), _time(one["last"]), TableState(**one["table"]))
            for name, one in values["inputs"].items()
        }
        values["folded"] = _time(values["folded"])
        values["dims"], values["upper"] = tuple(values.get("dims", ())), _frontier(values.get("upper", ()))
        return cls(**values)


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
            self.parsed = _from_json(self.kind, json.loads(self.body))
        return self.parsed

    def own_digest(self) -> str:
        """The digest that this row should have."""
        text = json.dumps([getattr(self, name) for name in _COLUMNS[:-1]])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Ledger:
    """The records of a warehouse, as of the load or the last append. Rows are read when they are needed."""

    def __init__(self, warehouse: Warehouse, table: DeltaTable | None = None) -> None:
        self.warehouse = warehouse
        self._table = table
        self._files: list[str] = []
        self._rows: dict[int, _Entry] = {}
        self._last: int | None = None  # the newest row
        self._summary = _Summary()

    @classmethod
    def load(cls, warehouse: Warehouse) -> Ledger:
        """Read the ledger; an empty one where the table does not exist. Takes no lock. Reads a few rows, however many
        there are.

        Raises StorageError where it cannot be read, and where tables hold runs or ingests without a record: then the
        ledger or its end was lost, and the next command would remove their data as the leftovers of a crash.
        """
        ledger = cls._read(warehouse)
        if ledger._unknown() is not None:
            # A concurrent run writes the ledger before its tables, so a second read has its record.
            ledger = cls._read(warehouse)
        unknown = ledger._unknown()
        if unknown is None:
            return ledger
        place, what, number = unknown
        known = ledger._summary.ingests if what == "ingest" else ledger._summary.runs
        lost = "is missing" if ledger._table is None else f"ends with {what} {known}"
        raise StorageError(
            f"{warehouse.ledger} {lost}, but {place} holds {what} {number}: the ledger, or a part of it, was lost",
            "restore the folder from its newest backup; nothing was changed",
        )

    @classmethod
    def _read(cls, warehouse: Warehouse) -> Ledger:
        folder = warehouse.ledger
        if not tables.exists(folder):
            return cls(warehouse)
        with reporting(folder, "read the ledger", tables.mend_hint(folder)):
            table = tables.open_table(folder)
            _check_format(folder, table)
            ledger = cls(warehouse, table)
            ledger._open()
            return ledger

    def begin(self) -> None:
        """Create the ledger's table if it does not exist. It is created before all other tables, so tables without a
        ledger show that it was lost. The caller holds the warehouse's lock.
        """
        if self._table is not None:
            return
        from ddcore.schema import Type  # imports Polars, which readers do not need

        folder = self.warehouse.ledger
        schema = {name: Type("int64" if name in _NUMBERS else "string") for name in _COLUMNS}
        tables.create(folder, schema, description=f"{_DESCRIPTION}{FORMAT}", configuration=_SETTINGS)
        with reporting(folder, "read the ledger", tables.mend_hint(folder)):
            self._table = tables.open_table(folder)

    def append(self, record: Record) -> None:
        """Write a record: every reader sees its effects from now on. The caller holds the warehouse's lock.

        Raises StorageError for a record whose number is not greater than all of its kind.
        """
        kind, number, _ = _row_of(record)
        newest = {"ingest": self._summary.ingests, "intent": self._summary.runs}
        exists = number <= newest.get(kind, self._summary.ended)
        if kind == "undo":
            exists = all(ingest.number != number for ingest in self.ingests())
        if exists:
            raise StorageError(f"the ledger already has {kind} {number}", "this is a bug: please report it")
        self.begin()
        with reporting(self.warehouse.ledger, "write the ledger", tables.mend_hint(self.warehouse.ledger)):
            merged = self._write(self._entry(record))
            failpoint(f"after-{kind}")
            if merged:
                self._sweep()

    # --- ingests and runs ---

    def ingests(self, input: str | None = None, *, since: int | Frontier | None = None) -> Iterator[IngestRecord]:
        """Ingests that were not undone, oldest first: all, or those of one input, or with versions from ``since`` on,
        or with times at or beyond the frontier ``since``.

        Reads all rows, unless no version from ``since`` on is folded.
        """
        lower = ((since,),) if isinstance(since, int) else since
        folded = self.upper()
        new = lower is not None and folded is not None and all(times.is_open(times.time_of(t), folded) for t in lower)
        return (
            e.record
            for e in self._ingests(self._summary.waiting if new else 0)
            if input in (None, e.name) and (lower is None or _reaches(e, lower))
        )

    def undos(self) -> Iterator[UndoRecord]:
        """Undone ingests, in the order of their undoing. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "undo")

    def runs(self) -> Iterator[RunRecord]:
        """Finished runs, oldest first. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "run")

    def failures(self) -> Iterator[FailureRecord]:
        """Runs that failed or were given up, oldest first. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "failure")

    def current_run(self) -> RunRecord | None:
        """The last finished run: readers see the outputs and state that its record names."""
        entry = self._summary.run
        return None if entry is None else self._row(entry).record

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

    def first_ingested(self) -> Time | None:
        """The first version at which any input has rows; with several time dimensions, the least coordinates."""
        firsts = [one.first for one in self._summary.inputs.values() if one.first is not None]
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
        uppers = [run.upper or times.up_to(run.last) for run in self._reading(input)]
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

    def input_table(self, input: str) -> TableState | None:
        """The state of an input's table as its last ingest or undo left it, None before its first ingest."""
        one = self._summary.inputs.get(input)
        return None if one is None else one.table

    def input_version(self, input: str) -> int | None:
        """The Delta version of an input's table, None before its first ingest."""
        state = self.input_table(input)
        return None if state is None else state.version

    def table(self, relative: str) -> TableState | None:
        """The state of a table of state or outputs (``outputs/dists``); None if no run names it."""
        run = self.current_run()
        return run.tables.get(relative) if run else None

    def ingested(self, input: str, digest: str) -> IngestRecord | None:
        """The ingest of a source with this digest. Reads all rows."""
        return next((r for r in self.ingests(input) if any(source.digest == digest for source in r.sources)), None)

    # --- numbers ---

    def next_run(self) -> int:
        """A number that no run or intent has. An unfinished run keeps its own."""
        return 1 + self._summary.runs

    def next_ingest(self) -> int:
        """A number that no recorded ingest has."""
        return 1 + self._summary.ingests

    # --- rows ---

    def _open(self) -> None:
        """Read and check the newest rows and the summary in the last of them; older rows are checked when read."""
        assert self._table is not None
        folder, table = self.warehouse.ledger, self._table
        self._files = tables.values(table.get_add_actions().column("path"))
        last = table.transaction_version(tables.APP)
        if last is None:
            if self._files or table.version() > 0:
                raise _damaged(folder, "no commit of it has a number")
            return
        self._last = last
        self._load(max(0, last - _FIRST_READ + 1), last)
        self._summary = _Summary.from_json(self._row(last).summary)
        head = self._summary.head
        newer = [v for v in range(head + 1, table.version() + 1) if commit_file(folder, v).exists()]
        if table.version() < head or not all(is_maintenance(folder, version) for version in newer):
            raise _damaged(folder, "another program changed it")

    def _row(self, entry: int) -> _Entry:
        if entry not in self._rows:
            self._load(entry, entry)
        return self._rows[entry]

    def _ingests(self, first: int) -> Iterator[_Entry]:
        """The rows, from ``first`` on, of ingests that were not undone. An undo comes after its ingest."""
        rows = [row for row in self._range(first) if row.kind in ("ingest", "undo")]
        undone = {row.number for row in rows if row.kind == "undo"}
        return (row for row in rows if row.kind == "ingest" and row.number not in undone)

    def _range(self, first: int) -> Iterator[_Entry]:
        """The rows from ``first`` on, oldest first."""
        if self._last is None:
            return
        missing = [entry for entry in range(first, self._last + 1) if entry not in self._rows]
        if missing:
            self._load(missing[0], missing[-1])
        yield from (self._rows[entry] for entry in range(first, self._last + 1))

    def _load(self, first: int, last: int) -> None:
        """Read rows ``first``..``last``. Check that each occurs once, is unchanged and follows the one before it."""
        from deltalake import QueryBuilder

        assert self._table is not None
        folder = self.warehouse.ledger
        with reporting(folder, "read the ledger", tables.mend_hint(folder)):
            for path in self._files:
                span = _span(path)
                if span is None or (span[0] <= last and span[1] >= first):
                    datafile.verify(folder / path, tables.mend_hint(folder))
            query = QueryBuilder().register("ledger", self._table)
            where = f"entry >= {first} and entry <= {last} order by entry"
            result = query.execute(f"select {', '.join(_COLUMNS)} from ledger where {where}").read_all()
        columns = [tables.values(result.column(name)) for name in _COLUMNS]
        rows = [_Entry(*row) for row in zip(*columns, strict=True)]
        if [row.entry for row in rows] != list(range(first, last + 1)):
            raise _damaged(folder, f"some of the entries {first}..{last} are missing or occur twice")
        for row in rows:
            before = self._rows.get(row.entry - 1)
            if row.digest != row.own_digest() or (before is not None and row.before != before.digest):
                raise _damaged(folder, f"entry {row.entry} has changed since it was written")
            self._rows.setdefault(row.entry, row)

    def _entry(self, record: Record) -> _Entry:
        """The row of a new record."""
        assert self._table is not None
        kind, number, name = _row_of(record)
        last, at = self._last, record.at.astimezone(UTC).isoformat(timespec="milliseconds")
        body = json.dumps(_to_json(record), separators=(",", ":"))
        first_of, last_of = (times.coordinates(time)[0] for time in (record.first, record.last))
        row = _Entry(
            0 if last is None else last + 1, kind, number, name, first_of, last_of, at, body, "",
            "" if last is None else self._row(last).digest, parsed=record,
        )  # fmt: skip
        row.summary = replace(self._add_to_summary(row), head=self._table.version() + 1).to_json()
        row.digest = row.own_digest()
        return row

    def _add_to_summary(self, row: _Entry) -> _Summary:
        """The summary with one more row."""
        now, record = self._summary, row.record
        if isinstance(record, IngestRecord):
            return self._with_ingest(record)
        if isinstance(record, UndoRecord):
            return self._without_ingest(record)
        now = replace(now, runs=max(now.runs, record.run))
        if isinstance(record, IntentRecord):
            return replace(now, intent=row.entry)
        intent = self.open_intent()
        now = replace(now, ended=record.run, intent=None if intent is None or record.run >= intent.run else now.intent)
        if isinstance(record, RunRecord):
            waiting = self._first_waiting(record.upper or times.up_to(record.last), row.entry)
            now = replace(now, run=row.entry, folded=record.last, upper=record.upper, waiting=waiting)
        return now

    def _with_ingest(self, record: IngestRecord) -> _Summary:
        now = self._summary
        one = _Input(record.first, record.last, record.table)
        old = now.inputs.get(record.input)
        if old is not None:
            spans = [record.first, record.last, *(v for v in (old.first, old.last) if v is not None)]
            one = replace(one, first=times.least(spans), last=times.greatest(spans))
        inputs = {**now.inputs, record.input: one}
        return replace(now, ingests=max(now.ingests, record.number), inputs=inputs, dims=record.dims)

    def _without_ingest(self, record: UndoRecord) -> _Summary:
        """The summary after an undo. Reads all rows: the remaining ingests say which versions the input has."""
        remaining = [e for e in self._ingests(0) if e.name == record.input and e.number != record.number]
        one = _Input(None, None, record.table)
        if remaining:
            first, last = (
                times.least(e.record.first for e in remaining),
                times.greatest(e.record.last for e in remaining),
            )
            one = _Input(first, last, record.table)
        return replace(self._summary, inputs={**self._summary.inputs, record.input: one})

    def _first_waiting(self, upper: Frontier, end: int) -> int:
        """The first row of an ingest with a version that is not folded; ``end`` without one."""
        before = self.upper()
        # A full refresh up to an earlier version opens times again.
        back = before is not None and not all(times.is_open(times.time_of(element), before) for element in upper)
        rows = self._ingests(0 if back else self._summary.waiting)
        return next((row.entry for row in rows if _reaches(row, upper)), end)

    def _write(self, row: _Entry) -> bool:
        """Commit the row in its own file, or in one file with the rows of earlier files; return whether in one."""
        from ddcore.schema import Type

        assert self._table is not None
        folder, table = self.warehouse.ledger, self._table
        width = _width(row.entry + 1) if all(map(_span, self._files)) else row.entry + 1
        first = row.entry + 1 - width
        rows = [*self._range(first), row]
        columns = {name: [getattr(each, name) for each in rows] for name in _COLUMNS}
        schema = {name: Type("int64" if name in _NUMBERS else "string") for name in _COLUMNS}
        stem = f"entries-{first:08d}-{row.entry:08d}"
        file = tables.write_file(folder, stem, tables.arrow_table(columns, schema), bounded=["entry"])
        merged = [path for path in self._files if (_span(path) or (first, 0))[0] >= first]
        tables.change(table, [file], [path for path in merged if path != file.path], row.entry)
        tables.settle(folder, table.version(), table.version())
        self._files = [path for path in self._files if path not in merged] + [file.path]
        self._rows[row.entry], self._last, self._summary = row, row.entry, _Summary.from_json(row.summary)
        return width > 1

    def _sweep(self) -> None:
        """Delete files that were merged into others an hour ago or earlier."""
        live, before = set(self._files), time.time() - _KEPT
        for path in self.warehouse.ledger.glob("entries-*.parquet"):
            if path.name not in live and path.stat().st_mtime < before:
                path.unlink(missing_ok=True)
                failpoint("after-sweep")

    # --- the tables' own transactions ---

    def _unknown(self) -> tuple[str, str, int] | None:
        """A table with a run or an ingest that has no record: the table, ``run`` or ``ingest``, and the number.

        What a crash may leave behind is allowed: tables of a run whose intent is recorded, and the next ingest of an
        input. Opens at most one commit of a table in most cases, and none if there is no commit after the recorded one.
        """
        begun = self._table is not None
        for place, folder in self.warehouse.tables():
            part = place.partition("/")[0]
            state = self.input_table(folder.name) if part == "inputs" else self.table(place)
            if state is not None and not commit_file(folder, state.version + 1).exists():
                continue
            known = self._summary.runs if part != "inputs" else self._summary.ingests + begun
            number = last_transaction(folder, tables.APP)
            if number is not None and number > known:
                return place, "ingest" if part == "inputs" else "run", number
        return None


def _width(rows: int) -> int:
    """How many of the newest rows one file gets when there are ``rows``: the greatest power of 16 that divides it."""
    width = 1
    while rows % (width * _MERGED) == 0:
        width *= _MERGED
    return width


def _span(path: str) -> tuple[int, int] | None:
    """The first and last entry in a file of ours; None for one that another program wrote (OPTIMIZE)."""
    name = _NAME.match(path)
    return (int(name[1]), int(name[2])) if name else None


def _reaches(row: _Entry, lower: Frontier) -> bool:
    """Whether an ingest has a time at or beyond a frontier. Parses its record with several dimensions only."""
    if len(lower[0]) == 1:
        return row.last >= lower[0][0]
    return any(times.is_open(time, lower) for time in row.record.counts)


def _check_format(folder: Path, table: DeltaTable) -> None:
    description = table.metadata().description or ""
    if description != f"{_DESCRIPTION}{FORMAT}":
        actual = description.removeprefix(_DESCRIPTION) or "none"
        raise StorageError(
            f"{folder.parent} has the warehouse format {actual}, this ddcore reads {FORMAT}",
            "use the version of ddcore that wrote it, or ingest the sources into a new warehouse",
        )


def _damaged(folder: Path, why: str) -> StorageError:
    return StorageError(f"the ledger {folder} is damaged: {why}", tables.mend_hint(folder))


# --- records as JSON --------------------------------------------------------------------------------------------------


_RUNS: dict[str, Any] = {"intent": IntentRecord, "failure": FailureRecord, "run": RunRecord}


def _row_of(record: Record) -> tuple[str, int, str]:
    """The kind of a record, its number and its name."""
    if isinstance(record, IngestRecord | UndoRecord):
        return "ingest" if isinstance(record, IngestRecord) else "undo", record.number, record.input
    kind = next(kind for kind, each in _RUNS.items() if isinstance(record, each))
    return kind, record.run, record.fingerprint


def _to_json(record: Record) -> dict[str, Any]:
    body: dict[str, Any] = {name: getattr(record, name) for name in record.__dataclass_fields__}
    body = _without_empty(body, "dims", "lower", "upper")
    body["at"] = record.at.isoformat()
    if isinstance(record, IngestRecord):
        body["sources"] = [[source.name, source.digest] for source in record.sources]
        body["counts"] = _counts_to_json(record.counts)
    if isinstance(record, IngestRecord | UndoRecord):
        body["table"] = astuple(record.table)
    if isinstance(record, RunRecord):
        body["tables"] = {name: astuple(state) for name, state in record.tables.items()}
        for side in ("inputs", "outputs"):
            body[side] = {name: _counts_to_json(counts) for name, counts in body[side].items()}
    return body


def _without_empty(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """Fields without those of these that are empty: the ones that only several time dimensions need."""
    return {name: value for name, value in fields.items() if value or name not in names}


def _from_json(kind: str, body: dict[str, Any]) -> Record:
    body["at"] = datetime.fromisoformat(body["at"])
    body["first"], body["last"] = _time(body["first"]), _time(body["last"])
    if kind in ("intent", "run"):
        body["program_inputs"] = tuple(body["program_inputs"])
        if "width" in body:  # the name in warehouses written before 2026-11-22
            body["parallelism"] = body.pop("width")
        body["lower"], body["upper"] = _frontier(body.get("lower", ())), _frontier(body.get("upper", ()))
    if kind in ("intent", "failure"):
        record: IntentRecord | FailureRecord = _RUNS[kind](**body)
        return record
    if kind == "undo":
        return UndoRecord(**{**body, "table": TableState(*body["table"])})
    if kind == "ingest":
        body["rests_on"], body["dims"] = tuple(body["rests_on"]), tuple(body.get("dims", ()))
        body["sources"] = tuple(Source(*source) for source in body["sources"])
        body["files"], body["counts"] = tuple(body["files"]), _counts(body["counts"])
        body["table"] = TableState(*body["table"])
        return IngestRecord(**body)
    for side in ("inputs", "outputs"):
        body[side] = {name: _counts(counts) for name, counts in body[side].items()}
    body["tables"] = {name: TableState(*state) for name, state in body["tables"].items()}
    body["quantiles"] = {name: tuple(codes) for name, codes in body["quantiles"].items()}
    return RunRecord(**body)


def _counts(counts: dict[str, list[int]]) -> Counts:
    return {times.parse_key(time): (plus, minus) for time, (plus, minus) in counts.items()}


def _counts_to_json(counts: Counts) -> dict[str, tuple[int, int]]:
    return {times.key(time): sides for time, sides in counts.items()}


def _time(value: int | list[int] | None) -> Any:
    """A time as JSON has it."""
    return tuple(value) if isinstance(value, list) else value


def _frontier(elements: Iterable[Sequence[int]]) -> Frontier:
    return tuple(tuple(element) for element in elements)
