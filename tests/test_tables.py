"""Delta tables through delta-rs: what a commit makes of a table, also after a crash, and what other readers see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import astuple, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from ddcore.base.errors import StorageError, UsageError
from ddcore.base.schema import Schema, Type, parse_schema
from ddcore.io.delta import commits, new_files, open_tables, syncs, tables
from ddcore.io.delta.table_files import AddedFile, TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.parquet.column_bounds import bounds

NUMBERS: Schema = parse_schema({"n": "int64"})
EVERY_TYPE = parse_schema(
    {
        "n": "int64", "x": "float64", "b": "bool", "s": "string", "y": "binary", "d": "date", "t": "timestamp",
        "m": "decimal(18,2)",
    }
)  # fmt: skip
ROWS = [
    (
        2**63 - 1, 1.5, True, "a", b"\x00\xff", date(1969, 12, 31), datetime(2024, 1, 1, 0, 0, 0, 123456, UTC),
        Decimal("-1.25"),
    ),
    (
        -(2**63) + 1, float("inf"), False, "Å" * 40, b"", date(9999, 12, 31), datetime(1900, 1, 1, tzinfo=UTC),
        Decimal("9999999999999999.99"),
    ),
    (None,) * 8,
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tables.create(Writer(), tmp_path / "t", NUMBERS)
    return tmp_path / "t"


def write(folder: Path, *numbers: int, stem: str = "f") -> AddedFile:
    table = new_files.arrow_table({"n": pa.array(numbers, pa.int64())}, NUMBERS)
    return new_files.write_file(folder, stem, table, bounded=["n"])


def numbers(folder: Path, state: TableState | None = None) -> list[int]:
    table = DeltaTable(str(folder), version=state.version if state else None).to_pyarrow_table()
    return sorted(table["n"].to_pylist())


def test_tables_stay_on_the_oldest_protocol(folder: Path) -> None:
    commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    protocol = DeltaTable(str(folder)).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_a_file_is_invisible_until_it_is_committed(folder: Path) -> None:
    file = write(folder, 1, 2)
    assert (folder / file.path).stat().st_size == file.size
    assert numbers(folder) == []
    version = commits.commit(Writer(), folder, [file], 1, base=None)
    assert numbers(folder, version) == [1, 2]
    assert DeltaTable(str(folder)).transaction_version(tables.APP) == 1


def test_the_same_rows_give_the_same_file(folder: Path) -> None:
    assert write(folder, 1, 2) == write(folder, 1, 2)
    assert write(folder, 1, 2).path != write(folder, 1, 3).path
    assert len(list(folder.glob("*.parquet"))) == 2
    assert not list(folder.glob(".*")), "nothing temporary stays"


def test_committing_again_commits_nothing(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    two = commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)
    again = commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)
    assert again == two
    assert DeltaTable(str(folder)).version() == two.version
    assert numbers(folder) == [1, 2]


def test_a_repeated_attempt_may_cut_its_rows_into_other_files(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    commits.commit(Writer(), folder, [write(folder, 2, 3)], 2, base=one)
    narrow = [write(folder, 2, stem="a"), write(folder, 3, stem="b")]
    version = commits.commit(Writer(), folder, narrow, 2, base=one)
    assert numbers(folder, version) == [1, 2, 3]


def test_what_a_given_up_attempt_committed_is_taken_out(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    commits.commit(Writer(), folder, [write(folder, 99)], 2, base=one)  # and no ledger entry
    version = commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)
    assert numbers(folder, version) == [1, 2]
    assert numbers(folder, one) == [1], "who reads what the ledger names never noticed"


def test_a_table_no_ledger_names_begins_empty(folder: Path) -> None:
    commits.commit(Writer(), folder, [write(folder, 99)], 1, base=None)
    version = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    assert numbers(folder, version) == [1]


def test_overwriting_keeps_the_old_version_readable(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1), write(folder, 2)], 1, base=None)
    two = commits.commit(Writer(), folder, [write(folder, 3)], 2, base=one, overwrite=True)
    assert numbers(folder, two) == [3]
    assert numbers(folder, one) == [1, 2]
    assert commits.commit(Writer(), folder, [write(folder, 3)], 2, base=one, overwrite=True) == two
    assert numbers(folder, commits.commit(Writer(), folder, [], 3, base=two, overwrite=True)) == []


def test_a_given_up_overwrite_is_undone(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    commits.commit(Writer(), folder, [write(folder, 99)], 2, base=one, overwrite=True)
    version = commits.commit(Writer(), folder, [write(folder, 2)], 3, base=one)
    assert numbers(folder, version) == [1, 2]


def test_nothing_to_add_is_no_commit(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    assert commits.commit(Writer(), folder, [], 2, base=one) == one


def test_maintenance_by_others_is_kept(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    two = commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)
    DeltaTable(str(folder)).optimize.compact()
    three = commits.commit(Writer(), folder, [write(folder, 3)], 3, base=two)
    assert numbers(folder, three) == [1, 2, 3]
    assert len(tables.live_files(folder, three)) == 2


def test_readers_follow_maintenance_and_nothing_else(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    two = commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)
    table = DeltaTable(str(folder))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    (file,) = tables.live_files(folder, two)
    assert (folder / file.path).exists(), "the files that version two had are gone"
    assert file.rows == 2
    commits.commit(Writer(), folder, [write(folder, 99)], 3, base=two)  # and no ledger entry
    assert tables.live_files(folder, two) == [file]
    assert numbers(folder, commits.commit(Writer(), folder, [write(folder, 3)], 3, base=two)) == [1, 2, 3]


def test_properties_that_others_set_change_nothing(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    DeltaTable(str(folder)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert [file.rows for file in tables.live_files(folder, one)] == [1]
    two = commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)
    DeltaTable(str(folder)).optimize.compact()
    DeltaTable(str(folder)).alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    (file,) = tables.live_files(folder, two)
    assert file.rows == 2, "readers see through the change of a property to the maintenance before it"
    three = commits.commit(Writer(), folder, [write(folder, 3)], 3, base=two)
    assert (three.version, numbers(folder, three)) == (6, [1, 2, 3]), "nothing was restored"
    four = commits.commit(Writer(), folder, [write(folder, 4)], 4, base=one)
    assert numbers(folder, four) == [1, 4]
    kept = DeltaTable(str(folder)).metadata().configuration
    assert kept["delta.enableChangeDataFeed"] == "true", "a restored table keeps its properties"
    assert kept["delta.logRetentionDuration"] == "interval 90 days"
    restored = [(1, "delete"), (1, "insert"), (2, "delete"), (3, "delete")]
    assert fed(folder, three.version) == [(3, "insert"), *restored, (4, "insert")]


def test_the_change_feed_has_what_a_commit_took_out(folder: Path) -> None:
    DeltaTable(str(folder)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    two = commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one, overwrite=True)
    assert sorted(fed(folder, one.version)) == [(1, "delete"), (1, "insert"), (2, "insert")]
    assert sorted(fed(folder, two.version)) == [(1, "delete"), (2, "insert")]


def fed(folder: Path, since: int) -> list[tuple[int, str]]:
    """What the change feed has from a version on."""
    feed = pa.table(DeltaTable(str(folder)).load_cdf(starting_version=since).read_all())
    columns = [feed[name].to_pylist() for name in ("_commit_version", "n", "_change_type")]
    return [(n, kind) for _, n, kind in sorted(zip(*columns, strict=True))]


def test_rows_that_others_wrote_are_not_ours(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    write_deltalake(str(folder), pa.table({"n": [99]}), mode="append")
    assert [file.rows for file in tables.live_files(folder, one)] == [1]
    assert numbers(folder, commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)) == [1, 2]


def test_many_commits_leave_a_checkpoint(folder: Path) -> None:
    base: TableState | None = None
    for number in range(101):
        base = commits.commit(Writer(), folder, [write(folder, number)], number + 1, base=base)
    assert (folder / "_delta_log" / "_last_checkpoint").exists()
    assert numbers(folder) == list(range(101))


def test_live_files_know_their_rows_and_bounds(folder: Path) -> None:
    version = commits.commit(Writer(), folder, [write(folder, 3, 7, 5), write(folder, 9)], 1, base=None)
    found = {file.rows: (file.lower["n"], file.upper["n"]) for file in tables.live_files(folder, version)}
    assert found == {3: (3, 7), 1: (9, 9)}
    assert tables.live_files(folder, None) == []


def test_other_columns_are_refused_unless_the_table_is_replaced(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    tables.create(Writer(), folder, NUMBERS)
    other = parse_schema({"n": "string"})
    with pytest.raises(StorageError, match=r"\(n int64\), not \(n string\)"):
        tables.create(Writer(), folder, other)
    tables.create(Writer(), folder, other, replace=True)
    text = new_files.write_file(folder, "f", new_files.arrow_table({"n": pa.array(["x"])}, other))
    version = commits.commit(Writer(), folder, [text], 2, base=one, overwrite=True)
    assert DeltaTable(str(folder), version=version.version).to_pyarrow_table()["n"].to_pylist() == ["x"]
    assert numbers(folder, one) == [1]


def test_every_type_reads_back_in_every_reader(tmp_path: Path) -> None:
    folder = tmp_path / "types"
    tables.create(Writer(), folder, EVERY_TYPE)
    frame = pl.DataFrame(ROWS, schema={name: kind.polars for name, kind in EVERY_TYPE.items()}, orient="row")
    table = new_files.arrow_table({name: frame[name].to_arrow() for name in EVERY_TYPE}, EVERY_TYPE)
    file = new_files.write_file(folder, "f", table, bounded=EVERY_TYPE)
    version = commits.commit(Writer(), folder, [file], 1, base=None)
    stored = DeltaTable(str(folder), version=version.version)
    assert stored.to_pyarrow_table().to_pylist() == frame.to_dicts()
    assert pl.read_delta(stored).to_dicts() == frame.to_dicts()
    assert pl.read_parquet(folder / file.path).schema == frame.schema
    query = QueryBuilder().register("t", stored).execute("select m from t where n > 0 and t > '2020-01-01'")
    assert tables.values(query.read_all().column("m")) == [Decimal("-1.25")]


def test_statistics_bound_and_never_lie() -> None:
    frame = pl.DataFrame(ROWS, schema={name: kind.polars for name, kind in EVERY_TYPE.items()}, orient="row")
    table = new_files.arrow_table({name: frame[name].to_arrow() for name in EVERY_TYPE}, EVERY_TYPE)
    stats = json.loads(new_files.file_stats(table, EVERY_TYPE), parse_float=Decimal)
    assert stats["numRecords"] == 3
    assert stats["nullCount"] == dict.fromkeys(EVERY_TYPE, 1)
    assert set(stats["minValues"]) == set(stats["maxValues"]) == {"n", "s", "d", "t", "m"}
    assert (stats["minValues"]["n"], stats["maxValues"]["n"]) == (-(2**63) + 1, 2**63 - 1)
    assert (stats["minValues"]["s"], stats["maxValues"]["s"]) == ("a", "Å" * 32 + "\U0010ffff")
    assert (stats["minValues"]["t"], stats["maxValues"]["t"]) == (
        "1900-01-01T00:00:00.000Z",
        "2024-01-01T00:00:00.124Z",
    )
    assert stats["maxValues"]["m"] == Decimal("9999999999999999.99")
    assert bounds(pa.chunked_array([pa.array([1.0, float("nan")])])) is None
    assert bounds(pa.chunked_array([pa.array([-0.5, 2.0])])) == ("-0.5", "2.0")
    assert bounds(pa.chunked_array([pa.array(["x" * 32 + "\U0010ffff"])])) is None
    assert bounds(pa.chunked_array([pa.array([None], pa.int64())])) is None


def test_a_failing_disk_leaves_nothing_half_visible(folder: Path) -> None:
    """A process that may write no file beyond 4 KiB: as on a full disk, a write fails in the middle."""
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    failing = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from ddcore.base.errors import StorageError, UsageError
from ddcore.io.delta import new_files
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    new_files.write_file(folder, "big", pa.table({"n": pa.array([i * i * 7919 % 1000003 for i in range(100_000)])}))
except StorageError as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", failing, str(folder)], capture_output=True, text=True, check=True)
    assert f"cannot write to {folder}" in done.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["_delta_log", write(folder, 1).path]
    assert numbers(folder) == [1]
    assert commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one).version == one.version + 1


def test_a_commit_that_cannot_be_written_leaves_the_table_as_it_was(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    failing = """
import json, resource, sys
from pathlib import Path
from ddcore.base.errors import StorageError, UsageError
from ddcore.io.delta import commits, new_files
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.writer import Writer
folder = Path(sys.argv[1])
table = new_files.arrow_table({"n": [2]}, {"n": __import__("ddcore.base.schema").base.schema.Type("int64")})
file = new_files.write_file(folder, "f", table, bounded=["n"])
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    commits.commit(Writer(), folder, [file], 2, base=TableState(*json.loads(sys.argv[2])))
except StorageError as error:
    print(error.message)
