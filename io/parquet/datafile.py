"""One data file: Parquet in which every byte is covered by a digest.

The name ends in a digest of the footer, and the footer holds a digest of each row group's bytes, page headers included.
So a row group can be checked by itself, and files of equal names have equal contents. A flipped bit, a truncated file
or another file under the same name is an error that names the file. Pages also have Parquet's own checksums, for other
readers.

Files without a digest in their names were written by other programs (OPTIMIZE) and are read unchecked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddcore.base.errors import StorageError
from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.parquet.checked import Checked, damaged
from ddcore.io.storage import store
from ddcore.io.storage.objects import Whole
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Contents, Location, Mapped

RUN = "ddcore.run"  # the note of a file of state: see ddcore.io.state.run_writer

_GROUPS = "ddcore.groups"  # the note of a file of several row groups: see _Bounds
_NAME = re.compile(r"-([0-9a-f]{16})\.parquet$")
_KEY = b"ddcore.digests"  # in the footer's metadata; its value: "[END:DIGEST,END:DIGEST]", one pair per row group
# Between the two is the length of the value, of which a byte may be any, also that of a bracket: see _note.
_LIST = re.compile(rb"ddcore\.digests\x18[\x80-\xff]*[\x00-\x7f]\[([0-9a-f:,]*)\]")
_MAGIC = b"PAR1"
_TEXT = b"\x18"  # before each text, in Thrift's compact protocol
_FEW = 32  # rows; with fewer, a dictionary only adds to the size
_FEW_GROUPS = 4
_PORTION = 1 << 24  # bytes of a file of state that are verified at once
_TAIL = 64 * 1024  # bytes of the first read: holds most footers, and most small files

_MOST_VERIFIED = 1 << 16  # files
_MOMENT = 2_000_000_000  # nanoseconds
_verified: dict[tuple[Location, int], tuple[int, ...]] = {}  # a cache, by file and end of a row group, 0: of the whole

# Whether rows can meet a condition whose columns of int64 are between some bounds, by name: the least, the greatest.
MayMeet = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]


def digest_of(content: bytes | memoryview) -> str:
    """The digest of these bytes: 16 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def write(
    tables: Iterable[pa.Table], schema: pa.Schema, rows: int, path: Path, row_group: int, *,
    notes: Mapping[str, str] | None = None, synced: bool = True,
) -> tuple[int, str]:  # fmt: skip
    """Write rows to a new file and sync it to the disk; return its size in bytes and the digest for its name.

    ``synced``: False where the caller syncs it. The rows come in pieces, of which only one is in memory at a time;
    ``rows`` is the number of all, or an upper bound of it. Integers are delta-packed, which halves the time to write
    and to read them. The same pieces give the same bytes. ``notes``: text for the footer, by name.
    """
    with pa.OSFile(str(path), "wb") as sink:
        _write_groups(tables, schema, sink, path, rows=rows, row_group=row_group, notes=notes or {})
    if synced:
        store.sync(path)
    with store.opened(path) as file:
        return file.size, digest_of(_footer(file) or b"")


def has_digests(path: Location) -> bool:
    """Whether we wrote the file, so that every byte of it can be verified."""
    return _digest_in_name(path) is not None


def verify(path: Location, hint: str) -> None:
    """Raise StorageError if any byte of a file has changed since it was written. One pass over it, 1 GB/s; none over a
    file of this machine that this process has verified, and that nobody has touched since.
    """
    expected = _digest_in_name(path)
    if expected is None:
        return
    with _verifying(path, 0, hint) as is_known:
        if not is_known:
            with reporting(path, "read", hint), store.opened(path, whole=True) as file:
                _check(file, path, expected, hint)


@contextmanager
def _verifying(path: Location, end: int, hint: str) -> Iterator[bool]:
    """Whether this process knows a file, or its row group that ends there, to be as it was; else the caller checks."""
    before = _stamp(path, hint)
    is_known = before is not None and _verified.get((path, end)) == before
    yield is_known
    if not is_known and before is not None and before == _stamp(path, hint):
        if len(_verified) >= _MOST_VERIFIED:
            _verified.clear()
        _verified[path, end] = before


