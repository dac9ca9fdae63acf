"""OVER: numbers of rows in an order, and aggregates of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from ddcore.base.source_line import planning
from ddcore.sql import grouping
from ddcore.sql.names import Relation, is_named
from ddcore.sql.numbering import numbering
from ddcore.sql.ordering import Replace, sortable
from ddcore.sql.pairs import conjuncts, paired, placed
from ddcore.sql.source import parts
from ddcore.sql.values import INT, Value, Values, is_plain, selected

if TYPE_CHECKING:
    from ddcore.sql.env import Queries

__all__ = ["bounds", "windowed", "windows_in"]

_NUMBERS = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_LONGEST = 10_000  # rows of a group that top_k keeps: beyond, all rows are numbered


def windows_in(nodes: Iterable[exp.Expr]) -> list[exp.Window]:
    """The windows in parts of a SELECT, not those of subqueries."""

    def inside(node: exp.Expr) -> Iterable[exp.Expr]:
        return () if isinstance(node, exp.Query | exp.Window) else node.iter_expressions()

    return [node for node in parts(nodes, inside) if isinstance(node, exp.Window)]


def bounds(conditions: Iterable[exp.Expr]) -> list[tuple[exp.Expr, int]]:
    """What conditions bound from above by a literal: the value, and the greatest whole number that it may be."""
    found = []
    for node in conditions:
        if isinstance(node, exp.LT | exp.LTE | exp.EQ) and isinstance(node.expression, exp.Literal):
            text = node.expression.name
            if not node.expression.is_string and text.isdigit():
                found.append((node.this, int(text) - isinstance(node, exp.LT)))
    return found


def windowed(
    queries: Queries, node: exp.Select, relation: Relation, parts: Iterable[exp.Expr], replace: Replace
) -> tuple[Relation, dict[int, Value]]:
    """The rows with one more column for each window, and the values of these."""
    known: dict[int, Value] = {}
    windows = windows_in(parts)
    for number, window in enumerate(windows):
        with planning(queries.source.place(window)):
            name = f"window {number}"
            least = _bound(queries, node, window) if len(windows) == 1 else None
            relation, value = _window(queries, relation, window, name, replace, most=least)
            known[id(window)] = value
    return relation, known


def _bound(queries: Queries, node: exp.Select, window: exp.Window) -> int | None:
    """The greatest number that QUALIFY, or the condition on the subquery, lets through."""
    if node.args.get("distinct") or node.args.get("limit"):
        return None
    aliases = [each.alias for each in node.expressions if isinstance(each, exp.Alias) and each.this is window]
    given = list(queries.bounds.get(id(node), ()))
    given += bounds(conjuncts(node.args.get("qualify")))
    numbers = [
        most
        for value, most in given
        if value is window
        or value == window
        or (isinstance(value, exp.Column) and any(is_named(value.this, alias) for alias in aliases))
    ]
    return min(numbers) if numbers and 0 < min(numbers) <= _LONGEST else None


def _window(
    queries: Queries, relation: Relation, window: exp.Window, name: str, replace: Replace, *, most: int | None
) -> tuple[Relation, Value]:
    source = queries.source
    values = Values(source, relation.columns, relation.types, replace)
    if window.args.get("spec") is not None or window.args.get("alias") is not None or window.args.get("first") is False:
        source.refuse(window, "a frame or a name of a window")
    kind = _NUMBERS.get(type(window.this))
    order = window.args.get("order")
    keys = {key: pl.col(key) for key in relation.carried}
    for number, part in enumerate(window.args.get("partition_by") or []):
        value = values.of(part)
        if value.type is None:
            source.refuse(part, "PARTITION BY NULL")
        keys[is_plain(value.expr) or f"{name} part {number}"] = value.expr
    if kind is None:
        if order is not None or not isinstance(window.this, exp.AggFunc | exp.Filter):
            source.refuse(window, "this window", "row_number, rank and dense_rank, and aggregates without ORDER BY are")
        return _aggregate(queries, relation, window, name, keys, values=values)
    if order is None:
        source.refuse(window, f"{kind} without ORDER BY")
    return _numbered(relation, order, name, keys, values, kind=kind, most=most)


def _aggregate(
    queries: Queries, relation: Relation, window: exp.Window, name: str, keys: Mapping[str, pl.Expr], *, values: Values
) -> tuple[Relation, Value]:
    """An aggregate of each row's partition."""
    columns, pairs = placed([(expr, expr, True) for expr in keys.values()], name)
    computed = grouping.computed(
        queries, relation, [window.this], columns, prefix=f"{name} ", values=values, nested=True
    )
    rows = paired(relation.rows, computed.rows, pairs)
    value = computed.known(window.this)
    assert value is not None
    kept = {key: pl.col(key) for key in relation.types}
    result = rows.select(**kept, **{name: value.expr})
    return Relation(result, relation.columns, relation.carried), Value(pl.col(name), value.type, window)


def _numbered(
    relation: Relation,
    order: exp.Order,
    name: str,
    keys: Mapping[str, pl.Expr],
    values: Values,
    *,
    kind: str,
    most: int | None,
) -> tuple[Relation, Value]:
    """The number of each row in its partition. With ``most``, rows that would have a greater one may be left out."""
    sorts: dict[str, pl.Expr] = {}
    for number, each in enumerate(order.expressions):
        expr = values.of(each.this).expr
        plain = is_plain(expr)
        sorts[f"{name} order {number}" if plain is None or plain in {*keys, *sorts} else plain] = expr
    downs = [bool(each.args.get("desc")) for each in order.expressions]
    firsts = [bool(each.args.get("nulls_first")) for each in order.expressions]
    types = relation.types
    added = {key: expr for key, expr in {**keys, **sorts}.items() if key not in types}
    rows = relation.rows.with_columns(**added) if added else relation.rows
    if most is not None and kind != "dense_rank":
        ties = "cut" if kind == "row_number" else "rank"
        whole, (rows, by, down) = rows, sortable(rows, [*zip(sorts, order.expressions, strict=True)])
        rows = selected(
            rows.group_by(*keys).top_k(most, by, descending=down, ties=ties),
            {name: pl.col(name) for name in Relation(whole, ()).types},
        )
    schema = {key: kind_.polars for key, kind_ in Relation(rows, ()).types.items() if key not in keys}
    function = numbering(kind, name, list(sorts), downs, firsts)
    numbered = rows.group_by(*keys).reduce(function, {**schema, name: pl.Int64()})
    result = numbered.select(*types, name)
    return Relation(result, relation.columns, relation.carried), Value(pl.col(name), INT, order)
