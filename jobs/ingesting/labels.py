"""The labels and instants that an ingest gives its versions: from ``--label``, its sources, and the dates of files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ddcore.base.errors import UsageError
from ddcore.io.ledger.labels import Label, Labels, Names, merged, moment_of, unusable
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.times import Time, span
from ddcore.io.sources.snapshots import Snapshot
from ddcore.io.sources.source import Source
from ddcore.text.wording import listed, meant

_DATES = re.compile(r"(?<![0-9])[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])")


def asked_labels(texts: Sequence[str], dims: Sequence[str]) -> dict[int, str]:
    """What ``--label`` says: a label for a dimension, by its number. With one dimension the text is the label;
    with several it is ``day=2026-11-19``, and ``,`` separates dimensions. UsageError for what cannot be a label.
    """
    asked: dict[int, str] = {}
    for text in texts:
        for part in text.split(",") if "=" in text else [text]:
            name, equals, label = part.partition("=") if "=" in part else (dims[0], "", part)
            name, label = name.strip(), label.strip()
            if name not in dims:
                known = f"there is no time dimension {name!r:.60}; there are: {listed(dims)}"
                raise UsageError(f"--label: {known}", meant(name, dims) or _example(dims))
            if not equals and len(dims) > 1:
                raise UsageError(f"--label: {text!r:.60} names none of the dimensions {listed(dims)}", _example(dims))
            if why := unusable(label):
                raise UsageError(f"--label: {label!r:.60} cannot be a label: {why}", _example(dims))
            if dims.index(name) in asked:
                raise UsageError(f"--label: {name} is labelled twice", "the rows of an ingest have one label at most")
            asked[dims.index(name)] = label
    return asked


def _example(dims: Sequence[str]) -> str:
    return "for example: --label 2026-11-19" if len(dims) == 1 else f"for example: --label {dims[0]}=2026-11-19"


@dataclass(frozen=True)
class Naming:
    """How an ingest names its versions: ``asked`` by ``--label``, for a dimension by its number, ``given`` by the names
    of snapshots, and the ``dates`` of sources. ``times`` are those that its rows go to. ``restates``: it replaces
    history.
    """

    input: str
    dims: tuple[str, ...]
    asked: Mapping[int, str]
    given: Mapping[int, str]
    dates: Mapping[Time, datetime]
    times: Sequence[Time]
    restates: bool

    def labels(self, ledger: Ledger) -> tuple[Labels, list[str]]:
        """The labels for the ingest's record, and notes for the user. UsageError where a label names no single version.

        Reads a footer of each of the ledger's files.
        """
        notes: list[str] = []
        known, ours = ledger.labels(), [dict[int, Label]() for _ in self.dims]
        own = merged(known, [self.input])
        ours[0] |= {coordinate: Label(text) for coordinate, text in self.given.items()}
        for dimension, text in self.asked.items():
            coordinate = self._only(dimension, text)
            ours[dimension][coordinate] = Label(text)
            notes += _shared(VersionNames(self.dims, lambda: known), dimension, coordinate, text)
        self._add_dates(ours, merged(known, {*ledger.inputs()} - {self.input}), own)
        return (tuple(ours) if any(ours) else ()), notes

    def _only(self, dimension: int, text: str) -> int:
        """The coordinate of all rows. UsageError where there are several."""
        values = sorted({time[dimension] for time in self.times})
        if len(values) != 1:
            what = (
                f"{self._word(dimension)}s {span(Time(values[:1]), Time(values[-1:]), [''])}" if values else "no rows"
            )
            raise UsageError(
                f"--label {text}: a label names one {self._word(dimension)}, and the sources have {what}",
                f"ingest each {self._word(dimension)} by itself, or leave --label out",
            )
        return values[0]

    def _word(self, dimension: int) -> str:
        return "version" if len(self.dims) == 1 else self.dims[dimension]

    def _add_dates(self, ours: list[dict[int, Label]], others: Names, own: Names) -> None:
        """Add the dates of sources for versions of which no other input said when they were made.

        Nor may this input have said it, if it is restated: then that stays. Otherwise what it said first counts, and
        this is there when that ingest is undone.
        """
        for time, date in self.dates.items():
            coordinate = time.version
            label = ours[0].get(coordinate, Label())
            said = [names[0].get(coordinate) for names in (others, own if self.restates else []) if names]
            if time in self.times and all(one is None or one.moment is None for one in said):
                ours[0][coordinate] = Label(label.text, date)


def _shared(names: VersionNames, dimension: int, coordinate: int, text: str) -> Iterator[str]:
    """A note where a label names another version already. A date may do so: it means the last version of the day."""
    others = [labelled for labelled in names.labels(dimension).get(text, ()) if labelled != coordinate]
    if others and moment_of(text) is None:
        versions = names.listed(sorted([*others, coordinate]), dimension)
        yield f"{text!r} is now the label of {versions}: commands that are given it will refuse it"


def source_dates(sources: Iterable[Source], times: Mapping[str, Iterable[Time]]) -> dict[Time, datetime]:
    """When the last version of each source was made at the latest: the date of the file, or of the table's commit; of
    several sources the latest. ``times``: those of each source's rows, by its name; none with several dimensions.
    """
    dates: dict[Time, datetime] = {}
    for source in sources:
        last = max((time for time in times.get(source.name, ()) if len(time) == 1), default=None)
        if last is not None and (date := source.date()) is not None:
            dates[last] = max(date, dates.get(last, date))
    return dates


def snapshot_names(snapshots: Iterable[Snapshot], times: Iterable[Time]) -> tuple[dict[Time, datetime], dict[int, str]]:
    """The dates of snapshots, and their labels by version: a date that is in the name of the file or folder; none with
    several dimensions.
    """
    dates: dict[Time, datetime] = {}
    labels: dict[int, str] = {}
    for snapshot, time in zip(snapshots, times, strict=True):
        if len(time) == 1:
            found = _DATES.findall(os.path.basename(snapshot.path))
            if len(found) == 1 and not unusable(found[0]):
                labels[time.version] = found[0]
            if (date := snapshot.date()) is not None:
                dates[time] = date
    return dates, labels


def not_set(asked: Mapping[int, str], names: VersionNames, first: Time | None, last: Time | None) -> list[str]:
    """Notes on labels that were asked for, where nothing was ingested, and that the versions do not have."""
    ends = [time for time in (first, last) if time is not None]
    missing = [
        text
        for dimension, text in asked.items()
        if text not in names.labels(dimension)
        or any(text not in names.name(end[dimension], dimension).labels for end in ends)
    ]
    return [f"the label {text!r} was not set, because nothing was ingested" for text in missing]
