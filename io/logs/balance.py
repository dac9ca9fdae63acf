"""A balance: the count of an input's rows at each time, after files are added to its log or removed from it.

No count may be negative or exceed int64. Only rows that can violate this are checked. One streaming scan of the log
serves them all, with Spark too: a join on Spark would shuffle the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from ddcore.base.errors import DataError
from ddcore.base.lattice import is_before
from ddcore.io.delta import tables
from ddcore.io.delta.open_tables import mend_hint
from ddcore.io.delta.table_files import AddedFile, LiveFile
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.updates import DIFF, RowCount, first_count, running_counts
from ddcore.io.project.times import named
from ddcore.io.storage.reporting import reporting
from ddcore.text.wording import shown_value

_GREATEST = 2**63 - 1
_RARE = 0.5  # of the values that a column may have: where those to check are more, no condition on it pays


class Balance:
    """The counts of rows of ``log`` if it holds the files ``live`` and ``fresh``."""

    def __init__(self, log: ChangeLog, live: Sequence[LiveFile], fresh: Sequence[AddedFile | LiveFile] = ()) -> None:
        self._log, self._rows, self._live = log, list(log.schema), live
        self._updates = pl.concat([log.scan_files(live), _scan(log, fresh)])
        self._checks: list[pl.LazyFrame] = []

    def watch(self, files: Sequence[AddedFile | LiveFile], condition: pl.Expr | None = None) -> None:
        """Check the rows of the updates in these files; with ``condition``, only those where it is true."""
        updates = _scan(self._log, files)
        self._checks.append((updates if condition is None else updates.filter(condition)).select(self._rows))

    def watch_inserted(self, files: Sequence[AddedFile], inserted: int) -> None:
        """Check the ``inserted`` rows that these files insert, or a sample by hash, of the same rows in the log
        as in the source: see ``Tuning.repeating_sample``.
        """
        parts = -(-inserted // self._log.tuning.repeating_sample)
        sampled = pl.struct(self._rows).hash(0) % max(parts, 1) == 0
        self.watch(files, (pl.col(DIFF) > 0) & sampled)

    def watch_large(self, updates: int) -> None:
        """Check the rows whose counts may leave int64: among so many updates, theirs include a large diff."""
        self._checks.append(self._updates.filter(pl.col(DIFF) > _GREATEST // max(updates, 1)).select(self._rows))

    def counts(self) -> pl.DataFrame:
        """The counts of all rows to check, in the form of :func:`ddcore.io.logs.updates.running_counts`."""
        with reporting(self._log.folder, "read", mend_hint(self._log.folder)):
            checked = pl.concat(self._checks).unique().collect(engine="streaming")
        # A semi-join decodes all columns of all rows; behind a condition on one, the others are decoded where it holds.
        updates = self._updates if (rare := self._rare(checked)) is None else self._updates.filter(rare)
        history = updates.join(checked.lazy(), on=self._rows, how="semi", nulls_equal=True)
        return running_counts(self._log.collect(history), self._log.dims)

    def _rare(self, checked: pl.DataFrame) -> pl.Expr | None:
        """A condition that all rows to check meet, and few others, by the bounds of the log's files; None without such.
        It says which rows are read, and never which are found.
        """
        shares: dict[str, float] = {}
        for name, kind in self._log.schema.items():
            bounds = [(file.lower.get(name), file.upper.get(name)) for file in self._live]
            numbers = [bound for pair in bounds for bound in pair if isinstance(bound, int)]
            if kind.name == "int64" and len(numbers) == 2 * len(bounds) > 0:
                shares[name] = checked[name].n_unique() / (max(numbers) - min(numbers) + 1)
        name = min(shares, key=shares.__getitem__, default="")
        if not name or shares[name] > _RARE:
            return None
        return pl.col(name).is_in(checked[name].unique().implode(), nulls_equal=True)

    def below_zero(self, counts: pl.DataFrame) -> RowCount | None:
        """The first version at which a row has a negative count, with the first such row."""
        return first_count(counts, self._log.dims, pl.col("_count") < 0)

    def beyond_int64(self, counts: pl.DataFrame) -> RowCount | None:
        """The first version at which the count of a row does not fit into int64, with the first such row."""
        return first_count(counts, self._log.dims, pl.col("_count") > _GREATEST)

    def repeated(self, counts: pl.DataFrame) -> tuple[int, RowCount] | None:
        """The number of rows with a count above 1 at some version, and the first of them; None without any."""
        first = first_count(counts, self._log.dims, pl.col("_count") > 1)
        if first is None:
            return None
        return (counts.filter(pl.col("_count") > 1).select(self._rows).n_unique(), first)


def repeated_key(
    log: ChangeLog, key: Sequence[str], files: Sequence[AddedFile | LiveFile], touched: pl.LazyFrame
) -> list[RowCount]:
    """The rows of the first key that more than one row has at some version, if ``log`` holds these files; else none.

    Only keys of ``touched``, a frame of updates, are looked at, by one streaming scan of the log; at the first version,
    and with the count of each row there. O(updates of these keys) in memory.
    """
    keys, columns = list(key), [*log.schema, *log.dims, DIFF]
    with reporting(log.folder, "read", mend_hint(log.folder)):
        wanted = touched.select(keys).unique().collect(engine="streaming").lazy()
    history = log.collect(_scan(log, files).join(wanted, on=keys, how="semi", nulls_equal=True).select(columns))
    counts = running_counts(history.select(*keys, *log.dims, DIFF), log.dims)
    first = first_count(counts, log.dims, pl.col("_count") > 1)
    if first is None:
        return []
    is_key = pl.all_horizontal(
        pl.col(name).eq_missing(pl.lit(first.row[name], dtype=log.schema[name].polars)) for name in keys
    )
    rows = history.filter(is_key, is_before(log.dims, first.version)).group_by(*log.schema)
    held = rows.agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) > 0).sort(*log.schema)
    return [RowCount({n: row[n] for n in log.schema}, first.version, row[DIFF]) for row in held.iter_rows(named=True)]


def repeated_key_error(
    what: str, name: str, key: Sequence[str], rows: Sequence[RowCount], dims: Sequence[str]
) -> DataError:
    """The error of a change, ``what``, after which these rows of the input ``name`` would have one key."""
    shown = "; and ".join(_shown(row.row) + (f" ({row.count} times)" if row.count > 1 else "") for row in rows[:2])
    return DataError(
        f"{what}: the input {name} would hold more than one row of the key {', '.join(key)} as of "
        f"{named(rows[0].version, dims)}: {shown}",
        f"nothing was changed; retract the one that is not meant; or, if rows may share a key, take key out "
        f"of [inputs.{name}] in dd.toml",
    )


def _shown(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={shown_value(value)}" for name, value in row.items())


def _scan(log: ChangeLog, files: Sequence[AddedFile | LiveFile]) -> pl.LazyFrame:
    return log.seen(tables.scan(log.folder, files, log.read_columns, check=False))
