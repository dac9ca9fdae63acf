"""Files of an ingest: batches of updates on their way into data files of a change log, which nobody sees yet.

Batches are kept until they are worth a file. One thread encodes, compresses and syncs a file while the caller reads the
rows of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from ddcore.base.errors import StorageError
from ddcore.base.lazy import numpy as np
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.updates import (
    DIFF,
    Counts,
    accumulate_counts,
    ascend,
    consolidate,
    consolidate_hashed,
    merge_counts,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Batch", "Files"]

_MOST_BYTES = 512 << 20  # of updates that are kept in memory, whatever their number (Tuning.file_rows)
_SAMPLE = 1 << 16  # hashes of rows that are compared between files, at most twice as many


class Batch(NamedTuple):
    """Updates, and 64 bits for each (row, time), uint64[n], if they are known."""

    updates: pl.DataFrame
    hashes: np.ndarray | None


class Files:
    """The files that one writer of an ingest writes into ``log``; their names begin with ``stem``.

    Afterwards: ``written``; ``counts``, the insertions and retractions at each time; ``retracts``, whether any diff is
    negative; ``most``, the largest diff; ``distinct``, whether no (row, time) was seen in two of them. As a context it
    ends when all are written. Raises the errors of files in their order, and before those of what is read later.
    """

    def __init__(self, log: ChangeLog, stem: str) -> None:
        self.written: list[AddedFile] = []
        self.counts: Counts = {}
        self.retracts, self.most, self.distinct = False, 0, True
        self._log, self._stem, self._number = log, stem, 0
        self._batches: list[Batch] = []
        self._sample, self._thread = _Sample(), ThreadPoolExecutor(1, "ddcore file")
        self._writing: tuple[str, pa.Table, Future[AddedFile]] | None = None

    def __enter__(self) -> Files:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del error, trace
        with self._thread:
            if kind is None:
                self._begin_file()
            self._end_file()

    def add(self, batch: Batch) -> None:
        """Take in updates, and begin to write a file if there are enough of them."""
        self._batches.append(batch)
        if (
            sum(len(batch.updates) for batch in self._batches) >= self._log.tuning.file_rows
            or sum(batch.updates.estimated_size() for batch in self._batches) >= _MOST_BYTES
        ):
            self._begin_file()

    def _begin_file(self) -> None:
        if not self._batches:
            return
        updates = self._consolidated()
        self._batches = []
        if updates.is_empty():
            return
        self.retracts |= bool((updates[DIFF] < 0).any())
        self.most = max(self.most, updates.select(pl.col(DIFF).max()).item())
        table = self._log.table(updates)
        self._end_file()
        stem = f"{self._stem}-{self._number:04d}"
        self._number += 1
        self._writing = stem, table, self._thread.submit(self._log.write_table, stem, table)

    def _end_file(self) -> None:
        """Wait for the file that is being written."""
        if self._writing is None:
            return
        (stem, table, future), self._writing = self._writing, None
        try:
            self.written.append(future.result())
        except (MemoryError, StorageError) as error:
            if not isinstance(error, MemoryError) and not isinstance(error.__cause__, MemoryError):
                raise
            # While a source is read, the memory of all threads is limited. Now it is not.
            self.written.append(self._log.write_table(stem, table))

    def _consolidated(self) -> pl.DataFrame:
        """All updates that are kept, consolidated."""
        updates = pl.concat([batch.updates for batch in self._batches])
        self.counts = merge_counts([self.counts, accumulate_counts(updates, self._log.dims)])
        known = [batch.hashes for batch in self._batches if batch.hashes is not None]
        if len(known) < len(self._batches):
            self.distinct = False
            return consolidate(updates, self._log.dims)
        self.distinct = self.distinct and self._sample.add(known)
        if self._ascends():
            return updates
        return consolidate_hashed(updates, self._log.dims, known[0] if len(known) == 1 else np.concatenate(known))

    def _ascends(self) -> bool:
        """Whether a column of numbers shows that no row repeats: each row has more than the one before. O(1) where not
        even a batch's ends do.
        """
        frames = [batch.updates for batch in self._batches if len(batch.updates)]
        return any(
            kind.is_integer() and name != DIFF and ascend([frame[name] for frame in frames])
            for name, kind in self._batches[0].updates.schema.items()
        )


class _Sample:
    """Those of the hashes of all files that are below a bound, which falls as they become more."""

    def __init__(self) -> None:
        self._hashes: np.ndarray = np.empty(0, np.uint64)
        self._shift = 0

    def add(self, parts: Sequence[np.ndarray]) -> bool:
        """Take in the hashes of another file, in parts; whether all are different."""
        while sum(map(len, parts)) >> self._shift > _SAMPLE:
            self._shift += 1
        both = np.sort(np.concatenate([self._below(hashes) for hashes in (self._hashes, *parts)]))
        while len(both) > 2 * _SAMPLE:
            self._shift += 1
            both = self._below(both)
        self._hashes = both
        return not (both[1:] == both[:-1]).any()

    def _below(self, hashes: np.ndarray) -> np.ndarray:
        return hashes if self._shift == 0 else hashes[hashes < np.uint64(1 << (64 - self._shift))]
