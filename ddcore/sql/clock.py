"""``now()`` and its relatives: the instant of the version, as a subquery over the one row of ``dd.now``.

So a condition such as ``ts > now() - INTERVAL '7 days'`` is a filter that moves, as one over any other scalar is.
"""

from __future__ import annotations

from sqlglot import exp

from ddcore.base.instants import NOW
from ddcore.program.constants import now
from ddcore.sql.names import Column, Relation
from ddcore.sql.source import DIALECT, called

CLOCK = "now()"  # the table, which no program can name
TIMES = exp.CurrentTimestamp, exp.Localtimestamp, exp.CurrentDate
_NAMES = {
    DIALECT: ("transaction_timestamp", "statement_timestamp"),
    "spark": ("now",),
    "databricks": ("now",),
    "duckdb": ("now", "get_current_timestamp", "transaction_timestamp"),
}
"""Functions that sqlglot has no kind for."""


def with_instants(tree: exp.Create) -> exp.Create:
    """A statement with a subquery in the place of each function that is the instant of the version, or its day.

    ``age(x)`` is ``age(current_date, x)``.
    """
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() == "age" and len(call.expressions) == 1 and tree.meta["dialect"] in (DIALECT, "duckdb"):
            call.set("expressions", [exp.CurrentDate(), *call.expressions])
    for node in list(tree.find_all(*TIMES, exp.Anonymous)):
        is_day = isinstance(node, exp.CurrentDate)
        if isinstance(node, exp.Anonymous):
            is_known = node.name.lower() in _NAMES[tree.meta["dialect"]] and not node.expressions
        else:
            is_known = node.args.get("this") is None
        if is_known:
            node.replace(_subquery(node, is_day=is_day))
    return tree


def _subquery(node: exp.Expr, *, is_day: bool) -> exp.Subquery:
    value: exp.Expr = exp.column(NOW)
    if is_day:
        value = exp.Cast(this=value, to=exp.DataType.build("date"))
    name = node.name.lower() if isinstance(node, exp.Anonymous) else called(node)
    name = {"current_timestamp": "now"}.get(name, name)
    select = exp.Select(
        expressions=[exp.alias_(value, name)],
        from_=exp.From(this=exp.Table(this=exp.to_identifier(CLOCK, quoted=True))),
    )
    select.meta["instant"] = True
    query = exp.Subquery(this=select)
    query.meta.update(node.meta, name=name, written=node.copy())
    return query


def clock() -> Relation:
    """The table of instants."""
    return Relation(now(), (Column("", NOW, NOW),))
