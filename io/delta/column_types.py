"""The types of a table's columns.

Delta has no times of day, UUIDs or intervals: such a column has the type :attr:`Type.stored`, and our type is in its
metadata, which other readers leave alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ddcore.base.schema import Type

_DELTA_NAMES = {"int64": "long", "float64": "double", "bool": "boolean"}  # all others have the same name
_OURS = {other: name for name, other in _DELTA_NAMES.items()}
_OWN = "ddcore.type"


def delta_schema(schema: Mapping[str, Type | str]) -> Any:
    """A schema of the Delta library."""
    from deltalake import Field
    from deltalake import Schema as DeltaSchema
    from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType

    def described(kind: Type | str) -> Any:
        if isinstance(kind, str) or not kind.is_nested:
            return PrimitiveType(_DELTA_NAMES.get(str(kind), str(kind)))
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
    """Names and types of a table's columns, in order: our names of types, and Delta's of those that we do not have."""
    return [(field.name, (field.metadata or {}).get(_OWN) or _type_name(field.type)) for field in table.schema().fields]


def _type_name(kind: Any) -> str:
    from ddcore.base.schema import field_text

    if hasattr(kind, "element_type"):
        return f"list[{_type_name(kind.element_type)}]"
    if hasattr(kind, "key_type"):
        return f"map[{_type_name(kind.key_type)}, {_type_name(kind.value_type)}]"
    if hasattr(kind, "fields"):
        return f"struct[{', '.join(f'{field_text(field.name)}: {_type_name(field.type)}' for field in kind.fields)}]"
    return _OURS.get(kind.type) or str(kind.type)


def column_text(columns: Sequence[tuple[str, str]]) -> str:
    """Names and types of columns for a message."""
    return "(" + ", ".join(f"{name} {kind}" for name, kind in columns) + ")"
