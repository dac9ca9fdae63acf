"""One row more in a partition, in a Session: ``python -m bench.windows_engine FUNCTION ROWS`` prints one JSON object.

Timed is the fold of one version, a row somewhere in the order, or behind all others: the median of some versions. A
separate process, as a user's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

import ddcore as dd
from bench.bfs_engine import Clock
from bench.measure import Failed, Figures, summary
from ddcore.jobs.setup import compile_kernels

SCHEMA = {"k": "int64", "n": "int64", "x": "int64"}
VERSIONS = 40
_TOTAL = (lambda: dd.sum("x").rows_between(None, 0)), pl.col("x").cum_sum()
FUNCTIONS: dict[str, tuple[Callable[[], Any], pl.Expr]] = {
    "lag": (lambda: dd.lag("x"), pl.col("x").shift(1)),
    "moving_average": (lambda: dd.mean("x").rows_between(-6, 0), pl.col("x").rolling_mean(7, min_samples=1)),
    "moving_range": (lambda: dd.sum("x").range_between(-12, 0), pl.col("x").rolling_sum_by("n", "13i")),
    "running_total": _TOTAL,
    "total_at_the_end": _TOTAL,
    "rank_at_the_end": (dd.rank, pl.col("n").rank("min")),
}
"""Each, and what Polars gives for rows in order."""


def _log(numbers: Any, values: Any, version: int) -> pl.DataFrame:
    log = pl.DataFrame({"n": numbers, "x": values}, {"n": pl.Int64, "x": pl.Int64})
    return log.select(pl.lit(0).cast(pl.Int64).alias("k"), "n", "x", version=version, diff=1)


def main(function: str, rows: int) -> None:
    """Fold the rows, then one at a time; print the median figures of these. Compares the last result with Polars'."""
    make, expected = FUNCTIONS[function]
    rng, figures = np.random.default_rng(1), list[Figures]()
    places = np.arange(rows, rows + VERSIONS) if function.endswith("end") else rng.permutation(rows)[: VERSIONS + 1]
    numbers = pl.Series(places * 2 + 1)
    load = _log(np.arange(rows) * 2, rng.integers(0, 1000, rows), 0)
    compile_kernels()
    session = dd.Session(lambda t: {"out": t.group_by("k").over("n", it=make())}, {"t": SCHEMA}, threads=1)
    logs, inputs = [session.fold({"t": load})["out"]], [load]
    for version, number in enumerate(numbers, 1):
        inputs.append(_log([number], [version], version))
        clock = Clock()
        logs.append(session.fold({"t": inputs[-1]})["out"])
        figures.append({name.removeprefix("fold_"): value for name, value in clock.figures("fold").items()})
    result = pl.concat(logs).group_by("n", "x", "it").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    whole = pl.concat(inputs).sort("n").select("n", "x", it=expected)
    if not result.sort("n").select("n", "x", "it").cast(pl.Float64).equals(whole.cast(pl.Float64)):
        raise Failed(f"{function} of {rows:,} rows is not what Polars computes")
    print(json.dumps(summary(figures[1:])))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.windows_engine")
    parser.add_argument("function", choices=FUNCTIONS)
    parser.add_argument("rows", type=int)
    main(**vars(parser.parse_args()))
