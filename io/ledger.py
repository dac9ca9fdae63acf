"""The ledger: one small Delta table that says what belongs to the warehouse.

Delta has no commit across tables. So tables are committed first and the ledger last: what no record names is not
there for any reader of ours. A run writes its intent before anything else; an intent without its run is a run to be
finished, unless a record says that its fold failed: that one would only fail again.

Reading it is the first thing every command does, so nothing heavy is imported, and records are parsed when asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ddcore.errors import StorageError
from ddcore.io import tables
from ddcore.io.failpoint import failpoint
from ddcore.io.warehouse import Warehouse, reporting

__all__ = [
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

Counts = Mapping[int, tuple[int, int]]  # by version: how much was added, and how much was taken away

_COLUMNS = ("entry", "kind", "number", "name", "first", "last", "at", "body")
_NUMBERS = ("entry", "number", "first", "last")
# One record is one small file; a few dozen of them cost more to open than to read.
_GATHERED_EVERY = 24
_OF_INPUTS = ("ingest", "undo")  # records that are numbered as ingests, and name an input and its table


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Source:
    """A source as ingested: its name as given, and the order-free digest of its rows."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as a run left it: its Delta version, and the files and rows that this run added."""

    version: int
    files: tuple[str, ...] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True)
class IngestRecord:
    """Versions ``first``..``last`` of ``input`` were taken in from ``sources``; its table is at ``table_version``.

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
    table_version: int
    repeats: bool = False
    rests_on: tuple[int, ...] = ()
    at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """Ingest ``number`` of ``input`` was taken back: its rows are no longer in the table, at ``table_version``.

    ``first``..``last`` are the versions it had brought.
    """

    number: int
    input: str
    first: int
    last: int
    table_version: int
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
    ranges, ``took`` is in seconds. ``program_inputs`` are all inputs of the program, those without rows too; records of
    older releases have none.
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


@dataclass(slots=True)
class _Entry:
    """One row of the table; ``body`` is the whole record as JSON, parsed at most once."""

    entry: int
    kind: str
    number: int
    name: str
    first: int
    last: int
    at: str
    body: str
    parsed: Record | None = None

    @property
    def record(self) -> Any:
        if self.parsed is None:
            self.parsed = _from_json(self.kind, json.loads(self.body))
        return self.parsed


class Ledger:
    """All records of a warehouse, oldest first, as they were when it was loaded or last appended to."""

    def __init__(self, warehouse: Warehouse, entries: Iterable[_Entry] = ()) -> None:
        self.warehouse = warehouse
        self._entries = list(entries)

    @classmethod
    def load(cls, warehouse: Warehouse) -> Ledger:
        """Read the ledger; empty where there is none yet. StorageError where it cannot be read. Takes no lock."""
        folder = warehouse.ledger
        if not tables.exists(folder):
            return cls(warehouse)
        with reporting(folder, "read the ledger", tables.mend_hint(folder)):
            return cls(warehouse, _read(folder))

    def append(self, record: Record) -> None:
        """Write a record: from here on it holds for every reader. The caller has the warehouse's lock.

        A record is known by its kind and number: the same again is a StorageError, never a second entry.
        """
        entry = _entry(record, len(self._entries) and self._entries[-1].entry + 1)
        if any(old.kind == entry.kind and old.number == entry.number for old in self._entries):
            raise StorageError(f"the ledger has {entry.kind} {entry.number} already", "this is a bug: please report it")
        with reporting(self.warehouse.ledger, "write the ledger", tables.mend_hint(self.warehouse.ledger)):
            _write(self.warehouse, [*self._entries, entry])
        self._entries.append(entry)
        failpoint(f"after-{entry.kind}")

    # --- what happened ---

    def ingests(self, input: str | None = None) -> Iterator[IngestRecord]:
        """Ingests that were not taken back, oldest first: all, or those of one input."""
        return (e.record for e in self._ingests() if input in (None, e.name))

    def undos(self) -> Iterator[UndoRecord]:
        """Ingests that were taken back, in the order in which they were."""
        return (e.record for e in self._entries if e.kind == "undo")

    def runs(self) -> Iterator[RunRecord]:
        """Finished runs, oldest first."""
        return (e.record for e in self._entries if e.kind == "run")

    def failures(self) -> Iterator[FailureRecord]:
        """Runs whose fold failed, oldest first."""
        return (e.record for e in self._entries if e.kind == "failure")

    def current_run(self) -> RunRecord | None:
        """The last finished run: what readers see of outputs and state is what it names."""
        last = self._last("run")
        return last.record if last else None

    def open_intent(self) -> IntentRecord | None:
        """The run that was begun and neither finished nor given up, if the last one was not."""
        intent = self._last("intent")
        ended = ("run", "failure")
        if intent is None or any(e.kind in ended and e.number >= intent.number for e in self._entries):
            return None
        record: IntentRecord = intent.record
        return record

    # --- versions ---

    def last_folded(self) -> int | None:
        """The last version that outputs are complete for."""
        run = self._last("run")
        return run.last if run else None

    def latest_ingested(self, inputs: Iterable[str] | None = None) -> int | None:
        """The last version any input (or any of ``inputs``) has rows at."""
        names = None if inputs is None else set(inputs)
        ingests = [e for e in self._ingests() if names is None or e.name in names]
        return max((e.last for e in ingests), default=None)

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
        return [e.record for e in self._ingests() if folded is None or e.last > folded]

    # --- tables ---

    def input_version(self, input: str) -> int | None:
        """The Delta version of an input's table, None before its first ingest."""
        last = next((e for e in reversed(self._entries) if e.kind in _OF_INPUTS and e.name == input), None)
        return None if last is None else int(last.record.table_version)

    def table_version(self, relative: str) -> int | None:
        """The Delta version of a table of state or outputs (``outputs/dists``); None if no run names it."""
        run = self.current_run()
        state = run.tables.get(relative) if run else None
        return state.version if state else None

    def ingested(self, input: str, digest: str) -> IngestRecord | None:
        """The ingest that took in a source with this digest."""
        return next((r for r in self.ingests(input) if any(source.digest == digest for source in r.sources)), None)

    # --- numbers ---

    def next_run(self) -> int:
        """A number no run or intent has had. An open intent is finished under its own."""
        return 1 + max((e.number for e in self._entries if e.kind not in _OF_INPUTS), default=0)

    def next_ingest(self) -> int:
        """A number no recorded ingest has had."""
        return 1 + max((e.number for e in self._entries if e.kind == "ingest"), default=0)

    def _ingests(self) -> Iterator[_Entry]:
        undone = {e.number for e in self._entries if e.kind == "undo"}
        return (e for e in self._entries if e.kind == "ingest" and e.number not in undone)

    def _last(self, kind: str) -> _Entry | None:
        return next((e for e in reversed(self._entries) if e.kind == kind), None)


