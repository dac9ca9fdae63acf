"""Delta tables of others: their rows as of one version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ddcore.base.errors import DataError
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.delta.deltalog import commit_info, gap_text, lost_versions, versions_of
from ddcore.io.delta.tables import values
from ddcore.io.sources.parquetfile import MOST_ROWS, SMALLER
from ddcore.io.sources.remote import address_at, location_of, opened_table
from ddcore.io.sources.source import Batches, Source, date_of, first_line
from ddcore.io.storage.address import is_url
from ddcore.io.storage.foreign_files import check_folder
from ddcore.io.storage.objects import denial, refused

if TYPE_CHECKING:
    import deltalake
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class DeltaTable(Source):
    """A Delta table as of ``version``. ``opened``: as the Delta library has it, in the process that found it.

    In an object store tasks of Spark read it as the inline engine does: Spark itself reaches no store without jars that
    it does not bring along.
    """

    kind = "Delta table"
    is_table = True
    version: int = 0
    identity: str = ""
    opened: deltalake.DeltaTable | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "opened": None}

    @property
    def by_spark(self) -> bool:
        """Whether it is a folder."""
        return not is_url(self.path)

    @property
    def hint(self) -> str:
        """The way on where the Delta library of this process does not support the table."""
        if self.by_spark:
            return "read it with Spark, which supports every table feature: --engine spark"
        return "copy the table into a folder and read it with --engine spark; or export its rows to Parquet"

    @property
    def size(self) -> int:
        """The bytes of the files of a table in an object store; 0 where Spark reads it itself."""
        return 0 if self.by_spark else self._bytes(self._table())

    def row_count(self) -> int | None:
        """The number of rows that the statistics of the files tell, if all do."""
        rows = values(self._table().get_add_actions().column("num_records"))
        return None if None in rows else int(sum(rows))

    def stamp(self) -> str:
        """The table's identity and its version."""
        return f"{self.identity}-{self.version}"

    def settled_stamp(self) -> str:
        """The stamp: a version never changes."""
        return self.stamp()

    def date(self) -> datetime | None:
        """When its version was committed; None where the log no longer has that commit."""
        milliseconds = commit_info(location_of(self.path), self.version).get("timestamp")
        return date_of(milliseconds / 1000) if isinstance(milliseconds, int) else None

    def fingerprint(self) -> str:
        """The stamp, because a version never changes."""
        return self.stamp()

    def is_at(self, position: str) -> bool:
        """Whether this version or a later one of the same table was taken in."""
        identity, _, version = position.partition("/")[0].rpartition("-")
        return identity == self.identity != "" and self.version <= int(version)

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns in the table's log."""
        return [(field.name, field.type) for field in pa.schema(self._table().schema().to_arrow())]

    def settings(self) -> dict[str, str]:
        """The table's properties at this version."""
        return {name: str(value) for name, value in self._table().metadata().configuration.items()}

    def schema_text(self) -> str:
        """The columns and their types as the log has them, as JSON."""
        return self._table().schema().to_json()

    def batches(self, columns: Sequence[str]) -> Batches:
        """Batches of DataFusion, which supports deletion vectors and column mapping."""
        from deltalake import QueryBuilder

        names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        try:
            table = self._table()
            size = self._bytes(table)
            reader = QueryBuilder().register("source", table).execute(f"SELECT {names} FROM source")
            done = 0
            for batch in reader:
                done += batch.num_rows
                if done > MOST_ROWS * size:
                    raise self.unreadable(f"{size:,} bytes hold more than {done:,} rows", SMALLER)
                yield pa.record_batch(batch)
        except DataError:
            raise
        except Exception as error:
            raise self.explain(error) from error

    def explain(self, error: BaseException) -> DataError:
        """The error for a table of which a file is not what it should be, or may not be read."""
        if not is_url(self.path):
            check_folder(Path(self.path), self.path)
        return super().explain(error)

    def spark_frame(self, session: SparkSession) -> DataFrame:
        """The table as Spark reads it."""
        return session.read.format("delta").option("versionAsOf", self.version).load(self.path)

    @staticmethod
    def _bytes(table: deltalake.DeltaTable) -> int:
        return int(sum(values(table.get_add_actions().column("size_bytes"))))

    def _table(self) -> deltalake.DeltaTable:
        return self.opened or opened_table(self.path, self.version)


def delta_table(path: str, table_name: str, version: int | None = None) -> DeltaTable:
    """The Delta table in the folder ``path``, at its newest version or at ``version``.

    DataError for a log that cannot be read, and for a version that is not there or no longer; StorageError where an
    object store denies access.
    """
    try:
        table = opened_table(path, version)
        version, files = table.version(), values(table.get_add_actions().column("path"))
    except Exception as error:
        if is_url(path) and denial(error):
            raise refused(address_at(path), "read", error) from error
        if version is not None and _newest(path) is not None:
            raise _missing(path, table_name, version) from error
        if not is_url(path):
            check_folder(Path(path, "_delta_log"), f"{table_name}/_delta_log")
        gap = lost_versions(location_of(path), version)
        raise DataError(
            f"{table_name}: not a readable Delta table: {gap_text(gap) if gap else first_line(error)}",
            "write it again at its origin, or export its rows to Parquet and ingest that",
        ) from error
    for file in files:
        check_inside(table_name, str(file))
    name = f"{table_name} (Delta version {version})"
    return DeltaTable(name, path, version=version, identity=str(table.metadata().id), opened=table)


def delta_versions(path: str, name: str, first: int | None, last: int | None) -> list[DeltaTable]:
    """The Delta table in the folder ``path`` at each version from ``first`` to ``last``, without them from the first
    that it can still be read at, up to the newest.
    """
    newest = delta_table(path, name).version
    start = _first(path) if first is None else first
    stop = newest if last is None else last
    if stop > newest:
        raise _missing(path, name, stop)
    if not start <= stop:
        raise DataError(f"{name}: names no version: {start} is after {stop}", "say: TABLE@v3..v7, or TABLE@v3..")
    return [delta_table(path, name, version) for version in range(start, stop + 1)]


def _first(path: str) -> int:
    """The first version whose commit or checkpoint is in the log."""
    return min((version for some in versions_of(location_of(path)) for version in some), default=0)


def _newest(path: str) -> int | None:
    try:
        return opened_table(path).version()
    except Exception:  # whatever makes it unreadable
        return None


def _missing(path: str, name: str, version: int) -> DataError:
    """The error for a version of a readable table that cannot be read."""
    newest, first = _newest(path), _first(path)
    if newest is not None and version > newest:
        return DataError(f"{name}: there is no version {version}; the newest is {newest}", "name one up to that")
    return DataError(
        f"{name}: version {version} can no longer be read: its commit was deleted, and the log begins at {first}",
        "retention deleted it at its origin: restore it there, or name a later version",
    )


def check_inside(table: str, path: str) -> None:
    """Raise DataError for a data file outside of its Delta table's folder: the log could name any file of the user."""
    decoded = unquote(unquote(path))
    if decoded.startswith("/") or "://" in decoded or decoded.startswith("file:") or ".." in decoded.split("/"):
        raise DataError(
            f"{table}: its log names a file outside of the table's folder: {path[:200]!r}",
            "copy the table with its files (a shallow clone has none), or export its rows to Parquet and ingest that",
        )
