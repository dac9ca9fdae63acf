"""The heads of tables: what our own commits say of a table, the commits that are made from them, and where none is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ddcore.base.errors import StorageError
from ddcore.base.schema import Schema, parse_schema
from ddcore.base.tuning import DEFAULT
from ddcore.io.delta import commits, heads, new_files, open_tables, syncs, tables
from ddcore.io.delta.column_types import delta_schema
from ddcore.io.delta.table_files import AddedFile, TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import RunRecord
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse

ROWS: Schema = parse_schema({"n": "int64", "s": "string"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table with one commit of ours, of the Delta library."""
    tables.create(Writer(), tmp_path / "t", ROWS)
    return tmp_path / "t"


def write(folder: Path, *numbers: int, unsynced: new_files.Unsynced | None = None) -> AddedFile:
    columns = {"n": pa.array(numbers, pa.int64()), "s": pa.array([f"text {n}" for n in numbers])}
    table = new_files.arrow_table(columns, ROWS)
    return new_files.write_file(folder, "f", table, bounded=["n", "s"], unsynced=unsynced)


def commit(folder: Path, number: int, base: TableState | None, *numbers: int, **how: Any) -> TableState:
    return commits.commit(Writer(), folder, [write(folder, *numbers)], number, base=base, **how)


def numbers(folder: Path, version: int | None = None) -> list[int]:
    """What another reader sees: Polars, through the Delta library."""
    return sorted(pl.read_delta(str(folder), version=version)["n"])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The tables that the library opens from here on."""
    found: list[object] = []
    before = open_tables.open_table

    def open_table(folder: Path, version: int | None = None, *, writer: Writer | None = None) -> DeltaTable:
        found.append(folder)
        return before(folder, version, writer=writer)

    for module in (tables, commits, open_tables):
        monkeypatch.setattr(module, "open_table", open_table)
    return found


def test_a_commit_of_ours_is_the_next_ones_beginning(folder: Path, opened: list[object]) -> None:
    one = commit(folder, 1, None, 1, 2)
    opened.clear()
    two = commit(folder, 2, one, 3)
    three = commit(folder, 3, two, 4, overwrite=True)
    assert [file.rows for file in tables.live_files(folder, three)] == [1]
    assert opened == []
    assert [numbers(folder, item.version) for item in (one, two, three)] == [[1, 2], [1, 2, 3], [4]]
    assert tables.state_at(folder, three.version) == three, "as the library reads it"
    assert DeltaTable(str(folder)).transaction_version(tables.APP) == 3
    assert not (folder / "_delta_log" / ".commit.tmp").exists()


FEED = {"delta.enableChangeDataFeed": "true"}
KINDS: Schema = parse_schema({"n": "int64", "id": "uuid", "d": "decimal(10,2)", "l": "list[struct[x: timestamp]]"})


@pytest.mark.parametrize("description", [None, "a täble"])
@pytest.mark.parametrize("settings", [{}, FEED, {"delta.logRetentionDuration": "interval 1 hours"}])
def test_a_new_table_is_as_the_library_makes_it(
    settings: dict[str, str], description: str | None, tmp_path: Path, opened: list[object]
) -> None:
    ours, every = tmp_path / "ours", {"delta.checkpointInterval": str(DEFAULT.checkpoint_commits)}
    log, writer = ours / "_delta_log", Writer()
    log.mkdir(parents=True)
    (log / ".commit.tmp").write_text("of a killed process")
    tables.create(writer, ours, KINDS, description=description, configuration=settings)
    columns = delta_schema(KINDS)
    made = DeltaTable.create(tmp_path / "other", columns, description=description, configuration=every | settings)
    table = DeltaTable(ours)
    assert table.version() == 0 and table.file_uris() == [] and os.listdir(log) == [f"{0:020d}.json"]
    assert table.schema() == made.schema() and table.protocol() == made.protocol()
    one, other = table.metadata(), made.metadata()
    assert (one.name, one.description, one.configuration) == (other.name, other.description, other.configuration)
    assert one.partition_columns == other.partition_columns and one.id != other.id
    assert tables.stored_columns(ours) == [(name, str(kind)) for name, kind in KINDS.items()]
    opened.clear()
    tables.create(writer, ours, KINDS, description=description, configuration=settings)
    assert opened == [], "what it has created is known"


def test_the_first_commit_opens_no_table(tmp_path: Path, opened: list[object]) -> None:
    folder, writer = tmp_path / "t", Writer()
    tables.create(writer, folder, ROWS)
    one = commits.commit(writer, folder, [write(folder, 1, 2)], 1, base=None)
    assert opened == [] and [file.rows for file in tables.live_files(folder, one)] == [2]
    assert numbers(folder) == [1, 2] and tables.state_at(folder, one.version) == one


def test_names_of_columns_that_are_not_plain_are_for_the_library(tmp_path: Path) -> None:
    tables.create(Writer(), tmp_path / "t", parse_schema({"a b": "int64"}))
    assert DeltaTable(tmp_path / "t").history()[0]["engineInfo"].startswith("delta-rs")


def test_a_table_that_another_program_makes_at_the_same_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = heads.publish

    def late(prepared: heads.Prepared) -> None:
        pl.DataFrame({"n": [99], "s": ["foreign"]}).write_delta(str(tmp_path / "t"), mode="append")
        publish(prepared)

    monkeypatch.setattr(heads, "publish", late)
    with pytest.raises(StorageError, match="cannot create the table"):
        tables.create(Writer(), tmp_path / "t", ROWS)
    assert numbers(tmp_path / "t") == [99]


def test_the_library_makes_the_checkpoints(folder: Path) -> None:
    state = None
    for number in range(1, 2 * DEFAULT.checkpoint_commits + 4):
        state = commit(folder, number, state, number)
        assert tables.state_at(folder, state.version) == state
    names = [path.name for path in (folder / "_delta_log").glob("*.checkpoint.parquet")]
    assert len(names) == 2
    assert numbers(folder) == [*range(1, 2 * DEFAULT.checkpoint_commits + 4)]


def test_another_programs_commit_is_seen(folder: Path, opened: list[object]) -> None:
    one = commit(folder, 1, None, 1)
    two = commit(folder, 2, one, 2)
    DeltaTable(str(folder)).optimize.compact()
    assert len(tables.live_files(folder, two)) == 1, "the files after the maintenance"
    three = commit(folder, 3, two, 3)
    pl.DataFrame({"n": [99], "s": ["foreign"]}).write_delta(str(folder), mode="append")
    opened.clear()
    four = commit(folder, 4, three, 4)
    assert opened
    assert numbers(folder) == [1, 2, 3, 4]
    opened.clear()
    assert numbers(folder, commit(folder, 5, four, 5).version) == [1, 2, 3, 4, 5]
    assert opened == []


def test_a_commit_at_the_same_moment_is_not_overwritten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program takes the number between the reading and the commit."""
    one = commit(folder, 1, None, 1)
    publish = heads.publish

    def late(prepared: heads.Prepared) -> None:
        monkeypatch.setattr(heads, "publish", publish)
        pl.DataFrame({"n": [99], "s": ["foreign"]}).write_delta(str(folder), mode="append")
        publish(prepared)

    monkeypatch.setattr(heads, "publish", late)
    two = commit(folder, 2, one, 2)
    assert two.version == one.version + 2
    assert numbers(folder, two.version) == [1, 2]
    assert numbers(folder, two.version - 1) == [1, 99]
    monkeypatch.setattr(heads, "publish", late)
    writer = Writer()
    with commits.together(writer) as overtaken:
        commits.commit(writer, folder, [write(folder, 3)], 3, base=two)
    assert overtaken == {folder}
    assert numbers(folder, commit(folder, 3, two, 3).version) == [1, 2, 3]


