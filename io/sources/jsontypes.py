"""The types that the values of JSON objects look like, for a user who has not declared a schema yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ddcore.io.sources.jsonobjects import Number, Object

__all__ = ["guessed_types", "is_event"]

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONNECT = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "int64"), **dict.fromkeys(("float", "double"), "float64"),
    "boolean": "bool", "string": "string",
}  # fmt: skip


def guessed_types(objects: Sequence[Mapping[str, Any]], *, debezium: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    """The type of each field, and the fields of the key, if the objects are Debezium's events that have one.

    A field without a value is text. A field of values of several kinds is left out: no type can be declared for it.
    """
    if not debezium:
        return _fields(objects), ()
    envelopes = [_envelope(value) for value in objects]
    rows = [
        row
        for envelope in envelopes
        for row in (envelope.get("before"), envelope.get("after"))
        if isinstance(row, Mapping)
    ]
    keys = [_inside(event["key"], "payload") for event in objects if isinstance(event.get("key"), Mapping)]
    types = {name: _declared(objects, name) for row in rows for name in row} | _fields(rows, unknown=None)
    plain = {name: kind for name, kind in types.items() if not kind.startswith(("list", "struct"))}
    return plain, tuple(dict.fromkeys(name for key in keys for name in key))


def is_event(value: Mapping[str, Any]) -> bool:
    """Whether an object has the fields of Debezium's events."""
    return {"op", "after"} <= {*_envelope(value)} or {"op", "before"} <= {*_envelope(value)}


def _envelope(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return _inside(_inside(value, "value"), "payload")


def _inside(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in a field, or the value itself where it has no such object."""
    inner = value.get(name)
    return inner if isinstance(inner, Mapping) else value


def _fields(objects: Iterable[Mapping[str, Any]], unknown: str | None = "string") -> dict[str, str]:
    """The types of the fields, in the order in which they come; ``unknown``: that of fields of nulls, None for none."""
    values: dict[str, list[Any]] = {}
    for one in objects:
        for name, value in one.items():
            values.setdefault(name, []).append(value)
    kinds = {name: _kind([kind for kind in found if kind is not None], unknown) for name, found in values.items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _kind(values: list[Any], unknown: str | None) -> str | None:
    """The type of values that are not null; None where there is none for all."""
    if not values:
        return unknown
    kinds = {Number if isinstance(value, Number) else type(value) for value in values}
    guess = _GUESSES.get(kinds.pop()) if len(kinds) == 1 else None
    return guess(values) if guess else None


def _text(texts: list[str]) -> str:
    forms = (("date", _DATE), ("timestamp", _TIMESTAMP))
    return next((kind for kind, form in forms if all(map(form.fullmatch, texts))), "string")


def _list(values: list[list[Any]]) -> str | None:
    element = _kind([one for value in values for one in value if one is not None], "string")
    return element and f"list[{element}]"


def _struct(values: list[Object]) -> str | None:
    """A struct needs a type for each field."""
    fields = _fields(values)
    if not fields or len(fields) < len({name for value in values for name in value}):
        return None
    if not all(map(_NAME.fullmatch, fields)):
        return None
    return f"struct[{', '.join(f'{name}: {kind}' for name, kind in fields.items())}]"


def _number(texts: list[Number]) -> str | None:
    if not all(re.fullmatch("-?[0-9]+", text) for text in texts):
        return "float64"
    return "int64" if all(-(2**63) < int(text) < 2**63 for text in texts) else None


_GUESSES: Mapping[type, Callable[[list[Any]], str | None]] = {
    bool: lambda _: "bool", Number: _number, str: _text, list: _list, Object: _struct,
}  # fmt: skip


def _declared(objects: Sequence[Mapping[str, Any]], name: str) -> str:
    """The type that the events' own schema declares for a field of a row; text without one."""
    for event in objects:
        schema = _inside(event, "value").get("schema")
        for side in _parts(schema):
            for field in _parts(side) if side.get("field") in ("before", "after") else ():
                if field.get("field") == name:
                    return _CONNECT.get(str(field.get("type")), "string")
    return "string"


def _parts(schema: Any) -> list[Mapping[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    return [field for field in fields if isinstance(field, Mapping)] if isinstance(fields, list) else []
