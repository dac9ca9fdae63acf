"""Opening Delta tables: a reader does it each time, the writer of the warehouse once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.errors import DdError, StorageError, UsageError
from ddcore.io.delta import heads
from ddcore.io.delta.deltalog import gap_text, lost_versions
from ddcore.io.delta.heads import Head
from ddcore.io.delta.table_files import TableState
from ddcore.io.storage import objects
from ddcore.io.storage.reporting import REFRESH, reporting
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ddcore.io.delta.writer import Writer

_NOT_IN_PATHS = re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f\ud800-\udfff]")


@contextmanager
def reading(folder: Location, doing: str = "read", state: TableState | None = None) -> Iterator[None]:
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
        what = f"{doing} {folder}" if version is None else f"{doing} {folder} at version {version} of the table"
        if lost:
            raise StorageError(f"cannot {what}: {gap_text(lost)}", mend_hint(folder)) from error
        if doing == "read" and what not in error.message:  # an inner call may have named the version
            error.message = error.message.replace(f"{doing} {folder}", what, 1)
        raise


def head_of(folder: Location, state: TableState | None, writer: Writer | None = None) -> Head | None:
    """The head of a table at a state that the ledger names, if that is its newest version."""
    known = None if writer is None else writer.heads.get(folder)
    if known is not None and known.state == state:
        return known
    head = heads.at(folder, state, None if writer is None else writer.seen.get(folder))
    if head is not None and writer is not None:
        writer.note_head(folder, head)
    return head


def open_table(folder: Location, version: int | None = None, *, writer: Writer | None = None) -> DeltaTable:
    """The table at a version, by default the newest. StorageError for a log with a gap; the library's errors for other
    damage. A ``writer`` opens the newest once.
    """
    if version is not None or writer is None:
        return _opened_at(folder, version)
    if (table := writer.table(folder)) is None:
        table = _opened_at(folder, None)
        writer.keep(folder, table)
    return table


def _opened_at(folder: Location, version: int | None) -> DeltaTable:
    try:
        return _loaded(folder, version)
    except DdError:
        raise
    except Exception as error:
        if gap := lost_versions(folder, version):
            raise StorageError(f"cannot read {folder}: {gap_text(gap)}", mend_hint(folder)) from error
        raise


def _loaded(folder: Location, version: int | None) -> DeltaTable:
    from deltalake import DeltaTable

    options = options_of(folder)
    if options is None:
        return DeltaTable(location(folder), version=version)
    return objects.complete(lambda: DeltaTable(location(folder), version=version, storage_options=options))


def location(folder: Location) -> str:
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


def options_of(folder: Location) -> dict[str, str] | None:
    """The settings of the store for the Delta library; None for a folder of the file system."""
    return None if isinstance(folder, Path) else objects.options()


def mend_hint(folder: Location) -> str:
    """The hint for a damaged table: state and outputs can be rebuilt, inputs cannot."""
    if folder.parent.name == "inputs":
        return "restore the folder from a backup, or ingest its sources into a new warehouse"
    return REFRESH if not is_ledger(folder) else "restore the folder from a backup"


def is_ledger(folder: Location) -> bool:
    """Whether a table is the ledger; an input or output of that name is in another folder."""
    return folder.name == "ledger" and folder.parent.name not in ("inputs", "outputs", "state")
