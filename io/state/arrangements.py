"""Arrangements on disk: runs of updates sorted by key code, in which a look-up reads what it needs.

A run is one or a few files, one per writer (:mod:`ddcore.io.state.run_writer`). A look-up finds its rows by an index of
codes and decodes only them, where they lie (:mod:`ddcore.io.state.run_reader`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from threading import RLock

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Type
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.data.encoding import NULL, encode
from ddcore.io.delta import commits, new_files, tables
from ddcore.io.delta.new_files import Unsynced
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState
from ddcore.io.delta.writer import Writer
from ddcore.io.parquet.datafile import has_digests
from ddcore.io.state import run_writer
from ddcore.io.state.layout import CODE, Layout
from ddcore.io.state.run_reader import RunFile, load_texts
from ddcore.io.storage.reporting import REFRESH, reporting
from ddcore.io.storage.store import Location
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.columns import Columns
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch, Spans

MERGED, ADVANCED = "merged", "advanced"  # in names of files: a compaction, or what was built from its files


_NARROW = 1 << 31
_INT64 = Type("int64")

Span = tuple[int | None, int | None]
Part = tuple[int, int]
"""The number of a part of rows, and how many there are, of about as many rows."""
WHOLE: Part = (0, 1)


def is_exact(file: Location) -> bool:
    """Whether a file of state has every update at its own time: neither merged by a compaction, nor by another
    program, nor built from files that were.
    """
    return has_digests(file) and not file.name.startswith((f"part-{MERGED}-", f"part-{ADVANCED}-"))


def write_run(
    folder: Location, run: int, part: str | int, batch: SortedBatch, layout: Layout, *,
    unsynced: Unsynced | None = None, budget: Budget = ALONE,
) -> AddedFile:  # fmt: skip
    """Write a run, or a range of its codes, as one file that no reader sees before :func:`commit`.

    ``part`` is different for each writer of a run. Runs in tasks, on any machine. Where memory is limited, some rows
    are widened at once.
    """
    size = budget.memory.rows
    pieces = (batch.part(start, min(start + size, len(batch))) for start in range(0, len(batch), size))
    return write_pieces(
        folder, run, part, [batch] if size >= len(batch) else pieces, layout, narrow=_narrow(batch, layout),
        unsynced=unsynced, group=budget.tuning.run_group_rows,
    )  # fmt: skip


def _narrow(batch: SortedBatch, layout: Layout) -> set[str]:
    """The columns of int64 whose values all fit into 32 bits; not a key that is its own code, which takes no space."""
    if len(batch) == 0:
        return set()
    kinds = {**layout.stored, **dict.fromkeys((*layout.times, "diff"), _INT64)}
    columns = batch.columns()
    return {
        name for number, (name, kind) in enumerate(kinds.items(), 1) if kind == _INT64 and _is_narrow(columns, number)
    }


def _is_narrow(columns: Columns, number: int) -> bool:
    """Whether the values of a column that are not null fit into 32 bits."""
    least, most = columns.limits(number)
    if least == NULL and most < _NARROW:
        column = columns.column(number)
        least = int(column.min(where=column != NULL, initial=most))
    return least >= -_NARROW and most < _NARROW


def write_pieces(
    folder: Location, run: int, part: str | int, batches: Iterable[SortedBatch], layout: Layout, *,
    narrow: Collection[str], unsynced: Unsynced | None = None, group: int = DEFAULT.run_group_rows,
) -> AddedFile:  # fmt: skip
    """Write a run in pieces, which are sorted and follow one another. ``narrow``: columns of int64 whose values
    all fit into 32 bits. ``group``: rows of a row group.
    """
    written: list[run_writer.Written] = []

    def write(path: Path, synced: bool) -> tuple[int, str]:
        written.append(run_writer.write(batches, layout, path, narrow=narrow, synced=synced, group=group))
        return written[-1].size, written[-1].digest

    path, size = new_files.new_file(folder, f"part-{part}-{run:06d}", write, {}, unsynced)
    (file,) = written
    return AddedFile(path, size, file.rows, _statistics(file), {})


def _statistics(file: run_writer.Written) -> str:
    """Delta's statistics of a file: its rows, and the bounds of its codes."""
    least, greatest = ({CODE: code} if file.rows else {} for code in (file.least, file.greatest))
    known = {"numRecords": file.rows, "minValues": least, "maxValues": greatest, "nullCount": {CODE: 0}}
    return json.dumps(known, separators=(",", ":"))


