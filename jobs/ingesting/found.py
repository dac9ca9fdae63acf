"""What the sources of an ingest are, with layouts that fit; found before anything is locked or started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddcore.base.errors import DataError, UsageError
from ddcore.io.ledger.ingest_index import IngestIndex
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.sources.deltafeed import COMMIT
from ddcore.io.sources.deltatable import DeltaTable
from ddcore.io.sources.events import Events
from ddcore.io.sources.finding import find_snapshots, find_sources
from ddcore.io.sources.intake import fitted
from ddcore.io.sources.row_checks import Layout, Rules
from ddcore.io.sources.snapshots import Snapshot
from ddcore.io.sources.source import Source
from ddcore.io.storage.store import is_folder
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.ingesting.engines import Layouts, Take
from ddcore.jobs.ingesting.following import Followed, follow
from ddcore.jobs.ingesting.notes import empty
from ddcore.jobs.ingesting.report import IngestReport
from ddcore.jobs.ingesting.snapshots import Snapshots, new_snapshots, next_version
from ddcore.jobs.ingesting.work import Work

__all__ = ["EventFiles", "Find", "SnapshotFiles", "Tables", "Updates", "find_for"]

Find = Callable[[Sequence[str]], list[Source]]


@dataclass(frozen=True)
class Updates:
    """Sources with updates, or with rows that are inserted; each with its layout."""

    places: tuple[str, ...]
    layouts: Layouts
    fitting: Rules

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(source.size for source, _ in self.layouts)

    def at(self, time: tuple[int, ...]) -> Updates:
        """The same at this time."""
        return replace(self, fitting=replace(self.fitting, time=time))

    def refuse_times(self) -> None:
        """Raise DataError for a source with a version column, which ``--version`` would overrule."""
        _refuse_times(self.layouts, self.fitting)

    def rules(self, ledger: Ledger, name: str) -> Rules:
        """The rules, with the version of rows that have none."""
        if self.fitting.fallback is None:
            return self.fitting
        return replace(self.fitting, fallback=(next_version(ledger, name),))

    def take_in(self, work: Work, take: Take) -> IngestReport:
        """Take them in, with the warehouse locked."""
        return work.run(take, self.places, self.layouts)


@dataclass(frozen=True)
class SnapshotFiles:
    """Snapshots; ``found`` are those that were new before the warehouse was locked."""

    places: tuple[str, ...]
    snapshots: tuple[Snapshot, ...]
    found: Snapshots
    fitting: Rules

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(source.size for source, _ in self.found.parts)

    def at(self, time: tuple[int, ...]) -> SnapshotFiles:
        """The same at this time."""
        return replace(self, fitting=replace(self.fitting, time=time))

    def refuse_times(self) -> None:
        """A snapshot's version columns are left out."""

    def rules(self, ledger: Ledger, name: str) -> Rules:
        """The rules for the updates that the snapshots make."""
        del ledger, name
        return Rules(self.fitting.schema, self.fitting.dims)

    def take_in(self, work: Work, take: Take) -> IngestReport:
        """Take them in, with the warehouse locked."""
        return work.run_series(take, self.places, self.snapshots, self.found, self.fitting)


@dataclass(frozen=True)
class Tables:
    """Delta tables of which only what is new is taken in. With ``at_next`` all of it gets the next version."""

    places: tuple[str, ...]
    tables: tuple[DeltaTable, ...]
    found: Followed
    fitting: Rules
    feed: bool
    at_next: bool

    @property
    def size(self) -> int:
        """The bytes to read, as far as they are known."""
        return sum(source.size for source, _ in self.found.layouts)

    def at(self, time: tuple[int, ...]) -> Tables:
        """The same at this time."""
        return replace(self, fitting=replace(self.fitting, time=time))

    def refuse_times(self) -> None:
        """Raise DataError for a table with a version column, which ``--version`` would overrule."""
        _refuse_times(self.found.layouts, self.fitting)

    def rules(self, ledger: Ledger, name: str) -> Rules:
        """The rules, with the version of rows that have none."""
        after = (next_version(ledger, name),) if len(self.fitting.dims) == 1 else None
        if self.at_next:
            return replace(self.fitting, time=after)
        return self.fitting if self.fitting.fallback is None else replace(self.fitting, fallback=after)

    def take_in(self, work: Work, take: Take) -> IngestReport:
        """Take them in, with the warehouse locked."""
        found = follow(work.ledger, work.name, self.tables, self.fitting, work.root, feed=self.feed)
        return work.run_followed(take, self.places, found)


