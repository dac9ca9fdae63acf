"""The schema that a source looks like, for a user who has not declared one yet."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DataError, DdError
from ddcore.base.lazy import polars as pl
from ddcore.base.schema import parse_schema
from ddcore.io.sources.csvfile import CsvFile
from ddcore.io.sources.finding import find_sources
from ddcore.io.sources.jsonlines import JsonLines
from ddcore.io.sources.jsonobjects import parse_object
from ddcore.io.sources.jsontypes import guessed_types, is_event
from ddcore.io.sources.layouts import without_comma

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.io.sources.source import Source

_ROWS = 1000  # of a CSV file, which does not say what its values are
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Guess:
    """What a source looks like: the schema of its rows, their key, its columns, and what it is.

    ``is_events``: of Debezium; ``is_table``: a Delta table; ``columns`` has the times, the diff and the operation too.
    """

    schema: Schema
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    is_events: bool = False
    is_table: bool = False

    @property
    def line(self) -> str:
        """``schema = {...}``, and ``key = [...]`` where there is one, as in ``dd.toml``."""
        return schema_line(self.schema) + (f", and key = {json.dumps(list(self.key))}" if self.key else "")


def guess(paths: Sequence[str], dims: Sequence[str], *, debezium: bool = False, op: str = "") -> Guess:
    """What the first source at these places looks like, without its times, diff and operation.

    Of Debezium's events the rows decide. A guess: the first thousand rows of a CSV or JSON lines file decide about its
    types. DdError for a source that cannot be read or that no input can hold as it is.
    """
    source = find_sources(paths)[0]
    objects = _objects(source, debezium=debezium)
    is_events = debezium or (not op and (all(map(is_event, objects)) if objects else is_event(source.columns())))
    key: Sequence[str] = ()
    if objects:
        types, key = guessed_types(objects, debezium=is_events)
    else:
        types = _row_types(_types(source)) if is_events else _types(source)
    schema = parse_schema({name: kind for name, kind in types.items() if name not in (*dims, "diff", op)})
    if not schema:
        raise DataError(
            f"{source.name}: no column was found beside times, diff and operation",
            "write its section of dd.toml by hand: docs/sync.md",
        )
    key = tuple(name for name in key if name in schema)
    return Guess(schema, key, tuple(types), is_events, source.is_table)


def guessed_schema(paths: Sequence[str], dims: Sequence[str], *, debezium: bool = False, op: str = "") -> str:
    """The line ``schema = {...}`` for ``dd.toml`` that fits the first source; empty where nothing can be guessed.

    It goes on with ``key = [...]``, if events have keys, and with the option ``--debezium``, if it was not given. Of a
    URL nothing is read: it is for the hint of an error.
    """
    if "://" in paths[0]:
        return ""
    try:
        found = guess(paths, dims, debezium=debezium, op=op)
    except DdError:
        return ""
    is_new = found.is_events and not debezium
    return found.line + ("; as these are events of Debezium, say --debezium" if is_new else "")


def _objects(source: Source, *, debezium: bool) -> Sequence[Mapping[str, Any]]:
    """The first objects of JSON lines, or of events of Debezium in a column of texts; none for another source."""
    if isinstance(source, JsonLines):
        return source.first_objects(_ROWS)
    texts = [name for name, kind in source.columns().items() if kind == pl.String]
    name = "value" if "value" in texts else texts[0] if len(texts) == 1 else None
    if not debezium or name is None:
        return []
    values = next((frame[name].head(_ROWS).drop_nulls().to_list() for _, frame in source.frames([name])), [])
    try:
        return [parse_object(value) for value in values if value.strip().startswith("{")]
    except ValueError:
        return []


def _row_types(types: Mapping[str, Any]) -> dict[str, Any]:
    """The types of the rows in the columns of Debezium's events; none where the rows are text."""
    envelope = types.get("payload", pl.Struct(dict(types)))
    inside = dict(envelope.to_schema()) if isinstance(envelope, pl.Struct) else {}
    row = inside.get("after", inside.get("before"))
    return dict(row.to_schema()) if isinstance(row, pl.Struct) else {}


def _types(source: Source) -> dict[str, Any]:
    if not isinstance(source, CsvFile):
        return source.columns()
    names = list(source.columns())
    if len(names) == 1 and (hint := without_comma(names[0])):
        raise DataError(f"{source.name}: its only column is {names[0]!r:.200}", hint)
    rows = next((frame.head(_ROWS) for _, frame in source.frames(names)), None)
    if rows is None:
        return {}
    text = io.BytesIO(rows.select(names).write_csv().encode())
    return dict(pl.read_csv(text, try_parse_dates=True, infer_schema_length=_ROWS).schema)


def schema_line(schema: Schema) -> str:
    """``schema = {...}`` as ``dd.toml`` has it."""
    names = {name: name if _BARE.fullmatch(name) else json.dumps(name) for name in schema}
    columns = ", ".join(f"{names[name]} = {json.dumps(str(kind))}" for name, kind in schema.items())
    return f"schema = {{ {columns} }}"
