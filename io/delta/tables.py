"""Operations on Delta tables that change logs, arrangements and the ledger share.

A data file is written under a temporary name and then renamed; its name ends in a digest, so files of equal names have
equal contents (:mod:`ddcore.io.parquet.datafile`). A commit makes it visible. A commit states the files that the table
has afterwards, not the files to add: repeating it changes nothing, and it removes the files of a crashed attempt.

A commit returns the table's new :class:`TableState`, which the ledger keeps. Whenever the table is opened later, it is
compared: a log that lost a commit, or names other files, rows or bounds, is an error and never another result.

Tables stay on the reader protocol 1: every Delta reader opens them. Nothing here starts a JVM.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ddcore.base.errors import DdError, StorageError, UsageError
from ddcore.base.lazy import numpy as np
from ddcore.io.delta import heads
from ddcore.io.delta.deltalog import (  # fmt: skip
    AFTER,
    COMPACTED,
    FENCE,
    LOG,
    commit_file,
    gap_text,
    has_commits,
    is_maintenance,
    lost_versions,
    newest_checkpoint,
    transaction_of,
)
from ddcore.io.delta.heads import Head, Prepared
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState, state_of
from ddcore.io.parquet import datafile
from ddcore.io.storage import store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.store import Place, sync
from ddcore.io.storage.warehouse import REFRESH, Lock, reporting

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    from ddcore.base.schema import Schema, Type
    from ddcore.io.storage.lease import Lease

__all__ = [
    "APP", "AddedFile", "LiveFile", "Overtaken", "TableState", "arrow_table", "change", "change_from", "commit",
    "committed", "create", "exists", "fence", "files_of", "forget", "is_kept", "is_settled", "is_writer",
    "keep_removals", "kept_open", "lease", "live_files", "location", "lost", "mend_hint", "new_file",
    "open_table", "opened",
    "reading", "require_lock", "row_type", "scan", "schema_of", "settle", "sources", "state_at", "stored_columns",
    "strays", "sync_all", "synced_together", "together", "token_of", "values", "write_checkpoint",
    "write_file",
]  # fmt: skip

APP = "ddcore"  # the one application id of our transactions; its version is the number of the run or ingest
_SYNCS = 16  # at the same time
_FEW = 3  # files that are not worth a thread
_ATTEMPTS = 10  # where others commit to the same table
CHECKPOINT_EVERY = 25  # commits: opening a table reads those after the last checkpoint, 0.3 ms each

_DELTA_NAMES = {
    "int64": "long", "float64": "double", "bool": "boolean", "string": "string", "binary": "binary",
    "date": "date", "timestamp": "timestamp",
}  # fmt: skip
_ROW_GROUP = 128 * 1024
_REMOVALS, _WEEK = "delta.deletedFileRetentionDuration", f"interval {7 * 86_400} seconds"
_NOT_IN_PATHS = re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f\ud800-\udfff]")


def delta_type(kind: Type | str) -> str:
    """Delta's name for a type: ``long`` for int64, as :func:`columns` returns it."""
    if isinstance(kind, str):
        return _DELTA_NAMES.get(kind, kind)
    if kind.element is not None:
        return f"array<{delta_type(kind.element)}>"
    if kind.fields:
        return f"struct<{', '.join(f'{json.dumps(name)}: {delta_type(inner)}' for name, inner in kind.fields)}>"
    return _DELTA_NAMES.get(str(kind), str(kind))


def row_type(kind: Any) -> Type:
    """The type of a column of one of our tables, from the Delta library's description of it."""
    from ddcore.base.schema import Type, parse_type

    if hasattr(kind, "element_type"):
        return Type("list", element=row_type(kind.element_type))
    if hasattr(kind, "fields"):
        return Type("struct", fields=tuple((each.name, row_type(each.type)) for each in kind.fields))
    ours = {theirs: name for name, theirs in _DELTA_NAMES.items()}
    return parse_type(ours.get(kind.type, kind.type))


def schema_of(folder: Place) -> Schema:
    """The columns of one of our tables in order, without those it is partitioned by."""
    with reporting(folder, "read", mend_hint(folder)):
        table = open_table(folder)
        apart = table.metadata().partition_columns
        return {field.name: row_type(field.type) for field in table.schema().fields if field.name not in apart}


