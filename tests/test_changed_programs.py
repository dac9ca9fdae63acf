"""Changed programs: what did not change is kept, the rest is rebuilt, and outputs go on with exactly the difference.

Random programs are changed in random ways between runs. At every version that was folded before the change an output
holds what the old program gives; from the next version on, what the new one gives. An output that is new, or has other
columns than before, holds at every version what the new program gives. Seeds are printed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
import sparkless
from deltalake import DeltaTable
from notation import dims_of
from places import local
from programs import Case, case
from seeds import nightly, seeds
from warehouses import log_of, project_of, take_in

from ddcore import reference
from ddcore.base.errors import DdError, UsageError
from ddcore.base.schema import Type
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_plan, load_program
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.compact import compact
from ddcore.jobs.ingest import ingest
from ddcore.jobs.undo import undo
from ddcore.planning.rebuilding import rebuilding

SEEDS = seeds(4, share=25)

VERSION = ("version",)
Contents = dict[Any, int]


def contents(log: pl.DataFrame, version: int) -> Contents:
    """The collection that an output's log adds up to at a version."""
    total: Counter[Any] = Counter()
    for (row, time), diff in reference.log_of(log, VERSION).items():
        if time[0] <= version:
            total[row] += diff
    return {row: count for row, count in total.items() if count}


def expected(project: Project, frames: Mapping[str, pl.DataFrame], version: int) -> dict[str, Contents]:
    """What the project's present program gives for the inputs at a version, by definition."""
    logs = reference.replay(load_program(project), VERSION, **frames)
    collections: dict[str, Contents] = {}
    for name, log in logs.items():
        total: Counter[Any] = Counter()
        for (row, time), diff in log.items():
            if time[0] <= version:
                total[row] += diff
        collections[name] = {row: count for row, count in total.items() if count}
    return collections


def changed(drawn: Case, rng: random.Random) -> str:
    """The source of a variant of a program: outputs are dropped, added, or computed in another way."""
    lines = ["", "", f"def program({', '.join(drawn.frames)}):", f"    found = original({', '.join(drawn.frames)})"]
    ways = [
        "found[name]", "found[name].distinct()", "found[name].concat(found[name])", "found[name].distinct().negate()",
        "found[name].concat(found[name].distinct())",
    ]  # fmt: skip
    lines += ["    names, result = list(found), {}"]
    lines += ["    for place, name in enumerate(names):"]
    lines += [f"        kept = {rng.randrange(1, 8)} >> (place % 3) & 1", f"        more = {rng.random() < 0.5}"]
    lines += ["        if kept or place == 0:", f"            result[name] = {rng.choice(ways)}"]
    lines += ["        if more:", f"            result[f'more_{{place}}'] = {rng.choice(ways[1:])}"]
    lines += ["    return result"]
    return drawn.source.replace("def program(", "def original(") + "\n".join(lines) + "\n"


def usable(seed: int) -> Case:
    """A case with versions as times, which need no instants, whose program has no error."""
    for number in range(100_000 + 100 * seed, 100_100 + 100 * seed):
        drawn = case(number, plain=True)
        if "dd.now(" in drawn.source:
            continue
        if dims_of(drawn.frames) == VERSION and any(len(frame) for frame in drawn.frames.values()):
            try:
                reference.replay(drawn.program, VERSION, **drawn.frames)
            except DdError:
                continue
            return drawn
    raise AssertionError(f"no usable case for seed {seed}")


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_outputs_go_on_with_the_difference(seed: int, tmp_path: Path) -> None:
    # Groups as small as these get trees of partial results.
    tuning = Tuning(large_group=2) if seed // 2 % 2 else DEFAULT
    drawn, rng = usable(seed), random.Random(seed)
    project = project_of(tmp_path / "project", drawn, tuning=tuning)
    versions = sorted({version for frame in drawn.frames.values() for version in frame["version"].to_list()})
    cut = rng.choice(versions)
    replay.run(project, last=time_of(cut), engine="inline")
    before = expected(project, drawn.frames, cut)
    if seed % 2:  # the state no longer has every update at its own time
        compact(project)
    (project.root / "program.py").write_text(changed(drawn, rng))
    print(f"seed {seed}, versions {versions}, changed after {cut}\n{(project.root / 'program.py').read_text()}")
    try:
        after = expected(project, drawn.frames, versions[-1] + 1)
    except DdError as error:
        with pytest.raises(type(error)):
            replay.run(project, engine="inline")
        return
    replay.run(project, engine="inline")
    if (run := Ledger.load(Warehouse(project.warehouse)).current_run()) is not None and run.corrections:
        replay.run(project, last=time_of(cut + 1), engine="inline")
    outputs = load_plan(project).outputs
    assert after.keys() == outputs.keys()
    for name, schema in outputs.items():
        log = log_of(project, name, schema)
        if name in before:
            assert contents(log, cut) == before[name], "published versions stay as they are"
        else:
            for version in (v for v in versions if v <= cut):
                assert contents(log, version) == expected(project, drawn.frames, version)[name], "new, and whole"
        for version in (v for v in (cut + 1, *versions) if v > cut):
            assert contents(log, version) == expected(project, drawn.frames, version)[name]


