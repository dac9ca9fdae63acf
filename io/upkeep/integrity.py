"""Integrity of a warehouse: whether every file of its live tables is there and whole, and what no live table needs.

Reads the Delta logs, and of each data file its size and footer; every byte only if told to. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcore.base.errors import StorageError
from ddcore.io.delta import open_tables, tables
from ddcore.io.delta.deltalog import LOG, named_files
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState
from ddcore.io.parquet import datafile
from ddcore.io.storage import store
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location
from ddcore.io.upkeep import branching

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger

_PAGES = 1 << 16  # rows decoded at once


@dataclass
class Integrity:
    """What was checked: numbers of tables and files, rows, and bytes on the disk; and one error for each damage."""

    tables: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    damages: list[StorageError] = field(default_factory=list)


def inspect(ledger: Ledger, *, deep: bool = False) -> Integrity:
    """Check all live tables, and the ledger.

    Each log names the files, rows and bounds that the ledger says; each file exists, has the size that the log says, a
    footer with the digest in its name, and as many rows as the log says. ``deep``: every byte has the digest of
    its row group, and every entry of the ledger its own; files without digests, from OPTIMIZE, are decoded in full.

    Cost: two small reads per file; with ``deep`` one pass over all of them, 1 GB/s.
    """
    found = Integrity()
    for name, state in live_tables(ledger).items():
        folder = ledger.warehouse.table(name)
        found.tables += 1
        try:
            _check_files(found, folder, tables.live_files(folder, state), deep)
        except StorageError as error:
            found.damages.append(error)
    for folder, files in _waiting(ledger).items():
        _check_files(found, folder, files, deep)
    _check_ledger(found, ledger, deep)
    return found


def _waiting(ledger: Ledger) -> dict[Location, Sequence[AddedFile]]:
    """Files of corrections, which the next run commits: no table names them yet. By the table's folder."""
    run = ledger.current_run()
    return {} if run is None else {ledger.warehouse.table(name): files for name, files in run.corrections.items()}


def live_tables(ledger: Ledger) -> dict[str, TableState]:
    """Every table that the ledger names, inputs first, with its state."""
    inputs = {f"inputs/{name}": ledger.input_table(name) for name in ledger.inputs()}
    return {name: state for name, state in inputs.items() if state is not None} | {
        **ledger.tables(),
        **ledger.tables_ahead(),
    }


def _check_ledger(found: Integrity, ledger: Ledger, deep: bool) -> None:
    folder = ledger.warehouse.ledger
    if not tables.exists(folder):
        return
    found.tables += 1
    try:
        with reporting(folder, "read the ledger", open_tables.mend_hint(folder)):
            files = tables.files_of(open_tables.open_table(folder))
        _check_files(found, folder, files, deep)
        if deep:
            ledger.entries.check()
    except StorageError as error:
        found.damages.append(error)


def _check_files(found: Integrity, folder: Location, files: Sequence[AddedFile | LiveFile], deep: bool) -> None:
    for file in files:
        found.files += 1
        found.rows += file.rows
        try:
            _check_file(folder, file, deep)
            found.bytes += file.size
        except StorageError as error:
            found.damages.append(error)


def _check_file(folder: Location, file: AddedFile | LiveFile, deep: bool) -> None:
    path, hint = folder / file.path, open_tables.mend_hint(folder)
    with reporting(path, "read", hint):
        try:
            size = store.size_of(path)
        except FileNotFoundError:
            raise StorageError(f"{path} is missing", hint) from None
        if size != file.size:
            raise StorageError(f"{path} has {size} bytes, its table's log says {file.size}", hint)
        rows = datafile.rows_of(path, hint)
        if rows != file.rows:
            raise StorageError(f"{path} has {rows} rows, its table's log says {file.rows}", hint)
        if deep and datafile.has_digests(path):
            datafile.verify(path, hint)
        elif deep:
            _decode(path)


def _decode(path: Location) -> None:
    """Decode every page of a file that has no digests of ours."""
    import pyarrow.parquet as pq

    with store.source_of(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
        for _ in file.iter_batches(batch_size=_PAGES):
            pass


def unnamed_commits(ledger: Ledger) -> list[str]:
    """The live tables, by name, with a commit after the state that the ledger names, apart from maintenance. Other
    readers see it. Looks for one file per table.
    """
    live = live_tables(ledger).items()
    own = [(name, state) for name, state in live if ledger.warehouse.is_own(name)]
    return [name for name, state in own if not tables.is_settled(ledger.warehouse.table(name), state)]


# --- what no live table needs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leftovers:
    """Files and folders of one kind, and their bytes: nothing that readers see needs them."""

    what: str
    files: int
    bytes: int
    examples: tuple[str, ...]
    hint: str


def leftovers(ledger: Ledger) -> Iterator[Leftovers]:
    """What takes space and changes no result: files that no version of a table names, tables that the ledger does not
    name, damaged tables that were set aside, messages of a killed run.

    Files of earlier versions of live tables are none: earlier versions stay readable. The ledger deletes its own. Cost:
    lists all folders of the warehouse, and opens each live table.
    """
    warehouse, live, waiting = ledger.warehouse, live_tables(ledger), _waiting(ledger)
    unnamed, unknown, aside = [], [], []
    for name, folder in warehouse.tables():
        if name in live:
            needed = {folder / file.path for file in waiting.get(folder, ())}
            unnamed += [path for path in _unnamed(folder) if path not in needed]
        else:
            unknown.append(folder)
    for folder in (warehouse.root, warehouse.root / "outputs", warehouse.root / "state"):
        aside += [folder / name for name in store.names(folder) if name.startswith("_damaged-")]
    kinds = (
        ("files that no version of a table names, of killed commands", unnamed, "delete them while no command runs"),
        ("tables that the last run does not name, of other programs or of a killed run", unknown,
         "the next run finishes a killed one; those of programs that you do not run any more can be deleted"),
        ("branches that were not made or removed to the end", branching.left(warehouse.root),
         "the next command that makes or deletes a branch removes them"),
        ("damaged tables that were set aside", aside, "delete them when you do not need them any more"),
    )  # fmt: skip
    for what, paths, hint in kinds:
        files = [file for path in paths for file in store.entries(path)]
        if paths:
            examples = tuple(warehouse.relative(path) for path in paths)
            yield Leftovers(what, len(files), sum(file.size for file in files), examples, hint)


def _unnamed(folder: Location) -> list[Location]:
    """The files of a table, apart from its log, that neither its newest version nor an earlier one names."""
    with reporting(folder, "read", open_tables.mend_hint(folder)):
        table = open_tables.open_table(folder)
        named = {file.path for file in tables.files_of(table)}
        paths = {file.below(folder): file.address for file in store.entries(folder)}
        others = {name: path for name, path in paths.items() if not name.startswith(f"{LOG}/") and name not in named}
        if others:
            # Removed files stay in the log until they may be deleted, and with them the versions that need them.
            named = set(table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True))
        if others.keys() - named:
            named |= named_files(folder)  # reads the whole log
        return [path for name, path in sorted(others.items()) if name not in named]
