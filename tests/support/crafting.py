"""Parquet files with anything in them: the footer and the page headers as trees that a test may change.

Both are Thrift's compact protocol. A tree is a list of ``[field, kind, value]``; the value of a struct is a tree, that
of a list ``(kind of its elements, [values])``. No library writes a file that lies, so this module does.
"""

from __future__ import annotations

import copy
import io
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Tree = list[list[Any]]
Path = tuple[int, ...]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS = (BYTE, I16, I32, I64)
# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and SchemaElement, by their numbers in Parquet's format.
SCHEMA, ROWS, ROW_GROUPS = 2, 3, 4
COLUMNS, GROUP_ROWS = 1, 3
CHUNK = 3
VALUES, UNCOMPRESSED, COMPRESSED, DATA_PAGE, DICTIONARY_PAGE, STATISTICS = 5, 6, 7, 9, 11, 12
NAME, CHILDREN = 4, 5


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    """A Parquet file of these columns: values that Arrow understands."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def edges(rows: int = 6, names: list[str] | None = None, **options: Any) -> bytes:
    """A small change log: ``src``, ``dst`` and ``name`` with a version and a diff."""
    numbers = list(range(rows))
    columns = {
        "src": pa.array(numbers, pa.int64()),
        "dst": pa.array([n * 10 for n in numbers], pa.int64()),
        "name": pa.array(names or [f"n{n % 3}" for n in numbers], pa.string()),
        "version": pa.array([n % 2 for n in numbers], pa.int64()),
        "diff": pa.array([1] * rows, pa.int64()),
    }
    return parquet(columns, **options)


# --- the two parts of a file ------------------------------------------------------------------------------------------


def footer_of(content: bytes) -> Tree:
    """The footer of a file as a tree."""
    return read(io.BytesIO(content[-8 - _length(content) : -8]))


def with_footer(content: bytes, footer: Tree) -> bytes:
    """The file with another footer, of whatever length."""
    written = write(footer)
    return content[: -8 - _length(content)] + written + struct.pack("<I", len(written)) + b"PAR1"


def _length(content: bytes) -> int:
    return int(struct.unpack("<I", content[-8:-4])[0])


def changed(content: bytes, change: Callable[[Tree], None]) -> bytes:
    """The file after ``change`` of its footer."""
    footer = footer_of(content)
    change(footer)
    return with_footer(content, footer)


def with_page_header(content: bytes, column: int, header: bytes, page: int) -> bytes:
    """The file with another header of a page: a column's data page, or its dictionary page. Offsets are kept right."""
    footer = footer_of(content)
    begin = get(chunk_of(footer, column), page)
    end, _ = page_header(content, column, page)
    longer = len(header) - (end - begin)
    for number in range(len(get(group_of(footer), COLUMNS)[1])):
        chunk = chunk_of(footer, number)
        for location in (DATA_PAGE, DICTIONARY_PAGE):
            if has(chunk, location) and get(chunk, location) > begin:
                put(chunk, location, I64, get(chunk, location) + longer)
    chunk = chunk_of(footer, column)
    put(chunk, COMPRESSED, I64, get(chunk, COMPRESSED) + longer)
    return with_footer(content[:begin] + header + content[end:], footer)


def page_header(content: bytes, column: int, page: int) -> tuple[int, Tree]:
    """Where the header of a page ends, and the header."""
    stream = io.BytesIO(content)
    stream.seek(get(chunk_of(footer_of(content), column), page))
    header = read(stream)
    return stream.tell(), header


def repeated(rows: int, name: str = "x") -> bytes:
    """An :func:`edges` file of ``rows`` equal rows, in some 1,500 bytes: each page is one run of one value."""
    content = edges(1, names=[name], compression="ZSTD", write_statistics=False)
    footer = footer_of(content)
    location = len(content) - 8 - _length(content)
    run, body = _from_varint(rows << 1), b""
    levels = run + b"\1"
    data = struct.pack("<I", len(levels)) + levels + b"\1" + run + b"\0"  # of definition levels, then of indices
    packed = pa.compress(data, "ZSTD", asbytes=True)
    for column in range(5):
        chunk = chunk_of(footer, column)
        dictionary = content[get(chunk, DICTIONARY_PAGE) : get(chunk, DATA_PAGE)]
        _, header = page_header(content, column, DATA_PAGE)
        put(get(header, 5), 1, I32, rows)
        put(header, 2, I32, len(data))
        put(header, 3, I32, len(packed))
        page = write(header) + packed
        put(chunk, DICTIONARY_PAGE, I64, location + len(body))
        put(chunk, DATA_PAGE, I64, location + len(body) + len(dictionary))
        put(chunk, COMPRESSED, I64, len(dictionary) + len(page))
        put(chunk, VALUES, I64, rows)
        drop(chunk, 16)  # sizes of levels
        body += dictionary + page
    put(footer, ROWS, I64, rows)
    put(group_of(footer), GROUP_ROWS, I64, rows)
    return with_footer(content[:location] + body + content[location:], footer)


