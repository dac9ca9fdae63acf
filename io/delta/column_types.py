"""The types of a table's columns, by Delta's names for them.

Delta has no times of day, UUIDs or intervals: such a column has the type :attr:`Type.stored`, and our type is in its
metadata, which other readers leave alone.
"""

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


_OWN = "ddcore.type"


def delta_type(kind: Type | str) -> str:
    """Delta's name for a type: ``long`` for int64, as :func:`columns` returns it; our own for what Delta lacks."""
    if isinstance(kind, str):
        return _DELTA_NAMES.get(kind, kind)
    return _delta_type(kind) if kind.stored == kind else str(kind)


def _delta_type(kind: Type) -> str:
    if kind.name == "map":
        return f"map<{', '.join(_delta_type(inner) for _, inner in kind.fields)}>"
    if kind.element is not None:
        return f"array<{_delta_type(kind.element)}>"
    if kind.fields:
        return f"struct<{', '.join(f'{json.dumps(name)}: {_delta_type(inner)}' for name, inner in kind.fields)}>"
    return _DELTA_NAMES.get(str(kind), str(kind))


def row_type(column: Any) -> Type:
    """The type of a column of one of our tables, from the Delta library's description of it."""
    from ddcore.base.schema import parse_type

    own = (column.metadata or {}).get(_OWN)
    return parse_type(own) if own else _row_type(column.type)


def _row_type(kind: Any) -> Type:
    from ddcore.base.schema import Type, parse_type

    if hasattr(kind, "element_type"):
        return Type("list", element=_row_type(kind.element_type))
    if hasattr(kind, "key_type"):
        return Type("map", fields=(("key", _row_type(kind.key_type)), ("value", _row_type(kind.value_type))))
    if hasattr(kind, "fields"):
        return Type("struct", fields=tuple((field.name, _row_type(field.type)) for field in kind.fields))
    ours = {other: name for name, other in _DELTA_NAMES.items()}
    return parse_type(ours.get(kind.type, kind.type))


def type_of_text(text: str) -> Type:
    """The type that Delta's name for it says, of one that is not nested. Raises ProgramError."""
    from ddcore.base.schema import parse_type

    ours = {other: name for name, other in _DELTA_NAMES.items()}
    return parse_type(ours.get(text, text))


def delta_schema(schema: Mapping[str, Type | str]) -> Any:
    """A schema of the Delta library."""
    from deltalake import Field
    from deltalake import Schema as DeltaSchema
    from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType

    def described(kind: Type | str) -> Any:
        if isinstance(kind, str) or not kind.is_nested:
            return PrimitiveType(delta_type(kind))
        if kind.name == "map":
            return MapType(*(described(inner) for _, inner in kind.fields))
        if kind.element is not None:
            return ArrayType(described(kind.element))
        return StructType([Field(name, described(inner)) for name, inner in kind.fields])

    def column(name: str, kind: Type | str) -> Any:
        if isinstance(kind, str) or kind.stored == kind:
            return Field(name, described(kind))
        return Field(name, described(kind.stored), metadata={_OWN: str(kind)})

    return DeltaSchema([column(name, kind) for name, kind in schema.items()])


def columns(table: DeltaTable) -> list[tuple[str, str]]:
    """Names and Delta types of a table's columns, in order."""
    return [(field.name, (field.metadata or {}).get(_OWN) or _type_name(field.type)) for field in table.schema().fields]


def _type_name(kind: Any) -> str:
    if hasattr(kind, "element_type"):
        return f"array<{_type_name(kind.element_type)}>"
    if hasattr(kind, "key_type"):
        return f"map<{_type_name(kind.key_type)}, {_type_name(kind.value_type)}>"
    if hasattr(kind, "fields"):
        return f"struct<{', '.join(f'{json.dumps(field.name)}: {_type_name(field.type)}' for field in kind.fields)}>"
    return str(getattr(kind, "type", kind))


def column_text(columns: Sequence[tuple[str, str]]) -> str:
    """Names and types of columns for a message."""
    return "(" + ", ".join(f"{name} {kind}" for name, kind in columns) + ")"
