"""Which nodes of a directed graph hang together: weakly (some way, arrows aside) and strongly (there and back).

Outputs ``weak`` and ``strong`` name each node's component by its least member; ``weak_sizes`` and ``strong_sizes``
count the members. Every node with an edge is in one component of either kind, be it alone.
"""

from __future__ import annotations

import ddcore as dd


def program(edges: dd.Collection) -> dict[str, dd.Collection]:
    """``edges``: src and dst, both int64; repeats do no harm."""
    edges = edges.distinct()
    nodes = edges.select(node="src").concat(edges.select(node="dst")).distinct()
    weak = least_label(edges.concat(turned(edges)), nodes)

    # Drop edges whose ends differ in who reaches them, then those that differ in whom they reach, until none is left
    # to drop. An edge on a cycle is never dropped; and where all agree, the least node reaches all and all reach it.
    inside = edges.iterate(lambda ways: turned(agreeing(turned(agreeing(ways)))))
    strong = least_label(inside, nodes)
    return {"weak": weak, "strong": strong, "weak_sizes": sizes(weak), "strong_sizes": sizes(strong)}


def turned(edges: dd.Collection) -> dd.Collection:
    """Every edge the other way round."""
    return edges.select(src="dst", dst="src")


def agreeing(ways: dd.Collection) -> dd.Collection:
    """Those ways whose two ends have the same label; an end that no way leads to has none."""
    labels = least_label(ways, ways.select(node="dst").distinct())
    ends = ways.join(labels, on={"src": "node"}).join(labels, on={"dst": "node"})
    return ends.where("component = component_right").select("src", "dst")


def least_label(ways: dd.Collection, nodes: dd.Collection) -> dd.Collection:
    """(node, component): the least of ``nodes`` from which ways lead to ``node``, itself included."""
    own = nodes.select("node", component="node")

    def pass_on(labels: dd.Collection) -> dd.Collection:
        passed = labels.join(ways, on={"node": "src"}).select(node="dst", component="component")
        return passed.concat(own).group_by("node").agg(component=dd.min("component"))

    return own.iterate(pass_on)


def sizes(components: dd.Collection) -> dd.Collection:
    """(component, nodes): how many nodes each has."""
    return components.group_by("component").agg(nodes=dd.count())
