"""What other dialects than the default mean by the same tree, where that can be told from the tree alone.

What their operators and functions mean is in :mod:`ddcore.sql.spark` and :mod:`ddcore.sql.duckdb`.
"""

from __future__ import annotations

from sqlglot import exp

from ddcore.sql.dialect_aggregates import plain
from ddcore.sql.join_forms import with_plain_joins
from ddcore.sql.source import DIALECT, Source

SPARKS = ("spark", "databricks")


def read(source: Source, tree: exp.Create) -> exp.Create:
    """The tree of a statement in the dialect of its program.

    In other dialects than the default, quotes do not make small and capital letters of names differ, and an expression
    without an alias has no name, for each dialect gives it another. Raises ProgramError for aggregates whose meaning
    differs.
    """
    tree.meta["dialect"] = source.dialect
    if source.dialect != DIALECT:
        _plain(source, tree)
    return tree


def _plain(source: Source, tree: exp.Create) -> None:
    for node in list(tree.walk()):
        if isinstance(node, exp.Identifier):
            node.set("quoted", False)
        elif isinstance(node, exp.Select):
            for column in node.expressions:
                column.meta["unnamed"] = not isinstance(column, exp.Alias | exp.Column | exp.Star)
            with_plain_joins(source, node)
        elif type(node) is exp.TryCast and source.dialect in SPARKS and not node.args.get("safe"):
            node.replace(exp.Cast(this=node.this, to=node.to))
        elif isinstance(node, exp.Exists) and isinstance(node.expression, exp.Lambda):  # it has no query
            node.replace(exp.Anonymous(this="exists", expressions=[node.this, node.expression]))
        elif isinstance(node, exp.RawString):
            node.replace(exp.Literal.string(node.this))
        elif isinstance(node, exp.Table) and node.db.lower() == "live" and source.dialect in SPARKS:
            node.set("db", None)  # as Databricks names the tables of a pipeline
    for node in reversed(list(tree.find_all(exp.AggFunc))):  # those inside of others first
        plain(source, node)
