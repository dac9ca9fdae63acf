"""Functions of SQL that take an expression of each element of a list: ``transform(list, x -> upper(x))``."""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.sql.arrays import list_and_element, list_of
from ddcore.sql.source import shown
from ddcore.sql.values import BOOL, Named, Rule, Value, Values, column_value, shared


def _parts(values: Values, node: exp.Expr) -> tuple[Value, Type, exp.Expr]:
    """A list, the type of its elements, and the function."""
    some, function = node.expressions if isinstance(node, exp.Anonymous) else (node.this, node.expression)
    value, element = list_and_element(values, some)
    return value, element, function


def _of_element(values: Values, node: exp.Expr, function: exp.Expr, element: Type) -> Value:
    """The value of the function for an element. Raises ProgramError for one that reads columns."""
    if not isinstance(function, exp.Lambda) or len(function.expressions) != 1:
        values.source.refuse(node, "a function of a list that does not take one element", "write x -> ...")
    name = function.expressions[0].name

    def found(_: Values, part: exp.Expr) -> Value | None:
        is_element = isinstance(part, exp.Identifier | exp.Column) and part.name == name
        if is_element and not (isinstance(part, exp.Column) and part.table):
            return Value(pl.element(), element, part)
        if isinstance(part, exp.Identifier | exp.Column):
            hint = "unnest() or explode the list, and compare with the column there"
            values.source.refuse(part, f"the column {shown(part)} in a function of elements", hint)
        return None

    return column_value(Values(values.source, (), {}, found), function.this)


def _changed(values: Values, node: exp.Expr) -> Value:
    some, element, function = _parts(values, node)
    new = _of_element(values, node, function, element)
    assert new.type is not None
    return Value(some.expr.list.eval(new.expr), list_of(new.type), node)


def _condition(values: Values, node: exp.Expr) -> tuple[Value, pl.Expr]:
    """A list, and the condition of an element."""
    some, element, function = _parts(values, node)
    met = _of_element(values, node, function, element)
    return some, values.require(met, "bool").expr


def _filtered(values: Values, node: exp.Expr) -> Value:
    """The elements that meet the condition."""
    some, met = _condition(values, node)
    return Value(some.expr.list.eval(pl.element().filter(met.fill_null(False))), some.type, node)


def _quantified(wanted: bool) -> Rule:
    """Whether an element meets the condition (``wanted``), or whether all do: null where nulls decide."""

    def rule(values: Values, node: exp.Expr) -> Value:
        some, met = _condition(values, node)

        def truth(met: Value) -> pl.Expr:
            decided = met.expr.list.contains(pl.lit(wanted), nulls_equal=False)
            unknown = met.expr.list.drop_nulls().list.len() < met.expr.list.len()
            return pl.when(met.expr.is_null()).then(None).when(decided).then(wanted).when(~unknown).then(not wanted)

        return Value(shared([Value(some.expr.list.eval(met), list_of(BOOL), node)], truth), BOOL, node)

    return rule


RULES: dict[type[exp.Expr], Rule] = {
    exp.Transform: _changed,
    exp.ArrayFilter: _filtered,
}
NAMED: dict[str, Named] = {"exists": (2, _quantified(True)), "forall": (2, _quantified(False))}
