"""Weighted shortest paths."""

from __future__ import annotations

import polars as pl
from polars import col

from ddcore.algorithms.edges import edges_of, rows_of
from ddcore.base.errors import ProgramError
from ddcore.base.schema import parse_type
from ddcore.base.source_line import caller
from ddcore.operators import aggregates
from ddcore.program.collection import Collection


def shortest_paths(
    edges: Collection,
    roots: Collection,
    *,
    weight: str = "weight",
    src: str = "src",
    dst: str = "dst",
    node: str = "node",
    max_rounds: int = 10_000,
) -> Collection:
    """(node, dist): the least sum of weights on a path from a root to each node that one reaches.

    ``weight``: int64, float64 or decimal(p,s), and ``dist`` is int64, float64 or decimal(18,s). Integers and decimals
    are exact. Weights may be negative. A cycle with a negative sum that a root reaches is a Diverged error, and so is
    a best path of more than ``max_rounds`` edges. An edge without a weight is ignored; of parallel edges the least
    weight counts.
    Cost: O(E) a round, in as many rounds as the longest best path has edges; each node's distance may improve in each
    round. Raises ProgramError.
    Source: Bellman 1958, Ford 1956, Moore 1959.
    """
    links = edges_of("shortest_paths", edges, src, dst, weight=weight)
    kind = parse_type(links.schema["weight"])
    if kind.name not in ("int64", "float64", "decimal"):
        raise ProgramError(f"{caller()}: shortest_paths: {weight} is {kind}", "cast it to int64, float64 or a decimal")
    number = pl.Decimal(18, kind.scale) if kind.name == "decimal" else kind.polars
    start = rows_of("shortest_paths", "roots", roots, node, links).select("node", dist=pl.lit(0).cast(number))

    def relax(reached: Collection) -> Collection:
        onward = reached.join(links, on={"node": "src"})
        further = onward.select(node="dst", dist=(col("dist") + col("weight")).cast(number))
        return further.concat(start).group_by("node").agg(dist=aggregates.min("dist"))

    return start.iterate(relax, max_rounds=max_rounds)
