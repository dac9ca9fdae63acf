"""Snapshots of an ingest: which of them are new, and at which versions they are taken in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ddcore.base.errors import DataError, LateUpdate, UsageError
from ddcore.base.lattice import le
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.digests import Digest
from ddcore.io.project.frontiers import is_open
from ddcore.io.project.times import LARGEST_TIME, Time, named
from ddcore.io.project.times import shown as spelled_time
from ddcore.io.sources.intake import Part, fitted
from ddcore.io.sources.layouts import Layout, Rules
from ddcore.io.sources.snapshots import Series, Snapshot, empty
from ddcore.io.sources.source import Source
from ddcore.jobs.ingesting.labels import snapshot_names
from ddcore.jobs.ingesting.work import Reader, Work

_NAMED = 3


Parts = tuple[tuple[Source, Layout], ...]


@dataclass(eq=False, kw_only=True)
class SnapshotReader(Reader):
    """Reads the snapshots that are ``new``, at ``times``, as what each changes in the content before it."""

    snapshots: Sequence[Snapshot]
    checks_counts: bool = False
    new: Mapping[Snapshot, Parts] = field(default_factory=dict)
    times: Sequence[Time] = ()

    def look(self, ledger: Callable[[], Ledger]) -> None:
        """Find the snapshots that the input has not taken in; for a restatement all of them.

        A snapshot is known if the last ingest from its place took in the same content. DataError for a new one before a
        known one, because the versions of snapshots follow each other, and for one without rows.
        """
        snapshots = self.snapshots
        positions = self.positions_of(snapshots, ledger())
        known = [
            position is not None and snapshot.is_at(position[1])
            for snapshot, position in zip(snapshots, positions, strict=True)
        ]
        last = max((number for number, is_known in enumerate(known) if is_known), default=-1)
        for number, is_known in enumerate(known[: last + 1]):
            if not is_known:
                before, position = positions[number], positions[last]
                assert position is not None
                what = "is new" if before is None else "has changed since it was taken in"
                raise DataError(
                    f"{snapshots[number].name}: {what}, and comes before {snapshots[last].name}, which ingest "
                    f"{position[0]} took in",
                    "snapshots follow each other: name only those after it; or restate the history from its version on "
                    "with all snapshots from there: --restate V",
                )
        self.new = {
            snapshot: self.new.get(snapshot) or _fitted(snapshot, self.rules)
            for snapshot, is_known in zip(snapshots, known, strict=True)
            if not is_known
        }
        self.layouts, self.is_new = [part for parts in self.new.values() for part in parts], bool(self.new)
        self.ingest = max((p[0] for p, is_known in zip(positions, known, strict=True) if is_known and p), default=0)
        are, out = ("snapshot was", "is") if sum(known) == 1 else ("snapshots were", "are")
        self.notes = [f"{sum(known)} {are} taken in before and {out} left out"] if any(known) else []

    def read(self, work: Work) -> Part:
        """Compare the new ones, each with the one before it."""
        restated, dims = work.restated(), self.rules.dims
        self.times = times_of(work.ledger, self.name, len(self.new), self.rules.time, restated=restated, dims=dims)
        series = self._series(work, restated)
        layout = Layout(series.name, {name: name for name in work.rules.columns}, {}, False, ())
        part = work.take([(series, layout)], [*self.new])
        part.counts = {**dict.fromkeys(self.times, (0, 0)), **part.counts}
        return part

    def _series(self, work: Work, restated: Time | None) -> Series:
        """The new ones as a source of updates: against the content of the log, with ``restated`` only that before."""
        until = self.times[0] if restated is None else Time([restated.version - 1])
        first, *others = self.new
        name = (
            ", ".join(source.name for source in self.new)
            if len(others) < _NAMED
            else f"{first.name} .. {others[-1].name}"
        )
        pairs = tuple(zip(self.times, self.new.values(), strict=True))
        return Series(name, first.path, log=work.log, state=work.base, until=until, rules=self.rules, snapshots=pairs)

    def names(self, part: Part) -> tuple[Mapping[Time, datetime], Mapping[int, str]]:
        """Their dates, and those in the names of their files."""
        del part
        return snapshot_names(list(self.new), self.times)

    def digests(self, part: Part) -> Sequence[Digest]:
        """Those of what each changes."""
        digests = next(iter(part.digests.values()), {})
        return [digests.get(time, Digest()) for time in self.times]


def _fitted(snapshot: Snapshot, rules: Rules) -> Parts:
    if all(part.row_count() == 0 for part in snapshot.parts):
        raise empty(snapshot.name)
    return tuple(fitted(snapshot.parts, rules))


def next_version(ledger: Ledger, name: str) -> Time:
    """The version after all that the input has, and that is open for it. With one time dimension."""
    latest, upper = ledger.latest_ingested([name]), ledger.open_from(name)
    after = 0 if latest is None else latest.version + 1
    return Time([max(after, 0 if upper is None else upper[0][0])])


def times_of(
    ledger: Ledger, name: str, many: int, version: Time | None, *, restated: Time | None, dims: Sequence[str]
) -> list[Time]:
    """The times of so many new snapshots: from ``version`` on, or from the next one. UsageError, LateUpdate."""
    if len(dims) > 1 and (version is None or many > 1 or restated is not None):
        raise UsageError(
            f"--snapshot with the time dimensions {', '.join(dims)}: one snapshot at a time, and without --restate",
            f"say at which time: --version {dims[0]}=7,...",
        )
    first = restated or version or next_version(ledger, name)
    if many > 1 and first[0] + many - 1 > LARGEST_TIME:
        raise UsageError(f"--version {first}: {many} snapshots go beyond the last version, {LARGEST_TIME}", "")
    if restated is None:
        _refuse_past(ledger, name, first, dims)
    return [first] if len(dims) > 1 else [Time([first[0] + number]) for number in range(many)]


def _refuse_past(ledger: Ledger, name: str, first: Time, dims: Sequence[str]) -> None:
    """Refuse a snapshot at or before times that the input has, or that are closed for it."""
    latest, upper = ledger.latest_ingested([name]), ledger.open_from(name)
    option = f"--version {spelled_time(first, dims)}"
    if latest is not None and (not le(latest, first) or first == latest):
        raise UsageError(
            f"{option}: the input {name} has rows up to {named(latest, dims)}, and a snapshot comes after all of them",
            "leave --version out for the next one; or replace the history from there on with: --restate V",
        )
    if upper is not None and not is_open(first, upper):
        raise LateUpdate(
            f"{option}: {named(first, dims)} is closed for the input {name}: the next open one is "
            f"{named(upper[0], dims)}",
            "leave --version out for the next one",
        )
