"""A damaged warehouse is noticed: one flipped bit, a lost commit, a lost ledger, a file in another's place.

After every damage a command gives either the right result or one error that names what is damaged.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from places import local
from seeds import nightly
from workshop import Workshop

from ddcore.base.errors import DdError, StorageError
from ddcore.base.tuning import Tuning
from ddcore.io.delta import commits, heads, table_files, tables
from ddcore.io.delta.commits import change
from ddcore.io.delta.heads import publish
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.intent import give_up
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IntentRecord
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.reading.folded import output_log
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest
from ddcore.jobs.undo import undo

TRIALS = int(os.environ.get("DDCORE_FLIPS", "12"))  # fewer are too few to say how many are noticed
PROGRAM = """
import ddcore as dd

def program(orders, customers):
    joined = orders.join(customers, on="customer")
    return {
        "totals": joined.group_by("region").agg(total=dd.sum("amount"), orders=dd.count()),
        "buyers": orders.select("customer").distinct(),
    }
"""
PROJECT = """
[project]
program = "program.py:program"
warehouse = "warehouse"
[run]
engine = "inline"
[inputs.orders]
schema = {id = "int64", customer = "int64", amount = "int64"}
[inputs.customers]
schema = {customer = "int64", region = "string"}
"""

Results = dict[str, list[Any]]


@dataclass
class Shop:
    """A project whose versions 0 to 2 are folded and whose version 3 waits; ``kept`` is its warehouse, untouched."""

    project: Project
    kept: Path
    folded: Results
    complete: Results

    @property
    def warehouse(self) -> Path:
        return local(self.project.warehouse)

    def table(self, name: str) -> Path:
        return self.warehouse / name

    def state(self) -> Path:
        """A table of state to which every run added a file."""
        return max((self.warehouse / "state").iterdir(), key=lambda folder: len(list(folder.rglob("*.parquet"))))

    def restore(self) -> None:
        shutil.rmtree(self.warehouse, ignore_errors=True)
        shutil.copytree(self.kept, self.warehouse)

    def run(self, **how: Any) -> None:
        replay.run(self.project, engine="inline", **how)

    def ingest(self, version: int, rows: int = 5) -> None:
        ingest(self.project, "orders", [str(orders(self.project.root, version, rows))], engine="inline")

    def results(self) -> Results:
        """What ``show`` reads: both outputs as of every version."""
        logs = {name: output_log(self.project, name) for name in ("totals", "buyers")}
        return {
            name: [sorted(log.accumulate(time_of(version)).rows()) for version in range(log.readable.upper[0][0])]
            for name, log in logs.items()
        }


def orders(folder: Path, version: int, rows: int) -> Path:
    rng = random.Random(version)
    ids = [version * 10_000 + n for n in range(rows)]
    columns = {
        "id": ids, "customer": [rng.randrange(22) for _ in ids], "amount": [rng.randrange(1000) for _ in ids],
        "version": [version] * rows, "diff": [1] * rows,
    }  # fmt: skip
    path = folder / f"orders-{version}.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Small tables with all that large ones have: checkpoints, gathered ledger files, files of several row groups."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(PROJECT)
    customers = {"customer": range(20), "region": [f"region {n % 5}" for n in range(20)], "version": 0, "diff": 1}
    pl.DataFrame(customers).write_parquet(folder / "customers.parquet")
    project = replace(find_project(folder, {}), tuning=Tuning(ledger_files=3, ledger_commits=3, checkpoint_commits=2))
    shop = Shop(project, folder / "kept", {}, {})
    ingest(shop.project, "customers", [str(folder / "customers.parquet")], engine="inline")
    for version, rows in enumerate((1500, 5, 5, 5)):
        shop.ingest(version, rows)
        if version < 3:
            shop.run()
    shutil.copytree(shop.warehouse, shop.kept)
    shop.folded = shop.results()
    shop.run()
    shop.complete = shop.results()
    yield shop


@pytest.fixture
def shop(made: Shop) -> Shop:
    """The shop, as it was made."""
    made.restore()
    return made


def outcome(work: Callable[[], Any], warehouse: Path) -> Any:
    """What it gives, or ``error`` for one clear error that names a place in the warehouse."""
    try:
        return work()
    except DdError as error:
        assert str(warehouse) in error.message and "\n" not in error.message, error.message
        assert error.hint
        return "error"


@pytest.mark.parametrize("trials", nightly([TRIALS, 300], 1))
def test_one_flipped_bit_never_changes_a_result(trials: int, shop: Shop, seed: int) -> None:
    rng = random.Random(seed)
    files = sorted(path.relative_to(shop.kept) for path in shop.kept.rglob("*") if path.is_file())
    files = [path for path in files if (shop.kept / path).stat().st_size]
    seen: Counter[tuple[str, bool]] = Counter()
    for _ in range(trials):
        shop.restore()
        name = rng.choice(files)
        content = bytearray((shop.warehouse / name).read_bytes())
        point, bit = rng.randrange(len(content)), rng.randrange(8)
        content[point] ^= 1 << bit
        (shop.warehouse / name).write_bytes(content)
        # A run reads everything else, and the outputs are read after it anyway.
        read = outcome(shop.results, shop.warehouse) if name.parts[0] in ("outputs", "ledger") else shop.folded
        assert read in ("error", shop.folded), (name, point, bit)
        run = outcome(shop.run, shop.warehouse)
        if run != "error":
            run = outcome(shop.results, shop.warehouse)
        assert run in ("error", shop.complete), (name, point, bit)
        seen[name.parts[0], "error" in (read, run)] += 1
    print(dict(seen))
    # Many files are not read any more: gathered ones of the ledger, commits that a checkpoint has. About a fifth of all
    # flips is noticed.
    noticed = sum(number for (_, error), number in seen.items() if error)
    assert trials < 60 or noticed > trials // 20


def last_commit(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


def swap_files(table: Path) -> None:
    """Put the bytes of one data file into the place of another."""
    first, second = sorted(table.rglob("*.parquet"))[:2]
    shutil.copy(first, second)


def log_is_garbage(table: Path) -> None:
    for commit in (table / "_delta_log").iterdir():
        commit.write_text("garbage")


TABLE_DAMAGES: dict[str, Callable[[Path], Any]] = {
    "last-commit-emptied": lambda table: last_commit(table).write_text(""),
    "last-commit-lost": lambda table: last_commit(table).unlink(),
    "log-is-garbage": log_is_garbage,
    "log-lost": lambda table: shutil.rmtree(table / "_delta_log"),
    "table-lost": shutil.rmtree,
    "file-lost": lambda table: next(table.rglob("*-*.parquet")).unlink(),
    "files-swapped": swap_files,
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("damage", "room"),
    nightly(
        [*zip(TABLE_DAMAGES, cycle(["outputs", "state"])), *zip(TABLE_DAMAGES, cycle(["state", "outputs"]))],
        len(TABLE_DAMAGES),
    ),
)
def test_a_damaged_table_is_refused_and_made_again(shop: Shop, damage: str, room: str) -> None:
    table = without_checkpoints(shop.table("outputs/totals") if room == "outputs" else shop.state())
    TABLE_DAMAGES[damage](table)
    with pytest.raises(StorageError, match="--full-refresh") as caught:
        shop.run()
        shop.results()
    assert str(table) in caught.value.message
    shop.run(full_refresh=True)
    assert shop.results() == shop.complete
    shop.ingest(4)
    shop.run()
    after = shop.results()
    shop.restore()
    shop.run()
    shop.ingest(4)
    shop.run()
    assert after == shop.results(), "the state that was made again is whole"


@pytest.mark.sample(2)
@pytest.mark.parametrize("damage", ["last-commit-emptied", "last-commit-lost", "file-lost", "files-swapped"])
def test_a_table_is_checked_after_an_undo(shop: Shop, damage: str) -> None:
    """Every command that reads or writes it refuses it, and once more it is the table that the undo left."""
    undo(shop.project, _number(shop, "orders"))
    shop.run()
    assert shop.results() == shop.folded
    table = without_checkpoints(shop.table("inputs/orders"))
    lost = _live(shop, "orders")[0].path
    if damage == "file-lost":
        (table / lost).unlink()
    else:
        TABLE_DAMAGES[damage](table)
    with pytest.raises(StorageError) as caught:
        shop.run(full_refresh=True)
    assert str(table) in caught.value.message
    if damage.startswith("last-commit"):
        for command in (lambda: shop.ingest(4), lambda: undo(shop.project, _number(shop, "orders"))):
            with pytest.raises(DdError):
                command()


@pytest.mark.parametrize("damage", ["last-commit-emptied", "last-commit-lost", "file-lost", "files-swapped"])
def test_a_damaged_input_is_refused_by_every_command_that_reads_it(shop: Shop, damage: str) -> None:
    table = without_checkpoints(shop.table("inputs/orders"))
    TABLE_DAMAGES[damage](table)
    with pytest.raises(StorageError) as caught:
        shop.run(full_refresh=True)
    assert str(table) in caught.value.message
    assert "backup" in caught.value.hint


# --- the ledger -------------------------------------------------------------------------------------------------------


def only_a_checkpoint(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    remove((table / "_delta_log").glob("*.json"))


def remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()


def without_checkpoints(table: Path) -> Path:
    """The table, with nothing but its commits in the log."""
    log = table / "_delta_log"
    remove([*log.glob("*.checkpoint.parquet"), *log.glob("_last_checkpoint")])
    return table


def lose_commits(table: Path) -> None:
    """As an older backup has it: five entries fewer."""
    for _ in range(5):
        last_commit(without_checkpoints(table)).unlink()


LEDGER_DAMAGES: dict[str, Callable[[Path], Any]] = {
    "lost": shutil.rmtree,
    "emptied": lambda table: remove(path for path in table.rglob("*") if path.is_file()),
    "older": lose_commits,
    "restored": lambda table: DeltaTable(str(table)).restore(4),
    "rows-deleted": lambda table: DeltaTable(str(table)).delete("entry > 5"),
    "all-deleted": lambda table: DeltaTable(str(table)).delete(),
    "only-a-checkpoint": only_a_checkpoint,
    "no-json": lambda table: remove((table / "_delta_log").iterdir()),
    "last-commit-emptied": lambda table: last_commit(without_checkpoints(table)).write_text(""),
}


@pytest.mark.parametrize("damage", LEDGER_DAMAGES)
def test_a_ledger_that_lost_something_is_refused_by_every_command(shop: Shop, damage: str) -> None:
    LEDGER_DAMAGES[damage](shop.table("ledger"))
    before = {path: path.read_bytes() for path in shop.table("inputs").rglob("*") if path.is_file()}
    for command in (shop.run, lambda: shop.run(full_refresh=True), lambda: shop.ingest(4), shop.results):
        with pytest.raises(StorageError) as caught:
            command()
        assert str(shop.table("ledger")) in caught.value.message
        assert "backup" in caught.value.hint
    assert before == {path: path.read_bytes() for path in shop.table("inputs").rglob("*") if path.is_file()}


def test_a_ledger_that_lost_its_last_ingest_alone_costs_no_rows(shop: Shop) -> None:
    """Nothing tells it from an ingest that was killed. So the next command finishes it as one, with a note."""
    (lost,) = {file.path for file in _live(shop, "orders")} - {file.path for file in _live(shop, "orders", back=1)}
    last_commit(without_checkpoints(shop.table("ledger"))).unlink()
    source = str(orders(shop.project.root, 7, 3))
    report = ingest(shop.project, "orders", [source], engine="inline")
    assert any("it is finished now" in note for note in report.notes)
    assert lost in {file.path for file in _live(shop, "orders")}
    shop.run()
    assert shop.results()["totals"][3] == shop.complete["totals"][3]


def test_a_ledger_that_lost_its_last_undo_alone_costs_no_rows(shop: Shop) -> None:
    """Nothing tells it from an undo that was killed. So the next command finishes it as one, with a note."""
    undo(shop.project, _number(shop, "orders"))
    last_commit(without_checkpoints(shop.table("ledger"))).unlink()
    notes = ingest(shop.project, "orders", [str(orders(shop.project.root, 7, 3))], engine="inline").notes
    assert any("the undo of ingest" in note and "it is finished now" in note for note in notes)
    shop.run()
    assert shop.results()["totals"][:3] == shop.complete["totals"][:3]
    assert shop.results()["totals"][3] != shop.complete["totals"][3]


def test_a_ledger_older_than_a_given_up_run_is_refused(shop: Shop) -> None:
    """The number of a run that was given up stays known; tables that a later run wrote are not without it."""
    table = Ledger.load(Warehouse(shop.warehouse), Writer())
    number = table.next_run()
    table.append(IntentRecord(number, "ab12", time_of(3), time_of(3), parallelism=1, engine="inline"))
    before = shop.table("ledger").with_name("before")
    shutil.copytree(shop.table("ledger"), before)
    assert give_up(table, "it was not finished")
    assert Ledger.load(Warehouse(shop.warehouse)).next_run() == number + 1
    shop.run()
    assert shop.results() == shop.complete
    shutil.rmtree(shop.table("ledger"))
    before.rename(shop.table("ledger"))
    for command in (shop.run, shop.results, lambda: shop.ingest(4), lambda: undo(shop.project, 5)):
        with pytest.raises(StorageError, match=rf"holds run {number + 1}: the ledger, or a part of it, was lost"):
            command()


def test_a_refresh_of_damaged_tables_can_be_given_up(shop: Shop) -> None:
    """Tables that were moved aside are no tables, and hold nothing of the run."""
    log_is_garbage(without_checkpoints(shop.state()))
    command = [str(Path(sys.executable).with_name("ddcore")), "run", "-q", "--full-refresh"]
    environment = {**os.environ, "DDCORE_FAILPOINT": "after-file"}
    assert subprocess.run(command, cwd=shop.project.root, env=environment, check=False).returncode == -9
    assert list(shop.table("state").glob("_damaged-*"))
    shop.ingest(4)
    assert Ledger.load(Warehouse(shop.warehouse)).open_intent() is None
    shop.run(full_refresh=True)
    assert shop.results()["totals"][:4] == shop.complete["totals"]


def test_a_commit_that_failed_half_way_is_seen(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is in the log and the library raised all the same: the run is to be finished, and not given up."""
    with monkeypatch.context() as patch:
        patch.setattr(commits, "change", _commit_and_fail)
        patch.setattr(heads, "publish", _publish_and_fail)
        with pytest.raises(StorageError, match="No space left"):
            shop.run()
    intent = Ledger.load(Warehouse(shop.warehouse)).open_intent()
    assert intent is not None
    shop.run()
    assert Ledger.load(Warehouse(shop.warehouse)).open_intent() is None
    assert shop.results() == shop.complete


