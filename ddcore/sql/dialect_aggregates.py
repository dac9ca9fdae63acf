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
)  # fmt: skip
"""Aggregates and functions of windows that mean the same in all dialects. Of several values that are as frequent, Spark
and DuckDB take any for ``mode``, and ``any_value`` takes any.
"""
_OF_DUCKDB = exp.ArrayAgg, exp.GroupConcat, exp.ArgMin, exp.ArgMax
"""Spark leaves nulls out of lists, and not out of ``max_by``."""


def plain(source: Source, node: exp.AggFunc) -> None:
    """Replace an aggregate that PostgreSQL writes otherwise. Raises ProgramError for one whose meaning differs."""
    is_duckdb = source.dialect == "duckdb"
    kinds = (*_OF_ALL, *_OF_DUCKDB) if is_duckdb else _OF_ALL
    if isinstance(node, exp.CountIf):
        node.replace(_counted(node.this, is_null_of_nulls=is_duckdb))
    elif isinstance(node, exp.Quantile) and not is_duckdb:
        node.replace(_within(exp.PercentileCont, node.this, node.args["quantile"]))
    elif isinstance(node, exp.PercentileCont | exp.PercentileDisc) and node.expression:
        node.replace(_within(type(node), node.this, node.expression))
    elif isinstance(node, exp.AnyValue) and isinstance(node.parent, exp.IgnoreNulls):
        node.parent.replace(node)
    elif not isinstance(node, kinds):
        hint = f"docs/sql.md lists the aggregates of each dialect; {DIALECT!r} has more of them"
        source.refuse(node, f"the aggregate {called(node)} in the dialect {source.dialect!r}", hint)


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
