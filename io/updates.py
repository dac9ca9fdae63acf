"""Updates as frames: what ingest does to the rows it has taken in, before they are stored.

A frame of updates has the columns of the rows, the time columns and ``diff``, as :func:`ddcore.io.checks.normalise`
makes them. Here such frames are consolidated, counted and given a digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import polars_hash as plh

from ddcore.errors import DataError
from ddcore.io.checks import DIFF

__all__ = ["Digest", "Shortfall", "accumulate_counts", "consolidate", "digests", "first_shortfall", "merge_counts"]

_WORD = 2**64
_SEEDS = (0x5EED_0001, 0x5EED_0002)
_NULL_CELL = np.uint64(0x6E75_6C6C_6E75_6C6C)


def consolidate(updates: pl.DataFrame, dims: Sequence[str]) -> pl.DataFrame:
    """The same differences with one update per (row, time) and no diff of 0, sorted by time, then row.

    Nulls are equal to each other, as are NaNs; the row order of the result depends on the content alone.
    O(n log n). Raises DataError when the diffs of one row at one time add up beyond int64.
    """
    if updates.is_empty():
        return updates
    moving = [dim for dim in dims if updates[dim].min() != updates[dim].max()]
    order = [*moving, *(name for name in updates.columns if name not in (*dims, DIFF))]
    ordered = updates.sort(order)
    begins = _begins(ordered, order)
    if begins.all():
        return ordered
    starts = begins.arg_true().to_numpy()
    diffs = _group_sums(ordered[DIFF].to_numpy(), starts, ordered)
    summed = ordered[starts].with_columns(pl.Series(DIFF, diffs))
    return summed.filter(pl.col(DIFF) != 0)


def _group_sums(diffs: np.ndarray, starts: np.ndarray, ordered: pl.DataFrame) -> np.ndarray:
    """Sums of the diffs of each group, which begin at ``starts``: int64[groups], exact or refused."""
    # In halves of 32 bits, whose sums cannot leave int64: so overflow is seen, not guessed.
    low = np.add.reduceat(diffs & 0xFFFF_FFFF, starts)
    high = np.add.reduceat(diffs >> 32, starts) + (low >> 32)
    beyond = (high < -(2**31)) | (high >= 2**31)
    if beyond.any():
        group = int(np.flatnonzero(beyond)[0])
        total = (int(high[group]) << 32) + int(low[group] & 0xFFFF_FFFF)
        row = ordered.drop(DIFF).row(int(starts[group]), named=True)
        raise DataError(f"the diffs of {row} add up to {total}, beyond int64", "mend the diffs at the source")
    sums: np.ndarray = (high << 32) + (low & 0xFFFF_FFFF)
    return sums


# --- digests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Digest:
    """A digest of a multiset of updates: three sums, modulo 2**64, over (row, time), each weighted with its diff.

    It does not depend on the order of updates, on how they are cut into batches, or on whether they are consolidated;
    so equal content has an equal digest, whatever file it is in. Digests of parts add up to that of the whole.
    """

    net: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            (self.net + other.net) % _WORD, (self.first + other.first) % _WORD, (self.second + other.second) % _WORD
        )

    def __bool__(self) -> bool:
        return self != Digest()

    def __str__(self) -> str:
        return f"{self.net:016x}{self.first:016x}{self.second:016x}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The digest that ``str`` wrote as ``text``."""
        return cls(*(int(text[start : start + 16], 16) for start in (0, 16, 32)))


