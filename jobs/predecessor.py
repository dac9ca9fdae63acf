"""The process that held the lock before this one and ended without releasing it: what becomes of its work."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ddcore.base.cache import remove_unused_daily
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.delta import heads
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord, IntentRecord, UndoRecord, row_of
from ddcore.io.storage import scratch
from ddcore.io.storage.holder import Holder
from ddcore.io.storage.lock import Lock
from ddcore.io.storage.warehouse import Warehouse

if TYPE_CHECKING:
    from ddcore.io.storage.lease import Lease

Held = tuple["Lock | Lease", Ledger]  # the lock of a warehouse, and its ledger, whose writer has the lock

_logger = logging.getLogger("ddcore")


@contextmanager
def writing(
    warehouse: Warehouse, command: str, tuning: Tuning = DEFAULT, *, refresh: bool = False, held: Held | None = None
) -> Iterator[Held]:
    """Hold the lock, with the ledger, which has the warehouse's writer. A command that fails before it called
    :func:`tell` still tells of a dead holder: the name is in the file only once. Removes what killed processes left on
    this machine, and once a day caches of other releases. ``refresh``: as for :meth:`Ledger.load`.
    ``held``: what the command holds already, which stays held.
    """
    if held is not None:
        yield held
        return
    scratch.remove_left()
    remove_unused_daily()
    with warehouse.lock(command) as lock:
        if lock.dead is not None:
            heads.remove_left([warehouse.ledger, *(folder for _, folder in warehouse.tables())])
        ledger = Ledger.load(warehouse, Writer(lock, tuning), refresh=refresh)
        try:
            yield lock, ledger
        except Exception:
            tell(lock, ledger)
            raise


def tell(
    lock: Lock | Lease, ledger: Ledger, outcome: str = "", finished: Sequence[IngestRecord | UndoRecord] = ()
) -> dict[str, Any] | None:
    """Log one note on a dead holder of the lock, and return the JSON value ``stale_lock`` of this command's result.

    ``outcome`` is what this command does about the unfinished run; empty without one. ``finished``: the records that it
    has written in place of the holder. None for no dead holder, and from the second call on.
    """
    dead, lock.dead = lock.dead, None
    if dead is None:
        return None
    done = " and ".join(f"{kind} {number} is finished now" for kind, number, _ in map(row_of, finished))
    outcome = outcome or done or _recorded(dead, ledger)
    _logger.info("note: %s ended without releasing the lock: %s", dead, outcome)
    return {**asdict(dead), "outcome": outcome}


def note_unfinished(intent: IntentRecord, ending: str) -> None:
    """Log a note on an unfinished run whose process nobody knows: it failed while it committed, or an earlier command
    has told of it; or the ledger has lost its last record.
    """
    _logger.info("note: the ledger has no record of the end of run %d: it %s", intent.run, ending)


def given_up(intent: IntentRecord | None, ledger: Ledger) -> str:
    """What an ingest or an undo has done about an unfinished run; empty without one."""
    if intent is None:
        return ""
    if ledger.open_intent() is None:
        return f"run {intent.run} is given up, and its versions are open again"
    return f"run {intent.run} has committed to tables, and the next ddcore run finishes it"


def _recorded(dead: Holder, ledger: Ledger) -> str:
    """What the ledger has of the process: an unfinished run, or its last record."""
    record, intent = ledger.newest(), ledger.open_intent()
    if intent is not None:
        return f"run {intent.run} is not finished yet"
    try:
        began = datetime.fromisoformat(dead.since)
        if record is not None and record.at >= began:
            kind, number, _ = row_of(record)
            return f"its last record, {kind} {number}, is complete"
    except (TypeError, ValueError):
        pass
    return "it recorded nothing, so nothing of it is visible"
