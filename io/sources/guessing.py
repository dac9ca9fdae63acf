"""The schema that a source looks like, for a user who has not declared one yet."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddcore.errors import DdError
from ddcore.io.sources.csvfile import CsvFile
from ddcore.io.sources.finding import find_sources
from ddcore.io.sources.jsonlines import JsonLines
from ddcore.schema import parse_schema

if TYPE_CHECKING:
    import polars as pl

    from ddcore.io.sources.source import Source
    from ddcore.schema import Schema

__all__ = ["guessed_schema"]

_ROWS = 1000  # of a CSV file, which does not say what its values are
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def guessed_schema(places: Sequence[str], dims: Sequence[str]) -> str:
    """The line ``schema = {...}`` for ``dd.toml`` that fits the first source, without its times and diff.

    Empty for a source that cannot be read, that no input can hold as it is, that is JSON, or that is a URL. A guess:
    the first thousand rows of a CSV file decide about its types.
    """
    if "://" in places[0]:
        return ""
    try:
        source = find_sources(places)[0]
        types = {} if isinstance(source, JsonLines) else _types(source)
        schema = parse_schema({name: kind for name, kind in types.items() if name not in (*dims, "diff")})
    except DdError:
        return ""
    return _line(schema) if schema else ""


def _types(source: Source) -> dict[str, pl.DataType]:
    import polars as pl

    if not isinstance(source, CsvFile):
        return source.columns()
    names = list(source.columns())
    rows = next((frame.head(_ROWS) for _, frame in source.frames(names)), None)
    if rows is None:
        return {}
    text = io.BytesIO(rows.select(names).write_csv().encode())
    return dict(pl.read_csv(text, try_parse_dates=True, infer_schema_length=_ROWS).schema)


def _line(schema: Schema) -> str:
    names = {name: name if _BARE.fullmatch(name) else json.dumps(name) for name in schema}
    return f"schema = {{ {', '.join(f'{names[name]} = {json.dumps(str(kind))}' for name, kind in schema.items())} }}"
