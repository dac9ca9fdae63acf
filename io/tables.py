"""The few moves on Delta tables that change logs, arrangements and the ledger share.

A data file is first written under a name that no reader looks at, then put in place whole; its name ends in a digest
of its bytes, so one name never stands for two contents. It becomes visible by a commit. A commit says what the table
shall hold afterwards, not what to add to it: doing it again changes nothing, and files that a crashed attempt left
behind go with it.

Tables stay on Delta protocol (1,2): every Delta reader opens them. Nothing here starts a JVM.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ddcore.errors import StorageError, UsageError
from ddcore.io.failpoint import failpoint
from ddcore.io.warehouse import REFRESH, reporting

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction

    from ddcore.schema import Schema, Type

__all__ = [
    "APP", "AddedFile", "LiveFile", "arrow_table", "commit", "create", "exists", "live_files", "location", "mend_hint",
    "open_table", "scan", "settle", "values", "write_file",
]  # fmt: skip

APP = "ddcore"  # the one application id of our transactions; its version is the number of the run or ingest
CHECKPOINT_EVERY = 100

_DELTA_NAMES = {
    "int64": "long", "float64": "double", "bool": "boolean", "string": "string", "binary": "binary",
    "date": "date", "timestamp": "timestamp",
}  # fmt: skip
_ROW_GROUP = 128 * 1024
_NOT_IN_PATHS = re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f\ud800-\udfff]")
_MAINTENANCE = ("OPTIMIZE", "VACUUM START", "VACUUM END")  # what leaves the rows as they are


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file that is written and not yet visible: what a commit must know of it. Travels between processes.

    ``path`` is relative to the table; ``stats`` is Delta's statistics as JSON text.
    """

    path: str
    size: int
    rows: int
    stats: str
    partition: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of one version of a table. ``lower`` and ``upper`` bound its columns, where statistics say so."""

    path: str
    size: int
    rows: int
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]


def delta_type(kind: Type | str) -> str:
    """Delta's name for a type: ``long`` for int64."""
    return _DELTA_NAMES.get(str(kind), str(kind))


def create(
    folder: Path, schema: Mapping[str, Type | str], partition_by: Sequence[str] = (), *, replace: bool = False
) -> None:
    """Make the table if there is none. Where there is one it must have these columns, in this order.

    Other columns are a StorageError; with ``replace`` the table becomes an empty one with the new columns, while its
    earlier versions stay readable.
    """
    from deltalake import DeltaTable

    place = location(folder)
    with reporting(folder, "create the table", mend_hint(folder)):
        mode: Literal["error", "overwrite"] = "error"
        if exists(folder):
            stored = columns(open_table(folder))
            wanted = [(name, delta_type(kind)) for name, kind in schema.items()]
            if stored == wanted:
                return
            if not replace:
                raise StorageError(f"{folder} holds {_columns(stored)}, not {_columns(wanted)}", mend_hint(folder))
            mode = "overwrite"
        folder.mkdir(parents=True, exist_ok=True)
        made = DeltaTable.create(
            place,
            _delta_schema(schema),
            mode=mode,
            partition_by=list(partition_by),
            configuration={"delta.checkpointInterval": str(CHECKPOINT_EVERY)},
        )
        settle(folder, made.version())


