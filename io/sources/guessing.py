"""The schema that a source looks like, for a user who has not declared one yet."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DdError
from ddcore.base.lazy import polars as pl
from ddcore.base.schema import parse_schema
from ddcore.io.sources.csvfile import CsvFile
from ddcore.io.sources.finding import find_sources
from ddcore.io.sources.jsonlines import JsonLines
from ddcore.io.sources.jsonobjects import parse_object
from ddcore.io.sources.jsontypes import guessed_types, is_event

if TYPE_CHECKING:
    from ddcore.base.schema import Schema
    from ddcore.io.sources.source import Source

__all__ = ["guessed_schema"]

_ROWS = 1000  # of a CSV file, which does not say what its values are
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def guessed_schema(places: Sequence[str], dims: Sequence[str], *, debezium: bool = False, op: str = "") -> str:
    """The line ``schema = {...}`` for ``dd.toml`` that fits the first source, without its times, diff and operation.

    Of Debezium's events the rows decide; the line goes on with ``key = [...]``, if the events have keys, and with the
    option ``--debezium``, if it was not given. Empty for a source that cannot be read, that no input can hold as it is,
    or that is a URL. A guess: the first thousand rows of a CSV or JSON lines file decide about its types.
    """
    if "://" in places[0]:
        return ""
    try:
        source = find_sources(places)[0]
        objects = _objects(source, debezium=debezium)
        is_envelope = all(map(is_event, objects)) if objects else is_event(source.columns())
        option = "; as these are events of Debezium, say --debezium" if is_envelope and not debezium and not op else ""
        key: Sequence[str] = ()
        if objects:
            types, key = guessed_types(objects, debezium=debezium or bool(option))
        else:
            types = _row_types(_types(source)) if debezium or option else _types(source)
        schema = parse_schema({name: kind for name, kind in types.items() if name not in (*dims, "diff", op)})
    except DdError:
        return ""
    return _line(schema, [name for name in key if name in schema]) + option if schema else ""


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
    rows = next((frame.head(_ROWS) for _, frame in source.frames(names)), None)
    if rows is None:
        return {}
    text = io.BytesIO(rows.select(names).write_csv().encode())
    return dict(pl.read_csv(text, try_parse_dates=True, infer_schema_length=_ROWS).schema)


def _line(schema: Schema, key: Sequence[str] = ()) -> str:
    names = {name: name if _BARE.fullmatch(name) else json.dumps(name) for name in schema}
    columns = ", ".join(f"{names[name]} = {json.dumps(str(kind))}" for name, kind in schema.items())
    return f"schema = {{ {columns} }}" + (f", and key = {json.dumps(list(key))}" if key else "")
