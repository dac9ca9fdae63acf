"""Branches: copies of a warehouse that go their own way. Whatever one does, the other stays whole and keeps the law.

In the random test two or three warehouses of one project take ingests, runs, undos, compactions and refreshes in any
order; after each, the tables of all others are what they were, and each has what its own rows give by the reference.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pages
import polars as pl
import pytest
from deltalake import DeltaTable
from stores import StoreShop, store_shop
from trams import Command, journeys, records
from workshop import Workshop, assert_same, contents, is_same

from ddcore.base.errors import UsageError
from ddcore.io.project.finding import find_project
from ddcore.io.reading.opened import open as open_project
from ddcore.io.storage import branches, objects, store
from ddcore.io.storage.address import Location
from ddcore.io.storage.warehouse import Warehouse

HEAD = "diff,src,dst,minutes\n"


def add(project: Path, name: str, rows: str) -> str:
    (project / name).write_text(HEAD + rows)
    return name


def on(branch: str) -> list[str]:
    return ["--branch", branch]


# --- what a branch is -------------------------------------------------------------------------------------------------


def test_a_branch_has_all_that_the_warehouse_has_and_no_byte_of_its_own(copied: Path, dd: Command) -> None:
    code, out, err = dd("branch", "try", "--json")
    assert code == 0, err
    (said,) = records(out)
    assert said["source"] == "main" and said["files"] > 20 and not said["deleted"]
    ours, branched = find_project(copied), find_project(copied, {}, {"branch": "try"})
    assert branched.warehouse == copied / "warehouse" / "branches" / "try" and branched.home == ours.warehouse
    assert_same(contents(branched), contents(ours), "new")
    for entry in store.entries(branched.warehouse):
        name = entry.address.name
        assert isinstance(entry.address, Path)
        assert entry.address.stat().st_nlink == 2 or name in (branches.NOTE, "_last_checkpoint"), entry
    assert dd("log", *on("try"))[1] == dd("log")[1]
    assert dd("verify", "-q", *on("try"))[0] == 0
    assert all(line.startswith(("ok", "note", "  ")) for line in dd("doctor", "--deep", *on("try"))[1])


def test_each_goes_its_own_way_and_they_are_compared(copied: Path, dd: Command) -> None:
    assert dd("branch", "try", "-q")[0] == 0
    new = add(copied, "more.csv", "1,Zoo,Cove,4\n-1,Central,Market,3\n1,Central,Market,1\n")
    assert dd("ingest", "links", new, "--version", "6", "-q", *on("try"))[0] == 0
    assert dd("run", "-q", *on("try"))[0] == 0
    before = journeys(copied)
    assert dd("diff", "journeys", "--against", "try")[1][1] == "main..try at version 5  +0 -0"
    assert dd("ingest", "links", add(copied, "other.csv", "1,Zoo,Pier,1\n"), "--version", "6", "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    assert journeys(copied) == {**before, "Pier": 15}
    code, out, _ = dd("diff", "journeys", "--against", "try", "--exit-code", "--key", "stop")
    assert code == 3 and out[1].startswith("main..try at version 6  ")
    changed = {line.split()[1]: line.split()[0] for line in out[4:]}
    assert changed == {"Cove": "+", "Pier": "-", **dict.fromkeys(("Bridge", "Harbour", "Lighthouse", "Market"), "~")}
    there, ours = (open_project(branch=name)["journeys"].at(6).polars() for name in ("try", "main"))
    both = pl.concat([there, ours.with_columns(-pl.col("diff"))]).group_by("stop", "total").agg(pl.col("diff").sum())
    wanted = {(row[:-1], row[-1]) for row in both.filter(pl.col("diff") != 0).rows()}
    _, out, _ = dd("diff", "journeys", "6", "--against", "try", "--json")
    head, *rows = records(out)[1:]
    assert {((row["row"]["stop"], row["row"]["total"]), row["diff"]) for row in rows} == wanted
    assert (head["at"], head["branch"], head["against"]) == (6, "main", "try")
    assert (head["plus"], head["minus"]) == (sum(d > 0 for _, d in wanted), sum(d < 0 for _, d in wanted))
    _, out, _ = dd("diff", "journeys", "6", "--against", "main", "--json", *on("try"))
    assert {(tuple(row["row"].values()), -row["diff"]) for row in records(out)[2:]} == wanted
    _, out, _ = dd("diff", "journeys", "--against", "try", "--where", "stop = 'Cove'", "--json")
    assert [row["row"]["stop"] for row in records(out)[2:]] == ["Cove"]
    for name in ("main", "try"):
        assert dd("verify", "-q", *on(name))[0] == 0


def test_compaction_and_a_refresh_of_one_side_change_no_comparison(copied: Path, dd: Command) -> None:
    """Files that both have are left out of a comparison; after these commands they have none in common."""
    assert dd("branch", "try", "-q")[0] == 0
    assert dd("ingest", "links", add(copied, "more.csv", "1,Zoo,Cove,4\n"), "--version", "6", "-q", *on("try"))[0] == 0
    assert dd("run", "-q", *on("try"))[0] == 0
    shown = dd("diff", "journeys", "5", "--against", "try")[1]
    for command in (["run", "--full-refresh", "-q"], ["compact", "-q"], ["compact", "-q", *on("try")]):
        assert dd(*command)[0] == 0
        assert dd("diff", "journeys", "5", "--against", "try")[1] == shown


def test_a_changed_program_on_a_branch(copied: Path, dd: Command) -> None:
    assert dd("branch", "try", "-q")[0] == 0
    program = copied / "program.py"
    text = program.read_text()
    at = text.index("return {")
    program.write_text(text[:at] + text[at:].replace("return {", 'return {"stops": starts, ', 1))
    assert dd("run", "-q", *on("try"))[0] == 0
    code, out, _ = dd("show", "stops", "--json", *on("try"))
    assert code == 0 and records(out)[2:]
    program.write_text(text)
    assert dd("run", "--json")[0] == 0
    code, _, err = dd("diff", "stops", "--against", "main", *on("try"))
    assert code == 2 and "no output 'stops'" in err[0]
    assert dd("verify", "-q")[0] == 0


def test_what_a_changed_program_changes_at_a_version_that_both_have(copied: Path, dd: Command) -> None:
    program = copied / "program.py"
    program.write_text(program.read_text().replace("begin.iterate(ride)", 'begin.iterate(ride).where("total < 18")'))
    assert dd("branch", "try", "-q")[0] == 0
    assert dd("run", "-q", "--corrections", "rewrite", *on("try"))[0] == 0
    code, out, _ = dd("diff", "journeys", "--against", "try", "--json", "--exit-code")
    assert (code, records(out)[-1]) == (3, {"row": {"stop": "Lighthouse", "total": 18}, "diff": -1})


def test_a_branch_of_a_branch_and_each_deleted_alone(copied: Path, dd: Command) -> None:
    assert dd("branch", "one", "-q")[0] == 0
    assert dd("ingest", "links", add(copied, "more.csv", "1,Zoo,Cove,4\n"), "--version", "6", "-q", *on("one"))[0] == 0
    assert dd("run", "-q", *on("one"))[0] == 0
    assert dd("branch", "two", "-q", *on("one"))[0] == 0
    listed = {record["name"]: record for record in records(dd("branch", "--json")[1])}
    assert listed["one"]["source"] == "main" and listed["two"]["source"] == "one"
    assert (listed["one"]["made_of_run"], listed["two"]["made_of_run"], listed["two"]["folded"]) == (1, 2, [6])
    assert dd("branch", "one", "--delete", "-q")[0] == 0
    assert [record["name"] for record in records(dd("branch", "--json")[1])] == ["two"]
    assert dd("verify", "-q", *on("two"))[0] == 0 and dd("verify", "-q")[0] == 0
    assert dd("doctor", "--deep", *on("two"))[0] == 0
    assert [store.names(copied / "warehouse" / "branches")] == [["two"]]


def test_the_warehouse_moves_and_a_branch_outlives_it(copied: Path, tmp_path: Path, dd: Command) -> None:
    """There is no absolute path anywhere: a branch is a whole warehouse, wherever it lies."""
    assert dd("branch", "try", "-q")[0] == 0
    shutil.move(copied / "warehouse", tmp_path / "moved")
    moved = ["--warehouse", str(tmp_path / "moved")]
    assert dd("verify", "-q", *moved, *on("try"))[0] == 0
    shutil.move(tmp_path / "moved" / "branches" / "try", copied / "warehouse")
    shutil.rmtree(tmp_path / "moved")
    assert dd("verify", "-q")[0] == 0
    assert dd("ingest", "links", add(copied, "more.csv", "1,Zoo,Cove,4\n"), "--version", "6", "-q")[0] == 0
    assert dd("run", "-q")[0] == 0
    assert dd("doctor", "--deep")[0] == 0


def test_other_readers_see_plain_tables(copied: Path, dd: Command) -> None:
    assert dd("branch", "try", "-q")[0] == 0
    table = copied / "warehouse" / "branches" / "try" / "outputs" / "journeys"
    assert pl.read_delta(str(table)).equals(pl.read_delta(str(copied / "warehouse" / "outputs" / "journeys")))
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(copied / "warehouse" / "outputs" / "journeys")).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False
    )
    for name in ("main", "try"):
        assert dd("verify", "-q", *on(name))[0] == 0


@pytest.mark.spark
def test_a_branch_on_spark(copied: Path, dd: Command, spark: object) -> None:
    assert dd("branch", "try", "-q")[0] == 0
    assert dd("ingest", "links", add(copied, "more.csv", "1,Zoo,Cove,4\n"), "--version", "6", "-q", *on("try"))[0] == 0
    assert dd("run", "-q", "--engine", "spark", *on("try"))[0] == 0
    assert dd("verify", "-q", *on("try"))[0] == 0
    assert dd("diff", "journeys", "--against", "try")[1][1].endswith("at version 5  +0 -0")


def test_the_page_on_branches_is_what_happens(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("branches.md", tmp_path, dd, monkeypatch, steps=15)


# --- what it leaves alone ---------------------------------------------------------------------------------------------


def published(project: Path, table: str) -> str:
    """The project's file with a table of its output, written."""
    file, section = project / "dd.toml", "[outputs.journeys]\n"
    text = file.read_text()
    assert text.count(section) == 1
    text = text.replace(section, f"{section}table = {table}\n")
    file.write_text(text)
    return text


