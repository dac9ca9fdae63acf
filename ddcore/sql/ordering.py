"""The columns of a SELECT, DISTINCT, ORDER BY with LIMIT, and numbers of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.source_line import planning
from ddcore.expressions.canonical import canonical
from ddcore.sql.names import Column, Relation, candidates, is_named, resolve, result_name, types
from ddcore.sql.source import Source, shown
from ddcore.sql.values import Value, Values, column_value, selected

if TYPE_CHECKING:
    from ddcore.sql.env import Queries

_A_LIMIT = "write the number: LIMIT 10; with one of a column: QUALIFY row_number() OVER (ORDER BY y) <= x"
_A_PART = "write QUALIFY row_number() OVER (ORDER BY y) <= ceil(0.10 * count(*) OVER ())"
Replace = Callable[[Values, exp.Expr], Value | None]


def projected(
    queries: Queries, node: exp.Select, relation: Relation, columns: Sequence[exp.Expr], replace: Replace
) -> Relation:
    """The rows of a SELECT with its columns, distinct and limited as it says."""
    values = Values(queries.source, relation.columns, relation.types, replace)
    exprs: dict[str, pl.Expr] = {key: pl.col(key) for key in relation.carried}
    results: list[Column] = []
    for number, output in enumerate(columns, 1):
        with planning(queries.source.where(output)):
            value = column_value(values, output)
        name = result_name(output)
        if isinstance(output, exp.Column):  # which is called as its table spells it
            name = resolve(queries.source, relation.columns, output).name
        key = name or f"column {number}"
        while key in exprs:
            key += "+"
        exprs[key] = value.expr
        inner = output.this if isinstance(output, exp.Alias) else output
        results.append(Column("", name, key, untyped=isinstance(inner, exp.Null)))
    distinct = node.args.get("distinct")
    firsts = distinct.args.get("on") if distinct is not None else None
    order = node.args.get("order")
    hidden: dict[str, pl.Expr] = {}
    named_results = {column.alias.casefold(): column.this for column in columns if isinstance(column, exp.Alias)}

    def named_too(_: Values, part: exp.Expr) -> Value | None:
        """In an expression, too, a name that no table has is that of a result, as in DuckDB."""
        if isinstance(part, exp.Column) and part.args.get("table") is None and not candidates(relation.columns, part):
            result = named_results.get(part.name.casefold())
            return values.of(result) if result is not None else None
        return replace(values, part)

    ordered = Values(queries.source, relation.columns, relation.types, named_too)

    def key_of(part: exp.Expr) -> str:
        """The column of a result, or one more."""
        result = _result(queries, results, part)
        if result is None:
            if distinct is not None and firsts is None:
                what = f"ORDER BY {shown(part)} is no column of SELECT DISTINCT"
                raise queries.source.error(part, what, "select it too")
            expr = ordered.of(part).expr
            result = next((name for name, known in hidden.items() if canonical(known) == canonical(expr)), None)
            result = result or f"order {len(hidden)}"
            hidden[result] = expr
        return result

    sorts = []
    if order is not None:
        counts = firsts is not None or _counts(queries, node)
        sorts = [(key_of(part), term) for term in order.expressions for part in _sorted_by(term, whole=counts)]
        if not counts:
            sorts, hidden = [], {}
    groups = [key_of(part) for part in firsts.expressions] if firsts is not None else []
    rows = relation.rows.select(**exprs, **hidden)
    whole = Relation(rows, tuple(results), relation.carried)
    if firsts is not None:
        whole = _first_of_each(queries, node, whole, groups, sorts)
    elif distinct is not None:
        whole = dataclasses.replace(whole, rows=rows.distinct())
    return _first(queries, node, whole, sorts, list(hidden))


def _first_of_each(
    queries: Queries,
    node: exp.Expr,
    relation: Relation,
    groups: Sequence[str],
    sorts: Sequence[tuple[str, exp.Ordered]],
) -> Relation:
    """The first row of each group in an order, of equal ones the least: DISTINCT ON."""
    ahead = [key for key, _ in sorts[: len(set(groups))]]
    if sorts and not ({*ahead} <= {*groups} and ({*ahead} == {*groups} or len(ahead) == len(sorts))):
        raise queries.source.error(
            node.args["order"], "ORDER BY does not begin with what is behind DISTINCT ON",
            "order by these first, then by what says which row is the first",
        )  # fmt: skip
    keys = [*relation.carried, *dict.fromkeys(groups)]
    names = list(relation.types)
    rows, by, downs = sortable(relation.rows, [(key, sort) for key, sort in sorts if key not in groups])
    rest = [name for name in names if name not in keys]
    if not by:
        by, downs = rest[:1], [False]
    if not by:  # all columns are keys
        return dataclasses.replace(relation, rows=relation.rows.distinct())
    if any(types(rows)[key].is_nested for key in by):
        queries.source.refuse(node, "an order by lists or structs")
    first = rows.group_by(*keys).top_k(1, by, descending=downs)
    return dataclasses.replace(relation, rows=selected(first, {name: pl.col(name) for name in names}))


def limited(queries: Queries, node: exp.Expr, relation: Relation) -> Relation:
    """The first rows of a set operation or of a subquery in parentheses."""
    order, sorts = node.args.get("order"), []
    if order is not None:
        for expression in order.expressions:
            key = _result(queries, relation.own, expression.this)
            if key is None:
                raise queries.source.error(
                    expression, f"ORDER BY {shown(expression.this)} is no column", "order by a column's name"
                )
            sorts.append((key, expression))
        sorts = sorts if _counts(queries, node) else []
    return _first(queries, node, relation, sorts, [])


def _sorted_by(ordered: exp.Ordered, *, whole: bool) -> list[exp.Expr]:
    """What an order names; of a row, its parts, unless the ``whole`` is meant."""
    return list(ordered.this.expressions) if isinstance(ordered.this, exp.Tuple) and not whole else [ordered.this]


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
    kept = {key: pl.col(key) for key in relation.types if key not in hidden}
    if limit is None and offset is None:
        return dataclasses.replace(relation, rows=selected(relation.rows, kept))
    source = queries.source
    is_fetch = isinstance(limit, exp.Fetch)
    options = limit.args.get("limit_options") if limit is not None and is_fetch else None
    ties = bool(options and options.args.get("with_ties"))
    if options and options.args.get("percent"):
        source.refuse(node, "FETCH ... PERCENT", _A_PART)
    skipped = _number(queries, offset.expression, offset) if offset is not None else 0
    count = None
    if limit is not None:
        count = _number(queries, limit.args.get("count") if is_fetch else limit.expression, limit)
    with planning(source.where(node.args.get("order") or node)):
        rows, by, downs = sortable(relation.rows, sorts)
        if not by:
            by, downs = [column.key for column in relation.own][:1], [False]
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
        first = selected(first, kept)
    return Relation(first, relation.columns, relation.carried)


def _number(queries: Queries, node: exp.Expr | None, around: exp.Expr) -> int:
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    queries.source.refuse(around, "a limit that is no whole number", _A_LIMIT)


def sortable(rows: Any, sorts: Sequence[tuple[str, exp.Ordered]]) -> tuple[Any, list[str], list[bool]]:
    """Rows with columns that tell where nulls go, where that is not last; and what to sort by."""
    by: list[str] = []
    downs: list[bool] = []
    added: dict[str, pl.Expr] = {}
    for number, (key, sort) in enumerate(sorts):
        if sort.args.get("nulls_first"):
            name = f"nulls {number}"
            added[name] = pl.col(key).is_not_null()
            by.append(name)
            downs.append(False)
        if key not in by:
            by.append(key)
            downs.append(bool(sort.args.get("desc")))
    return rows.with_columns(**added) if added else rows, by, downs
