"""Ingest: appends the rows of sources to an input's change log, all of them or none.

The steps: fit the sources' columns; check their rows and write them as sorted Parquet into the input's table folder,
where they are not visible yet; check the source as a whole (ingested before? late? a retraction of a row that does not
exist?); make it visible by one commit and one record of the ledger. If it is killed before that commit, nothing was
ingested, and the next ingest removes the files; if between the two, the next command writes the record.

With the engine ``spark``, Spark reads and one pass of :mod:`ddcore.jobs.spark.intake` checks and writes; with
``inline`` this process does it, without a JVM. The rows, the errors and the tables are the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from ddcore.errors import DataError, DdError, LateUpdate, UnknownRetraction, UsageError
from ddcore.io import unrecorded
from ddcore.io.address import is_url
from ddcore.io.balance import Balance, repeated_key, repeated_key_error
from ddcore.io.changelog import ChangeLog
from ddcore.io.checks import DIFF, LARGEST_TIME, Layout, Rules, check_complete, listed_names
from ddcore.io.deltalog import last_transaction, named_files
from ddcore.io.failpoint import failpoint
from ddcore.io.ingest_index import IngestIndex
from ddcore.io.intake import Intake, Part, fitted, frames_of, merge, shown
from ddcore.io.intent import check_restated, give_up
from ddcore.io.known import Earlier, Known, Rows, Seen, digest_key, find_earlier, identity, stored
from ddcore.io.labels import Labels
from ddcore.io.ledger import Ledger
from ddcore.io.positions import last_positions, position
from ddcore.io.project import ENGINES, Project, find_project
from ddcore.io.records import IngestRecord
from ddcore.io.records import Source as TakenSource
from ddcore.io.restatement import Changes, Replacement, closed_changes, replace_from
from ddcore.io.sources.deltafeed import COMMIT
from ddcore.io.sources.deltatable import DeltaTable
from ddcore.io.sources.events import Events, words_of
from ddcore.io.sources.finding import find_snapshots, find_sources
from ddcore.io.sources.snapshots import Snapshot
from ddcore.io.sources.source import Source
from ddcore.io.sources.sparkformat import find_formats
from ddcore.io.sources.upserts import ROWS
from ddcore.io.store import delete, is_folder
from ddcore.io.tables import APP, opened, require_lock
from ddcore.io.times import (
    Frontier,
    Time,
    coordinates,
    greatest,
    is_open,
    least,
    named,
    ordered,
    parse,
    shown_frontier,
    time_of,
)
from ddcore.io.times import shown as spelled_time
from ddcore.io.updates import Digest, RowCount
from ddcore.io.warehouse import Warehouse
from ddcore.jobs import predecessor
from ddcore.jobs.arguments import filled, time_named
from ddcore.jobs.following import Followed, follow
from ddcore.jobs.labels import Naming, asked_labels, not_set, snapshot_names, source_dates
from ddcore.jobs.report import json_line, spelled
from ddcore.jobs.snapshots import Snapshots, new_snapshots, next_version, times_of
from ddcore.jobs.undo import UndoReport, undo
from ddcore.jobs.upserts import EVENT_FORMS, EventOptions, events_of, find_events, new_events, tally_notes
from ddcore.lattice import is_beyond, le
from ddcore.redaction import masked

__all__ = ["FIRST", "FORMS", "LATE", "IngestReport", "ingest", "main", "start_of", "version_of"]

LATE = ("refuse", "move", "restate")
FORMS = ("log", "append", "snapshot", "feed", *EVENT_FORMS)  # how the rows of sources become updates
NEXT = "next"  # ingest at the version after all that the input has
FIRST = "first"  # restate from the first version of the sources on
_BULK_BYTES = 256 << 20
_NAMED = 3
# A version this many times the one before it is far beyond it, unless it is below _SMALL.
_FAR, _SMALL = 1000, 1_000_000
# How many updates of the log are scanned for rows that repeat, and how many of them for each inserted row.
_SCANNED, _SCANNED_EACH = 4 << 20, 16

Listener = Callable[..., None]  # listener(stage, done, total, note), all but the first optional
Layouts = list[tuple[Source, Layout]]
Take = Callable[[Intake, Layouts], Part]
Find = Callable[[Sequence[str]], list[Source]]


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did.

    ``ingest`` is its number; if there was ``nothing_new``, that of the earlier ingest of the same content, or 0 if the
    updates cancel out. ``rows`` are the rows read; ``plus`` and ``minus`` the sums of their
    positive and negative diffs; ``moved`` how many late rows were moved, ``restated`` how many were taken in at their
    own closed times. A restatement replaced the ``removed`` updates at and beyond ``replaces``. ``restates`` are the
    least closed times whose contents changed: the next run folds again from there. ``repeated`` is how many of the
    checked rows now count more than once, where no row of the input did before; ``repeated_first`` is the first of
    them. ``notes`` are sentences for the user, such as columns and files left out.
    ``stale_lock``: as in :class:`~ddcore.jobs.report.RunReport`. With several time dimensions
    ``first`` and ``last`` are the least and the greatest coordinates. ``label`` and ``instant`` are those of ``last``.
    """

    input: str
    ingest: int
    sources: tuple[str, ...]
    rows: int
    plus: int
    minus: int
    first: Time | None
    last: Time | None
    versions: int
    moved: int
    nothing_new: bool
    engine: str
    took: float
    repeated: int = 0
    repeated_first: str | None = None
    notes: tuple[str, ...] = ()
    restated: int = 0
    replaces: Time | None = None
    removed: int = 0
    restates: Frontier = ()
    stale_lock: dict[str, Any] | None = None
    label: Any = None
    instant: Any = None


