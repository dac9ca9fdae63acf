"""What another command, or a loss, left behind is told in one line of our words, with the way on."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IntentRecord
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse


def test_a_compaction_beside_a_run_says_to_wait(copied: Path, dd: Any) -> None:
    warehouse = Warehouse(copied / "warehouse")
    ledger = Ledger.load(warehouse, Writer())
    last = ledger.current_run()
    assert last is not None
    ledger.append(IntentRecord(last.run + 1, last.fingerprint, time_of(6), time_of(6), 1, "inline", base=last.run))
    with warehouse.lock("ddcore run", last.run + 1):
        code, _, err = dd("compact", "--dry-run")
    assert code == 75, err
    assert err[0].startswith(f"error: run {last.run + 1} is not finished yet: ddcore run (host ")
    assert err[1] == "  wait until it is done, then run the same command again"
    code, _, err = dd("compact", "--dry-run")
    assert code == 2 and err[1] == "  finish it with: ddcore run", err


def test_a_run_whose_record_was_lost_is_finished_with_a_note(copied: Path, dd: Any) -> None:
    log = copied / "warehouse/ledger/_delta_log"
    max(log.glob("*.json")).unlink()
    code, _, err = dd("run")
    assert code == 0, err
    assert "note: the ledger has no record of the end of run 1: it is finished first" in err
    assert dd("verify")[0] == 0
    _, _, err = dd("run")
    assert not any("no record of the end" in line for line in err)


@pytest.mark.parametrize("location", ["folder", "socket"])
def test_a_lock_that_is_no_file_is_named_with_the_way_on(location: str, copied: Path, dd: Any) -> None:
    lock = copied / "warehouse/.lock"
    lock.unlink(missing_ok=True)
    if location == "folder":
        lock.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(lock.parent):
            server.bind(lock.name)
    for words in (["run"], ["compact"], ["ingest", "links", "data/links.csv"]):
        code, _, err = dd(*words)
        assert code == 1 and err[0] == f"error: the lock file {lock} is a {location}", err
        assert err[1] == "  ddcore did not create it and has not changed it: move it away"


@pytest.mark.parametrize("part", ["ledger", "inputs/links", "outputs/journeys"])
def test_a_gap_in_a_log_is_told_in_our_words(part: str, copied: Path, dd: Any) -> None:
    log = copied / "warehouse" / part / "_delta_log"
    for number in range(2):
        more = copied / f"more{number}.csv"
        more.write_text(f"version,diff,src,dst,minutes\n{6 + number},1,Tower,Hill,3\n")
        assert dd("ingest", "links", str(more))[0] == 0
        assert dd("run")[0] == 0
    for checkpoint in [*log.glob("*.checkpoint.parquet"), *log.glob("_last_checkpoint")]:
        checkpoint.unlink()
    (log / f"{1:020d}.json").unlink()
    failed = 0
    commands = (["status"], ["show", "journeys"], ["run", "--from-version", "2"], ["doctor"], ["run", "--full-refresh"])
    for words in commands:
        code, out, err = dd(*words)
        said = " ".join([*out, *err])
        failed += code != 0
        assert code == 0 or "the commit of version 1 is missing from its log, and no checkpoint replaces it" in said
        assert not any(
            word in said for word in ("delta kernel", "DeltaKernel", "LogSegment", "log segment", "contiguous")
        ), said
    assert failed


@pytest.mark.parametrize("form", ["--feed", "--append", "--snapshot"])
def test_a_gap_in_the_log_of_a_source_is_told_in_our_words(form: str, copied: Path, dd: Any) -> None:
    for minutes in range(3):
        rows = pl.DataFrame({"src": ["Tower"], "dst": ["Hill"], "minutes": [minutes]})
        write_deltalake("table", rows.to_arrow(), mode="append")
    (copied / "table/_delta_log" / f"{1:020d}.json").unlink()
    code, _, err = dd("ingest", "links", "table", form)
    assert code == 1 and err[0] == (
        "error: table: not a readable Delta table: the commit of version 1 is missing from its log, and no checkpoint "
        "replaces it"
    )
    assert "write it again at its origin" in err[1]
