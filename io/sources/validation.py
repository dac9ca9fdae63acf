"""Validation of batches: the first value that its column's type does not allow, with its row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.base.errors import DataError
from ddcore.text.redaction import masked

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["validate"]


def validate(name: str, batch: pa.RecordBatch | pa.Table, first_row: int | None = None) -> None:
    """Raise DataError for the first value that its column's type does not allow: bytes that are not UTF-8, ...

    ``name`` is the source, ``first_row`` the number of the batch's first row in it, where that is known. One pass over
    each column of variable width, none over plain numbers.
    """
    import pyarrow as pa

    try:
        batch.validate(full=True)
    except pa.ArrowException:
        for column in batch.schema.names:
            _validate_column(name, column, batch.column(column), first_row)
        raise


def _validate_column(name: str, column: str, values: pa.Array | pa.ChunkedArray, first_row: int | None) -> None:
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowException as error:
        place = _first_invalid(values)
        row = "" if first_row is None else f" (row {first_row + place})"
        what = (masked(str(error)).strip().splitlines() or [type(error).__name__])[0][:200]
        raise DataError(
            f"{name}: column {column!r}: a value that is no {values.type}: {what}{row}",
            "write the file again at its origin, with values that its types allow",
        ) from error


def _first_invalid(values: pa.Array | pa.ChunkedArray) -> int:
    """The index of the first value that makes an array invalid: binary search over slices, O(n) validation."""
    import pyarrow as pa

    low, high = 0, len(values)  # values[:low] is valid, values[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            values.slice(low, middle - low).validate(full=True)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low