def ingest(
    project: Project,
    input_name: str,
    sources: Sequence[str],
    *,
    engine: str = "spark",
    form: str = "log",
    events: EventOptions | None = None,
    version: Time | str | None = None,
    diff: int | None = None,
    rename: Mapping[str, str] | None = None,
    late: str = "refuse",
    restate: Time | str | None = None,
    allow_gap: bool = False,
    new_warehouse: bool = False,
    label: Sequence[str] = (),
    labels: Labels = (),
    format: str | None = None,
    format_options: Mapping[str, str] | None = None,
    listener: Listener | None = None,
) -> IngestReport:
    """Append the rows of ``sources`` to the change log of the input ``input_name``, or replace its history by them.

    ``sources`` are files, folders, globs or Delta tables. ``form`` is what they hold: ``log``, change logs; ``append``,
    rows to insert; ``snapshot``, the whole content at a version each, one after the other; ``feed``, Delta tables whose
    changes since the last ingest are taken in; ``upsert``, ``op`` and ``debezium``, events, as ``events`` says.
    ``version`` and ``diff`` replace columns they lack; without it, rows, snapshots and events get the next versions,
    and the changes of a commit its number; ``next`` gives them the next version, too.
    ``rename`` maps our name of a column to theirs. ``late`` is what to do with rows at closed times: ``refuse``,
    ``move`` to the next open one, or ``restate``: take them in at their own times, so that the next run folds again
    from there. With ``restate``, a time or ``first`` (the least time of the sources), the sources are the input's
    history from then on: they replace what it holds at or beyond that time. ``allow_gap`` allows a version far beyond
    all others. ``format`` and its options are those of ``spark.read``, for sources that only Spark reads.
    ``new_warehouse`` allows a new warehouse outside of the project's folder (see :meth:`Warehouse.begin`).
    ``label`` labels the one version of the rows, as ``--label`` does; ``labels`` are what the sources call their
    versions, which need not have rows, and when they were made. An unfinished run that committed nothing is given up:
    its versions are open again. ``listener(stage, done, total, note)`` is called with the progress. Cost: one pass over
    the sources, two if a part of them was ingested before; plus one over the log if rows are retracted, or if rows may
    now count more than once and the log is not much larger than the source; plus one over what is replaced.

    Raises UsageError (unknown input, no such file), DataError (rows that cannot be taken in), LateUpdate,
    UnknownRetraction, LockHeld, StorageError; the input is then as it was.
    """
    start = time.monotonic()
    _check_choices(engine, form, late, restate, diff)
    find = _finder(engine, form, format, format_options or {})
    version, at_next = _version(version, form, project.dims)
    rules, asked = _rules(project, input_name, version, diff, rename or {}), asked_labels(label, project.dims)
    tell = listener or _silent
    tell("reading columns")
    warehouse = Warehouse(project.warehouse)
    with _session(project) if format else nullcontext():  # Spark tells the columns
        found: _Updates | _Snapshots | _Tables | _Events
        again = restate is not None
        if form in EVENT_FORMS:
            reading = events_of(project, input_name, form, events or EventOptions(), rules, again=again)
            found = _Events(tuple(sources), find_events(reading, find(sources)), reading)
        else:
            found = _find(
                form, sources, rules, warehouse, input_name, root=project.root, again=again, at_next=at_next, find=find
            )
        warehouse.begin(project.root, new=new_warehouse)
        with predecessor.succeeding(warehouse, "ddcore ingest") as (lock, ledger):
            ledger.check_dims(project.dims)
            finished = unrecorded.finish(ledger)
            notes = [unrecorded.note(record) for record in finished]
            intent = ledger.open_intent()
            give_up(ledger, "it was not finished, and an ingest came first")
            stale_lock = predecessor.tell(
                lock, ledger, predecessor.given_up(intent, ledger) or predecessor.finished(finished)
            )
            options = _Options(late, restate, allow_gap, asked, labels, tuple(project.keys.get(input_name, ())))
            work = _Work(ledger, input_name, found.rules(ledger, input_name), options, tell=tell, root=project.root)
            work.notes += notes
            with work.cleaning(), _taker(engine, project, found.size) as take:
                report = found.take_in(work, take)
            names = ledger.version_names(project.dims)
            unset = not_set(asked, names, report.first, report.last) if report.nothing_new else []
            report = replace(report, notes=(*report.notes, *unset), **names.fields(report.last))
    return replace(report, engine=engine, took=time.monotonic() - start, stale_lock=stale_lock)


def start_of(text: str | None, project: Project) -> Time | str | None:
    """What ``--restate`` says: a time, by numbers or names, or ``first``. UsageError."""
    return text if text is None or text == FIRST else time_named(project, text, "--restate", begins=True)


def version_of(text: str | None, dims: Sequence[str]) -> Time | str | None:
    """What ``--version`` says: a time, or ``next``. UsageError."""
    return text if text is None or text == NEXT else parse(text, dims, "--version")


# --- the arguments ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Options:
    """What an ingest may do with rows at closed times and versions far beyond others, what it calls versions; and
    the ``key`` of the input.
    """

    late: str = "refuse"
    restate: Time | str | None = None
    allow_gap: bool = False
    label: Mapping[int, str] = field(default_factory=dict)
    labels: Labels = ()
    key: tuple[str, ...] = ()


def _check_choices(engine: str, form: str, late: str, restate: Time | str | None, diff: int | None) -> None:
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}", f"one of: {', '.join(ENGINES)}")
    if form not in FORMS:
        raise UsageError(f"unknown form {form!r}", f"one of: {', '.join(FORMS)}")
    if form != "log" and diff is not None:
        raise UsageError(f"--diff and --{form}: only one of them", f"--{form} says itself what each row adds")
    if late not in LATE:
        raise UsageError(f"--late {late}: not known", f"one of: {', '.join(LATE)}")
    if restate is not None and late != "refuse":
        raise UsageError(
            f"--late {late} and --restate: a restatement takes its rows in at their own versions",
            "leave one of the two out",
        )


def _finder(engine: str, form: str, format: str | None, options: Mapping[str, str]) -> Find:
    """What finds the sources at places. UsageError."""
    if format is None:
        if options:
            raise UsageError("--option: only with --format", "say how Spark reads the sources: --format NAME")
        return find_sources
    if engine != "spark":
        raise UsageError(f"--format {format}: only Spark reads it", "use --engine spark")
    if form == "feed":
        raise UsageError("--format and --feed: only one of them", "--feed reads Delta tables")
    return partial(find_formats, format=format, options=options)


def _version(version: Time | str | None, form: str, dims: Sequence[str]) -> tuple[Time | None, bool]:
    """The version for all rows, if there is one, and whether it is the next one of the input. UsageError."""
    if not isinstance(version, str):
        return version, False
    if version != NEXT or form == "log" or len(dims) > 1:
        raise UsageError(
            f"--version {version}: with --append, --snapshot or --feed, and one time dimension only",
            "say which version the rows have: --version N",
        )
    return (0, True) if form == "feed" else (None, False)


def _rules(project: Project, name: str, version: Time | None, diff: int | None, rename: Mapping[str, str]) -> Rules:
    schema, time = project.input_schema(name), None if version is None else coordinates(version)
    if time is not None and not all(0 <= coordinate <= LARGEST_TIME for coordinate in time):
        raise UsageError(f"--version {version}: versions go from 0 to {LARGEST_TIME}", "say: --version 0")
    if diff is not None and (diff == 0 or abs(diff) >= 2**63):
        raise UsageError(f"--diff {diff}: each row's diff is a whole number of 64 bits, and not 0", "say: --diff 1")
    rules = Rules(schema, project.dims, time, diff, dict(rename))
    for ours in rename:
        if ours not in rules.columns:
            raise UsageError(
                f"--column {ours}={rename[ours]}: the input {name} has no column {ours!r}",
                f"its columns are {', '.join(rules.columns)}; say --column OURS=THEIRS",
            )
    return rules