def digests(updates: pl.DataFrame, dim: str) -> dict[int, Digest]:
    """The digest of the updates at each version, the same in every process and release; strings are hashed by xxh3.

    O(n), and a sort of the versions where there are several.
    """
    if updates.is_empty():
        return {}
    diffs = updates[DIFF].to_numpy().view(np.uint64)
    weighted = [diffs]
    for seed in _SEEDS:
        codes = np.full(len(updates), seed, dtype=np.uint64)
        for name in updates.columns:
            if name != DIFF:
                codes = _mixed(codes * np.uint64(0x9E37_79B9_7F4A_7C15) + _cells(updates[name], seed))
        weighted.append(codes * diffs)
    versions = updates[dim].to_numpy()
    order = np.argsort(versions, kind="stable") if updates[dim].is_sorted() is False else slice(None)
    starts = np.flatnonzero(np.diff(versions[order], prepend=versions[order][0] - 1))
    sums = [np.add.reduceat(words[order], starts).tolist() for words in weighted]
    return dict(zip(versions[order][starts].tolist(), map(Digest, *sums), strict=True))


def _cells(values: pl.Series, seed: int) -> np.ndarray:
    """One word per value: uint64[n]; text by its hash, anything else by its bits."""
    if values.dtype in (pl.String, pl.Binary):
        frame = pl.DataFrame({"value": values})
        hashed = frame.select(plh.col("value").nchash.xxh3_64(seed=seed)).to_series()
        cells = hashed.fill_null(0).to_numpy()
    elif values.dtype == pl.Float64:
        cells = values.fill_null(0.0).to_numpy().view(np.uint64)
    elif isinstance(values.dtype, pl.Decimal):
        cells = values.to_physical().cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)
    else:
        cells = values.to_physical().cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)
    if values.null_count():
        cells = np.where(values.is_null().to_numpy(), _NULL_CELL, cells)
    return cells


def _mixed(words: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit words that spreads every bit over all of them (the finaliser of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    mixed: np.ndarray = words ^ (words >> np.uint64(31))
    return mixed


# --- counts -----------------------------------------------------------------------------------------------------------

Counts = dict[int, tuple[int, int]]  # version -> (sum of the positive diffs, sum of the negative ones without sign)


def accumulate_counts(updates: pl.DataFrame, dim: str) -> Counts:
    """How much these updates insert and retract at each version, exactly."""
    wide = pl.col(DIFF).cast(pl.Int128)
    sums = updates.group_by(dim).agg(plus=wide.filter(wide > 0).sum(), minus=wide.filter(wide < 0).sum())
    return {version: (plus, -minus) for version, plus, minus in sums.sort(dim).iter_rows()}


def merge_counts(parts: Iterable[Counts]) -> Counts:
    """The counts of all parts together, by version."""
    total: Counts = {}
    for part in parts:
        for version, (plus, minus) in part.items():
            before = total.get(version, (0, 0))
            total[version] = (before[0] + plus, before[1] + minus)
    return dict(sorted(total.items()))


# --- running counts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shortfall:
    """A row that is retracted more often than it is there, the first version where that is so, and its count then."""

    row: dict[str, Any]
    version: int
    count: int


def first_shortfall(history: pl.DataFrame, dim: str) -> Shortfall | None:
    """The first version at which a row's count is below zero, with the first such row; None if there is none.

    ``history`` holds every update of the rows in question. Counts are exact. O(n log n).
    """
    row = [name for name in history.columns if name not in (dim, DIFF)]
    ordered = history.sort([*row, dim])
    lines = ordered.with_columns(
        pl.col(DIFF).cast(pl.Int128),
        _row=_begins(ordered, row).cum_sum(),
        _time=_begins(ordered, [*row, dim]).cum_sum(),
    )
    running = lines.with_columns(_count=pl.col(DIFF).cum_sum().over("_row")).group_by("_time").last()
    short = running.filter(pl.col("_count") < 0).sort(dim, "_row").head(1)
    if short.is_empty():
        return None
    return Shortfall(short.select(row).row(0, named=True), short[dim][0], short["_count"][0])


def _begins(ordered: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Whether a row differs from the one before it in these columns; the first does. Nulls are equal, so are NaNs."""
    changes = [pl.col(name).ne_missing(pl.col(name).shift()) for name in names]
    begins = ordered.select(pl.any_horizontal(changes)).to_series()
    if len(begins):
        begins[0] = True  # where the first row is all nulls, it equals what stands before it
    return begins
