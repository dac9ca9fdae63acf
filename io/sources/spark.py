"""Frames of Spark that the readers of this package fill, in Spark's tasks.

Spark's own readers replace bytes that are not UTF-8, turn decimals with too many digits into nulls, have no row
numbers, and skip files whose names begin with ``_``. So its tasks read files with the same readers as the inline
engine. An error of ours travels as a row: the column ``ERROR`` is null in all others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ddcore.base import errors
from ddcore.base.errors import DataError, DdError
from ddcore.base.lazy import polars as pl
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.sources.validation import validate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ddcore.io.sources.source import Source

ERROR = "_error"

_BATCH_ROWS = 1 << 20
_MOST_BYTES, _OPENING = 128 << 20, 4 << 20  # of files per task; the cost of opening a file, in bytes read

_CORES = 8  # assumed of a server that does not say how many it has

Share = TypeVar("Share")
How = TypeVar("How")
Batches = Iterator["pa.RecordBatch"]
Frames = Iterator["pl.DataFrame"]


def cores(session: SparkSession) -> int:
    """How many tasks a session runs at a time; what a Spark Connect server is set to, which may say nothing."""
    if "connect" in type(session).__module__:
        return int(session.conf.get("spark.default.parallelism", str(_CORES)) or _CORES)
    return session.sparkContext.defaultParallelism


def shares(work: Iterable[tuple[Source, How]], cores: int) -> list[list[tuple[Source, How]]]:
    """What each task reads: files and parts of files, in order, of about equal size, each with how it is read."""
    files = [(source, how) for source, how in work if not source.by_spark]
    total = sum(source.size + _OPENING for source, _ in files)
    size = min(_MOST_BYTES, max(_OPENING, total // max(cores, 1)))
    parts: list[list[tuple[Source, How]]] = []
    room = 0
    for source, how in files:
        for length, part in source.pieces(size):
            if room < length or not parts:
                parts.append([])
                room = size
            parts[-1].append((part, how))
            room -= length + _OPENING
    return parts


def in_tasks(
    session: SparkSession, work: Sequence[Share], read: Callable[[Share], Frames], schema: pa.Schema
) -> DataFrame:
    """The frames that ``read`` makes of each element of ``work``, in a task each. ``schema`` has their columns."""
    tasks = session.range(0, len(work), 1, max(len(work), 1))
    return tasks.mapInArrow(partial(_read_shares, work, read, _with_error(schema)), _spark_schema(schema))


def through(frame: DataFrame, change: Callable[[Frames], Frames], schema: pa.Schema, name: str) -> DataFrame:
    """The rows of ``frame`` as ``change`` leaves them, partition by partition; ``name`` is their source, for errors."""
    return frame.mapInArrow(partial(_change_batches, name, change, _with_error(schema)), _spark_schema(schema))


def text_of(error: DdError) -> str:
    """An error that a task sends to the driver, for :func:`error_of`."""
    return json.dumps([type(error).__name__, error.message, error.hint])


def error_of(text: str) -> DdError:
    """The error that a task sent, as in the column ``ERROR``."""
    kind, message, hint = json.loads(text)
    error = getattr(errors, kind, DataError)
    return error(message, hint) if issubclass(error, DdError) else DataError(message, hint)


def large_frames(name: str, batches: Batches) -> Frames:
    """The rows of Spark's small batches in fewer, larger frames, validated; the first error of a task, if any."""

    def frame(parts: list[pa.RecordBatch]) -> pl.DataFrame:
        table = pa.Table.from_batches(parts)
        if ERROR in table.column_names:
            for text in table[ERROR].drop_null()[:1].to_pylist():
                raise error_of(text)
            table = table.drop_columns(ERROR)
        validate(name, table)
        rows = pl.from_arrow(table)
        assert isinstance(rows, pl.DataFrame)
        return rows

    buffer: list[pa.RecordBatch] = []
    for batch in batches:
        buffer.append(batch)
        if sum(map(len, buffer)) >= _BATCH_ROWS:
            yield frame(buffer)
            buffer = []
    if any(map(len, buffer)):
        yield frame(buffer)


def _with_error(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(ERROR, pa.string()))


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(_carried(_with_error(schema)))


def _carried(schema: pa.Schema) -> pa.Schema:
    """A schema for Spark, as :func:`~ddcore.io.sources.row_checks.rows_of` reads it. Spark's frames from Arrow have no
    times of day, and a ``groupBy`` of maps makes 0 of the nulls in them (Spark 4.2), so both go as the engine has them:
    microseconds, and lists of entries.
    """
    from ddcore.base.schema import parse_type

    kinds = [None if field.name == ERROR else parse_type(field.type) for field in schema]
    return pa.schema(
        field if kind is None or kind.base == kind else field.with_type(kind.base.arrow)
        for field, kind in zip(schema, kinds, strict=True)
    )


def _as_carried(frame: pl.DataFrame) -> pl.DataFrame:
    from ddcore.base.schema import type_of
    from ddcore.data.forms import to_base

    return pl.DataFrame([to_base(column, type_of(column.dtype)).alias(column.name) for column in frame])


def _read_shares(
    work: Sequence[Share], read: Callable[[Share], Frames], schema: pa.Schema, batches: Batches
) -> Batches:
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    yield from _as_batches((frame for number in numbers for frame in read(work[number])), schema)


def _change_batches(name: str, change: Callable[[Frames], Frames], schema: pa.Schema, batches: Batches) -> Batches:
    yield from _as_batches(change(large_frames(name, batches)), schema)


def _as_batches(frames: Frames, schema: pa.Schema) -> Batches:
    schema = _carried(schema)
    try:
        for frame in frames:
            table = _as_carried(frame).with_columns(pl.lit(None, pl.String).alias(ERROR)).to_arrow()
            yield from table.select(schema.names).cast(schema).to_batches(max_chunksize=1 << 16)
    except DdError as error:
        columns = [pa.nulls(1, field.type) for field in schema][:-1]
        yield pa.RecordBatch.from_arrays([*columns, pa.array([text_of(error)], pa.string())], schema=schema)
