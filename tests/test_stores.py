"""Warehouses in an object store, on a local S3 server: what holds of folders holds there.

The kill tests are those of :mod:`test_failpoints`, over the same projects. A process whose lock expired is one that was
stopped at a place (SIGSTOP), overtaken, and let go on: it must fail, and nothing may be lost or there twice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from forks import Forks, forks
from s3_server import GOOD, SECRET
from stores import StoreShop, store_shop
from workshop import CODES, assert_same, contents, is_same

from ddcore.base.errors import LockHeld, StorageError, UsageError
from ddcore.base.schema import Type
from ddcore.base.statistics import Statistics
from ddcore.io.delta import commits, damaged, open_tables, tables
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger import recovery
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord, RunRecord
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.updates import Counts
from ddcore.io.project.project import Project
from ddcore.io.project.statistics import keep_statistics, kept_statistics
from ddcore.io.project.times import time_of
from ddcore.io.storage import lease, objects, store
from ddcore.io.storage.address import Address, address_of
from ddcore.io.storage.holder import this_process
from ddcore.io.storage.warehouse import Warehouse

SAMPLE, SAMPLED = 1, ("first ingest", "first run")  # places for `make test`, and of which commands
# Without those that damage files, and those that set the times of files.
COMMANDS = (
    "first ingest", "later ingest", "ingest after one killed at its file", "ingest after one killed at its table",
    "run after an ingest killed at its table", "undo", "first run", "later run", "run from an earlier version",
    "run that appends corrections", "run of a changed program", "full refresh of a changed program",
    "full refresh of a damaged table", "run after a refresh that was given up", "run that compacts",
    "run from a border", "restatement", "undo of a restatement", "compaction", "compaction to a version",
)  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreShop]:
    with store_shop(tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory, shop: StoreShop) -> Iterator[Forks]:
    """A second server of commands, for two at once."""
    with forks(tmp_path_factory.mktemp("others")) as processes:
        yield processes


@pytest.fixture
def root(shop: StoreShop, request: pytest.FixtureRequest) -> Address:
    return address_of(f"{shop.prefix}/unit-{abs(hash(request.node.name))}", "test")


# --- addresses and objects --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("gs://bucket/w", "gs:// is not supported"),
        ("s3://key:secret@bucket/w", "a URL has no place for credentials"),
        *(
            (f"s3://{bucket}/w", "is no name of a bucket")
            for bucket in ("", "bu?cket", "bu#cket", "[", "b ucket", "bücket")
        ),
        ("s3://bucket/a/../b", "is no folder that all libraries read alike"),
        ("s3://bucket/a%20b", "is no folder that all libraries read alike"),
        ("s3://bucket/a?b", "is no folder that all libraries read alike"),
    ],
)
def test_urls_that_name_no_warehouse(url: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        address_of(url, "--warehouse")
    assert says in caught.value.message and caught.value.hint


def test_an_address_has_the_arithmetic_of_a_path() -> None:
    point = address_of("s3a://bucket/a/b/", "test") / "inputs/edges"
    assert str(point) == "s3://bucket/a/b/inputs/edges"
    assert (point.name, point.parent.name, str(point.with_name("x.json").stem)) == ("edges", "inputs", "x")
    assert str(point.relative_to(address_of("s3://bucket/a", "test"))) == "b/inputs/edges"
    assert str(address_of("s3://bucket", "test") / "ledger") == "s3://bucket/ledger"


def test_of_several_at_once_one_creates_an_object(root: Address) -> None:
    outcomes: list[bool] = []

    def create(number: int) -> None:
        outcomes.append(objects.create(root / "object", str(number).encode()))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 7 + [True]


def test_statistics_of_inputs_are_an_object(root: Address, tmp_path: Path) -> None:
    project = Project(tmp_path, "program.sql", root)
    assert kept_statistics(project) == {}
    for rows in (7, 8):
        keep_statistics(project, {"t": Statistics(rows, {"k": 3})})
        assert kept_statistics(project) == {"t": Statistics(rows, {"k": 3})}


def test_ranges_of_an_object(root: Address) -> None:
    content = random.Random(1).randbytes(200_000)
    objects.put(root / "object", content)
    whole = objects.Object(root / "object")
    for begin, length in ((0, 10), (100_000, 50_000), (199_000, 1_000), (199_990, 100), (150_000, 0)):
        assert whole.read(length, begin) == content[begin : begin + length]
    with store.source_of(root / "object") as source:
        source.seek(100)
        assert source.read(100) == content[100:200]
    with pytest.raises(FileNotFoundError):
        objects.read(root / "missing")


def test_a_store_that_overwrites_when_it_must_not_holds_no_warehouse(
    root: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "create", lambda point, content: True)
    with pytest.raises(StorageError, match="overwrites an object when it must not"):
        Warehouse(root).create()


# --- the lock ---------------------------------------------------------------------------------------------------------


def test_the_lock_names_its_holder_and_is_free_after_it(root: Address) -> None:
    warehouse = Warehouse(root)
    assert warehouse.holder() is None
    with warehouse.lock("ddcore run") as held:
        held.note_run(7)
        holder = warehouse.holder()
        assert holder is not None and (holder.pid, holder.run) == (os.getpid(), 7)
        with pytest.raises(LockHeld, match="is in use by ddcore run") as caught, Warehouse(root).lock("ddcore ingest"):
            pass
        assert str(os.getpid()) in caught.value.message
    assert warehouse.holder() is None and warehouse.dead_holder() is None
    with warehouse.lock("ddcore run") as held:
        assert held.dead is None


@pytest.mark.sample(1, of="lock")
def test_the_lock_is_renewed(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times in the seconds after which it would expire: threads of a busy machine come late."""
    monkeypatch.setenv(lease.SECONDS, "3")
    renewals, written = threading.Semaphore(0), lease.Lease._write

    def counted(held: lease.Lease) -> None:
        written(held)
        renewals.release()

    monkeypatch.setattr(lease.Lease, "_write", counted)
    with lease.hold(root / ".lock", "ddcore run", renewals=10):
        for _ in range(12):
            assert renewals.acquire(timeout=600)
        with pytest.raises(LockHeld), Warehouse(root).lock("ddcore ingest"):
            pass