def create(
    folder: Place,
    schema: Mapping[str, Type | str],
    partition_by: Sequence[str] = (),
    *,
    replace: bool = False,
    description: str | None = None,
    configuration: Mapping[str, str] | None = None,
) -> None:
    """Create the table if it does not exist. An existing table must have these columns, in this order.

    Raises StorageError for other columns. With ``replace`` the table becomes empty, with the new columns, and its
    earlier versions stay readable.
    """
    from deltalake import DeltaTable

    place = location(folder)
    wanted = [(name, delta_type(kind)) for name, kind in schema.items()]
    with reading(folder, "create the table"):
        mode: Literal["error", "overwrite"] = "error"
        stored = columns(open_table(folder)) if exists(folder) else None
        if stored == wanted:
            settle(folder, 0, 0)  # the process that created it may have been killed before it did this
            return
        if stored is not None and not replace:
            raise StorageError(f"{folder} holds {_columns(stored)}, not {_columns(wanted)}", mend_hint(folder))
        if stored is not None:
            mode = "overwrite"
        if isinstance(folder, Path) and not folder.exists():
            store.create_folder(folder)
            failpoint("after-folder")
        require_lock()
        table = DeltaTable.create(
            place,
            _delta_schema(schema),
            mode=mode,
            partition_by=list(partition_by),
            description=description,
            configuration={"delta.checkpointInterval": str(CHECKPOINT_EVERY), **(configuration or {})},
            storage_options=options_of(folder),
        )
        _keep(folder, table)
        settle(folder, 0 if stored is None else table.version(), table.version())
        failpoint("after-begin" if _is_ledger(folder) else "after-create")


def write_file(
    folder: Place,
    stem: str,
    table: pa.Table,
    *,
    bounded: Iterable[str] = (),
    row_group: int = _ROW_GROUP,
    partition: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
) -> AddedFile:
    """Write one data file, ``STEM-DIGEST.parquet``, which no reader sees before a commit.

    ``bounded`` names the columns that get statistics. The same rows give the same bytes and so the same name.
    ``table`` does not have the partition columns. ``notes``: text for the file's footer, by name.
    """
    partition = dict(partition or {})

    def write(path: Path, synced: bool) -> tuple[int, str]:
        return datafile.write([table], table.schema, table.num_rows, path, row_group, notes=notes, synced=synced)

    path, size = new_file(folder, stem, write, partition)
    return AddedFile(path, size, table.num_rows, file_stats(table, bounded), partition)


def new_file(
    folder: Place, stem: str, write: Callable[[Path, bool], tuple[int, str]], partition: Mapping[str, str]
) -> tuple[str, int]:
    """Have a data file written and sync it to the disk; return its path below ``folder`` and its size in bytes.

    ``write`` gets a path, and whether it has to sync the file; it returns the size and the digest for the name.
    """
    place = "".join(f"{name}={value}/" for name, value in partition.items())
    directory = folder / place
    with reporting(directory, "write to"), store.new_file(directory, stem) as new:
        size, digest = write(new.temporary, _unsynced is None)
        path = f"{place}{new.name}-{digest}.parquet"
        failpoint("after-write")
        new.finish(folder / path)
        folders = [directory, folder] if partition else [directory]
        if _unsynced is None:
            sync_all([], folders)
        else:
            _unsynced.append((folder / path, folders))
        failpoint("after-ledger-file" if _is_ledger(folder) else "after-file")
    return path, size


def commit(
    folder: Place,
    files: Sequence[AddedFile],
    txn: int,
    *,
    base: TableState | None,
    overwrite: bool = False,
    without: Iterable[str] = (),
    beside: Iterable[str] = (),
    restores_columns: bool = False,
    adds: Mapping[str, Type] | None = None,
    becomes: Mapping[str, Type | str] | None = None,
    carries: Mapping[str, str] | None = None,
) -> TableState:
    """Make the table's live files those of ``base`` plus ``files``; return its new state.

    ``base`` is the state in the ledger, None where the ledger has none. The files of ``base`` whose paths are in
    ``without`` are left out; ``overwrite`` leaves out all of them. ``beside``: paths of other live files to keep.
    The table is restored first where it lost files of ``base`` that are not among ``files``; with ``restores_columns``
    also where it has other columns now. With ``becomes`` it has these columns then, and only ``files``: readers see no
    empty table in between.
    ``carries``: notes in the commit itself; with the one of a compaction, the commit says that it changes no data, so
    that streams and change feeds pass over it. One commit per table and run. Repeating it (after a crash before the
    ledger's record) commits nothing. Changes of an attempt that was given up are reverted; maintenance by other
    programs (OPTIMIZE) since ``base`` is kept. When this returns, every commit after ``base`` is on the disk, even if
    there was nothing to commit.

    In an object store a process whose lock was taken over may commit in between: then this begins again from the newest
    version. Raises LockHeld if this process is the one that lost the lock.
    """
    without, beside = frozenset(without), frozenset(beside)
    for _ in range(_ATTEMPTS):
        try:
            return _commit(
                folder, files, txn, base=base, overwrite=overwrite, without=without, beside=beside,
                restores_columns=restores_columns, adds=adds, becomes=becomes, carries=carries,
            )  # fmt: skip
        except Overtaken:
            forget(folder)
    raise StorageError(f"cannot commit to {folder}: others commit to it all the time", "run the same command again")


