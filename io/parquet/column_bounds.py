"""Bounds of a column in the form of Delta's log: JSON text that every reader reads alike.

Bounds may be loose but never wrong: strings are cut to 32 characters and the upper bound is raised, timestamps are
rounded outwards to milliseconds. Values without a JSON form get no bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import WORD_DIGITS

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST = 32
_FEW = 1024  # values that are compared one by one
_LAST_CHARACTER = "\U0010ffff"
_MILLISECOND = timedelta(milliseconds=1)


def json_object(members: Mapping[str, str]) -> str:
    """A JSON object of members that are JSON text already, so that decimals keep every digit."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"


def bounds(column: pa.ChunkedArray) -> tuple[str, str] | None:
    """The least and the greatest value of a column as JSON text, or None. O(n), vectorised."""
    import pyarrow as pa

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
    """The least and the greatest value, of ``few`` one by one; None with NaN: here it is above all numbers, other
    readers order it otherwise.

    Most columns do without Arrow's functions, whose import takes longer than they do.
    """
    import pyarrow as pa

    kind = column.type
    plain = np.int64 if pa.types.is_int64(kind) else np.float64 if pa.types.is_float64(kind) else None
    if plain is not None and column.null_count == 0:
        chunks = [np.frombuffer(c.buffers()[1], plain, len(c), 8 * c.offset) for c in column.chunks if len(c)]
        least, greatest = min(chunk.min() for chunk in chunks), max(chunk.max() for chunk in chunks)
        return None if any(np.isnan(chunk.min()) for chunk in chunks) else (least.item(), greatest.item())
    if len(column) <= few and not pa.types.is_floating(kind):
        values = [value for value in column.to_pylist() if value is not None]
        return min(values), max(values)
    if pa.types.is_string_view(kind) and all(
        len(chunk.buffers()) <= 3 and not chunk.null_count for chunk in column.chunks
    ):
        texts = [text for chunk in column.chunks if len(chunk) for text in _text_ends(chunk)]
        return min(texts), max(texts)
    import pyarrow.compute as pc

    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        return None
    pair = pc.min_max(column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column).as_py()
    return pair["min"], pair["max"]


def _text_ends(texts: pa.Array) -> tuple[str, str]:
    """The least and the greatest of texts whose views need one buffer at most: Arrow has no function for these."""
    from ddcore.kernels import text_views

    _, places, *buffers = texts.buffers()
    views = np.frombuffer(places, np.uint64, 2 * len(texts), 16 * texts.offset).reshape(-1, 2)
    least, greatest = text_views.ends(views, np.frombuffer(buffers[0] if buffers else b"", np.uint8))
    return texts[least].as_py(), texts[greatest].as_py()


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

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
