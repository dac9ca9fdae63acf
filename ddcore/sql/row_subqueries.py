"""Subqueries that are rows: ``(x, y) > (SELECT a, b ...)``."""

from __future__ import annotations

from sqlglot import exp

from ddcore.sql.source import Source

COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)


def with_parts(source: Source, node: exp.Expr) -> None:
    """Replace the subquery in ``(x, y) > (SELECT a, b ...)`` by a row of one for each of its columns. Raises
    ProgramError for a LIMIT: which of several equal rows it takes is open, for each column anew.
    """
    query = node.expression.unnest() if isinstance(node.expression, exp.Subquery) else None
    if not isinstance(node.this, exp.Tuple) or not isinstance(query, exp.Select):
        return
    if len(query.expressions) != len(node.this.expressions) or query.args.get("distinct") or query.args.get("limit"):
        source.refuse(node, "comparing a row with this subquery", "a SELECT of as many columns, without LIMIT, is")
    ones = []
    for column in query.expressions:
        one = query.copy()
        one.set("expressions", [column.copy()])
        ones.append(exp.Subquery(this=one))
    node.set("expression", exp.Tuple(expressions=ones))
