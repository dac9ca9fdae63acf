"""In-process engine against the Rust crate: components plain and prioritised, triangles per node, degrees.

Ratios are of processor time: one thread of ours against one worker of the crate, which also holds on a busy machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench import rust_peer
from bench.bfs import SINGLE
from bench.measure import Failed, Figures, Result, Side, in_turn, prompt_to_prompt
from bench.project import REPOSITORY
from bench.rust_peer import GraphFiles

LIMIT = 1.5  # of the load; replays have no promise
SIZE = {"nodes": 500_000, "edges": 1_000_000, "versions": 100, "changes": 100}
LARGE = {"nodes": 1_000_000, "edges": 5_000_000, "versions": 100, "changes": 100}
PEERS: dict[str, tuple[str, Sequence[str]]] = {
    "components": ("cc", ("--shape", "plain")),
    "components, prioritised": ("cc", ("--prioritized",)),
    "triangles per node": ("triangles", ()),
    "degrees": ("degrees", ()),
}


@dataclass(frozen=True)
class Terms:
    """How often each side runs, and the greatest ratio promised."""

    runs: int
    limit: float | None = None


def run(rounds: int, size: Mapping[str, int] = SIZE) -> Iterator[Result]:
    """Load and replay of each workload against the crate, and components plain against prioritised."""
    rust_peer.binary()
    files = rust_peer.graph(**size)
    loads: dict[str, Figures] = {}
    for workload, (name, options) in PEERS.items():
        peer = partial(rust_peer.figures, files, name, options)
        sides: dict[str, Side] = {"ours": partial(ours, files, workload), "crate": peer}
        medians = in_turn(sides, rounds)
        loads[workload] = medians["ours"]
        if any(medians["ours"][what] != medians["crate"][what] for what in ("changes", "checksum")):
            raise Failed(f"{workload}: ours and the crate disagree: {medians}")
        both = medians["ours"], medians["crate"]
        yield _compared(f"{workload}, load", "crate, 1 worker", "load", both, Terms(rounds, LIMIT))
        yield _compared(f"{workload}, replay of 100 versions", "crate, 1 worker", "replay", both, Terms(rounds))
    both = loads["components, prioritised"], loads["components"]
    for what, figure in (("load", "load"), ("replay of 100 versions", "replay")):
        name = f"components, prioritised, {what}"
        yield _compared(name, "ours, without a priority", figure, both, Terms(rounds, 1.0))


def ours(files: GraphFiles, workload: str) -> Figures:
    """One run in a fresh process."""
    command = [sys.executable, "-m", "bench.graph_engine", workload, files.edges, files.changes, files.nodes]
    _, stdout = prompt_to_prompt(command, cwd=REPOSITORY, environment=SINGLE)
    figures: Figures = json.loads(stdout.splitlines()[-1])
    return figures


def _compared(name: str, peer: str, figure: str, both: tuple[Figures, Figures], terms: Terms) -> Result:
    return Result(
        name=f"{name}, processor time",
        ours_s=both[0][f"{figure}_cpu_s"],
        peer=peer,
        peer_s=both[1][f"{figure}_cpu_s"],
        runs=terms.runs,
        limit=terms.limit,
        ours_peak_mib=both[0]["peak_mib"],
        peer_peak_mib=both[1]["peak_mib"],
    )
