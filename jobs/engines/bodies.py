"""The bodies of messages: columns of updates as bytes, in the compressed form in which they wait in a worker.

Numbers go as they are: their words are the same in every process. Of pooled types (strings, lists) each distinct value
goes once, with a number for each row, because words of theirs are valid in one process only. The container is an Arrow
stream; reading one never runs code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.traces.columns import Columns, CompressedColumn

__all__ = ["columns_of", "packed"]


def packed(columns: Columns, kinds: Sequence[Type | None]) -> bytes:
    """Columns of words, of these types, then times and diffs, as one body. None: numbers that are no words."""
    arrays, bounds = [], []
    for place in range(columns.count):
        kind = kinds[place] if place < len(kinds) else None
        if kind is not None and kind.is_pooled:
            arrays.append(_dictionary(columns.column(place), kind))
            bounds.append((0, 0))
            continue
        column = columns.compressed(place)
        arrays.append(pa.nulls(column.rows) if column.distances is None else pa.array(column.distances))
        bounds.append((column.least, column.most))
    schema = pa.schema(
        [(str(number), array.type) for number, array in enumerate(arrays)], {"bounds": json.dumps(bounds)}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    body: bytes = sink.getvalue().to_pybytes()
    return body


def columns_of(body: bytes, kinds: Sequence[Type | None]) -> list[CompressedColumn]:
    """The columns of a body that :func:`packed` made."""
    with pa.ipc.open_stream(body) as stream:
        batch, bounds = stream.read_next_batch(), json.loads(stream.schema.metadata[b"bounds"])
    columns = []
    for number, (array, (least, most)) in enumerate(zip(batch.columns, bounds, strict=True)):
        kind = kinds[number] if number < len(kinds) else None
        if kind is not None and kind.is_pooled:
            columns.append(CompressedColumn.of(_words(array, kind)))
        elif pa.types.is_null(array.type):
            columns.append(CompressedColumn(least, most, None, len(array)))
        else:
            distances = array.to_numpy()
            # Columns of full width go to kernels as they are, and kernels take no read-only arrays.
            columns.append(
                CompressedColumn(
                    least, most, distances.copy() if distances.dtype == np.int64 else distances, len(array)
                )
            )
    return columns


def _dictionary(words: np.ndarray, kind: Type) -> Any:
    distinct, numbers = np.unique(words, return_inverse=True)
    values = encoding.decode(distinct, kind).to_arrow()
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), values, safe=False)


def _words(array: Any, kind: Type) -> np.ndarray:
    values = pl.from_arrow(array.dictionary)
    assert isinstance(values, pl.Series)
    words: np.ndarray = encoding.encode(values, kind)[array.indices.to_numpy()]
    return words
