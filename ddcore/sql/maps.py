"""Maps in SQL. Their keys stand in order here, whatever order they came in."""

from __future__ import annotations

import re

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql import zeros
from ddcore.sql.arrays import list_and_element, list_of, side_by_side
from ddcore.sql.types import BOOL, INT, TEXT
from ddcore.sql.values import Named, Rule, Value, Values, aligned, as_type, function, shared


def parts(values: Values, node: exp.Expr) -> tuple[Value, Type, Type]:
    """A map, the type of its keys and that of its values."""
    value = values.container(node, "map")
    assert value.type is not None
    (_, key), (_, inner) = value.type.fields
    return value, key, inner


def element(values: Values, node: exp.Expr, key: exp.Expr) -> Value:
    """The value of a key: null where the map has no such key."""
    some, kind, inner = parts(values, node)
    return Value(some.expr.map.get(as_type(values.source, values.of(key), kind)), inner, node)


SIZE = function(lambda some: some.map.len().cast(pl.Int64), INT, "map")
"""The rule of how many entries a map has."""


def contains(values: Values, node: exp.Expr, some: exp.Expr, key: exp.Expr) -> Value:
    """Whether a map has a key."""
    value, kind, _ = parts(values, some)
    return Value(value.expr.map.contains_key(as_type(values.source, values.of(key), kind)), BOOL, node)


def _checked(entries: pl.Expr, made: Type) -> pl.Expr:
    """A list of entries as a map; the row fails where a key is null or comes twice."""
    keys = entries.list.eval(pl.element().struct.field("key"))
    twice = keys.list.unique().list.len() < keys.list.len()
    wrong = zeros.failing_where(twice, "a key of a map comes twice")
    null_key = zeros.failing_where(keys.list.drop_nulls().list.len() < keys.list.len(), "a key of a map is null")
    return pl.when((wrong + null_key) == 0).then(entries).cast(made.polars)


def of_entries(entries: pl.Expr, key: Type, inner: Type, node: exp.Expr) -> Value:
    """A map of a list of structs of a ``key`` and a ``value``."""
    made = Type("map", fields=(("key", key), ("value", inner)))
    return Value(shared([Value(entries, None, node)], lambda all: _checked(all.expr, made)), made, node)


def _concatenated(values: Values, node: exp.Anonymous) -> Value:
    """``map_concat``: null where a map is."""
    found = [parts(values, part)[0] for part in node.expressions]
    kind = found[0].type if found else None
    if kind is None or any(part.type != kind for part in found):
        values.source.refuse(node, "map_concat() of maps of different types", "cast their values")
    entries = Value(pl.concat_list([part.expr.map.entries() for part in found]), None, node)
    return Value(shared([entries], lambda all: _checked(all.expr, kind)), kind, node)


def _from_entries(values: Values, node: exp.MapFromEntries) -> Value:
    """A map of a list of structs with two fields, or of structs that are written out."""
    inner = node.this.unnest()
    if isinstance(inner, exp.Array) and inner.expressions and all(_pair(part) for part in inner.expressions):
        pairs = [_pair(part) for part in inner.expressions]
        return of_parts(values, node, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    some = values.of(node.this)
    element = some.type.element if some.type is not None else None
    if element is None or len(element.fields or ()) != 2:
        values.source.refuse(node, "map_from_entries() of what is no list of structs with two fields", "map('a', x)")
    (_, key), (_, inside) = element.fields
    named = some.expr.list.eval(pl.element().struct.rename_fields(["key", "value"]))
    return of_entries(named, key, inside, node)


def _pair(node: exp.Expr) -> list[exp.Expr]:
    """The two values of a struct or a row that is written out."""
    parts = node.expressions if isinstance(node, exp.Struct | exp.Tuple) else []
    values = [part.expression if isinstance(part, exp.PropertyEQ) else part for part in parts]
    return values if len(values) == 2 else []


def _from_lists(values: Values, node: exp.Map) -> Value:
    """``map_from_arrays``: the row fails where the lists are not equally long."""
    sides = [node.args[key].unnest() for key in ("keys", "values")]
    if all(isinstance(side, exp.Array) for side in sides) and len(sides[0].expressions) == len(sides[1].expressions):
        return of_parts(values, node, sides[0].expressions, sides[1].expressions)
    (keys, key), (inside, inner) = (list_and_element(values, side) for side in sides)

    def entries(keys: Value, inside: Value) -> pl.Expr:
        differ = keys.expr.list.len() != inside.expr.list.len()
        wrong = zeros.failing_where(differ, "lists of keys and of values are not equally long")
        same = pl.when(wrong == 0).then(keys.expr)
        return side_by_side(same, inside.expr, (key, inner))

    return of_entries(shared([keys, inside], entries), key, inner, node)


def of_parts(values: Values, node: exp.Expr, keys: list[exp.Expr], inside: list[exp.Expr]) -> Value:
    """A map of keys and values that are written out."""
    names = [values.of(part) for part in keys]
    if not names:
        values.source.refuse(node, "a map without entries")
    key_exprs, kind = aligned(values.source, names, node)
    exprs, inner = aligned(values.source, [values.of(part) for part in inside], node)
    entries = pl.concat_list([pl.struct(key=key, value=value) for key, value in zip(key_exprs, exprs, strict=True)])
    literals = [name.literal for name in names]
    if None in literals or len({*map(str, literals)}) < len(literals):
        return of_entries(entries, kind, inner, node)
    made = Type("map", fields=(("key", kind), ("value", inner)))
    return Value(entries.cast(made.polars), made, node)


def _split(values: Values, node: exp.StrToMap) -> Value:
    """``str_to_map('a:1,b:2')``: a part without a separator has no value."""
    text = values.require(values.of(node.this), "string").expr
    given = [values.of(node.args[key]).literal if node.args.get(key) else usual
             for key, usual in (("pair_delim", ","), ("key_value_delim", ":"))]  # fmt: skip
    if not all(isinstance(separator, str) and re.fullmatch(r"[^\\.^$|?*+()\[\]{}]+", separator) for separator in given):
        values.source.refuse(node, "str_to_map() at what is no plain literal text", "such as ',' and ':'")
    pair = pl.element().str.splitn(str(given[1]), 2).struct.rename_fields(["key", "value"])
    return of_entries(text.str.split(str(given[0])).list.eval(pair), TEXT, TEXT, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.VarMap: lambda values, node: of_parts(
        values, node, node.args["keys"].expressions, node.args["values"].expressions
    ),
    exp.Map: _from_lists,
    exp.MapFromEntries: _from_entries,
    exp.StrToMap: _split,
    exp.MapKeys: function(lambda some: some.map.keys(), lambda kind: list_of(kind.fields[0][1]), "map"),
    exp.MapContainsKey: lambda values, node: contains(values, node, node.this, node.args["key"]),
}
NAMED: dict[str, Named] = {
    "map_concat": (-1, _concatenated),
    "map_values": (1, function(lambda some: some.map.values(), lambda kind: list_of(kind.fields[1][1]), "map")),
    "map_entries": (
        1, function(lambda some: some.map.entries(), lambda kind: list_of(Type("struct", fields=kind.fields)), "map"),
    ),
}  # fmt: skip
