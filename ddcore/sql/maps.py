"""Maps in SQL. Their keys stand in order here, whatever order they came in."""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql.arrays import list_of
from ddcore.sql.source import shown
from ddcore.sql.values import BOOL, INT, Named, Rule, Value, Values, aligned, as_type

__all__ = ["NAMED", "RULES", "element", "is_map", "size"]


def is_map(value: Value) -> bool:
    """Whether it is a map."""
    return value.type is not None and value.type.name == "map"


def _map(values: Values, node: exp.Expr) -> tuple[Value, Type, Type]:
    """A map, the type of its keys and that of its values."""
    value = values.of(node)
    if value.type is None or not is_map(value):
        raise values.source.error(
            node, f"{shown(node)} is {value.name}, not a map", "docs/sql.md lists what is supported"
        )
    (_, key), (_, inner) = value.type.fields
    return value, key, inner


def element(values: Values, node: exp.Expr, key: exp.Expr) -> Value:
    """The value of a key: null where the map has no such key."""
    some, kind, inner = _map(values, node)
    return Value(some.expr.map.get(as_type(values.source, values.of(key), kind)), inner, node)


def size(values: Values, node: exp.Expr) -> Value:
    """How many entries a map has."""
    return Value(_map(values, node)[0].expr.map.len().cast(pl.Int64), INT, node)


def _contains(values: Values, node: exp.MapContainsKey) -> Value:
    some, kind, _ = _map(values, node.this)
    return Value(some.expr.map.contains_key(as_type(values.source, values.of(node.args["key"]), kind)), BOOL, node)


def _keys(values: Values, node: exp.MapKeys) -> Value:
    some, kind, _ = _map(values, node.this)
    return Value(some.expr.map.keys(), list_of(kind), node)


def _values(values: Values, node: exp.Anonymous) -> Value:
    some, _, inner = _map(values, node.expressions[0])
    return Value(some.expr.map.values(), list_of(inner), node)


def _entries(values: Values, node: exp.Anonymous) -> Value:
    some, kind, inner = _map(values, node.expressions[0])
    return Value(some.expr.map.entries(), list_of(Type("struct", fields=(("key", kind), ("value", inner)))), node)


def _made(values: Values, node: exp.VarMap) -> Value:
    """``map('a', 1, 'b', 2)``."""
    keys, inside = ([values.of(each) for each in node.args[name].expressions] for name in ("keys", "values"))
    literals = [key.literal for key in keys]
    if not keys or None in literals or len({*map(str, literals)}) < len(literals):
        values.source.refuse(node, "map() of keys that are no different literals", "write map('a', x, 'b', y)")
    (key_exprs, kind), (exprs, inner) = aligned(values.source, keys, node), aligned(values.source, inside, node)
    entries = [pl.struct(key=key, value=value) for key, value in zip(key_exprs, exprs, strict=True)]
    made = Type("map", fields=(("key", kind), ("value", inner)))
    return Value(pl.concat_list(entries).cast(made.polars), made, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.VarMap: _made,
    exp.MapKeys: _keys,
    exp.MapContainsKey: _contains,
}
NAMED: dict[str, Named] = {"map_values": (1, _values), "map_entries": (1, _entries)}
