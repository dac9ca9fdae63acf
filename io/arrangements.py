"""Arrangements on disk: runs of updates sorted by key code, with Parquet's row groups as their index.

A run is one or a few files, one per writer. Row groups are small. The footer holds the least and the greatest code of
each and is read once; a look-up finds its row groups by binary search, reads only those, and checks their bytes. Tables
are partitioned by ``run``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING

import polars as pl

from ddcore import spilling
from ddcore.consolidation import arrange
from ddcore.encoding import decode, encode
from ddcore.errors import StorageError
from ddcore.io import tables
from ddcore.io.datafile import Codec, DataFile, has_digests
from ddcore.io.layout import CODE, Layout
from ddcore.io.store import Place
from ddcore.io.tables import AddedFile, LiveFile, TableState
from ddcore.io.warehouse import REFRESH, reporting
from ddcore.libraries import numpy as np
from ddcore.sorted_batch import SortedBatch

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ADVANCED", "CODEC", "MERGED", "FileBatch", "commit", "is_exact", "open_runs", "row_group", "run_table",
    "write_in_pieces", "write_run",
]  # fmt: skip

MERGED, ADVANCED = "merged", "advanced"  # in names of files: a compaction, or what was built from its files

ROW_GROUP = 16 * 1024  # the most rows of a row group
_GROUPS, _LEAST = 64, 1024  # row groups of a file, where that makes groups of at least so many rows
CODEC: Codec = "snappy"  # of state, of which each run reads much and nobody keeps much
SMALL = 1024  # a file of at most so many rows is read whole
# A row group costs the same whether read alone or with others, so a whole read pays only where most groups are needed.
_NEARLY_ALL = 0.5
_READ = 64  # row groups that are decoded at once where memory is limited
_WORTH = 1 << 24  # bytes of arrays that are filled in a file where memory is limited

Span = tuple[int | None, int | None]


def run_table(run: SortedBatch, layout: Layout) -> pa.Table:
    """The rows of a run as the table that :func:`write_run` takes, with decoded values."""
    columns: dict[str, pl.Series] = {}
    run = run.widen()
    if layout.direct:
        name = layout.key[0]
        columns[name] = decode(run.codes, layout.schema[name], name)
    for word, (name, kind) in zip(run.words, layout.stored.items(), strict=True):
        columns[name] = decode(word, kind, name)
    for time, name in zip(run.times, layout.times, strict=True):
        columns[name] = pl.Series(time)
    columns["diff"], columns[CODE] = pl.Series(run.diffs), pl.Series(run.codes)
    return tables.arrow_table({name: column.to_arrow() for name, column in columns.items()}, layout.columns)


def is_exact(file: Place) -> bool:
    """Whether a file of state has every update at its own time: neither merged by a compaction, nor by another
    program, nor built from files that were.
    """
    return has_digests(file) and not file.name.startswith((f"part-{MERGED}-", f"part-{ADVANCED}-"))


def write_run(folder: Place, run: int, part: str | int, table: pa.Table) -> AddedFile:
    """Write the rows of one run, or a range of its codes, as one file that no reader sees before :func:`commit`.

    ``table`` is sorted by ``_code``; ``part`` is different for each writer of a run. Runs in tasks, on any machine.
    """
    return tables.write_file(
        folder, f"part-{part}", table, bounded=[CODE], row_group=row_group(table.num_rows), partition={"run": str(run)},
        codec=CODEC,
    )  # fmt: skip


def write_in_pieces(
    folder: Place, run: int, part: str | int, batch: SortedBatch, layout: Layout, *, rows: int
) -> AddedFile:
    """The same for a run of which about so many ``rows`` are decoded at once."""
    group = row_group(len(batch))
    size = max(group, rows // group * group)
    pieces = (run_table(batch.part(at, min(at + size, len(batch))), layout) for at in range(0, len(batch), size))
    first = next(pieces)
    return tables.write_pieces(
        folder, f"part-{part}", chain([first], pieces), first.schema,
        rows=len(batch), bounded=CODE, row_group=group, partition={"run": str(run)}, codec=CODEC,
    )  # fmt: skip


def row_group(rows: int) -> int:
    """How many rows of a file are in a row group: few, so that few are decoded for a look-up, but each has its cost."""
    return min(ROW_GROUP, max(_LEAST, -(-rows // _GROUPS)))


def commit(
    folder: Place, files: Sequence[AddedFile], run: int, *, base: TableState | None, overwrite: bool = False
) -> TableState:
    """Make a run's files visible on top of ``base``; return the table's new state. See :func:`tables.commit`."""
    return tables.commit(folder, files, run, base=base, overwrite=overwrite)


def open_runs(folder: Place, files: Sequence[LiveFile], layout: Layout, span: Span = (None, None)) -> list[SortedBatch]:
    """The runs that have codes in ``span``: [lo, hi), None for no bound. Opens no other file.

    Many runs of few rows leave many small files. These are read whole, all at once, into one run in memory; and so are
    files that another program rewrote (OPTIMIZE), because their rows may be in any order.
    """
    overlapping = [file for file in files if _overlaps(file, span)]
    small = [file for file in overlapping if file.rows <= SMALL]
    whole = [
        file for file in overlapping if not has_digests(folder / file.path) or (len(small) > 1 and file.rows <= SMALL)
    ]
    runs: list[SortedBatch] = [FileBatch(folder / file.path, layout, span) for file in overlapping if file not in whole]
    if whole:
        runs.append(_read_whole(folder, whole, layout, span))
    return [run for run in runs if len(run)]


def _overlaps(file: LiveFile, span: Span) -> bool:
    lo, hi = span
    least, greatest = file.lower.get(CODE), file.upper.get(CODE)
    return (lo is None or greatest is None or greatest >= lo) and (hi is None or least is None or least < hi)


def _read_whole(folder: Place, files: Sequence[LiveFile], layout: Layout, span: Span) -> SortedBatch:
    """The rows of several files with codes in ``span``, as one run in memory."""
    rows = tables.scan(folder, files, layout.columns)
    for bound, inside in zip(span, (pl.col(CODE).ge, pl.col(CODE).lt), strict=True):
        rows = rows if bound is None else rows.filter(inside(bound))
    with reporting(folder, "read", REFRESH):
        frame = rows.collect()
    words = [encode(frame[name], kind) for name, kind in layout.stored.items()]
    codes, diffs, *times = (_integers(frame[name]) for name in (CODE, "diff", *layout.times))
    return arrange(codes, words, times, diffs)


class FileBatch(SortedBatch):
    """A run in a file, or the part of it with codes in ``span``.

    Arrays are allocated in full and filled as needed: ``codes``, ``words``, ``times`` and ``diffs`` hold values only in
    the rows that :meth:`locate` has returned, and everywhere after :meth:`load_all`. Opening reads the footer, and at
    most the two row groups at the ends of the span. No descriptor stays open, so the number of runs is not limited.
    Raises StorageError where the file is missing, damaged or of another layout.
    """

    __slots__ = (
        "_arrays", "_columns", "_file", "_first", "_greatest", "_groups", "_layout", "_least_codes", "_lock",
        "_missing", "_offsets", "_read", "path",
    )  # fmt: skip

    def __init__(self, path: Place, layout: Layout, span: Span = (None, None)) -> None:
        self.path, self._layout, self._lock = path, layout, Lock()
        with reporting(path, "read", REFRESH):
            self._file = DataFile(path, REFRESH)
            rows, least, greatest = self._index_groups()
        self._groups, rows, least, greatest = _groups_in(span, rows, least, greatest)
        self._least_codes, self._greatest = least, greatest
        self._missing = np.ones(len(rows), dtype=bool)
        before, after = self._outside(span)
        # Group g holds rows offsets[g]:offsets[g + 1] of the arrays; the first begins `_first` rows into its group.
        self._first = before
        self._offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64) - before
        n = max(0, int(self._offsets[-1]) - after)
        self._offsets = np.clip(self._offsets, 0, n)
        words, count = len(layout.stored), len(layout.stored) + len(layout.times) + 2
        spill = spilling.current()
        # Memory is taken as the arrays are filled.
        self._columns = None if spill is None or 8 * n * count < _WORTH else spilling.Columns(spill, count, n)
        arrays = np.empty((count, n), np.int64) if self._columns is None else self._columns.whole()
        super().__init__(arrays[0], arrays[1 : 1 + words], arrays[1 + words : -1], arrays[-1])
        self._arrays = arrays
        self._read = 0, 0  # rows and bytes since they were taken

    def take_reads(self) -> tuple[int, int]:
        """The rows and the bytes, as they are stored, that were read since the last call."""
        read, self._read = self._read, (0, 0)
        return read

    def memory(self) -> int:
        """The bytes of the rows that are in memory."""
        loaded = int(np.diff(self._offsets)[~self._missing].sum())
        return loaded * 8 * len(self._arrays)

    def locate(self, probes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row ranges [lo, hi) of equal code, one per probe (int64[m], ascending). Reads the row groups it needs."""
        if not self._missing.any():
            return super().locate(probes)
        with self._lock:
            return self._locate(probes)

    def index(self) -> None:
        """Only of rows in memory: others are found by the row groups that hold them."""
        if not self._missing.any():
            super().index()

    def _locate(self, probes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = np.searchsorted(self._greatest, probes, side="left")  # the first group that may hold the code
        last = np.searchsorted(self._least_codes, probes, side="right") - 1
        hits = np.flatnonzero(first <= last)
        self._load(_cover(first[hits], last[hits], len(self._missing)))
        if not self._missing.any():
            return super().locate(probes)
        lo = self._offsets[np.minimum(first, len(self._missing))].copy()
        hi = lo.copy()
        if len(hits):
            lo[hits] = self._bound(probes[hits], first[hits], "left")
            hi[hits] = self._bound(probes[hits], last[hits], "right")
        return lo, hi

    def locate_between(self, after: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row ranges [lo, hi) of the codes that are greater than ``after[k]`` and at most ``to[k]``. Reads the row
        groups that may hold such codes.
        """
        if not self._missing.any():
            return super().locate_between(after, to)
        with self._lock:
            first = np.searchsorted(self._greatest, after, side="right")  # the first group with a greater code
            last = np.searchsorted(self._least_codes, to, side="right") - 1
            hits = np.flatnonzero(first <= last)
            self._load(_cover(first[hits], last[hits], len(self._missing)))
            if not self._missing.any():
                return super().locate_between(after, to)
            lo = self._offsets[np.minimum(first, len(self._missing))].copy()
            hi = lo.copy()
            if len(hits):
                order = np.argsort(first[hits], kind="stable"), np.argsort(last[hits], kind="stable")
                for into, bounds, groups, rows in ((lo, after, first, order[0]), (hi, to, last, order[1])):
                    some = hits[rows]
                    into[some] = self._bound(bounds[some], groups[some], "right")
            return lo, hi

    def load_all(self) -> None:
        """Read the row groups that are not in memory. O(n)."""
        self._load(np.arange(len(self._missing)))

    def _bound(self, probes: np.ndarray, groups: np.ndarray, side: str) -> np.ndarray:
        """The row at which each probe belongs in its row group: one binary search per probe, one call per group."""
        bounds = np.empty(len(probes), dtype=np.int64)
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(groups)], strict=True):
            a, b = self._offsets[groups[start]], self._offsets[groups[start] + 1]
            bounds[start:end] = a + np.searchsorted(self.codes[a:b], probes[start:end], side=side)  # type: ignore[call-overload]
        return bounds

    def _load(self, needed: np.ndarray) -> None:
        groups = needed[self._missing[needed]]
        if len(groups) > _NEARLY_ALL * len(self._missing):
            groups = np.flatnonzero(self._missing)
        if len(groups) == 0:
            return
        names = [*self._layout.stored, *self._layout.times, "diff", CODE]
        size = len(groups) if self._columns is None else _READ
        for start in range(0, len(groups), size):
            some = groups[start : start + size]
            numbers = [int(self._groups[g]) for g in some]
            self._fill(self._file.read(numbers, names), some)
            self._missing[some] = False
            rows, stored = self._read
            self._read = rows + sum(map(self._file.rows_of, numbers)), stored + sum(map(self._file.size_of, numbers))

    def _fill(self, table: pa.Table, groups: np.ndarray) -> None:
        """Copy the rows of ``groups``, which follow one another in ``table``, to their places in the arrays."""
        layout = self._layout
        columns = [_integers(table[CODE])]
        columns += [encode(_series(name, table[name]), kind) for name, kind in layout.stored.items()]
        columns += [_integers(table[name]) for name in (*layout.times, "diff")]
        pieces = self._pieces(groups)
        for number, values in enumerate(columns):
            for source, start, end in pieces:
                if self._columns is None:
                    self._arrays[number, start:end] = values[source : source + end - start]
                else:
                    self._columns.write(number, start, values[source : source + end - start])

    def _pieces(self, groups: np.ndarray) -> list[tuple[int, int, int]]:
        """For groups that follow one another: the first row in the table read, and the rows [start, end) they fill."""
        pieces, row = list[tuple[int, int, int]](), 0
        for g in groups:
            start, end = int(self._offsets[g]), int(self._offsets[g + 1])
            source = row + (self._first if g == 0 else 0)
            if pieces and pieces[-1][2] == start and pieces[-1][0] + start - pieces[-1][1] == source:
                source, start, _ = pieces.pop()
            pieces.append((source, start, end))
            row += self._file.rows_of(int(self._groups[g]))
        return pieces

    def _index_groups(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, least and greatest code of every row group: int64[groups] each."""
        footer = self._file.metadata
        paths = [footer.schema.column(number).path for number in range(len(footer.schema))]
        names = {path.partition(".")[0] for path in paths}
        unknown = [name for name in self._layout.columns if name not in names]
        if unknown:
            raise StorageError(f"{self.path} has no column {unknown[0]}", REFRESH)
        column = paths.index(CODE)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        rows = np.array([group.num_rows for group in groups], dtype=np.int64)
        if self._file.has_digests:
            bounds = [group.column(column).statistics for group in groups]
            least = np.array([bound.min for bound in bounds], dtype=np.int64)
            greatest = np.array([bound.max for bound in bounds], dtype=np.int64)
        else:
            least, greatest = self._bounds_of_codes(len(groups))
        if (greatest[:-1] > least[1:]).any():
            raise StorageError(f"{self.path} is not sorted by {CODE}: another program rewrote it", REFRESH)
        return rows, least, greatest

    def _bounds_of_codes(self, groups: int) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest code of every row group of another program's file, from the codes themselves.

        Its statistics may be wrong or missing, and pyarrow ends the process where they are damaged.
        """
        bounds = np.empty((2, groups), dtype=np.int64)
        before = -(2**63)
        for number in range(groups):
            codes = _integers(self._file.read([number], [CODE])[CODE])
            bounds[:, number] = (codes[0], codes[-1]) if len(codes) else before
            before = int(bounds[1, number])
            if (codes[:-1] > codes[1:]).any():
                raise StorageError(f"{self.path} is not sorted by {CODE}: another program rewrote it", REFRESH)
        return bounds[0], bounds[1]

    def _outside(self, span: Span) -> tuple[int, int]:
        """The number of rows of the first group before the span, and of rows of the last group after it."""
        lo, hi = span
        before = after = 0
        if len(self._groups) and lo is not None and self._least_codes[0] < lo:
            before = int(np.searchsorted(self._codes_of(0), lo))
        if len(self._groups) and hi is not None and self._greatest[-1] >= hi:
            codes = self._codes_of(-1)
            after = len(codes) - int(np.searchsorted(codes, hi))
        return before, after

    def _codes_of(self, group: int) -> np.ndarray:
        return _integers(self._file.read([int(self._groups[group])], [CODE])[CODE])


def _integers(column: pa.ChunkedArray | pl.Series) -> np.ndarray:
    """An int64 column without nulls. Arrow's own ``to_numpy`` would import pandas, which takes longer than the read."""
    series = column if isinstance(column, pl.Series) else _series("", column)
    return np.ascontiguousarray(series.to_numpy())


def _series(name: str, column: pa.ChunkedArray) -> pl.Series:
    return pl.Series(name, _Stream(column))


class _Stream:
    """A column as nothing but a stream: for one that is known as pyarrow's, Polars imports pyarrow.compute."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._column.__arrow_c_stream__(requested_schema)


def _groups_in(
    span: Span, rows: np.ndarray, least: np.ndarray, greatest: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The row groups that have codes in the span: their numbers, row counts and bounds."""
    lo, hi = span
    first = 0 if lo is None else int(np.searchsorted(greatest, lo, side="left"))
    end = len(rows) if hi is None else int(np.searchsorted(least, hi, side="left"))
    end = max(first, end)
    return np.arange(first, end), rows[first:end], least[first:end], greatest[first:end]


def _cover(first: np.ndarray, last: np.ndarray, groups: int) -> np.ndarray:
    """The groups in any of the ranges [first, last]: O(ranges + groups)."""
    steps = np.zeros(groups + 1, dtype=np.int64)
    np.add.at(steps, first, 1)
    np.add.at(steps, last + 1, -1)
    return np.flatnonzero(np.cumsum(steps[:-1]) > 0)
