"""The values of pooled types (strings, lists) on their way to another worker, whose words for them are others.

Each distinct value of a part goes once, with a number for each row. Looking values up costs more by the call than by
the value, so those of several parts are looked up together, here and where they arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.data import encoding
from ddcore.data.arrow import series_of
from ddcore.traces.columns import CompressedColumn

_SIZE = 4  # bytes of the number of texts, and of the length of each


def numbered(words: np.ndarray) -> tuple[np.ndarray, CompressedColumn]:
    """The distinct words, ascending, without null; and of each row the number of its word from 1 on, 0 for null."""
    present = words != encoding.NULL
    some = words if present.all() else words[present]
    numbers = np.zeros(len(words), dtype=np.int64)
    if not len(some):
        return some, CompressedColumn.of(numbers)
    least, most = int(some.min()), int(some.max())
    if most - least < 4 * len(some):  # ids are dense: without a sort
        used = np.zeros(most - least + 1, dtype=bool)
        used[some - least] = True
        distinct, numbers[present] = np.flatnonzero(used) + least, np.cumsum(used)[some - least]
    else:
        distinct, positions = np.unique(some, return_inverse=True)
        numbers[present] = positions + 1
    return distinct, CompressedColumn.of(numbers)


def packed(several: Sequence[np.ndarray], kind: Type) -> Iterator[memoryview]:
    """The bytes of values, which are given as words; all are looked up at once."""
    array = encoding.decode(np.concatenate(several), kind).to_arrow()
    ends = np.cumsum([0, *map(len, several)]).tolist()
    for start, stop in pairwise(ends):
        some = array.slice(start, stop - start)
        yield _packed_texts(some) if kind.name == "string" else _stream(some)


def unpacked(pieces: Sequence[memoryview], kind: Type) -> list[np.ndarray]:
    """The words of values by their numbers: 0 is null. All get theirs at once.

    Raises ValueError or Arrow's errors for bytes that are none of :func:`packed`.
    """
    if kind.name == "string":
        array, counts = _texts(pieces)
    else:
        arrays = [*map(_streamed, pieces)]
        array, counts = pa.concat_arrays(arrays), [*map(len, arrays)]
    words, null = encoding.encode(series_of(array), kind), np.array([encoding.NULL])
    ends = np.cumsum([0, *counts]).tolist()
    return [np.concatenate([null, words[start:stop]]) for start, stop in pairwise(ends)]


def _packed_texts(texts: pa.Array) -> memoryview:
    """Their number, the length of each, and their bytes."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.array([len(texts), *np.diff(ends).tolist()], dtype=np.uint32)
    text = memoryview(data or b"")[ends[0] : ends[-1]]
    return memoryview(b"".join([lengths.tobytes(), text]))


def _texts(pieces: Sequence[memoryview]) -> tuple[pa.Array, list[int]]:
    """The texts of several parts as one array, and how many there are in each."""
    lengths, data = list[np.ndarray](), list[memoryview]()
    for piece in pieces:
        count = int(np.frombuffer(piece, np.uint32, 1)[0])
        lengths.append(np.frombuffer(piece, np.uint32, count, _SIZE))
        data.append(piece[_SIZE * (1 + count) :])
        if lengths[-1].sum(dtype=np.int64) != len(data[-1]):
            raise ValueError(f"{len(data[-1])} bytes of texts that have other lengths")
    ends = np.cumsum(np.concatenate([np.zeros(1, np.uint32), *lengths]), dtype=np.int64)
    array = pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(b"".join(data)))
    array.validate(full=True)
    return array, [*map(len, lengths)]


def _stream(values: pa.Array) -> memoryview:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([values], ["values"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(sink.getvalue())


def _streamed(values: memoryview) -> pa.Array:
    with pa.ipc.open_stream(pa.py_buffer(values)) as stream:
        return stream.read_next_batch().column(0)
