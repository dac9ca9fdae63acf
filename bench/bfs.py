"""In-process engine against the Rust crate: breadth-first search, 1M nodes, 5M edges, 1,000 versions of 100 changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import rust_peer
from bench.measure import Result, Side, agree, in_turn
from bench.project import engine

# The promises are about the hand-tuned form; the plain one is for information.
PEERS = {
    "crate, shared, 1 worker": ("shared", 1),
    "crate, plain, 1 worker": ("plain", 1),
    "crate, shared, 2 workers": ("shared", 2),
}
OURS = {1: "ours", 2: "ours, 2 threads"}
SINGLE = {"POLARS_MAX_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # threads of the libraries


def run(rounds: int) -> Iterator[Result]:
    """Load and replay against each peer, with as many threads as the peer has workers."""
    rust_peer.binary()
    files = rust_peer.graph(nodes=1_000_000, edges=5_000_000, versions=1_000, changes=100)
    sides: dict[str, Side] = {
        name: partial(engine, "bfs_engine", files.edges, files.changes, "--threads", threads, environment=SINGLE)
        for threads, name in OURS.items()
    }
    for name, (shape, workers) in PEERS.items():
        sides[name] = partial(rust_peer.figures, files, "bfs", ("0", "--shape", shape), workers)
    # Two workers spin while they wait for each other: on a busy machine only the fastest runs are meaningful.
    several = [OURS[2], *(name for name, (_, workers) in PEERS.items() if workers > 1)]
    medians = in_turn(sides, rounds, least=several)
    agree(medians, "changes", "checksum")
    for what, figure in (("load", "load"), ("replay of 1,000 versions", "replay")):
        for peer, (_, workers) in PEERS.items():
            own = medians[OURS[workers]]
            yield Result(
                name=f"breadth-first search, {what}{', 2 threads' if workers == 2 else ''}",
                ours=own[f"{figure}_s"],
                peer=peer,
                other=medians[peer][f"{figure}_s"],
                runs=rounds,
                ours_cpu_s=own[f"{figure}_cpu_s"],
                peer_cpu_s=medians[peer][f"{figure}_cpu_s"],
                ours_peak_mib=own["peak_mib"],
                peer_peak_mib=medians[peer]["peak_mib"],
            )
    peer = "crate, shared, 1 worker"
    peaks = [medians[side]["peak_mib"] for side in ("ours", peer)]
    yield Result("breadth-first search, peak memory", peaks[0], peer, peaks[1], rounds, unit="MiB")
