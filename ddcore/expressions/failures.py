"""Failures of expressions: which errors Polars raises on values, the row that fails, and how messages tell both."""

from __future__ import annotations

import re
from decimal import Decimal

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import type_of
from ddcore.data import nested
from ddcore.expressions import temporal
from ddcore.expressions.stages import Staged

__all__ = ["FAILURES", "failing_row", "reason_of", "row_text", "select", "value_text"]

FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, TypeError, ArithmeticError)
"""What Polars raises where it cannot compute, or type, an expression."""
_COUNTED = re.compile(r" in column '.*' for \d+ out of \d+ values")


def failing_row(frame: pl.DataFrame, parts: list[Staged]) -> int | None:
    """A row that Polars cannot evaluate the expressions on by itself, by halving; None where every half can.

    Cost: that of evaluating two more frames of this size.
    """
    start, size = 0, len(frame)
    while size > 1:
        half = size // 2
        if _fails(frame[start : start + half], parts):
            size = half
        else:
            start, size = start + half, size - half
    return start if size and _fails(frame[start : start + 1], parts) else None


def _fails(frame: pl.DataFrame, parts: list[Staged]) -> bool:
    try:
        for part in parts:
            select(frame, part)
    except FAILURES:
        return True
    return False


def select(frame: pl.DataFrame, staged: Staged) -> pl.DataFrame:
    """The values of the expressions, as many as ``frame`` has rows, even where there is one value for all rows.

    That is so without columns, and may be with them: Polars finds out by itself that ``a > a`` is false.
    """
    values = staged.prepared(frame).select(staged.exprs)
    return values if values.height == frame.height else values[np.zeros(frame.height, dtype=np.int64)]


def row_text(frame: pl.DataFrame, row: int) -> str:
    """A row for a message, without the columns whose names begin with an underscore."""
    columns = [name for name in frame.columns if name[0] != "_"]
    return "in the row " + ", ".join(f"{name}={value_text(frame[name], row)}" for name in columns)


def value_text(column: pl.Series, row: int) -> str:
    """A value for a message: as Python writes it, cut at 40 characters; the number of a time beyond Python's years."""
    value = column[row : row + 1]
    if not _is_pythons(value):
        return str(value.to_physical().to_list()[0])
    only = value.to_list()[0]
    return repr(only) if isinstance(only, Decimal) else f"{only!r:.40}"


def _is_pythons(value: pl.Series) -> bool:
    """Whether Python has the dates and timestamps: it has the years 1 to 9999 (Polars panics on some others)."""
    if value.dtype in (pl.List, pl.Struct):
        return all(_is_pythons(part) for part, _ in nested.parts(value, type_of(value.dtype)))
    if not temporal.is_temporal(value.dtype):
        return True
    per_day = 1 if value.dtype == pl.Date() else 86_400_000_000
    days = value.to_physical().cast(pl.Int64) // per_day
    return bool(days.is_between(-719_000, 2_932_000).all())


def reason_of(failure: BaseException) -> str:
    """The first line of what Polars says, without what it says about the other rows of the batch."""
    return _COUNTED.sub("", str(failure).strip().partition("\n")[0])