def _commit(
    folder: Place, files: Sequence[AddedFile], txn: int, *, base: TableState | None, overwrite: bool,
    without: frozenset[str], beside: frozenset[str], restores_columns: bool, adds: Mapping[str, Type] | None,
    becomes: Mapping[str, Type | str] | None, carries: Mapping[str, str] | None,
) -> TableState:  # fmt: skip
    known = _head(folder, base)
    if known is not None and (adds is None or {*adds} <= {name for name, _ in known.columns}):
        live = {file.path for file in known.files}
        kept = live.intersection(beside) | (set() if overwrite else live - without)
        if done := _commit_on(known, folder, files, frozenset(kept), heads.Change((), (), txn, carries or {})):
            return done
    if _group is not None:
        _group.publish()  # what comes first is committed first
    with reading(folder, "commit to", base):
        head = open_table(folder)
        require_lock()  # after the table was opened: see docs/storage.md
        since = 0 if base is None else base.version + 1
        live = _paths(head)
        kept = live.intersection(beside)
        if base is not None and not overwrite:
            named = _table_at(folder, head, base.version)
            kept |= {file.path for file in _check_files(folder, named, base)}.difference(without)
            is_other = restores_columns and columns(head) != columns(named)
            if is_other or not kept <= live.union(file.path for file in files):
                _check_present(folder, kept - live, base)
                _restore(head, named.version())
                live = _paths(head)
            if adds is not None:
                _add_columns(head, named, adds)
        added = [file for file in files if file.path not in live]
        removed = sorted(live - kept - {file.path for file in files})
        is_other = becomes is not None and columns(head) != [(name, delta_type(kind)) for name, kind in becomes.items()]
        if is_other:
            added, removed = [*files], sorted(live)
        if added or removed or is_other:
            change(head, added, removed, txn, carries, becomes=becomes if is_other else None)
        settle(folder, since, head.version())
        state = _state(head, _live(head))
        if added or removed or is_other:
            failpoint("after-table")
    return state


def _commit_on(
    head: Head, folder: Place, files: Sequence[AddedFile], kept: frozenset[str], change: heads.Change
) -> TableState | None:
    """Commit from the head of a table: its live files become ``kept`` and ``files``. ``change`` has the number and
    the notes. None where the Delta library has to commit.
    """
    assert isinstance(folder, Path)
    live = {file.path for file in head.files}
    added = [file for file in files if file.path not in live]
    removed = sorted(live - kept - {file.path for file in files})
    if not (added or removed):
        return head.state
    with reading(folder, "commit to"):
        prepared = heads.prepare(folder, head, replace(change, added=added, removed=removed), APP)
    if prepared is None:
        return None
    _note_head(folder, prepared.head)
    if _group is not None:
        _group.pending.append(prepared)
    elif not _published([prepared]):
        return None
    return prepared.head.state


def change_from(folder: Place, head: Head, change: heads.Change) -> Head | None:
    """Commit to a table from its head, and sync it; the head that it has then. None where the Delta library has to
    commit. Raises StorageError where another program just did.
    """
    assert isinstance(folder, Path)
    prepared = heads.prepare(folder, head, change, APP)
    if prepared is None:
        return None
    if not _published([prepared], is_table=False):
        raise StorageError(f"another program has committed to {folder} just now", "run the same command again")
    _note_head(folder, prepared.head)
    return prepared.head


def committed(folder: Place, txn: int, base: TableState | None) -> TableState | None:
    """The state of a table if its last commit, but for maintenance, has the transaction number ``txn``; else None.

    Every commit after ``base`` is on the disk when this returns.
    """
    if not exists(folder):
        return None
    with reading(folder, "read", base):
        head = open_table(folder)
        head.update_incremental()
        since, version = 0 if base is None else base.version + 1, head.version()
        while version >= since and is_maintenance(folder, version):
            version -= 1
        if version < since or transaction_of(folder, version, APP) != txn:
            return None
        settle(folder, since, head.version())
        return _state(head, _live(head))


def strays(folder: Place, base: TableState | None) -> list[LiveFile]:
    """The files of ours that a table holds beyond those of ``base``: runs that were given up had committed them."""
    if not exists(folder):
        return []
    known = {file.path for file in live_files(folder, base)}
    with reporting(folder, "read", mend_hint(folder)):
        head = open_table(folder)
        head.update_incremental()
        return [file for file in _live(head) if file.path not in known and datafile.has_digests(folder / file.path)]


def is_settled(folder: Place, base: TableState) -> bool:
    """Whether no commits but maintenance came after ``base``: none of a run that did not finish. Looks for one file."""
    version = base.version + 1
    while is_maintenance(folder, version):
        version += 1
    return not store.is_file(commit_file(folder, version))


def lost(folder: Place, base: TableState | None) -> list[LiveFile]:
    """The files of a table at ``base`` that its newest version does not have: a run that was given up removed them."""
    with reporting(folder, "read", mend_hint(folder)):
        live = _paths(open_table(folder))
    return [file for file in live_files(folder, base) if file.path not in live]


