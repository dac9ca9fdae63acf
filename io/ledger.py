"""The ledger: one small Delta table that says what belongs to the warehouse.

Delta has no commit across tables. So tables are committed first and the ledger last: what no record names is ignored
by every reader of ours. A run writes its intent before anything else; an intent without its run is a run to be
finished, unless a record says that its fold failed: that one would only fail again.

Every row has a summary of all before it, so a command reads the last few rows however old the ledger is. Every row
has a digest of itself and of the row before, and the state of each table that it names: what was lost or changed on
the disk is an error, and never another result.

A record is one row in a file of its own. Sixteen files are gathered into one, sixteen of those into one, and so on:
few files at any time, and each row is written again only as often as the ledger has become sixteen times longer.

Reading is the first thing every command does, so nothing heavy is imported, and records are parsed when asked for.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.errors import StorageError
from ddcore.io import datafile, tables
from ddcore.io.deltalog import commit_file, is_maintenance, last_transaction
from ddcore.io.failpoint import failpoint
from ddcore.io.tables import TableState
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

FORMAT = 1  # of the whole warehouse; a warehouse of another one is refused
Counts = Mapping[int, tuple[int, int]]  # by version: how much was added, and how much was taken away

_COLUMNS = ("entry", "kind", "number", "name", "first", "last", "at", "body", "summary", "before", "digest")
_NUMBERS = ("entry", "number", "first", "last")
_GATHERED = 16  # files into one
_AT_ONCE = 4  # rows read first: those of one ingest and one run, of which the newest has the summary
_NAME = re.compile(r"entries-([0-9]{8,})-([0-9]{8,})-")
_SETTINGS = {
    # What the newest version does not need may go soon: nobody reads an older one.
    "delta.checkpointInterval": "32",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
_KEPT = 3600  # seconds that a file stays after it was gathered, for whoever has just opened the table
_DESCRIPTION = "ledger of ddcore, format "


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Source:
    """A source as ingested: its name as given, and the order-free digest of its rows."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class IngestRecord:
    """Versions ``first``..``last`` of ``input`` were taken in from ``sources``, which left its table as ``table``.

    ``repeats`` says that some row of the input was seen to count more than once. ``rests_on`` are the earlier ingests
    whose rows the sources begin with; only the rest of those sources was taken in.
    """

    number: int
    input: str
    sources: tuple[Source, ...]
    first: int
    last: int
    rows: int
    counts: Counts
    files: tuple[str, ...]
    table: TableState
    repeats: bool = False
    rests_on: tuple[int, ...] = ()
    at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """Ingest ``number`` of ``input`` was taken back: its rows are no longer in the table, which is now as ``table``.

    ``first``..``last`` are the versions it had brought.
    """

    number: int
    input: str
    first: int
    last: int
    table: TableState
    at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class IntentRecord:
    """Run ``run`` is about to fold versions ``first``..``last``; with ``refresh``, from nothing.

    ``program_inputs``: as in :class:`RunRecord`.
    """

    run: int
    fingerprint: str
    first: int
    last: int
    width: int
    engine: str
    refresh: bool = False
    at: datetime = field(default_factory=_now)
    program_inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """Run ``run`` is given up: it ended with ``error``, before any table was committed.

    Its versions are open again, so that rows at them can be put right.
    """

    run: int
    fingerprint: str
    first: int
    last: int
    engine: str
    error: str
    at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Run ``run`` folded versions ``first``..``last``: what it read and wrote, and all tables that are live after it.

    ``tables`` is keyed as in ``Warehouse.relative`` and complete: tables this run did not touch are in it too.
    ``inputs`` and ``outputs`` count rows per version, ``quantiles`` cut each arrangement's key codes into even
    ranges, ``took`` is in seconds. ``program_inputs`` are all inputs of the program, those without rows too.
    """

    run: int
    fingerprint: str
    first: int
    last: int
    engine: str
    width: int
    rounds: int
    took: float
    inputs: Mapping[str, Counts]
    outputs: Mapping[str, Counts]
    tables: Mapping[str, TableState]
    quantiles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    refresh: bool = False
    at: datetime = field(default_factory=_now)
    program_inputs: tuple[str, ...] = ()


Record = IngestRecord | UndoRecord | IntentRecord | FailureRecord | RunRecord


@dataclass(frozen=True, slots=True)
class _Input:
    """What all ingests of one input left: the least and the greatest version, and the table. No versions where every
    ingest was taken back.
    """

    first: int | None
    last: int | None
    table: TableState


@dataclass(frozen=True, slots=True)
class _Summary:
    """What follows from all rows up to one. Rows are known by their ``entry``; its size does not grow with the ledger.

    ``head`` is the Delta version of the ledger that holds the row; ``runs`` and ``ingests`` are the greatest numbers
    so far, ``ended`` that of runs that were finished or given up; ``run`` is the row of the last finished run and
    ``folded`` its last version; ``intent`` is the row of a run to be finished. No ingest before the row ``waiting`` has
    a version that is not folded, unless it was taken back.
    """

    head: int = 0
    runs: int = 0
    ended: int = 0
    ingests: int = 0
    run: int | None = None
    folded: int | None = None
    intent: int | None = None
    waiting: int = 0
    inputs: Mapping[str, _Input] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> _Summary:
        values = json.loads(text)
        values["inputs"] = {
            name: _Input(one["first"], one["last"], TableState(**one["table"]))
            for name, one in values["inputs"].items()
        }
        return cls(**values)


@dataclass(slots=True)
class _Entry:
    """One row of the table; ``body`` is the whole record as JSON, parsed at most once. ``before`` is the digest of the
    row before.
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
    """All records of a warehouse, as they were when it was loaded or last appended to. Rows are read when needed."""

    def __init__(self, warehouse: Warehouse, table: DeltaTable | None = None) -> None:
        self.warehouse = warehouse
        self._table = table
        self._files: list[str] = []
        self._rows: dict[int, _Entry] = {}
        self._last: int | None = None  # the newest row
        self._summary = _Summary()

    @classmethod
    def load(cls, warehouse: Warehouse) -> Ledger:
        """Read the ledger; empty where there is none yet. Takes no lock. Reads a few rows, however many there are.

        StorageError where it cannot be read, or where tables hold runs or ingests that it does not know: it was lost,
        or its end was, and what it does not name would be taken for leftovers of a crash.
        """
        ledger = cls._read(warehouse)
        if ledger._unknown() is not None:
            ledger = cls._read(warehouse)  # a run that goes on meanwhile writes the ledger before its tables
        unknown = ledger._unknown()
        if unknown is None:
            return ledger
        place, what, number = unknown
        known = ledger._summary.ingests if what == "ingest" else ledger._summary.runs
        lost = "is missing" if ledger._table is None else f"ends with {what} {known}"
        raise StorageError(
            f"{warehouse.ledger} {lost}, but {place} holds {what} {number}: the ledger was lost, or a part of it",
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
        """Make the ledger's table if there is none. Before any other table, so that tables without a ledger tell
        that it was lost. The caller has the warehouse's lock.
        """
        if self._table is not None:
            return
        from ddcore.schema import Type  # brings Polars, which reading does without

        folder = self.warehouse.ledger
        schema = {name: Type("int64" if name in _NUMBERS else "string") for name in _COLUMNS}
        tables.create(folder, schema, description=f"{_DESCRIPTION}{FORMAT}", configuration=_SETTINGS)
        with reporting(folder, "read the ledger", tables.mend_hint(folder)):
            self._table = tables.open_table(folder)
        failpoint("after-begin")

    def append(self, record: Record) -> None:
        """Write a record: from here on it holds for every reader. The caller has the warehouse's lock.

        A record is known by its kind and number: one that is not newer than all of its kind is a StorageError.
        """
        kind, number, _ = _row_of(record)
        newest = {"ingest": self._summary.ingests, "intent": self._summary.runs}
        known = number <= newest.get(kind, self._summary.ended)
        if kind == "undo":
            known = all(ingest.number != number for ingest in self.ingests())
        if known:
            raise StorageError(f"the ledger has {kind} {number} already", "this is a bug: please report it")
        self.begin()
        with reporting(self.warehouse.ledger, "write the ledger", tables.mend_hint(self.warehouse.ledger)):
            self._write(self._entry(record))
        failpoint(f"after-{kind}")

    # --- what happened ---

    def ingests(self, input: str | None = None, *, since: int | None = None) -> Iterator[IngestRecord]:
        """Ingests that were not taken back, oldest first: all, or those of one input, or from version ``since`` on.

        Reads all rows, unless ``since`` is a version that is not folded.
        """
        folded = self._summary.folded
        new = since is not None and folded is not None and since > folded
        return (
            e.record
            for e in self._ingests(self._summary.waiting if new else 0)
            if input in (None, e.name) and (since is None or e.last >= since)
        )

    def undos(self) -> Iterator[UndoRecord]:
        """Ingests that were taken back, in the order in which they were. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "undo")

    def runs(self) -> Iterator[RunRecord]:
        """Finished runs, oldest first. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "run")

    def failures(self) -> Iterator[FailureRecord]:
        """Runs whose fold failed, oldest first. Reads all rows."""
        return (e.record for e in self._range(0) if e.kind == "failure")

    def current_run(self) -> RunRecord | None:
        """The last finished run: what readers see of outputs and state is what it names."""
        entry = self._summary.run
        return None if entry is None else self._row(entry).record

    def open_intent(self) -> IntentRecord | None:
        """The run that was begun and neither finished nor given up, if the last one was not."""
        entry = self._summary.intent
        return None if entry is None else self._row(entry).record

    # --- versions ---

    def last_folded(self) -> int | None:
        """The last version that outputs are complete for."""
        return self._summary.folded

    def first_ingested(self) -> int | None:
        """The first version any input has rows at."""
        return min((one.first for one in self._summary.inputs.values() if one.first is not None), default=None)

    def latest_ingested(self, inputs: Iterable[str] | None = None) -> int | None:
        """The last version any input (or any of ``inputs``) has rows at."""
        known = self._summary.inputs
        names = known if inputs is None else [name for name in inputs if name in known]
        lasts = [known[name].last for name in names]
        return max((last for last in lasts if last is not None), default=None)

    def closed(self, input: str | None = None) -> int | None:
        """The last version that takes no more rows (of ``input``): folded, or in a run that is still to be finished.

        An input that the program of these runs does not have is open at every version: no run of the current state
        has read it.
        """
        runs = [run for run in (self.open_intent(), self.current_run()) if run is not None]
        reading = [run for run in runs if input is None or not run.program_inputs or input in run.program_inputs]
        return max((run.last for run in reading), default=None)

    def waiting(self) -> list[IngestRecord]:
        """Ingests with versions that no run has folded."""
        folded = self.last_folded()
        return list(self.ingests(since=None if folded is None else folded + 1))

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
        """The ingest that took in a source with this digest. Reads all rows."""
        return next((r for r in self.ingests(input) if any(source.digest == digest for source in r.sources)), None)

    # --- numbers ---

    def next_run(self) -> int:
        """A number no run or intent has had. An open intent is finished under its own."""
        return 1 + self._summary.runs

    def next_ingest(self) -> int:
        """A number no recorded ingest has had."""
        return 1 + self._summary.ingests

    # --- rows ---

    def _open(self) -> None:
        """Read the newest rows and the summary in the last of them; what it points to is checked with the rest."""
        assert self._table is not None
        folder, table = self.warehouse.ledger, self._table
        self._files = tables.values(table.get_add_actions().column("path"))
        last = table.transaction_version(tables.APP)
        if last is None:
            if self._files or table.version() > 0:
                raise _damaged(folder, "no commit of it has a number")
            return
        self._last = last
        self._load(max(0, last - _AT_ONCE + 1), last)
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
        """The rows of ingests from one on that were not taken back. An undo comes after its ingest."""
        rows = [row for row in self._range(first) if row.kind in ("ingest", "undo")]
        undone = {row.number for row in rows if row.kind == "undo"}
        return (row for row in rows if row.kind == "ingest" and row.number not in undone)

    def _range(self, first: int) -> Iterator[_Entry]:
        """The rows from one on, oldest first."""
        if self._last is None:
            return
        wanted = [entry for entry in range(first, self._last + 1) if entry not in self._rows]
        if wanted:
            self._load(wanted[0], wanted[-1])
        yield from (self._rows[entry] for entry in range(first, self._last + 1))

    def _load(self, first: int, last: int) -> None:
        """Read and check rows ``first``..``last``: each is there once, is as it was written, and follows the other."""
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
            rows = query.execute(f"select {', '.join(_COLUMNS)} from ledger where {where}").read_all()
        columns = [tables.values(rows.column(name)) for name in _COLUMNS]
        found = [_Entry(*row) for row in zip(*columns, strict=True)]
        if [row.entry for row in found] != list(range(first, last + 1)):
            raise _damaged(folder, f"some of the entries {first}..{last} are missing, or there twice")
        for row in found:
            before = self._rows.get(row.entry - 1)
            if row.digest != row.own_digest() or (before is not None and row.before != before.digest):
                raise _damaged(folder, f"entry {row.entry} is not as it was written")
            self._rows.setdefault(row.entry, row)

    def _entry(self, record: Record) -> _Entry:
        """The row of a new record."""
        assert self._table is not None
        kind, number, name = _row_of(record)
        last, at = self._last, record.at.astimezone(UTC).isoformat(timespec="milliseconds")
        body = json.dumps(_to_json(record), separators=(",", ":"))
        row = _Entry(
            0 if last is None else last + 1, kind, number, name, record.first, record.last, at, body, "",
            "" if last is None else self._row(last).digest, parsed=record,
        )  # fmt: skip
        row.summary = replace(self._followed_by(row), head=self._table.version() + 1).to_json()
        row.digest = row.own_digest()
        return row

    def _followed_by(self, row: _Entry) -> _Summary:
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
            now = replace(now, run=row.entry, folded=record.last, waiting=self._first_waiting(record.last, row.entry))
        return now

    def _with_ingest(self, record: IngestRecord) -> _Summary:
        now = self._summary
        one = _Input(record.first, record.last, record.table)
        old = now.inputs.get(record.input)
        if old is not None:
            spans = [record.first, record.last, *(v for v in (old.first, old.last) if v is not None)]
            one = replace(one, first=min(spans), last=max(spans))
        return replace(now, ingests=max(now.ingests, record.number), inputs={**now.inputs, record.input: one})

    def _without_ingest(self, record: UndoRecord) -> _Summary:
        """Reads all rows: the versions of an input are those of the ingests that are left."""
        left = [e for e in self._ingests(0) if e.name == record.input and e.number != record.number]
        first, last = min((e.first for e in left), default=None), max((e.last for e in left), default=None)
        one = _Input(first, last, record.table)
        return replace(self._summary, inputs={**self._summary.inputs, record.input: one})

    def _first_waiting(self, folded: int, end: int) -> int:
        """The first row of an ingest with a version that is not folded; ``end`` where there is none."""
        now = self._summary
        back = now.folded is not None and folded < now.folded  # a full refresh up to an earlier version
        rows = self._ingests(0 if back else now.waiting)
        return next((row.entry for row in rows if row.last > folded), end)

    def _write(self, row: _Entry) -> None:
        """One commit: the row in a file of its own, or gathered with those before it."""
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
        gathered = [path for path in self._files if (_span(path) or (first, 0))[0] >= first]
        tables.change(table, [file], [path for path in gathered if path != file.path], row.entry)
        tables.settle(folder, table.version(), table.version())
        self._files = [path for path in self._files if path not in gathered] + [file.path]
        self._rows[row.entry], self._last, self._summary = row, row.entry, _Summary.from_json(row.summary)
        if width > 1:
            self._sweep()

    def _sweep(self) -> None:
        """Take away files that were gathered some time ago."""
        live, before = set(self._files), time.time() - _KEPT
        for path in self.warehouse.ledger.glob("entries-*.parquet"):
            if path.name not in live and path.stat().st_mtime < before:
                path.unlink(missing_ok=True)

    # --- what the tables say ---

    def _unknown(self) -> tuple[str, str, int] | None:
        """A table that holds a run or an ingest that this ledger does not know: the table, which of both, its number.

        What a crash may leave is known: tables of a run whose intent is here, and the next ingest of an input. Looks
        at one commit of each table, mostly at its absence alone.
        """
        begun = self._table is not None
        for place, folder in self.warehouse.tables():
            room = place.partition("/")[0]
            state = self.input_table(folder.name) if room == "inputs" else self.table(place)
            if state is not None and not commit_file(folder, state.version + 1).exists():
                continue
            known = self._summary.runs if room != "inputs" else self._summary.ingests + begun
            number = last_transaction(folder, tables.APP)
            if number is not None and number > known:
                return place, "ingest" if room == "inputs" else "run", number
        return None