def _stamp(path: Location, hint: str) -> tuple[int, ...] | None:
    """What differs once a file of this machine was written to; None for one that was a moment ago, as the clock of a
    file system may not tell another write from that.
    """
    if not isinstance(path, Path):
        return None
    with reporting(path, "read", hint):
        status = path.stat()
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < _MOMENT:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def rows_that_may_meet(
    path: Path, hint: str, may_meet: MayMeet | None, within: tuple[int, int] | None = None
) -> list[tuple[int, int]] | None:
    """Where in a file rows may lie that meet a condition: first row and number of rows, by row groups; None: anywhere.

    ``may_meet`` is asked with the bounds of the int64 columns of each row group, from the footer. ``within``: only of
    these rows, [start, stop). Raises StorageError if any byte of these row groups has changed since it was written; of
    the others no byte is read.
    """
    expected = _digest_in_name(path)
    if expected is None:
        return None
    with reporting(path, "read", hint), store.opened(path) as file:
        footer = _check_footer(file, path, expected, hint)
        note = _note(footer, _GROUPS)
        if note is None:
            verify(path, hint)
            return None
        groups, first, ranges = json.loads(note), 0, list[tuple[int, int]]()
        for number, (rows, (begin, end, digest)) in enumerate(
            zip(groups["rows"], _blocks(path, footer, hint), strict=True)
        ):
            lower, upper = ({name: of[number][side] for name, of in groups["bounds"].items()} for side in (0, 1))
            start, stop = within or (first, first + rows)
            start, stop = max(first, start), min(first + rows, stop)
            if start < stop and (may_meet is None or may_meet(lower, upper)):
                with _verifying(path, end, hint) as is_known:
                    if not is_known and digest_of(file.read(end - begin, begin)) != digest:
                        raise damaged(path, hint)
                ranges.append((start, stop - start))
            first += rows
    return None if within is None and len(ranges) == len(groups["rows"]) else ranges


def content(path: Location, hint: str) -> bytes:
    """The bytes of a whole file, checked where it has digests. Raises StorageError where it is damaged."""
    expected = _digest_in_name(path)
    with reporting(path, "read", hint), store.opened(path, whole=True) as file:
        if expected is not None:
            _check(file, path, expected, hint)
        return file.read(file.size, 0)


def notes(path: Location, hint: str, names: Iterable[str]) -> dict[str, str]:
    """Those of some notes, by name, that the footer of a file has. Raises StorageError where it is damaged.

    Does not import PyArrow, which takes longer than a command that reads a few notes.
    """
    expected = _digest_in_name(path)
    if expected is None:
        return {}
    with reporting(path, "read", hint), store.opened(path) as file:
        footer = _check_footer(file, path, expected, hint)
    return {name: text for name in names if (text := _note(footer, name)) is not None}


def glance(path: Location, name: str) -> str | None:
    """A note of a file; None without it. Checks nothing: for offers that a command checks when it gets them."""
    with store.opened(path) as file:
        return _note(_footer(file) or b"", name)


def _note(footer: bytes, name: str) -> str | None:
    """A note in a footer. Notes are JSON, so nothing else has the name and the byte 24, which is before each text."""
    _, key, rest = footer.rpartition(name.encode() + _TEXT)
    length = position = 0
    while key:  # the length, in groups of seven bits, the lowest first; each but the last has the eighth
        length |= (rest[position] & 127) << 7 * position
        position += 1
        if rest[position - 1] < 128:
            return rest[position : position + length].decode()
    return None


def rows_of(path: Location, hint: str) -> int:
    """The rows of a file, by its footer, which is checked. Raises StorageError where it is missing or damaged."""
    import pyarrow.parquet as pq

    expected = _digest_in_name(path)
    with reporting(path, "read", hint):
        if expected is None:
            with store.source_of(path) as source:
                return int(pq.read_metadata(source).num_rows)
        with store.opened(path) as file:
            footer = _check_footer(file, path, expected, hint)
        return int(pq.read_metadata(pa.BufferReader(footer)).num_rows)


def note_of(source: Mapped, name: str, hint: str) -> str:
    """A note of a file that must have it, from its footer, which is checked."""
    data, path = source.data, source.address
    expected, size = _digest_in_name(path), len(data)
    length = int.from_bytes(data[-8:-4].tobytes(), "little") + 8
    if size < length or data[-4:].tobytes() != _MAGIC:
        raise damaged(path, hint)
    source.fetch(np.array([size - length]), np.array([size]))
    footer = data[size - length :].tobytes()
    if digest_of(footer) != expected:
        raise damaged(path, hint)
    note = _note(footer, name)
    if note is None:
        raise StorageError(f"{path} is no file of state", hint)
    return note


