"""Logs as the last finished run left them: what ``diff``, ``show`` and :func:`ddcore.open` read.

Data that no ledger entry names is ignored. Nothing here takes a lock, runs the program or starts a JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.base.lattice import Frontier
from ddcore.base.lazy import polars as pl
from ddcore.base.schema import Schema, parse_type
from ddcore.io.delta.tables import stored_columns
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.readable import Readable
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.frontiers import Window, nothing_closed, up_to
from ddcore.io.project.times import Time, greatest
from ddcore.io.reading.published import check_output, finished_run

if TYPE_CHECKING:
    from ddcore.io.delta.table_files import TableState
    from ddcore.io.delta.writer import Writer
    from ddcore.io.project.project import Project
    from ddcore.io.reading.sorted_rows import SortedRows
    from ddcore.io.storage.store import Location
    from ddcore.program.condition import Condition


@dataclass(frozen=True)
class FoldedLog:
    """One log at the table version that the ledger names, and the times at which it can be read.

    With one dimension, versions before ``first``, the first that was ingested, are refused as well. ``table`` is None
    for an input without rows.
    """

    name: str
    log: ChangeLog
    table: TableState | None
    readable: Readable
    first: Time | None = None

    @property
    def schema(self) -> Schema:
        """The columns of a row."""
        return self.log.schema

    @property
    def names(self) -> VersionNames:
        """The names of versions."""
        return self.readable.names

    @property
    def heading(self) -> str:
        """The log's name and its columns with their types."""
        return f"{self.name} ({', '.join(f'{name} {kind}' for name, kind in self.schema.items())})"

    @property
    def least(self) -> Time:
        """With one dimension: the first version that can be read."""
        return greatest([self.first or self.readable.since[0], self.readable.since[0]])

    @property
    def numbers(self) -> list[int]:
        """The places of the columns that hold numbers."""
        kinds = ("int64", "float64", "decimal")
        return [number for number, kind in enumerate(self.schema.values()) if kind.name in kinds]

    def accumulate(self, time: Time) -> pl.DataFrame:
        """The rows as of ``time`` and how often each occurs, as ``diff``; UsageError before the first version.

        Not ``count``: an output may have a column of that name.
        """
        self.check(time)
        return self.log.between(None, time, self.table)

    def between(self, start: Time | None, end: Time) -> pl.DataFrame:
        """The rows that differ between two times, and their ``diff``; None is the time before everything."""
        self.check(end if start is None else greatest([start, end]))
        return self.log.between(start, end, self.table)

    def rows(self, start: Time | None, end: Time, where: Condition | None = None, by: Sequence[str] = ()) -> SortedRows:
        """The rows in order, by ``by`` and then all columns, in pieces; those that meet a condition."""
        from ddcore.io.reading.sorted_rows import SortedRows

        self.check(end if start is None else greatest([start, end]))
        return SortedRows(self.log, self.table, start, end, where=where, by=by)

    def updates(self, start: Time | None, end: Time | None, where: Condition | None = None) -> pl.DataFrame:
        """The updates after ``start``, up to and including ``end``, with their times; of rows that meet a condition.

        None: from the first one, to the last one.
        """
        if where is None:
            return self.log.updates(start, end, self.table)
        return where.kept(self.log.updates(start, end, self.table, where.pushed))

    def condition(self, value: Any, origin: str) -> Condition | None:
        """A condition on rows of this log; ``origin`` begins messages. None for None. Raises UsageError."""
        if value is None:
            return None
        from ddcore.program.condition import Condition

        return Condition(value, self.schema, origin)

    def steps(self, start: Time | None, end: Time, where: Condition | None = None) -> list[tuple[Time, int, int]]:
        """Time, inserts and deletes, for each that changed something, on the way from ``start`` to ``end``. Of those
        whose rows meet a condition.

        The updates between ``start`` and ``end`` are those that count at one of them only. Those that count at
        ``start`` are taken back.
        """
        dims, weight = list(self.log.dims), self.log.counts_at(end)
        window = Window(nothing_closed(dims), up_to(end if start is None else greatest([start, end])))
        if start is not None:
            weight = weight - self.log.counts_at(start)
            if len(dims) == 1:
                window = Window(up_to(min(start, end)), up_to(max(start, end)))
        wide = pl.col("diff").cast(pl.Int128) * weight
        updates = self.log.window(window, self.table)
        if where is not None:
            updates = where.scan(updates)
            if not where.is_pushed:
                updates = where.kept(self.log.collect(updates.filter(weight != 0))).lazy()
        sums = (
            updates.filter(weight != 0)
            .group_by(dims)
            .agg(plus=wide.filter(wide > 0).sum(), minus=wide.filter(wide < 0).sum())
        )
        rows = self.log.collect(sums).sort(dims).iter_rows()
        steps = [(Time(time), int(plus), -int(minus)) for *time, plus, minus in rows]
        back = len(dims) == 1 and start is not None and start > end
        return steps[::-1] if back else steps

    def check(self, time: Time) -> None:
        """UsageError for a version before the first one."""
        if self.first is not None and len(time) == 1 and time < self.first:
            raise UsageError(
                f"{self.name}: version {time} is before the first one, {self.first}",
                f"folded are versions {self.first}..{self.readable.latest('')}",
            )


