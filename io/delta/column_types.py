"""The types of a table's columns, by Delta's names for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ddcore.base.schema import Type

_DELTA_NAMES = {
    "int64": "long", "float64": "double", "bool": "boolean", "string": "string", "binary": "binary",
    "date": "date", "timestamp": "timestamp",
}  # fmt: skip


def delta_type(kind: Type | str) -> str:
    """Delta's name for a type: ``long`` for int64, as :func:`columns` returns it."""
    if isinstance(kind, str):
        return _DELTA_NAMES.get(kind, kind)
    if kind.element is not None:
        return f"array<{delta_type(kind.element)}>"
    if kind.fields:
        return f"struct<{', '.join(f'{json.dumps(name)}: {delta_type(inner)}' for name, inner in kind.fields)}>"
    return _DELTA_NAMES.get(str(kind), str(kind))


def row_type(kind: Any) -> Type:
    """The type of a column of one of our tables, from the Delta library's description of it."""
    from ddcore.base.schema import Type, parse_type

    if hasattr(kind, "element_type"):
        return Type("list", element=row_type(kind.element_type))
    if hasattr(kind, "fields"):
        return Type("struct", fields=tuple((field.name, row_type(field.type)) for field in kind.fields))
    ours = {theirs: name for name, theirs in _DELTA_NAMES.items()}
    return parse_type(ours.get(kind.type, kind.type))


def type_of_text(text: str) -> Type:
    """The type that Delta's name for it says, of one that is not nested. Raises ProgramError."""
    from ddcore.base.schema import parse_type

    ours = {theirs: name for name, theirs in _DELTA_NAMES.items()}
    return parse_type(ours.get(text, text))


def delta_schema(schema: Mapping[str, Type | str]) -> Any:
    """A schema of the Delta library."""
    from deltalake import Field
    from deltalake import Schema as DeltaSchema
    from deltalake.schema import ArrayType, PrimitiveType, StructType

    def described(kind: Type | str) -> Any:
        if isinstance(kind, str) or not kind.is_nested:
            return PrimitiveType(delta_type(kind))
        if kind.element is not None:
            return ArrayType(described(kind.element))
        return StructType([Field(name, described(inner)) for name, inner in kind.fields])

    return DeltaSchema([Field(name, described(kind)) for name, kind in schema.items()])


def columns(table: DeltaTable) -> list[tuple[str, str]]:
    """Names and Delta types of a table's columns, in order."""
    return [(column.name, _type_name(column.type)) for column in table.schema().fields]


def _type_name(kind: Any) -> str:
    if hasattr(kind, "element_type"):
        return f"array<{_type_name(kind.element_type)}>"
    if hasattr(kind, "fields"):
        return f"struct<{', '.join(f'{json.dumps(field.name)}: {_type_name(field.type)}' for field in kind.fields)}>"
    return str(getattr(kind, "type", kind))


def column_text(columns: Sequence[tuple[str, str]]) -> str:
    """Names and types of columns for a message."""
    return "(" + ", ".join(f"{name} {kind}" for name, kind in columns) + ")"
