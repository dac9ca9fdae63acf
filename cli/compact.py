"""``dd compact``: merges files, advances the logs if asked, and deletes what is no longer needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.cli.completion import version_names
from ddcore.cli.options import Call, command, flag, option
from ddcore.cli.output import Output
from ddcore.cli.text import count
from ddcore.io.ledger.readable import time_named
from ddcore.io.project.frontiers import shown_frontier
from ddcore.io.project.times import Time

if TYPE_CHECKING:
    from ddcore.io.project.project import Project
    from ddcore.jobs.compact import CompactReport


@command("json quiet project")
def compact(
    call: Call,
    *,
    since: str | None = option(
        "V",
        "The first version that can still be read afterwards: a folded one, latest, an offset: -100, a label, "
        "or a date, whose first version it is. With one time dimension only. Default: all that can be read now.",
        complete=version_names,
    ),
    dry_run: bool = flag("Print what would be done; write nothing."),
) -> int:
    """Merge the files of all tables, and delete what neither a table nor a run that can be continued needs.

    Runs do this by themselves where a table has many files. With --since the history before a version is given up:
    outputs and inputs keep their contents from that version on, and earlier versions can no longer be read.
    """
    out = call.output
    opened = call.opened()
    from ddcore.cli.notices import notices
    from ddcore.jobs import compact as job

    with out.claimed(), notices(out):
        report = job.compact(opened, since=_time(opened, since), dry_run=dry_run)
    _tell(out, report, dry_run)
    out.result("compact", **job.result(report, dry_run=dry_run))
    return 0


def _time(project: Project, text: str | None) -> Time | None:
    """The time that --since names."""
    if text is None:
        return None
    from ddcore.io.reading.folded import ledger_of
    from ddcore.io.reading.published import finished_run

    ledger = ledger_of(project)
    names = ledger.version_names(project.dims)
    return time_named(text, finished_run(ledger).last, "--since", names, begins=True, nearest=True)


def _tell(out: Output, report: CompactReport, dry_run: bool) -> None:
    if report.nothing_new:
        out.say("nothing to compact")
        return
    for name, (before, after) in report.tables.items():
        became = "" if after is None else f" -> {count(after.files)} files, {count(after.rows)} rows"
        out.say(f"{name}: {count(before.files)} files, {count(before.rows)} rows{became}")
    what = "would be deleted" if dry_run else "deleted"
    out.say(f"{count(report.deleted)} files with {count(report.freed)} bytes {what}")
    if report.since:
        since = report.since[0][0] if len(report.dims) == 1 else shown_frontier(report.since, report.dims)
        out.say(f"since={since}")
