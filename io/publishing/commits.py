"""The Delta log of a published table: what its newest commit of ours says, its files, and the next commit.

A commit is written here, as JSON, since it names the rows that it changes: files under ``_change_data`` are what
Delta's change feed shows of it, in place of the files that were written again.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from ddcore.base.errors import UsageError
from ddcore.base.schema import Type
from ddcore.base.version import __version__
from ddcore.io.delta import deltalog
from ddcore.io.delta.column_types import columns, delta_schema
from ddcore.io.delta.open_tables import location, options_of
from ddcore.io.delta.syncs import sync_all
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.delta.tables import APP, add_actions
from ddcore.io.parquet import datafile
from ddcore.io.publishing.ranges import FIRST, RangeFile, first_from
from ddcore.io.storage import store
from ddcore.io.storage.address import Address
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from deltalake import DeltaTable

CHANGES = "_change_data"  # Delta's folder for the files of the change feed
HINT = "remove the folder: the next ddcore run makes the table again"
_OUTPUT, _RUN, _TIME, _LABEL, _VERSIONS = (
    "ddcore.output", "ddcore.run", "ddcore.time", "ddcore.label", "ddcore.versions",
)  # fmt: skip
_REMOVALS = "delta.deletedFileRetentionDuration"  # how long checkpoints name a file that was removed: a week otherwise
_DAY = 86_400  # seconds
GRACE = 60  # seconds that what was replaced stays at least, for readers that are opening the table
# files before the first commit; the names of a store's files have one part more
_OURS = re.compile(r"[A-Za-z0-9_]+-[0-9a-f]{8}(-[0-9a-f]{16}){1,2}\.parquet|\..*\.tmp")


@dataclass(frozen=True)
class Position:
    """How far a table is: the ``run`` whose contents it has, at the time ``at``; by the commit ``version``, which was
    ``written`` then (milliseconds). ``is_newest``: no other program has written to it since. ``last``: the newest
    commit.
    """

    output: str
    run: int
    at: tuple[int, ...]
    version: int
    written: int
    is_newest: bool
    last: int


def position(folder: Location) -> Position | None:
    """How far the table in a folder is; None where there is none. Reads one commit in most cases.

    UsageError for a folder with something else.
    """
    with reporting(folder, "read", HINT):
        versions, checkpoints = deltalog.versions_of(folder)
        if not versions and not checkpoints:
            for file in store.entries(folder):
                if not _OURS.fullmatch(file.address.name):
                    raise UsageError(
                        f"{folder} holds other files, such as {file.below(folder)}", "name an empty folder"
                    )
            return None  # where there are files of ours, a process was killed before it committed them
        is_newest = True
        for version in reversed(versions):
            info = deltalog.commit_info(folder, version)
            if _OUTPUT in info:
                at = tuple(json.loads(info[_TIME]))
                written = int(info["timestamp"])
                return Position(info[_OUTPUT], int(info[_RUN]), at, version, written, is_newest, versions[-1])
            is_newest &= deltalog.is_maintenance(folder, version)
    raise UsageError(
        f"{folder} is a Delta table that ddcore did not make", "name another folder for the output's table"
    )


@dataclass(frozen=True)
class Snapshot:
    """A table as its newest version is. ``files``: None where some were not written by ddcore. ``written``: when that
    version was committed, where this is known.
    """

    version: int
    columns: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...]
    paths: Mapping[str, tuple[int, Mapping[str, str | None]]]
    files: tuple[RangeFile, ...] | None
    written: int | None = None

    def is_of(self, there: Position) -> bool:
        """Whether the table is still as this says."""
        return self.written == there.written and self.version == there.version == there.last

    def followed_by(self, version: int, change: Commit, added: Sequence[RangeFile]) -> Snapshot:
        """The table after a commit, which adds these files."""
        gone = {*change.removed}
        paths = {path: of for path, of in self.paths.items() if path not in gone}
        paths |= {file.path: (file.size, file.partition) for file in added}
        files = None if self.files is None else (*(file for file in self.files if file.path not in gone), *added)
        return Snapshot(version, change.columns, change.partition_by, paths, files, change.written)


def snapshot(folder: Location, *, footers: bool = True) -> Snapshot:
    """The newest version of a table. Reads its log, and the footer of each file: without them ``files`` is not known.
    StorageError.
    """
    with reporting(folder, "read", HINT):
        table = _opened(folder)
        actions = add_actions(table)
        names = [name for name in actions if name.startswith("partition.")]
        paths = {
            path: (
                actions["size_bytes"][number],
                {name.removeprefix("partition."): partition_text(actions[name][number]) for name in names},
            )
            for number, path in enumerate(map(unquote, actions["path"]))
        }
        return Snapshot(
            table.version(), tuple(columns(table)), tuple(table.metadata().partition_columns), paths,
            _files(folder, paths, dict(zip(paths, actions["num_records"], strict=True))) if footers else None,
        )  # fmt: skip


def _files(
    folder: Location, paths: Mapping[str, tuple[int, Mapping[str, str | None]]], rows: Mapping[str, int | None]
) -> tuple[RangeFile, ...] | None:
    """The files with their first rows; None where another program wrote one."""
    files = []
    for path, (size, partition) in paths.items():
        note = datafile.notes(folder / path, HINT, [FIRST]).get(FIRST)
        if not note:
            return None
        files.append(RangeFile(path, size, rows[path] or 0, partition, first_from(note)))
    return tuple(files)


def _opened(folder: Location) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(location(folder), storage_options=options_of(folder))


def partition_text(value: Any) -> str | None:
    """A value of a partition as Delta's log has it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Commit:
    """A commit: the columns that the table then has, after how many commits it gets a checkpoint, the files that it
    adds and paths that it removes, the files of the change feed, and what it says of itself.
    """

    schema: Mapping[str, Type]
    partition_by: tuple[str, ...]
    checkpoint_commits: int
    added: Sequence[AddedFile]
    removed: Sequence[str]
    feed: Sequence[AddedFile]
    note: Mapping[str, str]
    written: int = field(default_factory=lambda: int(time.time() * 1000))  # milliseconds since 1970

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns with their types, as the log has them."""
        return tuple((name, str(kind)) for name, kind in self.schema.items())

    def actions(self, before: Snapshot | None) -> Iterator[dict[str, Any]]:
        """The lines of the log, after the version ``before``."""
        now = self.written
        parameters = {"mode": "Append" if before else "Overwrite", "partitionBy": json.dumps([*self.partition_by])}
        info = {"timestamp": now, "operation": "WRITE", "operationParameters": parameters}
        yield {"commitInfo": {**info, "engineInfo": f"ddcore:{__version__}", **self.note}}
        if before is None:
            yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
        if before is None or (before.columns, before.partition_by) != (self.columns, self.partition_by):
            yield {"metaData": _metadata(self.schema, self.partition_by, self.checkpoint_commits, now)}
        paths = {} if before is None else before.paths
        for path in self.removed:
            size, partition = paths[path]
            yield {"remove": {
                "path": _written(path), "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True,
                "partitionValues": dict(partition), "size": size,
            }}  # fmt: skip
        for file in self.added:
            yield {"add": {
                "path": _written(file.path), "partitionValues": dict(file.partition), "size": file.size,
                "modificationTime": now, "dataChange": True, "stats": file.stats,
            }}  # fmt: skip
        for file in self.feed:
            path, partition = f"{CHANGES}/{file.path}", dict(file.partition)
            yield {"cdc": {"path": path, "partitionValues": partition, "size": file.size, "dataChange": False}}
        yield {"txn": {"appId": APP, "version": int(self.note[_RUN]), "lastUpdated": now}}


def escaped(value: str | None) -> str:
    """A value of a partition in the name of a folder, as the Delta library writes it."""
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(value, safe="")


def _written(path: str) -> str:
    """A path as Delta's log has it: as a part of a URL. Of what is special there, our paths have ``%`` alone."""
    return path.replace("%", "%25")


