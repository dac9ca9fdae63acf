"""Hot arrangements: what a fold leaves in memory is what the next would read, whoever wrote in between."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import folding
import polars as pl
import pytest
from deltalake import DeltaTable
from programs import case
from seeds import nightly, seeds
from test_random_programs import compare, outcome
from warehouses import logs_of, project_of, take_in

from ddcore import reference
from ddcore.base.errors import DdError, StorageError
from ddcore.base.tuning import Tuning
from ddcore.io.delta import heads, tables
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_plan, load_program
from ddcore.io.project.project import RetentionSettings
from ddcore.io.project.times import time_of
from ddcore.io.state import state
from ddcore.io.state.hot import Hot
from ddcore.jobs import compact, replay
from ddcore.jobs.engines import inline
from ddcore.jobs.running.commits import Commits
from ddcore.jobs.warm import Warm
from ddcore.traces.spilling import Spilling

SEEDS = seeds(12, share=40)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(SEEDS, 6))
def test_random_programs_keep_the_law_while_others_write(seed: int, tmp_path: Path) -> None:
    """A run for some of the times with hot arrangements. Others, with none, come in between: runs of some versions, of
    all versions again and compactions. What may stay in memory is little or much, and files are small or not.
    """
    rng = random.Random(seed)
    drawn = case(seed, plain=True)
    expected = outcome(folding.by_reference, drawn)
    tuning = Tuning(
        small_file_rows=rng.choice([0, 1024]),
        hot_bytes=rng.choice([0, 3000, 1 << 30]),
        whole_share=rng.choice([0, 0.5]),
    )
    project = project_of(tmp_path / "project", drawn, tuning=tuning)
    retention = RetentionSettings(auto=rng.random() < 0.3, versions=rng.choice([0, 3]), days=0)
    project = replace(project, retention=retention, memory=rng.choice([None, None, 1 << 30]))
    ends = sorted(set(folding.grid(drawn.frames)))
    last = tuple(max(axis) for axis in zip(*ends, strict=True))
    warm = Warm()
    try:
        for end in [*sorted(rng.sample(ends, min(5, len(ends)))), last]:
            is_hot = rng.random() < 0.8
            replay.run(project, engine="inline", last=time_of(end), warm=warm if is_hot else None)
            other = rng.random()
            if other < 0.2:
                compact.compact(project)
            elif other < 0.3:
                replay.run(project, engine="inline", last=time_of(end), full_refresh=True)
    except DdError as error:
        compare(drawn, f"seed {seed}", expected, error)
        return
    outputs = load_plan(project).outputs
    compare(drawn, f"seed {seed}", expected, logs_of(project, outputs))


# --- literal cases ----------------------------------------------------------------------------------------------------

PROJECT = """[project]
program = "program.py:program"
[run]
engine = "inline"
[inputs.edges]
schema = { src = "int64", dst = "string" }
[inputs.marks]
schema = { n = "int64" }
"""
PROGRAM = """import ddcore as dd


def program(edges, marks):
    return {
        "most": edges.group_by("src").agg(dst=dd.max("dst")),
        "joined": edges.join(marks, on={"src": "n"}),
        "marked": marks.group_by("n").agg(times=dd.count()),
    }
"""


class Followed:
    """A project whose runs keep arrangements in memory; ``hot`` has them. After each run the law is checked."""

    def __init__(self, folder: Path, **tuning: Any) -> None:
        (folder / "program.py").write_text(PROGRAM)
        (folder / "dd.toml").write_text(PROJECT)
        self.project = replace(
            find_project(folder, {}), retention=RetentionSettings(auto=False), tuning=Tuning(**tuning)
        )
        self.program, self.plan, self.version, self.warm = (
            load_program(self.project),
            load_plan(self.project),
            0,
            Warm(),
        )
        self.frames: dict[str, list[pl.DataFrame]] = {name: [_frame(name, 0, 0)] for name in ("edges", "marks")}

    @property
    def hot(self) -> Hot:
        return self.warm.arrangements()

    def take_in(self, **rows: int) -> None:
        """So many rows of inputs as a new version."""
        for name, number in rows.items():
            take_in(self.project, name, _frame(name, self.version, number))
            self.frames[name].append(_frame(name, self.version, number))
        self.version += 1

    def run(self, *, cold: bool = False, **rows: int) -> None:
        """Take in and fold. A ``cold`` run is as one of another process."""
        if rows:
            self.take_in(**rows)
        replay.run(self.project, engine="inline", warm=None if cold else self.warm)
        frames = {name: pl.concat(parts) for name, parts in self.frames.items()}
        expected = reference.replay(self.program, self.project.dims, None, **frames)
        assert logs_of(self.project, self.plan.outputs) == expected


def _frame(name: str, version: int, rows: int) -> pl.DataFrame:
    numbers = range(version, version + rows)
    columns: dict[str, Any] = {"n": [n % 97 for n in numbers]}
    if name == "edges":
        columns = {"src": [n % 97 for n in numbers], "dst": [f"to {n}" for n in numbers]}
    kinds = {name: pl.String if name == "dst" else pl.Int64 for name in (*columns, "version", "diff")}
    return pl.DataFrame({**columns, "version": version, "diff": 1}, schema=kinds)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables whose files a fold opens."""
    names, whole = list[str](), state._open

    def note(stored: Any, table: str, *rest: Any, **more: Any) -> Any:
        if table in stored.files:
            names.append(table)
        return whole(stored, table, *rest, **more)

    monkeypatch.setattr(state, "_open", note)
    return names


