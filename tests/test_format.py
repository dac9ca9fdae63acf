"""The number of a warehouse's format: another one is refused by every command, and nothing is touched."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from trams import Command

from ddcore.base.tuning import Tuning
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.entries import FORMAT
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import FailureRecord, IntentRecord
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse

COMMANDS = [
    ["run"], ["run", "--dry-run"], ["run", "--full-refresh"], ["run", "--from-version", "1"],
    ["ingest", "links", "more.csv"], ["ingest", "--undo", "1"], ["ingest", "links", "more.csv", "--restate", "1"],
    ["show", "journeys"], ["diff", "journeys", "1", "3"], ["log"], ["status"], ["verify", "journeys"],
    ["compact"], ["compact", "--dry-run"], ["compact", "--since", "2"], ["plan"],
]  # fmt: skip
OTHERS = [f"ledger of ddcore, format {FORMAT + 1}", f"ledger of ddcore, format {FORMAT - 1}", "my ledger"]


def number(warehouse: Path) -> str:
    return (DeltaTable(str(warehouse / "ledger")).metadata().description or "none").rpartition(" ")[2]


def contents(folder: Path) -> dict[str, str]:
    """A digest of every file."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def more(copied: Path) -> Path:
    """A folded project, and one more version to ingest."""
    header = (copied / "data" / "links.csv").read_text().splitlines()[0]
    values = {"version": "6", "diff": "1", "minutes": "1"}
    (copied / "more.csv").write_text(f"{header}\n{','.join(values.get(name, 'Here') for name in header.split(','))}\n")
    return copied


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_another_format_is_refused_by_every_command_and_nothing_is_touched(
    more: Path, dd: Command, words: list[str]
) -> None:
    DeltaTable(str(more / "warehouse" / "ledger")).alter.set_table_description(OTHERS[0])
    before = contents(more)
    code, out, err = dd(*words)
    assert (code, out, len(err)) == (1, [], 2), (out, err)
    assert err[0].startswith(f"error: {more / 'warehouse'} has the warehouse format {FORMAT + 1}; this ddcore, ")
    assert err[0].endswith(f"reads format {FORMAT}") and "use the ddcore that wrote it" in err[1]
    assert contents(more) == before


@pytest.mark.parametrize(
    ("description", "says"), list(zip(OTHERS, (FORMAT + 1, FORMAT - 1, "without a number"), strict=True))
)
def test_the_doctor_reports_another_format(more: Path, dd: Command, description: str, says: object) -> None:
    DeltaTable(str(more / "warehouse" / "ledger")).alter.set_table_description(description)
    before = contents(more)
    code, out, _ = dd("doctor", "--json")
    (check,) = [check for check in map(json.loads, out) if check["name"] == "ledger"]
    assert (code, check["state"]) == (1, "fail")
    assert f"the warehouse format {says}; " in check["message"] and "the ddcore that wrote it" in check["hint"]
    assert contents(more) == before


def test_the_number_outlives_merges_and_the_trimming_of_the_ledgers_log(tmp_path: Path) -> None:
    ledger = Ledger.load(Warehouse(tmp_path), Writer(tuning=Tuning(ledger_seconds=-1)))
    for run in range(1, 60):
        ledger.append(IntentRecord(run, "ab12", time_of(0), time_of(3), 1, "inline"))
        ledger.append(FailureRecord(run, "ab12", time_of(0), time_of(3), "inline", "none"))
    log = tmp_path / "ledger" / "_delta_log"
    assert not (log / f"{0:020d}.json").exists(), "the commit with the number is gone; a checkpoint has it"
    assert number(tmp_path) == str(FORMAT) and Ledger.load(Warehouse(tmp_path)).next_run() == 60
    table = DeltaTable(str(tmp_path / "ledger"))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    again = Ledger.load(Warehouse(tmp_path), Writer())
    again.append(IntentRecord(60, "ab12", time_of(0), time_of(3), 1, "inline"))
    table = DeltaTable(str(tmp_path / "ledger"))
    table.create_checkpoint()
    assert number(tmp_path) == str(FORMAT) and Ledger.load(Warehouse(tmp_path)).next_run() == 61