# --- what is kept -----------------------------------------------------------------------------------------------------

EDGES = [(0, 1, 0, 1), (1, 2, 0, 1), (2, 3, 1, 1), (0, 1, 2, -1), (0, 2, 2, 1), (3, 4, 3, 1)]
REACH = """
import ddcore as dd


def program(edges):
    roots = edges.select(node="src").where("node = 0").distinct()

    def body(reached):
        return reached.join(edges, on={"node": "src"}).select(node="dst").concat(roots).distinct()

    reached = roots.iterate(body)
    return {"reached": reached}
"""
COUNTED = REACH.replace(
    '    return {"reached": reached}',
    '    large = reached.where("node > 1")\n'
    '    return {"reached": reached, "many": reached.group_by().agg(n=dd.count()), "large": large}',
)


SCHEMA = {"node": Type("int64")}


@pytest.fixture
def graph(tmp_path: Path) -> Project:
    frame = pl.DataFrame(EDGES, schema=["src", "dst", "version", "diff"], orient="row")
    return project_of(tmp_path / "project", Case(0, REACH, lambda edges: {}, {"edges": frame}))


def collected(project: Project, name: str, version: int) -> Contents:
    return contents(log_of(project, name, load_plan(project).outputs[name]), version)


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["inline", "one task", "two tasks"])
def test_a_loop_that_did_not_change_is_kept(how: str, graph: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"engine": "inline"}
    if how != "inline":
        sparkless.install(monkeypatch)
        options = {"engine": "spark", "parallelism": 1 if how == "one task" else 2}
    replay.run(graph, last=time_of(2), **options)
    before = Ledger.load(Warehouse(graph.warehouse)).tables()
    (graph.root / "program.py").write_text(COUNTED)
    plan = load_plan(graph)
    run = Ledger.load(Warehouse(graph.warehouse)).current_run()
    assert run is not None
    part = rebuilding(plan, set(run.arrangements), {"many", "large"})
    loops = {block.index for block in plan.blocks if block.loops}
    assert [plan.blocks[index].op for index in part.blocks & loops] == ["distinct"], "the last step of the loop alone"
    assert not part.inputs, "no input is read again"
    report = replay.run(graph, **options)
    assert (report.run, report.last, report.corrections) == (3, time_of(3), 0)
    after = Ledger.load(Warehouse(graph.warehouse)).run(2)
    assert after is not None
    kept = {name for name in before if name.startswith("state/")}
    assert kept <= after.tables.keys() and all(after.tables[name] == before[name] for name in kept)
    assert collected(graph, "many", 2) == {(3,): 1}, "an output that is new has its rows at every version"
    assert collected(graph, "many", 0) == {(3,): 1} and collected(graph, "large", 1) == {(2,): 1, (3,): 1}
    assert collected(graph, "many", 3) == {(4,): 1}
    assert collected(graph, "large", 3) == {(2,): 1, (3,): 1, (4,): 1}


