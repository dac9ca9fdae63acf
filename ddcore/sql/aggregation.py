"""Aggregates: what each needs of the rows of its group, and its value; equal ones are computed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type, widest
from ddcore.expressions.canonical import canonical
from ddcore.operators import aggregates
from ddcore.sql import gathered, quotients
from ddcore.sql.dialects import SPARKS
from ddcore.sql.names import Relation, types
from ddcore.sql.pairs import paired
from ddcore.sql.source import DIALECT, called, parts, shown
from ddcore.sql.values import Value, Values, is_plain, null

if TYPE_CHECKING:
    from ddcore.sql.env import Queries

_GROUPING = exp.Grouping, exp.GroupingId
PLAIN = exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalOr, exp.LogicalAnd, exp.AnyValue
_OF_PAIRS = exp.RegrCount, exp.RegrAvgx, exp.RegrAvgy
AGGREGATES: tuple[type[exp.Expr], ...] = (*PLAIN, *_OF_PAIRS, *gathered.KINDS)
_AGGREGATE = exp.Filter | exp.AggFunc | exp.WithinGroup
Made = tuple[pl.Expr, Type | None]
"""The value of an aggregate over the columns of groups, and its type."""


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a part is an aggregate, with its FILTER."""
    return isinstance(node, _AGGREGATE) and not isinstance(node, _GROUPING)


def is_grouping(node: exp.Expr) -> bool:
    """Whether a part is ``grouping(...)``, which says what a set of keys leaves out."""
    return isinstance(node, _GROUPING)


def text_of(node: exp.Expr) -> str:
    """The text of an aggregate, with what its value depends on beside: equal ones are computed once."""
    inner = node.this if isinstance(node, exp.Filter) else node
    kind = quotients.digits_around(node) if isinstance(inner, exp.Avg) else None
    return f"{node.sql()} {bool(inner.args.get('nulls_excluded'))} {kind.sql() if kind else ''}"


@dataclass(frozen=True)
class Computed:
    """Aggregates: the collection of keys and results, and the value of each aggregate by its text."""

    rows: Any
    values: Mapping[str, Value]
    counts: Sequence[str]

    def known(self, node: exp.Expr) -> Value | None:
        """The value of an aggregate, if this part is one."""
        value = self.values.get(text_of(node)) if isinstance(node, _AGGREGATE) else None
        return value and replace(value, node=node)

    def filled(self, rows: Any) -> Any:
        """The rows with 0 for counts that are null, because the group has no rows."""
        if not self.counts:
            return rows
        return rows.with_columns(**{name: pl.col(name).fill_null(pl.lit(0, dtype=pl.Int64)) for name in self.counts})


def computed(
    queries: Queries,
    relation: Relation,
    nodes: Iterable[exp.Expr],
    keys: Mapping[str, pl.Expr],
    *,
    prefix: str = "",
    values: Values | None = None,
    nested: bool = False,
) -> Computed:
    """The aggregates of the groups of some rows, without a row where there is none.

    ``nested``: their arguments may be aggregates, of which ``values`` knows the values.
    """
    values = values or Values(queries.source, relation.columns, relation.types)
    made = Aggregates(values, prefix, nested=nested)
    for node in nodes:
        made.add(node)
    columns = list(keys)
    rows = relation.rows
    needed = {name: expr for name, expr in keys.items() if is_plain(expr) != name}
    if needed:
        rows = rows.with_columns(**needed)
    if not columns and not made.aggregates:
        made.aggregates[f"{prefix}rows"] = aggregates.count()
    base = rows
    rows = rows.group_by(*columns).agg(**made.aggregates) if made.aggregates else rows.select(*columns).distinct()
    for number, distinct in enumerate(made.distinct.values()):
        rows = _with_distinct(base, rows, columns, distinct, f"{prefix}distinct {number}")
    return Computed(rows, made.known, [name for name in made.aggregates if name in made.counts])


