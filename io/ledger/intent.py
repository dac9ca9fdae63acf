"""Intents of unfinished runs: whether such a run committed to a table, and giving it up."""

from __future__ import annotations

from ddcore.base.errors import DdError, LateUpdate
from ddcore.base.lattice import Frontier
from ddcore.io.delta import open_tables, tables
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import FailureRecord
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location


def is_committed(ledger: Ledger, run: int) -> bool:
    """Whether a table of state or outputs holds a commit of run ``run``.

    Opens every such table. One that cannot be opened counts as committed.
    """
    folders = [folder for name, folder in ledger.warehouse.tables() if not name.startswith("inputs/")]
    try:
        return any(_newest_run(ledger, folder) >= run for folder in folders if tables.exists(folder))
    except DdError:
        return True


def give_up(ledger: Ledger, reason: str, *, committed: bool = False) -> bool:
    """Give up the unfinished run unless a table holds a commit of it. Return whether no unfinished run remains.

    This opens its versions again, and the program may change: a run without commits left only data files that no table
    names. ``committed``: give it up in any case. The next run then undoes its commits to state, and continues those to
    outputs (:func:`ddcore.io.logs.corrections.retraction`). The caller holds the warehouse's lock, so the process of
    the run has ended. Raises StorageError where the ledger cannot be written.
    """
    intent = ledger.open_intent()
    if intent is None:
        return True
    if not committed and is_committed(ledger, intent.run):
        return False
    ledger.append(
        FailureRecord(intent.run, intent.fingerprint, intent.first, intent.last, intent.engine, f"given up: {reason}")
    )
    return True


def check_restated(ledger: Ledger, restates: Frontier) -> None:
    """Raise LateUpdate if closed times change that an unfinished run has read: it would be finished over other rows."""
    intent = ledger.open_intent()
    if restates and intent is not None:
        raise LateUpdate(
            f"run {intent.run} is not finished and has committed tables: what it has read cannot change now",
            "finish it first, then do this again: ddcore run",
        )


def _newest_run(ledger: Ledger, folder: Location) -> int:
    """The number of the last run that committed to a table, 0 for none."""
    with reporting(folder, "read"):
        table = open_tables.open_table(folder, writer=ledger.writer)
        table.update_incremental()  # sees a commit of which this process got no confirmation
        return table.transaction_version(tables.APP) or 0
