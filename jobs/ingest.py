"""Ingest: appends the rows of sources to an input's change log, all of them or none.

The steps: fit the sources' columns; check their rows and write them as sorted Parquet into the input's table folder,
where they are not visible yet; check the source as a whole (ingested before? late? a retraction of a row that does not
exist?); make it visible by one commit and one record of the ledger. If it is killed before that commit, nothing was
ingested, and the next ingest removes the files; if between the two, the next command writes the record.

With the engine ``spark``, Spark reads and one pass of :mod:`ddcore.jobs.spark.intake` checks and writes; with
``inline`` this process does it, without a JVM. The rows, the errors and the tables are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ddcore.base.errors import DataError, UsageError
from ddcore.io.ledger import recovery
from ddcore.io.ledger.intent import give_up
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.ingest_settings import EVENT_FORMS, IngestSettings, Version
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time
from ddcore.io.sources.deltafeed import COMMIT
from ddcore.io.sources.deltatable import DeltaTable
from ddcore.io.sources.finding import find_snapshots, find_sources
from ddcore.io.sources.layouts import Rules
from ddcore.io.sources.snapshots import Snapshot
from ddcore.io.sources.source import Source
from ddcore.io.sources.sparkformat import find_formats
from ddcore.jobs import predecessor
from ddcore.jobs.ingesting.delta_tables import TableReader
from ddcore.jobs.ingesting.engines import session, taker
from ddcore.jobs.ingesting.labels import asked_labels, not_set
from ddcore.jobs.ingesting.report import IngestReport
from ddcore.jobs.ingesting.snapshots import SnapshotReader
from ddcore.jobs.ingesting.source_checks import Listener
from ddcore.jobs.ingesting.updates import UpdateReader
from ddcore.jobs.ingesting.upserts import EventReader, events_of
from ddcore.jobs.ingesting.versions import NEXT, following, found_ledger, start_of, version_of
from ddcore.jobs.ingesting.work import Reader, Work

__all__ = ["IngestReport", "IngestSettings", "ingest"]

_DEFAULT = IngestSettings()


def ingest(
    project: Project,
    input_name: str,
    sources: Sequence[str],
    settings: IngestSettings = _DEFAULT,
    *,
    engine: str = "spark",
    listener: Listener | None = None,
    held: predecessor.Held | None = None,
    found: Sequence[Source | Snapshot] | None = None,
) -> IngestReport:
    """Append the rows of ``sources`` to the change log of the input ``input_name``, or replace its history by them.

    ``sources`` are files, folders, globs or Delta tables, which are read as the settings say. An unfinished run that
    committed nothing is given up: its versions are open again. ``held`` is what the command holds already: the lock,
    and the ledger; ``found``, what it found at these places, unless Spark reads them. ``listener(stage, done, total,
    note)`` is called with the progress. Cost: one pass over the sources, two if a part of them was ingested before;
    plus one over the log if rows are retracted, or if rows may now count more than once and the log is not much larger
    than the source; plus one over what is replaced.

    Raises UsageError (unknown input, no such file), DataError (rows that cannot be taken in), LateUpdate,
    UnknownRetraction, LockHeld, StorageError; the input is then as it was.
    """
    start = time.monotonic()
    project.check_own_input("ingest", input_name)
    settings.check(engine)
    settings = replace(
        settings, version=version_of(settings.version, project), restate=start_of(settings.restate, project)
    )
    version, asked, tell = settings.version, asked_labels(settings.label, project.dims), listener or _silent
    rules = _rules(project, input_name, settings)
    tell("reading columns")
    warehouse = project.tables
    with session(project) if settings.format else nullcontext():  # Spark tells the columns
        finder = _finder(settings) if found is None or settings.format else lambda _: [*found]
        reader = _reader(project, input_name, sources, settings, rules, find=finder)
        reader.holds_ledger = held is not None
        known = cache(partial(found_ledger, project) if held is None else lambda: held[1])
        try:
            reader.look(known)
        except DataError:
            _check_columns(project, input_name, known)
            raise
        if version == NEXT:
            reader.refuse_times()
        if held is None:
            warehouse.begin(project.root, new=settings.new_warehouse)
        with predecessor.writing(warehouse, "ddcore ingest", project.tuning, held=held) as (lock, ledger):
            ledger.check_dims(project.dims)
            finished = recovery.finish(ledger)
            intent = ledger.open_intent()
            give_up(ledger, "it was not finished, and an ingest came first")
            stale_lock = predecessor.tell(lock, ledger, predecessor.given_up(intent, ledger), finished)
            is_looked_up = known.cache_info().currsize > 0
            if is_looked_up and ledger.entries.last != known().entries.last:
                reader.look(lambda: ledger)  # a command wrote in between, or this one finished another
            if version is not None and version != NEXT and NEXT in version:
                reader.rules = replace(reader.rules, time=following(ledger, input_name, version))
            work = Work(ledger, reader, asked=asked, tell=tell)
            work.notes += [recovery.note(record) for record in finished]
            with work.cleaning(), taker(engine, project, reader.size) as take:
                report = work.run(take)
            names = ledger.version_names(project.dims)
            unset = not_set(asked, names, report.first, report.last) if report.nothing_new else []
            report = replace(report, notes=(*report.notes, *unset), **names.fields(report.last))
    return replace(report, engine=engine, took=round(time.monotonic() - start, 3), stale_lock=stale_lock)


def _check_columns(project: Project, name: str, found: Callable[[], Ledger]) -> None:
    """Where a source does not fit: raise StorageError if the input's columns are others than those of its log, which
    says more about it.
    """
    from ddcore.io.logs.inputs import check_input

    check_input(found(), project, name)


def _silent(*_: object) -> None:
    """A listener that does nothing."""


# --- the sources ------------------------------------------------------------------------------------------------------


def _reader(
    project: Project, name: str, paths: Sequence[str], settings: IngestSettings, rules: Rules, *,
    find: Callable[[Sequence[str]], list[Any]],
) -> Reader:  # fmt: skip
    """What reads the sources at these places. DataError, UsageError."""
    form = settings.form
    reads: dict[str, Any] = {"project": project, "name": name, "settings": settings, "paths": tuple(paths)}
    if form in EVENT_FORMS:
        events = events_of(project, name, settings, rules)
        has_key = events.key if len(rules.dims) == 1 else ()
        return EventReader(
            **reads, rules=events.rules, events=events, sources=find(paths), checks_counts=not events.key,
            has_key=has_key,
        )  # fmt: skip
    if form == "snapshot":
        wholes = find(paths)
        if settings.format is not None:
            wholes = [Snapshot(source.name, source.path, (source,)) for source in wholes]
        return SnapshotReader(**reads, rules=replace(rules, rows_only=True), snapshots=wholes)
    sources = find(paths)
    one = len(rules.dims) == 1 and rules.time is None
    if form == "append":
        rules = replace(rules, diff=1, appends=True, fallback=Time([0]) if one else None)
    if form == "feed" and one:
        rules = replace(rules, rename={rules.dims[0]: COMMIT, **rules.rename})
    tables = [source for source in sources if isinstance(source, DeltaTable)]
    if form == "feed" or (form == "append" and tables):
        _check_tables(settings, sources, tables)
        return TableReader(**reads, rules=rules, tables=tables, at_next=form == "feed" and settings.version == NEXT)
    return UpdateReader(**reads, rules=rules, sources=sources)


def _finder(settings: IngestSettings) -> Callable[[Sequence[str]], list[Any]]:
    """What finds the sources at places; of snapshots those, unless Spark reads them."""
    if settings.format is None:
        return find_snapshots if settings.form == "snapshot" else find_sources
    return partial(find_formats, format=settings.format, options=settings.option)


def _check_tables(settings: IngestSettings, sources: Sequence[Source], tables: Sequence[DeltaTable]) -> None:
    """UsageError for files among tables that are followed, and for a restatement by them."""
    form = settings.form
    for source in sources:
        if source not in tables:
            raise UsageError(
                f"{source.name}: a {source.kind}, " + ("which has no change data feed" if form == "feed" else
                "beside a Delta table: --append takes files or tables"),
                "name Delta tables only; a file is taken in with --append or --snapshot",
            )  # fmt: skip
    if settings.restate is not None:
        raise UsageError(
            f"--restate with --{form} of a Delta table: only commits that are new are taken in",
            "restate with snapshots: TABLE@v3..v7 --snapshot --restate V",
        )


# --- what the settings say of their rows ------------------------------------------------------------------------------


def _time_of_all(version: Version | None, form: str, dims: Sequence[str]) -> Time | None:
    """The version for all rows, if there is one, with 0 for what is ``next``. UsageError where the same sources would
    not be known when they come again.
    """
    if isinstance(version, str):
        if version != NEXT or form == "log" or len(dims) > 1:
            raise UsageError(
                f"--version {version}: with --append, --snapshot, --feed or events, and one time dimension only",
                "say which version the rows have: --version N",
            )
        return Time([0]) if form == "feed" else None
    if version is not None and NEXT in version and form not in ("snapshot", *EVENT_FORMS):
        said = ",".join(f"{dim}={part}" for dim, part in zip(dims, version, strict=True))
        raise UsageError(
            f"--version {said}: next is for snapshots and events, which are known when they come again",
            "say which time the rows have",
        )
    return None if version is None else Time(0 if part == NEXT else int(part) for part in version)


def _rules(project: Project, name: str, settings: IngestSettings) -> Rules:
    schema, version, diff = project.input_schema(name), settings.version, settings.diff
    time = _time_of_all(version, settings.form, project.dims)
    if diff is not None and (diff == 0 or abs(diff) >= 2**63):
        raise UsageError(f"--diff {diff}: each row's diff is a whole number of 64 bits, and not 0", "say: --diff 1")
    rules = Rules(schema, project.dims, time, diff, dict(settings.column))
    if (stored := project.stored.get(name)) is not None:
        rules = replace(rules, before=stored.former_names, dropped=dict(stored.dropped), narrower=stored.narrower)
    for column, foreign in settings.column.items():
        if column not in rules.columns:
            raise UsageError(
                f"--column {column}={foreign}: the input {name} has no column {column!r}",
                f"its columns are {', '.join(rules.columns)}; say --column OURS=THEIRS",
            )
    return rules
