"""Joins that PostgreSQL does not have, as what they mean there: Spark's ``LATERAL VIEW explode(list) t AS x`` is a
lateral ``unnest``, and ``SEMI`` and ``ANTI JOIN`` are ``EXISTS``.
"""

from __future__ import annotations

from sqlglot import exp

from ddcore.sql.source import Source, called, shown

ZERO = "from zero"
"""What the ``meta`` of an unnest() with numbers says that count from 0."""
_GENERATORS = exp.Explode, exp.ExplodeOuter, exp.Posexplode, exp.PosexplodeOuter


def with_plain_joins(source: Source, select: exp.Select) -> None:
    """Replace these joins of a SELECT. Raises ProgramError for forms that mean something else."""
    joins: list[exp.Join] = []
    conditions: list[exp.Expr] = []
    for join in select.args.get("joins") or []:
        if join.kind in ("SEMI", "ANTI"):
            conditions.append(_existing(source, join))
        else:
            if conditions and join.side in ("RIGHT", "FULL"):
                hint = "write WHERE EXISTS (SELECT 1 FROM ...) in a subquery"
                source.refuse(join, f"a {join.side} JOIN behind a SEMI or an ANTI JOIN", hint)
            joins.append(join)
    laterals = select.args.pop("laterals", None) or []
    joins += [_unnested(source, lateral) for lateral in laterals]
    if conditions or laterals:
        select.set("joins", joins)
        for condition in conditions:
            select.where(condition, copy=False)


def _existing(source: Source, join: exp.Join) -> exp.Expr:
    """The condition on the rows before a SEMI or an ANTI JOIN."""
    on = join.args.get("on")
    if on is None:
        source.refuse(join, f"a {join.kind} JOIN without ON", f"write {join.kind} JOIN t ON a.x = t.x")
    one = exp.alias_(exp.Literal.number(1), "one")
    there = exp.Exists(this=exp.Select(expressions=[one], from_=exp.From(this=join.this), where=exp.Where(this=on)))
    return exp.Not(this=there) if join.kind == "ANTI" else there


def _unnested(source: Source, lateral: exp.Lateral) -> exp.Join:
    function, alias = lateral.this, lateral.args.get("alias")
    if not isinstance(function, _GENERATORS) or function.expressions:
        what = f"LATERAL VIEW of {called(function)}()"
        source.refuse(lateral, what, "write LATERAL VIEW explode(list) t AS x, or posexplode(list) t AS n, x")
    has_numbers = isinstance(function, exp.Posexplode | exp.PosexplodeOuter)
    names = list(alias.args.get("columns") or []) if isinstance(alias, exp.TableAlias) else []
    names = names or [exp.to_identifier(name) for name in (("pos", "col") if has_numbers else ("col",))]
    if len(names) != 1 + has_numbers:
        wanted = "two names, for the numbers and the elements" if has_numbers else "one name, for the elements"
        raise source.error(lateral, f"{shown(function)} takes {wanted}, and {len(names)} are here", "name as many")
    table = alias.this if isinstance(alias, exp.TableAlias) else None
    unnest = exp.Unnest(
        expressions=[function.this], alias=exp.TableAlias(this=table, columns=names[-1:]),
        offset=names[0] if has_numbers else None,
    )  # fmt: skip
    unnest.meta[ZERO] = True
    if lateral.args.get("outer") or isinstance(function, exp.ExplodeOuter | exp.PosexplodeOuter):
        return exp.Join(this=unnest, side="LEFT", on=exp.Boolean(this=True))
    return exp.Join(this=unnest, kind="CROSS")
