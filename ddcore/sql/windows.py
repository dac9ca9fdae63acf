"""OVER: functions and aggregates of rows in an order, and aggregates of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.base.source_line import planning
from ddcore.operators import window_functions
from ddcore.operators.frame import Frame
from ddcore.sql import aggregation, gathered
from ddcore.sql.frames import frame_of, windows_in
from ddcore.sql.grouping import unwrapped
from ddcore.sql.names import Relation, is_named
from ddcore.sql.ordering import Replace, sortable
from ddcore.sql.pairs import conjuncts, paired, placed
from ddcore.sql.source import called, shown
from ddcore.sql.values import FLOAT, INT, Value, Values, aligned, is_plain, selected
from ddcore.text.wording import listed

if TYPE_CHECKING:
    from ddcore.sql.env import Queries

_PLACES = exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.PercentRank, exp.CumeDist
_FUNCTIONS = (*_PLACES, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)
_NAMES = [kind.sql_name().lower() for kind in _FUNCTIONS]
_LONGEST = 10_000  # rows of a group that top_k keeps: beyond, all rows are numbered


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
    """The rows with one more column for each window, and the values of these. Windows of equal parts and orders are
    computed together.
    """
    known: dict[int, Value] = {}
    windows = windows_in(parts)
    alike: dict[Any, dict[str, exp.Window]] = {}
    for number, window in enumerate(windows):
        alike.setdefault(_shape(window), {})[f"window {number}"] = window
    for group in alike.values():
        with planning(queries.source.where(next(iter(group.values())))):
            least = _bound(queries, node, windows[0]) if len(windows) == 1 else None
            relation, values = _windows(queries, relation, group, replace, most=least)
            known |= {id(window): value for window, value in zip(group.values(), values, strict=True)}
    return relation, known


def _shape(window: exp.Window) -> Any:
    """Equal for windows that are computed together."""
    order, parts = window.args.get("order"), window.args.get("partition_by") or []
    return id(window) if order is None else (*(part.sql() for part in parts), order.sql())


def _bound(queries: Queries, node: exp.Select, window: exp.Window) -> int | None:
    """The greatest number that QUALIFY, or the condition on the subquery, lets through."""
    if node.args.get("distinct") or node.args.get("limit"):
        return None
    aliases = [
        expression.alias
        for expression in node.expressions
        if isinstance(expression, exp.Alias) and expression.this is window
    ]
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


def _windows(
    queries: Queries, relation: Relation, windows: Mapping[str, exp.Window], replace: Replace, *, most: int | None
) -> tuple[Relation, list[Value]]:
    """The rows with the results of windows of equal parts and orders, by name, and their values."""
    source, (name, first) = queries.source, next(iter(windows.items()))
    values = Values(source, relation.columns, relation.types, replace)
    order = first.args.get("order")
    keys = {key: pl.col(key) for key in relation.carried}
    for number, part in enumerate(first.args.get("partition_by") or []):
        value = values.of(part)
        if value.type is None:
            source.refuse(part, "PARTITION BY NULL")
        keys[is_plain(value.expr) or f"{name} part {number}"] = value.expr
    frames = {result_name: _checked(values, window) for result_name, window in windows.items()}
    if order is None:
        relation, value = _aggregate(queries, relation, first, name, keys, values=values)
        return relation, [value]
    functions: dict[str, Any] = {}
    made: dict[str, Value] = {}
    for result_name, window in windows.items():
        function, frame = unwrapped(window.this), frames[result_name]
        if isinstance(function, aggregation.AGGREGATES):
            added = aggregation.aggregates_of(values, window.this, f"{result_name} ")
            functions |= {key: replaced(aggregate, frame=frame) for key, aggregate in added.aggregates.items()}
            made[result_name] = added.known[aggregation.text_of(window.this)]
        else:
            functions[result_name], kind = _Functions(values, window).made(function, frame)
            made[result_name] = Value(pl.col(result_name), kind, window)
    numbers = isinstance(unwrapped(first.this), exp.RowNumber | exp.Rank)
    rows = _ordered(relation, order, name, keys, values, functions=functions, most=most if numbers else None)
    kept = {key: pl.col(key) for key in relation.types}
    result = rows.select(**kept, **{result_name: value.expr for result_name, value in made.items()})
    of = [Value(pl.col(result_name), made[result_name].type, window) for result_name, window in windows.items()]
    return Relation(result, relation.columns, relation.carried), of


def _checked(values: Values, window: exp.Window) -> Frame | None:
    """The frame of a window. Raises ProgramError for what is not supported."""
    source = values.source
    if window.args.get("first") is False:
        source.refuse(window, "this window")
    order, function = window.args.get("order"), unwrapped(window.this)
    is_aggregate = isinstance(function, aggregation.AGGREGATES)
    if not is_aggregate and not isinstance(function, _FUNCTIONS):
        source.refuse(window, f"the window function {called(function)}", f"there are {listed(_NAMES)}, and aggregates")
    frame = frame_of(values, window)
    if isinstance(function, tuple(gathered.SPREADS)) and order is not None and function.find(exp.Distinct):
        source.refuse(window, f"{called(function)}(DISTINCT ...) with ORDER BY in OVER", "leave out one of them")
    if order is None and (
        not is_aggregate or (frame and (frame.start, frame.end, frame.exclude) != (None, None, "nothing"))
    ):
        source.refuse(window, f"{called(function)} without ORDER BY", "the order decides the result: add ORDER BY")
    return frame


def _aggregate(
    queries: Queries, relation: Relation, window: exp.Window, name: str, keys: Mapping[str, pl.Expr], *, values: Values
) -> tuple[Relation, Value]:
    """An aggregate of each row's partition."""
    columns, pairs = placed([(expr, expr, True) for expr in keys.values()], name)
    computed = aggregation.computed(
        queries, relation, [window.this], columns, prefix=f"{name} ", values=values, nested=True
    )
    rows = paired(relation.rows, computed.rows, pairs)
    value = computed.known(window.this)
    assert value is not None
    kept = {key: pl.col(key) for key in relation.types}
    result = rows.select(**kept, **{name: value.expr})
    return Relation(result, relation.columns, relation.carried), Value(pl.col(name), value.type, window)


