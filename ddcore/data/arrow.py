"""Arrow's arrays, and numpy's, as series of Polars.

``polars.from_arrow`` imports ``pyarrow.compute`` for any array of PyArrow's, which takes longer than all look-ups of a
small run, and ``polars.Series`` imports ``numpy.ma`` for any of numpy's. Taken in by Arrow's C interface an array is
the same series, and nothing is imported.
"""

from __future__ import annotations

import sys
from typing import Any

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import pyarrow as pa


class _Exported:
    """An array that shows its C interface only."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        """The capsules of the array's type and of the array."""
        return self._array.__arrow_c_array__(requested_schema)


class _ExportedChunks:
    """The same of an array in chunks."""

    def __init__(self, chunks: Any) -> None:
        self._chunks = chunks

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """The capsule of the stream of the chunks."""
        return self._chunks.__arrow_c_stream__(requested_schema)


def series_of(array: Any) -> pl.Series:
    """The series of an array of PyArrow's, in one piece or in chunks. No value is copied where Polars has the same
    form.
    """
    return pl.Series(_ExportedChunks(array) if hasattr(array, "chunks") else _Exported(array))


def series_of_numbers(values: np.ndarray) -> pl.Series:
    """The series of a copy of n numbers or flags of numpy's, without nulls and without a name.

    By its bytes where PyArrow is imported already (``pyarrow.array`` would import pandas). Where it is not, Polars' own
    way costs less: ``numpy.ma`` is a few MiB, PyArrow 25.
    """
    if "pyarrow" not in sys.modules:
        return pl.Series(values)
    flags = values.dtype.kind == "b"
    content = np.packbits(values, bitorder="little") if flags else values.copy()
    kind = pa.bool_() if flags else pa.from_numpy_dtype(values.dtype)
    return series_of(pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(content)]))
