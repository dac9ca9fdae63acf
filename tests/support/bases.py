"""Small project folders in many states, each made from another one by a few commands."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from deltalake import write_deltalake

from ddcore.io.delta.writer import Writer
from ddcore.io.ledger import records
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.times import time_of
from ddcore.io.storage import store

if TYPE_CHECKING:
    from workshop import Workshop

PROGRAM = """
import ddcore as dd


def program(roads, depots):
    def drive(reached):
        onward = reached.join(roads, on={"town": "src"}).select(town="dst", km="km + km_right")
        return onward.concat(start).group_by("town").agg(km=dd.min("km"))

    start = depots.select("town", km=0)
    return {
        "distances": start.iterate(drive),
        "degrees": roads.group_by("src").agg(n=dd.count()),
        "towns": roads.select(town="src").concat(roads.select(town="dst")).distinct(),
    }
"""
OTHER_PROGRAM = PROGRAM.replace("km=0", "km=1").replace('"degrees"', '"exits"')
PROJECT = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[inputs.roads]
schema = { src = "string", dst = "string", km = "int64" }
source = { path = ["roads.csv", "more.csv", "most.csv"] }
[inputs.depots]
schema = { town = "string" }
source = { path = "depots.csv" }
[outputs.towns]
table = true
"""
SOURCES = {
    "roads": "A,B,4,0,1 B,C,5,0,1 C,D,3,0,1 D,E,1,0,1 A,C,7,1,1 B,C,5,2,-1 C,D,3,2,-1",
    "more": "C,D,2,3,1 A,C,7,4,-1",
    "most": "E,A,1,5,1 A,B,4,6,-1 A,B,6,6,1",
    "last": "D,A,2,7,1",
    "fixed": "B,C,5,2,-1 C,D,2,3,1 A,D,9,3,1 A,C,7,4,-1",
    "late": "E,F,2,1,1",
}
SNAPSHOTS = {"monday": "A,B,4 B,C,5", "tuesday": "A,B,4 C,D,1 C,D,1"}
TIMES_PROJECT = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[time]
dims = ["day", "revision"]
[inputs.words]
schema = { word = "string", n = "int64" }
"""
TIMES_PROGRAM = """
import ddcore as dd


def program(words):
    def fewer(left):
        return left.where("n > 0").select("word", n="n - 1").concat(words).distinct()

    pairs = words.join(words.select("word", other="n"), on="word").select("word", total="n + other")
    return {"words": words.select("word").distinct(), "left": words.iterate(fewer), "pairs": pairs.distinct()}
"""
TIMES_SOURCE = "cat,2,0,3,1 cat,2,1,2,1 dog,1,0,4,1 cat,3,2,1,1 dog,1,3,4,-1 emu,2,1,4,1"


def write_new(folder: Path) -> None:
    """A project whose sources wait, without a warehouse."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(PROJECT)
    for source, rows in SOURCES.items():
        (folder / f"{source}.csv").write_text("src,dst,km,version,diff\n" + rows.replace(" ", "\n") + "\n")
    for source, rows in SNAPSHOTS.items():
        (folder / f"{source}.csv").write_text("src,dst,km\n" + rows.replace(" ", "\n") + "\n")
    (folder / "depots.csv").write_text("town,version,diff\nA,0,1\n")
    _write_history(folder / "history.delta")
    (folder / "events.csv").write_text("op,src,dst,km\nu,A,B,6\nd,D,E,\nc,E,A,1\n")


def write_times(folder: Path) -> None:
    """A project of two dimensions and its source, without a warehouse."""
    folder.mkdir()
    (folder / "program.py").write_text(TIMES_PROGRAM)
    (folder / "dd.toml").write_text(TIMES_PROJECT)
    (folder / "words.csv").write_text("word,n,day,revision,diff\n" + TIMES_SOURCE.replace(" ", "\n") + "\n")


Build = Callable[["Workshop", Path], None]


def _ingested(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "ingest", "roads", "roads.csv")
    shop.done(folder, "ingest", "depots", "depots.csv")


def _folded(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "run")
    shop.done(folder, "ingest", "roads", "more.csv")


def _changed(_: Workshop, folder: Path) -> None:
    (folder / "program.py").write_text(OTHER_PROGRAM)


def _ahead(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "run", "--select", "t*", "--to-version", "3")


def _evolved(_: Workshop, folder: Path) -> None:
    """The schema has another name and a wider type for a column, and the program reads it so."""
    evolved = 'length = "float64" }\nrenamed = { length = "km" }\nwidened = { length = "int64" }'
    (folder / "dd.toml").write_text(PROJECT.replace('km = "int64" }', evolved))
    (folder / "program.py").write_text(PROGRAM.replace("km_right", "length").replace("km=0", "km=0.0"))
    (folder / "wider.csv").write_text("src,dst,length,version,diff\nC,D,2,5,-1\nD,A,2.5,5,1\n")


def _killed(point: str, *arguments: str) -> Build:
    def build(shop: Workshop, folder: Path) -> None:
        ended = shop.command(folder, *shop.placed(folder, arguments), DDCORE_FAILPOINT=point)
        assert ended.code == -signal.SIGKILL
        shop.forget_holder(folder)  # the note is on the next one killed

    return build


