"""WITH: bindings that later queries name, and recursive ones, which are loops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ddcore.base.source_line import planning
from ddcore.sql import frames, grouping
from ddcore.sql.mutual import Binding, fitting, fixed_points
from ddcore.sql.names import (
    Column,
    Relation,
    free,
    is_bracket,
    is_comma,
    is_named,
    own,
    require_names,
    tables_in,
    tables_of,
    unwrapped,
)
from ddcore.sql.source import Declared
from ddcore.sql.types import declared_type

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries

_MUTUAL = "write WITH MUTUALLY RECURSIVE name (column type, ...) AS (...), which allows it"


def bound(queries: Queries, query: exp.Expr, env: Env) -> tuple[exp.Expr, Env]:
    """A query with a WITH, and what is known behind it.

    A binding that names columns of the query around stands in place of its name, as a subquery in FROM.
    """
    if env.outer is not None:
        query = _with_correlated(queries, query, env)
    node = query.args.get("with_")
    if node is None:
        return query, env
    names = [expression.args["alias"].this for expression in node.expressions]
    declared = [queries.source.declared.get(name.meta.get("start", -1)) for name in names]
    if any(declared):
        return query, _mutual(queries, node.expressions, declared, env)
    for binding in node.expressions:
        if node.args.get("recursive") and _names(binding.this, binding.alias):
            relation = _recursive(queries, binding, env)
        else:
            columns = binding.args["alias"].args.get("columns") or []
            relation = renamed(queries, queries.query(binding.this, env.alone), columns, binding)
        env = env.binding(binding.alias, relation)
    return query, env


def _with_correlated(queries: Queries, query: exp.Expr, env: Env) -> exp.Expr:
    """The query with each binding that names columns of the query around in all places of its name."""
    copy = query.copy()
    known = dict(queries.known(env))
    bindings = list(copy.args["with_"].expressions)
    while bindings:
        binding = bindings.pop(0)
        names = [column.name for column in binding.args["alias"].args.get("columns") or []]
        known[binding.alias] = names or own(binding.this, known)
        if not any(True for _ in free(binding.this, {name: known[name] for name in known if name != binding.alias})):
            continue
        tables = _names(copy, binding.alias)
        if any(binding is around for table in tables for around in _around(table)):
            queries.source.refuse(binding, "a recursive WITH that names the query around")
        for table in tables:
            table.replace(_in_place(binding, table))
        binding.pop()
    if not copy.args["with_"].expressions:
        copy.set("with_", None)
    return copy


def _around(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _in_place(binding: exp.CTE, table: exp.Table) -> exp.Subquery:
    """The query of a binding as a subquery in FROM, called as the table that stood for it."""
    alias, named = table.args.get("alias"), binding.args["alias"]
    columns = (alias.args.get("columns") if alias is not None else None) or named.args.get("columns") or []
    name = alias.this if alias is not None and alias.this is not None else table.this
    return exp.Subquery(
        this=binding.this.copy(),
        alias=exp.TableAlias(this=name.copy(), columns=[column.copy() for column in columns]),
    )


def renamed(queries: Queries, relation: Relation, names: Sequence[Any], node: exp.Expr) -> Relation:
    """A relation whose first columns have other names."""
    require_names(queries.source, names)
    if len(names) > len(relation.own):
        raise queries.source.error(
            node, f"{len(names)} columns are named, and the query has {len(relation.own)}", "name fewer of them"
        )
    texts = [name.name if isinstance(name, exp.Expr) else name for name in names]
    own = relation.own
    new = tuple(Column("", text, column.key) for text, column in zip(texts, own, strict=False)) + tuple(
        own[len(texts) :]
    )
    return replace(relation, columns=new)


def _names(node: exp.Expr, name: str) -> list[exp.Table]:
    """The places at which a query names a binding."""
    return [part for part in node.find_all(exp.Table) if is_named(part.this, name)]


# -- WITH RECURSIVE ---------------------------------------------------------------------------------------------------


def _recursive(queries: Queries, binding: exp.CTE, env: Env) -> Relation:
    """``start UNION step``: the step adds to what is there, until nothing is new.

    Each round applies the step to all rows so far. Because the step treats each of them by itself, this gives the
    same rows, as often, as the standard's rounds over the rows of the round before.
    """
    source, query = queries.source, unwrapped(binding.this)
    columns = binding.args["alias"].args.get("columns") or []
    if not isinstance(query, exp.Union) or _names(query.this, binding.alias):
        raise source.error(binding, f"WITH RECURSIVE {binding.alias}: not of the form start UNION step", _MUTUAL)
    _require_linear(queries, binding, query.expression)
    start = renamed(queries, queries.query(query.this, env.alone), columns, binding)
    distinct = bool(query.args.get("distinct"))
    base = start.rows.distinct() if distinct else start.rows

    def body(rows: Any) -> Any:
        relation = replace(start, rows=rows)
        step = queries.query(query.expression, env.alone.binding(binding.alias, relation))
        if len(step.own) != len(start.own):
            raise source.error(
                query, f"{len(start.own)} columns at the start and {len(step.own)} in the step", "select as many"
            )
        added = step.rows.select(**fitting(queries, step, start, query))
        every = start.rows.concat(added)
        return every.distinct() if distinct else every

    body.__name__ = binding.alias
    with planning(source.where(binding)):
        return replace(start, rows=base.iterate(body))


def _require_linear(queries: Queries, binding: exp.CTE, step: exp.Expr) -> None:
    """Raises ProgramError where the step does not treat each row of the binding by itself."""
    named, what = _names(step, binding.alias), f"WITH RECURSIVE {binding.alias}"
    if len(named) > 1:
        raise queries.source.error(named[1], f"{what} names itself twice", _MUTUAL)
    node: exp.Expr | None = named[0]
    while node is not None and node is not step.parent:
        around = node.parent
        if isinstance(node, exp.Select) and (grouping.is_grouped(node) or node.args.get("distinct")):
            raise queries.source.error(node, f"{what}: groups or DISTINCT over itself", _MUTUAL)
        if isinstance(node, exp.Query) and (node.args.get("limit") or node.args.get("offset")):
            raise queries.source.error(node, f"{what}: LIMIT over itself", _MUTUAL)
        if isinstance(node, exp.Except | exp.Intersect) or (isinstance(node, exp.Union) and node.args.get("distinct")):
            raise queries.source.error(node, f"{what}: {node.key.upper()} over itself", _MUTUAL)
        if isinstance(node, exp.Exists | exp.In | exp.Any | exp.All | exp.Where):
            raise queries.source.error(node, f"{what}: a condition on itself", _MUTUAL)
        if isinstance(node, exp.Subquery) and not isinstance(around, exp.From | exp.Join | exp.Query | exp.Lateral):
            raise queries.source.error(node, f"{what}: a value of itself", _MUTUAL)
        if isinstance(node, exp.With):
            raise queries.source.error(node, f"{what}: WITH over itself", _MUTUAL)
        if isinstance(node, exp.Select) and frames.windows_in(node.expressions):
            raise queries.source.error(node, f"{what}: OVER itself", _MUTUAL)
        if (join := _one_sided(node)) is not None:
            raise queries.source.error(node, f"{what}: {join} with itself", _MUTUAL)
        node = around


def _one_sided(node: exp.Expr) -> str | None:
    """A join in which what becomes of the rows of ``node`` depends on which rows the other side has."""
    if isinstance(node, exp.Join) and (node.side in ("LEFT", "FULL") or node.method == "ASOF"):
        return f"{node.method} {node.side} JOIN".strip().replace("  ", " ")
    if isinstance(node, exp.From | exp.Join) and any(join.side in ("RIGHT", "FULL") for join in _behind(node)):
        return "an outer join"
    if node.args.get("pivots"):
        return "PIVOT or UNPIVOT"
    inside = tables_in(node) if is_bracket(node) else []
    if any(join is not None and (join.side or join.method == "ASOF") for _, join in inside):
        return "an outer join in parentheses"
    return None


def _behind(node: exp.Expr) -> list[exp.Join]:
    """The joins behind a table in its join item, which a comma ends."""
    select = node.parent_select
    tables = tables_of(select) if select is not None else []
    first = next((number for number, (table, _) in enumerate(tables) if table is node.this), len(tables))
    joins = [join for _, join in tables[first + 1 :] if join is not None]
    return list(itertools.takewhile(lambda join: not is_comma(join), joins))


# -- WITH MUTUALLY RECURSIVE ------------------------------------------------------------------------------------------


def _mutual(queries: Queries, nodes: Sequence[exp.CTE], declared: Sequence[Declared | None], env: Env) -> Env:
    """The bindings as one loop, each with its declared columns."""
    source = queries.source
    bindings = []
    for node, columns in zip(nodes, declared, strict=True):
        assert columns is not None
        kinds = tuple(declared_type(source, exp.DataType.build(text, dialect=source.dialect)) for text in columns.types)
        if len({name.casefold() for name in columns.names}) < len(columns.names):
            raise source.error(node, f"{node.alias}: two columns have one name", "give each column its own name")
        bindings.append(Binding(node.alias, node, node.this, queries.query, columns.names, kinds))
    loop = source.loops[nodes[0].args["alias"].this.meta["start"]]
    for name, relation in fixed_points(queries, bindings, env, loop).items():
        env = env.binding(name, relation)
    return env