# --- what the sources are ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Updates:
    """Sources with updates, or with rows that are inserted; each with its layout."""

    places: tuple[str, ...]
    layouts: Layouts
    fitting: Rules

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(source.size for source, _ in self.layouts)

    def rules(self, ledger: Ledger, name: str) -> Rules:
        """The rules, with the version of rows that have none."""
        if self.fitting.fallback is None:
            return self.fitting
        return replace(self.fitting, fallback=(next_version(ledger, name),))

    def take_in(self, work: _Work, take: Take) -> IngestReport:
        return work.run(take, self.places, self.layouts)


@dataclass(frozen=True)
class _Snapshots:
    """Snapshots; ``found`` are those that were new before the warehouse was locked."""

    places: tuple[str, ...]
    snapshots: tuple[Snapshot, ...]
    found: Snapshots
    fitting: Rules

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(source.size for source, _ in self.found.parts)

    def rules(self, ledger: Ledger, name: str) -> Rules:
        """The rules for the updates that the snapshots make."""
        del ledger, name
        return Rules(self.fitting.schema, self.fitting.dims)

    def take_in(self, work: _Work, take: Take) -> IngestReport:
        return work.run_series(take, self.places, self.snapshots, self.found, self.fitting)


@dataclass(frozen=True)
class _Tables:
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

    def rules(self, ledger: Ledger, name: str) -> Rules:
        """The rules, with the version of rows that have none."""
        after = (next_version(ledger, name),) if len(self.fitting.dims) == 1 else None
        if self.at_next:
            return replace(self.fitting, time=after)
        return self.fitting if self.fitting.fallback is None else replace(self.fitting, fallback=after)

    def take_in(self, work: _Work, take: Take) -> IngestReport:
        found = follow(work.ledger, work.name, self.tables, self.fitting, work.root, feed=self.feed)
        return work.run_followed(take, self.places, found)


@dataclass(frozen=True)
class _Events:
    """Sources with events; each with its layout."""

    places: tuple[str, ...]
    layouts: tuple[tuple[Source, Layout], ...]
    events: Events

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(source.size for source, _ in self.layouts)

    def rules(self, ledger: Ledger, name: str) -> Rules:
        """The rules for the updates that the events make."""
        del ledger, name
        return Rules(self.events.rules.schema, self.events.rules.dims)

    def take_in(self, work: _Work, take: Take) -> IngestReport:
        return work.run_events(take, self.places, self.layouts, self.events)


def _find(
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
) -> _Updates | _Snapshots | _Tables:
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
        return _Snapshots(tuple(places), snapshots, found, rules)
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
        return _Tables(tuple(places), tables, found_new, rules, feed, at_next)
    layouts, rules = _fitted(sources, rules, warehouse, name)
    if all(source.row_count() == 0 for source, _ in layouts):
        raise _empty(places)
    return _Updates(tuple(places), layouts, rules)


def _check_tables(form: str, sources: Sequence[Source], tables: Sequence[DeltaTable], *, again: bool) -> None:
    """UsageError for files among tables that are followed, and for a restatement by them."""
    for source in sources:
        if source not in tables:
            raise UsageError(
                f"{source.name}: a {source.kind}, " + ("which has no change data feed" if form == "feed" else
                "beside a Delta table: --append takes files or tables"),
                "name Delta tables only; a file is taken in with --append or --snapshot",
            )  # fmt: skip
        if is_url(source.path):
            raise UsageError(
                f"{source.name}: the commits of a Delta table in an object store are not followed yet",
                "take in the table as it is, or --snapshot",
            )
    if again:
        raise UsageError(
            f"--restate with --{form} of a Delta table: only commits that are new are taken in",
            "restate with snapshots: TABLE@v3..v7 --snapshot --restate V",
        )


def _fitted(sources: Sequence[Source], rules: Rules, warehouse: Warehouse, name: str) -> tuple[Layouts, Rules]:
    """Each source with its layout, and the rules with the columns that the input got later, if a source lacks one."""
    try:
        return fitted(sources, rules), rules
    except DataError:
        index = Ledger.load(warehouse).ingest_index(name) if is_folder(warehouse.ledger) else IngestIndex()
        former = _former_columns(index, rules)
        if not former:
            raise
    rules = replace(rules, added=frozenset(rules.schema).difference(*former))
    return fitted(sources, rules), rules


def _empty(places: Sequence[str]) -> DataError:
    return DataError(f"{', '.join(places)}: no rows", "an empty source is refused: usually a mistake upstream")


def _silent(*_: object) -> None:
    """A listener that does nothing."""


# --- who reads and writes ---------------------------------------------------------------------------------------------


def _taker(engine: str, project: Project, size: int) -> AbstractContextManager[Take]:
    return _spark(project, size) if engine == "spark" else nullcontext(_take_inline)


def _take_inline(intake: Intake, layouts: Layouts) -> Part:
    return merge([intake.take("000", frames_of(layouts))])


@contextmanager
def _session(project: Project) -> Iterator[None]:
    """A session of Spark, which those inside of it use, too."""
    from ddcore.jobs.spark.session import spark

    with spark(project.spark_conf, project.spark_master, project.parallelism):
        yield


@contextmanager
def _spark(project: Project, size: int) -> Iterator[Take]:
    from ddcore.jobs.spark.intake import take_by_spark
    from ddcore.jobs.spark.session import spark

    with spark(project.spark_conf, project.spark_master, project.parallelism, bulk=size >= _BULK_BYTES) as session:
        yield lambda intake, sources: merge(take_by_spark(session, intake, sources))


# --- the work ---------------------------------------------------------------------------------------------------------


