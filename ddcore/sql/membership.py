"""IN, = ANY and <> ALL: the rows around that are among the rows of a subquery, those that are not, and those for which
nulls leave it open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.sql.correlation import Body, body_of, subqueries_in
from ddcore.sql.env import Env, Queries
from ddcore.sql.names import Relation
from ddcore.sql.pairs import Pair, paired
from ddcore.sql.source import shown
from ddcore.sql.values import Values, aligned


def membership(node: exp.Expr) -> tuple[list[exp.Expr], exp.Expr, bool] | None:
    """What is looked for in which subquery, and whether it must not be there."""
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        left, query, outside = node.this, node.args["query"], False
    elif isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
        left, query, outside = node.this, node.expression.this, False
    elif isinstance(node, exp.NEQ) and isinstance(node.expression, exp.All):
        left, query, outside = node.this, node.expression.this, True
    else:
        return None
    subjects = left.expressions if isinstance(left, exp.Tuple) else [left]
    return list(subjects), query, outside


def split(
    queries: Queries,
    rows: Relation,
    subjects: Sequence[exp.Expr],
    query: exp.Expr,
    env: Env,
    *,
    node: exp.Expr,
    only: bool,
) -> tuple[Any, Any, Any]:
    """The rows for which membership is true, false and null. ``only``: the first suffices, the others are None."""
    source = queries.source
    if subqueries_in(subjects):
        source.refuse(node, "a subquery on the left side of IN", "compute it in a view before")
    body = body_of(queries, rows, query, env)
    if len(body.results) != len(subjects):
        raise source.error(
            node, f"{len(subjects)} values are looked for among {len(body.results)} columns: {shown(node)}",
            "name as many columns in the subquery",
        )  # fmt: skip
    outside = Values(source, rows.columns, rows.types)
    wanted: list[Pair] = []
    for subject, result in zip(subjects, body.results, strict=True):
        (left, right), _ = aligned(source, [outside.of(subject), result], shown(node))
        wanted.append((left, right, False))
    inside = paired(rows.rows, body.rows, [*body.pairs, *wanted], "semi")
    if only:
        return inside, None, None
    if len(wanted) > 1:
        return _split_rows(queries, rows, body, wanted, inside, node=node)
    (left, right, _) = wanted[0]
    rest = rows.rows.concat(inside.negate())
    nulls = body.rows.where(right.is_null())
    unknown = paired(rest, nulls, body.pairs, "semi")
    rest = rest.concat(unknown.negate())
    without = rest.where(left.is_null())
    maybe = paired(without, body.rows, body.pairs, "semi")
    return inside, rest.concat(maybe.negate()), unknown.concat(maybe)


_MOST = 4
"""The most columns of IN and NOT IN where nulls count: there are two to that power of patterns of nulls."""


def _split_rows(
    queries: Queries, rows: Relation, body: Body, wanted: Sequence[Pair], inside: Any, *, node: exp.Expr
) -> tuple[Any, Any, Any]:
    """As :func:`split`, for several values: a row may be equal to one where these differ in no value that both have.

    Each side is copied for each pattern of nulls that the other may have, with nulls in these places: two rows may be
    equal if they have equal copies with both patterns.
    """
    if len(wanted) > _MOST:
        queries.source.refuse(
            node, f"IN of more than {_MOST} columns in an OR, a NOT or a value", "use EXISTS or NOT EXISTS"
        )
    keys = [f"value {number}" for number in range(len(wanted))]
    around = [f"around {number}" for number in range(len(body.pairs))]

    def copies(side: Any, values: Sequence[pl.Expr], others: Sequence[pl.Expr], names: tuple[str, str]) -> Any:
        base = side.select(**dict(zip(keys, values, strict=True)), **dict(zip(around, others, strict=True))).distinct()
        own = sum(
            (pl.when(pl.col(key).is_null()).then(1 << position).otherwise(0) for position, key in enumerate(keys)),
            start=pl.lit(0, dtype=pl.Int64),
        )
        first, *more = [
            base.select(
                *around,
                **{f"{key} itself": pl.col(key) for key in keys},
                **{
                    key: pl.when(pl.lit(not pattern >> position & 1)).then(pl.col(key))
                    for position, key in enumerate(keys)
                },
                **{names[0]: own, names[1]: pl.lit(pattern, dtype=pl.Int64)},
            )
            for pattern in range(1 << len(keys))
        ]
        return first.concat(*more)

    left = copies(rows.rows, [pair[0] for pair in wanted], [pair[0] for pair in body.pairs], ("left", "right"))
    right = copies(body.rows, [pair[1] for pair in wanted], [pair[1] for pair in body.pairs], ("right", "left"))
    safe = [(pl.col(name), pl.col(name), True) for name in (*keys, "left", "right")]
    safe += [(pl.col(name), pl.col(name), pair[2]) for name, pair in zip(around, body.pairs, strict=True)]
    maybe = paired(left, right, safe, "semi").select(*around, *(f"{key} itself" for key in keys)).distinct()
    found = [(pair[0], pl.col(f"{key} itself"), True) for key, pair in zip(keys, wanted, strict=True)]
    found += [(pair[0], pl.col(name), pair[2]) for name, pair in zip(around, body.pairs, strict=True)]
    rest = rows.rows.concat(inside.negate())
    unknown = paired(rest, maybe, found, "semi")
    return inside, rest.concat(unknown.negate()), unknown
