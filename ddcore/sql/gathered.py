"""Aggregates of SQL that are computed from sums or in an order: statistics, percentiles, lists and texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl
from sqlglot import exp

from ddcore.base.schema import Type
from ddcore.expressions.canonical import canonical
from ddcore.operators import gathering
from ddcore.operators.aggregates import Aggregate
from ddcore.operators.gathering import GATHERED
from ddcore.sql import json_paths, zeros
from ddcore.sql.source import called, shown
from ddcore.sql.types import TEXT
from ddcore.sql.values import Value, Values, null

SPREADS: dict[type[exp.Expr], Callable[..., Aggregate]] = {
    **dict.fromkeys((exp.Stddev, exp.StddevSamp), gathering.stddev), exp.Variance: gathering.variance,
    exp.StddevPop: partial(gathering.stddev, population=True),
    exp.VariancePop: partial(gathering.variance, population=True),
}  # fmt: skip
"""The statistics of one number by its sum of squares."""
_OF_PAIRS: dict[type[exp.Expr], Callable[..., Aggregate]] = {
    exp.CovarSamp: gathering.covariance, exp.CovarPop: partial(gathering.covariance, population=True),
    exp.Corr: gathering.corr, exp.RegrSlope: gathering.regression, exp.RegrR2: partial(gathering.regression, of="r2"),
    exp.RegrIntercept: partial(gathering.regression, of="intercept"),
    exp.RegrSxx: partial(gathering.regression, of="sxx"), exp.RegrSyy: partial(gathering.regression, of="syy"),
    exp.RegrSxy: partial(gathering.regression, of="sxy"),
}  # fmt: skip
_BITS: dict[type[exp.Expr], Callable[..., Aggregate]] = {
    exp.BitwiseAndAgg: gathering.bit_and, exp.BitwiseOrAgg: gathering.bit_or, exp.BitwiseXorAgg: gathering.bit_xor,
}  # fmt: skip
_ENDS: dict[type[exp.Expr], Callable[..., Aggregate]] = {exp.ArgMin: gathering.min_by, exp.ArgMax: gathering.max_by}
KINDS: tuple[type[exp.Expr], ...] = (
    *SPREADS, *_OF_PAIRS, *_BITS, *_ENDS, exp.GroupConcat, exp.ArrayAgg, exp.Median, exp.Mode, exp.WithinGroup,
    *json_paths.AGGREGATES,
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """An aggregate, the types of its fields, and what is made of its result."""

    aggregate: Aggregate
    types: dict[str, Type]
    after: Callable[[pl.Expr], pl.Expr] = lambda expr: expr
    kind: Type | None = None

    @property
    def type(self) -> Type:
        """The type of the result: ``kind``, unless it is that of the aggregate."""
        return self.kind or GATHERED[self.aggregate.kind].result(self.types)

    @property
    def text(self) -> str:
        """The same for equal aggregates."""
        where = [] if self.aggregate.where is None else [self.aggregate.where]
        exprs = map(canonical, [*self.aggregate.fields.values(), *where])
        return " ".join([self.aggregate.kind, repr(self.aggregate.options), str(len(where)), *exprs])


def of_one(node: exp.Expr) -> Callable[..., Aggregate] | None:
    """The statistic of a single value, which may be of distinct ones; None for another aggregate."""
    return gathering.median if isinstance(node, exp.Median) else SPREADS.get(type(node))


def found(  # noqa: PLR0911  (one case, one return)
    values: Values, node: exp.Expr, where: pl.Expr | None, *, framed: bool = False
) -> Found:
    """One of ``KINDS``; ``framed``: of rows in an order. Raises ProgramError, with its place, for what is not
    supported.
    """
    if isinstance(node, exp.WithinGroup):
        return _within(values, node, where)
    if isinstance(node, exp.JSONObjectAgg | exp.JSONBObjectAgg):
        return _object(values, node, where, framed=framed)
    if isinstance(node, exp.GroupConcat | exp.ArrayAgg | exp.JSONArrayAgg):
        return _listed(values, node, where, framed=framed)
    one = of_one(node)
    if one is not None:
        value = values.number(values.of(node.this))
        return _made(one, where, value=_of_float(values, node, value) if isinstance(node, exp.Median) else value)
    if isinstance(node, exp.Mode):
        return _made(gathering.mode, where, value=_plain(values, node, node.this))
    if type(node) in _BITS:
        return _made(_BITS[type(node)], where, value=values.require(values.of(node.this), "int64"))
    if type(node) in _ENDS:
        by = _plain(values, node, node.expression)
        return _made(_ENDS[type(node)], where, value=_plain(values, node, node.this), by=by)
    y, x = (values.number(values.of(part)) for part in (node.this, node.expression))
    return _made(_OF_PAIRS[type(node)], where, value=y, other=x)


def _made(make: Callable[..., Aggregate], where: pl.Expr | None, **fields: Value) -> Found:
    types = {name: value.type for name, value in fields.items() if value.type is not None}
    return Found(make(*(value.expr for value in fields.values()), where=where), types)


def _plain(values: Values, node: exp.Expr, part: exp.Expr) -> Value:
    """A value that has an order."""
    value = values.of(part)
    if value.type is None or value.type.is_nested:
        values.source.refuse(node, f"{called(node)} of {value.name}")
    return value


# -- WITHIN GROUP -----------------------------------------------------------------------------------------------------


def _within(values: Values, node: exp.WithinGroup, where: pl.Expr | None) -> Found:
    inner, order = node.this, node.expression
    if not isinstance(inner, exp.PercentileCont | exp.PercentileDisc | exp.Mode) or len(order.expressions) != 1:
        hint = "percentile_cont, percentile_disc and mode are, with one value behind ORDER BY"
        values.source.refuse(node, "this aggregate WITHIN GROUP", hint)
    ordered = order.expressions[0]
    down, value = bool(ordered.args.get("desc")), _plain(values, node, ordered.this)
    if isinstance(inner, exp.Mode):
        if down:
            values.source.refuse(node, "mode() with DESC", "of several values it is the least: leave DESC out")
        return _made(gathering.mode, where, value=value)
    between = isinstance(inner, exp.PercentileCont)
    if between or down:  # of numbers, so that the other direction is that of their opposites
        value = values.number(value)
    if between:
        value = _of_float(values, node, value)
    expr = -value.expr if down else value.expr
    aggregate = gathering.quantile(expr, _fraction(values, inner), between=between, where=where)
    assert value.type is not None
    return Found(aggregate, {"value": value.type}, (lambda result: -result) if down else (lambda result: result))


def _of_float(values: Values, node: exp.Expr, value: Value) -> Value:
    """A number, whose quantile is a float. Raises ProgramError for a decimal in DuckDB's dialect, where it is none."""
    if values.source.dialect == "duckdb" and value.type is not None and value.type.name == "decimal":
        values.source.refuse(node, "a quantile of decimals, which DuckDB rounds to their digits", "CAST(x AS double)")
    return value


