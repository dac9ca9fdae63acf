"""Subqueries in conditions and values: joins with what they give for each row around them.

A subquery that names columns of the query around is planned over the distinct values of these columns, as one more
table of its FROM, and joined with the rows around by them. Where it names them in equalities only, what they are
compared with is the key, and the values are not needed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.errors import ExpressionError
from ddcore.base.source_line import planning
from ddcore.expressions.expressions import failing
from ddcore.operators import aggregates
from ddcore.sql import grouping
from ddcore.sql.arrays import HOLDS
from ddcore.sql.env import Env, Outer, Queries
from ddcore.sql.names import Column, Known, Relation, _names, free, resolve, types, unwrapped
from ddcore.sql.pairs import Pair, conjuncts, paired, placed
from ddcore.sql.source import parts, shown
from ddcore.sql.values import BOOL, Value, Values, aligned, null

__all__ = ["attached", "correlated", "filtered", "names_in", "subqueries_in"]


@dataclass(frozen=True)
class Correlation:
    """How a subquery's rows belong to the rows around: pairs of keys, and the values to plan it over."""

    outer: Outer | None
    pairs: list[Pair]


def names_in(node: exp.Expr, known: Known) -> list[exp.Column]:
    """The columns that a condition names, of its subqueries only those of the query around."""
    return list(_names(node, known))


def subqueries_in(nodes: Iterable[exp.Expr]) -> list[exp.Expr]:
    """The parts that hold a subquery, outermost first: EXISTS, IN, ANY, ALL and values."""

    def inside(node: exp.Expr) -> Iterable[exp.Expr]:
        return () if _holds_subquery(node) else node.iter_expressions()

    return [node for node in parts(nodes, inside) if _holds_subquery(node)]


def _holds_subquery(node: exp.Expr) -> bool:
    return (
        isinstance(node, exp.Exists | exp.Subquery | exp.Select | exp.SetOperation)
        or (isinstance(node, exp.In) and node.args.get("query") is not None)
        or (
            isinstance(node, exp.Binary)
            and isinstance(node.expression, exp.Any | exp.All)
            and isinstance(unwrapped(node.expression.this), exp.Query)
        )
    )


def correlated(queries: Queries, around: Relation, query: exp.Expr, env: Env) -> Correlation:
    """The columns of ``around`` that a subquery names, as one more table for it."""
    references = list(free(query, queries.known(env)))
    if not references:
        return Correlation(None, [])
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
    return Correlation(Outer(values, tuple(columns.values())), pairs)


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


def _body(queries: Queries, around: Relation, query: exp.Expr, env: Env) -> Body:
    """The rows of a subquery for the rows around, with its columns."""
    query = unwrapped(query)
    direct = _direct(queries, query, env)
    if direct is not None and not grouping.aggregates_in(query):
        assert isinstance(query, exp.Select)
        relation, pairs, values = _keyed(queries, around, query, direct, env)
        results = [values.of(_plain(each)) for each in queries.expanded(query, relation)]
        return Body(relation.rows, pairs, results, every=True)
    correlation = correlated(queries, around, query, env)
    relation = queries.query(query, env.inside(correlation.outer))
    kinds = relation.types
    results = [Value(pl.col(each.key), kinds[each.key], query) for each in relation.own]
    return Body(relation.rows, correlation.pairs, results, every=not correlation.pairs)


def _plain(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias) else node


def _keyed(
    queries: Queries,
    around: Relation,
    query: exp.Select,
    direct: Sequence[tuple[exp.Column, exp.Expr, exp.Expr]],
    env: Env,
) -> tuple[Relation, list[Pair], Values]:
    """A subquery without the equalities that correlate it, and the pairs of keys that they are."""
    relation = queries.from_where(query, env.alone, [node for _, _, node in direct])
    values = Values(queries.source, relation.columns, relation.types)
    outside = Values(queries.source, around.columns, around.types)
    pairs: list[Pair] = []
    for reference, inner, node in direct:
        (mine, theirs), _ = aligned(queries.source, [outside.of(reference), values.of(inner)], shown(node))
        pairs.append((mine, theirs, False))
    return relation, pairs, values