def _publish_and_fail(prepared: heads.Prepared) -> None:
    publish(prepared)
    if prepared.folder.name != "ledger":
        raise OSError(errno.ENOSPC, "No space left on device", str(prepared.folder))


def _commit_and_fail(writer: Writer, table: DeltaTable, *rest: Any, **options: Any) -> None:
    if Path(table.table_uri.removeprefix("file://")).name == "ledger":
        return change(writer, table, *rest, **options)
    change(writer, DeltaTable(table.table_uri), *rest, **options)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _number(shop: Shop, name: str) -> int:
    """The number of an input's last ingest."""
    return max(record.number for record in Ledger.load(Warehouse(shop.warehouse)).ingests(name))


def _live(shop: Shop, name: str, back: int = 0) -> list[table_files.LiveFile]:
    folder = shop.table(f"inputs/{name}")
    states = [record.table for record in Ledger.load(Warehouse(shop.warehouse)).ingests(name)]
    state = states[-1 - back]
    return tables.files_of(DeltaTable(str(folder), version=state.version))


def test_maintenance_by_others_is_no_damage(shop: Shop) -> None:
    for name in ("ledger", "inputs/orders", "outputs/totals"):
        table = DeltaTable(str(shop.table(name)))
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert shop.results() == shop.folded
    shop.run()
    assert shop.results() == shop.complete
    shop.run(full_refresh=True)
    assert shop.results() == shop.complete


