"""A subquery as a value: its one row for each row around, null where it has none, an error where it has several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.errors import ExpressionError
from ddcore.base.source_line import planning
from ddcore.expressions.formulas import failing
from ddcore.operators import aggregates
from ddcore.sql import aggregation, grouping
from ddcore.sql.correlation import body_of, direct, keyed, plain
from ddcore.sql.env import Env, Queries
from ddcore.sql.names import Relation, types
from ddcore.sql.pairs import paired, placed
from ddcore.sql.source import shown
from ddcore.sql.values import Value, Values


def scalar(queries: Queries, around: Relation, query: exp.Expr, env: Env, name: str) -> tuple[Any, Value]:
    """The rows with the one value of a subquery for each; null where it has none."""
    if isinstance(query, exp.Select) and len(query.expressions) != 1:
        raise queries.source.error(query, f"a value has one column: {shown(query)}", "select one column")
    equalities = direct(queries, query, env)
    if equalities is not None and grouping.aggregates_in(query):
        assert isinstance(query, exp.Select)
        return _direct_aggregate(queries, around, query, equalities, env, name=name)
    body = body_of(queries, around, query, env)
    if len(body.results) != 1:
        raise queries.source.error(query, f"a value has one column: {shown(query)}", "select one column")
    kind = body.results[0].type
    assert kind is not None
    keys, pairs = placed(body.pairs, name)
    rows = body.rows.select(**keys, **{name: body.results[0].expr})
    always = isinstance(query, exp.Select) and grouping.is_global(query)
    if not always and not _is_first(query):
        labels = {key: _label(around, left) for key, (left, _, _) in zip(keys, pairs, strict=True)}
        if body.every:  # several rows matter only where there is a row around
            rows = paired(rows, around.rows, [(right, left, safe) for left, right, safe in pairs], "semi")
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

    source_line: str
    query: str
    labels: Mapping[str, str]

    def __call__(self, values: Mapping[str, str]) -> ExpressionError:
        keys = ", ".join(f"{label}={values[key]}" for key, label in self.labels.items())
        return ExpressionError(
            f"{self.source_line}: this subquery gives {values['rows']} rows{f' for {keys}' if keys else ''},"
            f" where one value is wanted: {self.query}",
            "use an aggregate such as max(...), or a condition or LIMIT 1 that leaves one row",
        )


def _label(around: Relation, key: pl.Expr) -> str:
    """What the query around calls the column of a key."""
    name = key.meta.root_names()[0]
    column = next(named for named in around.columns if named.key == name)
    return f"{column.table}.{column.name}" if column.table else column.name


def _single(queries: Queries, query: exp.Expr, rows: Any, labels: Mapping[str, str], name: str) -> Any:
    """The one row for each key: a second one is an error of the run."""
    kind = types(rows)[name]
    if kind.is_nested:
        queries.source.refuse(query, f"a subquery as a value of type {kind}")
    source_line = queries.source.where(query)
    with planning(source_line), failing(_Several(source_line, shown(query), labels)):
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
    equalities: Sequence[tuple[exp.Column, exp.Expr, exp.Expr]],
    env: Env,
    *,
    name: str,
) -> tuple[Any, Value]:
    """An aggregate of the rows that equal the row around in some columns."""
    relation, equal, _ = keyed(queries, around, query, equalities, env)
    keys, pairs = placed(equal, name)
    part = plain(query.expressions[0])
    computed = aggregation.computed(queries, relation, grouping.aggregates_in(query), keys, prefix=f"{name} ")
    joined = computed.filled(paired(around.rows, computed.rows, pairs, "left"))
    values = Values(queries.source, around.columns, types(joined), lambda _, inner: computed.known(inner))
    value = values.of(part)
    kind = value.type
    if kind is None:
        queries.source.refuse(query, "a value that is always NULL")
    return joined.select(*types(around.rows), **{name: value.expr}), Value(pl.col(name), kind, query)
