"""Programs that follow tables with Delta's change feed see each difference once, whatever happens to the commands.

Seeds are printed.
"""

from __future__ import annotations

import inspect
import os
import random
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal
from tailing import KILLED, Tailer, command, head, in_order

import ddcore as dd
from ddcore.io import tables
from ddcore.io.project import Project, find_project
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest

CYCLES = int(os.environ.get("DDCORE_KILLS", "3"))
VERSIONS, OUTPUTS = 16, ("reach", "degrees", "loops")
PLACES = [*(["after-file", "after-table"] * 3), "after-intent", "after-run", "after-ingest"]


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


def history(seed: int) -> pl.DataFrame:
    """Edges between seven nodes that come and go."""
    rng, present, updates = random.Random(seed), set[tuple[int, int]](), []
    for version in range(VERSIONS):
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


def parts(project: Project, edges: pl.DataFrame, cuts: list[int]) -> list[str]:
    """Sources with the versions between the cuts."""
    names = []
    for first, end in zip([0, *cuts], [*cuts, VERSIONS], strict=True):
        part = edges.filter(pl.col("version").is_between(first, end - 1))
        if len(part):
            names.append(str(project.root / f"{first:02d}.parquet"))
            part.write_parquet(names[-1])
    return names


def assert_equal_logs(actual: dict[str, pl.DataFrame], edges: pl.DataFrame, up_to: int = VERSIONS) -> None:
    """Row for row, time and diff, the logs of one undisturbed fold."""
    expected = dd.replay(program, edges=edges)
    for name, log in actual.items():
        rows = edges if name == "edges" else expected[name]
        assert_frame_equal(log, in_order(rows.filter(pl.col("version") <= up_to)), check_dtypes=False)


# -- killed runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cycle", range(CYCLES))
def test_T23_tailers_see_each_difference_once_while_runs_are_killed(cycle: int, tmp_path: Path) -> None:
    """Commands die at random places, also several times in a row; tailers read after each of them."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng, edges = random.Random(seed), history(seed)
    project = project_in(tmp_path / "p")
    tailers = {name: Tailer(project.warehouse / "outputs" / name) for name in OUTPUTS}
    kills = 0

    def insist(*words: str) -> None:
        """A command, again and again until it is not killed."""
        nonlocal kills
        while True:
            place = rng.choice(PLACES)
            if place in ("after-file", "after-table"):
                place = f"{place}:{rng.randint(1, 9)}"
            code = command(
                *words, "--project", str(project.root), "-q", failpoint=place if rng.random() < 0.8 else None
            )
            assert code in (0, KILLED), (words, place)
            for tailer in tailers.values():
                tailer.read()
            kills += code == KILLED
            if code == 0:
                return

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
    count = 0

    def failpoint(folder: Path, name: str) -> None:
        nonlocal count
        count += name == "after-table" and folder.parent.name == "outputs"
        if count >= commits:
            raise Interrupted

    monkeypatch.setattr(tables, "_failpoint", failpoint)


@pytest.mark.parametrize(
    ("first", "second", "commits"),
    [
        *(("inline", "inline", commits) for commits in (1, 2, 3)),
    ],
)
def test_T23_another_engine_keeps_what_was_committed(
    first: str, second: str, commits: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if (first, second) != ("inline", "inline"):
        request.getfixturevalue("spark")
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    edges, project = history(seed), project_in(tmp_path / "p")
    tailers = {name: Tailer(project.warehouse / "outputs" / name) for name in OUTPUTS}
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
