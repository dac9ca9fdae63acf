"""One row more in a partition, in a Session: ``python -m bench.windows_engine FUNCTION ROWS`` prints one JSON object.

Timed is the fold of one version: a row somewhere in the order or, with a third argument, at its start, in the middle,
or behind all others; the median of some versions. A separate process, as a user's.
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
FUNCTIONS: dict[str, tuple[Callable[[], Any], pl.Expr]] = {
    "lag": (lambda: dd.lag("x"), pl.col("x").shift(1)),
    "moving_average": (lambda: dd.mean("x").rows_between(-6, 0), pl.col("x").rolling_mean(7, min_samples=1)),
    "moving_range": (lambda: dd.sum("x").range_between(-12, 0), pl.col("x").rolling_sum_by("n", "13i")),
    "running_total": ((lambda: dd.sum("x").rows_between(None, 0)), pl.col("x").cum_sum()),
    "rank": (dd.rank, pl.col("n").rank("min")),
    "running_mean": (lambda: dd.mean("x").rows_between(None, 0), pl.col("x").cum_sum() / pl.col("x").cum_count()),
    "running_sum_of_floats": ((lambda: dd.sum(dd.col("x") / 8).rows_between(None, 0)), (pl.col("x") / 8).cum_sum()),
    "running_distinct": (
        (lambda: dd.count_distinct("x").rows_between(None, 0)), pl.col("x").is_first_distinct().cum_sum(),
    ),
    "running_maximum": (lambda: dd.max("x").rows_between(None, 0), pl.col("x").cum_max()),
    "ntile": ((lambda: dd.ntile(4)), ((pl.col("n").rank("ordinal") - 1) * 4 // pl.len() + 1)),
}  # fmt: skip
"""Each, and what Polars gives for rows in order."""


def _log(numbers: Any, values: Any, version: int) -> pl.DataFrame:
    log = pl.DataFrame({"n": numbers, "x": values}, {"n": pl.Int64, "x": pl.Int64})
    return log.select(pl.lit(0).cast(pl.Int64).alias("k"), "n", "x", version=version, diff=1)


def main(function: str, rows: int, at: str | None) -> None:
    """Fold the rows, then one at a time; print the median figures of these. Compares the last result with Polars'."""
    make, expected = FUNCTIONS[function]
    rng, figures = np.random.default_rng(1), list[Figures]()
    places = rng.permutation(rows)[: VERSIONS + 1]
    if at is not None:
        places = np.arange(VERSIONS) + {"start": 0, "middle": rows // 2, "end": rows}[at]
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
    parser.add_argument("at", nargs="?", choices=("start", "middle", "end"))
    main(**vars(parser.parse_args()))
