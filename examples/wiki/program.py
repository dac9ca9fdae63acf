"""The weak components (paths in any direction) and the strong ones (paths there and back) of a directed graph.

Outputs ``weak`` and ``strong`` name each node's component by its least member; ``weak_sizes`` and ``strong_sizes``
count the members. Every node with an edge is in one component of each kind, perhaps alone.
"""

from __future__ import annotations

import ddcore as dd


def program(edges: dd.Collection) -> dict[str, dd.Collection]:
    """``edges``: src and dst, both int64; repeated rows are ignored."""
    edges = edges.distinct()
    nodes = edges.select(node="src").concat(edges.select(node="dst")).distinct()
    weak = least_label(edges.concat(reverse(edges)), nodes)

    # Drop edges whose ends have different least ancestors, then those whose ends have different least descendants,
    # until no such edge is left. An edge on a cycle is never dropped. If all ends agree, the least node of a component
    # reaches all its nodes and all of them reach it.
    inside = edges.iterate(lambda kept: reverse(agreeing(reverse(agreeing(kept)))))
    strong = least_label(inside, nodes)
    return {"weak": weak, "strong": strong, "weak_sizes": sizes(weak), "strong_sizes": sizes(strong)}


def reverse(edges: dd.Collection) -> dd.Collection:
    """Every edge in the other direction."""
    return edges.select(src="dst", dst="src")


def agreeing(edges: dd.Collection) -> dd.Collection:
    """The edges whose two ends have the same label; a node that no edge leads to has no label."""
    labels = least_label(edges, edges.select(node="dst").distinct())
    ends = edges.join(labels, on={"src": "node"}).join(labels, on={"dst": "node"})
    return ends.where("component = component_right").select("src", "dst")


def least_label(edges: dd.Collection, nodes: dd.Collection) -> dd.Collection:
    """(node, component): the least of ``nodes`` with a path to ``node``, itself included."""
    own = nodes.select("node", component="node")

    def spread(labels: dd.Collection) -> dd.Collection:
        received = labels.join(edges, on={"node": "src"}).select(node="dst", component="component")
        return received.concat(own).group_by("node").agg(component=dd.min("component"))

    return own.iterate(spread)


def sizes(components: dd.Collection) -> dd.Collection:
    """(component, nodes): the number of nodes of each."""
    return components.group_by("component").agg(nodes=dd.count())
