"""The files of a published table: how rows become files, and files rows. Tasks of Spark have it, too.

Nothing here reads a log or makes a commit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcore.base.errors import StorageError, UsageError
from ddcore.base.schema import Schema, Type
from ddcore.io.delta.new_files import Unsynced, arrow_table, stored_columns, write_file
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.delta.tables import values_of
from ddcore.io.parquet import datafile
from ddcore.io.project.output_tables import TableSettings
from ddcore.io.publishing.commits import CHANGES, HINT, escaped, partition_text
from ddcore.io.publishing.ranges import FIRST, Order, RangeFile, first_of
from ddcore.io.storage.reporting import reporting
from ddcore.text.wording import brief

if TYPE_CHECKING:
    from ddcore.io.storage.store import Location

_KIND = "_change_type"  # Delta's name for the column that says what a row of the change feed is
_INT64 = Type("int64")


class NewFile(NamedTuple):
    """A file that no commit has yet, and its first row, in the columns of the order."""

    file: AddedFile
    first: pl.DataFrame


class Change(NamedTuple):
    """What is written and what goes, how many rows come and go, and changed rows as they were and as they are, with
    their counts.
    """

    added: Sequence[NewFile]
    removed: Sequence[str]
    plus: int
    minus: int
    old: pl.DataFrame
    new: pl.DataFrame


class Span(NamedTuple):
    """The range of this ``number`` among those that begin with the rows ``cuts``. Files in ``split`` have rows of
    others, too.
    """

    number: int
    cuts: pl.DataFrame
    split: Collection[str]


@dataclass(eq=False)
class Table:
    """The table of an output, in ``folder``. ``rows``: the columns of the output; ``key``: its key; ``size``: about how
    many rows a file has. ``unsynced``: those that its files are synced to the disk with.
    """

    output: str
    folder: Location
    rows: Schema
    settings: TableSettings
    key: tuple[str, ...]
    size: int
    unsynced: Unsynced | None = field(default=None, repr=False)

    @cached_property
    def order(self) -> Order:
        """The order of the table's rows."""
        return Order.of(self.rows, self.settings, self.key)

    @property
    def schema(self) -> Schema:
        """The columns of the table."""
        count = self.settings.count
        return {**self.rows, **({count: _INT64} if count else {})}

    def changed(self, files: Sequence[RangeFile], changes: pl.DataFrame, span: Span | None = None) -> Change:
        """Write those of some files with changed rows again; ``span``: only the rows of this range of each.

        StorageError where a file is damaged or lost, and where rows that go are not there.
        """
        added, removed = list[NewFile](), list[str]()
        names = list(self.rows)
        nothing = changes.clear().select(*names, pl.col("diff").cast(pl.Int64))
        olds, news = [nothing], [nothing]
        for number, part in self._divided(changes, files, span):
            old, rest = (nothing, None) if number is None else self._touched(files[number], part, span)
            new = sums([old, part.select(*names, "diff")], names)
            if (new["diff"] < 0).any():
                raise StorageError(f"{self.folder} is not as it was left: rows that go are not there")
            if number is not None:
                removed.append(files[number].path)
            added += self.written(new if rest is None else pl.concat([rest, new]))
            olds.append(old)
            news.append(new)
        plus, minus = (int(changes.filter(pl.col("diff") * sign > 0)["diff"].sum()) * sign for sign in (1, -1))
        return Change(added, removed, plus, minus, pl.concat(olds), pl.concat(news))

    def _divided(
        self, changes: pl.DataFrame, files: Sequence[RangeFile], span: Span | None
    ) -> list[tuple[int | None, pl.DataFrame]]:
        """The changed rows of each file that has some, or that has rows of other ranges, too."""
        parts = list(self.order.divided(changes, files)) if len(changes) else []
        if span is None:
            return parts
        there = {number for number, _ in parts}
        split = [number for number, file in enumerate(files) if file.path in span.split and number not in there]
        return [*parts, *((number, changes.clear()) for number in split)]

    def written(self, rows: pl.DataFrame) -> list[NewFile]:
        """New files of some rows and their counts, each of one range."""
        return [self.file(part) for part in self.order.cut(self.order.sorted(rows), self.size)]

    def file(self, part: pl.DataFrame) -> NewFile:
        """A new file of some rows in order, which are of one partition, and their counts."""
        first = self.order.first(part)
        rows = self._as_stored(part)
        partition = {name: _partition_value(first[name][0], name, self.output) for name in self.order.partition}
        schema = {name: kind for name, kind in self.schema.items() if name not in partition}
        table = arrow_table(stored_columns(rows, schema), schema)
        bounded = [name for name, kind in schema.items() if not kind.stored.is_nested]
        steps = {name: escaped(value) for name, value in partition.items()}
        file = write_file(
            self.folder, f"{self.output}-{_stem(first)}", table, bounded=bounded, notes={FIRST: first_of(first)},
            partition=steps, unsynced=self.unsynced,
        )  # fmt: skip
        return NewFile(AddedFile(file.path, file.size, file.rows, file.stats, partition), first)  # type: ignore[arg-type]

    def _as_stored(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows and their counts as the table has them: with the count, or each as often as it occurs. UsageError for
        one that occurs less than no times.
        """
        if self.settings.count:
            return rows.rename({"diff": self.settings.count})
        for row in rows.filter(pl.col("diff") < 0).head(1).iter_rows(named=True):
            times = row.pop("diff")
            raise UsageError(
                f"output {self.output}: a row occurs {times} times, and a table cannot have it so: {brief(row)}",
                'let a column have the counts: table = { count = "n" }',
            )
        if (rows["diff"] == 1).all():
            return rows.drop("diff")
        return rows.drop("diff")[np.repeat(np.arange(len(rows)), rows["diff"].to_numpy())]

    def _touched(self, file: RangeFile, part: pl.DataFrame, span: Span | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Of the rows of a file those that are among the changed ones, with their counts; and the others, in order: in
        few files many rows change.
        """
        names = list(self.rows)
        rows, touched = self._stored([file], span), part.select(names)
        old = rows.join(touched, on=names, how="semi", nulls_equal=True)
        rest = rows.join(touched, on=names, how="anti", nulls_equal=True, maintain_order="left") if len(old) else rows
        return sums([old], names), rest

    def held(self, files: Sequence[RangeFile], span: Span | None = None) -> pl.DataFrame:
        """The distinct rows of some files of the table, and their counts as ``diff``. Checks the digests."""
        return sums([self._stored(files, span)], list(self.rows))

    def _stored(self, files: Sequence[RangeFile], span: Span | None = None) -> pl.DataFrame:
        """The rows of some files as they are there, in their order, with ``diff``; of those with rows of other ranges,
        the ones in this one. Checks the digests.
        """
        frames = []
        for file in files:
            path = self.folder / file.path
            with reporting(path, "read", HINT):
                frame = pl.read_parquet(datafile.content(path, HINT), use_statistics=False)
                values = [
                    pl.lit(file.first[name][0], file.first[name].dtype).alias(name) for name in self.order.partition
                ]
                frame = frame.with_columns(values)
                stored = frame.lazy().select([pl.col(n).cast(kind.stored.polars) for n, kind in self.schema.items()])
                rows = values_of(stored, self.schema).collect()
            if span is not None and file.path in span.split:
                rows = dict(self.order.numbered(rows, span.cuts)).get(span.number, rows.clear())
            frames.append(rows)
        names, count = list(self.rows), self.settings.count
        diff = pl.col(count).alias("diff") if count else pl.lit(1, pl.Int64).alias("diff")
        if not frames:
            return pl.DataFrame(schema={**{n: k.polars for n, k in self.rows.items()}, "diff": pl.Int64})
        return pl.concat(frames).select(*names, diff)

    def feed(self, run: int, old: pl.DataFrame, new: pl.DataFrame) -> list[AddedFile]:
        """The files of the change feed of a run: what became of changed rows, given as they were and as they are, with
        their counts; all those of a key.
        """
        if old.is_empty() and new.is_empty():
            return []
        names, key = list(self.rows), self.key
        if self.settings.count:  # the count is a column of the row
            key, old, new = key or tuple(names), self._as_stored(old), self._as_stored(new)
            names = list(self.schema)
        else:
            both = sums([new, old.with_columns(diff=-pl.col("diff"))], names)
            new = both.filter(pl.col("diff") > 0)
            old = both.filter(pl.col("diff") < 0).with_columns(diff=-pl.col("diff"))
            old, new = self._as_stored(old), self._as_stored(new)
        kinds = []
        for side, other, alone, paired in (
            (old, new, "delete", "update_preimage"), (new, old, "insert", "update_postimage"),
        ):  # fmt: skip
            is_paired = _is_paired(side, other, key)
            kinds.append(
                side.with_columns(pl.when(is_paired).then(pl.lit(paired)).otherwise(pl.lit(alone)).alias(_KIND))
            )
        rows = pl.concat(kinds)
        if self.order.partition:
            parts = [part for part in rows.partition_by(self.order.partition, maintain_order=True)]
        else:
            parts = [rows] if len(rows) else []
        return [self._feed_file(run, part) for part in parts]

    def _feed_file(self, run: int, rows: pl.DataFrame) -> AddedFile:
        """A file of the change feed, which goes with its commit; so no two runs have one of the same name."""
        partition = {name: _partition_value(rows[name][0], name, self.output) for name in self.order.partition}
        schema = {**{name: kind for name, kind in self.schema.items() if name not in partition}, _KIND: Type("string")}
        table = arrow_table(stored_columns(rows, schema), schema)
        file = write_file(self.folder / CHANGES, f"cdc-{run:08x}", table, unsynced=self.unsynced)
        return AddedFile(file.path, file.size, file.rows, file.stats, partition)  # type: ignore[arg-type]


def sums(parts: Sequence[pl.DataFrame], names: list[str]) -> pl.DataFrame:
    """Distinct rows and their counts, without those of 0."""
    rows = pl.concat([part.select(*names, pl.col("diff").cast(pl.Int64)) for part in parts])
    return rows.group_by(names).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)


def _is_paired(side: pl.DataFrame, other: pl.DataFrame, key: Sequence[str]) -> pl.Series:
    """Whether each row is the only one of its key, and the other side has one of it too."""
    if not key:
        return pl.Series([False]).new_from_index(0, len(side))
    once = other.filter(pl.struct(key).is_unique()).select(key).with_columns(_there=pl.lit(True))
    found = side.select(key).join(once, on=list(key), how="left", nulls_equal=True, maintain_order="left")
    return found["_there"].fill_null(False) & side.select(pl.struct(key).is_unique()).to_series()


def _partition_value(value: Any, name: str, output: str) -> str | None:
    """A value of a partition as Delta's log has it."""
    if value == "":
        raise UsageError(
            f"output {output}: the column {name!r} has an empty text, which Delta takes for null in a partition",
            "partition by another column, or give the rows another value",
        )
    return partition_text(value)


def _stem(first: pl.DataFrame) -> str:
    """A word for a file's name, by its first row: files of equal rows in different partitions have different names."""
    return datafile.digest_of(first_of(first).encode())[:8]
