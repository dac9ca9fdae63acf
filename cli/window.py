"""The window of a run: which values ``--from-version``, ``--to-version`` and ``--to`` may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.io.ledger.readable import version_number
from ddcore.io.project.times import Time, example, greatest, shown

if TYPE_CHECKING:
    from ddcore.io.ledger.ledger import Ledger
    from ddcore.io.ledger.version_names import VersionNames
    from ddcore.io.project.project import Project


def window(
    project: Project, first: str | None, last: str | None, to: str | None = None, *, or_before: bool = False
) -> tuple[Time | None, Time | None]:
    """The first and the last version to fold, both inclusive; None leaves an end to the ledger.

    From the first version on everything is folded again; it may also be the next unfolded version, but no version may
    be left out. ``to`` is the last one too; with several time dimensions a time. Each may be a name. ``or_before``:
    where no version has that end, the newest one before it is. UsageError for anything else, and for a version that was
    not ingested.
    """
    if or_before and last is None and to is None:
        raise UsageError("--or-before: only with --to-version or --to", "say where the run ends, or leave it out")
    if first is None and last is None and to is None:
        return None, None
    if last is not None and to is not None:
        raise UsageError(f"--to-version {last} and --to {to} say the same", "leave one of the two out")
    if last is not None and len(project.dims) > 1:
        raise UsageError(
            f"--to-version {last}: dd.toml has the time dimensions {', '.join(project.dims)}",
            f"say: --to {example(project.dims)}",
        )
    from ddcore.io.reading.folded import ledger_of
    from ddcore.jobs.running.next_run import latest_of

    ledger = ledger_of(project)
    latest, names = latest_of(ledger), ledger.version_names(project.dims)
    if latest is None:
        raise UsageError("no version was ingested yet", "begin with: ddcore ingest INPUT SOURCE")
    if len(project.dims) == 1:
        option, end = ("--to-version", last) if to is None else ("--to", to)
        numbers = _versions(ledger, latest.version, names, first, (option, end), or_before=or_before)
        begin, until = (None if number is None else Time([number]) for number in numbers)
        return begin, until
    start = None if first is None else names.time(first, "--from-version", begins=True, nearest=True)
    return start, None if to is None else _time(to, names, latest, or_before=or_before)


def _time(text: str, names: VersionNames, latest: Time, *, or_before: bool) -> Time:
    dims = names.dims
    end = latest if text.strip() == "latest" else names.time(text, "--to", nearest=or_before)
    if greatest([end, latest]) != latest:
        raise UsageError(
            f"--to: {shown(end, dims)} was not ingested: the greatest coordinates are {shown(latest, dims)}",
            "say --to latest",
        )
    return end


def _versions(
    ledger: Ledger,
    latest: int,
    names: VersionNames,
    first: str | None,
    last: tuple[str, str | None],
    *,
    or_before: bool,
) -> tuple[int | None, int | None]:
    """The first and the last version to fold."""
    option, text = last
    start = None if first is None else version_number(first, latest, "--from-version", names, begins=True, nearest=True)
    end = None if text is None else version_number(text, latest, option, names, nearest=or_before)
    if end is not None and end > latest and not or_before:
        last_one = names.shown(Time([latest]))
        raise UsageError(
            f"{option}: version {end} was not ingested: the last one is {last_one}", f"say {option} latest"
        )
    end = None if end is None else min(end, latest)
    if start is not None and end is not None and start > end:
        raise UsageError(f"--from-version {start} is after {option} {end}", "both ends are inclusive")
    if start is not None:
        upper = ledger.upper()
        folded = -1 if upper is None else upper[0][0] - 1
        if start > folded:
            waiting = [time[0] for record in ledger.waiting() for time in record.counts]
            _check_next(start, folded, waiting)
            start = None  # where the ledger begins anyway
    return start, end


def _check_next(start: int, folded: int, ingested: list[int]) -> None:
    following = min((version for version in ingested if version > folded), default=folded + 1)
    if start > following and following not in ingested:
        last = (
            "nothing was ingested yet" if folded < 0 else f"version {folded} is folded, and no later one was ingested"
        )
        raise UsageError(
            f"--from-version {start}: {last}", "name a version to fold again from, or ingest this one first"
        )
    if start > following:
        raise UsageError(
            f"--from-version {start} would leave out version {following}, which is not folded",
            f"say --from-version {following}, or leave it to the ledger: ddcore run",
        )
