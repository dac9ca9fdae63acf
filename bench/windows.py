"""One row more in a partition of a million, against the same in one of ten thousand: lag, a moving average, a moving
range, a total, a mean, a sum of floats and a rank of a row behind all others, a distinct number in the middle, and in
smaller partitions a running total, of which half the results change.

In a Session, whose state is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.measure import Result, in_turn
from bench.project import engine

LARGE = 1_000_000, 10_000
SIZES: dict[tuple[str, ...], tuple[int, int]] = {
    ("lag",): LARGE, ("moving_average",): LARGE, ("moving_range",): LARGE, ("running_total", "end"): LARGE,
    ("rank", "end"): LARGE, ("running_mean", "end"): LARGE, ("running_sum_of_floats", "end"): LARGE,
    ("running_distinct", "middle"): LARGE, ("running_total",): (100_000, 10_000),
}  # fmt: skip


def run(rounds: int) -> Iterator[Result]:
    """Both sizes of each function; a result is compared with Polars'."""
    for (function, *place), (large, small) in SIZES.items():
        sides = {str(rows): partial(engine, "windows_engine", function, rows, *place) for rows in (large, small)}
        figures = in_turn(sides, rounds)
        ours, theirs = figures[str(large)], figures[str(small)]
        what = " at the ".join((function.replace("_", " "), *place))
        name = f"a fold in a Session, {what}, one row more in {large:,}"
        yield Result(
            name, ours["s"], f"ours, in {small:,}", theirs["s"], rounds,
            ours_cpu_s=ours["cpu_s"], peer_cpu_s=theirs["cpu_s"],
        )  # fmt: skip
