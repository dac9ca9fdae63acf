"""Weeks of days with several runs each, with the defaults: the number of files is bounded, and a week can be continued.

Days pass by giving every file an earlier time; runs get the times of these days.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import RunRecord
from ddcore.io.project.finding import find_project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.io.upkeep.retention import kept_points
from ddcore.jobs import replay
from ddcore.jobs.compact import compact
from ddcore.jobs.ingest import ingest
from ddcore.jobs.running import records as run_records
from ddcore.jobs.verify import Selection, Verification

START = datetime(2026, 11, 1, tzinfo=UTC)
PROGRAM = """
import ddcore as dd

def program(orders, customers):
    joined = orders.join(customers, on="customer")
    return {"totals": joined.group_by("region").agg(n=dd.count()), "buyers": orders.select("customer").distinct()}
"""
SETTINGS = """
[project]
program = "program.py:program"
warehouse = "warehouse"
[run]
engine = "inline"
[inputs.orders]
schema = {id = "int64", customer = "int64"}
[inputs.customers]
schema = {customer = "int64", region = "int64"}
"""


class Calendar:
    """A project that ingests and runs a few times every day."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        (folder / "dd.toml").write_text(SETTINGS)
        self.folder, self.project, self.now, self.version = folder, find_project(folder, {}), START, 0
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        monkeypatch.setattr(run_records, "RunRecord", self._dated(RunRecord))
        self.take("customers", [(customer, customer % 3) for customer in range(9)])

    def _dated(self, kind: Callable[..., RunRecord]) -> Callable[..., RunRecord]:
        return lambda **fields: kind(**fields, at=self.now)

    @property
    def ledger(self) -> Ledger:
        return Ledger.load(Warehouse(self.project.warehouse))

    def take(self, input: str, rows: list[tuple[int, int]]) -> None:
        columns = ",".join(self.project.inputs[input])
        source = self.folder / "source.csv"
        lines = [f"{a},{b},{self.version},1" for a, b in rows]
        source.write_text("\n".join([f"{columns},version,diff", *lines]) + "\n")
        ingest(self.project, input, [str(source)], engine="inline")

    def day(self, runs: int) -> None:
        for _ in range(runs):
            self.version += 1
            self.take("orders", [(self.version, self.version % 9)])
            replay.run(self.project, engine="inline")
            self.now += timedelta(days=1) / runs
        for path in (self.folder / "warehouse").rglob("*"):
            if path.is_file():
                then = path.stat().st_mtime - 86_400
                os.utime(path, (then, then))

    def files(self) -> Counter[str]:
        """The files of each part of the warehouse."""
        root = self.folder / "warehouse"
        return Counter(path.relative_to(root).parts[0] for path in root.rglob("*") if path.is_file())


@pytest.fixture
def calendar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calendar:
    return Calendar(tmp_path / "project", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days", "runs"),
    [(24, 2), pytest.param(60, 1, marks=pytest.mark.long), pytest.param(24, 8, marks=pytest.mark.long)],
)
def test_the_number_of_files_is_bounded_after_a_week(days: int, runs: int, calendar: Calendar) -> None:
    seen: list[Counter[str]] = []
    for _ in range(days):
        calendar.day(runs)
        seen.append(calendar.files())
    tables = Counter(name.partition("/")[0] for name in calendar.ledger.states())
    half = days // 2
    for part in ("state", "outputs", "inputs", "ledger"):
        early, late = (max(item[part] for item in some) for some in (seen[8 : 8 + half // 2], seen[half:]))
        print(part, tables[part], [item[part] for item in seen])
        assert late <= 1.35 * early + 10, f"{part} goes on growing: {early} files, then {late}"
    assert max(item["state"] for item in seen) <= 110 * tables["state"]
    kept = kept_points(calendar.ledger, calendar.project.retention)
    assert len(kept) == min(32, 7 * runs + 1), "a week of runs, if they are not too many"


@pytest.mark.slow
@pytest.mark.long
def test_what_a_week_kept_can_be_continued_and_what_came_before_is_folded_from_nothing(calendar: Calendar) -> None:
    for _ in range(12):
        calendar.day(2)
    compact(calendar.project)
    assert calendar.files()["state"] < 400
    kept = kept_points(calendar.ledger, calendar.project.retention)
    last = calendar.version
    report = replay.run(calendar.project, first=time_of(last - 13), engine="inline")
    again = f"folded again from run {kept[14].run}, through version {last}"
    assert f"{again}: outputs are rewritten from version {last - 13} on" in report.notes, report.notes
    report = replay.run(calendar.project, first=time_of(3), engine="inline")
    nothing = f"folded again from nothing, through version {last}: outputs are rewritten"
    assert nothing in report.notes, report.notes
    calendar.day(2)
    verification = Verification(calendar.project)
    verdicts = list(
        verification.verdicts(verification.times(Selection(last=30), verification.outputs()), verification.outputs())
    )
    assert len(verdicts) > 40 and all(verdict.holds for verdict in verdicts)


def test_a_project_may_say_how_many_versions_can_be_continued(calendar: Calendar) -> None:
    for _ in range(4):
        calendar.day(2)
    of = calendar.project.retention
    assert len(kept_points(calendar.ledger, replace(of, versions=3))) == 4
    assert len(kept_points(calendar.ledger, of)) == 8
    calendar.now += timedelta(days=30)
    calendar.day(1)
    assert len(kept_points(calendar.ledger, of)) == 4, "the last four, however old they are"