def expired(root: Address, monkeypatch: pytest.MonkeyPatch, seconds: int = 0) -> lease.Lease:
    """A lock whose holder does not renew it, and that has expired: after no time, where none is waited for."""
    monkeypatch.setenv(lease.SECONDS, "1")
    held = lease._take(root / ".lock", lease._Claim(this_process("ddcore run", 0), seconds, "mark", "elsewhere"))
    time.sleep(2.1 * seconds)  # the store tells whole seconds
    return held


@pytest.mark.sample(1, of="lock")
def test_an_expired_lock_is_taken_over_and_its_holder_notices(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    before = expired(root, monkeypatch, seconds=1)
    dead = Warehouse(root).dead_holder()
    assert dead == before.holder and Warehouse(root).holder() is None
    with Warehouse(root).lock("ddcore ingest") as held:
        assert isinstance(held, lease.Lease)
        assert (held.dead, held.token) == (before.holder, before.token + 1)
        before._write()  # it goes on to renew what nobody reads
        held.check()
        with pytest.raises(LockHeld, match="was taken over by ddcore ingest"):
            before.check()


@pytest.mark.sample(1, of="lock")
def test_a_lock_that_looks_expired_and_is_renewed_is_held(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the clock of the other machine is behind."""
    before = expired(root, monkeypatch)
    time.sleep(2.5)  # the store tells whole seconds
    clock = SimpleNamespace(time=time.time, sleep=lambda seconds: before._write())
    monkeypatch.setattr(lease, "time", clock)
    with pytest.raises(LockHeld, match="is in use by ddcore run"), Warehouse(root).lock("ddcore ingest"):
        pass


@pytest.mark.sample(1, of="lock")
def test_who_takes_over_and_ends_before_the_ledger_leaves_its_duty_to_the_next(
    root: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired(root, monkeypatch)
    with Warehouse(root).lock("ddcore ingest"):
        pass
    with Warehouse(root).lock("ddcore ingest") as held:
        assert isinstance(held, lease.Lease)
        assert held.dead is None and held.takes_over
        held.note_recorded()
    with Warehouse(root).lock("ddcore ingest") as held:
        assert isinstance(held, lease.Lease)
        assert not held.takes_over


# --- the ledger keeps old holders out ---------------------------------------------------------------------------------


SCHEMA = {"n": Type("int64")}


def log_of(ledger: Ledger) -> ChangeLog:
    return ChangeLog(ledger.warehouse.input("rows"), SCHEMA, writer=ledger.writer)


def committed(ledger: Ledger, version: int) -> IngestRecord:
    """An ingest of one row into the input ``rows``: its table is committed, and nothing is recorded."""
    ledger.begin()
    log, number, base = log_of(ledger), ledger.next_ingest(), ledger.input_table("rows")
    log.create()
    rows = pl.DataFrame({"n": [version], "version": [version], "diff": [1]})
    files = [log.write(f"ingest-{number:08d}-0-0000", rows)]
    paths = tuple(file.path for file in files)
    counts: Counts = {time_of(version): (1, 0)}
    record = IngestRecord(number, "rows", (), time_of(version), time_of(version), 1, counts, paths, recovery.UNKNOWN)
    table = log.commit(files, number, base=base, carries=recovery.carried(record))
    return replace(record, table=table)


def run(ledger: Ledger, last: int) -> RunRecord:
    return RunRecord(
        ledger.next_run(), "ab12", time_of(0), time_of(last), "inline", 1, 1, 0.0, {}, {}, {}, program_inputs=("rows",)
    )


def rows_of(ledger: Ledger) -> list[int]:
    log = log_of(ledger)
    return sorted(log.collect(log.scan(ledger.input_table("rows")))["n"])


@contextmanager
def writing(root: Address, command: str = "ddcore ingest") -> Iterator[Ledger]:
    with Warehouse(root).lock(command) as held:
        yield Ledger.load(Warehouse(root), Writer(held))


def test_an_old_holder_can_record_nothing(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it had read before: the lock's token is in the ledger, and no commit replaces another."""
    with writing(root) as ledger:
        ledger.append(committed(ledger, 1))
    before = expired(root, monkeypatch)
    old = Ledger.load(Warehouse(root), Writer(before))
    late = committed(old, 2)
    with writing(root) as ledger:
        assert [record.number for record in recovery.finish(ledger)] == [2], "it was committed in time"
    monkeypatch.setattr(lease.Lease, "check", lambda self: None)  # as if it had been stopped just after that
    with pytest.raises(LockHeld, match="was taken over"):
        old.append(late)
    with pytest.raises(LockHeld, match="was taken over"):
        Ledger.load(Warehouse(root), Writer(before))
    assert rows_of(Ledger.load(Warehouse(root))) == [1, 2]


def test_an_old_holder_cannot_be_first_in_a_new_ledger(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    before = expired(root, monkeypatch)
    old = Ledger.load(Warehouse(root), Writer(before))
    with writing(root) as ledger:
        ledger.begin()
    monkeypatch.setattr(lease.Lease, "check", lambda self: None)
    with pytest.raises(LockHeld, match="was taken over"):
        old.append(run(old, 3))
    assert Ledger.load(Warehouse(root)).newest() is None


@pytest.mark.sample(1, of="lock")
def test_a_lock_whose_objects_were_deleted_gets_a_greater_token(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(root) as ledger:
        ledger.append(committed(ledger, 1))
    before = expired(root, monkeypatch)
    objects.delete([point for point, *_ in objects.entries(root / ".lock")])
    for version in (2, 3):
        with writing(root) as ledger:
            ledger.append(committed(ledger, version))
    assert rows_of(Ledger.load(Warehouse(root))) == [1, 2, 3]
    with pytest.raises(LockHeld, match="was taken over"):
        Ledger.load(Warehouse(root), Writer(before))


@pytest.mark.sample(1, of="lock")
def test_a_late_commit_of_an_old_holder_is_taken_for_nothing(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was checked against a ledger in which its version was open; meanwhile another process has closed it."""
    with writing(root) as ledger:
        ledger.append(committed(ledger, 1))
    before = expired(root, monkeypatch)
    old = Ledger.load(Warehouse(root), Writer(before))
    open_tables.open_table(log_of(old).folder, writer=old.writer)
    with writing(root) as ledger:
        ledger.append(run(ledger, 5))
    with monkeypatch.context() as patch:
        patch.setattr(lease.Lease, "check", lambda self: None)
        late = committed(old, 2)
        with pytest.raises(LockHeld, match="was taken over"):
            old.append(late)
    with writing(root) as ledger:
        assert recovery.finish(ledger) == []
        assert rows_of(ledger) == [1]
        ledger.append(committed(ledger, 6))
        assert rows_of(ledger) == [1, 6]
    assert tables.state_at(log_of(ledger).folder, ledger.states()["inputs/rows"].version).rows == 2


@pytest.mark.parametrize("numbered", [True, False])
def test_a_commit_between_opening_and_committing_is_taken_back(numbered: bool, root: Address) -> None:
    """The late commit of an old holder is there when the new one commits; it commits again, on top.

    With ``numbered`` the library would find a conflict by itself, else it would commit on top of what nobody has seen.
    """
    with writing(root) as ledger:
        ledger.append(committed(ledger, 1))
    with writing(root) as ledger:
        folder, base = log_of(ledger).folder, ledger.input_table("rows")
        open_tables.open_table(folder, writer=ledger.writer)
        late = DeltaTable(str(folder), storage_options=objects.options())
        file = log_of(ledger).write("ingest-00000002-0-0000", pl.DataFrame({"n": [9], "version": [9], "diff": [1]}))
        if numbered:
            commits.change(ledger.owner, late, [file], [], 2)
        else:
            write_deltalake(late, pl.DataFrame({"n": [9], "version": [9], "diff": [1]}).to_arrow(), mode="append")
        ledger.append(committed(ledger, 2))
        assert rows_of(ledger) == [1, 2]
        assert ledger.states()["inputs/rows"].version == 3 and base is not None


def test_a_record_whose_answer_was_lost_is_there_once(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library sends the commit again then, and the store says that it is there already."""
    change = commits.change

    def lost(writer: Writer, table: DeltaTable, *arguments: Any, **options: Any) -> None:
        other = DeltaTable(table.table_uri, storage_options=objects.options())
        if options.get("fenced"):
            change(writer, other, *arguments, **options)
        change(writer, table, *arguments, **options)

    with writing(root) as ledger:
        record = committed(ledger, 1)
        with monkeypatch.context() as patch:
            patch.setattr(commits, "change", lost)
            ledger.append(record)
        ledger.append(committed(ledger, 2))
    ledger = Ledger.load(Warehouse(root), Writer())
    assert [record.number for record in ledger.ingests()] == [1, 2]
    assert rows_of(ledger) == [1, 2]


# --- damaged tables ---------------------------------------------------------------------------------------------------


def log_of_table(table: Address) -> list[Address]:
    return sorted((point for point, *_ in objects.entries(table / "_delta_log")), key=str)


def ruin(table: Address) -> None:
    for point in log_of_table(table):
        objects.put(point, b"garbage")


DAMAGES: dict[str, Callable[[Address], None]] = {
    "log is garbage": ruin,
    "first commit lost": lambda table: objects.delete(log_of_table(table)[:1]),
    "last commit emptied": lambda table: objects.put(log_of_table(table)[-1], b""),
    "log lost": lambda table: objects.delete(log_of_table(table)),
    "all lost": lambda table: objects.delete([address for address, *_ in objects.entries(table)]),
}


def summed(tables: dict[str, pl.DataFrame]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of the outputs' logs, consolidated."""
    rows = {}
    for name, frame in tables.items():
        if name.startswith("outputs/"):
            sums = frame.group_by(pl.exclude("diff")).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
            rows[name] = sums.sort(sums.columns).rows()
    return rows


@pytest.mark.sample(1, of="commands")
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("state", "log is garbage"),
        pytest.param("outputs/distances", "log is garbage", marks=pytest.mark.long),
        *(pytest.param("state", name, marks=pytest.mark.long) for name in DAMAGES if name != "log is garbage"),
    ],
)
def test_a_damaged_table_is_refused_and_made_again(name: str, damage: str, shop: StoreShop) -> None:
    """Nothing of the old log is deleted or written over; other readers of Delta tables read the new one as well."""
    folder = shop.copy(shop.base("folded"))
    warehouse = shop.warehouse(folder)
    table = max(location for item, location in warehouse.tables() if item.startswith(name))
    assert isinstance(table, Address)
    DAMAGES[damage](table)
    before = {location: objects.read(location) for location in log_of_table(table)}
    refused = shop.command(folder, "run")
    assert refused.code == 1 and any(str(table) in line for line in refused.err), refused
    assert any("--full-refresh" in line for line in refused.err), refused
    assert shop.command(folder, "run", "--full-refresh").code == 0
    assert all(objects.read(location) == content for location, content in before.items())
    assert summed(contents(shop.project(folder))) == summed(shop.scenario("later run").after)
    assert shop.command(folder, "ingest", "roads", str(folder / "most.csv")).code == 0
    assert shop.command(folder, "run").code == 0
    assert shop.command(folder, "doctor", "--deep").code == 0
    assert DeltaTable(str(table), storage_options=objects.options()).version() > len(before) - 1


@pytest.mark.spark
def test_spark_reads_a_table_whose_log_began_anew(root: Address, tmp_path: Path, spark: Any) -> None:
    log = ChangeLog(root / "state" / "ab12", SCHEMA, writer=(writer := Writer()))
    log.append(pl.DataFrame({"n": [1], "version": [1], "diff": [1]}), 1, base=None)
    ruin(root / "state" / "ab12")
    damaged.set_aside(writer, log.folder)
    log.create(replace=True)
    log.append(pl.DataFrame({"n": [2], "version": [2], "diff": [1]}), 2, base=None)
    for location, *_ in objects.entries(root / "state" / "ab12"):
        file = tmp_path / location.relative_to(root)
        file.parent.mkdir(parents=True, exist_ok=True)
        objects.fetch(location, file)
    rows = spark.read.format("delta").load(str(tmp_path / "state" / "ab12")).collect()
    assert [tuple(row) for row in rows] == [(2, 2, 1)]


def test_of_two_that_begin_a_log_anew_one_does(root: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has lost the lock without knowing; it writes nothing."""
    table = root / "state" / "ab12"
    log = ChangeLog(table, SCHEMA, writer=(writer := Writer()))
    log.append(pl.DataFrame({"n": [1], "version": [1], "diff": [1]}), 1, base=None)
    ruin(table)
    create = objects.create

    def overtaken(point: Address, content: bytes) -> bool:
        monkeypatch.setattr(objects, "create", create)
        damaged.set_aside(Writer(), table)
        return create(point, content)

    monkeypatch.setattr(objects, "create", overtaken)
    with pytest.raises(StorageError, match="another process did at the same time"):
        damaged.set_aside(writer, table)
    writer.forget(table)
    log.create(replace=True)
    assert log.append(pl.DataFrame({"n": [2], "version": [2], "diff": [1]}), 2, base=None).rows == 1


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.sample(2, of="commands")
def test_a_sample_of_all_places(shop: StoreShop, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(SAMPLE):
        name, action = rng.choice(SAMPLED), rng.choice(list(CODES))
        point, n = rng.choice(shop.scenario(name).points)
        print(f"{name}: {point}:{n}={action}")
        shop.disturb(name, point, n, action)


@pytest.mark.sample(1, of="commands")
def test_a_first_publication_that_was_stopped_before_its_commit(shop: StoreShop) -> None:
    """Its files, which only the store names so, are no reason to refuse the folder."""
    last = max(n for point, n in shop.scenario("first run").points if point == "after-file")
    shop.disturb("first run", "after-file", last, "int")


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_places_of_a_command(name: str, shop: StoreShop, seed: int) -> None:
    """A kill at every kind of place, and another action at one of them.

    What the next command does about a place does not depend on the store: :mod:`test_failpoints` goes through each of
    them, each time that it is reached. Here is tested that the store holds what a folder holds. A place that is reached
    many times lies between the same two functions of the store each time, so the first, the last and a drawn one
    suffice; ``after-write`` has changed nothing in the store.
    """
    rng, points = random.Random(seed), []
    for point, reached in shop.scenario(name).places.items():
        times = 1 if point == "after-write" else reached
        points += [(point, n) for n in sorted({1, times, rng.randint(1, times)})]
    for point, n in points:
        print(f"{name}: {point}:{n}")
        shop.disturb(name, point, n, "kill")
    other = rng.choice([action for action in CODES if action != "kill"])
    print(f"{name}: {other}")
    shop.disturb(name, *rng.choice(points), other)


def overtake(shop: StoreShop, others: Forks, name: str, point: str, n: int) -> None:
    """Stop a command at a place until its lock has expired, run it in another process, and let the first one go on."""
    scenario, where = shop.scenario(name), f"{name}: {point}:{n}"
    folder = shop.copy(scenario.base)
    project, arguments = shop.project(folder), shop.placed(folder, scenario.arguments)
    new = ["--new-warehouse"] if "ingest" in arguments and "--undo" not in arguments else []
    environment = {**shop.environment(folder), lease.SECONDS: "2"}
    halted = {**environment, "DDCORE_FAILPOINT": f"{point}:{n}=halt"}
    pid = others.start(*arguments, *new, "--project", folder, **halted)
    wait_until_stopped(pid, where)
    time.sleep(3.2)
    known = is_same(contents(project), scenario.after) and not is_same(scenario.before, scenario.after)
    winner = shop.processes.run(*arguments, *new, "--project", folder, **environment)
    assert winner.code == (2 if known and "--undo" in arguments else 0), (where, winner)
    # A repeated command does what is left to do; what an old holder does after that must not show.
    after = contents(project)
    assert_same(after, scenario.after, where)
    os.kill(pid, signal.SIGCONT)
    loser = others.wait(600)
    assert loser is not None, where
    assert loser.code == 75 or (point, n) in scenario.later or known or point in LAST, (where, loser)
    assert not any("Traceback" in line for line in loser.err), (where, loser)
    assert_same(contents(project), scenario.after, where)
    assert shop.command(folder, "doctor", "--deep").code == 0, where
    again = shop.processes.run("run", "--project", folder, **environment)
    assert again.code == 0, (where, again)
    assert not recovery.finish(Ledger.load(shop.warehouse(folder))), where
    shop.remove(folder)


LAST = ("after-warehouse", "after-sweep")  # what follows is not hindered by another process, or is nothing


def wait_until_stopped(pid: int, where: str) -> None:
    for _ in range(600):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return
        time.sleep(0.1)
    raise AssertionError(f"{where}: it was never reached")


OVERTAKEN = (
    ("first run", "after-lock", 1), ("first run", "after-intent", 1), ("first run", "after-file", 2),
    ("first run", "after-table", 1), ("first run", "after-ledger-file", 2), ("later ingest", "after-file", 1),
    ("later ingest", "after-table", 1), ("undo", "after-lock", 1), ("compaction", "after-table", 2),
)  # fmt: skip


@pytest.mark.sample(1, of="commands")
def test_a_run_whose_lock_expired_loses(shop: StoreShop, others: Forks) -> None:
    overtake(shop, others, "first run", "after-table", 2)


@pytest.mark.long
@pytest.mark.parametrize(("name", "point", "n"), OVERTAKEN)
def test_a_command_whose_lock_expired_loses(name: str, point: str, n: int, shop: StoreShop, others: Forks) -> None:
    overtake(shop, others, name, point, n)


@pytest.mark.long
def test_places_at_which_a_lock_expires(shop: StoreShop, others: Forks, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        name = rng.choice(COMMANDS[:8])
        point, n = rng.choice(shop.scenario(name).points)
        print(f"{name}: {point}:{n}")
        overtake(shop, others, name, point, n)


@pytest.mark.sample(1, of="commands")
def test_of_two_ingests_at_once_one_is_told_to_wait(shop: StoreShop, others: Forks) -> None:
    folder = shop.copy(shop.base("folded"))
    halted = {**shop.environment(folder), "DDCORE_FAILPOINT": "after-file=halt"}
    pid = others.start("ingest", "roads", folder / "most.csv", "--project", folder, **halted)
    wait_until_stopped(pid, "ingest")
    second = shop.command(folder, "ingest", "roads", str(folder / "last.csv"))
    assert second.code == 75
    assert any("is in use by ddcore ingest" in line for line in second.err), second
    status = shop.command(folder, "status")
    assert any("ddcore ingest" in line for line in status.out), "readers see who holds it"
    os.kill(pid, signal.SIGCONT)
    first = others.wait(600)
    assert first is not None and first.code == 0
    assert shop.command(folder, "ingest", "roads", str(folder / "last.csv")).code == 0


@pytest.mark.sample(1, of="commands")
@pytest.mark.parametrize("name", ["first ingest", "later run"])
def test_of_two_commands_at_once_one_wins(name: str, shop: StoreShop, others: Forks) -> None:
    """The other one is told to wait, or comes later and has nothing to do; the work is done once."""
    scenario = shop.scenario(name)
    folder = shop.copy(scenario.base)
    new = ["--new-warehouse"] if "ingest" in scenario.arguments else []
    command = (*shop.placed(folder, scenario.arguments), *new, "--project", folder)
    others.start(*command, **shop.environment(folder))
    second = shop.processes.run(*command, **shop.environment(folder))
    first = others.wait(600)
    assert first is not None and sorted((first.code, second.code)) in ([0, 0], [0, 75]), (first, second)
    for ended in (first, second):
        assert ended.code == 0 or any("is in use by ddcore" in line for line in ended.err), ended
    assert_same(contents(shop.project(folder)), scenario.after, name)
    ledger = Ledger.load(shop.warehouse(folder))
    assert (len(list(ledger.ingests())), ledger.next_run()) == ((1, 1) if new else (3, 3))
    shop.remove(folder)


@pytest.mark.sample(1, of="commands")
def test_temporary_files_of_a_killed_command_are_removed_by_the_next(shop: StoreShop, others: Forks) -> None:
    """The copy of a source in the store, and a file on its way to the store."""
    folder = shop.copy(shop.base("folded"))
    objects.put(shop.root(folder) / "sources" / "most.csv", folder / "most.csv")
    command = ("ingest", "roads", str(shop.root(folder) / "sources" / "most.csv"), "--project", folder)
    environment = shop.environment(folder)
    pid = others.start(*command, **environment, DDCORE_FAILPOINT="after-write")
    ended = others.wait(600)
    assert ended is not None and ended.code == CODES["kill"]
    (left,) = Path(tempfile.gettempdir()).glob(f"dd-scratch-{pid}-*")
    assert sorted(path.name for path in left.rglob("*") if path.is_file()) == [".lock", "most.csv", "new"]
    assert shop.processes.run(*command, **environment).code == 0
    assert not left.exists()
    shop.remove(folder)


WRONG = {
    "key": ({"AWS_ACCESS_KEY_ID": "AKIAPLANTEDWRONGKEY1"}, "access denied (InvalidAccessKeyId)"),
    "bucket": ({"DDCORE_WAREHOUSE": "s3://no-such-bucket/w"}, "there is no such bucket"),
    "endpoint": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot"),
}


@pytest.mark.sample(1, of="commands")
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_credentials_and_places_are_one_clear_line(wrong: str, shop: StoreShop) -> None:
    folder = shop.copy(shop.base("folded"))
    before = sorted(location for location, *_ in objects.entries(shop.root(folder)))
    environment, says = WRONG[wrong]
    environment = {**shop.environment(folder), **environment}
    commands = (
        ["run"], ["ingest", "roads", folder / "most.csv"], ["ingest", "--undo", "3"], ["status"], ["show", "towns"],
        ["log"], ["compact"],
    )  # fmt: skip
    for command in commands[: 2 if wrong == "endpoint" else None]:
        start = time.monotonic()
        ended = shop.processes.run(*command, "--project", folder, **environment)
        assert ended.code == 1, (command, ended)
        errors = [line for line in ended.err if line.startswith("error: ")]
        assert len(errors) == 1 and says in errors[0] and "s3://" in errors[0], (command, ended)
        assert not any("Traceback" in line for line in ended.err), (command, ended)
        said = "".join([*ended.out, *ended.err])
        assert GOOD not in said and SECRET not in said and environment["AWS_ACCESS_KEY_ID"] not in said, (
            command,
            ended,
        )
        assert time.monotonic() - start < 150, "it does not try for minutes"
    assert before == sorted(location for location, *_ in objects.entries(shop.root(folder)))


@pytest.mark.long
@pytest.mark.parametrize("parallelism", ["1", "2"])
def test_a_run_on_spark(parallelism: str, shop: StoreShop) -> None:
    """Tasks reach the store by themselves; several workers exchange messages without it."""
    scenario = shop.scenario("later run")
    folder = shop.copy(scenario.base)
    environment = {**os.environ, **shop.environment(folder)}
    command = [sys.executable, "-m", "ddcore.cli.main", "run", "--engine", "spark", "--parallelism", parallelism]
    subprocess.run([*command, "--project", str(folder)], env=environment, check=True, timeout=600)
    rows, expected = contents(shop.project(folder)), scenario.after
    outputs = [name for name in expected if name.startswith("outputs/")]
    assert {name: rows[name].rows() for name in outputs} == {name: expected[name].rows() for name in outputs}