def _fraction(values: Values, node: exp.Expr) -> float:
    literal = node.this
    if isinstance(literal, exp.Literal) and not literal.is_string and 0 <= float(literal.name) <= 1:
        return float(literal.name)
    values.source.refuse(node, "this fraction", "write a number from 0 to 1")


# -- lists and texts --------------------------------------------------------------------------------------------------


def _listed(values: Values, node: exp.Expr, where: pl.Expr | None, *, framed: bool) -> Found:
    argument, sorts, distinct = node.this, list[exp.Expr](), False
    if isinstance(argument, exp.Order):
        argument, sorts = argument.this, argument.expressions
    if isinstance(argument, exp.Distinct):
        distinct = True
        if len(argument.expressions) != 1:
            values.source.refuse(node, f"{called(node)} of several distinct columns")
        (argument,) = argument.expressions
    if isinstance(argument, exp.Limit | exp.HavingMax | exp.IgnoreNulls):
        values.source.refuse(node, f"this {called(node)}")
    if isinstance(node, exp.JSONArrayAgg):
        return _json(values, node, argument, sorts, distinct=distinct, where=where, framed=framed)
    value = values.of(argument)
    if isinstance(node, exp.GroupConcat):
        value = values.require(value, "string")
    elif value.type is None:
        values.source.refuse(node, "array_agg(NULL)")
    if node.args.get("nulls_excluded"):
        there = value.expr.is_not_null()
        where = there if where is None else where & there
    keys = [_plain(values, node, sort.this) for sort in sorts]
    if distinct and any(canonical(key.expr) != canonical(value.expr) for key in keys):
        raise values.source.error(
            sorts[0], f"{called(node)}(DISTINCT ...) is ordered by another value: {shown(sorts[0])}",
            "order it by its own value, or aggregate a SELECT DISTINCT",
        )  # fmt: skip
    return _in_order(values, node, value, keys, sorts, distinct=distinct, where=where)


