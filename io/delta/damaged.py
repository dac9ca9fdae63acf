"""What is in the place of tables that are about to be replaced, and cannot be: it makes room for new ones.

A folder is renamed. An object store has no renames, and a process that lost the lock must not delete what a new table
may have under the same names. So there the log begins anew behind its damaged end: with a commit of the next number,
which only one process can write, and a checkpoint of it, behind which no reader looks. Nothing is copied or deleted.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.errors import StorageError
from ddcore.io.delta import open_tables, tables
from ddcore.io.delta.deltalog import LOG, checkpoint_file, commit_file, versions_of
from ddcore.io.parquet.datafile import has_digests
from ddcore.io.storage import objects, scratch, store
from ddcore.io.storage.address import Address
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location, sync

if TYPE_CHECKING:
    from ddcore.io.delta.writer import Writer

_logger = logging.getLogger("ddcore")


def set_aside(writer: Writer, folder: Location) -> None:
    """Let a table be created anew if it cannot be replaced by a commit: its log cannot be read, or it is not ours, or
    no table at all. Its folder is renamed to ``_damaged-NAME-1``; in an object store its log goes on, empty.

    For tables that are about to be replaced, before anything is written into their folders. Nothing is deleted.
    """
    if not isinstance(folder, Path):
        if store.exists(folder) and not _is_replaceable(writer, folder):
            with reporting(folder, "begin anew the log of"):
                _begin_anew(writer, folder)
    elif os.path.lexists(folder) and not _is_replaceable(writer, folder):
        _rename(folder)
        writer.forget(folder)


def set_aside_file(folder: Location) -> None:
    """Rename what is in the place of a folder of tables and is no folder, also a link that leads nowhere."""
    if isinstance(folder, Path) and os.path.lexists(folder) and not folder.is_dir():
        _rename(folder)


def _rename(folder: Path) -> None:
    free = (folder.with_name(f"_damaged-{folder.name}-{number}") for number in range(1, 10_000))
    with reporting(folder, "rename"):
        aside = next(aside for aside in free if not os.path.lexists(aside))
        folder.rename(aside)
        sync(folder.parent)
        failpoint("after-aside")
    _logger.info("note: %s cannot be replaced as a table of this warehouse: it was renamed to %s", folder, aside.name)


def _is_replaceable(writer: Writer, folder: Location) -> bool:
    """Whether a table is ours, and can be read and committed to."""
    try:
        with reporting(folder, "read"):
            if not tables.exists(folder):
                return _is_begun(folder)
            table = open_tables.open_table(folder, writer=writer)
            files = tables.files_of(table)
            is_ours = not files or table.transaction_version(tables.APP) is not None
            # Then no row of it may be removed.
            is_append_only = str(table.metadata().configuration.get("delta.appendOnly")).lower() == "true"
            is_plain = table.protocol().min_reader_version <= 1 and not is_append_only
            # A checkpoint alone can be read, but not committed to.
            has_commit = store.is_file(commit_file(folder, table.version()))
            return is_ours and is_plain and has_commit and not table.metadata().partition_columns
    except StorageError:
        return False


def _is_begun(folder: Location) -> bool:
    """Whether a folder without a log has only data files of ours: of a run that was killed before its first commit."""
    if isinstance(folder, Path) and not folder.is_dir():
        return False
    return all(file.address.name.startswith(".") or has_digests(file.address) for file in store.entries(folder))


def _begin_anew(writer: Writer, folder: Address) -> None:
    """Commit an empty table as the version after all that the log names; nothing where it names none.

    Its one column stands for those that the new table gets when it is created.
    """
    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType

    version = 1 + max((number for some in versions_of(folder) for number in some), default=-1)
    if version == 0:
        return
    with tempfile.TemporaryDirectory(dir=scratch.folder()) as temporary:
        DeltaTable.create(temporary, Schema([Field("diff", PrimitiveType("long"))])).create_checkpoint()
        commit, checkpoint = (store.read(file(Path(temporary), 0)) for file in (commit_file, checkpoint_file))
        writer.require_lock()
        if not objects.create(folder / LOG / commit_file(folder, version).name, commit):
            raise StorageError(
                f"cannot begin anew the log of {folder}: another process did at the same time",
                "run the same command again",
            )
        failpoint("after-aside")
        objects.put(folder / LOG / checkpoint_file(folder, version).name, checkpoint)
    writer.forget(folder)
    failpoint("after-aside")
