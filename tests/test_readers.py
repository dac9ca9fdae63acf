"""Several programs over one set of inputs: each reader has its own warehouse and its own pace, and keeps the law.

In the random test two projects read what a third ingests. Rows come, late and in time, are taken back and replaced;
each project runs, is killed, compacts and gives up history on its own, and files are deleted at once. What each one's
outputs must be is computed in plain Python from the rows as they were when they came, before any compaction.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pages
import polars as pl
import pytest
from bases import OTHER_PROGRAM, SOURCES, TIMES_PROGRAM
from stores import store_shop
from test_follower import PATIENCE, following, wait_for
from trams import Command
from workshop import Workshop, assert_same, contents

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.reading.opened import open as open_project
from ddcore.io.storage import readers, store
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay

READER = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[inputs]
from = "{upstream}"
[retention]
days = 0
"""
HEAD = "src,dst,km,version,diff\n"
Row = tuple[str, str, int]


def reader_of(shop: Workshop, upstream: Path, name: str = "reader", program: str = OTHER_PROGRAM) -> Path:
    """A project beside another one, that reads its inputs."""
    folder = upstream.parent / f"{upstream.name}-{name}"
    folder.mkdir()
    (folder / "program.py").write_text(program)
    (folder / "dd.toml").write_text(READER.format(upstream=f"../{upstream.name}"))
    return folder


# --- the law, computed without the engine -----------------------------------------------------------------------------


def wanted(rows: Counter[Row], depots: Counter[str], first: int) -> dict[str, Counter[tuple[object, ...]]]:
    """The outputs of the workshop's program over collections; ``first``: the distance of a depot from itself."""
    best = dict.fromkeys((town for town, count in depots.items() if count > 0), first)
    while True:
        before = dict(best)
        for src, dst, km in (row for row, count in rows.items() if count > 0):
            if src in before and before[src] + km < best.get(dst, 1 << 40):
                best[dst] = before[src] + km
        if best == before:
            break
    exits = Counter[str]()
    for (src, _, _), count in rows.items():
        exits[src] += count
    towns = {town for (src, dst, _), count in rows.items() if count > 0 for town in (src, dst)}
    return {
        "distances": Counter(best.items()),
        "exits": Counter((src, count) for src, count in exits.items() if count),
        "towns": Counter((town,) for town in towns),
    }


def check_law(shop: Workshop, folder: Path, truth: Counter[tuple[Row, int]], first: int = 1) -> int:
    """Each output at each version that can be read is what the rows up to it give; return the number of versions."""
    ledger = Ledger.load(shop.project(folder).tables)
    upper, since = ledger.upper(), ledger.since()
    if upper is None:
        return 0
    opened = open_project(str(folder))
    start = since[0][0] if since else 0
    for version in range(start, upper[0][0]):
        rows = Counter[Row]()
        for (row, at), diff in truth.items():
            rows[row] += diff if at <= version else 0
        for name, right in wanted(rows, Counter("A"), first).items():
            frame = opened["degrees" if name == "exits" and not first else name].at(version).polars()
            held = Counter({tuple(line[:-1]): line[-1] for line in frame.rows()})
            assert held == right, (folder.name, name, version, held - right, right - held)
    return upper[0][0] - start


# --- cases ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(workshop: Workshop) -> Iterator[tuple[Path, Path]]:
    """A project with ingests and no run, that deletes at once, and a reader that has done nothing."""
    upstream = workshop.copy(workshop.base("ingested"))
    with (upstream / "dd.toml").open("a") as file:
        file.write("[retention]\ndays = 0\n")
    reader = reader_of(workshop, upstream)
    yield upstream, reader
    for folder in (upstream, reader):
        if folder.exists():
            workshop.remove(folder)


def refused(shop: Workshop, folder: Path, *words: str, code: int = 1) -> str:
    """What a command says that is refused: one line, and one what to do."""
    ended = shop.command(folder, *words)
    assert ended.code == code, ended
    said = [line for line in ended.err if line.startswith("error: ")]
    assert len(said) == 1 and "Traceback" not in "".join(ended.err), ended
    return "\n".join(ended.err)


def files(folder: Path) -> set[str]:
    return {file.name for file in (folder / "warehouse" / "inputs" / "roads").glob("*.parquet")}


