"""The Spark side of ingest: one job whose tasks read all sources, check their rows and write the input's data files.

The tasks read files with the same readers as the inline engine. Spark's own readers replace bytes that are not
UTF-8, turn decimals with too many digits into nulls, have no row numbers, and skip files whose names begin with
``_``. Parquet is divided by row groups; one task reads a CSV or JSON lines file. Delta tables are read by Spark, which
supports all their features. :meth:`ddcore.io.sources.intake.Intake.take` does the rest, and each task returns one line
of JSON to the driver.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ddcore.base.errors import DataError, DdError
from ddcore.io.logs.updates import DIFF
from ddcore.io.sources.intake import Intake, Part, frames_of
from ddcore.io.sources.layouts import Layout
from ddcore.io.sources.paths import named_again, spark_columns
from ddcore.io.sources.source import Source
from ddcore.io.sources.spark import ERROR, cores, error_of, large_frames, shares, text_of
from ddcore.jobs.spark.failures import is_of_spark, telling_line

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_UNREADABLE = re.compile(r"reading file (\S+?)\.?\s")
# Names are case-sensitive, as everywhere here. Nanoseconds are read as integers: otherwise Spark refuses them.
_READING = {"spark.sql.caseSensitive": "true", "spark.sql.legacy.parquet.nanosAsLong": "true"}

Fitted = Sequence[tuple[Source, Layout]]
Batches = Iterator["pa.RecordBatch"]


def take_by_spark(session: SparkSession, intake: Intake, fitted: Fitted) -> list[Part]:
    """Take in all rows of these sources in one Spark job; one part per task with rows.

    Raises the first error of the checks, by the order of tasks. The files written until then stay, invisible.
    """
    with settings_of(session, _READING):
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
            raise error_of(answer["error"])
    return [Part.from_json(row.part) for row in rows]


@contextlib.contextmanager
def settings_of(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for the length of a ``with``."""
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
    work = shares(fitted, cores(session))
    if work:
        yield session.range(0, len(work), 1, len(work)), partial(_read_files, work)
    for source, layout in fitted:
        if source.by_spark:
            columns = _columns(source.spark_frame(session), layout)
            yield _added_up(columns, layout) if source.cancels else columns, partial(_read_table, layout)


def _added_up(frame: DataFrame, layout: Layout) -> DataFrame:
    """Updates with the sums of their diffs, without those that cancel. Columns are numbers: see :func:`_columns`."""
    from pyspark.sql import functions as F

    diff = str(layout.read.index(layout.source_columns[DIFF]))
    sums = frame.groupBy(*(name for name in frame.columns if name != diff)).agg(F.sum(diff).alias(diff))
    return sums.where(F.col(diff) != 0).select(*frame.columns)


def _columns(frame: DataFrame, layout: Layout) -> DataFrame:
    error = [ERROR] if ERROR in frame.columns else []
    return frame.select(*spark_columns(frame, layout.read), *error)


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
        answer = json.dumps({"error": text_of(error)})
    if answer is not None:
        yield pa.record_batch({"part": pa.array([answer], pa.string())})


def _read_files(shares: Sequence[Fitted], batches: Batches) -> Iterator[tuple[Layout, int | None, pl.DataFrame]]:
    for batch in batches:
        yield from frames_of(file for number in batch.column(0).to_pylist() for file in shares[number])


def _read_table(layout: Layout, batches: Batches) -> Iterator[tuple[Layout, int | None, pl.DataFrame]]:
    for frame in large_frames(layout.where, batches):
        yield layout, None, named_again(frame, layout.read)


# --- errors -----------------------------------------------------------------------------------------------------------


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
