"""Corrections: how an output log goes on if its contents are not those that it should have.

Nothing that was published is taken back. Readers who follow the log get the difference, as updates like any others.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ddcore.io.changelog import ChangeLog
from ddcore.io.tables import AddedFile, LiveFile, TableState
from ddcore.io.times import Time, coordinates, versions
from ddcore.io.updates import consolidate

__all__ = ["correction", "is_outdated", "retraction"]


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


def is_outdated(
    log: ChangeLog, fresh: Sequence[AddedFile], held: TableState | None, after: Time | None, last: int
) -> bool:
    """Whether a log holds other updates than it should, with the parameters of :func:`correction`; also where they add
    up to the same at ``last``. O(updates).
    """
    first = 0 if after is None else coordinates(after)[0] + 1
    holds = log.window(versions(first, last), held).with_columns(-pl.col("diff"))
    both = pl.concat([log.scan_files(fresh), holds])
    return not consolidate(log.collect(both), log.dims).is_empty()


def retraction(log: ChangeLog, strays: Sequence[LiveFile]) -> pl.DataFrame:
    """The updates that cancel those of files which a log has and should not have, at their own times."""
    updates = log.scan_files(strays).with_columns(-pl.col("diff"))
    return consolidate(log.collect(updates), log.dims)
