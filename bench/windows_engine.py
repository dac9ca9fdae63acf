"""One row more in a partition, in a Session: ``python -m bench.windows_engine FUNCTION ROWS`` prints one JSON object.

Timed is the fold of one version: a row somewhere in the order or, with a third argument, at its start, in the middle,
or behind all others; the median of some versions. A separate process, as a user's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl

import ddcore as dd
from bench.bfs_engine import Clock
from bench.measure import Failed, Figures, summary
from ddcore.jobs.setup import compile_kernels

SCHEMA = {"k": "int64", "n": "int64", "x": "int64"}
VERSIONS = 40
X, BEFORE, NUMBER = pl.col("x"), range(-3, 4), pl.int_range(1, pl.len() + 1)
NOT_ZERO = pl.when(X > 0).then(X)
_AROUND = [X.shift(distance) for distance in BEFORE if distance]


def _frame(function: Any, **options: Any) -> Any:
    """Three rows to either side."""
    return function.rows_between(-3, 3, **options)


def _running(function: Any) -> Any:
    return function.rows_between(None, 0)


def _variance(total: pl.Expr, squares: pl.Expr, number: pl.Expr) -> pl.Expr:
    return pl.when(number > 1).then((squares - total * total / number) / (number - 1))


FUNCTIONS: dict[str, tuple[Callable[[], Any], pl.Expr]] = {
    "lag": (lambda: dd.lag("x"), X.shift(1)),
    "lead": (lambda: dd.lead("x", 3), X.shift(-3)),
    "first_value": (lambda: _frame(dd.first_value("x")), pl.when(NUMBER > 3).then(X.shift(3)).otherwise(X.first())),
    "last_value": (
        lambda: _frame(dd.last_value("x")), pl.when(pl.len() - 3 >= NUMBER).then(X.shift(-3)).otherwise(X.last()),
    ),
    "nth_value": (
        lambda: _frame(dd.nth_value("x", 2)), pl.when(NUMBER > 3).then(X.shift(2)).otherwise(X.get(1)),
    ),
    "moving_average": (lambda: dd.mean("x").rows_between(-6, 0), X.rolling_mean(7, min_samples=1)),
    "moving_range": (lambda: dd.sum("x").range_between(-12, 0), X.rolling_sum_by("n", "13i")),
    "moving_interval": (
        lambda: dd.sum("x").range_between(timedelta(seconds=-12), timedelta(0)), X.rolling_sum_by("n", "13i"),
    ),
    "moving_maximum": (lambda: _frame(dd.max("x"), exclude="row"), pl.max_horizontal(_AROUND)),
    "moving_minimum": (lambda: _frame(dd.min("x"), exclude="peers"), pl.min_horizontal(_AROUND)),
    "moving_groups": (
        lambda: dd.sum("x").groups_between(-3, 3, exclude="ties"), pl.sum_horizontal([*_AROUND, X]),
    ),
    "moving_count": (
        lambda: _frame(dd.count(where="x > 500")), pl.sum_horizontal([item > 500 for item in (*_AROUND, X)]),
    ),
    "moving_distinct": (
        lambda: dd.count_distinct("x").rows_between(-1, 0), 1 + (X.shift(1) != X).fill_null(value=False),
    ),
    "moving_truth": (lambda: _frame(dd.all(dd.col("x") > 100)), pl.min_horizontal([*_AROUND, X]) > 100),
    "moving_variance": (lambda: dd.variance("x").rows_between(-6, 0), X.rolling_var(7, min_samples=2)),
    "moving_correlation": (
        lambda: dd.corr("x", dd.col("n") % 11).rows_between(-6, 0),
        pl.rolling_corr(X, pl.col("n") % 11, window_size=7, min_samples=2),
    ),
    "moving_median": (lambda: dd.median("x").rows_between(-6, 0), X.rolling_median(7, min_samples=1)),
    "moving_list": (
        lambda: dd.array_agg("x").rows_between(-2, 0), pl.concat_list(X.shift(2), X.shift(1), X).list.drop_nulls(),
    ),
    "moving_text": (
        lambda: dd.string_agg(dd.col("x").cast(pl.String), " ").rows_between(-2, 0),
        pl.concat_str([X.shift(2), X.shift(1), X], separator=" ", ignore_nulls=True),
    ),
    "row_number": (dd.row_number, NUMBER),
    "rank": (dd.rank, pl.col("n").rank("min")),
    "dense_rank": (dd.dense_rank, pl.col("n").rank("dense")),
    "running_total": ((lambda: _running(dd.sum("x"))), X.cum_sum()),
    "total_to_the_end": ((lambda: dd.sum("x").rows_between(0, None)), X.cum_sum(reverse=True)),
    "running_mean": (lambda: _running(dd.mean("x")), X.cum_sum() / X.cum_count()),
    "running_sum_of_floats": ((lambda: _running(dd.sum(dd.col("x") / 8))), (X / 8).cum_sum()),
    "running_variance": (
        lambda: _running(dd.variance("x")), _variance(X.cast(pl.Float64).cum_sum(), (X * X).cum_sum(), NUMBER),
    ),
    "running_distinct": (lambda: _running(dd.count_distinct("x")), X.is_first_distinct().cum_sum()),
    "running_maximum": (lambda: _running(dd.max("x")), X.cum_max()),
    "running_minimum": (lambda: _running(dd.min("x")), X.cum_min()),
    "running_last": (lambda: _running(dd.last_value(NOT_ZERO, ignore_nulls=True)), NOT_ZERO.forward_fill()),
    "running_first": (lambda: _running(dd.first_value("x")), X.first()),
    "running_third": (lambda: _running(dd.nth_value("x", 3)), pl.when(NUMBER > 2).then(X.get(2))),
    "total_before": (lambda: dd.sum("x").rows_between(None, -1), X.cum_sum().shift(1).fill_null(0)),
    "total_a_distance_before": (
        lambda: dd.sum("x").range_between(None, -12), X.cum_sum() - X.rolling_sum_by("n", "12i"),
    ),
    "total_without_the_row": (lambda: dd.sum("x").rows_between(None, 0, exclude="row"), X.cum_sum() - X),
    "total_from_before": (
        lambda: dd.sum("x").rows_between(-3, None), pl.coalesce(X.cum_sum(reverse=True).shift(3), X.sum()),
    ),
    "lag_without_nulls": (lambda: dd.lag(NOT_ZERO, ignore_nulls=True), NOT_ZERO.forward_fill().shift(1)),
    "lag_of_two_values": (
        lambda: dd.lag(NOT_ZERO, 2, ignore_nulls=True),
        pl.when(NOT_ZERO.is_not_null()).then(NOT_ZERO.forward_fill().shift(1)).forward_fill().shift(1),
    ),
    "lead_without_nulls": (lambda: dd.lead(NOT_ZERO, ignore_nulls=True), NOT_ZERO.backward_fill().shift(-1)),
    "first_to_the_end": (
        lambda: dd.first_value("x").rows_between(-2, None), pl.when(NUMBER > 2).then(X.shift(2)).otherwise(X.first()),
    ),
    "several": (
        lambda: {"it": _running(dd.sum("x")), "part": dd.ntile(4), "of_range": dd.sum("x").range_between(-12, 0)},
        X.cum_sum(),
    ),
    "ntile": ((lambda: dd.ntile(4)), ((pl.col("n").rank("ordinal") - 1) * 4 // pl.len() + 1)),
    "percent_rank": (dd.percent_rank, (NUMBER - 1) / (pl.len() - 1)),
    "cume_dist": (dd.cume_dist, NUMBER / pl.len()),
}  # fmt: skip
"""Each, or several of which ``it`` is compared, and what Polars gives for rows in order."""


def _log(numbers: Any, values: Any, version: int) -> pl.DataFrame:
    log = pl.DataFrame({"n": numbers, "x": values}, {"n": pl.Int64, "x": pl.Int64})
    return log.select(pl.lit(0).cast(pl.Int64).alias("k"), "n", "x", version=version, diff=1)


def _is_close(ours: pl.Series, other: pl.Series) -> bool:
    """Whether results are equal; of what Polars rounds on the way, about."""
    if not other.dtype.is_numeric():
        return ours.equals(other)
    ours, other = ours.cast(pl.Float64), other.cast(pl.Float64)
    frame = pl.DataFrame({"ours": ours, "others": other})
    far = (pl.col("ours") - pl.col("others")).abs() > 1e-9 * pl.col("others").abs().max()
    return ours.is_null().equals(other.is_null()) and not frame.select(far.any()).item()


def main(function: str, rows: int, at: str | None) -> None:
    """Fold the rows, then one at a time; print the median figures of these. Compares the last result with Polars'."""
    make, expected = FUNCTIONS[function]
    rng, figures = np.random.default_rng(1), list[Figures]()
    locations = rng.permutation(rows)[: VERSIONS + 1]
    if at is not None:
        locations = np.arange(VERSIONS) + {"start": 0, "middle": rows // 2, "end": rows}[at]
    numbers = pl.Series(locations * 2 + 1)
    load = _log(np.arange(rows) * 2, rng.integers(0, 1000, rows), 0)
    compile_kernels()

    def program(t: Any) -> Any:
        if function != "moving_interval":
            functions = made if isinstance(made := make(), dict) else {"it": made}
            return {"out": t.group_by("k").over("n", **functions)}
        instants = t.with_columns(at=(dd.col("n") * 1_000_000).cast(pl.Datetime("us")))
        return {"out": instants.group_by("k").over("at", it=make()).select("k", "n", "x", "it")}

    session = dd.Session(program, {"t": SCHEMA}, threads=1)
    logs, inputs = [session.fold({"t": load})["out"]], [load]
    for version, number in enumerate(numbers, 1):
        inputs.append(_log([number], [version], version))
        clock = Clock()
        logs.append(session.fold({"t": inputs[-1]})["out"])
        figures.append({name.removeprefix("fold_"): value for name, value in clock.figures("fold").items()})
    result = pl.concat(logs).group_by("n", "x", "it").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    whole = pl.concat(inputs).sort("n").select("n", "x", it=expected)
    if not _is_close(result.sort("n")["it"], whole["it"]):
        raise Failed(f"{function} of {rows:,} rows is not what Polars computes")
    print(json.dumps(summary(figures[1:])))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.windows_engine")
    parser.add_argument("function", choices=FUNCTIONS)
    parser.add_argument("rows", type=int)
    parser.add_argument("at", nargs="?", choices=("start", "middle", "end"))
    main(**vars(parser.parse_args()))
