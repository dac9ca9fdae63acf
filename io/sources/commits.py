"""Commits of a foreign Delta table's log: the files and settings that each changed, and which of them are lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ddcore.base.errors import DataError
from ddcore.io.delta.deltalog import commit_file, versions_of
from ddcore.io.sources.deltatable import check_inside
from ddcore.io.sources.remote import location_of
from ddcore.io.storage import store
from ddcore.io.storage.store import Location

_FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True)
class Commit:
    """One commit: its ``adds``, ``removes`` and files of ``changes`` (the actions of the log), and the new settings, if
    it changed them. ``time``: when it was made, in milliseconds since 1970.
    """

    version: int
    time: int
    adds: tuple[Mapping[str, Any], ...] = ()
    removes: tuple[Mapping[str, Any], ...] = ()
    changes: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] | None = None

    @property
    def needed(self) -> tuple[Mapping[str, Any], ...]:
        """The files whose rows say what the commit changed."""
        return self.changes or tuple(add for add in (*self.adds, *self.removes) if _changes_data(add))

    @property
    def inserts(self) -> tuple[Mapping[str, Any], ...]:
        """The files whose rows the commit added to the table."""
        return tuple(filter(_changes_data, self.adds))

    @property
    def takes_rows_away(self) -> bool:
        """Whether the commit removes files with rows, which it may add again in other files."""
        return any(map(_changes_data, self.removes))

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether only some rows of a file are meant."""
        return any(add.get("deletionVector") for add in (*self.adds, *self.removes))

    @property
    def has_escaped_names(self) -> bool:
        """Whether the name of a file has an escape beside those of the URL that the log has it as."""
        return any("%" in unquote(str(add["path"])) for add in (*self.adds, *self.removes, *self.changes))

    @property
    def feeds(self) -> bool | None:
        """Whether the change data feed is on from here on; None where the commit does not say."""
        if self.settings is None:
            return None
        return str(self.settings.get("configuration", {}).get(_FEED, "")).lower() == "true"

    @property
    def types(self) -> dict[str, Any] | None:
        """The types of the columns from here on, as the log has them; None where the commit does not say."""
        if self.settings is None:
            return None
        return {field["name"]: field["type"] for field in json.loads(self.settings["schemaString"])["fields"]}


def read_commits(folder: str, name: str, versions: Iterable[int]) -> Iterator[Commit]:
    """These commits of the table in ``folder``, a path or a URL. DataError for one that cannot be read."""
    for version in versions:
        path = commit_file(location_of(folder), version)
        try:
            actions = [json.loads(line) for line in store.read(path).decode().splitlines() if line.strip()]
            commit = _commit(version, actions, path)
            for action in (*commit.adds, *commit.removes, *commit.changes):
                check_inside(name, str(action["path"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{name}: commit {version} cannot be read: {type(error).__name__}: {path}",
                "restore the table's log at its origin",
            ) from error
        yield commit


def first_missing(folder: str, versions: Iterable[int]) -> int | None:
    """The first of these versions whose commit is not in the log; None where all are."""
    there = set(versions_of(location_of(folder))[0])
    return next((version for version in versions if version not in there), None)


def first_deleted(folder: str, actions: Iterable[Mapping[str, Any]]) -> str | None:
    """The path of the first of these files that was deleted; None where all are there."""
    return next(
        (str(action["path"]) for action in actions if not store.is_file(location_of(path_of(folder, action)))), None
    )


def path_of(folder: str, action: Mapping[str, Any]) -> str:
    """The path or URL of an action's file."""
    return f"{folder}/{unquote(str(action['path']))}"


def _commit(version: int, actions: Sequence[Mapping[str, Any]], path: Location) -> Commit:
    def all_of(kind: str) -> tuple[Mapping[str, Any], ...]:
        return tuple(action[kind] for action in actions if action.get(kind))

    about = next(iter(all_of("commitInfo")), {})
    time = about.get("inCommitTimestamp") or about.get("timestamp") or store.modified(path) * 1000
    settings = next(iter(all_of("metaData")), None)
    return Commit(version, int(time), all_of("add"), all_of("remove"), all_of("cdc"), settings)


def _changes_data(action: Mapping[str, Any]) -> bool:
    return bool(action.get("dataChange", True))
