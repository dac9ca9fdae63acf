"""GROUP BY and HAVING: a SELECT with groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.errors import ProgramError
from ddcore.base.source_line import planning
from ddcore.expressions.canonical import canonical
from ddcore.sql.aggregation import Computed, computed, is_aggregate, is_grouping, is_nested
from ddcore.sql.dialects import SPARKS
from ddcore.sql.grouping_sets import Grouping
from ddcore.sql.names import Relation, types
from ddcore.sql.pairs import paired
from ddcore.sql.source import Source, parts, shown
from ddcore.sql.types import INT
from ddcore.sql.values import CHAINED, Value, Values, is_plain, null

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries


def aggregates_in(query: exp.Expr) -> list[exp.Expr]:
    """The aggregates of a SELECT itself, with their FILTER, not those of its subqueries and windows."""

    def inside(node: exp.Expr) -> Iterable[exp.Expr]:
        if isinstance(node, exp.Query) or is_aggregate(node) or is_grouping(node):
            return ()
        if isinstance(node, exp.Window):
            condition = [node.this.expression] if isinstance(node.this, exp.Filter) else []
            function = unwrapped(node.this)
            functions = [function.this, function.expression] if isinstance(function, exp.WithinGroup) else [function]
            return [
                *condition,
                *(expression for part in functions for expression in part.iter_expressions()),
                *(expression for expression in node.iter_expressions() if expression is not node.this),
            ]
        return node.iter_expressions()

    values = [query.args.get(key) for key in ("expressions", "having", "order", "qualify")]
    nodes = [item for value in values for item in (value if isinstance(value, list) else [value])]
    found = parts([item for item in nodes if isinstance(item, exp.Expr)], inside)
    return [node for node in found if is_aggregate(node)]


def has_aggregate(node: exp.Expr) -> bool:
    """Whether a column of a SELECT has an aggregate, or a window."""
    return bool(aggregates_in(exp.Select(expressions=[node.copy()]))) or node.find(exp.Window) is not None


def is_grouped(query: exp.Select) -> bool:
    """Whether a SELECT computes with groups."""
    return bool(query.args.get("group") or query.args.get("having") or aggregates_in(query))


def is_global(query: exp.Select) -> bool:
    """Whether a SELECT has exactly one row: aggregates of all rows, also of none; the instant of the version."""
    plain = not any(query.args.get(key) for key in ("group", "having", "limit", "offset", "qualify"))
    return plain and bool(aggregates_in(query) or query.meta.get("instant"))


def unwrapped(node: exp.Expr) -> exp.Expr:
    """A function without its FILTER, IGNORE NULLS and RESPECT NULLS."""
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node


def has_row_of_nothing(query: exp.Select) -> bool:
    """Whether a SELECT may have a row also where no row is left to group."""
    group = query.args.get("group")
    if group is None:
        return bool(aggregates_in(query))
    return bool(group.args.get("all")) or group.find(exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple) is not None


def grouped(
    queries: Queries,
    query: exp.Select,
    relation: Relation,
    env: Env,
    known: Mapping[int, Value],
    *,
    grouping: Grouping | None,
) -> tuple[Relation, Callable[[Values, exp.Expr], Value | None]]:
    """One row for each group, and the values of its keys and aggregates."""
    source = queries.source
    values = Values(source, relation.columns, relation.types, lambda _, node: known.get(id(node)))
    exprs: dict[str, pl.Expr] = {name: pl.col(name) for name in relation.carried}
    columns = [column for column in relation.columns if column.outer]
    names: list[str] = []
    for number, node in enumerate(grouping.keys if grouping is not None else ()):
        value = values.of(node)
        if value.type is None:
            source.refuse(node, "GROUP BY NULL")
        name = is_plain(value.expr)
        if name is None:
            same = (key for key, expr in exprs.items() if canonical(expr) == canonical(value.expr))
            name = next(same, f"group {number}")
        elif isinstance(node, exp.Column):
            columns += [column for column in relation.columns if column.key == name and column not in columns]
        names.append(name)
        exprs[name] = value.expr
    nodes = aggregates_in(query)
    with planning(source.where(nodes[0] if nodes else query.args.get("group") or query)):
        if grouping is not None and not grouping.is_plain:
            rows, result = _sets(queries, relation, env, nodes, exprs, names=names, sets=grouping.sets, values=values)
        else:
            result = computed(queries, relation, nodes, exprs, values=values)
            rows = result.rows if grouping is not None else _one_row(queries, relation, result, env)
    texts = {canonical(expr): name for name, expr in exprs.items()}
    kinds = types(rows)

    def replace(after: Values, node: exp.Expr) -> Value | None:
        aggregate = result.known(node)
        if aggregate is not None:
            return aggregate
        if is_grouping(node):
            return _grouping(source, values, node, texts, kinds)
        if id(node) in known and is_plain(known[id(node)].expr) not in kinds:
            raise _no_key(source, node)
        return _key(source, values, node, texts, kinds)

    gone = [dataclasses.replace(column, absent=True) for column in relation.columns if column not in columns]
    return Relation(rows, tuple([*columns, *gone]), relation.carried), replace


_LEFT_OUT = "left out "


def _sets(
    queries: Queries,
    relation: Relation,
    env: Env,
    nodes: Sequence[exp.Expr],
    exprs: Mapping[str, pl.Expr],
    *,
    names: Sequence[str],
    sets: Sequence[Sequence[int]],
    values: Values,
) -> tuple[Any, Computed]:
    """The groups of each set of keys, with nulls for the keys that it leaves out, and a column for each key that says
    whether it does. A set without keys has one row, also of no rows, but in Spark only if it is the only one.
    """
    needed = {name: expr for name, expr in exprs.items() if is_plain(expr) != name}
    rows = relation.rows.with_columns(**needed) if needed else relation.rows
    with_keys = Relation(rows, relation.columns, relation.carried)
    kinds = with_keys.types
    sides = []
    for chosen in sets:
        kept = {*relation.carried, *(names[number] for number in chosen)}
        keys = {name: pl.col(name) for name in exprs if name in kept}
        result = computed(queries, with_keys, nodes, keys, values=values)
        has_none = chosen or (len(sets) > 1 and queries.source.dialect in SPARKS)
        side = result.rows if has_none else _one_row(queries, relation, result, env)
        others = {name: pl.col(name) for name in types(side) if name not in exprs and name != "rows"}
        whole = {name: pl.col(name) if name in kept else null(kinds[name]) for name in exprs}
        marks = {f"{_LEFT_OUT}{name}": pl.lit(int(name not in kept), dtype=pl.Int64) for name in names}
        sides.append(side.select(**whole, **{name: others[name] for name in sorted(others)}, **marks))
    return sides[0].concat(*sides[1:]) if len(sides) > 1 else sides[0], result


def _grouping(
    source: Source, values: Values, node: exp.Expr, texts: Mapping[str, str], kinds: Mapping[str, Any]
) -> Value:
    """``grouping(a, b)``: a bit for each key, the last one lowest, which is set where the set leaves the key out."""
    total = pl.lit(0, dtype=pl.Int64)
    for argument in node.expressions:
        name = texts.get(canonical(values.of(argument).expr))
        if name is None:
            raise source.error(argument, f"{shown(argument)} is no key of GROUP BY", "grouping() takes keys")
        total = total * 2
        if f"{_LEFT_OUT}{name}" in kinds:
            total = total + pl.col(f"{_LEFT_OUT}{name}")
    return Value(total, INT, node)


def _key(
    source: Any, values: Values, node: exp.Expr, texts: Mapping[str, str], kinds: Mapping[str, Any]
) -> Value | None:
    """The value of a part that is a key of GROUP BY."""
    if isinstance(node, CHAINED) and not any(text.startswith("(") for text in texts):
        return None  # all keys are columns
    if isinstance(node, exp.Literal | exp.Null | exp.Boolean) or is_nested(node):
        return None
    try:
        text = canonical(values.of(node).expr)
    except ProgramError:
        if isinstance(node, exp.Column):
            raise
        return None
    if text in texts:
        name = texts[text]
        return Value(pl.col(name), kinds[name], node)
    if isinstance(node, exp.Column):
        raise _no_key(source, node)
    return None


def _no_key(source: Source, node: exp.Expr) -> ProgramError:
    """The error of a part of a SELECT with groups whose value the rows of a group need not share."""
    what, hint, star = f"{shown(node)} is", "add it to GROUP BY", node.meta.get("star")
    if star:
        what = f"{star} stands for {shown(node)} too, which is"
        hint = f"add it to GROUP BY, or name columns in place of {star}"
    return source.error(node, f"{what} neither a key of GROUP BY nor in an aggregate", hint)


def _one_row(queries: Queries, relation: Relation, result: Computed, env: Env) -> Any:
    """The aggregates of all rows, which have a row also where there is none."""
    if env.outer is None:
        return result.filled(paired(queries.unit, result.rows, [], "left").drop("unit"))
    renamed = result.rows.rename({name: f"of {name}" for name in relation.carried})
    pairs = [(pl.col(name), pl.col(f"of {name}"), True) for name in relation.carried]
    joined = paired(env.outer.rows, renamed, pairs, "left")
    return result.filled(joined).drop(*(f"of {name}" for name in relation.carried))
