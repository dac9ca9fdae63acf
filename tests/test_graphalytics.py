"""The validation graphs of LDBC Graphalytics: breadth-first search and weak components equal the published files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from real_data import every_row_once, example, shared_data

import ddcore as dd

UNREACHED = 9_223_372_036_854_775_807
Pairs = list[tuple[int, int]]


def graph(kind: str, algorithm: str) -> tuple[list[int], Pairs, dict[int, int]]:
    """Vertices, directed edges (both ways where the graph is undirected) and what is expected of each vertex."""
    folder, expected = {
        "directed": (algorithm, "dir-output"),
        "undirected": (algorithm, "undir-output"),
        "example-directed": ("example", f"example-directed-{algorithm.upper()}"),
        "example-undirected": ("example", f"example-undirected-{algorithm.upper()}"),
    }[kind]
    if folder == "example":
        vertices, edges = vertex_and_edge_files(shared_data("graphalytics", folder), kind)
        if kind == "example-undirected":
            edges += [(dst, src) for src, dst in edges]
    else:
        vertices, edges = adjacency_lists(shared_data("graphalytics", folder, expected.replace("output", "input")))
    values = numbers(shared_data("graphalytics", folder, expected))
    return vertices, edges, {node: value for node, value in values}


def numbers(file: Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in file.read_text().splitlines() if line.strip()]


def adjacency_lists(file: Path) -> tuple[list[int], Pairs]:
    lists = numbers(file)
    return sorted({node for line in lists for node in line}), [(line[0], dst) for line in lists for dst in line[1:]]


def vertex_and_edge_files(folder: Path, name: str) -> tuple[list[int], Pairs]:
    vertices = [line[0] for line in numbers(folder / f"{name}.v")]
    lines = (folder / f"{name}.e").read_text().splitlines()
    return vertices, [(int(src), int(dst)) for src, dst, _weight in map(str.split, lines)]


def at_version_0(rows: Sequence[tuple[int, ...]], *columns: str) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.Int64), orient="row")
    return frame.with_columns(version=0, diff=1)


KINDS = ("directed", "undirected", "example-directed", "example-undirected")


@pytest.mark.parametrize("kind", KINDS)
def test_breadth_first_search(kind: str) -> None:
    vertices, edges, expected = graph(kind, "bfs")
    roots = [(node,) for node, dist in expected.items() if dist == 0]
    logs = dd.replay(
        example("graphs", "bfs"), edges=at_version_0(edges, "src", "dst"), roots=at_version_0(roots, "node")
    )
    hops = dict(every_row_once(logs["hops"], 0))
    assert {node: hops.get(node, UNREACHED) for node in vertices} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_weak_components(kind: str) -> None:
    vertices, edges, expected = graph(kind, "wcc")
    logs = dd.replay(
        example("graphs", "wcc"),
        edges=at_version_0(edges, "src", "dst"),
        vertices=at_version_0([(node,) for node in vertices], "node"),
    )
    assert dict(every_row_once(logs["components"], 0)) == expected
