"""One row more in a partition of a million, against the same in one of ten thousand, for each function of windows:
anywhere where its frame moves, behind all others where it runs from the first row on, before them where it runs to the
end. In the middle a distinct number and a maximum, and in smaller partitions a running total, of which half the results
change, and what costs the partition.

In a Session, whose state is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.measure import Result, in_turn
from bench.project import engine
from bench.windows_engine import FUNCTIONS

LARGE, SMALLER = (1_000_000, 10_000), (100_000, 10_000)
_NEAR = "lag", "lead", "first_value", "last_value", "nth_value", "ntile", "first_to_the_end"
_AT: dict[str, list[str]] = {
    "total_to_the_end": ["start"], "total_from_before": ["start"], "running_distinct": ["middle"],
    "running_third": ["middle"], "lag_without_nulls": ["middle"], "lead_without_nulls": ["middle"],
}  # fmt: skip
_HALF = "running_total", "percent_rank", "cume_dist"
SIZES: dict[tuple[str, ...], tuple[int, int]] = {
    (function, *([] if function in _NEAR or function.startswith("moving") else _AT.get(function, ["end"]))): LARGE
    for function in FUNCTIONS
    if function not in _HALF
}
SIZES |= {("running_total", "end"): LARGE, ("running_maximum", "middle"): LARGE}
SIZES |= {(name,): SMALLER for name in _HALF}


def run(rounds: int) -> Iterator[Result]:
    """Both sizes of each function; a result is compared with Polars'."""
    for (function, *location), (large, small) in SIZES.items():
        sides = {str(rows): partial(engine, "windows_engine", function, rows, *location) for rows in (large, small)}
        figures = in_turn(sides, rounds)
        ours, other = figures[str(large)], figures[str(small)]
        what = " at the ".join((function.replace("_", " "), *location))
        name = f"a fold in a Session, {what}, one row more in {large:,}"
        yield Result(
            name, ours["s"], f"ours, in {small:,}", other["s"], rounds,
            ours_cpu_s=ours["cpu_s"], peer_cpu_s=other["cpu_s"],
        )  # fmt: skip
