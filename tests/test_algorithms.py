"""Graph algorithms against networkx, numpy and their definitions, while edges and nodes come and go."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
from folding import by_reference, fed_early, one_time_each, randomly_cut, reference, whole
from programs import Case
from seeds import nightly
from warehouses import logs_of, project_of

import ddcore as dd
from ddcore import algorithms, col
from ddcore.base.errors import Diverged, NegativeMultiplicity, ProgramError
from ddcore.io.project.program import load_program
from ddcore.io.project.project import Project
from ddcore.io.project.times import time_of
from ddcore.jobs import replay
from ddcore.planning.planner import build

SURFERS = 100_000
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Graph:
    """What is there at one time: edges with weights, roots and nodes, each as often as it is there."""

    edges: Counter[Row]
    roots: Counter[Row]
    nodes: Counter[Row]

    @property
    def directed(self) -> Any:
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(node for (node,) in self.nodes)
        graph.add_weighted_edges_from(self.edges)
        return graph

    @property
    def undirected(self) -> Any:
        return nx.Graph(self.directed)

    @property
    def simple(self) -> Any:
        """Undirected, without edges from a node to itself."""
        graph = self.undirected
        graph.remove_edges_from(list(nx.selfloop_edges(graph)))
        return graph

    def distances(self, weight: Callable[..., float] | str) -> set[Row]:
        graph, roots = self.directed, [node for (node,) in self.roots]
        graph.add_nodes_from(roots)
        return set(nx.multi_source_dijkstra_path_length(graph, roots, weight=weight).items()) if roots else set()


def by_least(parts: Iterable[set[int]]) -> set[Row]:
    return {(node, min(part)) for part in parts for node in part}


def core(graph: Graph) -> set[Row]:
    return set(nx.k_core(graph.simple, 2).degree())


def clusters(graph: Graph) -> set[Row]:
    directed, simple = nx.DiGraph(graph.directed), graph.simple
    directed.remove_edges_from(list(nx.selfloop_edges(directed)))
    near = {node: list(simple[node]) for node in simple}
    return {(node, directed.subgraph(n).number_of_edges(), len(n) * (len(n) - 1)) for node, n in near.items()}


def cliques(graph: Graph) -> set[Row]:
    simple = graph.simple
    return {abc for abc in combinations(sorted(simple), 3) if all(simple.has_edge(*ab) for ab in combinations(abc, 2))}


def communities(graph: Graph, rounds: int = 3) -> set[Row]:
    edges = {(src, dst) for src, dst, _ in graph.edges if src != dst}
    labels = {node: node for node in graph.directed}
    for _ in range(rounds):
        votes: dict[int, Counter[int]] = {node: Counter() for node in labels}
        for src, dst in edges:
            votes[dst][labels[src]] += 1
            votes[src][labels[dst]] += 1
        labels = {
            node: min(counts, key=lambda label: (-counts[label], label)) if (counts := votes[node]) else label
            for node, label in labels.items()
        }
    return set(labels.items())


def sides(graph: Graph) -> set[Row]:
    undirected, rows = graph.undirected, set()
    for part in nx.connected_components(undirected):
        hops = nx.single_source_shortest_path_length(undirected, min(part))
        fits = nx.is_bipartite(undirected.subgraph(part))
        rows |= {(node, min(part), hops[node] % 2 if fits else None) for node in part}
    return rows


def ranks(graph: Graph, rows: set[Row], sinks: str, rounds: int | None = None, damping: float = 0.85) -> None:
    """Too low by less than the documented bound, and never too high (beyond the error of floats)."""
    directed = nx.DiGraph(graph.directed)
    nodes = sorted(directed)
    links = nx.to_numpy_array(directed, nodelist=nodes, weight=None)
    degrees = links.sum(axis=1, keepdims=True)
    follow = np.divide(links, degrees, out=np.zeros_like(links), where=degrees > 0)
    if sinks == "spread":
        follow += (degrees == 0) / max(len(nodes), 1)
    fresh = np.full(len(nodes), (1 - damping) * SURFERS)
    expected = np.full(len(nodes), float(SURFERS))
    for _ in range(rounds or 0):
        expected = fresh + damping * follow.T @ expected
    if rounds is None:
        expected = np.linalg.solve(np.eye(len(nodes)) - damping * follow.T, fresh)
    assert sorted(node for node, _ in rows) == nodes
    lost = expected - np.array([rank for _, rank in sorted(rows)], dtype=float)
    assert (lost > -1e-3).all() and lost.sum() <= (links.sum() + 2 * len(nodes)) / (1 - damping)


def equals(oracle: Callable[[Graph], set[Row]]) -> Callable[[Graph, set[Row]], None]:
    def check(graph: Graph, rows: set[Row]) -> None:
        assert rows == oracle(graph)

    return check


# Algorithms in the bodies of other loops.


def components_by_search(edges: Any, nodes: Any) -> Any:
    """Strong components: from the least node of each weak component of what is left, there and back, until none is."""
    edges = edges.select("src", "dst").distinct()
    ends = edges.select(node="src").concat(edges.select(node="dst"), nodes).distinct()

    def search(found: Any) -> Any:
        left = edges.join(found, on={"src": "node"}, how="anti").join(found, on={"dst": "node"}, how="anti")
        nodes = ends.join(found, on="node", how="anti")
        weak = algorithms.components(left, nodes=nodes)
        roots = weak.where("node = component")
        there, back = algorithms.bfs(left, roots), algorithms.bfs(left, roots, src="dst", dst="src")
        both = there.join(back, on="node", how="semi").join(weak, on="node")
        return found.concat(both.select("node", "component"))

    return ends.select("node", component="node").where("false").iterate(search)


def acyclic(edges: Any) -> Any:
    """Of each strong component the edges to its least node go, until no cycle is left: loops in a loop in a loop."""

    def cut(kept: Any) -> Any:
        parts = algorithms.strong_components(kept)
        ends = kept.join(parts, on={"src": "node"}).join(parts, on={"dst": "node"})
        return ends.where("component <> component_right or dst <> component").select("src", "dst")

    return edges.select("src", "dst").distinct().iterate(cut)


def without_cycles(graph: Graph) -> set[Row]:
    kept = nx.DiGraph(graph.directed)
    while True:
        inside = [(node, min(part)) for part in nx.strongly_connected_components(kept) for node in part]
        gone = [(src, least) for src, least in inside if kept.has_edge(src, least)]
        if not gone:
            return set(kept.edges)
        kept.remove_edges_from(gone)


def truss(edges: Any) -> Any:
    """The 3-truss of an undirected graph: the edges, upwards, that are in a triangle of others of them."""
    up, down = edges.where("src < dst").select("src", "dst"), edges.where("src > dst").select(src="dst", dst="src")

    def trim(kept: Any) -> Any:
        abc = algorithms.triangles(kept)
        sides = [abc.select(src=src, dst=dst) for src, dst in ("ab", "bc", "ac")]
        return sides[0].concat(*sides[1:]).distinct()

    return up.concat(down).distinct().iterate(trim)


def settled(edges: Any) -> Any:
    """Edges go whose ends have different labels after two rounds, until the ends of all agree."""
    edges = edges.select("src", "dst").distinct()

    def agree(kept: Any) -> Any:
        labels = algorithms.label_propagation(kept, 2)
        ends = kept.join(labels, on={"src": "node"}).join(labels, on={"dst": "node"})
        return ends.where("label = label_right").select("src", "dst")

    return edges.iterate(agree)


def agreeing(graph: Graph) -> set[Row]:
    kept = {(src, dst) for src, dst, _ in graph.edges}
    while True:
        edges = Counter((*edge, 1) for edge in kept)
        labels: dict[int, int] = dict(communities(Graph(edges, Counter(), Counter()), rounds=2))
        agreed = {(src, dst) for src, dst in kept if labels[src] == labels[dst]}
        if agreed == kept:
            return kept
        kept = agreed


Make = Callable[[Any, Any, Any, int], Any]
CASES: dict[str, tuple[Make, Callable[[Graph, set[Row]], None]]] = {
    "bfs": (lambda e, r, n, s: algorithms.bfs(e, r), equals(lambda g: g.distances(lambda *_: 1))),
    "shortest_paths": (lambda e, r, n, s: algorithms.shortest_paths(e, r), equals(lambda g: g.distances("weight"))),
    "components": (
        lambda e, r, n, s: algorithms.components(e, nodes=n),
        equals(lambda g: by_least(nx.connected_components(g.undirected))),
    ),
    "components with priorities": (
        lambda e, r, n, s: algorithms.components(e, nodes=n, priority=algorithms.magnitude("component")),
        equals(lambda g: by_least(nx.connected_components(g.undirected))),
    ),
    "strong_components": (
        lambda e, r, n, s: algorithms.strong_components(e, nodes=n),
        equals(lambda g: by_least(nx.strongly_connected_components(g.directed))),
    ),
    "k_core": (lambda e, r, n, s: algorithms.k_core(e, 2), equals(core)),
    "triangles": (lambda e, r, n, s: algorithms.triangles(e), equals(cliques)),
    "clustering": (lambda e, r, n, s: algorithms.clustering(e, nodes=n), equals(clusters)),
    "label_propagation": (lambda e, r, n, s: algorithms.label_propagation(e, 3, nodes=n), equals(communities)),
    "bipartite": (lambda e, r, n, s: algorithms.bipartite(e, nodes=n), equals(sides)),
    "components by search": (
        lambda e, r, n, s: components_by_search(e, n),
        equals(lambda g: by_least(nx.strongly_connected_components(g.directed))),
    ),
    "acyclic": (lambda e, r, n, s: acyclic(e), equals(without_cycles)),
    "truss": (
        lambda e, r, n, s: truss(e),
        equals(lambda g: {(min(edge), max(edge)) for edge in nx.k_truss(g.simple, 3).edges}),
    ),
    "settled": (lambda e, r, n, s: settled(e), equals(agreeing)),
    "pagerank": (
        lambda e, r, n, s: algorithms.pagerank(e, surfers=s, nodes=n),
        lambda graph, rows: ranks(graph, rows, "spread"),
    ),
    "pagerank without sinks": (
        lambda e, r, n, s: algorithms.pagerank(e, surfers=s, sinks="drop", nodes=n, damping=Fraction(5, 6)),
        lambda graph, rows: ranks(graph, rows, "drop", damping=5 / 6),
    ),
    "pagerank of five rounds": (
        lambda e, r, n, s: algorithms.pagerank(e, surfers=s, rounds=5, nodes=n),
        lambda graph, rows: ranks(graph, rows, "spread", 5),
    ),
}
every_algorithm = pytest.mark.parametrize("name", CASES)


def program(name: str, surfers: int = 200) -> Callable[..., dict[str, Any]]:
    return lambda edges, roots, nodes: {"out": CASES[name][0](edges, roots, nodes, surfers)}


def history(rng: random.Random, nodes: int, versions: int, moves: int) -> dict[str, pl.DataFrame]:
    """Edges that come, double and go; at some versions half of all that there are go. Roots and nodes come and go."""
    updates: dict[str, list[Row]] = {"edges": [], "roots": [], "nodes": []}
    there: dict[str, Counter[Row]] = {name: Counter() for name in updates}

    def move(name: str, row: Row, version: int, diff: int) -> None:
        updates[name].append((*row, version, diff))
        there[name][row] += diff

    for version in range(versions):
        if rng.random() < 0.2:
            for row in sorted(there["edges"].elements()):
                if rng.random() < 0.5:
                    move("edges", row, version, -1)
        for _ in range(moves):
            leaves = sorted(there["edges"].elements())
            if leaves and rng.random() < 0.3:
                move("edges", rng.choice(leaves), version, -1)
            else:
                move("edges", (rng.randrange(nodes), rng.randrange(nodes), rng.randint(1, 9)), version, 1)
        for name in ("roots", "nodes"):
            row = (rng.randrange(nodes + 1),)
            move(name, row, version, -1 if there[name][row] else 1)
    columns = {"edges": ["src", "dst", "weight"], "roots": ["node"], "nodes": ["node"]}
    return {
        name: pl.DataFrame(rows, schema=[*columns[name], "version", "diff"], orient="row")
        for name, rows in updates.items()
    }


def graph_at(frames: dict[str, pl.DataFrame], version: int) -> Graph:
    return Graph(**{name: reference.accumulate(frame, (version,), ("version",)) for name, frame in frames.items()})


def rows_at(log: dict[Any, int], version: int) -> set[Row]:
    counts: Counter[Row] = Counter()
    for (row, (time,)), diff in log.items():
        counts[row] += diff if time <= version else 0
    assert set(counts.values()) <= {0, 1}
    return {row for row, count in counts.items() if count}


@pytest.mark.sample(34)
@pytest.mark.parametrize("seed", nightly(range(4), 3))
@every_algorithm
def test_every_version_equals_the_oracle(name: str, seed: int) -> None:
    versions = 15
    frames = history(random.Random(f"{name} {seed}"), nodes=5 + 2 * seed, versions=versions, moves=6 + 2 * seed)
    log = whole(program(name, SURFERS), **frames)["out"]
    for version in range(versions):
        CASES[name][1](graph_at(frames, version), rows_at(log, version))


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", nightly(range(3), 2))
@every_algorithm
def test_every_cut_into_runs_gives_the_same_log(name: str, seed: int) -> None:
    frames = history(random.Random(f"runs {name} {seed}"), nodes=7, versions=6, moves=5)
    expected = whole(program(name), **frames)
    assert one_time_each(program(name), **frames) == expected
    assert randomly_cut(program(name), seed=seed, **frames) == expected
    assert fed_early(program(name), seed=seed, **frames) == expected


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", nightly(range(2), 1))
@every_algorithm
def test_the_log_equals_that_of_the_definitions(name: str, seed: int) -> None:
    frames = history(random.Random(f"definition {name} {seed}"), nodes=5, versions=4, moves=4)
    assert whole(program(name), **frames) == by_reference(program(name), **frames)


@pytest.mark.sample(2)
@every_algorithm
def test_times_that_are_not_ordered(name: str) -> None:
    """Every update at a pair of a day and a revision; a removal is after its row in both."""
    rng = random.Random(f"pairs {name}")
    rows = []
    for _ in range(10):
        row, (day, revision) = (
            (rng.randrange(5), rng.randrange(5), rng.randint(1, 9)),
            (rng.randrange(3), rng.randrange(3)),
        )
        rows.append((*row, day, revision, 1))
        if rng.random() < 0.5:
            rows.append((*row, rng.randint(day, 3), rng.randint(revision, 3), -1))
    dims = {"day": pl.Int64, "revision": pl.Int64, "diff": pl.Int64}
    edges = pl.DataFrame(rows, schema=["src", "dst", "weight", *dims], orient="row")
    one = pl.DataFrame([(0, 0, 0, 1), (1, 1, 0, 1), (1, 0, 1, 1), (0, 2, 2, -1)], schema=["node", *dims], orient="row")
    frames = {"edges": edges, "roots": one, "nodes": one}
    expected = by_reference(program(name), **frames)
    assert whole(program(name), **frames) == expected
    assert randomly_cut(program(name), seed=name, **frames) == expected


ALL = """
from ddcore import algorithms