"""
    command = [sys.executable, "-c", failing, str(folder), json.dumps(astuple(one))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"cannot commit to {folder}" in done.stdout, done
    assert numbers(folder) == [1]
    assert numbers(folder, commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)) == [1, 2]


def test_a_missing_table_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="--full-refresh") as caught:
        tables.live_files(tmp_path / "state" / "00ff", TableState(3, 1, 1, "ab"))
    assert str(tmp_path / "state" / "00ff") in caught.value.message
    with pytest.raises(StorageError) as caught:
        tables.live_files(tmp_path / "inputs" / "edges", TableState(3, 1, 1, "ab"))
    assert "full-refresh" not in caught.value.hint, "inputs cannot be made again"


@pytest.mark.parametrize("point", ["after-file", "after-table"])
def test_a_kill_between_any_two_steps_is_mended_by_doing_it_again(folder: Path, point: str) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    step = """
import json, sys
from pathlib import Path
import pyarrow as pa
from ddcore.io.delta import commits, new_files
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.writer import Writer
folder = Path(sys.argv[1])
file = new_files.write_file(folder, "f", pa.table({"n": pa.array([2])}), bounded=["n"])
commits.commit(Writer(), folder, [file], 2, base=TableState(*json.loads(sys.argv[2])))
"""
    environment = {**os.environ, "DDCORE_FAILPOINT": point}
    done = subprocess.run(
        [sys.executable, "-c", step, str(folder), json.dumps(astuple(one))], env=environment, check=False
    )
    assert done.returncode == -9
    assert numbers(folder, one) == [1]
    assert numbers(folder, commits.commit(Writer(), folder, [write(folder, 2)], 2, base=one)) == [1, 2]
    assert numbers(folder) == [1, 2]


@pytest.mark.parametrize("overwrite", [False, True])
def test_every_commit_is_on_the_disk_before_a_state_is_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """Also those of an attempt that was killed before it brought them there, and where nothing is left to do."""
    one = commits.commit(Writer(), folder, [write(folder, 1)], 1, base=None)
    synced: set[str] = set()
    with monkeypatch.context() as lost:
        lost.setattr(syncs, "sync", lambda path: None)
        commits.commit(Writer(), folder, [write(folder, 99)], 2, base=one, overwrite=True)
        files = [write(folder, 2)]
        commits.commit(Writer(), folder, files, 3, base=one, overwrite=overwrite)  # with a restore, or without
    monkeypatch.setattr(syncs, "sync", lambda path: synced.add(path.name))
    file = write(folder, 2)
    synced.clear()
    state = commits.commit(Writer(), folder, [file], 3, base=one, overwrite=overwrite)
    newer = {f"{version:020d}.json" for version in range(one.version + 1, state.version + 1)}
    assert len(newer) == (2 if overwrite else 3)
    assert newer <= synced and "_delta_log" in synced


def test_a_new_table_is_on_the_disk_with_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(syncs, "sync", synced.add)
    folder = tmp_path / "state" / "00ff"
    tables.create(Writer(), folder, NUMBERS)
    log = folder / "_delta_log"
    assert {log / f"{0:020d}.json", log, folder, folder.parent, tmp_path} <= synced


def test_a_table_is_opened_once_while_it_is_kept_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = DeltaTable.__init__

    def counted(self: DeltaTable, *given: object, **named: object) -> None:
        opened.append(given)
        real(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "__init__", counted)
    state, writer = None, Writer()
    for number in range(1, 4):
        state = commits.commit(writer, folder, [write(folder, number)], number, base=state)
        assert [file.rows for file in tables.live_files(folder, state, writer)] == [1] * number
    assert len(opened) == 1
    assert numbers(folder, state) == [1, 2, 3]


def test_a_table_that_is_not_what_the_ledger_says_is_refused(folder: Path) -> None:
    one = commits.commit(Writer(), folder, [write(folder, 1), write(folder, 2)], 1, base=None)
    for other in (replace(one, rows=3), replace(one, files=3), replace(one, digest="00")):
        with pytest.raises(StorageError, match="is damaged") as caught:
            tables.live_files(folder, other)
        assert str(folder) in caught.value.message
        with pytest.raises(StorageError, match="is damaged"):
            commits.commit(Writer(), folder, [], 2, base=other)


def test_bounds_in_the_log_cannot_be_changed(folder: Path) -> None:
    """Readers leave out files by their bounds: a bound that says too little would lose rows."""
    one = commits.commit(Writer(), folder, [write(folder, 7)], 1, base=None)
    log = folder / "_delta_log" / f"{one.version:020d}.json"
    text = log.read_text()
    assert 'maxValues\\":{\\"n\\":7' in text
    log.write_text(text.replace('maxValues\\":{\\"n\\":7', 'maxValues\\":{\\"n\\":5'))
    with pytest.raises(StorageError, match="is damaged"):
        tables.live_files(folder, one)


def test_files_are_packed_for_quick_reading(folder: Path) -> None:
    column = pq.ParquetFile(folder / write(folder, 1, 2).path).metadata.row_group(0).column(0)
    assert "DELTA_BINARY_PACKED" in column.encodings
    assert column.compression == "ZSTD"


@pytest.mark.parametrize(
    "name",
    ["sp ace", " ends ", "100%", "50%z", "ha#sh", "que?stion", "a:b", "a&b=c", "[x]", "*", "~x", "'q'", '"d"', "{x}",
     "a;b", "a,b", "ünï", "e\u0301", "日本", "c1\x9b", "version=3"],
)  # fmt: skip
def test_a_table_in_a_folder_of_any_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name / "t"
    tables.create(Writer(), folder, NUMBERS)
    one = commits.commit(Writer(), folder, [write(folder, 1, 2)], 1, base=None)
    assert commits.commit(Writer(), folder, [write(folder, 3)], 2, base=one).version == one.version + 1
    assert sorted(tables.scan(folder, tables.live_files(folder, one), NUMBERS).collect()["n"]) == [1, 2]
    assert numbers(folder) == [1, 2, 3]


@pytest.mark.parametrize("name", ["per%cent", "per%20x", "back\\slash", "new\nline", "tab\tx", "e\x7fx", "bytes\udcff"])
def test_a_folder_that_delta_cannot_open_is_named_and_not_called_damaged(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / name)
    for folder in (tmp_path / name / "t", tmp_path / "link" / "t"):
        with pytest.raises(UsageError, match="cannot open tables below a folder whose name has") as caught:
            tables.create(Writer(), folder, NUMBERS)
        assert "\n" not in caught.value.message
        assert "rename the folder" in caught.value.hint
        with pytest.raises(UsageError):
            open_tables.open_table(folder)
        assert not folder.exists()
    # The refusal ends when the library can: then this line fails and `tables.location` can go.
    if "\udcff" not in name:
        with pytest.raises(Exception, match=r".*"):
            DeltaTable(str(_plain_table(tmp_path, name))).to_pyarrow_table()


def _plain_table(tmp_path: Path, name: str) -> Path:
    tables.create(Writer(), tmp_path / "plain", NUMBERS)
    return (tmp_path / "plain").rename(tmp_path / name / "t")


@pytest.mark.parametrize(
    "texts",
    [
        pl.Series(["a", None, "", "Å" * 40]),
        pl.Series([None, None], dtype=pl.String),
        pl.Series([], dtype=pl.String),
        pl.Series(["gone", "x", None, "y", "gone"])[1:4],
        pl.concat([pl.Series(["a", None]), pl.Series(["b"])], rechunk=False),
    ],
    ids=["texts", "nulls", "empty", "slice", "chunks"],
)
def test_texts_become_arrow_strings(texts: pl.Series) -> None:
    columns = {"s": texts.to_arrow(), "t": pa.chunked_array([texts.to_arrow().slice(1)])}
    for name, column in columns.items():
        table = new_files.arrow_table({name: column}, {name: Type("string")})
        table.validate(full=True)
        assert table.schema.field(name).type == pa.string()
        assert table[name].to_pylist() == texts.to_list()[name == "t" :]


def test_bounds_of_pieces() -> None:
    """Of slices and of several chunks, with the functions of Arrow as the other opinion."""
    whole = pa.array([9, 4, -3, 7, 8, -9])
    for values in (whole, whole.cast(pa.float64()), whole.cast(pa.string())):
        column = pa.chunked_array([values.slice(1, 2), values.slice(0, 0), values.slice(3, 2)])
        pair = pc.min_max(column).as_py()
        shown = [json.dumps(pair[end]) for end in ("min", "max")]
        assert bounds(column) == tuple(shown)
