"""Events of an ingest: how they are read, which sources are new, and at which version they are taken in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddcore.base.errors import DataError, UsageError
from ddcore.base.lattice import le
from ddcore.io.delta.tables import TableState
from ddcore.io.ledger.ingest_index import IngestIndex
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, coordinates, named, time_of
from ddcore.io.project.times import example as example_time
from ddcore.io.project.times import shown as spelled_time
from ddcore.io.sources.debezium import Envelopes
from ddcore.io.sources.events import Events
from ddcore.io.sources.positions import last_positions
from ddcore.io.sources.row_checks import Layout, Rules
from ddcore.io.sources.source import Source
from ddcore.io.sources.upserts import ABSENT, REDELIVERED, SKIPPED, EventLog
from ddcore.jobs.ingesting.snapshots import next_version
from ddcore.text.wording import listed, meant

__all__ = ["EVENT_FORMS", "EventOptions", "EventSources", "events_of", "find_events", "tally_notes"]

EVENT_FORMS = ("upsert", "op", "debezium")

Layouts = tuple[tuple[Source, Layout], ...]


@dataclass(frozen=True)
class EventOptions:
    """How the rows of sources are events: see :class:`ddcore.io.sources.events.Events`. ``key``: without columns, that
    of dd.toml.
    """

    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    op: str | None = None
    words: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EventSources:
    """The sources of a command: those that are ``new``, and how many are ``known``, the last of them taken in by
    ``ingest``; ``others`` are ingests that took in other events from the place of a new one.
    """

    events: Events
    new: Layouts
    known: int
    ingest: int
    others: Mapping[str, int]

    def log(self, log: ChangeLog, state: TableState | None, time: Time | None, restated: Time | None) -> EventLog:
        """The new ones as a source of updates of ``log``; with ``restated`` against its content before."""
        names = [source.name for source, _ in self.new]
        name = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        at = None if time is None else coordinates(time)
        events = replace(self.events, rules=replace(self.events.rules, fallback=at))
        return EventLog(
            name, self.new[0][0].path, log=log, state=state, events=events, parts=self.new, time=at,
            before=None if restated is None else coordinates(restated)[0],
        )  # fmt: skip

    def notes(self) -> list[str]:
        """Notes on the sources that are left out, and without a key on those that have changed."""
        are = "source was" if self.known == 1 else "sources were"
        notes = [f"{self.known} {are} taken in before and left out"] if self.known else []
        if not self.events.key:
            notes += [
                f"{name}: ingest {number} took in other events under that name; all of its events are added"
                for name, number in self.others.items()
            ]
        return notes

    def time(self, ledger: Ledger, name: str, restated: Time | None) -> Time | None:
        """The time of all events; None if the sources say it. UsageError where it may not be."""
        rules = self.events.rules
        if any(set(rules.dims) & {*layout.source_columns, *layout.folders} for _, layout in self.new):
            return None
        if rules.time is None:
            return next_version(ledger, name) if restated is None else restated
        time, latest = time_of(rules.time), ledger.latest_ingested([name])
        if len(rules.dims) > 1 and latest is not None and not le(coordinates(latest), rules.time):
            raise UsageError(
                f"--version {spelled_time(time, rules.dims)}: the input {name} has rows up to "
                f"{named(latest, rules.dims)}, and with several time dimensions events come at or after all of them",
                "name a time at or beyond that",
            )
        return time


def events_of(project: Project, name: str, form: str, options: EventOptions, rules: Rules, *, again: bool) -> Events:
    """How the events of an ingest are read. UsageError for a key, an order or a version that cannot be."""
    key = options.key or project.keys.get(name, ())
    for option, columns in (("--key", key), ("--order-by", options.order)):
        for column in columns:
            if column not in rules.schema:
                raise UsageError(
                    f"{option} {','.join(columns)}: the input {name} has no column {column!r}",
                    meant(column, rules.schema) or f"its columns are {listed(rules.schema)}",
                )
            if rules.schema[column].is_nested:
                raise UsageError(f"{option} {column}: the column is a list or struct", "name columns of plain types")
        if len(set(columns)) < len(columns):
            raise UsageError(f"{option} {','.join(columns)}: names a column twice", "name each column once")
    if both := [column for column in key if column in options.order]:
        raise UsageError(f"--order-by {both[0]}: is a column of the key", "the order tells values of one key apart")
    if options.order and not key:
        raise UsageError("--order-by without a key", "say which columns tell rows apart: --key COLUMN,...")
    one = len(rules.dims) == 1
    if not one and (rules.time is None or again):
        raise UsageError(
            f"--{form} with the time dimensions {', '.join(rules.dims)}: all events get one time, without --restate",
            f"say which: --version {example_time(rules.dims)}",
        )
    rules = replace(rules, events=True, fallback=(0,) if one and rules.time is None else None)
    how = Envelopes if form == "debezium" else Events
    events = how(rules, tuple(key), options.order, options.op if form == "op" else None, options.words)
    if form == "upsert" and not key:
        raise UsageError(f"--upsert: the input {name} has no key", f"say: --key COLUMN,..., or write key = [...] under "
                         f"[inputs.{name}] in dd.toml")  # fmt: skip
    if form == "upsert" and not events.values:
        raise UsageError(
            "--upsert: the input has no columns beside the key and the order, so a row cannot say whether it deletes",
            "name the column that says it: --op COLUMN",
        )
    return events


def find_events(events: Events, sources: Sequence[Source]) -> Layouts:
    """The sources with their layouts. DataError for one that does not fit, and where only some have versions."""
    declared = [events.declared(source) for source in sources]
    layouts = tuple((source, events.fit(source)) for source in declared)
    dims = set(events.rules.dims)
    timed = [bool(dims & {*layout.source_columns, *layout.folders}) for _, layout in layouts]
    if any(timed) and not all(timed):
        without, one = (layouts[timed.index(each)][0].name for each in (False, True))
        raise DataError(
            f"{without}: has no version column, but {one} has",
            "ingest them one after the other",
        )
    return layouts


def new_events(ledger: Ledger, name: str, events: Events, layouts: Layouts, root: Path, *, again: bool) -> EventSources:
    """The sources that the input has not taken in as they are now; with ``again`` all of them, for a restatement."""
    index = IngestIndex() if again else ledger.ingest_index(name)
    sources = [source for source, _ in layouts]
    places = [None] * len(sources) if again else last_positions(ledger, index, sources, root)
    new: list[tuple[Source, Layout]] = []
    ingests, others = [0], dict[str, int]()
    for one, place in zip(layouts, places, strict=True):
        if place is not None and one[0].is_at(place[1]):
            ingests.append(place[0])
            continue
        new.append(one)
        if place is not None:
            others[one[0].name] = place[0]
    return EventSources(events, tuple(new), len(ingests) - 1, max(ingests), others)


def tally_notes(tallies: Mapping[str, int], order: Sequence[str]) -> list[str]:
    """Notes on the events that change nothing."""
    by = ", ".join(order)
    one = {
        SKIPPED: "event is left out, as it only says what a row was",
        REDELIVERED: f"event is left out: by {by} it is not later than the row of its key",
        ABSENT: "event deletes a key that has no row",
    }
    several = {
        SKIPPED: "events are left out, as they only say what rows were",
        REDELIVERED: f"events are left out: by {by} they are not later than the rows of their keys",
        ABSENT: "events delete keys that have no row",
    }
    return [f"{many} {(several if many > 1 else one)[name]}" for name in one if (many := tallies.get(name, 0))]