def _refreshed(shop: Workshop, folder: Path) -> None:
    """A refresh of another program was killed when it had replaced most tables of state; the program is put back."""
    _killed("after-table:7", "run", "--full-refresh")(shop, folder)
    (folder / "program.py").write_text(PROGRAM)


def _damaged(shop: Workshop, folder: Path) -> None:
    """A table whose log cannot be read."""
    warehouse = shop.warehouse(folder)
    table = min(location for name, location in warehouse.tables() if name.startswith("state/"))
    for commit in list(store.entries(table / "_delta_log")):
        shop.write(commit.address, b"garbage")


def _before_a_merge(shop: Workshop, folder: Path) -> None:
    """The next record is the thirty-second, and all files are old: those of the first fifteen were merged long ago."""
    ledger = Ledger.load(shop.warehouse(folder), Writer())
    newest = ledger.newest()
    assert newest is not None
    for number in range(ledger.next_run(), ledger.next_run() + 13):
        ledger.append(records.IntentRecord(number, "ab12", time_of(3), time_of(4), 1, "inline"))
        ledger.append(records.FailureRecord(number, "ab12", time_of(3), time_of(4), "inline", "none"))
    files = [*(folder / "warehouse" / "ledger").glob("entries-*.parquet")]
    assert len(files) == 31
    for file in files:
        os.utime(file, (time.time() - 7200,) * 2)


def _half_folded(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "run", "--to", "day=0,revision=4")
    shop.done(folder, "run", "--to", "day=1,revision=2")
    run = Ledger.load(shop.warehouse(folder)).current_run()
    assert run is not None
    rows = {name.rpartition("_")[2]: state.rows for name, state in run.tables.items() if state.rows}
    assert {"held", "pending"} <= rows.keys(), "updates and pending times are stored"


def _several_runs(shop: Workshop, folder: Path) -> None:
    """With files to merge, files that an earlier compaction replaced, and state of an earlier program."""
    (folder / "dd.toml").write_text(PROJECT + "[compaction]\nauto = false\n[retention]\nversions = 0\ndays = 0\n")
    shop.done(folder, "run")
    _changed(shop, folder)
    shop.done(folder, "run", "--full-refresh", "--to-version", "2")
    shop.done(folder, "run")
    shop.done(folder, "ingest", "roads", "most.csv")
    shop.done(folder, "run", "--to-version", "5")
    shop.done(folder, "run")


def _many_runs(shop: Workshop, folder: Path) -> None:
    """The next run gives many tables their sixteenth file, and merges them."""
    rows = "".join(f"A,{town},1,{version},1\n" for version, town in enumerate("LMNOPQRSTUVWXYZ", 2))
    (folder / "many.csv").write_text("src,dst,km,version,diff\n" + rows)
    (folder / "dd.toml").write_text(PROJECT + "[retention]\nversions = 2\ndays = 0\n")
    shop.done(folder, "ingest", "roads", "many.csv")
    for version in range(1, 16):  # version 1 adds no town
        shop.done(folder, "run", "--to-version", str(version))


def _compacted(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "compact")
    shop.done(folder, "ingest", "roads", "last.csv")
    shop.done(folder, "run")


def _restated(shop: Workshop, folder: Path) -> None:
    shop.done(folder, "run")
    shop.done(folder, "ingest", "roads", "fixed.csv", "--restate", "2")


BASES: dict[str, tuple[str, Build]] = {
    "ingested": ("new", _ingested),
    "folded": ("ingested", _folded),
    "ahead": ("folded", _ahead),
    "changed": ("folded", _changed),
    "evolved": ("folded", _evolved),
    "half written": ("folded", _killed("after-file", "ingest", "roads", "most.csv")),
    "half ingested": ("folded", _killed("after-table", "ingest", "roads", "most.csv")),
    "half refreshed": ("changed", _refreshed),
    "half undone": ("folded", _killed("after-table", "ingest", "--undo", "3")),
    "damaged": ("folded", _damaged),
    "restated": ("folded", _restated),
    "half changed": ("folded", _killed("after-table:5", "run")),
    "changed while a run was unfinished": ("half changed", _changed),
    "unmerged": ("folded", _before_a_merge),
    "half folded": ("times", _half_folded),
    "several runs": ("folded", _several_runs),
    "compacted": ("several runs", _compacted),
    "many runs": ("ingested", _many_runs),
}


def _write_history(table: Path) -> None:
    """A Delta table with a change data feed: rows, of which some are taken away and come again."""
    for rows in ("A,X,4 X,Y,5", "A,X,4 Y,Z,1 Y,Z,1"):
        source = pl.DataFrame([row.split(",") for row in rows.split()], ["src", "dst", "km"], orient="row")
        arrow = source.with_columns(pl.col("km").cast(pl.Int64)).to_arrow()
        write_deltalake(str(table), arrow, mode="overwrite", configuration={"delta.enableChangeDataFeed": "true"})
