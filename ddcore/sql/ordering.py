"""The columns of a SELECT, DISTINCT, ORDER BY with LIMIT, and numbers of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.source_line import planning
from ddcore.sql.names import Column, Relation, is_named, named, resolve, types
from ddcore.sql.source import Source, shown
from ddcore.sql.values import Value, Values, column_value, selected

if TYPE_CHECKING:
    from ddcore.sql.env import Queries

__all__ = ["limited", "numbered", "projected", "sortable"]

Replace = Callable[[Values, exp.Expr], Value | None]


def projected(
    queries: Queries, node: exp.Select, relation: Relation, columns: Sequence[exp.Expr], replace: Replace
) -> Relation:
    """The rows of a SELECT with its columns, distinct and limited as it says."""
    values = Values(queries.source, relation.columns, relation.types, replace)
    exprs: dict[str, pl.Expr] = {key: pl.col(key) for key in relation.carried}
    results: list[Column] = []
    for number, (each, text) in enumerate(zip(columns, named(columns), strict=True), 1):
        with planning(queries.source.place(each)):
            value = column_value(values, each)
        # A column is called as its table spells it.
        name = resolve(queries.source, relation.columns, each).name if isinstance(each, exp.Column) else text
        key = name or f"column {number}"
        while key in exprs:
            key += "+"
        exprs[key] = value.expr
        inner = each.this if isinstance(each, exp.Alias) else each
        results.append(Column("", name, key, untyped=isinstance(inner, exp.Null)))
    distinct = node.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        queries.source.refuse(node, "DISTINCT ON", "use row_number(), or a lateral subquery with LIMIT 1")
    order, sorts = node.args.get("order"), []
    hidden: dict[str, pl.Expr] = {}
    if order is not None and _counts(queries, node):
        for number, expression in enumerate(order.expressions):
            result = _result(queries, results, expression.this)
            if result is None:
                if distinct is not None:
                    raise queries.source.error(
                        expression,
                        f"ORDER BY {shown(expression.this)} is no column of SELECT DISTINCT",
                        "select it too",
                    )
                result = f"order {number}"
                hidden[result] = values.of(expression.this).expr
            sorts.append((result, expression))
    rows = relation.rows.select(**exprs, **hidden)
    if distinct is not None:
        rows = rows.distinct()
    return _first(queries, node, Relation(rows, tuple(results), relation.carried), sorts, list(hidden))


def limited(queries: Queries, node: exp.Expr, relation: Relation) -> Relation:
    """The first rows of a set operation or of a subquery in parentheses."""
    order, sorts = node.args.get("order"), []
    if order is not None and _counts(queries, node):
        for expression in order.expressions:
            key = _result(queries, relation.own, expression.this)
            if key is None:
                raise queries.source.error(
                    expression, f"ORDER BY {shown(expression.this)} is no column", "order by a column's name"
                )
            sorts.append((key, expression))
    return _first(queries, node, relation, sorts, [])


def _counts(queries: Queries, node: exp.Expr) -> bool:
    """Whether an order says which rows there are. Without LIMIT it does not, and is left out with a note."""
    if any(node.args.get(key) is not None for key in ("limit", "offset")):
        return True
    queries.source.note(node.args["order"], "ORDER BY without LIMIT is left out: the rows of a view have no order")
    return False


def numbered(source: Source, node: exp.Expr, clause: str, columns: int) -> int | None:
    """Which column of the SELECT a clause means by its number; None where it names none by number."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    number = int(node.name) if node.name.isdigit() else 0
    if not 0 < number <= columns:
        raise source.error(node, f"{clause} {node.name}: the SELECT has {columns} columns", "give one of their numbers")
    return number - 1


def _result(queries: Queries, columns: Sequence[Column], node: exp.Expr) -> str | None:
    """The column of the result that ORDER BY means by a number or a name."""
    if (number := numbered(queries.source, node, "ORDER BY", len(columns))) is not None:
        return columns[number].key
    if isinstance(node, exp.Column) and node.args.get("table") is None:
        fitting = [column for column in columns if is_named(node.this, column.name)]
        if len(fitting) > 1:
            raise queries.source.error(node, f"ORDER BY {node.name} could be several columns", "name it by its number")
        return fitting[0].key if fitting else None
    return None


def _first(
    queries: Queries, node: exp.Expr, relation: Relation, sorts: Sequence[tuple[str, exp.Ordered]], hidden: list[str]
) -> Relation:
    """The first rows in an order; equal ones by all their columns, so that equal input gives equal output."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if limit is None and offset is None:
        return relation
    source = queries.source
    is_fetch = isinstance(limit, exp.Fetch)
    options = limit.args.get("limit_options") if limit is not None and is_fetch else None
    ties = bool(options and options.args.get("with_ties"))
    if options and options.args.get("percent"):
        source.refuse(node, "FETCH ... PERCENT")
    skipped = _number(queries, offset.expression, offset) if offset is not None else 0
    count = None
    if limit is not None:
        count = _number(queries, limit.args.get("count") if is_fetch else limit.expression, limit)
    with planning(source.place(node.args.get("order") or node)):
        rows, by, downs = sortable(relation.rows, sorts)
        if not by:
            by, downs = [each.key for each in relation.own][:1], [False]
        if any(types(rows)[key].is_nested for key in by):
            source.refuse(node.args.get("order") or node, "an order by lists or structs")
        groups = rows.group_by(*relation.carried)
        if count == 0:
            first = rows.where(pl.lit(False))
        elif count is None:
            first = rows
        else:
            first = groups.top_k(count + skipped, by, descending=downs, ties="rank" if ties else "cut")
        if skipped and count != 0:
            first = first.concat(groups.top_k(skipped, by, descending=downs).negate())
        kept = [key for key in types(relation.rows) if key not in hidden]
        first = selected(first, {key: pl.col(key) for key in kept})
    return Relation(first, relation.columns, relation.carried)


def _number(queries: Queries, node: exp.Expr | None, around: exp.Expr) -> int:
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    queries.source.refuse(around, "a limit that is no whole number")


def sortable(rows: Any, sorts: Sequence[tuple[str, exp.Ordered]]) -> tuple[Any, list[str], list[bool]]:
    """Rows with columns that tell where nulls go, where that is not last; and what to sort by."""
    by: list[str] = []
    downs: list[bool] = []
    added: dict[str, pl.Expr] = {}
    for number, (key, each) in enumerate(sorts):
        if each.args.get("nulls_first"):
            name = f"nulls {number}"
            added[name] = pl.col(key).is_not_null()
            by.append(name)
            downs.append(False)
        if key not in by:
            by.append(key)
            downs.append(bool(each.args.get("desc")))
    return rows.with_columns(**added) if added else rows, by, downs
