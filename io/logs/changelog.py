"""Change logs: the updates of one input or output, ``(row, time, diff)``, as a Delta table.

Readers open the version of the table that the ledger names, so they do not see what an unfinished run or ingest wrote.
Rows are compared as in the engine: null equals null, NaN equals NaN, -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import polars as pl

from ddcore.base.errors import DiffOverflow, StorageError
from ddcore.base.lattice import is_before
from ddcore.base.record import record
from ddcore.base.schema import Schema, Type
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.data.forms import to_stored
from ddcore.data.nested import map_inside
from ddcore.io.delta import commits, new_files, open_tables, tables
from ddcore.io.delta.table_files import AddedFile, LiveFile, TableState
from ddcore.io.logs.updates import is_at_one_time, one_nan_one_zero
from ddcore.io.parquet.datafile import MayMeet
from ddcore.io.project.frontiers import Window
from ddcore.io.project.stored_columns import StoredColumns
from ddcore.io.project.times import Time, span
from ddcore.io.storage import store
from ddcore.io.storage.reporting import reporting
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    import pyarrow as pa

    from ddcore.io.delta.new_files import Unsynced
    from ddcore.io.delta.writer import Writer

_INT64 = Type("int64")
_FEED = {"delta.enableChangeDataFeed": "true"}  # anyone can read what each commit added and removed: docs/reading.md
_ROW_GROUP = 1 << 20  # rows: a dictionary of values serves more rows than in small groups
_LEAST, _GREATEST = -(2**63), 2**63 - 1


def _normalise(values: pl.Series, kind: Type) -> pl.Series:
    if isinstance(values.dtype, pl.Extension):
        values = values.ext.storage()  # UUIDs, which frames of programs have marked
    values = values.cast(kind.polars)
    return one_nan_one_zero(values) if kind.name == "float64" else values


@record
class ChangeLog:
    """The change log in ``folder``: the columns of ``schema``, one int64 column per name in ``dims``, ``diff`` int64.

    The parameter ``state`` is the table's state in the ledger; None, where the ledger has none, means no rows. Times
    have one int per name in ``dims``. Every method raises StorageError where the table or one of its files cannot be
    read or written, or differs from what the ledger says.

    ``writer``: of a command that holds the lock. Without it the table can be read, and files be written, but nothing is
    committed. ``stored``: how the table has the columns of the row, where not simply as they are.
    """

    folder: Location
    schema: Schema
    dims: tuple[str, ...] = ("version",)
    writer: Writer | None = field(default=None, compare=False, repr=False)
    tuning: Tuning = field(default=DEFAULT, compare=False, repr=False)
    stored: StoredColumns | None = None

    @property
    def _owner(self) -> Writer:
        """The writer, where the caller holds the warehouse's lock."""
        assert self.writer is not None, "who commits to a log holds the lock, and gives the log its writer"
        return self.writer

    @property
    def columns(self) -> Schema:
        """The columns of an update and their types."""
        return {**self.schema, **self._times}

    @property
    def table_columns(self) -> Schema:
        """The table's columns and their types, without those that were dropped."""
        return {**(self.schema if self.stored is None else self.stored.schema), **self._times}

    @property
    def names(self) -> dict[str, str]:
        """For each column of the row, in order, the column of the table to which new rows are written."""
        return {name: name for name in self.schema} if self.stored is None else self.stored.names

    def columns_of(self, stored: Iterable[str]) -> frozenset[str]:
        """The columns of the row of which these columns of the table hold values."""
        return frozenset(stored) if self.stored is None else self.stored.columns_of(stored)

    def as_before(self, stored: Sequence[str], has: Iterable[str]) -> list[pl.Expr]:
        """These columns of the table, as rows of before had them, in a frame of the row's columns and maybe of dropped
        ones, which ``has`` these columns.
        """
        return [pl.col(name) for name in stored] if self.stored is None else self.stored.narrowed(stored, has)

    @property
    def _times(self) -> Schema:
        return dict.fromkeys((*self.dims, "diff"), _INT64)

    def create(self, *, replace: bool = False) -> None:
        """Create the table if it does not exist; with ``replace``, an existing one may change its columns.

        A new table has Delta's change data feed. An existing one keeps its properties.
        """
        tables.create(self._owner, self.folder, self.table_columns, replace=replace, configuration=_FEED)

    def write(self, stem: str, updates: pl.DataFrame, unsynced: Unsynced | None = None) -> AddedFile:
        """Write updates as one data file, which no reader sees before :meth:`commit`.

        The file's name begins with ``stem``; the same updates under the same stem give the same file. May run in
        another process. O(n log n), O(n) for updates in time order.
        """
        return self.write_table(stem, self.table(updates.rechunk()), self.tuning.group_rows, unsynced)

    def table(self, updates: pl.DataFrame) -> pa.Table:
        """Updates in Arrow, sorted by time. In the chunks that they come in, if they are at one time."""
        updates = self._normalise(updates)
        if len(updates) and not is_at_one_time(updates, self.dims):
            updates = updates.sort(self.dims, maintain_order=True)
        updates = pl.DataFrame([to_stored(updates[name], kind) for name, kind in self.columns.items()])
        chunks = updates.to_arrow(compat_level=pl.CompatLevel.newest())  # texts as they are in Polars: views
        columns, names = self.columns, self.names
        written = {names.get(name, name): kind for name, kind in columns.items()}
        return new_files.arrow_table({names.get(name, name): chunks[name] for name in columns}, written)

    def write_table(
        self, stem: str, table: pa.Table, row_group: int = _ROW_GROUP, unsynced: Unsynced | None = None
    ) -> AddedFile:
        """Write a file of what :meth:`table` returned, in large row groups. Needs no memory but Arrow's."""
        return new_files.write_file(
            self.folder, stem, table, bounded=self._bounded, row_group=row_group, unsynced=unsynced
        )

    @property
    def _bounded(self) -> list[str]:
        """The columns of the table whose bounds are in Delta's log."""
        return [self.names.get(name, name) for name, kind in self.columns.items() if not kind.stored.is_nested]

    def added_again(self, file: LiveFile) -> AddedFile:
        """A file of an earlier version of the table, for a commit that adds it again. Reads it, for its statistics."""
        table = self.table(self.collect(self.scan_files([file])))
        return AddedFile(file.path, file.size, file.rows, new_files.file_stats(table, self._bounded))

    def commit(
        self,
        files: Sequence[AddedFile],
        txn: int,
        *,
        base: TableState | None,
        overwrite: bool = False,
        without: Iterable[str] = (),
        adds: Schema | None = None,
        carries: Mapping[str, str] | None = None,
    ) -> TableState:
        """Make files visible on top of ``base`` and return the table's new state: see :func:`tables.commit`.

        ``adds``: the table gets those of its columns that it lacks; nothing of that for none, or an empty one.
        """
        if adds and self.stored is not None:
            adds = self.stored.schema
        return commits.commit(
            self._owner, self.folder, files, txn, base=base, overwrite=overwrite, without=without, adds=adds,
            carries=carries,
        )  # fmt: skip

    def has_columns(self, state: TableState | None = None) -> bool:
        """Whether the table has exactly these columns at ``state``; without it, in its newest version."""
        stored = tables.stored_columns(self.folder, state, self.writer)
        return stored == [(name, str(kind)) for name, kind in self.columns.items()]

    def version(self) -> int:
        """The newest Delta version of the table, whether the ledger names it or not."""
        with reporting(self.folder, "read", open_tables.mend_hint(self.folder)):
            return open_tables.open_table(self.folder, writer=self.writer).version()

    def append(self, updates: pl.DataFrame, txn: int, *, base: TableState | None) -> TableState:
        """Write updates and commit them, creating the table if it does not exist; return the table's state."""
        self.create()
        files = [self.write(f"{txn:06d}", updates)] if len(updates) else []
        return self.commit(files, txn, base=base)

    def files(self, state: TableState | None) -> list[LiveFile]:
        """The table's data files, with the bounds of columns of the row."""
        files = tables.live_files(self.folder, state, self.writer)
        if (stored := self.stored) is None:
            return files
        return [replace(file, lower=stored.bounds(file.lower), upper=stored.bounds(file.upper)) for file in files]

    def scan(self, state: TableState | None) -> pl.LazyFrame:
        """All updates, unconsolidated, as a lazy frame. :meth:`collect` names the table in its errors."""
        return self.scan_files(self.files(state))

    def window(self, window: Window, state: TableState | None) -> pl.LazyFrame:
        """The updates whose times are in a window. Opens no file that cannot have any."""
        files = [file for file in self.files(state) if window.may_meet(file.lower, file.upper, self.dims)]
        return self.scan_files(files).filter(window.condition(self.dims))

    def scan_files(
        self, files: Sequence[AddedFile | LiveFile], may_meet: MayMeet | None = None,
        within: tuple[int, int] | None = None,
    ) -> pl.LazyFrame:  # fmt: skip
        """The updates of some of the table's files, in file order. Checks the digests of each whole file first; with
        ``may_meet``, of row groups whose bounds may be those of such rows, and leaves the others out; with ``within``,
        of row groups that have some of these rows of a file, [start, stop), and leaves the other rows out.
        """
        try:
            may_meet = self._meeting(may_meet)
            updates = tables.scan(self.folder, files, self.read_columns, may_meet=may_meet, within=within)
        except StorageError as error:
            raise self._lost(files) or error from None
        return self.seen(updates)

    def seen(self, updates: pl.LazyFrame) -> pl.LazyFrame:
        """Updates with the columns of the row, from those of the table: :attr:`read_columns`."""
        return updates if self.stored is None else updates.select(*self.stored.values(), *self._times)

    @property
    def read_columns(self) -> Schema:
        """The columns that files of the table may have, with those that were dropped."""
        return {**self.table_columns, **({} if self.stored is None else self.stored.dropped)}

    def _meeting(self, may_meet: MayMeet | None) -> MayMeet | None:
        """The same for bounds of the table's columns."""
        if may_meet is None or (stored := self.stored) is None:
            return may_meet
        return lambda lower, upper: may_meet(stored.bounds(lower), stored.bounds(upper))

    def _lost(self, files: Sequence[AddedFile | LiveFile]) -> StorageError | None:
        """The error for the first of these files that is missing, with the times that it held; None if none is."""
        for file in files:
            if not store.is_file(self.folder / file.path):
                held = ""
                if isinstance(file, LiveFile) and all(dim in file.lower and dim in file.upper for dim in self.dims):
                    ends = [Time([side[dim] for dim in self.dims]) for side in (file.lower, file.upper)]
                    word = "times" if len(self.dims) > 1 else "version" if ends[0] == ends[1] else "versions"
                    held = f": it has {word} {span(ends[0], ends[1], self.dims)} of {self.folder.name}"
                hint = open_tables.mend_hint(self.folder)
                return StorageError(f"{self.folder / file.path} is missing{held}", hint)
        return None

    def between(self, a: Time | None, b: Time, state: TableState | None, rows: pl.Expr | None = None) -> pl.DataFrame:
        """The collection at time ``b`` minus the one at time ``a``: distinct rows and their ``diff``, never 0.
        Only those for which ``rows``, an expression over columns of the row, is true.

        With one dimension these are the consolidated updates in (a, b]. None for ``a``: before the first update. Does
        not open files whose updates are all before ``a`` or all after ``b``.
        """
        return self.sums(self.counted(a, b, state, rows))

    def counted(
        self, a: Time | None, b: Time, state: TableState | None, rows: pl.Expr | None = None,
        *, files: Sequence[LiveFile] | None = None, may_meet: MayMeet | None = None,
    ) -> pl.LazyFrame:  # fmt: skip
        """The updates of which :meth:`between` is the sum, and maybe others with a ``diff`` of 0, as a lazy frame.

        ``diff`` says how often an update counts: it is an Int128, and the only column beside those of the row.
        ``files``: those of :meth:`files_between` that can have such rows, if not all; ``may_meet``: the same of row
        groups, by their bounds.
        """
        updates = self.scan_files(self.files_between(a, b, state) if files is None else files, may_meet)
        return self.weighed(updates, a, b, rows)

    def weighed(self, updates: pl.LazyFrame, a: Time | None, b: Time, rows: pl.Expr | None = None) -> pl.LazyFrame:
        """Of some updates those of :meth:`counted`, as they are there."""
        weight = self.counts_at(b) if a is None else self.counts_at(b) - self.counts_at(a)
        for condition in (rows, self._within(a, b)):  # before all else, so that the reader of files skips what it can
            updates = updates if condition is None else updates.filter(condition)
        return updates.select(*self.schema, diff=pl.col("diff") * weight)

    def _within(self, a: Time | None, b: Time) -> pl.Expr | None:
        """True for all updates that count at one of two times only; None where no condition on a column says so."""
        if a is None:
            return is_before(self.dims, b)
        if len(self.dims) > 1:
            return None
        (first,), (last,) = sorted([a, b])
        return pl.col(self.dims[0]).is_between(first, last, closed="right")

    def files_between(self, a: Time | None, b: Time, state: TableState | None) -> list[LiveFile]:
        """The files that have updates which count at one of two times only."""
        times = [time for time in (a, b) if time is not None]
        files = [file for file in self.files(state) if not all(self._after(file, time) for time in times)]
        return files if a is None else [file for file in files if not self._before(file, times)]

    def updates(
        self, a: Time | None, b: Time | None, state: TableState | None, rows: pl.Expr | None = None
    ) -> pl.DataFrame:
        """The updates at or before time ``b`` (None: all) and not at or before ``a``, consolidated: rows, times, diff.
        Only those for which ``rows`` is true.

        Sorted by time and row. Does not open files that have none of them.
        """
        files, chosen = self.files(state), pl.lit(True)
        if b is not None:
            files = [file for file in files if not self._after(file, b)]
            chosen = chosen & is_before(self.dims, b)
        if a is not None:
            files = [file for file in files if not self._before(file, [a])]
            chosen = chosen & ~is_before(self.dims, a)
        updates = self.scan_files(files) if rows is None else self.scan_files(files).filter(rows)
        sums = self.sums(updates.filter(chosen), [*self.schema, *self.dims])
        return sums.sort([*self.dims, *self.schema])

    def counts_at(self, time: Time) -> pl.Expr:
        """1 for an update that counts at a time, one at or before it in the product order; else 0."""
        return is_before(self.dims, time).cast(pl.Int128)

    def collect(self, frame: pl.LazyFrame) -> pl.DataFrame:
        """The rows of a lazy frame over this log; StorageError naming the table where they cannot be read."""
        with reporting(self.folder, "read", open_tables.mend_hint(self.folder)):
            return frame.collect(engine="streaming")

    def batches(self, frame: pl.LazyFrame, size: int) -> Iterator[pl.DataFrame]:
        """The rows of a lazy frame over this log, in batches of about ``size`` rows. As :meth:`collect`."""
        with reporting(self.folder, "read", open_tables.mend_hint(self.folder)):
            batches = frame.collect_batches(chunk_size=size, maintain_order=True, lazy=True, engine="streaming")
            yield from batches

    def sums(self, updates: pl.LazyFrame, columns: Sequence[str] = ()) -> pl.DataFrame:
        """Distinct rows, or values of ``columns``, and the sum of ``diff``, without sums of 0.

        Sums have 128 bits, so they cannot wrap.
        """
        rows = list(columns or self.schema)
        sums = updates.group_by(rows).agg(pl.col("diff").cast(pl.Int128).sum()).filter(pl.col("diff") != 0)
        return self.narrowed(self.collect(sums)).select(*rows, "diff")

    def narrowed(self, sums: pl.DataFrame) -> pl.DataFrame:
        """The sums with ``diff`` as int64. Raises DiffOverflow for a sum beyond that."""
        beyond = sums.filter((pl.col("diff") < _LEAST) | (pl.col("diff") > _GREATEST))
        if len(beyond):
            row = beyond.row(0, named=True)
            raise DiffOverflow(f"{self.folder.name}: the diffs of {row} leave the range of int64")
        return sums.with_columns(pl.col("diff").cast(pl.Int64))

    def _normalise(self, updates: pl.DataFrame) -> pl.DataFrame:
        """The table's columns in order and of their types, with one NaN and one zero."""
        return pl.DataFrame([map_inside(updates[name], kind, _normalise) for name, kind in self.columns.items()])

    def _after(self, file: LiveFile, until: tuple[int, ...]) -> bool:
        """Whether no update of a file is at or before ``until``."""
        return any(file.lower.get(name, last) > last for name, last in zip(self.dims, until, strict=True))

    def _before(self, file: LiveFile, times: Sequence[tuple[int, ...]]) -> bool:
        """Whether all updates of a file are at or before each of the times, so that the difference has none."""
        least = [min(lasts) for lasts in zip(*times, strict=True)]
        return all(file.upper.get(name, _GREATEST) <= last for name, last in zip(self.dims, least, strict=True))
