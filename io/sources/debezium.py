"""Debezium's events: an envelope with the row before and the row after a change.

The envelope is the columns ``op``, ``before``, ``after``, ``source`` and ``ts_ms`` of a source, or the fields of one
column ``payload``. ``before`` and ``after`` are structs, or JSON as text; or one column of text has the whole envelope
as JSON, with or without ``payload`` around it. An event of nulls alone is a tombstone, which says nothing.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ddcore.base.errors import DataError
from ddcore.base.lazy import polars as pl
from ddcore.io.project.event_words import AFTER, BEFORE, DELETE, INSERT, NOTHING, UPDATE
from ddcore.io.sources.events import Events
from ddcore.io.sources.jsonobjects import CUT, parse_object
from ddcore.io.sources.layouts import Layout, fit
from ddcore.io.sources.row_checks import Column, rows_of
from ddcore.io.sources.source import Source
from ddcore.io.sources.validation import first_bad
from ddcore.text.wording import listed

_PAYLOAD, _BEFORE, _AFTER, _OP = "payload", "before", "after", "op"
_TIMES = ("ts_ms", "ts_us", "ts_ns")
_SOURCE, _TOMBSTONE = "source.", "_tombstone"


@dataclass(frozen=True)
class Envelopes(Events):
    """How Debezium's events become events of an input.

    A column is a field of the row; else one of the envelope, such as ``ts_ms``, or of its ``source``: ``source.lsn``.
    """

    def declared(self, source: Source) -> Source:
        """The source; of one without types each row as JSON."""
        return source.as_texts()

    def fit(self, source: Source) -> Layout:
        """How the source is read: the layout of its envelopes."""
        types = source.columns()
        columns = self._columns(source, types)
        kinds, text = self._flat(types if len(columns) > 1 else _fields(types, columns[0]))
        layout = fit(source.name, kinds, self.rules, folders=source.folders, text=text or source.is_text)
        return replace(layout, ignored=tuple(name for name in layout.ignored if name in _fields(types, _AFTER)))

    def columns(self, source: Source, layout: Layout) -> list[str]:
        """The columns of a source to read."""
        del layout
        return self._columns(source, source.columns())

    def _columns(self, source: Source, types: Mapping[str, pl.DataType]) -> list[str]:
        """The columns of the envelope: its fields, or one column that has it. DataError without an envelope."""
        if _OP in types and (_AFTER in types or _BEFORE in types):
            wanted = {self.rules.rename.get(name, name).partition(".")[0] for name in self.rules.columns}
            return [name for name in types if name in (_OP, _BEFORE, _AFTER) or name in wanted]
        texts = [name for name, kind in types.items() if kind == pl.String]
        for name in (_PAYLOAD, "value", *(texts if len(texts) == 1 else [])):
            if name in types and (_OP in _fields(types, name) or types[name] == pl.String):
                return [name]
        raise DataError(
            f"{source.name}: no envelope of Debezium; there are: {listed(types)}",
            "it is columns op, before and after, or one column payload or value with them; for rows with an operation: "
            "--op COLUMN",
        )

    def _flat(self, types: Mapping[str, pl.DataType]) -> tuple[dict[str, pl.DataType], bool]:
        """The columns that the input may take from the envelope, and whether their values are text."""
        nested = [name for name in (_AFTER, _BEFORE) if isinstance(types.get(name), pl.Struct)]
        if not nested:  # JSON, which says its fields row by row
            names = {self.rules.rename.get(name, name): name for name in self.rules.columns}
            there = {their for their, ours in names.items() if ours in self.rules.schema or their != ours}
            return dict.fromkeys(sorted(there), pl.String()), True
        row = {name: kind for inner in reversed(nested) for name, kind in _fields(types, inner).items()}
        source = {_SOURCE + name: kind for name, kind in _fields(types, _SOURCE[:-1]).items()}
        rest = {name: kind for name, kind in types.items() if name not in (_AFTER, _BEFORE, _SOURCE[:-1], _OP)}
        return {**rest, **source, **row}, False

    def read(self, frame: pl.DataFrame, layout: Layout, number: int, first_row: int | None) -> pl.DataFrame:
        """The events of a frame. Without a key, an event is the row before it and the row after it."""
        envelope = self._envelope(frame, layout, first_row)
        is_tombstone = envelope.select(
            pl.all_horizontal(pl.col(name).is_null() for name in (_OP, _BEFORE, _AFTER) if name in envelope.columns)
        ).to_series()
        known = pl.Series([next(iter(self.usual))]).new_from_index(0, len(frame))
        kinds = self.named(envelope[_OP].zip_with(~is_tombstone, known), layout.where, _OP, first_row)
        kinds = kinds.zip_with(~is_tombstone, pl.Series([NOTHING]).new_from_index(0, len(frame)))
        none = pl.lit(None)
        before, after = (pl.col(n) if n in envelope.columns else none for n in (_BEFORE, _AFTER))
        envelope = envelope.with_columns(kinds.alias("_kind"), is_tombstone.alias(_TOMBSTONE))
        if self.key:
            is_gone = pl.col("_kind") == DELETE
            sides = [(pl.when(is_gone).then(before).otherwise(after), kinds)]
        else:
            kind, lacks = pl.col("_kind"), before.is_null()
            old = pl.when(kind == DELETE).then(DELETE).when((kind == UPDATE) & ~lacks).then(BEFORE)
            updated = pl.when(lacks).then(UPDATE).otherwise(AFTER)
            new = pl.when(kind == INSERT).then(INSERT).when(kind == UPDATE).then(updated)
            sides = [
                (side, envelope.select(what.otherwise(NOTHING).cast(pl.Int64)).to_series())
                for side, what in ((before, old), (after, new))
            ]
        parts = []
        for side, operations in sides:
            rows = rows_of(self._rows(envelope, side, layout), layout, self.rules, first_row)
            parts.append(self.numbered(rows, operations, layout.where, number, first_row))
        return pl.concat(parts)

    def _rows(self, envelope: pl.DataFrame, side: pl.Expr, layout: Layout) -> pl.DataFrame:
        """The columns of the row that the input takes, from one side of the envelope."""
        whole = envelope.with_columns(side.alias("_row"))
        times = {layout.source_columns[dim] for dim in self.rules.dims if dim in layout.source_columns}
        inside = _fields(whole.schema, "_row")
        columns = []
        for name in layout.read:
            if name in inside:
                column = pl.col("_row").struct.field(name)
                column = pl.coalesce(column, pl.col(name)) if name in _TIMES and name in whole.columns else column
            elif name.startswith(_SOURCE):
                column = pl.col(_SOURCE[:-1]).struct.field(name.removeprefix(_SOURCE))
            else:
                column = pl.col(name)
            if name in times:  # a tombstone has none, and every row needs one
                column = pl.when(pl.col(_TOMBSTONE)).then(pl.lit("0" if layout.text else 0)).otherwise(column)
            columns.append(column.alias(name))
        return whole.select(columns)

    # --- what holds the envelope ---

    def _envelope(self, frame: pl.DataFrame, layout: Layout, first_row: int | None) -> pl.DataFrame:
        """The envelope's fields as columns; of JSON those that the input takes, as text."""
        if len(frame.columns) == 1:
            name = frame.columns[0]
            if frame.schema[name] == pl.String:
                text = frame[name]
                self._refuse_others(text, layout, first_row)
                frame = self._decoded(text, self._json(layout, whole=True), layout, first_row).struct.unnest()
                inner = frame[_PAYLOAD].struct.unnest()
                frame = frame.select(
                    pl.when(pl.lit(frame[_PAYLOAD].is_not_null())).then(inner[n]).otherwise(frame[n]).alias(n)
                    for n in inner.columns
                )
                if frame[_AFTER].is_not_null().any():
                    self._check_fields(text, layout)
                    self._check_rows(text, frame, layout)
            else:
                frame = frame[name].struct.unnest()
        for name in (_BEFORE, _AFTER):
            if name in frame.columns and frame.schema[name] == pl.String:
                if name == _AFTER and frame[name].is_not_null().any():
                    self._check_fields(frame[name], layout)
                decoded = self._decoded(frame[name], self._json(layout, whole=False), layout, first_row)
                frame = frame.with_columns(decoded.alias(name))
        return frame

    def _json(self, layout: Layout, *, whole: bool) -> pl.Struct:
        """The type of a row in JSON, or of the whole envelope: all values are text."""
        row = pl.Struct({name: pl.String() for name in layout.read if not name.startswith(_SOURCE)})
        if not whole:
            return row
        inside = [name.removeprefix(_SOURCE) for name in layout.read if name.startswith(_SOURCE)]
        fields = {_OP: pl.String(), _BEFORE: row, _AFTER: row}
        fields |= {name: pl.String() for name in layout.read if name in _TIMES}
        fields |= {_SOURCE[:-1]: pl.Struct(dict.fromkeys(inside, pl.String()))} if inside else {}
        return pl.Struct({**fields, _PAYLOAD: pl.Struct(fields)})

    def _check_fields(self, text: pl.Series, layout: Layout) -> None:
        """Raise DataError for a column that no event has, of which some have a row after them: a delete may have the
        key alone.
        """
        for name in layout.read:
            if not text.str.contains(f'"{name.rpartition(".")[2]}"', literal=True).any():
                raise DataError(
                    f"{layout.where}: no event has a field {name!r}", "if it has another name: --column OURS=THEIRS"
                )

    def _check_rows(self, text: pl.Series, frame: pl.DataFrame, layout: Layout) -> None:
        """Raise DataError for a column that no row has, and that ``source`` or another part of the envelope has.

        Its values would all be null. Only a column without any value is looked for, event by event.
        """
        fields = frame[_AFTER].struct.unnest(), frame[_BEFORE].struct.unnest()
        for name in fields[0].columns:
            if name in _TIMES or any(rows[name].is_not_null().any() for rows in fields):
                continue
            if not any(name in row for row in _rows_in(text)):
                ours = next(our for our, their in layout.source_columns.items() if their == name)
                option = shlex.quote(f"{ours}={_SOURCE}{name}")
                raise DataError(
                    f"{layout.where}: no row in the events has a field {name!r}",
                    f"if another part of the envelope has it, name the part: --column {option}",
                )

    def _refuse_others(self, text: pl.Series, layout: Layout, first_row: int | None) -> None:
        """Raise DataError for JSON of something else, which would be taken for a tombstone."""
        has = text.str.contains_any([f'"{_OP}"', f'"{_PAYLOAD}"']) | (text.str.strip_chars() == "null")
        Column(layout.where, text.name, text, first_row).refuse(
            ~has.fill_null(True), "is no envelope of Debezium", "for rows with an operation: --op COLUMN"
        )

    def _decoded(self, text: pl.Series, kind: pl.Struct, layout: Layout, first_row: int | None) -> pl.Series:
        """JSON as structs. DataError for text that is none, with its row."""
        bad = _first_undecodable(text, kind)
        if bad is not None:
            try:
                parse_object(text[bad])
            except ValueError as error:
                event = "an event" if first_row is None else f"the event in row {first_row + bad}"
                raise DataError(f"{layout.where}: {event} is {error}", CUT) from error
            column = Column(layout.where, text.name, text, first_row)
            mask = text.is_null() & text.is_not_null()
            mask[bad] = True
            column.refuse(mask, "is not JSON of an event", "its columns have to be plain values: text, numbers, ...")
        return text.str.json_decode(kind)


def _fields(types: Mapping[str, pl.DataType], name: str) -> dict[str, pl.DataType]:
    """The fields of a struct column, by name; none for another column."""
    kind = types.get(name)
    return dict(kind.to_schema()) if isinstance(kind, pl.Struct) else {}  # type: ignore[arg-type]


def _rows_in(text: pl.Series) -> Iterator[Mapping[str, object]]:
    """The rows before and after each event, of envelopes as JSON."""
    for event in filter(None, map(json.loads, text.drop_nulls())):
        envelope = event.get(_PAYLOAD) or event
        yield from (envelope[side] for side in (_BEFORE, _AFTER) if envelope.get(side))


def _first_undecodable(text: pl.Series, kind: pl.Struct) -> int | None:
    """The place of the first text that is not JSON of this type; None if all are."""

    def decodes(first: int, last: int) -> bool:
        try:
            text[first:last].str.json_decode(kind)
        except pl.exceptions.PolarsError:
            return False
        return True

    return None if decodes(0, len(text)) else first_bad(len(text), decodes)
