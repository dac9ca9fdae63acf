"""Triangles of an undirected graph."""

from __future__ import annotations

from ddcore.algorithms.edges import edges_of
from ddcore.program.collection import Collection
from ddcore.program.several import delta_join


def triangles(edges: Collection, *, src: str = "src", dst: str = "dst") -> Collection:
    """(a, b, c) with a < b < c: three nodes that are connected with each other, each triangle once.

    The direction of edges and edges from a node to itself are ignored.
    Cost: O(E^1.5), the greatest number of triangles that E edges can have, and no stored intermediate result. Raises
    ProgramError.
    Source: Ngo, Porat, Re, Rudra, "Worst-case optimal join algorithms", PODS 2012; as delta queries Ammar, McSherry,
    Salihoglu, Joglekar, "Distributed evaluation of subgraph queries using worst-case optimal low-memory dataflows",
    VLDB 2018.
    """
    links = edges_of("triangles", edges, src, dst)
    up, down = links.where("src < dst"), links.where("src > dst")
    upward = up.concat(down.select(src="dst", dst="src")).distinct()
    result: Collection = delta_join((upward, ["a", "b"]), (upward, ["b", "c"]), (upward, ["a", "c"]))
    return result
