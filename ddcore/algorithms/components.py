"""Connected components of an undirected graph, which are the weak components of a directed one."""

from __future__ import annotations

from typing import Any

import polars as pl

from ddcore.algorithms.edges import both_directions, edges_of, nodes_of
from ddcore.operators import aggregates
from ddcore.program.collection import Collection
from ddcore.program.several import iterate


def components(
    edges: Collection,
    *,
    nodes: Collection | None = None,
    priority: Any = None,
    src: str = "src",
    dst: str = "dst",
    node: str = "node",
    max_rounds: int = 10_000,
) -> Collection:
    """(node, component): the least node that each node is connected with, in any direction of the edges.

    ``nodes``: a collection with the column ``node``, for nodes that may have no edge.
    ``priority``: an integer expression of ``component``, such as ``magnitude("component")``. Labels with the least
    priority spread first, and most others then meet lesser labels and end there. It never changes the result.
    Cost: O(V + E) a round, in as many rounds as the longest of the shortest paths from the least node of a component.
    Without a priority a node may take several labels, one better than the other, on the way. Raises ProgramError.
    Source: least labels that spread, as in McSherry et al., "Differential Dataflow", CIDR 2013; priorities from its
    Prioritize operator.
    """
    ends = edges_of("components", edges, src, dst)
    links = both_directions(ends)
    own = nodes_of("components", ends, nodes, node).select("node", component="node")

    if priority is None:

        def spread(labels: Collection) -> Collection:
            received = labels.join(links, on={"node": "src"}).select(node="dst", component="component")
            return received.concat(own).group_by("node").agg(component=aggregates.min("component"))

        return own.iterate(spread, max_rounds=max_rounds)

    def offer(offers: Collection, labels: Collection) -> dict[str, Collection]:
        # Labels of their own are offers that come late. Only the least ones go on, so that most are never joined.
        labels = offers.group_by("node").agg(component=aggregates.min("component"))
        onward = labels.join(links, on={"node": "src"}).select(node="dst", component="component")
        return {"offers": onward.concat(labels), "labels": labels}

    start = {"offers": own, "labels": own.where("false")}
    return iterate(start, offer, priority={"offers": priority}, max_rounds=max_rounds)["labels"]


def magnitude(column: str) -> pl.Expr:
    """The number of binary digits of an int64 column, from 0 to 63; 0 if negative. A priority for :func:`components`.

    Groups of labels that double in size take few rounds more, and the first of them are small. Computed with integers
    only: a priority must be the same on every machine.
    """
    return pl.sum_horizontal((pl.col(column) >= 2**digit).cast(pl.Int64) for digit in range(63))
