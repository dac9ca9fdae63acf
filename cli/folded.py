"""Outputs as the last finished run left them: what ``diff`` and ``show`` read.

Data that no ledger entry names is ignored. Nothing here takes a lock, runs the program or starts a JVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcore.errors import UsageError
from ddcore.io.changelog import ChangeLog
from ddcore.io.ledger import Ledger
from ddcore.io.tables import mend_hint, open_table, row_type
from ddcore.io.warehouse import Warehouse, reporting
from ddcore.schema import Schema
from ddcore.wording import listed, meant

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from ddcore.io.project import Project
    from ddcore.io.tables import TableState

__all__ = ["OutputLog", "output_log"]


@dataclass(frozen=True)
class OutputLog:
    """One output's log at the table version that the ledger names; ``first`` is the first version that was
    ingested, ``latest`` the last one that is folded."""

    name: str
    log: ChangeLog
    table: TableState
    first: int
    latest: int

    @property
    def schema(self) -> Schema:
        """The columns of a row."""
        return self.log.schema

    @property
    def heading(self) -> str:
        """The output's name and its columns with their types."""
        return f"{self.name} ({', '.join(f'{name} {kind}' for name, kind in self.schema.items())})"

    @property
    def numbers(self) -> list[int]:
        """The places of the columns that hold numbers."""
        kinds = ("int64", "float64", "decimal")
        return [place for place, kind in enumerate(self.schema.values()) if kind.name in kinds]

    def accumulate(self, version: int) -> pl.DataFrame:
        """The rows as of ``version`` and how often each occurs, as ``diff``; UsageError before the first version.

        Not ``count``: an output may have a column of that name.
        """
        self._check(version)
        return self.log.between(None, version, self.table)

    def between(self, start: int | None, end: int) -> pl.DataFrame:
        """The rows that differ between two versions, and their ``diff``; None is the time before everything."""
        self._check(end if start is None else max(start, end))
        return self.log.between(start, end, self.table)

    def steps(self, start: int | None, end: int) -> list[tuple[int, int, int]]:
        """Version, inserts and deletes, for each that changed something, on the way from ``start`` to ``end``."""
        import polars as pl

        low, high = (-1, end) if start is None else (min(start, end), max(start, end))
        (dim,) = self.log.dims
        wide = pl.col("diff").cast(pl.Int128)
        sums = (
            self.log.window(low + 1, high, self.table)
            .group_by(dim)
            .agg(plus=wide.filter(wide > 0).sum(), minus=wide.filter(wide < 0).sum())
        )
        rows = [(int(v), int(plus), -int(minus)) for v, plus, minus in self.log.collect(sums).sort(dim).iter_rows()]
        if start is not None and start > end:
            return [(version, minus, plus) for version, plus, minus in reversed(rows)]
        return rows

    def _check(self, version: int) -> None:
        if version < self.first:
            raise UsageError(
                f"{self.name}: version {version} is before the first one, {self.first}",
                f"folded are versions {self.first}..{self.latest}",
            )


def output_log(project: Project, name: str) -> OutputLog:
    """The log of output ``name``; UsageError naming the outputs there are, or saying that nothing is folded yet."""
    warehouse = Warehouse(project.warehouse)
    warehouse.check()
    ledger = Ledger.load(warehouse)
    run = ledger.current_run()
    if run is None:
        waiting = ledger.latest_ingested() is not None
        raise UsageError(
            f"nothing is folded yet in {warehouse.root}",
            "fold the waiting versions with: ddcore run" if waiting else "begin with: ddcore ingest INPUT SOURCE",
        )
    outputs = sorted(table.removeprefix("outputs/") for table in run.tables if table.startswith("outputs/"))
    if name not in outputs:
        hint = f"{name} is an input; only outputs can be shown" if name in project.inputs else ""
        raise UsageError(
            f"no output {name!r}; there are: {listed(outputs)}",
            hint or meant(name, outputs) or "after a change of the program: ddcore run --full-refresh",
        )
    table = run.tables[f"outputs/{name}"]
    folder = warehouse.output(name)
    log = ChangeLog(folder, _row_schema(folder, table.version, project.dims), project.dims)
    return OutputLog(name, log, table, ledger.first_ingested() or 0, run.last)


def _row_schema(folder: Path, version: int, dims: tuple[str, ...]) -> Schema:
    """The columns of a row as the table has them: the program may have changed since."""
    with reporting(folder, "read", mend_hint(folder)):
        fields = open_table(folder, version).schema().fields
    return {field.name: row_type(field.type) for field in fields if field.name not in (*dims, "diff")}