@pytest.mark.sample(4, of="kept")
def test_a_fold_opens_nothing_that_the_one_before_has_left(tmp_path: Path, opened: list[str]) -> None:
    followed = Followed(tmp_path)
    for _ in range(6):  # small files are merged meanwhile
        followed.run(edges=50, marks=20)
    assert opened == []
    followed.run(cold=True, edges=50, marks=20)
    assert opened, "another process opens them"


@pytest.mark.sample(1)
@pytest.mark.parametrize("other", ["run", "compact", "again", "unfinished", "optimize"])
def test_what_others_changed_is_opened_anew(other: str, tmp_path: Path, opened: list[str]) -> None:
    followed = Followed(tmp_path)
    followed.run(edges=50, marks=20)
    followed.run(edges=50, marks=20)
    if other == "run":
        followed.run(cold=True, edges=50, marks=20)
    elif other == "compact":
        compact.compact(followed.project)
    elif other == "again":
        replay.run(followed.project, engine="inline", full_refresh=True)
    elif other == "unfinished":  # files were written for a run that another has to fold
        followed.take_in(edges=50, marks=20)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError):
            patch.setattr(Commits, "commit", _fails)
            followed.run()
    else:
        for folder in (tmp_path / "warehouse" / "state").iterdir():
            DeltaTable(str(folder)).optimize.compact()
    opened.clear()
    followed.run(edges=50, marks=20)
    assert opened, other
    followed.run(edges=50, marks=20)


class _Noted:
    """A function that notes the names of the folders that it is called with."""

    def __init__(self, function: Any) -> None:
        self.function, self.names = function, list[str]()

    def __call__(self, folder: Path, *rest: Any) -> Any:
        self.names.append(folder.name)
        return self.function(folder, *rest)


@pytest.mark.sample(4, of="kept")
@pytest.mark.parametrize("other", ["nobody", "run", "touch"])
def test_a_commit_is_read_once_unless_it_is_another_one(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(tmp_path)
    for _ in range(3):
        followed.run(edges=50, marks=20)
    folders = [*(tmp_path / "warehouse" / "state").iterdir()]
    if other == "run":
        followed.run(cold=True, edges=50, marks=20)
    for folder in folders if other == "touch" else ():
        max((folder / "_delta_log").glob("*.json")).touch()
    states, read = {folder.name for folder in folders}, _Noted(heads._read)
    monkeypatch.setattr(heads, "_read", read)
    followed.run(edges=50, marks=20)
    assert states & {*read.names} == (set() if other == "nobody" else states), read.names
    read.names.clear()
    followed.run(edges=50, marks=20)
    assert not states & {*read.names}, "all is known again"


@pytest.mark.sample(4, of="kept")
def test_what_the_library_lists_is_listed_once_unless_another_commit_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After maintenance the newest commit is not one of ours, and has no head."""
    followed = Followed(tmp_path)
    followed.run(edges=50, marks=20)
    folders = [*(tmp_path / "warehouse" / "state").iterdir()]

    def maintain(days: int) -> None:
        for folder in folders:
            DeltaTable(str(folder)).alter.set_table_properties({"delta.logRetentionDuration": f"interval {days} days"})

    maintain(30)
    followed.run(marks=20)
    listed = _Noted(tables.check_files)
    monkeypatch.setattr(tables, "check_files", listed)
    followed.run(marks=20)
    assert not listed.names
    maintain(31)
    followed.run(marks=20)
    assert listed.names


def _fails(*_: object, **__: object) -> None:
    raise StorageError("the disk is full", "make room")


@pytest.mark.sample(4, of="kept")
def test_nothing_stays_after_a_fold_that_failed(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.run(edges=50, marks=20)
    assert len(followed.hot) > 0 and followed.hot.memory() > 0
    followed.take_in(edges=50, marks=20)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError):
        patch.setattr(inline, "write_result", _fails)
        followed.run()
    assert len(followed.hot) == 0
    followed.run()


@pytest.mark.sample(4, of="kept")
def test_what_stays_is_bounded_and_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.run(edges=3000, marks=60)
    both, size = len(followed.hot), followed.hot.memory()
    followed.project = replace(followed.project, tuning=Tuning(hot_bytes=size // 2))
    kept, used = followed.hot, set[str]()
    for _ in range(3):
        followed.run(edges=10)
        assert kept.memory() <= size // 2 and 0 < len(kept) < both
    used = {table for _, table in kept._tables}
    followed.project = replace(followed.project, tuning=Tuning(hot_bytes=0))
    followed.run(edges=10)
    assert len(kept) == 0 and used


@pytest.mark.sample(4, of="kept")
@pytest.mark.parametrize("short", [False, True])
def test_what_stays_is_a_part_of_the_memory_that_is_set(short: bool, tmp_path: Path) -> None:
    """All of it goes where the process has no more."""
    followed = Followed(tmp_path, hot_share=0.001)
    followed.project = replace(followed.project, memory=32 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spilling, "is_short", lambda self: short)
        followed.run(edges=3000, marks=60)
        for _ in range(3):
            followed.run(edges=10, marks=5)
            assert followed.hot.memory() <= (32 << 20) / 1000
            assert (len(followed.hot) == 0) == short


@pytest.mark.sample(4, of="kept")
def test_of_a_table_that_was_not_read_nothing_stays(tmp_path: Path) -> None:
    """Rows that are added to it are not all of it."""
    followed = Followed(tmp_path)
    followed.run(cold=True, edges=50, marks=20)
    followed.run(edges=5)  # nothing looks at the history of marks
    followed.run(marks=5)
    followed.run(edges=5, marks=5)
