"""The writer of a warehouse: the one process that commits to its tables, since it holds the lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.storage.lock import Lock

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ddcore.io.delta.heads import Head, Listed, Prepared, Seen
    from ddcore.io.storage.lease import Lease
    from ddcore.io.storage.store import Location


@dataclass(slots=True)
class Group:
    """Commits that are made together, and the tables to which another program had committed meanwhile."""

    pending: list[Prepared] = field(default_factory=list)
    overtaken: set[Location] = field(default_factory=set)


class Writer:
    """What a command has that writes to a warehouse: the lock, the tables that it opened, the commits that are pending.

    It is made where the lock is taken, and handed to all that commits. No other process commits meanwhile, so each
    table is opened once, and then updated by this process's own commits. ``lease``: the lock, where it can expire: in
    an object store. ``tuning``: of the project. ``group``: the commits that are made together
    (:func:`ddcore.io.delta.commits.together`).

    Without a lock: for tables that no other process knows, such as those of a temporary warehouse.
    """

    def __init__(self, lock: Lock | Lease | None = None, tuning: Tuning = DEFAULT) -> None:
        self.tuning = tuning
        self.lease = None if isinstance(lock, Lock) else lock
        self.group: Group | None = None
        self._tables: dict[Location, DeltaTable] = {}
        self.heads: dict[Location, Head] = {}  # of tables that are known by their newest commit
        self.seen: Mapping[Location, Seen] = {}  # what an earlier command of this process left of such
        self.listed: dict[Location, Listed] = {}  # of tables that are not; each is compared before use

    def require_lock(self) -> None:
        """Raise LockHeld if the lock expired and another process took it over. One request; nothing in a folder.

        Whoever deletes files that it found in a store calls this after it found them and before it deletes: then none
        of them is one that a later holder wrote.
        """
        if self.lease is not None:
            self.lease.check()

    def table(self, folder: Location) -> DeltaTable | None:
        """A table that is open."""
        return self._tables.get(folder)

    def keep(self, folder: Location, table: DeltaTable) -> None:
        """Let the next use of a table find it open."""
        self._tables[folder] = table

    def created(self, folder: Location) -> Head | None:
        """The head of a table that this command has created, and to which it has committed nothing."""
        head = self.heads.get(folder)
        return head if head is not None and not head.version else None

    def note_head(self, folder: Location, head: Head) -> None:
        """A table has this head now, by a commit of this process or as it was read."""
        self.heads[folder] = head
        if (table := self._tables.get(folder)) is not None and table.version() != head.version:
            del self._tables[folder]

    def forget(self, folder: Location) -> None:
        """A table is not as it was known: its folder is gone, or another process has committed to it."""
        self._tables.pop(folder, None)
        self.heads.pop(folder, None)
