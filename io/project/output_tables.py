"""What ``table = ...`` of an output in ``dd.toml`` says: where its present contents are published, and how."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ddcore.base.errors import UsageError
from ddcore.base.record import record
from ddcore.base.schema import Schema
from ddcore.io.project.section import Section, quoted
from ddcore.io.storage.address import Location, address_of, is_url
from ddcore.text.wording import listed, meant

_KEYS = ("path", "partition_by", "cluster_by", "count")
_PARTITIONS = ("int64", "string", "date", "bool")  # types whose values every reader reads alike from Delta's log


@record
class TableSettings:
    """A published table: its ``address``, None for one in the warehouse; the columns by which it is partitioned and
    sorted; and the column with the count of equal rows, empty where each is a row of its own.
    """

    address: Location | None = None
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    count: str = ""

    def check(self, output: str, schema: Schema) -> None:
        """Raise UsageError for columns that an output does not have, or that cannot be used so."""
        for key, columns in (("partition_by", self.partition_by), ("cluster_by", self.cluster_by)):
            for column in columns:
                setting = f"dd.toml: [outputs.{output}] table: {key}"
                if column not in schema:
                    hint = meant(column, schema) or f"its columns are {listed(schema)}"
                    raise UsageError(f"{setting}: the output has no column {column!r}", hint)
                kind = schema[column]
                if key == "partition_by" and kind.name not in _PARTITIONS:
                    hint = f"partition by columns of the types {listed(_PARTITIONS)}"
                    raise UsageError(f"{setting}: the column {column!r} is of the type {kind}", hint)
                if kind.stored.is_nested:
                    raise UsageError(f"{setting}: the column {column!r} is {kind}", "name plain columns")
        if self.count.casefold() in {name.casefold() for name in schema}:
            raise UsageError(
                f"dd.toml: [outputs.{output}] table: count: the output has a column {self.count!r}",
                "give the count another name",
            )
        if {*schema} <= {*self.partition_by} and not self.count:
            raise UsageError(
                f"dd.toml: [outputs.{output}] table: partition_by: names all columns of the output",
                "leave one of them out: files hold the others",
            )


def output_table(section: Section, root: Path) -> TableSettings | None:
    """What the section of an output says of its table, for a project in the folder ``root``. UsageError."""
    value = section.table.get("table", False)
    if value is False:
        return None
    table = {"path": value} if isinstance(value, str) else {} if value is True else value
    if not isinstance(table, Mapping):
        raise section.wrong("table", f"must be true, a path or a table, not {quoted(value)}", "say table = true")
    one = Section(section.file, f"{section.name}.table", dict(table))
    one.only(_KEYS)
    partition_by, cluster_by = (one.names(key) or () for key in ("partition_by", "cluster_by"))
    if both := [name for name in cluster_by if name in partition_by]:
        raise one.wrong("cluster_by", f"{both[0]!r} is in partition_by", "name it once")
    return TableSettings(_address(one, root), partition_by, cluster_by, one.text("count") or "")


def _address(section: Section, root: Path) -> Location | None:
    path = section.text("path")
    if path is None:
        return None
    if is_url(path):
        return address_of(path, f"[{section.name}] path")
    return Path(os.path.normpath(root / os.path.expanduser(path)))
