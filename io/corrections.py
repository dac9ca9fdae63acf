"""Corrections: how an output log goes on if its contents are not those that it should have.

Nothing that was published is taken back. Readers who follow the log get the difference, as updates like any others.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ddcore.io.changelog import ChangeLog
from ddcore.io.tables import AddedFile, LiveFile, TableState
from ddcore.io.times import Time
from ddcore.io.updates import consolidate

__all__ = ["correction", "retraction"]


def correction(
    log: ChangeLog, fresh: Sequence[AddedFile], held: TableState | None, after: Time | None, last: int
) -> pl.DataFrame:
    """The updates at version ``last + 1`` after which a log holds what it should.

    ``fresh`` files have the updates that it should have at the versions after ``after`` (None: from the first on) up to
    ``last``; those that it has are in its table at ``held``. One dimension. O(updates).
    """
    should = log.scan_files(fresh).select(*log.schema, "diff")
    holds = log.between(after, last, held) if held is not None else pl.DataFrame(schema=should.collect_schema())
    negated = holds.select(*log.schema, -pl.col("diff"))
    updates = pl.concat([should, negated.lazy()]).with_columns(pl.lit(last + 1, pl.Int64).alias(log.dims[0]))
    return consolidate(log.collect(updates.select(*log.columns)), log.dims)


def retraction(log: ChangeLog, strays: Sequence[LiveFile]) -> pl.DataFrame:
    """The updates that cancel those of files which a log has and should not have, at their own times."""
    updates = log.scan_files(strays).with_columns(-pl.col("diff"))
    return consolidate(log.collect(updates), log.dims)
