"""A table's Delta log, read without the Delta library: what a command must know about tables that it does not open.

Commits are JSON files with one action per line. Unreadable lines are skipped: opening the table reports them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from ddcore.base.errors import StorageError
from ddcore.io.storage import store
from ddcore.io.storage.store import Location

LOG = "_delta_log"
AFTER = "ddcore.after"  # in our commits in an object store: the ledger's newest entry when they were made
FENCE = "ddcore.lock"  # the application whose number is the token of the lock; in the ledger of an object store
COMPACTED = "ddcore.compacted"  # in the commit of a compaction of ours: the frontier, as JSON
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\b.*\.parquet$")
_DIGITS = 20  # of a version in the name of an entry
_MAINTENANCE = (  # operations that change no rows
    "OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL",
    "UPDATE TABLE METADATA",
)  # fmt: skip


def commit_file(folder: Location, version: int) -> Location:
    """The path of commit ``version`` of a table."""
    return folder / f"{LOG}/{version:020d}.json"


def checkpoint_file(folder: Location, version: int) -> Location:
    """The path of the checkpoint of a table at ``version``."""
    return folder / f"{LOG}/{version:020d}.checkpoint.parquet"


def has_commits(folder: Location) -> bool:
    """Whether the log has a commit. One that was emptied by a crash during creation has none."""
    return any(name.endswith(".json") for name in store.names(folder / LOG))


def newest_checkpoint(folder: Location, version: int | None = None) -> int:
    """The version of the newest checkpoint, at or before ``version`` if there is one; -1 without any."""
    found = (_CHECKPOINT.match(name) for name in store.names(folder / LOG))
    versions = [int(name[1]) for name in found if name]
    return max((number for number in versions if version is None or number <= version), default=-1)


def lost_versions(folder: Location, version: int | None = None) -> list[int]:
    """The versions whose commits are needed to open a table at ``version``, and are not in its log.

    Without ``version``: at the newest one that the log names. Lists the log's folder.
    """
    commits = {int(commit.stem) for commit in _commits(folder) if commit.stem.isdigit()}
    last = max([newest_checkpoint(folder), *commits]) if version is None else version
    return [number for number in range(newest_checkpoint(folder, last) + 1, last + 1) if number not in commits]


def gap_text(versions: Sequence[int]) -> str:
    """That the commits of these versions are lost."""
    what = f"the commit of version {versions[0]} is"
    if len(versions) > 1:
        what = f"commits {versions[0]}..{versions[-1]} are"
    return f"{what} missing from its log, and no checkpoint replaces it"


def is_maintenance(folder: Location, version: int) -> bool:
    """Whether a commit says that it changed no rows. False for a missing or empty commit."""
    info = commit_info(folder, version)
    return info.get("operation") in _MAINTENANCE or FENCE in info


def commit_info(folder: Location, version: int) -> dict[str, Any]:
    """What a commit says about itself; empty for a missing or empty commit."""
    return next(_actions(commit_file(folder, version), "commitInfo"), {})


def compaction_of(folder: Location, version: int) -> list[list[int]] | None:
    """The frontier to which a commit of ours compacted a table, empty where no time was changed; None for others."""
    try:
        elements = json.loads(str(commit_info(folder, version)[COMPACTED]))
    except (KeyError, ValueError):
        return None
    return elements if isinstance(elements, list) else None


def last_transaction(folder: Location, app: str) -> int | None:
    """The number of the newest transaction of an application; None without one. Reads one commit in most cases."""
    numbers = (_transaction(commit, app) for commit in reversed(_commits(folder)))
    return next((number for number in numbers if number is not None), None)


def transaction_of(folder: Location, version: int, app: str) -> int | None:
    """The number of an application's transaction in commit ``version``; None without one."""
    return _transaction(commit_file(folder, version), app)


def _transaction(commit: Location, app: str) -> int | None:
    for action in _actions(commit, "txn"):
        if action.get("appId") == app and isinstance(action.get("version"), int):
            return int(action["version"])
    return None


def named_files(folder: Location) -> set[str]:
    """The paths of all data files that any commit added or removed. Reads the whole log."""
    return {
        str(action["path"])
        for commit in _commits(folder)
        for kind in ("add", "remove")
        for action in _actions(commit, kind)
        if "path" in action
    }


def paths_in(folder: Location, version: int, kind: str) -> set[str]:
    """The paths of the files that a commit added (``add``), removed (``remove``), or names for the change feed
    (``cdc``).
    """
    return {unquote(str(action.get("path", ""))) for action in _actions(commit_file(folder, version), kind)}


def versions_of(folder: Location) -> tuple[list[int], list[int]]:
    """The versions of the commits and of the checkpoints in a table's log, sorted. Lists the folder."""
    names = store.names(folder / LOG)
    entries = [(name[:_DIGITS], name[_DIGITS:]) for name in names if name[:_DIGITS].isdigit()]
    commits = [int(number) for number, ending in entries if ending == ".json"]
    return commits, [int(number) for number, ending in entries if ending == ".checkpoint.parquet"]


def _commits(folder: Location) -> list[Location]:
    return [folder / LOG / name for name in store.names(folder / LOG) if name.endswith(".json") and name[0].isdigit()]


def _actions(commit: Location, kind: str) -> Iterator[dict[str, Any]]:
    try:
        text = store.read(commit).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StorageError(
            f"cannot read {commit}: {error.strerror or error}", store.UNREADABLE.get(error.errno or 0, "")
        ) from error
    for line in text.splitlines():
        if f'"{kind}"' in line:
            try:
                action = json.loads(line)[kind]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if isinstance(action, dict):
                yield action
