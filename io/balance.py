"""A balance: how often rows of an input are there at each version, once new files are in its log or old ones out of it.

A row may never be there less than not at all, nor more often than int64 counts. Only rows that can be concerned are
looked at; the log is scanned once for them, streamed, whatever the engine: a join of Spark's would shuffle it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from ddcore.io.changelog import ChangeLog
from ddcore.io.checks import DIFF
from ddcore.io.tables import AddedFile, LiveFile, mend_hint
from ddcore.io.updates import RowCount, first_count, running_counts
from ddcore.io.warehouse import reporting

__all__ = ["Balance"]

_GREATEST = 2**63 - 1
# Rows that are looked at for repeats; of more inserted rows it is a sample, the same of the log as of the source.
_SAMPLE = 1 << 16


class Balance:
    """The counts of rows of ``log`` where it holds the files ``live``, and ``fresh`` beside them."""

    def __init__(self, log: ChangeLog, live: Sequence[LiveFile], fresh: Sequence[AddedFile | LiveFile] = ()) -> None:
        self._log, self._rows = log, list(log.schema)
        self._updates = pl.concat([log.scan_files(live), self._scan(fresh)])
        self._wanted: list[pl.LazyFrame] = []

    def watch(self, files: Sequence[AddedFile | LiveFile], which: pl.Expr | None = None) -> None:
        """Look at the rows of the updates in these files, or of those for which ``which`` holds."""
        updates = self._scan(files)
        self._wanted.append((updates if which is None else updates.filter(which)).select(self._rows))

    def watch_inserted(self, files: Sequence[AddedFile], inserted: int) -> None:
        """Look at the rows that these files insert, ``inserted`` of them; at a sample where they are very many."""
        parts = -(-inserted // _SAMPLE)
        sampled = pl.struct(self._rows).hash(0) % max(parts, 1) == 0
        self.watch(files, (pl.col(DIFF) > 0) & sampled)

    def watch_large(self, updates: int) -> None:
        """Look at the rows whose counts may leave int64, among so many updates: one of theirs has a large diff."""
        self._wanted.append(self._updates.filter(pl.col(DIFF) > _GREATEST // max(updates, 1)).select(self._rows))

    def counts(self) -> pl.DataFrame:
        """The counts of all rows that are watched, as :func:`ddcore.io.updates.running_counts` gives them."""
        dim = self._log.dims[0]
        with reporting(self._log.folder, "read", mend_hint(self._log.folder)):
            wanted = pl.concat(self._wanted).unique().collect(engine="streaming").lazy()
        history = self._updates.join(wanted, on=self._rows, how="semi", nulls_equal=True)
        return running_counts(self._log.collect(history), dim)

    def below_zero(self, counts: pl.DataFrame) -> RowCount | None:
        """The first version at which a row is there less than not at all, with the first such row."""
        return first_count(counts, self._log.dims[0], pl.col("_count") < 0)

    def beyond_int64(self, counts: pl.DataFrame) -> RowCount | None:
        """The first version at which a row is there more often than int64 counts, with the first such row."""
        return first_count(counts, self._log.dims[0], pl.col("_count") > _GREATEST)

    def repeated(self, counts: pl.DataFrame) -> tuple[int, RowCount] | None:
        """How many of the rows are there more than once at some version, and the first of them; None for none."""
        first = first_count(counts, self._log.dims[0], pl.col("_count") > 1)
        if first is None:
            return None
        return (counts.filter(pl.col("_count") > 1).select(self._rows).n_unique(), first)

    def _scan(self, files: Sequence[AddedFile | LiveFile]) -> pl.LazyFrame:
        types = {name: kind.polars for name, kind in self._log.columns.items()}
        paths: list[Path] = [self._log.folder / file.path for file in files]
        if not paths:
            return pl.LazyFrame(schema=types)
        return pl.scan_parquet(paths, schema=types, glob=False, hive_partitioning=False).select(*types)
