"""How a subquery's rows belong to the rows around it.

A subquery that names columns of the query around is planned over the distinct values of these columns, as one more
table of its FROM, and joined with the rows around by them. Where it names them in equalities only, what they are
compared with is the key, and the values are not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.sql import grouping
from ddcore.sql.env import Env, Queries
from ddcore.sql.names import Column, Known, Relation, free, names_used, resolve, unwrapped
from ddcore.sql.pairs import Pair, conjuncts
from ddcore.sql.quantifiers import items_of
from ddcore.sql.source import shown
from ddcore.sql.values import Value, Values, aligned


def names_in(node: exp.Expr, known: Known) -> list[exp.Column]:
    """The columns that a condition names, of its subqueries only those of the query around."""
    return list(names_used(node, known))


def subqueries_in(nodes: Iterable[exp.Expr]) -> list[exp.Expr]:
    """The parts that hold a subquery, outermost first: EXISTS, IN, ANY, ALL and values."""

    found, waiting = list[exp.Expr](), [*nodes][::-1]
    while waiting:
        node = waiting.pop()
        if _holds_subquery(node):
            found.append(node)
        elif not isinstance(node, _LEAVES):
            waiting += [*node.iter_expressions()][::-1]
    return found


_LEAVES = exp.Column, exp.Literal
_QUERIES = exp.Exists, exp.Subquery, exp.Select, exp.SetOperation


def _holds_subquery(node: exp.Expr) -> bool:
    if isinstance(node, _QUERIES):
        return True
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    if not isinstance(node, exp.Binary):
        return False
    quantifier = node.expression
    return isinstance(quantifier, _QUANTIFIERS) and isinstance(unwrapped(quantifier.this), exp.Query)


_QUANTIFIERS = exp.Any, exp.All


def correlated(queries: Queries, around: Relation, query: exp.Expr, env: Env) -> tuple[Relation | None, list[Pair]]:
    """The columns of ``around`` that a subquery names, as one more table to plan it over, and the pairs of keys by
    which its rows belong to those of ``around``.
    """
    references = list(free(query, queries.known(env)))
    if not references:
        return None, []
    columns = {}
    new: dict[str, str] = {}
    for node in references:
        found = resolve(queries.source, around.columns, node)
        if found.key not in new:
            new[found.key] = f"outer {found.key}"
            while new[found.key] in around.types:
                new[found.key] += "+"
        columns[found.table, found.name] = Column(found.table, found.name, new[found.key], outer=True)
    keys = {name: key for key, name in new.items()}
    values = around.rows.select(**{name: pl.col(old) for name, old in keys.items()}).distinct()
    rejecting = _null_rejecting(query)
    pairs = []
    for name, old in keys.items():
        nodes = [node for node in references if resolve(queries.source, around.columns, node).key == old]
        pairs.append((pl.col(old), pl.col(name), not any(id(node) in rejecting for node in nodes)))
    return Relation(values, tuple(columns.values())), pairs


def _null_rejecting(query: exp.Expr) -> set[int]:
    """Names that stand bare in a comparison that every row of the subquery has met: they are not null there."""
    query = unwrapped(query)
    if not isinstance(query, exp.Select) or grouping.has_row_of_nothing(query):
        return set()
    comparisons = exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE
    return {
        id(side)
        for node in conjuncts(query.args.get("where"))
        if isinstance(node, comparisons)
        for side in (node.this, node.expression)
        if isinstance(side, exp.Column)
    }


@dataclass(frozen=True)
class Body:
    """A subquery's rows, the pairs that join them with the rows around, and the values of its columns.

    ``every``: there are also rows for keys that no row around has.
    """

    rows: Any
    pairs: list[Pair]
    results: list[Value]
    every: bool


def body_of(queries: Queries, around: Relation, query: exp.Expr, env: Env) -> Body:
    """The rows of a subquery for the rows around, with its columns."""
    query = unwrapped(query)
    equalities = direct(queries, query, env)
    if equalities is not None and not grouping.aggregates_in(query):
        assert isinstance(query, exp.Select)
        relation, pairs, values = keyed(queries, around, query, equalities, env)
        results = [values.of(plain(column)) for column in queries.expanded(query, relation)]
        return Body(relation.rows, pairs, results, every=True)
    outer, pairs = correlated(queries, around, query, env)
    relation = queries.query(query, env.inside(outer))
    kinds = relation.types
    results = [Value(pl.col(column.key), kinds[column.key], query) for column in relation.own]
    return Body(relation.rows, pairs, results, every=not pairs)


def plain(node: exp.Expr) -> exp.Expr:
    """A column of a SELECT without its name."""
    return node.this if isinstance(node, exp.Alias) else node


def keyed(
    queries: Queries,
    around: Relation,
    query: exp.Select,
    equalities: Sequence[tuple[exp.Column, exp.Expr, exp.Expr]],
    env: Env,
) -> tuple[Relation, list[Pair], Values]:
    """A subquery without the equalities that correlate it, and the pairs of keys that they are."""
    relation = queries.from_where(query, env.alone, [node for _, _, node in equalities])
    values = Values(queries.source, relation.columns, relation.types)
    outside = Values(queries.source, around.columns, around.types)
    pairs: list[Pair] = []
    for reference, inner, node in equalities:
        (left, right), _ = aligned(queries.source, [outside.of(reference), values.of(inner)], shown(node))
        pairs.append((left, right, False))
    return relation, pairs, values


def direct(queries: Queries, query: exp.Expr, env: Env) -> list[tuple[exp.Column, exp.Expr, exp.Expr]] | None:
    """The equalities by which alone a subquery names the query around: its name, what it equals, the condition.

    None if there are other names, or parts that would have to know them.
    """
    allowed = {"expressions", "from_", "joins", "where", "kind", "hint"}
    if not isinstance(query, exp.Select) or any(value for key, value in query.args.items() if key not in allowed):
        return None
    if query.args.get("from_") is None or subqueries_in(query.expressions) or list(query.find_all(exp.Window)):
        return None
    known = queries.known(env)
    references = {id(node): node for node in free(query, known)}
    if not references:
        return None
    found: list[tuple[exp.Column, exp.Expr, exp.Expr]] = []
    for node in conjuncts(query.args.get("where")):
        if not isinstance(node, exp.EQ) or items_of(node.expression) is not None or subqueries_in([node]):
            continue
        for reference, inner in ((node.left, node.right), (node.right, node.left)):
            if id(reference) in references and not any(id(part) in references for part in inner.find_all(exp.Column)):
                if not list(inner.find_all(exp.Column)):
                    continue
                found.append((references[id(reference)], inner, node))
                del references[id(reference)]
                break
    return None if references else found