def write_file(
    folder: Path,
    stem: str,
    table: pa.Table,
    *,
    bounded: Iterable[str] = (),
    row_group: int = _ROW_GROUP,
    partition: Mapping[str, str] | None = None,
) -> AddedFile:
    """Write one data file, ``STEM-DIGEST.parquet``, and describe it; no reader sees it before a commit.

    ``bounded`` names the columns that get statistics. Integers are delta-packed, which halves the time to write and
    to read them. The same rows give the same bytes and so the same name. Partition columns are not in ``table``.
    """
    partition = dict(partition or {})
    place = "".join(f"{name}={value}/" for name, value in partition.items())
    directory = folder / place
    temporary = directory / f".{stem}-{os.getpid()}-{time.monotonic_ns()}.tmp"
    with reporting(directory, "write to"):
        directory.mkdir(parents=True, exist_ok=True)
        try:
            _write_parquet(table, temporary, row_group)
            size, digest = _finish(temporary)
            path = f"{place}{stem}-{digest}.parquet"
            temporary.replace(folder / path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync(directory)
    _reached(folder, "after-file")
    return AddedFile(path, size, table.num_rows, file_stats(table, bounded), partition)


def commit(
    folder: Path,
    files: Sequence[AddedFile],
    txn: int,
    *,
    base: int | None,
    overwrite: bool = False,
    without: Iterable[str] = (),
) -> int:
    """Make the table hold what version ``base`` holds, and ``files``; give the version that does.

    ``base`` is the version that the ledger names, None where it names none; ``overwrite`` keeps nothing of it, and
    of ``without``, paths in it, none is kept. One
    commit per table and run. Doing it again (after a crash between this and the ledger) commits nothing. What an
    attempt that was given up had committed is taken out; what maintenance by others (OPTIMIZE) did since ``base`` is
    kept.
    """
    with reporting(folder, "commit to", mend_hint(folder)):
        head = open_table(folder)
        live = _paths(head)
        kept = set()
        if base is not None and not overwrite:
            named = _named(folder, head, base)
            kept = _paths(named)
            if not kept <= live:
                head.restore(named.version())
                head = open_table(folder)
                live = _paths(head)
        kept -= set(without)
        added = [file for file in files if file.path not in live]
        removed = sorted(live - kept - {file.path for file in files})
        if not added and not removed:
            return head.version()
        _write_transaction(head, added, removed, txn)
        settle(folder, head.version())
    _reached(folder, "after-table")
    return head.version()


def live_files(folder: Path, version: int | None) -> list[LiveFile]:
    """The data files of a version, by path; none where ``version`` is None. Reads the Delta log only.

    Where nothing but maintenance (OPTIMIZE, VACUUM) has happened since, the files that it left: the others may be gone.
    """
    if version is None:
        return []
    with reporting(folder, f"read version {version} of", mend_hint(folder)):
        columns = _add_actions(_named(folder, open_table(folder), version))
    lower = {name.removeprefix("min."): values for name, values in columns.items() if name.startswith("min.")}
    upper = {name.removeprefix("max."): values for name, values in columns.items() if name.startswith("max.")}
    files = [
        LiveFile(
            path,
            columns["size_bytes"][i],
            columns["num_records"][i],
            {name: values[i] for name, values in lower.items() if values[i] is not None},
            {name: values[i] for name, values in upper.items() if values[i] is not None},
        )
        for i, path in enumerate(columns["path"])
    ]
    return sorted(files, key=lambda file: file.path)


def scan(folder: Path, files: Sequence[LiveFile], schema: Schema) -> pl.LazyFrame:
    """The rows of some of a table's files, in their order, as a lazy frame."""
    import polars as pl

    types = {name: kind.polars for name, kind in schema.items()}
    if not files:
        return pl.LazyFrame(schema=types)
    # Files that another engine's OPTIMIZE wrote may hold nanoseconds without a zone.
    casts = pl.ScanCastOptions(
        integer_cast="upcast", float_cast="upcast", datetime_cast=["nanosecond-downcast", "convert-timezone"]
    )
    paths = [folder / file.path for file in files]
    return pl.scan_parquet(paths, schema=types, cast_options=casts, glob=False, hive_partitioning=False)


def exists(folder: Path) -> bool:
    """Whether a folder is a table: a crash while it was created may leave an empty log."""
    return next((folder / "_delta_log").glob("*.json"), None) is not None


def open_table(folder: Path, version: int | None = None) -> DeltaTable:
    """The table at a version, or at its newest."""
    from deltalake import DeltaTable

    return DeltaTable(location(folder), version=version)


def location(folder: Path) -> str:
    """``folder`` as delta-rs takes it; UsageError where it would look for the table somewhere else.

    delta-rs makes a URL of the real path, and its kernel decodes that URL twice: ``%41`` becomes ``A`` and a backslash
    becomes a slash. It refuses control characters and bytes that are not UTF-8. Neither quoting nor a symlink helps.
    """
    if wrong := _NOT_IN_PATHS.search(os.path.realpath(folder)):
        raise UsageError(
            f"{str(folder)!r}: the Delta library cannot open tables below a folder whose name has {wrong[0]!r}",
            "rename the folder, or name another one with --warehouse DIR",
        )
    return str(folder)


def settle(folder: Path, version: int) -> None:
    """Bring a commit to the disk, before anything that rests on it is written."""
    log = folder / "_delta_log"
    _sync(log / f"{version:020d}.json")
    _sync(log)


def mend_hint(folder: Path) -> str:
    """What to do about a damaged table: state and outputs can be made again, inputs cannot."""
    if folder.parent.name == "inputs":
        return "restore the folder from a backup, or ingest its sources into a new warehouse"
    return REFRESH if folder.name != "ledger" else "restore the folder from a backup"


def arrow_table(columns: Mapping[str, Any], schema: Schema) -> pa.Table:
    """Arrow columns cast to exactly the types that files of ``schema`` have."""
    import pyarrow as pa

    wanted = pa.schema([pa.field(name, kind.arrow) for name, kind in schema.items()])
    return pa.table({name: columns[name] for name in schema}).cast(wanted)


def file_stats(table: pa.Table, bounded: Iterable[str]) -> str:
    """Delta's statistics of a file, as JSON text. A column whose bounds JSON cannot hold (NaN, bytes) gets none."""
    from ddcore.io.stats import bounds, json_object

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


def _named(folder: Path, head: DeltaTable, version: int) -> DeltaTable:
    """The table at a version the ledger names, or at the last one that maintenance has made of just that."""
    newest = head.version()
    if newest > version:
        done = {step["version"]: step["operation"] for step in head.history(newest - version)}
        while version < newest and done.get(version + 1) in _MAINTENANCE:
            version += 1
    return head if newest == version else open_table(folder, version)


def _paths(table: DeltaTable) -> set[str]:
    return set(_add_actions(table)["path"])


def _add_actions(table: DeltaTable) -> dict[str, list[Any]]:
    """The log's entries for live files, by column."""
    actions = table.get_add_actions(flatten=True)
    return {name: values(actions.column(name)) for name in actions.schema.names}


def values(column: Any) -> list[Any]:
    """An arro3 column as Python values: it has no ``to_pylist``; its scalars have ``as_py``."""
    return [value.as_py() for value in column]


def _write_transaction(table: DeltaTable, added: Sequence[AddedFile], removed: Sequence[str], txn: int) -> None:
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [_add_action(file, now) for file in added]
    actions += [RemoveAction(path, True, now) for path in removed]
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=_transaction(txn),
    )
    table.update_incremental()


