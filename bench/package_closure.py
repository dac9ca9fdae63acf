"""What every package needs, at all versions of the package set, with all differences; in one process.

One fold against Pathway, and against plain Python that searches from scratch at each version that changes something;
and one fold a version against the Rust crate dbsp, one transaction a version.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import dbsp_peer, pathway_peer, promises
from bench.bfs import SINGLE
from bench.measure import Result, Side, Skipped, agree, in_turn
from bench.project import engine, package_set

PATHWAY, PLAIN = "Pathway", "plain Python, a search from scratch at each version"


def run(rounds: int) -> Iterator[Result]:
    """Ours against each peer, and our peak memory. Without one of them the other comparisons are made all the same."""
    log, missing = package_set(), list[str]()
    sides: dict[str, Side] = {
        "ours": partial(engine, "closure_engine", log),
        PLAIN: partial(engine, "peers.closures", log),
    }
    try:
        sides[PATHWAY] = partial(engine, "peers.closure_pathway", log, python=pathway_peer.python())
    except Skipped as why:
        missing.append(str(why))
    medians = in_turn(sides, rounds)
    agree(medians, "changes", "checksum")
    ours = medians.pop("ours")
    name = "package closure, all differences"
    for peer, other in medians.items():
        yield Result(
            name,
            ours["s"],
            peer,
            other["s"],
            rounds,
            ours_cpu_s=ours["cpu_s"],
            peer_cpu_s=other["cpu_s"],
            ours_peak_mib=ours["peak_mib"],
            peer_peak_mib=other["peak_mib"],
        )
    most = promises.amount("closure, peak memory")
    yield Result(f"{name}, peak memory", ours["peak_mib"], f"{most:g} MiB, as promised", most, rounds, unit="MiB")
    try:
        dbsp_peer.program()
    except Skipped as why:
        missing.append(str(why))
    else:
        yield _by_version(rounds)
    if missing:
        raise Skipped("; ".join(missing))


def _by_version(rounds: int) -> Result:
    """Processor time of one thread of ours, and of one worker of dbsp with all threads that it has."""
    log = package_set()
    ours = partial(engine, "closure_engine", log, "--each", environment=SINGLE)
    medians = in_turn({"ours": ours, "dbsp": partial(dbsp_peer.closure, log)}, rounds)
    agree(medians, "changes", "checksum")
    figures, other = medians["ours"], medians["dbsp"]
    return Result(
        "package closure, one fold a version, processor time",
        figures["cpu_s"],
        "dbsp, 1 worker, one transaction a version",
        other["cpu_s"],
        rounds,
        ours_peak_mib=figures["peak_mib"],
        peer_peak_mib=other["peak_mib"],
    )
