"""In-process engine against the Rust crate: components plain and prioritised, triangles per node, degrees.

Ratios are of processor time: one thread of ours against one worker of the crate, which also holds on a busy machine.
Those of components with two threads against two workers are by the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from bench import rust_peer
from bench.bfs import SINGLE
from bench.measure import Figures, Result, Side, agree, in_turn
from bench.project import engine

SIZE = {"nodes": 500_000, "edges": 1_000_000, "versions": 100, "changes": 100}
LARGE = {"nodes": 1_000_000, "edges": 5_000_000, "versions": 100, "changes": 100}
PEERS: dict[str, tuple[str, Sequence[str]]] = {
    "components": ("cc", ("--shape", "plain")),
    "components, prioritised": ("cc", ("--prioritized",)),
    "triangles per node": ("triangles", ()),
    "degrees": ("degrees", ()),
}


def run(rounds: int, size: Mapping[str, int] = SIZE) -> Iterator[Result]:
    """Load and replay of each workload against the crate, and components plain against prioritised."""
    rust_peer.binary()
    files = rust_peer.graph(**size)
    loads: dict[str, Figures] = {}
    for workload, (name, options) in PEERS.items():
        peer = partial(rust_peer.figures, files, name, options)
        arguments = (workload, files.edges, files.changes, files.nodes)
        ours = partial(engine, "graph_engine", *arguments, environment=SINGLE)
        sides: dict[str, Side] = {"ours": ours, "crate": peer}
        medians = in_turn(sides, rounds)
        loads[workload] = medians["ours"]
        agree(medians, "changes", "checksum")
        both = medians["ours"], medians["crate"]
        yield _compared(f"{workload}, load", "crate, 1 worker", "load", both, rounds)
        yield _compared(f"{workload}, replay of 100 versions", "crate, 1 worker", "replay", both, rounds)
        peaks = [side["peak_mib"] for side in both]
        yield Result(f"{workload}, peak memory", peaks[0], "crate, 1 worker", peaks[1], rounds, unit="MiB")
    both = loads["components, prioritised"], loads["components"]
    for what, figure in (("load", "load"), ("replay of 100 versions", "replay")):
        name = f"components, prioritised, {what}"
        yield _compared(name, "ours, without a priority", figure, both, rounds)
    yield from _two_threads(files, rounds)


def _two_threads(files: rust_peer.GraphFiles, rounds: int) -> Iterator[Result]:
    """Components. The least of the runs counts: two workers spin while they wait for each other."""
    name, options = PEERS["components"]
    arguments = ("components", files.edges, files.changes, files.nodes, "--threads", 2)
    sides: dict[str, Side] = {
        "ours": partial(engine, "graph_engine", *arguments, environment=SINGLE),
        "crate": partial(rust_peer.figures, files, name, options, 2),
    }
    least = in_turn(sides, rounds, least=[*sides])
    agree(least, "changes", "checksum")
    ours, other = least["ours"], least["crate"]
    for what, figure in (("load", "load"), ("replay of 100 versions", "replay")):
        yield Result(
            f"components, {what}, 2 threads",
            ours[f"{figure}_s"],
            "crate, 2 workers",
            other[f"{figure}_s"],
            rounds,
            ours_cpu_s=ours[f"{figure}_cpu_s"],
            peer_cpu_s=other[f"{figure}_cpu_s"],
            ours_peak_mib=ours["peak_mib"],
            peer_peak_mib=other["peak_mib"],
        )


def _compared(name: str, peer: str, figure: str, both: tuple[Figures, Figures], rounds: int) -> Result:
    return Result(
        name=f"{name}, processor time",
        ours=both[0][f"{figure}_cpu_s"],
        peer=peer,
        other=both[1][f"{figure}_cpu_s"],
        runs=rounds,
        ours_peak_mib=both[0]["peak_mib"],
        peer_peak_mib=both[1]["peak_mib"],
    )