class _Work:
    """One ingest, with the warehouse's lock held."""

    def __init__(
        self, ledger: Ledger, name: str, rules: Rules, options: _Options, *, tell: Listener, root: Path
    ) -> None:
        self.ledger, self.name, self.rules, self.tell, self.root = ledger, name, rules, tell, root
        self.options, self.committing, self.notes = options, False, list[str]()
        self.log = ChangeLog(ledger.warehouse.input(name), rules.schema, rules.dims)
        self.base, self.upper = ledger.input_table(name), ledger.open_from(name)
        index = ledger.ingest_index(name)
        # An ingest after one whose rows repeat says that they do; and all digests have one key, but for old ones.
        newest = ledger.ingests_at(index, [*index.numbers][-1:])
        keyed = ledger.ingests_at(index, [entry for entry in index.numbers if entry not in index.unknown][-1:])
        self.repeats, self.plus = any(record.repeats for record in newest), index.plus
        # A restatement says itself which rows the log holds already.
        self.index = IngestIndex() if options.restate is not None else index
        former = _former_columns(self.index, rules)
        self.columns, self.earlier = (tuple(rules.schema), *former), Earlier((), root)
        key, upper = digest_key(keyed), self.upper if options.restate is None else None
        move = options.late == "move"
        self.intake = Intake(self.log, ledger.next_ingest(), rules, key, upper, move, former=former)
        self.replacement: Replacement | None = None
        self.changes: Changes | None = None  # if history is restated
        self.restates: Frontier = ()
        self.repeated: tuple[int, RowCount] | None = None
        self.labels: Labels = ()

    def run(self, take: Take, places: Sequence[str], layouts: Layouts) -> IngestReport:
        """Take the sources in, check them as a whole, and make them visible."""
        notes = self.notes + _ignored_notes(layouts)
        if self.rules.appends:
            notes.append("every row counts as inserted")
            self.intake = replace(self.intake, grown=self._appended_to(layouts))
        self.tell("reading rows", 0, None, ", ".join(places))
        part = take(self.intake, layouts)
        if not part.rows:
            raise _empty(places)
        known = self._recognise(part, layouts)
        fresh = [(source, layout) for source, layout in layouts if not _is_complete(known.get(source.name))]
        if not any(part.digests.get(source.name) for source, _ in fresh):
            notes += _replaced_notes(known, self.name)
            number = max((one.number for one in known.values()), default=0)
            return self._report(places, part, number, nothing_new=True, notes=notes)
        for _, layout in fresh:
            check_complete(layout)
        if known:
            notes += [*_known_notes(known), *_replaced_notes(known, self.name)]
            self._sweep()
            grown = {name: one.part for name, one in known.items() if one.part is not None}
            self.intake = replace(self.intake, known=grown)
            layouts, part = fresh, take(self.intake, fresh)
        identities = self._identities(part, layouts)
        notes += [
            f"ingest {number} was made by an earlier ddcore: rows that it took in are not recognised"
            for number in self.earlier.unknown
        ]
        notes += [note for one in identities if one.name not in known for note in self._overlap_notes(one)]
        if self.options.restate is not None:
            self._replace(part)
        elif not part.files:
            notes.append("its updates cancel out at each version: nothing changes")
            return self._report(places, part, 0, nothing_new=True, notes=notes)
        if self.changes is not None and self.changes.times.is_empty():
            return self._report(places, part, 0, nothing_new=True, notes=notes)
        self._judge(part, layouts)
        dates = source_dates((source for source, _ in layouts), part.digests)
        notes += self._name(part, dates, self.options.labels)
        if self.repeated is not None:
            notes.append(_repeat_note(*self.repeated, self.rules.dims, self.intake.number))
        taken = tuple(
            TakenSource(one.identity, stored(one.whole, self.intake.key), _row_position(part.ends.get(one.name)))
            for one in identities
        )
        rests_on = tuple(sorted({one.number for one in known.values() if one.part is not None}))
        self._commit(part, taken, rests_on)
        return self._report(places, part, self.intake.number, nothing_new=False, notes=notes)

    def run_series(
        self, take: Take, places: Sequence[str], snapshots: Sequence[Snapshot], found: Snapshots, fitting: Rules
    ) -> IngestReport:
        """Take in the new ones of these snapshots, as what each changes in the content before it.

        ``found``: those that were new before the warehouse was locked.
        """
        restated = self._restated()
        again = self.options.restate is not None
        found = new_snapshots(self.ledger, self.name, snapshots, fitting, self.root, again=again, fits=found.new)
        notes = [*self.notes, *_series_notes(found)]
        if not found.new:
            return self._report(places, Part(), found.ingest, nothing_new=True, notes=notes)
        time = None if fitting.time is None else time_of(fitting.time)
        times = times_of(self.ledger, self.name, len(found.new), time, restated=restated, dims=self.rules.dims)
        series = found.series(self.log, self.base, fitting, times, restated)
        notes += _ignored_notes(found.parts)
        self.tell("reading rows", 0, None, ", ".join(places))
        stamps = found.stamps
        part = take(self.intake, [(series, Layout(series.name, {n: n for n in self.rules.columns}, {}, False, ()))])
        for snapshot, before, after in zip(found.new, stamps, found.stamps, strict=True):
            _check_unchanged(snapshot.name, before, after)
        part.counts = {**dict.fromkeys(times, (0, 0)), **part.counts}
        if self.options.restate is not None:
            self._replace(part)
        self._judge(part, [], checks_counts=False)
        dates, labels = snapshot_names(list(found.new), times)
        notes += self._name(part, dates, self.options.labels or labels)
        self._commit(part, self._snapshot_sources(found, part, series.name, times))
        return self._report(places, part, self.intake.number, nothing_new=False, notes=notes)

    def run_followed(self, take: Take, places: Sequence[str], found: Followed) -> IngestReport:
        """Take in what is new in Delta tables, and keep how far they were read: also if it changes nothing."""
        layouts, notes = found.layouts, [*self.notes, *found.notes, *_ignored_notes(found.layouts)]
        self.tell("reading rows", 0, None, ", ".join(places))
        part = take(self.intake, layouts) if layouts else Part()
        if not part.counts and found.new and len(self.rules.dims) == 1:
            default = self.rules.time or self.rules.fallback or (max(table.version for table, _ in found.new),)
            if self.upper is None or is_open(default[0], self.upper):
                part.counts = {default[0]: (0, 0)}
        if not part.counts:
            return self._report(places, part, found.ingest, nothing_new=True, notes=notes)
        self._judge(part, layouts)
        notes += self._name(part, found.dates(part.counts, self.rules), self.options.labels)
        if self.repeated is not None:
            notes.append(_repeat_note(*self.repeated, self.rules.dims, self.intake.number))
        taken = tuple(
            TakenSource(identity(table, self.root), self._stored_digest(part, parts), position(table))
            for table, parts in found.new
        )
        self._commit(part, taken, found.rests_on)
        return self._report(places, part, self.intake.number, nothing_new=False, notes=notes)

    def _stored_digest(self, part: Part, layouts: Iterable[tuple[Source, Layout]]) -> str:
        """The digest of all rows of some sources together, for the ledger."""
        of = (one for source, _ in layouts for one in part.digests.get(source.name, {}).values())
        return stored(sum(of, Digest()), self.intake.key)

    def run_events(
        self, take: Take, places: Sequence[str], layouts: tuple[tuple[Source, Layout], ...], events: Events
    ) -> IngestReport:
        """Take in the events of the new ones of these sources, as what they change in the input's log."""
        restated = self._restated()
        found = new_events(self.ledger, self.name, events, layouts, self.root, again=restated is not None)
        notes = [*self.notes, *found.notes()]
        if not found.new:
            return self._report(places, Part(), found.ingest, nothing_new=True, notes=notes)
        time = found.time(self.ledger, self.name, restated)
        source = found.log(self.log, self.base, time, restated)
        notes += _ignored_notes([*found.new])
        self.tell("reading rows", 0, None, ", ".join(places))
        stamps, layout = found.stamps, source.layout()
        part = take(self.intake, [(source, layout)])
        for (one, _), before, after in zip(found.new, stamps, found.stamps, strict=True):
            _check_unchanged(one.name, before, after)
        part.rows = part.tallies.get(ROWS, 0)
        if not part.rows:
            raise _empty(places)
        notes += tally_notes(part.tallies, events.order)
        if self.options.restate is not None:
            part.counts = {**({} if restated is None else {restated: (0, 0)}), **part.counts}
            self._replace(part)
        elif not part.files:
            return self._report(places, part, 0, nothing_new=True, notes=notes)
        has_key = events.key if len(self.rules.dims) == 1 else ()
        self._judge(part, [(source, layout)], checks_counts=not events.key, has_key=has_key)
        dates = source_dates((one for one, _ in found.new), {one.name: part.counts for one, _ in found.new})
        notes += self._name(part, dates, self.options.labels)
        if self.repeated is not None:
            notes.append(_repeat_note(*self.repeated, self.rules.dims, self.intake.number))
        taken = tuple(
            TakenSource(identity(one, self.root), stored(Digest(), self.intake.key), position(one))
            for one, _ in found.new
        )
        self._commit(part, taken)
        return self._report(places, part, self.intake.number, nothing_new=False, notes=notes)

    def _restated(self) -> Time | None:
        """The version from which on a restatement replaces the history; None without one. With snapshots ``first`` is
        the first version of the input.
        """
        start = self.options.restate
        return self.ledger.first_ingested([self.name]) if isinstance(start, str) else start

    def _snapshot_sources(
        self, found: Snapshots, part: Part, name: str, times: Sequence[Time]
    ) -> tuple[TakenSource, ...]:
        """The snapshots as the ledger names them: with the digests of what they changed, and their positions."""
        digests = part.digests.get(name, {})
        return tuple(
            TakenSource(
                identity(snapshot, self.root),
                stored(digests.get(time, Digest()), self.intake.key),
                position(snapshot),
            )
            for snapshot, time in zip(found.new, times, strict=True)
        )

    def _name(self, part: Part, dates: Mapping[Time, datetime], labels: Labels) -> list[str]:
        """Find the labels of the versions; ``dates`` and ``labels``: what the sources say. Returns notes."""
        moved, restates = self.intake.move and part.late > 0, self.replacement is not None
        dims, asked, times = self.rules.dims, self.options.label, [*part.counts]
        self.labels, notes = Naming(self.name, dims, asked, labels, dates, times, moved, restates).labels(self.ledger)
        return notes

    def _overlap_notes(self, source: Seen) -> Iterator[str]:
        """A note if rows of a source may be in the log already, and are added all the same."""
        if before := self.earlier.other_rows(source):
            yield f"{source.name}: ingest {before} took in other rows under that name; all of its rows are added"
        elif one := self.earlier.beginning(source):
            yield (
                f"{source.name}: begins with the rows that ingest {one.number} took in from another place, "
                f"{_shown_part(one)}; all of its rows are added. If it is that file, moved, take this back with: "
                f"ddcore ingest --undo {self.intake.number}"
            )

    def _report(
        self, places: Sequence[str], part: Part, number: int, nothing_new: bool, notes: list[str]
    ) -> IngestReport:
        versions = list(part.counts)
        return IngestReport(
            input=self.name,
            ingest=number,
            sources=tuple(places),
            rows=part.rows,
            plus=sum(plus for plus, _ in part.counts.values()),
            minus=sum(minus for _, minus in part.counts.values()),
            first=least(versions) if versions else None,
            last=greatest(versions) if versions else None,
            versions=len(versions),
            moved=part.late if self.intake.move and not nothing_new else 0,
            restated=part.late if self.options.late == "restate" and not nothing_new else 0,
            replaces=time_of(self.replacement.start) if self.replacement else None,
            removed=self.replacement.rows if self.replacement and not nothing_new else 0,
            restates=self.restates,
            nothing_new=nothing_new,
            engine="",
            took=0.0,
            repeated=self.repeated[0] if self.repeated else 0,
            repeated_first=_shown_count(self.repeated[1], self.rules.dims) if self.repeated else None,
            notes=tuple(notes),
        )

    # --- checks of the whole source ---

    def _appended_to(self, layouts: Layouts) -> dict[str, int]:
        """The sources to which rows may have been appended, and the number of the last row that was taken in."""
        sources = [source for source, _ in layouts]
        places = last_positions(self.ledger, self.index, sources, self.root)
        taken = zip(sources, places, strict=True)
        return {source.name: int(place[1][5:]) for source, place in taken if place and place[1].startswith("rows-")}

    def _identities(self, part: Part, layouts: Layouts, former: int | None = None) -> list[Seen]:
        """The sources as the ledger names them: by paths relative to the project, from any working folder.

        ``former``: with digests over columns that the input had before, by their place in the intake.
        """
        digests = part.digests if former is None else part.former[former]
        grown, begun = self.intake.grown, part.beginnings
        return [
            Seen(
                source.name,
                identity(source, self.root),
                source.member,
                digests.get(source.name, {}),
                (Rows(grown[source.name]), begun[source.name]) if begun.get(source.name) and former is None else None,
            )
            for source, _ in layouts
        ]

    def _recognise(self, part: Part, layouts: Layouts) -> dict[str, Known]:
        """The sources that the log holds, or parts of them, by name: also those of before the input got columns."""
        number = self.intake.number
        now, *former = self.columns
        sources = self._identities(part, layouts)
        self.earlier = find_earlier(self.ledger, self.index, sources, self.root, now)
        known = self.earlier.recognise(sources, number)
        for place, columns in enumerate(former):
            rest = [one for one in layouts if one[0].name not in known]
            if rest:
                sources = self._identities(part, rest, place)
                earlier = find_earlier(self.ledger, self.index, sources, self.root, columns)
                seen = earlier.recognise(sources, number)
                known |= {name: one for name, one in seen.items() if one.number != number}
        return known

    def _judge(
        self, part: Part, layouts: Layouts, *, checks_counts: bool = True, has_key: tuple[str, ...] = ()
    ) -> None:
        """Raise the error of the source as a whole, if any; note whether rows now count more than once.

        ``checks_counts``: the counts of rows need a check, as what a snapshot changes does not. ``has_key``: columns
        in which no two rows are equal by construction.
        """
        if part.first_late is not None and self.options.late == "refuse":
            time, where, row = part.first_late
            following = "version" if isinstance(time, int) else "time"
            raise LateUpdate(
                f"{part.late} of {part.rows} rows are late: {self.intake.closed}; the first is "
                f"{row} at {named(time, self.rules.dims)} in {where}",
                f"leave them out, take them in at the next open {following} with: --late move; or at their own, and "
                "fold again from there, with: --late restate",
            )
        if not self.options.allow_gap:
            self._refuse_gap(part)
        self._find_restated(part)
        if checks_counts:
            self._check_counts(part, layouts)
        if self.options.key and set(self.options.key) != set(has_key):
            self._check_key(part)

    def _check_counts(self, part: Part, layouts: Layouts) -> None:
        """Raise the error of a row that would have a count below 0 or beyond int64; note rows that now repeat."""
        balance, finds_repeats, large = self._balance(part)
        if not (part.retracts or finds_repeats or large):
            return
        self.tell("checking counts")
        counts = balance.counts()
        if short := balance.below_zero(counts):
            raise self._unknown_retraction(short, layouts)
        if beyond := balance.beyond_int64(counts):
            raise DataError(
                f"{', '.join(source.name for source, _ in layouts)}: {shown(beyond.row)} would have the count "
                f"{beyond.count} as of {named(beyond.version, self.rules.dims)}, beyond int64",
                "nothing was ingested; fix the diffs at the source",
            )
        if finds_repeats:
            self.repeated = balance.repeated(counts)

    def _check_key(self, part: Part) -> None:
        """Raise DataError where two rows of the input would have one key at some version."""
        replaced = self.replacement
        kept, rest, removed = (
            (replaced.kept, replaced.rest, replaced.removed) if replaced else (self.log.files(self.base), (), ())
        )
        # A count grows where rows are inserted, and where retractions are taken away.
        touched = [self.log.scan_files(part.files).filter(pl.col(DIFF) > 0)]
        touched += [self.log.scan_files(removed).filter(pl.col(DIFF) < 0, replaced.beyond)] if replaced else []
        self.tell("checking the key")
        rows = repeated_key(self.log, self.options.key, [*kept, *rest, *part.files], pl.concat(touched))
        if rows:
            raise repeated_key_error(", ".join(part.digests), self.name, self.options.key, rows, self.rules.dims)

    def _replace(self, part: Part) -> None:
        """Find what the restatement replaces, and write what it leaves of files that it removes.

        UsageError, DataError.
        """
        dims = self.rules.dims
        start = least(part.counts) if isinstance(self.options.restate, str) else self.options.restate
        assert start is not None
        option = f"--restate {spelled_time(start, dims)}"
        latest = self.ledger.latest_ingested([self.name])
        if latest is None:
            raise UsageError(
                f"{option}: the input {self.name} holds no rows", "leave --restate out to ingest the first"
            )
        self._refuse_before(start, part, option)
        since, first = self.ledger.since(), self.ledger.first_ingested([self.name])
        # All rows from before lie at ``since`` itself, so only all of them can be replaced, or what comes later.
        assert first is not None, "it has a last version"
        if since and not le(coordinates(start), coordinates(first)) and le(coordinates(start), since[0]):
            raise UsageError(
                f"{option}: the history of {self.name} was compacted: rows of earlier versions lie at "
                f"{named(time_of(since[0]), dims)}",
                f"restate from a later version on, or the whole history, with sources from {named(first, dims)} on: "
                "--restate first",
            )
        self.tell("reading what is replaced")
        stem = f"ingest-{self.intake.number:08d}"
        self.replacement = replace_from(self.log, self.base, coordinates(start), stem)
        if not self.replacement.rows:
            raise UsageError(
                f"{option}: the input {self.name} has no rows from there on; it has rows up to {named(latest, dims)}",
                f"leave --restate out: later {'versions' if len(dims) == 1 else 'times'} are ingested as they are",
            )
        self.changes = self.replacement.changes(part.files)

    def _refuse_before(self, start: Time, part: Part, option: str) -> None:
        """Refuse sources with rows outside of the history that they restate."""
        corner = [coordinates(start)]
        for where, of in part.digests.items():
            before = [time for time in ordered(of) if not is_open(time, corner)]
            if before:
                first = least(before)
                raise DataError(
                    f"{where}: has rows at {named(before[0], self.rules.dims)}, but {option} replaces the history from "
                    f"{named(start, self.rules.dims)} on",
                    f"leave these rows out, or restate from there on: --restate {spelled_time(first, self.rules.dims)}",
                )

    def _find_restated(self, part: Part) -> None:
        """Note the least closed times whose contents change. LateUpdate while an unfinished run has read them."""
        if self.options.late == "restate" and part.late:
            added, since = self.log.scan_files(part.files), self.ledger.since()
            self.changes = Changes(self.log, added.clear(), added)
            if since and not self.log.collect(added.select(is_beyond(self.rules.dims, since).all())).item():
                raise LateUpdate(
                    f"rows at closed times: the history of {self.name} was compacted; it is kept at or beyond "
                    f"{shown_frontier(since, self.rules.dims)} only",
                    "leave earlier rows out, or take them in at the next open time with: --late move",
                )
        if self.changes is not None:
            self.restates = closed_changes(self.changes, self.upper)
        check_restated(self.ledger, self.restates)

    def _refuse_gap(self, part: Part) -> None:
        """Refuse a version far beyond the one before it: once folded, it would close all versions up to it.

        With several dimensions each is judged by itself.
        """
        latest = self.ledger.latest_ingested()
        for place, dim in enumerate(self.rules.dims):
            last = None if latest is None else coordinates(latest)[place]
            values = {coordinates(time)[place] for time in part.counts}
            new = sorted(value for value in values if last is None or value > last)
            for before, value in pairwise([*([] if last is None else [last]), *new]):
                if before > 0 and value > _SMALL and value // _FAR >= before:
                    raise self._far(part, place, "version" if len(self.rules.dims) == 1 else dim, before, value)

    def _far(self, part: Part, place: int, dim: str, before: int, value: int) -> DataError:
        sources = (name for name, of in part.digests.items() if any(coordinates(t)[place] == value for t in of))
        return DataError(
            f"{next(sources, self.name)}: {dim} {value} is far beyond the {dim} before it, {before}",
            f"once {dim} {value} is folded, no {dim} below it accepts rows; if it is meant: --allow-gap",
        )

    def _balance(self, part: Part) -> tuple[Balance, bool, bool]:
        """The rows to check; whether to check for repeats; whether to check for counts beyond int64."""
        replaced = self.replacement
        live = replaced.kept if replaced else self.log.files(self.base)
        rest = replaced.rest if replaced else ()
        inserted = sum(plus for plus, _ in part.counts.values())
        stored = sum(file.rows for file in (*live, *rest))
        rows = sum(file.rows for file in part.files)
        balance = Balance(self.log, live, [*rest, *part.files])
        if part.retracts:
            balance.watch(part.files, pl.col(DIFF) < 0)
        # With several dimensions, rows at times that are not replaced may rest on rows that are.
        uncovers = replaced is not None and len(self.rules.dims) > 1
        if replaced is not None and uncovers:
            balance.watch(replaced.removed, (pl.col(DIFF) > 0) & replaced.beyond)
        # One file has each row once per version: if there is no other file and one version, no row repeats.
        alone = not (live or rest) and len(part.files) == len(part.counts) == 1 and part.most <= 1
        near = part.retracts or stored <= max(_SCANNED, _SCANNED_EACH * rows)
        finds_repeats = not alone and near and inserted > 0 and not self.repeats
        if finds_repeats:
            balance.watch_inserted(part.files, rows)
        total = inserted + self.plus
        if total >= 2**63:
            balance.watch_large(stored + rows)
        return balance, finds_repeats, uncovers or total >= 2**63

    def _unknown_retraction(self, short: RowCount, layouts: Layouts) -> UnknownRetraction:
        where, version = self._culprit(short, layouts)
        later = "" if version == short.version else f" as of {named(short.version, self.rules.dims)}"
        return UnknownRetraction(
            f"{where}: retracts {shown(short.row)} at {named(version, self.rules.dims)}, and the row does not exist: "
            f"its count would be {short.count}{later}",
            "the input does not hold what the table held; to go on from what the table holds now: --snapshot"
            if any(source.cancels for source, _ in layouts)
            else "nothing was ingested; insert the row first, or take the retraction out of the source",
        )

    def _culprit(self, short: RowCount, layouts: Layouts) -> tuple[str, Time]:
        """The source with the row's last retraction up to that version, and that retraction's version in the log."""
        best: tuple[str, Time] | None = None
        dims, counts = self.rules.dims, self.log.counts_at(short.version) != 0
        is_row = pl.all_horizontal(
            pl.col(name).eq_missing(pl.lit(short.row[name], dtype=kind.polars))
            for name, kind in self.rules.schema.items()
        )
        try:
            for layout, _, frame in frames_of(layouts):
                updates = self.intake.landed(layout, frame)
                mine = updates.filter(is_row, pl.col(DIFF) < 0, counts).select(dims).sort(dims)
                last = time_of(mine.row(-1)) if len(mine) else None
                if last is not None and (best is None or coordinates(last) > coordinates(best[1])):
                    best = layout.where, last
        except DataError:
            if len(layouts) > 1:  # a Delta table that only Spark reads
                return ", ".join(source.name for source, _ in layouts), short.version
        return best or (layouts[0][0].name, short.version)

    # --- the table and the ledger ---

    def _commit(self, part: Part, sources: tuple[TakenSource, ...], rests_on: tuple[int, ...] = ()) -> None:
        self.tell("committing")
        self.committing = True
        replaced = self.replacement
        rest, removed = (replaced.rest, replaced.removed) if replaced else ((), ())
        files = [*rest, *part.files]
        record = IngestRecord(
            number=self.intake.number,
            input=self.name,
            sources=sources,
            first=least(part.counts),
            last=greatest(part.counts),
            rows=sum(file.rows for file in part.files),
            counts=part.counts,
            files=tuple(file.path for file in files),
            table=unrecorded.UNKNOWN,
            repeats=self.repeated is not None or part.most > 1 or self.repeats,
            rests_on=rests_on,
            dims=self.rules.dims if len(self.rules.dims) > 1 else (),
            restates=self.restates,
            columns=tuple(self.rules.schema),
            replaces=time_of(replaced.start) if replaced else None,
            removed=replaced.rows if replaced else 0,
            before=self.base if replaced else None,
            labels=self.labels,
        )
        carries = unrecorded.carried(record)
        without = [file.path for file in removed]
        table = self.log.commit(
            files, record.number, base=self.base, without=without, adds=self.rules.schema, carries=carries
        )
        self.ledger.append(replace(record, table=table))

    @contextmanager
    def cleaning(self) -> Iterator[None]:
        """Remove files that the ledger does not name, before the ingest, and after it if it fails."""
        self.ledger.begin()
        if self.base is not None:
            opened(self.log.folder, self.base)  # a table whose log was lost must not be created again
            self.log.check(self.base)
        else:
            self.log.create(replace=True)  # a first ingest that was killed may have left a table with other columns
        transaction = last_transaction(self.log.folder, APP)
        if self._sweep():
            self.notes.append(_sweep_note(transaction, self.intake.number))
        try:
            yield
        finally:
            # Once the commit has begun, only the ledger on disk says how it ended: the next ingest removes the files.
            if not self.committing:
                self._sweep()

    def _sweep(self) -> bool:
        """Restore the table to the state that the ledger names, and delete files of an unfinished ingest.

        Returns whether the table was in another state.

        A file that any commit of the table named is kept: if the ledger was lost, it is the only copy of its rows.
        """
        head = self.log.version()
        state = self.log.commit([], self.intake.number, base=self.base, adds={})
        strays = self.intake.strays()
        named = named_files(self.log.folder) if strays else ()
        require_lock()
        for path in strays:
            if path.name not in named:
                delete(path)
                failpoint("after-stray")
        return state.version != head


