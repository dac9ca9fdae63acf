"""The package set: 1,494 versions of a real repository, against closures that scipy works out from scratch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from real_data import REPOSITORY, at, every_row_once, example, shared_data
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

import ddcore as dd

LAST = 1493
CHECKED = [*range(0, LAST, 25), LAST]
Rows = dict[str, set[Any]]


@pytest.fixture(scope="module")
def source() -> Path:
    return shared_data("package_sets", "dependencies.parquet")


@pytest.fixture(scope="module")
def dependencies(source: Path) -> pl.DataFrame:
    return pl.read_parquet(source)


@pytest.fixture(scope="module")
def logs(dependencies: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return dd.replay(example("packages"), dependencies=dependencies)


def from_scratch(dependencies: pl.DataFrame, version: int) -> Rows:
    """The three outputs at one version: who reaches whom by a path of at least one edge."""
    edges = at(dependencies, version)
    names = sorted({*edges["package"], *edges["dependency"]})
    number = {name: i for i, name in enumerate(names)}
    src = [number[name] for name in edges["package"]]
    dst = [number[name] for name in edges["dependency"]]
    direct = csr_matrix((np.ones(len(src), dtype=bool), (src, dst)), shape=(len(names), len(names)))
    reach = direct
    while (more := (reach + reach @ direct).astype(bool)).nnz != reach.nnz:
        reach = more
    pairs = np.argwhere(reach.toarray())
    needed_by = np.bincount(pairs[:, 1], minlength=len(names))
    return {
        "depends": {(names[a], names[b]) for a, b in pairs},
        "dependents": {(name, int(n)) for name, n in zip(names, needed_by, strict=True) if n},
        "cyclic": {(name,) for name in on_cycles(direct, names)},
    }


def on_cycles(direct: csr_matrix, names: list[str]) -> set[str]:
    """The members of strong components of two and more, and those with an edge to themselves."""
    _, component = connected_components(direct, connection="strong")
    sizes = np.bincount(component)
    loops = direct.diagonal()
    return {name for i, name in enumerate(names) if sizes[component[i]] > 1 or loops[i]}


def assert_equal_from_scratch(logs: dict[str, pl.DataFrame], dependencies: pl.DataFrame, versions: list[int]) -> None:
    for version in versions:
        for name, rows in from_scratch(dependencies, version).items():
            assert every_row_once(logs[name], version) == rows, f"{name} at version {version}"


def test_equals_scipy_at_every_25th_version_and_the_last(
    logs: dict[str, pl.DataFrame], dependencies: pl.DataFrame
) -> None:
    assert_equal_from_scratch(logs, dependencies, CHECKED)
    assert len(every_row_once(logs["depends"], LAST)) == 26_168


def test_log_is_consolidated_and_has_no_version_that_changes_nothing(logs: dict[str, pl.DataFrame]) -> None:
    for name, log in logs.items():
        keys = [column for column in log.columns if column != "diff"]
        assert not log["diff"].eq(0).any(), name
        assert not log.select(keys).is_duplicated().any(), name


def test_cycles_come_and_go() -> None:
    """The package set never had a cycle; this one has two, one inside the other's reach, and each opens again."""
    rows = [("a", "b", 0, 1), ("b", "c", 0, 1), ("c", "a", 1, 1), ("c", "d", 1, 1), ("d", "d", 2, 2)]
    rows += [("b", "c", 3, -1), ("d", "d", 4, -1), ("d", "d", 5, -1), ("b", "c", 6, 1)]
    frame = pl.DataFrame(rows, schema=["package", "dependency", "version", "diff"], orient="row")
    logs = dd.replay(example("packages"), dependencies=frame)
    assert_equal_from_scratch(logs, frame, list(range(7)))
    cyclic = [sorted(name for (name,) in every_row_once(logs["cyclic"], version)) for version in range(7)]
    assert ["".join(names) for names in cyclic] == ["", "abc", "abcd", "d", "d", "", "abc"]


# -- cut into runs -----------------------------------------------------------------------------------------------------

ONE_AT_A_TIME = [*range(100), LAST]
IN_TEN = [*range(149, LAST, 150), LAST]


def in_order(log: pl.DataFrame) -> pl.DataFrame:
    return log.select(sorted(log.columns)).sort(pl.all())


@pytest.mark.sample(1)
@pytest.mark.parametrize("ends", [IN_TEN, ONE_AT_A_TIME], ids=["in ten runs", "the first hundred one at a time"])
def test_same_log_however_the_history_is_cut(
    logs: dict[str, pl.DataFrame], dependencies: pl.DataFrame, ends: Sequence[int]
) -> None:
    schemas = {"dependencies": {"package": "string", "dependency": "string"}}
    session = dd.Session(example("packages"), schemas=schemas)
    parts = []
    for start, end in zip([-1, *ends], ends, strict=False):
        batch = dependencies.filter(pl.col("version").is_between(start + 1, end))
        parts.append(session.fold({"dependencies": batch}, upper=[(end + 1,)]))
    for name, log in logs.items():
        assert_frame_equal(in_order(pl.concat([part[name] for part in parts])), in_order(log))


# -- from the command line ---------------------------------------------------------------------------------------------


def ddcore(project: Path, *words: str) -> list[Any]:
    """Run a command in ``project``; gives the JSON objects it printed."""
    command = [str(Path(sys.executable).with_name("ddcore")), *words]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module", params=["inline", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """``examples/packages`` with the whole history ingested and folded, by either engine."""
    folder = tmp_path_factory.mktemp("packages") / "project"
    shutil.copytree(REPOSITORY / "examples" / "packages", folder, ignore=shutil.ignore_patterns("warehouse"))
    engine = ("--engine", str(request.param))
    ingested = ddcore(folder, "ingest", "dependencies", str(source), *engine)[-1]
    assert (ingested["rows"], ingested["versions"]) == (31_116, 937)
    ran = ddcore(folder, "run", *engine)[-1]
    assert (ran["first"], ran["last"], ran["nothing_new"]) == (0, LAST, False)
    return folder


@pytest.mark.sample(2, of="commands")
def test_tables_hold_the_same_logs(project: Path, logs: dict[str, pl.DataFrame]) -> None:
    """Read as any Delta reader would, not through ``dd``."""
    for name, log in logs.items():
        assert_frame_equal(in_order(pl.read_delta(str(project / "warehouse" / "outputs" / name))), in_order(log))


@pytest.mark.sample(2, of="commands")
def test_diff_of_two_versions_equals_scipy(project: Path, dependencies: pl.DataFrame) -> None:
    before, after = (from_scratch(dependencies, version) for version in (900, 1400))
    for name in before:
        _, counts, *changes = ddcore(project, "diff", name, "900", "1400", "--json")
        rows = {diff: {tuple(it["row"].values()) for it in changes if it["diff"] == diff} for diff in (1, -1)}
        assert rows == {1: after[name] - before[name], -1: before[name] - after[name]}, name
        assert (counts["plus"], counts["minus"]) == (len(rows[1]), len(rows[-1]))


@pytest.mark.sample(2, of="commands")
def test_show_equals_scipy(project: Path, dependencies: pl.DataFrame) -> None:
    for name, expected in from_scratch(dependencies, 1000).items():
        _, _, *rows = ddcore(project, "show", name, "--at", "1000", "--json")
        assert {tuple(it["row"].values()) for it in rows} == expected, name


def test_nothing_new_afterwards(project: Path) -> None:
    assert ddcore(project, "run")[-1]["nothing_new"] is True
