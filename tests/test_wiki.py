"""Wikipedia's votes for administrators: components and triangles, while the edges come, go and come back."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from real_data import at, every_row_once, example, shared_data
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

import ddcore as dd

SEED = 20240611
BATCHES = 12
LAST = BATCHES - 1
KINDS = ("weak", "strong")


def in_batches(edges: pl.DataFrame, rng: random.Random) -> pl.DataFrame:
    """Every edge arrives in a random batch; a tenth of them leaves in a later one and is back in one later still."""
    rows = []
    for src, dst in edges.iter_rows():
        if rng.random() < 0.1:
            first, gone, back = sorted(rng.sample(range(BATCHES), 3))
            rows += [(src, dst, first, 1), (src, dst, gone, -1), (src, dst, back, 1)]
        else:
            rows.append((src, dst, rng.randrange(BATCHES), 1))
    return pl.DataFrame(rows, schema=["src", "dst", "version", "diff"], orient="row")


@pytest.fixture(scope="module")
def history() -> pl.DataFrame:
    print(f"seed {SEED}")
    return in_batches(pl.read_parquet(shared_data("wiki_vote", "edges.parquet")), random.Random(SEED))


@pytest.fixture(scope="module")
def logs(history: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return dd.replay(example("wiki"), edges=history)


def from_scratch(history: pl.DataFrame, version: int, kind: str) -> set[tuple[int, int]]:
    """(node, least node of its component) by scipy, over the nodes that have an edge at ``version``."""
    edges = at(history, version).select("src", "dst").to_numpy()
    nodes, ends = np.unique(edges, return_inverse=True)
    ends = ends.reshape(edges.shape)
    graph = csr_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(nodes), len(nodes)))
    count, component = connected_components(graph, connection=kind)
    least = np.full(count, nodes.max())
    np.minimum.at(least, component, nodes)
    return set(zip(nodes.tolist(), least[component].tolist(), strict=True))


def test_largest_components_at_the_end_are_the_published_ones(logs: dict[str, pl.DataFrame]) -> None:
    largest = {kind: max(nodes for _, nodes in every_row_once(logs[f"{kind}_sizes"], LAST)) for kind in KINDS}
    assert largest == {"weak": 7_066, "strong": 1_300}


@pytest.mark.parametrize("version", [0, 3, 7, LAST])
def test_triangles_equal_scipy(logs: dict[str, pl.DataFrame], history: pl.DataFrame, version: int) -> None:
    """SNAP publishes 608,389 for the whole graph, as it is at the end."""
    edges = at(history, version).filter(pl.col("src") != pl.col("dst")).select("src", "dst").to_numpy()
    size = int(edges.max()) + 1
    directed = csr_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(size, size))
    either = directed.maximum(directed.T)
    expected = int((either @ either).multiply(either).sum()) // 6
    assert every_row_once(logs["triangles"], version) == {(expected,)}
    assert version < LAST or expected == 608_389


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [0, 3, 7, LAST])
def test_components_equal_scipy(logs: dict[str, pl.DataFrame], history: pl.DataFrame, version: int, kind: str) -> None:
    assert every_row_once(logs[kind], version) == from_scratch(history, version, kind)


@pytest.mark.parametrize("seed", range(5))
def test_components_of_small_random_graphs(seed: int) -> None:
    """Sparse graphs of a few nodes, where components split and merge at almost every version."""
    rng = random.Random(seed)
    present: set[tuple[int, int]] = set()
    rows = []
    for version in range(20):
        for edge in {(rng.randrange(8), rng.randrange(8)) for _ in range(3)}:
            rows.append((*edge, version, -1 if edge in present else 1))
            present ^= {edge}
    frame = pl.DataFrame(rows, schema=["src", "dst", "version", "diff"], orient="row")
    logs = dd.replay(example("wiki"), edges=frame)
    for version in range(20):
        for kind in KINDS:
            expected = from_scratch(frame, version, kind) if len(at(frame, version)) else set()
            assert every_row_once(logs[kind], version) == expected, f"{kind} at version {version}"
