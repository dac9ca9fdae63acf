"""Delta tables of others: their rows as of one version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ddcore.errors import DataError
from ddcore.io.sources.parquetfile import MOST_ROWS
from ddcore.io.sources.source import Batches, Source, first_line
from ddcore.io.tables import values

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DeltaTable", "delta_table"]


@dataclass(frozen=True)
class DeltaTable(Source):
    """A Delta table as of ``version``."""

    kind = "Delta table"
    hint = "read it with Spark, which supports every table feature: --engine spark"
    by_spark = True
    version: int = 0

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns in the table's log."""
        import deltalake
        import pyarrow as pa

        table = deltalake.DeltaTable(self.path, version=self.version)
        return [(field.name, field.type) for field in pa.schema(table.schema().to_arrow())]

    def batches(self, columns: Sequence[str]) -> Batches:
        """Batches of DataFusion, which supports deletion vectors and column mapping."""
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        try:
            table = DeltaTable(self.path, version=self.version)
            size = sum(values(table.get_add_actions().column("size_bytes")))
            reader = QueryBuilder().register("source", table).execute(f"SELECT {names} FROM source")
            done = 0
            for batch in reader:
                done += batch.num_rows
                if done > MOST_ROWS * size:
                    raise DataError(
                        f"{self.name}: not a readable Delta table: {size:,} bytes hold more than {done:,} rows",
                        "write it again at its origin with smaller pages and shorter values, or leave it out",
                    )
                yield pa.record_batch(batch)
        except DataError:
            raise
        except Exception as error:
            raise self.explain(error) from error

    def spark_frame(self, session: SparkSession) -> DataFrame:
        """The table as Spark reads it."""
        return session.read.format("delta").option("versionAsOf", self.version).load(self.path)


def delta_table(path: str, place: str) -> DeltaTable:
    """The Delta table in the folder ``path``, at its newest version. DataError for a log that cannot be read."""
    import deltalake

    try:
        table = deltalake.DeltaTable(path)
        version, files = table.version(), values(table.get_add_actions().column("path"))
    except Exception as error:
        raise DataError(
            f"{place}: not a readable Delta table: {first_line(error)}",
            "write it again at its origin, or export its rows to Parquet and ingest that",
        ) from error
    for file in files:
        _check_inside(place, str(file))
    return DeltaTable(f"{place} (Delta version {version})", path, version=version)


def _check_inside(table: str, path: str) -> None:
    """Raise DataError for a data file outside of its Delta table's folder: the log could name any file of the user."""
    decoded = unquote(unquote(path))
    if decoded.startswith("/") or "://" in decoded or decoded.startswith("file:") or ".." in decoded.split("/"):
        raise DataError(
            f"{table}: its log names a file outside of the table's folder: {path[:200]!r}",
            "copy the table with its files (a shallow clone has none), or export its rows to Parquet and ingest that",
        )
