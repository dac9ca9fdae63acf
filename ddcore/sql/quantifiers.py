"""Comparisons with ANY and ALL: by the least and the greatest value, of a subquery or a list."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from sqlglot import exp

from ddcore.sql.arrays import any_of, list_and_element
from ddcore.sql.source import shown
from ddcore.sql.types import BOOL
from ddcore.sql.values import Value, Values, aligned, null, shared

Compare = Callable[[pl.Expr, pl.Expr, pl.Expr], pl.Expr]
HOLDS: dict[type[exp.Expr], tuple[Compare, type[exp.Expr]]] = {
    exp.LT: (lambda value, least, most: value < most, exp.GTE),
    exp.LTE: (lambda value, least, most: value <= most, exp.GT),
    exp.GT: (lambda value, least, most: value > least, exp.LTE),
    exp.GTE: (lambda value, least, most: value >= least, exp.LT),
    exp.NEQ: (lambda value, least, most: (value != least) | (value != most), exp.EQ),
    exp.EQ: (lambda value, least, most: (value == least) | (value == most), exp.NEQ),
}
"""Whether a comparison holds for ANY value, by the least and the greatest of them, and its opposite."""


def items_of(node: exp.Expr) -> tuple[exp.Expr, bool] | None:
    """The list of ANY, SOME or ALL, and whether it is ALL. sqlglot takes those of lists for functions, mostly."""
    if isinstance(node, exp.Any | exp.All):
        return node.this, isinstance(node, exp.All)
    is_one = isinstance(node, exp.Anonymous) and node.name.lower() in ("any", "some", "all")
    return (node.expressions[0], node.name.lower() == "all") if is_one and len(node.expressions) == 1 else None


def any_element(values: Values, value: Value, items: exp.Expr) -> Value:
    """Whether a value is equal to ANY element of a list."""
    return any_of(values, value, items, null_is_empty=_null_is_empty(values))


def _null_is_empty(values: Values) -> bool:
    """Whether ANY and ALL take a list that is null for one without elements: so does DuckDB."""
    return values.source.dialect == "duckdb"


def quantified(values: Values, node: exp.Binary, items: exp.Expr, *, whole: bool) -> Value:
    """Whether a comparison holds for ANY element of a list, or if ``whole`` for ALL; null where that is not known."""
    some, element = list_and_element(values, items.unnest())
    (wanted, _), kind = aligned(values.source, [values.of(node.this), Value(null(element), element, items)], node)
    if kind != element:
        raise values.source.error(node, f"{shown(node)}: the elements are {element}", f"cast the left side: {element}")
    of = type(node)
    if of not in HOLDS:
        values.source.refuse(node, "this comparison with a list", "= <> < > <= >= with ANY and ALL are")
    if of is exp.NEQ and whole:
        equal = any_element(values, values.of(node.this), items)
        return Value(~equal.expr, BOOL, node)
    holds = HOLDS[HOLDS[of][1] if whole else of][0]

    def found(some: Value, wanted: Value) -> pl.Expr:
        items, unknown = some.expr, pl.lit(None, dtype=element.polars)
        met = holds(wanted.expr, items.list.min(), items.list.max())
        known = wanted.expr.is_not_null() & ~items.list.contains(unknown, nulls_equal=True)
        truth = pl.when(items.list.len() == 0).then(False).when(met).then(True).when(known).then(False)
        of_list = pl.when(items.is_not_null()).then(~truth if whole else truth)
        return of_list.otherwise(whole) if _null_is_empty(values) else of_list

    return Value(shared([some, Value(wanted, element, node)], found), BOOL, node)
