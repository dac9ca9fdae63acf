"""The branches of a warehouse: copies to try things in. Each is a whole warehouse in ``branches/NAME``.

A branch is there if its note is, ``.branch.json``: in a folder it comes with the rename that ends the making of the
branch, in an object store it is the last object that is written and the first that is deleted.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from ddcore.base.errors import StorageError, UsageError
from ddcore.io.storage import store
from ddcore.io.storage.store import Location
from ddcore.text.wording import listed, meant

MAIN = "main"  # the warehouse itself, where a branch can be named
FOLDER = "branches"
NOTE = ".branch.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")  # the name of a folder, and the same in a URL


@dataclass(frozen=True)
class Note:
    """How a branch was made: ``source`` is the branch or warehouse that it is of, ``at`` the moment, ``run`` the last
    run that it shares, 0 for none, and ``folded`` the greatest times that were complete then.
    """

    source: str
    at: str
    run: int
    folded: list[list[int]]

    def to_bytes(self) -> bytes:
        """The file's contents."""
        return json.dumps(asdict(self)).encode()


def check_name(name: str, setting: str) -> None:
    """Raise UsageError for a name that no branch can have; ``setting`` is what gave it."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{setting}: {name!r} cannot name a branch", "use letters, digits, _ and -, at most 100")


def address_of(home: Location, name: str) -> Location:
    """The folder of a branch of the warehouse ``home``."""
    return home if name == MAIN else home / FOLDER / name


def names(home: Location) -> list[str]:
    """The branches of a warehouse, sorted. Lists a folder, and looks for the note of each."""
    found = (name for name in store.names(home / FOLDER) if _NAME.fullmatch(name))
    return [name for name in found if store.is_file(address_of(home, name) / NOTE)]


def note_of(home: Location, name: str) -> Note:
    """How a branch was made. StorageError for a note that cannot be read."""
    note = address_of(home, name) / NOTE
    try:
        values: dict[str, Any] = json.loads(store.read(note))
        return Note(**values)
    except (OSError, ValueError, TypeError) as error:
        raise StorageError(
            f"cannot read {note}: {error}", f"the branch itself may be whole: ddcore status --branch {name}"
        ) from error


def require(home: Location, name: str, setting: str = "--branch") -> None:
    """Raise UsageError, with the names there are, for a branch that is not there."""
    if name == MAIN or store.is_file(address_of(home, name) / NOTE):
        return
    there = names(home)
    what = f"there are: {listed(there)}" if there else "it has none"
    raise UsageError(
        f"{setting}: the warehouse {home} has no branch {name!r}; {what}",
        meant(name, there) or f"make it with: ddcore branch {name}",
    )
