"""New data files of a table, which no reader sees before a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import polars as pl
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.delta.open_tables import is_ledger
from ddcore.io.delta.syncs import sync_all
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.parquet import datafile
from ddcore.io.storage import store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from ddcore.base.schema import Schema

_ROW_GROUP = 128 * 1024


def write_file(
    folder: Location,
    stem: str,
    table: pa.Table,
    *,
    bounded: Iterable[str] = (),
    row_group: int = _ROW_GROUP,
    partition: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    unsynced: Unsynced | None = None,
) -> AddedFile:
    """Write one data file, ``STEM-DIGEST.parquet``, which no reader sees before a commit.

    ``bounded`` names the columns that get statistics. The same rows give the same bytes and so the same name.
    ``table`` does not have the partition columns. ``notes``: text for the file's footer, by name. ``unsynced``: those
    that it is synced to the disk with.
    """
    partition = dict(partition or {})

    def write(path: Path, synced: bool) -> tuple[int, str]:
        return datafile.write([table], table.schema, table.num_rows, path, row_group, notes=notes, synced=synced)

    path, size = new_file(folder, stem, write, partition, unsynced)
    return AddedFile(path, size, table.num_rows, file_stats(table, bounded), partition)


def new_file(
    folder: Location, stem: str, write: Callable[[Path, bool], tuple[int, str]], partition: Mapping[str, str],
    unsynced: Unsynced | None = None,
) -> tuple[str, int]:  # fmt: skip
    """Have a data file written and sync it to the disk, with those that are ``unsynced`` if there are such; return its
    path below ``folder`` and its size in bytes.

    ``write`` gets a path, and whether it has to sync the file; it returns the size and the digest for the name.
    """
    prefix = "".join(f"{name}={value}/" for name, value in partition.items())
    directory = folder / prefix
    with reporting(directory, "write to"), store.new_file(directory, stem) as new:
        size, digest = write(new.temporary, unsynced is None)
        path = f"{prefix}{new.name}-{digest}.parquet"
        failpoint("after-write")
        new.finish(folder / path)
        folders = [directory, folder] if partition else [directory]
        if unsynced is None:
            sync_all([], folders)
        else:
            unsynced.add(folder / path, folders)
        failpoint("after-ledger-file" if is_ledger(folder) else "after-file")
    return path, size


class Unsynced:
    """Data files that are written and not synced to the disk yet. At the end of its context they are, side by side."""

    def __init__(self) -> None:
        self._files: list[tuple[Location, Sequence[Location]]] = []

    def add(self, file: Location, folders: Sequence[Location]) -> None:
        """A file that has its name, and the folders that may have got new names."""
        self._files.append((file, folders))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._files:
            with reporting(self._files[0][0], "write to"):
                sync_all(
                    [file for file, _ in self._files], [folder for _, folders in self._files for folder in folders]
                )


def stored_columns(rows: pl.DataFrame, schema: Schema) -> dict[str, Any]:
    """The columns of ``schema`` as Arrow's, those that Delta has no type for as what it stores in their place."""
    from ddcore.data.forms import to_stored

    return {name: to_stored(rows[name], kind).to_arrow() for name, kind in schema.items()}


def arrow_table(columns: Mapping[str, Any], schema: Schema) -> pa.Table:
    """Arrow columns, cast to exactly the types that files have for ``schema``, also inside lists and structs.

    Texts and bytes may come as views, and stay so: in Parquet they are the same.
    """
    return _table(columns, {name: kind.stored.arrow for name, kind in schema.items()})


def value_table(columns: Mapping[str, Any], schema: Schema) -> pa.Table:
    """Arrow columns, cast to exactly the types of ``schema``."""
    return _table(columns, {name: kind.arrow for name, kind in schema.items()})


def _table(columns: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> pa.Table:
    given = pa.table({name: columns[name] for name in types})
    return pa.table({name: _of_type(given[name], kind) for name, kind in types.items()})


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column cast to a type. Texts of Polars with their offsets in 64 bits are cast here: Arrow's own casts are among
    its functions, whose import takes longer than most columns.
    """
    if column.type == kind or (
        kind in (pa.string(), pa.binary()) and column.type in (pa.string_view(), pa.binary_view())
    ):
        return column
    is_text = pa.types.is_large_string(column.type) and pa.types.is_string(kind)
    if not is_text or any(chunk.offset or chunk.nbytes >= 2**31 for chunk in column.chunks):
        return column.cast(kind)
    return pa.chunked_array([_short_text(chunk) for chunk in column.chunks], type=kind)


def _short_text(texts: pa.Array) -> pa.Array:
    """Texts with offsets of 32 bits; they have fewer than 2 GiB and begin with their buffers."""
    nulls, offsets, data = texts.buffers()
    if offsets is None:
        return pa.array([], pa.string())
    short = np.frombuffer(offsets, dtype=np.int64, count=len(texts) + 1).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(texts), [nulls, pa.py_buffer(short), data], texts.null_count)


def file_stats(table: pa.Table, bounded: Iterable[str]) -> str:
    """Delta's statistics of a file, as JSON text. Values without a JSON form (NaN, bytes) get no bounds."""
    from ddcore.io.parquet.column_bounds import bounds, json_object

    lower, upper = {}, {}
    nulls = {}
    for name in bounded:
        nulls[name] = str(table[name].null_count)
        if (pair := bounds(table[name])) is not None:
            lower[name], upper[name] = pair
    return json_object(
        {
            "numRecords": str(table.num_rows),
            "minValues": json_object(lower),
            "maxValues": json_object(upper),
            "nullCount": json_object(nulls),
        }
    )