# --- every kind of table, and every kind of file in it ----------------------------------------------------------------


@dataclass
class Figures:
    """A project with two time dimensions, whose runs so far left held updates and pending times; one box waits."""

    project: Project
    kept: Path
    before: dict[str, pl.DataFrame]
    after: dict[str, pl.DataFrame]
    anew: dict[str, pl.DataFrame]

    def restore(self) -> None:
        shutil.rmtree(local(self.project.warehouse), ignore_errors=True)
        shutil.copytree(self.kept, local(self.project.warehouse))

    def run(self, *, full_refresh: bool = False) -> dict[str, pl.DataFrame]:
        """The rows of all tables after a run."""
        replay.run(self.project, engine="inline", full_refresh=full_refresh)
        return self.outputs()

    def outputs(self) -> dict[str, pl.DataFrame]:
        """The rows of all outputs, unconsolidated and sorted, as ``show`` reads them."""
        logs = {name: output_log(self.project, name) for name in ("words", "left", "pairs")}
        frames = {name: log.log.collect(log.log.scan(log.table)) for name, log in logs.items()}
        return {name: frame.sort(frame.columns) for name, frame in frames.items()}


KINDS = ("inputs", "outputs", "state", "held", "pending", "ledger")
PARTS = ("data file", "commit", "checkpoint")
HARMS = ("deleted", "truncated", "flipped")


