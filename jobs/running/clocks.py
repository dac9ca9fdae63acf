"""One clock for all inputs: a run closes versions for every input of its program, also for one whose rows end before.

That hurts where inputs are counted in different ways, such as one by the commits of a table that is followed, and
others by days: then the next day of the others is late. Where versions are columns of the sources, they say themselves
which clock they mean, and an input without rows at the last version just did not change there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.frontiers import Window
from ddcore.io.project.times import Time
from ddcore.io.sources.rows_taken import is_followed
from ddcore.text.wording import listed

Ends = dict[str, int]


def ends_apart(ledger: Ledger, ingests: Iterable[IngestRecord], window: Window) -> tuple[Ends, list[str]]:
    """The last versions in a window of inputs that end apart, and which of them are counted by commits. Empty where
    all inputs that count end together.

    An input without rows in the window does not count: it is not delivered with the others. Beside one that was counted
    by commits every other counts. Else, only where an input is folded for the first time, those count that have rows at
    several versions: an input of one version is most often a reference that was loaded once.
    """
    ends, counted = Ends(), list[str]()
    for ingest in ingests:
        inside = [time[0] for time in ingest.counts if time in window]
        if inside:
            ends[ingest.input] = max(ends.get(ingest.input, 0), *inside)
            if len(inside) > 1 and any(is_followed(source.position) for source in ingest.sources):
                counted.append(ingest.input)
    if not counted:
        spans = {name: (ledger.first_ingested([name]), ledger.latest_ingested([name])) for name in ends}
        ends = {name: last for name, last in ends.items() if spans[name][0] != spans[name][1]}
        if not any(first is not None and first in window for first, _ in spans.values()):
            ends = {}
    return (ends, list(dict.fromkeys(counted))) if len({*ends.values()}) > 1 else ({}, [])


def shown(ends: Ends, counted: Sequence[str], names: VersionNames) -> str:
    """One sentence: where each input ends, what follows, and the way on."""
    by_version: dict[int, list[str]] = {}
    for name in sorted(ends):
        by_version.setdefault(ends[name], []).append(name)
    last = max(by_version)
    where = ", ".join(f"{listed(inputs)} at {names.shown(Time([at]))}" for at, inputs in sorted(by_version.items()))
    way = "give each delivery one version, the same for all inputs: --version, --label"
    if counted:
        way = f"give the commits of a delivery one version: ddcore ingest {counted[0]} TABLE --feed --version next"
    return (
        f"inputs end at different versions: {where}; a run closes versions for all inputs, so rows that come later at "
        f"versions up to {names.shown(Time([last]))} are late; {way}"
    )