def _write_groups(
    tables: Iterable[pa.Table], schema: pa.Schema, sink: pa.NativeFile, path: Path, *, rows: int, row_group: int,
    notes: Mapping[str, str],
) -> None:  # fmt: skip
    import pyarrow.parquet as pq

    packed, texts = _encodings(schema)
    numbers = [path for path, _ in _leaves(schema) if path not in texts]
    digests, begin = [], 0
    with (
        pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=texts if rows >= _FEW else False,
            # The bounds of texts in a few row groups say little more than those of the file in the Delta log, and take
            # a tenth of the time.
            write_statistics=True if rows > _FEW_GROUPS * row_group else numbers,
            column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
            store_schema=False,  # it may differ for equal rows
            write_page_checksum=True,
        ) as writer,
        path.open("rb") as back,
    ):
        bounds = _Bounds(schema)
        for group in (table.slice(at, row_group) for table in tables for at in range(0, table.num_rows, row_group)):
            writer.write_table(group, row_group_size=row_group)
            if rows > row_group:
                bounds.add(group)
            end = sink.tell()
            digests.append(f"{end}:{digest_of(os.pread(back.fileno(), end - begin, begin))}")
            begin = end
        # The digests come last: see _blocks.
        own = {_GROUPS: bounds.text()} if len(digests) > 1 else {}
        writer.add_key_value_metadata({**notes, **own, _KEY.decode(): f"[{','.join(digests)}]"})


def _encodings(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """The columns to delta-pack, and the columns to store with a dictionary. Those inside lists and structs are named
    by their paths in Parquet.
    """
    packed, texts = [], []
    for path, kind in _leaves(schema):
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            packed.append(path)
        elif not pa.types.is_boolean(kind):
            texts.append(path)
    return packed, texts


def _leaves(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        path = prefix + field.name
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{path}.")
        elif pa.types.is_list(field.type):
            yield from _leaves([field.type.value_field], f"{path}.list.")
        else:
            yield path, field.type


class _Bounds:
    """Of each row group its rows, and of its columns of int64 the least and the greatest value."""

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = list[int]()
        self._columns = {field.name: list[list[int | None]]() for field in schema if field.type == pa.int64()}

    def add(self, group: pa.Table) -> None:
        """Take in the next row group."""
        import pyarrow.compute as pc

        self._rows.append(group.num_rows)
        for name, bounds in self._columns.items():
            bounds.append([*pc.min_max(group[name]).as_py().values()])

    def text(self) -> str:
        """All of them, for the footer."""
        return json.dumps({"rows": self._rows, "bounds": self._columns}, separators=(",", ":"))


def _digest_in_name(path: Location) -> str | None:
    name = _NAME.search(path.name)
    return name[1] if name else None


def _footer(file: Contents) -> bytes | None:
    """The bytes from the end of the last row group to the end of the file; None where it has no footer."""
    size = file.size
    tail = file.read(_TAIL, max(0, size - _TAIL))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != _MAGIC or length > size:
        return None
    return tail[-length:] if length <= len(tail) else file.read(length, size - length)


def _check(file: Contents, path: Location, expected: str, hint: str) -> None:
    footer = _check_footer(file, path, expected, hint)
    run = _note(footer, RUN)
    if run is not None:
        parts = json.loads(run)
        units = np.frombuffer(base64.b64decode(parts["units"]), np.int64)
        source = file if isinstance(file, Whole) else store.mapped(path)
        checked = Checked(source, parts["end"], units, hint)
        for begin in range(0, checked.end, _PORTION):
            checked.need_range(begin, min(begin + _PORTION, checked.end))
        return
    for begin, end, digest in _blocks(path, footer, hint):
        if digest_of(file.read(end - begin, begin)) != digest:
            raise damaged(path, hint)


def _check_footer(file: Contents, path: Location, expected: str, hint: str) -> bytes:
    footer = _footer(file)
    if footer is None or digest_of(footer) != expected:
        raise damaged(path, hint)
    return footer


def _blocks(path: Location, footer: bytes, hint: str) -> Iterator[tuple[int, int, str]]:
    """The byte ranges of row groups, from a checked footer. They follow each other without gaps."""
    # The last match: statistics and notes, which come before it, may hold any text.
    match = _LIST.match(footer, max(0, footer.rfind(_KEY)))
    if match is None:
        raise damaged(path, hint)
    begin = 0
    for block in match[1].decode().split(",") if match[1] else ():
        end, _, digest = block.partition(":")
        yield begin, int(end), digest
        begin = int(end)
