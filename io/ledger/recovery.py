"""Ingests, undos and compactions that were killed between a table's commit and their record in the ledger.

The next command that writes finishes them, by what the commit carries: an ingest or undo its record, a compaction its
frontier. Somebody who follows a table may have seen the commit already, so nothing is taken back.

Must not import anything heavy: every command that writes calls this first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from ddcore.base.lattice import Frontier, frontier
from ddcore.io.delta import open_tables, syncs, tables
from ddcore.io.delta.deltalog import AFTER, commit_file, commit_info, compaction_of, is_maintenance
from ddcore.io.delta.table_files import TableState
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import CompactRecord, IngestRecord, UndoRecord, from_json, row_of, to_json
from ddcore.io.storage import store
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

UNKNOWN = TableState(0, 0, 0, "")  # of a record whose commit is still to come
_KEY = "ddcore"


def carried(record: IngestRecord | UndoRecord) -> dict[str, str]:
    """What a commit to an input's table carries: its record."""
    return {_KEY: json.dumps({"kind": row_of(record)[0], "body": to_json(record)}, separators=(",", ":"))}


def finish(ledger: Ledger, *, refresh: bool = False) -> list[IngestRecord | UndoRecord]:
    """Record what was killed between its commit and its record; return the records of ingests and undos. With
    ``refresh`` it does not read state and outputs: they are about to be replaced.

    The caller holds the warehouse's lock. Without such a commit it looks for one file per table, once as long as the
    lock is held. Raises StorageError.
    """
    if ledger.is_recovered:
        return []
    _finish_compactions(ledger, refresh=refresh)
    finished = []
    for _, folder in list(ledger.warehouse.tables(("inputs",))):
        if (record := _unrecorded(ledger, folder)) is not None:
            ledger.append(record)
            finished.append(record)
    ledger.is_recovered = not refresh
    return finished


def _finish_compactions(ledger: Ledger, *, refresh: bool) -> None:
    """Record compactions that the ledger does not know. They change no collection that can still be read."""
    found: dict[str, TableState] = {}
    since: Frontier = ledger.since()
    for name, state in ledger.states().items():
        folder, version = ledger.warehouse.table(name), state.version + 1
        if not ledger.warehouse.is_own(name):
            continue  # who compacts them records it there
        if refresh and not name.startswith("inputs/"):
            continue
        if not store.is_file(commit_file(folder, version)):
            continue  # as nearly always
        while is_maintenance(folder, version):
            version += 1
        elements = compaction_of(folder, version)
        if elements is None or not _follows(ledger, commit_info(folder, version)):
            continue
        syncs.settle(folder, state.version + 1, version)
        with reporting(folder, "read", open_tables.mend_hint(folder)):
            found[name] = tables.state_at(folder, version)
        since = frontier(map(tuple, elements)) or since
    run = ledger.current_run()
    if found and run is not None:
        ledger.append(CompactRecord(run.run, run.last, {**ledger.compacted(), **found}, since))


def note(record: IngestRecord | UndoRecord) -> str:
    """A note for the user on a record that was missing."""
    what = f"ingest {record.number}" if isinstance(record, IngestRecord) else f"the undo of ingest {record.number}"
    return f"{what} was killed, or failed, after its commit to {record.input}: it is finished now"


def _unrecorded(ledger: Ledger, folder: Location) -> IngestRecord | UndoRecord | None:
    """The record of the commit after the ledger's state of an input, with the table's state; None without one.

    None also if other commits but maintenance follow, or the files are not those that the record says.
    """
    base = ledger.input_table(folder.name)
    since = 1 if base is None else base.version + 1
    if not store.is_file(commit_file(folder, since)):
        return None
    with reporting(folder, "read", open_tables.mend_hint(folder)):
        head = open_tables.open_table(folder, writer=ledger.writer)
        head.update_incremental()
        newer = [v for v in range(since, head.version() + 1) if not is_maintenance(folder, v)]
        # An ingest adds the new columns of dd.toml in a commit of its own, before its rows.
        changes = [v for v in newer if commit_info(folder, v).get("operation") != "ADD COLUMN"]
        info = commit_info(folder, changes[0]) if len(changes) == 1 else {}
        record = _record(info) if _follows(ledger, info) else None
        if record is None or record.input != folder.name or not _is_next(ledger, record):
            return None
        state = tables.state_at(folder, changes[0])
        if state.rows != _rows_added(ledger, record) + (0 if base is None else base.rows):
            return None
        syncs.settle(folder, 0 if base is None else since, head.version())
    return replace(record, table=state)


def _follows(ledger: Ledger, info: Mapping[str, object]) -> bool:
    """Whether the ledger is still as it was when a commit was made.

    In an object store a process that lost its lock may commit late, when others have written records. Its ingest was
    checked against the ledger before them.
    """
    return AFTER not in info or info[AFTER] == str(ledger.entries.last)


def _record(info: Mapping[str, object]) -> IngestRecord | UndoRecord | None:
    try:
        carried = json.loads(str(info[_KEY]))
        record = from_json(carried["kind"], carried["body"])
    except (KeyError, TypeError, ValueError):  # the commit of another program
        return None
    return record if isinstance(record, IngestRecord | UndoRecord) else None


def _is_next(ledger: Ledger, record: IngestRecord | UndoRecord) -> bool:
    """Whether the ledger can take a record: the next ingest, or the undo of one that is there."""
    if isinstance(record, IngestRecord):
        return record.number == ledger.next_ingest()
    return any(ingest.number == record.number for ingest in ledger.ingests(record.input))


def _rows_added(ledger: Ledger, record: IngestRecord | UndoRecord) -> int:
    """How many rows a record added to its table; negative for an undo, and where history was replaced by less."""
    if isinstance(record, IngestRecord):
        return record.rows - record.removed
    undone = (ingest for ingest in ledger.ingests(record.input) if ingest.number == record.number)
    return -sum(ingest.rows - ingest.removed for ingest in undone)
