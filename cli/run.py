"""``dd run``: folds every version that is not folded yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcore.base.errors import Mismatch, UsageError
from ddcore.cli.completion import version_names
from ddcore.cli.options import MEMORY, OR_BEFORE, SELECT, SKIP_CODE, VERIFY_EVERY, Call, command, flag, option
from ddcore.cli.output import Output, count
from ddcore.cli.window import window
from ddcore.io.project.frontiers import corners
from ddcore.io.project.times import json_time
from ddcore.jobs.report import Changes, changes_by_name, result, totals

if TYPE_CHECKING:
    from ddcore.io.project.project import Project
    from ddcore.jobs.report import RunReport

_ROWS = 20  # that are shown of those that differ; verify shows all
ON_TERMINAL = 20  # more versions than these are summed up in one line, after a progress bar


@command("engine master parallelism json quiet project")
def run(
    call: Call,
    *,
    from_version: str | None = option(
        "N",
        "Fold everything again from this version on, inclusive: a number, a label, or a date, whose first "
        "version it is. With several dimensions: a time.",
        complete=version_names,
    ),
    to_version: str | None = option(
        "N",
        "The last version to fold, inclusive: a number, a label, or a date. Default: latest.",
        complete=version_names,
    ),
    to: str | None = option(
        "T",
        "The last time to fold, inclusive, of any number of dimensions: day=7,revision=1. Default: the "
        "greatest coordinates that were ingested.",
    ),
    or_before: bool = OR_BEFORE,
    full_refresh: bool = flag("Fold everything again, from nothing; it also repairs damaged state."),
    corrections: str | None = option(
        "rewrite|append",
        "Where folding again changes outputs: rewrite their logs, or append the difference at the next "
        "version. Default: append if the program has changed, unless with --full-refresh; else rewrite.",
    ),
    select: list[str] | None = SELECT,
    dry_run: bool = flag("Print what would be folded; write nothing."),
    verify_every: int | None = VERIFY_EVERY,
    memory: str | None = MEMORY,
    skip_code: int | None = SKIP_CODE,
) -> int:
    """Fold every version that was ingested and not yet folded; write state, output logs and the ledger.

    Without a window it folds everything since the last folded version, as a scheduler needs. If it is killed, the
    next run finishes the same work. A data test that is broken ends it with exit code 4, and nothing of the run is
    committed. With --select some outputs go ahead of the others: no state is stored, and the next run folds the same
    versions for all. The last line of stdout is a JSON object with the result (on a terminal: with --json).
    """
    out = call.output
    if full_refresh and from_version is not None:
        raise UsageError(
            f"--from-version {from_version}: --full-refresh folds all versions anew", "leave one of the two out"
        )
    opened = call.opened(memory=memory, verify_every=verify_every)
    if opened.upstream is not None and not dry_run and (from_version or to_version or to):
        from ddcore.jobs.upstream import take_over

        take_over(opened, begins=False)  # the versions that are there
    first, last = window(opened, from_version, to_version, to, or_before=or_before)
    from ddcore.cli.hook import failure, hooked, tell_hook
    from ddcore.cli.notices import listener, notices
    from ddcore.jobs import replay

    with hooked(out, opened, "run"), out.claimed(), out.progress() as progress, notices(out, progress):
        report = replay.run(
            opened,
            first=first,
            last=last,
            full_refresh=full_refresh,
            corrections=corrections,
            dry_run=dry_run,
            select=select or (),
            engine=opened.engine,
            parallelism=opened.parallelism,
            listener=listener(out, progress, opened.engine),
        )
    tell_run(out, report, dry_run=dry_run)
    fields = result(report, dry_run=dry_run)
    try:
        with hooked(out, opened, "run"):
            error = verified(out, opened, report) if opened.verify_every and not dry_run else None
    finally:
        out.result("run", **fields)
    if not (report.nothing_new or dry_run):
        tell_hook(out, opened, "run", {**fields, **failure(error)})
    if error is not None:
        raise error
    return skip_code if report.nothing_new and skip_code is not None else 0


def verified(out: Output, project: Project, report: RunReport) -> Mismatch | None:
    """Verify what was folded, if a version of it is due; the error where rows differ. The run is recorded already."""
    from ddcore.cli.notices import listener, notices
    from ddcore.cli.verify import tell_verdicts
    from ddcore.jobs.verify import after_run, mismatch

    with out.claimed(), out.progress() as progress, notices(out, progress):
        found = after_run(project, report, project.verify_every, listener(out, progress, project.engine))
        verdicts = tell_verdicts(out, progress, project, found, out.say, limit=_ROWS)
    return mismatch(verdicts, project.dims)


def tell_run(out: Output, report: RunReport, *, dry_run: bool = False) -> None:
    """What a run did, for people."""
    _tell_versions(out, report, dry_run)
    _tell_corrections(out, report)
    for table in report.published:
        if table.plus or table.minus or table.made:
            out.say(table.sentence)
    for name in report.without_rows:
        out.say(
            ("note: ", "yellow"),
            f"input {name} has no rows yet, and folded versions accept no new rows: ddcore ingest {name} SOURCE",
        )
    for warning in report.warnings:
        out.warn(warning)


def _tell_versions(out: Output, report: RunReport, dry_run: bool) -> None:
    if report.nothing_new:
        out.say(f"nothing new: {_folded(report)}")
    for note in report.notes:
        out.say(note)
    if report.comparison is not None:
        from ddcore.cli.comparison import tell_comparison

        tell_comparison(out, report.comparison, out.say)
    if report.nothing_new or not (report.versions or dry_run):
        return
    alone = len(report.versions) == 1 and not dry_run
    ending = f"rounds={report.rounds} took={report.took:.1f}s"
    many = len(report.versions) > ON_TERMINAL and out.bar_shown
    several = len(report.dims) > 1
    for time, inputs, outputs in report.versions:
        if out.json:
            named = {"time" if several else "version": json_time(time, report.dims), **report.names.fields(time)}
            out.record(**named, **changes_by_name(inputs, outputs))
        elif not many:
            done = "" if dry_run else f" out={_sum(outputs)} {ending if alone else ''}"
            name = report.names.shown(time)
            out.say(f"{name if several else f'version={name}'} in={_sum(inputs)}{done}".rstrip())
    inputs, outputs = totals(report)
    if not report.versions:
        out.say(f"would fold no new {'time' if several else 'version'}; nothing was written")
        return
    assert report.last is not None
    span = f"to {report.names.shown(report.last)}" if several else _span(report)
    if dry_run:
        what = "time" if several else "version"
        times = f"{count(len(report.versions))} {what}{'s' * (len(report.versions) != 1)}"
        out.say(f"would fold {times}, {span}, in={_sum(inputs)}; nothing was written")
    elif not alone:
        spans = f"times={len(report.versions)} {span}" if several else f"versions={span}"
        out.say(f"run={report.run} {spans} in={_sum(inputs)} out={_sum(outputs)} {ending}")


def _tell_corrections(out: Output, report: RunReport) -> None:
    if report.corrections and report.last is not None:
        following = report.last.version + 1
        updates = f"{count(report.corrections)} update{'s wait' if report.corrections > 1 else ' waits'}"
        out.say(
            f"outputs change at version {following}: {updates} until it is folded; "
            f"to fold it now, without rows: ddcore run --to-version {following}"
        )


def _folded(report: RunReport) -> str:
    """What is folded, for people."""
    if report.last is None:
        return "no version was ingested yet"
    tops = corners(report.upper)
    return f"{' and '.join(map(report.names.named, tops))} {'is' if len(tops) == 1 else 'are'} folded"


def _span(report: RunReport) -> str:
    """The first and the last version of a run, with their labels, for people."""
    assert report.first_changed is not None and report.last is not None
    labels = report.names.span(report.first_changed, report.last)
    return f"{report.first_changed}..{report.last}" + (f" ({labels})" if labels else "")


def _sum(changes: Changes) -> str:
    return f"+{sum(plus for plus, _ in changes.values())}/-{sum(minus for _, minus in changes.values())}"
