"""Programs that follow tables with Delta's change feed see each difference once, whatever happens to the commands.

Seeds are printed.
"""

from __future__ import annotations

import inspect
import os
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from places import local
from polars.testing import assert_frame_equal
from seeds import nightly
from tailing import KILLED, Readers, Tailer, command, head, in_order, write_all

import ddcore as dd
from ddcore.io.project.finding import find_project
from ddcore.io.project.project import Project
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest
from ddcore.jobs.running.commits import Commits

CYCLES = int(os.environ.get("DDCORE_KILLS", "2"))
VERSIONS, OUTPUTS = 16, ("reach", "degrees", "loops")
# Places that are reached once for each file or table are reached up to ten times in a run.
SEVERAL = ["after-write", "after-file", "after-table"]
ONCE = ["after-lock", "after-create", "after-intent", "after-ledger-file", "after-run", "after-ingest"]


def program(edges: dd.Collection) -> dict[str, dd.Collection]:
    direct = edges.distinct()

    def through(reach: dd.Collection) -> dd.Collection:
        further = direct.join(reach, on={"dst": "src"})
        return further.select("src", dst="dst_right").concat(direct).distinct()

    return {
        "reach": direct.iterate(through),
        "degrees": edges.group_by("src").agg(n=dd.count()),
        "loops": edges.where("src = dst"),
    }


def history(seed: int, versions: int = VERSIONS) -> pl.DataFrame:
    """Edges between seven nodes that come and go."""
    rng, present, updates = random.Random(seed), set[tuple[int, int]](), []
    for version in range(versions):
        for _ in range(rng.randint(1, 4)):
            edge = rng.randrange(7), rng.randrange(7)
            updates.append((*edge, version, -1 if edge in present else 1))
            present ^= {edge}
    frame = pl.DataFrame(updates, ["src", "dst", "version", "diff"], orient="row")
    return frame.group_by("src", "dst", "version").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)


def project_in(folder: Path) -> Project:
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(f"import ddcore as dd\n\n\n{inspect.getsource(program)}")
    (folder / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\nwarehouse = "warehouse"\n[run]\nengine = "inline"\n'
        '[inputs.edges.schema]\nsrc = "int64"\ndst = "int64"\n'
    )
    return find_project(folder, {})


def parts(project: Project, edges: pl.DataFrame, cuts: list[int], versions: int = VERSIONS) -> list[str]:
    """Sources with the versions between the cuts."""
    names = []
    for first, end in zip([0, *cuts], [*cuts, versions], strict=True):
        part = edges.filter(pl.col("version").is_between(first, end - 1))
        if len(part):
            names.append(str(project.root / f"{first:03d}.parquet"))
            part.write_parquet(names[-1])
    return names


def assert_equal_logs(actual: dict[str, pl.DataFrame], edges: pl.DataFrame) -> None:
    """Row for row, time and diff, the logs of one undisturbed fold."""
    expected = dd.replay(program, edges=edges)
    for name, log in actual.items():
        rows = edges if name == "edges" else expected[name]
        assert_frame_equal(log, in_order(rows), check_dtypes=False)


# -- killed runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cycle", nightly(range(CYCLES), 1))
def test_T23_tailers_see_each_difference_once_while_runs_are_killed(cycle: int, tmp_path: Path, seed: int) -> None:
    """Commands die at random places, also several times in a row; tailers read after each of them."""
    rng, edges = random.Random(seed), history(seed)
    project = project_in(tmp_path / "p")
    tailers = {name: Tailer(local(project.warehouse / "outputs" / name)) for name in OUTPUTS}
    tailers["edges"] = Tailer(local(project.warehouse / "inputs" / "edges"))
    kills = 0

    def insist(*words: str) -> None:
        """A command, again and again until nothing disturbs it."""
        nonlocal kills
        code = None
        while code != 0:
            point = disturbance(rng)
            code = command(*words, "--project", str(project.root), "-q", failpoint=point)
            print(*words[:1], point, code)
            assert code in (0, KILLED, *([1] if str(point).endswith("=full") else [])), (words, point)
            for tailer in tailers.values():
                tailer.read()
            kills += code != 0

    last = -1
    for source in parts(project, edges, sorted(rng.sample(range(1, VERSIONS), 3))):
        insist("ingest", "edges", source)
        least, last = last + 1, int(pl.read_parquet(source)["version"].to_numpy().max())
        if rng.random() < 0.5 and least < last:
            insist("run", "--to-version", str(rng.randint(least, last)))
        insist("run")
        if rng.random() < 0.3:
            maintain(project, rng)
    print(f"{kills} kills")
    assert_equal_logs({name: tailer.log() for name, tailer in tailers.items()}, edges)
    assert_equal_logs({name: head(tailer.folder) for name, tailer in tailers.items()}, edges)


def disturbance(rng: random.Random) -> str | None:
    """A place to be killed at, or to find the disk full from; or none."""
    several = rng.random() < 0.7
    point = f"{rng.choice(SEVERAL)}:{rng.randint(1, 10)}" if several else rng.choice(ONCE)
    return None if rng.random() < 0.2 else f"{point}={rng.choice(['kill', 'kill', 'full'])}"


