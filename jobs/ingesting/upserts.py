"""Events of an ingest: how they are read, which sources are new, and at which version they are taken in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from ddcore.base.errors import DataError, UsageError
from ddcore.base.lattice import le
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.digests import Digest
from ddcore.io.project.ingest_settings import IngestSettings
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, named
from ddcore.io.project.times import example as example_time
from ddcore.io.project.times import shown as spelled_time
from ddcore.io.sources.debezium import Envelopes
from ddcore.io.sources.events import Events
from ddcore.io.sources.intake import Part
from ddcore.io.sources.layouts import Rules, has_time
from ddcore.io.sources.source import Source
from ddcore.io.sources.upserts import ABSENT, REDELIVERED, ROWS, SKIPPED, EventLog
from ddcore.jobs.ingesting.engines import Layouts
from ddcore.jobs.ingesting.labels import source_dates
from ddcore.jobs.ingesting.notes import empty
from ddcore.jobs.ingesting.snapshots import next_version
from ddcore.jobs.ingesting.work import Reader, Work
from ddcore.text.wording import listed, meant


@dataclass(eq=False, kw_only=True)
class EventReader(Reader):
    """Reads the events of sources that are new, as what they change in the input's log. All new events get one time, if
    the sources do not say it.
    """

    sources: Sequence[Source]
    events: Events
    _all: Layouts = field(default_factory=list)

    def look(self, ledger: Callable[[], Ledger]) -> None:
        """Find the sources that the input has not taken in as they are now; for a restatement all of them."""
        self._all = self._all or self._fitted()
        positions = self.positions_of([source for source, _ in self._all], ledger())
        self.layouts, self.notes, ingests, others = [], [], [0], []
        for one, position in zip(self._all, positions, strict=True):
            if position is not None and one[0].is_at(position[1]):
                ingests.append(position[0])
                continue
            self.layouts.append(one)
            if position is not None and not self.events.key:
                took = f"ingest {position[0]} took in other events under that name; all of its events are added"
                others.append(f"{one[0].name}: {took}")
        self.ingest, known, self.is_new = max(ingests), len(ingests) - 1, bool(self.layouts)
        are = "source was" if known == 1 else "sources were"
        self.notes = [*([f"{known} {are} taken in before and left out"] if known else []), *others]

    def _fitted(self) -> Layouts:
        """The sources with their layouts. DataError for one that does not fit, and where only some have versions."""
        declared = [self.events.declared(source) for source in self.sources]
        layouts = [(source, self.events.fit(source)) for source in declared]
        timed = [has_time(layout, self.rules) for _, layout in layouts]
        if any(timed) and not all(timed):
            without, one = (layouts[timed.index(is_timed)][0].name for is_timed in (False, True))
            raise DataError(
                f"{without}: has no version column, but {one} has",
                "ingest them one after the other",
            )
        return layouts

    def read(self, work: Work) -> Part:
        """Compare the events with the log."""
        restated = work.restated()
        source = self._log(work, self._time(work.ledger, restated), restated)
        part = work.take([(source, source.layout())], [one for one, _ in self.layouts])
        part.rows = part.tallies.get(ROWS, 0)
        if not part.rows:
            raise empty(self.paths)
        work.notes += tally_notes(part.tallies, self.events.order)
        if self.again:
            part.counts = {**({} if restated is None else {restated: (0, 0)}), **part.counts}
        elif not part.files:
            self.is_new, self.ingest = False, 0
        return part

    def _time(self, ledger: Ledger, restated: Time | None) -> Time | None:
        """The time of all events; None if the sources say it. UsageError where it may not be."""
        rules = self.rules
        if any(has_time(layout, rules) for _, layout in self.layouts):
            return None
        if rules.time is None:
            return next_version(ledger, self.name) if restated is None else restated
        time, latest = rules.time, ledger.latest_ingested([self.name])
        if len(rules.dims) > 1 and latest is not None and not le(latest, time):
            raise UsageError(
                f"--version {spelled_time(time, rules.dims)}: the input {self.name} has rows up to "
                f"{named(latest, rules.dims)}, and with several time dimensions events come at or after all of them",
                "name a time at or beyond that",
            )
        return time

    def _log(self, work: Work, time: Time | None, restated: Time | None) -> EventLog:
        """The new sources as one of updates; with ``restated`` against the log's content before."""
        names = [source.name for source, _ in self.layouts]
        name = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        events = replace(self.events, rules=replace(self.rules, fallback=time))
        return EventLog(
            name, self.layouts[0][0].path, log=work.log, state=work.base, events=events, parts=tuple(self.layouts),
            time=time, before=None if restated is None else restated[0],
        )  # fmt: skip

    def names(self, part: Part) -> tuple[Mapping[Time, datetime], Mapping[int, str]]:
        """The dates of the files."""
        sources = [source for source, _ in self.layouts]
        return source_dates(sources, {source.name: part.counts for source in sources}), {}

    def digests(self, part: Part) -> Sequence[Digest]:
        """None: events are recognised by their files."""
        del part
        return [Digest()] * len(self.layouts)


def events_of(project: Project, name: str, settings: IngestSettings, rules: Rules) -> Events:
    """How the events of an ingest are read. UsageError for a key, an order or a version that cannot be."""
    form, key, order = settings.form, settings.key or tuple(project.keys.get(name, ())), settings.order_by
    for option, columns in (("--key", key), ("--order-by", order)):
        for column in columns:
            if column not in rules.schema:
                raise UsageError(
                    f"{option} {','.join(columns)}: the input {name} has no column {column!r}",
                    meant(column, rules.schema) or f"its columns are {listed(rules.schema)}",
                )
            if rules.schema[column].stored.is_nested:
                raise UsageError(
                    f"{option} {column}: the column is {rules.schema[column]}", "name columns of plain types"
                )
        if len(set(columns)) < len(columns):
            raise UsageError(f"{option} {','.join(columns)}: names a column twice", "name each column once")
    if both := [column for column in key if column in order]:
        raise UsageError(f"--order-by {both[0]}: is a column of the key", "the order tells values of one key apart")
    if order and not key:
        raise UsageError("--order-by without a key", "say which columns tell rows apart: --key COLUMN,...")
    one = len(rules.dims) == 1
    if not one and (rules.time is None or settings.restate is not None):
        raise UsageError(
            f"--{form} with the time dimensions {', '.join(rules.dims)}: all events get one time, without --restate",
            f"say which: --version {example_time(rules.dims)}",
        )
    rules = replace(rules, events=True, fallback=Time([0]) if one and rules.time is None else None)
    how = Envelopes if form == "debezium" else Events
    events = how(rules, key, order, settings.op if form == "op" else None, settings.op_values)
    if form == "upsert" and not key:
        raise UsageError(f"--upsert: the input {name} has no key", f"say: --key COLUMN,..., or write key = [...] under "
                         f"[inputs.{name}] in dd.toml")  # fmt: skip
    if form == "upsert" and not events.values:
        raise UsageError(
            "--upsert: the input has no columns beside the key and the order, so a row cannot say whether it deletes",
            "name the column that says it: --op COLUMN",
        )
    return events


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
