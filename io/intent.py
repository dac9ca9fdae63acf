"""Intents of runs that did not finish: whether such a run left anything in a table, and how it is given up."""

from __future__ import annotations

from pathlib import Path

from ddcore.errors import DdError
from ddcore.io import tables
from ddcore.io.ledger import FailureRecord, Ledger
from ddcore.io.warehouse import Warehouse, reporting

__all__ = ["give_up", "is_committed"]


def is_committed(warehouse: Warehouse, run: int) -> bool:
    """Whether a table of state or outputs holds a commit of run ``run``.

    Opens every such table. One that cannot be opened counts as committed: nobody can tell.
    """
    folders = [folder for name, folder in warehouse.tables() if not name.startswith("inputs/")]
    try:
        return any(_newest_run(folder) >= run for folder in folders if tables.exists(folder))
    except DdError:
        return True


def give_up(ledger: Ledger, reason: str) -> bool:
    """Give the unfinished run up, if there is one and no table holds a commit of it; whether none is left.

    Its versions are open again and its program may change: a run that committed nothing left data files that no table
    names, and nothing else. Once a table is committed, only the same program can finish the run. The caller holds the
    warehouse's lock, so the run's own process has ended. Raises StorageError where the ledger cannot be written.
    """
    intent = ledger.open_intent()
    if intent is None:
        return True
    if is_committed(ledger.warehouse, intent.run):
        return False
    ledger.append(
        FailureRecord(intent.run, intent.fingerprint, intent.first, intent.last, intent.engine, f"given up: {reason}")
    )
    return True


def _newest_run(folder: Path) -> int:
    """The number of the run that committed to a table last, 0 for none."""
    with reporting(folder, "read"):
        table = tables.open_table(folder)
        table.update_incremental()  # a commit that failed half-way may be there
        return table.transaction_version(tables.APP) or 0
