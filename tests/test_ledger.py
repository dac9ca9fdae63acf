"""The ledger: what it remembers, what follows from it, and what it costs to ask."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from places import local
from warehouses import last_closed

from ddcore.base.errors import StorageError
from ddcore.base.tuning import Tuning
from ddcore.io.delta.table_files import TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.entries import Entries
from ddcore.io.ledger.entry_files import replaced_at
from ddcore.io.ledger.history import entries, folded_versions
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import FailureRecord, IngestRecord, IntentRecord, Record, RunRecord, Source, UndoRecord
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.times import Time, time_of
from ddcore.io.reading.opened import History
from ddcore.io.storage.warehouse import Warehouse


def ingest(number: int, first: int, last: int, input: str = "edges", digest: str = "00ff") -> IngestRecord:
    counts: dict[Time, tuple[int, int]] = {time_of(version): (version + 1, 1) for version in range(first, last + 1)}
    source = Source(f"{input}-{number}.parquet", f"{0:032x}:{digest}")
    return IngestRecord(
        number,
        input,
        (source,),
        time_of(first),
        time_of(last),
        10,
        counts,
        ("a.parquet",),
        TableState(number, 1, 10, "ab"),
    )


def intent(run: int, first: int, last: int, refresh: bool = False) -> IntentRecord:
    return IntentRecord(run, "ab12", time_of(first), time_of(last), parallelism=2, engine="inline", refresh=refresh)


def run(number: int, first: int, last: int, **tables: int) -> RunRecord:
    return RunRecord(
        number, "ab12", time_of(first), time_of(last), "inline", 2, rounds=15, took=0.25,
        inputs={"edges": {time_of(first): (3, 1)}},
        outputs={"dists": {time_of(first): (7, 7)}},
        tables={f"outputs/{name}": TableState(version, 1, 14, "cd") for name, version in tables.items()},
    )  # fmt: skip


def version_of(ledger: Ledger, output: str) -> int:
    state = ledger.table(f"outputs/{output}")
    assert state is not None
    return state.version


def test_no_ledger_is_an_empty_ledger(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path / "none"))
    assert ledger.last_folded() is None
    assert ledger.latest_ingested() is None
    assert ledger.open_intent() is None
    assert ledger.current_run() is None
    assert last_closed(ledger) is None
    assert ledger.input_table("edges") is None
    assert ledger.table("outputs/dists") is None
    assert (ledger.next_run(), ledger.next_ingest()) == (1, 1)
    assert not (tmp_path / "none").exists(), "looking makes nothing"


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    written: list[Record] = [ingest(1, 0, 3), intent(1, 0, 3), run(1, 0, 3, dists=2)]
    for record in written:
        ledger.append(record)
    again = Ledger.load(Warehouse(tmp_path))
    assert list(again.ingests()) == written[:1]
    assert list(again.records(RunRecord)) == written[2:]
    current = again.current_run()
    assert current == written[2]
    assert current is not None
    assert current.at.tzinfo is UTC


def test_an_intent_without_its_run_is_open(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(ingest(1, 0, 9))
    ledger.append(intent(1, 0, 4))
    again = Ledger.load(Warehouse(tmp_path), Writer())
    assert again.open_intent() == intent_at(again, 1)
    assert again.last_folded() is None
    assert last_closed(again) == time_of(4), "what a run has begun to fold takes no more rows"
    assert again.next_run() == 2
    again.append(run(1, 0, 4))
    assert again.open_intent() is None
    assert again.last_folded() == last_closed(again) == time_of(4)
    assert [record.number for record in again.waiting()] == [1]


def test_a_run_whose_fold_failed_leaves_its_versions_open(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(intent(1, 0, 4))
    failure = FailureRecord(1, "ab12", time_of(0), time_of(4), "inline", "loop ride did not reach a fixed point")
    ledger.append(failure)
    again = Ledger.load(Warehouse(tmp_path), Writer())
    assert list(again.records(FailureRecord)) == [failure]
    assert (again.open_intent(), last_closed(again), again.last_folded()) == (None, None, None)
    assert again.next_run() == 2
    again.append(intent(2, 0, 3))
    assert intent_at(again, 2).last == last_closed(again) == time_of(3)


def intent_at(ledger: Ledger, number: int) -> IntentRecord:
    found = ledger.open_intent()
    assert found is not None
    assert found.run == number
    return found


def test_a_refresh_gives_an_older_intent_up(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(intent(1, 0, 4))
    ledger.append(intent(2, 0, 9, refresh=True))
    assert intent_at(ledger, 2).refresh
    ledger.append(run(2, 0, 9))
    assert ledger.open_intent() is None
    assert ledger.next_run() == 3


def test_tables_are_at_the_versions_that_the_last_run_names(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(run(1, 0, 4, dists=1))
    ledger.append(run(2, 5, 9, dists=2, cycles=1))
    again = Ledger.load(Warehouse(tmp_path))
    assert version_of(again, "dists") == 2
    assert version_of(again, "cycles") == 1
    assert again.table("outputs/other") is None


def test_inputs_are_told_apart(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(ingest(1, 0, 9, "edges"))
    ledger.append(ingest(2, 0, 2, "roots", digest="aa"))
    ledger.append(ingest(3, 10, 11, "edges", digest="bb"))
    again = Ledger.load(Warehouse(tmp_path))
    assert again.latest_ingested() == time_of(11)
    assert again.latest_ingested(["roots"]) == time_of(2)
    assert getattr(again.input_table("edges"), "version", None) == 3
    assert getattr(again.input_table("roots"), "version", None) == 2
    assert [record.number for record in again.ingests("edges")] == [1, 3]


def test_a_record_is_never_written_twice(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(run(1, 0, 4))
    with pytest.raises(StorageError, match="run 1"):
        ledger.append(run(1, 0, 4))


def test_a_long_ledger_loads_in_one_piece_and_quickly(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    ledger = Ledger.load(warehouse, Writer())
    for number in range(1, 31):
        ledger.append(ingest(number, number, number, digest=f"{number:x}"))
        ledger.append(run(number, number, number, dists=number))
    files = list(local(warehouse.ledger).glob("*.parquet"))
    assert len(files) >= 60
    timings = []
    for _ in range(5):
        start = time.process_time()
        again = Ledger.load(warehouse)
        assert (again.latest_ingested(), again.last_folded()) == (time_of(30), time_of(30))
        timings.append(time.process_time() - start)
    assert [record.run for record in again.records(RunRecord)] == list(range(1, 31))
    assert min(timings) < 0.25, "about 10 ms"


def test_asking_what_is_new_loads_no_table_library(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(ingest(1, 0, 9))
    ledger.append(run(1, 0, 9))
    asking = """
