"""Compaction of warehouses: nothing that can still be read changes, and nothing that is needed is deleted."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import folding
import polars as pl
import pytest
from deltalake import DeltaTable
from notation import frame, log
from places import local
from programs import Case, case
from seeds import nightly, seeds
from tailing import Tailer
from test_random_programs import compare, outcome
from warehouses import logs_of, project_of, take_in

from ddcore.base import lattice
from ddcore.base.errors import DdError, UsageError
from ddcore.base.tuning import Tuning
from ddcore.io.delta import table_files, tables
from ddcore.io.delta.writer import Writer
from ddcore.io.ledger.intent import give_up
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import CompactRecord, IntentRecord
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.parquet import datafile
from ddcore.io.project.finding import find_project
from ddcore.io.project.frontiers import corners, is_open
from ddcore.io.project.program import load_plan
from ddcore.io.project.project import Project, RetentionSettings
from ddcore.io.project.times import time_of
from ddcore.io.reading.folded import output_log
from ddcore.io.storage.warehouse import Warehouse
from ddcore.io.upkeep import compaction, retention
from ddcore.jobs import compact, replay

SEEDS = seeds(5, share=100)


def with_retention(project: Project, **settings: Any) -> Project:
    return replace(project, retention=RetentionSettings(**{"auto": False, "versions": 3, "days": 0, **settings}))


def ledger_of(project: Project) -> Ledger:
    return Ledger.load(Warehouse(project.warehouse), Writer())


def everything_named(project: Project) -> set[Path]:
    """The data files that the ledger's live tables and its kept points name, read without the code under test."""
    ledger = ledger_of(project)
    named = [(name, state.version) for name, state in ledger.states().items()]
    named += [(name, state.version) for run in retention.kept_points(ledger, project.retention)
              for name, state in run.tables.items()]  # fmt: skip
    paths = set()
    for name, version in named:
        folder = local(project.warehouse) / name
        paths |= {folder / path for path in tables.values(
            DeltaTable(str(folder), version=version).get_add_actions().column("path"))}  # fmt: skip
    return paths


