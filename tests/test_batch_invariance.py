"""T24 on real data: however a history is cut into runs, and whoever folds it, the output logs are equal byte by byte.

The package set of 1,494 versions. Logs are consolidated, sorted and compared as Arrow IPC. Seeds are printed.
"""

from __future__ import annotations

import hashlib
import io
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from real_data import REPOSITORY, example, shared_data
from tailing import command
from warehouses import log_of

import ddcore as dd
from ddcore.base.tuning import Tuning
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_program
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.jobs import replay
from ddcore.jobs.ingest import ingest
from ddcore.planning.planner import build

LAST = 1493
SCHEMAS = {"dependencies": {"package": "string", "dependency": "string"}}
EACH_OF_THE_FIRST_SIXTY = [*range(60), LAST]
EACH = [*range(LAST + 1)]

Digests = dict[str, str]


def digests(logs: dict[str, pl.DataFrame]) -> Digests:
    """A digest of each log: consolidated, in one order of rows and columns, as Arrow IPC."""
    found = {}
    for name, log in logs.items():
        keys = sorted(set(log.columns) - {"diff"})
        summed = log.group_by(keys).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0).sort(keys).rechunk()
        file = io.BytesIO()
        summed.write_ipc(file, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
        found[name] = hashlib.sha256(file.getvalue()).hexdigest()
    return found


@pytest.fixture(scope="module")
def dependencies() -> pl.DataFrame:
    return pl.read_parquet(shared_data("package_sets", "dependencies.parquet"))


@pytest.fixture(scope="module")
def at_once(dependencies: pl.DataFrame) -> Digests:
    """Of the logs of one fold."""
    return digests(dd.replay(example("packages"), dependencies=dependencies))


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package example with its whole history ingested and nothing folded."""
    folder = tmp_path_factory.mktemp("packages") / "project"
    shutil.copytree(REPOSITORY / "examples" / "packages", folder)
    source = str(shared_data("package_sets", "dependencies.parquet"))
    ingest(find_project(folder, {}), "dependencies", [source], engine="inline")
    return folder


@pytest.fixture
def project(ingested: Path, tmp_path: Path) -> Project:
    return find_project(shutil.copytree(ingested, tmp_path / "project"), {})


def stored(project: Project) -> Digests:
    """Of the logs in a warehouse."""
    outputs = build(load_program(project), project.inputs, project.dims).outputs
    return digests({name: log_of(project, name, schema) for name, schema in outputs.items()})


def random_ends(runs: int, seed: int) -> list[int]:
    """The last versions of so many runs."""
    return [*sorted(random.Random(seed).sample(range(LAST), runs - 1)), LAST]


def folded(dependencies: pl.DataFrame, ends: Iterable[int]) -> dict[str, pl.DataFrame]:
    """The logs of one session that folds up to each of these versions in turn."""
    session, start, parts = dd.Session(example("packages"), schemas=SCHEMAS), 0, []
    for end in ends:
        batch = dependencies.filter(pl.col("version").is_between(start, end))
        parts.append(session.fold({"dependencies": batch}, upper=[(end + 1,)]))
        start = end + 1
    return {name: pl.concat([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.parametrize(
    "ends", [EACH_OF_THE_FIRST_SIXTY, pytest.param(EACH, marks=pytest.mark.long)], ids=["sixty and the rest", "all"]
)
def test_T24_version_by_version(ends: list[int], dependencies: pl.DataFrame, at_once: Digests) -> None:
    assert digests(folded(dependencies, ends)) == at_once


@pytest.mark.parametrize("runs", [4, pytest.param(40, marks=pytest.mark.long)])
def test_T24_random_cuts_and_a_new_process_for_each_run(
    runs: int, project: Project, at_once: Digests, seed: int
) -> None:
    for end in random_ends(runs, seed):
        words = ["run", "-q", "--engine", "inline", "--project", str(project.root), "--to-version", str(end)]
        assert command(*words) == 0
    assert stored(project) == at_once


def test_files_are_equal_for_any_number_of_threads(ingested: Path, tmp_path: Path) -> None:
    """The parts of a step are small here, so that there are many."""
    tuning = Tuning(part_rows=100, reduced_keys=1000, joined_keys=1000, packing_rows=1000, indexed_rows=1000)
    files = []
    for parallelism in (1, 3):
        project = find_project(shutil.copytree(ingested, tmp_path / str(parallelism)), {})
        project = replace(project, tuning=tuning)
        replay.run(project, last=time_of(400), engine="inline", parallelism=parallelism)
        replay.run(project, engine="inline", parallelism=parallelism)
        root = Path(str(project.warehouse))
        tables = (file for folder in ("state", "outputs") for file in (root / folder).rglob("*.parquet"))
        files.append(Counter(hashlib.sha256(file.read_bytes()).hexdigest() for file in tables))
    assert files[0] == files[1]
    assert files[0].total() > 10


SPARK = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize(
    ("parallelism", "cuts"),
    [
        pytest.param(1, "all at once", marks=SPARK),
        pytest.param(2, "all at once", marks=SPARK),
        pytest.param(1, "random cuts", marks=SPARK),
        pytest.param(2, "random cuts", marks=SPARK),
        pytest.param(1, "the first ten one by one", marks=SPARK),
        pytest.param(2, "the first ten one by one", marks=SPARK),
    ],
)
@pytest.mark.usefixtures("spark")
def test_T24_on_spark(parallelism: int, cuts: str, project: Project, at_once: Digests, seed: int) -> None:
    ways = {"all at once": [LAST], "random cuts": random_ends(5, seed), "the first ten one by one": [*range(10), LAST]}
    for end in ways[cuts]:
        report = replay.run(project, last=time_of(end), engine="spark", parallelism=parallelism)
        assert (report.engine, report.parallelism, report.last) == ("spark", parallelism, time_of(end))
    assert stored(project) == at_once


def test_a_row_more_or_at_another_version_shows(dependencies: pl.DataFrame) -> None:
    whole = digests({"log": dependencies})["log"]
    assert digests({"log": dependencies.sample(fraction=1.0, shuffle=True, seed=1)})["log"] == whole
    halves = pl.concat([dependencies.with_columns(pl.lit(n).alias("diff") * pl.col("diff")) for n in (2, -1)])
    assert digests({"log": halves})["log"] == whole, "consolidated"
    moved = dependencies.with_row_index().with_columns(version=pl.col("version") + (pl.col("index") == 7)).drop("index")
    assert digests({"log": moved})["log"] != whole
    assert digests({"log": dependencies[:-1]})["log"] != whole