@pytest.mark.parametrize("damage", ["note", "action", "lost", "torn"])
def test_a_damaged_commit_has_no_head(folder: Path, damage: str, opened: list[object]) -> None:
    one = commit(folder, 1, None, 1)
    two = commit(folder, 2, one, 2)
    path = folder / "_delta_log" / f"{two.version:020d}.json"
    text = path.read_text()
    if damage == "note":
        path.write_text(text.replace('\\"rows\\"', '\\"row\\"').replace("[1,", "[2,").replace("f-", "g-", 1))
    elif damage == "action":
        path.write_text(text.replace('\\"numRecords\\":1', '\\"numRecords\\":2'))
    elif damage == "lost":
        (folder / "_delta_log" / f"{one.version:020d}.json").unlink()
    else:
        path.write_text(text[: len(text) // 2])
    assert heads.at(folder, two) is None
    opened.clear()
    try:
        files = tables.live_files(folder, two)
    except StorageError as error:
        assert str(folder) in error.message
    else:
        assert damage == "note" and len(files) == 2
    assert opened


def test_a_group_is_synced_before_any_of_it_has_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in "abcd"]
    for item in folders:
        tables.create(Writer(), item, ROWS)
    bases = [commit(item, 1, None, 1) for item in folders]
    events: list[tuple[str, Path]] = []
    fsync, publish = os.fsync, heads.publish

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))

    def published(prepared: heads.Prepared) -> None:
        publish(prepared)
        events.append(("commit", prepared.folder))

    files = [write(item, 2) for item in folders]
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(heads, "publish", published)
    writer = Writer()
    with commits.together(writer):
        for item, base, file in zip(folders, bases, files, strict=True):
            commits.commit(writer, item, [file], 2, base=base)
        assert [numbers(item) for item in folders] == [[1]] * 4
    kinds = [kind for kind, _ in events]
    assert kinds == ["sync"] * 4 + ["commit"] * 4 + ["sync"] * 4
    assert {path.name for _, path in events[:4]} == {".commit.tmp"}
    assert [path for _, path in events[4:8]] == folders, "in their order"
    assert {path for _, path in events[8:]} == {item / "_delta_log" for item in folders}
    assert [numbers(item) for item in folders] == [[1, 2]] * 4


