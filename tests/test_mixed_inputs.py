"""A project with inputs of its own beside those that another one ingests: one ledger orders both, and the law holds."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from bases import OTHER_PROGRAM
from test_follower import PATIENCE, following, wait_for
from test_readers import HEAD, PLACES, READER, Lives, Row, check_law, reader_of, refused
from workshop import Workshop, assert_same, contents

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage import readers

PROGRAM = OTHER_PROGRAM.replace("def program(roads, depots):", "def program(roads, depots, detours):").replace(
    "    def drive", "    roads = roads.concat(detours)\n\n    def drive", 1
)
OWN = """
[inputs.detours]
schema = { src = "string", dst = "string", km = "int64" }
source = { path = "detours-*.csv" }
"""


def add_own(reader: Path, upstream: Path) -> None:
    """Give a reader an input of its own, ``detours``."""
    (reader / "program.py").write_text(PROGRAM)
    text = READER.format(upstream=f"../{upstream.name}")
    (reader / "dd.toml").write_text(text.replace("[retention]", f"{OWN}[retention]"))


def write(folder: Path, name: str, *rows: str) -> str:
    (folder / name).write_text(HEAD + "\n".join(rows) + "\n")
    return str(folder / name)


def rows_of(shop: Workshop, folder: Path, name: str) -> Counter[tuple[Row, int]]:
    """The rows of an input, as its table has them now."""
    frame, held = contents(shop.project(folder)).get(f"inputs/{name}"), Counter[tuple[Row, int]]()
    if frame is not None and "src" in frame.columns:
        for src, dst, km, version, diff in frame.select("src", "dst", "km", "version", "diff").rows():
            held[(src, dst, km), version] += diff
    return held


@pytest.fixture
def pair(workshop: Workshop) -> Iterator[tuple[Path, Path]]:
    """A project with ingests, and one that has nothing yet, with a source of its own."""
    upstream = workshop.copy(workshop.base("ingested"))
    reader = reader_of(workshop, upstream, "mixed")
    add_own(reader, upstream)
    write(reader, "detours-1.csv", "A,E,1,0,1", "E,F,1,1,1", "E,F,1,3,-1")
    yield upstream, reader
    for folder in (upstream, reader):
        workshop.remove(folder)


def check(shop: Workshop, upstream: Path, reader: Path) -> None:
    """The law, from the rows of both projects; and nothing is damaged."""
    rows = rows_of(shop, upstream, "roads")
    rows.update(rows_of(shop, reader, "detours"))
    assert check_law(shop, reader, rows) > 1
    shop.done(reader, "verify")
    for folder in (upstream, reader):
        assert shop.command(folder, "doctor", "--deep").code == 0


@pytest.mark.sample(1, of="two projects")
def test_one_sync_takes_in_and_takes_over(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    ended = workshop.command(reader, "sync", "--json")
    assert ended.code == 0, ended
    told = json.loads(ended.out[-1])
    assert [one["input"] for one in told["ingests"]] == ["detours"] and told["sources"][0]["input"] == "detours"
    assert "took over 2 changes of inputs" in told["run"]["notes"][0] and told["run"]["last"] == 3
    check(workshop, upstream, reader)
    assert [path.name for path in (reader / "warehouse" / "inputs").iterdir()] == ["detours"]
    shown = json.loads(workshop.command(reader, "status", "--json").out[0])
    assert shown["upstream"]["waiting"] == 0 and shown["sources"][0]["input"] == "detours"
    (hold,) = readers.holds(upstream / "warehouse").values()
    assert {*hold.versions} == {"roads", "depots"}
    # Rows of both at one version, and rows of one at a version that was folded with the other.
    workshop.done(upstream, "ingest", "roads", "more.csv")
    write(reader, "detours-2.csv", "F,A,2,4,1")
    ended = workshop.command(reader, "ingest", "--json")
    told = json.loads(ended.out[-1])
    assert (told["taken_over"], told["nothing_new"], told["ingests"][0]["ingest"]) == (1, False, 5), ended
    workshop.done(reader, "run")
    check(workshop, upstream, reader)
    workshop.done(upstream, "ingest", "--undo", "3")  # the fourth of here
    workshop.done(reader, "sync")
    check(workshop, upstream, reader)
    assert json.loads(workshop.command(reader, "sync", "--json").out[-1])["nothing_new"] is True
    workshop.done(reader, "ingest", "--undo", "5", "--late", "restate")
    workshop.done(reader, "run")
    check(workshop, upstream, reader)


@pytest.mark.sample(1, of="two projects")
def test_each_deletes_what_is_its_own(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    workshop.done(reader, "sync")
    for number in range(4, 24):  # more files than a run leaves unmerged
        write(reader, f"detours-{number}.csv", f"A,F,{number},{number},1")
        workshop.done(reader, "ingest", "detours", str(reader / f"detours-{number}.csv"))
    workshop.done(reader, "run")
    assert Ledger.load(workshop.project(reader).tables).states()["inputs/detours"].files < 16
    workshop.done(upstream, "run")
    workshop.done(upstream, "compact", "--since", "latest")
    workshop.done(reader, "run")
    workshop.done(reader, "compact", "--since", "latest")
    workshop.done(reader, "run", "--full-refresh")
    workshop.done(reader, "verify")
    workshop.done(reader, "branch", "try")
    shutil.rmtree(reader / "warehouse" / "inputs")
    workshop.done(reader, "verify", "--branch", "try")
    assert workshop.command(reader, "doctor", "--deep", "--branch", "try").code == 0


def test_whose_an_input_is_stays_clear(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    text = (reader / "dd.toml").read_text()
    workshop.done(reader, "sync")
    for words in (["ingest", "roads", str(upstream / "more.csv")], ["ingest", "--undo", "2"]):
        assert f"is that of {upstream}" in refused(workshop, reader, *words, code=2)
    (reader / "dd.toml").write_text(text.replace(OWN, ""))
    said = refused(workshop, reader, "run", code=2)
    assert "has ingested detours, which dd.toml does not declare any more" in said and "[inputs.detours]" in said
    (reader / "dd.toml").write_text(text.replace("[inputs.detours]", "[inputs.Roads]"))
    assert f"[inputs] Roads: {upstream} has this input" in refused(workshop, reader, "run", code=2)
    (reader / "dd.toml").write_text(text)
    there = (upstream / "dd.toml").read_text()
    (upstream / "dd.toml").write_text(there + OWN)
    assert f"[inputs] detours: {upstream} has this input" in refused(workshop, reader, "run", code=2)
    write(upstream, "detours-1.csv", "B,B,1,9,1")
    workshop.done(upstream, "ingest", "detours")
    (upstream / "dd.toml").write_text(there)
    said = refused(workshop, reader, "run", code=2)
    assert f"dd.toml declares detours, and {upstream} has ingested an input of this name" in said


@pytest.mark.long
def test_a_follower_looks_at_own_sources_and_at_the_other_ledger(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    upstream, reader = pair
    with (reader / "dd.toml").open("a") as file:
        file.write("[outputs.towns]\ntable = true\n")

    def towns() -> str:
        table = reader / "warehouse" / "tables" / "towns"
        return "".join(sorted(pl.read_delta(str(table))["town"])) if [*table.glob("_delta_log/*.json")] else ""

    with following(reader) as child:
        wait_for(lambda: towns() == "ABCDE", reader)
        write(reader, "detours-2.csv", "G,A,2,4,1")
        wait_for(lambda: towns() == "ABCDEG", reader)
        workshop.done(upstream, "ingest", "roads", "late.csv")
        wait_for(lambda: towns() == "ABCDEFG", reader)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    assert f"following the inputs of {upstream}, 1 source, " in (reader / "err").read_text()
    check(workshop, upstream, reader)


# --- killed at each step ----------------------------------------------------------------------------------------------


def reached(shop: Workshop, reader: Path, upstream: Path) -> list[str]:
    """The places of a sync, ``NAME:COUNT``; both projects are as they were."""
    ours, other = copies(shop, reader, upstream)
    log = shop.folder / "places.log"
    log.unlink(missing_ok=True)
    assert shop.command(ours, "sync", DDCORE_FAILPOINT_LOG=str(log)).code == 0
    names = [line.split()[1] for line in log.read_text().splitlines()]
    for folder in (ours, other):
        shop.remove(folder)
    return [f"{name}:{names[: number + 1].count(name)}" for number, name in enumerate(names)]


def copies(shop: Workshop, reader: Path, upstream: Path) -> tuple[Path, Path]:
    other, ours = shop.copy(upstream), shop.copy(reader)
    add_own(ours, other)
    return ours, other


def killed(shop: Workshop, reader: Path, upstream: Path, rng: random.Random | None) -> None:
    """A sync that is killed is finished by the next: logs and records are those of an undisturbed one."""
    shop.done(reader, "sync")
    shop.done(upstream, "ingest", "roads", "more.csv")
    write(reader, "detours-2.csv", "F,A,2,4,1", "A,E,1,4,-1")
    points = reached(shop, reader, upstream)
    assert {"after-hold", "after-ingest", "after-run"} <= {point.partition(":")[0] for point in points}
    whole, other = copies(shop, reader, upstream)
    shop.done(whole, "sync")
    right = contents(shop.project(whole))
    for folder in (whole, other):
        shop.remove(folder)
    for point in points if rng is None else rng.sample(points, 2):
        ours, other = copies(shop, reader, upstream)
        ended = shop.command(ours, "sync", DDCORE_FAILPOINT=point)
        assert ended.code == -signal.SIGKILL, (point, ended)
        contents(shop.project(ours))  # what it names can be read
        shop.done(ours, "sync")
        assert_same(contents(shop.project(ours)), right, point)
        check(shop, other, ours)
        for folder in (ours, other):
            shop.remove(folder)


@pytest.mark.sample(2, of="two projects")
def test_a_killed_sync_is_finished_by_the_next(workshop: Workshop, pair: tuple[Path, Path], seed: int) -> None:
    killed(workshop, pair[1], pair[0], random.Random(seed))


@pytest.mark.long
def test_a_sync_that_is_killed_at_any_step(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    killed(workshop, pair[1], pair[0], None)


# --- in any order -----------------------------------------------------------------------------------------------------


class MixedLives(Lives):
    """As its base, and the second reader has an input of its own, whose rows are ``own`` by version."""

    def __init__(self, shop: Workshop, rng: random.Random) -> None:
        super().__init__(shop, rng)
        self.mixed, self.own, self.ingested = self.readers[1], Counter[tuple[Row, int]](), 0
        add_own(self.mixed, self.folder)

    def step(self) -> None:
        """A command on one of them; a third is about the own input."""
        if self.rng.random() > 0.35 or not (self.mixed / "warehouse" / "ledger").is_dir():
            super().step()
            return
        others = {folder: contents(self.shop.project(folder)) for folder in (self.readers[0], self.folder)}
        before = rows_of(self.shop, self.mixed, "detours")
        rng, kind = self.rng, self.rng.choice(("ingest", "ingest", "restate", "undo", "kill"))
        at, late = str(rng.randint(1, self.count)), rng.choice(("refuse", "restate", "restate"))
        words = ["ingest", "--undo", at, "--late", "restate"]
        if kind != "undo":
            more = ["--restate", at] if kind == "restate" else ["--late", late]
            words = ["ingest", "detours", self.new_rows(), *more]
        if kind == "kill":
            point = f"{rng.choice(PLACES)}:{rng.randint(1, 3)}"
            self.do(*words, folder=self.mixed, DDCORE_FAILPOINT=point)  # the same again finishes it
        code = self.do(*words, folder=self.mixed)
        assert code in (0, 1, 2), "\n".join(self.transcript)
        after = rows_of(self.shop, self.mixed, "detours")
        self.ingested += code == 0
        for key in before.keys() | after.keys():
            self.own[key] += after[key] - before[key]
        for folder, rows in others.items():
            assert_same(contents(self.shop.project(folder)), rows, (folder.name, self.transcript))

    def law(self, reader: Path) -> int:
        truth = self.truth.copy()
        if reader == self.mixed:
            truth.update(self.own)
        try:
            return check_law(self.shop, reader, truth)
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.transcript)) from error


def live(shop: Workshop, seed: int, steps: int) -> None:
    lives = MixedLives(shop, random.Random(seed))
    lives.do("run", folder=lives.mixed)
    while steps > 0 or not lives.ingested:
        lives.step()
        steps -= 1
    lives.end()


@pytest.mark.sample(1, of="two projects")
def test_inputs_of_two_projects_in_any_order(workshop: Workshop, seed: int) -> None:
    live(workshop, seed, 6)


@pytest.mark.long
@pytest.mark.parametrize("number", range(40))
def test_inputs_of_two_projects_in_any_order_often(number: int, workshop: Workshop, seed: int) -> None:
    live(workshop, seed + number, 40)
