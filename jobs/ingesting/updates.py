"""Change logs, and rows to insert: an ingest recognises them by their rows, under any name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import blake2b

from ddcore.base.errors import DataError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import Source as IngestedSource
from ddcore.io.logs.inputs import input_log
from ddcore.io.project.times import Time
from ddcore.io.sources.intake import Part, fitted
from ddcore.io.sources.known import AlreadyIngested, IngestHistory, Rows, SourceIdentity, find_earlier, identity, stored
from ddcore.io.sources.layouts import Rules, check_complete, has_time
from ddcore.io.sources.rows_taken import RowsTaken
from ddcore.io.sources.source import Source
from ddcore.jobs.ingesting.labels import source_dates
from ddcore.jobs.ingesting.notes import empty, known_notes, replaced_notes, shown_part
from ddcore.jobs.ingesting.snapshots import next_version
from ddcore.jobs.ingesting.work import Reader, Work


@dataclass(eq=False, kw_only=True)
class UpdateReader(Reader):
    """Reads updates, or rows that are inserted."""

    sources: Sequence[Source]
    keeps_positions: bool = False
    _seen: list[SourceIdentity] = field(default_factory=list)
    _stamps: dict[str, str] = field(default_factory=dict)
    _unchanged: dict[str, AlreadyIngested] | None = None

    @cached_property
    def _rules_digest(self) -> str:
        """What the rows of a source are read by: the same file by other rules has other rows."""
        rules = self.rules
        parts: list[object] = [
            {name: str(kind) for name, kind in rules.schema.items()},
            rules.dims,
            rules.time,
            rules.diff,
        ]
        parts += [sorted(rules.rename.items()), rules.appends]
        return blake2b(repr(parts).encode(errors="surrogatepass"), digest_size=8).hexdigest()

    def look(self, ledger: Callable[[], Ledger]) -> None:
        """Find the layouts of the sources that have changed since they were taken in, by their stamps. What of them is
        new is known when the rows are read.
        """
        known = self._as_they_were(ledger)
        if self._unchanged == known:
            return
        self._unchanged = known
        fresh = [source for source in self.sources if source.name not in known]
        self._stamps = {source.name: source.settled_stamp() for source in fresh}
        try:
            self.layouts = fitted(fresh, self.rules)
        except DataError:
            log = input_log(self.project.tables, self.project, self.name)
            former = ledger().ingest_index(self.name).former_columns(tuple(log.names.values()), log.read_columns)
            if not former:
                raise
            self.rules = replace(
                self.rules, added=frozenset(self.rules.schema).difference(*map(log.columns_of, former))
            )
            self.layouts = fitted(fresh, self.rules)
        self.is_new, self.ingest = bool(fresh), max((one.number for one in known.values()), default=0)
        if fresh and all(source.row_count() == 0 for source, _ in self.layouts):
            raise empty(self.paths)

    def _as_they_were(self, ledger: Callable[[], Ledger]) -> dict[str, AlreadyIngested]:
        """The sources that are as they were when they were taken in by the same rules, by name.

        A single source is not worth a look into a ledger that has to be read for it.
        """
        if self.again or (len(self.sources) == 1 and not self.holds_ledger):
            return {}
        positions = self.positions_of(self.sources, ledger())
        known = {}
        for source, position in zip(self.sources, positions, strict=True):
            taken = RowsTaken.of(position.text) if position is not None and not position.replaced_by else None
            if position is None or taken is None or taken.rules != self._rules_digest:
                continue
            if source.stamp() == taken.stamp:
                known[source.name] = AlreadyIngested(position.ingest)
        return known

    def update_rules(self, ledger: Ledger) -> Rules:
        """The rules, with the version of rows that have none."""
        if self.rules.fallback is None:
            return self.rules
        return replace(self.rules, fallback=next_version(ledger, self.name))

    def read(self, work: Work) -> Part:
        """Read all rows, and again without those that the log holds, if there are any."""
        if self.rules.appends:
            work.notes.append("every row counts as inserted")
            work.intake = replace(work.intake, grown=self._appended_to(work))
        part = work.take(self.layouts)
        if not part.rows:
            raise empty(self.paths)
        known, earlier = self._recognise(work, part)
        fresh = [(source, layout) for source, layout in self.layouts if not _is_complete(known.get(source.name))]
        if not any(part.digests.get(source.name) for source, _ in fresh):
            work.notes += replaced_notes(known, self.name)
            self.is_new, self.ingest = False, max([self.ingest, *(one.number for one in known.values())])
            return part
        for _, layout in fresh:
            check_complete(layout)
        if self._unchanged:
            is_one = len(self._unchanged) == 1
            were = "source was taken in before and is" if is_one else "sources were taken in before and are"
            work.notes.append(f"{len(self._unchanged):,} {were} left out")
        if known:
            work.notes += [*known_notes(known), *replaced_notes(known, self.name)]
            work.sweep()
            grown = {name: one.part for name, one in known.items() if one.part is not None}
            work.intake, self.layouts = replace(work.intake, known=grown), fresh
            part = work.take(fresh)
        self._seen = self._identities(work, part)
        for one in self._seen:
            work.notes += _overlap_notes(work, earlier, one) if one.name not in known else ()
        self.rests_on = tuple(sorted({one.number for one in known.values() if one.part is not None}))
        if not part.files and not self.again:
            work.notes.append("its updates cancel out at each version: nothing changes")
            self.is_new = False
        return part

    def names(self, part: Part) -> tuple[Mapping[Time, datetime], Mapping[int, str]]:
        """The dates of the files. Digests have the times that rows have in their source: those without went to
        ``counts``.
        """
        fallback = self.rules.fallback is not None
        times = {
            source.name: part.counts if fallback and not has_time(layout, self.rules) else part.digests[source.name]
            for source, layout in self.layouts
            if source.name in part.digests
        }
        return source_dates((source for source, _ in self.layouts), times), {}

    def taken(self, work: Work, part: Part) -> tuple[IngestedSource, ...]:
        """The sources with the digests of all their rows; of rows without times the number of the last one."""
        stamps = {source.name: source.stamp() for source, _ in self.layouts if self._stamps[source.name]}

        def position(name: str) -> str:
            stamp = self._stamps[name]
            is_same = stamp and stamp == stamps[name]  # not so if it changed while it was read
            return RowsTaken(part.ends.get(name), *((stamp, self._rules_digest) if is_same else ())).text

        return tuple(
            IngestedSource(one.identity, stored(one.whole, work.intake.key), position(one.name)) for one in self._seen
        )

    def _appended_to(self, work: Work) -> dict[str, int]:
        """The sources to which rows may have been appended, and the number of the last row that was taken in."""
        sources = [source for source, _ in self.layouts]
        taken = zip(sources, self.positions_of(sources, work.ledger), strict=True)
        ends = {source.name: RowsTaken.of(position.text) for source, position in taken if position is not None}
        return {name: end.last for name, end in ends.items() if end is not None and end.last is not None}

    def _identities(self, work: Work, part: Part, former: int | None = None) -> list[SourceIdentity]:
        """The sources as the ledger names them: by paths relative to the project, from any working folder.

        ``former``: with digests over columns that the input had before, by their place in the intake.
        """
        digests = part.digests if former is None else part.former[former]
        grown, begun = work.intake.grown, part.beginnings if former is None else part.former_beginnings[former]
        return [
            SourceIdentity(
                source.name,
                identity(source, self.project.root),
                source.member,
                digests.get(source.name, {}),
                (Rows(grown[source.name]), begun[source.name]) if begun.get(source.name) else None,
            )
            for source, _ in self.layouts
        ]

    def _recognise(self, work: Work, part: Part) -> tuple[dict[str, AlreadyIngested], IngestHistory]:
        """The sources that the log holds, or parts of them, by name: also those of before the input got columns. And
        the earlier ingests with its present columns.
        """
        number, root = work.intake.number, self.project.root
        sources = self._identities(work, part)
        earlier = find_earlier(work.ledger, work.index, sources, root, work.columns)
        known = earlier.recognise(sources, number)
        for former, columns in enumerate(work.former):
            rest = [one for one in self._identities(work, part, former) if one.name not in known]
            if rest:
                seen = find_earlier(work.ledger, work.index, rest, root, columns).recognise(rest, number)
                known |= {name: one for name, one in seen.items() if one.number != number}
        return known, earlier


def _overlap_notes(work: Work, earlier: IngestHistory, source: SourceIdentity) -> Iterator[str]:
    """A note if rows of a source may be in the log already, and are added all the same."""
    if before := earlier.other_rows(source):
        yield f"{source.name}: ingest {before} took in other rows under that name; all of its rows are added"
    elif one := earlier.beginning(source):
        yield (
            f"{source.name}: begins with the rows that ingest {one.number} took in from another place, "
            f"{shown_part(one)}; all of its rows are added. If it is that file, moved, take this back with: "
            f"ddcore ingest --undo {work.intake.number}"
        )


def _is_complete(known: AlreadyIngested | None) -> bool:
    return known is not None and known.part is None
