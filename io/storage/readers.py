"""Projects that read the inputs of a warehouse, each into a warehouse of its own, and what they still need of it.

A reader's hold is a file in the folder ``readers`` of the warehouse whose inputs it reads. It is written whole, by its
reader alone; what deletes files of inputs looks at all holds (:mod:`ddcore.io.upkeep.retention`). A hold only ever
moves on, so one that is too old keeps too much, and never too little.

The reader itself has its identity in a file of its warehouse, ``.reader.json``, with the place where that is: a copy
of it, or one that was moved, is another reader.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddcore.base.errors import StorageError
from ddcore.io.storage import objects, store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

FOLDER = "readers"
NOTE = ".reader.json"
_ENDING = ".json"
_NAME = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Hold:
    """What a reader needs: of each input in ``versions`` the table's files from that Delta version on, of other inputs
    all files; and the ledger's entries after ``entry``.

    ``project`` and ``warehouse`` are where the reader is; ``folded``: the greatest times that it has folded; ``at``:
    the moment of the writing.
    """

    project: str
    warehouse: str
    entry: int
    versions: Mapping[str, int]
    folded: list[list[int]]
    at: str

    def version_of(self, input: str) -> int:
        """The oldest Delta version of an input's table that is needed."""
        return self.versions.get(input, 0)

    @property
    def is_lost(self) -> bool:
        """Whether the reader's warehouse is in a folder of this machine that does not exist."""
        return self.warehouse.startswith("/") and not Path(self.warehouse).is_dir()


def identity(root: Location, upstream: Location) -> str:
    """The name of the reader whose warehouse this is, of the inputs of another; a new one where it has none, or is a
    copy or was moved. The caller holds its lock.
    """
    known = _note(root)
    if (known.get("warehouse"), known.get("upstream")) == (str(root), str(upstream)) and "name" in known:
        return str(known["name"])
    name = new_name()
    call(root, upstream, name)
    return name


def new_name() -> str:
    """A name that no reader has."""
    return uuid.uuid4().hex[:16]


def call(root: Location, upstream: Location, name: str) -> None:
    """Give a warehouse its name as a reader of the inputs of another."""
    _put(root, root / NOTE, {"name": name, "warehouse": str(root), "upstream": str(upstream)})
    failpoint("after-reader")


def name_of(root: Location) -> str | None:
    """The name of the reader whose warehouse this is; None where it has none."""
    known = _note(root)
    return str(known["name"]) if "name" in known and known.get("warehouse") == str(root) else None


def upstream_of(root: Location) -> str | None:
    """The warehouse whose inputs a warehouse reads; None where it has its own."""
    return str(_note(root).get("upstream", "another warehouse")) if store.is_file(root / NOTE) else None


def _note(root: Location) -> dict[str, Any]:
    """What the warehouse of a reader says of itself; nothing where it says nothing that can be read."""
    file = root / NOTE
    if not store.is_file(file):
        return {}
    with reporting(file, "read"):
        try:
            known = json.loads(store.read(file))
        except ValueError:
            return {}
    return known if isinstance(known, dict) else {}


def hold_of(home: Location, name: str) -> Hold | None:
    """A reader's hold; None where it has none. StorageError for one that cannot be read."""
    file = home / FOLDER / f"{name}{_ENDING}"
    if not store.is_file(file):
        return None
    try:
        values: dict[str, Any] = json.loads(store.read(file))
        hold = Hold(**values)
        int(hold.entry)
        {name: int(version) for name, version in hold.versions.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StorageError(
            f"cannot read {file}, which says what a reader of the inputs needs: {error}",
            "nothing of the inputs is deleted meanwhile; to give its reader up: ddcore readers --forget " + name,
        ) from error
    return hold


def holds(home: Location) -> dict[str, Hold]:
    """The holds of all readers of a warehouse, by their names. Raises as :func:`hold_of`."""
    found = {name: hold_of(home, name) for name in names(home)}
    return {name: hold for name, hold in found.items() if hold is not None}


def names(home: Location) -> list[str]:
    """The names of all readers, sorted."""
    files = (name.removesuffix(_ENDING) for name in store.names(home / FOLDER) if name.endswith(_ENDING))
    return [name for name in files if _NAME.fullmatch(name)]


def write(home: Location, name: str, hold: Hold) -> None:
    """Write a reader's hold in place of the one before."""
    _put(home / FOLDER, home / FOLDER / f"{name}{_ENDING}", asdict(hold))
    failpoint("after-hold")


def forget(home: Location, name: str) -> None:
    """Remove a reader's hold, if it is there."""
    store.delete(home / FOLDER / f"{name}{_ENDING}")


def _put(folder: Location, address: Location, values: Mapping[str, Any]) -> None:
    """Write a file whole, and sync it."""
    content = json.dumps(values).encode()
    with reporting(address, "write", "this user needs to write there: it says what a reader of the inputs still needs"):
        if not isinstance(address, Path):
            objects.put(address, content)
            return
        with store.new_file(folder, "note") as file:
            file.temporary.write_bytes(content)
            store.sync(file.temporary)
            file.finish(address)
        assert isinstance(folder, Path)
        store.sync(folder)
        store.sync(folder.parent)
