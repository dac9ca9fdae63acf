"""Breadth-first search."""

from __future__ import annotations

from polars import col

from ddcore.algorithms.edges import edges_of, rows_of
from ddcore.operators import aggregates
from ddcore.program.collection import Collection


def bfs(
    edges: Collection,
    roots: Collection,
    *,
    src: str = "src",
    dst: str = "dst",
    node: str = "node",
    max_rounds: int = 10_000,
) -> Collection:
    """(node, dist: int64): the fewest edges from a root to each node that one reaches, in the direction of the edges.

    ``roots``: a collection with the column ``node``. A path of more than ``max_rounds`` edges is a Diverged error.
    Cost: O(V + E), in as many rounds as the greatest ``dist``. Raises ProgramError.
    Source: Moore 1959; as a differential loop McSherry, Murray, Isaacs, Isard, "Differential Dataflow", CIDR 2013.
    """
    links = edges_of("bfs", edges, src, dst)
    start = rows_of("bfs", "roots", roots, node, links).select("node", dist=0)

    def search(reached: Collection) -> Collection:
        onward = reached.join(links, on={"node": "src"}).select(node="dst", dist=col("dist") + 1)
        return onward.concat(start).group_by("node").agg(dist=aggregates.min("dist"))

    return start.iterate(search, max_rounds=max_rounds)
