"""The package set: 1,494 versions of a real repository, against closures that scipy works out from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from real_data import at, every_row_once, example, shared_data
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
