"""Strongly connected components of a directed graph."""

from __future__ import annotations

from ddcore.algorithms.edges import edges_of, nodes_of
from ddcore.operators import aggregates
from ddcore.program.collection import Collection


def strong_components(
    edges: Collection,
    *,
    nodes: Collection | None = None,
    src: str = "src",
    dst: str = "dst",
    node: str = "node",
    max_rounds: int = 10_000,
) -> Collection:
    """(node, component): the least node that each node has a path to and a path from. Every node is in one component.

    An edge is dropped if the least nodes that reach its two ends differ, or the least nodes that its two ends reach,
    until no edge is. An edge on a cycle stays. Where all ends agree, the least node of a component reaches all its
    nodes, and all of them reach it.
    ``nodes``: a collection with the column ``node``, for nodes that may have no edge.
    Cost: a loop over two loops of :func:`components`'s kind; the outer one mostly takes few rounds, at worst as many as
    there are components on one path. Raises ProgramError.
    Source: trimming by reachable labels, as in the examples of McSherry et al., "Differential Dataflow", CIDR 2013.
    """
    links = edges_of("strong_components", edges, src, dst).distinct()
    everyone = nodes_of("strong_components", links, nodes, node)

    def reverse(kept: Collection) -> Collection:
        return kept.select(src="dst", dst="src")

    def least(kept: Collection, own: Collection) -> Collection:
        """The least of the nodes ``own`` with a path to each node."""
        labels = own.select("node", component="node")

        def spread(reached: Collection) -> Collection:
            onward = reached.join(kept, on={"node": "src"}).select(node="dst", component="component")
            return onward.concat(labels).group_by("node").agg(component=aggregates.min("component"))

        return labels.iterate(spread, max_rounds=max_rounds)

    def agreeing(kept: Collection) -> Collection:
        labels = least(kept, kept.select(node="dst").distinct())  # a node that no edge leads to agrees with none
        ends = kept.join(labels, on={"src": "node"}).join(labels, on={"dst": "node"})
        return ends.where("component = component_right").select("src", "dst")

    def trim(kept: Collection) -> Collection:
        return reverse(agreeing(reverse(agreeing(kept))))

    return least(links.iterate(trim, max_rounds=max_rounds), everyone)
