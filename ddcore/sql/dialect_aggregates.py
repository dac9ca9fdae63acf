"""Aggregates of other dialects than the default: which mean the same, and which are written otherwise."""

from __future__ import annotations

from sqlglot import exp

from ddcore.sql.source import DIALECT, Source, called

_OF_ALL = (
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalOr, exp.LogicalAnd, exp.Stddev, exp.StddevPop,
    exp.StddevSamp, exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.Median,
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.PercentRank, exp.CumeDist, exp.Lag, exp.Lead,
    exp.FirstValue, exp.LastValue, exp.NthValue, exp.Grouping, exp.GroupingId, exp.Mode, exp.AnyValue,
    exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg, exp.PercentileCont, exp.PercentileDisc,
    exp.RegrCount, exp.RegrAvgx, exp.RegrAvgy, exp.RegrSlope, exp.RegrIntercept, exp.RegrR2, exp.RegrSxx, exp.RegrSyy,
    exp.RegrSxy, exp.ArrayAgg,
)  # fmt: skip
"""Aggregates and functions of windows that mean the same in all dialects. Of several values that are as frequent, Spark
and DuckDB take any for ``mode``, and ``any_value`` takes any.
"""
_ENDS = {
    exp.First: (exp.FirstValue, exp.AnyValue), exp.FirstValue: (exp.FirstValue, exp.AnyValue),
    exp.Last: (exp.LastValue, exp.Max), exp.LastValue: (exp.LastValue, exp.Max),
}  # fmt: skip
"""The first and the last value of a window, and of a group, whose values are in their own order."""


def plain(source: Source, node: exp.AggFunc) -> None:  # noqa: PLR0912  (one kind, one case)
    """Replace an aggregate that PostgreSQL writes otherwise. Raises ProgramError for one whose meaning differs."""
    is_duckdb = source.dialect == "duckdb"
    if isinstance(node, exp.CountIf):
        node.replace(_counted(node.this, is_null_of_nulls=is_duckdb))
    elif isinstance(node, exp.Quantile) and not is_duckdb:
        node.replace(_within(exp.PercentileCont, node.this, node.args["quantile"]))
    elif isinstance(node, exp.PercentileCont | exp.PercentileDisc) and node.expression:
        node.replace(_within(type(node), node.this, node.expression))
    elif isinstance(node, exp.AnyValue) and not isinstance(node.this, exp.Order):
        if isinstance(node.parent, exp.IgnoreNulls):
            node.parent.replace(node)
    elif type(node) in _ENDS and not isinstance(node.this, exp.Order):
        _end(node)
    elif isinstance(node, exp.ApproxDistinct):
        node.replace(exp.Count(this=exp.Distinct(expressions=[node.this])))
    elif isinstance(node, exp.ArrayUniqueAgg):
        node.replace(exp.ArrayAgg(this=exp.Distinct(expressions=[node.this]), nulls_excluded=True))
    elif isinstance(node, exp.GroupConcat):
        if not node.args.get("separator"):
            node.set("separator", exp.Literal.string("," if is_duckdb else ""))
    elif isinstance(node, exp.ArgMin | exp.ArgMax):
        if node.args.get("count"):
            source.refuse(node, f"{called(node)} of several rows", "QUALIFY row_number() OVER (...) <= n keeps n rows")
        if not is_duckdb:
            _with_nulls(node)
    elif isinstance(node, exp.RegrSlope | exp.Corr) and is_duckdb:
        _not_a_number(node)
    elif isinstance(node, exp.First | exp.Last | exp.AnyValue) and isinstance(node.this, exp.Order):
        _in_order(node)
    elif not isinstance(node, _OF_ALL):
        hint = f"docs/sql.md lists the aggregates of each dialect; {DIALECT!r} has more of them"
        source.refuse(node, f"the aggregate {called(node)} in the dialect {source.dialect!r}", hint)


def of_fractions(node: exp.WithinGroup) -> None:
    """Replace percentiles at several fractions by a list of one for each: null where there is no value."""
    fractions = node.this.this
    if not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc) or not isinstance(fractions, exp.Array):
        return
    top, ones = _outside(node), []
    for fraction in fractions.expressions:
        one = node.copy()
        one.this.set("this", fraction.copy())
        ones.append(_written(node, one))
    there = exp.Not(this=exp.Is(this=ones[0].copy(), expression=exp.Null())) if ones else exp.false()
    whole: exp.Expr = _case(there, exp.Array(expressions=ones))
    is_column = isinstance(top.parent, exp.Select) and top.arg_key == "expressions"
    top.replace(exp.alias_(whole, called(node.this)) if is_column else whole)