def _direct(queries: Queries, query: exp.Expr, env: Env) -> list[tuple[exp.Column, exp.Expr, exp.Expr]] | None:
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
        if not isinstance(node, exp.EQ) or subqueries_in([node]):
            continue
        for reference, inner in ((node.left, node.right), (node.right, node.left)):
            if id(reference) in references and not any(id(each) in references for each in inner.find_all(exp.Column)):
                if not list(inner.find_all(exp.Column)):
                    continue
                found.append((references[id(reference)], inner, node))
                del references[id(reference)]
                break
    return None if references else found


# -- conditions -------------------------------------------------------------------------------------------------------


def filtered(queries: Queries, rows: Relation, node: exp.Expr, env: Env) -> Any:
    """The rows for which a condition with subqueries is true."""
    negated, inner = False, node
    while isinstance(inner, exp.Not | exp.Paren):
        negated ^= isinstance(inner, exp.Not)
        inner = inner.this
    if isinstance(inner, exp.Exists):
        body = _body(queries, rows, inner.this, env)
        return paired(rows.rows, body.rows, body.pairs, "anti" if negated else "semi")
    member = _membership(inner)
    if member is not None:
        subjects, query, outside = member
        split = _split(queries, rows, subjects, query, env, node=inner, only=not (negated ^ outside))
        return split[0] if not (negated ^ outside) else split[1]
    relation, known = attached(queries, rows, [node], env)
    values = Values(queries.source, relation.columns, relation.types, lambda _, part: known.get(id(part)))
    met = relation.rows.where(values.truth(node, "this condition"))
    return met.select(*types(rows.rows))


def _membership(node: exp.Expr) -> tuple[list[exp.Expr], exp.Expr, bool] | None:
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


