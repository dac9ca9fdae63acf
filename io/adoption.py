"""Compactions that were killed between a table's commit and the ledger's record: the next command records them.

Must not import anything heavy: every command that writes calls this first.
"""

from __future__ import annotations

from ddcore.io import tables
from ddcore.io.deltalog import compaction_of, is_maintenance
from ddcore.io.ledger import Ledger
from ddcore.io.records import CompactRecord
from ddcore.io.tables import TableState
from ddcore.io.warehouse import reporting
from ddcore.lattice import Frontier, frontier

__all__ = ["adopt", "states"]


def states(ledger: Ledger) -> dict[str, TableState]:
    """The live tables of a warehouse in the ledger, inputs as well, by name."""
    inputs = {f"inputs/{name}": ledger.input_table(name) for name in ledger.inputs()}
    return {**ledger.tables(), **{name: state for name, state in inputs.items() if state is not None}}


def adopt(ledger: Ledger) -> None:
    """Record compactions that the ledger does not know. The caller holds the warehouse's lock.

    A compaction changes no collection that can still be read, so it only has to be finished: reverting its commit
    would show rows to foreign readers twice. Looks at one file name per table if there is nothing to adopt.
    """
    found: dict[str, TableState] = {}
    since: Frontier = ledger.since()
    for name, state in states(ledger).items():
        folder, version = ledger.warehouse.table(name), state.version + 1
        while is_maintenance(folder, version):
            version += 1
        elements = compaction_of(folder, version)
        if elements is None:
            continue
        tables.settle(folder, state.version + 1, version)
        with reporting(folder, "read", tables.mend_hint(folder)):
            found[name] = tables.state_at(folder, version)
        since = frontier(map(tuple, elements)) or since
    run = ledger.current_run()
    if found and run is not None:
        ledger.append(CompactRecord(run.run, run.last, {**ledger.compacted(), **found}, since))
