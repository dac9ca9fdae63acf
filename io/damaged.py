"""Tables that are about to be replaced and whose Delta logs cannot be read: they make room for new ones.

A folder is renamed. An object store has no renames, and a process that lost the lock must not delete what a new table
may have under the same names. So there the log begins anew behind its damaged end: with a commit of the next number,
which only one process can write, and a checkpoint of it, behind which no reader looks. Nothing is copied or deleted.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from ddcore.errors import StorageError
from ddcore.io import objects, scratch, store, tables
from ddcore.io.address import Address
from ddcore.io.deltalog import LOG, checkpoint_file, commit_file, versions_of
from ddcore.io.failpoint import failpoint
from ddcore.io.store import Place, sync
from ddcore.io.warehouse import reporting

__all__ = ["set_aside"]


def set_aside(folder: Place) -> None:
    """Let a table whose log cannot be read be created anew: its folder is renamed to ``_damaged-NAME-1``; in an object
    store its log goes on with an empty table.

    For tables that are about to be replaced, before anything is written into their folders.
    """
    if not store.exists(folder) or _is_whole(folder):
        return
    if not isinstance(folder, Path):
        with reporting(folder, "begin anew the log of"):
            _begin_anew(folder)
        return
    places = (folder.with_name(f"_damaged-{folder.name}-{number}") for number in range(1, 10_000))
    with reporting(folder, "rename"):
        folder.rename(next(place for place in places if not place.exists()))
        sync(folder.parent)
        failpoint("after-aside")


def _is_whole(folder: Place) -> bool:
    """Whether a table can be read and committed to."""
    try:
        with reporting(folder, "read"):
            if not tables.exists(folder):
                return False
            table = tables.open_table(folder)
            tables.files_of(table)
            # A checkpoint alone can be read, but not committed to.
            return store.is_file(commit_file(folder, table.version()))
    except StorageError:
        return False


def _begin_anew(folder: Address) -> None:
    """Commit an empty table as the version after all that the log names; nothing where it names none.

    Its one column stands for those that the new table gets when it is created.
    """
    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType

    version = 1 + max((each for some in versions_of(folder) for each in some), default=-1)
    if version == 0:
        return
    with tempfile.TemporaryDirectory(dir=scratch.folder()) as place:
        DeltaTable.create(place, Schema([Field("diff", PrimitiveType("long"))])).create_checkpoint()
        commit, checkpoint = (store.read(file(Path(place), 0)) for file in (commit_file, checkpoint_file))
        tables.require_lock()
        if not objects.create(folder / LOG / commit_file(folder, version).name, commit):
            raise StorageError(
                f"cannot begin anew the log of {folder}: another process did at the same time",
                "run the same command again",
            )
        failpoint("after-aside")
        objects.put(folder / LOG / checkpoint_file(folder, version).name, checkpoint)
    tables.forget(folder)
    failpoint("after-aside")
