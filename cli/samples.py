"""The projects that ``dd init`` makes: their files, and the commands to begin with."""

from __future__ import annotations

from collections.abc import Mapping

from ddcore.base.record import record


@record
class Sample:
    """The files of a project, by path, and what to run first in it."""

    files: Mapping[str, str]
    commands: tuple[str, ...]


_IGNORE = "warehouse/\n__pycache__/\n"

# --- a tram network, versions of one dimension ------------------------------------------------------------------------

_TRAMS_TOML = """\
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

_TRAMS_PROGRAM = '''\
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
_TRAMS_LINKS = """\
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

_TRAMS_STARTS = """\
version,diff,stop
1,1,Central
"""

_TRAMS_README = """\
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

_TRAMS = Sample(
    {
        "dd.toml": _TRAMS_TOML,
        "program.py": _TRAMS_PROGRAM,
        "data/links.csv": _TRAMS_LINKS,
        "data/starts.csv": _TRAMS_STARTS,
        "README.md": _TRAMS_README,
        ".gitignore": _IGNORE,
    },
    (
        "ddcore ingest links data/links.csv",
        "ddcore ingest starts data/starts.csv",
        "ddcore run",
        "ddcore diff journeys 1 latest",
    ),
)

# --- daily figures that are restated, times of two dimensions ---------------------------------------------------------

_BITEMPORAL_TOML = """\
# Daily figures that later reports restate: https://toml.io.

[project]
program   = "program.py:program"   # FILE:FUNCTION
warehouse = "warehouse"            # inputs, state, outputs and the ledger live here

[time]
dims = ["day", "revision"]         # the day that a figure is about, and the report that states it

[run]
engine = "inline"                  # small data: this process, no JVM. Without this line: Spark

[inputs.sales]                     # what a shop took, in whole euros
schema = { shop = "string", amount = "int64" }

[outputs.totals]
key = ["shop"]                     # dd diff pairs deletes with inserts by these columns

[outputs.leader]
key = []
"""

_BITEMPORAL_PROGRAM = '''\
"""What each shop took to date, and which shop leads. Nothing in it knows of days or reports."""

import ddcore as dd
from ddcore.base.record import record


def program(sales: dd.Collection) -> dict[str, dd.Collection]:
    totals = sales.group_by("shop").agg(total=dd.sum("amount"), figures=dd.count())
    leader = totals.select("shop", "total").group_by().top_k(1, "total", descending=True)
    return {"totals": totals, "leader": leader}
'''

# The first report has a figure for every day and shop.
_BITEMPORAL_REPORT = """\
day,revision,diff,shop,amount
1,0,1,Harbour,120
1,0,1,Market,210
2,0,1,Harbour,135
2,0,1,Market,190
3,0,1,Harbour,160
3,0,1,Market,205
4,0,1,Harbour,150
4,0,1,Market,180
5,0,1,Harbour,240
5,0,1,Market,215
6,0,1,Harbour,310
6,0,1,Market,260
7,0,1,Harbour,275
7,0,1,Market,255
"""

# Two later ones replace single figures: the old one leaves, the new one enters, at the same day and the new revision.
_BITEMPORAL_RESTATED = """\
day,revision,diff,shop,amount
3,1,-1,Harbour,160
3,1,1,Harbour,330
7,1,-1,Market,255
7,1,1,Market,245
6,2,-1,Harbour,310
6,2,1,Harbour,130
"""

_BITEMPORAL_README = """\
# Daily figures that are restated

Two shops report what they took, day by day. Later reports correct single figures of earlier days. So a figure has two
times: the `day` that it is about, and the `revision`, the report that states it. `program.py` adds the figures up;
nothing in it knows of days or reports.

    ddcore ingest sales data/report.csv
    ddcore run
    ddcore show totals --at day=7,revision=0         # the first report

    ddcore ingest sales data/restated.csv
    ddcore run

What did we believe on revision 1 about day 7?

    ddcore show totals --at day=7,revision=1
    ddcore show leader --at day=7,revision=1

What did revision 1 change about day 7, and what did day 7 add, as revision 1 has it?

    ddcore diff totals day=7,revision=0 day=7,revision=1
    ddcore diff totals day=6,revision=1 day=7,revision=1

How times of several dimensions work: docs/times.md of ddcore.
"""

_BITEMPORAL = Sample(
    {
        "dd.toml": _BITEMPORAL_TOML,
        "program.py": _BITEMPORAL_PROGRAM,
        "data/report.csv": _BITEMPORAL_REPORT,
        "data/restated.csv": _BITEMPORAL_RESTATED,
        "README.md": _BITEMPORAL_README,
        ".gitignore": _IGNORE,
    },
    (
        "ddcore ingest sales data/report.csv",
        "ddcore ingest sales data/restated.csv",
        "ddcore run",
        "ddcore show totals --at day=7,revision=1",
        "ddcore diff totals day=7,revision=0 day=7,revision=1",
    ),
)

SAMPLES: Mapping[str, Sample] = {"trams": _TRAMS, "bitemporal": _BITEMPORAL}
