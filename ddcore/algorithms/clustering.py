"""Local clustering coefficients."""

from __future__ import annotations

from polars import col

from ddcore.algorithms.edges import both_directions, edges_of, nodes_of
from ddcore.operators import aggregates
from ddcore.program.collection import Collection
from ddcore.program.several import delta_join


def clustering(
    edges: Collection,
    *,
    nodes: Collection | None = None,
    src: str = "src",
    dst: str = "dst",
    node: str = "node",
) -> Collection:
    """(node, links: int64, pairs: int64): the local clustering coefficient is links / pairs, or 0 without a pair.

    ``pairs`` counts the ordered pairs of neighbours, in any direction of the edges; ``links`` those with an edge from
    the first to the second. This is the definition of LDBC Graphalytics; for an undirected graph give every edge in
    both directions. Edges from a node to itself are ignored.
    ``nodes``: a collection with the column ``node``, for nodes that may have no edge.
    Cost: O(E^1.5), as for :func:`triangles`, and no stored intermediate result. Raises ProgramError.
    Source: Watts, Strogatz, "Collective dynamics of small-world networks", Nature 393, 1998; the join is that
    of :func:`triangles`.
    """
    ends = edges_of("clustering", edges, src, dst)
    directed, near = ends.where("src <> dst").distinct(), both_directions(ends)
    linked = delta_join((near, ["node", "a"]), (near, ["node", "b"]), (directed, ["a", "b"]))
    degrees = near.group_by("src").agg(degree=aggregates.count())
    zero = nodes_of("clustering", ends, nodes, node).select("node", links=0, pairs=0)
    links = linked.group_by("node").agg(links=aggregates.count()).select("node", "links", pairs=0)
    pairs = degrees.select("degree", node="src").select("node", links=0, pairs=col("degree") * (col("degree") - 1))
    return zero.concat(links, pairs).group_by("node").agg(links=aggregates.sum("links"), pairs=aggregates.sum("pairs"))
