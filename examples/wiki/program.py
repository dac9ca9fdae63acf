"""The weak components (paths in any direction) and the strong ones (paths there and back) of a directed graph.

Outputs ``weak`` and ``strong`` name each node's component by its least member; ``weak_sizes`` and ``strong_sizes``
count the members. Every node with an edge is in one component of each kind, perhaps alone. ``triangles`` counts the
triangles, in any direction of their edges.
"""

from __future__ import annotations

import ddcore as dd
from ddcore import algorithms


def program(edges: dd.Collection) -> dict[str, dd.Collection]:
    """``edges``: src and dst, both int64; repeated rows are ignored."""
    weak, strong = algorithms.components(edges), algorithms.strong_components(edges)
    triangles = algorithms.triangles(edges).group_by().agg(triangles=dd.count())
    return {
        "weak": weak,
        "strong": strong,
        "weak_sizes": sizes(weak),
        "strong_sizes": sizes(strong),
        "triangles": triangles,
    }


def sizes(components: dd.Collection) -> dd.Collection:
    """(component, nodes): the number of nodes of each."""
    return components.group_by("component").agg(nodes=dd.count())
