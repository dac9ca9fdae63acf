"""Decimals as whole numbers of 128 bits: an array (n, 2) of int64, the lower half and the upper one.

The number is that without its point. Nothing is computed here, so nothing is rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.base.lazy import numpy as np
from ddcore.data.arrow import series_of

if TYPE_CHECKING:
    import polars as pl

    from ddcore.base.schema import Type

_BYTES = 16


def halves(series: pl.Series) -> np.ndarray:
    """The halves of a series of decimals without nulls: int64 (n, 2)."""
    import pyarrow as pa

    array = series.rechunk().to_arrow()
    assert pa.types.is_decimal128(array.type), array.type
    words = np.frombuffer(array.buffers()[1] or b"", np.int64)
    return words.reshape(-1, 2)[array.offset : array.offset + len(array)]


def halves_of_words(unscaled: np.ndarray) -> np.ndarray:
    """The halves of whole numbers of 64 bits."""
    both = np.empty((len(unscaled), 2), dtype=np.int64)
    both[:, 0], both[:, 1] = unscaled, unscaled >> 63
    return both


def decimals(both: np.ndarray, kind: Type) -> pl.Series:
    """Decimals of a type from their halves, by Arrow's form of them."""
    import pyarrow as pa

    buffers = [None, pa.py_buffer(np.ascontiguousarray(both))]
    return series_of(pa.Array.from_buffers(kind.arrow, len(both), buffers))


def width(kind: Type) -> int:
    """The bytes of a decimal of this type in Parquet: as few as hold all its digits and a sign."""
    return int(((10**kind.precision - 1).bit_length() + 8) // 8)


def big_endian(both: np.ndarray, size: int) -> np.ndarray:
    """Numbers in so many bytes each, the highest first, as Parquet has them: uint8[n * size]."""
    upside_down = np.ascontiguousarray(both[:, ::-1], dtype=">i8").view(np.uint8).reshape(-1, _BYTES)
    return np.ascontiguousarray(upside_down[:, _BYTES - size :]).ravel()


def from_big_endian(content: np.ndarray, size: int) -> np.ndarray:
    """The halves of the numbers of :func:`big_endian`: int64 (n, 2)."""
    given = content.reshape(-1, size)
    whole = np.empty((len(given), _BYTES), dtype=np.uint8)
    whole[:, _BYTES - size :] = given
    whole[:, : _BYTES - size] = np.where(given[:, :1] >= 128, 255, 0)  # the sign
    return whole.view(">i8").reshape(-1, 2)[:, ::-1].astype(np.int64)
