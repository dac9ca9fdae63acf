"""Snapshots of an ingest: which of them are new, and at which versions they are taken in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddcore.base.errors import DataError, LateUpdate, UsageError
from ddcore.io.delta.tables import TableState
from ddcore.io.ledger.ingest_index import IngestIndex
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.times import Time, coordinates, is_open, named, time_of
from ddcore.io.project.times import shown as spelled_time
from ddcore.io.sources.intake import fitted
from ddcore.io.sources.positions import last_positions
from ddcore.io.sources.row_checks import LARGEST_TIME, Layout, Rules
from ddcore.io.sources.snapshots import Series, Snapshot, empty
from ddcore.io.sources.source import Source

__all__ = ["Snapshots", "new_snapshots", "next_version"]

_NAMED = 3


Parts = tuple[tuple[Source, Layout], ...]


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of a command: the layouts of the parts of each that is ``new``, and how many are ``known``, the
    last of them taken in by ``ingest``.
    """

    new: Mapping[Snapshot, Parts]
    known: int
    ingest: int

    @property
    def parts(self) -> list[tuple[Source, Layout]]:
        """The parts of all new ones."""
        return [part for parts in self.new.values() for part in parts]

    def series(
        self, log: ChangeLog, state: TableState | None, rules: Rules, times: Sequence[Time], restated: Time | None
    ) -> Series:
        """The new ones as a source of updates of ``log``, at these times: against its content at ``state``, with
        ``restated`` only that before.
        """
        until = coordinates(times[0]) if restated is None else (coordinates(restated)[0] - 1,)
        first, *others = self.new
        name = (
            ", ".join(each.name for each in self.new) if len(others) < _NAMED else f"{first.name} .. {others[-1].name}"
        )
        each = tuple((coordinates(time), parts) for time, parts in zip(times, self.new.values(), strict=True))
        return Series(name, first.path, log=log, state=state, until=until, rules=rules, snapshots=each)


def new_snapshots(
    ledger: Ledger | None, name: str, snapshots: Sequence[Snapshot], rules: Rules, root: Path, *, again: bool,
    fits: Mapping[Snapshot, Parts] | None = None,
) -> Snapshots:  # fmt: skip
    """The snapshots that the input ``name`` has not taken in; with ``again`` all of them, for a restatement.

    A snapshot is known if the last ingest from its place took in the same content. ``fits``: layouts from before.
    DataError for a new one before a known one, because the versions of snapshots follow each other, and for one without
    rows.
    """
    index = IngestIndex() if ledger is None else ledger.ingest_index(name)
    places = [None] * len(snapshots) if ledger is None or again else last_positions(ledger, index, snapshots, root)
    known = [place is not None and each.is_at(place[1]) for each, place in zip(snapshots, places, strict=True)]
    last = max((number for number, is_known in enumerate(known) if is_known), default=-1)
    for number, is_known in enumerate(known[: last + 1]):
        if not is_known:
            before, place = places[number], places[last]
            assert place is not None
            what = "is new" if before is None else "has changed since it was taken in"
            raise DataError(
                f"{snapshots[number].name}: {what}, and comes before {snapshots[last].name}, which ingest {place[0]} "
                "took in",
                "snapshots follow each other: name only those after it; or restate the history from its version on "
                "with all snapshots from there: --restate V",
            )
    fits = fits or {}
    new = {
        each: fits.get(each) or _fitted(each, rules)
        for each, is_known in zip(snapshots, known, strict=True)
        if not is_known
    }
    ingests = [place[0] for place, is_known in zip(places, known, strict=True) if is_known and place is not None]
    return Snapshots(new, sum(known), max(ingests, default=0))


def _fitted(snapshot: Snapshot, rules: Rules) -> Parts:
    if all(part.row_count() == 0 for part in snapshot.parts):
        raise empty(snapshot.name)
    return tuple(fitted(snapshot.parts, rules))


def next_version(ledger: Ledger, name: str) -> int:
    """The version after all that the input has, and that is open for it. With one time dimension."""
    latest, upper = ledger.latest_ingested([name]), ledger.open_from(name)
    after = 0 if latest is None else coordinates(latest)[0] + 1
    return max(after, 0 if upper is None else upper[0][0])


def times_of(
    ledger: Ledger, name: str, many: int, version: Time | None, *, restated: Time | None, dims: Sequence[str]
) -> list[Time]:
    """The times of so many new snapshots: from ``version`` on, or from the next one. UsageError, LateUpdate."""
    if len(dims) > 1 and (version is None or many > 1 or restated is not None):
        raise UsageError(
            f"--snapshot with the time dimensions {', '.join(dims)}: one snapshot at a time, and without --restate",
            f"say at which time: --version {dims[0]}=7,...",
        )
    first = version if restated is None else restated
    if first is None:
        first = next_version(ledger, name)
    if many > 1 and coordinates(first)[0] + many - 1 > LARGEST_TIME:
        raise UsageError(f"--version {first}: {many} snapshots go beyond the last version, {LARGEST_TIME}", "")
    if restated is None:
        _refuse_past(ledger, name, first, dims)
    return [first] if len(dims) > 1 else [coordinates(first)[0] + number for number in range(many)]


def _refuse_past(ledger: Ledger, name: str, first: Time, dims: Sequence[str]) -> None:
    """Refuse a snapshot at or before times that the input has, or that are closed for it."""
    latest, upper = ledger.latest_ingested([name]), ledger.open_from(name)
    option = f"--version {spelled_time(first, dims)}"
    if latest is not None and (
        not all(a >= b for a, b in zip(coordinates(first), coordinates(latest), strict=True)) or first == latest
    ):
        raise UsageError(
            f"{option}: the input {name} has rows up to {named(latest, dims)}, and a snapshot comes after all of them",
            "leave --version out for the next one; or replace the history from there on with: --restate V",
        )
    if upper is not None and not is_open(first, upper):
        raise LateUpdate(
            f"{option}: {named(first, dims)} is closed for the input {name}: the next open one is "
            f"{named(time_of(upper[0]), dims)}",
            "leave --version out for the next one",
        )
