"""Calls of a user's function on a frame, and the check of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from ddcore.casts import InexactCast, exact_cast
from ddcore.errors import DdError, ExpressionError, is_interrupt
from ddcore.functions import name_of
from ddcore.schema import Schema, Type
from ddcore.wording import described, line_of

__all__ = ["Frames", "call"]

Frames = Callable[[pl.DataFrame], pl.DataFrame]

_WHOLE = Type("int64")


def call(function: Any, frame: pl.DataFrame, schema: Schema, handle: str, place: str) -> pl.DataFrame:
    """Call a user's function on a frame and check what it returns: ``handle``, the declared columns, perhaps ``count``.

    Returns handle, columns in order, and the count of a group's rows where there is one. Values become the declared
    types only where that loses nothing. Raises ExpressionError naming the place in the program, the function, the
    column and the value.
    """
    where = f"{place}: the function {name_of(function)}"
    try:
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
