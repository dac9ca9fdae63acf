"""Calls of a user's function on a frame, and the check of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from ddcore.errors import DdError, ExpressionError
from ddcore.schema import Schema

__all__ = ["Frames", "call"]

Frames = Callable[[pl.DataFrame], pl.DataFrame]


def call(function: Any, frame: pl.DataFrame, schema: Schema, handle: str, place: str) -> pl.DataFrame:
    """Call a user's function on a frame and check what it returns: ``handle``, the declared columns, perhaps ``count``.

    Returns handle, columns in order, and the count of a group's rows where there is one. Raises ExpressionError naming
    the place in the program.
    """
    try:
        made = function(frame)
        if not isinstance(made, pl.DataFrame):
            raise ExpressionError(f"{place}: the function returned {type(made).__name__}, not a polars DataFrame")
        missing = [name for name in (handle, *schema) if name not in made.columns]
        if missing:
            raise ExpressionError(
                f"{place}: the function returned no column {missing[0]}, only {', '.join(made.columns)}"
            )
        given = handle == "group" and "count" in made.columns  # of a flat_map it is a column like any other
        counts = [pl.col("count").cast(pl.Int64)] if given else []
        casts = [pl.col(name).cast(kind.polars) for name, kind in schema.items()]
        made = made.select(pl.col(handle).cast(pl.Int64), *casts, *counts)
    except DdError:
        raise
    except Exception as error:  # whatever a user's function raises is the user's to see
        raise ExpressionError(
            f"{place}: the function failed: {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error
    handles = made[handle]
    if len(made) and (handles.null_count() or not handles.is_in(frame[handle].unique().implode()).all()):
        raise ExpressionError(f"{place}: the function returned a {handle} it was not given")
    if given and made["count"].null_count():
        raise ExpressionError(f"{place}: the function returned a null count")
    return made
