"""Commands killed with SIGKILL, driver and workers, at random moments, on real data: no row is lost or there twice.

``make soak`` does the same for longer; test_failpoints.py goes through the steps of every command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pages
import polars as pl
import pytest
import soak
from forks import forks
from soak import Soak, differences
from trams import Command
from workshop import Workshop

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse

KILLS = [
    pytest.param("inline", 2, id="inline"),
    pytest.param("inline", 60, id="inline, long", marks=pytest.mark.long),
    pytest.param("spark, 1 worker", 12, id="one worker, long", marks=pytest.mark.long),
    pytest.param("spark, 2 workers", 6, id="two workers, long", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("engine", "kills"), KILLS)
def test_killed_at_random_moments(engine: str, kills: int, tmp_path: Path, seed: int) -> None:
    with forks(tmp_path, synced="DDCORE_FSYNC" in os.environ) as processes:
        tally = Soak(tmp_path, seed, processes, {engine: 1.0}).run(kills)
    print(tally.table(seed, 0.0))
    assert (tally.lost, tally.twice, tally.wrong) == (0, 0, [])
    assert tally.cycles >= kills and tally.histories > 0 and tally.compared > 0


def test_the_soak_counts_rows_that_are_lost_or_there_twice() -> None:
    expected = pl.DataFrame({"n": [1, 2, 2, 3], "version": [0, 0, 1, 1], "diff": [1, 1, -1, 1]})
    assert differences(expected, expected) == (0, 0)
    assert differences(expected.reverse(), expected) == (0, 0)
    assert differences(expected.slice(1), expected) == (1, 0)
    assert differences(pl.concat([expected, expected.slice(2)]), expected) == (0, 2)
    other = expected.with_columns(diff=-pl.col("diff"))
    assert differences(other, expected) == (4, 4)


def test_a_soak_that_finds_something_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The expected logs lack a row, so the actual ones have one too many."""
    real = Soak._undisturbed

    def without_one(self: Soak) -> soak.Logs:
        return {name: log.slice(1) for name, log in real(self).items()}

    monkeypatch.setattr(Soak, "_undisturbed", without_one)
    monkeypatch.setattr(soak, "SHARES", {"inline": 1.0})
    monkeypatch.setattr(Soak, "run", lambda self, cycles: _first_run_only(self))
    assert soak.main(["--cycles", "1", "--seed", "1"]) == 1
    out = capsys.readouterr().out
    assert "| rows lost | 0 |" in out and "| rows twice | 0 |" not in out


def _first_run_only(self: Soak) -> soak.Tally:
    project = self._project("project")
    for arguments in (["ingest", soak.INPUT, str(soak.HISTORY)], ["run"]):
        assert self._command(project, "inline", arguments, soak.LIMIT, worker=False) == (0, "")
    self._compare(project)
    return self.tally


# --- the lock of a killed command -------------------------------------------------------------------------------------


def test_a_stale_lock_is_said_and_what_becomes_of_the_work(workshop: Workshop) -> None:
    """One note on stderr, and a field of the result: after each kind of command, at its beginning, middle and end."""
    for name, point, outcome in (
        ("later run", "after-lock", "it recorded nothing, so nothing of it is visible"),
        ("later run", "after-table", "run 2 is finished first"),
        ("later run", "after-run", "its last record, run 2, is complete"),
        ("full refresh of a changed program", "after-table", "run 2 is given up, and everything is folded anew"),
        ("later ingest", "after-file", "it recorded nothing, so nothing of it is visible"),
        ("later ingest", "after-table", "ingest 4 is finished now"),
        ("later ingest", "after-ingest", "its last record, ingest 4, is complete"),
    ):
        folder = workshop.copy(workshop.scenario(name).base)
        arguments = workshop.placed(folder, workshop.scenario(name).arguments)
        assert workshop.command(folder, *arguments, DDCORE_FAILPOINT=point).code == -signal.SIGKILL
        ended = workshop.command(folder, *arguments)
        stale = pl.read_json(ended.out[-1].encode())["stale_lock"][0]
        assert stale["outcome"] == outcome
        notes = [line for line in ended.err if line.startswith("note: ddcore ") and "releasing the lock" in line]
        assert len(notes) == 1
        for part in (stale["command"], f"pid {stale['pid']}", f"since {stale['since']}", f": {outcome}"):
            assert part in notes[0]
        assert '"stale_lock": null' in workshop.command(folder, "run").out[-1]


@pytest.mark.parametrize(
    ("killed", "point", "following", "outcome"),
    [
        (["ingest", "--undo", "2", "--late", "restate"], "after-undo", [], "its last record, undo 2, is complete"),
        (["run", "--full-refresh"], "after-intent", [], "run 2 is not finished yet"),
        (["run", "--full-refresh"], "after-intent", ["compact"], "run 2 is not finished yet"),
    ],
)
def test_a_command_that_fails_tells_of_the_stale_lock_as_well(
    killed: list[str], point: str, following: list[str], outcome: str, *, copied: Path, dd: Command
) -> None:
    """An undo that cannot be repeated, a program that does not load, a compaction beside an unfinished run."""
    environment = {**os.environ, "DDCORE_FAILPOINT": point}
    ended = subprocess.run([sys.executable, "-m", "ddcore.cli.main", *killed], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    if killed[0] == "run":
        Path("program.py").write_text("def program(:\n")
    code, _, said = dd(*(following or killed))
    notes = [line for line in said if "ended without releasing the lock" in line]
    assert code in (1, 2) and len(notes) == 1 and notes[0].endswith(f": {outcome}")
    assert not any("releasing" in line for line in dd(*killed)[2])


@pytest.mark.parametrize(
    ("point", "outcome"),
    [
        ("after-file", "run 2 is given up, and its versions are open again"),
        ("after-table", "run 2 has committed to tables, and the next ddcore run finishes it"),
    ],
)
@pytest.mark.parametrize("arguments", [("ingest", "roads", "last.csv"), ("ingest", "--undo", "3")], ids=" ".join)
def test_an_ingest_says_what_becomes_of_a_killed_run(
    arguments: tuple[str, ...], point: str, outcome: str, workshop: Workshop
) -> None:
    folder = workshop.copy(workshop.base("folded"))
    assert workshop.command(folder, "run", DDCORE_FAILPOINT=point).code == -signal.SIGKILL
    ended = workshop.command(folder, *workshop.placed(folder, arguments))
    if "--undo" in arguments and point == "after-table":
        assert ended.code == 1 and "cannot be taken back" in ended.err[1]
        assert ended.err[0].endswith("ended without releasing the lock: run 2 is not finished yet")
        return
    assert next(line for line in ended.err if line.startswith("note: ddcore run")).endswith(f": {outcome}")
    assert (Ledger.load(Warehouse(folder / "warehouse")).open_intent() is None) == (point == "after-file")


def test_the_page_shows_what_the_commands_print(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("recovery.md", tmp_path, dd, monkeypatch, steps=19)