def test_published_tables_and_the_hook_are_those_of_the_warehouse_alone(copied: Path, dd: Command) -> None:
    settings = published(copied, '"gold/journeys"')
    (copied / "hook.sh").write_text("#!/bin/sh\ncat >> told\n")
    (copied / "hook.sh").chmod(0o755)
    (copied / "dd.toml").write_text(settings.replace("[run]\n", '[run]\nhook = ["./hook.sh"]\n'))
    assert "hook" in (copied / "dd.toml").read_text()
    assert dd("run", "-q")[0] == 0
    assert dd("branch", "try", "-q")[0] == 0
    assert dd("ingest", "links", add(copied, "more.csv", "1,Zoo,Cove,4\n"), "--version", "6", "-q", *on("try"))[0] == 0
    before = pl.read_delta(str(copied / "gold" / "journeys"))
    told = (copied / "told").read_text() if (copied / "told").exists() else ""
    assert dd("run", "-q", *on("try"))[0] == 0
    assert pl.read_delta(str(copied / "gold" / "journeys")).equals(before)
    assert ((copied / "told").read_text() if (copied / "told").exists() else "") == told
    own = pl.read_delta(str(copied / "warehouse" / "branches" / "try" / "tables" / "journeys"))
    assert {*own["stop"]} == {*before["stop"], "Cove"}
    assert dd("verify", "-q", *on("try"))[0] == 0


