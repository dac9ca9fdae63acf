"""PageRank in whole numbers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import polars as pl
from polars import col

from ddcore.algorithms.edges import edges_of, nodes_of, positive
from ddcore.base.errors import ProgramError
from ddcore.base.source_line import caller
from ddcore.operators import aggregates
from ddcore.program.collection import Collection


def pagerank(
    edges: Collection,
    *,
    rounds: int | None = None,
    damping: float | Decimal | Fraction = 0.85,
    surfers: int = 1_000_000,
    sinks: str = "spread",
    nodes: Collection | None = None,
    src: str = "src",
    dst: str = "dst",
    node: str = "node",
) -> Collection:
    """(node, rank: int64): how many of ``surfers`` x V surfers are at each node in the end; ``surfers`` is the average.

    In each round a surfer follows an edge of its node with probability ``damping``, else begins at any node anew.
    ``sinks``: from a node without an edge out it begins anew, too ("spread"), or is lost ("drop").
    ``rounds``: this many, from ``surfers`` at each node; None: to the least fixed point, where a round changes nothing.
    ``nodes``: a collection with the column ``node``, for nodes that may have no edge.
    Error: numbers are rounded down, so ranks are too low, by at most (E + 2 V) / (1 - damping) surfers over all nodes
    together. So ``surfers`` chooses between precision and work: a change that moves less than one surfer ends there.
    Cost: O(V + E) a round; some log(``surfers``) / log(1 / damping) rounds to the fixed point (85 of the default).
    With sinks that spread, what changes the rank of a sink changes every node. Raises ProgramError.
    Source: Page, Brin, Motwani, Winograd 1999; whole surfers are McSherry's, in the examples of differential dataflow.
    """
    odds = _fraction(damping)
    if sinks not in ("spread", "drop"):
        raise ProgramError(f"{caller()}: pagerank: sinks is {sinks!r}", 'give "spread" or "drop"')
    average = positive("pagerank", "surfers", surfers)
    links = edges_of("pagerank", edges, src, dst).distinct()
    degrees = links.group_by("src").agg(degree=aggregates.count())
    everyone = nodes_of("pagerank", links, nodes, node).select("node", all=0)
    fresh = everyone.select("node", rank=int(average * (1 - odds)))
    ends = everyone.select("node").concat(degrees.select(node="src").negate())  # each node without an edge out, once
    count = everyone.group_by("all").agg(nodes=aggregates.count())

    def part(divisor: str) -> pl.Expr:
        return col("rank") * odds.numerator // (col(divisor) * odds.denominator)

    def move(ranks: Collection) -> Collection:
        shares = ranks.join(degrees, on={"node": "src"}).select("node", rank=part("degree"))
        moved = shares.join(links, on={"node": "src"}).select(node="dst", rank="rank").concat(fresh)
        if sinks == "spread":
            ended = (
                ranks.join(ends, on="node").select(all=0, rank="rank").group_by("all").agg(rank=aggregates.sum("rank"))
            )
            share = ended.join(count, on="all").select("all", rank=part("nodes"))
            moved = moved.concat(everyone.join(share, on="all").select("node", "rank"))
        return moved.group_by("node").agg(rank=aggregates.sum("rank"))

    if rounds is None:  # from below: ranks only grow, and cannot alternate between two neighbours of a fixed point
        return fresh.iterate(move)
    start = everyone.select("node", rank=average)
    return start.iterate(move, max_rounds=positive("pagerank", "rounds", rounds), at_limit="return")


def _fraction(damping: float | Decimal | Fraction) -> Fraction:
    """The fraction that a number is written as: 17/20 of 0.85. Raises ProgramError."""
    if isinstance(damping, float | Decimal | Fraction) and 0 < float(damping) < 1:
        odds = Fraction(str(damping))
        if odds.denominator <= 10**6:
            return odds
    raise ProgramError(
        f"{caller()}: pagerank: damping is {damping!r}", "give a number between 0 and 1 of up to six digits"
    )
