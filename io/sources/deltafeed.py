"""The change data feed of a Delta table: the rows that each commit inserted and deleted.

``insert`` and ``update_postimage`` have the diff 1, ``delete`` and ``update_preimage`` -1. Files that were only
rewritten appear as deleted and inserted rows, which cancel each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcore.base.errors import DataError
from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import polars as pl
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.logs.updates import DIFF
from ddcore.io.sources.deltatable import DeltaTable
from ddcore.io.sources.source import Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGE, COMMIT, TIME = "_change_type", "_commit_version", "_commit_timestamp"
_DIFFS: Mapping[str, int] = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


@dataclass(frozen=True)
class DeltaFeed(DeltaTable):
    """The changes of the commits from ``first`` to ``version``; without ``first``, all rows of ``version``, inserted.

    ``times``: when each commit was made, in milliseconds since 1970. ``only_spark``: why only Spark can read them.
    ``window``: changes that are added up at once, in rows.
    """

    kind = "change data feed"
    cancels = True
    own = (CHANGE, COMMIT, TIME)
    first: int | None = None
    times: tuple[int, ...] = ()
    only_spark: str = ""
    window: int = 2 << 20

    def commit_times(self) -> dict[int, int]:
        """When each commit was made, in milliseconds since 1970."""
        start = self.version if self.first is None else self.first
        return {start + number: time for number, time in enumerate(self.times)}

    def row_count(self) -> int | None:
        """None: not known before the rows are read."""
        return None

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The table's columns, those of the feed, and ``diff``."""
        own = [(CHANGE, pa.string()), (COMMIT, pa.int64()), (TIME, pa.timestamp("ms", "UTC")), (DIFF, pa.int64())]
        names = {name for name, _ in own}
        return [field for field in super().fields() if field[0] not in names] + own

    def frames(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """The changes, added up: in memory are some more than ``window`` of them."""
        keys = [name for name in columns if name != DIFF]
        read: list[pl.DataFrame] = []

        def sums() -> pl.DataFrame:
            of = pl.concat(read).group_by(keys).agg(pl.col(DIFF).sum())
            return of.filter(pl.col(DIFF) != 0).select(columns)

        for row, frame in super().frames(columns):
            read.append(frame)
            if sum(map(len, read)) >= self.window:
                yield row, sums()
                read = []
        if read:
            yield 1, sums()

    def batches(self, columns: Sequence[str]) -> Batches:
        """Batches of delta-rs. DataError for commits that it does not support."""
        own = (CHANGE, COMMIT, TIME, DIFF)
        if self.first is None:
            wanted = [name for name in columns if name not in own] or [super().fields()[0][0]]
            for batch in super().batches(wanted):
                rows = len(batch)
                yield self._selected(
                    batch, pa.repeat(pa.scalar("insert"), rows), pa.repeat(pa.scalar(self.version), rows), columns
                )
            return
        if self.only_spark:
            raise DataError(f"{self.name}: {self.only_spark}", self.hint)
        try:
            wanted = [*(name for name in columns if name not in own), CHANGE, COMMIT]
            reader = self._table().load_cdf(starting_version=self.first, ending_version=self.version, columns=wanted)
            for arrow in reader:
                batch = pa.record_batch(arrow)
                yield self._selected(batch, batch.column(CHANGE), batch.column(COMMIT).cast(pa.int64()), columns)
        except DataError:
            raise
        except Exception as error:
            raise self.explain(error) from error

    def spark_frame(self, session: SparkSession) -> DataFrame:
        """The changes of the feed, as Spark reads them."""
        from pyspark.sql import functions as F

        reader = session.read.format("delta")
        if self.first is None:
            frame = reader.option("versionAsOf", self.version).load(self.path)
            frame = frame.withColumns({CHANGE: F.lit("insert"), COMMIT: F.lit(self.version).cast("long")})
        else:
            changes = reader.option("readChangeFeed", "true").option("startingVersion", self.first)
            frame = changes.option("endingVersion", self.version).load(self.path)
        start = self.version if self.first is None else self.first
        number = (F.col(COMMIT) - F.lit(start) + 1).cast("int")
        diff = F.when(F.col(CHANGE).isin("insert", "update_postimage"), 1).otherwise(-1).cast("long")
        time = F.timestamp_millis(F.element_at(F.lit(np.array(self.times, np.int64)), number))
        return frame.withColumns({DIFF: diff, TIME: time})

    def _selected(
        self, batch: pa.RecordBatch, changes: pa.Array, commits: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """The columns of a batch, with the times of commits and the diffs."""
        import pyarrow.compute as pc

        start = self.version if self.first is None else self.first
        kinds = pa.array(list(_DIFFS), pa.string())
        diffs = pa.array(list(_DIFFS.values()), pa.int64())
        times = pa.array(self.times, pa.timestamp("ms", "UTC"))
        changes = changes.cast(pa.string())
        own = {
            CHANGE: changes,
            COMMIT: commits,
            TIME: times.take(pc.subtract(commits, start)),
            DIFF: diffs.take(pc.index_in(changes, kinds)),
        }
        return pa.table({name: own[name] if name in own else batch.column(name) for name in columns})