@dataclass(frozen=True)
class Next:
    """The commit ``change`` to the table in ``folder``, as the next one after ``before``; None: the first."""

    folder: Location
    before: Snapshot | None
    change: Commit

    @property
    def version(self) -> int:
        """Its number."""
        return 0 if self.before is None else self.before.version + 1

    @property
    def file(self) -> Location:
        """The entry of the log that it becomes."""
        return deltalog.commit_file(self.folder, self.version)

    @property
    def temporary(self) -> Path | None:
        """Where it is written first; None in an object store."""
        file = self.file
        return file.parent / f".{file.name}-{os.getpid()}.tmp" if isinstance(file, Path) else None

    @property
    def content(self) -> bytes:
        """The lines of the log."""
        return "".join(
            json.dumps(one, separators=(",", ":")) + "\n" for one in self.change.actions(self.before)
        ).encode()

    def write(self) -> None:
        """Write it under its temporary name."""
        if (temporary := self.temporary) is not None:
            store.create_folder(temporary.parent)
            temporary.write_bytes(self.content)

    def publish(self) -> bool:
        """Give it its number; False where that is taken."""
        if isinstance(self.file, Address):
            from ddcore.io.storage import objects

            content = self.content
            return objects.create(self.file, content) or objects.read(self.file) == content
        assert self.temporary is not None
        try:
            os.link(self.temporary, self.file)
        except FileExistsError:
            return False
        return True