# --- the table --------------------------------------------------------------------------------------------------------


def _read(folder: Any) -> list[_Entry]:
    from deltalake import QueryBuilder

    query = QueryBuilder().register("ledger", tables.open_table(folder))
    rows = query.execute(f"select {', '.join(_COLUMNS)} from ledger order by entry").read_all()
    columns = [tables.values(rows.column(name)) for name in _COLUMNS]
    return [_Entry(*row) for row in zip(*columns, strict=True)]


def _write(warehouse: Warehouse, entries: Sequence[_Entry]) -> None:
    """One commit: the newest entry in a file of its own, or now and then all of them in one."""
    from ddcore.schema import Type  # brings Polars, which reading does without

    folder = warehouse.ledger
    schema = {name: Type("int64" if name in _NUMBERS else "string") for name in _COLUMNS}
    if not tables.exists(folder):
        tables.create(folder, schema)
    whole = len(entries) % _GATHERED_EVERY == 0
    written = entries if whole else entries[-1:]
    rows = {name: [getattr(entry, name) for entry in written] for name in _COLUMNS}
    first, last = written[0].entry, written[-1].entry
    stem = f"entry-{last:08d}" if first == last else f"entries-{first:08d}-{last:08d}"
    file = tables.write_file(folder, stem, tables.arrow_table(rows, schema))
    tables.commit(folder, [file], last, base=tables.open_table(folder).version(), overwrite=whole)


# --- records as JSON --------------------------------------------------------------------------------------------------


_RUNS: dict[str, Any] = {"intent": IntentRecord, "failure": FailureRecord, "run": RunRecord}


def _entry(record: Record, entry: int) -> _Entry:
    if isinstance(record, IngestRecord | UndoRecord):
        kind = "ingest" if isinstance(record, IngestRecord) else "undo"
        number, name = record.number, record.input
    else:
        kind = next(kind for kind, each in _RUNS.items() if isinstance(record, each))
        number, name = record.run, record.fingerprint
    at = record.at.astimezone(UTC).isoformat(timespec="milliseconds")
    body = json.dumps(_to_json(record), separators=(",", ":"))
    return _Entry(entry, kind, number, name, record.first, record.last, at, body, record)


def _to_json(record: Record) -> dict[str, Any]:
    body: dict[str, Any] = {name: getattr(record, name) for name in record.__dataclass_fields__}
    body["at"] = record.at.isoformat()
    if isinstance(record, IngestRecord):
        body["sources"] = [[source.name, source.digest] for source in record.sources]
    if isinstance(record, RunRecord):
        body["tables"] = {name: [state.version, state.files, state.rows] for name, state in record.tables.items()}
    return body


def _from_json(kind: str, body: dict[str, Any]) -> Record:
    body["at"] = datetime.fromisoformat(body["at"])
    if kind in ("intent", "run"):
        body["program_inputs"] = tuple(body.get("program_inputs", ()))
    if kind in ("intent", "failure"):
        begun: IntentRecord | FailureRecord = _RUNS[kind](**body)
        return begun
    if kind == "undo":
        return UndoRecord(**body)
    if kind == "ingest":
        body["rests_on"] = tuple(body.get("rests_on", ()))
        body["sources"] = tuple(Source(*source) for source in body["sources"])
        body["files"], body["counts"] = tuple(body["files"]), _counts(body["counts"])
        return IngestRecord(**body)
    for side in ("inputs", "outputs"):
        body[side] = {name: _counts(counts) for name, counts in body[side].items()}
    body["tables"] = {name: TableState(v, tuple(files), rows) for name, (v, files, rows) in body["tables"].items()}
    body["quantiles"] = {name: tuple(codes) for name, codes in body["quantiles"].items()}
    return RunRecord(**body)


def _counts(counts: dict[str, list[int]]) -> Counts:
    return {int(version): (plus, minus) for version, (plus, minus) in counts.items()}
