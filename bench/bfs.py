"""In-process engine against the Rust crate: breadth-first search, 1M nodes, 5M edges, 1,000 versions of 100 changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial

from bench import rust_peer
from bench.measure import Failed, Figures, Result, Side, in_turn, prompt_to_prompt
from bench.project import REPOSITORY
from bench.rust_peer import GraphFiles

# The promise is about the hand-tuned form with one worker; the others are for information.
PEERS = {
    "crate, shared, 1 worker": ("shared", 1),
    "crate, plain, 1 worker": ("plain", 1),
    "crate, shared, 2 workers": ("shared", 2),
}
LIMITS = {("load", "crate, shared, 1 worker"): 1.0, ("replay", "crate, shared, 1 worker"): 1.5}
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def run(rounds: int) -> Iterator[Result]:
    """Load and replay against each peer. Ours has one thread."""
    rust_peer.binary()
    files = rust_peer.graph(nodes=1_000_000, edges=5_000_000, versions=1_000, changes=100)
    sides: dict[str, Side] = {"ours": partial(ours, files)}
    for name, (shape, workers) in PEERS.items():
        sides[name] = partial(rust_peer.breadth_first_search, files, shape, workers)
    # Two workers spin while they wait for each other: on a busy machine only the fastest run is meaningful.
    medians = in_turn(sides, rounds, least=[name for name, (_, workers) in PEERS.items() if workers > 1])
    for side, figures in medians.items():
        if any(figures[what] != medians["ours"][what] for what in ("changes", "checksum")):
            raise Failed(f"ours and {side} disagree: {medians['ours']} {figures}")
    for what, figure in (("load", "load"), ("replay of 1,000 versions", "replay")):
        for peer in PEERS:
            yield Result(
                name=f"breadth-first search, {what}",
                ours_s=medians["ours"][f"{figure}_s"],
                peer=peer,
                peer_s=medians[peer][f"{figure}_s"],
                runs=rounds,
                limit=LIMITS.get((figure, peer)),
                ours_cpu_s=medians["ours"][f"{figure}_cpu_s"],
                peer_cpu_s=medians[peer][f"{figure}_cpu_s"],
                ours_peak_mib=medians["ours"]["peak_mib"],
                peer_peak_mib=medians[peer]["peak_mib"],
            )


def ours(files: GraphFiles) -> Figures:
    """One run in a fresh process."""
    command = [sys.executable, "-m", "bench.bfs_engine", files.edges, files.changes]
    _, stdout = prompt_to_prompt(command, cwd=REPOSITORY, environment=ONE_THREAD)
    figures: Figures = json.loads(stdout.splitlines()[-1])
    return figures
