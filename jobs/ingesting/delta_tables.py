"""Delta tables that an ingest follows: the ledger keeps the last commit that was taken in, and the next ones are new.

``feed`` takes the changes of each commit, ``append`` the rows of the files that it added. A commit that is lost is
an error and never a gap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ddcore.base.errors import DataError, UsageError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.digests import Digest
from ddcore.io.project.frontiers import is_open
from ddcore.io.project.times import Time
from ddcore.io.sources.commits import Commit, first_deleted, first_missing, path_of, read_commits
from ddcore.io.sources.deltafeed import COMMIT, DeltaFeed
from ddcore.io.sources.deltatable import DeltaTable, delta_table
from ddcore.io.sources.intake import Part, fitted
from ddcore.io.sources.layouts import Rules
from ddcore.io.sources.parquetfile import ParquetFile
from ddcore.io.sources.positions import Position
from ddcore.io.sources.rows_taken import RowsTaken
from ddcore.io.sources.source import Source, date_of
from ddcore.jobs.ingesting.engines import Layouts
from ddcore.jobs.ingesting.snapshots import next_version
from ddcore.jobs.ingesting.work import Reader, Work

_SNAPSHOT = "to go on from what the table holds now, as one difference: ddcore ingest INPUT TABLE --snapshot"
_SWITCH_ON = "ALTER TABLE ... SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
_BY_SPARK = "which only Spark reads from a change data feed"


@dataclass(eq=False, kw_only=True)
class TableReader(Reader):
    """Reads what is new in Delta tables: their changes, or rows to insert. ``at_next``: all of it at the next version.

    ``new``: the tables that are new, or have new commits, each with the sources of its new rows.
    """

    tables: Sequence[DeltaTable]
    at_next: bool = False
    new: Sequence[tuple[DeltaTable, Layouts]] = ()

    def look(self, ledger: Callable[[], Ledger]) -> None:
        """Find what is new in the tables. Reads their new commits. DataError where some are lost, and for a table in
        the place of another one.
        """
        feed, positions = self.settings.form == "feed", self.positions_of(self.tables, ledger())
        known = [
            position
            for table, position in zip(self.tables, positions, strict=True)
            if position and _is_taken(table, position)
        ]
        new, self.notes = [], [] if feed else ["every row counts as inserted"]
        for table, position in zip(self.tables, positions, strict=True):
            if position in known:
                continue
            start = None if position is None else _taken(table, position) + 1
            source: Sequence[Source]
            if feed:
                source, note = _changes(table, start, position)
                self.notes += [note] if note else []
                _check_order(table, start, position, self.rules)
                new.append((table, fitted(source, self.rules)))
            else:
                source = [table] if start is None or position is None else _added(table, start, position)
                absent = frozenset() if start is None else frozenset(name for name, _ in table.fields())
                new.append((table, fitted(source, replace(self.rules, added=self.rules.added | absent))))
        self.new, self.layouts, self.is_new = new, [one for _, parts in new for one in parts], bool(new)
        self.ingest = max((position.ingest for position in known), default=0)
        self.rests_on = tuple(
            sorted({position.ingest for position in positions if position is not None and position not in known})
        )

    def update_rules(self, ledger: Ledger) -> Rules:
        """The rules, with the version of rows that have none."""
        after = next_version(ledger, self.name) if len(self.rules.dims) == 1 else None
        if self.at_next:
            return replace(self.rules, time=after)
        return self.rules if self.rules.fallback is None else replace(self.rules, fallback=after)

    def read(self, work: Work) -> Part:
        """Read the new rows; how far the tables were read is kept also if they change nothing."""
        part, rules, upper = work.take(self.layouts, [table for table, _ in self.new]), work.rules, work.judgement.upper
        if not part.counts and len(rules.dims) == 1:
            time = rules.time or rules.fallback or Time([max(table.version for table, _ in self.new)])
            part.counts = {time: (0, 0)} if upper is None or is_open(time, upper) else {}
        self.is_new = bool(part.counts)
        return part

    def names(self, part: Part) -> tuple[Mapping[Time, datetime], Mapping[int, str]]:
        """When the commits of these versions were made; if versions are not commits, the last one the newest commit."""
        versions = list(part.counts) if len(self.rules.dims) == 1 else []
        dates: dict[Time, datetime] = {}
        for table, parts in self.new:
            of = {max(versions): table.date()} if versions else {}
            for source, _ in parts:
                if isinstance(source, DeltaFeed) and self.rules.time is None:
                    by_commit = self.rules.rename.get(self.rules.dims[0]) == COMMIT
                    dated = {Time([v]): date_of(t / 1000) for v, t in source.commit_times().items() if by_commit}
                    of = {time: date for time, date in dated.items() if time in part.counts}
            for version, date in of.items():
                if date is not None:
                    dates[version] = max(date, dates.get(version, date))
        return dates, {}

    def digests(self, part: Part) -> Sequence[Digest]:
        """Those of all new rows of each table."""
        of = [
            [digest for source, _ in parts for digest in part.digests.get(source.name, {}).values()]
            for _, parts in self.new
        ]
        return [sum(digests, Digest()) for digests in of]


# --- positions --------------------------------------------------------------------------------------------------------


def _is_taken(table: DeltaTable, position: Position) -> bool:
    return _taken(table, position) == table.version


def _taken(table: DeltaTable, position: Position) -> int:
    """The last commit of the table that an ingest took in. DataError where there is none before the newest."""
    stamp = position.text.partition("/")[0]
    if not stamp or RowsTaken.of(position.text) is not None:
        raise DataError(
            f"{table.name}: ingest {position.ingest} took it in as a change log, so all of its rows would count again",
            f"go on with its new versions, without --feed or --append; or take that back: ddcore ingest --undo "
            f"{position.ingest}",
        )
    identity, _, version = stamp.rpartition("-")
    if identity != table.identity:
        raise DataError(
            f"{table.name}: is not the table that ingest {position.ingest} took in from this place: its id is "
            f"{table.identity}, and was {identity}",
            "to take in what the new table changes, as one difference, and follow it from there on: ddcore ingest "
            "INPUT TABLE --snapshot",
        )
    if int(version) > table.version:
        raise DataError(
            f"{table.name}: ingest {position.ingest} took it in up to version {version}: its log was set back",
            "restore it at its origin; or replace the history of the input from version V on by what it holds: "
            "--snapshot --restate V",
        )
    return int(version)


def _check_order(table: DeltaTable, start: int | None, position: Position | None, rules: Rules) -> None:
    """Refuse commits at their numbers, if the input has the commits before them at later versions."""
    if start is None or position is None or len(rules.dims) > 1 or rules.rename.get(rules.dims[0]) != COMMIT:
        return
    if start <= position.last[0]:
        raise UsageError(
            f"{table.name}: commit {start} would be at version {start}, but ingest {position.ingest} took the commits "
            f"before it in at version {position.last}",
            "the input's versions are not the numbers of commits: say --version next",
        )


# --- the change data feed ---------------------------------------------------------------------------------------------


class _Lost(Exception):
    """The changes of a version cannot be read, and why."""

    def __init__(self, version: int, why: str) -> None:
        super().__init__(why)
        self.version, self.why = version, why


def _changes(table: DeltaTable, start: int | None, position: Position | None) -> tuple[list[Source], str]:
    """The changes of a table from commit ``start`` on; without it, from the first one, or all of its rows; a note."""
    first = start or 0
    try:
        return [_feed(table, first, _commits(table, first))], ""
    except _Lost as lost:
        if position is not None:
            raise DataError(
                f"{table.name}: the changes of version {lost.version} cannot be read: {lost.why}; ingest "
                f"{position.ingest} took the table in up to version {first - 1}",
                _SNAPSHOT,
            ) from lost
        why = lost.why
    if not _is_on(table):
        raise DataError(f"{table.name}: has no change data feed", f"switch it on: {_SWITCH_ON}; or use --snapshot")
    commits = list(read_commits(table.path, table.name, [table.version]))
    return [_feed(table, None, commits)], f"{table.name}: {why}; so all of its rows count as inserted at that version"


def _feed(table: DeltaTable, first: int | None, commits: Sequence[Commit]) -> DeltaFeed:
    reason = ""
    if any(commit.has_deletion_vectors for commit in commits):
        reason = f"has deletion vectors, {_BY_SPARK}"
    if any(commit.has_escaped_names for commit in commits):
        reason = f"has partitions whose values are escaped in the names of their folders, {_BY_SPARK}"
    if _maps_columns(table):
        reason = f"has column mapping, {_BY_SPARK}"
    return DeltaFeed(
        table.name, table.path, version=table.version, identity=table.identity, first=first,
        times=tuple(commit.time for commit in commits), only_spark=reason, opened=table.opened,
    )  # fmt: skip


def _commits(table: DeltaTable, first: int) -> list[Commit]:
    """The commits from ``first`` on, whose changes can all be read. Raises _Lost for the first that cannot."""
    versions = range(first, table.version + 1)
    missing = first_missing(table.path, versions)
    if missing is not None:
        raise _Lost(missing, f"commit {missing} is not in the table's log any more")
    commits = list(read_commits(table.path, table.name, versions))
    is_on = _is_on_before(table, first, commits)
    for commit in commits:
        is_on = is_on if commit.feeds is None else commit.feeds
        if not is_on:
            raise _Lost(commit.version, f"its change data feed was off at version {commit.version}")
        if commit.types:
            _check_types(table, commit.version, commit.types)
        deleted = first_deleted(table.path, commit.needed)
        if deleted is not None:
            raise _Lost(commit.version, f"the file {deleted} was deleted, as VACUUM does")
    return commits


def _is_on_before(table: DeltaTable, first: int, commits: Sequence[Commit]) -> bool:
    """Whether the feed was on before commit ``first``; also checks the types of then."""
    if all(commit.settings is None for commit in commits):
        return _is_on(table)
    if first == 0:
        return False
    try:
        before = delta_table(table.path, table.name, first - 1)
    except DataError as error:
        raise _Lost(first, f"the settings of version {first - 1} are lost, and they changed since") from error
    _check_types(table, first, _types(before))
    return _is_on(before)


def _check_types(table: DeltaTable, version: int, types: Mapping[str, object]) -> None:
    """Raise _Lost for a column that has another type now: the feed has the types of the newest version."""
    now = _types(table)
    for name, kind in types.items():
        if now.get(name, kind) != kind:
            raise _Lost(version, f"the type of the column {name!r} is another one now")


def _is_on(table: DeltaTable) -> bool:
    return table.settings().get("delta.enableChangeDataFeed", "").lower() == "true"


def _maps_columns(table: DeltaTable) -> bool:
    return table.settings().get("delta.columnMapping.mode", "none").lower() != "none"


def _types(table: DeltaTable) -> dict[str, object]:
    return {field["name"]: field["type"] for field in json.loads(table.schema_text())["fields"]}


# --- added rows -------------------------------------------------------------------------------------------------------


def _added(table: DeltaTable, start: int, position: Position) -> list[Source]:
    """The files that the commits from ``start`` on added. DataError for a commit that removed rows."""
    versions = range(start, table.version + 1)
    missing = first_missing(table.path, versions)
    until = f"; ingest {position.ingest} took the table in up to version {start - 1}"
    if missing is not None:
        raise DataError(f"{table.name}: commit {missing} is not in the table's log any more{until}", _SNAPSHOT)
    files: list[Source] = []
    for commit in read_commits(table.path, table.name, versions):
        if commit.takes_rows_away:
            raise DataError(
                f"{table.name}: commit {commit.version} removed rows, and --append only inserts{until}",
                f"follow it with --feed, if its change data feed is on; or {_SNAPSHOT}",
            )
        if (deleted := first_deleted(table.path, commit.inserts)) is not None:
            raise DataError(
                f"{table.name}: the rows of version {commit.version} are lost: the file {deleted} was deleted, as "
                f"VACUUM does{until}",
                _SNAPSHOT,
            )
        files += [_file(table, dict(action)) for action in commit.inserts]
    if files and _maps_columns(table):
        raise DataError(
            f"{table.name}: has column mapping, which --append does not support", "use --feed or --snapshot"
        )
    return files


def _file(table: DeltaTable, action: dict[str, object]) -> Source:
    if action.get("deletionVector"):
        raise DataError(
            f"{table.name}: {action['path']} was added without some of its rows, which --append does not support",
            "use --feed or --snapshot",
        )
    values = action.get("partitionValues") or {}
    assert isinstance(values, dict)
    folders = tuple((str(name), None if value in (None, "") else str(value)) for name, value in values.items())
    return ParquetFile(f"{table.name}: {action['path']}", path_of(table.path, action), folders)
