"""What every package needs, at all versions of the package set, with all differences; in one process.

One fold against Pathway, and against plain Python that searches from scratch at each version that changes something.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import pathway_peer, promises
from bench.measure import Result, Side, Skipped, agree, in_turn
from bench.project import engine, package_set

PATHWAY, PLAIN = "Pathway", "plain Python, a search from scratch at each version"


def run(rounds: int) -> Iterator[Result]:
    """Ours against each peer, then our peak memory. Without Pathway the other comparisons are made all the same."""
    log, missing = package_set(), None
    sides: dict[str, Side] = {
        "ours": partial(engine, "closure_engine", log),
        PLAIN: partial(engine, "peers.closures", log),
    }
    try:
        sides[PATHWAY] = partial(engine, "peers.closure_pathway", log, python=pathway_peer.python())
    except Skipped as why:
        missing = why
    medians = in_turn(sides, rounds)
    agree(medians, "changes", "checksum")
    ours = medians.pop("ours")
    name = "package closure, all differences"
    for peer, theirs in medians.items():
        yield Result(
            name,
            ours["s"],
            peer,
            theirs["s"],
            rounds,
            ours_cpu_s=ours["cpu_s"],
            peer_cpu_s=theirs["cpu_s"],
            ours_peak_mib=ours["peak_mib"],
            peer_peak_mib=theirs["peak_mib"],
        )
    most = promises.amount("closure, peak memory")
    yield Result(f"{name}, peak memory", ours["peak_mib"], f"{most:g} MiB, as promised", most, rounds, unit="MiB")
    if missing:
        raise missing
