"""GROUP BY, HAVING and aggregates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.errors import ProgramError
from ddcore.base.schema import Type, widest
from ddcore.base.source_line import planning
from ddcore.expressions.expressions import canonical
from ddcore.operators import aggregates
from ddcore.sql import gathered, quotients
from ddcore.sql.dialects import SPARKS
from ddcore.sql.grouping_sets import Grouping
from ddcore.sql.names import Relation, types
from ddcore.sql.pairs import paired
from ddcore.sql.source import Source, called, parts, shown
from ddcore.sql.values import CHAINED, INT, Value, Values, is_plain, null

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries

__all__ = [
    "AGGREGATES",
    "PLAIN",
    "Computed",
    "aggregates_in",
    "aggregates_of",
    "computed",
    "grouped",
    "has_aggregate",
    "has_row_of_nothing",
    "is_global",
    "is_grouped",
    "unwrapped",
]

_GROUPING = exp.Grouping, exp.GroupingId
PLAIN = exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalOr, exp.LogicalAnd, exp.AnyValue
"""The aggregates that may have an order and a frame."""
AGGREGATES: tuple[type[exp.Expr], ...] = (*PLAIN, exp.RegrCount, exp.RegrAvgx, exp.RegrAvgy, *gathered.KINDS)
_AGGREGATE = exp.Filter | exp.AggFunc | exp.WithinGroup


def aggregates_in(query: exp.Expr) -> list[exp.Expr]:
    """The aggregates of a SELECT itself, with their FILTER, not those of its subqueries and windows."""

    def inside(node: exp.Expr) -> Iterable[exp.Expr]:
        if isinstance(node, exp.Query | _AGGREGATE):
            return ()
        if isinstance(node, exp.Window):
            condition = [node.this.expression] if isinstance(node.this, exp.Filter) else []
            return [
                *condition,
                *unwrapped(node.this).iter_expressions(),
                *(expression for expression in node.iter_expressions() if expression is not node.this),
            ]
        return node.iter_expressions()

    values = [query.args.get(key) for key in ("expressions", "having", "order", "qualify")]
    nodes = [each for value in values for each in (value if isinstance(value, list) else [value])]
    found = parts([each for each in nodes if isinstance(each, exp.Expr)], inside)
    return [node for node in found if _is_aggregate(node)]


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, _AGGREGATE) and not isinstance(node, _GROUPING)


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


@dataclass(frozen=True)
class Computed:
    """Aggregates: the collection of keys and results, and the value of each aggregate by its text."""

    rows: Any
    values: Mapping[str, Callable[[exp.Expr], Value]]
    counts: Sequence[str]

    def known(self, node: exp.Expr) -> Value | None:
        """The value of an aggregate, if this part is one."""
        make = self.values.get(node.sql()) if isinstance(node, _AGGREGATE) else None
        return make(node) if make else None

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
    for number, each in enumerate(made.distinct.values()):
        rows = _with_distinct(base, rows, columns, each, f"{prefix}distinct {number}")
    return Computed(rows, made.known, [name for name in made.aggregates if name in made.counts])


@dataclass(frozen=True)
class _Distinct:
    """Aggregates of the distinct values of an argument: the column ``value`` is the argument."""

    argument: pl.Expr
    aggregates: dict[str, Any]


def _with_distinct(base: Any, rows: Any, keys: Sequence[str], each: _Distinct, name: str) -> Any:
    """Groups with aggregates of distinct values, null where a group has no value."""
    values = base.select(*keys, value=each.argument).where(pl.col("value").is_not_null()).distinct()
    own = {key: f"{name} key {number}" for number, key in enumerate(keys)}
    found = values.group_by(*keys).agg(**each.aggregates).rename(own)
    pairs = [(pl.col(key), pl.col(other), True) for key, other in own.items()]
    return paired(rows, found, pairs, "left").select(*types(rows), *each.aggregates)


def aggregates_of(values: Values, node: exp.Expr, prefix: str) -> Aggregates:
    """What one aggregate needs, of arguments that may be aggregates, of which ``values`` knows the values."""
    made = Aggregates(values, prefix, nested=True)
    made.add(node)
    return made


class Aggregates:
    """The aggregates under way: equal ones are computed once."""

    def __init__(self, values: Values, prefix: str, *, nested: bool) -> None:
        self.values, self.prefix, self.nested = values, prefix, nested
        self.aggregates: dict[str, Any] = {}
        self.distinct: dict[str, _Distinct] = {}
        self.counts: set[str] = set()
        self.known: dict[str, Callable[[exp.Expr], Value]] = {}
        self._names: dict[str, str] = {}

    def add(self, node: exp.Expr) -> None:
        """One aggregate of the query."""
        if node.sql() in self.known:
            return
        source = self.values.source
        inner, where = node, None
        if isinstance(node, exp.Filter):
            inner = node.this
            where = self.values.truth(node.expression.this, "FILTER")
        if not isinstance(inner, AGGREGATES):
            source.refuse(node, f"the aggregate {called(inner)}", "docs/sql.md lists those that are")
        if not isinstance(inner, gathered.KINDS):
            self.values.require_arguments(inner, type(inner))
        if not self.nested and _nested(inner.this if isinstance(inner, exp.WithinGroup) else inner):
            raise source.error(inner, f"an aggregate of an aggregate: {shown(inner)}", "compute the inner one first")
        self.known[node.sql()] = self._result(inner, where)

    def _result(self, node: exp.Expr, where: pl.Expr | None) -> Callable[[exp.Expr], Value]:
        one = gathered.of_one(node)
        if isinstance(node, gathered.KINDS) and (one is None or not isinstance(node.this, exp.Distinct)):
            return self._gathered(gathered.found(self.values, node, where))
        if isinstance(node, exp.RegrCount | exp.RegrAvgx | exp.RegrAvgy):
            return self._of_pairs(node, where)
        return self._of_values(node, one, where)

    def _of_values(  # noqa: PLR0911  (one case, one return)
        self, node: exp.Expr, one: Any, where: pl.Expr | None
    ) -> Callable[[exp.Expr], Value]:
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
        if distinct and self._has_decimal_mean(node, value):
            return self._decimal_mean_of_distinct(value, where)
        if distinct:
            make = one or (aggregates.mean if isinstance(node, exp.Avg) else aggregates.sum)
            return self._of_distinct(called(node), make, value, where)
        if isinstance(node, exp.Avg):
            is_decimal = self._has_decimal_mean(node, value)
            return self._decimal_mean(value, where) if is_decimal else self._plain(aggregates.mean, value, where)
        return self._sum(value, where)

    def _gathered(self, found: gathered.Found) -> Callable[[exp.Expr], Value]:
        name = self._names.setdefault(found.text, f"{self.prefix}aggregate {len(self._names)}")
        self.aggregates[name] = found.aggregate
        return lambda node: Value(found.after(pl.col(name)), found.type, node)

    def _of_pairs(self, node: exp.Expr, where: pl.Expr | None) -> Callable[[exp.Expr], Value]:
        """Of the rows in which neither value is null, how many there are, or the mean of one."""
        y, x = (self.values.number(self.values.of(part)) for part in (node.this, node.expression))
        both = _both(y.expr.is_not_null() & x.expr.is_not_null(), where)
        if isinstance(node, exp.RegrCount):
            return self._plain(aggregates.count, None, both)
        return self._plain(aggregates.mean, y if isinstance(node, exp.RegrAvgy) else x, both)

    def _of_distinct(self, what: str, make: Any, value: Value, where: pl.Expr | None) -> Callable[[exp.Expr], Value]:
        """An aggregate of the distinct values, null where there are none."""
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
        result = widest(kind) if make is aggregates.sum else Type("float64")
        return lambda node: Value(pl.col(name), result, node)

    def _count(
        self, node: exp.Expr, argument: exp.Expr, distinct: bool, where: pl.Expr | None
    ) -> Callable[[exp.Expr], Value]:
        if isinstance(argument, exp.Star) or (isinstance(argument, exp.Literal) and not distinct):
            return self._plain(aggregates.count, None, where)
        if node.args.get("expressions"):
            self.values.source.refuse(node, "count of several columns")
        if isinstance(argument, exp.Tuple):  # which is a value even where all its parts are null
            if not distinct:
                return self._plain(aggregates.count, None, where)
            parts = [self.values.of(each) for each in argument.expressions]
            value = self.values.typed(_row, parts, node)
        else:
            value = self.values.of(argument)
        if value.type is None:
            self.values.source.refuse(node, "count(NULL)")
        if distinct:
            return self._plain(aggregates.count_distinct, value, where)
        return self._plain(aggregates.count, None, _both(value.expr.is_not_null(), where))

    def _sum(self, value: Value, where: pl.Expr | None) -> Callable[[exp.Expr], Value]:
        """Null where no value is there: a sum of no values is 0 here."""
        total = self._plain(aggregates.sum, value, where)
        number = self._plain(aggregates.count, None, _both(value.expr.is_not_null(), where))

        def result(node: exp.Expr) -> Value:
            kind = value.type
            assert kind is not None
            wide = widest(kind)
            expr = pl.when(number(node).expr > 0).then(total(node).expr).otherwise(null(wide))
            return Value(expr, wide, node)

        return result

    def _has_decimal_mean(self, node: exp.Expr, value: Value) -> bool:
        """Whether it is a mean of decimals in a dialect in which that is a decimal."""
        is_decimal = value.type is not None and value.type.name == "decimal"
        return isinstance(node, exp.Avg) and is_decimal and self.values.source.dialect in SPARKS

    def _decimal_mean(self, value: Value, where: pl.Expr | None) -> Callable[[exp.Expr], Value]:
        """Spark's mean of decimals: null where no value is there."""
        kind, of = quotients.mean_type(self.values, value), value.type
        assert of is not None
        total = self._plain(aggregates.sum, value, where)
        number = self._plain(aggregates.count, None, _both(value.expr.is_not_null(), where))
        return lambda node: Value(quotients.mean(total(node).expr, number(node).expr, of.scale, kind), kind, node)

    def _decimal_mean_of_distinct(self, value: Value, where: pl.Expr | None) -> Callable[[exp.Expr], Value]:
        kind, of = quotients.mean_type(self.values, value), value.type
        assert of is not None
        total = self._of_distinct("sum", aggregates.sum, value, where)
        number = self._of_distinct("count", lambda _: aggregates.count(), value, where)
        return lambda node: Value(quotients.mean(total(node).expr, number(node).expr, of.scale, kind), kind, node)

    def _plain(self, make: Any, value: Value | None, where: pl.Expr | None) -> Callable[[exp.Expr], Value]:
        arguments = [value.expr] if value is not None else []
        text = " ".join(
            [make.__name__, *(canonical(argument) for argument in [*arguments, *([] if where is None else [where])])]
        )
        text += f" {value is None} {where is None}"
        name = self._names.setdefault(text, f"{self.prefix}aggregate {len(self._names)}")
        self.aggregates[name] = make(*arguments, where=where)
        if make in (aggregates.count, aggregates.count_distinct):
            self.counts.add(name)
        kinds = {aggregates.count: "int64", aggregates.count_distinct: "int64", aggregates.mean: "float64"}

        def result(node: exp.Expr) -> Value:
            kind = Type(kinds[make]) if make in kinds else value.type if value is not None else None
            return Value(pl.col(name), kind, node)

        return result


def _row(*parts: pl.Expr) -> pl.Expr:
    """A row of values, as one."""
    names = [f"value {number}" for number in range(len(parts))]
    return pl.struct(*(part.alias(name) for name, part in zip(names, parts, strict=True)))


def _nested(node: exp.Expr) -> bool:
    """Whether there is an aggregate inside of one, not counting subqueries."""

    def inside(part: exp.Expr) -> Iterable[exp.Expr]:
        return [expression for expression in part.iter_expressions() if not isinstance(expression, exp.Query)]

    return any(
        isinstance(each, exp.AggFunc) and not isinstance(each, _GROUPING) for each in parts(inside(node), inside)
    )


def _both(one: pl.Expr, other: pl.Expr | None) -> pl.Expr:
    return one if other is None else one & other


# -- a SELECT with groups ---------------------------------------------------------------------------------------------


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
    with planning(source.place(nodes[0] if nodes else query.args.get("group") or query)):
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
        if isinstance(node, _GROUPING):
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
    if isinstance(node, exp.Literal | exp.Null | exp.Boolean) or _nested(node):
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
