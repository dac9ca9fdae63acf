"""Restatement: the history of an input changes at times that it was ingested at before, or that are folded.

The updates at or beyond a time are replaced (:func:`replace_from`), or rows are added at closed times. What was folded
is then out of date from the least closed times on whose contents changed: :func:`closed_changes` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from ddcore.base.lattice import Frontier, frontier, is_beyond, le
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.updates import DIFF
from ddcore.io.project.times import LARGEST_TIME


@dataclass(frozen=True)
class Changes:
    """The updates that a change removes from a log, and those that it adds."""

    log: ChangeLog
    removed: pl.LazyFrame
    added: pl.LazyFrame

    @cached_property
    def times(self) -> pl.DataFrame:
        """The times at which the log holds other updates afterwards: distinct, in no order. O(updates)."""
        wide = pl.col(DIFF).cast(pl.Int128)
        both = pl.concat([self.removed.with_columns((0 - wide).alias(DIFF)), self.added.with_columns(wide)])
        sums = both.group_by(*self.log.schema, *self.log.dims).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
        return self.log.collect(sums.select(self.log.dims).unique())


def closed_changes(changes: Changes, upper: Frontier | None) -> Frontier:
    """The least closed times at which the log changes; ``upper`` is the frontier of the open ones, None if all are."""
    if upper is None:
        return ()
    dims = changes.log.dims
    closed = changes.times.filter(~is_beyond(dims, upper))
    if len(dims) == 1:
        return () if closed.is_empty() else ((int(closed[dims[0]].to_numpy().min()),),)
    return frontier(closed.select(dims).iter_rows())


@dataclass(frozen=True)
class Replacement:
    """A log without its updates at or beyond ``start``.

    Of the ``removed`` files, ``rest`` holds the other updates; ``kept`` are the files without any. ``rows`` is the
    number of updates that are removed.
    """

    log: ChangeLog
    start: tuple[int, ...]
    kept: tuple[LiveFile, ...]
    removed: tuple[LiveFile, ...]
    rest: tuple[AddedFile, ...]
    rows: int

    @property
    def beyond(self) -> pl.Expr:
        """Whether an update is replaced."""
        return is_beyond(self.log.dims, [self.start])

    def changes(self, files: Sequence[AddedFile]) -> Changes:
        """What changes if the updates in ``files`` replace the removed ones."""
        return Changes(self.log, self.log.scan_files(self.removed).filter(self.beyond), self.log.scan_files(files))


def replace_from(log: ChangeLog, state: TableState | None, start: tuple[int, ...], stem: str) -> Replacement:
    """What is left of a log without its updates at or beyond ``start``.

    Files across ``start`` are rewritten, as files that no reader sees before the commit and whose names begin with
    ``stem``; one of them is in memory at a time.
    """
    kept, removed, portions = list[LiveFile](), list[LiveFile](), list[pl.DataFrame]()
    rest, rows = list[AddedFile](), 0

    def write() -> None:
        if portions:
            rest.append(log.write(f"{stem}-rest-{len(rest):04d}", pl.concat(portions)))
            portions.clear()

    for file in log.files(state):
        others = file.rows
        if _may_reach(file, log.dims, start):
            others = 0
            if not _is_beyond(file, log.dims, start):
                updates = log.collect(log.scan_files([file]).filter(~is_beyond(log.dims, [start])))
                others = len(updates)
                if 0 < others < file.rows:
                    portions.append(updates)
        (kept if others == file.rows else removed).append(file)
        rows += file.rows - others
        if sum(map(len, portions)) >= log.tuning.restated_rows:
            write()
    write()
    return Replacement(log, start, tuple(kept), tuple(removed), tuple(rest), rows)


def _may_reach(file: LiveFile, dims: Iterable[str], start: tuple[int, ...]) -> bool:
    """Whether a file may have an update at or beyond ``start``."""
    return le(start, tuple(file.upper.get(dim, LARGEST_TIME) for dim in dims))


def _is_beyond(file: LiveFile, dims: Iterable[str], start: tuple[int, ...]) -> bool:
    """Whether all updates of a file are at or beyond ``start``."""
    return le(start, tuple(file.lower.get(dim, -1) for dim in dims))