@dataclass(frozen=True)
class EventFiles:
    """Sources with events; each with its layout."""

    places: tuple[str, ...]
    layouts: tuple[tuple[Source, Layout], ...]
    events: Events

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(source.size for source, _ in self.layouts)

    def at(self, time: tuple[int, ...]) -> EventFiles:
        """The same at this time."""
        return replace(self, events=replace(self.events, rules=replace(self.events.rules, time=time)))

    def refuse_times(self) -> None:
        """Raise DataError for a source with a version column, which ``--version`` would overrule."""
        _refuse_times(self.layouts, self.events.rules)

    def rules(self, ledger: Ledger, name: str) -> Rules:
        """The rules for the updates that the events make."""
        del ledger, name
        return Rules(self.events.rules.schema, self.events.rules.dims)

    def take_in(self, work: Work, take: Take) -> IngestReport:
        """Take them in, with the warehouse locked."""
        return work.run_events(take, self.places, self.layouts, self.events)


def find_for(
    form: str,
    places: Sequence[str],
    rules: Rules,
    warehouse: Warehouse,
    name: str,
    *,
    root: Path,
    again: bool,
    at_next: bool,
    find: Find,
) -> Updates | SnapshotFiles | Tables:
    """The sources, with layouts that fit, before anything is locked or started. DataError, UsageError."""
    if not places:
        raise UsageError("no source was named", "name files, folders, globs or Delta tables")
    if form == "snapshot":
        rules = replace(rules, rows_only=True)
        snapshots = tuple(
            find_snapshots(places)
            if find is find_sources
            else (Snapshot(source.name, source.path, (source,)) for source in find(places))
        )
        ledger = Ledger.load(warehouse) if is_folder(warehouse.ledger) else None
        found = new_snapshots(ledger, name, snapshots, rules, root, again=again)
        return SnapshotFiles(tuple(places), snapshots, found, rules)
    sources = find(places)
    if form == "append":
        one = len(rules.dims) == 1 and rules.time is None
        rules = replace(rules, diff=1, appends=True, fallback=(0,) if one else None)
    if form == "feed" and len(rules.dims) == 1 and rules.time is None:
        rules = replace(rules, rename={rules.dims[0]: COMMIT, **rules.rename})
    tables = tuple(source for source in sources if isinstance(source, DeltaTable))
    if form == "feed" or (form == "append" and tables):
        _check_tables(form, sources, tables, again=again)
        ledger = Ledger.load(warehouse) if is_folder(warehouse.ledger) else None
        feed = form == "feed"
        found_new = follow(ledger, name, tables, rules, root, feed=feed)
        return Tables(tuple(places), tables, found_new, rules, feed, at_next)
    layouts, rules = _fitted(sources, rules, warehouse, name)
    if all(source.row_count() == 0 for source, _ in layouts):
        raise empty(places)
    return Updates(tuple(places), layouts, rules)


def _check_tables(form: str, sources: Sequence[Source], tables: Sequence[DeltaTable], *, again: bool) -> None:
    """UsageError for files among tables that are followed, and for a restatement by them."""
    for source in sources:
        if source not in tables:
            raise UsageError(
                f"{source.name}: a {source.kind}, " + ("which has no change data feed" if form == "feed" else
                "beside a Delta table: --append takes files or tables"),
                "name Delta tables only; a file is taken in with --append or --snapshot",
            )  # fmt: skip
    if again:
        raise UsageError(
            f"--restate with --{form} of a Delta table: only commits that are new are taken in",
            "restate with snapshots: TABLE@v3..v7 --snapshot --restate V",
        )


def _refuse_times(layouts: Sequence[tuple[Source, Layout]], rules: Rules) -> None:
    for _, layout in layouts:
        for dim in rules.dims if rules.time is None else ():
            if dim in layout.source_columns or dim in layout.folders:
                raise DataError(
                    f"{layout.where}: has a column {layout.source_columns.get(dim, rules.rename.get(dim, dim))!r}, but "
                    "--version gives its value for all rows",
                    "leave out --version, or remove the column from the source",
                )


def _fitted(sources: Sequence[Source], rules: Rules, warehouse: Warehouse, name: str) -> tuple[Layouts, Rules]:
    """Each source with its layout, and the rules with the columns that the input got later, if a source lacks one."""
    try:
        return fitted(sources, rules), rules
    except DataError:
        index = Ledger.load(warehouse).ingest_index(name) if is_folder(warehouse.ledger) else IngestIndex()
        former = index.former_columns(rules.schema)
        if not former:
            raise
    rules = replace(rules, added=frozenset(rules.schema).difference(*former))
    return fitted(sources, rules), rules