def _split(
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
    body = _body(queries, rows, query, env)
    if len(body.results) != len(subjects):
        raise source.error(
            node, f"{len(subjects)} values are looked for among {len(body.results)} columns: {shown(node)}",
            "name as many columns in the subquery",
        )  # fmt: skip
    outside = Values(source, rows.columns, rows.types)
    wanted: list[Pair] = []
    for subject, result in zip(subjects, body.results, strict=True):
        (mine, theirs), _ = aligned(source, [outside.of(subject), result], shown(node))
        wanted.append((mine, theirs, False))
    inside = paired(rows.rows, body.rows, [*body.pairs, *wanted], "semi")
    if only:
        return inside, None, None
    if len(wanted) > 1:
        return _split_rows(queries, rows, body, wanted, inside, node=node)
    (mine, theirs, _) = wanted[0]
    rest = rows.rows.concat(inside.negate())
    nulls = body.rows.where(theirs.is_null())
    unknown = paired(rest, nulls, body.pairs, "semi")
    rest = rest.concat(unknown.negate())
    without = rest.where(mine.is_null())
    maybe = paired(without, body.rows, body.pairs, "semi")
    return inside, rest.concat(maybe.negate()), unknown.concat(maybe)


_MOST = 4
"""The most columns of IN and NOT IN where nulls count: there are two to that power of patterns of nulls."""


def _split_rows(
    queries: Queries, rows: Relation, body: Body, wanted: Sequence[Pair], inside: Any, *, node: exp.Expr
) -> tuple[Any, Any, Any]:
    """As :func:`_split`, for several values: a row may be equal to one where these differ in no value that both have.

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
            (pl.when(pl.col(key).is_null()).then(1 << place).otherwise(0) for place, key in enumerate(keys)),
            start=pl.lit(0, dtype=pl.Int64),
        )
        first, *more = [
            base.select(
                *around,
                **{f"{key} itself": pl.col(key) for key in keys},
                **{key: pl.when(pl.lit(not pattern >> place & 1)).then(pl.col(key)) for place, key in enumerate(keys)},
                **{names[0]: own, names[1]: pl.lit(pattern, dtype=pl.Int64)},
            )
            for pattern in range(1 << len(keys))
        ]
        return first.concat(*more)

    mine = copies(rows.rows, [pair[0] for pair in wanted], [pair[0] for pair in body.pairs], ("mine", "theirs"))
    theirs = copies(body.rows, [pair[1] for pair in wanted], [pair[1] for pair in body.pairs], ("theirs", "mine"))
    safe = [(pl.col(name), pl.col(name), True) for name in (*keys, "mine", "theirs")]
    safe += [(pl.col(name), pl.col(name), pair[2]) for name, pair in zip(around, body.pairs, strict=True)]
    maybe = paired(mine, theirs, safe, "semi").select(*around, *(f"{key} itself" for key in keys)).distinct()
    found = [(pair[0], pl.col(f"{key} itself"), True) for key, pair in zip(keys, wanted, strict=True)]
    found += [(pair[0], pl.col(name), pair[2]) for name, pair in zip(around, body.pairs, strict=True)]
    rest = rows.rows.concat(inside.negate())
    unknown = paired(rest, maybe, found, "semi")
    return inside, rest.concat(unknown.negate()), unknown


# -- values -----------------------------------------------------------------------------------------------------------


def attached(
    queries: Queries, rows: Relation, nodes: Iterable[exp.Expr], env: Env, done: Container[int] = ()
) -> tuple[Relation, dict[int, Value]]:
    """The rows with one more column for each subquery, and the value of each, by the identity of its part.

    Those in ``done`` are computed already.
    """
    known: dict[int, Value] = {}
    for number, node in enumerate(each for each in subqueries_in(nodes) if id(each) not in done):
        name = f"subquery {number}"
        while name in rows.types:
            name += "+"
        inner = unwrapped(node)
        member = _membership(inner)
        if isinstance(inner, exp.Exists):
            body = _body(queries, rows, inner.this, env)
            there = paired(rows.rows, body.rows, body.pairs, "semi")
            parts = [(there, pl.lit(True)), (rows.rows.concat(there.negate()), pl.lit(False))]
            value = Value(pl.col(name), BOOL, node)
            result = _labelled(parts, name)
        elif member is not None:
            subjects, query, outside = member
            split = _split(queries, rows, subjects, query, env, node=inner, only=False)
            truths = [pl.lit(not outside), pl.lit(outside), null(BOOL)]
            result = _labelled(list(zip(split, truths, strict=True)), name)
            value = Value(pl.col(name), BOOL, node)
        elif isinstance(inner, exp.Select | exp.SetOperation | exp.Subquery):
            result, value = _scalar(queries, rows, inner, env, name)
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
    body = _body(queries, around, quantifier.this, env)
    if len(body.results) != 1:
        raise source.error(node, f"one value is compared with {len(body.results)} columns", "select one column")
    (mine, theirs), dtype = aligned(
        source, [Values(source, around.columns, around.types).of(node.this), body.results[0]], shown(node)
    )
    if dtype.is_nested:
        source.refuse(node, f"comparing {dtype}")
    keys, pairs = placed(body.pairs, name)
    values = pl.col(name)
    bounds = body.rows.select(**keys, **{name: theirs}).group_by(*keys).agg(**{
        f"{name} least": aggregates.min(values), f"{name} most": aggregates.max(values),
        f"{name} rows": aggregates.count(), f"{name} nulls": aggregates.count(where=values.is_null()),
    })  # fmt: skip
    joined = paired(around.rows, bounds, pairs, "left")
    least, most, rows, nulls = (pl.col(f"{name} {part}") for part in ("least", "most", "rows", "nulls"))
    met = HOLDS[kind][0](mine, least, most)
    found = pl.when(rows.is_null()).then(False).when(met).then(True).when(mine.is_not_null() & (nulls == 0)).then(False)
    truth = ~found if whole else found
    return joined.select(*types(around.rows), **{name: truth}), Value(pl.col(name), BOOL, node)


def _labelled(parts: Sequence[tuple[Any, pl.Expr]], name: str) -> Any:
    first, *others = [part.with_columns(**{name: label}) for part, label in parts]
    return first.concat(*others)


def _scalar(queries: Queries, around: Relation, query: exp.Expr, env: Env, name: str) -> tuple[Any, Value]:
    """The rows with the one value of a subquery for each; null where it has none."""
    if isinstance(query, exp.Select) and len(query.expressions) != 1:
        raise queries.source.error(query, f"a value has one column: {shown(query)}", "select one column")
    direct = _direct(queries, query, env)
    if direct is not None and grouping.aggregates_in(query):
        assert isinstance(query, exp.Select)
        return _direct_aggregate(queries, around, query, direct, env, name=name)
    body = _body(queries, around, query, env)
    if len(body.results) != 1:
        raise queries.source.error(query, f"a value has one column: {shown(query)}", "select one column")
    kind = body.results[0].type
    assert kind is not None
    keys, pairs = placed(body.pairs, name)
    rows = body.rows.select(**keys, **{name: body.results[0].expr})
    always = isinstance(query, exp.Select) and grouping.is_global(query)
    if not always and not _is_first(query):
        labels = {key: _label(around, mine) for key, (mine, _, _) in zip(keys, pairs, strict=True)}
        if body.every:  # several rows matter only where there is a row around
            rows = paired(rows, around.rows, [(theirs, mine, safe) for mine, theirs, safe in pairs], "semi")
        rows = _single(queries, query, rows, labels, name)
    how = "inner" if always and not body.pairs else "left"
    joined = paired(around.rows, rows, pairs, how)
    return joined.select(*types(around.rows), name), Value(pl.col(name), kind, query)


def _is_first(query: exp.Expr) -> bool:
    limit = query.args.get("limit")
    return isinstance(limit, exp.Limit) and limit.expression.name == "1"


@dataclass(frozen=True)
class _Several:
    """The error of a subquery with several rows for some row around it; ``labels`` are the names of its keys."""

    place: str
    query: str
    labels: Mapping[str, str]

    def __call__(self, values: Mapping[str, str]) -> ExpressionError:
        keys = ", ".join(f"{label}={values[key]}" for key, label in self.labels.items())
        return ExpressionError(
            f"{self.place}: this subquery gives {values['rows']} rows{f' for {keys}' if keys else ''}, where one value"
            f" is wanted: {self.query}",
            "use an aggregate such as max(...), or a condition or LIMIT 1 that leaves one row",
        )


def _label(around: Relation, key: pl.Expr) -> str:
    """What the query around calls the column of a key."""
    name = key.meta.root_names()[0]
    column = next(each for each in around.columns if each.key == name)
    return f"{column.table}.{column.name}" if column.table else column.name


def _single(queries: Queries, query: exp.Expr, rows: Any, labels: Mapping[str, str], name: str) -> Any:
    """The one row for each key: a second one is an error of the run."""
    kind = types(rows)[name]
    if kind.is_nested:
        queries.source.refuse(query, f"a subquery as a value of type {kind}")
    place = queries.source.place(query)
    with planning(place), failing(_Several(place, shown(query), labels)):
        grouped = rows.group_by(*labels).agg(**{name: aggregates.min(pl.col(name)), "rows": aggregates.count()})
        several = pl.col("rows") > 1
        for key in labels:  # the error shows the values of the columns that the expression reads
            several &= pl.col(key).is_null() | pl.col(key).is_not_null()
        number = (pl.lit("several rows: ") + pl.col("rows").cast(pl.String)).cast(pl.Int64)
        checked = grouped.with_columns(rows=pl.when(several).then(number).otherwise(pl.col("rows")))
        return checked.where(pl.col("rows") == 1).select(*labels, name)


def _direct_aggregate(
    queries: Queries,
    around: Relation,
    query: exp.Select,
    direct: Sequence[tuple[exp.Column, exp.Expr, exp.Expr]],
    env: Env,
    *,
    name: str,
) -> tuple[Any, Value]:
    """An aggregate of the rows that equal the row around in some columns."""
    relation, equal, _ = _keyed(queries, around, query, direct, env)
    keys, pairs = placed(equal, name)
    part = _plain(query.expressions[0])
    computed = grouping.computed(queries, relation, grouping.aggregates_in(query), keys, prefix=f"{name} ")
    joined = computed.filled(paired(around.rows, computed.rows, pairs, "left"))
    values = Values(queries.source, around.columns, types(joined), lambda _, each: computed.known(each))
    value = values.of(part)
    kind = value.type
    if kind is None:
        queries.source.refuse(query, "a value that is always NULL")
    return joined.select(*types(around.rows), **{name: value.expr}), Value(pl.col(name), kind, query)
