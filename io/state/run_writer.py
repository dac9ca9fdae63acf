"""Files of state, written: a sorted run of updates as Parquet in which a look-up finds its rows where they lie.

What a look-up needs beside Parquet's pages lies between these and the footer, where no other reader looks: the first
code of every 256 rows, where the entries of dictionaries begin, how many nulls come before a row, the values of lists
and structs in small pieces, and the digests of all blocks. A note in the footer (JSON) says where each of these is.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import pyarrow as pa
from ddcore.base.record import record
from ddcore.base.schema import Type
from ddcore.base.tuning import DEFAULT
from ddcore.data import wide
from ddcore.data.encoding import NULL, decode, floats_of, halves_of_ids, pool_of
from ddcore.io.delta import new_files
from ddcore.io.parquet import pages
from ddcore.io.parquet.checked import BLOCK, write_digests
from ddcore.io.parquet.datafile import RUN, digest_of
from ddcore.io.parquet.pages import MAGIC, Chunk, Output
from ddcore.io.state.layout import CODE, Layout
from ddcore.io.storage import store
from ddcore.kernels.blocks import copy_texts
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch

PAGE = BLOCK // 8  # rows of which the first code is in the index
TOP = 64  # pages of which the first code is in the footer
WORD = 64  # rows of which one word says which are null
PIECE = 256  # lists or structs that are decoded together
_SMALL = 1024  # rows of a file that is put together in memory, and written at once
_FEWEST = 64  # rows for which a dictionary of numbers may pay
_MOST = 1 << 16  # entries of a dictionary of numbers
_LONGEST = 1 << 30  # bytes of the texts in a row group


@record
class Written:
    """A file that was written: its bytes, the digest for its name, its rows, its least and its greatest code."""

    size: int
    digest: str
    rows: int
    least: int
    greatest: int


class _TooLong(Exception):
    """The texts of a row group have more bytes than a page may have."""


def write(
    batches: Iterable[SortedBatch], layout: Layout, path: Path, *, narrow: Collection[str] = (), synced: bool = True,
    group: int = DEFAULT.run_group_rows, longest: int = _LONGEST,
) -> Written:  # fmt: skip
    """Write a run, which comes in one or more batches, to a new file and sync it to the disk. ``synced``: False where
    the caller syncs it. ``narrow``: columns of int64 whose values all fit into 32 bits. ``group``: rows of a row
    group; ``longest``: bytes of its texts. Memory: a few columns of a row group. Equal batches give the same bytes.
    """
    is_small = isinstance(batches, list) and sum(map(len, batches)) <= _SMALL
    with path.open("wb") as file:
        content = io.BytesIO() if is_small else file
        writer = _Writer(content, path, layout, narrow, longest)
        for batch in batches:
            for start in range(0, len(batch), group):
                writer.add(batch.part(start, min(start + group, len(batch))))
        written = writer.finish()
        if isinstance(content, io.BytesIO):
            file.write(content.getbuffer())
    if synced:
        store.sync(path)
    return written


class _Writer:
    """A file that is being written, row group by row group."""

    def __init__(self, file: BinaryIO, path: Path, layout: Layout, narrow: Collection[str], longest: int) -> None:
        self._longest = longest
        self._columns = {name: pages.INT32 if name in narrow else kind for name, kind in layout.columns.items()}
        self._file, self._path, self._layout, self._out = file, path, layout, Output(file)
        self._groups: list[tuple[int, dict[tuple[str, ...], Chunk]]] = []
        self._locations: dict[str, list[dict[str, Any]]] = {name: [] for name in layout.columns}
        self._firsts: list[np.ndarray] = []
        self._ends: list[int] = []
        self._out.write(MAGIC)

    def add(self, batch: SortedBatch) -> None:
        """Write some rows as a row group; several, where their texts are very long."""
        try:
            self._add(batch.decompress())
        except _TooLong:
            half = len(batch) // 2
            self.add(batch.part(0, half))
            self.add(batch.part(half, len(batch)))

    def _add(self, batch: ColumnBatch) -> None:
        layout, chunks, locations = self._layout, dict[tuple[str, ...], Chunk](), dict[str, dict[str, Any]]()
        codes = np.ascontiguousarray(batch.codes)
        align = BLOCK if len(codes) >= TOP * PAGE // 2 else 8
        chunk = pages.shared(self._out, codes, align=align)
        twin: Chunk | None = chunk.again  # of one column whose values are the codes
        chunks[CODE,], locations[CODE] = chunk, {"at": chunk.values}
        words = dict(zip(layout.stored, batch.words, strict=True)) | dict(zip(layout.times, batch.times, strict=True))
        if layout.direct:
            words[layout.key[0]] = codes
        nested = {name: kind for name, kind in layout.schema.items() if kind.is_nested}
        for name, kind in self._columns.items():
            if name in nested or name == CODE:
                continue
            column = np.ascontiguousarray(batch.diffs if name == "diff" else words[name])
            if twin and pages.physical(kind) == "i8" and codes[0] != NULL and np.array_equal(column, codes):
                chunks[name,], locations[name], twin = (
                    twin,
                    locations[CODE],
                    None,
                )  # a key that is its own code: the same bytes
            else:
                chunks[name,], locations[name] = self._column(column, kind)
        if nested:
            locations |= {name: self._pieces(words[name], kind) for name, kind in nested.items()}
            columns = {name: decode(words[name], kind, name).to_arrow() for name, kind in nested.items()}
            chunks |= pages.copied(self._out, new_files.arrow_table(columns, nested))
        self._groups.append((len(codes), chunks))
        for name, location in locations.items():
            self._locations[name].append(location)
        self._firsts.append(codes[::PAGE].copy())
        self._ends += [int(codes[0]), int(codes[-1])]

    def _column(self, words: np.ndarray, kind: Type) -> tuple[Chunk, dict[str, Any]]:
        """Write a column of words; its chunk, and where a look-up finds it."""
        valid = words != NULL
        if valid.all():
            present, valid = words, None
        else:
            present = words[valid]
        if kind.is_pooled:
            chunk, location = self._texts(present, valid, kind)
        else:
            chunk, location = self._numbers(present, valid, kind)
        if len(present) == 0:
            return chunk, {"is": NULL}
        if valid is not None:
            before = np.cumsum(np.add.reduceat(valid, np.arange(0, len(valid), WORD), dtype=np.int64))
            location |= {"valid": chunk.valid, "before": self._put(np.concatenate([[0], before[:-1]]).astype(np.int32))}
        return chunk, location

    def _numbers(self, present: np.ndarray, valid: np.ndarray | None, kind: Type) -> tuple[Chunk, dict[str, Any]]:
        ids = entries = None
        if kind.name != "bool" and len(present):
            ids, entries = _few(present, np.dtype(pages.physical(kind)).itemsize)
        plain = _physical(present if entries is None else entries, kind)
        if entries is None or ids is None:
            chunk = pages.numbers(self._out, plain, valid, None)
            return chunk, {"at": chunk.values}
        chunk = pages.numbers(self._out, _packed(ids, len(entries)), valid, plain)
        if valid is None and len(entries) == 1:
            return chunk, {"is": int(entries[0])}
        return chunk, {"at": chunk.values, "ids": chunk.ids, "of": len(entries)}

    def _texts(self, present: np.ndarray, valid: np.ndarray | None, kind: Type) -> tuple[Chunk, dict[str, Any]]:
        ids, entries = _entries(present, kind)
        packed = _packed(ids, len(entries))
        if kind.is_wide:
            payload = wide.big_endian(halves_of_ids(entries), wide.width(kind))
            chunk = pages.texts(self._out, kind, packed, valid, payload=payload, entries=len(entries))
            return chunk, {"wide": chunk.values, "ids": chunk.ids, "of": len(entries)}
        payload, ends = _payload(decode(entries, kind), self._longest)
        chunk = pages.texts(self._out, kind, packed, valid, payload=payload, entries=len(entries))
        return chunk, {"texts": chunk.values, "ends": self._put(ends), "ids": chunk.ids, "of": len(entries)}

    def _pieces(self, words: np.ndarray, kind: Type) -> dict[str, Any]:
        """Write lists or structs for look-ups: the distinct ones, in pieces."""
        valid = words != NULL
        ids, entries = _entries(words[valid], kind)
        numbers = np.zeros(len(words), np.int64)
        numbers[valid] = ids
        packed = _packed(numbers, len(entries))
        starts = []
        for start in range(0, len(entries), PIECE):
            starts.append(self._out.at)
            self._out.write(_serialized(decode(entries[start : start + PIECE], kind)))
        ends = np.array([*starts, self._out.at], np.int64)
        location = {"ids": (self._put(packed), packed.shape[1]), "pieces": self._put(ends), "of": len(entries)}
        if not valid.all():
            location["nulls"] = self._put(pages.bits_of(~valid, 8))
        return location

    def _put(self, array: np.ndarray) -> int:
        """Append an array beside Parquet's pages; return its place."""
        self._out.align(8)
        location = self._out.at
        self._out.write(array)
        return location

    def finish(self) -> Written:
        """Write what comes after the row groups."""
        out, firsts = self._out, np.concatenate([np.empty(0, np.int64), *self._firsts])
        out.align(BLOCK if len(firsts) > PAGE else 8)
        index = self._put(firsts)
        out.align(8)
        end = out.at
        units = write_digests(out, self._content(end))
        note = {
            "rows": [rows for rows, _ in self._groups], "end": end, "units": _text(units),
            "index": index, "top": _text(firsts[::TOP]), "step": TOP * PAGE, "columns": self._locations,
            "narrow": [name for name, kind in self._columns.items() if kind == pages.INT32],
        }  # fmt: skip
        footer = pages.footer(self._columns, self._groups, (RUN, json.dumps(note, separators=(",", ":"))))
        out.write(footer)
        self._file.flush()
        bounds = (self._ends[0], self._ends[-1]) if self._ends else (0, 0)
        return Written(out.at, digest_of(footer), sum(rows for rows, _ in self._groups), *bounds)

    def _content(self, end: int) -> np.ndarray:
        """What was written, which ends at ``end``: uint8[n]."""
        if isinstance(self._file, io.BytesIO):
            return np.frombuffer(self._file.getvalue(), np.uint8)
        self._file.flush()
        return np.memmap(self._path, np.uint8, "r", shape=(end,))