@dataclass(frozen=True)
class _Distinct:
    """Aggregates of the distinct values of an argument: the column ``value`` is the argument."""

    argument: pl.Expr
    aggregates: dict[str, Any]


def _with_distinct(base: Any, rows: Any, keys: Sequence[str], distinct: _Distinct, name: str) -> Any:
    """Groups with aggregates of distinct values, null where a group has no value."""
    values = base.select(*keys, value=distinct.argument).where(pl.col("value").is_not_null()).distinct()
    own = {key: f"{name} key {number}" for number, key in enumerate(keys)}
    found = values.group_by(*keys).agg(**distinct.aggregates).rename(own)
    pairs = [(pl.col(key), pl.col(other), True) for key, other in own.items()]
    return paired(rows, found, pairs, "left").select(*types(rows), *distinct.aggregates)


def aggregates_of(values: Values, node: exp.Expr, prefix: str) -> Aggregates:
    """What one aggregate of rows in an order needs. Its arguments may be aggregates, of which ``values`` knows the
    values.
    """
    made = Aggregates(values, prefix, nested=True, framed=True)
    made.add(node)
    return made


_OF_WINDOWS = (
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.PercentRank, exp.CumeDist, exp.Lag, exp.Lead,
    exp.FirstValue, exp.LastValue, exp.NthValue,
)  # fmt: skip


