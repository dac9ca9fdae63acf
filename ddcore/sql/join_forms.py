"""Joins that PostgreSQL does not have, as what they mean there: Spark's ``LATERAL VIEW explode(list) t AS x`` is a
lateral ``unnest``, and ``SEMI`` and ``ANTI JOIN`` are ``EXISTS``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ddcore.sql.source import DIALECT, Source, called, shown

ZERO = "from zero"
"""What the ``meta`` of an unnest() with numbers says that count from 0."""
GENERATORS = exp.Explode, exp.ExplodeOuter, exp.Posexplode, exp.PosexplodeOuter


def with_plain_joins(source: Source, select: exp.Select) -> None:
    """Replace these joins of a SELECT. Raises ProgramError for forms that mean something else."""
    joins: list[exp.Join] = []
    conditions: list[exp.Expr] = []
    for join in select.args.get("joins") or []:
        if join.kind in ("SEMI", "ANTI"):
            conditions.append(_existing(source, join, [select.args.get("from_"), *joins]))
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


def _existing(source: Source, join: exp.Join, before: Sequence[exp.Expr | None]) -> exp.Expr:
    """The condition on the rows before a SEMI or an ANTI JOIN."""
    on = join.args.get("on")
    names = [table.this.alias_or_name if table is not None else "" for table in (*before, join)]
    apart = len({name.casefold() for name in names}) == len(names) == 2 and all(names)
    if on is None and join.args.get("using") and apart:
        using = join.args["using"]
        sides = [[exp.column(column.copy(), name) for column in using] for name in names]
        on = exp.and_(*(exp.EQ(this=left, expression=right) for left, right in zip(*sides, strict=True)))
    if on is None:
        source.refuse(
            join, f"this {join.kind} JOIN without ON", f"name both tables, and write {join.kind} JOIN t ON a.x = t.x"
        )
    one = exp.alias_(exp.Literal.number(1), "one")
    there = exp.Exists(this=exp.Select(expressions=[one], from_=exp.From(this=join.this), where=exp.Where(this=on)))
    return exp.Not(this=there) if join.kind == "ANTI" else there


def with_elements_joined(source: Source, select: exp.Select) -> None:
    """``SELECT explode(list)`` and ``SELECT unnest(list)`` as a join of the rows with the elements."""
    found = [(column, node) for column in select.expressions for node in column.find_all(*GENERATORS)]
    found = [(column, node) for column, node in found if node.parent_select is select]
    if not found:
        return
    (column, node), *more = found
    has_numbers = isinstance(node, exp.Posexplode | exp.PosexplodeOuter)
    is_whole = (column.this if isinstance(column, exp.Alias | exp.Aliases) else column) is node
    apart = not any(select.args.get(key) for key in ("group", "having", "qualify"))
    apart = apart and not any(part.find(exp.AggFunc, exp.Window) for part in select.expressions)
    if more or not apart or node.expressions or (has_numbers and not is_whole):
        hint = "write it in FROM of a subquery: SELECT e FROM t CROSS JOIN unnest(list) AS u(e)"
        source.refuse(node, f"{called(node)}() beside another, groups or windows", hint)
    hidden = [*(["unnested place"] if has_numbers else []), "unnested element"]
    columns: list[exp.Expr] = [exp.column(name, "unnested") for name in hidden]
    alias = exp.TableAlias(this=exp.to_identifier("unnested"), columns=[exp.to_identifier(name) for name in hidden])
    if is_whole:
        columns = [
            exp.alias_(part, name)
            for part, name in zip(columns, _names(source, column, node, len(hidden)), strict=True)
        ]
        position = next(number for number, part in enumerate(select.expressions) if part is column)
        select.set("expressions", [*select.expressions[:position], *columns, *select.expressions[position + 1 :]])
    else:
        node.replace(columns[0])
    join = _unnested(source, exp.Lateral(this=node, alias=alias))
    for star in select.expressions:
        if isinstance(star, exp.Star):
            star.set("except_", [*(star.args.get("except_") or []), *map(exp.to_identifier, hidden)])
    if select.args.get("from_") is None:
        select.set("from_", exp.From(this=join.this))
    else:
        select.append("joins", join if join.side else exp.Join(this=join.this))  # a comma, which binds weakest


def _names(source: Source, column: exp.Expr, node: exp.Expr, count: int) -> list[str]:
    """What the columns of a function of rows are called in SELECT."""
    if isinstance(column, exp.Alias):
        names = [column.alias]
    elif isinstance(column, exp.Aliases):
        names = [name.name for name in column.expressions]
    else:
        names = ["unnest"] if source.dialect == DIALECT else ["pos", "col"][-count:]
    if len(names) != count or (source.dialect == "duckdb" and column is node):
        raise source.error(
            node,
            f"{shown(node)} needs {count} {'names' if count > 1 else 'name'} behind AS",
            "write posexplode(list) AS (n, e)" if count > 1 else "write unnest(list) AS e",
        )
    return names


def _unnested(source: Source, lateral: exp.Lateral) -> exp.Join:
    function, alias = lateral.this, lateral.args.get("alias")
    if not isinstance(function, GENERATORS) or function.expressions:
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
