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
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from ddcore.base.errors import UsageError
from ddcore.io.ledger import unrecorded
from ddcore.io.ledger.intent import give_up
from ddcore.io.ledger.labels import Labels
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.project import ENGINES, Project
from ddcore.io.project.times import Time, coordinates
from ddcore.io.sources.finding import find_sources
from ddcore.io.sources.row_checks import LARGEST_TIME, Rules
from ddcore.io.sources.sparkformat import find_formats
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import predecessor
from ddcore.jobs.ingesting.engines import session, taker
from ddcore.jobs.ingesting.found import EventFiles, Find, SnapshotFiles, Tables, Updates, find_for
from ddcore.jobs.ingesting.judgement import Listener
from ddcore.jobs.ingesting.labels import asked_labels, not_set
from ddcore.jobs.ingesting.options import Options
from ddcore.jobs.ingesting.report import IngestReport
from ddcore.jobs.ingesting.upserts import EVENT_FORMS, EventOptions, events_of, find_events
from ddcore.jobs.ingesting.versions import NEXT, Version, following, version_of
from ddcore.jobs.ingesting.work import Work

__all__ = ["FIRST", "FORMS", "LATE", "IngestReport", "ingest", "start_of", "version_of"]

LATE = ("refuse", "move", "restate")
FORMS = ("log", "append", "snapshot", "feed", *EVENT_FORMS)  # how the rows of sources become updates
FIRST = "first"  # restate from the first version of the sources on


def ingest(
    project: Project,
    input_name: str,
    sources: Sequence[str],
    *,
    engine: str = "spark",
    form: str = "log",
    events: EventOptions | None = None,
    version: Version | None = None,
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
    and the changes of a commit its number; ``next`` gives them the next version, too. With several dimensions it may
    stand for coordinates of snapshots and events.
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
    time_of_all, at_next = _version(version, form, project.dims)
    rules, asked = _rules(project, input_name, time_of_all, diff, rename or {}), asked_labels(label, project.dims)
    tell = listener or _silent
    tell("reading columns")
    warehouse = Warehouse(project.warehouse)
    with session(project) if format else nullcontext():  # Spark tells the columns
        found: Updates | SnapshotFiles | Tables | EventFiles
        again = restate is not None
        if form in EVENT_FORMS:
            reading = events_of(project, input_name, form, events or EventOptions(), rules, again=again)
            found = EventFiles(tuple(sources), find_events(reading, find(sources)), reading)
        else:
            found = find_for(
                form, sources, rules, warehouse, input_name, root=project.root, again=again, at_next=at_next, find=find
            )
        if version == NEXT:
            found.refuse_times()
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
            if isinstance(version, tuple) and NEXT in version:
                found = found.at(following(ledger, input_name, version))
            options = Options(
                late,
                restate,
                allow_gap,
                asked,
                labels,
                tuple(project.keys.get(input_name, ())),
                tuple(project.ignored.get(input_name, ())),
            )
            work = Work(ledger, input_name, found.rules(ledger, input_name), options, tell=tell, root=project.root)
            work.notes += notes
            with work.cleaning(), taker(engine, project, found.size) as take:
                report = found.take_in(work, take)
            names = ledger.version_names(project.dims)
            unset = not_set(asked, names, report.first, report.last) if report.nothing_new else []
            report = replace(report, notes=(*report.notes, *unset), **names.fields(report.last))
    return replace(report, engine=engine, took=time.monotonic() - start, stale_lock=stale_lock)


def start_of(text: str | None, project: Project) -> Time | str | None:
    """What ``--restate`` says: a time, by numbers or names, or ``first``. UsageError."""
    if text is None or text == FIRST:
        return text
    names = VersionNames(project.dims, lambda: Ledger.load(Warehouse(project.warehouse)).labels())
    return names.time(text, "--restate", begins=True)


# --- the arguments ----------------------------------------------------------------------------------------------------


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


def _version(version: Version | None, form: str, dims: Sequence[str]) -> tuple[Time | None, bool]:
    """The version for all rows, if there is one, with 0 for coordinates that are ``next``; and whether it is the next
    one of the input. UsageError where the same sources would not be known when they come again.
    """
    if isinstance(version, str):
        if version != NEXT or form == "log" or len(dims) > 1:
            raise UsageError(
                f"--version {version}: with --append, --snapshot, --feed or events, and one time dimension only",
                "say which version the rows have: --version N",
            )
        return (0, True) if form == "feed" else (None, False)
    if not isinstance(version, tuple):
        return version, False
    if NEXT in version and form not in ("snapshot", *EVENT_FORMS):
        said = ",".join(f"{dim}={each}" for dim, each in zip(dims, version, strict=True))
        raise UsageError(
            f"--version {said}: next is for snapshots and events, which are known when they come again",
            "say which time the rows have",
        )
    return tuple(each if isinstance(each, int) else 0 for each in version), False


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


def _silent(*_: object) -> None:
    """A listener that does nothing."""
