"""``dd readers``: lists the projects that read the inputs of this one, and gives up those that are gone."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ddcore.base.errors import UsageError
from ddcore.cli.options import Call, command, option
from ddcore.cli.output import SCHEMA_VERSION, Output
from ddcore.cli.text import aligned
from ddcore.io.project.times import Time, json_time, named
from ddcore.text.wording import listed

if TYPE_CHECKING:
    from ddcore.io.project.project import Project
    from ddcore.io.storage.readers import Hold


@command("json quiet project")
def readers(
    call: Call,
    *,
    forget: str | None = option(
        "READER",
        "Give up what this reader still needs, by its name or its folder. If it is there all the same, it says so and "
        "folds everything anew where it has to.",
    ),
) -> int:
    """List the projects that read the inputs of this one, and how far each has got.

    Such a project says [inputs] from = "..." in its dd.toml, and has a warehouse of its own. Files of inputs that one
    of them has not read yet are not deleted here, whatever is compacted or taken back.
    """
    out = call.output
    opened = call.opened()
    from ddcore.io.storage import readers as holds
    from ddcore.io.storage.warehouse import Warehouse

    opened.tables.check()
    if forget is None:
        _list(out, opened, holds.holds(opened.home))
        return 0
    name = _named(opened, forget)
    with Warehouse(opened.home).lock("ddcore readers"):
        holds.forget(opened.home, name)
    out.say(f"reader {name} is forgotten: what it has not read yet may be deleted now")
    out.result("readers", name=name, forgotten=True)
    return 0


def _named(project: Project, text: str) -> str:
    """The name of the reader that a text names; one whose hold cannot be read has its name alone. UsageError."""
    from ddcore.io.storage import readers as holds

    names = holds.names(project.home)
    if text in names:
        return text
    known = holds.holds(project.home)
    known_as = {address.rstrip("/"): name for name, hold in known.items() for address in (hold.project, hold.warehouse)}
    if (name := known_as.get(text.rstrip("/"))) is not None:
        return name
    there = f"there are: {listed([f'{name} ({hold.project})' for name, hold in known.items()])}" if known else "none"
    raise UsageError(f"--forget {text}: no such reader; {there}", "they are listed by: ddcore readers")


def _list(out: Output, project: Project, found: dict[str, Hold]) -> None:
    if out.json:
        for name, hold in found.items():
            tops = [json_time(Time(top), project.dims) for top in hold.folded]
            fields = {**vars(hold), "folded": tops, "lost": hold.is_lost}
            out.record(schema_version=SCHEMA_VERSION, name=name, **fields)
        return
    if not found:
        out.say('nobody reads these inputs: another project does with [inputs] from = "..."')
        return
    from ddcore.io.ledger.history import moment

    rows = [["reader", "project", "folded", "looked", ""]]
    for name, hold in found.items():
        through = " and ".join(named(tuple(top), project.dims) for top in hold.folded)
        folded = f"through {through}" if through else "nothing yet"
        rows.append(
            [name, hold.project, folded, moment(datetime.fromisoformat(hold.at)), "gone" if hold.is_lost else ""]
        )
    for number, line in enumerate(aligned(rows, width=out.width, header=True)):
        out.data((line, "" if number else "dim"))
