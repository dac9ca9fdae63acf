"""What a fold of few updates costs beside its data: calls of functions, which no other process changes."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

import ddcore as dd
from ddcore import algorithms
from ddcore.compiling import native

NODES, EDGES, FOLDS = 2_000, 8_000, 20


def search(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
    return {"hops": algorithms.bfs(edges, roots)}


def counts(work: Callable[[], object]) -> dict[str, int]:
    """How many calls it makes: all, and those of kernels."""
    profile = cProfile.Profile()
    profile.runcall(work)
    stats: list[Any] = profile.getstats()
    kernel = [stat.callcount for stat in stats if getattr(stat.code, "co_filename", "") == native.__file__]
    return {"all": sum(stat.callcount for stat in stats), "kernels": sum(kernel)}


def changes(rng: np.random.Generator, graph: np.ndarray, version: int) -> pl.DataFrame:
    """One edge away, one added."""
    return pl.DataFrame(
        {
            "src": [int(graph[version, 0]), int(rng.integers(NODES))],
            "dst": [int(graph[version, 1]), int(rng.integers(NODES))],
            "version": [version] * 2, "diff": [-1, 1],
        }
    )  # fmt: skip


def test_a_fold_of_two_changes_makes_few_calls() -> None:
    rng = np.random.default_rng(4)
    graph = rng.integers(0, NODES, (EDGES, 2))
    edges = pl.DataFrame({"src": graph[:, 0], "dst": graph[:, 1], "version": [0] * EDGES, "diff": [1] * EDGES})
    roots = pl.DataFrame({"node": [0], "version": [0], "diff": [1]})
    pair = {"src": "int64", "dst": "int64"}
    session = dd.Session(search, {"edges": pair, "roots": {"node": "int64"}}, threads=1)
    session.fold({"edges": edges, "roots": roots})
    frames = [changes(rng, graph, version) for version in range(1, FOLDS + 1)]
    made = counts(lambda: [session.fold({"edges": frame}) for frame in frames])
    assert made["all"] < 3_500 * FOLDS  # of some five steps each
    assert made["kernels"] < 50 * FOLDS


def closure(needs: dd.Collection) -> dict[str, dd.Collection]:
    direct = needs.distinct()

    def through(reached: dd.Collection) -> dd.Collection:
        further = direct.join(reached, on={"to": "from"})
        return further.select("from", to="to_right").concat(direct).distinct()

    return {"reached": direct.iterate(through)}


def test_a_fold_of_strings_makes_few_calls() -> None:
    rng = np.random.default_rng(4)
    layers = [[f"{layer}.{number}" for number in range(60)] for layer in range(6)]
    pairs = [(layers[at][a], layers[at + 1][b]) for at in range(5) for a, b in rng.integers(0, 60, (100, 2))]
    session = dd.Session(closure, {"needs": {"from": "string", "to": "string"}}, threads=1)

    def rows(version: int, diffs: dict[int, int]) -> pl.DataFrame:
        some = [pairs[number] for number in diffs]
        return pl.DataFrame(
            {"from": [a for a, _ in some], "to": [b for _, b in some], "version": version, "diff": [*diffs.values()]}
        )

    session.fold({"needs": rows(0, dict.fromkeys(range(480), 1))})
    frames = [rows(version, {version: -1, 479 + version: 1}) for version in range(1, FOLDS + 1)]
    made = counts(lambda: [session.fold({"needs": frame}) for frame in frames])
    assert made["all"] < 7_500 * FOLDS
    assert made["kernels"] < 120 * FOLDS  # where keys are hashed, too, rows of several batches are found by one