class Aggregates:
    """The aggregates under way: equal ones are computed once. ``framed``: of rows in an order."""

    def __init__(self, values: Values, prefix: str, *, nested: bool, framed: bool = False) -> None:
        self.values, self.prefix, self.nested, self.framed = values, prefix, nested, framed
        self.aggregates: dict[str, Any] = {}
        self.distinct: dict[str, _Distinct] = {}
        self.counts: set[str] = set()
        self.known: dict[str, Value] = {}
        self._names: dict[str, str] = {}

    def add(self, node: exp.Expr) -> None:
        """One aggregate of the query."""
        text = text_of(node)
        if text in self.known:
            return
        source = self.values.source
        inner, where = node, None
        if isinstance(node, exp.Filter):
            inner = node.this
            where = self.values.truth(node.expression.this, "FILTER")
        if not isinstance(inner, AGGREGATES):
            of_windows = isinstance(inner, _OF_WINDOWS)
            hint = (
                f"it has OVER: {called(inner)}() OVER (ORDER BY x)"
                if of_windows
                else "docs/sql.md lists those that are"
            )
            source.refuse(node, f"{'' if of_windows else 'the aggregate '}{called(inner)}", hint)
        if not isinstance(inner, gathered.KINDS):
            self.values.require_arguments(inner, type(inner))
        if not self.nested and is_nested(inner.this if isinstance(inner, exp.WithinGroup) else inner):
            raise source.error(inner, f"an aggregate of an aggregate: {shown(inner)}", "compute the inner one first")
        self.known[text] = Value(*self._result(inner, where), node)

    def _result(self, node: exp.Expr, where: pl.Expr | None) -> Made:
        one = gathered.of_one(node)
        if isinstance(node, gathered.KINDS) and (one is None or not isinstance(node.this, exp.Distinct)):
            found = gathered.found(self.values, node, where, framed=self.framed)
            return found.after(self._column(found.text, found.aggregate)), found.type
        if isinstance(node, _OF_PAIRS):
            return self._of_pairs(node, where)
        return self._of_values(node, one, where)

    def _of_values(self, node: exp.Expr, one: Any, where: pl.Expr | None) -> Made:
        """An aggregate whose argument may be DISTINCT: ``one`` is the statistic that it then is."""
        argument, distinct = node.this, False
        if isinstance(argument, exp.Distinct):
            distinct = True
            if len(argument.expressions) != 1:
                several = ", ".join(map(shown, argument.expressions))
                self.values.source.refuse(
                    node, f"{called(node)} of several distinct columns", f"write {called(node)}(DISTINCT ({several}))"
                )
            argument = argument.expressions[0]
        if isinstance(node, exp.Count):
            return self._count(node, argument, distinct, where)
        if isinstance(argument, exp.Order | exp.Limit | exp.HavingMax | exp.IgnoreNulls):
            self.values.source.refuse(node, "an aggregate in an order")
        value = self.values.of(argument)
        if isinstance(node, exp.LogicalOr | exp.LogicalAnd):
            kind = aggregates.any if isinstance(node, exp.LogicalOr) else aggregates.all
            return self._plain(kind, self.values.require(value, "bool"), where)
        if isinstance(node, exp.Min | exp.Max | exp.AnyValue):
            if value.type is None or value.type.is_nested:
                self.values.source.refuse(node, f"{called(node)} of {value.name}")
            return self._plain(aggregates.max if isinstance(node, exp.Max) else aggregates.min, value, where)
        value = self.values.number(value)
        mean = self._decimal_mean_type(node, value)
        if mean is not None:
            return self._decimal_mean(value, mean, where, distinct=distinct)
        if distinct:
            make = one or (aggregates.mean if isinstance(node, exp.Avg) else aggregates.sum)
            return self._of_distinct(called(node), make, value, where)
        return self._plain(aggregates.mean, value, where) if isinstance(node, exp.Avg) else self._sum(value, where)

    def _column(self, text: str, aggregate: Any) -> pl.Expr:
        """The column of an aggregate: that of an equal one, which has the same text, if there is one."""
        name = self._names.setdefault(text, f"{self.prefix}aggregate {len(self._names)}")
        self.aggregates[name] = aggregate
        return pl.col(name)

    def _of_pairs(self, node: exp.Expr, where: pl.Expr | None) -> Made:
        """Of the rows in which neither value is null, how many there are, or the mean of one."""
        y, x = (self.values.number(self.values.of(part)) for part in (node.this, node.expression))
        both = _both(y.expr.is_not_null() & x.expr.is_not_null(), where)
        if isinstance(node, exp.RegrCount):
            return self._plain(aggregates.count, None, both)
        return self._plain(aggregates.mean, y if isinstance(node, exp.RegrAvgy) else x, both)

    def _of_distinct(self, what: str, make: Any, value: Value, where: pl.Expr | None) -> Made:
        """An aggregate of the distinct values, null where there are none."""
        if self.framed:
            return self._of_distinct_in_frame(what, make, value, where)
        kind = value.type
        assert kind is not None
        argument = value.expr if where is None else pl.when(where).then(value.expr)
        if kind.name == "decimal":
            argument = argument.cast(kind.polars)  # choosing widens decimals
        part = self.distinct.setdefault(canonical(argument), _Distinct(argument, {}))
        name = self._names.setdefault(
            f"distinct {what} {canonical(argument)}", f"{self.prefix}aggregate {len(self._names)}"
        )
        part.aggregates[name] = make("value")
        return pl.col(name), widest(kind) if make is aggregates.sum else Type("float64")

    def _of_distinct_in_frame(self, what: str, make: Any, value: Value, where: pl.Expr | None) -> Made:
        """An aggregate of the distinct values of a frame, null where there are none."""
        if what == "count":
            return self._plain(aggregates.count_distinct, value, where)
        text = f"distinct {what} {canonical(value.expr)} {'' if where is None else canonical(where)}"
        found = self._column(text, replace(make(value.expr, where=where), distinct=True))
        if make is not aggregates.sum or value.type is None:
            return found, Type("float64")
        return self._unless_none(found, value, where)

    def _count(self, node: exp.Expr, argument: exp.Expr, distinct: bool, where: pl.Expr | None) -> Made:
        if isinstance(argument, exp.Star) or (isinstance(argument, exp.Literal) and not distinct):
            return self._plain(aggregates.count, None, where)
        if node.args.get("expressions"):
            self.values.source.refuse(node, "count of several columns")
        if isinstance(argument, exp.Tuple):  # which is a value even where all its parts are null
            if not distinct:
                return self._plain(aggregates.count, None, where)
            parts = [self.values.of(part) for part in argument.expressions]
            value = self.values.typed(_row, parts, node)
        else:
            value = self.values.of(argument)
        if value.type is None:
            self.values.source.refuse(node, "count(NULL)")
        if distinct:
            return self._plain(aggregates.count_distinct, value, where)
        return self._number(value, where), Type("int64")

    def _number(self, value: Value, where: pl.Expr | None) -> pl.Expr:
        """How many values are no nulls."""
        return self._plain(aggregates.count, None, _both(value.expr.is_not_null(), where))[0]

    def _sum(self, value: Value, where: pl.Expr | None) -> Made:
        total, _ = self._plain(aggregates.sum, value, where)
        return self._unless_none(total, value, where)

    def _unless_none(self, total: pl.Expr, value: Value, where: pl.Expr | None) -> Made:
        """A sum, null where no value is there: a sum of no values is 0 here."""
        assert value.type is not None
        wide = widest(value.type)
        return pl.when(self._number(value, where) > 0).then(total).otherwise(null(wide)), wide

    def _decimal_mean_type(self, node: exp.Expr, value: Value) -> Type | None:
        """The type of a mean that is a decimal: of decimals in Spark's, under a cast in PostgreSQL's dialect."""
        source = self.values.source
        if not isinstance(node, exp.Avg) or value.type is None or value.type.name not in ("decimal", "int64"):
            return None
        if source.dialect in SPARKS:
            return quotients.mean_type(self.values, value) if value.type.name == "decimal" else None
        return quotients.mean_type_in_cast(self.values, value, node) if source.dialect == DIALECT else None

    def _decimal_mean(self, value: Value, kind: Type, where: pl.Expr | None, *, distinct: bool) -> Made:
        """The mean of decimals as one: null where no value is there."""
        assert value.type is not None
        if distinct:
            total, _ = self._of_distinct("sum", aggregates.sum, value, where)
            number, _ = self._of_distinct("count", lambda _: aggregates.count(), value, where)
        else:
            total, _ = self._plain(aggregates.sum, value, where)
            number = self._number(value, where)
        return quotients.mean(total, number, value.type.scale, kind), kind

    def _plain(self, make: Any, value: Value | None, where: pl.Expr | None) -> Made:
        arguments = [value.expr] if value is not None else []
        text = " ".join(
            [make.__name__, *(canonical(argument) for argument in [*arguments, *([] if where is None else [where])])]
        )
        found = self._column(f"{text} {value is None} {where is None}", make(*arguments, where=where))
        if make in (aggregates.count, aggregates.count_distinct):
            self.counts.add(found.meta.output_name())
        kinds = {aggregates.count: "int64", aggregates.count_distinct: "int64", aggregates.mean: "float64"}
        return found, Type(kinds[make]) if make in kinds else value.type if value is not None else None


def _row(*parts: pl.Expr) -> pl.Expr:
    """A row of values, as one."""
    names = [f"value {number}" for number in range(len(parts))]
    return pl.struct(*(part.alias(name) for name, part in zip(names, parts, strict=True)))


def is_nested(node: exp.Expr) -> bool:
    """Whether there is an aggregate inside of one, not counting subqueries."""

    def inside(part: exp.Expr) -> Iterable[exp.Expr]:
        return [expression for expression in part.iter_expressions() if not isinstance(expression, exp.Query)]

    return any(
        isinstance(part, exp.AggFunc) and not isinstance(part, _GROUPING) for part in parts(inside(node), inside)
    )


def _both(one: pl.Expr, other: pl.Expr | None) -> pl.Expr:
    return one if other is None else one & other