import sys
import ddcore.io.ledger.ledger, ddcore.io.storage.warehouse, ddcore.io.delta.tables
before = [name for name in ("numpy", "polars", "pyarrow", "deltalake") if name in sys.modules]
ledger = ddcore.io.ledger.ledger.Ledger.load(ddcore.io.storage.warehouse.Warehouse(sys.argv[1]))
assert ledger.latest_ingested() == ledger.last_folded() == (9,)
print(before, [name for name in ("numpy", "polars", "pyarrow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", asking, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


def test_a_damaged_ledger_is_a_storage_error_that_names_it(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    Ledger.load(warehouse, Writer()).append(run(1, 0, 4))
    next(local(warehouse.ledger).glob("*.parquet")).write_bytes(b"PAR1")
    with pytest.raises(StorageError) as caught:
        Ledger.load(warehouse)
    assert str(warehouse.ledger) in caught.value.message


def test_a_log_folder_without_a_commit_is_no_ledger_yet(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    (local(warehouse.ledger) / "_delta_log").mkdir(parents=True)
    ledger = Ledger.load(warehouse, Writer())
    ledger.append(run(1, 0, 4))
    assert Ledger.load(warehouse).last_folded() == time_of(4)


def test_records_know_when_they_were_made() -> None:
    assert abs((datetime.now(UTC) - run(1, 0, 1).at).total_seconds()) < 60


def long_ledger(warehouse: Warehouse, records: int) -> None:
    for number in range(1, records + 1):
        Ledger.load(warehouse, Writer()).append(ingest(number, number, number))


@pytest.mark.sample(6, of="many records")
def test_many_records_are_few_files_and_none_is_lost(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    for number in range(1, 70):
        Ledger.load(warehouse, Writer(tuning=Tuning(ledger_files=4))).append(ingest(number, number, number))
        digits, rest = 0, number
        while rest:
            digits, rest = digits + rest % 4, rest // 4
        assert len(DeltaTable(str(warehouse.ledger)).file_uris()) == digits, (
            "as many as the digits of the number sum to"
        )
    again = Ledger.load(warehouse)
    assert [record.number for record in again.ingests()] == list(range(1, 70))
    assert (again.latest_ingested(), again.first_ingested(), again.next_ingest()) == (time_of(69), time_of(1), 70)


@pytest.mark.sample(6, of="many records")
def test_a_row_is_written_again_only_when_the_ledger_is_sixteen_times_longer(tmp_path: Path) -> None:
    warehouse, rows = Warehouse(tmp_path), 0
    long_ledger(warehouse, 70)
    for path in local(warehouse.ledger).glob("*.parquet"):
        rows += pq.read_metadata(path).num_rows
    assert rows == (70 - 4) + 4 * 16, "each once, and the first 64 once more: four files of 16"


@pytest.mark.sample(6, of="many records")
@pytest.mark.parametrize("records", [20, 90])
def test_the_newest_rows_are_all_that_a_command_reads(records: int, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    long_ledger(warehouse, records)
    again = Ledger.load(warehouse, Writer())
    again.append(intent(1, 0, records))
    again.append(run(1, 0, records, dists=1))
    again = Ledger.load(warehouse, Writer())
    assert {again.last_folded(), last_closed(again), again.latest_ingested()} == {time_of(records)}
    assert again.current_run() is not None
    assert again.open_intent() is None
    assert again.waiting() == []
    assert list(again.ingests(since=((records + 1,),))) == []
    assert getattr(again.input_table("edges"), "version", None) == records
    assert len(again.entries._rows) <= 4


def test_ingests_that_wait_are_found_from_the_first_of_them_on(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    for number, (first, last) in enumerate([(0, 1), (2, 9), (3, 3), (4, 5), (6, 7)], 1):
        ledger.append(ingest(number, first, last))
    ledger.append(run(1, 0, 4))
    again = Ledger.load(Warehouse(tmp_path), Writer())
    assert [record.number for record in again.waiting()] == [2, 4, 5]
    assert [record.number for record in again.ingests(since=((6,),))] == [2, 5]
    again.append(run(2, 5, 9))
    again.append(ingest(6, 10, 10))
    again = Ledger.load(Warehouse(tmp_path), Writer())
    assert [record.number for record in again.waiting()] == [6]
    again.append(intent(3, 0, 2, refresh=True))
    again.append(run(3, 0, 2))
    again = Ledger.load(Warehouse(tmp_path), Writer())
    assert [record.number for record in again.waiting()] == [2, 3, 4, 5, 6], "a refresh may end before the last run did"


def test_gathered_files_go_when_nobody_can_still_read_them(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    long_ledger(warehouse, 20)
    assert len(list(local(warehouse.ledger).glob("*.parquet"))) == 20, "somebody may just have opened the table"
    for number in range(21, 33):
        Ledger.load(warehouse, Writer(tuning=Tuning(ledger_seconds=-1))).append(ingest(number, number, number))
    assert len(list(local(warehouse.ledger).glob("*.parquet"))) == 2
    assert [record.number for record in Ledger.load(warehouse).ingests()] == list(range(1, 33))


def test_files_are_kept_an_hour_after_their_merge_however_old_they_are(tmp_path: Path) -> None:
    """A warehouse that runs once a day merges files of days ago, which somebody may just have opened."""
    warehouse = Warehouse(tmp_path)
    long_ledger(warehouse, 15)
    folder = local(warehouse.ledger)
    two_hours_ago = time.time() - 7200
    for path in folder.glob("*.parquet"):
        os.utime(path, (two_hours_ago, two_hours_ago))
    reader = Ledger.load(warehouse)
    Ledger.load(warehouse, Writer()).append(ingest(16, 16, 16))
    assert len(list(folder.glob("*.parquet"))) == 16
    assert [record.number for record in reader.ingests()] == list(range(1, 16))


def test_a_file_is_replaced_by_the_first_that_was_written_later_with_its_rows(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        spans = [(a, a + rng.choice((0, 0, 1, 3, 15))) for a in (rng.randrange(20) for _ in range(rng.randrange(12)))]
        files = [(f"entries-{a:08d}-{b:08d}-{n}.parquet", a, b, rng.randrange(6)) for n, (a, b) in enumerate(spans)]
        expected = {"entries-of-another-program.parquet": 3.0}
        for name, a, b, at in files:
            later = [w for _, c, d, w in files if c <= a and b <= d and w >= at and (c, d, w) != (a, b, at)]
            expected[name] = min(later, default=at)
        written = {name: at for name, _, _, at in files} | {"entries-of-another-program.parquet": 3.0}
        assert replaced_at(written) == expected, written


def test_a_slow_reader_finds_its_rows_in_newer_files(tmp_path: Path) -> None:
    """Its files were merged and deleted since: it goes on, and sees what it saw when it began."""
    warehouse = Warehouse(tmp_path)
    long_ledger(warehouse, 40)
    slow, with_index, doctor = Ledger.load(warehouse), Ledger.load(warehouse), Ledger.load(warehouse)
    for number in range(41, 49):
        Ledger.load(warehouse, Writer(tuning=Tuning(ledger_seconds=-1))).append(ingest(number, number, number))
    assert [record.number for record in slow.ingests()] == list(range(1, 41))
    assert list(with_index.ingest_index("edges").numbers.values()) == list(range(1, 41))
    doctor.entries.check()
    newest = Ledger.load(warehouse)
    for path in local(warehouse.ledger).glob("*.parquet"):
        path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        list(newest.ingests())


@pytest.mark.sample(6, of="many records")
def test_old_commits_of_the_ledger_go_with_a_checkpoint(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    long_ledger(warehouse, 34)
    log = local(warehouse.ledger) / "_delta_log"
    two_hours_ago = time.time() - 7200
    for path in log.iterdir():
        os.utime(path, (two_hours_ago, two_hours_ago))
    for number in range(35, 65):
        Ledger.load(warehouse, Writer()).append(ingest(number, number, number))
    assert len(list(log.glob("*.json"))) < 40
    assert [record.number for record in Ledger.load(warehouse).ingests()] == list(range(1, 65))


def test_a_row_that_another_program_changed_is_refused(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    long_ledger(warehouse, 3)
    DeltaTable(str(warehouse.ledger)).update(predicate="entry = 1", updates={"first": "99"})
    with pytest.raises(StorageError, match="damaged") as caught:
        list(Ledger.load(warehouse).ingests())
    assert str(warehouse.ledger) in caught.value.message


@pytest.mark.sample(6, of="many records")
def test_records_go_on_after_another_program_has_optimized_the_ledger(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    long_ledger(warehouse, 19)
    DeltaTable(str(warehouse.ledger)).optimize.compact()
    for number in range(20, 36):
        Ledger.load(warehouse, Writer()).append(ingest(number, number, number))
        again = Ledger.load(warehouse)
        assert [record.number for record in again.ingests()] == list(range(1, number + 1))
        assert list(again.ingest_index("edges").numbers.values()) == list(range(1, number + 1))


def test_a_killed_beginning_is_no_lost_ledger(tmp_path: Path) -> None:
    """The ledger is made before the first table: a crash between them leaves an empty one."""
    beginning = """
import sys
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.summary import Summary
from ddcore.base.lattice import Frontier
from ddcore.io.project.times import Time
from ddcore.io.storage.warehouse import Warehouse
Ledger.load(Warehouse(sys.argv[1]), Writer()).begin()
"""
    environment = {**os.environ, "DDCORE_FAILPOINT": "after-begin"}
    command = [sys.executable, "-c", beginning, str(tmp_path)]
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    again = Ledger.load(Warehouse(tmp_path), Writer())
    again.append(ingest(1, 0, 0))
    assert Ledger.load(Warehouse(tmp_path)).next_ingest() == 2


def test_an_ingest_that_was_taken_back_counts_for_nothing(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(ingest(1, 0, 1))
    ledger.append(run(1, 0, 1))
    ledger.append(ingest(2, 2, 9))
    undo = UndoRecord(2, "edges", time_of(2), time_of(9), TableState(3, 1, 10, "ab"))
    ledger.append(undo)
    for again in (ledger, Ledger.load(Warehouse(tmp_path))):
        assert list(again.records(UndoRecord)) == [undo]
        assert [record.number for record in again.ingests()] == [1]
        assert (again.waiting(), again.latest_ingested(), again.next_ingest()) == ([], time_of(1), 3)
        assert again.input_table("edges") == undo.table
    ledger.append(UndoRecord(1, "edges", time_of(0), time_of(1), TableState(4, 0, 0, "cd")))
    assert (ledger.latest_ingested(), ledger.first_ingested()) == (None, None)
    ledger.append(ingest(3, 4, 5))
    assert (ledger.latest_ingested(), ledger.first_ingested()) == (time_of(5), time_of(4))
    assert [record.number for record in ledger.waiting()] == [3]


@pytest.mark.sample(6, of="many records")
def test_the_summary_says_what_all_records_say(tmp_path: Path, seed: int) -> None:
    """Random records: ingests of old and new inputs, undos, runs that end or fail, refreshes that go back."""
    rng = random.Random(seed)
    ledger, records = Ledger.load(Warehouse(tmp_path), Writer(tuning=Tuning(ledger_files=3))), list[Record]()
    for _ in range(60):
        record = _next_record(rng, ledger, records)
        ledger.append(record)
        records.append(record)
        check_summary(ledger, records)
        check_summary(Ledger.load(Warehouse(tmp_path)), records)


def check_history(ledger: Ledger, left: list[IngestRecord], runs: list[RunRecord]) -> None:
    """``dd log`` lists what holds now, and each version as the last run that folded it has it."""
    listed = [*entries(ledger)]
    assert [item["ingest"] for item in listed if item["kind"] == "ingest"] == [item.number for item in reversed(left)]
    assert [item["run"] for item in listed if item["kind"] == "run"] == [item.run for item in reversed(runs)]
    versions: dict[Time, int] = {}
    for item in runs:
        versions = {time: number for time, number in versions.items() if time < item.first and not item.refresh}
        counts = (*item.inputs.values(), *item.outputs.values())
        versions |= {time: item.run for of in counts for time in of}
    folded = [(version["version"], version["run"]) for version in folded_versions(ledger)]
    assert dict(folded) == versions and len(folded) == len(versions)


def _next_record(rng: random.Random, ledger: Ledger, records: list[Record]) -> Record:
    kind = rng.choice(["ingest", "ingest", "ingest", "undo", "run"])
    left = _left(records)
    begun, number = ledger.open_intent(), ledger.next_ingest()
    if kind == "undo" and left:
        record = rng.choice(left)
        return UndoRecord(record.number, record.input, record.first, record.last, TableState(1, 2, 3, str(number)))
    if kind == "run" and begun is None:
        upper, refresh = ledger.upper(), rng.random() < 0.3
        first = 0 if refresh or upper is None else upper[0][0]
        inputs = tuple(rng.sample("abc", rng.randrange(1, 4)))
        return replace(intent(ledger.next_run(), first, first + rng.randrange(9), refresh), program_inputs=inputs)
    if kind == "run" and begun is not None:
        if rng.random() < 0.3:
            return FailureRecord(begun.run, "ab12", begun.first, begun.last, "inline", "no")
        done = replace(run(begun.run, 0, 0), first=begun.first, last=begun.last)
        versions = [
            time for time in map(time_of, range(begun.first.version, begun.last.version + 1)) if rng.random() < 0.7
        ]
        edges = {"edges": dict.fromkeys(versions, (3, 1))}
        return replace(done, refresh=begun.refresh, program_inputs=begun.program_inputs, inputs=edges, outputs={})
    first = rng.randrange(20)
    made = ingest(number, first, first + rng.randrange(4), rng.choice("abc"))
    return replace(made, repeats=rng.random() < 0.5, rests_on=(1,) if number > 1 else ())


def _left(records: list[Record]) -> list[IngestRecord]:
    undone = {record.number for record in records if isinstance(record, UndoRecord)}
    return [record for record in records if isinstance(record, IngestRecord) and record.number not in undone]


def check_summary(ledger: Ledger, records: list[Record]) -> None:
    """The ledger's answers are those that all records give, one after the other."""
    left, runs = _left(records), [record for record in records if isinstance(record, RunRecord)]
    intents = [record for record in records if isinstance(record, IntentRecord)]
    ended = {record.run for record in records if isinstance(record, FailureRecord | RunRecord)}
    current = runs[-1] if runs else None
    begun = intents[-1] if intents and intents[-1].run not in ended else None
    folded = current.last if current else None
    assert list(ledger.ingests()) == left
    in_force = [item for item in records if item in left or item is begun or isinstance(item, UndoRecord | RunRecord)]
    failed = [item for item in records if isinstance(item, FailureRecord)]
    assert [*ledger.newest_first()] == sorted([*in_force, *failed], key=records.index, reverse=True)
    check_history(ledger, left, runs)
    assert [*ledger.records(UndoRecord)] == [record for record in records if isinstance(record, UndoRecord)]
    assert (ledger.current_run(), ledger.open_intent(), ledger.last_folded()) == (current, begun, folded)
    assert ledger.waiting() == [item for item in left if folded is None or item.last > folded]
    assert ledger.first_ingested() == min((item.first for item in left), default=None)
    assert ledger.next_run() == 1 + max((item.run for item in intents), default=0)
    assert ledger.next_ingest() == 1 + max((r.number for r in records if isinstance(r, IngestRecord)), default=0)
    for since in range(0, 24, 3):
        assert list(ledger.ingests(since=((since,),))) == [item for item in left if item.last >= (since,)]
    for name in "abc":
        of_input = [item for item in left if item.input == name]
        assert list(ledger.ingests(name)) == of_input
        assert ledger.latest_ingested([name]) == max((item.last for item in of_input), default=None)
        reading = [item.last for item in (begun, current) if item is not None and name in item.program_inputs]
        assert last_closed(ledger, name) == max(reading, default=None)
        states = [r.table for r in records if isinstance(r, IngestRecord | UndoRecord) and r.input == name]
        assert ledger.input_table(name) == (states[-1] if states else None)


def test_after_an_undo_of_a_restatement_each_ingest_waits_once(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(ingest(1, 0, 3))
    ledger.append(ingest(2, 2, 6))
    ledger.append(intent(1, 0, 1))
    ledger.append(run(1, 0, 1))
    ledger.append(replace(ingest(3, 5, 6), replaces=time_of(5)))
    ledger.append(UndoRecord(3, "edges", time_of(5), time_of(6), TableState(4, 1, 10, "ab")))
    for number in range(2, 8):  # the first merge is among these
        ledger.append(intent(number, 2, 2))
        ledger.append(run(number, 2, 2))
        again = Ledger.load(Warehouse(tmp_path), Writer())
        assert [record.number for record in again.waiting()] == [1, 2]
    again = Ledger.load(Warehouse(tmp_path), Writer())
    again.append(intent(8, 3, 3))
    again.append(run(8, 3, 3))
    assert [record.number for record in Ledger.load(Warehouse(tmp_path)).waiting()] == [2]
    assert again.entries.summary.open == (1,), "entries, each once"


def test_an_undo_of_what_is_not_there_is_refused(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    ledger.append(ingest(1, 0, 1))
    undo = UndoRecord(1, "edges", time_of(0), time_of(1), TableState(2, 0, 0, "ab"))
    ledger.append(undo)
    for again in (undo, replace(undo, number=2)):
        with pytest.raises(StorageError, match="already"):
            ledger.append(again)


@pytest.mark.sample(6, of="many records")
def test_reading_backwards_keeps_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest entries are read from the end; all of them, in portions that are not kept."""
    writer = Ledger.load(Warehouse(tmp_path), Writer(tuning=Tuning(ledger_files=4)))
    for number in range(1, 121):
        writer.append(ingest(number, number, number))
    ledger = Ledger.load(Warehouse(tmp_path))
    before, read = len(ledger.entries._rows), list[int]()
    real = Entries._checked

    def checked(self: Entries, rows: Sequence[int]) -> Any:
        read.append(len(rows))
        return real(self, rows)

    monkeypatch.setattr(Entries, "_checked", checked)
    assert [item["ingest"] for item in islice(entries(ledger), 10)] == [*range(120, 110, -1)]
    assert sum(read) <= 16, "what is shown, and the rest of a portion"
    assert [row.number for row in ledger.entries.backwards(most=16)] == [*range(120, 0, -1)]
    assert max(read) <= 16
    assert len(ledger.entries._rows) == before


def test_reading_backwards_sees_what_does_not_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two portions are compared, too: another row of the same number, which is whole in itself, is found."""
    for folder, digest in ((tmp_path / "one", "00ff"), (tmp_path / "two", "00aa")):
        ledger = Ledger.load(Warehouse(folder), Writer())
        for number in range(1, 9):
            ledger.append(ingest(number, number, number, digest=digest))
    one, two = (Ledger.load(Warehouse(tmp_path / name)) for name in ("one", "two"))
    others, real = {row.entry: row for row in two.entries.backwards()}, Entries._checked

    def mixed(self: Entries, rows: Sequence[int]) -> Any:
        return [others[row.entry] for row in real(self, rows)]

    assert len([*one.entries.backwards()]) == 8
    monkeypatch.setattr(Entries, "_checked", mixed)
    with pytest.raises(StorageError, match="entry 3 has changed since it was written"):
        [*one.entries.backwards()]


@pytest.mark.sample(6, of="many records")
def test_an_undo_reads_the_rows_from_the_ingest_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of the others the index: one input's ingests say which versions are left, whatever came between."""
    writer = Ledger.load(Warehouse(tmp_path), Writer(tuning=Tuning(ledger_files=4)))
    for number in range(1, 121):
        writer.append(ingest(number, number, number, "edges" if number % 2 else "nodes"))
        if number == 116:
            writer.append(intent(1, 1, 3))
            writer.append(run(1, 1, 3))
    ledger, read = Ledger.load(Warehouse(tmp_path), Writer()), list[int]()
    real = Entries._checked

    def checked(self: Entries, rows: Sequence[int]) -> Any:
        read.append(len(rows))
        return real(self, rows)

    monkeypatch.setattr(Entries, "_checked", checked)
    record = ledger.ingest(119)
    assert record is not None and (record.number, record.input) == (119, "edges")
    ledger.append(UndoRecord(119, "edges", record.first, record.last, TableState(1, 2, 3, "ab")))
    assert (ledger.first_ingested(["edges"]), ledger.latest_ingested(["edges"])) == (time_of(1), time_of(117))
    assert (ledger.ingest(119), ledger.ingest_index("edges").entry_of(119)) == (record, None), "it is there, and undone"
    assert ledger.ingest(121) is None
    assert sum(read) <= 16, "a few of the newest rows"
    assert ledger.ingest(0) is None


def test_the_rows_of_outputs_before_a_run(tmp_path: Path) -> None:
    """Runs that go on, that fold again from a base, and that begin anew; an output keeps what a run did not fold."""

    def counted(number: int, first: int, *, refresh: bool = False, base: int = 0, **outputs: int) -> RunRecord:
        counts = {name: {time_of(first): (rows + 1, 1)} for name, rows in outputs.items()}
        return replace(run(number, first, first), outputs=counts, base=base, refresh=refresh)

    runs = [
        counted(1, 0, a=10, b=1),
        counted(2, 1, a=5),
        counted(3, 2, a=7, b=2),
        counted(4, 1, base=1, a=3),
        counted(5, 2, base=4, a=1),
        counted(6, 0, refresh=True, a=2),
    ]
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    for record in runs:
        ledger.append(replace(intent(record.run, 0, 0), first=record.first, last=record.last, refresh=record.refresh))
        ledger.append(record)
    expected = [{}, {"a": 10, "b": 1}, {"a": 15, "b": 1}, {"a": 10, "b": 3}, {"a": 13, "b": 3}, {}]
    for again in (ledger, Ledger.load(Warehouse(tmp_path))):
        assert [again.rows_before(record) for record in runs] == expected
        assert again.entries.summary.rows == {"a": 2}
        assert [record.run for record in again.runs_backwards(4)] == [4, 3, 2, 1]


@pytest.mark.parametrize("taken", ["first", "slice", "text", "loop"])
def test_the_history_of_a_project_reads_as_far_as_it_is_looked_at(taken: str) -> None:
    read = list[int]()

    def newest_first() -> Iterator[dict[str, Any]]:
        for number in range(100, 0, -1):
            read.append(number)
            at = "2026-11-25T21:00:00Z"
            inputs = {"edges": {"plus": 1, "minus": 0}}
            yield {"kind": "undo", "ingest": number, "at": at, "first": time_of(0), "last": time_of(0),
                   "input": "edges", "inputs": inputs, "restates": ()}  # fmt: skip

    history = History(newest_first(), VersionNames(("version",)))
    if taken == "first":
        assert (history[0]["ingest"], history[1]["ingest"], len(read)) == (100, 99, 2)
    elif taken == "slice":
        assert ([item["ingest"] for item in history[2:5]], len(read)) == ([98, 97, 96], 5)
    elif taken == "text":
        assert repr(history).endswith("... and more") and len(read) == 21
    else:
        assert [item["ingest"] for item in islice(history, 3)] == [100, 99, 98] and len(read) == 3
    assert (len(history), history[-1]["ingest"], len(read)) == (100, 1, 100)
    assert [item["ingest"] for item in history[-2:]] == [2, 1] == [item["ingest"] for item in history[::-1][1::-1]]


def test_a_row_that_is_damaged_in_its_commit_is_read_from_its_file(tmp_path: Path) -> None:
    """The newest rows are in commits as well: one that is no JSON any more is no error of its own."""
    ledger = Ledger.load(Warehouse(tmp_path), Writer())
    for number in range(1, 4):
        ledger.append(ingest(number, number, number))
    commit = tmp_path / "ledger" / "_delta_log" / f"{2:020d}.json"
    text = commit.read_text()
    assert '"ddcore.row":"[' in text, "else this test shows nothing"
    commit.write_text(text.replace('"ddcore.row":"[', '"ddcore.row":"{'))
    assert list(Ledger.load(Warehouse(tmp_path)).ingests()) == list(ledger.ingests())