def test_a_published_table_in_the_warehouse_is_shared_and_goes_on(copied: Path, dd: Command) -> None:
    published(copied, "true")
    assert dd("run", "-q")[0] == 0
    assert dd("branch", "try", "-q")[0] == 0
    assert dd("ingest", "links", add(copied, "more.csv", "1,Zoo,Cove,4\n"), "--version", "6", "-q", *on("try"))[0] == 0
    (said,) = records([dd("run", "--json", *on("try"))[1][-1]])
    assert [(table["plus"], table["made"]) for table in said["published"]] == [(1, "")]
    assert "Cove" not in [*pl.read_delta(str(copied / "warehouse" / "tables" / "journeys"))["stop"]]
    assert dd("verify", "-q")[0] == 0 and dd("verify", "-q", *on("try"))[0] == 0


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (["status", "--branch", "tri"], "has no branch 'tri'; there are: try", 2),
        (["ingest", "links", "data/links.csv", "--branch", "tri"], "has no branch 'tri'", 2),
        (["branch", "tri", "--delete"], "has no branch 'tri'", 2),
        (["branch", "--delete"], "which branch?", 2),
        (["branch", "main"], "main is the warehouse itself", 2),
        (["branch", "main", "--delete"], "main is the warehouse itself", 2),
        (["branch", "a/b"], "'a/b' cannot name a branch", 2),
        (["run", "--branch", "../try"], "'../try' cannot name a branch", 2),
        (["branch", "try"], "there is a branch try already", 2),
        (["diff", "journeys", "--against", "tri"], "--against: the warehouse", 2),
        (["diff", "journeys", "1", "2", "--against", "try"], "a second version does not go with it", 2),
        (["diff", "journeys", "--against", "try", "--stat"], "--stat does not go with it", 2),
        (["diff", "journeys"], "diff needs two versions", 2),
        (["diff", "journeys", "9", "--against", "try"], "version 9 is not yet complete", 2),
    ],
)
def test_mistakes(arguments: list[str], says: str, code: int, copied: Path, dd: Command) -> None:
    assert dd("branch", "try", "-q")[0] == 0
    before = {entry.address: entry.size for entry in store.entries(copied / "warehouse")}
    ended, _, err = dd(*arguments)
    assert ended == code and says in err[0], err
    after = {entry.address: entry.size for entry in store.entries(copied / "warehouse")}
    assert {location for location in after.keys() ^ before.keys() if location.name != ".lock"} == set()


