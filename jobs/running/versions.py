"""What the versions of a run's window change: rows that inputs get and lose, by the ledger, and rows of outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord
from ddcore.io.project.times import Time
from ddcore.jobs.report import Changes
from ddcore.jobs.running.next_run import NextRun

if TYPE_CHECKING:
    from ddcore.planning.plan import Plan

Counts = dict[str, dict[Time, tuple[int, int]]]
"""The inserted and deleted rows of each input or output, by time."""

Version = tuple[Time, Changes, Changes]
"""A time, and what it changes in inputs and in outputs."""


def ingests_of(ledger: Ledger, plan: Plan, window: NextRun) -> Iterator[IngestRecord]:
    """The ingests of the program's inputs that may have a version in the window."""
    ingests = ledger.ingests(since=window.times.lower, until=window.last)
    return (ingest for ingest in ingests if ingest.input in plan.inputs)


def rows_of(ledger: Ledger, plan: Plan, window: NextRun) -> int:
    """An upper bound of the rows in the window: each row has a diff of at least 1, and it may be far more."""
    rows = 0
    for ingest in ingests_of(ledger, plan, window):
        inside = [change for version, change in ingest.counts.items() if version in window.times]
        rows += min(ingest.rows, sum(plus + minus for plus, minus in inside))
    return rows


def versions_of(
    ledger: Ledger, plan: Plan, window: NextRun, outputs: Mapping[str, Mapping[Time, tuple[int, int]]]
) -> list[Version]:
    """The changes of inputs and outputs at each time of the window with changes, and at its last time.

    Inputs are counted by the ledger: no table is read.
    """
    changes: dict[Time, tuple[Changes, Changes]] = {window.last: ({}, {})}
    for ingest in ingests_of(ledger, plan, window):
        for version, change in ingest.counts.items():
            if version in window.times:
                _add(changes.setdefault(version, ({}, {}))[0], ingest.input, change)
    for name, counts in outputs.items():
        for version, change in counts.items():
            _add(changes.setdefault(version, ({}, {}))[1], name, change)
    return [(version, *changes[version]) for version in sorted(changes)]


def counts_of(versions: Sequence[Version]) -> tuple[Counts, Counts]:
    """The changes of :func:`versions_of` by input, and by output: of each the counts by time."""
    inputs, outputs = Counts(), Counts()
    for version, *sides in versions:
        for counts, changes in zip((inputs, outputs), sides, strict=True):
            for name, change in changes.items():
                counts.setdefault(name, {})[version] = change
    return inputs, outputs


def _add(changes: Changes, name: str, change: tuple[int, int]) -> None:
    plus, minus = changes.get(name, (0, 0))
    changes[name] = (plus + change[0], minus + change[1])
