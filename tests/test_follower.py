"""`ddcore sync --follow`, as a process: it takes in what comes, tells monitors, ends when asked, survives kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from trams import Command

from ddcore.base.errors import UsageError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.sources.finding import find_sources
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs.follower import Follower, Told
from ddcore.jobs.metrics import Metrics, metrics_text

PROJECT = """
[project]
program = "program.py:program"
[run]
engine = "inline"
[inputs.sales]
schema = { item = "string", n = "int64" }
source = { path = "exports/*.csv", append = true }
[outputs.sold]
key = ["item"]
table = true
"""
PROGRAM = """
import ddcore as dd


def program(sales):
    return {"sold": sales.group_by("item").agg(n=dd.sum("n"))}
"""
UNSYNCED = "" if "DDCORE_FSYNC" in os.environ else "import os; os.fsync = lambda descriptor: None; "
RUN = f"{UNSYNCED}import sys; from ddcore.cli import main; sys.argv[0] = 'ddcore'; main.main()"
PATIENCE = 600.0  # seconds; on a machine with a load of ten a sync takes three


@pytest.fixture
def shop(tmp_path: Path, dd: Command) -> Path:
    del dd  # it clears the environment
    folder = tmp_path / "shop"
    (folder / "exports").mkdir(parents=True)
    (folder / "dd.toml").write_text(PROJECT)
    (folder / "program.py").write_text(PROGRAM)
    sell(folder, 0, ("nut", 1))
    return folder


def sell(folder: Path, number: int, *rows: tuple[str, int]) -> None:
    """A file comes, as a whole. One with the rows of another would be known."""
    temporary = folder / f"{number}.tmp"
    temporary.write_text("item,n\n" + "".join(f"{item},{n}\n" for item, n in rows))
    temporary.replace(folder / "exports" / f"{number:06d}.csv")


def sold(folder: Path) -> dict[str, int]:
    table = folder / "warehouse" / "tables" / "sold"
    return dict(pl.read_delta(str(table)).rows()) if [*table.glob("_delta_log/*.json")] else {}


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, "sync", "--follow", "--every", "0.05", "--json", *options]
    out, err = (folder / "out").open("a"), (folder / "err").open("a")
    with out, err:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=err, text=True)


@contextmanager
def following(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    child = start(folder, *options)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def wait_for(holds: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, (folder / "err").read_text()
        time.sleep(0.02)


def test_it_takes_in_what_comes_until_it_is_told_to_stop(shop: Path) -> None:
    with following(shop) as child:
        wait_for(lambda: sold(shop) == {"nut": 1}, shop)
        sell(shop, 1, ("nut", 2), ("bolt", 5))
        wait_for(lambda: sold(shop) == {"nut": 3, "bolt": 5}, shop)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    lines = [json.loads(line) for line in (shop / "out").read_text().splitlines()]
    assert [line["command"] for line in lines if "command" in line] == ["sync", "sync"]  # none where nothing was new
    assert Warehouse(shop / "warehouse").holder() is None


def test_a_second_signal_ends_it_at_once(shop: Path) -> None:
    with following(shop) as child:
        wait_for(lambda: sold(shop) == {"nut": 1}, shop)
        child.send_signal(signal.SIGSTOP)
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGCONT)
        assert child.wait(PATIENCE) == 0


@pytest.mark.sample(4, of="followers")
def test_another_command_finds_the_warehouse_free_and_the_follower_sees_what_it_did(shop: Path, dd: Command) -> None:
    with following(shop):
        wait_for(lambda: sold(shop) == {"nut": 1}, shop)
        (shop / "hand.csv").write_text("item,n\nnail,7\n")
        location = ("--project", str(shop), "-q")
        codes = [75]

        def taken_in() -> bool:
            codes.append(dd("ingest", "sales", str(shop / "hand.csv"), "--append", *location)[0])
            return codes[-1] != 75  # not while the follower holds the lock

        wait_for(taken_in, shop)
        assert codes[-1] == 0
        wait_for(lambda: sold(shop) == {"nut": 1, "nail": 7}, shop)


@pytest.mark.sample(4, of="followers")
def test_two_followers_of_one_warehouse(shop: Path) -> None:
    with following(shop), following(shop):
        for number in range(2, 7):
            sell(shop, number, ("nut", number))
            total = sum(range(1, number + 1))
            wait_for(lambda total=total: sold(shop) == {"nut": total}, shop)  # type: ignore[misc]
    assert "Traceback" not in (shop / "err").read_text()


@pytest.mark.sample(4, of="followers")
def test_an_error_is_told_once_and_what_is_mended_is_taken_in(shop: Path) -> None:
    with following(shop, "--health", "health") as child:
        wait_for(lambda: sold(shop) == {"nut": 1}, shop)
        sell(shop, 1, ("nut", 2))
        (shop / "exports" / "000002.csv").write_text("item,n\nnut,many\n")
        wait_for((shop / "health").exists, shop)
        wait_for(lambda: not json.loads((shop / "health").read_text())["healthy"], shop)
        assert "'many'" in json.loads((shop / "health").read_text())["error"] and child.poll() is None
        time.sleep(0.5)  # ten looks
        sell(shop, 2, ("nut", 4))
        wait_for(lambda: sold(shop) == {"nut": 7}, shop)
        wait_for(lambda: json.loads((shop / "health").read_text())["healthy"], shop)
    assert (shop / "err").read_text().count("'many'") == 1


@pytest.mark.sample(4, of="followers")
def test_a_source_that_brings_nothing_more_is_told_once(shop: Path) -> None:
    """Also while nothing changes: no sync begins, and rows grow old all the same."""
    (shop / "dd.toml").write_text(PROJECT.replace("append = true", 'append = true, expect = "3 seconds"'))
    with following(shop) as child:
        wait_for(lambda: "expected within 3 seconds" in (shop / "err").read_text(), shop)
        time.sleep(0.5)
        sell(shop, 1, ("nut", 2))
        wait_for(lambda: (shop / "err").read_text().count("expected within 3 seconds") == 2, shop)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    said = [line for line in (shop / "err").read_text().splitlines() if "expected" in line]
    assert all(line.startswith("error: input sales: newest rows ") for line in said) and len(said) == 2


@pytest.mark.sample(4, of="followers")
def test_it_ends_when_its_branch_is_deleted(shop: Path, dd: Command) -> None:
    """It made a new warehouse in the place of the branch."""
    location = ("--project", str(shop), "-q")
    assert dd("sync", *location)[0] == 0 and dd("branch", "try", *location)[0] == 0
    with following(shop, "--branch", "try") as child:
        sell(shop, 1, ("nut", 2))
        table = shop / "warehouse" / "branches" / "try" / "tables" / "sold"
        wait_for(lambda: dict(pl.read_delta(str(table)).rows()) == {"nut": 3}, shop)
        for _ in range(50):
            code = dd("branch", "try", "--delete", *location)[0]
            if code != 75:
                break
        assert code == 0
        assert child.wait(PATIENCE) == 2
    assert "has no branch 'try'" in (shop / "err").read_text()
    assert not (shop / "warehouse" / "branches" / "try").exists() and sold(shop) == {"nut": 1}


@pytest.mark.sample(4, of="followers")
def test_a_changed_program_starts_it_again(shop: Path) -> None:
    with following(shop) as child:
        wait_for(lambda: sold(shop) == {"nut": 1}, shop)
        (shop / "program.py").write_text(PROGRAM.replace("sales.group", 'sales.where("n > 1").group'))
        wait_for(lambda: "the follower starts again" in (shop / "err").read_text(), shop)
        sell(shop, 1, ("nut", 5))
        wait_for(lambda: sold(shop) == {"nut": 5}, shop)
        assert child.poll() is None


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_sources_that_change_one_after_the_other_are_one_sync(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job commits sales, then prices, while the follower looks; then it is quiet."""
    looks = iter([{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}, {"a": 2, "b": 2}])
    synced: list[object] = []
    source = find_project(shop, {}).sources["sales"]
    follower = Follower(
        replace(find_project(shop, {}), sources=dict.fromkeys("ab", source)), {}, every=0.001, engine="inline",
        parallelism=None, settled=0.001, longest=PATIENCE, tell=lambda report: None, fail=lambda error: None,
        late=lambda source: None, looked=lambda told: follower.stop.set() if told.looks == 2 else None,
    )  # fmt: skip
    monkeypatch.setattr(follower, "_look", lambda: next(looks))
    monkeypatch.setattr(follower, "_after", lambda look: look)
    monkeypatch.setattr(follower, "_sync", lambda begin, inputs: synced.append(inputs))
    follower.follow()
    assert synced == [None, {"a", "b"}], "the first one takes in everything"


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_commit_that_comes_while_its_table_is_found_is_seen(
    at: int, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a look that finds the table anew, another job commits right after it was opened; then nothing comes."""

    def commit() -> None:
        write_deltalake(str(shop / "bronze"), pl.DataFrame({"item": ["nut"], "n": [1]}).to_arrow(), mode="append")

    def find(locations: Sequence[Any]) -> Sequence[Any]:
        sources = find_sources(locations)
        if looks == at:
            commit()
        return sources

    (shop / "dd.toml").write_text(PROJECT.replace('"exports/*.csv", append = true', '"bronze", append = true'))
    commit()
    follower = Follower(
        find_project(shop, {}), {}, every=1.0, engine="inline", parallelism=None, tell=lambda report: None,
        fail=lambda error: None, looked=lambda told: None, late=lambda source: None,
    )  # fmt: skip
    monkeypatch.setattr("ddcore.jobs.follower.find_sources", find)
    for looks in range(at + 3):
        if 0 < looks <= at:
            commit()
        seen = follower._look()
    assert seen is not None
    assert seen["sales"][0][1].endswith(f"-{at + 1}"), seen


def test_what_monitors_are_told() -> None:
    told = Told(syncs=3, looks=9, looked=5.5)
    told.rows["in", "sales", "+"] = 12
    with Metrics("127.0.0.1:0", told) as server:
        code, text = page(server.port, "/metrics")
        assert code == 200 and 'ddcore_rows_total{side="in",name="sales",sign="+"} 12\n' in text
        assert "# TYPE ddcore_syncs_total counter\nddcore_syncs_total 3\n" in text
        assert page(server.port, "/health") == (200, "healthy\n")
        told.error = "broken"
        assert page(server.port, "/health") == (503, "broken\n")
        assert page(server.port, "/else")[0] == 404
        with pytest.raises(UsageError, match="Address already in use"):
            Metrics(f"127.0.0.1:{server.port}", told)
    names = [line.split()[2] for line in metrics_text(told).splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--every", "2"], "--every: only with --follow"),
        (["--follow", "--every", "0"], "'0' is not a number of seconds above 0"),
        (["--follow", "--metrics", "here"], "--metrics: 'here' is no address"),
        (["--follow", "--label", "x"], "--follow and --label: only one of them"),
        (["--follow", "--health", "no/such/file"], "no/such/file: No such file"),
    ],
)
def test_wrong_options(options: list[str], says: str, shop: Path, dd: Command) -> None:
    code, _, err = dd("sync", *options, "--project", str(shop))
    assert code in (1, 2) and any(says in line for line in err), err


@pytest.mark.parametrize("kills", [2, pytest.param(300, marks=pytest.mark.long)])
def test_killed_at_random_moments_it_loses_nothing(kills: int, shop: Path, seed: int) -> None:
    rng, number, total = random.Random(seed), 1, 1
    for _ in range(kills):
        with following(shop) as child:
            end = time.monotonic() + rng.uniform(0.3, 1.5)
            while time.monotonic() < end:
                number += 1
                total += number
                sell(shop, number, ("nut", number))
                time.sleep(rng.uniform(0.0, 0.2))
            os.kill(child.pid, signal.SIGKILL)
    with following(shop):
        wait_for(lambda: sold(shop) == {"nut": total}, shop)
    project = find_project(shop, {})
    ledger = Ledger.load(Warehouse(project.warehouse))
    rows = sum(plus for ingest in ledger.ingests() for plus, _ in ingest.counts.values())
    assert rows == number


BUSY, IDLE = 2_000, 1_000  # files of a warehouse: the ledger and published tables keep what was replaced for some time
EXPIRED = 65.0  # seconds, after which they do not


class Hour:
    """3,600 commits at a source, and the memory and files of its follower at every hundredth."""

    def __init__(self, shop: Path, child: subprocess.Popen[str]) -> None:
        self.shop, self.child = shop, child
        self.kib, self.files = list[int](), list[int]()

    def run(self, commit: Callable[[int], None]) -> None:
        for number in range(2, 3_601):
            commit(number)
            if number % 100 == 0:
                self.wait(number)
                status = Path(f"/proc/{self.child.pid}/status").read_text()
                self.kib.append(int(status.partition("VmRSS:")[2].split()[0]))
                self.files.append(self.number_of_files())
                print(number, self.kib[-1], self.files[-1], (self.shop / "health").read_text(), flush=True)
        assert self.kib[-1] < 1.3 * self.kib[5] + 50_000, self.kib
        assert max(self.files) < BUSY, self.files
        time.sleep(EXPIRED)
        for number in range(3_601, 3_641):  # more than commits between two checkpoints
            commit(number)
            self.wait(number)
        assert self.number_of_files() < IDLE, (self.number_of_files(), self.files)

    def wait(self, number: int) -> None:
        wait_for(lambda: sold(self.shop).get("nut") == sum(range(number + 1)), self.shop)

    def number_of_files(self) -> int:
        return sum(len(found) for _, _, found in os.walk(self.shop / "warehouse"))


@pytest.mark.long
def test_an_hour_of_commits_leaves_bounded_memory_and_files(shop: Path) -> None:
    """3,600 files, as fast as they are taken in."""
    (shop / "dd.toml").write_text(PROJECT + "[retention]\ndays = 0\n")
    with following(shop, "--health", "health") as child:
        Hour(shop, child).run(lambda number: sell(shop, number, ("nut", number)))


@pytest.mark.long
def test_an_hour_of_commits_at_a_table_leaves_bounded_memory_and_files(shop: Path) -> None:
    """3,600 commits, at most four a second, of a table with a change feed."""
    text = PROJECT.replace('"exports/*.csv", append = true', '"bronze", feed = true, version = "next"')
    (shop / "dd.toml").write_text(text + "[retention]\ndays = 0\n")
    feed, table = {"delta.enableChangeDataFeed": "true"}, str(shop / "bronze")
    write_deltalake(table, pl.DataFrame({"item": ["nut"], "n": [1]}).to_arrow(), configuration=feed)

    def commit(number: int) -> None:
        begin = time.monotonic()
        rows = pl.DataFrame({"item": ["nut", f"part {number % 50}"], "n": [number, 0]})
        write_deltalake(table, rows.to_arrow(), mode="append")
        time.sleep(max(0.0, 0.25 - (time.monotonic() - begin)))

    with following(shop, "--health", "health") as child:
        Hour(shop, child).run(commit)
