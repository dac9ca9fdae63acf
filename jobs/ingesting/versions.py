"""What ``--version`` says: the time of all rows, each coordinate by a number, a label, or ``next``."""

from __future__ import annotations

from collections.abc import Sequence

from ddcore.base.errors import UsageError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.frontiers import corners, is_open
from ddcore.io.project.ingest_settings import FIRST, Version
from ddcore.io.project.project import Project
from ddcore.io.project.times import LARGEST_TIME, Time, parse
from ddcore.io.storage.store import is_folder

NEXT = "next"  # the version after all that the input has; with several dimensions, the coordinate after all


def version_of(version: Version | None, project: Project) -> Version | None:
    """What ``--version`` says: a time, ``next``, or with several dimensions coordinates of which some are ``next``.

    A name is a label that a version has: a date means no version near it, because rows are written there. UsageError.
    """
    if not isinstance(version, str) or version.strip() == NEXT:
        return NEXT if isinstance(version, str) else version
    names = VersionNames(project.dims, lambda: found_ledger(project).labels())
    new = set[int]()

    def by_name(part: str, dimension: int) -> int:
        if part != NEXT:
            return names.labelled(part, "--version", dimension)
        new.add(dimension)
        return 0

    time = parse(version, project.dims, "--version", by_name)
    if not new:
        return time
    if len(time) == 1:
        return NEXT
    return tuple(NEXT if number in new else coordinate for number, coordinate in enumerate(time))


def start_of(start: Time | str | None, project: Project) -> Time | str | None:
    """What ``--restate`` says, by numbers or names: a time, or ``first``. UsageError."""
    if not isinstance(start, str) or start == FIRST:
        return start
    names = VersionNames(project.dims, lambda: Ledger.load(project.tables).labels())
    return names.time(start, "--restate", begins=True)


def found_ledger(project: Project) -> Ledger:
    """The ledger as it is now, without its lock; an empty one where there is no warehouse yet."""
    warehouse = project.tables
    return Ledger.load(warehouse) if is_folder(warehouse.ledger) else Ledger(warehouse)


def following(ledger: Ledger, name: str, version: Sequence[int | str]) -> Time:
    """The coordinates of a time of several dimensions, where ``next`` is the one after all that the input has in that
    dimension, and after all that is closed where that time is closed. UsageError where there is none.
    """
    latest, upper = ledger.latest_ingested([name]), ledger.open_from(name)
    after = [0] * len(version) if latest is None else [coordinate + 1 for coordinate in latest]
    new = [number for number, coordinate in enumerate(version) if isinstance(coordinate, str)]
    time = Time(
        after[number] if isinstance(coordinate, str) else coordinate for number, coordinate in enumerate(version)
    )
    if upper is not None and not is_open(time, upper):
        tops = corners(upper)
        time = Time(
            max(coordinate, *(top[number] + 1 for top in tops)) if number in new else coordinate
            for number, coordinate in enumerate(time)
        )
    if max(time) > LARGEST_TIME:
        raise UsageError(f"--version: no coordinate comes after {LARGEST_TIME}", "say a number")
    return time
