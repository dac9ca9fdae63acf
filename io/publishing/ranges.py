"""The files of a published table: each holds the rows of one range of the table's order.

The order is that of the columns that partition the table, of those that cluster it (else of the output's key), and of
all other plain columns. Ranges do not overlap, so a changed row belongs to exactly one file, which is found by the
first rows of the files alone: a file has its own in the notes of its footer. Equal rows, and rows that differ in lists
and structs only, are never in two files.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from ddcore.base.schema import Schema
from ddcore.io.project.output_tables import TableSettings

FIRST = "ddcore.first"  # the note with the first row of a file, in the columns of the order: Arrow IPC in base64
_FILE, _KIND = "_ddcore_file", "_ddcore_kind"  # no column of an output begins with _


@dataclass(frozen=True)
class RangeFile:
    """A file of a table: its path, size in bytes, rows, the values of the partition's columns, and its first row."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    first: pl.DataFrame


@dataclass(frozen=True)
class Order:
    """The order of a table's rows: all plain columns, first those of ``partition``."""

    columns: tuple[str, ...]
    partition: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema, settings: TableSettings, key: Sequence[str]) -> Order:
        """The order of an output's table."""
        plain = [name for name, kind in schema.items() if not kind.stored.is_nested]
        first = (*settings.partition_by, *(settings.cluster_by or key), *plain)
        return cls(tuple(dict.fromkeys(name for name in first if name in plain)), settings.partition_by)

    def sorted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows in order."""
        return rows.sort(self.columns, maintain_order=True) if self.columns else rows

    def divided(self, changes: pl.DataFrame, files: Sequence[RangeFile]) -> Iterator[tuple[int | None, pl.DataFrame]]:
        """The changed rows of each file that has some, by its place in ``files``; under None those of partitions that
        have no file. O((n + f) log (n + f)).
        """
        if not files or not self.columns:
            yield (0 if files else None), changes
            return
        numbers = pl.Series(_FILE, range(len(files)), pl.Int64)
        firsts = pl.concat([file.first for file in files]).with_columns(numbers, pl.lit(0).alias(_KIND))
        rows = changes.with_columns(pl.lit(None, pl.Int64).alias(_FILE), pl.lit(1).alias(_KIND))
        both = pl.concat([firsts, rows], how="diagonal").sort([*self.columns, _KIND], maintain_order=True)
        known = pl.col(_FILE).forward_fill(), pl.col(_FILE).backward_fill()
        if self.partition:
            known = known[0].over(self.partition), known[1].over(self.partition)
        file = pl.coalesce(*known).alias(_FILE)
        found = both.with_columns(file).filter(pl.col(_KIND) == 1).select(*changes.columns, _FILE)
        for (number,), part in found.partition_by(_FILE, as_dict=True, maintain_order=True).items():
            yield (None if number is None else int(str(number))), part.drop(_FILE)

    def numbered(self, rows: pl.DataFrame, cuts: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
        """The rows of each range that has some, by its number: the first is before all cuts, which ascend; each of the
        others begins with one. O((n + c) log (n + c)).
        """
        if cuts.is_empty() or rows.is_empty():
            yield 0, rows
            return
        numbers = pl.Series(_FILE, range(1, len(cuts) + 1), pl.Int64)
        marks = cuts.select(self.columns).with_columns(numbers, pl.lit(0).alias(_KIND))
        others = rows.with_columns(pl.lit(None, pl.Int64).alias(_FILE), pl.lit(1).alias(_KIND))
        both = pl.concat([marks, others], how="diagonal").sort([*self.columns, _KIND], maintain_order=True)
        number = pl.col(_FILE).forward_fill().fill_null(0)
        found = both.with_columns(number).filter(pl.col(_KIND) == 1).select(*rows.columns, _FILE)
        for (index,), part in found.partition_by(_FILE, as_dict=True, maintain_order=True).items():
            yield int(str(index)), part.drop(_FILE)

    def cut(self, rows: pl.DataFrame, size: int) -> Iterator[pl.DataFrame]:
        """Rows in order, in parts of about ``size`` rows, each of one partition. Rows that are equal in the columns of
        the order stay together.
        """
        if not len(rows):
            return
        new = _differs(rows, self.columns)
        ends = [*np.flatnonzero(_differs(rows, self.partition))[1:], len(rows)]
        starts, begin = np.flatnonzero(new), 0
        for end in ends:
            number = -(-(end - begin) // size)
            wished = [begin + (end - begin) * part // number for part in range(1, number)]
            positions = [int(starts[at]) for at in np.searchsorted(starts, wished) if at < len(starts)]
            cuts = [begin, *dict.fromkeys(index for index in positions if begin < index < end), end]
            for first, last in pairwise(cuts):
                yield rows[first:last]
            begin = int(end)

    def first(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The first of some rows in order, in the columns of the order."""
        return rows.head(1).select(self.columns)


def _differs(rows: pl.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Whether each row differs from the one before it in some of the columns; the first does."""
    differs = np.zeros(len(rows), dtype=bool)
    differs[0] = True
    for name in columns:
        values = rows[name]
        differs[1:] |= ~values[1:].eq_missing(values[:-1]).to_numpy()
    return differs


def first_of(row: pl.DataFrame) -> str:
    """The text of a note with a row."""
    buffer = io.BytesIO()
    row.write_ipc(buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def first_from(text: str) -> pl.DataFrame:
    """The row in a note. ValueError for another text."""
    try:
        return pl.read_ipc(io.BytesIO(base64.b64decode(text, validate=True)))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(str(error)) from error
