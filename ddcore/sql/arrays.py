"""Lists of SQL: for each kind of sqlglot's nodes, the value it makes."""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type, parse_type
from ddcore.expressions import polars_json
from ddcore.sql import zeros
from ddcore.sql.source import shown
from ddcore.sql.values import BOOL, INT, TEXT, Named, Rule, Value, Values, aligned, as_type, shared


def list_and_element(values: Values, node: exp.Expr) -> tuple[Value, Type]:
    """A list, and the type of its elements."""
    value = values.of(node)
    if value.type is None or value.type.name != "list" or value.type.element is None:
        raise values.source.error(
            node, f"{shown(node)} is {value.name}, not a list", "name a column of lists, or ARRAY[...]"
        )
    return value, value.type.element


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


def _element(values: Values, node: exp.Bracket) -> Value:
    """What lies outside of the list is null. sqlglot counts literals from 0, and leaves columns as they are, from 1."""
    some, element = list_and_element(values, node.this)
    (number,) = node.expressions
    if not isinstance(number, exp.Literal | exp.Column) and not isinstance(number.this, exp.Literal):
        values.source.refuse(node, "the element of a list by a number that is neither a literal nor a column")
    at = values.require(values.of(number), "int64").expr - (1 if isinstance(number, exp.Column) else 0)
    return Value(pl.when(at >= 0).then(some.expr.list.get(at, null_on_oob=True)), element, node)


def _length(values: Values, node: exp.ArraySize) -> Value:
    """Null for an empty list, as in PostgreSQL."""
    some, _ = list_and_element(values, node.this)
    if node.expression is not None and values.of(node.expression).literal != 1:
        values.source.refuse(node, "the length of a list in another dimension than 1")
    length = some.expr.list.len().cast(pl.Int64)
    return Value(pl.when(length > 0).then(length), INT, node)


def _joined(values: Values, node: exp.ArrayToString) -> Value:
    some, element = list_and_element(values, node.this)
    separator = values.require(values.of(node.expression), "string")
    if element not in (TEXT, INT):
        values.source.refuse(node, f"array_to_string() of {element}")
    texts = some.expr if element == TEXT else some.expr.cast(pl.List(pl.String))
    if node.args.get("null") is not None:
        other = values.of(node.args["null"]).literal
        if not isinstance(other, str):
            values.source.refuse(node, "array_to_string() with a text for nulls that is no literal")
        texts = texts.list.eval(pl.element().fill_null(other))
    else:
        texts = texts.list.drop_nulls()
    return Value(texts.list.join(separator.expr), TEXT, node)


def _split(values: Values, node: exp.StringToArray) -> Value:
    text, separator = (values.require(values.of(each), "string") for each in (node.this, node.expression))
    if not separator.literal:
        values.source.refuse(node, "string_to_array() with a separator that is no literal of at least one letter")

    null = values.of(node.args["null"]).literal if node.args.get("null") is not None else None
    if node.args.get("null") is not None and not isinstance(null, str):
        values.source.refuse(node, "string_to_array() with a text for nulls that is no literal")

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


def size(values: Values, node: exp.Func) -> Value:
    """How many elements a list has."""
    return count(values, node, node.this)


def count(values: Values, node: exp.Expr, some: exp.Expr) -> Value:
    """How many elements a list has."""
    return Value(list_and_element(values, some)[0].expr.list.len().cast(pl.Int64), INT, node)


def element_or_fail(values: Values, node: exp.Bracket) -> Value:
    """An element by its number, as Spark has it: the row fails where the list has none of this number."""
    some, element = list_and_element(values, node.this)
    (number,) = node.expressions
    at = values.require(values.of(number), "int64")
    if not isinstance(at.literal, int):
        values.source.refuse(node, "the element of a list by a number that is no literal")
    counts_from = node.args.get("offset") or 0
    if at.literal < 0 and not counts_from:
        raise values.source.error(node, f"{shown(node)}: a list has no element {at.literal}", "the first one is 0")
    place = at.literal - counts_from if at.literal >= 0 else at.literal
    safe = bool(node.args.get("safe"))
    return Value(some.expr.list.get(place, null_on_oob=safe), element, node)


def element_or_null(values: Values, node: exp.Bracket) -> Value:
    """An element by its number from 1, or from the end, as DuckDB has it: null outside. sqlglot has
    counted one less.
    """
    some, element = list_and_element(values, node.this)
    (number,) = node.expressions
    at = values.of(number).literal
    if not isinstance(at, int):
        values.source.refuse(node, "the element of a list by a number that is no literal from 1")
    if at == -1:
        return Value(pl.when(some.expr.is_null()).then(some.expr.list.first()), element, node)
    return Value(some.expr.list.get(at if at >= 0 else at + 1, null_on_oob=True), element, node)


def contains(values: Values, node: exp.ArrayContains) -> Value:
    """Whether a list has an element that is equal to the value: null where that is not known."""
    return any_of(values, values.of(node.expression), node.this)


def distinct(values: Values, node: exp.ArrayDistinct) -> Value:
    """Each element once, in the order in which they come first."""
    some, element = list_and_element(values, node.this)
    return Value(some.expr.list.unique(maintain_order=True), list_of(element), node)


def extreme(*, greatest: bool) -> Rule:
    """The rule of the greatest or the least element."""

    def rule(values: Values, node: exp.Func) -> Value:
        some, element = list_and_element(values, node.this)
        return Value(some.expr.list.max() if greatest else some.expr.list.min(), element, node)

    return rule


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
    "cardinality": (1, lambda values, node: count(values, node, node.expressions[0])),
}
