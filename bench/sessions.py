"""Breadth-first search kept up to date: one fold a version in a Session, against the crate one version at a time.

1M nodes and 5M edges, as in :mod:`bench.bfs`. The time of a fold of few changes is mostly that of its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import rust_peer
from bench.bfs import SINGLE
from bench.measure import Result, agree, in_turn
from bench.project import engine

CHANGES = (100, 2)  # in each version
VERSIONS = 200


def run(rounds: int, nodes: int = 1_000_000, edges: int = 5_000_000) -> Iterator[Result]:
    """Versions of 100 changes, then versions of two."""
    rust_peer.binary()
    peer = "crate, shared, one version at a time"
    for changes in CHANGES:
        files = rust_peer.graph(nodes, edges, VERSIONS, changes)
        medians = in_turn(
            {
                "ours": partial(engine, "bfs_engine", files.edges, files.changes, "--each", environment=SINGLE),
                peer: partial(rust_peer.figures, files, "bfs", ("0", "--shape", "shared", "--batch", "1")),
            },
            rounds,
        )
        agree(medians, "changes", "checksum")
        ours, other = medians.values()
        yield Result(
            f"breadth-first search, one fold a version, {VERSIONS} versions of {changes}",
            ours["replay_s"],
            peer,
            other["replay_s"],
            rounds,
            ours_cpu_s=ours["replay_cpu_s"],
            peer_cpu_s=other["replay_cpu_s"],
            ours_peak_mib=ours["peak_mib"],
            peer_peak_mib=other["peak_mib"],
        )