def maintain(project: Project, rng: random.Random) -> None:
    """What users may do between runs."""
    table = DeltaTable(str(project.warehouse / "outputs" / rng.choice(OUTPUTS)))
    if rng.random() < 0.5:
        table.optimize.compact()
    table.alter.set_table_properties({"delta.logRetentionDuration": f"interval {rng.randint(40, 90)} days"})


# -- another engine finishes what one began ----------------------------------------------------------------------------

ENGINES = {"inline": ("inline", None), "one worker": ("spark", 1), "two workers": ("spark", 2)}


class Interrupted(BaseException):
    """Ends a run where a kill would."""


def interrupt_after(monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    """Let the process be interrupted after so many commits of outputs."""
    count, commit_output = 0, Commits._commit_output

    def commit(self: Commits, *arguments: Any) -> None:
        nonlocal count
        commit_output(self, *arguments)
        count += 1
        if count == commits:
            raise Interrupted

    monkeypatch.setattr(Commits, "_commit_output", commit)


@pytest.mark.parametrize(
    ("first", "second", "commits"),
    [
        ("inline", "inline", 2),
        *(pytest.param("inline", "inline", commits, marks=pytest.mark.long) for commits in (1, 3)),
        pytest.param("inline", "two workers", 1, marks=pytest.mark.spark),
        pytest.param("two workers", "one worker", 2, marks=[pytest.mark.spark, pytest.mark.long]),
        pytest.param("one worker", "inline", 3, marks=[pytest.mark.spark, pytest.mark.long]),
    ],
)
def test_T23_another_engine_keeps_what_was_committed(
    first: str, second: str, commits: int, tmp_path: Path, request: pytest.FixtureRequest, *, seed: int
) -> None:
    if (first, second) != ("inline", "inline"):
        request.getfixturevalue("spark")
    edges, project = history(seed), project_in(tmp_path / "p")
    tailers = {name: Tailer(local(project.warehouse / "outputs" / name)) for name in OUTPUTS}
    for source in parts(project, edges, [VERSIONS // 2]):
        ingest(project, "edges", [source], engine="inline")
        engine, parallelism = ENGINES[first]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
            interrupt_after(patch, commits)
            replay.run(project, engine=engine, parallelism=parallelism)
        for tailer in tailers.values():
            tailer.read()
        engine, parallelism = ENGINES[second]
        assert not replay.run(project, engine=engine, parallelism=parallelism).nothing_new
        for tailer in tailers.values():
            tailer.read()
    assert_equal_logs({name: tailer.log() for name, tailer in tailers.items()}, edges)


# -- reading while others write ----------------------------------------------------------------------------------------


@pytest.mark.sample(1, of="kills")
@pytest.mark.parametrize("versions", [8, pytest.param(120, marks=pytest.mark.long)])
def test_readers_see_whole_runs_only_while_a_writer_is_killed(versions: int, tmp_path: Path, seed: int) -> None:
    """Runs of one version each: the ledger's files are merged, and checkpoints are written, while two processes read.

    Every ``show`` and ``diff`` is right and none fails; a foreign reader's newest version of a table holds the log up
    to some run.
    """
    rng, edges, project = random.Random(seed), history(seed, versions), project_in(tmp_path / "p")
    sources = parts(project, edges, [*range(1, versions)], versions)
    assert write_all(project.root, "edges", sources[:1]) == 0
    logs, kills, code = dd.replay(program, edges=edges), 0, KILLED
    readers = Readers(project.root, logs, 2)
    while code == KILLED:
        point = f"{rng.choice(SEVERAL)}:{rng.randint(10, 60)}" if kills < versions / 5 else None
        code = write_all(project.root, "edges", sources, point)
        kills += code == KILLED
    reads = readers.stop()
    print(f"{kills} kills, {reads}")
    assert code == 0 and kills > 0
    assert {"status", "show", "diff", "log", "head"} <= reads.keys()
    assert_equal_logs({name: head(local(project.warehouse / "outputs" / name)) for name in OUTPUTS}, edges)


@pytest.mark.sample(1, of="kills")
def test_a_resumed_run_writes_the_same_bytes(tmp_path: Path, seed: int) -> None:
    """With the same engine and parallelism every file of state and outputs is the one of an undisturbed run."""
    edges, rng, projects = history(seed), random.Random(seed), []
    for folder, deaths in (("undisturbed", 0), ("killed", 3)):
        project = project_in(tmp_path / folder)
        projects.append(project)
        for source in parts(project, edges, [VERSIONS // 2]):
            assert command("ingest", "edges", source, "--project", str(project.root), "-q") == 0
            for _ in range(deaths):
                point = f"{rng.choice(SEVERAL)}:{rng.randint(1, 6)}"
                assert command("run", "--project", str(project.root), "-q", failpoint=point) in (0, KILLED)
            assert command("run", "--project", str(project.root), "-q") == 0
    files = [live_bytes(project) for project in projects]
    assert len(files[0]) > len(OUTPUTS)
    assert files[0] == files[1]


def live_bytes(project: Project) -> dict[str, bytes]:
    """The content of every live file of state and outputs."""
    folders = [*(local(project.warehouse) / "state").iterdir(), *(local(project.warehouse) / "outputs").iterdir()]
    paths = [folder / path for folder in folders for path in DeltaTable(str(folder)).to_pyarrow_dataset().files]
    return {str(path.relative_to(project.warehouse)): path.read_bytes() for path in paths}
