"""Validation of batches: the first value that its column's type does not allow, with its row."""

from __future__ import annotations

from collections.abc import Callable

from ddcore.base.errors import DataError
from ddcore.base.lazy import pyarrow as pa
from ddcore.text.redaction import masked


def validate(name: str, batch: pa.RecordBatch | pa.Table, first_row: int | None = None) -> None:
    """Raise DataError for the first value that its column's type does not allow: bytes that are not UTF-8, ...

    ``name`` is the source, ``first_row`` the number of the batch's first row in it, where that is known. One pass over
    each column of variable width, none over plain numbers.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowException:
        for column in batch.schema.names:
            _validate_column(name, column, batch.column(column), first_row)
        raise


def _error_in(values: pa.Array | pa.ChunkedArray) -> Exception | None:
    error: Exception | None = None
    try:
        values.validate(full=True)
    except pa.ArrowException as found:
        error = found
    return error


def _validate_column(name: str, column: str, values: pa.Array | pa.ChunkedArray, first_row: int | None) -> None:
    if (error := _error_in(values)) is not None:
        bad = first_bad(len(values), lambda low, high: _error_in(values.slice(low, high - low)) is None)
        row = "" if first_row is None else f" (row {first_row + bad})"
        what = (masked(str(error)).strip().splitlines() or [type(error).__name__])[0][:200]
        raise DataError(
            f"{name}: column {column!r}: a value that is no {values.type}: {what}{row}",
            "write the file again at its origin, with values that its types allow",
        ) from error


def first_bad(number: int, is_fine: Callable[[int, int], bool]) -> int:
    """The place of the first of so many things that is bad, by halves; one of them is. ``is_fine`` tells whether those
    from one place up to another are fine.
    """
    low, high = 0, number  # those before low are fine, those before high are not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_fine(low, middle) else (low, middle)
    return low
