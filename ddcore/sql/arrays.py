"""Lists of SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type, parse_type
from ddcore.sql.source import shown
from ddcore.sql.values import BOOL, INT, TEXT, Named, Rule, Value, Values, aligned, as_type, shared

__all__ = ["NAMED", "RULES", "any_of", "list_of"]


def list_of(values: Values, node: exp.Expr) -> tuple[Value, Type]:
    """A list, and the type of its elements."""
    value = values.of(node)
    if value.type is None or value.type.name != "list" or value.type.element is None:
        raise values.source.error(
            node, f"{shown(node)} is {value.name}, not a list", "name a column of lists, or ARRAY[...]"
        )
    return value, value.type.element


def _array(values: Values, node: exp.Array) -> Value:
    if not node.expressions:
        values.source.refuse(node, "an ARRAY without elements")
    exprs, kind = aligned(values.source, [values.of(expression) for expression in node.expressions], node)
    return Value(pl.concat_list(exprs), parse_type(f"list[{kind}]"), node)


def _element(values: Values, node: exp.Bracket) -> Value:
    """What lies outside of the list is null. sqlglot counts literals from 0, and leaves columns as they are, from 1."""
    some, element = list_of(values, node.this)
    (number,) = node.expressions
    if not isinstance(number, exp.Literal | exp.Column) and not isinstance(number.this, exp.Literal):
        values.source.refuse(node, "the element of a list by a number that is neither a literal nor a column")
    at = values.require(values.of(number), "int64").expr - (1 if isinstance(number, exp.Column) else 0)
    return Value(pl.when(at >= 0).then(some.expr.list.get(at, null_on_oob=True)), element, node)


def _length(values: Values, node: exp.ArraySize) -> Value:
    """Null for an empty list, as in PostgreSQL."""
    some, _ = list_of(values, node.this)
    if node.expression is not None and values.of(node.expression).literal != 1:
        values.source.refuse(node, "the length of a list in another dimension than 1")
    length = some.expr.list.len().cast(pl.Int64)
    return Value(pl.when(length > 0).then(length), INT, node)


def _joined(values: Values, node: exp.ArrayToString) -> Value:
    some, element = list_of(values, node.this)
    separator = values.require(values.of(node.expression), "string")
    if element not in (TEXT, INT):
        values.source.refuse(node, f"array_to_string() of {element}")
    texts = some.expr.list.drop_nulls() if element == TEXT else some.expr.list.drop_nulls().cast(pl.List(pl.String))
    return Value(texts.list.join(separator.expr), TEXT, node)


def _split(values: Values, node: exp.StringToArray) -> Value:
    text, separator = (values.require(values.of(each), "string") for each in (node.this, node.expression))
    if not separator.literal:
        values.source.refuse(node, "string_to_array() with a separator that is no literal of at least one letter")

    def fields(text: Value) -> pl.Expr:
        empty = text.expr.str.extract_all(r"[^\s\S]")
        return pl.when(text.expr == "").then(empty).otherwise(text.expr.str.split(separator.expr))

    return Value(shared([text], fields), parse_type("list[string]"), node)


def any_of(values: Values, value: Value, node: exp.Expr) -> Value:
    """Whether a list has an element that is equal to the value: null where that is not known."""
    some, element = list_of(values, node.unnest())
    wanted = as_type(values.source, value, element)

    def found(some: Value, wanted: Value) -> pl.Expr:
        there = some.expr.list.contains(wanted.expr, nulls_equal=False)
        unknown = some.expr.list.contains(pl.lit(None, dtype=element.polars), nulls_equal=True)
        known = some.expr.is_not_null() & (wanted.expr.is_not_null() | (some.expr.list.len() == 0))
        return pl.when(known & there).then(True).when(known & ~unknown).then(False)

    return Value(shared([some, Value(wanted, element, node)], found), BOOL, node)


RULES: dict[type[exp.Expr], Rule] = {
    exp.Array: _array,
    exp.Bracket: _element,
    exp.ArraySize: _length,
    exp.ArrayToString: _joined,
    exp.StringToArray: _split,
}

NAMED: dict[str, Named] = {
    "cardinality": (
        1, lambda values, node: Value(list_of(values, node.expressions[0])[0].expr.list.len().cast(pl.Int64), INT, node)
    )
}  # fmt: skip
