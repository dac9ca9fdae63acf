"""Lists of SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type, parse_type
from ddcore.expressions import polars_json
from ddcore.sql import zeros
from ddcore.sql.source import called, shown
from ddcore.sql.types import BOOL, INT, TEXT
from ddcore.sql.values import Named, Rule, Value, Values, aligned, as_type, constant, element_of, function, shared


def list_and_element(values: Values, node: exp.Expr) -> tuple[Value, Type]:
    """A list, and the type of its elements."""
    value = values.container(node, "list")
    return value, element_of(value.type)


def list_of(element: Type) -> Type:
    """The type of lists of these elements."""
    return parse_type(f"list[{element}]")


def side_by_side(left: pl.Expr, right: pl.Expr, kinds: tuple[Type, Type]) -> pl.Expr:
    """Lists of the same length as one of structs of a ``key`` and a ``value``."""
    return polars_json.zipped(left, right, (kinds[0].polars, kinds[1].polars))


def padded(some: pl.Expr, length: pl.Expr, kind: Type) -> pl.Expr:
    """A list with nulls behind it up to a length."""
    more = (length - some.list.len().cast(pl.Int64)).clip(lower_bound=0)
    return pl.concat_list([some, pl.lit(None, dtype=kind.polars).repeat_by(more)])


def _array(values: Values, node: exp.Array) -> Value:
    if not node.expressions:
        values.source.refuse(node, "an ARRAY without elements")
    exprs, kind = aligned(values.source, [values.of(expression) for expression in node.expressions], node)
    if kind.element is not None:
        values.source.refuse(node, "an ARRAY of lists", "a || b puts one list behind the other")
    return Value(pl.concat_list(exprs), parse_type(f"list[{kind}]"), node)


def _number(values: Values, node: exp.Bracket) -> Value:
    """The number in brackets as written. sqlglot has counted one less where it knows by its type that it is whole."""
    (number,) = node.expressions
    at = values.require(values.of(number), "int64")
    is_less = isinstance(at.literal, int) or number.type is None or number.is_type(*exp.DataType.INTEGER_TYPES)
    if not is_less:
        return at
    return constant(at.literal + 1, node) if isinstance(at.literal, int) else replace(at, expr=at.expr + 1)


def _element(values: Values, node: exp.Bracket) -> Value:
    """What lies outside of the list is null."""
    some, element = list_and_element(values, node.this)

    def found(some: Value, at: Value) -> pl.Expr:
        return pl.when(at.expr > 0).then(some.expr.list.get(at.expr - 1, null_on_oob=True))

    return Value(shared([some, _number(values, node)], found), element, node)


def _length(values: Values, node: exp.ArraySize) -> Value:
    """Null for an empty list, as in PostgreSQL."""
    some, _ = list_and_element(values, node.this)
    if node.expression is not None and values.of(node.expression).literal != 1:
        values.source.refuse(node, "the length or a bound of a list in another dimension than 1")
    length = some.expr.list.len().cast(pl.Int64)
    return Value(pl.when(length > 0).then(length), INT, node)


def _joined(values: Values, node: exp.ArrayToString) -> Value:
    some, element = list_and_element(values, node.this)
    separator = values.require(values.of(node.expression), "string")
    if element not in (TEXT, INT):
        values.source.refuse(node, f"array_to_string() of {element}")
    texts = some.expr if element == TEXT else some.expr.cast(pl.List(pl.String))
    null = _text_for_nulls(values, node)
    texts = texts.list.drop_nulls() if null is None else texts.list.eval(pl.element().fill_null(null))
    return Value(texts.list.join(separator.expr), TEXT, node)


def _text_for_nulls(values: Values, node: exp.ArrayToString | exp.StringToArray) -> str | None:
    """What stands for a null in the text; None where nothing is said of it."""
    if node.args.get("null") is None:
        return None
    text = values.of(node.args["null"]).literal
    if not isinstance(text, str):
        values.source.refuse(node, f"{called(node)}() with a text for nulls that is no literal")
    return text


def _split(values: Values, node: exp.StringToArray) -> Value:
    text, separator = (values.require(values.of(side), "string") for side in (node.this, node.expression))
    if not separator.literal:
        values.source.refuse(node, "string_to_array() with a separator that is no literal of at least one letter")
    null = _text_for_nulls(values, node)

    def fields(text: Value) -> pl.Expr:
        empty = text.expr.str.extract_all(r"[^\s\S]")
        parts = text.expr.str.split(separator.expr)
        if null is not None:
            parts = parts.list.eval(pl.when(pl.element() != null).then(pl.element()))
        return pl.when(text.expr == "").then(empty).otherwise(parts)

    return Value(shared([text], fields), parse_type("list[string]"), node)


def any_of(values: Values, value: Value, node: exp.Expr, *, null_is_empty: bool = False) -> Value:
    """Whether a list has an element that is equal to the value: null where that is not known.

    ``null_is_empty``: a list that is null has no elements; else nothing is known of it.
    """
    some, element = list_and_element(values, node.unnest())
    wanted = as_type(values.source, value, element)

    def found(some: Value, wanted: Value) -> pl.Expr:
        there = some.expr.list.contains(wanted.expr, nulls_equal=False)
        unknown = some.expr.list.contains(pl.lit(None, dtype=element.polars), nulls_equal=True)
        known = some.expr.is_not_null() & (wanted.expr.is_not_null() | (some.expr.list.len() == 0))
        truth = pl.when(known & there).then(True).when(known & ~unknown).then(False)
        return truth.when(some.expr.is_null()).then(False) if null_is_empty else truth

    return Value(shared([some, Value(wanted, element, node)], found), BOOL, node)


COUNT = function(lambda some: some.list.len().cast(pl.Int64), INT, "list")
"""The rule of how many elements a list has."""


def element_or_fail(values: Values, node: exp.Bracket) -> Value:
    """An element by its number, as Spark has it: the row fails where the list has none of this number."""
    some, element = list_and_element(values, node.this)
    (number,) = node.expressions
    at = values.require(values.of(number), "int64")
    counts_from, safe = node.args.get("offset") or 0, bool(node.args.get("safe"))
    if isinstance(at.literal, int):
        if at.literal < 0 and not counts_from:
            raise values.source.error(node, f"{shown(node)}: a list has no element {at.literal}", "the first one is 0")
        position = at.literal - counts_from if at.literal >= 0 else at.literal
        return Value(some.expr.list.get(position, null_on_oob=safe), element, node)

    def found(some: Value, at: Value) -> pl.Expr:
        position, length = (_from_one(at.expr) if counts_from else at.expr), some.expr.list.len().cast(pl.Int64)
        inside = pl.when(at.expr < 0).then(at.expr >= -length).otherwise(position < length)
        inside &= (at.expr != 0) if counts_from else (at.expr >= 0)
        wrong = zeros.failing_where((at.expr == 0) if safe else ~inside, "is the number of no element")
        return pl.when(wrong == 0).then(some.expr.list.get(position, null_on_oob=True))

    return Value(shared([some, at], found), element, node)


def _from_one(number: pl.Expr) -> pl.Expr:
    """A number that counts from 1, or below 0 from the end, as Polars counts; null for 0."""
    return pl.when(number > 0).then(number - 1).when(number < 0).then(number)


def numbered(values: Values, node: exp.Expr, some: exp.Expr, at: Value) -> Value:
    """An element by its number from 1, or from the end, as DuckDB has it: null outside."""
    value, element = list_and_element(values, some)

    def found(value: Value, at: Value) -> pl.Expr:
        return value.expr.list.get(_from_one(at.expr), null_on_oob=True)

    return Value(shared([value, at], found), element, node)


def element_or_null(values: Values, node: exp.Bracket) -> Value:
    """An element by its number in brackets, as DuckDB has it."""
    return numbered(values, node, node.this, _number(values, node))


RULES: dict[type[exp.Expr], Rule] = {
    exp.Array: _array,
    exp.Bracket: _element,
    exp.ArraySize: _length,
    exp.ArrayToString: _joined,
    exp.StringToArray: _split,
}


def _trimmed(values: Values, node: exp.Anonymous) -> Value:
    """``trim_array(list, n)``, without the last n elements; the row fails where it has fewer."""
    some, _ = list_and_element(values, node.expressions[0])
    count = values.of(node.expressions[1]).literal
    if not isinstance(count, int) or count < 0:
        values.source.refuse(node, "trim_array() of a number of elements that is no literal of at least 0")

    def rest(some: Value) -> pl.Expr:
        length = some.expr.list.len().cast(pl.Int64)
        wrong = zeros.failing_where(length < count, "the list has fewer elements")
        return some.expr.list.slice(0, length - count + wrong)

    return Value(shared([some], rest), some.type, node)


NAMED: dict[str, Named] = {
    "trim_array": (2, _trimmed),
    "cardinality": (1, COUNT),
}
