"""One ingest with the warehouse locked: what its reader reads, the checks, and the commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from ddcore.base.errors import DataError
from ddcore.io.delta.deltalog import last_transaction, named_files
from ddcore.io.delta.open_tables import head_of
from ddcore.io.delta.tables import APP, live_files
from ddcore.io.ledger import recovery
from ddcore.io.ledger.ingest_index import IngestIndex
from ddcore.io.ledger.labels import Labels
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord
from ddcore.io.ledger.records import Source as IngestedSource
from ddcore.io.logs.digests import Digest
from ddcore.io.logs.inputs import check_input, input_log
from ddcore.io.project.ingest_settings import IngestSettings
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time, greatest, least
from ddcore.io.sources.intake import Intake, Part
from ddcore.io.sources.known import digest_key, identity, stored
from ddcore.io.sources.layouts import Rules
from ddcore.io.sources.positions import Position, last_positions, position
from ddcore.io.sources.source import Located
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.store import delete
from ddcore.jobs.ingesting.engines import Layouts, Take
from ddcore.jobs.ingesting.labels import Naming
from ddcore.jobs.ingesting.notes import ignored_notes, left_out, repeat_note, shown_count, sweep_note
from ddcore.jobs.ingesting.report import IngestReport
from ddcore.jobs.ingesting.source_checks import Listener, SourceChecks


@dataclass(eq=False, kw_only=True)
class Reader(ABC):
    """Reads the sources of one form for an input. ``paths``: as the user named them; ``rules``: for their rows.

    :meth:`look` finds those that are new: ``layouts``, each source with its layout; ``is_new``, whether there is
    anything to read; ``ingest``, the last ingest that took in what is left out; ``rests_on``, ingests that hold the
    beginnings of sources; ``notes`` for the user. :meth:`read` may find that nothing of it is new.
    """

    project: Project
    name: str
    settings: IngestSettings
    paths: tuple[str, ...]
    rules: Rules
    layouts: Layouts = field(default_factory=list)
    is_new: bool = True
    ingest: int = 0
    rests_on: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)

    holds_ledger: bool = False  # the command has read the ledger before
    checks_counts: bool = True  # the counts of rows need a check
    has_key: tuple[str, ...] = ()  # columns in which no two rows are equal by construction
    keeps_positions: bool = True  # how far sources were read is recorded even where a restatement changes nothing

    @property
    def again(self) -> bool:
        """Whether sources that were taken in before count: they replace history."""
        return self.settings.restate is not None

    @property
    def size(self) -> int:
        """The bytes to read, as far as they are known."""
        return sum(source.size for source, _ in self.layouts)

    def positions_of(self, sources: Sequence[Located], ledger: Ledger) -> list[Position | None]:
        """How far each source was taken in by the last ingest of its name; None for all that are to be read again."""
        if self.again:
            return [None] * len(sources)
        return last_positions(ledger, ledger.ingest_index(self.name), sources, self.project.root)

    def refuse_times(self) -> None:
        """Raise DataError for a source with a version column, which ``--version`` would overrule."""
        for _, layout in self.layouts:
            for dim in self.rules.dims if self.rules.time is None else ():
                if dim in layout.source_columns or dim in layout.folders:
                    column = layout.source_columns.get(dim, self.rules.rename.get(dim, dim))
                    raise DataError(
                        f"{layout.where}: has a column {column!r}, but --version gives its value for all rows",
                        "leave out --version, or remove the column from the source",
                    )

    def update_rules(self, ledger: Ledger) -> Rules:
        """The rules for updates, with the version of rows that have none."""
        del ledger
        return Rules(self.rules.schema, self.rules.dims)

    @abstractmethod
    def look(self, ledger: Callable[[], Ledger]) -> None:
        """Find what of the sources is new for the input, by the ledger if that is needed. Takes no lock. DataError for
        what cannot be taken in.
        """

    @abstractmethod
    def read(self, work: Work) -> Part:
        """Read what is new, by :meth:`Work.take`. DataError."""

    @abstractmethod
    def names(self, part: Part) -> tuple[Mapping[Time, datetime], Mapping[int, str]]:
        """When the versions were made, and what the sources call them."""

    def digests(self, part: Part) -> Sequence[Digest]:
        """The digest of what was read of each source that has a position."""
        raise NotImplementedError

    def taken(self, work: Work, part: Part) -> tuple[IngestedSource, ...]:
        """The sources for the record."""
        return tuple(
            IngestedSource(identity(one, self.project.root), stored(digest, work.intake.key), at)
            for (one, at), digest in zip(work.positions, self.digests(part), strict=True)
        )


class Work:
    """One ingest, with the warehouse's lock held. ``asked``: the labels that ``--label`` names, for a dimension by its
    place.
    """

    def __init__(self, ledger: Ledger, reader: Reader, *, asked: Mapping[int, str], tell: Listener) -> None:
        self.ledger, self.reader, self.tell = ledger, reader, tell
        project, settings, self.name = reader.project, reader.settings, reader.name
        self.settings, self._asked, self._committing = settings, asked, False
        self._ignored, self.rules = tuple(project.ignored.get(self.name, ())), reader.update_rules(ledger)
        self.log = input_log(ledger.warehouse, project, self.name, self.rules.schema, ledger.writer)
        self.columns = tuple(self.log.names.values())
        self.base = ledger.input_table(self.name)
        index = ledger.ingest_index(self.name)
        # An ingest after one whose rows repeat says that they do; and all digests have one key.
        newest = ledger.ingests_at(index, [*index.numbers][-1:])
        key = tuple(project.keys.get(self.name, ()))
        repeats = any(record.repeats for record in newest)
        self.judgement = SourceChecks(ledger, self.log, settings, tell, key=key, repeats=repeats, plus=index.plus)
        # A restatement says itself which rows the log holds already.
        self.index = IngestIndex() if reader.again else index
        self.former = self.index.former_columns(self.columns, self.log.read_columns)
        upper = None if reader.again else self.judgement.upper
        written = replace(self.log, writer=None)  # tasks write files, and commit nothing
        self.intake = Intake(
            written, ledger.next_ingest(), self.rules, digest_key(newest), upper, settings.late == "move",
            former=self.former,
        )  # fmt: skip
        self.notes, self.layouts, self.positions = list[str](), Layouts(), list[tuple[Located, str]]()
        self._labels: Labels = ()
        self._newest = ""
        self._left_out: tuple[str, ...] = ()

    def run(self, take: Take) -> IngestReport:
        """Take in what is new of the sources, check it as a whole, and make it visible."""
        reader, part, self._take = self.reader, Part(), take
        self.notes += reader.notes
        if reader.is_new:
            self._left_out = left_out(reader.layouts, self._ignored)
            self.notes += ignored_notes(reader.layouts, self._ignored)
            self.tell("reading rows", 0, None, ", ".join(reader.paths))
            part = reader.read(self)
        if reader.is_new and reader.again:
            self.judgement.replace(part, self.intake.number)
            changes = self.judgement.changes
            reader.is_new = reader.keeps_positions or changes is None or not changes.times.is_empty()
        if not reader.is_new:
            return self._report(part, reader.ingest, nothing_new=True)
        self.judgement.run(part, self.layouts, self.intake, checks_counts=reader.checks_counts, has_key=reader.has_key)
        self._name(part)
        taken = reader.taken(self, part)
        if self.judgement.repeated is not None:
            self.notes.append(repeat_note(*self.judgement.repeated, self.rules.dims, self.intake.number))
        self._commit(part, taken)
        return self._report(part, self.intake.number, nothing_new=False)

    def take(self, layouts: Layouts, stamped: Sequence[Located] = ()) -> Part:
        """Read sources and write their rows. DataError for one of ``stamped`` that changes meanwhile: what was read may
        be half of each.
        """
        self.layouts, self.positions = layouts, [(one, position(one)) for one in stamped]  # what comes later is new
        part = self._take(self.intake, layouts) if layouts else Part()
        for one, before in self.positions:
            if one.stamp() != before.partition("/")[0]:
                raise DataError(f"{one.name}: changed while it was read", "run it again when it is complete")
        return part

    def restated(self) -> Time | None:
        """The version from which on a restatement replaces the history; None without one. With snapshots and events
        ``first`` is the first version of the input.
        """
        start = self.settings.restate
        return self.ledger.first_ingested([self.name]) if isinstance(start, str) else start

    def _name(self, part: Part) -> None:
        """Find the labels of the versions."""
        dates, labels = self.reader.names(part)
        self._newest = max(dates.values()).isoformat() if dates else ""
        restates = self.judgement.replacement is not None
        naming = Naming(self.name, self.rules.dims, self._asked, labels, dates, [*part.counts], restates)
        self._labels, notes = naming.labels(self.ledger)
        self.notes += notes

    def _report(self, part: Part, number: int, *, nothing_new: bool) -> IngestReport:
        versions, repeated, replaced = list(part.counts), self.judgement.repeated, self.judgement.replacement
        return IngestReport(
            input=self.name,
            ingest=number,
            sources=self.reader.paths,
            rows=part.rows,
            plus=sum(plus for plus, _ in part.counts.values()),
            minus=sum(minus for _, minus in part.counts.values()),
            first=least(versions) if versions else None,
            last=greatest(versions) if versions else None,
            versions=len(versions),
            moved=part.late if self.intake.move and not nothing_new else 0,
            restated=part.late if self.settings.late == "restate" and not nothing_new else 0,
            replaces=Time(replaced.start) if replaced else None,
            removed=replaced.rows if replaced and not nothing_new else 0,
            restates=self.judgement.restates,
            nothing_new=nothing_new,
            engine="",
            took=0.0,
            repeated=repeated[0] if repeated else 0,
            repeated_first=shown_count(repeated[1], self.rules.dims) if repeated else None,
            notes=tuple(self.notes),
            left_out=self._left_out,
        )

    # --- the table and the ledger ---

    def _commit(self, part: Part, sources: tuple[IngestedSource, ...]) -> None:
        self.tell("committing")
        self._committing = True
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
            table=recovery.UNKNOWN,
            repeats=self.judgement.repeated is not None or part.most > 1 or self.judgement.repeats,
            rests_on=self.reader.rests_on,
            dims=self.rules.dims if len(self.rules.dims) > 1 else (),
            restates=self.judgement.restates,
            columns=self.columns,
            replaces=Time(replaced.start) if replaced else None,
            removed=replaced.rows if replaced else 0,
            before=self.base if replaced else None,
            labels=self._labels,
            left_out=self._left_out,
            newest=self._newest,
        )
        carries = recovery.carried(record)
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
            # A table whose log was lost must not be created again.
            live_files(self.log.folder, self.base, self.ledger.writer)
            check_input(self.ledger, self.reader.project, self.name)
        else:
            self.log.create(replace=True)  # a first ingest that was killed may have left a table with other columns
        transaction = last_transaction(self.log.folder, APP)
        if self.sweep():
            self.notes.append(sweep_note(transaction, self.intake.number))
        try:
            yield
        finally:
            # Once the commit has begun, only the ledger on disk says how it ended: the next ingest removes the files.
            if not self._committing:
                self.sweep()

    def sweep(self) -> bool:
        """Restore the table to the state that the ledger names, and delete files of an unfinished ingest.

        Returns whether the table was in another state.

        A file that any commit of the table named is kept: if the ledger was lost, it is the only copy of its rows.
        """
        known = head_of(self.log.folder, self.base, self.ledger.writer)
        head = self.log.version() if known is None else known.version
        state = self.log.commit([], self.intake.number, base=self.base, adds={})
        strays = self.intake.strays()
        named = named_files(self.log.folder) if strays else ()
        self.ledger.owner.require_lock()
        for path in strays:
            if path.name not in named:
                delete(path)
                failpoint("after-stray")
        return state.version != head
