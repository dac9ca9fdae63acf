"""The workloads of :mod:`bench.graphs` on a graph of 1M nodes and 5M edges: some five minutes and 10 GiB a round.

Not among the default benchmarks: ``python -m bench graphs_large --rounds 1``.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import graphs
from bench.measure import Result


def run(rounds: int) -> Iterator[Result]:
    """The workloads of :func:`bench.graphs.run` on a larger graph."""
    return graphs.run(rounds, graphs.LARGE)
