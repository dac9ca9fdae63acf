"""What ``dd doctor`` finds in a warehouse: damaged and missing files by name, and what killed commands left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from places import local
from trams import records

from ddcore.io.delta import commits, tables
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse
from ddcore.io.upkeep.integrity import inspect, leftovers


def ledger_of(project: Path) -> Ledger:
    return Ledger.load(Warehouse(project / "warehouse"), Writer())


def damages(project: Path, *, deep: bool = False) -> list[tuple[str, str]]:
    return [(error.message, error.hint) for error in inspect(ledger_of(project), deep=deep).damages]


def largest_file(table: Path) -> Path:
    return max(table.rglob("*-*.parquet"), key=lambda path: path.stat().st_size)


def flip(path: Path, location: int) -> None:
    content = bytearray(path.read_bytes())
    content[location] ^= 4
    path.write_bytes(content)


def some_state(project: Path) -> str:
    names = [name for name in ledger_of(project).tables() if name.startswith("state/")]
    return max(names, key=lambda name: largest_file(project / "warehouse" / name).stat().st_size)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str, bool]] = {
    "missing": (Path.unlink, "{file} is missing", False),
    "truncated": (lambda file: os.truncate(file, file.stat().st_size - 9), "{file} has {less} bytes, its table's log "
                  "says {size}", False),
    "footer-flipped": (lambda file: flip(file, -20), "{file} is damaged: its bytes have changed", False),
    "data-flipped": (lambda file: flip(file, 30), "{file} is damaged: its bytes have changed", True),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", ["inputs", "outputs", "state", "ledger"])
def test_a_damaged_file_is_named_with_the_way_on(part: str, damage: str, copied: Path, dd: Any) -> None:
    name = {"inputs": "inputs/links", "outputs": "outputs/journeys", "ledger": "ledger"}.get(part) or some_state(copied)
    file = largest_file(copied / "warehouse" / name)
    if part == "ledger":  # a file that loading the ledger does not read
        for _ in range(2):
            assert dd("run", "--full-refresh", "-q")[0] == 0
        file = min((copied / "warehouse" / "ledger").glob("entries-*.parquet"))
    size = file.stat().st_size
    do, says, only_deep = DAMAGES[damage]
    do(file)
    assert damages(copied) == [] or not only_deep
    found = damages(copied, deep=only_deep)
    assert len({message for message, _ in found}) == 1
    assert says.format(file=file, size=size, less=size - 9) in found[0][0]
    assert {"inputs": "backup", "ledger": "backup"}.get(part, "ddcore run --full-refresh") in found[0][1]
    code, out, _ = dd("doctor", "--json", *(["--deep"] if only_deep else []))
    failed = [record for record in records(out) if record["name"] == "files"]
    assert code == 1
    assert [(record["state"], record["message"], record["hint"]) for record in failed] == [
        ("fail", *one) for one in found
    ]
    if part in ("outputs", "state"):
        assert dd("run", "--full-refresh", "-q")[0] == 0
        assert damages(copied, deep=True) == []


def test_several_damages_are_all_named(copied: Path, dd: Any) -> None:
    files = [
        largest_file(copied / "warehouse" / name) for name in ("inputs/links", "outputs/journeys", some_state(copied))
    ]
    for file in files:
        file.unlink()
    shutil.rmtree(copied / "warehouse" / "inputs" / "starts" / "_delta_log")
    messages = [message for message, _ in damages(copied)]
    assert len(messages) == 4
    for file in files:
        assert f"{file} is missing" in messages
    assert any("inputs/starts" in message for message in messages), "a table whose log is lost is one line"
    code, out, _ = dd("doctor")
    assert code == 1
    assert len([line for line in out if line.startswith("fail  files")]) == 4


def test_a_whole_warehouse_is_counted(here: Path, dd: Any) -> None:
    found = inspect(ledger_of(here), deep=True)
    live = [path for path in (here / "warehouse").rglob("*.parquet") if "_delta_log" not in path.parts]
    assert (found.damages, found.files) == ([], len(live))
    assert found.bytes == sum(path.stat().st_size for path in live)
    assert found.tables == len(ledger_of(here).tables()) + 3
    for options in ([], ["--deep"]):
        code, out, _ = dd("doctor", *options)
        (line,) = [line for line in out if line.startswith("ok    files")]
        assert code == 0
        assert f"{found.tables} tables, {found.files} files, {found.rows} rows, {found.bytes:,} bytes" in line
        assert ("every byte is as written" in line) == bool(options)
    assert list(leftovers(ledger_of(here))) == []


def test_an_empty_warehouse_has_nothing_to_check(fresh: Path) -> None:
    found = inspect(ledger_of(fresh), deep=True)
    assert (found.tables, found.files, found.damages) == (0, 0, [])


def test_a_file_of_another_program_is_counted_and_decoded(copied: Path) -> None:
    """Without digests of ours only its size and rows are known; every page is decoded if every byte is to be read."""
    folder = copied / "warehouse" / "outputs" / "journeys"
    DeltaTable(str(folder)).optimize.compact()
    (foreign,) = [folder / file.path for file in tables.files_of(DeltaTable(str(folder)))]
    assert damages(copied, deep=True) == []
    content = foreign.read_bytes()
    foreign.write_bytes(content[:4] + bytes(60) + content[64:])
    assert damages(copied) == []
    (found,) = damages(copied, deep=True)
    assert str(foreign) in found[0]


def test_rows_that_the_log_does_not_say(copied: Path) -> None:
    """Parquet alone does not notice them."""
    ledger = ledger_of(copied)
    run, name = ledger.current_run(), "outputs/journeys"
    assert run is not None
    folder, number = local(ledger.warehouse.table(name)), ledger.next_run()
    rows = pl.DataFrame({"stop": ["A", "B"], "total": [1, 2], "version": [5, 5], "diff": [1, 1]})
    rows.write_parquet(folder / "foreign.parquet")
    file = AddedFile("foreign.parquet", (folder / "foreign.parquet").stat().st_size, 3, '{"numRecords": 3}')
    state = commits.commit(Writer(), folder, [file], number, base=run.tables[name])
    ledger.append(replace(run, run=number, base=run.run, tables={**run.tables, name: state}))
    (found,) = damages(copied)
    assert found[0] == f"{folder / 'foreign.parquet'} has 2 rows, its table's log says 3"


def test_corrections_that_wait_are_checked_and_no_leftovers(copied: Path, dd: Any) -> None:
    """The next run commits them. Until then no table names them."""
    program = copied / "program.py"
    program.write_text(program.read_text().replace('col("minutes")', '2 * col("minutes")'))
    assert dd("run", "--corrections", "append", "-q")[0] == 0
    run = ledger_of(copied).current_run()
    assert run is not None
    (file,) = [copied / "warehouse" / name / file.path for name, files in run.corrections.items() for file in files]
    assert not [leftover for leftover in leftovers(ledger_of(copied)) if file.name in str(leftover.examples)]
    assert damages(copied, deep=True) == []
    file.unlink()
    assert [message for message, _ in damages(copied)] == [f"{file} is missing"]


# --- what killed commands leave ---------------------------------------------------------------------------------------


def kill(project: Path, point: str) -> None:
    """A run that is killed at a failpoint."""
    assert run_apart(project, "--full-refresh", DDCORE_FAILPOINT=point) == -9


def run_apart(project: Path, *options: str, **environment: str) -> int:
    """A run in a process of its own, which writes the same files each time; in this one the ids of strings, by which
    rows of one key are ordered, depend on the tests before.
    """
    command = [str(Path(sys.executable).with_name("ddcore")), "run", "-q", *options]
    environment = {**os.environ, **environment}
    return subprocess.run(command, cwd=project, env=environment, check=False, timeout=600).returncode


def test_a_killed_run_is_seen(copied: Path, dd: Any) -> None:
    (copied / "more.csv").write_text("version,diff,src,dst,minutes\n6,1,Castle,Harbour,1\n")
    assert dd("ingest", "links", "more.csv", "-q")[0] == 0
    kill(copied, "after-file:2")
    code, out, _ = dd("doctor", "--json")
    found = {record["name"]: record for record in records(out)}
    assert code == 0, "nothing is damaged: the next run goes on"
    assert found["last run"]["state"] == "note"
    assert "run 2 (versions 0..6, begun 20" in found["last run"]["message"]
    assert found["last run"]["hint"] == "to finish it: ddcore run"
    assert found["lock"]["state"] == "note"
    assert found["lock"]["message"].startswith("free; ddcore run (host ")
    assert "was killed while it held it" in found["lock"]["message"]
    assert "of killed commands: 2, " in found["leftovers"]["message"]
    assert run_apart(copied) == 0
    found = {record["name"]: record for record in records(dd("doctor", "--json")[1])}
    assert "last run" not in found and "leftovers" not in found
    assert found["lock"]["message"] == "free"


def test_commits_that_the_ledger_does_not_name_are_noted(copied: Path, dd: Any) -> None:
    """Another program appended a row to an output: our readers ignore it, and others see it. OPTIMIZE is none."""
    table = DeltaTable(str(copied / "warehouse/outputs/journeys"))
    table.optimize.compact()
    assert "commits" not in {check["name"] for check in records(dd("doctor", "--json")[1])}
    rows = pl.DataFrame({"stop": ["Nowhere"], "total": [1], "version": [5], "diff": [1]})
    write_deltalake(str(copied / "warehouse/outputs/journeys"), rows.to_arrow(), mode="append")
    assert "Nowhere" not in "".join(dd("show", "journeys")[1])
    (note,) = [check for check in records(dd("doctor", "--json")[1]) if check["name"] == "commits"]
    assert note["state"] == "note"
    assert note["message"].startswith("1 table has commits that the ledger does not name")
    assert note["message"].endswith(": outputs/journeys")
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert "commits" not in {check["name"] for check in records(dd("doctor", "--json")[1])}


def test_what_is_left_over_is_counted_by_kind(copied: Path, dd: Any) -> None:
    warehouse = copied / "warehouse"
    stray = warehouse / "outputs" / "journeys" / "run-000007-0-0123456789abcdef.parquet"
    stray.write_bytes(bytes(1000))
    hidden = warehouse / "inputs" / "links" / ".ingest-12-34.tmp"
    hidden.write_bytes(bytes(500))
    shutil.copytree(warehouse / some_state(copied), warehouse / "state" / "_damaged-ab12-1")
    found = {leftover.what.split(",")[0]: leftover for leftover in leftovers(ledger_of(copied))}
    assert len(found) == 2
    strays = found["files that no version of a table names"]
    assert (strays.files, strays.bytes) == (2, 1500)
    assert set(strays.examples) == {f"outputs/journeys/{stray.name}", f"inputs/links/{hidden.name}"}
    assert found["damaged tables that were set aside"].examples == ("state/_damaged-ab12-1",)
    code, out, _ = dd("doctor")
    assert code == 0
    assert len([line for line in out if line.startswith("note  leftovers")]) == 2
    with Warehouse(warehouse).lock("ddcore run", 7):
        assert not [line for line in dd("doctor")[1] if "leftovers" in line], "a run may be about to commit them"
    for path in (stray, hidden):
        path.unlink()
    shutil.rmtree(warehouse / "state" / "_damaged-ab12-1")
    assert list(leftovers(ledger_of(copied))) == []


def test_earlier_versions_of_tables_are_no_leftovers_and_state_of_other_programs_is(copied: Path, dd: Any) -> None:
    assert dd("run", "--full-refresh", "-q")[0] == 0
    assert list(leftovers(ledger_of(copied))) == []
    before = {name for name in ledger_of(copied).tables() if name.startswith("state/")}
    program = copied / "program.py"
    program.write_text(program.read_text().replace('col("minutes")', '2 * col("minutes")'))
    assert dd("run", "--full-refresh", "-q")[0] == 0
    (left,) = leftovers(ledger_of(copied))
    assert left.what.startswith("tables that the last run does not name")
    assert set(left.examples) == before - set(ledger_of(copied).tables())
    assert left.bytes > 0
