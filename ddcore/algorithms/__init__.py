"""Graph algorithms, written as a user would write them: functions from collections to collections.

Edges are rows with the columns ``src`` and ``dst``, of one type; other names are given with ``src=`` and ``dst=``.
Further columns are ignored, and so are edges with a null end. Repeated edges count once. Where the direction of edges
does not matter, each may be given in one direction or in both. Each node has one row in the result, as ``node``.

The costs in the docstrings are those of version 0, with V nodes and E edges. A later version costs what changes: in
every round the rows of that round that differ from the version before.
"""

from ddcore.algorithms.bfs import bfs
from ddcore.algorithms.bipartite import bipartite
from ddcore.algorithms.clustering import clustering
from ddcore.algorithms.components import components, magnitude
from ddcore.algorithms.k_core import k_core
from ddcore.algorithms.label_propagation import label_propagation
from ddcore.algorithms.pagerank import pagerank
from ddcore.algorithms.shortest_paths import shortest_paths
from ddcore.algorithms.strong_components import strong_components
from ddcore.algorithms.triangles import triangles

__all__ = [
    "bfs", "bipartite", "clustering", "components", "k_core", "label_propagation", "magnitude", "pagerank",
    "shortest_paths", "strong_components", "triangles",
]  # fmt: skip
