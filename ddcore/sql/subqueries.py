"""Subqueries in conditions and values: joins with what they give for each row around them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.operators import aggregates
from ddcore.sql.correlation import body_of, correlated, names_in, subqueries_in
from ddcore.sql.env import Env, Queries
from ddcore.sql.membership import membership, split
from ddcore.sql.names import Relation, types, unwrapped
from ddcore.sql.pairs import paired, placed
from ddcore.sql.quantifiers import HOLDS
from ddcore.sql.scalars import scalar
from ddcore.sql.source import shown
from ddcore.sql.types import BOOL
from ddcore.sql.values import Value, Values, aligned, null

__all__ = ["attached", "correlated", "filtered", "names_in", "subqueries_in"]


def filtered(queries: Queries, rows: Relation, node: exp.Expr, env: Env) -> Any:
    """The rows for which a condition with subqueries is true."""
    negated, inner = False, node
    while isinstance(inner, exp.Not | exp.Paren):
        negated ^= isinstance(inner, exp.Not)
        inner = inner.this
    if isinstance(inner, exp.Exists):
        body = body_of(queries, rows, inner.this, env)
        return paired(rows.rows, body.rows, body.pairs, "anti" if negated else "semi")
    member = membership(inner)
    if member is not None:
        subjects, query, outside = member
        sides = split(queries, rows, subjects, query, env, node=inner, only=not (negated ^ outside))
        return sides[0] if not (negated ^ outside) else sides[1]
    relation, known = attached(queries, rows, [node], env)
    values = Values(queries.source, relation.columns, relation.types, lambda _, part: known.get(id(part)))
    met = relation.rows.where(values.truth(node, "this condition"))
    return met.select(*types(rows.rows))


def attached(
    queries: Queries, rows: Relation, nodes: Iterable[exp.Expr], env: Env, done: Container[int] = ()
) -> tuple[Relation, dict[int, Value]]:
    """The rows with one more column for each subquery, and the value of each, by the identity of its part.

    Those in ``done`` are computed already.
    """
    known: dict[int, Value] = {}
    for number, node in enumerate(part for part in subqueries_in(nodes) if id(part) not in done):
        name = f"subquery {number}"
        while name in rows.types:
            name += "+"
        inner = unwrapped(node)
        member = membership(inner)
        if isinstance(inner, exp.Exists):
            body = body_of(queries, rows, inner.this, env)
            there = paired(rows.rows, body.rows, body.pairs, "semi")
            parts = [(there, pl.lit(True)), (rows.rows.concat(there.negate()), pl.lit(False))]
            result, value = _labelled(parts, name), Value(pl.col(name), BOOL, node)
        elif member is not None:
            subjects, query, outside = member
            sides = split(queries, rows, subjects, query, env, node=inner, only=False)
            truths = [pl.lit(not outside), pl.lit(outside), null(BOOL)]
            result, value = _labelled(list(zip(sides, truths, strict=True)), name), Value(pl.col(name), BOOL, node)
        elif isinstance(inner, exp.Select | exp.SetOperation | exp.Subquery):
            result, value = scalar(queries, rows, inner, env, name)
        else:
            result, value = _quantified(queries, rows, inner, env, name)
        rows = Relation(result, rows.columns, rows.carried)
        known[id(node)] = known[id(inner)] = value
    return rows, known


def _quantified(queries: Queries, around: Relation, node: exp.Expr, env: Env, name: str) -> tuple[Any, Value]:
    """``x < ANY (query)`` and the like: null where it depends on a null. ``x < ALL`` is no ``x >= ANY``."""
    source, quantifier = queries.source, node.args.get("expression")
    kind, whole = type(node), isinstance(quantifier, exp.All)
    if kind not in HOLDS or quantifier is None:
        source.refuse(node, "this comparison with a subquery", "= <> < > <= >= with ANY and ALL, IN and EXISTS are")
    if whole:
        kind = HOLDS[kind][1]
    if isinstance(node.this, exp.Tuple) or subqueries_in([node.this]):
        source.refuse(
            node, "several values, or a subquery, on the left side of ANY and ALL", "compute it in a view before"
        )
    body = body_of(queries, around, quantifier.this, env)
    if len(body.results) != 1:
        raise source.error(node, f"one value is compared with {len(body.results)} columns", "select one column")
    (left, right), dtype = aligned(
        source, [Values(source, around.columns, around.types).of(node.this), body.results[0]], shown(node)
    )
    if dtype.is_nested:
        source.refuse(node, f"comparing {dtype}")
    keys, pairs = placed(body.pairs, name)
    values = pl.col(name)
    bounds = body.rows.select(**keys, **{name: right}).group_by(*keys).agg(**{
        f"{name} least": aggregates.min(values), f"{name} most": aggregates.max(values),
        f"{name} rows": aggregates.count(), f"{name} nulls": aggregates.count(where=values.is_null()),
    })  # fmt: skip
    joined = paired(around.rows, bounds, pairs, "left")
    least, most, rows, nulls = (pl.col(f"{name} {part}") for part in ("least", "most", "rows", "nulls"))
    met = HOLDS[kind][0](left, least, most)
    found = pl.when(rows.is_null()).then(False).when(met).then(True).when(left.is_not_null() & (nulls == 0)).then(False)
    truth = ~found if whole else found
    return joined.select(*types(around.rows), **{name: truth}), Value(pl.col(name), BOOL, node)


def _labelled(parts: Sequence[tuple[Any, pl.Expr]], name: str) -> Any:
    first, *others = [part.with_columns(**{name: label}) for part, label in parts]
    return first.concat(*others)