def is_kept(folder: Place, state: TableState) -> bool:
    """Whether a table can still be opened as it was in an earlier state: its log is there, and all its files are."""
    try:
        return all(store.is_file(folder / file.path) for file in live_files(folder, state))
    except StorageError:
        return False


class Overtaken(Exception):
    """Another process has committed to a table after this one opened it; in an object store, where that can be."""


def change(
    table: DeltaTable,
    added: Sequence[AddedFile],
    removed: Sequence[str],
    txn: int,
    carries: Mapping[str, str] | None = None,
    *,
    fenced: bool = False,
    becomes: Mapping[str, Type | str] | None = None,
) -> None:
    """Add and remove files in one commit with the transaction number ``txn``. Does not sync it to the disk.

    ``becomes``: the columns that the table has then, without any of the files that it had.

    In an object store the commit is the one after the version that is open, or none: it raises Overtaken. ``fenced``:
    it has the token of the lock as well.
    """
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    changes = COMPACTED not in (carries or {})
    stored = columns(table) if becomes is None else [(name, delta_type(kind)) for name, kind in becomes.items()]
    noted = heads.note(heads.following(table, stored, _live(table), heads.Change(added, removed, txn)))
    actions: list[AddAction | RemoveAction] = [_add_action(file, now, changes=changes) for file in added]
    if removed and becomes is None:
        # Readers of the change feed need the sizes and partitions of removed files.
        live, gone = _add_actions(table), frozenset(removed)
        partitions = {name: column for name, column in live.items() if name.startswith("partition.")}
        for place, path in enumerate(live["path"]):
            if path in gone:
                of: dict[str, str | None] = {
                    name.removeprefix("partition."): str(column[place]) for name, column in partitions.items()
                }
                actions.append(RemoveAction(path, changes, now, live["size_bytes"][place], of))
    schema = None if becomes is None else _delta_schema(becomes)
    _write_actions(table, actions, _transaction(txn, {**(carries or {}), **noted}, fenced=fenced), schema)


def fence(table: DeltaTable, token: int) -> None:
    """Commit the token of the lock to the ledger and nothing else. Raises Overtaken."""
    from deltalake import CommitProperties, Transaction

    number = Transaction(FENCE, token)
    properties = CommitProperties({FENCE: str(token)}, max_commit_retries=0, app_transactions=[number])
    _write_actions(table, [], properties)


def token_of(table: DeltaTable) -> int:
    """The greatest token of the lock that the ledger has; 0 without one."""
    return table.transaction_version(FENCE) or 0


def _write_actions(
    table: DeltaTable, actions: list[AddAction | RemoveAction], properties: CommitProperties,
    becomes: Any = None,
) -> None:  # fmt: skip
    """With ``becomes`` the table has this schema then, and all files that it had are removed."""
    from deltalake.exceptions import CommitFailedError

    try:
        table.create_write_transaction(
            actions, "append" if becomes is None else "overwrite", table.schema() if becomes is None else becomes,
            table.metadata().partition_columns, commit_properties=properties,
        )  # fmt: skip
    except CommitFailedError as error:
        if _lease is None:
            raise
        raise Overtaken from error
    table.update_incremental()


def live_files(folder: Place, state: TableState | None) -> list[LiveFile]:
    """The data files of a table in the state that the ledger names, by path; none for None. Reads the Delta log only.

    If all later commits are maintenance (OPTIMIZE, VACUUM), these are the files after it: the old ones may be deleted.
    Raises StorageError where the log differs from the ledger.
    """
    if state is None:
        return []
    if (head := _head(folder, state)) is not None:
        return [*head.files]
    with reading(folder, "read", state):
        return _check_files(folder, _table_at(folder, open_table(folder), state.version), state)


def opened(folder: Place, state: TableState) -> DeltaTable:
    """The table at a state that the ledger names, or after later maintenance. StorageError where its log lost that."""
    with reading(folder, "read", state):
        return _table_at(folder, open_table(folder), state.version)


def stored_columns(folder: Place, state: TableState | None = None) -> list[tuple[str, str]]:
    """Names and Delta types of a table's columns, in order, at a state that the ledger names, else in its newest
    version.
    """
    if (head := _head(folder, state)) is not None:
        return [*head.columns]
    with reading(folder, state=state):
        return columns(open_table(folder) if state is None else opened(folder, state))


