"""Counting the rows and values of inputs for the order of joins, once: when a run first reads an input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.base.statistics import Statistics
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.project import Project
from ddcore.io.project.statistics import are_used, keep_statistics, kept_statistics

if TYPE_CHECKING:
    from ddcore.io.delta.table_files import TableState

__all__ = ["keep_new_statistics"]

_SAMPLE = 1 << 19
"""Updates of an input in which values are counted; of more, the number of values is estimated."""


def keep_new_statistics(project: Project, ledger: Ledger, *, refresh: bool) -> None:
    """Count the inputs that no finished run has read yet, or with ``refresh`` all of them, and keep what is found.

    An unfinished run keeps the plan that it has; so does state that was made without statistics. Reads the diffs of an
    input, and a sample of its rows. StorageError, DataError.
    """
    if not are_used(project) or (ledger.open_intent() is not None and not refresh):
        return
    known, run = {} if refresh else kept_statistics(project), ledger.current_run()
    read = () if run is None or refresh else run.program_inputs if known else project.inputs
    new = {}
    for name in project.inputs:
        state = ledger.input_table(name)
        if name not in known and name not in read and state is not None:
            new[name] = _counted(project, ledger, name, state)
    found = {name: counted for name, counted in new.items() if counted.rows > 0}
    if found:
        keep_statistics(project, {**known, **found})


def _counted(project: Project, ledger: Ledger, name: str, state: TableState) -> Statistics:
    """The statistics of an input's log: its rows at the end, and the values of its columns that have no parts."""
    import polars as pl

    from ddcore.io.logs.inputs import input_log

    log = input_log(ledger.warehouse, project, name, writer=ledger.writer)
    updates = log.scan(state)
    columns = [column for column, kind in project.inputs[name].items() if not kind.is_nested]
    sums = log.collect(updates.select(rows=pl.col("diff").sum(), updates=pl.len()))
    rows, length = int(sums["rows"][0]), int(sums["updates"][0])
    sample = log.collect(updates.select(columns).head(_SAMPLE))
    counts = ((column.name, column.n_unique()) for column in sample)
    return Statistics(rows, {column: _of_all(values, len(sample), length) for column, values in counts})


def _of_all(values: int, sample: int, length: int) -> int:
    """The distinct values among all updates: as many more as there are updates where most in the sample differ."""
    return values * length // max(1, sample) if 2 * values > sample else values
