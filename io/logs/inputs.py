"""The logs of a project's inputs, with their columns as ``dd.toml`` has them now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.io.logs.changed_columns import check_columns, check_returned
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.project import Project
from ddcore.io.storage.warehouse import Warehouse

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.io.delta.writer import Writer
    from ddcore.io.ledger.ledger import Ledger


def input_log(
    warehouse: Warehouse, project: Project, name: str, schema: Schema | None = None, writer: Writer | None = None
) -> ChangeLog:
    """The log of an input, of the present columns or of those of ``schema``."""
    columns = project.inputs[name] if schema is None else schema
    return ChangeLog(
        warehouse.input(name), columns, project.dims, writer, project.tuning, stored=project.stored.get(name)
    )


def check_input(ledger: Ledger, project: Project, name: str) -> None:
    """Raise StorageError for an input whose table has other columns than ``dd.toml``, or that has a dropped one again.
    Nothing where no rows were taken in.
    """
    if (state := ledger.input_table(name)) is None:
        return
    log = input_log(ledger.warehouse, project, name, writer=ledger.writer)
    check_columns(log, state)
    check_returned(log, ledger.ingest_index(name).columns)