@pytest.fixture(scope="module")
def figures(workshop: Workshop) -> Figures:
    """With a checkpoint in every table."""
    project = find_project(workshop.copy(workshop.base("half folded")), {})
    for log in local(project.warehouse).rglob("_delta_log"):
        DeltaTable(str(log.parent)).create_checkpoint()
    kept = Path(shutil.copytree(local(project.warehouse), project.root / "kept"))
    made = Figures(project, kept, {}, {}, {})
    made.before, made.after = made.outputs(), made.run()
    made.restore()
    made.anew = made.run(full_refresh=True)
    return made


def table_of_kind(warehouse: Path, kind: str) -> Path:
    """The table of a kind with the most rows in live files, by its Delta log."""
    if kind == "ledger":
        return warehouse / "ledger"
    folders = [*(warehouse / ("state" if kind in ("held", "pending") else kind)).iterdir()]
    if kind in ("state", "held", "pending"):
        parts = {folder: folder.name.rpartition("_")[2] for folder in folders}
        folders = [folder for folder, part in parts.items() if (part if part in KINDS else "state") == kind]
    return max(
        folders, key=lambda folder: (sum(file.rows for file in tables.files_of(DeltaTable(str(folder)))), folder)
    )


def part_of(table: Path, part: str) -> Path:
    if part == "data file":
        newest = DeltaTable(str(table))
        return table / max(tables.files_of(newest), key=lambda file: (file.rows, file.path)).path
    log = table / "_delta_log"
    return last_commit(table) if part == "commit" else max(log.glob("*.checkpoint.parquet"))


