"""Which components of an undirected graph are bipartite, and their two sides."""

from __future__ import annotations

import polars as pl
from polars import col

from ddcore.algorithms.components import components
from ddcore.algorithms.edges import edges_of
from ddcore.operators import aggregates
from ddcore.program.collection import Collection


def bipartite(
    edges: Collection,
    *,
    nodes: Collection | None = None,
    src: str = "src",
    dst: str = "dst",
    node: str = "node",
    max_rounds: int = 10_000,
) -> Collection:
    """(node, component, side: int64): on which side of its bipartite component each node is, 0 or 1; the least node,
    which names the component, is on side 0. ``side`` is null where the component has a cycle of odd length.

    So a graph is bipartite if ``where("side is null")`` has no row. An edge from a node to itself is an odd cycle.
    ``nodes``: a collection with the column ``node``, for nodes that may have no edge.
    Cost: :func:`components`, and once more a search of that size. Raises ProgramError.
    Source: Koenig 1916: a graph is bipartite if and only if no cycle is odd; here, no node is reached by paths of even
    and of odd length.
    """
    ends = edges_of("bipartite", edges, src, dst)
    links = ends.concat(ends.select(src="dst", dst="src"))
    parts = components(edges, nodes=nodes, src=src, dst=dst, node=node, max_rounds=max_rounds)
    start = parts.where("node = component").select("node", side=0)

    def cross(reached: Collection) -> Collection:
        onward = reached.join(links, on={"node": "src"}).select(node="dst", side=1 - col("side"))
        return onward.concat(start).distinct()

    lengths = (
        start.iterate(cross, max_rounds=max_rounds)
        .group_by("node")
        .agg(least=aggregates.min("side"), most=aggregates.max("side"))
    )
    side = pl.when(col("least") == col("most")).then(col("least")).otherwise(None)
    return parts.join(lengths.select("node", side=side), on="node")
