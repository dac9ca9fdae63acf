"""One ingest with the warehouse locked: what of its sources is new, the checks, and the commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ddcore.base.errors import DataError
from ddcore.io.delta.deltalog import last_transaction, named_files
from ddcore.io.delta.tables import APP, opened, require_lock
from ddcore.io.ledger import unrecorded
from ddcore.io.ledger.ingest_index import IngestIndex
from ddcore.io.ledger.labels import Labels
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord
from ddcore.io.ledger.records import Source as TakenSource
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.digests import Digest
from ddcore.io.project.times import Time, greatest, is_open, least, time_of
from ddcore.io.sources.events import Events
from ddcore.io.sources.intake import Intake, Part
from ddcore.io.sources.known import Earlier, Known, Rows, Seen, digest_key, find_earlier, identity, stored
from ddcore.io.sources.positions import Stamped, last_positions, position
from ddcore.io.sources.row_checks import Layout, Rules, check_complete
from ddcore.io.sources.snapshots import Snapshot
from ddcore.io.sources.source import Source
from ddcore.io.sources.upserts import ROWS
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.store import delete
from ddcore.jobs.ingesting.engines import Layouts, Take
from ddcore.jobs.ingesting.following import Followed
from ddcore.jobs.ingesting.judgement import Judgement, Listener
from ddcore.jobs.ingesting.labels import Naming, snapshot_names, source_dates
from ddcore.jobs.ingesting.notes import (
    empty,
    ignored_notes,
    known_notes,
    left_out,
    repeat_note,
    replaced_notes,
    series_notes,
    shown_count,
    shown_part,
    sweep_note,
)
from ddcore.jobs.ingesting.options import Options
from ddcore.jobs.ingesting.report import IngestReport
from ddcore.jobs.ingesting.snapshots import Snapshots, new_snapshots, times_of
from ddcore.jobs.ingesting.upserts import new_events, tally_notes

__all__ = ["Work"]


class Work:
    """One ingest, with the warehouse's lock held."""

    def __init__(
        self, ledger: Ledger, name: str, rules: Rules, options: Options, *, tell: Listener, root: Path
    ) -> None:
        self.ledger, self.name, self.rules, self.tell, self.root = ledger, name, rules, tell, root
        self.options, self.committing, self.notes = options, False, list[str]()
        self.log = ChangeLog(ledger.warehouse.input(name), rules.schema, rules.dims)
        self.base = ledger.input_table(name)
        index = ledger.ingest_index(name)
        # An ingest after one whose rows repeat says that they do; and all digests have one key.
        newest = ledger.ingests_at(index, [*index.numbers][-1:])
        repeats = any(record.repeats for record in newest)
        self.judgement = Judgement(ledger, self.log, options, tell, repeats=repeats, plus=index.plus)
        # A restatement says itself which rows the log holds already.
        self.index = IngestIndex() if options.restate is not None else index
        former = self.index.former_columns(rules.schema)
        self.columns, self.earlier = (tuple(rules.schema), *former), Earlier((), root)
        key, upper = digest_key(newest), self.judgement.upper if options.restate is None else None
        move = options.late == "move"
        self.intake = Intake(self.log, ledger.next_ingest(), rules, key, upper, move, former=former)
        self.labels: Labels = ()
        self.left_out: tuple[str, ...] = ()

    def run(self, take: Take, places: Sequence[str], layouts: Layouts) -> IngestReport:
        """Take the sources in, check them as a whole, and make them visible."""
        notes = self.notes + self._left_out(layouts)
        if self.rules.appends:
            notes.append("every row counts as inserted")
            self.intake = replace(self.intake, grown=self._appended_to(layouts))
        self.tell("reading rows", 0, None, ", ".join(places))
        part = take(self.intake, layouts)
        if not part.rows:
            raise empty(places)
        known = self._recognise(part, layouts)
        fresh = [(source, layout) for source, layout in layouts if not _is_complete(known.get(source.name))]
        if not any(part.digests.get(source.name) for source, _ in fresh):
            notes += replaced_notes(known, self.name)
            number = max((one.number for one in known.values()), default=0)
            return self._report(places, part, number, nothing_new=True, notes=notes)
        for _, layout in fresh:
            check_complete(layout)
        if known:
            notes += [*known_notes(known), *replaced_notes(known, self.name)]
            self._sweep()
            grown = {name: one.part for name, one in known.items() if one.part is not None}
            self.intake = replace(self.intake, known=grown)
            layouts, part = fresh, take(self.intake, fresh)
        identities = self._identities(part, layouts)
        notes += [note for one in identities if one.name not in known for note in self._overlap_notes(one)]
        if self.options.restate is not None:
            self.judgement.replace(part, self.intake.number)
        elif not part.files:
            notes.append("its updates cancel out at each version: nothing changes")
            return self._report(places, part, 0, nothing_new=True, notes=notes)
        if self.judgement.changes is not None and self.judgement.changes.times.is_empty():
            return self._report(places, part, 0, nothing_new=True, notes=notes)
        self.judgement.judge(part, layouts, self.intake)
        dates = source_dates((source for source, _ in layouts), part.digests)
        notes += self._name(part, dates, self.options.labels)
        taken = tuple(
            TakenSource(one.identity, stored(one.whole, self.intake.key), _row_position(part.ends.get(one.name)))
            for one in identities
        )
        rests_on = tuple(sorted({one.number for one in known.values() if one.part is not None}))
        return self._finish(places, part, taken, notes, rests_on)

    def run_series(
        self, take: Take, places: Sequence[str], snapshots: Sequence[Snapshot], found: Snapshots, fitting: Rules
    ) -> IngestReport:
        """Take in the new ones of these snapshots, as what each changes in the content before it.

        ``found``: those that were new before the warehouse was locked.
        """
        restated = self._restated()
        again = self.options.restate is not None
        found = new_snapshots(self.ledger, self.name, snapshots, fitting, self.root, again=again, fits=found.new)
        notes = [*self.notes, *series_notes(found)]
        if not found.new:
            return self._report(places, Part(), found.ingest, nothing_new=True, notes=notes)
        time = None if fitting.time is None else time_of(fitting.time)
        times = times_of(self.ledger, self.name, len(found.new), time, restated=restated, dims=self.rules.dims)
        series = found.series(self.log, self.base, fitting, times, restated)
        notes += self._left_out(found.parts)
        self.tell("reading rows", 0, None, ", ".join(places))
        positions = [position(snapshot) for snapshot in found.new]  # before reading: what comes later is new
        part = take(self.intake, [(series, Layout(series.name, {n: n for n in self.rules.columns}, {}, False, ()))])
        for snapshot, before in zip(found.new, positions, strict=True):
            _check_unchanged(snapshot, before)
        part.counts = {**dict.fromkeys(times, (0, 0)), **part.counts}
        if self.options.restate is not None:
            self.judgement.replace(part, self.intake.number)
        self.judgement.judge(part, [], self.intake, checks_counts=False)
        dates, labels = snapshot_names(list(found.new), times)
        notes += self._name(part, dates, self.options.labels or labels)
        digests = part.digests.get(series.name, {})
        taken = tuple(
            TakenSource(identity(snapshot, self.root), stored(digests.get(time, Digest()), self.intake.key), before)
            for snapshot, time, before in zip(found.new, times, positions, strict=True)
        )
        return self._finish(places, part, taken, notes)

    def run_followed(self, take: Take, places: Sequence[str], found: Followed) -> IngestReport:
        """Take in what is new in Delta tables, and keep how far they were read: also if it changes nothing."""
        layouts, notes = found.layouts, [*self.notes, *found.notes, *self._left_out(found.layouts)]
        self.tell("reading rows", 0, None, ", ".join(places))
        part = take(self.intake, layouts) if layouts else Part()
        if not part.counts and found.new and len(self.rules.dims) == 1:
            default = self.rules.time or self.rules.fallback or (max(table.version for table, _ in found.new),)
            if self.judgement.upper is None or is_open(default[0], self.judgement.upper):
                part.counts = {default[0]: (0, 0)}
        if not part.counts:
            return self._report(places, part, found.ingest, nothing_new=True, notes=notes)
        self.judgement.judge(part, layouts, self.intake)
        notes += self._name(part, found.dates(part.counts, self.rules), self.options.labels)
        taken = tuple(
            TakenSource(identity(table, self.root), self._stored_digest(part, parts), position(table))
            for table, parts in found.new
        )
        return self._finish(places, part, taken, notes, found.rests_on)

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
        notes += self._left_out([*found.new])
        self.tell("reading rows", 0, None, ", ".join(places))
        positions, layout = [position(one) for one, _ in found.new], source.layout()
        part = take(self.intake, [(source, layout)])
        for (one, _), before in zip(found.new, positions, strict=True):
            _check_unchanged(one, before)
        part.rows = part.tallies.get(ROWS, 0)
        if not part.rows:
            raise empty(places)
        notes += tally_notes(part.tallies, events.order)
        if self.options.restate is not None:
            part.counts = {**({} if restated is None else {restated: (0, 0)}), **part.counts}
            self.judgement.replace(part, self.intake.number)
        elif not part.files:
            return self._report(places, part, 0, nothing_new=True, notes=notes)
        has_key = events.key if len(self.rules.dims) == 1 else ()
        self.judgement.judge(part, [(source, layout)], self.intake, checks_counts=not events.key, has_key=has_key)
        dates = source_dates((one for one, _ in found.new), {one.name: part.counts for one, _ in found.new})
        notes += self._name(part, dates, self.options.labels)
        taken = tuple(
            TakenSource(identity(one, self.root), stored(Digest(), self.intake.key), before)
            for (one, _), before in zip(found.new, positions, strict=True)
        )
        return self._finish(places, part, taken, notes)

    def _finish(
        self,
        places: Sequence[str],
        part: Part,
        taken: tuple[TakenSource, ...],
        notes: list[str],
        rests_on: tuple[int, ...] = (),
    ) -> IngestReport:
        """Commit what was judged, and report it."""
        if self.judgement.repeated is not None:
            notes.append(repeat_note(*self.judgement.repeated, self.rules.dims, self.intake.number))
        self._commit(part, taken, rests_on)
        return self._report(places, part, self.intake.number, nothing_new=False, notes=notes)

    def _restated(self) -> Time | None:
        """The version from which on a restatement replaces the history; None without one. With snapshots ``first`` is
        the first version of the input.
        """
        start = self.options.restate
        return self.ledger.first_ingested([self.name]) if isinstance(start, str) else start

    def _name(self, part: Part, dates: Mapping[Time, datetime], labels: Labels) -> list[str]:
        """Find the labels of the versions; ``dates`` and ``labels``: what the sources say. Returns notes."""
        moved, restates = self.intake.move and part.late > 0, self.judgement.replacement is not None
        dims, asked, times = self.rules.dims, self.options.label, [*part.counts]
        self.labels, notes = Naming(self.name, dims, asked, labels, dates, times, moved, restates).labels(self.ledger)
        return notes

    def _left_out(self, layouts: Layouts) -> list[str]:
        """Keep the columns that are left out, for the record and the report. Returns notes."""
        self.left_out = left_out(layouts, self.options.ignore)
        return ignored_notes(layouts, self.options.ignore)

    def _overlap_notes(self, source: Seen) -> Iterator[str]:
        """A note if rows of a source may be in the log already, and are added all the same."""
        if before := self.earlier.other_rows(source):
            yield f"{source.name}: ingest {before} took in other rows under that name; all of its rows are added"
        elif one := self.earlier.beginning(source):
            yield (
                f"{source.name}: begins with the rows that ingest {one.number} took in from another place, "
                f"{shown_part(one)}; all of its rows are added. If it is that file, moved, take this back with: "
                f"ddcore ingest --undo {self.intake.number}"
            )

    def _report(
        self, places: Sequence[str], part: Part, number: int, nothing_new: bool, notes: list[str]
    ) -> IngestReport:
        versions, repeated = list(part.counts), self.judgement.repeated
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
            replaces=time_of(self.judgement.replacement.start) if self.judgement.replacement else None,
            removed=self.judgement.replacement.rows if self.judgement.replacement and not nothing_new else 0,
            restates=self.judgement.restates,
            nothing_new=nothing_new,
            engine="",
            took=0.0,
            repeated=repeated[0] if repeated else 0,
            repeated_first=shown_count(repeated[1], self.rules.dims) if repeated else None,
            notes=tuple(notes),
            left_out=self.left_out,
        )

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

    # --- the table and the ledger ---

    def _commit(self, part: Part, sources: tuple[TakenSource, ...], rests_on: tuple[int, ...] = ()) -> None:
        self.tell("committing")
        self.committing = True
        replaced = self.judgement.replacement
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
            repeats=self.judgement.repeated is not None or part.most > 1 or self.judgement.repeats,
            rests_on=rests_on,
            dims=self.rules.dims if len(self.rules.dims) > 1 else (),
            restates=self.judgement.restates,
            columns=tuple(self.rules.schema),
            replaces=time_of(replaced.start) if replaced else None,
            removed=replaced.rows if replaced else 0,
            before=self.base if replaced else None,
            labels=self.labels,
            left_out=self.left_out,
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
            self.notes.append(sweep_note(transaction, self.intake.number))
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


def _check_unchanged(source: Stamped, position: str) -> None:
    """Raise DataError for a source that changed while it was read: what was taken in may be half of each."""
    if source.stamp() != position.partition("/")[0]:
        raise DataError(f"{source.name}: changed while it was read", "run it again when it is complete")


def _row_position(last: int | None) -> str:
    """The position of a source of rows without times: the number of its last row."""
    return "" if last is None else f"rows-{last}"


def _is_complete(known: Known | None) -> bool:
    return known is not None and known.part is None