@contextmanager
def reading(folder: Place, doing: str = "read", state: TableState | None = None) -> Iterator[None]:
    """Report errors of a table (:func:`reporting`). They name the version that the ledger names, and those whose
    commits are lost: someone deleted them, or the log was cleaned up.
    """
    try:
        with reporting(folder, doing, mend_hint(folder)):
            yield
    except StorageError as error:
        if error.__cause__ is None:  # ours, and clear already
            raise
        version = None if state is None else state.version
        lost = lost_versions(folder, version)
        place = f"{doing} {folder}" if version is None else f"{doing} {folder} at version {version} of the table"
        if lost:
            raise StorageError(f"cannot {place}: {gap_text(lost)}", mend_hint(folder)) from error
        if doing == "read" and place not in error.message:  # an inner call may have named the version
            error.message = error.message.replace(f"{doing} {folder}", place, 1)
        raise


def _check_present(folder: Place, paths: Iterable[str], state: TableState) -> None:
    """Raise StorageError for a file that version ``state`` needs and that was deleted, as VACUUM does after DELETE."""
    for path in sorted(paths):
        if not store.is_file(folder / path):
            raise StorageError(
                f"{folder / path} is missing: version {state.version} of the table needs it", mend_hint(folder)
            )


def state_at(folder: Place, version: int) -> TableState:
    """The state of a table at one of its versions."""
    table = open_table(folder, version)
    return _state(table, _live(table))


def files_of(table: DeltaTable) -> list[LiveFile]:
    """The data files of an open table, by path."""
    return _live(table)


def scan(
    folder: Place, files: Sequence[AddedFile | LiveFile], schema: Schema, *, check: bool = True,
    may_meet: datafile.MayMeet | None = None,
) -> pl.LazyFrame:  # fmt: skip
    """The rows of some of a table's files, in file order, as a lazy frame.

    ``may_meet``: rows that cannot meet it may be left out, with their row groups, which are neither checked nor read.
    Checks the digests of these files first, because Polars' reader checks nothing; not where the caller just did.
    Columns that were added to the table after a file was written are null in its rows.
    """
    import polars as pl

    types = {name: kind.polars for name, kind in schema.items()}
    if not files:
        return pl.LazyFrame(schema=types)
    # Files that another engine's OPTIMIZE wrote may hold nanoseconds without a zone.
    casts = pl.ScanCastOptions(
        integer_cast="upcast", float_cast="upcast", datetime_cast=["nanosecond-downcast", "convert-timezone"]
    )
    paths, hint = [folder / file.path for file in files], mend_hint(folder)
    ranges: dict[Place, list[tuple[int, int]]] = {}
    for path in paths if check else ():
        if isinstance(path, Path) and may_meet is not None:
            places = datafile.rows_that_may_meet(path, hint, may_meet)
            if places is not None:
                ranges[path] = places
        elif isinstance(path, Path):
            datafile.verify(path, hint)
    # The statistics of files that other programs wrote may be wrong.
    trusted = all(datafile.has_digests(path) for path in paths)
    reader = partial(
        pl.scan_parquet,
        schema=types,
        cast_options=casts,
        missing_columns="insert",
        glob=False,
        hive_partitioning=False,
        use_statistics=trusted,
    )
    if not ranges:
        return reader(sources(paths, hint))
    # A reader of a slice reads the row groups of the slice.
    parts = [
        reader(sources([path], hint)).slice(*place) for path in paths for place in ranges.get(path, [(0, None)])
    ]  # fmt: skip
    return pl.concat(parts) if parts else pl.LazyFrame(schema=types)


def exists(folder: Place) -> bool:
    """Whether a folder is a table. One with an empty log, from a crash during creation, is not."""
    return has_commits(folder) or newest_checkpoint(folder) >= 0


_tables: dict[Place, DeltaTable] | None = None  # for the holder of the warehouse's lock: see kept_open
_heads: dict[Place, Head] | None = None  # the same for tables that are known by their newest commit
_lease: Lease | None = None  # the lock, where it can expire
_unsynced: list[tuple[Place, list[Place]]] | None = None  # data files and their folders: see synced_together
_group: _Group | None = None  # commits that are made together


@contextmanager
def kept_open(lock: Lock | Lease | None = None) -> Iterator[None]:
    """Within this context each table is opened once, and then updated by this process's own commits.

    For a command that holds the warehouse's ``lock``, so that no other process commits.
    """
    global _tables, _heads, _lease  # noqa: PLW0603  (a process writes to one warehouse at a time)
    before = _tables, _heads, _lease
    _tables, _heads = {} if _tables is None else _tables, {} if _heads is None else _heads
    _lease = _lease if lock is None or isinstance(lock, Lock) else lock
    try:
        yield
    finally:
        _tables, _heads, _lease = before


@contextmanager
def synced_together() -> Iterator[None]:
    """Data files that are written within this context are synced to the disk at its end, side by side."""
    global _unsynced  # noqa: PLW0603
    before, _unsynced = _unsynced, []
    try:
        yield
        with reporting(_unsynced[0][0] if _unsynced else Path(), "write to"):
            sync_all([file for file, _ in _unsynced], [folder for _, folders in _unsynced for folder in folders])
    finally:
        _unsynced = before


