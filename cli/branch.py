"""``dd branch``: makes, lists and deletes copies of a warehouse to try things in."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.cli.completion import branch_names
from ddcore.cli.options import Call, argument, command, flag
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import aligned, count, size
from ddcore.io.project.times import Time, json_time, named

if TYPE_CHECKING:
    from ddcore.io.project.project import Project
    from ddcore.io.storage.branches import Note
    from ddcore.jobs.branch import Branch


@command("json quiet project")
def branch(
    call: Call,
    name: str | None = argument("NAME", "The branch. Without it, the branches are listed.", complete=branch_names),
    *,
    deletes: bool = flag("Delete the branch; the warehouse and other branches stay as they are.", "--delete"),
) -> int:
    """Make a branch of the warehouse: a copy to try things in, which has the same history and goes its own way.

    In a folder no file is copied: both have links to the same files, and neither can delete the other's. In an object
    store the store copies the objects. `dd run --branch NAME`, and every other command with --branch NAME or
    DDCORE_BRANCH, then works on the branch; `dd diff OUTPUT --against NAME` compares. Published tables of a branch are
    in its own folder, and the hook is not called. With --branch the new one is made of that branch.
    """
    out = call.output
    if name is None and deletes:
        raise UsageError("--delete: which branch?", "name it: ddcore branch NAME --delete")
    opened = call.opened()
    from ddcore.jobs import branch as job

    if name is None:
        _list(out, opened, [*job.listed(opened)])
        return 0
    from ddcore.cli.notices import notices

    with notices(out):
        report = job.delete(opened, name) if deletes else job.make(opened, name)
    if deletes:
        out.say(f"branch {name} is deleted")
    else:
        shared = f"shares {count(report.files)} files, {size(report.bytes)}"
        out.say(f"branch {name} of {report.source} is made: {shared}; use it with: --branch {name}")
    out.result("branch", **vars(report))
    return 0


def _list(out: Output, project: Project, found: list[Branch]) -> None:
    if out.json:
        for branch in found:
            out.record(
                schema_version=SCHEMA_VERSION, name=branch.name, path=branch.path, source=branch.note.source,
                at=branch.note.at, made_of_run=branch.note.run, run=branch.run,
                folded=[json_time(top, project.dims) for top in branch.folded], problem=branch.problem or None,
            )  # fmt: skip
        return
    if not found:
        out.say("no branches: ddcore branch NAME makes one")
        return
    rows = [["branch", "of", "made", "from", "now"]]
    for branch in found:
        now = branch.problem or _state(branch.run, branch.folded, project.dims)
        begin = _state(branch.note.run, tuple(Time(top) for top in branch.note.folded), project.dims)
        rows.append([branch.name, branch.note.source, _moment(branch.note), begin, now])
    for number, line in enumerate(aligned(rows, width=out.width, header=True)):
        out.data((line, "" if number else "dim"))


def _moment(note: Note) -> str:
    """When a branch was made; empty where its note cannot be read."""
    from ddcore.io.ledger.history import moment

    return moment(datetime.fromisoformat(note.at)) if note.at else ""


def _state(run: int, folded: tuple[Time, ...], dims: tuple[str, ...]) -> str:
    """``version 5 (run 3)``."""
    return f"{' and '.join(named(top, dims) for top in folded)} (run {run})" if run else "nothing folded"