def _text(numbers: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()


def _physical(words: np.ndarray, kind: Type) -> np.ndarray:
    """Words as the values that Parquet has for them."""
    if kind.name == "bool":
        flags: np.ndarray = words != 0
        return flags
    if kind.name == "float64":
        return floats_of(words)
    return np.ascontiguousarray(words, dtype=pages.physical(kind))


def _few(words: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Words as the numbers of dictionary entries, and these entries, ascending; None where that takes no less space.
    ``width``: the bytes of a value.
    """
    least, most = int(words.min()), int(words.max())
    if least == most:
        return np.zeros(len(words), np.int64), words[:1]
    if len(words) < _FEWEST or most - least >= _MOST:
        return None, None
    present = np.zeros(most - least + 1, dtype=bool)
    distances = words - least
    present[distances] = True
    entries = np.flatnonzero(present)
    if _width_of(len(entries)) * len(words) + width * len(entries) >= (width - 1) * len(words):
        return None, None
    return (np.cumsum(present, dtype=np.int32) - 1)[distances], entries + least


def _width_of(entries: int) -> int:
    """The bytes of the number of a dictionary's entry."""
    return max(1, -(-(entries - 1).bit_length() // 8))


def _packed(ids: np.ndarray, entries: int) -> np.ndarray:
    """Numbers of entries in as many bytes as they need: uint8 (n, width)."""
    wide = np.ascontiguousarray(ids, "<u4").view(np.uint8).reshape(-1, 4)
    return np.ascontiguousarray(wide[:, : _width_of(entries)])


def _entries(words: np.ndarray, kind: Type) -> tuple[np.ndarray, np.ndarray]:
    """Ids of a pool as the numbers of distinct entries, and these entries in the order in which they first occur: so
    the values of one key lie side by side.
    """
    rows, size = len(words), len(pool_of(kind))
    if size > 8 * rows + PAGE:
        entries, firsts, numbers = np.unique(words, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return ranks[numbers], entries[order]
    firsts = np.full(size, rows, np.int64)
    firsts[words[::-1]] = np.arange(rows - 1, -1, -1)  # of rows with the same word the last one written is the first
    entries = words[firsts[words] == np.arange(rows)]
    firsts[entries] = np.arange(len(entries))
    return firsts[words], entries


def _payload(values: pl.Series, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts or bytes as Parquet's dictionary has them, each after its length; and where each begins and the last ends.

    Raises _TooLong.
    """
    lengths = (values.str.len_bytes() if values.dtype == pl.String else values.bin.size()).cast(pl.Int64).to_numpy()
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + 4)])
    if ends[-1] > longest and len(values) > 1:
        raise _TooLong
    payload = np.empty(int(ends[-1]), np.uint8)
    heads = ends[:-1, None] + np.arange(4)
    payload[heads] = np.ascontiguousarray(lengths, "<u4").view(np.uint8).reshape(-1, 4)
    at = ends[:-1] + 4
    for source, starts, sizes in _buffers(values):
        copy_texts(source, starts, sizes, payload, at[: len(starts)])
        at = at[len(starts) :]
    return payload, ends.astype(np.uint32)


def _buffers(values: pl.Series) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The bytes of texts without nulls, and where each begins and how long it is; in one or more parts."""
    arrow = values.to_arrow()
    for chunk in getattr(arrow, "chunks", [arrow]):
        _, offsets, data = chunk.buffers()
        if len(chunk) and data is not None:
            ends = np.frombuffer(offsets, np.int64, len(chunk) + 1, 8 * chunk.offset)
            yield np.frombuffer(data, np.uint8), ends[:-1], np.diff(ends)
        elif len(chunk):
            yield np.empty(0, np.uint8), np.zeros(len(chunk), np.int64), np.zeros(len(chunk), np.int64)


def _serialized(values: pl.Series) -> bytes:
    """A column as Arrow's stream."""
    batch = pa.record_batch([values.to_arrow()], names=["values"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content
