"""Runs that are given up after they committed to outputs: the next leaves right logs, and followers lose nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from places import local
from programs import Case
from tailing import Tailer, in_order
from warehouses import log_of, project_of, take_in

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.program import load_plan
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.compact import compact
from ddcore.jobs.running.commits import Commits
from ddcore.jobs.verify import Selection, Verification

EDGES = [(0, 1, 0, 1), (1, 2, 0, 1), (2, 3, 1, 1), (0, 1, 2, -1), (0, 2, 2, 1), (3, 4, 3, 1)]
PROGRAM = """
def program(edges):
    ends = edges.select(node="dst").distinct()
    starts = edges.select(node="src").distinct()
    return {"ends": ends, "starts": starts}
"""
OTHER = PROGRAM.replace('"starts": starts', '"starts": starts.where("node > 0")')
THIRD = PROGRAM.replace('"starts": starts', '"starts": starts.where("node > 1")')
NAMES = ("ends", "starts")


class Interrupted(BaseException):
    """Ends a run where a kill would."""


@pytest.fixture
def graph(tmp_path: Path) -> Project:
    frame = pl.DataFrame(EDGES, schema=["src", "dst", "version", "diff"], orient="row")
    return project_of(tmp_path / "project", Case(0, PROGRAM, lambda edges: {}, {"edges": frame}))


def change(project: Project, source: str) -> None:
    (project.root / "program.py").write_text(source)


def fold(project: Project, **options: Any) -> None:
    replay.run(project, engine="inline", **options)


def interrupt(project: Project, after: str = "_commit_output", **options: Any) -> None:
    """A run that is killed after one output was committed, or after its correction was written."""
    step = getattr(Commits, after)

    def last(self: Commits, *arguments: Any) -> None:
        step(self, *arguments)
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Commits, after, last)
        fold(project, **options)


def more(project: Project, version: int) -> None:
    take_in(project, "edges", pl.DataFrame({"src": [version], "dst": [9], "version": [version], "diff": [1]}))


def newest(project: Project) -> bool:
    """Whether the law holds at the newest version."""
    verification = Verification(project, by="reference")
    return all(verdict.holds for verdict in verification.verdicts(verification.times(Selection(), NAMES), NAMES))


def assert_followed(project: Project, tailers: dict[str, Tailer]) -> None:
    """Whoever adds up the updates of each commit has the log that the ledger names."""
    for name, tailer in tailers.items():
        tailer.read()
        signs = pl.when(pl.col("_change_type") == "delete").then(-pl.col("diff")).otherwise("diff")
        log = log_of(project, name, load_plan(project).outputs[name])
        followed = tailer.rows.with_columns(diff=signs)
        first = Ledger.load(Warehouse(project.warehouse)).since()
        if first:
            followed = followed.with_columns(version=pl.max_horizontal("version", pl.lit(first[0][0])))
            log = log.with_columns(version=pl.max_horizontal("version", pl.lit(first[0][0])))
        assert sums(followed) == sums(log)


def sums(rows: pl.DataFrame) -> Counter[Any]:
    total = Counter[Any]()
    for *row, diff in in_order(rows).select(pl.exclude("diff"), "diff").iter_rows():
        total[tuple(row)] += diff
    return Counter({row: diff for row, diff in total.items() if diff})


def tailers_of(project: Project) -> dict[str, Tailer]:
    tailers = {name: Tailer(local(project.warehouse / "outputs" / name)) for name in NAMES}
    for tailer in tailers.values():
        tailer.read()
    return tailers


@pytest.mark.sample(1)
@pytest.mark.parametrize("first", [0, 2])
def test_of_a_rewriting_run(first: int, graph: Project) -> None:
    """It had removed files from an output, which come back."""
    for version in range(4):
        fold(graph, last=time_of(version))
    tailers = tailers_of(graph)
    take_in(graph, "edges", pl.DataFrame({"src": [7], "dst": [8], "version": [first], "diff": [1]}))
    interrupt(graph)
    change(graph, OTHER)
    fold(graph, corrections="append")
    assert_followed_after_next(graph, tailers)


def assert_followed_after_next(project: Project, tailers: dict[str, Tailer]) -> None:
    for tailer in tailers.values():
        tailer.read()
    more(project, 4)
    fold(project)
    assert newest(project)
    assert_followed(project, tailers)


@pytest.mark.sample(1)
@pytest.mark.parametrize("since", [None, 1])
def test_before_a_compaction(since: int | None, graph: Project) -> None:
    """Commits without a run stay visible until the next run cancels them: a compaction leaves them alone."""
    for version in range(3):
        fold(graph, last=time_of(version))
    tailers = tailers_of(graph)
    interrupt(graph)
    change(graph, OTHER)
    fold(graph, last=time_of(2))
    for tailer in tailers.values():
        tailer.read()
    compact(graph, since=time_of(since))
    fold(graph)
    assert newest(graph)
    assert_followed(graph, tailers)


def test_that_published_corrections_which_still_wait(graph: Project) -> None:
    """The correction of the output that the next program computes in the same way is published once."""
    fold(graph, last=time_of(2))
    take_in(graph, "edges", pl.DataFrame({"src": [7], "dst": [8], "version": [1], "diff": [1]}))
    fold(graph, last=time_of(2), corrections="append")
    tailers = tailers_of(graph)
    interrupt(graph)
    change(graph, OTHER)
    fold(graph)
    assert newest(graph)
    assert_followed(graph, tailers)


WIDE = PROGRAM.replace('"ends": ends', '"ends": edges.select("src", "dst")')


@pytest.mark.parametrize("later", [WIDE, PROGRAM, WIDE.replace('"src", "dst"', '"dst", "src"')])
def test_that_gave_an_output_other_columns(later: str, graph: Project) -> None:
    """The table has the new columns already, and the ledger still names the old ones."""
    fold(graph, last=time_of(2))
    change(graph, WIDE)
    interrupt(graph, "_correction")
    change(graph, later)
    fold(graph)
    assert newest(graph)
    if later == PROGRAM:
        ledger = Ledger.load(Warehouse(graph.warehouse))
        state = ledger.table("outputs/ends")
        assert state is not None and state.rows >= 4, "what was published is there"


@pytest.mark.sample(1)
@pytest.mark.parametrize("later", [WIDE, PROGRAM, OTHER])
def test_that_replaced_an_output_by_one_with_other_columns(later: str, graph: Project) -> None:
    fold(graph, last=time_of(2))
    change(graph, WIDE)
    interrupt(graph, full_refresh=True)
    change(graph, later)
    fold(graph)
    assert newest(graph)


def test_that_gave_an_output_other_columns_and_the_program_changes_back(graph: Project, dd: Any) -> None:
    """Nothing is left to fold; all commands read the output as the ledger names it."""
    for version in range(3):
        fold(graph, last=time_of(version))
    change(graph, WIDE)
    interrupt(graph, "_correction", last=time_of(2))
    change(graph, PROGRAM)
    fold(graph, last=time_of(2))
    before = log_of(graph, "ends", load_plan(graph).outputs["ends"]).sort(pl.all())
    project = ("--project", str(graph.root))
    for words in (["show", "ends"], ["diff", "ends", "0", "2"], ["verify", "ends"], ["compact"], ["show", "ends"]):
        code, _, err = dd(*words, *project)
        assert code == 0, (words, err)
    assert log_of(graph, "ends", load_plan(graph).outputs["ends"]).sort(pl.all()).equals(before)
    fold(graph)
    assert newest(graph)


def test_that_left_an_output_empty(graph: Project) -> None:
    """It replaced the output's only file by nothing. The next run puts it back, though it has no rows for it."""
    fold(graph, last=time_of(2))
    tailers = tailers_of(graph)
    change(graph, PROGRAM.replace("distinct()", 'where("node > 9").distinct()'))
    interrupt(graph, full_refresh=True)
    assert log_of(graph, "ends", load_plan(graph).outputs["ends"]).height == 4
    change(graph, OTHER)
    fold(graph, corrections="append", last=time_of(2))
    take_in(graph, "edges", pl.DataFrame({"src": [2], "dst": [3], "version": [3], "diff": [1]}))
    fold(graph)
    assert newest(graph)
    assert_followed(graph, tailers)
    assert in_order(pl.read_delta(str(graph.warehouse / "outputs" / "ends"))).height >= 4


