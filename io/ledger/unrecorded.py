"""Runs and ingests that tables hold and the ledger has no record of: then the ledger, or its end, was lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ddcore.base.errors import StorageError
from ddcore.io.delta.deltalog import commit_file, last_transaction
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.tables import APP
from ddcore.io.ledger.entries import Entries
from ddcore.io.storage import store
from ddcore.io.storage.reporting import REFRESH
from ddcore.io.storage.warehouse import Warehouse


class Unrecorded(NamedTuple):
    """What a table holds: ``what`` is ``run`` or ``ingest``, of this number."""

    table: str
    what: str
    number: int

    def error(self, warehouse: Warehouse, entries: Entries) -> StorageError:
        """The error of a table that is newer than the ledger."""
        ends, lost = "is missing", "the ledger was lost"
        hint = "restore the ledger and the inputs from their newest backup; nothing was changed"
        if entries.exists:
            known = entries.summary.ingests if self.what == "ingest" else entries.summary.runs
            ends = f"ends with {self.what} {known}"
            lost = "the ledger, or a part of it, was lost, or it is from an older backup"
            if self.what == "run":
                hint = f"if there is a newer backup of the ledger and the inputs, restore it; if not, {REFRESH}"
        holds = f"{self.table} holds {self.what} {self.number}"
        return StorageError(f"{warehouse.ledger} {ends}, but {holds}: {lost}", hint)


def unrecorded(warehouse: Warehouse, entries: Entries, states: Mapping[str, TableState]) -> list[Unrecorded]:
    """The tables with a run or an ingest that has no record; ``states``: the live ones as the ledger has them.

    What a crash may leave behind is allowed: tables of a run whose intent is recorded, and the next ingest of an
    input. Opens at most one commit of a table in most cases, and none if there is no commit after the recorded one.
    """
    found = []
    for name, folder in warehouse.tables():
        part, state = name.partition("/")[0], states.get(name)
        if state is not None and not store.is_file(commit_file(folder, state.version + 1)):
            continue
        known = entries.summary.runs if part != "inputs" else entries.summary.ingests + entries.exists
        number = last_transaction(folder, APP)
        if number is not None and number > known:
            found.append(Unrecorded(name, "ingest" if part == "inputs" else "run", number))
    return found