def test_the_page_is_what_happens(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("several-programs.md", tmp_path, dd, monkeypatch, steps=28)


@pytest.mark.sample(2, of="readers")
def test_a_reader_has_no_byte_of_the_inputs(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    before = {entry.address: entry.size for entry in store.entries(upstream / "warehouse")}
    workshop.done(reader, "run")
    assert not (reader / "warehouse" / "inputs").exists()
    new = {entry.address for entry in store.entries(upstream / "warehouse")} - before.keys()
    assert [point.parent.name for point in new] == [readers.FOLDER]
    ours, other = contents(workshop.project(reader)), contents(workshop.project(upstream))
    assert {name: rows for name, rows in ours.items() if name.startswith("inputs/")}.keys() == other.keys()
    workshop.done(reader, "verify", "--last", "5")
    assert workshop.command(reader, "doctor", "--deep").code == 0
    shown = json.loads(workshop.command(reader, "status", "--json").out[0])
    assert shown["upstream"]["project"] == str(upstream) and shown["upstream"]["waiting"] == 0
    (held,) = json.loads(workshop.command(upstream, "status", "--json").out[0])["readers"]
    assert (held["project"], held["folded"], held["lost"]) == (str(reader), [[2]], False)
    listed = [json.loads(line) for line in workshop.command(upstream, "readers", "--json").out]
    assert [(item["name"], item["warehouse"]) for item in listed] == [(held["name"], str(reader / "warehouse"))]
    workshop.done(reader, "run", "--full-refresh")
    assert [row["sum"] for row in open_project(str(reader))["towns"].at(2).polars().select(sum="diff").to_dicts()]


@pytest.mark.sample(1, of="readers")
def test_files_stay_until_every_reader_has_gone_on(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    workshop.done(reader, "run")
    first = files(upstream)
    workshop.done(upstream, "run")
    workshop.done(upstream, "ingest", "roads", "more.csv")
    workshop.done(upstream, "run")
    workshop.done(upstream, "compact", "--since", "latest")
    workshop.done(upstream, "ingest", "roads", "most.csv", "--late", "restate")
    workshop.done(upstream, "run")
    workshop.done(upstream, "compact", "--since", "latest")
    assert first < files(upstream) and len(files(upstream)) > 3
    workshop.done(reader, "run", "--to-version", "3")
    workshop.done(reader, "verify")
    workshop.done(reader, "run")
    rows = Counter[tuple[Row, int]]()
    for source in ("roads", "more", "most"):
        for line in SOURCES[source].split():
            src, dst, km, version, diff = line.split(",")
            rows[(src, dst, int(km)), int(version)] += int(diff)
    assert check_law(workshop, reader, rows) == 1  # history was given up there, and all of it had been folded
    workshop.done(upstream, "compact")
    assert not first & files(upstream) and len(files(upstream)) <= 2
    workshop.done(reader, "verify")


@pytest.mark.long
def test_late_rows_are_folded_before_history_is_given_up(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    """From a kept point, as they were in the other project: not from nothing, because the logs were compacted since."""
    upstream, reader = pair
    workshop.done(reader, "run", "--to-version", "0")
    workshop.done(reader, "run")
    workshop.done(upstream, "ingest", "roads", "late.csv")
    workshop.done(upstream, "run")
    workshop.done(upstream, "compact", "--since", "latest")
    (said,) = [json.loads(line) for line in workshop.command(reader, "run", "--json").out[-1:]]
    assert "folded again from run 1" in " ".join(said["notes"]), said["notes"]
    (shown,) = [json.loads(line) for line in workshop.command(reader, "status", "--json").out]
    assert (shown["folded"], shown["since"], shown["upstream"]["waiting"]) == (2, 2, 0)
    workshop.done(reader, "verify")


@pytest.mark.long
def test_a_reader_of_an_input_that_seldom_changes_keeps_no_history(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    """Its inputs end long before the version from which the other logs are exact."""
    upstream, reader = pair
    (reader / "program.py").write_text("def program(depots):\n    return {'places': depots.distinct()}\n")
    workshop.done(reader, "run")
    for source in ("more", "most"):
        workshop.done(upstream, "ingest", "roads", f"{source}.csv")
    workshop.done(upstream, "run")
    workshop.done(upstream, "compact", "--since", "latest")
    workshop.done(reader, "run")
    (upstream / "new.csv").write_text("town,version,diff\nZ,7,1\n")
    workshop.done(upstream, "ingest", "depots", "new.csv")
    workshop.done(reader, "run")
    frame = open_project(str(reader))["places"].at("latest").polars()
    assert sorted(frame["town"]) == ["A", "Z"]
    workshop.done(reader, "verify")
    workshop.done(reader, "run", "--full-refresh")
    workshop.done(reader, "verify")


@pytest.mark.long
def test_a_reader_that_was_forgotten(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    workshop.done(reader, "run")
    workshop.done(upstream, "run")
    workshop.done(upstream, "ingest", "roads", "more.csv")
    workshop.done(upstream, "run")
    assert "no such reader" in refused(workshop, upstream, "readers", "--forget", "none", code=2)
    workshop.done(upstream, "readers", "--forget", str(reader))
    assert workshop.command(upstream, "readers").err[-1].startswith("nobody reads these inputs")
    workshop.done(upstream, "compact", "--since", "latest")
    workshop.done(upstream, "ingest", "roads", "most.csv", "--late", "restate")
    workshop.done(upstream, "compact")
    said = refused(workshop, reader, "run")
    assert "had no hold there" in said and "--full-refresh" in said
    workshop.done(reader, "run", "--full-refresh")
    workshop.done(reader, "verify")
    assert len(readers.holds(upstream / "warehouse")) == 1


@pytest.mark.long
def test_a_reader_that_comes_late_begins_where_history_does(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    workshop.done(upstream, "run")
    workshop.done(upstream, "compact", "--since", "latest")
    workshop.done(upstream, "ingest", "roads", "more.csv")
    workshop.done(reader, "ingest")
    workshop.done(reader, "run")
    workshop.done(reader, "verify", "--last", "5")
    said = refused(workshop, reader, "show", "towns", "--at", "1", code=2)
    assert "can no longer be read" in said and "2" in said


@pytest.mark.long
def test_who_deletes_knows_a_hold_that_cannot_be_read(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    workshop.done(reader, "run")
    workshop.done(upstream, "run")
    (hold,) = (upstream / "warehouse" / readers.FOLDER).iterdir()
    hold.write_text("{}")
    workshop.done(upstream, "ingest", "roads", "more.csv")
    before = files(upstream)
    said = refused(workshop, upstream, "compact")
    assert str(hold) in said and f"--forget {hold.stem}" in said and before <= files(upstream)
    assert str(hold) in refused(workshop, reader, "run")
    workshop.done(upstream, "readers", "--forget", hold.stem)
    workshop.done(upstream, "compact")
    workshop.done(reader, "run")


@pytest.mark.sample(2, of="readers")
def test_the_other_warehouse_is_missing_older_or_another_one(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    backup = upstream.parent / f"{upstream.name}-backup"
    shutil.copytree(upstream / "warehouse", backup)
    workshop.done(upstream, "ingest", "roads", "more.csv")
    workshop.done(reader, "run")
    before = contents(workshop.project(reader))
    towns = workshop.command(reader, "show", "towns").out
    shutil.move(upstream / "warehouse", upstream / "away")
    for words in (["run"], ["sync"], ["ingest"], ["run", "--dry-run"]):
        said = refused(workshop, reader, *words)
        assert f"the inputs are those of {upstream}: there is no warehouse in" in said
    assert workshop.command(reader, "show", "towns").out == towns
    shown = workshop.command(reader, "status")
    assert any("there is no warehouse in" in line for line in shown.out), shown
    shutil.move(backup, upstream / "warehouse")
    assert "it is of an older backup, or of another warehouse" in refused(workshop, reader, "run")
    workshop.done(upstream, "ingest", "roads", "most.csv")
    assert "has another entry" in refused(workshop, reader, "run")
    shutil.rmtree(upstream / "warehouse")
    shutil.move(upstream / "away", upstream / "warehouse")
    assert_same(contents(workshop.project(reader)), before, "the reader")
    workshop.done(reader, "run")
    shutil.move(upstream, moved := upstream.with_name(f"{upstream.name}-moved"))
    assert "there is no dd.toml in" in refused(workshop, reader, "run", code=2)
    (reader / "dd.toml").write_text(READER.format(upstream=moved))
    workshop.done(moved, "ingest", "roads", "most.csv")
    workshop.done(reader, "run")
    workshop.done(reader, "verify")
    shutil.rmtree(moved)


def test_a_warehouse_of_another_format_is_named(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    log = upstream / "warehouse" / "ledger" / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text(file.read_text().replace("ledger of ddcore, format 2", "ledger of ddcore, format 9"))
    said = refused(workshop, reader, "run")
    assert f"the inputs are those of {upstream}" in said and "has the warehouse format 9" in said


@pytest.mark.long
def test_a_moved_or_copied_reader_is_another_one(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    workshop.done(reader, "run")
    copied = reader.with_name(f"{reader.name}-copy")
    shutil.copytree(reader, copied)
    workshop.done(upstream, "ingest", "roads", "more.csv")
    workshop.done(copied, "run")
    holds = readers.holds(upstream / "warehouse")
    assert sorted(hold.folded for hold in holds.values()) == [[[2]], [[4]]]
    workshop.done(reader, "run")
    shutil.rmtree(copied)
    assert sorted(hold.is_lost for hold in readers.holds(upstream / "warehouse").values()) == [False, True]
    assert any("its warehouse is gone" in line for line in workshop.command(upstream, "status").out)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ('[inputs]\nfrom = "../none"', "[inputs] from: there is no dd.toml in"),
        ('[inputs]\nfrom = "."', "[inputs] from: names this project itself"),
        ('[inputs]\nfrom = ""', "[inputs] from: must be text"),
        ("[inputs]\nfrom = 3", "inputs.from must be a section"),
        ('[inputs]\nfrom = "../mine"\n[time]\ndims = ["day", "hour"]', "[time] dims: the inputs are those of"),
        (
            'warehouse = "../mine/warehouse"\n[inputs]\nfrom = "../mine"',
            "[inputs] from: both projects have the warehouse",
        ),
        ('[inputs]\nfrom = "../chain"', "reads its inputs from ../mine"),
    ],
)
def test_mistakes_in_the_file(settings: str, says: str, copied: Path, dd: Command) -> None:
    for name, text in (("reader", settings), ("chain", '[inputs]\nfrom = "../mine"')):
        (copied.parent / name).mkdir()
        (copied.parent / name / "dd.toml").write_text(f'[project]\nprogram = "program.py:program"\n{text}\n')
    code, _, err = dd("run", "--project", str(copied.parent / "reader"))
    assert code == 2 and says in err[0] and len(err) <= 2, err
    assert not (copied / "warehouse" / readers.FOLDER).exists()


def test_what_only_the_other_project_does(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    workshop.done(reader, "ingest")
    for words in (["ingest", "roads", str(upstream / "more.csv")], ["ingest", "--undo", "1"], ["ingest", "roads"]):
        assert f"is that of {upstream}" in refused(workshop, reader, *words, code=2)
    outside = reader.with_name(f"{reader.name}-outside")
    assert "--new-warehouse" in refused(workshop, reader, "run", "--warehouse", str(outside))
    workshop.done(reader, "ingest", "--new-warehouse", "--warehouse", str(outside))
    workshop.done(reader, "run", "--warehouse", str(outside))
    shutil.rmtree(outside)


def test_a_warehouse_that_ingested_these_inputs_itself_is_refused(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    own = workshop.copy(workshop.base("ingested"))
    text = (own / "dd.toml").read_text()
    (own / "dd.toml").write_text(READER.format(upstream=upstream))
    assert "has inputs of its own" in refused(workshop, own, "run", code=2)
    workshop.done(reader, "run")
    (reader / "dd.toml").write_text(text)
    for words in (["run"], ["show", "towns"], ["ingest", "roads", str(upstream / "more.csv")]):
        assert "does not say so any more" in refused(workshop, reader, *words)
    workshop.remove(own)


@pytest.mark.long
def test_only_the_first_run_waits_for_the_other_project(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    with Warehouse(upstream / "warehouse").lock("a test"):
        assert "is in use by a test" in refused(workshop, reader, "run", code=75)
    workshop.done(reader, "run")
    workshop.done(upstream, "ingest", "roads", "more.csv")
    with Warehouse(upstream / "warehouse").lock("a test"):
        workshop.done(reader, "sync")
    workshop.done(reader, "verify")


@pytest.mark.long
def test_columns_that_change_there_change_here(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    workshop.done(reader, "run")
    text = (upstream / "dd.toml").read_text()
    evolved = 'length = "float64" }\nrenamed = { length = "km" }\nwidened = { length = "int64" }'
    (upstream / "dd.toml").write_text(text.replace('km = "int64" }', evolved))
    (reader / "program.py").write_text("def program(roads):\n    return {'lengths': roads.select('dst', 'length')}\n")
    workshop.done(upstream, "ingest", "roads", "more.csv", "--column", "length=km")
    workshop.done(reader, "run")
    workshop.done(reader, "verify")
    assert open_project(str(reader))["lengths"].at(4).polars().schema["length"].is_float()


@pytest.mark.long
def test_a_branch_of_a_reader_is_a_reader(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    """It holds what it has not read, though the warehouse that it is of goes on."""
    upstream, reader = pair
    workshop.done(reader, "ingest")
    workshop.done(reader, "branch", "early")  # nothing is folded yet
    workshop.done(reader, "run")
    workshop.done(reader, "branch", "try")
    workshop.done(upstream, "ingest", "roads", "more.csv")
    workshop.done(upstream, "run")
    workshop.done(reader, "run")
    workshop.done(upstream, "compact", "--since", "latest")
    workshop.done(upstream, "ingest", "roads", "most.csv")
    workshop.done(reader, "run")
    workshop.done(upstream, "compact")
    project = find_project(reader, workshop.environment(reader), {"branch": "try"})
    assert contents(project)["inputs/roads"]["version"].max() == 2
    workshop.done(reader, "run", "--branch", "try", "--to-version", "3")
    workshop.done(reader, "verify", "--last", "2", "--branch", "try")
    for branch in ("try", "early"):
        workshop.done(reader, "run", "--branch", branch)
        workshop.done(reader, "verify", "--branch", branch)
        ended = workshop.command(reader, "diff", "towns", "--against", branch, "--exit-code")
        assert ended.code == 0, ended
    known = [hold.project for hold in readers.holds(upstream / "warehouse").values()]
    assert sorted(known) == [str(reader), f"{reader} (branch early)", f"{reader} (branch try)"]
    for branch in ("try", "early"):
        workshop.done(reader, "branch", branch, "--delete")
    assert [hold.project for hold in readers.holds(upstream / "warehouse").values()] == [str(reader)]
    workshop.done(reader, "verify")


@pytest.mark.long
def test_several_time_dimensions(workshop: Workshop) -> None:
    """A time that is open there is closed here: what was folded at and beyond it is folded again."""
    upstream = workshop.copy(workshop.base("times"))
    reader = reader_of(workshop, upstream, program=TIMES_PROGRAM)
    workshop.done(reader, "run")
    (upstream / "late.csv").write_text("word,n,day,revision,diff\ncow,3,1,1,1\ncat,2,2,0,1\n")
    workshop.done(upstream, "ingest", "words", "late.csv")
    workshop.done(reader, "ingest")
    assert Ledger.load(workshop.project(reader).tables).restated() == ((1, 1), (2, 0))
    workshop.done(reader, "run")
    workshop.done(reader, "verify")
    workshop.done(upstream, "run")
    workshop.done(upstream, "ingest", "--undo", "2", "--late", "restate")
    workshop.done(reader, "run")
    workshop.done(reader, "verify")
    rows = [contents(workshop.project(folder))["outputs/words"] for folder in (reader, upstream)]
    assert rows[0].filter(pl.col("word") == "cow")["diff"].sum() == 0 < len(rows[1])
    for folder in (reader, upstream):
        workshop.remove(folder)


@pytest.mark.long
def test_a_reader_follows(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    """Whatever the other project ingests, or takes back, is folded without a command here."""
    upstream, reader = pair
    with (reader / "dd.toml").open("a") as file:
        file.write("[outputs.towns]\ntable = true\n")

    def towns() -> list[str]:
        table = reader / "warehouse" / "tables" / "towns"
        return sorted(pl.read_delta(str(table))["town"]) if [*table.glob("_delta_log/*.json")] else []

    with following(reader) as child:
        wait_for(lambda: towns() == [*"ABCDE"], reader)
        workshop.done(upstream, "ingest", "roads", "late.csv")
        wait_for(lambda: towns() == [*"ABCDEF"], reader)
        workshop.done(upstream, "ingest", "--undo", "3")
        wait_for(lambda: towns() == [*"ABCDE"], reader)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    assert f"following the inputs of {upstream}" in (reader / "err").read_text()
    workshop.done(reader, "verify")


@pytest.mark.spark
def test_a_reader_on_spark(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    """Tasks find the inputs in the other warehouse."""
    upstream, reader = pair
    project = replace(workshop.project(reader), engine="spark")
    assert replay.run(project, engine="spark", parallelism=2).run == 1
    workshop.done(upstream, "ingest", "roads", "more.csv")
    assert replay.run(project, engine="spark", parallelism=2).notes
    workshop.done(reader, "verify", "--last", "5")


@pytest.mark.long
def test_a_reader_in_an_object_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    with store_shop(tmp_path_factory.mktemp("readers-in-a-store")) as shop:
        upstream = shop.copy(shop.base("ingested"))
        text = (upstream / "dd.toml").read_text()
        named = text.replace("[run]", f'warehouse = "{shop.root(upstream)}"\n[run]', 1)
        (upstream / "dd.toml").write_text(f"{named}[retention]\ndays = 0\n")
        reader = reader_of(shop, upstream)
        shop.done(reader, "ingest")
        shop.done(reader, "run")
        (hold,) = readers.holds(shop.root(upstream)).values()
        assert hold.folded == [[2]] and hold.warehouse == str(shop.root(reader)) and not hold.is_lost
        shop.done(upstream, "run")
        shop.done(upstream, "ingest", "roads", "more.csv")
        shop.done(upstream, "run")
        shop.done(upstream, "compact", "--since", "latest")
        shop.done(reader, "run")
        shop.done(reader, "verify")
        assert shop.command(reader, "doctor", "--deep").code == 0
        (held,) = readers.holds(shop.root(upstream)).values()
        assert held.folded == [[4]]
        shop.done(upstream, "readers", "--forget", held.project)
        assert readers.names(shop.root(upstream)) == []


# --- killed at each step ----------------------------------------------------------------------------------------------


def reached(shop: Workshop, reader: Path, upstream: Path, *words: str) -> list[str]:
    """The places of a reader's command on copies of both projects, ``NAME:COUNT``."""
    ours, other = copies(shop, reader, upstream)
    log = shop.folder / "places.log"
    log.unlink(missing_ok=True)
    ended = shop.command(ours, *words, DDCORE_FAILPOINT_LOG=str(log))
    assert ended.code == 0, ended
    names = [line.split()[1] for line in log.read_text().splitlines()]
    for folder in (ours, other):
        shop.remove(folder)
    return [f"{name}:{names[: number + 1].count(name)}" for number, name in enumerate(names)]


def copies(shop: Workshop, reader: Path, upstream: Path) -> tuple[Path, Path]:
    other, ours = shop.copy(upstream), shop.copy(reader)
    (ours / "dd.toml").write_text(READER.format(upstream=f"../{other.name}"))
    return ours, other


@pytest.mark.long
def test_a_reader_that_is_killed_at_any_step(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    """Its first run, while the other project goes on: nothing of that changes, and all is read in the end."""
    upstream, reader = pair
    workshop.done(upstream, "run")
    workshop.done(upstream, "compact", "--since", "latest")
    workshop.done(upstream, "ingest", "roads", "more.csv")
    whole, other = copies(workshop, reader, upstream)
    for folder, words in ((whole, ["run"]), (other, ["ingest", "roads", "most.csv"]), (whole, ["run"])):
        workshop.done(folder, *words)
    wanted_rows = contents(workshop.project(whole))
    points = reached(workshop, reader, upstream, "run")
    assert {"after-reader", "after-hold", "after-ingest", "after-compact", "after-run"} <= {
        point.partition(":")[0] for point in points
    }
    for point in points:
        ours, other = copies(workshop, reader, upstream)
        before = contents(workshop.project(other))
        ended = workshop.command(ours, "run", DDCORE_FAILPOINT=point)
        assert ended.code == -signal.SIGKILL, (point, ended)
        assert_same(contents(workshop.project(other)), before, point)
        contents(workshop.project(ours))  # what it names can be read
        workshop.done(other, "ingest", "roads", "most.csv")
        workshop.done(other, "run")
        workshop.done(other, "compact", "--since", "latest")
        workshop.done(ours, "run")
        workshop.done(ours, "verify")
        outputs = {name: rows for name, rows in contents(workshop.project(ours)).items() if name == "outputs/towns"}
        assert totals(outputs["outputs/towns"]) == totals(wanted_rows["outputs/towns"]), point
        for folder in (ours, other):
            workshop.remove(folder)
    workshop.remove(whole)


def totals(rows: pl.DataFrame) -> Counter[str]:
    held = Counter[str]()
    for town, diff in rows.select("town", "diff").rows():
        held[town] += diff
    return held


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [["ingest", "roads", "more.csv"], ["ingest", "--undo", "1", "--late", "restate"], ["compact"]],
    ids=" ".join,
)
def test_the_other_project_is_killed(words: list[str], workshop: Workshop, pair: tuple[Path, Path]) -> None:
    """Between any two of its steps a reader reads what is recorded; afterwards, what the next command recorded."""
    upstream, reader = pair
    workshop.done(upstream, "run")
    workshop.done(reader, "run")
    for point in ("after-file:1", "after-table:1", "after-ledger-file:1"):
        ours, other = copies(workshop, reader, upstream)
        arguments = workshop.placed(other, words)
        ended = workshop.command(other, *arguments, DDCORE_FAILPOINT=point)
        assert ended.code in (0, -signal.SIGKILL), (point, ended)
        workshop.done(ours, "run")
        workshop.done(ours, "verify")
        workshop.done(other, "run")
        workshop.done(ours, "run")
        workshop.done(ours, "verify")
        assert workshop.command(ours, "doctor", "--deep").code == 0
        rows, there = (contents(workshop.project(folder)).get("inputs/roads") for folder in (ours, other))
        assert (rows is None and there is None) or (rows is not None and there is not None and rows.equals(there)), (
            point
        )
        for folder in (ours, other):
            workshop.remove(folder)


# --- in any order -----------------------------------------------------------------------------------------------------

TOWNS = "ABCDEF"
PLACES = (
    "after-lock", "after-reader", "after-hold", "after-ingest", "after-undo", "after-compact", "after-intent",
    "after-file", "after-table", "after-run", "after-delete", "after-ledger-file",
)  # fmt: skip


STEPS = [
    "ingest",
    "ingest",
    "ingest",
    "restate",
    "undo",
    "run",
    "run",
    "since",
    "compact",
    "reads",
    "reads",
    "reads",
    "part",
    "to",
    "kill",
    "kill",
    "own-since",
    "refresh",
    "own-compact",
]


class Lives:
    """A project that ingests, and two that read its inputs. ``truth``: the rows that it took in, by version."""

    def __init__(self, shop: Workshop, rng: random.Random) -> None:
        self.shop, self.rng, self.folder = shop, rng, shop.copy(shop.base("ingested"))
        settings = (self.folder / "dd.toml").read_text()
        (self.folder / "dd.toml").write_text(f"{settings}[retention]\nversions = 1\ndays = 0\n")
        self.readers = [reader_of(shop, self.folder, name) for name in ("one", "two")]
        self.truth, self.count, self.transcript, self.checked = self.rows(), 7, list[str](), 0

    def rows(self) -> Counter[tuple[Row, int]]:
        """The rows of the input, as its table has them now."""
        frame, held = contents(self.shop.project(self.folder)).get("inputs/roads"), Counter[tuple[Row, int]]()
        if frame is None:  # every ingest was undone
            return held
        for src, dst, km, version, diff in frame.select("src", "dst", "km", "version", "diff").rows():
            held[(src, dst, km), version] += diff
        return held

    def do(self, *words: str, folder: Path | None = None, **environment: str) -> int:
        folder = folder or self.folder
        ended = self.shop.command(folder, *words, **environment)
        self.transcript.append(f"{folder.name}: {' '.join(words)} {environment or ''}: {ended.code} {ended.err[-2:]}")
        return ended.code

    def ingests(self, *words: str) -> int:
        """A command that changes the input; the truth changes by what it changed."""
        before, code, after = self.rows(), self.do(*words), self.rows()
        for key in before.keys() | after.keys():
            self.truth[key] += after[key] - before[key]
        return code

    def new_rows(self) -> str:
        self.count += 1
        file, rng = self.folder / f"new-{self.count}.csv", self.rng
        at = self.count if rng.random() < 0.6 else rng.randint(1, self.count)
        rows = [f"{rng.choice(TOWNS)},{rng.choice(TOWNS)},{rng.randint(1, 9)},{at},1" for _ in range(rng.randint(1, 3))]
        file.write_text(HEAD + "\n".join(rows) + "\n")
        return str(file)

    def step(self) -> None:
        """A command on one of them. What readers do changes nothing of the others."""
        rng, reader = self.rng, self.rng.choice(self.readers)
        kind = rng.choice(STEPS)
        at, late, point = (
            str(rng.randint(1, self.count)),
            rng.choice(("refuse", "restate", "restate")),
            rng.choice(PLACES),
        )
        if (words := self.upstreams(kind, at, late)) is not None:
            code = (self.ingests if words[0] == "ingest" else self.do)(*words)
            assert code in (0, 1, 2), "\n".join(self.transcript)
            return
        others = {item: contents(self.shop.project(item)) for item in (*self.readers, self.folder) if item != reader}
        environment = {"DDCORE_FAILPOINT": f"{point}:{rng.randint(1, 3)}"} if kind == "kill" else {}
        code = self.do(*self.readers_words(kind, at), folder=reader, **environment)
        is_begun = (reader / "warehouse" / "ledger").is_dir()
        assert code in (0, 2, -signal.SIGKILL) or not is_begun, "\n".join(self.transcript)
        if kind in ("reads", "refresh"):
            assert code == 0, "\n".join(self.transcript)
            self.checked += self.law(reader)
        for item, before in others.items():
            assert_same(contents(self.shop.project(item)), before, (item.name, self.transcript))

    def upstreams(self, kind: str, at: str, late: str) -> list[str] | None:
        """The words of a command of the project that ingests; None for one of a reader."""
        if kind in ("ingest", "restate"):
            return ["ingest", "roads", self.new_rows(), *(["--late", late] if kind == "ingest" else ["--restate", at])]
        number = "1" if at == "2" else at  # the second ingest is that of depots, whose rows the truth takes for given
        words = {"undo": f"ingest --undo {number} --late restate", "since": "compact --since latest"}
        words |= {"run": "run", "compact": "compact"}
        return words[kind].split() if kind in words else None

    @staticmethod
    def readers_words(kind: str, at: str) -> list[str]:
        words = {"to": f"run --to-version {at}", "part": "run --select t*", "refresh": "run --full-refresh"}
        words |= {"own-since": "compact --since latest", "own-compact": "compact"}
        return words.get(kind, "run").split()

    def law(self, reader: Path) -> int:
        try:
            return check_law(self.shop, reader, self.truth)
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.transcript)) from error

    def end(self) -> None:
        """The law on all; and nothing is missing."""
        for folder in (self.folder, *self.readers):
            for words in (["run"], ["verify"], ["doctor", "--deep"]):
                assert self.do(*words, folder=folder) == 0, self.transcript
        self.checked += sum(self.law(reader) for reader in self.readers)
        check_law(self.shop, self.folder, self.truth, 0)
        # Where history was given up, each of the two has but one version; where all was undone, it may have none.
        least = 1 if any("--since" in line for line in self.transcript) else 5
        assert self.checked > least or not +self.rows(), "\n".join(self.transcript)
        for folder in (*self.readers, self.folder):
            self.shop.remove(folder)


def live(shop: Workshop, seed: int, steps: int) -> None:
    lives = Lives(shop, random.Random(seed))
    for _ in range(steps):
        lives.step()
    lives.end()


@pytest.mark.sample(1, of="readers")
def test_two_readers_and_their_upstream_in_any_order(workshop: Workshop, seed: int) -> None:
    live(workshop, seed, 6)


@pytest.mark.long
@pytest.mark.parametrize("number", range(60))
def test_two_readers_and_their_upstream_in_any_order_often(number: int, workshop: Workshop, seed: int) -> None:
    live(workshop, seed + number, 40)
