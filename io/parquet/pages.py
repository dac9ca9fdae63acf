"""Parquet files whose values are found where they lie: column chunks, each one page that is not compressed.

Written here and not by Arrow, whose pages nobody can point into. Numbers lie one after another, at multiples of their
width. A column of few distinct values, and of every type that varies in width, has a dictionary; the numbers of its
entries are "bit-packed" with 8, 16, 24 or 32 bits, which is to say that they are an array too. A column of one value
has a dictionary of one entry and a run of one number. Lists and structs are written by Arrow, packed: their pages are
copied. All of this is Parquet that any reader reads.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, BinaryIO

from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import pyarrow as pa
from ddcore.base.record import record
from ddcore.base.schema import Schema, Type
from ddcore.data.wide import width
from ddcore.io.parquet.thrift import I32, I64, Encoded, Octets, Struct, encoded, varint

_BOOLEAN, _INT32, _INT64, _DOUBLE, _BYTE_ARRAY, _FIXED = 0, 1, 2, 5, 6, 7
_TYPES = {"BOOLEAN": 0, "INT32": 1, "INT64": 2, "INT96": 3, "FLOAT": 4, "DOUBLE": 5, "BYTE_ARRAY": 6,
          "FIXED_LEN_BYTE_ARRAY": 7}  # fmt: skip
_ENCODINGS = {"PLAIN": 0, "PLAIN_DICTIONARY": 2, "RLE": 3, "BIT_PACKED": 4, "DELTA_BINARY_PACKED": 5,
              "DELTA_LENGTH_BYTE_ARRAY": 6, "DELTA_BYTE_ARRAY": 7, "RLE_DICTIONARY": 8,
              "BYTE_STREAM_SPLIT": 9}  # fmt: skip
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1}
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_OPTIONAL, _REPEATED = 1, 2
_UNKNOWN = 100  # a field that no header of a page has
_WORD = 64  # rows of which one word says which are null
_SHORT_DECIMAL = 9  # digits that Parquet keeps in 32 bits
MAGIC = b"PAR1"
INT32 = Type("int32")  # of a column of int64 whose values all fit: readers widen them


class Output:
    """A new file that is written from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.at = file, 0

    def write(self, *parts: Any) -> None:
        """Append bytes, or arrays as they are in memory."""
        for part in parts:
            content = part.data.cast("B") if isinstance(part, np.ndarray) and len(part) else part
            if len(content):
                self.at += self._file.write(content)

    def align(self, to: int, ahead: int = 0) -> None:
        """Append zeros until what comes ``ahead`` bytes later is at a multiple of ``to``."""
        self.write(bytes(-(self.at + ahead) % to))


@record
class Chunk:
    """A column of a row group: its description for Parquet's footer, but for its path; and where ``values`` lie, and
    the numbers of dictionary entries (``ids``), and which rows are not null (``valid``), if it has these.
    """

    kind: int
    encodings: tuple[int, ...]
    rows: int
    begin: int
    data: int
    end: int
    dictionary: int | None
    statistics: Struct | None
    values: int = 0
    ids: tuple[int, int] = (0, 0)  # place and bytes of each
    valid: int = 0
    codec: int = 0
    unpacked: int | None = None
    within: int = 0  # bytes after ``begin``: where the header inside of the page's header begins

    @property
    def again(self) -> Chunk:
        """The chunk of another column that has the same values, and all of its bytes, but the first of its header."""
        begin = self.begin + self.within
        return replace(self, begin=begin, data=begin, within=0)

    def meta(self, path: Sequence[str]) -> Struct:
        """The chunk for Parquet's footer."""
        size = I64(self.end - self.begin)
        unpacked = size if self.unpacked is None else I64(self.unpacked)
        dictionary = None if self.dictionary is None else I64(self.dictionary)
        return Struct({2: I64(self.begin), 3: Struct({
            1: I32(self.kind), 2: [I32(encoding) for encoding in self.encodings], 3: list(path), 4: I32(self.codec),
            5: I64(self.rows), 6: unpacked, 7: size, 9: I64(self.data), 11: dictionary, 12: self.statistics,
        })})  # fmt: skip


