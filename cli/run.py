"""``dd run``: folds every version that is not folded yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddcore.cli.options import (
    DebugOption,
    EngineOption,
    JsonOption,
    MasterOption,
    ProjectOption,
    QuietOption,
    SkipCodeOption,
    WarehouseOption,
    WidthOption,
    open_project,
)
from ddcore.cli.output import Output, count
from ddcore.cli.window import window

if TYPE_CHECKING:
    from ddcore.jobs.replay import RunReport

__all__ = ["run"]

Changes = dict[str, tuple[int, int]]
ON_TERMINAL = 20  # more versions than these are one line for a person, who had the bar to look at


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
        bool, typer.Option("--full-refresh", help="Make state and outputs anew from the inputs, for a changed program.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be folded; write nothing.")] = False,
    engine: EngineOption = None,
    master: MasterOption = None,
    width: WidthOption = None,
    skip_code: SkipCodeOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    debug: DebugOption = False,
) -> int:
    """Fold every version that was ingested and not yet folded; write state, output logs and the ledger.

    Without a window: everything since the last folded version, which is what a scheduler wants. Killed anywhere, the
    next run finishes the same work. The last line of stdout is a JSON object with the result (on a terminal: with
    --json).
    """
    out = Output(json=as_json, quiet=quiet)
    found = open_project(project, warehouse=warehouse, engine=engine, spark_master=master, width=width)
    first, last = window(found, from_version, to_version)
    from ddcore.cli.notices import listener, notices
    from ddcore.jobs import replay

    with out.claimed(), out.progress() as progress, notices(out):
        report = replay.run(
            found,
            first=first,
            last=last,
            full_refresh=full_refresh,
            dry_run=dry_run,
            engine=found.engine,
            width=found.width,
            listener=listener(out, progress, found.engine),
        )
    _tell(out, report, dry_run)
    out.result("run", **_result(report, dry_run))
    return skip_code if report.nothing_new and skip_code is not None else 0


def _tell(out: Output, report: RunReport, dry_run: bool) -> None:
    if report.nothing_new:
        folded = f": version {report.last} is folded" if report.last is not None else ": no version was ingested yet"
        out.say("nothing new" + folded)
        return
    alone = len(report.versions) == 1 and not dry_run
    ending = f"rounds={report.rounds} took={report.took:.1f}s"
    many = len(report.versions) > ON_TERMINAL and out.bar_shown
    for version, came, went in report.versions:
        if out.json:
            out.record(version=version, **_named(came, went))
        elif not many:
            done = "" if dry_run else f" out={_sum(went)} {ending if alone else ''}"
            out.say(f"version={version} in={_sum(came)}{done}".rstrip())
    came, went = _added(report)
    span = f"{_first(report)}..{report.last}"
    if dry_run:
        versions = f"{count(len(report.versions))} version{'s' * (len(report.versions) != 1)}"
        out.say(f"would fold {versions}, {span}, in={_sum(came)}; nothing was written")
    elif not alone:
        out.say(f"run={report.run} versions={span} in={_sum(came)} out={_sum(went)} {ending}")


def _result(report: RunReport, dry_run: bool) -> dict[str, Any]:
    return {
        "run": report.run,
        "first": _first(report),
        "last": report.last,
        "versions": len(report.versions),
        **_named(*_added(report)),
        "rounds": report.rounds,
        "took": round(report.took, 3),
        "engine": report.engine,
        "width": report.width,
        "nothing_new": report.nothing_new,
        "dry_run": dry_run,
    }


def _first(report: RunReport) -> int | None:
    """The first version that had something in it; the window itself may begin earlier, at 0."""
    return report.versions[0][0] if report.versions else report.first


def _added(report: RunReport) -> tuple[Changes, Changes]:
    """What came in and what went out, all versions together."""
    totals: tuple[Changes, Changes] = ({}, {})
    for _, *sides in report.versions:
        for total, changes in zip(totals, sides, strict=True):
            for name, (plus, minus) in changes.items():
                before = total.get(name, (0, 0))
                total[name] = (before[0] + plus, before[1] + minus)
    return totals


def _named(came: Changes, went: Changes) -> dict[str, dict[str, dict[str, int]]]:
    return {
        side: {name: {"plus": plus, "minus": minus} for name, (plus, minus) in changes.items()}
        for side, changes in (("inputs", came), ("outputs", went))
    }


def _sum(changes: Changes) -> str:
    return f"+{sum(plus for plus, _ in changes.values())}/-{sum(minus for _, minus in changes.values())}"
