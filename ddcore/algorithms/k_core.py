"""The k-core of an undirected graph."""

from __future__ import annotations

from polars import col

from ddcore.algorithms.edges import both_directions, edges_of, positive
from ddcore.operators import aggregates
from ddcore.program.collection import Collection


def k_core(edges: Collection, k: int, *, src: str = "src", dst: str = "dst", max_rounds: int = 10_000) -> Collection:
    """(node, degree: int64): the nodes of the largest subgraph in which each node has ``k`` neighbours or more.

    ``degree`` counts the neighbours inside of the core. Edges from a node to itself are ignored.
    Cost: O(V + E) at first, then the edges that go, in as many rounds as nodes fall one because of another. Raises
    ProgramError.
    Source: Seidman, "Network structure and minimum degree", Social Networks 5, 1983.
    """
    least = positive("k_core", "k", k)

    def degrees(kept: Collection) -> Collection:
        return kept.group_by("src").agg(degree=aggregates.count())

    def trim(kept: Collection) -> Collection:
        enough = degrees(kept).where(col("degree") >= least).select("src")
        return kept.join(enough, on="src").join(enough, on={"dst": "src"})

    core = both_directions(edges_of("k_core", edges, src, dst)).iterate(trim, max_rounds=max_rounds)
    return degrees(core).select("degree", node="src").select("node", "degree")
