"""The window of a run: which values ``--from-version``, ``--to-version`` and ``--to`` may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.io.ledger.readable import time_named
from ddcore.io.project.times import Time, example

if TYPE_CHECKING:
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
    from ddcore.jobs.running.next_run import check_window, latest_of

    ledger = ledger_of(project)
    latest, names = latest_of(ledger, ledger.inputs()), ledger.version_names(project.dims)
    if latest is None:
        raise UsageError("no version was ingested yet", "begin with: ddcore ingest INPUT SOURCE")
    option, text = ("--to-version", last) if to is None else ("--to", to)
    start = None if first is None else time_named(first, latest, "--from-version", names, begins=True, nearest=True)
    end = None if text is None else time_named(text, latest, option, names, nearest=or_before)
    if end is not None and or_before and len(project.dims) == 1:
        end = min(end, latest)
    check_window(ledger, project.dims, start, end, option=option, inputs=ledger.inputs())
    return start, end