def test_a_group_that_fails_commits_nothing(folder: Path) -> None:
    one = commit(folder, 1, None, 1)
    writer = Writer()
    with pytest.raises(ZeroDivisionError), commits.together(writer):
        commits.commit(writer, folder, [write(folder, 2)], 2, base=one)
        raise ZeroDivisionError
    assert numbers(folder) == [1]
    assert not (folder / "_delta_log" / ".commit.tmp").exists()
    assert commit(folder, 2, one, 2).version == one.version + 1


def test_what_a_killed_process_left_goes_and_is_never_written_into(folder: Path) -> None:
    """It may have its number already: the name and the number are one file then."""
    one = commit(folder, 1, None, 1)
    newest, left = folder / "_delta_log" / f"{one.version:020d}.json", folder / "_delta_log" / ".commit.tmp"
    os.link(newest, left)
    text = newest.read_text()
    two = commit(folder, 2, one, 2)
    assert newest.read_text() == text
    assert numbers(folder, two.version) == [1, 2]
    left.write_text("half a com")
    heads.remove_left([folder, folder / "none"])
    assert not left.exists()


def test_data_files_are_synced_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(syncs, "sync", lambda location: synced.append(location.name))
    with new_files.Unsynced() as unsynced:
        files = [write(tmp_path / "t", number, unsynced=unsynced) for number in range(4)]
        assert synced == []
    assert {*synced[:4]} == {file.path for file in files}
    assert synced[4:] == ["t"], "the folder once, after its files"


def test_the_ledger_is_read_and_written_without_the_library(tmp_path: Path, opened: list[object]) -> None:
    warehouse = Warehouse(tmp_path)
    for number in range(1, 4):
        Ledger.load(warehouse, Writer()).append(record(number))
    opened.clear()
    ledger = Ledger.load(warehouse, Writer())
    assert ledger.last_folded() == time_of(3)
    run = ledger.current_run()
    assert run is not None and run.run == 3
    ledger.append(record(4))
    assert opened == []
    assert [item.run for item in Ledger.load(warehouse).records(RunRecord)] == [1, 2, 3, 4]
    ledger.entries.check()


def test_the_ledger_through_its_merges_and_checkpoints(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    for number in range(1, 70):
        Ledger.load(warehouse, Writer()).append(record(number))
    assert [item.run for item in Ledger.load(warehouse).records(RunRecord)] == [*range(1, 70)]
    rows = pl.read_delta(str(warehouse.ledger)).sort("entry")
    assert rows["number"].to_list() == [*range(1, 70)]
    assert rows["digest"].to_list()[:-1] == rows["before"].to_list()[1:]


def test_a_row_in_a_commit_is_believed_by_its_digest_only(tmp_path: Path, opened: list[object]) -> None:
    warehouse = Warehouse(tmp_path)
    for number in range(1, 4):
        Ledger.load(warehouse, Writer()).append(record(number))
    newest = sorted((tmp_path / "ledger" / "_delta_log").glob("*.json"))[-1]
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    lines[0]["commitInfo"]["ddcore.row"] = lines[0]["commitInfo"]["ddcore.row"].replace('"inline', '"spark', 1)
    newest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    opened.clear()
    run = Ledger.load(warehouse).current_run()
    assert run is not None and run.engine == "inline", "the file has the right row"
    assert opened


def record(number: int) -> RunRecord:
    return RunRecord(
        number, "ab12", time_of(number), time_of(number), "inline", 1, rounds=1, took=0.1, inputs={}, outputs={},
        tables={"outputs/x": TableState(number, 1, 1, "cd")},
    )  # fmt: skip