def _width(rows: int) -> int:
    """How many of the newest rows go into the file that makes it so many: the greatest power that divides them."""
    width = 1
    while rows % (width * _GATHERED) == 0:
        width *= _GATHERED
    return width


def _span(path: str) -> tuple[int, int] | None:
    """The first and last entry in a file of ours; None for one that another program wrote (OPTIMIZE)."""
    name = _NAME.match(path)
    return (int(name[1]), int(name[2])) if name else None


def _check_format(folder: Path, table: DeltaTable) -> None:
    description = table.metadata().description or ""
    if description != f"{_DESCRIPTION}{FORMAT}":
        found = description.removeprefix(_DESCRIPTION) or "none"
        raise StorageError(
            f"{folder.parent} has the warehouse format {found}, this ddcore reads {FORMAT}",
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
    body["at"] = record.at.isoformat()
    if isinstance(record, IngestRecord):
        body["sources"] = [[source.name, source.digest] for source in record.sources]
    if isinstance(record, IngestRecord | UndoRecord):
        body["table"] = astuple(record.table)
    if isinstance(record, RunRecord):
        body["tables"] = {name: astuple(state) for name, state in record.tables.items()}
    return body


def _from_json(kind: str, body: dict[str, Any]) -> Record:
    body["at"] = datetime.fromisoformat(body["at"])
    if kind in ("intent", "run"):
        body["program_inputs"] = tuple(body["program_inputs"])
    if kind in ("intent", "failure"):
        begun: IntentRecord | FailureRecord = _RUNS[kind](**body)
        return begun
    if kind == "undo":
        return UndoRecord(**{**body, "table": TableState(*body["table"])})
    if kind == "ingest":
        body["rests_on"] = tuple(body["rests_on"])
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
    return {int(version): (plus, minus) for version, (plus, minus) in counts.items()}
