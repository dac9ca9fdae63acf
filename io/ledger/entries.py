"""The table of the ledger: its rows, each in the order and with the digest of the row before it.

Each row is written in its own file. Sixteen files are merged into one, sixteen of those into one, and so on. So there
are few files at any time, and a row is rewritten once each time the ledger gets sixteen times longer. The newest rows
are also in the commits that added them, and are read from there.

Every command reads the ledger first, so this module imports nothing heavy.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ddcore.base.errors import StorageError
from ddcore.base.version import __version__
from ddcore.io.delta import commits, heads, new_files, open_tables, syncs, tables
from ddcore.io.delta.deltalog import (
    checkpoint_file,
    commit_file,
    commit_info,
    has_commits,
    is_maintenance,
    paths_in,
    versions_of,
)
from ddcore.io.delta.heads import Head
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.ledger.entry import COLUMNS, NUMBERS, Entry, standing
from ddcore.io.ledger.entry_files import NOTES, file_column, file_notes, file_span, file_width, replaced_at
from ddcore.io.ledger.ingest_index import FOOTER, IngestIndex, index_of
from ddcore.io.ledger.labels import FOOTER as LABELS
from ddcore.io.ledger.summary import Summary
from ddcore.io.parquet import datafile
from ddcore.io.storage import store
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ddcore.io.delta.writer import Writer

FORMAT = 2  # of the whole warehouse: docs/storage.md says when it rises

_ROW_GROUP = 64  # rows that are decoded together
_FIRST_READ = 4  # rows: those of one ingest and one run; the newest has the summary
_SETTINGS = {
    # Older versions may be deleted soon: no reader opens them.
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 10 seconds",
}
_KEPT_LEAST = 20  # seconds that a file is kept after its merge where there are more than so many files:
_KEPT_FILES = 64
_ROW = "ddcore.row"  # in commitInfo: the row that the commit adds, as JSON
_DESCRIPTION = "ledger of ddcore, format "
_FORMAT_NUMBER = re.compile(r"[0-9]{1,9}")


class Entries:
    """The rows, as of the opening or the last append; they are read when they are needed. ``writer``: of a command that
    holds the lock; without it, nothing can be appended.

    ``last``: the number of the newest row, None where there is none. ``summary``: that of the newest row.
    """

    def __init__(self, folder: Location, writer: Writer | None = None) -> None:
        """Read and check the newest rows, and the summary in the last of them."""
        self.folder, self.writer = folder, writer
        self.last: int | None = None
        self.summary = Summary()
        self._table: DeltaTable | None = None  # neither this nor a head where there is no table; a head is enough
        self._head: Head | None = None
        self._files: list[str] = []
        self._rows: dict[int, Entry] = {}
        self._footers: dict[str, dict[str, str]] = {}  # the notes of files
        self._indexes: dict[str, IngestIndex] = {}  # of inputs, with all rows
        # Old rows by file, whose name ends in a digest, and number: what an earlier command of this process was asked
        # for, and what this one was.
        self.known: Mapping[tuple[str, int], Entry] = {}
        self.noted: dict[tuple[str, int], Entry] = {}
        self._rewrites = False  # whether the next row comes with all rows, in one file that has their index
        self._followed = False  # whether the rows are read from files that newer ones may be in
        if has_commits(folder):
            with reporting(folder, "read the ledger", open_tables.mend_hint(folder)):
                self._open()

    def _open(self) -> None:
        folder = self.folder
        if head := heads.newest(folder):
            last: int | None = head.txn
            self._head, self._files = head, [file.path for file in head.files]
            _check_format(folder, head.description)
        else:
            table = self._open_table()
            _check_format(folder, table.metadata().description or "")
            self._keep_out(table)
            self._files, last = _paths(table), table.transaction_version(tables.APP)
        version = self.version
        if last is None:
            if self._files or not all(is_maintenance(folder, number) for number in range(1, version + 1)):
                raise self._damaged("no commit of it has a number")
        else:
            self.last = last
            self.summary = Summary.from_json([*self.onwards(max(0, last - _FIRST_READ + 1))][-1].summary)
            self._tell_lease()
            head_version = self.summary.head
            newer = [v for v in range(head_version + 1, version + 1) if store.is_file(commit_file(folder, v))]
            if version < head_version or not all(is_maintenance(folder, version) for version in newer):
                raise self._damaged("another program changed it")
        if self.writer is not None:
            # The process that wrote the last row may have been killed before it synced it.
            syncs.settle(folder, max(0, version - 1), version)

    def _open_table(self) -> DeltaTable:
        """The table as the Delta library has it."""
        if self._table is None:
            self._table = open_tables.open_table(self.folder, writer=self.writer)
        return self._table

    @property
    def exists(self) -> bool:
        """Whether there is a table."""
        return self._head is not None or self._table is not None

    @property
    def version(self) -> int:
        """The version of the table that is known."""
        if self._head is not None:
            return self._head.version
        assert self._table is not None
        return self._table.version()

    @property
    def owner(self) -> Writer:
        """The writer, where the caller holds the warehouse's lock."""
        assert self.writer is not None, "who appends to the ledger holds the lock, and loaded it with its writer"
        return self.writer

    def create(self) -> None:
        """Create the table. The caller holds the warehouse's lock."""
        from ddcore.base.schema import Type  # imports Polars, which readers do not need

        folder, schema = self.folder, {name: Type("int64" if name in NUMBERS else "string") for name in COLUMNS}
        settings = {**_SETTINGS, "delta.checkpointInterval": str(self.owner.tuning.ledger_commits)}
        tables.create(self.owner, folder, schema, description=f"{_DESCRIPTION}{FORMAT}", configuration=settings)
        self._head = self.owner.created(folder)
        if self._head is None:
            with reporting(folder, "read the ledger", open_tables.mend_hint(folder)):
                self._keep_out(self._open_table())

    # --- reading ---

    def __getitem__(self, entry: int) -> Entry:
        return self.at([entry])[0]

    def at(self, entries: Collection[int]) -> list[Entry]:
        """The rows of these numbers."""
        if missing := sorted({*entries} - self._rows.keys()):
            positions = {entry: (self._file_of(entry), entry) for entry in missing if len(missing) <= _FIRST_READ}
            self._rows.update({entry: self.known[at] for entry, at in positions.items() if at[0] and at in self.known})
            if lacking := [entry for entry in missing if entry not in self._rows]:
                self._load(lacking)
            self.noted.update({at: self._rows[entry] for entry, at in positions.items()})
        return [self._rows[entry] for entry in entries]

    def _file_of(self, entry: int) -> str:
        """The path of the file that has a row; empty where its name does not say so."""
        spans = ((path, file_span(path)) for path in self._files)
        return next((path for path, span in spans if span is not None and span[0] <= entry <= span[1]), "")

    def onwards(self, first: int = 0) -> Iterator[Entry]:
        """The rows from ``first`` on, oldest first."""
        wanted = range(first, 0 if self.last is None else self.last + 1)
        missing = [entry for entry in wanted if entry not in self._rows]
        if missing:
            self._load(range(missing[0], missing[-1] + 1))
        yield from (self._rows[entry] for entry in wanted)

    def backwards(self, most: int = 512) -> Iterator[Entry]:
        """The rows, newest first. Each is checked to be what the next one followed, and none is kept.

        ``most``: rows that are read at once; the first portions are smaller.
        """
        end, size, later = -1 if self.last is None else self.last, _FIRST_READ, None
        while end >= 0:
            first = max(0, end - size + 1)
            missing = [entry for entry in range(first, end + 1) if entry not in self._rows]
            rows = self._checked(range(missing[0], missing[-1] + 1)) if missing else []
            by_entry = {row.entry: row for row in rows}
            for entry in range(end, first - 1, -1):
                row = self._rows.get(entry) or by_entry[entry]
                if later is not None and later.before != row.digest:
                    raise self._damaged(f"entry {entry} has changed since it was written")
                yield row
                later = row
            end, size = first - 1, min(4 * size, most)

    def open_ingests(self) -> Iterator[Entry]:
        """The rows of ingests that may have a version that is not folded, oldest first."""
        return standing([*self.at(self.summary.open), *self.onwards(self.summary.waiting)])

    def ingest_index(self, input: str) -> IngestIndex:
        """The index of an input's ingests. Reads a footer of each file, and all rows of files that have no index: those
        of another program. The next record replaces them.
        """
        if input not in self._indexes:
            notes = self.notes()
            texts = [index_of(self.onwards())] if notes is None else [note[0] for note in notes]
            self._indexes[input] = IngestIndex.of(texts, input)
        return self._indexes[input]

    def notes(self) -> list[tuple[str, str]] | None:
        """For each file, in the order of their rows, its index of ingests and its labels. None where a file of
        another program has none, and where files were deleted since the ledger was read.
        """
        folder, paths = self.folder, sorted(self._files)
        for path in paths:
            if path not in self._footers and not self._followed:
                try:
                    self._footers[path] = datafile.notes(folder / path, open_tables.mend_hint(folder), NOTES)
                except StorageError:
                    if not self._follow():
                        raise
        if self._followed:
            return None
        notes = [self._footers[path] for path in paths]
        spans = [span for path in paths if (span := file_span(path)) is not None]
        if not all(FOOTER in note for note in notes) or len(spans) < len(paths):
            self._rewrites = True
            return None
        end = 0 if self.last is None else self.last + 1
        if [*(first for first, _ in spans), end] != [0, *(last + 1 for _, last in spans)]:
            raise self._damaged(f"some of the entries 0..{end - 1} are missing or occur twice")
        return [(note[FOOTER], note.get(LABELS, "")) for note in notes]

    def check(self) -> None:
        """Raise StorageError for a changed row, and for a file whose index is not that of its rows. Reads all rows."""
        folder = self.folder
        rows = list(self.onwards())
        for path in () if self._followed else self._files:
            notes, span = datafile.notes(folder / path, open_tables.mend_hint(folder), NOTES), file_span(path)
            right = file_notes(rows[span[0] : span[1] + 1]) if span is not None else notes
            if FOOTER in notes and notes != right:
                raise self._damaged(f"the index of ingests in {path} is not that of its rows")

    def _load(self, entries: Sequence[int]) -> None:
        for row in self._checked(entries):
            self._rows.setdefault(row.entry, row)

    def _checked(self, entries: Sequence[int]) -> list[Entry]:
        """The rows of these numbers, which ascend, as they were written: each once, and after the one before it."""
        while True:
            try:
                return self._from_files(entries)
            except StorageError:
                if not self._follow():
                    raise

    def _follow(self) -> bool:
        """If files are gone, read from those of the newest version: a writer has merged them since, and has deleted
        them because this process is slow. False where this is not so: files are missing.
        """
        folder, before = self.folder, set(self._files)
        if all(store.is_file(folder / path) for path in before):
            return False
        table = open_tables.open_table(folder, writer=self.writer)
        files = _paths(table)
        if set(files) == before:
            return False
        self._table, self._head, self._files, self._followed = table, None, files, True
        return True

    def _from_files(self, entries: Sequence[int]) -> list[Entry]:
        folder, first, last = self.folder, entries[0], entries[-1]
        with reporting(folder, "read the ledger", open_tables.mend_hint(folder)):
            for path in self._files:
                span = file_span(path)
                if span is None or bisect_left(entries, span[0]) < bisect_right(entries, span[1]):
                    datafile.verify(folder / path, open_tables.mend_hint(folder))
            rows = self._in_commits(entries) or self._in_files(entries)
        if [row.entry for row in rows] != list(entries):
            raise self._damaged(f"some of the entries {first}..{last} are missing or occur twice")
        by_entry = {row.entry: row for row in rows}
        for row in rows:
            before = self._rows.get(row.entry - 1) or by_entry.get(row.entry - 1)
            if row.digest != row.own_digest() or (before is not None and row.before != before.digest):
                raise self._damaged(f"entry {row.entry} has changed since it was written")
        return rows

    def _in_commits(self, entries: Sequence[int]) -> list[Entry]:
        """The newest rows, from the commits that added them: quicker than from files. None, where one is not there."""
        if self._head is None or self.last is None or len(entries) > _FIRST_READ:
            return []
        rows = []
        for entry in entries:
            info = commit_info(self.folder, self._head.version - self.last + entry)
            try:
                row = Entry(*json.loads(info[_ROW]))
            except (KeyError, TypeError, ValueError):  # the commit is gone, or damaged
                return []
            if row.entry != entry or row.digest != row.own_digest():
                return []
            rows.append(row)
        return rows

    def _in_files(self, entries: Sequence[int]) -> list[Entry]:
        from deltalake import QueryBuilder

        query = QueryBuilder().register("ledger", self._open_table())
        where = f"entry >= {entries[0]} and entry <= {entries[-1]}"
        if len(entries) <= entries[-1] - entries[0]:
            where += f" and entry in ({', '.join(map(str, entries))})"
        result = query.execute(f"select {', '.join(COLUMNS)} from ledger where {where} order by entry").read_all()
        columns = [tables.values(result.column(name)) for name in COLUMNS]
        return [Entry(*row) for row in zip(*columns, strict=True)]

    # --- writing ---

    def append(self, row: Entry) -> bool:
        """Commit a row in its own file, or in one file with the rows of earlier files; return whether in one."""
        from ddcore.base.schema import Type

        spans = [file_span(path) for path in self._files]
        is_whole = self._rewrites or None in spans
        width = row.entry + 1 if is_whole else file_width(row.entry + 1, self.owner.tuning.ledger_files)
        first = row.entry + 1 - width
        # A file of all rows, for the reasons above, may end anywhere.
        first = min([first, *(span[0] for span in spans if span is not None and span[1] >= first)])
        rows = [*self.onwards(first), row]
        schema = {name: Type("int64" if name in NUMBERS else "string") for name in COLUMNS}
        is_text = {name: name not in NUMBERS for name in schema}
        columns = {name: file_column([getattr(one, name) for one in rows], of_text=is_text[name]) for name in schema}
        stem = f"entries-{first:08d}-{row.entry:08d}"
        file = new_files.write_file(
            self.folder, stem, new_files.arrow_table(columns, schema), bounded=["entry"], row_group=_ROW_GROUP,
            notes=file_notes(rows),
        )  # fmt: skip
        merged = [path for path in self._files if (file_span(path) or (first, 0))[0] >= first]
        self._change(file, [path for path in merged if path != file.path], row)
        self._files = [path for path in self._files if path not in merged] + [file.path]
        self._rows[row.entry], self.last, self.summary = row, row.entry, Summary.from_json(row.summary)
        self._rewrites = False
        self._indexes.clear()
        self._tell_lease()
        return len(rows) > 1

    def _change(self, file: AddedFile, removed: Sequence[str], row: Entry) -> None:
        """Commit a file of the ledger, and sync it. Raises LockHeld where another process took the lock over."""
        folder, carries = self.folder, {_ROW: json.dumps([getattr(row, name) for name in COLUMNS])}
        if self._head is not None:
            change = heads.Change([file], removed, row.entry, carries)
            if head := commits.change_from(self.owner, folder, self._head, change):
                self._table, self._head = None, head
                return
        table = self._open_table()
        try:
            commits.change(self.owner, table, [file], removed, row.entry, carries=carries, fenced=True)
        except commits.Overtaken:
            # If the store's answer was lost, the library asked again, and the commit that is there may be this one.
            ours = file.path in paths_in(folder, table.version() + 1, "add")
            if not ours and self.owner.lease is not None:
                raise self.owner.lease.lost() from None
            table.update_incremental()
        if self.owner.lease is not None:
            self.owner.lease.note_recorded()
        syncs.settle(folder, table.version(), table.version())
        self._head = heads.newest(folder)

    def _tell_lease(self) -> None:
        if self.writer is not None and self.writer.lease is not None:
            self.writer.lease.entry = self.last

    def sweep(self) -> None:
        """Delete files that were merged into others, and entries of the Delta log before a checkpoint: an hour later,
        or 20 seconds later where there are many, so that their number does not grow with that of the runs. A reader
        that is slower looks for the rows in newer files.
        """
        folder, live = self.folder, set(self._files)
        present = [name for name in store.names(folder) if name.startswith("entries-") and name.endswith(".parquet")]
        commits, checkpoints = versions_of(folder)
        base = checkpoints[-2] if len(checkpoints) > 1 else 0
        old = [commit_file(folder, version) for version in commits if version < base]
        old += [checkpoint_file(folder, version) for version in checkpoints if version < base]
        self.owner.require_lock()
        written = {name: store.modified(folder / name) for name in present if store.is_file(folder / name)}
        replaced = [(at, folder / name) for name, at in replaced_at(written).items() if name not in live]
        for ages in (replaced, [(store.modified(path), path) for path in old if store.is_file(path)]):
            for number, (at, path) in enumerate(sorted(ages, reverse=True)):
                if time.time() - at > (self.owner.tuning.ledger_seconds if number < _KEPT_FILES else _KEPT_LEAST):
                    store.delete(path)
                    failpoint("after-sweep")

    def _keep_out(self, table: DeltaTable) -> None:
        """In an object store: keep out the processes that held the lock before, if one of them may still be working.

        Commits are numbered and none replaces another, and each of ours is the next after the version that its process
        has open, which has its token as the greatest (docs/storage.md). So once the ledger has a greater one, no
        process with a smaller token can commit to it any more. Raises LockHeld if this process is one of those.
        """
        while self.writer is not None and (lease := self.writer.lease) is not None:
            known = commits.token_of(table)
            if known > lease.token or (known == lease.token and not lease.is_recorded):
                lease.outbid(known)
            if known == lease.token or not lease.takes_over:
                return
            try:
                commits.fence(self.writer, table, lease.token)
                lease.note_recorded()
                return
            except commits.Overtaken:
                table.update_incremental()

    def _damaged(self, why: str) -> StorageError:
        return StorageError(f"the ledger {self.folder} is damaged: {why}", open_tables.mend_hint(self.folder))


def _paths(table: DeltaTable) -> list[str]:
    paths: list[str] = tables.values(table.get_add_actions().column("path"))
    return paths


def _check_format(folder: Location, description: str) -> None:
    """Raise StorageError for a warehouse of another format."""
    text = description.removeprefix(_DESCRIPTION)
    if text != str(FORMAT):
        number = text if _FORMAT_NUMBER.fullmatch(text) else "without a number"
        raise StorageError(
            f"{folder.parent} has the warehouse format {number}; this ddcore, {__version__}, reads format {FORMAT}",
            "use the ddcore that wrote it, or ingest the sources into a new warehouse; nothing was changed",
        )