def _former_columns(index: IngestIndex, rules: Rules) -> tuple[tuple[str, ...], ...]:
    """The columns of rows that earlier ingests had, if they were others than now, newest first."""
    return tuple(
        columns for columns in index.columns if columns != tuple(rules.schema) and rules.schema.keys() >= set(columns)
    )


def _check_unchanged(name: str, before: str, after: str) -> None:
    """Raise DataError where the stamp of a source is another than before it was read."""
    if before != after:
        raise DataError(f"{name}: changed while it was read", "run it again when it is complete")


def _ignored_notes(layouts: Layouts) -> list[str]:
    """A note for every set of columns that sources have and the input does not."""
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for source, layout in layouts:
        if layout.ignored:
            by_columns.setdefault(layout.ignored, []).append(source.name)
    return [f"{_shorten(names)}: columns left out: {listed_names(columns)}" for columns, names in by_columns.items()]


def _series_notes(found: Snapshots) -> list[str]:
    """A note on the snapshots that are left out."""
    if not found.known:
        return []
    are = "snapshot was" if found.known == 1 else "snapshots were"
    return [f"{found.known} {are} taken in before and {'is' if found.known == 1 else 'are'} left out"]


def _sweep_note(transaction: int | None, number: int) -> str:
    """A note on an ingest or an undo whose commit the ledger does not name; ingest ``number`` reverts it."""
    if transaction is not None and transaction < number:
        return f"an undo of ingest {transaction} was started and never finished: the ingest is in the log as before"
    return (
        f"ingest {number} was started and never finished, and is taken back; "
        "if it had other sources than these, ingest them again"
    )


