"""Longest paths in a chain that grows, in one fold: 2,000 nodes in 20 versions against 500 nodes in 20 versions.

Each version adds as many nodes to the chain's end. Every node takes part in as many rounds as it has predecessors, so
the differences inside the loop grow with the square of the chain's length: 16 times.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.measure import Result, in_turn
from bench.project import engine

VERSIONS, SHORT, LONG = 20, 500, 2_000


def run(rounds: int, short: int = SHORT, long: int = LONG) -> Iterator[Result]:
    """Both lengths in turn; each side checks its result, which is known."""
    sides = {nodes: partial(engine, "chain_engine", nodes, "--versions", VERSIONS) for nodes in (short, long)}
    other, ours = in_turn({f"{nodes} nodes": side for nodes, side in sides.items()}, rounds).values()
    yield Result(
        f"longest paths, a chain of {long:,} nodes, {VERSIONS} versions",
        ours["fold_s"],
        f"ours, a chain of {short:,} nodes",
        other["fold_s"],
        rounds,
        ours_cpu_s=ours["fold_cpu_s"],
        peer_cpu_s=other["fold_cpu_s"],
        ours_peak_mib=ours["peak_mib"],
        peer_peak_mib=other["peak_mib"],
    )
