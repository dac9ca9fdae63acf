"""Frames and batches: change logs as frames of values, and as batches of words."""

from __future__ import annotations

from collections.abc import Container, Sequence

import polars as pl

from ddcore.base.errors import DataError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type, type_of
from ddcore.data import encoding
from ddcore.data.arrow import series_of_numbers
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.consolidation import arrange

_INT64 = pl.Int64
_MOST_MILLISECONDS = (2**63 - 1) // 1000


def batch_of(
    frame: pl.DataFrame, schema: Schema, dims: Sequence[str], name: str, read: Container[str] | None = None
) -> Batch:
    """A change log as an update batch. Raises DataError where columns are missing or are no integers.

    ``read``: the columns that the frame has, if not all; the others are null in the batch.
    """
    columns = {column.name: column for column in frame.get_columns()}
    present = {column: kind for column, kind in schema.items() if read is None or column in read}
    for column in (*present, *dims, "diff"):
        if column not in columns:
            raise DataError(f"input {name}: there is no column {column}; there are {', '.join(columns)}")
    for column in (*dims, "diff"):
        dtype = columns[column].dtype
        if not dtype.is_integer() or columns[column].null_count():
            raise DataError(f"input {name}: column {column} must be integers without nulls, not {dtype}")
    for column, kind in present.items():
        check_column(columns[column], kind, f"input {name}")
    times = [_whole_numbers(columns[dim], name) for dim in dims]
    for dim, coordinates in zip(dims, times, strict=True):
        if len(coordinates) and coordinates.min() < 0:
            raise DataError(f"input {name}: {dim} is {int(coordinates.min())}", "times count from 0")
    diffs = _whole_numbers(columns["diff"], name)
    words = encoding.encode_columns({column: columns[column] for column in present}, schema)
    nothing = np.full(0 if len(words) == len(schema) else len(frame), encoding.NULL, dtype=np.int64)
    return Batch([words.get(column, nothing) for column in schema], times, diffs)


def _whole_numbers(column: pl.Series, name: str) -> np.ndarray:
    """Integers of any width without nulls as int64[n]. Raises DataError for the first that does not fit."""
    words = column if column.dtype == _INT64 else column.cast(_INT64, strict=False)
    if words.null_count():
        position = int(words.is_null().arg_max() or 0)
        raise DataError(f"input {name}: {column.name} is {column[position]}, beyond int64", "fix the row")
    return np.ascontiguousarray(words.to_numpy())


def check_column(column: pl.Series, kind: Type, where: str) -> None:
    """Raises DataError, naming ``where``, for a column whose values the type does not hold exactly."""
    if column.dtype == pl.Null() or (kind.name == "int64" and column.dtype == _INT64):
        return
    column_type = type_of(column.dtype, f"{where}: column {column.name}")
    if not _is_alike(column_type, kind):
        raise DataError(f"{where}: column {column.name} is {column.dtype}, not {kind}", "cast it first")
    if column.dtype == pl.Datetime and getattr(column.dtype, "time_unit", "") == "ns":
        finer = column.drop_nulls().filter(column.drop_nulls().to_physical() % 1000 != 0)
        if len(finer):
            raise DataError(
                f"{where}: column {column.name} has {finer[0]}, finer than the microseconds of a timestamp",
                "truncate it first, for example with dt.truncate",
            )

    if column.dtype == pl.Datetime and getattr(column.dtype, "time_unit", "") == "ms":
        ticks = column.to_physical().drop_nulls()
        beyond = ticks.filter((ticks < -_MOST_MILLISECONDS) | (ticks > _MOST_MILLISECONDS))
        if len(beyond):
            raise DataError(
                f"{where}: column {column.name} has {beyond[0]} milliseconds from 1970-01-01, beyond what "
                "microseconds in 64 bits hold",
                "fix the row",
            )


def _is_alike(actual: Type, kind: Type) -> bool:
    """Whether the types are the same but for the digits of decimals before the point."""
    if actual.element is not None and kind.element is not None:
        return _is_alike(actual.element, kind.element)
    if actual.name == kind.name == "struct":
        fields = dict(actual.fields)
        return len(fields) == len(kind.fields) and all(
            name in fields and _is_alike(fields[name], inner) for name, inner in kind.fields
        )
    if kind.name == "map" and actual.name == "map":
        pairs = zip(actual.fields, kind.fields, strict=True)
        return all(_is_alike(one, other) for (_, one), (_, other) in pairs)
    if kind.name == "uuid":
        return actual.name in ("uuid", "string", "binary")
    return actual == kind or (actual.name == kind.name == "decimal" and actual.scale == kind.scale)


def output_frame(batches: Sequence[Batch], schema: Schema, dims: Sequence[str], budget: Budget = ALONE) -> pl.DataFrame:
    """Consolidated output updates as a frame, sorted by time and row."""
    nothing = np.empty(0, dtype=np.int64)
    batch = concatenate(batches) if batches else Batch([nothing] * len(schema), [nothing] * len(dims), nothing)
    if any(kind.is_pooled for kind in schema.values()):
        return _frame(batch, schema, dims).sort([*dims, *schema])
    first, *rest = [*batch.times, *batch.words]  # words of fixed width have the order of their values
    ordered = arrange(first, rest, [], batch.diffs, budget=budget)
    columns = [ordered.codes, *ordered.words]
    return _frame(Batch(columns[len(dims) :], columns[: len(dims)], ordered.diffs), schema, dims)


def _frame(batch: Batch, schema: Schema, dims: Sequence[str]) -> pl.DataFrame:
    values = encoding.decode_columns(batch.words, schema)
    names, columns = [*dims, "diff"], [*batch.times, batch.diffs]
    times = [series_of_numbers(column).alias(name) for name, column in zip(names, columns, strict=True)]
    return pl.DataFrame([*values, *times])


def values_of(batch: Batch, schema: Schema, columns: Sequence[str]) -> pl.DataFrame:
    """Some columns of a batch as values. A frame without columns keeps its height through a private one."""
    positions = {name: number for number, name in enumerate(schema)}
    frame = pl.DataFrame([encoding.decode(batch.words[positions[name]], schema[name], name) for name in columns])
    return frame if columns else pl.DataFrame({"_row": np.arange(len(batch))})