def _known_notes(known: Mapping[str, Known]) -> list[str]:
    """A note on the sources that are left out, and for each that has grown, from which version it is taken in."""
    whole = [name for name, one in known.items() if one.part is None and not one.replaced_by]
    notes = [f"{_shorten(whole)}: left out, the same rows were ingested before"] if whole else []
    for name, one in known.items():
        if isinstance(one.part, int):
            notes.append(f"{name}: taken in after version {one.part}; ingest {one.number} has the rows up to there")
        elif isinstance(one.part, Rows):
            notes.append(f"{name}: taken in after row {one.part.last}; ingest {one.number} has the rows up to there")
        elif one.part is not None:
            notes.append(f"{name}: taken in at its other times; ingest {one.number} has the rows {_shown_part(one)}")
    return notes


def _replaced_notes(known: Mapping[str, Known], input: str) -> list[str]:
    """A note for each restatement that has replaced rows of known sources."""
    names: dict[int, list[str]] = {}
    for name, one in known.items():
        if one.replaced_by:
            names.setdefault(one.replaced_by, []).append(name)
    return [
        f"{_shorten(of)}: left out: ingest {number} has replaced rows of it since; to have them back: ddcore ingest "
        f"--undo {number}, or ddcore ingest {input} SOURCE... --restate first, with all sources of the history"
        for number, of in names.items()
    ]


