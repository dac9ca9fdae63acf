"""Two of the algorithms of the LDBC Graphalytics benchmark. Give the edges of an undirected graph in any direction to
``wcc``, and in both to ``bfs``.
"""

from __future__ import annotations

import ddcore as dd
from ddcore import algorithms


def bfs(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
    """``hops`` (node, dist): the fewest edges from a root to each node that one reaches."""
    return {"hops": algorithms.bfs(edges, roots)}


def wcc(edges: dd.Collection, vertices: dd.Collection) -> dict[str, dd.Collection]:
    """``components`` (node, component): the least vertex of each vertex's weak component."""
    return {"components": algorithms.components(edges, nodes=vertices)}