def harm(file: Path, how: str, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    if how == "deleted":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(content[: rng.randrange(len(content))])
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)


def check_harm(figures: Figures, kind: str, part: str, how: str, seed: int) -> None:
    """Harm one file: every command gives the right rows or an error that names the table, and refreshes repair it."""
    rng, where, warehouse = random.Random(seed), f"{kind}, {part}, {how}, seed {seed}", local(figures.project.warehouse)
    figures.restore()
    table = table_of_kind(warehouse, kind)
    harm(part_of(table, part), how, rng)
    named = f"{warehouse}/{table.relative_to(warehouse)}"

    def told(work: Callable[[], Any], expected: dict[str, pl.DataFrame]) -> bool:
        """Whether the command says what is damaged; else it has to give these rows."""
        try:
            frames = work()
        except DdError as error:
            assert named in error.message, (where, error.message)
            assert error.hint, where
            return True
        assert all(frames[name].equals(frame) for name, frame in expected.items()), where
        return False

    said = [told(figures.outputs, figures.before), told(figures.run, figures.after)]
    refreshed = told(lambda: figures.run(full_refresh=True), figures.anew)
    if part == "data file":
        # An old input file is read by a refresh only; merged files of the ledger may not be read at all.
        assert any([*said, refreshed]), f"{where}: nobody noticed"
    if kind in ("inputs", "ledger"):
        return
    assert not refreshed, f"{where}: --full-refresh does not repair it"
    assert all(figures.outputs()[name].equals(frame) for name, frame in figures.anew.items())


def test_a_sample_of_harmed_files(figures: Figures, seed: int) -> None:
    rng = random.Random(seed)
    for number, kind in enumerate(rng.sample(KINDS, 2)):
        check_harm(figures, kind, rng.choice(PARTS), HARMS[number % len(HARMS)], rng.randrange(10**6))


@pytest.mark.long
@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_of_every_kind_of_table(kind: str, part: str, how: str, figures: Figures) -> None:
    for seed in range(1 if how == "deleted" else 6):
        check_harm(figures, kind, part, how, seed)


def test_a_lost_commit_that_a_checkpoint_has_is_not_the_end_of_a_table(figures: Figures) -> None:
    for kind in ("ledger", "outputs"):
        check_harm(figures, kind, "commit", "deleted", 0)