def ledger_of(project: Project) -> Ledger:
    """The ledger of the project's warehouse. StorageError where there is none."""
    warehouse = project.tables
    warehouse.check()
    ledger = Ledger.load(warehouse)
    ledger.check_dims(project.dims)
    return ledger


def output_log(project: Project, name: str, ledger: Ledger | None = None) -> FoldedLog:
    """The log of output ``name``; UsageError naming the outputs there are, or saying that nothing is folded yet."""
    ledger = ledger or ledger_of(project)
    run = finished_run(ledger)
    check_output(run, name, project.inputs)
    table = ledger.output_table(name)
    assert table is not None  # of every output that the run has
    folder = ledger.warehouse.output(name)
    schema = row_schema(folder, table, project.dims, ledger.writer)
    log = ChangeLog(folder, schema, project.dims, ledger.writer, tuning=project.tuning)
    return _folded(project, ledger, log, table, ledger.upper_of(name))


def input_log(project: Project, name: str, ledger: Ledger | None = None) -> FoldedLog:
    """The log of input ``name``, also where it is not folded yet; UsageError naming the inputs there are.

    What was ingested since the last run is in the log, at times that are not complete.
    """
    ledger, schema = ledger or ledger_of(project), project.input_schema(name)
    table, folder = ledger.input_table(name), ledger.warehouse.input(name)
    stored = project.stored.get(name)
    if table is not None:  # dd.toml may have columns that no ingest has added yet
        there = row_schema(folder, table, project.dims)
        known = there if stored is None else stored.columns_of(there)
        schema = there if stored is None else {column: kind for column, kind in schema.items() if column in known}
    log = ChangeLog(folder, schema, project.dims, tuning=project.tuning, stored=stored and stored.of(schema))
    return _folded(project, ledger, log, table, ledger.upper())


def _folded(
    project: Project, ledger: Ledger, log: ChangeLog, table: TableState | None, upper: Frontier | None
) -> FoldedLog:
    nothing = nothing_closed(project.dims)
    names = ledger.version_names(project.dims)
    readable = Readable(project.dims, ledger.since() or nothing, upper or nothing, names)
    return FoldedLog(log.folder.name, log, table, readable, ledger.first_ingested())


def row_schema(folder: Location, state: TableState, dims: tuple[str, ...], writer: Writer | None = None) -> Schema:
    """The columns of a row as the table has them: the program may have changed since."""
    columns = stored_columns(folder, state, writer)
    return {name: parse_type(kind) for name, kind in columns if name not in (*dims, "diff")}
