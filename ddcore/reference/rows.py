"""Rows and their counts: what counts as equal, how values are ordered, which counts are allowed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
import polars.selectors as cs

from ddcore.base.errors import DiffOverflow, NegativeMultiplicity

Row = tuple[Any, ...]


Rows = Counter[Row]


NAN = float("nan")
"""The only NaN a row may hold. Python finds an object equal to itself in tuples and dicts, NaN included."""


def order_of(value: Any) -> tuple[bool, Any]:
    """A sort key under which NaN is greater than every number, and null inside a list or struct less than anything."""
    if isinstance(value, tuple):
        return (False, tuple((element is not None, 0 if element is None else order_of(element)) for element in value))
    return (True, 0) if value is NAN else (False, value)


def lies_in(value: Any, lower: Sequence[Any], upper: Sequence[Any], closed: str, open_nulls: bool) -> bool:
    """Whether a value lies in the interval with these ends, each a sequence of one value, or of none if it has none."""
    if value is None or (None in (*lower, *upper) and not open_nulls):
        return False
    begun = all(
        end is None
        or order_of(end) < order_of(value)
        or (order_of(end) == order_of(value) and closed in ("both", "left"))
        for end in lower
    )
    lasting = all(
        end is None
        or order_of(value) < order_of(end)
        or (order_of(end) == order_of(value) and closed in ("both", "right"))
        for end in upper
    )
    return begun and lasting


def row_order(row: Row) -> list[Any]:
    """A sort key of rows: column by column, null before every value."""
    return [(value is not None, value is not None and order_of(value)) for value in row]


def canonical(row: Iterable[Any]) -> Row:
    """Values that count as equal made equal in Python: one NaN, and 0.0 for -0.0. Null (None) equals itself.

    A list becomes the tuple of its elements, a struct the tuple of its fields: the column's type says which it is.
    """
    return tuple(map(_canonical_value, row))


def _canonical_value(value: Any) -> Any:
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return canonical(value.values())
    return canonical(value) if isinstance(value, list | tuple) else value


def python_value(value: Any, dtype: Any) -> Any:
    """A canonical value as Polars takes it: lists as lists, structs as dicts, maps as lists of their entries."""
    if isinstance(dtype, pl.List) and value is not None:
        return [python_value(element, dtype.inner) for element in value]
    if isinstance(dtype, pl.Map) and value is not None:
        kinds = (dtype.key, dtype.value)
        return [dict(zip(("key", "value"), map(python_value, entry, kinds), strict=True)) for entry in value]
    if isinstance(dtype, pl.Struct) and value is not None:
        return {
            field.name: python_value(element, field.dtype) for field, element in zip(dtype.fields, value, strict=True)
        }
    return value


def rows_of(frame: pl.DataFrame) -> list[Row]:
    """The rows of a frame in Python: a map is the list of its entries in the order of keys, unsigned numbers of 64 bits
    are decimals.
    """
    maps = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Map)]
    listed = {name: frame[name].cast(_listed(frame.schema[name])).list.sort() for name in maps}
    return frame.with_columns(cs.by_dtype(pl.UInt64).cast(pl.Decimal(20, 0)), **listed).rows()


def _listed(dtype: Any) -> pl.DataType:
    """The type of the entries of a map."""
    return pl.List(pl.Struct({"key": dtype.key, "value": dtype.value}))


def nonzero(counts: Iterable[tuple[Row, int]]) -> Rows:
    """The rows that are there. Raises DiffOverflow where a count is larger than the engine can hold."""
    rows = Counter({row: count for row, count in counts if count})
    if any(abs(count) >= 2**127 for count in rows.values()):
        raise DiffOverflow("a count has more than 128 bits")
    return rows


def require_int64(number: int) -> int:
    """The number. Raises DiffOverflow where it is no int64."""
    if not -(2**63) <= number < 2**63:
        raise DiffOverflow(f"{number} is not an int64")
    return number


def require_value(number: int, most: int = 2**63 - 1) -> int:
    """The number, if it is a value of its type; -2**63 is none, because it stands for null."""
    if abs(number) > most:
        raise DiffOverflow(f"{number} is more than {most}")
    return number


def require_no_negative(op: str, key: Row, members: Iterable[tuple[Row, int]]) -> None:
    """Raises NegativeMultiplicity for the first member whose count is negative."""
    for _, count in members:
        if count < 0:
            raise NegativeMultiplicity(op, key, (), count)
