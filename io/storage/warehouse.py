"""The warehouse: the places of its tables, and its lock.

All places are built here. One process writes at a time: on a local file system, Delta does not protect processes from
each other, and a blind append over a newer version commits without an error. In an object store the lock can expire:
:mod:`ddcore.io.storage.lease`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.base.errors import StorageError, UsageError
from ddcore.io.storage import lock, objects, readers, store
from ddcore.io.storage.address import Address, Location, address_of, is_url
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.holder import Holder
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import sync

if TYPE_CHECKING:
    from ddcore.io.storage.lease import Lease
    from ddcore.io.storage.lock import Lock

_LONGEST_NAME = 255  # bytes
_ABSENT = (
    "check the path and whether its file system is mounted; a new warehouse begins with: ddcore ingest INPUT SOURCE, "
    "or ddcore sync where dd.toml declares sources"
)
_ABSENT_URL = "check the URL; a new warehouse begins with: ddcore ingest INPUT SOURCE --new-warehouse"


class Warehouse:
    """A folder of Delta tables: ``inputs/NAME``, ``outputs/NAME``, ``state/FINGERPRINT`` and ``ledger``.

    The folder is one of the file system, also as a ``file://`` URL, or an ``s3://`` URL of an object store; other URLs
    are a UsageError. Creating the object touches nothing.

    ``upstream``: the root of the warehouse whose inputs are read, all but the ``own`` ones; no table there is written
    (:mod:`ddcore.io.storage.readers`).
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | Address,
        upstream: Location | None = None,
        own: frozenset[str] = frozenset(),
    ) -> None:
        self.upstream, self.own = upstream, own
        self.root: Location
        if isinstance(root, Address):
            self.root = root
            return
        text = os.fspath(root)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        self.root = address_of(text, "warehouse") if is_url(text) else Path(text).absolute()

    def __repr__(self) -> str:
        return f"Warehouse({str(self.root)!r})"

    @property
    def ledger(self) -> Location:
        """The ledger's table."""
        return self.root / "ledger"

    def input(self, name: str) -> Location:
        """The table of an input's change log."""
        return self.table(f"inputs/{name}")

    def output(self, name: str) -> Location:
        """The table of an output's change log."""
        return self.table(f"outputs/{name}")

    def published(self, name: str) -> Location:
        """The table with the present contents of an output, unless the project names another place for it."""
        return self.root / "tables" / self.output(name).name

    def table(self, relative: str) -> Location:
        """The folder of a table, by its name in the ledger: ``inputs/edges``. UsageError for a name that is not inside
        the warehouse or that no file system allows.
        """
        part, _, name = relative.partition("/")
        if part not in ("inputs", "outputs", "state") or not name or "/" in name or "\0" in name or name[0] in "._":
            raise UsageError(f"{relative!r} names no table of a warehouse", "use letters, digits and _ in names")
        if len(os.fsencode(name)) > _LONGEST_NAME:
            raise UsageError(
                f"the name {name[:40]!r}... of {part} has {len(name)} characters, too many for the name of a folder",
                f"use at most {_LONGEST_NAME}",
            )
        return (self.root if self.upstream is None or self.is_own(relative) else self.upstream) / relative

    def is_own(self, relative: str) -> bool:
        """Whether a table is one of this warehouse: each but the inputs that another project ingests."""
        part, _, name = relative.partition("/")
        return part != "inputs" or self.upstream is None or name in self.own

    def relative(self, folder: Location) -> str:
        """The name of a table's folder in the ledger: ``inputs/edges``."""
        return store.below(self.root, folder)

    def tables(self, parts: Sequence[str] = ("inputs", "outputs", "state")) -> Iterator[tuple[str, Location]]:
        """All tables of its own on the disk, in the ledger or not: name as in :meth:`relative`, and folder."""
        for part in parts:
            for name in store.names(above := self.root / part):
                is_one = name[0] not in "._" and self.is_own(f"{part}/{name}")
                if is_one and store.is_folder((folder := above / name) / "_delta_log"):
                    yield f"{part}/{name}", folder

    def check(self) -> None:
        """Raise StorageError where there is no warehouse, naming the first missing folder of its path.

        A missing or empty folder is usually a misspelt path, or a file system that is not mounted. So commands that
        read or fold call this and create nothing; only ``ingest`` creates a warehouse, with :meth:`begin`. Tables
        without a ledger pass: loading the ledger reports that it was lost.
        """
        if not isinstance(self.root, Path):
            if not store.is_folder(self.ledger) and not any(self.tables()):
                raise StorageError(f"there is no warehouse in {self.root}: nothing is stored there", _ABSENT_URL)
            self._check_upstream()  # a store tells why it refuses a list, but not whether there is an object
            return
        self._check_upstream()
        with reporting(self.root, "read"):
            missing = [folder for folder in (*reversed(self.root.parents), self.root) if not folder.is_dir()]
        if missing and os.path.lexists(missing[0]):
            what = f"{missing[0]} is {'a link that leads nowhere' if missing[0].is_symlink() else 'not a folder'}"
        elif missing:
            what = f"the folder {missing[0]} is missing"
        elif not store.is_folder(self.ledger) and not any(self.tables()):
            what = "the folder has no ledger"
        else:
            return
        raise StorageError(f"there is no warehouse in {self.root}: {what}", _ABSENT)

    def begin(self, project: Path, *, new: bool = False) -> None:
        """Create the folder for a first ingest; does nothing if it has a ledger, or tables whose ledger was lost.

        Outside of the folder ``project`` a missing or empty folder may be a file system that is not mounted, and in an
        object store a misspelt URL. It is a StorageError there unless ``new``.
        """
        if store.is_folder(self.ledger) or any(self.tables()):
            self._check_upstream()
            return
        self._check_upstream()
        if not isinstance(self.root, Path):
            if not new:
                raise StorageError(
                    f"there is no warehouse in {self.root}: nothing is stored there",
                    "check the URL; to create a new warehouse there: ddcore ingest --new-warehouse",
                )
            self.create()
            return
        if not new and not self.root.resolve().is_relative_to(project.resolve()):
            state = "has no ledger" if self.root.is_dir() else "is missing"
            raise StorageError(
                f"there is no warehouse in {self.root}: the folder {state}",
                "check the path and whether its file system is mounted; to create a new warehouse there: "
                "ddcore ingest --new-warehouse",
            )
        self.create()

    def _check_upstream(self) -> None:
        """Raise StorageError for the warehouse of a reader whose ``dd.toml`` does not name the inputs any more."""
        if self.upstream is None and (there := readers.upstream_of(self.root)) is not None:
            raise StorageError(
                f"the inputs of {self.root} are those of {there}, and dd.toml does not say so any more",
                'put it back: [inputs] from = "..."; or ingest into a new warehouse: --warehouse DIR',
            )

    def create(self) -> None:
        """Create the folder if it does not exist; of an object store, check that it can hold a warehouse."""
        if not isinstance(self.root, Path):
            self._check_store(self.root)
            failpoint("after-warehouse")
            return
        with reporting(self.root, "create the warehouse", "name another folder: --warehouse DIR, or dd.toml's"):
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in self.root.parents:
                with suppress(OSError):  # folders above the warehouse may be unreadable, or cannot be synced
                    sync(folder)
            failpoint("after-warehouse")

    def _check_store(self, root: Address) -> None:
        """Raise StorageError for a store that takes every put, also one that must fail because the object is there."""
        probe = root / ".lock" / f"probe-{uuid.uuid4().hex}"
        try:
            if not objects.create(probe, b"") or objects.create(probe, b""):
                raise StorageError(
                    f"{root} cannot hold a warehouse: its store overwrites an object when it must not",
                    "use a store with conditional puts (If-None-Match), as Amazon S3 and most others have them",
                )
        finally:
            objects.delete([probe])

    @contextmanager
    def lock(self, command: str, run: int = 0) -> Iterator[Lock | Lease]:
        """Hold the lock for writing; the warehouse's folder must exist. LockHeld names the holder.

        In a folder it is the operating system's, in an object store a :class:`~ddcore.io.storage.lease.Lease`, which
        expires.
        """
        file = self.root / ".lock"
        if isinstance(file, Path):
            with lock.hold(file, command, run) as held:
                yield held
            return
        from ddcore.io.storage import lease

        with lease.hold(file, command, run) as leased:
            yield leased

    def holder(self) -> Holder | None:
        """The holder of the lock, or None. For readers."""
        file = self.root / ".lock"
        if isinstance(file, Path):
            return lock.holder(file)
        from ddcore.io.storage import lease

        return lease.holder(file)

    def dead_holder(self) -> Holder | None:
        """The process that ended while it held the lock, or let it expire; None where there is none or the lock is
        held. For readers.
        """
        file = self.root / ".lock"
        if isinstance(file, Path):
            return lock.dead_holder(file)
        from ddcore.io.storage import lease

        return lease.dead_holder(file)
