"""What only Spark reads: any format of ``spark.read.format``, such as ORC, text or XML, with its options."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.errors import DataError, UsageError
from ddcore.io.sources.source import Batches, Source, date_of, first_line
from ddcore.io.storage.foreign_files import check_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NO_PATH = "-"  # a source that has options only, such as a database
# Spark fills what it cannot parse with nulls, unless told to fail.
_STRICT: Mapping[str, Mapping[str, str]] = {name: {"mode": "FAILFAST"} for name in ("csv", "json", "xml")}


@dataclass(frozen=True)
class SparkFormat(Source):
    """A path that Spark reads as ``format``, with ``options``. Needs a session of Spark from :meth:`fields` on."""

    kind = "source of Spark"
    hint = "check the format, its options, and what Spark says with --debug"
    by_spark = True
    format: str = ""
    options: tuple[tuple[str, str], ...] = ()

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns as Spark tells them; for some formats it reads rows for that."""
        from pyspark.sql import SparkSession
        from pyspark.sql.pandas.types import to_arrow_schema

        session = SparkSession.getActiveSession()
        assert session is not None, "the ingest starts it"
        schema = to_arrow_schema(self.spark_frame(session).schema)
        return [(field.name, field.type) for field in schema]

    def batches(self, columns: Sequence[str]) -> Batches:
        """DataError: this process does not read it."""
        raise DataError(f"{self.name}: only Spark reads the format {self.format}", "use --engine spark")

    def spark_frame(self, session: SparkSession) -> DataFrame:
        """The rows. DataError for what Spark cannot read."""
        options = {**_STRICT.get(self.format.lower(), {}), **dict(self.options)}
        try:
            reader = session.read.format(self.format).options(**options)
            return reader.load() if self.name == NO_PATH else reader.load(self.path)
        except Exception as error:
            raise DataError(
                f"{self.name}: Spark does not read it as {self.format}: {first_line(error)}", self.hint
            ) from error

    def settled_stamp(self) -> str:
        """Empty: Spark may read more than the files at its path."""
        return ""

    def stamp(self) -> str:
        """A digest of the names, sizes and times of all files at its path; empty where it is not a local path."""
        path = Path(self.path)
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        if self.name == NO_PATH or not path.exists():
            return ""
        found = [f"{file}-{os.stat(file).st_size}-{os.stat(file).st_mtime_ns}" for file in files if file.is_file()]
        return hashlib.blake2b("\0".join(found).encode(), digest_size=16).hexdigest()

    def fingerprint(self) -> str:
        """The stamp: what it reads has no other mark of its content."""
        return self.stamp()

    def is_at(self, position: str) -> bool:
        """Whether its files are the same; False where it is not a local path."""
        return bool(self.stamp()) and super().is_at(position)

    def date(self) -> datetime | None:
        """When its path was written; None where it is not a local path."""
        exists = self.name != NO_PATH and os.path.exists(self.path)
        return date_of(os.stat(self.path).st_mtime) if exists else None


def find_formats(paths: Sequence[str], format: str, options: Mapping[str, str]) -> list[Source]:
    """Each place as a source that Spark reads as ``format``; ``-`` has no path. UsageError for a local path that is not
    there.
    """
    sources: list[Source] = []
    for given in dict.fromkeys(paths):
        path = given if "://" in given or given == NO_PATH else os.path.abspath(os.path.expanduser(given))
        if "://" not in path and given != NO_PATH:
            check_file(Path(path), given)
        if "://" not in path and given != NO_PATH and not os.path.exists(path):
            raise UsageError(f"{given}: there is no such file or folder", f"check the path; without a path: {NO_PATH}")
        sources.append(SparkFormat(given, path, format=format, options=tuple(options.items())))
    return sources