@pytest.mark.sample(8, of="what changed")
def test_an_output_that_goes_stays_as_it_was_and_goes_on_when_it_comes_back(graph: Project, dd: Any) -> None:
    (graph.root / "program.py").write_text(COUNTED)
    replay.run(graph, last=time_of(0), engine="inline")
    (graph.root / "program.py").write_text(REACH)
    replay.run(graph, last=time_of(2), engine="inline")
    state = Ledger.load(Warehouse(graph.warehouse)).table("outputs/many")
    assert state is not None and state.rows == 1, "nobody continued it"
    assert dd("show", "many", "--project", str(graph.root))[2][0] == "error: no output 'many'; there are: reached"
    assert "many" not in " ".join(dd("status", "--project", str(graph.root))[1]), "it is not folded through version 2"
    (graph.root / "program.py").write_text(COUNTED)
    replay.run(graph, engine="inline")
    assert collected(graph, "many", 2) == {(3,): 1}, "as of version 0"
    assert collected(graph, "many", 3) == {(4,): 1}
    assert collected(graph, "reached", 3) == {(0,): 1, (2,): 1, (3,): 1, (4,): 1}


COLUMNS = {
    "renamed": 'reached.select(n="node")',
    "added": 'reached.select("node", twice=dd.col("node") * 2)',
    "retyped": 'reached.select(node=dd.col("node").cast(pl.Float64))',
    "other": "reached.group_by().agg(n=dd.count())",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("compacted", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "compacted"])
