"""What a run does beside folding what is new, as sentences: to the state, to what was published, and to each output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ddcore.io.project.times import named
from ddcore.jobs.report import RunReport
from ddcore.jobs.running.next_run import Effect
from ddcore.text.wording import listed

if TYPE_CHECKING:
    from ddcore.jobs.running.commits import Commits


def report(commits: Commits, report: RunReport, *, dry: bool = False) -> None:
    """Tell the report of a command of a run that does more than to fold what is new; ``dry``: of one that would."""
    effect = commits.upcoming.effect
    if effect is not Effect.EXTEND:
        report.publishes = effect
        report.notes += [_head(commits, dry=dry), *_of_outputs(commits, dry=dry)]
    report.changed |= commits.changes


def _head(commits: Commits, *, dry: bool) -> str:
    upcoming, plan, part = commits.upcoming, commits.plan, commits.rebuilding
    changed = "the program has changed: " if commits.changed else ""
    if part is not None:
        stored = sum(not (arrangement.transient or plan.is_inner(arrangement)) for arrangement in plan.arrangements)
        again = f"; filled {len(part.again)} again for this run" if part.again else ""
        return f"{changed}kept {stored - len(part.missing)} of {stored} arrangements, built {len(part.missing)}{again}"
    start = "from nothing" if upcoming.base is None else f"from run {upcoming.base.run}"
    folded = f"{changed}{'would fold' if dry else 'folded'} again {start}, through {named(upcoming.last, plan.dims)}"
    if upcoming.effect is Effect.APPEND:
        return f"{folded}: what was published stays{_then(commits)}"
    first = upcoming.first if upcoming.base is not None and len(plan.dims) == 1 else None
    return f"{folded}: outputs are rewritten{'' if first is None else f' from version {first} on'}"


def _then(commits: Commits) -> str:
    """Where differences come; nothing with several dimensions, which have no next version."""
    last = commits.upcoming.last
    return f", and any difference comes at version {last.version + 1}" if len(last) == 1 else ""


def _of_outputs(commits: Commits, *, dry: bool) -> Iterator[str]:
    for what, names in _by_change(commits.changes).items():
        one = len(names) == 1
        if what == "new":
            yield f"{listed(names)} {'is' if one else 'are'} new, with all rows at every version"
        elif what == "columns":
            its = ("its log is", "its table keeps") if one else ("their logs are", "their tables keep")
            yield (
                f"{listed(names)} {'has' if one else 'have'} other columns: {its[0]} written anew, at every version; "
                f"{its[1]} the old one in earlier versions"
            )
        elif what == "left":
            yield f"{listed(names)} {'is no output' if one else 'are no outputs'} any more, and {_stays(one=one)}"
        elif what == "difference" and dry:
            yield f"{listed(names)} {'is' if one else 'are'} computed in another way{_then(commits)}"


def _stays(*, one: bool) -> str:
    return "its table stays as it is" if one else "their tables stay as they are"


def _by_change(changes: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, what in changes.items():
        found.setdefault(what, []).append(name)
    return found
