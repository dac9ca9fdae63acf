"""The validation graphs of LDBC Graphalytics: all six algorithms equal the published files, directed and undirected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from real_data import every_row_once, example, shared_data

import ddcore as dd
from ddcore import algorithms

UNREACHED = 9_223_372_036_854_775_807
EPSILON = 1e-4  # Graphalytics' own, relative
SURFERS = 2**40
Edge = tuple[int, int, Decimal]


def graph(kind: str, algorithm: str) -> tuple[list[int], list[Edge], dict[int, float]]:
    """Vertices, directed edges (both ways where the graph is undirected) and the expected value of each vertex."""
    folder, expected = {
        "directed": (algorithm, "dir-output"),
        "undirected": (algorithm, "undir-output"),
        "example-directed": ("example", f"example-directed-{algorithm.upper()}"),
        "example-undirected": ("example", f"example-undirected-{algorithm.upper()}"),
    }[kind]
    name = kind if folder == "example" else expected.replace("output", "input")
    home = shared_data("graphalytics", folder)
    if (home / f"{name}.v").exists():
        vertices, edges = vertex_and_edge_files(home, name)
        if "undir" in name:
            edges += [(dst, src, weight) for src, dst, weight in edges]
    else:
        vertices, edges = adjacency_lists(home / name)
    values = dict(line.split() for line in (home / expected).read_text().splitlines() if line.strip())
    return vertices, edges, {int(vertex): number(value) for vertex, value in values.items()}


def number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)


def adjacency_lists(file: Path) -> tuple[list[int], list[Edge]]:
    lists = [[int(word) for word in line.split()] for line in file.read_text().splitlines() if line.strip()]
    edges = [(line[0], dst, Decimal(1)) for line in lists for dst in line[1:]]
    return sorted({vertex for line in lists for vertex in line}), edges


def vertex_and_edge_files(folder: Path, name: str) -> tuple[list[int], list[Edge]]:
    lines = [line.split() for line in (folder / f"{name}.e").read_text().splitlines() if line.strip()]
    vertices = [int(word) for word in (folder / f"{name}.v").read_text().split()]
    return vertices, [(int(src), int(dst), Decimal(weight)) for src, dst, weight in lines]


def at_version_0(rows: Sequence[tuple[Any, ...]], *columns: str) -> pl.DataFrame:
    schema = {name: pl.Decimal(18, 6) if name == "weight" else pl.Int64() for name in columns}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(version=0, diff=1)


def result(
    algorithm: Callable[..., Any], vertices: Sequence[int], edges: Sequence[Edge], roots: Sequence[int]
) -> set[Any]:
    """The rows of an algorithm of (edges, vertices, roots)."""
    logs = dd.replay(
        lambda edges, vertices, roots: {"out": algorithm(edges, vertices, roots)},
        edges=at_version_0(edges, "src", "dst", "weight"),
        vertices=at_version_0([(vertex,) for vertex in vertices], "node"),
        roots=at_version_0([(root,) for root in roots], "node"),
    )
    return every_row_once(logs["out"], 0)


every_graph = pytest.mark.parametrize("kind", ["directed", "undirected", "example-directed", "example-undirected"])


@every_graph
def test_breadth_first_search(kind: str) -> None:
    vertices, edges, expected = graph(kind, "bfs")
    roots = [vertex for vertex, hops in expected.items() if hops == 0]
    hops = dict(result(lambda e, v, r: example("graphs", "bfs")(e, r)["hops"], vertices, edges, roots))
    assert {vertex: hops.get(vertex, UNREACHED) for vertex in vertices} == expected


@every_graph
def test_weak_components(kind: str) -> None:
    vertices, edges, expected = graph(kind, "wcc")
    rows = result(lambda e, v, r: example("graphs", "wcc")(e, v)["components"], vertices, edges, [])
    assert dict(rows) == expected


@every_graph
def test_shortest_paths(kind: str) -> None:
    vertices, edges, expected = graph(kind, "sssp")
    roots = [vertex for vertex, distance in expected.items() if distance == 0]
    exact = dict(result(lambda e, v, r: algorithms.shortest_paths(e, r), vertices, edges, roots))
    assert {vertex: float(exact.get(vertex, math.inf)) for vertex in vertices} == pytest.approx(expected, rel=1e-15)
    floats = dict(
        result(
            lambda e, v, r: algorithms.shortest_paths(e.with_columns(dd.col("weight").cast(pl.Float64)), r),
            vertices,
            edges,
            roots,
        )
    )
    assert {vertex: floats.get(vertex, math.inf) for vertex in vertices} == pytest.approx(expected, rel=EPSILON)


@every_graph
def test_communities_by_label_propagation(kind: str) -> None:
    vertices, edges, expected = graph(kind, "cdlp")
    rounds = 2 if "example" in kind else 5
    rows = result(lambda e, v, r: algorithms.label_propagation(e, rounds, nodes=v), vertices, edges, [])
    assert dict(rows) == expected


@every_graph
def test_local_clustering_coefficients(kind: str) -> None:
    vertices, edges, expected = graph(kind, "lcc")
    rows = result(lambda e, v, r: algorithms.clustering(e, nodes=v), vertices, edges, [])
    coefficients = {vertex: links / pairs if pairs else 0.0 for vertex, links, pairs in rows}
    assert {vertex: coefficients[vertex] for vertex in expected} == pytest.approx(expected, rel=1e-11)
    assert set(coefficients) == set(vertices)


@every_graph
def test_page_rank(kind: str) -> None:
    """The examples are those of 2 rounds; the others those of 26, within epsilon of the fixed point."""
    vertices, edges, expected = graph(kind, "pr")
    for rounds, precision in [(2, 1e-10)] if "example" in kind else [(26, 1e-7), (None, EPSILON)]:
        rows = result(
            lambda e, v, r, n=rounds: algorithms.pagerank(e, rounds=n, surfers=SURFERS, nodes=v), vertices, edges, []
        )
        shares = {vertex: rank / (SURFERS * len(vertices)) for vertex, rank in rows}
        assert shares == pytest.approx(expected, rel=precision)
