"""The division of a published table into ranges of its order, for tasks that write them side by side.

Ranges begin where files do, so a task has whole files. Only a file with far more new rows than a task should have is
divided: its rows then belong to several ranges, all of which are written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from ddcore.io.publishing.ranges import Order, RangeFile
from ddcore.io.publishing.table import Span

_SPLIT = 2  # times the rows of a range, from which on a file is divided


@dataclass(frozen=True)
class Division:
    """Range ``n`` holds the rows from cut ``n - 1`` on and before cut ``n``. ``groups``: the files of each; ``split``:
    the paths of those that are in several.
    """

    cuts: pl.DataFrame
    groups: tuple[tuple[RangeFile, ...], ...]
    split: frozenset[str] = frozenset()

    def span(self, number: int) -> Span:
        """What a range has of its files."""
        return Span(number, self.cuts, self.split)


def division_of(order: Order, files: Sequence[RangeFile], sample: pl.DataFrame, weight: float, size: int) -> Division:
    """The division into ranges of about ``size`` rows, of files and of new ones; of the new ones ``sample`` has some,
    in the columns of the order, and each stands for ``weight``.
    """
    files, sample = _in_order(order, files), order.sorted(sample)
    bounds = _bounds(order, files)
    new = dict(order.numbered(sample, bounds[1:]))
    cuts, groups, split = [sample.clear()], list[list[RangeFile]]([[]]), set[str]()
    filled = 0.0
    for number, file in enumerate([*files] or [None]):
        points = new.get(number, sample.clear())
        rows = (file.rows if file is not None else 0) + weight * len(points)
        if filled and filled + rows > size:
            cuts.append(bounds[number : number + 1])
            groups.append([])
            filled = 0.0
        filled += rows
        if file is not None:
            groups[-1].append(file)
        if rows <= size * (1 if file is None else _SPLIT):
            continue
        for cut in _cuts(points, math.ceil(rows / size)):
            cuts.append(cut)
            groups.append([] if file is None else [file])
            split |= {file.path} if file is not None else set()
        filled = float(size)
    return Division(pl.concat(cuts), tuple(map(tuple, groups)), frozenset(split))


def _in_order(order: Order, files: Sequence[RangeFile]) -> list[RangeFile]:
    if not files:
        return []
    firsts = pl.concat([file.first for file in files]).with_row_index("_number")
    return [files[number] for number in firsts.sort(order.columns, maintain_order=True)["_number"]]


def _bounds(order: Order, files: Sequence[RangeFile]) -> pl.DataFrame:
    """The least row that may be in each file: the first of a partition has all before its first row, too."""
    if not files:
        return pl.DataFrame()
    firsts = pl.concat([file.first for file in files])
    if not order.partition:
        return firsts
    begins = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in order.partition)
    others = [name for name in order.columns if name not in order.partition]
    return firsts.with_columns(pl.when(begins).then(None).otherwise(pl.col(name)).alias(name) for name in others)


def _cuts(points: pl.DataFrame, number: int) -> Iterator[pl.DataFrame]:
    """The rows at which all but the first of so many equal parts begin; fewer where rows repeat."""
    positions = {len(points) * part // number for part in range(1, number)} - {0}
    yield from points[sorted(positions)].unique(maintain_order=True).iter_slices(1)
