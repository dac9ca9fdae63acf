"""What other dialects than the default mean by the same tree, where that can be told from the tree alone.

What their operators and functions mean is in :mod:`ddcore.sql.spark` and :mod:`ddcore.sql.duckdb`.
"""

from __future__ import annotations

from sqlglot import exp

from ddcore.sql.source import DIALECT, Source, called

SPARKS = ("spark", "databricks")
_AGGREGATES = (
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalOr, exp.LogicalAnd, exp.Stddev, exp.StddevPop,
    exp.StddevSamp, exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.Median,
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.PercentRank, exp.CumeDist, exp.Lag, exp.Lead,
    exp.FirstValue, exp.LastValue, exp.NthValue, exp.Grouping, exp.GroupingId,
)  # fmt: skip
"""Aggregates and functions of windows that mean the same in all dialects."""


def read(source: Source, tree: exp.Create) -> exp.Create:
    """The tree of a statement in the dialect of its program.

    In other dialects than the default, quotes do not make small and capital letters of names differ, and an expression
    without an alias has no name, for each dialect gives it another. Raises ProgramError for aggregates whose meaning
    differs.
    """
    tree.meta["dialect"] = source.dialect
    if source.dialect == DIALECT:
        return tree
    for node in list(tree.walk()):
        if isinstance(node, exp.Identifier):
            node.set("quoted", False)
        elif isinstance(node, exp.Select):
            for column in node.expressions:
                column.meta["unnamed"] = not isinstance(column, exp.Alias | exp.Column | exp.Star)
        elif type(node) is exp.TryCast and source.dialect in SPARKS and not node.args.get("safe"):
            node.replace(exp.Cast(this=node.this, to=node.to))
        elif isinstance(node, exp.Exists) and isinstance(node.expression, exp.Lambda):  # it has no query
            node.replace(exp.Anonymous(this="exists", expressions=[node.this, node.expression]))
        elif isinstance(node, exp.RawString):
            node.replace(exp.Literal.string(node.this))
        elif isinstance(node, exp.AggFunc) and not isinstance(node, _AGGREGATES):
            hint = "docs/sql.md lists the aggregates of each dialect"
            source.refuse(node, f"the aggregate {called(node)} in the dialect {source.dialect!r}", hint)
    return tree
