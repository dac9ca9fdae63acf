"""Rows of a log: a collection at a version, what changed between two, or updates. As a frame of Polars, pandas, Arrow
or Spark, and as they look in a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Literal

import polars as pl

from ddcore.base.errors import StorageError, UsageError
from ddcore.base.lazy import pyarrow as pa
from ddcore.base.schema import Schema, Type
from ddcore.io.project.times import Time
from ddcore.io.reading.pairs import Change, cells_of, changes_of, number_of_changes, sign
from ddcore.text.cells import cell, count
from ddcore.text.listing import laid_out
from ddcore.text.wording import one_line

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from ddcore.io.reading.folded import FoldedLog
    from ddcore.program.condition import Condition

Kind = Literal["at", "between", "updates"]

_INT64 = Type("int64")
SHOWN = 20  # rows in a notebook
_WIDTH = 100  # columns of plain text


class Rows:
    """Rows of a log and their ``diff``, as one of these kinds:

    - ``at``: the distinct rows of the collection at ``end`` and how often each is there; never 0.
    - ``between``: the rows that differ between ``start`` and ``end``, and by how much.
    - ``updates``: the updates after ``start``, up to and including ``end``, with their times.

    The rows are read when they are first needed, from the tables as they were when the log was opened, and are kept.
    Every method that reads raises StorageError where a table cannot be read. Whatever takes Arrow data takes this too:
    ``pl.DataFrame(rows)``, ``pa.table(rows)``, and ``dd.replay``.
    """

    def __init__(
        self, log: FoldedLog, kind: Kind, start: Time | None, end: Time | None, key: tuple[str, ...], *,
        where: Condition | None = None,
    ) -> None:  # fmt: skip
        self._log, self.kind, self.start, self.end, self._key, self._where = log, kind, start, end, key, where

    @property
    def schema(self) -> Schema:
        """The names and types of all columns, also ``diff``."""
        return dict(self._log.log.columns) if self.kind == "updates" else {**self._log.schema, "diff": _INT64}

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return list(self.schema)

    def __len__(self) -> int:
        return len(self._frame)

    @cached_property
    def _frame(self) -> pl.DataFrame:
        if self.kind == "updates":
            return self._log.updates(self.start, self.end, self._where)
        assert self.end is not None
        rows = self._log.rows(None if self.kind == "at" else self.start, self.end, self._where)
        frame: pl.DataFrame = pl.concat([rows.nothing, *rows])
        return frame

    # --- frames ---

    def polars(self) -> pl.DataFrame:
        """A Polars frame, sorted by row; updates are sorted by time and row."""
        return self._frame

    def arrow(self) -> pa.Table:
        """An Arrow table, sorted as the Polars frame; timestamps are microseconds in UTC."""
        from ddcore.io.delta.new_files import value_table

        return value_table({name: self._frame[name].to_arrow() for name in self.columns}, self.schema)

    def pandas(self) -> pd.DataFrame:
        """A pandas frame, sorted as the Polars frame; UsageError where pandas is not installed.

        As pandas has them: a column of integers with nulls becomes one of floats, dates and lists are objects.
        """
        if find_spec("pandas") is None:
            raise UsageError("pandas is not installed", "pip install pandas; or take .polars() or .arrow()")
        frame: pd.DataFrame = self.arrow().to_pandas()
        return frame

    def spark(self, session: SparkSession | None = None) -> DataFrame:
        """A Spark frame in no order, which Spark itself reads from the Delta table, at the version of the ledger.

        ``session``: by default the active one. It needs Delta's package, and with ``where=`` ddcore in the Python of
        its executors. UsageError where there is no session.
        """
        table = self._log.table
        if table is None:
            raise UsageError(f"{self._log.name} has no table yet", "begin with: ddcore ingest INPUT SOURCE")
        reader = _session(session).read.format("delta").option("versionAsOf", table.version)
        folder = str(self._log.log.folder)
        try:
            updates = reader.load(folder.replace("s3://", "s3a://", 1) if folder.startswith("s3://") else folder)
            for name, operator, value in () if self._where is None else self._where.comparisons:
                updates = updates.where(f"`{name}` {operator} {value}")
            columns = [name for name in self.columns if name != "diff"]
            quoted = [f"`{name}`" for name in columns]
            sums = updates.selectExpr(*quoted, f"`diff` * {self._weight()} AS `diff`").groupBy(*quoted)
            frame = sums.agg({"diff": "sum"}).withColumnRenamed("sum(diff)", "diff").where("`diff` <> 0")
            return frame if self._where is None else _of_condition(frame, self._where)
        except Exception as error:
            if "DATA_SOURCE_NOT_FOUND" in str(error) or "Failed to find" in str(error):
                hint = "start it with Delta's package, or: session.createDataFrame(rows.arrow())"
                raise UsageError("this Spark session cannot read Delta tables", hint) from None
            raise StorageError(f"{folder}: Spark cannot read it: {one_line(error):.300}") from error

    def _weight(self) -> str:
        """How often an update counts, in SQL."""
        after = "1" if self.end is None else self._counts(self.end)
        if self.start is None:
            return after
        before = self._counts(self.start)
        return f"({after} * (1 - {before}))" if self.kind == "updates" else f"({after} - {before})"

    def _counts(self, time: Time) -> str:
        dims = zip(self._log.log.dims, time, strict=True)
        return f"CAST({' AND '.join(f'`{dim}` <= {coordinate}' for dim, coordinate in dims)} AS BIGINT)"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.arrow().__arrow_c_stream__(requested_schema)

    # --- in a notebook ---

    @property
    def title(self) -> str:
        """What these rows are: ``at 13 (2026-11-19)``, ``12..13``."""
        names = self._log.names
        where = "" if self._where is None else f" where {self._where.text}"
        if self.kind == "at" and self.end is not None:
            return f"at {names.shown(self.end)}{where}"
        first, last = ("" if time is None else names.shown(time) for time in (self.start, self.end))
        range_ = f"{'updates ' * (self.kind == 'updates')}{first}..{last}" if first or last else "all updates"
        return range_ + where

    def __repr__(self) -> str:
        heads, cells, right, left = self._cells()
        lines = [self._log.heading, f"{self.title}  {self._sizes()}"]
        if cells:
            lines += ["", *(line for _, line in laid_out(heads, cells, right, _WIDTH))]
        return "\n".join([*lines, *([f"... and {count(left)} more"] if left else [])])

    def _repr_html_(self) -> str:
        from ddcore.io.reading.diff_table import diff_table
        from ddcore.text.markup import table, tag
        from ddcore.text.notebook import fragment, heading, note

        head = heading(self._log.name, f"{self.title}, {self._sizes()}")
        if self.kind == "between":
            listed, left = self._changes()
            body = (
                diff_table(list(self._log.schema), self._log.numbers, listed)
                if listed
                else tag("p", "Nothing changed.")
            )
        else:
            heads, cells, right, left = self._cells()
            body = table(heads, cells, right=right, label=self.title) if cells else tag("p", "No rows.")
        return fragment(head, body, *([note(f"{count(left)} more rows are not shown.")] if left else []))

    def _sizes(self) -> str:
        if self.kind == "at":
            return f"{count(len(self))} {'row' if len(self) == 1 else 'rows'}"
        diffs = self._frame["diff"].cast(pl.Int128)
        plus, minus = int(diffs.filter(diffs > 0).sum()), -int(diffs.filter(diffs < 0).sum())
        return f"+{count(plus)} -{count(minus)}"

    def _changes(self) -> tuple[list[Change], int]:
        """The first changes, paired by the key, and how many are left."""
        names = list(self._log.schema)
        keys = [name for name in self._key if name in names]
        rows = self._frame.sort([*keys, *(name for name in names if name not in keys)])
        listed = list(islice(changes_of([rows], [names.index(name) for name in keys]), SHOWN))
        return listed, number_of_changes([rows], keys, len(rows)) - len(listed)

    def _cells(self) -> tuple[list[str], list[list[str]], list[int], int]:
        """Headers, the first rows as text, the places of numbers, and how many rows are left."""
        names, numbers = list(self._log.schema), self._log.numbers
        if self.kind == "between":
            listed, left = self._changes()
            cells = [[sign(change), *cells_of(change)] for change in listed]
            return ["", *names], cells, [1 + number for number in numbers], left
        part, left = self._frame.head(SHOWN), max(0, len(self) - SHOWN)
        if self.kind == "at" and bool((self._frame["diff"] == 1).all()):
            return names, [[*map(cell, row[:-1])] for row in part.iter_rows()], numbers, left
        columns = self.columns
        right = [*numbers, *range(len(names), len(columns))]
        return columns, [[*map(cell, row)] for row in part.iter_rows()], right, left


def _of_condition(frame: DataFrame, condition: Condition) -> DataFrame:
    """The rows of a Spark frame that meet a condition, which its executors compute as all other readers do."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import polars as pl

        types = pl.Schema({name: kind.polars for name, kind in condition.schema.items()})
        for batch in batches:
            part = pl.DataFrame(batch).select([*types]).cast(types).with_row_index("=")
            positions = condition.kept(condition.scan(part.lazy()).collect())["="]
            yield batch.take(positions.to_arrow())

    return frame.mapInArrow(rows, frame.schema)


def _session(session: SparkSession | None) -> SparkSession:
    """The session, or the active one. UsageError where there is none."""
    if session is None and find_spec("pyspark") is not None:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
    if session is None or not hasattr(session, "read"):
        kind = "no Spark session" if session is None else f"no Spark session, but {type(session).__name__}"
        raise UsageError(f"there is {kind}", "give an active one: rows.spark(session)")
    return session