def _ordered(
    relation: Relation,
    order: exp.Order,
    name: str,
    keys: Mapping[str, pl.Expr],
    values: Values,
    *,
    functions: Mapping[str, Any],
    most: int | None,
) -> Any:
    """The rows with the results of functions. With ``most``, rows that would have a greater number may be left out."""
    sorts: dict[str, pl.Expr] = {}
    for number, expression in enumerate(order.expressions):
        expr = values.of(expression.this).expr
        plain = is_plain(expr)
        sorts[f"{name} order {number}" if plain is None or plain in {*keys, *sorts} else plain] = expr
    downs = [bool(expression.args.get("desc")) for expression in order.expressions]
    firsts = [bool(expression.args.get("nulls_first")) for expression in order.expressions]
    types = relation.types
    added = {key: expr for key, expr in {**keys, **sorts}.items() if key not in types}
    rows = relation.rows.with_columns(**added) if added else relation.rows
    if most is not None:
        ties = "cut" if any(function.kind == "row_number" for function in functions.values()) else "rank"
        whole, (rows, by, down) = rows, sortable(rows, [*zip(sorts, order.expressions, strict=True)])
        rows = selected(
            rows.group_by(*keys).top_k(most, by, descending=down, ties=ties),
            {key: pl.col(key) for key in Relation(whole, ()).types},
        )
    return rows.group_by(*keys).over(list(sorts), descending=downs, nulls_first=firsts, **functions)


class _Functions:
    """The functions of rows in an order, of the arguments of one window."""

    def __init__(self, values: Values, window: exp.Window) -> None:
        self.values, self.window = values, window
        wrapped = [type(part) for part in (window.this, window.this.this) if isinstance(part, exp.Expr)]
        if exp.Filter in wrapped:
            values.source.refuse(window, "FILTER of a function that is no aggregate", "use CASE WHEN ... END")
        self.nulls = {"ignore_nulls": exp.IgnoreNulls in wrapped}

    def made(self, node: exp.Expr, frame: Frame | None) -> tuple[Any, Type]:
        """The function and the type of its result. Raises ProgramError."""
        name = called(node).lower()
        if isinstance(node, _PLACES):
            self._require(node, "")
            if self.nulls["ignore_nulls"]:
                self.values.source.refuse(self.window, f"{name} with IGNORE NULLS")
            kind = FLOAT if isinstance(node, exp.PercentRank | exp.CumeDist) else INT
            arguments = [self._number(node.this, 1)] if isinstance(node, exp.Ntile) else []
            return getattr(window_functions, name)(*arguments), kind
        value = self.values.of(node.this)
        if value.type is None:
            self.values.source.refuse(node, f"{name}(NULL)")
        make = getattr(window_functions, name)
        if isinstance(node, exp.Lag | exp.Lead):
            self._require(node, "offset default")
            both = [value] + ([self.values.of(node.args["default"])] if node.args.get("default") else [])
            exprs, kind = aligned(self.values.source, both, node)
            default = exprs[1] if len(both) > 1 and both[1].type is not None else None
            number = self._number(node.args.get("offset"), 0)
            return make(exprs[0], number, default=default, **self.nulls), kind
        self._require(node, "offset" if isinstance(node, exp.NthValue) else "")
        numbers = [self._number(node.args.get("offset"), 1)] if isinstance(node, exp.NthValue) else []
        return replaced(make(value.expr, *numbers, **self.nulls), frame=frame), value.type

    def _number(self, node: exp.Expr | None, least: int) -> int:
        if node is None:
            return 1
        literal = self.values.of(node).literal
        if isinstance(literal, bool) or not isinstance(literal, int) or literal < least:
            self.values.source.refuse(node, f"{shown(node)} rows or parts", f"write a whole number, {least} or more")
        return literal

    def _require(self, node: exp.Expr, known: str) -> None:
        """Raises ProgramError for an option that is not read."""
        for key, value in node.args.items():
            if value and key not in ("this", *known.split()):
                self.values.source.refuse(node, "this option")