# --- trees ------------------------------------------------------------------------------------------------------------


def get(tree: Tree, field: int) -> Any:
    """The value of a field."""
    return next(value for number, _, value in tree if number == field)


def put(tree: Tree, field: int, kind: int, value: Any) -> None:
    """Set a field, there or not."""
    drop(tree, field)
    tree.append([field, kind, value])
    tree.sort(key=lambda item: item[0])


def has(tree: Tree, field: int) -> bool:
    """Whether a field is there."""
    return any(number == field for number, _, _ in tree)


def drop(tree: Tree, field: int) -> None:
    """Remove a field, if it is there."""
    tree[:] = [item for item in tree if item[0] != field]


def group_of(footer: Tree, number: int = 0) -> Tree:
    """A row group of a footer."""
    tree: Tree = get(footer, ROW_GROUPS)[1][number]
    return tree


def chunk_of(footer: Tree, column: int, group: int = 0) -> Tree:
    """The metadata of a column chunk."""
    tree: Tree = get(get(group_of(footer, group), COLUMNS)[1][column], CHUNK)
    return tree


def integers(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """Every integer of a tree, with its path for :func:`with_integer`."""
    for index, (_, kind, value) in enumerate(tree):
        yield from _integers_in(kind, value, (*path, index))


def _integers_in(kind: int, value: Any, path: Path) -> Iterator[tuple[Path, int]]:
    if kind in _INTEGERS:
        yield path, value
    elif kind == STRUCT:
        yield from integers(value, path)
    elif kind in (LIST, SET):
        for index, item in enumerate(value[1]):
            yield from _integers_in(value[0], item, (*path, index))


def with_integer(tree: Tree, path: Path, number: int) -> Tree:
    """A copy of a tree with another integer at a path."""
    copied = copy.deepcopy(tree)
    *steps, last = path
    here: Any = copied
    for step in steps:
        here = here[1][step] if isinstance(here, tuple) else here[step][2]
    if isinstance(here, tuple):
        here[1][last] = number
    else:
        here[last][2] = number
    return copied


# --- the compact protocol ---------------------------------------------------------------------------------------------


def read(stream: io.BytesIO) -> Tree:
    """A struct."""
    tree: Tree = []
    field = 0
    while byte := stream.read(1)[0]:
        field = field + (byte >> 4) if byte >> 4 else _zigzag(stream)
        kind = byte & 15
        tree.append([field, kind, _read(stream, kind)])
    return tree


def _read(stream: io.BytesIO, kind: int) -> Any:
    simple: dict[int, Callable[[], Any]] = {
        TRUE: lambda: None, FALSE: lambda: None, BYTE: lambda: stream.read(1)[0], DOUBLE: lambda: stream.read(8),
        I16: lambda: _zigzag(stream), I32: lambda: _zigzag(stream), I64: lambda: _zigzag(stream),
        BINARY: lambda: stream.read(_varint(stream)),
    }  # fmt: skip
    if kind in simple:
        return simple[kind]()
    if kind in (LIST, SET):
        head = stream.read(1)[0]
        count = head >> 4 if head >> 4 != 15 else _varint(stream)
        inner = head & 15
        return inner, [_read(stream, BYTE if inner in (TRUE, FALSE) else inner) for _ in range(count)]
    assert kind == STRUCT, kind
    return read(stream)


def write(tree: Tree) -> bytes:
    """The bytes of a struct."""
    out, before = bytearray(), 0
    for field, kind, value in tree:
        step = field - before
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _from_zigzag(field)
        out += _write(kind, value)
        before = field
    return bytes(out) + b"\0"


def _write(kind: int, value: Any) -> bytes:
    simple: dict[int, Callable[[], bytes]] = {
        TRUE: lambda: b"", FALSE: lambda: b"", BYTE: lambda: bytes([value & 255]), DOUBLE: lambda: bytes(value),
        I16: lambda: _from_zigzag(value), I32: lambda: _from_zigzag(value), I64: lambda: _from_zigzag(value),
        BINARY: lambda: _from_varint(len(value)) + value,
    }  # fmt: skip
    if kind in simple:
        return simple[kind]()
    if kind in (LIST, SET):
        inner, values = value
        size = len(values)
        head = bytes([size << 4 | inner]) if size < 15 else bytes([240 | inner]) + _from_varint(size)
        return head + b"".join(_write(BYTE if inner in (TRUE, FALSE) else inner, item) for item in values)
    return write(value)


def _varint(stream: io.BytesIO) -> int:
    number = shift = 0
    while True:
        byte = stream.read(1)[0]
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number


def _from_varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _zigzag(stream: io.BytesIO) -> int:
    number = _varint(stream)
    return number >> 1 ^ -(number & 1)


def _from_zigzag(number: int) -> bytes:
    return _from_varint((number << 1 ^ number >> 63) & 2**64 - 1)
