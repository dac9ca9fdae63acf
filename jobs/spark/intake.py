"""The Spark side of ingest: one job whose tasks read all sources, check their rows and write the input's data files.

The tasks read files with the same readers as the inline engine. Spark's own readers replace bytes that are not
UTF-8, turn decimals with too many digits into nulls, have no row numbers, and skip files whose names begin with
``_``. Parquet is divided by row groups; one task reads a CSV file. Delta tables are read by Spark, which
supports all their features. :meth:`ddcore.io.intake.Intake.take` does the rest, and each task returns one line of JSON
to the driver.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ddcore import errors
from ddcore.errors import DataError, DdError
from ddcore.io.checks import Layout
from ddcore.io.intake import Intake, Part, frames_of
from ddcore.io.sources.source import Source
from ddcore.io.sources.validation import validate
from ddcore.jobs.spark.failures import is_of_spark, telling_line

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["take_by_spark"]

_BATCH_ROWS = 1 << 20
_MOST_BYTES, _OPENING = 128 << 20, 4 << 20  # of files per task; the cost of opening a file, in bytes read
_UNREADABLE = re.compile(r"reading file (\S+?)\.?\s")
# Names are case-sensitive, as everywhere here. Nanoseconds are read as integers: otherwise Spark refuses them.
_READING = {"spark.sql.caseSensitive": "true", "spark.sql.legacy.parquet.nanosAsLong": "true"}

Fitted = Sequence[tuple[Source, Layout]]
Batches = Iterator["pa.RecordBatch"]


def take_by_spark(session: SparkSession, intake: Intake, fitted: Fitted) -> list[Part]:
    """Take in all rows of these sources in one Spark job; one part per task with rows.

    Raises the first error of the checks, by the order of tasks. The files written until then stay, invisible.
    """
    with _settings(session, _READING):
        jobs = [
            frame.mapInArrow(partial(_task, intake, f"{number:03d}", read), "part string")
            for number, (frame, read) in enumerate(_frames(session, fitted))
        ]
        try:
            rows = reduce(lambda left, right: left.union(right), jobs).collect()
        except Exception as error:
            raise _explain(error, fitted) from error
    answers = [json.loads(row.part) for row in rows]
    for answer in answers:
        if "error" in answer:
            raise _error(*answer["error"])
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


# --- what the tasks read ----------------------------------------------------------------------------------------------

Read = Callable[["Batches"], Iterator[tuple[Layout, int | None, "pl.DataFrame"]]]


def _frames(session: SparkSession, fitted: Fitted) -> Iterator[tuple[DataFrame, Read]]:
    """Spark frames, each with the function that turns its Arrow batches into frames in a task."""
    shares = _shares(fitted, session.sparkContext.defaultParallelism)
    if shares:
        yield session.range(0, len(shares), 1, len(shares)), partial(_read_files, shares)
    for source, layout in fitted:
        if source.by_spark:
            yield _columns(source.spark_frame(session), layout), partial(_read_table, layout)


def _shares(fitted: Fitted, cores: int) -> list[list[tuple[Source, Layout]]]:
    """What each task reads: files and parts of files, in order, of about equal size."""
    files = [(source, layout) for source, layout in fitted if not source.by_spark]
    total = sum(source.size + _OPENING for source, _ in files)
    size = min(_MOST_BYTES, max(_OPENING, total // max(cores, 1)))
    shares: list[list[tuple[Source, Layout]]] = []
    room = 0
    for source, layout in files:
        for length, part in source.pieces(size):
            if room < length or not shares:
                shares.append([])
                room = size
            shares[-1].append((part, layout))
            room -= length + _OPENING
    return shares


def _columns(frame: DataFrame, layout: Layout) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.select(*(F.col("`" + name.replace("`", "``") + "`") for name in layout.read))


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


def _read_files(shares: Sequence[Fitted], batches: Batches) -> Iterator[tuple[Layout, int | None, pl.DataFrame]]:
    for batch in batches:
        yield from frames_of(file for number in batch.column(0).to_pylist() for file in shares[number])


def _read_table(layout: Layout, batches: Batches) -> Iterator[tuple[Layout, int | None, pl.DataFrame]]:
    for frame in _large(layout.where, batches):
        yield layout, None, frame


def _large(name: str, batches: Batches) -> Iterator[pl.DataFrame]:
    """The rows of Spark's small batches in fewer, larger frames."""
    import polars as pl
    import pyarrow as pa

    buffer: list[pa.RecordBatch] = []
    rows = 0

    def frame() -> pl.DataFrame:
        table = pa.Table.from_batches(buffer)
        validate(name, table)
        rows = pl.from_arrow(table)
        assert isinstance(rows, pl.DataFrame)
        return rows

    for batch in batches:
        buffer.append(batch)
        rows += len(batch)
        if rows >= _BATCH_ROWS:
            yield frame()
            buffer, rows = [], 0
    if rows:
        yield frame()


# --- errors -----------------------------------------------------------------------------------------------------------


def _error(kind: str, message: str, hint: str) -> DdError:
    error = getattr(errors, kind, DataError)
    return error(message, hint) if issubclass(error, DdError) else DataError(message, hint)


def _explain(error: Exception, fitted: Fitted) -> Exception:
    """The DataError for a Delta table's file that Spark could not read; one line for any other failure of Spark."""
    if not is_of_spark(error):
        return error
    unreadable = _UNREADABLE.search(str(error))
    if unreadable is None:
        again = "nothing was ingested; run it again, with --debug to see Spark's output"
        return DdError(f"the Spark job failed: {telling_line(error)}", again)
    path = "/" + unquote(unreadable[1].removeprefix("file:")).lstrip("/")
    name = next((source.name for source, _ in fitted if path.startswith(source.path)), path)
    return DataError(f"{name}: not readable, {path} is damaged", "write it again at its origin, or leave it out")
