"""The head of a Delta table: all of it, as its newest commit says, which we made. And the next commit, made from it.

Opening a Delta table reads its log from the last checkpoint on; for a table that one run changes by a few rows that is
most of the work. So each of our commits carries a note in ``commitInfo``, which other readers pass over: the columns
and the live files that the table has with this commit. One small file is read then, and the next commit is written
here: a file with one action a line, under a temporary name, synced, and linked to its number, which fails if that is
taken.

There is no head wherever anything is not as expected: after a commit of another program, where a commit is missing or
its note is not whole, with features of Delta that we do not write, and in an object store. Then the Delta library opens
the table and commits, as it always can; and also where a checkpoint is due.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ddcore.base.errors import StorageError
from ddcore.base.version import __version__
from ddcore.io.delta.deltalog import COMPACTED, LOG, commit_file, versions_of
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState, state_of
from ddcore.io.storage import store
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from deltalake import DeltaTable

NOTE = "ddcore.head"  # in commitInfo: the digest of the rest, then the head as JSON
_TEMPORARY = ".commit.tmp"  # in the folder of the log; one name, so that killed processes leave one file at most
_MOST_FILES = 256  # a note is written with every commit
_MOST_COLUMNS = 30  # of more, the Delta library does not read all bounds
_PLAIN = re.compile(r"[A-Za-z0-9_=./-]+")  # paths that are the same in Delta's log, which writes them as URLs
_PLAIN_NAME = re.compile(r"\w+")
_INTERVAL, _FEED = "delta.checkpointInterval", "delta.enableChangeDataFeed"
_KNOWN = (  # settings that ask nothing of a commit
    _INTERVAL, _FEED, "delta.logRetentionDuration", "delta.deletedFileRetentionDuration",
)  # fmt: skip
_WRITERS = (2, 4)  # writer protocols, without and with a change feed, that ask nothing of what adds and removes files


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit does: files that it adds, paths that it removes, the number of its transaction, and its notes."""

    added: Sequence[AddedFile]
    removed: Sequence[str]
    txn: int
    carries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """A table at a version. ``txn``: the number of our transaction in it. ``every``: so many commits lie between two
    checkpoints. ``description``: that of the table.
    """

    version: int
    txn: int
    columns: tuple[tuple[str, str], ...]
    files: tuple[LiveFile, ...]
    every: int
    description: str

    @cached_property
    def state(self) -> TableState:
        """The table for the ledger."""
        return state_of(self.version, self.columns, self.files)

    @property
    def is_before_checkpoint(self) -> bool:
        """Whether a checkpoint is due with the next commit: the Delta library writes both."""
        return (self.version + 2) % self.every == 0

    def followed_by(self, change: Change) -> Head:
        """The table after a commit."""
        gone = frozenset(change.removed)
        kept = [file for file in self.files if file.path not in gone]
        new = [self.live(file.path, file.size, file.rows, json.loads(file.stats)) for file in change.added]
        files = sorted([*kept, *new], key=lambda file: file.path)
        return replace(self, version=self.version + 1, txn=change.txn, files=tuple(files))

    def live(self, path: str, size: int, rows: int, stats: Mapping[str, Any]) -> LiveFile:
        """A file with Delta's statistics of it: of its bounds, those of int64 columns."""
        bounds = (_integers(self.columns, stats.get(side, {})) for side in ("minValues", "maxValues"))
        return LiveFile(path, size, rows, *bounds)


class Seen(NamedTuple):
    """A head that a command of this process left, and what the file of its commit was like: number, size and time."""

    head: Head
    stamp: tuple[int, int, int]


