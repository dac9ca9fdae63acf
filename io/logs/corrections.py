"""Corrections: how an output log goes on if its contents are not those that it should have.

Nothing that was published is taken back. Readers who follow the log get the difference, as updates like any others.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.updates import Counts, accumulate_counts, consolidate, merge_counts
from ddcore.io.project.frontiers import Window, nothing_closed, up_to
from ddcore.io.project.times import Time


def correction(
    log: ChangeLog, fresh: Sequence[AddedFile], held: TableState | None, after: Time | None, last: Time
) -> pl.DataFrame:
    """The updates at the version after ``last`` after which a log holds what it should.

    ``fresh`` files have the updates that it should have at the versions after ``after`` (None: from the first on) up to
    ``last``; those that it has are in its table at ``held``. One dimension. O(updates).
    """
    should = log.scan_files(fresh).select(*log.schema, "diff")
    holds = log.between(after, last, held) if held is not None else pl.DataFrame(schema=should.collect_schema())
    negated = holds.select(*log.schema, -pl.col("diff"))
    updates = pl.concat([should, negated.lazy()]).with_columns(pl.lit(last.version + 1, pl.Int64).alias(log.dims[0]))
    return consolidate(log.collect(updates.select(*log.columns)), log.dims)


def is_outdated(
    log: ChangeLog, fresh: Sequence[AddedFile], held: TableState | None, after: Time | None, last: Time
) -> bool:
    """Whether a log holds other updates than it should, with the parameters of :func:`correction`; also where they add
    up to the same at ``last``. O(updates).
    """
    window = Window(nothing_closed(log.dims) if after is None else up_to(after), up_to(last))
    holds = log.window(window, held).with_columns(-pl.col("diff"))
    both = pl.concat([log.scan_files(fresh), holds])
    return not consolidate(log.collect(both), log.dims).is_empty()


def retraction(log: ChangeLog, strays: Sequence[LiveFile]) -> pl.DataFrame:
    """The updates that cancel those of files which a log has and should not have, at their own times."""
    updates = log.scan_files(strays).with_columns(-pl.col("diff"))
    return consolidate(log.collect(updates), log.dims)


class Pool:
    """The updates that a run gives an output, from several places: so that no two are of one row and time.

    ``files`` are those that the fold gained; ``waiting``: a correction; ``cancelled``: those that cancel updates which
    are in the log already. Of the files only the times of the others are read.
    """

    def __init__(
        self, log: ChangeLog, files: Sequence[AddedFile], waiting: pl.DataFrame, cancelled: pl.DataFrame
    ) -> None:
        self.log, self.files, self.waiting = log, files, waiting
        self.more = pl.concat([waiting, cancelled])
        self._inside = pl.all_horizontal(
            pl.col(dim).is_between(self.more[dim].min(), self.more[dim].max()) for dim in log.dims
        )
        read = [(file, log.collect(log.scan_files([file]).filter(self._inside))) for file in files]
        self.near = {file.path: rows for file, rows in read if len(rows)}

    def is_shared(self) -> bool:
        """Whether two of the updates are of one row and time."""
        whole = pl.concat([*self.near.values(), self.more])
        return len(consolidate(whole, self.log.dims)) < len(whole)

    def write(self, stem: str) -> list[AddedFile]:
        """Write the updates, added up, instead of the files that :meth:`replaced` names; return all files."""
        kept = [file for file in self.files if file.path not in self.near]
        for number, file in enumerate(self.replaced()):
            if file.rows > len(self.near[file.path]):
                rest = self.log.collect(self.log.scan_files([file]).filter(~self._inside))
                kept.append(self.log.write(f"{stem}-{number}", rest))
        sums = consolidate(pl.concat([*self.near.values(), self.more]), self.log.dims)
        return [*kept, self.log.write(stem, sums)] if len(sums) else kept

    def replaced(self) -> list[AddedFile]:
        """Those of the files that :meth:`write` writes again."""
        return [file for file in self.files if file.path in self.near]

    def counts(self) -> Counts:
        """What the waiting updates change in the counts of those of the files."""
        near, dims = list(self.near.values()), self.log.dims
        both = consolidate(pl.concat([*near, self.waiting]), dims)
        less = {time: (-plus, -minus) for time, (plus, minus) in _counts(near, dims).items()}
        total = merge_counts([accumulate_counts(both, dims), less])
        return {time: sides for time, sides in total.items() if sides != (0, 0)}


def _counts(frames: Sequence[pl.DataFrame], dims: Sequence[str]) -> Counts:
    return merge_counts(accumulate_counts(frame, dims) for frame in frames)