def _transaction(txn: int) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(APP, txn)])


def _add_action(file: AddedFile, now: int) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(file.path, file.size, dict(file.partition), now, True, file.stats)


def _delta_schema(schema: Mapping[str, Type | str]) -> Any:
    from deltalake import Field
    from deltalake import Schema as DeltaSchema
    from deltalake.schema import PrimitiveType

    return DeltaSchema([Field(name, PrimitiveType(delta_type(kind))) for name, kind in schema.items()])


def columns(table: DeltaTable) -> list[tuple[str, str]]:
    """Names and Delta types of a table's columns, in order."""
    return [(column.name, _type_name(column.type)) for column in table.schema().fields]


def _type_name(kind: Any) -> str:
    return str(getattr(kind, "type", kind))


def _columns(columns: Sequence[tuple[str, str]]) -> str:
    return "(" + ", ".join(f"{name} {kind}" for name, kind in columns) + ")"


def _write_parquet(table: pa.Table, path: Path, row_group: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed, repeated = [], []
    for column in table.schema:
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            packed.append(column.name)
        elif not pa.types.is_boolean(kind):
            repeated.append(column.name)
    pq.write_table(
        table,
        path,
        row_group_size=row_group,
        compression="zstd",
        compression_level=1,
        use_dictionary=repeated,
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        store_schema=False,  # the types follow from Parquet's own; Arrow's notes would differ by who wrote the file
    )


def _reached(folder: Path, name: str) -> None:
    """A failpoint of the tables that a run or an ingest writes; the ledger has its own."""
    if folder.name != "ledger":
        failpoint(name)


def _finish(path: Path) -> tuple[int, str]:
    """Bring a file to the disk; its size and a digest of its bytes."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=6)).hexdigest()
        return file.tell(), digest


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