class Listed(NamedTuple):
    """The files of a table at ``state``, as the library listed them after maintenance by others or by us: when its
    newest commit was that of ``version``, whose file was like that.
    """

    state: TableState
    version: int
    stamp: tuple[int, int, int] | None
    files: tuple[LiveFile, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit under its temporary name, not synced yet."""

    folder: Path
    head: Head

    @property
    def temporary(self) -> Path:
        """The file with it."""
        return self.folder / f"{LOG}/{_TEMPORARY}"


# --- reading ----------------------------------------------------------------------------------------------------------


def at(folder: Location, state: TableState | None, seen: Seen | None = None) -> Head | None:
    """The head of a table whose newest commit is that of ``state``; None where the library has to open it. ``seen``:
    what an earlier command of this process knew of it, so that the same commit is not read again.
    """
    if state is None or not isinstance(folder, Path):
        return None
    is_seen = seen is not None and seen.head.version == state.version and seen.stamp == stamp(folder, state.version)
    head = seen.head if seen is not None and is_seen else _read(folder, state.version)
    return head if head is not None and head.state == state and _is_whole(folder, state.version) else None


def seen(heads: Mapping[Location, Head]) -> dict[Location, Seen]:
    """What is kept of heads for the next command of this process. One look at each commit's file."""
    stamps = ((folder, head, stamp(folder, head.version)) for folder, head in heads.items())
    return {folder: Seen(head, stamped) for folder, head, stamped in stamps if stamped is not None}


def is_current(folder: Location, listed: Listed, state: TableState) -> bool:
    """Whether what was listed is what the table has at ``state`` now: its log has had no commit since."""
    return (
        isinstance(folder, Path)
        and listed.state == state
        and listed.stamp is not None
        and listed.stamp == stamp(folder, listed.version)
        and _is_whole(folder, listed.version)
    )


def stamp(folder: Location, version: int) -> tuple[int, int, int] | None:
    """What the file of a commit is like: its number, size and time. None where there is none, and in a store."""
    if not isinstance(folder, Path):
        return None
    try:
        status = os.stat(f"{folder}/{LOG}/{version:020d}.json")
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def newest(folder: Location) -> Head | None:
    """The head of a table at its newest commit, whatever that is; None where the library has to open it."""
    if not isinstance(folder, Path):
        return None
    commits, _ = versions_of(folder)
    return _read(folder, commits[-1]) if commits and _is_whole(folder, commits[-1]) else None


def _is_whole(folder: Path, version: int) -> bool:
    """Whether the log has every commit after its last checkpoint, and nothing after ``version``."""
    commits, checkpoints = versions_of(folder)
    if checkpoints and checkpoints[-1] > version:
        return False  # of a commit that was lost
    first = checkpoints[-1] + 1 if checkpoints else 0
    return commits[bisect_left(commits, first) :] == [*range(first, version + 1)]


def _read(folder: Location, version: int) -> Head | None:
    """The head that a commit gives; None unless its actions agree with it."""
    try:
        actions = [json.loads(line) for line in store.read(commit_file(folder, version)).splitlines()]
        (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
        (txn,) = [action["txn"]["version"] for action in actions if "txn" in action]
        head = _parsed(info, version)
        if head is None or head.txn != txn:
            return None
        live = {file.path: file for file in head.files}
        for add in (action["add"] for action in actions if "add" in action):
            stats = json.loads(add["stats"])
            if live[add["path"]] != head.live(add["path"], add["size"], stats["numRecords"], stats):
                return None
        is_right = not any(action["remove"]["path"] in live for action in actions if "remove" in action)
    except (OSError, StorageError, ValueError, KeyError, TypeError, RecursionError):
        return None  # opening the table says what is wrong
    return head if is_right else None


def _parsed(info: Mapping[str, Any], version: int) -> Head | None:
    digest, _, text = info.get(NOTE, "").partition(" ")
    if not text or digest != _digest(text):
        return None
    known = json.loads(text)
    if known["version"] != version:
        return None
    return Head(
        version,
        known["txn"],
        tuple((name, kind) for name, kind in known["columns"]),
        tuple(LiveFile(*file) for file in known["files"]),
        known["every"],
        known["description"],
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def note(head: Head | None) -> dict[str, str]:
    """What a commit carries, which makes ``head`` of a table; nothing where that cannot be said in a few words."""
    if head is None or len(head.files) > _MOST_FILES:
        return {}
    files = [(file.path, file.size, file.rows, file.lower, file.upper) for file in head.files]
    known = {
        "version": head.version, "txn": head.txn, "columns": head.columns, "files": files,
        "every": head.every, "description": head.description,
    }  # fmt: skip
    text = json.dumps(known, separators=(",", ":"))
    return {NOTE: f"{_digest(text)} {text}"}


def following(
    table: DeltaTable, columns: Sequence[tuple[str, str]], live: Sequence[LiveFile], change: Change
) -> Head | None:
    """The head that a commit of the Delta library makes, if it is the next one after the version that is open; None for
    tables that only the library can write.
    """
    metadata, protocol = table.metadata(), table.protocol()
    settings = metadata.configuration
    plain = all(
        _PLAIN.fullmatch(path) for path in [*(file.path for file in live), *(file.path for file in change.added)]
    )
    if (
        metadata.partition_columns
        or protocol.min_reader_version != 1
        or protocol.min_writer_version not in _WRITERS
        or not {*settings} <= {*_KNOWN}
        or not plain
        or len(columns) > _MOST_COLUMNS
    ):
        return None
    bounds = [
        replace(file, lower=_integers(columns, file.lower), upper=_integers(columns, file.upper)) for file in live
    ]
    every = int(settings.get(_INTERVAL, "0"))
    head = Head(
        table.version(), change.txn, tuple(columns), tuple(bounds), every, metadata.description or "",
    )  # fmt: skip
    return head.followed_by(change) if every > 1 else None


def _integers(columns: Sequence[tuple[str, str]], side: Mapping[str, Any]) -> dict[str, int]:
    integers = {name for name, kind in columns if kind == "int64"}
    return {name: n for name, n in side.items() if name in integers and type(n) is int}


def create(
    folder: Path, columns: Sequence[tuple[str, str]], schema: str, settings: Mapping[str, str], description: str | None
) -> Head | None:
    """Create a table without files in a folder without commits; None where the Delta library has to. ``schema``: the
    columns as the library writes them. FileExistsError if another program has just created it.
    """
    plain = all(_PLAIN_NAME.fullmatch(name) for name, _ in columns)
    if not plain or len(columns) > _MOST_COLUMNS or not {*settings} <= {*_KNOWN}:
        return None
    now, (lesser, greater) = int(time.time() * 1000), _WRITERS
    metadata: dict[str, Any] = {
        "id": str(uuid.uuid4()), "name": None, "description": description,
        "format": {"provider": "parquet", "options": {}}, "schemaString": schema, "partitionColumns": [],
        "createdTime": now, "configuration": {**settings},
    }  # fmt: skip
    parameters = {"mode": "ErrorIfExists", "partitionBy": "[]"}
    info = {"timestamp": now, "operation": "CREATE TABLE", "operationParameters": parameters}
    protocol = {"minReaderVersion": 1, "minWriterVersion": greater if _FEED in settings else lesser}
    head = Head(0, -1, tuple(columns), (), int(settings[_INTERVAL]), description or "")
    (folder / LOG).mkdir(exist_ok=True)
    prepared = Prepared(folder, head)
    _write(prepared, [
        {"commitInfo": info | {"engineInfo": f"ddcore:{__version__}"}}, {"protocol": protocol}, {"metaData": metadata},
    ])  # fmt: skip
    publish(prepared)
    return head


def prepare(folder: Path, head: Head, change: Change, app: str) -> Prepared | None:
    """Write the next commit under a temporary name; None where the Delta library has to write it."""
    after = head.followed_by(change)
    noted = note(after)
    if head.is_before_checkpoint or not noted or not all(_PLAIN.fullmatch(file.path) for file in change.added):
        return None
    now, changes = int(time.time() * 1000), COMPACTED not in change.carries
    parameters = {"mode": "Append", "partitionBy": "[]"}
    info = {"timestamp": now, "operation": "WRITE", "operationParameters": parameters}
    info |= {"engineInfo": f"ddcore:{__version__}", **change.carries, **noted}
    sizes = {file.path: file.size for file in head.files}
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    actions += [{"add": _add(file, now, changes)} for file in change.added]
    actions += [{"remove": _remove(path, sizes[path], now, changes)} for path in change.removed]
    actions.append({"txn": {"appId": app, "version": change.txn}})
    prepared = Prepared(folder, after)
    _write(prepared, actions)
    return prepared


def _write(prepared: Prepared, actions: Sequence[Mapping[str, Any]]) -> None:
    temporary = prepared.temporary
    try:
        with _begun(temporary) as commit:
            commit.write("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _begun(temporary: Path) -> BinaryIO:
    """A new file. One that a killed process left is never written into: it may be a commit that has its number."""
    try:
        return temporary.open("xb")
    except FileExistsError:
        temporary.unlink()
        return temporary.open("xb")


def publish(prepared: Prepared) -> None:
    """Give a commit its number; FileExistsError if another program's has it. The folder of the log is not synced."""
    temporary = prepared.temporary
    try:
        os.link(temporary, str(commit_file(prepared.folder, prepared.head.version)))
    finally:
        store.delete(temporary)


def remove_left(folders: Iterable[Location]) -> None:
    """Remove the commits of a killed process that have no number in the logs of these tables."""
    for folder in folders:
        if isinstance(folder, Path):
            (folder / LOG / _TEMPORARY).unlink(missing_ok=True)


def _add(file: AddedFile, now: int, changes: bool) -> dict[str, Any]:
    return {
        "path": file.path, "partitionValues": {**file.partition}, "size": file.size, "modificationTime": now,
        "dataChange": changes, "stats": file.stats,
    }  # fmt: skip


def _remove(path: str, size: int, now: int, changes: bool) -> dict[str, Any]:
    """Readers of the change feed need the sizes of removed files."""
    return {
        "path": path, "deletionTimestamp": now, "dataChange": changes, "extendedFileMetadata": True,
        "partitionValues": {}, "size": size,
    }  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