def _json(
    values: Values,
    node: exp.JSONArrayAgg,
    argument: exp.Expr,
    sorts: Sequence[exp.Expr],
    *,
    distinct: bool,
    where: pl.Expr | None,
    framed: bool,
) -> Found:
    """A list of JSON, as text: that of no rows is null, and nulls are in it. Lists begin a line each in JSON."""
    if distinct:
        values.source.refuse(node, "JSON of distinct values", "aggregate a SELECT DISTINCT")
    is_binary, value = bool(node.args.get("return_type")), values.peek(argument)
    written = Value(json_paths.written(values, argument, sorts=is_binary), TEXT, argument)
    is_list = value.type is not None and value.type.is_nested
    between = ", \n " if is_list and not is_binary else ", "
    own = written if is_list or value.type is None else value
    keys, order = [_plain(values, node, sort.this) for sort in sorts], sorts
    if not sorts and not framed:
        keys, order = [own], [exp.Ordered(this=argument, nulls_first=False)]
    text = exp.GroupConcat(this=argument, separator=exp.Literal.string(between))
    made = _in_order(values, text, written, keys, order, distinct=False, where=where)
    return replace(made, after=lambda found: pl.lit("[") + found + pl.lit("]"))


def _object(
    values: Values, node: exp.JSONObjectAgg | exp.JSONBObjectAgg, where: pl.Expr | None, *, framed: bool
) -> Found:
    """An object of JSON of keys and values, as text: null of no rows. In JSON keys are in the order that is asked for,
    or in their own, in a frame in that of its rows; in JSONB short ones come first. There a key that comes twice, of
    which PostgreSQL keeps the last one, is an error.
    """
    key, value = node.expressions or (node.this, node.expression)
    sorts: Sequence[exp.Expr] = []
    if isinstance(value, exp.Order):
        value, sorts = value.this, value.expressions
    binary, name = json_paths.is_binary(node), values.require(values.of(key), "string")
    pair = json_paths.named(name.expr, json_paths.written(values, value, sorts=binary), where, binary=binary)
    if not binary:
        written = Value(pair, TEXT, node)
        keys = [_plain(values, node, sort.this) for sort in sorts]
        if not sorts and not framed:
            keys, sorts = [name, written], [exp.Ordered(this=key, nulls_first=False)] * 2
        text = exp.GroupConcat(this=value, separator=exp.Literal.string(", "))
        made = _in_order(values, text, written, keys, sorts, distinct=False, where=where)
        return replace(made, after=lambda found: pl.lit("{ ") + found + pl.lit(" }"))
    kind = Type("struct", fields=(("key", TEXT), ("pair", TEXT)))
    order_by = [name.expr.str.len_bytes(), name.expr]
    listed = gathering.array_agg(pl.struct(key=name.expr, pair=pair), order_by=order_by, where=where)
    return Found(listed, {"value": kind}, _of_pairs, TEXT)


def _of_pairs(found: pl.Expr) -> pl.Expr:
    names = found.list.eval(pl.element().struct.field("key"))
    wrong = zeros.failing_where(names.list.unique().list.len() < names.list.len(), "a key of JSONB comes twice")
    texts = found.list.eval(pl.element().struct.field("pair")).list.join(", ")
    return pl.when(wrong == 0).then(pl.lit("{") + texts + pl.lit("}"))


def _in_order(
    values: Values,
    node: exp.Expr,
    value: Value,
    keys: Sequence[Value],
    sorts: Sequence[exp.Expr],
    *,
    distinct: bool,
    where: pl.Expr | None,
) -> Found:
    options: dict[str, Any] = {
        "order_by": [key.expr for key in keys], "descending": [bool(sort.args.get("desc")) for sort in sorts],
        "nulls_first": [bool(sort.args.get("nulls_first")) for sort in sorts], "distinct": distinct, "where": where,
    }  # fmt: skip
    assert value.type is not None
    types = {"value": value.type}
    if isinstance(node, exp.ArrayAgg):
        made = Found(gathering.array_agg(value.expr, **options), types)
        if not node.args.get("nulls_excluded"):
            return made
        nothing = pl.concat_list([null(value.type)]).list.head(0)
        return replace(made, after=lambda found: pl.coalesce(found, nothing))  # Spark's list of no values
    separator = node.args.get("separator")
    if not isinstance(separator, exp.Literal) or not separator.is_string:
        values.source.refuse(node, "a separator that is no literal", "write string_agg(x, ', ')")
    return Found(gathering.string_agg(value.expr, separator.name, **options), types)