def test_the_variable_names_a_branch_and_the_option_comes_first(
    copied: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dd("branch", "try", "-q")[0] == 0
    monkeypatch.setenv("DDCORE_BRANCH", "try")
    (said,) = records(dd("status", "--json")[1])
    assert said["branch"] == "try" and said["branches"] == ["try"] and said["origin"]["branch"] == "DDCORE_BRANCH"
    assert records(dd("status", "--json", *on("main"))[1])[0]["branch"] is None
    monkeypatch.setenv("DDCORE_BRANCH", "gone")
    code, _, err = dd("status")
    assert code == 2 and err[0].startswith("error: DDCORE_BRANCH: the warehouse")
    with pytest.raises(UsageError, match=r"dd.open: branch: .* has no branch 'none'"):
        open_project(branch="none")


def test_an_unfinished_run_is_finished_first(workshop: Workshop) -> None:
    folder = workshop.copy(workshop.base("folded"))
    ended = workshop.command(folder, "run", DDCORE_FAILPOINT="after-table")
    assert ended.code == -signal.SIGKILL
    ended = workshop.command(folder, "branch", "try")
    assert ended.code == 2 and "is not finished" in ended.err[-2], ended
    workshop.done(folder, "run")
    workshop.done(folder, "branch", "try")
    workshop.done(folder, "verify", "--branch", "try")


def test_a_killed_ingest_is_finished_before_the_branch_is_made(workshop: Workshop) -> None:
    folder = workshop.copy(workshop.base("folded"))
    ended = workshop.command(folder, "ingest", "roads", str(folder / "most.csv"), DDCORE_FAILPOINT="after-table")
    assert ended.code == -signal.SIGKILL
    ended = workshop.command(folder, "branch", "try")
    assert ended.code == 0 and any("is finished now" in line for line in ended.err), ended
    ours, branched = workshop.project(folder), on_branch(workshop, folder, "try")
    assert_same(contents(branched), contents(ours), "after")


def test_who_is_at_work_is_named(copied: Path, dd: Command) -> None:
    assert dd("branch", "try", "-q")[0] == 0
    for location in (copied / "warehouse", copied / "warehouse" / "branches" / "try"):
        with Warehouse(location).lock("a test"):
            code, _, err = dd("branch", "try", "--delete")
            assert code == 75 and "is in use by a test" in err[0]
    with Warehouse(copied / "warehouse").lock("a test"):
        assert dd("branch", "new")[0] == 75
        assert dd("run", "-q", *on("try"))[0] == 0
    with Warehouse(copied / "warehouse" / "branches" / "try").lock("a test"):
        assert dd("run", "-q")[0] == 0


def test_a_file_system_without_links_is_named(copied: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(1, os.strerror(1), str(source))

    monkeypatch.setattr(os, "link", refuse)
    code, _, err = dd("branch", "try")
    assert code == 1 and "cannot be linked to" in err[0] and "hard links" in err[1]
    assert store.names(copied / "warehouse" / "branches") == []


def test_a_damaged_branch_is_listed_and_deleted(copied: Path, dd: Command) -> None:
    assert dd("branch", "try", "-q")[0] == 0
    shutil.rmtree(copied / "warehouse" / "branches" / "try" / "ledger")
    code, out, _ = dd("branch")
    assert code == 0 and "the ledger was lost" in out[1]
    assert dd("branch", "try", "--delete", "-q")[0] == 0
    assert dd("verify", "-q")[0] == 0


# --- killed at each step ----------------------------------------------------------------------------------------------


def on_branch(shop: Workshop, folder: Path, name: str):  # type: ignore[no-untyped-def]
    return find_project(folder, shop.environment(folder), {"branch": name})


def reached(shop: Workshop, base: Path, *arguments: str) -> list[str]:
    """The places of a command, ``NAME:COUNT``."""
    folder, log = shop.copy(base), shop.folder / "places.log"
    log.unlink(missing_ok=True)
    ended = shop.command(folder, *arguments, DDCORE_FAILPOINT_LOG=str(log))
    assert ended.code == 0, ended
    names = [line.split()[1] for line in log.read_text().splitlines()]
    return [f"{name}:{names[: number + 1].count(name)}" for number, name in enumerate(names)]


def left_over(root: Location) -> list[str]:
    """What is below the folder of branches and in none."""
    there = branches.names(root)
    return [name for name in store.names(root / branches.FOLDER) if name not in there]


def kill_at(shop: Workshop, base: Path, point: str) -> None:
    """A branch that is killed while it is made is there as a whole or not at all, and the same while it is deleted."""
    folder = shop.copy(base)
    project, root = shop.project(folder), shop.warehouse(folder).root
    before = contents(project)
    ended = shop.command(folder, "branch", "try", DDCORE_FAILPOINT=point)
    assert ended.code == -signal.SIGKILL, (point, ended)
    is_there = branches.names(root) == ["try"]
    assert is_there == point.startswith("after-branch"), point
    if is_there:
        assert_same(contents(on_branch(shop, folder, "try")), before, point)
    said = shop.command(folder, "doctor")
    is_told = any("were not made or removed to the end: 1," in line for line in said.out)
    assert is_told == (left_over(root) != []) and said.code == 0, (point, said)
    again = shop.command(folder, "branch", "try")
    assert again.code == (2 if is_there else 0), (point, again)
    assert_same(contents(on_branch(shop, folder, "try")), before, point)
    assert_same(contents(project), before, point)
    assert left_over(root) == [], point
    shop.remove(folder)


def kill_delete_at(shop: Workshop, base: Path, point: str) -> None:
    folder = shop.copy(base)
    project, root = shop.project(folder), shop.warehouse(folder).root
    before = contents(project)
    ended = shop.command(folder, "branch", "try", "--delete", DDCORE_FAILPOINT=point)
    assert ended.code == -signal.SIGKILL, (point, ended)
    is_there = branches.names(root) == ["try"]
    assert is_there == point.startswith("after-lock"), point
    if is_there:
        assert_same(contents(on_branch(shop, folder, "try")), before, point)
        shop.done(folder, "branch", "try", "--delete")
    shop.done(folder, "branch", "new")
    assert branches.names(root) == ["new"] and left_over(root) == [], point
    assert_same(contents(project), before, point)
    assert_same(contents(on_branch(shop, folder, "new")), before, point)
    shop.remove(folder)


@pytest.mark.parametrize("sample", [1, pytest.param(None, marks=pytest.mark.long)], ids=["some", "all"])
def test_a_branch_that_is_killed_at_any_step(sample: int | None, workshop: Workshop, seed: int) -> None:
    base = workshop.base("folded")
    points = reached(workshop, base, "branch", "try")
    kinds = {point.partition(":")[0] for point in points}
    assert kinds == {"after-lock", "after-shared", "after-branch"} and len(points) > 8
    for point in {*random.Random(seed).sample(points, sample or len(points)), "after-branch:1"}:
        kill_at(workshop, base, point)
    branched = workshop.copy(base)
    workshop.done(branched, "branch", "try")
    points = reached(workshop, branched, "branch", "try", "--delete")
    assert points == ["after-lock:1", "after-lock:2", "after-unbranch:1"]
    for point in points:
        kill_delete_at(workshop, branched, point)


@pytest.mark.parametrize("action", ["full-once", "term"])
def test_a_branch_that_is_stopped_leaves_nothing(action: str, workshop: Workshop) -> None:
    folder = workshop.copy(workshop.base("folded"))
    before = contents(workshop.project(folder))
    ended = workshop.command(folder, "branch", "try", DDCORE_FAILPOINT=f"after-shared:3={action}")
    assert ended.code == (1 if action == "full-once" else 143), ended
    assert store.names(folder / "warehouse" / "branches") == []
    assert_same(contents(workshop.project(folder)), before, action)


# --- in any order -----------------------------------------------------------------------------------------------------

TOWNS = "ABCDEFG"


class Lives:
    """A warehouse and its branches, and for each the rows of ``roads`` that it was given, in the order of versions."""

    def __init__(self, shop: Workshop, rng: random.Random) -> None:
        self.shop, self.rng, self.folder = shop, rng, shop.copy(shop.base("ingested"))
        settings = (self.folder / "dd.toml").read_text()
        versions, days = rng.choice([0, 2, 100]), rng.choice([0, 7])
        (self.folder / "dd.toml").write_text(f"{settings}[retention]\nversions = {versions}\ndays = {days}\n")
        self.count, self.transcript = 0, list[str]()
        self.do("main", "run")

    def project(self, name: str):  # type: ignore[no-untyped-def]
        return on_branch(self.shop, self.folder, name)

    @property
    def names(self) -> list[str]:
        return ["main", *branches.names(self.shop.warehouse(self.folder).root)]

    def do(self, branch: str, *words: str, **environment: str) -> int:
        self.transcript.append(f"{branch}: {' '.join(words)} {environment or ''}")
        return self.shop.command(self.folder, *words, "--branch", branch, **environment).code

    def step(self) -> None:
        """A command on one of them: all others stay as they are."""
        rng, names = self.rng, self.names
        name = rng.choice(names)
        before = {other: contents(self.project(other)) for other in names}
        kind = rng.choice(
            ("ingest", "ingest", "run", "run", "kill", "compact", "since", "undo", "refresh", "branch", "delete")
        )
        gone = name
        if kind == "ingest":
            self.count += 1
            file = self.folder / f"new-{self.count}.csv"
            rows = [f"{rng.choice(TOWNS)},{rng.choice(TOWNS)},{rng.randint(1, 9)}" for _ in range(rng.randint(1, 3))]
            file.write_text("src,dst,km,version,diff\n" + "".join(f"{row},{self.count + 10},1\n" for row in rows))
            code = self.do(name, "ingest", "roads", str(file), "--late", rng.choice(("refuse", "restate")))
        elif kind == "kill":
            code = self.do(name, "run", DDCORE_FAILPOINT=rng.choice(("after-table", "after-file", "after-intent")))
        elif kind == "since":
            code = self.do(name, "compact", "--since", "latest")
        elif kind == "undo":
            number = rng.randint(1, 2 + self.count)
            code = self.do(name, "ingest", "--undo", str(number), "--late", rng.choice(("refuse", "restate")))
        elif kind == "refresh":
            code = self.do(name, "run", "--full-refresh")
        elif kind == "branch":
            gone = f"b{len(self.transcript)}"
            code = self.do(name, "branch", gone) if len(names) < 4 else 0
        elif kind == "delete":
            code = self.do("main", "branch", name, "--delete")
        else:
            code = self.do(name, kind)
        assert code in (0, 1, 2, -signal.SIGKILL), (code, self.transcript)
        for other in self.names:
            if other != gone and other in before and (other != name or kind == "branch"):
                after = contents(self.project(other))
                assert is_same(after, before[other]), (other, self.transcript)
        if kind == "branch" and code == 0 and gone in self.names:
            assert is_same(contents(self.project(gone)), contents(self.project(name))), self.transcript

    def end(self) -> None:
        """The law, on each; and what was deleted is missing nowhere."""
        for name in self.names:
            assert self.do(name, "run") == 0, self.transcript
            assert self.do(name, "verify") == 0, self.transcript
            assert self.do(name, "doctor", "--deep") == 0, self.transcript
        self.shop.remove(self.folder)


def live(shop: Workshop, seed: int, steps: int) -> None:
    lives = Lives(shop, random.Random(seed))
    for _ in range(steps):
        lives.step()
    lives.end()


def test_commands_in_any_order_on_a_warehouse_and_its_branches(workshop: Workshop, seed: int) -> None:
    live(workshop, seed, 8)


@pytest.mark.long
@pytest.mark.parametrize("number", range(40))
def test_many_commands_in_any_order_on_a_warehouse_and_its_branches(number: int, workshop: Workshop, seed: int) -> None:
    live(workshop, seed + number, 30)


# --- in an object store -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreShop]:
    with store_shop(tmp_path_factory.mktemp("branches-in-a-store")) as made:
        yield made


@pytest.mark.sample(1, of="store")
def test_a_branch_in_an_object_store(shop: StoreShop) -> None:
    folder = shop.copy(shop.base("folded"))
    before = contents(shop.project(folder))
    shop.done(folder, "branch", "try")
    shop.done(folder, "ingest", "roads", "most.csv", "--branch", "try")
    shop.done(folder, "run", "--branch", "try")
    assert_same(contents(shop.project(folder)), before, "the warehouse")
    ended = shop.command(folder, "diff", "distances", "2", "--against", "try")
    assert ended.code == 0 and ended.out[1] == "main..try at version 2  +0 -0", ended
    shop.done(folder, "branch", "try", "--delete")
    assert branches.names(shop.root(folder)) == [] and left_over(shop.root(folder)) == []
    assert_same(contents(shop.project(folder)), before, "the warehouse")


@pytest.mark.long
def test_branches_in_an_object_store_outlive_what_they_are_of(shop: StoreShop) -> None:
    folder = shop.copy(shop.base("folded"))
    shop.done(folder, "branch", "try")
    shop.done(folder, "ingest", "roads", "most.csv", "--branch", "try")
    shop.done(folder, "run", "--branch", "try")
    shop.done(folder, "run")
    shop.done(folder, "compact")
    for name in ("main", "try"):
        shop.done(folder, "verify", "--branch", name)
    shop.done(folder, "branch", "two", "--branch", "try")
    shop.done(folder, "branch", "try", "--delete")
    root = shop.root(folder)
    assert branches.names(root) == ["two"] and left_over(root) == []
    shop.done(folder, "verify", "--branch", "two")
    objects.delete(location for location, _, _ in objects.entries(root) if "/branches/" not in str(location))
    shop.done(folder, "verify", "--branch", "two")


@pytest.mark.sample(1, of="store")
def test_a_branch_in_an_object_store_that_is_killed(shop: StoreShop, seed: int) -> None:
    base = shop.base("folded")
    locations = reached(shop, base, "branch", "try")
    kill_at(shop, base, random.Random(seed).choice(locations))


@pytest.mark.sample(1, of="store")
def test_the_end_of_a_branch_in_an_object_store_that_is_killed(shop: StoreShop) -> None:
    base = shop.base("folded")
    branched = shop.copy(base)
    shop.done(branched, "branch", "try")
    kill_delete_at(shop, branched, "after-unbranch:1")


@pytest.mark.long
def test_a_branch_in_an_object_store_that_is_killed_at_any_step(shop: StoreShop) -> None:
    base = shop.base("folded")
    for location in reached(shop, base, "branch", "try"):
        kill_at(shop, base, location)
    branched = shop.copy(base)
    shop.done(branched, "branch", "try")
    for location in reached(shop, branched, "branch", "try", "--delete"):
        kill_delete_at(shop, branched, location)
