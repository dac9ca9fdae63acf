"""Updates as frames: one form of each float, consolidation and counts, which an ingest needs before it stores rows.

A frame of updates has the columns of the rows, the time columns and ``diff``, as
:func:`ddcore.io.sources.row_checks.normalise` returns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from operator import mul
from typing import Any

import polars as pl

from ddcore.base.errors import DataError
from ddcore.base.lazy import numpy as np
from ddcore.base.record import record
from ddcore.io.project.times import Time

DIFF = "diff"  # the column of the diffs

_MINUS_ZERO = -(2**63)  # the bits of -0.0
_MOST_CELLS = 1 << 22  # of the grids of rows that are added up at a time


def one_nan_one_zero(values: pl.Series) -> pl.Series:
    """Floats of 64 bits without other NaNs and without -0.0. The same series where it has none, as most have."""
    for chunk in values.get_chunks():
        floats = chunk.fill_null(0.0).to_numpy() if chunk.null_count() else chunk.to_numpy()
        if np.isnan(floats).any() or (floats.view(np.int64) == _MINUS_ZERO).any():
            break
    else:
        return values
    ones = pl.when(values == 0.0).then(0.0).otherwise(values)  # not `values + 0.0`: Polars optimizes that away
    return pl.select(ones.alias(values.name)).to_series().fill_nan(float("nan"))


def consolidate(updates: pl.DataFrame, dims: Sequence[str]) -> pl.DataFrame:
    """These updates with one per (row, time) and no diff of 0, sorted by time, then row.

    Nulls are equal to each other, as are NaNs. The order of the result depends on the contents alone.
    O(n log n). Raises DataError when the diffs of one row at one time add up beyond int64.
    """
    if updates.is_empty():
        return updates
    moving = [dim for dim in dims if updates[dim].min() != updates[dim].max()]
    order = [*moving, *(name for name in updates.columns if name not in (*dims, DIFF))]
    ordered = updates.sort(order)
    begins = _differs_from_previous(ordered, order)
    if begins.all():
        return ordered
    starts = begins.arg_true().to_numpy()
    diffs = _group_sums(ordered[DIFF].to_numpy(), starts, ordered)
    summed = ordered[starts].with_columns(pl.Series(DIFF, diffs))
    return summed.filter(pl.col(DIFF) != 0)


def consolidate_hashed(updates: pl.DataFrame, dims: Sequence[str], hashes: np.ndarray) -> pl.DataFrame:
    """These updates added up, unsorted. ``hashes`` has 64 bits for each (row, time), uint64[n], equal for equal ones.

    Rows whose hash no other has come first, in their order. Only the others are compared and sorted.
    O(n), and O(n log n) for rows that repeat.
    """
    twice = repeats(hashes)
    return updates if twice is None else pl.concat([updates.filter(~twice), consolidate(updates.filter(twice), dims)])


def repeats(hashes: np.ndarray) -> pl.Series | None:
    """Which of these hashes, uint64[n], occur more than once; None if none does. O(n)."""
    from ddcore.kernels import siphash

    many = len(hashes)
    flags = np.zeros(many, dtype=np.uint8)
    found = siphash.flag_repeats(flags, hashes, np.empty(many, dtype=np.uint64), np.empty(many, dtype=np.int32))
    return pl.Series(flags.view(bool)) if found else None


def ascend(parts: Sequence[pl.Series]) -> bool:
    """Whether of these numbers, one part after the other, each is greater than the one before; so none repeats. O(1)
    where not even the ends of a part do.
    """
    if any(part.null_count() for part in parts):
        return False
    values = [part.to_numpy() for part in parts if len(part)]
    if any(left[-1] >= right[0] for left, right in pairwise(values)):
        return False
    return all(len(part) == 1 or part[0] < part[-1] for part in values) and all(
        (part[1:] > part[:-1]).all() for part in values
    )


def _group_sums(diffs: np.ndarray, starts: np.ndarray, ordered: pl.DataFrame) -> np.ndarray:
    """Sums of the diffs of groups that begin at ``starts``, int64[groups]. DataError if one does not fit."""
    # In halves of 32 bits, whose sums cannot leave int64. So every overflow is found.
    low = np.add.reduceat(diffs & 0xFFFF_FFFF, starts)
    high = np.add.reduceat(diffs >> 32, starts) + (low >> 32)
    beyond = (high < -(2**31)) | (high >= 2**31)
    if beyond.any():
        group = int(np.flatnonzero(beyond)[0])
        total = (int(high[group]) << 32) + int(low[group] & 0xFFFF_FFFF)
        row = ordered.drop(DIFF).row(int(starts[group]), named=True)
        raise DataError(f"the diffs of {row} add up to {total}, beyond int64", "fix the diffs at the source")
    sums: np.ndarray = (high << 32) + (low & 0xFFFF_FFFF)
    return sums


# --- counts -----------------------------------------------------------------------------------------------------------

Counts = dict[Time, tuple[int, int]]  # time -> (sum of the positive diffs, sum of the negative ones without sign)


def accumulate_counts(updates: pl.DataFrame, dims: Sequence[str]) -> Counts:
    """The sums of positive and of negative diffs at each time, exact, in the order of times."""
    if updates.is_empty():
        return {}
    at_once = is_at_one_time(updates, dims)
    least, most = updates.select(least=pl.col(DIFF).min(), most=pl.col(DIFF).max()).row(0)
    if at_once and least == most:
        return {Time(updates.select(dims).row(0)): (max(most, 0) * len(updates), max(-least, 0) * len(updates))}
    # Sums of 64 bits where they cannot leave int64: half the time.
    fits = max(-least, most) * len(updates) < 2**63
    diffs = pl.col(DIFF) if fits else pl.col(DIFF).cast(pl.Int128)
    sides = {"plus": diffs.clip(lower_bound=0).sum(), "minus": diffs.clip(upper_bound=0).sum()}
    sums = updates.select(pl.col(dims).first(), **sides) if at_once else updates.group_by(dims).agg(**sides).sort(dims)
    return {Time(time): (plus, -minus) for *time, plus, minus in sums.iter_rows()}


def is_at_one_time(updates: pl.DataFrame, dims: Sequence[str]) -> bool:
    """Whether all updates, of which there are some, have the same time."""
    return bool(updates.select(pl.all_horizontal(pl.col(dim).min() == pl.col(dim).max() for dim in dims)).item())


def merge_counts(parts: Iterable[Counts]) -> Counts:
    """The counts of all parts together, by time."""
    total: Counts = {}
    for part in parts:
        for time, (plus, minus) in part.items():
            before = total.get(time, (0, 0))
            total[time] = (before[0] + plus, before[1] + minus)
    return {time: total[time] for time in sorted(total)}


# --- running counts ---------------------------------------------------------------------------------------------------


@record
class RowCount:
    """A row, a time, and the row's count there; with one dimension, its count from that version on."""

    row: dict[str, Any]
    version: Time
    count: int