def _around(node: exp.Expr) -> list[exp.Expr]:
    """What an aggregate is written with, from the inside: IGNORE NULLS, FILTER, OVER."""
    found: list[exp.Expr] = []
    while isinstance(node.parent, exp.IgnoreNulls | exp.Filter | exp.Window) and node.arg_key == "this":
        node = node.parent
        found.append(node)
    return found


def _end(node: exp.AggFunc) -> None:
    """``first`` and ``last``: in OVER those of its order, else the least and the greatest value."""
    around, (in_window, in_group) = _around(node), _ENDS[type(node)]
    if any(isinstance(part, exp.Window) for part in around):
        if not isinstance(node, in_window):
            node.replace(in_window(this=node.this))
        return
    inner = around[0] if around and isinstance(around[0], exp.IgnoreNulls) else node
    inner.replace(in_group(this=node.this))


def _in_order(node: exp.First | exp.Last | exp.AnyValue) -> None:
    """DuckDB's ``first(x ORDER BY y)``: of the list in this order. ``any_value`` looks at no nulls."""
    around, is_any = _around(node), isinstance(node, exp.AnyValue)
    if any(isinstance(part, exp.IgnoreNulls) for part in around) != is_any:
        return
    inner = around[0] if is_any else node
    top, position = _outside(node), exp.Literal.number(0)  # from 0, whatever the dialect
    if isinstance(node, exp.Last):
        position = exp.Neg(this=exp.Literal.number(2))
    listed = exp.ArrayAgg(this=node.this, nulls_excluded=is_any)
    top.replace(exp.Bracket(this=_written(inner, listed), expressions=[position]))


def _with_nulls(node: exp.ArgMin | exp.ArgMax) -> None:
    """Spark's ``min_by`` and ``max_by``, which look at rows whose value is null: it is null where only these have the
    end. Of several rows with the end, the values that are there go first.
    """
    end = exp.Min if isinstance(node, exp.ArgMin) else exp.Max
    there = exp.Not(this=exp.Is(this=exp.Paren(this=node.this.copy()), expression=exp.Null()))
    ends = [_written(node, end(this=node.expression.copy()), where) for where in (None, there)]
    _outside(node).replace(_case(exp.EQ(this=ends[0], expression=ends[1]), _written(node, node.copy())))


def _not_a_number(node: exp.RegrSlope | exp.Corr) -> None:
    """DuckDB's slope, which is not a number where ``x`` does not vary, and ``corr``, where either does not."""

    def same(kind: type[exp.Expr]) -> exp.Expr:
        spread = kind(this=node.this.copy(), expression=node.expression.copy())
        return exp.EQ(this=_written(node, spread), expression=exp.Literal.number(0))

    nan = exp.cast(exp.Literal.string("NaN"), exp.DType.DOUBLE)
    is_same = exp.Or(this=same(exp.RegrSxx), expression=same(exp.RegrSyy)) if isinstance(node, exp.Corr) else None
    _outside(node).replace(_case(is_same or same(exp.RegrSxx), nan, _written(node, node.copy())))


def _case(condition: exp.Expr, value: exp.Expr, default: exp.Expr | None = None) -> exp.Case:
    return exp.Case(ifs=[exp.If(this=condition, true=value)], default=default)


def _outside(node: exp.Expr) -> exp.Expr:
    return [node, *_around(node)][-1]


def _written(node: exp.Expr, other: exp.Expr, where: exp.Expr | None = None) -> exp.Expr:
    """Another aggregate with all that one is written with, of the rows with a condition."""
    around = _around(node)
    if where is not None and not any(isinstance(part, exp.Filter) for part in around):
        other = exp.Filter(this=other, expression=exp.Where(this=where))
    for part in around:
        outer = part.copy()
        outer.set("this", other)
        if where is not None and isinstance(outer, exp.Filter):
            outer.expression.set("this", exp.and_(outer.expression.this, where))
        other = outer
    return other


def _counted(condition: exp.Expr, *, is_null_of_nulls: bool) -> exp.Expr:
    """How often a condition is true. DuckDB's number is null where the condition is null in all rows."""
    ifs = [exp.If(this=condition, true=exp.Literal.number(1))]
    if not is_null_of_nulls:
        return exp.Count(this=exp.Case(ifs=ifs))
    no = exp.Not(this=exp.Paren(this=condition.copy()))
    return exp.Sum(this=exp.Case(ifs=[*ifs, exp.If(this=no, true=exp.Literal.number(0))]))


def _within(kind: type[exp.Expr], value: exp.Expr, fraction: exp.Expr) -> exp.Expr:
    order = exp.Order(expressions=[exp.Ordered(this=value, nulls_first=False)])
    return exp.WithinGroup(this=kind(this=fraction), expression=order)
