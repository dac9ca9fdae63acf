"""Retention: which earlier states of the tables stay on the disk, and the deletion of everything else.

A finished run is a *kept point* while its state is on the disk: a later run can go on from it, as
``run --from-version`` does. Files that only older states need are deleted, and so are the old entries of Delta logs.
Nothing is deleted that the ledger's live states or a kept point names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.errors import StorageError
from ddcore.io.delta import open_tables, tables
from ddcore.io.delta.deltalog import (
    LOG,
    checkpoint_file,
    commit_file,
    is_maintenance,
    paths_in,
    versions_of,
)
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import RunRecord
from ddcore.io.project.project import RetentionSettings
from ddcore.io.storage import readers, store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Entry, Location
from ddcore.io.storage.warehouse import Warehouse

if TYPE_CHECKING:
    from ddcore.io.delta.writer import Writer

MANY = 16  # files that a table may have before a run merges them
_DAY = 86_400
_FEW_RUNS, _MOST_RUNS, _WEEK = 4, 32, timedelta(days=7)  # kept points where the project does not say how many
_SLACK = 8  # entries that a log may have before the oldest version that is needed, until a checkpoint replaces them
_LEAST = 10.0  # seconds that checkpoints name a removed file
_LEFTOVER = 3600  # seconds after which a temporary file of a killed process is deleted


@dataclass
class Freed:
    """What was deleted, or would be."""

    files: int = 0
    bytes: int = 0


def kept_points(ledger: Ledger, retention: RetentionSettings) -> list[RunRecord]:
    """The runs of the lineage that later ones may continue, newest first; the last run is always one.

    A run is kept while at most ``retention.versions`` versions were folded after it. Without that setting: the last
    few runs, and those of the week before the last one, as long as these are not too many.
    """
    kept: list[RunRecord] = []
    for run in ledger.lineage():
        if kept and _is_old(run, kept, retention):
            break
        kept.append(run)
    return kept


def _is_old(run: RunRecord, kept: list[RunRecord], retention: RetentionSettings) -> bool:
    last = kept[0]
    if retention.versions is None:
        return len(kept) >= _MOST_RUNS or (len(kept) >= _FEW_RUNS and last.at - run.at > _WEEK)
    # The greatest of each coordinate so far, so that a run which was old once, and has lost its files, stays so.
    most: list[int] = [max(axis) for axis in zip(*(run.last for run in kept), strict=True)]
    return any(now - then > retention.versions for then, now in zip(run.last, most, strict=True))


def sweep(ledger: Ledger, retention: RetentionSettings, *, dry_run: bool = False) -> Freed:
    """Delete the files that neither the live tables nor a kept point needs, and old entries of Delta logs.

    Files of inputs and outputs, and their logs, stay for ``retention.days`` after they were replaced, for readers that
    do not ask the ledger; those of inputs also while a project that reads them has not gone on to later ones
    (:mod:`ddcore.io.storage.readers`). The caller holds the warehouse's lock, and no run is unfinished.
    """
    freed, warehouse, kept = Freed(), ledger.warehouse, kept_points(ledger, retention)
    writer = None if dry_run else ledger.owner
    live, ahead = ledger.states(), ledger.tables_ahead()
    held = readers.holds(warehouse.root).values()
    waiting = {f"{name}/{file.path}" for run in kept for name, files in run.corrections.items() for file in files}
    for name, folder in warehouse.tables():
        named = [run.tables[name].version for run in kept if name in run.tables]
        named += [states[name].version for states in (live, ahead) if name in states]
        if name.startswith("inputs/"):
            named += [hold.version_of(folder.name) for hold in held]
        if name.startswith("state/") and not named:
            _drop(writer, warehouse, name, freed)
        elif named:
            grace = None if name.startswith("state/") else retention.days * _DAY
            spared = {path.removeprefix(f"{name}/") for path in waiting if path.startswith(f"{name}/")}
            _sweep_table(writer, folder, {*named}, grace, spared, freed=freed)
    return freed


def _sweep_table(
    writer: Writer | None, folder: Location, named: set[int], grace: float | None, spared: set[str], *, freed: Freed
) -> None:
    """Delete the files that no version of a table from the oldest of ``named`` on has, and that none had in the last
    ``grace`` seconds; then the log's entries before these versions. ``grace`` None: of state, which others do not read,
    only the files of the versions ``named`` are needed. Without a ``writer`` they are only counted.
    """
    now, oldest = time.time(), min(named)
    oldest = oldest if grace is None else min(oldest, _replaced_since(folder, now - grace, oldest))
    only, grace = (named if grace is None else None), grace or 0.0
    try:
        needed = _files_since(writer, folder, oldest, only) | spared
    except StorageError:
        return  # the log before that version is gone: then nobody can say what it needs
    present = [file for file in _data_files(folder, now) if now - file.modified >= grace]
    if writer is not None:
        writer.require_lock()
    for file in present:
        if file.below(folder) not in needed:
            _delete(writer, file, freed)
    if writer is not None:
        tables.keep_removals(writer, folder, max(grace, _LEAST))
        _sweep_log(writer, folder, oldest, is_state=only is not None)


def _replaced_since(folder: Location, moment: float, newest: int) -> int:
    """The version that a table had at a moment: the one before the first commit after it."""
    for version in range(newest, -1, -1):
        try:
            written = store.modified(commit_file(folder, version))
        except FileNotFoundError:
            return version + 1
        if written <= moment:
            return version
    return 0


def _files_since(writer: Writer | None, folder: Location, oldest: int, only: set[int] | None) -> set[str]:
    """The paths of all files that any version of a table from ``oldest`` on has; with ``only``, that one of these has,
    or a later maintenance of one, or the newest version.
    """
    with reporting(folder, f"read version {oldest} of"):
        table = open_tables.open_table(folder, writer=writer)
        before = table if table.version() == oldest else open_tables.open_table(folder, oldest)
        newest, live = (set(tables.values(state.get_add_actions().column("path"))) for state in (table, before))
    needed = newest | live
    for version in range(oldest + 1, table.version() + 1):
        if not store.is_file(commit_file(folder, version)):
            raise StorageError(f"{folder} has lost version {version}")
        added = paths_in(folder, version, "add")
        live = (live - paths_in(folder, version, "remove")) | added
        if only is None:
            needed |= added
        elif version in only or is_maintenance(folder, version):
            needed |= live
    return needed


def _data_files(folder: Location, now: float) -> Iterator[Entry]:
    """A table's data files on the disk, in the log or not; temporary ones once their process must have ended."""
    for file in store.entries(folder, hidden=False):
        name = file.address.name
        is_leftover = name.startswith(".") and name.endswith(".tmp") and now - file.modified > _LEFTOVER
        if is_leftover or (name[0] not in "._" and name.endswith(".parquet")):
            yield file