def program(edges, roots, nodes):
    return {
        "bfs": algorithms.bfs(edges, roots),
        "shortest_paths": algorithms.shortest_paths(edges, roots),
        "components": algorithms.components(edges, nodes=nodes),
        "prioritised": algorithms.components(edges, nodes=nodes, priority=algorithms.magnitude("component")),
        "strong_components": algorithms.strong_components(edges, nodes=nodes),
        "k_core": algorithms.k_core(edges, 2),
        "triangles": algorithms.triangles(edges),
        "clustering": algorithms.clustering(edges, nodes=nodes),
        "label_propagation": algorithms.label_propagation(edges, 3, nodes=nodes),
        "bipartite": algorithms.bipartite(edges, nodes=nodes),
        "pagerank": algorithms.pagerank(edges, surfers=100, nodes=nodes),
        "two_rounds": algorithms.pagerank(edges, rounds=2, nodes=nodes),
    }
"""


def all_of_them(folder: Path, seed: str) -> tuple[Project, Any]:
    """A project with every algorithm as an output, and the logs that its history has."""
    scope: dict[str, Any] = {}
    exec(ALL, scope)
    assert set(algorithms.__all__) - {"magnitude"} <= {word.strip('" ') for word in re.findall(r'"\w+"', ALL)}
    drawn = Case(0, ALL, scope["program"], history(random.Random(seed), nodes=7, versions=6, moves=6))
    return project_of(folder, drawn), whole(scope["program"], **drawn.frames)


def test_all_resume_from_stored_state(tmp_path: Path) -> None:
    project, expected = all_of_them(tmp_path / "p", "stored")
    for last in (0, 1, 3, None):
        replay.run(project, last=time_of(last), engine="inline")
    assert logs_of(project, build(load_program(project), project.inputs, project.dims).outputs) == expected


# -- literal cases ----------------------------------------------------------------------------------------------------


def frame(columns: str, *rows: Row) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=columns.split(), orient="row").with_columns(version=0, diff=1)


def rows(program: Callable[..., dict[str, Any]], **frames: Any) -> list[Row]:
    return [row[:-2] for row in dd.replay(program, **frames)["out"].rows()]


ROADS = frame("a b km", ("x", "y", 4), ("y", "z", 5), ("x", "z", 7), ("w", "w", 1), (None, "x", 1), ("z", None, 1))
DEPOT = frame("town", ("x",), (None,))


def test_columns_have_any_names_and_nodes_any_type_and_null_is_no_node() -> None:
    names: Any = {"src": "a", "dst": "b"}
    searched = rows(lambda e, r: {"out": algorithms.bfs(e, r, node="town", **names)}, e=ROADS, r=DEPOT)
    assert searched == [("x", 0), ("y", 1), ("z", 1)]
    shortest = rows(
        lambda e, r: {"out": algorithms.shortest_paths(e, r, weight="km", node="town", **names)}, e=ROADS, r=DEPOT
    )
    assert shortest == [("x", 0), ("y", 4), ("z", 7)]
    expected: dict[str, list[Row]] = {
        "components": [("w", "w"), ("x", "x"), ("y", "x"), ("z", "x")],
        "strong_components": [("w", "w"), ("x", "x"), ("y", "y"), ("z", "z")],
        "bipartite": [("w", "w", None), ("x", "x", None), ("y", "x", None), ("z", "x", None)],
        "clustering": [("w", 0, 0), ("x", 1, 2), ("y", 1, 2), ("z", 1, 2)],
        "triangles": [("x", "y", "z")],
    }
    every = {name: getattr(algorithms, name) for name in expected}
    logs = dd.replay(lambda e: {name: algorithm(e, **names) for name, algorithm in every.items()}, e=ROADS)
    assert {name: [row[:-2] for row in log.rows()] for name, log in logs.items()} == expected
    assert rows(lambda e: {"out": algorithms.k_core(e, 2, **names)}, e=ROADS) == [("x", 2), ("y", 2), ("z", 2)]
    assert rows(lambda e: {"out": algorithms.label_propagation(e, 1, **names)}, e=ROADS) == [
        ("w", "w"), ("x", "y"), ("y", "x"), ("z", "x"),
    ]  # fmt: skip
    assert {node for node, _ in rows(lambda e: {"out": algorithms.pagerank(e, **names)}, e=ROADS)} == set("wxyz")


def test_decimal_distances_are_exact_and_those_of_floats_are_floats() -> None:
    tenths = frame("src dst weight", *((i, i + 1, 0.1) for i in range(10)))
    root = frame("node", (0,))

    def program(edges: Any, roots: Any, kind: Any) -> Any:
        return {"out": algorithms.shortest_paths(edges.with_columns(weight=col("weight").cast(kind)), roots)}

    exact = rows(lambda e, r: program(e, r, pl.Decimal(3, 1)), e=tenths, r=root)
    assert str(exact[-1]) == "(10, Decimal('1.0'))"
    assert rows(lambda e, r: program(e, r, pl.Float64), e=tenths, r=root)[-1] == (10, 0.9999999999999999)


def test_weights_may_be_negative_and_a_null_weight_is_no_edge() -> None:
    edges = frame("src dst weight", (0, 1, 5), (0, 2, 2), (1, 2, -4), (2, 3, None), (3, 4, 1))
    root = frame("node", (0,))

    def program(edges: Any, roots: Any) -> Any:
        return {"out": algorithms.shortest_paths(edges, roots, max_rounds=50)}

    assert rows(program, edges=edges, roots=root) == [(0, 0), (1, 5), (2, 1)]
    with pytest.raises(Diverged, match=r"loop relax \(test_algorithms.py"):
        rows(program, edges=pl.concat([edges, frame("src dst weight", (2, 0, -2))]), roots=root)


def test_a_path_may_have_as_many_edges_as_there_may_be_rounds() -> None:
    path, root = frame("src dst", *((i, i + 1) for i in range(30))), frame("node", (0,))

    def program(rounds: int) -> Any:
        return lambda edges, roots: {"out": algorithms.bfs(edges, roots, max_rounds=rounds)}

    assert len(rows(program(32), edges=path, roots=root)) == 31
    with pytest.raises(Diverged, match="loop search"):
        rows(program(30), edges=path, roots=root)


def test_edges_that_are_there_less_than_once_are_an_error() -> None:
    edges = frame("src dst", (1, 2)).with_columns(diff=-1)
    with pytest.raises(NegativeMultiplicity):
        rows(lambda edges: {"out": algorithms.triangles(edges)}, edges=edges)


def test_surfers_of_a_cycle_stay_where_they_are_and_one_more_link_moves_them() -> None:
    edges = pl.DataFrame(
        [(0, 1, 0, 1), (1, 2, 0, 1), (2, 0, 0, 1), (1, 0, 1, 1)], schema=["src", "dst", "version", "diff"], orient="row"
    )
    log = dd.replay(lambda edges: {"out": algorithms.pagerank(edges, surfers=1000, rounds=3)}, edges=edges)["out"]
    assert log.filter(version=0).rows() == [(0, 1000, 0, 1), (1, 1000, 0, 1), (2, 1000, 0, 1)]
    # By hand: ranks (1000, 1000, 1000), (1425, 1000, 575), (1063, 1361, 575), (1216, 1053, 728).
    assert log.filter(version=1, diff=1).rows() == [(0, 1216, 1, 1), (1, 1053, 1, 1), (2, 728, 1, 1)]


def test_a_change_that_moves_less_than_one_surfer_ends_there() -> None:
    """A chain of which the start changes: with few surfers the end of the chain does not hear of it."""
    chain = [(i, i + 1, 0, 1) for i in range(1, 70)]
    edges = pl.DataFrame([*chain, (0, 1, 1, 1)], schema=["src", "dst", "version", "diff"], orient="row")

    def changed(surfers: int) -> int:
        log = dd.replay(lambda edges: {"out": algorithms.pagerank(edges, surfers=surfers, sinks="drop")}, edges=edges)[
            "out"
        ]
        return len(log.filter(version=1, diff=1))

    assert changed(100) < changed(10_000) < changed(1_000_000) == 71


# -- what a program may get wrong -------------------------------------------------------------------------------------

WRONG: Any = frame("node", (1,))
PAIRS, TEXTS = frame("src dst weight", (1, 2, "far")), frame("node", ("a",))
MISTAKES: list[tuple[Callable[[Any, Any], Any], str, str]] = [
    (algorithms.bfs, "bfs: node of roots is string, and the ends of edges are int64", "cast one"),
    (lambda e, r: algorithms.bfs(e, e), "bfs: roots: there is no column node; there are src, dst, weight", "node="),
    (lambda e, r: algorithms.bfs(r, e), "bfs: edges: there is no column src; there are node", "column with src="),
    (
        lambda e, r: algorithms.triangles(e, dst="dest"),
        "triangles: edges: there is no column dest",
        "did you mean 'dst'?",
    ),
    (lambda e, r: algorithms.k_core(e, 2, src="dst"), "k_core: src and dst are both dst", "two columns"),
    (lambda e, r: algorithms.components(e, dst="weight"), "components: src is int64 and weight is string", "cast one"),
    (lambda e, r: algorithms.components(e, nodes=r), "components: node of nodes is string", "cast one"),
    (
        lambda e, r: algorithms.clustering(WRONG),
        "clustering: edges is no collection, but DataFrame",
        "dd.replay(program",
    ),
    (lambda e, r: algorithms.bipartite(e, nodes=WRONG), "nodes is no collection, but DataFrame", "dd.replay(program"),
    (lambda e, r: algorithms.shortest_paths(e, e, node="src"), "shortest_paths: weight is string", "cast it to int64"),
    (
        lambda e, r: algorithms.shortest_paths(e, e, weight="km"),
        "there is no column km",
        "name the column with weight=",
    ),
    (lambda e, r: algorithms.k_core(e, 0), "k_core: k is 0", "a whole number of at least 1"),
    (lambda e, r: algorithms.label_propagation(e, True), "label_propagation: rounds is True", "a whole number"),
    (lambda e, r: algorithms.pagerank(e, rounds=0), "pagerank: rounds is 0", "a whole number"),
    (lambda e, r: algorithms.pagerank(e, surfers=False), "pagerank: surfers is False", "a whole number"),
    (lambda e, r: algorithms.pagerank(e, sinks="keep"), "pagerank: sinks is 'keep'", '"spread" or "drop"'),
    (lambda e, r: algorithms.pagerank(e, damping=1.0), "pagerank: damping is 1.0", "between 0 and 1"),
    (lambda e, r: algorithms.pagerank(e, damping=float("nan")), "pagerank: damping is nan", "between 0 and 1"),
    (lambda e, r: algorithms.components(e, priority="node", max_rounds=0), "max_rounds is 0", "at least 1"),
    (lambda e, r: algorithms.components(e, priority="weight"), "iterate: there is no column weight", ""),
]


@pytest.mark.parametrize(("make", "message", "hint"), MISTAKES, ids=[message for _, message, _ in MISTAKES])
def test_mistakes_are_named_with_the_line_of_the_program(
    make: Callable[[Any, Any], Any], message: str, hint: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        dd.replay(lambda e, r: {"out": make(e, r)}, e=PAIRS, r=TEXTS)
    assert caught.value.message.startswith("test_algorithms.py:") and message in caught.value.message
    assert hint in caught.value.hint


# -- inside of other programs -----------------------------------------------------------------------------------------


def test_algorithms_use_what_users_have() -> None:
    """Apart from the checks of arguments they import polars, what programs have of ddcore, from where it is, and each
    other; and none is longer than a page.
    """
    public = {"ddcore.operators", "ddcore.program.collection", "ddcore.program.several"}
    for file in sorted(Path(algorithms.__file__).parent.glob("*.py")):
        text = file.read_text("utf-8")
        modules = set(re.findall(r"^(?:from|import) (\S+)", text, re.MULTILINE))
        inside = {name for name in modules if name.startswith("ddcore.") and not name.startswith("ddcore.algorithms")}
        assert inside <= public | {
            "ddcore.base.errors",
            "ddcore.base.source_line",
            "ddcore.base.schema",
            "ddcore.text.wording",
        }, file
        assert len(text.splitlines()) <= 100 and not re.search(r"\w\._", text), file
        assert file.stem in ("__init__", "edges") or ("Cost: " in text and "Source: " in text), file


def test_importing_ddcore_does_not_load_the_algorithms() -> None:
    script = "import sys, ddcore; assert 'ddcore.algorithms' not in sys.modules and 'polars' not in sys.modules; "
    script += "ddcore.algorithms.bfs; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
