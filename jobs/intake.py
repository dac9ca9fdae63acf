"""The Spark side of ingest: one job that reads all sources, checks their rows and writes the input's data files.

Spark reads Parquet files and Delta tables, whatever their features and their size, and hands them to Python as Arrow
batches; :meth:`ddcore.io.intake.Intake.take` does the rest in the tasks, as it does without Spark. What comes back to
the driver is one line of JSON per task. CSV files are read in the tasks by the same strict parser as without Spark:
Spark's own replaces bytes that are not UTF-8 and knows no row numbers.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ddcore import errors
from ddcore.errors import DataError, DdError
from ddcore.io.checks import Layout
from ddcore.io.intake import Intake, Part, frames_of
from ddcore.io.sources import Source
from ddcore.jobs.failures import is_of_spark, telling_line

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["take_by_spark"]

_FILE = "_ddcore_file"
_BATCH_ROWS = 1 << 20
_UNREADABLE = re.compile(r"reading file (\S+?)\.?\s")
# Names are told apart by case, as everywhere here; nanoseconds come as numbers, which Spark would otherwise refuse to
# read.
_READING = {"spark.sql.caseSensitive": "true", "spark.sql.legacy.parquet.nanosAsLong": "true"}

Fitted = Sequence[tuple[Source, Layout]]
Batches = Iterator["pa.RecordBatch"]


def take_by_spark(session: SparkSession, intake: Intake, fitted: Fitted) -> list[Part]:
    """Take all rows of these sources in, in one Spark job; one part per task that had rows.

    Raises the first error of the checks, by the order of tasks. Files are then left behind, unseen.
    """
    with _settings(session, _READING):
        jobs = [
            frame.mapInArrow(partial(_task, intake, f"{number:03d}", read), "part string")
            for number, (frame, read) in enumerate(_frames(session, fitted))
        ]
        try:
            rows = reduce(lambda left, right: left.union(right), jobs).collect()
        except Exception as error:
            raise _explained(error, fitted) from error
    answers = [json.loads(row.part) for row in rows]
    for answer in answers:
        if "error" in answer:
            raise _revived(*answer["error"])
    return [Part.from_json(row.part) for row in rows]


@contextlib.contextmanager
def _settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: session.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                session.conf.set(name, old)


# --- what Spark reads -------------------------------------------------------------------------------------------------

Read = Callable[["Batches"], Iterator[tuple[Layout, int | None, "pl.DataFrame"]]]


def _frames(session: SparkSession, fitted: Fitted) -> Iterator[tuple[DataFrame, Read]]:
    """Spark frames over the sources, each with what makes checked batches of its Arrow batches in a task."""
    texts = [(source, layout) for source, layout in fitted if source.format == "csv"]
    if texts:
        yield session.range(0, len(texts), 1, len(texts)), partial(_read_texts, texts)
    for source, layout in fitted:
        if source.format == "delta":
            reader = session.read.format("delta").option("versionAsOf", source.version)
            yield _columns(reader.load(source.path), layout), partial(_read_one, layout)
    # A Spark frame has one schema: where a file lacks a column it would read nulls, without a word.
    files = [(source, layout) for source, layout in fitted if source.format == "parquet"]
    for _, group in groupby(sorted(files, key=lambda file: file[1].shape), key=lambda file: file[1].shape):
        alike = list(group)
        frame = session.read.option("__globPaths__", "false").parquet(*(source.path for source, _ in alike))
        if len(alike) == 1:
            yield _columns(frame, alike[0][1]), partial(_read_one, alike[0][1])
        else:
            layouts = {source.path: layout for source, layout in alike}
            yield _columns(frame, alike[0][1], "_metadata.file_path"), partial(_read_many, layouts)


def _columns(frame: DataFrame, layout: Layout, file: str | None = None) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [F.col("`" + name.replace("`", "``") + "`") for name in layout.read]
    return frame.select(*columns, *([F.col(file).alias(_FILE)] if file else []))


# --- in the tasks -----------------------------------------------------------------------------------------------------


def _task(intake: Intake, group: str, read: Read, batches: Batches) -> Batches:
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    writer = f"{group}-{context.partitionId() if context else 0:05d}"
    try:
        part = intake.take(writer, read(batches))
        answer = part.to_json() if part.rows else None
    except DdError as error:
        answer = json.dumps({"error": [type(error).__name__, error.message, error.hint]})
    if answer is not None:
        yield pa.record_batch({"part": pa.array([answer], pa.string())})


def _read_one(layout: Layout, batches: Batches) -> Iterator[tuple[Layout, int | None, pl.DataFrame]]:
    for frame in _large(batches):
        yield layout, None, frame


def _read_many(layouts: Mapping[str, Layout], batches: Batches) -> Iterator[tuple[Layout, int | None, pl.DataFrame]]:
    for frame in _large(batches):
        for (url,), rows in frame.partition_by(_FILE, as_dict=True, include_key=False, maintain_order=True).items():
            yield layouts[_path(str(url))], None, rows


def _read_texts(texts: Fitted, batches: Batches) -> Iterator[tuple[Layout, int | None, pl.DataFrame]]:
    for batch in batches:
        yield from frames_of(texts[number] for number in batch.column(0).to_pylist())


def _large(batches: Batches) -> Iterator[pl.DataFrame]:
    """The rows of Spark's batches, which are small, in fewer frames."""
    import polars as pl
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = 0

    def frame() -> pl.DataFrame:
        table = pa.Table.from_batches(held)
        made = pl.from_arrow(table)
        assert isinstance(made, pl.DataFrame)
        return made

    for batch in batches:
        held.append(batch)
        rows += len(batch)
        if rows >= _BATCH_ROWS:
            yield frame()
            held, rows = [], 0
    if rows:
        yield frame()


def _path(url: str) -> str:
    """The path in a URL as Spark writes it: ``file:/a%20b`` or ``file:///a%20b``."""
    return "/" + unquote(url.removeprefix("file:")).lstrip("/")


# --- errors -----------------------------------------------------------------------------------------------------------


def _revived(kind: str, message: str, hint: str) -> DdError:
    found = getattr(errors, kind, DataError)
    return found(message, hint) if issubclass(found, DdError) else DataError(message, hint)


def _explained(error: Exception, fitted: Fitted) -> Exception:
    """The DataError for a file that Spark could not read; one line for whatever else failed in Spark."""
    if not is_of_spark(error):
        return error
    said = str(error)
    unreadable = _UNREADABLE.search(said)
    if unreadable is None:
        again = "nothing was ingested; run it again, with --debug to see Spark's output"
        return DdError(f"the Spark job failed: {telling_line(error)}", again)
    path = _path(unreadable[1])
    name = next((source.name for source, _ in fitted if path.startswith(source.path)), path)
    return DataError(f"{name}: not readable, {path} is damaged", "write it again at its origin, or leave it out")