def running_counts(history: pl.DataFrame, dims: Sequence[str], most_cells: int = _MOST_CELLS) -> pl.DataFrame:
    """The exact counts of rows at each time where they may change: the row, the time and ``_count``.

    ``history`` holds every update of these rows. Sorted by time, then row. O(n log n) with one dimension. With several,
    a row's count may change at each combination of the coordinates of its updates, and each of them has a line; some
    ``most_cells`` such are added up at a time.
    """
    return _counts_in_order(history, dims[0]) if len(dims) == 1 else _counts_on_grid(history, dims, most_cells)


def _counts_in_order(history: pl.DataFrame, dim: str) -> pl.DataFrame:
    row = [name for name in history.columns if name not in (dim, DIFF)]
    ordered = history.sort([*row, dim])
    lines = ordered.with_columns(
        pl.col(DIFF).cast(pl.Int128),
        _row=_differs_from_previous(ordered, row).cum_sum(),
        _time=_differs_from_previous(ordered, [*row, dim]).cum_sum(),
    )
    running = lines.with_columns(_count=pl.col(DIFF).cum_sum().over("_row")).group_by("_time").last()
    return running.sort(dim, "_row").select(*row, dim, "_count")


def _counts_on_grid(history: pl.DataFrame, dims: Sequence[str], most_cells: int) -> pl.DataFrame:
    """The counts of each row on the grid of its own coordinates: sums of diffs along one dimension after another."""
    names = [name for name in history.columns if name not in (*dims, DIFF)]
    ordered = history.sort(names)
    numbered = ordered.with_columns(pl.col(DIFF).cast(pl.Int128), _row=_differs_from_previous(ordered, names).cum_sum())
    rows = numbered.unique("_row", keep="first").select("_row", *names)
    updates = numbered.group_by("_row", *dims).agg(pl.col(DIFF).sum())
    cells = reduce(mul, (pl.col(dim).n_unique().cast(pl.Int64) for dim in dims))
    sizes = updates.group_by("_row").agg(_cells=cells).sort("_row")
    sizes = sizes.with_columns(_part=pl.col("_cells").cum_sum() // most_cells)
    parts = updates.join(sizes.select("_row", "_part"), on="_row").partition_by("_part", include_key=False)
    lines = [_grid_sums(part, dims) for part in parts]
    running = pl.concat(lines) if lines else updates.rename({DIFF: "_count"})
    return running.sort(*dims, "_row").join(rows, on="_row", maintain_order="left").select(*names, *dims, "_count")


def _grid_sums(updates: pl.DataFrame, dims: Sequence[str]) -> pl.DataFrame:
    """``_row``, a time of its grid, and ``_count``, the sum of its diffs at or before that time."""
    cells = updates.select("_row").unique()
    for dim in dims:
        cells = cells.join(updates.select("_row", dim).unique(), on="_row")
    cells = cells.join(updates, on=["_row", *dims], how="left").sort("_row", *dims)
    cells = cells.rename({DIFF: "_count"}).with_columns(pl.col("_count").fill_null(0))
    for dim in dims:
        others = [other for other in dims if other != dim]
        cells = cells.with_columns(pl.col("_count").cum_sum().over("_row", *others))
    return cells.select("_row", *dims, "_count")


def first_count(running: pl.DataFrame, dims: Sequence[str], condition: pl.Expr) -> RowCount | None:
    """The first line of :func:`running_counts` where ``condition``, an expression over ``_count``, is true."""
    first = running.filter(condition).head(1)
    if first.is_empty():
        return None
    row = first.drop(*dims, "_count").row(0, named=True)
    return RowCount(row, Time(first.select(dims).row(0)), first["_count"][0])


def _differs_from_previous(ordered: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Whether a row differs from the one before it in these columns; the first does. Nulls are equal, as are NaNs."""
    changes = [pl.col(name).ne_missing(pl.col(name).shift()) for name in names]
    begins = ordered.select(pl.any_horizontal(changes)).to_series()
    if len(begins):
        begins[0] = True  # a first row of nulls equals the nulls that shift() puts before it
    return begins