@dataclass(slots=True)
class _Group:
    """Commits that are made together, and the tables to which another program had committed meanwhile."""

    pending: list[Prepared]
    overtaken: set[Place]

    def publish(self) -> None:
        """Make the commits that are pending."""
        pending, self.pending = self.pending, []
        self.overtaken |= {each.folder for each in pending} - {each.folder for each in _published(pending)}


@contextmanager
def together() -> Iterator[set[Place]]:
    """Commits within this context are made at its end, in their order, and synced side by side.

    All are synced under temporary names first; then each gets its number. What it gives has then the tables for which
    that failed, since another program had committed to them: these commits are to be made again.
    """
    global _group  # noqa: PLW0603
    before, _group = _group, _Group([], set())
    try:
        yield _group.overtaken
        _group.publish()
    finally:
        for each in _group.pending:  # of a command that failed before
            forget(each.folder)
            store.delete(each.temporary)
        _group = before


def _published(group: Sequence[Prepared], *, is_table: bool = True) -> list[Prepared]:
    """Sync commits and give them their numbers; those for which these were free. ``is_table``: not the ledger."""
    done = []
    with reporting(group[0].folder if group else Path(), "commit to"):
        sync_all([each.temporary for each in group], [])
    for each in group:
        with reading(each.folder, "commit to"):
            try:
                heads.publish(each)
            except FileExistsError:
                forget(each.folder)
                continue
            done.append(each)
            if is_table:
                failpoint("after-table")
    with reporting(group[0].folder if group else Path(), "commit to"):
        sync_all([], [each.folder / LOG for each in done])
    return done


def sync_all(files: Sequence[Place], folders: Sequence[Place]) -> None:
    """Sync files to the disk, side by side, and then the names in folders."""
    for places in (files, list(dict.fromkeys(folders))):
        if len(places) < _FEW:
            for place in places:
                sync(place)
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(_SYNCS) as pool:
                list(pool.map(sync, places))


def _head(folder: Place, state: TableState | None) -> Head | None:
    """The head of a table at a state that the ledger names, if that is its newest version."""
    if _heads is not None and state is not None and (head := _heads.get(folder)) is not None and head.state == state:
        return head
    head = heads.at(folder, state)
    if head is not None:
        _note_head(folder, head)
    return head


def _note_head(folder: Place, head: Head) -> None:
    if _heads is not None:
        _heads[folder] = head
    if _tables is not None and folder in _tables and _tables[folder].version() != head.version:
        del _tables[folder]


def lease() -> Lease | None:
    """The lock that this process holds, where it can expire: in an object store."""
    return _lease


def require_lock() -> None:
    """Raise LockHeld if the lock expired and another process took it over. One request; nothing in a folder.

    Whoever deletes files that it found in a store calls this after it found them and before it deletes: then none of
    them is one that a later holder wrote.
    """
    if _lease is not None:
        _lease.check()


def is_writer() -> bool:
    """Whether this process holds the warehouse's lock: see :func:`kept_open`."""
    return _tables is not None


def open_table(folder: Place, version: int | None = None) -> DeltaTable:
    """The table at a version, by default the newest. StorageError for a log with a gap; the library's errors for other
    damage.
    """
    if version is not None or _tables is None:
        return _opened_at(folder, version)
    if folder not in _tables:
        _keep(folder, _opened_at(folder, None))
    return _tables[folder]


def _opened_at(folder: Place, version: int | None) -> DeltaTable:
    try:
        return _loaded(folder, version)
    except DdError:
        raise
    except Exception as error:
        if gap := lost_versions(folder, version):
            raise StorageError(f"cannot read {folder}: {gap_text(gap)}", mend_hint(folder)) from error
        raise


def _loaded(folder: Place, version: int | None) -> DeltaTable:
    from deltalake import DeltaTable

    options = options_of(folder)
    if options is None:
        return DeltaTable(location(folder), version=version)
    from ddcore.io.storage import objects

    return objects.complete(lambda: DeltaTable(location(folder), version=version, storage_options=options))


def write_checkpoint(folder: Place, version: int) -> None:
    """Write a checkpoint of a table at one of its versions, so that entries of its log before that can be deleted."""
    require_lock()
    open_table(folder, version).create_checkpoint()
    settle(folder, version, version)


def keep_removals(folder: Place, seconds: float) -> None:
    """Let checkpoints name a removed file for so long. By default they do for a week, so that they grow with the number
    of runs in a week. Commits the table's property if it has another value.
    """
    with reporting(folder, "set a property of", mend_hint(folder)):
        table = open_table(folder)
        wanted = f"interval {max(1, int(seconds))} seconds"
        if table.metadata().configuration.get(_REMOVALS, _WEEK) != wanted:
            require_lock()
            table.alter.set_table_properties({_REMOVALS: wanted})
            table.update_incremental()
            settle(folder, table.version(), table.version())