def advanced(logs: Any, since: Any) -> Any:
    """Logs as whoever reads at or beyond ``since`` sees them."""
    if not since:
        return logs
    result = {}
    for name, updates in logs.items():
        sums: Counter[Any] = Counter()
        for (row, time), diff in updates.items():
            least = [lattice.join(time, element) for element in since]
            moved = tuple(min(axis) for axis in zip(*least, strict=True))
            sums[row, moved] += diff
        result[name] = {key: diff for key, diff in sums.items() if diff}
    return result


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(SEEDS, 3))
def test_random_programs_compacted_between_runs(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some times after a run the warehouse is compacted, with a later ``since`` in half of the cases."""
    rng = random.Random(seed)
    tuning = Tuning(small_file_rows=rng.choice([0, 1024]), merge_rows=rng.choice([2, 4 << 20]), run_group_rows=4)
    drawn = case(seed, plain=True)
    expected = outcome(folding.by_reference, drawn)
    project = replace(with_retention(project_of(tmp_path / "project", drawn)), tuning=tuning)
    ends = sorted(set(folding.grid(drawn.frames)))
    last = tuple(max(axis) for axis in zip(*ends, strict=True))
    since: Any = ()
    try:
        for end in [*sorted(rng.sample(ends, min(4, len(ends)))), last]:
            replay.run(project, engine="inline", last=time_of(end))
            if rng.random() < 0.6:
                upper = ledger_of(project).upper()
                wanted = None
                if seed % 2 and upper is not None and len(upper[0]) == 1:
                    corner = rng.choice(corners(upper))
                    wanted = corner if not since or is_open(corner, since) else None
                compact.compact(project, since=wanted)
                since = ledger_of(project).since()
            assert all(path.exists() for path in everything_named(project))
    except DdError as error:
        compare(drawn, f"seed {seed}", expected, error)
        return
    actual = logs_of(project, load_plan(project).outputs)
    compare(drawn, f"seed {seed}, since {since}", advanced(expected, since), advanced(actual, since))


COUNTS = """
import ddcore as dd


def program(edges):
    counts = edges.group_by("a").agg(n=dd.count())
    return {"counts": counts, "pairs": dd.delta_join((edges, ["a", "b"]), (edges, ["b", "c"])).select("a", "c")}
"""


def history(versions: int, seed: int = 0) -> pl.DataFrame:
    """One row more and one row less in each version."""
    rng, present, rows = random.Random(seed), [(n % 7, n % 5) for n in range(20)], []
    rows += [(*row, 0, 1) for row in present]
    for version in range(1, versions):
        point = rng.randrange(len(present))
        rows.append((*present[point], version, -1))
        present[point] = rng.randrange(7), rng.randrange(5)
        rows.append((*present[point], version, 1))
    return pl.DataFrame(rows, schema=["a", "b", "version", "diff"], orient="row")


def counted(versions: int) -> Case:
    scope: dict[str, Any] = {}
    exec(COUNTS, scope)
    return Case(0, COUNTS, scope["program"], {"edges": history(versions)})


def fold(project: Project, versions: range) -> None:
    for version in versions:
        replay.run(project, engine="inline", last=time_of(version))


@pytest.mark.sample(1, of="compaction")
def test_runs_compact_by_themselves(tmp_path: Path) -> None:
    """Files, commits and kept points stay bounded, and the logs are those of the definition."""
    drawn = counted(40)
    project = with_retention(project_of(tmp_path / "project", drawn), auto=True)
    fold(project, range(40))
    ledger = ledger_of(project)
    assert list(ledger.records(CompactRecord))
    assert all(state.files < 2 * retention.MANY for name, state in ledger.tables().items())
    for name, folder in Warehouse(project.warehouse).tables():
        assert len([*local(folder).rglob("*.parquet")]) < 80, name
    assert 1 < len(retention.kept_points(ledger, project.retention)) <= 4
    assert all(path.exists() for path in everything_named(project))
    actual = logs_of(project, load_plan(project).outputs)
    compare(drawn, "compacted by itself", folding.by_reference(drawn.program, **drawn.frames), actual)


@pytest.mark.sample(1, of="compaction")
def test_a_run_takes_up_small_files_before_they_are_many(tmp_path: Path) -> None:
    """A table of state has few files without any compaction; rows keep their times, and older runs can be continued."""
    drawn = counted(14)
    project = with_retention(project_of(tmp_path / "project", drawn), versions=14)
    fold(project, range(14))
    ledger = ledger_of(project)
    state = {name: table for name, table in ledger.tables().items() if name.startswith("state/")}
    assert state
    assert all(table.files <= 5 for table in state.values()), state
    assert not list(ledger.records(CompactRecord))
    expected = logs_of(project, load_plan(project).outputs)
    compare(drawn, "taken up", folding.by_reference(drawn.program, **drawn.frames), expected)
    report = replay.run(project, engine="inline", first=time_of(6))
    assert report.first == time_of(6), "the files of that run are still there"
    assert logs_of(project, load_plan(project).outputs) == expected


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["after-file:3", "after-table", "after-table:3"])
def test_a_killed_run_that_takes_up_small_files(point: str, tmp_path: Path) -> None:
    """The next run finishes it: nothing is missing or twice."""
    drawn = counted(7)
    project = with_retention(project_of(tmp_path / "project", drawn))
    fold(project, range(4))
    ended = subprocess.run(
        [sys.executable, "-c", "from ddcore.cli.main import main; main()", "run", "--engine", "inline",
         "--project", str(project.root), "--to-version", "4"],
        env={**os.environ, "DDCORE_FAILPOINT": point}, check=False,
    )  # fmt: skip
    assert ended.returncode == -9, "the place is reached"
    fold(project, range(4, 7))
    state = [table for name, table in ledger_of(project).tables().items() if name.startswith("state/")]
    assert any(table.files < 5 for table in state)
    compare(
        drawn, point, folding.by_reference(drawn.program, **drawn.frames), logs_of(project, load_plan(project).outputs)
    )


@pytest.mark.sample(1, of="compaction")
def test_kept_points_can_be_continued_and_others_not(tmp_path: Path) -> None:
    drawn = counted(30)
    project = with_retention(project_of(tmp_path / "project", drawn), versions=5)
    fold(project, range(30))
    expected = logs_of(project, load_plan(project).outputs)
    compact.compact(project)
    assert [run.last for run in retention.kept_points(ledger_of(project), project.retention)] == [
        time_of(29),
        time_of(28),
        time_of(27),
        time_of(26),
        time_of(25),
        time_of(24),
    ]
    report = replay.run(project, engine="inline", first=time_of(26))
    assert report.first == time_of(26)
    assert logs_of(project, load_plan(project).outputs) == expected
    report = replay.run(project, engine="inline", first=time_of(3))
    assert report.first == time_of(0), "no kept point is that old, so the run starts from nothing"
    assert logs_of(project, load_plan(project).outputs) == expected


# -- the numbered cases through tables --------------------------------------------------------------------------------


def small(tmp_path: Path, source: str, **frames: pl.DataFrame) -> Project:
    text = f"import ddcore as dd\n\n\ndef program({', '.join(frames)}):\n    return {source}\n"
    scope: dict[str, Any] = {}
    exec(text, scope)
    return with_retention(project_of(tmp_path / "project", Case(0, text, scope["program"], dict(frames))))


def outputs_of(project: Project) -> Any:
    return logs_of(project, load_plan(project).outputs)["out"]


@pytest.mark.parametrize("since", [None, 2, 5])
def test_T12_emptying_a_time_keeps_the_key(tmp_path: Path, since: int | None) -> None:
    a, b = frame("k v", "(k,v):+1@0 (k,v):-1@1 (k,w):+1@5"), frame("k u", "(k,u):+1@6")
    project = small(tmp_path, '{"out": a.join(b, on="k")}', a=a, b=b)
    fold(project, range(6))
    compact.compact(project, since=time_of(since))
    fold(project, range(6, 7))
    assert outputs_of(project) == log("(k,w,u):+1@6")


@pytest.mark.parametrize("since", [None, 1])
def test_T15_a_delta_join_of_compacted_state(tmp_path: Path, since: int | None) -> None:
    r, s = frame("k a", "(k,a):+1@1"), frame("k b", "(k,b):+1@2")
    project = small(tmp_path, '{"out": dd.delta_join((r, ["k", "a"]), (s, ["k", "b"])).select("a", "b")}', r=r, s=s)
    fold(project, range(2))
    take_in(project, "r", frame("k a", "(j,a):+1@2 (j,a):-1@3"))
    compact.compact(project, since=time_of(since))
    fold(project, range(2, 3))
    compact.compact(project)
    assert outputs_of(project) == log("(a,b):+1@2")


def test_T17_a_batch_that_compacts_to_nothing(tmp_path: Path) -> None:
    a, b = frame("k v", "(x,one):+1@(0,0) (x,one):-1@(0,1)"), frame("k u", "(x,y):+1@(0,0)")
    project = small(tmp_path, '{"out": a.join(b, on="k")}', a=a, b=b)
    replay.run(project, engine="inline", last=time_of((0, 0)))
    compact.compact(project)
    assert outputs_of(project) == log("(x,one,y):+1@(0,0)")
    replay.run(project, engine="inline", last=time_of((0, 1)))
    compact.compact(project)
    assert outputs_of(project) == log("(x,one,y):+1@(0,0) (x,one,y):-1@(0,1)")


def test_T18_T19_representatives_in_tables(tmp_path: Path) -> None:
    """The columns of a table at the frontier {(4,8), (5,3)} are those of the lattice."""
    rng = random.Random(19)
    rows = [(rng.choice("xyz"), rng.randrange(8), rng.randrange(10), rng.choice([-1, 1])) for _ in range(200)]
    updates = pl.DataFrame(rows, schema=["k", "day", "revision", "diff"], orient="row")
    frontier = ((4, 8), (5, 3))
    actual = compaction.consolidated(updates.lazy(), ("day", "revision"), frontier)
    expected: Counter[Any] = Counter()
    for k, day, revision, diff in rows:
        joins = [lattice.join((day, revision), element) for element in frontier]
        expected[k, *(min(axis) for axis in zip(*joins, strict=True))] += diff
    assert {row[:-1]: row[-1] for row in actual.rows()} == {key: n for key, n in expected.items() if n}
    for at in [(4, 8), (5, 3), (9, 9)]:
        sums = [
            {k: sum(item.filter((pl.col("k") == k) & (pl.col("day") <= at[0]) & (pl.col("revision") <= at[1]))["diff"])
             for k in "xyz"} for item in (updates, actual)
        ]  # fmt: skip
        assert sums[0] == sums[1]


def test_T20_reads_before_since_name_both_frontiers(copied: Project) -> None:
    project = copied
    before = output_log(project, "counts")
    at_5, from_5 = before.accumulate(time_of(5)).sort("a", "n"), before.between(time_of(5), time_of(27)).sort("a", "n")
    compact.compact(project, since=time_of(5))
    after = output_log(project, "counts")
    assert after.accumulate(time_of(5)).sort("a", "n").equals(at_5)
    assert after.between(time_of(5), time_of(27)).sort("a", "n").equals(from_5)
    for text in ("4", "version=3"):
        with pytest.raises(UsageError, match=r"can no longer be read: since is version 5, upper is version 28"):
            after.readable.time(text, "--at")
    for since, words in (
        (28, "not yet complete: since is version 5, upper is version 28"),
        (4, "since is version 5 already"),
    ):
        with pytest.raises(UsageError) as raised:
            compact.compact(project, since=time_of(since))
        assert words in raised.value.message


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "settings", [{"full_refresh": True}, {"first": time_of(3)}, {"corrections": "rewrite"}], ids=str
)
def test_no_run_ends_before_the_history_that_is_kept(copied: Project, settings: dict[str, Any]) -> None:
    """Its outputs could be read at no version, and rows would be open at versions before those that are there."""
    compact.compact(copied, since=time_of(5))
    before = output_log(copied, "counts").accumulate(time_of(27)).sort("a", "n")
    if "corrections" in settings:
        text = copied.program_file.read_text()
        copied.program_file.write_text(text.replace("dd.count()", 'dd.sum("b")'))
    with pytest.raises(UsageError, match=r"--to-version 4: the history before version 5 was given up") as caught:
        replay.run(copied, engine="inline", last=time_of(4), **settings)
    assert caught.value.hint == "fold at least through version 5"
    assert output_log(copied, "counts").accumulate(time_of(27)).sort("a", "n").equals(before)
    replay.run(copied, engine="inline", last=time_of(5), **settings)
    assert output_log(copied, "counts").readable.tops == [time_of(5)]


def test_T21_closed_times_stay_closed(tmp_path: Path) -> None:
    words = frame("k", "cat:+1@(0,0) dog:+1@(1,1)")
    project = small(tmp_path, '{"out": words.distinct()}', words=words)
    replay.run(project, engine="inline", last=time_of((0, 0)))
    compact.compact(project)
    with pytest.raises(UsageError, match="one time dimension only"):
        compact.compact(project, since=time_of((0, 0)))
    upper = ledger_of(project).open_from("words")
    assert upper is not None
    assert not is_open((0, 0), upper)
    assert is_open((0, 1), upper) and is_open((1, 1), upper)


def test_T22_updates_that_cancel_hold_nothing_back(tmp_path: Path) -> None:
    """Two files whose updates cancel: after the compaction the arrangement has no row, and later runs are right."""
    words = frame("k", "cat:+1@0 cat:-1@1 cat:+1@3")
    project = small(tmp_path, '{"out": words.distinct()}', words=words)
    fold(project, range(3))
    compact.compact(project)
    assert all(state.rows == 0 for name, state in ledger_of(project).tables().items() if name.startswith("state/"))
    fold(project, range(3, 4))
    assert outputs_of(project) == log("cat:+1@0 cat:-1@1 cat:+1@3")


# -- others -----------------------------------------------------------------------------------------------------------


def actions_of(folder: Path, version: int) -> list[dict[str, Any]]:
    text = (folder / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_streams_pass_over_the_compaction_of_logs(copied: Project) -> None:
    """Its commit changes no data, as Delta defines it: every file in it says so."""
    project = with_retention(copied, days=7)
    before = ledger_of(project).tables()["outputs/counts"]
    compact.compact(project)
    after = ledger_of(project).tables()["outputs/counts"]
    assert (after.version, after.rows, after.files) == (before.version + 1, before.rows, 1)
    actions = actions_of(local(project.warehouse) / "outputs" / "counts", after.version)
    files = [action[kind] for action in actions for kind in ("add", "remove") if kind in action]
    assert len(files) == before.files + 1
    assert all(file["dataChange"] is False for file in files)
    earlier = DeltaTable(str(local(project.warehouse) / "outputs" / "counts"), version=before.version)
    assert all(Path(path).exists() for path in earlier.file_uris()), "foreign readers may still read the version before"


def updates_of(log: Any) -> Counter[Any]:
    return Counter({(*row, *time): diff for (row, time), diff in log.items()})


@pytest.mark.sample(1, of="compaction")
def test_a_change_feed_passes_over_compactions(copied: Project) -> None:
    """Also over those that advance times: it has every update once, at its own version."""
    keeping, drawn = with_retention(copied, days=7), counted(FOLDED + 2)
    expected = folding.by_reference(drawn.program, **drawn.frames)
    tailer = Tailer(local(copied.warehouse / "outputs" / "counts"))
    tailer.read()
    for since in (None, 9):
        compact.compact(keeping, since=time_of(since))
        tailer.read()
    fold(keeping, range(FOLDED, FOLDED + 2))
    compact.compact(keeping)
    tailer.read()
    seen = Counter({row[:-1]: row[-1] for row in tailer.log().select("a", "n", "version", "diff").rows()})
    assert seen == updates_of(expected["counts"])


@pytest.mark.long
@pytest.mark.spark
def test_a_spark_stream_passes_over_compactions(copied: Project, spark: Any, tmp_path: Path) -> None:
    """And Spark's OPTIMIZE and VACUUM of every table, state as well, change no result."""
    keeping, drawn = with_retention(copied, days=7), counted(FOLDED + 2)
    expected = folding.by_reference(drawn.program, **drawn.frames)

    def follow() -> None:
        stream = spark.readStream.format("delta").option("startingVersion", 0)
        rows = stream.load(str(copied.warehouse / "outputs" / "counts")).writeStream.format("parquet")
        rows = rows.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        rows.start(str(tmp_path / "seen")).awaitTermination()

    follow()
    compact.compact(keeping)
    compact.compact(keeping, since=time_of(9))
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for _, folder in Warehouse(copied.warehouse).tables():
        spark.sql(f"OPTIMIZE delta.`{folder}`")
        if folder.parent.name == "state":
            spark.sql(f"VACUUM delta.`{folder}` RETAIN 0 HOURS")
    fold(keeping, range(FOLDED, FOLDED + 2))
    compact.compact(keeping)
    follow()
    rows = pl.read_parquet(str(tmp_path / "seen" / "*.parquet")).select("a", "n", "version", "diff").rows()
    assert Counter({row[:-1]: row[-1] for row in rows}) == updates_of(expected["counts"])
    assert len(rows) == len({row[:-1] for row in rows}), "each update once"
    actual = logs_of(copied, load_plan(copied).outputs)
    compare(counted(FOLDED + 2), "Spark", advanced(expected, ((9,),)), advanced(actual, ((9,),)))


@pytest.mark.sample(1, of="compaction")
@pytest.mark.parametrize("compacts", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_users_optimize_and_vacuum_change_nothing(tmp_path: Path, compacts: bool) -> None:
    """delta-rs rewrites every table in whatever order it likes; runs go on from there, and compaction sorts state."""
    drawn = counted(30)
    project = with_retention(project_of(tmp_path / "project", drawn))
    fold(project, range(14))
    if compacts:
        compact.compact(project)
    fold(project, range(14, 20))
    for _, folder in Warehouse(project.warehouse).tables():
        table = DeltaTable(str(folder))
        table.optimize.z_order(["diff"])
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    fold(project, range(20, 25))
    if compacts:
        compact.compact(project)
        for name, folder in Warehouse(project.warehouse).tables():
            if name.startswith("state/"):
                paths = tables.values(DeltaTable(str(folder)).get_add_actions().column("path"))
                assert all(datafile.has_digests(Path(path)) for path in paths), name
    fold(project, range(25, 30))
    actual = logs_of(project, load_plan(project).outputs)
    compare(drawn, "optimized", folding.by_reference(drawn.program, **drawn.frames), actual)


# -- crashes ----------------------------------------------------------------------------------------------------------

SOME = ["after-file", "after-table:1", "after-table:4", "after-compact", "after-delete:7"]
REST = ["after-write", "after-table:2", "after-ledger-file", "after-delete:1", "after-trim"]
FOLDED = 28  # runs before the compaction

COMPACT = """
import sys
from dataclasses import replace
from pathlib import Path
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import RetentionSettings
from ddcore.io.project.times import time_of
from ddcore.jobs import compact
project = replace(find_project(Path(sys.argv[1]), {}), retention=RetentionSettings(False, 3, 0))
compact.compact(project, since=time_of(int(sys.argv[2])) if len(sys.argv) > 2 else None)
"""


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was compacted ten runs ago: what that replaced can be deleted now. Nobody writes to it."""
    project = with_retention(project_of(tmp_path_factory.mktemp("folded") / "project", counted(FOLDED + 2)))
    fold(project, range(FOLDED - 10))
    compact.compact(project)
    fold(project, range(FOLDED - 10, FOLDED))
    return project.root


@pytest.fixture
def copied(folded: Path, tmp_path: Path) -> Project:
    """A copy of it to write to."""
    shutil.copytree(folded, tmp_path / "project")
    return with_retention(find_project(tmp_path / "project", {}))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("point", "since"),
    nightly([*zip(SOME, cycle([None, 20])), *zip(SOME, cycle([20, None])), *product(REST, [None, 20])], len(SOME)),
)
def test_killed_compactions(copied: Project, point: str, since: int | None) -> None:
    """The run after it, and the compaction after that, find a warehouse in which nothing is missing or twice."""
    drawn = counted(FOLDED + 2)
    ended = subprocess.run(
        [sys.executable, "-c", COMPACT, str(copied.root), *([] if since is None else [str(since)])],
        env={**os.environ, "DDCORE_FAILPOINT": point},
        check=False,
    )
    assert ended.returncode == -9, "the place is reached"
    assert all(path.exists() for path in everything_named(copied))
    outputs = load_plan(copied).outputs
    expected = folding.by_reference(drawn.program, **drawn.frames)
    fold(copied, range(FOLDED, FOLDED + 1))
    until = {
        name: {key: diff for key, diff in updates.items() if key[1] <= (FOLDED,)} for name, updates in expected.items()
    }
    now = ledger_of(copied).since()
    compare(drawn, point, advanced(until, now), advanced(logs_of(copied, outputs), now))
    compact.compact(copied, since=time_of(since))
    fold(copied, range(FOLDED + 1, FOLDED + 2))
    now = ledger_of(copied).since()
    assert now == (() if since is None else ((since,),))
    compare(drawn, point, advanced(expected, now), advanced(logs_of(copied, outputs), now))
    operations = {entry["operation"] for entry in DeltaTable(str(copied.warehouse / "outputs" / "counts")).history()}
    assert "RESTORE" not in operations, "whoever tails the output would see its rows again"


def test_a_commit_of_a_killed_compaction_is_never_taken_back(copied: Project) -> None:
    """Nobody who tails an output sees its rows removed and added again."""
    project = copied
    folder = local(project.warehouse) / "outputs" / "counts"
    ledger = ledger_of(project)
    before = ledger.tables()["outputs/counts"]
    upper = ledger.upper()
    assert upper is not None
    merge = compaction.log_merge(
        folder, tables.live_files(folder, before), ("version",), upper, ((9,),), everything=True
    )
    assert merge is not None
    last = ledger.current_run()
    assert last is not None
    state = merge.commit(Writer(), last.run, before, last.run)
    fold(project, range(FOLDED, FOLDED + 2))
    assert ledger_of(project).since() == ((9,),)
    operations = [entry["operation"] for entry in DeltaTable(str(folder)).history()]
    assert "RESTORE" not in operations
    assert DeltaTable(str(folder)).version() > state.version


@pytest.mark.sample(1)
@pytest.mark.parametrize("since", [None, 20])
def test_what_a_given_up_run_published_is_left_for_the_next_run_to_cancel(copied: Project, since: int | None) -> None:
    """Whoever follows the output saw its updates, and a compaction is none that they could see."""
    folder = local(copied.warehouse) / "outputs" / "counts"
    log = ChangeLog(folder, load_plan(copied).outputs["counts"], writer=Writer())
    tailer, ledger = Tailer(folder), ledger_of(copied)
    last = ledger.current_run()
    assert last is not None
    killed = ledger.next_run()
    ledger.append(IntentRecord(killed, last.fingerprint, time_of(FOLDED), time_of(FOLDED), 1, "inline"))
    row = dict.fromkeys(log.schema) | {"version": FOLDED, "diff": 3}
    updates = pl.DataFrame([row], schema={name: kind.polars for name, kind in log.columns.items()})
    log.commit([log.write("killed", updates)], killed, base=ledger.tables()["outputs/counts"])
    assert give_up(ledger, "its program has changed", committed=True)
    tailer.read()
    compact.compact(copied, since=time_of(since))
    fold(copied, range(FOLDED, FOLDED + 1))
    tailer.read()
    rows = tailer.rows.group_by(*log.schema, "version").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    seen = Counter({row[:-1]: row[-1] for row in rows.select("a", "n", "version", "diff").rows()})
    expected = folding.by_reference(counted(FOLDED + 1).program, **counted(FOLDED + 1).frames)
    assert seen == updates_of(expected["counts"])
    files = ledger_of(copied).tables()["outputs/counts"].files
    compact.compact(copied, since=time_of(since))
    assert ledger_of(copied).tables()["outputs/counts"].files < files, "then it is compacted as any other"


def test_an_unfinished_run_forbids_compaction(tmp_path: Path) -> None:
    project = with_retention(project_of(tmp_path / "project", counted(5)))
    fold(project, range(3))
    ledger = ledger_of(project)
    last = ledger.current_run()
    assert last is not None
    ledger.append(IntentRecord(ledger.next_run(), last.fingerprint, time_of(3), time_of(4), 1, "inline"))
    with pytest.raises(UsageError, match="is not finished"):
        compact.compact(project)


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(copied: Project) -> None:
    project = copied
    before = {path: path.stat().st_mtime_ns for path in local(project.warehouse).rglob("*") if path.is_file()}
    report = compact.compact(project, dry_run=True)
    assert before == {path: path.stat().st_mtime_ns for path in local(project.warehouse).rglob("*") if path.is_file()}
    assert set(report.tables) >= {"outputs/counts", "outputs/pairs"}
    assert set(compact.compact(project).tables) == set(report.tables)


READ = """
import sys
from pathlib import Path
from ddcore.io.reading.folded import output_log
from ddcore.io.project.finding import find_project
from ddcore.io.project.times import time_of
project = find_project(Path(sys.argv[1]), {})
before = None
while not Path(sys.argv[2]).exists():
    rows = output_log(project, "counts").accumulate(time_of(27)).sort("a", "n")
    assert before is None or rows.equals(before), rows
    before = rows
print("read")
"""


@pytest.mark.sample(1, of="compaction")
def test_reading_while_compacting(copied: Project, tmp_path: Path) -> None:
    """A reader in another process sees the same rows before, during and after."""
    stop = tmp_path / "stop"
    keeping = with_retention(copied, days=1)
    with subprocess.Popen(
        [sys.executable, "-c", READ, str(copied.root), str(stop)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as reader:  # fmt: skip
        for since in (None, 3, 9, 20):
            compact.compact(keeping, since=time_of(since))
        stop.touch()
        out, err = reader.communicate(timeout=600)
    assert (out, reader.returncode) == ("read\n", 0), err


@pytest.mark.sample(1, of="compaction")
def test_history_is_cut_by_policy(tmp_path: Path) -> None:
    drawn = counted(48)
    project = with_retention(project_of(tmp_path / "project", drawn), auto=True, history=12)
    fold(project, range(48))
    ledger = ledger_of(project)
    ((since,),) = ledger.since()
    assert 20 <= since <= 35
    rows = ledger.tables()["outputs/counts"].rows
    everything = sum(len(updates) for name, updates in folding.by_reference(drawn.program, **drawn.frames).items()
                     if name == "counts")  # fmt: skip
    assert rows < everything
    expected = folding.by_reference(drawn.program, **drawn.frames)
    actual = logs_of(project, load_plan(project).outputs)
    compare(drawn, "history", advanced(expected, ledger.since()), advanced(actual, ledger.since()))


LIMITED = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import RetentionSettings
from ddcore.io.project.times import time_of
from ddcore.jobs import compact, replay
project = replace(find_project(Path(sys.argv[1]), {}), retention=RetentionSettings(auto=False))
for version in range(int(sys.argv[2])):
    replay.run(project, engine="inline", last=time_of(version))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
replay.run(project, engine="inline", last=time_of(int(sys.argv[2])))
compact.compact(project)
"""


@pytest.mark.sample(1, of="compaction")
@pytest.mark.parametrize("runs", [24, pytest.param(120, marks=pytest.mark.long)])
def test_open_files_are_bounded(runs: int, tmp_path: Path) -> None:
    """With 64 descriptors a run and a compaction go over more files than that."""
    drawn = counted(runs + 2)
    project = project_of(tmp_path / "project", drawn)
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(project.root), str(runs)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.mark.sample(2, of="compaction")
def test_a_compaction_does_not_take_a_killed_ingest_back(copied: Project) -> None:
    """Whoever follows the input has seen its commit: the compaction finishes the ingest first."""
    source, name = copied.root / "last.parquet", next(iter(copied.inputs))
    later = counted(FOLDED + 3).frames[name].filter(pl.col("version") >= FOLDED + 2)
    assert len(later)
    later.write_parquet(source)
    command = [str(Path(sys.executable).with_name("ddcore")), "ingest", name, str(source), "-q"]
    killed = subprocess.run(
        [*command, "--project", str(copied.root)], env={**os.environ, "DDCORE_FAILPOINT": "after-table"}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    table = Warehouse(copied.warehouse).input(name)
    before = Ledger.load(Warehouse(copied.warehouse)).next_ingest()
    compact.compact(copied)
    ledger = Ledger.load(Warehouse(copied.warehouse))
    assert ledger.next_ingest() == before + 1
    state = ledger.input_table(name)
    assert state is not None and DeltaTable(str(table)).version() == state.version


def test_what_one_large_ingest_wrote_is_not_merged() -> None:
    """Its files are full; those that are not half full, and many small ones beside them, are merged."""
    full, half = 1 << 21, 1 << 20

    def merged(rows: list[int]) -> list[int]:
        files = [
            table_files.LiveFile(f"{n}.parquet", 1, rows, {"version": 0}, {"version": 0}) for n, rows in enumerate(rows)
        ]
        merge = compaction.log_merge(Path("inputs", "edges"), files, ("version",), ((9,),), everything=False)
        return [] if merge is None else [file.rows for file in merge.files]

    assert merged([full] * 40) == merged([full] * 40 + [half] * 20 + [5] * 7) == []
    assert merged([full] * 3 + [half - 1] * 20) == [half - 1] * 20
    assert merged([full] * 40 + [5] * 16) == [5] * 16


def test_the_ranges_of_one_run_count_as_one_file_of_state() -> None:
    """Sixteen workers write as many files into each arrangement: all state is not merged after their first run."""
    digest = "0123456789abcdef"

    def merged(runs: list[list[int]]) -> compaction.Merge | None:
        files = [
            table_files.LiveFile(f"part-{worker}-{run:06d}-{digest}.parquet", 1, rows, {}, {})
            for run, sizes in enumerate(runs)
            for worker, rows in enumerate(sizes)
        ]
        return compaction.state_merge(Path("state", "a"), files, ("version",), ((9,),), everything=False)

    large = [5_000] * 16
    assert merged([large]) is merged([large] * 7) is None
    eight, sixteen = merged([large] * 8), merged([large] * 16)
    assert eight is not None and sixteen is not None
    assert (eight.is_due, sixteen.is_due, len(sixteen.files)) == (False, True, 256)
    alone = merged([[5] * 16])  # small files would be too many
    assert alone is not None and alone.is_due


def test_tables_are_merged_together_as_soon_as_one_has_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(number: int) -> compaction.Merge | None:
        files = [table_files.LiveFile(f"{n}.parquet", 1000, 10, {"version": n}, {"version": n}) for n in range(number)]
        return compaction.log_merge(Path("outputs", "towns"), files, ("version",), ((99,),), everything=False)

    few, half, nearly, many = (merge(n) for n in (7, 8, 15, 16))
    assert few is None and half is not None and nearly is not None and many is not None
    assert (half.is_due, nearly.is_due, many.is_due) == (False, False, True)
    job = object.__new__(compact._Compaction)
    for possible, chosen in (([half, nearly], []), ([half, many], [half, many])):
        monkeypatch.setattr(job, "_possible_merges", lambda possible=possible: [("table", item) for item in possible])
        assert [item for _, item in job._merges()] == chosen
