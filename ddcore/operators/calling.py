"""Calls of a user's function on a frame, and the check of what it returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import Any

import polars as pl

from ddcore.base.errors import DdError, ExpressionError, is_interrupt
from ddcore.base.schema import Schema, Type
from ddcore.data import encoding
from ddcore.data.casts import InexactCast, exact_cast
from ddcore.operators.function_fingerprint import name_of
from ddcore.text.wording import described, line_of

Frames = Callable[[pl.DataFrame], pl.DataFrame]

_WHOLE = Type("int64")
_one_at_a_time = RLock()  # a user's function may not be made for several threads
_MOST_SHOWN = 200  # characters of a result in a message


def checks_functions() -> bool:
    """Whether functions are called twice and their results compared: ``DDCORE_CHECK_FUNCTIONS`` is set.

    Operators read it when a program is built, so that it also holds in processes that do not have the variable.
    """
    return os.environ.get("DDCORE_CHECK_FUNCTIONS", "0") not in ("", "0")


def call(function: Any, frame: pl.DataFrame, schema: Schema, handle: str, source_line: str) -> pl.DataFrame:
    """Call a user's function on a frame and check what it returns: ``handle``, the declared columns, perhaps ``count``.

    Returns handle, columns in order, and the count of a group's rows where there is one. Values become the declared
    types only where that loses nothing. Raises ExpressionError naming the place in the program, the function, the
    column and the value.
    """
    where = f"{source_line}: the function {name_of(function)}"
    try:
        with _one_at_a_time:
            returned = function(frame)
    except DdError:
        raise
    except BaseException as error:  # report whatever a user's function raises, SystemExit included
        if is_interrupt(error):
            raise
        raise ExpressionError(
            f"{where} failed at {line_of(error)}: {described(error)}", "fix the function, then run again"
        ) from error
    if not isinstance(returned, pl.DataFrame):
        raise ExpressionError(f"{where} returned {type(returned).__name__}, not a polars DataFrame")
    missing = [name for name in (handle, *schema) if name not in returned.columns]
    if missing:
        raise ExpressionError(f"{where} returned no column {missing[0]}, only {', '.join(returned.columns)}")
    columns = [_exactly(returned[name], kind, where) for name, kind in {handle: _WHOLE, **schema}.items()]
    if handle == "group" and "count" in returned.columns:  # of a flat_map it is a column like any other
        columns.append(_exactly(returned["count"], _WHOLE, where, reserved=False))
        if columns[-1].null_count():
            raise ExpressionError(f"{where} returned a null count")
    handles = columns[0]
    if len(handles) and (handles.null_count() or not handles.is_in(frame[handle].unique().implode()).all()):
        raise ExpressionError(f"{where} returned a {handle} it was not given")
    return pl.DataFrame(columns)


def _exactly(column: pl.Series, kind: Type, where: str, *, reserved: bool = True) -> pl.Series:
    try:
        return exact_cast(column, kind, reserved=reserved)
    except InexactCast as error:
        raise ExpressionError(
            f"{where} returned a column that does not fit: {column.name}{error.path} {error}",
            "round or cast it in the function, or declare another type in schema=",
        ) from None


def call_checked(
    function: Any,
    frame: pl.DataFrame,
    schema: Schema,
    handle: str,
    source_line: str,
    *,
    twice: bool,
    operator: str,
    shown: Callable[[int], str],
) -> pl.DataFrame:
    """:func:`call`; or ``twice``: then it raises ExpressionError also if the two results differ in more than the order
    of rows.

    ``shown``: what a message has for a value of ``handle``. Cost: of two calls also a sort of their results.
    """
    if not twice:
        return call(function, frame, schema, handle, source_line)
    first = call(function, frame.clone(), schema, handle, source_line)
    second = call(function, frame.clone(), schema, handle, source_line)
    number = _least_difference(first, second, schema, handle)
    if number is None:
        return first
    results = [_shown(result.filter(pl.col(handle) == number).drop(handle)) for result in (first, second)]
    raise ExpressionError(
        f"{source_line}: {operator}: the function {name_of(function)} gives different results for equal input: for"
        f" {shown(number)} it returned {results[0]}, then {results[1]}",
        "compute the result from the frame alone: no clock, no random numbers, no order of a set, nothing kept",
    )


def _least_difference(first: pl.DataFrame, second: pl.DataFrame, schema: Schema, handle: str) -> int | None:
    """The least value of ``handle`` for which the rows, each with its count, are not the same; None if they all are."""
    both = pl.concat([_counted(first, schema, handle, 1), _counted(second, schema, handle, -1)])
    differences = both.group_by(pl.exclude("count")).agg(pl.col("count").sum()).filter(pl.col("count") != 0)
    least: int | None = differences["handle"].min()  # type: ignore[assignment]
    return least


def _counted(result: pl.DataFrame, schema: Schema, handle: str, sign: int) -> pl.DataFrame:
    """Rows as words, in which equal values are equal (NaN too), with counts of this sign."""
    words = {f"word {number}": column for number, column in enumerate(encoding.encode_frame(result, schema))}
    counts = (
        result["count"] if handle == "group" and "count" in result.columns else pl.repeat(1, len(result), eager=True)
    )
    rows = pl.DataFrame({"handle": result[handle], **words, "count": counts})
    return rows.with_columns(pl.col("count").cast(pl.Int128) * sign)


def _shown(rows: pl.DataFrame) -> str:
    text = ", ".join(map(str, sorted(rows.rows(), key=repr)[:20])) or "no row"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
