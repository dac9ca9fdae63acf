"""Two graph algorithms of the LDBC Graphalytics benchmark. Give the edges of an undirected graph in both directions."""

from __future__ import annotations

import ddcore as dd
from ddcore import col


def bfs(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
    """``hops`` (node, dist): the fewest edges from a root to each node that one reaches."""
    start = roots.select("node", dist=0)

    def step(hops: dd.Collection) -> dd.Collection:
        onward = hops.join(edges, on={"node": "src"}).select(node="dst", dist=col("dist") + 1)
        return onward.concat(start).group_by("node").agg(dist=dd.min("dist"))

    return {"hops": start.iterate(step)}


def wcc(edges: dd.Collection, vertices: dd.Collection) -> dict[str, dd.Collection]:
    """``components`` (node, component): the least vertex of each vertex's weak component."""
    both_directions = edges.concat(edges.select(src="dst", dst="src"))
    own = vertices.select("node", component="node")

    def spread(labels: dd.Collection) -> dd.Collection:
        received = labels.join(both_directions, on={"node": "src"}).select(node="dst", component="component")
        return received.concat(own).group_by("node").agg(component=dd.min("component"))

    return {"components": own.iterate(spread)}