def commit(
    writer: Writer, folder: Location, files: Sequence[AddedFile], run: int, *, base: TableState | None,
    overwrite: bool = False,
) -> TableState:  # fmt: skip
    """Make a run's files visible on top of ``base``; return the table's new state. See :func:`tables.commit`."""
    return commits.commit(writer, folder, files, run, base=base, overwrite=overwrite)


def open_runs(
    folder: Location, files: Sequence[LiveFile], layout: Layout, span: Span = (None, None), budget: Budget = ALONE,
    *, part: Part = WHOLE,
) -> list[SortedBatch]:  # fmt: skip
    """The runs that have codes in ``span``: [lo, hi), None for no bound; or a part of the rows. Opens no other file.

    Many runs of few rows leave many small files. These are read whole, into one run in memory; and so are files that
    another program rewrote (OPTIMIZE), because their rows may be in any order.
    """
    overlapping = [file for file in files if _overlaps(file, span)]
    foreign = [file for file in overlapping if not has_digests(folder / file.path)]
    small = [file for file in overlapping if file.rows <= budget.tuning.small_file_rows and file not in foreign]
    if len(small) == 1 and not foreign:
        small = []
    runs: list[SortedBatch] = [
        FileBatch(folder / file.path, layout, span, budget, part)
        for file in overlapping
        if file not in foreign and file not in small
    ]
    whole = [FileBatch(folder / file.path, layout, span, budget, part) for file in small]
    if foreign or whole:
        others = [_read_foreign(folder, foreign, layout, span, part)] if foreign else []
        runs.append(_in_memory(whole, others, layout, budget))
    return [run for run in runs if len(run)]


def small_files(
    folder: Location, files: Sequence[LiveFile], run: SortedBatch, tuning: Tuning = DEFAULT
) -> list[LiveFile]:
    """The small files of a table that a run of few rows is written together with, so that they are merged before they
    are many; none while they are few. Only those that have every update at its own time.
    """
    most, many = tuning.small_file_rows, tuning.small_files
    small = [file for file in files if file.rows <= most] if len(run) <= most else []
    if len(small) >= many:
        small = [file for file in small if is_exact(folder / file.path)]
    return small if len(small) >= many else []


def merged_with(
    folder: Location, files: Sequence[LiveFile], run: SortedBatch, layout: Layout, budget: Budget = ALONE
) -> SortedBatch:
    """A run and the rows of some small files, with their own times."""
    whole = [FileBatch(folder / file.path, layout, budget=budget) for file in files]
    return _in_memory(whole, [run.columns().table()], layout, budget)


def _overlaps(file: LiveFile, span: Span) -> bool:
    lo, hi = span
    least, greatest = file.lower.get(CODE), file.upper.get(CODE)
    return (lo is None or greatest is None or greatest >= lo) and (hi is None or least is None or least < hi)


def _in_memory(small: Sequence[FileBatch], others: Sequence[np.ndarray], layout: Layout, budget: Budget) -> SortedBatch:
    """Several small files, and columns of other rows, as one run in memory."""
    load_texts([file.file for file in small])
    columns = np.concatenate([*(file.read_columns() for file in small), *others], axis=1)
    words = len(layout.stored)
    values, times = list(columns[1 : 1 + words]), list(columns[1 + words : -1])
    batch = arrange(columns[0], values, times, columns[-1], budget=budget)
    reads = [file.take_reads() for file in small]
    return _Gathered(batch, sum(rows for rows, _ in reads), sum(size for _, size in reads))


