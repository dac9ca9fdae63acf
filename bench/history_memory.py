"""Peak memory of a fold for each update that it handles: a grouping and a self-join over 15,000 versions.

The history is a seeded imitation of one of power outages, recorded every quarter of an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import promises
from bench.measure import Result, in_turn
from bench.project import engine

VERSIONS = 15_000


def run(rounds: int, versions: int = VERSIONS) -> Iterator[Result]:
    """One side, which checks its result at some versions. Memory is that of the process, input and all."""
    most = promises.amount("memory of a long history")
    figures = in_turn({"ours": partial(engine, "history_engine", "--versions", versions)}, rounds)["ours"]
    yield Result(
        f"a grouping and a self-join over {versions:,} versions, peak memory",
        figures["bytes_per_update"],
        f"{most:.0f} bytes, as promised",
        most,
        rounds,
        unit="B per update",
        ours_cpu_s=figures["fold_cpu_s"],
        ours_peak_mib=figures["peak_mib"],
    )
