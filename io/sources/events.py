"""Events: rows of sources that say what happened to a row, as change data capture writes them.

An event inserts a row, gives a key a new value, or deletes. The word in an operation column says which; without such a
column each row is the new value of its key, or deletes the key if all other columns are null. Some sources have two
events for an update: the row before it, and the row after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ddcore.base.errors import DataError
from ddcore.base.lazy import polars as pl
from ddcore.base.lazy import pyarrow as pa
from ddcore.io.project.event_words import AFTER, BEFORE, DELETE, INSERT, NOTHING, TRUNCATE, UPDATE
from ddcore.io.sources.layouts import Layout, Rules, fit
from ddcore.io.sources.paths import type_at
from ddcore.io.sources.row_checks import Column, rows_of
from ddcore.io.sources.source import Source
from ddcore.text.wording import listed, meant

OP, PLACE = "_op", "_place"  # the columns that events have beside those of the row and the time
_WORDS: Mapping[str, int] = {
    **dict.fromkeys(("c", "r", "i", "insert", "create", "read", "+i"), INSERT),
    **dict.fromkeys(("u", "update"), UPDATE),
    **dict.fromkeys(("update_postimage", "+u"), AFTER),
    **dict.fromkeys(("d", "delete", "-d"), DELETE),
    **dict.fromkeys(("update_preimage", "-u", "ub"), BEFORE),
    **dict.fromkeys(("t", "truncate"), TRUNCATE),
}
_SOURCE = 1 << 40  # rows of one source, at most


@dataclass(frozen=True)
class Events:
    """How rows of sources become events of an input.

    ``rules`` has its columns and times. ``key`` are the columns that tell its rows apart; without them each event is
    one insertion or retraction. ``order`` are the columns by which events of one version and key are ordered. ``op`` is
    the source's column with the operation, ``words`` the operation of each word in it; without them, the usual ones.
    """

    rules: Rules
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    op: str | None = None
    words: Mapping[str, int] = field(default_factory=dict)

    @property
    def usual(self) -> Mapping[str, int]:
        """The operation of each word: those that were given, or the usual ones, in lower case."""
        return self.words or _WORDS

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are neither of the key nor of the order."""
        return tuple(name for name in self.rules.schema if name not in (*self.key, *self.order))

    def declared(self, source: Source) -> Source:
        """The source, read as the types of the input, if it has no types of its own; operations may be of any."""
        return source.as_declared({**({} if self.op is None else {self.op: None}), **self.rules.types})

    def fit(self, source: Source) -> Layout:
        """The layout of a source. DataError naming a column that is missing or of a type that does not fit."""
        types = source.columns()
        layout = fit(source.name, types, self.rules, folders=source.folders, text=source.is_text)
        if self.op is not None and type_at(types, self.op) is None:
            raise DataError(
                f"{source.name}: there is no column {self.op!r} with the operation; there are: {listed(types)}",
                meant(self.op, types) or "say which it is: --op COLUMN",
            )
        return replace(layout, ignored=tuple(name for name in layout.ignored if name != self.op))

    def columns(self, source: Source, layout: Layout) -> list[str]:
        """The columns of a source to read."""
        del source
        return list(dict.fromkeys([*layout.read, *([] if self.op is None else [self.op])]))

    def schema(self) -> pa.Schema:
        """The columns of events."""
        whole = dict.fromkeys((*self.rules.dims, OP, PLACE), pa.int64())
        return pa.schema([*((name, kind.arrow) for name, kind in self.rules.schema.items()), *whole.items()])

    def read(self, frame: pl.DataFrame, layout: Layout, number: int, first_row: int | None) -> pl.DataFrame:
        """The events in a batch of source ``number``. DataError for a row that is none.

        ``PLACE`` ascends from source to source and from row to row; all rows of a source without an order, whose
        ``first_row`` is None, are at one place.
        """
        rows = rows_of(frame, layout, self.rules, first_row)
        return self.numbered(
            rows, self._operations(frame, rows, layout.where, first_row), layout.where, number, first_row
        )

    def numbered(
        self, rows: pl.DataFrame, operations: pl.Series, where: str, number: int, first_row: int | None
    ) -> pl.DataFrame:
        """These rows as events, after a check of each."""
        rows = rows.with_columns(operations.alias(OP))
        self._check(rows, where, first_row)
        start = number * _SOURCE
        if first_row is None:
            return rows.with_columns(pl.lit(start, pl.Int64).alias(PLACE))
        positions = pl.int_range(start + first_row, start + first_row + len(rows), dtype=pl.Int64, eager=True)
        return rows.with_columns(positions.alias(PLACE))

    def _operations(self, frame: pl.DataFrame, rows: pl.DataFrame, where: str, first_row: int | None) -> pl.Series:
        """What each row does, int64."""
        if self.op is None:
            is_value = pl.any_horizontal(pl.col(name).is_not_null() for name in self.values)
            return rows.select(pl.when(is_value).then(UPDATE).otherwise(DELETE).cast(pl.Int64)).to_series()
        return self.named(frame[self.op], where, self.op, first_row)

    def named(self, values: pl.Series, where: str, name: str, first_row: int | None) -> pl.Series:
        """The operations that words name, int64. DataError for a word that names none."""
        words = self.words or _WORDS
        text = values.cast(pl.String)
        names = text if self.words else text.str.to_lowercase()
        kinds = names.replace_strict(list(words), list(words.values()), default=None, return_dtype=pl.Int64)
        known = "known are c, r, i, u, d and their long forms" if not self.words else f"--op-values has {listed(words)}"
        column = Column(where, name, text, first_row)
        column.refuse(
            kinds.is_null(), "is no operation", f"{known}; for others: --op-values insert=A,update=B,delete=C"
        )
        column.refuse(
            kinds == TRUNCATE,
            "empties the table at its origin, which is no event of a row",
            "take the content after it in as a snapshot: --snapshot",
        )
        return kinds

    def _check(self, rows: pl.DataFrame, where: str, first_row: int | None) -> None:
        """Raise DataError for an event without a key or an order, and for an update that does not say of what row."""
        is_event = ~rows[OP].is_in([BEFORE, NOTHING])
        for name in self.order:
            Column(where, name, rows[name], first_row).refuse(
                rows[name].is_null() & is_event,
                "is no order",
                "--order-by needs a value in every event, also in deletes; if it has another name in the source: "
                f"--column {name}=COLUMN",
            )
        if self.key:
            lacks = rows.select(pl.all_horizontal(pl.col(name).is_null() for name in self.key)).to_series()
            Column(where, ", ".join(self.key), rows[self.key[0]], first_row).refuse(
                lacks & is_event, "is no key, so the event is about no row", "fix the row at the source"
            )
            return
        Column(where, self.op or OP, rows[OP], first_row).refuse(
            rows[OP] == UPDATE,
            "updates a row without the row before it",
            "say which columns tell rows apart: --key COLUMN,...",
        )
