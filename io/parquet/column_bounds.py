"""Bounds of a column in the form of Delta's log: JSON text that every reader reads alike.

Bounds may be loose but never wrong: strings are cut to 32 characters and the upper bound is raised, timestamps are
rounded outwards to milliseconds. Values without a JSON form get no bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ddcore.base.lazy import pyarrow as pa
from ddcore.base.schema import WORD_DIGITS

_LONGEST = 32
_FEW = 1024  # values that are compared one by one
_LAST_CHARACTER = "\U0010ffff"
_MILLISECOND = timedelta(milliseconds=1)


def json_object(members: Mapping[str, str]) -> str:
    """A JSON object of members that are JSON text already, so that decimals keep every digit."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"


def bounds(column: pa.ChunkedArray) -> tuple[str, str] | None:
    """The least and the greatest value of a column as JSON text, or None. O(n), vectorised."""
    if pa.types.is_boolean(column.type) or _is_bytes(column.type) or column.null_count == len(column):
        return None
    if (
        pa.types.is_decimal(column.type) and column.type.precision > WORD_DIGITS
    ):  # readers take JSON's numbers as floats
        return None
    try:
        pair = _ends(column)
        return None if pair is None else (_text(pair[0], upper=False), _text(pair[1], upper=True))
    except (OverflowError, ValueError):  # years beyond Python's dates; infinities; a string without a greater prefix
        return None


def _ends(column: pa.ChunkedArray, few: int = _FEW) -> tuple[Any, Any] | None:
    """The least and the greatest value, of ``few`` one by one, without Polars: the ledger has no more; None with NaN:
    here it is above all numbers, other readers order it otherwise.
    """
    if len(column) <= few and not pa.types.is_floating(column.type):
        values = [value for value in column.to_pylist() if value is not None]
        return min(values), max(values)
    from ddcore.data.arrow import series_of  # it imports Polars

    series = series_of(column)
    if series.dtype.is_float() and series.is_nan().any():
        return None
    return series.min(), series.max()


def _is_bytes(kind: pa.DataType) -> bool:
    kinds = pa.types
    is_variable = kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind)
    return bool(is_variable or kinds.is_fixed_size_binary(kind))


def _text(value: Any, *, upper: bool) -> str:
    if isinstance(value, str):
        return json.dumps(_cut(value, upper))
    if isinstance(value, datetime):
        return json.dumps(_milliseconds(value, upper))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    if hasattr(value, "isoformat"):
        return json.dumps(value.isoformat())
    return repr(value) if isinstance(value, int | float) else format(value, "f")


def _cut(text: str, upper: bool) -> str:
    if len(text) <= _LONGEST:
        return text
    head, rest = text[:_LONGEST], text[_LONGEST:]
    if upper and rest.startswith(_LAST_CHARACTER):
        raise ValueError(text)
    return head + _LAST_CHARACTER if upper else head


def _milliseconds(moment: datetime, upper: bool) -> str:
    moment = moment.astimezone(UTC)
    down = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    rounded = down + _MILLISECOND if upper and down != moment else down
    return rounded.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
