"""Pairs of equal rows in two frames, which two snapshots of the same thing mostly consist of.

Whatever pairs are found, taking both rows of each out leaves the difference of the two frames as it is. So only the
search has to be fast, not complete: rows are compared where both frames ascend by one of their columns, which exported
tables often do by their first.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ddcore.base.lazy import numpy as np


def without_pairs(
    one: pl.DataFrame, other: pl.DataFrame, columns: Sequence[str], least: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both frames without pairs of rows, one of each, that are equal in ``columns``; not all pairs are found,
    and of fewer than ``least`` rows none: the search is not worth it.

    O(n) comparisons where both ascend by a column of numbers or times without nulls, else nothing is done.
    """
    if min(len(one), len(other)) < least or any(one.schema[name].is_nested() for name in columns):
        return one, other
    name = next((name for name in columns if _ascends(one[name]) and _ascends(other[name])), None)
    if name is None:
        return one, other
    if len(one) == len(other) and one[name].equals(other[name]):  # most snapshots: rows changed, none came or went
        differs = pl.any_horizontal(one[column].ne_missing(other[column]) for column in columns)
        return one.filter(differs), other.filter(differs)
    ours, others = (frame[name].to_physical().to_numpy() for frame in (one, other))
    left, right = _aligned(ours, others)
    equal = np.ones(len(left), dtype=bool)
    for column in columns:
        equal &= _taken(one[column], left).eq_missing(_taken(other[column], right)).to_numpy()
    return _without(one, left[equal]), _without(other, right[equal])


def _aligned(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of equal values in two ascending arrays: the n-th of a value in the one, and the n-th in the other."""
    short = min(len(one), len(other))
    differs = one[:short] != other[:short]
    start = int(differs.argmax()) if differs.any() else short  # up to here the n-th is simply at the same place
    start = int(np.searchsorted(one, one[start])) if start < len(one) else start
    rest, others = one[start:], other[start:]
    positions = np.searchsorted(others, rest) + np.arange(len(rest)) - np.searchsorted(rest, rest)
    inside = positions < len(others)
    inside[inside] = others[positions[inside]] == rest[inside]
    same = np.arange(start)
    return np.concatenate([same, start + np.flatnonzero(inside)]), np.concatenate([same, start + positions[inside]])


def _taken(values: pl.Series, positions: np.ndarray) -> pl.Series:
    """The values at ascending places; all of them without a copy."""
    return values if len(positions) == len(values) else values.gather(positions)


def _ascends(values: pl.Series) -> bool:
    is_ordered = values.dtype.is_integer() or values.dtype.is_temporal()
    return is_ordered and values.null_count() == 0 and values.is_sorted()


def _without(frame: pl.DataFrame, positions: np.ndarray) -> pl.DataFrame:
    keeps = np.ones(len(frame), dtype=bool)
    keeps[positions] = False
    return frame.filter(pl.Series(keeps))