def physical(kind: Type) -> str:
    """The type of numbers in the file, as numpy names it: i8, i4, f8; empty for a bit each and for types that vary in
    width, and for decimals of more than 18 digits.
    """
    if kind.is_wide:
        return ""
    if kind.name == "decimal":
        return "i4" if kind.precision <= _SHORT_DECIMAL else "i8"
    return {"int64": "i8", "timestamp": "i8", "date": "i4", "int32": "i4", "float64": "f8"}.get(kind.name, "")


def shared(out: Output, values: np.ndarray, *, align: int = 8) -> Chunk:
    """A column of numbers without nulls, whose bytes may be those of one more column, too: :attr:`Chunk.again`.

    Readers refuse two chunks that begin at one place. So the header of the page ends with a field that Parquet does not
    know, a list: the bytes of a whole header but for its last one, which ends both. A reader passes such a field over.
    """
    rows, kind = len(values), _INT64 if values.dtype.itemsize == 8 else _INT32
    head, _ = _levels(None, rows, rows)
    inner = _page([head, values], rows, _PLAIN)
    page = _page([head, values], rows, _PLAIN, Octets(inner[:-1]))
    before = len(page) + len(head)
    out.align(align, before)
    begin = out.at
    out.write(page, head, values)
    return Chunk(
        kind, (_PLAIN, _RLE), rows, begin, begin, out.at, None, _statistics(values, 0),
        values=begin + before, valid=begin + before, within=len(page) - len(inner),
    )  # fmt: skip


def numbers(out: Output, values: np.ndarray, valid: np.ndarray | None, entries: np.ndarray | None) -> Chunk:
    """A column of numbers of fixed width, or of bools. ``values``: those that are not null; with ``entries``, a
    dictionary, their numbers there as bytes: (n, width). ``valid``: bool[rows], None without nulls.
    """
    rows = len(values) if valid is None else len(valid)
    plain = values if entries is None else entries
    kind = {"b": _BOOLEAN, "f": _DOUBLE}.get(plain.dtype.kind, _INT32 if plain.dtype.itemsize == 4 else _INT64)
    statistics = _statistics(plain, rows - len(values))
    if entries is None:
        stored = bits_of(values, 8) if kind == _BOOLEAN else values
        return _plain(out, kind, stored, valid, statistics, rows=rows)
    dictionary = _Dictionary(kind, entries, len(entries))
    return _with_dictionary(out, dictionary, values, valid, statistics, rows=rows)


def texts(
    out: Output, kind: Type, ids: np.ndarray, valid: np.ndarray | None, *, payload: np.ndarray, entries: int
) -> Chunk:
    """A column of texts, bytes or decimals of more than 18 digits: the numbers of their entries in a dictionary, which
    is ``payload``.
    """
    rows = len(ids) if valid is None else len(valid)
    statistics = Struct({3: I64(rows - len(ids))})
    if len(ids) == 0:
        return _plain(out, _leaf(kind), ids, valid, statistics, rows=rows)
    return _with_dictionary(out, _Dictionary(_leaf(kind), payload, entries), ids, valid, statistics, rows=rows)