def _read_foreign(folder: Location, files: Sequence[LiveFile], layout: Layout, span: Span, part: Part) -> np.ndarray:
    """The rows with codes in ``span``, or a part of them, of files that another program wrote, in any order: int64
    (columns, n).
    """
    rows = tables.scan(folder, files, layout.columns)
    for bound, inside in zip(span, (pl.col(CODE).ge, pl.col(CODE).lt), strict=True):
        rows = rows if bound is None else rows.filter(inside(bound))
    with reporting(folder, "read", REFRESH):
        frame = rows.collect()
    words = [encode(frame[name], kind) for name, kind in layout.stored.items()]
    codes, *others = (frame[name].to_numpy() for name in (CODE, *layout.times, "diff"))
    columns = np.stack([codes, *words, *others])
    return columns if part == WHOLE else columns[:, slice(*_bounds(len(frame), part))]


def _bounds(rows: int, part: Part) -> tuple[int, int]:
    """Where a part begins and ends."""
    number, parts = part
    return rows * number // parts, rows * (number + 1) // parts


class _Gathered(ColumnBatch):
    """A run in memory that was read from files: ``rows`` and ``size`` in bytes."""

    __slots__ = ("_reads",)
    is_stored = True

    def __init__(self, batch: ColumnBatch, rows: int, size: int) -> None:
        super().__init__(batch.codes, batch.words, batch.times, batch.diffs, batch.high)
        self._reads = rows, size

    def loaded(self) -> ColumnBatch:
        """Without what was read for it."""
        return ColumnBatch.of(self.table, self.width, self.high)

    def take_reads(self) -> tuple[int, int]:
        """The rows and the bytes that were read since the last call."""
        reads, self._reads = self._reads, (0, 0)
        return reads


