"""``dd run``: folds every version that is not folded yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ddcore.cli.options import (
    DebugOption,
    EngineOption,
    JsonOption,
    MasterOption,
    ParallelismOption,
    ProjectOption,
    QuietOption,
    SkipCodeOption,
    WarehouseOption,
    open_project,
)
from ddcore.cli.output import Output, count
from ddcore.cli.window import window
from ddcore.errors import UsageError
from ddcore.jobs.report import Changes, changes_by_name, result, totals

if TYPE_CHECKING:
    from ddcore.jobs.report import RunReport

__all__ = ["run"]

ON_TERMINAL = 20  # more versions than these are summed up in one line, after a progress bar


def run(
    *,
    from_version: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="The first version to fold, inclusive. Only the next unfolded one is supported.",
            show_default=False,
        ),
    ] = None,
    to_version: Annotated[
        str | None,
        typer.Option(metavar="N", help="The last version to fold, inclusive. Default: latest.", show_default=False),
    ] = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Rebuild state and outputs from the inputs, for a changed program.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be folded; write nothing.")] = False,
    engine: EngineOption = None,
    master: MasterOption = None,
    parallelism: ParallelismOption = None,
    skip_code: SkipCodeOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    debug: DebugOption = False,
) -> int:
    """Fold every version that was ingested and not yet folded; write state, output logs and the ledger.

    Without a window it folds everything since the last folded version, as a scheduler needs. If it is killed, the
    next run finishes the same work. The last line of stdout is a JSON object with the result (on a terminal: with
    --json).
    """
    out = Output(json=as_json, quiet=quiet)
    if full_refresh and from_version is not None:
        raise UsageError(
            f"--from-version {from_version}: --full-refresh folds all versions anew", "leave one of the two out"
        )
    opened = open_project(project, warehouse=warehouse, engine=engine, spark_master=master, parallelism=parallelism)
    first, last = window(opened, from_version, to_version)
    from ddcore.cli.notices import listener, notices
    from ddcore.jobs import replay

    with out.claimed(), out.progress() as progress, notices(out):
        report = replay.run(
            opened,
            first=first,
            last=last,
            full_refresh=full_refresh,
            dry_run=dry_run,
            engine=opened.engine,
            parallelism=opened.parallelism,
            listener=listener(out, progress, opened.engine),
        )
    _tell(out, report, dry_run)
    out.result("run", **result(report, dry_run=dry_run))
    return skip_code if report.nothing_new and skip_code is not None else 0


def _tell(out: Output, report: RunReport, dry_run: bool) -> None:
    if report.nothing_new:
        folded = f": version {report.last} is folded" if report.last is not None else ": no version was ingested yet"
        out.say("nothing new" + folded)
        return
    alone = len(report.versions) == 1 and not dry_run
    ending = f"rounds={report.rounds} took={report.took:.1f}s"
    many = len(report.versions) > ON_TERMINAL and out.bar_shown
    for version, inputs, outputs in report.versions:
        if out.json:
            out.record(version=version, **changes_by_name(inputs, outputs))
        elif not many:
            done = "" if dry_run else f" out={_sum(outputs)} {ending if alone else ''}"
            out.say(f"version={version} in={_sum(inputs)}{done}".rstrip())
    inputs, outputs = totals(report)
    span = f"{report.first_changed}..{report.last}"
    if dry_run:
        versions = f"{count(len(report.versions))} version{'s' * (len(report.versions) != 1)}"
        out.say(f"would fold {versions}, {span}, in={_sum(inputs)}; nothing was written")
    elif not alone:
        out.say(f"run={report.run} versions={span} in={_sum(inputs)} out={_sum(outputs)} {ending}")


def _sum(changes: Changes) -> str:
    return f"+{sum(plus for plus, _ in changes.values())}/-{sum(minus for _, minus in changes.values())}"