def bits_of(flags: np.ndarray, multiple: int) -> np.ndarray:
    """Flags as bits, the lowest first, zeros up to a multiple of so many: uint8[n]."""
    bits: np.ndarray = np.packbits(flags, bitorder="little")
    return np.concatenate([bits, np.zeros(-len(bits) % (multiple // 8), np.uint8)])


def _statistics(values: np.ndarray, nulls: int) -> Struct:
    if len(values) == 0 or values.dtype.kind != "i":
        return Struct({3: I64(nulls)})
    return Struct({3: I64(nulls), 5: values.max().tobytes(), 6: values.min().tobytes()})


@record
class _Dictionary:
    """The type of a dictionary's entries, what Parquet has for them, and their number."""

    kind: int
    payload: np.ndarray
    entries: int


def _plain(
    out: Output, kind: int, values: np.ndarray, valid: np.ndarray | None, statistics: Struct, *, rows: int
) -> Chunk:
    head, bits = _levels(valid, rows, len(values))
    page = _page([head, *bits, values], rows, _PLAIN)
    before = len(page) + len(head)
    out.align(8, before)
    begin = out.at
    out.write(page, head, *bits, values)
    position = begin + before
    at = position + sum(map(len, bits))
    return Chunk(kind, (_PLAIN, _RLE), rows, begin, begin, out.at, None, statistics, values=at, valid=position)


def _with_dictionary(
    out: Output, dictionary: _Dictionary, ids: np.ndarray, valid: np.ndarray | None, statistics: Struct, *, rows: int
) -> Chunk:
    inner = Struct({1: I32(dictionary.entries), 2: I32(_PLAIN)})
    page = _header(_DICTIONARY_PAGE, [dictionary.payload], inner, 7)
    out.align(8, len(page))
    begin, position = out.at, out.at + len(page)
    out.write(page, dictionary.payload)
    head, bits = _levels(valid, rows, len(ids))
    if dictionary.entries == 1:
        width, run = 0, b"\1" + varint(len(ids) << 1) + b"\0"
        ids = np.empty(0, np.uint8)
    else:
        width = ids.shape[1]
        run = bytes([8 * width]) + varint(-(-len(ids) // 8) << 1 | 1)
        ids = np.concatenate([ids, np.zeros((-len(ids) % 8, width), np.uint8)])
    page = _page([head, *bits, run, ids], rows, _RLE_DICTIONARY)
    data = out.at
    out.write(page, head, *bits, run, ids)
    levels = data + len(page) + len(head)
    at = levels + sum(map(len, bits)) + len(run)
    return Chunk(
        dictionary.kind, (_PLAIN, _RLE, _RLE_DICTIONARY), rows, begin, data, out.at, begin, statistics,
        values=position, ids=(at, width), valid=levels,
    )  # fmt: skip


def _levels(valid: np.ndarray | None, rows: int, present: int) -> tuple[bytes, list[np.ndarray]]:
    """Parquet's definition levels: which rows are not null. Bits, where some are and some are not; else one run."""
    if valid is None or present in (0, rows):
        run = varint(rows << 1) + (b"\1" if present else b"\0")
        return len(run).to_bytes(4, "little") + run, []
    bits = bits_of(valid, _WORD)
    run = varint(len(bits) << 1 | 1)
    return (len(run) + len(bits)).to_bytes(4, "little") + run, [bits]


def _page(parts: Sequence[Any], rows: int, encoding: int, last: Octets | None = None) -> bytes:
    inner = Struct({1: I32(rows), 2: I32(encoding), 3: I32(_RLE), 4: I32(_RLE)})
    return _header(_DATA_PAGE, parts, inner, 5, last)


def _header(kind: int, parts: Sequence[Any], inner: Struct, field: int, last: Octets | None = None) -> bytes:
    size, checksum = 0, 0
    for part in parts:
        content = part.data.cast("B") if isinstance(part, np.ndarray) and len(part) else bytes(part)
        size += len(content)
        checksum = zlib.crc32(content, checksum)
    signed = checksum - (1 << 32) if checksum >> 31 else checksum
    return encoded(Struct({1: I32(kind), 2: I32(size), 3: I32(size), 4: I32(signed), field: inner, _UNKNOWN: last}))


def copied(out: Output, table: pa.Table) -> dict[tuple[str, ...], Chunk]:
    """The chunks of columns that Arrow writes, by path: lists and structs."""
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, compression="snappy", row_group_size=max(1, table.num_rows), write_statistics=False,
        store_decimal_as_integer=True, write_page_checksum=True, store_schema=False,
    )  # fmt: skip
    content = sink.getvalue()
    group, chunks = pq.read_metadata(pa.BufferReader(content)).row_group(0), {}
    for number in range(group.num_columns):
        column = group.column(number)
        first = column.dictionary_page_offset if column.has_dictionary_page else None
        begin = column.data_page_offset if first is None else min(first, column.data_page_offset)
        moved = out.at - begin
        out.write(memoryview(content)[begin : begin + column.total_compressed_size])
        chunks[tuple(column.path_in_schema.split("."))] = Chunk(
            _TYPES[column.physical_type], tuple(_ENCODINGS[name] for name in column.encodings), column.num_values,
            begin + moved, column.data_page_offset + moved, out.at, None if first is None else first + moved, None,
            codec=_CODECS[column.compression], unpacked=column.total_uncompressed_size,
        )  # fmt: skip
    return chunks


def footer(schema: Schema, groups: Sequence[tuple[int, dict[tuple[str, ...], Chunk]]], note: tuple[str, str]) -> bytes:
    """The footer of a file with these columns and row groups (rows, chunks by path), and its length and magic."""
    elements = [element for name, kind in schema.items() for element in _described(name, kind)]
    paths = [path for name, kind in schema.items() for path in _paths((name,), kind)]
    described = [
        Struct({
            1: [chunks[path].meta(path) for path in paths],
            2: I64(sum(chunks[path].end - chunks[path].begin for path in paths)),
            3: I64(rows),
        })
        for rows, chunks in groups
    ]  # fmt: skip
    content = encoded(Struct({
        1: I32(2), 2: [Struct({4: "schema", 5: I32(len(schema))}), *elements],
        3: I64(sum(rows for rows, _ in groups)), 4: described, 5: [Struct({1: note[0], 2: note[1]})],
        6: "ddcore version 1", 7: [Struct({1: Struct({})}) for _ in paths],
    }))  # fmt: skip
    return content + len(content).to_bytes(4, "little") + MAGIC


def _paths(path: tuple[str, ...], kind: Type) -> Iterator[tuple[str, ...]]:
    """The paths of the columns inside of a column."""
    if kind.element is not None:
        yield from _paths((*path, "list", "element"), kind.element)
    elif kind.fields:
        for name, inner in kind.fields:
            yield from _paths((*path, name), inner)
    else:
        yield path


@lru_cache(maxsize=4096)
def _described(name: str, kind: Type) -> tuple[Encoded, ...]:
    """The elements of Parquet's schema for a column. The files of a run have many columns in common."""
    return tuple(map(encoded, _elements(name, kind)))


def _elements(name: str, kind: Type) -> Iterator[Struct]:
    """The elements of Parquet's schema for a column."""
    optional = I32(_OPTIONAL)
    if kind.element is not None:
        yield Struct({3: optional, 4: name, 5: I32(1), 6: I32(3), 10: Struct({3: Struct({})})})
        yield Struct({3: I32(_REPEATED), 4: "list", 5: I32(1)})
        yield from _elements("element", kind.element)
    elif kind.fields:
        yield Struct({3: optional, 4: name, 5: I32(len(kind.fields))})
        for field, inner in kind.fields:
            yield from _elements(field, inner)
    else:
        length = {2: I32(width(kind))} if kind.is_wide else {}
        yield Struct({1: I32(_leaf(kind)), **length, 3: optional, 4: name, **_meaning(kind)})


def _leaf(kind: Type) -> int:
    if kind.name in ("string", "binary", "bool"):
        return _BOOLEAN if kind.name == "bool" else _BYTE_ARRAY
    if kind.is_wide:
        return _FIXED
    return {"i8": _INT64, "i4": _INT32, "f8": _DOUBLE}[physical(kind)]


def _meaning(kind: Type) -> dict[int, Any]:
    """The fields of an element that say what its values mean: Parquet's older and newer form."""
    if kind.name == "string":
        return {6: I32(0), 10: Struct({1: Struct({})})}
    if kind.name == "date":
        return {6: I32(6), 10: Struct({6: Struct({})})}
    if kind.name == "timestamp":
        return {6: I32(10), 10: Struct({8: Struct({1: True, 2: Struct({2: Struct({})})})})}
    if kind.name == "decimal":
        digits = Struct({1: I32(kind.scale), 2: I32(kind.precision)})
        return {6: I32(5), 7: I32(kind.scale), 8: I32(kind.precision), 10: Struct({5: digits})}
    return {}
