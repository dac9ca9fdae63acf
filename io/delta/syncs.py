"""Files, commits and names in folders, synced to the disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ddcore.io.delta.deltalog import LOG, commit_file
from ddcore.io.storage import store
from ddcore.io.storage.store import Location, sync

_SYNCS = 16  # at the same time
_FEW = 3  # files that are not worth a thread


def sync_all(files: Sequence[Location], folders: Sequence[Location]) -> None:
    """Sync files to the disk, side by side, and then the names in folders."""
    for addresses in (files, list(dict.fromkeys(folders))):
        if len(addresses) < _FEW:
            for address in addresses:
                sync(address)
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(_SYNCS) as pool:  # a thread has several files: to hand one on costs as much
                list(pool.map(_sync_each, [addresses[start::_SYNCS] for start in range(min(_SYNCS, len(addresses)))]))


def _sync_each(addresses: Sequence[Location]) -> None:
    for address in addresses:
        sync(address)


def settle(folder: Location, first: int, last: int) -> None:
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


def _sync_parents(folder: Path) -> None:
    """Sync a new table's folder and its parents, which may be new as well, to the disk."""
    for parent in (folder, *list(folder.parents)[:2]):
        with suppress(PermissionError):  # folders above the warehouse may be unreadable
            sync(parent)
