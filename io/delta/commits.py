"""Commits to tables.

A commit states the files that the table has afterwards, not the files to add: repeating it changes nothing, and it
removes the files of a crashed attempt.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import StorageError
from ddcore.io.delta import heads, syncs
from ddcore.io.delta.column_types import columns, delta_schema
from ddcore.io.delta.deltalog import AFTER, COMPACTED, FENCE, LOG
from ddcore.io.delta.heads import Head, Prepared
from ddcore.io.delta.open_tables import head_of, mend_hint, open_table, reading
from ddcore.io.delta.table_files import AddedFile, TableState
from ddcore.io.delta.tables import APP, check_files, files_of, paths_of, state_of_table, table_at
from ddcore.io.delta.writer import Group, Writer
from ddcore.io.storage import store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    from ddcore.base.schema import Type
    from ddcore.io.storage.lease import Lease

_ATTEMPTS = 10  # where others commit to the same table


def commit(
    writer: Writer,
    folder: Location,
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
                writer, folder, files, txn, base=base, overwrite=overwrite, without=without,
                beside=beside, restores_columns=restores_columns, adds=adds, becomes=becomes, carries=carries,
            )  # fmt: skip
        except Overtaken:
            writer.forget(folder)
    raise StorageError(f"cannot commit to {folder}: others commit to it all the time", "run the same command again")


def _commit(
    writer: Writer, folder: Location, files: Sequence[AddedFile], txn: int, *, base: TableState | None, overwrite: bool,
    without: frozenset[str], beside: frozenset[str], restores_columns: bool, adds: Mapping[str, Type] | None,
    becomes: Mapping[str, Type | str] | None, carries: Mapping[str, str] | None,
) -> TableState:  # fmt: skip
    known = writer.created(folder) if base is None and becomes is None else head_of(folder, base, writer)
    if known is not None and (adds is None or {*adds} <= {name for name, _ in known.columns}):
        live = {file.path for file in known.files}
        kept = live.intersection(beside) | (set() if overwrite else live - without)
        if done := _commit_on(writer, folder, known, frozenset(kept), heads.Change(files, (), txn, carries or {})):
            return done
    if writer.group is not None:
        _publish(writer, writer.group)  # what comes first is committed first
    with reading(folder, "commit to", base):
        head = open_table(folder, writer=writer)
        writer.require_lock()  # after the table was opened: see docs/storage.md
        since = 0 if base is None else base.version + 1
        live = paths_of(head)
        kept = live.intersection(beside)
        if base is not None and not overwrite:
            named = table_at(folder, head, base.version)
            kept |= {file.path for file in check_files(folder, named, base)}.difference(without)
            is_other = restores_columns and columns(head) != columns(named)
            if is_other or not kept <= live.union(file.path for file in files):
                _check_present(folder, kept - live, base)
                _restore(head, named.version())
                live = paths_of(head)
            if adds is not None:
                _add_columns(head, named, adds)
        added = [file for file in files if file.path not in live]
        removed = sorted(live - kept - {file.path for file in files})
        is_other = becomes is not None and columns(head) != [(name, str(kind)) for name, kind in becomes.items()]
        if is_other:
            added, removed = [*files], sorted(live)
        if added or removed or is_other:
            change(writer, head, added, removed, txn, carries=carries, becomes=becomes if is_other else None)
        syncs.settle(folder, since, head.version())
        state = state_of_table(head, files_of(head))
        if added or removed or is_other:
            failpoint("after-table")
    return state


def _commit_on(
    writer: Writer, folder: Location, head: Head, kept: frozenset[str], change: heads.Change
) -> TableState | None:
    """Commit from the head of a table: its live files become ``kept`` and those that ``change`` adds, which also has
    the number and the notes. None where the Delta library has to commit.
    """
    assert isinstance(folder, Path)
    live = {file.path for file in head.files}
    added = [file for file in change.added if file.path not in live]
    removed = sorted(live - kept - {file.path for file in change.added})
    if not (added or removed):
        return head.state
    with reading(folder, "commit to"):
        prepared = heads.prepare(folder, head, replace(change, added=added, removed=removed), APP)
    if prepared is None:
        return None
    writer.note_head(folder, prepared.head)
    if writer.group is not None:
        writer.group.pending.append(prepared)
    elif not _published(writer, [prepared]):
        return None
    return prepared.head.state


def change_from(writer: Writer, folder: Location, head: Head, change: heads.Change) -> Head | None:
    """Commit to a table from its head, and sync it; the head that it has then. None where the Delta library has to
    commit. Raises StorageError where another program just did.
    """
    assert isinstance(folder, Path)
    prepared = heads.prepare(folder, head, change, APP)
    if prepared is None:
        return None
    if not _published(writer, [prepared], is_table=False):
        raise StorageError(f"another program has committed to {folder} just now", "run the same command again")
    writer.note_head(folder, prepared.head)
    return prepared.head


class Overtaken(Exception):
    """Another process has committed to a table after this one opened it; in an object store, where that can be."""


def change(
    writer: Writer,
    table: DeltaTable,
    added: Sequence[AddedFile],
    removed: Sequence[str],
    txn: int,
    *,
    carries: Mapping[str, str] | None = None,
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
    stored = columns(table) if becomes is None else [(name, str(kind)) for name, kind in becomes.items()]
    files, gone = files_of(table), frozenset(() if becomes is not None else removed)
    noted = heads.note(heads.following(table, stored, files, heads.Change(added, removed, txn)))
    actions: list[AddAction | RemoveAction] = [_add_action(file, now, changes=changes) for file in added]
    # Readers of the change feed need the sizes of removed files.
    actions += [RemoveAction(file.path, changes, now, file.size, {}) for file in files if file.path in gone]
    schema = None if becomes is None else delta_schema(becomes)
    properties = _transaction(writer.lease, txn, {**(carries or {}), **noted}, fenced=fenced)
    _write_actions(writer, table, actions, properties, schema)


def fence(writer: Writer, table: DeltaTable, token: int) -> None:
    """Commit the token of the lock to the ledger and nothing else. Raises Overtaken."""
    from deltalake import CommitProperties, Transaction

    number = Transaction(FENCE, token)
    properties = CommitProperties({FENCE: str(token)}, max_commit_retries=0, app_transactions=[number])
    _write_actions(writer, table, [], properties)


def token_of(table: DeltaTable) -> int:
    """The greatest token of the lock that the ledger has; 0 without one."""
    return table.transaction_version(FENCE) or 0


def _write_actions(
    writer: Writer, table: DeltaTable, actions: list[AddAction | RemoveAction], properties: CommitProperties,
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
        if writer.lease is None:
            raise
        raise Overtaken from error
    table.update_incremental()


def _check_present(folder: Location, paths: Iterable[str], state: TableState) -> None:
    """Raise StorageError for a file that version ``state`` needs and that was deleted, as VACUUM does after DELETE."""
    for path in sorted(paths):
        if not store.is_file(folder / path):
            raise StorageError(
                f"{folder / path} is missing: version {state.version} of the table needs it", mend_hint(folder)
            )


@contextmanager
def together(writer: Writer) -> Iterator[set[Location]]:
    """The writer's commits within this context are made at its end, in their order, and synced side by side.

    All are synced under temporary names first; then each gets its number. What it gives has then the tables for which
    that failed, since another program had committed to them: these commits are to be made again.
    """
    before, writer.group = writer.group, (group := Group())
    try:
        yield group.overtaken
        _publish(writer, group)
    finally:
        for prepared in group.pending:  # of a command that failed before
            writer.forget(prepared.folder)
            store.delete(prepared.temporary)
        writer.group = before


def _publish(writer: Writer, group: Group) -> None:
    """Make the commits that are pending."""
    pending, group.pending = group.pending, []
    done = {prepared.folder for prepared in _published(writer, pending)}
    group.overtaken.update(prepared.folder for prepared in pending if prepared.folder not in done)


def _published(writer: Writer, group: Sequence[Prepared], *, is_table: bool = True) -> list[Prepared]:
    """Sync commits and give them their numbers; those for which these were free. ``is_table``: not the ledger."""
    done = []
    with reporting(group[0].folder if group else Path(), "commit to"):
        syncs.sync_all([prepared.temporary for prepared in group], [])
    for prepared in group:
        with reading(prepared.folder, "commit to"):
            try:
                heads.publish(prepared)
            except FileExistsError:
                writer.forget(prepared.folder)
                continue
            done.append(prepared)
            if is_table:
                failpoint("after-table")
    with reporting(group[0].folder if group else Path(), "commit to"):
        syncs.sync_all([], [prepared.folder / LOG for prepared in done])
    return done


def _add_columns(head: DeltaTable, named: DeltaTable, adds: Mapping[str, Type]) -> None:
    """Give a table the columns of an earlier version, and those of ``adds`` which that lacks. They are nullable."""
    stored = columns(named)
    if columns(head) != stored:
        _restore(head, named.version())
    new = {name: kind for name, kind in adds.items() if name not in dict(stored)}
    if new:
        head.alter.add_columns(list(delta_schema(new).fields))
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


def _transaction(held: Lease | None, txn: int, carries: Mapping[str, str] | None, *, fenced: bool) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    if held is None:
        return CommitProperties(custom_metadata=dict(carries or {}), app_transactions=[Transaction(APP, txn)])
    numbers = [Transaction(APP, txn), *([Transaction(FENCE, held.token)] if fenced else [])]
    # No retries: the library would commit on top of what this process has not seen.
    metadata = {**(carries or {}), AFTER: str(held.entry)}
    return CommitProperties(custom_metadata=metadata, max_commit_retries=0, app_transactions=numbers)


def _add_action(file: AddedFile, now: int, *, changes: bool = True) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(file.path, file.size, dict(file.partition), now, changes, file.stats)
