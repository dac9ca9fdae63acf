"""Operations on Delta tables that change logs, arrangements and the ledger share.

A data file is written under a temporary name and then renamed; its name ends in a digest, so files of equal names have
equal contents (:mod:`ddcore.io.parquet.datafile`). A commit makes it visible. A commit states the files that the table
has afterwards, not the files to add: repeating it changes nothing, and it removes the files of a crashed attempt.

A commit returns the table's new :class:`TableState`, which the ledger keeps. Whenever the table is opened later, it is
compared: a log that lost a commit, or names other files, rows or bounds, is an error and never another result.

Tables stay on the reader protocol 1: every Delta reader opens them. Nothing here starts a JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ddcore.base.errors import StorageError
from ddcore.base.lazy import polars as pl
from ddcore.io.delta import heads, syncs
from ddcore.io.delta.column_types import column_text, columns, delta_schema
from ddcore.io.delta.deltalog import commit_file, has_commits, is_maintenance, newest_checkpoint, transaction_of
from ddcore.io.delta.open_tables import head_of, is_ledger, location, mend_hint, open_table, options_of, reading
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState, state_of
from ddcore.io.parquet import datafile
from ddcore.io.storage import store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ddcore.base.schema import Schema, Type
    from ddcore.io.delta.writer import Writer

APP = "ddcore"  # the one application id of our transactions; its version is the number of the run or ingest


_REMOVALS, _WEEK = "delta.deletedFileRetentionDuration", f"interval {7 * 86_400} seconds"


def schema_of(folder: Location, writer: Writer | None = None) -> Schema:
    """The columns of one of our tables in order."""
    from ddcore.base.schema import parse_type

    with reporting(folder, "read", mend_hint(folder)):
        return {name: parse_type(kind) for name, kind in columns(open_table(folder, writer=writer))}


def create(
    writer: Writer,
    folder: Location,
    schema: Mapping[str, Type | str],
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

    address = location(folder)
    wanted = [(name, str(kind)) for name, kind in schema.items()]
    with reading(folder, "create the table"):
        mode: Literal["error", "overwrite"] = "error"
        stored = None
        if (known := writer.heads.get(folder) or heads.newest(folder)) is not None:
            stored = [*known.columns]
        elif exists(folder):
            stored = columns(open_table(folder, writer=writer))
        if stored == wanted:
            syncs.settle(folder, 0, 0)  # the process that created it may have been killed before it did this
            return
        if stored is not None and not replace:
            raise StorageError(f"{folder} holds {column_text(stored)}, not {column_text(wanted)}", mend_hint(folder))
        if stored is not None:
            mode = "overwrite"
        if isinstance(folder, Path) and not folder.exists():
            store.create_folder(folder)
            failpoint("after-folder")
        writer.require_lock()
        settings = {"delta.checkpointInterval": str(writer.tuning.checkpoint_commits), **(configuration or {})}
        described, version = delta_schema(schema), 0
        head = None
        if stored is None and isinstance(folder, Path):
            head = heads.create(folder, wanted, described.to_json(), settings, description)
        if head is not None:
            writer.note_head(folder, head)
        else:
            table = DeltaTable.create(
                address, described, mode=mode, description=description, configuration=settings,
                storage_options=options_of(folder),
            )  # fmt: skip
            writer.keep(folder, table)
            version = table.version()
        syncs.settle(folder, 0 if stored is None else version, version)
        failpoint("after-begin" if is_ledger(folder) else "after-create")


def committed(writer: Writer, folder: Location, txn: int, base: TableState | None) -> TableState | None:
    """The state of a table if its last commit, but for maintenance, has the transaction number ``txn``; else None.

    Every commit after ``base`` is on the disk when this returns.
    """
    if not exists(folder):
        return None
    with reading(folder, "read", base):
        head = open_table(folder, writer=writer)
        head.update_incremental()
        since, version = 0 if base is None else base.version + 1, head.version()
        while version >= since and is_maintenance(folder, version):
            version -= 1
        if version < since or transaction_of(folder, version, APP) != txn:
            return None
        syncs.settle(folder, since, head.version())
        return state_of_table(head, files_of(head))


def strays(writer: Writer, folder: Location, base: TableState | None) -> list[LiveFile]:
    """The files of ours that a table holds beyond those of ``base``: runs that were given up had committed them."""
    if not exists(folder):
        return []
    known = {file.path for file in live_files(folder, base, writer)}
    with reporting(folder, "read", mend_hint(folder)):
        head = open_table(folder, writer=writer)
        head.update_incremental()
        return [file for file in files_of(head) if file.path not in known and datafile.has_digests(folder / file.path)]


def is_settled(folder: Location, base: TableState) -> bool:
    """Whether no commits but maintenance came after ``base``: none of a run that did not finish. Looks for one file."""
    version = base.version + 1
    while is_maintenance(folder, version):
        version += 1
    return not store.is_file(commit_file(folder, version))


def lost(writer: Writer, folder: Location, base: TableState | None) -> list[LiveFile]:
    """The files of a table at ``base`` that its newest version does not have: a run that was given up removed them."""
    with reporting(folder, "read", mend_hint(folder)):
        live = paths_of(open_table(folder, writer=writer))
    return [file for file in live_files(folder, base, writer) if file.path not in live]


def is_kept(folder: Location, state: TableState, writer: Writer | None = None) -> bool:
    """Whether a table can still be opened as it was in an earlier state: its log is there, and all its files are."""
    try:
        return all(store.is_file(folder / file.path) for file in live_files(folder, state, writer))
    except StorageError:
        return False


def live_files(folder: Location, state: TableState | None, writer: Writer | None = None) -> list[LiveFile]:
    """The data files of a table in the state that the ledger names, by path; none for None. Reads the Delta log only.

    If all later commits are maintenance (OPTIMIZE, VACUUM), these are the files after it: the old ones may be deleted.
    Raises StorageError where the log differs from the ledger.
    """
    if state is None:
        return []
    if (head := head_of(folder, state, writer)) is not None:
        return [*head.files]
    if writer is not None and (known := writer.listed.get(folder)) and heads.is_current(folder, known, state):
        return [*known.files]
    with reading(folder, "read", state):
        newest = open_table(folder, writer=writer)
        stamp = heads.stamp(folder, newest.version())
        files = check_files(folder, table_at(folder, newest, state.version), state)
    if writer is not None:
        writer.listed[folder] = heads.Listed(state, newest.version(), stamp, tuple(files))
    return files


def stored_columns(
    folder: Location, state: TableState | None = None, writer: Writer | None = None
) -> list[tuple[str, str]]:
    """Names and types of a table's columns, in order, at a state that the ledger names, else in its newest
    version.
    """
    if (head := head_of(folder, state, writer)) is not None:
        return [*head.columns]
    with reading(folder, state=state):
        newest = open_table(folder, writer=writer)
        return columns(newest if state is None else table_at(folder, newest, state.version))


def state_at(folder: Location, version: int) -> TableState:
    """The state of a table at one of its versions."""
    table = open_table(folder, version)
    return state_of_table(table, files_of(table))


def scan(
    folder: Location, files: Sequence[AddedFile | LiveFile], schema: Schema, *, check: bool = True,
    may_meet: datafile.MayMeet | None = None, within: tuple[int, int] | None = None,
) -> pl.LazyFrame:  # fmt: skip
    """The rows of some of a table's files, in file order, as a lazy frame.

    ``may_meet``: rows that cannot meet it may be left out, with their row groups, which are neither checked nor read.
    ``within``: of each file only these rows, [start, stop), and the row groups that have them.
    Checks the digests of these files first, because Polars' reader checks nothing; not where the caller just did.
    Columns that were added to the table after a file was written are null in its rows.
    """
    types = {name: kind.stored.polars for name, kind in schema.items()}
    if not files:
        return values_of(pl.LazyFrame(schema=types), schema)
    # Files that another engine's OPTIMIZE wrote may hold nanoseconds without a zone.
    casts = pl.ScanCastOptions(
        integer_cast="upcast", float_cast="upcast", datetime_cast=["nanosecond-downcast", "convert-timezone"]
    )
    paths, hint = [folder / file.path for file in files], mend_hint(folder)
    ranges: dict[Location, list[tuple[int, int]]] = {}
    for path in paths if check else ():
        if isinstance(path, Path) and (may_meet or within):
            portions = datafile.rows_that_may_meet(path, hint, may_meet, within)
            if portions is not None:
                ranges[path] = portions
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
    if not ranges and within is None:
        return values_of(reader(sources(paths, hint)), schema)
    # A reader of a slice reads the row groups of the slice.
    whole = [(0, None)] if within is None else [(within[0], within[1] - within[0])]
    parts = [reader(sources([path], hint)).slice(*portion) for path in paths for portion in ranges.get(path, whole)]
    return values_of(pl.concat(parts) if parts else pl.LazyFrame(schema=types), schema)


def values_of(rows: pl.LazyFrame, schema: Schema) -> pl.LazyFrame:
    """Rows as files hold them, as values: of types that Delta does not have, the columns are another thing there."""
    other = {name: kind for name, kind in schema.items() if kind.stored != kind}
    if not other:
        return rows
    from ddcore.data.forms import from_stored

    return rows.with_columns(
        pl.col(name).map_batches(partial(from_stored, kind=kind), return_dtype=kind.polars, is_elementwise=True)
        for name, kind in other.items()
    )


def exists(folder: Location) -> bool:
    """Whether a folder is a table. One with an empty log, from a crash during creation, is not."""
    return has_commits(folder) or newest_checkpoint(folder) >= 0


def write_checkpoint(writer: Writer, folder: Location, version: int) -> None:
    """Write a checkpoint of a table at one of its versions, so that entries of its log before that can be deleted."""
    writer.require_lock()
    open_table(folder, version).create_checkpoint()
    syncs.settle(folder, version, version)


def keep_removals(writer: Writer, folder: Location, seconds: float) -> None:
    """Let checkpoints name a removed file for so long. By default they do for a week, so that they grow with the number
    of runs in a week. Commits the table's property if it has another value.
    """
    with reporting(folder, "set a property of", mend_hint(folder)):
        table = open_table(folder, writer=writer)
        wanted = f"interval {max(1, int(seconds))} seconds"
        if table.metadata().configuration.get(_REMOVALS, _WEEK) != wanted:
            writer.require_lock()
            table.alter.set_table_properties({_REMOVALS: wanted})
            table.update_incremental()
            syncs.settle(folder, table.version(), table.version())


def sources(paths: Sequence[Location], hint: str) -> Any:
    """Data files for Polars: paths, or the checked bytes of objects, which it does not fetch a second time then."""
    return [path if isinstance(path, Path) else datafile.content(path, hint) for path in paths]


def table_at(folder: Location, head: DeltaTable, version: int) -> DeltaTable:
    """The table at a version that the ledger names, or at the last of the maintenance commits that follow it."""
    newest = head.version()
    while version < newest and is_maintenance(folder, version + 1):
        version += 1
    return head if newest == version else open_table(folder, version)


def check_files(folder: Location, table: DeltaTable, state: TableState) -> list[LiveFile]:
    """The live files of a table at ``state`` or at later maintenance of it; StorageError if they differ."""
    files = files_of(table)
    now = state_of_table(table, files)
    if now == state or (now.version > state.version and now.rows == state.rows):
        return files
    before, after = ((f"{table_state.files} files with {table_state.rows} rows") for table_state in (state, now))
    what = f"it has {after}, the ledger says {before}" if before != after else "its files differ from the ledger's"
    raise StorageError(f"{folder} is damaged: at version {state.version} of the table {what}", mend_hint(folder))


def state_of_table(table: DeltaTable, files: Sequence[LiveFile]) -> TableState:
    """The state of a table for the ledger. Only integer bounds count: libraries all read those alike."""
    return state_of(table.version(), columns(table), files)


def files_of(table: DeltaTable) -> list[LiveFile]:
    """A table's data files, by path."""
    columns = add_actions(table)
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


def paths_of(table: DeltaTable) -> set[str]:
    """The paths of an open table's data files."""
    return set(values(table.get_add_actions().column("path")))


def add_actions(table: DeltaTable) -> dict[str, list[Any]]:
    """The log's entries for live files, by column."""
    actions = table.get_add_actions(flatten=True)
    return {name: values(actions.column(name)) for name in actions.schema.names}


def values(column: Any) -> list[Any]:
    """An arro3 column as Python values: arro3 has no ``to_pylist``, only ``as_py`` of scalars."""
    return [value.as_py() for value in column]