def forget(folder: Place) -> None:
    """A table's folder is gone: see :func:`kept_open`."""
    if _tables is not None:
        _tables.pop(folder, None)
    if _heads is not None:
        _heads.pop(folder, None)


def location(folder: Place) -> str:
    """``folder`` as a path for delta-rs; UsageError where it would look somewhere else.

    delta-rs turns the real path into a URL, and its kernel decodes that URL twice: ``%41`` becomes ``A`` and a
    backslash becomes a slash. It refuses control characters and bytes that are not UTF-8. Neither quoting nor a symlink
    helps.
    """
    if not isinstance(folder, Path):
        return str(folder)
    if wrong := _NOT_IN_PATHS.search(os.path.realpath(folder)):
        raise UsageError(
            f"{str(folder)!r}: the Delta library cannot open tables below a folder whose name has {wrong[0]!r}",
            "rename the folder, or name another one with --warehouse DIR",
        )
    return str(folder)


def options_of(folder: Place) -> dict[str, str] | None:
    """The settings of the store for the Delta library; None for a folder of the file system."""
    if isinstance(folder, Path):
        return None
    from ddcore.io.storage import objects

    return objects.options()


def sources(paths: Sequence[Place], hint: str) -> Any:
    """Data files for Polars: paths, or the checked bytes of objects, which it does not fetch a second time then."""
    return [path if isinstance(path, Path) else datafile.content(path, hint) for path in paths]


def _keep(folder: Place, table: DeltaTable) -> None:
    if _tables is not None:
        _tables[folder] = table


def settle(folder: Place, first: int, last: int) -> None:
    """Sync commits ``first`` to ``last`` to the disk, before anything that depends on them is written.

    Commits before a checkpoint may have been deleted. Checkpoints of these commits are synced too; with ``first`` 0, a
    table that may be new, also the names of its folder and of its parents.
    """
    log = folder / LOG
    if not isinstance(log, Path):
        return
    for version in range(last, first - 1, -1):
        for path in (commit_file(folder, version), log / f"{version:020d}.checkpoint.parquet"):
            if store.exists(path):
                sync(path)
    if (log / "_last_checkpoint").exists():
        sync(log / "_last_checkpoint")
    sync(log)
    if first == 0 and isinstance(folder, Path):
        _sync_parents(folder)


def mend_hint(folder: Place) -> str:
    """The hint for a damaged table: state and outputs can be rebuilt, inputs cannot."""
    if folder.parent.name == "inputs":
        return "restore the folder from a backup, or ingest its sources into a new warehouse"
    return REFRESH if not _is_ledger(folder) else "restore the folder from a backup"


