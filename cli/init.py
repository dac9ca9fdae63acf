"""``dd init``: a project folder that runs at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ddcore.cli.options import DebugOption, QuietOption, filled_path
from ddcore.cli.output import Output
from ddcore.errors import UsageError

__all__ = ["FILES", "init"]

_TOML = """\
# What this project folds: https://toml.io. Everything here can be overridden by DDCORE_... and by flags.

[project]
program   = "program.py:program"   # FILE:FUNCTION
warehouse = "warehouse"            # inputs, state, outputs and the ledger live here

[run]
engine = "inline"                  # small data: this process, no JVM. Without this line: Spark

[inputs.links]                     # a line of the tram: from src to dst in so many minutes
schema = { src = "string", dst = "string", minutes = "int64" }

[inputs.starts]                    # where journeys begin
schema = { stop = "string" }

[outputs.journeys]
key = ["stop"]                     # dd diff pairs deletes with inserts by these columns

# [spark]
# master = "local[*]"
# conf   = { "spark.driver.memory" = "4g" }
"""

_PROGRAM = '''\
"""How long it takes from a start to every stop, by the quickest way there is."""

import ddcore as dd
from ddcore import col


def program(links: dd.Collection, starts: dd.Collection) -> dict[str, dd.Collection]:
    begin = starts.select("stop", total=0)

    def ride(journeys: dd.Collection) -> dd.Collection:
        onward = journeys.join(links, on={"stop": "src"})
        arrived = onward.select(stop="dst", total=col("total") + col("minutes"))
        return arrived.concat(begin).group_by("stop").agg(total=dd.min("total"))

    return {"journeys": begin.iterate(ride)}
'''

# version, diff, then the row: what each version puts in (1) and takes out (-1).
_LINKS = """\
version,diff,src,dst,minutes
1,1,Central,Market,3
1,1,Market,Bridge,4
1,1,Bridge,Harbour,6
1,1,Central,Park,5
1,1,Park,Zoo,2
2,1,Park,Bridge,1
2,1,Harbour,Lighthouse,7
3,-1,Park,Zoo,2
3,1,Park,Zoo,9
4,-1,Bridge,Harbour,6
5,1,Market,Harbour,8
5,1,Harbour,Bridge,6
"""

_STARTS = """\
version,diff,stop
1,1,Central
"""

_README = """\
# A first project

A tram network in five versions: lines open, a line slows down, a bridge closes, a detour opens.
`program.py` computes how long it takes from Central to every stop; nothing in it knows about versions.

    ddcore ingest links data/links.csv
    ddcore ingest starts data/starts.csv
    ddcore run
    ddcore log
    ddcore show journeys
    ddcore diff journeys 3 4          # the bridge closes
    ddcore diff journeys 1..latest    # all that changed since the first version

Next: put another version into a file of its own, ingest it, run. Only what changed is computed again.
What is folded and what is waiting: `ddcore status`. What this machine lacks: `ddcore doctor`.
"""

_IGNORE = "warehouse/\n__pycache__/\n"

FILES = {
    "dd.toml": _TOML,
    "program.py": _PROGRAM,
    "data/links.csv": _LINKS,
    "data/starts.csv": _STARTS,
    "README.md": _README,
    ".gitignore": _IGNORE,
}
# A folder that is a repository may have these two already: they are left as they are.
_OPTIONAL = ("README.md", ".gitignore")


def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", parser=filled_path, help="The folder to fill; it is created if missing.", show_default=False
        ),
    ] = Path("."),
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> int:
    """Make a project folder that runs at once: dd.toml, program.py and a few tiny versions of data.

    No existing file is overwritten.
    """
    out = Output(quiet=quiet)
    _refuse_to_overwrite(folder)
    names = [name for name in FILES if name not in _OPTIONAL or not (folder / name).exists()]
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FILES[name], encoding="utf-8")
    here = folder.resolve() == Path.cwd()
    out.say(f"made {'a project here' if here else folder}: {', '.join(names)}")
    out.say()
    out.say("next:")
    for line in (
        *([] if here else [f"cd {folder}"]),
        "ddcore ingest links data/links.csv",
        "ddcore ingest starts data/starts.csv",
        "ddcore run",
        "ddcore diff journeys 1 latest",
    ):
        out.say(f"  {line}")
    return 0


def _refuse_to_overwrite(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder", "name another folder: ddcore init DIR")
    present = [name for name in FILES if name not in _OPTIONAL and os.path.lexists(folder / name)]
    if present:
        place = "this folder" if folder.resolve() == Path.cwd() else folder
        raise UsageError(
            f"{place} already has {', '.join(present)}; init overwrites nothing", "name another folder: ddcore init DIR"
        )