@pytest.mark.parametrize("how", COLUMNS)
def test_other_columns_are_there_at_once_at_every_version(
    how: str, compacted: bool, graph: Project, dd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing new was ingested. So it is when the program goes back."""
    source = "import polars as pl\n" + REACH
    (graph.root / "program.py").write_text(source)
    for version in range(4):
        replay.run(graph, last=time_of(version), engine="inline")
    frame = pl.DataFrame(EDGES, schema=["src", "dst", "version", "diff"], orient="row")
    location = ("--project", str(graph.root))
    for text in (source.replace('"reached": reached', f'"reached": {COLUMNS[how]}'), source):
        if compacted:
            compact(graph)
        (graph.root / "program.py").write_text(text)
        code, _, told = dd("run", "--dry-run", *location)
        line = (
            "reached has other columns: its log is written anew, at every version; its table keeps the old one in "
            "earlier versions"
        )
        assert code == 0 and told[1] == line and told[-1] == "would fold no new version; nothing was written"
        assert any(item.startswith("reached  other columns ") for item in told), told
        code, out, told = dd("run", "--json", *location)
        assert code == 0 and line in told and "wait" not in "".join(told)
        said = json.loads(out[-1])
        assert (said["publishes"], said["changed_outputs"]) == ("append", {"reached": "columns"})
        for version in range(4):
            wanted = expected(graph, {"edges": frame}, version)["reached"]
            assert wanted and collected(graph, "reached", version) == wanted
            assert dd("verify", "--at", str(version), *location)[0] == 0
        assert replay.run(graph, engine="inline").nothing_new
    take_in(graph, "edges", pl.DataFrame({"src": [4], "dst": [5], "version": [4], "diff": [1]}))
    replay.run(graph, engine="inline")
    assert collected(graph, "reached", 4) == {(0,): 1, (2,): 1, (3,): 1, (4,): 1, (5,): 1}


def test_a_log_of_before_is_in_earlier_versions_of_its_table(graph: Project) -> None:
    replay.run(graph, engine="inline")
    before = DeltaTable(str(graph.warehouse / "outputs" / "reached"))
    rows, version = before.to_pyarrow_table().num_rows, before.version()
    (graph.root / "program.py").write_text(REACH.replace('"reached": reached', '"reached": reached.select(n="node")'))
    replay.run(graph, engine="inline")
    now = DeltaTable(str(graph.warehouse / "outputs" / "reached"))
    assert now.to_pyarrow_table().column_names == ["n", "version", "diff"] and now.to_pyarrow_table().num_rows == rows
    assert now.version() == version + 1, "in one commit: no reader meets an empty table in between"
    now.load_as_version(version)
    assert now.to_pyarrow_table().column_names == ["node", "version", "diff"]


PLACES = ["after-create", "after-file", "after-table", "after-run"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("point", "back"),
    nightly([*zip(PLACES, cycle([False, True])), *zip(PLACES, cycle([True, False]))], len(PLACES)),
)
def test_a_change_of_columns_that_was_killed(point: str, back: bool, graph: Project, dd: Any) -> None:
    """The same command finishes it, or the old program goes on."""
    replay.run(graph, last=time_of(2), engine="inline")
    other = REACH.replace('"reached": reached', '"reached": reached.select(n="node"), "all": edges')
    (graph.root / "program.py").write_text(other)
    command = [sys.executable, "-m", "ddcore.cli.main", "run", "--engine", "inline", "--to-version", "2", "--project"]
    done = subprocess.run(
        [*command, str(graph.root)], env={**os.environ, "DDCORE_FAILPOINT": point}, capture_output=True, check=False
    )
    assert done.returncode == -9, done.stderr
    left = DeltaTable(str(graph.warehouse / "outputs" / "reached")).to_pyarrow_table()
    assert left.num_rows and {"node", "n"} & {*left.column_names}, "for readers that do not ask the ledger"
    if back:
        (graph.root / "program.py").write_text(REACH)
    replay.run(graph, engine="inline")
    frame = pl.DataFrame(EDGES, schema=["src", "dst", "version", "diff"], orient="row")
    for version in range(4):
        for name, wanted in expected(graph, {"edges": frame}, version).items():
            assert collected(graph, name, version) == wanted
    assert dd("doctor", "--deep", "--project", str(graph.root))[0] == 0


@pytest.mark.sample(8, of="what changed")
def test_state_that_was_compacted_serves_an_output_that_is_new(graph: Project) -> None:
    """Its loop is iterated again, for this run only; what is stored stays, also the trees of large groups."""
    for version in range(3):
        replay.run(graph, last=time_of(version), engine="inline")
    compact(graph)
    before = Ledger.load(Warehouse(graph.warehouse)).tables()
    (graph.root / "program.py").write_text(COUNTED)
    report = replay.run(graph, last=time_of(2), engine="inline")
    assert report.notes[0].startswith("the program has changed: kept 6 of 8 arrangements, built 2; filled 3 again")
    after = Ledger.load(Warehouse(graph.warehouse)).tables()
    assert all(after[name] == before[name] for name in before)
    assert [collected(graph, "many", version) for version in range(3)] == [{(3,): 1}, {(4,): 1}, {(3,): 1}]
    replay.run(graph, engine="inline")
    assert collected(graph, "large", 3) == {(2,): 1, (3,): 1, (4,): 1}


def test_dry_run_tells_what_becomes_of_each_output(graph: Project, dd: Any) -> None:
    (graph.root / "program.py").write_text(REACH.replace('"reached": reached', '"reached": reached, "old": edges'))
    replay.run(graph, last=time_of(2), engine="inline")
    (graph.root / "program.py").write_text(
        REACH.replace('"reached": reached', '"reached": reached.where("node > 1"), "more": edges')
    )
    tables = {file for file in local(graph.warehouse).rglob("*") if file.is_file()}
    code, out, err = dd("run", "--dry-run", "--json", "--project", str(graph.root))
    assert code == 0 and tables == {file for file in local(graph.warehouse).rglob("*") if file.is_file()}
    assert err == [
        "the program has changed: kept 6 of 6 arrangements, built 0",
        "reached is computed in another way, and any difference comes at version 3",
        "more is new, with all rows at every version",
        "old is no output any more, and its table stays as it is",
        "",
        "output   change                   columns",
        "more     new",
        "old      dropped",
        "reached  computed in another way",
        "would fold 1 version, 3..3, in=+1/-0; nothing was written",
    ]
    said = json.loads(out[-1])
    assert said["changed_outputs"] == {"reached": "difference", "more": "new", "old": "left"}
    assert (said["publishes"], said["last"], said["dry_run"]) == ("append", 3, True)
    err = dd("run", "--dry-run", "--corrections", "rewrite", "--project", str(graph.root))[2]
    assert err[0] == (
        "the program has changed: would fold again from nothing, through version 3: outputs are rewritten"
    )


@pytest.mark.sample(8, of="what changed")
@pytest.mark.parametrize("corrections", [None, "rewrite"])
def test_a_changed_program_and_a_late_row_in_one_run(corrections: str | None, graph: Project, dd: Any) -> None:
    """The rule of a changed program holds: what was published stays, unless the run is told to rewrite it."""
    replay.run(graph, last=time_of(2), engine="inline")
    replay.run(graph, engine="inline")
    before = [collected(graph, "reached", version) for version in range(4)]
    take_in(graph, "edges", pl.DataFrame({"src": [1], "dst": [8], "version": [1], "diff": [1]}))
    (graph.root / "program.py").write_text(REACH.replace('"reached": reached', '"reached": reached.where("node > 1")'))
    said = "the program has changed: {} again from nothing, through version 3: {}"
    ending = (
        "outputs are rewritten" if corrections else "what was published stays, and any difference comes at version 4"
    )
    words = ["run", "--project", str(graph.root), *(["--corrections", corrections] if corrections else [])]
    assert dd(*words, "--dry-run")[2][0] == said.format("would fold", ending)
    code, out, err = dd(*words, "--json")
    assert (code, err[0]) == (0, said.format("folded", ending))
    assert json.loads(out[-1])["publishes"] == (corrections or "append")
    after = [collected(graph, "reached", version) for version in range(4)]
    assert (after == before) is (corrections is None)
    if corrections is None:
        replay.run(graph, last=time_of(4), engine="inline")
    frame = pl.DataFrame([*EDGES, (1, 8, 1, 1)], schema=["src", "dst", "version", "diff"], orient="row")
    assert collected(graph, "reached", 4) == expected(graph, {"edges": frame}, 4)["reached"]


def test_corrections_wait_for_the_next_version(graph: Project) -> None:
    """Nothing new was ingested: the difference is computed, and published with the next version, or when asked for."""
    replay.run(graph, last=time_of(2), engine="inline")
    replay.run(graph, engine="inline")
    (graph.root / "program.py").write_text(REACH.replace('"reached": reached', '"reached": reached.where("node > 2")'))
    report = replay.run(graph, engine="inline")
    assert (report.last, report.corrections, report.nothing_new) == (time_of(3), 2, False)
    again = replay.run(graph, engine="inline")
    assert again.nothing_new
    assert collected(graph, "reached", 4) == {(0,): 1, (2,): 1, (3,): 1, (4,): 1}
    with pytest.raises(UsageError, match="version 5 was not ingested: the last one is 4"):
        replay.run(graph, last=time_of(5), engine="inline")
    report = replay.run(graph, last=time_of(4), engine="inline")
    assert (report.last, report.corrections) == (time_of(4), 0)
    assert collected(graph, "reached", 3) == {(0,): 1, (2,): 1, (3,): 1, (4,): 1}
    assert collected(graph, "reached", 4) == {(3,): 1, (4,): 1}
    assert replay.run(graph, last=time_of(4), engine="inline").nothing_new


ENDS = "def program(edges):\n    return {'ends': edges.select(node='dst')}\n"


def log_rows(project: Project, name: str) -> list[tuple[Any, ...]]:
    """The rows of a table of outputs as any Delta reader has them, sorted."""
    columns = DeltaTable(str(project.warehouse / "outputs" / name)).to_pyarrow_table().to_pydict()
    return sorted(zip(*columns.values(), strict=True))


@pytest.mark.sample(8, of="what changed")
def test_a_correction_and_new_rows_of_one_version_are_added_up(tmp_path: Path, dd: Any) -> None:
    """Each row is once in the version that publishes both, and not at all where they cancel."""
    frame = pl.DataFrame(EDGES, schema=["src", "dst", "version", "diff"], orient="row")
    project = project_of(tmp_path / "project", Case(0, ENDS, lambda edges: {}, {"edges": frame}))
    for version in range(4):
        replay.run(project, last=time_of(version), engine="inline")
    take_in(project, "edges", pl.DataFrame({"src": [7, 8], "dst": [7, 8], "version": 1, "diff": 1}))
    assert replay.run(project, corrections="append", engine="inline").corrections == 2
    rows = [(7, 7, 4, -1), (8, 8, 4, 2), (9, 9, 4, 1), (9, 9, 5, -1)]
    take_in(project, "edges", pl.DataFrame(rows, schema=["src", "dst", "version", "diff"], orient="row"))
    before = log_rows(project, "ends")
    code, out, _ = dd("run", "--json", "--project", str(project.root))
    said = [json.loads(line) for line in out]
    assert (code, said[0]["version"], said[0]["outputs"]) == (0, 4, {"ends": {"plus": 4, "minus": 0}})
    assert said[1]["outputs"] == {"ends": {"plus": 0, "minus": 1}}
    added = [row for row in log_rows(project, "ends") if row not in before]
    assert added == [(8, 4, 3), (9, 4, 1), (9, 5, -1)], "exactly the difference"
    assert collected(project, "ends", 4) == {(2,): 2, (3,): 1, (4,): 1, (8,): 3, (9,): 1}
    assert dd("doctor", "--deep", "--project", str(project.root))[0] == 0


# --- folding again ----------------------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize("corrections", ["rewrite", "append"])
def test_folding_again_gives_the_same(start: int, corrections: str, graph: Project) -> None:
    for version in range(4):
        replay.run(graph, last=time_of(version), engine="inline")
    log = log_of(graph, "reached", SCHEMA).sort(pl.all())
    report = replay.run(graph, first=time_of(start), corrections=corrections, engine="inline")
    assert (report.run, report.first, report.last, report.corrections) == (5, time_of(start), time_of(3), 0)
    run = Ledger.load(Warehouse(graph.warehouse)).current_run()
    assert run is not None and run.base == start, "from the run before that version"
    assert log_of(graph, "reached", SCHEMA).sort(pl.all()).equals(log)
    assert replay.run(graph, engine="inline").nothing_new


@pytest.mark.sample(8, of="what changed")
def test_without_a_kept_point_folding_starts_from_nothing(graph: Project) -> None:
    for version in range(4):
        replay.run(graph, last=time_of(version), engine="inline")
    ledger = Ledger.load(Warehouse(graph.warehouse))
    second = ledger.run(2)
    assert second is not None
    gone = {*local(graph.warehouse).glob("state/*/part-*-000002-*.parquet")}
    assert gone
    for file in gone:
        file.unlink()
    report = replay.run(graph, first=time_of(2), engine="inline")
    run = Ledger.load(Warehouse(graph.warehouse)).current_run()
    assert run is not None and (report.first, run.base) == (time_of(1), 1), "the files of the second run are lost"
    assert collected(graph, "reached", 3) == {(0,): 1, (2,): 1, (3,): 1, (4,): 1}


@pytest.mark.sample(8, of="what changed")
def test_no_run_is_a_kept_point_from_before_another_program(tmp_path: Path) -> None:
    """While a program without the second input runs, that input takes rows at versions that were folded."""
    both = "def program(edges, marks):\n    return {'both': edges.join(marks, on={'src': 'n'}).select('src', 'dst')}\n"
    one = "def program(edges):\n    return {'both': edges.select('src', 'dst').distinct()}\n"
    edges = pl.DataFrame(EDGES, schema=["src", "dst", "version", "diff"], orient="row")
    marks = pl.DataFrame({"n": [0], "version": [1], "diff": [1]})
    project = project_of(tmp_path / "project", Case(0, both, lambda **_: {}, {"edges": edges, "marks": marks}))
    replay.run(project, last=time_of(2), engine="inline")
    settings = (project.root / "dd.toml").read_text()
    (project.root / "dd.toml").write_text(settings.partition("[inputs.marks")[0])
    (project.root / "program.py").write_text(one)
    replay.run(find_project(project.root, {}), engine="inline")
    take_in(project, "marks", pl.DataFrame({"n": [3], "version": [2], "diff": [1]}))
    (project.root / "dd.toml").write_text(settings)
    (project.root / "program.py").write_text(both)
    replay.run(project, engine="inline")
    replay.run(project, first=time_of(3), engine="inline")
    assert collected(project, "both", 3) == {(0, 2): 1, (3, 4): 1}


@pytest.mark.sample(8, of="what changed")
def test_folding_again_up_to_an_earlier_version(graph: Project) -> None:
    for version in range(4):
        replay.run(graph, last=time_of(version), engine="inline")
    report = replay.run(graph, first=time_of(1), last=time_of(2), engine="inline")
    assert (report.first, report.last) == (time_of(1), time_of(2))
    assert replay.run(graph, engine="inline").first == time_of(3), "it is open again"
    assert collected(graph, "reached", 3) == {(0,): 1, (2,): 1, (3,): 1, (4,): 1}


@pytest.mark.sample(8, of="what changed")
@pytest.mark.parametrize("corrections", [None, "append"])
def test_a_full_refresh_keeps_complete_what_is_folded(corrections: str | None, tmp_path: Path) -> None:
    """Also where no row is left: then the outputs are empty, and no version opens again."""
    frame = pl.DataFrame(EDGES, schema=["src", "dst", "version", "diff"], orient="row")
    graph = project_of(tmp_path / "project", Case(0, REACH, lambda _: {}, {"edges": frame}), ingested=False)
    frame.write_parquet(tmp_path / "edges.parquet")
    ingest(graph, "edges", [str(tmp_path / "edges.parquet")], engine="inline")
    replay.run(graph, engine="inline")
    undo(graph, 1, restate=True)
    report = replay.run(graph, full_refresh=True, corrections=corrections, engine="inline")
    assert (report.nothing_new, report.first, report.last) == (False, time_of(0), time_of(3))
    ledger = Ledger.load(Warehouse(graph.warehouse))
    assert (ledger.restated(), ledger.upper()) == ((), ((4,),))
    assert report.corrections == (4 if corrections else 0)
    if corrections:
        replay.run(graph, last=time_of(4), engine="inline")
    assert collected(graph, "reached", 4) == {}


@pytest.mark.sample(8, of="what changed")
def test_a_version_to_which_corrections_went_stays_complete(graph: Project, dd: Any) -> None:
    replay.run(graph, last=time_of(3), engine="inline")
    (graph.root / "program.py").write_text(REACH.replace('"reached": reached', '"reached": reached.where("node > 2")'))
    words = ["run", "--to-version", "4", "--engine", "inline", "--project", str(graph.root)]
    assert replay.run(graph, engine="inline").corrections == 2
    assert [dd(*words)[0] for _ in range(2)] == [0, 0], "the second has nothing to do"
    assert replay.run(graph, full_refresh=True, engine="inline").last == time_of(4)


@pytest.mark.sample(8, of="what changed")
def test_what_changed_after_the_last_version_to_fold_waits(graph: Project) -> None:
    for version in range(4):
        replay.run(graph, last=time_of(version), engine="inline")
    take_in(graph, "edges", pl.DataFrame({"src": [2], "dst": [8], "version": [3], "diff": [1]}))
    assert replay.run(graph, last=time_of(1), engine="inline").nothing_new
    ledger = Ledger.load(Warehouse(graph.warehouse))
    assert (ledger.upper(), ledger.restated()) == (((4,),), ((3,),))
    with pytest.raises(UsageError, match="3 is not at or before --to-version 1"):
        replay.run(graph, first=time_of(3), last=time_of(1), engine="inline")
    assert replay.run(graph, engine="inline").first == time_of(3)
    assert collected(graph, "reached", 2) == {(0,): 1, (2,): 1, (3,): 1}
    assert collected(graph, "reached", 3) == {(0,): 1, (2,): 1, (3,): 1, (4,): 1, (8,): 1}


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_the_commands_print(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("changes.md", tmp_path, dd, monkeypatch, steps=17)