def test_that_found_a_damaged_output(graph: Project, dd: Any) -> None:
    """What was published cannot be read, so there is no difference to it: the table stays where it is."""
    fold(graph, last=time_of(2))
    (local(graph.warehouse) / "outputs" / "ends" / "_delta_log" / f"{0:020d}.json").write_text("garbage")
    words = ["run", "--full-refresh", "--engine", "inline", "--project", str(graph.root)]
    for _ in range(2):
        code, _, err = dd(*words, "--corrections", "append")
        assert (code, len(err)) == (1, 2) and "outputs/ends" in err[0] and "ddcore run --full-refresh" in err[1]
        assert sorted(folder.name for folder in (local(graph.warehouse) / "outputs").iterdir()) == ["ends", "starts"]
    assert dd(*words)[0] == 0
    assert newest(graph)


def test_rows_of_both_programs_are_once_in_the_log(graph: Project) -> None:
    """What the run that was given up had committed stays, and only what the next one gives beside that is added."""
    fold(graph, last=time_of(2))
    tailers = tailers_of(graph)
    more(graph, 3)
    interrupt(graph)
    change(graph, OTHER)
    fold(graph, corrections="append")
    assert newest(graph)
    assert_followed(graph, tailers)
    log = log_of(graph, "ends", load_plan(graph).outputs["ends"])
    assert log.select("node", "version").is_unique().all(), log.sort(pl.all())
