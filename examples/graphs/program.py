"""Two graph algorithms of the LDBC Graphalytics benchmark. For an undirected graph give ``edges`` both ways."""

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
    """``components`` (node, component): each vertex's least vertex it hangs together with, arrows aside."""
    both_ways = edges.concat(edges.select(src="dst", dst="src"))
    own = vertices.select("node", component="node")

    def pass_on(labels: dd.Collection) -> dd.Collection:
        passed = labels.join(both_ways, on={"node": "src"}).select(node="dst", component="component")
        return passed.concat(own).group_by("node").agg(component=dd.min("component"))

    return {"components": own.iterate(pass_on)}