class FileBatch(SortedBatch):
    """A run in a file, or the part of it with codes in ``span``, or a ``part`` of its rows there.

    :meth:`locate` finds rows in the file, and :meth:`located` and :meth:`take` decode them; columns of all rows are
    read when one is used, or when about half of the rows were looked up. Opening reads the footer, and at the ends of
    the span a page of codes. Raises StorageError where the file is missing, damaged or of another layout.
    """

    __slots__ = (
        "_budget", "_bytes_taken", "_first", "_layout", "_lock", "_looked_up", "_rows", "_rows_read", "_whole", "file",
        "path",
    )  # fmt: skip
    is_stored = True

    def __init__(
        self, path: Location, layout: Layout, span: Span = (None, None), budget: Budget = ALONE, part: Part = WHOLE
    ) -> None:
        self._budget = budget
        self.path, self._layout, self._lock = path, layout, RLock()
        self.file = RunFile(path, layout, REFRESH)
        first, end = self._bound(span[0], 0), self._bound(span[1], len(self.file))
        start, stop = _bounds(max(0, end - first), part)
        self._first, self._rows = first + start, stop - start
        self._whole: ColumnBatch | None = None
        self._looked_up = self._rows_read = self._bytes_taken = 0

    def _bound(self, code: int | None, otherwise: int) -> int:
        """The first row whose code is at least this one."""
        if code is None:
            return otherwise
        return int(self.file.bounds(np.array([code], np.int64), "left")[0])

    def __len__(self) -> int:
        return self._rows

    @property
    def width(self) -> int:
        """How many words an update has."""
        return len(self._layout.stored)

    def columns(self) -> Columns:
        """All rows, in memory."""
        return self.decompress().columns()

    def decompress(self) -> ColumnBatch:
        """All rows, in memory."""
        with self._lock:
            if self._whole is None:
                self._whole = ColumnBatch.of(self._read_all(), self.width)
                self._rows_read += self._rows
            return self._whole

    def read_columns(self) -> np.ndarray:
        """Codes, words, times and diffs of all rows, read anew: int64 (columns, n)."""
        self._rows_read += self._rows
        return self.file.columns(slice(self._first, self._first + self._rows))

    def _read_all(self) -> np.ndarray:
        """The columns of all rows; in a file, where they are many and memory is limited."""
        memory, stop = self._budget.memory, self._first + self._rows
        if not memory.is_limited:
            return self.file.columns(slice(self._first, stop))
        table = memory.table(self.width + len(self._layout.times) + 2, self._rows)
        size = self._budget.tuning.read_rows
        for start in range(self._first, stop, size):
            some = self.file.columns(slice(start, min(start + size, stop)))
            for line, values in enumerate(some):
                table.write(line, start - self._first, values)
        return table.first(self._rows)

    def take_reads(self) -> tuple[int, int]:
        """The rows that were decoded, and the bytes of the file that were read for it, since the last call."""
        rows, size = self._rows_read, self.file.bytes.read - self._bytes_taken
        self._rows_read, self._bytes_taken = 0, self.file.bytes.read
        return rows, size

    def memory(self) -> int:
        """The bytes of what is in memory: all rows, or texts that were read."""
        return self.file.memory() + (0 if self._whole is None else self._whole.memory())

    def loaded(self) -> ColumnBatch | None:
        """All rows, once they were read."""
        return self._whole

    def locate(self, probes: np.ndarray, budget: Budget = ALONE) -> Spans:
        """The rows of each code. Reads pages of codes."""
        if self._whole is None and len(probes) < self._budget.tuning.whole_share * self._rows:
            lo, hi = self.file.locate(probes)
            return np.clip(lo - self._first, 0, self._rows), np.clip(hi - self._first, 0, self._rows)
        return self.decompress().locate(probes, budget)

    def located(self, lo: np.ndarray, hi: np.ndarray) -> tuple[ColumnBatch, np.ndarray, np.ndarray]:
        """The updates in the spans, decoded, and their spans there; all rows, once many were looked up."""
        rows, whole = int((hi - lo).sum()), self._whole
        if whole is None:
            with self._lock:
                self._looked_up += rows
                if self._looked_up > self._budget.tuning.whole_share * self._rows:
                    whole = self.decompress()
        if whole is not None:
            return whole, lo, hi
        stops = np.cumsum(hi - lo)
        starts = stops - (hi - lo)
        return self.take(np.arange(rows) + np.repeat(lo - starts, hi - lo)), starts, stops

    def index(self, budget: Budget = ALONE) -> None:
        """Only of rows in memory: others are found by the index of the file."""
        if self._whole is not None:
            self._whole.index(budget)

    def take(self, rows: np.ndarray) -> ColumnBatch:
        """The updates at these positions, which may come in any order: int64[m]."""
        if self._whole is not None:
            return self._whole.take(rows)
        width = self.width
        if len(rows) > 1 and (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            columns = np.empty((width + len(self._layout.times) + 2, len(rows)), np.int64)
            columns[:, order] = self.file.columns(rows[order] + self._first)
        else:
            columns = self.file.columns(rows + self._first)
        self._rows_read += len(rows)
        return ColumnBatch.of(columns, width)

    def locate_between(self, after: np.ndarray, to: np.ndarray) -> Spans:
        """The rows of the codes between two. Reads pages of codes."""
        if self._whole is not None:
            return self._whole.locate_between(after, to)
        lo, hi = (self.file.bounds(codes, "right") - self._first for codes in (after, to))
        return np.clip(lo, 0, self._rows), np.clip(hi, 0, self._rows)

    def between(self, lo: np.ndarray, hi: np.ndarray, word: int, after: np.ndarray, to: np.ndarray) -> Spans:
        """The rows of each span whose word is between two. Reads a value for each step of a binary search."""
        if self._whole is not None:
            return self._whole.between(lo, hi, word, after, to)
        first = self._beyond(lo, hi, word, after)
        return first, self._beyond(first, hi, word, to)

    def _beyond(self, lo: np.ndarray, hi: np.ndarray, word: int, bounds: np.ndarray) -> np.ndarray:
        """For each k the first row in [lo[k], hi[k]), where a word ascends, with a word beyond ``bounds[k]``."""
        lo, hi = lo.copy(), hi.copy()
        while len(some := np.flatnonzero(lo < hi)):
            middle = (lo[some] + hi[some]) // 2
            order = np.argsort(middle)
            values = np.empty(len(some), np.int64)
            values[order] = self.file.words(word, middle[order] + self._first)
            is_beyond = values > bounds[some]
            hi[some[is_beyond]], lo[some[~is_beyond]] = middle[is_beyond], middle[~is_beyond] + 1
        return lo

    def span(self, code: int) -> tuple[int, int]:
        """The rows with a code."""
        lo, hi = self.locate(np.array([code], np.int64))
        return int(lo[0]), int(hi[0])