def _delete(writer: Writer | None, file: Entry, freed: Freed) -> None:
    path = file.address
    with reporting(path, "delete"):
        freed.bytes += file.size
        freed.files += 1
        if writer is not None:
            store.delete(path)
            failpoint("after-delete")
            with suppress(OSError):  # a partition's folder that still has files
                if "=" in path.parent.name and isinstance(path, Path):
                    path.parent.rmdir()


def _sweep_log(writer: Writer, folder: Location, oldest: int, *, is_state: bool) -> None:
    """Delete the entries of a Delta log that no version from ``oldest`` on needs: those before a checkpoint. For state,
    which others do not follow, one is written if there are many of them.
    """
    commits, checkpoints = versions_of(folder)
    base = max((version for version in checkpoints if version <= oldest), default=0)
    if is_state and len([version for version in commits if base <= version < oldest]) > _SLACK:
        with reporting(folder, "write a checkpoint of", open_tables.mend_hint(folder)):
            tables.write_checkpoint(writer, folder, oldest)
        base = oldest
    with reporting(folder / LOG, "delete old entries of"):
        for version in sorted(version for version in (*commits, *checkpoints) if version < base):
            commit = commit_file(folder, version)
            checksums = commit.with_name(f".{commit.name}.crc"), commit.with_suffix(".crc")
            for path in (commit, checkpoint_file(folder, version), *checksums):
                store.delete(path)
            failpoint("after-trim")


def _drop(writer: Writer | None, warehouse: Warehouse, name: str, freed: Freed) -> None:
    """Delete a table of state that no kept point has. It is renamed first: a table is there or not, never in part.

    In an object store, which cannot rename, only its data files are deleted. The log stays: its names are used again
    when the table is, and then an old holder of the lock must not delete one.
    """
    folder = warehouse.table(name)
    if not isinstance(folder, Path):
        present = list(_data_files(folder, time.time()))
        if writer is not None:
            writer.require_lock()
        for file in present:
            _delete(writer, file, freed)
        return
    for file in store.entries(folder):
        freed.files, freed.bytes = freed.files + 1, freed.bytes + file.size
    if writer is not None:
        doomed = folder.with_name(f"_deleted-{folder.name}")
        with reporting(folder, "delete"):
            store.remove_folder(doomed)
            folder.rename(doomed)
            failpoint("after-drop")
            store.remove_folder(doomed)
        writer.forget(folder)