def _shown_part(known: Known) -> str:
    """The times of a part of a source, for a note."""
    if isinstance(known.part, int):
        return f"up to version {known.part}"
    return f"at {len(known.part or ())} of its times"


def _row_position(last: int | None) -> str:
    """The position of a source of rows without times: the number of its last row."""
    return "" if last is None else f"rows-{last}"


def _is_complete(known: Known | None) -> bool:
    return known is not None and known.part is None


def _repeat_note(many: int, first: RowCount, dims: Sequence[str], number: int) -> str:
    rows = "a row counts" if many == 1 else f"{many} rows count"
    return (
        f"{rows} more than once from now on, and none did before: {_shown_count(first, dims)}. "
        f"Was it ingested before, in another form? Take it back with: ddcore ingest --undo {number}"
    )


def _shown_count(one: RowCount, dims: Sequence[str]) -> str:
    return f"{shown(one.row)} has the count {one.count} as of {named(one.version, dims)}"


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{names[0]} and {len(names) - 1} more"


# --- spark-submit -----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """The entry for ``spark-submit``; takes plain arguments, never sets a master, returns the exit code.

    The last line of stdout is the report as JSON.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    if options.undo is None and not (options.input and options.source):
        parser.error("INPUT and SOURCE are needed, or --undo N")
    if options.undo is not None and options.source:
        parser.error("--undo takes a whole ingest back, not a source")
    if options.undo is not None and options.label:
        parser.error("--undo and --label: only one of them")
    report: IngestReport | UndoReport
    try:
        project = find_project(options.project, flags={"warehouse": options.warehouse, "engine": options.engine})
        report = (
            undo(project, options.undo, options.input, restate=options.late == "restate")
            if options.undo is not None
            else ingest(
                project,
                options.input,
                options.source,
                engine=project.engine,
                form=_form(options),
                events=EventOptions(
                    options.key, options.order_by, options.op, words_of(options.op_values) if options.op_values else {}
                ),
                version=version_of(options.version, project.dims),
                diff=options.diff,
                rename=dict(options.column),
                late=options.late,
                restate=start_of(options.restate, project),
                allow_gap=options.allow_gap,
                new_warehouse=options.new_warehouse,
                label=options.label,
                format=options.format,
                format_options=dict(options.option),
            )
        )
    except DdError as error:
        print(masked(f"error: {error.message}\n  {error.hint}"), file=sys.stderr)
        return error.exit_code
    for note in getattr(report, "notes", ()):
        print(masked(note), file=sys.stderr)
    print(masked(json_line("ingest", spelled(asdict(report), project.dims))))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "ingest.py", description="Append the rows of sources to the change log of an input."
    )
    parser.add_argument("input", type=filled(str), metavar="INPUT", nargs="?")
    parser.add_argument(
        "source", type=filled(str), metavar="SOURCE", nargs="*", help="a file, a folder, a glob or a Delta table"
    )
    parser.add_argument("--project", type=filled(Path), metavar="DIR", help="the folder of dd.toml")
    parser.add_argument("--warehouse", type=filled(str), metavar="DIR")
    parser.add_argument("--new-warehouse", action="store_true", help="allow a new one outside of the project's folder")
    parser.add_argument("--engine", choices=ENGINES)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--append", dest="form", action="store_const", const="append", help="insert every row")
    forms.add_argument(
        "--snapshot", dest="form", action="store_const", const="snapshot", help="each source is the whole content"
    )
    forms.add_argument(
        "--feed", dest="form", action="store_const", const="feed", help="what changed in Delta tables since last time"
    )
    forms.add_argument(
        "--upsert", dest="form", action="store_const", const="upsert", help="each row is the newest value of its key"
    )
    forms.add_argument(
        "--debezium", dest="form", action="store_const", const="debezium", help="events in Debezium's envelope"
    )
    forms.add_argument("--op", metavar="COLUMN", help="events with an operation in this column")
    parser.set_defaults(form="log")
    parser.add_argument("--key", type=_names, default=(), metavar="COLUMN,...", help="the columns of the key of events")
    parser.add_argument("--order-by", type=_names, default=(), metavar="COLUMN,...", help="the order of events")
    parser.add_argument("--op-values", action="append", default=[], metavar="insert=A,delete=B", help="other words")
    parser.add_argument("--version", metavar="T", help="of all rows: a version, next, or a time: day=7,revision=1")
    parser.add_argument("--diff", type=int, metavar="N", help="all rows have this diff")
    parser.add_argument("--undo", type=int, metavar="N", help="take ingest N back")
    parser.add_argument("--column", type=_pair, action="append", default=[], metavar="OURS=THEIRS")
    parser.add_argument("--format", metavar="NAME", help="read the sources as Spark reads this format")
    parser.add_argument("--option", type=_pair, action="append", default=[], metavar="KEY=VALUE", help="for --format")
    parser.add_argument("--late", choices=LATE, default="refuse")
    parser.add_argument(
        "--restate",
        metavar="T",
        help="replace the history from this version or time on; first: from the sources' first",
    )
    parser.add_argument("--allow-gap", action="store_true", help="take in a version far beyond all others")
    parser.add_argument("--label", action="append", default=[], metavar="TEXT", help="what to call the rows' version")
    return parser


def _form(options: argparse.Namespace) -> str:
    return "op" if options.op is not None else str(options.form)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pair(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise argparse.ArgumentTypeError(f"{text!r} is not OURS=THEIRS")
    return ours, theirs


if __name__ == "__main__":
    sys.exit(main())
