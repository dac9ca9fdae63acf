"""The number of a warehouse's format: newer ones are refused by every command, older ones are read and upgraded."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable
from trams import Command
from warehouses import unnumbered

from ddcore.base.errors import StorageError
from ddcore.io.ledger import ledger as ledger_module
from ddcore.io.ledger.ledger import FORMAT, Ledger
from ddcore.io.ledger.records import FailureRecord, IntentRecord
from ddcore.io.storage.warehouse import Warehouse

COMMANDS = [
    ["run"], ["run", "--dry-run"], ["run", "--full-refresh"], ["run", "--from-version", "1"],
    ["ingest", "links", "more.csv"], ["ingest", "--undo", "1"], ["ingest", "links", "more.csv", "--restate", "1"],
    ["show", "journeys"], ["diff", "journeys", "1", "3"], ["log"], ["status"], ["verify", "journeys"],
    ["compact"], ["compact", "--dry-run"], ["compact", "--since", "2"], ["plan"],
]  # fmt: skip
READING = [words for words in COMMANDS if words[0] in ("show", "diff", "log", "status", "verify", "plan")]
"""Commands that read, and change nothing."""


def number(warehouse: Path) -> str:
    return (DeltaTable(str(warehouse / "ledger")).metadata().description or "none").rpartition(" ")[2]


def contents(folder: Path) -> dict[str, str]:
    """A digest of every file."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def more(mine: Path) -> Path:
    """A folded project, and one more version to ingest."""
    header = (mine / "data" / "links.csv").read_text().splitlines()[0]
    values = {"version": "6", "diff": "1", "minutes": "1"}
    (mine / "more.csv").write_text(f"{header}\n{','.join(values.get(name, 'Here') for name in header.split(','))}\n")
    return mine


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_newer_format_is_refused_by_every_command_and_nothing_is_touched(
    more: Path, dd: Command, words: list[str]
) -> None:
    DeltaTable(str(more / "warehouse" / "ledger")).alter.set_table_description(f"ledger of ddcore, format {FORMAT + 1}")
    before = contents(more)
    code, out, err = dd(*words)
    assert (code, out, len(err)) == (1, [], 2), (out, err)
    assert err[0].startswith(f"error: {more / 'warehouse'} has the warehouse format {FORMAT + 1}, of a newer ddcore")
    assert "upgrade ddcore" in err[1]
    assert contents(more) == before


def test_the_doctor_reports_a_newer_format(more: Path, dd: Command) -> None:
    DeltaTable(str(more / "warehouse" / "ledger")).alter.set_table_description(f"ledger of ddcore, format {FORMAT + 1}")
    before = contents(more)
    code, out, _ = dd("doctor", "--json")
    (check,) = [check for check in map(json.loads, out) if check["name"] == "ledger"]
    assert (code, check["state"]) == (1, "fail")
    assert "of a newer ddcore" in check["message"] and "upgrade" in check["hint"]
    assert contents(more) == before


def timeless(result: tuple[int, list[str], list[str]]) -> tuple[int, list[str], list[str]]:
    """What a command printed, without how long it took."""
    code, *streams = result
    out, err = ([re.sub(r"in [0-9.]+s|\"took\": [0-9.]+", "in 0s", line) for line in lines] for lines in streams)
    return code, out, err


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_warehouse_from_before_the_number_is_read_as_it_is(more: Path, dd: Command, words: list[str]) -> None:
    with_number = timeless(dd(*words))
    unnumbered(more / "warehouse")
    before = contents(more / "warehouse")
    assert timeless(dd(*words)) == with_number
    assert with_number[0] == 0
    assert contents(more / "warehouse") == before


@pytest.mark.parametrize("words", [["ingest", "links", "more.csv"], ["run"], ["compact"], ["ingest", "--undo", "3"]])
def test_the_first_command_that_writes_upgrades(more: Path, dd: Command, words: list[str]) -> None:
    assert dd("ingest", "links", "more.csv")[0] == 0
    (more / "more.csv").write_text((more / "more.csv").read_text().replace("6", "7"))
    unnumbered(more / "warehouse")
    assert (number(more / "warehouse"), Ledger.load(Warehouse(more / "warehouse")).format) == ("none", 0)
    code, _, err = dd(*words)
    assert code == 0 and f"note: the warehouse has the format {FORMAT} now: an older ddcore refuses it" in err
    assert (number(more / "warehouse"), Ledger.load(Warehouse(more / "warehouse")).format) == (str(FORMAT), FORMAT)
    assert dd("run")[0] == 0
    assert dd("verify")[0] == 0


def test_each_format_has_a_next_one(more: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """This ddcore's warehouses, seen by a later one, and what that one wrote, by this."""
    monkeypatch.setattr(ledger_module, "FORMAT", FORMAT + 1)
    shown = dd("show", "journeys")
    assert number(more / "warehouse") == str(FORMAT)
    assert dd("ingest", "links", "more.csv")[0] == 0
    assert number(more / "warehouse") == str(FORMAT + 1)
    assert shown[0] == 0
    monkeypatch.undo()
    monkeypatch.chdir(more)
    code, _, err = dd("run")
    assert code == 1 and f"format {FORMAT + 1}, of a newer ddcore" in err[0]


def test_a_format_that_is_too_old_is_refused(more: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "FORMAT", FORMAT + 2)
    monkeypatch.setattr(ledger_module, "OLDEST", FORMAT + 1)
    with pytest.raises(StorageError, match=rf"format {FORMAT}; this ddcore, .*, reads formats from {FORMAT + 1} on"):
        Ledger.load(Warehouse(more / "warehouse"))


def test_the_number_outlives_merges_and_the_trimming_of_the_ledgers_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_KEPT", -1)
    ledger = Ledger.load(Warehouse(tmp_path))
    for run in range(1, 60):
        ledger.append(IntentRecord(run, "ab12", 0, 3, 1, "inline"))
        ledger.append(FailureRecord(run, "ab12", 0, 3, "inline", "none"))
    log = tmp_path / "ledger" / "_delta_log"
    assert not (log / f"{0:020d}.json").exists(), "the commit with the number is gone; a checkpoint has it"
    assert (number(tmp_path), Ledger.load(Warehouse(tmp_path)).format) == (str(FORMAT), FORMAT)
    table = DeltaTable(str(tmp_path / "ledger"))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    again = Ledger.load(Warehouse(tmp_path))
    again.append(IntentRecord(60, "ab12", 0, 3, 1, "inline"))
    table = DeltaTable(str(tmp_path / "ledger"))
    table.create_checkpoint()
    assert (number(tmp_path), Ledger.load(Warehouse(tmp_path)).format) == (str(FORMAT), FORMAT)
