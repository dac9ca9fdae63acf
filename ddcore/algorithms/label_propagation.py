"""Communities by synchronous label propagation."""

from __future__ import annotations

from ddcore.algorithms.edges import edges_of, nodes_of, positive
from ddcore.operators import aggregates
from ddcore.program.collection import Collection


def label_propagation(
    edges: Collection,
    rounds: int,
    *,
    nodes: Collection | None = None,
    src: str = "src",
    dst: str = "dst",
    node: str = "node",
) -> Collection:
    """(node, label): at first each node's label is the node itself; in each round it takes the most frequent label of
    its neighbours, of equally frequent ones the least. All nodes change at once, ``rounds`` times.

    The definition of LDBC Graphalytics (CDLP): a neighbour counts twice if there are edges in both directions. A node
    without neighbours keeps its label; edges from a node to itself are ignored.
    ``nodes``: a collection with the column ``node``, for nodes that may have no edge.
    Cost: O(V + E) a round. One changed edge may change many labels in the end. Raises ProgramError.
    Source: Raghavan, Albert, Kumara, "Near linear time algorithm to detect community structures in large-scale
    networks", Physical Review E 76, 2007, made deterministic as in Graphalytics.
    """
    ends = edges_of("label_propagation", edges, src, dst)
    directed = ends.where("src <> dst").distinct()
    voters = directed.concat(directed.select(src="dst", dst="src"))
    own = nodes_of("label_propagation", ends, nodes, node).select("node", label="node")
    alone = own.join(voters, on={"node": "src"}, how="anti")

    def vote(labels: Collection) -> Collection:
        votes = labels.join(voters, on={"node": "src"}).select(node="dst", label="label")
        counts = votes.group_by("node", "label").agg(votes=aggregates.count())
        first = counts.group_by("node").top_k(1, ["votes", "label"], descending=[True, False])
        return first.select("node", "label").concat(alone)

    return own.iterate(vote, max_rounds=positive("label_propagation", "rounds", rounds), at_limit="return")
