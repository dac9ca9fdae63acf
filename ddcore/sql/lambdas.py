"""Functions of SQL that take an expression of each element of a list: ``transform(list, x -> upper(x))``."""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql.arrays import list_and_element, list_of, side_by_side
from ddcore.sql.types import BOOL
from ddcore.sql.values import Named, Rule, Value, Values, column_value, shared


def _parts(values: Values, node: exp.Expr) -> tuple[Value, Type, exp.Expr]:
    """A list, the type of its elements, and the function."""
    some, function = node.expressions if isinstance(node, exp.Anonymous) else (node.this, node.expression)
    value, element = list_and_element(values, some)
    return value, element, function


def _of_element(
    values: Values, node: exp.Expr, some: Value, function: exp.Expr, element: Type
) -> tuple[pl.Expr, Value, pl.Expr]:
    """The list that the function's value is computed on, that value for each element, and the element itself: where
    the function reads columns, they stand beside each element.
    """
    if not isinstance(function, exp.Lambda) or len(function.expressions) != 1:
        values.source.refuse(node, "a function of a list that does not take one element", "write x -> ...")
    name = function.expressions[0].name
    columns: dict[str, Value] = {}

    def found(_: Values, part: exp.Expr) -> Value | None:
        is_element = isinstance(part, exp.Identifier | exp.Column) and part.name == name
        if is_element and not (isinstance(part, exp.Column) and part.table):
            return Value(own, element, part)
        if isinstance(part, exp.Column):
            column = values.of(part)
            key = columns.setdefault(part.sql(), column)
            if beside:
                return Value(beside[part.sql()], key.type, part)
            return Value(pl.element(), key.type, part)
        return None

    own: pl.Expr = pl.element()
    beside: dict[str, pl.Expr] = {}
    inner = Values(values.source, (), {}, found)
    result = column_value(inner, function.this)
    if not columns:
        return some.expr, result, own
    own = pl.element().struct.field("key")
    names = {key: f"c{number}" for number, key in enumerate(columns)}
    beside |= {key: pl.element().struct.field("value").struct.field(field) for key, field in names.items()}
    kind = Type("struct", fields=tuple((names[key], column.type) for key, column in columns.items() if column.type))
    outer = pl.struct([column.expr.alias(names[key]) for key, column in columns.items()])
    whole = shared([some], lambda some: side_by_side(some.expr, outer.repeat_by(some.expr.list.len()), (element, kind)))
    return whole, column_value(Values(values.source, (), {}, found), function.this), own


def _changed(values: Values, node: exp.Expr) -> Value:
    some, element, function = _parts(values, node)
    whole, new, _ = _of_element(values, node, some, function, element)
    assert new.type is not None
    return Value(whole.list.eval(new.expr), list_of(new.type), node)


def _filtered(values: Values, node: exp.Expr) -> Value:
    """The elements that meet the condition."""
    some, element, function = _parts(values, node)
    whole, met, own = _of_element(values, node, some, function, element)
    kept = whole.list.eval(pl.element().filter(values.require(met, "bool").expr.fill_null(False)))
    return Value(kept if whole is some.expr else kept.list.eval(own), some.type, node)


def _quantified(wanted: bool) -> Rule:
    """Whether an element meets the condition (``wanted``), or whether all do: null where nulls decide."""

    def rule(values: Values, node: exp.Expr) -> Value:
        some, element, function = _parts(values, node)
        whole, met, _ = _of_element(values, node, some, function, element)
        truths = whole.list.eval(values.require(met, "bool").expr)

        def truth(met: Value) -> pl.Expr:
            decided = met.expr.list.contains(pl.lit(wanted), nulls_equal=False)
            unknown = met.expr.list.drop_nulls().list.len() < met.expr.list.len()
            return pl.when(met.expr.is_null()).then(None).when(decided).then(wanted).when(~unknown).then(not wanted)

        return Value(shared([Value(truths, list_of(BOOL), node)], truth), BOOL, node)

    return rule


RULES: dict[type[exp.Expr], Rule] = {
    exp.Transform: _changed,
    exp.ArrayFilter: _filtered,
}
NAMED: dict[str, Named] = {"exists": (2, _quantified(True)), "forall": (2, _quantified(False))}