def arrow_table(columns: Mapping[str, Any], schema: Schema) -> pa.Table:
    """Arrow columns, cast to exactly the types of ``schema``, also inside lists and structs."""
    import pyarrow as pa

    types = pa.schema([pa.field(name, kind.arrow) for name, kind in schema.items()])
    given = pa.table({name: columns[name] for name in schema})
    arrays = [_of_type(column, field.type) for column, field in zip(given.columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=types)


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column cast to a type. Texts of Polars with their offsets in 64 bits are cast here: Arrow's own casts are among
    its functions, whose import takes longer than most columns.
    """
    import pyarrow as pa

    if column.type == kind:
        return column
    is_text = pa.types.is_large_string(column.type) and pa.types.is_string(kind)
    if not is_text or any(chunk.offset or chunk.nbytes >= 2**31 for chunk in column.chunks):
        return column.cast(kind)
    return pa.chunked_array([_short_text(chunk) for chunk in column.chunks], type=kind)


def _short_text(texts: pa.Array) -> pa.Array:
    """Texts with offsets of 32 bits; they have fewer than 2 GiB and begin with their buffers."""
    import pyarrow as pa

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


def _add_columns(head: DeltaTable, named: DeltaTable, adds: Mapping[str, Type]) -> None:
    """Give a table the columns of an earlier version, and those of ``adds`` which that lacks. They are nullable."""
    stored = columns(named)
    if columns(head) != stored:
        _restore(head, named.version())
    new = {name: kind for name, kind in adds.items() if name not in dict(stored)}
    if new:
        head.alter.add_columns(list(_delta_schema(new).fields))
        failpoint("after-columns")
        head.update_incremental()


def _restore(table: DeltaTable, version: int) -> None:
    """Give a table the files of one of its earlier versions, in a commit. It keeps its properties: a later version may
    have got the change data feed.
    """
    properties = table.metadata().configuration
    table.restore(version)
    failpoint("after-restore")
    table.update_incremental()
    if properties != table.metadata().configuration:
        table.alter.set_table_properties(properties)
        failpoint("after-properties")
        table.update_incremental()


def _table_at(folder: Place, head: DeltaTable, version: int) -> DeltaTable:
    """The table at a version that the ledger names, or at the last of the maintenance commits that follow it."""
    newest = head.version()
    while version < newest and is_maintenance(folder, version + 1):
        version += 1
    return head if newest == version else open_table(folder, version)


def _check_files(folder: Place, table: DeltaTable, state: TableState) -> list[LiveFile]:
    """The live files of a table at ``state`` or at later maintenance of it; StorageError if they differ."""
    files = _live(table)
    now = _state(table, files)
    if now == state or (now.version > state.version and now.rows == state.rows):
        return files
    before, after = ((f"{each.files} files with {each.rows} rows") for each in (state, now))
    what = f"it has {after}, the ledger says {before}" if before != after else "its files differ from the ledger's"
    raise StorageError(f"{folder} is damaged: at version {state.version} of the table {what}", mend_hint(folder))


def _state(table: DeltaTable, files: Sequence[LiveFile]) -> TableState:
    """The state of a table for the ledger. Only integer bounds count: libraries all read those alike."""
    return state_of(table.version(), columns(table), table.metadata().partition_columns, files)


def _live(table: DeltaTable) -> list[LiveFile]:
    """A table's data files, by path."""
    columns = _add_actions(table)
    lower = {name.removeprefix("min."): values for name, values in columns.items() if name.startswith("min.")}
    upper = {name.removeprefix("max."): values for name, values in columns.items() if name.startswith("max.")}
    files = [
        LiveFile(
            path,
            columns["size_bytes"][i],
            columns["num_records"][i] or 0,
            {name: values[i] for name, values in lower.items() if values[i] is not None},
            {name: values[i] for name, values in upper.items() if values[i] is not None},
        )
        for i, path in enumerate(columns["path"])
    ]
    return sorted(files, key=lambda file: file.path)


def _paths(table: DeltaTable) -> set[str]:
    return set(values(table.get_add_actions().column("path")))


def _add_actions(table: DeltaTable) -> dict[str, list[Any]]:
    """The log's entries for live files, by column."""
    actions = table.get_add_actions(flatten=True)
    return {name: values(actions.column(name)) for name in actions.schema.names}


def values(column: Any) -> list[Any]:
    """An arro3 column as Python values: arro3 has no ``to_pylist``, only ``as_py`` of scalars."""
    return [value.as_py() for value in column]


def _transaction(txn: int, carries: Mapping[str, str] | None, *, fenced: bool) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    if _lease is None:
        return CommitProperties(custom_metadata=dict(carries or {}), app_transactions=[Transaction(APP, txn)])
    numbers = [Transaction(APP, txn), *([Transaction(FENCE, _lease.token)] if fenced else [])]
    # No retries: the library would commit on top of what this process has not seen.
    metadata = {**(carries or {}), AFTER: str(_lease.entry)}
    return CommitProperties(custom_metadata=metadata, max_commit_retries=0, app_transactions=numbers)


def _add_action(file: AddedFile, now: int, *, changes: bool = True) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(file.path, file.size, dict(file.partition), now, changes, file.stats)


def _delta_schema(schema: Mapping[str, Type | str]) -> Any:
    from deltalake import Field
    from deltalake import Schema as DeltaSchema
    from deltalake.schema import ArrayType, PrimitiveType, StructType

    def described(kind: Type | str) -> Any:
        if isinstance(kind, str) or not kind.is_nested:
            return PrimitiveType(delta_type(kind))
        if kind.element is not None:
            return ArrayType(described(kind.element))
        return StructType([Field(name, described(inner)) for name, inner in kind.fields])

    return DeltaSchema([Field(name, described(kind)) for name, kind in schema.items()])


def columns(table: DeltaTable) -> list[tuple[str, str]]:
    """Names and Delta types of a table's columns, in order."""
    return [(column.name, _type_name(column.type)) for column in table.schema().fields]


def _type_name(kind: Any) -> str:
    if hasattr(kind, "element_type"):
        return f"array<{_type_name(kind.element_type)}>"
    if hasattr(kind, "fields"):
        return f"struct<{', '.join(f'{json.dumps(each.name)}: {_type_name(each.type)}' for each in kind.fields)}>"
    return str(getattr(kind, "type", kind))


def _columns(columns: Sequence[tuple[str, str]]) -> str:
    return "(" + ", ".join(f"{name} {kind}" for name, kind in columns) + ")"


def _is_ledger(folder: Place) -> bool:
    """Whether a table is the ledger; an input or output of that name is in another folder."""
    return folder.name == "ledger" and folder.parent.name not in ("inputs", "outputs", "state")


def _sync_parents(folder: Path) -> None:
    """Sync a new table's folder and its parents, which may be new as well, to the disk."""
    for parent in (folder, *list(folder.parents)[:2]):
        with suppress(PermissionError):  # folders above the warehouse may be unreadable
            sync(parent)