def commit(nexts: Sequence[Next]) -> list[Next]:
    """Make commits to tables, in their order; those that are made. In the place of any other another program has just
    made one.

    All are written under temporary names and synced to the disk side by side; then each gets its number; then the
    names in the folders of the logs are synced. StorageError.
    """
    done, temporary = list[Next](), [one.temporary for one in nexts if one.temporary is not None]
    try:
        for one in nexts:
            with reporting(one.folder, "commit to", HINT):
                one.write()
        with reporting(_first(nexts), "commit to", HINT):
            sync_all(temporary, [])
        for one in nexts:
            with reporting(one.folder, "commit to", HINT):
                is_done = one.publish()
            if is_done:
                done.append(one)
                failpoint("after-published")
        with reporting(_first(nexts), "commit to", HINT):
            logs = [one.file.parent for one in done if one.temporary is not None]
            sync_all([], [folder for log in logs for folder in (log, log.parent)])
    finally:
        for file in temporary:
            file.unlink(missing_ok=True)
    return done


def _first(nexts: Sequence[Next]) -> Location:
    return nexts[0].folder if nexts else Path()


def note_of(output: str, run: int, at: Sequence[int], label: str, versions: str) -> dict[str, str]:
    """What a commit says of itself: the output and the run that it has, its time and label, and the versions since the
    commit before.
    """
    return {
        _OUTPUT: output, _RUN: str(run), _TIME: json.dumps([*at]), _VERSIONS: versions,
        **({_LABEL: label} if label else {}),
    }  # fmt: skip


def _metadata(
    schema: Mapping[str, Type], partition_by: Sequence[str], checkpoint_commits: int, now: int
) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}},
        "schemaString": delta_schema(schema).to_json(), "partitionColumns": [*partition_by], "createdTime": now,
        "configuration": {
            "delta.enableChangeDataFeed": "true", "delta.checkpointInterval": str(checkpoint_commits),
        },
    }  # fmt: skip


def remove_temporary(folder: Location) -> None:
    """Remove what a killed process was writing. Lists the folder."""
    for top, _, names in os.walk(folder) if isinstance(folder, Path) else ():
        for name in names:
            if name.startswith(".") and name.endswith(".tmp"):
                store.delete(Path(top, name))


def upkeep(folder: Location, version: int, days: float, checkpoint_commits: int) -> None:
    """Every so many commits: write a checkpoint, and delete what nobody needs who reads versions of the last ``days``:
    the log before a checkpoint, the data files that its entries removed, and their files of the change feed.
    """
    if version == 0 or version % checkpoint_commits:
        return
    with reporting(folder, "tidy up", HINT):
        table, seconds = _opened(folder), max(days * _DAY, GRACE)
        table.create_checkpoint()
        if isinstance(folder, Path):
            sync_all([], [folder / deltalog.LOG])
        _trim(folder, time.time() - seconds, {unquote(path) for path in add_actions(table)["path"]})
        wanted = f"interval {int(seconds)} seconds"
        if table.metadata().configuration.get(_REMOVALS) != wanted:
            table.alter.set_table_properties({_REMOVALS: wanted})


def _trim(folder: Location, moment: float, live: Collection[str]) -> None:
    """Delete the entries of a log before the newest checkpoint from before a moment, with the files that only versions
    before that have. The oldest first, and its files before an entry: so what is left is a log at any time, and the
    next call finds what a killed process left.
    """
    commits, checkpoints = deltalog.versions_of(folder)
    old = [number for number in checkpoints if store.modified(deltalog.checkpoint_file(folder, number)) <= moment]
    for number in sorted(number for number in {*commits, *checkpoints} if number < max(old, default=0)):
        commit = deltalog.commit_file(folder, number)
        for path in filter(_is_inside, sorted(deltalog.paths_in(folder, number, "remove") - {*live})):
            _delete_replaced(folder / path, commit)
        for path in filter(_is_inside, sorted(deltalog.paths_in(folder, number, "cdc"))):
            store.delete(folder / path)
        for file in (commit, deltalog.checkpoint_file(folder, number), commit.with_suffix(".crc")):
            store.delete(file)
        failpoint("after-trim")


def _is_inside(path: str) -> bool:
    """Whether a path in a log names a file of the table; other programs write into this log, too."""
    return not path.startswith("/") and "://" not in path and ".." not in path.split("/")


def _delete_replaced(file: Location, commit: Location) -> None:
    """Delete a file that a commit removed, unless a later one added it again: it was written again then."""
    with suppress(FileNotFoundError):
        if store.modified(file) <= store.modified(commit):
            store.delete(file)
            failpoint("after-delete")
