"""The checks of a source as a whole: late rows, versions far away, counts, keys, and what a restatement replaces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import polars as pl

from ddcore.base.errors import DataError, LateUpdate, UnknownRetraction, UsageError
from ddcore.base.lattice import Frontier, is_beyond, le
from ddcore.io.ledger.intent import check_restated
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.balance import Balance, repeated_key, repeated_key_error
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.restatement import Changes, Replacement, closed_changes, replace_from
from ddcore.io.logs.updates import DIFF, RowCount
from ddcore.io.project.frontiers import is_open, shown_frontier
from ddcore.io.project.ingest_settings import IngestSettings
from ddcore.io.project.times import Time, least, named
from ddcore.io.project.times import shown as spelled_time
from ddcore.io.sources.intake import Intake, Part, frames_of, shown
from ddcore.jobs.ingesting.engines import Layouts

Listener = Callable[..., None]  # listener(stage, done, total, note), all but the first optional

# A version this many times the one before it is far beyond it, unless it is below _SMALL.
_FAR, _SMALL = 1000, 1_000_000


class SourceChecks:
    """What the log, the ledger and the settings say about the updates of one ingest.

    Afterwards: ``replacement`` and ``changes``, if history is restated; ``restates``, the least closed times that
    change; ``repeated``, how many rows now count more than once where none did before, and the first. ``repeats``:
    whether rows did before. ``plus``: at least the sum of all insertions before. ``key``: the
    columns of the input's key.
    """

    def __init__(
        self, ledger: Ledger, log: ChangeLog, settings: IngestSettings, tell: Listener, *, key: tuple[str, ...],
        repeats: bool, plus: int,
    ) -> None:  # fmt: skip
        self.ledger, self.log, self.settings, self.tell, self.key = ledger, log, settings, tell, key
        self.name, self.dims = log.folder.name, log.dims
        self.base, self.upper = ledger.input_table(self.name), ledger.open_from(self.name)
        self.repeats, self.plus = repeats, plus
        self.replacement: Replacement | None = None
        self.changes: Changes | None = None
        self.restates: Frontier = ()
        self.repeated: tuple[int, RowCount] | None = None

    def run(
        self, part: Part, layouts: Layouts, intake: Intake, *, checks_counts: bool = True, has_key: tuple[str, ...] = ()
    ) -> None:
        """Raise the error of the source as a whole, if any; note whether rows now count more than once.

        ``checks_counts``: the counts of rows need a check, as what a snapshot changes does not. ``has_key``: columns
        in which no two rows are equal by construction.
        """
        if part.first_late is not None and self.settings.late == "refuse":
            time, where, row = part.first_late
            following = "version" if len(self.dims) == 1 else "time"
            raise LateUpdate(
                f"{part.late} of {part.rows} rows are late: {intake.closed}; the first is "
                f"{row} at {named(time, self.dims)} in {where}",
                f"leave them out, take them in at the next open {following} with: --late move; or at their own, and "
                "fold again from there, with: --late restate",
            )
        if not self.settings.allow_gap:
            self._refuse_gap(part)
        self._find_restated(part)
        if checks_counts:
            self._check_counts(part, layouts, intake)
        if self.key and set(self.key) != set(has_key):
            self._check_key(part)

    def _check_counts(self, part: Part, layouts: Layouts, intake: Intake) -> None:
        """Raise the error of a row that would have a count below 0 or beyond int64; note rows that now repeat."""
        balance, finds_repeats, large = self._balance(part)
        if not (part.retracts or finds_repeats or large):
            return
        self.tell("checking counts")
        counts = balance.counts()
        if short := balance.below_zero(counts):
            raise self._unknown_retraction(short, layouts, intake)
        if beyond := balance.beyond_int64(counts):
            raise DataError(
                f"{', '.join(source.name for source, _ in layouts)}: {shown(beyond.row)} would have the count "
                f"{beyond.count} as of {named(beyond.version, self.dims)}, beyond int64",
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
        rows = repeated_key(self.log, self.key, [*kept, *rest, *part.files], pl.concat(touched))
        if rows:
            raise repeated_key_error(", ".join(part.digests), self.name, self.key, rows, self.dims)

    def replace(self, part: Part, number: int) -> None:
        """Find what the restatement replaces, and write what it leaves of files that it removes.

        UsageError, DataError.
        """
        dims = self.dims
        start = least(part.counts) if isinstance(self.settings.restate, str) else self.settings.restate
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
        if since and not le(start, first) and le(start, since[0]):
            raise UsageError(
                f"{option}: the history of {self.name} was compacted: rows of earlier versions lie at "
                f"{named(since[0], dims)}",
                f"restate from a later version on, or the whole history, with sources from {named(first, dims)} on: "
                "--restate first",
            )
        self.tell("reading what is replaced")
        stem = f"ingest-{number:08d}"
        self.replacement = replace_from(self.log, self.base, start, stem)
        if not self.replacement.rows:
            raise UsageError(
                f"{option}: the input {self.name} has no rows from there on; it has rows up to {named(latest, dims)}",
                f"leave --restate out: later {'versions' if len(dims) == 1 else 'times'} are ingested as they are",
            )
        self.changes = self.replacement.changes(part.files)

    def _refuse_before(self, start: Time, part: Part, option: str) -> None:
        """Refuse sources with rows outside of the history that they restate."""
        corner = [start]
        for where, of in part.digests.items():
            before = [time for time in sorted(of) if not is_open(time, corner)]
            if before:
                first = least(before)
                raise DataError(
                    f"{where}: has rows at {named(before[0], self.dims)}, but {option} replaces the history from "
                    f"{named(start, self.dims)} on",
                    f"leave these rows out, or restate from there on: --restate {spelled_time(first, self.dims)}",
                )

    def _find_restated(self, part: Part) -> None:
        """Note the least closed times whose contents change. LateUpdate while an unfinished run has read them."""
        if self.settings.late == "restate" and part.late:
            added, since = self.log.scan_files(part.files), self.ledger.since()
            self.changes = Changes(self.log, added.clear(), added)
            if since and not self.log.collect(added.select(is_beyond(self.dims, since).all())).item():
                raise LateUpdate(
                    f"rows at closed times: the history of {self.name} was compacted; it is kept at or beyond "
                    f"{shown_frontier(since, self.dims)} only",
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
        for number, dim in enumerate(self.dims):
            last = None if latest is None else latest[number]
            values = {time[number] for time in part.counts}
            new = sorted(value for value in values if last is None or value > last)
            for before, value in pairwise([*([] if last is None else [last]), *new]):
                if before > 0 and value > _SMALL and value // _FAR >= before:
                    raise self._far(part, number, "version" if len(self.dims) == 1 else dim, before, value)

    def _far(self, part: Part, dimension: int, dim: str, before: int, value: int) -> DataError:
        sources = (name for name, of in part.digests.items() if any(t[dimension] == value for t in of))
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
        uncovers = replaced is not None and len(self.dims) > 1
        if replaced is not None and uncovers:
            balance.watch(replaced.removed, (pl.col(DIFF) > 0) & replaced.beyond)
        # Each file has each row once per version: if they are all that there is, of one version, and share none, no row
        # repeats.
        alone = not (live or rest) and len(part.counts) == 1 and part.most <= 1
        alone = alone and (len(part.files) == 1 or part.distinct)
        tuning = self.log.tuning
        near = part.retracts or stored <= max(tuning.repeating_rows, tuning.repeating_ratio * rows)
        finds_repeats = not alone and near and inserted > 0 and not self.repeats
        if finds_repeats:
            balance.watch_inserted(part.files, rows)
        total = inserted + self.plus
        if total >= 2**63:
            balance.watch_large(stored + rows)
        return balance, finds_repeats, uncovers or total >= 2**63

    def _unknown_retraction(self, short: RowCount, layouts: Layouts, intake: Intake) -> UnknownRetraction:
        where, version = self._culprit(short, layouts, intake)
        later = "" if version == short.version else f" as of {named(short.version, self.dims)}"
        return UnknownRetraction(
            f"{where}: retracts {shown(short.row)} at {named(version, self.dims)}, and the row does not exist: "
            f"its count would be {short.count}{later}",
            "the input does not hold what the table held; to go on from what the table holds now: --snapshot"
            if any(source.cancels for source, _ in layouts)
            else "nothing was ingested; insert the row first, or take the retraction out of the source",
        )

    def _culprit(self, short: RowCount, layouts: Layouts, intake: Intake) -> tuple[str, Time]:
        """The source with the row's last retraction up to that version, and that retraction's version in the log."""
        best: tuple[str, Time] | None = None
        dims, counts = self.dims, self.log.counts_at(short.version) != 0
        is_row = pl.all_horizontal(
            pl.col(name).eq_missing(pl.lit(short.row[name], dtype=kind.polars))
            for name, kind in self.log.schema.items()
        )
        try:
            for layout, _, frame in frames_of(layouts):
                updates = intake.landed(layout, frame)
                own = updates.filter(is_row, pl.col(DIFF) < 0, counts).select(dims).sort(dims)
                last = Time(own.row(-1)) if len(own) else None
                if last is not None and (best is None or last > best[1]):
                    best = layout.where, last
        except DataError:
            if len(layouts) > 1:  # a Delta table that only Spark reads
                return ", ".join(source.name for source, _ in layouts), short.version
        return best or (layouts[0][0].name, short.version)
