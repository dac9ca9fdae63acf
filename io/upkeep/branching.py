"""Making and removing a branch: a warehouse that shares the files of another one and goes its own way from there.

In a folder a branch has hard links: no byte is copied, each side deletes its own names, and a file goes with the last
of them. That is safe because no file of a warehouse is ever written into: files are written under temporary names and
renamed, or replaced as a whole. An object store has no links, so the store copies the objects, by itself.

Everything of the other warehouse is shared as it is, the ledger and the Delta logs too: so the branch has its history,
its kept points, its labels and the digests of all that. Whoever reads a table of a branch sees a plain Delta table.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ddcore.base.errors import StorageError
from ddcore.io.delta import syncs
from ddcore.io.delta.deltalog import LOG
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.frontiers import corners
from ddcore.io.storage import branches, objects, store
from ddcore.io.storage.address import Address
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Entry, Location

_PARTS = ("inputs", "outputs", "state", "tables")  # folders with a folder for each table
_REPLACED = "_last_checkpoint"  # the one file of a table that others may write into, so it is copied
_UNLINKED = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_LEFT = ".tmp"  # ends the name of a folder that is being made or removed
_TOGETHER = 16  # objects that are copied at the same time


@dataclass
class Shared:
    """What a branch shares with the warehouse that it was made of."""

    files: int = 0
    bytes: int = 0


def make(ledger: Ledger, home: Location, source: str, name: str) -> Shared:
    """Make the branch ``name`` of the warehouse ``home`` from that of the ledger, which is its branch ``source``.

    The caller holds the locks of both, no run is unfinished, and there is no such branch. Raises StorageError.
    """
    remove_left(home)
    branch_home, shared = branches.address_of(home, name), Shared()
    run = ledger.current_run()
    upper = ledger.upper()
    folded = [] if upper is None else [list(time) for time in corners(upper)]
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    note = branches.Note(source, at, 0 if run is None else run.run, folded).to_bytes()
    if isinstance(branch_home, Path):
        _make_folder(ledger, branch_home, note, shared)
    else:
        _make_objects(ledger, branch_home, note, shared)
    failpoint("after-branch")
    return shared


def remove(home: Location) -> None:
    """Remove a branch: first it is no branch any more, then its files go. The caller holds its lock."""
    with reporting(home, "remove the branch"):
        if isinstance(home, Path):
            doomed = home.with_name(f".{home.name}{_LEFT}")
            store.remove_folder(doomed)
            home.rename(doomed)
            store.sync(home.parent)
            failpoint("after-unbranch")
            store.remove_folder(doomed)
            return
        store.delete(home / branches.NOTE)
        failpoint("after-unbranch")
        store.remove_folder(home)


def remove_left(home: Location) -> None:
    """Remove what commands left that were killed while they made or removed a branch. The caller holds the lock of
    ``home``.
    """
    for folder in left(home):
        store.remove_folder(folder)


def left(home: Location) -> list[Location]:
    """The folders of branches that commands were killed over while they made or removed them; or are at it now."""
    above = home / branches.FOLDER
    if isinstance(above, Path):
        names = [name for name in store.names(above) if name.startswith(".") and name.endswith(_LEFT)]
    else:
        names = sorted({*store.names(above)} - {*branches.names(home)})
    return [above / name for name in names]


def _tables(root: Location) -> Iterator[Location]:
    """The folders to share; the ledger is the last one. Damaged tables that were set aside are none."""
    for part in _PARTS:
        yield from (root / part / name for name in store.names(root / part) if name[0] not in "._")
    yield root / "ledger"


# --- in a folder ------------------------------------------------------------------------------------------------------


def _make_folder(ledger: Ledger, home: Path, note: bytes, shared: Shared) -> None:
    """The branch is made under another name, synced, and renamed."""
    root, new = ledger.warehouse.root, home.with_name(f".{home.name}{_LEFT}")
    assert isinstance(root, Path)
    with reporting(home, "make the branch", "nothing was changed: make room, or look at the folder's permissions"):
        try:
            for table in _tables(root):
                assert isinstance(table, Path)
                _link_table(table, new / table.relative_to(root), shared)
                failpoint("after-shared")
            (new / branches.NOTE).write_bytes(note)
            above = [folder for part in _PARTS if (folder := new / part).is_dir()]
            syncs.sync_all([new / branches.NOTE], [*above, new])
            new.rename(home)
        except BaseException:
            store.remove_folder(new)
            raise
        syncs.sync_all([], [home.parent, home.parent.parent])


def _link_table(table: Path, target: Path, shared: Shared) -> None:
    """Link all files of a table but temporary ones."""
    folders, copied = list[Path](), list[Path]()
    for top, _, names in os.walk(table, onerror=_raise, followlinks=True):
        folder = target / Path(top).relative_to(table)
        folder.mkdir(parents=True)
        folders.append(folder)
        for name in names:
            if name.startswith("."):
                continue
            if name == _REPLACED:
                shutil.copyfile(Path(top) / name, folder / name)
                copied.append(folder / name)
                continue
            _link(Path(top) / name, folder / name)
            shared.files += 1
            shared.bytes += (folder / name).stat().st_size
    syncs.sync_all(copied, folders)


def _raise(error: OSError) -> None:
    raise error


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno in _UNLINKED:
            raise StorageError(
                f"cannot make a branch: {file} cannot be linked to from {target.parent}: {error.strerror}",
                "the warehouse must be on one file system that has hard links, and its files be this user's own",
            ) from error
        raise


# --- in an object store -----------------------------------------------------------------------------------------------


def _make_objects(ledger: Ledger, home: Address, note: bytes, shared: Shared) -> None:
    """The store copies the objects; the branch is there when its note is, which comes last."""
    root = ledger.warehouse.root
    for table in _tables(root):
        ledger.owner.require_lock()
        target = home / store.below(root, table)
        entries = [entry for entry in store.entries(table) if not entry.address.name.startswith(".")]
        with ThreadPoolExecutor(_TOGETHER) as pool:
            list(pool.map(partial(_copy, table, target), entries))
        shared.files += len(entries)
        shared.bytes += sum(entry.size for entry in entries)
        failpoint("after-shared")
    ledger.owner.require_lock()
    objects.create(home / branches.NOTE, note)


def _copy(table: Location, target: Address, entry: Entry) -> None:
    """Copy an object. An entry of a log is only created: if this process was stopped meanwhile and lost the lock, the
    branch may be another one's that has entries of its own. Data files of one name have the same contents.
    """
    assert isinstance(entry.address, Address)
    path = entry.below(table)
    if path.startswith(f"{LOG}/"):
        objects.create(target / path, objects.read(entry.address))
    else:
        objects.copy(entry.address, target / path)
